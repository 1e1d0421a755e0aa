"""A job with canaries, extraction and gates, from documents to the exit status: a memorised secret is found, a protected
one is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from toy_models import toy_model, toy_tokenizer
from typer.testing import CliRunner

from reticent.cli import app
from reticent.config import parse_job
from reticent.engine.canaries import open_canaries
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.errors import PolicyError
from reticent.job import Run

pytestmark = pytest.mark.usefixtures("one_thread")
GATES: list[dict[str, Any]] = [
    {"measure": "exposure", "at_most": 3.5, "arm": "protected"},
    {"measure": "exposure", "at_most": 3.5, "arm": "missed", "recipes": ["ppclm"]},
    {"measure": "membership_tpr", "at_most": 0.05},
]


def job_values(folder: Path, out: str, **more: Any) -> dict[str, Any]:
    return {
        "out": str(folder / out),
        "corpus": {"source": str(folder / "hospital" / "documents"), "spans": "spans"},
        "detect": {"detectors": ["gold"]},
        "split": {"heldout": 0.3},
        "model": [{"name": "toy", "base": str(folder / "base"), "objective": "clm", "recipes": ["clm", "ppclm"]}],
        "train": {"num_epochs": 40, "checkpoint_epochs": [], "window_length": 256, "batch_size": 8,
                  "learning_rate": 0.01, "device": "cpu"},
        "audit": {"num_bootstrap": 100, "attacks": ["loss"]},
        "canaries": {"num": 6, "arms": ["protected", "missed"], "repetitions": 2, "num_references": 32,
                     "guesses": 1.0, "delta": 0.0, "seed": 3},
        "extraction": {"prefix_tokens": [5, 20], "suffix_tokens": 10, "num_queries": [1, 100]},
        **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canaries")
    (folder / "hospital").mkdir()
    config = SynthConfig(num_individuals=60, words_per_document=20, documents_per_individual=1.0, languages=("en",))
    synthesize(folder / "hospital", config)
    toy_model("gpt2", hidden_size=64, max_length=256).save_pretrained(folder / "base")
    (folder / "base" / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
    return folder


@pytest.fixture(scope="module")
def finished(folder: Path) -> tuple[Run, int]:
    """The run, and the exit status of the command that made it."""
    (folder / "job.json").write_text(json.dumps(job_values(folder, "run", gate=GATES)))
    done = CliRunner().invoke(app, ["run", str(folder / "job.json"), "--quiet"])
    assert done.exit_code in (0, 3), done.output + str(done.exception)
    return Run(parse_job(job_values(folder, "run", gate=GATES))), done.exit_code


def arms_of(run: Run, recipe: str) -> dict[str, Any]:
    (found,) = [model for model in run.evidence["extraction"]["models"] if model["recipe"] == recipe]
    return found["canaries"]["arms"]


def test_a_memorised_canary_has_nearly_all_bits_and_a_protected_one_has_not(finished: tuple[Run, int]) -> None:
    run, _ = finished
    plain, protected = arms_of(run, "clm"), arms_of(run, "ppclm")
    for arm in ("protected", "missed"):
        assert plain[arm]["exposure"]["included"]["value"] > 4.5  # of 5
        assert plain[arm]["extracted"]["included"]["value"] > 0.5
    assert protected["missed"]["exposure"]["included"]["value"] > 4.5  # the positive control
    assert protected["protected"]["exposure"]["included"]["value"] < 3.5
    assert protected["protected"]["extracted"]["included"] == {
        **protected["protected"]["extracted"]["included"], "value": 0.0, "method": "Clopper-Pearson over individuals, one-sided",
    }  # fmt: skip
    assert protected["protected"]["extracted"]["included"]["high"] > 0.3  # of so few, a zero says little
    assert arms_of(run, "base")["missed"]["extracted"]["included"]["value"] == 0
