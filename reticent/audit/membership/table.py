"""`Attack`: one row says everything of an attack, its texts too.

A family is a module with an immutable table of rows at module level: likelihood attacks in
:mod:`reticent.audit.membership.attacks`, attacks with shadow models in :mod:`reticent.audit.membership.shadow`.
:mod:`reticent.audit.membership.catalogue` is the table of all families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from reticent.core.errors import PolicyError

__all__ = ["Attack", "Need", "require_attacks", "table_of"]


class Need(StrEnum):
    """Inputs of an attack beside the scores of the model under attack."""

    BASE = "base"  # the base model's scores of the same documents
    SIZES = "sizes"  # bytes of each text after zlib
    LOWERCASE = "lowercase"  # the model's scores of the texts in lower case
    HOLDOUT = "holdout"  # both models' scores of documents that were held back from training
    SHADOWS = "shadows"  # scores of shadow models
    POPULATION = "population"  # documents to compare with, which are not attacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack.

    Parameters
    ----------
    name : as in the job's ``audit.attacks`` and in the report
    score : gives a number of each document, float (D,): higher means more likely a member, NaN for nothing to say. Of
        a likelihood attack it takes (target, base, zlib_bytes, lowercase), of one with shadows (shadows, models)
    title : what a reader calls it
    about : what it takes for a sign that a document was trained on; "the model …"
    source : who published it; empty where its definition is ours alone
    needs : what it takes beside the scores of the model under attack
    objectives : of which models it can be computed
    """

    name: str
    score: Callable[..., Any]
    title: str
    about: str
    source: str = ""
    needs: frozenset[Need] = frozenset()
    objectives: frozenset[str] = frozenset({"mlm", "clm"})


def table_of(rows: Iterable[Attack]) -> Mapping[str, Attack]:
    """Return rows by name, in their order; the table cannot be changed."""
    rows = tuple(rows)
    table = {row.name: row for row in rows}
    if len(table) < len(rows):
        raise ValueError("attacks: a name stands twice")
    return MappingProxyType(table)


def require_attacks(names: Iterable[str], table: Mapping[str, Attack]) -> None:
    """Raise `PolicyError` for an attack that the table of a family does not have."""
    if unknown := set(names) - set(table):
        raise PolicyError(f"attacks: unknown attack {sorted(unknown)[0]!r}; expected some of {', '.join(table)}")
