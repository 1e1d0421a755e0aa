"""Expected cost of an audit: counts worked by hand from settings and manifests; a step for every artefact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fixtures.models import toy_model, toy_tokenizer

from reticent.audit.evaluate import ModelEntry, audit_models
from reticent.audit.evidence.audit import ModelEvidence
from reticent.audit.evidence.extraction import ExtractedModel
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.core.artifact import FORMATS, read_manifest
from reticent.core.eta import Work
from reticent.core.progress import Progress
from reticent.engine.schema import MEMBERS
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.engine.text_sizes import read_zlib_bytes
from reticent.job.artefact import Measurement, measurements_of
from reticent.job.auditing import (
    TEXT_SIZES,
    audited_tokens,
    extraction_work,
    needs_text_sizes,
    scoring_work,
)
from reticent.job.config import parse_job
from reticent.job.pipeline import execute, iter_step_states
from reticent.job.run import Run
from reticent.job.status import job_status

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

Values = dict[str, Any]
WINDOW, PEOPLE = 48, 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workload")
    (folder / "hospital").mkdir()
    synthesize(folder / "hospital", SynthConfig(num_individuals=PEOPLE, words_per_document=30, languages=("en",)))
    for kind in ("gpt2", "bert"):
        toy_model(kind, max_length=WINDOW).save_pretrained(folder / kind)
        (folder / kind / "tokenizer.json").write_text(toy_tokenizer(kind))
    return folder


def job_values(folder: Path, out: str, **more: Any) -> Values:
    models = [("clm", "gpt2"), ("mlm", "bert")]
    return {
        "out": str(folder / out),
        "corpus": {"source": str(folder / "hospital" / "documents"), "spans": "spans", "household_id": "household_id"},
        "detect": {"detectors": ["gold"]},
        "split": {"heldout": 0.5},
        "model": [{"name": o, "base": str(folder / kind), "objective": o, "recipes": [o]} for o, kind in models],
        "train": {"num_epochs": 1, "window_length": WINDOW, "batch_size": 8, "device": "cpu"},
        "audit": {"num_bootstrap": 100, "attacks": ["loss"]},
        **more,
    }


ASKED: dict[str, dict[str, Any]] = {
    "split": {"heldout": 0.5, "user_inference_holdout": 0.3},
    "audit": {
        "num_bootstrap": 100,
        "attacks": ["loss", "zlib", "lowercase", "user_inference"],
        "all_occurrences": True,
        "generation": {"num_prompts": 7, "prefix_tokens": 5, "num_tokens": 6, "num_samples": 2},
        "inversion": {"num_decoys": 3, "per_individual": 2, "association": False},
    },
    "extraction": {"prefix_tokens": [5, 10], "suffix_tokens": 20, "num_passages": 9},
    "canaries": {"num": 4, "arms": ["missed"], "num_references": 6},
}


class Shares(Progress):
    """Keeps how far every step of the plan said it was."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.seen: dict[str, list[float]] = {}

    def _advance_plan(self, *args: Any) -> None:
        super()._advance_plan(*args)
        if self.plan is not None and self.plan.running is not None:
            self.seen.setdefault(self.plan.running.name, []).append(self.plan._share)


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    run = Run(parse_job(job_values(folder, "asked", **ASKED)), Shares())
    execute(run, "audit")
    return run


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_work_of_scoring_is_what_the_settings_ask_for(run: Run, objective: str) -> None:
    model = next(model for model in run.job.model if model.name == objective)
    variants = ("audit", "lowercase", "user_inference_holdout")
    audit, lower, holdout = (read_manifest(run.folder / f"tokens/{objective}/{variant}").counts for variant in variants)
    found = scoring_work(run, Measurement(model)).parts
    folds = {"clm": 1, "mlm": run.job.audit.folds}[objective]
    expected = {"documents": audit["tokens"] * folds, "lowercase": lower["tokens"] * folds}
    expected["user_inference_holdout"] = holdout["tokens"] * folds
    if objective == "mlm":
        expected["all occurrences"] = audit["tokens"] * folds
    else:
        expected["generation"] = 2 * 7 * 2 * (5 + 6)
    targets = sum(min(PEOPLE * 2, audit[kind]) for kind in ("direct", "indirect"))
    window = min(audit["tokens"] / audit["documents"], WINDOW)
    expected["inversion"] = targets * window * ((3 + 1) * folds + 1)  # and one in its place
    assert list(found) == list(expected)
    assert found == pytest.approx(expected)


def test_work_of_extraction_is_its_passages_and_the_canaries_among_their_references(run: Run) -> None:
    causal, masked = run.job.model
    without = Run(parse_job(job_values(run.folder.parent, "asked", extraction=ASKED["extraction"])))
    assert extraction_work(without, causal) == 2 * 9 * ((5 + 20) + (10 + 20))
    assert extraction_work(without, masked) == 0  # passages are asked of causal models
    canaries = extraction_work(run, causal) - extraction_work(without, causal)
    audit = read_manifest(run.folder / "tokens/clm/audit").counts
    assert canaries >= 4 * (6 + 1) * 2 * audit["tokens"] / audit["words"]
    assert extraction_work(run, masked) > canaries  # a word at a time


def works_of(run: Run) -> list[tuple[Work, bool]]:
    """Work that the expected end counts, and whether it is done."""
    looked = iter_step_states(run.read_only_copy())
    return [(look.step.work(), look.is_done) for look in looked if look.step is not None and look.step.work]


def test_every_artefact_of_the_audit_is_a_step_that_is_done_at_the_end(run: Run) -> None:
    steps = {step.name: is_done for step, is_done in works_of(run)}
    made = [path.parent for path in run.folder.rglob("manifest.json")]
    names = {str(path.relative_to(run.folder)) for path in made}
    assert set(steps) == {name for name in names if name.split("/")[0] in ("models", "measures", "extraction")}
    assert len([name for name in steps if name.startswith("extraction/")]) == 4
    assert all(steps.values())
    status = job_status(run)["plan"]
    assert (status["num_steps"], status["num_done"], status["remaining_seconds"]) == (len(steps), len(steps), 0.0)


def test_how_far_a_step_is_never_goes_back(run: Run) -> None:
    seen = run.progress.seen  # type: ignore[attr-defined]
    assert {name.split("/")[0] for name in seen} == {"models", "measures", "extraction"}
    for name, shares in seen.items():
        assert shares == sorted(shares), name
        assert max(shares) <= 1.0
    assert max(seen["measures/clm/clm/epoch-0001"]) == 1.0


def test_sizes_of_texts_are_made_for_the_audit_alone(run: Run) -> None:
    manifest = read_manifest(run.folder / TEXT_SIZES)
    assert (manifest.kind, manifest.kind_format) == ("text-sizes", FORMATS["text-sizes"]) == ("text-sizes", 1)
    (file,) = manifest.files
    assert pq.read_schema(run.folder / TEXT_SIZES / file).names == ["num_bytes", "zlib_bytes"]
    assert (run.folder / TEXT_SIZES).stat().st_mtime > (run.folder / "tokens/clm/train").stat().st_mtime


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_a_job_measures_of_a_model_what_audit_models_does(run: Run, objective: str) -> None:
    """All but what takes the categories of words, which a job alone knows."""
    (base, measurement) = measurements_of(run.job, next(model for model in run.job.model if model.name == objective))
    stores = {
        name: audited_tokens(run, objective, name) for name in ("train", "audit", "lowercase", "user_inference_holdout")
    }
    path = run.checkpoints(measurement.model, measurement.recipe, None)[measurement.epoch]
    found = audit_models(
        train_store=stores["train"],
        audit_store=stores["audit"],
        members=run.individuals.mask(MEMBERS)[stores["audit"].individual],
        models=[ModelEntry(name=objective, recipe=objective, objective=objective, epoch=measurement.epoch, path=path)],
        bases={objective: Path(run.base_of(measurement.model))},
        config=run.job.audit.replace(inversion=None),
        lowercase_store=stores["lowercase"],
        user_inference_holdout=stores["user_inference_holdout"],
        zlib_bytes=read_zlib_bytes(run.folder / TEXT_SIZES) if needs_text_sizes(run) else None,
        units=run.individuals.units,
        split_given=False,
    )
    for mine, theirs in zip((base, measurement), to_json(found.models), strict=True):
        measured = json.loads((run.folder / mine.name / "measures.json").read_text())
        assert "inversion" in measured
        for attack in theirs["membership"].values():
            del attack["verdict"], attack["why"]
        by_categories = {"by_category", "inversion", "unshared", "shared_over_base", "exposed", "by_owner"}
        assert without(measured, by_categories) == without(theirs, by_categories)


def without(found: Any, names: set[str]) -> Any:
    """Evidence without the fields of these names, however deep."""
    if isinstance(found, dict):
        return {name: without(value, names) for name, value in found.items() if name not in names}
    return [without(value, names) for value in found] if isinstance(found, list) else found


@pytest.mark.parametrize(
    ("pattern", "cls"),
    [("measures/**/measures.json", ModelEvidence), ("extraction/**/extraction.json", ExtractedModel)],
)
def test_every_file_of_evidence_is_read_as_its_class_and_written_as_it_was(run: Run, pattern: str, cls: type) -> None:
    files = list(run.folder.glob(pattern))
    assert files
    for file in files:
        found = json.loads(file.read_text())
        assert json.dumps(to_json(from_json(cls, found))) == json.dumps(found)
