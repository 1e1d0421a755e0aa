"""SpanReader: detected spans of documents, read on demand by document; writers of spans and of the quarantine list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.errors import ArtifactError
from reticent.engine.schema import SPANS


class SpanReader:
    """Reads the spans in ``folder/spans.parquet``, or in a file of another name, by row number of their documents.

    Only the row groups that hold the documents asked for are read, so a pass over the corpus holds one at a time.
    """

    def __init__(self, folder: Path | str):
        self._path = Path(folder) if Path(folder).is_file() else Path(folder) / "spans.parquet"
        try:
            self._file = pq.ParquetFile(self._path)
        except (OSError, pa.ArrowException) as error:
            raise ArtifactError(f"{self._path}: not a readable table of spans ({type(error).__name__})") from None
        if not self._file.schema_arrow.equals(SPANS):
            raise ArtifactError(f"{self._path}: not a table of spans of this version")
        groups = [self._file.metadata.row_group(number) for number in range(self._file.num_row_groups)]
        kept = [(number, group) for number, group in enumerate(groups) if group.num_rows]
        self._groups = [number for number, _ in kept]
        self._lock = Lock()  # pyarrow forgets what it has read ahead for one thread when another asks
        statistics = [group.column(0).statistics for _, group in kept]
        self._first = np.array([s.min for s in statistics], dtype=np.int64)
        self._last = np.array([s.max for s in statistics], dtype=np.int64)

    def slice(self, first_document: int, num_documents: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array]:
        """Return the spans of ``num_documents`` consecutive documents: offsets by document int64 (D + 1,), starts and
        ends int32 (S,), labels string (S,)."""
        table = self.table(first_document, num_documents, ["document", "start", "end", "label"])
        document = table.column("document").to_numpy()
        numbers = np.arange(first_document, first_document + num_documents + 1)
        offsets = np.searchsorted(document, numbers).astype(np.int64)
        labels = table.column("label").combine_chunks()
        return offsets, table.column("start").to_numpy(), table.column("end").to_numpy(), labels

    def of_documents(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> tuple[np.ndarray, pa.Table]:
        """Return the spans of the documents with these ascending row numbers: offsets by document int64 (D + 1,), and a
        table with these columns (``document`` among them) or all."""
        begins, ends = np.searchsorted(rows, self._first), np.searchsorted(rows, self._last, "right")
        table = self._read_groups(np.flatnonzero(begins < ends), columns)
        document = table.column("document").to_numpy()
        lengths = np.searchsorted(document, rows, "right") - np.searchsorted(document, rows)
        if lengths.sum() < len(document):
            places = np.minimum(np.searchsorted(rows, document), len(rows) - 1)
            table = table.filter(pa.array(rows[places] == document))
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), table.combine_chunks()

    def table(self, first_document: int, num_documents: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the spans of ``num_documents`` consecutive documents as a table, with these columns (``document``
        among them) or all."""
        end = first_document + num_documents
        wanted = np.flatnonzero((self._last >= first_document) & (self._first < end))
        table = self._read_groups(wanted, columns)
        from_row, to_row = np.searchsorted(table.column("document").to_numpy(), [first_document, end])
        return table.slice(from_row, to_row - from_row)

    def _read_groups(self, groups: np.ndarray, columns: Sequence[str] | None) -> pa.Table:
        """Return the rows of these row groups of the file, with these columns or all."""
        columns = list(columns or SPANS.names)
        if not len(groups):
            return self._file.schema_arrow.empty_table().select(columns)
        with self._lock:
            return self._file.read_row_groups([self._groups[i] for i in groups], columns=columns).combine_chunks()


# ----------------------------------------------------------------------------------------------------------- span file
#
# SpanFile: spans as they are found, written in row groups of so many documents each.
#
# So the bytes depend on the spans alone, and not on how the documents were read or whose spans were found before.


#: Documents whose spans stand in one row group.
DOCUMENTS_PER_GROUP = 1024


class SpanFile:
    """Writer of spans (`SPANS`) to a new file; the end of a ``with`` block completes it.

    Attributes
    ----------
    num_spans : int
    """

    def __init__(self, path: Path):
        self._writer = pq.ParquetWriter(path, SPANS, compression="zstd")
        self._pending = SPANS.empty_table()
        self.num_spans = 0

    def write(self, spans: pa.Table) -> None:
        """Append a table of spans in document order; no document may precede the last one written before."""
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


# ---------------------------------------------------------------------------------------------------------- quarantine
#
# Quarantine: the documents that a detector failed on, and no later stage sees; as secret as these.


NAME: Final = "quarantine.parquet"
#: One row a document and detector that failed on it; ``row`` counts the documents of the corpus from 1.
SCHEMA: Final = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("detector", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
    ]
)


def write_quarantine(rows: Sequence[Mapping[str, Any]], folder: Path | str) -> None:
    """Write the list of quarantined documents (rows of `SCHEMA`) to ``folder``."""

    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), Path(folder) / NAME)


def quarantined_rows(folder: Path | str) -> np.ndarray:
    """Return the row numbers of quarantined documents, int64, ascending; empty if there is no list of them.

    Raises
    ------
    ArtifactError
        It is there, and not a readable table of this version.
    """
    path = Path(folder) / NAME
    if not path.exists():
        return np.empty(0, dtype=np.int64)

    try:
        rows = pq.read_table(path, schema=SCHEMA).column("row").to_numpy()
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not a readable list of documents ({type(error).__name__})") from None
    return np.unique(rows) - 1
