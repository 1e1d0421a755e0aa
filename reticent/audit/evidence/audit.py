"""The whole evidence of an audit: the content of ``audit.json`` and, once published, of ``report.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

from reticent.audit.evidence.classification import ClassificationEvidence
from reticent.audit.evidence.corpus import CorpusEvidence
from reticent.audit.evidence.extraction import Extraction, Verdict
from reticent.audit.evidence.inversion import Inversion
from reticent.audit.evidence.json_form import nullable, optional
from reticent.audit.evidence.leakage import (
    AllOccurrences,
    CategoryPrivacy,
    Excess,
    Generated,
    Ledger,
    LowCost,
    NgramPrivacy,
    Part,
    Privacy,
    Utility,
)
from reticent.audit.evidence.membership import (
    BestAttack,
    Blind,
    KindMembership,
    MeasuredAttack,
    ThresholdMembership,
    are_enough,
    over_households,
)
from reticent.audit.evidence.probe import ProbeEvidence
from reticent.audit.evidence.risks import RiskTable
from reticent.audit.evidence.rules import NAME, PARTS, PRIVATE, SETTING, SETTINGS, TOTAL, Settings, publish
from reticent.audit.evidence.sampled import SampledRecall
from reticent.audit.evidence.settings import published_settings
from reticent.audit.stats.estimate import Estimate

__all__ = [
    "FORMAT",
    "SMALL_CELL",
    "AuditEvidence",
    "MeasuredModels",
    "ModelEvidence",
    "publish_audit",
]

FORMAT = "reticent.audit/1"
#: The smallest published count of individuals, documents or identifiers; the job's ``audit.small_cell`` overrides it.
SMALL_CELL = 5

Row = TypeVar("Row", bound=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEvidence:
    """All measurements of one checkpoint, or of a base model (recipe "base", epoch 0)."""

    model: Annotated[str | None, NAME] = optional()
    name: Annotated[str, NAME]
    recipe: Annotated[str, NAME]
    objective: Annotated[str, SETTING]
    epoch: Annotated[int, SETTING]
    seed: Annotated[int | None, PRIVATE] = optional()
    #: Number of the training, from 1, if there are several; it stands in for the seed, which is not published.
    training: Annotated[int | None, SETTING] = optional()
    #: Number of trainings in this mean (:mod:`reticent.audit.stats.seeds`); None for a single training.
    num_trainings: Annotated[int | None, SETTING] = optional()
    ledger: Annotated[Ledger | None, PARTS] = nullable()
    #: Differential privacy guarantee of this training, with its unit.
    guarantee: Annotated[str | None, NAME] = optional()
    utility: Annotated[Utility, PARTS]
    privacy: Annotated[dict[Part, Privacy], PARTS]
    privacy_by_n: Annotated[dict[str, NgramPrivacy] | None, PARTS] = optional()
    by_category: Annotated[dict[str, CategoryPrivacy] | None, PARTS] = optional()
    excess: Annotated[dict[Part, Excess] | None, PARTS] = optional()
    over_base: Annotated[dict[Part, Excess] | None, PARTS] = optional()
    membership: Annotated[dict[str, MeasuredAttack], PARTS] = field(default_factory=dict)
    best_attack: Annotated[BestAttack | None, PARTS] = optional()
    #: Kind of word -> membership by words of that kind alone.
    by_kind: Annotated[dict[str, KindMembership] | None, PARTS] = optional()
    #: Membership of an individual by words at the threshold, in the texts of others.
    threshold: Annotated[ThresholdMembership | None, PARTS] = optional()
    blind: Annotated[Blind | None, PARTS] = optional()
    blind_holdout: Annotated[Blind | None, PARTS] = optional()
    low_cost: Annotated[LowCost | None, PARTS] = optional()
    all_occurrences: Annotated[AllOccurrences | None, PARTS] = optional()
    generated: Annotated[Generated | None, PARTS] = optional()
    inversion: Annotated[Inversion | None, PARTS] = optional()

    def closed(self, raw: ModelEvidence, cell: int) -> ModelEvidence:
        """Withhold attacks on few individuals of a side, and the intervals of attacks that are not published."""
        attacks = {
            name: attack
            for (name, attack), measured in zip(self.membership.items(), raw.membership.values(), strict=True)
            if are_enough(measured, cell)
        }
        best = self.best_attack if self.best_attack and self.best_attack.attack in attacks else None
        if best and raw.best_attack and raw.best_attack.intervals is not None:
            kept = {name: ends for name, ends in raw.best_attack.intervals.items() if name in attacks}
            best = replace(best, intervals=kept)
        blind, of_holdout = (
            own if measured and are_enough(measured, cell) else None
            for own, measured in ((self.blind, raw.blind), (self.blind_holdout, raw.blind_holdout))
        )
        return replace(self, membership=attacks, best_attack=best, blind=blind, blind_holdout=of_holdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModels:
    """Models measured outside a job; each base model comes before the models trained from it."""

    settings: Annotated[Mapping[str, object], Settings("audit")]
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
    #: F1 of the downstream task, one result for each model of the job.
    classification: Annotated[list[ClassificationEvidence] | None, PARTS] = optional()
    format: Annotated[str, SETTING]
    created: Annotated[str, SETTING]
    versions: Annotated[dict[str, str], SETTING]
    settings: Annotated[Mapping[str, object], SETTINGS]
    corpus: Annotated[CorpusEvidence, PARTS]
    models: Annotated[list[ModelEvidence], PARTS]
    verdict: Annotated[Verdict | None, PARTS] = optional()
    #: The small-cell threshold of this publication; None in an audit that stays inside.
    small_cell: Annotated[int | None, SETTING] = optional()
    #: Number of settings that are not on the list of published ones; None for none.
    num_settings_withheld: Annotated[int | None, TOTAL] = optional()
    #: Means over the trainings of each recipe, if there are several; `models` has the single trainings.
    over_seeds: Annotated[list[ModelEvidence] | None, PARTS] = optional()

    @property
    def over_households(self) -> Estimate | None:
        """The area of membership over most households; None if intervals resample individuals."""
        return over_households(attack for model in self.models for attack in model.membership.values())

    @property
    def cell(self) -> int:
        """The job's small-cell threshold."""
        settings = self.settings.get("audit")
        return int(settings.get("small_cell") or SMALL_CELL) if isinstance(settings, Mapping) else SMALL_CELL


def publish_audit(audit: AuditEvidence) -> AuditEvidence:
    """Return the published audit: every field by its rule (:mod:`reticent.audit.evidence.rules`).

    Small cells are withheld, distributions show no single individual, paths are shortened, and seeds are removed.
    Several trainings are numbered instead. Settings that are not on the list of published ones are only counted.
    """
    _, num_unknown = published_settings(audit.settings)
    if audit.probe is not None:
        num_unknown += published_settings(audit.probe.settings, "probe")[1]
    num_unknown += audit.num_settings_withheld or 0
    shown = publish(_numbered(audit), audit.cell)
    return replace(shown, small_cell=audit.cell, num_settings_withheld=num_unknown or None)


def _numbered(audit: AuditEvidence) -> AuditEvidence:
    """The audit with the field ``training`` set, from 1 in their order, for models with several trainings."""
    seeds: dict[str | None, dict[int, int]] = {}

    def numbered(rows: Sequence[Row]) -> list[Row]:
        result = []
        for row in rows:
            if row.seed is not None:
                known = seeds.setdefault(row.model, {})
                row = replace(row, training=known.setdefault(row.seed, len(known) + 1))
            result.append(row)
        return result

    audit = replace(audit, models=numbered(audit.models))
    if audit.extraction is not None:
        audit = replace(audit, extraction=replace(audit.extraction, models=numbered(audit.extraction.models)))
    if audit.verdict is not None:
        audit = replace(audit, verdict=replace(audit.verdict, results=numbered(audit.verdict.results)))
    return audit
