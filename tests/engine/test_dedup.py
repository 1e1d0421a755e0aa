"""Copies against brute force: equal texts, near duplicates by all pairs, shared passages window by window."""

from __future__ import annotations

import itertools
import random
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from fixtures.processor_time import processor_seconds
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.dedup import NOT_A_COPY, DedupConfig, find_copies, read_left_out, write_left_out

VOCABULARY = ["ab", "cd", "é", "12/05", "naïve", "x.y", "田", "😀", "ab", "ab", "cd"]


def collected(texts: list[str], *, batch: int = 3, num_threads: int = 1) -> _rust.Copies:
    collector = _rust.CopyCollector()
    firsts = list(range(0, len(texts), batch))
    for first in reversed(firsts):  # any order
        collector.add(first, pa.array(texts[first : first + batch], pa.large_string()))
    return collector.finish(num_threads=num_threads)


def words_of(text: str) -> list[str]:
    words = _rust.segment(pa.array([text], pa.large_string()))
    found = pa.record_batch(words.surfaces(pa.array([text], pa.large_string()))).column("word").to_pylist()
    return [unicodedata.normalize("NFC", word) for word in found]


def shingles(text: str, size: int) -> set[tuple[str, ...]]:
    words = words_of(text)
    if not words:
        return set()
    size = min(size, len(words))
    return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}


def jaccard(a: set, b: set) -> float:
    return len(a & b) / len(a | b) if a and b else 0.0


def edited(rng: random.Random, words: list[str], num_edits: int) -> list[str]:
    words = list(words)
    for _ in range(num_edits):
        words[rng.randrange(len(words))] = f"edit{rng.randrange(10**6)}"
    return words


def notes(seed: int, num: int, *, num_words: int = 60) -> list[str]:
    """Notes of which most are edited copies of an earlier one."""
    rng = random.Random(seed)
    found: list[list[str]] = []
    for _ in range(num):
        if found and rng.random() < 0.7:
            found.append(edited(rng, rng.choice(found), rng.randrange(4)))
        else:
            found.append([f"w{rng.randrange(500)}" for _ in range(num_words)])
    return [" ".join(words) for words in found]


texts_strategy = st.lists(
    st.lists(st.sampled_from(VOCABULARY), max_size=6).map(" ".join) | st.sampled_from(["", " ", "\0", "e\u0301", "é"]),
    max_size=12,
)


@settings(max_examples=examples(100))
@given(texts_strategy)
@example(["é  a\n", " e\u0301 a", "é A", "éa"])
def test_first_equal_matches_oracle(texts: list[str]) -> None:
    keys = [" ".join(unicodedata.normalize("NFC", text).split()) for text in texts]
    assert collected(texts).first_equal.tolist() == [keys.index(key) for key in keys]


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("seen  today\r\n", "seen today", True),
        ("caf\u00e9", "cafe\u0301", True),
        ("Seen today", "seen today", False),
        ("seen today.", "seen today", False),
        ("", " \n", True),
        ("", "\0", False),
        ("a\u00a0b", "a b", True),
        ("a\u200bb", "ab", False),
    ],
)
def test_texts_are_equal_in_nfc_and_but_for_white_space(a: str, b: str, equal: bool) -> None:
    assert (collected([a, b]).first_equal.tolist() == [0, 0]) is equal


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.95])
def test_near_duplicates_are_all_true_and_nearly_all_found(threshold: float) -> None:
    texts = notes(3, 220)
    sets = [shingles(text, 5) for text in texts]
    owners = np.arange(len(texts), dtype=np.uint32) // 4
    cluster, copy_of = collected(texts).near(owners, threshold=threshold)
    similar = {
        pair for pair in itertools.combinations(range(len(texts)), 2) if jaccard(*(sets[i] for i in pair)) >= threshold
    }
    assert len(similar) > 50
    linked = {pair for pair in similar if cluster[pair[0]] == cluster[pair[1]]}
    assert len(linked) >= 0.99 * len(similar)
    # Nothing is linked that a chain of true pairs does not link.
    parent = list(range(len(texts)))
    for a, b in sorted(similar):
        parent = [parent[a] if root == parent[b] else root for root in parent]
    assert all(parent[cluster[i]] == parent[i] for i in range(len(texts)))
    for row in np.flatnonzero(copy_of != NOT_A_COPY):
        kept = int(copy_of[row])
        assert kept < row
        assert owners[kept] == owners[row]
        assert copy_of[kept] == NOT_A_COPY
        assert jaccard(sets[row], sets[kept]) >= threshold


def test_many_notes_of_one_template_are_not_compared_each_with_each() -> None:
    words = [f"w{number}" for number in range(60)]

    def seconds(num_notes: int) -> float:
        copies = collected([" ".join([*words[:30], f"x{n}", f"y{n}", *words[32:]]) for n in range(num_notes)])
        rows = np.arange(num_notes, dtype=np.uint32)
        assert set(copies.near(rows)[0].tolist()) == {0}
        return processor_seconds(lambda: copies.near(rows))

    assert seconds(20_000) < 10 * seconds(5_000)  # 16 times as many pairs


def test_notes_of_a_template_that_are_no_near_duplicates_are_not_compared_each_with_each() -> None:
    template = ["Seen", "in", "clinic", "today", "and", "doing", "well", "with", "no", "new", "complaints", "since"]

    def seconds(num_notes: int) -> float:
        copies = collected([" ".join([*template, f"x{n}", f"y{n}", f"z{n}"]) for n in range(num_notes)])
        rows, one_owner = np.arange(num_notes, dtype=np.uint32), np.zeros(num_notes, dtype=np.uint32)
        cluster, copy_of = copies.near(one_owner)
        assert np.array_equal(cluster, rows)
        assert (copy_of == NOT_A_COPY).all()
        return processor_seconds(lambda: copies.near(one_owner))

    assert seconds(8_000) < 20 * seconds(1_000)  # 64 times as many pairs


def test_near_duplicates_of_a_crowd_are_those_of_each_alone() -> None:
    """Notes of one template share bands with all others: those who are alike are so beside few and beside many."""
    rng = random.Random(4)
    template = [f"w{number}" for number in range(40)]
    some = [" ".join(edited(rng, template, rng.randrange(4))) for _ in range(30)]
    others = [" ".join(edited(rng, template, 12)) for _ in range(300)]
    owners = np.arange(30, dtype=np.uint32) % 7
    alone = collected(some).near(owners, shingle=2)
    beside = collected([*some, *others]).near(np.concatenate([owners, np.full(300, 9, np.uint32)]), shingle=2)
    assert len(np.unique(alone[0])) < 30
    np.testing.assert_array_equal(alone[1], beside[1][:30])


def test_results_do_not_depend_on_threads_and_batches() -> None:
    texts = notes(5, 150)
    owners = np.arange(150, dtype=np.uint32) % 40
    results = []
    for batch, threads in ((1, 1), (7, 2), (150, 3)):
        copies = collected(texts, batch=batch, num_threads=threads)
        results.append([*copies.near(owners), *copies.passages(owners, num_words=20), copies.first_equal])
    for result in results[1:]:
        for ours, first in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(ours, first)


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.lists(st.sampled_from(["a", "b", "c"]), max_size=14), st.integers(0, 2)), max_size=6),
    st.integers(1, 5),
)
def test_passages_match_oracle(documents: list[tuple[list[str], int]], num_words: int) -> None:
    units = np.array([unit for _, unit in documents], dtype=np.uint32)
    within, across = collected([" ".join(words) for words, _ in documents]).passages(units, num_words=num_words)
    places: dict[tuple[str, ...], set[int]] = {}
    for row, (words, _) in enumerate(documents):
        for at in range(len(words) - num_words + 1):
            places.setdefault(tuple(words[at : at + num_words]), set()).add(row)
    for row, (words, unit) in enumerate(documents):
        covered: tuple[set[int], set[int]] = (set(), set())
        for at in range(len(words) - num_words + 1):
            others = places[tuple(words[at : at + num_words])] - {row}
            if any(units[other] == unit for other in others):
                covered[0].update(range(at, at + num_words))
            if any(units[other] != unit for other in others):
                covered[1].update(range(at, at + num_words))
        assert (within[row], across[row]) == (len(covered[0]), len(covered[1]))


def test_documents_must_follow_each_other() -> None:
    collector = _rust.CopyCollector()
    collector.add(1, pa.array(["a"]))
    with pytest.raises(CorpusError, match="document 0 expected next, got 1"):
        collector.finish()
    with pytest.raises(PolicyError, match="finished"):
        collector.finish()
    with pytest.raises(CorpusError, match="2 owners were given for 1 documents"):
        collected(["a"]).near(np.zeros(2, dtype=np.uint32))


def test_no_documents_have_no_copies() -> None:
    nobody = np.zeros(0, dtype=np.uint32)
    copies = collected([])
    assert [len(array) for array in (*copies.near(nobody), *copies.passages(nobody), copies.first_equal)] == [0] * 5


# ------------------------------------------------------------------------------------------------------- of a corpus

LETTER = " ".join(f"word{i}" for i in range(60))


def corpus_of(folder: Path, rows: list[tuple[str, str]], households: list[str | None] | None = None):
    folder.mkdir(exist_ok=True)
    table = pa.table(
        {
            "doc_id": [f"d{i}" for i in range(len(rows))],
            "individual_id": [owner for owner, _ in rows],
            "text": pa.array([text for _, text in rows], pa.large_string()),
        }
    )
    columns = None
    if households:
        from reticent.engine.corpus import Columns

        table = table.append_column("household_id", pa.array(households, pa.string()))
        columns = Columns(household_id="household_id")
    pq.write_table(table, folder / "documents.parquet", row_group_size=2)
    return open_corpus(folder, columns=columns)


ROWS = [
    ("p0", LETTER),
    ("p0", f"  {LETTER}\n"),  # the same
    ("p1", LETTER),  # the same, of another
    ("p1", LETTER + " and more"),  # near
    ("p2", "quite another note of one only"),
    ("p2", "x " * 10 + LETTER[: LETTER.index("word52")] + " y" * 30),  # a passage of 52 words
]


def test_copies_within_and_across_individuals_are_counted_apart(tmp_path: Path) -> None:
    counts = find_copies(corpus_of(tmp_path, ROWS)).counts
    words = np.array([60, 60, 60, 62, 6, 92])
    total = words.sum()
    assert (counts["documents"], counts["individuals"], counts["words"]) == (6, 3, total)
    assert counts["exact"]["within"] == {"documents": 1, "clusters": 1, "words_share": 60 / total}
    assert counts["exact"]["across"] == {"documents": 3, "clusters": 1, "words_share": 180 / total}
    assert counts["near"]["within"] == {"documents": 2, "clusters": 2, "words_share": 122 / total}
    assert counts["near"]["across"] == {"documents": 4, "clusters": 1, "words_share": 242 / total}
    assert counts["passages"]["within"] == {"documents": 4, "words_share": (60 * 4) / total}
    assert counts["passages"]["across"] == {"documents": 5, "words_share": (60 * 4 + 52) / total}
    # p0 and p1 share 60 words by copies; 52 of them p2 has by a passage of another document.
    assert counts["support"]["lifted_words"] == 8
    assert counts["left_out"] == {"documents": 0, "individuals": 0, "words_share": 0.0}


def test_words_that_a_household_shares_are_not_lifted_by_its_copies(tmp_path: Path) -> None:
    rows = ROWS[:5]
    assert find_copies(corpus_of(tmp_path / "a", rows)).counts["support"]["lifted_words"] == 60
    together = corpus_of(tmp_path / "b", rows, ["h0", "h0", "h0", "h0", "h1"])
    assert find_copies(together).counts["support"]["lifted_words"] == 0
    # An individual of no household is a unit of their own.
    for households in (["h0", "h0", "h0", "h0", None], [None] * 5):
        mixed = corpus_of(tmp_path / str(households.count(None)), rows, households)
        assert find_copies(mixed).counts["support"]["lifted_words"] == (60 if households[0] is None else 0)


@pytest.mark.parametrize(
    ("mode", "scope", "expected"),
    [
        ("off", "individual", []),
        ("off", "corpus", []),
        ("exact", "individual", [(1, 0)]),
        ("near", "individual", [(1, 0), (3, 2)]),
        ("exact", "corpus", [(1, 0), (2, 0)]),
        ("near", "corpus", [(1, 0), (2, 0), (3, 0)]),
    ],
)
def test_left_out_documents_follow_mode_and_scope(
    tmp_path: Path, mode: str, scope: str, expected: list[tuple[int, int]]
) -> None:
    found = find_copies(corpus_of(tmp_path, ROWS), DedupConfig(mode=mode, scope=scope))  # type: ignore[arg-type]
    assert found.left_out.to_pylist() == [
        {"row": row, "doc_id": f"d{row}", "kept_row": kept, "kept_doc_id": f"d{kept}"} for row, kept in expected
    ]
    assert found.counts["left_out"]["documents"] == len(expected)
    gone = {ROWS[row][0] for row, _ in expected} - {row[0] for at, row in enumerate(ROWS) if at not in dict(expected)}
    assert found.counts["left_out"]["individuals"] == len(gone)
    write_left_out(found.left_out, tmp_path)
    assert read_left_out(tmp_path).tolist() == [row for row, _ in expected]


def test_damaged_rows_to_leave_out_are_refused(tmp_path: Path) -> None:
    (tmp_path / "left_out.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ArtifactError, match=r"left_out\.parquet: not a readable deduplication"):
        read_left_out(tmp_path)
