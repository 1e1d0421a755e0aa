"""Utility: how well a model predicts ordinary text, on held-out individuals first (definitions.md#utility); and the gap
of its loss between members and others."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np

from reticent.audit.evidence.leakage import Gap, NumbersBeside, SideUtility
from reticent.audit.evidence.model import ModelEvidence
from reticent.audit.leakage.words import Words
from reticent.audit.scoring.token_scores import TokenScores
from reticent.audit.stats.intervals import Bootstrap, Estimate, ratio_difference, ratio_estimate
from reticent.engine.document_kernels import document_sums
from reticent.engine.kernels import all_tokens_of_words


def utility(
    objective: str,
    scores: TokenScores,
    input_ids: np.ndarray,
    words: Words,
    flags: np.ndarray,
    individual: np.ndarray,
    chosen: np.ndarray,
    **bootstrap: Unpack[Bootstrap],
) -> SideUtility:
    """Return a model's accuracies and, for a causal model, its perplexity on the documents in the mask ``chosen``, with
    intervals clustered by individual.

    Parameters
    ----------
    objective : "mlm" returns masked_word_accuracy (all tokens of a word correct at once) and masked_token_accuracy;
        "clm" returns token_accuracy and perplexity. Both are also given on *ordinary* text: words and tokens that
        identify no individual (``flags`` 0), which a protected model should learn
    flags : uint8 array, shape (num_tokens,)
    individual : uint32 array, shape (num_documents,)
    chosen : bool array, shape (num_documents,), the documents of this side
    """
    scored, offsets = scores.scored, scores.doc_offsets
    codes = np.unique(individual[chosen])
    row = np.searchsorted(codes, individual[chosen])

    def rate(
        values: np.ndarray, counted: np.ndarray, bounds: np.ndarray = offsets, limit: float | None = 1.0
    ) -> Estimate:
        """Return the mean of token or word ``values``, over the chosen documents, where ``counted`` is True. ``bounds``
        tells where each document begins in ``values``."""
        totals, counts = document_sums(values, counted, bounds)
        totals, counts = (np.bincount(row, part[chosen], minlength=len(codes)) for part in (totals, counts))
        return ratio_estimate(totals, counts, codes, limit=limit, crowded=False, **bootstrap)

    right = scores.argmax == input_ids
    token_accuracy = rate(right, scored)
    if objective == "clm":
        ordinary = scored & (flags == 0)
        return SideUtility(
            ordinary_token_accuracy=rate(right, ordinary),
            token_accuracy=token_accuracy,
            ordinary_perplexity=_perplexity(rate(-scores.log_probs, ordinary, limit=None)),
            perplexity=_perplexity(rate(-scores.log_probs, scored, limit=None)),
        )
    words_right = all_tokens_of_words(right, words.starts, words.lengths)
    words_scored = scored[words.starts] if len(words) else np.empty(0, dtype=bool)
    bounds = np.searchsorted(words.documents, np.arange(len(offsets)))
    return SideUtility(
        ordinary_word_accuracy=rate(words_right, words_scored & (words.flags == 0), bounds),
        masked_word_accuracy=rate(words_right, words_scored, bounds),
        masked_token_accuracy=token_accuracy,
    )


def numbers_beside(
    scores: TokenScores, individual: np.ndarray, is_member: np.ndarray, **bootstrap: Unpack[Bootstrap]
) -> NumbersBeside:
    """Return how much higher the mean token loss of held-out individuals is than that of members, with intervals
    clustered by individual. It is shown next to the verdict but does not affect it.

    Parameters
    ----------
    individual, is_member : arrays, shape (num_documents,)
    """

    def gap(values: np.ndarray) -> Gap:
        """Return the mean of ``values`` over the scored tokens of members and of held-out individuals, and the second
        mean minus the first."""
        sums = document_sums(values, scores.scored, scores.doc_offsets)
        sides = []
        for side in (is_member, ~is_member):
            codes, row = np.unique(individual[side], return_inverse=True)
            totals, counts = (np.bincount(row, part[side], minlength=len(codes)) for part in sums)
            sides.append((totals, counts, codes))
        members, heldout = sides
        return Gap(
            members=ratio_estimate(*members, limit=None, **bootstrap),
            heldout=ratio_estimate(*heldout, limit=None, **bootstrap),
            gap=ratio_difference(heldout, members, limit=None, **bootstrap),
        )

    return NumbersBeside(
        loss_gap=gap(-scores.log_probs),
    )


def _perplexity(loss: Estimate) -> Estimate:
    """Return a perplexity with its interval: the exponential of a mean loss and of its ends."""

    def exp(value: float | None) -> float | None:
        """Return the exponential of a number; None for None."""
        return None if value is None else float(np.exp(value))

    return replace(loss, value=exp(loss.value), low=exp(loss.low), high=exp(loss.high))


def without_predictions(model: ModelEvidence) -> ModelEvidence:
    """Return the evidence without the measures of predicted identifiers, for a model whose predicted tokens are not
    known, so that it does not look as if nothing leaked."""
    none = Estimate(value=None, n=0, method="no prediction was seen")
    hidden = {
        part: replace(
            own, types=none, occurrences=None, individuals=None, in_place=None, unseen=None, num_leaked=None,
            num_leaked_unseen=None,
        )
        for part, own in model.privacy.items()
    }  # fmt: skip
    return replace(
        model, privacy=hidden, privacy_by_n=None, by_category=None, excess=None, over_base=None, exposed=None,
        low_cost=None, beside=None, by_kind=None,
    )  # fmt: skip
