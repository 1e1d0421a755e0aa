"""Trainings in programs of their own: ended by a signal, killed while they save, and read without this package.

One process imports all that they need and starts no thread; each training is a fork of it, as imports take longer.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures.forks import Forks
from fixtures.models import toy_model, toy_tokenizer
from fixtures.training import SETTINGS, assert_whole, dropping, run

from reticent.trainer.loop import TrainResult
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = [("bert", "ppmlm"), ("gpt2", "ppclm")]
SIGNALS = [signal.SIGTERM, signal.SIGKILL]

PROGRAM = """
import json, os, signal, sys, traceback
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from transformers import BertForMaskedLM, BertTokenizer, GPT2LMHeadModel, GPT2Tokenizer

def status_of(function, *arguments):
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def read(folder):
    sys.modules["reticent"] = None  # importing it would fail
    found = {}
    for kind, auto in (("bert", AutoModelForMaskedLM), ("gpt2", AutoModelForCausalLM)):
        path = folder / kind / "epoch-0002"
        model, report = auto.from_pretrained(path, output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(path)
        with torch.no_grad():
            logits = model.eval()(input_ids=torch.tensor([[5, 6, 7, 8, 9]])).logits
        found[kind] = {
            "logits": logits[0].tolist(),
            "missing": sorted(map(str, report["missing_keys"])),
            "mask": tokenizer.mask_token_id,
            "tokens": tokenizer("the patient has pain")["input_ids"],
            "text": tokenizer.decode(tokenizer("the patient")["input_ids"], skip_special_tokens=True),
        }
    (folder / "read.json").write_text(json.dumps(found))

folder = Path(sys.argv[1])
found = {"imported": "reticent" in sys.modules, "read": status_of(read, folder), "signalled": {}}

from fixtures.training import SETTINGS, dropping, run

def train(folder, number):
    def progress(said):
        if said["step"] == 5 and number:
            os.kill(os.getpid(), number)
    result = run("gpt2", "ppclm", folder, model=dropping("gpt2"), progress=progress, **SETTINGS, save_steps=2)
    folder.with_suffix(".json").write_text(json.dumps(result.losses))

def killed_while_it_saves(folder):
    model, calls = dropping("gpt2"), []
    save = model.save_pretrained
    def killing(folder, **options):
        save(folder, **options)
        calls.append(folder)
        if len(calls) == 2:  # the second checkpoint is written, and not yet in its place
            os.kill(os.getpid(), signal.SIGKILL)
    model.save_pretrained = killing
    run("gpt2", "ppclm", folder, model=model, num_epochs=3, checkpoint_epochs=(1, 2))

dropping("gpt2")  # imports what it is made of
for number in map(int, sys.argv[2:]):
    cut = folder / str(number)
    stopped = status_of(train, cut, number)
    mode = (cut / "state.safetensors").stat().st_mode & 0o777
    found["signalled"][number] = {"stopped": stopped, "mode": mode, "resumed": status_of(train, cut, 0)}
found["saving"] = status_of(killed_while_it_saves, folder / "saving")
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Programs:
    """Results of the programs in ``folder``, their output, and the models whose checkpoints one of them read."""

    folder: Path
    found: dict[str, Any]
    models: dict[str, Any]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Programs:
    folder = tmp_path_factory.mktemp("programs")
    models = {kind: toy_model(kind) for kind, _ in KINDS}
    for kind, recipe in KINDS:
        run(kind, recipe, folder / kind, model=models[kind], learning_rate=0.01)
    done = forks.run(PROGRAM, folder, *map(int, SIGNALS), cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["read"] == 0, done.stderr
    return Programs(folder, found, models)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainResult]:
    """The training that no signal ended."""
    folder = tmp_path_factory.mktemp("whole") / "gpt2"
    return folder, run("gpt2", "ppclm", folder, model=dropping("gpt2"), **SETTINGS, save_steps=2)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_program_that_gets_a_signal_ends_by_it_and_can_go_on(
    number: int, programs: Programs, whole: tuple[Path, TrainResult]
) -> None:
    found = programs.found["signalled"][str(int(number))]
    assert found == {"stopped": -number, "mode": 0o600, "resumed": 0}
    (folder, result), cut = whole, programs.folder / str(int(number))
    assert json.loads(cut.with_suffix(".json").read_text()) == result.losses
    for name in ("epoch-0003/model.safetensors", "metrics.jsonl", "ledger.json"):
        assert (cut / name).read_bytes() == (folder / name).read_bytes()


def test_a_run_that_is_killed_while_it_saves_leaves_whole_checkpoints_only(programs: Programs) -> None:
    assert programs.found["saving"] == -signal.SIGKILL
    folder = programs.folder / "saving"
    assert [path.name for path in folder.glob("epoch-*")] == ["epoch-0001"]
    assert_whole(folder)
    assert len(list(folder.glob(".epoch-0002.tmp-*"))) == 1  # hidden, so no stage takes it for a checkpoint


def test_final_models_load_in_plain_transformers_with_the_same_logits(programs: Programs) -> None:
    assert not programs.found["imported"]
    paths = [programs.folder / kind / "epoch-0002" for kind, _ in KINDS]
    assert [sorted(path.suffix for path in folder.glob("*.safetensors")) for folder in paths] == [[".safetensors"]] * 2
    found = json.loads((programs.folder / "read.json").read_text())
    for kind, _ in KINDS:
        with torch.no_grad():
            logits = programs.models[kind].eval()(input_ids=torch.tensor([[5, 6, 7, 8, 9]])).logits[0]
        assert float((torch.tensor(found[kind]["logits"]) - logits).abs().max()) < 1e-6
        assert found[kind]["missing"] == []
        tokenizer = load_tokenizer(toy_tokenizer(kind))
        assert found[kind]["tokens"] == tokenizer("the patient has pain")["input_ids"]
        assert found[kind]["mask"] == tokenizer.mask_token_id
        assert found[kind]["text"].strip() == "the patient"
