"""The page of a probe: one self-contained HTML file of estimates and figures; nothing on it is about one person."""

from __future__ import annotations

from typing import Any

from reticent.audit.report import figure
from reticent.audit.report.environment import template_environment
from reticent.audit.report.probe_plots import MAX_DENSITIES, probe_panels
from reticent.audit.report.shown import ends, value

__all__ = ["probe_page", "probe_section"]


def _environment() -> Any:
    environment = template_environment()
    environment.filters.update(value=value, ends=ends, factor=factor)
    return environment


def factor(estimate: dict[str, Any] | None) -> str:
    """Format how many times likelier: two digits, in powers of ten where it is large."""
    if estimate is None or estimate["value"] is None:
        return "–"
    value = float(estimate["value"])
    return f"{value:.2g}" if value < 100 else f"{float(f'{value:.2g}'):,.0f}" if value < 1e4 else f"{value:.1e}"


def probe_section(section: dict[str, Any]) -> str:
    """Return the section as HTML, to stand in a page that has the report's styles."""
    return (
        _environment()
        .get_template("probe_section.html.j2")
        .render(
            probe=section,
            figures=probe_panels(section),
            max_densities=MAX_DENSITIES,
            compared=any("heldout" in row for model in section["models"] for row in model["results"]),
        )
    )


def probe_page(section: dict[str, Any]) -> str:
    """Return a page of its own."""
    return (
        _environment()
        .get_template("probe.html.j2")
        .render(body=probe_section(section), looks=figure.LOOKS, probe=section)
    )
