"""Evidence of inversion: identifiers and terms recovered from their context, and shifts of embedding rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.leakage import Excess, Sides
from reticent.audit.evidence.rules import COUNT, OVER_INDIVIDUALS, PARTS, SETTING
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Rates of a random choice among the candidates."""

    top1: Annotated[float, SETTING]
    mrr: Annotated[float, SETTING]
    bits: Annotated[float, SETTING]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCandidates:
    """Rank of the true identifier among its decoys: top-1 rate, mean reciprocal rank, and bits."""

    top1: Annotated[Excess, PARTS]
    mrr: Annotated[Excess | None, PARTS] = optional()
    bits: Annotated[Excess | None, PARTS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """Identifiers ranked by their own likelihood in their true positions among decoys: by the difference to the base
    model, by the model alone (``own``), and the share that so many samples contain with a probability of one half."""

    ranked: Annotated[RankedCandidates, PARTS]
    own: Annotated[RankedCandidates | None, PARTS] = optional()
    #: Number of draws -> rates.
    extracted: Annotated[dict[str, Excess], PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertedKind:
    """Inversion of one kind of identifiers, over all words around them and over the ordinary words."""

    score: Annotated[str | None, SETTING] = optional()
    num_decoys: Annotated[int | None, SETTING] = optional()
    num_targets: Annotated[Sides, PARTS]
    num_eligible: Annotated[int | None, COUNT] = optional()
    num_unmatched: Annotated[int | None, COUNT] = optional()
    chance: Annotated[Chance | None, PARTS] = optional()
    all: Annotated[RankedCandidates | None, PARTS] = optional()
    ordinary: Annotated[RankedCandidates | None, PARTS] = optional()
    #: Over all words, ranked by the model's own likelihood where `all` is ranked by the difference to the base model.
    own: Annotated[RankedCandidates | None, PARTS] = optional()
    in_place: Annotated[InPlace | None, PARTS] = optional()

    def withhold_small_counts(self, raw: InvertedKind, cell: int) -> InvertedKind:
        """Return publishable results of inversion attacks on one kind of identifier: a rate becomes a bound unless at
        least ``cell`` guesses are right and at least ``cell`` are wrong. ``raw`` has the unpublished numbers of
        guesses."""
        every, ordinary, own = (
            found and _published_ranks(found, raw.num_targets, cell) for found in (self.all, self.ordinary, self.own)
        )
        place = self.in_place and replace(
            self.in_place,
            ranked=_published_ranks(self.in_place.ranked, raw.num_targets, cell),
            own=self.in_place.own and _published_ranks(self.in_place.own, raw.num_targets, cell),
            extracted={
                num: _publish_rates(sides, raw.num_targets, cell) for num, sides in self.in_place.extracted.items()
            },
        )
        return replace(self, all=every, ordinary=ordinary, own=own, in_place=place)


def _published_ranks(ranked: RankedCandidates, num_targets: Sides, cell: int) -> RankedCandidates:
    """Return how an inversion attack ranks the true identifier among candidates, with publishable rates of true
    identifiers ranked first; see `_publish_rates`."""
    return replace(ranked, top1=_publish_rates(ranked.top1, num_targets, cell))


def _publish_rates(sides: Excess, num_targets: Sides, cell: int) -> Excess:
    """Return publishable rates of right guesses, of members and held-out individuals. A rate becomes a bound, and the
    difference is removed, unless at least ``cell`` guesses of the side are right and at least ``cell`` are wrong."""
    told = replace(
        sides,
        members=sides.members.as_share(num_targets.members, cell),
        heldout=sides.heldout.as_share(num_targets.heldout, cell),
    )
    return told.withhold_small_counts(told, cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """How often a term of the individual's documents is less likely after a decoy name than after their own name."""

    rate: Annotated[Excess, PARTS]
    num_decoys: Annotated[int | None, SETTING] = optional()
    num_terms: Annotated[Sides | None, PARTS] = optional()
    num_eligible: Annotated[int | None, COUNT] = optional()
    num_unmatched: Annotated[int | None, COUNT] = optional()
    num_too_long: Annotated[int | None, COUNT] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingShift:
    """Area under the ROC curve with which shifts of embedding rows separate tokens that only identifiers use from
    tokens that training did not use."""

    input: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    output: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    tied: Annotated[bool | None, SETTING] = optional()
    num_rows: Annotated[int | None, COUNT] = optional()
    num_unused: Annotated[int | None, COUNT] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inversion:
    """All measurements of identifiers that are context only."""

    direct: Annotated[InvertedKind | None, PARTS] = optional()
    indirect: Annotated[InvertedKind | None, PARTS] = optional()
    association: Annotated[Association | None, PARTS] = optional()
    embedding_shift: Annotated[EmbeddingShift | None, PARTS] = optional()
