"""The log as lines of JSON, and the exit status, as schedulers read them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fixtures.command import command

from reticent.core.progress import VARIABLE

NOTE = "id,person,text\n1,a,planted Zanzibarova fever\n2,b,fever again\n3,c,fever\n4,d,fever\n5,a,fever\n"
GIVEN = ("--set", "corpus.doc_id=id", "--set", "corpus.individual_id=person", "--set", "split.heldout=0.5")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "text")  # so that it is taken back: the command sets it


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes.csv").write_text(NOTE)
    return tmp_path / "notes.csv"


def lines(shown: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in shown.splitlines()]
    assert all({"time", "level", "message"} <= line.keys() and line["time"].endswith("Z") for line in found)
    return found


@pytest.mark.parametrize(
    "where", [("--log-format", "json", "index"), ("index", "--log-format", "json"), ("index", "--log-format=json")]
)
def test_every_line_of_a_run_is_an_object_wherever_the_option_stands(
    notes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], where: tuple[str, ...]
) -> None:
    assert command(*where, notes, "--out", tmp_path / "run", *GIVEN) == 0
    shown = capfd.readouterr()
    found = lines(shown.err)
    stages = [(line["stage"], line["state"]) for line in found if "stage" in line]
    assert stages[:2] == [("split", "begun"), ("split", "done")]
    done = next(line for line in found if line.get("stage") == "index" and line["state"] == "done")
    assert done["counts"]["words"] > 0
    assert done["seconds"] >= 0
    assert "Zanzibarova" not in shown.err
    assert command(*where, notes, "--out", tmp_path / "run", *GIVEN) == 0
    again = lines(capfd.readouterr().err)
    assert {line["state"] for line in again if "stage" in line} == {"up to date"}


def test_the_environment_says_it_too_and_a_wrong_format_is_refused(
    notes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "json")
    assert command("index", notes, "--out", tmp_path / "run", *GIVEN, "-q") == 0
    assert capfd.readouterr().err == ""
    assert command("index", tmp_path / "nowhere.csv", "--out", tmp_path / "new") == 1
    (line,) = lines(capfd.readouterr().err)
    assert (line["level"], "nowhere.csv" in line["message"]) == ("error", True)
    monkeypatch.setenv(VARIABLE, "xml")
    assert command("index", notes, "--out", tmp_path / "run") == 2
    assert "expected text or json" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "status"),
    [(("index", "--nonsense"), 2), (("index", "n", "-n", "99"), 2), (("nonsense",), 2), (("--version",), 0)],
)
def test_wrong_options_are_lines_of_json_too(
    given: tuple[str, ...], status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(*given, "--log-format", "json") == status
    found = lines(capfd.readouterr().err)
    assert [line["level"] for line in found] == ["error"] * (status != 0)


def test_a_bug_is_lines_of_json_without_its_message(
    notes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError(NOTE.split()[2])

    monkeypatch.setattr("reticent.cli.runs.execute", broken)
    assert command("index", notes, "--out", tmp_path / "run", "--log-format", "json") == 1
    shown = capfd.readouterr().err
    assert "KeyError" in lines(shown)[-1]["message"]
    assert "Zanzibarova" not in shown


@pytest.mark.heavy
def test_a_run_that_a_scheduler_stops_says_so_and_the_same_command_goes_on(
    notes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import time, dataclasses; from reticent.job import pipeline; from reticent.cli import main; "
        "slow = lambda run: (time.sleep(60), iter(()))[1]; "
        "pipeline._PLAN = tuple(dataclasses.replace(s, steps=slow) if s.name == 'index' else s "
        "for s in pipeline._PLAN); main()"
    )
    given = ["index", str(notes), "--out", str(tmp_path / "run"), *GIVEN, "--log-format", "json"]
    running = subprocess.Popen([sys.executable, "-c", code, *given], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (tmp_path / "run" / "spans" / "manifest.json").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.2)
    running.send_signal(signal.SIGTERM)
    _, shown = running.communicate(timeout=60)
    assert running.returncode == 143, shown
    assert "the same command goes on" in lines(shown)[-1]["message"]
    assert command(*given) == 0
    states = {line["stage"]: line["state"] for line in lines(capfd.readouterr().err) if "stage" in line}
    assert (states["split"], states["index"]) == ("up to date", "done")
