"""Findings in plain sentences: the result, its certainty, and the next step.

The reader decides whether a model may be released and need not know the field. So a sentence names the count and the
individuals behind it, a rate of 0 has its upper bound, and an attack that finds nothing counts as such only if the same
attack succeeds on an unprotected model. No next step advises to share a model: that is for who answers for it.

Each sentence about models is `Marked` with its statement on each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.judgement.rows import BEYOND, FAIL, NOT_SHOWN, PASS, RISKS, WITHIN
from reticent.audit.judgement.verdict import judge_risks
from reticent.audit.membership.names import CLASSIFIER, TAGGER
from reticent.audit.membership.validity import NO_POWER, holds_chance, is_over_chance
from reticent.audit.recipes import is_elsewhere, is_unprotected, recipe_of, subject_settings
from reticent.audit.report.figure import has_value
from reticent.audit.report.format_estimate import at_most, interval_of, percent, points
from reticent.audit.report.risk_text import AREAS, found_mark, found_number, is_found, number_in_words, risk_mark
from reticent.audit.report.selectors import (
    LITTLE,
    PARTS,
    Group,
    about_recipe,
    attack_below_chance,
    broken_rule,
    by_recipe,
    excess_of,
    groups_of,
    is_anything_found,
    is_distinguishable,
    leaks_more,
    learned_little,
    lies_over,
    only_invalid,
    retention_rows,
    strongest_attack,
    utility_of,
    without_power,
)
from reticent.audit.stats.estimate import CHANCE
from reticent.audit.stats.seeds import classification_over_seeds, last_checkpoints, max_num_trainings
from reticent.audit.texts import ENGLISH, FOUND, NOT_FOUND, NOT_MEASURED, Mark, Marked, Texts, model_name
from reticent.trainer.privacy import MEANINGLESS, Guarantee, parse_guarantee, show_delta, show_epsilon, together

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.audit.evidence.corpus import CorpusEvidence
    from reticent.audit.evidence.extraction import Verdict
    from reticent.audit.evidence.leakage import Ledger
    from reticent.audit.evidence.risks import ModelRisks, RiskResult, RiskTable
    from reticent.audit.stats.estimate import Estimate

#: Risks of membership: of the person, and by identifying words (the threshold attack among them).
MEMBERSHIP = ("individual", "words")
#: Non-members needed for a false-positive rate of 1 % (definitions.md#intervals).
WANTED_NONMEMBERS = 1000
#: Under this share of words left as targets a run warns (definitions.md#identifiers).
LOW_RETENTION = 0.4
#: (risk, number) of the marks of sentences on the training rule, utility and differential privacy.
RULE = ("training", "protected targets")
UTILITY = ("utility", "ordinary words")
GUARANTEE = ("training", "epsilon")
#: Recipe -> its checkpoints by epoch.
Checkpoints = dict[str, list["ModelEvidence"]]
#: (name in the sentence, model).
Named = tuple[str, "ModelEvidence"]
Ledgers = list[tuple[str, "ModelEvidence", "Ledger"]]


class Outcomes:
    """The judged risks by model: the single source of statements on risks in sentences."""

    def __init__(self, risks: RiskTable):
        self._rows = {(row.model, row.objective, row.recipe): row for row in risks.rows}

    def row(self, model: ModelEvidence) -> ModelRisks | None:
        """Return the verdict on a model; None if it was not judged."""
        return self._rows.get((model.model, model.objective, model.recipe))

    def heads(self) -> list[ModelRisks]:
        """Return the verdicts on classifiers and taggers."""
        return [row for row in self._rows.values() if row.objective in (CLASSIFIER, TAGGER)]

    def results(self, model: ModelEvidence) -> dict[str, RiskResult]:
        """Return risk -> result of a model; empty if no verdict was reached on it."""
        row = self.row(model)
        return {result.risk: result for result in row.results} if row else {}

    def is_found(self, model: ModelEvidence, risk: str) -> bool:
        """Return whether an attack found a measurable leak of this risk in a model, be it above or below the
        threshold.
        """
        result = self.results(model).get(risk)
        return result is not None and is_found(result)

    def is_any_found(self, model: ModelEvidence) -> bool:
        """Return whether an attack found a measurable leak of any risk in a model."""
        return any(map(is_found, self.results(model).values()))

    def outcome(self, model: ModelEvidence, risk: str) -> str:
        """Return the outcome of this risk of a model; `NOT_SHOWN` if it was not judged."""
        result = self.results(model).get(risk)
        return result.outcome if result else NOT_SHOWN

    def found_marks(self, rows: Iterable[Named], risk: str) -> list[Mark]:
        """Return for each model a machine-readable mark that says whether a leak of this risk was found, to be attached
        to a sentence that says the same."""
        return [found_mark(row, self.results(m)[risk]) for _, m in rows if (row := self.row(m))]

    def marks(self, rows: Iterable[Named], risk: str) -> list[Mark]:
        """Return for each model a machine-readable mark with the outcome of this risk, to be attached to a sentence
        that states the outcome."""
        return [risk_mark(row, self.results(m)[risk]) for _, m in rows if (row := self.row(m))]


class Findings(NamedTuple):
    """Sentences of the report: the answer in short, the findings by heading, their certainty, and the next steps."""

    short: list[str]
    found: list[tuple[str, list[str]]]
    sure: list[str]
    next: list[str]


def plain_findings(audit: AuditEvidence, t: Texts = ENGLISH) -> Findings:
    """Return the findings of a published audit in plain sentences: short answer, findings by model, how sure they are,
    next steps."""
    models = audit.models
    checkpoints = {group: by_recipe(models, group) for group in groups_of(models)}
    sides = {g: {r: entries[-1] for r, entries in recipes.items()} for g, recipes in checkpoints.items()}
    found = [(t("findings.the_documents"), [_corpus_sentence(audit.corpus, t)])]
    outcomes = Outcomes(audit.risks or judge_risks(audit))
    found += [
        (g.models_title(t), list(_model_sentences(g, last, outcomes, t, is_elsewhere(audit))))
        for g, last in sides.items()
    ]
    sure = [_individuals_sentence(audit, t), *_list_sentence(audit, t), *_seed_sentences(models, outcomes, t)]
    for group, last in sides.items():
        sure += _control_sentences(group, last, outcomes, audit, t)
    ledgers = _last_ledgers(checkpoints, t)
    sure += [
        *_ledger_sentence(ledgers, t),
        *_guarantee_sentences(checkpoints, audit, t),
        *random_weights_sentences(models, t),
    ]
    then = [
        *broken_training_sentences(ledgers, t),
        *next_step_sentences(sides, checkpoints, outcomes, audit, t),
        *better_audit_sentences(audit, t),
    ]
    short = [*_gate_sentence(audit.verdict, t), *_canary_sentence(audit, t), *_short_answer(sides, outcomes, t)]
    return Findings(short, found, sure, then)


# ---------------------------------------------------------------- results


def _gate_sentence(verdict: Verdict | None, t: Texts) -> Iterable[str]:
    """Yield a sentence with the numbers of gates (limits set by the job) that passed, failed or were undecided; nothing
    without gates."""
    outcomes = [row.outcome for row in verdict.results] if verdict else []
    counts = {FAIL: "findings.gates_failed", NO_POWER: "findings.gates_undecided", PASS: "findings.gates_passed"}
    if outcomes:
        said = [t(text, count=outcomes.count(outcome)) for outcome, text in counts.items() if outcome in outcomes]
        yield t("findings.gates", count=len(outcomes), outcomes=t.listed(said))


def _canary_sentence(audit: AuditEvidence, t: Texts) -> Iterable[str]:
    """Yield a sentence that the models were trained on canaries (made-up secrets), if they were."""
    if audit.extraction and audit.extraction.has_canaries:
        yield t("findings.these_models_were_trained_on_made_up_secrets")


def _short_answer(sides: dict[Group, dict[str, ModelEvidence]], outcomes: Outcomes, t: Texts) -> Iterable[str]:
    """Yield the sentences of the report's short answer: which models were trained on targets their recipe protects,
    learned identifiers, or reveal members. ``sides`` has the last checkpoints by group of models and recipe."""
    trained = [(g.display_name(r, t), m) for g, last in sides.items() for r, m in last.items() if r != "base"]
    broken = [(r, m) for r, m in trained if broken_rule(m)]
    if broken:
        yield Marked(
            t("findings.training_broke_its_own_rule_for_names", names=_join_names(broken, t)),
            *_marks_of_models(broken, *RULE, "broken"),
        )
    leaky = [(r, m) for r, m in trained if outcomes.is_found(m, "emission")]
    silent = [g.kind(t) for g, last in sides.items() if not _positive_control_found(g, last, outcomes)]
    if leaky:
        some = [(r, m) for r, m in leaky if outcomes.outcome(m, "emission") == WITHIN]
        names, marks = _join_names(leaky, t), outcomes.found_marks(leaky, "emission")
        if some:
            text = t("findings.leaky_some", count=len(leaky), names=names, some=_join_names(some, t))
            yield Marked(text, *marks, *outcomes.marks(some, "emission"))
        else:
            yield Marked(t("findings.leaky", count=len(leaky), names=names), *marks)
        unsure = [(r, m) for r, m in leaky if outcomes.outcome(m, "emission") == NOT_SHOWN]
        if unsure:
            text = t("findings.leaky_open", count=len(unsure), names=_join_names(unsure, t))
            yield Marked(text, *outcomes.marks(unsure, "emission"))
    if len(leaky) < len(trained):
        quiet = outcomes.found_marks([row for row in trained if row not in leaky], "emission")
        if silent:
            key = "findings.no_others_leaky_but" if leaky else "findings.none_leaky_but"
            yield Marked(t(key, kinds=t.listed(silent)), *quiet)
        else:
            yield Marked(t("findings.no_others_leaky" if leaky else "findings.none_leaky"), *quiet)
    for risk in MEMBERSHIP:
        known = {"risk": t.evidence(RISKS[risk].title)}
        told = [(r, m) for r, m in trained if outcomes.is_found(m, risk)]
        if told:
            text = t("findings.who_was_in_the_data_is_distinguishable", names=_join_names(told, t), **known)
            yield Marked(text, *outcomes.found_marks(told, risk))
    attacked = [(r, m) for r, m in trained if strongest_attack(m)]
    if attacked and not any(outcomes.is_found(m, risk) for risk in MEMBERSHIP for _, m in trained):
        known = {"risk": t.evidence(RISKS["individual"].title)}
        weak = [r for r, m in trained if without_power(m)]
        key = "findings.nobody_distinguishable_but" if weak else "findings.nobody_distinguishable"
        text = t(key, names=t.listed(weak), **known) if weak else t(key, **known)
        yield Marked(text, *outcomes.found_marks(attacked, "individual"))
    unsaid = [(r, m) for r, m in trained if _is_unjudgeable(m, outcomes)]
    if unsaid:
        text = "findings.who_was_in_the_data_of_names_was"
        yield Marked(
            t(text, names=_join_names(unsaid, t)), *_marks_of_models(unsaid, "individual", "every attack", NOT_MEASURED)
        )


def _is_unjudgeable(model: ModelEvidence, outcomes: Outcomes) -> bool:
    """Return whether nothing can be said about membership in the model's training set: members and others differ even
    without the model, which makes every attack invalid, and no leak was found."""
    return only_invalid(model) and not outcomes.is_found(model, "individual")


def _join_names(rows: Iterable[tuple[str, ModelEvidence]], t: Texts) -> str:
    """Return the models' names as a list in words."""
    return t.listed([name for name, _ in rows])


def _corpus_sentence(corpus: CorpusEvidence, t: Texts) -> str:
    """Return the sentence with the shares of distinct words and of all occurrences that are identifying (used by fewer
    than k individuals)."""
    return t(
        "findings.identifying_words",
        count=corpus.k - 1,
        k=corpus.k,
        words=percent(corpus.share_types_identifying, t),
        occurrences=percent(corpus.share_occurrences_identifying, t),
    )


def _model_sentences(
    group: Group, last: dict[str, ModelEvidence], outcomes: Outcomes, t: Texts, elsewhere: bool
) -> Iterable[str]:
    """Yield, for each trained model of a group (``last``: its last checkpoints by recipe), the sentences on what it
    predicts, how useful it is and whether it reveals its members."""
    plain = last.get(group.objective)
    trained = {r: m for r, m in last.items() if r != "base"}
    for recipe, model in trained.items():
        about = about_recipe(recipe, t)
        known = {"recipe": recipe, "count": model.epoch}
        twin = None if model is plain else plain
        predicts = f"{_predicted_phrase(model, t)}{_twin_comparison(model, twin, t)}"
        text = (
            t("findings.recipe_predicts", recipe=recipe, predicts=predicts)  # its epochs are not known
            if elsewhere
            else t("findings.recipe_about_epochs_epochs_predicts", **known, about=about, predicts=predicts)
            if about
            else t("findings.recipe_epochs_epochs_predicts", **known, predicts=predicts)
        )
        sentences = [
            text,
            *_excess_sentence(model, t),
            *_other_emission_sentence(model, outcomes, t),
            *_utility_sentence(model, twin, t),
        ]
        yield Marked(" ".join(sentences), *outcomes.found_marks([("", model)], "emission"))
    for risk in MEMBERSHIP:
        known = {"risk": t.evidence(RISKS[risk].title)}
        told = [(r, m) for r, m in trained.items() if outcomes.is_found(m, risk)]
        if told:
            said = [_name_with_best_attack(r, m, outcomes, risk, t) for r, m in told]
            text = t("findings.who_took_part_is_distinguishable_better_than", models=t.apart(said), **known)
            yield Marked(text, *outcomes.found_marks(told, risk))
        rows = [
            (m, t("findings.recipe_area_without_power", recipe=r, area=_auc_in_words(a, t))
             if without_power(m) else f"{r} {_auc_in_words(a, t)}")
            for r, m in trained.items()
            if risk == "individual" and not outcomes.is_found(m, risk) and (a := strongest_attack(m))
        ]  # fmt: skip
        if rows:
            text = t("findings.who_took_part_is_not_measurably", models=t.apart(said for _, said in rows), **known)
            yield Marked(text, *outcomes.found_marks([("", m) for m, _ in rows], risk))
    unsaid = [(r, m) for r, m in trained.items() if _is_unjudgeable(m, outcomes)]
    if unsaid:
        text = "findings.who_took_part_nothing_can_be_said_of"
        yield Marked(
            t(text, names=_join_names(unsaid, t)), *_marks_of_models(unsaid, "individual", "every attack", NOT_MEASURED)
        )


def _name_with_best_attack(recipe: str, model: ModelEvidence, outcomes: Outcomes, risk: str, t: Texts) -> str:
    """Return the model's name with the figure that best reveals its members: the AUC of the strongest attack on whole
    texts, or the figure of the given risk in the table if that is farther from chance."""
    best, result = strongest_attack(model), outcomes.results(model)[risk]
    is_area = (result.found_at_most if result.found else result.number_at_most) is None
    decided = _distance(result.found_estimate if result.found else result.estimate, CHANCE if is_area else 0.0)
    if risk == "individual" and best and is_over_chance(best[1]) and _distance(best[1], CHANCE) >= decided:
        return f"{recipe} {_auc_in_words(best, t)}"
    return _name_with_number(recipe, result, t)


def _distance(estimate: Estimate | None, chance: float) -> float:
    """Return how far an estimate is from chance, on either side; 0 without one."""
    return 0.0 if estimate is None or estimate.value is None else abs(estimate.value - chance)


def _name_with_number(recipe: str, result: RiskResult, t: Texts) -> str:
    """Return the model's name with one figure of a risk: the one that shows a leak most clearly or, without a leak, the
    one that decided the outcome."""
    found = (result.found, result.found_estimate, result.found_at_most)
    what, estimate, own = found if result.found else (result.what, result.estimate, result.number_at_most)
    if what is None:
        return recipe
    number = number_in_words(what, t)
    if estimate is None or estimate.value is None:  # of too few people to publish it
        return f"{recipe} ({number})"
    value = t.value(estimate, area=result.risk in AREAS and own is None)
    return t("findings.told_by_number", recipe=recipe, number=number, value=value)


def _other_emission_sentence(model: ModelEvidence, outcomes: Outcomes, t: Texts) -> Iterable[str]:
    """Yield a sentence on another sign that a model learned identifiers, if it does not predict members' identifiers
    measurably more often than others' and there is such a sign."""
    result = outcomes.results(model).get("emission")
    if result and result.found and not leaks_more(model):
        yield t("findings.found_otherwise", number=found_number(result, t))


def _auc_in_words(attack: tuple[str, Estimate], t: Texts) -> str:
    """Return an attack's AUC with its interval and name, in words."""
    name, auc = attack
    return t(
        "findings.value_interval_attack_attack",
        value=t.value(auc, area=True),
        interval=t.interval(auc, area=True),
        attack=name,
    )


def _predicted_phrase(model: ModelEvidence, t: Texts) -> str:
    """Return a phrase on how many of its members' identifiers a model predicts."""
    part = model.privacy["both"]
    total, leaked = part.num_identifiers, part.num_leaked
    if not total or not has_value(part.types):
        return t("findings.has_too_few_identifiers_to_say")
    known = {"total": t.count(total)}
    if leaked is None:
        return t("findings.predicts_some_of_its_members_total", **known)
    if leaked == 0:
        bound = at_most(part, t)
        if bound is None:
            return t("findings.predicts_none_without_bound", **known)
        return t(
            "findings.predicts_none_of_its_members_total",
            bound=bound,
            **known,
        )
    return t(
        "findings.predicts_leaked_of_its_members_total",
        leaked=t.count(leaked), share=percent(leaked / total, t), **known,
    )  # fmt: skip


def _twin_comparison(model: ModelEvidence, plain: ModelEvidence | None, t: Texts) -> str:
    """Return the phrase that compares the identifiers a model predicts with those of its unprotected twin, ``plain``;
    empty without a twin or without intervals."""
    if plain is None:
        return ""
    own, other = model.privacy["both"].types, plain.privacy["both"].types
    if not (has_value(own) and has_value(other)) or own.low is None or other.low is None:
        return ""
    if lies_over(own, other):
        return t("findings.fewer_than_recipe", recipe=plain.recipe)
    if lies_over(other, own):
        return t("findings.more_than_recipe", recipe=plain.recipe)
    return t("findings.not_measurably_fewer_than_recipe", recipe=plain.recipe)


def _excess_sentence(model: ModelEvidence, t: Texts) -> Iterable[str]:
    """Yield the sentence on how much more often a model predicts members' identifiers than held-out individuals';
    nothing if it predicts none."""
    excess = excess_of(model)
    if excess is None or model.privacy["both"].num_leaked == 0:
        return
    part, over_base, estimate = excess
    what = t(PARTS[part])
    values = {
        "identifiers": t("findings.identifiers_less_what_the_base_model", identifiers=what) if over_base else what,
        "points": points(estimate.value, t),
        "interval": interval_of(estimate, t),
    }
    if leaks_more(model):
        yield t(
            "findings.predicts_heldout_less_often", **values,
        )  # fmt: skip
    elif estimate.high is not None and estimate.high < 0:
        yield t("findings.predicts_heldout_no_less_often", **values)
    else:
        yield t("findings.predicts_heldout_perhaps_as_often", **values)


def _utility_sentence(model: ModelEvidence, plain: ModelEvidence | None, t: Texts) -> Iterable[str]:
    """Yield the sentence with the model's accuracy on held-out individuals' text, next to that of its unprotected twin,
    ``plain``."""
    own = utility_of(model)
    if own is None:
        return
    other = None if plain is None else utility_of(plain)
    unit = "words" if model.objective == "mlm" else "tokens"
    if other is None or plain is None:
        yield t(f"findings.gets_{unit}_right", share=percent(own, t))
    else:
        yield t(
            f"findings.gets_{unit}_right_beside", share=percent(own, t), recipe=plain.recipe, other=percent(other, t)
        )


# ------------------------------------------------------------------ certainty


def _individuals_sentence(audit: AuditEvidence, t: Texts) -> str:
    """Return the sentence with the numbers of members and of held-out individuals."""
    individuals = audit.corpus.num_individuals
    return t(
        "findings.asked_about_members_people_of_a_list"
        if subject_settings(audit) is not None
        else "findings.asked_about_members_people_who_were_trained",
        members=t.count(individuals.members, audit.cell),
        heldout=t.count(individuals.heldout, audit.cell),
    )


def _list_sentence(audit: AuditEvidence, t: Texts) -> Iterable[str]:
    """Yield a sentence on where the list of members comes from, if the model was trained elsewhere."""
    if (subject := subject_settings(audit)) is not None:
        yield t("facts.where_the_list_comes_from", statement=subject.get("statement"))


def _seed_sentences(models: Sequence[ModelEvidence], outcomes: Outcomes, t: Texts) -> Iterable[str]:
    """Yield sentences on how much trainings of one recipe with different seeds differ in Privacy (share of identifiers
    not predicted); nothing if each was trained once."""
    seeds = max_num_trainings(models)
    if seeds == 1:
        return
    yield t(
        "findings.every_recipe_was_trained_n_times_with_other",
        n=seeds,
    )
    last = {(g, r): entries[-1] for g in groups_of(models) for r, entries in by_recipe(models, g).items()}
    known = {key: (m, spread) for key, m in last.items() if (spread := m.privacy["both"].types.seeds)}
    if known:
        (group, recipe), (model, widest) = max(known.items(), key=lambda row: row[1][1].high - row[1][1].low)
        text = t(
            "findings.between_trainings_privacy_differed_most_for",
            name=group.display_name(recipe, t),
            interval=t.range(t.number(widest.low, 3), t.number(widest.high, 3)),
            sd=t.number(widest.sd, 3),
        )
        yield Marked(text, *outcomes.found_marks([("", model)], "emission"))


def _positive_control_found(group: Group, last: dict[str, ModelEvidence], outcomes: Outcomes) -> bool:
    """Return whether learned identifiers are found in a group's unprotected model, as a working audit should; ``last``
    has the group's last checkpoints by recipe."""
    return group.objective in last and outcomes.is_found(last[group.objective], "emission")


def _control_sentences(
    group: Group, last: dict[str, ModelEvidence], outcomes: Outcomes, audit: AuditEvidence, t: Texts
) -> Iterable[str]:
    """Yield sentences on the controls of a group of models: leaks should be found in its unprotected model, and none in
    the base model."""
    kind, objective = group.kind(t), group.objective
    if objective not in last and not all(protects(m, audit) for m in last.values()):
        yield t(
            "findings.no_kind_model_of_the_recipe_recipe_was",
            kind=kind,
            recipe=objective,
        )
    elif objective not in last:
        yield t(
            "findings.no_unprotected_kind_model_was_trained_beside",
            kind=kind,
        )
    else:
        loud = _positive_control_found(group, last, outcomes)
        text = "findings.for_kind_models_the_audit_can_find_learned" if loud else (
            "findings.even_in_the_unprotected_kind_model_recipe_no"
        )  # fmt: skip
        marks = outcomes.found_marks([("", last[objective])], "emission")
        yield Marked(t(text, kind=kind, recipe=objective), *marks)
    if learned_little(last):
        text = t("findings.no_kind_model_gets_share_of_ordinary_words", kind=kind,
                 share=percent(LITTLE, t))  # fmt: skip
        yield Marked(text, *_marks_of_models([("", m) for m in last.values()], *UTILITY, NOT_FOUND))
    if base := last.get("base"):
        yield from _negative_control_sentences(base, kind, t)


def _negative_control_sentences(base: ModelEvidence, kind: str, t: Texts) -> Iterable[str]:
    """Yield sentences on whether members and others can be told apart before any training on them: by words alone, or
    by the base model."""
    attack = strongest_attack(base, even_invalid=True)
    if base.blind and has_value(base.blind.auc) and not holds_chance(base.blind.auc):
        yield t(
            "findings.caution_words_alone_without_any_model_tell",
            value=t.value(base.blind.auc, area=True),
            interval=t.interval(base.blind.auc, area=True),
            kind=kind,
        )
    told = attack if attack and is_over_chance(attack[1]) else attack_below_chance(base) if attack else None
    if told is not None:
        text = t(
            "findings.caution_even_the_kind_base_model_which_saw",
            kind=kind,
            area=_auc_in_words(told, t),
        )
        yield Marked(text, *_marks_of_models([("", base)], "individual", f"attack {told[0]}", FOUND))
    elif attack is not None:
        text = t(
            "findings.the_kind_base_model_which_saw_nobody_finds",
            kind=kind,
            interval=t.interval(attack[1], area=True),
        )
        yield Marked(text, *_marks_of_models([("", base)], "individual", f"attack {attack[0]}", NOT_FOUND))


def _last_ledgers(checkpoints: dict[Group, Checkpoints], t: Texts) -> Ledgers:
    """Return (name, model, count of its prediction targets) of each last checkpoint whose training counted them (in its
    ledger)."""
    last = [(g.display_name(r, t), entries[-1]) for g, recipes in checkpoints.items() for r, entries in recipes.items()]
    return [(name, model, model.ledger) for name, model in last if model.ledger]


def _ledger_sentence(ledgers: Ledgers, t: Texts) -> Iterable[str]:
    """Yield a sentence with the number of prediction targets of each protected model whose training counted them and
    found none protected."""
    kept = [row for row in ledgers if row[2].protected and not row[2].violations]
    if kept:
        counts = [
            t("findings.n_of_total_name", n=0, total=t.count(ledger.targets), name=name) for name, _, ledger in kept
        ]
        text = t("findings.training_targets_that_were_protected_counts",
                 counts=t.listed(counts))  # fmt: skip
        yield Marked(text, *_marks_of_models([("", m) for _, m, _ in kept], *RULE, "kept"))


def _guarantee_sentences(checkpoints: dict[Group, Checkpoints], audit: AuditEvidence, t: Texts) -> Iterable[str]:
    """Yield a sentence on the differential-privacy guarantee of each private model, which bounds any attack, and one on
    all of them together."""
    for group, recipes in checkpoints.items():
        for recipe, entries in recipes.items():
            if guarantee := (entry := entries[-1]).guarantee:
                text = t(
                    "findings.name_was_trained_by_dp_sgd_guarantee_it",
                    name=group.display_name(recipe, t),
                    guarantee=t.evidence(guarantee),
                ) + explain_epsilon(guarantee, t)
                spent = [(m.epoch, m.epsilon) for m in entries if m.epsilon is not None]
                if len(spent) > 1:
                    each = [
                        t("findings.epsilon_after_epoch", epsilon=t.plain(show_epsilon(epsilon)), epoch=epoch)
                        for epoch, epsilon in spent
                    ]
                    text += " " + t("findings.epsilon_so_far", each=t.listed(each))
                yield Marked(text, *_marks_of_models([("", entry)], *GUARANTEE, "bound"))
    yield from joint_epsilon_sentence(audit, t)


def joint_epsilon_sentence(audit: AuditEvidence, t: Texts) -> Iterable[str]:
    """Yield a sentence with the epsilon of all private trainings together, or that none can be given, if several
    language models, classifiers or taggers were trained with differential privacy on the same documents."""
    charged = list(_charged_guarantees(audit))
    if len(charged) < 2:
        return
    shown = [one for one in map(parse_guarantee, charged) if one is not None and math.isfinite(one[0])]
    costs = [Guarantee(epsilon=one[0], delta=one[1], unit=one[2]) for one in shown]  # type: ignore[arg-type]
    total = together(costs) if len(costs) == len(charged) else None
    if total is None:
        text = t("common.charged_without_total", n=len(charged))
    else:
        text = t("common.charged_together", n=len(charged), total=t.evidence(str(total)))
    models = [("", model) for model in last_checkpoints(audit.models, audit.cell) if model.guarantee]
    yield Marked(text, *_marks_of_models(models, *GUARANTEE, "bound"))


def _charged_guarantees(audit: AuditEvidence) -> Iterable[str]:
    """Yield the differential-privacy guarantee of each private training on the documents: language models of all seeds,
    and classifiers and taggers, one for each checkpoint or base model that they start from."""
    num_trainings = {}
    for model in last_checkpoints(audit.models, audit.cell):
        num_trainings[model.model, model.recipe] = model.num_trainings or 1
        if model.guarantee:
            yield from [model.guarantee] * (model.num_trainings or 1)
    for result in audit.classification or ():
        for row in classification_over_seeds(result, audit.cell).results:
            if row.training and row.training.guarantee:
                yield from [row.training.guarantee] * num_trainings.get((result.model, row.recipe), 1)


def explain_epsilon(guarantee: str, t: Texts) -> str:
    """Return sentences that explain in words the epsilon of a differential-privacy guarantee, or say that it protects
    nobody; empty if the text ``guarantee`` has no epsilon."""
    shown = parse_guarantee(guarantee)
    if shown is None:
        return ""
    epsilon, delta, unit = shown
    of_weights = t("common.epsilon_of_weights")
    if epsilon > MEANINGLESS:
        return f" {of_weights} {t('common.protects_nobody', limit=t.count(int(MEANINGLESS)))}"
    factor = math.exp(epsilon)
    shown_factor = t.count(math.ceil(factor)) if factor >= 10 else t.plain(f"{math.ceil(10 * factor) / 10:.1f}")
    said = {"factor": shown_factor, "epsilon": t.plain(f"{epsilon:g}"), "delta": t.plain(show_delta(delta))}
    in_words = t(f"common.surer.{unit}", **said)
    return f" {of_weights} {in_words}"


def random_weights_sentences(models: Iterable[ModelEvidence], t: Texts) -> Iterable[str]:
    """Yield a sentence for each base model with randomly initialised weights, and for each encoder without a prediction
    head."""
    for model in models:
        if model.num_drawn:
            said = "common.drawn" if model.recipe == "base" else "common.headless"
            yield t(said, model=model.model or model.name, n=t.count(model.num_drawn), count=model.num_drawn)


# ----------------------------------------------------------------- next steps


def broken_training_sentences(ledgers: Ledgers, t: Texts) -> Iterable[str]:
    """Yield a warning for each model some of whose prediction targets were protected tokens, as its ledger (count of
    targets) shows."""
    for name, model, ledger in ledgers:
        if ledger.violations:
            text = t(
                "findings.do_not_use_name_violations_of_its_targets",
                name=name,
                violations=t.count(ledger.violations),
                count=ledger.violations,
                targets=t.count(ledger.targets),
            )
            yield Marked(text, *_marks_of_models([(name, model)], *RULE, "broken"))


def protects(model: ModelEvidence, audit: AuditEvidence) -> bool:
    """Return whether a model's training protects anyone: some tokens are no targets, the text is altered, or it is
    differentially private; True also for an unknown recipe."""
    return not is_unprotected(recipe_of(model.recipe, audit), model)


def next_step_sentences(
    sides: dict[Group, dict[str, ModelEvidence]],
    checkpoints: dict[Group, Checkpoints],
    outcomes: Outcomes,
    audit: AuditEvidence,
    t: Texts,
) -> Iterable[str]:
    """Yield recommended next steps as sentences: models not to share and why, what to change, what to measure again.
    ``sides`` has the last checkpoints by group of models and recipe, ``checkpoints`` all."""
    little = [group for group, last in sides.items() if learned_little(last)]
    trained = [
        (g.display_name(r, t), m, checkpoints[g][r])
        for g, last in sides.items()
        for r, m in last.items()
        if r != "base" and not broken_rule(m)
    ]
    yield from _not_to_share_sentences([(r, m) for r, m, _ in trained], outcomes, audit, t)
    some = [(r, m) for r, m, _ in trained if _has_found_emission(m, outcomes, WITHIN)]
    if some:
        text = "findings.weigh_what_names_learned_of_people_s"
        yield Marked(t(text, names=_join_names(some, t)), *outcomes.marks(some, "emission"))
    told = [row for row in trained if outcomes.is_found(row[1], "individual")]
    unlearned = [(r, m) for r, m, _ in told if any(group.holds(m) for group in little)]
    private, others = ([row for row in told if bool(row[1].guarantee) is wanted] for wanted in (True, False))
    elsewhere = is_elsewhere(audit)  # whoever audits it cannot train it again
    by_key = (("findings.who_is_in_the_data_of_given", told),) if elsewhere else (
        ("findings.who_is_in_the_data_of_names_can", [row for row in others if row[:2] not in unlearned]),
        ("findings.who_is_in_the_data_of_little", [row for row in others if row[:2] in unlearned]),
        ("findings.who_is_in_the_data_of_private", private),
    )  # fmt: skip
    for key, rows in by_key:
        if rows:
            better = [s for r, _, own in rows if protects(own[-1], audit) and (s := _earlier_checkpoint(r, own, t))]
            text = t(key, names=t.listed([r for r, *_ in rows]))
            marks = outcomes.found_marks([(r, m) for r, m, _ in rows], "individual")
            yield Marked(" ".join([text, *better]), *marks)
    for group in little:
        own = [("", m) for r, m in sides[group].items() if r != "base"]
        gives_away = [risk for risk in RISKS if any(outcomes.is_found(m, risk) for _, m in own)]
        if elsewhere:
            key = "findings.given_gives_away" if gives_away else "findings.given_learned_little"
        else:
            key = (
                "findings.train_on_more_documents"
                if gives_away
                else "findings.train_the_kind_models_further_or_on_more"
            )
        marks = _marks_of_models([("", m) for m in sides[group].values()], *UTILITY, NOT_FOUND)
        marks += [mark for risk in gives_away for mark in outcomes.found_marks(own, risk)]
        yield Marked(t(key, kind=group.kind(t)), *marks)
    unsaid = [(r, m) for r, m, _ in trained if _is_unjudgeable(m, outcomes)]
    if unsaid:
        text = t(
            "findings.ask_again_who_was_in_the_data_of",
            names=_join_names(unsaid, t),
        )
        yield Marked(text, *_marks_of_models(unsaid, "individual", "every attack", NOT_MEASURED))
    silent = [(r, m) for r, m, _ in trained if not any(group.holds(m) for group in little)
              and not only_invalid(m) and protects(m, audit) and _has_no_finding(m, outcomes)]  # fmt: skip
    found_some = [(r, m) for r, m in silent if is_anything_found(m, audit) or outcomes.is_any_found(m)]
    if found_some:
        text = "findings.some_attacks_found_something_in_names_weigh"
        yield Marked(
            t(text, names=_join_names(found_some, t)), *_marks_of_models(found_some, "any", "every attack", FOUND)
        )
    quiet = [row for row in silent if row not in found_some]
    if quiet:
        text = t(
            "findings.against_names_no_attack_of_this_audit",
            names=_join_names(quiet, t),
        )
        yield Marked(text, *_marks_of_models(quiet, "any", "every attack", NOT_FOUND))


def _not_to_share_sentences(trained: list[Named], outcomes: Outcomes, audit: AuditEvidence, t: Texts) -> Iterable[str]:
    """Yield sentences that name the models which must not be shared, each model with the first reason that applies to
    it."""
    said = [(r, m) for r, m in trained if outcomes.outcome(m, "emission") == BEYOND]
    if said:
        text = t("findings.do_not_share", count=len(said), names=_join_names(said, t))
        yield Marked(text, *outcomes.marks(said, "emission"))
    for name, model in trained:
        row = outcomes.row(model)
        if row and row.outcome == BEYOND and (name, model) not in said:
            said.append((name, model))
            yield _not_to_share_sentence(name, row, t)
    for row in outcomes.heads():
        if row.outcome == BEYOND:
            yield _not_to_share_sentence(t("common.recipe_of_model", recipe=row.recipe, model=row.model), row, t)
    plain = [(r, m) for r, m in trained if (r, m) not in said and not protects(m, audit)]
    if plain:
        text = t("findings.do_not_share_unprotected", count=len(plain), names=_join_names(plain, t))
        verdicts = [(m, row.outcome if (row := outcomes.row(m)) else NOT_SHOWN) for _, m in plain]
        yield Marked(
            text, *(mark for m, outcome in verdicts for mark in _marks_of_models([("", m)], "all", "verdict", outcome))
        )
    unsure = [(r, m) for r, m in trained if (r, m) not in said + plain and _has_found_emission(m, outcomes, NOT_SHOWN)]
    if unsure:
        text = t("findings.do_not_share_yet", count=len(unsure), names=_join_names(unsure, t))
        yield Marked(text, *outcomes.marks(unsure, "emission"))


def _not_to_share_sentence(name: str, row: ModelRisks, t: Texts) -> Marked:
    """Return a sentence that a model must not be shared, with the reason in its verdict."""
    beyond = [result for result in row.results if result.relevant and result.outcome == BEYOND]
    text = t("findings.do_not_share_name_reason", name=name, reason=t.evidence(row.reason))
    return Marked(text, *(risk_mark(row, result) for result in beyond))


def _has_found_emission(model: ModelEvidence, outcomes: Outcomes, outcome: str) -> bool:
    """Return whether attacks found that the model learned identifiers (the risk *emission*) and the risk has this
    ``outcome`` in the verdict."""
    return outcomes.is_found(model, "emission") and outcomes.outcome(model, "emission") == outcome


def _has_no_finding(model: ModelEvidence, outcomes: Outcomes) -> bool:
    """Return whether the risk *emission* (learned identifiers) is within its threshold, no attack found learned
    identifiers or membership, and no risk is beyond its threshold."""
    beyond = any(result.outcome == BEYOND for result in outcomes.results(model).values())
    heard = any(outcomes.is_found(model, risk) for risk in ("emission", "individual"))
    return outcomes.outcome(model, "emission") == WITHIN and not beyond and not heard


def _earlier_checkpoint(recipe: str, entries: Sequence[ModelEvidence], t: Texts) -> str:
    """Return a sentence that names the latest checkpoint before the last in which neither learned identifiers nor
    membership can be measured; empty without one."""
    for model in reversed(entries[:-1]):
        attack, own, last = strongest_attack(model), utility_of(model), utility_of(entries[-1])
        quiet = not is_distinguishable(model) and not leaks_more(model)
        if quiet and attack is not None and own is not None and last is not None:
            return t(
                "findings.recipe_after_epochs_epochs_not_measurably",
                recipe=recipe,
                count=model.epoch,
                interval=t.interval(attack[1], area=True),
                share=percent(own, t),
                last=percent(last, t),
            )
    return ""


def better_audit_sentences(audit: AuditEvidence, t: Texts = ENGLISH) -> Iterable[str]:
    """Yield sentences on what would make the audit more conclusive: more held-out individuals, more words left to train
    on."""
    corpus = audit.corpus
    heldout = corpus.num_individuals.heldout
    if any(m.membership for m in audit.models) and (heldout is None or heldout < WANTED_NONMEMBERS):
        yield t(
            "findings.to_learn_how_many_members_of_a_list"
            if is_elsewhere(audit)
            else "findings.to_learn_how_many_members_can_be_named",
            wanted=t.count(WANTED_NONMEMBERS),
            heldout=t.count(heldout, audit.cell),
        )
    chosen = (corpus.policy, corpus.n, corpus.k)
    used = [row.retention for row in retention_rows(corpus) if (row.policy, row.n, row.k) == chosen]
    if used and used[0] < LOW_RETENTION and not is_elsewhere(audit):
        yield t("findings.only_share_of_the_words_are_left_to",
                share=percent(used[0], t))  # fmt: skip


def _marks_of_models(rows: Iterable[Named], risk: str, number: str, outcome: str) -> list[Mark]:
    """Return for each model a machine-readable mark of a statement on it: risk, name of the figure, outcome."""
    return [Mark(model_name(m.recipe, m.model), risk, number, outcome) for _, m in rows]
