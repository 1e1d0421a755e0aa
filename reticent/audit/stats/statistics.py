"""Statistics: rates, differences of rates, and their intervals, with the individual as the unit.

Documents of one individual are not independent, so every interval resamples individuals, or households where the split
keeps these together (:mod:`reticent.audit.stats.clusters`). A zero is never shown without its upper bound. Areas under
the ROC curve stand in :mod:`reticent.audit.stats.areas`.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from reticent.audit.stats.binomial import LEVEL, clopper_pearson
from reticent.audit.stats.bounds import (
    LEAST_SHARE,
    TAILS,
    far_ends,
    num_rare,
    skewed_ends,
    square_and_add,
    wider,
)
from reticent.audit.stats.clusters import (
    Bootstrap,
    cluster_sums,
    clusters_of,
    iter_resamples,
)
from reticent.audit.stats.estimate import BOOTSTRAP, EXACT, Estimate

__all__ = [
    "Bootstrap",
    "Estimate",
    "clopper_pearson",
    "exposure",
    "one_run_epsilon",
    "ratio_difference",
    "ratio_estimate",
    "ratio_estimates",
]

UNCHANGED = "Clopper-Pearson over individuals, of no change"
EQUAL = "Clopper-Pearson over individuals, of equal rates"
#: A bootstrap of a difference is too narrow if fewer individuals than this make one of its rates.
FEW = 10
#: A bootstrap of a mean without a limit is too narrow over fewer than this.
FEW_OF_A_MEAN = 50
#: Rates that differ by less than this are equal, up to rounding.
SAME = 1e-12


def ratio_estimate(
    numerator: np.ndarray,
    denominator: np.ndarray,
    individuals: np.ndarray | None = None,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
    unit: str = "individuals",
    limit: float | None = 1.0,
    signed: bool = False,
    crowded: bool = True,
) -> Estimate:
    """Return sum(numerator) / sum(denominator) with a percentile bootstrap interval over individuals.

    A rate of exactly 0 or 1 does not vary in a bootstrap; its far bound is Clopper-Pearson's over the individuals whose
    denominator is positive. Nor does a rate that is the same for all individuals; its bounds assume that as many others
    as Clopper-Pearson allows differ as far as a rate can. A single individual has no interval; the bounds are then 0
    and ``limit``. Where few individuals make a rate, a bootstrap is too narrow: one of n ends at 3 / n, as none does,
    and those who make most of it may be elsewhere. So its far end reaches at least as far as `far_ends`; a mean without
    a limit, over fewer than 50, as `skewed_ends`.

    Parameters
    ----------
    numerator, denominator : arrays, shape (individuals,)
    individuals, units : as for `clusters_of`; with households, all of the above is over their sums
    unit : str
        The unit that ``n`` counts, as a report names it.
    limit : float or None
        The largest possible ratio: 1 for a rate, None for a mean without a limit (which has no exact bound).
    signed : bool
        The ratio is a change of a rate, from -1 to 1. If it changed for no individual, both bounds are exact ones.
    crowded : bool
        Few individuals may make most of a rate, as they do of leaks. False of a rate that each has by many items, as
        of the words that a model predicts right: its far end reaches no further than those observed say.
    """
    clusters = clusters_of(individuals, units)
    if clusters is not None:
        sums = (cluster_sums(values, clusters) for values in (numerator, denominator))
        found = ratio_estimate(
            *sums, num_bootstrap=num_bootstrap, seed=seed, unit=unit, limit=limit, signed=signed, crowded=crowded
        )
        return found.over_households(int(np.count_nonzero(denominator > 0)))
    certain = _without_spread(numerator, denominator, unit, limit, signed)
    if certain is not None:
        return certain
    numerator, denominator = _with_denominator(numerator, denominator)
    value, n = float(numerator.sum() / denominator.sum()), len(denominator)
    low, high = np.quantile(_ratio_draws(numerator, denominator, num_bootstrap, seed), TAILS)
    if signed:  # what rose and what fell are rates of their own
        rose, fell = (
            ratio_estimate(np.maximum(sign * numerator, 0), denominator, num_bootstrap=num_bootstrap, seed=seed)
            for sign in (1, -1)
        )
        low, high = wider((low, high), square_and_add(rose, fell))
    elif limit == 1.0:
        least_share = LEAST_SHARE if crowded else 0.0
        low, high = wider((low, high), far_ends(numerator, denominator, least_share=least_share))
    elif limit is None and n < FEW_OF_A_MEAN and high > low:
        low, high = wider((low, high), skewed_ends(numerator, denominator))
    return Estimate(value=value, low=float(low), high=float(high), n=n, unit=unit)


def _without_spread(
    numerator: np.ndarray, denominator: np.ndarray, unit: str, limit: float | None, signed: bool = False
) -> Estimate | None:
    """The estimate if a bootstrap has no spread: no individual, a single one, a rate of exactly 0 or 1, equal rates."""
    numerator, denominator = _with_denominator(numerator, denominator)
    n = len(denominator)
    if n == 0:
        return Estimate(value=None, n=0, unit=unit, method="no individual has any")
    value = float(numerator.sum() / denominator.sum())
    if signed and not numerator.any():
        bound = clopper_pearson(0, n)[1]
        return Estimate(value=0.0, low=-bound, high=bound, n=n, unit=unit, method=UNCHANGED)
    if limit == 1.0 and not signed and (value <= 0 or np.array_equal(numerator, denominator)):
        bound = clopper_pearson(0, n, one_sided=True)[1]
        value = 0.0 if value <= 0 else 1.0
        low, high = (0.0, bound) if value == 0 else (1 - bound, 1.0)
        return Estimate(value=value, low=low, high=high, n=n, unit=unit, method=EXACT)
    least = -1.0 if signed else 0.0
    if n == 1:
        return Estimate(value=value, low=least, high=limit, n=n, unit=unit, method="one individual: no interval")
    if limit is not None and np.ptp(numerator / denominator) < SAME:
        bound = clopper_pearson(0, n)[1]
        low, high = value - bound * (value - least), value + bound * (limit - value)
        return Estimate(value=value, low=low, high=high, n=n, unit=unit, method=EQUAL)
    return None


def ratio_estimates(
    numerators: np.ndarray,
    denominators: np.ndarray,
    individuals: np.ndarray | None = None,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> tuple[list[Estimate], np.ndarray]:
    """Return several rates over the same individuals, each as by `ratio_estimate`, and their draws.

    All rates are resampled together. So a number that combines several of them (an F1 of precision and recall) can have
    an interval too.

    Parameters
    ----------
    numerators, denominators : arrays, shape (rates, individuals)
    individuals, units : as for `clusters_of`

    Returns
    -------
    estimates : list of Estimate, one for each rate
    draws : float64 array, shape (num_bootstrap, rates)
        NaN if no individual drawn has a positive denominator.
    """
    tops, bottoms = (np.asarray(values, dtype=np.float64) for values in (numerators, denominators))
    clusters = clusters_of(individuals, units)
    if clusters is not None:
        sums = (cluster_sums(values.T, clusters).T for values in (tops, bottoms))
        found, draws = ratio_estimates(*sums, num_bootstrap=num_bootstrap, seed=seed)
        return [e.over_households(int(np.count_nonzero(own))) for e, own in zip(found, bottoms, strict=True)], draws
    draws = np.empty((0, len(tops)))
    if tops.shape[1]:
        with np.errstate(invalid="ignore"):
            blocks = iter_resamples(tops.shape[1], num_bootstrap, seed)
            draws = np.concatenate([(weights @ tops.T) / (weights @ bottoms.T) for weights in blocks])
    estimates = []
    for number, (top, bottom) in enumerate(zip(tops, bottoms, strict=True)):
        estimate = _without_spread(top, bottom, "individuals", 1.0)
        if estimate is None:
            low, high = np.nanquantile(draws[:, number], TAILS)
            low, high = wider((low, high), far_ends(*_with_denominator(top, bottom)))
            value, n = float(top.sum() / bottom.sum()), int(np.count_nonzero(bottom))
            estimate = Estimate(value=value, low=float(low), high=float(high), n=n)
        estimates.append(estimate)
    return estimates, draws


def ratio_difference(
    first: tuple[np.ndarray, ...],
    second: tuple[np.ndarray, ...],
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
    limit: float | None = 1.0,
    signed: bool = False,
) -> Estimate:
    """Return the difference of two rates of independent sets of individuals, each given as (numerator, denominator),
    and where there are households (``units``) the codes of its individuals.

    ``limit`` and ``signed`` describe each side, as in `ratio_estimate`. Without a limit, there is no interval if a side
    has a single individual.

    If a side does not vary in a bootstrap (a rate of 0 or 1, equal rates, or one individual), the intervals of both
    sides are combined by square-and-add [@zou2008]. So the difference includes the uncertainty of a zero. If one of the
    rates is made by few, or one of the means is over few, the interval reaches at least as far.
    """
    if units is not None:
        sums = [_household_sums(*side, units=units) for side in (first, second)]
        found = ratio_difference(*sums, num_bootstrap=num_bootstrap, seed=seed, limit=limit, signed=signed)
        return found.over_households(sum(int(np.count_nonzero(side[1] > 0)) for side in (first, second)))
    sides = [_with_denominator(*side[:2]) for side in (first, second)]
    a, b = (
        ratio_estimate(*side, num_bootstrap=num_bootstrap, seed=seed + number, limit=limit, signed=signed)
        for number, side in enumerate(sides)
    )
    if a.value is None or b.value is None:
        return Estimate(value=None, n=0, method="one side has no individual")
    assert a.n is not None  # only published estimates have none
    assert b.n is not None
    value, n = a.value - b.value, a.n + b.n
    if limit is None and min(a.n, b.n) == 1:
        return Estimate(value=value, n=n, method="one individual on a side: no interval")
    if a.method == b.method == BOOTSTRAP:
        draws = [_ratio_draws(*side, num_bootstrap, seed + number) for number, side in enumerate(sides)]
        low, high = np.quantile(draws[0] - draws[1], TAILS)
        few = min(num_rare(*side) for side in sides) < FEW if limit == 1.0 else min(a.n, b.n) < FEW_OF_A_MEAN
        if few:
            low, high = wider((low, high), square_and_add(a, b))
        return Estimate(value=value, low=float(low), high=float(high), n=n)
    low, high = square_and_add(a, b)
    return Estimate(value=value, low=low, high=high, n=n, method="square-and-add of both sides' intervals")


def _household_sums(
    numerator: np.ndarray, denominator: np.ndarray, individuals: np.ndarray | None = None, *, units: np.ndarray
) -> tuple[np.ndarray, ...]:
    clusters = clusters_of(individuals, units)
    assert clusters is not None
    return tuple(cluster_sums(values, clusters) for values in (numerator, denominator))


def _with_denominator(numerator: np.ndarray, denominator: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kept = denominator > 0
    return numerator[kept].astype(np.float64), denominator[kept].astype(np.float64)


def _ratio_draws(numerator: np.ndarray, denominator: np.ndarray, num_bootstrap: int, seed: int) -> np.ndarray:
    blocks = iter_resamples(len(denominator), num_bootstrap, seed)
    return np.concatenate([(weights @ numerator) / (weights @ denominator) for weights in blocks])


def exposure(canary_score: float, reference_scores: np.ndarray) -> float:
    """Return the exposure log2|R| - log2(rank of the canary among the references) [@carlini2019], in bits.

    A higher score means better memorised. Ties share the middle rank. A canary below every reference has rank |R| + 1.

    >>> [round(exposure(-s, -np.arange(1.0, 17.0)), 6) for s in (0.0, 3.5, 20.0)]
    [4.0, 2.0, -0.087463]
    """
    rank = (
        1 + np.count_nonzero(reference_scores > canary_score) + 0.5 * np.count_nonzero(reference_scores == canary_score)
    )
    return math.log2(len(reference_scores)) - math.log2(float(rank))


def one_run_epsilon(
    num_canaries: int, num_guesses: int, num_right: int, delta: float, *, confidence: float = LEVEL
) -> float:
    """Return the empirical lower bound on epsilon from one training run [@steinke2023]; a report must say "at least".

    Each of ``num_canaries`` was included with probability 1/2; ``num_right`` of ``num_guesses`` guesses were right.

    >>> round(one_run_epsilon(1000, 100, 100, 0.0), 6)
    3.492965
    """

    def p_value(epsilon: float) -> float:
        q = 1 / (1 + math.exp(-epsilon))
        beta = float(stats.binom.sf(num_right - 1, num_guesses, q))
        i = np.arange(1, num_right + 1)
        between = stats.binom.sf(num_right - i - 1, num_guesses, q) - beta
        alpha = float(np.max(between / i, initial=0.0))
        return min(beta + 2 * num_canaries * delta * alpha, 1.0)

    low, high = 0.0, 1.0
    if p_value(0.0) > 1 - confidence:
        return 0.0
    while p_value(high) < 1 - confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= 1 - confidence else (low, middle)
    return low
