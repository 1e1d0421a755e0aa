"""The first screen of a report in another language than English: a title, and the verdict of every model."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FirstScreen"]


class FirstScreen(NamedTuple):
    """Texts above the English page: a language code, its title and subtitle, and a section of HTML."""

    language: str
    title: str
    lead: str
    section: str
