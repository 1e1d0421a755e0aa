"""A job with canaries, extraction and gates, from documents to the page and the exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.models import toy_model, toy_tokenizer
from typer.testing import CliRunner

from reticent.audit.evidence.json_form import to_json
from reticent.cli import app
from reticent.core.artifact import read_manifest
from reticent.core.errors import PolicyError
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.checks import require_audit
from reticent.job.config import parse_job
from reticent.job.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")
GATES: list[dict[str, Any]] = [
    {"measure": "membership_auc", "at_most": 0.0},  # no attack is that bad
    {"measure": "exposure", "at_most": 99.0},
    {"measure": "extraction", "at_most": 1.0},
    {"measure": "membership_tpr", "at_most": 0.05},
]


def job_values(folder: Path, out: str, **more: Any) -> dict[str, Any]:
    return {
        "out": str(folder / out),
        "corpus": {"source": str(folder / "hospital" / "documents"), "spans": "spans"},
        "detect": {"detectors": ["gold"]},
        "split": {"heldout": 0.3},
        "model": [{"name": "toy", "base": str(folder / "base"), "objective": "clm", "recipes": ["ppclm"]}],
        "train": {"num_epochs": 1, "window_length": 256, "batch_size": 8, "device": "cpu"},
        "audit": {"num_bootstrap": 100, "attacks": ["loss"]},
        "canaries": {"num": 12, "arms": ["protected", "missed"], "num_references": 8, "seed": 3},
        "extraction": {"prefix_tokens": [5, 20], "suffix_tokens": 10, "num_queries": [1, 100]},
        **more,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canaries")
    (folder / "hospital").mkdir()
    config = SynthConfig(num_individuals=70, words_per_document=20, documents_per_individual=1.0, languages=("en",))
    synthesize(folder / "hospital", config)
    toy_model("gpt2", max_length=256).save_pretrained(folder / "base")
    (folder / "base" / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
    return folder


def command(folder: Path, *words: str) -> int:
    done = CliRunner().invoke(app, [*words, "--quiet"])
    assert done.exit_code in (0, 3), done.output + str(done.exception)
    return done.exit_code


def test_a_failed_gate_exits_with_3_after_the_report_is_written(folder: Path) -> None:
    values = job_values(folder, "run", gate=GATES)
    (folder / "job.json").write_text(json.dumps(values))
    assert command(folder, "run", str(folder / "job.json")) == 3
    evidence = to_json(Run(parse_job(values)).evidence)
    verdict = evidence["verdict"]
    assert verdict["fixed_before_training"]
    # Areas are judged twice: as they are, and over their control.
    assert list(dict.fromkeys((row["measure"], row["outcome"]) for row in verdict["results"])) == [
        ("membership_auc", "fail"),
        ("exposure", "no power"),
        ("extraction", "no power"),
        ("membership_tpr", "no power"),
    ]
    found = {model["recipe"]: model for model in evidence["extraction"]["models"]}
    assert set(found) == {"base", "ppclm"}
    for model in found.values():
        assert set(model["canaries"]["arms"]) == {"protected", "missed"}
        assert model["canaries"]["arms"]["missed"]["one_run"]["num_canaries"] == 12
        for row in model["passages"]["rates"]:
            for side in ("members", "heldout"):
                assert row[side]["value"] is None or (row[side]["high"] > 0 and row[side]["n"] > 0)
    page = (folder / "run" / "report" / "report.html").read_text()
    assert "Not for release" in page
    assert "Verdict: fail" in page
    assert "Extraction of training text" in page
    published = json.loads((folder / "run" / "report" / "report.json").read_text())
    secrets = (folder / "run" / "canaries" / "canaries.parquet").stat()
    assert secrets.st_mode & 0o777 == 0o600
    assert published["verdict"]["failed"]
    assert published["settings"]["canaries"]["num"] == 12

    # Nothing is made again; a gate that was chosen afterwards decides nothing, and says so.
    before = read_manifest(folder / "run" / "extraction" / "toy" / "ppclm" / "epoch-0001").digest
    (folder / "job.json").write_text(json.dumps({**values, "gate": GATES[3:]}))
    assert command(folder, "run", str(folder / "job.json")) == 0
    assert read_manifest(folder / "run" / "extraction" / "toy" / "ppclm" / "epoch-0001").digest == before
    evidence = to_json(Run(parse_job({**values, "gate": GATES[3:]})).evidence)
    assert not evidence["verdict"]["fixed_before_training"]
    assert evidence["verdict"]["outcome"] == "no power"
    assert "this decides nothing" in (folder / "run" / "report" / "report.html").read_text()
    (folder / "job.json").write_text(json.dumps({**values, "gate": [{**GATES[3], "required": True}]}))
    assert command(folder, "run", str(folder / "job.json")) == 3


def test_the_report_judges_other_gates_by_what_the_audit_measured_and_measures_nothing_again(folder: Path) -> None:
    values = job_values(folder, "judged", canaries=None, extraction=None, gate=GATES[3:])
    (folder / "judged.json").write_text(json.dumps(values))
    assert command(folder, "run", str(folder / "judged.json")) == 0
    run = folder / "judged"
    before = {path: path.stat().st_mtime_ns for name in ("models", "measures") for path in (run / name).rglob("*.json")}
    required = 'gate=[{measure="membership_tpr", at_most=0.5, required=true}]'
    assert command(folder, "report", str(run), "--set", required) == 3
    assert {path: path.stat().st_mtime_ns for path in before} == before
    verdict = json.loads((run / "report" / "report.json").read_text())["verdict"]
    assert [row["required"] for row in verdict["results"]] == [True]
    assert not verdict["fixed_before_training"]
    assert "this decides nothing" in (run / "report" / "report.html").read_text()
    # The gates are the run's own from now on, and what was judged is what a whole run would judge.
    judged = (run / "audit" / "audit.json").read_bytes()
    assert command(folder, "report", str(run)) == 3
    assert command(folder, "audit", str(run)) == 3
    assert (run / "audit" / "audit.json").read_bytes() == judged
    assert command(folder, "report", str(run), "--set", "gate=[]") == 0
    assert "verdict" not in json.loads((run / "report" / "report.json").read_text())


@pytest.mark.parametrize(
    ("gate", "changes", "message"),
    [
        ({"measure": "exposure", "at_most": 2, "arm": "ngram"}, {}, r"needs \[canaries\] with the arm ngram"),
        ({"measure": "epsilon", "at_most": 2}, {"canaries": None}, r"needs \[canaries\] with the arm protected"),
        ({"measure": "extraction", "at_most": 0.1}, {"extraction": None}, r"needs \[extraction\]"),
        ({"measure": "membership_auc", "at_most": 0.6, "attack": "zlib"}, {}, "zlib is not among audit.attacks"),
        ({"measure": "membership_auc", "at_most": 0.6, "recipes": ["pplm"]}, {}, "expected some of ppclm"),
        ({"measure": "extraction", "at_most": 0.1, "part": "direct"}, {}, "a gate of extraction has no part"),
        ({"measure": "membership_auc", "at_most": 0.6, "arm": "missed"}, {}, "a gate of membership_auc has no arm"),
        ({"measure": "excess_leakage", "at_most": 0.1, "attack": "loss"}, {}, "a gate of excess_leakage has no attack"),
    ],
)
def test_a_gate_that_nothing_measures_is_refused_before_anything_starts(
    gate: dict[str, Any], changes: dict[str, Any], message: str, folder: Path
) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_job(job_values(folder, "other", gate=[gate], **changes))


@pytest.mark.parametrize("foundation", [True, False])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extraction": {"prefix_tokens": [10, 200], "suffix_tokens": 56}}, "extraction: a prefix of 200 .* of 56"),
        (
            {"audit": {"generation": {"prefix_tokens": 16, "num_tokens": 240}}},
            "audit.generation: a prefix of 16 .* 240",
        ),
        ({"extraction": {"prefix_tokens": [10, 199], "suffix_tokens": 56}}, None),
        ({"audit": {"generation": {"prefix_tokens": 16, "num_tokens": 239}}}, None),
    ],
)
def test_passages_that_no_model_can_read_are_refused_before_anything_is_trained(
    changes: dict[str, Any], message: str | None, foundation: bool, folder: Path
) -> None:
    values = job_values(folder, "long") | changes
    if foundation:
        model = {key: value for key, value in values["model"][0].items() if key != "base"}
        values["model"] = [model | {"foundation": {"kind": "gpt2", "text": str(folder), "vocab_size": 400}}]
    run = Run(parse_job(values))
    if message is None:
        require_audit(run)
        return
    with pytest.raises(PolicyError, match=f"{message} tokens do not fit into the 256 that model toy reads"):
        require_audit(run)
