"""FHIR R4: the texts of DocumentReference, DiagnosticReport and Composition, from NDJSON of a bulk export or Bundles.

The individual is the Patient that ``subject`` names. Of contents that are the same document in several forms the first
that can be read is taken, plain text before pages. An attachment that stands at an address is never fetched; where the
address names a Binary of the same Bundle, or of the files that are read and no other server, that is taken.
"""

from __future__ import annotations

import json
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from reticent.ext.exports.contents import KINDS, UnreadableError, base64_bytes, html_text, kind_of_type, text_of
from reticent.ext.exports.found import FoundDocument, Unread

#: Resources that hold the texts of documents.
TEXTS: Final = ("DocumentReference", "DiagnosticReport", "Composition")
_CHARSET: Final = re.compile(r"charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)


def read_bundle(
    data: bytes, place: str, elsewhere: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[FoundDocument | Unread]:
    """Yield the documents of a line or a file of JSON, and why one was not read; nothing for what holds no text.

    It is a resource, a Bundle (Bundles in it too) or an array of resources. ``elsewhere`` has resources of other lines
    and files by their addresses.
    """
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError):
        yield Unread(place, "not valid JSON")
        return
    try:
        yield from _within(loaded, place, elsewhere)
    except RecursionError:
        yield Unread(place, "nested too deep")


def _within(loaded: Any, place: str, elsewhere: Mapping[str, Any]) -> Iterator[FoundDocument | Unread]:
    known: dict[str, Any] = {}
    if _get(loaded, "resourceType") == "Bundle":
        entries = [each for each in _list(loaded.get("entry")) if isinstance(each, dict)]
        resources = [each["resource"] for each in entries if each.get("resource") is not None]
        for address, resource in [
            *((each.get("fullUrl"), each.get("resource")) for each in entries),
            *((f"{_get(each, 'resourceType')}/{_get(each, 'id')}", each) for each in resources),
        ]:
            if isinstance(address, str) and isinstance(resource, dict):
                # Of two that differ neither is meant for sure.
                known[address] = resource if _is_same(known.get(address, resource), resource) else {}
    elif isinstance(loaded, list):
        resources = loaded
    else:
        yield from _documents(loaded, place, elsewhere)
        return
    for number, resource in enumerate(resources, 1):
        where = place if len(resources) == 1 else f"{place} entry {number}"
        if _get(resource, "resourceType") == "Bundle":
            yield from _within(resource, where, elsewhere)
        else:
            yield from _documents(resource, where, ChainMap(known, elsewhere))  # type: ignore[arg-type]


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two resources are equal, or are versions of the same Patient."""
    patients = [each.get("id") for each in (one, other) if each.get("resourceType") == "Patient"]
    return one == other or (len(patients) == 2 and patients[0] == patients[1] is not None)


def _documents(resource: Any, place: str, known: Mapping[str, Any]) -> Iterator[FoundDocument | Unread]:
    if not isinstance(resource, dict):
        yield Unread(place, "not a resource")
        return
    kind = resource.get("resourceType")
    if kind not in TEXTS:
        if not isinstance(kind, str):
            yield Unread(place, "not a resource")
        return
    try:
        individual = _individual(resource, known)
        if not isinstance(resource.get("id"), str) or not resource["id"].strip():
            raise UnreadableError("it has no id")
        if resource.get("status") == "entered-in-error" or resource.get("docStatus") == "entered-in-error":
            raise UnreadableError("entered in error")
        text = _TEXT_OF[kind](resource, known)
    except UnreadableError as error:
        yield Unread(place, str(error))
    else:
        date = next((resource[name] for name in ("date", "effectiveDateTime", "issued") if name in resource), None)
        yield FoundDocument(
            doc_id=f"{kind}/{resource['id']}",
            individual_id=individual,
            text=text,
            date=date if isinstance(date, str) else None,
            type=_type(resource),
        )


def _individual(resource: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """The id of the Patient that a resource is about; else the value of the identifier that names them."""
    subject = resource.get("subject")
    subject = subject if isinstance(subject, dict) else {}
    if subject.get("type", "Patient") != "Patient":
        return _refuse("its subject is no Patient")
    reference = subject.get("reference")
    if isinstance(reference, str) and reference:
        if reference.startswith("#"):
            inner = next((c for c in _list(resource.get("contained")) if _get(c, "id") == reference[1:]), None)
            if _get(inner, "resourceType") != "Patient":
                return _refuse("its subject is no Patient")
            return _identifier(_get(inner, "identifier")) or _refuse(
                "its subject is contained in it and has no identifier"
            )
        target = known.get(reference)
        if target is not None and target.get("resourceType") != "Patient":
            return _refuse("its subject is no Patient, or one of several at one address")
        if own := _identifier([{"value": _get(target, "id")}, *_list(_get(target, "identifier"))]):
            return own
        found = re.search(r"(?:^|/)Patient/([A-Za-z0-9.-]{1,64})(?:/_history/[^/]+)?$", reference)
        if found:
            return found[1]
        if reference.startswith("urn:"):
            return reference
        return _refuse("its subject is no Patient")
    return _identifier([subject.get("identifier")]) or _refuse("it has no subject")


def _identifier(identifiers: Any) -> str | None:
    """Return the first value that is not blank in a list of FHIR identifiers; None without one."""
    return next((value for each in _list(identifiers) if (value := str(_get(each, "value") or "").strip())), None)


def _refuse(reason: str) -> Any:
    """Raise `UnreadableError` with this reason."""
    raise UnreadableError(reason)


def _type(resource: Mapping[str, Any]) -> str | None:
    """Return the text or code of a resource's document type; None without one."""
    concept = resource.get("type") or resource.get("code")
    coded = next(iter(_list(_get(concept, "coding"))), None)
    found = _get(concept, "text") or _get(coded, "display") or _get(coded, "code")
    return found if isinstance(found, str) else None


def _of_reference(resource: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the text of a DocumentReference: that of its first readable attachment."""
    return _first_readable([_get(each, "attachment") for each in _list(resource.get("content"))], known)


def _of_report(resource: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    if forms := _list(resource.get("presentedForm")):
        return _first_readable(forms, known)
    conclusion = resource.get("conclusion")
    return conclusion if isinstance(conclusion, str) and conclusion.strip() else _narrative(resource)


def _of_composition(resource: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    title = resource.get("title")
    lines = [title] if isinstance(title, str) else []
    for section in _list(resource.get("section")):
        lines += _section(section)
    if len(lines) <= 1:
        return _narrative(resource)
    return "\n".join(lines)


def _section(section: Any) -> Iterator[str]:
    title, text = _get(section, "title"), _get(section, "text")
    if isinstance(title, str):
        yield title
    if isinstance(page := _get(text, "div"), str):
        yield html_text(page)
    for inner in _list(_get(section, "section")):
        yield from _section(inner)


def _narrative(resource: Mapping[str, Any]) -> str:
    """Return the text of a resource's narrative (an HTML ``div``); raise `UnreadableError` if there is none."""
    page = _get(resource.get("text"), "div")
    text = html_text(page) if isinstance(page, str) else ""
    return text if text.strip() else _refuse("no text in it")


_TEXT_OF: Final = {
    "DocumentReference": _of_reference,
    "DiagnosticReport": _of_report,
    "Composition": _of_composition,
}


def _first_readable(attachments: list[Any], known: Mapping[str, Any]) -> str:
    """The text of the first attachment that can be read, plain text first; else the reason of the first."""
    order = {kind: at for at, kind in enumerate(KINDS)}
    kinds = [kind_of_type(str(_get(each, "contentType") or "")) for each in attachments]
    ranked = sorted(range(len(kinds)), key=lambda at: order.get(kinds[at] or "", len(order)))
    reasons = []
    for at in ranked:
        try:
            return _attachment(attachments[at], kinds[at], known)
        except UnreadableError as error:
            reasons.append(str(error))
    return _refuse(reasons[0] if reasons else "no attachment")


def _attachment(attachment: Any, kind: str | None, known: Mapping[str, Any]) -> str:
    """Return the text of an attachment, from its base64 data or from a Binary among the ``known`` resources."""
    data, address = _get(attachment, "data"), _get(attachment, "url")
    if data is None and isinstance(address, str):
        data = _get(known.get(address), "data")
        if data is None:
            raise UnreadableError("its text stands at an address, which is never fetched")
    if kind is None:
        raise UnreadableError("a type of content that is not read")
    if not isinstance(data, str):
        raise UnreadableError("an attachment without data")
    charset = _CHARSET.search(str(_get(attachment, "contentType")))
    return text_of(base64_bytes(data), kind, charset[1] if charset else None)


def _list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def _get(value: Any, name: str) -> Any:
    """Return a member of a JSON object; None if the value is no object or has no such member."""
    return value.get(name) if isinstance(value, dict) else None
