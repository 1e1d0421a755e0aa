"""The gates: numbers of a model on which a job can set a threshold, each with the control that shows its power.

Settings read the names of the gates from here, so evidence is imported only inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.membership.left_out import WITHOUT_COPIES
from reticent.audit.membership.validity import CHANCE, INVALID

if TYPE_CHECKING:
    from reticent.audit.config import GateConfig
    from reticent.audit.evidence.extraction import CanaryArm, ExtractedModel
    from reticent.audit.evidence.membership import MeasuredAttack
    from reticent.audit.evidence.model import ModelEvidence
    from reticent.audit.stats.estimate import Estimate

__all__ = ["GATES", "PLAIN", "Gate", "Measured", "Pair", "Subject"]

#: Recipes that protect nothing: the positive control of every attack.
PLAIN = ("mlm", "clm")
#: Excess leakage and excess exposure of a model that learned nothing.
NO_EXCESS = 0.0
#: The false-positive rate of the gate ``membership_tpr``, as the evidence names it.
FPR = "0.01"


class Pair(NamedTuple):
    """A model's entry of the audit, and its canaries and passages if there are any."""

    model: ModelEvidence
    extracted: ExtractedModel | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of one number."""

    part: str | None = None
    attack: str | None = None
    arm: str | None = None
    prefix_tokens: int | None = None
    num_queries: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One number to judge, the outcome of its control, its subject, the reason if the attack is invalid, the
    individuals on the smaller side if two sides are compared, and how many the number leaves out.
    """

    estimate: Estimate | None
    control: bool | None
    about: Subject
    invalid: str | None = None
    fewest: int | None = None
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A measure on which a job can set a threshold.

    Parameters
    ----------
    measure : its name in ``[[gate]]``
    title : name for readers
    null : its value if nothing leaked. A control whose interval lies over it shows that the attack can succeed; None if
        the measure has a control of another kind
    estimate : (settings, a model, its unprotected twin or None) -> the numbers to judge, each with its control
    needs : sections that a job must have for this number
    from_below : the number is a lower bound: "at least"; nothing bounds it from above
    chosen_by : the setting of ``[[gate]]`` that chooses among the numbers of the measure: attack, arm or part
    """

    measure: str
    title: str
    null: float | None
    estimate: Callable[[GateConfig, Pair, Pair | None], Iterator[Measured]]
    needs: frozenset[str] = frozenset()
    from_below: bool = False
    chosen_by: str | None = None


#: Subject of a gate, the estimate to judge, and the estimate that must lie over the null in a control.
Found = tuple[Subject, "Estimate | None", "Estimate | None"]


def _beside_twin(
    estimates: Callable[[GateConfig, Pair], Iterator[Found]], null: float, *, sided: bool = False
) -> Callable[[GateConfig, Pair, Pair | None], Iterator[Measured]]:
    """The estimates of a model, with those of its unprotected twin as controls.

    ``sided``: an area says as much below chance as above it, and the twin says on which side members lie.
    """

    def measured(gate: GateConfig, own: Pair, plain: Pair | None) -> Iterator[Measured]:
        twins = [] if plain is None else list(estimates(gate, plain))
        for about, estimate, _ in estimates(gate, own):
            shows = next((shows for other, _, shows in twins if other == about), None)
            if sided:
                from reticent.audit.risks import oriented  # which loads scipy: not to read a job

                estimate = estimate and oriented(estimate, shows)
                shows = shows and oriented(shows, shows)
            control = _above(shows, null)
            attack = own.model.membership.get(about.attack or "")
            invalid = attack.why if attack and attack.verdict == INVALID else None
            fewest, left_out = _fewest(gate, own.model, attack), 0
            if about.part == WITHOUT_COPIES and attack and attack.auc_without_copies:
                left_out = (attack.auc.n or 0) - (attack.auc_without_copies.n or 0)
                fewest = min(attack.num_members or 0, (attack.num_nonmembers or 0) - left_out)
            yield Measured(estimate, control, about, invalid, fewest, left_out)

    return measured


def _excess(gate: GateConfig, pair: Pair) -> Iterator[Found]:
    sides = (pair.model.excess or {}).get(gate.part)
    estimate = sides.excess if sides else None
    yield Subject(part=gate.part), estimate, estimate


def _attacks(gate: GateConfig, pair: Pair) -> Iterator[tuple[Subject, MeasuredAttack]]:
    named = pair.model.membership.items()
    return ((Subject(attack=name), found) for name, found in named if gate.attack in (None, name))


def _auc(gate: GateConfig, pair: Pair) -> Iterator[Found]:
    for about, found in _attacks(gate, pair):
        yield about, found.auc, found.auc
        if found.auc_without_copies:
            yield replace(about, part=WITHOUT_COPIES), found.auc_without_copies, found.auc_without_copies


def _tpr(gate: GateConfig, pair: Pair) -> Iterator[Found]:
    for about, found in _attacks(gate, pair):
        estimate = (found.tpr_at_fpr or {}).get(FPR)
        yield about, estimate, estimate


def _extracted(gate: GateConfig, pair: Pair) -> Iterator[Found]:
    """Yield the rate of passages for the adversary with the longest prefix, then the most draws."""
    passages = pair.extracted.passages if pair.extracted else None
    names = ("np_discoverable",) if gate.measure == "np_extraction" else ("k_extractable", "discoverable")
    rows = [r for r in (passages.rates if passages else ()) if r.measure in names and r.asked == "all"]
    if rows:
        row = max(rows, key=lambda r: (r.prefix_tokens or 0, r.num_queries or 0))
        yield Subject(prefix_tokens=row.prefix_tokens, num_queries=row.num_queries), row.members, row.excess


def _fewest(gate: GateConfig, model: ModelEvidence, attack: MeasuredAttack | None) -> int | None:
    """Return the individuals on the smaller of the two sides that a number compares; None if it compares none."""
    if gate.measure == "excess_leakage":
        part = (model.excess or {}).get(gate.part)
        return min(part.members.n or 0, part.heldout.n or 0) if part else None
    return min(attack.num_members or 0, attack.num_nonmembers or 0) if attack else None


def _exposure(gate: GateConfig, own: Pair, plain: Pair | None) -> Iterator[Measured]:
    found = _arm(own, gate.arm)
    # The missed arm of the same model is not protected. Without it, the control is the same arm of the plain twin.
    controls = [arm.excess_exposure for arm in (_arm(own, "missed"), _arm(plain, gate.arm)) if arm]
    control = next((excess for excess in controls if excess), None)
    estimate = found.exposure.included if found else None
    yield Measured(estimate, _above(control, NO_EXCESS), Subject(arm=gate.arm))


def _epsilon(gate: GateConfig, own: Pair, _: Pair | None) -> Iterator[Measured]:
    """Judge a lower bound: it can show a failure, and passes only if it could have shown one."""
    from reticent.audit.stats.estimate import Estimate

    arm, estimate = _arm(own, gate.arm), None
    if arm and arm.one_run.at_least is not None:
        bound = arm.one_run.at_least
        estimate = Estimate(value=bound, high=bound, n=arm.one_run.num_guesses, unit="guesses")
    yield Measured(estimate, (arm.one_run.most or 0) > gate.at_most if arm else None, Subject(arm=gate.arm))


def _arm(pair: Pair | None, name: str) -> CanaryArm | None:
    canaries = pair.extracted.canaries if pair and pair.extracted else None
    return canaries.arms.get(name) if canaries else None


def _above(estimate: Estimate | None, nothing: float) -> bool | None:
    """Return whether an interval lies above the value of a model that leaks nothing; None without an interval."""
    if estimate is None or estimate.value is None or estimate.low is None:
        return None
    return estimate.low > nothing


_CANARIES, _EXTRACTION = frozenset({"canaries"}), frozenset({"extraction"})
#: Every gate by its measure. A new gate is a new row here, and nothing else.
GATES: Mapping[str, Gate] = MappingProxyType(
    {
        gate.measure: gate
        for gate in (
            Gate(
                measure="excess_leakage",
                title="excess leakage",
                null=NO_EXCESS,
                estimate=_beside_twin(_excess, NO_EXCESS),
                chosen_by="part",
            ),
            Gate(
                measure="membership_auc",
                title="membership AUC",
                null=CHANCE,
                estimate=_beside_twin(_auc, CHANCE, sided=True),
                chosen_by="attack",
            ),
            Gate(
                measure="membership_tpr",
                title="membership TPR at 1 % FPR",
                null=float(FPR),
                estimate=_beside_twin(_tpr, float(FPR)),
                chosen_by="attack",
            ),
            Gate(
                measure="extraction",
                title="extraction rate",
                null=NO_EXCESS,
                estimate=_beside_twin(_extracted, NO_EXCESS),
                needs=_EXTRACTION,
            ),
            Gate(
                measure="np_extraction",
                title="(n, p)-extraction rate",
                null=NO_EXCESS,
                estimate=_beside_twin(_extracted, NO_EXCESS),
                needs=_EXTRACTION,
            ),
            Gate(
                measure="exposure",
                title="canary exposure in bits",
                null=NO_EXCESS,
                estimate=_exposure,
                needs=_CANARIES,
                chosen_by="arm",
            ),
            Gate(
                measure="epsilon",
                title="empirical epsilon of all that carries one canary",
                null=None,
                estimate=_epsilon,
                needs=_CANARIES,
                from_below=True,
                chosen_by="arm",
            ),
        )
    }
)
