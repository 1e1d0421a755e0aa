"""Scrubbed documents in the form they were read: a FHIR resource or an HL7 v2 message for each.

They are made from id, individual and text alone. Nothing else of the export is carried over, because nobody has looked
for identifiers there: no name of the patient, no author, no date of the resource.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow.parquet as pq

#: Resources that hold attachments, as what is written does; a Composition becomes a DocumentReference.
_ATTACHED: Final = {"DocumentReference": "content", "DiagnosticReport": "presentedForm"}
_IS_FHIR_ID: Final = re.compile(r"[A-Za-z0-9.-]{1,64}")


def _resource(doc_id: str, individual_id: str, text: str) -> str:
    """Return a document as a FHIR resource, one line of JSON: a DiagnosticReport if it was read from one, as its id
    says, else a DocumentReference."""
    read_as, _, number = doc_id.partition("/")
    kind = read_as if read_as in _ATTACHED else "DocumentReference"
    own_id = number if kind == read_as else doc_id
    if not _IS_FHIR_ID.fullmatch(own_id):  # of two documents no id is the same
        own_id = hashlib.sha256(doc_id.encode()).hexdigest()
    attachment = {
        "contentType": "text/plain; charset=utf-8",
        "data": base64.b64encode(text.encode()).decode("ascii"),
    }
    subject: dict[str, object] = {"identifier": {"value": individual_id}}
    if _IS_FHIR_ID.fullmatch(individual_id):
        subject = {"reference": f"Patient/{individual_id}"}
    resource = {
        "resourceType": kind,
        "id": own_id,
        "identifier": [{"value": doc_id}],
        "status": "final" if kind == "DiagnosticReport" else "current",
        **({"code": {"text": "report"}} if kind == "DiagnosticReport" else {}),
        "subject": subject,
        _ATTACHED[kind]: [attachment if kind == "DiagnosticReport" else {"attachment": attachment}],
    }
    return json.dumps(resource, ensure_ascii=False, separators=(",", ":")) + "\n"


#: Signs of HL7 -> their escapes; the sign of escapes first. Line ends of other kinds would end a segment.
_ESCAPES: Final = {
    "\\": "\\E\\", "|": "\\F\\", "^": "\\S\\", "&": "\\T\\", "~": "\\R\\",
    "\r": "\\X0D\\", "\x0b": "\\X0B\\", "\x1c": "\\X1C\\",
}  # fmt: skip
_TO_ESCAPE: Final = str.maketrans(_ESCAPES)


def _message(doc_id: str, individual_id: str, text: str) -> str:
    """Return a document as an HL7 message MDM^T02, with one OBX segment of type TX for each line. MSH-7 (its time) is
    empty.
    """
    number, patient = (value.translate(_TO_ESCAPE).replace("\n", " ") for value in (doc_id, individual_id))
    segments = [
        f"MSH|^~\\&|||||||MDM^T02^MDM_T02|{number}|P|2.5||||||UNICODE UTF-8",
        "EVN|T02",
        f"PID|1||{patient}",
        f"TXA|1||TX|||||||||{number}",
        *(f"OBX|{at}|TX|||{line.translate(_TO_ESCAPE)}||||||F" for at, line in enumerate(text.split("\n"), 1)),
    ]
    return "\r".join(segments) + "\r"


#: Scheme of the source -> suffix of the files, and what writes a document.
FORMS: Final[Mapping[str, tuple[str, Callable[[str, str, str], str]]]] = MappingProxyType(
    {"fhir": (".ndjson", _resource), "hl7": (".hl7", _message)}
)


def write_export(folder: Path, scheme: str, documents: Path) -> None:
    """Write a file in ``folder``, in the format ``scheme`` ("fhir" or "hl7"), for each Parquet file of ``documents``
    (columns doc_id, individual_id, text).

    Parameters
    ----------
    scheme : "fhir" or "hl7", the scheme of the address that the documents were read from
    """
    suffix, form = FORMS[scheme]
    folder.mkdir()
    for part in sorted(documents.glob("*.parquet")):
        with (
            pq.ParquetFile(part) as table,
            (folder / part.name).with_suffix(suffix).open("w", encoding="utf-8", newline="") as out,
        ):
            for batch in table.iter_batches(1024, columns=["doc_id", "individual_id", "text"]):
                columns = (batch.column(name).to_pylist() for name in ("doc_id", "individual_id", "text"))
                out.writelines(form(*row) for row in zip(*columns, strict=True))
