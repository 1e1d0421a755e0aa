"""DP-SGD of many architectures: positions as the model makes them; what clipping cannot follow costs no budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.architectures import small_model
from fixtures.drawing import share_of
from fixtures.models import toy_model, toy_tokenizer
from fixtures.private import dp, run, uneven_individuals

from reticent.core.errors import TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.ext.dp.budget import read_budget
from reticent.ext.dp.dpsgd import UnitRowsMaker, unit_losses, watch_units
from reticent.trainer.config import LoraSettings, TrainConfig
from reticent.trainer.labels import Targets, make_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.loop import train
from reticent.trainer.models import load_tokenizer, special_ids
from reticent.trainer.recipes import get_recipe
from reticent.trainer.steps import target_loss
from reticent.trainer.windows import Batch, cut_windows

CPU = torch.device("cpu")


def privately(model: Any, objective: str, out: Path, **changes: Any) -> Any:
    """Train privately with a budget beside ``out``."""
    config = {"num_epochs": 1, "batch_size": 4, "window_length": 16, "device": "cpu", **changes.pop("train", {})}
    privacy = dp(**{"budget_file": str(out.parent / "budget.json"), "corpus": "c", "seed": 3, **changes})
    tokenizer = toy_tokenizer("bert" if objective == "mlm" else "gpt2")
    recipe, store = get_recipe(f"dp-{objective}"), uneven_individuals()
    return train(model, store, recipe, TrainConfig(**config), out, tokenizer=tokenizer, privacy=privacy)


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "nystromformer", "esm", "electra", "xlm-roberta-xl"])
def test_losses_are_at_the_positions_that_the_model_makes(name: str) -> None:
    model = small_model(name, "mlm").eval()
    special = special_ids(load_tokenizer(toy_tokenizer("bert")), "mlm")
    windows = cut_windows(uneven_individuals(), 16, special)
    batch = windows.gather(np.arange(6))
    recipe, ledger = get_recipe("mlm"), Ledger()
    targets = make_targets(batch, recipe, ledger, mask_id=special.mask, mask_share=0.4, seed=1, epoch=1)
    counts = torch.from_numpy((targets.labels != IGNORE_INDEX).sum(axis=1))
    with torch.no_grad():
        rows = UnitRowsMaker(model, "mlm", CPU)(batch, targets, np.arange(6))
        ours = (unit_losses(model, rows) * counts).sum()
        torch.testing.assert_close(ours, target_loss(model, batch, targets, "mlm", CPU))


#: What ghost clipping follows: shared layers (ALBERT), layer norms without a bias, heads that are tied in many ways.
FOLLOWED = [
    ("albert", "mlm"), ("modernbert", "mlm"), ("xlm", "mlm"), ("roberta", "mlm"), ("roformer", "mlm"), ("ctrl", "clm"),
    ("falcon", "clm"), ("mpt", "clm"), ("llama", "clm"), ("qwen2", "clm"), ("gptj", "clm"), ("bloom", "clm"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "objective"), share_of(FOLLOWED, least=4))
def test_clipped_sum_of_an_architecture_is_that_of_its_units_one_by_one(name: str, objective: str) -> None:
    """The gradient of each unit by a plain backward pass of its own rows, clipped by hand."""
    model, store = small_model(name, objective), uneven_individuals()
    special = special_ids(load_tokenizer(toy_tokenizer("bert" if objective == "mlm" else "gpt2")), objective)
    windows, recipe = cut_windows(store, 16, special), get_recipe(objective)
    units = np.sort(np.arange(9) // 2)
    batch, ledger = windows.gather(np.arange(9)), Ledger()
    targets = make_targets(batch, recipe, ledger, mask_id=special.mask, mask_share=0.4, seed=1, epoch=1)
    make_rows, gradients = UnitRowsMaker(model, objective, CPU), []
    for unit in np.unique(units):
        own = np.flatnonzero(units == unit)
        of_unit = Batch(*(getattr(batch, field)[own] for field in Batch.__slots__))
        rows = make_rows(of_unit, Targets(targets.input_ids[own], targets.labels[own]), np.zeros(len(own), np.int64))
        model.zero_grad()
        unit_losses(model, rows).sum().backward()
        gradients.append([0 * weight if weight.grad is None else weight.grad.clone() for weight in model.parameters()])
    norms = [float(torch.cat([each.flatten() for each in gradient]).norm()) for gradient in gradients]
    bound = float(np.median(norms))
    hooks = watch_units(model, "ghost", bound)
    rows = make_rows(batch, targets, units)
    hooks.begin(rows)
    hooks.backward(unit_losses(model, rows))
    hooks.detach()
    factors = [min(1.0, bound / (norm + 1e-6)) for norm in norms]
    for number, weight in enumerate(model.parameters()):
        clipped = sum(factor * each[number] for factor, each in zip(factors, gradients, strict=True))
        assert float((weight.grad - clipped).abs().max()) <= 1e-5 * bound


#: What clipping cannot follow, and its mode.
REFUSED = [
    ("opt", "clm", "hooks"), ("biogpt", "clm", "hooks"), ("bart", "clm", "hooks"), ("ctrl", "clm", "hooks"),
    ("falcon", "clm", "hooks"), ("xglm", "clm", "ghost"), ("deberta", "mlm", "hooks"), ("deberta-v2", "mlm", "ghost"),
    ("esm", "mlm", "hooks"), ("longformer", "mlm", "hooks"), ("squeezebert", "mlm", "hooks"), ("xlm", "mlm", "hooks"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "objective", "clipping"), share_of(REFUSED, least=5))
def test_what_clipping_cannot_follow_is_said_and_costs_nothing(
    name: str, objective: str, clipping: str, tmp_path: Path
) -> None:
    model = small_model(name, objective)
    before = [weight.detach().clone() for weight in model.parameters()]
    for turn in (1, 2):  # no hook is left of the first time
        with pytest.raises(TrainingError, match=rf"DP-SGD: {name} .* LoRA"):
            privately(model, objective, tmp_path / f"out{turn}", clipping=clipping)
    assert read_budget(tmp_path / "budget.json") == []
    assert all(map(torch.equal, before, model.parameters()))
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())


@pytest.mark.parametrize("name", share_of(["opt", "biogpt", "falcon"]))
def test_the_way_out_is_one(name: str, tmp_path: Path) -> None:
    modules = ("query_key_value",) if name == "falcon" else ("q_proj", "v_proj")
    lora = LoraSettings(r=2, target_modules=modules)
    assert privately(small_model(name, "clm"), "clm", tmp_path / "out", train={"lora": lora}).num_steps == 2
    assert [each.settled for each in read_budget(tmp_path / "budget.json")] == [True]


def test_a_padding_token_that_is_also_the_first_is_no_fault(tmp_path: Path) -> None:
    model = small_model("llama", "clm", tie_word_embeddings=False)
    assert privately(model, "clm", tmp_path / "out", clipping="hooks").num_steps == 2


class StopHereError(Exception):
    pass


@pytest.mark.parametrize("drawn", [False, True])
def test_only_a_run_without_noise_gives_its_reservation_back(
    drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reticent.ext.dp import dpsgd

    def fail(*_: Any, **__: Any) -> Any:
        raise StopHereError

    budget = {"budget_file": str(tmp_path / "budget.json"), "corpus": "c"}
    if drawn:
        failing: dict[str, Any] = {"progress": fail}
    else:
        monkeypatch.setattr(dpsgd.Units, "draw", fail)
        failing = {}
    with pytest.raises(StopHereError):
        run(tmp_path / "out", privacy=dp(**budget), **failing)
    assert [each.settled for each in read_budget(tmp_path / "budget.json")] == [False] * drawn


def test_a_run_that_goes_on_gives_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reticent.ext.dp import dpsgd

    def stop(at: dict[str, Any]) -> None:
        if at["step"] == 3:
            raise StopHereError

    budget = {"budget_file": str(tmp_path / "budget.json"), "corpus": "c"}
    with pytest.raises(StopHereError):
        run(tmp_path / "out", privacy=dp(**budget), progress=stop)
    monkeypatch.setattr(dpsgd.Units, "draw", lambda *_, **__: stop({"step": 3}))
    with pytest.raises(StopHereError):
        run(tmp_path / "out", privacy=dp(**budget))
    assert len(read_budget(tmp_path / "budget.json")) == 1


def test_hooks_come_off_where_the_training_fails(tmp_path: Path) -> None:
    def fail(_: dict[str, Any]) -> None:
        raise StopHereError

    model, config = toy_model("gpt2"), TrainConfig(num_epochs=1, device="cpu", window_length=16)
    with pytest.raises(StopHereError):
        train(
            model, uneven_individuals(), get_recipe("dp-clm"), config, tmp_path / "out",
            tokenizer=toy_tokenizer("gpt2"), privacy=dp(), progress=fail,
        )  # fmt: skip
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())
