"""The first screen of a report that is not in English: a title, and the verdict of every model, in plain words."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FirstScreen"]


class FirstScreen(NamedTuple):
    """Texts above the rest of the page: a language code, its title and subtitle, and a section of HTML."""

    language: str
    title: str
    lead: str
    section: str
