"""Samples for annotation: every stratum has its documents, weights give the corpus back, equal seeds equal draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.core.errors import PolicyError
from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.schema import SPANS
from reticent.ext.annotate.sample import _allocate_sample, _count_spans, draw_sample, iter_rows, text_digest


def spans_table(rows: list[tuple[int, int, int, str]]) -> pa.Table:
    """Spans (document, start, end, detector)."""
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    document, start, end, detector = columns
    values = [document, [f"d{d}" for d in document], start, end, ["NAME"] * len(rows), detector, [1.0] * len(rows)]
    return pa.Table.from_arrays(
        [pa.array(value, field.type) for value, field in zip(values, SPANS, strict=True)], schema=SPANS
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """200 documents of 1 to 200 words; those of even number have a find, every tenth two that one detector misses."""
    texts = ["word " * (1 + (number * 37) % 200) for number in range(200)]
    pq.write_table(
        pa.table(
            {"doc_id": list(map(str, range(200))), "individual_id": [f"p{n % 90}" for n in range(200)], "text": texts}
        ),
        tmp_path / "d.parquet",
        row_group_size=64,
    )
    rows = [(n, 0, 4, name) for n in range(0, 200, 2) for name in ("records", "rules") if n % 10 or name == "rules"]
    pq.write_table(spans_table(rows), tmp_path / "spans.parquet")
    return open_corpus(tmp_path / "d.parquet")


@pytest.mark.parametrize("num", [2, 7, 40, 100, 199])
def test_as_many_are_drawn_as_were_asked_for_of_every_stratum_at_least_two(
    corpus: Corpus, tmp_path: Path, num: int
) -> None:
    sample = draw_sample(corpus, tmp_path, num)
    rows = [document.row for document in sample.documents]
    assert len(set(rows)) == num
    assert sum(sample.strata) == 200
    assert (sample.drawn >= np.minimum(sample.strata, 2)).all()
    assert [document.name for document in sample.documents] == [f"{n:04d}" for n in range(1, num + 1)]
    assert len(sample.strata) == {2: 1, 7: 1, 40: 6, 100: 12, 199: 12}[num]


def test_a_sample_no_smaller_than_the_corpus_is_all_of_it(corpus: Corpus, tmp_path: Path) -> None:
    sample = draw_sample(corpus, tmp_path, 10**6)
    assert sorted(document.row for document in sample.documents) == list(range(200))
    assert sample.drawn.tolist() == list(sample.strata)


def test_weights_give_the_documents_back_and_words_without_bias(corpus: Corpus, tmp_path: Path) -> None:
    lengths = np.array([1 + (number * 37) % 200 for number in range(200)])
    totals = []
    for seed in range(60):
        sample = draw_sample(corpus, tmp_path, 40, seed=seed)
        weight = np.array(sample.strata)[[d.stratum for d in sample.documents]]
        weight = weight / sample.drawn[[d.stratum for d in sample.documents]]
        assert weight.sum() == pytest.approx(200)
        totals.append((weight * lengths[[d.row for d in sample.documents]]).sum())
    error = np.std(totals) / np.sqrt(len(totals))
    assert abs(np.mean(totals) - lengths.sum()) < 4 * error
    assert np.std(totals) < 0.06 * lengths.sum()  # by chance alone, it would be 8 %


def test_long_documents_are_drawn_more_often(corpus: Corpus, tmp_path: Path) -> None:
    lengths = np.array([1 + (number * 37) % 200 for number in range(200)])
    drawn = [d.row for seed in range(20) for d in draw_sample(corpus, tmp_path, 40, seed=seed).documents]
    assert lengths[drawn].mean() > 1.15 * lengths.mean()


def test_equal_seeds_draw_equal_samples_and_others_do_not(corpus: Corpus, tmp_path: Path) -> None:
    first, again, other = (draw_sample(corpus, tmp_path, 30, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first.corpus == corpus.fingerprint()
    assert {d.sha256 for d in first.documents} <= {
        text_digest("word " * (1 + (number * 37) % 200)) for number in range(200)
    }


def test_documents_where_detectors_disagree_are_strata_of_their_own(corpus: Corpus, tmp_path: Path) -> None:
    disagreed = set(range(0, 200, 10))
    plain, asked = (draw_sample(corpus, tmp_path, 100, by_disagreement=by) for by in (False, True))
    shares = [len(disagreed & {d.row for d in sample.documents}) / 100 for sample in (plain, asked)]
    assert shares[1] > shares[0]
    assert sum(asked.strata) == 200


def test_one_detector_cannot_disagree_and_one_document_is_no_sample(corpus: Corpus, tmp_path: Path) -> None:
    pq.write_table(spans_table([(0, 0, 4, "rules"), (0, 0, 4, "propagated:rules")]), tmp_path / "spans.parquet")
    with pytest.raises(PolicyError, match="one detector cannot disagree: rules"):
        draw_sample(corpus, tmp_path, 10, by_disagreement=True)
    with pytest.raises(PolicyError, match="at least 2"):
        draw_sample(corpus, tmp_path, 1)


def test_finds_are_stretches_and_disagreed_upon_where_a_detector_has_no_part(tmp_path: Path) -> None:
    rows = [
        *((0, 0, 4, "a"), (0, 2, 9, "b"), (0, 9, 12, "a"), (0, 20, 30, "a"), (0, 22, 23, "propagated:b")),
        *((2, 0, 4, "a"), (2, 0, 50, "b"), (2, 40, 45, "a")),
    ]
    pq.write_table(spans_table(rows), tmp_path / "spans.parquet")
    found, disagreed, detectors = _count_spans(tmp_path / "spans.parquet", 4)
    assert found.tolist() == [3, 0, 1, 0]
    assert disagreed.tolist() == [1, 0, 0, 0]
    assert detectors == ["a", "b"]
    pq.write_table(spans_table([]), tmp_path / "spans.parquet")
    assert [list(part) for part in _count_spans(tmp_path / "spans.parquet", 2)] == [[0, 0], [0, 0], []]


def test_no_stratum_gives_more_than_it_has() -> None:
    assert _allocate_sample(np.array([1, 3, 50]), np.array([1.0, 1000.0, 1.0]), 20).tolist() == [1, 3, 16]


def test_rows_come_in_the_order_of_the_corpus(corpus: Corpus) -> None:
    rows = [130, 3, 64, 63, 199]
    read = [doc for batch in iter_rows(corpus, rows, ("doc_id",)) for doc in batch.column("doc_id").to_pylist()]
    assert read == ["3", "63", "64", "130", "199"]
