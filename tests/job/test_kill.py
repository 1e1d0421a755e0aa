"""Runs that are killed, stopped, or out of disk space; `benchmarks.kill` does it 500 times.

The trials fork a process that has imported all it needs and started no thread, so they run in one of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.drawing import SHARE
from fixtures.faults import available
from fixtures.places import ROOT, TESTS

#: Trials that kill the engine; a disk is full at every so many writes of it; how many of these fail at least.
NUM_KILLED, FULL_EVERY, NUM_FULL = (21, 24, 10) if SHARE == 1 else (6, 60, 4)
Tables = dict[str, dict[str, dict[str, Any]]]

TRIALS = """
import json, sys
from pathlib import Path
from fixtures import kill
from reticent.core import artifact
from reticent.job import maker

def counted(table):
    return {"rows": table.rows, "failures": table.failures}

def sabotaged(name, harm, run):
    whole = getattr(artifact, name)
    places = [(module, own) for module in (artifact, maker) for own, value in vars(module).items() if value is whole]
    for module, own in places:
        setattr(module, own, harm)
    table = run()
    for module, own in places:
        setattr(module, own, whole)
    return counted(table)

def one():
    table = kill.Table()
    for share in (0.3, 0.5, 0.7):
        table.add("", *kill.kill_trial(engine["engine"], "old", "old", share, by_change=kill.available()), "")
    return table

def replace_file_by_file(path, temporary):
    path.mkdir(exist_ok=True)
    for file in sorted(temporary.rglob("*")):
        place = path / file.relative_to(temporary)
        place.mkdir(exist_ok=True) if file.is_dir() else place.write_bytes(file.read_bytes())
    artifact.shutil.rmtree(temporary)

folder, num_killed, full_every, result = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), {}
# A fork of a process that has imported little is quick, so the hundreds of trials of one artefact come first.
artefact = kill.make_cases(folder, ("artefact",))
if kill.available():
    over_old = lambda: kill.kill_at_every_change(artefact["artefact"], [("old", "new")])
    result["in place"] = sabotaged("_replace", replace_file_by_file, over_old)
    result["every change"] = counted(kill.kill_at_every_change(artefact["artefact"]))
    result["full disk"] = counted(kill.fill_all(artefact))
engine = kill.make_cases(folder, ("engine",))
result["imported"] = {"by the engine": {name: name in sys.modules for name in ("pyarrow", "torch", "transformers")}}
result["killed"] = counted(kill.kill_all(engine, num_killed, seed=0))
result["unwiped"] = sabotaged("_recover", lambda path: None, one)
result["forgetful"] = sabotaged("is_up_to_date", lambda *_, **__: False, one)
if kill.available():
    result["stopped"] = counted(kill.stop_all(engine, 6))
    of_engine = counted(kill.fill_all(engine, full_every))
    result["full disk"] = {what: found + of_engine[what] if what == "failures" else found | of_engine[what]
                           for what, found in result["full disk"].items()}
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def trials() -> Iterator[Tables]:
    """In memory where there is such a disk: a killed process leaves what it wrote, whether it reached a disk or not."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="reticent-kill-", dir=memory if os.access(memory, os.W_OK) else None
    ) as folder:
        yield _run_trials(folder)


def _run_trials(folder: str) -> Tables:
    command = [sys.executable, "-c", TRIALS, folder, str(NUM_KILLED), str(FULL_EVERY)]
    paths = os.pathsep.join([str(ROOT), str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


needs_watching = pytest.mark.skipif(
    not available(), reason="this kernel does not let a process be watched (seccomp user notification)"
)


def counts(trials: Tables, name: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for row in trials[name]["rows"].values():
        for what, many in row.items():
            total[what] = total.get(what, 0) + many
    return total


def test_a_run_killed_at_any_moment_ends_as_one_that_was_not(trials: Tables) -> None:
    assert trials["killed"]["failures"] == []
    assert counts(trials, "killed")["trials"] >= NUM_KILLED
    assert counts(trials, "killed").get("already done", 0) < NUM_KILLED / 2  # or they were not killed
    assert len(trials["killed"]["rows"]) == 3  # over nothing, over an old result, and back to it


def test_tokens_are_protected_without_importing_torch(trials: Tables) -> None:
    imported = trials["imported"]["by the engine"]  # before any trial this process imports all that the job did
    assert imported == {"pyarrow": True, "torch": False, "transformers": False}


@needs_watching
def test_every_state_that_a_killed_writer_can_leave_is_repaired(trials: Tables) -> None:
    assert trials["every change"]["failures"] == []
    found = counts(trials, "every change")
    assert found["before a change"] == found["trials"] > 50


@needs_watching
def test_a_run_that_is_asked_to_stop_leaves_nothing(trials: Tables) -> None:
    assert trials["stopped"]["failures"] == []
    assert counts(trials, "stopped") == {"trials": 6, "stopped": 6}


@needs_watching
def test_a_full_disk_is_a_clear_error_that_leaves_the_old_result_and_nothing_else(trials: Tables) -> None:
    assert trials["full disk"]["failures"] == []
    rows = trials["full disk"]["rows"]
    assert {row.split(" over")[0] for row in rows} == {"artefact", "engine"}
    assert all(row["failed"] >= NUM_FULL for row in rows.values())
    # To make a folder that is there needs no space: the run folder's, that of the tokens, and that of each lock.
    assert counts(trials, "full disk").get("got by without", 0) <= 6


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unwiped", "left over"),
        ("forgetful", "up to date, and run again"),
        pytest.param("in place", "neither the old nor the new result", marks=needs_watching),
    ],
)
def test_the_trials_find_a_product_that_is_broken(trials: Tables, name: str, said: str) -> None:
    assert any(said in failure for failure in trials[name]["failures"])
