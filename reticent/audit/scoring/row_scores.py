"""Rows of tokens that stand in no store (a text with a candidate put in) -> sums of log-probabilities a row.

Always float32: candidates are ranked by differences that bf16 would round away. The head runs only at the
scored cells, the tokens that all rows of a causal model begin with are read once, and one number for each row and
group reaches the host.

Shapes: N rows, T tokens a row, G groups, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reticent.audit.scoring.shared_prefix import is_shareable, states_of
from reticent.trainer.models import lm_head

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
    shared: int = 0,
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
    shared : int
        The first columns, equal in all rows and not scored, which a causal model reads only once.

    Raises
    ------
    ValueError
        A causal model has to score the first token of a row, or a shared one.

    Cost: a forward pass over all rows at once; logits of at most 2^22 numbers at once on a CPU (or of one token).
    """
    if causal and (groups[:, : max(1, shared)] >= 0).any():
        raise ValueError("a causal model cannot score the first token of a row, nor one that all rows begin with")
    if len(input_ids) == 0:
        return np.zeros((0, num_groups))
    device, head = model.device, lm_head(model)
    at_once = max(1, MAX_LOGITS["cuda" if device.type == "cuda" else "cpu"] // model.config.vocab_size)
    step = len(input_ids) if head is not None else max(1, at_once // input_ids.shape[1])
    parts = []
    for first in range(0, len(input_ids), step):
        ids, asked, group = (torch.from_numpy(a[first : first + step]).to(device) for a in (input_ids, true, groups))
        mask = None if attention is None else torch.from_numpy(attention[first : first + step]).to(device)
        parts.append(
            _sums(
                model, head, ids, asked, group, mask,
                shift=int(causal), num_groups=num_groups, shared=shared, at_once=at_once,
            )
        )  # fmt: skip
    return np.concatenate(parts)


def _sums(
    model: Any,
    head: Any,
    ids_NT: torch.Tensor,
    true_NT: torch.Tensor,
    group_NT: torch.Tensor,
    mask_NT: torch.Tensor | None,
    *,
    shift: int,
    num_groups: int,
    shared: int,
    at_once: int,
) -> np.ndarray:
    first = max(0, shared - 1)  # the last shared cell predicts the token after it
    scored = group_NT >= 0
    cells = torch.nn.functional.pad(scored[:, shift:], (0, shift))[:, first:]
    states = _states(model, head, ids_NT, mask_NT, first)[cells]
    parts = [
        _log_probs(state, head, true)
        for state, true in zip(states.split(at_once), true_NT[scored].split(at_once), strict=True)
    ]
    # Dense, then summed: an index_add would add in another order each time on a GPU.
    spread = torch.zeros(group_NT.shape, dtype=torch.float64, device=ids_NT.device)
    spread[scored] = torch.cat(parts).double()
    found = torch.stack([torch.where(group_NT == g, spread, 0.0).sum(1) for g in range(num_groups)], dim=1)
    return np.asarray(found.cpu().numpy())


def _log_probs(states_ND: torch.Tensor, head: Any, true_N: torch.Tensor) -> torch.Tensor:
    """Log-probability of each true token; the states are logits where there is no head. float32 whatever the caller
    runs the model in."""
    with torch.autocast(states_ND.device.type, enabled=False):
        logits = states_ND.float() if head is None else head(states_ND.float()).float()
    return logits.gather(1, true_N[:, None])[:, 0] - logits.logsumexp(-1)


def _states(model: Any, head: Any, ids_NT: torch.Tensor, mask_NT: torch.Tensor | None, shared: int) -> torch.Tensor:
    """Return the hidden states from column ``shared`` on, (N, T - shared, D); logits where the model has no head."""
    if shared and mask_NT is None and len(ids_NT) > 1:
        _, cache = states_of(model, head, input_ids=ids_NT[:1, :shared], use_cache=True)
        if is_shareable(cache):
            cache.batch_repeat_interleave(len(ids_NT))
            return states_of(model, head, input_ids=ids_NT[:, shared:], past_key_values=cache, use_cache=True)[0]
    return states_of(model, head, input_ids=ids_NT, attention_mask=mask_NT)[0][:, shared:]
