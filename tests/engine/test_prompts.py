"""Prompts without identifying words: those alone are replaced, by public words of their form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures.drawing import examples
from fixtures.indexes import build
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.ngrams import NgramIndex
from reticent.engine.prompts import PromptNormaliser
from reticent.engine.public_words import PublicWords

POOL = PublicWords(("stone", "River", "A12", "7", "éclair"), "a list")
COMMON = ["pain", "Patient", "MRI", "3", "straße"]
TEXTS = [(" ".join([*COMMON, f"rare{unit}"]), unit) for unit in range(3)]


@pytest.fixture(scope="module")
def index() -> NgramIndex:
    return NgramIndex(build(TEXTS, max_n=1))


def words_of(text: str) -> Iterator[str]:
    import pyarrow as pa

    column = pa.array([text], pa.large_string())
    yield from pa.record_batch(_rust.segment(column).surfaces(column)).column("word").to_pylist()


def test_rare_and_unknown_words_are_replaced_and_all_else_stays(index: NgramIndex) -> None:
    prompts = ["Patient  has pain,\nrare1!", "MRI 3 straße.", "", "…", "Zoé 1999"]
    found = PromptNormaliser(POOL, index, 2, seed=0).apply(prompts)
    assert [one.num_replaced for one in found] == [2, 0, 0, 0, 2]
    assert [one.text for one in found[1:4]] == prompts[1:4]
    assert found[0].text.startswith("Patient  ")
    assert " pain,\n" in found[0].text
    assert found[0].text.endswith("!")
    assert "rare1" not in found[0].text
    first, second = words_of(found[4].text)
    assert first in {"Stone", "River", "Éclair"}
    assert second in {"A12", "a12", "7"}


def test_words_of_the_form_stand_in_their_place_and_differ_with_the_seed(index: NgramIndex) -> None:
    many = ["unknown " * 40]
    one, same, other = (PromptNormaliser(POOL, index, 2, seed=seed).apply(many)[0].text for seed in (1, 1, 2))
    assert one == same != other
    assert set(words_of(one)) == {"stone", "river", "éclair"}
    assert PromptNormaliser(POOL, index, 2).apply(many)[0].num_replaced == 40


@settings(max_examples=examples(60))
@given(
    text=st.lists(st.sampled_from([*COMMON, "rare0", "rare2", "x", "😀", "--", "\n", "É.", " "]), max_size=12).map(
        "".join
    )
)
def test_no_identifying_word_is_left(index: NgramIndex, text: str) -> None:
    found = PromptNormaliser(POOL, index, 2, seed=0).apply([text])[0]
    rare = [word for word in words_of(text) if word not in COMMON]
    assert found.num_replaced == len(rare)
    if not rare:
        assert found.text == text
    elif not set(rare) & set("".join(POOL.words)):
        assert not any(word in found.text for word in rare if len(word) > 3)


def test_what_cannot_work_is_refused(index: NgramIndex) -> None:
    with pytest.raises(PolicyError, match="no word of a list"):
        PromptNormaliser(PublicWords((" ", "a b"), "a list"), index, 2)
    with pytest.raises(PolicyError, match="the index has no word"):
        PromptNormaliser(POOL, NgramIndex(build([("…", 0)], max_n=1)), 2)
