"""Private metrics of a running training: reproducible numbers of the model, and, in a separate file, times.

``metrics.jsonl`` holds the numbers that another run with the same seed repeats: a line every ``logging_steps`` steps
and one for each epoch. ``timings.jsonl`` holds the others: seconds, and the share of them in which the loop waited for
data. A resumed run truncates both files to their length when its state was saved.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from reticent.core.errors import PolicyError, TrainingError
from reticent.trainer.distributed import World
from reticent.trainer.resume import State

T = TypeVar("T")

FILES = ("metrics.jsonl", "timings.jsonl")


class Metrics:
    """Appends lines to both files, and scalars to TensorBoard if configured."""

    def __init__(self, files: dict[str, Any], board: Any = None):
        self._files, self._board = files, board

    def log(self, values: dict[str, Any], file: str = "metrics.jsonl") -> None:
        """Write ``values`` as one JSON line of ``file`` and, with TensorBoard, as scalars at their ``step``."""
        if file in self._files:
            self._files[file].write(json.dumps(values) + "\n")
            self._files[file].flush()
        if self._board is not None:
            kind = "step" if "learning_rate" in values else "epoch"
            for name, value in values.items():
                if name not in ("epoch", "step"):
                    self._board.add_scalar(f"{kind}/{name}", value, values["step"])

    def sizes(self) -> dict[str, int]:
        """Return the current length of each metrics file in bytes, by file name. A resumed training truncates the files
        to the lengths in its saved state."""
        return {name: file.tell() for name, file in self._files.items()}


@contextmanager
def open_metrics(out: Path, state: State, report_to: tuple[str, ...], *, write: bool) -> Iterator[Metrics]:
    """Yield the metrics of ``out``, its files truncated to their length when the state was saved; no files if ``write``
    is False."""
    files: dict[str, Any] = {}
    board = None
    try:
        if write:
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
            board = _tensorboard(out, state.step) if "tensorboard" in report_to else None
            for name in FILES:
                files[name] = os.fdopen(os.open(out / name, os.O_RDWR | os.O_CREAT, 0o600), "r+")
                files[name].truncate(min(state.sizes.get(name, 0), os.fstat(files[name].fileno()).st_size))
                files[name].seek(0, os.SEEK_END)
        yield Metrics(files, board)
    finally:
        for file in files.values():
            file.close()
        if board is not None:
            board.close()
            for path in (out / "tensorboard").iterdir():
                path.chmod(0o600)


class LossReader:
    """Keeps the losses and gradient norms of steps on the device until they are read and checked, all at once.

    On CUDA ``found_inf`` makes the optimizer skip a step whose gradient is not finite, and every later step, without a
    wait for the host. So the weights are still good when the error is raised.
    """

    def __init__(self, state: State, metrics: Metrics, world: World, logging_steps: int, out: Path):
        self.state, self.metrics, self.world, self.out = state, metrics, world, out
        self.logging_steps = logging_steps
        self.found_inf: torch.Tensor | None = None
        #: Mean loss of the last step that was read.
        self.last = math.nan
        self._pending: list[tuple[int, float, list[torch.Tensor], torch.Tensor, float]] = []

    def add(self, num_targets: float, losses: list[torch.Tensor], norm: torch.Tensor, rate: float) -> None:
        """Queue the summed losses of a step's micro-batches and its gradient norm, still on the device, until
        `read`."""
        self._pending.append((self.state.step + 1, num_targets, losses, norm, rate))
        if norm.device.type != "cpu":
            bad = (~torch.isfinite(norm)).float()
            self.found_inf = bad if self.found_inf is None else torch.maximum(self.found_inf, bad)

    def read(self) -> None:
        """Add the queued losses to the training state and log them; raise `TrainingError` if a loss or gradient norm is
        not finite."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        on_device = [value for _, _, losses, norm, _ in pending for value in (*losses, norm)]
        values = iter(torch.stack([value.detach().float() for value in on_device]).tolist())
        read = [(math.fsum(next(values) for _ in losses), next(values)) for _, _, losses, _, _ in pending]
        sums = self.world.sum(*(loss for loss, _ in read))
        for (step, num_targets, _, _, rate), loss, (_, norm) in zip(pending, sums, read, strict=True):
            for what, value in (("loss", loss), ("gradient", norm)):  # a finite loss can have an infinite gradient
                if not math.isfinite(value):
                    raise TrainingError(
                        f"the {what} is not finite in epoch {self.state.epoch}, step {step}; lower the learning rate"
                        f" ({self._last_good()})"
                    )
            self.state.epoch_loss += loss
            self.state.epoch_targets += int(num_targets)
            self.last = loss / max(num_targets, 1)  # DP-SGD's sample may be empty
            if step % self.logging_steps == 0:
                about = {"epoch": self.state.epoch, "step": step, "loss": self.last, "targets": int(num_targets)}
                self.metrics.log({**about, "grad_norm": norm, "learning_rate": rate})

    def _last_good(self) -> str:
        """Return the phrase that names the last checkpoint, for an error message."""
        if not self.state.checkpoints:
            return "there is no checkpoint yet"
        return f"the last good checkpoint is {self.out / f'epoch-{self.state.checkpoints[-1]:04d}'}"


class Clock:
    """Measures the time of an epoch, and the part in which the loop waits for data.

    If SOURCE_DATE_EPOCH is set, for builds that are reproduced byte for byte, every time is 0.
    """

    def __init__(self) -> None:
        self._now = (lambda: 0.0) if os.environ.get("SOURCE_DATE_EPOCH") else time.perf_counter
        self._lap = self._epoch = self._now()
        self._waited = 0.0

    def lap(self) -> float:
        """Return the seconds since the last call of this method."""
        before, self._lap = self._lap, self._now()
        return self._lap - before

    def begin_epoch(self) -> None:
        """Start the time of an epoch."""
        self._epoch, self._waited = self._now(), 0.0

    def watch(self, items: Iterable[T]) -> Iterator[T]:
        """Yield ``items``, and add up the time that the loop waits for each of them; the time from the start of the
        epoch to the first item counts as waiting."""
        since = self._epoch
        for item in items:
            self._waited += self._now() - since
            yield item
            since = self._now()

    def of_epoch(self) -> dict[str, float]:
        """Return the seconds of this epoch, and the share of them in which the loop waited for data."""
        seconds = self._now() - self._epoch
        return {"seconds": round(seconds, 3), "waited": round(self._waited / seconds, 5) if seconds else 0.0}


def _tensorboard(out: Path, step: int) -> Any:
    """Return a TensorBoard writer that drops events after ``step``."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise PolicyError('train.report_to: "tensorboard" needs its package; pip install reticent[track]') from None
    (out / "tensorboard").mkdir(mode=0o700, exist_ok=True)
    return SummaryWriter(str(out / "tensorboard"), purge_step=step + 1 if step else None)
