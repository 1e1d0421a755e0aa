"""Evidence of detection: the shares of annotations that detectors find, together and alone. It stays inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import COUNT, OVER_INDIVIDUALS, PARTS, PATH, TOTAL
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRate(Estimate):
    """A rate, and the number of items that it is over."""

    of: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Precision, recall and F1 for one kind of match."""

    precision: Annotated[CountedRate, OVER_INDIVIDUALS]
    recall: Annotated[CountedRate, OVER_INDIVIDUALS]
    f1: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchesOf:
    """The kinds of matches: equal spans, overlapping spans, and words."""

    strict: Annotated[Matched, PARTS]
    relaxed: Annotated[Matched, PARTS]
    words: Annotated[Matched, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllFound:
    """Documents and individuals whose mentions are all covered."""

    documents: Annotated[CountedRate, OVER_INDIVIDUALS]
    individuals: Annotated[CountedRate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionScores:
    """Scores of found spans: by category, over all categories, and independent of the label. Also covered mentions,
    overall and by category, and entities, overall and by type of identifier."""

    categories: Annotated[dict[str, MatchesOf], PARTS]
    overall: Annotated[MatchesOf, PARTS]
    any_label: Annotated[MatchesOf, PARTS]
    covered: Annotated[dict[str, CountedRate], OVER_INDIVIDUALS]
    entities: Annotated[dict[str, CountedRate], OVER_INDIVIDUALS]
    all_found: Annotated[AllFound, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionEvidence:
    """Found and missed mentions; ``unmarked`` documents have no gold standard and are left out.

    ``only`` counts, by detector and category, the mentions that are covered with the detector and not without it.
    ``missed`` counts mentions that no detector touches, ``partial`` mentions that are touched but not covered whole.
    """

    documents: Annotated[int, TOTAL]
    unmarked: Annotated[int, TOTAL]
    individuals: Annotated[int | None, COUNT]
    words: Annotated[int, TOTAL]
    mentions: Annotated[dict[str, int], COUNT]
    union: Annotated[DetectionScores, PARTS]
    alone: Annotated[dict[str, DetectionScores], PARTS]
    only: Annotated[dict[str, dict[str, int]], COUNT]
    missed: Annotated[dict[str, int], COUNT]
    partial: Annotated[dict[str, int], COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedSpans:
    """Spans by detector and category. ``folder`` is None if they were not kept; ``skipped`` counts documents without
    text."""

    folder: Annotated[str | None, PATH] = None
    documents: Annotated[int, TOTAL]
    quarantined: Annotated[int | None, COUNT]
    skipped: Annotated[int | None, COUNT] = optional()
    spans: Annotated[dict[str, dict[str, int]], COUNT]
    evaluation: Annotated[DetectionEvidence | None, PARTS] = optional()
