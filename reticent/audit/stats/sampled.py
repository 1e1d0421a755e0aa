"""Shares and totals of a corpus from a stratified sample of its documents, with intervals that hold where little is
missed.

A document of stratum h stands for N_h / n_h of them (Horvitz and Thompson), a share is a ratio of two such totals. The
residual of a document is that from the mean of its stratum, shrunk by the share of the stratum that was drawn; the
residuals of one individual's documents are added before they are squared, and the larger of that variance and of the
one of single documents is taken. So a sample of every document has no error, and documents of one individual are no
independent evidence.

Neither a normal interval nor a bootstrap holds where a sample misses little: both are too narrow, or of no width. Here

- a *share* has the interval of Clopper and Pearson at the effective sample size [@korn1998], value · (1 - value) /
  variance, with their correction for few degrees of freedom. No share is known better than by as many independent
  things as were seen.
- a *total* has the gamma interval of weighted sums of counts [@fay1997].
- The far end of both (of what is rare, its upper end) adds one more individual, as the exact intervals add one more
  event: one that counts as much as the largest that was seen (:meth:`Drawn.step`).

Cost: O(documents drawn) for each estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from reticent.audit.stats.estimate import LEVEL, Estimate

__all__ = ["Drawn", "sampled_share", "sampled_total"]

SHARE = "Clopper-Pearson at the effective sample size, over individuals"
TOTAL = "gamma interval of a weighted total, over individuals"
ALL = "every document was drawn"
_TAIL = (1 - LEVEL) / 2


@dataclass(frozen=True)
class Drawn:
    """The documents of a stratified sample, as arrays over them.

    Attributes
    ----------
    individual, stratum : int64, shape (D,)
    sizes : int64, shape (H,)
        Documents of the corpus in each stratum; of every stratum that has any, at least one is drawn.
    """

    individual: np.ndarray
    stratum: np.ndarray
    sizes: np.ndarray

    @cached_property
    def drawn(self) -> np.ndarray:
        """Documents drawn of each stratum, int64, shape (H,)."""
        return np.bincount(self.stratum, minlength=len(self.sizes))

    @cached_property
    def weight(self) -> np.ndarray:
        """How many documents of the corpus each one stands for, float64, shape (D,)."""
        return self.sizes[self.stratum] / self.drawn[self.stratum]

    @cached_property
    def error_weight(self) -> np.ndarray:
        """The same without those that were seen: the weight of a document's residual in the error, shape (D,)."""
        unseen = 1 - self.drawn[self.stratum] / self.sizes[self.stratum]
        return self.weight * np.sqrt(unseen)

    @property
    def is_whole(self) -> bool:
        """Whether every document of the corpus is among these."""
        return bool(np.array_equal(self.drawn, self.sizes))

    def by_individual(self, values: np.ndarray) -> np.ndarray:
        """Sum the values of each individual's documents."""
        return np.bincount(self.individual, weights=values)

    def step(self, rare: np.ndarray, whole: np.ndarray, crowd: float, *, at_most: str) -> float:
        """Return how much the next individual may have of what is rare, weighted.

        As much as the largest seen; as the individual with the largest ``whole`` would have, were as much of it rare as
        of those seen that have any; at least one thing; and at least ``crowd``, but no more than an individual has in
        all: the one of an average thing ("typical"), or the one that has most ("largest"). Where nothing was seen and
        nothing is known of crowds, it is all that the one of an average thing has.
        """
        own = self.by_individual(self.error_weight * whole)
        seen = self.by_individual(self.error_weight * rare)
        one, most = float(self.error_weight.max()), float(own.max())
        typical = float((own**2).sum() / own.sum()) if most else 0.0
        if not seen.any() and not crowd:
            return max(one, typical)
        known = min(crowd, typical if at_most == "typical" else most)
        crowded = float((seen**2 / np.maximum(own, 1e-300)).sum() / seen.sum()) if seen.any() else 0.0
        return max(float(seen.max()), crowded * most, one, known)

    def variance(self, values: np.ndarray) -> float:
        """Variance of the estimated total of a value of each document."""
        n = self.drawn[self.stratum]
        means = np.bincount(self.stratum, weights=values, minlength=len(self.sizes))[self.stratum] / n
        # One document alone in its stratum has no mean beside it: its whole value counts.
        residual = np.where(n > 1, (values - means) * np.sqrt(n / np.maximum(n - 1, 1)), values)
        residual = self.error_weight * residual
        return float(max((residual**2).sum(), (self.by_individual(residual) ** 2).sum()))


def sampled_share(drawn: Drawn, part: np.ndarray, whole: np.ndarray, *, crowd: float = 0.0) -> Estimate:
    """Return sum(part) / sum(whole) of the corpus, from one entry a document drawn.

    Parameters
    ----------
    part, whole : float64, shape (D,)
        Counts of each document, ``part`` at most ``whole``.
    crowd : float
        The least that the next individual is taken to have of what is rare, weighted; never more than the largest
        ``whole`` of an individual.
    """
    n = int((drawn.by_individual(whole) > 0).sum())
    total = float((drawn.weight * whole).sum())
    if n == 0:
        return Estimate(value=None, n=0, method="no individual has any")
    value = min(1.0, float((drawn.weight * part).sum()) / total)
    if drawn.is_whole:
        return Estimate(value=value, low=value, high=value, n=n, method=ALL)
    if n == 1:
        return Estimate(value=value, low=0.0, high=1.0, n=n, method="one individual: no interval")
    rare = part if value < 0.5 else whole - part
    share = min(value, 1 - value)
    # As a jackknife would: a document that holds much of the whole hides its own residual.
    held = np.minimum(drawn.weight * whole / total, 1 - 1e-9)
    variance = max(
        drawn.variance((rare - share * whole) / (1 - held)) / total**2,
        float((drawn.error_weight**2 * whole).sum()) / total**2 * share * (1 - share),
    )
    variance *= float(stats.t.ppf(_TAIL, n - 1) / stats.norm.ppf(_TAIL)) ** 2
    low = 0.0
    if share > 0:
        size = share * (1 - share) / variance
        low = float(stats.beta.ppf(_TAIL, size * share, size * (1 - share) + 1))
    step = drawn.step(rare, whole, crowd, at_most="typical") / total
    upper = (share + step) / (1 + step)
    size = upper * (1 - upper) * (1 + step) ** 2 / (variance + step**2) - 1
    high = float(stats.beta.ppf(1 - _TAIL, upper * size, (1 - upper) * size)) if size > 0 else 1.0
    low, high = (low, high) if value < 0.5 else (1 - high, 1 - low)
    return Estimate(value=value, low=low, high=high, n=n, method=SHARE)


def sampled_total(drawn: Drawn, counts: np.ndarray, whole: np.ndarray, *, crowd: float = 0.0) -> Estimate:
    """Return sum(counts) of the corpus, from one entry a document drawn; never less than what was seen.

    Parameters
    ----------
    counts, whole : float64, shape (D,)
        Of all things of a document, those that are counted.
    crowd : float
        As in `sampled_share`.
    """
    seen = float(counts.sum())
    value = float((drawn.weight * counts).sum())
    n = len(np.unique(drawn.individual))
    if drawn.is_whole:
        return Estimate(value=value, low=value, high=value, n=n, method=ALL)
    # Of counts without spread between documents there is still that of Poisson.
    variance = max(drawn.variance(counts), float((drawn.error_weight**2 * counts).sum()))
    variance *= float(stats.t.ppf(_TAIL, max(n - 1, 1)) / stats.norm.ppf(_TAIL)) ** 2
    low = variance / (2 * value) * float(stats.chi2.ppf(_TAIL, 2 * value**2 / variance)) if seen else 0.0
    step = drawn.step(counts, whole, crowd, at_most="largest")
    upper, spread = value + step, variance + step**2
    high = spread / (2 * upper) * float(stats.chi2.ppf(1 - _TAIL, 2 * upper**2 / spread))
    return Estimate(value=value, low=max(low, seen), high=max(high, value), n=n, method=TOTAL)
