"""Verdicts on membership results (definitions.md#verdict-on-an-attack): one for every attack, from its controls.

A verdict is "distinguishable" only if the interval lies over chance and no control invalidates the attack. An attack
that finds nothing is "not distinguishable" only if the same attack succeeds on the unprotected twin. Otherwise it has
shown no power, and its number must not be read as safety.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from reticent.audit.membership.names import ON_HOLDOUT, USER_INFERENCE

if TYPE_CHECKING:
    from reticent.audit.evidence.membership import MeasuredAttack
    from reticent.audit.evidence.model import ModelEvidence
    from reticent.audit.stats.estimate import Estimate

__all__ = [
    "CHANCE",
    "DISTINGUISHABLE",
    "INVALID",
    "NO_POWER",
    "QUIET",
    "SHARE",
    "USER_INFERENCE",
    "WITHOUT_COPIES",
    "detectable_auc",
    "holds_chance",
    "is_over_chance",
    "judged",
    "kept_without_copies",
]


# ------------------------------------------------------------------------------------------------------------ left out
#
# Held-out individuals whom an area of membership leaves out, since they hold near-copies of members' documents.
#
# A model knows their text, so they look like members, and the area over all is too small. Without a share s of the
# held-out an area A is (A - s a) / (1 - s), where a, from 0 to 1, is theirs. So at 1 % it moves by a hundredth at
# most, and is not given.


#: Up to this share of the held-out individuals none is left out.
SHARE = 0.01
#: Words for an area without them.
WITHOUT_COPIES = "held-out people with near-copies of members’ documents left out"


def kept_without_copies(codes: np.ndarray, is_member: np.ndarray, copied: np.ndarray | None) -> np.ndarray | None:
    """Return who stays, bool, shape (individuals,); None if near-copies were not looked for, or few hold any.

    Parameters
    ----------
    codes : integer array, shape (individuals,); is_member : bool array of the same shape
    copied : bool array by code, whether a held-out individual holds a near-copy of a member's document
    """
    if copied is None:
        return None
    left_out = ~is_member & copied[codes]
    return ~left_out if np.count_nonzero(left_out) > SHARE * np.count_nonzero(~is_member) else None


INVALID, DISTINGUISHABLE, QUIET, NO_POWER = "invalid", "distinguishable", "not distinguishable", "no power"
#: The area under the ROC curve of an attack without any information.
CHANCE = 0.5
#: Quantiles of the normal distribution for a two-sided test at 5 % that succeeds in 80 % of trials.
TO_DETECT = 1.959964 + 0.841621


def detectable_auc(num_members: int, num_nonmembers: int) -> float | None:
    """Return the area that a test at 5 % over so many individuals finds four times in five; None if a side is empty.

    It follows from the standard error of the area of an attack at chance (Mann-Whitney), sqrt((m + n + 1) / (12 m n)).

    >>> round(detectable_auc(100, 100), 3)
    0.615
    """
    if min(num_members, num_nonmembers) < 1:
        return None
    error = math.sqrt((num_members + num_nonmembers + 1) / (12 * num_members * num_nonmembers))
    return min(CHANCE + TO_DETECT * error, 1.0)


def is_over_chance(auc: Estimate | None) -> bool:
    """Return whether the interval of an area lies over chance; false if its lower end is chance itself."""
    return auc is not None and auc.low is not None and auc.low > CHANCE


def holds_chance(auc: Estimate) -> bool:
    """Return whether the interval of an area contains chance, its ends included; true if there is no interval."""
    return auc.low is None or auc.high is None or auc.low <= CHANCE <= auc.high


def judged(models: Sequence[ModelEvidence]) -> list[ModelEvidence]:
    """Return the models with a verdict and its reason for every attack, from controls among the models themselves.

    The controls belong to the same section and objective. The blind baseline and the attacks on the base model must not
    find members distinguishable. The unprotected twin of the same epoch (or its last) shows whether an attack has
    power.
    """
    result = []
    for model in models:
        own = [m for m in models if (m.model, m.objective) == (model.model, model.objective)]
        base = next((m for m in own if m.recipe == "base"), None)
        twins = [m for m in own if m.recipe == model.objective]
        twin = next((m for m in twins if m.epoch == model.epoch), max(twins, key=lambda m: m.epoch, default=None))
        attacks = {}
        for name, measured in model.membership.items():
            found, why = _verdict(name, model, base, twin)
            attacks[name] = replace(measured, verdict=found, why=why)
        result.append(replace(model, membership=attacks))
    return result


def _verdict(
    name: str, model: ModelEvidence, base: ModelEvidence | None, twin: ModelEvidence | None
) -> tuple[str, str]:
    measured = model.membership[name]
    invalid = next(_invalid(name, measured, base), None)
    if invalid:
        return INVALID, invalid
    auc = measured.auc
    if auc.value is None or auc.low is None:
        return NO_POWER, "there is no interval"
    if is_over_chance(auc):
        return DISTINGUISHABLE, f"the interval lies over {CHANCE}"
    if model is not base and is_over_chance(measured.auc_without_copies):
        return DISTINGUISHABLE, f"the interval lies over {CHANCE}, {WITHOUT_COPIES}"
    if model is base:
        return QUIET, "as it should be: it saw no individual"
    alone = auc.num_resampled / auc.n if auc.n else 1.0  # households are fewer than individuals
    least = detectable_auc(*(round(alone * (n or 0)) for n in (measured.num_members, measured.num_nonmembers)))
    found = "" if least is None else f"; over so many people an area of {least:.2f} would be found"
    if twin is None:
        return NO_POWER, f"no unprotected model shows that this attack finds anything{found}"
    if not is_over_chance(_area(twin, name)):
        return NO_POWER, f"members are not distinguishable by it in the unprotected model either{found}"
    return QUIET, f"the same attack succeeds on the unprotected model{found}"


def _invalid(name: str, measured: MeasuredAttack, base: ModelEvidence | None) -> Iterator[str]:
    if base is None:
        return
    # The baseline of the documents that the attack scores.
    blind = base.blind_holdout if name in ON_HOLDOUT else base.blind
    if blind is not None and not holds_chance(blind.auc):
        yield "the two sides are distinguishable by words alone, without any model"
    control = measured.control or _area(base, name)  # shadows attack both at once
    if control is not None and not holds_chance(control):
        yield "they are distinguishable in the base model too, which saw no individual"


def _area(model: ModelEvidence, name: str) -> Estimate | None:
    found = model.membership.get(name)
    return None if found is None else found.auc
