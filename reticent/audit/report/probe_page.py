"""The page of a probe: one self-contained HTML file of estimates and figures; nothing on it is about one individual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reticent.audit.report import figure
from reticent.audit.report.environment import template_environment
from reticent.audit.report.probe_plots import MAX_DENSITIES, probe_panels
from reticent.audit.texts import ENGLISH, Texts

if TYPE_CHECKING:
    from reticent.audit.evidence.probe import ProbeEvidence
    from reticent.audit.stats.estimate import Estimate

__all__ = ["probe_page", "probe_section"]


def _environment(t: Texts) -> Any:
    environment = template_environment(t)
    environment.filters.update(times=lambda number: t.plain(times(number)))
    return environment


def factor(estimate: Estimate | None) -> str:
    """Format a ratio of likelihoods: two digits, and powers of ten if it is large."""
    return times(None if estimate is None else estimate.value)


def times(number: float | None) -> str:
    """Format one number of that kind.

    >>> times(0.5), times(99.7), times(1234.0), times(99999.0)
    ('0.5', '100', '1,200', '1.0e+05')
    """
    if number is None:
        return "–"
    return f"{number:.2g}" if number < 99.5 else f"{float(f'{number:.2g}'):,.0f}" if number < 1e4 else f"{number:.1e}"


def probe_section(probe: ProbeEvidence, t: Texts = ENGLISH) -> str:
    """Return the section as HTML, to stand in a page that has the report's styles."""
    return (
        _environment(t)
        .get_template("probe_section.html.j2")
        .render(
            probe=probe,
            figures=probe_panels(probe, t),
            max_densities=MAX_DENSITIES,
            compared=any(row.heldout for model in probe.models for row in model.results),
        )
    )


def probe_page(probe: ProbeEvidence, t: Texts = ENGLISH) -> str:
    """Return the section as a whole page."""
    body = probe_section(probe, t)
    return str(_environment(t).get_template("probe.html.j2").render(body=body, looks=figure.LOOKS, probe=probe))
