"""DP-SGD's part of the training loop: samples as physical batches, clipped sums, noise.

The update of a step is (sum over sampled units of clip(gradient, C) + N(0, sigma^2 C^2)) / expected number of units. It
does not depend on the division of a sample into physical batches. With several processes it is the same sum: each
process has a share of one sample, and only the first adds noise.

This module imports Opacus. :class:`~reticent.trainer.private_step.PrivateStep` plans a run and charges its cost.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from opacus.optimizers import get_optimizer_class
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

from reticent.core.errors import TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.trainer.clipping import GhostClipping, InstantiatedClipping, RowLayout, unit_losses, watch_units
from reticent.trainer.labels import Targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.privacy import Plan, PrivacyConfig
from reticent.trainer.sampling import Units, dummy_batch, physical_batches
from reticent.trainer.windows import Batch, Windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["NoisyGradient", "Part", "PhysicalBatches"]


@dataclass(frozen=True, slots=True)
class Part:
    """A physical batch: rows of whole units, and the unit of each row."""

    batch: Batch
    targets: Targets
    units: np.ndarray

    @property
    def num_units(self) -> int:
        """Number of units with rows in it; 0 for the dummy batch of an empty sample."""
        return int(self.units[-1]) + 1 if self.batch.windows[0] >= 0 else 0


@dataclass(frozen=True, slots=True)
class PhysicalBatches:
    """The physical batches of one step, and the ledger after the step; the targets of a private step are units."""

    parts: list[Part]
    ledger: Ledger

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of units, of document tokens, of tokens with special tokens, and of cells with padding."""
        batches = [part.batch for part in self.parts]
        return (
            sum(part.num_units for part in self.parts),
            sum(int(np.count_nonzero(batch.is_text)) for batch in batches),
            sum(int(np.count_nonzero(batch.attention)) for batch in batches),
            sum(batch.attention.size for batch in batches),
        )


class NoisyGradient:
    """Draws samples, clips and adds noise for one training; ``close`` removes all hooks from the model.

    Parameters
    ----------
    model : in train mode, on its device, with its adapters
    seed : int, the secret seed of samples and noise
    rank, num_ranks : rank of this process and number of processes; all have the same weights
    autocast : context of forward passes; in lower precision, clipping is exact with ``clipping="hooks"`` only
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objective: str,
        config: PrivacyConfig,
        plan: Plan,
        device: torch.device,
        *,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ):
        self.model, self.objective, self.config, self.plan, self.device = model, objective, config, plan, device
        self.seed, self.rank, self.num_ranks, self.autocast = seed, rank, num_ranks, autocast
        self.hooks = watch_units(model, config.clipping, config.max_grad_norm)
        self.optimizer: Any = None
        self._noise = torch.Generator(device)
        self._checked = False

    def wrap(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip and add noise for this optimizer, which must hold the trained weights of the hooked model."""
        wrapper = get_optimizer_class("flat", self.num_ranks > 1, self.config.clipping)
        self.optimizer = wrapper(
            optimizer,
            noise_multiplier=self.plan.noise_multiplier,
            max_grad_norm=self.config.max_grad_norm,
            # Opacus divides by the number of processes once more.
            expected_batch_size=self.plan.expected_units / self.num_ranks,
            loss_reduction="mean",
            generator=self._noise,
        )

    def iter_steps(
        self,
        windows: Windows,
        units: Units,
        make: Callable[[Batch, Ledger], Targets],
        ledger: Ledger,
        *,
        first: int,
        last: int,
    ) -> Iterator[PhysicalBatches]:
        """Yield steps ``first`` to ``last`` (exclusive) of the run; a step with an empty sample has a dummy batch."""
        share = {"rank": self.rank, "num_ranks": self.num_ranks}
        for step in range(first, last):
            sample = units.draw(self.plan.sample_rate, seed=self.seed, step=step, **share)
            parts = []
            for part in physical_batches(sample, windows, self.config.max_physical_batch_size):
                batch = windows.gather(part.windows)
                parts.append(Part(batch, make(batch, ledger), part.units))
            if not parts:
                dummy = dummy_batch(windows)
                parts.append(Part(dummy, make(dummy, ledger), np.zeros(1, dtype=np.int64)))
            yield PhysicalBatches(parts, copy.deepcopy(ledger))

    def add_gradients(self, parts: list[Part], step: int) -> list[torch.Tensor]:
        """Store the clipped, noisy mean in ``.grad``, the same in every process.

        Returns the sum of the units' losses for each physical batch, on the device.
        """
        self._reseed(step)
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for turn, part in enumerate(parts):
            if not self._checked and part.targets.num_targets:
                self._check_one_unit(_first_unit(part))
            torch.manual_seed(self._seed_of(step, 2, self.rank, turn))  # dropout
            losses_B = self._losses(part)
            with _quiet():
                if isinstance(self.hooks, GhostClipping):
                    DPTensorFastGradientClipping(self.hooks, self.optimizer, losses_B, "sum").backward()  # type: ignore[arg-type]
                else:
                    losses_B.sum().backward()
            losses.append(losses_B.detach().sum())
            is_last = turn == len(parts) - 1
            self.optimizer.signal_skip_step(do_skip=not is_last)
            self.optimizer.pre_step()  # adds up the clipped sums; at the last batch adds the noise, and divides
            if not is_last:
                self.optimizer.zero_grad(set_to_none=True)
        if self.num_ranks > 1:
            self.optimizer.reduce_gradients()
        return losses

    def close(self) -> None:
        """Remove all hooks from the model."""
        self.hooks.detach()

    def _losses(self, part: Part) -> torch.Tensor:
        rows = RowLayout(part.units, self.device)
        self.hooks.rows = rows
        with self.autocast():
            return unit_losses(self.model, part.batch, part.targets, self.objective, rows)

    def _seed_of(self, *use: int) -> int:
        return int(np.random.SeedSequence(self.seed, spawn_key=use).generate_state(1, np.uint64)[0])

    def _reseed(self, step: int) -> None:
        """Make the noise of a step a function of (seed, step), so a resumed run adds that of an uninterrupted one."""
        self._noise.manual_seed(self._seed_of(step, 1))
        if self.device.type == "cpu":  # its generator uses 32 bits of a seed, few enough to try them all
            words = np.random.SeedSequence(self.seed, spawn_key=(step, 3)).generate_state(624)
            state = self._noise.get_state()
            state[24 : 24 + 624 * 8] = torch.from_numpy(words.astype(np.uint64).view(np.uint8))
            self._noise.set_state(state)

    def _check_one_unit(self, part: Part) -> None:
        """Compare the hooks' gradient of one unit with a plain backward pass: a missed layer would not be private."""
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []), _quiet():
            self._losses(part).sum().backward()
        for name, weight in self.model.named_parameters():
            if not weight.requires_grad:
                continue
            plain = 0.0 if weight.grad is None else float(weight.grad.float().norm())
            if isinstance(self.hooks, GhostClipping):
                seen = getattr(weight, "_norm_sample", None)
            else:
                found = getattr(weight, "grad_sample", None)
                seen = None if found is None else found[0].norm()[None]
            if seen is None or abs(float(seen[0]) - plain) > 0.05 * plain + 1e-4 * self.config.max_grad_norm:
                raise TrainingError(
                    f"DP-SGD: {name} has a gradient that clipping does not see (a layer used in a way that Opacus "
                    "cannot follow); freeze it, or train with LoRA"
                )
            if isinstance(self.hooks, InstantiatedClipping):
                weight.grad_sample = None  # type: ignore[attr-defined]
            weight.grad = None
        self._checked = True


def _first_unit(part: Part) -> Part:
    """The rows of the first unit with a target."""
    has_target = (part.targets.labels != IGNORE_INDEX).any(axis=1)
    rows = np.flatnonzero(part.units == part.units[np.argmax(has_target)])
    batch = Batch(*(getattr(part.batch, field.name)[rows] for field in fields(Batch)))
    targets = Targets(part.targets.input_ids[rows], part.targets.labels[rows])
    return Part(batch, targets, np.zeros(len(rows), dtype=np.int64))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warning, at every backward pass, that an embedding's input requires no gradient."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        yield
