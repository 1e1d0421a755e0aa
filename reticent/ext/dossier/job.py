"""The dossier of a finished run, outside the plan: made again, copied to be sent, checked against the run."""

from __future__ import annotations

import hmac
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.artifact import JOB, MANIFEST, fingerprint, new_folder, require_kind, require_new
from reticent.core.errors import ArtifactError, ReticentError
from reticent.ext.dossier.provenance import KEY
from reticent.ext.dossier.seal import dossier_digest
from reticent.ext.dossier.stage import DOSSIER, dossier_steps
from reticent.ext.dossier.verify import read_evidence, verify_dossier
from reticent.job.maker import make
from reticent.job.stages.audit import report_steps

if TYPE_CHECKING:
    from reticent.audit.evidence.dossier import DossierEvidence
    from reticent.ext.dossier.verify import Checked
    from reticent.job.run import Run

__all__ = ["changed_results", "check_dossier", "copy_dossier", "make_dossier"]


def make_dossier(run: Run, out: Path | None = None) -> dict[str, Any]:
    """Make the dossier of a run whose report is written, unless it is up to date; returns its folder and digest.

    Raises
    ------
    ArtifactError
        There is no report, or ``out`` is not new or empty.
    """

    require_kind(run.folder / "report", "report")
    if out is not None:
        require_new(out)  # before the work
    for steps in (report_steps, dossier_steps):  # the first screen of the report has the dossier's first language
        for step in steps(run):
            make(run, step)
    run.keep_job()
    folder = run.folder / DOSSIER
    if out is not None:
        copy_dossier(folder, out)
    return {"folder": str(out or folder), "digest": dossier_digest(folder)}


def copy_dossier(folder: Path, out: Path) -> None:
    """Copy a dossier without its manifest, to be sent."""
    with new_folder(out):
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.name != MANIFEST and not file.name.startswith("."):
                shutil.copyfile(file, out / file.name)
                (out / file.name).chmod(0o600)


def check_dossier(folder: Path, models: Sequence[Path] = (), signers: Path | None = None) -> Checked:
    """Check a dossier; where it stands in its run folder, also the tested models of the run, and what they were made
    from.

    Raises
    ------
    ArtifactError
        This is no dossier.
    """

    run = folder.absolute().parent
    inside = (run / JOB).is_file() and folder.absolute().name == DOSSIER
    own = [path.parent for path in sorted(run.glob("models/**/epoch-*/config.json"))] if inside else []
    of_dossier = _tested(folder) if own else None
    tested = [path for path in own if of_dossier is None or _place(path.relative_to(run / "models")) in of_dossier]
    checked = verify_dossier(folder, [*models, *tested], signers)
    checked.unchecked += [f"{path.relative_to(run)}: was not tested" for path in own if path not in tested]
    if inside and (run / KEY).is_file() and not checked.faults:
        evidence = read_evidence(folder)
        faults = list(changed_results(evidence, run))
        checked.faults += faults
        if not faults:
            checked.holds.append("indexes, split, spans, protected tokens and audit are those of the run")
    return checked


def _place(checkpoint: Path) -> tuple[str, ...]:
    """Return model, recipe and epoch of a checkpoint, MODEL/RECIPE/…/epoch-0008."""
    return (*checkpoint.parts[:2], checkpoint.name)


def _tested(folder: Path) -> set[tuple[str, ...]] | None:
    """Return the places of the models that a dossier has (`audit.every_checkpoint` may leave all but the last out);
    None where the evidence cannot be read, which is a fault of its own.
    """

    try:
        models = read_evidence(folder).models
    except (ReticentError, OSError, ValueError):
        return None
    return {(one.model, one.recipe, f"epoch-{one.epoch:04d}") for one in models}


def changed_results(evidence: DossierEvidence, run: Path, *, only: str | None = None) -> Iterator[str]:
    """Yield the results of a run, or ``only`` this one of them, that are not those of which the dossier has the keyed
    digests.
    """

    key, digests = (run / KEY).read_bytes(), evidence.digests
    expected = {"split": digests.split, "spans": digests.spans, "audit": digests.audit}
    for name, digest in {**expected, **digests.indexes, **digests.protection}.items():
        if only not in (None, name):
            continue
        try:
            found = hmac.new(key, fingerprint(run / name).encode(), "sha256").hexdigest()
        except ArtifactError:
            yield f"{name}: is missing in the run, or not as it was written"
            continue
        if found != digest:
            yield f"{name}: of the run is not the one that the dossier was made from"
