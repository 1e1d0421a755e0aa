"""CSV: record batches of a file in any dialect, provided that its lines are rows as RFC 4180 defines them.

Bytes are unpacked, decoded and checked (``rust_ext/src/csv_check.rs``) block by block on their way to the reader,
because the reader accepts much that is not a row. An error never shows the columns of a file: a file without a header
has data there.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from reticent.core.errors import CorpusError
from reticent.engine.sources import compressed
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.compressed import Bytes, open_bytes
from reticent.engine.sources.config import CsvDialect
from reticent.engine.sources.csv_dialect import CsvForm, find_form
from reticent.engine.sources.reading import Reading
from reticent.engine.sources.source import Request

if TYPE_CHECKING:
    from reticent._rust import CsvCheck

__all__ = ["CsvSource", "read_csv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSource:
    """Settings of CSV files beside a dialect: all mapped columns, the columns of ids, and the record of findings."""

    dialect: CsvDialect = field(default_factory=CsvDialect)
    columns: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    reading: Reading | None = None


def read_csv(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield these columns (distinct names) of a CSV file, as large strings that are not checked to be UTF-8.

    Raises
    ------
    CorpusError
        A column is missing or stands there twice, or a line is no row; with file and row.
    OSError, pyarrow.ArrowException
        The file cannot be read.
    """
    columns, source = request.columns, request.csv or CsvSource()
    form = find_form(file, source.dialect, source.columns or columns)
    require_columns(form.header, columns, file, partial(_first_line, form))
    check = _check(form, source)
    wrong: list[Any] = []

    def keep(row: Any) -> str:
        wrong.append(row)
        return "error"

    read = pa.csv.ReadOptions(block_size=compressed.NUM_BYTES_PER_BLOCK, use_threads=False)
    parse = pa.csv.ParseOptions(
        delimiter=form.delimiter,
        quote_char=form.quote or False,
        newlines_in_values=form.quote is not None,
        invalid_row_handler=keep,
    )
    convert = pa.csv.ConvertOptions(
        include_columns=list(columns),
        column_types=dict.fromkeys(columns, pa.large_string()),
        strings_can_be_null=True,
        null_values=[""],
        quoted_strings_can_be_null=False,
        check_utf8=False,
    )
    with open_bytes(file) as data:
        stream = _CheckedStream(data, form, check, file)
        try:
            yield from pa.csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid as error:
            if wrong:  # the header is row 1 of the parser
                row = f" row {wrong[0].number - 1}" if wrong[0].number else ""
                raise CorpusError(
                    f"{file}{row}: expected {wrong[0].expected_columns} columns, got {wrong[0].actual_columns}"
                ) from None
            if "straddl" in str(error):
                raise CorpusError(f"{file}: a row is longer than {compressed.NUM_BYTES_PER_BLOCK >> 20} MiB") from None
            raise
    if source.reading is not None:
        num_suspects, first = check.suspects
        if first is not None:
            source.reading.suspects[file] = (num_suspects, first)
        if form.said:
            source.reading.dialects[file] = form.said


def _check(form: CsvForm, source: CsvSource) -> CsvCheck:
    from reticent import _rust

    return _rust.CsvCheck(
        delimiter=ord(form.delimiter),
        quote=ord(form.quote) if form.quote else None,
        max_row=2 * compressed.NUM_BYTES_PER_BLOCK,
        id_columns=[form.header.index(name) for name in dict.fromkeys(source.ids) if name in form.header],
    )


class _CheckedStream:
    """The bytes of a file as UTF-8 without a byte order mark, checked on their way."""

    closed = False

    def __init__(self, data: Bytes, form: CsvForm, check: CsvCheck, file: Path):
        self._data, self._check, self._file, self._encoding = data, check, file, form.encoding
        self._decoder = None if form.encoding == "utf-8" else codecs.getincrementaldecoder(form.encoding)()
        self._left, self._is_first, self._is_done, self._num_read = b"", True, False, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: the caller who opened the file closes it."""

    def read(self, num_bytes: int) -> bytes:
        """Return the number of bytes asked for, or fewer at the end."""
        parts, num_held = [self._left], len(self._left)
        while num_held < num_bytes and not self._is_done:
            parts.append(self._next(num_bytes - num_held))
            num_held += len(parts[-1])
        held = parts[-1] if num_held == len(parts[-1]) else b"".join(parts)
        self._left = held[num_bytes:]
        return held[:num_bytes]

    def _next(self, num_bytes: int) -> bytes:
        block = self._data.read(num_bytes)
        self._is_done = not block
        checked = block if self._decoder is None else self._decoded(block)
        if self._is_first:
            checked, self._is_first = checked.removeprefix(codecs.BOM_UTF8), not checked and bool(block)
        try:
            self._check.feed(checked)
            if self._is_done:
                self._check.finish()
        except CorpusError as error:
            raise CorpusError(f"{self._file} {error}") from None
        return checked

    def _decoded(self, block: bytes) -> bytes:
        assert self._decoder is not None
        held = self._decoder.getstate()[0]
        try:
            text: str = self._decoder.decode(block, not block)
        except UnicodeDecodeError as error:
            at = self._num_read - len(held) + error.start
            self._check.feed((held + block)[: error.start].decode(self._encoding, "ignore").encode())
            raise CorpusError(
                f"{self._file} row {self._check.num_rows}: byte {at + 1:,} of the file is not {self._encoding}; "
                "set corpus.encoding to what the file is written in"
            ) from None
        self._num_read += len(block)
        return text.encode("utf-8", "surrogatepass")


def _first_line(form: CsvForm, name: str) -> str:
    """Error of the first line of a file, without its content: it may be a row of data."""
    said = f"the first line must name it, and names {len(form.header)} other column(s)"
    if any(name.strip().casefold() == other.strip().casefold() for other in form.header):
        said += ", one of which differs in capitals or spaces only"
    return said + ("; set corpus.delimiter to what stands between them" if len(form.header) == 1 else "")
