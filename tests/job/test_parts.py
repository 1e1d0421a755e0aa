"""Parts of a run: each makes its share, in one folder or in copies of it, and together they are the whole run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fixtures.command import command
from fixtures.jobs import Recorder, Values, changed, content, make_hospital, values_of
from fixtures.models import write_toy_model

from reticent.core.artifact import InUseError, locked
from reticent.core.errors import ArtifactError, PolicyError
from reticent.job.config import parse_job
from reticent.job.parts import Part, execute_part
from reticent.job.pipeline import execute, iter_step_states
from reticent.job.run import Run

pytestmark = [pytest.mark.usefixtures("one_thread", "without_figures"), pytest.mark.heavy]


@pytest.fixture(scope="module", autouse=True)
def equal_times() -> Any:
    """Times are part of an artefact, and differ."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1")
        yield


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    hospital = make_hospital(tmp_path_factory.mktemp("hospital"), 24)
    base = write_toy_model(hospital / "gpt2", "gpt2")
    values = values_of(hospital, hospital / "run")
    values["model"] = [{"name": "toy", "base": str(base), "objective": "clm", "recipes": ["clm", "ppclm"]}]
    values["train"] = {"num_epochs": 1, "window_length": 64, "batch_size": 8}
    values["audit"] = {
        "num_bootstrap": 100,
        "attacks": ["loss", "reference"],
        "shadow": {"recipes": ["ppclm"], "num_shadows": 4, "attacks": ["lira_offline"]},
    }
    values["extraction"] = {"prefix_tokens": [5], "suffix_tokens": 5, "num_queries": [1]}
    values["gate"] = [{"measure": "membership_auc", "at_most": 0.99}]
    return values


@pytest.fixture(scope="module")
def whole(values: Values) -> Values:
    """The run without parts."""
    execute(Run(parse_job(values)), "audit")
    return values


@pytest.fixture(scope="module")
def first(values: Values, tmp_path_factory: pytest.TempPathFactory) -> Values:
    """A run whose part 0 is done."""
    values = changed(values, out=str(tmp_path_factory.mktemp("parts") / "run"))
    assert execute_part(Run(parse_job(values)), Part(0, 3)) == {"made": 1, "up_to_date": 0, "waiting": 0}
    return values


def part(values: Values, number: int, total: int) -> tuple[dict[str, int], list[str]]:
    progress = Recorder()
    return execute_part(Run(parse_job(values), progress), Part(number, total)), progress.made


def results(values: Values) -> dict[str, bytes]:
    return content(Path(values["out"]))


def test_parts_in_one_folder_and_their_join_are_the_whole_run_to_the_byte(
    whole: Values, first: Values, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(first["out"], out)
    mine = changed(first, out=str(out))
    made: list[str] = []
    for number in (3, 1, 2):  # in any order
        counts, own = part(mine, number, 3)
        assert counts["made"] == len(own) > 0
        made += own
    again = [part(mine, number, 3) for number in (1, 2, 3)]  # what waited for shadows of other parts
    assert [counts["waiting"] for counts, _ in again] == [0, 0, 0]
    made += [name for _, own in again for name in own]
    assert len(set(made)) == len(made)
    assert {name.split("/")[0] for name in made} == {"models", "measures", "shadows", "tokens", "extraction"}
    joined = Recorder()
    execute(Run(parse_job(mine), joined), "audit")
    assert not {name.split("/")[0] for name in joined.made} & {"models", "measures", "shadows", "tokens"}
    assert results(mine) == results(whole)


def test_parts_in_folders_of_their_own_are_joined_by_copying_their_artefacts(
    whole: Values, first: Values, tmp_path: Path
) -> None:
    for number in (1, 2):
        shutil.copytree(first["out"], tmp_path / f"machine-{number}")
        part(changed(first, out=str(tmp_path / f"machine-{number}")), number, 2)
    joined = tmp_path / "machine-1"
    shutil.copytree(tmp_path / "machine-2", joined, dirs_exist_ok=True)
    found, wanted = results(changed(first, out=str(joined))), results(whole)
    assert {name: data for name, data in wanted.items() if name in found} == found
    missing = {name.split("/")[0] for name in wanted if name not in found}
    assert missing == {
        "audit",
        "measures",
        "extraction",
        "outcomes.json",
    }  # those of base models, and of the attacked checkpoint
    looking = Run(parse_job(changed(first, out=str(joined)))).read_only_copy()
    look = [look for look in iter_step_states(looking) if look.is_done]
    assert {look.stage.name for look in look} >= {"train", "shadows", "index", "protect"}


def test_each_group_is_of_one_part_and_draws_of_shadows_stay_together(values: Values) -> None:
    run = Run(parse_job(values))
    for total in (1, 2, 3, 7):
        groups = [Part(number, total).groups(run) for number in range(1, total + 1)]
        assert len(frozenset().union(*groups)) == sum(map(len, groups)) == 2 + 4
    assert Part(0, 3).groups(run) == frozenset()


def test_a_part_without_part_0_or_of_another_job_is_refused(first: Values, values: Values, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="split is not done, or was of another job; run part 0/2 first"):
        part(changed(values, out=str(tmp_path / "new")), 1, 2)
    with pytest.raises(ArtifactError, match="run part 0/2 first"):
        part(changed(first, protect__k=4), 1, 2)


@pytest.mark.parametrize("text", ["", "1", "1/0", "0/0", "3/2", "-1/2", "1/2/3", "a/b", "1 / 2", "1.0/2", "٢/٣"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="--part: expected i/N"):
        Part.parse(text)


def test_the_command_says_what_a_part_made_and_two_of_the_same_do_not_meet(
    first: Values, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(first["out"], out)
    job = changed(first, out=str(out), audit__shadow=None, extraction=None)
    assert command("run", out, "--part", "1/1", "--until", "train") == 2
    assert command("run", out, "--part", "2/1") == 2
    capfd.readouterr()
    run = Run(parse_job(job))
    run.prepare_folder()
    (out / "job.json").unlink()
    run.keep_job()
    (out / "models" / "toy").mkdir(parents=True)
    with locked(out / "models" / "toy" / "clm"), pytest.raises(InUseError):
        part(job, 1, 2)
    assert command("run", out, "--part", "1/2", "--json", "-q") == 0
    assert json.loads(capfd.readouterr().out) == {"part": "1/2", "made": 2, "up_to_date": 0, "waiting": 0}
    assert command("run", out, "--part", "1/2", "--json", "-q") == 0
    assert json.loads(capfd.readouterr().out) == {"part": "1/2", "made": 0, "up_to_date": 2, "waiting": 0}
