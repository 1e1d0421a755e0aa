"""HL7 v2: the texts of MDM and ORU messages, one or many in a file.

The text of a document is its OBX segments of type TX, FT, ST (a line each, repetitions too) and ED (an attachment). A
document is what stands behind a TXA, or behind an OBR. The individual is the first identifier of PID-3. A line that
begins like no segment of the standard goes on with the OBX before it; where its text cannot be told from other fields
the document is not read. Where a message says that two numbers are of one patient (ADT A40 and its like), they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from reticent import _rust
from reticent.ext.exports.contents import UnreadableError, base64_bytes, kind_of_type, text_of
from reticent.ext.exports.found import FoundDocument, Unread

#: MSH-18 -> encoding; where it names none, UTF-8 is tried, then Windows-1252.
_CHARSETS: Final = {
    "ASCII": "ascii",
    "UNICODE": "utf-8",
    "UNICODE UTF-8": "utf-8",
    "UNICODE UTF-16": "utf-16",
    "UTF-8": "utf-8",
    **{f"8859/{n}": f"iso8859-{n}" for n in (*range(1, 12), 13, 14, 15)},
}
#: Events that give a patient another number: merges, and changes of a number. Others with MRG move a visit, say.
_MERGES: Final = ("A18", "A30", "A34", "A36", "A39", "A40", "A46", "A47")
_ENDS: Final = "\r\n\x0b\x1c"
_HEADER: Final = re.compile(rb"[^\r\n]*")
#: What no line of a text begins with: the sign between fields, four or five others, and it again, or those of the
#: standard, of which the last may be lacking.
_START: Final = re.compile(rb"MSH([^\w\s])(?!(.)\2)(?:\^~|(?:(?!\1)[^\w\s]){4,5}\1)")
_TEXTS: Final = ("TX", "FT", "ST")
#: Types of OBX-2 that hold no text of a document.
_VALUES: Final = frozenset(
    str.split(
        "AD CE CF CK CN CNE CP CQ CWE CX DLN DR DT DTM DTN EI FN GTS HD ID IS JCC MA MO NA NM OG PL PN PPN PT RI "
        "RPT SI SN SNM SPD SRT TM TN TQ TS VID VR XAD XCN XON XPN XTN"
    )
)
_TYPES: Final = {"TEXT": "text/plain", "HTML": "text/html", "PDF": "application/pdf", "RTF": "text/rtf"}


class _Signs(NamedTuple):
    """The signs of a message: between fields, components, repetitions; of escapes; between subcomponents."""

    field: str
    component: str
    repetition: str
    escape: str
    subcomponent: str


@lru_cache
def _separators_of(header: str) -> _Signs:
    """Return the separators of an HL7 message, given its first nine characters (MSH-1 and MSH-2)."""
    given = header[4:].partition(header[3])[0]
    return _Signs(header[3], *(given[n] if n < len(given) else sign for n, sign in enumerate("^~\\&")))


@dataclass(slots=True)
class _Document:
    """The document that is being read."""

    number: str | None = None
    date: str | None = None
    type: str | None = None
    is_of_txa: bool = False
    texts: list[str] = field(default_factory=list)
    fault: str | None = None
    #: Whether a text of it stands at an address.
    is_elsewhere: bool = False

    @property
    def has_content(self) -> bool:
        """Whether the document has a text, an address of a text, or a reason why it cannot be read."""
        return bool(self.texts or self.fault or self.is_elsewhere)


def read_messages(
    data: bytes, place: str, merged: Mapping[str, str] = MappingProxyType({})
) -> Iterator[FoundDocument | Unread]:
    """Yield the documents in a file of HL7 messages, or an `Unread` with ``place`` and reason for each that cannot be
    read. A message without text yields nothing; ``merged`` maps old to current patient numbers.

    ``merged`` has the number that an individual is known by for each of their other numbers (`merged_numbers`).
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    starts = [*_message_starts(data)]
    if not starts:
        yield Unread(place, "no message of HL7 v2")
        return
    # Of a file that lost its beginning a part of a message stands there.
    before = data[: starts[0]].decode("latin-1")
    if any(line.strip() and line[:3] not in ("FHS", "BHS") for line in re.split(f"[{_ENDS}]", before)):
        yield Unread(place, "lines before its first message")
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(data)], strict=True), 1):
        where = place if len(starts) == 1 else f"{place} message {number}"
        try:
            yield from _read_message(_decoded(data[start:end]), where, merged)
        except UnreadableError as error:
            yield Unread(where, str(error))


def merges_of(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield (old, new) patient number for each merge or change of number in a file of HL7 messages. The old number is
    in MRG-1, the new one in PID-3."""
    starts = [*_message_starts(data)] if b"MRG" in data else []
    for start, end in zip(starts, [*starts[1:], len(data)], strict=False):
        if data.find(b"MRG", start, end) < 0:
            continue
        try:
            signs, segments = _split_segments(_decoded(data[start:end]))
        except UnreadableError:  # it is listed when its texts are read
            continue
        individual = None
        event = segments[0][0][8].split(signs.component)
        for segment, _ in segments if len(event) > 1 and event[1] in _MERGES else ():
            if segment[0] == "PID":
                individual = _patient_number(segment[3], signs)
            elif segment[0] == "MRG" and individual and (prior := _patient_number(segment[1], signs)):
                yield prior, individual


def merged_numbers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a dict from each old patient number to the patient's final number, given (old, new) pairs in order; chains
    of merges are followed.

    >>> merged_numbers([("1", "2"), ("2", "3"), ("3", "1")])
    {'1': '3', '2': '3'}
    """
    later: dict[str, str] = {}

    def last(number: str) -> str:
        """Return the number at the end of the chain of merges that begins with ``number``."""
        while number in later:
            number = later[number]
        return number

    for prior, number in pairs:
        if (old := last(prior)) != (new := last(number)):
            later[old] = new
    return {number: last(number) for number in later}


def _message_starts(data: bytes) -> Iterator[int]:
    """Yield the byte offset of each HL7 message: of each "MSH" at the beginning of a line, followed by its signs."""
    at = data.find(b"MSH")
    while at >= 0:
        if data[max(at - 1, 0) : at] in b"\r\n\x0b\x1c" and _START.match(data, at):
            yield at
        at = data.find(b"MSH", at + 3)


def _decoded(data: bytes) -> str:
    """Decode a message by the character set in MSH-18; without one, as UTF-8 or Windows-1252."""
    header = _HEADER.match(data)[0].decode("latin-1")  # type: ignore[index]
    fields = header.split(header[3])
    named = fields[17].partition(_separators_of(header[:9]).repetition)[0].strip().upper() if len(fields) > 17 else ""
    if named and named not in _CHARSETS:
        raise UnreadableError("its character set (MSH-18) is unknown")
    # Where it names Latin-1, Windows-1252 is often meant, which is the same but for signs that Latin-1 lacks.
    encodings = ["cp1252", "iso8859-1"] if named == "8859/1" else [_CHARSETS[named]] if named else ["utf-8", "cp1252"]
    for encoding in encodings:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise UnreadableError(
        "it is not in the character set that is named" if named else "in no encoding that can be told"
    )


def _split_segments(message: str) -> tuple[_Signs, list[tuple[list[str], bool]]]:
    """Return the separators of an HL7 message, and its segments as (fields, whether a line break makes these
    ambiguous); see `_rust.hl7_segments`."""
    signs = _separators_of(message[:9])
    if any(sign.isalnum() or sign.isspace() for sign in (signs.component, signs.repetition, signs.escape)):
        raise UnreadableError("its signs (MSH-2) are damaged")
    segments = _rust.hl7_segments(message, signs)
    if isinstance(segments, str):
        raise UnreadableError(
            f"a line feed and {segments} within a text, where segments end with carriage returns: whether this is text "
            "or a segment cannot be told; export it with one kind of line ends"
        )
    if not segments or segments[0][0][0] != "MSH":
        raise UnreadableError("it is not in the character set that is named")
    if any(segment[0] == "MSH" for segment, _ in segments[1:]):
        raise UnreadableError("a line that begins like a message and has no signs of one (MSH-2)")
    return signs, segments


def _read_message(message: str, place: str, merged: Mapping[str, str]) -> Iterator[FoundDocument | Unread]:
    """Yield the documents in one decoded HL7 message, or an `Unread` with ``place`` and reason for each that cannot be
    read; ``merged`` maps old to current patient numbers.
    """
    signs, segments = _split_segments(message)
    control = segments[0][0][9]  # the sign behind MSH is its first field
    individual: str | None = None
    document: _Document | None = None
    count = 0
    for segment, is_broken in [*segments, (["OBR", *[""] * 7], False)]:
        name = segment[0]
        if name == "OBX":
            document = document or _Document()
            _add_observation(document, segment, is_broken, signs)
        elif name == "ADD" and document is not None:
            document.fault = "a segment of it goes on in another (ADD), which is not read"
        elif name in ("PID", "TXA", "OBR"):
            if document is not None and document.has_content:
                count += 1
                yield _finish_document(document, individual, control, count, place)
            elif document is not None and document.is_of_txa and name == "OBR":
                continue  # an OBR between a TXA and its text
            if name == "PID":
                individual, document = _patient_number(segment[3], signs), None
                individual = merged.get(individual, individual) if individual else None
            else:
                document = _begin_document(segment, signs)


def _begin_document(segment: list[str], separators: _Signs) -> _Document:
    """Return a new document with number, date and type from the TXA or OBR segment that begins it; its texts follow in
    OBX segments."""
    if segment[0] == "TXA":
        return _Document(
            _first_component(segment[12], separators),
            _valid_date(segment[4]),
            _first_component(segment[2], separators),
            is_of_txa=True,
        )
    number = _first_component(segment[3], separators) or _first_component(segment[2], separators)
    code = [_rust.hl7_unescape(part, separators) for part in segment[4].split(separators.component)]
    return _Document(number, _valid_date(segment[7]), next(filter(None, [*code[1:2], code[0]]), None))


def _finish_document(
    document: _Document, individual: str | None, message_id: str, position: int, place: str
) -> FoundDocument | Unread:
    """Return the document as a `FoundDocument`, or an `Unread` with the reason if it has a fault, no patient, no text
    or no number. Without a number of its own it is numbered ``message_id/position``."""
    fault = document.fault or (None if individual else "no patient (PID-3)")
    text = "\n".join(document.texts)
    if fault is None and not text.strip():
        fault = "its text stands at an address, which is never fetched" if document.is_elsewhere else "no text in it"
    if fault is not None or individual is None:
        return Unread(place, fault or "")
    number = document.number or (f"{message_id}/{position}" if message_id else None)
    if number is None:
        return Unread(place, "neither a number of the document (TXA-12, OBR-3) nor of the message (MSH-10)")
    return FoundDocument(number, individual, text, document.date, document.type)


def _first_component(field_text: str, separators: _Signs) -> str | None:
    """Return the first component of a field's first repetition, unescaped; None if it is empty or the HL7 null
    ``""``."""
    found = _rust.hl7_unescape(
        field_text.partition(separators.repetition)[0].partition(separators.component)[0], separators
    ).strip()
    return found if found and found != '""' else None


def _patient_number(field_text: str, separators: _Signs) -> str | None:
    """Return the first non-empty patient identifier in the field PID-3 or MRG-1; None if there is none or a line break
    is inside it."""
    if "\n" in field_text or "\r" in field_text:  # a line that was cut, or another one behind it
        return None
    return next(
        (found for each in field_text.split(separators.repetition) if (found := _first_component(each, separators))),
        None,
    )


def _valid_date(value: str) -> str | None:
    """Return the text unchanged if it is a valid HL7 date or time; None otherwise."""
    return value if re.fullmatch(r"\d{4,14}(?:\.\d+)?(?:[+-]\d{4})?", value) else None


def _add_observation(document: _Document, segment: list[str], is_broken: bool, separators: _Signs) -> None:
    """Add the values of an OBX segment to a document: texts and attachments. Mark the document as faulty if a value
    cannot be read."""
    _, kind, status, *values = segment
    if status.strip() in ("D", "d", "W", "w"):  # deleted, or of the wrong patient
        return
    if is_broken:
        document.fault = "a break of a line within OBX: its text cannot be told from its other fields"
    elif kind in _TEXTS:
        document.texts += values
    elif kind == "ED":
        for value in values:
            try:
                parts = value.split(separators.component)
                document.texts.append(_attachment_text([_rust.hl7_unescape(part, separators) for part in parts]))
            except UnreadableError as error:
                document.fault = str(error)
    elif kind == "RP":
        document.is_elsewhere = True
    elif kind not in _VALUES and any(value.strip() not in ("", '""') for value in values):
        document.fault = "a value of no type of HL7 (OBX-2)"


def _attachment_text(components: list[str]) -> str:
    """Return the text of an HL7 attachment (type ED), given its components: source, type, subtype, encoding, data."""
    _, kind, subtype, encoding, data, *more = components + [""] * 5
    if any(more):
        raise UnreadableError("signs of components within its data, or several attachments in one OBX")
    of_type = kind_of_type(f"{kind}/{subtype}") or kind_of_type(_TYPES.get(subtype.upper(), ""))
    if of_type is None:
        raise UnreadableError("a type of attachment that is not read")
    try:
        content = {
            "base64": lambda: base64_bytes(data),
            "hex": lambda: bytes.fromhex(data),
            "a": lambda: data.encode(),
        }[encoding.lower()]()
    except (KeyError, ValueError, UnreadableError):
        raise UnreadableError("an attachment in an encoding that is not read") from None
    return text_of(content, of_type)
