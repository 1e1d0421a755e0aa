"""CDA and C-CDA: the narrative of a ClinicalDocument, or its body that is no XML.

The individual is the extension of the patient's first id in ``recordTarget``, or the root where there is none. A
document of several patients, a mother and her child say, is of neither alone and is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from reticent.ext.exports.contents import (
    CELL,
    LINE,
    UnreadableError,
    base64_bytes,
    elements,
    fold_white_space,
    kind_of_type,
    text_of,
)
from reticent.ext.exports.found import FoundDocument, Unread

#: Elements that stand on lines of their own.
_LINES: Final = frozenset(
    {"paragraph", "item", "tr", "br", "caption", "title", "list", "table", "section", "text", "footnote"}
)


def read_document(data: bytes, place: str) -> Iterator[FoundDocument | Unread]:
    """Yield the document in the bytes of a CDA file, or an `Unread` with ``place`` (the file's name) and the reason it
    cannot be read.
    """
    unread: list[str] = []
    try:
        yield _parse_document(data, unread)
    except UnreadableError as error:
        yield Unread(place, str(error))
    else:
        yield from (Unread(place, f"a part of it: {reason}") for reason in unread)


def _parse_document(data: bytes, unread: list[str]) -> FoundDocument:
    """Return the document in the bytes of a CDA file. Reasons of attachments in it that are not read are added to
    ``unread``. Raise `UnreadableError` with the reason if it lacks text or id, or is not of exactly one patient."""
    path: list[str] = []
    number = date = kind = body_type = None
    encoded = is_elsewhere = False
    title: list[str] = []
    individuals: list[str | None] = []  #: a recordTarget each
    lines: list[str] = []
    body: list[str] = []
    for event, value, element in elements(data, frozenset()):
        if event != "text" and value in _LINES and "structuredBody" in path:
            lines.append(LINE)
        if event == "start":
            path.append(value)
            where = path[1:]
            if len(path) == 1 and value != "ClinicalDocument":
                raise UnreadableError("not a ClinicalDocument")
            if where == ["id"]:
                number = _id_of(element)
            elif where == ["effectiveTime"]:
                date = element.get("value")
            elif where == ["code"]:
                kind = element.get("displayName") or element.get("code")
            elif where == ["recordTarget"]:
                individuals.append(None)
            elif where == ["recordTarget", "patientRole", "id"]:
                individuals[-1] = individuals[-1] or _id_of(element)
            elif where == ["component", "nonXMLBody", "text"]:
                body_type, encoded = element.get("mediaType", "text/plain"), element.get("representation") == "B64"
                if element.get("compression"):
                    raise UnreadableError("its body is compressed")
            elif where == ["component", "nonXMLBody", "text", "reference"]:
                is_elsewhere = True
            elif "structuredBody" in path and element.get("representation") == "B64":  # of an entry
                lines += [LINE, _attachment_text(element, unread), LINE]
        elif event == "end":
            path.pop()
            if value in ("td", "th"):
                lines.append(CELL)
        elif path[1:] == ["title"]:
            title.append(value)
        elif path[1:4] == ["component", "nonXMLBody", "text"]:
            body.append(value)
        elif (
            "structuredBody" in path
            and ("text" in path or path[-1] == "title")
            and element.get("representation") != "B64"
        ):
            lines.append(value)
    if is_elsewhere and not "".join(body).strip():
        raise UnreadableError("its text stands at an address, which is never fetched")
    text = (
        _body_text("".join(body), body_type, encoded=encoded)
        if body_type is not None
        else fold_white_space("".join(lines))
    )
    if not text.strip():
        raise UnreadableError("no text in it")
    if number is None:
        raise UnreadableError("it has no id")
    individual = individuals[0] if len({*individuals}) == 1 else None
    if individual is None:
        raise UnreadableError("several patients (recordTarget)" if any(individuals) else "no patient (recordTarget)")
    head = "".join(title)
    return FoundDocument(number, individual, f"{head}\n{text}" if head.strip() else text, date, kind)


def _id_of(element: Any) -> str | None:
    """Return the id in a CDA element ``id``: its extension, else its root; None if both are missing or it is null."""
    if element.get("nullFlavor"):  # its root is that of every such id
        return None
    return (element.get("extension", element.get("root")) or "").strip() or None


def _attachment_text(element: Any, unread: list[str]) -> str:
    """Return the text of an element in base64, its lines ended by `LINE`. Of one that is not read the reason is added
    to ``unread``, but for pictures."""
    media_type = element.get("mediaType", "text/plain")
    try:
        if element.get("compression"):
            raise UnreadableError("it is compressed")
        return _body_text("".join(element.itertext()), media_type, encoded=True).replace("\n", LINE)
    except UnreadableError as error:
        if not media_type.startswith("image/"):
            unread.append(str(error))
        return ""


def _body_text(text: str, media_type: str, *, encoded: bool) -> str:
    """Return the text of a CDA body that is not XML, decoded by its MIME type, from base64 if ``encoded``. Raise
    `UnreadableError` for a type that is not read.
    """
    kind = kind_of_type(media_type)
    if kind is None:
        raise UnreadableError("a type of content that is not read")
    if not encoded:
        return text_of(text.encode(), kind, "utf-8")
    return text_of(base64_bytes(text), kind)
