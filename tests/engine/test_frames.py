"""Documents in memory: Arrow, Polars and pandas are read as files of the same rows are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.core.errors import PolicyError
from reticent.engine.corpus import BATCH_ROWS, Columns, CsvDialect, Markup, as_corpus, open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.schema import MEMBERS
from reticent.engine.sources import frames
from reticent.engine.split import split_individuals

SECRET = "Xanthippe"
NUM = 300
DATA: dict[str, list[Any]] = {
    "doc_id": [f"d{i}" for i in range(NUM)],
    "individual_id": [i % 7 for i in range(NUM)],
    "text": [f"naïve note {i % 11} of {SECRET} 😀" for i in range(NUM)],
    "ward": ["east" if i % 2 else None for i in range(NUM)],
}
TABLE = pa.table(DATA)


def with_text(kind: pa.DataType) -> pa.Table:
    return TABLE.set_column(2, "text", TABLE["text"].cast(kind))


def pandas_frame() -> Any:
    return pytest.importorskip("pandas").DataFrame(DATA)


def pandas_dict() -> Any:
    return {name: pytest.importorskip("pandas").Series(values) for name, values in DATA.items()}


FRAMES: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "large_string": lambda: with_text(pa.large_string()),
    "string_view": lambda: with_text(pa.string_view()),
    "dictionary": lambda: with_text(pa.dictionary(pa.int32(), pa.string())),
    "dictionary of views": lambda: pl.DataFrame(DATA).with_columns(pl.col("text").cast(pl.Categorical)),
    "chunks": lambda: pa.concat_tables([TABLE.slice(0, 5), TABLE.slice(5, 250), TABLE.slice(255)]),
    "slice": lambda: pa.concat_tables([TABLE.slice(7), TABLE]).slice(NUM - 7),
    "reader": lambda: TABLE.to_reader(max_chunksize=100),
    "record batch": lambda: TABLE.to_batches()[0],
    "polars": lambda: pl.DataFrame(DATA),
    "polars lazy": lambda: pl.LazyFrame(DATA),
    "pandas": pandas_frame,
    "pandas series": pandas_dict,
    "series": lambda: {name: pl.Series(values) for name, values in DATA.items()},
    "lists": lambda: DATA,
    "numpy": lambda: {**DATA, "individual_id": np.array(DATA["individual_id"])},
}
frame_of_every_kind = pytest.mark.parametrize("kind", FRAMES)


@pytest.fixture(scope="module")
def from_file(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("file") / "notes.parquet"
    pq.write_table(TABLE, path)
    return rows_of(path)


def rows_of(documents: Any, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in open_corpus(documents, **options).batches() for row in batch.to_pylist()]


@frame_of_every_kind
def test_a_frame_is_read_as_a_file_of_the_same_rows(kind: str, from_file: list[dict[str, Any]]) -> None:
    corpus = open_corpus(FRAMES[kind]())
    assert [row for batch in corpus.batches(batch_rows=64) for row in batch.to_pylist()] == from_file
    assert (corpus.num_documents, corpus.num_individuals, corpus.files, corpus.format) == (NUM, 7, (), "memory")
    assert {batch.schema.field("text").type for batch in corpus.batches()} == {pa.large_string()}
    corpus.check(num_threads=2)
    seen = np.zeros(NUM, dtype=int)
    corpus.for_each_batch(lambda first, batch: seen.__setitem__(slice(first, first + batch.num_rows), 1), num_threads=2)
    assert seen.all()


@frame_of_every_kind
def test_whoever_holds_the_same_rows_their_fingerprint_is_one(kind: str) -> None:
    assert open_corpus(FRAMES[kind]()).fingerprint() == open_corpus(TABLE).fingerprint()


def test_a_fingerprint_changes_with_any_value_name_order_or_way_of_reading() -> None:
    reordered = TABLE.take([1, 0, *range(2, NUM)])
    nulls = TABLE.set_column(3, "ward", [[ward or "" for ward in DATA["ward"]]])
    moved = TABLE.set_column(0, "doc_id", [["d", *DATA["doc_id"][1:-1], "d0d299"]])
    texts = [*DATA["text"][:-2], DATA["text"][-2] + "n", DATA["text"][-1][1:]]  # the same letters, cut elsewhere
    cut = TABLE.set_column(2, "text", [texts])
    renamed = TABLE.rename_columns(["doc_id", "individual_id", "text", "unit"])
    frames_ = [TABLE, reordered, nulls, moved, cut, renamed, TABLE.slice(1), TABLE.drop_columns(["ward"])]
    found = [open_corpus(frame).fingerprint() for frame in frames_]
    found += [open_corpus(TABLE, columns=Columns(text="ward")).fingerprint()]
    found += [open_corpus(TABLE, ids="fold").fingerprint(), open_corpus(TABLE).without([3]).fingerprint()]
    assert len(set(found)) == len(found)


def test_a_file_and_a_frame_of_the_same_rows_are_different_sources(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    assert open_corpus(tmp_path / "a.parquet").fingerprint() != open_corpus(TABLE).fingerprint()


def test_columns_of_marks_are_read_from_a_frame_and_count_in_its_fingerprint() -> None:
    spans = [[{"start": 0, "end": 5, "label": "NAME"}] if i % 2 else [] for i in range(NUM)]
    columns = Columns(spans="spans")
    frames_ = [TABLE.append_column("spans", pa.array(spans)), pl.DataFrame({**DATA, "spans": spans})]
    corpora = [open_corpus(frame, columns=columns) for frame in frames_]
    for corpus in corpora:
        assert [
            row["spans"] for batch in corpus.batches(columns=("text", "spans")) for row in batch.to_pylist()
        ] == spans
    spans[0] = [{"start": 0, "end": 4, "label": "NAME"}]
    other = open_corpus(TABLE.append_column("spans", pa.array(spans)), columns=columns)
    assert corpora[0].fingerprint() == corpora[1].fingerprint() != other.fingerprint()


def test_parts_of_a_source_are_its_rows_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(frames, "ROWS_PER_GROUP", 32)
    for number, start in enumerate(range(0, NUM, 120)):
        pq.write_table(TABLE.slice(start, 120), tmp_path / f"{number}.parquet", row_group_size=50)
    (tmp_path / "csv").mkdir()
    for source in (open_corpus(TABLE).source, open_corpus(tmp_path).source):
        for parts in (1, 2, 3, 7, 50):
            of_parts = [list(source.batches(["doc_id"], part=part, parts=parts)) for part in range(parts)]
            found = [row["doc_id"] for batches in of_parts for batch in batches for row in batch.to_pylist()]
            assert found == DATA["doc_id"]
            assert all(batch.schema.names == ["doc_id"] for batches in of_parts for batch in batches)
            assert parts == 50 or sum(1 for batches in of_parts if batches) == parts


def test_stages_take_a_frame_where_they_take_a_corpus(tmp_path: Path) -> None:
    frame, corpus = pl.DataFrame(DATA), open_corpus(TABLE)
    individuals = split_individuals(frame)
    assert individuals.mask(MEMBERS).tolist() == split_individuals(corpus).mask(MEMBERS).tolist()
    indexes = [build_index(documents, individuals, config=IndexConfig(max_n=2)) for documents in (frame, corpus)]
    assert indexes[0].words().equals(indexes[1].words())
    assert indexes[0].level(2).equals(indexes[1].level(2))
    for name, documents in (("frame", frame), ("corpus", corpus)):
        (tmp_path / name).mkdir()
        detect_spans(documents, make_detectors(["rules"]), tmp_path / name)
    assert (tmp_path / "frame" / "spans.parquet").read_bytes() == (tmp_path / "corpus" / "spans.parquet").read_bytes()
    assert as_corpus(corpus) is corpus


def test_what_is_shown_of_documents_and_individuals_is_no_text_and_no_id() -> None:
    corpus = open_corpus(DATA | {"individual_id": [f"p{number % 7}" for number in range(NUM)]})
    shown = repr((corpus, corpus.source, split_individuals(corpus)))
    assert "Corpus(dict, memory)" in shown
    assert not any(part in shown for part in (SECRET, "'d0", '"d0', "p0", "p1"))


def test_an_option_of_files_is_refused_for_a_frame() -> None:
    for options in ({"format": "csv"}, {"csv": CsvDialect(delimiter=";")}, {"markup": Markup(individual="(.*)")}):
        with pytest.raises(PolicyError, match="means nothing for"):
            open_corpus(TABLE, **options)  # type: ignore[arg-type]


def test_a_document_without_a_text_is_left_out_where_that_is_asked() -> None:
    corpus = open_corpus({**DATA, "text": [None, *DATA["text"][1:]]}, on_null="skip")
    assert (corpus.num_documents, corpus.reading.num_skipped) == (NUM - 1, 1)
    assert BATCH_ROWS < NUM  # more than one batch was read


def test_a_lazy_frame_is_run_once_and_never_collected_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_file: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pl.LazyFrame, "collect", None)
    runs = []
    frame = pl.LazyFrame(DATA).map_batches(lambda batch: runs.append(1) or batch)
    corpus = open_corpus(frame)
    corpus.check(num_threads=2)
    assert [row for batch in corpus.batches() for row in batch.to_pylist()] == from_file
    assert len(runs) == 1
    assert list(tmp_path.iterdir()) == []  # the file has no name, so it ends with the process


MEMORY_OF_A_LAZY_FRAME = """
import re
from pathlib import Path
import polars as pl
from reticent.engine.corpus import open_corpus
frames = [pl.scan_parquet("notes.parquet").with_columns(doc_id=f"{part} " + pl.col("doc_id")) for part in range(16)]
assert open_corpus(pl.concat(frames)).num_documents == 640_000
# Of this program: a child's `ru_maxrss` begins with that of its parent.
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10)
"""


@pytest.mark.heavy
def test_a_lazy_frame_larger_than_the_memory_it_takes_is_read(tmp_path: Path) -> None:
    ids = [f"d{i}" for i in range(40_000)]
    notes = pl.DataFrame({"doc_id": ids, "individual_id": ids, "text": ["x" * 2000] * len(ids)})
    notes.write_parquet(tmp_path / "notes.parquet", row_group_size=4000)
    environment = {**os.environ, "TMPDIR": str(tmp_path), "POLARS_MAX_THREADS": "2"}
    program = [sys.executable, "-c", MEMORY_OF_A_LAZY_FRAME]
    done = subprocess.run(program, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 800  # MiB; its texts are 1.28 GB
