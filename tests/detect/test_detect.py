"""Direct identifiers: rules, gazetteers, record fields, gold spans, spaCy, and their union."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from fixtures.detecting import batch_of, found

from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import BATCH_SPANS, detect_spans, make_detectors, spans_batch
from reticent.engine.detect.gazetteer import GazetteerDetector
from reticent.engine.detect.gold import GoldDetector
from reticent.engine.detect.rules import RulesDetector
from reticent.engine.detect.spans import SpanReader
from reticent.engine.schema import SPAN_TYPE, SPANS

SECRET = "Zyxwvut"
Spans = list[dict[str, Any]]


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


@pytest.mark.heavy
def test_spacy_patterns_give_spans_in_characters() -> None:
    pytest.importorskip("spacy")
    from reticent.engine.detect.spacy import SpacyDetector

    texts = ["😀😀 Ann à LYON", "", "nobody", "e\u0301 Ann"]
    expected = [[("NAME", "Ann"), ("CITY", "LYON")], [], [], [("NAME", "Ann")]]
    assert found(SpacyDetector("blank:fr", patterns=PATTERNS), texts) == expected
    assert found(SpacyDetector("blank:en", patterns=PATTERNS, batch_size=1), texts) == expected
    only = SpacyDetector("blank:fr", patterns=PATTERNS, labels=["CITY"])
    assert found(only, texts) == [[("CITY", "LYON")], [], [], []]


@pytest.mark.heavy
def test_spacy_pipeline_on_disk_is_loaded_by_its_path(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Ann"}])
    nlp.to_disk(tmp_path / "pipeline")
    (detector,) = make_detectors(["spacy"], {"spacy": {"pipeline": str(tmp_path / "pipeline")}})
    assert found(detector, ["Ann ate"]) == [[("PERSON", "Ann")]]


@pytest.mark.heavy
@pytest.mark.parametrize("pipeline", ["xx_not_installed_sm", "blank:zz", "."])
def test_missing_spacy_pipeline_is_a_policy_error(pipeline: str, tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    name = str(tmp_path) if pipeline == "." else pipeline
    with pytest.raises(PolicyError, match="neither installed nor a readable folder"):
        make_detectors(["spacy"], {"spacy": {"pipeline": name}})
