"""Rows of tokens that stand in no store (a text with a candidate put in) -> sums of log-probabilities a row.

Always float32: candidates are ranked by differences that bf16 would round away. The head runs only at the
scored cells, and one number for each row and group reaches the host.

Shapes: N rows, T tokens a row, G groups, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from reticent.trainer.models import logits_at

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["DIGITS", "sum_log_probs"]

#: Sums are compared to this many digits after the point, in nats: below it is the noise of float32.
DIGITS = 4
#: Logits held at once, in numbers.
MAX_LOGITS = {"cuda": 1 << 26, "cpu": 1 << 22}


@torch.inference_mode()
def sum_log_probs(
    model: PreTrainedModel,
    input_ids: np.ndarray,
    true: np.ndarray,
    groups: np.ndarray,
    *,
    causal: bool,
    attention: np.ndarray | None = None,
    num_groups: int = 1,
) -> np.ndarray:
    """Return the summed natural log-probability of the true tokens of each row, by group; float64, shape (N, G).

    Parameters
    ----------
    model : on its device, in evaluation mode
    input_ids, true : int64 arrays, shape (N, T)
        The tokens that the model reads, and the tokens to score; they differ at masks.
    groups : int8 array, shape (N, T)
        Group of each scored token, -1 for others. A causal model cannot score column 0.
    causal : bool
        A token is predicted at the cell before it; otherwise at its own.
    attention : bool array, shape (N, T), optional
        None for padding on the right of a causal model, where no token sees it.

    Raises
    ------
    ValueError
        A causal model has to score the first token of a row.

    Cost: a forward pass; logits of at most 2^22 numbers at once on a CPU (or of one row).
    """
    if causal and (groups[:, 0] >= 0).any():
        raise ValueError("a causal model cannot score the first token of a row")
    device = model.device
    kind = "cuda" if device.type == "cuda" else "cpu"
    most = max(1, int((groups >= 0).sum(axis=1).max(initial=1)))
    step = max(1, MAX_LOGITS[kind] // (model.config.vocab_size * most))
    shift = int(causal)
    sums = np.zeros((len(input_ids), num_groups))
    for first in range(0, len(input_ids), step):
        rows = slice(first, first + step)
        ids, asked = (torch.from_numpy(a[rows]).to(device) for a in (input_ids, true))
        group = torch.from_numpy(groups[rows]).to(device)
        wanted = torch.nn.functional.pad(group[:, shift:] >= 0, (0, shift))
        mask = None if attention is None else torch.from_numpy(attention[rows]).to(device)
        logits = logits_at(model, ids, mask, wanted).float()
        log_p = logits.gather(1, asked[group >= 0][:, None])[:, 0] - logits.logsumexp(-1)
        # Dense, then summed: an index_add would add in another order each time on a GPU.
        spread = torch.zeros(group.shape, dtype=torch.float64, device=device)
        spread[group >= 0] = log_p.double()
        found = torch.stack([torch.where(group == g, spread, 0.0).sum(1) for g in range(num_groups)], dim=1)
        sums[rows] = found.cpu().numpy()
    return sums
