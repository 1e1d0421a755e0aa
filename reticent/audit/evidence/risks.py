"""Evidence of the verdict by risk (:mod:`reticent.audit.judgement`): one row for a model, one result for a risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import NAME, OVER_INDIVIDUALS, PARTS, SETTING
from reticent.audit.stats.estimate import Estimate

__all__ = ["ModelRisks", "RiskResult", "RiskTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskResult:
    """One risk of one model. ``what`` names the deciding number, ``found`` that which was found most surely, whatever
    decides; the estimates are their values, if they may leave.
    """

    risk: Annotated[str, SETTING]
    relevant: Annotated[bool, SETTING]
    outcome: Annotated[str, SETTING]
    at_most: Annotated[float, SETTING]
    what: Annotated[str | None, NAME] = optional()
    reason: Annotated[str, NAME]
    estimate: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    #: The number that lies most surely over what there would be if nothing was learned; none where none does.
    found: Annotated[str | None, NAME] = optional()
    found_estimate: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRisks:
    """The verdict on one model: the worst of its relevant risks, the reason, and the change that would improve it."""

    model: Annotated[str | None, NAME] = optional()
    recipe: Annotated[str, NAME]
    objective: Annotated[str, SETTING]
    epoch: Annotated[int, SETTING]
    outcome: Annotated[str, SETTING]
    reason: Annotated[str, NAME]
    change: Annotated[str, NAME]
    results: Annotated[list[RiskResult], PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskTable:
    """Every trained model at its last checkpoint, the origin of the thresholds, and the time when they were fixed."""

    #: Whether the job sets its own thresholds; otherwise they are the defaults of this version.
    own_thresholds: Annotated[bool, SETTING]
    fixed_before_training: Annotated[bool | None, SETTING] = optional()
    rows: Annotated[list[ModelRisks], PARTS]
