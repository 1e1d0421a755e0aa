"""Whether a model can be trained on packed rows: the logits of a window must not depend on the others in its row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from reticent.core.errors import TrainingError
from reticent.trainer.models import logits_at
from reticent.trainer.packing import block_diagonal_mask

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["require_packable"]


@torch.no_grad()
def require_packable(model: PreTrainedModel, *, causal: bool) -> None:
    """Force ``sdpa``; `TrainingError` unless a window has the same logits in a packed row as alone."""
    config: Any = model.config
    if config._attn_implementation != "sdpa":
        try:
            model.set_attn_implementation("sdpa")
        except (ValueError, ImportError):
            raise TrainingError(f"train.packing: {config.model_type} has no sdpa attention; set it to false") from None
    training = model.training
    model.eval()
    ids = (torch.arange(12, device=model.device) * 7 + 11)[None] % config.vocab_size
    segments = (torch.arange(12, device=model.device) >= 5).int()[None]
    positions = torch.arange(12, device=model.device)[None] - 5 * segments
    every = torch.arange(12, device=model.device)
    try:
        together = logits_at(model, ids, block_diagonal_mask(segments, positions, causal), every, positions)
        alone = torch.cat(
            [logits_at(model, part, None, torch.arange(part.shape[1], device=model.device))
             for part in (ids[:, :5], ids[:, 5:])]
        )  # fmt: skip
    except (TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(
            f"train.packing: {config.model_type} takes no block-diagonal mask ({type(error).__name__})"
        ) from None
    finally:
        model.train(training)
    if float((together - alone).abs().max()) > 1e-4 * float(alone.abs().max()):
        raise TrainingError(
            f"train.packing: windows of one row would see each other in {config.model_type}; set it to false"
        )
