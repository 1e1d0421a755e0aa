"""The demo at toy size: the whole job from documents to report, run again, and what its outputs may not hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

import reticent.job.demo
from reticent.core.artifact import read_manifest
from reticent.job.demo import demo_job, run_demo
from reticent.job.run import Run


def toy_job(out: Path, seed: int) -> dict[str, Any]:
    job = demo_job(out, seed)
    for model in job["model"]:
        model["foundation"] |= {"num_epochs": 1, "vocab_size": 800, "hidden_size": 16, "num_layers": 1, "num_heads": 2}
        model.pop("train", None)
    job["train"] |= {"num_epochs": 2, "checkpoint_epochs": [1, 2]}
    job["audit"]["num_bootstrap"] = 100
    return job


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
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


def test_a_second_run_trains_nothing(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.folder.rglob("*") if p.is_file() and p.name != "job.json"}
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
    shared += [finished.folder / "dossier" / name for name in ("dossier.html", "dossier.fr.html", "evidence.json")]
    shared += sorted(finished.folder.rglob("manifest.json")) + sorted(finished.folder.rglob("*.jsonl"))
    assert len(shared) > 15
    patterns = pl.Series(sorted(secrets))  # looked for at once; what stands inside a longer word is none
    for path in shared:
        text = path.read_text()
        inside = pl.Series([text]).str.extract_many(patterns.implode(), overlapping=True)[0].unique()
        found = [name for name in inside if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
        assert found == [], f"{path.name}: {len(found)} identifiers of up to {max(map(len, found))} characters"


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
