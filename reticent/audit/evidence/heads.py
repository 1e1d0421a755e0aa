"""Evidence of classifiers and taggers alone: attributes and names that one tells of its members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reticent.audit.evidence.leakage import Excess
from reticent.audit.evidence.rules import OVER_INDIVIDUALS, PARTS, TOTAL
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldAttribute:
    """How often the true value of an attribute makes the true label likelier than any alternative does, of members and
    of held-out individuals; ``label_only`` is the same by whether the label given is the true one. ``chance`` is the
    share that is right by chance.
    """

    logits: Annotated[Excess, PARTS]
    label_only: Annotated[Excess, PARTS]
    chance: Annotated[float, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldNames:
    """Pairs of a member's name and a name that is not in the training data: the share in which the tagger tells which
    is which, that of the names alone, and 0.5 and the difference of the two.
    """

    told: Annotated[Estimate, OVER_INDIVIDUALS]
    blind: Annotated[Estimate, OVER_INDIVIDUALS]
    over_blind: Annotated[Estimate, OVER_INDIVIDUALS]
