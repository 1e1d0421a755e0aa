"""Identifiers in what a model writes by itself: words of its own, not those that it was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fixtures.inversion import CODES, CONDITIONS, GIVEN, ID, hospital, tokenizer
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import random_store

from reticent.audit.leakage.generated import GenerationConfig, draw_prompts, generated_leakage, new_surfaces
from reticent.audit.leakage.words import SurfaceTable, words_of
from reticent.core.errors import PolicyError
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


def test_words_of_the_prompt_do_not_count_as_written() -> None:
    store, _ = hospital(4)
    words = tokenizer()
    table = SurfaceTable(words)
    true = table.surfaces(store.input_ids, words_of(store))
    prompts = np.array([[ID["patient"], ID[GIVEN[0]]], [ID["patient"], ID[GIVEN[1]]]])
    made = np.array([[[ID[GIVEN[0]], ID[CONDITIONS[0]], -1]], [[ID[GIVEN[2]], ID["has"], ID[GIVEN[1]]]]])
    found = new_surfaces(prompts, made, table, words)
    surface = dict(zip(store.input_ids.tolist(), true.tolist(), strict=True))
    assert set(found.tolist()) == {surface[ID[CONDITIONS[0]]], surface[ID[GIVEN[2]]], surface[ID["has"]]}


def test_a_word_that_no_document_holds_is_nobodys() -> None:
    store, _ = hospital(2)
    words = tokenizer()
    table = SurfaceTable(words)
    table.surfaces(store.input_ids, words_of(store))
    found = new_surfaces(np.array([[ID["has"]]]), np.array([[[ID[CODES[9]]]]]), table, words)
    assert found.tolist() == []


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
    true = table.surfaces(store.input_ids, slots)
    members = np.arange(20) < 10
    config = GenerationConfig(num_prompts=4, prefix_tokens=3, num_tokens=6, num_samples=2, temperature=0.7)
    options: dict[str, Any] = {"batch_size": 8, "device": "cpu", "num_bootstrap": 20, "seed": 0}
    special = special_ids(words, "clm")
    model = toy_model("gpt2")
    found, again = (
        generated_leakage(model, store, members, slots, true, table, words, special, config, **options) for _ in "ab"
    )
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
