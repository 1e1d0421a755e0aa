"""`Estimate`: a number with its interval, and the form in which it is published if it is over few individuals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Annotated, Literal

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import NAME, PARTS, SETTING, TOGETHER, TOTAL

# ------------------------------------------------------------------------------------------------------------ binomial
#
# The exact interval of a share.


#: Confidence level of every interval.
LEVEL = 0.95
#: The area under the ROC curve of an attack without any information.
CHANCE = 0.5


def distance_from_chance(low: float, high: float) -> float:
    """Return how far the interval (low, high) of an AUC lies from 0.5, on either side; negative if it covers 0.5."""
    return max(low - CHANCE, CHANCE - high)


def clopper_pearson(
    successes: int, trials: int, *, level: float = LEVEL, one_sided: bool = False
) -> tuple[float, float]:
    """Return the exact (low, high) interval of a binomial proportion [@clopper1934]; one-sided gives (0, upper bound).

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


BOOTSTRAP = "bootstrap over individuals"
EXACT = "Clopper-Pearson over individuals, one-sided"
TIED = "Clopper-Pearson over individuals, of equal scores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The spread over several trainings of one recipe: their number, lowest and highest value, standard deviation."""

    n: Annotated[int, TOTAL]
    low: Annotated[float, TOTAL]
    high: Annotated[float, TOTAL]
    sd: Annotated[float, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its two-sided 95 % interval; ``n`` counts ``unit``.

    ``num_households`` is set if the interval resamples households: these ``n`` individuals are of so many.
    ``value`` is None if there is nothing to estimate. ``n`` is None if the estimate was withheld for publication. If
    ``bound`` is set, the exact value would reveal a small count: the value is then an upper bound ("below") or a lower
    bound ("above"). ``seeds`` is set if the estimate is a mean over trainings.
    """

    value: Annotated[float | None, TOGETHER]
    low: Annotated[float | None, TOGETHER] = None
    high: Annotated[float | None, TOGETHER] = None
    n: Annotated[int | None, TOGETHER]
    num_households: Annotated[int | None, TOGETHER] = optional()
    unit: Annotated[str, SETTING] = "individuals"
    method: Annotated[str, NAME] = BOOTSTRAP
    level: Annotated[float, SETTING] = LEVEL
    bound: Annotated[Literal["above", "below"] | None, SETTING] = optional()
    seeds: Annotated[Spread | None, PARTS] = optional()

    @property
    def num_resampled(self) -> int:
        """Number of households (or, without these, individuals) that the interval's bootstrap resamples; 0 if
        withheld."""
        return self.num_households or self.n or 0

    def over_households(self, num_individuals: int) -> Estimate:
        """Return the estimate with the number of individuals as ``n``, given as ``num_individuals``. The present ``n``,
        a number of households, moves to ``num_households``."""
        num_individuals = num_individuals if self.n else 0  # nothing to estimate
        return replace(
            self, n=num_individuals, num_households=self.n, method=self.method.replace("individual", "household")
        )

    def widened(self, below: float, above: float, lowest: float = 0.0) -> Estimate:
        """Return the estimate with a wider interval: the half below the value by an independent error ``below``, the
        half above by ``above`` (root of the sum of squares), clipped to ``lowest`` and 1."""
        if self.value is None or self.low is None or self.high is None:
            return self
        low = self.value - math.hypot(self.value - self.low, max(below, 0.0))
        high = self.value + math.hypot(self.high - self.value, max(above, 0.0))
        return replace(self, low=max(low, lowest), high=min(high, 1.0))

    def withhold_small_counts(self, raw: Estimate, cell: int) -> Estimate:
        """Return a publishable copy of the estimate, with the numbers of the unpublished ``raw``, or without numbers if
        only 1 to ``cell`` - 1 individuals or households are behind them."""
        kept = replace(self, value=raw.value, low=raw.low, high=raw.high, n=raw.n, num_households=raw.num_households)
        return kept.withheld(cell) if 0 < raw.num_resampled < cell else kept

    def withheld(self, cell: int) -> Estimate:
        """Return the estimate with all its numbers removed, because fewer than ``cell`` individuals or households are
        behind them."""
        return replace(self, value=None, low=None, high=None, n=None, num_households=None, method=f"fewer than {cell}")

    def bounded(self, value: float, side: Literal["above", "below"], total: int | None = None) -> Estimate:
        """Return the estimate with a bound, ``value``, in place of its exact value, which would reveal a small count.
        ``side`` says whether the exact value is "above" or "below" the bound.

        The interval would reveal it too. With ``total``, of which ``value`` is a share, it is that of the bound itself,
        so all small counts have the same interval.
        """
        if total is not None:
            if self.num_households and self.n:  # trials are households, as in the interval itself
                total = max(1, total * self.num_households // self.n)
            low, high = clopper_pearson(round(value * total), total)
        else:
            low, high = (value if end is None else end for end in (self.low, self.high))
            low, high = min(low, value), max(high, value)
        low, high = (low, 1.0) if side == "above" else (0.0, high)
        return replace(self, value=value, low=low, high=high, bound=side)

    def as_share(self, total: int | None, cell: int) -> Estimate:
        """Return a publishable share of ``total`` individuals: a bound replaces it if it counts only 1 to ``cell`` - 1
        individuals, or all but so few."""
        if self.value is None or not total:
            return self
        # A rate over passages (an individual has several) can be positive and still less than one individual's share.
        count = round(self.value * total)
        if self.value > 0 and count < cell:
            return self.bounded(min(cell / total, 1.0), "below", total)
        if self.value < 1 and total - count < cell:
            return self.bounded(max(1 - cell / total, 0.0), "above", total)
        return self


def simultaneous(estimate: Estimate, num: int, already: int = 1) -> Estimate:
    """Return the estimate with its interval widened, by normal quantiles, so that it holds simultaneously with the
    intervals of ``num`` - 1 other estimates (Bonferroni).

    ``already``: the interval is simultaneous for so many numbers already, and shall be for ``num`` such families.
    """
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    now, then = (NormalDist().inv_cdf(1 - (1 - LEVEL) / (2 * tests)) for tests in (already, num * already))
    wider = then / now
    value, below, above = estimate.value, estimate.value - estimate.low, estimate.high - estimate.value
    return replace(estimate, low=value - wider * below, high=value + wider * above)
