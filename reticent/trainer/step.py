"""The protocol of a training step: the interface through which the loop gets its gradients.

There are two: :class:`~reticent.trainer.plain_step.PlainStep` and, for DP-SGD,
:class:`~reticent.trainer.private_step.PrivateStep`. The loop calls them in this order::

    step.cache_key()                                   # the saved state belongs to this key
    step.prepare(model, windows, state.private)        # may change how the model runs, never its weights
    step.wrap(optimizer)
    for each epoch:
        plan = step.plan_epoch(windows, make, ledger, state)
        for data in plan.data:                         # made ahead, in a thread of its own
            losses = step.backward(data, num_targets, state.step)
    step.finish(state.step)                            # the model is plain again
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from reticent.trainer.labels import Targets
    from reticent.trainer.ledger import Ledger
    from reticent.trainer.privacy import Guarantee
    from reticent.trainer.resume import State
    from reticent.trainer.windows import Batch, Windows

__all__ = ["EpochPlan", "MakeTargets", "Step", "StepData"]

#: Makes the targets of a gathered batch and counts them in a ledger.
MakeTargets: TypeAlias = "Callable[[Batch, Ledger], Targets]"


class StepData(Protocol):
    """The batches of one step, prepared."""

    @property
    def ledger(self) -> Ledger:
        """The ledger after this step; batches that were prepared further ahead are not counted yet."""

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of targets (units in DP-SGD), of document tokens, of tokens with special ones, of cells with
        padding."""


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The steps of one epoch.

    Attributes
    ----------
    epoch_steps : int
        Steps of the whole epoch.
    num_steps : int
        Steps of the whole training, if all later epochs are as long as this one.
    data : iterator of StepData
        The remaining steps of the epoch.
    """

    epoch_steps: int
    num_steps: int
    data: Iterator[StepData]


class Step(Protocol):
    """Draws the data of a step and computes its gradient.

    Attributes
    ----------
    takes_empty : bool
        Whether a step without any target moves the weights.
    """

    takes_empty: bool

    @property
    def mask_seed(self) -> int:
        """Seed of all random draws of targets."""

    @property
    def max_grad_norm(self) -> float:
        """The norm that the finished gradient is clipped to."""

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee that holds for every checkpoint of the training; known after `prepare`."""

    def cache_key(self) -> dict[str, Any] | None:
        """Settings beyond `TrainConfig` that change the weights, as JSON."""

    def prepare(self, model: PreTrainedModel, windows: Windows, kept: dict[str, str]) -> None:
        """Bind to a model in train mode, on its device and with its adapters.

        ``kept`` is this step's part of the saved state; it is filled if it is empty.
        """

    def wrap(self, optimizer: torch.optim.Optimizer) -> None:
        """Bind to the optimizer, which holds the trained weights of the prepared model."""

    def plan_epoch(self, windows: Windows, make: MakeTargets, ledger: Ledger, state: State) -> EpochPlan:
        """Return the steps of ``state.epoch`` after the first ``state.done``; ``ledger`` counts the targets made."""

    def backward(self, data: Any, num_targets: float, step: int) -> list[torch.Tensor]:
        """Store the gradient of a step in ``.grad``, the same in every process.

        ``num_targets`` is the sum over all processes, ``step`` the number of earlier steps. Returns the summed loss of
        each batch of this process, on the device; the host does not wait for it here.
        """

    def finish(self, num_steps: int) -> dict[str, Any]:
        """Restore the model's state before `prepare`; returns JSON for the ledger file."""
