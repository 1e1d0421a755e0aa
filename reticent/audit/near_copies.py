"""Sentences shown with the verdict: documents in languages that the detection rules do not know, how many held-out
individuals hold near-copies of members' documents, and the AUCs of membership without them. Report, dossier and summary
share them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reticent.audit.membership.validity import CHANCE, INVALID, WITHOUT_COPIES, verdict_by_interval
from reticent.audit.stats.seeds import last_checkpoints
from reticent.audit.texts import FOUND, NOT_FOUND, Mark, Marked, model_name

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.audit.evidence.membership import MeasuredAttack
    from reticent.audit.texts import Texts


def near_copies_lines(audit: AuditEvidence, t: Texts) -> Iterator[str]:
    """Yield sentences on documents in languages that the detection rules do not cover, on held-out individuals with
    near-copies of members' documents, and on the attacks' AUCs without these individuals."""
    found, cell = audit.corpus.near_copies, audit.cell
    languages = audit.corpus.other_languages
    if languages and languages.num_unknown != 0:
        yield t(
            "near_copies.documents_in_a_language_that_the_rules_do_not",
            n=t.count(languages.num_unknown, cell),
            documents=t.count(languages.num_documents, cell),
        )
    if found is None:
        yield t("near_copies.whether_held_out_people_hold_near_copies_of")
        return
    if found.num_copied == 0:
        yield t("near_copies.no_held_out_person_holds_a_near_copy")
        return
    yield t(
        "near_copies.held_out_people_who_hold_a_near_copy",
        n=t.count(found.num_copied, cell),
        heldout=t.count(found.num_heldout, cell),
    )
    trained = (model for model in last_checkpoints(audit.every_model) if model.recipe != "base")
    attacked = [(model, attack) for model in trained if (attack := _strongest_without_copies(model))]
    if not attacked:
        yield t("near_copies.they_are_so_few_that_no_number_leaves")
    for model, attack in attacked:
        without, name = attack.auc_without_copies, model_name(model.recipe, model.model)
        text = t(
            "near_copies.model_without_them_members_are_ranked_above",
            model=name,
            without=t.value(without, area=True),
            interval=t.interval(without, area=True),
            over_all=t.value(attack.auc, area=True),
        )
        yield Marked(
            text, Mark(name, "individual", WITHOUT_COPIES, FOUND if verdict_by_interval(without) else NOT_FOUND)
        )
    follow = [
        (row.recipe, Mark(model_name(row.recipe, row.model), result.risk, result.what, result.outcome))
        for row in (audit.risks.rows if audit.risks else ())
        for result in row.results
        if result.what and WITHOUT_COPIES in result.what
    ]
    if follow:
        names = t.listed(list(dict.fromkeys(recipe for recipe, _ in follow)))
        text = t("near_copies.the_verdict_takes_the_worse_of_the_two", models=names)
        yield Marked(text, *(mark for _, mark in follow))


def _strongest_without_copies(model: ModelEvidence) -> MeasuredAttack | None:
    """Return the valid attack whose AUC, after held-out individuals with near-copies are removed, is farthest from 0.5;
    None without one."""

    def size(attack: MeasuredAttack) -> float:
        """Return how far the attack's AUC without holders of near-copies is from 0.5; -1 if it has none."""
        found = attack.auc_without_copies
        return -1.0 if found is None or found.value is None else abs(found.value - CHANCE)

    valid = [attack for attack in model.membership.values() if attack.verdict != INVALID]
    strongest = max(valid, key=size, default=None)
    return strongest if strongest and size(strongest) >= 0 else None
