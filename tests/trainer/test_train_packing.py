"""Packed rows: no window sees another, and loss, gradient and ledger are those of windows one a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.architectures import small_model
from fixtures.drawing import examples, share_of
from fixtures.models import toy_model
from fixtures.stores import make_store, random_store
from fixtures.training import CPU, assert_close, gradients, run, step_of
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.window_kernels import pack_rows
from reticent.trainer import attention
from reticent.trainer.attention import attention_by_host
from reticent.trainer.labels import make_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.loop import require_packable
from reticent.trainer.models import logits_at
from reticent.trainer.packing import lay_out, packed_order
from reticent.trainer.recipes import get_recipe
from reticent.trainer.steps import Part, TargetLoss, iter_steps, target_loss
from reticent.trainer.windows import SpecialIds, cut_windows

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = [("bert", "ppmlm"), ("gpt2", "ppclm")]
BERT = SpecialIds(prefix=2, suffix=3, pad=0, mask=4)


# ------------------------------------------------------------------ which windows share a row


def best_fit(lengths: list[int], capacity: int) -> list[int]:
    """The oracle: the fullest row with room, of several the one that came to its fill last."""
    rooms: list[tuple[int, int]] = []  # room left, when
    rows = []
    for now, length in enumerate(lengths):
        fits = [(room, -since, row) for row, (room, since) in enumerate(rooms) if room >= length]
        if fits:
            row = min(fits)[2]
        else:
            row = len(rooms)
            rooms.append((capacity, now))
        rooms[row] = (rooms[row][0] - length, now)
        rows.append(row)
    return rows


@settings(max_examples=examples(200))
@given(st.lists(st.integers(1, 12), max_size=40), st.booleans())
def test_packing_matches_the_oracle(lengths: list[int], falling: bool) -> None:
    lengths = sorted(lengths, reverse=True) if falling else lengths
    assert pack_rows(np.array(lengths, dtype=np.int64), 12).tolist() == best_fit(lengths, 12)


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 4), st.integers(0, 3))
def test_an_epoch_holds_every_window_once_in_rows_that_fit(lengths: list[int], batch_size: int, epoch: int) -> None:
    windows = cut_windows(make_store(*([(9, 0, 0)] * length for length in lengths)), 16, BERT)
    batches = packed_order(windows, batch_size, 16, seed=0, epoch=epoch)
    assert sorted(int(number) for numbers, _ in batches for number in numbers) == list(range(len(windows)))
    fills = []
    for numbers, rows in batches:
        assert (np.diff(rows) >= 0).all()
        fills.append(np.bincount(rows, windows.lengths[numbers] + 2, batch_size))
    filled = np.concatenate(fills) if fills else np.zeros(0)
    assert (filled <= 16).all()
    other = packed_order(windows, batch_size, 16, seed=0, epoch=epoch + 1)
    assert (filled > 0).sum() == sum(len(np.unique(rows)) for _, rows in other)  # the same in every epoch
    assert all((fill > 0).all() for fill in fills[:-1])  # only the last batch is not full


def test_every_epoch_packs_other_windows_together() -> None:
    windows = cut_windows(make_store(*([(9, 0, 0)] * (1 + i % 7) for i in range(60))), 16, BERT)

    def together(epoch: int) -> set[frozenset[int]]:
        batches = packed_order(windows, 1, 16, seed=3, epoch=epoch)
        return {frozenset(numbers.tolist()) for numbers, _ in batches}

    assert together(1) == together(1)
    assert not together(1) & together(2)


def test_a_hand_worked_row() -> None:
    ids = np.array([[2, 10, 3, 0], [2, 11, 12, 3], [2, 13, 3, 0]])
    labels = np.where(ids == 11, 11, IGNORE_INDEX)
    laid = lay_out(
        ids, labels, np.array([3, 4, 3]), np.array([0, 0, 1]), pad=0, padded=lambda length: -(-length // 4) * 4
    )
    assert laid.input_ids.tolist() == [[2, 10, 3, 2, 11, 12, 3, 0], [2, 13, 3, 0, 0, 0, 0, 0]]
    assert laid.bounds.tolist() == [0, 3, 7, 8, 11, 16]
    assert laid.bounds.dtype == np.int32
    assert laid.positions.tolist() == [[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 2, 0, 0, 0, 0, 0]]
    assert np.argwhere(laid.labels != IGNORE_INDEX).tolist() == [[0, 4]]


# ------------------------------------------------------------------ leakage

LENGTHS = np.array([5, 9, 3])


def packed_logits(model: Any, ids: np.ndarray) -> torch.Tensor:
    laid = lay_out(ids, np.full_like(ids, IGNORE_INDEX), LENGTHS, np.zeros(3, dtype=int), pad=0, padded=lambda _: 24)
    at = torch.arange(laid.input_ids.size)
    rows, positions, bounds = map(torch.from_numpy, (laid.input_ids, laid.positions, laid.bounds))
    with torch.no_grad(), attention_by_host(model, packed=True):
        return logits_at(model.eval(), rows, None, at, positions, bounds)


#: ``modernbert`` and ``mistral`` here see fewer tokens than the longest window has.
NEAR = {"modernbert": {"local_attention": 4, "global_attn_every_n_layers": 2}, "mistral": {"sliding_window": 3}}


def packable(kind: str) -> Any:
    if kind in NEAR:
        return small_model(kind, "clm" if kind == "mistral" else "mlm", **NEAR[kind])
    return toy_model(kind, hidden_size=32)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", *NEAR])
def test_a_packed_window_has_the_logits_of_the_window_alone(kind: str) -> None:
    model = small_model(kind, "clm") if kind == "llama" else packable(kind).eval()
    ids = np.random.default_rng(0).integers(5, 60, (3, 9))
    found = packed_logits(model, ids)
    starts = np.cumsum(LENGTHS) - LENGTHS
    for window, (start, length) in enumerate(zip(starts, LENGTHS, strict=True)):
        with torch.no_grad():
            alone = model(input_ids=torch.from_numpy(ids[window : window + 1, :length])).logits[0]
        assert float((found[start : start + length] - alone).abs().max()) < 1e-5


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_other_tokens_of_another_window_change_nothing(kind: str) -> None:
    model = toy_model(kind, hidden_size=32)
    ids = np.random.default_rng(0).integers(5, 200, (3, 9))
    before = packed_logits(model, ids)
    ids[1] = (ids[1] + 50) % 195 + 5
    after = packed_logits(model, ids)
    changed = (before != after).any(dim=-1).tolist()
    assert changed[5:14] == [True] * 9
    assert changed[:5] + changed[14:17] == [False] * 8  # to the last bit


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_model_whose_windows_would_see_each_other_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = toy_model(kind, hidden_size=32)
    model.set_attn_implementation("eager")
    with attention_by_host(model, packed=True):
        require_packable(model)  # it is set to what keeps them apart
        model.set_attn_implementation("sdpa")  # which does not know the bounds
        with pytest.raises(TrainingError, match="other logits than alone"):
            require_packable(model)
    assert model.config._attn_implementation == "eager"
    monkeypatch.setattr(type(model), "set_attn_implementation", lambda *_: None)
    with pytest.raises(TrainingError, match="has an attention of its own"), attention_by_host(model, packed=True):
        pass


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_no_mask_reaches_the_attention_of_packed_rows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask of all pairs of cells is what keeps flash attention away."""
    masks: list[Any] = []
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def spy(*states: torch.Tensor, attn_mask: Any = None, **options: Any) -> torch.Tensor:
        if torch.is_grad_enabled():  # not in the checks of a model before its training
            masks.append(attn_mask)
        return sdpa(*states, attn_mask=attn_mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    run(kind, dict(KINDS)[kind], tmp_path, packing=True, store=random_store(12, protected=0.4), num_epochs=1)
    assert len(masks) > 12
    assert masks == [None] * len(masks)


@pytest.mark.parametrize("near", [None, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_of_windows_has_a_gradient_also_with_dropout(causal: bool, near: int | None) -> None:
    """Shapes alone, of tensors without values: its kernel needs a GPU."""
    states = [torch.randn(8, 2, 16, device="meta", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    bounds = torch.zeros(3, dtype=torch.int32, device="meta")
    attended = attention._flash(*states, bounds, 8, dropout=0.1, scale=None, causal=causal, reach=near)
    attended.sum().backward()
    assert attended.shape == states[0].shape
    assert [state.grad.shape for state in states] == [(8, 2, 16)] * 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("near", [None, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_on_a_gpu_is_that_of_each_window(causal: bool, near: int | None) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    options: Any = {"device": "cuda", "generator": generator}
    states = [torch.randn(17, 2, 16, **options).bfloat16() for _ in range(3)]
    bounds = torch.tensor([0, 5, 9, 17], dtype=torch.int32, device="cuda")
    options = {"dropout": 0.0, "scale": None, "causal": causal, "reach": near}
    found = attention._flash(*states, bounds, 17, **options).float()
    assert float((found - attention._one_by_one(*(s.float() for s in states), bounds, **options)).abs().max()) < 0.03


def test_scores_that_attention_changes_in_another_way_are_refused() -> None:
    model = small_model("gemma2", "clm", num_key_value_heads=2)
    with attention_by_host(model, packed=True), pytest.raises(TrainingError, match="attention by softcap"):
        require_packable(model)


POSITIONS = [
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "roberta-prelayernorm",
    "data2vec-text",
    "electra",
]


@pytest.mark.parametrize("kind", share_of(POSITIONS, least=3))
def test_positions_of_a_packed_window_are_those_of_the_window_alone(kind: str) -> None:
    model = small_model(kind, "mlm", pad_token_id=1, max_position_embeddings=66)
    with attention_by_host(model, packed=True):
        require_packable(model)


# ------------------------------------------------------------------ training


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_loss_and_gradient_of_packed_rows_are_those_of_windows(kind: str, recipe: str) -> None:
    store = random_store(12, protected=0.5, length=8)
    batch, targets = step_of(kind, recipe, store)
    one, other = toy_model(kind), toy_model(kind)
    expected = target_loss(one, batch, targets, get_recipe(recipe).objective, CPU)
    special = BERT if kind == "bert" else SpecialIds(prefix=0, suffix=None, pad=0, mask=None)
    windows = cut_windows(store, 32, special)
    causal = kind == "gpt2"

    def make(batch: Any, ledger: Ledger) -> Any:
        return make_targets(batch, get_recipe(recipe), ledger, mask_id=4, mask_share=0.4, seed=0, epoch=1)

    total, num_rows = torch.zeros(()), 0
    for numbers, rows in packed_order(windows, 4, 32, seed=0, epoch=1):
        plan = [[Part(numbers, (0, 1, 0), rows)]]
        (step,) = iter_steps(windows, plan, make, causal=causal, device=CPU)
        with attention_by_host(other, packed=True):
            total = total + TargetLoss(other)(*step.micro_batches[0].inputs)
        num_rows += len(step.micro_batches[0].input_ids)
    assert num_rows < len(windows) - 3
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    expected.backward()
    total.backward()
    assert_close(gradients(other), gradients(one), 1e-5)


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_a_packed_run_has_the_ledger_of_an_unpacked_one_and_less_padding(
    kind: str, recipe: str, tmp_path: Path
) -> None:
    results, padding = [], []
    for packing in (False, True):
        out = tmp_path / str(packing)
        results.append(run(kind, recipe, out, store=random_store(40, protected=0.4), packing=packing, num_epochs=2))
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        padding.append([line["padding"] for line in lines if "padding" in line])
    assert results[0].ledger == results[1].ledger
    assert results[0].num_tokens == results[1].num_tokens
    assert results[1].num_steps < results[0].num_steps
    assert max(padding[1]) < min(padding[0])


def test_a_packed_run_learns_what_an_unpacked_one_learns(tmp_path: Path) -> None:
    """One step an epoch in both: the same gradient, so the same weights but for rounding."""
    losses = [
        run(
            "gpt2", "ppclm", tmp_path / str(packing), store=random_store(16, protected=0.4, length=6), packing=packing,
            num_epochs=4, batch_size=16, learning_rate=0.01,
        ).losses
        for packing in (False, True)
    ]  # fmt: skip
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
