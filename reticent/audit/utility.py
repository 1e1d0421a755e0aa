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
        gives token_accuracy and perplexity
    individual_of_token : uint32 array, shape (num_tokens,)
    chosen : bool array, shape (num_tokens,), the tokens of this side
    """
    scored = scores.scored & chosen
    codes = np.unique(individual_of_token[chosen])
    options: dict[str, Any] = {"num_bootstrap": num_bootstrap, "seed": seed}

    def rate(values: np.ndarray, individuals: np.ndarray) -> Estimate:
        row = np.searchsorted(codes, individuals)
        totals = np.bincount(row, weights=values, minlength=len(codes))
        return ratio_estimate(totals, np.bincount(row, minlength=len(codes)), **options)

    right = scores.argmax == input_ids
    token_accuracy = rate(right[scored], individual_of_token[scored])
    if objective == "clm":
        loss = rate(-scores.log_probs[scored].astype(np.float64), individual_of_token[scored])
        return {"token_accuracy": token_accuracy.to_dict(), "perplexity": _exp(loss).to_dict()}
    # A word is right when every one of its tokens is: compare running sums at its ends.
    running = np.concatenate([[0], np.cumsum(right)])
    words_right = running[slots.starts + slots.lengths] - running[slots.starts] == slots.lengths
    ours = scored[slots.starts] if len(slots) else np.empty(0, dtype=bool)
    return {
        "masked_word_accuracy": rate(words_right[ours], slots.individuals[ours]).to_dict(),
        "masked_token_accuracy": token_accuracy.to_dict(),
    }


def _exp(loss: Estimate) -> Estimate:
    values = {name: getattr(loss, name) for name in ("value", "low", "high")}
    return replace(loss, **{name: None if value is None else float(np.exp(value)) for name, value in values.items()})
