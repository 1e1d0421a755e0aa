"""The guarantee of DP-SGD: settings, the noise that they need, and an epsilon that never stands without its unit.

The mechanism: each step samples every unit of privacy with probability q (Poisson) and clips its gradient to C. The sum
gets Gaussian noise of standard deviation sigma * C and is divided by the *expected* number of units. Neighbouring
corpora differ by the presence of one unit. Epsilon is the upper bound of Opacus' PRV accountant over the planned number
of steps, or that of RDP where noise is little, and covers all checkpoints of the run together. It does not cover files
that are private anyway (loss curves, counts, the ledger), nor models that were trained on the same documents without
noise. The number of units is treated as public: the sample rate, the number of steps and the default delta are
functions of it.

Epsilon is withheld if another step read every individual's documents before the training (protection, deduplication,
pseudonyms, canaries). Such a step is not accounted, and the noise does not hide it.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence
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
    "MEANINGLESS",
    "Guarantee",
    "Plan",
    "PrivacyConfig",
    "cost_of",
    "default_delta",
    "epsilon_of",
    "plan_privacy",
    "protects_nobody",
    "refuse_conflicts",
    "refuse_promise",
    "show_delta",
    "show_epsilon",
    "shown_in",
    "together",
    "unaccounted_steps",
]


#: Name of the file of spendings in a run folder.
BUDGET_FILE = "privacy-budget.json"
#: More steps than any training takes. A sample rate that needs more is a mistake and would run for days.
MAX_STEPS = 1_000_000


#: An epsilon above which PRV's grid is too large to be worth its digits.
LOOSE = 50.0
#: An epsilon above which the guarantee means nothing: whoever sees the model may be e^20 times surer than before.
MEANINGLESS = 20.0


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
    unit: Literal["individual", "household", "record"]
    max_documents: int | None = None
    unaccounted: tuple[str, ...] = ()

    @property
    def protects_nobody(self) -> str:
        """A sentence about an epsilon that is above `MEANINGLESS`; empty below."""
        if not protects_nobody(str(self)):
            return ""
        return f"An epsilon above {MEANINGLESS:.0f} protects nobody: more noise (a larger noise_multiplier) is needed."

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
        ``target_delta`` is not below 1/units, there would be over a million steps, or ``target_epsilon`` is set
        although no epsilon can be given, or needs noise beyond the gradients of all units of a step.
    """
    if find_spec("opacus") is None:
        raise PolicyError("train.dp: DP-SGD needs Opacus; pip install reticent[dp]")
    if isinstance(config.target_epsilon, tuple):
        raise PolicyError("train.dp.target_epsilon: a list is for a job, which trains one model for each; give one")
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
        if sigma > (expected := rate * num_units):  # more in each number than all gradients of a step can add up to
            least = epsilon_of(rate, expected, num_steps, delta, config.accountant)
            raise PolicyError(
                f"train.dp.target_epsilon: {config.target_epsilon:g} needs noise of {sigma:.3g} times the gradient of "
                f"one {config.unit}, and a step has {expected:.3g} of {num_units:,}: nothing could be learned; epsilon "
                f"{show_epsilon(least)} is the least at this size, or take larger batches or fewer epochs"
            )
    epsilon: float | None = None
    accountant: str = config.accountant
    if not unaccounted:
        epsilon, accountant = cost_of(rate, sigma, num_steps, delta, config.accountant)
    cap = config.max_documents if config.unit == "individual" else None
    return Plan(
        guarantee=Guarantee(epsilon=epsilon, delta=delta, unit=config.unit, max_documents=cap, unaccounted=unaccounted),
        num_units=num_units,
        sample_rate=rate,
        noise_multiplier=sigma,
        steps_per_epoch=steps_per_epoch,
        num_steps=num_steps,
        accountant=accountant,
    )


def refuse_conflicts(config: TrainConfig, privacy: PrivacyConfig) -> None:
    """Raise `PolicyError` for a setting of a training that does not go with DP-SGD, or has no effect there."""
    for name, reason in (
        ("packing", "a packed row is of several units"),
        ("torch_compile", "hooks need plain modules"),
        ("gradient_checkpointing", "hooks would see each layer twice"),
        ("fsdp", "gradients of a unit are of whole weights"),
    ):
        if getattr(config, name, False):
            raise PolicyError(f"train.{name}: does not go with DP-SGD ({reason})")
    if config.dtype != "float32":
        raise PolicyError("train.dtype: does not go with DP-SGD (its sums and its noise are in float32)")
    if config.bf16 == "on" and privacy.clipping == "ghost":
        raise PolicyError(
            'train.bf16: ghost clipping bounds a gradient only as exactly as it is computed twice; use "auto" (float32 '
            'here) or train.dp.clipping = "hooks"'
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


def epsilon_of(
    sample_rate: float, noise_multiplier: float, num_steps: int, delta: float, accountant: str = "prv"
) -> float:
    """Return an upper bound on epsilon of ``num_steps`` Poisson-sampled Gaussian steps (Gopi et al. 2021); see
    :func:`cost_of`."""
    return cost_of(sample_rate, noise_multiplier, num_steps, delta, accountant)[0]


@lru_cache(maxsize=256)
def cost_of(
    sample_rate: float, noise_multiplier: float, num_steps: int, delta: float, accountant: str = "prv"
) -> tuple[float, str]:
    """Return an upper bound on epsilon of ``num_steps`` Poisson-sampled Gaussian steps, and the accountant it is by.

    Where RDP's bound is over `LOOSE`, it is returned in place of PRV's, whose grid would take minutes and gigabytes.
    Epsilon is infinite without noise only. Cost: under a second for "prv", milliseconds for "rdp".
    """
    if num_steps == 0:
        return 0.0, accountant
    if noise_multiplier == 0:
        return math.inf, accountant
    from opacus.accountants import create_accountant

    rdp = _rdp_epsilon(sample_rate, noise_multiplier, num_steps, delta)
    if accountant == "rdp" or rdp > LOOSE:
        return rdp, "rdp"
    counter = create_accountant(accountant)
    counter.history = [(noise_multiplier, sample_rate, num_steps)]
    with _quiet():
        try:
            prv = max(float(counter.get_epsilon(delta)), 0.0)  # of next to nothing the bound falls below
        except (ValueError, RuntimeError, OverflowError):  # its grid does not reach so small a delta
            return rdp, "rdp"
    return (prv, accountant) if prv <= rdp else (rdp, "rdp")  # PRV's error is 0.01, which hides a smaller epsilon


def _rdp_epsilon(sample_rate: float, noise_multiplier: float, num_steps: int, delta: float) -> float:
    """The smaller of two bounds by Renyi divergences: Opacus' over its orders (Mironov et al. 2019), and that of as
    many steps without sampling over all orders (Bun and Steinke 2016), which there is for every noise.
    """
    from opacus.accountants import RDPAccountant

    rho = num_steps / 2 / noise_multiplier / noise_multiplier
    unsampled = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    counter = RDPAccountant()
    counter.history = [(noise_multiplier, sample_rate, num_steps)]
    with _quiet():
        try:
            sampled = float(counter.get_epsilon(delta))
        except (ValueError, OverflowError, FloatingPointError):
            sampled = math.inf
    return min(unsampled, sampled) if math.isfinite(sampled) and sampled > 0 else unsampled


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the accountants' warnings: logarithms of 0, whose infinity is intended, and orders that are a bracket."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        warnings.filterwarnings("ignore", message="Optimal order is the")
        yield


def default_delta(num_units: int) -> float:
    """Return the largest power of ten that is at most 1 / (10 * units), so several runs stay below 1 / units
    together."""
    return 10.0 ** -math.ceil(math.log10(10 * num_units) - 1e-12)


def _noise_for(epsilon: float, delta: float, sample_rate: float, num_steps: int, accountant: str) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    tolerance = min(0.01, epsilon / 100)
    if accountant == "prv" and epsilon <= LOOSE:
        try:
            with _quiet():
                return get_noise_multiplier(
                    target_epsilon=epsilon,
                    target_delta=delta,
                    sample_rate=sample_rate,
                    steps=num_steps,
                    accountant=accountant,
                    epsilon_tolerance=tolerance,
                )
        except (ValueError, RuntimeError, OverflowError):
            pass  # PRV's grid does not reach it; Renyi divergences do
    low, high = 0.0, 1.0
    while _rdp_epsilon(sample_rate, high, num_steps, delta) > epsilon:
        low, high = high, 2 * high
    while epsilon - _rdp_epsilon(sample_rate, high, num_steps, delta) > tolerance and high - low > 1e-9 * high:
        middle = (low + high) / 2
        enough = _rdp_epsilon(sample_rate, middle, num_steps, delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high


def show_epsilon(epsilon: float) -> str:
    """Return epsilon with two decimals, rounded up, so it is still an upper bound."""
    return f"{math.ceil(epsilon * 100 - 1e-9) / 100:.2f}" if math.isfinite(epsilon) else "infinite"


def shown_in(guarantee: str) -> tuple[float, float, str] | None:
    """Return epsilon, delta and unit as the sentence of a guarantee shows them; None where there is no epsilon.

    >>> shown_in("epsilon 8.00 at delta 1e-5 per individual (at most 4 documents each)")
    (8.0, 1e-05, 'individual')
    """
    shown = re.match(r"epsilon (\S+) at delta (\S+) per (\w+)", guarantee)
    return None if shown is None else (float(shown[1].replace("infinite", "inf")), float(shown[2]), shown[3])


def together(guarantees: Sequence[Guarantee]) -> Guarantee | None:
    """Return what several trainings cost together: sums of epsilons and deltas (basic composition), which hold however
    each was chosen; None where one has no epsilon, or another unit.
    """
    epsilons = [each.epsilon for each in guarantees if each.epsilon is not None]
    if not epsilons or len(epsilons) < len(guarantees) or len({each.unit for each in guarantees}) > 1:
        return None
    caps = {each.max_documents for each in guarantees}
    return replace(
        guarantees[0],
        epsilon=math.fsum(epsilons),
        delta=math.fsum(each.delta for each in guarantees),
        max_documents=caps.pop() if len(caps) == 1 else None,
    )


def protects_nobody(guarantee: str) -> bool:
    """Return whether the epsilon that the sentence of a guarantee shows is above `MEANINGLESS`."""
    shown = shown_in(guarantee)
    return shown is not None and shown[0] > MEANINGLESS


def show_delta(delta: float) -> str:
    """Return delta without a leading zero in its exponent: 1e-05 as 1e-5."""
    mantissa, exponent = f"{delta:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
