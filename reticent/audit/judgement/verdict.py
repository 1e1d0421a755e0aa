"""The judgement (definitions.md#the-verdict): rows of a number, its control, a threshold and an outcome.

Both verdicts read the same rows (:mod:`reticent.audit.judgement.rows`), by the upper ends of intervals.

**Gates**, whose thresholds were fixed in the job. A gate *passes* if the upper end is within its threshold and an
attack that should succeed did. It *fails* if the estimate itself is beyond the threshold. Otherwise there is *no
power*: too few individuals, an interval that is too wide, no control that shows that the attack can find anything, or
an attack that is invalid by the rules of :mod:`reticent.audit.membership.validity`. No power is never reported as
safety. The upper end of a two-sided 95 % interval is a one-sided bound of 97.5 %, that of a zero one of 95 %: a pass
holds at 95 % at least.

**Risks**: what a reader in a hurry may conclude of each model, and no more. A number is

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from reticent.audit.config import VerdictConfig
from reticent.audit.evidence.extraction import ExtractedModel, GateResult, Verdict
from reticent.audit.evidence.json_form import extended
from reticent.audit.evidence.risks import ModelRisks, RiskResult, RiskTable
from reticent.audit.judgement.rows import (
    BESIDE,
    BEYOND,
    FAIL,
    GATES,
    NOT_SHOWN,
    PASS,
    PLAIN,
    RISKS,
    WITHIN,
    About,
    Beside,
    Number,
    Risk,
    Subject,
    is_over,
    oriented,
)
from reticent.audit.membership.validity import CHANCE, NO_POWER
from reticent.audit.recipes import is_unprotected, recipe_of
from reticent.audit.stats.estimate import Estimate
from reticent.audit.texts import NOT_MEASURED, Mark, Marked, model_name

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence
    from reticent.audit.evidence.extraction import Extraction
    from reticent.audit.evidence.model import ModelEvidence
    from reticent.audit.judgement.rows import GateConfig
    from reticent.trainer.recipes import Recipe

__all__ = [
    "failed",
    "judge",
    "judge_risks",
    "numbers_beside",
    "risk_lines",
    "verdict",
    "verdict_lines",
    "with_published_numbers",
]

Entry = TypeVar("Entry", "ModelEvidence", ExtractedModel)
#: Outcomes of a risk, from the best to the worst.
ORDER = (WITHIN, NOT_SHOWN, BEYOND)
#: For a lower bound on epsilon: the reasons why it passes, and why it could not.
LOWER_BOUND = "more was not shown, though the guesses could have shown it; from above nothing is bounded"
TOO_FEW_GUESSES = "so few guesses could not have shown more"
#: For a gate without a number.
NO_MODEL, NOT_THIS_MODEL = "no model of this job is measured so", "this model is not measured so"


class Row(NamedTuple):
    """A number as it is judged: an area is turned so that more is worse, and the control says whether it shows."""

    number: Number
    estimate: Estimate | None
    control: bool | None
    at_most: float
    outcome: str = NOT_SHOWN
    reason: str = ""


#: The numbers of the unprotected twin, by what each has in common with a number of the model.
Twins = Mapping[tuple[str, About], Number]


def _row(number: Number, twins: Twins, at_most: float) -> Row:
    """A number beside its control, not judged yet."""
    twin = twins.get(number.of)
    proof = (twin.proof or twin.estimate) if twin else None
    estimate = number.estimate
    if number.null == CHANCE:
        estimate, proof = estimate and oriented(estimate, proof), proof and oriented(proof, proof)
    control = number.control if isinstance(number.control, bool | None) else is_over(proof, number.null)
    return Row(number, estimate, control, at_most)


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
        rows = rows or [GateResult(outcome=NO_POWER, reason=NO_MODEL, n=0)]
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
    numbers = GATES[gate.measure].numbers
    for key, model in last.items():
        name, recipe, seed = key
        if recipe == "base" or (recipe not in wanted if wanted else recipe in PLAIN):
            continue
        twin = next((other for other in last if other[0] == name and other[1] in PLAIN and other[2] == seed), None)
        plain = None if twin is None else Subject(last[twin], extracted.get(twin))
        twins = {number.of: number for number in (numbers(gate, plain, None) if plain else ())}
        own = numbers(gate, Subject(model, extracted.get(key)), plain)
        rows = [_gate_result(_row(number, twins, gate.at_most), gate, small_cell) for number in own]
        if not rows and (wanted or any(gate.attack in other.membership for k, other in last.items() if k[0] == name)):
            # Named, or attacked beside it: without a row it would look like a pass.
            rows = [GateResult(attack=gate.attack, outcome=NO_POWER, reason=NOT_THIS_MODEL, n=0)]
        for row in rows:
            yield replace(row, model=name, recipe=recipe, seed=seed, epoch=model.epoch)


def _gate_result(row: Row, gate: GateConfig, small_cell: int) -> GateResult:
    """Return the result of one number for its gate: its subject, bound, outcome and reason."""
    number = row.number
    outcome, reason = judge(row.estimate, row.at_most, row.control, small_cell=small_cell)
    if outcome == PASS and number.invalid:
        outcome, reason = NO_POWER, f"the attack is invalid: {number.invalid}"
    elif outcome == FAIL and number.invalid:
        reason += f", by an attack that is invalid: {number.invalid}"
    estimate = row.estimate or Estimate(value=None, n=0)
    if number.fewest is not None and number.fewest < small_cell:  # n counts both sides
        outcome, reason = NO_POWER, f"fewer than {small_cell} on one side"
        estimate = Estimate(value=None, n=number.fewest)
    is_few_less = 0 < number.left_out < small_cell  # beside the number over all they could be counted
    from_below = GATES[gate.measure].from_below
    if from_below:
        few = outcome == NO_POWER and row.control is False
        reason = LOWER_BOUND if outcome == PASS else TOO_FEW_GUESSES if few else reason
    return extended(
        number.about,
        GateResult,
        upper=None if from_below or is_few_less else estimate.high,
        at_least=estimate.high if from_below else None,
        outcome=outcome,
        reason=reason,
        n=estimate.n + number.left_out if is_few_less and estimate.n else estimate.n,
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
        worst = max(found, key=lambda result: ORDER.index(result.outcome))
        results.append(replace(worst, found=worst.found or next((r.found for r in found if r.found), None)))
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
    twin = _twin(model, audit.models)
    twins = {number.of: number for number in (risk.numbers(_subject(twin, audit)) if twin else ())}
    rows = [
        _judged_row(_row(number, twins, at_most), twin is not None, cell)
        for number in risk.numbers(_subject(model, audit))
        if number.estimate and (number.estimate.value is not None or number.estimate.n)  # else nothing of the kind
    ]
    result = RiskResult(
        risk=risk.name,
        relevant=risk.name in config.risks,
        outcome=NOT_SHOWN,
        at_most=at_most,
        reason=f"not measured; it would be by {risk.measured_by}",
    )
    if risk.objectives and model.objective not in risk.objectives:
        result = replace(result, relevant=False, reason="a masked model writes no text")
        asked = _with_gates(result, risk, model, audit)
        return replace(asked, reason=CANNOT) if asked.relevant and asked.outcome == NOT_SHOWN else asked
    chosen = _deciding(rows)
    if chosen is not None:
        result = replace(result, outcome=chosen.outcome, what=chosen.number.what, reason=chosen.reason)
    return _with_gates(replace(result, found=_surest(rows)), risk, model, audit)


def _deciding(rows: Sequence[Row]) -> Row | None:
    """The number that decides: the worst that is beyond; else one that could be; else the largest within."""
    beyond = [row for row in rows if row.outcome == BEYOND]
    unsure = [row for row in rows if row.outcome == NOT_SHOWN and row.reason in (WIDE, UNSURE, FEW)]
    within = [row for row in rows if row.outcome == WITHIN]
    group = next(filter(None, (beyond, unsure, within, rows)), ())
    return max(group, key=lambda row: (row.estimate and row.estimate.value) or 0.0, default=None)


def _surest(rows: Sequence[Row]) -> str | None:
    """The number that lies most surely over what there would be if nothing was learned, whatever the threshold."""
    over = [row for row in rows if not row.number.invalid and is_over(row.estimate, row.number.null)]
    surest = max(over, key=lambda row: _low(row) - row.number.null, default=None)
    return surest and surest.number.what


def _low(row: Row) -> float:
    return (row.estimate and row.estimate.low) or 0.0


FEW = "too few people to say"
UNSURE = "the estimate is beyond the threshold, and its interval holds none at all"
WIDE = "the interval is too wide: its upper end is beyond the threshold"
WITHOUT_TWIN = "nothing proves that the attack would have found anything: there is no unprotected twin"
UNPROTECTED = "nothing in its training protects anyone, whatever the attacks found"
CANNOT = "a required gate cannot judge a masked model, which writes no text"
WITHOUT_POWER = "the attack finds nothing in the unprotected twin either"


def _judged_row(row: Row, has_twin: bool, cell: int) -> Row:
    """Judge a number of a risk, whose twin is there or not."""
    number, raw, estimate = row.number, row.number.estimate, row.estimate

    def judged(outcome: str, reason: str) -> Row:
        return row._replace(outcome=outcome, reason=reason)

    if number.invalid:
        return judged(NOT_SHOWN, f"the attack is invalid: {number.invalid}")
    if raw is None or raw.value is None or raw.low is None or raw.high is None or raw.num_resampled < 2 * cell:
        return judged(NOT_SHOWN, FEW)
    assert estimate is not None
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    if estimate.value > row.at_most:
        is_beyond = estimate.low > number.null
        return judged(BEYOND, "beyond the threshold") if is_beyond else judged(NOT_SHOWN, UNSURE)
    if not has_twin:
        return judged(NOT_SHOWN, WITHOUT_TWIN)
    if estimate.high > row.at_most:  # it could be beyond, whatever the attack finds in the twin
        return judged(NOT_SHOWN, WIDE)
    if not row.control:
        return judged(NOT_SHOWN, WITHOUT_POWER)
    return judged(WITHIN, "its upper end is within the threshold, and the attack succeeds on the twin")


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


def _twin(model: ModelEvidence, models: Sequence[ModelEvidence]) -> ModelEvidence | None:
    """The unprotected twin of the same training; of an unprotected model itself."""
    own = [m for m in models if (m.model, m.objective) == (model.model, model.objective) and m.recipe in PLAIN]
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
        change.append("ask about more people: no attack finds enough in the twin")
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
            every = [_subject(published.models[number], published) for number in numbers]
            found = _number_of(replace(result, what=result.found), every) if result.found else None
            results.append(replace(result, estimate=_number_of(result, shown), found_estimate=found))
        rows.append(replace(row, results=results))
    return replace(table, rows=rows)


def _decides(model: ModelEvidence, result: RiskResult, audit: AuditEvidence, config: VerdictConfig) -> bool:
    """Return whether the result is that of this training."""
    own = _judged_risk(RISKS[result.risk], model, audit, config, audit.cell)
    return (own.outcome, own.what, own.reason) == (result.outcome, result.what, result.reason)


def _number_of(result: RiskResult, shown: Sequence[Subject]) -> Estimate | None:
    """Return the worst of the published numbers; an area is as bad as it is far from chance."""
    numbers = [n for subject in shown for n in RISKS[result.risk].numbers(subject) if n.what == result.what]
    known = [
        (abs(found.value - CHANCE) if n.null == CHANCE else found.value, found)
        for n in numbers
        if (found := n.estimate) and found.value is not None and found.bound is None
    ]
    return max(known, key=lambda row: row[0])[1] if known else None


class ModelBeside(NamedTuple):
    """The numbers of a model that stand beside its verdict, each with that of the unprotected twin."""

    model: ModelEvidence
    numbers: list[tuple[Estimate | None, Estimate | None]]


def numbers_beside(models: Sequence[ModelEvidence]) -> tuple[list[Beside], list[ModelBeside]]:
    """Return the rows of `BESIDE` that were measured, and their numbers of the trained ones of these models."""
    rows = [row for row in BESIDE if any(model.beside and row.estimate(model.beside) for model in models)]
    found = []
    for model in models if rows else ():
        if model.recipe != "base":
            pair = (model, _twin(model, models))
            numbers = [tuple(one and one.beside and row.estimate(one.beside) for one in pair) for row in rows]
            found.append(ModelBeside(model, numbers))  # type: ignore[arg-type]
    return rows, found


def risk_lines(table: RiskTable) -> list[Marked]:
    """Say the verdict on each model in a line."""
    lines = []
    for row in table.rows:
        text = f"{row.recipe}{f' of {row.model}' if row.model else ''}: {row.reason}; "
        text += f"{'for how long' if row.outcome == WITHIN else 'what would change it'}: {row.change}"
        name = model_name(row.recipe, row.model)
        deciding = [Mark(name, r.risk, r.what or NOT_MEASURED, r.outcome) for r in row.results
                    if r.relevant and r.outcome == row.outcome]  # fmt: skip
        lines.append(Marked(text, *deciding, Mark(name, "all", "verdict", row.outcome)))
    return lines
