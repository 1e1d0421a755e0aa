"""Evidence of the attack on a tagger, over pairs of a name from its training set and a name that is not in it.

The evidence stays in the folder of the attack, and numbers without an interval are private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.membership import Roc
from reticent.audit.evidence.rules import COUNT, NAME, OVER_INDIVIDUALS, PARTS, PRIVATE, SETTING, TOTAL
from reticent.audit.stats.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRates:
    """Accuracy over the pairs, and the adversarial advantage, which for pairs is TPR - FPR = 2 · accuracy - 1."""

    accuracy: Annotated[Estimate, OVER_INDIVIDUALS]
    advantage: Annotated[Estimate, OVER_INDIVIDUALS]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindRates(PairRates):
    """Accuracy and advantage without the model, from the length and frequency of the names."""

    auc: Annotated[float, PRIVATE]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRates(PairRates):
    """Accuracy and advantage by the scores of one prompt, and the rank of members in the list of all names."""

    average_precision: Annotated[Estimate, OVER_INDIVIDUALS]
    auc: Annotated[float, PRIVATE]
    expected_rank: Annotated[float, PRIVATE]
    expected_rank_exact: Annotated[float, PRIVATE]
    ties: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coin:
    """Accuracy of a random choice: the expected value, and that of one random draw for each pair."""

    expected: Annotated[float, SETTING]
    drawn: Annotated[float, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRocs:
    """ROC curves of the list ranked by mean and by maximum over the prompts, and without the model."""

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
    """All measurements on the development pairs or on the test pairs."""

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
    """Members that are mentioned from ``low`` to ``high`` times (None: no upper limit). A group of few names has no
    numbers."""

    low: Annotated[int, SETTING]
    high: Annotated[int | None, SETTING] = None
    #: The number of names, or "under 5"; a small number is already withheld where it is measured.
    names: Annotated[int | str, TOTAL]
    score: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    accuracy: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()
    advantage: Annotated[Estimate | None, OVER_INDIVIDUALS] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerChoices(PairRates):
    """Choices made on the development pairs and measured on the test pairs. ``excess`` is the gain of the tagger over
    the names alone. If the two kinds of names are not ``matched``, only ``excess`` is meaningful."""

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
    """A text into which the names were inserted."""

    text: Annotated[str, NAME]
    utterance: Annotated[str, SETTING]
    position: Annotated[str, SETTING]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerEvidence:
    """All numbers of the attack on one tagger; ``names`` counts the names that were kept and left out."""

    prompts: Annotated[list[TaggerPrompt], PARTS]
    names: Annotated[dict[str, int], COUNT]
    unit: Annotated[str, SETTING]
    dev: Annotated[TaggerSide, PARTS]
    test: Annotated[TaggerSide, PARTS]
    occurrences: Annotated[list[RatesByMentions], PARTS]
    verified: Annotated[TaggerChoices, PARTS]
    #: The meaning of the verified numbers, in plain words.
    reading: Annotated[list[str], PRIVATE]
