"""Norms of gradients against plain transformers, one document at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fixtures.architectures import small_model
from fixtures.models import toy_model
from fixtures.stores import make_store

from reticent.audit.membership.most_exposed import most_exposed_members
from reticent.audit.membership.names import MOST_DOCUMENTS, MOST_MEMBERS, MOST_OTHERS
from reticent.audit.scoring import gradients
from reticent.audit.scoring.gradients import gradient_norms, sampled_documents
from reticent.audit.scoring.scores import word_folds
from reticent.engine.schema import DIRECT
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread")

CAUSAL = SpecialIds(prefix=1, suffix=None, pad=0, mask=None)
MASKED = SpecialIds(prefix=1, suffix=2, pad=0, mask=3)
LENGTHS = (5, 14, 30, 1)


def a_store() -> Any:
    random = np.random.default_rng(0)
    return make_store(
        *(
            [
                (int(token), place, DIRECT if place % 3 == 2 else 0)
                for place, token in enumerate(random.integers(5, 40, n))
            ]
            for n in LENGTHS
        )
    )


def norm_by_hand(model: Any, windows: list[tuple[list[int], list[tuple[int, int]]]]) -> float:
    """Of windows given as (ids, (cell, token to predict there))."""
    model.zero_grad()
    losses = []
    for ids, wanted in windows:
        logits = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        losses += [-logits[cell, token] for cell, token in wanted]
    torch.stack(losses).mean().backward()
    return float(torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None]).norm())


@pytest.mark.parametrize("length", [8, 64])
def test_norm_of_a_causal_model_is_that_of_the_mean_loss_of_chosen_tokens(length: int) -> None:
    model, store = toy_model("gpt2").eval(), a_store()
    mask = store.flags == 0
    found = gradient_norms(model, "clm", store, CAUSAL, mask, np.arange(4), window_length=length, device="cpu")
    for document, (start, end) in enumerate(zip(store.doc_offsets, store.doc_offsets[1:], strict=False)):
        windows = []
        for first in range(start, end, length - 1):
            at = np.arange(first, min(first + length - 1, end))
            ids = store.input_ids[at].astype(int).tolist()
            windows.append(([1, *ids], [(n, ids[n]) for n in range(len(at)) if mask[at[n]]]))
        assert found[document] == pytest.approx(norm_by_hand(model, windows), rel=1e-4)


def test_norm_of_a_masked_model_is_of_the_chosen_words_of_one_fold() -> None:
    model, store = toy_model("bert").eval(), a_store()
    mask = store.flags == 0
    found = gradient_norms(model, "mlm", store, MASKED, mask, np.arange(4), folds=3, seed=4, device="cpu")
    fold, _ = word_folds(store, 3, 4)
    for document, (start, end) in enumerate(zip(store.doc_offsets, store.doc_offsets[1:], strict=False)):
        ids = store.input_ids[start:end].astype(int).tolist()
        hidden = [n for n in range(end - start) if mask[start + n] and fold[start + n] == 0]
        if not hidden:
            assert np.isnan(found[document])
            continue
        shown = [1, *(3 if n in hidden else token for n, token in enumerate(ids)), 2]
        by_hand = norm_by_hand(model, [(shown, [(n + 1, ids[n]) for n in hidden])])
        assert found[document] == pytest.approx(by_hand, rel=1e-4)


def small_or_adapted(name: str, objective: str) -> Any:
    """A small model, "with adapters" where its name says so."""
    model = small_model(name.removesuffix("+lora"), objective).eval()
    if name.endswith("+lora"):
        pytest.importorskip("peft")
        from reticent.trainer.config import LoraSettings
        from reticent.trainer.lora import add_adapter

        add_adapter(model, LoraSettings(r=2, target_modules=("c_attn", "c_proj", "query")), seed=0)
        for key, weight in model.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(1))
    return model


#: Tied embeddings, Conv1D, RMSNorm, positions past the padding, adapters; and what is asked one document at a time.
TOLD_APART = ("gpt2", "llama", "gpt_neox", "bert", "roberta", "distilbert", "modernbert", "gpt2+lora", "bert+lora")
NOT_TOLD_APART = ("opt", "albert", "deberta-v2", "mixtral")


@pytest.mark.parametrize("name", [*TOLD_APART, *NOT_TOLD_APART])
@pytest.mark.parametrize("most_cells", [1 << 12, 64], ids=["one batch", "some documents alone"])
def test_many_documents_at_once_have_the_norms_of_each_alone(
    name: str, most_cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    gradients._warn_of_single_documents.cache_clear()
    monkeypatch.setattr(gradients, "log_warning", said.append)
    monkeypatch.setitem(gradients.MAX_CELLS, "cpu", most_cells)
    random, is_masked = np.random.default_rng(0), "bert" in name or name.startswith("deberta")
    lengths, objective = (*LENGTHS, 22, 9, 40), "mlm" if is_masked else "clm"
    tokens = [random.integers(5, 300, n).tolist() for n in lengths]
    store = make_store(*([(t, n, DIRECT if n % 3 == 2 else 0) for n, t in enumerate(text)] for text in tokens))
    special, model = MASKED if is_masked else CAUSAL, small_or_adapted(name, objective)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    at_once, alone = [], []
    whole = gradients._Layers.norms

    def norms(layers: Any, questions: Any) -> np.ndarray:
        at_once.append(questions[0].num_documents)
        return whole(layers, questions)

    monkeypatch.setattr(gradients._Layers, "norms", norms)
    for found in (at_once, alone):
        monkeypatch.setattr(gradients._Layers, "of", gradients._Layers.of if found is at_once else lambda net: None)
        norms_of = gradient_norms(
            model, objective, store, special, store.flags == 0, np.arange(len(lengths)), folds=2, window_length=16,
            device="cpu",
        )  # fmt: skip
        found.append(norms_of)  # type: ignore[arg-type]
    np.testing.assert_allclose(at_once.pop(), alone[0], rtol=1e-5)
    assert (bool(said), max(at_once[1:], default=1) > 1) == ((True, False) if name in NOT_TOLD_APART else (False, True))
    assert trained == [weight for weight in model.parameters() if weight.requires_grad]
    assert not any(module._forward_hooks for module in model.modules())


def test_short_ends_of_documents_are_not_padded_to_whole_windows() -> None:
    cells: list[int] = []
    store, model = make_store(*([(5, place, 0) for place in range(17)] for _ in range(40))), toy_model("gpt2")
    model.get_input_embeddings().register_forward_pre_hook(lambda _, given: cells.append(given[0].numel()))
    gradient_norms(model, "clm", store, CAUSAL, store.flags == 0, np.arange(40), window_length=16, device="cpu")
    assert 40 * 17 < sum(cells) < 40 * 2 * 14


def test_a_document_that_is_not_asked_or_has_no_such_token_has_no_norm() -> None:
    store = a_store()
    mask = np.zeros(store.num_tokens, dtype=bool)
    mask[store.doc_offsets[1] : store.doc_offsets[3]] = True
    found = gradient_norms(toy_model("gpt2"), "clm", store, CAUSAL, mask, np.array([0, 1]), device="cpu")
    assert np.isnan(found).tolist() == [True, False, True, True]


@pytest.mark.parametrize("size", [1, 2], ids=["individuals", "households"])
def test_so_many_of_a_side_are_asked_that_the_most_exposed_can_be_told(size: int) -> None:
    individual = np.repeat(np.arange(4000), 3)
    is_member = individual < 1000
    units = None if size == 1 else np.arange(4000) // size
    found = sampled_documents(individual, is_member, seed=1, units=units)
    assert np.bincount(individual[found]).max() == MOST_DOCUMENTS
    sides = [np.unique(individual[found][side[found]]) for side in (is_member, ~is_member)]
    assert tuple(map(len, sides)) == (MOST_MEMBERS, MOST_OTHERS)
    codes = np.arange(4000)
    scores = np.where(np.isin(codes, individual[found]), 0.0, np.nan)
    told = most_exposed_members({"": scores}, codes, codes < 1000, num_bootstrap=10, units=units)[""]
    assert told.fpr is not None
    few = sampled_documents(individual[:900], individual[:900] < 100, seed=1, units=units)
    assert len(np.unique(individual[few])) == 300
    assert sampled_documents(np.array([7, 3, 7, 7]), np.array([True, False, True, True]), 0).tolist() == [0, 1, 2]
