"""Norms of gradients: how much a model would still have to learn from each document.

A document that a model was trained on asks for smaller changes of its weights than one that it never saw [@nasr2019].
The adversary has the weights. Asked of the tokens that every recipe may teach, the norm told members of a protected
model better than every other attack without shadow models.

Cost: a forward and a backward pass for each document, one at a time; at most `MOST_MEMBERS` and `MOST_OTHERS` are
asked, and `MOST_DOCUMENTS` of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reticent.audit.membership.names import MOST_DOCUMENTS, MOST_MEMBERS, MOST_OTHERS
from reticent.audit.scoring.scores import word_folds
from reticent.core.device import pick_device
from reticent.core.errors import TrainingError
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.models import lm_head, logits_of
from reticent.trainer.windows import SpecialIds, cut_windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["asked_documents", "gradient_norms"]

#: Windows of a document that go through the model at once.
ROWS_AT_ONCE = 8
_STREAM = 67


def asked_documents(
    individual: np.ndarray, is_member: np.ndarray, seed: int, *, units: np.ndarray | None = None
) -> np.ndarray:
    """Return the numbers of the documents that are asked, ascending int64: the first of each individual, of as many as
    there may be of each side.

    Parameters
    ----------
    individual, is_member : arrays, shape (num_documents,)
    units : household of each individual, by code, of whom one is asked before any second; None: each is one
    """
    codes, first, row = np.unique(individual, return_index=True, return_inverse=True)
    keys, chosen = generator(seed, _STREAM).random(len(codes)), np.zeros(len(codes), dtype=bool)
    for side, most in ((True, MOST_MEMBERS), (False, MOST_OTHERS)):
        own = np.flatnonzero(is_member[first] == side)
        own = own[np.argsort(keys[own], kind="stable")]
        if units is not None:
            is_again = np.ones(len(own), dtype=bool)
            is_again[np.unique(units[codes[own]], return_index=True)[1]] = False
            own = own[np.argsort(is_again, kind="stable")]
        chosen[own[:most]] = True
    order = np.argsort(row, kind="stable")
    counts = np.bincount(row, minlength=len(codes))
    rank = np.empty(len(row), dtype=np.int64)
    rank[order] = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.flatnonzero(chosen[row] & (rank < MOST_DOCUMENTS))


def gradient_norms(
    model: PreTrainedModel,
    objective: str,
    store: TokenStore,
    special: SpecialIds,
    mask: np.ndarray,
    documents: np.ndarray,
    *,
    folds: int = 7,
    window_length: int = 512,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return the Euclidean norm of the gradient, with respect to all weights, of each document's mean loss over chosen
    tokens, in nats a token; float64 (num_documents,), NaN for a document that is not asked or has no such token.

    Parameters
    ----------
    mask : bool array, shape (num_tokens,), the tokens whose loss counts
    documents : those that are asked
    folds : of a masked model; those of the tokens count that lie in the words of one fold, which alone are masked
    progress : called with the number of documents done

    Raises
    ------
    TrainingError
        A norm is not a number.
    """
    where = pick_device(device)
    net: Any = model.to(device=where).eval()  # type: ignore
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    mask_id = -1 if special.mask is None else special.mask
    windows, head = cut_windows(store, window_length, special), lm_head(net)
    chosen = mask & (word_folds(store, folds, seed)[0] == 0) if objective == "mlm" else mask
    bounds = np.searchsorted(windows.documents, np.arange(store.num_documents + 1))
    norms = np.full(store.num_documents, np.nan)
    for done, document in enumerate(documents.tolist(), start=1):
        net.zero_grad(set_to_none=True)
        count = 0
        for start in range(bounds[document], bounds[document + 1], ROWS_AT_ONCE):
            numbers = np.arange(start, min(start + ROWS_AT_ONCE, bounds[document + 1]))
            batch = windows.gather(numbers)
            positions = windows.token_positions(numbers, batch.input_ids.shape[1])
            asked = (positions >= 0) & chosen[np.maximum(positions, 0)]
            input_ids, attention = batch.input_ids, None
            if objective == "mlm":
                input_ids, attention = np.where(asked, mask_id, input_ids), batch.attention
            else:  # position t predicts the token at t + 1
                positions = np.concatenate([positions[:, 1:], np.full((len(numbers), 1), -1)], axis=1)
                asked = np.concatenate([asked[:, 1:], np.zeros((len(numbers), 1), dtype=bool)], axis=1)
            cells = np.flatnonzero(asked)
            if len(cells):
                true = store.input_ids[positions.reshape(-1)[cells]].astype(np.int64)
                rows = (torch.from_numpy(np.ascontiguousarray(part)).to(where) for part in (input_ids, cells, true))
                given, wanted, labels = rows
                seen = None if attention is None else torch.from_numpy(attention).to(where)
                logits = logits_of(net, head, given, seen, wanted)
                torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum").backward()
                count += len(cells)
        if count:
            parts = [weight.grad.float() for weight in weights if weight.grad is not None]
            norms[document] = float(torch.stack(torch._foreach_norm(parts)).norm()) / count
            if not math.isfinite(norms[document]):
                raise TrainingError("gradients: a norm is not a number; did training diverge?")
        if progress:
            progress(done)
    net.zero_grad(set_to_none=True)
    return norms
