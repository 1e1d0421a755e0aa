"""HL7 v2: the texts of MDM and ORU messages, one or many in a file.

The text of a document is its OBX segments of type TX, FT, ST (a line each, repetitions too) and ED (an attachment). A
document is what stands behind a TXA, or behind an OBR. The individual is the first identifier of PID-3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

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
#: Segments that are read -> fields of theirs that are looked at.
_MOST: Final = {"MSH": 18, "PID": 4, "TXA": 13, "OBR": 8, "OBX": 6}
_ENDS: Final = "\r\n\x0b\x1c"
_TEXTS: Final = ("TX", "FT", "ST")
#: OBX-11 of a text that is deleted, or of the wrong patient.
_WITHDRAWN: Final = ("D", "d", "W", "w")
_TYPES: Final = {"TEXT": "text/plain", "HTML": "text/html", "PDF": "application/pdf", "RTF": "text/rtf"}


@dataclass(frozen=True, slots=True)
class _Signs:
    """The signs of a message: between fields, components, repetitions; of escapes; between subcomponents."""

    field: str
    component: str
    repetition: str
    escape: str
    subcomponent: str


@lru_cache
def _signs_of(begin: str) -> _Signs:
    """Return the separators of an HL7 message, from its first nine characters (MSH-1 and MSH-2)."""
    given = begin[4:].partition(begin[3])[0]
    return _Signs(begin[3], *(given[n] if n < len(given) else sign for n, sign in enumerate("^~\\&")))


@dataclass(slots=True)
class _Document:
    """The document that is being read."""

    number: str | None = None
    date: str | None = None
    type: str | None = None
    is_of_txa: bool = False
    #: Values of OBX as they stand there, and the texts before them.
    values: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    fault: str | None = None

    def end_values(self, signs: _Signs) -> None:
        """Make a text of the values, a line each and of each repetition; all at once, as most values are short."""
        if self.values:
            text = signs.repetition.join(self.values).replace("\r\n", "\n").replace("\r", "\n")
            self.texts.append(unescape(text.replace(signs.repetition, "\n"), signs))
            self.values.clear()


def read_messages(data: bytes, place: str) -> Iterator[FoundDocument | Unread]:
    """Yield the documents of a file of messages, and what could not be read; nothing for a message without text."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    starts = [*_starts(data)]
    if not starts:
        yield Unread(place, "no message of HL7 v2")
        return
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(data)], strict=True), 1):
        where = place if len(starts) == 1 else f"{place} message {number}"
        try:
            yield from _message(_decoded(data[start:end]), where)
        except UnreadableError as error:
            yield Unread(where, str(error))


def _starts(data: bytes) -> Iterator[int]:
    """Yield the byte offset of each message: of MSH at the beginning of a line with a separator after it."""
    at = data.find(b"MSH")
    while at >= 0:
        if data[max(at - 1, 0) : at] in b"\r\n\x0b\x1c" and re.match(rb"[^\w\s]", data[at + 3 : at + 4]):
            yield at
        at = data.find(b"MSH", at + 3)


def _decoded(data: bytes) -> str:
    """Decode a message by the character set in MSH-18; without one, as UTF-8 or Windows-1252."""
    header = re.split(rb"[\r\n]", data, maxsplit=1)[0].decode("latin-1")
    fields = header.split(header[3])
    named = fields[17].partition(_signs_of(header[:9]).repetition)[0].strip().upper() if len(fields) > 17 else ""
    if named and named not in _CHARSETS:
        raise UnreadableError("its character set (MSH-18) is unknown")
    for encoding in [_CHARSETS[named]] if named else ["utf-8", "cp1252"]:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise UnreadableError(
        "it is not in the character set that is named" if named else "in no encoding that can be told"
    )


def _message(message: str, place: str) -> Iterator[FoundDocument | Unread]:
    signs = _signs_of(message[:9])
    # A line that begins like no segment goes on with the one before: a text may have breaks of its own.
    message = message.strip(_ENDS)
    ends = "".join(sign for sign in _ENDS if sign in message) or _ENDS  # one sign is found much faster than a set
    lines = re.split(rf"[{ends}](?=[A-Z][A-Z0-9]{{2}}{re.escape(signs.field)})", message)
    control = _fields(lines[0], signs)[9]  # the sign behind MSH is its first field
    individual: str | None = None
    document: _Document | None = None
    count, behind, is_withdrawn = 0, "", False
    for line in [*lines, "OBR"]:
        name = line[:3]
        if name == "OBX":  # most lines are such, so no more of their fields are split than are read
            document = document or _Document()
            segment = line.split(signs.field, 6)
            if len(segment) < 7:
                segment = _fields(line, signs)
            if segment[6] != behind:  # what stands behind the text is the same in most lines
                behind = segment[6]
                is_withdrawn = (behind + signs.field * 6).split(signs.field, 6)[5].strip() in _WITHDRAWN
            if is_withdrawn:
                continue
            if segment[2] in _TEXTS:
                document.values.append(segment[5])
            elif segment[2] == "ED":
                _attach(document, segment[5], signs)
        elif name in ("PID", "TXA", "OBR"):
            segment = _fields(line, signs)
            if document is not None and (document.values or document.texts or document.fault):
                count += 1
                document.end_values(signs)
                yield _finished(document, individual, control, count, place)
            elif document is not None and document.is_of_txa and name == "OBR":
                continue  # an OBR between a TXA and its text
            if name == "PID":
                individual, document = _individual(segment, signs), None
            elif name == "TXA":
                number, kind = _first(segment[12], signs), _first(segment[2], signs)
                document = _Document(number, _date(segment[4]), kind, is_of_txa=True)
            else:
                number = _first(segment[3], signs) or _first(segment[2], signs)
                code = [unescape(part, signs) for part in segment[4].split(signs.component)]
                document = _Document(number, _date(segment[7]), next(filter(None, [*code[1:2], code[0]]), None))


def _fields(line: str, signs: _Signs) -> list[str]:
    """The fields of a segment that are looked at; signs behind a line make its last fields, as one may be left out."""
    most = _MOST[line[:3]]
    return (line.rstrip(_ENDS) + signs.field * most).split(signs.field, most)


def _finished(
    document: _Document, individual: str | None, control: str, count: int, place: str
) -> FoundDocument | Unread:
    fault = document.fault or (None if individual else "no patient (PID-3)")
    text = "\n".join(document.texts)
    if fault is None and not text.strip():
        fault = "no text in it"
    if fault is not None or individual is None:
        return Unread(place, fault or "")
    number = document.number or (f"{control}/{count}" if control else None)
    if number is None:
        return Unread(place, "neither a number of the document (TXA-12, OBR-3) nor of the message (MSH-10)")
    return FoundDocument(number, individual, text, document.date, document.type)


def _first(value: str, signs: _Signs) -> str | None:
    """Return the first component of a field's first repetition, without escapes; None if it is empty or ""."""
    found = unescape(value.partition(signs.repetition)[0].partition(signs.component)[0], signs).strip()
    return found if found and found != '""' else None


def _individual(segment: list[str], signs: _Signs) -> str | None:
    repetitions = segment[3].split(signs.repetition)
    return next((found for each in repetitions if (found := _first(each, signs))), None)


def _date(value: str) -> str | None:
    """Return the value if it is an HL7 date or time, else None."""
    return value if re.fullmatch(r"\d{4,14}(?:\.\d+)?(?:[+-]\d{4})?", value) else None


def _attach(document: _Document, value: str, signs: _Signs) -> None:
    document.end_values(signs)
    try:
        document.texts.append(_attachment([unescape(part, signs) for part in value.split(signs.component)]))
    except UnreadableError as error:
        document.fault = str(error)


def _attachment(parts: list[str]) -> str:
    """The text of encapsulated data: source, type, subtype, encoding, data."""
    _, kind, subtype, encoding, data = (parts + [""] * 5)[:5]
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


def unescape(text: str, signs: _Signs) -> str:
    """Return a field's text without its escapes: signs, breaks and spaces are put in, formatting is left out."""
    if signs.escape not in text:
        return text
    plain = {
        "F": signs.field, "S": signs.component, "T": signs.subcomponent, "R": signs.repetition, "E": signs.escape,
        ".br": "\n", ".ce": "\n", "H": "", "N": "", ".fi": "", ".nf": "",
    }  # fmt: skip

    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code in plain:
            return plain[code]
        if code[0] == "X" and len(code) % 2:
            data = bytes.fromhex(code[1:])
            try:
                return data.decode()
            except UnicodeDecodeError:
                return data.decode("latin-1")
        if re.fullmatch(r"\.sp[+]?\d{0,2}", code):
            return "\n" * int(code[3:].lstrip("+") or 1)
        if re.fullmatch(r"\.sk[+]?\d{1,2}", code):
            return " " * int(code[3:].lstrip("+"))
        if re.fullmatch(r"\.(?:in|ti)[+-]?\d{1,3}|[CM][0-9A-Fa-f]+|Z\w*", code):
            return ""
        return found[0]

    # What is no escape, a path of Windows say, takes no sign away from an escape behind it.
    sign = re.escape(signs.escape)
    return re.sub(rf"{sign}([FSTREHN]|\.[a-z]{{2}}[+-]?\d{{0,3}}|[XCM][0-9A-Fa-f]+|Z\w*){sign}", one, text)
