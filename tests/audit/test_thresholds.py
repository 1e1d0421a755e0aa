"""Every threshold of a verdict, at its own number, just below and just above it: a threshold that moves fails here."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from fixtures.audits import as_estimate, filled

from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
from reticent.audit.evidence.extraction import Extraction
from reticent.audit.evidence.leakage import Privacy
from reticent.audit.judgement.rows import FAIL, PASS, GateConfig
from reticent.audit.judgement.verdict import gate_outcome, verdict
from reticent.audit.membership.validity import (
    CHANCE,
    DISTINGUISHABLE,
    INVALID,
    NO_POWER,
    QUIET,
    detectable_auc,
    holds_chance,
    is_over_chance,
    with_attack_verdicts,
)
from reticent.audit.report import findings, selectors
from reticent.audit.report.findings import LOW_RETENTION, WANTED_NONMEMBERS, better_audit_sentences
from reticent.audit.report.format_estimate import percent
from reticent.audit.report.selectors import LITTLE
from reticent.audit.stats.intervals import clopper_pearson, tpr_at_fpr
from reticent.audit.texts import ENGLISH

STEP = 1e-9
AROUND = (0.5 - STEP, 0.5, 0.5 + STEP)


def estimate(value: float | None, low: float | None, high: float | None, n: int = 300) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "n": n, "unit": "individuals"}


def test_chance_is_a_half_and_the_thresholds_are_the_documented_ones() -> None:
    assert (CHANCE, LITTLE, LOW_RETENTION, WANTED_NONMEMBERS) == (0.5, 0.1, 0.4, 1000)


# ------------------------------------------------------------------------------- validity


@pytest.mark.parametrize(("low", "over"), [(0.5 - STEP, False), (0.5, False), (0.5 + STEP, True), (0.59, True)])
def test_an_interval_lies_over_chance_only_beyond_a_half(low: float, over: bool) -> None:
    auc = as_estimate(estimate(0.7, low, 0.9))
    assert is_over_chance(auc) is over
    assert not is_over_chance(replace(auc, low=None))
    assert not is_over_chance(None)
    assert selectors.is_distinguishable(filled(ModelEvidence, entry("clm", low))) is over


@pytest.mark.parametrize(
    ("low", "high", "holds"),
    [(0.4, 0.6, True), (0.5, 0.6, True), (0.4, 0.5, True), (0.5, 0.5, True), (0.5 + STEP, 0.6, False),
     (0.4, 0.5 - STEP, False)],
)  # fmt: skip
def test_a_control_holds_chance_with_its_ends(low: float, high: float, holds: bool) -> None:
    assert holds_chance(as_estimate(estimate(0.5, low, high))) is holds
    assert holds_chance(as_estimate(estimate(0.5, None, None)))


def entry(recipe: str, low: float, high: float = 0.9, **more: Any) -> dict[str, Any]:
    attack = {"auc": estimate(0.7, low, high), "num_members": 100, "num_nonmembers": 100}
    return {"model": "m", "objective": "clm", "recipe": recipe, "epoch": 4, "membership": {"loss": attack}, **more}


def verdict_on(*models: dict[str, Any]) -> str:
    return str(with_attack_verdicts([filled(ModelEvidence, one) for one in models])[-1].membership["loss"].verdict)


@pytest.mark.parametrize(
    ("control", "own", "found"),
    [*(((0.7,), (low,), found) for low, found in zip(AROUND, (QUIET, QUIET, DISTINGUISHABLE), strict=True)),
     *(((low,), (0.4, 0.6), found) for low, found in zip(AROUND, (NO_POWER, NO_POWER, QUIET), strict=True))],
)  # fmt: skip
def test_an_attack_and_its_positive_control_count_only_beyond_chance(control: Any, own: Any, found: str) -> None:
    assert verdict_on(entry("clm", *control), entry("goldfish", *own)) == found


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [(0.5, 0.9, DISTINGUISHABLE), (0.5 + STEP, 0.9, INVALID), (0.1, 0.5, DISTINGUISHABLE), (0.1, 0.5 - STEP, INVALID)],
)
def test_of_a_given_split_a_control_without_chance_in_it_shows_that_the_sides_differ(
    low: float, high: float, found: str
) -> None:
    for given, expected in ((True, found), (False, DISTINGUISHABLE)):
        more = {"epoch": 0, "split_given": given}
        base = {**entry("base", low, high), **more}
        own = {**entry("clm", 0.7), "split_given": given}
        assert verdict_on(base, own) == expected
        blind = {**entry("base", 0.4, 0.6), **more, "blind": {"auc": estimate(0.5, low, high)}}
        assert verdict_on(blind, own) == expected
        own["membership"]["loss"]["control"] = estimate(0.5, low, high)
        assert verdict_on({**entry("base", 0.4, 0.6), **more}, own) == expected


@pytest.mark.parametrize(("members", "nonmembers", "known"), [(0, 1, False), (1, 0, False), (1, 1, True), (2, 9, True)])
def test_an_area_is_detectable_with_one_individual_on_each_side(members: int, nonmembers: int, known: bool) -> None:
    assert (detectable_auc(members, nonmembers) is not None) is known
    assert detectable_auc(1, 1) == 1.0


@pytest.mark.parametrize(
    ("num", "fpr", "resolved"), [(999, 0.01, False), (1000, 0.01, True), (99, 0.1, False), (100, 0.1, True)]
)
def test_a_rate_is_given_where_ten_nonmembers_fall_under_it(num: int, fpr: float, resolved: bool) -> None:
    import numpy as np

    found = tpr_at_fpr(np.arange(5.0), np.arange(float(num)), fpr, num_bootstrap=2)
    assert (found is not None) is resolved


# ---------------------------------------------------------------------------------- gates


@pytest.mark.parametrize(
    ("value", "high", "n", "control", "outcome"),
    [
        (0.1, 0.1, 300, True, PASS),
        (0.1 + STEP, 0.2, 300, True, FAIL),
        (0.1 - STEP, 0.1, 300, True, PASS),
        (0.1 - STEP, 0.1 + STEP, 300, True, NO_POWER),
        (0.05, 0.09, 4, True, NO_POWER),
        (0.5, 0.9, 4, True, NO_POWER),
        (0.05, 0.09, 5, True, PASS),
        (0.5, 0.9, 5, True, FAIL),
        (0.05, 0.09, 300, False, NO_POWER),
        (0.05, 0.09, 300, None, NO_POWER),
        (0.1 + STEP, 0.2, 300, False, FAIL),  # what is seen needs no control
        (0.1 + STEP, 0.2, 300, None, FAIL),
        (0.0, clopper_pearson(0, 29, one_sided=True)[1], 300, True, PASS),
        (0.0, clopper_pearson(0, 28, one_sided=True)[1], 300, True, NO_POWER),  # a zero of too few
        (0.0, None, 300, True, NO_POWER),
        (None, None, 300, True, NO_POWER),
    ],
)
def test_a_gate_at_its_threshold(value: Any, high: Any, n: int, control: bool | None, outcome: str) -> None:
    assert gate_outcome(as_estimate(estimate(value, 0.0, high, n)), 0.1, control, small_cell=5)[0] == outcome
    assert gate_outcome(None, 0.1, control)[0] == NO_POWER


def outcome_of(measure: str, at_most: float, models: list[dict[str, Any]], *asked: dict[str, Any]) -> str | None:
    """The outcome of one gate on models, and on extraction from them."""
    found = [filled(ModelEvidence, one) for one in models]
    gates = [GateConfig(measure=measure, at_most=at_most)]
    return verdict(found, gates, filled(Extraction, {"models": list(asked)}), small_cell=5).outcome


def model(recipe: str, *, auc: Any = None, tpr: Any = None, excess: Any = None, sides: int = 100) -> dict[str, Any]:
    ends = estimate(0.0, -0.1, 0.05)
    attack = {
        "auc": auc or estimate(0.5, 0.4, 0.55), "tpr_at_fpr": {"0.01": tpr or estimate(0.01, 0.0, 0.02)},
        "num_members": sides, "num_nonmembers": 100,
    }  # fmt: skip
    return {
        "model": "m", "recipe": recipe, "epoch": 4,
        "excess": {"both": {"excess": excess or ends, "members": ends, "heldout": ends}},
        "membership": {"loss": attack},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("measure", "chance", "at_most"),
    [("membership_auc", 0.5, 0.6), ("membership_tpr", 0.01, 0.05), ("excess_leakage", 0.0, 0.1)],
)
def test_the_control_of_a_gate_must_lie_beyond_what_no_leak_gives(measure: str, chance: float, at_most: float) -> None:
    name = {"membership_auc": "auc", "membership_tpr": "tpr", "excess_leakage": "excess"}[measure]
    for low, outcome in ((chance - STEP, NO_POWER), (chance, NO_POWER), (chance + STEP, PASS)):
        plain = model("clm", **{name: estimate(0.9, low, 0.95)})
        assert outcome_of(measure, at_most, [plain, model("ppclm")]) == outcome


@pytest.mark.parametrize(("sides", "outcome"), [(4, NO_POWER), (5, PASS), (6, PASS)])
def test_the_smaller_side_of_a_gate_is_at_least_the_small_cell(sides: int, outcome: str) -> None:
    models = [model("clm", auc=estimate(0.9, 0.8, 0.95)), model("ppclm", sides=sides)]
    assert outcome_of("membership_auc", 0.6, models) == outcome


@pytest.mark.parametrize(
    ("at_least", "most", "outcome"),
    [(2.0, 3.0, PASS), (2.0 + STEP, 3.0, FAIL), (1.0, 2.0, NO_POWER), (1.0, 2.0 + STEP, PASS), (1.0, None, NO_POWER)],
)
def test_epsilon_fails_beyond_its_threshold_and_passes_where_more_could_be_shown(
    at_least: float, most: float | None, outcome: str
) -> None:
    run = {"at_least": at_least, "most": most, "num_guesses": 40}
    asked = {"model": "m", "recipe": "ppclm", "epoch": 4, "canaries": {"arms": {"protected": {"one_run": run}}}}
    assert outcome_of("epsilon", 2.0, [model("ppclm")], asked) == outcome


@pytest.mark.parametrize(("low", "outcome"), [(-STEP, NO_POWER), (0.0, NO_POWER), (STEP, PASS)])
def test_exposure_is_controlled_by_more_than_nothing(low: float, outcome: str) -> None:
    arms = {"protected": {"exposure": {"included": estimate(1.0, 0.9, 1.5)}},
            "missed": {"excess_exposure": estimate(2.0, low, 3.0)}}  # fmt: skip
    asked = {"model": "m", "recipe": "ppclm", "epoch": 4, "canaries": {"arms": arms}}
    assert outcome_of("exposure", 2.0, [model("ppclm")], asked) == outcome


# -------------------------------------------------------------------------------- findings


@pytest.mark.parametrize(("low", "leaks"), [(-STEP, False), (0.0, False), (STEP, True)])
def test_a_model_has_learned_identifiers_where_its_excess_lies_beyond_nothing(low: float, leaks: bool) -> None:
    excess = {"excess": {"both": {"excess": estimate(0.1, low, 0.2)}}}
    model = filled(ModelEvidence, {**excess, "privacy": {"both": {"num_leaked": 9}}})
    assert selectors.leaks_more(model) is leaks
    assert ("has learned about its members" in next(iter(findings._excess_sentence(model, ENGLISH)), "")) is leaks


@pytest.mark.parametrize(
    ("own", "said"),
    [((0.8, 0.9), ", not measurably fewer than clm"), ((0.7 + STEP, 0.9), ", fewer than clm"), ((0.7, 0.9), ", not m"),
     ((0.3, 0.5), ", not measurably"), ((0.3, 0.5 - STEP), ", more than clm")],
)  # fmt: skip
def test_two_models_differ_where_their_intervals_do_not_touch(own: tuple[float, float], said: str) -> None:
    def with_privacy(low: float, high: float) -> ModelEvidence:
        types = estimate((low + high) / 2, low, high)
        return filled(ModelEvidence, {"recipe": "clm", "privacy": {"both": {"types": types}}})

    other = with_privacy(0.5, 0.7 if own[0] != 0.8 else 0.8)
    assert findings._twin_comparison(with_privacy(*own), other, ENGLISH).startswith(said)


@pytest.mark.parametrize(("value", "little"), [(LITTLE - STEP, True), (LITTLE, False), (LITTLE + STEP, False)])
def test_a_model_learned_little_under_a_tenth_of_ordinary_words(value: float, little: bool) -> None:
    heldout = {"ordinary_token_accuracy": estimate(value, 0.0, 1.0)}
    assert (
        selectors.learned_little({"clm": filled(ModelEvidence, {"objective": "clm", "utility": {"heldout": heldout}})})
        is little
    )


@pytest.mark.parametrize(("heldout", "asks"), [(999, True), (1000, False), (1001, False), (None, True)])
def test_more_heldout_are_asked_for_until_one_false_alarm_in_a_hundred_is_resolved(
    heldout: int | None, asks: bool
) -> None:
    audit = {
        "corpus": {"num_individuals": {"heldout": heldout}},
        "models": [{"membership": {"loss": {}}}],
        "small_cell": 5,
    }
    assert bool(list(better_audit_sentences(filled(AuditEvidence, audit)))) is asks


@pytest.mark.parametrize(("share", "warns"), [(0.4 - STEP, True), (0.4, False), (0.4 + STEP, False)])
def test_retention_under_four_tenths_is_warned_of(share: float, warns: bool) -> None:
    corpus = {"n": 1, "k": 2, "policy": "all", "retention": {"all": share}}
    said = list(better_audit_sentences(filled(AuditEvidence, {"corpus": corpus})))
    assert bool(said) is warns


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0, "0"), (0.0999, "10.0"), (0.1, "10"), (0.994, "99"), (0.9949, "99"), (0.995, "99.5"), (1.0, "100")],
)
def test_a_share_keeps_a_digit_where_it_is_small_or_close_to_all(share: float, shown: str) -> None:
    assert percent(share) == f"{shown}\N{NO-BREAK SPACE}%"


@pytest.mark.parametrize(("low", "shown"), [(0.9, "10.0"), (0.8999, "10.1"), (math.nextafter(0.9, 0), "10.0")])
def test_the_bound_of_a_zero_is_rounded_up(low: float, shown: str) -> None:
    assert findings.at_most(filled(Privacy, {"types": estimate(1.0, low, 1.0)})) == f"{shown}\N{NO-BREAK SPACE}%"
    assert findings.at_most(filled(Privacy, {"types": estimate(1.0, None, 1.0)})) is None
