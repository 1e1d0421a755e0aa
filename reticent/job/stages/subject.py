"""From a model that was trained elsewhere and a list of its members to the artefacts that a training would leave.

The model comes first of all: one that cannot be read is refused before any document is. It stands where the checkpoint
of a training would, so every stage behind it is that of any run. It has no ledger, and nothing is known of its recipe.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from reticent.audit.config import SubjectConfig
from reticent.audit.scoring.endpoint import ANSWERS, ENDPOINT, check_host
from reticent.core.artifact import fingerprint
from reticent.core.errors import CorpusError
from reticent.core.model_folder import folder_of_model
from reticent.engine.corpus import SOURCE_COLUMN, open_configured
from reticent.engine.split import Individuals, given_sides
from reticent.engine.withdrawn import read_ids
from reticent.job.artefact import Artefact, Step, Training, trainings_of
from reticent.job.run import Run
from reticent.trainer.given import check_given, digests_of_given, write_given

#: How a copy is made of the model itself, where no folder of it is given.
MADE = ("merged", "int8")
#: Values of a column that say whether a document was trained on.
YES, NO = {"1", "true", "yes", "member", "train", "oui"}, {"0", "false", "no", "nonmember", "heldout", "test", "non"}


def subject_steps(run: Run) -> Iterator[Step]:
    """Yield a step for ``models/subject/NAME`` of each given model that was trained elsewhere; none for a job that
    trains."""
    subject = run.job.subject
    if subject is None:
        return
    if subject.endpoint is not None:
        yield _endpoint_step(run, subject, subject.endpoint)
        return
    for training in trainings_of(run.job):
        source = subject.copies[training.recipe]
        made = source if source in MADE else None
        model = subject.model if made else source
        check_given(model, subject.base, window_length=run.job.train.window_length)
        inputs = {
            "model": _model_fingerprint(run, model),
            **({"base": _model_fingerprint(run, subject.base)} if subject.base else {}),
        }
        config = {"objective": subject.objective, "made_as": made}
        artefact = Artefact(training.name, "models", config, inputs)
        yield Step.of(artefact, partial(_copy_given_model, subject, training, model, made))


def _endpoint_step(run: Run, subject: SubjectConfig, url: str) -> Step:
    """Return the step that records a model behind a server (``url``) and its tokenizer in place of a checkpoint."""
    host = check_host(url, subject.allow_sending)
    if not run.fingerprints.looking:
        run.progress.warn_once(f"every document is sent to {host}, window by window, as ids of tokens")
    (training,) = trainings_of(run.job)
    # Answers are kept in the run folder, beside results: a scoring that stops loses none of them.
    answers = str((run.folder / ANSWERS).absolute())
    about: dict[str, Any] = {"url": url, "model": subject.model, "host": host, "answers": answers}
    about["log_probs"] = subject.log_probs

    def build(folder: Path, counts: dict[str, Any]) -> None:
        """Write the endpoint's settings and the tokenizer into ``folder/epoch-0001``."""
        place = folder / "epoch-0001"
        place.mkdir(mode=0o700, parents=True)
        (place / ENDPOINT).write_text(json.dumps(about, indent=1))
        (place / "tokenizer.json").write_text(run.tokenizer_of(training.model), encoding="utf-8")
        for name in ("tokenizer_config.json", "special_tokens_map.json", "config.json"):
            source = Path(run.base_of(training.model)) / name
            if source.is_file():
                shutil.copyfile(source, place / name)

    inputs = {"base": _model_fingerprint(run, str(subject.base))}
    return Step.of(Artefact(training.name, "models", {"objective": subject.objective, **about}, inputs), build)


def _model_fingerprint(run: Run, model: str) -> str:
    """Return the fingerprint of a model's folder, or the model's hub name where no folder is found."""
    found = folder_of_model(model)
    return model if found is None else run.fingerprints.at(found)


def _copy_given_model(
    subject: SubjectConfig, training: Training, model: str, made: str | None, folder: Path, counts: dict[str, Any]
) -> None:
    """Copy a model that was trained elsewhere into ``folder/epoch-0001``, or if ``made`` is given a version made from
    it ("merged" or "int8").
    """
    write_given(model, subject.base, subject.objective, folder / "epoch-0001", made)
    counts["given"] = None if made else digests_of_given(model)


# ----------------------------------------------------------------------------------------------------------- the list


def list_settings(run: Run) -> dict[str, Any]:
    """Return the split's manifest entry for a model trained elsewhere, by how the job tells members from others: digest
    of the list of members, name of the column, or digest of which files are the others'.
    """
    subject = run.job.subject
    assert subject is not None
    if subject.members is not None:
        return {"members": fingerprint(subject.members)}
    if subject.others is None:
        return {"column": subject.column}
    others = set(open_configured(run.job.corpus.replace(source=subject.others)).files)
    positions = [number for number, file in enumerate(run.given_corpus.files) if file in others]
    return {"others": hashlib.sha256(json.dumps(positions).encode()).hexdigest()}


def given_split(run: Run) -> Individuals:
    """Return the individuals split into members and held-out individuals, for a model that was trained elsewhere:
    members are those whom the job's list (or column) of members names.

    Raises
    ------
    CorpusError
        The list names people who have no document, or everybody, or nobody; an individual or a household is on both
        sides; a document of a member stands word for word among those of the others; or the column says neither yes nor
        no.
    """
    corpus = run.deduplicated
    is_member = _member_documents(run)
    individuals = given_sides(corpus, is_member, run.job.split.by)
    copied = _count_copied_documents(corpus, is_member)
    if copied:
        raise CorpusError(
            f"subject: {copied:,} documents of people who were not trained on stand word for word among those of "
            "members, so the model was trained on their text: leave them out, or copies altogether "
            '(dedup.mode = "exact", dedup.scope = "corpus")'
        )
    return individuals


def _member_documents(run: Run) -> np.ndarray:
    """Return for each document whether the job's list says that the model was trained on it, bool (num documents,)."""
    subject, corpus = run.job.subject, run.deduplicated
    assert subject is not None
    owners = corpus.scan().column("individual_id")
    if subject.column is not None:
        column = f"{SOURCE_COLUMN}{subject.column}"
        return _parse_yes_no(
            [said for batch in corpus.batches(columns=(column,)) for said in batch.column(0).to_pylist()]
        )
    if subject.others is not None:
        alone = run.job.corpus.replace(source=tuple(s for s in run.job.corpus.sources if s != subject.others))
        own, others = (
            open_configured(each).scan().column("individual_id").unique()
            for each in (alone, alone.replace(source=subject.others))
        )
        if both := pc.sum(pc.is_in(own, value_set=others)).as_py():
            raise CorpusError(f"subject.others: {both:,} individuals have documents among those of members too")
        return pc.is_in(owners, value_set=own).to_numpy(zero_copy_only=False)
    known = run.given_corpus.scan().column("individual_id")
    members, num_ids = read_ids(str(subject.members), known, run.job.corpus.ids)
    if missing := num_ids - len(members):
        raise CorpusError(
            f"{subject.members}: {missing:,} of {num_ids:,} ids are of nobody with a document here; is it a list of "
            "other ids, or are documents missing? Whoever has none cannot be asked about: take them out of the list"
        )
    return pc.is_in(owners, value_set=members).to_numpy(zero_copy_only=False)


def _parse_yes_no(values: list[Any]) -> np.ndarray:
    """Return the values of the membership column as bool (num values,); `CorpusError` where one says neither yes nor
    no."""
    said = [str(value).strip().lower() if value is not None else "" for value in values]
    unknown = sum(value not in YES | NO for value in said)
    if unknown:
        raise CorpusError(
            f"subject.column: {unknown:,} of {len(said):,} documents say neither that they were trained on (true, yes, "
            "1, member, train) nor that they were not (false, no, 0, heldout, test)"
        )
    return np.array([value in YES for value in said], dtype=bool)


def _count_copied_documents(corpus: Any, is_member: np.ndarray) -> int:
    """Return how many non-members' documents equal a member's, ignoring blanks at the ends; one pass over the text."""
    digests: list[bytes] = []
    for batch in corpus.batches(columns=("text",)):
        texts = (text.strip() for text in batch.column("text").to_pylist())
        digests += [hashlib.blake2b(text.encode(), digest_size=16).digest() if text else b"" for text in texts]
    of_members = {digest for digest, member in zip(digests, is_member, strict=True) if member and digest}
    return sum(digest in of_members for digest, member in zip(digests, is_member, strict=True) if not member)
