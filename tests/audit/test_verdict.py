"""Gates: they pass by bounds, fail by estimates, and say where nothing could be seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fixtures.audits import filled

from reticent.audit.evidence.audit import ModelEvidence
from reticent.audit.evidence.extraction import Extraction, Verdict
from reticent.audit.judgement.rows import FAIL, NO_HEAD, PASS, GateConfig
from reticent.audit.judgement.verdict import verdict, verdict_lines
from reticent.audit.membership.names import STATES
from reticent.audit.membership.validity import INVALID, NO_POWER, WITHOUT_COPIES
from reticent.audit.report.page import extraction_html


def estimate(value: float | None, low: float | None = None, high: float | None = None, n: int = 300) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "n": n, "unit": "individuals"}


def model(recipe: str, epoch: int, auc: dict[str, Any], excess: dict[str, Any], **more: Any) -> dict[str, Any]:
    sides = {"members": estimate(0.1), "heldout": estimate(0.1)}
    attack = {"auc": auc, "tpr_at_fpr": {"0.01": None}, "num_members": 150, "num_nonmembers": 150}
    return {
        "model": "m", "recipe": recipe, "epoch": epoch, "excess": {"both": {"excess": excess, **sides}},
        "membership": {"loss": attack}, **more,
    }  # fmt: skip


def evidence(plain_auc: dict[str, Any]) -> dict[str, Any]:
    return {
        "models": [
            model("base", 0, estimate(0.5, 0.4, 0.6), estimate(0.0, -0.1, 0.1)),
            model("clm", 4, plain_auc, estimate(0.2, 0.1, 0.3)),
            model("ppclm", 2, estimate(0.9, 0.8, 0.95), estimate(0.3, 0.2, 0.4)),  # not the last checkpoint
            model("ppclm", 4, estimate(0.52, 0.47, 0.57), estimate(0.01, -0.01, 0.03)),
        ]
    }


def gate(measure: str, at_most: float, **more: Any) -> GateConfig:
    return GateConfig(measure=measure, at_most=at_most, **more)


def judged(found: dict[str, Any], gates: list[GateConfig]) -> Verdict:
    """The verdict on evidence that says only what gates look at."""
    models = [filled(ModelEvidence, one) for one in found["models"]]
    return verdict(models, gates, filled(Extraction, found["extraction"]) if "extraction" in found else None)


def outcome(found: Verdict) -> tuple[str | None, bool | None]:
    return found.outcome, found.failed


STRONG, WEAK = estimate(0.8, 0.7, 0.9), estimate(0.5, 0.4, 0.6)


def test_a_gate_is_about_the_last_checkpoint_of_what_protects() -> None:
    found = judged(evidence(STRONG), [gate("membership_auc", 0.6), gate("excess_leakage", 0.05)])
    assert outcome(found) == (PASS, False)
    assert [(row.recipe, row.epoch, row.n) for row in found.results] == [("ppclm", 4, 300)] * 2
    assert outcome(judged(evidence(STRONG), [gate("excess_leakage", 0.005)])) == (FAIL, True)


def test_an_unprotected_model_of_no_seed_is_the_control_of_every_seed() -> None:
    models = [{**one, "seed": None if one["recipe"] == "clm" else 7} for one in evidence(STRONG)["models"]]
    assert outcome(judged({"models": models}, [gate("membership_auc", 0.6)])) == (PASS, False)


def test_an_attack_without_power_against_the_plain_model_passes_nothing() -> None:
    assert outcome(judged(evidence(WEAK), [gate("membership_auc", 0.6)])) == (NO_POWER, False)
    assert outcome(judged(evidence(WEAK), [gate("membership_auc", 0.6, required=True)])) == (
        NO_POWER,
        True,
    )
    assert outcome(judged(evidence(WEAK), [gate("membership_auc", 0.51)])) == (FAIL, True)


def test_an_area_below_chance_is_judged_as_far_as_one_above() -> None:
    """Of .25, whatever the twin says, and without one; and of .48 where the twin says that members lie below chance."""
    low = estimate(0.25, 0.15, 0.35)
    found = evidence(STRONG)
    found["models"][-1]["membership"]["loss"]["auc"] = low
    for twin in (STRONG, estimate(0.2, 0.1, 0.3), WEAK):
        found["models"][1]["membership"]["loss"]["auc"] = twin
        assert outcome(judged(found, [gate("membership_auc", 0.6)])) == (FAIL, True)
    del found["models"][1]
    (row,) = judged(found, [gate("membership_auc", 0.6)]).results
    assert (row.outcome, row.upper) == (FAIL, pytest.approx(0.75 + 0.11436, abs=1e-4))
    found = evidence(estimate(0.2, 0.1, 0.3))
    found["models"][-1]["membership"]["loss"]["auc"] = estimate(0.48, 0.43, 0.53)
    (row,) = judged(found, [gate("membership_auc", 0.6)]).results
    assert (row.outcome, row.upper) == (PASS, pytest.approx(0.57))


@pytest.mark.parametrize(("at_most", "of_fault"), [(0.6, NO_POWER), (0.51, FAIL)])
def test_an_attack_on_sides_that_differ_judges_no_gate_and_one_of_a_faulty_run_passes_none(
    at_most: float, of_fault: str
) -> None:
    found = evidence(STRONG)
    found["models"][-1]["membership"]["loss"] |= {"verdict": INVALID, "why": "words alone do it"}
    (row,) = judged(found, [gate("membership_auc", at_most)]).results
    assert (row.outcome, row.reason) == (NO_POWER, "the two sides differ without the model: words alone do it")
    found = evidence(STRONG)
    found["models"][-1]["fault"] = "words alone do it"
    (row,) = judged(found, [gate("membership_auc", at_most)]).results
    assert row.outcome == of_fault
    assert (row.reason == "a fault of the run: words alone do it") is (of_fault == NO_POWER)


@pytest.mark.parametrize(("name", "outcome"), [("loss", NO_POWER), (STATES, FAIL)])
def test_a_gate_judges_nothing_that_a_head_predicts_which_was_drawn(name: str, outcome: str) -> None:
    found = evidence(STRONG)
    for one in found["models"]:
        one["membership"] = {name: one["membership"]["loss"]}
    found["models"][-1]["num_drawn"] = 6
    (row,) = judged(found, [gate("membership_auc", 0.51, attack=name)]).results
    assert row.outcome == outcome
    assert (row.reason == NO_HEAD) is (outcome == NO_POWER)


def test_a_gate_judges_the_area_without_near_copies_too() -> None:
    """And the number of those left out does not follow from its row if they are few."""
    for left_out in (3, 40):
        found = evidence(STRONG)
        for one in found["models"]:
            attack = one["membership"]["loss"]
            attack["auc_without_copies"] = {**attack["auc"], "n": attack["auc"]["n"] - left_out}
        protected = found["models"][-1]["membership"]["loss"]
        protected["auc_without_copies"] = estimate(0.7, 0.65, 0.75, 300 - left_out)
        over_all, without = judged(found, [gate("membership_auc", 0.6)]).results
        assert [(row.outcome, row.part) for row in (over_all, without)] == [(PASS, None), (FAIL, WITHOUT_COPIES)]
        assert (without.upper, without.n) == ((None, 300) if left_out == 3 else (0.75, 260))


def test_a_comparison_with_too_few_on_one_side_has_no_power_and_gives_no_bound() -> None:
    found = evidence(STRONG)
    sides = {"members": estimate(0.01, 0.0, 0.03, n=297), "heldout": estimate(0.0, 0.0, 0.6, n=3)}
    found["models"][-1]["excess"]["both"] |= sides
    found["models"][-1]["membership"]["loss"] |= {"num_members": 297, "num_nonmembers": 3}
    gates = [gate("membership_auc", 0.6), gate("membership_auc", 0.1), gate("excess_leakage", 0.05)]
    rows = judged(found, gates).results
    assert [(row.outcome, row.n, row.upper) for row in rows] == [(NO_POWER, 3, None)] * 3
    found["models"][-1]["membership"]["loss"] |= {"num_members": 295, "num_nonmembers": 5}
    assert outcome(judged(found, [gate("membership_auc", 0.6)])) == (PASS, False)


def test_a_rate_that_too_few_people_can_resolve_has_no_power_and_says_n() -> None:
    found = judged(evidence(STRONG), [gate("membership_tpr", 0.05)])
    assert outcome(found) == (NO_POWER, False)
    assert found.results[0].n == 0
    assert all("n = " in line for line in verdict_lines(found))


def test_the_plain_model_can_be_gated_when_named() -> None:
    found = judged(evidence(STRONG), [gate("membership_auc", 0.6, recipes=["clm"])])
    assert outcome(found) == (FAIL, True)
    assert verdict_lines(found) == [
        "fail: membership AUC (loss) at most 0.6 - clm of m, upper bound 0.9, n = 300: "
        "the estimate is beyond the threshold"
    ]


def test_a_gate_about_nothing_has_no_power() -> None:
    assert outcome(judged({"models": []}, [gate("excess_leakage", 0.1)])) == (NO_POWER, False)
    assert outcome(judged(evidence(STRONG), [])) == (None, False)


@pytest.mark.parametrize("recipes", [None, ["ppclm", "dp-clm"]])
def test_a_model_that_the_gates_attack_left_out_does_not_pass_in_silence(recipes: list[str] | None) -> None:
    found = evidence(STRONG)
    found["models"].append(model("dp-clm", 4, STRONG, estimate(0.0, -0.1, 0.1)))
    for other in found["models"][1:-1]:
        other["membership"]["rmia"] = other["membership"]["loss"]
    result = judged(found, [gate("membership_auc", 0.6, attack="rmia", recipes=recipes)])
    rows = [(row.recipe, row.attack, row.outcome) for row in result.results]
    assert rows == [("ppclm", "rmia", PASS), ("dp-clm", "rmia", NO_POWER)]
    assert result.outcome == NO_POWER
    assert "rmia" in verdict_lines(result)[1]


def canaries(at_least: float, most: float, missed_low: float, protected: dict[str, Any]) -> dict[str, Any]:
    arms = {
        "protected": {"exposure": {"included": protected}, "excess_exposure": estimate(0.0, -1.0, 1.0),
                      "one_run": {"at_least": at_least, "most": most, "num_guesses": 40}},
        "missed": {"exposure": {"included": estimate(8.0, 8.0, 8.0)},
                   "excess_exposure": estimate(6.0, missed_low, 7.0)},
    }  # fmt: skip
    entry = {"model": "m", "recipe": "ppclm", "epoch": 4, "canaries": {"arms": arms}, "passages": None}
    return {**evidence(STRONG), "extraction": {"models": [entry]}}


@pytest.mark.parametrize(
    ("at_least", "most", "expected"), [(0.0, 3.0, PASS), (2.5, 3.0, FAIL), (0.0, 1.5, NO_POWER), (1.9, 3.0, PASS)]
)
def test_epsilon_passes_only_where_it_could_have_failed(at_least: float, most: float, expected: str) -> None:
    found = judged(canaries(at_least, most, 5.0, estimate(1.4, 1.0, 1.8)), [gate("epsilon", 2.0)])
    assert outcome(found)[0] == expected
    assert found.results[0].unit == "guesses"
    row = found.results[0]
    assert (row.upper, row.at_least) == (None, at_least), "a lower bound is not shown as an upper one"
    assert (
        f"of all that carries one canary (protected) at most 2 - ppclm of m, at least {at_least:.3g}, n = 40"
        in (verdict_lines(found)[0])
    )
    assert "upper bound" not in verdict_lines(found)[0]
    reasons = {
        PASS: "from above nothing is bounded",
        FAIL: "beyond the threshold",
        NO_POWER: "so few guesses could not",
    }
    assert reasons[expected] in str(row.reason)
    page = extraction_html(None, replace(found, fixed_before_training=True), 5)
    assert f"<td>–<small>at least {at_least:.2f}</small></td>" in page


@pytest.mark.parametrize(("num_references", "bits"), [(2, "0.14"), (8, "0.95"), (256, "1.42"), (4096, "1.44")])
def test_the_page_says_the_bits_of_a_secret_that_is_not_there_among_so_many(num_references: int, bits: str) -> None:
    own = {"num_references": num_references, "most_exposure": 1.0, "arms": {}}
    found = filled(Extraction, {"models": [{"recipe": "ppclm", "canaries": own}], "has_canaries": True})
    assert f"1.0 is the most, and a secret that is not there has {bits}" in extraction_html(found, None, 5)
