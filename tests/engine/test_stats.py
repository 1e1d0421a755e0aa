"""Statistics of a corpus: a hospital of four individuals worked by hand, brute force, and no name in any of it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.ngrams import ngrams, protected_words, supports

from reticent.core.errors import CorpusError
from reticent.engine.detect.spans import SpanReader
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.protect import POLICIES, Policy
from reticent.engine.schema import INDIVIDUALS, SPANS, SPLITS
from reticent.engine.split import Individuals
from reticent.engine.stats import NUM_SAMPLES, cdf, corpus_statistics, detected_spans

Documents = Sequence[tuple[int, str]]
DOCUMENTS = [(0, "Ann has flu."), (0, "Ann has has"), (2, "Bob has flu."), (5, "")]
#: Ann is a name, wherever she stands; the age in the first document is one there only.
SPANS_OF_DOCUMENTS = [(0, 0, 3, "NAME"), (0, 8, 11, "AGE")]


class Corpus:
    """Documents in memory, two a batch."""

    def __init__(self, documents: Documents):
        self.table = pa.table(
            {
                "doc_id": [f"d{i}" for i in range(len(documents))],
                "individual_id": pa.array([f"p{individual}" for individual, _ in documents], pa.string()),
                "text": pa.array([text for _, text in documents], pa.large_string()),
            }
        )

    def batches(self, *, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(columns).to_batches(max_chunksize=2)

    def scan(self) -> pa.Table:
        return self.table

    def for_each_batch(self, work: Callable[[int, pa.RecordBatch], None], **options: Any) -> None:
        row = 0
        for batch in self.batches(columns=options["columns"]):
            work(row, batch)
            row += batch.num_rows


def individuals_of(num: int, units: Sequence[int] | None = None) -> Individuals:
    """``num`` members; the units are households where they are given."""
    sides = pa.DictionaryArray.from_arrays(pa.array([0] * num, pa.int8()), pa.array(SPLITS))
    codes = pa.array(range(num), pa.uint32())
    unit = codes if units is None else pa.array(units, pa.uint32())
    columns = [pa.array([f"p{i}" for i in range(num)]), codes, unit, sides, pa.array([1] * num, pa.uint32())]
    return Individuals(pa.table(columns, schema=INDIVIDUALS))


def statistics(
    documents: Documents = DOCUMENTS,
    *,
    units: Sequence[int] | None = None,
    max_n: int = 2,
    spans: SpanReader | None = None,
    indexed: Documents | None = None,
    seed: int = 0,
    **policy: Any,
) -> dict[str, Any]:
    individuals = individuals_of(6, units)
    index = build_index(Corpus(indexed or documents), individuals, config=IndexConfig(max_n=max_n))  # type: ignore[arg-type]
    return corpus_statistics(
        Corpus(documents),  # type: ignore[arg-type]
        individuals,
        index,
        policy=Policy(**policy),
        spans=spans,
        seed=seed,
    )


def read_spans(folder: Path, spans: Sequence[tuple[int, int, int, str]]) -> SpanReader:
    rows = [
        {"document": d, "doc_id": f"d{d}", "start": start, "end": end, "label": label, "detector": "x", "score": 1.0}
        for d, start, end, label in spans
    ]
    pq.write_table(pa.Table.from_pylist(rows, SPANS), folder / "spans.parquet")
    return SpanReader(folder)


@pytest.fixture
def spans(tmp_path: Path) -> SpanReader:
    return read_spans(tmp_path, SPANS_OF_DOCUMENTS)


def test_statistics_of_four_documents_worked_by_hand(spans: SpanReader) -> None:
    found = statistics(spans=spans)
    assert (found["num_documents"], found["num_words"], found["num_distinct_words"]) == (4, 9, 4)
    assert (found["k"], found["n"], found["policy"], found["unit"]) == (2, 1, "all", "individual")
    assert found["share_types_identifying"] == 2 / 4  # Ann and Bob
    assert found["share_occurrences_identifying"] == pytest.approx(3 / 9)
    assert found["protected"] == pytest.approx({"direct": 3 / 9, "indirect": 3 / 9, "both": 4 / 9})
    assert found["retention"] == pytest.approx({"all": 5 / 9})
    # Individuals 0, 2 and 5 have 2, 0 and 0 distinct direct words, 1, 1 and 0 indirect ones; 6, 3 and 0 words.
    third = pytest.approx([0.333333, 1.0])
    assert found["identifiers_per_individual"] == {
        "direct": {"x": [0, 2], "y": pytest.approx([0.666667, 1.0])},
        "indirect": {"x": [0, 1], "y": third},
        "both": {"x": [0, 1, 2], "y": pytest.approx([0.333333, 0.666667, 1.0])},
    }
    assert found["words_per_individual"] == {"x": [0, 3, 6], "y": pytest.approx([0.333333, 0.666667, 1.0])}
    assert found["individuals_per_word"] == {
        "distinct": {"x": [1, 2], "y": [0.5, 1.0]},
        "occurrences": {"x": [1, 2], "y": third},
    }


def test_identifiers_by_n_of_four_documents_worked_by_hand(spans: SpanReader) -> None:
    found = statistics(spans=spans)
    assert found["identifying_words"] == {
        "direct": {"distinct": 2, "occurrences": 3},  # Ann twice, and flu once
        "indirect": {"distinct": 2, "occurrences": 3},  # Ann twice, Bob
        "both": {"distinct": 3, "occurrences": 4},
    }
    words, pairs = found["identifiers_by_n"]
    for kind in ("all", "minimal"):
        curve = {"x": [0, 1], "y": pytest.approx([0.333333, 1.0])}
        assert words[kind] == {"distinct": 2, "occurrences": 3, "occurrences_direct": 2, "per_individual": curve}
    # Identifying: Ann has (twice), has has, Bob has; only the second holds no identifying word. Kept: has flu.
    assert pairs["all"] == {
        "distinct": 3,
        "occurrences": 4,
        "occurrences_direct": 2,
        "per_individual": {"x": [0, 1, 2], "y": pytest.approx([0.333333, 0.666667, 1.0])},
    }
    assert pairs["minimal"] == {
        "distinct": 1,
        "occurrences": 1,
        "occurrences_direct": 0,
        "per_individual": {"x": [0, 1], "y": pytest.approx([0.666667, 1.0])},
    }
    assert [row["kept"] for row in (words, pairs)] == [
        {"distinct": 2, "occurrences": 6},
        {"distinct": 1, "occurrences": 2},
    ]
    near = {(row["n"], row["support"]): (row["distinct"], row["occurrences"]) for row in found["margin"]}
    assert near == {
        (1, 1): (2, 3), (1, 2): (2, 6), (2, 1): (3, 4), (2, 2): (1, 2),
        **{(n, support): (0, 0) for n in (1, 2) for support in (3, 4, 5, 6)},
    }  # fmt: skip


def test_an_ngram_holds_a_direct_word_wherever_that_stands_in_it(tmp_path: Path) -> None:
    documents = [(0, "he then saw Ann today"), (1, "Bea"), (1, "then")]
    spans = read_spans(tmp_path, [(0, 12, 15, "NAME"), (1, 0, 3, "AGE")])
    rows = statistics(documents, spans=spans, max_n=4)["identifiers_by_n"]
    assert [row["all"]["occurrences"] for row in rows] == [5, 4, 3, 2]
    assert [row["all"]["occurrences_direct"] for row in rows] == [2, 2, 2, 2]
    assert [row["minimal"]["occurrences_direct"] for row in rows] == [2, 0, 0, 0]


def test_statistics_are_json_and_name_neither_words_nor_individuals(spans: SpanReader) -> None:
    text = json.dumps(statistics(spans=spans), allow_nan=False)
    assert not any(name in text for name in ("Ann", "Bob", "flu", "d0", "p0"))


words = st.sampled_from(["a", "b", "c", "d"])
corpora = st.lists(st.tuples(st.integers(0, 5), st.lists(words, max_size=7).map(" ".join)), min_size=1, max_size=9)


@settings(max_examples=examples(60))
@given(corpora, st.sampled_from([None, [0, 0, 1, 1, 2, 3]]), st.integers(2, 4), st.integers(1, 3))
def test_counts_match_the_oracle(documents: Documents, units: list[int] | None, k: int, max_n: int) -> None:
    tokens = [text.split() for _, text in documents]
    if not any(tokens):
        return
    found = statistics(documents, units=units, max_n=max_n, k=k)
    unit_of = units or list(range(6))
    counts = supports([(text, unit_of[individual]) for individual, text in documents], max_n)
    occurrences = Counter(gram for words in tokens for n in range(1, max_n + 1) for gram in ngrams(words, n))
    present = sorted({individual for individual, _ in documents})
    assert found["unit"] == ("household" if len({unit_of[i] for i in present}) < len(present) else "individual")
    near = {(row["n"], row["support"]): (row["distinct"], row["occurrences"]) for row in found["margin"]}
    for n in range(1, max_n + 1):
        row = found["identifiers_by_n"][n - 1]
        rare = {gram for gram, support in counts.items() if support < k and len(gram) == n}
        least = {g for g in rare if n == 1 or (counts[g[1:]] >= k and counts[g[:-1]] >= k)}
        kept = {gram for gram, support in counts.items() if support >= k and len(gram) == n}
        for kind, grams in (("all", rare), ("minimal", least)):
            owned = defaultdict(set)
            for (individual, _), document in zip(documents, tokens, strict=True):
                owned[individual] |= set(ngrams(document, n)) & grams
            assert row[kind]["distinct"] == len(grams)
            assert row[kind]["occurrences"] == sum(occurrences[gram] for gram in grams)
            assert row[kind]["per_individual"] == cdf(np.array([len(owned[individual]) for individual in present]))
        assert row["kept"] == {"distinct": len(kept), "occurrences": sum(occurrences[gram] for gram in kept)}
        for support in range(max(1, k - 2), k + 5):
            grams = {gram for gram, s in counts.items() if s == support and len(gram) == n}
            assert near.pop((n, support)) == (len(grams), sum(occurrences[gram] for gram in grams))
    assert not near
    rows = {(row["policy"], row["n"]): row["retention"] for row in found["retention_by_policy"]}
    assert rows == pytest.approx(
        {
            (policy, n): 1 - sum(len(protected_words(t, counts, k, n, policy)) for t in tokens) / sum(map(len, tokens))
            for policy in POLICIES
            for n in range(1, max_n + 1)
        }
    )


@settings(max_examples=30)
@given(corpora, st.integers(0, 9))
def test_unicity_counts_every_unit_and_single_sets_match_the_oracle(documents: Documents, seed: int) -> None:
    if not any(text for _, text in documents):
        return
    units = [0, 0, 1, 1, 2, 3]
    counts = supports([(text, units[individual]) for individual, text in documents], 1)
    owned = defaultdict(set)
    for individual, text in documents:
        owned[units[individual]] |= {word for word in text.split() if counts[(word,)] >= 2}
    found = {row["m"]: row for row in statistics(documents, units=units, seed=seed)["unicity"]}
    assert list(found) == list(range(1, 11))
    assert len(owned) <= NUM_SAMPLES
    for m, row in found.items():
        assert row["num_units"] == sum(len(words) >= m for words in owned.values())
    top = max(map(len, owned.values()))
    if top:  # who has exactly this many has one set of them
        alone = [not any(o != u and owned[u] <= owned[o] for o in owned) for u in owned if len(owned[u]) == top]
        assert found[top]["num_singled_out"] == sum(alone)
    assert found[1]["num_singled_out"] == 0


def test_the_draws_depend_on_the_seed() -> None:
    random = np.random.default_rng(1)
    documents = [(i % 6, " ".join(random.choice(list("abcdefghijkl"), 6))) for i in range(6)]
    drawn = [
        [row["num_singled_out"] for row in statistics(documents, seed=seed)["unicity"]] for seed in (0, 0, 1, 2, 3)
    ]
    assert drawn[0] == drawn[1]
    assert any(other != drawn[0] for other in drawn[2:])


@pytest.mark.parametrize("documents", [[(0, "")], [(0, " . "), (1, "")]])
def test_documents_without_a_word_have_no_statistics(documents: Documents) -> None:
    with pytest.raises(CorpusError, match="hold no word"):
        statistics(documents)


@pytest.mark.parametrize(
    ("indexed", "message"),
    [([*DOCUMENTS, (1, "has")], "holds 10 words, the documents 9"), ([(0, "Ann has flu")], "are not in the index")],
)
def test_documents_that_changed_since_the_index_are_refused(indexed: Documents, message: str) -> None:
    with pytest.raises(CorpusError, match=message) as caught:
        statistics(indexed=indexed)
    assert "Bob" not in str(caught.value)


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
    assert detected_spans(path, INDIVIDUAL, min_individuals=5) == [
        row("other", "any", 11, None, 6),
        row("DATE", "rules", 8, 6, 5),
        row("NAME", "gold", 6, 5, 5),
    ]


@pytest.mark.parametrize(
    ("small_cell", "shown"), [(1, ["AGE", "NAME"]), (2, ["NAME"]), (4, ["NAME"]), (5, ["other"]), (6, [])]
)
def test_the_threshold_is_the_one_asked_for(tmp_path: Path, small_cell: int, shown: list[str]) -> None:
    path = write_spans(tmp_path, {("NAME", "gold"): [6, 7, 8, 9], ("AGE", "gold"): [0, 1, 2, 3, 4]})
    assert [row["label"] for row in detected_spans(path, INDIVIDUAL, min_individuals=small_cell)] == shown


def test_a_rest_that_is_itself_small_is_not_shown(tmp_path: Path) -> None:
    found = {("NAME", "gold"): [5, 6, 7, 8, 9], ("AGE", "gold"): [0, 1, 2, 6], ("ZIP", "gold"): [3, 4, 7]}
    shown = [row("NAME", "gold", 5, 5, 5)]
    assert detected_spans(write_spans(tmp_path, found), INDIVIDUAL, min_individuals=5) == shown
    assert detected_spans(write_spans(tmp_path, {}), INDIVIDUAL, min_individuals=5) == []


@settings(max_examples=examples(80))
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
