"""The demo at toy size: the whole job from documents to report and dossier, run again, and what its outputs may not
hold; what a later dossier does to an earlier one, and a model that leaves.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml
from fixtures.command import command
from fixtures.jobs import AGAIN, Recorder

import reticent.job.demo
from reticent.core.artifact import fingerprint, read_manifest
from reticent.ext.dossier.job import check_dossier
from reticent.ext.dossier.seal import dossier_digest
from reticent.job.config import load_kept_job, parse_job
from reticent.job.demo import demo_job, run_demo
from reticent.job.pipeline import execute
from reticent.job.run import Run


def toy_job(out: Path, seed: int, *, tiny: bool = False) -> dict[str, Any]:
    job = demo_job(out, seed, tiny=tiny)
    for model in job["model"]:
        model["foundation"] |= {"num_epochs": 1, "vocab_size": 800, "hidden_size": 16, "num_layers": 1, "num_heads": 2}
        model.pop("train", None)
    job["train"] |= {"num_epochs": 2, "checkpoint_epochs": [1, 2]}
    job["audit"]["num_bootstrap"] = 100
    job["dossier"] = {"pdf": "off", "languages": ["fr"], "institution": "Hospital of X", "licence": "other"}
    return job


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, without_ink: None) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reticent.job.demo, "demo_job", toy_job)
        patch.setattr(reticent.job.demo, "PUBLIC_DOCUMENTS", 60)
        return run_demo(tmp_path_factory.mktemp("demo") / "run", num_individuals=24)


def test_every_recipe_is_trained_attacked_and_reported(finished: Run) -> None:
    trained = {(m.recipe, m.epoch) for m in finished.evidence.models}
    assert trained == {("base", 0)} | {(r, e) for r in ("mlm", "ppmlm", "clm", "clma", "ppclm") for e in (1, 2)}
    assert (finished.folder / "report" / "report.html").stat().st_size > 50_000


def test_protected_recipes_checked_every_target_and_had_no_protected_one(finished: Run) -> None:
    for recipe, model in (("ppmlm", "bert"), ("ppclm", "gpt2")):
        ledger = json.loads((finished.folder / "models" / model / recipe / "ledger.json").read_text())
        assert ledger["targets"] > 0
        assert ledger["protected"] > 0
        assert ledger["violations"] == 0
    assert json.loads((finished.folder / "models/gpt2/clm/ledger.json").read_text())["protected"] == 0


def test_the_end_of_a_text_is_a_target_of_causal_models_and_an_attack_of_its_own(finished: Run) -> None:
    folder = finished.folder
    for name, special, attacked in (("gpt2/ppclm", True, True), ("bert/ppmlm", False, False)):
        ledger = json.loads((folder / "models" / name / "ledger.json").read_text())
        assert ("end" in ledger["special"]) == special
        assert ("end_of_text" in read_manifest(folder / "models" / name).config) == special
        measured = [m for m in finished.evidence.models if f"{m.model}/{m.recipe}" == name]
        assert measured
        assert all(("end_of_text" in m.membership) == attacked for m in measured)
    assert "Fin du texte" in (folder / "report" / "report.html").read_text()


def test_a_second_run_trains_nothing(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.folder.rglob("*") if p.is_file() and p.name not in AGAIN}
    assert len(before) > 50
    monkeypatch.setattr(reticent.job.demo, "demo_job", toy_job)
    monkeypatch.setattr(reticent.job.demo, "PUBLIC_DOCUMENTS", 60)
    run_demo(finished.folder, num_individuals=24)
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_no_identifier_of_the_hospital_stands_in_what_leaves_the_engine(finished: Run) -> None:
    """Every field of every record, and every gold span of every document, looked for in reports, manifests and logs."""
    hospital = finished.folder / "hospital"
    records = pq.read_table(hospital / "records.parquet")
    secrets = {str(v) for name in records.column_names for v in records.column(name).to_pylist() if v is not None}
    documents = pq.read_table(hospital / "documents").to_pylist()
    secrets |= {d["text"][s["start"] : s["end"]] for d in documents for s in d["spans"]}
    secrets = {s for s in secrets if len(s) >= 5 and not s.isdigit()} | {s for s in secrets if len(s) >= 8}
    assert len(secrets) > 100
    shared = [finished.folder / "report" / name for name in ("report.html", "report.json")]
    shared += [finished.folder / "audit" / "audit.json", finished.folder / "job.json"]
    shared += [finished.folder / "dossier" / name for name in ("dossier.html", "evidence.json")]
    shared += sorted(finished.folder.rglob("manifest.json")) + sorted(finished.folder.rglob("*.jsonl"))
    assert len(shared) > 15
    patterns = pl.Series(sorted(secrets))  # looked for at once; what stands inside a longer word is none
    for path in shared:
        text = path.read_text()
        inside = pl.Series([text]).str.extract_many(patterns.implode(), overlapping=True)[0].unique()
        found = [name for name in inside if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
        assert found == [], f"{path.name}: {len(found)} identifiers of up to {max(map(len, found))} characters"


def test_the_tiny_demo_trains_one_model_with_and_without_protection(tmp_path: Path) -> None:
    job = parse_job(demo_job(tmp_path, 0, tiny=True))
    assert [list(model.recipes) for model in job.model] == [["clm", "ppclm"]]
    assert job.training(job.model[0]).num_epochs < parse_job(demo_job(tmp_path, 0)).train.num_epochs


def test_model_folders_hold_models_and_nothing_else(finished: Run) -> None:
    folders = sorted((finished.folder / "models").glob("*/*/epoch-*"))
    assert len(folders) == 10
    allowed = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    for folder in folders:
        assert {p.name for p in folder.iterdir()} - {"special_tokens_map.json"} <= allowed | {"README.md"}


def test_everything_is_private(finished: Run) -> None:
    modes = {p.stat().st_mode & 0o077 for p in [finished.folder, *finished.folder.rglob("*")]}
    assert modes == {0}


def test_manifests_say_what_they_were_made_from(finished: Run) -> None:
    manifest = read_manifest(finished.folder / "models/gpt2/ppclm")
    assert manifest.counts["violations"] == 0
    assert manifest.inputs.keys() >= {"tokens"}


# ------------------------------------------------------------------ its dossier


@pytest.fixture
def run(finished: Run, tmp_path: Path) -> Path:
    """The same, moved: nothing in it leads to where it was made."""
    return Path(shutil.copytree(finished.folder, tmp_path / "moved"))


def evidence(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "dossier" / "evidence.json").read_text())
    return found


def test_a_run_ends_with_a_dossier_that_holds_also_where_the_run_was_moved(run: Path) -> None:
    names = {file.name for file in (run / "dossier").iterdir()}
    assert names == {"dossier.html", "evidence.json", "SHA256SUMS", "manifest.json"}
    assert 'lang="fr"' in (run / "dossier" / "dossier.html").read_text()
    checked = check_dossier(run / "dossier")
    assert checked.faults == []
    assert sum("as tested" in line for line in checked.holds) == 10
    assert any("are those of the run" in line for line in checked.holds)


def test_digests_of_what_stays_inside_are_keyed_and_no_plain_one_leaves(run: Path) -> None:
    shown = (run / "dossier" / "evidence.json").read_text() + (run / "dossier" / "manifest.json").read_text()
    digests = evidence(run)["digests"]
    assert set(digests["protection"]) >= {"tokens/bert/train", "tokens/bert/audit"}
    for name in ("split", "spans", "index", "audit", "report", *digests["protection"]):
        assert fingerprint(run / name) not in shown, name
    assert (run / "dossier.key").read_bytes().hex() not in shown
    assert (run / "dossier.key").stat().st_mode & 0o777 == 0o600
    assert "seed" not in evidence(run)["audit"]["settings"]


def test_a_result_of_the_run_that_was_changed_is_found(run: Path) -> None:
    (run / "tokens" / "bert" / "train" / "manifest.json").unlink()
    weights = run / "models" / "bert" / "ppmlm" / "epoch-0002" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    faults = check_dossier(run / "dossier").faults
    assert faults == [f"{weights.parent}: not the files of the model tested there"]
    shutil.rmtree(weights.parent)
    assert any(
        fault.startswith("tokens/bert/train: of the run is not") for fault in check_dossier(run / "dossier").faults
    )


def test_another_dossier_names_the_one_that_it_replaces_which_is_kept(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = dossier_digest(run / "dossier")
    assert (
        command("dossier", run, "--set", "dossier.languages=['en']", "--out", run.parent / "sent", "-q", "--json") == 0
    )
    made = json.loads(capfd.readouterr().out)
    assert made == {"folder": str(run.parent / "sent"), "digest": dossier_digest(run / "dossier")}
    assert made["digest"] != before == evidence(run)["replaces"]
    assert dossier_digest(run / "replaced-dossiers" / before[:16]) == before
    assert command("dossier", "verify", run / "replaced-dossiers" / before[:16]) == 4
    page = (run / "dossier" / "dossier.html").read_text()
    assert f"replaces the one whose digest begins with {before[:16]}." in page
    assert {file.name for file in (run.parent / "sent").iterdir()} == {"dossier.html", "evidence.json", "SHA256SUMS"}
    assert command("dossier", "verify", run.parent / "sent") == 4
    # The same again makes nothing, and the settings are the run's own from now on.
    recorder = Recorder()
    execute(Run(load_kept_job(run / "job.json"), recorder))
    assert recorder.made == []
    assert command("dossier", run, "--out", run.parent / "sent", "--set", "dossier.languages=['fr']", "-q") == 1
    assert evidence(run)["replaces"] == before, "it is refused before the work"
    assert "not empty" in capfd.readouterr().err


def test_a_page_that_was_changed_fails_the_command(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (run / "dossier" / "dossier.html").write_text("all is well")
    assert command("dossier", "verify", run / "dossier", "--json") == 1
    assert json.loads(capfd.readouterr().out)["faults"] == ["dossier.html: is not the file that was listed"]


def test_a_model_leaves_with_its_card_and_only_where_the_verdict_allows_it(
    run: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = run.parent / "exported"
    assert command("dossier", "export", run, "bert", "ppmlm", "--out", out) == 3
    assert "--despite-verdict" in capfd.readouterr().err
    assert not out.exists()
    assert command("dossier", "export", run, "bert", "ppmlm", "--epoch", "1", "--out", out) == 3, "it has no verdict"
    assert command("dossier", "export", run, "bert", "ppmlm", "--out", out, "--despite-verdict", "a demo") == 0
    assert command("dossier", "verify", run / "dossier", "--model", out) == 4
    card = (out / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert (head["license"], head["pipeline_tag"]) == ("other", "fill-mask")
    assert "base_model" not in head
    assert "Base model: a small one, pre-trained in the same run" in card
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
    with monkeypatch.context() as broken:
        broken.setattr("reticent.ext.dossier.export.write_card", Mock(side_effect=KeyboardInterrupt))
        assert (
            command("dossier", "export", run, "bert", "ppmlm", "--out", run.parent / "x", "--despite-verdict", "a demo")
            == 130
        )
    assert not (run.parent / "x").exists(), "a model must not lie there without its verdict"
    (run / "audit" / "manifest.json").unlink()  # the audit is another one now
    again = ("dossier", "export", run, "bert", "ppmlm", "--out", run.parent / "again", "--despite-verdict", "a demo")
    assert command(*again) == 1
    assert "is of an earlier audit of this run" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("other", "ppmlm"), 2, "the run has no model 'other' with the recipe 'ppmlm'"),
        (("bert", "clm"), 2, "the run has no model 'bert' with the recipe 'clm'"),
        (("bert", "ppmlm", "--epoch", "7"), 2, "there are checkpoints of 1, 2"),
        (("bert", "ppmlm", "--training", "2"), 2, "expected a number from 1 to 1, got 2"),
    ],
)
def test_a_model_that_is_not_there_is_not_exported(
    finished: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, said: str
) -> None:
    assert command("dossier", "export", finished.folder, *arguments, "--out", tmp_path / "out") == status
    assert said in capfd.readouterr().err


def test_a_run_without_a_report_has_no_dossier(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "report")
    assert command("dossier", run) == 1
    assert "report" in capfd.readouterr().err
    assert command("dossier", "verify", run) == 1
    assert "no dossier here (no readable SHA256SUMS); `reticent dossier RUN`" in capfd.readouterr().err
