"""Verdicts on membership results (definitions.md#verdict-on-an-attack): one for every attack, from its controls.

A verdict is "distinguishable" only if the interval of an area, or of what it is more than that of its control, leaves
chance out, on either side. An attack that finds nothing is "not distinguishable" only if the same attack succeeds on
the unprotected twin. Otherwise it has shown no power, and its number must not be read as safety. Where the split was
given and the sides differ by themselves, an attack without shadow models shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from reticent.audit.evidence.membership import KindMembership, MeasuredAttack
from reticent.audit.evidence.model import ModelEvidence
from reticent.audit.membership.names import DIFFERENCES, ON_HOLDOUT, USER_INFERENCE
from reticent.audit.stats.estimate import CHANCE, Estimate, simultaneous

__all__ = [
    "CHANCE",
    "DISTINGUISHABLE",
    "FAULT",
    "INVALID",
    "NO_POWER",
    "OTHER_WAY",
    "OVER_BASE",
    "QUIET",
    "SHARE",
    "USER_INFERENCE",
    "WITHOUT_COPIES",
    "detectable_auc",
    "holds_chance",
    "index_mask_by_code",
    "is_over_chance",
    "keep_without_near_copies",
    "verdict_by_interval",
    "with_attack_verdicts",
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
#: Description of 0.5 plus the difference of an area and that of its control.
OVER_BASE = "more than without training on them"
#: Of an attack that is a difference to the base model already, where no shadow models are its control.
NO_CONTROL = "; a difference to the base model, it has no control without shadow models"
#: Description of an area without these individuals.
WITHOUT_COPIES = "held-out people with near-copies of members’ documents left out"


def keep_without_near_copies(
    codes: np.ndarray, is_member: np.ndarray, has_near_copy: np.ndarray | None
) -> np.ndarray | None:
    """Return a mask of all individuals but the held-out ones who hold near-copies of members' documents, bool
    (individuals,). None if near-copies were not searched for, or at most a share `SHARE` of them hold any.

    Parameters
    ----------
    codes : integer array, shape (individuals,); is_member : bool array of the same shape
    has_near_copy : bool array by code, whether a held-out individual holds a near-copy of a member's document
    """
    if has_near_copy is None:
        return None
    left_out = ~is_member & has_near_copy[codes]
    return ~left_out if np.count_nonzero(left_out) > SHARE * np.count_nonzero(~is_member) else None


def index_mask_by_code(codes: np.ndarray, is_kept: np.ndarray | None) -> np.ndarray | None:
    """Return ``is_kept``, a mask in the order of the ascending ``codes`` of individuals, as a bool array with an entry
    for each possible code, True for codes that are absent; None stays None."""
    if is_kept is None:
        return None
    found = np.ones(int(codes[-1]) + 1 if len(codes) else 0, dtype=bool)
    found[codes] = is_kept
    return found


#: Verdicts on an attack. ``INVALID``: the sides of a split that was given differ, so its number says nothing.
INVALID, DISTINGUISHABLE, QUIET, NO_POWER = "not shown", "distinguishable", "not distinguishable", "no power"
OTHER_WAY = "distinguishable, the other way round"
#: Why a difference of the sides of a given split says nothing.
IN_BASE = "they are distinguishable in the base model too, which was not trained on these members"
WITHOUT_BASE = "there is no base model, and the words alone may tell as much"
#: A blind baseline as rare as this by chance is a fault of the run.
FAULT = 1e-3
#: Quantiles of the normal distribution for a two-sided test at 5 % that succeeds in 80 % of trials.
TO_DETECT = 1.959964 + 0.841621


def detectable_auc(num_members: int, num_nonmembers: int) -> float | None:
    """Return the smallest AUC that a test at the 5 % level would detect with 80 % power over so many members and
    non-members; None if there are no individuals on one side.

    It follows from the standard error of the area of an attack at chance (Mann-Whitney), sqrt((m + n + 1) / (12 m n)).

    >>> round(detectable_auc(100, 100), 3)
    0.615
    """
    if min(num_members, num_nonmembers) < 1:
        return None
    error = math.sqrt((num_members + num_nonmembers + 1) / (12 * num_members * num_nonmembers))
    return min(CHANCE + TO_DETECT * error, 1.0)


def is_over_chance(auc: Estimate | None) -> bool:
    """Whether the interval of an AUC lies above 0.5; False if its lower end is exactly 0.5."""
    return auc is not None and auc.low is not None and auc.low > CHANCE


def holds_chance(auc: Estimate) -> bool:
    """Whether the interval of an AUC contains 0.5, at its ends too; True if there is no interval."""
    return auc.low is None or auc.high is None or auc.low <= CHANCE <= auc.high


def verdict_by_interval(auc: Estimate | None) -> str | None:
    """Return the verdict on a membership attack by the interval of its AUC: `DISTINGUISHABLE` if it lies above 0.5,
    `OTHER_WAY` if below, None if it contains 0.5 or is missing."""
    if auc is None or holds_chance(auc):
        return None
    return DISTINGUISHABLE if is_over_chance(auc) else OTHER_WAY


def with_attack_verdicts(models: Sequence[ModelEvidence]) -> list[ModelEvidence]:
    """Return the models with a verdict, and its reason, on every membership attack. It depends on the attack's interval
    and on its controls: a base model and an unprotected twin, found among ``models``.

    The controls belong to the same section and objective. Of a split that reticent drew, a shift of the base model is
    chance, which the interval holds already. Where the split was given, an attack without shadow models says nothing if
    words alone or the base model separate the sides. The unprotected twin of the same epoch (or its last) shows whether
    an attack has power.
    """
    result = []
    for model in models:
        own = [m for m in models if (m.model, m.objective) == (model.model, model.objective)]
        base = next((m for m in own if m.recipe == "base"), None)
        twins = [m for m in own if m.is_plain]
        twin = next((m for m in twins if m.epoch == model.epoch), max(twins, key=lambda m: m.epoch, default=None))
        attacks = {}
        for name, measured in model.membership.items():
            found, why = _verdict(name, model, base, twin)
            attacks[name] = replace(measured, verdict=found, why=why)
        kinds = {
            kind: replace(
                found,
                why=why_sides_differ(model, base, partial(_kind_aucs, kind))
                or _why_unproven_without_base(found, model, base),
            )
            for kind, found in (model.by_kind or {}).items()
        }
        blind = base if model.start is None else model  # of the words; of the labels
        fault = fault_of_split(blind) if blind is not None and (blind is not model or model.start) else None
        result.append(
            replace(
                model,
                membership=attacks,
                by_kind=kinds or model.by_kind,
                fault=fault,
                sides_differ=why_sides_differ(model, base, lambda control: [_auc_of(control, "loss")])
                or _why_rates_invalid(model, base),
            )
        )
    return result


def _why_rates_invalid(model: ModelEvidence, base: ModelEvidence | None) -> str | None:
    """Return the reason why leak rates prove nothing, for members that were listed and not drawn at random: the base
    model already leaks measurably more from one side. None if they are valid."""
    if base is None or not model.split_given or model is base:
        return None
    both = (base.excess or {}).get("both")
    rate = both.excess if both else None
    if rate is None or rate.low is None or rate.high is None or rate.low <= 0.0 <= rate.high:
        return None
    return IN_BASE


def _why_unproven_without_base(kind: KindMembership, model: ModelEvidence, base: ModelEvidence | None) -> str | None:
    """Return the reason why attacks by one kind of word prove nothing: the members were given, there is no base model,
    and no attack's AUC differs from that of words without any model. None if one of these is not so."""
    if base is not None or not model.split_given:
        return None
    return None if any(_beats_blind(attack.auc, model) for attack in kind.attacks.values()) else WITHOUT_BASE


def _beats_blind(auc: Estimate, model: ModelEvidence) -> bool:
    """Return whether an attack's AUC interval lies entirely above or below that of the blind baseline (members told
    from others by words, without a model)."""
    blind = model.blind and model.blind.auc
    if not blind or blind.low is None or blind.high is None or auc.low is None or auc.high is None:
        return False
    return auc.low > blind.high or auc.high < blind.low


def fault_of_split(base: ModelEvidence) -> str | None:
    """Return the reason why the run must be faulty: members and others were drawn at random, but differ so much in
    words, length or dates that only one random draw in a thousand would. None if they do not."""
    for blind in (base.blind, base.blind_holdout):
        if not base.split_given and blind and blind.p_value is not None and blind.p_value < FAULT:
            return f"{blind.by or 'words'} alone tell the two sides, which one run in a thousand does by chance"
    return None


def why_sides_differ(
    model: ModelEvidence, base: ModelEvidence | None, controls: Callable[[ModelEvidence], Iterable[Estimate | None]]
) -> str | None:
    """Return the reason why attacks without shadow models prove nothing for a given list of members: members and others
    differ even without the model, in their words or under the base model. None if they do not.

    Parameters
    ----------
    controls : areas of the base model; without one the words alone are the control
    """
    if not model.split_given or model is base:
        return None
    blind = (base or model).blind
    if blind is not None and not holds_chance(blind.auc):
        return f"the two sides are distinguishable by {blind.by or 'words'} alone, without any model"
    if base is not None and any(area is not None and not holds_chance(area) for area in controls(base)):
        return IN_BASE
    return None


def _kind_aucs(kind: str, base: ModelEvidence) -> list[Estimate]:
    """Return the AUCs of the attacks on a base model by one kind of word (such as "rare")."""
    found = (base.by_kind or {}).get(kind)
    return [attack.auc for attack in found.attacks.values()] if found else []


def _verdict(
    name: str, model: ModelEvidence, base: ModelEvidence | None, twin: ModelEvidence | None
) -> tuple[str, str]:
    """Return (verdict, reason) on one attack on a model: whether it tells members from others and whether its result is
    valid, with the base model and the unprotected twin as controls."""
    measured = model.membership[name]
    shadows = measured.num_shadows is not None
    if (why := None if shadows else why_sides_differ(model, base, partial(_control_aucs, name, measured))) is not None:
        return INVALID, why
    auc, num_families = measured.auc, 1
    if model.split_given and not shadows and model is not base:
        auc, num_families = _simultaneous_auc(name, model, auc), 2  # areas, and areas over the base
    if auc.value is None or auc.low is None:
        return NO_POWER, "there is no interval"
    if base is None and model.split_given and verdict_by_interval(auc) and not _beats_blind(auc, model):
        return INVALID, WITHOUT_BASE
    without = NO_CONTROL if measured.over_base is None and name in DIFFERENCES else ""
    if told := verdict_by_interval(auc):
        return told, f"the interval lies {'over' if told == DISTINGUISHABLE else 'under'} {CHANCE}{without}"
    if model is not base:
        for area, words in ((measured.over_base, OVER_BASE), (measured.auc_without_copies, WITHOUT_COPIES)):
            if told := verdict_by_interval(area and simultaneous(area, num_families)):
                side = "over" if told == DISTINGUISHABLE else "under"
                return told, f"the interval lies {side} {CHANCE}, {words}"
    if model is base:
        return QUIET, "as it should be: it was not trained on these members"
    alone = auc.num_resampled / auc.n if auc.n else 1.0  # households are fewer than individuals
    least = detectable_auc(*(round(alone * (n or 0)) for n in (measured.num_members, measured.num_nonmembers)))
    found = "" if least is None else f"; over so many people an area of {least:.2f} would be found"
    if twin is None:
        return NO_POWER, f"no unprotected model shows that this attack finds anything{found}{without}"
    if not verdict_by_interval(_auc_of(twin, name)):
        return NO_POWER, f"members are not distinguishable by it in the unprotected model either{found}{without}"
    return QUIET, f"the same attack succeeds on the unprotected model{found}{without}"


def _simultaneous_auc(name: str, model: ModelEvidence, auc: Estimate) -> Estimate:
    """Return this attack's AUC with an interval that holds simultaneously for all attacks and for their excesses over
    their controls."""
    low, high = ((model.best_attack and model.best_attack.intervals) or {}).get(name, (auc.low, auc.high))
    return simultaneous(replace(auc, low=low, high=high), 2)


def _control_aucs(name: str, measured: MeasuredAttack, base: ModelEvidence) -> Iterator[Estimate | None]:
    """Yield the AUCs that must be 0.5 for the attack to be valid: that of its control or, without one, of the same
    attack on the base model; for an attack on holdout documents also that of their words without a model."""
    if name in ON_HOLDOUT and base.blind_holdout is not None:
        yield base.blind_holdout.auc
    yield measured.control or _auc_of(base, name) or _auc_of(base, "loss")


def _auc_of(model: ModelEvidence, name: str) -> Estimate | None:
    """Return the AUC of a model's attack by name; None if it was not made."""
    found = model.membership.get(name)
    return None if found is None else found.auc
