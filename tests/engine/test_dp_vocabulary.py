"""A private vocabulary: a bounded number of votes each, a threshold that hides who alone votes, a floor of k voters."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples
from fixtures.indexes import build
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from reticent.core.errors import PolicyError
from reticent.engine import dp_vocabulary
from reticent.engine.dp_vocabulary import (
    count_voters,
    gaussian_sigma,
    iter_word_occurrences,
    unprotected_shares_by_votes,
    vote_threshold,
    word_order,
)
from reticent.engine.ngrams import NgramIndex
from reticent.engine.noisy_threshold import Noise, noisy_index
from reticent.engine.word_ids import NumberedWords, WordWriter

OCCURRENCES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=40)


def counted(drawn: list[tuple[int, int]], order: np.ndarray, most: int) -> np.ndarray:
    unit, word = (np.array([pair[at] for pair in drawn], dtype=np.int64) for at in (0, 1))
    # An individual is whole in one part; how many parts there are is all one.
    is_first = unit % 2 == 0
    parts = [(unit[is_first], word[is_first]), (unit[~is_first], word[~is_first])]
    found = count_voters(parts, order, most)
    np.testing.assert_array_equal(found, count_voters([(unit, word)], order, most))
    return found


@settings(max_examples=examples(100))
@given(drawn=OCCURRENCES, most=st.integers(1, 8), seed=st.integers(0, 5))
def test_voters_match_the_oracle(drawn: list[tuple[int, int]], most: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(7)
    expected = Counter[int]()
    for unit in {unit for unit, _ in drawn}:
        own = Counter(word for other, word in drawn if other == unit)
        expected.update(sorted(own, key=lambda word: (-own[word], order[word]))[:most])
    assert counted(drawn, order, most).tolist() == [expected[word] for word in range(7)]


@settings(max_examples=examples(100))
@given(drawn=OCCURRENCES, unit=st.integers(0, 4), most=st.integers(1, 8))
def test_one_individual_moves_few_words_by_one_voter(drawn: list[tuple[int, int]], unit: int, most: int) -> None:
    order = np.arange(7)
    without = [pair for pair in drawn if pair[0] != unit]
    moved = counted(drawn, order, most) - counted(without, order, most)
    assert set(moved.tolist()) <= {0, 1}
    assert moved.sum() == min(most, len({word for other, word in drawn if other == unit}))


@settings(max_examples=examples(20))
@given(st.floats(0.05, 20), st.floats(1e-9, 0.1))
def test_noise_spends_what_it_may_and_no_more(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta)

    def spent(noise: float) -> float:
        half, tail = 1 / (2 * noise), epsilon * noise
        return float(norm.cdf(half - tail) - math.exp(epsilon + norm.logcdf(-half - tail)))

    assert spent(sigma) <= delta * (1 + 1e-6)
    assert spent(sigma * 0.999) > delta * (1 - 1e-6)


@pytest.mark.parametrize("most", [1, 7, 200])
@pytest.mark.parametrize("k", [2, 10])
def test_words_of_k_voters_stay_under_the_threshold(most: int, k: int) -> None:
    """That any of an individual's words of k voters is over it has the probability delta, and no more."""
    sigma, delta = 2.0, 1e-3
    over = norm.sf((vote_threshold(k, most, sigma, delta) - k / math.sqrt(most)) / sigma)
    assert -math.expm1(most * math.log1p(-over)) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(("k", "most", "epsilon"), [(2, 1, 1.0), (3, 30, 4.0), (5, 200, 8.0)])
def test_what_a_set_tells_of_an_individual_is_within_epsilon_and_delta(k: int, most: int, epsilon: float) -> None:
    """By the shares of words with so many voters with and without the individual: the privacy loss, by simulation."""
    delta, random = 0.02, np.random.default_rng(0)
    shares = unprotected_shares_by_votes(k, most, epsilon, delta, 3000)
    middle = int(np.argmax(shares > 0.5))
    for voters in (np.full(most, k - 1), np.full(most, k), np.full(most, middle), random.integers(0, 2 * middle, most)):
        without, with_one = shares[voters], shares[voters + 1]
        for here, there in ((with_one, without), (without, with_one)):
            spared = random.random((20_000, most)) < here
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(spared, np.log(here) - np.log(there), np.log1p(-here) - np.log1p(-there))
            beyond = -np.expm1(np.minimum(epsilon - ratio.sum(axis=1), 0.0))
            assert beyond.mean() <= delta + 4 * beyond.std() / math.sqrt(20_000)


def test_fewer_than_k_voters_never_spare_a_word_and_many_do() -> None:
    shares = unprotected_shares_by_votes(4, 9, 1.0, 0.1, 400)
    assert (shares[:4] == 0).all()
    assert (np.diff(shares) >= 0).all()
    assert shares[-1] == pytest.approx(1)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0.1), (math.inf, 0.1), (1, 0), (1, 1)])
def test_what_is_no_guarantee_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(PolicyError):
        gaussian_sigma(epsilon, delta)
    with pytest.raises(PolicyError, match="at least one word"):
        unprotected_shares_by_votes(2, 0, 1.0, 0.1, 5)


@settings(max_examples=examples(60))
@given(
    documents=st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 6), max_size=9)), min_size=1, max_size=12),
    at_once=st.integers(1, 30),
    data=st.data(),
)
def test_numbers_of_words_give_each_individual_whole(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[tuple[int, list[int]]],
    at_once: int,
    data: st.DataObject,
) -> None:
    """Documents of an individual stand apart; some do not count; the index holds some of the words, in other rows."""
    folder: Path = tmp_path_factory.mktemp("words")
    numbering = NgramIndex(build([(" ".join(f"w{number}" for number in range(7)), 0)]))
    kept = sorted(data.draw(st.sets(st.integers(0, 6), min_size=1)))
    index = NgramIndex(build([(" ".join(f"w{number}" for number in kept), 0)]))
    writer = WordWriter(folder, numbering.num_words)
    numbers = np.array([number for _, words in documents for number in words], dtype=np.uint32)
    writer.write(numbers, np.cumsum([0, *(len(words) for _, words in documents)]))
    writer.close()
    units = np.array([unit for unit, _ in documents])
    is_counted = np.array(data.draw(st.lists(st.booleans(), min_size=len(documents), max_size=len(documents))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dp_vocabulary, "WORDS_AT_ONCE", at_once)
        parts = list(iter_word_occurrences(NumberedWords(folder), numbering, index, units, is_counted))
    expected = Counter(
        (unit, kept.index(word))
        for (unit, words), counts in zip(documents, is_counted, strict=True)
        for word in words
        if counts and word in kept
    )
    assert (
        Counter((u, w) for unit, word in parts for u, w in zip(unit.tolist(), word.tolist(), strict=True)) == expected
    )
    owners = [set(unit.tolist()) for unit, _ in parts]
    assert sum(map(len, owners)) == len(set().union(*owners))


def test_the_index_protects_what_was_not_drawn() -> None:
    """Everybody uses one word thrice, and words of their own once: at one vote each the common word alone is spared."""
    texts = [(f"common own{number} common other{number} common", number) for number in range(300)]
    index = NgramIndex(build(texts))
    row = {word: number for number, word in enumerate(index.words().column("word").to_pylist())}
    parts = [(np.full(5, number), np.array([row[word] for word in text.split()])) for text, number in texts]
    voters = count_voters(parts, word_order(bytes(32), index.words().column("word")), 1)
    found = noisy_index(index, 3, Noise(2.0, 1e-4, 1), bytes(32), voters=voters).words()
    spared = found.filter(pa.array(found.column("support").to_numpy() >= 3)).column("word").to_pylist()
    assert spared == ["common"]
    assert found.column("support")[row["common"]].as_py() == 300
    assert found.column("word").equals(index.words().column("word"))


def test_the_order_depends_on_key_and_words_alone() -> None:
    words = pa.array([f"w{number}" for number in range(500)], pa.large_string())
    one, other = word_order(bytes(32), words), word_order(b"k" * 32, words)
    assert sorted(one.tolist()) == list(range(500))
    assert (one != other).any()
    some = word_order(bytes(32), words.take(pa.array(range(0, 500, 7))))
    assert (np.argsort(some) == np.argsort(one[::7])).all()
