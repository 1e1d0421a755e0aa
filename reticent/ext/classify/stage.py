"""The steps of classification: which checkpoints classifiers start from, one artefact for each training.

What is trained and measured stands in :mod:`reticent.ext.classify.documents`, which a plan without it need not load.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.audit.evidence.classification import ClassificationEvidence
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.core.artifact import read_manifest
from reticent.core.errors import PolicyError
from reticent.core.eta import Work
from reticent.core.json_toml import read_json
from reticent.ext.classify.documents import FILE, baselines, classify_one, labelled_documents, read_labels, result_of
from reticent.job.artefact import Artefact, Step, Training, trainings_by_recipe

if TYPE_CHECKING:
    from reticent.ext.classify.training import ClassifyConfig, StepReport
    from reticent.job.config import Job, ModelSection
    from reticent.job.run import Run

__all__ = ["check_documents", "check_settings", "classification_inputs", "classify_steps", "read_results"]

#: Epochs of the checkpoints that [@boutet2025] starts from: its text says 64, its Fig. 8 says 8.
PAPER_EPOCHS = (8, 64)


@dataclass(frozen=True, slots=True)
class _Stage:
    """Classifiers on the checkpoints of a training, or (None) on the base: one artefact.

    The classifier's own seed is always the job's: seeds differ in the training alone, on the same individuals.
    """

    model: ModelSection
    training: Training | None = None

    @property
    def recipe(self) -> str:
        return "base" if self.training is None else self.training.recipe

    @property
    def name(self) -> str:
        """Name of its artefact."""
        folder = f"classification/{self.model.name}"
        return f"{folder}/base" if self.training is None else self.training.name.replace("models", "classification", 1)

    @property
    def title(self) -> str:
        return f"classifying from {self.training.title if self.training else f'base of {self.model.name}'}"

    def epochs(self, job: Job) -> list[int]:
        """Epochs of the checkpoints to start from; 0 is the base model."""
        if self.training is None:
            return [0]
        return _starts(job.training(self.model).epochs_kept(), job.classifying(), f"{self.model.name}/{self.recipe}")

    def artefact(self, run: Run) -> Artefact:
        """Return the artefact; its training must be there."""
        job = run.job
        settings = {
            **job.classifying(self.model).all_values(),
            **job.audit.model_dump(include={"num_bootstrap", "small_cell"}),
            "label": job.classifying().label or job.corpus.label,
        }
        return Artefact(self.name, "classification", settings, self._inputs(run))

    def _inputs(self, run: Run) -> dict[str, str]:
        if self.training is None:
            inputs = run.base_input(self.model)
        else:
            of, name = run.fingerprints.of_checkpoint, self.training.name
            inputs = {f"epoch-{epoch:04d}": of(name, epoch) for epoch in self.epochs(run.job)}
        return {
            **inputs,
            "corpus": run.corpus.fingerprint(),
            "split": run.fingerprints.of("split"),
            "tokens": run.fingerprints.of(f"tokens/{self.model.name}/audit"),
        }


def _stages(run: Run) -> list[_Stage]:
    """Return the base model and every training of each model, by recipe and seed."""
    found = []
    for model in run.job.model:
        own = (_Stage(model, training) for training in trainings_by_recipe(run.job, model))
        found += [_Stage(model), *own]
    return found


def classification_inputs(run: Run) -> dict[str, str]:
    """Return the fingerprints of the artefacts of the stage by name."""
    return {stage.name: run.fingerprints.of(stage.name) for stage in _stages(run)}


def check_settings(run: Run) -> None:
    """Raise `PolicyError` where the job starts from a checkpoint that it does not keep, and `CorpusError` where the
    labels cannot be read, as far as documents are there.
    """
    for stage in _stages(run):
        stage.epochs(run.job)
    if run.job.corpus.remote is None:
        read_labels(run.whole_corpus, run.job)


def check_documents(run: Run) -> None:
    """Raise for documents that cannot be classified, before the trainings; the tokens must be there."""
    for model in run.job.model:
        labelled_documents(run, model)


def classify_steps(run: Run) -> Iterator[Step]:
    """Yield a step for the base model and for every training of each model, if the job has a section for it.

    The artefact of the base model also has the rows that need no model. Each artefact is ``classification.json``, and
    the classifiers if the job keeps them.
    """
    if run.job.classify is None:
        return
    for stage in _stages(run):
        group = stage.training and stage.training.name
        yield Step.of(stage.artefact(run), partial(_build, run, stage), group=group, work=partial(_work, run, stage))


def _work(run: Run, stage: _Stage) -> Work:
    tokens = float(read_manifest(run.folder / f"tokens/{stage.model.name}/audit").counts["tokens"])
    work = tokens * run.job.classifying().num_epochs * len(stage.epochs(run.job))
    return Work(name=stage.name, title=stage.title, kind="classify", model=stage.model.name, recipe="", work=work)


def _build(run: Run, stage: _Stage, folder: Path, counts: dict[str, int]) -> None:
    job, model, training = run.job, stage.model, stage.training
    documents = labelled_documents(run, model)
    rows = baselines(documents, job) if training is None else []
    epochs = stage.epochs(job)
    kept = run.checkpoints(model, training.recipe, training.seed) if training else {0: Path(run.base_of(model))}
    with run.progress.task(stage.title, None, "steps") as advance:
        for number, epoch in enumerate(epochs):
            out = folder / (f"epoch-{epoch:04d}" if epoch else "base") if job.classifying().save_model else None
            config, tell = job.classifying(model), _part_of(advance, number, len(epochs))
            rows.append(classify_one(kept[epoch], stage.recipe, epoch, documents, config, job, out, tell))
    result = result_of(documents, job, model.name, rows)
    (folder / FILE).write_text(json.dumps(to_json(result), indent=1, allow_nan=False))
    known = {name: count for name, count in result.documents.items() if count is not None}
    counts.update(known, classes=len(documents.class_names), models=len(epochs))


def _part_of(advance: Callable[..., None], number: int, count: int) -> Callable[[StepReport], None]:
    """Report the steps of part ``number`` of ``count`` equal parts as steps of the whole."""

    def tell(said: StepReport) -> None:
        size = said["num_steps"]
        advance({**said, "step": number * size + said["step"], "num_steps": count * size})

    return tell


def read_results(run: Run) -> list[ClassificationEvidence]:
    """Return the results of the stage for each model: the rows of its base model and baselines first, then those by
    recipe, seed (if the job has several) and epoch.
    """

    results: dict[str, ClassificationEvidence] = {}
    for stage in _stages(run):
        path = run.folder / stage.name / FILE
        found = from_json(ClassificationEvidence, read_json(path), str(path))
        seed = None if stage.training is None else stage.training.seed
        rows = [replace(row, seed=seed) for row in found.results]
        if (before := results.get(stage.model.name)) is None:
            results[stage.model.name] = replace(found, results=rows)
        else:
            before.results.extend(rows)
    return list(results.values())


def _starts(kept: Sequence[int], settings: ClassifyConfig, name: str) -> list[int]:
    """Return the epochs to start from, out of those whose checkpoints are kept."""
    wanted: Sequence[int] | None = settings.from_epochs
    if wanted is None:
        wanted = [epoch for epoch in PAPER_EPOCHS if epoch in kept] or [max(kept)]
    if missing := sorted(set(wanted) - set(kept)):
        shown = ", ".join(map(str, sorted(kept)))
        raise PolicyError(f"classify.from_epochs: {name} has no checkpoint of epoch {missing[0]}; kept are {shown}")
    return sorted(set(wanted))
