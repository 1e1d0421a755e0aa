"""A private step: DP-SGD, whose cost is reserved before its training starts and settled when it ends.

The seed of samples, masks and noise is drawn from the system. It exists in two places: in memory, and in the private
state file of a run that can be resumed, which is deleted when the run ends. Epsilon assumes that the sample is secret,
so no observer may know the seed.
"""

from __future__ import annotations

import math
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.core.device import autocast
from reticent.core.errors import ArtifactError
from reticent.trainer.budget import Budget
from reticent.trainer.config import TrainConfig
from reticent.trainer.distributed import World
from reticent.trainer.ledger import Ledger
from reticent.trainer.privacy import (
    Guarantee,
    Plan,
    PrivacyConfig,
    plan_privacy,
    refuse_conflicts,
    unaccounted_steps,
)
from reticent.trainer.recipes import Recipe
from reticent.trainer.resume import State
from reticent.trainer.sampling import Units, find_units
from reticent.trainer.step import EpochPlan, MakeTargets
from reticent.trainer.windows import Windows

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from reticent.trainer.dpsgd import NoisyGradient, PhysicalBatches

__all__ = ["PrivateStep"]


class PrivateStep:
    """The :class:`~reticent.trainer.step.Step` of DP-SGD. Its targets are units of privacy; an epoch is 1 / sample rate
    steps.
    """

    #: A step of noise alone is taken too. Otherwise an empty sample would show, and with it an individual's absence.
    takes_empty = True
    #: Gradients are clipped per unit, before the noise; a second clip would change the sum after the noise.
    max_grad_norm = math.inf

    units: Units
    plan: Plan
    budget: Budget | None
    noisy: NoisyGradient
    #: Secret seed of samples, masks and noise, and the name of the run in the budget file.
    seed: int
    name: str

    def __init__(self, recipe: Recipe, config: TrainConfig, privacy: PrivacyConfig, world: World, device: torch.device):
        self.recipe, self.config, self.privacy, self.world, self.device = recipe, config, privacy, world, device

    @property
    def mask_seed(self) -> int:
        """Seed of the masks, which is secret too. The masks of a window depend on its number, and so on the individuals
        before it. With a known seed, one more unit would change the masks of others, and not its own gradient alone.
        """
        return int(np.random.SeedSequence(self.seed, spawn_key=(0, 4)).generate_state(1, np.uint64)[0] >> 1)

    @property
    def guarantee(self) -> Guarantee:
        """The epsilon of the whole training."""
        return self.plan.guarantee

    def cache_key(self) -> dict[str, Any]:
        """The settings of DP-SGD, the device and the number of processes, because each generator makes other noise."""
        return {**self.privacy.cache_key(), "device": self.device.type, "processes": self.world.size}

    def prepare(self, model: PreTrainedModel, windows: Windows, kept: dict[str, str]) -> None:
        """Plan the run, hook the model, and reserve the whole cost in the budget.

        Parameters
        ----------
        kept : dict
            Seed, name and noise of this run from the saved state; filled if it is empty.

        Raises
        ------
        ArtifactError
            A resumed run would continue with another noise multiplier.
        PolicyError
            Opacus is missing, a setting is incompatible with DP-SGD, or the privacy budget does not allow the run.
        """
        config, privacy, world = self.config, self.privacy, self.world
        refuse_conflicts(config, privacy)
        self.units = find_units(windows, privacy.unit, privacy.max_documents)
        batch_size = config.batch_size * config.gradient_accumulation_steps * world.size
        unaccounted = unaccounted_steps(self.recipe)
        self.plan = plan_privacy(privacy, len(self.units), config.num_epochs, batch_size, unaccounted)
        self._name_and_seed(kept)
        self.budget = _budget(privacy)
        from reticent.trainer.dpsgd import NoisyGradient

        self.noisy = NoisyGradient(
            model,
            self.recipe.objective,
            privacy,
            self.plan,
            self.device,
            seed=self.seed,
            rank=world.rank,
            num_ranks=world.size,
            # "auto" would make the clip less exact.
            autocast=partial(autocast, "on" if config.bf16 == "on" else "off", self.device),
        )
        try:
            self._reserve()  # last, after all other reasons to refuse the run
        except BaseException:
            self.noisy.close()
            raise
        world.barrier()  # no process trains before the cost is reserved

    def wrap(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip and add noise for this optimizer."""
        self.noisy.wrap(optimizer)

    def plan_epoch(self, windows: Windows, make: MakeTargets, ledger: Ledger, state: State) -> EpochPlan:
        """Return the epoch's Poisson samples; a sample is a function of (secret seed, step of the run)."""
        size = self.plan.steps_per_epoch
        before = (state.epoch - 1) * size
        data = self.noisy.iter_steps(windows, self.units, make, ledger, first=before + state.done, last=before + size)
        return EpochPlan(size, self.plan.num_steps, data)

    def backward(self, data: PhysicalBatches, num_targets: float, step: int) -> list[torch.Tensor]:
        """Store the clipped, noisy sum over the *expected* number of units, because the number drawn is private."""
        return self.noisy.add_gradients(data.parts, step)

    def finish(self, num_steps: int) -> dict[str, Any]:
        """Take the hooks off the model and settle the reserved budget; returns the cost of the run."""
        self.noisy.close()
        if self.budget is not None and self.world.is_main:
            self.budget.settle(self.name, self.plan.guarantee)
        return {"privacy": {**self.plan.to_dict(), "steps": num_steps}}

    def _reserve(self) -> None:
        if self.budget is None or not self.world.is_main:
            return
        about = {key: value for key, value in self.plan.to_dict().items() if key not in ("guarantee", "noise")}
        self.budget.reserve(self.name, self.plan.guarantee, len(self.units), {**about, "recipe": self.recipe.name})

    def _name_and_seed(self, kept: dict[str, str]) -> None:
        if not kept:
            seed = self.privacy.seed if self.privacy.seed is not None else secrets.randbits(128)
            # The main process shares them by a sum, in words of 32 bits, because its float64 is exact below 2^53.
            words = [seed >> shift & 0xFFFFFFFF for shift in range(0, 128, 32)] + [secrets.randbits(32)]
            words = [int(word) for word in self.world.sum(*(word if self.world.is_main else 0 for word in words))]
            kept["seed"] = f"{sum(word << 32 * place for place, word in enumerate(words[:4])):032x}"
            kept["run"] = f"{words[4]:08x}"
            kept["noise"] = repr(self.plan.noise_multiplier)
        if kept["noise"] != repr(self.plan.noise_multiplier):
            raise ArtifactError(
                f"this training began with noise {kept['noise']} and would go on with {self.plan.noise_multiplier!r}, "
                "which this version of Opacus finds for its epsilon; go on with the other version, or begin anew"
            )
        self.seed, self.name = int(kept["seed"], 16), kept["run"]


def _budget(privacy: PrivacyConfig) -> Budget | None:
    if privacy.budget_file is None or privacy.corpus is None:
        return None
    return Budget(
        path=Path(privacy.budget_file),
        corpus=privacy.corpus,
        max_epsilon=privacy.budget_epsilon,
        max_delta=privacy.budget_delta,
    )
