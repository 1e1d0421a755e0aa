"""Marked-up corpora: each format gives its text and marks exactly; what does not fit is named and never quoted."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.documents import SENTINEL, xml_2014
from fixtures.documents import write_file as write
from hypothesis import given
from hypothesis import strategies as st

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import detect_spans
from reticent.engine.detect.gold import GoldDetector
from reticent.engine.sources.config import Markup

ALL = ("doc_id", "individual_id", "text", "label", "spans", "mentions")


def documents(corpus: Corpus, batch_rows: int = 4096) -> list[dict[str, Any]]:
    return [row for batch in corpus.batches(columns=ALL, batch_rows=batch_rows) for row in batch.to_pylist()]


def marks(document: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) of each span."""
    return [(span["label"], document["text"][span["start"] : span["end"]]) for span in document["spans"]]


def refused(what: str, read: Callable[[], object]) -> None:
    """The error says what is wrong, and neither it nor what is printed with it holds a document's text."""
    with pytest.raises(CorpusError, match=what) as caught:
        read()
    assert SENTINEL not in "".join(traceback.format_exception(caught.value))


# ----------------------------------------------------------------------------------------------------------- i2b2 2006

I2B2_2006 = """<?xml version="1.0" encoding="UTF-8"?>
<ROOT>
<RECORD ID="7">
<TEXT>
Seen by Dr <PHI TYPE="DOCTOR">Zoë&apos;s</PHI> &lt;2&gt; &quot;x&quot; on <PHI TYPE="DATE">1/2</PHI>,
<PHI TYPE="AGE">😀91</PHI>
[ report_end ]
</TEXT>
</RECORD>
<RECORD ID="8"><SMOKING STATUS="PAST SMOKER"></SMOKING><TEXT>nobody</TEXT></RECORD>
</ROOT>
"""


def test_i2b2_2006_marks_stand_in_the_text_without_tags_and_entities(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path / "train.xml", I2B2_2006), format="i2b2-2006", columns=Columns(label="label"))
    first, second = documents(corpus)
    assert first["text"] == '\nSeen by Dr Zoë\'s <2> "x" on 1/2,\n😀91\n[ report_end ]\n'
    assert marks(first) == [("DOCTOR", "Zoë's"), ("DATE", "1/2"), ("AGE", "😀91")]
    assert first["mentions"][0] == {**first["spans"][0], "entity_id": None, "identifier_type": None, "annotator": None}
    assert (first["doc_id"], first["individual_id"], first["label"]) == ("7", "7", None)
    assert second == {"doc_id": "8", "individual_id": "8", "text": "nobody", "label": "PAST SMOKER"} | {
        "spans": [],
        "mentions": [],
    }
    corpus.scan()
    assert not corpus.repaired


def test_the_smoking_task_has_five_classes_and_unannotated_records_have_none(tmp_path: Path) -> None:
    statuses = ("PAST SMOKER", "CURRENT SMOKER", "SMOKER", "NON-SMOKER", "UNKNOWN")
    elements = [
        *(f'<SMOKING STATUS="{status}"></SMOKING>' for status in statuses),
        '<SMOKING STATUS=""/>',
        "<SMOKING/>",
        "",
    ]
    records = "".join(f'<RECORD ID="{n}">{part}<TEXT>x</TEXT></RECORD>\n' for n, part in enumerate(elements))
    file = write(tmp_path / "smokers.xml", f"<ROOT>\n{records}</ROOT>")
    found = documents(open_corpus(file, format="i2b2-2006", columns=Columns(label="label")))
    assert [row["label"] for row in found] == [*statuses, None, None, None]


BROKEN = '<PHI TYPE="DATE">25th of July<PHI TYPE="DOCTOR">'


def test_the_known_broken_line_of_i2b2_2006_is_repaired_and_counted_once_in_many_reads(tmp_path: Path) -> None:
    content = f'<ROOT><RECORD ID="1"><TEXT>on {BROKEN} to <PHI TYPE="DOCTOR">Ann</PHI></TEXT></RECORD>'
    content += '<RECORD ID="2"><TEXT><PHI TYPE="ID"></PHI>.</TEXT></RECORD></ROOT>'
    corpus = open_corpus(write(tmp_path / "a.xml", content), format="i2b2-2006")
    for _ in range(2):
        first, second = documents(corpus)
        corpus.check()
    assert first["text"] == "on 25th of July to Ann"
    assert marks(first) == [("DATE", "25th of July"), ("DOCTOR", "Ann")]
    assert second["spans"] == []
    assert corpus.repaired == {"PHI tags closed by an opening tag": 1, "empty PHI tags left out": 1}


# ----------------------------------------------------------------------------------------------------------- i2b2 2014


def test_i2b2_2014_labels_are_types_and_the_patient_is_the_number_before_the_dash(tmp_path: Path) -> None:
    text = "Record date: 2067-05-03\n\nMr José\nNuñez & 😀 <b>"
    tags = [
        ("DATE", "DATE", 13, 23, "2067-05-03"),
        ("PHI", "PATIENT", 28, 38, "José Nuñez"),  # an attribute has no line end
        ("NAME", "PATIENT", 28, 32, "José"),  # overlaps: kept
        ("NAME", "PATIENT", 28, 32, "José"),  # twice: one span, two mentions
        ("ID", "IDNUM", 41, 42, None),
    ]
    write(tmp_path / "110-01.xml", xml_2014(text, tags))
    write(tmp_path / "110-02.xml", xml_2014("", []))
    write(tmp_path / "sub" / "9-01.xml", xml_2014("x", []))
    corpus = open_corpus(tmp_path, format="i2b2-2014")
    found = documents(corpus)
    assert [(d["doc_id"], d["individual_id"]) for d in found] == [("110-01", "110"), ("110-02", "110"), ("9-01", "9")]
    assert found[0]["text"] == text
    assert marks(found[0]) == [("DATE", "2067-05-03"), ("PATIENT", "José"), ("PATIENT", "José\nNuñez"), ("IDNUM", "😀")]
    assert len(found[0]["mentions"]) == 5
    assert documents(corpus, batch_rows=1) == found


@pytest.mark.parametrize(
    ("format", "suffixes", "is_another"),
    [
        *(("i2b2-2014", ("xml",), True), ("meddocan", ("xml",), True), ("brat", ("ann", "txt"), True)),
        ("i2b2-2006", ("xml",), False),
    ],
)
def test_a_file_renamed_to_another_id_is_another_corpus(
    tmp_path: Path, format: str, suffixes: tuple[str, ...], is_another: bool
) -> None:
    for name in ("1-01", "1-02"):
        content = I2B2_2006 if format == "i2b2-2006" else xml_2014(name, [])
        for suffix in suffixes:
            write(tmp_path / f"{name}.{suffix}", content if suffix == "xml" else "")
    before = open_corpus(tmp_path, format=format).fingerprint()
    assert open_corpus(tmp_path, format=format).fingerprint() == before
    for suffix in suffixes:
        (tmp_path / f"1-02.{suffix}").rename(tmp_path / f"2-02.{suffix}")
    assert (open_corpus(tmp_path, format=format).fingerprint() != before) == is_another


def test_offsets_that_counted_cr_lf_are_repaired_where_the_quoted_texts_prove_it(tmp_path: Path) -> None:
    text = "a\r\nAnn\r\n\r\nBob"
    crlf = [("NAME", "PATIENT", 3, 6, "Ann"), ("NAME", "DOCTOR", 10, 13, "Bob")]
    write(tmp_path / "1-1.xml", xml_2014(text, crlf))
    write(tmp_path / "2-1.xml", xml_2014(text, [("NAME", "PATIENT", 2, 5, "Ann"), ("NAME", "DOCTOR", 7, 10, "Bob")]))
    corpus = open_corpus(tmp_path, format="i2b2-2014")
    first, second = documents(corpus)
    assert first["text"] == second["text"] == "a\nAnn\n\nBob"
    assert marks(first) == marks(second) == [("PATIENT", "Ann"), ("DOCTOR", "Bob")]
    corpus.scan()
    assert corpus.repaired == {"documents whose offsets counted CR LF as two": 1}
    unproved = [*crlf, ("ID", "IDNUM", 0, 1, None)]
    write(tmp_path / "1-1.xml", xml_2014(text, unproved))
    refused(r"1-1\.xml: span 1, 3\.\.6 in characters, is not the text", lambda: documents(corpus))


@pytest.mark.parametrize("unit", ["bytes", "utf-16"])
def test_offsets_in_other_units_are_recognised_and_read_when_it_is_said(tmp_path: Path, unit: Any) -> None:
    text = "é😀 SENTINELTEXT"
    size = {"bytes": 7, "utf-16": 4}[unit]
    file = write(tmp_path / "1-1.xml", xml_2014(text, [("NAME", "PATIENT", size, size + 12, SENTINEL)]))
    refused(
        rf'offsets look like {unit}, not characters.*corpus\.offsets = "{unit}"',
        lambda: documents(open_corpus(file, format="i2b2-2014")),
    )
    (read,) = documents(open_corpus(file, format="i2b2-2014", markup=Markup(offsets=unit)))
    assert marks(read) == [("PATIENT", SENTINEL)]
    inside = write(tmp_path / "1-2.xml", xml_2014(text, [("NAME", "PATIENT", size // 2, size, "x")]))
    refused(
        "inside a character", lambda: documents(open_corpus(inside, format="i2b2-2014", markup=Markup(offsets=unit)))
    )


def test_an_id_that_names_no_individual_is_refused_unless_a_pattern_says_how(tmp_path: Path) -> None:
    write(tmp_path / "p1_a.xml", xml_2014("x", []))
    write(tmp_path / "p1_b.xml", xml_2014("x", []))
    refused("names no individual", lambda: documents(open_corpus(tmp_path, format="i2b2-2014")))
    corpus = open_corpus(tmp_path, format="i2b2-2014", markup=Markup(individual="(p[0-9]+)_."))
    assert {d["individual_id"] for d in documents(corpus)} == {"p1"}


# ---------------------------------------------------------------------------------------------------------------- BRAT

ANN = """T1\tNAME 0 3\tAnn
T2\tDISEASE 4 8;14 19\tleft ankle
R1\tOf Arg1:T1 Arg2:T2
#1\tAnnotatorNotes T1\tSENTINELTEXT
A1\tNegation T2
*\tEquiv T1 T2
T3\tDATE 21 26\t1 2 3

"""


def test_brat_parts_of_a_discontinuous_mark_are_mentions_of_one_entity(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "Ann left right ankle\r\n1 2\n3")
    write(tmp_path / "a.ann", "T1\tNAME 0 3\tAnn\nT2\tBODY 4 8;15 20\tleft ankle\nT3\tDATE 22 27\t1 2 3\n" + "\n")
    write(tmp_path / "b.txt", "\ufeffÉ")
    write(tmp_path / "b.ann", "")
    write(tmp_path / "annotation.conf", "[entities]")
    first, second = documents(open_corpus(tmp_path, format="brat"))
    assert marks(first) == [("NAME", "Ann"), ("BODY", "left"), ("BODY", "ankle"), ("DATE", "1 2\n3")]
    assert [m["entity_id"] for m in first["mentions"]] == ["T1", "T2", "T2", "T3"]
    assert (second["text"], second["spans"]) == ("\ufeffÉ", [])


@pytest.mark.parametrize("suffix", ["txt", "ann"])
def test_brat_files_that_a_glob_names_by_one_suffix_come_with_their_other_halves(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / "a.txt", "Ann and Bob")
    write(tmp_path / "a.ann", "T1\tNAME 0 3\tAnn\n")
    before = open_corpus(tmp_path / f"*.{suffix}", format="brat")
    assert before.fingerprint() == open_corpus(tmp_path, format="brat").fingerprint()
    assert [marks(document) for document in documents(before)] == [[("NAME", "Ann")]]
    write(tmp_path / "a.ann", "T1\tNAME 8 11\tBob\n")
    assert open_corpus(tmp_path / f"*.{suffix}", format="brat").fingerprint() != before.fingerprint()


def test_brat_relations_notes_and_attributes_mark_no_text(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "Ann left right ankle\n")
    lines = [line.replace("14 19", "15 20") for line in ANN.split("\n") if not line.startswith("T3")]
    write(tmp_path / "a.ann", "\r\n".join(lines))
    (read,) = documents(open_corpus(tmp_path, format="brat"))
    assert marks(read) == [("NAME", "Ann"), ("DISEASE", "left"), ("DISEASE", "ankle")]


# ----------------------------------------------------------------------------------------------------------------- TAB


def entity(text: str, quoted: str, label: str, kind: str, entity_id: str) -> dict[str, Any]:
    start = text.index(quoted)
    return {"span_text": quoted, "entity_type": label, "start_offset": start, "end_offset": start + len(quoted)} | {
        "entity_id": entity_id,
        "identifier_type": kind,
    }


CASE = "Mr Łukasz 😀 of Łódź, on 3 May 1999"
NAME, PLACE, DAY = (
    entity(CASE, "Mr Łukasz", "PERSON", "DIRECT", "e1"),
    entity(CASE, "Łódź", "LOC", "NO_MASK", "e2"),
    entity(CASE, "3 May 1999", "DATETIME", "QUASI", "e3"),
)


def two_annotators() -> dict[str, Any]:
    place = {**PLACE, "identifier_type": "QUASI"}
    groups = {"annotator1": {"entity_mentions": [NAME, PLACE]}, "annotator2": {"entity_mentions": [NAME, place, DAY]}}
    return {"doc_id": "c1", "text": CASE, "annotations": groups}


@pytest.mark.parametrize("lines", [True, False])
def test_tab_spans_are_the_union_of_annotators_and_mentions_keep_entities_and_types(
    tmp_path: Path, lines: bool
) -> None:
    provenance = {"doc_id": "c2", "annotator": "annotator9"}
    single = {"metadata": {"provenance": provenance}, "text": CASE, "entities": [PLACE, DAY]}
    records = [json.dumps(record, ensure_ascii=lines) for record in (two_annotators(), single)]
    name, content = ("t.jsonl", "\n".join(records)) if lines else ("t.json", f"[{','.join(records)}]")
    corpus = open_corpus(write(tmp_path / name, content), format="tab")
    first, second = documents(corpus)
    assert (first["doc_id"], second["doc_id"]) == ("c1", "c2")
    assert marks(first) == [("PERSON", "Mr Łukasz"), ("LOC", "Łódź"), ("DATETIME", "3 May 1999")]
    assert marks(second) == [("DATETIME", "3 May 1999")]
    assert [(m["entity_id"], m["identifier_type"], m["annotator"]) for m in first["mentions"]] == [
        ("e1", "DIRECT", "annotator1"),
        ("e2", "NO_MASK", "annotator1"),
        ("e1", "DIRECT", "annotator2"),
        ("e2", "QUASI", "annotator2"),
        ("e3", "QUASI", "annotator2"),
    ]
    assert {m["annotator"] for m in second["mentions"]} == {"annotator9"}


def test_tab_takes_one_annotator_or_other_types_when_asked(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", json.dumps(two_annotators()))
    one = open_corpus(file, format="tab", markup=Markup(annotator="annotator1"))
    assert marks(documents(one)[0]) == [("PERSON", "Mr Łukasz")]
    everything = Markup(annotator="annotator1", identifiers=("DIRECT", "QUASI", "NO_MASK"))
    assert len(documents(open_corpus(file, format="tab", markup=everything))[0]["spans"]) == 2
    refused(
        r"row 1: not marked by the annotator",
        lambda: documents(open_corpus(file, format="tab", markup=Markup(annotator="annotator7"))),
    )


# --------------------------------------------------------------------------------------------------------- as corpora


@pytest.mark.parametrize(
    ("markup", "format", "what"),
    [
        ({"annotator": "a"}, "brat", "corpus.annotator: means nothing for format brat"),
        ({"offsets": "bytes"}, "auto", "corpus.offsets: means nothing"),
        ({"offsets": "words"}, "brat", "corpus.offsets: expected 'characters'"),
        ({"individual": "("}, "brat", "not a regular expression"),
        ({"individual": "(a)(b)"}, "brat", "expected one group, the individual, got 2"),
        ({"identifiers": ()}, "tab", "expected some of DIRECT"),
    ],
)
def test_options_that_are_wrong_or_do_nothing_are_refused(markup: dict[str, Any], format: Any, what: str) -> None:
    with pytest.raises(PolicyError, match=what):
        open_corpus("anywhere", format=format, markup=Markup(**markup))


texts = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=30)


@given(st.data())
def test_marks_written_in_any_unit_come_back_where_they_stood(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = data.draw(texts.map(lambda text: text + "."))
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    unit = data.draw(st.sampled_from(["characters", "bytes", "utf-16"]))
    width = {"characters": 4, "bytes": 1, "utf-16": 2}[unit]
    encoding = {"characters": "utf-32-le", "bytes": "utf-8", "utf-16": "utf-16-le"}[unit]
    begin, size = (len(part.encode(encoding)) // width for part in (text[:start], text[start:end]))
    folder = tmp_path_factory.mktemp("brat")
    write(folder / "a.txt", text)
    write(folder / "a.ann", f"T1\tNAME {begin} {begin + size}\t{text[start:end]}\n")
    (read,) = documents(open_corpus(folder, format="brat", markup=Markup(offsets=unit)))
    assert [(span["start"], span["end"]) for span in read["spans"]] == [(start, end)]


def test_index_of_marked_documents_believes_the_marks_and_says_what_was_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "xml" / "1-1.xml", xml_2014("a\r\nAnn", [("NAME", "PATIENT", 3, 6, "Ann")]))
    for number in range(2, 6):
        write(tmp_path / "xml" / f"{number}-1.xml", xml_2014("Bob ate", [("NAME", "PATIENT", 0, 3, "Bob")]))
    assert command("index", tmp_path / "xml", "--set", "corpus.format=i2b2-2014", "--out", tmp_path / "run") == 0
    assert "documents whose offsets counted CR LF as two: 1" in capsys.readouterr().err
    spans = pq.read_table(tmp_path / "run" / "spans" / "spans.parquet")
    assert spans.column("detector").to_pylist() == ["gold"] * 5


@pytest.mark.corpus
def test_meddocan_files_give_what_was_parsed_from_them(data: Path, tmp_path: Path) -> None:
    parsed = {}
    for name in ("train", "dev"):
        for line in (data / "meddocan" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            spans = sorted((span["start"], span["end"], span["type"]) for span in record["spans"])
            parsed[record["doc_id"]] = record["text"], spans
    corpus = open_corpus(data / "meddocan" / "xml_samples", format="meddocan")
    found = documents(corpus)
    assert len(found) == 30
    for document in found:
        spans = [(span["start"], span["end"], span["label"]) for span in document["spans"]]
        assert (document["text"], spans) == parsed[document["doc_id"]]
    counts = detect_spans(corpus, [GoldDetector()], tmp_path)
    assert counts["gold"] == sum(len(document["spans"]) for document in found)


@pytest.mark.corpus
def test_tab_entities_keep_their_mentions_and_types(data: Path) -> None:
    found = documents(open_corpus(data / "tab" / "tab_train.jsonl", format="tab"))
    mentions = [mention for document in found for mention in document["mentions"]]
    assert (len(found), len(mentions)) == (92, 4368)
    assert sum(mention["identifier_type"] == "DIRECT" for mention in mentions) == 193
    assert sum(len(document["spans"]) for document in found) == 193 + 2732
    assert all(document["doc_id"] in mention["entity_id"] for document in found for mention in document["mentions"])
