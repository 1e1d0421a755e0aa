"""`reticent classify`: labels of documents, their tokens and checkpoints -> F1 on held-out individuals.

Joins the floors: the engine reads labels and tokens, the trainer trains the classifier, the audit measures it beside
what it must be compared to: the commonest class, a bag of words, and the same classifier on the base model.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.config import ClassifySection, Job, ModelSection
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.errors import CorpusError, PolicyError
from reticent.progress import Progress

if TYPE_CHECKING:
    from reticent.audit.classification import Truth
    from reticent.engine.corpus import Corpus
    from reticent.engine.store import TokenStore
    from reticent.job import Run
    from reticent.trainer.classes import LabelledTokens
    from reticent.trainer.classify import ClassifyConfig

__all__ = ["classify_documents", "classify_models", "labelled_documents", "read_labels", "read_results"]

FORMAT = "reticent.classification/1"
FILE = "classification.json"
#: Epochs of the checkpoints that the paper starts from: its text says 64, its Fig. 8 says 8.
PAPER_EPOCHS = (8, 64)


def read_labels(corpus: Corpus, job: Job) -> pa.Table:
    """Return doc_id and label of every document, checked as far as that goes before anything is trained.

    Raises
    ------
    CorpusError
        The column is missing, of another type, or all of its values are null.
    """
    column = _settings(job).label or job.corpus.label
    labelled = replace(corpus, columns=replace(corpus.columns, label=column), _fingerprint=None)
    table = pa.Table.from_batches(labelled.batches(columns=("doc_id", "label")))
    if table.num_rows and table.column("label").null_count == table.num_rows:
        raise CorpusError(f"column {column}: no document has a label")
    return table


def labelled_documents(run: Run, model: ModelSection) -> LabelledTokens:
    """Return the labelled documents of a run in a model's tokens: members to train on, held-out ones to measure on."""
    from reticent.engine.store import open_tokens

    store = open_tokens(run.folder / f"tokens/{model.name}/audit")
    return _labelled(store, read_labels(run.corpus, run.job), run.individuals.mask(MEMBERS), run.job)


def classify_models(run: Run) -> None:
    """Classify from the base and the checkpoints of every recipe of a run: an artefact each, that of "base" with what
    needs no model. Each is ``classification.json``, and the classifiers if the job keeps them.
    """
    job, settings = run.job, _settings(run.job)
    for model in job.model:
        for recipe in ("base", *model.recipes):
            name = f"{model.name}/{recipe}"
            if recipe == "base":
                starts = [(0, Path(run._base(model)))]
                inputs = run._base_input(model)
            else:
                starts = _starts(run.checkpoints(model, recipe), settings, name)
                inputs = {f"epoch-{epoch:04d}": run.fingerprint_at(path) for epoch, path in starts}
            inputs |= {
                "corpus": run.corpus.fingerprint(),
                "split": run.fingerprint_of("split"),
                "tokens": run.fingerprint_of(f"tokens/{model.name}/audit"),
            }
            config = {
                **settings.model_dump(),
                **asdict(_config(job, model)),
                **job.audit.model_dump(include={"num_bootstrap", "small_cell"}),
                "label": settings.label or job.corpus.label,
            }

            def build(
                folder: Path,
                counts: dict[str, Any],
                *,
                model: ModelSection = model,
                recipe: str = recipe,
                starts: list[tuple[int, Path]] = starts,
            ) -> None:
                documents = labelled_documents(run, model)
                rows = _baselines(documents, job) if recipe == "base" else []
                for epoch, checkpoint in starts:
                    label = f"epoch-{epoch:04d}" if epoch else recipe
                    out = folder / label if settings.save_model else None
                    config = _config(job, model)
                    found = _classify_one(checkpoint, documents, config, job, out, run.progress, f"{recipe} {label}")
                    rows.append({"recipe": recipe, "epoch": epoch, **found})
                result = _result(documents, job, model.name, rows)
                (folder / FILE).write_text(json.dumps(result, indent=1, allow_nan=False))
                counts.update(result["documents"], classes=len(documents.class_names), models=len(starts))

            run.make(f"classification/{name}", config, inputs, build, kind="classification")


def classify_documents(job: Job, folders: Sequence[Path], out: Path | None, progress: Progress) -> dict[str, Any]:
    """Classify documents that no run knows, from any model folders; returns the structure of ``classification.json``.

    Individuals are split by the job's shares and seed: one who was a member of a run with the same is one here.

    Parameters
    ----------
    out : Path, optional
        Folder of the result, an artefact, with the classifiers if the job keeps them; without it nothing is kept.
    """
    from reticent.artifact import write_artifact
    from reticent.engine.split import SplitConfig, split_individuals
    from reticent.run_folder import RunFolder

    settings = _settings(job)
    if settings.save_model and out is None:
        raise PolicyError("--save: needs a folder to save classifiers in (--out)")
    run = RunFolder(job, progress)
    corpus = run.whole_corpus
    labels = read_labels(corpus, job)
    split = SplitConfig(**job.split.model_dump(), seed=job.seed)
    individuals = split_individuals(corpus, split)

    def build(folder: Path | None) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        for number, (path, store) in enumerate(_tokenised(corpus, individuals, folders, progress), 1):
            documents = _labelled(store, labels, individuals.mask(MEMBERS), job)
            if number == 1:
                rows += _baselines(documents, job)
            kept = folder / f"model-{number:02d}" if folder is not None and settings.save_model else None
            measured = _classify_one(path, documents, _config(job), job, kept, progress, path.name)
            rows.append({"recipe": path.name, "epoch": 0, **measured})
        return _result(documents, job, None, rows)

    if out is None:
        return build(None)
    config = job.model_dump(mode="json", include={"seed", "split", "corpus", "train", "classify", "audit"})
    inputs = {"corpus": corpus.fingerprint()} | {f"model:{n}": run.fingerprint_at(f) for n, f in enumerate(folders, 1)}
    with write_artifact(out, kind="classification", config=config, inputs=inputs) as writer:
        result = build(writer.path)
        (writer.path / FILE).write_text(json.dumps(result, indent=1, allow_nan=False))
        writer.counts.update(result["documents"], classes=len(result["classes"]), models=len(folders))
    return result


def read_results(run: Run) -> list[dict[str, Any]]:
    """Return the results of a run's stage, a dictionary a model, the rows of its base and baselines first."""
    results = []
    for model in run.job.model:
        names = ("base", *model.recipes)
        parts = [json.loads((run.folder / "classification" / model.name / n / FILE).read_text()) for n in names]
        results.append({**parts[0], "results": [row for part in parts for row in part["results"]]})
    return results


def _settings(job: Job) -> ClassifySection:
    if job.classify is None:
        raise PolicyError("classify needs the column of classes: --label COLUMN, or classify.label in the job")
    return job.classify


def _config(job: Job, model: ModelSection | None = None) -> ClassifyConfig:
    from reticent.trainer.classify import ClassifyConfig

    training = job.training(model) if model is not None else job.train
    own = _settings(job).model_dump(exclude={"label", "from_epochs", "min_individuals", "save_model"})
    shared = training.model_dump(include={"window_length", "device", "bf16"})
    return ClassifyConfig(**own, **shared, seed=job.seed)


def _starts(kept: dict[int, Path], settings: ClassifySection, name: str) -> list[tuple[int, Path]]:
    """Checkpoints to start from."""
    wanted = settings.from_epochs
    if wanted is None:
        wanted = [epoch for epoch in PAPER_EPOCHS if epoch in kept] or [max(kept)]
    if missing := sorted(set(wanted) - set(kept)):
        shown = ", ".join(map(str, sorted(kept)))
        raise PolicyError(f"classify.from_epochs: {name} has no checkpoint of epoch {missing[0]}; kept are {shown}")
    return [(epoch, kept[epoch]) for epoch in sorted(set(wanted))]


def _tokenised(
    corpus: Corpus, individuals: Any, folders: Sequence[Path], progress: Progress
) -> Iterator[tuple[Path, TokenStore]]:
    """Each model folder with the tokens of its tokenizer, which are gone when the last was looked at."""
    from reticent.engine.store import open_tokens
    from reticent.engine.tokens import write_tokens
    from reticent.trainer.models import tokenizer_json_of

    made: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="reticent-classify-") as temporary:
        for path in folders:
            tokenizer = tokenizer_json_of(path)
            if tokenizer not in made:
                made[tokenizer] = Path(temporary) / str(len(made))
                made[tokenizer].mkdir()
                with progress.task("tokens", corpus.num_documents, "documents") as advance:
                    write_tokens(
                        made[tokenizer], corpus, individuals, tokenizer, splits=(MEMBERS, HELDOUT), progress=advance
                    )
            yield path, open_tokens(made[tokenizer])


def _labelled(store: TokenStore, labels: pa.Table, is_member: np.ndarray, job: Job) -> LabelledTokens:
    from reticent.trainer.classes import label_documents

    rows = pc.index_in(store.doc_ids, value_set=labels.column("doc_id").combine_chunks())
    if rows.null_count:
        raise CorpusError(f"{rows.null_count} documents of the tokens are not in the corpus; run protect again")
    return label_documents(
        store,
        labels.column("label").combine_chunks().take(rows),
        is_member[store.individual],
        min_individuals=_settings(job).min_individuals,
    )


def _truth(documents: LabelledTokens) -> Truth:
    from reticent.audit.classification import Truth

    test = ~documents.is_train
    return Truth(documents.classes[test], documents.store.individual[test], len(documents.class_names))


def _baselines(documents: LabelledTokens, job: Job) -> list[dict[str, Any]]:
    from reticent.audit.classification import bag_of_words, majority

    classes, is_train = documents.classes, documents.is_train
    found = {
        "majority class": majority(classes, is_train),
        "bag of words": bag_of_words(documents.store, classes, is_train),
    }
    return [{"recipe": name, "epoch": 0, **_measured(documents, said, job)} for name, said in found.items()]


def _classify_one(
    checkpoint: Path,
    documents: LabelledTokens,
    config: ClassifyConfig,
    job: Job,
    out: Path | None,
    progress: Progress,
    name: str,
) -> dict[str, Any]:
    from reticent.trainer.classify import classify

    with progress.task(f"classify {name}", None, "steps") as advance:
        found = classify(checkpoint, documents, config, out=out, progress=advance)
    return {
        **_measured(documents, found.predicted, job),
        "training": {
            "losses": found.losses,
            "num_steps": found.num_steps,
            "num_trained": found.num_trained,
            "num_parameters": found.num_parameters,
        },
    }


def _measured(documents: LabelledTokens, predicted: np.ndarray, job: Job) -> dict[str, Any]:
    from reticent.audit.classification import measure

    options = {"num_bootstrap": job.audit.num_bootstrap, "seed": job.seed, "small_cell": job.audit.small_cell}
    return measure(_truth(documents), predicted, **options)


def _result(documents: LabelledTokens, job: Job, model: str | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    is_train, individual = documents.is_train, documents.store.individual
    return {
        "format": FORMAT,
        "model": model,
        "settings": {
            **_settings(job).model_dump(),
            "label": _settings(job).label or job.corpus.label,
            "window_length": job.train.window_length,
            "seed": job.seed,
            "small_cell": job.audit.small_cell,
        },
        "classes": list(documents.class_names),
        "documents": {
            "train": int(np.count_nonzero(is_train)),
            "heldout": int(np.count_nonzero(~is_train)),
            **documents.left_out,
        },
        "individuals": {
            "train": len(np.unique(individual[is_train])),
            "heldout": len(np.unique(individual[~is_train])),
        },
        "results": rows,
    }
