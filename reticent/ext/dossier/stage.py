"""Build the dossier from the published report: a folder that can be sent, of evidence, pages, digests and signature.

A dossier that another one replaces is kept in ``replaced-dossiers``, by its digest: it may have been sent.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.dossier import EVIDENCE_FORMAT, Declared, DossierEvidence
from reticent.audit.evidence.json_form import from_json
from reticent.core.artifact import make_private_folder, require_kind, temporary_of
from reticent.core.errors import ArtifactError
from reticent.core.json_toml import read_json
from reticent.ext.dossier.page import pages_digest
from reticent.ext.dossier.provenance import code_digest, hmac_of, keyed_digests, models_under_test
from reticent.ext.dossier.rules import RULES, RULES_FILE, describe_rules
from reticent.ext.dossier.seal import SUMS, dossier_digest, fingerprint_of_key
from reticent.ext.dossier.write import write_dossier, writes_pdf
from reticent.job.artefact import Artefact, Step

if TYPE_CHECKING:
    from reticent.audit.evidence.dossier import DossierEvidence
    from reticent.job.config import Job
    from reticent.job.run import Run

#: Folders of a run: its dossier, and those that it replaced.
DOSSIER, REPLACED = "dossier", "replaced-dossiers"


def check_settings(job: Job) -> None:
    """Raise `ArtifactError` if the job's signing key cannot sign, and `PolicyError` if it wants PDF and no PDF can be
    written.
    """
    writes_pdf(job.dossier.pdf)
    if job.dossier.key is not None:
        if not Path(job.dossier.key).expanduser().is_file():
            raise ArtifactError(f"dossier.key: {job.dossier.key}: no such file")
        fingerprint_of_key(job.dossier.key)


def dossiers_of(folder: Path) -> tuple[str | None, list[str]]:
    """Return the digest of a run folder's dossier (None without one), and the names of the folders with dossiers that
    it replaced.
    """
    own = folder / DOSSIER
    replaced = sorted(path.name for path in (folder / REPLACED).glob("*") if (path / SUMS).is_file())
    return dossier_digest(own) if (own / SUMS).is_file() else None, replaced


def dossier_steps(run: Run) -> Iterator[Step]:
    """Yield the one build step of the artefact ``dossier``. The step's input digests are keyed (HMAC), since outsiders
    get the dossier and could else test guesses of the inputs.
    """

    own = run.job.dossier
    config: dict[str, Any] = own.model_dump(mode="json", exclude={"key", "pdf"})
    config |= {"signed_by": fingerprint_of_key(own.key) if own.key else None, "pdf": writes_pdf(own.pdf)}
    config["pages"] = pages_digest()
    inputs = {"report": hmac_of(run, run.fingerprints.of("report"))}
    if own.preregister:
        inputs["rules"] = hmac_of(run, run.fingerprints.of(RULES))
    yield Step.of(Artefact(DOSSIER, "dossier", config, inputs), partial(_build, run, config["signed_by"]))


def _build(run: Run, signed_by: str | None, folder: Path, counts: dict[str, Any]) -> None:
    """Write the dossier of a run into ``folder``, with its preregistered rules, and keep the dossier that
    it replaces.
    """
    evidence = _collect_evidence(run, signed_by, _keep_replaced(run))
    for file in (run.folder / RULES).glob(f"{RULES_FILE}*") if evidence.rules else ():
        shutil.copyfile(file, folder / file.name)
    write_dossier(folder, evidence, run.job.dossier)
    counts["digest"] = dossier_digest(folder)


def _keep_replaced(run: Run) -> str | None:
    """Copy the run's existing dossier, which is about to be replaced, to the folder of replaced ones, and return its
    digest. Without an existing one return the digest in the job's setting ``dossier.replaces``, which may be None.
    """
    old = run.folder / DOSSIER
    if not (old / SUMS).is_file():
        return run.job.dossier.replaces
    digest = dossier_digest(old)
    kept = run.folder / REPLACED / digest[:16]
    if not kept.exists():
        make_private_folder(kept.parent)
        copy = temporary_of(kept)
        shutil.copytree(old, copy)
        copy.rename(kept)  # whole or not at all: what a kill leaves is deleted at the next start
    return digest


def _collect_evidence(run: Run, signed_by: str | None, replaces: str | None) -> DossierEvidence:
    """Return a dossier's evidence: published audit, declarations, tested models, digests and rules of a run."""
    require_kind(run.folder / "report", "report")
    audit = from_json(AuditEvidence, read_json(run.folder / "report" / "report.json"), "report")
    said = run.job.dossier
    return DossierEvidence(
        format=EVIDENCE_FORMAT,
        created=audit.created,
        declared=Declared(
            institution=said.institution,
            purpose=said.purpose,
            legal_basis=said.legal_basis,
            documents=said.documents,
            licence=said.licence,
        ),
        audit=audit,
        models=list(models_under_test(run)),
        digests=keyed_digests(run),
        code=code_digest(),
        versions=audit.versions,
        command="reticent run RUN",
        rules=describe_rules(run),
        replaces=replaces,
        signed_by=signed_by,
    )
