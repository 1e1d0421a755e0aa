"""Annotated corpora: documents with human-marked identifiers, in the formats of i2b2, MEDDOCAN, BRAT and TAB.

i2b2 2006 (inline XML), i2b2 2014 and MEDDOCAN (XML with standoff tags), BRAT (text and annotation files) and TAB
(JSON). A file is held as a whole. XML is read without a document type: no entity of a file's own is ever expanded and
nothing outside it is opened. Every mark is checked against the text that it quotes: a mark that does not fit is an
error that names file and line, row or number of the span, and never text. A repair needs the proof of that check, and
is counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.schema import DOCUMENTS
from reticent.engine.sources.config import Markup
from reticent.engine.sources.protocol import Request

#: The one line of the i2b2 2006 training file that is not XML, and what it says everywhere else.
BROKEN_TAG: Final = b'<PHI TYPE="DATE">25th of July<PHI TYPE="DOCTOR">'
REPAIRED_TAG: Final = b'<PHI TYPE="DATE">25th of July</PHI>'
#: The classes of the i2b2 2006 smoking task.
SMOKING_STATUS: Final = ("PAST SMOKER", "CURRENT SMOKER", "SMOKER", "NON-SMOKER", "UNKNOWN")


class Mark(NamedTuple):
    """One annotation as in the file: character ranges, label, and quoted text (the ranges joined by a space)."""

    parts: list[tuple[int, int]]
    label: str
    quoted: str | None
    entity_id: str | None = None
    identifier_type: str | None = None
    annotator: str | None = None


@dataclass(slots=True)
class MarkedDocument:
    where: str
    doc_id: str
    text: str
    marks: list[Mark] = field(default_factory=list)
    label: str | None = None


# ----------------------------------------------------------------------------------------------------------------- XML


def _parse_xml(data: bytes, file: Path) -> Iterator[tuple[str, str, dict[str, str], int]]:
    """Yield the events of an XML file: kind ("start", "text", "end"), name or text, attributes, line number."""
    events: list[tuple[str, str, dict[str, str], int]] = []
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.buffer_size = 1 << 20

    def refuse(*_: Any) -> None:
        """Raise `CorpusError` for a document type declaration."""
        raise CorpusError(f"{file} line {parser.CurrentLineNumber}: a document type (DOCTYPE) is not read")

    def line() -> int:
        """Return the current line number of the parser."""
        return parser.CurrentLineNumber

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda name, attributes: events.append(("start", name, attributes, line()))
    parser.CharacterDataHandler = lambda text: events.append(("text", text, {}, line()))
    parser.EndElementHandler = lambda name: events.append(("end", name, {}, line()))
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise CorpusError(f"{file} line {error.lineno}: not XML ({expat.ErrorString(error.code)})") from None
    except (LookupError, ValueError) as error:
        if isinstance(error, CorpusError):
            raise
        raise CorpusError(f"{file}: its XML is in an unknown encoding") from None
    yield from events


def _require_attribute(attributes: dict[str, str], name: str, where: str) -> str:
    """Return the value of an XML attribute, stripped; `CorpusError` if it is missing or blank."""
    if not attributes.get(name, "").strip():
        raise CorpusError(f"{where}: attribute {name} is missing or blank")
    return attributes[name].strip()


def _parse_integer(value: str, what: str) -> int:
    """Return the whole number that a text holds; `CorpusError` for any other text."""
    if not re.fullmatch(r"\s*\d{1,9}\s*", value, re.ASCII):
        raise CorpusError(f"{what}: expected a whole number")
    return int(value)


def read_i2b2_2006(file: Path, data: bytes, annotator: str | None, repaired: Counter[str]) -> Iterator[MarkedDocument]:
    """Yield the annotated documents of an i2b2 2006 file, ``<ROOT><RECORD ID><TEXT>… <PHI TYPE>…</PHI>
    …</TEXT></RECORD>``; the smoking status is the label."""
    data = _close_broken_tags(data, repaired)
    document: MarkedDocument | None = None
    path: list[str] = []
    text: list[str] | None = None
    num_records = num_characters = begin = 0
    label, has_status = "", False
    for kind, value, attributes, line in _parse_xml(data, file):
        where = f"{file} line {line}"
        if kind == "start":
            inside = path[-1] if path else ""
            if inside in ("TEXT", "PHI") and (inside, value) != ("TEXT", "PHI"):
                raise CorpusError(f"{where}: an element inside a {inside}")
            if value == "RECORD":
                if document is not None:
                    raise CorpusError(f"{where}: a RECORD inside a RECORD")
                document, text, num_characters = (
                    MarkedDocument(where, _require_attribute(attributes, "ID", where), ""),
                    None,
                    0,
                )
                has_status = False
            elif value == "TEXT":
                if document is None or inside != "RECORD" or text is not None:
                    raise CorpusError(f"{where}: a TEXT that is not the only one of its RECORD")
                text = []
            elif value == "PHI":
                if inside != "TEXT":
                    raise CorpusError(f"{where}: a PHI outside of a TEXT")
                begin, label = num_characters, _require_attribute(attributes, "TYPE", where)
            elif value == "SMOKING":
                if document is None or inside != "RECORD" or has_status:
                    raise CorpusError(f"{where}: a SMOKING that is not the only one of its RECORD")
                document.label, has_status = _smoking_status(attributes, where), True
            path.append(value)
        elif kind == "text" and path[-1] in ("TEXT", "PHI") and text is not None:
            text.append(value)
            num_characters += len(value)
        elif kind == "end":
            path.pop()
            if value == "PHI" and document is not None:
                if num_characters == begin:  # marks nothing
                    repaired["empty PHI tags left out"] += 1
                else:
                    document.marks.append(Mark([(begin, num_characters)], label, None))
            elif value == "RECORD" and document is not None:
                if text is None:
                    raise CorpusError(f"{document.where}: a RECORD without a TEXT")
                document.text = "".join(text)
                yield document
                document = None
                num_records += 1
    if not num_records:
        raise CorpusError(f"{file}: no RECORD, so not i2b2 2006")


def _close_broken_tags(data: bytes, repaired: Counter[str]) -> bytes:
    """Return the file's content with the known broken PHI tag of i2b2 2006 corrected, and count the repairs."""
    if num_broken := data.count(BROKEN_TAG):
        data = data.replace(BROKEN_TAG, REPAIRED_TAG)
        repaired["PHI tags closed by an opening tag"] += num_broken
    return data


def _smoking_status(attributes: dict[str, str], where: str) -> str | None:
    """Return the smoking class of an i2b2 2006 record, from an XML element's attributes; None if it is not
    annotated."""
    status = attributes.get("STATUS", "").strip()
    if status and status not in SMOKING_STATUS:
        raise CorpusError(f"{where}: attribute STATUS of a SMOKING is none of {', '.join(SMOKING_STATUS)}")
    return status or None


def read_i2b2_2014(file: Path, data: bytes, annotator: str | None, repaired: Counter[str]) -> Iterator[MarkedDocument]:
    """Yield the annotated document of an i2b2 2014 or MEDDOCAN file: ``<TEXT>``, and ``<TAGS>`` with offsets.

    The label is ``TYPE``, whatever the element: some names stand in stray ``PHI`` elements.
    """
    document = MarkedDocument(str(file), file.stem, "")
    path: list[str] = []
    seen: list[str] = []
    text: list[str] = []
    for kind, value, attributes, line in _parse_xml(data, file):
        if kind == "start":
            if len(path) == 1:
                seen.append(value)
            elif path[1:] == ["TAGS"]:
                where = f"{file} line {line} span {len(document.marks) + 1}"
                start, end = (
                    _parse_integer(_require_attribute(attributes, name, where), f"{where} {name}")
                    for name in ("start", "end")
                )
                document.marks.append(
                    Mark([(start, end)], _require_attribute(attributes, "TYPE", where), attributes.get("text"))
                )
            elif len(path) > 1:
                raise CorpusError(f"{file} line {line}: an element inside {path[1]} that is no tag")
            path.append(value)
        elif kind == "text" and path[1:] == ["TEXT"]:
            text.append(value)
        elif kind == "end":
            path.pop()
    if seen.count("TEXT") != 1 or seen.count("TAGS") != 1:
        raise CorpusError(f"{file}: expected one TEXT and one TAGS, got {seen.count('TEXT')} and {seen.count('TAGS')}")
    document.text = "".join(text)
    yield document


# ---------------------------------------------------------------------------------------------------------------- BRAT


def read_brat(file: Path, data: bytes, annotator: str | None, repaired: Counter[str]) -> Iterator[MarkedDocument]:
    """Yield the annotated document of a BRAT pair ``a.txt`` and ``a.ann``; only text-bound annotations (T) are used."""
    other = file.with_suffix(".txt" if file.suffix.lower() == ".ann" else ".ann")
    if not other.is_file():
        raise CorpusError(f"{file}: {other.name} does not stand beside it")
    if file.suffix.lower() == ".ann":
        return  # read with its text
    document = MarkedDocument(str(other), file.stem, _decode(data, file))
    try:
        lines = _decode(other.read_bytes(), other).split("\n")
    except OSError as error:
        raise CorpusError(f"{other}: cannot be read ({error.strerror})") from None
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line.strip() or line[0] in "REAMN#*":
            continue
        found = re.fullmatch(r"(T\S+)\t(\S+) (\d{1,9} \d{1,9}(?:;\d{1,9} \d{1,9})*)(?:\t(.*))?", line, re.ASCII)
        if found is None:
            raise CorpusError(f"{other} line {number}: not an annotation of BRAT")
        pairs = [part.split() for part in found[3].split(";")]
        parts = [(int(start), int(end)) for start, end in pairs]
        document.marks.append(Mark(parts, found[2], found[4], found[1]))
    yield document


def _decode(data: bytes, file: Path) -> str:
    """Return bytes decoded as UTF-8; `CorpusError` with the line if they are invalid."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CorpusError(f"{file} line {line}: not valid UTF-8") from None


# ----------------------------------------------------------------------------------------------------------------- TAB


def read_tab(file: Path, data: bytes, annotator: str | None, repaired: Counter[str]) -> Iterator[MarkedDocument]:
    """Yield the annotated court cases of a file of the Text Anonymization Benchmark (TAB): an array of JSON objects, or
    one a line, with ``annotations`` by annotator or with ``entities``."""
    text = _decode(data, file)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    whole = file.suffix.lower() == ".json"
    number = 0
    for first, value in [(1, text)] if whole else lines:
        try:
            loaded = json.loads(value)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
            line = first + error.lineno - 1 if isinstance(error, json.JSONDecodeError) else first
            raise CorpusError(f"{file} line {line}: not valid JSON") from None
        for record in loaded if isinstance(loaded, list) else [loaded]:
            number += 1
            yield _parse_tab_record(record, f"{file} row {number}", annotator)


def _parse_tab_record(record: Any, where: str, annotator: str | None) -> MarkedDocument:
    """Return the document in a JSON record of TAB, with the spans marked by one annotator (``annotator``) or by all."""
    source = record
    if isinstance(record, dict) and "doc_id" not in record:
        source = _require_field(_require_field(record, "metadata", dict, where), "provenance", dict, where)
    document = MarkedDocument(
        where, _require_field(source, "doc_id", str, where), _require_field(record, "text", str, where)
    )
    if "annotations" in record:
        annotations = _require_field(record, "annotations", dict, where)
        groups = [
            (name, _require_field(_require_field(annotations, name, dict, where), "entity_mentions", list, where))
            for name in annotations
        ]
    else:
        groups = [(source.get("annotator"), _require_field(record, "entities", list, where))]
    if annotator is not None:
        groups = [(name, entities) for name, entities in groups if name == annotator]
        if not groups:
            raise CorpusError(f"{where}: not marked by the annotator that corpus.annotator names")
    for name, entities in groups:
        for entity in entities:
            at = f"{where} span {len(document.marks) + 1}"
            start, end = (_require_field(entity, key, int, at) for key in ("start_offset", "end_offset"))
            document.marks.append(
                Mark(
                    [(start, end)],
                    _require_field(entity, "entity_type", str, at),
                    _require_field(entity, "span_text", str, at),
                    _require_field(entity, "entity_id", str, at),
                    _require_field(entity, "identifier_type", str, at),
                    name,
                )
            )
    return document


def _require_field(holder: Any, name: str, kind: type, where: str) -> Any:
    """Return a field of a JSON object; `CorpusError` if it is missing or has another type."""
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CorpusError(f"{where}: field {name} is missing or not {kind.__name__}")
    return value


# ----------------------------------------------------------------------------------------------------------- documents

UNITS: Final = ("characters", "bytes", "utf-16")
_SPACES: Final = str.maketrans("\t\n\r", "   ")  # what an XML attribute makes of them
_FIELDS: Final = [DOCUMENTS.field(name) for name in ("doc_id", "individual_id", "text", "label", "spans", "mentions")]


class _Parser(Protocol):
    """Function that yields the annotated documents of a file; ``annotator`` selects one's marks, None all."""

    def __call__(
        self, file: Path, data: bytes, annotator: str | None, repaired: Counter[str]
    ) -> Iterator[MarkedDocument]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _MarkedReader:
    """Reader of one annotated format; see `marked_reader`."""

    format: str
    parse: _Parser
    individual: str
    counts_line_ends: bool

    def __call__(self, file: Path, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield batches of a file's columns: doc_id, individual_id, text, label, spans, mentions.

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
            rows.append(self._make_row(document, markup, request.repaired))
            if len(rows) == request.batch_rows:
                yield _make_batch(rows, request.columns, file)
                rows = []
        if rows:
            yield _make_batch(rows, request.columns, file)

    def _make_row(self, document: MarkedDocument, markup: Markup, repaired: Counter[str]) -> tuple[Any, ...]:
        """Return an annotated document as a row: id, individual, text, label, spans and mentions. Annotations are
        converted to character ranges and checked."""
        individual = re.fullmatch(markup.individual or self.individual, document.doc_id)
        if individual is None:
            raise CorpusError(
                f"{document.where}: its id names no individual; corpus.individual is a regular expression of a whole "
                "document id, its one group the individual"
            )
        mentions, spans = [], set()
        places = _character_ranges(document, markup.offsets, self.counts_line_ends, repaired)
        for mark, parts in zip(document.marks, places, strict=True):
            for start, end in parts:
                mentions.append((start, end, mark.label, mark.entity_id, mark.identifier_type, mark.annotator))
                if mark.identifier_type is None or mark.identifier_type in markup.identifiers:
                    spans.add((start, end, mark.label))
        return document.doc_id, individual[1], document.text, document.label, sorted(spans), mentions


def marked_reader(
    format: str, parse: _Parser, *, individual: str = r"(?s)(.*)", counts_line_ends: bool = False
) -> Callable[[Path, Request], Iterator[pa.RecordBatch]]:
    """Return a function that reads files of an annotated format as record batches; ``parse`` parses one file, and
    ``individual`` is the default regular expression for the individual in a document id.

    Parameters
    ----------
    parse : callable
        Parses one file of the format: one of the parsers in `reticent.engine.sources.markup`.
    individual : str
        Default of `Markup.individual`, a regular expression whose group is the individual id; by default every document
            is an individual of its own.
    counts_line_ends : bool
        Whether offsets count a line end (CR LF) as two characters, as in the file before XML parsing made it one.
    """
    return _MarkedReader(format=format, parse=parse, individual=individual, counts_line_ends=counts_line_ends)


def _make_batch(rows: list[tuple[Any, ...]], columns: Sequence[str], file: Path) -> pa.RecordBatch:
    """Return rows of annotated documents as a record batch with these columns."""
    try:
        arrays = [pa.array(list(values), f.type) for values, f in zip(zip(*rows, strict=True), _FIELDS, strict=True)]
    except UnicodeEncodeError:  # its message quotes the text
        raise CorpusError(f"{file}: a text or an id holds half a surrogate pair, which is not Unicode") from None
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(_FIELDS)).select(list(columns))


# ----------------------------------------------------------------------------------------------------------- alignment


def _character_ranges(
    document: MarkedDocument, unit: str, crlf: bool, repaired: Counter[str]
) -> list[list[tuple[int, int]]]:
    """Return for each annotation the character ranges (start, end) of its parts, converted from offsets in ``unit``.
    Raise `CorpusError` if they do not fit the text, or differ from what the annotation quotes.

    With ``crlf``, offsets that counted the line ends of a file before XML made one character of each are repaired, if
    as they stand not all marks fit and then all do.
    """
    places, wrong = _convert_offsets(document, unit, False)
    if wrong is None:
        return places
    if crlf:
        moved, still_wrong = _convert_offsets(document, unit, True)
        if still_wrong is None:
            repaired["documents whose offsets counted CR LF as two"] += 1
            return moved
    for other in UNITS:
        if other != unit and _convert_offsets(document, other, False)[1] is None:
            raise CorpusError(
                f"{document.where}: offsets look like {other}, not {unit}, as so all {len(document.marks)} spans fit; "
                f'set corpus.offsets = "{other}"'
            )
    number, start, end, what = wrong
    raise CorpusError(f"{document.where}: span {number}, {start}..{end} in {unit}, {what}")


def _convert_offsets(
    document: MarkedDocument, unit: str, crlf: bool
) -> tuple[list[list[tuple[int, int]]], tuple[int, int, int, str] | None]:
    """Convert the offsets of all annotations from ``unit`` to characters. Return their character ranges and None; or,
    if an annotation does not match the text, an empty list and (number of the annotation, start, end, what is
    wrong)."""
    text = document.text
    bounds = _offsets_in_unit(text, unit, crlf)
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


def _offsets_in_unit(text: str, unit: str, crlf: bool) -> np.ndarray:
    """Return the offset of every character, and of the end, counted in this unit (characters, bytes or UTF-16), int64;
    with ``crlf`` a line end counts as two."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    widths = np.ones(len(points), dtype=np.int64)
    if unit == "bytes":
        widths += (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    elif unit == "utf-16":
        widths += points >= 0x10000
    if crlf:
        widths += points == ord("\n")
    return np.concatenate([[0], np.cumsum(widths)])
