"""A training that is stopped or killed and called again ends as one that was not."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures.jobs import control_c
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import random_store
from fixtures.training import SETTINGS, UNFINISHED, config, dropping, results, run, stopping_at
from safetensors import SafetensorError

from reticent.core.artifact import STATE
from reticent.core.errors import ArtifactError
from reticent.trainer import resume
from reticent.trainer.loop import TrainResult, train
from reticent.trainer.metrics import FILES
from reticent.trainer.recipes import get_recipe
from reticent.trainer.resume import only_training_in

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = [("bert", "ppmlm"), ("gpt2", "ppclm")]


def fall_over() -> None:
    raise ZeroDivisionError


@dataclass(frozen=True)
class Whole:
    """A training that was not stopped: where it is, and what it gave."""

    folder: Path
    result: TrainResult

    def results(self) -> dict[str, Any]:
        return results(self.folder, self.result)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    """One for each kind, with which all that were stopped are compared."""
    found = {}
    for kind, recipe in KINDS:
        folder = tmp_path_factory.mktemp("whole") / kind
        found[kind] = Whole(folder, run(kind, recipe, folder, model=dropping(kind), **SETTINGS))
    return found


@pytest.mark.parametrize("step", [1, 3, 5, 8])  # 3 steps an epoch
@pytest.mark.parametrize(("kind", "recipe"), KINDS)
def test_a_stopped_run_ends_as_one_that_was_not_stopped(
    kind: str, recipe: str, step: int, wholes: dict[str, Whole], tmp_path: Path
) -> None:
    model = dropping(kind)
    with pytest.raises(KeyboardInterrupt):
        run(kind, recipe, tmp_path / "cut", model=model, progress=stopping_at(step, control_c), **SETTINGS)
    assert set(UNFINISHED) <= {path.name for path in (tmp_path / "cut").iterdir()}
    steps: list[int] = []
    resumed = run(
        kind, recipe, tmp_path / "cut", model=dropping(kind), progress=lambda said: steps.append(said["step"]),
        **SETTINGS,
    )  # fmt: skip
    assert steps == list(range(step + 1, 10))  # nothing is done twice, nothing left out
    assert results(tmp_path / "cut", resumed) == wholes[kind].results()
    assert list(tmp_path.rglob("*state*")) == []


def test_a_run_that_is_stopped_at_every_step_ends_as_one_that_was_not_stopped(
    wholes: dict[str, Whole], tmp_path: Path
) -> None:
    for step in range(1, 9):
        with pytest.raises(KeyboardInterrupt):
            run("bert", "ppmlm", tmp_path / "cut", model=dropping("bert"), progress=stopping_at(step, control_c),
                **SETTINGS)  # fmt: skip
    resumed = run("bert", "ppmlm", tmp_path / "cut", model=dropping("bert"), **SETTINGS)
    assert results(tmp_path / "cut", resumed) == wholes["bert"].results()


@pytest.mark.parametrize(("saves", "step", "end", "goes_on_at"), [
    ({}, 5, fall_over, [4]), ({"save_minutes": 1e-9}, 5, fall_over, [5]), ({"save_steps": 2}, 5, fall_over, [5]),
    ({"checkpoint_epochs": ()}, 5, fall_over, [1]), ({"checkpoint_epochs": ()}, 9, control_c, []),  # the last step
])  # fmt: skip
def test_a_run_that_ends_early_goes_on_from_its_last_state(
    saves: Any, step: int, end: Any, goes_on_at: list[int], tmp_path: Path
) -> None:
    settings = {**SETTINGS, **saves}
    whole = run("gpt2", "ppclm", tmp_path / "whole", model=dropping("gpt2"), **settings)
    with pytest.raises((ZeroDivisionError, KeyboardInterrupt)):
        run("gpt2", "ppclm", tmp_path / "cut", model=dropping("gpt2"), progress=stopping_at(step, end), **settings)
    steps: list[int] = []
    resumed = run(
        "gpt2", "ppclm", tmp_path / "cut", model=dropping("gpt2"), progress=lambda said: steps.append(said["step"]),
        **settings,
    )  # fmt: skip
    assert steps[:1] == goes_on_at
    assert results(tmp_path / "cut", resumed) == results(tmp_path / "whole", whole)


def test_a_state_is_of_its_step_and_written_while_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, write, later = toy_model("gpt2"), resume._write_state, threading.Event()
    at_step, written = {}, []

    def slow(folder: Path, tensors: dict[str, torch.Tensor], header: dict[str, str]) -> None:
        assert later.wait(60)  # two steps further on
        written.append({name: tensors[f"model.{name}"].clone() for name in at_step[2]})
        write(folder, tensors, header)

    def progress(said: dict[str, Any]) -> None:
        at_step[said["step"]] = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        if said["step"] == 3:
            later.set()

    monkeypatch.setattr(resume, "_write_state", slow)
    run(
        "gpt2",
        "ppclm",
        tmp_path,
        model=model,
        progress=progress,
        **{**SETTINGS, "checkpoint_epochs": (), "save_steps": 2},
    )
    assert len(written) == 4  # after steps 2, 4, 6 and 8
    assert all(torch.equal(written[0][name], weight) for name, weight in at_step[2].items())
    assert not all(torch.equal(written[0][name], weight) for name, weight in at_step[3].items())
    assert sorted(path.name for path in tmp_path.glob("*state*")) == []


def test_a_training_in_the_folder_of_another_leaves_none_of_its_checkpoints(tmp_path: Path) -> None:
    run("gpt2", "ppclm", tmp_path, num_epochs=3, checkpoint_epochs=(1, 2))
    with pytest.raises(ZeroDivisionError):
        run("gpt2", "ppclm", tmp_path, progress=stopping_at(1, fall_over), num_epochs=1)
    assert not (tmp_path / "ledger.json").exists()
    again = run("gpt2", "ppclm", tmp_path, num_epochs=1)
    assert list(tmp_path.glob("epoch-*")) == list(again.checkpoints.values()) == [tmp_path / "epoch-0001"]


def test_a_second_signal_is_not_kept(tmp_path: Path) -> None:
    def twice() -> None:
        control_c()
        control_c()

    with pytest.raises(KeyboardInterrupt):
        run("gpt2", "ppclm", tmp_path, progress=stopping_at(2, twice), **SETTINGS)
    assert not (tmp_path / "state.safetensors").exists()


def test_handlers_are_those_of_before(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    run("gpt2", "clm", tmp_path, num_epochs=1)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


#: The tokens of the training.
STORE = random_store(12, length=6)


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ("train.learning_rate", {"learning_rate": 0.02}),
        ("gradient_accumulation_steps x processes: 2 then, 1 now", {"gradient_accumulation_steps": 1}),
        ("train.seed", {"seed": 1}),
        ("recipe", {"recipe": "clm"}),
        ("tokens", {"store": STORE.with_columns(input_ids=STORE.input_ids + 1)}),
        ("tokens", {"store": STORE.with_columns(flags=STORE.flags ^ 1)}),
        ("model", {"model": toy_model("gpt2", seed=1)}),
    ],
)
def test_the_state_of_another_training_is_refused_and_stays(said: str, changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run("gpt2", "ppclm", tmp_path, progress=stopping_at(5, control_c), **SETTINGS)
    before = (tmp_path / "state.safetensors").read_bytes()
    options = {"kind": "gpt2", "recipe": "ppclm", "out": tmp_path, **SETTINGS, **changes}
    with pytest.raises(ArtifactError, match=f"another training .*{said}"):
        run(**options)
    assert (tmp_path / "state.safetensors").read_bytes() == before
    assert (tmp_path / "epoch-0001").exists()
    run("gpt2", "ppclm", tmp_path, **{**SETTINGS, "logging_steps": 7, "device": "auto"})  # these compute nothing


def test_a_state_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ArtifactError, match="not a readable state"):
        run("gpt2", "ppclm", tmp_path)


def test_a_half_written_state_does_not_count(tmp_path: Path) -> None:
    """A kill while the state is written leaves the last one."""
    with pytest.raises(KeyboardInterrupt):
        run("gpt2", "ppclm", tmp_path, progress=stopping_at(5, control_c), **SETTINGS)
    (tmp_path / ".state.safetensors.tmp").write_bytes(b"half")
    steps: list[int] = []
    run("gpt2", "ppclm", tmp_path, progress=lambda said: steps.append(said["step"]), **SETTINGS)
    assert steps[0] == 6
    assert (
        not {path.name for path in tmp_path.iterdir()}
        - {"epoch-0001", "epoch-0002", "epoch-0003", "ledger.json"}
        - {*FILES}
    )


def test_the_cost_of_waiting_is_reported(tmp_path: Path) -> None:
    result = run("gpt2", "ppclm", tmp_path, **SETTINGS)
    lines = [json.loads(line) for line in (tmp_path / "timings.jsonl").read_text().splitlines()]
    assert [line["waited"] for line in lines] == result.waited
    assert len(result.waited) == 3
    assert all(0 < share < 1 for share in result.waited)


def test_steps_are_logged_at_the_interval(tmp_path: Path) -> None:
    run("gpt2", "ppclm", tmp_path, **SETTINGS)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "grad_norm" in line]
    assert [line["step"] for line in steps] == [2, 4, 6, 8]
    assert [line["learning_rate"] for line in steps] == pytest.approx([0.005, 0.01 * 6 / 7, 0.01 * 4 / 7, 0.01 * 2 / 7])
    assert all(line["loss"] > 0 and line["targets"] > 0 for line in steps)


def test_the_curves_of_a_training_have_no_point_of_an_earlier_one(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run("gpt2", "ppclm", tmp_path, report_to=("tensorboard",), logging_steps=1, num_epochs=2)
    again = run("gpt2", "ppclm", tmp_path, report_to=("tensorboard",), logging_steps=1, num_epochs=1)
    written = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in written.Scalars("step/loss")] == list(range(1, again.num_steps + 1))
    run("gpt2", "ppclm", tmp_path, num_epochs=1)
    assert list((tmp_path / "tensorboard").iterdir()) == []


def test_tensorboard_gets_what_the_metrics_get(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    result = run("gpt2", "ppclm", tmp_path, report_to=("tensorboard",), **SETTINGS)
    written = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.value for event in written.Scalars("epoch/loss")] == pytest.approx(result.losses)
    assert [event.step for event in written.Scalars("step/grad_norm")] == [2, 4, 6, 8]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "tensorboard").iterdir()} == {0o600}
    assert os.stat(tmp_path / "tensorboard").st_mode & 0o777 == 0o700


@pytest.mark.parametrize("stop", [0, 2, 5])
def test_the_rate_falls_to_zero_where_epochs_differ_in_length_also_when_stopped(stop: int, tmp_path: Path) -> None:
    lengths = {1: 8, 2: 12, 3: 4}  # 2, 3 and 1 steps; each epoch takes those after it to be as long as itself

    def begin(out: Path, **more: Any) -> None:
        train(
            dropping("gpt2"), random_store(8, length=6), get_recipe("clm"),
            config(num_epochs=3, learning_rate=1.0, logging_steps=1), out, tokenizer=toy_tokenizer("gpt2"),
            epoch_store=lambda epoch: random_store(lengths[epoch], length=6), **more,
        )  # fmt: skip

    if stop:
        with pytest.raises(KeyboardInterrupt):
            begin(tmp_path, progress=stopping_at(stop, control_c))
    begin(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if "learning_rate" in line]
    assert rates == pytest.approx([1, 5 / 6, 6 / 8, 5 / 8, 4 / 8, 1 / 6])


def again(out: Path, **changes: Any) -> TrainResult:
    return run("gpt2", "clm", out, **SETTINGS | changes)


def test_a_second_training_in_the_folder_is_refused_before_it_changes_anything(tmp_path: Path) -> None:
    def another(at: dict[str, Any]) -> None:
        if at["step"] == 2:
            before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            for resume in (True, False):
                with pytest.raises(ArtifactError, match="in use by another process"):
                    again(tmp_path, resume=resume)
            assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

    again(tmp_path, progress=another)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("resume", [True, False])
def test_what_a_kill_left_is_removed_and_the_only_copy_put_back(resume: bool, tmp_path: Path) -> None:
    for left in (".epoch-0002.tmp-0a1b", ".epoch-0001.old-0a1b", ".epoch-0009.old-0a1b"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "model.safetensors").write_text(left)
    (tmp_path / "epoch-0001").mkdir()
    (tmp_path / f".{STATE}.tmp").write_text("half")
    with only_training_in(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".training.lock", "epoch-0001", "epoch-0009"]
        assert (tmp_path / "epoch-0009" / "model.safetensors").read_text() == ".epoch-0009.old-0a1b"
    (tmp_path / ".epoch-0001.tmp-0a1b").mkdir()
    again(tmp_path, resume=resume)
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_leaves_no_half_state_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Any, path: Path, **__: Any) -> None:
        path.write_text("half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("reticent.trainer.resume.save_file", full)
    with pytest.raises(ArtifactError, match=r"not written \(No space left on device\)"):
        again(tmp_path, save_steps=1)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("steps", [1000, 2])
def test_a_warm_up_longer_than_the_training_is_said(
    steps: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    again(tmp_path, warmup_steps=steps)
    assert (f"warning: warmup_steps: {steps} steps, but this" in capfd.readouterr().err) is (steps == 1000)
