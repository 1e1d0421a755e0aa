"""Poisson samples of units against plain loops over them."""

from __future__ import annotations

import numpy as np
import pytest
from fixtures.drawing import examples
from fixtures.stores import Token, make_store
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.ext.dp.dpsgd import Sample, Units, dummy_batch, find_units, physical_batches
from reticent.trainer.windows import SpecialIds, Windows, cut_windows

SPECIAL = SpecialIds(prefix=1, suffix=None, pad=0, mask=None)


def windows_of(lengths: list[int], individual: list[int]) -> Windows:
    """Documents of so many tokens, cut to windows of four."""
    documents: list[list[Token]] = [[(7, word, 0) for word in range(length)] for length in lengths]
    return cut_windows(make_store(*documents, individual=individual), 5, SPECIAL)


corpora = st.lists(st.tuples(st.integers(0, 13), st.integers(0, 5)), min_size=1, max_size=25)


def by_document(windows: Windows, sample: Sample) -> dict[int, set[int]]:
    """Unit of the sample -> its documents; checks that documents come whole."""
    found: dict[int, set[int]] = {}
    for window, unit in zip(sample.windows, sample.units, strict=True):
        found.setdefault(int(unit), set()).add(int(windows.documents[window]))
    for documents in found.values():
        for document in documents:
            assert set(np.flatnonzero(windows.documents == document)) <= set(sample.windows.tolist())
    return found


@given(corpora, st.integers(1, 4), st.sampled_from([0.3, 0.7, 1.0]), st.integers(0, 2**128 - 1))
@settings(max_examples=examples(60))
def test_sample_is_whole_documents_of_few_of_each_individual(
    corpus: list[tuple[int, int]], cap: int, rate: float, seed: int
) -> None:
    individual = [person for _, person in corpus]
    windows = windows_of([length for length, _ in corpus], individual)
    units = find_units(windows, "individual", cap)
    assert len(units) == len(set(individual))
    sample = units.draw(rate, seed=seed, step=3)
    assert len(set(sample.windows.tolist())) == len(sample.windows)
    people = []
    for documents in by_document(windows, sample).values():
        assert len({individual[document] for document in documents}) == 1
        assert len(documents) <= cap
        people.append(individual[next(iter(documents))])
    assert len(people) == len(set(people))
    if rate == 1.0:
        for person in set(individual):
            own = [length for length, owner in corpus if owner == person]
            if len(own) <= cap and any(own):
                assert person in people
    shares = [units.draw(rate, seed=seed, step=3, rank=rank, num_ranks=3) for rank in range(3)]
    assert sorted(np.concatenate([share.windows for share in shares])) == sorted(sample.windows)
    again = units.draw(rate, seed=seed, step=3)
    assert again.windows.tolist() == sample.windows.tolist()


@given(corpora, st.integers(1, 9))
@settings(max_examples=examples(60))
def test_physical_batches_are_whole_units_and_all_of_them(corpus: list[tuple[int, int]], size: int) -> None:
    windows = windows_of([length for length, _ in corpus], [person for _, person in corpus])
    sample = find_units(windows, "individual", 3).draw(1.0, seed=1, step=0)
    owner = dict(zip(sample.windows.tolist(), sample.units.tolist(), strict=True))
    seen: list[int] = []
    for part in physical_batches(sample, windows, size):
        assert part.units[0] == 0
        assert set(np.diff(part.units).tolist()) <= {0, 1}
        assert len(part.units) <= size or part.units[-1] == 0
        for unit in range(part.units[-1] + 1):
            own = part.windows[part.units == unit].tolist()
            assert len({owner[window] for window in own}) == 1
            assert sorted(own) == sorted(window for window, of in owner.items() if of == owner[own[0]])
        seen += part.windows.tolist()
    assert sorted(seen) == sorted(owner)


def test_units_are_drawn_at_the_rate_and_apart_from_each_other() -> None:
    units = find_units(windows_of([4] * 400, list(range(400))), "record")
    draws = np.zeros((300, 400))
    for step in range(300):
        draws[step, units.draw(0.2, seed=9, step=step).windows] = 1
    assert draws.mean() == pytest.approx(0.2, abs=0.005)  # over 5 standard deviations
    assert draws.sum(axis=1).std() == pytest.approx((400 * 0.2 * 0.8) ** 0.5, rel=0.15)  # a fixed size would have 0
    assert np.abs(np.corrcoef(draws[:, :50].T) - np.eye(50)).max() < 0.35


def test_documents_beyond_the_cap_are_drawn_afresh_each_step() -> None:
    windows = windows_of([4] * 6, [0] * 6)
    units = find_units(windows, "individual", 2)
    pairs = [tuple(sorted(units.draw(1.0, seed=4, step=step).windows.tolist())) for step in range(200)]
    assert {len(pair) for pair in pairs} == {2}
    assert len(set(pairs)) == 15  # every pair of six


def test_seeds_and_steps_draw_differently() -> None:
    units = find_units(windows_of([4] * 60, list(range(60))), "record")
    found = {tuple(units.draw(0.5, seed=seed, step=step).windows) for seed in (0, 1, 2**64, 2**100) for step in (0, 1)}
    assert len(found) == 8


def test_documents_without_a_window_are_units_all_the_same() -> None:
    units = find_units(windows_of([0, 5, 0], [0, 1, 2]), "record")
    assert len(units) == 3
    assert units.draw(1.0, seed=0, step=0).windows.tolist() == [0, 1]


def test_empty_sample_has_no_part_and_its_dummy_has_no_text() -> None:
    windows = windows_of([5], [0])
    empty = Sample(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    assert list(physical_batches(empty, windows, 4)) == []
    dummy = dummy_batch(windows)
    assert not dummy.is_text.any()
    assert dummy.attention.all()
    assert (dummy.word_ids == -1).all()
    assert isinstance(find_units(windows, "record"), Units)
