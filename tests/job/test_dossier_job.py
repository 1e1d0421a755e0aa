"""The dossier of a whole run: what it names, what it keeps back, what a later one does to it, and models that leave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from fixtures.command import command
from fixtures.jobs import Recorder, make_hospital
from fixtures.models import toy_model, toy_tokenizer

from reticent.audit.dossier.seal import dossier_digest
from reticent.core.artifact import fingerprint
from reticent.job.config import load_kept_job, parse_job
from reticent.job.dossier import check_dossier
from reticent.job.run import Run
from reticent.trainer.export import write_model
from reticent.trainer.models import load_tokenizer
from reticent.trainer.recipes import get_recipe

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a protected model and its twin, one epoch each, whose dossier is in French alone."""
    folder = make_hospital(tmp_path_factory.mktemp("dossier"), 16)
    base = folder / "model"
    write_model(toy_model("bert"), load_tokenizer(toy_tokenizer("bert")), base, recipe=get_recipe("mlm"), epoch=0)
    values: dict[str, Any] = {
        "out": str(folder / "run"),
        "corpus": {"source": str(folder / "documents"), "spans": "spans"},
        "detect": {"detectors": ["gold"]},
        "model": [{"name": "toy", "base": str(base), "objective": "mlm", "recipes": ["mlm", "ppmlm"]}],
        "train": {"num_epochs": 1, "window_length": 32, "device": "cpu"},
        "audit": {"num_bootstrap": 100, "attacks": ["loss"]},
        "dossier": {"pdf": "off", "languages": ["fr"], "institution": "Hospital of X", "licence": "other"},
    }
    return Run(parse_job(values)).execute()


@pytest.fixture
def run(done: Path, tmp_path: Path) -> Path:
    """The same, moved: nothing in it leads to where it was made."""
    return Path(shutil.copytree(done, tmp_path / "moved"))


def evidence(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "dossier" / "evidence.json").read_text())
    return found


def test_a_run_ends_with_a_dossier_that_holds_also_where_the_run_was_moved(run: Path) -> None:
    names = {file.name for file in (run / "dossier").iterdir()}
    assert names == {"dossier.html", "evidence.json", "SHA256SUMS", "manifest.json"}
    assert 'lang="fr"' in (run / "dossier" / "dossier.html").read_text()
    checked = check_dossier(run / "dossier")
    assert checked.faults == []
    assert sum("as tested" in line for line in checked.holds) == 2
    assert any("are those of the run" in line for line in checked.holds)


def test_digests_of_what_stays_inside_are_keyed_and_no_plain_one_leaves(run: Path) -> None:
    shown = (run / "dossier" / "evidence.json").read_text() + (run / "dossier" / "manifest.json").read_text()
    digests = evidence(run)["digests"]
    assert set(digests["protection"]) >= {"tokens/toy/train", "tokens/toy/audit"}
    for name in ("split", "spans", "index", "audit", "report", *digests["protection"]):
        assert fingerprint(run / name) not in shown, name
    assert (run / "dossier.key").read_bytes().hex() not in shown
    assert (run / "dossier.key").stat().st_mode & 0o777 == 0o600
    assert "seed" not in evidence(run)["audit"]["settings"]


def test_a_result_of_the_run_that_was_changed_is_found(run: Path) -> None:
    (run / "tokens" / "toy" / "train" / "manifest.json").unlink()
    weights = run / "models" / "toy" / "ppmlm" / "epoch-0001" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    faults = check_dossier(run / "dossier").faults
    assert faults == [f"{weights.parent}: no model of this dossier has these files"]
    shutil.rmtree(weights.parent)
    assert any(
        fault.startswith("tokens/toy/train: of the run is not") for fault in check_dossier(run / "dossier").faults
    )


def test_another_dossier_names_the_one_that_it_replaces_which_is_kept(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = dossier_digest(run / "dossier")
    assert command("dossier", run, "--language", "en", "--out", run.parent / "sent", "-q", "--json") == 0
    made = json.loads(capfd.readouterr().out)
    assert made == {"folder": str(run.parent / "sent"), "digest": dossier_digest(run / "dossier")}
    assert made["digest"] != before == evidence(run)["replaces"]
    assert dossier_digest(run / "replaced-dossiers" / before[:16]) == before
    page = (run / "dossier" / "dossier.html").read_text()
    assert f"replaces the one with the digest {before[:16]}" in page
    assert {file.name for file in (run.parent / "sent").iterdir()} == {"dossier.html", "evidence.json", "SHA256SUMS"}
    assert command("dossier", "verify", run.parent / "sent") == 0
    # The same again makes nothing, and the settings are the run's own from now on.
    recorder = Recorder()
    Run(load_kept_job(run / "job.json"), recorder).execute()
    assert recorder.made == []
    assert command("dossier", run, "--out", run.parent / "sent", "-q") == 1
    assert "not empty" in capfd.readouterr().err


def test_a_page_that_was_changed_fails_the_command(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (run / "dossier" / "dossier.html").write_text("all is well")
    assert command("dossier", "verify", run / "dossier", "--json") == 1
    assert json.loads(capfd.readouterr().out)["faults"] == ["dossier.html: is not the file that was listed"]


def test_a_model_leaves_with_its_card_and_only_where_the_verdict_allows_it(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = run.parent / "exported"
    assert command("dossier", "export", run, "toy", "ppmlm", "--out", out) == 3
    assert "--despite-verdict" in capfd.readouterr().err
    assert not out.exists()
    assert command("dossier", "export", run, "toy", "ppmlm", "--out", out, "--despite-verdict") == 0
    assert command("dossier", "verify", run / "dossier", "--model", out) == 0
    card = (out / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert (head["base_model"], head["license"], head["pipeline_tag"]) == ("model", "other", "fill-mask")
    (result,) = head["model-index"][0]["results"]
    metrics = {metric["type"]: metric for metric in result["metrics"]}
    assert {"accuracy", "identifiers_not_predicted", "excess_leakage"} <= set(metrics)
    for metric in metrics.values():
        assert metric["args"]["low"] <= metric["value"] <= metric["args"]["high"]
        assert metric["args"]["n"] >= 5
    assert dossier_digest(run / "dossier") in card
    assert "**Verdict: " in card
    assert "nor a word that fewer than 2 people use" in card
    assert "Hospital of X" in card


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("other", "ppmlm"), 2, "the run has no model 'other' with the recipe 'ppmlm'"),
        (("toy", "clm"), 2, "the run has no model 'toy' with the recipe 'clm'"),
        (("toy", "ppmlm", "--epoch", "7"), 2, "there are checkpoints of 1"),
        (("toy", "ppmlm", "--training", "2"), 2, "expected a number from 1 to 1, got 2"),
    ],
)
def test_a_model_that_is_not_there_is_not_exported(
    done: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, said: str
) -> None:
    assert command("dossier", "export", done, *arguments, "--out", tmp_path / "out") == status
    assert said in capfd.readouterr().err


def test_a_run_without_a_report_has_no_dossier(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "report")
    assert command("dossier", run) == 1
    assert "report" in capfd.readouterr().err
    assert command("dossier", "verify", run) == 1
    assert "no dossier here" in capfd.readouterr().err
