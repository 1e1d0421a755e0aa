"""The annex for an impact assessment, by the fields of the CNIL's method: what the run knows is filled in.

Severity and likelihood, the basis, the rights and the decision are left to the person.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.dossier.facts import FACTS

if TYPE_CHECKING:
    from reticent.audit.dossier.facts import Told

__all__ = ["FEARED", "LEVELS", "Field", "Filled", "filled_fields"]

LEVELS = ("impact.negligible", "impact.limited", "impact.significant", "impact.maximal")


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its title, the facts that the run knows, a declaration of the institution, or a question to it."""

    title: str
    facts: tuple[str, ...] = ()
    declared: str | None = None
    ask: str | None = None


class Filled(NamedTuple):
    """One field in the language: the known sentences, and the questions that are left to the person."""

    title: str
    known: list[str]
    ask: str | None


#: Group -> its fields, in order.
FIELDS = (
    (
        "impact.context",
        (
            Field("impact.overview_of_the_processing", ("recipes",), "purpose",
                  "impact.which_processing_is_it_and_who_answers_for"),
            Field("impact.data_processes_and_supporting_assets", ("documents", "split"), "documents",
                  "impact.where_do_documents_and_models_lie_and_who"),
        ),
    ),
    (
        "impact.fundamental_principles",
        (
            Field("common.purpose", declared="purpose", ask="impact.what_is_the_model_for_and_is_that"),
            Field("impact.legal_basis", declared="legal_basis",
                  ask="impact.on_which_basis_are_the_documents_processed"),
            Field("impact.minimisation", ("copies", "detection", "protection"), None,
                  "impact.is_every_document_needed"),
            Field("impact.accuracy", (), None, "impact.are_the_documents_right_and_up_to_date"),
            Field("impact.storage", (), None, "impact.for_how_long_are_documents_run_folders_and"),
            Field("impact.rights_of_the_individuals", (), None,
                  "impact.how_are_they_informed_and_how_do_they"),
        ),
    ),
    (
        "impact.existing_or_planned_measures",
        (
            Field("impact.on_the_data_and_the_training", ("protection", "ledger", "guarantee"), None, None),
            Field("impact.on_the_organisation", (), None, "impact.access_contracts_audits_answers_to_incidents"),
        ),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Feared:
    """One feared event: its sources and threats as the tests know them; the person describes its impacts."""

    title: str
    sources: str
    threats: str


FEARED = (
    Feared(
        "impact.illegitimate_access_to_data",
        "impact.those_who_may_put_questions_to_the_model",
        "impact.the_tests_of_this_dossier_identifiers_that",
    ),
    Feared("impact.unwanted_change_of_data", "impact.not_answered_by_this", "impact.not_answered_by_this"),
    Feared("impact.disappearance_of_data", "impact.not_answered_by_this", "impact.not_answered_by_this"),
)


def filled_fields(told: Told) -> Iterator[tuple[str, list[Filled]]]:
    """Yield each group with its fields, filled in as far as the run knows them."""
    t = told.words
    for group, fields in FIELDS:
        rows = []
        for field in fields:
            own = getattr(told.evidence.declared, field.declared) if field.declared else None
            known = [own] if own else []
            known += [sentence for fact in field.facts for sentence in FACTS[fact](told)]
            rows.append(Filled(t(field.title), known, None if own or not field.ask else t(field.ask)))
        yield t(group), rows
