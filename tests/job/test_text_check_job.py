"""Tokens of a run are held to their text: a sample where they are made, all where that is asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fixtures.command import command
from fixtures.jobs import changed, make_hospital, run, values_of
from fixtures.models import write_toy_model

from reticent import _rust
from reticent.core.artifact import read_manifest
from reticent.core.errors import ArtifactError
from reticent.engine.store import open_tokens
from reticent.engine.text_sample import SampledText
from reticent.engine.verify import TextCheck
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.status import job_status
from reticent.job.text_checks import FILE, check_text, text_check_of_flags
from reticent.job.training_tokens import verify_training

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

TRAIN, AUDIT = "tokens/toy/train", "tokens/toy/audit"


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hospital(tmp_path_factory.mktemp("hospital"), 60)


@pytest.fixture(scope="module")
def finished(hospital: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    values = changed(values_of(hospital, folder), model__recipes=["ppmlm", "mlma"])
    run(values)
    return folder


@pytest.fixture
def mine(finished: Path, hospital: Path, tmp_path: Path) -> Run:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    return Run(parse_job(changed(values_of(hospital, folder), model__recipes=["ppmlm", "mlma"])))


def without_gaps(*arguments: Any, **options: Any) -> Any:
    """What a span holds between its words is not protected."""
    begins, outside, _, *others = arguments
    return planes(begins, outside, None, *others, **options)


planes = _rust.planes


def test_protect_holds_a_sample_to_its_text_and_counts_it(mine: Run) -> None:
    for name in (TRAIN, AUDIT):
        check = TextCheck.from_dict(read_manifest(mine.folder / name).counts["text_check"])
        assert check.holds
        assert not check.whole
        assert check.documents > 50
        assert check.direct_characters > 1000
        assert check.indirect_characters > 100
    assert "text_check" not in read_manifest(mine.folder / "tokens/toy/train-pseudonymised").counts
    found = {row["name"]: row.get("text_check") for row in job_status(mine)["artifacts"]}
    assert found[TRAIN]["violations"] == 0
    assert not found[TRAIN]["whole"]
    assert found["tokens/toy/train-pseudonymised"] is found["index"] is None


def test_tokens_with_a_violation_do_not_become_an_artefact(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rust, "planes", without_gaps)
    values = values_of(hospital, tmp_path / "run")
    with pytest.raises(ArtifactError, match=r"tokens: of [\d,]+ documents .* [1-9][\d,]* tokens of direct and 0 of"):
        run(values)
    assert not (tmp_path / "run" / TRAIN).exists()
    monkeypatch.undo()
    assert TRAIN in run(values).made


def test_all_tokens_are_held_to_their_text_and_what_was_rewritten_is_said_not_to_be(mine: Run) -> None:
    found = check_text(mine)
    assert list(found) == [AUDIT, TRAIN, "tokens/toy/train-pseudonymised"]
    assert found.pop("tokens/toy/train-pseudonymised") is None
    for name, check in found.items():
        assert check is not None
        store = open_tokens(mine.folder / name)
        assert check.holds
        assert check.whole
        assert check.unexplained == 0
        assert (check.documents, check.tokens) == (store.num_documents, store.num_tokens)
        assert check.fingerprint == store.flags_fingerprint()
    states = {row["name"]: row for row in job_status(mine)["artifacts"]}
    assert states[TRAIN]["text_check"]["whole"]
    made = (mine.folder / "text-check" / "toy" / "train" / FILE).stat().st_mtime_ns
    assert check_text(Run(mine.job)) == {**found, "tokens/toy/train-pseudonymised": None}
    assert (mine.folder / "text-check" / "toy" / "train" / FILE).stat().st_mtime_ns == made  # not done twice


def test_a_violation_that_the_sample_does_not_see_fails_the_command(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def blind(self: SampledText, *_: Any) -> TextCheck:
        return TextCheck(**{**dict.fromkeys(TextCheck.__dataclass_fields__, 0), "found_in": (), "whole": False})

    monkeypatch.setattr(_rust, "planes", without_gaps)
    monkeypatch.setattr(SampledText, "check", blind)
    folder = tmp_path / "run"
    run(values_of(hospital, folder))
    assert command("protect", folder, "--quiet") == 0
    capfd.readouterr()
    assert command("protect", folder, "--verify", "--quiet") == 1
    assert "tokens of direct and 0 of indirect identifiers could be targets" in capfd.readouterr().err
    assert not list((folder / "text-check").rglob("check.json"))


def test_protect_verify_prints_what_it_found(mine: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("protect", mine.folder, "--verify", "--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{TRAIN}: ") and line.endswith("0 violations, 0 mismatches") for line in lines)
    assert any(line.startswith("tokens/toy/train-pseudonymised: not checked") for line in lines)
    command("protect", mine.folder, "--verify", "--quiet", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found[TRAIN]["direct_violations"] == found[TRAIN]["indirect_violations"] == 0
    command("status", mine.folder)
    assert f"{TRAIN}: all " in capsys.readouterr().out


def test_flags_say_how_far_they_were_checked(mine: Run) -> None:
    store = open_tokens(mine.folder / TRAIN)
    said, holds = text_check_of_flags(mine, TRAIN, store)
    assert said.endswith(f"of {store.num_documents:,} documents: 0 violations")
    assert holds
    check_text(mine)
    said, holds = text_check_of_flags(mine, TRAIN, store)
    number = f"{store.num_documents:,}"
    assert said == f"flags checked against the text of {number} of {number} documents: 0 violations"
    flags = store.flags.copy()
    flags[0] ^= 1
    said, holds = text_check_of_flags(mine, TRAIN, store.with_columns(flags=flags))
    assert "not those that were checked" in said
    assert not holds
    said, holds = text_check_of_flags(mine, "tokens/toy/train-pseudonymised", store)
    assert "rewritten" in said
    assert holds


def test_a_ledger_says_whether_its_flags_were_checked_and_fails_on_others(hospital: Path, tmp_path: Path) -> None:
    base, folder = write_toy_model(tmp_path / "bert"), tmp_path / "run"
    values = changed(values_of(hospital, folder), model__base=str(base), model__recipes=["ppmlm", "mlm"])
    values["train"] = {"num_epochs": 1, "checkpoint_epochs": [1], "window_length": 32, "batch_size": 8}
    mine = Run(parse_job(values))
    execute(mine, "train")
    ledger = folder / "models" / "toy" / "ppmlm" / "ledger.json"
    check_text(mine)
    verdict = verify_training(mine, "toy", "ppmlm", ledger)
    assert verdict.holds
    assert verdict.flags.startswith("flags checked against the text of ")
    plain = verify_training(mine, "toy", "mlm", folder / "models" / "toy" / "mlm" / "ledger.json")
    assert plain.flags == "the recipe protects nothing by flags"
    shutil.rmtree(folder / "text-check" / "toy" / "train")
    shutil.copytree(folder / "text-check" / "toy" / "audit", folder / "text-check" / "toy" / "train")
    verdict = verify_training(mine, "toy", "ppmlm", ledger)
    assert any("not those that were checked" in line for line in verdict.mismatches)


def checks(folder: Path) -> list[dict[str, Any]]:
    return [read_manifest(folder / name).counts["text_check"] for name in (TRAIN, AUDIT)]


def test_another_protection_is_checked_against_the_text_as_a_run_from_nothing_is(
    hospital: Path, tmp_path: Path
) -> None:
    values = values_of(hospital, tmp_path / "run")
    run(values)
    for protection in ({"k": 5}, {"k": 40}, {"k": 2, "n": 2, "policy": "cover"}, {"k": 4, "n": 1}):
        another = {f"protect__{name}": value for name, value in protection.items()}
        run(changed(values, **another))
        fresh = tmp_path / "-".join(map(str, protection.values()))
        run(changed(values, out=str(fresh), **another))
        assert checks(tmp_path / "run") == checks(fresh)


def test_a_violation_by_another_protection_is_found(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = values_of(hospital, tmp_path / "run")
    run(values)
    monkeypatch.setattr(_rust, "planes", without_gaps)
    with pytest.raises(ArtifactError, match=r"tokens: of [\d,]+ documents .* [1-9][\d,]* tokens of direct and 0 of"):
        run(changed(values, protect__k=5))


def test_nothing_of_a_sample_is_kept_and_what_older_versions_kept_goes(hospital: Path, tmp_path: Path) -> None:
    values = values_of(hospital, tmp_path / "run")
    run(values)
    for name in ("text-samples", "supports"):
        assert not (tmp_path / "run" / name).exists()
        (tmp_path / "run" / name / "toy").mkdir(parents=True)
    run(changed(values, protect__k=5))
    assert not any((tmp_path / "run" / name).exists() for name in ("text-samples", "supports"))
