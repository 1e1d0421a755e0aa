"""The loss: the sum of the cross entropy over targets, with logits computed at these cells alone.

Shapes: B rows of a micro-batch, T tokens of a row, N cells that predict a target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from reticent.trainer.feed import micro_batch, on_device
from reticent.trainer.labels import Targets
from reticent.trainer.models import lm_head, logits_of
from reticent.trainer.packing import block_diagonal_mask
from reticent.trainer.windows import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["TargetLoss", "target_loss"]


class TargetLoss(torch.nn.Module):
    """A model whose output is the sum of the cross entropy over the targets of a micro-batch (a float32 scalar).

    Logits are computed only at the cells that predict a target, so a protected token has no gradient.
    """

    def __init__(self, model: PreTrainedModel, *, causal: bool):
        super().__init__()
        self.model, self.causal = model, causal
        # In a tuple: as an attribute it would be a second module, and its weights are the model's already.
        self._head = (lm_head(model),)

    def forward(
        self,
        input_ids_BT: torch.Tensor,
        attention_BT: torch.Tensor | None,
        positions_BT: torch.Tensor | None,
        segments_BT: torch.Tensor | None,
        at_N: torch.Tensor,
        labels_N: torch.Tensor,
    ) -> torch.Tensor:
        attention = attention_BT
        if segments_BT is not None and positions_BT is not None:
            attention = block_diagonal_mask(segments_BT, positions_BT, self.causal)
        logits_NV = logits_of(self.model, self._head[0], input_ids_BT, attention, at_N, positions_BT)
        return F.cross_entropy(logits_NV.float(), labels_N, reduction="sum")


def target_loss(
    model: PreTrainedModel, batch: Batch, targets: Targets, objective: str, device: torch.device
) -> torch.Tensor:
    """Return the sum of the cross entropy over the targets of a batch (a float32 scalar)."""
    causal = objective == "clm"
    return TargetLoss(model, causal=causal)(*on_device(micro_batch(batch, targets, causal), device).inputs)
