"""`reticent classify` of documents that belong to no run, from any model folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.evidence.json_form import to_json
from reticent.core.artifact import held_folder, write_artifact
from reticent.core.device import check_device
from reticent.core.errors import PolicyError
from reticent.core.progress import Progress
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.split import households_named, split_individuals
from reticent.engine.store import open_tokens
from reticent.engine.tokens import write_tokens
from reticent.ext.classify.documents import (
    FILE,
    assemble_result,
    label_tokens,
    measure_baselines,
    read_labels,
    train_one,
)
from reticent.job.config import Job
from reticent.job.dependencies import is_trained_here, privacy_unit
from reticent.job.run import Run
from reticent.trainer.privacy import refuse_promise
from reticent.trainer.tokenizer_of_model import tokenizer_json_of

if TYPE_CHECKING:
    from reticent.audit.evidence.classification import ClassificationEvidence, ClassifiedStart
    from reticent.engine.corpus import Corpus
    from reticent.engine.store import TokenStore


def classify_documents(
    job: Job, folders: Sequence[Path], out: Path | None, progress: Progress
) -> ClassificationEvidence:
    """Train a document classifier on top of each model in ``folders``, outside of any run folder, and return its F1 on
    held-out individuals. The result is written to ``out``, if given.

    Individuals are split by the job's shares and seed: a member of a run with the same shares and seed is a member
    here. So a private head on a checkpoint that a run trained promises no epsilon.

    Parameters
    ----------
    out : Path, optional
        Folder of the result, an artefact, with the classifiers if the job keeps them. By default nothing is kept.
    """

    settings = job.classifying()
    if settings.save_model and out is None:
        raise PolicyError("classify.save_model: needs a folder to save classifiers in (--out)")
    if settings.text != "keep":
        raise PolicyError('classify.text: of documents no identifier was found; give a run, or leave it at "keep"')
    check_device(job.train.device)
    run = Run(job, progress)
    corpus = run.whole_corpus
    labels = read_labels(corpus, job)
    individuals = split_individuals(corpus, job.split)
    households = households_named(corpus, individuals)
    # No epsilon accounts for the training of a checkpoint of ours.
    owed = {path: ("the training of its checkpoint",) for path in folders if is_trained_here(path)}
    privacy = None
    if settings.private and job.train.dp is not None:
        charged = corpus.fingerprint() if job.train.dp.budget_file is not None else None
        privacy = job.train.dp.replace(unit=privacy_unit(job, job.train.dp), corpus=charged)
        for steps in owed.values():  # before the first of them is trained on
            refuse_promise(privacy, steps)

    def build(folder: Path | None) -> ClassificationEvidence:
        """Train and test a classifier on top of every model, and return the results. The classifiers are saved in
        ``folder`` if the job saves models.
        """
        rows: list[ClassifiedStart] = []
        for number, (path, store) in enumerate(_tokenise_for_models(corpus, individuals, folders, progress), 1):
            documents = label_tokens(store, labels, individuals.mask(MEMBERS), job, households)
            if number == 1:
                rows += measure_baselines(documents, job)
            kept = folder / f"model-{number:02d}" if folder is not None and settings.save_model else None
            own = privacy and privacy.replace(unaccounted=owed.get(path, ()))
            with progress.task(f"classify {path.name}", None, "steps") as advance:
                rows.append(train_one(path, path.name, 0, documents, settings, job, kept, advance, privacy=own))
        return assemble_result(documents, job, settings, None, rows)

    if out is None:
        return build(None)
    config = job.model_dump(mode="json", include={"seed", "split", "corpus", "train", "classify", "audit"})
    inputs = {"corpus": corpus.fingerprint()} | {f"model:{n}": run.fingerprints.at(f) for n, f in enumerate(folders, 1)}
    with write_artifact(out, kind="classification", config=config, inputs=inputs) as writer:
        result = build(writer.path)
        (writer.path / FILE).write_text(json.dumps(to_json(result), indent=1, allow_nan=False))
        writer.counts.update(result.documents, classes=len(result.classes), models=len(folders))
    return result


def _tokenise_for_models(
    corpus: Corpus, individuals: Any, folders: Sequence[Path], progress: Progress
) -> Iterator[tuple[Path, TokenStore]]:
    """Yield each model folder with a token store of the documents by its tokenizer; the stores are deleted after the
    last.
    """

    made: dict[str, Path] = {}
    with held_folder("reticent-classify-") as temporary:
        for path in folders:
            tokenizer = tokenizer_json_of(path)
            if tokenizer not in made:
                made[tokenizer] = temporary / str(len(made))
                made[tokenizer].mkdir()
                with progress.task("tokens", corpus.num_documents, "documents") as advance:
                    write_tokens(
                        made[tokenizer], corpus, individuals, tokenizer, splits=(MEMBERS, HELDOUT), progress=advance
                    )
            yield path, open_tokens(made[tokenizer])
