"""A private vocabulary: votes of length one, a threshold that hides who alone uses a word, an index of the draws."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from reticent.core.errors import PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.dp_vocabulary import gaussian_sigma, private_index, private_words, vote_threshold, votes
from reticent.engine.index import build_index
from reticent.engine.split import SplitConfig, split_individuals

OCCURRENCES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=40)


def counted(drawn: list[tuple[int, int]], order: np.ndarray, most: int) -> np.ndarray:
    unit, word = (np.array([pair[at] for pair in drawn], dtype=np.int64) for at in (0, 1))
    return votes(unit, word, order, most)


@settings(max_examples=examples(100), deadline=None)
@given(drawn=OCCURRENCES, most=st.integers(1, 8), seed=st.integers(0, 5))
def test_votes_match_the_oracle(drawn: list[tuple[int, int]], most: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(7)
    expected = np.zeros(7)
    for unit in {unit for unit, _ in drawn}:
        own = Counter(word for other, word in drawn if other == unit)
        chosen = sorted(own, key=lambda word: (-own[word], order[word]))[:most]
        expected[chosen] += 1 / math.sqrt(len(chosen))
    np.testing.assert_allclose(counted(drawn, order, most), expected, rtol=1e-12)


@settings(max_examples=examples(100), deadline=None)
@given(drawn=OCCURRENCES, unit=st.integers(0, 4), most=st.integers(1, 8))
def test_one_individual_moves_the_votes_by_a_length_of_one(drawn: list[tuple[int, int]], unit: int, most: int) -> None:
    order = np.arange(7)
    without = [pair for pair in drawn if pair[0] != unit]
    moved = counted(drawn, order, most) - counted(without, order, most)
    assert np.linalg.norm(moved) == pytest.approx(1.0 if len(without) < len(drawn) else 0.0)


@settings(max_examples=examples(20), deadline=None)
@given(st.floats(0.05, 20), st.floats(1e-9, 0.1))
def test_noise_spends_what_it_may_and_no_more(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta)

    def spent(noise: float) -> float:
        half, tail = 1 / (2 * noise), epsilon * noise
        return float(norm.cdf(half - tail) - math.exp(epsilon + norm.logcdf(-half - tail)))

    assert spent(sigma) <= delta * (1 + 1e-6)
    assert spent(sigma * 0.999) > delta * (1 - 1e-6)


@pytest.mark.parametrize("most", [1, 7, 200])
def test_words_of_one_individual_stay_under_the_threshold(most: int) -> None:
    """However many of them there are, that any is over it has the probability delta at most, and reaches it."""
    sigma, delta = 2.0, 1e-3
    threshold = vote_threshold(most, sigma, delta)
    num = np.arange(1, most + 1)
    any_over = -np.expm1(num * np.log1p(-norm.sf((threshold - 1 / np.sqrt(num)) / sigma)))
    assert any_over.max() == pytest.approx(delta, rel=1e-6)


def test_a_word_that_nobody_uses_is_not_spared_and_one_that_all_use_is() -> None:
    found = private_words(np.array([0.0, 1e4, 0.0]), np.array([1e-30, 0.5, 0.0]), 10, 1.0, 1e-5)
    assert found.tolist() == [False, True, False]


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0.1), (math.inf, 0.1), (1, 0), (1, 1)])
def test_what_is_no_guarantee_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(PolicyError):
        gaussian_sigma(epsilon, delta)
    with pytest.raises(PolicyError, match="at least one word"):
        votes(np.zeros(1, dtype=int), np.zeros(1, dtype=int), np.arange(1), 0)


def test_the_index_protects_what_was_not_drawn(tmp_path: Path) -> None:
    """Everybody uses one word thrice, and words of their own once: at one vote each the common word alone is spared."""
    ids = [f"p{number:03}" for number in range(300)]
    texts = [f"common own{number} common other{number} common" for number in range(300)]
    pq.write_table(pa.table({"doc_id": ids, "individual_id": ids, "text": texts}), tmp_path / "part.parquet")
    corpus = open_corpus(tmp_path)
    individuals = split_individuals(corpus, SplitConfig(heldout=0.5))
    index = build_index(corpus, individuals)
    found = private_index(corpus, individuals, index, max_words=1, epsilon=2.0, delta=1e-4, key=bytes(32)).words()
    spared = found.filter(pa.array(found.column("support").to_numpy() >= 2)).column("word").to_pylist()
    assert spared == ["common"]
    assert found.column("word").equals(index.words().column("word"))


def test_which_words_are_drawn_depends_on_the_key() -> None:
    sums = np.full(2000, vote_threshold(50, gaussian_sigma(1.0, 5e-6), 5e-6))
    draws = [np.random.default_rng(seed).random(2000) for seed in (0, 1)]
    one, other = (private_words(sums, draw, 50, 1.0, 1e-5) for draw in draws)
    assert abs(one.mean() - 0.5) < 0.06
    assert (one != other).any()
