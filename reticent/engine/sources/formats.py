"""Formats: the record batches of one file of Parquet or Arrow IPC, or of CSV (`csv_rows`) or JSON lines (`json_lines`),
and how documents are written.

Memory is bounded by a batch, a row group or a block of bytes. Nothing is repaired. The readers' own messages may quote
the data, so none is passed on: an error says file, row (1 is the first row of data) and what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.csv_dialect import CsvDialect
from reticent.engine.sources.csv_rows import CsvSource, read_csv
from reticent.engine.sources.json_lines import read_jsonl

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["FORMATS", "SUFFIXES", "document_writer", "read_batches", "row_groups"]

FORMATS = ("parquet", "arrow", "csv", "jsonl")
SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
#: What ends an Arrow stream, now and in its first version.
END_MARKERS: Final = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")


def read_batches(
    file: Path,
    format: str,
    columns: Sequence[str],
    batch_rows: int,
    row_groups: Sequence[int] | None = None,
    large: Sequence[str] = (),
    csv: CsvSource | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield these columns (distinct names) of a file, in batches of at most ``batch_rows`` rows.

    ``row_groups`` are those of a Parquet file to read; None: all. Columns named in ``large`` are wanted as large
    strings, where that spares a copy. ``csv`` is what is known of files of that format.

    Raises
    ------
    CorpusError
        The file cannot be read or is not of this format, or a column is missing or stands there twice.
    """
    try:
        match format:
            case "parquet":
                batches = _read_parquet(file, list(columns), batch_rows, row_groups, large)
            case "arrow":
                batches = _read_arrow(file, list(columns))
            case "csv":
                batches = read_csv(file, columns, csv or CsvSource(dialect=CsvDialect()))
            case _:
                batches = read_jsonl(file, list(columns))
        for batch in batches:
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)
    except CorpusError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"not valid {format}"
        reason = reason if not file.is_file() or file.stat().st_size else "an empty file"
        raise CorpusError(f"{file}: cannot be read as {format} ({reason})") from None


def document_writer(where: Path | BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of documents as Parquet, in pages of about 1 MiB, since readers unpack a page whole.

    Pages are closed after this many values at the earliest; the default, 1024, is several times too many of texts.
    """
    import pyarrow.parquet as pq

    repeated = [name for name in schema.names if name not in ("doc_id", "text")]
    repeated += [f"{name}.list.element.label" for name in ("spans", "mentions") if name in schema.names]
    return pq.ParquetWriter(where, schema, compression="zstd", use_dictionary=repeated, write_batch_size=64)


def _read_parquet(
    file: Path, columns: list[str], batch_rows: int, row_groups: Sequence[int] | None, large: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Strings are the core's to read, in less memory; pyarrow reads what else there is, and says what is wrong."""
    from reticent import _rust

    num_done = 0
    parquet = _rust.ParquetFile.open(file)
    if parquet and (rows := parquet.read(columns, large=[name in large for name in columns], row_groups=row_groups)):
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
    import pyarrow.parquet as pq

    # Without a buffer ahead a row group is read page by page: large ones cost no more memory than small ones.
    with pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True) as parquet:
        require_columns(parquet.schema_arrow.names, columns, file)
        for batch in parquet.iter_batches(batch_rows, row_groups, columns, use_threads=False):
            yield _sound(batch)


def row_groups(file: Path) -> list[int]:
    """Number of rows of each row group of a Parquet file; `CorpusError` where it cannot be read."""
    from reticent import _rust

    if (parquet := _rust.ParquetFile.open(file)) is not None:
        return parquet.num_rows

    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file)
    except (OSError, pa.ArrowException):
        raise CorpusError(f"{file}: cannot be read as parquet (not valid parquet)") from None
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def _read_arrow(file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(file)) as source:
        is_file = source.size() >= 6 and source.read(6) == b"ARROW1"
        source.seek(0)
        if is_file:
            reader = pa.ipc.open_file(source)
            require_columns(reader.schema.names, columns, file)
            for number in range(reader.num_record_batches):
                yield _sound(reader.get_batch(number).select(columns))
        else:
            stream = pa.ipc.open_stream(source)
            require_columns(stream.schema.names, columns, file)
            at = source.tell()
            for batch in stream:
                yield _sound(batch.select(columns))
                at = source.tell()
            _check_end(source, at, file)


def _check_end(source: pa.MemoryMappedFile, at: int, file: Path) -> None:
    """Refuse a stream that was cut between two batches, which its reader takes for its end, and one before another."""
    end = source.tell()
    source.seek(at)
    if source.read(end - at) not in END_MARKERS:
        raise CorpusError(f"{file}: an Arrow stream without its end marker: it was cut, and rows are missing")
    if end < source.size():
        raise CorpusError(f"{file}: {source.size() - end:,} bytes follow the end marker of its Arrow stream, unread")


def _sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Check that every offset and index of a batch lies inside its data, which no reader does for a damaged file."""
    for array in batch.columns:
        if isinstance(array, pa.DictionaryArray):
            pa.DictionaryArray.from_arrays(array.indices, _as_bytes(array.dictionary)).validate(full=True)
        else:
            _as_bytes(array).validate(full=True)
    return batch


def _as_bytes(array: pa.Array) -> pa.Array:
    """View text as bytes, since whether it is UTF-8 is checked later, where the row can be named."""
    views = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    return array.view(views[array.type]) if array.type in views else array
