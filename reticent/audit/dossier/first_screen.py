"""The verdict of a report in the language of its reader, from the strings of the dossier.

Title, verdict table, and the sentences that say why and what would change it, in the words of the dossier. They stand
for the report's own table of risks; :mod:`reticent.audit.report.french` puts the rest of the page into French.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reticent.audit.dossier.judged import cells_of, change_of, reason_of
from reticent.audit.dossier.models import shown_models
from reticent.audit.dossier.page import template_of_dossier
from reticent.audit.language import Words
from reticent.audit.near_copies import near_copies_lines
from reticent.audit.report.first_screen import FirstScreen

if TYPE_CHECKING:
    from reticent.audit.dossier.config import Language
    from reticent.audit.evidence.audit import AuditEvidence

__all__ = ["first_screen"]


def first_screen(audit: AuditEvidence, language: Language) -> FirstScreen:
    """Return the first screen of a published audit.

    Raises
    ------
    ArtifactError
        A string has no translation.
    """
    words = Words(language)
    models = shown_models(audit, words)
    section = template_of_dossier("first_screen.html.j2").render(
        t=words,
        lang=language,
        audit=audit,
        near_copies=list(near_copies_lines(audit, words)),
        verdicts=[
            (model, list(cells_of(model, words)), reason_of(model, words), change_of(model, words)) for model in models
        ],
    )
    title, lead = words("Privacy audit"), words("What the models say about the people they were trained on")
    return FirstScreen(language, title, lead, section)
