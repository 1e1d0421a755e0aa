"""Figures that speak to a question of a dossier: for each a label in plain words, and an estimate for each model.

No label is the name of an attack. A figure that was not measured yields nothing, and a question without any figure is
"not answered by this".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from reticent.audit.membership.validity import INVALID
from reticent.audit.report.selectors import strongest_attack

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence
    from reticent.audit.evidence.membership import MeasuredAttack
    from reticent.audit.report.risk_text import ShownModel
    from reticent.audit.stats.estimate import Estimate

__all__ = ["FIGURES", "Figure", "Row", "rows_of"]


@dataclass(frozen=True, slots=True)
class Row:
    """One number: its label with inserted values, its model (None: the documents), and the estimate."""

    label: str
    model: ShownModel | None
    estimate: Estimate
    values: Mapping[str, object] = field(default_factory=dict)
    #: An area under the curve (0.5 is chance); else a share or a difference of shares.
    area: bool = False


Found = Iterator[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A family of numbers, and the function that finds them in the evidence."""

    name: str
    of_model: Callable[[ShownModel], Found] | None = None
    of_audit: Callable[[AuditEvidence], Found] | None = None


def rows_of(name: str, audit: AuditEvidence, models: list[ShownModel]) -> Iterator[Row]:
    """Yield the numbers of a figure that have a value."""
    figure = FIGURES[name]
    found = [row for model in models for row in (figure.of_model(model) if figure.of_model else ())]
    found += figure.of_audit(audit) if figure.of_audit else ()
    yield from (row for row in found if row.estimate.value is not None)


def _excess(model: ShownModel) -> Found:
    for part, label in (
        ("both", "figures.identifiers_of_the_people_it_was_trained_on"),
        ("direct", "figures.of_these_names_and_numbers"),
        ("indirect", "figures.of_these_rare_words"),
    ):
        sides = (model.evidence.excess or {}).get(part)  # type: ignore[call-overload]
        if sides:
            yield Row(label, model, sides.excess)


def _predicted(model: ShownModel) -> Found:
    types = model.evidence.privacy["both"].types
    yield Row("figures.identifiers_of_the_people_it_was_trained_on_2", model, types)


def _written(model: ShownModel) -> Found:
    sides = model.evidence.generated.excess.get("both") if model.evidence.generated else None
    if sides:
        label = "figures.identifiers_in_texts_that_it_writes_by"
        yield Row(label, model, sides.excess)


def _passages(model: ShownModel) -> Found:
    passages = model.extracted.passages if model.extracted else None
    for row in passages.rates if passages else ():
        if row.asked == "all" and row.num_queries is None:
            values = {"tokens": row.prefix_tokens}
            label = "common.passages_that_come_back_word_for_word_given"
            yield Row(label, model, row.members, values)
        elif row.asked == "all":
            values = {"tokens": row.prefix_tokens, "draws": row.num_queries}
            label = "common.passages_that_come_back_within_draws_tries"
            yield Row(label, model, row.members, values)


def _membership(model: ShownModel) -> Found:
    strongest = strongest_attack(model.evidence)
    if strongest:
        values = {"attacks": len(_valid(model))}
        label = "figures.how_surely_the_strongest_of_attacks_tests_of"
        yield Row(label, model, strongest[1], values, area=True)


def _valid(model: ShownModel) -> list[MeasuredAttack]:
    """Return the attacks whose controls do not invalidate them: those of which the strongest is one."""
    return [attack for attack in model.evidence.membership.values() if attack.verdict != INVALID]


def _threshold(model: ShownModel) -> Found:
    found = model.evidence.membership.get("loss")
    if found:
        label = "figures.how_surely_the_ease_with_which_it_predicts"
        yield Row(label, model, found.auc, area=True)


def _at_threshold(model: ShownModel) -> Found:
    found = model.evidence.threshold
    if found:
        values = {"k": found.k}
        label = "figures.how_surely_words_of_exactly_k_people_in"
        yield Row(label, model, found.at_threshold.auc, values, area=True)
        if found.by_likelihood:
            label = "figures.how_surely_all_words_near_that_number_of"
            yield Row(label, model, found.by_likelihood.auc, area=True)


KINDS = {
    "all": "figures.how_surely_all_words_together_tell_who_was",
    "ordinary": "figures.how_surely_ordinary_words_alone_tell_who_was",
    "rare": "figures.how_surely_rare_words_alone_tell_who_was",
    "direct": "figures.how_surely_names_and_numbers_alone_tell_who",
}


def _kinds(model: ShownModel) -> Found:
    for kind, label in KINDS.items():
        found = (model.evidence.by_kind or {}).get(kind)
        attack = found and next((found.attacks[a] for a in ("lira", "reference", "loss") if a in found.attacks), None)
        if attack:
            yield Row(label, model, attack.auc, area=True)


def _subgroup(model: ShownModel) -> Found:
    found = [attack.worst_subgroup for attack in _valid(model) if attack.worst_subgroup]
    worst = max(found, key=lambda group: group.auc.value or 0, default=None)
    if worst:
        yield Row("figures.the_same_in_the_subgroup_that_is_most", model, worst.auc, area=True)


def _user_inference(model: ShownModel) -> Found:
    found = model.evidence.membership.get("user_inference")
    if found:
        label = "figures.how_surely_other_documents_of_a_person_never"
        yield Row(label, model, found.auc, area=True)


def _inversion(model: ShownModel) -> Found:
    found = model.evidence.inversion
    for name, kind in (("direct", found.direct), ("indirect", found.indirect)) if found else ():
        if kind and kind.all:
            label = {
                "direct": "figures.names_and_numbers_picked_out_among_decoys_by",
                "indirect": "figures.rare_words_picked_out_among_decoys_by_the",
            }[name]
            yield Row(label, model, kind.all.top1.excess)


def _association(model: ShownModel) -> Found:
    found = model.evidence.inversion
    if found and found.association:
        label = "figures.terms_of_a_person_s_documents_such_as"
        yield Row(label, model, found.association.rate.excess)


def _partial_copy(model: ShownModel) -> Found:
    found = model.evidence.low_cost
    if found:
        label = "figures.people_named_as_trained_on_by_rare_words"
        yield Row(label, model, found.recall)


def _moved(model: ShownModel) -> Found:
    shift = model.evidence.inversion.embedding_shift if model.evidence.inversion else None
    if shift and shift.input:
        label = "figures.how_surely_its_files_show_which_identifying"
        yield Row(label, model, shift.input, area=True)


def _unicity(audit: AuditEvidence) -> Found:
    rows = [row for row in audit.corpus.unicity or () if row.share.value is not None]
    wanted = [row for row in rows if row.m in (2, 4, 10)] or rows[-1:]
    for row in wanted:
        values = {"m": row.m, "k": audit.corpus.k}
        label = "figures.sets_of_m_words_each_used_by_k"
        yield Row(label, None, row.share, values)


def _probes(audit: AuditEvidence) -> Found:
    for model in audit.probe.models if audit.probe else ():
        for result in model.results:
            values = {"model": model.name, "target": result.target}
            if result.exact_match:
                label = "figures.model_model_asked_for_a_named_person_s"
                yield Row(label, None, result.exact_match, values)
            if result.likelihood:
                label = "figures.model_model_the_true_target_is_likelier_than"
                yield Row(label, None, result.likelihood.above_null, values)


def _missed(audit: AuditEvidence) -> Found:
    found = audit.sampled_recall
    if found:
        yield Row("figures.names_and_numbers_that_detection_finds_by", None, found.overall.recall)


FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        figure.name: figure
        for figure in (
            Figure(name="excess", of_model=_excess),
            Figure(name="predicted", of_model=_predicted),
            Figure(name="written", of_model=_written),
            Figure(name="passages", of_model=_passages),
            Figure(name="membership", of_model=_membership),
            Figure(name="threshold", of_model=_threshold),
            Figure(name="at_threshold", of_model=_at_threshold),
            Figure(name="kinds", of_model=_kinds),
            Figure(name="subgroup", of_model=_subgroup),
            Figure(name="user_inference", of_model=_user_inference),
            Figure(name="inversion", of_model=_inversion),
            Figure(name="association", of_model=_association),
            Figure(name="partial_copy", of_model=_partial_copy),
            Figure(name="moved", of_model=_moved),
            Figure(name="unicity", of_audit=_unicity),
            Figure(name="probes", of_audit=_probes),
            Figure(name="missed", of_audit=_missed),
        )
    }
)
