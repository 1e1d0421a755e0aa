"""A job that asks for probes: members beside held-out people, in the evidence and on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from reticent.config import parse_job
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.errors import PolicyError
from reticent.job import Run
from reticent.probe_stage import table_of

pytestmark = pytest.mark.usefixtures("one_thread")


def job_values(folder: Path, **probe: Any) -> dict[str, Any]:
    hospital = folder / "hospital"
    return {
        "out": str(folder / "run"),
        "corpus": {"source": str(hospital / "documents"), "spans": "spans"},
        "split": {"heldout": 0.5},
        "detect": {"detectors": ["gold", "records"], "records": str(hospital / "records.parquet")},
        "model": [{"name": "m", "objective": "clm", "recipes": ["ppclm"],
                   "foundation": {"kind": "gpt2", "text": str(hospital / "public"), "vocab_size": 400, "num_layers": 1,
                                  "hidden_size": 16, "num_heads": 2, "num_epochs": 1}}],
        "train": {"num_epochs": 1, "window_length": 128},
        "audit": {"num_bootstrap": 100, "attacks": ["loss"]},
        "probe": {"targets": ["zip", "phone"], "levels": ["twin"], **probe},
    }  # fmt: skip


def test_a_job_with_probes_shows_members_beside_heldout_people(tmp_path: Path) -> None:
    (tmp_path / "hospital").mkdir()
    synthesize(tmp_path / "hospital", SynthConfig(num_individuals=24, words_per_document=30, public_documents=20,
                                                  documents_per_individual=1.0, languages=("en",)))  # fmt: skip
    run = Run(parse_job(job_values(tmp_path, longest="fit")))
    run.execute()
    section = run.evidence["probe"]
    assert [model["name"] for model in section["models"]] == ["base", "ppclm"]
    people = run.evidence["corpus"]["num_individuals"]
    for model in section["models"]:
        for row in model["results"]:
            assert (row["n"], row["heldout"]["n"]) == (people["members"], people["heldout"])
    page = (tmp_path / "run" / "report" / "report.html").read_text()
    assert "Probes with people’s own data" in page
    shown = page + (tmp_path / "run" / "report" / "report.json").read_text()
    records = pq.read_table(tmp_path / "hospital" / "records.parquet")
    assert not [item for name in ("phone", "email", "last_name") for item in records[name].to_pylist() if item in shown]
    assert json.loads((tmp_path / "run" / "report" / "report.json").read_text())["probe"]["models"]


def test_probes_need_a_table(tmp_path: Path) -> None:
    values = job_values(tmp_path)
    values["detect"] = {"detectors": ["gold"]}
    with pytest.raises(PolicyError, match=r"probe\.subjects"):
        table_of(parse_job(values))
