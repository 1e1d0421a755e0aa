"""The optimizer and its learning rate: AdamW of torch, schedules of transformers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from reticent.trainer.config import TrainConfig

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LambdaLR

__all__ = ["make_optimizer", "make_schedule"]


def make_optimizer(
    weights: Iterable[torch.nn.Parameter], *, learning_rate: float, weight_decay: float
) -> torch.optim.AdamW:
    """Return AdamW over those of the weights that are trained; biases and norms (one axis) are not decayed."""
    trained = [weight for weight in weights if weight.requires_grad]
    decayed, others = ([weight for weight in trained if (weight.ndim >= 2) is wide] for wide in (True, False))
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)


def make_schedule(optimizer: torch.optim.Optimizer, config: TrainConfig, step: int, num_steps: int) -> LambdaLR:
    """Return transformers' schedule of this name with the rate of ``step`` set, counted from 0; call its ``step()``
    after each step.

    It is made anew for each epoch: where the text changes with the epoch, so does ``num_steps``. `get_scheduler` cannot
    begin at a later step, so its two functions are called themselves.
    """
    from transformers import get_constant_schedule_with_warmup, get_linear_schedule_with_warmup

    for group in optimizer.param_groups:  # torch demands it of a schedule that does not begin at step 0
        group["initial_lr"] = config.learning_rate
    if config.lr_scheduler_type == "linear":
        return get_linear_schedule_with_warmup(optimizer, config.warmup_steps, num_steps, last_epoch=step - 1)
    return get_constant_schedule_with_warmup(optimizer, config.warmup_steps, last_epoch=step - 1)
