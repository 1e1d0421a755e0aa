"""Readings of one model's evidence: what it learned, the attack that does best, and what may not be concluded."""

from __future__ import annotations

from typing import Any

from reticent.audit.gates import NO_POWER
from reticent.audit.membership.validity import INVALID, is_over_chance
from reticent.audit.report.figure import has_value
from reticent.audit.report.plots import LITTLE
from reticent.audit.report.summary import UTILITY

__all__ = [
    "Model",
    "broken_rule",
    "excess_of",
    "is_distinguishable",
    "leaks_more",
    "learned_little",
    "only_invalid",
    "strongest_attack",
    "utility_of",
    "without_power",
]

Model = dict[str, Any]


def excess_of(model: Model) -> tuple[str, dict[str, Any]] | None:
    """The part of the identifiers that is learned most surely; all of them where none is learned measurably."""
    parts = {"both": "identifiers", "direct": "direct identifiers", "indirect": "indirect identifiers"}
    rows = [(what, model.get("excess", {}).get(part, {}).get("excess")) for part, what in parts.items()]
    measured = [(what, excess) for what, excess in rows if has_value(excess) and excess["low"] is not None]
    learned = [row for row in measured if row[1]["low"] > 0]
    return max(learned, key=lambda row: row[1]["low"]) if learned else next(iter(measured), None)


def leaks_more(model: Model) -> bool:
    excess = excess_of(model)
    return excess is not None and excess[1]["low"] > 0


def strongest_attack(model: Model, *, even_invalid: bool = False) -> tuple[str, dict[str, Any]] | None:
    """The attack whose interval starts highest, with its area under the curve: the worst case, not the average."""
    attacks = {n: a for n, a in (model.get("membership") or {}).items() if even_invalid or a.get("verdict") != INVALID}
    best = model.get("best_attack")
    if best and best["attack"] in attacks and has_value(best["auc"]):  # its interval holds for the best of several
        return best["attack"], best["auc"]
    # The best of those that are left is picked too: its interval is of those that hold at once.
    ends = (best or {}).get("intervals") or {}
    measured = [
        (name, {**attack["auc"], **dict(zip(("low", "high"), ends.get(name, ()), strict=False))})
        for name, attack in attacks.items()
        if has_value(attack["auc"])
    ]
    return max(measured, key=lambda row: (row[1]["low"], row[1]["value"]), default=None)


def is_distinguishable(model: Model) -> bool:
    attack = strongest_attack(model)
    return attack is not None and is_over_chance(attack[1])


def only_invalid(model: Model) -> bool:
    """Whether no attack on it says anything about membership, since the two sides differ without it."""
    attacks = (model.get("membership") or {}).values()
    return bool(attacks) and all(attack.get("verdict") == INVALID for attack in attacks)


def without_power(model: Model) -> bool:
    """Whether no attack on it has shown that it would find an individual: a quiet one then says nothing."""
    verdicts = {attack.get("verdict") for attack in (model.get("membership") or {}).values()} - {INVALID}
    return verdicts == {NO_POWER}


def utility_of(model: Model) -> float | None:
    measured = model["utility"]["heldout"].get(UTILITY[model["objective"]])
    return measured["value"] if has_value(measured) else None


def learned_little(last: dict[str, Model]) -> bool:
    values = [u for m in last.values() if (u := utility_of(m)) is not None]
    return bool(values) and max(values) < LITTLE


def broken_rule(model: Model) -> bool:
    return bool((model.get("ledger") or {}).get("violations"))
