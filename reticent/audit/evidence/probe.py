"""Evidence of probes with individuals' own items (ProPILE): estimates over subjects and trimmed curves, but no item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from reticent.audit.config import ProbeConfig, SoftPromptStudy
from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import COUNT, NAME, OVER_INDIVIDUALS, PARTS, PATH, SETTING, TOTAL, Settings
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """Wilcoxon's signed-rank test."""

    statistic: Annotated[float | None, TOTAL] = None
    p_value: Annotated[float | None, TOTAL] = None
    n: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """A density between the small cell's lowest and highest subject; its tails were cut when it was made."""

    x: Annotated[list[float], TOTAL]
    y: Annotated[list[float], TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class Densities:
    """Densities of the log-likelihoods of the true items and of the null."""

    true: Annotated[Density, PARTS]
    null: Annotated[Density, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodComparison:
    """True items against the null, which is another subject's item with the same prompt."""

    true: Annotated[Estimate, OVER_INDIVIDUALS]
    null: Annotated[Estimate, OVER_INDIVIDUALS]
    log_true: Annotated[Estimate, OVER_INDIVIDUALS]
    log_null: Annotated[Estimate, OVER_INDIVIDUALS]
    factor: Annotated[Estimate, OVER_INDIVIDUALS]
    above_null: Annotated[Estimate, OVER_INDIVIDUALS]
    test: Annotated[PairedTest, PARTS]
    published_test: Annotated[PairedTest, PARTS]
    density: Annotated[Densities, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureAt:
    """Share of subjects whose item has a likelihood over 1/k, true and null, and the probability within k draws."""

    k: Annotated[int, SETTING]
    true: Annotated[Estimate, OVER_INDIVIDUALS]
    null: Annotated[Estimate, OVER_INDIVIDUALS]
    within: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByTemplates:
    """Exposure and exact match with the first ``num_templates`` templates only."""

    num_templates: Annotated[int, SETTING]
    exact_match: Annotated[Estimate, OVER_INDIVIDUALS]
    exposed_100: Annotated[Estimate, OVER_INDIVIDUALS]
    log_likelihood: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconditional:
    """Likelihood of the true items without a prompt: an item is linked if it is likelier after the individual's other
    items (definition 1)."""

    n: Annotated[int | None, COUNT]
    log_alone: Annotated[Estimate, OVER_INDIVIDUALS]
    factor: Annotated[Estimate, OVER_INDIVIDUALS]
    linked: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Share of subjects whose item is among N sampled answers to each of K prompts, and the share expected from the
    likelihoods."""

    num_draws: Annotated[int, SETTING]
    found: Annotated[Estimate, OVER_INDIVIDUALS]
    promised: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldoutProbe:
    """The same probe of held-out individuals; ``factor`` is None for a server that gives no probabilities."""

    n: Annotated[int | None, COUNT]
    factor: Annotated[Estimate | None, OVER_INDIVIDUALS]
    exact_match: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The probe of one model for one type of item at one level; ``withheld`` is the reason if there is no number."""

    target: Annotated[str, NAME]
    level: Annotated[str, SETTING]
    n: Annotated[int | None, COUNT]
    num_templates: Annotated[int, SETTING]
    templates: Annotated[list[str], NAME]
    counts: Annotated[dict[str, int | None], COUNT]
    target_tokens: Annotated[float | None, TOTAL] = None
    withheld: Annotated[str | None, NAME] = optional()
    likelihood: Annotated[LikelihoodComparison | None, PARTS] = optional()
    normalised: Annotated[LikelihoodComparison | None, PARTS] = optional()
    gamma: Annotated[list[ExposureAt] | None, PARTS] = optional()
    matches: Annotated[dict[str, dict[str, Estimate]] | None, OVER_INDIVIDUALS] = optional()
    exact_match: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    by_num_templates: Annotated[list[ByTemplates] | None, PARTS] = optional()
    unconditional: Annotated[Unconditional | None, PARTS] = optional()
    drawn: Annotated[Drawn | None, PARTS] = optional()
    heldout: Annotated[HeldoutProbe | None, PARTS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The same probes before and after a soft prompt."""

    n: Annotated[int | None, COUNT]
    likelihood_before: Annotated[Estimate, OVER_INDIVIDUALS]
    likelihood_after: Annotated[Estimate, OVER_INDIVIDUALS]
    factor: Annotated[Estimate, OVER_INDIVIDUALS]
    exact_match_before: Annotated[Estimate, OVER_INDIVIDUALS]
    exact_match_after: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRow(Comparison):
    """The first model's soft prompt, as text, in another model."""

    target: Annotated[str, NAME]
    level: Annotated[str, SETTING]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftPromptRow(Comparison):
    """One variant of a soft prompt; ``sweep`` names the setting that differs from the first variant."""

    sweep: Annotated[str, SETTING]
    best_epoch: Annotated[int, SETTING]
    num_subjects: Annotated[int, SETTING]
    num_tokens: Annotated[int, SETTING]
    init: Annotated[str, SETTING]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftPromptResult(SoftPromptRow):
    """A soft prompt for one type of item, and its variants."""

    target: Annotated[str, NAME]
    level: Annotated[str, SETTING]
    template: Annotated[str, NAME]
    evaluated: Annotated[int | None, COUNT]
    sweeps: Annotated[list[SoftPromptRow], PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedModel:
    """All probes of one model."""

    name: Annotated[str, PATH]
    recipe: Annotated[str, PATH]
    objective: Annotated[str, SETTING]
    num_parameters: Annotated[int | None, TOTAL] = optional()
    results: Annotated[list[ProbeResult], PARTS]
    soft_prompts: Annotated[list[SoftPromptResult] | None, PARTS] = optional()
    transfer: Annotated[list[TransferRow] | None, PARTS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedSubjects:
    """The number of probed subjects, and the types of items that they have."""

    num: Annotated[int | None, COUNT]
    types: Annotated[list[str], NAME]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAsked:
    """A type of item without a template."""

    target: Annotated[str, NAME]
    level: Annotated[str, SETTING]


class ProbeSettings(ProbeConfig):
    """Settings that are kept with the results of a probe; of a soft prompt, those of its study."""

    soft_prompt: SoftPromptStudy | None = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEvidence:
    """A probe of several models."""

    format: Annotated[str, SETTING]
    settings: Annotated[Mapping[str, object], Settings(ProbeSettings)]
    subjects: Annotated[ProbedSubjects, PARTS]
    not_asked: Annotated[list[NotAsked], PARTS]
    source: Annotated[str | None, PATH] = None
    models: Annotated[list[ProbedModel], PARTS]
