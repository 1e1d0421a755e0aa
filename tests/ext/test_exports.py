"""FHIR, HL7 v2, CDA, folders of office files: each text comes whole, with its individual, or is listed as unread."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import sys
import time
import zipfile
from collections import Counter
from email.message import EmailMessage
from itertools import chain
from pathlib import Path
from typing import Any

import lxml.etree
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.core.progress import Progress
from reticent.engine.corpus import open_configured
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import open_remote, stage, staged_files
from reticent.ext.exports import contents
from reticent.ext.exports import source as exports
from reticent.ext.exports.cda import read_document
from reticent.ext.exports.contents import CELL, LINE, UnreadableError, fold_white_space, html_text, text_of
from reticent.ext.exports.fhir import read_bundle
from reticent.ext.exports.found import FoundDocument, Unread
from reticent.ext.exports.hl7 import read_messages
from reticent.ext.exports.source import Exports
from reticent.ext.exports.write import FORMS
from reticent.ext.scrub.command import scrub_documents
from reticent.ext.scrub.scrub import ScrubConfig
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.staged import staged_job
from reticent.job.update import update_run
from tests.oracles import hl7 as oracle

pytest.importorskip("striprtf", reason="needs the extra exports")
pytest.importorskip("pypdfium2", reason="needs the extra exports")

#: Text that every format can hold: no controls, no half surrogates, no line ends of their own.
LINES = st.lists(
    st.text(
        st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="\x85\u2028\ufeff"), max_size=30
    )
    .map(lambda line: " ".join(line.split()))
    .filter(bool),
    min_size=1,
    max_size=5,
)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def reference(**fields: Any) -> dict[str, Any]:
    """A DocumentReference of patient 7 whose attachment says ``data``."""
    attachment = {"contentType": "text/plain", "data": b64(b"Seen today."), **fields.pop("attachment", {})}
    return {
        "resourceType": "DocumentReference",
        "id": "d1",
        "subject": {"reference": "Patient/7"},
        "content": [{"attachment": attachment}],
        **fields,
    }


def of_line(resource: Any) -> list[FoundDocument | Unread]:
    return list(read_bundle(json.dumps(resource).encode(), "f line 1"))


# ---------------------------------------------------------------------------------------------------------------- FHIR


@pytest.mark.parametrize(
    ("resource", "individual", "text"),
    [
        (reference(), "7", "Seen today."),
        (reference(subject={"reference": "https://host.example/fhir/Patient/p-8/_history/2"}), "p-8", "Seen today."),
        (reference(subject={"identifier": {"value": "MRN 9"}}), "MRN 9", "Seen today."),
        (reference(subject={"reference": "urn:uuid:11"}), "urn:uuid:11", "Seen today."),
        (reference(attachment={"contentType": "text/html", "data": b64(b"<p>a <b>b</b>c<br>d")}), "7", "a bc\nd"),
        (
            reference(attachment={"contentType": "text/plain; charset=iso-8859-1", "data": b64(b"\xe9t\xe9")}),
            "7",
            "été",
        ),
        (
            reference(
                content=[
                    {"attachment": {"contentType": "application/pdf", "data": "no base64"}},
                    {"attachment": {"contentType": "text/rtf", "data": b64(rb"{\rtf1 plain}")}},
                ]
            ),
            "7",
            "plain",
        ),
        (
            {
                "resourceType": "DiagnosticReport",
                "id": "r",
                "subject": {"reference": "Patient/7"},
                "conclusion": "No clot.",
            },
            "7",
            "No clot.",
        ),
        (
            {
                "resourceType": "Composition",
                "id": "c",
                "subject": {"reference": "Patient/7"},
                "title": "Letter",
                "section": [
                    {
                        "title": "History",
                        "text": {"div": "<div>Fell.</div>"},
                        "section": [{"text": {"div": "<p>Again</p>"}}],
                    }
                ],
            },
            "7",
            "Letter\nHistory\nFell.\nAgain",
        ),
    ],
)
def test_a_resource_gives_its_text_and_its_individual(resource: dict[str, Any], individual: str, text: str) -> None:
    (found,) = of_line(resource)
    assert isinstance(found, FoundDocument)
    assert (found.individual_id, found.text) == (individual, text)
    assert found.doc_id == f"{resource['resourceType']}/{resource['id']}"


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        (reference(subject={}), "no subject"),
        (reference(subject={"reference": "Group/1"}), "no Patient"),
        (reference(subject={"type": "Device", "identifier": {"value": "9"}}), "no Patient"),
        (
            reference(
                subject={"reference": "#x"},
                contained=[{"resourceType": "Practitioner", "id": "x", "identifier": [{"value": "9"}]}],
            ),
            "no Patient",
        ),
        (reference(subject={"identifier": {"value": " "}}), "no subject"),
        (reference(status="entered-in-error"), "entered in error"),
        (reference(attachment={"contentType": "text/html", "data": b64(b"<meta charset=undefined>x")}), "damaged"),
        (reference(id=None), "no id"),
        (reference(content=[]), "no attachment"),
        (reference(attachment={"contentType": "image/png"}), "type of content"),
        (reference(attachment={"data": "%%"}), "not base64"),
        (reference(attachment={"data": None, "url": "https://host.example/Binary/1"}), "never fetched"),
        (reference(attachment={"data": b64(b" \n ")}), "no text"),
        (reference(attachment={"contentType": "text/plain; charset=klingon"}), "encoding"),
        ([1], "not a resource"),
        ({"resourceType": "Bundle", "entry": {"resource": reference()}}, "no list"),
        ({"resourceType": "Bundle", "entry": ["x"]}, "not a resource"),
        (reference(resourceType="Composition", title="a", section={"text": {"div": "<p>b"}}), "not as FHIR"),
        (reference(resourceType="Composition", title="a", section=[{"section": ["b"]}]), "not as FHIR"),
        (reference(resourceType="DiagnosticReport", conclusion="a", presentedForm={"data": "b"}), "not as FHIR"),
        ({"resourceType": "DiagnosticReport", "id": "r", "subject": {"reference": "Patient/7"}}, "no text"),
    ],
)
def test_a_resource_that_cannot_be_read_is_listed_with_its_reason(resource: Any, reason: str) -> None:
    (found,) = of_line(resource)
    assert isinstance(found, Unread)
    assert reason in found.reason
    assert found.place == "f line 1"


def test_a_bundle_knows_its_patients_and_binaries() -> None:
    bundle = {
        "resourceType": "Bundle",
        "entry": [
            {"fullUrl": "urn:uuid:p", "resource": {"resourceType": "Patient", "id": "42"}},
            {
                "resource": {
                    "resourceType": "Binary",
                    "id": "b",
                    "contentType": "text/plain",
                    "data": b64(b"From afar."),
                }
            },
            {"resource": reference(subject={"reference": "urn:uuid:p"}, attachment={"data": None, "url": "Binary/b"})},
            {"resource": {"resourceType": "Observation", "id": "o"}},
        ],
    }
    (found,) = read_bundle(json.dumps(bundle).encode(), "bundle.json")
    assert found == FoundDocument("DocumentReference/d1", "42", "From afar.")
    assert [*read_bundle(b"{", "x.json")] == [Unread("x.json", "not valid JSON")]


@pytest.mark.parametrize("entries", [{}, {"entry": []}, {"entry": None}, {"entry": [{"fullUrl": "urn:uuid:1"}]}])
def test_a_bundle_without_resources_gives_nothing(entries: dict[str, Any]) -> None:
    assert of_line({"resourceType": "Bundle", **entries}) == []


def in_bundle(*patients: dict[str, Any]) -> list[FoundDocument | Unread]:
    """What is found for a document of urn:uuid:p, where these resources have that address."""
    entries = [{"fullUrl": "urn:uuid:p", "resource": patient} for patient in patients]
    entries.append({"resource": reference(subject={"reference": "urn:uuid:p"})})
    return of_line({"resourceType": "Bundle", "entry": [{"resource": {"resourceType": "Bundle", "entry": entries}}]})


def test_whose_a_document_of_a_bundle_is_stands_there_for_sure() -> None:
    one, other = ({"resourceType": "Patient", "id": number} for number in "12")
    for patients, individual in (
        ((one, one | {"active": True}), "1"),
        (({"resourceType": "Patient", "identifier": [{"value": "M3"}]},), "M3"),
        ((), "urn:uuid:p"),
    ):
        assert [each.individual_id for each in in_bundle(*patients) if isinstance(each, FoundDocument)] == [individual]
    for patients in ((one, other), ({"resourceType": "Group", "id": "g"},)):
        assert ["no Patient" in each.reason for each in in_bundle(*patients) if isinstance(each, Unread)] == [True]


@given(LINES)
def test_no_character_of_plain_text_is_lost_in_fhir(lines: list[str]) -> None:
    text = "\n".join(lines)
    (found,) = of_line(reference(attachment={"contentType": "text/plain; charset=utf-8", "data": b64(text.encode())}))
    assert isinstance(found, FoundDocument)
    assert found.text == text


_BYTES = st.text("ab\0", max_size=40).map(str.encode)


@given(_BYTES, st.lists(_BYTES.filter(bool), max_size=3))
def test_a_search_for_one_of_several_parts_matches_oracle(data: bytes, parts: list[bytes]) -> None:
    assert _rust.has_any(data, parts) == any(part in data for part in parts)


# ----------------------------------------------------------------------------------------------------------------- HL7


def escaped(text: str) -> str:
    for sign, code in (("\\", "E"), ("|", "F"), ("^", "S"), ("&", "T"), ("~", "R")):
        text = text.replace(sign, f"\0{code}\0") if sign == "\\" else text.replace(sign, f"\\{code}\\")
    return text.replace("\0E\0", "\\E\\")


#: In HL7 a repetition and an escape; in an attachment, signs as others.
SIGNS = b"~\\F\\"


def message(*segments: str, control: str = "M1", charset: str = "") -> bytes:
    head = f"MSH|^~\\&|A|B|C|D|20260102||MDM^T02|{control}|P|2.5||||||{charset}"
    return "\r".join([head, "PID|1||123^^^H^MR~9||DOE^JOHN", *segments, ""]).encode()


@given(LINES)
def test_no_character_of_a_text_is_lost_in_hl7(lines: list[str]) -> None:
    segments = [f"OBX|{n}|TX|||{escaped(line)}" for n, line in enumerate(lines, 1)]
    (found,) = read_messages(message("TXA|1|CN||20260101||||||||D-5", *segments), "m")
    assert found == FoundDocument("D-5", "123", "\n".join(lines), "20260101", "CN")


def test_reports_of_one_message_and_messages_of_one_file() -> None:
    first = message(
        "OBR|1||R1|X^CT of the head",
        "OBX|1|FT|||a\\.br\\b~c",
        "OBX|2|NM|||7",
        "OBR|2||R2",
        "OBX|1|ST|||\\X41\\\\H\\d\\N\\",
    )
    second = b"\x0b" + message("OBX|1|TX|||C:\\\\temp\\x", control="M2") + b"\x1c\r"
    found = list(read_messages(first + second, "file"))
    assert [(each.doc_id, each.text) for each in found if isinstance(each, FoundDocument)] == [
        ("R1", "a\nb\nc"),
        ("R2", "Ad"),
        ("M2/1", "C:\\\\temp\\x"),
    ]
    assert isinstance(found[0], FoundDocument)
    assert found[0].type == "CT of the head"


def test_a_report_is_of_the_patient_before_it_and_a_text_keeps_its_breaks() -> None:
    data = message(
        "OBR|1||R1", "OBX|1|TX|||of 123\nMSHA MSH^", "PID|||B", "OBR|1||R2", "OBX|1|FT|||C:\\a\\.br\\b\\X4\\\\F\\\r\nc"
    )
    wrong = message("OBX|1|TX|||a", "OBX|2|TX|||not his||||||W", "OBX|3|TX|||b||||||D", control="M3")
    assert [each[:3] for each in read_messages(b"\xef\xbb\xbf" + data + wrong, "m")] == [
        ("R1", "123", "of 123\nMSHA MSH^"),
        ("R2", "B", "C:\\a\nb\\X4\\|\nc"),
        ("M3/1", "123", "a"),
    ]


def test_a_line_of_hl7_is_left_out_by_its_own_status_alone() -> None:
    ends = [
        "||||||F",
        "||||||W",
        "||||||W",
        "||||||F",
        "",
        "||||||D|2026",
        "|",
        "||||||F|2026",
        "||||||d \n",
        "\n",
        "|mg|1-9||||D",
    ]
    data = message("TXA|1|CN||||||||||D1", *(f"OBX|{n}|TX|||{n}{end}" for n, end in enumerate(ends)))
    (found,) = read_messages(data, "m")
    assert found[2] == "0\n3\n4\n6\n7\n9"


def lines_of(ends: str, *segments: str) -> bytes:
    return ends.join(["MSH|^~\\&|||||||MDM^T02|M1|P|2.5", "PID|1||123", *segments, ""]).encode()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lines_of("\n", "OBX|1|TX|||a", "EKG||||||F", "OBX|2|TX|||b"), "a\nEKG\nb"),
        (lines_of("\r", "OBX|1|TX|||a\nEKG||||||F", "OBX|2|TX|||b"), "a\nEKG\nb"),
        (lines_of("\r\n", "OBX|1|TX|||a\nNTE||||||F", "XYZ|of a site", "OBX|2|TX|||b"), "a\nNTE\nb"),
        (lines_of("\r", "OBX|1|TX|||a\nOBX|2|TX|||b", "XYZ|of a site"), "a\nb"),
        (
            lines_of("\n", "OBX|1|TX|||a", "MSH-2: lost", "MSH: x", "MSH(-)(", "MSH/a||||||F"),
            "a\nMSH-2: lost\nMSH: x\nMSH(-)(\nMSH/a",
        ),
        (lines_of("\r", "OBX|1|TX|||a\nMSH-2: lost||||||W", "OBX|2|TX|||b"), "b"),
        (lines_of("\n", "OBX|1|TX|||a", "NTE|1||c", "ZXY|of a site", "OBX|2|TX|||b", "BTS|1", "FTS|1"), "a\nb"),
    ],
)
def test_a_line_that_begins_like_no_segment_of_the_standard_goes_on_with_the_text(data: bytes, text: str) -> None:
    assert [each[2:3] for each in read_messages(data, "m")] == [(text,)]


@pytest.mark.parametrize("ends", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize(
    "segment",
    [
        "OBX|1|TX|||a\nABC|b",
        "OBX|1|TX|||a||||||F\nABC|b",
        "OBX|1|FT|||a||||||F\nand more",
        "OBX|1|ST|||a\nBP|120",
        "OBX|1|NM|||7\nABC|b",
    ],
)
def test_a_line_that_is_text_or_fields_is_listed(segment: str, ends: str) -> None:
    (found,) = read_messages(lines_of(ends, "OBX|1|TX|||a", segment), "m")
    assert isinstance(found, Unread)
    assert "break of a line" in found.reason


@pytest.mark.parametrize("name", ["PID|||B", "OBR|1||R2", "TXA|1"])
def test_a_text_with_a_line_like_the_segment_of_another_patient_is_listed(name: str) -> None:
    (found,) = read_messages(lines_of("\r", f"OBX|1|TX|||a\n{name}", "OBX|2|TX|||b"), "m")
    assert isinstance(found, Unread)
    assert f"a line feed and {name[:3]} within a text" in found.reason
    first, *_ = read_messages(lines_of("\r\n", "OBX|1|TX|||a", name, "OBX|2|TX|||b"), "m")
    assert first[1:3] == ("123", "a"), "a carriage return before the line feed makes it a segment"


def test_files_whose_segments_end_with_line_feeds_are_told(tmp_path: Path) -> None:
    for name, ends in (("a", "\r"), ("b", "\n"), ("c", "\r\n")):
        (tmp_path / f"{name}.hl7").write_bytes(lines_of(ends, "TXA|1|CN||||||||||D" + name, "OBX|1|TX|||a\\.br\\b"))
    source = Exports(CorpusConfig(source=f"hl7://{tmp_path}"), tmp_path)
    assert sum(batch.num_rows for batch in source.batches(["text"])) == 3
    (note,) = source.notes
    assert "in 1 files (the first is b.hl7)" in note


@given(st.text(), st.text())
def test_bytes_of_neighbouring_escapes_are_one_text(one: str, other: str) -> None:
    codes = [f"\\X{byte:02X}\\" for byte in f"{one}ü{other}".encode(errors="ignore")]
    (found,) = read_messages(message(f"OBX|1|TX|||a{''.join(codes)}b\\XC3BC\\\\.br\\\\XFC\\"), "m")
    assert found[2:3] == (f"a{one}ü{other}bü\nü".encode(errors="ignore").decode(),)


#: What a message may have, and signs that may stand for those of the standard.
_PARTS = (
    *(
        "|",
        "|",
        "|||",
        "|mg|1-9||||D",
        "^",
        "~",
        "\\",
        "&",
        "a",
        "é",
        "X",
        "TX",
        "FT",
        "NM",
        "D",
        "F",
        " ",
        "\xb2",
        "\u0301",
    ),
    *("\r", "\n", "\r\n", "\x0b", "\x1c", "\r\x1c", "\x1e"),
    *(
        f"{end}{name}|"
        for end in ("\r", "\n", "\r\n")
        for name in ("PID", "TXA", "OBR", "NTE", "ABC", "ZAB", "A", "ADD")
    ),
    *(
        f"{end}OBX|1|{kind}|||{text}"
        for end in ("\r", "\r", "\n")
        for kind in ("TX", "ED", "")
        for text in ("a~b", "c")
    ),
    *(
        f"\\{code}\\"
        for code in str.split("F S T R E H N .br .ce .fi .sp .sp2 .sp+03 .sk4 .sk .in-2 .ti+100 .ab+1 .sp999")
    ),
    *(
        f"\\{code}\\"
        for code in ("X41", "XC3", "XBC", "XFC0a", "X4", "X", "C1a", "M", "Z", "Zé_1", "Z_a_", "Ze\u0301", "q")
    ),
)
_SIGNS_OF = ("|^~\\&", "|^~_&", "#!+-.", "|-.+&", "ü^~.&", "|^\\\\&", "|\\&~^", "|^~§&", "^^~\\|")


@settings(max_examples=examples(500))
@given(st.lists(st.sampled_from(_PARTS), max_size=30), st.sampled_from(_SIGNS_OF))
def test_segments_of_hl7_match_oracle(parts: list[str], signs: str) -> None:
    translated = str.maketrans("|^~\\&", signs)
    text = f"MSH|^~\\&|A{''.join(parts)}".translate(translated)
    assert _rust.hl7_segments(text, tuple(signs)) == oracle.segments(text, oracle.Signs(*signs))
    assert _rust.hl7_unescape(text, tuple(signs)) == oracle.unescape(text, oracle.Signs(*signs))


def test_a_message_that_is_not_of_the_encoding_that_it_names_is_listed() -> None:
    """As UTF-16 the letters of this one are others, and its signs are daggers."""
    data = b"MSH|^~\\&" + b" " * 20 + b"|" * 16 + b"UNICODE UTF-16\rPID|||1\rOBX||TX|||a"
    found = [*read_messages(data + b" " * (len(data) % 2), "m")]
    assert found == [Unread("m", "it is not in the character set that is named")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (message("OBX|1|TX|||a", "ADD|b"), "ADD"),
        (message("OBX|1|ED|||x^TEXT^PLAIN^A^a^b"), "several attachments"),
        (message("OBX|1|RP|||\\\\server\\a.pdf^AP^PDF"), "stands at an address"),
        (message("OBX|1||||Seen today."), "no type"),
        (message("OBX|1|TXT|||Seen today."), "no type"),
        (message("OBX|1|TX|||a").replace(b"|1||123^", b"|1||12\n3^"), "no patient"),
        (message("OBX|1|TX|||a").replace(b"|^~\\&|A|", b"|LAB|"), "no message"),
        (message("OBX|1|TX|||a").replace(b"|^~\\&|A|", b"|\xe9^~\\&|"), "signs"),
        (lines_of("\n", "OBX|1|TX|||a", "MSH|LAB|b||||F"), "no signs"),
        (lines_of("\r\n", "OBX|1|TX|||a", "MSH|++|b||||F"), "no signs"),
        (b"hello", "no message"),
        (message("OBX|1|TX|||a").replace(b"PID|1||123^^^H^MR~9", b"PID|1||"), "no patient"),
        (message("OBX|1|TX|||a", charset="KLINGON"), "character set"),
        (message("OBX|1|ED|||x^IM^PNG^Base64^AAAA"), "not read"),
        (message("OBX|1|ED|||x^TEXT^PLAIN^Base64^%"), "encoding"),
    ],
)
def test_a_message_that_cannot_be_read_is_listed(data: bytes, reason: str) -> None:
    (found,) = read_messages(data, "m")
    assert isinstance(found, Unread)
    assert reason in found.reason


def test_a_text_beside_a_pointer_is_read_and_lines_before_the_first_message_are_listed() -> None:
    texts = ["OBX|1|RP|||x^IM", "OBX|2|TX|||a", "OBX|3|||||||||X"]
    batch = b"FHS|^~\\&\rBHS|^~\\&\r" + message(*texts) + b"BTS|1\rFTS|1\r"
    assert [each[2:3] for each in read_messages(batch, "m")] == [("a",)]
    cut = b"OBX|8|TX|||the end\r" + message("OBX|1|TX|||a")
    assert [*read_messages(cut, "m")] == [
        Unread("m", "lines before its first message"),
        FoundDocument("M1/1", "123", "a"),
    ]


def test_a_message_without_text_gives_nothing_and_one_with_an_attachment_its_text() -> None:
    assert list(read_messages(message("OBX|1|NM|||7"), "m")) == []
    (found,) = read_messages(message(f"OBX|1|ED|||x^TEXT^HTML^Base64^{b64(b'<p>a<p>b')}"), "m")
    assert isinstance(found, FoundDocument)
    assert found.text == "a\nb"
    attached = f"OBX|2|ED|||x^TEXT^PLAIN^Base64^{b64(SIGNS)}"
    (found,) = read_messages(message("OBX|1|TX|||a~\\.br\\", attached, "OBX|3|TX|||b\r|", "OBX|4|ST|||c"), "m")
    assert found[2:3] == ("a\n\n\n~\\F\\\nb\n\nc",)
    assert [*read_messages("MSH|^~\\&|||||||X|1||||||||8859/1\rPID|||é\rOBX||TX|||ü’".encode("cp1252"), "m")] == [
        FoundDocument("1/1", "é", "ü’")
    ]


def merge(event: str, *pairs: tuple[str, str]) -> bytes:
    segments = [segment for prior, number in pairs for segment in (f"PID|1||{number}^^^H~9", f"MRG|{prior}^^^H~8")]
    return "\r".join([f"MSH|^~\\&|||||||ADT^{event}|A|P|2.5", "EVN|", *segments, ""]).encode()


@pytest.mark.parametrize(
    ("event", "individuals"),
    [("A40", ["3", "3", "3", "4"]), ("A47", ["3", "3", "3", "4"]), ("A45", list("1234")), ("A01", list("1234"))],
)
def test_numbers_that_a_message_merges_are_one_individual(event: str, individuals: list[str], tmp_path: Path) -> None:
    texts = [message("OBX|1|TX|||a", control=each).replace(b"|123^", f"|{each}^".encode()) for each in "1234"]
    (tmp_path / "a.hl7").write_bytes(texts[0] + texts[1])
    (tmp_path / "b.hl7").write_bytes(merge(event, ("1", "2"), ("5", "4")) + texts[2])
    (tmp_path / "c.hl7").write_bytes(texts[3] + b"MSH|^~\\&||||||||||||||||KLINGON\r" + merge(event, ("2", "3")))
    found, unread = found_in(tmp_path, "hl7")
    assert [row[1] for row in found] == individuals
    assert [each.place for each in unread] == ["c.hl7 message 2"]


# ----------------------------------------------------------------------------------------------------------------- CDA


def clinical(body: str, patient: str = '<id extension="77" root="1.2"/>', head: str = "") -> bytes:
    return (
        f'{head}<ClinicalDocument xmlns="urn:hl7-org:v3"><id root="1.2.3" extension="D9"/><title>Letter</title>'
        f"<recordTarget><patientRole>{patient}</patientRole></recordTarget><component>{body}</component></ClinicalDocument>"
    ).encode()


#: The end of a recordTarget and the begin of another.
MOTHER = "</patientRole></recordTarget><recordTarget><patientRole>"
STRUCTURED = (
    "<structuredBody><component><section><title>Plan</title><text>"
    "<paragraph>Ta<!-- c -->ke\n   <content>two</content> a day.</paragraph>"
    "<table><tr><td>x</td><td>1</td></tr><tr><td>y</td></tr></table><list><item>rest</item></list></text></section></component>"
    "</structuredBody>"
)


def test_the_narrative_of_a_clinical_document() -> None:
    (found,) = read_document(clinical(STRUCTURED), "a.xml")
    assert found == FoundDocument("D9", "77", "Letter\nPlan\nTake two a day.\nx\t1\ny\nrest")
    body = f'<nonXMLBody><text mediaType="text/html" representation="B64">{b64(b"<p>a")}</text></nonXMLBody>'
    (found,) = read_document(clinical(body), "a.xml")
    assert isinstance(found, FoundDocument)
    assert found.text == "Letter\na"


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ("Born 1958<list><item>Asthma<list><item>mild</item></list></item></list>", "Born 1958\nAsthma\nmild"),
        ("<table><tr><td>MRN 12<paragraph>Maria</paragraph></td><td>x</td></tr></table>", "MRN 12\nMaria\nx"),
        ("Seen<footnote>by Roe</footnote>today<table><caption>a</caption></table>", "Seen\nby Roe\ntoday\na"),
        ("a<paragraph> </paragraph><paragraph/><content>b</content> c", "a\nb c"),
        ("a<renderMultiMedia><caption>Chest</caption></renderMultiMedia>b", "a\nChest\nb"),
    ],
)
def test_a_block_of_a_narrative_begins_a_line(inside: str, text: str) -> None:
    body = f"<structuredBody><component><section><text>{inside}</text></section></component></structuredBody>"
    (found,) = read_document(clinical(body), "a.xml")
    assert found[2] == f"Letter\n{text}"


def test_an_attachment_in_an_entry_is_read_as_its_type_says_and_else_listed() -> None:
    attached = "".join(
        f'<entry><act><{name} mediaType="{kind}" representation="B64"{more}>{b64(data)}</{name}></act></entry>'
        for name, kind, data, more in [
            ("text", "text/rtf", rb"{\rtf1 Seen\par today}", ""),
            ("value", "image/png", b"x", ""),
            ("value", "application/pdf", b"x", ""),
            ("text", "text/plain", b"x", ' compression="DF"'),
        ]
    )
    body = f"<structuredBody><component><section><text>a</text>{attached}</section></component></structuredBody>"
    found, *unread = read_document(clinical(body), "a.xml")
    assert found[2] == "Letter\na\nSeen\ntoday"
    assert [each.reason for each in unread if isinstance(each, Unread)] == [
        "a part of it: not PDF, or locked by a password",
        "a part of it: it is compressed",
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<a/>", "not a ClinicalDocument"),
        (b"<ClinicalDocument", "damaged"),
        (clinical(STRUCTURED, patient=""), "no patient"),
        (clinical(STRUCTURED, patient='<id nullFlavor="UNK" root="1.2"/>'), "no patient"),
        (clinical(STRUCTURED, patient='<id extension=" " root="1.2"/>'), "no patient"),
        (clinical(STRUCTURED, patient=f'<id root="1"/>{MOTHER}<id root="2"/>'), "several patients"),
        (clinical(STRUCTURED, patient=f'<id root="1"/>{MOTHER}'), "several patients"),
        (clinical('<nonXMLBody><text compression="DF">AAAA</text></nonXMLBody>'), "compressed"),
        (clinical("<structuredBody/>"), "no text"),
        (clinical('<nonXMLBody><text><reference value="a.pdf"/></text></nonXMLBody>'), "never fetched"),
        (clinical("&lol;", head='<!DOCTYPE x [<!ENTITY lol "&a;&a;"><!ENTITY a "boo">]>'), "DOCTYPE"),
        (clinical("", head='<!DOCTYPE x SYSTEM "file:///etc/passwd">'), "DOCTYPE"),
    ],
)
def test_a_clinical_document_that_cannot_be_read(data: bytes, reason: str) -> None:
    (found,) = read_document(data, "a.xml")
    assert isinstance(found, Unread)
    assert reason in found.reason


# --------------------------------------------------------------------------------------------------------------- pages


def archive(**parts: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in parts.items():
            written.writestr(name.replace("__", "/") + ".xml", content)
    return made.getvalue()


def docx(lines: list[str]) -> bytes:
    from xml.sax.saxutils import escape

    runs = "".join(f'<w:p><w:r><w:t xml:space="preserve">{escape(line)}</w:t></w:r></w:p>' for line in lines)
    return archive(word__document=f'<w:document xmlns:w="urn:w"><w:body>{runs}</w:body></w:document>')


def odt(lines: list[str]) -> bytes:
    from xml.sax.saxutils import escape

    runs = "".join(f"<text:p>{escape(line)}</text:p>" for line in lines)
    return archive(content=f'<o:body xmlns:o="urn:o" xmlns:text="urn:t">{runs}</o:body>')


def rtf(lines: list[str]) -> bytes:
    def sign(character: str) -> str:
        if character in "\\{}":
            return f"\\{character}"
        if character.isascii():
            return character
        units = character.encode("utf-16-le")
        numbers = [int.from_bytes(units[at : at + 2], "little", signed=True) for at in range(0, len(units), 2)]
        return "".join(f"\\u{number}?" for number in numbers)

    return ("{\\rtf1\\ansi " + "\\par ".join("".join(map(sign, line)) for line in lines) + "}").encode()


def html(lines: list[str]) -> bytes:
    from html import escape

    return "".join(f"<p>{escape(line)}</p>" for line in lines).encode()


def mail(lines: list[str]) -> bytes:
    made = EmailMessage()
    made["Subject"] = "Report"
    made.set_content("\n".join(lines))
    return bytes(made)


@pytest.mark.parametrize(
    ("kind", "write"), [("docx", docx), ("odt", odt), ("rtf", rtf), ("html", html), ("mail", mail)]
)
def test_every_word_of_a_page_comes_in_order(kind: str, write: Any) -> None:
    @given(LINES)
    def check(lines: list[str]) -> None:
        assert text_of(write(lines), kind).split() == [
            *(["Subject:", "Report"] if kind == "mail" else []),
            *"\n".join(lines).split(),
        ]

    check()


def test_what_word_hides_is_not_read_and_what_it_shows_is() -> None:
    body = (
        '<w:document xmlns:w="urn:w" xmlns:mc="urn:mc"><w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t>'
        "</w:r>"
        "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:instrText>PAGE</w:instrText></w:r>"
        "<mc:AlternateContent><mc:Choice><w:r><w:t>once</w:t></w:r></mc:Choice><mc:Fallback><w:r><w:t>once</w:t></w:r>"
        "</mc:Fallback></mc:AlternateContent></w:p></w:document>"
    )
    head = '<w:hdr xmlns:w="urn:w"><w:p><w:r><w:t>Ward 3</w:t></w:r></w:p></w:hdr>'
    assert text_of(archive(word__document=body, word__header1=head), "docx") == "Ward 3\na\tb\nconce"


WORD = '<w:document xmlns:w="urn:w"><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:document>'
IN_ODT = '<o:body xmlns:o="urn:o" xmlns:text="urn:t"><text:p>{}</text:p></o:body>'
ALTERNATIVES = (
    b"Content-Type: multipart/alternative; boundary=b\n\n--b\n\nplain\n--b\nContent-Type: text/html\n\n<p>no\n--b--\n"
)


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("docx", archive(word__document=WORD.format("a</w:t><w:p><w:t>box</w:t></w:p><w:t>b")), "a\nbox\nb"),
        (
            "docx",
            archive(word__document=WORD.format("a</w:t><w:ptab/><w:moveFrom><w:t>x</w:t></w:moveFrom><w:t>b")),
            "a\tb",
        ),
        ("odt", archive(content=IN_ODT.format("a<text:note><text:p>foot</text:p></text:note>b")), "a\nfoot\nb"),
        ("odt", archive(content=IN_ODT.format("a<o:annotation><text:p>note</text:p></o:annotation>b")), "ab"),
        (
            "rtf",
            rb"{\rtf1 a " + 2 * rb'{\field{\*\fldinst{HYPERLINK "x"}}{\fldrslt {\cf1 link}}} b ' + b"}",
            "a link b link b ",
        ),
        (
            "rtf",
            rb"{\rtf1\trowd\cellx100\cellx200\pard\intbl Name\cell Smith|\cell\row a \\cell}",
            "Name\tSmith|\t\na \\cell",
        ),
        (
            "rtf",
            rb"{\rtf1\ansi\binfsxn4 a {\*\shppict{\pict{\*\picprop}\pngblip ff\}d8}} b{\pict\bin4 }{\\ \bin1 {} "
            rb"C:\\bin\\pict\par c}",
            "a  b C:\\bin\\pict\nc",
        ),
        ("rtf", rb"{\rtf1 a{\*\objdata\bin3 }{\}b\b\bin2 {}c}{\pict\bin9", "abc"),
        ("rtf", rb"{\rtf1\ansi a {\b\*\cs7 seen} {\*\cs8 style}\\*b \{\*c}", "a seen \\*b {c"),
        ("rtf", rb"{\rtf1{\pntext 1.\tab}a\par{\listtext 2.\tab}b}", "1.\ta\n2.\tb"),
        ("html", b"a<center>b</center>c<details>d<summary>e</summary>f</details>g", "a\nb\nc\nd\ne\nf\ng"),
        ("mail", b"Content-Transfer-Encoding: Base64 (as sent) \n\nTWFy\n aWE=\n", "\nMaria"),
        ("mail", b"Content-Transfer-Encoding: quoted-printable \n\nM=C3=BCller", "\nMüller"),
        ("mail", b"Content-Transfer-Encoding: base64\n\nTWFy\naWE", "\nMaria"),
        (
            "mail",
            b"Content-Transfer-Encoding: base64\n\nTWFy\naWE\n\nThe list of the ward\n",
            "\nMaria\nThe list of the ward",
        ),
        ("mail", b"Content-Transfer-Encoding: base64\n\nTWFyaWE=\n____\nWard\n", "\nMaria\n____\nWard"),
        (
            "mail",
            b"Content-Transfer-Encoding: x-uuencode\n\nSee:\nbegin 644 a.txt\n%36%R:6$ \n`\nend\nfoot\n",
            "\nMaria\nSee:\n\nfoot",
        ),
        (
            "rtf",
            rb"{\rtf1 a{\shp{\*\shpinst\shpleft9{\sp{\sn x}{\sv 202}}{\shptxt \pard box\par \{}}"
            rb"{\shprslt{\*\do{\dptxbxtext no}}}}b{\object\objemb{\*\objclass Word}{\*\objdata ff}"
            rb"{\result {\pict ff}{\b seen}}}c{\*\do\dobxpage{\dptxbxtext old}}d}",
            "a\nbox\n{\nb\nseen\nc\nold\nd",
        ),
        (
            "rtf",
            rb"{\rtf1 {\fonttbl{\f0\fnil Arial;}{\f1\fnil\fcharset204 Arial;}{\f2\fcharset161 x;}}"
            rb"\f0 \'e0 \f1 \'e0 \f2 \'e0}",
            "à а ΰ",
        ),
        (  # the font of the beginning and behind \plain is the default one; a font of set 1 has that of the document
            "rtf",
            rb"{\rtf1\ansi\ansicpg1252\deff1{\fonttbl{\f0\fcharset161 x;}{\f1\fnil\fcharset204 Arial;}}"
            rb"\'e0 \f0 \'e0 \plain\fs20 \'e0}",
            "а ΰ а",
        ),
        ("rtf", rb"{\rtf1\ansicpg1253\deff0{\fonttbl{\f0\fcharset1 x;}}\f0 \'e0\plain \'e0}", "ΰΰ"),
        (
            "docx",
            archive(
                word__document=WORD.format("a"),
                word__diagrams__data1=WORD.format("of a drawing"),
                word__charts__chart2=WORD.format("of a chart"),
            ),
            "a\nof a drawing\nof a chart",
        ),
        ("html", b"<!-- %s --><meta charset=windows-1251><p>\xe0" % (b"x" * 9000), "а"),
        ("html", b"<meta charset=unicode><p>a", "a"),
        ("html", b"<meta charset=iso-8859-1><p>\x93a\x94 \xe9", "“a” é"),
        ("mail", b"Content-Type: text/plain; charset=latin1\n\nAnna\x92s \xe9", "\nAnna’s é"),
        ("mail", b"Content-Type: text/plain; charset=latin1\n\n\x81\x92", "\n\x81\x92"),
        ("mail", b"Content-Transfer-Encoding: 8-bit\n\nM\xc3\xbcller", "\nMüller"),
        (
            "mail",
            b"From: a@b.c (Maria =?utf-8?q?M=C3=BCller?=)\nTo: x@y.z, Ward@Three <w@y.z>\nTo: second@y.z\n"
            b"Date: Fri, 1 Jan 2021 9:00 -0700 (PDT)\n\nx",
            "From: a@b.c (Maria Müller)\nTo: x@y.z, Ward@Three <w@y.z>\nTo: second@y.z\n"
            "Date: Fri, 1 Jan 2021 9:00 -0700 (PDT)\n\nx",
        ),
        ("mail", b"Content-Type: multipart/mixed;\n boundary=----=_A\n\n------=_A\n\na b=c\n------=_A--", "\na b=c"),
        (
            "mail",
            b"Subject: s\nContent-Type: multipart/mixed; boundary=a\n\n--a\n" + ALTERNATIVES + b"--a\n\nfoot\n--a\n"
            b"Content-Type: text/html\n\n<p>page\n--a\nContent-Type: message/rfc822\n\nSubject: t\n\ninner\n--a--",
            "Subject: s\n\nplain\nfoot\npage\nSubject: t\n\ninner",
        ),
    ],
)
def test_a_text_within_another_is_neither_lost_nor_joined(kind: str, data: bytes, text: str) -> None:
    assert text_of(data, kind) == text


def test_a_page_that_names_an_encoding_that_it_cannot_have_is_read() -> None:
    assert text_of('<meta charset="utf-16"><p>Müller'.encode(), "html") == "Müller"


@given(
    st.lists(
        st.sampled_from(
            [
                b"<p>", b"<meta charset=utf-8>", "aé“\U0001f600".encode(), b"\xe9", b"\0", b"\xef\xbb\xbf", b"\xff\xfe",
                b"\xed\xa0\x80", b"\xf5", b"\x81",
            ]
        ),
        max_size=6,
    ).map(b"".join)
)  # fmt: skip
def test_a_page_is_decoded_as_other_text(data: bytes) -> None:
    def outcome(read: Any) -> str:
        try:
            return str(read())
        except UnreadableError as error:
            return f"unreadable: {error}"

    named = "utf-8" if b"charset=" in data else None
    decoded = outcome(lambda: contents._require_text(html_text(contents._plain(data, named))))
    assert outcome(lambda: text_of(data, "html")) == decoded


def test_an_attachment_of_mail_is_read_by_its_name_where_its_type_says_nothing() -> None:
    made = EmailMessage()
    made.set_content("See the report.")
    made.add_attachment(docx(["Seen today."]), maintype="application", subtype="octet-stream", filename="Report.DOCX")
    made.add_attachment(b"\x00", maintype="image", subtype="png", filename="scan.png")
    assert text_of(bytes(made), "mail").split("\n") == ["", "See the report.", "Seen today."]


def test_a_mail_of_which_a_part_is_not_read_is_read_and_the_part_listed(tmp_path: Path) -> None:
    made = EmailMessage()
    made.set_content("See the report.")
    for subtype, data in (("msword", b"x"), ("pdf", b"x"), ("pdf", pdf("Seen today."))):
        made.add_attachment(data, maintype="application", subtype=subtype, filename="a")
    (tmp_path / "a.eml").write_bytes(bytes(made))
    source = Exports(CorpusConfig(source=f"pages://{tmp_path}", individual="(.*)"), tmp_path)
    (text,) = (row for batch in source.batches(["text"]) for row in batch.column(0).to_pylist())
    assert text.split("\n") == ["", "See the report.", "Seen today."]
    reasons = ("a type of content that is not read", "not PDF, or locked by a password")
    assert source._unread == [Unread("a.eml", f"a part of it: {reason}") for reason in reasons]
    with pytest.raises(UnreadableError, match="a part of it"):
        text_of(bytes(made), "mail")


def test_a_file_beside_a_page_of_mail_is_read_where_plain_text_is_preferred_to_the_page() -> None:
    """Some programs put what is attached into the alternative that is a page."""
    made = EmailMessage()
    made.set_content("See below.")
    made.add_alternative("<p>See below.", subtype="html")
    (_, page) = made.iter_parts()
    page.make_mixed()  # type: ignore[attr-defined]
    page.add_attachment(docx(["Seen today."]), maintype="application", subtype="octet-stream", filename="a.docx")  # type: ignore[attr-defined]
    assert text_of(bytes(made), "mail").split("\n") == ["", "See below.", "Seen today."]


def test_each_part_of_mail_is_read_once_however_deep_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    data, depth, reads = b"Content-Type: text/plain; name=f\n\ndeep\n", 9, Counter[bytes]()
    for number in range(depth):
        data = (
            b"Content-Type: multipart/alternative; boundary=b%d; name=f\n\n--b%d\n\npart %d\n--b%d\n%s\n--b%d--\n"
            % (number, number, number, number, data, number)
        )
    read = contents.text_of

    def counting(content: bytes, *more: Any) -> str:
        reads[content] += 1
        return read(content, *more)

    monkeypatch.setattr(contents, "text_of", counting)
    text = "\n".join(["", *(f"part {number}" for number in reversed(range(depth))), "deep"])
    assert read(b"Subject: s\n" + data, "mail") == "Subject: s\n" + text
    assert set(reads.values()) == {1}
    assert len(reads) == depth + 1


def test_a_page_keeps_its_lines_and_loses_its_scripts() -> None:
    head = "<html><head><style>p {}</style><script>x('<p>')</script></head><body>"
    page = head + "<pre>a\n b</pre><p>M&uuml;l<b>ler</b>\n x</p>"
    assert html_text(page + "<table><tr><td>1</td><td>2</td></tr></table><!-- no --></body>") == "a\nb\nMüller x\n1\t2"


#: Lines and cells of a page by lxml and XSLT, of elements that are closed and stand where they may.
_PAGE_ORACLE = f"""
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="text"/>
  <xsl:template match="script|style|template|comment()|processing-instruction()"/>
  <xsl:template match="br|hr">{LINE}</xsl:template>
  <xsl:template match="div|h1|li|p|pre|table|tr|ul">{LINE}<xsl:apply-templates/>{LINE}</xsl:template>
  <xsl:template match="td|th"><xsl:apply-templates/>{CELL}</xsl:template>
  <xsl:template match="pre//text()"><xsl:value-of select="translate(., '&#10;', '{LINE}')"/></xsl:template>
</xsl:stylesheet>
"""
_INLINE = st.lists(
    st.sampled_from(
        (
            *(
                "a",
                "b ",
                " c",
                "d\r\ne",
                "\n",
                "&lt;p&gt;",
                "&eacute",
                "&nope;",
                "\xa0",
                "<br/>",
                "<!-- <p> -->",
                "1 < 2",
            ),
            *("<i>f</i>", "<script>'</p>'</script>", "<STYLE>p</STYLE>", "<template><p>g</template>", "<a b='>'>h</a>"),
        )
    ),
    max_size=4,
).map("".join)
_BLOCKS = st.recursive(
    st.tuples(st.sampled_from(["div", "h1", "p", "pre"]), _INLINE).map("<{0[0]}>{0[1]}</{0[0]}>".format),
    lambda blocks: st.one_of(
        st.lists(blocks, max_size=3).map(lambda found: f"<div>{''.join(found)}</div>"),
        st.lists(blocks | _INLINE, max_size=3).map(lambda found: f"<ul><li>{'</li> <li>'.join(found)}</li></ul>"),
        st.lists(st.lists(blocks | _INLINE, min_size=1, max_size=3).map("</td> <td>".join), max_size=3).map(
            lambda rows: "<table>" + "".join(f"<tr><td>{row}</td></tr>\n" for row in rows) + "</table>"
        ),
    ),
    max_leaves=12,
)


@given(_BLOCKS)
def test_lines_of_a_page_match_oracle(page: str) -> None:
    tree = lxml.etree.fromstring(page, lxml.etree.HTMLParser())
    assert html_text(page) == fold_white_space(str(lxml.etree.XSLT(lxml.etree.fromstring(_PAGE_ORACLE))(tree)))


@given(st.text(st.sampled_from(f"ab \t\n\r\f\v\xa0{LINE}{CELL}")))
def test_folded_lines_match_oracle(text: str) -> None:
    cells = re.sub(r"[ \t\n\r\f]+", " ", text).replace(CELL, "\t")
    assert fold_white_space(text) == re.sub(rf"[ \t]*{LINE}[ \t{LINE}]*", "\n", cells).strip()


def pdf(text: str, form: str = "", of_page: str = "", *fields: str) -> bytes:
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        f"<</Type/Catalog/Pages 2 0 R{form}>>".encode(),
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>%s>>"
        % of_page.encode(),
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *map(str.encode, fields),
    ]
    made, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj%s endobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    return made + end % (len(places) + 1, table, len(places) + 1, len(made))


def test_a_pdf_with_a_layer_of_text_and_one_without() -> None:
    assert text_of(pdf("Seen by Dr. Roe today"), "pdf").strip() == "Seen by Dr. Roe today"
    for data, reason in ((pdf(""), "layer of text"), (b"no", "not PDF")):
        with pytest.raises(UnreadableError, match=reason):
            text_of(data, "pdf")


@pytest.mark.parametrize(
    "field",
    [
        "/FT/Tx/T(a)/V(Maria Weber)",
        "/FT/Tx/T(a)/V(Maria Weber)/AP<</N 8 0 R>>",
        "/FT/Ch/Ff 131072/T(a)/V(Maria Weber)/Opt[(b)(Maria Weber)]",
        "/Parent 7 0 R",
    ],
)
def test_what_is_filled_into_a_pdf_is_read_at_its_place(field: str) -> None:
    drawn = "/Tx BMC BT /F1 12 Tf 2 4 Td (Maria Weber) Tj ET EMC"
    font = "/Font<</F1 5 0 R>>"
    fields = (
        f"<</Subtype/Widget/Rect[110 715 300 735]{field}>>",
        "<</FT/Tx/T(a)/V(Maria Weber)/Kids[6 0 R]>>",
        f"<</Subtype/Form/BBox[0 0 190 20]/Resources<<{font}>>/Length {len(drawn)}>>stream\n{drawn}\nendstream",
    )
    form = f"/AcroForm<</Fields[{7 if 'Parent' in field else 6} 0 R]/DA(/F1 12 Tf 0 g)/DR<<{font}>>>>"
    assert text_of(pdf("Name:", form, "/Annots[6 0 R]", *fields), "pdf").split() == ["Name:", "Maria", "Weber"]
    if "/N" in field:  # what is written onto a page that has no form
        typed = fields[0].replace("/Widget", "/FreeText")
        assert text_of(pdf("Name:", "", "/Annots[6 0 R]", typed, *fields[1:]), "pdf").split() == [
            "Name:",
            "Maria",
            "Weber",
        ]
    dynamic = form.replace("/Fields", "/XFA(a)/Fields") + "/NeedsRendering true"
    with pytest.raises(UnreadableError, match="XFA"):
        text_of(pdf("Please wait", dynamic, "/Annots[6 0 R]", *fields), "pdf")


@pytest.mark.parametrize("value", ["123456789", "12 345"])
def test_a_pdf_form_with_a_cell_for_each_letter_gives_whole_words(value: str) -> None:
    fields = f"<</Subtype/Widget/Rect[110 715 300 735]/FT/Tx/T(a)/Ff 16777216/MaxLen 9/V({value})>>"
    form = "/AcroForm<</Fields[6 0 R]/DA(/F1 12 Tf 0 g)/DR<</Font<</F1 5 0 R>>>>>>"
    assert text_of(pdf("Number 1 2:", form, "/Annots[6 0 R]", fields), "pdf").split() == [
        "Number",
        "1",
        "2:",
        *value.split(),
    ]


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        (b"PK nothing", "docx", "archive"),
        (archive(other="<a/>"), "docx", "not DOCX"),
        (archive(other="<a/>"), "odt", "not ODT"),
        (archive(content="<a"), "odt", "XML is damaged"),
        (archive(content="<a", **{"META-INF/manifest": "<encryption-data/>"}), "odt", "locked"),
        (rb"{\rtf1{\fonttbl{\f0\fcharset128 x;}}\f0 \'96 a}", "rtf", "character set of their font"),
        (archive(content='<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'), "odt", "DOCTYPE"),
        (archive(word__document=WORD.format("a</w:t><w:altChunk/><w:t>b")), "docx", "altChunk"),
        (b"plain", "rtf", "not RTF"),
        (rb"{\rtf1 a{\pict ff} b{\pict ff", "rtf", "a picture in it"),
        (rb"{\rtf1 a{\pict\bin99 ff}} b}", "rtf", "a picture in it"),
        (rb"{\rtf1 a{\pict\bin-3 ff} b}", "rtf", "a picture in it"),
        (rb"{\rtf1 a\pict ff b}", "rtf", "a picture in it"),
        (rb"{\rtf1\binfsxn4 a {\picture b}}", "rtf", "a picture in it"),
        (b"plain", "mail", "not a message"),
        (b"Subject: " + b"=?utf-8?q?a?= " * 9000 + b"\n\nx", "mail", "a head of mail larger"),
        (b"Content-Transfer-Encoding: base64\n\nTWFyaWEgV2ViZXI=a", "mail", "not base64"),
        (b"Content-Transfer-Encoding: BASE64 \n\nTWFya", "mail", "not base64"),
        (b"Content-Transfer-Encoding: base64\n\nTWFyaWE=\n%", "mail", "not base64"),
        (b"Content-Transfer-Encoding: base-64\n\nTWFyaWE=", "mail", "encoding of mail"),
        (
            b"Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\nTWFyaWE=",
            "mail",
            "encoding of mail",
        ),
        (b"Content-Transfer-Encoding: x-uuencode\n\n%3Whatever", "mail", "not uuencoded"),
        (b"Content-Transfer-Encoding: uue\n\nbegin 644 a\n%36%R:6$ \n", "mail", "not uuencoded"),
        (b"Content-Transfer-Encoding: base64\n\nTWFy\n%% a\n" + b"TWFy" * 15, "mail", "not base64"),
        (b"<p>a</p>" + b"<div>" * 5000 + b"x", "html", "nested too deep"),
        (b"", "plain", "no text"),
    ],
)
def test_a_page_that_cannot_be_read_says_why(data: bytes, kind: str, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        text_of(data, kind)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_head_of_mail_is_measured_before_the_library_reads_it(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_HEAD", 1000)
    monkeypatch.setattr(contents.email, "message_from_bytes", None)
    for head in ("; a=b" * 300, f"{end} ; a=b" * 200):
        with pytest.raises(UnreadableError, match="a head of mail larger"):
            text_of(f"X: y{end}Content-Type: text/plain{head}{end}{end}x".encode(), "mail")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_document_type_is_refused_before_the_tree_is_made(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entity that it leaves unknown takes memory there."""
    body = f"<a>{'&amp;' * 20_000}<![CDATA[<!DOCTYPE html>]]></a>"
    assert sum(event == "text" for event, *_ in contents.elements(body.encode(encoding), frozenset())) == 1
    monkeypatch.setattr(lxml.etree, "fromstring", None)
    for head in ("", "<!-- > --> "):
        with pytest.raises(UnreadableError, match="DOCTYPE"):
            list(contents.elements(f'{head}<!DOCTYPE a SYSTEM "q">{body}'.encode(encoding), frozenset()))


@pytest.mark.parametrize("fonts", [rb"\f0" * 20_000, rb"\f0" * 500 + rb"\fcharset0" + b"y" * 2000])
def test_fonts_of_rtf_take_linear_time(fonts: bytes) -> None:
    before = time.process_time()
    assert text_of(rb"{\rtf1{\fonttbl{" + fonts + rb"}}Seen.}", "rtf") == "Seen."
    assert time.process_time() - before < 1


def test_marks_that_take_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_MARKS", 100)
    with pytest.raises(UnreadableError, match="more than 100 elements"):
        text_of(archive(content=f"<a>{'<b/>' * 100}</a>"), "odt")
    assert text_of(b"<p a=b c>x" * 200_000 + b"<p " + b"a=b " * 200_000, "html") == "\n".join("x" * 200_000)


def test_a_library_that_is_missing_stops_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    body = f'<nonXMLBody><text mediaType="application/pdf" representation="B64">{b64(pdf("x"))}</text></nonXMLBody>'
    for read in (
        lambda: of_line(reference(attachment={"contentType": "application/pdf", "data": b64(pdf("x"))})),
        lambda: list(read_document(clinical(body), "a.xml")),
    ):
        with pytest.raises(PolicyError, match="pypdfium2 is not installed"):
            read()


@pytest.mark.parametrize(
    ("kind", "bomb"),
    [
        ("odt", archive(content="<a>" + " " * (4 << 20) + "</a>")),
        ("odt", archive(content=IN_ODT.format("x" + '<text:s text:c="9999"/>' * 200))),
        ("pdf", pdf("x" * 4000).replace(b"Kids[3 0 R]/Count 1", b"Kids[%s]/Count 400" % (b"3 0 R " * 400))),
    ],
)
def test_a_file_that_explodes_is_refused(kind: str, bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(bomb) < 20_000
    monkeypatch.setattr(contents, "MAX_BYTES", 1 << 20)
    with pytest.raises(UnreadableError, match="larger than 1 MiB"):
        text_of(bomb, kind)


# ------------------------------------------------------------------------------------------------------------ in a run


def test_a_run_reads_an_export_once_and_lists_what_it_could_not(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    rows = [reference(id=f"d{n}", subject={"reference": f"Patient/{n % 6}"}) for n in range(12)]
    bad = reference(id="bad", subject={})
    lines = "\n".join(map(json.dumps, [*rows, {"resourceType": "Patient", "id": "0"}, bad]))
    (folder / "documents.ndjson").write_text(lines)
    (folder / "notes.bin").write_bytes(b"x")
    corpus = {"source": f"fhir://{folder}"}
    job = parse_job({"out": str(tmp_path / "run"), "corpus": corpus, "index": {"updatable": True}})
    run = Run(job)
    execute(run, "index")
    corpus = open_configured(staged_job(job).corpus)
    assert corpus.num_documents == 12
    unread = pq.read_table(tmp_path / "run/corpus/unread.parquet")
    assert unread.to_pylist() == [{"place": "documents.ndjson line 14", "reason": "it has no subject"}]
    counts = json.loads((tmp_path / "run/corpus/manifest.json").read_text())["counts"]
    assert (counts["unread"], counts["passed_over"]) == (1, 1)
    (folder / "gone.txt").write_text("2\n")
    update_run(run, tmp_path / "less", [], [folder / "gone.txt"], Progress(quiet=True))
    counts = json.loads((tmp_path / "less/corpus/manifest.json").read_text())["counts"]
    assert (counts["documents"], "unread" in counts) == (10, False)
    for gone in ([], [folder / "gone.txt"]):  # the second time the snapshot is there, with whom the list names
        update_run(run, tmp_path / "again", [], gone, Progress(quiet=True), refresh=True)
        left = [pq.read_table(file)["individual_id"].to_pylist() for file in staged_files(tmp_path / "again/corpus")]
        assert ["2" in ids for ids in left] == [not gone]


def found_in(folder: Path, scheme: str, connections: int = 1) -> tuple[list[Any], list[Unread]]:
    source = Exports(CorpusConfig(source=f"{scheme}://{folder}"), folder)
    source.version()
    parts = (source.batches(FoundDocument._fields, part=n, parts=connections) for n in range(connections))
    return [tuple(row.values()) for batch in chain(*parts) for row in batch.to_pylist()], source._unread


@pytest.mark.parametrize("connections", [1, 3])
def test_documents_of_one_id_are_told_apart_and_the_same_one_comes_once(connections: int, tmp_path: Path) -> None:
    for number, who in enumerate("7787"):
        line = json.dumps(reference(subject={"reference": f"Patient/{who}"}, description=str(number)))
        (tmp_path / f"{number}.ndjson").write_text(f"{line}\n")
    found, unread = found_in(tmp_path, "fhir", connections)
    assert [row[:2] for row in found] == [("DocumentReference/d1", "7"), ("DocumentReference/d1#2", "8")]
    assert [each.place for each in unread] == ["1.ndjson", "3.ndjson"]


def numbered(names: list[tuple[str, str]], seen: dict[str, bytes]) -> list[str | None]:
    """The ids of documents of (id, text), None of a repeated one."""
    source, repeated = Exports(CorpusConfig(source="fhir://x"), Path()), dict[str, tuple[int, set[bytes]]]()
    found = [source._with_unique_id(FoundDocument(name, "7", text), seen, repeated, Path("x")) for name, text in names]
    return [each.doc_id if isinstance(each, FoundDocument) else None for each in found]


@given(st.lists(st.tuples(st.sampled_from(["a", "a#2", "a#3", "a#2#2"]), st.sampled_from("xyzuvw")), max_size=20))
def test_numbers_of_a_repeated_id_match_oracle(names: list[tuple[str, str]]) -> None:
    texts, expected = dict[str, str](), list[str | None]()
    for name, text in names:
        tried = [name, *(f"{name}#{number}" for number in range(2, 30))]
        free = next(each for each in tried if each not in texts or texts[each] == text)
        expected.append(None if free in texts else free)
        texts[free] = text
    assert numbered(names, {}) == expected


def test_a_number_is_looked_for_behind_the_last() -> None:
    class Counting(dict[str, bytes]):
        asked = 0

        def __contains__(self, key: object) -> bool:
            self.asked += 1
            return super().__contains__(key)

    seen = Counting()
    assert numbered([("a", str(number)) for number in range(500)], seen)[-1] == "a#500"
    assert seen.asked < 500 * 5


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_attachment_of_another_file_is_taken_and_of_two_neither(suffix: str, tmp_path: Path) -> None:
    """A bulk export keeps attachments as Binary in files of their own; the address is that of its server."""
    said = ["Zanzi\n", "bar", "x", "y"]
    kept = [
        {"resourceType": "Binary", "id": name, "contentType": "text/plain", "data": b64(text.encode())}
        for name, text in zip(["b1", "b2", "b3", "b3"], said, strict=True)
    ]
    data = "\n".join([json.dumps(kept[0]), "{broken", *map(json.dumps, kept[1:])]).encode()
    (tmp_path / f"Binary.ndjson{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    ends = ["Binary/b1", "https://host.example/fhir/Binary/b2/_history/1", "Binary/b3", "Binary/none"]
    rows = [reference(id=f"d{n}", attachment={"data": None, "url": end}) for n, end in enumerate(ends)]
    (tmp_path / "DocumentReference.ndjson").write_text("\n".join(map(json.dumps, rows)))
    found, unread = found_in(tmp_path, "fhir")
    assert [row[2] for row in found] == ["Zanzi\n", "bar"]
    assert [(each.place.partition(" ")[2], "never fetched" in each.reason) for each in unread] == [
        ("line 2", False),
        ("line 3", True),
        ("line 4", True),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"Binary.ndjson{suffix}", "DocumentReference.ndjson"]


ONE, OTHER = "https://one.example/fhir", "https://other.example/fhir"


@pytest.mark.parametrize(
    ("references", "read"),
    [
        ([("Patient/7", f"{ONE}/Binary/b1")], [0]),
        ([(f"{ONE}/Patient/7", f"{ONE}/Binary/b1")], [0]),
        ([(f"{ONE}/Patient/7", f"{OTHER}/Binary/b1")], []),
        ([(f"{ONE}/Patient/7/_history/2", f"{OTHER}/Binary/b1/_history/1")], []),
        ([("Patient/7", f"{ONE}/Binary/b1"), ("Patient/7", f"{OTHER}/Binary/b1")], []),
        ([("Patient/7", "Binary/b1"), (f"{ONE}/Patient/7", f"{OTHER}/Binary/b1")], [0]),
        ([("Patient/7", f"{ONE}/Binary/b1"), ("Patient/7", f"{ONE}/old/Binary/b1")], []),
        ([("Patient/7", "/fhir/Binary/b1"), ("Patient/7", "//other.example/fhir/Binary/b1")], [0]),
        ([("Patient/7", f"{ONE}:8443/Binary/b1"), ("Patient/7", f"{ONE}/Binary/b1")], []),
    ],
)
@pytest.mark.parametrize("form", ["lines", "lines that escape", "bundle"])
def test_an_attachment_of_another_server_is_none_of_this_export(
    references: list[tuple[str, str]], read: list[int], form: str, tmp_path: Path
) -> None:
    """Its Binary of the same id is another one; which server is that of the export, one alone can say."""
    kept = {"resourceType": "Binary", "id": "b1", "contentType": "text/plain", "data": b64(b"Zanzibar")}
    (tmp_path / "Binary.ndjson").write_text(json.dumps(kept))
    rows = [
        reference(id=f"d{n}", subject={"reference": who}, attachment={"data": None, "url": url})
        for n, (who, url) in enumerate(references)
    ]
    if form == "bundle":
        bundle = {"resourceType": "Bundle", "entry": [{"resource": row} for row in rows]}
        (tmp_path / "bundle.json").write_text(json.dumps(bundle, indent=1))
    else:
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / "a.ndjson").write_text(text.replace("/", r"\/") if form == "lines that escape" else text)
    found, unread = found_in(tmp_path, "fhir")
    assert [row[0] for row in found] == [f"DocumentReference/d{n}" for n in read]
    assert {row[2] for row in found} <= {"Zanzibar"}
    assert len(unread) == len(rows) - len(read)
    assert all("never fetched" in each.reason for each in unread)


def individuals_in(folder: Path) -> tuple[dict[str, str], list[Unread]]:
    found, unread = found_in(folder, "fhir")
    return {row[0].partition("/")[2]: row[1] for row in found}, unread


@pytest.mark.parametrize("form", ["lines", "lines that escape", "gz", "bundle"])
def test_patients_of_two_servers_with_one_id_are_two_individuals(form: str, tmp_path: Path) -> None:
    who = [
        f"{ONE}/Patient/7", f"{OTHER}/Patient/7", "Patient/7", f"{ONE}/Patient/7/_history/2", f"{OTHER}/Patient/8",
        "HTTP://One.example:443/fhir/Patient/7",
    ]  # fmt: skip
    for number, one in enumerate(who):
        row = reference(id=f"d{number}", subject={"reference": one})
        text = json.dumps({"resourceType": "Bundle", "entry": [{"resource": row}]} if form == "bundle" else row)
        if form == "lines that escape":
            text = text.replace("/", "\\/" if number % 2 else "\\u002f")
        name = {"bundle": f"{number}.json", "gz": f"{number}.ndjson.gz"}.get(form, f"{number}.ndjson")
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if form == "gz" else text.encode())
    found, unread = individuals_in(tmp_path)
    one, other = "one.example/fhir/Patient/7", "other.example/fhir/Patient"
    assert found == {"d0": one, "d1": f"{other}/7", "d3": one, "d4": f"{other}/8", "d5": one}
    assert [each.reason for each in unread] == ["its subject is of one of several servers, and of which is not said"]
    assert unread[0].place.startswith("2.")


def test_of_one_server_an_id_is_that_of_the_patient_however_it_is_named(tmp_path: Path) -> None:
    """A Patient of another server whom no document is about is none of the export's individuals."""
    link = {"other": {"reference": f"{OTHER}/Patient/9"}, "type": "replaced-by"}
    rows = [
        reference(id="d0", subject={"reference": "Patient/7"}),
        reference(id="d1", subject={"reference": f"{ONE}/Patient/7"}),
        reference(id="d2", subject={"identifier": {"system": "urn:s", "value": "7"}}),
        {"resourceType": "Patient", "id": "7", "link": [link]},
    ]
    (tmp_path / "a.ndjson").write_text("\n".join(map(json.dumps, rows)))
    assert individuals_in(tmp_path) == ({"d0": "7", "d1": "7", "d2": "7"}, [])


def test_a_relative_reference_is_of_the_server_of_its_entry(tmp_path: Path) -> None:
    """Neither a Patient nor a Binary of the other server is taken for that of the document's."""
    patient, binary = {"resourceType": "Patient", "id": "7"}, {"resourceType": "Binary", "id": "b", "data": b64(b"x")}
    entries = [
        {"fullUrl": f"{server}/{row['resourceType']}/{row['id']}", "resource": row}
        for server, document in ((ONE, "d0"), (OTHER, "d1"))
        for row in (patient, reference(id=document))
    ]
    beside = [{"resource": row} for row in (reference(id="d2"), reference(id="d3", subject={"reference": "urn:x:y"}))]
    bundle = {"resourceType": "Bundle", "entry": [*entries, *beside]}
    (tmp_path / "a.json").write_text(json.dumps(bundle))
    afar = reference(id="d4", subject={"reference": f"{ONE}/Patient/7"}, attachment={"data": None, "url": "Binary/b"})
    (tmp_path / "b.ndjson").write_text("\n".join(map(json.dumps, (afar, binary))))
    found, unread = individuals_in(tmp_path)
    one, other = "one.example/fhir/Patient/7", "other.example/fhir/Patient/7"
    assert found == {"d0": one, "d1": other, "d3": "urn:x:y"}
    assert [(each.place, each.reason.partition(",")[0]) for each in unread] == [
        ("a.json entry 5", "its subject is of one of several servers"),
        ("b.ndjson line 1", "its text stands at an address"),
    ]


OLD, NEW = ({"resourceType": "Patient", "id": number} for number in "12")


@pytest.mark.parametrize("form", ["lines", "bundle"])
@pytest.mark.parametrize(
    ("kind", "of", "is_joined"),
    [("replaced-by", OLD, True), ("replaces", NEW, True), ("refer", OLD, False), ("seealso", OLD, False)],
)
def test_a_patient_whom_another_record_replaces_is_one_individual(
    kind: str, of: dict[str, Any], is_joined: bool, form: str, tmp_path: Path
) -> None:
    other = {"other": {"reference": f"Patient/{NEW['id'] if of is OLD else OLD['id']}"}, "type": kind}
    patients = [each | ({"link": [other]} if each is of else {}) for each in (OLD, NEW)]
    notes = [reference(id=n, subject={"reference": f"Patient/{n}"}) for n in "12"]
    if form == "lines":
        for name, rows in (("notes", notes), ("patients", patients)):
            (tmp_path / f"{name}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        entries = [{"fullUrl": f"http://h/Patient/{p['id']}", "resource": p} for p in patients]
        entries += [{"resource": note} for note in notes]
        (tmp_path / "bundle.json").write_text(json.dumps({"resourceType": "Bundle", "entry": entries}))
    found, unread = individuals_in(tmp_path)
    assert found == {"1": "2" if is_joined else "1", "2": "2"}
    assert not unread


def test_several_servers_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    who = [(server, number) for server in (ONE, OTHER) for number in range(9)]
    rows = [reference(id=f"d{n}", subject={"reference": f"{each[0]}/Patient/{each[1]}"}) for n, each in enumerate(who)]
    (tmp_path / "in/a.ndjson").write_text("\n".join(map(json.dumps, rows)))
    corpus = {"source": f"fhir://{tmp_path / 'in'}"}
    execute(Run(parse_job({"out": str(tmp_path / "run"), "corpus": corpus, "seed": 1})), "split")
    assert "patients of 2 servers" in " ".join(capsys.readouterr().err.split())


def test_an_odd_line_hides_no_attachment_behind_it(tmp_path: Path) -> None:
    kept = {"resourceType": "Binary", "contentType": "text/plain", "data": b64(b"Zanzibar")}
    bundle = {"resourceType": "Bundle", "id": "b1", "entry": [{"resource": {**kept, "id": "b2"}}]}
    deep = '{"resourceType":"Binary","id":' + "[" * 100_000
    cut, lists = json.dumps(kept)[:-1], [json.dumps({**kept, "id": ["b"]}), json.dumps([kept])]
    lines = [cut, deep, *lists, json.dumps(bundle), json.dumps({**kept, "id": "b1"})]
    (tmp_path / "Binary.ndjson").write_text("\n".join(lines))
    row = reference(attachment={"data": None, "url": "Binary/b1"})
    (tmp_path / "DocumentReference.ndjson").write_text(json.dumps(row))
    assert [row[2] for row in found_in(tmp_path, "fhir")[0]] == ["Zanzibar"]


def test_an_attachment_of_a_bundle_may_stand_in_a_file_of_lines(tmp_path: Path) -> None:
    kept = {"resourceType": "Binary", "id": "b1", "contentType": "text/plain", "data": b64(b"Zanzibar")}
    (tmp_path / "Binary.ndjson").write_text(json.dumps(kept))
    entries = [{"resource": reference(attachment={"data": None, "url": "Binary/b1"})}]
    (tmp_path / "bundle.json").write_text(json.dumps({"resourceType": "Bundle", "entry": entries}))
    assert [row[2] for row in found_in(tmp_path, "fhir")[0]] == ["Zanzibar"]


def test_a_damaged_file_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(json.dumps(reference()).encode())
    for name, data in (
        ("a.json.gz", packed[:-9]),
        ("b.ndjson.gz", b""),
        ("c.ndjson", json.dumps(reference(id="\ud800")).encode()),
        ("d.ndjson", b"[" * 5000 + b"\n" + json.dumps(reference()).encode()),
        (
            "e.json",
            b'{"resourceType":"Composition","id":"c","subject":{"reference":"Patient/1"},"section":['
            + b'{"section":[' * 300
            + b'{"title":"deep"}'
            + b"]}" * 300
            + b"]}",
        ),
    ):
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(exports, "MAX_BYTES", 4000)
    (row,), unread = found_in(tmp_path, "fhir")
    assert row[0] == "DocumentReference/d1"
    assert [each.place for each in unread] == ["a.json.gz", "b.ndjson.gz", "c.ndjson", "d.ndjson line 1", "e.json"]


def test_a_file_that_changes_while_it_is_read_stops_the_reading(tmp_path: Path) -> None:
    (tmp_path / "a.hl7").write_bytes(message("OBX|1|TX|||a"))
    source = Exports(CorpusConfig(source=f"hl7://{tmp_path}"), tmp_path)
    source.version()
    (tmp_path / "a.hl7").write_bytes(message("OBX|1|TX|||abc"))
    with pytest.raises(CorpusError, match="changed"):
        list(source.batches(["text"]))
    read = source._read_documents

    def gone(file: Path) -> Any:
        found = list(read(file))
        file.unlink()
        return found

    source._read_documents = gone  # type: ignore[method-assign]
    with pytest.raises(CorpusError, match="cannot be read"):
        list(source.batches(["text"]))


def test_a_page_that_changes_behind_its_reading_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_CHARACTERS", 1)  # a batch of each note
    for name in ("a.txt", "b.txt"):
        (tmp_path / "p").mkdir(exist_ok=True)
        (tmp_path / "p" / name).write_text("note")
    batches = Exports(CorpusConfig(source=f"pages://{tmp_path}"), tmp_path).batches(["text"])
    assert next(batches).num_rows == 1
    (tmp_path / "p/a.txt").write_text("another note")
    with pytest.raises(CorpusError, match="changed"):
        list(batches)


def test_other_parts_of_pages_have_nothing_to_read_or_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first part notes the states of the files meanwhile."""
    (tmp_path / "p").mkdir()
    (tmp_path / "p/a.txt").write_text("note")
    source = Exports(CorpusConfig(source=f"pages://{tmp_path}"), tmp_path)
    next(source.batches(["text"]))
    monkeypatch.setattr(exports, "_state", lambda file: pytest.fail("looked at"))
    assert not list(source.batches(["text"], part=1, parts=2))


def test_pages_too_large_that_change_are_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p/a.txt").write_text("a long note")
    monkeypatch.setattr(exports, "MAX_BYTES", 4)
    monkeypatch.setattr(contents, "MAX_BYTES", 4)
    source = Exports(CorpusConfig(source=f"pages://{tmp_path}"), tmp_path)
    assert not list(source.batches(["text"]))
    (tmp_path / "p/a.txt").write_text("a note")
    with pytest.raises(CorpusError, match="changed"):
        source.version()


def test_the_name_of_a_file_may_be_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "p1").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/p1/\xe9.txt")).write_text("one")
    assert found_in(tmp_path, "pages")[0] == [("p1/\\xe9.txt", "p1", "one", None, None)]


@pytest.mark.parametrize("num_bytes", [1, 1000, 1 << 18])
def test_pages_come_in_their_order_whichever_thread_reads_them(
    num_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_BYTES", num_bytes)
    (tmp_path / "p").mkdir()
    kinds = (("pdf", pdf), ("html", lambda text: html([text])), ("txt", str.encode), ("rtf", lambda _: b"no"))
    for number in range(40):
        suffix, write = kinds[number % 4]
        (tmp_path / "p" / f"{number:02}.{suffix}").write_bytes(write(f"note {number}"))
    rows, unread = found_in(tmp_path, "pages")
    assert [row[2].strip() for row in rows] == [f"note {number}" for number in range(40) if number % 4 < 3]
    assert unread == [Unread(f"p/{number:02}.rtf", "not RTF") for number in range(3, 40, 4)]


def test_pages_are_opened_once_and_nothing_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For their texts and for the version of the export: of small files the opening is most of the cost."""
    (tmp_path / "in").mkdir()
    for number in range(5):
        (tmp_path / f"in/p{number}").mkdir()
        (tmp_path / f"in/p{number}" / "note.html").write_bytes(b"<p>a")
    settings = CorpusConfig(source=f"pages://{tmp_path}/in")
    version = Exports(settings, tmp_path).version().decode()
    opened, really = Counter[Path](), io.open

    def counting(file: Any, *more: Any, **named: Any) -> Any:
        opened[Path(file)] += 1
        return really(file, *more, **named)

    def counting_files(files: list[Path], most: int) -> list[bytes]:
        opened.update(files)
        return read(files, most)

    monkeypatch.setattr(io, "open", counting)
    read = _rust.read_files
    monkeypatch.setattr(_rust, "read_files", counting_files)
    with open_remote(settings, tmp_path) as source:
        assert stage(source, settings, tmp_path)["snapshot"] == version
    pages = {file: count for file, count in opened.items() if file.is_relative_to(tmp_path / "in")}
    del pages[tmp_path / "in/manifest.json"], pages[tmp_path / "in/job.json"]
    assert pages == dict.fromkeys(tmp_path.glob("in/*/note.html"), 1)


def test_the_table_of_individuals_is_read_once_for_both_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_BYTES", 1)
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / "in" / f"{number}.txt").write_text("note")
    (tmp_path / "owners.csv").write_text("doc_id,individual_id\n" + "".join(f"{each},p{each}\n" for each in range(4)))
    asked, read = list[str](), exports.owners_of_table

    def slow(table: str, columns: Any) -> dict[str, str]:
        asked.append(table)
        time.sleep(0.2)
        return read(table, columns)

    monkeypatch.setattr(exports, "owners_of_table", slow)
    settings = CorpusConfig(source=f"pages://{tmp_path / 'in'}", individuals=str(tmp_path / "owners.csv"))
    (batch,) = Exports(settings, tmp_path).batches(["individual_id"])
    assert batch.column(0).to_pylist() == ["p0", "p1", "p2", "p3"]
    assert asked == [settings.individuals]


def test_pages_are_of_the_individual_of_their_folder(tmp_path: Path) -> None:
    for name, data in (("p1/a.rtf", rtf(["one"])), ("p2/b.docx", docx(["two"])), ("p2/c.pdf", pdf("three"))):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    job = parse_job({"out": str(tmp_path / "run"), "corpus": {"source": f"pages://{tmp_path / 'in'}"}, "seed": 1})
    execute(Run(job), "split")
    rows = pq.read_table(tmp_path / "run/corpus/documents-00000-00000.parquet").to_pylist()
    assert [(row["individual_id"], row["text"].strip()) for row in rows] == [
        ("p1", "one"),
        ("p2", "two"),
        ("p2", "three"),
    ]


def test_a_run_that_can_read_nothing_says_why(tmp_path: Path) -> None:
    (tmp_path / "p1").mkdir()
    (tmp_path / "p1/a.pdf").write_bytes(pdf(""))
    settings = CorpusConfig(source=f"pages://{tmp_path}")
    with pytest.raises(CorpusError, match="no documents; 1 not read: a PDF without a layer"):
        stage(Exports(settings, tmp_path), settings, tmp_path)


def test_a_file_that_is_named_and_of_no_kind_of_pages_is_listed(tmp_path: Path) -> None:
    for name in ("a.doc", "b.html", "c"):
        (tmp_path / name).write_text("<p>text")
    source = Exports(CorpusConfig(source=f"pages://{tmp_path}/*", individual="(.*)"), tmp_path)
    assert [row for batch in source.batches(["text"]) for row in batch.column(0).to_pylist()] == ["text"]
    assert source._unread == [Unread(name, "a kind of file that is not read") for name in ("a.doc", "c")]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"source": "fhir://nowhere"}, CorpusError, "nowhere"),
        ({"source": "hl7://.", "format": "csv"}, PolicyError, "means nothing"),
        ({"source": "fhir://.", "individual": "(.*)"}, PolicyError, "means nothing"),
        ({"source": "fhir://.", "table": "x"}, PolicyError, "means something for a database"),
    ],
)
def test_settings_that_do_not_fit_an_export(
    settings: dict[str, Any], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        execute(Run(parse_job({"out": str(tmp_path / "run"), "corpus": settings})), "split")


def test_a_column_that_an_export_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text(json.dumps(reference()))
    with pytest.raises(CorpusError, match="column ward is missing"):
        execute(
            Run(
                parse_job(
                    {"out": str(tmp_path / "run"), "corpus": {"source": f"fhir://{tmp_path}", "household_id": "ward"}}
                )
            ),
            "split",
        )


def test_the_settings_name_the_individuals_of_pages(tmp_path: Path) -> None:
    config = CorpusConfig(source=f"pages://{tmp_path}", individual="(.*)-.*")
    assert config.remote == f"pages://{tmp_path}"


# -------------------------------------------------------------------------------------------------------- written back

IDS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1, max_size=20)


@pytest.mark.parametrize("scheme", FORMS)
@given(
    ids=st.tuples(IDS, IDS),
    text=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\ufeff")).filter(str.strip),
)
def test_what_is_written_is_read_again(scheme: str, ids: tuple[str, str], text: str) -> None:
    line = FORMS[scheme][1](*ids, text).encode()
    (found,) = exports._READERS[scheme](line, "here")
    assert isinstance(found, FoundDocument)
    assert (found.individual_id, found.text) == (ids[1], text)
    assert found.doc_id == ids[0] or json.loads(line)["identifier"] == [{"value": ids[0]}]


def test_two_documents_have_two_ids_of_fhir() -> None:
    long = "b" * 64
    ids = [
        "DocumentReference/d1#2", "DocumentReference/d1-2", "DocumentReference/d1_2", "Composition/d1",
        "DocumentReference/Composition-d1", f"Composition/{long}", f"Composition/{long[:-1]}c",
        "DocumentReference/", "DocumentReference", "DiagnosticReport/a/b",
    ]  # fmt: skip
    written = [json.loads(FORMS["fhir"][1](each, "7", "Seen today.")) for each in ids]
    assert all(re.fullmatch(r"[A-Za-z0-9.-]{1,64}", each["id"]) for each in written)
    assert len({(each["resourceType"], each["id"]) for each in written}) == len(ids)
    assert written[1]["id"] == "d1-2"
    assert written[-1]["resourceType"] == "DiagnosticReport"


@pytest.mark.parametrize("scheme", FORMS)
def test_scrub_writes_the_form_that_it_read_and_nothing_but_text_and_ids(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    text = "Mrs. Amelie Quendler was seen.\nShe sleeps | well."
    if scheme == "fhir":
        given_back = reference(
            description="Amelie Quendler", attachment={"data": b64(text.encode()), "title": "Quendler"}
        )
        rows = [json.dumps(given_back), json.dumps(reference(id="d2", subject={"reference": "Patient/8"}))]
        (tmp_path / "in/a.ndjson").write_text("\n".join(rows))
    else:
        lines = [f"OBX|1|TX|||{line.replace('|', chr(92) + 'F' + chr(92))}" for line in text.split("\n")]
        other = message("OBX|1|TX|||Seen today.", control="M2").replace(b"123", b"124")
        (tmp_path / "in/a.hl7").write_bytes(message(*lines) + other)
    job = parse_job({"out": str(tmp_path / "run"), "corpus": {"source": f"{scheme}://{tmp_path / 'in'}"}, "seed": 1})
    execute(Run(job), "split")
    scrub_documents(job, tmp_path / "out", ScrubConfig(style="tag"), in_run_folder=True, progress=Progress(quiet=True))
    (file,) = (tmp_path / "out/export").iterdir()
    assert "Quendler" not in file.read_text()
    before, after = found_in(tmp_path / "in", scheme)[0], found_in(tmp_path / "out/export", scheme)[0]
    assert [row[:2] for row in before] == [row[:2] for row in after]
    assert after[0][2] == "Mrs. [NAME] was seen.\nShe sleeps | well."
