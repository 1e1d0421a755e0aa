"""Updates of an index against rebuilding it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from fixtures.indexes import build, tables
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.ngrams import supports

from reticent.core.errors import PolicyError
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.ngrams import NgramIndex
from reticent.engine.split import Individuals, SplitConfig, split_individuals
from reticent.engine.update import Update, update_index

words = st.sampled_from(["a", "b", "c", "d", "é", "12/03", "electroencephalography"])
documents = st.lists(words, max_size=7).map(" ".join)
#: Documents of individual 0, 1, …
hospitals = st.lists(st.lists(documents, max_size=3), min_size=1, max_size=6)
EVERYBODY = ("members", "heldout", "reference")


def of(hospital: list[list[str]], people: set[int] | None = None) -> list[tuple[str, int]]:
    return [
        (text, person) for person, texts in enumerate(hospital) for text in texts if people is None or person in people
    ]


@pytest.mark.heavy
@settings(max_examples=examples(150))
@given(hospitals, hospitals, st.integers(1, 4), st.integers(2, 3))
def test_an_update_equals_a_rebuild(old: list[list[str]], new: list[list[str]], max_n: int, k: int) -> None:
    """Any hospital becomes any other; whose documents are the same is not counted again."""
    size = max(len(old), len(new))
    old, new = old + [[]] * (size - len(old)), new + [[]] * (size - len(new))
    changed = {person for person in range(size) if old[person] != new[person]}
    index = build(of(old), max_n=max_n, min_support=1)
    removed, added = (build(of(part, changed), max_n=max_n, min_support=1) for part in (old, new))
    updated, moved = index.update(removed, added, k)
    assert tables(updated) == tables(build(of(new), max_n=max_n, min_support=1))
    assert tables(updated.prune(2)) == tables(build(of(new), max_n=max_n, min_support=2))
    before, after = supports(of(old), max_n), supports(of(new), max_n)
    for n, counts in enumerate(moved, 1):
        pairs = [(before.get(gram, 0), after.get(gram, 0)) for gram in before.keys() | after.keys() if len(gram) == n]
        assert counts == (
            sum(a == 0 for a, _ in pairs),
            sum(b == 0 for _, b in pairs),
            sum(a >= k > b > 0 for a, b in pairs),
            sum(0 < a < k <= b for a, b in pairs),
        )


@settings(max_examples=examples(50))
@given(hospitals, st.integers(1, 3), st.integers(1, 4))
def test_pruning_equals_building_pruned(hospital: list[list[str]], first: int, more: int) -> None:
    corpus = of(hospital)
    pruned = build(corpus, min_support=first).prune(first + more)
    assert tables(pruned) == tables(build(corpus, min_support=first + more))
    with pytest.raises(PolicyError, match="prune: the index has min_support"):
        pruned.prune(first)


def test_documents_that_the_index_does_not_hold_cannot_be_removed() -> None:
    index, other = build([("a b", 0)], min_support=1), build([("a c", 0)], min_support=1)
    nothing = build([], min_support=1)
    with pytest.raises(PolicyError, match="not part of the index"):
        index.update(other, nothing, 2)
    apart = build([("a", 0), ("b", 0)], min_support=1)  # its words are there, its pair is not
    with pytest.raises(PolicyError, match="not part of the index"):
        index.update(apart, nothing, 2)
    with pytest.raises(PolicyError, match="min_support = 1"):
        index.prune(2).update(nothing, nothing, 2)


# ------------------------------------------------------------------ corpora


def write(path: Path, rows: list[tuple[str, str, str, str]], rows_per_group: int = 2) -> tuple[Corpus, Individuals]:
    """Rows of document, individual, household, text."""
    path.mkdir()
    names = ("doc_id", "individual_id", "household_id", "text")
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})
    pq.write_table(table, path / "part.parquet", row_group_size=rows_per_group)
    corpus = open_corpus(path, columns=Columns(household_id="household_id"))
    return corpus, split_individuals(corpus, SplitConfig(heldout=0.2, by="household"))


ROWS = [
    ("d1", "p1", "h1", "alpha beta gamma"),
    ("d2", "p2", "h1", "alpha beta"),
    ("d3", "p3", "h3", "beta gamma delta"),
    ("d4", "p3", "h3", "epsilon"),
    ("d5", "p4", "h4", "alpha beta gamma delta"),
    ("d6", "p5", "h5", "gamma delta epsilon"),
    *((f"e{i}", f"q{i}", f"g{i}", "zeta eta") for i in range(40)),
]


def updated(tmp_path: Path, rows: list[tuple[str, str, str, str]], **options: object) -> Update:
    before, after = write(tmp_path / "before", ROWS), write(tmp_path / "after", rows)
    config = IndexConfig(max_n=3, min_support=1)
    index = build_index(*before, splits=EVERYBODY, config=config)
    update = update_index(index, *before, *after, splits=EVERYBODY, **options)
    rebuilt = build_index(*after, splits=EVERYBODY, config=config)
    assert tables(update.index) == tables(rebuilt)
    return update


def test_a_withdrawal_makes_words_identifying(tmp_path: Path) -> None:
    update = updated(tmp_path, [row for row in ROWS if row[1] != "p5"])
    assert update.num_recounted == 1
    # epsilon has p3 left; delta still has p3 and p4; the pair (delta, epsilon) was p5's alone.
    assert [(m.new, m.gone, m.to_identifying, m.to_shared) for m in update.moved] == [
        (0, 0, 1, 0),
        (0, 1, 0, 0),
        (0, 1, 0, 0),
    ]


def test_a_new_document_of_a_known_individual(tmp_path: Path) -> None:
    update = updated(tmp_path, [*ROWS, ("d7", "p4", "h4", "epsilon theta")])
    assert update.num_recounted == 1
    assert update.moved[0].new == 1
    assert update.moved[0].to_shared == 0


def test_with_one_member_of_a_household_all_are_counted_again(tmp_path: Path) -> None:
    assert updated(tmp_path, [("d1", "p1", "h1", "alpha"), *ROWS[1:]], changed=["p1"]).num_recounted == 2


def test_who_moves_to_another_household_takes_both_along(tmp_path: Path) -> None:
    moved = [("d2", "p2", "h3", "alpha beta") if row[0] == "d2" else row for row in ROWS]
    assert updated(tmp_path, moved).num_recounted == 3


def test_nothing_changed_nothing_counted(tmp_path: Path) -> None:
    update = updated(tmp_path, ROWS)
    assert update.num_recounted == 0
    assert not any((m.new, m.gone, m.to_identifying, m.to_shared) != (0, 0, 0, 0) for m in update.moved)


def test_an_index_of_other_documents_is_refused(tmp_path: Path) -> None:
    before, after = write(tmp_path / "before", ROWS), write(tmp_path / "after", ROWS[1:])
    others = NgramIndex(build([("something else", 0)], min_support=1))
    with pytest.raises(PolicyError, match="not part of the index"):
        update_index(others, *before, *after, splits=EVERYBODY)
    assert np.array_equal(before[1].mask(*EVERYBODY), np.ones(45, bool))
