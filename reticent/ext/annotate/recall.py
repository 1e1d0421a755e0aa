"""Detection recall estimated from an annotated sample: by category, and the number of identifiers missed in the whole
corpus.

Every occurrence of an identifier (a mention) counts. It is protected if detected spans touch every word of it, whatever
the label (:mod:`reticent.audit.detection`, "covered"): words are what is protected. The spans of several annotators are
united; overlapping ones of one category are one mention.

Estimates and intervals are those of :mod:`reticent.audit.stats.sampled`. How strongly misses cluster within an
individual is estimated from all categories together, for categories with few or no misses in the sample.

Agreement of two annotators, as of the Text Anonymization Benchmark [@pilan2022]: on spans, exact and partial, and on
words beyond chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

import numpy as np

from reticent.audit.detection import covered_mentions
from reticent.audit.evidence.sampled import Agreement, SampledIdentifiers, SampledRecall
from reticent.audit.stats.intervals import EXACT, Estimate, clopper_pearson, iter_resamples, ratio_estimate
from reticent.audit.stats.sampled import Drawn, sampled_share, sampled_total
from reticent.engine.detect.marks import Marks

Span = tuple[int, int, str]


class _Weighted(TypedDict):
    overall: SampledIdentifiers
    categories: dict[str, SampledIdentifiers]


def unite_spans(annotators: Sequence[Sequence[Span]]) -> list[Span]:
    """Return the union of several annotators' spans in one document. Spans that overlap are merged if they have the
    same label.

    >>> unite_spans([[(0, 4, "NAME"), (9, 12, "DATE")], [(2, 6, "NAME"), (0, 3, "DATE")]])
    [(0, 3, 'DATE'), (0, 6, 'NAME'), (9, 12, 'DATE')]
    """
    united: list[Span] = []
    for label, start, end in sorted({(label, start, end) for spans in annotators for start, end, label in spans}):
        if united and united[-1][2] == label and start < united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]), label)
        else:
            united.append((start, end, label))
    return sorted(united)


def weighted_recall(
    marks: Marks,
    stratum: np.ndarray,
    sizes: np.ndarray,
    *,
    household: np.ndarray | None = None,
    annotators: int = 1,
    agreement: Agreement | None = None,
) -> SampledRecall:
    """Return the recall of detection against annotated spans in a stratified sample, weighted to the whole corpus by
    ``sizes``, the number of corpus documents in each stratum. The number of ``annotators`` and their ``agreement`` are
    only copied to the result.

    Parameters
    ----------
    marks : Marks
        What annotators marked (gold) and detectors found, in the documents of the sample.
    stratum : int64, shape (documents,), of each of them
    sizes : int64, shape (strata,)
        Documents of the corpus in each stratum.
    household : as for `Drawn`
    """
    counts = mention_counts(marks)
    return SampledRecall(
        documents=len(marks.individual),
        corpus_documents=int(sizes.sum()),
        individuals=marks.num_individuals,
        strata=len(sizes),
        annotators=annotators,
        **weighted_identifiers(Drawn(marks.individual, stratum, sizes, household), counts),
        agreement=agreement,
    )


def mention_counts(marks: Marks) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Count the annotated mentions in each document. Return category -> (mentions that detection covers, all mentions),
    each float64 (documents,); equal spans count once.
    """
    gold, num = marks.gold, len(marks.individual)
    keys = np.stack([gold.document, gold.start, gold.end, gold.category])
    once = np.zeros(len(gold), dtype=bool)
    once[np.unique(keys, axis=1, return_index=True)[1]] = True
    covered = covered_mentions(marks)
    counts = {}
    for number, name in enumerate(marks.categories):
        own = once & (gold.category == number)
        if own.any():
            found = np.bincount(gold.document[own], weights=covered[own], minlength=num)
            counts[name] = (found, np.bincount(gold.document[own], minlength=num).astype(np.float64))
    return counts


def weighted_identifiers(drawn: Drawn, counts: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> _Weighted:
    """Estimate the recall of identifiers and the number missed in the whole corpus, overall and by category, from a
    stratified sample (``drawn``) and the `mention_counts` of its documents.
    """
    none = np.zeros(len(drawn.individual))
    found, marked = (sum((own[side] for own in counts.values()), none) for side in (0, 1))
    crowd = max((_largest_individual_count(drawn, own[1] - own[0]) for own in counts.values()), default=0.0)
    return {
        "overall": _estimate_identifiers(drawn, found, marked, _largest_individual_count(drawn, marked - found)),
        "categories": {name: _estimate_identifiers(drawn, *own, crowd) for name, own in counts.items()},
    }


def _largest_individual_count(drawn: Drawn, counts: np.ndarray) -> float:
    """Weight ``counts`` (one number for each sampled document) by the documents' weights in the standard error, sum
    them by individual, and return the largest sum.
    """
    return float(drawn.by_individual(drawn.error_weight * counts).max(initial=0.0))


def _estimate_identifiers(drawn: Drawn, found: np.ndarray, marked: np.ndarray, crowd: float) -> SampledIdentifiers:
    """Estimate the recall and the number of missed identifiers in the corpus from ``found`` and ``marked``, the numbers
    of annotated identifiers of each sampled document that were detected and that there are. ``crowd``, the largest
    number missed of one individual, widens the intervals.
    """
    missed = marked - found
    return SampledIdentifiers(
        marked=int(marked.sum()),
        recall=sampled_share(drawn, found, marked, crowd=crowd),
        unprotected=sampled_total(drawn, missed, marked, crowd=crowd),
        individuals_missed=int(np.count_nonzero(drawn.by_individual(missed))),
        individuals_found=int(np.count_nonzero(drawn.by_individual(found))),
    )


# ----------------------------------------------------------------------------------------------------------- agreement


def measure_agreement(
    first: Marks, second: Marks, words_of: np.ndarray, *, num_bootstrap: int = 1000, seed: int = 0
) -> Agreement:
    """Measure how far two annotators of the same documents agree: exact and partial spans, and Cohen's kappa and
    Krippendorff's alpha of words (``words_of``: number per document). Intervals are bootstrapped over individuals.

    Parameters
    ----------
    first, second : Marks
        Of one sequence of documents; the spans of each annotator are gold.
    words_of : int64, shape (documents,)
        Words of each document.
    """
    names = sorted({*first.categories, *second.categories})
    sides = [_distinct_spans(marks, names) for marks in (first, second)]
    individual, num = first.individual, first.num_individuals
    total = sum(np.bincount(individual[side[0]], minlength=num) for side in sides)

    def span_agreement(matched: Sequence[np.ndarray]) -> Estimate:
        """Return the share of both annotators' spans that the other annotator marked too, with a bootstrap interval.
        ``matched`` has for each annotator a bool array over their spans.
        """
        common = sum(
            np.bincount(individual[side[0]], weights=own, minlength=num)
            for side, own in zip(sides, matched, strict=True)
        )
        return ratio_estimate(np.asarray(common), np.asarray(total), num_bootstrap=num_bootstrap, seed=seed)

    pairs = [set(zip(*(part.tolist() for part in side), strict=True)) for side in sides]
    both = pairs[0] & pairs[1]
    exact = [np.array([key in both for key in zip(*(p.tolist() for p in side), strict=True)]) for side in sides]
    partial = [_overlapped(side, other) for side, other in (sides, sides[::-1])]
    tables = _contingency_tables(first, second, names, np.repeat(individual, words_of))
    return Agreement(
        exact=span_agreement(exact),
        partial=span_agreement(partial),
        kappa=_estimate_chance_corrected(tables, _kappa, num_bootstrap, seed),
        alpha=_estimate_chance_corrected(tables, _alpha, num_bootstrap, seed),
    )


def _distinct_spans(marks: Marks, categories: Sequence[str]) -> list[np.ndarray]:
    """Return four arrays with the document, start, end and category number of each distinct span. A category's number
    is its index in ``categories``.
    """
    numbers = np.array([categories.index(name) for name in marks.categories] or [0], dtype=np.int64)
    gold = marks.gold
    keys = np.stack([gold.document, gold.start, gold.end, numbers[gold.category]])
    return list(np.unique(keys, axis=1))


def _overlapped(spans: list[np.ndarray], others: list[np.ndarray]) -> np.ndarray:
    """Return whether each span overlaps a span of the same document and category among ``others``, bool."""
    shift = max(int(side[2].max(initial=0)) for side in (spans, others)) + 1
    starts, ends = np.sort(others[1] + others[3] * shift), np.sort(others[2] + others[3] * shift)
    begun = np.searchsorted(starts, spans[2] + spans[3] * shift, side="left")
    return begun > np.searchsorted(ends, spans[1] + spans[3] * shift, side="right")


def _contingency_tables(first: Marks, second: Marks, names: Sequence[str], owner: np.ndarray) -> np.ndarray:
    """Return for each individual the contingency table of the word categories that two annotators give: the named
    categories, and last "none"; float64 (individuals, categories, categories).
    """
    kinds = len(names) + 1
    codes = [np.full(marks.num_words, kinds - 1, dtype=np.int64) for marks in (first, second)]
    for marks, code in zip((first, second), codes, strict=True):
        for number in np.argsort(marks.categories)[::-1]:  # of several categories, the first name is written last
            steps = np.zeros(marks.num_words + 1, dtype=np.int64)
            own = marks.gold.category == number
            np.add.at(steps, marks.gold.first_word[own], 1)
            np.subtract.at(steps, marks.gold.end_word[own], 1)
            code[np.cumsum(steps[:-1]) > 0] = names.index(marks.categories[number])
    cells = (owner * kinds + codes[0]) * kinds + codes[1]
    return np.bincount(cells, minlength=first.num_individuals * kinds**2).reshape(-1, kinds, kinds).astype(np.float64)


def _kappa(tables: np.ndarray) -> np.ndarray:
    """Return Cohen's kappa of contingency tables, shape (…, categories, categories)."""
    shares = tables / tables.sum(axis=(-2, -1), keepdims=True)
    observed = np.trace(shares, axis1=-2, axis2=-1)
    chance = (shares.sum(axis=-1) * shares.sum(axis=-2)).sum(axis=-1)
    return (observed - chance) / (1 - chance)


def _alpha(tables: np.ndarray) -> np.ndarray:
    """Return Krippendorff's alpha of contingency tables: nominal categories, two annotators, no missing value."""
    totals = tables.sum(axis=-1) + tables.sum(axis=-2)
    num = totals.sum(axis=-1)
    observed = 1 - np.trace(tables, axis1=-2, axis2=-1) / (num / 2)
    expected = 1 - (totals * (totals - 1)).sum(axis=-1) / (num * (num - 1))
    return 1 - observed / expected


def _estimate_chance_corrected(
    tables: np.ndarray, measure: Callable[[np.ndarray], np.ndarray], num_bootstrap: int, seed: int
) -> Estimate:
    """Return an agreement ``measure`` (kappa or alpha) of the individuals' contingency tables, summed, with a bootstrap
    interval over individuals.
    """
    n, flat = len(tables), tables.reshape(len(tables), -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(measure(tables.sum(axis=0)))
        if n < 2 or not np.isfinite(value):
            value_or_none = value if np.isfinite(value) else None
            return Estimate(value=value_or_none, n=n, method="one individual, or one category alone: no interval")
        draws = np.concatenate(
            [
                measure((weights @ flat).reshape(-1, *tables.shape[1:]))
                for weights in iter_resamples(n, num_bootstrap, seed)
            ]
        )
    if value == 1:  # no spread to resample
        return Estimate(value=1.0, low=1 - clopper_pearson(0, n, one_sided=True)[1], high=1.0, n=n, method=EXACT)
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return Estimate(value=value, low=float(low), high=float(high), n=n)
