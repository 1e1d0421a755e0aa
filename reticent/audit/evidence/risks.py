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
    """One risk of one model. ``what`` names the deciding number; ``estimate`` is its value, if it may leave.

    ``number_at_most`` is the threshold of that number, if it has one of its own beside ``at_most`` of the risk."""

    risk: Annotated[str, SETTING]
    relevant: Annotated[bool, SETTING]
    outcome: Annotated[str, SETTING]
    at_most: Annotated[float, SETTING]
    what: Annotated[str | None, NAME] = optional()
    reason: Annotated[str, NAME]
    estimate: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    number_at_most: Annotated[float | None, SETTING] = optional()


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
