"""Evidence of a dossier: the content of ``evidence.json``, which is published numbers and where they come from.

Digests of what stays inside are keyed (HMAC-SHA256, by a key that stays in the run folder): who has the run can check
them, and no reader can test a guess of the documents, or of who is a member. Digests of model files and of files of
the dossier are plain SHA-256.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import NAME, PARTS, SETTING, TOTAL

#: Raised with every change of the meaning or the form of ``evidence.json``; each has a schema of its own.
EVIDENCE_FORMAT = "reticent.evidence/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Statements of the institution about the processing, which the tests do not know."""

    institution: Annotated[str | None, NAME] = optional()
    purpose: Annotated[str | None, NAME] = optional()
    legal_basis: Annotated[str | None, NAME] = optional()
    documents: Annotated[str | None, NAME] = optional()
    licence: Annotated[str | None, NAME] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedDigests:
    """HMAC-SHA256 of what is not published: documents, the split, spans of detectors, the indexes, tokens by name (with
    their protection), the audit before publication, and the job."""

    corpus: Annotated[str, SETTING]
    split: Annotated[str, SETTING]
    spans: Annotated[str, SETTING]
    indexes: Annotated[dict[str, str], SETTING]
    protection: Annotated[dict[str, str], SETTING]
    audit: Annotated[str, SETTING]
    job: Annotated[str, SETTING]
    #: Counts of the trainings and of protected tokens, as their manifests have them; earlier versions kept none.
    counts: Annotated[str | None, SETTING] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnderTest:
    """One checkpoint that was tested: SHA-256 of each of its files, and the keyed digest of its training's ledger."""

    model: Annotated[str, NAME]
    recipe: Annotated[str, NAME]
    objective: Annotated[str, SETTING]
    epoch: Annotated[int, SETTING]
    #: The number of the training, from 1, where a recipe was trained with several seeds.
    training: Annotated[int | None, SETTING] = optional()
    #: Epochs that passed, and the one after which the model was kept, where training may end before its last (`epoch`).
    epochs_passed: Annotated[float | None, SETTING] = optional()
    best_epoch: Annotated[int | None, SETTING] = optional()
    num_parameters: Annotated[int, TOTAL]
    files: Annotated[dict[str, str], SETTING]
    #: Of a model that was trained elsewhere: SHA-256 of each file as it was handed over.
    given: Annotated[dict[str, str] | None, SETTING] = optional()
    ledger: Annotated[str, SETTING]

    @property
    def trained_epochs(self) -> float:
        """Number of epochs that the training ran."""
        return self.epoch if self.epochs_passed is None else self.epochs_passed

    @property
    def kept_after(self) -> float:
        """Number of epochs after which the model's weights were saved: those of the best epoch, or of the last if none
        was chosen."""
        return self.trained_epochs if self.best_epoch is None else min(self.best_epoch, self.trained_epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRules:
    """The rules that were fixed before the scores: when, their digest, who signed them, how many models had been scored
    before, how many were scored under them, and whether those are all models scored."""

    created: Annotated[str, SETTING]
    digest: Annotated[str, SETTING]
    signed_by: Annotated[str | None, SETTING] = optional()
    scored_before: Annotated[int, TOTAL]
    scored_after: Annotated[int, TOTAL]
    is_kept: Annotated[bool, SETTING]


@dataclass(frozen=True, slots=True, kw_only=True)
class DossierEvidence:
    """Published numbers, each with its n, interval and settings; digests, versions, and the command for the same."""

    format: Annotated[str, SETTING]
    created: Annotated[str, SETTING]
    declared: Annotated[Declared, PARTS]
    audit: Annotated[AuditEvidence, PARTS]
    models: Annotated[list[ModelUnderTest], PARTS]
    digests: Annotated[KeyedDigests, PARTS]
    #: SHA-256 over the files of the package that measured.
    code: Annotated[str, SETTING]
    versions: Annotated[dict[str, str], SETTING]
    command: Annotated[str, SETTING]
    #: None where no rules were fixed before the scores.
    rules: Annotated[FixedRules | None, PARTS] = optional()
    #: SHA-256 of the list of digests of the dossier that this one replaces.
    replaces: Annotated[str | None, SETTING] = None
    #: Fingerprint of the key that signed the folder, as ssh-keygen prints it.
    signed_by: Annotated[str | None, SETTING] = None
