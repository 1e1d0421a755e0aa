"""FHIR R4: the texts of DocumentReference, DiagnosticReport and Composition, from NDJSON of a bulk export or Bundles.

The individual is the Patient that ``subject`` names: by id, and with the server where the documents are about Patients
of several. Of contents that are the same document in several forms the first that can be read is taken, plain text
before pages. An attachment that stands at an address is never fetched; where the address names a Binary of the same
Bundle, or of the files that are read and no other server, that is taken.
"""

from __future__ import annotations

import json
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from reticent import _rust
from reticent.ext.exports.contents import KINDS, UnreadableError, base64_bytes, html_text, kind_of_type, text_of
from reticent.ext.exports.found import FoundDocument, Unread

#: Resources that hold the texts of documents.
TEXTS: Final = ("DocumentReference", "DiagnosticReport", "Composition")
#: Kind of content -> its rank among the forms of one document.
_RANKS: Final[Mapping[str | None, int]] = {kind: at for at, kind in enumerate(KINDS)}
_CHARSET: Final = re.compile(r"charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)
#: The address of a Patient, and what stands before it.
_PATIENT: Final = re.compile(r"(?:(.*)/)?Patient/([A-Za-z0-9.-]{1,64})(?:/_history/[^/]+)?")
#: The server of an address of a resource.
_ROOT: Final = re.compile(r"((?:https?:)?//.+)/[A-Za-z]+/[A-Za-z0-9.-]{1,64}(?:/_history/[^/]+)?", re.IGNORECASE)
#: What stands in all JSON that names the server of a Patient, however it is encoded.
_NAMES_SERVER: Final = (b"/Patient", b"fullUrl", b"\\u002", b"\0")


#: The id of a Patient and their server, "" where none is named; or the value of an identifier, or a URN, and None.
Owner = tuple[str, str | None]
#: Types of a link of a Patient by which one of two records holds for both, and whether that is the other one.
_REPLACEMENTS: Final = {"replaced-by": True, "replaces": False}


class _Resource(NamedTuple):
    """A resource, its place, the resources known by their addresses, and the server that its own address names."""

    value: Any
    place: str
    known: Mapping[str, Any]
    server: str | None


def read_bundle(
    data: bytes,
    place: str,
    elsewhere: Mapping[str, Any] = MappingProxyType({}),
    servers: Set[str] = frozenset(),
    merged: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[FoundDocument | Unread]:
    """Yield the documents in JSON bytes (a FHIR resource, a Bundle, or an array of resources), or an `Unread` with the
    reason for each that cannot be read. ``elsewhere`` has further resources by address, ``merged`` replaced -> current
    individual id.

    It is a resource, a Bundle (Bundles in it too) or an array of resources. ``elsewhere`` has resources of other lines
    and files by their addresses, ``servers`` those of all Patients that documents are about, ``merged`` the individual
    by whom another one is replaced (`replacements_of`).
    """
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError):
        yield Unread(place, "not valid JSON")
        return
    try:
        for each in _iter_resources(loaded, place, elsewhere):
            yield from [each] if isinstance(each, Unread) else _read_resource(each, servers, merged)
    except RecursionError:
        yield Unread(place, "nested too deep")


def servers_of(data: bytes) -> set[str]:
    """Return the base addresses of the FHIR servers whose Patients the documents in some JSON are about. Patients
    without a server in their address add none.

    >>> servers_of(b'{"resourceType": "Composition", "subject": {"reference": "HTTPS://Host:443/fhir/Patient/7"}}')
    {'host/fhir'}
    """
    found: set[str] = set()
    if not _rust.has_any(data, _NAMES_SERVER):
        return found
    try:
        for each in _iter_resources(json.loads(data), "", {}):
            if not isinstance(each, Unread) and _get(each.value, "resourceType") in TEXTS:
                try:
                    found.add(_find_patient(each)[1] or "")
                except UnreadableError:
                    continue
    except (ValueError, RecursionError):  # it is listed when it is read
        pass
    return found - {""}


def replacements_of(data: bytes) -> Iterator[tuple[Owner, Owner]]:
    """Yield (replaced Patient, Patient that replaces it) for each such link of the Patient resources in some JSON.
    Links of other types (refer, seealso) are ignored.

    >>> link = b'{"other": {"reference": "Patient/2"}, "type": "replaced-by"}'
    >>> [*replacements_of(b'{"resourceType": "Patient", "id": "1", "link": [' + link + b"]}")]
    [(('1', ''), ('2', ''))]
    """
    if not _rust.has_any(data, (b"replace", b"\0")):
        return
    try:
        for each in _iter_resources(json.loads(data), "", {}):
            if isinstance(each, Unread) or _get(each.value, "resourceType") != "Patient":
                continue
            for link in _list_or_empty(each.value.get("link")):
                is_other = _REPLACEMENTS.get(str(_get(link, "type")))
                if is_other is None:
                    continue
                try:
                    own = _find_patient(
                        each._replace(value={"subject": {"reference": f"Patient/{each.value.get('id')}"}})
                    )
                    other = _find_patient(each._replace(value={"subject": link.get("other")}))
                except UnreadableError:  # it names no Patient
                    continue
                yield (own, other) if is_other else (other, own)
    except (ValueError, RecursionError):  # it is listed when it is read
        return


def _normalise_server(address: str) -> str:
    """Return a server's address in a form that is equal for equal servers: without http(s) and default ports, and with
    the host in lower case."""
    host, slash, path = re.sub(r"(?i)^(?:https?:)?//", "", address).rstrip("/").partition("/")
    return re.sub(r":(?:80|443)$", "", host.lower()) + slash + path


def _iter_resources(parsed: Any, place: str, elsewhere: Mapping[str, Any]) -> Iterator[_Resource | Unread]:
    """Yield every resource of a parsed JSON document: a Bundle (with those inside it), an array or a single resource.
    Each comes with the resources that it may refer to; a fault is an `Unread`, with place and reason.
    """
    known: dict[str, Any] = {}
    if _get(parsed, "resourceType") == "Bundle":
        if not isinstance(parsed.get("entry"), list | None):
            yield Unread(place, "the entries of its Bundle are no list")
        entries = _list_or_empty(parsed.get("entry"))
        for address, resource in [
            *((_get(each, "fullUrl"), _get(each, "resource")) for each in entries),
            *(
                (f"{_get(each['resource'], 'resourceType')}/{_get(each['resource'], 'id')}", each["resource"])
                for each in entries
                if _get(each, "resource") is not None
            ),
        ]:
            if isinstance(address, str) and isinstance(resource, dict):
                # Of two that differ neither is meant for sure.
                known[address] = resource if _is_same(known.get(address, resource), resource) else {}
        # An entry without a resource has no text: it was deleted, say. What is no entry is listed.
        rows = [
            (number, each.get("resource"), each.get("fullUrl")) if isinstance(each, dict) else (number, each, None)
            for number, each in enumerate(entries, 1)
            if not isinstance(each, dict) or each.get("resource") is not None
        ]
    elif isinstance(parsed, list):
        rows = [(number, each, None) for number, each in enumerate(parsed, 1)]
    else:
        yield _Resource(parsed, place, elsewhere, None)
        return
    inside = ChainMap(known, elsewhere)  # type: ignore[arg-type]
    for number, resource, address in rows:
        where = place if len(rows) == 1 else f"{place} entry {number}"
        if _get(resource, "resourceType") == "Bundle":
            yield from _iter_resources(resource, where, elsewhere)
        else:
            root = _ROOT.fullmatch(address) if isinstance(address, str) else None
            yield _Resource(resource, where, inside, root[1] if root else None)


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two resources are equal, or are versions of one Patient (equal ids)."""
    patients = [each.get("id") for each in (one, other) if each.get("resourceType") == "Patient"]
    return one == other or (len(patients) == 2 and patients[0] == patients[1] is not None)


def _read_resource(found: _Resource, servers: Set[str], merged: Mapping[str, str]) -> Iterator[FoundDocument | Unread]:
    """Yield the document in a resource, or an `Unread` with the reason it cannot be read; nothing for a type without
    documents. ``merged`` maps replaced to current individual ids.
    """
    resource = found.value
    kind = _get(resource, "resourceType")
    if kind not in TEXTS:
        if not isinstance(kind, str):
            yield Unread(found.place, "not a resource")
        return
    try:
        individual = individual_id_of(_find_patient(found), servers)
        if individual is None:
            raise UnreadableError("its subject is of one of several servers, and of which is not said")
        individual = merged.get(individual, individual)
        if not isinstance(resource.get("id"), str) or not resource["id"].strip():
            raise UnreadableError("it has no id")
        if resource.get("status") == "entered-in-error" or resource.get("docStatus") == "entered-in-error":
            raise UnreadableError("entered in error")
        text = _TEXT_OF[kind](resource, found.known)
    except UnreadableError as error:
        yield Unread(found.place, str(error))
    else:
        date = next((resource[name] for name in ("date", "effectiveDateTime", "issued") if name in resource), None)
        yield FoundDocument(
            doc_id=f"{kind}/{resource['id']}",
            individual_id=individual,
            text=text,
            date=date if isinstance(date, str) else None,
            type=_document_type(resource),
        )


def individual_id_of(patient: Owner, servers: Set[str]) -> str | None:
    """Return the individual id for a Patient: its id, preceded by its server's address if the export has several
    ``servers``. Return None if there are several and the Patient's is not known."""
    own, server = patient
    if len(servers) > 1 and server is not None:
        return f"{server}/Patient/{own}" if server else None
    return own


def _find_patient(found: _Resource) -> Owner:
    """Return (Patient id, server's address or "" if not named) of the Patient that a resource is about. If only an
    identifier or a URN names the Patient, return (that, None)."""
    resource = found.value
    subject = resource.get("subject")
    subject = subject if isinstance(subject, dict) else {}
    if subject.get("type", "Patient") != "Patient":
        return _refuse("its subject is no Patient")
    reference = subject.get("reference")
    if isinstance(reference, str) and reference:
        if reference.startswith("#"):
            inner = next((c for c in _list_or_empty(resource.get("contained")) if _get(c, "id") == reference[1:]), None)
            if _get(inner, "resourceType") != "Patient":
                return _refuse("its subject is no Patient")
            own = _first_identifier(_get(inner, "identifier"))
            return (own, None) if own else _refuse("its subject is contained in it and has no identifier")
        address = _PATIENT.fullmatch(reference)
        if address is not None and address[1] is None and found.server is not None:
            reference = f"{found.server}/{reference}"  # it is of the server of the resource itself
            address = _PATIENT.fullmatch(reference)
        server = _normalise_server(address[1]) if address is not None and _ROOT.fullmatch(reference) else ""
        target = found.known.get(reference)
        if target is not None and target.get("resourceType") != "Patient":
            return _refuse("its subject is no Patient, or one of several at one address")
        if own := _first_identifier([{"value": _get(target, "id")}]):
            return own, server
        if own := _first_identifier(_get(target, "identifier")):
            return own, None
        if address is not None:
            return address[2], server
        return (reference, None) if reference.startswith("urn:") else _refuse("its subject is no Patient")
    own = _first_identifier([subject.get("identifier")])
    return (own, None) if own else _refuse("it has no subject")


def _first_identifier(identifiers: Any) -> str | None:
    """Return the first non-blank value in a list of FHIR identifiers; None if there is none."""
    return next(
        (value for each in _list_or_empty(identifiers) if (value := str(_get(each, "value") or "").strip())), None
    )


def _refuse(reason: str) -> Any:
    """Raise `UnreadableError` with this reason."""
    raise UnreadableError(reason)


def _document_type(resource: Mapping[str, Any]) -> str | None:
    """Return the document type of a resource as text (its text, display or code); None if it has none."""
    concept = resource.get("type") or resource.get("code")
    coded = next(iter(_list_or_empty(_get(concept, "coding"))), None)
    found = _get(concept, "text") or _get(coded, "display") or _get(coded, "code")
    return found if isinstance(found, str) else None


def _text_of_reference(resource: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the text of a DocumentReference, which is that of its first readable attachment."""
    return _first_readable([_get(each, "attachment") for each in _list_or_empty(resource.get("content"))], known)


def _text_of_report(resource: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the text of a DiagnosticReport: that of its first readable attachment; without attachments its conclusion,
    else its narrative."""
    if forms := _require_objects(resource.get("presentedForm")):
        return _first_readable(forms, known)
    conclusion = resource.get("conclusion")
    return conclusion if isinstance(conclusion, str) and conclusion.strip() else _narrative(resource)


def _text_of_composition(resource: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the text of a Composition: its title and the texts of all its sections; its narrative if these are
    empty."""
    title = resource.get("title")
    lines = [title] if isinstance(title, str) else []
    for section in _require_objects(resource.get("section")):
        lines += _section_lines(section)
    if len(lines) <= 1:
        return _narrative(resource)
    return "\n".join(lines)


def _section_lines(section: Any) -> Iterator[str]:
    """Yield the title and the text of a section of a Composition, then those of the sections inside it."""
    title, text = _get(section, "title"), _get(section, "text")
    if isinstance(title, str):
        yield title
    if isinstance(page := _get(text, "div"), str):
        yield html_text(page)
    for inner in _require_objects(_get(section, "section")):
        yield from _section_lines(inner)


def _narrative(resource: Mapping[str, Any]) -> str:
    """Return the text of a resource's narrative (an HTML ``div``); raise `UnreadableError` if there is none."""
    page = _get(resource.get("text"), "div")
    text = html_text(page) if isinstance(page, str) else ""
    return text if text.strip() else _refuse("no text in it")


_TEXT_OF: Final = {
    "DocumentReference": _text_of_reference,
    "DiagnosticReport": _text_of_report,
    "Composition": _text_of_composition,
}


def _first_readable(attachments: list[Any], known: Mapping[str, Any]) -> str:
    """Return the text of the first readable attachment, plain text preferred. If none is readable, raise
    `UnreadableError` with the first reason."""
    kinds = [kind_of_type(str(_get(each, "contentType") or "")) for each in attachments]
    ranked = sorted(range(len(kinds)), key=lambda at: _RANKS.get(kinds[at], len(_RANKS)))
    reasons = []
    for at in ranked:
        try:
            return _attachment_text(attachments[at], kinds[at], known)
        except UnreadableError as error:
            reasons.append(str(error))
    return _refuse(reasons[0] if reasons else "no attachment")


def _attachment_text(attachment: Any, kind: str | None, known: Mapping[str, Any]) -> str:
    """Return the text of an attachment, decoded from its base64 data, or from a Binary resource in ``known`` (address
    -> resource)."""
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


def _list_or_empty(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def _require_objects(value: Any) -> list[Any]:
    """Return a list of JSON objects unchanged, None as an empty list; raise `UnreadableError` for any other value."""
    if value is not None and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
        return _refuse("a list in it is not as FHIR has it")  # type: ignore[no-any-return]
    return value or []


def _get(value: Any, name: str) -> Any:
    """Return a member of a JSON object; None if the value is no object or has no such member."""
    return value.get(name) if isinstance(value, dict) else None
