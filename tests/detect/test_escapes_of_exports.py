"""Escapes of an export: every detector reads through them, and spans lie on the text as it is."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.engine.corpus import open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from tests.oracles.escapes import unescape

SPELLINGS = {
    "as it is": "Müller",
    "HTML name": "M&uuml;ller",
    "HTML number": "M&#252;ller",
    "HTML hexadecimal": "M&#xFC;ller",
    "HTML twice": "M&amp;uuml;ller",
    "quoted-printable, Latin-1": "M=FCller",
    "quoted-printable, UTF-8": "M=C3=BCller",
    "URL, UTF-8": "M%C3%BCller",
    "URL, Latin-1": "M%FCller",
    "RTF": "M\\'fcller",
    "RTF, Unicode": "M\\u252?ller",
    "RTF, Unicode and a byte": "M\\u252\\'fcller",
    "JSON": "M\\u00fcller",
    "JSON within JSON": "M\\\\u00fcller",
    "HL7": "M\\XFC\\ller",
    "HL7, UTF-8": "M\\XC3BC\\ller",
    "UTF-8 read as Windows-1252": "MÃ¼ller",
    "the same, capitals": "MÃœLLER",
    "the same, Latin-1": "M\u00c3\u009cLLER",
    "the same, twice": "MÃƒÂ¼ller",
    "set apart": "M U L L E R",
    "set apart, with accents": "M Ü L L E R",
    "set apart by two spaces": "M  Ü  L  L  E  R",
}


def rules(text: str, **options: Any) -> list[tuple[str, str]]:
    found = pa.record_batch(_rust.scan_rules(pa.array([text]), **options)).to_pylist()
    return [(hit["label"], text[hit["start"] : hit["end"]]) for hit in found]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_detector_reads_every_spelling(spelling: str, tmp_path: Path) -> None:
    name = SPELLINGS[spelling]
    text = f"😀\x00\u00a0Vu ce jour.\r\nAvis de Dr. {name}, puis retour de {name}."
    table = pa.table({"doc_id": ["d"], "individual_id": ["p"], "text": [text]})
    pq.write_table(table, tmp_path / "documents.parquet")
    pq.write_table(pa.table({"individual_id": ["p"], "last_name": ["Müller"]}), tmp_path / "records.parquet")
    (tmp_path / "names.txt").write_text("Müller\n", encoding="utf-8")
    options: dict[str, dict[str, Any]] = {
        "rules": {},
        "records": {"table": str(tmp_path / "records.parquet")},
        "gazetteer": {"lists": {"NAME": str(tmp_path / "names.txt")}, "guard": False},
    }
    counts = {"rules": 1, "records": 2, "gazetteer": 2}
    for detector, kind in options.items():
        detect_spans(
            open_corpus(tmp_path / "documents.parquet"), make_detectors([detector], {detector: kind}), tmp_path
        )
        spans = pq.read_table(tmp_path / "spans.parquet").to_pylist()
        assert [text[s["start"] : s["end"]] for s in spans] == [name] * counts[detector], detector


@pytest.mark.parametrize(
    "text",
    [
        "K=40 Na=142 SpO2=98 pH=7.35 Hb=12 HbA1c=6.5%",
        "name=FABIEN SEX=FEMALE TYPE=BAD",
        "50%20mg 5%C 100%FiO2 12% of 50",
        "C:\\users\\ulrich \\u12 \\'2",
        "AT&T; R&D; &unknown; &#0; &#xD800; a & b;",
        "https://a.org/b%20c?x=%41 www.b.org/d%20e",
        "I am a b c, grade A B C and stage I I",
        "ratio 5 /\n10, Na 140\n80 K",
        "M Ü L   L E R",
        "short line=\nnext",
        "PÅ» NÃO, IRMÃ. «MÄ» SÍ» ÍÓ ESPAÑA",
        "C:\\Xray\\ \\.bashrc \\X1\\ \\X41\\ l’été…»",
    ],
)
def test_what_is_no_escape_stays(text: str) -> None:
    assert _rust.unescape(text)[0] == text == unescape(text)[0]


WRAPPED = f"{'word ' * 14}mrn 1234\n5678 of that day, and {'then ' * 8}the end of it."


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("SSN 123-45-\n6789", "SSN 123-45-6789"),
        ("on 12/03/\r\n   2004", "on 12/03/2004"),
        (WRAPPED, WRAPPED.replace("\n", " ")),
        (WRAPPED.replace("word ", "word\n"), WRAPPED.replace("word ", "word\n")),
        ("J E A N  D U P O N T", "JEAN DUPONT"),
        ("d e L  É  V  Y  A  N  N  E.", "d e LÉVYANNE."),
    ],
)
def test_layouts_are_undone(text: str, plain: str) -> None:
    assert _rust.unescape(text)[0] == plain == unescape(text)[0]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Ã‰lodie, NoÃ«l, GarcÃ\u00adaÂ\u00a0", "Élodie, Noël, García\u00a0"),
        ("Oâ€™Brien â€“ Nguyá»…n", "O’Brien – Nguyễn"),
        ("Å‚Ã³dÅº", "łódź"),
        ("Ð˜Ð²Ð°Ð½", "Иван"),
        ("a\\.br\\b\\X0D0A\\c", "a\nb\nc"),
    ],
)
def test_utf_8_that_was_read_otherwise_and_breaks_of_hl7_are_undone(text: str, plain: str) -> None:
    assert _rust.unescape(text)[0] == plain == unescape(text)[0]


@pytest.mark.parametrize(
    "broken",
    ["Müllner\nová", "Müllner-\nová", "Müllner=\r\nová", "Müllner\\.br\\ová", "MÜLL\n  NEROVÁ", "M\nüllnerová"],
)
@pytest.mark.parametrize("first", ["", "Žofie "])
def test_a_name_of_a_record_is_found_over_the_end_of_a_line(broken: str, first: str, tmp_path: Path) -> None:
    text = f"seen today with {first}{broken} and no fever"
    assert records_in(text, tmp_path) == [f"{first}{broken}"]


@pytest.mark.parametrize(
    "apart", ["Müll nerová", "Müll, nerová", "Müll\n\nnerová", "Müll\n- nerová", "Müll.\nnerová", "müll\nund"]
)
def test_parts_of_a_name_on_one_line_or_in_two_sentences_are_none(apart: str, tmp_path: Path) -> None:
    assert records_in(f"seen today with {apart} and no fever", tmp_path) == []


def misread_forms(name: str) -> Iterator[str]:
    """The name, small and in capitals too, written in one encoding and read in another."""
    for form in (name, name.lower(), name.upper()):
        for written in (
            "cp1250",
            "iso8859_2",
            "cp852",
            "cp1251",
            "koi8_r",
            "cp866",
            "cp1253",
            "cp1254",
            "cp850",
            "utf8",
        ):
            for read in ("cp1252", "latin1", "cp1250", "cp1251", "cp850"):
                with suppress(UnicodeError):
                    found = form.encode(written).decode(read)
                    # Without a letter nothing is left of a name.
                    if sum(char.isalpha() for char in unicodedata.normalize("NFKD", found)) > 3:
                        yield found


@pytest.mark.parametrize(
    "name", ["Wałęsińska", "Łódź", "Щербаков", "Иванова", "Παπαδόπουλος", "Noël", "Şahin", "Kőműves"]
)
def test_a_name_of_a_record_is_found_however_it_was_misread(name: str, tmp_path: Path) -> None:
    forms = sorted({*misread_forms(name)})
    assert len(forms) > 15
    text = "\n".join(f"seen was {form}, no fever." for form in forms)
    found = records_in(text, tmp_path, name)
    assert len(found) == len(forms)
    signs = [form for form, span in zip(forms, found, strict=True) if any(map(str.isalnum, form.replace(span, "")))]
    assert signs == []


@pytest.mark.parametrize(
    "written",
    [
        *("Müll<!-- page 2 -->nerová", "Müll<!----><WBR />nerová", "M?llnerov?", "M\ufffd\ufffdllnerov\ufffd\ufffd"),
        *(r"M\"ullnerov\'a", r"M{\"u}llnerov{\'a}", r"M\"{u}llnerov\'{a}"),
    ],
)
def test_a_name_of_a_record_is_found_as_html_and_tex_write_it(written: str, tmp_path: Path) -> None:
    assert records_in(f"seen today with {written} and no fever", tmp_path) == [written]


@pytest.mark.parametrize(
    "text", ["Wal sa", "a3oda", "llnerov", "M llnerov", "Müll <!-- a -->nerová", "Müll<b>nerová", "Müll<!-- nerová"]
)
def test_what_only_looks_like_a_misread_name_is_none(text: str, tmp_path: Path) -> None:
    assert records_in(f"seen today {text} and no fever", tmp_path) == []


def records_in(text: str, folder: Path, last: str = "Müllnerová") -> list[str]:
    """What the record of Žofie Müllnerová finds in a text."""
    table = pa.table({"doc_id": ["d", "e"], "individual_id": ["p", "q"], "text": [text, "seen today"]})
    pq.write_table(table, folder / "documents.parquet")
    record = pa.table({"individual_id": ["p"], "first_name": ["Žofie"], "last_name": [last]})
    pq.write_table(record, folder / "records.parquet")
    detector = make_detectors(["records"], {"records": {"table": str(folder / "records.parquet")}})
    detect_spans(open_corpus(folder / "documents.parquet"), detector, folder)
    return [text[s["start"] : s["end"]] for s in pq.read_table(folder / "spans.parquet").to_pylist()]


@pytest.mark.parametrize(
    ("text", "label", "found"),
    [
        ("SSN 123-45-\n6789", "SSN", "123-45-\n6789"),
        ("phone (236) 792-\n5090", "PHONE", "(236) 792-\n5090"),
        ("IBAN FR76 3000 6000 0112\n3456 7890 189", "IBAN", "FR76 3000 6000 0112\n3456 7890 189"),
        ("NHS 943 476\n5919", "NHS", "943 476\n5919"),
        ("SSN 123,45,6789", "SSN", "123,45,6789"),
        (WRAPPED, "MRN", "1234\n5678"),
        ("Patient: D U P O N T", "NAME", "D U P O N T"),
        ("PATIENT: J E A N  D U P O N T\nAge: 4", "NAME", "J E A N  D U P O N T"),
    ],
)
def test_rules_read_numbers_over_lines_and_letters_apart(text: str, label: str, found: str) -> None:
    assert (label, found) in rules(text)


def test_one_word_behind_patient_is_a_name_only_with_its_letters_apart() -> None:
    assert rules("Patient: DUPONT") == rules("Patient: STABLE") == []


def test_soft_line_breaks_of_full_lines_are_undone() -> None:
    text = "x" * 40 + " the patient was seen by Dr. Hern=\r\nandez today"
    assert "Dr. Hernandez today" in _rust.unescape(text)[0]
    assert ("NAME", "Hern=\r\nandez") in rules(text)


@pytest.mark.parametrize("name", ["M=C3=BCller", "M=FCller"])
@pytest.mark.parametrize("end", ["=\n", "=\r\n"])
def test_soft_line_breaks_beside_and_within_an_escape_are_undone(name: str, end: str) -> None:
    for place in (1, 4, 7)[: name.count("=") + 1]:
        broken = name[:place] + end + name[place:]
        text = f"{'x' * 50} was seen by Dr. {broken} today"
        assert ("NAME", broken) in rules(text)
        assert _rust.unescape(text)[0] == unescape(text)[0]


@pytest.mark.parametrize("name", ["O\\u0027Brien", "\\u004d\\u00fcller"])
def test_signs_of_ascii_that_json_escapes_are_read(name: str) -> None:
    assert rules(f"seen by Dr. {name} today") == [("NAME", name)]


PIECES = [
    *SPELLINGS.values(),
    *[
        "&",
        ";",
        "=",
        "%",
        "\\",
        "'",
        "#",
        "x",
        "amp;",
        "&amp;",
        "&amp;amp;",
        "=FC",
        "=C3",
        "=BC",
        "%C3",
        "%BC",
        "%FC",
        "%20",
        "%2C",
        "\\'e9",
        "\\u00e9",
        "\\u0027",
        "\\u004d",
        *("<!-- x -->", "<!--", "-->", "<wbr>", "<WBR/>", "<"),
        f"{'x' * 61}=C3=\n",
        f"{'x' * 60}M=\r\n=FC",
        "\\u233?",
        "\\ud83d",
        *(
            "\\XFC\\",
            "\\X",
            "\\.br\\",
            "\\\\u00fc",
            "Ã",
            "¼",
            "Å",
            "»",
            "â€™",
            "á»…",
            "Â",
            "\u00ad",
            "ƒ",
            "€",
            "\u0083",
        ),
        "\\ude00",
    ],
    *(
        "=\n",
        "=\r\n",
        "é",
        "😀",
        "\x00",
        "\u00a0",
        "\u200b",
        "e\u0301",
        "D U P O N T",
        "D É  À Ü",
        "  A  B",
        "12-\n3",
        "12\r\n 3",
        f"{'x' * 57} 12\n345",
        " A B",
        "a b c d",
        " ",
        "\n",
        "x" * 62,
        "FC",
        "4",
    ),
]


FORMS = ("Dr. ", "NHC: 12345", "tel. 06 12 34 56 78", "Edad: 45", "Adresse :\n12 rue Haute", "| Name | Ann |")


@settings(max_examples=examples(400))
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=14).map("".join))
@example("M=C3=BCller%C3%BC\\'fc")
@example("A B C Dé")
def test_unescape_matches_oracle(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    plain, starts = _rust.unescape(text)
    expected, bounds = unescape(text)
    assert plain == expected
    assert starts == [start for start, _ in bounds]


@settings(max_examples=examples(200))
@given(
    st.lists(st.sampled_from([*PIECES, "Dr. ", "NHC: 12345", "tel. 06 12 34 56 78", "Edad: 45"]), max_size=10).map(
        " ".join
    )
)
def test_spans_lie_on_the_text(text: str) -> None:
    found = pa.record_batch(_rust.scan_rules(pa.array([text]))).to_pylist()
    slow = pa.record_batch(_rust.scan_rules(pa.array([text]), filtered=False)).to_pylist()
    assert found == slow
    assert all(0 <= hit["start"] < hit["end"] <= len(text) for hit in found)
