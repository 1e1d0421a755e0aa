"""`Attack`: one row holds everything about an attack, its texts for the report included.

A family is a module with an immutable table of rows at module level: likelihood attacks in
:mod:`reticent.audit.membership.attacks`, attacks with shadow models in :mod:`reticent.audit.membership.shadow`.
:mod:`reticent.audit.membership.asking` is the table of all families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from reticent.core.errors import PolicyError


class Need(StrEnum):
    """Inputs of an attack besides the scores of the model under attack."""

    BASE = "base"  # the base model's scores of the same documents
    SIZES = "sizes"  # bytes of each text after zlib
    LOWERCASE = "lowercase"  # the model's scores of the texts in lower case
    ENDS = "ends"  # the model's scores of the end of each text
    HOLDOUT = "holdout"  # both models' scores of the user-inference holdout
    GENERATED = "generated"  # continuations that the model writes
    PROBES = "probes"  # the model's scores of the texts after copies of them with gaps
    GRADIENTS = "gradients"  # gradients of the loss of each document's ordinary words
    CHECKPOINTS = "checkpoints"  # the scores of earlier checkpoints of the training
    CALIBRATED = "calibrated"  # scores of the base model, trained on what the model writes
    SHADOWS = "shadows"  # scores of shadow models
    POPULATION = "population"  # documents to compare with, which are not attacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One membership attack: its score function, its inputs, and its texts in the report.

    Parameters
    ----------
    name : as in the job's ``audit.attacks`` and in the report
    score : function that returns one number for each document, float (D,): higher means more likely a member, NaN for
        no score. It takes (target, base, zlib_bytes, lowercase) for a likelihood attack, (shadows, models) for an
        attack with shadow models, and arguments of its own for one that prompts the model
    title : the name of the attack in the report
    about : the sign of membership that the attack looks for, as a clause without a full stop
    source : the publication; empty for an attack that is not published
    needs : inputs besides the scores of the model under attack
    is_total : the score of an individual is the sum over their documents, not the mean: a log ratio of likelihoods
    objectives : objectives of the models that it can attack
    """

    name: str
    score: Callable[..., Any]
    title: str
    about: str
    source: str = ""
    needs: frozenset[Need] = frozenset()
    is_total: bool = False
    objectives: frozenset[str] = frozenset({"mlm", "clm"})


def table_of(attacks: Iterable[Attack]) -> Mapping[str, Attack]:
    """Return an immutable mapping from name to attack, in this order; raise `ValueError` if two attacks have the same
    name."""
    attacks = tuple(attacks)
    table = {row.name: row for row in attacks}
    if len(table) < len(attacks):
        raise ValueError("attacks: a name stands twice")
    return MappingProxyType(table)


def require_attacks(names: Iterable[str], table: Mapping[str, Attack]) -> None:
    """Raise `PolicyError` if one of the names is no attack in ``table``."""
    if unknown := set(names) - set(table):
        raise PolicyError(f"attacks: unknown attack {sorted(unknown)[0]!r}; expected some of {', '.join(table)}")
