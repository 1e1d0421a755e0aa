"""CSV: record batches of a file in any dialect, if its lines are rows as RFC 4180 defines them.

The dialect (delimiter, quote, encoding) is given, or a function of the first bytes of the file and the names of the
columns: the only evidence is a header that names every mapped column under exactly one delimiter. pyarrow reads the
rows. It accepts much that is no row, so bytes are unpacked, decoded and checked (``rust_ext/src/csv_check.rs``) block
by block on their way to it. An error never shows the columns of a file: a file without a header has data there.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from reticent._rust import CsvCheck
from reticent.core.errors import CorpusError
from reticent.engine.sources import compressed
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.compressed import Bytes, open_bytes
from reticent.engine.sources.config import CsvDialect
from reticent.engine.sources.protocol import CsvSource, Request

DELIMITERS: Final = (",", ";", "\t", "|")
QUOTES: Final = ('"', "'")
_NAMES: Final = {"\t": "tab", " ": "space"}
#: Number of bytes at the head of a file that decide.
NUM_BYTES_OF_HEAD: Final = 1 << 20
#: Marks of an encoding at the start of a file; the longer ones first.
_BOMS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class CsvForm:
    """The dialect and header of one CSV file: delimiter, quote, encoding and column names."""

    delimiter: str
    quote: str | None
    encoding: str
    #: Names of the columns, from its header.
    header: tuple[str, ...]
    #: How it is read, where that was found out and is not as commas, double quotes and UTF-8.
    said: str | None
    #: Excel's line before the header, which names the delimiter.
    first_line: str = ""


def find_form(file: Path, dialect: CsvDialect, columns: Sequence[str]) -> CsvForm:
    """Return the dialect (delimiter, quote, encoding) and header of a CSV file. What is not configured is detected: the
    delimiter is the one by which the header names these columns.

    Raises
    ------
    CorpusError
        The file is empty, its header names the columns under several delimiters, or its encoding is not known.
    OSError
        The file cannot be read.
    """
    with open_bytes(file) as source:
        head = source.read(NUM_BYTES_OF_HEAD + 1)
    if not head:
        raise CorpusError(f"{file}: cannot be read as csv (an empty file)")
    encoding = guess_encoding(head, file) if dialect.encoding == "auto" else codecs.lookup(dialect.encoding).name
    text = _head_text(head, encoding)
    named = _SEP.match(text)
    first_line = named[0] if named else ""
    text = text[len(first_line) :]
    quotes = QUOTES if dialect.quote == "auto" else (dialect.given("quote"),)
    given = dialect.given("delimiter") or (named[1] if named else None)
    delimiters = DELIMITERS if given is None else (given,)
    wanted = set(columns)
    for quote in quotes:
        headers = {delimiter: _header(text, delimiter, quote) for delimiter in delimiters if delimiter != quote}
        fits = [delimiter for delimiter, header in headers.items() if wanted <= set(header)]
        if len(fits) > 1:
            shown = " and ".join(_NAMES.get(delimiter, delimiter) for delimiter in fits)
            raise CorpusError(f"{file}: the header names the columns under {shown} as delimiter; set corpus.delimiter")
        if fits:
            said = [f"with {_NAMES.get(fits[0], fits[0])} as delimiter"] if given is None and fits[0] != "," else []
            said += [f"with {quote} as quote"] if dialect.quote == "auto" and quote != '"' else []
            said += [f"as {encoding}"] if dialect.encoding == "auto" and encoding != "utf-8" else []
            return CsvForm(fits[0], quote, encoding, tuple(headers[fits[0]]), ", ".join(said) or None, first_line)
    # No delimiter gives all names. The error for the one that gives most names helps most.
    quote = quotes[0]
    folded = {name.strip().casefold() for name in wanted}
    headers = {delimiter: _header(text, delimiter, quote) for delimiter in delimiters if delimiter != quote}
    best = max(
        headers, key=lambda name: (len(folded & {c.strip().casefold() for c in headers[name]}), len(headers[name]))
    )
    return CsvForm(best, quote, encoding, tuple(headers[best]), None, first_line)


#: Excel's line of the delimiter.
_SEP: Final = re.compile(r'"?sep=([^\w\s"]|\t)"?\r?\n', re.IGNORECASE)
#: Encodings without a mark, by where NULs stand in text of ASCII, of four bytes.
_WIDE: Final = {(1, 2, 3): "utf-32-le", (0, 1, 2): "utf-32-be", (1, 3): "utf-16-le", (0, 2): "utf-16-be"}
#: Signs that stand within no word of a language of Windows-1252, but are letters in other encodings; what only stands
#: before a word of them; a capital behind a small letter; and more letters with marks than follow each other there.
_STRANGE: Final = re.compile(
    "[^\\W\\d_][‚ƒ„†‡ˆ‰‹›•˜¡¢£¤¥¦§¨©¬\xad¯±²³¶¸¹¼½¾¿×÷“”][^\\W\\d_]|[‚ƒ†‡ˆ‰˜¢£¤¥¦¨©¬\xad¯±²³¶¸¹¼½¾×÷][^\\W\\d_]|"
    "[a-zß-öø-ÿšœž][À-ÖØ-ÞŠŒŽŸ]|[À-ÖØ-öø-ÿŠŒŽŸšœžƒ]{3}|"
    "[^\\x00-\\x7f][†‡ˆ‰˜¤¦¨¬¯¸\xad]|[†‡ˆ‰˜¤¦¨¬¯¸\xad][^\\x00-\\x7f]"
)
_MARKED: Final = re.compile("[^\x00-\x7f]")


def guess_encoding(head: bytes, file: Path) -> str:
    """Return a file's encoding, guessed from its first bytes: by its byte-order mark, else UTF-8, else Windows-1252 if
    plausible."""
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding
    most = len(head[:4096]) // 4 * 3 // 4
    nul = tuple(place for place in range(4) if head[place:4096:4].count(0) > most)
    if nul in _WIDE:
        raise CorpusError(f"{file}: looks like {_WIDE[nul]} without a mark; set corpus.encoding to it")
    whole = len(head) <= NUM_BYTES_OF_HEAD
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, whole)
    except UnicodeDecodeError:
        # A few invalid bytes in much valid UTF-8 mean a damaged file, and not another encoding.
        num_marked = sum(1 for sign in head.decode("utf-8", "ignore") if sign >= "\x80")
        num_strange = head.decode("utf-8", "replace").count("\ufffd")
        try:
            head.decode("cp1252")
        except UnicodeDecodeError:
            return "utf-8"  # which names the row
        if num_strange <= 2 * num_marked:
            return "utf-8"
        words = [word for word in head.decode("cp1252").split() if _MARKED.search(word)]
        if 5 * sum(_STRANGE.search(word) is not None for word in words) > len(words):
            raise CorpusError(
                f"{file}: not UTF-8, and not the Windows-1252 of Western Europe either, in which its words would hold "
                "signs; set corpus.encoding to what it is written in, such as cp850, cp1250, cp1251, gbk or shift_jis"
            ) from None
        return "cp1252"
    return "utf-8"


def _head_text(head: bytes, encoding: str) -> str:
    """Return the first bytes of a file as text, without a byte-order mark; undecodable bytes are replaced."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    return decoder.decode(head).removeprefix("\ufeff")


def _header(text: str, delimiter: str, quote: str | None) -> list[str]:
    """Return the column names in the first non-blank line; an empty list if the line is no valid row."""
    lines = io.StringIO(text, newline="")
    if quote:
        reader = csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    try:
        return next((row for row in reader if row), [])
    except csv.Error:
        return []


def read_csv(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of a CSV file as record batches of large strings, whose UTF-8 is not checked yet.

    Raises
    ------
    CorpusError
        A column is missing or stands there twice, or a line is no row; with file and row.
    OSError, pyarrow.ArrowException
        The file cannot be read.
    """
    columns, source = request.columns, request.csv or CsvSource()
    form = find_form(file, source.dialect, source.columns or columns)
    require_columns(form.header, columns, file, partial(_describe_first_line, form))
    check = _make_check(form, source)
    wrong: list[Any] = []

    def stop_at_invalid(row: Any) -> str:
        """Note an invalid row for the error message, and return "error", by which pyarrow stops reading."""
        wrong.append(row)
        return "error"

    read = pa.csv.ReadOptions(block_size=compressed.NUM_BYTES_PER_BLOCK, use_threads=False)
    parse = pa.csv.ParseOptions(
        delimiter=form.delimiter,
        quote_char=form.quote or False,
        newlines_in_values=form.quote is not None,
        invalid_row_handler=stop_at_invalid,
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
            row = 0
            for batch in pa.csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert):
                _refuse_header(batch, file, row)
                yield batch
                row += batch.num_rows
        except pa.ArrowInvalid as error:
            if wrong:  # the header is row 1 of the parser
                where = f" row {wrong[0].number - 1}" if wrong[0].number else ""
                raise CorpusError(
                    f"{file}{where}: expected {wrong[0].expected_columns} columns, got {wrong[0].actual_columns}"
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


def _refuse_header(batch: pa.RecordBatch, file: Path, row: int) -> None:
    """Raise `CorpusError` if a row repeats the header, as in concatenated files; batches of one column are not
    checked."""
    if batch.num_columns < 2:
        return
    import pyarrow.compute as pc

    same, at = None, 0
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        found = pc.is_in(values, pa.array([name, f"\ufeff{name}"], pa.large_string()))
        same = found if same is None else pc.and_(same, found)
        if (at := pc.index(same, True).as_py()) < 0:  # mostly in the first column, before the texts
            return
    raise CorpusError(f"{file} row {row + at + 1}: the header again, where files were joined; take this row out")


def _make_check(form: CsvForm, source: CsvSource) -> CsvCheck:
    """Return the Rust checker of rows for this dialect."""
    return CsvCheck(
        delimiter=ord(form.delimiter),
        quote=ord(form.quote) if form.quote else None,
        max_row=2 * compressed.NUM_BYTES_PER_BLOCK,
        id_columns=[form.header.index(name) for name in dict.fromkeys(source.ids) if name in form.header],
    )


class _CheckedStream:
    """The bytes of a file decoded to UTF-8 without byte order mark, checked while they are read."""

    closed = False

    def __init__(self, data: Bytes, form: CsvForm, check: CsvCheck, file: Path):
        self._data, self._make_check, self._file, self._encoding = data, check, file, form.encoding
        self._describe_first_line = form.first_line.encode()
        self._decoder = None if form.encoding == "utf-8" else codecs.getincrementaldecoder(form.encoding)()
        self._left, self._is_first, self._is_done, self._num_read = b"", True, False, 0

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def seekable(self) -> bool:
        """Return False: the stream can only be read once, forwards."""
        return False

    def close(self) -> None:
        """Do nothing: the caller who opened the file closes it."""

    def read(self, num_bytes: int) -> bytes:
        """Return the next ``num_bytes`` bytes, or fewer at the end."""
        parts, num_held = [self._left], len(self._left)
        while num_held < num_bytes and not self._is_done:
            parts.append(self._read_block(num_bytes - num_held))
            num_held += len(parts[-1])
        held = parts[-1] if num_held == len(parts[-1]) else b"".join(parts)
        self._left = held[num_bytes:]
        return held[:num_bytes]

    def _read_block(self, num_bytes: int) -> bytes:
        """Return the next block, decoded to UTF-8 and checked row by row."""
        block = self._data.read(num_bytes)
        self._is_done = not block
        checked = block if self._decoder is None else self._decode(block)
        if self._is_first:
            checked, self._is_first = checked.removeprefix(codecs.BOM_UTF8), not checked and bool(block)
            checked = checked.removeprefix(self._describe_first_line)
        try:
            self._make_check.feed(checked)
            if self._is_done:
                self._make_check.finish()
        except CorpusError as error:
            raise CorpusError(f"{self._file} {error}") from None
        return checked

    def _decode(self, block: bytes) -> bytes:
        """Return a block re-encoded as UTF-8; `CorpusError` if it is not in the file's encoding."""
        assert self._decoder is not None
        held = self._decoder.getstate()[0]
        try:
            text: str = self._decoder.decode(block, not block)
        except UnicodeDecodeError as error:
            at = self._num_read - len(held) + error.start
            self._make_check.feed((held + block)[: error.start].decode(self._encoding, "ignore").encode())
            raise CorpusError(
                f"{self._file} row {self._make_check.num_rows}: byte {at + 1:,} of the file is not {self._encoding}; "
                "set corpus.encoding to what the file is written in"
            ) from None
        self._num_read += len(block)
        return text.encode("utf-8", "surrogatepass")


def _describe_first_line(form: CsvForm, name: str) -> str:
    """Return text on a file's first line for an error message, without its content, which may be a row of data."""
    said = f"the first line must name it, and names {len(form.header)} other column(s)"
    if any(name.strip().casefold() == other.strip().casefold() for other in form.header):
        said += ", one of which differs in capitals or spaces only"
    return said + ("; set corpus.delimiter to what stands between them" if len(form.header) == 1 else "")
