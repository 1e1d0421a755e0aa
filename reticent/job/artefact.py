"""Artefacts (result folders of a run) and the steps that build them.

The plan of a job is a sequence of steps (:mod:`reticent.job.pipeline`). A step says the name of each result, its
settings and inputs, and how it is made. Running, the status, the expected end and the deletion of stale results are
loops over that one plan: none of them knows the work of a stage.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.eta import Work
from reticent.trainer.config import TIMES_REPEATED

if TYPE_CHECKING:
    from reticent.job.config import Job, ModelSection
    from reticent.trainer.config import HeadConfig


@dataclass(frozen=True, slots=True)
class Artefact:
    """One result folder of a run, identified by its name, settings and inputs: it is built again exactly if one of
    these changed.

    Attributes
    ----------
    name : str
        Path of the artefact in the run folder.
    kind : str
        Kind of artefact, as recorded in its manifest.
    settings : dict
        Settings that it depends on, as JSON values.
    inputs : dict of str
        Fingerprints of the results and files that it is made from, by name.
    """

    name: str
    kind: str
    settings: dict[str, Any]
    inputs: dict[str, str]

    def __post_init__(self) -> None:
        # A manifest is JSON: tuples are lists there, and the comparison with it must not see a difference.
        object.__setattr__(self, "settings", json.loads(json.dumps(self.settings, default=str)))


@dataclass(frozen=True, slots=True)
class Output:
    """The folder in which an artefact is being written, and the counts for its manifest, which the build fills in."""

    folder: Path
    counts: dict[str, Any]


#: Name of each stale output -> its writer, whose folder becomes the artefact when the block ends without an error. So
#: the outputs of one pass stand one after the other, and an interruption loses the later ones alone.
Outputs = Mapping[str, Callable[[], AbstractContextManager[Output]]]


@dataclass(frozen=True, slots=True)
class Step:
    """A build that writes one or several artefacts in a single pass.

    Attributes
    ----------
    outputs : tuple of Artefact
        The artefacts that the step writes.
    build : callable
        ``build(outputs)`` writes the outdated outputs: it takes a writer for each by name, and opens each once.
    resume : bool, optional
        As in :func:`reticent.core.artifact.write_artifact`. A step that may be resumed is built by all processes
        together where torchrun started several: the first decides and writes, the others help.
    alone : bool
        Whether only the first process builds the step, even where it may be resumed.
    prepare : callable, optional
        Called before the outputs are compared with the content of the folder; not called when a plan is only read.
    group : str, optional
        Name of a group of steps that one part of a run builds (:mod:`reticent.job.parts`); steps without one are built
        by no part but part 0, or when the parts are joined.
    work : callable, optional
        Returns the estimated work of the step, for the expected end; None for steps that are not part of the
        experiment. It raises `ArtifactError` if the tokens that it counts do not exist yet.
    """

    outputs: tuple[Artefact, ...]
    build: Callable[[Outputs], None]
    resume: bool | None = None
    alone: bool = False
    group: str | None = None
    prepare: Callable[[], None] | None = None
    work: Callable[[], Work] | None = None

    @classmethod
    def of(cls, artefact: Artefact, build: Callable[[Path, dict[str, Any]], None], **more: Any) -> Step:
        """Return a step whose only output is ``artefact``; ``build(folder, counts)`` writes the files into the folder
        and fills in the counts of the manifest."""

        def build_only_output(outputs: Outputs) -> None:
            """Call ``build`` on the folder and the counts of the step's only output."""
            with outputs[artefact.name]() as output:
                build(output.folder, output.counts)

        return cls((artefact,), build_only_output, **more)


# ----------------------------------------------------------------------------------------------------------- trainings
#
# The trainings of a job, and the models that it measures: values that follow from the job alone.


@dataclass(frozen=True, slots=True)
class Training:
    """One training run of a job: a recipe on a model, with one of the seeds of ``[train]`` (None: the job's own)."""

    model: ModelSection
    recipe: str
    seed: int | None = None

    @property
    def name(self) -> str:
        """Path of the training's artefact in the run folder: ``models/MODEL/RECIPE``, or
        ``models/MODEL/RECIPE/seed-N``."""
        folder = f"models/{self.model.name}/{self.recipe}"
        return folder if self.seed is None else f"{folder}/seed-{self.seed}"

    @property
    def title(self) -> str:
        """Recipe, model and seed as text for messages, such as ``ppmlm of bert, seed 1``."""
        return f"{self.recipe} of {self.model.name}" + ("" if self.seed is None else f", seed {self.seed}")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One model that the audit measures: a checkpoint of a training, or the base model where ``training`` is None."""

    model: ModelSection
    training: Training | None = None
    epoch: int = 0

    @property
    def recipe(self) -> str:
        """Name of the measured model's recipe; ``base`` for the base model."""
        return "base" if self.training is None else self.training.recipe

    @property
    def seed(self) -> int | None:
        """Seed of the measured model's training; None for the base model and without ``train.seeds``."""
        return None if self.training is None else self.training.seed

    @property
    def name(self) -> str:
        """Path in the run folder of the artefact with the measurement: ``measures/MODEL/RECIPE/epoch-NNNN``, or with
        several seeds ``…/seed-N-epoch-NNNN``.
        """
        seed = "" if self.seed is None else f"seed-{self.seed}-"
        return f"measures/{self.model.name}/{self.recipe}/{seed}epoch-{self.epoch:04d}"

    @property
    def title(self) -> str:
        """Recipe, model, epoch and seed as text for messages, such as ``ppmlm of bert, epoch 8, seed 1``."""
        epoch = f", epoch {self.epoch}" if self.epoch else ""
        return f"{self.recipe} of {self.model.name}{epoch}" + ("" if self.seed is None else f", seed {self.seed}")


def trainings_of(job: Job) -> list[Training]:
    """Return every training of a job (model, recipe, seed): all recipes of the first seed before those of the next, so
    that an interrupted run has compared the recipes."""
    found = [
        (number, Training(model, recipe, seed))
        for model in job.model
        for number, seed in enumerate(job.training(model).seeds or [None])
        for recipe in model.recipes
    ]
    return [training for _, training in sorted(found, key=lambda row: row[0])]


def trainings_by_recipe(job: Job, model: ModelSection) -> list[Training]:
    """Return the trainings of one model, ordered by recipe, then seed, as in the report."""
    own = (training for training in trainings_of(job) if training.model is model)
    return sorted(own, key=lambda training: model.recipes.index(training.recipe))


def head_starts(job: Job, head: HeadConfig, model: ModelSection) -> list[Training | None]:
    """Return the trainings of a model section on whose checkpoints a classification or tagging head is trained, as the
    head's settings select them. None, which comes first, stands for the base model.
    """
    found: list[Training | None] = [None, *trainings_by_recipe(job, model)]
    wanted = head.from_recipes or ("base", *model.recipes)
    return [start for start in found if (start.recipe if start else "base") in wanted]


def measurements_of(job: Job, model: ModelSection) -> list[Measurement]:
    """Return the models of a model section that the audit measures: its base model, if it has one, then by recipe and
    seed every kept checkpoint, or the last one only (``audit.every_checkpoint = false``)."""
    epochs = job.training(model).epochs_kept()
    kept = epochs if job.audit.every_checkpoint else epochs[-1:]
    own = trainings_by_recipe(job, model)
    base = [] if job.subject is not None and job.subject.base is None else [Measurement(model)]
    return [*base, *(Measurement(model, training, epoch) for training in own for epoch in kept)]


def is_last(job: Job, measurement: Measurement) -> bool:
    """Return whether a measured model is a base model or the last checkpoint of its training; only these get a
    verdict."""
    return measurement.training is None or measurement.epoch == job.training(measurement.model).num_epochs


def repetition_cost_factor(num_repeated: int, num_members: int) -> float:
    """Return the factor (1 or more) by which training takes longer when the documents of ``num_repeated`` of
    ``num_members`` individuals are repeated `TIMES_REPEATED` times, as in a positive control."""
    return 1 + (TIMES_REPEATED - 1) * min(num_repeated / max(num_members, 1), 1)


def creation_time() -> str:
    """Return the current UTC time, or that of SOURCE_DATE_EPOCH (set for reproducible bytes), as ISO 8601 text to the
    second."""
    now = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="seconds")
