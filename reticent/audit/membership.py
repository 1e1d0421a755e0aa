"""Membership attacks: score functions over TokenScores (PROTOCOLS §6). A higher score always means more likely a
member.

Each is a pure function of the scores of the model under attack, of the base model, and of the sizes of the texts; it
gives one number a document. The score of an individual is the mean over their documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from reticent.audit.forward import TokenScores
from reticent.audit.statistics import auc_estimate, roc_curve, tpr_at_fpr
from reticent.engine.kernels import document_lowest, document_sums

__all__ = ["ATTACKS", "attack", "individual_scores"]

FPRS = (0.01, 0.001)


def loss_score(target: TokenScores, base: TokenScores | None, zlib_bytes: np.ndarray | None) -> np.ndarray:
    """Return minus the mean loss of each document's tokens (Yeom et al. 2018)."""
    return _mean(target.log_probs, target.doc_offsets)


def reference_score(target: TokenScores, base: TokenScores | None, zlib_bytes: np.ndarray | None) -> np.ndarray:
    """Return the base model's mean loss minus the model's (Carlini et al. 2021)."""
    assert base is not None
    return _mean(target.log_probs - base.log_probs, target.doc_offsets)


def ratio_score(target: TokenScores, base: TokenScores | None, zlib_bytes: np.ndarray | None) -> np.ndarray:
    """Return the base model's mean loss over the model's; a loss of exactly 0 gives infinity."""
    assert base is not None
    own, other = -_mean(target.log_probs, target.doc_offsets), -_mean(base.log_probs, base.doc_offsets)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(own == 0, np.inf, other / own)


def zlib_score(target: TokenScores, base: TokenScores | None, zlib_bytes: np.ndarray | None) -> np.ndarray:
    """Return minus the summed loss over the zlib length of the text (Carlini et al. 2021); NaN where no token was
    scored: a sum of nothing would be the highest score there is."""
    assert zlib_bytes is not None
    totals, counts = _sum(target.log_probs, target.doc_offsets)
    return np.where(counts > 0, totals / np.maximum(zlib_bytes, 1), np.nan)


def min_k_score(target: TokenScores, base: TokenScores | None, zlib_bytes: np.ndarray | None) -> np.ndarray:
    """Return the mean of the 20 % lowest log-probabilities, at least one token (Shi et al. 2024)."""
    return document_lowest(target.log_probs, target.doc_offsets, 0.2)


def min_k_plus_plus_score(target: TokenScores, base: TokenScores | None, zlib_bytes: np.ndarray | None) -> np.ndarray:
    """Return the mean of the 20 % lowest standardised log-probabilities (Zhang et al. 2024)."""
    spread = np.where(target.std > 0, target.std, 1.0)
    return document_lowest((target.log_probs - target.mean) / spread, target.doc_offsets, 0.2)


Score = Callable[[TokenScores, TokenScores | None, np.ndarray | None], np.ndarray]

#: Every attack by name; adding a row here is adding an attack everywhere.
ATTACKS: Mapping[str, Score] = {
    "loss": loss_score,
    "reference": reference_score,
    "ratio": ratio_score,
    "zlib": zlib_score,
    "min_k": min_k_score,
    "min_k_plus_plus": min_k_plus_plus_score,
}
NEEDS_BASE = frozenset({"reference", "ratio"})
NEEDS_SIZES = frozenset({"zlib"})


def individual_scores(document_scores: np.ndarray, individuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, mean score over the individual's documents that could be scored), sorted by code."""
    usable = ~np.isnan(document_scores)
    codes, inverse = np.unique(individuals[usable], return_inverse=True)
    totals = np.bincount(inverse, weights=document_scores[usable], minlength=len(codes))
    return codes, totals / np.bincount(inverse, minlength=len(codes))


def attack(
    document_scores: np.ndarray, individuals: np.ndarray, is_member: np.ndarray, *, num_bootstrap: int, seed: int
) -> dict[str, Any]:
    """Return AUC, TPR at low FPR and the ROC curve of document scores, with the individual as the unit.

    Parameters
    ----------
    document_scores : float array, shape (D,); individuals : uint32, shape (D,); is_member : bool, shape (D,)
    """
    codes, scores = individual_scores(document_scores, individuals)
    member_codes = np.unique(individuals[is_member])
    member = np.isin(codes, member_codes)
    members, nonmembers = scores[member], scores[~member]
    options: dict[str, Any] = {"num_bootstrap": num_bootstrap, "seed": seed}
    tprs = {f: tpr_at_fpr(members, nonmembers, f, **options) for f in FPRS}
    return {
        "auc": auc_estimate(members, nonmembers, **options).to_dict(),
        "tpr_at_fpr": {f"{f:g}": None if tpr is None else tpr.to_dict() for f, tpr in tprs.items()},
        "roc": roc_curve(members, nonmembers),
        "unit": "individual",
        "num_members": len(members),
        "num_nonmembers": len(nonmembers),
    }


def _sum(values: np.ndarray, doc_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum and number of the values of each document that are not NaN."""
    # Each document by itself: in a running sum one token of probability 0 would spoil every document after it.
    return document_sums(values, ~np.isnan(values), doc_offsets)


def _mean(values: np.ndarray, doc_offsets: np.ndarray) -> np.ndarray:
    totals, counts = _sum(values, doc_offsets)
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
