"""The protocol of a training step: all that the loop knows of how a gradient comes about.

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

    from reticent.trainer.labels import Ledger, Targets
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
        """The ledger as it is once this step is taken: batches prepared ahead are not trained on yet."""

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Targets (units in DP-SGD), tokens of documents, tokens with special ones, and cells with padding too."""


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
        The steps that are still to be taken.
    """

    epoch_steps: int
    num_steps: int
    data: Iterator[StepData]


class Step(Protocol):
    """How a step is drawn and how its gradient is made.

    Attributes
    ----------
    takes_empty : bool
        Whether a step without any target moves the weights.
    """

    takes_empty: bool

    @property
    def mask_seed(self) -> int:
        """Seed of everything that is drawn for targets."""

    @property
    def max_grad_norm(self) -> float:
        """The norm that the finished gradient is clipped to."""

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee that holds for every checkpoint of the training; known once it is prepared."""

    def cache_key(self) -> dict[str, Any] | None:
        """Settings beyond `TrainConfig` that change the weights, as JSON."""

    def prepare(self, model: PreTrainedModel, windows: Windows, kept: dict[str, str]) -> None:
        """Bind to a model in train mode, on its device, adapters in place.

        ``kept`` is this step's part of the saved state; it is filled where it is empty.
        """

    def wrap(self, optimizer: torch.optim.Optimizer) -> None:
        """Bind to the optimizer, made of the weights of the prepared model that are trained."""

    def plan_epoch(self, windows: Windows, make: MakeTargets, ledger: Ledger, state: State) -> EpochPlan:
        """Return the steps of ``state.epoch`` after the first ``state.done``; ``ledger`` counts the targets made."""

    def backward(self, data: Any, num_targets: float, step: int) -> list[torch.Tensor]:
        """Leave the gradient of a step in ``.grad``, the same in every process.

        ``num_targets`` is the sum over all processes, ``step`` the number of steps taken before. Returns the loss of
        each batch of this process, a sum, on the device: nothing waits for it here.
        """

    def finish(self, num_steps: int) -> dict[str, Any]:
        """Leave the model as it was before `prepare`; returns JSON for the ledger file."""
