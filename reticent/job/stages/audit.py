"""Measurements -> the evidence: every number of the report, as one JSON artefact; and the page that shows it."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reticent
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.core.json_toml import read_json
from reticent.job.artefact import Artefact, Step
from reticent.job.corpus_statistics import corpus_section
from reticent.job.gates import gate_settings, judge_gates
from reticent.job.sampled_recall import SAMPLED_RECALL, read_sampled_recall
from reticent.job.stages.classify import classification_artefacts, read_results
from reticent.job.stages.extraction import extraction_artefacts, extraction_section
from reticent.job.stages.near_copies import NEAR_COPIES, near_copies_section
from reticent.job.stages.shadows import shadows_of
from reticent.job.trainings import Measurement, measurements_of, trainings_of

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.job.run import Run

__all__ = ["audit_steps", "gather_evidence", "report_steps"]


def audit_steps(run: Run) -> Iterator[Step]:
    """Yield the step of the artefact ``audit``."""
    config: dict[str, Any] = {**run.job.audit.model_dump(), "seed": run.job.seed}
    names = [training.name for training in trainings_of(run.job)]
    for model in run.job.model:
        names.append(f"tokens/{model.name}/train")
        names += [measurement.name for measurement in measurements_of(run.job, model)]
    names += extraction_artefacts(run)
    names += classification_artefacts(run)
    inputs = {name: run.fingerprints.of(name) for name in names}
    if (run.folder / SAMPLED_RECALL).exists():
        inputs[SAMPLED_RECALL] = run.fingerprints.of(SAMPLED_RECALL)
    if run.job.memory_limit is None:
        inputs[NEAR_COPIES] = run.fingerprints.of(NEAR_COPIES)
    config |= gate_settings(run)
    if run.job.probe is not None:
        from reticent.job.probes import probe_inputs

        config["probe"] = run.job.probe.model_dump(exclude={"subjects", "templates"})
        inputs |= probe_inputs(run)
    yield Step.of(Artefact("audit", "audit", config, inputs), partial(_build_audit, run))


def report_steps(run: Run) -> Iterator[Step]:
    """Yield the step of the artefact ``report``: report.json and report.html."""
    from reticent.audit.report.page import page_digest

    config = {"small_cell": run.job.audit.small_cell, "reticent": reticent.__version__, "page": page_digest()}
    if (language := run.job.dossier.languages[0]) != "en":
        config["language"] = language
    yield Step.of(
        Artefact("report", "report", config, {"audit": run.fingerprints.of("audit")}), partial(_build_report, run)
    )


def _build_audit(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    _delete_stale(run)
    evidence = gather_evidence(run)
    counts["models"] = len(evidence.models)
    (folder / "audit.json").write_text(json.dumps(to_json(evidence), indent=1, allow_nan=False))


def _build_report(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    from reticent.audit.report.page import write_report

    write_report(folder, run.evidence, language=run.job.dossier.languages[0])


def _delete_stale(run: Run) -> None:
    """Delete the shadows that the job does not have, with their tokens, and the measurements of checkpoints that do
    not exist any more. The measurements of a recipe that the job has left out stay as long as its models do.
    """
    from reticent.core.artifact import delete_artifact, delete_unfinished

    wanted = {run.folder / name for shadow in shadows_of(run) for name in (shadow.name, shadow.tokens)}
    shadows = [*(run.folder / "shadows").glob("*/*/[0-9]*"), *(run.folder / "tokens").glob("*/*-shadow-[0-9]*")]
    made = (path for kind in ("measures", "extraction") for path in (run.folder / kind).glob("*/*/*epoch-[0-9]*"))
    stale = [path for path in shadows if path not in wanted]
    for path in sorted([*stale, *(path for path in made if not _has_checkpoint(run, path))]):
        delete_artifact(path)
    if (run.folder / "shadows").is_dir():
        delete_unfinished(run.folder / "shadows")


def _has_checkpoint(run: Run, measured: Path) -> bool:
    """Return whether the model of a measurement exists; goes by its path, because the job may have left it out."""
    seed, _, epoch = measured.name.rpartition("epoch-")
    recipe, model = measured.parent.name, measured.parent.parent.name
    trained = run.folder / "models" / model / recipe / seed.removesuffix("-")
    return recipe == "base" or (trained / f"epoch-{epoch}").is_dir()


def gather_evidence(run: Run) -> AuditEvidence:
    """Return the evidence before publication, from the measurements and the statistics of the corpus."""
    from reticent.audit.evidence.audit import FORMAT, AuditEvidence
    from reticent.audit.membership.validity import judged

    probe = None
    if run.job.probe is not None:
        from reticent.job.probes import run_probes

        probe = run_probes(run)
    measurements = [m for model in run.job.model for m in measurements_of(run.job, model)]
    evidence = AuditEvidence(
        probe=probe,
        extraction=extraction_section(run),
        sampled_recall=read_sampled_recall(run),
        classification=read_results(run) if run.job.classify is not None else None,
        format=FORMAT,
        created=datetime.datetime.fromtimestamp(_now(), datetime.UTC).isoformat(timespec="seconds"),
        versions={
            "reticent": reticent.__version__,
            **{name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        },
        settings=run.job.model_dump(
            mode="json",
            include={
                *("seed", "dedup", "split", "detect", "index", "protect", "model", "recipes", "train", "audit"),
                *(name for name in ("canaries", "extraction", "gate", "verdict") if getattr(run.job, name)),
            },
        ),
        corpus=replace(corpus_section(run), near_copies=near_copies_section(run)),
        models=judged([_measured(run, measurement) for measurement in measurements]),
    )
    return judge_gates(run, evidence)


def _measured(run: Run, measurement: Measurement) -> ModelEvidence:
    """One measurement, with its model and the counts of that model's training."""
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.evidence.leakage import Ledger
    from reticent.core.artifact import read_manifest

    path = run.folder / measurement.name / "measures.json"
    measured = replace(from_json(ModelEvidence, read_json(path), str(path)), model=measurement.model.name)
    if measurement.training is None:
        return measured
    counts = read_manifest(run.folder / measurement.training.name).counts
    ledger = Ledger(**{part.name: counts[part.name] for part in fields(Ledger)})
    return replace(measured, seed=measurement.training.seed, ledger=ledger, guarantee=counts.get("privacy"))


def _now() -> float:
    """Return the seconds since 1970, or SOURCE_DATE_EPOCH, which is set to get the same bytes twice."""
    return float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
