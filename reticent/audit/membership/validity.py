"""Verdicts on membership results (definitions.md#verdict-on-an-attack): one for every attack, from its controls.

A verdict is "distinguishable" only where the interval lies over chance and nothing invalidates it. An attack that finds
nothing is "not distinguishable" only where the same attack succeeds on the unprotected twin: else it has shown no
power, and its number must not be read as safety.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reticent.audit.membership.names import USER_INFERENCE

__all__ = [
    "CHANCE",
    "DISTINGUISHABLE",
    "INVALID",
    "NO_POWER",
    "QUIET",
    "USER_INFERENCE",
    "detectable_auc",
    "holds_chance",
    "is_over_chance",
    "judged",
]

INVALID, DISTINGUISHABLE, QUIET, NO_POWER = "invalid", "distinguishable", "not distinguishable", "no power"
#: The area under the ROC curve of an attack that knows nothing.
CHANCE = 0.5
#: Quantiles of the normal distribution for a two-sided test at 5 % that succeeds in 80 % of trials.
TO_DETECT = 1.959964 + 0.841621


def detectable_auc(num_members: int, num_nonmembers: int) -> float | None:
    """Return the area that a test at 5 % over so many individuals finds four times in five, None without individuals.

    From the standard error of the area of an attack at chance (Mann-Whitney), sqrt((m + n + 1) / (12 m n)).

    >>> round(detectable_auc(100, 100), 3)
    0.615
    """
    if min(num_members, num_nonmembers) < 1:
        return None
    error = math.sqrt((num_members + num_nonmembers + 1) / (12 * num_members * num_nonmembers))
    return min(CHANCE + TO_DETECT * error, 1.0)


def is_over_chance(auc: Mapping[str, Any] | None) -> bool:
    """Return whether the interval of an area lies over chance; not where its lower end is chance itself."""
    return auc is not None and auc["low"] is not None and bool(auc["low"] > CHANCE)


def holds_chance(auc: Mapping[str, Any]) -> bool:
    """Return whether the interval of an area holds chance, its ends included; so does one that is missing."""
    return auc["low"] is None or bool(auc["low"] <= CHANCE <= auc["high"])


def judged(models: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the models with a verdict and its reason on every attack, from controls among the models themselves.

    Of each section and objective: the blind baseline and the base model's own attacks must not find members
    distinguishable, and the unprotected twin of the same epoch (or its last) says whether an attack has power.
    """
    result = []
    for model in models:
        own = [m for m in models if (m.get("model"), m["objective"]) == (model.get("model"), model["objective"])]
        base = next((m for m in own if m["recipe"] == "base"), None)
        twins = [m for m in own if m["recipe"] == model["objective"]]
        twin = next((m for m in twins if m["epoch"] == model["epoch"]), max(twins, key=_epoch, default=None))
        attacks = {
            name: measured | dict(zip(("verdict", "why"), _verdict(name, model, base, twin), strict=True))
            for name, measured in (model.get("membership") or {}).items()
        }
        result.append({**model, "membership": attacks})
    return result


def _epoch(model: dict[str, Any]) -> int:
    return int(model["epoch"])


def _verdict(
    name: str, model: dict[str, Any], base: dict[str, Any] | None, twin: dict[str, Any] | None
) -> tuple[str, str]:
    measured = model["membership"][name]
    invalid = next(_invalid(name, measured, base), None)
    if invalid:
        return INVALID, invalid
    auc = measured["auc"]
    if auc["value"] is None or auc["low"] is None:
        return NO_POWER, "there is no interval"
    if is_over_chance(auc):
        return DISTINGUISHABLE, f"the interval lies over {CHANCE}"
    if model is base:
        return QUIET, "as it should be: it saw no individual"
    least = detectable_auc(measured["num_members"], measured["num_nonmembers"])
    found = "" if least is None else f"; over so many people an area of {least:.2f} would be found"
    if twin is None:
        return NO_POWER, f"no unprotected model shows that this attack finds anything{found}"
    if not is_over_chance(_area(twin, name)):
        return NO_POWER, f"members are not distinguishable by it in the unprotected model either{found}"
    return QUIET, f"the same attack succeeds on the unprotected model{found}"


def _invalid(name: str, measured: dict[str, Any], base: dict[str, Any] | None) -> Iterator[str]:
    if base is None:
        return
    # Of the documents that the attack looks at.
    blind = (base.get("blind_fresh" if name == USER_INFERENCE else "blind") or {}).get("auc")
    if blind is not None and not holds_chance(blind):
        yield "the two sides are distinguishable by words alone, without any model"
    control = measured.get("control") or _area(base, name)  # shadows attack the base with the model, not by itself
    if control is not None and not holds_chance(control):
        yield "they are distinguishable in the base model too, which saw no individual"


def _area(model: dict[str, Any], name: str) -> dict[str, Any] | None:
    return ((model.get("membership") or {}).get(name) or {}).get("auc")
