"""The pages of the repository, and their snippets."""

from __future__ import annotations

import re
from pathlib import Path

import reticent

__all__ = ["ROOT", "blocks"]

ROOT = Path(reticent.__file__).parents[1]


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page of the repository in this language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
