"""The dossier of a finished run, outside the job's plan of stages: rebuild it, copy it for sending, check it against
the run.
"""

from __future__ import annotations

import hmac
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.evidence.rules import publish
from reticent.audit.judgement.rows import RISKS
from reticent.audit.judgement.verdict import ARITHMETIC
from reticent.audit.report.page import published
from reticent.core.artifact import JOB, fingerprint, new_folder, require_kind, require_new
from reticent.core.errors import ArtifactError, ReticentError
from reticent.core.json_toml import read_json
from reticent.ext.dossier.provenance import KEY, code_digest, digest_of_counts
from reticent.ext.dossier.seal import EVIDENCE, SIGNATURE, SUMS, dossier_digest, signed_files
from reticent.ext.dossier.stage import DOSSIER, dossier_steps
from reticent.ext.dossier.verify import read_evidence, verify_dossier
from reticent.job.config import load_kept_job
from reticent.job.gates import judge_again
from reticent.job.maker import build_step
from reticent.job.outcomes import model_digest
from reticent.job.stages.audit import report_steps

if TYPE_CHECKING:
    from reticent.audit.evidence.dossier import DossierEvidence
    from reticent.ext.dossier.verify import Checked, Tested
    from reticent.job.config import Job
    from reticent.job.run import Run


def make_dossier(run: Run, out: Path | None = None) -> dict[str, Any]:
    """Build the dossier of a run that has a report, if missing or stale, and copy it to ``out`` if given; return its
    folder and digest.

    Raises
    ------
    ArtifactError
        There is no report, or ``out`` is not new or empty.
    """

    require_kind(run.folder / "report", "report")
    if out is not None:
        require_new(out)  # before the work
    judge_again(run)
    for steps in (report_steps, dossier_steps):  # the first screen of the report has the dossier's first language
        for step in steps(run):
            build_step(run, step)
    run.keep_job()
    folder = run.folder / DOSSIER
    if out is not None:
        copy_dossier(folder, out)
    return {"folder": str(out or folder), "digest": dossier_digest(folder)}


def copy_dossier(folder: Path, out: Path) -> None:
    """Copy the files of a dossier that are sent to others (signed files, digests, signature; no manifest) to a new
    folder.
    """
    with new_folder(out):
        for name in (*signed_files(folder), SUMS, SIGNATURE):
            if (folder / name).is_file() and not name.startswith("."):
                (out / name).parent.mkdir(mode=0o700, exist_ok=True)
                shutil.copyfile(folder / name, out / name)
                (out / name).chmod(0o600)


def check_dossier(folder: Path, models: Sequence[Path] = (), signers: Path | None = None) -> Checked:
    """Verify a dossier's files and its signature (by the ``signers`` in the file of allowed signers, if given). If the
    dossier lies in its run folder, verify also that the run's models and results are still those that it describes.

    Raises
    ------
    ArtifactError
        This is no dossier.
    """

    run = folder.absolute().parent
    inside = (run / JOB).is_file() and folder.absolute().name == DOSSIER
    own = [path.parent for path in sorted(run.glob("models/**/epoch-*/config.json"))] if inside else []
    of_dossier = _keys_of_dossier(folder) if own else None
    job = load_kept_job(run / JOB) if any(path.parent.name.startswith("seed-") for path in own) else None
    keys = {path: _checkpoint_key(path.relative_to(run / "models"), job) for path in own}
    tested = {path: key for path, key in keys.items() if of_dossier is None or key in of_dossier}
    checked = verify_dossier(folder, models, signers, own=tested)
    checked.unchecked += [f"{path.relative_to(run)}: was not tested" for path in own if path not in tested]
    if inside and (run / KEY).is_file() and not checked.faults:
        evidence = read_evidence(folder)
        faults = list(changed_results(evidence, run))
        checked.faults += faults
        if not faults:
            checked.holds.append("indexes, split, spans, protected tokens and audit are those of the run")
            _compare_outcomes(evidence, run, checked)
    return checked


def _compare_outcomes(evidence: DossierEvidence, run: Path, result: Checked) -> None:
    """Compute a dossier's outcomes again by today's rules from the run's audit. Add differences to ``result`` as faults
    or changes.
    """
    again = published(_read_audit(run / "audit" / "audit.json"))
    said, changed = evidence.audit, list(changed_outcomes(evidence.audit, again))
    if is_of_older_rules(said):
        result.changed += changed
        made_of = run / "report" / "report.json"
        report = _read_audit(made_of) if made_of.is_file() else None
        changed = list(changed_outcomes(said, report)) if report and is_of_older_rules(report) else []
    elif not changed and evidence.code == code_digest() and to_json(said) != to_json(publish(again, again.cell)):
        changed = ["its numbers are not those of the run's audit"]
    faults = [f"{EVIDENCE}: {line}" for line in (*changed, *changed_models(evidence, again))]
    result.faults += faults
    if not faults:
        result.holds.append("every outcome is that of the audit of the run")


def _read_audit(path: Path) -> AuditEvidence:
    """Return the audit evidence in a JSON file."""
    return from_json(AuditEvidence, read_json(path), path.name)


def is_of_older_rules(audit: AuditEvidence) -> bool:
    """Return whether an audit's outcomes were computed by an older version of the judgement rules."""
    return audit.risks is None or (audit.risks.arithmetic or 1) < ARITHMETIC


def changed_outcomes(audit: AuditEvidence, recomputed: AuditEvidence) -> Iterator[str]:
    """Yield a message for each verdict or risk whose outcome differs between the dossier's audit and a recomputed
    one.
    """
    before, now = _outcomes(audit), _outcomes(recomputed)
    for key in dict.fromkeys((*before, *now)):
        (recipe, model, title), outcomes = key, (before.get(key, "none"), now.get(key, "none"))
        if outcomes[0] != outcomes[1]:
            of = f" of {model}" if model else ""
            yield f"{recipe}{of}, {title}: {outcomes[0]!r} here, {outcomes[1]!r} by the audit of the run"


def _outcomes(audit: AuditEvidence) -> dict[tuple[str, str | None, str], str]:
    """Return (recipe, model, title) -> outcome for each verdict and each single risk of an audit."""
    rows = audit.risks.rows if audit.risks else []
    found = {(row.recipe, row.model, "the verdict"): row.outcome for row in rows}
    return found | {(row.recipe, row.model, RISKS[r.risk].title): r.outcome for row in rows for r in row.results}


def changed_models(evidence: DossierEvidence, measured: AuditEvidence) -> Iterator[str]:
    """Yield a message for each model of a dossier whose files have other digests than those in ``measured``, from the
    run's audit.
    """
    digests = {(m.model, m.recipe, m.epoch, m.training): m.digest for m in measured.models}
    for one in evidence.models:
        digest = digests.get((one.model, one.recipe, one.epoch, one.training))
        if digest is not None and digest != model_digest(one.files):
            yield f"{one.recipe} of {one.model}, epoch {one.epoch}: other files were measured"


def _checkpoint_key(checkpoint: Path, job: Job | None) -> Tested:
    """Return (model, recipe, epoch, training) of a checkpoint, from its path MODEL/RECIPE/epoch-0008. With several
    seeds the path is MODEL/RECIPE/seed-0/epoch-0008, and the training is the seed's position, from 1, among those of
    the job.
    """
    model, recipe, *seed, epoch = checkpoint.parts
    training = None
    if seed and job is not None:  # its number is its place among the seeds
        seeds = [f"seed-{one}" for each in job.model if each.name == model for one in job.training(each).seeds or ()]
        training = seeds.index(seed[0]) + 1 if seed[0] in seeds and len(seeds) > 1 else None
    return model, recipe, int(epoch.removeprefix("epoch-")), training


def _keys_of_dossier(folder: Path) -> set[Tested] | None:
    """Return (model, recipe, epoch, training) of each model in a dossier; None if its evidence cannot be read."""

    try:
        models = read_evidence(folder).models
    except (ReticentError, OSError, ValueError):
        return None
    return {(one.model, one.recipe, one.epoch, one.training) for one in models}


def changed_results(evidence: DossierEvidence, run: Path, *, only: str | None = None) -> Iterator[str]:
    """Yield a message for each artefact of a run (or ``only`` one) that is missing or has another digest than in the
    dossier.
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
    if only is None and digests.counts is not None:
        found = hmac.new(key, digest_of_counts(run).encode(), "sha256").hexdigest()
        if found != digests.counts:
            yield "models, tokens: counts in the manifests of the run are not those that the dossier was made from"
