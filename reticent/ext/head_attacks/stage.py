"""The attacks on the classifiers that a job keeps: their shadow heads, one artefact each, and one for each of the last.

    head-shadows/MODEL/RECIPE/NN     scores.npz: what a shadow head says of the labels, secret like the tokens
    heads/MODEL/RECIPE               measures.json

RECIPE is that of the checkpoint that a classifier was trained on, or "base". A shadow head is trained on the same
checkpoint, with the settings of the classifier but a seed of its own, on a random half of the members and held-out
individuals. So what the checkpoint itself knows of its members is no part of the difference: that is judged in its own
row.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.evidence.model import ModelEvidence
from reticent.audit.membership.names import CLASSIFIER
from reticent.audit.membership.validity import judged, kept_by_code, kept_without_copies
from reticent.audit.stats.intervals import bootstrap_of
from reticent.core.artifact import read_manifest
from reticent.core.eta import Work
from reticent.core.json_toml import read_json
from reticent.engine.schema import MEMBERS
from reticent.engine.sources.columns import SOURCE_COLUMN
from reticent.ext.classify.documents import FILE, labelled_documents
from reticent.ext.head_attacks.attributes import ask, told_attribute
from reticent.ext.ladder.questions import add_field, drawn_individuals, fields_of_table
from reticent.job.artefact import Artefact, Step, Training, trainings_by_recipe
from reticent.job.auditing import resampling_settings
from reticent.job.outcomes import with_files
from reticent.job.stages.near_copies import copied_individuals, near_copies_input

if TYPE_CHECKING:
    from reticent.audit.config import HeadsConfig
    from reticent.audit.evidence.heads import ToldAttribute
    from reticent.ext.classify.labels import LabelledTokens
    from reticent.ext.head_attacks.scores import Classifier
    from reticent.job.config import ModelSection
    from reticent.job.run import Run
    from reticent.trainer.config import ClassifyConfig

__all__ = ["check_heads", "head_inputs", "head_steps", "read_heads"]

SCORES, MEASURES = "scores.npz", "measures.json"


@dataclass(frozen=True, slots=True)
class Head:
    """The last classifier on top of a training, or (None) of the base model."""

    run: Run
    model: ModelSection
    training: Training | None

    @property
    def start(self) -> str:
        return "base" if self.training is None else self.training.recipe

    @property
    def made(self) -> str:
        """Name of the artefact that holds it."""
        return self._named("classification")

    @property
    def name(self) -> str:
        """Name of the artefact of its attacks."""
        return self._named("heads")

    def _named(self, kind: str) -> str:
        return (
            f"{kind}/{self.model.name}/base" if self.training is None else self.training.name.replace("models", kind, 1)
        )

    @property
    def title(self) -> str:
        return f"classifier on {self.training.title if self.training else f'base of {self.model.name}'}"

    @property
    def epoch(self) -> int:
        """Epoch of the checkpoint that it was trained on; the artefact that holds it must be there."""
        rows = read_json(self.run.folder / self.made / FILE)["results"]
        return max(int(row["epoch"]) for row in rows if row["recipe"] == self.start)

    @property
    def place(self) -> str:
        """Where the artefact holds it."""
        return f"epoch-{self.epoch:04d}" if self.training else "base"

    @property
    def config(self) -> ClassifyConfig:
        return self.run.job.classifying(self.model)

    @property
    def checkpoint(self) -> Path:
        """The model that it was trained on."""
        run, training = self.run, self.training
        if training is None:
            return Path(run.base_of(self.model))
        return run.checkpoints(self.model, training.recipe, training.seed)[self.epoch]

    def inputs(self) -> dict[str, str]:
        """Fingerprints of its labels and tokens, and of who is on which side."""
        run = self.run
        return {
            "corpus": run.corpus.fingerprint(),
            "split": run.fingerprints.of("split"),
            "tokens": run.fingerprints.of(f"tokens/{self.model.name}/audit"),
        }

    def documents(self) -> LabelledTokens:
        return labelled_documents(self.run, self.model)


@dataclass(frozen=True, slots=True)
class ShadowHead:
    """One shadow of a head."""

    head: Head
    number: int

    @property
    def name(self) -> str:
        """Name of its artefact."""
        return f"{self.head._named('head-shadows')}/{self.number:02d}"

    def artefact(self) -> Artefact:
        head, run = self.head, self.head.run
        settings = {**head.config.all_values(without=("save_model", "device")), "shadow": self.number}
        settings |= {"label": head.config.label or run.job.corpus.label, "seed": run.job.seed}
        base = run.base_input(head.model)
        start = base if head.training is None else {
            "checkpoint": run.fingerprints.of_checkpoint(head.training.name, head.epoch)
        }  # fmt: skip
        return Artefact(self.name, "head-shadows", settings, {**head.inputs(), **start})


def _config(run: Run) -> HeadsConfig:
    assert run.job.audit.heads is not None  # else there is no step
    return run.job.audit.heads


def _heads(run: Run) -> list[Head]:
    if run.job.audit.heads is None:
        return []
    return [
        Head(run, model, training)
        for model in run.job.model
        for training in (None, *trainings_by_recipe(run.job, model))
    ]


def _shadows(head: Head) -> list[ShadowHead]:
    return [ShadowHead(head, number) for number in range(_config(head.run).num_shadows)]


def head_steps(run: Run) -> Iterator[Step]:
    """Yield for each head the steps of its shadows, and the one that attacks it."""
    for head in _heads(run):
        group = head.training and head.training.name
        for shadow in _shadows(head):
            work = partial(_work, shadow)
            yield Step.of(shadow.artefact(), partial(_build_shadow, shadow), group=group, work=work)
        yield Step.of(_artefact(head), partial(_build, head), group=group)


def _work(shadow: ShadowHead) -> Work:
    head, run = shadow.head, shadow.head.run
    tokens = float(read_manifest(run.folder / f"tokens/{head.model.name}/audit").counts["tokens"])
    title = f"shadow {shadow.number + 1} of the {head.title}"
    work = tokens / 2 * head.config.num_epochs
    return Work(name=shadow.name, title=title, kind="classify", model=head.model.name, recipe="", work=work)


def _artefact(head: Head) -> Artefact:
    run, config = head.run, _config(head.run)
    settings = {**config.model_dump(), **resampling_settings(run), "epoch": head.epoch, "seed": run.job.seed}
    settings |= {"num_bootstrap": run.job.audit.num_bootstrap}
    inputs = {**head.inputs(), "classifier": run.fingerprints.of(head.made), **near_copies_input(run)}
    inputs |= {shadow.name: run.fingerprints.of(shadow.name) for shadow in _shadows(head)}
    if config.records is not None:
        inputs["records"] = run.fingerprints.at(Path(config.records))
    return Artefact(head.name, "heads", settings, inputs)


def head_inputs(run: Run) -> dict[str, str]:
    """Return the fingerprints of the artefacts of the stage by name."""
    return {head.name: run.fingerprints.of(head.name) for head in _heads(run)}


def read_heads(run: Run) -> list[ModelEvidence]:
    """Return the evidence of every head, with its files and the verdict on each attack."""
    found = []
    for head in _heads(run):
        path = run.folder / head.name / MEASURES
        measured = replace(from_json(ModelEvidence, read_json(path), str(path)), model=head.model.name)
        measured = replace(measured, seed=None if head.training is None else head.training.seed)
        found.append(with_files(measured, read_manifest(run.folder / head.made), head.place))
    return judged(found)


# -------------------------------------------------------------------------------------------------------------- shadows


def _build_shadow(shadow: ShadowHead, folder: Path, counts: dict[str, int]) -> None:
    from reticent.audit.membership.shadow import shadow_individuals, training_seed
    from reticent.ext.classify.training import classify

    head, run = shadow.head, shadow.head.run
    documents, seed = head.documents(), run.job.seed
    drawn = shadow_individuals(run.individuals, seed=seed, number=shadow.number).mask(MEMBERS)
    is_in = drawn[documents.store.individual]
    config = head.config.model_copy(update={"seed": training_seed(seed, shadow.number)})
    with run.progress.task(f"shadow {shadow.number + 1} of the {head.title}", None, "steps") as advance:
        trained = replace(documents, is_train=is_in)
        classify(head.checkpoint, trained, config, out=folder / "model", progress=lambda said: advance(dict(said)))
    _opened(head, folder / "model").scores(documents.store, documents.classes).save(folder / SCORES, is_in)
    shutil.rmtree(folder / "model")
    counts["documents_in"] = int(is_in.sum())


def _opened(head: Head, folder: Path) -> Classifier:
    from reticent.ext.head_attacks.scores import Classifier

    return Classifier(folder, head.model.objective, head.config, head.run.job.audit.batch_size)


# -------------------------------------------------------------------------------------------------------------- attacks


def _build(head: Head, folder: Path, counts: dict[str, Any]) -> None:
    from reticent.audit.membership.heads import HeadScores, HeadShadows
    from reticent.ext.head_attacks.measure import head_evidence

    run, documents = head.run, head.documents()
    classifier = _opened(head, run.folder / head.made / head.place)
    scores = classifier.scores(documents.store, documents.classes)
    shadows = [HeadScores.load(run.folder / shadow.name / SCORES) for shadow in _shadows(head)]
    found = head_evidence(
        documents.store,
        documents.is_train,
        scores,
        HeadShadows(shadows) if shadows else None,
        objective=CLASSIFIER,
        recipe=f"classify/{head.start}",
        epoch=head.epoch,
        start=head.start,
        protects=_protects(head.config),
        bootstrap=bootstrap_of(run.job.audit.num_bootstrap, run.job.seed, run.individuals.units),
        copied=copied_individuals(run),
        attributes=_attributes(head, classifier, documents),
    )
    (folder / MEASURES).write_text(json.dumps(to_json(found), indent=1, allow_nan=False))
    counts.update(epoch=head.epoch, shadows=len(shadows))


def _protects(config: ClassifyConfig) -> bool:
    """Whether the training of a head protects anyone: by differential privacy, or as it reads no identifier."""
    return bool(getattr(config, "private", False)) or getattr(config, "text", "keep") != "keep"


def _attributes(head: Head, classifier: Classifier, documents: LabelledTokens) -> dict[str, ToldAttribute]:
    run, config = head.run, _config(head.run)
    if not config.attributes:
        return {}
    is_member, copied = run.individuals.mask(MEMBERS), copied_individuals(run)
    codes = np.arange(len(is_member))
    kept = kept_by_code(codes, kept_without_copies(codes, is_member, copied))
    values, texts = _known(run, documents)
    found = {}
    for attribute in config.attributes:
        questions = ask(
            attribute, values[attribute], texts, num_alternatives=config.num_alternatives, seed=run.job.seed
        )
        sides = {bool(is_member[question.code]) for question in questions}
        if len(sides) < 2:
            run.progress.warn_once(
                f"audit.heads: nobody of a side has one of two values of {attribute}; it is not asked"
            )
            continue
        bootstrap = bootstrap_of(run.job.audit.num_bootstrap, run.job.seed, run.individuals.units)
        with run.progress.task(f"ask the {head.title} for {attribute}", len(questions), "values") as advance:
            found[attribute] = told_attribute(
                questions, classifier.log_probs_of, is_member, kept=kept, progress=advance, **bootstrap
            )
    return found


def _known(
    run: Run, documents: LabelledTokens
) -> tuple[dict[str, dict[int, list[str]]], dict[int, list[tuple[str, int]]]]:
    """Return by attribute and individual the values, and by individual the texts and labels, of those who are asked."""
    config, store = _config(run), documents.store
    drawn = drawn_individuals(run.individuals, config.num_individuals, run.job.seed, None)
    row_of = np.full(len(run.individuals.units), -1)
    row_of[drawn] = np.arange(len(drawn))
    fields: list[dict[str, list[str]]] = [{} for _ in drawn]
    if config.records is not None:
        fields_of_table(config.records, run.job.corpus.ids, run.individuals, row_of, config.attributes, fields)
    own = () if config.records is not None else config.attributes
    label_of = dict(zip(store.doc_ids.to_pylist(), documents.classes.tolist(), strict=True))
    texts: dict[int, list[tuple[str, int]]] = {}
    columns = ("doc_id", "individual_id", "text", *(f"{SOURCE_COLUMN}{name}" for name in own))
    for batch in run.unplanted.batches(columns=columns):
        codes = run.individuals.individual_codes(batch.column("individual_id"))
        for number in np.flatnonzero(row_of[codes] >= 0).tolist():
            code = int(codes[number])
            for name in own:
                add_field(fields[row_of[code]], name, batch.column(f"{SOURCE_COLUMN}{name}")[number].as_py())
            label = label_of.get(batch.column("doc_id")[number].as_py())
            if label is not None:
                texts.setdefault(code, []).append((batch.column("text")[number].as_py(), label))
    values = {
        name: {
            int(code): list(
                dict.fromkeys(part.strip() for value in known[name] for part in value.split(";") if part.strip())
            )
            for code, known in zip(drawn, fields, strict=True)
            if name in known
        }
        for name in config.attributes
    }
    return values, texts


def check_heads(run: Run) -> None:
    """Raise `CorpusError` or `PolicyError`, before any training, where the values of an attribute cannot be read."""
    config = _config(run)
    if config.records is not None:
        fields_of_table(
            config.records, run.job.corpus.ids, run.individuals, np.full(len(run.individuals.units), -1),
            config.attributes, [],
        )  # fmt: skip
    elif config.attributes:
        columns = ("individual_id", *(f"{SOURCE_COLUMN}{name}" for name in config.attributes))
        next(iter(run.unplanted.batches(columns=columns)), None)
