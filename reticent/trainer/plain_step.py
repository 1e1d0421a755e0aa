"""A plain step: the gradient of the mean loss over all its targets.

The loss of a micro-batch is a sum. It is divided by the number of targets of the whole step, over all its micro-batches
and processes. With a mean for each micro-batch, the weight of a target would depend on how the step is split.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from reticent.core.device import autocast
from reticent.trainer.config import TrainConfig
from reticent.trainer.distributed import World
from reticent.trainer.feed import MicroBatches, iter_steps, plan_steps
from reticent.trainer.ledger import Ledger
from reticent.trainer.loss import TargetLoss
from reticent.trainer.recipes import Recipe
from reticent.trainer.resume import State
from reticent.trainer.step import EpochPlan, MakeTargets
from reticent.trainer.windows import Windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["PlainStep"]


class PlainStep:
    """The :class:`~reticent.trainer.step.Step` of every recipe without DP-SGD."""

    takes_empty = False  # with a gradient of 0, AdamW's decay and moments would still move the weights
    guarantee = None

    def __init__(self, recipe: Recipe, config: TrainConfig, world: World, device: torch.device):
        self.config, self.world, self.device = config, world, device
        self.causal = recipe.objective == "clm"
        self.mask_seed, self.max_grad_norm = config.seed, config.max_grad_norm
        self.network: torch.nn.Module | None = None
        self.autocast = partial(autocast, config.bf16, device)

    def cache_key(self) -> None:
        """None: `TrainConfig` and the recipe already determine the weights."""

    def prepare(self, model: PreTrainedModel, windows: Windows, kept: dict[str, str]) -> None:
        """Compile the model and share gradients among processes, if configured."""
        network = TargetLoss(model, causal=self.causal)
        if self.config.torch_compile:
            network.compile(dynamic=True)
        self.network = network
        if self.world.size > 1:
            devices = [self.device.index] if self.device.type == "cuda" else None
            self.network = torch.nn.parallel.DistributedDataParallel(
                network, device_ids=devices, broadcast_buffers=False
            )

    def wrap(self, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing."""

    def plan_epoch(self, windows: Windows, make: MakeTargets, ledger: Ledger, state: State) -> EpochPlan:
        """Return the epoch's micro-batches in the order of (seed, epoch)."""
        plan = plan_steps(windows, self.config, self.world, state.epoch)
        num_steps = state.first_step + len(plan) * (self.config.num_epochs - state.epoch + 1)
        data = iter_steps(windows, plan[state.done :], make, ledger, causal=self.causal, device=self.device)
        return EpochPlan(len(plan), num_steps, data)

    def backward(self, data: MicroBatches, num_targets: float, step: int) -> list[torch.Tensor]:
        """Store the gradient of the step's mean loss; returns the summed loss of each micro-batch, on the device."""
        assert self.network is not None
        losses = []
        micro_batches = data.wait()
        for turn, micro in enumerate(micro_batches):
            torch.manual_seed(micro.seed)  # dropout, the same in every process and resumed run
            # Processes exchange gradients once for each step, at its last micro-batch.
            apart = self.world.size > 1 and turn < len(micro_batches) - 1
            with self.network.no_sync() if apart else contextlib.nullcontext():  # type: ignore[operator]
                with self.autocast():
                    loss = self.network(*micro.inputs)
                # DistributedDataParallel averages the processes' gradients; times their number gives the sum.
                (loss * self.world.size / num_targets).backward()
            losses.append(loss.detach())
        return losses

    def finish(self, num_steps: int) -> dict[str, Any]:
        """Return nothing; a plain training has no cost to settle."""
        return {}
