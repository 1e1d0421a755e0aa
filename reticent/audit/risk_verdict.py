"""The verdict by risk (definitions.md#the-verdict): what a reader in a hurry may conclude of each model, and no more.

Every risk is judged by several numbers of one model. A number is

- *beyond* its threshold where the estimate is, and its interval lies over what there would be if nothing was learned;
- *within* it where the upper end of the interval is, and the same number of the unprotected twin lies over nothing:
  so the attack would have found something;
- *not shown* else: no twin, an attack that finds nothing in the twin either, too few individuals, an interval too
  wide, an attack that is invalid, or nothing measured.

A risk is beyond where one of its numbers is, and within where one is and none could be beyond. A model's verdict is the
worst of its relevant risks. Gates of the job can only worsen it. The sign of an area comes from the twin; without one
that shows it, or measurably against it, an area of 0.25 is one of 0.75, and its interval is widened as the side was
picked. A model of an unprotected recipe is never within: that the attacks found little is no protection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reticent.audit.config import VerdictConfig
from reticent.audit.evidence.risks import ModelRisks, RiskResult, RiskTable
from reticent.audit.gates import PLAIN
from reticent.audit.membership.validity import CHANCE, NO_POWER
from reticent.audit.outcomes import BEYOND, FAIL, NOT_SHOWN, WITHIN
from reticent.audit.recipes import is_unprotected, recipe_of
from reticent.audit.risks import RISKS, Number, Risk, Subject, oriented

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.audit.evidence.extraction import GateResult
    from reticent.audit.stats.estimate import Estimate
    from reticent.trainer.recipes import Recipe

__all__ = ["judge_risks", "risk_lines", "with_published_numbers"]

#: From the best to the worst.
ORDER = (WITHIN, NOT_SHOWN, BEYOND)


def judge_risks(audit: AuditEvidence, config: VerdictConfig | None = None) -> RiskTable:
    """Return the verdict on every trained model of an audit, before publication; it holds no estimate yet.

    Where there are several trainings of a recipe a risk is the worst of theirs.

    Parameters
    ----------
    config : thresholds and relevant risks; default: those of the job's settings
    """
    settings = audit.settings.get("verdict")
    if config is None:
        config = VerdictConfig(**settings) if isinstance(settings, Mapping) else VerdictConfig()
    cell = audit.cell
    rows = [_judged_model(found, audit, config, cell) for found in _models(audit).values()]
    fixed = audit.verdict.fixed_before_training if audit.verdict else None
    return RiskTable(own_thresholds=bool(settings), fixed_before_training=fixed, rows=rows)


def _models(audit: AuditEvidence) -> dict[tuple[str | None, str, str], list[int]]:
    """Numbers of the last checkpoints of the trainings of each recipe."""
    last: dict[tuple[str | None, str, str], dict[int | None, int]] = {}
    for number, model in enumerate(audit.models):
        if model.recipe == "base":
            continue
        own = last.setdefault((model.model, model.objective, model.recipe), {})
        key = model.seed if model.seed is not None else model.training
        if key not in own or model.epoch >= audit.models[own[key]].epoch:
            own[key] = number
    return {key: list(own.values()) for key, own in last.items()}


def _judged_model(numbers: Sequence[int], audit: AuditEvidence, config: VerdictConfig, cell: int) -> ModelRisks:
    first = audit.models[numbers[0]]
    results = []
    for risk in RISKS.values():
        found = [_judged_risk(risk, audit.models[number], audit, config, cell) for number in numbers]
        results.append(max(found, key=lambda result: ORDER.index(result.outcome)))
    broken = any(m.ledger and m.ledger.violations for m in (audit.models[number] for number in numbers))
    relevant = [result for result in results if result.relevant]
    outcome = max((result.outcome for result in relevant), key=ORDER.index, default=NOT_SHOWN)
    recipe = recipe_of(first.recipe, audit)
    reason, change = _sentences(relevant, outcome, first, recipe)
    uncounted = [RISKS[result.risk].title for result in results if not result.relevant and result.outcome == BEYOND]
    if outcome == WITHIN and uncounted:
        reason += f"; beyond the threshold, but not counted: {_listed(uncounted)}"
    if outcome == WITHIN and is_unprotected(recipe, first):
        outcome, reason, change = NOT_SHOWN, f"not shown: {UNPROTECTED}", RISKS["emission"].lowered_by
    if broken:
        outcome, reason = BEYOND, "training broke its own rule: protected tokens were among its targets"
        change = "report it, and train again"
    return ModelRisks(
        model=first.model,
        recipe=first.recipe,
        objective=first.objective,
        epoch=first.epoch,
        outcome=outcome,
        reason=reason,
        change=change,
        results=results,
    )


def _judged_risk(
    risk: Risk, model: ModelEvidence, audit: AuditEvidence, config: VerdictConfig, cell: int
) -> RiskResult:
    at_most: float = getattr(config, risk.name)
    twin = _twin(model, audit)
    controls = {} if twin is None else {n.what: n.estimate for n in risk.numbers(_subject(twin, audit))}
    found = [
        (number, *_judged_number(number, controls.get(number.what), at_most, twin is not None, cell))
        for number in risk.numbers(_subject(model, audit))
        if number.estimate.value is not None or number.estimate.n  # else there is nothing of the kind
    ]
    result = RiskResult(
        risk=risk.name,
        relevant=risk.name in config.risks,
        outcome=NOT_SHOWN,
        at_most=at_most,
        reason=f"not measured; it would be by {risk.measured_by}",
    )
    chosen = _deciding(found, controls)
    if risk.objectives and model.objective not in risk.objectives:
        result = replace(result, relevant=False, reason="a masked model writes no text")
        asked = _with_gates(result, risk, model, audit)
        return replace(asked, reason=CANNOT) if asked.relevant and asked.outcome == NOT_SHOWN else asked
    if chosen is not None:
        number, outcome, reason = chosen
        result = replace(result, outcome=outcome, what=number.what, reason=reason)
    return _with_gates(result, risk, model, audit)


Judged = tuple[Number, str, str]


def _deciding(found: Sequence[Judged], controls: Mapping[str, Estimate]) -> Judged | None:
    """The number that decides: the worst that is beyond; else one that could be; else the largest within. An area is
    as large as it was judged to be (`oriented`).
    """

    def size(judged: Judged) -> float:
        number = judged[0]
        is_area = number.null == CHANCE
        estimate = oriented(number.estimate, controls.get(number.what)) if is_area else number.estimate
        return estimate.value or 0.0

    beyond = [judged for judged in found if judged[1] == BEYOND]
    unsure = [judged for judged in found if judged[1] == NOT_SHOWN and judged[2] in (WIDE, UNSURE, FEW)]
    within = [judged for judged in found if judged[1] == WITHIN]
    for group in (beyond, unsure, within, list(found)):
        if group:
            return max(group, key=size)
    return None


FEW = "too few people to say"
UNSURE = "the estimate is beyond the threshold, and its interval holds none at all"
WIDE = "the interval is too wide: its upper end is beyond the threshold"
WITHOUT_TWIN = "nothing proves that the attack would have found anything: there is no unprotected twin"
UNPROTECTED = "nothing in its training protects anyone, whatever the attacks found"
CANNOT = "a required gate cannot judge a masked model, which writes no text"
WITHOUT_POWER = "the attack finds nothing in the unprotected twin either"


def _judged_number(
    number: Number, control: Estimate | None, at_most: float, has_twin: bool, cell: int
) -> tuple[str, str]:
    estimate = number.estimate
    if number.invalid:
        return NOT_SHOWN, f"the attack is invalid: {number.invalid}"
    if estimate.value is None or estimate.low is None or estimate.high is None or estimate.num_resampled < 2 * cell:
        return NOT_SHOWN, FEW
    if number.null == CHANCE:
        estimate = oriented(estimate, control)
        control = control and oriented(control, control)
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    if estimate.value > at_most:
        return (BEYOND, "beyond the threshold") if estimate.low > number.null else (NOT_SHOWN, UNSURE)
    if not has_twin:
        return NOT_SHOWN, WITHOUT_TWIN
    if estimate.high > at_most:  # it could be beyond, whatever the attack finds in the twin
        return NOT_SHOWN, WIDE
    if control is None or control.low is None or control.low <= number.null:
        return NOT_SHOWN, WITHOUT_POWER
    return WITHIN, "its upper end is within the threshold, and the attack succeeds on the twin"


def _with_gates(result: RiskResult, risk: Risk, model: ModelEvidence, audit: AuditEvidence) -> RiskResult:
    """A gate that failed, or could not be decided, holds against whatever the thresholds of this table say."""
    rows = [row for row in (audit.verdict.results if audit.verdict else ()) if _is_about(row, risk, model)]
    if any(row.outcome == FAIL for row in rows):
        return replace(result, outcome=BEYOND, relevant=True, reason="a gate of the job failed")
    if not any(row.outcome == NO_POWER and row.required for row in rows):
        return result
    if result.outcome == WITHIN:
        result = replace(result, outcome=NOT_SHOWN, reason="a required gate of the job has no power")
    return replace(result, relevant=True)


def _is_about(row: GateResult, risk: Risk, model: ModelEvidence) -> bool:
    own = row.recipe in (None, model.recipe) and row.model in (None, model.model) and row.seed in (None, model.seed)
    return own and row.measure in risk.gates


def _twin(model: ModelEvidence, audit: AuditEvidence) -> ModelEvidence | None:
    """The unprotected twin of the same training; of an unprotected model itself."""
    own = [m for m in audit.models if (m.model, m.objective) == (model.model, model.objective) and m.recipe in PLAIN]
    same = [m for m in own if m.seed == model.seed and m.training == model.training] or own
    return max(same, key=lambda m: m.epoch, default=None)


def _subject(model: ModelEvidence, audit: AuditEvidence) -> Subject:
    found = [
        e
        for e in (audit.extraction.models if audit.extraction else ())
        if (e.model, e.recipe, e.seed, e.training) == (model.model, model.recipe, model.seed, model.training)
    ]
    return Subject(model, max(found, key=lambda e: e.epoch or 0, default=None))


def _sentences(
    relevant: Sequence[RiskResult], outcome: str, model: ModelEvidence, recipe: Recipe | None
) -> tuple[str, str]:
    """Why the verdict is as it is, and what would change it."""
    deciding = [result for result in relevant if result.outcome == outcome]
    if not deciding:
        return "no risk was declared relevant", "name the relevant risks in [verdict] risks"
    titles = _listed([RISKS[result.risk].title for result in deciding])
    if outcome == BEYOND:
        return f"beyond the threshold: {titles}", _listed(
            list(dict.fromkeys(RISKS[result.risk].advice(recipe) for result in deciding)), "; "
        )
    if outcome == WITHIN:
        rest = "new data, more epochs, a withdrawal or a new attack: then it must be tested again"
        return f"within every threshold: {titles}", rest
    reasons = list(dict.fromkeys(result.reason for result in deciding))
    change = []
    if WITHOUT_TWIN in reasons:
        change.append(
            f"train the unprotected twin ({model.objective}) beside it: one more training and its scoring, as long as "
            "this model’s own"
        )
    if WITHOUT_POWER in reasons:
        change.append("train the twin until an attack finds something in it, or on more people")
    if any(reason in reasons for reason in (WIDE, UNSURE, FEW)):
        change.append("ask about more people")
    if CANNOT in reasons:
        change.append("leave masked models out of the gates on passages")
    change += [f"{RISKS[r.risk].title}: {r.reason}" for r in deciding if r.reason.startswith("not measured")]
    return f"not shown: {titles} ({reasons[0]})", _listed(change or ["a valid comparison of the two sides"], "; ")


def _listed(names: Sequence[str], between: str = ", ") -> str:
    return between.join(names)


def with_published_numbers(table: RiskTable, before: AuditEvidence, published: AuditEvidence) -> RiskTable:
    """Return the table with the numbers that decide, as far as they are published themselves."""
    rows = []
    for row, numbers in zip(table.rows, _models(before).values(), strict=True):
        config = VerdictConfig.model_validate({result.risk: result.at_most for result in row.results})
        results = []
        for result in row.results:
            deciding = [number for number in numbers if _decides(before.models[number], result, before, config)]
            shown = [_subject(published.models[number], published) for number in deciding]
            results.append(replace(result, estimate=_number_of(result, shown)))
        rows.append(replace(row, results=results))
    return replace(table, rows=rows)


def _decides(model: ModelEvidence, result: RiskResult, audit: AuditEvidence, config: VerdictConfig) -> bool:
    """Return whether the result is that of this training."""
    own = _judged_risk(RISKS[result.risk], model, audit, config, audit.cell)
    return (own.outcome, own.what, own.reason) == (result.outcome, result.what, result.reason)


def _number_of(result: RiskResult, shown: Sequence[Subject]) -> Estimate | None:
    """Return the worst of the published numbers; an area is as bad as it is far from chance."""
    found = [n for subject in shown for n in RISKS[result.risk].numbers(subject) if n.what == result.what]
    known = [
        (abs(n.estimate.value - CHANCE) if n.null == CHANCE else n.estimate.value, n.estimate)
        for n in found
        if n.estimate.value is not None and n.estimate.bound is None
    ]
    return max(known, key=lambda row: row[0])[1] if known else None


def risk_lines(table: RiskTable) -> list[str]:
    """Say the verdict on each model in a line."""
    return [
        f"{row.recipe}{f' of {row.model}' if row.model else ''}: {row.reason}; "
        f"{'for how long' if row.outcome == WITHIN else 'what would change it'}: {row.change}"
        for row in table.rows
    ]
