"""DP-SGD through the one training loop: ledger, promise, resume, what does not mix, several processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures.models import toy_model, toy_tokenizer
from fixtures.private import dp, run, uneven_individuals, weights
from fixtures.reads import Reads
from fixtures.stores import random_store

from reticent.core.errors import ArtifactError, PolicyError, TrainingError
from reticent.ext.dp.budget import read_budget
from reticent.trainer import loop
from reticent.trainer.config import LoraSettings, TrainConfig
from reticent.trainer.loop import train
from reticent.trainer.privacy import epsilon_of
from reticent.trainer.recipes import Recipe, get_recipe
from reticent.trainer.resume import STATE

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS = [("bert", "dp-mlm"), ("gpt2", "dp-clm")]


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
@pytest.mark.parametrize("clipping", ["hooks", "ghost"])
def test_run_leaves_a_plain_model_and_a_ledger_with_its_promise(
    kind: str, recipe: str, clipping: str, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    result, model = run(tmp_path, kind, recipe, privacy=dp(clipping=clipping))
    ledger = json.loads((tmp_path / "ledger.json").read_text())
    epsilon = epsilon_of(0.5, 1.0, 4, 0.01)
    assert result.num_steps == 4  # two epochs of 1 / 0.5 steps
    assert str(result.guarantee).endswith("at delta 1e-2 per individual (at most 2 documents each)")
    assert ledger["violations"] == 0
    assert ledger["targets"] > 0
    about = ledger["privacy"]
    assert (about["epsilon"], about["delta"], about["steps"], about["num_steps"]) == (epsilon, 0.01, 4, 4)
    assert (about["noise_multiplier"], about["sample_rate"], about["num_units"]) == (1.0, 0.5, 4)
    assert about["guarantee"] == str(result.guarantee)
    card = (result.checkpoints[2] / "README.md").read_text()
    assert f"private SGD: {result.guarantee}, for all checkpoints" in card
    assert "those before it alone" not in card
    auto = AutoModelForCausalLM if kind == "gpt2" else AutoModelForMaskedLM
    saved = auto.from_pretrained(result.checkpoints[2])
    assert torch.equal(weights(saved), weights(model))
    assert type(model.get_input_embeddings()) is torch.nn.Embedding
    assert not (tmp_path / STATE).exists()


def test_epsilon_is_told_after_each_epoch_in_metrics_result_and_card(tmp_path: Path) -> None:
    result, _ = run(tmp_path, checkpoint_epochs=(1,))
    spent = [epsilon_of(0.5, 1.0, steps, 0.01) for steps in (2, 4)]
    assert spent[0] < spent[1]
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [line["epsilon"] for line in lines if "targets" in line] == spent
    assert {epoch: each.epsilon for epoch, each in result.spent.items()} == dict(zip((1, 2), spent, strict=True))
    card = (result.checkpoints[1] / "README.md").read_text()
    assert f"This checkpoint and those before it alone: {result.spent[1]}." in card
    assert str(result.guarantee) in card


def test_noise_and_samples_differ_unless_a_seed_is_given(tmp_path: Path) -> None:
    same = [weights(run(tmp_path / name)[1]) for name in "ab"]
    free = [weights(run(tmp_path / name, privacy=dp(seed=None))[1]) for name in "cd"]
    assert torch.equal(*same)
    assert not torch.equal(*free)


def test_masks_are_drawn_under_the_secret_seed_and_never_under_the_known_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window's masks depend on its number, and so on who else is there: under a known seed, a unit more would change
    the gradient of everybody after it.
    """
    from reticent.trainer import loop

    make, seen = loop.make_targets, set[int]()

    def noting(*args: Any, **named: Any) -> Any:
        seen.add(named["seed"])
        return make(*args, **named)

    monkeypatch.setattr(loop, "make_targets", noting)
    found = []
    for name, secret in (("a", 3), ("b", 3), ("c", 4)):
        run(tmp_path / name, "bert", "dp-mlm", num_epochs=1, seed=7, privacy=dp(seed=secret))
        found.append(seen.copy())
        seen.clear()
    assert [len(seeds) for seeds in found] == [1, 1, 1]  # of all epochs and steps
    assert found[0] == found[1] != found[2]
    assert 7 not in found[0] | found[2]
    assert all(seed > 2**32 for seed in found[0] | found[2])


class StopHereError(Exception):
    pass


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_resumed_run_equals_an_uninterrupted_one(kind: str, recipe: str, tmp_path: Path) -> None:
    whole, model = run(tmp_path / "whole", kind, recipe)

    def stop(at: dict[str, Any]) -> None:
        if at["step"] == 3:
            raise StopHereError

    budget = {"budget_file": str(tmp_path / "budget.json"), "corpus": "c"}
    with pytest.raises(StopHereError):
        run(tmp_path / "cut", kind, recipe, progress=stop, privacy=dp(**budget))
    assert [each.settled for each in read_budget(tmp_path / "budget.json")] == [False]
    resumed, other = run(tmp_path / "cut", kind, recipe, privacy=dp(**budget))
    assert float((weights(other) - weights(model)).abs().max()) <= 1e-6
    assert resumed.losses == pytest.approx(whole.losses)
    assert resumed.ledger == whole.ledger
    assert [each.settled for each in read_budget(tmp_path / "budget.json")] == [True]  # one run, paid once


def test_run_that_falls_over_before_a_state_is_due_is_paid_once(tmp_path: Path) -> None:
    def stop(_: dict[str, Any]) -> None:
        raise StopHereError

    seldom = {"save_steps": 0, "save_minutes": 0.0}
    privacy = dp(seed=None, budget_file=str(tmp_path / "budget.json"), corpus="c")
    with pytest.raises(StopHereError):
        run(tmp_path / "cut", progress=stop, privacy=privacy, **seldom)
    run(tmp_path / "cut", privacy=privacy, **seldom)
    assert [each.settled for each in read_budget(tmp_path / "budget.json")] == [True]


def test_run_with_a_drawn_seed_can_be_resumed_and_forgets_it(tmp_path: Path) -> None:
    def stop(at: dict[str, Any]) -> None:
        if at["step"] == 3:
            raise StopHereError

    with pytest.raises(StopHereError):
        run(tmp_path, progress=stop, privacy=dp(seed=None))
    from safetensors import safe_open

    with safe_open(tmp_path / STATE, "pt") as file:
        kept = json.loads(file.metadata()["state"])["private"]
    run(tmp_path, privacy=dp(seed=None))
    assert int(kept["seed"], 16) > 2**64
    assert not any(kept["seed"].encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(StopHereError):
        run(tmp_path / "other", progress=stop)
    for other in ({"max_documents": 3}, {"max_physical_batch_size": 2}):  # each would give a step's noise another sum
        with pytest.raises(ArtifactError, match=r"differs in train\.dp\)"):
            run(tmp_path / "other", privacy=dp(**other))


def test_budget_refuses_before_the_first_step(tmp_path: Path) -> None:
    budget = {"budget_file": str(tmp_path / "budget.json"), "corpus": "c", "budget_epsilon": 12.0, "target_delta": 1e-3}
    run(tmp_path / "one", privacy=dp(**budget))
    seen: list[Any] = []
    with pytest.raises(
        PolicyError, match=r"would spend epsilon \d+\.\d\d at delta 1e-3 per individual .* is left after 1"
    ):
        run(tmp_path / "two", privacy=dp(**{**budget, "noise_multiplier": 0.6}), progress=seen.append)
    assert not seen
    assert len(read_budget(tmp_path / "budget.json")) == 1


def test_model_that_cannot_be_trained_privately_spends_nothing(tmp_path: Path) -> None:
    model = toy_model("gpt2")
    model.transformer.ln_f.bias = model.transformer.h[0].mlp.c_proj.bias
    budget = {"budget_file": str(tmp_path / "budget.json"), "corpus": "c"}
    config = TrainConfig(num_epochs=1, batch_size=4, window_length=32, device="cpu", checkpoint_epochs=())
    with pytest.raises(TrainingError, match="a Conv1D shares its weight with a layer of another kind"):
        train(
            model, uneven_individuals(), get_recipe("dp-clm"), config, tmp_path / "out",
            tokenizer=toy_tokenizer("gpt2"), privacy=dp(**budget),
        )  # fmt: skip
    assert read_budget(tmp_path / "budget.json") == []


def test_run_does_not_go_on_with_other_noise_than_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise is found anew from its epsilon; a mixture of two is not what was accounted."""
    from reticent.trainer import privacy

    def stop(at: dict[str, Any]) -> None:
        if at["step"] == 2:
            raise StopHereError

    asked = dp(noise_multiplier=None, target_epsilon=8.0)
    monkeypatch.setattr(privacy, "_noise_for", lambda *_: 1.0)
    with pytest.raises(StopHereError):
        run(tmp_path, progress=stop, privacy=asked)
    monkeypatch.setattr(privacy, "_noise_for", lambda *_: 1.5)
    with pytest.raises(ArtifactError, match=r"began with noise 1\.0 and would go on with 1\.5"):
        run(tmp_path, privacy=asked)


def test_protection_and_dp_give_no_epsilon(tmp_path: Path) -> None:
    recipe = Recipe(name="both", objective="clm", never_target=3, private=True)
    protected = random_store(12, length=6)
    result, _ = run(tmp_path, recipe=recipe, store=protected)
    assert str(result.guarantee) == "no epsilon (per individual): not accounted: the choice of protected words"
    assert json.loads((tmp_path / "ledger.json").read_text())["privacy"]["epsilon"] is None
    with pytest.raises(PolicyError, match="no epsilon can be promised"):
        run(tmp_path / "x", recipe=recipe, store=protected, privacy=dp(noise_multiplier=None, target_epsilon=8.0))


def test_private_recipe_without_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"give \[train.dp\]"):
        run(tmp_path, privacy=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"packing": True}, "a packed row is of several units"),
        ({"torch_compile": True}, "hooks need plain modules"),
        ({"gradient_checkpointing": True}, "would see each layer twice"),
        ({"dtype": "bfloat16"}, "noise are in float32"),
        ({"fsdp": True}, "of a unit are of whole weights"),
    ],
)
def test_settings_that_do_not_mix_with_dp_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=message):
        run(tmp_path, **changes)


@pytest.mark.parametrize("clipping", ["hooks", "ghost"])
@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_the_host_reads_nothing_from_the_device_but_for_the_check_of_the_first_unit(
    kind: str, recipe: str, clipping: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, take = Reads(), loop._take_steps

    def spy(*arguments: Any) -> None:
        with reads:
            take(*arguments)

    monkeypatch.setattr(loop, "_take_steps", spy)
    checking = "reticent.ext.dp.dpsgd.NoisyGradient._check_units"
    monkeypatch.setattr(checking, lambda self, _: setattr(self, "_checked", True))
    result, _ = run(tmp_path, kind, recipe, privacy=dp(clipping=clipping), save_steps=0)
    assert result.num_steps == 4
    assert reads.names == []


def test_epoch_without_a_sample_is_still_its_steps(tmp_path: Path) -> None:
    result, model = run(tmp_path, num_epochs=1, privacy=dp(sample_rate=0.02, noise_multiplier=3.0))
    assert result.num_steps == 50
    assert not torch.equal(weights(model), weights(toy_model("gpt2")))


@pytest.mark.parametrize(
    ("kind", "recipe", "modules"), [("gpt2", "dp-clm", ("c_attn",)), ("bert", "dp-mlm", ("query", "value"))]
)
def test_adapters_alone_are_trained_and_merged(
    kind: str, recipe: str, modules: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    lora = LoraSettings(target_modules=modules, r=4)
    result, model = run(tmp_path, kind, recipe, lora=lora, learning_rate=1e-2)
    auto = AutoModelForCausalLM if kind == "gpt2" else AutoModelForMaskedLM
    saved = auto.from_pretrained(result.checkpoints[2])
    assert torch.equal(weights(saved), weights(model))
    base = dict(toy_model(kind).named_parameters())
    moved = [name for name, weight in saved.named_parameters() if not torch.equal(weight, base[name])]
    assert moved
    assert all(module in modules for name in moved for module in [name.split(".")[-2]])
