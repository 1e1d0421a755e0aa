"""The whole job: its sections, the conditions between them, and its file."""

from __future__ import annotations

import glob
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from pydantic import (
    ValidationError,
    model_validator,
)

from reticent.audit.config import SubjectConfig
from reticent.audit.job_settings import JobSettings
from reticent.audit.judgement.rows import GATES
from reticent.audit.membership.names import (
    CHECKPOINTS,
    COVERAGE,
    HEAD_ATTACKS_BY_SHADOWS,
    HEAD_ATTACKS_WITHOUT_SHADOWS,
    USER_INFERENCE_SHADOWS,
)
from reticent.core.artifact import JOB, read_object
from reticent.core.errors import PolicyError, ReticentError
from reticent.core.json_toml import MAX_DEPTH, depth_of, read_json, read_toml
from reticent.core.names import require_distinct, require_name
from reticent.core.progress import log
from reticent.core.section import Section, explain, shared_fields
from reticent.engine.detect.choose import DETECTORS
from reticent.engine.protect import Policy
from reticent.engine.sources.formats import format_of
from reticent.trainer.config import ClassifyConfig, HeadConfig, ModelSection, PrivacyConfig, TrainConfig
from reticent.trainer.distributed import launched
from reticent.trainer.recipes import RECIPES, Recipe, at_epsilon, get_recipe, parted_name

AnyHead = TypeVar("AnyHead", bound=HeadConfig)
#: The word in place of a seed that is to be drawn.
DRAW = "draw"


# -------------------------------------------------------------------------------------------------------------- shared
#
# Settings of the whole job: put into the section of each component, and refused in a section's table.


#: The attacks that the log-probabilities of a server of completions allow.
BY_LOG_PROBS = ("loss", "reference", "min_k", "zlib")


def misplaced_settings(section: Section, where: str = "") -> Iterator[str]:
    """Yield an error message for each field that is set in a section and may only be set for the whole job; ``where``
    is the section's path."""
    shared = shared_fields(type(section))
    for name in section.model_fields_set:
        if name in shared:
            path = shared[name]
            yield f"{where}{name}: " + ("unknown field" if path is None else f"belongs to the whole job: set {path}")
            continue
        for place, inner in _nested_sections(getattr(section, name)):
            yield from misplaced_settings(inner, f"{where}{name}.{place}")


def with_job_settings(section: Section, job: Section) -> Any:
    """Return a copy of a section, and of the sections within it, in which the fields that it shares with the whole job
    have the job's values.

    A field that was set stays marked as set, so the dump of the section does not change.
    """
    update: dict[str, Any] = {}
    for name, path in shared_fields(type(section)).items():
        if path is not None:
            update[name] = attrgetter(path)(job)
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            update[name] = with_job_settings(value, job)
        elif isinstance(value, tuple) and any(isinstance(each, Section) for each in value):
            update[name] = tuple(with_job_settings(each, job) for each in value)
    if not update:
        return section
    changed = section.model_copy(update=update)
    changed.model_fields_set.intersection_update(section.model_fields_set)
    return changed


def _nested_sections(value: Any) -> Iterator[tuple[str, Section]]:
    """Yield the path and value of each section in a field's value, which is a section or a tuple of sections."""
    if isinstance(value, Section):
        yield "", value
    elif isinstance(value, tuple):
        yield from ((f"{number}.", each) for number, each in enumerate(value) if isinstance(each, Section))


class Job(JobSettings):
    """A whole run: documents in, models and a report out."""

    @model_validator(mode="before")
    @classmethod
    def _resolve_drawn_seed(cls, values: Any) -> Any:
        """Replace ``seed = "draw"`` by the seed in the run folder's ``job.json``, or by a random one of 62 bits where
        there is none yet."""
        if not isinstance(values, dict) or values.get("seed") != DRAW:
            return values
        kept = read_object(Path(str(values.get("out"))) / JOB).get("seed")
        if not isinstance(kept, int) and launched().size > 1:
            raise ValueError("seed: each process would draw its own; run `reticent protect` first, by one process")
        return values | {"seed": kept if isinstance(kept, int) else secrets.randbits(62)}

    @model_validator(mode="before")
    @classmethod
    def _add_subject_model(cls, values: Any) -> Any:
        """Return the job's values with a model section for the model to audit that was trained elsewhere (section
        ``subject``), and with the documents of its non-members as a further source. Values without this section are
        unchanged.
        """
        if not isinstance(values, dict) or values.get("subject") is None:
            return values
        try:
            subject = SubjectConfig.model_validate(values["subject"])
        except ValidationError:  # the field itself says what is wrong
            return values
        own = ModelSection(
            name="subject",
            base=subject.base or subject.model,
            objective=subject.objective,
            recipes=tuple(subject.copies),
            train=TrainConfig(num_epochs=1),  # what it was is not known: it has one checkpoint
        )
        models = [each if isinstance(each, dict) else each.model_dump() for each in values.get("model") or ()]
        if any(each.get("name") != own.name for each in models):
            raise ValueError("subject: a job that judges a model trained elsewhere trains none; leave [[model]] out")
        values = {**values, "model": (own,)}
        if subject.others is not None and isinstance(corpus := values.get("corpus"), dict):
            sources = corpus.get("source")
            sources = (sources,) if isinstance(sources, str) else tuple(sources or ())
            values["corpus"] = {**corpus, "source": (*(s for s in sources if s != subject.others), subject.others)}
        return values

    @model_validator(mode="after")
    def _check_subject_settings(self) -> Job:
        """Refuse settings that cannot be used on a model that was trained elsewhere, such as shadow models or
        canaries."""
        if self.subject is None:
            return self
        why = {
            "audit.shadow": "needs the recipe of a training, and that of a model trained elsewhere is not known",
            **({"audit.inversion": "needs the weights"} if self.subject.endpoint else {}),
            "canaries": "have to stand in the documents before the training",
            "split.user_inference_holdout": "needs documents that a training left out",
            **dict.fromkeys(("classify", "tag"), "trains on top of a training of the job"),
            "recipes": "are of trainings, and none is made",
            "audit.groups": "compares people whom a split dealt at random, and this one is given",
        }
        for setting, reason in why.items():
            if attrgetter(setting)(self):
                raise ValueError(f"subject: {setting}: {reason}; leave it out")
        if self.subject.endpoint and self.extraction is not None and self.extraction.num_queries:
            raise ValueError(
                "subject.endpoint: extraction.num_queries: a server that writes gives no chance of a passage; set []"
            )
        if self.subject.endpoint and self.probe and (self.probe.soft_prompt or self.probe.beam_sizes != (1,)):
            raise ValueError(
                "subject.endpoint: probe: a server writes what is likeliest word by word, and shows no weights; set "
                "beam_sizes = [1], and no soft_prompt"
            )
        able = (*BY_LOG_PROBS, COVERAGE) if self.subject.log_probs else (COVERAGE,)
        if self.subject.endpoint and (more := set(self.audit.attacks) - set(able)):
            left = ", ".join(able)
            raise ValueError(
                f"subject.endpoint: audit.attacks: {min(more)} needs more than a server gives; left: {left}"
            )
        for name in ("heldout", "reference"):
            if getattr(self.split, name) != type(self.split).model_fields[name].default:
                raise ValueError(f"subject: who was trained on is given; leave split.{name} out")
        return self

    @model_validator(mode="after")
    def _expand_epsilon_list(self) -> Job:
        """Replace each DP-SGD recipe, if ``train.dp.target_epsilon`` is a list, by one recipe for each epsilon of the
        list, wherever the job names it. Recipes of an earlier list, in a saved job, are replaced too.
        """
        arms: dict[str, tuple[str, ...]] = {}
        models = []
        for model in self.model:
            dp = self.training(model).dp
            recipes: list[str] = []
            for name in model.recipes:
                stem = parted_name(name)[0]
                own: tuple[str, ...] = (name,)
                if self._is_private(stem):
                    listed = dp.target_epsilon if dp is not None and isinstance(dp.target_epsilon, tuple) else ()
                    own = tuple(at_epsilon(stem, each) for each in listed) or (stem,)
                    arms[name] = (*arms.get(name, ()), *own)
                recipes += own
            models.append(model.model_copy(update={"recipes": tuple(dict.fromkeys(recipes))}))
        trained = {name for model in models for name in model.recipes}
        if all(own == (name,) for name, own in arms.items()):
            return self

        def rename_recipes(section: Any, field: str = "recipes") -> Any:
            """Return a section with the recipes named in its list ``field`` replaced by the new ones; unchanged if it
            names none."""
            if section is None or not (names := getattr(section, field)):
                return section
            each = (arm for name in names for arm in ((name,) if name in trained else arms.get(name, (name,))))
            return section.model_copy(update={field: tuple(dict.fromkeys(each))})

        self.__dict__.update(  # no other code holds the job yet
            model=type(self.model)(models),
            audit=self.audit.model_copy(update={"shadow": rename_recipes(self.audit.shadow)}),
            gate=type(self.gate)(map(rename_recipes, self.gate)),
            **{name: rename_recipes(getattr(self, name), "from_recipes") for name in ("classify", "tag")},
        )
        return self

    def _is_private(self, name: str) -> bool:
        """Return whether the recipe of this name trains by DP-SGD; False for an unknown one."""
        try:
            return self.recipe(name).private
        except ValueError:  # said where the recipes of models are checked
            return False

    @model_validator(mode="after")
    def _fill_shared_settings(self) -> Job:
        """Copy the settings of the whole job into every section, which may not set them itself."""
        if wrong := list(misplaced_settings(self)):
            raise ValueError("; ".join(sorted(wrong)))
        self.__dict__.update(with_job_settings(self, self).__dict__)  # no other code holds the job yet
        return self

    @model_validator(mode="after")
    def _check_gates(self) -> Job:
        """Refuse a gate (limit that a measure must meet) on a measure, an attack or a recipe that the job does not
        have."""
        for number, gate in enumerate(self.gate, start=1):
            where = f"gate {number} ({gate.measure})"
            if "canaries" in GATES[gate.measure].needs and (
                self.canaries is None or gate.arm not in self.canaries.arms
            ):
                raise ValueError(f"{where}: needs [canaries] with the arm {gate.arm}")
            if "extraction" in GATES[gate.measure].needs and self.extraction is None:
                raise ValueError(f"{where}: needs [extraction]")
            if gate.measure == "attribute" and not (self.audit.heads and self.audit.heads.attributes):
                raise ValueError(f"{where}: needs [audit.heads] with attributes")
            attacks = {*self.audit.attacks, *(self.audit.shadow.attacks if self.audit.shadow else ())}
            if self.audit.heads is not None:
                attacks |= {*HEAD_ATTACKS_WITHOUT_SHADOWS, *HEAD_ATTACKS_BY_SHADOWS}
            if gate.measure.startswith("membership") and gate.attack and gate.attack not in attacks:
                raise ValueError(f"{where}: {gate.attack} is not among audit.attacks or audit.shadow.attacks")
            known = {name for model in self.model for name in model.recipes}
            if gate.recipes is not None and (not gate.recipes or not known.issuperset(gate.recipes)):
                raise ValueError(f"{where}: recipes: expected some of {', '.join(sorted(known))}")
        return self

    @model_validator(mode="after")
    def _check_consistency(self) -> Job:
        """Refuse settings of different sections that contradict each other."""
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
            if parted_name(name)[1] is not None:
                raise ValueError(f"recipes.{name}: names of this form are those of a list in train.dp.target_epsilon")
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
        single = [model.name for model in self.model if len(self.training(model).epochs_kept()) == 1]
        if CHECKPOINTS in self.audit.attacks and single and self.subject is None:
            raise ValueError(
                f"audit.attacks: {CHECKPOINTS} compares the checkpoints of a training, and {single[0]} keeps one; set "
                "train.checkpoint_epochs"
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
        for head in self.heads:
            if head.section in self.recipes:
                raise ValueError(f"recipes.{head.section}: is the name of a section of the job; choose another")
            known = {"base", *(recipe for model in self.model for recipe in model.recipes)}
            if self.model and (unknown := set(head.from_recipes or ()) - known):
                raise ValueError(f"{head.section}.from_recipes: no model is trained with {sorted(unknown)[0]}")
            if head.private and None in ([self.training(model).dp for model in self.model] or [self.train.dp]):
                raise ValueError(f"{head.section}.private: DP-SGD needs [train.dp], with target_epsilon say")
            listed = [dp.target_epsilon for dp in (self.train.dp, *(self.training(m).dp for m in self.model)) if dp]
            if head.private and any(isinstance(each, tuple) for each in listed):
                raise ValueError(f"{head.section}.private: has one epsilon; give train.dp.target_epsilon one number")
        if self.audit.heads is not None and not (self.heads and all(head.save_model for head in self.heads)):
            raise ValueError(
                "audit.heads attacks heads that are kept: it needs [classify] or [tag] with save_model = true"
            )
        for name in self.detect.detectors:
            needs_marks = "spans" in getattr(DETECTORS[name].load(), "columns", ())
            if needs_marks and self.corpus.spans is None and not self.corpus.marked:
                raise ValueError(f'detector {name} needs corpus.spans = "the column of spans"')
        return self

    def _check_recipes_of_models(self) -> None:
        """Refuse a model's recipe that is unknown or of another objective, and recipes that lack settings which they
        need: all that are missing in one message."""
        lacking = []
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
                if missing := list(self._missing_settings(model, found)):
                    lacking.append(f"model {model.name}: recipe {name} needs {', '.join(missing)}")
        if lacking:
            raise ValueError("; ".join(lacking))

    def _missing_settings(self, model: ModelSection, recipe: Recipe) -> Iterator[str]:
        """Yield the settings, each with why or with an example, that a private recipe of a model needs and the job
        lacks."""
        if recipe.private and self.training(model).dp is None:
            yield "[train.dp] (its target_epsilon, say)"
        if recipe.words == "counted":
            return
        if self.protect.public_words is None:
            yield 'protect.public_words (a list of public words: "wordfreq:en", say)'
        if self.protection(recipe.name).n > 1:
            own = f" or recipes.{recipe.name}.n = 1" if recipe.name in self.recipes else ""
            yield f"protect.n = 1{own} (it tells single words apart)"
        if recipe.words == "private" and self.threshold.epsilon is None:
            yield "threshold.epsilon (that of its private vocabulary)"
        if recipe.words == "private" and self.threshold.unit != "individual":
            yield 'threshold.unit = "individual"'

    def recipe(self, name: str) -> Recipe:
        """Return the recipe of this name: one of the job's own, a head's, or a built-in one; `PolicyError` lists the
        known ones."""
        stem, epsilon = parted_name(name)
        if epsilon is not None and (found := self.recipe(stem)).private:
            return replace(found, name=name)
        own = self.recipes.get(name)
        if own is not None:
            return own.named(name)
        if (head := next((head for head in self.heads if head.section == name), None)) is not None:
            return head.recipe()
        if self.subject is not None and name in self.subject.copies:
            return Recipe(name=name, objective=self.subject.objective)
        return get_recipe(name, also=self.recipes)

    def protection(self, recipe: str) -> Policy:
        """Return the protection policy of a recipe: ``[protect]``, with the settings that the job's table of this
        recipe changes, and the recipe's list of words anybody may use (counted in the corpus, public or private)."""
        own, words = self.recipes.get(parted_name(recipe)[0]), self.recipe(recipe).words
        policy = self.protect if own is None else own.protection(self.protect)
        return policy if words == "counted" else policy.model_copy(update={"words": words})

    def tokens(self, recipe: str) -> str:
        """Return the name of the token store that a recipe is trained on, such as ``train``, or ``train-k5-n1-all`` if
        the recipe has its own protection. Recipes with equal protection and text share a store.
        """
        name, own = self.recipe(recipe).tokens, self.protection(recipe)
        if own.words != "counted":  # of single words
            return f"{name}-{own.words}" if own.k == self.protect.k else f"{name}-{own.words}-k{own.k}"
        return name if own == self.protect else f"{name}-k{own.k}-n{own.n}-{own.policy}"

    def training(self, model: ModelSection) -> TrainConfig:
        """Return the training settings of a model: ``[train]`` with the changes of the model's own table."""
        own = model.train.model_dump(exclude_unset=True) if model.train else {}
        settings: TrainConfig = with_job_settings(TrainConfig(**{**self.train.model_dump(), **own}), self)
        return settings

    @property
    def heads(self) -> tuple[HeadConfig, ...]:
        """The sections that train classification or tagging heads on the job's models, ``[classify]`` and ``[tag]``."""
        return tuple(head for head in (self.classify, self.tag) if head is not None)

    def privacy(self, model: ModelSection, recipe: str) -> PrivacyConfig | None:
        """Return the DP-SGD settings of a model's recipe (None without ``train.dp``), with the recipe's own epsilon
        where the job lists several."""
        settings, epsilon = self.training(model).dp, parted_name(recipe)[1]
        if settings is None or epsilon is None:
            return settings
        return settings.model_copy(update={"target_epsilon": epsilon})

    def classifying(self, model: ModelSection | None = None) -> ClassifyConfig:
        """Return the settings of the document classifier (``[classify]``), with window length, device and precision of
        the ``model`` that it is trained on (None: those of ``[train]``).

        Raises
        ------
        PolicyError
            The job names no column of classes.
        """
        if self.classify is None:
            raise PolicyError("classify needs the column of classes: classify.label (--set classify.label=COLUMN)")
        return self.of_model(self.classify, model)

    def of_model(self, head: AnyHead, model: ModelSection | None) -> AnyHead:
        """Return the settings of a classification or tagging head, with window length, device and precision of the
        model on whose checkpoints it is trained; without a model those of ``[train]``."""
        training = self.train if model is None else self.training(model)
        shared = {name: getattr(training, name) for name in ("window_length", "device", "bf16", "save_minutes")}
        return head.model_copy(update=shared)

    def changed(self, **sections: Any) -> Job:
        """Return a copy of the job with the given sections replaced, validated as a whole and with the settings of the
        whole job copied into them."""
        return Job.model_validate({**dict(self), **sections})


def parse_job(values: dict[str, Any], where: str = "job") -> Job:
    """Validate a job given as nested dictionaries; `PolicyError` lists every field that is wrong, and why. ``where``
    names the job in messages."""
    if depth_of(values) > MAX_DEPTH:
        raise PolicyError(f"{where}: tables and lists lie inside each other more than {MAX_DEPTH} deep")
    if unusable := list(_settings_unfit_for_paths(values)):
        raise PolicyError(f"{where}: {', '.join(unusable)}: holds a NUL or half a character, which no file name can")
    try:
        return Job.model_validate(values)
    except ValidationError as error:
        raise PolicyError(f"{where}: {explain(error, kind=Job)}") from None


def load_job(path: str | Path) -> Job:
    """Read a job from a TOML file (or the ``job.json`` of a run folder).

    Relative paths in the file start at the current directory, as on the command line.
    """
    if format_of(Path(path)) is not None:
        raise PolicyError(
            f"{path}: documents, and no job; `reticent index {path} --out RUN` counts their words without one, and a "
            "job is a file of TOML that names them (corpus.source): `reticent new-job` writes one"
        )
    is_kept = Path(path).suffix == ".json"
    try:
        values = (read_json if is_kept else read_toml)(path, PolicyError)
    except PolicyError as error:
        raise PolicyError("; ".join([str(error), *_options_given_twice(Path(path))])) from None
    return parse_job(with_end_of_text(_without_removed_detection(values) if is_kept else values, is_kept), str(path))


def _without_removed_detection(values: Any) -> Any:
    """Return a saved job's values in which detection settings that no longer exist are replaced: ``confirm`` is
    dropped, and the detector ``context`` becomes ``shipped``. The change makes the detected spans out of date.
    """
    if not isinstance(values, dict) or not isinstance(detect := values.get("detect"), dict):
        return values
    detect = {name: value for name, value in detect.items() if name not in ("confirm", "context")}
    detectors = detect.get("detectors")
    if isinstance(detectors, list) and "context" in detectors:
        if detect.get("preset"):
            del detect["detectors"]
        else:
            others = [name for name in detectors if name not in ("context", "shipped")]
            detect["detectors"] = [*others, "shipped"]
    return {**values, "detect": detect}


def with_end_of_text(values: Any, is_kept: bool = False) -> Any:
    """Return a job's values with ``train.end_of_text`` filled in, if it is not set and the run folder has a saved job:
    by the value there, or by false if an earlier version saved that job. ``is_kept`` says that ``values`` are the saved
    job.
    """
    if not isinstance(values, dict) or not isinstance(own := values.get("train", {}), dict) or "end_of_text" in own:
        return values
    kept: bool | None = None
    try:
        kept = None if is_kept else read_json(Path(values["out"]) / JOB)["train"].get("end_of_text")
    except (ReticentError, OSError, KeyError, TypeError, ValueError, AttributeError):  # no run folder, or no good one
        return values
    if kept is None and not is_kept:
        log(
            f"{values['out']}: train.end_of_text is false, as when this run was begun; set it to true to train causal "
            "models that stop where a text ends (they are then trained again)"
        )
    return {**values, "train": {**own, "end_of_text": bool(kept)}}


def _options_given_twice(path: Path) -> Iterator[str]:
    """Yield an error message for each detector option that a job file gives both as a shorthand (``records = …``) and
    in a table of the detector. TOML's own message would name only a duplicate key.
    """
    with suppress(OSError, ValueError):
        text = path.read_text()
        for name, row in DETECTORS.items():
            for key, option in row.short.items():
                has_table = re.search(rf"^\s*\[\s*detect\s*\.\s*{name}\s*\]", text, re.MULTILINE)
                if has_table and re.search(rf"^\s*(?:detect\.)?{key}\s*=", text, re.MULTILINE):
                    yield f"{key} = … is short for {option} = … in [detect.{name}]: write it there"


def _settings_unfit_for_paths(value: Any, name: str = "") -> Iterator[str]:
    """Yield the dotted names of settings whose text holds a NUL or a lone surrogate, and so cannot be part of a
    path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            shown = ascii(key)[1:-1] if isinstance(key, str) else str(key)
            if isinstance(key, str) and not _fits_path(key):
                yield f"{name}.{shown}".lstrip(".")
            yield from _settings_unfit_for_paths(inner, f"{name}.{shown}".lstrip("."))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _settings_unfit_for_paths(inner, f"{name}.{number}")
    elif isinstance(value, str) and not _fits_path(value):
        yield name


def _fits_path(text: str) -> bool:
    """Return whether a text holds neither a NUL nor a lone surrogate."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


# ---------------------------------------------------------------------------------------------------------------- kept
#
# The job that a run folder keeps: its paths lead to the same files from any directory, and when the folder moves.
#
# The job is kept with absolute paths. If the folder has moved, a path that was inside it is looked for inside it. Any
# other path is looked for where it was and, if it does not exist any more, where it would be had it moved along with
# the folder. Names, such as those of the hub, are no paths.


#: Fields that are always paths, and fields that may also be a name, such as one of the hub.
PATHS = (
    *(
        "corpus.source",
        "corpus.withdrawn",
        "corpus.individuals",
        "model.foundation.vocabulary",
        "audit.earlier",
        "audit.groups",
        "probe.subjects",
        "probe.templates",
    ),
    *("train.dp.budget_file", "model.train.dp.budget_file", "dossier.key", "subject.members", "subject.others"),
)
PERHAPS_PATHS = (
    *("corpus.readmitted", "model.base", "model.foundation.text", "surrogates.pool", "surrogates.names"),
    "protect.public_words",
    *("subject.model", "subject.base", "subject.also"),
)
#: Values of these that are no path, though a file may be called so.
WORDS = ("reference", "generated", "realistic", "syllables", "merged", "int8")


def kept_content(job: Job) -> bytes:
    """Return the bytes of ``job.json`` for a job, with relative paths made absolute from the current directory."""

    def absolute(path: str, certain: bool) -> str:
        """Return a path made absolute. A URL stays unchanged, as does a text that may be a name instead (``certain`` is
        False) and matches no file."""
        is_name = not path or "://" in path or not (certain or _path_exists(path))
        return path if is_name else os.path.abspath(path if _path_exists(path) else os.path.expanduser(path))

    values = _map_paths(job.model_dump(mode="json"), absolute)
    return json.dumps({**values, "out": os.path.abspath(job.out)}, indent=1).encode()


def changed_sections(file: Path, content: bytes) -> list[str]:
    """Return the names of the sections in which the job saved in ``file`` differs from a job with the bytes ``content``
    (see `kept_content`); empty if the file holds no readable job. If the documents' sources differ, "corpus.source"
    stands in place of "corpus".
    """
    try:
        before = json.loads(kept_content(load_kept_job(file)))
    except (ReticentError, OSError):
        return []
    now = json.loads(content)
    changed = [name for name in now if name != "out" and before.get(name) != now[name]]
    moved = "corpus" in changed and before["corpus"].get("source") != now["corpus"].get("source")
    return ["corpus.source" if name == "corpus" and moved else name for name in changed]


def load_kept_job(file: Path) -> Job:
    """Read the job saved in a run folder (``job.json``). Paths in it are adapted if the folder was moved, and ``out``
    is the folder's present location.
    """
    job, folder = load_job(file), file.parent

    def relocate(path: str, certain: bool) -> str:
        """Return where a path of the saved job is now, if the run folder was moved: paths inside the folder move with
        it. ``certain`` is false if the text may be no path but a name.
        """
        inside = os.path.relpath(path, job.out) if path and os.path.isabs(path) == os.path.isabs(job.out) else None
        if inside is None or "://" in path:
            return path
        moved = os.path.normpath(folder / inside)
        if not inside.startswith(os.pardir):
            return moved if certain or _path_exists(moved) else path
        # Earlier versions kept relative paths, and did not record the directory that they start at.
        places = (path, moved) if os.path.isabs(path) else (moved, path)
        return next(filter(_path_exists, places), path)

    return parse_job({**_map_paths(job.model_dump(), relocate), "out": str(folder)}, str(file))


def require_withdrawals(job: Job) -> None:
    """Raise `PolicyError` if the job would include an individual again who is withdrawn in the run folder's job."""
    file = Path(job.out) / JOB
    if not file.exists() or not _has_withdrawals(read_json(file)):
        return
    now = {Path(path).resolve() for path in job.corpus.withdrawn}
    gone = {line for path in now for line in _read_id_lines(path) or ()}
    for path in load_kept_job(file).corpus.withdrawn:
        lines = _read_id_lines(Path(path))
        if Path(path).resolve() not in now and (lines is None or lines - gone):
            raise PolicyError(
                f"{job.out}: leaves out who withdrew in {path}, and individuals of that list would come back; name it "
                "again (`reticent update --remove`, corpus.withdrawn of a job), or choose another --out"
            )


def _has_withdrawals(values: Any) -> bool:
    """Return whether the values of a saved job name lists of withdrawn individuals."""
    corpus = values.get("corpus") if isinstance(values, dict) else None
    return isinstance(corpus, dict) and bool(corpus.get("withdrawn"))


def _read_id_lines(file: Path) -> set[str] | None:
    """Return the distinct lines of a list of ids; None if the file cannot be read."""
    try:
        return set(filter(None, map(str.strip, file.read_text(encoding="utf-8-sig").split("\n"))))
    except (OSError, UnicodeDecodeError):
        return None


def _path_exists(path: str) -> bool:
    """Return whether a path exists, or a glob pattern matches something."""
    return os.path.exists(path) or next(glob.iglob(path, recursive=True), None) is not None


def _map_paths(values: dict[str, Any], change: Callable[..., str]) -> dict[str, Any]:
    """Return a copy of a job's values with every path replaced by ``change(path, certain=…)``; ``certain`` is false for
    fields that may also hold a name."""
    for field, certain in _path_fields():
        values = _map_texts_at(values, field.split("."), partial(change, certain=certain))
    return values


def _path_fields() -> Iterator[tuple[str, bool]]:
    """Yield (dotted name of a field, whether it always holds a path) for each field that may hold a path; the others
    may also hold a name, such as a model's on the hub."""
    yield from ((field, True) for field in PATHS)
    yield from ((field, False) for field in PERHAPS_PATHS)
    for name, row in DETECTORS.items():
        yield from ((f"detect.{name}.{option}", True) for option in row.files)
        yield from ((f"detect.{name}.{option}", False) for option in row.perhaps_files)


def _map_texts_at(node: Any, keys: list[str], change: Callable[[str], str]) -> Any:
    """Return a copy of nested values with ``change`` applied to the texts at this path of keys; list items share a
    path."""
    if isinstance(node, list | tuple):
        return [_map_texts_at(each, keys, change) for each in node]
    if keys and isinstance(node, dict):
        return {**node, keys[0]: _map_texts_at(node[keys[0]], keys[1:], change)} if keys[0] in node else node
    if isinstance(node, dict):
        return {key: _map_texts_at(each, [], change) for key, each in node.items()}
    return change(node) if isinstance(node, str) and not keys and node not in WORDS else node
