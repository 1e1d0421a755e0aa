"""Dialects of CSV: delimiter, quote and encoding, given or derived from the head of a file.

The dialect is a function of the first bytes of the file and the names of the columns. The only evidence is a header
that names every mapped column under exactly one delimiter.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reticent.core.errors import CorpusError
from reticent.engine.sources.compressed import open_bytes

if TYPE_CHECKING:
    from reticent.engine.sources.config import CsvDialect

__all__ = ["CsvForm", "find_form"]

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
    """The way in which one file is read."""

    delimiter: str
    quote: str | None
    encoding: str
    #: Names of the columns, from its header.
    header: tuple[str, ...]
    #: How it is read, where that was found out and is not as commas, double quotes and UTF-8.
    said: str | None


def find_form(file: Path, dialect: CsvDialect, columns: Sequence[str]) -> CsvForm:
    """Return the way in which a file is read whose header names these columns.

    Raises
    ------
    CorpusError
        The file is empty, or its header names the columns under several delimiters.
    OSError
        The file cannot be read.
    """
    with open_bytes(file) as source:
        head = source.read(NUM_BYTES_OF_HEAD + 1)
    if not head:
        raise CorpusError(f"{file}: cannot be read as csv (an empty file)")
    encoding = _encoding(head) if dialect.encoding == "auto" else codecs.lookup(dialect.encoding).name
    text = _head_text(head, encoding)
    quotes = QUOTES if dialect.quote == "auto" else (dialect.given("quote"),)
    given = dialect.given("delimiter")
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
            return CsvForm(fits[0], quote, encoding, tuple(headers[fits[0]]), ", ".join(said) or None)
    # No delimiter gives all names. The error for the one that gives most names helps most.
    quote = quotes[0]
    folded = {name.strip().casefold() for name in wanted}
    headers = {delimiter: _header(text, delimiter, quote) for delimiter in delimiters if delimiter != quote}
    best = max(
        headers, key=lambda name: (len(folded & {c.strip().casefold() for c in headers[name]}), len(headers[name]))
    )
    return CsvForm(best, quote, encoding, tuple(headers[best]), None)


def _encoding(head: bytes) -> str:
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding
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
        return "cp1252" if num_strange > 2 * num_marked else "utf-8"
    return "utf-8"


def _head_text(head: bytes, encoding: str) -> str:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    return decoder.decode(head).removeprefix("\ufeff")


def _header(text: str, delimiter: str, quote: str | None) -> list[str]:
    """Return the names in the first line that is not blank; empty where that line is no row."""
    lines = io.StringIO(text, newline="")
    if quote:
        reader = csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    try:
        return next((row for row in reader if row), [])
    except csv.Error:
        return []
