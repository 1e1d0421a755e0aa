"""Summed log-probabilities of rows of tokens that are in no store, such as a text with a candidate inserted.

Always float32: candidates are ranked by differences that bf16 would round away. The head runs only at the
scored cells, the tokens that all rows of a causal model begin with are read once, and one number for each row and
group reaches the host.

Shapes: N rows, T tokens a row, G groups, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reticent.trainer.attention import using_mask
from reticent.trainer.models import lm_head

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from reticent.trainer.windows import SpecialIds


# ------------------------------------------------------------------------------------------------------- shared prefix
#
# Shared prefixes: a prefix that rows have in common is read once, and its keys and values are reused.


def states_of(model: Any, head: Any, **inputs: Any) -> tuple[torch.Tensor, Any]:
    """Run a forward pass; return the last hidden states and the key-value cache (or None). Without ``head``, the
    model's output layer, logits take the place of the states.

    Parameters
    ----------
    head : result of `reticent.trainer.models.lm_head`; None: logits are returned in place of the states
    """
    out = (model if head is None else model.base_model)(**inputs)
    return (out.logits if head is None else out.last_hidden_state), getattr(out, "past_key_values", None)


def is_shareable(cache: Any) -> bool:
    """Return whether a key-value cache can be copied to other rows that begin with the same tokens: it can unless it
    has sliding windows or recurrent states."""
    from transformers.cache_utils import DynamicLayer

    layers = getattr(cache, "layers", ())
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


#: Digits after the point, in nats, to which sums are compared: beyond them is the noise of float32.
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
    alike: int | None = None,
) -> np.ndarray:
    """Return for each row the sum of the natural log-probabilities of the tokens ``true``, separately for each group of
    tokens, float64 (N, G). A causal model reads columns that are equal in several rows only once.

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
        Number of first columns that are not scored and equal within such rows; a causal model reads them once.
    alike : int, optional
        Number of consecutive rows that share those columns; None: all rows.

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
    head, alike = lm_head(model), alike or len(input_ids)
    at_once = max(1, MAX_LOGITS["cuda" if model.device.type == "cuda" else "cpu"] // model.config.vocab_size)
    step = len(input_ids)
    if head is None:
        most = max(1, at_once // input_ids.shape[1])
        alike = max(part for part in range(1, min(most, alike) + 1) if alike % part == 0)
        step = most // alike * alike
    parts = []
    for first in range(0, len(input_ids), step):
        ids, asked, group = (array[first : first + step] for array in (input_ids, true, groups))
        mask = _mask_tensor(model, None if attention is None else attention[first : first + step])
        parts.append(
            _batch_sums(
                model, head, ids, asked, group, mask, shift=int(causal), num_groups=num_groups, shared=shared,
                alike=alike, at_once=at_once,
            )
        )  # fmt: skip
    return np.concatenate(parts)


def _mask_tensor(model: Any, attention_NT: np.ndarray | None) -> torch.Tensor | None:
    """Return the attention mask on the model's device; None if no token is padding."""
    return None if attention_NT is None or attention_NT.all() else torch.from_numpy(attention_NT).to(model.device)


def _batch_sums(
    model: Any,
    head: Any,
    ids_NT: np.ndarray,
    true_NT: np.ndarray,
    group_NT: np.ndarray,
    mask: torch.Tensor | None,
    *,
    shift: int,
    num_groups: int,
    shared: int,
    alike: int,
    at_once: int,
) -> np.ndarray:
    """Return the result of `sum_log_probs` for one batch, float64 (N, G). ``shift`` is 1 for a causal model, which
    predicts each token at the position before it, else 0."""

    def moved(array: np.ndarray) -> torch.Tensor:
        """Return the array as a tensor on the model's device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(model.device)

    first = max(0, shared - 1)  # the last shared cell predicts the token after it
    # Numbers of cells, made on the host: a mask of the device would be waited for.
    scored = np.flatnonzero(group_NT >= 0)
    rows, columns = np.divmod(scored, group_NT.shape[1])
    cells = rows * (group_NT.shape[1] - first) + columns - shift - first
    states = _states(model, head, moved(ids_NT), mask, first, alike).flatten(0, 1).index_select(0, moved(cells))
    trues = moved(true_NT.reshape(-1)[scored])[:, None].split(at_once)
    parts = [_log_probs(state, head, true)[:, 0] for state, true in zip(states.split(at_once), trues, strict=True)]
    # Dense, then summed: an index_add would add in another order each time on a GPU.
    spread = torch.zeros(group_NT.size, dtype=torch.float64, device=model.device)
    spread = spread.index_copy_(0, moved(scored), torch.cat(parts).double()).view(group_NT.shape)
    groups = moved(group_NT)
    found = torch.stack([torch.where(groups == g, spread, 0.0).sum(1) for g in range(num_groups)], dim=1)
    return np.asarray(found.cpu().numpy())


@torch.inference_mode()
def sum_choices(
    model: PreTrainedModel,
    input_ids: np.ndarray,
    is_predicted: np.ndarray,
    choices: np.ndarray,
    *,
    attention: np.ndarray | None = None,
) -> np.ndarray:
    """Return for each row the summed log-probability of each of C alternative texts, float64 (N, C). Their tokens are
    predicted at the cells in the mask ``is_predicted`` (N, T), all in one pass.

    Parameters
    ----------
    input_ids : int64 array, shape (N, T); is_predicted : bool array, shape (N, T), the cells to predict
    choices : int64 array, shape (cells, C), the tokens of each choice at the asked cells, row by row
    attention : bool array, shape (N, T), optional

    Cost: a forward pass over all rows at once.
    """
    device, head = model.device, lm_head(model)
    ids, cells, tokens = (
        torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in (input_ids, np.flatnonzero(is_predicted), choices)
    )
    at_once = max(1, MAX_LOGITS["cuda" if device.type == "cuda" else "cpu"] // model.config.vocab_size)
    states = _states(model, head, ids, _mask_tensor(model, attention), 0, 1).flatten(0, 1).index_select(0, cells)
    parts = [
        _log_probs(state, head, token)
        for state, token in zip(states.split(at_once), tokens.split(at_once), strict=True)
    ]
    found = np.zeros((len(input_ids), choices.shape[1]))
    np.add.at(found, np.nonzero(is_predicted)[0], torch.cat(parts).double().cpu().numpy())
    return found


def _log_probs(states_ND: torch.Tensor, head: Any, tokens_NC: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities of the candidate tokens ``tokens_NC``, float32 (N, C), from the hidden states at N
    positions, or from logits if there is no ``head``."""
    with torch.autocast(states_ND.device.type, enabled=False):
        logits = states_ND.float() if head is None else head(states_ND.float()).float()
    return logits.gather(1, tokens_NC) - logits.logsumexp(-1, keepdim=True)


def _states(
    model: Any, head: Any, ids_NT: torch.Tensor, mask: torch.Tensor | None, shared: int, alike: int
) -> torch.Tensor:
    """Return the last hidden states (without ``head``, logits) from column ``shared`` on, (N, T - shared, D). The
    columns before are equal in every ``alike`` consecutive rows and are read once for these, if the model's cache
    allows it."""
    if shared and mask is None and alike > 1:
        _, cache = states_of(model, head, input_ids=ids_NT[::alike, :shared], use_cache=True)
        if is_shareable(cache):
            cache.batch_repeat_interleave(alike)
            return states_of(model, head, input_ids=ids_NT[:, shared:], past_key_values=cache, use_cache=True)[0]
    with using_mask(model, mask):
        return states_of(model, head, input_ids=ids_NT, attention_mask=mask)[0][:, shared:]


def padded_rows(encoded: Any, spans: np.ndarray, special: SpecialIds) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return N tokenised texts, padded on the right, as three arrays (N, T): token ids, int64; 0 for tokens to score
    (inside the text's span), else -1, int8; attention mask, bool.

    Parameters
    ----------
    encoded : encodings of N texts, without special tokens
    spans : int array, shape (N, 2), first and last character of the span of each text that is to be scored
    """
    offset = int(special.prefix is not None)
    lengths = np.array([len(e.ids) for e in encoded])
    shape = (len(encoded), int(lengths.max()) + special.num_added)
    ids, groups = np.full(shape, special.pad, dtype=np.int64), np.full(shape, -1, dtype=np.int8)
    columns = np.arange(shape[1])
    inside = (columns >= offset) & (columns < offset + lengths[:, None])
    ids[inside] = np.concatenate([e.ids for e in encoded])
    bounds = np.full((*shape, 2), -1)
    bounds[inside] = np.concatenate([np.asarray(e.offsets).reshape(-1, 2) for e in encoded])
    # A token belongs to the term that it shares a character with: " asthma" begins with the space before it.
    groups[(bounds[..., 1] > spans[:, :1]) & (bounds[..., 0] < spans[:, 1:]) & inside] = 0
    if special.prefix is not None:
        ids[:, 0] = special.prefix
    if special.suffix is not None:
        ids[np.arange(len(ids)), offset + lengths] = special.suffix
    return ids, groups, columns < (offset + lengths + (special.suffix is not None))[:, None]
