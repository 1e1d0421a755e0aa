"""Selections from the evidence for a reader: models by section, recipe and epoch, and their headline numbers (learned
identifiers, best attack, limits of the conclusions, retained words)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from reticent.audit.evidence.corpus import RetentionRow
from reticent.audit.judgement.rows import RISKS, Subject
from reticent.audit.membership.validity import CHANCE, INVALID, NO_POWER, holds_chance
from reticent.audit.report.figure import family, look_of
from reticent.audit.stats.estimate import distance_from_chance

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
    """The models of one ``[[model]]`` section of the job: one base, one objective, each recipe once.

    ``number`` counts the sections of one objective from 1; it is 0 where there is one only, which needs no name.
    """

    objective: str
    model: str | None
    number: int

    def holds(self, model: ModelEvidence) -> bool:
        """Return whether a model belongs to this group."""
        return (model.objective, model.model) == (self.objective, self.model)

    def display_name(self, recipe: str, t: Texts) -> str:
        """Return a recipe's name for display, followed by the section's name if the objective has several sections."""
        return t("common.recipe_of_model", recipe=recipe, model=self.model) if self.number else recipe

    def kind(self, t: Texts) -> str:
        """Return the adjective for this group's models in a sentence ("masked", for example), with the section's name
        if several sections have the same objective."""
        word = t(f"objectives.{self.objective}.kind")
        return f"{word} {self.model}" if self.number else word

    def title(self, t: Texts) -> str:
        """Return the group's heading: its objective, and its section if the objective has several."""
        return self._named(t, t(f"objectives.{self.objective}.title"), self.model)

    def models_title(self, t: Texts) -> str:
        """Return the heading above the report's sentences on this group's models."""
        models = t(f"objectives.{self.objective}.models")
        return t("common.models_of_model", models=models, model=self.model) if self.number else models

    @property
    def short_name(self) -> str:
        """The name of the model section, shortened for a panel title to its beginning and end."""
        name = "".join(c for c in str(self.model) if c.isprintable())
        return name if len(name) <= 15 else f"{name[:7]}…{name[-7:]}"

    def panel_title(self, t: Texts) -> str:
        """Return the group's heading with a shortened section name, for a plot."""
        return self._named(t, t(f"objectives.{self.objective}.title"), self.short_name)

    def short_title(self, t: Texts, what: str, *, in_two_lines: bool = False) -> str:
        """Return the title ``what`` of a narrow panel, with the group's objective and, if it has several sections, the
        section's name; ``in_two_lines`` puts ``what`` in a second line."""
        where = t(f"objectives.{self.objective}.short")
        if not self.number:
            return t("common.name_what", name=where, what=what)
        if in_two_lines:
            return f"{t('common.name_what', name=where, what=self.short_name)}\n{what}"
        return t("common.where_model_what", where=where, model=self.model, what=what)

    def _named(self, t: Texts, title: str, name: str | None) -> str:
        """Return the title, with the name if the objective has several sections."""
        return t("common.name_what", name=title, what=name) if self.number else title

    @property
    def slug(self) -> str:
        """Identifier of the group in HTML ids."""
        return f"{self.objective}-{self.number}" if self.number else self.objective


def shared_objectives(models: Iterable[ModelEvidence]) -> set[str]:
    """Return the objectives (such as "mlm") that more than one ``[[model]]`` section has, so that a recipe's name alone
    does not tell models apart."""
    sections = {(model.objective, model.model) for model in models}
    return {objective for objective, count in Counter(objective for objective, _ in sections).items() if count > 1}


def groups_of(models: Sequence[ModelEvidence], among: Sequence[ModelEvidence] | None = None) -> list[Group]:
    """Return the groups of models, one for each model section, by objective and then in the audit's order; with
    ``among`` only groups with one of those models."""
    groups, shared = [], shared_objectives(models)
    for objective in OBJECTIVES:
        sections = dict.fromkeys(m.model for m in models if m.objective == objective)
        groups += [
            Group(objective, section, number if objective in shared else 0)
            for number, section in enumerate(sections, start=1)
        ]
    return groups if among is None else [group for group in groups if any(map(group.holds, among))]


def by_recipe(models: Sequence[ModelEvidence], group: Group) -> dict[str, list[ModelEvidence]]:
    """Return recipe -> checkpoints, ascending by epoch, of one group."""
    found: dict[str, list[ModelEvidence]] = {}
    for model in filter(group.holds, models):
        found.setdefault(model.recipe, []).append(model)
    return {recipe: sorted(entries, key=lambda m: m.epoch) for recipe, entries in found.items()}


def last_of(models: Sequence[ModelEvidence], group: Group) -> list[ModelEvidence]:
    """Return the last checkpoint of each recipe in a group, as a list."""
    return [entries[-1] for entries in by_recipe(models, group).values()]


def about_recipe(recipe: str, t: Texts) -> str:
    """Return a few words on what a recipe does, by its name; empty for a recipe that the job defines."""
    return "" if family(recipe) == "other" else t(f"recipes.{look_of(recipe).slug}")


#: Utility below which a model has learned so little that its Privacy has little meaning.
LITTLE = 0.1
#: Parts of the identifiers, in words.
PARTS: Mapping[Part, str] = MappingProxyType({part: f"identifiers.{part}" for part in ("both", "direct", "indirect")})


def ordinary_utility(side: SideUtility | None, objective: str) -> Estimate | None:
    """Return the main measure of utility: a masked model's accuracy on ordinary (not identifying) words, or a causal
    model's on ordinary tokens."""
    if side is None:
        return None
    return side.ordinary_word_accuracy if objective == "mlm" else side.ordinary_token_accuracy


def all_utility(side: SideUtility, objective: str) -> Estimate | None:
    """Return the accuracy over all words (masked) or tokens (causal), identifiers included."""
    return side.masked_word_accuracy if objective == "mlm" else side.token_accuracy


def excess_of(model: ModelEvidence) -> tuple[Part, bool, Estimate] | None:
    """Return the clearest leak of identifiers as (type of identifier, whether the base model's leak rates are
    subtracted, members' excess leak rate); the first one measured if none is significant, None if none was measured."""
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
    """Return whether the model predicts members' identifiers measurably more often than held-out individuals', as such
    or in comparison with the base model."""
    excess = excess_of(model)
    return excess is not None and (excess[2].low or 0) > 0


def strongest_attack(model: ModelEvidence, *, even_invalid: bool = False) -> tuple[str, Estimate] | None:
    """Return (name, AUC) of the membership attack whose interval lies farthest from 0.5, invalid attacks left out
    unless ``even_invalid``; None without one."""
    attacks = {n: a for n, a in model.membership.items() if even_invalid or a.verdict != INVALID}
    best = model.best_attack
    if best and best.attack in attacks and best.auc.value is not None:  # its interval holds for the best of several
        return best.attack, best.auc
    # The best of those that are left is picked too: its interval is of those that hold at once.
    ends = (best and best.intervals) or {}
    return strongest_of((name, _replace_interval(attack.auc, ends.get(name))) for name, attack in attacks.items())


def strongest_of(measured: Iterable[tuple[str, Estimate]]) -> tuple[str, Estimate] | None:
    """Return the (name, AUC) of several whose interval, then whose value, lies farthest from 0.5; None without one."""

    def distance(row: tuple[str, Estimate]) -> tuple[float, float]:
        """Return the distance from chance of an AUC's interval, then of its value."""
        auc = row[1]
        ends = -1.0 if auc.low is None or auc.high is None else distance_from_chance(auc.low, auc.high)
        return ends, abs((auc.value or 0.0) - CHANCE)

    return max((row for row in measured if row[1].value is not None), key=distance, default=None)


def attack_below_chance(model: ModelEvidence) -> tuple[str, Estimate] | None:
    """Return (name, AUC) of the membership attack whose interval lies farthest below chance; None if none lies below.
    On a base model it shows that the two sides differ by themselves."""
    ends = (model.best_attack and model.best_attack.intervals) or {}
    measured = [(name, _replace_interval(attack.auc, ends.get(name))) for name, attack in model.membership.items()]
    below = [(name, auc, auc.high) for name, auc in measured if auc.high is not None and auc.high < CHANCE]
    lowest = min(below, key=lambda row: row[2], default=None)
    return lowest and lowest[:2]


def _replace_interval(auc: Estimate, interval: list[float] | None) -> Estimate:
    """Return the AUC with the interval [low, high] in place of its own; unchanged if that is None."""
    return auc if not interval else replace(auc, low=interval[0], high=interval[1])


def loss_auc(model: ModelEvidence) -> Estimate | None:
    """Return the AUC of the loss attack, which every audit makes; None if it is missing."""
    return model.membership["loss"].auc if "loss" in model.membership else None


def is_distinguishable(model: ModelEvidence) -> bool:
    """Return whether the strongest membership attack tells members from others: its AUC interval excludes 0.5."""
    attack = strongest_attack(model)
    return attack is not None and not holds_chance(attack[1])


def is_anything_found(model: ModelEvidence, audit: AuditEvidence) -> bool:
    """Return whether any attack, canary or probe found a measurable leak in the model. Membership attacks on the whole
    text are not counted (see `is_distinguishable`)."""
    extracted = list(_extracted(model, audit))
    subjects = [Subject(model, entry) for entry in extracted] or [Subject(model, None)]
    numbers = (n for risk in RISKS.values() if risk.name != "individual" for s in subjects for n in risk.numbers(s))
    if any(n.invalid is None and n.is_found(n.estimate) for n in numbers):
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
    """Yield the extraction results of the model's last checkpoint, one a training."""
    own = [e for e in (audit.extraction.models if audit.extraction else ()) if _model_key(e) == _model_key(model)]
    last = max((entry.epoch or 0 for entry in own), default=0)
    yield from (entry for entry in own if (entry.epoch or 0) == last)


def _model_key(entry: ModelEvidence | ExtractedModel) -> tuple[str | None, str | None]:
    """Return (model section, recipe) of an entry."""
    return entry.model, entry.recipe


def lies_over(estimate: Estimate | None, other: Estimate | None) -> bool:
    """Return whether the interval of ``estimate`` lies entirely above that of ``other``; False if an interval is
    missing."""
    return bool(
        estimate and other and estimate.low is not None and other.high is not None and estimate.low > other.high
    )


def only_invalid(model: ModelEvidence) -> bool:
    """Return whether every membership attack on the model is invalid, because members and others differ without it."""
    attacks = model.membership.values()
    return bool(attacks) and all(attack.verdict == INVALID for attack in attacks)


def without_power(model: ModelEvidence) -> bool:
    """Return whether a failure of all membership attacks proves nothing: none of the valid ones could be shown to
    succeed on a control model."""
    verdicts = {attack.verdict for attack in model.membership.values()} - {INVALID}
    return verdicts == {NO_POWER}


def utility_of(model: ModelEvidence) -> float | None:
    """Return the model's accuracy on ordinary words of held-out individuals; None if it was not measured."""
    measured = ordinary_utility(model.utility.heldout, model.objective)
    return None if measured is None else measured.value


def learned_little(last: dict[str, ModelEvidence]) -> bool:
    """Return whether each of these models predicts less than the share `LITTLE` of ordinary words of held-out
    individuals correctly."""
    values = [u for m in last.values() if (u := utility_of(m)) is not None]
    return bool(values) and max(values) < LITTLE


def broken_rule(model: ModelEvidence) -> bool:
    """Return whether the model's training count shows prediction targets that its recipe protects."""
    return model.ledger is not None and model.ledger.violations > 0


def retention_rows(corpus: CorpusEvidence) -> list[RetentionRow]:
    """Return the shares of words that remain prediction targets under indirect protection, a row for each policy, n and
    k."""
    rows = corpus.retention_by_policy or corpus.retention or []
    if isinstance(rows, list):
        return rows
    return [RetentionRow(policy=policy, n=corpus.n, k=corpus.k, retention=share) for policy, share in rows.items()]
