"""Reading documents from a Parquet file as record batches, and writing documents as Parquet.

Memory is bounded by a batch and a page. Nothing is repaired. The readers' own messages may quote the data, so none is
passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import CorpusError
from reticent.engine.sources.columns import require_columns, validate_batch
from reticent.engine.sources.config import Columns
from reticent.engine.sources.protocol import Request

_OWN_NAMES: Final = Columns(spans="spans", mentions="mentions")


def document_writer(where: Path, schema: pa.Schema, columns: Columns = _OWN_NAMES) -> pq.ParquetWriter:
    """Return a Parquet writer for documents, with pages of about 1 MiB so that readers need little memory.

    Pages are closed after this many values at the earliest; the default, 1024, is several times too many of texts.
    ``columns``: the names of the columns, by default their own.
    """

    repeated = [name for name in schema.names if name not in (columns.doc_id, columns.text)]
    nested = (columns.spans, columns.mentions)
    repeated += [f"{name}.list.element.label" for name in nested if name in schema.names]
    return pq.ParquetWriter(where, schema, compression="zstd", use_dictionary=repeated, write_batch_size=64)


def read_parquet(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of a Parquet file as record batches.

    Strings are the core's to read, in less memory; pyarrow reads the other columns, and explains faults.
    """
    columns, batch_rows, row_groups = list(request.columns), request.batch_rows, request.row_groups
    large = [name in request.large for name in columns]
    num_done = 0
    # One row group of 60 MB of text raises the peak by 20 MiB, through pyarrow by 104; the peak of a whole index is in
    # `python -m benchmarks.engine` (part "memory").
    parquet = _rust.ParquetFile.open(file)
    if parquet and (rows := parquet.read(columns, large=large, row_groups=row_groups)):
        with suppress(CorpusError):
            while (batch := rows.next(batch_rows)) is not None:
                found = pa.record_batch(batch)
                num_done += found.num_rows
                yield found
            return
    for batch in _read_any_parquet(file, columns, batch_rows, row_groups):
        num_old = min(num_done, batch.num_rows)
        num_done -= num_old
        if num_old < batch.num_rows:
            yield batch.slice(num_old)


def _read_any_parquet(
    file: Path, columns: list[str], batch_rows: int, row_groups: Sequence[int] | None
) -> Iterator[pa.RecordBatch]:
    """Yield record batches of a Parquet file, read by pyarrow page by page and checked."""
    # Without a buffer ahead a row group is read page by page: large ones cost no more memory than small ones.
    with pq.ParquetFile(
        file, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
    ) as parquet:
        require_columns(parquet.schema_arrow.names, columns, file)
        described = map(parquet.schema.column, range(len(parquet.schema)))
        instants = {column.path for column in described if column.physical_type == "INT96"}.intersection(columns)
        for batch in parquet.iter_batches(batch_rows, row_groups, columns, use_threads=False):
            for name in instants:  # Spark's, which are of UTC, though nothing says so
                at = batch.schema.get_field_index(name)
                batch = batch.set_column(at, name, batch.column(at).cast(pa.timestamp("us", "UTC")))
            yield validate_batch(batch)


def row_groups(file: Path) -> list[int]:
    """Return the number of rows of each row group of a Parquet file; `CorpusError` if it cannot be read."""
    if (parquet := _rust.ParquetFile.open(file)) is not None:
        return parquet.num_rows
    try:
        metadata = pq.read_metadata(file)
    except (OSError, pa.ArrowException):
        raise CorpusError(f"{file}: cannot be read as parquet (not valid parquet)") from None
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
