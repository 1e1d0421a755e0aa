"""The gates of a job (thresholds at which a run fails): written before any training, judged on the audit's evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.evidence.json_form import to_json
from reticent.audit.judgement.verdict import verdict
from reticent.core.artifact import artifacts_in, read_manifest, require_kind
from reticent.job.artefact import Artefact, Step
from reticent.job.maker import build_step
from reticent.job.outcomes import keep_outcomes, with_earlier

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence
    from reticent.job.run import Run


def gate_settings(run: Run) -> dict[str, Any]:
    """Return the job's gates (limits that measures must meet) and its verdict thresholds by risk as JSON values; empty
    where it has none."""
    settings: dict[str, Any] = {}
    if run.job.gate:
        settings["gates"] = [gate.model_dump() for gate in run.job.gate]
    if run.job.verdict is not None:
        settings["verdict"] = run.job.verdict.model_dump(mode="json")
    return settings


def judge_settings(run: Run) -> dict[str, Any]:
    """Return the settings that the verdict depends on as JSON values: the gates, the thresholds by risk, and who gets
    access to the model, which decides the risks that count."""
    access = run.job.dossier.access
    return gate_settings(run) | ({} if access is None else {"access": access})


def gate_step(run: Run) -> Step:
    """Return the step that writes the artefact ``gates``: the limits that measures must meet, and whether they were
    fixed before anything was trained."""
    return Step.of(Artefact("gates", "gates", gate_settings(run), {}), partial(_build_gates, run))


def _build_gates(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    """Write ``gates.json``, and record whether anything had been trained (or, for a model trained elsewhere, scored)
    before."""
    (folder / "gates.json").write_text(json.dumps(gate_settings(run), indent=1))
    elsewhere = run.job.subject is not None  # its training was over before: what counts is its first score
    made = artifacts_in(run.folder / ("measures" if elsewhere else "models"))
    counts["fixed_before_training"] = all(elsewhere and path.parent.name == "base" for path in made)


def judge_gates(run: Run, evidence: AuditEvidence) -> AuditEvidence:
    """Return the evidence with the verdict filled in: whether the audit's measures are within the job's limits
    ("gates") and the default one. The verdict is None if the job sets no limit or threshold and the default one is
    kept.
    """

    found = verdict(
        evidence.every_model,
        run.job.gate,
        evidence.extraction,
        small_cell=run.job.audit.small_cell,
        corpus=evidence.corpus,
    )
    own = gate_settings(run)
    if not own and not found.results:
        return replace(evidence, verdict=None)
    fixed = not own or read_manifest(run.folder / "gates").counts["fixed_before_training"]
    return replace(evidence, verdict=replace(found, fixed_before_training=fixed))


def judge_again(run: Run) -> None:
    """Replace the verdict of a finished audit by that of the job's present gates and release context; nothing is
    measured again.
    """

    gates, made = gate_settings(run), require_kind(run.folder / "audit", "audit")
    config = {name: value for name, value in made.config.items() if name not in ("gates", "verdict", "access")}
    config |= judge_settings(run)
    if config == made.config:
        return
    if gates:
        build_step(run, gate_step(run))

    def build(folder: Path, counts: dict[str, Any]) -> None:
        """Write the audit's evidence (``audit.json``) into ``folder``, with its measures unchanged and the verdict made
        anew.
        """
        evidence = run.evidence
        settings = {name: value for name, value in evidence.settings.items() if name not in ("gate", "verdict")}
        settings |= {own: gates[name] for name, own in (("gates", "gate"), ("verdict", "verdict")) if name in gates}
        settings["dossier"] = {**settings.get("dossier", {}), "access": run.job.dossier.access}  # type: ignore[dict-item]
        judged = with_earlier(run, judge_gates(run, replace(evidence, settings=settings)))
        (folder / "audit.json").write_text(json.dumps(to_json(judged), indent=1, allow_nan=False))
        counts.update(made.counts)
        keep_outcomes(run, judged)

    build_step(run, Step.of(Artefact("audit", "audit", config, made.inputs), build))
