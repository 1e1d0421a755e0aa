"""The guarantee of DP-SGD: settings, the noise that they need, and an epsilon that never stands without its unit.

The mechanism: each step samples every unit of privacy with probability q (Poisson) and clips its gradient to C. The sum
gets Gaussian noise of standard deviation sigma * C and is divided by the *expected* number of units. Neighbouring
corpora differ by the presence of one unit. Epsilon is the upper bound of Opacus' PRV accountant over the planned number
of steps, and covers all checkpoints of the run together. It does not cover files that are private anyway (loss curves,
counts, the ledger), nor models that were trained on the same documents without noise. The number of units is treated as
public: the sample rate, the number of steps and the default delta are functions of it.

Epsilon is withheld if another step read every individual's documents before the training (protection, deduplication,
pseudonyms, canaries). Such a step is not accounted, and the noise does not hide it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Literal

from reticent.core.errors import PolicyError
from reticent.trainer.config import PrivacyConfig, TrainConfig
from reticent.trainer.recipes import Recipe

__all__ = [
    "BUDGET_FILE",
    "Guarantee",
    "Plan",
    "PrivacyConfig",
    "default_delta",
    "epsilon_of",
    "plan_privacy",
    "refuse_conflicts",
    "refuse_promise",
    "show_delta",
    "show_epsilon",
    "unaccounted_steps",
]


#: Name of the file of spendings in a run folder.
BUDGET_FILE = "privacy-budget.json"
#: More steps than any training takes. A sample rate that needs more is a mistake and would run for days.
MAX_STEPS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """An epsilon with all that it needs to be meaningful; `str` gives one sentence.

    ``unaccounted`` names steps that read every individual's documents; if there is one, ``epsilon`` is None.

    >>> print(Guarantee(epsilon=7.992, delta=1e-5, unit="individual", max_documents=4))
    epsilon 8.00 at delta 1e-5 per individual (at most 4 documents each)
    >>> print(Guarantee(epsilon=None, delta=1e-5, unit="record", unaccounted=("deduplication",)))
    no epsilon (per record): not accounted: deduplication
    """

    epsilon: float | None
    delta: float
    unit: Literal["individual", "record"]
    max_documents: int | None = None
    unaccounted: tuple[str, ...] = ()

    def __str__(self) -> str:
        cap = f" (at most {self.max_documents} documents each)" if self.max_documents is not None else ""
        if self.epsilon is None:
            return f"no epsilon (per {self.unit}): not accounted: {', '.join(self.unaccounted)}"
        return f"epsilon {show_epsilon(self.epsilon)} at delta {show_delta(self.delta)} per {self.unit}{cap}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of a private run and their cost, fixed before it starts."""

    guarantee: Guarantee
    num_units: int
    sample_rate: float
    noise_multiplier: float
    steps_per_epoch: int
    num_steps: int
    accountant: str

    @property
    def expected_units(self) -> float:
        """Expected number of units in a step, the divisor of the noisy sum."""
        return self.sample_rate * self.num_units

    def after(self, num_steps: int) -> Guarantee:
        """Return the cost of the first ``num_steps`` steps."""
        if self.guarantee.epsilon is None:
            return self.guarantee
        spent = epsilon_of(self.sample_rate, self.noise_multiplier, num_steps, self.guarantee.delta, self.accountant)
        return replace(self.guarantee, epsilon=spent)

    def to_dict(self) -> dict[str, object]:
        """Return the plan in the form that the run's ledger keeps."""
        return {
            "guarantee": str(self.guarantee),
            # JSON has no infinity.
            "epsilon": "infinite" if self.guarantee.epsilon == math.inf else self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "unit": self.guarantee.unit,
            "max_documents": self.guarantee.max_documents,
            "unaccounted": list(self.guarantee.unaccounted),
            "accountant": self.accountant,
            "noise_multiplier": self.noise_multiplier,
            "sample_rate": self.sample_rate,
            "num_units": self.num_units,
            "num_steps": self.num_steps,
            "noise": "torch's generator, not a cryptographic one",
        }


def plan_privacy(
    config: PrivacyConfig, num_units: int, num_epochs: int, batch_size: int, unaccounted: tuple[str, ...] = ()
) -> Plan:
    """Return sample rate, steps, noise and epsilon of a run. Cost: seconds, for ``target_epsilon``.

    An epoch is 1/q steps, rounded, so the expected number of units in it is the number of units.

    Raises
    ------
    PolicyError
        ``target_delta`` is not below 1/units, there would be over a million steps, ``target_epsilon`` cannot be
        reached, or it is set although no epsilon can be given.
    """
    if find_spec("opacus") is None:
        raise PolicyError("train.dp: DP-SGD needs Opacus; pip install reticent[dp]")
    unaccounted = (*config.unaccounted, *unaccounted)
    if num_units < 1:
        raise PolicyError(f"train.dp: there is no {config.unit} to train on")
    delta = config.target_delta if config.target_delta is not None else default_delta(num_units)
    if delta * num_units >= 1:
        raise PolicyError(
            f"train.dp.target_delta: {show_delta(delta)} is not below 1 / {num_units} {config.unit}s: it would allow "
            "to publish one of them"
        )
    rate = config.sample_rate if config.sample_rate is not None else min(1.0, batch_size / num_units)
    steps_per_epoch = max(1, round(1 / rate))
    num_steps = num_epochs * steps_per_epoch
    if num_steps > MAX_STEPS:
        raise PolicyError(
            f"train.dp.sample_rate: {rate:.3g} makes {num_steps:,} steps, {rate * num_units:.3g} {config.unit}s "
            f"expected in each; at most {MAX_STEPS:,}: give a larger sample_rate, or a larger batch_size in its place"
        )
    refuse_promise(config, unaccounted)
    sigma = config.noise_multiplier
    if sigma is None:
        assert config.target_epsilon is not None
        sigma = _noise_for(config.target_epsilon, delta, rate, num_steps, config.accountant)
    epsilon = None if unaccounted else epsilon_of(rate, sigma, num_steps, delta, config.accountant)
    cap = config.max_documents if config.unit == "individual" else None
    return Plan(
        guarantee=Guarantee(epsilon=epsilon, delta=delta, unit=config.unit, max_documents=cap, unaccounted=unaccounted),
        num_units=num_units,
        sample_rate=rate,
        noise_multiplier=sigma,
        steps_per_epoch=steps_per_epoch,
        num_steps=num_steps,
        accountant=config.accountant,
    )


def refuse_conflicts(config: TrainConfig, privacy: PrivacyConfig) -> None:
    """Raise `PolicyError` for a setting of a training that does not go with DP-SGD, or has no effect there."""
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
    if privacy.unit == "record" and privacy.max_documents != PrivacyConfig.model_fields["max_documents"].default:
        raise PolicyError('train.dp.max_documents: is of an individual, and train.dp.unit is "record"')
    if privacy.budget_delta is not None and privacy.budget_epsilon is None:
        raise PolicyError("train.dp.budget_delta: limits nothing without train.dp.budget_epsilon")


def refuse_promise(config: PrivacyConfig, unaccounted: tuple[str, ...]) -> None:
    """Raise `PolicyError` for a target epsilon where there are steps that are not accounted."""
    if unaccounted and config.target_epsilon is not None:
        raise PolicyError(
            f"train.dp.target_epsilon: no epsilon can be promised, since {' and '.join(unaccounted)} looked at "
            "every individual's documents and is not accounted; leave it out, or give noise_multiplier and "
            "get no epsilon"
        )


def unaccounted_steps(recipe: Recipe) -> tuple[str, ...]:
    """Return the steps of a recipe that depend on every individual's documents and are not accounted."""
    found = []
    if recipe.never_target:
        found.append("the choice of protected words")
    if recipe.text != "original" or recipe.context != "keep" or recipe.replaces_indirect:
        found.append("the choice of replaced words")
    return tuple(found)


@lru_cache(maxsize=256)
def epsilon_of(
    sample_rate: float, noise_multiplier: float, num_steps: int, delta: float, accountant: str = "prv"
) -> float:
    """Return an upper bound on epsilon of ``num_steps`` Poisson-sampled Gaussian steps (Gopi et al. 2021).

    It is infinite without noise. Cost: under a second; several seconds if epsilon is in the hundreds.
    """
    if num_steps == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    from opacus.accountants import create_accountant

    counter = create_accountant(accountant)
    counter.history = [(noise_multiplier, sample_rate, num_steps)]
    with _quiet(accountant):
        return max(float(counter.get_epsilon(delta)), 0.0)  # the bound of a run that costs next to nothing falls below


@contextmanager
def _quiet(accountant: str) -> Iterator[None]:
    """Silence two warnings: PRV's log of 0, whose infinity is intended, and RDP's largest order, which is a bracket."""
    with warnings.catch_warnings():
        if accountant == "prv":
            warnings.filterwarnings("ignore", message="divide by zero encountered in log", category=RuntimeWarning)
            warnings.filterwarnings("ignore", message="Optimal order is the largest alpha")
        yield


def default_delta(num_units: int) -> float:
    """Return the largest power of ten that is at most 1 / (10 * units), so several runs stay below 1 / units
    together."""
    return 10.0 ** -math.ceil(math.log10(10 * num_units) - 1e-12)


def _noise_for(epsilon: float, delta: float, sample_rate: float, num_steps: int, accountant: str) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    tolerance = min(0.01, epsilon / 100)
    try:
        with _quiet(accountant):
            return get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=sample_rate,
                steps=num_steps,
                accountant=accountant,
                epsilon_tolerance=tolerance,
            )
    except ValueError:
        raise PolicyError(
            f"train.dp.target_epsilon: {epsilon} cannot be had at delta {show_delta(delta)} in {num_steps} steps with "
            "any noise"
        ) from None


def show_epsilon(epsilon: float) -> str:
    """Return epsilon with two decimals, rounded up, so it is still an upper bound."""
    return f"{math.ceil(epsilon * 100 - 1e-9) / 100:.2f}" if math.isfinite(epsilon) else "infinite"


def show_delta(delta: float) -> str:
    """Return delta without a leading zero in its exponent: 1e-05 as 1e-5."""
    mantissa, exponent = f"{delta:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
