"""Look-ups in an index: the support of a word or an n-gram, and a repr that names none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import reticent.engine.ngrams
from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.ngrams import NgramIndex

WORDS = ["a", "b", "c", "É", "12/03"]
documents = st.lists(st.sampled_from(WORDS), max_size=9)
corpora = st.lists(st.tuples(documents, st.integers(0, 4)), min_size=1, max_size=10)

#: Four individuals; "high fever" is used by two of them, "fever high" by one.
CORPUS = [("high Fever, high fever", 0), ("high fever today", 1), ("Straße", 2), ("today high", 3)]


def index_of(
    corpus: list[tuple[str, int]], *, max_n: int = 3, min_support: int = 2, surface: str = "fold"
) -> NgramIndex:
    builder = _rust.IndexBuilder(max_n=max_n, num_threads=1, surface=surface)
    builder.add(pa.array([text for text, _ in corpus], pa.string()), np.array([u for _, u in corpus], dtype=np.uint32))
    return NgramIndex(builder.finish(min_support=min_support))


def test_support_is_how_many_individuals_use_a_word_or_an_ngram() -> None:
    index = index_of(CORPUS, min_support=1)
    asked = ["high", "fever", "today", "high fever", "fever high", "fever today", "high fever today", "today fever"]
    assert [index.support(ngram) for ngram in asked] == [3, 2, 2, 2, 1, 1, 1, 0]
    assert (index["high fever"], "high fever" in index, "elsewhere" in index, 3 in index) == (2, True, False, False)


@pytest.mark.parametrize(("surface", "support"), [("exact", [0, 1, 0]), ("casefold", [1, 1, 1]), ("fold", [1, 1, 1])])
def test_a_word_is_looked_up_in_the_spelling_that_the_index_counts(surface: str, support: list[int]) -> None:
    index = index_of(CORPUS, surface=surface)
    assert [index.support(word) for word in ("STRASSE", "Straße", "strasse")] == support


def test_punctuation_between_the_words_is_passed_over_as_in_documents() -> None:
    index = index_of(CORPUS, min_support=1)
    assert index["fever, high"] == index["fever high"] == 1


def test_an_ngram_that_is_not_kept_has_at_most_the_support_of_its_rarest_part() -> None:
    index = index_of([("a b", 0), ("a c", 1), ("b", 1)])
    assert (index["a b"], index["b c"], index["a c"]) == (1, 1, 1)  # of "c", which one individual uses, nothing is kept
    assert index["b a"] == 0


@pytest.mark.parametrize("text", ["", " … ", "high fever today high"])
def test_a_sequence_that_is_no_ngram_of_the_index_is_refused_without_naming_it(text: str) -> None:
    with pytest.raises(PolicyError, match=r"an n-gram of 1 to 3 words, got [04]$"):
        index_of(CORPUS).support(text)


def test_repr_shows_numbers_and_no_word() -> None:
    assert repr(index_of(CORPUS)) == (
        "NgramIndex(max_n=3, surface='fold', min_support=2, num_units=4, num_documents=4, num_words=4, "
        "num_occurrences=10)"
    )
    assert NgramIndex.__module__ == "reticent.engine.ngrams"


@settings(max_examples=examples(60))
@given(corpora, st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), st.sampled_from([1, 2, 3]), st.booleans())
def test_support_matches_oracle(
    corpus: list[tuple[list[str], int]], asked: list[str], min_support: int, small_blocks: bool
) -> None:
    def oracle(ngram: list[str]) -> int:
        n = len(ngram)
        return len({u for words, u in corpus if any(words[i : i + n] == ngram for i in range(len(words) - n + 1))})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reticent.engine.ngrams, "ROWS_PER_BLOCK", 3 if small_blocks else 1 << 16)
        index = index_of(
            [(" ".join(words), u) for words, u in corpus], max_n=4, min_support=min_support, surface="exact"
        )
        found, expected = index.support(" ".join(asked)), oracle(asked)
    parts = [oracle(asked[:-1]), oracle(asked[1:])] if len(asked) > 1 else []
    if min(parts, default=min_support) >= min_support:
        assert found == expected
    else:
        assert expected <= found < min_support
