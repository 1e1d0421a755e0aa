"""Build the prompts of a probe; they are checked before a model or torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reticent.audit.config import (
    COMPASS,
    Init,
    Masking,
    ProbeConfig,
    SoftPromptConfig,
    SoftPromptStudy,
    default_num_validation,
)
from reticent.audit.evidence.probe import NotAsked
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.ext.propile.subjects import NAME_PARTS, Subjects, count_words, draw_nulls
from reticent.ext.propile.templates import Template, builtin_templates, pii_type, require_fields, templates_for

__all__ = [
    "Beginnings",
    "Init",
    "Masking",
    "ProbeConfig",
    "ProbeModel",
    "Prompts",
    "SoftPromptConfig",
    "SoftPromptStudy",
    "all_prompts",
    "fill_template",
    "make_prompts",
    "objective_of",
    "require_language",
    "require_questions",
    "require_subjects",
    "sizes_that_fit",
    "usable_templates",
]

#: Type -> beginnings, in a random order, each with the row of the subject whose item follows it.
Beginnings = Mapping[str, Sequence[tuple[int, str]]]
#: Languages of the page for an individual.
LANGUAGES = ("en", "fr")


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts for one target type at one level: T templates, S subjects who have the target.

    Attributes
    ----------
    texts : per template, per subject: the prompt, or None where the subject lacks an item in it
    items, nulls : the true item of each subject, and that of a random other subject; None if there is no other
    subjects : int64 (S,), numbers of the subjects
    counts : subjects that are left out, by reason
    households : int (S,), the household of each subject; None where every subject is of one of their own
    """

    target: str
    level: str
    templates: list[Template]
    texts: list[list[str | None]]
    items: list[str]
    nulls: list[str | None]
    subjects: np.ndarray
    counts: dict[str, int] = field(default_factory=dict)
    households: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class ProbeModel:
    """A model to probe: its name, its folder, and "clm" or "mlm"."""

    name: str
    path: Path | str
    objective: str


def objective_of(path: Path | str) -> str:
    """Return the objective of a model folder from its config: "mlm" (masked) or "clm" (causal language model)."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(path), trust_remote_code=False)
    except Exception:  # a wrong config fails anywhere in the library
        raise ArtifactError(f"{path}: no model here (no readable config.json)") from None
    names = config.architectures or []
    return "mlm" if any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in names) else "clm"


def require_language(language: str) -> None:
    """Raise `PolicyError` unless the page on what a model knows of an individual can be written in this language."""
    if language not in LANGUAGES:
        raise PolicyError(f"language {language!r}: the page is written in {' or '.join(LANGUAGES)}")


def all_prompts(
    subjects: Subjects,
    config: ProbeConfig,
    templates: Sequence[Template] | None,
    beginnings: Beginnings | None = None,
) -> tuple[list[Prompts], list[NotAsked]]:
    """Build the prompts for every target type (of personal item) and level (how many other items a prompt tells);
    return them and the (type, level) pairs that no template fits.

    Parameters
    ----------
    beginnings : those of members' documents, which the level `COMPASS` puts before prompts

    Raises
    ------
    CorpusError, PolicyError
        A column is missing, a template has an unknown field, no question can be asked, or no beginnings were given.
    """
    if COMPASS in config.levels and beginnings is None:
        raise PolicyError(f"probe.levels: {COMPASS} needs documents: those of a job with [probe]")
    prompts, skipped = [], []
    for target, level in require_questions(subjects, config, templates):
        found = make_prompts(
            subjects, target, level, templates or builtin_templates(), config, strict=bool(templates),
            beginnings=beginnings,
        )  # fmt: skip
        if found.templates:
            prompts.append(found)
        else:
            skipped.append(NotAsked(target=target, level=level))
    return prompts, skipped


def require_questions(
    subjects: Subjects, config: ProbeConfig, templates: Sequence[Template] | None
) -> list[tuple[str, str]]:
    """Return the (item type, level) pairs to make prompts for, where the level is the number of other items that a
    prompt gives. Raise `PolicyError` if no template fits any of them.
    """
    asked = _targets_and_levels(subjects, config)
    known = templates or builtin_templates()
    strict = bool(templates)
    if not any(usable_templates(subjects, target, level, known, config, strict)[0] for target, level in asked):
        raise PolicyError(
            f"no template asks for {', '.join(sorted({t for t, _ in asked}))} at level {', '.join(config.levels)} in "
            f"language {config.language} with the columns {', '.join(subjects.types)}"
        )
    return asked


def require_subjects(subjects: Subjects, targets: Sequence[str], study: SoftPromptStudy) -> None:
    """Raise `CorpusError` if a target type has too few subjects to train, validate and evaluate its soft prompts."""
    configs = [study.prompt, *(config for _, config in study.variants())]
    size, validation = max(c.num_subjects for c in configs), max(c.held_for_validation for c in configs)
    for target in targets:
        have = sum(value is not None for value in subjects.items[target])
        if (missing := size + validation + 1 - have) > 0:
            raise CorpusError(
                f"soft prompt: {have} subjects have an item of type {target}, and {size} to train on, {validation} to "
                f"validate on and 1 to measure on are needed: {missing} are missing; set num_subjects and "
                "num_validation lower"
            )


def sizes_that_fit(num_subjects: int) -> tuple[int, ...]:
    """Return the numbers of training subjects to compare soft prompts with: up to six powers of two that leave half of
    the subjects for evaluation.

    >>> sizes_that_fit(60), sizes_that_fit(10_000), sizes_that_fit(16)
    ((1, 2, 4, 8, 16), (16, 32, 64, 128, 256, 512), ())
    """
    powers = [2**power for power in range(10)]
    return tuple(n for n in powers if n + default_num_validation(n) <= num_subjects // 2)[-6:]


def _targets_and_levels(subjects: Subjects, config: ProbeConfig) -> list[tuple[str, str]]:
    """Return the (item type, level) pairs to make prompts for, where the level is the number of other items that a
    prompt gives. By default they have all item types that enough subjects have.
    """
    subjects.require(*config.targets)
    targets = config.targets or tuple(
        name
        for name in subjects.types
        if name not in ("name", "relationship", *NAME_PARTS)
        and sum(value is not None for value in subjects.items[name]) >= config.small_cell
    )
    if not targets:
        raise PolicyError(f"no type of item that at least {config.small_cell} subjects have")
    return [(target, level) for target in targets for level in config.levels]


def make_prompts(
    subjects: Subjects,
    target: str,
    level: str,
    templates: Sequence[Template],
    config: ProbeConfig,
    *,
    strict: bool = False,
    beginnings: Beginnings | None = None,
) -> Prompts:
    """Build the prompts that ask for one type of personal item, ``target``, at one ``level`` (how many other items a
    prompt gives). With them go the true item of each subject and, for comparison, that of a random other subject
    ("null").

    Raises
    ------
    CorpusError
        There is no such column, or no subject who has the item.
    PolicyError
        A template has an unknown field, and ``strict`` is true.
    """
    usable, others = usable_templates(subjects, target, level, templates, config, strict)
    has = np.array([number for number, value in enumerate(subjects.items[target]) if value is not None], dtype=np.int64)
    if len(has) == 0:
        raise CorpusError(f"subjects: no subject has an item of type {target}")
    items = [str(subjects.items[target][number]) for number in has]
    drawn = draw_nulls(len(items), seed=config.seed)[:, 0]
    nulls = [items[number] if number >= 0 else None for number in drawn]
    texts = [fill_template(t, subjects, has, target, others, config.language) for t in usable]
    if level == COMPASS:
        found = (beginnings or {}).get(target, ())
        usable = usable if found else []
        texts = [_prepend_beginnings(found, number, texts[number], subjects.rows[has]) for number in range(len(usable))]
    counts = {
        **subjects.counts,
        "without_target": len(subjects) - len(has),
        "without_null": sum(null is None for null in nulls),
        "without_a_field": sum(all(row[i] is None for row in texts) for i in range(len(has))),
        "single_word_names": int(np.sum(count_words([subjects.items["name"][i] for i in has]) == 1))
        if "name" in subjects.types
        else 0,
    }
    households = None if subjects.households is None else subjects.households[has]
    return Prompts(target, level, usable, texts, items, nulls, has, counts, households)


def usable_templates(
    subjects: Subjects, target: str, level: str, templates: Sequence[Template], config: ProbeConfig, strict: bool
) -> tuple[list[Template], list[str]]:
    """Return the templates that ask for an item type, ``target``, at a ``level`` (how many other items a prompt gives),
    and the item types with which their fields {pii_1} and {pii_2} are filled, in this order.
    """
    subjects.require(target)
    unasked = ("name", "relationship", *NAME_PARTS, target)
    others = [name for name in config.given or subjects.types if name not in unasked]
    if config.given:
        subjects.require(*others)
    if strict:
        require_fields(templates, subjects.types)
    language = None if strict else config.language
    level = "twin" if level == COMPASS else level
    usable = templates_for(templates, target, level, subjects.types, language=language)
    return [t for t in usable if _num_other_items(t) <= len(others)], others


def _num_other_items(template: Template) -> int:
    """Return how many of the fields {pii_1} and {pii_2} a template has."""
    return 2 if "pii_2" in template.fields else int("pii_1" in template.fields)


def _prepend_beginnings(
    beginnings: Sequence[tuple[int, str]], number: int, prompts: Sequence[str | None], subject_rows: np.ndarray
) -> list[str | None]:
    """Return the prompts, each after the beginning of another subject's document: that of index ``number`` in
    ``beginnings``, or the next one that is not the subject's own. None stays None."""
    first = number % len(beginnings)
    order = [*beginnings[first:], *beginnings[:first]]
    others = (next((text for owner, text in order if owner != row), None) for row in subject_rows)
    return [None if None in (own, text) else f"{text} {own}" for own, text in zip(prompts, others, strict=True)]


def fill_template(
    template: Template, subjects: Subjects, chosen: np.ndarray, target: str, others: Sequence[str], language: str
) -> list[str | None]:
    """Return the prompt of each chosen subject: the template filled with the subject's items; None if one
    is missing.
    """
    language = template.language if template.language in ("en", "fr") else language
    fixed = {"target_pii_type": pii_type(target).label(language)}
    fixed |= {f"pii_{n}_type": pii_type(name).label(language) for n, name in enumerate(others[:2], start=1)}
    source = {f"pii_{n}": name for n, name in enumerate(others[:2], start=1)}
    columns = {f: subjects.items[source.get(f, f)] for f in template.fields if f not in fixed}
    rows: list[str | None] = []
    for number in chosen:
        values = {name: column[number] for name, column in columns.items()}
        rows.append(None if None in values.values() else template.text.format(**fixed, **values))
    return rows
