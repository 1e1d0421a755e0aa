"""The tagger attack on a tagger of a run: names of its members paired with names that its training data has not.

The nine prompts, the strategies and the blind baseline are those of :mod:`reticent.ext.tagger`: a strategy is chosen on
one half of the pairs and measured on the other, and a pair is one individual of each side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reticent.audit.evidence.heads import ToldNames
from reticent.audit.stats.estimate import CHANCE, Estimate
from reticent.ext.tagger.prompts import FRENCH_PROMPTS, PROMPTS
from reticent.ext.tagger.result import evaluate_attack
from reticent.ext.tagger.scores import score_names
from reticent.ext.tagger.sets import AttackSet


def attack_names(
    model: Any,
    tokenizer: Any,
    names: AttackSet,
    *,
    language: str,
    device: str,
    num_bootstrap: int,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> ToldNames:
    """Attack a tagger by its scores of names in prompt sentences. Return how often the member's name of a pair scores
    higher than the held-out name, and how much better that is than a guess from the names alone.

    ``model`` has labels of the category NAME; ``language`` is that of the prompts.
    """
    prompts = FRENCH_PROMPTS if language == "fr" else PROMPTS
    scores = score_names(model, tokenizer, names.names, prompts, labels=("NAME",), device=device, progress=progress)
    found = evaluate_attack(scores, names, prompts, num_bootstrap=num_bootstrap, seed=seed).verified
    return ToldNames(
        told=_count_individuals(found.accuracy),
        blind=_count_individuals(_as_accuracy(found.blind_advantage)),
        over_blind=_count_individuals(_as_accuracy(found.excess)),
    )


def _as_accuracy(advantage: Estimate) -> Estimate:
    """Return an advantage (accuracy above chance, scaled to -1 to 1), or a difference of two, with its interval on the
    scale of an accuracy: 0.5 plus half of it.
    """
    value, low, high = (
        None if end is None else CHANCE + end / 2 for end in (advantage.value, advantage.low, advantage.high)
    )
    return replace(advantage, value=value, low=low, high=high)


def _count_individuals(estimate: Estimate) -> Estimate:
    """Return an estimate over pairs of individuals with its sample size in individuals, which is twice the number of
    pairs. Value and interval stay the same.
    """
    return replace(estimate, unit="individuals", n=2 * (estimate.n or 0))
