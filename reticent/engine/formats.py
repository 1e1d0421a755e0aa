"""Formats: the record batches of one file of Parquet, Arrow IPC, CSV or JSON lines, and how documents are written.

Memory is bounded by a batch, a row group or a block of `NUM_BYTES_PER_BLOCK`. Nothing is repaired. The readers' own
messages may quote the data, so none is passed on: an error says file, row (1 is the first row of data) and what is
wrong. The columns a CSV file was found to have are never shown, as a file without a header has data there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from reticent.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["FORMATS", "SUFFIXES", "check_quotes", "document_writer", "read_batches", "row_groups"]

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
NUM_BYTES_PER_BLOCK = 16 << 20
COMMAS = "; a comma must stand between them"


def read_batches(
    file: Path,
    format: str,
    columns: Sequence[str],
    batch_rows: int,
    row_groups: Sequence[int] | None = None,
    large: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield these columns (distinct names) of a file, in batches of at most ``batch_rows`` rows.

    ``row_groups`` are those of a Parquet file to read; None: all. Columns named in ``large`` are wanted as large
    strings, where that spares a copy.

    Raises
    ------
    CorpusError
        The file cannot be read or is not of this format, or a column is missing or stands there twice.
    """
    readers = {"arrow": _read_arrow, "csv": _read_csv, "jsonl": _read_jsonl}
    try:
        if format == "parquet":
            batches = _read_parquet(file, list(columns), batch_rows, row_groups, large)
        else:
            batches = readers[format](file, list(columns), batch_rows)
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


def check_quotes(file: Path) -> None:
    """Refuse a CSV file whose last quoted value is never closed: it would swallow every row after it.

    Cost: one pass over the bytes; a second, slow one only where the number of quotes is odd.
    """
    num_quotes = 0
    with file.open("rb") as source:
        while block := source.read(NUM_BYTES_PER_BLOCK):
            num_quotes += block.count(b'"')
    row = _row_left_open(file) if num_quotes % 2 else None
    if row is not None:
        where = f"row {row}" if row else "header"
        raise CorpusError(f"{file} {where}: a quoted value is not closed by the end of the file")


def _row_left_open(file: Path) -> int | None:
    """Row (0: the header) whose quoted value is open at the end of the file; a quote opens it at its start only."""
    opened, row, row_opened = False, 0, 0
    with file.open("rb") as lines:
        for line in lines:
            at = 0
            while at < len(line):
                if not opened and line[at : at + 1] == b'"':
                    opened, row_opened, at = True, row, at + 1
                    continue
                if opened:
                    at = line.find(b'"', at)
                    if at < 0:
                        break
                    if line[at + 1 : at + 2] == b'"':  # doubled: a quote of the value
                        at += 2
                        continue
                    opened = False
                delimiter = re.compile(rb"[,\r]").search(line, at)
                at = delimiter.end() if delimiter else len(line)
            if not opened and line.strip():
                row += 1
    return row_opened if opened else None


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
    with pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as parquet:
        _require(parquet.schema_arrow.names, columns, file)
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


def _read_arrow(file: Path, columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(file)) as source:
        is_file = source.size() >= 6 and source.read(6) == b"ARROW1"
        source.seek(0)
        if is_file:
            reader = pa.ipc.open_file(source)
            _require(reader.schema.names, columns, file)
            for number in range(reader.num_record_batches):
                yield _sound(reader.get_batch(number).select(columns))
        else:
            stream = pa.ipc.open_stream(source)
            _require(stream.schema.names, columns, file)
            for batch in stream:
                yield _sound(batch.select(columns))


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


def _read_csv(file: Path, columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    read = pa.csv.ReadOptions(block_size=NUM_BYTES_PER_BLOCK, use_threads=False)
    wrong: list[Any] = []

    def keep(row: Any) -> str:
        wrong.append(row)
        return "error"

    parse = pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=keep)
    convert = pa.csv.ConvertOptions(
        include_columns=columns,
        column_types=dict.fromkeys(columns, pa.large_string()),
        strings_can_be_null=True,
        null_values=[""],
        quoted_strings_can_be_null=False,
        check_utf8=False,
    )
    try:
        _require(_csv_header(file, read, parse), columns, file, shown=False)
        yield from pa.csv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert)
    except pa.ArrowInvalid as error:
        if wrong:  # the header is row 1 of the parser
            row = f" row {wrong[0].number - 1}" if wrong[0].number else ""
            raise CorpusError(
                f"{file}{row}: expected {wrong[0].expected_columns} columns, got {wrong[0].actual_columns}"
                + (COMMAS if wrong[0].expected_columns == 1 else "")
            ) from None
        if "straddl" in str(error):
            raise CorpusError(f"{file}: a row is longer than {NUM_BYTES_PER_BLOCK >> 20} MiB") from None
        raise


def _csv_header(file: Path, read: pa.csv.ReadOptions, parse: pa.csv.ParseOptions) -> list[str]:
    with pa.csv.open_csv(file, read_options=read, parse_options=parse) as head:
        return list(head.schema.names)


def _read_jsonl(file: Path, columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Blocks of whole lines, so that memory is bounded; ids and texts are read as they are written."""
    row = 0
    rest = b""
    with file.open("rb") as source:
        while True:
            block = source.read(NUM_BYTES_PER_BLOCK)
            data, rest = rest + block, b""
            if block:
                cut = data.rfind(b"\n") + 1
                data, rest = data[:cut], data[cut:]
            if data.strip():
                batch = _parse_jsonl(data, columns, file, row)
                yield batch
                row += batch.num_rows
            if not block:
                return


def _parse_jsonl(data: bytes, columns: list[str], file: Path, first_row: int) -> pa.RecordBatch:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        row = first_row + sum(1 for line in data[: error.start].split(b"\n")[:-1] if line.strip()) + 1
        raise CorpusError(f"{file} row {row}: not valid UTF-8") from None
    read = pa.json.ReadOptions(block_size=max(len(data), 1 << 16), use_threads=True)
    table = _read_json(data, read)
    if table is None:
        _blame_line(data, columns, file, first_row)
    _require(table.column_names, columns, file)
    return table.select(columns).combine_chunks().to_batches()[0]


def _read_json(data: bytes, read: pa.json.ReadOptions) -> pa.Table | None:
    """Read whole lines; None where they cannot be, so that the reader's message is not even the cause of ours."""
    try:
        table = pa.json.read_json(pa.BufferReader(data), read_options=read)
        dates = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        if dates:  # text that looks like a date was taken for one
            schema = pa.schema([(name, pa.string()) for name in dates])
            parse = pa.json.ParseOptions(explicit_schema=schema)
            table = pa.json.read_json(pa.BufferReader(data), read_options=read, parse_options=parse)
    except pa.ArrowInvalid:
        return None
    return table


def _blame_line(data: bytes, columns: list[str], file: Path, first_row: int) -> NoReturn:
    """Say which line of a block that could not be read is the first bad one; names of other columns may be data."""
    kinds: dict[str, str] = {}
    for number, line in enumerate(filter(bytes.strip, data.split(b"\n"))):
        where = f"{file} row {first_row + number + 1}"
        try:
            pairs = json.loads(line, object_pairs_hook=_Pairs)
            json.dumps(pairs, ensure_ascii=False).encode()  # fails on half a surrogate pair
        except ValueError:
            raise CorpusError(f"{where}: not valid JSON, or not valid Unicode") from None
        if not isinstance(pairs, _Pairs):
            raise CorpusError(f"{where}: not a JSON object")
        names = [name for name, _ in pairs]
        for name, value in pairs:
            shown = f"column {name}" if name in columns else "another column"
            if names.count(name) > 1:
                raise CorpusError(f"{where} {shown}: stands twice in this object")
            kind = type(value).__name__.strip("_").lower()
            if value is not None and kinds.setdefault(name, kind) != kind:
                raise CorpusError(f"{where} {shown}: expected {kinds[name]} as in the rows before, got {kind}")
    raise CorpusError(f"{file}: cannot be read as jsonl (not valid jsonl)")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, so that a name that stands twice is seen."""


def _require(found: Sequence[str], wanted: Sequence[str], file: Path, *, shown: bool = True) -> None:
    for name in wanted:
        if name not in found:
            names = f"it has {', '.join(map(str, found))}" if shown else _first_line(found, name)
            raise CorpusError(f"{file}: column {name} is missing; {names}")
        if list(found).count(name) > 1:
            raise CorpusError(f"{file}: column {name} stands there {list(found).count(name)} times")


def _first_line(found: Sequence[str], name: str) -> str:
    """What is wrong with the first line of a CSV file, without what it says: it may be a row of data."""
    said = f"the first line must name it, and names {len(found)} other column(s)"
    if any(name.strip().casefold() == str(other).strip().casefold() for other in found):
        said += ", one of which differs in capitals or spaces only"
    return said + (COMMAS if len(found) == 1 else "")
