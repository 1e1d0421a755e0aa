"""Attacks on a split that was given, between people who are alike without the model
(definitions.md#between-people-who-are-alike).

Where words, length or dates separate the two sides, an attack may find no more than these. Members and others are put
into strata, five at most, by the log-odds of membership from these features together [@rosenbaum1983; @cochran1968],
and compared within each. Unmeasured differences, such as who wrote the notes, are not matched: the area decides
nothing.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from reticent.audit.evidence.membership import Matched
from reticent.audit.stats.estimate import Estimate
from reticent.audit.stats.intervals import Bootstrap, auc_estimate

NUM_STRATA = 5
#: Units for each stratum, and the fewest scored individuals of each side in it: in smaller strata the sides do not
#: overlap.
UNITS, SMALLEST_SIDE = 40, 10


def strata_of(
    all_codes: np.ndarray, codes: np.ndarray, scores: np.ndarray, units: np.ndarray | None = None
) -> np.ndarray:
    """Return the stratum of each individual in ``all_codes``, int64: up to `NUM_STRATA` quantile groups by score, with
    at least `UNITS` units (individuals or households) each; -1 without a score or with too few units.

    Parameters
    ----------
    all_codes, codes : integer arrays, ascending, the second among the first
    scores : float array, one of each of ``codes``
    units : household of each individual (by code), which has one stratum; None: each is one
    """
    strata = np.full(len(all_codes), -1)
    _, unit = np.unique(codes if units is None else np.asarray(units)[codes], return_inverse=True)
    num = min(NUM_STRATA, (int(unit.max(initial=-1)) + 1) // UNITS)
    if num > 1:
        means = np.bincount(unit.reshape(-1), scores) / np.bincount(unit.reshape(-1))
        bounds = np.quantile(means, np.arange(1, num) / num)
        strata[np.searchsorted(all_codes, codes)] = np.searchsorted(bounds, means, side="left")[unit.reshape(-1)]
    return strata


def matched_area(
    scores: np.ndarray,
    codes: np.ndarray,
    is_member: np.ndarray,
    strata: np.ndarray,
    **bootstrap: Unpack[Bootstrap],
) -> Matched | None:
    """Return the AUC of an attack's scores among individuals of the same stratum: the mean of the strata's AUCs,
    weighted by members. None if no stratum has enough individuals of both sides.

    The interval combines those of the strata by square-and-add [@zou2008].

    Parameters
    ----------
    scores : float array, shape (individuals,), NaN for none
    codes, is_member, strata : arrays of the same shape
    """
    areas: list[Estimate] = []
    sizes: list[tuple[int, int]] = []
    for number in range(NUM_STRATA):
        here = (strata == number) & ~np.isnan(scores)
        members, others = np.flatnonzero(here & is_member), np.flatnonzero(here & ~is_member)
        if min(len(members), len(others)) >= SMALLEST_SIDE:
            of_sides = codes[members], codes[others]
            areas.append(auc_estimate(scores[members], scores[others], of_sides, **bootstrap))
            sizes.append((len(members), len(others)))
    if not areas:
        return None
    num_members, num_nonmembers = (sum(of_side) for of_side in zip(*sizes, strict=True))
    weights = np.array([num / num_members for num, _ in sizes])
    value, low, high = np.array([(area.value, area.low, area.high) for area in areas], dtype=np.float64).T
    middle, below, above = float(weights @ value), weights * (value - low), weights * (high - value)
    auc = Estimate(
        value=middle,
        low=max(middle - float(np.linalg.norm(below)), 0.0),
        high=min(middle + float(np.linalg.norm(above)), 1.0),
        n=num_members + num_nonmembers,
        num_households=sum(area.num_households or 0 for area in areas) or None,
        method="square-and-add of the strata's intervals",
    )
    return Matched(auc=auc, num_strata=len(areas), num_members=num_members, num_nonmembers=num_nonmembers)
