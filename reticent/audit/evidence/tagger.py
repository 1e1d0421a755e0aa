"""Evidence of the attack on a tagger: pairs of a name that it was trained on and one that it was not.

It stays in the folder of the attack: numbers without an interval are private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reticent.audit.evidence.json_form import nullable, optional
from reticent.audit.evidence.membership import Roc
from reticent.audit.evidence.rules import COUNT, NAME, OVER_INDIVIDUALS, PARTS, PRIVATE, SETTING, TOTAL
from reticent.audit.stats.estimate import Estimate

__all__ = [
    "BlindRates",
    "Coin",
    "PairRates",
    "PromptRates",
    "RankedList",
    "RankedRocs",
    "RatesByMentions",
    "TaggerChoices",
    "TaggerEvidence",
    "TaggerPrompt",
    "TaggerSide",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRates:
    """Accuracy of the pairs, and the adversarial advantage: of pairs, TPR - FPR is 2 · accuracy - 1."""

    accuracy: Annotated[Estimate, OVER_INDIVIDUALS]
    advantage: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindRates(PairRates):
    """The same without the model, by what the names look like."""

    auc: Annotated[float, PRIVATE]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRates(PairRates):
    """The same by the scores of one prompt, and where members stand in the list of all names."""

    average_precision: Annotated[Estimate, OVER_INDIVIDUALS]
    auc: Annotated[float, PRIVATE]
    expected_rank: Annotated[float, PRIVATE]
    expected_rank_exact: Annotated[float, PRIVATE]
    ties: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coin:
    """Accuracy of a coin: the expected one, and that of one drawn for each pair."""

    expected: Annotated[float, SETTING]
    drawn: Annotated[float, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRocs:
    """ROC curves of the list by mean and maximum over the prompts, and without the model."""

    mean: Annotated[Roc, PARTS]
    maximum: Annotated[Roc, PARTS]
    blind: Annotated[Roc, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedList:
    """Names of both kinds in one list: mean average precision over the prompts, and the ranking by the mean score."""

    map: Annotated[Estimate, OVER_INDIVIDUALS]
    average_precision_of_mean: Annotated[Estimate, OVER_INDIVIDUALS]
    auc_of_mean: Annotated[float, PRIVATE]
    expected_rank: Annotated[float, PRIVATE]
    expected_rank_exact: Annotated[float, PRIVATE]
    random: Annotated[float, TOTAL]
    roc: Annotated[RankedRocs, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerSide:
    """Everything that is measured on the development or the test pairs."""

    pairs: Annotated[int | None, COUNT]
    pairwise: Annotated[dict[str, PairRates], PARTS]
    coin: Annotated[Coin, PARTS]
    by_prompt: Annotated[tuple[PromptRates, ...], PARTS]
    by_utterance: Annotated[dict[str, Estimate], OVER_INDIVIDUALS]
    by_position: Annotated[dict[str, Estimate], OVER_INDIVIDUALS]
    list: Annotated[RankedList, PARTS]
    blind: Annotated[BlindRates, PARTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesByMentions:
    """Members that are mentioned from ``low`` to ``high`` times; None: or more often. Of few names there is no more
    than that they are few."""

    low: Annotated[int, SETTING]
    high: Annotated[int | None, SETTING] = nullable()
    #: Their number, or "under 5", as it is said where it is measured.
    names: Annotated[int | str, TOTAL]
    score: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    accuracy: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    advantage: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerChoices(PairRates):
    """The choices of the development pairs, measured on the test pairs. ``excess`` is what the tagger adds to what the
    names alone give away; only that counts where the two kinds are not ``matched``."""

    pairwise: Annotated[str, SETTING]
    blind_advantage: Annotated[Estimate, OVER_INDIVIDUALS]
    excess: Annotated[Estimate, OVER_INDIVIDUALS]
    ranking: Annotated[str, SETTING]
    average_precision: Annotated[Estimate, OVER_INDIVIDUALS]
    threshold: Annotated[float, PRIVATE]
    list_advantage: Annotated[Estimate, OVER_INDIVIDUALS]
    matched: Annotated[bool, SETTING]
    detectable: Annotated[float, PRIVATE]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerPrompt:
    """A text that the names were put in."""

    text: Annotated[str, NAME]
    utterance: Annotated[str, SETTING]
    position: Annotated[str, SETTING]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerEvidence:
    """Every number of the attack on one tagger; ``names`` counts what was kept and left out."""

    prompts: Annotated[list[TaggerPrompt], PARTS]
    names: Annotated[dict[str, int], COUNT]
    unit: Annotated[str, SETTING]
    dev: Annotated[TaggerSide, PARTS]
    test: Annotated[TaggerSide, PARTS]
    occurrences: Annotated[list[RatesByMentions], PARTS]
    verified: Annotated[TaggerChoices, PARTS]
    #: The meaning of the verified numbers, in plain words.
    reading: Annotated[list[str], PRIVATE]
