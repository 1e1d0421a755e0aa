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

LEVELS = ("negligible", "limited", "significant", "maximal")


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
        "Context",
        (
            Field("Overview of the processing", ("recipes",), "purpose",
                  "Which processing is it, and who answers for it?"),
            Field("Data, processes and supporting assets", ("documents", "split"), "documents",
                  "Where do documents and models lie, and who has access?"),
        ),
    ),
    (
        "Fundamental principles",
        (
            Field("Purpose", declared="purpose", ask="What is the model for, and is that purpose legitimate?"),
            Field("Legal basis", declared="legal_basis", ask="On which basis are the documents processed?"),
            Field("Minimisation", ("copies", "detection", "protection"), None, "Is every document needed?"),
            Field("Accuracy", (), None, "Are the documents right and up to date?"),
            Field("Storage", (), None, "For how long are documents, run folders and models kept?"),
            Field("Rights of the individuals", (), None,
                  "How are they informed, and how do they object or withdraw? A withdrawal needs a new model."),
        ),
    ),
    (
        "Existing or planned measures",
        (
            Field("On the data and the training", ("protection", "ledger", "guarantee"), None, None),
            Field("On the organisation", (), None, "Access, contracts, audits, answers to incidents."),
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
        "Illegitimate access to data",
        "those who may put questions to the model, and those who get its files",
        "the tests of this dossier: identifiers that are predicted or written, people who are found to be members",
    ),
    Feared("Unwanted change of data", "not answered by this", "not answered by this"),
    Feared("Disappearance of data", "not answered by this", "not answered by this"),
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
