"""The table of file formats, and the readers of Arrow and JSONL.

To add a format, write its reader in a file of its own and its row here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.json

from reticent import _rust
from reticent.core.errors import CorpusError
from reticent.engine.sources import compressed
from reticent.engine.sources.columns import require_columns, validate_batch
from reticent.engine.sources.compressed import COMPRESSIONS, open_bytes
from reticent.engine.sources.csv import read_csv
from reticent.engine.sources.markup import marked_reader, read_brat, read_i2b2_2006, read_i2b2_2014, read_tab
from reticent.engine.sources.parquet import read_parquet, row_groups
from reticent.engine.sources.plain import read_txt
from reticent.engine.sources.protocol import Format, Request

#: End of an Arrow stream, now and in its first version.
END_MARKERS: Final = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")


def read_arrow(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of an Arrow IPC file or stream as record batches, memory-mapped without copies."""
    columns = list(request.columns)
    with pa.memory_map(str(file)) as source:
        is_file = source.size() >= 6 and source.read(6) == b"ARROW1"
        source.seek(0)
        if is_file:
            reader = pa.ipc.open_file(source)
            require_columns(reader.schema.names, columns, file)
            for number in range(reader.num_record_batches):
                yield validate_batch(reader.get_batch(number).select(columns))
        else:
            stream = pa.ipc.open_stream(source)
            require_columns(stream.schema.names, columns, file)
            at = source.tell()
            for batch in stream:
                yield validate_batch(batch.select(columns))
                at = source.tell()
            _check_end(source, at, file)


def _check_end(source: pa.MemoryMappedFile, at: int, file: Path) -> None:
    """Raise `CorpusError` if the end marker of an Arrow IPC stream is not at offset ``at``, as in a stream cut between
    two batches, or if further bytes follow it."""
    end = source.tell()
    source.seek(at)
    if source.read(end - at) not in END_MARKERS:
        raise CorpusError(f"{file}: an Arrow stream without its end marker: it was cut, and rows are missing")
    if end < source.size():
        raise CorpusError(f"{file}: {source.size() - end:,} bytes follow the end marker of its Arrow stream, unread")


# --------------------------------------------------------------------------------------------------------------- JSONL

# A block of whole lines at a time, so that memory is bounded. Ids and texts are read as they are written. The parser
# goes into nested values by calling itself, and one that is nested very deep would end the process, so their depth is
# checked beforehand (``rust_ext/src/json_depth.rs``). Its messages may quote the data, so none is passed on: an error
# says file, row (1 is the first line that is not blank) and what.

#: How deep values may be nested: spans and mentions take 3.
MAX_DEPTH: Final = 64
#: Bytes of the longest line.
MAX_LINE: Final = 256 << 20
#: Distinct keys of a block of lines, by those of some lines, and how many lines those are.
MOST_KEYS: Final = 2000
NUM_SAMPLED: Final = 100


def read_jsonl(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of a JSON Lines file (one object a line) as record batches.

    Raises
    ------
    CorpusError
        A line is no such object, is too long or nested too deep, or a column is missing; with file and row.
    OSError
        The file cannot be read.
    """
    columns = list(request.columns)
    row = 0
    rest = b""
    with open_bytes(file) as source:
        while True:
            block = source.read(compressed.NUM_BYTES_PER_BLOCK)
            data, rest = rest + block, b""
            if block:
                cut = data.rfind(b"\n") + 1
                data, rest = data[:cut], data[cut:]
                if len(rest) > MAX_LINE:
                    raise CorpusError(f"{file}: a line is longer than {MAX_LINE >> 20} MiB")
            if data.strip():
                batch = _parse_jsonl(data, columns, file, row)
                yield batch
                row += batch.num_rows
            if not block:
                return


def _parse_jsonl(data: bytes, columns: list[str], file: Path, first_row: int) -> pa.RecordBatch:
    """Return the requested columns of whole JSON lines as one record batch; `CorpusError` with file and row if a line
    is invalid."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file} row {first_row + _line_number(data, error.start)}: not valid UTF-8") from None
    _check_depth(data, columns, file, first_row)
    read = pa.json.ReadOptions(block_size=max(len(data), 1 << 16), use_threads=True)
    table = None if _has_many_keys(data) else _read_json(data, read)
    if table is None:  # of many keys, or perhaps only because another column holds values of several types
        table = _read_keys(data, columns)
    if table is None:
        _blame_line(data, columns, file, first_row)
    require_columns(table.column_names, columns, file)
    return table.select(columns).combine_chunks().to_batches()[0]


def _line_number(data: bytes, at: int) -> int:
    """Return the number, from 1, of the line that holds the byte at this offset; blank lines do not count."""
    return sum(1 for line in data[:at].split(b"\n")[:-1] if line.strip()) + 1


def _check_depth(data: bytes, columns: list[str], file: Path, first_row: int) -> None:
    """Raise `CorpusError` if a value in these JSON lines is nested too deep."""
    at = _rust.json_too_deep(data, limit=MAX_DEPTH)
    if at is None:
        return
    line = data[data.rfind(b"\n", 0, at) + 1 :].partition(b"\n")[0]
    if _rust.json_too_deep(line, limit=MAX_DEPTH) is None:  # a string or a bracket before it is not closed
        _blame_line(data, columns, file, first_row)
    raise CorpusError(f"{file} row {first_row + _line_number(data, at)}: values are nested more than {MAX_DEPTH} deep")


def _read_json(data: bytes, read: pa.json.ReadOptions) -> pa.Table | None:
    """Return whole lines parsed by pyarrow; None if they are invalid (the parser's message may quote data)."""
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


def _has_many_keys(data: bytes) -> bool:
    """Whether a block of JSON lines probably has so many distinct keys that pyarrow, which makes a column for each,
    would be slow. The number is estimated from a sample of the lines and the longest one."""
    ends = np.append(
        np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")), len(data)
    )  # all lines take 5 times as long
    starts = np.append(0, ends[:-1] + 1)
    apart = max(len(ends) // NUM_SAMPLED, 1)

    def line(number: int) -> bytes:
        """Return the bytes of the line with this number."""
        return data[starts[number] : ends[number]]

    try:
        sampled = filter(bytes.strip, map(line, range(0, len(ends), apart)))
        keys = Counter(key for one in sampled for key in json.loads(one))
        longest = len(json.loads(line(int((ends - starts).argmax()))))
    except (ValueError, TypeError, RecursionError):  # the reader says where
        return False
    return longest + apart * sum(count == 1 for count in keys.values()) > MOST_KEYS


def _read_keys(data: bytes, columns: list[str]) -> pa.Table | None:
    """Return only these keys of whole JSON lines as a table, parsed without pyarrow; None if the lines cannot be
    read."""
    try:
        rows = [
            json.loads(line, object_pairs_hook=_dict_of_distinct) for line in filter(bytes.strip, data.split(b"\n"))
        ]
        if not all(isinstance(row, dict) for row in rows):
            return None
        there = [name for name in columns if any(name in row for row in rows)]
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in there})
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, pa.ArrowException):
        return None


def _dict_of_distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return key-value pairs as a dict; `ValueError` if a key occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _blame_line(data: bytes, columns: list[str], file: Path, first_row: int) -> NoReturn:
    """Raise `CorpusError` that names the first invalid line of a block that could not be parsed; only names in
    ``columns`` are shown, as others may be data."""
    kinds: dict[str, str] = {}
    for number, line in enumerate(filter(bytes.strip, data.split(b"\n"))):
        where = f"{file} row {first_row + number + 1}"
        try:
            pairs = json.loads(line, object_pairs_hook=_Pairs)
            json.dumps(pairs, ensure_ascii=False).encode()  # fails on half a surrogate pair
        except (ValueError, RecursionError):
            raise CorpusError(f"{where}: not valid JSON, or not valid Unicode") from None
        if not isinstance(pairs, _Pairs):
            raise CorpusError(f"{where}: not a JSON object")
        names = [name for name, _ in pairs]
        for name, value in pairs:
            shown = f"column {name}" if name in columns else "another column"
            if names.count(name) > 1:
                raise CorpusError(f"{where} {shown}: stands twice in this object")
            kind = "object" if isinstance(value, _Pairs) else type(value).__name__
            if name in columns and value is not None and kinds.setdefault(name, kind) != kind:
                raise CorpusError(f"{where} {shown}: expected {kinds[name]} as in the rows before, got {kind}")
    raise CorpusError(f"{file}: cannot be read as jsonl (not valid jsonl)")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of its pairs, which keeps repeated names."""


# --------------------------------------------------------------------------------------------------------------- table

_ROWS: Final = (
    Format(
        name="parquet",
        title="Parquet",
        suffixes=(".parquet", ".pq"),
        read=read_parquet,
        row_groups=row_groups,
    ),
    Format(name="arrow", title="Arrow", suffixes=(".arrow", ".ipc", ".feather"), read=read_arrow),
    Format(name="csv", title="CSV", suffixes=(".csv",), read=read_csv, is_compressible=True),
    Format(name="jsonl", title="JSONL", suffixes=(".jsonl", ".ndjson"), read=read_jsonl, is_compressible=True),
    Format(
        name="txt",
        title="text files",
        suffixes=(".txt",),
        read=read_txt,
        is_plain=True,
        options=frozenset({"individual", "individuals"}),
    ),
    Format(
        name="i2b2-2006",
        title="i2b2 2006",
        suffixes=(".xml",),
        read=marked_reader("i2b2-2006", read_i2b2_2006),
        is_marked=True,
        names_individuals=False,
        options=frozenset({"individual"}),
    ),
    Format(
        name="i2b2-2014",
        title="i2b2 2014",
        suffixes=(".xml",),
        read=marked_reader("i2b2-2014", read_i2b2_2014, individual=r"(?s)([^-]+)-.*", counts_line_ends=True),
        is_marked=True,
        is_named_by_file=True,
        options=frozenset({"individual", "offsets"}),
    ),
    Format(
        name="meddocan",
        title="MEDDOCAN",
        suffixes=(".xml",),
        read=marked_reader("meddocan", read_i2b2_2014, counts_line_ends=True),
        is_marked=True,
        is_named_by_file=True,
        names_individuals=False,
        options=frozenset({"individual", "offsets"}),
    ),
    Format(
        name="brat",
        title="BRAT",
        suffixes=(".txt", ".ann"),
        read=marked_reader("brat", read_brat),
        is_marked=True,
        is_named_by_file=True,
        names_individuals=False,
        options=frozenset({"individual", "offsets"}),
    ),
    Format(
        name="tab",
        title="TAB",
        suffixes=(".json", ".jsonl"),
        read=marked_reader("tab", read_tab),
        is_marked=True,
        options=frozenset({"individual", "offsets", "annotator", "identifiers"}),
    ),
)
#: Name -> format, in the order in which messages list them.
FORMATS: Final[Mapping[str, Format]] = MappingProxyType({row.name: row for row in _ROWS})
#: Suffix -> format, of those that need not be named.
_BY_SUFFIX: Final = MappingProxyType({suffix: row for row in _ROWS if not row.must_be_named for suffix in row.suffixes})


def format_names() -> tuple[str, ...]:
    """Return the values of ``corpus.format``: "auto", and the name of every format."""
    return ("auto", *FORMATS)


def format_of(file: Path) -> Format | None:
    """Return the format that a file's suffix identifies; None if it is another, or must be named."""
    return _BY_SUFFIX.get(document_suffix(file))


def document_suffix(file: Path) -> str:
    """Return the suffix that identifies a format, in lower case: ``.csv`` for ``notes.csv`` and ``notes.csv.gz``."""
    inner, outer = Path(file.stem).suffix.lower(), file.suffix.lower()
    known = _BY_SUFFIX.get(inner)
    return inner if outer in COMPRESSIONS and known is not None and known.is_compressible else outer


def read_batches(file: Path, format: str, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of a file as record batches of at most ``request.batch_rows`` rows.

    The readers' own messages may quote the data, so none is passed on.

    Raises
    ------
    CorpusError
        The file cannot be read or is not of this format, or a column is missing or stands there twice.
    """
    try:
        for batch in FORMATS[format].read(file, request):
            for start in range(0, batch.num_rows, request.batch_rows):
                yield batch.slice(start, request.batch_rows)
    except CorpusError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"not valid {format}"
        reason = reason if not file.is_file() or file.stat().st_size else "an empty file"
        raise CorpusError(f"{file}: cannot be read as {format} ({reason})") from None
