"""What a reader sees of the evidence: models by section, recipe and epoch, and which of their numbers speak for them:
learned identifiers, the best attack, limits of the conclusions, and the words that are left as targets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from reticent.audit.evidence.corpus import RetentionRow
from reticent.audit.judgement.rows import RISKS, Subject, is_over
from reticent.audit.membership.validity import CHANCE, INVALID, NO_POWER, holds_chance
from reticent.audit.report.figure import look_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.audit.evidence.corpus import CorpusEvidence
    from reticent.audit.evidence.extraction import ExtractedModel
    from reticent.audit.evidence.leakage import Part, SideUtility
    from reticent.audit.stats.estimate import Estimate
    from reticent.audit.texts import Texts

#: Objectives of models, in the order of a page.
OBJECTIVES = ("mlm", "clm")


@dataclass(frozen=True, slots=True)
class Group:
    """The models of one ``[[model]]`` section of the job: one base, one objective, a recipe once.

    ``number`` counts the sections of one objective from 1; it is 0 where there is one only, which needs no name.
    """

    objective: str
    model: str | None
    number: int

    def holds(self, model: ModelEvidence) -> bool:
        return (model.objective, model.model) == (self.objective, self.model)

    def called(self, recipe: str, t: Texts) -> str:
        """Return a recipe, with the section's name if there are several sections."""
        return t("common.recipe_of_model", recipe=recipe, model=self.model) if self.number else recipe

    def kind(self, t: Texts) -> str:
        """Return words before "model" in a sentence."""
        word = t(f"objectives.{self.objective}.kind")
        return f"{word} {self.model}" if self.number else word

    def title(self, t: Texts) -> str:
        return self._named(t, t(f"objectives.{self.objective}.title"), self.model)

    def models_title(self, t: Texts) -> str:
        """Return the heading over sentences about the models of the group."""
        models = t(f"objectives.{self.objective}.models")
        return t("common.models_of_model", models=models, model=self.model) if self.number else models

    @property
    def short_name(self) -> str:
        """Return the section's name for the title of a panel: its beginning and end, in which the names of a job
        differ.
        """
        name = "".join(c for c in str(self.model) if c.isprintable())
        return name if len(name) <= 15 else f"{name[:7]}…{name[-7:]}"

    def panel_title(self, t: Texts) -> str:
        return self._named(t, t(f"objectives.{self.objective}.title"), self.short_name)

    def short_title(self, t: Texts, what: str, *, lines: bool = False) -> str:
        """Return the title of a narrow panel, or of its alternative text; in ``lines`` a section's name takes one."""
        where = t(f"objectives.{self.objective}.short")
        if not self.number:
            return t("common.where_what", where=where, what=what)
        if lines:
            return f"{t('common.where_what', where=where, what=self.short_name)}\n{what}"
        return t("common.where_model_what", where=where, model=self.model, what=what)

    def _named(self, t: Texts, title: str, name: str | None) -> str:
        return t("common.where_what", where=title, what=name) if self.number else title

    @property
    def slug(self) -> str:
        return f"{self.objective}-{self.number}" if self.number else self.objective


def shared_objectives(models: Iterable[ModelEvidence]) -> set[str]:
    """Return the objectives of more than one ``[[model]]`` section: there the section's name stands by the recipe."""
    sections = {(model.objective, model.model) for model in models}
    return {objective for objective, count in Counter(objective for objective, _ in sections).items() if count > 1}


def groups_of(models: Sequence[ModelEvidence], chosen: Sequence[ModelEvidence] | None = None) -> list[Group]:
    """Return the groups by objective and in the order of the audit; only those of ``chosen`` if that is given."""
    groups, shared = [], shared_objectives(models)
    for objective in OBJECTIVES:
        sections = dict.fromkeys(m.model for m in models if m.objective == objective)
        groups += [
            Group(objective, section, number if objective in shared else 0)
            for number, section in enumerate(sections, start=1)
        ]
    return groups if chosen is None else [group for group in groups if any(map(group.holds, chosen))]


def by_recipe(models: Sequence[ModelEvidence], group: Group) -> dict[str, list[ModelEvidence]]:
    """Return recipe -> its checkpoints by epoch, in the order of the audit."""
    found: dict[str, list[ModelEvidence]] = {}
    for model in filter(group.holds, models):
        found.setdefault(model.recipe, []).append(model)
    return {recipe: sorted(entries, key=lambda m: m.epoch) for recipe, entries in found.items()}


def last_of(models: Sequence[ModelEvidence], group: Group) -> list[ModelEvidence]:
    return [entries[-1] for entries in by_recipe(models, group).values()]


def about_recipe(recipe: str, t: Texts) -> str:
    """Return what a recipe does in a few words; an empty string for one that the job makes."""
    slug = look_of(recipe).slug
    return "" if slug == "other" else t(f"recipes.{slug}")


#: Below this utility a model has learned so little that its Privacy has little meaning.
LITTLE = 0.1
#: Parts of the identifiers, in words.
PARTS: Mapping[Part, str] = MappingProxyType({part: f"identifiers.{part}" for part in ("both", "direct", "indirect")})


def ordinary_utility(side: SideUtility | None, objective: str) -> Estimate | None:
    """Headline utility: ordinary words of a masked model, or ordinary tokens of a causal one, that it gets right."""
    if side is None:
        return None
    return side.ordinary_word_accuracy if objective == "mlm" else side.ordinary_token_accuracy


def all_utility(side: SideUtility, objective: str) -> Estimate | None:
    """The same over all words or tokens, identifiers included."""
    return side.masked_word_accuracy if objective == "mlm" else side.token_accuracy


def excess_of(model: ModelEvidence) -> tuple[Part, bool, Estimate] | None:
    """The part of the identifiers that is learned most surely, over held-out individuals alone or less what the base
    model predicts too (true); all of them where none is learned measurably.
    """
    found = [
        (part, over_base, sides.excess)
        for over_base, parts in ((False, model.excess), (True, model.over_base))
        for part in PARTS
        if (sides := (parts or {}).get(part))
    ]
    measured = [row for row in found if row[2].value is not None and row[2].low is not None]
    learned = [row for row in measured if (row[2].low or 0) > 0]
    return max(learned, key=lambda row: row[2].low or 0) if learned else next(iter(measured), None)


def leaks_more(model: ModelEvidence) -> bool:
    excess = excess_of(model)
    return excess is not None and (excess[2].low or 0) > 0


def strongest_attack(model: ModelEvidence, *, even_invalid: bool = False) -> tuple[str, Estimate] | None:
    """Return the attack whose interval lies farthest from chance, with its area: the worst case, no average."""
    attacks = {n: a for n, a in model.membership.items() if even_invalid or a.verdict != INVALID}
    best = model.best_attack
    if best and best.attack in attacks and best.auc.value is not None:  # its interval holds for the best of several
        return best.attack, best.auc
    # The best of those that are left is picked too: its interval is of those that hold at once.
    ends = (best and best.intervals) or {}
    measured = [(name, _with_ends(attack.auc, ends.get(name))) for name, attack in attacks.items()]
    known = [(name, auc, auc.value) for name, auc in measured if auc.value is not None]

    def distance(row: tuple[str, Estimate, float]) -> tuple[float, float]:
        """How far its interval lies from chance, on whichever side."""
        low, high = row[1].low, row[1].high
        known_ends = -1.0 if low is None or high is None else max(low - CHANCE, CHANCE - high)
        return known_ends, abs(row[2] - CHANCE)

    strongest = max(known, key=distance, default=None)
    return strongest and strongest[:2]


def attack_below_chance(model: ModelEvidence) -> tuple[str, Estimate] | None:
    """Return the attack whose interval lies furthest below chance, with its area; None if none does. Of a base model it
    says as much as one above chance: the two sides differ."""
    ends = (model.best_attack and model.best_attack.intervals) or {}
    measured = [(name, _with_ends(attack.auc, ends.get(name))) for name, attack in model.membership.items()]
    below = [(name, auc, auc.high) for name, auc in measured if auc.high is not None and auc.high < CHANCE]
    lowest = min(below, key=lambda row: row[2], default=None)
    return lowest and lowest[:2]


def _with_ends(auc: Estimate, ends: list[float] | None) -> Estimate:
    return auc if not ends else replace(auc, low=ends[0], high=ends[1])


def loss_auc(model: ModelEvidence) -> Estimate | None:
    """The area of the attack by the loss, which every audit has."""
    return model.membership["loss"].auc if "loss" in model.membership else None


def is_distinguishable(model: ModelEvidence) -> bool:
    attack = strongest_attack(model)
    return attack is not None and not holds_chance(attack[1])


def is_anything_found(model: ModelEvidence, audit: AuditEvidence) -> bool:
    """Return whether any attack on the model measurably found something, within a threshold or without one: a number of
    a risk, canaries that protection was to keep out, or a probe that finds more of members than of held-out
    individuals. Membership by the whole text is that of `is_distinguishable`.
    """
    extracted = list(_extracted(model, audit))
    subjects = [Subject(model, entry) for entry in extracted] or [Subject(model, None)]
    numbers = (n for risk in RISKS.values() if risk.name != "individual" for s in subjects for n in risk.numbers(s))
    if any(n.invalid is None and is_over(n.estimate, n.null) for n in numbers):
        return True
    arms = ((name, arm) for entry in extracted if entry.canaries for name, arm in entry.canaries.arms.items())
    if any(name != "missed" and arm.excess_exposure and (arm.excess_exposure.low or 0) > 0 for name, arm in arms):
        return True
    names = (model.recipe, f"{model.recipe} of {model.model}")
    probed = [one for one in (audit.probe.models if audit.probe else ()) if one.name in names]
    return any(
        lies_over(row.likelihood.factor if row.likelihood else None, row.heldout.factor)
        or lies_over(row.exact_match, row.heldout.exact_match)
        for one in probed
        for row in one.results
        if row.heldout
    )


def _extracted(model: ModelEvidence, audit: AuditEvidence) -> Iterator[ExtractedModel]:
    """Yield passages and canaries of the model's last checkpoint, of every training of it."""
    own = [e for e in (audit.extraction.models if audit.extraction else ()) if _key(e) == _key(model)]
    last = max((entry.epoch or 0 for entry in own), default=0)
    yield from (entry for entry in own if (entry.epoch or 0) == last)


def _key(entry: ModelEvidence | ExtractedModel) -> tuple[str | None, str | None]:
    return entry.model, entry.recipe


def lies_over(one: Estimate | None, other: Estimate | None) -> bool:
    return bool(one and other and one.low is not None and other.high is not None and one.low > other.high)


def only_invalid(model: ModelEvidence) -> bool:
    """Return whether attacks on the model cannot show membership, because the two sides differ without it."""
    attacks = model.membership.values()
    return bool(attacks) and all(attack.verdict == INVALID for attack in attacks)


def without_power(model: ModelEvidence) -> bool:
    """Return whether no attack on the model has shown that it can succeed; then a failed attack proves nothing."""
    verdicts = {attack.verdict for attack in model.membership.values()} - {INVALID}
    return verdicts == {NO_POWER}


def utility_of(model: ModelEvidence) -> float | None:
    measured = ordinary_utility(model.utility.heldout, model.objective)
    return None if measured is None else measured.value


def learned_little(last: dict[str, ModelEvidence]) -> bool:
    values = [u for m in last.values() if (u := utility_of(m)) is not None]
    return bool(values) and max(values) < LITTLE


def broken_rule(model: ModelEvidence) -> bool:
    return model.ledger is not None and model.ledger.violations > 0


def retention_rows(corpus: CorpusEvidence) -> list[RetentionRow]:
    """Return the shares that indirect protection leaves; shares by policy alone are for the n and k of the corpus."""
    rows = corpus.retention_by_policy or corpus.retention or []
    if isinstance(rows, list):
        return rows
    return [RetentionRow(policy=policy, n=corpus.n, k=corpus.k, retention=share) for policy, share in rows.items()]
