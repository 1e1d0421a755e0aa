"""Statistics: rates, curves and intervals with the individual as the unit.

Documents of one individual are not independent, so every interval resamples individuals. A zero is never shown
without its upper bound, and no true-positive rate is given at a false-positive rate that too few non-members can
resolve.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from scipy import stats

__all__ = [
    "Estimate",
    "auc_estimate",
    "clopper_pearson",
    "exposure",
    "one_run_epsilon",
    "ratio_difference",
    "ratio_estimate",
    "roc_curve",
    "tpr_at_fpr",
]

LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its two-sided 95 % interval; ``n`` counts ``unit``."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int
    unit: str = "individuals"
    method: str = "bootstrap over individuals"
    level: float = LEVEL

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def clopper_pearson(
    successes: int, trials: int, *, level: float = LEVEL, one_sided: bool = False
) -> tuple[float, float]:
    """Return the exact binomial interval; one-sided gives (0, upper bound).

    >>> round(clopper_pearson(0, 299, one_sided=True)[1], 5)
    0.00997
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"expected 0 <= successes <= trials and trials >= 1, got {successes} of {trials}")
    tail = 1 - level if one_sided else (1 - level) / 2
    high = 1.0 if successes == trials else float(stats.beta.ppf(1 - tail, successes + 1, trials - successes))
    low = 0.0 if successes == 0 or one_sided else float(stats.beta.ppf(tail, successes, trials - successes + 1))
    return low, high


def resample(num: int, num_bootstrap: int, seed: int) -> np.ndarray:
    """Return how often each of ``num`` individuals stands in each resample, float64 (num_bootstrap, num)."""
    random = np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), num]))
    return random.multinomial(num, np.full(num, 1.0 / num), size=num_bootstrap).astype(np.float64)


def ratio_estimate(
    numerator: np.ndarray,
    denominator: np.ndarray,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    unit: str = "individuals",
) -> Estimate:
    """Return sum(numerator) / sum(denominator), one entry an individual, with a percentile bootstrap interval.

    A rate of exactly 0 or 1 has no spread to resample; its far bound is Clopper-Pearson's over the individuals that
    have a denominator.
    """
    kept = denominator > 0
    numerator, denominator = numerator[kept].astype(np.float64), denominator[kept].astype(np.float64)
    n = len(denominator)
    if n == 0:
        return Estimate(value=None, n=0, unit=unit, method="no individual has any")
    value = float(numerator.sum() / denominator.sum())
    if value <= 0 or (np.isclose(value, 1.0) and np.allclose(numerator, denominator)):
        bound = clopper_pearson(0, n, one_sided=True)[1]
        low, high = (0.0, bound) if value <= 0 else (1 - bound, 1.0)
        return Estimate(
            value=value, low=low, high=high, n=n, unit=unit, method="Clopper-Pearson over individuals, one-sided"
        )
    weights = resample(n, num_bootstrap, seed)
    draws = (weights @ numerator) / np.maximum(weights @ denominator, 1e-300)
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value=value, low=float(low), high=float(high), n=n, unit=unit)


def ratio_difference(
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Return the difference of two ratios of independent sets of individuals, each (numerator, denominator)."""
    draws, values, n = [], [], 0
    for number, (numerator, denominator) in enumerate((first, second)):
        kept = denominator > 0
        a, b = numerator[kept].astype(np.float64), denominator[kept].astype(np.float64)
        if len(b) == 0:
            return Estimate(value=None, n=0, method="one side has no individual")
        weights = resample(len(b), num_bootstrap, seed + number)
        draws.append((weights @ a) / np.maximum(weights @ b, 1e-300))
        values.append(float(a.sum() / b.sum()))
        n += len(b)
    low, high = np.quantile(draws[0] - draws[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if low == high:  # neither side has spread: both rates are 0 or 1
        bounds = [clopper_pearson(0, int((d[1] > 0).sum()), one_sided=True)[1] for d in (first, second)]
        low, high = values[0] - values[1] - bounds[1], values[0] - values[1] + bounds[0]
    return Estimate(value=values[0] - values[1], low=float(low), high=float(high), n=n)


def roc_curve(members: np.ndarray, nonmembers: np.ndarray, *, max_points: int = 200) -> dict[str, list[float]]:
    """Return false- and true-positive rates of all thresholds (thinned to ``max_points``), from (0, 0) to (1, 1)."""
    thresholds = np.unique(np.concatenate([members, nonmembers]))[::-1]
    fpr = np.concatenate([[0.0], 1 - np.searchsorted(np.sort(nonmembers), thresholds, side="left") / len(nonmembers)])
    tpr = np.concatenate([[0.0], 1 - np.searchsorted(np.sort(members), thresholds, side="left") / len(members)])
    if len(fpr) > max_points:
        keep = np.unique(np.linspace(0, len(fpr) - 1, max_points).astype(int))
        fpr, tpr = fpr[keep], tpr[keep]
    return {"fpr": [round(float(x), 6) for x in fpr], "tpr": [round(float(x), 6) for x in tpr]}


def auc_estimate(members: np.ndarray, nonmembers: np.ndarray, *, num_bootstrap: int = 1000, seed: int = 0) -> Estimate:
    """Return the area under the ROC curve (ties count half), with a bootstrap over both sets of individuals."""
    wins = _wins(members, nonmembers)
    value = float(wins.mean())
    weights_m = resample(len(members), num_bootstrap, seed)
    weights_n = resample(len(nonmembers), num_bootstrap, seed + 1)
    draws = np.einsum("bm,bm->b", weights_m @ wins, weights_n) if wins.size else np.empty(0)
    draws /= len(members) * len(nonmembers)
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value=value, low=float(low), high=float(high), n=len(members) + len(nonmembers))


def _wins(members: np.ndarray, nonmembers: np.ndarray, limit: int = 4_000) -> np.ndarray:
    """1, 0.5 or 0 for each pair; very large sides are thinned evenly by rank, which keeps the curve's shape."""

    def thin(scores: np.ndarray) -> np.ndarray:
        if len(scores) <= limit:
            return scores
        raise ValueError(
            f"auc_estimate: at most {limit} individuals a side, got {len(scores)}; sample individuals first"
        )

    members, nonmembers = thin(members)[:, None], thin(nonmembers)[None, :]
    return (members > nonmembers) + 0.5 * (members == nonmembers)


def tpr_at_fpr(
    members: np.ndarray, nonmembers: np.ndarray, fpr: float, *, num_bootstrap: int = 1000, seed: int = 0
) -> Estimate | None:
    """Return the share of members above all but ``fpr`` of the non-members; None with fewer than 10 / fpr of them."""
    if len(nonmembers) < 10 / fpr:
        return None
    random = np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), 7]))
    value = _tpr(members, nonmembers, fpr)
    draws = [
        _tpr(random.choice(members, len(members)), random.choice(nonmembers, len(nonmembers)), fpr)
        for _ in range(num_bootstrap)
    ]
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if value == 0:
        high = max(float(high), clopper_pearson(0, len(members), one_sided=True)[1])
    return Estimate(value=value, low=float(low), high=float(high), n=len(members) + len(nonmembers))


def _tpr(members: np.ndarray, nonmembers: np.ndarray, fpr: float) -> float:
    allowed = int(fpr * len(nonmembers))
    threshold = np.partition(nonmembers, len(nonmembers) - 1 - allowed)[len(nonmembers) - 1 - allowed]
    return float(np.mean(members > threshold))


def exposure(canary_score: float, reference_scores: np.ndarray) -> float:
    """Return log2|R| - log2(rank of the canary among the references), a higher score being better memorised.

    A canary that ties stands in the middle of its ties; one below every reference has rank |R| + 1.

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
    """Return the empirical lower bound on epsilon from one training run (Steinke et al. 2023); say "at least".

    ``num_canaries`` were included by fair coins; of ``num_guesses`` guesses ``num_right`` were right.

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
