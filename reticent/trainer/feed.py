"""From window numbers to tensors on the device, prepared by one thread while the model computes.

The plan of an epoch is a list of steps, a step is a list of micro-batches, and a micro-batch is an array of window
numbers. The plan is a function of (seed, epoch): every process makes the same plan and takes its own micro-batches.

Shapes: B rows of a micro-batch, T tokens of a row, N cells that predict a target.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from reticent.engine.schema import IGNORE_INDEX
from reticent.trainer.config import TrainConfig
from reticent.trainer.distributed import World
from reticent.trainer.labels import Targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.packing import lay_out, packed_order
from reticent.trainer.step import MakeTargets
from reticent.trainer.windows import Batch, Windows

__all__ = ["MicroBatch", "MicroBatches", "Part", "iter_steps", "micro_batch", "on_device", "plan_steps"]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The inputs of one forward pass; :func:`on_device` moves them to the device.

    Attributes
    ----------
    input_ids : int64 tensor, shape (B, T)
    attention : bool tensor, shape (B, T), False for padding; None if no token attends to padding
    positions, segments : int64 and int32 tensors, shape (B, T); None unless rows are packed
        A token's position in its window, and the number of its window in the row, -1 for padding.
    at : int64 tensor, shape (N,)
        Cells of the flattened batch whose output predicts a target, ascending.
    labels : int64 tensor, shape (N,)
    windows : int64 array, shape (number of windows,)
        Numbers of the windows, on the host: one for each row, or several if rows are packed.
    seed : int
        Seed of everything that is drawn while the model processes this micro-batch (dropout).
    """

    input_ids: torch.Tensor
    attention: torch.Tensor | None
    positions: torch.Tensor | None
    segments: torch.Tensor | None
    at: torch.Tensor
    labels: torch.Tensor
    windows: np.ndarray
    seed: int = 0

    @property
    def inputs(self) -> tuple[torch.Tensor | None, ...]:
        """The arguments of the model, in its order."""
        return self.input_ids, self.attention, self.positions, self.segments, self.at, self.labels

    @property
    def num_targets(self) -> int:
        return len(self.at)


@dataclass(slots=True)
class MicroBatches:
    """The micro-batches of this process for one step, and the ledger after the step."""

    micro_batches: list[MicroBatch]
    num_targets: int
    num_tokens: int
    num_filled: int
    num_cells: int
    ledger: Ledger
    ready: torch.cuda.Event | None = None

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of targets, of document tokens, of tokens with special tokens, and of cells with padding."""
        return self.num_targets, self.num_tokens, self.num_filled, self.num_cells

    def wait(self) -> list[MicroBatch]:
        """Return the micro-batches; the device, not the host, waits until they have arrived."""
        if self.ready is not None:
            stream = torch.cuda.current_stream()
            stream.wait_event(self.ready)
            for tensor in (tensor for micro in self.micro_batches for tensor in _tensors(micro).values()):
                tensor.record_stream(stream)
        return self.micro_batches


@dataclass(frozen=True, slots=True)
class Part:
    """A planned micro-batch: window numbers, and its position in the training: (seed, epoch, place in the epoch)."""

    windows: np.ndarray
    counters: tuple[int, int, int]
    #: The row of each window, ascending, if windows are packed.
    rows: np.ndarray | None = None

    @property
    def seed(self) -> int:
        """Seed of dropout; it is the same in every process, run and resumed run."""
        seed, *others = self.counters
        return int(np.random.SeedSequence([seed & (2**64 - 1), *others]).generate_state(1, np.uint64)[0])


def plan_steps(windows: Windows, config: TrainConfig, world: World, epoch: int) -> list[list[Part]]:
    """Return this process's micro-batches of every step of an epoch.

    A step takes ``gradient_accumulation_steps * world.size`` batches in the order of the epoch and distributes them in
    turn. So two processes take the same steps as one process with twice the accumulation. In the last step some
    processes may have no micro-batch.
    """
    drawn = {"seed": config.seed, "epoch": epoch}
    batches: list[tuple[np.ndarray, np.ndarray | None]]
    if config.packing:
        batches = [*packed_order(windows, config.batch_size, config.window_length, **drawn)]
    else:
        batches = [(numbers, None) for numbers in windows.epoch_order(config.batch_size, **drawn)]
    parts = [Part(numbers, (config.seed, epoch, place), rows) for place, (numbers, rows) in enumerate(batches)]
    size = config.gradient_accumulation_steps * world.size
    return [parts[start : start + size][world.rank :: world.size] for start in range(0, len(parts), size)]


def iter_steps(
    windows: Windows,
    plan: Sequence[Sequence[Part]],
    make: MakeTargets,
    ledger: Ledger,
    *,
    causal: bool,
    device: torch.device,
) -> Iterator[MicroBatches]:
    """Yield the steps of a plan with their tensors on the device; to be run in a thread of its own.

    ``ledger`` counts targets as they are made. Each step carries a copy of it as of that step, because batches prepared
    ahead are not trained on yet. A process without a micro-batch in a step gets one without targets, because it must
    take part in every sum.
    """
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    for parts in plan:
        made, num_tokens, num_filled, num_cells = [], 0, 0, 0
        for part in parts:
            batch = windows.gather(part.windows)
            targets = make(batch, ledger)
            if part.rows is None:
                made.append(micro_batch(batch, targets, causal, seed=part.seed))
            else:
                made.append(_packed(batch, targets, causal, part, windows))
            num_tokens += int(np.count_nonzero(batch.is_text))
            num_filled += int(np.count_nonzero(batch.attention))
            num_cells += made[-1].input_ids.numel()
        if not made:
            batch = windows.gather(np.zeros(1, dtype=np.int64))
            nothing = Targets(batch.input_ids, np.full_like(batch.input_ids, IGNORE_INDEX))
            made.append(micro_batch(batch, nothing, causal))
        num_targets = sum(micro.num_targets for micro in made)
        ready = None
        if stream is not None:
            with torch.cuda.stream(stream):
                made = [on_device(micro, device) for micro in made]
                ready = stream.record_event()
        yield MicroBatches(made, num_targets, num_tokens, num_filled, num_cells, copy.deepcopy(ledger), ready)


def micro_batch(batch: Batch, targets: Targets, causal: bool, *, seed: int = 0) -> MicroBatch:
    """Return a batch as host tensors. In a causal model position t predicts the token at t + 1, and no token attends to
    the padding on the right.
    """
    labels = _labels(targets, causal)
    at = np.flatnonzero(labels != IGNORE_INDEX)
    return MicroBatch(
        input_ids=torch.from_numpy(targets.input_ids),
        attention=None if causal else torch.from_numpy(batch.attention),
        positions=None,
        segments=None,
        at=torch.from_numpy(at),
        labels=torch.from_numpy(labels.reshape(-1)[at]),
        windows=batch.windows,
        seed=seed,
    )


def _packed(batch: Batch, targets: Targets, causal: bool, part: Part, windows: Windows) -> MicroBatch:
    assert part.rows is not None
    lengths = batch.attention.sum(axis=1)
    laid = lay_out(
        targets.input_ids, _labels(targets, causal), lengths, part.rows, pad=windows.special.pad, padded=windows.padded
    )
    at = np.flatnonzero(laid.labels != IGNORE_INDEX)
    return MicroBatch(
        input_ids=torch.from_numpy(laid.input_ids),
        attention=None,
        positions=torch.from_numpy(laid.positions),
        segments=torch.from_numpy(laid.segments),
        at=torch.from_numpy(at),
        labels=torch.from_numpy(laid.labels.reshape(-1)[at]),
        windows=batch.windows,
        seed=part.seed,
    )


def _labels(targets: Targets, causal: bool) -> np.ndarray:
    """Labels (B, T), each at the position that predicts it."""
    if not causal:
        return targets.labels
    return np.concatenate([targets.labels[:, 1:], np.full_like(targets.labels[:, :1], IGNORE_INDEX)], axis=1)


def on_device(micro: MicroBatch, device: torch.device) -> MicroBatch:
    """Move a micro-batch; to CUDA through pinned memory, without waiting."""
    pinned = device.type == "cuda"
    moved = {
        name: (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=pinned)
        for name, tensor in _tensors(micro).items()
    }
    return replace(micro, **moved)  # type: ignore[arg-type]


def _tensors(micro: MicroBatch) -> dict[str, torch.Tensor]:
    values = {entry.name: getattr(micro, entry.name) for entry in fields(micro)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
