"""JSON lines: record batches of a file, a block of whole lines at a time, so that memory is bounded.

Ids and texts are read as they are written. The parser goes into nested values by calling itself, and one that is nested
very deep would end the process, so their depth is checked beforehand (``rust_ext/src/json_depth.rs``). Its messages
may quote the data, so none is passed on: an error says file, row (1 is the first line that is not blank) and what.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.json

from reticent.core.errors import CorpusError
from reticent.engine.sources import compressed
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.compressed import open_bytes
from reticent.engine.sources.source import Request

__all__ = ["read_jsonl"]

#: How deep values may be nested: spans and mentions take 3.
MAX_DEPTH: Final = 64
#: Bytes of the longest line.
MAX_LINE: Final = 256 << 20


def read_jsonl(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield these columns (distinct names) of a file of JSON objects, one a line.

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
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file} row {first_row + _line(data, error.start)}: not valid UTF-8") from None
    _check_depth(data, columns, file, first_row)
    read = pa.json.ReadOptions(block_size=max(len(data), 1 << 16), use_threads=True)
    table = _read_json(data, read)
    if table is None:
        _blame_line(data, columns, file, first_row)
    require_columns(table.column_names, columns, file)
    return table.select(columns).combine_chunks().to_batches()[0]


def _line(data: bytes, at: int) -> int:
    """The number of the line that holds this byte; blank ones do not count."""
    return sum(1 for line in data[:at].split(b"\n")[:-1] if line.strip()) + 1


def _check_depth(data: bytes, columns: list[str], file: Path, first_row: int) -> None:
    from reticent import _rust

    at = _rust.json_too_deep(data, limit=MAX_DEPTH)
    if at is None:
        return
    line = data[data.rfind(b"\n", 0, at) + 1 :].partition(b"\n")[0]
    if _rust.json_too_deep(line, limit=MAX_DEPTH) is None:  # a string or a bracket before it is not closed
        _blame_line(data, columns, file, first_row)
    raise CorpusError(f"{file} row {first_row + _line(data, at)}: values are nested more than {MAX_DEPTH} deep")


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
            if value is not None and kinds.setdefault(name, kind) != kind:
                raise CorpusError(f"{where} {shown}: expected {kinds[name]} as in the rows before, got {kind}")
    raise CorpusError(f"{file}: cannot be read as jsonl (not valid jsonl)")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, so that a name that stands twice is seen."""
