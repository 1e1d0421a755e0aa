"""The verdict, canaries and extraction as a part of the report's page."""

from __future__ import annotations

from typing import Any

from reticent.audit.gates import GATES
from reticent.audit.report.environment import template_environment
from reticent.audit.report.shown import ends, value

__all__ = ["extraction_html"]

ARMS_ABOUT = {
    "protected": "a code that the detector found",
    "missed": "a code that no detector found and k people share: nothing protects it",
    "context": "ordinary words after a protected code: can they be told from it?",
    "ngram": "a row of common words that nobody else uses together",
}


def extraction_html(audit: dict[str, Any]) -> str:
    """Return the sections as HTML, empty where the job asked for none of them; ``audit`` as it may leave."""
    if "extraction" not in audit and "verdict" not in audit:
        return ""
    environment = template_environment()
    environment.filters.update(value=value, ends=ends)
    section = audit.get("extraction", {"has_canaries": False, "models": []})
    return environment.get_template("extraction_section.html.j2").render(
        verdict=audit.get("verdict"),
        titles={measure: gate.title for measure, gate in GATES.items()},
        with_canaries=[model for model in section["models"] if model["canaries"]],
        with_passages=[model for model in section["models"] if model["passages"]],
        has_canaries=section["has_canaries"],
        arms_about=ARMS_ABOUT,
        cell_size=audit["small_cell"],
    )
