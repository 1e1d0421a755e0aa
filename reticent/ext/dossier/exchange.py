"""Files of a dossier for output checkers of a secure environment: machine-readable results, and a form of two halves.

Nothing here is measured or decided: a file for each attack repeats published numbers of ``evidence.json``, and the form
leaves the decision to a person. The list of digests covers all of it, and so does the signature.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.evidence.json_form import to_json
from reticent.ext.dossier.fact_sentences import setting
from reticent.job.outcomes import model_digest

if TYPE_CHECKING:
    from reticent.audit.evidence.dossier import DossierEvidence, ModelUnderTest
    from reticent.audit.evidence.model import ModelEvidence

#: Folder of the files in a dossier; the form in it.
EXCHANGE, FORM = "secure-environment", "form.json"
FORMAT = "reticent.attack/1"
#: What the staff has to look at before a decision.
CHECKS = (
    "the signature of this folder is of a known key (reticent dossier verify)",
    "the model file that would leave has the digest below",
    "the list of who was trained on comes from where the statement says",
    "the people it was compared with are like those it was trained on",
    "what was not tested is no reason against this release",
    "every copy that would leave (adapter, merge, quantised) is in the table",
)


def write_exchange(folder: Path, evidence: DossierEvidence, statement: str | None) -> None:
    """Write the files for the output check of a secure environment: ``attack-*.json`` with the results of each
    membership attack, and ``form.json`` with the applicant's ``statement``, for the decision on release.
    """
    folder.mkdir()
    for name in dict.fromkeys(name for model in evidence.audit.models for name in model.membership):
        rows = [_attack_result(evidence, model, name) for model in evidence.audit.models if name in model.membership]
        _write_json(folder / f"attack-{name}.json", {"format": FORMAT, "attack": name, "created": evidence.created,
                                               "versions": evidence.versions, "models": rows})  # fmt: skip
    risks = evidence.audit.risks
    form = {
        "those_who_ask": {
            "command": evidence.command,
            "statement": statement,
            "list_of_members": setting(evidence.audit, "subject", "statement"),
            "models": [{**_model_reference(model), "files": model.given or model.files} for model in evidence.models],
        },
        "those_who_decide": {
            "verdicts": [{"model": row.recipe, "outcome": row.outcome, "reason": row.reason} for row in risks.rows]
            if risks
            else [],
            "checks": [{"check": check, "done": None} for check in CHECKS],
            "decision": None,
            "reason": None,
            "name": None,
            "date": None,
        },
    }
    _write_json(folder / FORM, form)


def _attack_result(evidence: DossierEvidence, model: ModelEvidence, attack: str) -> dict[str, Any]:
    """Return one model's published result of a membership attack, as JSON values."""
    own = (model.model, model.recipe, model.epoch, model.training)
    found = (each for each in evidence.models if (each.model, each.recipe, each.epoch, each.training) == own)
    tested = next(found, None)
    return {
        "model": model.recipe,
        "epoch": model.epoch,
        "is_base": model.recipe == "base",
        "digest": model.digest if tested is None else model_digest(tested.given or tested.files),
        "result": to_json(model.membership[attack]),
    }


def _model_reference(model: ModelUnderTest) -> dict[str, Any]:
    """Return a tested model's name and digest, for the release form."""
    return {"model": model.recipe, "of": model.model, "digest": model_digest(model.given or model.files)}


def _write_json(file: Path, content: dict[str, Any]) -> None:
    """Write JSON content to a file."""
    file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
