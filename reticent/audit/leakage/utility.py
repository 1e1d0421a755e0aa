"""Utility: how well a model predicts ordinary text, on held-out individuals first (definitions.md#utility)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reticent.audit.leakage.words import Words
from reticent.audit.scoring.forward import TokenScores
from reticent.audit.stats.statistics import Estimate, ratio_estimate
from reticent.engine.document_kernels import document_sums
from reticent.engine.kernels import words_all

__all__ = ["utility"]


def utility(
    objective: str,
    scores: TokenScores,
    input_ids: np.ndarray,
    words: Words,
    flags: np.ndarray,
    individual: np.ndarray,
    chosen: np.ndarray,
    *,
    num_bootstrap: int,
    seed: int,
) -> dict[str, Any]:
    """Return the utility of one side as Estimates, intervals clustered by individual.

    Parameters
    ----------
    objective : "mlm" gives masked_word_accuracy (all tokens of the word right at once) and masked_token_accuracy; "clm"
        gives token_accuracy and perplexity. Both also on *ordinary* text: words and tokens that identify no individual
        (``flags`` 0), which is what a protected model is meant to learn
    flags : uint8 array, shape (num_tokens,)
    individual : uint32 array, shape (num_documents,)
    chosen : bool array, shape (num_documents,), the documents of this side
    """
    scored, offsets = scores.scored, scores.doc_offsets
    codes = np.unique(individual[chosen])
    row = np.searchsorted(codes, individual[chosen])
    options: dict[str, Any] = {"num_bootstrap": num_bootstrap, "seed": seed}

    def rate(
        values: np.ndarray, counted: np.ndarray, bounds: np.ndarray = offsets, limit: float | None = 1.0
    ) -> Estimate:
        """Mean of the counted values of the chosen documents."""
        totals, counts = document_sums(values, counted, bounds)
        totals, counts = (np.bincount(row, part[chosen], minlength=len(codes)) for part in (totals, counts))
        return ratio_estimate(totals, counts, limit=limit, **options)

    right = scores.argmax == input_ids
    token_accuracy = rate(right, scored)
    if objective == "clm":
        ordinary = scored & (flags == 0)
        return {
            "ordinary_token_accuracy": rate(right, ordinary).to_dict(),
            "token_accuracy": token_accuracy.to_dict(),
            "ordinary_perplexity": _exp(rate(-scores.log_probs, ordinary, limit=None)).to_dict(),
            "perplexity": _exp(rate(-scores.log_probs, scored, limit=None)).to_dict(),
        }
    words_right = words_all(right, words.starts, words.lengths)
    words_scored = scored[words.starts] if len(words) else np.empty(0, dtype=bool)
    bounds = np.searchsorted(words.documents, np.arange(len(offsets)))
    return {
        "ordinary_word_accuracy": rate(words_right, words_scored & (words.flags == 0), bounds).to_dict(),
        "masked_word_accuracy": rate(words_right, words_scored, bounds).to_dict(),
        "masked_token_accuracy": token_accuracy.to_dict(),
    }


def _exp(loss: Estimate) -> Estimate:
    def exp(value: float | None) -> float | None:
        return None if value is None else float(np.exp(value))

    return replace(loss, value=exp(loss.value), low=exp(loss.low), high=exp(loss.high))
