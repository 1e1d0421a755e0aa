"""Corpora of the detection benchmark, each as documents, the records of the individuals, and the annotations.

Found through ``RETICENT_DATA``. A corpus without a gold standard has no column ``spans``.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.record_io import DATA

__all__ = ["CORPORA", "Case", "census_names", "read_case"]

SPAN = pa.struct([("start", pa.int32()), ("end", pa.int32()), ("label", pa.string())])
MENTION = pa.struct([*SPAN, ("entity_id", pa.string()), ("identifier_type", pa.string()), ("annotator", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Documents with the columns doc_id, individual_id, text and, with a gold standard, spans or mentions."""

    name: str
    language: str
    documents: pa.Table
    #: Fields of the individuals, where something beside the documents says them.
    records: pa.Table | None = None

    @property
    def gold(self) -> str | None:
        return next((name for name in ("mentions", "spans") if name in self.documents.column_names), None)


def read_case(name: str, limit: int | None = None) -> Case:
    """Read a corpus, or its first ``limit`` documents."""
    return CORPORA[name][1](limit)


def census_names(folder: Path, share: float = 50.0) -> dict[str, str]:
    """Write the first and last names that the most frequent ``share`` per cent of the US population of 1990 bear, as
    the detector gazetteer reads them; returns label -> file."""
    names: dict[str, None] = {}
    for file in ("dist.all.last", "dist.female.first", "dist.male.first"):
        rows = (line.split() for line in (DATA / "us_census_names" / file).read_text().splitlines())
        names |= dict.fromkeys(row[0].title() for row in rows if float(row[2]) <= share)
    path = folder / "names.txt"
    path.write_text("".join(f"{name}\n" for name in names if len(name) > 1), encoding="utf-8")
    return {"NAME": str(path)}


def _lines(*path: str) -> Iterator[dict[str, Any]]:
    with DATA.joinpath(*path).open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _documents(rows: list[dict[str, Any]], gold: pa.DataType | None = None) -> pa.Table:
    columns = {name: pa.array([row[name] for row in rows], pa.string()) for name in ("doc_id", "individual_id")}
    table = pa.table({**columns, "text": pa.array([row["text"] for row in rows], pa.large_string())})
    if gold is not None:
        name = "mentions" if gold == MENTION else "spans"
        table = table.append_column(name, pa.array([row["gold"] for row in rows], pa.list_(gold)))
    return table


def _row(key: str, text: str, gold: Any = None, individual: str | None = None) -> dict[str, Any]:
    return {"doc_id": key, "individual_id": individual or key, "text": text, "gold": gold}


def _span(start: int, end: int, label: str) -> dict[str, Any]:
    return {"start": start, "end": end, "label": label}


def _tab(limit: int | None) -> Case:
    """Court cases; the record of the applicant is their name, from the metadata."""
    rows, names = [], {}
    for row in list(_lines("tab", "tab_train.jsonl"))[:limit]:
        about = row["metadata"]["provenance"]
        mentions = [
            {
                **_span(e["start_offset"], e["end_offset"], e["entity_type"]),
                **{key: e[key] for key in ("entity_id", "identifier_type", "annotator")},
            }
            for e in row["entities"]
        ]
        rows.append(_row(about["doc_id"], row["text"], mentions))
        names[about["doc_id"]] = about["applicant"]
    records = pa.table({"individual_id": list(names), "full_name": pa.array(names.values(), pa.string())})
    return Case(name="tab", language="en", documents=_documents(rows, MENTION), records=records)


#: Where the case report ends and who sent it stands.
_TAIL = re.compile(r"(Remitido por|Responsable clínico)\b")


def _meddocan(part: str) -> Any:
    def read(limit: int | None) -> Case:
        rows = []
        for file in ("train.jsonl", "dev.jsonl"):
            for row in _lines("meddocan", file):
                first, last = _body(row["text"])
                body = part == "body"
                pieces = {"": [(0, len(row["text"]))], "body": [(first, last)], "header": [(0, first), (last, None)]}
                for number, (start, end) in enumerate(pieces[part]):
                    end = len(row["text"]) if end is None else end
                    spans = [
                        _span(s["start"] - start, s["end"] - start, _meddocan_label(s))
                        for s in row["spans"]
                        if start <= s["start"] and s["end"] <= end
                    ]
                    if start < end and (spans or body or not part):
                        key = f"{row['doc_id']}:{number}" if part else row["doc_id"]
                        rows.append(_row(key, row["text"][start:end], spans, row["doc_id"]))
        name = f"meddocan_{part}" if part else "meddocan"
        return Case(name=name, language="es", documents=_documents(rows[:limit], SPAN))

    return read


def _meddocan_label(span: dict[str, Any]) -> str:
    """Five digits among the territories are ZIP codes."""
    is_zip = span["type"] == "TERRITORIO" and re.fullmatch(r"\d{5}", span["text"])
    return "ZIP" if is_zip else str(span["type"])


def _body(text: str) -> tuple[int, int]:
    """Where the report itself begins and ends: after the lines of fields, before the sender."""
    start = 0
    for line in text.splitlines(keepends=True):
        is_field = len(line) < 150 and (":" in line or line.rstrip().endswith("."))
        if not is_field or line.startswith("Informe clínico"):
            break
        start += len(line)
    tails = [match.start() for match in _TAIL.finditer(text, start)]
    return start, tails[-1] if tails else len(text)


def _ehr(limit: int | None) -> Case:
    rows = [
        _row(r["meta"]["note_id"], r["text"], individual=r["meta"]["patient_id"])
        for r in _lines("ehr_deid_sample_notes", "notes.jsonl")
    ]
    return Case(name="ehr_deid_sample_notes", language="en", documents=_documents(rows[:limit]))


def _presidio(limit: int | None) -> Case:
    content = json.loads((DATA / "presidio_synth" / "synth_dataset_v2.json").read_text(encoding="utf-8"))
    rows = [
        _row(
            f"s{number}",
            row["full_text"],
            [_span(s["start_position"], s["end_position"], s["entity_type"]) for s in row["spans"]],
        )
        for number, row in enumerate(content[:limit])
    ]
    return Case(name="presidio_synth", language="en", documents=_documents(rows, SPAN))


def _aci(limit: int | None) -> Case:
    """Gold: every free-standing occurrence of the patient's first and family name, whatever its case."""
    rows, records = [], []
    for file in ("train", "valid", "clinicalnlp_taskB_test1", "clinicalnlp_taskC_test2"):
        for row in _lines("aci_bench", f"{file}.jsonl"):
            about, key = row["metadata"], f"{file}:{row['encounter_id']}"
            first, last = (about[name].strip() for name in ("patient_firstname", "patient_familyname"))
            names = "|".join(re.escape(name) for name in (first, last) if len(name) > 1)
            text = row["dialogue"] + "\n\n" + row["note"]
            found = re.finditer(rf"(?<!\w)(?:{names})(?!\w)", text, re.IGNORECASE) if names else ()
            rows.append(_row(key, text, [_span(*match.span(), "NAME") for match in found]))
            records.append({"individual_id": key, "first_name": first, "last_name": last})
    table = pa.Table.from_pylist(records)
    return Case(name="aci_bench", language="en", documents=_documents(rows[:limit], SPAN), records=table)


def _mtsamples(limit: int | None) -> Case:
    rows = [_row(str(row["doc_id"]), row["text"]) for row in _lines("mtsamples", "mtsamples.jsonl")]
    return Case(name="mtsamples", language="en", documents=_documents(rows[:limit]))


def _synth(language: str) -> Any:
    def read(limit: int | None) -> Case:
        from reticent.engine.synthetic import SynthConfig, synthesize

        with tempfile.TemporaryDirectory() as folder:
            config = SynthConfig(
                num_individuals=min(400, limit or 400),
                words_per_document=150,
                documents_per_individual=2.5,
                languages=(language,),
                seed=5,
            )
            synthesize(Path(folder), config)
            documents = pq.read_table(Path(folder) / "documents").combine_chunks()
            records = pq.read_table(Path(folder) / "records.parquet")
        name = f"synth_{language}"
        return Case(name=name, language=language, documents=documents.replace_schema_metadata(None), records=records)

    return read


#: Name -> (folder under RETICENT_DATA or None, reader).
CORPORA: dict[str, tuple[str | None, Any]] = {
    "tab": ("tab", _tab),
    "meddocan": ("meddocan", _meddocan("")),
    "meddocan_header": ("meddocan", _meddocan("header")),
    "meddocan_body": ("meddocan", _meddocan("body")),
    "presidio_synth": ("presidio_synth", _presidio),
    "aci_bench": ("aci_bench", _aci),
    "synth_en": (None, _synth("en")),
    "synth_fr": (None, _synth("fr")),
    "ehr_deid_sample_notes": ("ehr_deid_sample_notes", _ehr),
    "mtsamples": ("mtsamples", _mtsamples),
}
