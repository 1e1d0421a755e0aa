"""The page of a data subject's own probe: types of items, never an item, in plain words of their language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reticent.audit.report.environment import template_environment

__all__ = ["self_html"]


def self_html(
    findings: Sequence[Any],
    *,
    label: Callable[[str], str],
    within_hundred: Callable[[float], float],
    french: bool,
    invented: bool,
) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    findings : of `reticent.ext.propile.self_probe.Finding`
    label : name of a type of item, in the language of the page
    within_hundred : likelihood -> the chance that it shows within a hundred answers
    invented : whether the other individuals are invented
    """
    environment = template_environment()
    environment.filters.update(
        called=label,
        heading=lambda target: _heading(label(target)),
        one_in=lambda likelihood: _one_in(likelihood, "plus de" if french else "more than"),
        hundred=lambda likelihood: _hundred(within_hundred(likelihood)),
    )
    return environment.get_template("self.html.j2").render(findings=findings, fr=french, invented=invented)


def _heading(text: str) -> str:
    """Return the text with a capital first letter; other capitals stay, as in ZIP code."""
    return text[:1].upper() + text[1:]


def _one_in(likelihood: float, over: str) -> str:
    """Format a likelihood as 1 in n, with two digits."""
    if likelihood <= 0 or 1 / likelihood > 1e12:
        return f"{over} 10¹²"
    number = 1 / likelihood
    step = 10 ** max(0, len(str(int(number))) - 2)
    return f"{max(1, round(number / step)) * step:,}".replace(",", "\N{NO-BREAK SPACE}")


def _hundred(chance: float) -> str:
    share = 100 * chance
    return "< 0.1" if share < 0.1 else f"{share:.1f}"
