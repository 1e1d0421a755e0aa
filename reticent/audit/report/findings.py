"""Findings in plain sentences: the result, its certainty, and the next step.

The reader decides whether a model may be released and need not know the field. So a sentence names the count and the
individuals behind it, a rate of 0 has its upper bound, and an attack that finds nothing counts as such only if the same
attack succeeds on an unprotected model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.judgement.rows import BEYOND, FAIL, PASS
from reticent.audit.judgement.verdict import judge_risks
from reticent.audit.membership.validity import NO_POWER, holds_chance, is_over_chance
from reticent.audit.report.figure import has_value, look_of
from reticent.audit.report.groups import OBJECTIVES, Group, by_recipe, groups_of
from reticent.audit.report.next_steps import better_audit, broken, decisions, protects, shown_emission
from reticent.audit.report.readings import (
    LITTLE,
    attack_below_chance,
    broken_rule,
    excess_of,
    is_distinguishable,
    leaks_more,
    learned_little,
    only_invalid,
    strongest_attack,
    utility_of,
    without_power,
)
from reticent.audit.report.sentences import interval_of, listed, signed
from reticent.audit.report.shown import at_most, count, percent
from reticent.audit.stats.seeds import num_seeds

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.audit.evidence.corpus import CorpusEvidence
    from reticent.audit.evidence.extraction import Verdict
    from reticent.audit.evidence.leakage import Ledger
    from reticent.audit.evidence.risks import RiskTable
    from reticent.audit.stats.estimate import Estimate

__all__ = ["Findings", "plain_findings"]

#: Risks that are about who took part: by the whole text, and by identifying words (the threshold attack among them).
MEMBERSHIP = ("words", "individual")
#: Recipe -> its checkpoints by epoch.
Checkpoints = dict[str, list["ModelEvidence"]]


class Findings(NamedTuple):
    """Sentences: the answer in short, the findings by heading, how sure they are, and the next steps."""

    short: list[str]
    found: list[tuple[str, list[str]]]
    sure: list[str]
    next: list[str]


def plain_findings(audit: AuditEvidence) -> Findings:
    """Return the findings of a published audit."""
    models = audit.models
    checkpoints = {group: by_recipe(models, group) for group in groups_of(models)}
    sides = {g: {r: entries[-1] for r, entries in recipes.items()} for g, recipes in checkpoints.items()}
    found = [("The documents", [_corpus_sentence(audit.corpus)])]
    found += [(g.called(f"{OBJECTIVES[g.objective]} models"), list(_found(g, last))) for g, last in sides.items()]
    sure = [_individuals_sentence(audit), *_seeds_sentence(models)]
    for group, last in sides.items():
        sure += _controls(group, last, audit)
    ledgers = _ledgers(checkpoints)
    sure += [*_checked(ledgers), *_guaranteed(sides)]
    risks = audit.risks or judge_risks(audit)
    then = [*broken(ledgers), *decisions(sides, checkpoints, risks, audit), *better_audit(audit)]
    short = [*_gates(audit.verdict), *_canaries(audit), *_short(sides, _beyond(risks), shown_emission(risks))]
    return Findings(short, found, sure, then)


# ---------------------------------------------------------------- results


def _gates(verdict: Verdict | None) -> Iterable[str]:
    """The thresholds of the job, which a reader looks for first."""
    outcomes = [row.outcome for row in verdict.results] if verdict else []
    if outcomes:
        counts = {"failed": FAIL, "could not be decided": NO_POWER, "passed": PASS}
        said = [f"{outcomes.count(outcome)} {what}" for what, outcome in counts.items() if outcome in outcomes]
        yield f"Of {len(outcomes)} {'gate' if len(outcomes) == 1 else 'gates'} {listed(said)}."


def _canaries(audit: AuditEvidence) -> Iterable[str]:
    if audit.extraction and audit.extraction.has_canaries:
        yield "These models were trained on made-up secrets, to measure: they are not for release."


def _beyond(risks: RiskTable) -> set[tuple[str, str | None, str, str]]:
    """Risks that are beyond their threshold: (risk, model, objective, recipe)."""
    return {
        (result.risk, row.model, row.objective, row.recipe)
        for row in risks.rows
        for result in row.results
        if result.outcome == BEYOND
    }


def _short(
    sides: dict[Group, dict[str, ModelEvidence]],
    beyond: set[tuple[str, str | None, str, str]],
    within: set[tuple[str | None, str, str]],
) -> Iterable[str]:
    """The answer in short; it says nothing less than the verdict by risk does."""
    trained = [(g.called(r), m) for g, last in sides.items() for r, m in last.items() if r != "base"]
    broken = [r for r, m in trained if broken_rule(m)]
    if broken:
        yield f"Training broke its own rule for {listed(broken)}."
    leaky = [r for r, m in trained if leaks_more(m) or ("emission", m.model, m.objective, m.recipe) in beyond]
    silent = [g.kind for g, last in sides.items() if not _loud(g, last)]
    if leaky:
        some = [r for r, m in trained if r in leaky and (m.model, m.objective, m.recipe) in within]
        but = f"; {listed(some)} no more than the threshold allows" if some else ""
        yield f"{listed(leaky)} {_have(leaky)} learned identifiers of the people {_it(leaky)} trained on{but}."
    if len(leaky) < len(trained):
        none_found = "No model was found to have learned identifiers of the people it was trained on"
        opening = "No such learning was found in the other models" if leaky else none_found
        if silent:
            opening += f"; of {listed(silent)} models this says little, as nothing shows that the audit would find it"
        yield opening + "."
    found = [
        r
        for r, m in trained
        if is_distinguishable(m) or {(risk, m.model, m.objective, m.recipe) for risk in MEMBERSHIP} & beyond
    ]
    if found:
        yield f"Who was in the data is distinguishable better than by chance in {listed(found)}."
    elif any(strongest_attack(m) for _, m in trained):
        weak = [r for r, m in trained if without_power(m)]
        opening = "Who was in the data was not distinguishable better than by chance"
        if weak:
            opening += f"; of {listed(weak)} this says little, as no attack has shown that it would find anybody"
        yield opening + "."
    unsaid = [r for r, m in trained if only_invalid(m)]
    if unsaid:
        yield f"Who was in the data of {listed(unsaid)} was not measured: the two sides differ without any model."


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _it(names: Sequence[str]) -> str:
    return "it was" if len(names) == 1 else "they were"


def _corpus_sentence(corpus: CorpusEvidence) -> str:
    who = "only one person" if corpus.k == 2 else f"fewer than {corpus.k} people"
    return (
        f"{percent(corpus.share_types_identifying)} of the distinct words are used by {who} and so can point to "
        f"somebody; they are {percent(corpus.share_occurrences_identifying)} of all words."
    )


def _found(group: Group, last: dict[str, ModelEvidence]) -> Iterable[str]:
    plain = last.get(group.objective)
    trained = {r: m for r, m in last.items() if r != "base"}
    for recipe, model in trained.items():
        about = look_of(recipe).about
        opening = f"{recipe} ({about}, {model.epoch} epochs)" if about else f"{recipe} ({model.epoch} epochs)"
        twin = None if model is plain else plain
        yield f"{opening} {_predicts(model)}{_compared(model, twin)}.{_against_heldout(model)}{_useful(model, twin)}"
    for over, verdict in ((True, "Who took part is distinguishable, better than by chance (50 %)"),
                          (False, "Who took part is not measurably distinguishable")):  # fmt: skip
        rows = [
            f"{r} {_area(a)}{'' if over or not without_power(m) else ', without power'}"
            for r, m in trained.items()
            if (a := strongest_attack(m)) and is_distinguishable(m) is over
        ]
        if rows:
            yield f"{verdict}: {'; '.join(rows)}."
    unsaid = [r for r, m in trained.items() if only_invalid(m)]
    if unsaid:
        yield f"Who took part: nothing can be said of {listed(unsaid)}, as the two sides differ without a model."


def _area(attack: tuple[str, Estimate]) -> str:
    name, auc = attack
    return f"{percent(auc.value)} ({interval_of(auc)}, attack {name})"


def _predicts(model: ModelEvidence) -> str:
    part = model.privacy["both"]
    total, leaked = part.num_identifiers, part.num_leaked
    if not total or not has_value(part.types):
        return "has too few identifiers to say"
    if leaked is None:
        return f"predicts some of its members’ {total:,} identifiers, a number too small to print"
    if leaked == 0:
        bound = at_most(part)
        return f"predicts none of its members’ {total:,} identifiers, " + (
            "with no bound on what may still be there" if bound is None else f"at most {bound} at 95 % confidence"
        )
    return f"predicts {leaked:,} of its members’ {total:,} identifiers ({percent(leaked / total)})"


def _compared(model: ModelEvidence, plain: ModelEvidence | None) -> str:
    if plain is None:
        return ""
    own, other = model.privacy["both"].types, plain.privacy["both"].types
    if not (has_value(own) and has_value(other)) or own.low is None or other.low is None:
        return ""
    if _lies_over(own, other):
        return f", fewer than {plain.recipe}"
    if _lies_over(other, own):
        return f", more than {plain.recipe}"
    return f", not measurably fewer than {plain.recipe}"


def _lies_over(one: Estimate, other: Estimate) -> bool:
    return one.low is not None and other.high is not None and one.low > other.high


def _against_heldout(model: ModelEvidence) -> str:
    excess = excess_of(model)
    if excess is None or model.privacy["both"].num_leaked == 0:
        return ""
    what, estimate = excess
    measured = f"{signed(estimate.value)} points, {interval_of(estimate)}"
    if leaks_more(model):
        return f" It predicts held-out people’s {what} less often ({measured}): it has learned about its members."
    return f" It predicts held-out people’s {what} not measurably less often ({measured})."


def _useful(model: ModelEvidence, plain: ModelEvidence | None) -> str:
    own = utility_of(model)
    if own is None:
        return ""
    other = None if plain is None else utility_of(plain)
    against = "" if other is None or plain is None else f" ({plain.recipe}: {percent(other)})"
    what = "words" if model.objective == "mlm" else "tokens"
    return f" It gets {percent(own)} of the ordinary {what} of held-out people right{against}."


# ------------------------------------------------------------------ certainty


def _individuals_sentence(audit: AuditEvidence) -> str:
    individuals = audit.corpus.num_individuals
    members, heldout = (count(side, audit.cell) for side in (individuals.members, individuals.heldout))
    return (
        f"Asked about {members} people who were trained on (members) and {heldout} who never were (held out), dealt "
        "to the two sides before anything was counted. Intervals in brackets are 95 %; their unit is the person."
    )


def _seeds_sentence(models: Sequence[ModelEvidence]) -> Iterable[str]:
    """The differences between trainings of one recipe, at the last checkpoints: their largest range of Privacy."""
    seeds = num_seeds(models)
    if seeds == 1:
        return
    yield (
        f"Every recipe was trained {seeds} times, with other seeds, on the same people. Numbers are means over these "
        "trainings; intervals are still over people."
    )
    last = {(g, r): entries[-1] for g in groups_of(models) for r, entries in by_recipe(models, g).items()}
    spreads = {key: m.privacy["both"].types.seeds for key, m in last.items()}
    known = {key: spread for key, spread in spreads.items() if spread}
    if known:
        (group, recipe), widest = max(known.items(), key=lambda row: row[1].high - row[1].low)
        yield (
            f"Between trainings Privacy differed most for {group.called(recipe)}: {widest.low:.3f} to "
            f"{widest.high:.3f} (standard deviation {widest.sd:.3f})."
        )


def _loud(group: Group, last: dict[str, ModelEvidence]) -> bool:
    """The positive control: whether the audit finds learned identifiers in an unprotected model."""
    return group.objective in last and leaks_more(last[group.objective])


def _controls(group: Group, last: dict[str, ModelEvidence], audit: AuditEvidence) -> Iterable[str]:
    """The positive control (the unprotected twin) and the negative one (the base model)."""
    kind, objective = group.kind, group.objective
    if objective not in last and not all(protects(m, audit) for m in last.values()):
        yield (
            f"No {kind} model of the recipe {objective} was trained, which alone is the control of the others, so a "
            "quiet attack on them proves little."
        )
    elif objective not in last:
        yield f"No unprotected {kind} model was trained beside the others, so a quiet attack on them proves little."
    elif _loud(group, last):
        yield f"For {kind} models the audit can find learned identifiers: it finds them in {objective}."
    else:
        yield (
            f"Even in the unprotected {kind} model ({objective}) no learned identifier was found. So finding none in "
            f"other {kind} models does not show that protection works."
        )
    if learned_little(last):
        yield f"No {kind} model gets {percent(LITTLE)} of ordinary words right: it has learned little to reveal."
    attack = strongest_attack(last["base"], even_invalid=True) if "base" in last else None
    blind = last["base"].blind if "base" in last else None
    if blind and has_value(blind.auc) and not holds_chance(blind.auc):
        yield (
            f"Caution: words alone, without any model, tell members from held-out people ({percent(blind.auc.value)}, "
            f"{interval_of(blind.auc)}), so membership results for {kind} models are not valid."
        )
    told = attack if attack and is_over_chance(attack[1]) else attack_below_chance(last["base"]) if attack else None
    if told is not None:
        yield (
            f"Caution: even the {kind} base model, which saw nobody, tells members from held-out people "
            f"({_area(told)}). The two sides differ, so membership results for {kind} models are not valid."
        )
    elif attack is not None:
        found = interval_of(attack[1])
        yield f"The {kind} base model, which saw nobody, finds nobody distinguishable ({found}), as it should be."


def _ledgers(checkpoints: dict[Group, Checkpoints]) -> dict[str, Ledger]:
    """Recipe, with the section's name where it is needed -> its count of targets."""
    found = {g.called(r): entries[-1].ledger for g, recipes in checkpoints.items() for r, entries in recipes.items()}
    return {name: ledger for name, ledger in found.items() if ledger}


def _checked(ledgers: dict[str, Ledger]) -> Iterable[str]:
    """The number of checked targets: a count of all of them, so there is no interval."""
    kept = {name: ledger for name, ledger in ledgers.items() if ledger.protected and not ledger.violations}
    if kept:
        counts = listed([f"0 of {ledger.targets:,} ({name})" for name, ledger in kept.items()])
        yield f"Training targets that were protected: {counts}. Every target was checked, so this is no estimate."


def _guaranteed(sides: dict[Group, dict[str, ModelEvidence]]) -> Iterable[str]:
    """The bound of differential privacy, which holds for any attack; each epsilon has its unit."""
    for group, last in sides.items():
        for recipe, entry in last.items():
            if guarantee := entry.guarantee:
                yield (
                    f"{group.called(recipe)} was trained by DP-SGD: {guarantee}. It counts this training alone, not "
                    "others on the same documents; see reticent budget."
                )
