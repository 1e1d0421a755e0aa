"""How long a training takes: the loss of held-out individuals beside it, early stopping by it, and a limit of steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures import private
from fixtures.jobs import control_c
from fixtures.models import toy_tokenizer
from fixtures.stores import random_store
from fixtures.training import config, dropping, results, run, stopping_at
from safetensors.torch import load_file

from reticent.core.errors import PolicyError, TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.trainer.labels import make_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.models import load_model, load_tokenizer, special_ids
from reticent.trainer.privacy import refuse_conflicts
from reticent.trainer.recipes import get_recipe
from reticent.trainer.verify import read_ledger, verify_ledger
from reticent.trainer.windows import cut_windows

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = [("bert", "ppmlm"), ("gpt2", "ppclm")]
STORE, HELDOUT = random_store(12, length=6), random_store(9, length=20, seed=1)
#: The held-out are random tokens too: what is learned by heart helps nobody, so their loss rises after a while.
LONG: dict[str, Any] = {"num_epochs": 30, "batch_size": 4, "learning_rate": 0.03, "eval_strategy": "epoch"}
LONG |= {"early_stopping_patience": 2, "checkpoint_epochs": None}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "padding" in line]


def loss_by_hand(checkpoint: Path, kind: str, objective: Any) -> tuple[float, int]:
    """The mean loss of the library's own model over the unprotected tokens of the held-out."""
    model = load_model(checkpoint, objective).eval()
    special = special_ids(load_tokenizer(toy_tokenizer(kind)), objective)
    windows = cut_windows(HELDOUT, 32, special)
    total, counted = 0.0, 0
    for number in range(len(windows)):
        batch = windows.gather(np.array([number]))
        made = make_targets(
            batch, get_recipe(f"pp{objective}"), Ledger(), mask_id=special.mask, mask_share=0.15, seed=0, epoch=0
        )
        labels = torch.from_numpy(made.labels)
        with torch.no_grad():
            mask = torch.from_numpy(batch.attention).long()
            logits = model(input_ids=torch.from_numpy(made.input_ids), attention_mask=mask).logits
        if objective == "clm":
            logits, labels = logits[:, :-1], labels[:, 1:]
        total += float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"))
        counted += int((labels != IGNORE_INDEX).sum())
    return total / counted, counted


@pytest.mark.parametrize("changes", [{}, {"packing": True}, {"batch_size": 1, "gradient_accumulation_steps": 3}])
@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_the_loss_is_that_of_ordinary_words_and_moves_no_weight(
    kind: str, recipe: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    settings = {"checkpoint_epochs": (1,), **changes}
    watched = run(
        kind, recipe, tmp_path / "a", model=dropping(kind), store=STORE, heldout=HELDOUT, eval_strategy="epoch",
        **settings,
    )  # fmt: skip
    run(kind, recipe, tmp_path / "b", model=dropping(kind), store=STORE, **settings)
    for epoch, (path, line) in enumerate(zip(watched.checkpoints.values(), lines_of(tmp_path / "a"), strict=True), 1):
        expected, counted = loss_by_hand(path, kind, recipe[2:])
        assert line["eval_loss"] == pytest.approx(expected, rel=1e-5)
        assert line["eval_targets"] == counted > 10
        name = f"epoch-{epoch:04d}/model.safetensors"
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    said = read_ledger(tmp_path / "a" / "ledger.json")
    assert said["eval"] == {"losses": watched.eval_losses, "targets": counted}
    assert watched.eval_losses == [line["eval_loss"] for line in lines_of(tmp_path / "a")]
    assert "eval_loss" not in lines_of(tmp_path / "b")[0]


@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_training_ends_when_the_loss_falls_no_more_and_keeps_the_best(kind: str, recipe: str, tmp_path: Path) -> None:
    result = run(kind, recipe, tmp_path, store=STORE, heldout=HELDOUT, **LONG)
    losses, best = result.eval_losses, result.ended["best_epoch"]
    assert 2 < result.ended["epoch"] == result.ended["passes"] == len(losses) == best + 2 < 30
    assert losses[best - 1] == min(losses)
    (path,) = result.checkpoints.values()
    assert [each.name for each in tmp_path.glob("epoch-*")] == [path.name] == ["epoch-0030"]
    assert loss_by_hand(path, kind, recipe[2:])[0] == pytest.approx(min(losses), rel=1e-5)
    assert f"after {best} epochs" in (path / "README.md").read_text()
    verdict = verify_ledger(read_ledger(tmp_path / "ledger.json"), STORE, get_recipe(recipe))
    assert verdict.mismatches == []


#: 12 windows by 4: 3 steps an epoch.
LIMITED = {"num_epochs": 4, "batch_size": 4, "max_steps": 5, "learning_rate": 0.01, "checkpoint_epochs": None}


@pytest.mark.parametrize("changes", [{}, {"packing": True, "window_length": 64, "batch_size": 1, "max_steps": 7}])
@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_training_ends_after_so_many_steps_and_its_ledger_holds(
    kind: str, recipe: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    settings = {**LIMITED, "logging_steps": 1, **changes}
    said: list[dict[str, Any]] = []
    result = run(kind, recipe, tmp_path, store=STORE, progress=said.append, **settings)
    assert [each["step"] for each in said] == list(range(1, settings["max_steps"] + 1))
    assert {each["num_steps"] for each in said} == {settings["max_steps"]}
    assert result.ended["step"] == result.num_steps == settings["max_steps"]
    assert [path.name for path in result.checkpoints.values()] == ["epoch-0004"]
    content = read_ledger(tmp_path / "ledger.json")
    assert content["ended"]["batches"] > 0
    assert verify_ledger(content, STORE, get_recipe(recipe)).mismatches == []
    content["ended"]["batches"] -= 1
    assert verify_ledger(content, STORE, get_recipe(recipe)).mismatches != []
    if not changes:
        assert content["ended"]["passes"] == 1.67
        assert "after 1.67 epochs" in (tmp_path / "epoch-0004" / "README.md").read_text()


@pytest.mark.parametrize("name", ["epoch", "batches"])
def test_an_end_that_no_setting_allows_is_not_believed(name: str, tmp_path: Path) -> None:
    """Else who takes epochs out of a ledger would say that there were none."""
    run("gpt2", "ppclm", tmp_path / "short", store=STORE, **LIMITED)
    short = read_ledger(tmp_path / "short" / "ledger.json")
    if name == "batches":  # of the last epoch
        short = {**short, "settings": {**short["settings"], "num_epochs": short["ended"]["epoch"]}}
    verdict = verify_ledger(short, STORE, get_recipe("ppclm"), settings={"num_epochs": short["settings"]["num_epochs"]})
    found = "the ledger has 2 of the 4" if name == "epoch" else "epoch 2: targets"
    assert any(found in line for line in verdict.mismatches)
    del short["settings"]["max_steps"]
    assert any(found in line for line in verify_ledger(short, STORE, get_recipe("ppclm")).mismatches)


def test_a_limit_beyond_the_last_step_changes_nothing(tmp_path: Path) -> None:
    free, limited = {**LIMITED, "max_steps": None, "checkpoint_epochs": ()}, {**LIMITED, "max_steps": 100}
    run("gpt2", "ppclm", tmp_path / "free", store=STORE, **free)
    run("gpt2", "ppclm", tmp_path / "limited", store=STORE, **limited)
    one, other = (load_file(tmp_path / name / "epoch-0004" / "model.safetensors") for name in ("free", "limited"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("settings", [LONG, {**LIMITED, "eval_strategy": "epoch"}], ids=["patience", "max_steps"])
def test_a_stopped_run_ends_where_one_that_was_not_stopped_does(settings: dict[str, Any], tmp_path: Path) -> None:
    def train(out: str, **more: Any) -> Any:
        return run("gpt2", "ppclm", tmp_path / out, model=dropping("gpt2"), store=STORE, heldout=HELDOUT,
                   **settings, **more)  # fmt: skip

    whole = train("whole")
    expected = {**results(tmp_path / "whole", whole), "ended": whole.ended, "eval": whole.eval_losses}
    for step in (1, 3, 4, whole.num_steps):  # in an epoch, at its end, and at the very last
        with pytest.raises(KeyboardInterrupt):
            train("cut", progress=stopping_at(step, control_c))
    resumed = train("cut")
    found = {**results(tmp_path / "cut", resumed), "ended": resumed.ended, "eval": resumed.eval_losses}
    assert found == expected


def test_a_private_training_is_watched_and_chooses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    one, model = private.run(tmp_path / "a", eval_strategy="epoch", heldout=HELDOUT)
    _, other = private.run(tmp_path / "b")
    assert len(one.eval_losses) == 2
    assert torch.equal(private.weights(model), private.weights(other))


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"max_steps": 5}, "max_steps.*fix num_epochs"),
     ({"early_stopping_patience": 1, "eval_strategy": "epoch"}, "early_stopping_patience.*tells of them")],
)  # fmt: skip
def test_dp_sgd_refuses_an_end_that_is_not_planned(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match=f"train.{said}"):
        refuse_conflicts((config(**changes), private.dp()))


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"early_stopping_patience": 1}, "eval_strategy"), ({"max_steps": 0}, "max_steps"),
     ({"max_steps": 5, "checkpoint_epochs": (1,)}, "checkpoint_epochs: with max_steps")],
)  # fmt: skip
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        config(**changes)


def test_people_to_evaluate_on_are_given_where_they_are_asked_for(tmp_path: Path) -> None:
    for more in ({"eval_strategy": "epoch"}, {"heldout": HELDOUT}):
        with pytest.raises(PolicyError, match="eval_strategy"):
            run("gpt2", "clm", tmp_path, store=STORE, **more)
    blank = HELDOUT.with_columns(flags=HELDOUT.flags | 1)
    with pytest.raises(TrainingError, match="held-out individuals has no word"):
        run("gpt2", "clm", tmp_path, store=STORE, heldout=blank, eval_strategy="epoch")


def test_settings_that_watch_are_no_part_of_a_models_key() -> None:
    assert config(eval_strategy="epoch").cache_key() == config().cache_key()
    assert config(max_steps=5).cache_key() != config().cache_key()
    assert "max_steps" not in config().of_one_training()
