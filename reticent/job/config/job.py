"""The whole job, the conditions between its sections, and its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from reticent.audit.job_settings import JobSettings
from reticent.audit.judgement.rows import GATES
from reticent.audit.membership.names import USER_INFERENCE_SHADOWS
from reticent.core.errors import PolicyError
from reticent.core.json_toml import MAX_DEPTH, depth_of, read_json, read_toml
from reticent.core.names import require_distinct, require_name
from reticent.core.section import explain
from reticent.engine.detect.choose import DETECTORS
from reticent.engine.protect import Policy
from reticent.job.config.shared import set_in_a_section, with_shared
from reticent.trainer.config import ClassifyConfig, ModelSection, TrainConfig
from reticent.trainer.recipes import RECIPES, Recipe, get_recipe

__all__ = ["Job", "load_job", "parse_job"]


class Job(JobSettings):
    """A whole run: documents in, models and a report out."""

    @model_validator(mode="after")
    def _shared(self) -> Job:
        """Give every section the settings of the whole job; a table may not set them for itself."""
        if wrong := list(set_in_a_section(self)):
            raise ValueError("; ".join(sorted(wrong)))
        self.__dict__.update(with_shared(self, self).__dict__)  # no other code holds the job yet
        return self

    @model_validator(mode="after")
    def _gates_have_their_measure(self) -> Job:
        for number, gate in enumerate(self.gate, start=1):
            where = f"gate {number} ({gate.measure})"
            if "canaries" in GATES[gate.measure].needs and (
                self.canaries is None or gate.arm not in self.canaries.arms
            ):
                raise ValueError(f"{where}: needs [canaries] with the arm {gate.arm}")
            if "extraction" in GATES[gate.measure].needs and self.extraction is None:
                raise ValueError(f"{where}: needs [extraction]")
            attacks = {*self.audit.attacks, *(self.audit.shadow.attacks if self.audit.shadow else ())}
            if gate.measure.startswith("membership") and gate.attack and gate.attack not in attacks:
                raise ValueError(f"{where}: {gate.attack} is not among audit.attacks or audit.shadow.attacks")
            known = {name for model in self.model for name in model.recipes}
            if gate.recipes is not None and (not gate.recipes or not known.issuperset(gate.recipes)):
                raise ValueError(f"{where}: recipes: expected some of {', '.join(sorted(known))}")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Job:
        if self.protect.n > self.index.max_n:
            raise ValueError(
                f"protect.n = {self.protect.n} needs index.max_n >= {self.protect.n}, got {self.index.max_n}"
            )
        if any(self.training(model).window_length != self.train.window_length for model in self.model):
            raise ValueError("train.window_length belongs to the whole job: models are attacked on the same windows")
        if self.threshold.epsilon is not None and self.protect.n > 1:
            raise ValueError("threshold.epsilon protects single words: it needs protect.n = 1")
        for name in self.recipes:
            require_name(name, "recipes")
            try:
                self.recipe(name)
                own = self.protection(name)
            except ValueError as error:
                where = "" if str(error).startswith("recipes.") else f"recipes.{name}.base: "
                raise ValueError(f"{where}{error}") from None
            if self.threshold.epsilon is not None and own.n > 1:
                raise ValueError(f"threshold.epsilon protects single words: it needs recipes.{name}.n = 1")
            if own.n > self.index.max_n:
                raise ValueError(f"recipes.{name}.n = {own.n} needs index.max_n >= {own.n}, got {self.index.max_n}")
        self._check_recipes_of_models()
        if "user_inference" in self.audit.attacks and not self.split.user_inference_holdout:
            raise ValueError(
                "audit.attacks: user_inference asks of documents that are held back from training; "
                "it needs split.user_inference_holdout over 0"
            )
        if self.audit.shadow is not None:
            if USER_INFERENCE_SHADOWS in self.audit.shadow.attacks and "user_inference" not in self.audit.attacks:
                raise ValueError(
                    f"audit.shadow.attacks: {USER_INFERENCE_SHADOWS} asks of documents that are held back from "
                    "training; it needs user_inference among audit.attacks"
                )
            unknown = set(self.audit.shadow.recipes) - {recipe for model in self.model for recipe in model.recipes}
            if self.model and unknown:
                raise ValueError(f"audit.shadow.recipes: no model is trained with {sorted(unknown)[0]}")
        require_distinct([model.name for model in self.model], "models")
        require_distinct([*RECIPES, *self.recipes], "recipes")
        if self.classify is not None and not (self.classify.label or self.corpus.label):
            raise ValueError("classify needs the column of classes: classify.label or corpus.label")
        for name in self.detect.detectors:
            needs_marks = "spans" in getattr(DETECTORS[name].load(), "columns", ())
            if needs_marks and self.corpus.spans is None and not self.corpus.marked:
                raise ValueError(f'detector {name} needs corpus.spans = "the column of spans"')
        return self

    def _check_recipes_of_models(self) -> None:
        for model in self.model:
            for name in model.recipes:
                try:
                    found = self.recipe(name)
                except ValueError as error:
                    raise ValueError(f"model {model.name}: {error}") from None
                if found.objective != model.objective:
                    raise ValueError(
                        f"model {model.name}: recipe {name} is {found.objective}, the objective is {model.objective}"
                    )
                if found.private and self.training(model).dp is None:
                    raise ValueError(
                        f"model {model.name}: recipe {name} is DP-SGD and needs [train.dp], with target_epsilon say"
                    )

    def recipe(self, name: str) -> Recipe:
        """Return a recipe by name: one of the job's own, or a built-in one; `PolicyError` lists the known ones."""
        own = self.recipes.get(name)
        if own is not None:
            return own.named(name)
        return get_recipe(name, also=self.recipes)

    def protection(self, recipe: str) -> Policy:
        """Return how the tokens of a recipe are protected: as `protect` says, but for what the recipe's table sets."""
        own = self.recipes.get(recipe)
        return self.protect if own is None else own.protection(self.protect)

    def tokens(self, recipe: str) -> str:
        """Return the name of the tokens that a recipe is trained on; recipes of one protection and text share them."""
        name, own = self.recipe(recipe).tokens, self.protection(recipe)
        return name if own == self.protect else f"{name}-k{own.k}-n{own.n}-{own.policy}"

    def training(self, model: ModelSection) -> TrainConfig:
        """Return the job's training settings, with the changes of the model's own table."""
        own = model.train.model_dump(exclude_unset=True) if model.train else {}
        settings: TrainConfig = with_shared(TrainConfig(**{**self.train.model_dump(), **own}), self)
        return settings

    def classifying(self, model: ModelSection | None = None) -> ClassifyConfig:
        """Return the settings of classifying from a model's checkpoints, with its device and precision.

        Raises
        ------
        PolicyError
            The job names no column of classes.
        """
        if self.classify is None:
            raise PolicyError("classify needs the column of classes: --label COLUMN, or classify.label in the job")
        training = self.train if model is None else self.training(model)
        shared = {name: getattr(training, name) for name in ("window_length", "device", "bf16")}
        return self.classify.model_copy(update=shared)

    def changed(self, **sections: Any) -> Job:
        """Return the job with other sections, checked as a whole; the settings of the whole job are put into them."""
        return Job.model_validate({**dict(self), **sections})


def parse_job(values: dict[str, Any], where: str = "job") -> Job:
    """Check a job given as nested dictionaries; `PolicyError` lists every field that is wrong, and why."""
    if depth_of(values) > MAX_DEPTH:
        raise PolicyError(f"{where}: tables and lists lie inside each other more than {MAX_DEPTH} deep")
    if unusable := list(_unusable(values)):
        raise PolicyError(f"{where}: {', '.join(unusable)}: holds a NUL or half a character, which no file name can")
    try:
        return Job.model_validate(values)
    except ValidationError as error:
        raise PolicyError(f"{where}: {explain(error, kind=Job)}") from None


def load_job(path: str | Path) -> Job:
    """Read a job from a TOML file (or the ``job.json`` of a run folder).

    Relative paths in the file start at the current directory, as on the command line.
    """
    read = read_json if Path(path).suffix == ".json" else read_toml
    return parse_job(read(path, PolicyError), str(path))


def _unusable(value: Any, name: str = "") -> Iterator[str]:
    """Names of the settings whose text cannot be a part of a path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            shown = ascii(key)[1:-1] if isinstance(key, str) else str(key)
            if isinstance(key, str) and not _usable(key):
                yield f"{name}.{shown}".lstrip(".")
            yield from _unusable(inner, f"{name}.{shown}".lstrip("."))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _unusable(inner, f"{name}.{number}")
    elif isinstance(value, str) and not _usable(value):
        yield name


def _usable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
