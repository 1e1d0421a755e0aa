"""The page of a data subject's own probe: types of items, never an item, in plain words of their language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reticent.audit.report.environment import template_environment
from reticent.audit.texts import NO_BREAK, Language, Texts

__all__ = ["self_html"]


def self_html(
    findings: Sequence[Any],
    *,
    label: Callable[[str], str],
    within_hundred: Callable[[float], float],
    language: Language,
    invented: bool,
) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    findings : of `reticent.audit.propile.self_probe.Finding`
    label : name of a type of item, in the language of the page
    within_hundred : likelihood -> the chance that it shows within a hundred answers
    invented : whether the other individuals are invented
    """
    t = Texts(language)
    environment = template_environment(t)
    environment.filters.update(
        called=label,
        heading=lambda target: _heading(label(target)),
        one_in=lambda likelihood: _one_in(likelihood, t),
        hundred=lambda likelihood: _hundred(within_hundred(likelihood)),
    )
    return environment.get_template("self.html.j2").render(findings=findings, invented=invented)


def _heading(text: str) -> str:
    """Return the text with a capital first letter; other capitals stay, as in ZIP code."""
    return text[:1].upper() + text[1:]


def _one_in(likelihood: float, t: Texts) -> str:
    """Format a likelihood as 1 in n, with two digits."""
    if likelihood <= 0 or 1 / likelihood > 1e12:
        return t("self.more_than", n="10¹²")
    number = 1 / likelihood
    step = 10 ** max(0, len(str(int(number))) - 2)
    return f"{max(1, round(number / step)) * step:,}".replace(",", NO_BREAK)


def _hundred(chance: float) -> str:
    share = 100 * chance
    return "< 0.1" if share < 0.1 else f"{share:.1f}"
