"""One private run, as the training loop sees it: planned and paid for before it starts, settled when it ends.

The seed of samples, masks and noise is drawn from the system and stands in two places: in memory, and in the private
state file that a stopped run goes on from, which is deleted when the run ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.core.errors import ArtifactError, PolicyError
from reticent.trainer.budget import Budget
from reticent.trainer.config import TrainConfig
from reticent.trainer.distributed import World
from reticent.trainer.labels import Ledger, Targets
from reticent.trainer.privacy import PrivacyConfig, plan_privacy, unaccounted_steps
from reticent.trainer.recipes import Recipe
from reticent.trainer.sampling import find_units
from reticent.trainer.windows import Batch, Windows

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from reticent.trainer.dpsgd import PrivateStep

__all__ = ["PrivateRun"]


class PrivateRun:
    """DP-SGD for one call of :func:`reticent.trainer.loop.train`.

    Parameters
    ----------
    kept : dict
        What the state of the training keeps of this run (seed, name and noise); filled where it is empty.

    Raises
    ------
    ArtifactError
        A run that goes on would go on with other noise.
    PolicyError
        Opacus is missing, a setting does not go with DP-SGD, or the privacy budget does not allow the run.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        windows: Windows,
        recipe: Recipe,
        config: TrainConfig,
        privacy: PrivacyConfig,
        kept: dict[str, Any],
        world: World,
        device: torch.device,
    ):
        _refuse_what_does_not_mix(config, privacy)
        self.units = find_units(windows, privacy.unit, privacy.max_documents)
        batch_size = config.batch_size * config.gradient_accumulation_steps * world.size
        self.plan = plan_privacy(privacy, len(self.units), config.num_epochs, batch_size, unaccounted_steps(recipe))
        self._name_and_seed(kept, privacy, world)
        self.budget = self._budget(privacy)
        from reticent.trainer.dpsgd import PrivateSteps

        self.steps = PrivateSteps(
            model,
            recipe.objective,
            privacy,
            self.plan,
            device,
            seed=self.seed,
            rank=world.rank,
            num_ranks=world.size,
            autocast=_autocast(config, device),
        )
        if self.budget is not None and world.is_main:  # after all that can be refused for another reason
            about = {key: value for key, value in self.plan.to_dict().items() if key not in ("guarantee", "noise")}
            about["recipe"] = recipe.name
            try:
                self.budget.reserve(self.name, self.plan.guarantee, len(self.units), about)
            except BaseException:
                self.steps.close()
                raise
        world.barrier()  # nobody trains before it is paid for

    @property
    def mask_seed(self) -> int:
        """Seed of what is drawn for a unit's own words. Secret as all the others: what is drawn for a window depends
        on its number, so on who else is there, and under a seed that is known a unit more would change everybody's.
        """
        return int(np.random.SeedSequence(self.seed, spawn_key=(0, 4)).generate_state(1, np.uint64)[0] >> 1)

    def _name_and_seed(self, kept: dict[str, Any], privacy: PrivacyConfig, world: World) -> None:
        if not kept:
            seed = privacy.seed if privacy.seed is not None else secrets.randbits(128)
            words = [seed >> shift & 0xFFFFFFFF for shift in range(0, 128, 32)] + [secrets.randbits(32)]
            words = [int(word) for word in world.sum(*(word if world.is_main else 0 for word in words))]
            kept["seed"] = f"{sum(word << 32 * place for place, word in enumerate(words[:4])):032x}"
            kept["run"] = f"{words[4]:08x}"
            kept["noise"] = repr(self.plan.noise_multiplier)
        if kept["noise"] != repr(self.plan.noise_multiplier):
            raise ArtifactError(
                f"this training began with noise {kept['noise']} and would go on with {self.plan.noise_multiplier!r}, "
                "which this version of Opacus finds for its epsilon; go on with the other version, or begin anew"
            )
        self.seed, self.name = int(kept["seed"], 16), kept["run"]

    @staticmethod
    def _budget(privacy: PrivacyConfig) -> Budget | None:
        if privacy.budget_file is None or privacy.corpus is None:
            return None
        return Budget(
            path=Path(privacy.budget_file),
            corpus=privacy.corpus,
            max_epsilon=privacy.budget_epsilon,
            max_delta=privacy.budget_delta,
        )

    def iter_epoch(
        self, windows: Windows, make: Callable[[Batch, Ledger], Targets], ledger: Ledger, *, epoch: int, done: int
    ) -> Iterator[PrivateStep]:
        """Yield the steps of an epoch after the first ``done``."""
        before, size = (epoch - 1) * self.plan.steps_per_epoch, self.plan.steps_per_epoch
        return self.steps.iter_steps(windows, self.units, make, ledger, first=before + done, last=before + size)

    def finish(self, world: World) -> None:
        """Settle what was reserved; the model is plain again."""
        self.steps.close()
        if self.budget is not None and world.is_main:
            self.budget.settle(self.name, self.plan.guarantee)


def _refuse_what_does_not_mix(config: TrainConfig, privacy: PrivacyConfig) -> None:
    for name, reason in (
        ("packing", "a packed row is of several units"),
        ("torch_compile", "hooks need plain modules"),
    ):
        if getattr(config, name, False):
            raise PolicyError(f"train.{name}: does not go with DP-SGD ({reason})")
    if config.bf16 == "on" and privacy.clipping == "ghost":
        raise PolicyError(
            'train.bf16: ghost clipping bounds a gradient only as exactly as it is computed twice; use "auto" (float32 '
            'under DP-SGD) or train.dp.clipping = "hooks"'
        )


def _autocast(config: TrainConfig, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Float32 unless bf16 is asked for: "auto" would loosen the clip."""
    if config.bf16 != "on":
        return nullcontext
    import torch

    return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
