"""The trainings of a job, and the models that it measures: values that follow from the job alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reticent.job.config import Job, ModelSection

__all__ = ["Measurement", "Training", "measurements_of", "trainings_by_recipe", "trainings_of"]


@dataclass(frozen=True, slots=True)
class Training:
    """One training of a job: a recipe on a model, with one of the seeds of ``[train]`` (None: the job's own)."""

    model: ModelSection
    recipe: str
    seed: int | None = None

    @property
    def name(self) -> str:
        """Name of its artefact."""
        folder = f"models/{self.model.name}/{self.recipe}"
        return folder if self.seed is None else f"{folder}/seed-{self.seed}"

    @property
    def title(self) -> str:
        """Recipe, model and seed, for a line of text."""
        return f"{self.recipe} of {self.model.name}" + ("" if self.seed is None else f", seed {self.seed}")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One model to measure: a checkpoint of a training, or (None) the base model."""

    model: ModelSection
    training: Training | None = None
    epoch: int = 0

    @property
    def recipe(self) -> str:
        return "base" if self.training is None else self.training.recipe

    @property
    def seed(self) -> int | None:
        return None if self.training is None else self.training.seed

    @property
    def name(self) -> str:
        """Name of its artefact."""
        seed = "" if self.seed is None else f"seed-{self.seed}-"
        return f"measures/{self.model.name}/{self.recipe}/{seed}epoch-{self.epoch:04d}"

    @property
    def title(self) -> str:
        """Recipe, model, epoch and seed, for a line of text."""
        epoch = f", epoch {self.epoch}" if self.epoch else ""
        return f"{self.recipe} of {self.model.name}{epoch}" + ("" if self.seed is None else f", seed {self.seed}")


def trainings_of(job: Job) -> list[Training]:
    """Return every training of a job: all recipes with the first seed, then all with the next, so that a run that stops
    half-way has compared the recipes.
    """
    found = [
        (number, Training(model, recipe, seed))
        for model in job.model
        for number, seed in enumerate(job.training(model).seeds or [None])
        for recipe in model.recipes
    ]
    return [training for _, training in sorted(found, key=lambda row: row[0])]


def trainings_by_recipe(job: Job, model: ModelSection) -> list[Training]:
    """Return the trainings of one model in the order of a report: by recipe, then seed."""
    own = (training for training in trainings_of(job) if training.model is model)
    return sorted(own, key=lambda training: model.recipes.index(training.recipe))


def measurements_of(job: Job, model: ModelSection) -> list[Measurement]:
    """Return the measurements of a model section: its base model, then every checkpoint by recipe, seed and epoch."""
    epochs = job.training(model).epochs_kept()
    kept = epochs if job.audit.every_checkpoint else epochs[-1:]
    own = trainings_by_recipe(job, model)
    return [Measurement(model), *(Measurement(model, training, epoch) for training in own for epoch in kept)]
