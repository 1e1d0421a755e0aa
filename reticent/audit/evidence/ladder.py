"""Evidence of the clinical ladder: diagnoses of members that a model reveals, by what an adversary knows of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.leakage import Excess
from reticent.audit.evidence.rules import COUNT, OVER_INDIVIDUALS, PARTS, SETTING, TOTAL
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldDiagnoses:
    """One cell of the ladder: how well the model separates members with a diagnosis from members without it, less the
    same of held-out individuals and of the base model, as a mean over diagnoses (0: nothing is revealed).

    ``placebo`` is the same of diagnoses that are in the record but in no text. ``cue_only`` is that of a classifier
    from the adversary's knowledge to the diagnosis, trained on others, and ``out_shadows`` that of shadow models that
    were not trained on the individual: both are 0 if the two sides are alike.
    """

    told: Annotated[Estimate, OVER_INDIVIDUALS]
    placebo: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    cue_only: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    out_shadows: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    #: Diagnoses of the mean, and those that fewer than the fewest individuals of a side have, or have not.
    num_diagnoses: Annotated[int, TOTAL]
    num_too_few: Annotated[int, TOTAL]
    #: Individuals of the smallest group that is compared.
    fewest: Annotated[int | None, COUNT] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Diagnoses of members that a model reveals, by what an adversary knows (`reticent.audit.membership.names.RUNGS`);
    the intervals of all differences are simultaneous."""

    #: Whether the base model was measured in the same way, and is subtracted.
    less_base: Annotated[bool, SETTING]
    sensitive: Annotated[dict[str, ToldDiagnoses], PARTS]
    other: Annotated[dict[str, ToldDiagnoses], PARTS]
    #: Ends of fragments that few individuals share, which a causal model writes word for word and the base does not.
    verbatim: Annotated[dict[str, Excess], PARTS]
    #: The same of sentences that many individuals of either side share, which reveal nobody.
    templates: Annotated[dict[str, Excess], PARTS]
