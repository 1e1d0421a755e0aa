"""The verdict: gates whose thresholds were fixed in the job, judged by the upper ends of intervals.

A gate *passes* if the upper end is within its threshold and an attack that should succeed did. It *fails* if the
estimate itself is beyond the threshold. Otherwise there is *no power*: too few individuals, an interval that is too
wide, no control that shows that the attack can find anything, or an attack that is invalid by the rules of
:mod:`reticent.audit.membership.validity`. No power is never reported as safety.

The upper end of a two-sided 95 % interval is a one-sided bound of 97.5 %, that of a zero one of 95 %: a pass holds at
95 % at least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from reticent.audit.evidence.extraction import ExtractedModel, GateResult, Verdict
from reticent.audit.evidence.json_form import extended
from reticent.audit.gates import GATES, PLAIN, Measured, Pair
from reticent.audit.membership.validity import NO_POWER
from reticent.audit.outcomes import FAIL, PASS
from reticent.audit.stats.estimate import Estimate

if TYPE_CHECKING:
    from reticent.audit.config import GateConfig
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.evidence.extraction import Extraction

__all__ = ["failed", "judge", "verdict", "verdict_lines"]

#: For a lower bound on epsilon: the reasons why it passes, and why it could not.
LOWER_BOUND = "more was not shown, though the guesses could have shown it; from above nothing is bounded"
TOO_FEW_GUESSES = "so few guesses could not have shown more"
Entry = TypeVar("Entry", "ModelEvidence", ExtractedModel)


def judge(estimate: Estimate | None, at_most: float, control: bool | None, *, small_cell: int = 5) -> tuple[str, str]:
    """Return the outcome of one gate, and the reason.

    Parameters
    ----------
    estimate : None if the attack gave no number
    control : whether an attack that should succeed did; None if there was none

    >>> from reticent.audit.stats.estimate import Estimate
    >>> judge(Estimate(value=0.0, high=0.00997, n=299), 0.01, True)
    ('pass', 'the upper bound is within the threshold')
    >>> judge(Estimate(value=0.0, high=0.0495, n=59), 0.01, True)
    ('no power', 'the interval is too wide: its upper end is beyond the threshold')
    """
    if estimate is None or estimate.value is None:
        return NO_POWER, "too few to give the number at all"
    if estimate.num_resampled < small_cell:
        return NO_POWER, f"fewer than {small_cell}"
    if estimate.value > at_most:
        return FAIL, "the estimate is beyond the threshold"
    if control is None:
        return NO_POWER, "no control: nothing unprotected was attacked that shows that the attack can succeed"
    if not control:
        return NO_POWER, "the attack finds nothing in the control either"
    if estimate.high is None or estimate.high > at_most:
        return NO_POWER, "the interval is too wide: its upper end is beyond the threshold"
    return PASS, "the upper bound is within the threshold"


def verdict(
    models: Sequence[ModelEvidence],
    gates: Sequence[GateConfig],
    extraction: Extraction | None = None,
    *,
    small_cell: int = 5,
) -> Verdict:
    """Judge every gate on the last checkpoint of each training it is for.

    Parameters
    ----------
    models, extraction : of the audit, before publication
    gates : as in the job

    Returns
    -------
    Verdict
        The worst outcome of all; whether a gate failed or one that is required had no power; and a result for each
        gate and number that it is about. A gate without any number has no power.
    """
    results = []
    for number, gate in enumerate(gates, start=1):
        rows = list(_results(models, extraction, gate, small_cell))
        rows = rows or [GateResult(outcome=NO_POWER, reason="no model of this job is measured so", n=0)]
        results += [
            replace(row, gate=number, measure=gate.measure, at_most=gate.at_most, required=gate.required)
            for row in rows
        ]
    outcomes = {row.outcome for row in results}
    worst = next((name for name in (FAIL, NO_POWER, PASS) if name in outcomes), None)
    return Verdict(outcome=worst, failed=any(map(failed, results)), results=results)


def failed(row: GateResult) -> bool:
    """Return whether a row of the results fails the run."""
    return row.outcome == FAIL or (row.outcome == NO_POWER and bool(row.required))


def verdict_lines(found: Verdict) -> list[str]:
    """Yield a line for each result."""
    lines = []
    for row in found.results:
        whose = " of ".join(name for name in (row.recipe, row.model) if name)
        what = " ".join(name for name in (row.attack, row.arm, row.part) if name)
        upper = "" if row.upper is None else f", upper bound {row.upper:.3g}"
        if row.at_least is not None:
            upper = f", at least {row.at_least:.3g}"
        title = GATES[row.measure or ""].title
        line = f"{row.outcome}: {title}{f' ({what})' if what else ''} at most {row.at_most:g}"
        seed = "" if row.seed is None else f", seed {row.seed}"
        lines.append(f"{line}{f' - {whose}' if whose else ''}{seed}{upper}, n = {row.n or 0:,}: {row.reason}")
    return lines


def _results(
    models: Sequence[ModelEvidence], extraction: Extraction | None, gate: GateConfig, small_cell: int
) -> Iterator[GateResult]:
    last = _last(models)
    extracted = _last(extraction.models if extraction else ())
    wanted = gate.recipes
    for key, model in last.items():
        name, recipe, seed = key
        if recipe == "base" or (recipe not in wanted if wanted else recipe in PLAIN):
            continue
        twin = next((other for other in last if other[0] == name and other[1] in PLAIN and other[2] == seed), None)
        plain = None if twin is None else Pair(last[twin], extracted.get(twin))
        found = list(GATES[gate.measure].estimate(gate, Pair(model, extracted.get(key)), plain))
        rows = [_judged(one, gate, small_cell) for one in found]
        if not rows and (wanted or any(gate.attack in other.membership for k, other in last.items() if k[0] == name)):
            # Named, or attacked beside it: without a row it would look like a pass.
            rows = [GateResult(attack=gate.attack, outcome=NO_POWER, reason="this model is not measured so", n=0)]
        for row in rows:
            yield replace(row, model=name, recipe=recipe, seed=seed, epoch=model.epoch)


def _judged(found: Measured, gate: GateConfig, small_cell: int) -> GateResult:
    """Return the result of one number for its gate: its subject, bound, outcome and reason."""
    outcome, reason = judge(found.estimate, gate.at_most, found.control, small_cell=small_cell)
    if outcome == PASS and found.invalid:
        outcome, reason = NO_POWER, f"the attack is invalid: {found.invalid}"
    elif outcome == FAIL and found.invalid:
        reason += f", by an attack that is invalid: {found.invalid}"
    estimate = found.estimate or Estimate(value=None, n=0)
    if found.fewest is not None and found.fewest < small_cell:  # n counts both sides
        outcome, reason = NO_POWER, f"fewer than {small_cell} on one side"
        estimate = Estimate(value=None, n=found.fewest)
    is_few_less = 0 < found.left_out < small_cell  # beside the number over all they could be counted
    from_below = GATES[gate.measure].from_below
    if from_below:
        few = outcome == NO_POWER and found.control is False
        reason = LOWER_BOUND if outcome == PASS else TOO_FEW_GUESSES if few else reason
    return extended(
        found.about,
        GateResult,
        upper=None if from_below or is_few_less else estimate.high,
        at_least=estimate.high if from_below else None,
        outcome=outcome,
        reason=reason,
        n=estimate.n + found.left_out if is_few_less and estimate.n else estimate.n,
        unit=estimate.unit,
    )


def _last(models: Sequence[Entry]) -> dict[tuple[str | None, str | None, int | None], Entry]:
    """Return the entry of the highest epoch of each training."""
    last: dict[tuple[str | None, str | None, int | None], Entry] = {}
    for model in models:
        key = (model.model, model.recipe, model.seed)
        if key not in last or (model.epoch or 0) > (last[key].epoch or 0):
            last[key] = model
    return last
