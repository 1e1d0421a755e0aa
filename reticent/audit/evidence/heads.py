"""Evidence of classifiers and taggers alone: attributes and names of members that can be inferred from one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reticent.audit.evidence.leakage import Excess
from reticent.audit.evidence.rules import OVER_INDIVIDUALS, PARTS, TOTAL
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldAttribute:
    """How often an attribute is inferred right, of members and of held-out individuals: its true value makes the true
    label likelier than any alternative does. ``label_only`` infers from the predicted label alone. ``chance`` is the
    rate of a random guess."""

    logits: Annotated[Excess, PARTS]
    label_only: Annotated[Excess, PARTS]
    chance: Annotated[float, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldNames:
    """Pairs of a member's name and a name that is not in the training data: the rate at which the tagger identifies the
    member's name, that of the names alone without the tagger, and 0.5 plus the difference of the two."""

    told: Annotated[Estimate, OVER_INDIVIDUALS]
    blind: Annotated[Estimate, OVER_INDIVIDUALS]
    over_blind: Annotated[Estimate, OVER_INDIVIDUALS]
