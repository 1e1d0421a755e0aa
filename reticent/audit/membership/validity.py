"""What a membership result may say (definitions.md#verdict-on-an-attack): a verdict on every attack, from its controls.

A verdict is "told apart" only where the interval lies over 0.5 and nothing invalidates it. An attack that finds
nothing is "not told apart" only where the same attack succeeds on the unprotected twin: else it has shown no power, and
its number must not be read as safety.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["INVALID", "NO_POWER", "QUIET", "TOLD_APART", "USER_INFERENCE", "detectable_auc", "judged"]

INVALID, TOLD_APART, QUIET, NO_POWER = "invalid", "told apart", "not told apart", "no power"
#: The attack on fresh documents: it alone looks at others than the rest, so it has no row in `membership.ATTACKS`.
USER_INFERENCE = "user_inference"
#: Quantiles of the normal distribution for a two-sided test at 5 % that succeeds in 80 % of trials.
TO_DETECT = 1.959964 + 0.841621


def detectable_auc(num_members: int, num_nonmembers: int) -> float | None:
    """Return the area that a test at 5 % over so many individuals finds four times in five, None with nobody.

    From the standard error of the area of an attack that guesses (Mann-Whitney), sqrt((m + n + 1) / (12 m n)).

    >>> round(detectable_auc(100, 100), 3)
    0.615
    """
    if min(num_members, num_nonmembers) < 1:
        return None
    error = math.sqrt((num_members + num_nonmembers + 1) / (12 * num_members * num_nonmembers))
    return min(0.5 + TO_DETECT * error, 1.0)


def judged(models: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the models with a verdict and its reason on every attack, from controls among the models themselves.

    Of each section and objective: the blind baseline and the base model's own attacks must not tell members apart,
    and the unprotected twin of the same epoch (or its last) says whether an attack has power.
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
    if auc["low"] > 0.5:
        return TOLD_APART, "the interval lies over 0.5"
    if model is base:
        return QUIET, "as it should be: it saw nobody"
    least = detectable_auc(measured["num_members"], measured["num_nonmembers"])
    found = "" if least is None else f"; over so many people an area of {least:.2f} would be found"
    if twin is None:
        return NO_POWER, f"no unprotected model shows that this attack finds anything{found}"
    positive = _area(twin, name)
    if positive is None or positive["low"] is None or positive["low"] <= 0.5:
        return NO_POWER, f"it does not tell members apart in the unprotected model either{found}"
    return QUIET, f"the same attack succeeds on the unprotected model{found}"


def _invalid(name: str, measured: dict[str, Any], base: dict[str, Any] | None) -> Iterator[str]:
    if base is None:
        return
    # Of the documents that the attack looks at.
    blind = (base.get("blind_fresh" if name == USER_INFERENCE else "blind") or {}).get("auc")
    if blind is not None and not _holds_half(blind):
        yield "words alone tell the two sides apart, without any model"
    control = measured.get("control") or _area(base, name)  # shadows attack the base with the model, not by itself
    if control is not None and not _holds_half(control):
        yield "the base model, which saw nobody, tells them apart too"


def _area(model: dict[str, Any], name: str) -> dict[str, Any] | None:
    return ((model.get("membership") or {}).get(name) or {}).get("auc")


def _holds_half(auc: dict[str, Any]) -> bool:
    return auc["low"] is None or auc["low"] <= 0.5 <= auc["high"]
