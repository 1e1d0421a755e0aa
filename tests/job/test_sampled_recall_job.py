"""A job whose documents annotators read: the report shows their number while the spans are those measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fixtures.figures import leave_out_figures
from fixtures.jobs import Recorder
from fixtures.models import toy_model, toy_tokenizer

from reticent.core.progress import Progress
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.annotate.command import evaluate_sample, sample_documents
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

pytestmark = [pytest.mark.usefixtures("one_thread", "without_figures"), pytest.mark.heavy]
QUIET = Progress(quiet=True)


def job_values(folder: Path) -> dict[str, Any]:
    return {
        "out": str(folder / "run"),
        "corpus": {"source": str(folder / "hospital" / "documents"), "spans": "spans"},
        "detect": {"detectors": ["gold", "rules"]},
        "split": {"heldout": 0.3},
        "model": [{"name": "toy", "base": str(folder / "base"), "objective": "mlm", "recipes": ["ppmlm"]}],
        "train": {"num_epochs": 1, "window_length": 64, "batch_size": 8, "device": "cpu"},
        "audit": {"num_bootstrap": 100, "attacks": ["loss"]},
        "canaries": {"num": 12, "arms": ["protected", "missed"], "num_references": 8, "seed": 3},
    }


def gold_annotation(folder: Path, source: Path, out: Path) -> Path:
    """What an annotator saves who marks exactly the gold spans."""
    import polars as pl

    documents = pl.read_parquet(source / "*.parquet")
    gold = dict(zip(documents["text"], documents["spans"].to_list(), strict=True))
    page = (folder / "annotate.html").read_text(encoding="utf-8")
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    content = json.loads(found[1])
    for document in content["documents"]:
        # The text ends where a canary was planted, and so it is the one that was given.
        spans = gold[document.pop("text").rstrip()] if document["text"] not in gold else gold[document.pop("text")]
        document |= {"reviewed": True, "spans": spans}
    out.write_text(json.dumps(content))
    return out


def test_the_number_that_annotators_give_stands_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_figures(monkeypatch)
    (tmp_path / "hospital").mkdir()
    config = SynthConfig(num_individuals=60, words_per_document=20, documents_per_individual=1.0, languages=("en",))
    synthesize(tmp_path / "hospital", config)
    toy_model("bert", max_length=64).save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "tokenizer.json").write_text(toy_tokenizer("bert"))
    job = parse_job(job_values(tmp_path))
    assert execute(Run(job), "report") == tmp_path / "run"
    report = tmp_path / "run" / "report"
    assert "sampled_recall" not in json.loads((report / "report.json").read_text())

    sample_documents(job, tmp_path / "out", 40, seed=0, by_disagreement=True, progress=QUIET)
    saved = gold_annotation(tmp_path / "out", tmp_path / "hospital" / "documents", tmp_path / "saved.json")
    measured = evaluate_sample(job, [saved], QUIET)
    assert measured.overall.recall.value == 1.0  # the detector gold knows
    assert measured.overall.marked is not None
    assert measured.overall.marked > 40

    recorder = Recorder()
    execute(Run(job, recorder), "report")
    assert recorder.made == ["audit", "report", "dossier"]
    shown = json.loads((report / "report.json").read_text())["sampled_recall"]
    assert shown["documents"] == 40
    assert shown["overall"]["unprotected"]["value"] == 0.0
    assert "individuals_missed" not in shown["overall"] or shown["overall"]["individuals_missed"] is None
    assert "Direct identifiers that are missed" in (report / "report.html").read_text()

    # With other spans it is another number, which nobody has measured.
    other = parse_job({**job_values(tmp_path), "detect": {"detectors": ["rules"]}})
    execute(Run(other), "report")
    assert "sampled_recall" not in json.loads((report / "report.json").read_text())
    assert (evaluate_sample(other, [saved], QUIET).overall.recall.value or 0) < 1
