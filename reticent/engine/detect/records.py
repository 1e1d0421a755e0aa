"""Records: the individual's own record fields."""

from __future__ import annotations

from pathlib import Path

from reticent.engine.detect import gazetteer

__all__ = ["RecordsDetector"]


class RecordsDetector(gazetteer.RecordsDetector):
    """The record fields of each individual, from a Parquet table (`gazetteer.read_records`)."""

    def __init__(self, table: str | Path, *, num_threads: int = 0):
        super().__init__(gazetteer.read_records(table), num_threads=num_threads)
