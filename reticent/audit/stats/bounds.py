"""Ends of intervals that no bootstrap gives: of rates that few individuals make, of differences, of areas over few.

Cost: a few numbers for each individual.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from reticent.audit.stats.binomial import LEVEL, clopper_pearson

if TYPE_CHECKING:
    from reticent.audit.stats.estimate import Estimate

__all__ = [
    "FEW_ON_A_SIDE",
    "LEAST_SHARE",
    "TAILS",
    "certain_auc_bounds",
    "far_ends",
    "is_certain",
    "num_rare",
    "score_auc_bounds",
    "skewed_ends",
    "square_and_add",
    "wider",
]

#: A bootstrap of an area is too narrow if a side has fewer individuals than this.
FEW_ON_A_SIDE = 20
#: Items of one more individual that are rare, at least, as a share of those of a typical one: those who hold most rare
#: items may all be outside of the sample. Simulated (`fixtures.crowded`): with 0 the far end of a sampled
#: share misses in up to 20 of 100 draws, with 1/2 in 4, with 2/3 in 3.5, with 3/4 in 2.8; with 1 the interval is a
#: tenth wider and misses in up to 1.8. Of a rate: tests/audit/stats/test_crowded_rates.py.
LEAST_SHARE = 0.75
#: Shares of the draws beyond either end of an interval.
TAILS = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]


def far_ends(
    numerator: np.ndarray, denominator: np.ndarray, *, least_share: float = LEAST_SHARE
) -> tuple[float, float]:
    """Return the end of a rate's interval that is away from 0 or 1, whichever is nearer, and the rate as the other end.

    It is that of Clopper and Pearson at the effective sample size [@korn1998], with one individual more, as an exact
    interval has one event more: as large as the individual of an average item, and as much over the rate as those in
    whom the rare items are, and at least by ``least_share`` of its items. Of individuals with one item
    each it is Clopper-Pearson's, up to 5 % of its distance.
    """
    value = float(numerator.sum() / denominator.sum())
    share, step, variance = _rare(numerator, denominator, least_share)
    upper = (share + step) / (1 + step)
    size = upper * (1 - upper) * (1 + step) ** 2 / (variance + step**2) - 1
    far = float(stats.beta.ppf(TAILS[1], upper * size, (1 - upper) * size)) if size > 0 else 1.0
    return 1 - far if value >= 0.5 else value, far if value <= 0.5 else value


def _rare(
    numerator: np.ndarray, denominator: np.ndarray, least_share: float = LEAST_SHARE
) -> tuple[float, float, float]:
    """Return the rate or all but it, whichever is rarer, the items of one more individual, and the rate's variance."""
    total, items = denominator.sum(), np.abs(numerator)
    share = float(items.sum() / total)
    if share > 0.5:
        share, items = 1 - share, denominator - items
    crowd = float((items**2 / denominator).sum() / items.sum()) - share if items.any() else 0.0
    step = max(crowd, min(least_share, 1 - share)) * float((denominator**2).sum() / total**2)
    return share, step, float(((items - share * denominator) ** 2).sum() / total**2)


def skewed_ends(numerator: np.ndarray, denominator: np.ndarray) -> tuple[float, float]:
    """Return the ends of Student's interval of a mean without a limit, moved towards the longer tail by the first term
    of its expansion in the skewness. A percentile bootstrap of few has the tails of a normal distribution at best, and
    of exposures, whose tail is that of an exponential, its upper end misses 12 of 100 times over 8 of them.
    """
    n, value = len(numerator), float(numerator.sum() / denominator.sum())
    rest = (numerator - value * denominator) / denominator.mean()
    largest = float(np.abs(rest).max())
    if largest == 0:
        return value, value
    scaled = rest / largest  # likelihoods may be so small that their powers are 0
    error = largest * float(np.sqrt((scaled**2).sum() / (n * (n - 1))))
    skewness = float((scaled**3).mean() / (scaled**2).mean() ** 1.5)
    reach = float(stats.t.ppf(TAILS[1], n - 1))
    middle = skewness * (1 + 2 * reach**2) / (6 * math.sqrt(n))
    return value + error * (middle - reach), value + error * (middle + reach)


def num_rare(numerator: np.ndarray, denominator: np.ndarray) -> float:
    """Return how many individuals alike would make a rate (or all but it) as uncertain as it and one more make it."""
    share, step, variance = _rare(numerator, denominator)
    return share**2 * (1 - share) / (variance + step**2)


def wider(ends: tuple[float, float], others: tuple[float, float]) -> tuple[float, float]:
    """Return the least interval that holds both."""
    return min(float(ends[0]), others[0]), max(float(ends[1]), others[1])


def square_and_add(a: Estimate, b: Estimate) -> tuple[float, float]:
    """Return the interval of a difference from those of both sides [@zou2008]."""
    a_value, a_low, a_high, b_value, b_low, b_high = (
        end for end in (a.value, a.low, a.high, b.value, b.low, b.high) if end is not None
    )
    value = a_value - b_value
    return value - math.hypot(a_value - a_low, b_high - b_value), value + math.hypot(a_high - a_value, b_value - b_low)


def score_auc_bounds(
    value: float, num_members: int, num_nonmembers: int, scores: np.ndarray, reach: float
) -> tuple[float, float]:
    """Return the areas that lie ``reach`` of their own standard errors from ``value`` [@newcombe2006, method 5].

    The standard error at 0.5 is that of Mann and Whitney's test, so no side is too small for it. ``scores`` are those
    of both sides: ties make it smaller, as in that test.
    """
    _, ties = np.unique(scores, return_counts=True)
    untied = 1 - float((ties.astype(np.float64) ** 3 - ties).sum()) / max(len(scores) ** 3 - len(scores), 1)
    others = (num_members + num_nonmembers) / 2 - 1

    def is_inside(area: float) -> bool:
        spread = area * (1 - area) * (1 + others * ((1 - area) / (2 - area) + area / (1 + area)))
        return (value - area) ** 2 <= reach**2 * untied * spread / (num_members * num_nonmembers)

    ends = []
    for end in (0.0, 1.0):
        inside, outside = value, end
        for _ in range(40):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if is_inside(middle) else (inside, middle)
        ends.append(inside)
    return ends[0], ends[1]


def is_certain(value: float, members: np.ndarray, nonmembers: np.ndarray) -> bool:
    """Return whether an area is the same in every draw: all pairs of the sorted scores have one order, or are tied."""
    return value in (0.0, 1.0) or members[0] == members[-1] == nonmembers[0] == nonmembers[-1]


def certain_auc_bounds(value: float, num_pairs: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of an area of 0, 1 or 0.5, where all of ``num_pairs`` disjoint pairs have the same order or
    are tied.
    """
    bound = clopper_pearson(0, num_pairs, level=level, one_sided=value in (0.0, 1.0))[1]
    if value in (0.0, 1.0):
        return (0.0, bound) if value == 0 else (1 - bound, 1.0)
    return value - bound / 2, value + bound / 2
