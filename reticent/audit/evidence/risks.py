"""Evidence of the verdict by risk (:mod:`reticent.audit.judgement`): one row for a model, one result for a risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import NAME, OVER_INDIVIDUALS, PARTS, PRIVATE, SETTING
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskResult:
    """One risk of one model. ``what`` names the deciding number, ``found`` the number with the surest finding,
    whichever decides; the estimates are their values, if they may be published.

    ``number_at_most`` is the threshold of the deciding number, and ``found_at_most`` that of the other, if they have
    thresholds of their own in place of the risk's ``at_most``.
    """

    risk: Annotated[str, SETTING]
    relevant: Annotated[bool, SETTING]
    outcome: Annotated[str, SETTING]
    at_most: Annotated[float, SETTING]
    what: Annotated[str | None, NAME] = optional()
    reason: Annotated[str, NAME]
    estimate: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    #: The number that lies most surely above its value for a model that learned nothing; None if none does.
    found: Annotated[str | None, NAME] = optional()
    found_estimate: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    found_at_most: Annotated[float | None, SETTING] = optional()
    number_at_most: Annotated[float | None, SETTING] = optional()
    #: Notes on the outcome for the reader, in sentences without a full stop.
    notes: Annotated[list[str] | None, NAME] = optional()

    @property
    def deciding_threshold(self) -> float:
        """Upper limit that the deciding figure of this risk was compared with: the figure's own if it has one, else the
        limit of the risk."""
        return self.at_most if self.number_at_most is None else self.number_at_most

    @property
    def differs_in_threshold(self) -> bool:
        """Whether the deciding figure of this risk was compared with a limit of its own, which may be in another unit,
        instead of the limit of the risk."""
        return self.deciding_threshold != self.at_most


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
    notes: Annotated[list[str] | None, NAME] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskTable:
    """Every trained model at its last checkpoint, the origin of the thresholds, and the time when they were fixed."""

    #: Whether the job sets its own thresholds; otherwise they are the defaults of this version.
    own_thresholds: Annotated[bool, SETTING]
    fixed_before_training: Annotated[bool | None, SETTING] = optional()
    rows: Annotated[list[ModelRisks], PARTS]
    #: Version of the arithmetic that judged (`reticent.audit.judgement.verdict.ARITHMETIC`); None before the second.
    arithmetic: Annotated[int | None, SETTING] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOutcome:
    """The outcome of one risk of one training in an earlier audit of the run: by which numbers, of which files.

    ``digest`` is that of the model's files, and ``kin`` that of its training without the seed. ``explained`` is the
    job's explanation why it does not hold, if any.
    """

    model: Annotated[str | None, NAME] = optional()
    recipe: Annotated[str, NAME]
    epoch: Annotated[int, SETTING]
    digest: Annotated[str, SETTING]
    kin: Annotated[str | None, PRIVATE] = optional()
    risk: Annotated[str, SETTING]
    outcome: Annotated[str, SETTING]
    at_most: Annotated[float, SETTING]
    what: Annotated[str | None, NAME] = optional()
    numbers: Annotated[list[str], NAME]
    num_shadows: Annotated[int, SETTING] = 0
    seed: Annotated[int | None, PRIVATE] = optional()
    created: Annotated[str, SETTING]
    version: Annotated[str, SETTING]
    arithmetic: Annotated[int, SETTING]
    explained: Annotated[str | None, NAME] = optional()
