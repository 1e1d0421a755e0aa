"""Evidence of leakage: identifiers predicted, the excess over held-out individuals, low-cost membership, utility."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import COUNT, NAME, OVER_INDIVIDUALS, PARTS, SETTING, TOGETHER, TOTAL
from reticent.audit.stats.estimate import Estimate, clopper_pearson

#: All identifiers, the direct ones, or the indirect ones.
Part = Literal["both", "direct", "indirect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Two counts: members and held-out individuals, or the documents of each."""

    members: Annotated[int | None, COUNT] = None
    heldout: Annotated[int | None, COUNT] = None

    @classmethod
    def of(cls, is_member: np.ndarray) -> Sides:
        """Count the items of members and of held-out individuals, given whether each item is a member's (bool
        array).
        """
        return cls(members=int(is_member.sum()), heldout=int((~is_member).sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Counts of a training's targets: eligible, protected, remaining, and violations (protected tokens as targets)."""

    eligible: Annotated[int, TOTAL]
    protected: Annotated[int, TOTAL]
    targets: Annotated[int, TOTAL]
    violations: Annotated[int, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideUtility:
    """Rates of correctly predicted words or tokens of one side, ordinary ones and all; perplexity of causal models."""

    ordinary_word_accuracy: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    masked_word_accuracy: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    masked_token_accuracy: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    ordinary_token_accuracy: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    token_accuracy: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    ordinary_perplexity: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    perplexity: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Utility:
    """Utility on both sides."""

    heldout: Annotated[SideUtility, PARTS]
    members: Annotated[SideUtility | None, PARTS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """Share of identifiers that are predicted nowhere, at three levels, and the counts behind it.

    The counts and ``types`` reveal each other. So if few identifiers leaked, ``types`` is the bound that follows from
    the small cell. The same holds for ``unseen``, which counts a prediction only if its context did not contain the
    identifier. ``num_common`` counts surfaces that are protected and are not identifiers, because k or more individuals
    use them in another spelling.
    """

    types: Annotated[Estimate, OVER_INDIVIDUALS]
    occurrences: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    individuals: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    in_place: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    unseen: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    num_identifiers: Annotated[int | None, COUNT]
    num_leaked: Annotated[int | None, COUNT]
    num_leaked_unseen: Annotated[int | None, COUNT] = optional()
    num_common: Annotated[int | None, COUNT] = optional()
    num_unpredictable: Annotated[int | None, COUNT] = None
    #: Of a masked model, the standard deviation of ``types`` between draws of the folds, which is in its interval.
    fold_spread: Annotated[float | None, TOTAL] = optional()

    def withhold_small_counts(self, raw: Privacy, cell: int) -> Privacy:
        """Return a publishable copy of this Privacy (1 - leak rate): a rate becomes a bound if it would reveal that
        fewer than ``cell`` identifiers leaked, or identifiers of fewer than ``cell`` individuals."""
        types, num_leaked = _bound_leaks(self.types, self.num_identifiers, self.num_leaked, cell)
        unseen, num_unseen = self.unseen, self.num_leaked_unseen
        if unseen is not None:
            unseen, num_unseen = _bound_leaks(unseen, self.num_identifiers, num_unseen, cell)
        individuals = self.individuals and self.individuals.as_share(self.individuals.n, cell)
        return replace(
            self,
            types=types,
            num_leaked=num_leaked,
            unseen=unseen,
            num_leaked_unseen=num_unseen,
            individuals=individuals,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramPrivacy(Estimate):
    """Privacy of n-grams of one length, with its counts."""

    num_identifiers: Annotated[int | None, COUNT]
    num_leaked: Annotated[int | None, COUNT]

    def withhold_small_counts(self, raw: Estimate, cell: int) -> NgramPrivacy:
        """Return a publishable copy of this Privacy (1 - leak rate): a lower bound if fewer than ``cell`` n-grams
        leaked. ``raw`` has the unpublished rate."""
        kept = Estimate.withhold_small_counts(self, raw, cell)
        assert isinstance(kept, NgramPrivacy)
        types, num_leaked = _bound_leaks(kept, kept.num_identifiers, kept.num_leaked, cell)
        assert isinstance(types, NgramPrivacy)
        return replace(types, num_leaked=num_leaked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unshared:
    """Leak rates over the identifiers of one side alone (definitions.md#leakage), the held-out rate standardised to the
    members.

    ``num_shared`` counts identifiers of both sides, ``num_unmatched`` members' identifiers without a comparable one of
    held-out individuals: neither is in the rates.
    """

    members: Annotated[Estimate, OVER_INDIVIDUALS]
    heldout: Annotated[Estimate, OVER_INDIVIDUALS]
    excess: Annotated[Estimate, OVER_INDIVIDUALS]
    num_shared: Annotated[int | None, COUNT]
    num_unmatched: Annotated[int | None, COUNT]

    def withhold_small_counts(self, raw: Unshared, cell: int) -> Unshared:
        """Return publishable leak rates of identifiers that only members, or only held-out individuals, use: the
        difference of the two rates is removed if either is withheld or only a bound."""
        sides = (self.members, self.heldout)
        return replace(self, excess=self.excess.withheld(cell)) if any(map(is_withheld, sides)) else self

    def beside(self, before_publication: tuple[tuple[Estimate, Estimate], ...], cell: int) -> Unshared:
        """Return these leak rates, of a subset of the identifiers. Their numbers are removed if a comparison with the
        rates of all identifiers would reveal fewer than ``cell`` individuals. ``before_publication`` has for each side
        the unpublished (rate of the subset, rate of all)."""
        known = [(own.n, of_all.n) for own, of_all in before_publication]
        if all(n is not None and m is not None and not (0 < n < cell or 0 < m - n < cell) for n, m in known):
            return self
        return replace(
            self, **{name: getattr(self, name).withheld(cell) for name in ("members", "heldout", "excess")}
        )  # fmt: skip

    def as_shares(self, cell: int) -> Unshared:
        """Return both rates as publishable shares of individuals, with bounds in place of small counts; see
        `Estimate.as_share`."""
        return replace(
            self,
            members=self.members.as_share(self.members.n, cell),
            heldout=self.heldout.as_share(self.heldout.n, cell),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcessOverSides:
    """The rate of held-out individuals, and the excess of the members' rate over it."""

    heldout: Annotated[Estimate, OVER_INDIVIDUALS]
    excess: Annotated[Estimate, OVER_INDIVIDUALS]
    unshared: Annotated[Unshared | None, PARTS] = optional()

    def withhold_small_counts(self, raw: ExcessOverSides, cell: int) -> ExcessOverSides:
        """Return a publishable copy of the held-out rate and of the members' excess over it: the excess is removed if
        the rate is withheld or only a bound. ``raw`` has the unpublished rates."""
        unshared = self.unshared
        if unshared and raw.unshared:
            unshared = unshared.beside(((raw.unshared.heldout, raw.heldout),), cell)
        excess = self.excess.withheld(cell) if is_withheld(self.heldout) else self.excess
        return replace(self, excess=excess, unshared=unshared)


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryPrivacy(NgramPrivacy):
    """Privacy of the identifiers of one category. The members' leak rate equals the held-out rate plus the excess, so
    all three are withheld together."""

    excess: Annotated[ExcessOverSides, PARTS]

    def withhold_small_counts(self, raw: Estimate, cell: int) -> CategoryPrivacy:
        """Return a publishable copy of the Privacy (1 - leak rate) of one category of identifiers. If it is withheld or
        only a bound, the members' excess leak rate is removed too. ``raw`` has the unpublished rate."""
        kept = NgramPrivacy.withhold_small_counts(self, raw, cell)
        assert isinstance(kept, CategoryPrivacy)
        if kept.value is None or kept.bound is not None:
            return replace(kept, excess=replace(kept.excess, excess=kept.excess.excess.withheld(cell), unshared=None))
        return kept


def _bound_leaks(
    privacy: Estimate, num_identifiers: int | None, num_leaked: int | None, cell: int
) -> tuple[Estimate, int | None]:
    """Return publishable (Privacy = 1 - leak rate, number of leaked identifiers). Privacy becomes a lower bound if
    ``num_leaked`` is None because it is too small to publish, and None if ``num_identifiers`` is."""
    if num_identifiers is None:
        return replace(privacy, value=None, low=None, high=None), None
    if num_leaked is None and privacy.value is not None:
        return privacy.bounded(1 - cell / num_identifiers, "above", num_identifiers), None
    return privacy, num_leaked


def is_withheld(rate: Estimate) -> bool:
    """Return whether a rate is published only as a bound, or not at all. Its difference to another rate must then be
    withheld too."""
    return rate.bound is not None or rate.n is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """The rate of members, the rate of held-out individuals, and their difference.

    ``unshared`` is the same over items of one side alone; ``without_copies`` is the difference without the held-out
    individuals who hold near-copies of members' documents.
    """

    members: Annotated[Estimate, OVER_INDIVIDUALS]
    heldout: Annotated[Estimate, OVER_INDIVIDUALS]
    excess: Annotated[Estimate, OVER_INDIVIDUALS]
    unshared: Annotated[Unshared | None, PARTS] = optional()
    without_copies: Annotated[Estimate | None, TOGETHER] = optional()

    def withhold_small_counts(self, raw: Excess, cell: int) -> Excess:
        """Return publishable rates of members and held-out individuals: their difference is removed if either rate is
        withheld, and rates of a subset are if they would reveal fewer than ``cell`` individuals. ``raw`` has the
        unpublished rates."""
        unshared = self.unshared
        if unshared and raw.unshared:
            sides = (raw.unshared.members, raw.members), (raw.unshared.heldout, raw.heldout)
            unshared = unshared.beside(sides, cell)
        without = raw.without_copies
        if without is not None and without.n is not None:
            left_out = (raw.excess.n or 0) - without.n
            few = left_out < 0 or 0 < left_out < cell or (raw.heldout.n or 0) - left_out < cell
            without = without.withheld(cell) if few else without.withhold_small_counts(without, cell)
        if not any(map(is_withheld, (self.members, self.heldout))):
            return replace(self, unshared=unshared, without_copies=without)
        return replace(
            self,
            excess=self.excess.withheld(cell),
            unshared=unshared,
            without_copies=without and without.withheld(cell),
        )

    def as_shares(self, cell: int) -> Excess:
        """Return both rates as publishable shares of individuals, with bounds in place of small counts; see
        `Estimate.as_share`."""
        return replace(
            self,
            members=self.members.as_share(self.members.n, cell),
            heldout=self.heldout.as_share(self.heldout.n, cell),
            unshared=self.unshared and self.unshared.as_shares(cell),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed(Excess):
    """The share of individuals with at least one identifier of their own (that no other unit uses) which a model
    emits."""

    def withhold_small_counts(self, raw: Excess, cell: int) -> Exposed:
        """Return publishable shares of individuals of whom an identifier leaked: a share becomes a bound unless at
        least ``cell`` individuals had a leak and at least ``cell`` had none. ``raw`` has the unpublished shares."""
        kept = Excess.withhold_small_counts(self.as_shares(cell), raw, cell)
        assert isinstance(kept, Exposed)
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The mean over the tokens of each side, and the held-out mean minus that of the members."""

    members: Annotated[Estimate, OVER_INDIVIDUALS]
    heldout: Annotated[Estimate, OVER_INDIVIDUALS]
    gap: Annotated[Estimate, OVER_INDIVIDUALS]

    def withhold_small_counts(self, raw: Gap, cell: int) -> Gap:
        """Return a publishable copy: the difference of the two means is removed if either mean is withheld."""
        return (
            replace(self, gap=self.gap.withheld(cell)) if any(map(is_withheld, (self.members, self.heldout))) else self
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersBeside:
    """Numbers of a model that are shown beside its verdict (`reticent.audit.judgement.rows.BESIDE`): losses are in
    nats."""

    loss_gap: Annotated[Gap | None, PARTS] = optional()
    #: Rate of identifiers that both sides have, less that of the base model, over the individuals of both sides.
    shared_over_base: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    #: Counterfactual memorisation by shadow models, of all individuals and of the most exposed tenth.
    counterfactual: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    counterfactual_exposed: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    #: Individuals whose document is identified among those of decoys by its hidden states.
    identity: Annotated[Excess | None, PARTS] = optional()


def f1_from_jaccard(jaccard: float) -> float:
    """Return F1 = 2 J / (1 + J) from the Jaccard index J of the members and the individuals declared members."""
    return 2 * jaccard / (1 + jaccard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Precision, recall and F1 of an attack that declares individuals members."""

    precision: Annotated[Estimate, OVER_INDIVIDUALS]
    recall: Annotated[Estimate, OVER_INDIVIDUALS]
    f1: Annotated[Estimate, OVER_INDIVIDUALS]

    def withhold_small_counts(self, raw: Calls, cell: int) -> Calls:
        """Return publishable precision, recall and F1 of declaring individuals members: all become bounds unless at
        least ``cell`` members are declared members and at least ``cell`` are not."""
        # If the number of calls is 0 or withheld, the small cell itself bounds the calls from above.
        members, called = self.recall.n, self.precision.n or cell
        if self.recall.value is None or not members:
            return self
        hit = round(self.recall.value * members)
        few = cell if 0 < hit < cell else members - cell if 0 < members - hit < cell else None
        recall = self.recall.as_share(members, cell)
        if few is None or recall.bound is None:
            return replace(self, recall=recall)
        f1, precision = self.f1, self.precision
        if f1.value is not None:
            # The ends are at least those of the bound itself, as in `Estimate.bounded`.
            low, high = map(f1_from_jaccard, clopper_pearson(few, max(called + members - few, few)))
            f1 = replace(f1, low=min(f1.low or 0.0, low), high=max(f1.high or 0.0, high))
            f1 = f1.bounded(min(2 * few / (called + members), 1.0), recall.bound)
        if precision.value is not None:
            precision = precision.bounded(min(few / called, 1.0), recall.bound, called)
        return replace(self, recall=recall, f1=f1, precision=precision)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCalls(Calls):
    """Results of the attack by an adversary's graph: it has ``num_identifiers``, of which ``num_false`` are not
    identifiers in all documents."""

    num_identifiers: Annotated[int | None, COUNT] = optional()
    num_false: Annotated[int | None, COUNT] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphShare(GraphCalls):
    """Results of the attack by an adversary who has ``share`` of the documents."""

    share: Annotated[float, SETTING]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowCost(Calls):
    """Low-cost membership: the headline, the results by share of the documents that the adversary has, and the result
    for an adversary who has the training documents.
    """

    by_graph_share: Annotated[list[GraphShare], PARTS]
    training_graph: Annotated[GraphCalls | None, PARTS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    """Settings of the text generation of a causal model."""

    num_prompts: Annotated[int, SETTING]
    prefix_tokens: Annotated[int, SETTING]
    num_tokens: Annotated[int, SETTING]
    num_samples: Annotated[int, SETTING]
    temperature: Annotated[float, SETTING]
    top_k: Annotated[int, SETTING]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuations:
    """Similarity of generated continuations to those of the documents; each score is from 0 to 1."""

    bleu: Annotated[Estimate, OVER_INDIVIDUALS]
    rouge1: Annotated[Estimate, OVER_INDIVIDUALS]
    rouge2: Annotated[Estimate, OVER_INDIVIDUALS]
    rouge_l: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Leakage in text that a causal model generates."""

    settings: Annotated[GenerationSettings | None, PARTS] = optional()
    decoding: Annotated[str | None, NAME] = optional()
    num_prompts: Annotated[Sides, PARTS]
    excess: Annotated[dict[Part, Excess], PARTS]
    #: Individuals with an identifier of their own in generated text.
    exposed: Annotated[Exposed | None, PARTS] = optional()
    #: Continuations of held-out individuals' documents, and of members' documents.
    heldout: Annotated[Continuations | None, PARTS] = optional()
    members: Annotated[Continuations | None, PARTS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOccurrences:
    """Leakage of a masked model that predicts a word with all its occurrences in the window masked."""

    privacy: Annotated[dict[Part, Privacy], PARTS]
    excess: Annotated[dict[Part, Excess], PARTS]
    exposed: Annotated[Exposed | None, PARTS] = optional()
