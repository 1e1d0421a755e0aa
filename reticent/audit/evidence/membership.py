"""Evidence of membership: every attack, the best of them, the worst subgroup, and the blind baseline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import COUNT, CURVE, NAME, OVER_INDIVIDUALS, PARTS, PRIVATE, SETTING, TOGETHER, TOTAL
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Roc:
    """Points of a ROC curve, from (0, 0) to (1, 1)."""

    fpr: Annotated[list[float], CURVE]
    tpr: Annotated[list[float], CURVE]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackedDocuments:
    """The attack's AUC with the document as the unit; intervals are over individuals."""

    auc: Annotated[Estimate, OVER_INDIVIDUALS]
    num_documents: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstSubgroup:
    """The subgroup whose members are most clearly distinguishable, out of ``num_groups`` that were tested."""

    #: The field that names each training's own group where the mean of several trainings is taken.
    NAMED_BY_ALL = "group"

    group: Annotated[str, NAME]
    num_groups: Annotated[int, TOTAL]
    num_members: Annotated[int | None, COUNT]
    num_nonmembers: Annotated[int | None, COUNT]
    auc: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The most exposed members of an attack: their share above the threshold at the false-positive rate ``fpr``, with
    intervals simultaneous over all attacks. Over few individuals, ``fpr`` is None and the share is that of the members
    above every non-member, with ``p_value``."""

    rate: Annotated[Estimate | None, TOGETHER]
    fpr: Annotated[float | None, SETTING] = None
    num_above: Annotated[int | None, COUNT]
    p_value: Annotated[float | None, PRIVATE] = None

    def withhold_small_counts(self, raw: Told, cell: int) -> Told:
        """Return a publishable share of members whom an attack identifies: a bound, or nothing, unless at least
        ``cell`` members are identified and at least ``cell`` are not. ``raw`` has the unpublished share."""
        if raw.rate is None:
            return self
        closed = raw.rate.withhold_small_counts(raw.rate, cell)
        return replace(self, rate=closed.as_share(closed.n, cell))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """An attack between members and others who are alike without the model: the mean of its AUCs within strata of the
    propensity of membership, and the numbers of individuals in strata with enough of both sides."""

    auc: Annotated[Estimate, OVER_INDIVIDUALS]
    num_strata: Annotated[int, TOTAL]
    num_members: Annotated[int | None, COUNT]
    num_nonmembers: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAttack:
    """One attack on one model. ``control`` is the same shadow attack on the base model, ``slope`` is RMIA's a, fitted
    on a population, and `validity.with_attack_verdicts` sets ``verdict`` and ``why``. ``auc_without_copies`` leaves out
    the held-out individuals who hold near-copies of members' documents. ``over_base`` is 0.5 plus the AUC less that of
    the same attack on the base model (or, for an attack that compares with the base already, on shadow models that were
    not trained on the individual), over the same individuals and resamples; None without a control."""

    auc: Annotated[Estimate, OVER_INDIVIDUALS]
    over_base: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    #: Of a copy of a model: 0.5 plus the AUC less that of the same attack on the model itself.
    over_source: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    auc_without_copies: Annotated[Estimate | None, TOGETHER] = optional()
    #: Only of a split that was given.
    matched: Annotated[Matched | None, PARTS] = optional()
    documents: Annotated[AttackedDocuments | None, PARTS] = optional()
    tpr_at_fpr: Annotated[dict[str, Estimate | None] | None, TOGETHER] = optional()
    roc: Annotated[Roc, CURVE]
    unit: Annotated[str, SETTING] = "individual"
    num_members: Annotated[int | None, COUNT]
    num_nonmembers: Annotated[int | None, COUNT]
    worst_subgroup: Annotated[WorstSubgroup | None, PARTS] = None
    control: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    num_shadows: Annotated[int | None, SETTING] = optional()
    slope: Annotated[float | None, TOTAL] = optional()
    verdict: Annotated[str | None, SETTING] = optional()
    why: Annotated[str | None, NAME] = optional()
    told: Annotated[Told | None, PARTS] = optional()

    def withhold_small_counts(self, raw: MeasuredAttack, cell: int) -> MeasuredAttack:
        """Return a publishable copy of the attack's result: points of the ROC curve, rates and subgroups that stand for
        fewer than ``cell`` individuals are removed or become bounds. ``raw`` is the unpublished result."""
        if not are_enough(raw, cell):
            return self
        rates = None
        if raw.tpr_at_fpr is not None:
            rates = {fpr: rate and self._publish_tpr(rate, cell) for fpr, rate in raw.tpr_at_fpr.items()}
        worst = self.worst_subgroup if raw.worst_subgroup and are_enough(raw.worst_subgroup, cell) else None
        without = _publish_auc_without_copies(raw, cell)
        return replace(
            self,
            roc=_publish_roc(raw, cell),
            tpr_at_fpr=rates,
            worst_subgroup=worst,
            auc_without_copies=without,
            matched=self.matched if raw.matched and not _is_subset_small(raw, raw.matched, cell) else None,
        )

    def _publish_tpr(self, tpr: Estimate, cell: int) -> Estimate:
        """Return a publishable true-positive rate: a bound unless at least ``cell`` members are found and at least
        ``cell`` are not; nothing if fewer than ``cell`` were attacked."""
        return (tpr.withheld(cell) if 0 < (tpr.n or 0) < cell else tpr).as_share(self.num_members, cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindAttack:
    """One attack by the words of one kind: the AUC, and the true-positive rate at 1 % false positives.

    Fields ``in_turn`` are means over the shadows, each of which is the target once. ``auc`` and ``over_base`` (as in
    `MeasuredAttack`) have intervals that are simultaneous over all AUCs of a risk.
    """

    auc: Annotated[Estimate, OVER_INDIVIDUALS]
    over_base: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    auc_without_copies: Annotated[Estimate | None, TOGETHER] = optional()
    tpr: Annotated[Estimate | None, TOGETHER] = optional()
    auc_in_turn: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    tpr_in_turn: Annotated[Estimate | None, TOGETHER] = optional()
    #: At a false-positive rate of 0.1 %, over all pairs of a shadow and an individual.
    low_tpr_in_turn: Annotated[Estimate | None, TOGETHER] = optional()
    num_members: Annotated[int | None, COUNT]
    num_nonmembers: Annotated[int | None, COUNT]
    told: Annotated[Told | None, PARTS] = optional()

    def withhold_small_counts(self, raw: KindAttack, cell: int) -> KindAttack:
        """Return a publishable copy of the result of an attack by one kind of word: no numbers if fewer than ``cell``
        members or non-members were attacked, and bounds in place of small rates. ``raw`` is the unpublished result."""
        if not are_enough(raw, cell):
            return replace(self, auc=self.auc.withheld(cell), over_base=None, auc_in_turn=None, told=None)
        tpr = raw.tpr and raw.tpr.as_share(raw.num_members, cell)
        in_turn, low = (
            found and found.as_share((found.n or 0) // 2, cell) for found in (raw.tpr_in_turn, raw.low_tpr_in_turn)
        )
        return replace(
            self,
            tpr=tpr,
            tpr_in_turn=in_turn,
            low_tpr_in_turn=low,
            auc_without_copies=_publish_auc_without_copies(raw, cell),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KindMembership:
    """Membership by the words of one kind, which make up ``share`` of all tokens: its attacks, and d', the distance
    between in-shadows and out-shadows in units of their spread, for all individuals and for the most exposed tenth.
    `validity.with_attack_verdicts` sets ``why`` if attacks without shadows show nothing, since the sides differ by
    themselves.
    """

    share: Annotated[float, TOTAL]
    num_shadows: Annotated[int | None, SETTING] = optional()
    attacks: Annotated[dict[str, KindAttack], PARTS]
    d_prime: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    d_prime_exposed: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    why: Annotated[str | None, NAME] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdMembership:
    """Membership by the protection threshold: ``at_threshold``, by words that exactly k individuals use, in the texts
    of the others; ``above``, the same by words of a few users more, which are targets whoever is a member (not with
    noise); ``by_likelihood``, by all words near the threshold, each weighed by its likelihood ratio. ``epsilon`` and
    ``delta`` are those of a noisy threshold: of each word, or where ``max_words`` is set, of an individual of whom so
    many words count."""

    k: Annotated[int, SETTING]
    num_words: Annotated[int | None, COUNT]
    at_threshold: Annotated[KindAttack, PARTS]
    above: Annotated[KindAttack, PARTS]
    by_likelihood: Annotated[KindAttack | None, PARTS] = optional()
    #: By owners of words that protection of direct identifiers hides in the texts of others.
    by_owner: Annotated[KindAttack | None, PARTS] = optional()
    epsilon: Annotated[float | None, SETTING] = optional()
    delta: Annotated[float | None, SETTING] = optional()
    max_words: Annotated[int | None, SETTING] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembership:
    """Members of a named group against its held-out individuals: the attack that separates them best, its AUC, and the
    p-value of a permutation test times the number of attacks on all groups. Both are None if a side is empty."""

    #: The field that names each training's own attack where the mean of several trainings is taken.
    NAMED_BY_ALL = "attack"

    name: Annotated[str, NAME]
    num_members: Annotated[int | None, COUNT]
    num_nonmembers: Annotated[int | None, COUNT]
    attack: Annotated[str | None, NAME] = optional()
    auc: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    p_value: Annotated[float | None, TOGETHER] = optional()

    def withhold_small_counts(self, raw: GroupMembership, cell: int) -> GroupMembership:
        """Return a publishable copy of the attacks' result on a group of individuals: no numbers if fewer than ``cell``
        of its members or non-members were attacked. ``raw`` is the unpublished result."""
        if not are_enough(raw, cell):
            return replace(self, attack=None, auc=None, p_value=None)
        return replace(self, p_value=raw.p_value)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestAttack:
    """The attack whose interval lies farthest from chance, with simultaneous intervals of all attacks."""

    attack: Annotated[str, NAME]
    num_attacks: Annotated[int, TOTAL]
    auc: Annotated[Estimate, OVER_INDIVIDUALS]
    #: Attack -> [low, high]; `ModelEvidence` restores those of published attacks.
    intervals: Annotated[dict[str, list[float]] | None, TOGETHER] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Blind:
    """AUC at which words, lengths, numbers of documents, dates or sites separate members from held-out individuals
    without any model. ``by`` is the best of these features, ``p_value`` how often chance does as well."""

    auc: Annotated[Estimate, OVER_INDIVIDUALS]
    by: Annotated[str | None, NAME] = optional()
    p_value: Annotated[float | None, TOTAL] = optional()
    num_members: Annotated[int | None, COUNT]
    num_nonmembers: Annotated[int | None, COUNT]


def over_households(attacks: Iterable[MeasuredAttack]) -> Estimate | None:
    """Return the AUC over the most households, among these attacks' AUCs whose confidence interval resamples
    households; None if all resample individuals."""
    areas = (attack.auc for attack in attacks if attack.auc.num_households)
    return max(areas, key=lambda auc: auc.num_households or 0, default=None)


def are_enough(
    measured: MeasuredAttack | Matched | WorstSubgroup | Blind | KindAttack | GroupMembership, cell: int
) -> bool:
    """Return whether at least ``cell`` members and ``cell`` non-members were attacked; a number that is withheld (None)
    counts as 0."""
    return min(measured.num_members or 0, measured.num_nonmembers or 0) >= cell


def _publish_auc_without_copies(unpublished: MeasuredAttack | KindAttack, cell: int) -> Estimate | None:
    """Return the publishable AUC of an attack after held-out individuals with near-copies of members' documents were
    removed: without numbers if fewer than ``cell`` individuals were removed, or fewer held-out ones remain."""
    found = unpublished.auc_without_copies
    if found is None or found.n is None:
        return found
    left_out = (unpublished.auc.n or 0) - found.n
    few = 0 < left_out < cell or (unpublished.num_nonmembers or 0) - left_out < cell
    return found.withheld(cell) if few else found.withhold_small_counts(found, cell)


def _is_subset_small(all_attacked: MeasuredAttack, subset: Matched, cell: int) -> bool:
    """Return whether fewer than ``cell`` members or non-members are in the ``subset``, or in the rest of those
    attacked, so that the results on both may not be published together."""
    sides = (all_attacked.num_members, subset.num_members), (all_attacked.num_nonmembers, subset.num_nonmembers)
    return not are_enough(subset, cell) or any(0 < (of or 0) - (own or 0) < cell for of, own in sides)


def _publish_roc(measured: MeasuredAttack, cell: int) -> Roc:
    """Return the attack's ROC curve without the points that would reveal fewer than ``cell`` members or non-members."""
    sides = (measured.num_nonmembers or 0, measured.num_members or 0)
    points = list(zip(measured.roc.fpr, measured.roc.tpr, strict=True))
    kept = [p for p in points if not any(0 < round(rate * n) < cell for rate, n in zip(p, sides, strict=True))]
    return Roc(fpr=[fpr for fpr, _ in kept], tpr=[tpr for _, tpr in kept])
