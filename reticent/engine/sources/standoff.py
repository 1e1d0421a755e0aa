"""Marked-up corpora: documents with the identifiers that humans marked in them, read from the formats of the field.

i2b2 2006 (inline XML), i2b2 2014 and MEDDOCAN (XML with standoff tags), BRAT (text and annotation files) and TAB
(JSON). A file is held as a whole. Every mark is checked against the text that it quotes: a mark that does not fit is an
error that names file and span and never text. A repair needs the proof of that check, and is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.schema import DOCUMENTS
from reticent.engine.sources.config import Markup
from reticent.engine.sources.markup import MarkedDocument
from reticent.engine.sources.source import Request

__all__ = ["marked_reader"]

UNITS: Final = ("characters", "bytes", "utf-16")
_SPACES: Final = str.maketrans("\t\n\r", "   ")  # what an XML attribute makes of them
_FIELDS: Final = [DOCUMENTS.field(name) for name in ("doc_id", "individual_id", "text", "label", "spans", "mentions")]


class _Parser(Protocol):
    """Bytes of a file -> its documents and marks; ``annotator``: the one whose marks are taken, None: all."""

    def __call__(
        self, file: Path, data: bytes, annotator: str | None, repaired: Counter[str]
    ) -> Iterator[MarkedDocument]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _MarkedReader:
    """The reader of one marked-up format; see `marked_reader`."""

    format: str
    parse: _Parser
    individual: str
    counts_line_ends: bool

    def __call__(self, file: Path, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield these columns of a file: doc_id, individual_id, text, label, spans, mentions.

        ``spans`` are ordered and stand once each; ``mentions`` are all marks with their other attributes.
        Parts of a discontinuous mark are mentions of one entity. Corrections are added to ``request.repaired``.

        Raises
        ------
        CorpusError
            The file is not of this format, or a span does not fit its text; with file and line, or number of the span.
        """
        try:
            data = file.read_bytes()
        except OSError as error:
            raise CorpusError(f"{file}: cannot be read ({error.strerror})") from None
        names = [f.name for f in _FIELDS]
        for name in request.columns:
            if name not in names:
                raise CorpusError(f"{file}: column {name} is missing; format {self.format} has {', '.join(names)}")
        markup = request.markup or Markup()
        rows: list[tuple[Any, ...]] = []
        for document in self.parse(file, data, markup.annotator, request.repaired):
            rows.append(self._row(document, markup, request.repaired))
            if len(rows) == request.batch_rows:
                yield _batch(rows, request.columns, file)
                rows = []
        if rows:
            yield _batch(rows, request.columns, file)

    def _row(self, document: MarkedDocument, markup: Markup, repaired: Counter[str]) -> tuple[Any, ...]:
        individual = re.fullmatch(markup.individual or self.individual, document.doc_id)
        if individual is None:
            raise CorpusError(
                f"{document.where}: its id names no individual; corpus.individual is a regular expression of a whole "
                "document id, its one group the individual"
            )
        mentions, spans = [], set()
        places = _places(document, markup.offsets, self.counts_line_ends, repaired)
        for mark, parts in zip(document.marks, places, strict=True):
            for start, end in parts:
                mentions.append((start, end, mark.label, mark.entity_id, mark.identifier_type, mark.annotator))
                if mark.identifier_type is None or mark.identifier_type in markup.identifiers:
                    spans.add((start, end, mark.label))
        return document.doc_id, individual[1], document.text, document.label, sorted(spans), mentions


def marked_reader(
    format: str, parse: _Parser, *, individual: str = r"(?s)(.*)", counts_line_ends: bool = False
) -> Callable[[Path, Request], Iterator[pa.RecordBatch]]:
    """Return the reader of a marked-up format, for its row of the table of formats.

    Parameters
    ----------
    parse : callable
        One of `reticent.engine.sources.markup`.
    individual : str
        `Markup.individual` where it is not given; by default every document is an individual of its own.
    counts_line_ends : bool
        Offsets of some files count the line ends of a file before XML made one character of each.
    """
    return _MarkedReader(format=format, parse=parse, individual=individual, counts_line_ends=counts_line_ends)


def _batch(rows: list[tuple[Any, ...]], columns: Sequence[str], file: Path) -> pa.RecordBatch:
    try:
        arrays = [pa.array(list(values), f.type) for values, f in zip(zip(*rows, strict=True), _FIELDS, strict=True)]
    except UnicodeEncodeError:  # its message quotes the text
        raise CorpusError(f"{file}: a text or an id holds half a surrogate pair, which is not Unicode") from None
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(_FIELDS)).select(list(columns))


# ----------------------------------------------------------------------------------------------------------- alignment


def _places(document: MarkedDocument, unit: str, crlf: bool, repaired: Counter[str]) -> list[list[tuple[int, int]]]:
    """Parts of every mark in characters, each checked against the quotation of its mark.

    With ``crlf``, offsets that counted the line ends of a file before XML made one character of each are repaired, if
    as they stand not all marks fit and then all do.
    """
    places, wrong = _fit(document, unit, False)
    if wrong is None:
        return places
    if crlf:
        moved, still_wrong = _fit(document, unit, True)
        if still_wrong is None:
            repaired["documents whose offsets counted CR LF as two"] += 1
            return moved
    for other in UNITS:
        if other != unit and _fit(document, other, False)[1] is None:
            raise CorpusError(
                f"{document.where}: offsets look like {other}, not {unit}, as so all {len(document.marks)} spans fit; "
                f'set corpus.offsets = "{other}"'
            )
    number, start, end, what = wrong
    raise CorpusError(f"{document.where}: span {number}, {start}..{end} in {unit}, {what}")


def _fit(
    document: MarkedDocument, unit: str, crlf: bool
) -> tuple[list[list[tuple[int, int]]], tuple[int, int, int, str] | None]:
    """Parts in characters, and (number, start, end, what is wrong) of the first mark that does not fit."""
    text = document.text
    bounds = _bounds(text, unit, crlf)
    last = int(bounds[-1])
    parts = [[min(max(offset, -1), last + 1) for offset in part] for mark in document.marks for part in mark.parts]
    offsets = np.array(parts, dtype=np.int64).reshape(-1, 2)
    at = np.searchsorted(bounds, offsets)
    exact = bounds[np.minimum(at, len(text))] == offsets
    looked_up = iter(zip(at.tolist(), exact.all(1).tolist(), strict=True))
    places: list[list[tuple[int, int]]] = []
    for number, mark in enumerate(document.marks, 1):
        found = []
        for start, end in mark.parts:
            (first, after), whole = next(looked_up)
            if start < 0 or end <= start or end > last:
                return [], (number, start, end, f"does not fit its text of {last}")
            if not whole:
                return [], (number, start, end, "begins or ends inside a character")
            found.append((first, after))
        if mark.quoted is None:
            if crlf:
                return [], (number, *mark.parts[0], "quotes no text that proves where it stands")
        elif " ".join(text[a:b] for a, b in found).translate(_SPACES) != mark.quoted.translate(_SPACES):
            return [], (number, *mark.parts[0], "is not the text that its mark quotes")
        places.append(found)
    return places, None


def _bounds(text: str, unit: str, crlf: bool) -> np.ndarray:
    """Offset of every character and of the end, in this unit."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    widths = np.ones(len(points), dtype=np.int64)
    if unit == "bytes":
        widths += (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    elif unit == "utf-16":
        widths += points >= 0x10000
    if crlf:
        widths += points == ord("\n")
    return np.concatenate([[0], np.cumsum(widths)])
