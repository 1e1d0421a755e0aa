"""Rules fixed before scores: what will be measured and judged is written, hashed and signed before a model is scored.

``rules/rules.json`` of a run folder holds thresholds, relevant risks, gates, attacks, the release context, and seeds by
a keyed digest. Its digest is an input of every measurement, so each score names the rules in force when it was made;
changed rules make every score stale. So the order is proved within one run folder: earlier tries in another folder
cannot be seen here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reticent
from reticent.audit.config import SubjectConfig, VerdictConfig
from reticent.audit.evidence.dossier import FixedRules
from reticent.core.artifact import artifacts_in, canonical, hash_file, read_manifest
from reticent.core.json_toml import read_json
from reticent.ext.dossier.provenance import code_digest, hmac_of
from reticent.ext.dossier.seal import NAMESPACE, fingerprint_of_key, run_ssh_keygen
from reticent.job.artefact import Artefact, Step, creation_time

if TYPE_CHECKING:
    from reticent.job.run import Run

#: Name and kind of the artefact; its file, and the signature of that.
RULES, RULES_FILE = "rules", "rules.json"
FORMAT = "reticent.rules/1"
#: Sections of a job that say what is measured.
MEASURED = ("audit", "extraction", "canaries", "probe")


def rules_steps(run: Run) -> Iterator[Step]:
    """Yield the build step of the artefact ``rules``; nothing for a job that does not preregister its rules."""
    if run.job.dossier.preregister:
        key = run.job.dossier.key
        rules = _collect_rules(run)
        config = {"rules": rules, "signed_by": fingerprint_of_key(key) if key else None}
        yield Step.of(Artefact(RULES, RULES, config, {}), partial(_write_rules, run, rules))


def _collect_rules(run: Run) -> dict[str, Any]:
    """Return a job's preregistered rules: verdict, gates, audit settings and code digest, with seeds as a keyed digest
    since they reveal the members.
    """
    job = run.job
    seeds = {"seed": job.seed, "training": [job.training(model).seeds for model in job.model]}
    parts = {name: part for name in MEASURED if (part := getattr(job, name)) is not None}
    measured = {name: type(part).published(part.model_dump(mode="json"))[0] for name, part in parts.items()}
    return {
        "format": FORMAT,
        "verdict": (job.verdict or VerdictConfig()).model_dump(mode="json"),
        "gates": [gate.model_dump(mode="json") for gate in job.gate],
        "measured": measured,
        "subject": job.subject and SubjectConfig.published(job.subject.model_dump(mode="json"))[0],
        "access": job.dossier.access,
        "seeds": hmac_of(run, hashlib.sha256(canonical(seeds)).hexdigest()),
        "version": reticent.__version__,
        "code": code_digest(),
    }


def _write_rules(run: Run, rules: dict[str, Any], folder: Path, counts: dict[str, Any]) -> None:
    """Write the preregistered rules with the present time into ``folder``, and sign them if the job has a key.
    ``counts["scored_before"]`` is set to the number of measurements of models that were made before.
    """
    file = folder / RULES_FILE
    file.write_text(json.dumps({"created": creation_time(), **rules}, indent=1) + "\n", encoding="utf-8")
    if (key := run.job.dossier.key) is not None:
        run_ssh_keygen(["-Y", "sign", "-f", str(Path(key).expanduser()), "-n", NAMESPACE, str(file)])
    counts["scored_before"] = sum(1 for _ in artifacts_in(run.folder / "measures"))


def describe_rules(run: Run) -> FixedRules | None:
    """Return when a run's rules were preregistered, their digest, and how many measurements of models were made before
    and after; None without rules.
    """
    folder = run.folder / RULES
    if not run.job.dossier.preregister or not (folder / RULES_FILE).is_file():
        return None
    digest = run.fingerprints.of(RULES)
    scores = list(artifacts_in(run.folder / "measures"))
    after = sum(read_manifest(path).inputs.get(RULES) == digest for path in scores)
    made = read_manifest(folder)
    signed = made.config.get("signed_by")
    return FixedRules(
        created=read_json(folder / RULES_FILE)["created"],
        digest=hash_file(folder / RULES_FILE),
        signed_by=signed if isinstance(signed, str) else None,
        scored_before=int(made.counts["scored_before"]),
        scored_after=after,
        is_kept=after == len(scores),
    )
