"""Source 2."""

from __future__ import annotations

from studies.reproduction.rows import Part, Row

ABOUT = ""
PARTS: tuple[Part, ...] = ()
ROWS: tuple[Row, ...] = ()
