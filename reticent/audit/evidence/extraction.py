"""Evidence of extraction: reproduced training text, canaries, and the verdict of the gates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.leakage import Excess, Exposed, Sides
from reticent.audit.evidence.rules import NAME, OVER_INDIVIDUALS, PARTS, PRIVATE, SETTING, TOGETHER, TOTAL
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun:
    """The lower bound on epsilon from one training, and the largest bound that so many guesses can give."""

    num_canaries: Annotated[int, TOTAL]
    num_guesses: Annotated[int, TOTAL]
    num_right: Annotated[int, TOTAL]
    delta: Annotated[float, SETTING]
    level: Annotated[float, SETTING]
    at_least: Annotated[float | None, TOTAL] = None
    most: Annotated[float | None, TOTAL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InAndOut:
    """An estimate over the included canaries, and one over the others."""

    included: Annotated[Estimate, OVER_INDIVIDUALS]
    excluded: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryArm:
    """Canaries of one kind. They belong to no individual, so their counts are not small cells; their estimates are
    withheld by the small cell all the same."""

    num_included: Annotated[int, TOTAL]
    exposure: Annotated[InAndOut, PARTS]
    excess_exposure: Annotated[Estimate | None, OVER_INDIVIDUALS] = None
    num_best: Annotated[int, TOTAL]
    one_run: Annotated[OneRun, PARTS]
    extracted: Annotated[InAndOut | None, PARTS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """Every arm of the canaries of one model."""

    num_references: Annotated[int, SETTING]
    most_exposure: Annotated[float, SETTING]
    arms: Annotated[dict[str, CanaryArm], PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageSettings:
    """Settings of the extraction of passages."""

    prefix_tokens: Annotated[list[int], SETTING]
    suffix_tokens: Annotated[int, SETTING]
    decoding: Annotated[str, NAME]
    num_queries: Annotated[list[int], SETTING]
    probability: Annotated[float, SETTING]
    num_passages: Annotated[int, SETTING]
    #: Edit similarity from which a passage counts as near-verbatim; None: not asked.
    near_verbatim: Annotated[float | None, SETTING] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageRate(Excess):
    """The share of passages that the model reproduced, by one measure."""

    measure: Annotated[str, SETTING]
    prefix_tokens: Annotated[int | None, SETTING] = optional()
    num_queries: Annotated[int | None, SETTING] = None
    asked: Annotated[str, SETTING]
    probability: Annotated[float | None, SETTING] = optional()

    def withhold_small_counts(self, raw: Excess, cell: int) -> PassageRate:
        """Return a publishable copy of the rate of reproduced passages: a bound, or nothing, if fewer than ``cell``
        individuals are behind it. ``raw`` has the unpublished rate."""
        kept = Excess.withhold_small_counts(self.as_shares(cell), raw, cell)
        assert isinstance(kept, PassageRate)
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
    """Passages of both sides that were tested, those too short to test, and the rates of reproduction."""

    settings: Annotated[PassageSettings | None, PARTS] = optional()
    num_passages: Annotated[Sides, PARTS]
    num_short: Annotated[Sides, PARTS]
    rates: Annotated[list[PassageRate], PARTS]
    #: Whether every member with a document that is long enough was asked.
    asks_every_member: Annotated[bool | None, SETTING] = optional()
    #: Individuals of whom a whole passage that one side alone has comes back, and not from the base model.
    exposed: Annotated[Exposed | None, PARTS] = optional()
    #: (document, individual, whether a member, whether it came back) of each passage of one side alone.
    of_one_side: Annotated[list[list[int]] | None, PRIVATE] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedModel:
    """Canaries and passages of one model."""

    model: Annotated[str | None, NAME] = optional()
    recipe: Annotated[str | None, NAME] = optional()
    objective: Annotated[str | None, SETTING] = optional()
    seed: Annotated[int | None, PRIVATE] = optional()
    #: Number of the training, from 1, if there are several; it stands in for the seed, which is not published.
    training: Annotated[int | None, SETTING] = optional()
    epoch: Annotated[int | None, SETTING] = optional()
    canaries: Annotated[Canaries | None, PARTS] = None
    passages: Annotated[Passages | None, PARTS] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """Extraction from every model; models with ``has_canaries`` must not be released."""

    has_canaries: Annotated[bool | None, SETTING] = optional()
    models: Annotated[list[ExtractedModel], PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """One gate on one number: its subject, the bound, the outcome."""

    gate: Annotated[int | None, SETTING] = optional()
    measure: Annotated[str | None, SETTING] = optional()
    at_most: Annotated[float | None, SETTING] = optional()
    required: Annotated[bool | None, SETTING] = optional()
    model: Annotated[str | None, NAME] = optional()
    recipe: Annotated[str | None, NAME] = optional()
    seed: Annotated[int | None, PRIVATE] = optional()
    training: Annotated[int | None, SETTING] = optional()
    epoch: Annotated[int | None, SETTING] = optional()
    part: Annotated[str | None, SETTING] = optional()
    attack: Annotated[str | None, NAME] = optional()
    arm: Annotated[str | None, SETTING] = optional()
    prefix_tokens: Annotated[int | None, SETTING] = optional()
    num_queries: Annotated[int | None, SETTING] = optional()
    upper: Annotated[float | None, TOGETHER] = None
    #: Set for a measure that is only bounded from below: epsilon of canaries.
    at_least: Annotated[float | None, TOTAL] = optional()
    outcome: Annotated[str, SETTING]
    reason: Annotated[str | None, NAME] = optional()
    n: Annotated[int | None, TOGETHER] = None
    unit: Annotated[str | None, SETTING] = optional()

    def withhold_small_counts(self, raw: GateResult, cell: int) -> GateResult:
        """Return a publishable copy of the result of a gate (a limit set by the job): the upper bound and the number of
        individuals n are taken from the unpublished ``raw``, unless n is from 1 to ``cell`` - 1."""
        return self if raw.n is not None and 0 < raw.n < cell else replace(self, n=raw.n, upper=raw.upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The worst outcome of all gates, whether the run fails, and the result of each gate."""

    fixed_before_training: Annotated[bool | None, SETTING] = optional()
    outcome: Annotated[str | None, SETTING] = None
    failed: Annotated[bool | None, SETTING] = optional()
    results: Annotated[list[GateResult], PARTS]
