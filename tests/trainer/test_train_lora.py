"""LoRA: only adapters move, checkpoints are merged plain models, and embeddings stay tied and untouched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures.jobs import control_c
from fixtures.models import toy_model
from fixtures.training import SETTINGS, learnt, results, run, stopping_at
from transformers.pytorch_utils import Conv1D

from reticent.core.errors import PolicyError
from reticent.trainer.config import LoraSettings
from reticent.trainer.export import export_model
from reticent.trainer.models import load_model

pytest.importorskip("peft")
pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = [("bert", "ppmlm", "attention.self.query.weight"), ("gpt2", "ppclm", "attn.c_attn.weight")]
LORA = LoraSettings(r=2, lora_alpha=8)
IDS = torch.tensor([[2, 10, 11, 12, 13, 3]])


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits


@pytest.mark.parametrize(("kind", "recipe", "adapted"), KINDS)
def test_only_the_adapted_weights_move_and_the_model_is_plain_again(
    kind: str, recipe: str, adapted: str, tmp_path: Path
) -> None:
    model = toy_model(kind)
    before = learnt(model)
    run(kind, recipe, tmp_path, model=model, lora=LORA, learning_rate=0.05, num_epochs=3)
    after = learnt(model)
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any(name.endswith(adapted) for name in moved)
    expected = ("query.weight", "value.weight") if kind == "bert" else ("c_attn.weight",)
    assert all(name.endswith(expected) for name in moved)
    assert all(weight.requires_grad for weight in model.parameters())
    difference = after[next(iter(moved))] - before[next(iter(moved))]
    assert int(torch.linalg.matrix_rank(difference, atol=1e-5)) == 2


@pytest.mark.parametrize(("kind", "recipe", "_"), KINDS)
def test_all_linear_adapts_every_layer_but_the_embeddings(kind: str, recipe: str, _: str, tmp_path: Path) -> None:
    model = toy_model(kind)
    before = learnt(model)
    linear = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, (torch.nn.Linear, Conv1D)) and module is not model.get_output_embeddings()
    }
    assert len(linear) >= 4
    every = LoraSettings(r=2, lora_alpha=8, target_modules=("all-linear",))
    run(kind, recipe, tmp_path, model=model, lora=every, learning_rate=0.05, num_epochs=2)
    after = learnt(model)
    assert {name for name in before if not torch.equal(before[name], after[name])} == linear


@pytest.mark.parametrize(("kind", "recipe", "adapted"), KINDS)
def test_a_checkpoint_is_merged_and_its_adapter_gives_the_same_logits_on_the_base(
    kind: str, recipe: str, adapted: str, tmp_path: Path
) -> None:
    from peft import PeftModel

    model = toy_model(kind)
    path = run(kind, recipe, tmp_path, model=model, lora=LORA, learning_rate=0.05).checkpoints[2]
    merged = load_model(path, "mlm" if kind == "bert" else "clm")
    torch.testing.assert_close(logits(merged), logits(model))
    assert merged.get_input_embeddings().weight is merged.get_output_embeddings().weight
    assert float((logits(merged) - logits(toy_model(kind))).abs().max()) > 1e-3
    adapter: Any = PeftModel.from_pretrained(toy_model(kind), str(path / "adapter"))
    torch.testing.assert_close(logits(adapter), logits(model), atol=1e-5, rtol=1e-4)
    assert sorted(file.name for file in (path / "adapter").iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors"
    ]  # fmt: skip
    assert json.loads((path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"] is None
    assert {file.stat().st_mode & 0o777 for file in (path / "adapter").iterdir()} == {0o600}
    assert (path / "adapter").stat().st_mode & 0o777 == 0o700


def test_a_stopped_lora_run_ends_as_one_that_was_not_stopped(tmp_path: Path) -> None:
    settings = {**SETTINGS, "lora": LoraSettings(r=2, lora_dropout=0.2)}
    whole = run("gpt2", "ppclm", tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        run("gpt2", "ppclm", tmp_path / "cut", progress=stopping_at(5, control_c), **settings)
    resumed = run("gpt2", "ppclm", tmp_path / "cut", **settings)
    assert results(tmp_path / "cut", resumed) == results(tmp_path / "whole", whole)


@pytest.mark.parametrize(
    ("target_modules", "said"), [(("nowhere",), "no module of gpt2"), (("wte",), "embeddings"), (("lm_head",), "embed")]
)
def test_modules_that_cannot_be_adapted_are_refused(target_modules: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=f"train.lora.target_modules: .*{said}"):
        run("gpt2", "clm", tmp_path, lora=LoraSettings(target_modules=target_modules))


def test_export_takes_the_adapter_and_nothing_else_beside_it(tmp_path: Path) -> None:
    path = run("gpt2", "clm", tmp_path / "run", lora=LORA).checkpoints[2]
    (path / "adapter" / "notes.txt").write_text("x")
    (path / "spans.parquet").write_text("x")
    assert export_model(path, tmp_path / "out") == ["adapter/notes.txt", "spans.parquet"]
    assert sorted(file.name for file in (tmp_path / "out" / "adapter").iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors"
    ]  # fmt: skip
    load_model(tmp_path / "out", "clm")
