"""SpanFile: spans as they are found, written in row groups of so many documents each.

So the bytes depend on the spans alone, and not on how the documents were read or whose spans were found before.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.engine.schema import SPANS

__all__ = ["SpanFile"]

#: Documents whose spans stand in one row group.
DOCUMENTS_PER_GROUP = 1024


class SpanFile:
    """Appends spans (`SPANS`) to a new file; the end of a ``with`` block makes it whole.

    Attributes
    ----------
    num_spans : int
    """

    def __init__(self, path: Path):
        self._writer = pq.ParquetWriter(path, SPANS, compression="zstd")
        self._pending = SPANS.empty_table()
        self.num_spans = 0

    def write(self, spans: pa.Table) -> None:
        """Append spans, ascending by document, none of a document before the last one of earlier calls."""
        self.num_spans += spans.num_rows
        table = pa.concat_tables([self._pending, spans])
        group = table.column("document").to_numpy() // DOCUMENTS_PER_GROUP
        ends = np.flatnonzero(np.diff(group)) + 1
        for first, end in zip([0, *ends], ends, strict=False):
            self._writer.write_table(table.slice(first, end - first).combine_chunks())
        self._pending = table.slice(ends[-1] if len(ends) else 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            try:
                if self._pending.num_rows:
                    self._writer.write_table(self._pending.combine_chunks())
                self._writer.close()
                return
            except BaseException:
                self._writer.is_open = False
                raise
        self._writer.is_open = False  # on a full disk pyarrow would try to finish it, and print that it cannot
