"""The exact interval of a share."""

from __future__ import annotations

__all__ = ["LEVEL", "clopper_pearson"]

#: Confidence level of every interval.
LEVEL = 0.95


def clopper_pearson(
    successes: int, trials: int, *, level: float = LEVEL, one_sided: bool = False
) -> tuple[float, float]:
    """Return the exact binomial interval [@clopper1934]; one-sided gives (0, upper bound).

    >>> round(clopper_pearson(0, 299, one_sided=True)[1], 5)
    0.00997
    """
    from scipy import stats

    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"expected 0 <= successes <= trials and trials >= 1, got {successes} of {trials}")
    # `scipy.stats.binomtest(...).proportion_ci` gives the same to 1e-12, but searches for the root: 2.5 ms instead of
    # 0.1 ms for these quantiles of scipy's beta distribution.
    tail = 1 - level if one_sided else (1 - level) / 2
    high = 1.0 if successes == trials else float(stats.beta.ppf(1 - tail, successes + 1, trials - successes))
    low = 0.0 if successes == 0 or one_sided else float(stats.beta.ppf(tail, successes, trials - successes + 1))
    return low, high
