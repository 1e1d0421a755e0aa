"""Tokens of the members' documents in another style than the original's: their name -> the style."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reticent.engine.pseudonymize import Style

__all__ = ["REWRITTEN"]

REWRITTEN: dict[str, Style] = {"train-pseudonymised": "x", "train-tag": "tag"}
