"""Evidence of an annotated sample: the share of identifiers that detectors find, and the number that they miss."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import COUNT, OVER_INDIVIDUALS, PARTS, PRIVATE, SETTING, TOTAL
from reticent.audit.stats.estimate import Estimate

#: With fewer individuals than this, bounds may fail if one outside the sample has far more items than any in it.
FEW_INDIVIDUALS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledIdentifiers:
    """Identifiers of one category, or of all categories; every mention counts.

    ``recall`` is the share that detection protects whole, ``unprotected`` the number that it does not, both over all
    documents of the run. The last two fields count individuals of the sample with an unprotected identifier, and with
    a protected one.
    """

    marked: Annotated[int | None, COUNT]
    recall: Annotated[Estimate, OVER_INDIVIDUALS]
    unprotected: Annotated[Estimate, OVER_INDIVIDUALS]
    individuals_missed: Annotated[int | None, PRIVATE]
    individuals_found: Annotated[int | None, PRIVATE]

    def withhold_small_counts(self, raw: SampledIdentifiers, cell: int) -> SampledIdentifiers:
        """Return publishable recall and number of missed identifiers: bounds if identifiers were missed, or found, in
        only 1 to ``cell`` - 1 individuals. ``raw`` has the unpublished figures."""
        if self.recall.value is None:  # withheld, or nothing was measured
            return replace(self, unprotected=self.unprotected.withheld(cell)) if raw.recall.n else self
        return self.as_bounds(raw) if raw.is_few(cell) else self

    def is_few(self, cell: int) -> bool:
        """Return whether identifiers were missed, or found, in only 1 to ``cell`` - 1 sampled individuals; False for
        published figures, which lack these counts."""
        return any(0 < (count or 0) < cell for count in (self.individuals_missed, self.individuals_found))

    def as_bounds(self, unpublished: SampledIdentifiers) -> SampledIdentifiers:
        """Return these figures with bounds in place of the recall and of the number of missed identifiers: the ends of
        their confidence intervals in ``unpublished``, rounded outwards."""
        most = _rounded_up(unpublished.unprotected.high or 0.0)
        if (unpublished.recall.value or 0.0) < 0.5:
            recall = self.recall.bounded(math.ceil((unpublished.recall.high or 0.0) * 100) / 100, "below")
        else:
            recall = self.recall.bounded(math.floor((unpublished.recall.low or 0.0) * 100) / 100, "above")
        unprotected = replace(self.unprotected, value=most, low=0.0, high=most, bound="below")
        low, high = (recall.low, recall.value) if recall.bound == "below" else (recall.value, recall.high)
        return replace(self, recall=replace(recall, low=low, high=high), unprotected=unprotected)


def _rounded_up(value: float) -> float:
    """Return a number rounded up to two significant digits.

    >>> [_rounded_up(value) for value in (0.0, 7.2, 431.0, 12901.0)]
    [0.0, 8.0, 440.0, 13000.0]
    """
    step = 10 ** max(0, math.floor(math.log10(value)) - 1) if value > 0 else 1
    return float(math.ceil(value / step) * step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of two annotators: on spans (2 · common / all of both), equal or overlapping with the same category;
    and on the category of each word, by Cohen's kappa and Krippendorff's alpha."""

    exact: Annotated[Estimate, OVER_INDIVIDUALS]
    partial: Annotated[Estimate, OVER_INDIVIDUALS]
    kappa: Annotated[Estimate, OVER_INDIVIDUALS]
    alpha: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRecall:
    """Recall in a sample of documents, weighted to the ``corpus_documents`` that the sample was drawn from.

    ``all_reviewed`` is true where documents without a changed mark count as reviewed by the user's word alone.
    """

    documents: Annotated[int, TOTAL]
    corpus_documents: Annotated[int, TOTAL]
    individuals: Annotated[int | None, COUNT]
    strata: Annotated[int, SETTING]
    annotators: Annotated[int, SETTING]
    overall: Annotated[SampledIdentifiers, PARTS]
    categories: Annotated[dict[str, SampledIdentifiers], PARTS]
    agreement: Annotated[Agreement | None, PARTS] = optional()
    all_reviewed: Annotated[bool | None, SETTING] = optional()

    @property
    def rows_over_few(self) -> dict[str, int]:
        """Number of sampled individuals behind the recall of each category of identifiers, for categories with fewer
        than 20; "all" stands for all categories together."""
        rows = {"all": self.overall, **self.categories}
        numbers = {name: row.recall.n for name, row in rows.items() if row.recall.value is not None}
        return {name: n for name, n in numbers.items() if n is not None and n < FEW_INDIVIDUALS}

    def withhold_small_counts(self, raw: SampledRecall, cell: int) -> SampledRecall:
        """Return publishable recall by category: bounds for categories with few individuals, and for further ones if
        those could be found by subtraction from the total. ``raw`` has the unpublished recall.

        Small categories are bounded together with the next larger ones, as the overall number minus the exact ones
        would reveal them. Without larger ones, the overall number is a bound too.
        """
        few = [name for name, row in raw.categories.items() if row.is_few(cell) or _is_withheld(row, cell)]
        if not few:
            return self
        others = sorted(
            (name for name, row in raw.categories.items() if name not in few and row.individuals_missed),
            key=lambda name: (raw.categories[name].individuals_missed or 0, name),
        )
        while others and (len(few) < 2 or sum(raw.categories[name].individuals_missed or 0 for name in few) < cell):
            few.append(others.pop(0))
        rows = {
            name: row.as_bounds(raw.categories[name])
            if name in few and row.recall.value is not None and row.recall.bound is None
            else row
            for name, row in self.categories.items()
        }
        hidden = sum(raw.categories[name].individuals_missed or 0 for name in few)
        overall = self.overall
        if (len(few) < 2 or hidden < cell) and hidden and overall.recall.value is not None:
            overall = overall.as_bounds(raw.overall)
        return replace(self, categories=rows, overall=overall)


def _is_withheld(row: SampledIdentifiers, cell: int) -> bool:
    """Return whether only 1 to ``cell`` - 1 sampled individuals have an identifier of this category, so that none of
    its numbers is published."""
    return row.individuals_missed is not None and 0 < (row.recall.n or 0) < cell
