"""Outcomes that a run's audits have found, kept beside its models so that the next audit cannot drop one.

``outcomes.json`` has the outcome of every risk of every training that was audited, with the digest of the model's
files, the attacks, the seed and the version. Rows are only added, each once. The judgement names those that are worse
than what the audit of today finds (:mod:`reticent.audit.judgement.verdict`). A copy of the run in another folder has
outcomes of its own: what was tried there cannot be seen here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.evidence.risks import KeptOutcome
from reticent.audit.judgement.verdict import outcomes_of
from reticent.core.artifact import Manifest, canonical, read_manifest, write_private
from reticent.core.errors import ReticentError
from reticent.core.json_toml import read_json
from reticent.job.artefact import trainings_of

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence
    from reticent.audit.evidence.model import ModelEvidence
    from reticent.job.run import Run

OUTCOMES = "outcomes.json"
#: The card of an exported model.
CARD = "README.md"
T = TypeVar("T")


def without_model_card(files: Mapping[str, T]) -> dict[str, T]:
    """Return the files of a model folder, by name, without its model card, which does not change what the model
    does."""
    return {name: about for name, about in files.items() if name != CARD}


def model_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 (hex) over the file digests of a model folder, without its model card."""
    return hashlib.sha256(canonical(without_model_card(files))).hexdigest()


def with_digests(measured: ModelEvidence, manifest: Manifest, place: str | None = None) -> ModelEvidence:
    """Return a model's evidence with two digests filled in from its training's ``manifest``: ``digest`` of the model's
    files, and ``kin`` of the training's settings without the seed. ``place`` is the model's subfolder (default: the
    evidence's epoch).
    """
    start = f"{place or f'epoch-{measured.epoch:04d}'}/"
    files = {n.removeprefix(start): about["sha256"] for n, about in manifest.files.items() if n.startswith(start)}
    made_from = {**manifest.config, "seed": None, "inputs": manifest.inputs}
    return replace(measured, digest=model_digest(files), kin=hashlib.sha256(canonical(made_from)).hexdigest())


def _read_outcomes(folder: Path) -> list[KeptOutcome]:
    """Return the outcomes of earlier audits, one for each risk and training, that are saved in a run folder; an empty
    list if there are none.
    """
    path = folder / OUTCOMES
    rows = read_json(path)["outcomes"] if path.exists() else []
    return [from_json(KeptOutcome, row, OUTCOMES) for row in rows]


def with_earlier(run: Run, evidence: AuditEvidence) -> AuditEvidence:
    """Return the evidence with the risk outcomes of this run's earlier audits filled in, each with the job's
    explanation of it, if any."""
    why: dict[tuple[str, str, str, str], str] = {}
    for each in run.job.audit.explained:
        why[each.model, each.recipe, each.risk, each.created] = each.why
    rows = [
        replace(row, explained=why.get((row.model or "", row.recipe, row.risk, row.created)))
        for row in _read_outcomes(run.folder)
    ]
    return replace(evidence, earlier=rows or None)


def keep_outcomes(run: Run, evidence: AuditEvidence, *, arithmetic: int | None = None) -> None:
    """Append an audit's outcomes (one for each risk and training) to the run's ``outcomes.json``, without repeats.
    ``arithmetic`` is the version of the computations, given for an audit by an older version of this package.
    """
    known = _read_outcomes(run.folder)
    seen = {_comparable(row) for row in known}
    found = [replace(row, arithmetic=arithmetic or row.arithmetic) for row in outcomes_of(evidence)]
    if new := [row for row in found if _comparable(row) not in seen]:
        text = json.dumps({"outcomes": to_json([*known, *new])}, indent=1, allow_nan=False)
        write_private(run.folder / OUTCOMES, text.encode())


def keep_outcomes_of_older_audit(run: Run) -> None:
    """Save the risk outcomes of a finished audit that an older version of this package made without saving them.
    Nothing is done if the run has an ``outcomes.json``.
    """
    if (run.folder / OUTCOMES).exists():
        return
    try:
        before, arithmetic = run.evidence, read_manifest(run.folder / "audit").config.get("arithmetic", 1)
    except (ReticentError, OSError):
        return
    trainings = {(t.model.name, t.recipe, t.seed): t for t in trainings_of(run.job)}
    models = []
    for model in before.models:
        training = trainings.get((model.model or "", model.recipe, model.seed))
        try:
            models.append(with_digests(model, read_manifest(run.folder / training.name)) if training else model)
        except ReticentError:  # its model is not there any more
            models.append(model)
    keep_outcomes(run, replace(before, models=models), arithmetic=arithmetic)


def _comparable(row: KeptOutcome) -> KeptOutcome:
    """Return an outcome without its time and explanation, for finding equal ones."""
    return replace(row, created="", numbers=tuple(row.numbers), explained=None)  # type: ignore[arg-type]
