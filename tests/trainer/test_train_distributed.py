"""Two real processes over gloo: the same training as one, stopped together, written once.

The two are forks of one process that has imported all they need, which takes longer than the trainings. The launcher
itself, torchrun, starts a whole job in ``tests/job/test_train_job.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from fixtures import private
from fixtures.distributed import CASES, SETTINGS, UNREACHED, settings_of, some_without_targets, uneven, unreached
from fixtures.forks import Forks
from fixtures.models import toy_model
from fixtures.training import UNFINISHED, dropping, run
from safetensors.torch import load_file

from reticent.trainer.distributed import World, whole_state
from reticent.trainer.recipes import get_recipe
from reticent.trainer.steps import TargetLoss, _reaches_every_weight
from reticent.trainer.verify import read_ledger, verify_ledger

pytestmark = pytest.mark.usefixtures("one_thread")


PROGRAM = """
import json, os, signal, socket, sys, traceback
from importlib.util import find_spec
from pathlib import Path
import torch
from safetensors.torch import save_file
torch.set_num_threads(1)
from fixtures.training import run
from fixtures.distributed import CASES, SETTINGS, UNREACHED, settings_of, unreached, uneven
from fixtures.training import dropping
if find_spec("opacus"):
    import opacus
    from fixtures import private

def trainings(out, rank):
    found = {}
    for name, (kind, recipe, store, accumulation) in CASES.items():
        model = dropping(kind)
        result = run(kind, recipe, out / name, model=model, store=store(),
                     **settings_of(name), gradient_accumulation_steps=accumulation)
        found[name] = {"losses": result.losses, "ledger": result.ledger.to_dict(), "steps": result.num_steps,
                       "eval": result.eval_losses,
                       "tokens": result.num_tokens,
                       "held": sum(getattr(weight, "to_local", lambda w=weight: w)().numel()
                                   for weight in model.parameters())}

    for name, (kind, *_) in UNREACHED.items():
        recipe = "ppmlm" if kind == "bert" else "ppclm"
        run(kind, recipe, out / name, model=unreached(name), store=uneven(), **SETTINGS)

    if find_spec("opacus"):
        ended = {}
        for clipping in private.CLIPPINGS:
            privacy = private.dp(clipping=clipping, noise_multiplier=1.0)
            _, model = private.run(out / clipping, num_epochs=2, privacy=privacy)
            ended[clipping] = private.weights(model)
        save_file(ended, out / f"private-{rank}.safetensors")

    def progress(said):
        if said["step"] == 2 and rank == 1:
            signal.raise_signal(signal.SIGINT)

    def stop(said):
        if said["step"] == said["num_steps"] and rank == 1:
            signal.raise_signal(signal.SIGINT)

    kind, recipe, store, accumulation = CASES["bert"]
    try:
        run(kind, recipe, out / "ended", model=dropping(kind), store=store(), progress=stop,
            **SETTINGS, gradient_accumulation_steps=accumulation)
    except (KeyboardInterrupt, SystemExit) as end:
        found["ended"] = f"{type(end).__name__} {end}"
    run(kind, recipe, out / "ended", model=dropping(kind), store=store(),
        **SETTINGS, gradient_accumulation_steps=accumulation)
    for name in ("stopped", "stopped shared"):
        try:
            run(kind, recipe, out / name, model=dropping(kind), store=store(), progress=progress,
                **SETTINGS, gradient_accumulation_steps=accumulation, fsdp=name.endswith("shared"))
        except (KeyboardInterrupt, SystemExit) as end:
            found[name] = f"{type(end).__name__} {end}"
    (out / f"found-{rank}.json").write_text(json.dumps(found))

def start(out, rank, environment):
    child = os.fork()
    if child == 0:
        try:
            os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
            trainings(out, rank)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child

for kind in ("bert", "gpt2"):
    dropping(kind)  # imports what it is made of
for name in UNREACHED:
    unreached(name)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
environment = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
children = [start(Path(sys.argv[1]), rank, environment) for rank in (0, 1)]
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def assert_same_weights(one: Path, other: Path) -> None:
    """But for the bias of keys, which moves no output: its gradient is rounding, and Adam makes steps of it."""
    weights, expected = (load_file(folder / "epoch-0002" / "model.safetensors") for folder in (one, other))
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        difference = (weights[name] - value).abs()
        if name.endswith("key.bias"):
            continue
        if name.endswith("c_attn.bias"):
            difference = difference[torch.arange(3 * 16) // 16 != 1]
        assert float(difference.max()) <= 1e-6, name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Path:
    folder = tmp_path_factory.mktemp("two")
    done = forks.run(PROGRAM, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("case", CASES)
def test_ledger_of_two_processes_is_drawn_again_by_one(case: str, folder: Path) -> None:
    _, recipe, store, _ = CASES[case]
    verdict = verify_ledger(read_ledger(folder / case / "ledger.json"), store(), get_recipe(recipe))
    assert verdict.mismatches == []
    assert verdict.counts is not None
    assert verdict.counts["targets"] > 0


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one_with_twice_the_accumulation(case: str, folder: Path, tmp_path: Path) -> None:
    kind, recipe, store, accumulation = CASES[case]
    one = run(
        kind, recipe, tmp_path, model=dropping(kind), store=store(), **settings_of(case),
        gradient_accumulation_steps=2 * accumulation,
    )  # fmt: skip
    for rank in (0, 1):
        two = json.loads((folder / f"found-{rank}.json").read_text())[case]
        assert two["losses"] == pytest.approx(one.losses, rel=1e-6)
        assert two["eval"] == pytest.approx(one.eval_losses, rel=1e-6)
        assert two["ledger"] == one.ledger.to_dict()
        assert (two["steps"], two["tokens"]) == (one.num_steps, one.num_tokens)
        every = sum(weight.numel() for weight in toy_model(kind).parameters())
        assert two["held"] < 0.6 * every if case.startswith("shared") else two["held"] == every
    assert_same_weights(folder / case, tmp_path)
    assert sorted(path.name for path in (folder / case).iterdir()) == [
        "epoch-0002", "ledger.json", "metrics.jsonl", "timings.jsonl"
    ]  # fmt: skip
    lines, expected_lines = (
        [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        for out in (folder / case, tmp_path)
    )
    assert [(line["step"], line["targets"]) for line in lines] == [
        (line["step"], line["targets"]) for line in expected_lines
    ]


@pytest.mark.parametrize("name", UNREACHED)
def test_weights_that_the_loss_does_not_reach_are_no_hindrance(name: str, folder: Path, tmp_path: Path) -> None:
    kind, model = UNREACHED[name][0], unreached(name)
    assert not _reaches_every_weight(TargetLoss(model))
    recipe, settings = ("ppmlm" if kind == "bert" else "ppclm"), {**SETTINGS, "gradient_accumulation_steps": 2}
    run(kind, recipe, tmp_path, model=model, store=uneven(), **settings)
    weights, expected = (load_file(out / "epoch-0002" / "model.safetensors") for out in (folder / name, tmp_path))
    assert weights.keys() == expected.keys()
    assert [key for key, value in expected.items() if not torch.equal(weights[key], value)] == []


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_where_every_weight_is_reached_none_is_looked_for(kind: str) -> None:
    assert _reaches_every_weight(TargetLoss(toy_model(kind)))


def test_the_blank_case_has_steps_with_targets_in_one_process_only(folder: Path, tmp_path: Path) -> None:
    settings = {**settings_of("blank"), "gradient_accumulation_steps": 2}
    one = run("gpt2", "ppclm", tmp_path, store=some_without_targets(), **settings)
    assert one.num_steps < 6  # steps without any target are passed over


@pytest.mark.parametrize("name", ["stopped", "stopped shared"])
def test_a_signal_to_one_process_stops_both_before_the_same_step(name: str, folder: Path, tmp_path: Path) -> None:
    said = [json.loads((folder / f"found-{rank}.json").read_text())[name] for rank in (0, 1)]
    assert said == ["SystemExit 143", "KeyboardInterrupt "]
    assert sorted(path.name for path in (folder / name).iterdir()) == UNFINISHED
    kind, recipe, store, accumulation = CASES["bert"]
    settings = {**SETTINGS, "gradient_accumulation_steps": 2 * accumulation}
    steps: list[int] = []
    run(  # one process goes on with what two began
        kind, recipe, folder / name, model=dropping(kind), store=store(), **settings,
        progress=lambda said: steps.append(said["step"]),
    )  # fmt: skip
    assert steps == [3, 4]
    run(kind, recipe, tmp_path, model=dropping(kind), store=store(), **settings)
    assert_same_weights(folder / name, tmp_path)
    assert (folder / name / "ledger.json").read_bytes() == (tmp_path / "ledger.json").read_bytes()


def test_two_processes_that_were_stopped_by_the_last_step_write_what_is_left(folder: Path) -> None:
    said = [json.loads((folder / f"found-{rank}.json").read_text())["ended"] for rank in (0, 1)]
    assert said == ["SystemExit 143", "KeyboardInterrupt "]
    _, recipe, store, _ = CASES["bert"]
    verdict = verify_ledger(read_ledger(folder / "ended" / "ledger.json"), store(), get_recipe(recipe))
    assert verdict.mismatches == []
    assert sorted(path.name for path in (folder / "ended").iterdir()) == [
        "epoch-0002", "ledger.json", "metrics.jsonl", "timings.jsonl"
    ]  # fmt: skip


@pytest.mark.parametrize("clipping", private.CLIPPINGS)
def test_two_processes_train_privately_what_one_does(clipping: str, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    _, alone = private.run(tmp_path / "alone", num_epochs=2, privacy=private.dp(clipping=clipping))
    first, second = (load_file(folder / f"private-{rank}.safetensors")[clipping] for rank in (0, 1))
    assert torch.equal(first, second)
    assert float((first - private.weights(alone)).abs().max()) <= 1e-5


def test_whole_weights_are_held_by_the_first_process_alone() -> None:
    model = torch.nn.Linear(2, 3)
    assert whole_state(model, World()) is None  # not shared
    model.weight.full_tensor = lambda: model.weight  # type: ignore[attr-defined]
    assert whole_state(model, World(rank=1, size=2)) is None
    found = whole_state(model, World(rank=0, size=2))
    assert found is not None
    assert {name: tuple(weight.shape) for name, weight in found.items()} == {"weight": (3, 2), "bias": (3,)}
