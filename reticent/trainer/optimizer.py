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
    """Return AdamW over the trainable weights; biases and norms (tensors with one axis) have no weight decay."""
    trained = [weight for weight in weights if weight.requires_grad]
    decayed, others = ([weight for weight in trained if (weight.ndim >= 2) is wide] for wide in (True, False))
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)


def make_schedule(optimizer: torch.optim.Optimizer, config: TrainConfig, step: int, num_steps: int) -> LambdaLR:
    """Return transformers' schedule of this name, set to the rate of ``step`` (counted from 0); call its ``step()``
    after each step.

    A new schedule is made for each epoch, because ``num_steps`` changes if the text changes with the epoch.
    `get_scheduler` cannot begin at a later step, so its two functions are called directly.
    """
    from transformers import get_constant_schedule_with_warmup, get_linear_schedule_with_warmup

    for group in optimizer.param_groups:  # torch requires it of a schedule that begins after step 0
        group["initial_lr"] = config.learning_rate
    if config.lr_scheduler_type == "linear":
        return get_linear_schedule_with_warmup(optimizer, config.warmup_steps, num_steps, last_epoch=step - 1)
    return get_constant_schedule_with_warmup(optimizer, config.warmup_steps, last_epoch=step - 1)
