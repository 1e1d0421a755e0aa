"""Statistics of a corpus: a hospital of four people worked by hand, and nothing in them that names anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.engine.schema import DIRECT, INDIRECT, INDIVIDUALS, SPANS, SPLITS
from reticent.engine.split import Individuals
from reticent.engine.stats import cdf, corpus_statistics, detected_spans
from reticent.engine.store import TokenStore
from reticent.errors import CorpusError

#: Tokens of each word: "Ann" is two of them, and the full stop belongs to no word.
TOKENS = {"Ann": [10, 11], "Bob": [10], "has": [12], "flu": [13], ".": [14]}
BOTH = DIRECT | INDIRECT
DOCUMENTS: list[tuple[int, list[tuple[str, int]]]] = [
    (0, [("Ann", BOTH), ("has", 0), ("flu", DIRECT), (".", 0)]),
    (0, [("Ann", BOTH), ("has", 0), ("has", 0)]),
    (2, [("Bob", INDIRECT), ("has", 0), ("flu", 0), (".", 0)]),
    (5, []),
]
WORDS = pa.table({"word": ["Ann", "Bob", "flu", "has"], "support": [1, 1, 2, 2], "occurrences": [2, 1, 2, 4]})


def store_of(documents: list[tuple[int, list[tuple[str, int]]]]) -> TokenStore:
    input_ids, word_ids, flags, offsets = [], [], [], [0]
    for _, words in documents:
        number = 0
        for word, flag in words:
            input_ids += TOKENS[word]
            word_ids += [-1 if word == "." else number] * len(TOKENS[word])
            flags += [flag] * len(TOKENS[word])
            number += word != "."
        offsets.append(len(input_ids))
    return TokenStore(
        np.array(input_ids, np.uint16),
        np.array(word_ids, np.int32),
        np.array(flags, np.uint8),
        np.zeros(len(flags), np.uint8),
        np.array(offsets, np.int64),
        np.array([individual for individual, _ in documents], np.uint32),
        pa.array([f"d{i}" for i in range(len(documents))]),
    )


def individuals_of(num: int) -> Individuals:
    sides = pa.DictionaryArray.from_arrays(pa.array([0] * num, pa.int8()), pa.array(SPLITS))
    codes = pa.array(range(num), pa.uint32())
    columns = [pa.array([f"p{i}" for i in range(num)]), codes, codes, sides, pa.array([1] * num, pa.uint32())]
    return Individuals(pa.table(columns, schema=INDIVIDUALS))


def statistics(documents: Any = None, words: pa.Table = WORDS, **options: Any) -> dict[str, Any]:
    store = store_of(DOCUMENTS if documents is None else documents)
    batch = words.combine_chunks().to_batches()
    empty = pa.RecordBatch.from_pylist([], words.schema)
    options = {"k": 2, "n": 1, "policy": "all", **options}
    return corpus_statistics(store, batch[0] if batch else empty, individuals_of(6), **options)


def test_statistics_of_four_documents_worked_by_hand() -> None:
    found = statistics()
    assert found["num_documents"] == 4
    assert found["num_words"] == 9
    assert found["num_distinct_words"] == 4
    assert (found["k"], found["n"], found["policy"]) == (2, 1, "all")
    assert found["share_types_identifying"] == 2 / 4  # Ann and Bob
    assert found["share_occurrences_identifying"] == pytest.approx(3 / 9)
    assert found["protected"] == pytest.approx({"direct": 3 / 9, "indirect": 3 / 9, "both": 4 / 9})
    assert found["retention"] == pytest.approx({"all": 5 / 9})
    # Individuals 0, 2 and 5 have 2, 0 and 0 distinct direct words, 1, 1 and 0 indirect ones; 6, 3 and 0 words.
    third = pytest.approx([0.333333, 1.0])
    assert found["identifiers_per_individual"]["direct"] == {"x": [0, 2], "y": pytest.approx([0.666667, 1.0])}
    assert found["identifiers_per_individual"]["indirect"] == {"x": [0, 1], "y": third}
    assert found["identifiers_per_individual"]["both"] == {
        "x": [0, 1, 2],
        "y": pytest.approx([0.333333, 0.666667, 1.0]),
    }
    assert found["words_per_individual"] == {"x": [0, 3, 6], "y": pytest.approx([0.333333, 0.666667, 1.0])}
    assert found["individuals_per_word"] == {
        "distinct": {"x": [1, 2], "y": [0.5, 1.0]},
        "occurrences": {"x": [1, 2], "y": third},
    }


def test_statistics_are_json_and_name_neither_words_nor_people() -> None:
    text = json.dumps(statistics(), allow_nan=False)
    assert not any(name in text for name in ("Ann", "Bob", "flu", "d0", "p0"))


def test_words_are_told_apart_by_all_their_tokens() -> None:
    documents = [(0, [("Ann", DIRECT), ("Bob", DIRECT), ("Ann", DIRECT)])]  # [10, 11] and [10]
    assert statistics(documents)["identifiers_per_individual"]["direct"] == {"x": [2], "y": [1.0]}


@pytest.mark.parametrize("documents", [[(0, [])], [(0, [(".", 0)])], []])
def test_documents_without_a_word_have_no_statistics(documents: Any) -> None:
    with pytest.raises(CorpusError, match="hold no word"):
        statistics(documents, WORDS.slice(0, 0))


def write_spans(folder: Path, found: dict[tuple[str, str], list[int]]) -> Path:
    """Spans of (label, detector) in these documents."""
    rows = [
        {"document": d, "doc_id": f"d{d}", "start": 0, "end": 1, "label": label, "detector": detector, "score": 1.0}
        for (label, detector), documents in found.items()
        for d in documents
    ]
    pq.write_table(pa.Table.from_pylist(rows, SPANS), folder / "spans.parquet")
    return folder / "spans.parquet"


#: Individual of each document: the first has six of them, the others one each.
INDIVIDUAL = np.array([0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5], np.uint32)


def row(label: str, detector: str, spans: int, documents: int | None, individuals: int) -> dict[str, Any]:
    counts = {"num_spans": spans, "num_documents": documents, "num_individuals": individuals}
    return {"label": label, "detector": detector, **counts}


def test_labels_found_in_few_individuals_are_put_together(tmp_path: Path) -> None:
    path = write_spans(
        tmp_path,
        {
            ("NAME", "gold"): [5, 6, 7, 8, 9, 9],
            ("NAME", "rules"): [6, 7, 8, 9],
            ("AGE", "gold"): [0, 1, 2, 3, 4, 5],  # six documents of one individual
            ("DATE", "rules"): [0, 1, 6, 7, 8, 10, 10, 10],
            ("ZIP", "rules"): [10],
        },
    )
    assert detected_spans(path, INDIVIDUAL, small_cell=5) == [
        row("other", "any", 11, None, 6),
        row("DATE", "rules", 8, 6, 5),
        row("NAME", "gold", 6, 5, 5),
    ]


@pytest.mark.parametrize(
    ("small_cell", "shown"), [(1, ["AGE", "NAME"]), (2, ["NAME"]), (4, ["NAME"]), (5, ["other"]), (6, [])]
)
def test_the_threshold_is_the_one_asked_for(tmp_path: Path, small_cell: int, shown: list[str]) -> None:
    path = write_spans(tmp_path, {("NAME", "gold"): [6, 7, 8, 9], ("AGE", "gold"): [0, 1, 2, 3, 4]})
    assert [row["label"] for row in detected_spans(path, INDIVIDUAL, small_cell=small_cell)] == shown


def test_a_rest_that_is_itself_small_is_not_shown(tmp_path: Path) -> None:
    found = {("NAME", "gold"): [5, 6, 7, 8, 9], ("AGE", "gold"): [0, 1, 2, 6], ("ZIP", "gold"): [3, 4, 7]}
    shown = [row("NAME", "gold", 5, 5, 5)]
    assert detected_spans(write_spans(tmp_path, found), INDIVIDUAL, small_cell=5) == shown
    assert detected_spans(write_spans(tmp_path, {}), INDIVIDUAL, small_cell=5) == []


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=80), st.integers(2, 12))
def test_cumulative_distribution_matches_the_oracle(values: list[int], max_points: int) -> None:
    full, found = cdf(np.array(values)), cdf(np.array(values), max_points=max_points)
    assert full["x"] == sorted(set(values))
    assert full["y"] == pytest.approx([sum(v <= x for v in values) / len(values) for x in full["x"]], abs=1e-6)
    points = dict(zip(full["x"], full["y"], strict=True))
    assert all(points[x] == y for x, y in zip(found["x"], found["y"], strict=True))
    assert found["x"] == sorted(set(found["x"]))
    if values:
        assert (found["x"][0], found["x"][-1], found["y"][-1]) == (min(values), max(values), 1.0)
        assert len(found["x"]) <= max_points + 2


def test_weights_count_as_repeated_values() -> None:
    assert cdf(np.array([1, 3, 7]), np.array([2.0, 1.0, 1.0])) == cdf(np.array([1, 1, 3, 7]))
