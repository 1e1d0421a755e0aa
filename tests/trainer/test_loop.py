"""The training loop against plain transformers, against itself, and against everything that may go wrong in a run."""

from __future__ import annotations

import json
import math
import re
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.architectures import small_model
from fixtures.models import toy_model, toy_tokenizer
from fixtures.packing import write_store
from fixtures.reads import Reads
from fixtures.stores import make_store, random_store
from fixtures.training import (
    CPU,
    UNFINISHED,
    Whole,
    X,
    assert_close,
    assert_whole,
    dropping,
    gradients,
    learnt,
    predicting,
    run,
    step_of,
)
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from reticent.core.device import full_float32, pick_device
from reticent.core.errors import ArtifactError, PolicyError, TrainingError
from reticent.engine.store import TokenStore, open_tokens
from reticent.trainer import loop, steps
from reticent.trainer.foundation import train_tokenizer
from reticent.trainer.labels import Targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.models import lm_head, load_model, load_tokenizer, num_rows, require_sound, special_ids
from reticent.trainer.recipes import get_recipe
from reticent.trainer.steps import PlainStep, target_loss
from reticent.trainer.verify import read_ledger
from reticent.trainer.windows import Batch, cut_windows

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = [("bert", "ppmlm"), ("gpt2", "ppclm")]


# ------------------------------------------------------------------ the gradient


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_gradient_at_the_logits_of_a_protected_token_is_exactly_zero(kind: str, recipe: str) -> None:
    batch, targets = step_of(kind, recipe, random_store(12, protected=0.5))
    model = Whole(toy_model(kind))
    target_loss(model, batch, targets, get_recipe(recipe).objective, CPU).backward()  # type: ignore[arg-type]
    moved = (model.logits.grad != 0).any(dim=-1).numpy()
    protected = predicting(Targets(batch.input_ids, np.where(batch.flags > 0, 1, X)), get_recipe(recipe).objective)
    assert protected.sum() > 50
    assert not moved[protected].any()
    assert moved.tolist() == predicting(targets, get_recipe(recipe).objective).tolist()


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_only_cells_that_predict_a_target_reach_the_head(kind: str, recipe: str) -> None:
    batch, targets = step_of(kind, recipe, random_store(12, protected=0.5))
    model, seen = toy_model(kind), {}

    def keep_hidden(_: Any, __: Any, output: Any) -> None:
        output.last_hidden_state.retain_grad()
        seen["hidden"] = output.last_hidden_state

    def keep_rows(_: Any, inputs: Any) -> None:
        seen["rows"] = len(inputs[0])

    lm_head(model)  # it is tried once, before anybody looks
    model.base_model.register_forward_hook(keep_hidden)
    (model.cls if kind == "bert" else model.lm_head).register_forward_pre_hook(keep_rows)
    target_loss(model, batch, targets, get_recipe(recipe).objective, CPU).backward()
    assert seen["rows"] == targets.num_targets > 20
    moved = (seen["hidden"].grad != 0).any(dim=-1).numpy()
    assert moved.tolist() == predicting(targets, get_recipe(recipe).objective).tolist()


def plain_loss(model: Any, kind: str, batch: Batch, targets: Targets, flags_kept: int) -> torch.Tensor:
    """The oracle: transformers' own loss with labels -100, times their number."""
    inputs = {
        "input_ids": torch.from_numpy(targets.input_ids),
        "attention_mask": torch.from_numpy(batch.attention.astype(np.int64)),
    }
    if kind == "bert":
        labels = np.where(targets.input_ids == 4, batch.input_ids, X)  # 4 is [MASK]
    else:
        labels = np.where(batch.is_text & (batch.flags & flags_kept == 0), batch.input_ids, X)
    return model(**inputs, labels=torch.from_numpy(labels)).loss * int((labels != X).sum())


@pytest.mark.parametrize("recipe", ["", "dpp", "ipp", "pp"])
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_loss_and_gradient_are_those_of_plain_transformers_with_ignored_labels(kind: str, recipe: str) -> None:
    name = recipe + ("mlm" if kind == "bert" else "clm")
    batch, targets = step_of(kind, name, random_store(12, protected=0.5))
    assert batch.attention.min() == 0  # with padding
    ours, oracle = toy_model(kind), toy_model(kind)
    loss = target_loss(ours, batch, targets, get_recipe(name).objective, CPU)
    expected = plain_loss(oracle, kind, batch, targets, get_recipe(name).never_target)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    loss.backward()
    expected.backward()
    assert_close(gradients(ours), gradients(oracle), 1e-5)


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_loss_and_gradient_do_not_depend_on_how_windows_are_batched(kind: str, recipe: str) -> None:
    store = random_store(12, protected=0.5)  # windows of 3 to 31 tokens: counts and padding differ a lot
    results = []
    for size in (12, 5, 1):
        model, total, num_targets = toy_model(kind), 0.0, 0
        for start in range(0, 12, size):
            batch, targets = step_of(kind, recipe, store, range(start, min(start + size, 12)))
            if targets.num_targets:
                loss = target_loss(model, batch, targets, get_recipe(recipe).objective, CPU)
                loss.backward()
                total, num_targets = total + loss.item(), num_targets + targets.num_targets
        results.append((total, num_targets, gradients(model)))
    for total, num_targets, gradient in results[1:]:
        assert num_targets == results[0][1]
        assert total == pytest.approx(results[0][0], rel=1e-6)
        assert_close(gradient, results[0][2], 1e-5)


class LogitsAlive(TorchDispatchMode):
    """Counts the most cells of tensors as wide as the vocabulary that exist at once, the weights left out."""

    def __init__(self, width: int, model: Any):
        super().__init__()
        self.width, self.now, self.most = width, 0, 0
        self.seen = {weight.untyped_storage()._cdata for weight in model.parameters()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple) else (made,):
            if isinstance(tensor, torch.Tensor) and tensor.ndim and tensor.shape[-1] == self.width:
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: Any) -> None:
        if storage._cdata not in self.seen:
            self.seen.add(storage._cdata)
            self.now += (cells := storage.nbytes() // 4)
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._forget, storage._cdata, cells)

    def _forget(self, number: int, cells: int) -> None:
        self.seen.discard(number)
        self.now -= cells


@pytest.mark.parametrize("kind", ["bert", "gpt2", "gemma2"])  # a head of two layers, a tied one, logits that are capped
def test_a_loss_in_pieces_is_that_of_all_logits_and_keeps_few(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, recipe = ("bert", "ppmlm") if kind == "bert" else ("gpt2", "ppclm")
    batch, targets = step_of(of, recipe, random_store(12, protected=0.5))
    found = []
    for most in (steps.MOST_LOGITS, 7 * num_rows(toy_model(of))):
        monkeypatch.setattr(steps, "MOST_LOGITS", most)
        model = toy_model(of) if kind == of else small_model(kind, "clm", num_key_value_heads=2, vocab_size=300)
        width = num_rows(model)
        require_sound(model, get_recipe(recipe).objective)
        lm_head(model)
        with LogitsAlive(width, model) as alive:
            loss = target_loss(model, batch, targets, get_recipe(recipe).objective, CPU)
            loss.backward()
        found.append((loss.item(), gradients(model), alive.most / width))
        with monkeypatch.context() as patched, torch.no_grad():
            patched.setattr(torch.autograd, "grad", None)  # who only looks makes no gradient
            seen = target_loss(model, batch, targets, get_recipe(recipe).objective, CPU)
        assert seen.item() == pytest.approx(loss.item(), rel=1e-6)
    (expected, whole, all_rows), (loss, pieces, few_rows) = found
    assert loss == pytest.approx(expected, rel=1e-6)
    assert_close(pieces, whole, 1e-5)
    assert targets.num_targets > 40
    assert all_rows >= 2 * targets.num_targets  # the logits, and their copy or gradient
    if kind != "gemma2":  # which makes the logits of all cells itself
        assert few_rows <= 3 * 7 + 2 * 16  # and two gradients of the weights, of 16 dimensions


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_a_step_is_the_same_in_one_two_or_four_micro_batches(
    kind: str, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    clip = torch.nn.utils.clip_grad_norm_

    def spy(parameters: Any, max_norm: float) -> torch.Tensor:
        weights = list(parameters)
        found.append({str(number): weight.grad.clone() for number, weight in enumerate(weights)})
        return clip(weights, max_norm)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", spy)
    losses = []
    for accumulation in (1, 2, 4):
        result = run(
            kind,
            recipe,
            tmp_path / str(accumulation),
            store=random_store(8, protected=0.5, seed=3, length=10),  # 8 windows: one step an epoch
            num_epochs=1,
            batch_size=8 // accumulation,
            gradient_accumulation_steps=accumulation,
            mask_share=0.5,
        )
        assert result.num_steps == 1
        losses += result.losses
    assert len(found) == 3
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-6)
    assert_close(found[1], found[0], 1e-5)
    assert_close(found[2], found[0], 1e-5)


def test_the_rest_of_an_epoch_is_a_step_of_its_own(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    result = run("gpt2", "clm", tmp_path, batch_size=2, gradient_accumulation_steps=4, progress=said.append)
    assert [(step["epoch"], step["step"], step["num_steps"]) for step in said] == [
        (1, 1, 4), (1, 2, 4), (2, 3, 4), (2, 4, 4)
    ]  # fmt: skip
    assert result.num_steps == 4


# ------------------------------------------------------------------ what the loop waits for


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_the_host_reads_nothing_from_the_device_between_two_logged_steps(
    kind: str, recipe: str, packing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU the loop also reads each loss, by ``tolist``, which is no operation."""
    reads, take = Reads(), loop._take_steps

    def spy(*arguments: Any) -> None:
        with reads:
            assert bool(torch.ones(1))  # one read is seen
            take(*arguments)

    monkeypatch.setattr(loop, "_take_steps", spy)
    model = toy_model(kind)
    model.config.pad_token_id = 0
    store = random_store(12, protected=0.4)  # windows of 3 to 31 tokens: batches with padding and without
    result = run(kind, recipe, tmp_path, model=model, store=store, packing=packing, batch_size=2)
    assert result.num_steps > 4
    assert reads.names == ["_local_scalar_dense"] * 2


def test_a_step_carries_the_counts_of_this_step_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried: list[Ledger] = []
    backward = PlainStep.backward

    def spy(self: Any, data: Any, *arguments: Any) -> Any:
        carried.append(data.ledger)
        return backward(self, data, *arguments)

    monkeypatch.setattr(PlainStep, "backward", spy)
    result = run("bert", "ppmlm", tmp_path, store=random_store(12, protected=0.4, length=6), num_epochs=3)
    assert [len(ledger.epochs) for ledger in carried] == [1] * result.num_steps
    assert sum(ledger.targets for ledger in carried) == result.ledger.targets > 0
    assert sum(ledger.protected for ledger in carried) == result.ledger.protected > 0


# ------------------------------------------------------------------ precision and memory


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_activations_made_again_change_rounding_alone(kind: str, recipe: str, packing: bool, tmp_path: Path) -> None:
    calls, weights = {False: 0, True: 0}, {}
    for again in (False, True):
        model = dropping(kind)

        def count(*_: Any, again: bool = again) -> None:
            calls[again] += torch.is_grad_enabled()  # not in the checks of a model before its training

        first = model.base_model.encoder.layer[0].intermediate if kind == "bert" else model.base_model.h[0].mlp
        first.register_forward_pre_hook(count)
        run(kind, recipe, tmp_path / str(again), model=model, gradient_checkpointing=again, packing=packing)
        assert not model.is_gradient_checkpointing
        weights[again] = learnt(model)
    for name, weight in weights[False].items():
        assert float((weights[True][name] - weight).abs().max()) <= 1e-6, name
    assert calls[True] == 2 * calls[False] > 0


@pytest.mark.parametrize(("settings", "most"), [({"bf16": "on"}, 0.01), ({"dtype": "bfloat16"}, 0.03)])
@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_training_in_bfloat16_is_near_that_in_float32(
    kind: str, recipe: str, settings: dict[str, Any], most: float, tmp_path: Path
) -> None:
    exact = run(kind, recipe, tmp_path / "exact", learning_rate=1e-2, num_epochs=4)
    found = run(kind, recipe, tmp_path / "found", learning_rate=1e-2, num_epochs=4, **settings)
    assert exact.losses[-1] < 0.97 * exact.losses[0]
    assert found.losses == pytest.approx(exact.losses, rel=most)
    assert found.losses != exact.losses
    assert found.ledger == exact.ledger  # what is a target does not depend on how it is computed
    saved = load_file(found.checkpoints[4] / "model.safetensors")
    kept = torch.bfloat16 if "dtype" in settings else torch.float32
    assert {weight.dtype for weight in saved.values()} == {kept}


def test_products_on_cuda_are_in_tf32_but_where_all_bits_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    products = torch.backends.cuda.matmul
    with full_float32():  # and whatever was before, afterwards
        assert pick_device("cpu").type == "cpu"
        assert not products.allow_tf32
        monkeypatch.setattr(torch, "empty", lambda *_, **__: SimpleNamespace(device=torch.device("cuda:0")))
        assert pick_device("cuda").index == 0
        assert products.allow_tf32
        with full_float32():
            assert not products.allow_tf32
        assert products.allow_tf32


# ------------------------------------------------------------------ a whole run


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_two_runs_of_one_seed_give_the_same_bytes(kind: str, recipe: str, tmp_path: Path) -> None:
    written = {}
    for name, state, seed in (("a", 1, 7), ("b", 2, 7), ("c", 1, 8)):
        torch.manual_seed(state)  # what the process drew before must not matter
        model, before = dropping(kind), torch.get_rng_state()
        result = run(kind, recipe, tmp_path / name, model=model, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        files = {path.name: path.read_bytes() for path in result.checkpoints[2].iterdir()}
        written[name] = (files, result.losses, result.ledger)
    assert written["a"] == written["b"]
    assert written["a"][0]["model.safetensors"] != written["c"][0]["model.safetensors"]


def test_batches_come_in_the_order_of_seed_and_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    make = loop.make_targets

    def spy(batch: Batch, *arguments: Any, **options: Any) -> Targets:
        seen.append((options["seed"], options["epoch"], batch.windows.tolist()))
        return make(batch, *arguments, **options)

    monkeypatch.setattr(loop, "make_targets", spy)
    store = random_store(12, length=6)
    run("bert", "mlm", tmp_path, store=store, seed=5)
    windows = cut_windows(store, 32, special_ids(load_tokenizer(toy_tokenizer("bert")), "mlm"))
    orders = [(5, epoch, batch.tolist()) for epoch in (1, 2) for batch in windows.epoch_order(4, seed=5, epoch=epoch)]
    assert seen == orders
    assert len(seen) == 6


def test_checkpoints_are_kept_after_the_chosen_epochs_and_the_last(tmp_path: Path) -> None:
    with pytest.raises(
        PolicyError, match=r"^checkpoint_epochs: training ends after epoch 4 .* so 9, 12 cannot be kept"
    ):
        run("gpt2", "ppclm", tmp_path / "none", num_epochs=4, checkpoint_epochs=(1, 3, 9, 12))
    result = run("gpt2", "ppclm", tmp_path, num_epochs=4, checkpoint_epochs=(1, 3))
    expected = {1: tmp_path / "epoch-0001", 3: tmp_path / "epoch-0003", 4: tmp_path / "epoch-0004"}
    assert result.checkpoints == expected
    assert sorted(path for path in tmp_path.iterdir() if path.is_dir()) == sorted(expected.values())
    weights = [(path / "model.safetensors").read_bytes() for path in expected.values()]
    assert len(set(weights)) == 3
    for epoch, path in expected.items():
        assert f"recipe `ppclm`, after {epoch} epochs" in (path / "README.md").read_text()


def test_a_checkpoint_is_the_model_of_its_epoch(tmp_path: Path) -> None:
    model, kept = toy_model("gpt2"), {}

    def progress(said: dict[str, Any]) -> None:
        kept[said["epoch"]] = learnt(model)

    result = run("gpt2", "clm", tmp_path, model=model, num_epochs=3, checkpoint_epochs=(2,), progress=progress)
    for epoch, path in result.checkpoints.items():
        saved = load_model(path, "clm").state_dict()
        assert all(torch.equal(saved[name], value) for name, value in kept[epoch].items())


def test_ledger_and_metrics_of_a_run_are_exact(tmp_path: Path) -> None:
    store = random_store(12, length=6, protected=0.5)
    result = run("gpt2", "dppclm", tmp_path, store=store, num_epochs=3)
    eligible = 3 * int(np.count_nonzero(store.flags & 1 == 0))
    protected = 3 * store.num_tokens - eligible
    eligible += 3 * store.num_documents  # their ends
    assert result.ledger == Ledger(eligible=eligible, protected=protected, targets=eligible, violations=0)
    written = read_ledger(tmp_path / "ledger.json")
    assert {name: written[name] for name in result.ledger.to_dict()} == result.ledger.to_dict()
    assert [row["targets"] for row in written["epochs"]] == [eligible // 3] * 3
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert [line["loss"] for line in lines] == result.losses
    assert sum(line["targets"] for line in lines) == eligible
    assert result.num_tokens == 3 * store.num_tokens


def test_files_of_a_run_are_private(tmp_path: Path) -> None:
    run("gpt2", "clm", tmp_path / "run")
    folders = [path for path in (tmp_path / "run", *(tmp_path / "run").rglob("*")) if path.is_dir()]
    assert len(folders) == 2
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


@pytest.fixture
def optimizers(monkeypatch: pytest.MonkeyPatch) -> list[torch.optim.AdamW]:
    """Every optimizer that a run makes."""
    found: list[torch.optim.AdamW] = []
    make = loop.make_optimizer

    def spy(*arguments: Any, **options: Any) -> torch.optim.AdamW:
        found.append(make(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(loop, "make_optimizer", spy)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_a_compiled_model_has_the_losses_of_one_that_is_not(kind: str, recipe: str, tmp_path: Path) -> None:
    store = random_store(24, length=12)
    plain = run(kind, recipe, tmp_path / "plain", store=store)
    torch._dynamo.utils.counters.clear()
    compiled = run(kind, recipe, tmp_path / "compiled", store=store, torch_compile=True)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)
    assert compiled.ledger == plain.ledger
    load_model(compiled.checkpoints[2], get_recipe(recipe).objective)  # a plain folder, its weights under their names


def test_the_learning_rate_falls_linearly_to_zero(tmp_path: Path, optimizers: list[torch.optim.AdamW]) -> None:
    rates: list[list[float]] = []

    def progress(_: dict[str, Any]) -> None:
        rates.append([group["lr"] for group in optimizers[0].param_groups])

    used: list[float] = []
    model = toy_model("gpt2")
    lm_head(model)

    def keep_rate(*_: Any) -> None:
        if optimizers:  # there is none while the model is tried
            used.append(optimizers[0].param_groups[0]["lr"])

    model.base_model.register_forward_pre_hook(keep_rate)
    run("gpt2", "clm", tmp_path, model=model, num_epochs=2, learning_rate=0.6, progress=progress)  # 3 steps an epoch
    assert used == pytest.approx([0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    assert [rate for rate, _ in rates] == used
    assert all(one == other for one, other in rates)


@pytest.mark.parametrize(
    ("kind", "falls"),
    [
        ("linear", [0.6, 0.45, 0.3, 0.15]),
        ("cosine", [0.3 + 0.3 * math.cos(math.pi * n / 4) for n in range(4)]),
        ("constant_with_warmup", [0.6] * 4),
    ],
)
def test_the_learning_rate_rises_while_it_warms_up_and_falls_by_its_kind(
    kind: str, falls: list[float], tmp_path: Path, optimizers: list[torch.optim.AdamW]
) -> None:
    """An epoch of three steps: the second begins a schedule anew, in the middle of the fall."""
    rates: list[float] = []

    def progress(_: dict[str, Any]) -> None:
        rates.append(optimizers[0].param_groups[0]["lr"])

    settings = {"learning_rate": 0.6, "warmup_steps": 2, "lr_scheduler_type": kind}
    run("gpt2", "clm", tmp_path, num_epochs=2, progress=progress, **settings)
    assert rates == pytest.approx([0.0, 0.3, *falls])


def test_gradients_are_clipped_and_biases_and_norms_do_not_decay(
    tmp_path: Path, optimizers: list[torch.optim.AdamW]
) -> None:
    model, norms = toy_model("bert"), []

    def progress(said: dict[str, Any]) -> None:
        if said["step"] == 1:
            optimizers[0].register_step_pre_hook(
                lambda *_: norms.append(
                    float(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm())
                )
            )

    run("bert", "mlm", tmp_path, model=model, max_grad_norm=0.01, weight_decay=0.3, progress=progress)
    assert len(norms) == 5
    assert norms == pytest.approx([0.01] * 5, rel=1e-3)  # every gradient here is longer than that
    decayed, others = optimizers[0].param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert all("bias" not in names[id(p)] and "LayerNorm" not in names[id(p)] for p in decayed["params"])
    assert all("bias" in names[id(p)] or "LayerNorm" in names[id(p)] for p in others["params"])
    assert len(decayed["params"]) + len(others["params"]) == len(names)


def test_frozen_weights_stay_as_they_are(tmp_path: Path) -> None:
    model = toy_model("gpt2")
    model.get_input_embeddings().requires_grad_(False)
    before = learnt(model)
    run("gpt2", "ppclm", tmp_path, model=model, weight_decay=0.5, learning_rate=0.1)
    after = learnt(model)
    assert torch.equal(before["transformer.wte.weight"], after["transformer.wte.weight"])
    assert not torch.equal(before["transformer.h.0.attn.c_attn.weight"], after["transformer.h.0.attn.c_attn.weight"])


def test_bfloat16_is_off_on_the_cpu_unless_asked_for(tmp_path: Path) -> None:
    losses = {mode: run("gpt2", "clm", tmp_path / mode, bf16=mode).losses for mode in ("auto", "off", "on")}
    assert losses["auto"] == losses["off"] != losses["on"]
    assert losses["on"] == pytest.approx(losses["off"], rel=0.01)


# ------------------------------------------------------------------ what is learned

SECRET, NAME_IS, AND = 150, [11, 12, 13], [14, 15, 16, 17]


def diary(flags: int) -> TokenStore:
    """One document of a secret in the middle of common words, beside documents of the common words and another name."""
    common = [(number, word, 0) for word, number in enumerate([*NAME_IS[:2], 19, 18, *AND])]
    secret = [(number, word, 0) for word, number in enumerate([*NAME_IS, SECRET, *AND])]
    secret[3] = (SECRET, 3, flags)
    return make_store(secret, *[common] * 2)


def secret_loss(model: Any, kind: str) -> float:
    """-log p of the secret, asked for as the objective asks."""
    ids = [2, *NAME_IS, 4, *AND, 3] if kind == "bert" else [0, *NAME_IS]
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor([ids])).logits[0]
    return float(-torch.log_softmax(logits[4 if kind == "bert" else -1], dim=-1)[SECRET])


def learned(kind: str, recipe: str, flags: int, out: Path) -> tuple[float, float]:
    """How much more surprising the secret is after a training, and the last loss of all targets."""
    model = toy_model(kind, hidden_size=32)
    before = secret_loss(model, kind)
    assert 4 < before < 7  # it starts as any of some 300 tokens
    result = run(kind, recipe, out, model=model, store=diary(flags), num_epochs=150, learning_rate=0.02, mask_share=0.2)
    return secret_loss(model, kind) - before, result.losses[-1]


# Measured over three seeds: plain falls by 4.3 to 5.9 nats; protected rises by 5.4 to 11, because the other words are
# learned in the secret's place. Both learn the words around it.


@pytest.mark.parametrize(("kind", "recipe"), [("bert", "mlm"), ("gpt2", "clm")])
def test_a_plain_recipe_memorises_a_secret_and_does_not_look_at_flags(kind: str, recipe: str, tmp_path: Path) -> None:
    rise, final = learned(kind, recipe, 3, tmp_path)
    assert rise < -3.5
    assert final < 0.4


@pytest.mark.parametrize(
    ("kind", "recipe", "flags"),
    [("bert", "ppmlm", 3), ("gpt2", "ppclm", 3), ("bert", "dppmlm", 1), ("gpt2", "ippclm", 2)],
)
def test_a_protected_recipe_does_not_learn_the_secret(kind: str, recipe: str, flags: int, tmp_path: Path) -> None:
    rise, final = learned(kind, recipe, flags, tmp_path)
    assert rise > 2
    assert final < 0.4


# ------------------------------------------------------------------ what does not fit


def test_tokens_beyond_the_models_embeddings_are_refused(tmp_path: Path) -> None:
    rows = toy_model("bert").get_input_embeddings().weight.shape[0]
    with pytest.raises(TrainingError, match=f"id {rows} is beyond the model's {rows} embeddings"):
        run("bert", "mlm", tmp_path, store=make_store([(10, 0, 0), (rows, 1, 0)]))
    run("bert", "mlm", tmp_path, store=make_store([(10, 0, 0), (rows - 1, 1, 0)]))


def test_a_mask_token_beyond_the_models_embeddings_is_refused(tmp_path: Path) -> None:
    """Every token of the text fits and only [MASK], added later, does not."""
    model = toy_model("bert")
    content = json.loads(toy_tokenizer("bert"))
    rows = model.get_input_embeddings().weight.shape[0]
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "[MASK]"]
    content["model"]["vocab"]["[was mask]"] = content["model"]["vocab"].pop("[MASK]")
    content["model"]["vocab"]["[MASK]"] = rows
    with pytest.raises(TrainingError, match=f"mask token is beyond the model's {rows} embeddings"):
        run("bert", "mlm", tmp_path, model=model, tokenizer=json.dumps(content))


def test_tokens_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    """The ids all fit, and mean other words."""
    folder = tmp_path / "tokens"
    write_store(random_store(4), folder, 300)
    other = train_tokenizer([["quite another text about boats and rivers and the sea"] * 3], "wordpiece", 330)
    (folder / "tokenizer.json").write_text(other)
    with pytest.raises(TrainingError, match="another tokenizer"):
        run("bert", "mlm", tmp_path / "run", store=open_tokens(folder))
    (folder / "tokenizer.json").write_text(toy_tokenizer("bert"))
    run("bert", "mlm", tmp_path / "run", store=open_tokens(folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ArtifactError, match=r"tokenizer\.json"):
        run("bert", "mlm", tmp_path / "run", store=open_tokens(folder))


def test_a_file_that_was_cut_off_stops_with_its_name_and_the_last_good_checkpoint_stays(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    write_store(random_store(12, length=6), folder, 300)
    (folder / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
    (checkpoint,) = run("gpt2", "clm", tmp_path / "run", store=open_tokens(folder), num_epochs=1).checkpoints.values()
    before = (checkpoint / "model.safetensors").read_bytes()
    for name in ("ids.bin", "begins.bits", "direct.bits", "documents.parquet", "exceptions.parquet"):
        whole = (folder / name).read_bytes()
        for kept in (0.0, 0.7, 0.999):
            (folder / name).write_bytes(whole[: int(kept * len(whole))])
            with pytest.raises(ArtifactError, match=re.escape(name)):
                run("gpt2", "clm", tmp_path / "run", store=open_tokens(folder), num_epochs=2)
            assert (checkpoint / "model.safetensors").read_bytes() == before
        (folder / name).write_bytes(whole)


def test_windows_longer_than_the_models_positions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="window_length 65 is longer than the model's 64 positions"):
        run("gpt2", "clm", tmp_path, window_length=65)


def test_mlm_without_a_mask_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="ppmlm needs a mask token"):
        run("bert", "ppmlm", tmp_path, tokenizer=toy_tokenizer("gpt2"))
    assert list(tmp_path.glob("epoch-*")) == []


@pytest.mark.parametrize(
    ("recipe", "flags", "missing", "made_from"),
    [
        ("dppclm", 0, "direct", "spans"),
        ("dppclm", 2, "direct", "spans"),
        ("ippclm", 1, "indirect", "index"),
        ("ppclm", 0, "direct", "spans"),
        ("ppclm", 1, "indirect", "index"),
        ("ppclm", 2, "direct", "spans"),
    ],
)
def test_a_recipe_refuses_tokens_without_a_flag_that_it_protects(
    recipe: str, flags: int, missing: str, made_from: str, tmp_path: Path
) -> None:
    store = make_store([(10, 0, 0), (11, 1, flags)])
    wanted = f"{recipe}: no token has the flag of {missing} identifiers.*made without {made_from}.*choose a recipe that"
    with pytest.raises(TrainingError, match=wanted):
        run("gpt2", recipe, tmp_path, store=store)
    run("gpt2", "clm", tmp_path, store=store)


def test_a_run_whose_detectors_found_nothing_is_trained_if_another_kind_is_there(tmp_path: Path) -> None:
    store = make_store([(10, 0, 0), (11, 1, 2)])
    assert run("gpt2", "ppclm", tmp_path, store=store, has_spans_and_index=True).ledger.protected == 2
    with pytest.raises(TrainingError, match="no token has the flag of direct"):
        run("gpt2", "dppclm", tmp_path, store=store, has_spans_and_index=True)


def test_a_recipe_needs_its_own_flag_alone(tmp_path: Path) -> None:
    store = make_store([(10, 0, 0), (11, 1, 2)])
    assert run("gpt2", "ippclm", tmp_path, store=store).ledger.protected == 2


@pytest.mark.parametrize("store", [make_store(), make_store([]), make_store([(10, 0, 3), (11, 1, 1)])])
def test_a_corpus_without_a_target_is_refused(store: TokenStore, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="eligible as a target"):
        run("gpt2", "ppclm", tmp_path, store=store)
    assert list(tmp_path.glob("epoch-*")) == []


def test_a_batch_without_a_target_is_passed_over(tmp_path: Path) -> None:
    blank, text = [(10, 0, 3)] * 5, [(11, 0, 0)] * 5
    said: list[dict[str, Any]] = []
    result = run(
        "gpt2", "ppclm", tmp_path, store=make_store(blank, text), batch_size=1, num_epochs=1, progress=said.append,
        end_of_text=False,
    )  # fmt: skip
    assert result.num_steps == len(said) == 1
    assert result.ledger == Ledger(eligible=5, protected=5, targets=5)
    assert np.isfinite(result.losses).all()


# ------------------------------------------------------------------ what is not finite


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_a_loss_that_is_not_finite_stops_the_run(kind: str, recipe: str, value: float, tmp_path: Path) -> None:
    model = toy_model(kind)
    with torch.no_grad():
        model.get_input_embeddings().weight[:, 0] = value
    with pytest.raises(TrainingError, match="the loss is not finite in epoch 1, step 1"):
        run(kind, recipe, tmp_path, model=model)
    assert list(tmp_path.glob("epoch-*")) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_in_the_last_step_stops_the_run(value: float, tmp_path: Path) -> None:
    """The loss is finite until the end: without a check the last checkpoint would be full of NaN."""
    model, calls = toy_model("gpt2"), []

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return gradient * value if len(calls) == 6 else gradient

    model.base_model.h[0].attn.c_attn.weight.register_hook(spoil)
    said = r"the gradient is not finite in epoch 2, step 6.*the last good checkpoint is .*epoch-0001"
    with pytest.raises(TrainingError, match=said):
        run("gpt2", "clm", tmp_path, model=model, checkpoint_epochs=(1,))
    assert [path.name for path in tmp_path.glob("epoch-*")] == ["epoch-0001"]
    assert all(weight.isfinite().all() for weight in model.parameters())


def test_a_run_that_diverges_ends_in_an_error_or_in_finite_weights(tmp_path: Path) -> None:
    model = toy_model("gpt2")
    with pytest.raises(TrainingError, match="not finite"):
        run("gpt2", "clm", tmp_path, model=model, learning_rate=1e30, num_epochs=5)


# ------------------------------------------------------------------ models and tokenizers that cannot be used


def test_an_encoder_is_no_causal_model(tmp_path: Path) -> None:
    """transformers loads it and warns: each token would see the one it is to predict."""
    path = run("bert", "mlm", tmp_path, num_epochs=1).checkpoints[1]
    with pytest.raises(ArtifactError, match="bert sees the tokens ahead"):
        load_model(path, "clm")
    assert load_model(path, "mlm").config.model_type == "bert"


def test_a_causal_model_is_no_masked_one(tmp_path: Path) -> None:
    path = run("gpt2", "clm", tmp_path, num_epochs=1).checkpoints[1]
    with pytest.raises(ArtifactError, match="cannot be loaded as a mlm model: gpt2 is none"):
        load_model(path, "mlm")


def test_weights_that_a_checkpoint_lacks_are_the_same_each_time(tmp_path: Path) -> None:
    """An encoder without its head: the base that is trained and the base that is attacked must be one model."""
    model = toy_model("bert")
    model.base_model.save_pretrained(tmp_path)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = load_model(tmp_path, "mlm").state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    other = load_model(tmp_path, "mlm").state_dict()
    name = "cls.predictions.transform.dense.weight"
    assert float(one[name].std()) > 0
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_broken_files_are_artifact_errors(tmp_path: Path) -> None:
    path = run("bert", "mlm", tmp_path / "run", num_epochs=1).checkpoints[1]
    with pytest.raises(ArtifactError, match="nowhere"):
        load_model(tmp_path / "nowhere", "mlm")
    with pytest.raises(ArtifactError, match="nowhere"):
        load_tokenizer(tmp_path / "nowhere")
    (path / "model.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(ArtifactError, match=r"model\.safetensors: not readable safetensors"):
        load_model(path, "mlm")
    (path / "tokenizer.json").write_text('{"half": ')
    for source in (path, path / "tokenizer.json", '{"half": '):
        with pytest.raises(ArtifactError, match="token"):
            load_tokenizer(source)


def test_pickled_weights_are_not_loaded(tmp_path: Path) -> None:
    path = run("gpt2", "clm", tmp_path, num_epochs=1).checkpoints[1]
    torch.save(load_model(path, "clm").state_dict(), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()
    with pytest.raises(ArtifactError, match="cannot be loaded"):
        load_model(path, "clm")


# ------------------------------------------------------------------ interruptions


def test_an_interrupted_step_leaves_whole_checkpoints_only(tmp_path: Path) -> None:
    def progress(said: dict[str, Any]) -> None:
        if said["step"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("gpt2", "ppclm", tmp_path, checkpoint_epochs=(1,), progress=progress)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-0001", *UNFINISHED]
    assert_whole(tmp_path)


def test_an_interrupted_save_leaves_whole_checkpoints_only(tmp_path: Path) -> None:
    model, saves = toy_model("gpt2"), []
    save = model.save_pretrained

    def interrupted(folder: Path, **options: Any) -> None:
        save(folder, **options)
        saves.append(folder)
        if len(saves) == 2:
            raise KeyboardInterrupt

    model.save_pretrained = interrupted
    with pytest.raises(KeyboardInterrupt):
        run("gpt2", "ppclm", tmp_path, model=model, num_epochs=3, checkpoint_epochs=(1, 2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-0001", *UNFINISHED]
    assert_whole(tmp_path)


# ------------------------------------------------------------------ imports
