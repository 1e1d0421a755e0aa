"""The next steps, in plain sentences. None of them advises to share a model: that is for who answers for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from reticent.audit.judgement.rows import BEYOND, WITHIN
from reticent.audit.recipes import is_unprotected, recipe_of
from reticent.audit.report.groups import Group
from reticent.audit.report.readings import (
    broken_rule,
    is_anything_found,
    is_distinguishable,
    leaks_more,
    learned_little,
    only_invalid,
    retention_rows,
    strongest_attack,
    utility_of,
)
from reticent.audit.report.sentences import interval_of, listed
from reticent.audit.report.shown import count, percent

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.audit.evidence.leakage import Ledger
    from reticent.audit.evidence.risks import RiskTable

__all__ = ["better_audit", "broken", "decisions", "protects", "shown_emission"]

#: Recipe -> its checkpoints by epoch.
Checkpoints = dict[str, list["ModelEvidence"]]
#: Non-members that one false positive in a hundred needs (definitions.md#intervals).
WANTED_NONMEMBERS = 1000
#: Under this share of words left as targets a run warns (definitions.md#identifiers).
LOW_RETENTION = 0.4


def broken(ledgers: dict[str, Ledger]) -> Iterable[str]:
    for name, ledger in ledgers.items():
        if ledger.violations:
            yield (
                f"Do not use {name}: {ledger.violations:,} of its {ledger.targets:,} targets were protected. "
                "Training should have stopped; report it."
            )


def shown_emission(risks: RiskTable) -> set[tuple[str | None, str, str]]:
    """Return the models of which it is shown that they emit no more identifiers than the threshold allows: (model,
    objective, recipe).
    """
    return {
        (row.model, row.objective, row.recipe)
        for row in risks.rows
        for result in row.results
        if result.risk == "emission" and result.outcome == WITHIN
    }


def protects(model: ModelEvidence, audit: AuditEvidence) -> bool:
    """Return whether anything in a model's training protects anyone."""
    return not is_unprotected(recipe_of(model.recipe, audit), model)


def _beaten(risks: RiskTable) -> set[tuple[str | None, str, str]]:
    """Return the models that are beyond the threshold of a risk, whether or not it counts."""
    beyond = ((row, any(result.outcome == BEYOND for result in row.results)) for row in risks.rows)
    return {(row.model, row.objective, row.recipe) for row, is_beyond in beyond if is_beyond}


def decisions(
    sides: dict[Group, dict[str, ModelEvidence]],
    checkpoints: dict[Group, Checkpoints],
    risks: RiskTable,
    audit: AuditEvidence,
) -> Iterable[str]:
    """Say what not to share and why, what to change, and what to ask again."""
    shown = shown_emission(risks)
    little = [group for group, last in sides.items() if learned_little(last)]
    trained = [
        (g.called(r), m, checkpoints[g][r])
        for g, last in sides.items()
        for r, m in last.items()
        if r != "base" and not broken_rule(m)
    ]
    leaky = [r for r, m, _ in trained if leaks_more(m) and (m.model, m.objective, m.recipe) not in shown]
    if leaky:
        which = "it" if len(leaky) == 1 else "them"
        yield f"Do not share {listed(leaky)}: identifiers of people can be read out of {which}."
    named = {(m.model, m.objective, m.recipe): r for r, m, _ in trained if r not in leaky}
    for row in risks.rows:
        if row.outcome == BEYOND and (name := named.get((row.model, row.objective, row.recipe))):
            yield f"Do not share {name}: {row.reason}."
    some = [r for r, m, _ in trained if leaks_more(m) and (m.model, m.objective, m.recipe) in shown]
    if some:
        yield f"Weigh what {listed(some)} learned of people’s identifiers: no more than the threshold allows, but some."
    told = [(r, earlier) for r, m, earlier in trained if not leaks_more(m) and is_distinguishable(m)]
    if told:
        better = [s for r, own in told if protects(own[-1], audit) and (s := _earlier(r, own))]
        yield (
            f"Who is in the data of {listed([r for r, _ in told])} can be told, and masking does not close that. "
            f"Fewer epochs, more people or differential privacy make it harder.{''.join(better)}"
        )
    for group in little:
        yield f"Train the {group.kind} models further, or on more documents, before you judge them."
    judged = [(r, m) for r, m, _ in trained if not any(group.holds(m) for group in little)]
    unsaid = [r for r, m, _ in trained if only_invalid(m)]
    if unsaid:
        yield (
            f"Ask again who was in the data of {listed(unsaid)}, with members and held-out people who do not differ: "
            "without canaries, and not split by time or place."
        )
    unbeaten = shown - _beaten(risks)
    heard = [(r, m) for r, m in judged if (m.model, m.objective, m.recipe) in unbeaten and protects(m, audit)]
    silent = [(r, m) for r, m in heard if not leaks_more(m) and not is_distinguishable(m) and not only_invalid(m)]
    found = [r for r, m in silent if is_anything_found(m, audit)]
    if found:
        yield f"Some attacks found something in {listed(found)}: weigh what the tables say of it."
    quiet = [r for r, _ in silent if r not in found]
    if quiet:
        yield (
            f"Against {listed(quiet)} no attack of this audit succeeded. That is a measurement, not a promise: "
            "weigh what this report does not show."
        )


def _earlier(recipe: str, entries: Sequence[ModelEvidence]) -> str:
    """The latest earlier checkpoint that has learned nothing measurable, and whose members are not distinguishable."""
    for model in reversed(entries[:-1]):
        attack, own, last = strongest_attack(model), utility_of(model), utility_of(entries[-1])
        quiet = not is_distinguishable(model) and not leaks_more(model)
        if quiet and attack is not None and own is not None and last is not None:
            return (
                f" {recipe} after {model.epoch} epochs: not measurably ({interval_of(attack[1])}), with "
                f"{percent(own)} right instead of {percent(last)}."
            )
    return ""


def better_audit(audit: AuditEvidence) -> Iterable[str]:
    corpus = audit.corpus
    heldout = corpus.num_individuals.heldout
    if any(m.membership for m in audit.models) and (heldout is None or heldout < WANTED_NONMEMBERS):
        yield (
            "To learn how many members can be named with one false alarm in a hundred, hold out "
            f"{WANTED_NONMEMBERS:,} people; here are {count(heldout, audit.cell)}."
        )
    chosen = (corpus.policy, corpus.n, corpus.k)
    used = [row.retention for row in retention_rows(corpus) if (row.policy, row.n, row.k) == chosen]
    if used and used[0] < LOW_RETENTION:
        yield f"Only {percent(used[0])} of the words are left to learn from: try shorter sequences or the policy cover."
