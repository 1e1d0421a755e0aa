"""The whole evidence of an audit: the content of ``audit.json`` and, once published, of ``report.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from reticent.audit.config import AuditConfig
from reticent.audit.evidence.classification import ClassificationEvidence
from reticent.audit.evidence.corpus import CorpusEvidence
from reticent.audit.evidence.extraction import Extraction, Verdict
from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.membership import over_households
from reticent.audit.evidence.model import ModelEvidence
from reticent.audit.evidence.probe import ProbeEvidence
from reticent.audit.evidence.risks import KeptOutcome, RiskTable
from reticent.audit.evidence.rules import PARTS, SETTING, TOTAL, Settings, publish, settings_withheld
from reticent.audit.evidence.sampled import SampledRecall
from reticent.audit.job_settings import JobSettings
from reticent.audit.stats.estimate import Estimate

FORMAT = "reticent.audit/1"
#: The smallest published count of individuals, documents or identifiers; the job's ``audit.small_cell`` overrides it.
SMALL_CELL = 5

Row = TypeVar("Row", bound=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModels:
    """Models measured outside a job; each base model comes before the models trained from it."""

    settings: Annotated[Mapping[str, object], Settings(AuditConfig)]
    models: Annotated[list[ModelEvidence], PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvidence:
    """All results of an audit. They stay inside; `publish_audit` returns the part that may leave."""

    probe: Annotated[ProbeEvidence | None, PARTS] = optional()
    extraction: Annotated[Extraction | None, PARTS] = optional()
    #: Recall of detection in an annotated sample; None if no sample of these documents was annotated.
    sampled_recall: Annotated[SampledRecall | None, PARTS] = optional()
    #: The verdict by risk, made from the published numbers; None in an audit that stays inside.
    risks: Annotated[RiskTable | None, PARTS] = optional()
    #: Outcomes that earlier audits of this run found, each once.
    earlier: Annotated[list[KeptOutcome] | None, PARTS] = optional()
    #: F1 of the downstream task, one result for each model of the job.
    classification: Annotated[list[ClassificationEvidence] | None, PARTS] = optional()
    format: Annotated[str, SETTING]
    created: Annotated[str, SETTING]
    versions: Annotated[dict[str, str], SETTING]
    settings: Annotated[Mapping[str, object], Settings(JobSettings)]
    corpus: Annotated[CorpusEvidence, PARTS]
    models: Annotated[list[ModelEvidence], PARTS]
    #: Classifiers and taggers that were trained on top of the models.
    heads: Annotated[list[ModelEvidence] | None, PARTS] = optional()
    verdict: Annotated[Verdict | None, PARTS] = optional()
    #: The small-cell threshold of this publication; None in an audit that stays inside.
    small_cell: Annotated[int | None, SETTING] = optional()
    #: Number of settings that are not published (:mod:`reticent.core.section`); None for none.
    num_settings_withheld: Annotated[int | None, TOTAL] = optional()
    #: Means over the trainings of each recipe, if there are several; `models` has the single trainings.
    over_seeds: Annotated[list[ModelEvidence] | None, PARTS] = optional()

    @property
    def every_model(self) -> list[ModelEvidence]:
        """All models that are judged: language models, then classifiers and taggers."""
        return [*self.models, *(self.heads or ())]

    @property
    def over_households(self) -> Estimate | None:
        """The AUC over the most households, among all membership attacks whose confidence interval resamples
        households; None if all intervals resample individuals."""
        return over_households(attack for model in self.every_model for attack in model.membership.values())

    @property
    def cell(self) -> int:
        """Smallest number of individuals about whom a count is published: the job's ``small_cell``, or the default."""
        settings = self.settings.get("audit")
        return int(settings.get("small_cell") or SMALL_CELL) if isinstance(settings, Mapping) else SMALL_CELL


def publish_audit(audit: AuditEvidence) -> AuditEvidence:
    """Return a publishable copy of the audit: small counts are withheld, paths shortened, seeds removed, as the rule of
    each field says (:mod:`reticent.audit.evidence.rules`).

    Small cells are withheld, distributions show no single individual, paths are shortened, and seeds are removed.
    Several trainings are numbered instead. Settings that their marks withhold are only counted.
    """
    with_settings = (audit, *(audit.classification or ()), *([audit.probe] if audit.probe else ()))
    withheld = sum(settings_withheld(part) for part in with_settings) + (audit.num_settings_withheld or 0)
    shown = publish(_number_trainings(audit), audit.cell)
    return replace(shown, small_cell=audit.cell, num_settings_withheld=withheld or None)


def _number_trainings(audit: AuditEvidence) -> AuditEvidence:
    """Return the audit with the trainings of each model numbered 1, 2, … in the field ``training``. The numbers replace
    the seeds, which are not published."""
    seeds: dict[str | None, dict[int, int]] = {}

    def numbered(rows: Sequence[Row]) -> list[Row]:
        """Return the rows, each with a number in its field ``training`` that stands for its seed: 1 for the first seed
        of a model, 2 for the next, and so on."""
        result = []
        for row in rows:
            if row.seed is not None:
                known = seeds.setdefault(row.model, {})
                row = replace(row, training=known.setdefault(row.seed, len(known) + 1))
            result.append(row)
        return result

    audit = replace(audit, models=numbered(audit.models), heads=audit.heads and numbered(audit.heads))
    if audit.extraction is not None:
        audit = replace(audit, extraction=replace(audit.extraction, models=numbered(audit.extraction.models)))
    if audit.verdict is not None:
        audit = replace(audit, verdict=replace(audit.verdict, results=numbered(audit.verdict.results)))
    return audit
