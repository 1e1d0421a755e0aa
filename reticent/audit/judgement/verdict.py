"""The judgement (definitions.md#the-verdict): rows of a number, its control, a threshold and an outcome.

Both verdicts read the same rows (:mod:`reticent.audit.judgement.rows`), by the upper ends of intervals.

**Gates**, whose thresholds were fixed in the job. A gate *passes* if the upper end is within its threshold and an
attack that should succeed did. It *fails* if the estimate itself is beyond the threshold. Otherwise there is *no
power*: too few individuals, an interval that is too wide, no control that shows that the attack can find anything, or
sides that differ without the model (:mod:`reticent.audit.membership.validity`). No power is never reported as
safety. The upper end of a two-sided 95 % interval is a one-sided bound of 97.5 %, that of a zero one of 95 %: a pass
holds at 95 % at least.

**Risks**: the conclusion on each model for a reader in a hurry. A number is

- *beyond* its threshold where the estimate is, and its interval lies over what there would be if nothing was learned;
- *within* it where the upper end of the interval is, and the same number of the unprotected twin, or of a plain model
  that was trained four times as long on these documents, or eight times on those of 100 individuals, is beyond it: so
  the attack would have found that much;
- *not shown* else: no twin, an attack that finds nothing in the twin either, too few individuals, an interval too
  wide, two sides of a given split that differ by themselves, or nothing measured.

An area of membership is two numbers: itself, and 0.5 plus what it is more than that of its control, over the same
people, so that the shift of a split by chance cancels. The worse of them decides.
A risk is beyond where one of its numbers is, and within where one is and none could be beyond. Membership is within
only where one of these numbers is that of an attack with `MIN_SHADOWS` shadow models or more, on this very model and on
the plain one. Where the base model may know the members, nothing is within by a difference to it. A model's verdict is
the worst of its relevant risks. Gates of the job can only worsen it. The sign of an area comes from the twin; without
one that shows it, or measurably against it, an area of 0.25 is one of 0.75, and its interval is widened as the side was
picked. A model of an unprotected recipe is never within: that the attacks found little is no protection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from reticent.audit.config import WHOLE_PASSAGE, VerdictConfig
from reticent.audit.evidence.extraction import ExtractedModel, GateResult, Verdict
from reticent.audit.evidence.json_form import extended
from reticent.audit.evidence.risks import KeptOutcome, ModelRisks, RiskResult, RiskTable
from reticent.audit.judgement.rows import (
    BESIDE,
    BEYOND,
    FAIL,
    FALSE_ALARM,
    GATES,
    MIN_SHADOWS,
    MOST_OTHER_LANGUAGE,
    NO_WHOLE_PASSAGES,
    NOT_SHOWN,
    NUM_AREAS,
    OTHER_LANGUAGE,
    PASS,
    RISKS,
    TWIN,
    WITHIN,
    About,
    Beside,
    GateConfig,
    Number,
    Risk,
    Subject,
    advice,
    is_over,
    orient_auc,
)
from reticent.audit.membership.names import CLASSIFIER, DIFFERENCES, TAGGER
from reticent.audit.membership.validity import CHANCE, NO_POWER
from reticent.audit.recipes import is_elsewhere, is_unprotected, recipe_of, settings_by_section
from reticent.audit.stats.estimate import LEVEL, Estimate, simultaneous
from reticent.audit.texts import NOT_MEASURED, Mark, Marked, model_name

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence
    from reticent.audit.evidence.corpus import CorpusEvidence
    from reticent.audit.evidence.extraction import Extraction
    from reticent.audit.evidence.model import ModelEvidence
    from reticent.trainer.recipes import Recipe

Entry = TypeVar("Entry", "ModelEvidence", ExtractedModel)
#: Outcomes of a risk, from the best to the worst.
ORDER = (WITHIN, NOT_SHOWN, BEYOND)
#: Smallest ratio of epochs at which a longer trained plain model is a control where the twin shows too little.
LONGER = 4
#: Version of measures and judgement, raised with every correction: outcomes of a lower one are shown as superseded.
ARITHMETIC = 3
#: Objective -> why a model of it does not have a risk of others.
NOT_OF = {
    "mlm": "a masked model writes no text",
    CLASSIFIER: "a classifier says no words",
    TAGGER: "a tagger says no words",
}
#: For a lower bound on epsilon: the reasons why it passes, and why it could not.
NO_NUMBER = "too few to give the number at all"
LOWER_BOUND = "more was not shown, though the guesses could have shown it; from above nothing is bounded"
TOO_FEW_GUESSES = "so few guesses could not have shown more"
#: For a gate without a number.
NO_MODEL, NOT_THIS_MODEL = "no model of this job is measured so", "this model is not measured so"


class Row(NamedTuple):
    """A number as it is judged: an AUC is oriented so that more is worse, and ``control`` is whether the control
    succeeds."""

    number: Number
    estimate: Estimate | None
    control: bool | None
    at_most: float
    outcome: str = NOT_SHOWN
    reason: str = ""


#: The numbers of an unprotected model, by what each has in common with a number of the model.
Twins = Mapping[tuple[str, About], Number]


def _unjudged_row(number: Number, controls: Sequence[Twins], threshold: float, *, strict: bool = False) -> Row:
    """Return a figure as a row whose outcome is still open: its estimate, oriented so that higher is worse, and whether
    the same figure of an unprotected model in ``controls`` shows a leak (if ``strict``, one above the threshold)."""
    twins = [twin for twin in (control.get(number.of) for control in controls) if twin]
    proofs = [(found, twin) for twin in twins if (found := twin.estimate)]
    estimate = number.estimate
    if number.null == CHANCE:
        estimate = estimate and orient_auc(estimate, proofs[0][0] if proofs else None)
        proofs = [(orient_auc(proof, proof), twin) for proof, twin in proofs]
    threshold = threshold if number.at_most is None else number.at_most
    control = number.control if isinstance(number.control, bool | None) else None
    if number.control == TWIN and proofs:
        least_shadows = MIN_SHADOWS if number.num_shadows and strict else 0
        control = any(
            is_over(proof, number.null)
            and (not strict or (proof.value or 0.0) > threshold)
            and (twin.num_shadows or 0) >= least_shadows
            for proof, twin in proofs
        )
    return Row(number, estimate, control, threshold)


def gate_outcome(
    estimate: Estimate | None, at_most: float, control: bool | None, *, small_cell: int = 5
) -> tuple[str, str]:
    """Compare an estimate with the upper limit ``at_most`` of a gate (a limit set by the job); return (outcome,
    reason). The outcome is "no power" if the estimate is missing or too uncertain, or no control shows that the attack
    works.

    Parameters
    ----------
    estimate : None if the attack gave no number
    control : whether an attack that should succeed did; None if there was none

    >>> from reticent.audit.stats.estimate import Estimate
    >>> gate_outcome(Estimate(value=0.0, high=0.00997, n=299), 0.01, True)
    ('pass', 'the upper bound is within the threshold')
    >>> gate_outcome(Estimate(value=0.0, high=0.0495, n=59), 0.01, True)
    ('no power', 'the interval is too wide: its upper end is beyond the threshold')
    """
    if estimate is None or estimate.value is None:
        return NO_POWER, NO_NUMBER
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
    corpus: CorpusEvidence | None = None,
) -> Verdict:
    """Return the results of every gate (a limit set by the job), each checked on the last checkpoint of every training
    that it applies to, or on the documents.

    Parameters
    ----------
    models, extraction : of the audit, before publication
    gates : as in the job; the default gate on the documents' languages is added if the job has none and it fails
    corpus : for the gate of their languages

    Returns
    -------
    Verdict
        The worst outcome of all; whether a gate failed or one that is required had no power; and a result for each
        gate and number that it is about. A gate without any number has no power.
    """
    results = []
    own = _default_language_gate(corpus) if all(gate.measure != OTHER_LANGUAGE for gate in gates) else ()
    for number, gate in enumerate((*gates, *own), start=1):
        if GATES[gate.measure].of_corpus:
            rows = [_language_result(corpus, gate)]
        else:
            rows = list(_gate_results(models, extraction, gate, small_cell))
        rows = rows or [GateResult(outcome=NO_POWER, reason=NO_MODEL, n=0)]
        results += [
            replace(row, gate=number, measure=gate.measure, at_most=gate.at_most, required=gate.required)
            for row in rows
        ]
    outcomes = {row.outcome for row in results}
    worst = next((name for name in (FAIL, NO_POWER, PASS) if name in outcomes), None)
    return Verdict(outcome=worst, failed=any(map(failed, results)), results=results)


def _default_language_gate(corpus: CorpusEvidence | None) -> Iterator[GateConfig]:
    """Yield a gate (a limit) on the share of documents in languages that the detection rules do not know, with the
    default limit, if the documents exceed it."""
    gate = GateConfig(measure=OTHER_LANGUAGE, at_most=MOST_OTHER_LANGUAGE)
    if _language_result(corpus, gate).outcome == FAIL:
        yield gate


def _language_result(corpus: CorpusEvidence | None, gate: GateConfig) -> GateResult:
    """Return the result of a gate (a limit set by the job) on the share of documents in languages that the detection
    rules do not know; "no power" if languages were not counted."""
    found = corpus.other_languages if corpus else None
    if found is None or not found.num_documents:
        return GateResult(outcome=NO_POWER, reason=NO_NUMBER, n=0)
    share = (found.num_unknown or 0) / found.num_documents
    counted = Estimate(value=share, low=share, high=share, n=found.num_documents)
    outcome, reason = gate_outcome(counted, gate.at_most, True, small_cell=0)
    return GateResult(outcome=outcome, reason=reason, upper=share, n=found.num_documents, unit="documents")


def failed(row: GateResult) -> bool:
    """Return whether the result of a gate (a limit set by the job) makes the run fail: its outcome is "fail", or "no
    power" although the gate is required."""
    return row.outcome == FAIL or (row.outcome == NO_POWER and bool(row.required))


def verdict_lines(found: Verdict) -> list[str]:
    """Return one line of text for the result of each gate (a limit set by the job): outcome, limit, model, upper bound,
    n and reason."""
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


def _gate_results(
    models: Sequence[ModelEvidence], extraction: Extraction | None, gate: GateConfig, small_cell: int
) -> Iterator[GateResult]:
    """Yield the results of one gate (a limit set by the job) on the last checkpoint of every training that it applies
    to."""
    last = _last_checkpoints(models)
    extracted = _last_checkpoints(extraction.models if extraction else ())
    wanted = gate.recipes
    numbers = GATES[gate.measure].numbers
    for key, model in last.items():
        name, recipe, seed = key
        chosen = (model.start or recipe) in wanted if wanted else not model.is_plain
        if recipe == "base" or not chosen or model.kind not in GATES[gate.measure].kinds:
            continue
        twin = _unprotected_twin(model, list(last.values()))
        plain = Subject(twin, extracted.get((twin.model, twin.recipe, twin.seed))) if twin else None
        twins = {number.of: number for number in (numbers(gate, plain, None) if plain else ())}
        own = numbers(gate, Subject(model, extracted.get(key)), plain)
        rows = [
            _gate_result(_unjudged_row(each.valid_for(model), [twins], gate.at_most), gate, small_cell) for each in own
        ]
        if not rows and (wanted or any(gate.attack in other.membership for k, other in last.items() if k[0] == name)):
            # Named, or attacked beside it: without a row it would look like a pass.
            rows = [GateResult(attack=gate.attack, outcome=NO_POWER, reason=NOT_THIS_MODEL, n=0)]
        for row in rows:
            yield replace(row, model=name, recipe=recipe, seed=seed, epoch=model.epoch)


def _gate_result(row: Row, gate: GateConfig, small_cell: int) -> GateResult:
    """Compare the figure in ``row`` with a gate's limit; return the result with labels, upper bound, outcome and
    reason."""
    number = row.number
    outcome, reason = gate_outcome(row.estimate, row.at_most, row.control, small_cell=small_cell)
    if number.missing:
        outcome, reason = NO_POWER, number.missing
    elif number.invalid:
        outcome, reason = NO_POWER, f"{SIDES_DIFFER}: {number.invalid}"
    elif outcome == PASS and number.doubt:
        outcome, reason = NO_POWER, f"{FAULT_OF_THE_RUN}: {number.doubt}"
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


def _last_checkpoints(models: Sequence[Entry]) -> dict[tuple[str | None, str | None, int | None], Entry]:
    """Return (model section, recipe, seed) -> the entry of that training's last checkpoint."""
    last: dict[tuple[str | None, str | None, int | None], Entry] = {}
    for model in models:
        key = (model.model, model.recipe, model.seed)
        if key not in last or (model.epoch or 0) > (last[key].epoch or 0):
            last[key] = model
    return last


def judge_risks(audit: AuditEvidence, config: VerdictConfig | None = None) -> RiskTable:
    """Return for every trained model of an unpublished audit the outcome of each risk and the overall verdict;
    `with_published_numbers` then fills in the estimates.

    The outcome of a risk is the worst over several trainings of a recipe.

    Parameters
    ----------
    config : thresholds and relevant risks; default: those of the job's settings
    """
    settings, config, cell = audit.settings.get("verdict"), config or _verdict_config_of(audit), audit.cell
    audit = _with_heads_as_models(audit)
    rows = [_judge_model(found, audit, config, cell) for found in _last_indices(audit).values()]
    if is_elsewhere(audit):
        rows = [_limit_by_source(rows[0], row) for row in rows]  # the model itself comes first
    fixed = audit.verdict.fixed_before_training if audit.verdict else None
    return RiskTable(own_thresholds=bool(settings), fixed_before_training=fixed, rows=rows, arithmetic=ARITHMETIC)


def outcomes_of(audit: AuditEvidence) -> list[KeptOutcome]:
    """Return the outcome of every risk of every training with a digest of its model files, as records that later audits
    compare with. They do not depend on earlier audits."""
    config, alone = _verdict_config_of(audit), replace(_with_heads_as_models(audit), earlier=None)
    return [
        _judge_and_record(risk, alone.models[number], alone, config)
        for numbers in _last_indices(alone).values()
        for number in numbers
        if alone.models[number].digest
        for risk in RISKS.values()
    ]


def _with_heads_as_models(audit: AuditEvidence) -> AuditEvidence:
    """Return the audit with its classifiers and taggers among ``models``, so that they are judged like them."""
    return replace(audit, models=audit.every_model, heads=None)


def _judge_and_record(risk: Risk, model: ModelEvidence, audit: AuditEvidence, config: VerdictConfig) -> KeptOutcome:
    """Judge one risk of one model; return the outcome as a record, with which later audits compare their own."""
    found = _judge_risk(risk, model, audit, config, audit.cell)
    numbers = [n for n in risk.numbers(_with_extraction(model, audit)) if n.estimate and n.estimate.value is not None]
    seed = audit.settings.get("seed")
    return KeptOutcome(
        model=model.model,
        recipe=model.recipe,
        epoch=model.epoch,
        digest=model.digest or "",
        kin=model.kin,
        risk=risk.name,
        outcome=found.outcome,
        at_most=found.at_most,
        what=found.what,
        numbers=sorted({name for n in numbers for name in _tested_names(n)}),
        num_shadows=max((n.num_shadows or 0 for n in numbers), default=0),
        seed=seed if isinstance(seed, int) else None,
        created=audit.created,
        version=audit.versions.get("reticent", ""),
        arithmetic=ARITHMETIC,
    )


def _tested_names(number: Number) -> list[str]:
    """Return the names of the attack and the figure that a later audit must have measured too before its outcome may
    replace an outcome that rests on this figure."""
    attack = number.about.attack
    return [number.what] if attack is None else [attack] if number.about.part else [attack, number.what]


def _apply_earlier_audits(
    result: RiskResult, models: Sequence[ModelEvidence], audit: AuditEvidence, config: VerdictConfig
) -> tuple[RiskResult, list[str]]:
    """Compare a risk's result with earlier audits of the same model files; return (result, notes). "Within" becomes
    "not shown" if an earlier audit found worse and nothing explains why; each worse outcome adds a note."""
    notes = []
    now = {model.digest: model for model in models}
    all_digests = {model.digest for model in audit.models}
    for row in audit.earlier or ():
        own = now.get(row.digest)
        is_left_out = row.digest not in all_digests and row.kin in {model.kin for model in models if model.kin}
        is_worse = ORDER.index(row.outcome) > ORDER.index(result.outcome)
        if row.risk != result.risk or not is_worse or not (own or is_left_out):
            continue
        again = _judge_and_record(RISKS[row.risk], own, audit, config) if own else None
        covers = again is not None and (
            set(row.numbers) <= set(again.numbers) and row.num_shadows <= again.num_shadows and row.seed == again.seed
        )
        if covers and row.outcome == NOT_SHOWN:  # more was measured since
            continue
        answer = STANDS
        if covers and row.arithmetic < ARITHMETIC:
            answer = SUPERSEDED
        elif row.explained and (covers or is_left_out):  # the files of one that is left out are not there to be asked
            answer = f"{EXPLAINED}{row.explained}"
        whose = "of these files" if own else "of a training that this one leaves out"
        found = f"an earlier audit {whose} ({row.created}, Reticent {row.version}) found {RISKS[row.risk].title}:"
        notes.append(f"{found} {row.outcome}; {answer}")
        if answer == STANDS and result.outcome == WITHIN:
            result = replace(result, outcome=NOT_SHOWN, reason=EARLIER)
    return result, notes


def _limit_by_source(source_verdict: ModelRisks, copy_verdict: ModelRisks) -> ModelRisks:
    """Return the verdict on a copy of a model (merged, quantised) with no outcome better than the original model's,
    because a second test may pass by chance."""
    results = [
        replace(own, outcome=first.outcome, reason=OF_SOURCE)
        if ORDER.index(first.outcome) > ORDER.index(own.outcome)
        else own
        for first, own in zip(source_verdict.results, copy_verdict.results, strict=True)
    ]
    if results == copy_verdict.results or source_verdict is copy_verdict:
        return copy_verdict
    if ORDER.index(source_verdict.outcome) <= ORDER.index(copy_verdict.outcome):
        return replace(copy_verdict, results=results)
    return replace(
        copy_verdict,
        results=results,
        outcome=source_verdict.outcome,
        reason=source_verdict.reason,
        change=source_verdict.change,
    )


def _verdict_config_of(audit: AuditEvidence) -> VerdictConfig:
    """Return the verdict settings of an audit, restricted to the risks that matter with the access to the model that
    the settings of the dossier name."""
    settings, dossier = audit.settings.get("verdict"), audit.settings.get("dossier")
    config = VerdictConfig(**settings) if isinstance(settings, Mapping) else VerdictConfig()
    return config.of_access(dossier.get("access") if isinstance(dossier, Mapping) else None)


def _last_indices(audit: AuditEvidence) -> dict[tuple[str | None, str, str], list[int]]:
    """Return (model section, objective, recipe) -> indices in ``audit.models`` of the last checkpoint of each of its
    trainings; base models are left out."""
    last: dict[tuple[str | None, str, str], dict[int | None, int]] = {}
    for number, model in enumerate(audit.models):
        if model.recipe == "base":
            continue
        own = last.setdefault((model.model, model.objective, model.recipe), {})
        key = model.seed if model.seed is not None else model.training
        if key not in own or model.epoch >= audit.models[own[key]].epoch:
            own[key] = number
    return {key: list(own.values()) for key, own in last.items()}


def _judge_model(numbers: Sequence[int], audit: AuditEvidence, config: VerdictConfig, cell: int) -> ModelRisks:
    """Return the verdict on one recipe over its trainings with different seeds: each risk's worst outcome, the overall
    outcome, reason and advice. ``numbers`` are the indices in ``audit.models`` of their last checkpoints."""
    first, results = audit.models[numbers[0]], []
    notes = [KNOWN_BASE] if _base_may_know_members(first, audit) else []
    notes += [THEIR_LIST] if is_elsewhere(audit) else []
    notes += [NO_BASE] if is_elsewhere(audit) and all(each.recipe != "base" for each in audit.models) else []
    for risk in RISKS.values():
        found = [_judge_risk(risk, audit.models[number], audit, config, cell) for number in numbers]
        worst = max(found, key=lambda result: ORDER.index(result.outcome))
        if not worst.found and (first_found := next((r for r in found if r.found), None)):
            worst = replace(worst, found=first_found.found, found_at_most=first_found.found_at_most)
        result, earlier = _apply_earlier_audits(worst, [audit.models[number] for number in numbers], audit, config)
        results.append(result)
        notes += earlier
    unset = [
        r.title
        for r in RISKS.values()
        if r.name not in config.risks and first.objective in (r.objectives or [first.objective])
    ]
    notes += [f"{NOT_COUNTED}{_join_names(unset)}"] if unset else []
    broken = any(m.ledger and m.ledger.violations for m in (audit.models[number] for number in numbers))
    relevant = [result for result in results if result.relevant]
    outcome = max((result.outcome for result in relevant), key=ORDER.index, default=NOT_SHOWN)
    recipe = recipe_of(first.recipe, audit)
    reason, change = _reason_and_change(relevant, outcome, first, recipe)
    if outcome == BEYOND and is_elsewhere(audit):
        change = f"refuse it, or ask who trained it to train another: {change}"
    uncounted = [RISKS[result.risk].title for result in results if not result.relevant and result.outcome == BEYOND]
    if outcome == WITHIN and uncounted:
        reason += f"; beyond the threshold, but not counted: {_join_names(uncounted)}"
    if outcome == WITHIN and is_unprotected(recipe, first):
        outcome, reason = NOT_SHOWN, f"not shown: {UNPROTECTED}"
        change = advice("emission", first, None)
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
        notes=notes or None,
    )


def _judge_risk(risk: Risk, model: ModelEvidence, audit: AuditEvidence, config: VerdictConfig, cell: int) -> RiskResult:
    """Return the result of one risk of one model: the figure that decides it, its outcome against the threshold, and
    the reason; "not shown" if nothing was measured."""
    at_most: float = getattr(config, risk.name)
    controls = _control_models(model, audit)
    known = _base_may_know_members(model, audit)
    num_rates = _num_rates(model, audit)
    of_controls = [{number.of: number for number in risk.numbers(_with_extraction(each, audit))} for each in controls]
    rows = [
        _judge_row(_unjudged_row(number, of_controls, at_most, strict=True), bool(controls), known, cell, num_rates)
        for number in (number.valid_for(model) for number in risk.numbers(_with_extraction(model, audit)))
        if number.missing
        or (number.estimate and (number.estimate.value is not None or number.estimate.n))  # else nothing of the kind
        if known or not number.of_known_base
    ]
    by = risk.measured_by if model.start is None else risk.measured_on_heads_by
    result = RiskResult(
        risk=risk.name,
        relevant=risk.name in config.risks,
        outcome=NOT_SHOWN,
        at_most=at_most,
        reason=f"not measured; it would be by {by}",
        notes=[UNKNOWN_RECALL] if risk.by_detectors and audit.sampled_recall is None else None,
    )
    if risk.objectives and model.objective not in risk.objectives:
        result = replace(result, relevant=False, reason=NOT_OF[model.objective], notes=None)
        asked = _apply_gates(result, risk, model, audit)
        return replace(asked, reason=CANNOT) if asked.relevant and asked.outcome == NOT_SHOWN else asked
    chosen = _deciding_row(rows)
    if chosen is not None:
        if chosen.outcome == WITHIN and risk.by_shadows and (model.start is None or risk.heads_by_shadows):
            chosen = _require_shadows(chosen, rows)
        result = replace(
            result,
            outcome=chosen.outcome,
            what=chosen.number.what,
            reason=NOTHING_FOUND if chosen.reason == WITHOUT_TWIN and is_elsewhere(audit) else chosen.reason,
            number_at_most=chosen.number.at_most,
        )
    unasked = [row.number.missing for row in rows if row.number.missing and row.number.missing != result.reason]
    if unasked:
        result = replace(result, notes=[*(result.notes or ()), *unasked])
    if surest := _surest_finding(rows):
        result = replace(result, found=surest.what, found_at_most=surest.at_most)
    return _apply_gates(result, risk, model, audit)


def _num_rates(model: ModelEvidence, audit: AuditEvidence) -> int | None:
    """Return how many rates (AUCs aside) a model with a given list of members is judged by, for a Bonferroni
    correction; None if members were drawn at random, which needs no correction."""
    if not model.split_given:
        return None
    numbers = (number for risk in RISKS.values() for number in risk.numbers(_with_extraction(model, audit)))
    return sum(number.estimate is not None and number.null != CHANCE for number in numbers)


def _widen_for_given_split(number: Number, estimate: Estimate, num_rates: int) -> Estimate:
    """Return the estimate with a wider interval, for a model whose members were listed and not drawn at random: the
    probability that any figure exceeds its threshold by chance is then at most `FALSE_ALARM`.

    Nothing verifies such a list. Half of the false alarms is reserved for exact tests; the areas of both membership
    risks, which are simultaneous already, and all rates share the other half.
    """
    num = round((1 - LEVEL) / (FALSE_ALARM / 2 / 3))
    if number.null == CHANCE:
        return simultaneous(estimate, num, already=NUM_AREAS)
    return simultaneous(estimate, num * max(num_rates, 1))


def _require_shadows(deciding_row: Row, rows: Sequence[Row]) -> Row:
    """Return the row that decides a risk. Its outcome becomes "not shown" unless an attack with at least `MIN_SHADOWS`
    shadow models was made and is within the threshold."""
    strong = [row for row in rows if (row.number.num_shadows or 0) >= MIN_SHADOWS]
    if any(row.outcome == WITHIN for row in strong):
        return deciding_row
    return deciding_row._replace(outcome=NOT_SHOWN, reason=strong[0].reason if strong else WITHOUT_SHADOWS)


def _deciding_row(rows: Sequence[Row]) -> Row | None:
    """Return the row that decides a risk: the one with the largest estimate among rows beyond the threshold; without
    any, among undecided rows, then among rows within it, then among all. None without rows."""
    beyond = [row for row in rows if row.outcome == BEYOND]
    unsure = [
        row
        for row in rows
        if row.outcome == NOT_SHOWN
        and (
            row.reason in (WIDE, UNSURE, BY_CHANCE, FEW, row.number.missing)
            or row.reason.startswith((SIDES_DIFFER, FAULT_OF_THE_RUN))
            # The most exposed, of whom no other number is: the base may give them away itself.
            or (row.reason == BESIDE_KNOWN and row.number.at_most is not None)
        )
    ]
    within = [row for row in rows if row.outcome == WITHIN]
    group = next(filter(None, (beyond, unsure, within, rows)), ())
    return max(group, key=lambda row: (row.estimate and row.estimate.value) or 0.0, default=None)


def _surest_finding(rows: Sequence[Row]) -> Number | None:
    """Return the valid figure that shows a leak most clearly: its interval lies farthest above the value of a model
    that leaks nothing. Thresholds play no part; None if no interval lies above."""
    said = [row for row in rows if not row.number.invalid and not row.number.missing]
    over = [row for row in said if row.number.is_found(row.estimate)]
    surest = max(over, key=lambda row: _lower_end(row) - row.number.null, default=None)
    return surest and surest.number


def _lower_end(row: Row) -> float:
    """Return the lower end of the row's interval; 0 without one."""
    return (row.estimate and row.estimate.low) or 0.0


FEW = "too few people to say"
SIDES_DIFFER = "the two sides differ without the model"
FAULT_OF_THE_RUN = "a fault of the run"
UNSURE = (
    "the estimate is beyond the threshold, but its interval, wider where both sides of 0.5 count, does not exclude "
    "that nothing was learned"
)
BY_CHANCE = "the estimate is beyond the threshold, but of so many tests of a given list one is so by chance alone"
WIDE = "the interval is too wide: its upper end is beyond the threshold"
WITHOUT_TWIN = "nothing proves that the attack would have found anything: there is no unprotected twin"
UNPROTECTED = "nothing in its training protects anyone, whatever the attacks found"
CANNOT = "a required gate cannot judge a masked model, which writes no text"
OF_SOURCE = "it is so of the model that this is a copy of"
NOTHING_FOUND = "nothing was found over it; of a model trained elsewhere no more can be said without shadow models"
WITHOUT_POWER = "what the attack finds in the unprotected twin is not beyond the threshold either"
WITHOUT_SHADOWS = f"no attack with at least {MIN_SHADOWS} shadow models was made on this very model"
BESIDE_KNOWN = "it is a difference to the base model, which may know the members"
#: What an earlier audit found, and whether that still holds.
EARLIER = "an earlier audit of these files found more, and that stands"
STANDS = "this stands until an audit with at least its attacks explains it by name"
SUPERSEDED = "superseded: the arithmetic of that version was mended"
EXPLAINED = "explained: "
#: What a reader must know beside an outcome.
KNOWN_BASE = "the base model may know the members: nothing is within by a difference to it"
THEIR_LIST = (
    "who it was trained on is what the given list says; nothing here verifies that, and a wrong list only hides leaks"
)
NO_BASE = (
    "no base model was given: attacks that compare with it were not made, and the words of the texts are the only "
    "control of the others"
)
NOT_COUNTED = "the job sets these risks not to count: "
UNKNOWN_RECALL = "how many identifiers the detectors missed was not measured, and none of those is counted here"


def base_may_know(base: ModelEvidence | None, extracted: ExtractedModel | None = None) -> bool:
    """Return whether a base model may already know the members: its membership attacks or leak rates are measurably
    higher for members than for others.

    Its membership attacks and leak rates are compared with their null values simultaneously (Bonferroni), so a base
    that saw nobody is suspected in 2.5 % of runs.
    """
    if base is None:
        return False
    passages = extracted.passages if extracted else None
    areas = [attack.auc for name, attack in base.membership.items() if name not in DIFFERENCES]
    areas += [a.auc for found in (base.by_kind or {}).values() for n, a in found.attacks.items() if n == "loss"]
    inverted = base.inversion and [base.inversion.direct, base.inversion.indirect]
    rates = [kind.all.top1.excess for kind in inverted or () if kind and kind.all]
    rates += [kind.in_place.ranked.top1.excess for kind in inverted or () if kind and kind.in_place]
    ways = (base.excess, base.generated and base.generated.excess, base.all_occurrences and base.all_occurrences.excess)
    rates += [sides.excess for found in ways for sides in (found or {}).values()]
    rates += [row.excess for row in passages.rates if row.asked == "all"] if passages else []
    numbers = [(found, CHANCE) for found in areas] + [(found, 0.0) for found in rates]
    return any(is_over(simultaneous(found, len(numbers)), null) for found, null in numbers)


def _base_may_know_members(model: ModelEvidence, audit: AuditEvidence) -> bool:
    """Return whether the base model of this model may already know the members; see `base_may_know`."""
    own = (m for m in audit.models if (m.model, m.objective, m.recipe) == (model.model, model.objective, "base"))
    base = next(own, None)
    return base is not None and base_may_know(*_with_extraction(base, audit))


def _control_models(model: ModelEvidence, audit: AuditEvidence) -> list[ModelEvidence]:
    """Return the unprotected models in which the attacks on this model should succeed: the one trained alike but
    without protection (its twin), and models of the same base that were trained at least `LONGER` times as long, or
    equally long on repeated documents."""
    if is_elsewhere(audit):  # nothing is known of any training: no model of it is a control
        return []
    twin = _unprotected_twin(model, audit.models)
    sections = settings_by_section(audit)
    origins = {name: (each.get("base"), each.get("foundation")) for name, each in sections.items()}
    repeated = {name for name, each in sections.items() if each.get("repeated")}
    others = [
        audit.models[number]
        for (section, objective, _), numbers in _last_indices(audit).items()
        for number in numbers
        if audit.models[number].is_plain and objective == model.objective and section != model.model
        and audit.models[number].epoch >= (1 if section in repeated else LONGER) * model.epoch
        and origins.get(str(section), section) == origins.get(str(model.model), model.model)
    ]  # fmt: skip
    return [*([twin] if twin else ()), *others]


def _judge_row(row: Row, has_twin: bool, base_knows: bool, cell: int, num_rates: int | None = None) -> Row:
    """Return the row with its outcome and reason. ``base_knows`` tells whether the base model may know the members;
    ``cell`` is the smallest count to publish; ``num_rates`` is from `_num_rates` (None: members drawn at random)."""
    number, raw, estimate = row.number, row.number.estimate, row.estimate

    def judged(outcome: str, reason: str) -> Row:
        """Return the row with this outcome and reason."""
        return row._replace(outcome=outcome, reason=reason)

    if number.missing:
        return judged(NOT_SHOWN, number.missing)
    if number.invalid:
        return judged(NOT_SHOWN, f"{SIDES_DIFFER}: {number.invalid}")
    if number.is_shown:
        return judged(BEYOND, "beyond the threshold")
    if number.by_test_alone or raw is None or raw.value is None or raw.low is None or raw.high is None:
        return judged(NOT_SHOWN, FEW)
    assert estimate is not None
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    few = raw.num_resampled < 2 * cell
    if estimate.value > row.at_most:  # of few people, certain only where the whole interval is
        bound = row.at_most if few else number.null
        if estimate.low <= bound:
            return judged(NOT_SHOWN, FEW if few else UNSURE)
        is_sure = (
            num_rates is None
            or _lower_end(row._replace(estimate=_widen_for_given_split(number, estimate, num_rates))) > bound
        )
        return judged(BEYOND, "beyond the threshold") if is_sure else judged(NOT_SHOWN, BY_CHANCE)
    if few:
        return judged(NOT_SHOWN, FEW)
    if not has_twin:
        return judged(NOT_SHOWN, WITHOUT_TWIN)
    if estimate.high > row.at_most:  # it could be beyond, whatever the attack finds in the twin
        return judged(NOT_SHOWN, WIDE)
    if base_knows and number.beside_base:
        return judged(NOT_SHOWN, BESIDE_KNOWN)
    if not row.control:
        return judged(NOT_SHOWN, WITHOUT_POWER)
    if number.doubt:
        return judged(NOT_SHOWN, f"{FAULT_OF_THE_RUN}: {number.doubt}")
    return judged(WITHIN, "its upper end is within the threshold, and the attack succeeds on the twin")


def _apply_gates(result: RiskResult, risk: Risk, model: ModelEvidence, audit: AuditEvidence) -> RiskResult:
    """Return a risk's result after the gates (limits set by the job) on it: "beyond" if one failed, "not shown" in
    place of "within" if a required one has no statistical power."""
    rows = [row for row in (audit.verdict.results if audit.verdict else ()) if _is_about(row, risk, model)]
    if any(row.outcome == FAIL for row in rows):
        return replace(result, outcome=BEYOND, relevant=True, reason="a gate of the job failed")
    if not any(row.outcome == NO_POWER and row.required for row in rows):
        return result
    if result.outcome == WITHIN:
        result = replace(result, outcome=NOT_SHOWN, reason="a required gate of the job has no power")
    return replace(result, relevant=True)


def _is_about(row: GateResult, risk: Risk, model: ModelEvidence) -> bool:
    """Return whether the result of a gate (a limit set by the job) concerns this risk and this model."""
    own = row.recipe in (None, model.recipe) and row.model in (None, model.model) and row.seed in (None, model.seed)
    return own and row.measure in risk.gates


def _unprotected_twin(model: ModelEvidence, models: Sequence[ModelEvidence]) -> ModelEvidence | None:
    """Return the last checkpoint of the model that was trained without protection in the same model section and for the
    same objective, with the same seed if there is one; None without such a model."""
    own = [m for m in models if (m.model, m.objective) == (model.model, model.objective) and m.is_plain]
    same = [m for m in own if m.seed == model.seed and m.training == model.training] or own
    return max(same, key=lambda m: m.epoch, default=None)


def _with_extraction(model: ModelEvidence, audit: AuditEvidence) -> Subject:
    """Return the model together with the extraction results (None if there are none) of the last checkpoint of its
    training."""
    found = [
        e
        for e in (audit.extraction.models if audit.extraction else ())
        if (e.model, e.recipe, e.seed, e.training) == (model.model, model.recipe, model.seed, model.training)
    ]
    return Subject(model, max(found, key=lambda e: e.epoch or 0, default=None))


def _reason_and_change(
    relevant: Sequence[RiskResult], outcome: str, model: ModelEvidence, recipe: Recipe | None
) -> tuple[str, str]:
    """Return two English texts for a verdict with this ``outcome``: why it is so, and what would change it."""
    deciding = [result for result in relevant if result.outcome == outcome]
    if not deciding:
        return "no risk was declared relevant", "name the relevant risks in [verdict] risks"
    titles = _join_names([RISKS[result.risk].title for result in deciding])
    if outcome == BEYOND:
        return f"beyond the threshold: {titles}", _join_names(
            list(dict.fromkeys(advice(result.risk, model, recipe) for result in deciding)), "; "
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
    if NOTHING_FOUND in reasons:
        change.append("ask who trained it to audit it beside an unprotected twin and shadow models, or refuse it")
    if WITHOUT_POWER in reasons:
        change.append("ask about more people: no attack finds enough in the twin")
    if WITHOUT_SHADOWS in reasons:
        section = "[audit.shadow]" if model.start is None else "[audit.heads]"
        change.append(f"attack it and its twin with at least {MIN_SHADOWS} shadow models ({section})")
    if any(reason in reasons for reason in (WIDE, UNSURE, BY_CHANCE, FEW)):
        change.append("ask about more people")
    if BESIDE_KNOWN in reasons:
        change.append("train from a base model that did not see these people")
    if NO_WHOLE_PASSAGES in reasons:
        change.append(f"ask for passages of {WHOLE_PASSAGE} tokens ([extraction] suffix_tokens)")
    if EARLIER in reasons:
        change.append("say in [[audit.explained]] why what the earlier audit found does not hold")
    if CANNOT in reasons:
        change.append("leave masked models out of the gates on passages")
    change += [f"{RISKS[r.risk].title}: {r.reason}" for r in deciding if r.reason.startswith("not measured")]
    return f"not shown: {titles} ({reasons[0]})", _join_names(change or ["a valid comparison of the two sides"], "; ")


def _join_names(names: Sequence[str], between: str = ", ") -> str:
    """Return the names joined by ``between``."""
    return between.join(names)


def with_published_numbers(table: RiskTable, unpublished: AuditEvidence, published: AuditEvidence) -> RiskTable:
    """Return the verdicts with the estimates of their deciding figures as the ``published`` audit has them; the
    verdicts were reached on the ``unpublished`` audit."""
    rows = []
    unpublished, published = _with_heads_as_models(unpublished), _with_heads_as_models(published)
    for row, numbers in zip(table.rows, _last_indices(unpublished).values(), strict=True):
        config = VerdictConfig.model_validate({result.risk: result.at_most for result in row.results})
        results = []
        for result in row.results:
            deciding = [
                number for number in numbers if _is_result_of(unpublished.models[number], result, unpublished, config)
            ]
            shown = [_with_extraction(published.models[number], published) for number in deciding]
            every = [_with_extraction(published.models[number], published) for number in numbers]
            found = _published_estimate(replace(result, what=result.found), every) if result.found else None
            results.append(replace(result, estimate=_published_estimate(result, shown), found_estimate=found))
        rows.append(replace(row, results=results))
    return replace(table, rows=rows)


def _is_result_of(training: ModelEvidence, result: RiskResult, audit: AuditEvidence, config: VerdictConfig) -> bool:
    """Return whether this training, one of several with different seeds, is the one that ``result`` stands for: it has
    the same outcome, reason and deciding figure."""
    own = _judge_risk(RISKS[result.risk], training, audit, config, audit.cell)
    same = (own.outcome, own.reason) == (result.outcome, result.reason) or result.reason == EARLIER
    return same and own.what == result.what


def _published_estimate(result: RiskResult, published: Sequence[Subject]) -> Estimate | None:
    """Return the largest published estimate, over trainings with different seeds, of the figure that decided ``result``
    (for an AUC, the one farthest from 0.5); None if every training's is withheld or a bound."""
    numbers = [n for subject in published for n in RISKS[result.risk].numbers(subject) if n.what == result.what]
    known = [
        (abs(found.value - CHANCE) if n.null == CHANCE else found.value, found)
        for n in numbers
        if (found := n.estimate) and found.value is not None and found.bound is None
    ]
    return max(known, key=lambda row: row[0])[1] if known else None


class ModelBeside(NamedTuple):
    """The numbers shown beside a model's verdict, as pairs (model, unprotected twin)."""

    model: ModelEvidence
    numbers: list[tuple[Estimate | None, Estimate | None]]


def numbers_beside(models: Sequence[ModelEvidence]) -> tuple[list[Beside], list[ModelBeside]]:
    """Return the figures of `BESIDE`, which are shown next to the verdict but decide nothing: those that any model has,
    and for each trained model their estimates for it and for its unprotected twin."""
    rows = [row for row in BESIDE if any(model.beside and row.estimate(model.beside) for model in models)]
    found = []
    for model in models if rows else ():
        if model.recipe != "base":
            pair = (model, _unprotected_twin(model, models))
            numbers = [tuple(one and one.beside and row.estimate(one.beside) for one in pair) for row in rows]
            found.append(ModelBeside(model, numbers))  # type: ignore[arg-type]
    return rows, found


def risk_lines(table: RiskTable) -> list[Marked]:
    """Return one line of text for the verdict on each model: its reason, and what would change it."""
    lines = []
    for row in table.rows:
        why = "; ".join((row.reason, *(row.notes or ())))
        text = f"{row.recipe}{f' of {row.model}' if row.model else ''}: {why}; "
        text += f"{'for how long' if row.outcome == WITHIN else 'what would change it'}: {row.change}"
        name = model_name(row.recipe, row.model)
        deciding = [Mark(name, r.risk, r.what or NOT_MEASURED, r.outcome) for r in row.results
                    if r.relevant and r.outcome == row.outcome]  # fmt: skip
        lines.append(Marked(text, *deciding, Mark(name, "all", "verdict", row.outcome)))
    return lines
