"""Names and the terms of their people's documents; rows of the vocabulary that show that they were used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.inversion import (
    CAUSAL,
    CONDITIONS,
    FAMILY,
    GIVEN,
    ID,
    MASKED,
    NAME,
    PEOPLE,
    VOCABULARY,
    Lookup,
    tokenizer,
)
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import make_store

from reticent.audit.evidence.leakage import Sides
from reticent.audit.leakage.words import SurfaceTable, words_of
from reticent.core.errors import PolicyError
from reticent.engine.schema import DIRECT
from reticent.engine.store import TokenStore
from reticent.ext.inversion.association import (
    Pairs,
    association,
    draw_name_term_pairs,
    pair_rates,
    read_association_templates,
)
from reticent.ext.inversion.embedding_shift import embedding_shift, identifier_only_rows, kinds_of_tokens
from reticent.ext.inversion.identifiers import runs_of
from reticent.ext.inversion.inversion import InversionConfig
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread")

#: Four people share a condition; everybody writes "visit".
CONDITION_OF = [CONDITIONS[i // 4] for i in range(PEOPLE)]
TEMPLATES = ["patient {name} has {term}"]
CONFIG = InversionConfig(num_decoys=7, terms_per_individual=2, term_support=(0.0, 0.5))


def clinic() -> tuple[TokenStore, np.ndarray]:
    documents, categories = [], []
    for i in range(PEOPLE):
        words = [(GIVEN[i], DIRECT), (FAMILY[i], DIRECT), ("has", 0), (CONDITION_OF[i], 0), ("visit", 0)]
        documents.append([(ID[word], n, flag) for n, (word, flag) in enumerate(words)])
        categories += [NAME if flag else 0 for _, flag in words]
    return make_store(*documents), np.array(categories)


def drawn(seed: int = 0, config: InversionConfig = CONFIG, member: np.ndarray | None = None) -> tuple[Any, Pairs]:
    store, categories = clinic()
    words, slots = tokenizer(), words_of(store)
    table = SurfaceTable(words)
    surfaces = table.surfaces(store.input_ids, slots)
    runs = runs_of(store, slots, "direct", words, table, categories)
    member = np.arange(PEOPLE) % 2 == 0 if member is None else member
    is_name = runs.categories == NAME
    return store, draw_name_term_pairs(store, slots, surfaces, runs, is_name, member, config, words, seed=seed)


def test_terms_are_words_that_a_band_of_people_use_and_decoys_are_people_who_do_not() -> None:
    store, pairs = drawn()
    assert pairs.individuals.tolist() == list(range(PEOPLE))  # one term each: everybody's "visit" is none
    text = [VOCABULARY[t] for t in store.input_ids[pairs.terms[:, 0]]]
    assert text == CONDITION_OF
    owner = np.repeat(store.individual, np.diff(store.doc_offsets))
    for person, names in zip(pairs.individuals.tolist(), pairs.names, strict=True):
        own, *others = owner[names].tolist()
        assert own == person
        assert len(set(others)) == 7
        assert all(CONDITION_OF[other] != CONDITION_OF[person] and other % 2 == person % 2 for other in others)
    assert pairs.name_lengths.tolist() == [2] * PEOPLE


def test_a_word_of_one_person_alone_is_no_term() -> None:
    _, pairs = drawn(config=InversionConfig(num_decoys=3, term_support=(0.0, 0.05)))
    assert len(pairs.individuals) == 0  # four of forty are a tenth
    assert pairs.num_eligible == 0


def test_pairs_without_decoys_are_counted() -> None:
    _, pairs = drawn(config=InversionConfig(num_decoys=19, term_support=(0.0, 0.5)))
    assert (len(pairs.individuals), pairs.num_eligible, pairs.num_unmatched) == (0, PEOPLE, PEOPLE)


def test_decoys_of_association_are_a_function_of_the_seed() -> None:
    assert np.array_equal(drawn(0)[1].names, drawn(0)[1].names)
    assert not np.array_equal(drawn(0)[1].names, drawn(1)[1].names)


@pytest.mark.parametrize("batch_size", [8, 1000])
def test_a_model_that_memorised_pairs_ties_members_names_to_their_terms(batch_size: int) -> None:
    store, pairs = drawn()
    memoriser: Any = Lookup({ID[GIVEN[i]]: ID[CONDITION_OF[i]] for i in range(0, PEOPLE, 2)})
    scores = association(memoriser, store, pairs, tokenizer(), CAUSAL, TEMPLATES, causal=True, batch_size=batch_size)
    linked = 8 - np.log(len(VOCABULARY) - 1 + np.exp(8))
    unlinked = -np.log(len(VOCABULARY) - 1 + np.exp(8))
    assert scores[0] == pytest.approx([linked, *[unlinked] * 7], abs=1e-4)
    assert scores[1] == pytest.approx(np.full(8, -np.log(len(VOCABULARY))), abs=1e-4)
    found = pair_rates(pairs, scores, pairs.individuals % 2 == 0, num_bootstrap=100, seed=0)
    assert (found.rate.members.value, found.rate.heldout.value) == (1.0, 0.5)
    assert found.rate.excess.low > 0.3
    assert found.num_terms == Sides(members=PEOPLE // 2, heldout=PEOPLE // 2)


def test_a_masked_model_is_asked_for_the_whole_term_at_once() -> None:
    store, pairs = drawn()
    seen: list[list[int]] = []

    class Watched(Lookup):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> Any:
            seen.extend(input_ids.tolist())
            return super().forward(input_ids)

    model: Any = Watched({})
    scores = association(model, store, pairs, tokenizer(), MASKED, ["{name} has {term} ."], causal=False)
    assert scores == pytest.approx(np.full((PEOPLE, 8), -np.log(len(VOCABULARY))), abs=1e-4)
    assert len(seen) == PEOPLE * 8
    assert all(row[-3:] == [ID["[MASK]"], ID["."], ID["[SEP]"]] for row in seen)


@pytest.mark.parametrize(("special", "room"), [(CAUSAL, 5), (MASKED, 6)])
def test_pairs_whose_sentences_the_model_has_no_room_for_are_left_out_and_counted(
    special: SpecialIds, room: int
) -> None:
    """The sentences of odd individuals have one token more than the model has positions."""
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    causal, size = special is CAUSAL, len(tokenizer())
    no_ends = {"bos_token_id": None, "eos_token_id": None}
    tiny = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model: Any = (
        GPT2LMHeadModel(GPT2Config(vocab_size=size, n_embd=16, n_layer=1, n_head=2, n_positions=room, **no_ends))
        if causal
        else BertForMaskedLM(BertConfig(vocab_size=size, max_position_embeddings=room, **tiny))
    ).eval()
    store, pairs = drawn()
    is_odd = pairs.individuals % 2 == 1
    pairs = replace(pairs, name_lengths=np.where(is_odd, 2, 1))
    of_one, of_all = (
        association(model, store, pairs, tokenizer(), special, TEMPLATES, causal=causal, batch_size=batch_size)
        for batch_size in (1, 1000)
    )
    of_two = association(
        model, store, pairs, tokenizer(), special, ["{name} {term}", "patient {name} {term} ."], causal=causal
    )
    for scores in (of_one, of_all, of_two):
        assert np.array_equal(np.isnan(scores), np.repeat(is_odd[:, None], 8, axis=1))
    assert of_one == pytest.approx(of_all, nan_ok=True, abs=1e-5)
    found = pair_rates(pairs, of_all, ~is_odd, num_bootstrap=100, seed=0)
    assert found.num_terms == Sides(members=PEOPLE // 2, heldout=0)
    assert found.num_too_long == PEOPLE // 2
    assert found.rate.members.value is not None
    assert found.rate.heldout.value is None


def test_built_in_templates_put_the_name_before_the_term() -> None:
    for language in ("en", "fr"):
        assert len(read_association_templates(language)) >= 2
    with pytest.raises(PolicyError, match="expected one of en, fr"):
        read_association_templates("de")


def test_a_template_without_a_term_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[[template]]\nlanguage = "en"\ntexts = ["{term} of {name}"]\n')
    with pytest.raises(PolicyError, match="and then"):
        read_association_templates("en", tmp_path / "own.toml")


# ------------------------------------------------------------------------------------------------------ embedding shift


def used_in_names(kind: str = "gpt2") -> tuple[TokenStore, Any, np.ndarray]:
    """A store of the toy tokenizer whose tokens 270 to 289 stand in identifiers only."""
    from reticent.trainer.models import load_tokenizer

    store = make_store([(t, n, DIRECT if t >= 270 else 0) for n, t in enumerate(range(260, 290))])
    return store, load_tokenizer(toy_tokenizer(kind)), np.arange(270, 290)


def test_rows_of_identifiers_are_those_that_stand_nowhere_else() -> None:
    store = make_store([(1, 0, DIRECT), (2, 1, DIRECT), (2, 2, 0), (3, 3, 0)])
    used, unused = identifier_only_rows(store, 6)
    assert (np.flatnonzero(used).tolist(), np.flatnonzero(unused).tolist()) == ([1], [0, 4, 5])


@pytest.mark.parametrize("tied", [True, False])
def test_rows_that_moved_are_found_and_rows_that_did_not_are_not(tied: bool) -> None:
    store, words, names = used_in_names()
    base, model = toy_model("gpt2"), toy_model("gpt2")
    if not tied:
        for one in (base, model):
            one.config.tie_word_embeddings = False
            one.lm_head.weight = torch.nn.Parameter(one.lm_head.weight.detach().clone())
    options: dict[str, Any] = {"num_bootstrap": 100, "seed": 0}
    found = embedding_shift(model, base, store, words, **options)
    assert found.input.value == found.output.value == 0.5  # nothing moved at all
    assert found.tied is tied
    with torch.no_grad():
        model.get_input_embeddings().weight[names] += 0.1
    found = embedding_shift(model, base, store, words, **options)
    assert found.input.value == 1.0
    assert found.input.low < 1.0
    assert found.output.value == (1.0 if tied else 0.5)
    assert found.input.unit == "rows of the vocabulary"
    assert 0 < found.num_rows <= len(names)
    assert found.num_unused > 0


def test_frozen_embeddings_show_nothing_by_construction() -> None:
    from reticent.trainer.models import freeze_embeddings

    store, words, _ = used_in_names()
    base, model = toy_model("gpt2"), toy_model("gpt2")
    freeze_embeddings(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    ids = torch.from_numpy(store.input_ids.astype(np.int64))[None]
    for _ in range(2):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    found = embedding_shift(model, base, store, words, num_bootstrap=100, seed=0)
    assert found.input.value == found.output.value == 0.5
    assert found.input.low == found.input.high == 0.5


def test_kinds_tell_where_a_token_stands_in_a_word() -> None:
    words = tokenizer()
    kinds = kinds_of_tokens(words, len(words) + 3)
    assert kinds[ID["[PAD]"]] == -1
    assert set(kinds[-3:]) == {-1}
    assert kinds[ID["patient"]] == kinds[ID["has"]] != kinds[ID["."]]
