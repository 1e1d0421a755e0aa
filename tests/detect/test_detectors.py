"""Detectors by name and option, quarantine, and offsets that are not characters of the text."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.detect import (
    BATCH_SPANS,
    detect_spans,
    make_detectors,
    option_files,
    option_packages,
    quarantined_rows,
    rules_digest,
    spans_batch,
)
from reticent.engine.detect.alignment import Alignment
from reticent.engine.detect.rules import RulesDetector
from reticent.engine.schema import SPANS
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.stages.detect import spans_artefact

SECRET = "Zyxwvut"


def corpus_of(path: Path, texts: Sequence[str]) -> Corpus:
    numbers = range(len(texts))
    ids = {"doc_id": [f"d{i}" for i in numbers], "individual_id": [f"p{i}" for i in numbers]}
    pq.write_table(pa.table({**ids, "text": pa.array(texts, pa.large_string())}), path)
    return open_corpus(path)


class Custom:
    columns: tuple[str, ...] = ()

    def __init__(self, detect: Callable[[pa.RecordBatch], pa.Table], name: str = "custom"):
        self.detect = detect
        self.name = name


def first_characters(batch: pa.RecordBatch) -> pa.Table:
    """A span over the first character of every text; texts with a ! make it fail."""
    texts = batch.column("text").to_pylist()
    if any("!" in text for text in texts):
        raise RuntimeError(texts[0])
    return spans_batch(list(range(len(texts))), [0] * len(texts), [1] * len(texts), ["NAME"] * len(texts))


# Names and options.


def test_a_detector_of_the_job_gets_the_options_of_its_table() -> None:
    (rules,) = make_detectors(["rules"], {"rules": {"labels": ["EMAIL"]}}, num_threads=1)
    assert isinstance(rules, RulesDetector)
    assert (rules.labels, rules.num_threads) == (["EMAIL"], 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rules", {"colour": "red"}, r"detector rules has no option 'colour'.*expected labels, fields, num_threads"),
        ("gold", {"colour": "red"}, "detector gold has no option 'colour'.*it has none"),
        ("records", {}, r'needs detect\.records\.table = "records.parquet"'),
        ("gazetteer", {"lists": {}}, r"needs detect\.gazetteer\.lists"),
        ("spacy", {"batch_size": 2}, r"needs detect\.spacy\.pipeline"),
    ],
)
def test_options_are_checked_against_the_class(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        make_detectors([name], {name: options})


def test_files_among_the_options_are_found(tmp_path: Path) -> None:
    (tmp_path / "pipeline").mkdir()
    options = {
        "records": {"table": "missing.parquet"},
        "gazetteer": {"lists": {"CITY": "cities.txt", "NAME": "names.txt"}},
        "spacy": {"pipeline": str(tmp_path / "pipeline"), "batch_size": 3},
        "transformers": {"model": "some/name-of-a-hub"},
    }
    assert dict(option_files(options)) == {
        "records.table": Path("missing.parquet"),
        "gazetteer.lists.CITY": Path("cities.txt"),
        "gazetteer.lists.NAME": Path("names.txt"),
        "spacy.pipeline": tmp_path / "pipeline",
    }


@pytest.mark.parametrize(
    ("detector", "options", "packages"),
    [
        ("spacy", {"pipeline": "numpy"}, ["numpy"]),
        ("presidio", {"pipeline": "numpy"}, ["numpy", "presidio-analyzer"]),
        ("eds", {}, ["edsnlp"]),
    ],
)
def test_another_version_of_a_package_that_is_run_is_another_detection(
    monkeypatch: pytest.MonkeyPatch, detector: str, options: dict[str, Any], packages: list[str]
) -> None:
    pipelines = {"spacy": {"pipeline": "numpy"}, "transformers": {"model": "some/name-of-a-hub"}, "rules": {}}
    assert option_packages(pipelines) == {"numpy": np.__version__}
    job = {"out": "x", "corpus": {"source": "d"}, "detect": {"detectors": [detector], detector: options}}
    found = []
    for number in ("3.8.0", "3.9.0"):
        monkeypatch.setattr("reticent.engine.detect.choose.version", lambda _, number=number: number)
        run: Any = types.SimpleNamespace(
            job=parse_job(job), documents=types.SimpleNamespace(fingerprint=lambda: "same")
        )
        found.append(spans_artefact(run).settings["packages"])
    assert found == [dict.fromkeys(packages, number) for number in ("3.8.0", "3.9.0")]


def test_checking_a_job_imports_no_library_of_a_detector() -> None:
    job = {
        "out": "x",
        "corpus": {"source": "d.parquet"},
        "detect": {"detectors": ["rules", "spacy"], "spacy": {"pipeline": "p", "batch_size": 8}},
    }
    program = (
        f"import sys; from reticent.job.config import parse_job; parse_job({job!r}); "
        "print(sorted({'spacy', 'torch', 'transformers', 'presidio_analyzer', 'edsnlp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_short_forms_mean_the_option_a_detector_needs() -> None:
    values = {"out": "x", "corpus": {"source": "d.parquet"}}
    short = {
        "detectors": ["records", "gazetteer", "spacy"],
        "records": "r.parquet",
        "lists": {"CITY": "c.txt"},
        "spacy": "p",
    }
    long = {
        "detectors": ["records", "gazetteer", "spacy"],
        "records": {"table": "r.parquet"},
        "gazetteer": {"lists": {"CITY": "c.txt"}},
        "spacy": {"pipeline": "p"},
    }
    job = parse_job({**values, "detect": short})
    assert job == parse_job({**values, "detect": long})
    assert job == parse_job(json.loads(job.model_dump_json()))
    nothing = {"records": None, "spacy": None, "lists": {}}  # as in the job of an earlier version
    assert parse_job({**values, "detect": nothing}) == parse_job(values)


# A detector that fails.


def test_the_document_a_detector_fails_on_is_named_by_its_row(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "d.parquet", ["a", "b", f"{SECRET}!", "c!"])
    with pytest.raises(CorpusError, match=r"custom failed on document 3 of the corpus \(RuntimeError\)") as error:
        detect_spans(corpus, [Custom(first_characters)], tmp_path)
    assert SECRET not in str(error.value)


def test_a_failure_that_no_document_causes_alone_stops_the_run(tmp_path: Path) -> None:
    def fail(batch: pa.RecordBatch) -> pa.Table:
        if batch.num_rows > 1:
            raise MemoryError
        return BATCH_SPANS.empty_table()

    corpus = corpus_of(tmp_path / "d.parquet", ["a", "b"])
    with pytest.raises(CorpusError, match=r"documents 1 to 2 \(MemoryError\), but on none of them alone"):
        detect_spans(corpus, [Custom(fail)], tmp_path)
    assert detect_spans(corpus, [Custom(fail)], tmp_path, on_error="quarantine")["quarantined"] == 0


def test_quarantine_lists_the_document_and_leaves_it_out_of_the_numbering(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "d.parquet", ["mail a@b.org !", "b", "c! c@b.org", "d d@b.org"])
    detectors = [Custom(first_characters), RulesDetector(["EMAIL"]), Custom(first_characters, "again")]
    counts = detect_spans(corpus, detectors, tmp_path, on_error="quarantine")
    assert counts == {"custom": 2, "rules": 3, "again": 2, "spans": 5, "quarantined": 2}
    rows = [tuple(row.values()) for row in pq.read_table(tmp_path / "quarantine.parquet").to_pylist()]
    assert rows == [(row, f"d{row - 1}", name, "RuntimeError") for name in ("custom", "again") for row in (1, 3)]
    assert quarantined_rows(tmp_path).tolist() == [0, 2]
    spans = pq.read_table(tmp_path / "spans.parquet")
    assert spans.schema.equals(SPANS)
    assert spans.column("document").to_pylist() == [0, 0, 1, 1, 1]
    assert spans.column("doc_id").to_pylist() == ["d1", "d1", "d3", "d3", "d3"]
    left = corpus.without(quarantined_rows(tmp_path))
    assert [id for b in left.batches() for id in b.column("doc_id").to_pylist()] == ["d1", "d3"]


@settings(max_examples=40)
@given(st.lists(st.booleans(), min_size=2, max_size=12), st.integers(1, 5))
def test_quarantine_matches_oracle_whatever_the_batches(tmp_path_factory: Any, bad: list[bool], rows: int) -> None:
    folder = tmp_path_factory.mktemp("q")
    texts = ["!" if is_bad else "a" for is_bad in bad]
    corpus = corpus_of(folder / "d.parquet", texts)

    class Batched:
        def batches(self, columns: tuple[str, ...]) -> Any:
            return corpus.batches(columns=columns, batch_rows=rows)

    batches = [bad[i : i + rows] for i in range(0, len(bad), rows)]
    if any(len(batch) > 1 and all(batch) for batch in batches):
        with pytest.raises(CorpusError, match="no quarantine for all of them"):
            detect_spans(Batched(), [Custom(first_characters)], folder, on_error="quarantine")  # type: ignore[arg-type]
        return
    detect_spans(Batched(), [Custom(first_characters)], folder, on_error="quarantine")  # type: ignore[arg-type]
    good = [row for row, is_bad in enumerate(bad) if not is_bad]
    spans = pq.read_table(folder / "spans.parquet")
    assert spans.column("document").to_pylist() == list(range(len(good)))
    assert spans.column("doc_id").to_pylist() == [f"d{row}" for row in good]
    assert quarantined_rows(folder).tolist() == [row for row, is_bad in enumerate(bad) if is_bad]


@pytest.mark.parametrize(
    ("span", "message"),
    [((0, 9), "span 0..9 does not fit its text of 2 characters"), ((None, 1), "a span has no start")],
)
def test_a_span_that_is_none_puts_its_document_in_quarantine(
    tmp_path: Path, span: tuple[int | None, int], message: str
) -> None:
    start, end = [0, span[0], 0], [1, span[1], 1]
    table = spans_batch([0, 1, 1], pa.array(start, pa.int32()), pa.array(end, pa.int32()), ["NAME"] * 3)
    corpus = corpus_of(tmp_path / "d.parquet", ["aa", "bb", "cc"])
    counts = detect_spans(corpus, [Custom(lambda batch: table)], tmp_path, on_error="quarantine")
    assert counts == {"custom": 1, "spans": 1, "quarantined": 1}
    assert pq.read_table(tmp_path / "quarantine.parquet").column("error").to_pylist() == [message]


def test_a_wrong_setting_is_no_matter_for_the_quarantine(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "d.parquet", ["a", "b"])
    with pytest.raises(PolicyError, match="unknown label"):
        detect_spans(corpus, [RulesDetector(["COLOUR"])], tmp_path, on_error="quarantine")
    with pytest.raises(PolicyError, match="expected stop or quarantine"):
        detect_spans(corpus, [RulesDetector()], tmp_path, on_error="skip")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="stands twice"):
        detect_spans(corpus, [RulesDetector(), RulesDetector()], tmp_path)


def test_a_table_of_other_columns_is_an_error(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "d.parquet", ["a", "b"])
    with pytest.raises(CorpusError, match="columns of BATCH_SPANS"):
        detect_spans(corpus, [Custom(lambda batch: pa.table({"document": [0]}))], tmp_path)


@pytest.mark.parametrize("on_error", ["stop", "quarantine"])
def test_a_result_that_is_no_table_is_refused_one_by_one_too_without_the_text_of_the_first_error(
    tmp_path: Path, on_error: Any
) -> None:
    def detect(batch: pa.RecordBatch) -> Any:
        if batch.num_rows > 1:
            raise ValueError(batch.column("text")[0].as_py())

    corpus = corpus_of(tmp_path / "d.parquet", [SECRET, SECRET])
    with pytest.raises(CorpusError, match="columns of BATCH_SPANS") as error:
        detect_spans(corpus, [Custom(detect)], tmp_path, on_error=on_error)
    assert SECRET not in "".join(traceback.format_exception(error.value))


def test_a_list_of_the_quarantine_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert quarantined_rows(tmp_path).tolist() == []
    (tmp_path / "quarantine.parquet").write_text("x")
    with pytest.raises(ArtifactError, match=r"quarantine\.parquet: not a readable list"):
        quarantined_rows(tmp_path)


def test_a_job_goes_on_without_the_documents_in_quarantine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus_of(tmp_path / "d.parquet", [f"common word{i} {'!' if i == 2 else ''}" for i in range(8)])
    monkeypatch.setattr("reticent.job.stages.detect.make_detectors", lambda *_, **__: [Custom(first_characters)])
    values = {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "d.parquet")},
        "split": {"heldout": 0.2},
    }
    with pytest.raises(CorpusError, match="document 3 of the corpus"):
        execute(Run(parse_job(values)), "index")
    values["detect"] = {"on_error": "quarantine"}
    run = Run(parse_job(values))
    execute(run, "index")
    assert "1 of 8 documents are left out" in capsys.readouterr().err
    assert run.corpus.num_documents == 7
    assert stat.S_IMODE((tmp_path / "run" / "spans" / "quarantine.parquet").stat().st_mode) == 0o600
    again = Run(parse_job(values))
    execute(again, "index")
    assert (again.documents.num_documents, again.corpus.num_documents) == (8, 7)


def test_copies_and_the_quarantine_leave_out_documents_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"common word{i % 6} {'!' if i % 6 == 2 else ''}" for i in range(9)]  # 6, 7 and 8 are copies of 0, 1 and 2
    corpus_of(tmp_path / "d.parquet", texts)
    monkeypatch.setattr("reticent.job.stages.detect.make_detectors", lambda *_, **__: [Custom(first_characters)])
    values = {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "d.parquet")},
        "dedup": {"mode": "exact", "scope": "corpus"},
        "detect": {"on_error": "quarantine"},
    }
    run = Run(parse_job(values))
    execute(run, "index")
    assert (run.whole_corpus.num_documents, run.documents.num_documents, run.corpus.num_documents) == (9, 6, 5)
    spans = pq.read_table(tmp_path / "run" / "spans" / "spans.parquet")
    ids = run.corpus.scan().column("doc_id").to_pylist()
    assert spans.column("doc_id").to_pylist() == ids == ["d0", "d1", "d3", "d4", "d5"]
    assert spans.column("document").to_pylist() == list(range(5))


def propagated_with(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a job that runs until detection gives to `propagate`, which keeps three of its spans."""
    seen: dict[str, Any] = {}

    def propagate(
        corpus: Corpus, spans_in: Path, spans_out: Path, *, scopes: Any, common: Any, num_threads: int, progress: Any
    ) -> Any:
        rows, documents = pq.read_table(spans_in).num_rows, corpus.num_documents
        seen.update(documents=documents, spans=rows, scopes=scopes, counted=common and common.num_documents)
        pq.write_table(pq.read_table(spans_in).slice(0, 3), spans_out)
        return {"spans": 3, "propagated": 2, "surfaces": 1}

    monkeypatch.setattr("reticent.job.stages.detect.propagate", propagate)
    execute(Run(parse_job(values)), "detect")
    return seen


def test_spans_are_propagated_over_the_documents_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus_of(tmp_path / "d.parquet", [f"word{i} {'!' if i == 2 else ''}" for i in range(8)])
    monkeypatch.setattr("reticent.job.stages.detect.make_detectors", lambda *_, **__: [Custom(first_characters)])
    values = {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "d.parquet")},
        "detect": {"on_error": "quarantine", "propagate": True},
        "protect": {"scopes": {"NAME": "individual"}},
    }
    seen = propagated_with(values, monkeypatch)
    assert seen == {"documents": 7, "spans": 7, "scopes": {"NAME": "individual"}, "counted": None}
    folder = tmp_path / "run" / "spans"
    assert pq.read_table(folder / "spans.parquet").num_rows == 3
    assert not (folder / "united.parquet").exists()
    assert json.loads((folder / "manifest.json").read_text())["counts"] == {
        "custom": 7,
        "spans": 3,
        "propagated": 2,
        "quarantined": 1,
        "long_documents": 0,
        "other_language": 0,
        "rules_digest": [rules_digest()],
    }


# Offsets of another kind.


def spans_of(texts: list[str], pieces: list[str], *, in_bytes: bool, shift: int = 0) -> pa.Table:
    rows = []
    for row, text in enumerate(texts):
        for piece in pieces:
            at = text.find(piece)
            while at >= 0:
                start, end = at, at + len(piece)
                if in_bytes:
                    start, end = len(text[:start].encode()), len(text[:end].encode())
                rows.append((row, start + shift, end + shift))
                at = text.find(piece, at + 1)
    document, start, end = (list(column) for column in zip(*rows, strict=True))
    return spans_batch(document, start, end, ["NAME"] * len(rows))


TEXTS = [f"élève {'é' * n} vu par Ann Dupont à Lyon, noté à 10 h, puis revu en ville" for n in range(1, 6)]


def check(texts: list[str], found: pa.Table) -> None:
    Alignment("custom").check(found, pa.array(texts, pa.large_string()), 0)


def test_offsets_in_bytes_are_told_from_characters() -> None:
    check(TEXTS, spans_of(TEXTS, ["Ann Dupont", "Lyon"], in_bytes=False))
    with pytest.raises(CorpusError, match=r"8 of 10 spans after an accent.*must count characters"):
        check(TEXTS, spans_of(TEXTS, ["Ann Dupont", "Lyon"], in_bytes=True))


def test_offsets_of_another_text_are_refused() -> None:
    texts = ["seen by Ann Dupont in Lyon, then at home"] * 10
    check(texts, spans_of(texts, ["Ann", "Lyon"], in_bytes=False))
    with pytest.raises(CorpusError, match="20 of 20 spans begin or end inside a word"):
        check(texts, spans_of(texts, ["Ann", "Lyon"], in_bytes=False, shift=1))


def test_the_share_is_taken_over_all_batches() -> None:
    alignment = Alignment("custom")
    for batch in range(10):
        shift = int(batch % 2 == 0)  # half of them: not more than half
        found = spans_of(["by Ann in Lyon now"], ["Ann", "Lyon"], in_bytes=False, shift=shift)
        alignment.check(found, pa.array(["by Ann in Lyon now"]), batch)
    assert (alignment.num_spans, alignment.num_cutting) == (20, 10)
    with pytest.raises(CorpusError, match="documents 1 to 11"):
        alignment.check(spans_of(["Annie"], ["Ann"], in_bytes=False), pa.array(["Annie"]), 10)


def test_scripts_without_spaces_have_no_word_to_cut() -> None:
    texts = ["患者は田中太郎です。"] * 20
    check(texts, spans_of(texts, ["田中"], in_bytes=False))


@settings(max_examples=examples(150))
@given(
    st.lists(st.text(st.sampled_from("ab1 é.Жשع😀田e\u0301\u00a0“\x00_")), min_size=1, max_size=4),
    st.data(),
)
def test_cut_words_match_oracle(texts: list[str], data: st.DataObject) -> None:
    """A word goes on where a letter or digit stands on both sides; scripts without spaces and marks apart."""
    rows = [row for row, text in enumerate(texts) if text]
    if not rows:
        return
    found, cutting = [], 0
    for _ in range(data.draw(st.integers(1, 6))):
        row = data.draw(st.sampled_from(rows))
        start = data.draw(st.integers(0, len(texts[row]) - 1))
        end = data.draw(st.integers(start + 1, len(texts[row])))
        found.append((row, start, end))

        def joins(at: int, text: str = texts[row]) -> bool:
            return 0 < at < len(text) and all(
                (c.isalnum() and c != "田") or c == "\u0301" for c in text[at - 1 : at + 1]
            )

        cutting += joins(start) or joins(end)
    alignment = Alignment("custom")
    columns = [list(column) for column in zip(*found, strict=True)]
    alignment.check(spans_batch(*columns, ["NAME"] * len(found)), pa.array(texts), 0)
    assert (alignment.num_spans, alignment.num_cutting) == (len(found), cutting)


def test_an_empty_table_and_empty_texts_are_fine() -> None:
    check(["", "a"], BATCH_SPANS.empty_table())
    check(["", "a"], spans_batch([1], [0], [1], ["NAME"]))
    assert np.array_equal(quarantined_rows(Path("nowhere")), [])


# The order of the union.

LISTED = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 3),
        st.integers(1, 2),
        st.sampled_from(["B", "A", "é"]),
        st.floats(0, 1, width=32),
    )
)


@settings(max_examples=examples(150))
@given(st.dictionaries(st.sampled_from(["z", "a", "m"]), LISTED, max_size=3))
def test_the_union_is_a_set_in_order(tmp_path_factory: Any, listed: dict[str, list[Any]]) -> None:
    folder = tmp_path_factory.mktemp("u")
    corpus = corpus_of(folder / "d.parquet", ["+++++"] * 3)

    def detector(name: str) -> Custom:
        rows = [
            {"document": d, "start": a, "end": a + n, "label": label, "score": score}
            for d, a, n, label, score in listed[name]
        ]
        return Custom(lambda batch: pa.Table.from_pylist(rows, schema=BATCH_SPANS), name)

    detect_spans(corpus, [detector(name) for name in listed], folder)
    best: dict[Any, float] = {}
    for name, rows in listed.items():
        for d, a, n, label, score in rows:
            key = d, a, a + n, label, name
            best[key] = max(best.get(key, 0.0), score)
    table = pq.read_table(folder / "spans.parquet")
    found = list(
        zip(*(table.column(c).to_pylist() for c in ("document", "start", "end", "label", "detector")), strict=True)
    )
    assert found == sorted(best)
    assert table.column("score").to_pylist() == pytest.approx([best[key] for key in found])
    assert table.column("doc_id").to_pylist() == [f"d{key[0]}" for key in found]


def test_words_that_a_detector_counted_are_not_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus_of(tmp_path / "d.parquet", [f"So Mrs. Grant{i} saw Ms. Roy." for i in range(8)])
    values = {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "d.parquet")},
        "detect": {"detectors": ["rules", "shipped"], "propagate": True},
    }
    assert propagated_with(values, monkeypatch)["counted"] == 8
    values["detect"]["detectors"] = ["rules"]  # type: ignore[index]
    assert propagated_with(values | {"out": str(tmp_path / "other")}, monkeypatch)["counted"] is None


def test_the_digest_of_the_rules_is_of_the_sources_as_they_are() -> None:
    root = Path(__file__).parents[2]
    core = root / "rust_ext"
    folders = ("src/detect", "src/rules", "src/text", "src/word_lists.rs", "words")
    files = [root / "reticent/engine/names.toml"]
    for folder in folders:
        files += [path for path in (core / folder, *(core / folder).rglob("*")) if path.is_file()]
    assert len(files) > 80
    digest = 0xCBF29CE484222325
    for byte in b"".join(path.read_bytes() for path in sorted(files, key=lambda path: path.relative_to(root).parts)):
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    assert f"{digest:016x}" == _rust.RULES, "run make setup: the compiled core is of other sources"


def test_the_digest_of_the_rules_changes_with_each_file_of_the_detectors(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: read.append(self.name) or whole(self))
    rules_digest.cache_clear()
    assert len(rules_digest()) == 16
    assert {"records.py", "rules.py", "propagate.py", "union.py", "preset.py", "languages.py"} <= {*read}
