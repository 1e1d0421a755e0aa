"""A corpus without some documents is the corpus of the others, whatever its files and however it is read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.spans import SpanReader
from reticent.engine.index import build_index
from reticent.engine.split import split_individuals


def write(folder: Path, sizes: list[int], *, row_group_size: int = 2, text: str = "seen on 2021-03-04") -> pa.Table:
    """Files of so many documents; returns them all."""
    parts, first = [], 0
    for number, size in enumerate(sizes):
        names = [f"d{i}" for i in range(first, first + size)]
        owners = [f"p{i % 3}" for i in range(first, first + size)]
        texts = pa.array([f"{text} {i}" for i in range(first, first + size)], pa.large_string())
        part = pa.table({"doc_id": pa.array(names, pa.string()), "individual_id": pa.array(owners, pa.string())})
        parts.append(part.append_column("text", texts))
        pq.write_table(parts[-1], folder / f"{number:02}.parquet", row_group_size=row_group_size)
        first += size
    return pa.concat_tables(parts)


def rows_of(corpus: Corpus, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in corpus.batches(**options) for row in batch.to_pylist()]


def rows_by_number(corpus: Corpus, **options: Any) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    lock = threading.Lock()

    def work(first: int, batch: pa.RecordBatch) -> None:
        with lock:
            found.update(enumerate(batch.to_pylist(), first))

    corpus.for_each_batch(work, **options)
    return found


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) >= 4),
    st.data(),
    st.integers(1, 3),
    st.booleans(),
)
def test_without_matches_filtering_the_table(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject, threads: int, as_csv: bool
) -> None:
    folder = tmp_path_factory.mktemp("without")
    content = write(folder, sizes)
    if as_csv:
        for file in sorted(folder.glob("*.parquet")):
            pa.csv.write_csv(pq.read_table(file), file.with_suffix(".csv"))
            file.unlink()
    num_rows = content.num_rows
    left_out = data.draw(st.lists(st.integers(2, num_rows - 1), max_size=num_rows))  # two individuals stay
    stays = np.ones(num_rows, dtype=bool)
    stays[left_out] = False
    expected = content.filter(pa.array(stays)).to_pylist()

    corpus = open_corpus(folder).without(np.array(left_out, dtype=np.int64))
    assert rows_of(corpus) == expected
    assert rows_of(corpus, batch_rows=1) == expected
    assert corpus.num_documents == len(expected)
    assert corpus.scan().column("doc_id").to_pylist() == [row["doc_id"] for row in expected]
    assert rows_by_number(corpus, num_threads=threads) == dict(enumerate(expected))

    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=len(expected), max_size=len(expected))))
    seen = rows_by_number(corpus, num_threads=threads, wanted=wanted)
    assert set(np.flatnonzero(wanted)) <= seen.keys()
    assert all(expected[number] == row for number, row in seen.items())

    again = data.draw(st.lists(st.integers(2, len(expected) - 1), max_size=3)) if len(expected) > 2 else []
    rest = [row for number, row in enumerate(expected) if number not in again]
    assert rows_of(corpus.without(again)) == rest
    original = np.flatnonzero(stays)[again] if again else []
    at_once = open_corpus(folder).without([*left_out, *original])
    assert at_once.fingerprint() == corpus.without(again).fingerprint()


def test_fingerprint_tells_what_is_left_out_and_nothing_left_out_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, [5, 5])
    corpus = open_corpus(tmp_path)
    assert corpus.without([]) is corpus
    fingerprints = {corpus.without(rows).fingerprint() for rows in ([], [3], [4], [3, 4], [8])}
    assert len(fingerprints) == 5
    assert corpus.without([3, 3]).fingerprint() == corpus.without([3]).fingerprint()
    assert corpus.without([4, 3]).fingerprint() == corpus.without([3, 4]).fingerprint()


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [*(([row], PolicyError, "0 to 4") for row in (-1, 5, 0.5, True)),
     *((rows, CorpusError, "once documents are left out") for rows in ([0, 1, 3, 4], [0, 1, 2, 3, 4]))],
)  # fmt: skip
def test_numbers_that_are_not_of_documents_and_a_corpus_of_fewer_than_two_individuals_are_refused(
    tmp_path: Path, rows: list[Any], error: type[Exception], said: str
) -> None:
    write(tmp_path, [5])
    with pytest.raises(error, match=said):
        open_corpus(tmp_path).without(rows)


def test_errors_name_the_row_of_the_file(tmp_path: Path) -> None:
    content = write(tmp_path, [6]).append_column("spans", [[[]] * 5 + [[{"start": 0, "end": 99, "label": "ID"}]]])
    pq.write_table(content, tmp_path / "00.parquet")
    corpus = open_corpus(tmp_path, columns=Columns(spans="spans")).without([0, 3])
    with pytest.raises(CorpusError, match=r"00\.parquet row 6 column spans"):
        rows_of(corpus, columns=("doc_id", "text", "spans"))


@pytest.mark.parametrize("size", [4, 6])
def test_files_that_change_after_the_scan_are_refused(tmp_path: Path, size: int) -> None:
    write(tmp_path, [5, 3])
    corpus = open_corpus(tmp_path).without([1])
    write(tmp_path, [size])
    with pytest.raises(CorpusError, match="have changed since they were scanned"):
        rows_of(corpus)
    with pytest.raises(CorpusError, match="have changed since they were scanned"):
        rows_by_number(corpus)


def test_split_spans_and_index_are_those_of_the_documents_that_stay(tmp_path: Path) -> None:
    (whole := tmp_path / "whole").mkdir()
    (rest := tmp_path / "rest").mkdir()
    content = write(whole, [7, 6])
    left_out = [2, 6, 7, 12]
    pq.write_table(content.filter(pa.array([i not in left_out for i in range(13)])), rest / "00.parquet")
    results = []
    for name, corpus in (("a", open_corpus(whole).without(left_out)), ("b", open_corpus(rest))):
        (folder := tmp_path / name).mkdir()
        detect_spans(corpus, make_detectors(["rules"]), folder)
        individuals = split_individuals(corpus)
        index = build_index(corpus, individuals)
        words = pa.record_batch(index.words()).to_pydict()
        spans = pq.read_table(folder / "spans.parquet").to_pydict()
        results.append((words, spans, individuals.table.to_pydict(), SpanReader(folder) is not None))
    assert results[0] == results[1]
    assert results[0][1]["document"]
