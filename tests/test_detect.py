"""Direct identifiers: rules, gazetteers, record fields, gold spans, spaCy, and their union."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import BATCH_SPANS, Detector, detect_spans, make_detectors, spans_batch
from reticent.engine.detect.gazetteer import GazetteerDetector
from reticent.engine.detect.gold import GoldDetector
from reticent.engine.detect.rules import RulesDetector
from reticent.engine.detect.spans import SpanReader
from reticent.engine.schema import SPAN_TYPE, SPANS
from reticent.errors import ArtifactError, CorpusError, PolicyError

SECRET = "Zyxwvut"
Spans = list[dict[str, Any]]


def batch_of(texts: list[str], individuals: list[str] | None = None) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "doc_id": [f"d{i}" for i in range(len(texts))],
            "individual_id": individuals or [f"p{i}" for i in range(len(texts))],
            "text": pa.array(texts, pa.large_string()),
        }
    )


def found(detector: Detector, texts: list[str], individuals: list[str] | None = None) -> list[list[tuple[str, str]]]:
    """Label and text of the spans of each document, in order."""
    table = detector.detect(batch_of(texts, individuals))
    assert table.schema == BATCH_SPANS
    spans: list[list[tuple[str, str]]] = [[] for _ in texts]
    for row in sorted(table.to_pylist(), key=lambda r: (r["document"], r["start"], r["end"])):
        spans[row["document"]].append((row["label"], texts[row["document"]][row["start"] : row["end"]]))
    return spans


def rule(label: str, text: str) -> list[str]:
    return [piece for _, piece in found(RulesDetector([label]), [text])[0]]


POSITIVE = [
    ("EMAIL", "mail j.doe@chu-lyon.fr.", "j.doe@chu-lyon.fr"),
    ("EMAIL", "<anne+x_1%@mail.hospital.example>", "anne+x_1%@mail.hospital.example"),
    ("EMAIL", "e:ÉLODIE@exämple.org;", "ÉLODIE@exämple.org"),
    ("PHONE", "(555) 123-4567", "(555) 123-4567"),
    ("PHONE", "Tel(555) 123-4567,", "(555) 123-4567"),
    ("PHONE", "(555)123-4567", "(555)123-4567"),
    ("PHONE", "(555)-123-4567", "(555)-123-4567"),
    ("PHONE", "call 555-123-4567.", "555-123-4567"),
    ("PHONE", "555.123.4567", "555.123.4567"),
    ("PHONE", "555 123 4567", "555 123 4567"),
    ("PHONE", "555\u2011123\u20114567", "555\u2011123\u20114567"),
    ("PHONE", "+1 (555) 123-4567", "+1 (555) 123-4567"),
    ("PHONE", "1-555-123-4567", "1-555-123-4567"),
    ("PHONE", "555-123-4567x89", "555-123-4567x89"),
    ("PHONE", "555-123-4567 ext. 12", "555-123-4567 ext. 12"),
    ("PHONE", "tél. 06 12 34 56 78", "06 12 34 56 78"),
    ("PHONE", "06\u00a012\u00a034\u00a056\u00a078", "06\u00a012\u00a034\u00a056\u00a078"),
    ("PHONE", "06.12.34.56.78", "06.12.34.56.78"),
    ("PHONE", "06-12-34-56-78", "06-12-34-56-78"),
    ("PHONE", "06/12/34/56/78", "06/12/34/56/78"),
    ("PHONE", "0612345678", "0612345678"),
    ("PHONE", "+33 6 12 34 56 78", "+33 6 12 34 56 78"),
    ("PHONE", "+33612345678", "+33612345678"),
    ("PHONE", "+33 (0)6 12 34 56 78", "+33 (0)6 12 34 56 78"),
    ("PHONE", "0033 6 12 34 56 78", "0033 6 12 34 56 78"),
    ("PHONE", "+44 20 7946 0958", "+44 20 7946 0958"),
    ("PHONE", "+44 20 7946 0958 2nd floor", "+44 20 7946 0958"),
    ("PHONE", "+34 912 345 678", "+34 912 345 678"),
    ("DATE", "on 2021-03-04,", "2021-03-04"),
    ("DATE", "2021-03-04T10:45:00Z", "2021-03-04T10:45:00Z"),
    ("DATE", "2021-03-04T10:45", "2021-03-04T10:45"),
    ("DATE", "12/05/2020", "12/05/2020"),
    ("DATE", "5/12/20", "5/12/20"),
    ("DATE", "31.12.1999", "31.12.1999"),
    ("DATE", "DOB_12/05/2020", "12/05/2020"),
    ("DATE", "du 12/05-14/05/2020", "14/05/2020"),
    ("DATE", "since 05/2020", "05/2020"),
    ("DATE", "March 4, 2020", "March 4, 2020"),
    ("DATE", "Mar. 4th 2020", "Mar. 4th 2020"),
    ("DATE", "in March 2020", "March 2020"),
    ("DATE", "MARCH 12", "MARCH 12"),
    ("DATE", "March 12 1234b", "March 12"),
    ("DATE", "4 March 2020", "4 March 2020"),
    ("DATE", "4th of March, 2020", "4th of March, 2020"),
    ("DATE", "12-Mar-2020", "12-Mar-2020"),
    ("DATE", "12-Mar-20", "12-Mar-20"),
    ("DATE", "le 3 février 2021", "3 février 2021"),
    ("DATE", "le 3 fe\u0301vrier 2021", "3 fe\u0301vrier 2021"),
    ("DATE", "LE 3 FÉVRIER 2021", "3 FÉVRIER 2021"),
    ("DATE", "3 fevrier", "3 fevrier"),
    ("DATE", "le 1er mars", "1er mars"),
    ("DATE", "12 janv. 2020", "12 janv. 2020"),
    ("DATE", "15 août 2019", "15 août 2019"),
    ("DATE", "15\u00a0décembre\n2019", "15\u00a0décembre\n2019"),
    ("DATE", "mai 2020", "mai 2020"),
    ("DATE", "el 3 de febrero de 2020", "3 de febrero de 2020"),
    ("URL", "see https://x.org/a?b=1, now", "https://x.org/a?b=1"),
    ("URL", "(www.chu-lyon.fr)", "www.chu-lyon.fr"),
    ("IP", "from 10.0.0.1:", "10.0.0.1"),
    ("IP", "255.255.255.255", "255.255.255.255"),
    ("SSN", "123-45-6789", "123-45-6789"),
    ("SSN", "SSN 123 45 6789.", "123 45 6789"),
    ("SSN", "٣٣٣-٣٣-٣٣٣٣", "٣٣٣-٣٣-٣٣٣٣"),  # not a crash, and not nothing
    ("NIR", "1 84 12 76 451 089 46", "1 84 12 76 451 089 46"),
    ("NIR", "184127645108946", "184127645108946"),
    ("NIR", "1 84 12 76 451 089 / 46", "1 84 12 76 451 089 / 46"),
    ("NIR", "1 84 12 76 451 089 clé 46", "1 84 12 76 451 089 clé 46"),
    ("ID", "MRN 00123456", "00123456"),
    ("ID", "MRN_00123456", "00123456"),
    ("ID", "IPP:8001234567/2", "8001234567/2"),
    ("ID", "A1234567", "A1234567"),
    ("ID", "HN-12345", "HN-12345"),
    ("ID", "DNI 12345678Z", "12345678Z"),
]

NEGATIVE = [
    ("EMAIL", "a@b"),
    ("EMAIL", "2 tabs @ 8.00"),
    ("PHONE", "BP 120/80"),
    ("PHONE", "5551234567890123"),
    ("PHONE", "02/03/2020 10:30"),
    ("PHONE", "1234-567-8901"),
    ("PHONE", "+1 2"),
    ("PHONE", "room 555-1234"),
    ("DATE", "version 3.45.99"),
    ("DATE", "2021-13-40"),
    ("DATE", "12/05-2020"),
    ("DATE", "1.2.3"),
    ("DATE", "BP 120/80"),
    ("DATE", "13/2020"),
    ("DATE", "may improve 20 times"),
    ("DATE", "marching 12"),
    ("URL", "http:// x"),
    ("IP", "10.0.0.256"),
    ("IP", "1.2.3"),
    ("IP", "1.2.3.4x"),
    ("SSN", "000-12-3456"),
    ("SSN", "666-12-3456"),
    ("SSN", "912-12-3456"),
    ("SSN", "123-00-4567"),
    ("SSN", "123-45-0000"),
    ("SSN", "1123-45-6789"),
    ("NIR", "1 84 12 76 451 089 47"),
    ("NIR", "3 84 12 76 451 089 46"),
    ("NIR", "1 84 12 76 451 089"),
    ("ID", "12345"),
    ("ID", "B12"),
    ("ID", "ab1234567"),
]


@pytest.mark.parametrize(("label", "text", "expected"), POSITIVE)
def test_rule_finds(label: str, text: str, expected: str) -> None:
    hits = rule(label, text)
    assert expected in hits
    assert all(hit in expected for hit in hits)  # nothing beyond it


@pytest.mark.parametrize(("label", "text"), NEGATIVE)
def test_rule_leaves(label: str, text: str) -> None:
    assert rule(label, text) == []


def nir(body: str) -> str:
    """A French social security number with its key, by the definition: 97 - (number mod 97), 2A as 19, 2B as 18."""
    return f"{body}{97 - int(body.replace('2A', '19').replace('2B', '18')) % 97:02}"


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from("12"),
    st.integers(0, 99),
    st.integers(1, 12),
    st.one_of(st.sampled_from(["2A", "2B"]), st.integers(1, 95).map("{:02}".format)),
    st.integers(1, 990),
    st.integers(1, 999),
    st.integers(1, 96),
    st.sampled_from(["", " ", ".", "\u00a0"]),
)
def test_nir_is_known_by_its_key_alone(
    sex: str, year: int, month: int, place: str, commune: int, order: int, shift: int, sign: str
) -> None:
    number = nir(f"{sex}{year:02}{month:02}{place}{commune:03}{order:03}")
    wrong = f"{number[:13]}{(int(number[13:]) + shift - 1) % 97 + 1:02}"
    groups = [sign.join((n[0], n[1:3], n[3:5], n[5:7], n[7:10], n[10:13], n[13:])) for n in (number, wrong)]
    assert rule("NIR", f"NIR {groups[0]}.") == [groups[0]]
    assert rule("NIR", f"NIR {groups[1]}.") == []


def test_nir_of_corsica_by_hand() -> None:
    # 2A: 1 850 119 001 001 mod 97; worked with the substitution of 2A by 19.
    assert nir("185012A001001") == f"185012A001001{97 - 1850119001001 % 97:02}"
    assert rule("NIR", "185012A001001" + f"{97 - 1850119001001 % 97:02}") != []
    assert rule("NIR", "185012B001001" + f"{97 - 1850118001001 % 97:02}") != []
    assert rule("NIR", "185012a001001" + f"{97 - 1850119001001 % 97:02}") != []
    assert rule("NIR", "185012B001001" + f"{97 - 1850119001001 % 97:02}") == []  # the key of 2A


def test_every_rule_has_a_positive_and_a_negative_case() -> None:
    labels = {label for label, *_ in POSITIVE}
    assert labels == {label for label, _ in NEGATIVE}
    everything = " ; ".join(text for _, text, _ in POSITIVE)
    assert {label for label, _ in found(RulesDetector(), [everything])[0]} == labels


def test_unknown_label_of_a_rule_is_a_policy_error() -> None:
    with pytest.raises(PolicyError, match="unknown label"):
        RulesDetector(["COLOUR"]).detect(batch_of(["a"]))


@settings(max_examples=200, deadline=None)
@given(st.text(st.one_of(st.sampled_from("0123456789٣-/. :@+()xA(éT\u00a0\n😀"), st.characters()), max_size=60))
def test_rules_do_not_fail_on_any_text_and_stand_free(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    table = RulesDetector().detect(batch_of([text]))
    for row in table.to_pylist():
        a, b = row["start"], row["end"]
        assert 0 <= a < b <= len(text)
        assert not (a > 0 and text[a - 1].isalnum() and text[a].isalnum())
        assert not (b < len(text) and text[b - 1].isalnum() and text[b].isalnum())


def test_hostile_text_takes_linear_time() -> None:
    """Forms that almost match, over and over: a rejected match is tried again at a bounded number of places."""

    def seconds(times: int) -> float:
        pieces = ["1/2-", "+1 ", "(555) ", "a@", "http://", "a.b.c@d"]
        texts = [piece * times for piece in pieces]
        texts += ["a.b" * times + "@x.com2", "1-" * times + "x", "111111-1" + "-1" * times + "x"]
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            _rust.scan_rules(pa.array(texts), num_threads=1)
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(32_000) < 5 * 16 * seconds(2_000)  # quadratic time would be 256 times as much


def gazetteer(folder: Path, *names: str, num_threads: int = 0) -> GazetteerDetector:
    (folder / "names.txt").write_text("\n".join(names), encoding="utf-8")
    return GazetteerDetector({"NAME": folder / "names.txt"}, num_threads=num_threads)


# The union, over a corpus.


def write_corpus(path: Path, texts: list[str], spans: list[Spans | None] | None = None) -> Corpus:
    table = batch_of(texts)
    columns = {name: table.column(name) for name in table.schema.names}
    if spans is not None:
        columns["spans"] = pa.array(spans, pa.list_(SPAN_TYPE))
    write = feather.write_feather if path.suffix == ".arrow" else pq.write_table
    write(pa.table(columns), path)
    return open_corpus(path, columns=Columns(spans="spans" if spans is not None else None))


def span(start: int | None, end: int | None, label: str | None = "NAME") -> dict[str, Any]:
    return {"start": start, "end": end, "label": label}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_union_keeps_every_detector_and_orders_spans(tmp_path: Path, suffix: str) -> None:
    texts = ["😀 Ann 12.05.2020", "", "Ann Ann"]
    gold: list[Spans | None] = [[span(2, 5), span(6, 16, "DATE"), span(2, 5)], None, [span(4, 7)]]
    corpus = write_corpus(tmp_path / f"d.{suffix}", texts, gold)
    detectors = [GoldDetector(), RulesDetector(), gazetteer(tmp_path, "ann")]
    counts = detect_spans(corpus, detectors, tmp_path)
    table = pq.read_table(tmp_path / "spans.parquet")
    assert table.schema.equals(SPANS)
    rows = [tuple(row.values()) for row in table.select(range(6)).to_pylist()]
    assert rows == [
        (0, "d0", 2, 5, "NAME", "gazetteer"),
        (0, "d0", 2, 5, "NAME", "gold"),  # twice in the list, once here
        (0, "d0", 6, 16, "DATE", "gold"),
        (0, "d0", 6, 16, "DATE", "rules"),
        (2, "d2", 0, 3, "NAME", "gazetteer"),
        (2, "d2", 4, 7, "NAME", "gazetteer"),
        (2, "d2", 4, 7, "NAME", "gold"),
    ]
    assert counts == {"gold": 4, "rules": 1, "gazetteer": 3, "spans": 7}


def test_spans_do_not_depend_on_batches_threads_or_runs(tmp_path: Path) -> None:
    texts = [f"{'é😀' * (i % 3)} Ann {i:06} 12/05/{2000 + i}" for i in range(50)]
    gold: list[Spans | None] = [[span(0, 3)] if i % 3 else None for i in range(50)]

    def run(name: str, batch_rows: int, threads: int, suffix: str) -> pa.Table:
        folder = tmp_path / name
        folder.mkdir()
        corpus = write_corpus(folder / f"d.{suffix}", texts, gold)

        class Batched:
            def batches(self, columns: tuple[str, ...]) -> Any:
                return corpus.batches(columns=columns, batch_rows=batch_rows)

        detectors = [
            GoldDetector(),
            RulesDetector(num_threads=threads),
            gazetteer(folder, "Ann", num_threads=threads),
        ]
        detect_spans(Batched(), detectors, folder)  # type: ignore[arg-type]
        return pq.read_table(folder / "spans.parquet")

    once = run("once", 4096, 1, "parquet")
    assert once.num_rows > 150
    for name, rows, threads, suffix in (("a", 4096, 2, "parquet"), ("b", 7, 1, "parquet"), ("c", 7, 2, "arrow")):
        assert run(name, rows, threads, suffix) == once
    assert (tmp_path / "once" / "spans.parquet").read_bytes() == (tmp_path / "a" / "spans.parquet").read_bytes()


class Custom:
    name = "custom"
    columns: tuple[str, ...] = ()

    def __init__(self, detect: Callable[[pa.RecordBatch], pa.Table]):
        self.detect = detect


BAD_SPANS = [
    (span(-1, 2), r"span -1\.\.2 does not fit its text of 13 characters"),
    (span(5, 14), r"span 5\.\.14 does not fit its text of 13 characters"),
    (span(3, 3), r"span 3\.\.3 does not fit"),
    (span(5, 2), r"span 5\.\.2 does not fit"),
    (span(None, 2), "a span has no start"),
    (span(0, None), "a span has no end"),
    (span(0, 2, None), "a span has no label"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_SPANS)
def test_bad_gold_span_is_an_error_that_names_the_row_and_no_text(
    tmp_path: Path, bad: dict[str, Any], message: str
) -> None:
    texts = [f"{SECRET} was😀", f"{SECRET} was 😀", SECRET]
    corpus = write_corpus(tmp_path / "d.parquet", texts, [[span(0, 7)], [span(0, 7), bad], [span(0, 7)]])
    with pytest.raises(CorpusError, match=message) as error:
        detect_spans(corpus, [GoldDetector()], tmp_path)
    assert "row 2" in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(("bad", "message"), BAD_SPANS)
def test_bad_span_of_a_detector_is_an_error_that_names_the_document_and_no_text(
    tmp_path: Path, bad: dict[str, Any], message: str
) -> None:
    table = pa.Table.from_pylist([{"document": d, **s, "score": 1.0} for d, s in ((0, span(0, 7)), (1, bad))])
    detector = Custom(lambda batch: table.cast(BATCH_SPANS))
    corpus = write_corpus(tmp_path / "d.parquet", [f"{SECRET} was😀", f"{SECRET} was 😀"])
    with pytest.raises(CorpusError, match=message) as error:
        detect_spans(corpus, [detector], tmp_path)
    assert "detector custom, document 2 of the corpus" in str(error.value)
    assert SECRET not in str(error.value)


def test_gold_needs_its_column(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="needs the column spans"):
        detect_spans(write_corpus(tmp_path / "d.parquet", ["a"]), [GoldDetector()], tmp_path)


def test_a_detector_that_fails_stops_the_run_and_its_message_is_not_shown(tmp_path: Path) -> None:
    def fail(batch: pa.RecordBatch) -> pa.Table:
        raise ValueError(batch.column("text")[0].as_py())

    with pytest.raises(CorpusError, match=r"custom failed on document 1 of the corpus \(ValueError\)") as error:
        detect_spans(write_corpus(tmp_path / "d.parquet", [SECRET, "b"]), [Custom(fail)], tmp_path)
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


@pytest.mark.parametrize("document", [-1, 2])
def test_a_span_of_no_document_is_an_error(tmp_path: Path, document: int) -> None:
    detector = Custom(lambda batch: spans_batch([document], [0], [1], ["NAME"]))
    with pytest.raises(CorpusError, match="custom: a span of a document"):
        detect_spans(write_corpus(tmp_path / "d.parquet", ["a", "b"]), [detector], tmp_path)


def test_no_detector_and_no_span_are_fine(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "d.parquet", ["nothing here", ""])
    assert detect_spans(corpus, [], tmp_path) == {"spans": 0}
    assert detect_spans(corpus, [RulesDetector()], tmp_path) == {"rules": 0, "spans": 0}
    offsets, starts, _, labels = SpanReader(tmp_path).slice(0, 2)
    assert (offsets.tolist(), len(starts), len(labels)) == ([0, 0, 0], 0, 0)


def test_span_reader_gives_any_run_of_documents(tmp_path: Path) -> None:
    texts = ["12.05.2020", "", "1.2.2020 3.2.2020", "x", "4.2.2020"]
    detect_spans(write_corpus(tmp_path / "d.parquet", texts), [RulesDetector(["DATE"])], tmp_path)
    reader = SpanReader(tmp_path)
    per_document = [[(0, 10)], [], [(0, 8), (9, 17)], [], [(0, 8)]]
    for first in range(5):
        for count in range(6 - first):
            offsets, starts, ends, labels = reader.slice(first, count)
            expected = per_document[first : first + count]
            assert offsets.tolist() == [sum(map(len, expected[:i])) for i in range(count + 1)]
            flat = [pair for pairs in expected for pair in pairs]
            assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == flat
            assert labels.to_pylist() == ["DATE"] * len(flat)


def test_a_folder_without_spans_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"spans\.parquet"):
        SpanReader(tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "spans.parquet")
    with pytest.raises(ArtifactError, match="not a table of spans"):
        SpanReader(tmp_path)


# Detectors by name.


def test_unknown_detector_is_a_policy_error_that_names_the_known() -> None:
    with pytest.raises(PolicyError, match=r"'magic'.*gold, rules, records, gazetteer, .* or eds"):
        make_detectors(["rules", "magic"])


@pytest.mark.parametrize("name", ["records", "gazetteer", "spacy"])
def test_detector_without_what_it_needs_is_a_policy_error(name: str) -> None:
    with pytest.raises(PolicyError, match=f"detector {name} needs"):
        make_detectors([name])


def test_detectors_are_made_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("Ann\n\n Bob \n", encoding="utf-8")
    pq.write_table(pa.table({"individual_id": ["p0"], "name": ["Cy"]}), tmp_path / "records.parquet")
    made = make_detectors(
        ["gazetteer", "gold", "records", "rules"],
        {"records": {"table": tmp_path / "records.parquet"}, "gazetteer": {"lists": {"NAME": tmp_path / "names.txt"}}},
    )
    assert [detector.name for detector in made] == ["gazetteer", "gold", "records", "rules"]
    assert found(made[0], ["Ann Bob Cy"]) == [[("NAME", "Ann"), ("NAME", "Bob")]]
    assert found(made[2], ["Ann Bob Cy"]) == [[("NAME", "Cy")]]


# spaCy.


PATTERNS = [{"label": "NAME", "pattern": "Ann"}, {"label": "CITY", "pattern": [{"LOWER": "lyon"}]}]


def test_spacy_patterns_give_spans_in_characters() -> None:
    pytest.importorskip("spacy")
    from reticent.engine.detect.spacy import SpacyDetector

    texts = ["😀😀 Ann à LYON", "", "nobody", "e\u0301 Ann"]
    expected = [[("NAME", "Ann"), ("CITY", "LYON")], [], [], [("NAME", "Ann")]]
    assert found(SpacyDetector("blank:fr", patterns=PATTERNS), texts) == expected
    assert found(SpacyDetector("blank:en", patterns=PATTERNS, batch_size=1), texts) == expected
    only = SpacyDetector("blank:fr", patterns=PATTERNS, labels=["CITY"])
    assert found(only, texts) == [[("CITY", "LYON")], [], [], []]


def test_spacy_pipeline_on_disk_is_loaded_by_its_path(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Ann"}])
    nlp.to_disk(tmp_path / "pipeline")
    (detector,) = make_detectors(["spacy"], {"spacy": {"pipeline": str(tmp_path / "pipeline")}})
    assert found(detector, ["Ann ate"]) == [[("PERSON", "Ann")]]


@pytest.mark.parametrize("pipeline", ["xx_not_installed_sm", "blank:zz", "."])
def test_missing_spacy_pipeline_is_a_policy_error(pipeline: str, tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    name = str(tmp_path) if pipeline == "." else pipeline
    with pytest.raises(PolicyError, match="neither installed nor a readable folder"):
        make_detectors(["spacy"], {"spacy": {"pipeline": name}})
