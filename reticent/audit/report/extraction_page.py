"""The verdict, canaries and extraction as a part of the report's page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from reticent.audit.gates import GATES
from reticent.audit.report.environment import template_environment
from reticent.audit.texts import ENGLISH, Texts

if TYPE_CHECKING:
    from reticent.audit.evidence.extraction import Extraction, Verdict

__all__ = ["extraction_html"]

#: Arms of canaries, in the order of the page.
ARMS = ("protected", "missed", "context", "ngram")


def extraction_html(extraction: Extraction | None, verdict: Verdict | None, cell: int, t: Texts = ENGLISH) -> str:
    """Return the sections as HTML, empty where the job asked for none of them; both as they may leave."""
    if extraction is None and verdict is None:
        return ""
    models = extraction.models if extraction else []
    with_canaries = [model for model in models if model.canaries]
    absent = next((_of_absent(model.canaries.num_references) for model in with_canaries if model.canaries), 0.0)
    return (
        template_environment(t)
        .get_template("extraction_section.html.j2")
        .render(
            verdict=verdict,
            titles={measure: gate.title for measure, gate in GATES.items()},
            with_canaries=with_canaries,
            absent_exposure=absent,
            with_passages=[model for model in models if model.passages],
            has_canaries=extraction is not None and extraction.has_canaries,
            arms=ARMS,
            cell_size=cell,
        )
    )


def _of_absent(num_references: int) -> float:
    """Return the mean exposure of a secret that was never written: every rank among the references is as likely."""
    log_ranks = math.lgamma(num_references + 2) / math.log(2)
    return math.log2(num_references) - log_ranks / (num_references + 1)
