"""Publication rules (definitions.md#publication): the published form of each field of the evidence, and `publish`.

Every field of an evidence class carries one rule in its annotation (``Annotated[int, COUNT]``). Publication is closed
by default: a field without a rule is not published. A field whose rule is `CURVE` or `TOGETHER` is published only by
the ``withhold_small_counts`` method of its class, which sees the other fields that could reveal it.

Invariant: `publish` of published evidence changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from reticent.core.section import Section

#: Claims that no report may make.
FORBIDDEN = ("anonymous", "anonymised", "anonymized", "gdpr compliant", "gdpr-compliant")

Evidence = TypeVar("Evidence")


@dataclass(frozen=True, slots=True)
class Rule:
    """The publication rule of a field: a function (value, smallest published count) -> published form, or None."""

    name: str
    published: Callable[[Any, int], Any]


def _withhold_small(value: Any, cell: int) -> Any:
    """Return a count, or None if it is from 1 to ``cell`` - 1; for a mapping, the same with each of its counts."""
    if isinstance(value, Mapping):
        return {without_claims(key): _withhold_small(part, cell) for key, part in value.items()}
    return None if value is not None and 0 < value < cell else value


def _publish_nested(value: Any, cell: int) -> Any:
    """Return evidence, or a mapping or list of evidence, with each element in publishable form (counts under ``cell``
    withheld). An element that is not evidence becomes None."""
    if isinstance(value, Mapping):
        return {without_claims(key): _publish_nested(part, cell) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_publish_nested(part, cell) for part in value)
    # A value that is not evidence has no rule of its own, so it is not published.
    return publish(value, cell) if is_dataclass(value) and not isinstance(value, type) else None


def _empty_lists(evidence: Any, cell: int) -> Any:
    """Return evidence without the contents of its lists, which must not be published: [] for a list, an object with []
    in every field for an evidence object, and the same for each value of a mapping."""
    if evidence is None or isinstance(evidence, list):
        return None if evidence is None else []
    if isinstance(evidence, Mapping):
        return {key: _empty_lists(part, cell) for key, part in evidence.items()}
    return replace(evidence, **{field.name: [] for field in fields(evidence)})


#: A count of individuals, documents or identifiers: withheld (None) from 1 to the small cell - 1.
COUNT = Rule("count", _withhold_small)
#: Nested evidence, or a list or mapping of it: its own fields have rules.
PARTS = Rule("parts", _publish_nested)
#: An estimate (or a mapping of estimates): withheld if it is over fewer individuals than the small cell.
OVER_INDIVIDUALS = Rule("over individuals", _publish_nested)
#: A number over all tokens or words of a corpus, a training or a test, which reveals no individual.
TOTAL = Rule("total", lambda value, _: value)
#: A number or a word that was chosen before the measurement, or that describes its method.
SETTING = Rule("setting", lambda value, _: without_claims(value))
#: A text that is not from a document: a name of the job, a label, a fixed sentence. It is cleared of claims.
NAME = Rule("name", lambda value, _: without_claims(value))
#: A name that may be a path. Only its last part is kept, because folders can be named after individuals.
PATH = Rule("path", lambda value, _: without_folders(without_claims(value)))
#: A value that is never published.
PRIVATE = Rule("private", lambda *_: None)
#: Points of a distribution over individuals. All are removed, until ``withhold_small_counts`` of the class restores
#: safe ones.
CURVE = Rule("curve", _empty_lists)
#: A field that other fields could reveal. It is withheld, until ``withhold_small_counts`` of the class restores it.
TOGETHER = Rule("together", lambda *_: None)


@dataclass(frozen=True, slots=True)
class Settings:
    """The publication rule of settings: those that the marks of their class's fields publish, with shortened paths."""

    kind: type[Section]

    def published(self, value: Any, cell: int) -> Any:
        """Return the settings that may be published as a mapping; a path is cut to its file name."""
        return PATH.published(self.kind.published(value)[0], cell)


@cache
def rules_of(cls: type) -> dict[str, Rule | Settings | None]:
    """Return for each field of an evidence class the rule by which it is published, taken from its annotation; None,
    for a field without a rule, means that it is not published."""
    found: dict[str, Rule | Settings | None] = {}
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        hint = hints[field.name]
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        found[field.name] = next((mark for mark in marks if isinstance(mark, Rule | Settings)), None)
    return found


def publish(evidence: Evidence, cell: int) -> Evidence:
    """Return a publishable copy of evidence: each field by its own rule, and then the class's method
    ``withhold_small_counts`` for fields from which other fields could be derived.

    A class whose fields could reveal each other has ``withhold_small_counts(self, raw, cell)``. ``self`` is the
    evidence after the rules, ``raw`` the evidence before them, and the result is published.

    Raises
    ------
    TypeError
        ``evidence`` is not an evidence dataclass.
    """
    if not is_dataclass(evidence) or isinstance(evidence, type):
        raise TypeError(f"expected evidence, got {type(evidence).__name__}")
    rules = rules_of(type(evidence))
    left = {
        name: None if rule is None else rule.published(getattr(evidence, name), cell) for name, rule in rules.items()
    }
    published: Any = replace(evidence, **left)
    return published.withhold_small_counts(evidence, cell) if hasattr(published, "withhold_small_counts") else published  # type: ignore[no-any-return]


def settings_withheld(evidence: Any) -> int:
    """Return how many settings of an evidence object are set but not published, without those of evidence nested in
    it.
    """
    cls: Any = type(evidence)
    rules = ((name, rule) for name, rule in rules_of(cls).items() if isinstance(rule, Settings))
    return sum(rule.kind.published(getattr(evidence, name))[1] for name, rule in rules)


_CLAIM = re.compile("|".join(map(re.escape, FORBIDDEN)), re.IGNORECASE)


def without_claims(value: Any) -> Any:
    """Return nested JSON values in which every claim that no report may make (`FORBIDDEN`, such as "anonymous") is
    replaced by "(withheld)", in texts and keys."""
    if isinstance(value, Mapping):
        return {without_claims(key): without_claims(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_claims(part) for part in value]
    if isinstance(value, str) and _CLAIM.search(value):
        for claim in FORBIDDEN:
            value = re.sub(re.escape(claim), "(withheld)", value, flags=re.IGNORECASE)
    return value


def without_folders(value: Any) -> Any:
    """Return nested settings (mappings, lists, strings) with every path in them cut to its last part.

    A name on the hub looks like a relative path and is shortened in the same way.
    """
    if isinstance(value, Mapping):
        return {key: without_folders(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(part) for part in value]
    if isinstance(value, str) and re.search(r"[\\/]|^~|^[A-Za-z]:", value):
        return "…/" + re.split(r"[\\/:]", value.rstrip("\\/"))[-1]
    return value
