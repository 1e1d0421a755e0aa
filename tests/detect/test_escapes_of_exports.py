"""Escapes of an export: every detector reads through them, and spans lie on the text as it is."""

from __future__ import annotations

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
    "JSON": "M\\u00fcller",
    "set apart": "M U L L E R",
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
        "short line=\nnext",
    ],
)
def test_what_is_no_escape_stays(text: str) -> None:
    assert _rust.unescape(text)[0] == text == unescape(text)[0]


def test_soft_line_breaks_of_full_lines_are_undone() -> None:
    text = "x" * 40 + " the patient was seen by Dr. Hern=\r\nandez today"
    assert "Dr. Hernandez today" in _rust.unescape(text)[0]
    assert ("NAME", "Hern=\r\nandez") in rules(text)


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
        "\\u233?",
        "\\ud83d",
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


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=14).map("".join))
@example("M=C3=BCller%C3%BC\\'fc")
@example("A B C Dé")
def test_unescape_matches_oracle(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    plain, starts = _rust.unescape(text)
    expected, bounds = unescape(text)
    assert plain == expected
    assert starts == [start for start, _ in bounds]


@settings(max_examples=examples(200), deadline=None)
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
