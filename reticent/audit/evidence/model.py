"""Evidence of one model: all measurements of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from reticent.audit.evidence.heads import ToldAttribute, ToldNames
from reticent.audit.evidence.inversion import Inversion
from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.ladder import Ladder
from reticent.audit.evidence.leakage import (
    AllOccurrences,
    CategoryPrivacy,
    Excess,
    Exposed,
    Generated,
    Ledger,
    LowCost,
    NgramPrivacy,
    NumbersBeside,
    Part,
    Privacy,
    Utility,
)
from reticent.audit.evidence.membership import (
    BestAttack,
    Blind,
    GroupMembership,
    KindAttack,
    KindMembership,
    MeasuredAttack,
    ThresholdMembership,
    are_enough,
)
from reticent.audit.evidence.rules import NAME, PARTS, PRIVATE, SETTING
from reticent.audit.membership.names import LANGUAGE_MODEL, PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEvidence:
    """All measurements of one checkpoint, or of a base model (recipe "base", epoch 0).

    Of a classifier or a tagger, which is the objective then, the epoch is that of the checkpoint on top of which it was
    trained; it predicts no words, so ``utility`` and ``privacy`` are empty.
    """

    model: Annotated[str | None, NAME] = optional()
    name: Annotated[str, NAME]
    recipe: Annotated[str, NAME]
    objective: Annotated[str, SETTING]
    epoch: Annotated[int, SETTING]
    #: Of a classifier or a tagger: the recipe of that checkpoint, or "base", and whether its own training protects.
    start: Annotated[str | None, NAME] = optional()
    protects: Annotated[bool | None, SETTING] = optional()
    seed: Annotated[int | None, PRIVATE] = optional()
    #: SHA-256 over the digests of the files of the model, and over what its training was made from but the seed.
    digest: Annotated[str | None, SETTING] = optional()
    kin: Annotated[str | None, PRIVATE] = optional()
    #: Number of the training, from 1, if there are several; it stands in for the seed, which is not published.
    training: Annotated[int | None, SETTING] = optional()
    #: Number of trainings in this mean (:mod:`reticent.audit.stats.seeds`); None for a single training.
    num_trainings: Annotated[int | None, SETTING] = optional()
    ledger: Annotated[Ledger | None, PARTS] = None
    #: Differential privacy guarantee of this training, with its unit.
    guarantee: Annotated[str | None, NAME] = optional()
    #: Epsilon spent up to this checkpoint.
    epsilon: Annotated[float | None, SETTING] = optional()
    #: Number of weights of a base model that its files lack (such as an encoder's head) and that were drawn at random.
    num_drawn: Annotated[int | None, SETTING] = optional()
    utility: Annotated[Utility, PARTS]
    privacy: Annotated[dict[Part, Privacy], PARTS]
    privacy_by_n: Annotated[dict[str, NgramPrivacy] | None, PARTS] = optional()
    by_category: Annotated[dict[str, CategoryPrivacy] | None, PARTS] = optional()
    excess: Annotated[dict[Part, Excess] | None, PARTS] = optional()
    over_base: Annotated[dict[Part, Excess] | None, PARTS] = optional()
    #: Individuals with an identifier of their own that is predicted, and not by the base model.
    exposed: Annotated[Exposed | None, PARTS] = optional()
    membership: Annotated[dict[str, MeasuredAttack], PARTS] = field(default_factory=dict)
    best_attack: Annotated[BestAttack | None, PARTS] = optional()
    #: Whether members and held-out individuals were given, and not drawn at random by reticent.
    split_given: Annotated[bool | None, SETTING] = optional()
    #: Why the two sides of a given split are distinguishable without any training on the members.
    sides_differ: Annotated[str | None, NAME] = optional()
    #: Why the two sides are distinguishable without any model though they were drawn at random: a fault of the run.
    fault: Annotated[str | None, NAME] = optional()
    #: Kind of word -> membership by words of that kind alone.
    by_kind: Annotated[dict[str, KindMembership] | None, PARTS] = optional()
    #: Membership of an individual by words at the threshold, in the texts of others.
    threshold: Annotated[ThresholdMembership | None, PARTS] = optional()
    #: Attack on who withdrew since the release before, by the difference of the two models.
    withdrawn: Annotated[KindAttack | None, PARTS] = optional()
    #: Groups of individuals that the job names.
    groups: Annotated[list[GroupMembership] | None, PARTS] = optional()
    blind: Annotated[Blind | None, PARTS] = optional()
    blind_holdout: Annotated[Blind | None, PARTS] = optional()
    low_cost: Annotated[LowCost | None, PARTS] = optional()
    beside: Annotated[NumbersBeside | None, PARTS] = optional()
    all_occurrences: Annotated[AllOccurrences | None, PARTS] = optional()
    generated: Annotated[Generated | None, PARTS] = optional()
    inversion: Annotated[Inversion | None, PARTS] = optional()
    #: Diagnoses of members that it reveals, by what an adversary knows.
    diagnoses: Annotated[Ladder | None, PARTS] = optional()
    #: Attributes of members that can be inferred from a classifier, and their names from a tagger.
    attributes: Annotated[dict[str, ToldAttribute] | None, PARTS] = optional()
    names: Annotated[ToldNames | None, PARTS] = optional()

    @property
    def kind(self) -> str:
        """Kind of model: a language model, a classifier or a tagger."""
        return LANGUAGE_MODEL if self.start is None else self.objective

    @property
    def is_plain(self) -> bool:
        """Whether the model was trained without any protection, so that it can serve as a control for protected
        models."""
        if self.start is None:
            return self.recipe in PLAIN
        return not self.protects and self.start in ("base", *PLAIN)

    def withhold_small_counts(self, raw: ModelEvidence, cell: int) -> ModelEvidence:
        """Return a publishable copy of the model's evidence: attacks on fewer than ``cell`` members or non-members are
        removed, with their intervals. ``raw`` is the unpublished evidence."""
        attacks = {
            name: attack
            for (name, attack), measured in zip(self.membership.items(), raw.membership.values(), strict=True)
            if are_enough(measured, cell)
        }
        best = self.best_attack if self.best_attack and self.best_attack.attack in attacks else None
        if best and raw.best_attack and raw.best_attack.intervals is not None:
            kept = {name: ends for name, ends in raw.best_attack.intervals.items() if name in attacks}
            best = replace(best, intervals=kept)
        blind, of_holdout = (
            own if measured and are_enough(measured, cell) else None
            for own, measured in ((self.blind, raw.blind), (self.blind_holdout, raw.blind_holdout))
        )
        return replace(self, membership=attacks, best_attack=best, blind=blind, blind_holdout=of_holdout)
