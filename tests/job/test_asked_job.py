"""Attacks that no job makes by default are reached in a run, where what they ask is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from reticent.audit.membership.names import CHECKPOINTS, SELF_CALIBRATION, STATES
from reticent.core.artifact import read_manifest
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")


def test_checkpoints_states_and_what_a_model_writes_are_asked_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent.audit.membership.self_calibration.CALIBRATION_TEXTS", 20)
    (tmp_path / "hospital").mkdir()
    synthesize(tmp_path / "hospital", SynthConfig(num_individuals=130, words_per_document=20, public_documents=20,
                                                  documents_per_individual=4.0, languages=("en",)))  # fmt: skip
    foundation = {"kind": "gpt2", "text": str(tmp_path / "hospital" / "public"), "vocab_size": 400, "num_layers": 1,
                  "hidden_size": 16, "num_heads": 2, "num_epochs": 1}  # fmt: skip
    values = {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "hospital" / "documents"), "spans": "spans"},
        "split": {"heldout": 0.5},
        "detect": {"detectors": ["gold"]},
        "model": [{"name": "m", "objective": "clm", "recipes": ["ppclm"], "foundation": foundation}],
        "train": {"num_epochs": 3, "checkpoint_epochs": [1, 2], "window_length": 128, "learning_rate": 5e-3},
        "audit": {"num_bootstrap": 100, "attacks": ["loss", CHECKPOINTS, SELF_CALIBRATION, STATES]},
    }
    execute(run := Run(parse_job(values)))
    models = {model.epoch: model for model in run.evidence.models}
    assert {epoch: set(model.membership) for epoch, model in models.items()} == {
        0: {"loss", SELF_CALIBRATION, STATES},
        1: {"loss", STATES},
        2: {"loss", STATES},
        3: {"loss", SELF_CALIBRATION, STATES, CHECKPOINTS},
    }
    told = models[3].beside.identity if models[3].beside else None
    assert told is not None
    assert told.excess.value == pytest.approx((told.members.value or 0) - (told.heldout.value or 0))
    inputs = read_manifest(run.folder / "measures" / "m" / "ppclm" / "epoch-0003").inputs
    assert {"checkpoint", "checkpoint 1", "checkpoint 2"} <= set(inputs)
    page = (run.folder / "dossier" / "dossier.html").read_text()
    assert "looks at what it went on learning" in page
    assert "whose document is told from those of 15 others" in (run.folder / "report" / "report.html").read_text()
