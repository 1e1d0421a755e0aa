"""The graph along the documents, against brute force."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples
from fixtures.indexes import build, corpora
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.ngrams import ngrams, split, supports

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.graph import WordIds, WordStream, count_distinct, ngram_supports, unicity

Documents = list[tuple[str, int]]


def stream_of(corpus: Documents, index: _rust.NgramIndex) -> WordStream:
    texts = pa.array([text for text, _ in corpus], pa.string())
    words = _rust.segment(texts)
    units = np.array([unit for _, unit in corpus], np.uint32)
    return WordStream(WordIds(index).look_up(texts, words), words.doc_offsets, units, units)


@pytest.mark.parametrize(
    ("surface", "expected"), [("exact", ["Ann", "ann", "Été"]), ("casefold", ["ann", "été"]), ("fold", ["ann", "ete"])]
)
def test_words_are_numbered_by_the_surface_of_their_index(surface: str, expected: list[str]) -> None:
    texts = pa.array(["Ann ann", "", "E\u0301te\u0301 Ann"])  # composed in the index, not in the text
    builder = _rust.IndexBuilder(surface=surface)
    builder.add(texts, np.array([0, 1, 2], np.uint32))
    index = builder.finish()
    known = pa.record_batch(index.words()).column("word").to_pylist()
    assert known == expected
    found = [known[i] for i in WordIds(index).look_up(texts, _rust.segment(texts))]
    assert found == {"exact": ["Ann", "ann", "Été", "Ann"], "casefold": ["ann", "ann", "été", "ann"]}.get(
        surface, ["ann", "ann", "ete", "ann"]
    )


def test_a_word_that_the_index_does_not_hold_is_refused_without_its_name() -> None:
    texts = pa.array(["a Zyxwvut b"])
    with pytest.raises(CorpusError, match="1 words are not in the index") as caught:
        WordIds(build([("a b", 0)])).look_up(texts, _rust.segment(texts))
    assert "Zyxwvut" not in str(caught.value)


@settings(max_examples=examples(60))
@given(corpora, st.sampled_from([1, 2]))
def test_supports_along_the_stream_match_the_oracle(corpus: Documents, min_support: int) -> None:
    index = build(corpus, min_support=min_support)
    counts = supports(corpus, 3)
    found = ngram_supports(stream_of(corpus, index), index, 3)
    for n, row in enumerate(found, start=1):
        expected = []
        for words in split([text for text, _ in corpus]):
            grams = ngrams(words, n)
            expected += [counts[gram] for gram in grams] + [0] * (len(words) - len(grams))
        assert row.tolist() == expected


def test_an_index_that_forgot_supports_of_several_is_refused() -> None:
    corpus = [("a b", 0), ("a b", 1)]
    with pytest.raises(PolicyError, match="min_support 3"):
        ngram_supports(stream_of(corpus, build(corpus)), build(corpus, min_support=3), 2)
    with pytest.raises(PolicyError, match="up to n = 4"):
        ngram_supports(stream_of(corpus, build(corpus)), build(corpus), 4)


@settings(max_examples=examples(60))
@given(corpora, st.randoms(use_true_random=False))
def test_distinct_ngrams_of_everyone_match_the_oracle(corpus: Documents, random: object) -> None:
    index = build(corpus)
    stream = stream_of(corpus, index)
    marks = np.random.default_rng(random.getrandbits(32)).integers(0, 256, (3, len(stream.words)))  # type: ignore[attr-defined]
    found = count_distinct(stream, stream.unit, 5, marks.astype(np.uint8))
    carried: dict[tuple[int, int, int], set[tuple[str, ...]]] = defaultdict(set)
    place = 0
    for words, (_, unit) in zip(split([text for text, _ in corpus]), corpus, strict=True):
        for n in (1, 2, 3):
            for i, gram in enumerate(ngrams(words, n)):
                for bit in range(8):
                    if marks[n - 1, place + i] >> bit & 1:
                        carried[n - 1, unit, bit].add(gram)
        place += len(words)
    assert found.shape == (3, 5, 8)
    assert {at: int(count) for at, count in np.ndenumerate(found) if count} == {
        at: len(grams) for at, grams in carried.items()
    }


def shared_of(index: _rust.NgramIndex, k: int = 2) -> np.ndarray:
    return pa.record_batch(index.words()).column("support").to_numpy() >= k


def words_of_units(corpus: Documents, k: int = 2) -> dict[int, set[str]]:
    """Distinct shared words of each unit, by brute force."""
    counts = supports(corpus, 1)
    found: dict[int, set[str]] = {unit: set() for _, unit in corpus}
    for words, (_, unit) in zip(split([text for text, _ in corpus]), corpus, strict=True):
        found[unit] |= {word for word in words if counts[(word,)] >= k}
    return found


@settings(max_examples=examples(60))
@given(corpora, st.integers(0, 2**63 - 1))
def test_sets_of_all_shared_words_single_out_as_the_oracle_says(corpus: Documents, seed: int) -> None:
    index, owned = build(corpus), words_of_units(corpus)
    found = unicity(stream_of(corpus, index), shared_of(index), max_m=9, num_samples=99, seed=seed)
    units = [sorted(owned)[i] for i in np.random.default_rng(seed).permutation(len(owned))]
    assert found.shape == (len(owned), 9)
    for unit, row in zip(units, found.tolist(), strict=True):
        size = len(owned[unit])
        assert row[size:] == [-1] * (9 - size)
        assert row[:size] == sorted(row[:size])
        assert set(row[:size]) <= {0, 1}
        if size:  # one word is shared by definition; all of them are one set, whatever is drawn first
            assert row[0] == 0
            assert row[size - 1] == all(not owned[unit] <= owned[other] for other in owned if other != unit)


def test_sets_are_drawn_evenly_and_single_out_as_often_as_all_of_them_do() -> None:
    corpus = [("a b c d e f", 0), ("a b c d", 1), ("a b", 2), ("c d e", 2), ("f a c e", 3), ("b d f", 4), ("g", 5)]
    index, owned = build(corpus), words_of_units(corpus)
    stream, num_draws = stream_of(corpus, index), 600
    draws = [unicity(stream, shared_of(index), max_m=4, num_samples=6, seed=seed) for seed in range(num_draws)]
    for m in range(1, 5):
        shares = []  # of each unit: over all m-sets of its shared words
        for unit, words in owned.items():
            sets = [set(chosen) for chosen in itertools.combinations(sorted(words), m)]
            alone = [not any(s <= owned[other] for other in owned if other != unit) for s in sets]
            shares += [np.mean(alone)] if sets else []
        found = np.concatenate([draw[:, m - 1] for draw in draws])
        found = found[found >= 0]
        assert len(found) == num_draws * len(shares)
        spread = np.sqrt(sum(p * (1 - p) for p in shares) / num_draws) / len(shares)
        assert abs(found.mean() - np.mean(shares)) <= 4 * spread
    assert unicity(stream, shared_of(index), max_m=4, num_samples=2, seed=0).shape == (2, 4)


def test_unicity_depends_on_the_seed_and_not_on_the_order_of_the_documents() -> None:
    rng = np.random.default_rng(0)
    corpus = [(" ".join(rng.choice(list("abcdefghijkl"), 8)), unit) for unit in range(40)]
    index = build(corpus)

    def drawn(documents: Documents, seed: int) -> np.ndarray:
        return unicity(stream_of(documents, index), shared_of(index), max_m=6, num_samples=40, seed=seed)

    assert 0 < drawn(corpus, 3).mean() < 1
    assert np.array_equal(drawn(corpus, 3), drawn(corpus[::-1], 3))
    assert not np.array_equal(drawn(corpus, 3), drawn(corpus, 4))
