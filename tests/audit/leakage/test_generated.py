"""Identifiers in what a model writes by itself: words of its own, not those that it was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fixtures.inversion import CODES, CONDITIONS, GIVEN, ID, hospital, tokenizer
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import make_store, random_store

from reticent.audit.leakage.generated import (
    GenerationConfig,
    continue_documents,
    draw_prompts,
    generated_leakage,
    newly_written,
    texts_by_row,
)
from reticent.audit.leakage.identifiers import Identifiers
from reticent.audit.leakage.words import SurfaceTable, words_of
from reticent.core.errors import PolicyError
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


#: Every word of a store as an identifier: fewer than so many individuals use it.
EVERY_WORD = {"k": 255, "n": 1, "max_n": 1}


def test_words_of_the_prompt_do_not_count_as_written() -> None:
    store, _ = hospital(4)
    words = tokenizer()
    table = SurfaceTable(words)
    slots = words_of(store)
    true = table.surfaces(store.input_ids, slots)
    identifiers = Identifiers(slots, true, **EVERY_WORD)
    prompts = np.array([[ID["patient"], ID[GIVEN[0]]], [ID["patient"], ID[GIVEN[1]]]])
    made = np.array([[[ID[GIVEN[0]], ID[CONDITIONS[0]], -1]], [[ID[GIVEN[2]], ID["has"], ID[GIVEN[1]]]]])
    found = newly_written(prompts, made, identifiers, table, words)
    surface = dict(zip(store.input_ids.tolist(), true.tolist(), strict=True))
    written = set(true[identifiers.places[found[identifiers.numbers]]].tolist())
    assert written == {surface[ID[CONDITIONS[0]]], surface[ID[GIVEN[2]]], surface[ID["has"]]}


def test_an_ngram_that_is_written_is_one_and_its_words_apart_are_none() -> None:
    """Of two individuals one has "a condition then another": its pair of words is theirs, and the words are not."""
    first, second = CONDITIONS[:2]
    rows = [[first, second], [second, first]]
    store = make_store(*[[(ID[word], n, 0) for n, word in enumerate(row)] for row in rows])
    words = tokenizer()
    table, slots = SurfaceTable(words), words_of(store)
    identifiers = Identifiers(slots, table.surfaces(store.input_ids, slots), k=2, n=2, max_n=2)
    prompts = np.array([[ID["patient"]], [ID["patient"]]])
    for made, num in (([[first, "has", second], [second, "has", first]], 0), ([[first, second, "has"]] * 2, 1)):
        rows_made = np.array([[[ID[word] for word in row]] for row in made])
        found = newly_written(prompts, rows_made, identifiers, table, words)
        assert (len(found), found.sum()) == (2, num)
    told = newly_written(
        np.array([[ID[first], ID[second]]]), np.array([[[ID[first], ID[second]]]]), identifiers, table, words
    )
    assert not told.any()  # the prompt holds it


def test_a_word_that_no_document_holds_is_nobodys() -> None:
    store, _ = hospital(2)
    words = tokenizer()
    table = SurfaceTable(words)
    slots = words_of(store)
    identifiers = Identifiers(slots, table.surfaces(store.input_ids, slots), **EVERY_WORD)
    found = newly_written(np.array([[ID["has"]]]), np.array([[[ID[CODES[9]]]]]), identifiers, table, words)
    assert not found.any()


def test_prompts_are_drawn_of_both_sides_and_by_the_seed() -> None:
    store = random_store(60, seed=1)
    members = np.arange(60) % 3 == 0
    config = GenerationConfig(num_prompts=5, prefix_tokens=4)
    drawn = draw_prompts(store, members, config, 0)
    # The same share of both: about 40 held-out individuals, 5 of whom are drawn, and half as many members.
    usable = np.diff(store.doc_offsets) > 4
    assert (~members[drawn]).sum() == 5
    assert members[drawn].sum() == round(5 * (members & usable).sum() / (~members & usable).sum())
    assert (np.diff(store.doc_offsets)[drawn] > 4).all()
    assert np.array_equal(drawn, draw_prompts(store, members, config, 0))
    assert not np.array_equal(drawn, draw_prompts(store, members, config, 1))


def test_a_model_writes_and_its_rates_carry_the_decoding() -> None:
    from reticent.trainer.models import special_ids

    store, words = random_store(20, last_id=300, seed=2), load_tokenizer(toy_tokenizer("gpt2"))
    table, slots = SurfaceTable(words), words_of(store)
    identifiers = Identifiers(slots, table.surfaces(store.input_ids, slots), k=2, n=1, max_n=1)
    members = np.arange(20) < 10
    config = GenerationConfig(num_prompts=4, prefix_tokens=3, num_tokens=6, num_samples=2, temperature=0.7)
    options: dict[str, Any] = {"batch_size": 8, "device": "cpu", "bf16": "off", "seed": 0}
    special = special_ids(words, "clm")
    model = toy_model("gpt2")
    written, other = (continue_documents(model, store, members, special, config, **options) for _ in "ab")
    found, again = (
        generated_leakage(each, store, members, identifiers, table, words, config, num_bootstrap=20, seed=0)
        for each in (written, other)
    )
    rest, texts = texts_by_row(written, store, config, words)
    assert [len(own) for own in texts] == [2] * len(rest) == [2] * len(written.documents)
    of_first = store.input_ids[slice(*store.doc_offsets[written.documents[0] :][:2])][config.prefix_tokens :]
    assert rest[0] == words.decode(of_first[: config.num_tokens])
    assert found == again
    assert found.decoding == "sampling at temperature 0.7 from all tokens"
    sides = (found.num_prompts.members or 0, found.num_prompts.heldout or 0)
    assert max(sides) == 4
    assert min(sides) > 0
    assert 0 <= found.excess["both"].members.value <= 1


@pytest.mark.parametrize("wrong", [{"num_tokens": 0}, {"temperature": 0.0, "num_samples": 2}, {"temperature": -1.0}])
def test_generation_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        GenerationConfig(**wrong)
