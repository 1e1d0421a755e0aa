"""Last hidden states of documents: what an export of embeddings, or an attacker with the weights, sees.

Shapes: D documents, H the hidden size, B rows a batch, T tokens a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reticent.core.device import autocast, pick_device
from reticent.core.errors import TrainingError
from reticent.engine.store import TokenStore
from reticent.trainer.attention import using_mask
from reticent.trainer.windows import SpecialIds, cut_windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.inference_mode()
def document_states(
    model: PreTrainedModel,
    store: TokenStore,
    special: SpecialIds,
    *,
    window_length: int = 512,
    batch_size: int = 64,
    device: str = "auto",
    bf16: str = "auto",
) -> np.ndarray:
    """Return the mean and the root mean square of the last hidden states over each document's tokens, nothing masked;
    float64 (D, 2 H), NaN for a document without a token.

    Raises
    ------
    TrainingError
        A state is not a number.

    Cost: a forward pass without the head.
    """
    where = pick_device(device)
    net: Any = model.to(device=where).eval()  # type: ignore
    windows = cut_windows(store, window_length, special)
    sums: np.ndarray | None = None
    for numbers in windows.scoring_order(batch_size):
        batch = windows.gather(numbers)
        ids, text = (torch.from_numpy(a).to(where) for a in (batch.input_ids, batch.is_text))
        seen = None if batch.attention.all() else torch.from_numpy(batch.attention).to(where)
        with autocast(bf16, where), using_mask(net, seen):
            states_BTH = net.base_model(input_ids=ids, attention_mask=seen).last_hidden_state
        states_BTH = states_BTH.double() * text[:, :, None]
        both = torch.cat([states_BTH.sum(1), states_BTH.square().sum(1)], dim=1).cpu().numpy()
        if sums is None:
            sums = np.zeros((store.num_documents, both.shape[1]))
        np.add.at(sums, windows.documents[numbers], both)
    if sums is None:
        return np.full((store.num_documents, 2), np.nan)
    if not np.isfinite(sums).all():
        raise TrainingError("states: a hidden state is not a number; did training diverge?")
    with np.errstate(invalid="ignore"):
        means = sums / np.diff(store.doc_offsets)[:, None]
    means[:, means.shape[1] // 2 :] **= 0.5
    return means
