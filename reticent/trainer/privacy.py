"""The guarantee of DP-SGD: settings, the noise that they need, and an epsilon that always has its unit.

The mechanism: each step samples every unit of privacy with probability q (Poisson) and clips its gradient to C. The sum
gets Gaussian noise of standard deviation sigma * C and is divided by the *expected* number of units. Neighbouring
corpora differ by the presence of one unit. Epsilon is the upper bound of Opacus' PRV accountant over the planned number
of steps, or that of RDP where noise is little, and covers all checkpoints of the run together. It does not cover files
that are private anyway (loss curves, counts, the ledger), nor models that were trained on the same documents without
noise. The number of units is treated as public, or declared (``num_units``): the sample rate, the number of steps, the
divisor and the default delta are functions of it.

Epsilon is withheld if another step read every individual's documents before the training: `STAGES` lists such steps.
They are not accounted, and the noise does not hide them. A private vocabulary is accounted: it is one more Gaussian
mechanism, which the accountant composes with the steps. Theorem: definitions.md#from-documents-to-weights.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Context
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Literal

from reticent.core.errors import PolicyError
from reticent.trainer.config import PrivacyConfig, TrainConfig
from reticent.trainer.recipes import Recipe

#: Name of the file of spendings in a run folder.
BUDGET_FILE = "privacy-budget.json"
#: More steps than any training takes. A sample rate that needs more is a mistake and would run for days.
MAX_STEPS = 1_000_000


#: Epsilon above which PRV's grid costs too much for its precision.
LOOSE = 50.0
#: An epsilon above which the guarantee means nothing: whoever sees the model may be e^20 times surer than before.
MEANINGLESS = 20.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage between documents and weights through which one individual may affect others, by its name in a ledger.

    ``reason`` says how; ``way_out`` what to set instead or, if ``accounted``, why the theorem covers it.
    """

    name: str
    reason: str
    way_out: str
    accounted: bool = False


#: All stages that the proof has to cover. With one that is not accounted there is no epsilon.
STAGES: Mapping[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage(
            "deduplication",
            "the copy, or near copy, of one individual takes documents of others out",
            'dedup.scope = "individual", with the unit individual',
        ),
        Stage(
            "the draw of the user-inference holdout",
            "which documents are held back depends on how many an individual has, so one more document moves others",
            'train.dp.unit = "individual", or leave split.user_inference_holdout out',
        ),
        Stage(
            "the planting of canaries",
            "their words, and who carries them, depend on all members",
            "leave [canaries] out; a model with canaries is for the audit",
        ),
        Stage(
            "the base model",
            "it was trained here: without noise on individuals of the reference side, or as its ledger beside it says",
            "foundation.text = a public text, or a public base",
        ),
        Stage(
            "the training of its checkpoint",
            "what a head starts from was trained on these documents without noise",
            "from_recipes = the base, or recipes trained by DP-SGD",
        ),
        Stage(
            "the choice of protected words",
            "minimum counts and the scope corpus protect a word in the texts of one by the texts of others",
            'a recipe whose words are "public" or "private": dp-clm-public, private-clm, or recipes.NAME.words',
        ),
        Stage(
            "the choice of replaced words",
            "what is replaced is chosen as what is protected, and surrogates go by language, dates and names of all",
            'a recipe whose words are "public" or "private": its surrogates follow from one\'s own documents',
        ),
        Stage(
            "the other documents of an individual",
            "what is found in one document of an individual protects words in their others",
            'train.dp.unit = "individual"',
        ),
        Stage(
            "the propagation of identifiers",
            "what was found in one document is found in those of others",
            "detect.propagate = false",
        ),
        Stage(
            "a detector that learns from all documents",
            "common words, corpus features and the batches of a network make spans of one follow from others",
            "detectors gold, rules, records and shipped, the last two with a public list (common = FILE)",
        ),
        Stage(
            "lists of names",
            "a list may be made of the records of others, which no proof can see",
            "leave the detector gazetteer out; records finds an individual's own",
        ),
        Stage(
            "the number of individuals",
            "sample rate, steps, divisor and delta follow from it",
            "train.dp.num_units declares a public number that all four follow from; without it the number of members "
            "counts as public, and neighbours have it in common",
            accounted=True,
        ),
        Stage(
            "the split",
            "whoever guesses its seed knows every side",
            "a side follows from the seed and one's own id; no term of the bound needs the sides or the seed secret",
            accounted=True,
        ),
        Stage(
            "households",
            "they are on one side, count once and vote once, so an individual moves those of the household",
            "where households are kept together, a household is the unit of epsilon",
            accounted=True,
        ),
        Stage(
            "votes",
            "one's votes move which words others learn",
            "members vote, and pay vocabulary and training together; held-out individuals neither vote nor train. Who "
            "lets them vote, or chooses by them, owes vocabulary and the larger of training and selection",
            accounted=True,
        ),
        Stage(
            "the floor of k voters",
            "a word of k - 1 voters and one more is spared for certain or not",
            "the floor costs half of the delta of the vocabulary, which is taken from that of the whole",
            accounted=True,
        ),
        Stage(
            "draws",
            "masks, public words and samples that go by the number of a window change when one comes before it",
            "in DP-SGD they go by document and place, under a secret seed",
            accounted=True,
        ),
        Stage(
            "random tokens",
            "a pool without the identifiers of the documents tells what these are",
            "in DP-SGD the pool is the whole vocabulary",
            accounted=True,
        ),
        Stage(
            "the choice of the epoch",
            "an epoch chosen by held-out individuals tells of them",
            "the number of epochs is fixed before, and epsilon covers all checkpoints together; a choice by a report "
            "is a decision outside of the theorem",
            accounted=True,
        ),
        Stage(
            "anything printed",
            "losses, counts and warnings are functions of the documents",
            "they stay in the run folder; the card of a model holds recipe, settings and guarantee and no other number",
            accounted=True,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """A differential-privacy guarantee: epsilon, delta and privacy unit; `str` gives one sentence.

    ``unaccounted`` names stages that depend on every individual's documents; if there is one, ``epsilon`` is None.

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
        """A sentence that warns of an epsilon so large (above `MEANINGLESS`) that the guarantee protects nobody; empty
        for a smaller one."""
        if not protects_nobody(str(self)):
            return ""
        return f"An epsilon above {MEANINGLESS:.0f} protects nobody: more noise (a larger noise_multiplier) is needed."

    def __str__(self) -> str:
        most = "one document" if self.max_documents == 1 else f"{self.max_documents} documents"
        cap = f" (at most {most} each)" if self.max_documents is not None else ""
        if self.epsilon is None:
            return f"no epsilon (per {self.unit}): not accounted: {', '.join(self.unaccounted)}"
        return f"epsilon {show_epsilon(self.epsilon)} at delta {show_delta(self.delta)} per {self.unit}{cap}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of a private training and their privacy cost, fixed before it starts."""

    guarantee: Guarantee
    num_units: int
    sample_rate: float
    noise_multiplier: float
    steps_per_epoch: int
    num_steps: int
    accountant: str
    #: Noise (sigma) of the private vocabulary, and the delta of its floor, which are part of the guarantee.
    vocabulary: tuple[float, float] | None = None

    @property
    def expected_units(self) -> float:
        """Expected number of privacy units in a step, the divisor of the noisy sum."""
        return self.sample_rate * self.num_units

    def after(self, num_steps: int) -> Guarantee:
        """Return the privacy guarantee that holds after the first ``num_steps`` steps."""
        if self.guarantee.epsilon is None:
            return self.guarantee
        mechanism = (self.sample_rate, self.noise_multiplier, num_steps, self.guarantee.delta)
        return replace(self.guarantee, epsilon=epsilon_of(*mechanism, self.accountant, self.vocabulary))

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values for the ledger."""
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
            **({} if self.vocabulary is None else {"vocabulary": list(self.vocabulary)}),
            "noise": "torch's generator, not a cryptographic one",
        }


def plan_privacy(
    config: PrivacyConfig, num_units: int, num_epochs: int, batch_size: int, unaccounted: tuple[str, ...] = ()
) -> Plan:
    """Return the plan (sample rate, steps, noise, epsilon) of a DP-SGD training on ``num_units`` privacy units. It has
    no epsilon if there are ``unaccounted`` preparation steps.

    An epoch is 1/q steps, rounded, so the expected number of units in it is the number of units, or the one that is
    declared in its place.

    Raises
    ------
    PolicyError
        ``target_delta`` is not below 1/units, there would be over a million steps, ``target_epsilon`` is set although
        no epsilon can be given, or needs noise beyond the gradients of all units of a step, or the private vocabulary
        alone spends more.
    """
    if find_spec("opacus") is None:
        raise PolicyError("train.dp: DP-SGD needs Opacus; pip install reticent[dp]")
    if isinstance(config.target_epsilon, tuple):
        raise PolicyError("train.dp.target_epsilon: a list is for a job, which trains one model for each; give one")
    unaccounted = (*config.unaccounted, *unaccounted)
    num_units, delta, rate, steps_per_epoch = plan_sampling(config, num_units, num_epochs, batch_size)
    num_steps = num_epochs * steps_per_epoch
    refuse_promise(config, unaccounted)
    require_reachable_epsilon(config, num_units, num_epochs, batch_size)
    sigma = config.noise_multiplier
    if sigma is None:
        assert config.target_epsilon is not None
        sigma = _noise_for(config.target_epsilon, delta, rate, num_steps, config.accountant, config.vocabulary)
    epsilon: float | None = None
    accountant: str = config.accountant
    if not unaccounted:
        epsilon, accountant = cost_of(rate, sigma, num_steps, delta, config.accountant, config.vocabulary)
    cap = config.max_documents if config.unit != "record" else None
    return Plan(
        guarantee=Guarantee(epsilon=epsilon, delta=delta, unit=config.unit, max_documents=cap, unaccounted=unaccounted),
        num_units=num_units,
        sample_rate=rate,
        noise_multiplier=sigma,
        steps_per_epoch=steps_per_epoch,
        num_steps=num_steps,
        accountant=accountant,
        vocabulary=config.vocabulary,
    )


def plan_sampling(
    config: PrivacyConfig, num_units: int, num_epochs: int, batch_size: int
) -> tuple[int, float, float, int]:
    """Return (number of privacy units, delta, sample rate, steps per epoch) of a DP-SGD training: what can be known of
    its plan without searching the noise multiplier.

    Raises
    ------
    PolicyError
        There is no unit, ``target_delta`` is not below 1/units, or there would be over a million steps.
    """
    if num_units < 1:
        raise PolicyError(f"train.dp: there is no {config.unit} to train on")
    num_units = config.num_units or num_units
    delta = config.target_delta if config.target_delta is not None else default_delta(num_units)
    if delta * num_units >= 1:
        raise PolicyError(
            f"train.dp.target_delta: {show_delta(delta)} is not below 1 / {num_units} {config.unit}s: it would allow "
            "to publish one of them"
        )
    rate = config.sample_rate if config.sample_rate is not None else min(1.0, batch_size / num_units)
    steps_per_epoch = max(1, round(1 / rate))
    if (num_steps := num_epochs * steps_per_epoch) > MAX_STEPS:
        raise PolicyError(
            f"train.dp.sample_rate: {rate:.3g} makes {num_steps:,} steps, {rate * num_units:.3g} {config.unit}s "
            f"expected in each; at most {MAX_STEPS:,}: give a larger sample_rate, or a larger batch_size in its place"
        )
    return num_units, delta, rate, steps_per_epoch


def require_reachable_epsilon(config: PrivacyConfig, num_units: int, num_epochs: int, batch_size: int) -> None:
    """Raise `PolicyError` if ``target_epsilon`` is too small for a useful training: the private vocabulary alone spends
    it, or noise as large as all gradients of a step together would not suffice. Cost: under a second."""
    epsilon = config.target_epsilon
    if not isinstance(epsilon, float):
        return
    num_units, delta, rate, steps_per_epoch = plan_sampling(config, num_units, num_epochs, batch_size)
    if config.vocabulary is not None:
        alone = cost_of(rate, math.inf, 0, delta, config.accountant, config.vocabulary)[0]
        if alone >= epsilon - _tolerance(epsilon):
            raise PolicyError(
                f"train.dp.target_epsilon: {epsilon:g} at delta {show_delta(delta)} leaves nothing for the training: "
                f"the vocabulary alone spends {show_epsilon(alone)}; give more, or lower threshold.epsilon"
            )
    expected = rate * num_units
    num_steps = num_epochs * steps_per_epoch
    least = epsilon_of(rate, expected, num_steps, delta, config.accountant, config.vocabulary)
    if least > epsilon:
        raise PolicyError(
            f"train.dp.target_epsilon: {epsilon:g} needs noise of over {expected:.3g} times the gradient of one "
            f"{config.unit}, and a step has {expected:.3g} of {num_units:,}: nothing could be learned; epsilon "
            f"{show_epsilon(least)} is the least at this size, or take larger batches or fewer epochs"
        )


def _tolerance(epsilon: float) -> float:
    """Return by how much the epsilon of a training may stay below the target ``epsilon``, when the noise multiplier for
    it is searched."""
    return min(0.01, epsilon / 100)


def refuse_conflicts(*trainings: tuple[TrainConfig, PrivacyConfig]) -> None:
    """Raise one `PolicyError` that lists, for all these trainings, the settings that DP-SGD does not allow or that have
    no effect with it."""
    found = dict.fromkeys(said for config, privacy in trainings for said in _conflicts(config, privacy))
    if found:
        raise PolicyError("; ".join(found))


def _conflicts(config: TrainConfig, privacy: PrivacyConfig) -> Iterator[str]:
    """Yield an error message for each training setting that DP-SGD does not allow, or that has no effect with it."""
    for name, reason in (
        ("packing", "a packed row is of several units"),
        ("torch_compile", "hooks need plain modules"),
        ("gradient_checkpointing", "hooks would see each layer twice"),
        ("fsdp", "gradients of a unit are of whole weights"),
        ("max_steps", "its steps follow from num_epochs and the sample rate, and epsilon pays for all; fix num_epochs"),
        (
            "early_stopping_patience",
            "an epoch that held-out individuals choose tells of them, and epsilon pays for every epoch; fix num_epochs",
        ),
    ):
        if getattr(config, name, False):
            yield f"train.{name}: does not go with DP-SGD ({reason})"
    if config.dtype != "float32":
        yield "train.dtype: does not go with DP-SGD (its sums and its noise are in float32)"
    if privacy.unit == "record" and privacy.max_documents != PrivacyConfig.model_fields["max_documents"].default:
        yield 'train.dp.max_documents: is of an individual, and train.dp.unit is "record"'
    if privacy.budget_delta is not None and privacy.budget_epsilon is None:
        yield "train.dp.budget_delta: limits nothing without train.dp.budget_epsilon"


def refuse_promise(config: PrivacyConfig, unaccounted: tuple[str, ...], recipe: Recipe | None = None) -> None:
    """Raise `PolicyError` if an epsilon is promised (by ``target_epsilon``, or by a recipe whose list of shared words
    is not counted in the documents) although the preparation steps in ``unaccounted`` also used the documents, at a
    cost that is not in it."""
    is_for_nothing = recipe is not None and recipe.words != "counted"
    if unaccounted and (config.target_epsilon is not None or is_for_nothing):
        ways = "; ".join(f"{name}: {STAGES[name].reason}; instead: {STAGES[name].way_out}" for name in unaccounted)
        asked = f"recipe {recipe.name}" if recipe is not None and is_for_nothing else "train.dp.target_epsilon"
        or_else = "" if is_for_nothing else ", or leave it out, give noise_multiplier and get no epsilon"
        raise PolicyError(
            f"{asked}: no epsilon can be promised, since {' and '.join(unaccounted)} looked at "
            f"every individual's documents and is not accounted ({ways}){or_else}"
        )


def unaccounted_steps(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of a recipe's preparation steps that depend on every individual's documents but are not part of
    the privacy accounting."""
    found = []
    if recipe.words != "counted":
        return ()
    if recipe.never_target:
        found.append("the choice of protected words")
    if recipe.text != "original" or recipe.context != "keep" or recipe.replaces_indirect:
        found.append("the choice of replaced words")
    return tuple(found)


def epsilon_of(
    sample_rate: float,
    noise_multiplier: float,
    num_steps: int,
    delta: float,
    accountant: str = "prv",
    vocabulary: tuple[float, float] | None = None,
) -> float:
    """Return an upper bound on the epsilon of ``num_steps`` Poisson-sampled Gaussian steps (Gopi et al. 2021), preceded
    by a private ``vocabulary`` if there is one; see :func:`cost_of`."""
    return cost_of(sample_rate, noise_multiplier, num_steps, delta, accountant, vocabulary)[0]


@lru_cache(maxsize=256)
def cost_of(
    sample_rate: float,
    noise_multiplier: float,
    num_steps: int,
    delta: float,
    accountant: str = "prv",
    vocabulary: tuple[float, float] | None = None,
) -> tuple[float, str]:
    """Return an upper bound on the epsilon of ``num_steps`` Poisson-sampled Gaussian steps, preceded by a private
    ``vocabulary`` if there is one, and the name of the accountant that gave it.

    With a ``vocabulary`` (sigma, delta of the floor) one Gaussian mechanism of sensitivity 1 comes before the steps,
    and both share the delta that its floor leaves. Where RDP's bound is over `LOOSE`, it is returned in place of PRV's,
    whose grid would take minutes and gigabytes. Epsilon is infinite without noise only. Cost: under a second for "prv",
    milliseconds for "rdp".
    """
    history = _mechanisms(sample_rate, noise_multiplier, num_steps, vocabulary)
    delta -= vocabulary[1] if vocabulary is not None else 0.0
    if not history:
        return 0.0, accountant
    if noise_multiplier == 0 or delta <= 0:
        return math.inf, accountant
    from opacus.accountants import create_accountant

    rdp = _rdp_epsilon(history, delta)
    if accountant == "rdp" or rdp > LOOSE:
        return rdp, "rdp"
    counter = create_accountant(accountant)
    counter.history = history
    with _quiet():
        try:
            prv = max(float(counter.get_epsilon(delta)), 0.0)  # of next to nothing the bound falls below
        except (ValueError, RuntimeError, OverflowError):  # its grid does not reach so small a delta
            return rdp, "rdp"
    return (prv, accountant) if prv <= rdp else (rdp, "rdp")  # PRV's error is 0.01, which hides a smaller epsilon


def _mechanisms(
    sample_rate: float, noise_multiplier: float, num_steps: int, vocabulary: tuple[float, float] | None
) -> list[tuple[float, float, int]]:
    """Return the Gaussian mechanisms whose privacy costs are composed, each as (noise multiplier, sample rate, number
    of steps): the private ``vocabulary``, if there is one, and the training steps."""
    steps = [(noise_multiplier, sample_rate, num_steps)] if num_steps else []
    return steps if vocabulary is None else [(vocabulary[0], 1.0, 1), *steps]


def _rdp_epsilon(history: list[tuple[float, float, int]], delta: float) -> float:
    """Return an upper bound on epsilon from Renyi divergences: the smaller of Opacus' bound with subsampling (Mironov
    et al. 2019), which is missing for some noise levels, and a bound without subsampling (Bun and Steinke 2016)."""
    from opacus.accountants import RDPAccountant

    rho = sum(num_steps / 2 / noise / noise for noise, _, num_steps in history)
    unsampled = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    counter = RDPAccountant()
    counter.history = history
    with _quiet():
        try:
            sampled = float(counter.get_epsilon(delta))
        except (ValueError, OverflowError, FloatingPointError):
            sampled = math.inf
    return min(unsampled, sampled) if math.isfinite(sampled) and sampled > 0 else unsampled


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the accountants' warnings (logarithms of 0, order at the edge of the range) within the context."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        warnings.filterwarnings("ignore", message="Optimal order is the")
        yield


def default_delta(num_units: int) -> float:
    """Return the default delta: the largest power of ten that is at most 1 / (10 * num_units), so that the deltas of
    several trainings together stay below 1 / num_units."""
    return 10.0 ** -math.ceil(math.log10(10 * num_units) - 1e-12)


@lru_cache(maxsize=256)
def _noise_for(
    epsilon: float,
    delta: float,
    sample_rate: float,
    num_steps: int,
    accountant: str,
    vocabulary: tuple[float, float] | None = None,
) -> float:
    """Return the noise multiplier with which ``num_steps`` steps reach the target epsilon, by the PRV accountant or,
    where its grid ends, by Renyi divergences."""
    from opacus.accountants.utils import get_noise_multiplier

    tolerance = _tolerance(epsilon)
    if vocabulary is not None:
        cost = partial(cost_of, accountant=accountant, vocabulary=vocabulary)
        return _least_noise(lambda noise: cost(sample_rate, noise, num_steps, delta)[0], epsilon, tolerance)
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
    return _least_noise(lambda noise: _rdp_epsilon([(noise, sample_rate, num_steps)], delta), epsilon, tolerance)


def _least_noise(epsilon_of_noise: Callable[[float], float], epsilon: float, tolerance: float) -> float:
    """Return the smallest noise multiplier for which ``epsilon_of_noise(multiplier)`` is at most ``epsilon``, up to the
    tolerance."""
    low, high = 0.0, 1.0
    while epsilon_of_noise(high) > epsilon:
        low, high = high, 2 * high
    while epsilon - epsilon_of_noise(high) > tolerance and high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon_of_noise(middle) <= epsilon else (middle, high)
    return high


def show_epsilon(epsilon: float) -> str:
    """Return epsilon as text with two decimals, rounded up so that it stays an upper bound."""
    return f"{math.ceil(epsilon * 100 - 1e-9) / 100:.2f}" if math.isfinite(epsilon) else "infinite"


def parse_guarantee(guarantee: str) -> tuple[float, float, str] | None:
    """Parse (epsilon, delta, privacy unit) from the sentence of a guarantee; None if it has no epsilon.

    >>> parse_guarantee("epsilon 8.00 at delta 1e-5 per individual (at most 4 documents each)")
    (8.0, 1e-05, 'individual')
    """
    shown = re.match(r"epsilon (\S+) at delta (\S+) per (\w+)", guarantee)
    return None if shown is None else (float(shown[1].replace("infinite", "inf")), float(shown[2]), shown[3])


def together(guarantees: Sequence[Guarantee]) -> Guarantee | None:
    """Return the joint guarantee of several trainings on the same data, by basic composition: epsilons and deltas are
    summed. None if a training has no epsilon, or their privacy units differ."""
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
    """Whether the epsilon in the sentence of a guarantee is so large (above `MEANINGLESS`) that it protects nobody."""
    shown = parse_guarantee(guarantee)
    return shown is not None and shown[0] > MEANINGLESS


def show_delta(delta: float) -> str:
    """Return delta as text with three digits, rounded up so that it stays an upper bound, and without a leading zero in
    its exponent: 1e-05 as 1e-5."""
    exact = f"{delta:.9e}"  # behind it are only errors of sums, so that a power of ten stays one
    mantissa, exponent = f"{Context(prec=3, rounding=ROUND_UP).create_decimal(exact):.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
