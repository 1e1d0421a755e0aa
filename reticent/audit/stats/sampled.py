"""Shares and totals of a corpus from a stratified sample of its documents, with intervals that stay valid if the sample
misses little.

A document drawn from stratum h represents N_h / n_h documents (Horvitz and Thompson). A share is a ratio of two such
totals. The residual of a document is its distance from the mean of its stratum, shrunk by the share of the stratum that
was drawn. The residuals of one individual's documents are added before they are squared. The variance is the larger of
this one and the variance over single documents. So a sample of every document has no error, and the documents of one
individual do not count as independent evidence.

If a sample misses little, a normal interval and a bootstrap are both too narrow, or have no width. So:

- a *share* has the interval of Clopper and Pearson at the effective sample size [@korn1998], value · (1 - value) /
  variance, with their correction for few degrees of freedom. The effective size is at most the number of items seen.
- a *total* has the gamma interval of weighted sums of counts [@fay1997].
- The far end of both (the upper end for a rare event) adds one more individual, as exact intervals add one more event,
  and as bounds of a mean that hold for any distribution add one more value at its limit [@learnedmiller2019]. This
  individual counts as much as the largest in the sample, and at least as three quarters of a typical one, because
  those who hold most misses may all be outside of the sample (:meth:`Drawn.step`).

Cost: O(documents drawn) for each estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from reticent.audit.stats.estimate import LEVEL, Estimate
from reticent.audit.stats.intervals import LEAST_SHARE

SHARE = "Clopper-Pearson at the effective sample size, over individuals"
TOTAL = "gamma interval of a weighted total, over individuals"
ALL = "every document was drawn"
_TAIL = (1 - LEVEL) / 2


@dataclass(frozen=True)
class Drawn:
    """The documents of a stratified sample: arrays of the individual, stratum and household of each.

    Attributes
    ----------
    individual, stratum : int64, shape (D,)
    household : int64, shape (D,), or None
        The household of each document's individual; residuals are summed over households. None: over individuals.
    sizes : int64, shape (H,)
        Documents of the corpus in each stratum. At least one is drawn from every stratum that has any.
    """

    individual: np.ndarray
    stratum: np.ndarray
    sizes: np.ndarray
    household: np.ndarray | None = None

    @cached_property
    def drawn(self) -> np.ndarray:
        """Number of documents drawn from each stratum, int64, shape (H,)."""
        return np.bincount(self.stratum, minlength=len(self.sizes))

    @cached_property
    def weight(self) -> np.ndarray:
        """Number of corpus documents that each drawn document represents, float64, shape (D,)."""
        return self.sizes[self.stratum] / self.drawn[self.stratum]

    @cached_property
    def error_weight(self) -> np.ndarray:
        """Weight of each sampled document in the standard error of an estimate, float64 (D,): the number of corpus
        documents it represents, times the root of the finite population correction."""
        unseen = 1 - self.drawn[self.stratum] / self.sizes[self.stratum]
        return self.weight * np.sqrt(unseen)

    @property
    def is_whole(self) -> bool:
        """Whether every document of the corpus was drawn."""
        return bool(np.array_equal(self.drawn, self.sizes))

    def by_individual(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of ``values`` over each individual's documents, float64."""
        return np.bincount(self.individual, weights=values)

    def by_unit(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of ``values`` over the documents of each household, or of each individual without households;
        float64."""
        return np.bincount(self.individual if self.household is None else self.household, weights=values)

    def over_individuals(self, estimate: Estimate, num_items: np.ndarray) -> Estimate:
        """Return an estimate over households with the number of individuals as its ``n``: those with an item in
        ``num_items`` (counts by document). Without households it is returned unchanged."""
        if self.household is None:
            return estimate
        return estimate.over_households(int((self.by_individual(num_items) > 0).sum()))

    def step(self, num_rare: np.ndarray, num_items: np.ndarray, crowd: float, *, at_most: str) -> float:
        """Return the largest number of rare items (such as missed identifiers) by which one more individual, outside of
        the sample, could raise the estimate for the corpus.

        If no rare item was seen, the bound is the number of items of the individual of an average item ("typical"):
        then the far end is the exact one of Clopper and Pearson over individuals. Otherwise it is the largest of five
        numbers: the largest sum of rare items seen in an individual; the ``num_items`` of the individual that has most,
        times the share that is rare among individuals who have any; one item; three quarters of the typical number;
        and ``crowd``. ``crowd`` is cut at the items of the typical individual ("typical") or of the one that has most
        ("largest").
        """
        own = self.by_unit(self.error_weight * num_items)
        seen = self.by_unit(self.error_weight * num_rare)
        one, most = float(self.error_weight.max()), float(own.max())
        typical = float((own**2).sum() / own.sum()) if most else 0.0
        if not seen.any():
            return max(one, typical)
        crowded = float((seen**2 / np.maximum(own, 1e-300)).sum() / seen.sum())
        known = min(crowd, typical if at_most == "typical" else most)
        return max(float(seen.max()), crowded * most, one, LEAST_SHARE * typical, known)

    def variance(self, values: np.ndarray) -> float:
        """Return the variance of the estimated corpus total of ``values``, which has one value for each sampled
        document, float64 (D,)."""
        n = self.drawn[self.stratum]
        means = np.bincount(self.stratum, weights=values, minlength=len(self.sizes))[self.stratum] / n
        # The mean of a stratum with one document is that document, so its whole value counts as the residual.
        residual = np.where(n > 1, (values - means) * np.sqrt(n / np.maximum(n - 1, 1)), values)
        residual = self.error_weight * residual
        return float(max((residual**2).sum(), (self.by_unit(residual) ** 2).sum()))


def sampled_share(drawn: Drawn, part: np.ndarray, whole: np.ndarray, *, crowd: float = 0.0) -> Estimate:
    """Return the share sum(part) / sum(whole) in the corpus with a 95 % interval, estimated from the counts in each
    document of a stratified random sample.

    Parameters
    ----------
    part, whole : float64, shape (D,)
        Counts in each document drawn; ``part`` is at most ``whole``.
    crowd : float
        Lower bound on the rare items assumed for one more individual, weighted, if any were seen. It is cut as
        :meth:`Drawn.step` says.
    """
    n = int((drawn.by_unit(whole) > 0).sum())
    total = float((drawn.weight * whole).sum())
    if n == 0:
        return Estimate(value=None, n=0, method="no individual has any")
    value = min(1.0, float((drawn.weight * part).sum()) / total)
    if drawn.is_whole:
        return drawn.over_individuals(Estimate(value=value, low=value, high=value, n=n, method=ALL), whole)
    if n == 1:
        found = Estimate(value=value, low=0.0, high=1.0, n=n, method="one individual: no interval")
        return drawn.over_individuals(found, whole)
    rare = part if value < 0.5 else whole - part
    share = min(value, 1 - value)
    # The correction of a jackknife: a document with a large share of the whole pulls the ratio towards itself.
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
    if share > 0:
        upper = (share + step) / (1 + step)
        size = upper * (1 - upper) * (1 + step) ** 2 / (variance + step**2) - 1
        high = float(stats.beta.ppf(1 - _TAIL, upper * size, (1 - upper) * size)) if size > 0 else 1.0
    else:  # Clopper and Pearson's of none among 1 / step individuals
        high = 1 - _TAIL**step
    low, high = (low, high) if value < 0.5 else (1 - high, 1 - low)
    return drawn.over_individuals(Estimate(value=value, low=low, high=high, n=n, method=SHARE), whole)


def sampled_total(drawn: Drawn, counts: np.ndarray, whole: np.ndarray, *, crowd: float = 0.0) -> Estimate:
    """Return the total of ``counts`` in the corpus with its 95 % interval, estimated from the sampled documents; never
    less than their sum in the sample.

    Parameters
    ----------
    counts, whole : float64, shape (D,)
        Items in each sampled document: those counted, and all of them.
    crowd : float
        As in `sampled_share`.
    """
    seen = float(counts.sum())
    value = float((drawn.weight * counts).sum())
    n, every = len(np.unique(drawn.individual if drawn.household is None else drawn.household)), np.ones(len(counts))
    if drawn.is_whole:
        return drawn.over_individuals(Estimate(value=value, low=value, high=value, n=n, method=ALL), every)
    # Counts that are equal in all documents still have the variance of a Poisson count.
    variance = max(drawn.variance(counts), float((drawn.error_weight**2 * counts).sum()))
    variance *= float(stats.t.ppf(_TAIL, max(n - 1, 1)) / stats.norm.ppf(_TAIL)) ** 2
    low = variance / (2 * value) * float(stats.chi2.ppf(_TAIL, 2 * value**2 / variance)) if seen else 0.0
    step = drawn.step(counts, whole, crowd, at_most="largest")
    upper, spread = value + step, variance + step**2
    high = spread / (2 * upper) * float(stats.chi2.ppf(1 - _TAIL, 2 * upper**2 / spread))
    return drawn.over_individuals(
        Estimate(value=value, low=max(low, seen), high=max(high, value), n=n, method=TOTAL), every
    )
