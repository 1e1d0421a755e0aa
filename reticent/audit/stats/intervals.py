"""Statistics: rates, differences of rates, and their intervals, with the individual as the unit.

Documents of one individual are not independent, so every interval resamples individuals, or households where the split
keeps these together. A zero is never shown without its upper bound. The sections: bounds, clusters, areas under the ROC
curve, areas over documents, two sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, NotRequired, TypedDict, Unpack

import numpy as np
from scipy import stats

from reticent.audit.evidence.leakage import Excess
from reticent.audit.evidence.membership import BestAttack
from reticent.audit.stats.estimate import (
    BOOTSTRAP,
    CHANCE,
    EXACT,
    LEVEL,
    TIED,
    Estimate,
    clopper_pearson,
    distance_from_chance,
)
from reticent.engine.kernels import draw_counts
from reticent.engine.randomness import generator
from reticent.engine.split import households_of

# -------------------------------------------------------------------------------------------------------------- bounds
#
# Intervals where a bootstrap is too narrow: rates that few individuals contribute to, differences, AUCs over few.
#
# Cost: a few numbers for each individual.


#: A bootstrap of an area is too narrow if a side has fewer individuals than this.
FEW_ON_A_SIDE = 20
#: The same near 0 or 1: fewest individuals of a side who are ranked wrongly on average.
FEW_WRONG = 5.0
#: Rare items assumed for one more, unseen individual, as a share of a typical individual's items: those who hold most
#: rare items may all be outside of the sample. Simulated (`fixtures.crowded`): with 0 the far end of a sampled
#: share misses in up to 20 of 100 draws, with 1/2 in 4, with 2/3 in 3.5, with 3/4 in 2.8; with 1 the interval is a
#: tenth wider and misses in up to 1.8. Of a rate: tests/audit/stats/test_crowded_rates.py.
LEAST_SHARE = 0.75
#: Quantiles of the draws at the ends of an interval.
TAILS = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]


def far_ends(
    numerator: np.ndarray, denominator: np.ndarray, *, least_share: float = LEAST_SHARE
) -> tuple[float, float]:
    """Return an interval (low, high) of a rate over few individuals. The end farther from the nearer of 0 and 1 is
    Clopper-Pearson's at the effective sample size; the other end is the rate itself.

    It is taken at the effective sample size [@korn1998], with one individual added, as an exact
    interval adds one event: as large as the individual of an average item, and with as high a rate as those who have
    rare items, at least ``least_share`` of its items. For individuals with one item each it is Clopper-Pearson's, up to
    5 % of its distance.
    """
    value = float(numerator.sum() / denominator.sum())
    share, step, variance = _rare_side(numerator, denominator, least_share)
    upper = (share + step) / (1 + step)
    size = upper * (1 - upper) * (1 + step) ** 2 / (variance + step**2) - 1
    far = float(stats.beta.ppf(TAILS[1], upper * size, (1 - upper) * size)) if size > 0 else 1.0
    return 1 - far if value >= 0.5 else value, far if value <= 0.5 else value


def _rare_side(
    numerator: np.ndarray, denominator: np.ndarray, least_share: float = LEAST_SHARE
) -> tuple[float, float, float]:
    """Return three numbers about the rarer outcome of a rate (hits, or misses): its share, by how much one more
    individual would raise this share, and the share's variance."""
    total, items = denominator.sum(), np.abs(numerator)
    share = float(items.sum() / total)
    if share > 0.5:
        share, items = 1 - share, denominator - items
    crowd = float((items**2 / denominator).sum() / items.sum()) - share if items.any() else 0.0
    step = max(crowd, min(least_share, 1 - share)) * float((denominator**2).sum() / total**2)
    return share, step, float(((items - share * denominator) ** 2).sum() / total**2)


def skewed_ends(numerator: np.ndarray, denominator: np.ndarray) -> tuple[float, float]:
    """Return a Student t interval (low, high) of the mean sum(numerator) / sum(denominator), which need not lie between
    0 and 1. It is shifted towards the longer tail if the distribution is skewed.

    A percentile bootstrap of few has at best the tails of a normal distribution; for exposures, whose tail is
    exponential, its upper end misses 12 of 100 times over 8 individuals.
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


def uneven_ends(numerator: np.ndarray, denominator: np.ndarray) -> tuple[float, float]:
    """Return a Student t interval (low, high) of sum(numerator) / sum(denominator), for denominators, such as lengths
    of texts, that differ much between individuals.

    The individual with most of the items pulls the ratio towards their own, so their residual is too small; each
    residual is divided by one minus the individual's share of all items [@mackinnon1985]. The degrees of freedom are
    the effective number of individuals minus one.
    """
    n, total = len(numerator), float(denominator.sum())
    value, shares = float(numerator.sum()) / total, denominator / total
    rest = (numerator - value * denominator) / denominator.mean() / (1 - shares)
    error = float(np.sqrt((rest**2).sum() / (n * (n - 1))))
    reach = float(stats.t.ppf(TAILS[1], max(1 / float((shares**2).sum()) - 1, 1.0)))
    return value - error * reach, value + error * reach


def num_rare(numerator: np.ndarray, denominator: np.ndarray) -> float:
    """Return the effective number of individuals behind the rarer outcome of a rate (hits, or misses): this many
    individuals with one item each would give the same uncertainty."""
    share, step, variance = _rare_side(numerator, denominator)
    return share**2 * (1 - share) / (variance + step**2)


def wider(ends: tuple[float, float], others: tuple[float, float]) -> tuple[float, float]:
    """Return the smallest interval (low, high) that contains both intervals."""
    return min(float(ends[0]), others[0]), max(float(ends[1]), others[1])


def square_and_add(a: Estimate, b: Estimate) -> tuple[float, float]:
    """Return the interval (low, high) of the difference a - b from the intervals of both [@zou2008]."""
    a_value, a_low, a_high, b_value, b_low, b_high = (
        end for end in (a.value, a.low, a.high, b.value, b.low, b.high) if end is not None
    )
    value = a_value - b_value
    return value - math.hypot(a_value - a_low, b_high - b_value), value + math.hypot(a_high - a_value, b_value - b_low)


def score_auc_bounds(
    value: float, num_members: float, num_nonmembers: float, scores: np.ndarray, reach: float
) -> tuple[float, float]:
    """Return the score interval (low, high) of an AUC: all true AUCs from which the observed ``value`` is at most
    ``reach`` standard errors away, by the standard error at the true AUC [@newcombe2006, method 5].

    The standard error at 0.5 is that of the Mann-Whitney test, so no side is too small for it. ``scores`` are those
    of both sides: ties make it smaller, as in that test.
    """
    _, ties = np.unique(scores, return_counts=True)
    untied = 1 - float((ties.astype(np.float64) ** 3 - ties).sum()) / max(len(scores) ** 3 - len(scores), 1)
    others = (num_members + num_nonmembers) / 2 - 1

    def is_inside(area: float) -> bool:
        """Return whether the true AUC ``area`` lies in the score interval: the observed ``value`` differs from it by at
        most ``reach`` standard errors."""
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
    """Whether every bootstrap resample gives the same AUC: all members score above all non-members, or below them, or
    all scores are equal. Both arrays are sorted."""
    return value in (0.0, 1.0) or members[0] == members[-1] == nonmembers[0] == nonmembers[-1]


def certain_auc_bounds(value: float, num_pairs: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the Clopper-Pearson interval (low, high) of an AUC of 0, 1 or 0.5 that is the same in every bootstrap
    resample. ``num_pairs`` pairs of a member and a non-member, no individual in two pairs, are its trials."""
    bound = clopper_pearson(0, num_pairs, level=level, one_sided=value in (0.0, 1.0))[1]
    if value in (0.0, 1.0):
        return (0.0, bound) if value == 0 else (1 - bound, 1.0)
    return value - bound / 2, value + bound / 2


# ------------------------------------------------------------------------------------------------------------ clusters
#
# The unit that intervals resample: the household, if the split keeps several individuals together, or the individual.
#
# `bootstrap_of` decides it once for an audit, from the unit of each individual in the split. Every interval gets the
# decision with the settings of its bootstrap (`Bootstrap`), and the individuals of its rows: it sums a rate by
# household, or draws the rows of a household together. A count in an exact bound is then one of households, which is
# conservative. Where no two share a unit there are no households, and every number is that of a bootstrap over
# individuals.


#: Weights of resamples held at once, in numbers: 2^23 float64 are 64 MiB.
MAX_WEIGHTS = 1 << 23


class Draws(TypedDict):
    """Settings of the bootstrap replicates: their number, and the seed."""

    num_bootstrap: int
    seed: int


class Bootstrap(Draws):
    """Settings of the bootstrap: `Draws`, and the household of each individual (by code), absent where individuals are
    resampled."""

    units: NotRequired[np.ndarray | None]


def bootstrap_of(num_bootstrap: int, seed: int, units: np.ndarray | None) -> Bootstrap:
    """Return the bootstrap settings of an audit's intervals; they resample households, given by ``units``, if one has
    several individuals.

    Parameters
    ----------
    units : integer array, shape (individuals,)
        Unit of each individual (by code), which the split keeps on one side; None: each individual is a unit.
    """

    households = households_of(units)
    if households is None:
        return {"num_bootstrap": num_bootstrap, "seed": seed}
    return {"num_bootstrap": num_bootstrap, "seed": seed, "units": households}


def clusters_of(individuals: np.ndarray | None, units: np.ndarray | None) -> np.ndarray | None:
    """Return the number of the household of each row, int64, from 0 without gaps; None if ``units`` is None: there are
    no households, and individuals are resampled.

    Parameters
    ----------
    individuals : integer array, shape (rows,), the code of each row's individual

    Raises
    ------
    TypeError
        There are households, and the individuals of the rows were not given.
    """
    if units is None:
        return None
    if individuals is None:
        raise TypeError("intervals over households need the individual of each row")
    return np.unique(units[individuals], return_inverse=True)[1].reshape(-1)


def num_clusters(clusters: np.ndarray) -> int:
    """Return the number of households, from the household number of each row."""
    return int(clusters.max(initial=-1)) + 1


def cluster_sums(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return the sum of the rows of ``values`` in each household, float64 (households, ...)."""
    sums = np.zeros((num_clusters(clusters), *np.shape(values)[1:]))
    np.add.at(sums, clusters, values)
    return sums


def cluster_tops(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return the highest value in each household that has a row, float64, ordered by household number."""
    _, number = np.unique(clusters, return_inverse=True)
    tops = np.full(int(number.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(tops, number.reshape(-1), values)
    return tops


def iter_resamples(
    num: int, num_bootstrap: int, seed: int, *, rows: int | None = None, clusters: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Yield bootstrap resamples of ``num`` individuals in blocks, float64 (at most ``rows``, num): how often each is
    drawn. Individuals with the same number in ``clusters`` (a household) are drawn together."""
    rows = rows or max(1, MAX_WEIGHTS // num)
    num_drawn = num if clusters is None else num_clusters(clusters)
    for done in range(0, num_bootstrap, rows):
        weights = np.empty((min(rows, num_bootstrap - done), num_drawn))
        draw_counts(seed, done, weights)
        yield weights if clusters is None else weights[:, clusters]


UNCHANGED = "Clopper-Pearson over individuals, of no change"
EQUAL = "Clopper-Pearson over individuals, of equal rates"
#: A bootstrap of a difference is too narrow if fewer individuals than this contribute to one of its rates.
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
    """Return the rate sum(numerator) / sum(denominator) with a 95 % percentile bootstrap interval over individuals.
    Each entry of the two arrays is one individual's.

    A rate of exactly 0 or 1 does not vary in a bootstrap; its far bound is Clopper-Pearson's over the individuals whose
    denominator is positive. Nor does a rate that is the same for all individuals; its bounds assume that as many others
    as Clopper-Pearson allows differ as far as a rate can. A single individual has no interval; the bounds are then 0
    and ``limit``. Where few individuals contribute to a rate, a bootstrap is too narrow: one of n ends at 3 / n, as
    none does, and those who contribute most may not be in the sample. So its far end reaches at least as far as
    `far_ends`; a mean without a limit, over fewer than 50, as `skewed_ends`.

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
        Few individuals may contribute most of a rate, as of leaks. False for a rate to which each contributes many
        items, such as words predicted right: its far end then assumes no unseen individual, and both ends reach as far
        as `skewed_ends` and `uneven_ends`, because the rate may depend on the number of items.
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
    if not crowded and high > low:
        low, high = wider((low, high), skewed_ends(numerator, denominator))
        low, high = wider((low, high), uneven_ends(numerator, denominator))
        low, high = max(low, 0.0), high if limit is None else min(high, limit)
    return Estimate(value=value, low=float(low), high=float(high), n=n, unit=unit)


def _without_spread(
    numerator: np.ndarray, denominator: np.ndarray, unit: str, limit: float | None, signed: bool = False
) -> Estimate | None:
    """Return the estimate of a rate with an exact interval if a bootstrap cannot give one: at most one individual, a
    rate of exactly 0 or 1, or equal rates of all individuals. Otherwise None."""
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
    """Return (list of rates with intervals, their bootstrap draws) for several rates over the same individuals; each
    row of ``numerators`` and ``denominators`` is one rate (see `ratio_estimate`).

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
    """Return the difference of two rates, ``first`` minus ``second``, over different individuals, with its interval.
    Each is given as two arrays by individual (numerator, denominator); with ``units`` also the individuals' codes.

    ``limit`` and ``signed`` describe each side, as in `ratio_estimate`. Without a limit, there is no interval if a side
    has a single individual.

    If a side does not vary in a bootstrap (a rate of 0 or 1, equal rates, or one individual), the intervals of both
    sides are combined by square-and-add [@zou2008]. So the difference includes the uncertainty of a zero. If few
    individuals contribute to a rate, or a mean is over few, the interval reaches at least as far.
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
    """Return the numerator and the denominator summed over each household."""
    clusters = clusters_of(individuals, units)
    assert clusters is not None
    return tuple(cluster_sums(values, clusters) for values in (numerator, denominator))


def _with_denominator(numerator: np.ndarray, denominator: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return numerator and denominator, float64, without the individuals whose denominator is 0."""
    kept = denominator > 0
    return numerator[kept].astype(np.float64), denominator[kept].astype(np.float64)


def _ratio_draws(numerator: np.ndarray, denominator: np.ndarray, num_bootstrap: int, seed: int) -> np.ndarray:
    """Return sum(numerator) / sum(denominator) in each bootstrap resample of the individuals, float64
    (num_bootstrap,)."""
    blocks = iter_resamples(len(denominator), num_bootstrap, seed)
    return np.concatenate([(weights @ numerator) / (weights @ denominator) for weights in blocks])


def exposure(canary_score: float, reference_scores: np.ndarray) -> float:
    """Return a canary's exposure, log2|R| - log2(its rank among the references R), in bits [@carlini2019].

    A higher score means better memorised. Ties share the middle rank. A canary below every reference has rank |R| + 1.

    >>> [round(exposure(-s, -np.arange(1.0, 17.0)), 6) for s in (0.0, 3.5, 20.0)]
    [4.0, 2.0, -0.087463]
    """
    rank = (
        1 + np.count_nonzero(reference_scores > canary_score) + 0.5 * np.count_nonzero(reference_scores == canary_score)
    )
    return math.log2(len(reference_scores)) - math.log2(float(rank))


def one_run_epsilon(num_canaries: int, num_guesses: int, num_right: int, delta: float) -> float:
    """Return the empirical lower bound on epsilon from one training run with canaries [@steinke2023]; a report must say
    "at least".

    Each of ``num_canaries`` was included with probability 1/2; ``num_right`` of ``num_guesses`` guesses were right.

    >>> round(one_run_epsilon(1000, 100, 100, 0.0), 6)
    3.492965
    """

    def p_value(epsilon: float) -> float:
        """Return an upper bound on the probability of at least ``num_right`` right guesses if the training had this
        ``epsilon``."""
        q = 1 / (1 + math.exp(-epsilon))
        beta = float(stats.binom.sf(num_right - 1, num_guesses, q))
        i = np.arange(1, num_right + 1)
        between = stats.binom.sf(num_right - i - 1, num_guesses, q) - beta
        alpha = float(np.max(between / i, initial=0.0))
        return min(beta + 2 * num_canaries * delta * alpha, 1.0)

    low, high = 0.0, 1.0
    if p_value(0.0) > 1 - LEVEL:
        return 0.0
    while p_value(high) < 1 - LEVEL:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= 1 - LEVEL else (low, middle)
    return low


# --------------------------------------------------------------------------------------------------------------- areas
#
# Areas under the ROC curve over individuals, the curve itself, and true-positive rates at low false-positive rates.
#
# No true-positive rate is given at a false-positive rate that the number of non-members is too small to resolve. Where
# the split keeps households together, intervals resample these (:mod:`reticent.audit.stats.intervals`).


#: An array of the members, and the same of the non-members.
Sides = tuple[np.ndarray, np.ndarray]


def roc_curve(members: np.ndarray, nonmembers: np.ndarray, *, max_points: int = 200) -> dict[str, list[float]]:
    """Return the ROC curve as {"fpr": rates, "tpr": rates} at all thresholds, from (0, 0) to (1, 1), thinned to
    ``max_points``; both empty if there are no members or no non-members."""
    if len(members) == 0 or len(nonmembers) == 0:
        return {"fpr": [], "tpr": []}
    thresholds = np.unique(np.concatenate([members, nonmembers]))[::-1]
    fpr = np.concatenate([[0.0], 1 - np.searchsorted(np.sort(nonmembers), thresholds, side="left") / len(nonmembers)])
    tpr = np.concatenate([[0.0], 1 - np.searchsorted(np.sort(members), thresholds, side="left") / len(members)])
    if len(fpr) > max_points:  # half of the points evenly, half for the low rates, which logarithmic axes show
        half, last = max_points // 2, len(fpr) - 1
        keep = np.unique(np.concatenate([np.linspace(0, last, half), np.geomspace(1, last, half)]).astype(int))
        fpr, tpr = fpr[keep], tpr[keep]
    return {"fpr": [round(float(x), 6) for x in fpr], "tpr": [round(float(x), 6) for x in tpr]}


def auc_estimate(
    members: np.ndarray,
    nonmembers: np.ndarray,
    individuals: Sides | None = None,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
    level: float = LEVEL,
) -> Estimate:
    """Return the area under the ROC curve of two sets of scores (ties count half), with a bootstrap interval over the
    individuals of both sides.

    An area of exactly 0 or 1 does not vary in a bootstrap, nor does one of equal scores. There are min(members,
    non-members) disjoint pairs, and all have the same order or are all tied, so the bounds are Clopper-Pearson's over
    these. With fewer than 20 individuals on a side a bootstrap is too narrow; the interval then reaches at least as far
    as `score_auc_bounds`. ``level`` is the level of the interval. With households (``units``), all these count them;
    ``individuals`` then has the codes of the individuals of both sides.

    Cost: a sort, and O(num_bootstrap · individuals) time in blocks of bounded memory.
    """
    m, n = len(members), len(nonmembers)
    if m == 0 or n == 0:
        return Estimate(value=None, n=m + n, level=level, method="one side has no individual")
    clusters = clusters_of(None if individuals is None else np.concatenate(individuals), units)
    # Sorted, so the interval does not depend on the order of the individuals.
    sides = (np.sort(members), np.sort(nonmembers)) if clusters is None else (members, nonmembers)
    drawn_together = np.arange(m + n) if clusters is None else clusters
    found, _ = clustered_auc(
        np.concatenate(sides), drawn_together, np.arange(m + n) < m, num_bootstrap=num_bootstrap, seed=seed, level=level
    )
    return found if clusters is None else found.over_households(m + n)


def is_narrow(value: float, sizes: tuple[float, float]) -> bool:
    """Return whether a bootstrap interval of this AUC would be too narrow, because one of the two sample sizes is
    small, or few individuals are ranked wrongly."""
    return min(sizes) < FEW_ON_A_SIDE or min(value, 1 - value) * min(sizes) < FEW_WRONG


def _effective_size(clusters: np.ndarray) -> float:
    """Return the number of equally large households that would give the same uncertainty [@kish1965]; ``clusters`` has
    the household of each row."""
    sizes = np.unique(clusters, return_counts=True)[1].astype(np.float64)
    return float(sizes.sum() ** 2 / max((sizes**2).sum(), 1.0))


def _clusters_of_sides(
    individuals: Sides | None, units: np.ndarray | None, orders: Sides
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the household numbers of members and of non-members, each in the order of its array in ``orders``; None if
    individuals, not households, are resampled."""
    if individuals is None:
        return clusters_of(None, units), None
    members, nonmembers = (clusters_of(codes[order], units) for codes, order in zip(individuals, orders, strict=True))
    return members, nonmembers


def tpr_at_fpr(
    members: np.ndarray,
    nonmembers: np.ndarray,
    fpr: float,
    individuals: Sides | None = None,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> Estimate | None:
    """Return the true-positive rate at a false-positive rate of ``fpr``; None without members or with fewer than 10 /
    fpr non-members (or households of them).

    The far end of the interval reaches at least as far as Clopper-Pearson's over the members, or over their households
    where there are any. ``individuals`` as for `auc_estimate`.
    """
    orders = np.arange(len(members)), np.arange(len(nonmembers))
    own, others = _clusters_of_sides(individuals, units, orders)
    sizes = [len(scores) if c is None else num_clusters(c) for scores, c in ((members, own), (nonmembers, others))]
    if len(members) == 0 or sizes[1] < 10 / fpr:
        return None
    value, num = _tpr(members, nonmembers, fpr), sizes[0]
    draws = [_tpr(*sides, fpr) for sides in _resample_sides(members, nonmembers, own, others, num_bootstrap, seed)]
    low, high = (float(bound) for bound in np.quantile(draws, TAILS))
    method, exact = BOOTSTRAP, clopper_pearson(round(value * num), num)
    if value in (0.0, 1.0):
        bound = clopper_pearson(0, num, one_sided=True)[1]
        low, high = (0.0, max(high, bound)) if value == 0 else (min(low, 1 - bound), 1.0)
        method = EXACT
    elif value <= 0.5:
        high = max(high, exact[1])
    else:
        low = min(low, exact[0])
    found = Estimate(value=value, low=low, high=high, n=sum(sizes), method=method)
    return found if own is None else found.over_households(len(members) + len(nonmembers))


def _resample_sides(
    members: np.ndarray,
    nonmembers: np.ndarray,
    own: np.ndarray | None,
    others: np.ndarray | None,
    num_bootstrap: int,
    seed: int,
) -> Iterator[Sides]:
    """Yield (members' scores, non-members' scores) for each bootstrap resample. If household numbers are given in
    ``own`` and ``others``, individuals of one household are drawn together."""
    if own is None or others is None:
        random = generator(seed, 7)
        for _ in range(num_bootstrap):
            yield random.choice(members, len(members)), random.choice(nonmembers, len(nonmembers))
        return
    rows = max(1, MAX_WEIGHTS // (len(members) + len(nonmembers)))
    for blocks in zip(
        iter_resamples(len(members), num_bootstrap, seed, rows=rows, clusters=own),
        iter_resamples(len(nonmembers), num_bootstrap, seed + 1, rows=rows, clusters=others),
        strict=True,
    ):
        for of_members, of_nonmembers in zip(*(block.astype(np.int64) for block in blocks), strict=True):
            yield np.repeat(members, of_members), np.repeat(nonmembers, of_nonmembers)


def _tpr(members: np.ndarray, nonmembers: np.ndarray, fpr: float) -> float:
    """Return the true-positive rate: the share of members above the lowest threshold that at most a share ``fpr`` of
    the non-members exceeds."""
    # At most this many false positives; the small term undoes the rounding of e.g. 0.29 * 100.
    allowed = math.floor(fpr * len(nonmembers) + 1e-9)
    threshold = np.partition(nonmembers, len(nonmembers) - 1 - allowed)[len(nonmembers) - 1 - allowed]
    return float(np.mean(members > threshold))


# ------------------------------------------------------------------------------------------------------- clustered auc
#
# Areas under the ROC curve of documents, and the best of several attacks.
#
# Documents of one individual are not independent, so a resample draws individuals with all their documents
# (households, where the split keeps these together: :mod:`reticent.audit.stats.intervals`). It draws the same
# individuals for every attack, so the areas of several attacks can be compared draw by draw. A loop over scikit-
# learn's `roc_auc_score` takes five times as long (2,000 documents, 1,000 draws: 2.3 s instead of 0.5 s). If documents
# are resampled as if they were independent, the intervals are too narrow
# (`test_interval_covers_the_truth_when_documents_of_an_individual_are_alike`).


#: Standard deviations from the mean to the ends of a normal 95 % interval.
NORMAL = 1.959964


def clustered_auc(
    scores: np.ndarray,
    individuals: np.ndarray,
    is_member: np.ndarray,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
    level: float = LEVEL,
) -> tuple[Estimate, np.ndarray]:
    """Return (AUC over documents with an interval that resamples individuals, its bootstrap draws); tied scores count
    half.

    Parameters
    ----------
    scores : float array, shape (D,); NaN for a document that is left out
    individuals : integer array, shape (D,)
    is_member : bool array, shape (D,), the same for all documents of an individual
    units : as for `clusters_of`

    Returns
    -------
    estimate : Estimate
        Its ``n`` counts individuals.
    draws : float64 array, shape (num_bootstrap,)
        NaN if a side of the draw has no document.

    Cost: a sort, and O(num_bootstrap · documents) time in blocks of bounded memory.
    """
    clusters = clusters_of(individuals, units)
    if clusters is not None:
        found, drawn = clustered_auc(scores, clusters, is_member, num_bootstrap=num_bootstrap, seed=seed, level=level)
        return found.over_households(len(np.unique(individuals[~np.isnan(scores)]))), drawn
    usable = ~np.isnan(scores)
    sides = [_sorted_side(scores, individuals, is_member == side, usable) for side in (True, False)]
    (members, member_of, num_m), (nonmembers, nonmember_of, num_n) = sides
    counts = len(np.unique(member_of)), len(np.unique(nonmember_of))
    n = sum(counts)
    if len(members) == 0 or len(nonmembers) == 0:
        none = Estimate(value=None, n=n, level=level, method="one side has no individual")
        return none, np.full(num_bootstrap, np.nan)
    below, up_to = (np.searchsorted(nonmembers, members, side=side) for side in ("left", "right"))
    value = float((below + up_to).mean() / (2 * len(nonmembers)))
    draws, rows = [], max(1, MAX_WEIGHTS // (len(members) + len(nonmembers) + num_m + num_n))
    for weights_m, weights_n in zip(
        iter_resamples(num_m, num_bootstrap, seed, rows=rows),
        iter_resamples(num_n, num_bootstrap, seed + 1, rows=rows),
        strict=True,
    ):
        of_members, of_nonmembers = weights_m[:, member_of], weights_n[:, nonmember_of]
        running = np.concatenate([np.zeros((len(weights_n), 1)), np.cumsum(of_nonmembers, axis=1)], axis=1)
        wins = running[:, below]
        wins += running[:, up_to]
        pairs = 2 * of_members.sum(axis=1) * running[:, -1]
        with np.errstate(invalid="ignore"):
            draws.append(np.einsum("bm,bm->b", of_members, wins) / pairs)
    all_draws, fewest = np.concatenate(draws), min(counts)
    found = Estimate(value=value, n=n, level=level)
    if is_certain(value, members, nonmembers):
        low, high = certain_auc_bounds(value, fewest, level)
        return replace(found, low=low, high=high, method=EXACT if value in (0.0, 1.0) else TIED), all_draws
    if fewest == 1:
        return replace(found, low=0.0, high=1.0, method="one individual on a side: no interval"), all_draws
    low, high = (float(end) for end in np.nanquantile(all_draws, [(1 - level) / 2, (1 + level) / 2]))
    sizes = _effective_size(member_of), _effective_size(nonmember_of)
    if is_narrow(value, sizes):
        of_both, reach = np.concatenate([members, nonmembers]), float(stats.norm.ppf((1 + level) / 2))
        low, high = wider((low, high), score_auc_bounds(value, *sizes, of_both, reach))
    return replace(found, low=low, high=high), all_draws


def _sorted_side(
    scores: np.ndarray, individuals: np.ndarray, side: np.ndarray, usable: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return three results for members or non-members: the ascending scores of their documents in the mask ``usable``,
    the number of each such document's individual, and the number of individuals."""
    # Individuals without a usable document are counted too, so every attack resamples the same individuals.
    codes, number = np.unique(individuals[side], return_inverse=True)
    kept = usable[side]
    found, number = scores[side][kept].astype(np.float64), number[kept]
    order = np.lexsort((number, found))
    return found[order], number[order], len(codes)


class JointArea(NamedTuple):
    """An AUC, and 0.5 plus its difference to the control's AUC, both with simultaneous intervals."""

    auc: Estimate
    over_base: Estimate | None = None


def joint_areas(
    scores: Mapping[Any, np.ndarray],
    individuals: np.ndarray,
    is_member: np.ndarray,
    *,
    base: Mapping[Any, np.ndarray | None] | None = None,
    level: float = LEVEL,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> dict[Any, JointArea]:
    """Return attack name -> its AUC and the excess over its control's AUC, with intervals that hold simultaneously for
    all attacks, on the same individuals. Attacks without an AUC are left out.

    The intervals of all of them hold simultaneously: value ± c · standard error, where c is the quantile ``level`` over
    the draws of the largest |draw - value| / standard error of any number (max-statistic bootstrap). The interval of
    one alone would be too narrow for the worst of many. Standard errors of few individuals are uncertain, and that of
    the best attack is too small the more often; so an interval reaches at least as far as `score_auc_bounds` at c. An
    area of 0 or 1, or of equal scores, does not vary in the draws; it has a Clopper-Pearson bound with Bonferroni
    correction. So the intervals also hold for the worst of any subset.

    Parameters
    ----------
    scores : attack -> float array, shape (individuals,); NaN for an individual without a score
    individuals : integer array, shape (individuals,)
    is_member : bool array, shape (individuals,)
    base : attack -> scores of the same attack on a control model that was not trained on the members. The difference of
        the two areas is over the individuals with both scores, by the same resamples, so a shift of the split cancels
    units : as for `clusters_of`
    """
    clusters = clusters_of(individuals, units)
    if clusters is not None:
        draws: Draws = {"num_bootstrap": num_bootstrap, "seed": seed}
        found = joint_areas(scores, clusters, is_member, base=base, level=level, **draws)
        n = {name: int(np.count_nonzero(~np.isnan(scores[name]))) for name in found}
        return {
            name: JointArea(auc.over_households(n[name]), over and over.over_households(n[name]))
            for name, (auc, over) in found.items()
        }  # fmt: skip

    def area(document_scores: np.ndarray) -> _Drawn:
        """Return the AUC of one attack's scores, with its bootstrap draws and sample sizes."""
        own, drawn = clustered_auc(document_scores, individuals, is_member, num_bootstrap=num_bootstrap, seed=seed)
        members, others = (individuals[~np.isnan(document_scores) & side] for side in (is_member, ~is_member))
        sizes = len(np.unique(members)), len(np.unique(others))
        effective = _effective_size(members), _effective_size(others)
        return _Drawn(own, drawn, sizes, effective, document_scores[~np.isnan(document_scores)])

    measured = {name: area(own) for name, own in scores.items()}
    measured = {name: found for name, found in measured.items() if found.auc.value is not None}
    if not measured:
        return {}
    pairs: dict[Any, tuple[_Drawn, _Drawn]] = {}
    for name in measured:
        if (before := (base or {}).get(name)) is not None:
            both = ~np.isnan(scores[name]) & ~np.isnan(before)
            pair = [area(np.where(both, values, np.nan)) for values in (scores[name], before)]
            if pair[0].auc.value is not None:
                pairs[name] = pair[0], pair[1]
    values = [*(one.value for one in measured.values()), *(own.value - other.value for own, other in pairs.values())]
    drawn = [*(one.draws for one in measured.values()), *(own.draws - other.draws for own, other in pairs.values())]
    reach, spread = joint_reach(np.array(values), np.array(drawn).reshape(len(values), num_bootstrap), level)
    method = f"max-statistic bootstrap over individuals, {len(measured)} attacks"
    of_one = 1 - (1 - level) / len(values)
    areas = {
        name: _simultaneous_area(one, reach, float(own), of_one, method)
        for (name, one), own in zip(measured.items(), spread, strict=False)
    }
    gains = {
        name: _area_over_control(own, other, reach, float(sd), of_one, method)
        for (name, (own, other)), sd in zip(pairs.items(), spread[len(measured) :], strict=True)
    }
    return {name: JointArea(auc, gains.get(name)) for name, auc in areas.items()}


class _Drawn(NamedTuple):
    """An AUC with its own interval and bootstrap draws, the (members, non-members) numbers of individuals or
    households, their effective sizes, and the scores."""

    auc: Estimate
    draws: np.ndarray
    sizes: tuple[int, int]
    effective: tuple[float, float]
    scores: np.ndarray

    @property
    def value(self) -> float:
        """Value of the AUC as a float; there must be one."""
        assert self.auc.value is not None
        return self.auc.value


def joint_reach(values: np.ndarray, draws: np.ndarray, level: float) -> tuple[float, np.ndarray]:
    """Return (number of standard errors by which the intervals of all ``values`` must extend to hold simultaneously at
    ``level``, standard error of each value), computed from bootstrap draws (values, resamples) by the max-statistic."""
    usable = draws[:, ~np.isnan(draws).any(axis=0)]
    spread = usable.std(axis=1, ddof=1) if usable.shape[1] > 1 else np.zeros(len(values))
    varies = spread > SAME
    if not varies.any():
        return NORMAL, spread
    steps = np.abs(usable[varies] - values[varies, None]) / spread[varies, None]
    return float(np.quantile(steps.max(axis=0), level)), spread


def _simultaneous_area(drawn: _Drawn, reach: float, standard_error: float, level: float, method: str) -> Estimate:
    """Return the AUC with an interval of at least ``reach`` standard errors to each side, which holds simultaneously
    with those of the other attacks."""
    auc, value = drawn.auc, drawn.value
    if auc.method in (EXACT, TIED):
        low, high = certain_auc_bounds(value, min(drawn.sizes), level)
    elif standard_error > SAME and min(drawn.sizes) > 1:
        ends = value - reach * standard_error, value + reach * standard_error
        low, high = wider(ends, score_auc_bounds(value, *drawn.effective, drawn.scores, reach))
    else:
        low, high = auc.low or 0.0, 1.0 if auc.high is None else auc.high
    return replace(auc, low=max(float(low), 0.0), high=min(float(high), 1.0), method=method)


def _area_over_control(
    own: _Drawn, control: _Drawn, reach: float, standard_error: float, level: float, method: str
) -> Estimate:
    """Return the excess of an attack's AUC over that of its control, plus 0.5 to read like an AUC, with an interval of
    at least ``reach`` standard errors to each side; all clipped to 0 and 1."""
    value = CHANCE + own.value - control.value
    low, high = value - reach * standard_error, value + reach * standard_error
    if standard_error <= SAME or min(own.sizes) < FEW_ON_A_SIDE:  # the resamples say too little
        sides = [_simultaneous_area(one, reach, float(np.nanstd(one.draws)), level, method) for one in (own, control)]
        low, high = wider((low, high), tuple(CHANCE + end for end in square_and_add(*sides)))  # type: ignore[arg-type]
    value, low, high = (min(max(float(number), 0.0), 1.0) for number in (value, low, high))
    return replace(own.auc, value=value, low=low, high=high, method=method)


def best_of(areas: Mapping[str, JointArea]) -> BestAttack | None:
    """Return the attack whose AUC interval lies farthest from chance, on either side; None if no attack has an AUC."""
    if not areas:
        return None
    ends = {name: (found.auc.low or 0.0, 1.0 if found.auc.high is None else found.auc.high)
            for name, found in areas.items()}  # fmt: skip

    def distance(name: str) -> tuple[float, float]:
        """Return the sort key of an attack's name: how far its interval lies from chance, then how far its value
        does."""
        low, high = ends[name]
        return distance_from_chance(low, high), abs((areas[name].auc.value or 0.0) - CHANCE)

    best = max(areas, key=distance)
    intervals = {name: [low, high] for name, (low, high) in ends.items()}
    return BestAttack(attack=best, num_attacks=len(areas), auc=areas[best].auc, intervals=intervals)


# --------------------------------------------------------------------------------------------------------------- sides
#
# The rate of members, the rate of held-out individuals, and their difference: the form of nearly every measure.


#: (numerator, denominator, codes) of a rate: float arrays with one entry an individual, and the individuals' codes,
#: which an interval needs to resample households.
Counts = tuple[np.ndarray, ...]


def excess_of(
    members: Counts,
    heldout: Counts,
    *,
    limit: float | None = 1.0,
    signed: bool = False,
    **bootstrap: Unpack[Bootstrap],
) -> Excess:
    """Return the rate of members, the rate of held-out individuals, and their difference, with intervals. Each side is
    given as three arrays over its individuals: numerator, denominator, code.

    ``limit`` and ``signed`` have the meaning that they have in `ratio_estimate`.
    """
    return Excess(
        members=ratio_estimate(*members, limit=limit, signed=signed, **bootstrap),
        heldout=ratio_estimate(*heldout, limit=limit, signed=signed, **bootstrap),
        excess=ratio_difference(members, heldout, limit=limit, signed=signed, **bootstrap),
    )


def two_sides(
    values: np.ndarray,
    individuals: np.ndarray,
    is_member: np.ndarray,
    *,
    limit: float | None,
    kept: np.ndarray | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> Excess:
    """Return the mean of the documents' ``values`` over members, over held-out individuals, and the difference of these
    means, with intervals clustered by individual.

    Parameters
    ----------
    values : float array, shape (D,), one value for each document
    individuals : integer array, shape (D,)
    is_member : bool array, shape (D,)
    kept : bool array by code of the individual, False for those left out of ``without_copies`` because of near-copies;
        None: it is not given
    """

    def sums(is_on_side: np.ndarray) -> Counts:
        """Return three arrays with one entry for each individual who has a document in the mask: sum of the documents'
        ``values``, number of documents, code."""
        codes, row = np.unique(individuals[is_on_side], return_inverse=True)
        row = row.reshape(-1)
        totals = np.bincount(row, weights=values[is_on_side], minlength=len(codes))
        return totals, np.bincount(row, minlength=len(codes)).astype(np.float64), codes

    members = sums(is_member)
    found = excess_of(members, sums(~is_member), limit=limit, **bootstrap)
    if kept is None:
        return found
    without = ratio_difference(members, sums(~is_member & kept[individuals]), limit=limit, **bootstrap)
    return replace(found, without_copies=without)
