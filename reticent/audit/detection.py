"""Evaluation of detectors: the annotated mentions that they find together, that each finds alone, and that only one
finds.

Definitions
-----------
strict
    A found span is right if a gold span has the same start, end and category. This is the measure of the i2b2 2014
    (Stubbs, Kotfila and Uzuner 2015) and MEDDOCAN (Marimon et al. 2019) de-identification tracks, on categories.
    The spans of detectors are united, so a found span inside a longer one of its category counts only if it is right.
relaxed
    A found span is right if it overlaps a gold span of its category; a gold span is found if a found span of its
    category overlaps it. Precision and recall count different spans; F1 is their harmonic mean.
words
    The same over pairs (word, category), where a word belongs to every span that touches it. Masking and protection
    act on words.
any label
    Each of these measures over spans and words of all categories together.
covered
    Found spans, of any label, touch every word of the mention, so it is protected as a whole.
entities
    An entity is found if *all* its mentions are covered (Pilán et al. 2022, the entity-level recall of the Text
    Anonymization Benchmark), with direct and quasi-identifiers apart if the gold standard has the type. Their
    measure is over characters, ours over words. With several annotators the entities of each count: the rate is the
    mean over annotators, weighted by the number of entities that they marked.

Intervals are 95 %, over individuals, who are resampled whole. Cost: sorted arrays and prefix sums, O(n log n) in the
spans. A bootstrap is one matrix product for each section.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np

from reticent.audit.evidence.detection import (
    AllFound,
    CountedRate,
    DetectionEvidence,
    DetectionScores,
    Matched,
    MatchesOf,
)
from reticent.audit.evidence.json_form import extended
from reticent.audit.stats.intervals import BOOTSTRAP, Bootstrap, Estimate, ratio_estimates

if TYPE_CHECKING:
    from reticent.engine.detect.marks import LineSpans, Marks

MATCHES: Final = ("strict", "relaxed", "words")


def evaluate_detection(marks: Marks, *, num_bootstrap: int = 1000, seed: int = 0) -> DetectionEvidence:
    """Return precision, recall, F1 and coverage of identifier detectors against gold annotations: of their union, and
    of each detector alone."""
    everything = np.arange(len(marks.detectors))
    options: Bootstrap = {"num_bootstrap": num_bootstrap, "seed": seed}
    touched = [_words_in_spans(marks, marks.detector == number) for number in everything]
    times_touched = np.zeros(marks.num_words, dtype=np.int16)
    for each in touched:
        times_touched += each
    covered = _covered_mentions(marks, times_touched > 0, np.ones(len(marks.found), dtype=bool))
    only = {}
    for number, name in enumerate(marks.detectors):
        others = _covered_mentions(marks, times_touched > touched[number], marks.detector != number)
        only[name] = _count_mentions(marks, covered & ~others)
    reached = _overlaps(marks.gold, marks.found, np.zeros(len(marks.categories), dtype=np.int64))
    return DetectionEvidence(
        documents=len(marks.individual),
        unmarked=marks.num_unmarked,
        individuals=marks.num_individuals,
        words=marks.num_words,
        mentions=_count_mentions(marks, np.ones(len(marks.gold), dtype=bool)),
        union=_score_detection(marks, np.ones(len(marks.found), dtype=bool), **options),
        alone={
            name: _score_detection(marks, marks.detector == number, **options)
            for number, name in enumerate(marks.detectors)
        },
        only=only,
        missed=_count_mentions(marks, ~reached),
        partial=_count_mentions(marks, reached & ~covered),
    )


def covered_mentions(marks: Marks) -> np.ndarray:
    """Return for each gold mention whether all its words are touched by detected spans, of any label and any detector;
    bool (mentions,)."""
    everything = np.ones(len(marks.found), dtype=bool)
    return _covered_mentions(marks, _words_in_spans(marks, everything), everything)


@dataclass(slots=True)
class _Rates:
    """Collects rates, each with one numerator and denominator for each individual, to estimate them together."""

    num_individuals: int
    names: list[tuple[str, ...]] = field(default_factory=list)
    tops: list[np.ndarray] = field(default_factory=list)
    bottoms: list[np.ndarray] = field(default_factory=list)

    def add(self, name: tuple[str, ...], owners: np.ndarray, is_right: np.ndarray) -> None:
        """Add one rate to this collection, under ``name``: the share of items (spans, words, mentions) for which
        ``is_right`` is True. ``owners`` has each item's individual."""
        self.names.append(name)
        self.tops.append(np.bincount(owners, weights=is_right, minlength=self.num_individuals))
        self.bottoms.append(np.bincount(owners, minlength=self.num_individuals))

    def estimates(self, **bootstrap: Unpack[Bootstrap]) -> _Estimates:
        """Return all added rates with bootstrap intervals over individuals, and their bootstrap draws."""
        found, draws = ratio_estimates(np.stack(self.tops), np.stack(self.bottoms), **bootstrap)
        rates = [
            extended(rate, CountedRate, of=int(bottom.sum())) for rate, bottom in zip(found, self.bottoms, strict=True)
        ]
        return _Estimates(dict(zip(self.names, zip(rates, draws.T, strict=True), strict=True)))


@dataclass(frozen=True, slots=True)
class _Estimates:
    """Estimated rates and their bootstrap draws, by name (a tuple of scope and parts)."""

    found: dict[tuple[str, ...], tuple[CountedRate, np.ndarray]]

    def in_scope(self, scope: str) -> dict[str, CountedRate]:
        """Return the rates whose name is a tuple that begins with ``scope`` (such as "covered"), keyed by the second
        part of their name."""
        return {name[1]: rate for name, (rate, _) in self.found.items() if name[0] == scope}

    def matches(self, *scope: str) -> MatchesOf:
        """Return precision, recall and F1 of the rates whose names begin with ``scope``, for each way to match spans
        (strict, relaxed, words)."""
        return MatchesOf(**{match: self._score_match(*scope, match) for match in MATCHES})

    def _score_match(self, *name: str) -> Matched:
        """Return precision, recall and F1 of the rates whose names begin with ``name``."""
        (precision, precisions), (recall, recalls) = (self.found[*name, what] for what in ("precision", "recall"))
        return Matched(precision=precision, recall=recall, f1=_harmonic_mean(precision, recall, precisions, recalls))


def _harmonic_mean(
    precision: Estimate, recall: Estimate, precision_draws: np.ndarray, recall_draws: np.ndarray
) -> Estimate:
    """Return F1, the harmonic mean of two estimates. Its interval comes from their bootstrap draws, or from the ends of
    their intervals if one was not made by bootstrap."""

    def harmonic(p: Any, r: Any) -> Any:
        """Return 2 p r / (p + r), elementwise; 0 where both are 0."""
        with np.errstate(invalid="ignore"):
            return np.where(p + r > 0, 2 * p * r / np.where(p + r > 0, p + r, 1), p + r)

    n = max(precision.n or 0, recall.n or 0)
    if precision.value is None or recall.value is None:
        return Estimate(value=None, n=n, method="no span on one side")
    value = float(harmonic(precision.value, recall.value))
    if precision.method == recall.method == BOOTSTRAP:
        low, high = np.nanquantile(harmonic(precision_draws, recall_draws), [0.025, 0.975])
        return Estimate(value=value, low=float(low), high=float(high), n=n)
    low, high = harmonic(precision.low, recall.low), harmonic(precision.high, recall.high)
    return Estimate(value=value, low=float(low), high=float(high), n=n, method="bounds of precision and recall")


def _score_detection(marks: Marks, is_chosen: np.ndarray, **bootstrap: Unpack[Bootstrap]) -> DetectionScores:
    """Return precision, recall, F1 and coverage of the detected spans that the mask ``is_chosen``, bool (spans,),
    selects, against the gold spans."""
    gold, found = marks.gold, marks.found.take(is_chosen)
    rates = _Rates(marks.num_individuals)
    owner = marks.individual
    same, none = np.arange(len(marks.categories)), np.zeros(len(marks.categories), dtype=np.int64)
    for scope, codes in (("overall", same), ("any_label", none)):
        for match, (g_owner, g_code, g_right), (f_owner, f_code, f_right) in _iter_matches(marks, gold, found, codes):
            rates.add((scope, match, "precision"), f_owner, f_right)
            rates.add((scope, match, "recall"), g_owner, g_right)
            for number, name in enumerate(marks.categories if scope == "overall" else ()):
                of_found, of_gold = f_code == number, g_code == number
                rates.add(("categories", name, match, "precision"), f_owner[of_found], f_right[of_found])
                rates.add(("categories", name, match, "recall"), g_owner[of_gold], g_right[of_gold])
    covered = _covered_mentions(marks, _words_in_spans(marks, is_chosen), is_chosen)
    rates.add(("covered", "overall"), owner[gold.document], covered)
    for number, name in enumerate(marks.categories):
        of = gold.category == number
        rates.add(("covered", name), owner[gold.document[of]], covered[of])
    for name, entity_owner, right in _entity_coverage(marks, covered):
        rates.add(("entities", name), entity_owner, right)
    complete, has_gold = _all_right(gold.document, covered, len(owner))
    rates.add(("all_found", "documents"), owner[has_gold], complete[has_gold])
    complete, has_gold = _all_right(owner[gold.document], covered, marks.num_individuals)
    rates.add(("all_found", "individuals"), np.flatnonzero(has_gold), complete[has_gold])
    found_rates = rates.estimates(**bootstrap)
    return DetectionScores(
        categories={name: found_rates.matches("categories", name) for name in marks.categories},
        overall=found_rates.matches("overall"),
        any_label=found_rates.matches("any_label"),
        covered=found_rates.in_scope("covered"),
        entities=found_rates.in_scope("entities"),
        all_found=AllFound(**found_rates.in_scope("all_found")),
    )


def _iter_matches(
    marks: Marks, gold: LineSpans, found: LineSpans, category_codes: np.ndarray
) -> Iterator[tuple[Any, ...]]:
    """Yield (way to match, gold items, detected items) for strict, relaxed and word matching. The items, spans or
    words, are three arrays: individual, category, whether the other side has a match.

    Categories with the same number in ``category_codes`` count as one.
    """
    owner = marks.individual
    line = category_codes * (marks.num_characters + 1)
    sides = [_drop_repeats(spans, category_codes) for spans in (gold, found)]
    keys = _codes_of_rows([(s.start, s.end, category_codes[s.category]) for s in sides])
    counts = ~_lies_in_longer(sides[1], line) | np.isin(keys[1], keys[0])
    sides[1], keys[1] = sides[1].take(counts), keys[1][counts]
    rights = {"strict": [np.isin(keys[0], keys[1]), np.isin(keys[1], keys[0])]}
    rights["relaxed"] = [_overlaps(sides[0], sides[1], line), _overlaps(sides[1], sides[0], line)]
    for match, (of_gold, of_found) in rights.items():
        yield (
            match,
            *((owner[s.document], s.category, r) for s, r in zip(sides, (of_gold, of_found), strict=True)),
        )
    words = [_labelled_words(spans, category_codes, marks.num_words) for spans in (gold, found)]
    pairs = [np.isin(words[0][0], words[1][0]), np.isin(words[1][0], words[0][0])]
    yield (
        "words",
        *((owner[doc], code, right) for (_, doc, code), right in zip(words, pairs, strict=True)),
    )


def _drop_repeats(spans: LineSpans, category_codes: np.ndarray) -> LineSpans:
    """Return the spans without repeats of the same start, end and category, which several detectors or annotators may
    give."""
    (keys,) = _codes_of_rows([(spans.start, spans.end, category_codes[spans.category])])
    return spans.take(np.unique(keys, return_index=True)[1])


def _codes_of_rows(tables: Sequence[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    """Return an integer code for each row of several tables (tuples of columns), as one int64 array for each table.
    Rows with equal values have equal codes, also across tables."""
    columns = [np.concatenate(parts) for parts in zip(*tables, strict=True)]
    order = np.lexsort(columns)
    new = np.zeros(len(order), dtype=bool)
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(new)
    return np.split(numbers, np.cumsum([len(side[0]) for side in tables])[:-1])


def _overlaps(spans: LineSpans, others: LineSpans, category_offsets: np.ndarray) -> np.ndarray:
    """Return whether each span overlaps one of ``others`` of the same category, bool. ``category_offsets`` has for each
    category a number that is added to its character positions, so that spans of different categories never overlap.

    The number of overlaps of a span is the number of others that begin before its end, minus those that end before it
    begins.
    """
    shift, other_shift = (
        category_offsets[s.category] if len(s) else np.empty(0, dtype=np.int64) for s in (spans, others)
    )
    starts, ends = np.sort(others.start + other_shift), np.sort(others.end + other_shift)
    begun = np.searchsorted(starts, spans.end + shift, side="left")
    ended = np.searchsorted(ends, spans.start + shift, side="right")
    return begun > ended


def _lies_in_longer(spans: LineSpans, category_offsets: np.ndarray) -> np.ndarray:
    """Return whether each of these distinct spans lies inside a longer span of the same category, bool.
    ``category_offsets`` has for each category a number added to its character positions, which keeps categories apart.
    """
    shift = category_offsets[spans.category] if len(spans) else np.empty(0, dtype=np.int64)
    start, end = spans.start + shift, spans.end + shift
    order = np.lexsort((-end, start))
    furthest = np.concatenate([[-1], np.maximum.accumulate(end[order])[:-1]]) if len(spans) else end
    inside = np.empty(len(spans), dtype=bool)
    inside[order] = end[order] <= furthest
    return inside


def _labelled_words(
    spans: LineSpans, category_codes: np.ndarray, num_words: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays with one entry for each distinct pair of a word and a category whose span touches it: an
    integer key of the pair, the word's document, the category."""
    lengths = spans.end_word - spans.first_word
    row = np.repeat(np.arange(len(spans)), lengths)
    begins = np.cumsum(lengths) - lengths
    word = np.arange(len(row)) - begins[row] + spans.first_word[row]
    keys, first = np.unique(category_codes[spans.category[row]] * max(num_words, 1) + word, return_index=True)
    return keys, spans.document[row[first]], spans.category[row[first]]


def _words_in_spans(marks: Marks, is_chosen: np.ndarray) -> np.ndarray:
    """Return whether each word is touched by one of the detected spans that the mask ``is_chosen`` selects, bool
    (num_words,)."""
    steps = np.zeros(marks.num_words + 1, dtype=np.int32)
    np.add.at(steps, marks.found.first_word[is_chosen], 1)
    np.subtract.at(steps, marks.found.end_word[is_chosen], 1)
    return np.cumsum(steps[:-1]) > 0


def _covered_mentions(marks: Marks, is_touched: np.ndarray, is_chosen: np.ndarray) -> np.ndarray:
    """Return whether each gold mention is covered, bool (mentions,): all its words are in the mask ``is_touched``. A
    mention without words is covered if a chosen span overlaps it."""
    gold = marks.gold
    before = np.concatenate([[0], np.cumsum(is_touched, dtype=np.int64)])
    lengths = gold.end_word - gold.first_word
    whole = before[gold.end_word] - before[gold.first_word] == lengths
    wordless = lengths == 0
    if wordless.any():
        nowhere = np.zeros(len(marks.categories), dtype=np.int64)
        whole[wordless] = _overlaps(gold.take(wordless), marks.found.take(is_chosen), nowhere)
    return whole


def _entity_coverage(marks: Marks, is_covered: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield (name, individual of each entity, whether all mentions of the entity are covered), first "overall" for all
    entities, then for each type of identifier.

    An entity with mentions of several types has the first type in the order of the names: direct before quasi.
    """
    num = int(marks.entity.max(initial=-1)) + 1
    owner, kind = np.zeros(num, dtype=np.int64), np.full(num, len(marks.identifier_types), dtype=np.int64)
    owner[marks.entity] = marks.individual[marks.gold.document]
    by_name = np.argsort(np.argsort(marks.identifier_types)) if marks.identifier_types else np.empty(0, dtype=np.int64)
    np.minimum.at(kind, marks.entity, by_name[marks.identifier_type])
    found, _ = _all_right(marks.entity, is_covered, num)
    yield "overall", owner, found
    for number, name in enumerate(sorted(marks.identifier_types)):
        if name:
            yield name, owner[kind == number], found[kind == number]


def _all_right(group_of_item: np.ndarray, is_right: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks, bool (num_groups,): whether all items of each group are right, and whether the group has any
    item."""
    sizes = np.bincount(group_of_item, minlength=num_groups)
    return np.bincount(group_of_item, weights=is_right, minlength=num_groups) == sizes, sizes > 0


def _count_mentions(marks: Marks, is_counted: np.ndarray) -> dict[str, int]:
    """Return category -> number of gold mentions that the mask ``is_counted`` selects; categories without one are left
    out."""
    counts = np.bincount(marks.gold.category[is_counted], minlength=len(marks.categories))
    return {name: int(count) for name, count in zip(marks.categories, counts, strict=True) if count}
