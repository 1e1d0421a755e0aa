"""The protocol of a training step: the interface through which the loop gets its gradients.

There are two: :class:`~reticent.trainer.steps.PlainStep` and, for DP-SGD,
:class:`~reticent.ext.dp.dpsgd.PrivateStep`. The loop calls them in this order::

    step.cache_key()                                   # the saved state belongs to this key
    step.prepare(model, windows, state.private)        # may change how the model runs, never its weights
    step.wrap(optimizer)
    for each epoch:
        plan = step.plan_epoch(windows, make, state)
        for data in plan.data:                         # made ahead, in a thread of its own
            losses = step.backward(data, num_targets, state.step)
    step.finish(state.step)                            # the model is plain again
    step.give_up()                                     # in its place where an error or a stop ends the training
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F

from reticent.core.device import autocast
from reticent.engine.schema import IGNORE_INDEX
from reticent.trainer.config import TrainConfig
from reticent.trainer.distributed import World, shard
from reticent.trainer.labels import Targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.models import first_position, lm_head, num_rows, states_of
from reticent.trainer.packing import lay_out, packed_order
from reticent.trainer.recipes import Recipe
from reticent.trainer.resume import State
from reticent.trainer.windows import Batch, Windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from reticent.trainer.privacy import Guarantee


#: Makes the targets of a gathered batch and counts them in a ledger.
MakeTargets: TypeAlias = "Callable[[Batch, Ledger], Targets]"


class StepData(Protocol):
    """The prepared batches of one step."""

    @property
    def ledger(self) -> Ledger:
        """Counts of prediction targets in this step; they are added to the training's ledger when the step is taken."""

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of prediction targets (privacy units in DP-SGD), document tokens, tokens with special ones, and
        positions with padding in the step."""


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
    """Prepares the data of a step and computes its gradient.

    Attributes
    ----------
    takes_empty : bool
        Whether a step without any target moves the weights.
    network : module, optional
        Called with the inputs of a `MicroBatch` it returns the summed loss; None: the model alone does nothing else.
    """

    takes_empty: bool
    network: torch.nn.Module | None

    @property
    def mask_seed(self) -> int:
        """Seed of all random draws of targets."""

    @property
    def max_grad_norm(self) -> float:
        """The norm to which the finished gradient is clipped."""

    @property
    def guarantee(self) -> Guarantee | None:
        """Privacy guarantee of DP-SGD for all checkpoints of the training together; known after `prepare`, None without
        DP-SGD."""

    def after(self, epoch: int) -> Guarantee | None:
        """Return the privacy guarantee that holds for the checkpoints up to this epoch; None without DP-SGD."""

    def cache_key(self) -> dict[str, Any] | None:
        """Return the settings beyond `TrainConfig` that change the weights, as JSON values; None if there are none."""

    def prepare(self, model: PreTrainedModel, windows: Windows, kept: dict[str, str]) -> None:
        """Prepare to compute gradients of a model, which must be in train mode, on its device and with its adapters.
        ``kept`` is this object's part of the saved training state: it is read when a training is resumed, otherwise
        filled."""

    def wrap(self, optimizer: torch.optim.Optimizer) -> None:
        """Attach this object to the optimizer of the weights that are trained; `prepare` must have been called with
        their model."""

    def plan_epoch(self, windows: Windows, make: MakeTargets, state: State) -> EpochPlan:
        """Return the remaining steps of epoch ``state.epoch``, after the first ``state.done``, with their batches;
        ``make`` makes the inputs and labels of a batch."""

    def backward(self, data: Any, num_targets: float, step: int) -> list[torch.Tensor]:
        """Store the gradient of a step in ``.grad``, the same in every process; return the summed loss of each batch of
        this process.

        ``num_targets`` is the sum over all processes, ``step`` the number of earlier steps. Returns the summed loss of
        each batch of this process, on the device; the host does not wait for it here.
        """

    def finish(self, num_steps: int) -> dict[str, Any]:
        """Restore the model to its condition before `prepare`, and return what the ledger file says of this kind of
        step (such as its privacy cost after ``num_steps``) as JSON values."""

    def give_up(self) -> None:
        """Restore the model as `finish` does, after an error or a stop."""


# ---------------------------------------------------------------------------------------------------------------- feed
#
# From window numbers to tensors on the device, prepared by one thread while the model computes.
#
# The plan of an epoch is a list of steps, a step is a list of micro-batches, and a micro-batch is an array of window
# numbers. The plan is a function of (seed, epoch): every process makes the same plan and takes its own micro-batches.
#
# Shapes: B rows of a micro-batch, T tokens of a row, N cells that predict a target.


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The inputs of one forward pass; :func:`on_device` moves them to the device.

    Attributes
    ----------
    input_ids : int64 tensor, shape (B, T)
    attention : bool tensor, shape (B, T), False for padding; None if there is none, or no token attends to it
    positions : int64 tensor, shape (B, T); None unless rows are packed
        A token's position in its window.
    bounds : int32 tensor, shape (W + 1,); None unless rows are packed
        Where windows begin and end in the flattened batch.
    at : int64 tensor, shape (N,)
        Indices into the flattened batch of the tokens whose output predicts a target, ascending.
    labels : int64 tensor, shape (N,)
        The target at each of these indices: a token id, class or tag.
    windows : int64 array, shape (number of windows,)
        Numbers of the windows, on the host: one for each row, or several if rows are packed.
    seed : int
        Seed of everything that is drawn while the model processes this micro-batch (dropout).
    """

    input_ids: torch.Tensor
    attention: torch.Tensor | None
    positions: torch.Tensor | None
    bounds: torch.Tensor | None
    at: torch.Tensor
    labels: torch.Tensor
    windows: np.ndarray
    seed: int = 0

    @property
    def inputs(self) -> tuple[torch.Tensor | None, ...]:
        """Arguments of the model's forward pass, in order."""
        return self.input_ids, self.attention, self.positions, self.bounds, self.at, self.labels

    @property
    def num_targets(self) -> int:
        """Number of prediction targets in the micro-batch."""
        return len(self.at)


@dataclass(slots=True)
class MicroBatches:
    """The micro-batches of this process for one step, and their counts."""

    micro_batches: list[MicroBatch]
    num_targets: int
    num_tokens: int
    num_filled: int
    num_cells: int
    ledger: Ledger
    ready: torch.cuda.Event | None = None

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of prediction targets, document tokens, tokens with special ones, and positions with padding in the
        step.
        """
        return self.num_targets, self.num_tokens, self.num_filled, self.num_cells

    def wait(self) -> list[MicroBatch]:
        """Return the micro-batches; the device, not the host, waits for their transfer."""
        if self.ready is not None:
            for micro in self.micro_batches:
                wait_for_transfer(_tensors(micro).values(), self.ready)
        return self.micro_batches


@dataclass(frozen=True, slots=True)
class Part:
    """A planned micro-batch: window numbers, and the counters of its random draws (seed, epoch, index in the epoch)."""

    windows: np.ndarray
    counters: tuple[int, int, int]
    #: The row of each window, ascending, if windows are packed.
    rows: np.ndarray | None = None

    @property
    def seed(self) -> int:
        """Seed for the dropout of this micro-batch; it does not change with the number of processes or when the
        training is resumed."""
        seed, *others = self.counters
        return int(np.random.SeedSequence([seed & (2**64 - 1), *others]).generate_state(1, np.uint64)[0])


def plan_steps(windows: Windows, config: TrainConfig, world: World, epoch: int) -> list[list[Part | None]]:
    """Return the micro-batches that this process computes in an epoch, one list for each step, in an order drawn by
    (seed, epoch). None stands for a micro-batch without targets, where other processes have one more.

    A step takes ``gradient_accumulation_steps * world.size`` batches in the order of the epoch and distributes them in
    turn. So two processes take the same steps as one process with twice the accumulation. In the last step some
    processes may have none, and take part in every sum by one without targets; where processes share weights, each has
    as many as the first.
    """
    drawn = {"seed": config.seed, "epoch": epoch}
    batches: list[tuple[np.ndarray, np.ndarray | None]]
    if config.packing:
        batches = [*packed_order(windows, config.batch_size, config.window_length, **drawn)]
    else:
        batches = [(numbers, None) for numbers in windows.epoch_order(config.batch_size, **drawn)]
    parts = [Part(numbers, (config.seed, epoch, place), rows) for place, (numbers, rows) in enumerate(batches)]
    size = config.gradient_accumulation_steps * world.size
    steps: list[list[Part | None]] = []
    for start in range(0, len(parts), size):
        step = parts[start : start + size]
        own, fewest = step[world.rank :: world.size], len(step[:: world.size]) if config.fsdp else 1
        steps.append([*own, *[None] * (fewest - len(own))])
    return steps


def iter_steps(
    windows: Windows,
    plan: Sequence[Sequence[Part | None]],
    make: MakeTargets,
    *,
    causal: bool,
    device: torch.device,
) -> Iterator[MicroBatches]:
    """Yield, for each planned step, its micro-batches with tensors on the device and their ledger; meant to run in its
    own thread.

    Each step has a ledger of its own, because batches prepared ahead are not trained on yet.
    """
    for parts in plan:
        made, num_tokens, num_filled, num_cells, ledger = [], 0, 0, 0, Ledger()
        for part in parts:
            if part is None:
                batch = windows.gather(np.zeros(1, dtype=np.int64))
                nothing = Targets(batch.inputs, np.full_like(batch.inputs, IGNORE_INDEX))
                made.append(micro_batch(batch, nothing, causal))
                continue
            batch = windows.gather(part.windows)
            targets = make(batch, ledger)
            if part.rows is None:
                made.append(micro_batch(batch, targets, causal, seed=part.seed))
            else:
                made.append(_packed_micro_batch(batch, targets, causal, part, windows))
            num_tokens += batch.num_tokens
            num_filled += int(np.count_nonzero(batch.attention))
            num_cells += made[-1].input_ids.numel()
        num_targets = sum(micro.num_targets for micro in made)
        with transfers_on_own_stream(device) as ready:
            made = [on_device(micro, device) for micro in made]
        yield MicroBatches(made, num_targets, num_tokens, num_filled, num_cells, ledger, ready())


def micro_batch(batch: Batch, targets: Targets, causal: bool, *, seed: int = 0) -> MicroBatch:
    """Return a batch and its targets as one micro-batch of host tensors. In a causal model position t predicts the
    token at t + 1, and no token attends to the padding on the right. The attention mask is None if there is no
    padding."""
    labels = align_labels(targets, causal)
    at = np.flatnonzero(labels != IGNORE_INDEX)
    return MicroBatch(
        input_ids=torch.from_numpy(targets.input_ids),
        attention=None if causal or batch.attention.all() else torch.from_numpy(batch.attention),
        positions=None,
        bounds=None,
        at=torch.from_numpy(at),
        labels=torch.from_numpy(labels.reshape(-1)[at]),
        windows=batch.windows,
        seed=seed,
    )


def _packed_micro_batch(batch: Batch, targets: Targets, causal: bool, part: Part, windows: Windows) -> MicroBatch:
    """Return a batch and its targets as a micro-batch in which several windows share a row (``part.rows`` has the row
    of each), so that little is padded."""
    assert part.rows is not None
    lengths = batch.attention.sum(axis=1)
    laid = lay_out(
        targets.input_ids, align_labels(targets, causal), lengths, part.rows,
        pad=windows.special.pad, padded=windows.padded_width,
    )  # fmt: skip
    at = np.flatnonzero(laid.labels != IGNORE_INDEX)
    return MicroBatch(
        input_ids=torch.from_numpy(laid.input_ids),
        attention=None,
        positions=torch.from_numpy(laid.positions),
        bounds=torch.from_numpy(laid.bounds),
        at=torch.from_numpy(at),
        labels=torch.from_numpy(laid.labels.reshape(-1)[at]),
        windows=batch.windows,
        seed=part.seed,
    )


def align_labels(targets: Targets, causal: bool) -> np.ndarray:
    """Return the labels moved to the positions that predict them, int64 (B, T): in a causal model one to the left, in a
    masked model unchanged."""
    if not causal:
        return targets.labels
    labels = np.full_like(targets.input_ids, IGNORE_INDEX)
    labels[:, : targets.labels.shape[1] - 1] = targets.labels[:, 1:]
    return labels


def on_device(micro: MicroBatch, device: torch.device) -> MicroBatch:
    """Return a micro-batch with its tensors on the device."""
    return replace(micro, **{name: to_device(tensor, device) for name, tensor in _tensors(micro).items()})  # type: ignore[arg-type]


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a copy of a host tensor on the device. To CUDA it goes through pinned memory, asynchronously."""
    pinned = device.type == "cuda"
    return (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=pinned)


@lru_cache
def _transfer_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the CUDA stream for transfers to a device, always the same one."""
    return torch.cuda.Stream(device)


@contextlib.contextmanager
def transfers_on_own_stream(device: torch.device) -> Iterator[Callable[[], torch.cuda.Event | None]]:
    """Context manager: run transfers to the device on a stream of their own, in parallel to computation. It yields a
    function that returns an event for their completion (None on a CPU)."""
    if device.type != "cuda":
        yield lambda: None
        return
    with torch.cuda.stream(_transfer_stream(device)):
        yield _transfer_stream(device).record_event


def wait_for_transfer(tensors: Iterable[torch.Tensor], transferred: torch.cuda.Event) -> None:
    """Make the device's computation wait until the tensors are transferred; the host does not wait."""
    stream = torch.cuda.current_stream()
    stream.wait_event(transferred)
    for tensor in tensors:
        tensor.record_stream(stream)


def _tensors(micro: MicroBatch) -> dict[str, torch.Tensor]:
    """Return field name -> tensor of a micro-batch."""
    values = {entry.name: getattr(micro, entry.name) for entry in fields(micro)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


# ---------------------------------------------------------------------------------------------------------------- loss
#
# The loss: the sum of the cross entropy over targets, with logits computed at these cells alone.
#
# Where the logits are many, they are made and forgotten a piece at a time: no copy of all in float32 exists, nor of all
# at all. The last bits of the gradient then differ from those of one piece.
#
# Shapes: B rows of a micro-batch, T tokens of a row, N cells that predict a target, D dimensions, V vocabulary.

#: Most logits that exist at once: 256 MB of float32.
MOST_LOGITS = 1 << 26


class _LossInPieces(torch.autograd.Function):
    """The head and the cross entropy as one function that computes its gradients with the loss and so keeps no logits
    (like the fused linear cross entropy of Liger-Kernel)."""

    @staticmethod
    def forward(
        ctx: Any, states_ND: torch.Tensor, labels_N: torch.Tensor, head: Any, rows: int, *weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the summed cross entropy, computed ``rows`` targets at a time together with its gradients."""
        needed = [states_ND, *weights] if any(ctx.needs_input_grad) else []
        gradients = [torch.zeros_like(tensor) for tensor in needed]
        total = torch.zeros((), device=states_ND.device)
        for states, labels, *of_states in zip(
            states_ND.split(rows), labels_N.split(rows), *(gradient.split(rows) for gradient in gradients[:1]),
            strict=True,
        ):  # fmt: skip
            with torch.set_grad_enabled(bool(needed)):
                states = states.detach().requires_grad_(bool(needed))
                logits = head(states)
            scores = torch.log_softmax(logits.detach(), dim=-1, dtype=torch.float32)
            total -= scores.gather(1, labels[:, None]).sum()
            if not needed:
                continue
            slope = scores.exp_().scatter_add_(1, labels[:, None], scores.new_full((len(labels), 1), -1.0))
            found = torch.autograd.grad(logits, [states, *weights], slope.to(logits.dtype))
            of_states[0].copy_(found[0])
            for gradient, piece in zip(gradients[1:], found[1:], strict=True):
                gradient += piece
        ctx.gradients = gradients
        return total

    @staticmethod
    def backward(ctx: Any, of_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        """Return the stored gradients times the gradient of the loss."""
        states, *weights = (gradient.mul_(of_loss) for gradient in ctx.gradients)
        del ctx.gradients
        return states, None, None, None, *weights


@torch._disable_dynamo  # torch.compiler.disable loads the compiler at once: a second and a half of every command
def _loss_in_pieces(states_ND: torch.Tensor, labels_N: torch.Tensor, head: Any, rows: int) -> torch.Tensor:
    """Return the summed cross entropy over the targets, with logits for only ``rows`` targets in memory at a time."""
    head = torch.nn.Identity() if head is None else head
    # To an evaluation the function would be told that weights need a gradient, and would make it.
    weights = [weight for weight in head.parameters() if weight.requires_grad and torch.is_grad_enabled()]
    return _LossInPieces.apply(states_ND, labels_N, head, rows, *weights)


class TargetLoss(torch.nn.Module):
    """A model whose output is the sum of the cross entropy over the targets of a micro-batch (a float32 scalar).

    Logits are computed only at the cells that predict a target, so a protected token has no gradient.
    """

    def __init__(self, model: PreTrainedModel, *, packed: bool = False):
        super().__init__()
        self.model = model
        self._first = (first_position(model) or 0) if packed else 0
        # In a tuple: as an attribute it would be a second module, and its weights are the model's already.
        self._head = (lm_head(model),)
        self._most_rows = max(1, MOST_LOGITS // num_rows(model))

    def forward(
        self,
        input_ids_BT: torch.Tensor,
        attention_BT: torch.Tensor | None,
        positions_BT: torch.Tensor | None,
        bounds: torch.Tensor | None,
        at_N: torch.Tensor,
        labels_N: torch.Tensor,
    ) -> torch.Tensor:
        """Return the summed cross entropy over the targets ``labels_N``, which are predicted at the positions ``at_N``
        of the flattened batch, a float32 scalar."""
        if positions_BT is not None:
            positions_BT = positions_BT + self._first
        head = self._head[0]
        states_ND = states_of(self.model, head, input_ids_BT, attention_BT, at_N, positions_BT, bounds)
        if len(at_N) > self._most_rows:
            return _loss_in_pieces(states_ND, labels_N, head, self._most_rows)
        logits_NV = states_ND if head is None else head(states_ND)
        return F.cross_entropy(logits_NV.float(), labels_N, reduction="sum")


def target_loss(
    model: PreTrainedModel, batch: Batch, targets: Targets, objective: str, device: torch.device
) -> torch.Tensor:
    """Return the summed cross entropy over the targets of a batch, a float32 scalar."""
    causal = objective == "clm"
    return TargetLoss(model)(*on_device(micro_batch(batch, targets, causal), device).inputs)


# ---------------------------------------------------------------------------------------------------------- plain step
#
# A plain step: the gradient of the mean loss over all its targets.
#
# The loss of a micro-batch is a sum. It is divided by the number of targets of the whole step, over all its micro-
# batches and processes. With a mean for each micro-batch, the weight of a target would depend on how the step is
# split.


def _reaches_every_weight(network: TargetLoss) -> bool:
    """Return whether the loss of a single token gives every trained weight a gradient, so that any batch's loss does.

    One token never reaches all experts that tokens are routed to, and no layer is sure to be reached that training may
    drop.
    """
    model, device = network.model, network.model.device
    if any(share for name, share in model.config.to_dict().items() if name.endswith("layerdrop")):
        return False
    training, one = model.training, torch.ones(1, dtype=torch.int64, device=device)
    model.eval()  # no statistics move, nothing is drawn
    with torch.enable_grad():
        network.forward(one[None], None, None, None, one - 1, one).backward()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    reached = all(weight.grad is not None for weight in trained)
    for weight in trained:
        weight.grad = None
    model.train(training)
    return reached


class PlainStep:
    """The :class:`~reticent.trainer.steps.Step` of every recipe without DP-SGD."""

    takes_empty = False  # with a gradient of 0, AdamW's decay and moments would still move the weights
    guarantee = None

    def __init__(self, recipe: Recipe, config: TrainConfig, world: World, device: torch.device):
        self.config, self.world, self.device = config, world, device
        self.causal = recipe.is_causal
        self.mask_seed, self.max_grad_norm = config.seed, config.max_grad_norm
        self.network: torch.nn.Module | None = None
        self.autocast = partial(autocast, config.bf16, device)

    def after(self, epoch: int) -> None:
        """Return None: there is no guarantee."""

    def cache_key(self) -> None:
        """Return None: `TrainConfig` and the recipe already determine the weights."""

    def prepare(self, model: PreTrainedModel, windows: Windows, kept: dict[str, str]) -> None:
        """Prepare the model for training: compile it if configured, and exchange or shard gradients among several
        processes."""
        network = TargetLoss(model, packed=self.config.packing)
        if self.config.torch_compile:
            network.compile(dynamic=True)
        self.network = network
        if self.world.size > 1 and self.config.fsdp:
            shard(network, model, self.world, self.device)
        elif self.world.size > 1:
            devices = [self.device.index] if self.device.type == "cuda" else None
            # A weight without a gradient would be waited for without end; to look for them costs time in every step.
            unused = not _reaches_every_weight(network)
            self.network = torch.nn.parallel.DistributedDataParallel(
                network, device_ids=devices, broadcast_buffers=False, find_unused_parameters=unused
            )

    def wrap(self, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing."""

    def plan_epoch(self, windows: Windows, make: MakeTargets, state: State) -> EpochPlan:
        """Return the epoch's remaining micro-batches, in the order drawn by (seed, epoch)."""
        plan = plan_steps(windows, self.config, self.world, state.epoch)
        num_steps = state.first_step + len(plan) * (self.config.num_epochs - state.epoch + 1)
        num_steps = min(num_steps, self.config.max_steps or num_steps)
        data = iter_steps(windows, plan[state.done :], make, causal=self.causal, device=self.device)
        return EpochPlan(len(plan), num_steps, data)

    def backward(self, data: MicroBatches, num_targets: float, step: int) -> list[torch.Tensor]:
        """Store the gradient of the step's mean loss, and return the summed loss of each micro-batch, on the device."""
        assert self.network is not None
        losses = []
        micro_batches = data.wait()
        for turn, micro in enumerate(micro_batches):
            torch.manual_seed(micro.seed)  # dropout, the same in every process and resumed run
            # Processes exchange gradients once for each step, at its last micro-batch.
            apart = self.world.size > 1 and turn < len(micro_batches) - 1
            if self.world.size > 1 and self.config.fsdp:
                self.network.set_requires_gradient_sync(not apart)  # type: ignore[operator]
                apart = False
            with self.network.no_sync() if apart else contextlib.nullcontext():  # type: ignore[operator]
                with self.autocast():
                    loss = self.network(*micro.inputs)
                # Both ways average the processes' gradients; times their number gives the sum.
                (loss * self.world.size / num_targets).backward()
            losses.append(loss.detach())
        return losses

    def finish(self, num_steps: int) -> dict[str, Any]:
        """Return an empty dict: a plain training has no privacy cost."""
        return {}

    def give_up(self) -> None:
        """Do nothing."""
