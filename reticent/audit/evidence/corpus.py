"""Evidence of a corpus: counts of words and identifiers, distributions over individuals, copies and files."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import COUNT, CURVE, NAME, OVER_INDIVIDUALS, PARTS, SETTING, TOTAL
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A cumulative distribution over individuals: ``y`` is the share of individuals with a value of at most ``x``."""

    x: Annotated[list[float], CURVE]
    y: Annotated[list[float], CURVE]


def thin_curve(curve: Curve, num: int, cell: int) -> Curve:
    """Remove points from a cumulative distribution over ``num`` individuals until each step between neighbouring
    points, and before the first and after the last, stands for at least ``cell`` individuals; return the new curve."""
    x, y, before = [], [], 0
    for at, share in zip(curve.x, curve.y, strict=True):
        count = round(share * num)
        if count - before >= cell and num - count >= cell:
            x.append(at)
            y.append(share)
            before = count
    return Curve(x=x, y=y)


def _is_few(count: int | None, cell: int) -> bool:
    """Return whether a count is from 1 to ``cell`` - 1, too few individuals to publish."""
    return count is not None and 0 < count < cell


@dataclass(frozen=True, slots=True, kw_only=True)
class NumIndividuals:
    """Individuals of each split."""

    members: Annotated[int | None, COUNT] = None
    heldout: Annotated[int | None, COUNT] = None
    reference: Annotated[int | None, COUNT] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramCounts:
    """Distinct n-grams, their occurrences, and the distribution of their number over individuals."""

    distinct: Annotated[int | None, COUNT]
    occurrences: Annotated[int | None, COUNT]
    occurrences_direct: Annotated[int | None, COUNT] = optional()
    per_individual: Annotated[Curve | None, CURVE] = optional()

    def withhold_small_counts(self, raw: NgramCounts, cell: int) -> NgramCounts:
        """Return publishable counts: the number of occurrences is removed if there are fewer than ``cell`` distinct
        n-grams. ``raw`` has the unpublished counts."""
        few = raw.distinct is None or _is_few(raw.distinct, cell)
        return replace(self, occurrences=None, occurrences_direct=None) if few else self


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifiersByLength:
    """Identifying n-grams of one length: all of them, the minimal ones, and n-grams that stay targets."""

    n: Annotated[int, SETTING]
    all: Annotated[NgramCounts, PARTS]
    minimal: Annotated[NgramCounts, PARTS]
    kept: Annotated[NgramCounts, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginRow:
    """N-grams that exactly ``support`` individuals use."""

    n: Annotated[int, SETTING]
    support: Annotated[int, SETTING]
    distinct: Annotated[int | None, COUNT]
    occurrences: Annotated[int | None, COUNT]

    def withhold_small_counts(self, raw: MarginRow, cell: int) -> MarginRow:
        """Return a publishable copy of the counts of n-grams that a given number of individuals use: the number of
        occurrences is removed if there are fewer than ``cell`` such n-grams. ``raw`` is the unpublished row."""
        few = raw.distinct is None or _is_few(raw.distinct, cell)
        return replace(self, occurrences=None) if few else self


@dataclass(frozen=True, slots=True, kw_only=True)
class UnicityRow:
    """Share of individuals (or households) whom ``m`` shared words identify in combination."""

    m: Annotated[int, SETTING]
    share: Annotated[Estimate, OVER_INDIVIDUALS]

    def withhold_small_counts(self, raw: UnicityRow, cell: int) -> UnicityRow:
        """Return a publishable copy of the row: its share becomes a bound unless at least ``cell`` individuals are
        identified by their combination of words and at least ``cell`` are not."""
        return replace(self, share=self.share.as_share(self.share.n, cell))


@dataclass(frozen=True, slots=True, kw_only=True)
class WordCurve:
    """A cumulative distribution over words; none of its steps is a single individual."""

    x: Annotated[list[float], TOTAL]
    y: Annotated[list[float], TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByWords:
    """Distributions of support over words: by distinct word and by occurrence."""

    distinct: Annotated[WordCurve, PARTS]
    occurrences: Annotated[WordCurve, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """Shares of the words that are protected."""

    direct: Annotated[float, TOTAL]
    indirect: Annotated[float, TOTAL]
    both: Annotated[float, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRow:
    """Share of words that indirect protection alone leaves as targets under a policy."""

    policy: Annotated[str, NAME]
    n: Annotated[int | None, SETTING] = None
    k: Annotated[int | None, SETTING] = None
    retention: Annotated[float, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """Counts for one label of one detector: spans, documents with such a span, and their individuals."""

    label: Annotated[str, NAME]
    detector: Annotated[str, NAME]
    num_spans: Annotated[int, TOTAL]
    num_documents: Annotated[int | None, COUNT]
    num_individuals: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesSide:
    """Documents that repeat other documents, and their share of all words."""

    documents: Annotated[int | None, COUNT] = None
    words_share: Annotated[float | None, TOTAL] = None

    def withhold_small_counts(self, raw: CopiesSide, cell: int) -> CopiesSide:
        """Return publishable counts of copied documents: their share of all words is removed if fewer than ``cell``
        documents are copies. ``raw`` has the unpublished counts."""
        return replace(self, words_share=None) if _is_few(raw.documents, cell) else self


@dataclass(frozen=True, slots=True, kw_only=True)
class ClustersSide(CopiesSide):
    """Documents that repeat other documents, their share of all words, and the number of clusters of such documents."""

    clusters: Annotated[int | None, COUNT] = None

    def withhold_small_counts(self, raw: CopiesSide, cell: int) -> ClustersSide:
        """Return publishable counts of copied documents: all become None if there are fewer than ``cell`` such
        documents, or clusters of them. ``raw`` has the unpublished counts."""
        assert isinstance(raw, ClustersSide)
        few = _is_few(raw.documents, cell) or _is_few(raw.clusters, cell)
        return replace(self, documents=None, clusters=None, words_share=None) if few else self


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(CopiesSide):
    """Documents left out as copies, their share of all words, and the number of individuals who have no other
    document."""

    individuals: Annotated[int | None, COUNT] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesKind:
    """Copies of one kind within individuals and across them."""

    within: Annotated[ClustersSide, PARTS]
    across: Annotated[ClustersSide, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedPassages:
    """Passages of ``min_words`` or more that occur in several documents, within individuals and across them."""

    min_words: Annotated[int, SETTING]
    within: Annotated[CopiesSide, PARTS]
    across: Annotated[CopiesSide, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedWords:
    """Words that reach ``k`` individuals only because documents are shared."""

    k: Annotated[int, SETTING]
    lifted_words: Annotated[int | None, COUNT] = None
    lifted_share: Annotated[float | None, TOTAL] = None

    def withhold_small_counts(self, raw: LiftedWords, cell: int) -> LiftedWords:
        """Return publishable counts of the words that only copied documents lift to k users: their share of all words
        is removed if they are fewer than ``cell``. ``raw`` has the unpublished counts."""
        return replace(self, lifted_share=None) if _is_few(raw.lifted_words, cell) else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies within a corpus, and the number of documents left out as copies."""

    documents: Annotated[int, TOTAL]
    individuals: Annotated[int | None, COUNT] = optional()
    words: Annotated[int | None, TOTAL] = optional()
    exact: Annotated[CopiesKind | None, PARTS] = optional()
    near: Annotated[CopiesKind | None, PARTS] = optional()
    passages: Annotated[RepeatedPassages, PARTS]
    support: Annotated[LiftedWords, PARTS]
    left_out: Annotated[LeftOut, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class NearCopies:
    """Held-out individuals, and those who hold a near-copy of a member's document: a Jaccard similarity of sets of
    ``shingle_words`` words of at least ``threshold``."""

    threshold: Annotated[float, SETTING]
    shingle_words: Annotated[int, SETTING]
    num_heldout: Annotated[int | None, COUNT]
    num_copied: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Files that were read, skipped files by reason, CSV dialects, rows that look wrongly split, documents without
    text."""

    files: Annotated[int, TOTAL]
    passed_over: Annotated[dict[str, int], TOTAL]
    csv: Annotated[dict[str, int], TOTAL]
    suspect_rows: Annotated[int | None, COUNT]
    skipped: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLanguages:
    """Documents of 30 words or more, and those of them in a language that the rules for identifiers do not know."""

    num_documents: Annotated[int, TOTAL]
    num_unknown: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusEvidence:
    """Statistics of the members' documents and their identifiers."""

    num_documents: Annotated[int, TOTAL]
    num_words: Annotated[int, TOTAL]
    num_distinct_words: Annotated[int, TOTAL]
    k: Annotated[int, SETTING]
    n: Annotated[int, SETTING]
    policy: Annotated[str, NAME]
    unit: Annotated[str | None, SETTING] = optional()
    share_unspaced: Annotated[float | None, TOTAL] = optional()
    share_types_identifying: Annotated[float, TOTAL]
    share_occurrences_identifying: Annotated[float, TOTAL]
    protected: Annotated[Protected | None, PARTS] = optional()
    retention: Annotated[dict[str, float] | list[RetentionRow] | None, TOTAL] = optional()
    identifiers_per_individual: Annotated[dict[str, Curve] | None, CURVE] = optional()
    words_per_individual: Annotated[Curve | None, CURVE] = optional()
    individuals_per_word: Annotated[ByWords | None, PARTS] = optional()
    identifying_words: Annotated[dict[str, NgramCounts] | None, PARTS] = optional()
    identifiers_by_n: Annotated[list[IdentifiersByLength] | None, PARTS] = optional()
    margin: Annotated[list[MarginRow] | None, PARTS] = optional()
    retention_by_policy: Annotated[dict[str, float] | list[RetentionRow] | None, TOTAL] = optional()
    unicity: Annotated[list[UnicityRow] | None, PARTS] = optional()
    detected: Annotated[list[Detected] | None, PARTS] = optional()
    copies: Annotated[Copies | None, PARTS] = optional()
    #: None if near-copies were not looked for.
    near_copies: Annotated[NearCopies | None, PARTS] = optional()
    reading: Annotated[Reading | None, PARTS] = optional()
    #: None of a run of an older version, which did not ask.
    other_languages: Annotated[OtherLanguages | None, PARTS] = optional()
    num_individuals: Annotated[NumIndividuals, PARTS] = NumIndividuals()

    def withhold_small_counts(self, raw: CorpusEvidence, cell: int) -> CorpusEvidence:
        """Return publishable corpus statistics: distributions over individuals in steps of at least ``cell``
        individuals, and no detector label that fewer than ``cell`` individuals have. ``raw`` has the unpublished
        statistics."""
        num = raw.num_individuals.members or 0
        own = raw.identifiers_per_individual
        rows = None
        if self.identifiers_by_n is not None and raw.identifiers_by_n is not None:
            pairs = zip(self.identifiers_by_n, raw.identifiers_by_n, strict=True)
            rows = [_with_thinned_curves(row, before, num, cell) for row, before in pairs]
        return replace(
            self,
            identifiers_per_individual=own and {part: thin_curve(curve, num, cell) for part, curve in own.items()},
            words_per_individual=raw.words_per_individual and thin_curve(raw.words_per_individual, num, cell),
            identifiers_by_n=rows,
            detected=[row for row in self.detected or [] if (row.num_individuals or 0) >= cell],
        )


def _with_thinned_curves(
    row: IdentifiersByLength, raw: IdentifiersByLength, num: int, cell: int
) -> IdentifiersByLength:
    """Return ``row`` with the distributions over ``num`` individuals of the unpublished ``raw``, thinned so that each
    step stands for at least ``cell`` individuals (see `thin_curve`)."""
    changed = {}
    for part in fields(row):
        before = getattr(raw, part.name)
        if isinstance(before, NgramCounts) and before.per_individual is not None:
            curve = thin_curve(before.per_individual, num, cell)
            changed[part.name] = replace(getattr(row, part.name), per_individual=curve)
    return replace(row, **changed)
