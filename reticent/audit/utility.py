"""Utility: how well a model predicts ordinary text, on held-out individuals first (PROTOCOLS §4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reticent.audit.forward import TokenScores
from reticent.audit.slots import Slots
from reticent.audit.statistics import Estimate, ratio_estimate

__all__ = ["utility"]


def utility(
    objective: str,
    scores: TokenScores,
    input_ids: np.ndarray,
    slots: Slots,
    flags: np.ndarray,
    individual_of_token: np.ndarray,
    chosen: np.ndarray,
    *,
    num_bootstrap: int,
    seed: int,
) -> dict[str, Any]:
    """Return the utility of one side as Estimates, intervals clustered by individual.

    Parameters
    ----------
    objective : "mlm" gives masked_word_accuracy (all tokens of the word right at once) and masked_token_accuracy; "clm"
        gives token_accuracy and perplexity. Both also on *ordinary* text: words and tokens that identify nobody
        (``flags`` 0), which is what a protected model is meant to learn
    flags : uint8 array, shape (num_tokens,)
    individual_of_token : uint32 array, shape (num_tokens,)
    chosen : bool array, shape (num_tokens,), the tokens of this side
    """
    scored = scores.scored & chosen
    codes = np.unique(individual_of_token[chosen])
    options: dict[str, Any] = {"num_bootstrap": num_bootstrap, "seed": seed}

    def rate(values: np.ndarray, individuals: np.ndarray, limit: float | None = 1.0) -> Estimate:
        row = np.searchsorted(codes, individuals)
        totals = np.bincount(row, weights=values, minlength=len(codes))
        return ratio_estimate(totals, np.bincount(row, minlength=len(codes)), limit=limit, **options)

    def perplexity(tokens: np.ndarray) -> Estimate:
        return _exp(rate(-scores.log_probs[tokens].astype(np.float64), individual_of_token[tokens], limit=None))

    right = scores.argmax == input_ids
    token_accuracy = rate(right[scored], individual_of_token[scored])
    if objective == "clm":
        ordinary = scored & (flags == 0)
        return {
            "ordinary_token_accuracy": rate(right[ordinary], individual_of_token[ordinary]).to_dict(),
            "token_accuracy": token_accuracy.to_dict(),
            "ordinary_perplexity": perplexity(ordinary).to_dict(),
            "perplexity": perplexity(scored).to_dict(),
        }
    # A word is right when every one of its tokens is: compare running sums at its ends.
    running = np.concatenate([[0], np.cumsum(right)])
    words_right = running[slots.starts + slots.lengths] - running[slots.starts] == slots.lengths
    ours = scored[slots.starts] if len(slots) else np.empty(0, dtype=bool)
    ordinary_words = ours & (slots.flags == 0)
    return {
        "ordinary_word_accuracy": rate(words_right[ordinary_words], slots.individuals[ordinary_words]).to_dict(),
        "masked_word_accuracy": rate(words_right[ours], slots.individuals[ours]).to_dict(),
        "masked_token_accuracy": token_accuracy.to_dict(),
    }


def _exp(loss: Estimate) -> Estimate:
    def exp(value: float | None) -> float | None:
        return None if value is None else float(np.exp(value))

    return replace(loss, value=exp(loss.value), low=exp(loss.low), high=exp(loss.high))
