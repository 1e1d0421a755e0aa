"""Rules for membership results: clustered areas, the best of many attacks, the worst group, verdicts."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from fixtures.audits import filled
from fixtures.drawing import examples
from fixtures.stores import make_store
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.audit.evidence.audit import ModelEvidence
from reticent.audit.membership.asking import ASKING_ATTACKS
from reticent.audit.membership.attacks import ATTACKS
from reticent.audit.membership.measure import subgroup_labels, worst_subgroup
from reticent.audit.membership.names import DIFFERENCES
from reticent.audit.membership.table import Need
from reticent.audit.membership.validity import (
    DISTINGUISHABLE,
    INVALID,
    NO_POWER,
    OTHER_WAY,
    QUIET,
    detectable_auc,
    with_attack_verdicts,
)
from reticent.audit.stats.intervals import auc_estimate, best_of, clustered_auc, joint_areas

# ------------------------------------------------------------------ areas of documents


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3) | st.just(math.nan)), min_size=1, max_size=14))
def test_area_of_documents_matches_the_oracle(drawn: list[tuple[int, float]]) -> None:
    individuals = np.array([who for who, _ in drawn])
    scores = np.array([score for _, score in drawn], dtype=float)
    is_member = individuals < 3
    estimate, draws = clustered_auc(scores, individuals, is_member, num_bootstrap=20)
    pairs = list(itertools.product(scores[is_member & ~np.isnan(scores)], scores[~is_member & ~np.isnan(scores)]))
    assert draws.shape == (20,)
    if not pairs:
        assert estimate.value is None
    else:
        assert estimate.value == pytest.approx(np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs]))
        assert estimate.low <= estimate.value <= estimate.high  # type: ignore[operator]


def test_interval_of_documents_is_that_of_their_individuals() -> None:
    random = np.random.default_rng(0)
    scores, individuals = random.normal(size=60), np.arange(60)
    is_member = individuals < 30
    alone, _ = clustered_auc(scores, individuals, is_member, num_bootstrap=400)
    copies, _ = clustered_auc(*(np.repeat(a, 25) for a in (scores, individuals, is_member)), num_bootstrap=400)
    for end in ("value", "low", "high"):
        assert getattr(copies, end) == pytest.approx(getattr(alone, end), abs=1e-12)
    apart, _ = clustered_auc(np.repeat(scores, 25), np.arange(1500), np.repeat(is_member, 25), num_bootstrap=400)
    assert apart.high - apart.low < 0.4 * (alone.high - alone.low)  # type: ignore[operator]


def test_draws_are_of_the_same_individuals_for_every_attack() -> None:
    random = np.random.default_rng(1)
    scores, individuals = random.normal(size=50), np.arange(50)
    _, draws = clustered_auc(scores, individuals, individuals < 25, num_bootstrap=50)
    _, again = clustered_auc(3 * scores + 1, individuals, individuals < 25, num_bootstrap=50)
    np.testing.assert_allclose(draws, again)
    _, other = clustered_auc(-scores, individuals, individuals < 25, num_bootstrap=50)
    np.testing.assert_allclose(draws + other, 1)


# ------------------------------------------------------------------ the best of several


def test_the_best_attack_may_lie_under_chance() -> None:
    is_member = np.arange(200) < 100
    random = np.random.default_rng(0)
    scores = {"weak": random.normal(size=200) + 0.5 * is_member, "strong": random.normal(size=200) - 1.5 * is_member}
    best = best_of(joint_areas(scores, np.arange(200), is_member, num_bootstrap=300))
    assert best is not None
    assert best.attack == "strong"
    assert best.auc.high < 0.3  # type: ignore[operator]


def test_picking_the_best_of_twenty_guesses_finds_nothing() -> None:
    """Of twenty attacks that guess, one looks good by itself; its corrected interval holds 0.5 in 95 % of trials."""
    individuals, is_member = np.arange(120), np.arange(120) < 60
    fooled = naive = 0
    for trial in range(40):
        random = np.random.default_rng(trial)
        scores = {f"a{k}": random.normal(size=120) for k in range(20)}
        best = best_of(joint_areas(scores, individuals, is_member, num_bootstrap=200, seed=trial))
        fooled += best.auc.low > 0.5  # type: ignore[index]
        lows = [clustered_auc(s, individuals, is_member, num_bootstrap=200)[0].low for s in scores.values()]
        naive += max(lows) > 0.5  # type: ignore[type-var,operator]
    assert fooled <= 6  # P[Bin(40, .05) > 6] is 0.3 %
    assert naive > 12


@pytest.mark.parametrize(("num_members", "num_nonmembers"), [(5, 50), (10, 10), (20, 20)])
def test_intervals_of_eight_guesses_over_few_hold_at_once(num_members: int, num_nonmembers: int) -> None:
    """Some interval left 0.5 out in 36, 18 and 10 of 100 trials."""
    num = num_members + num_nonmembers
    individuals, is_member, fooled = np.arange(num), np.arange(num) < num_members, 0
    for trial in range(120):
        random = np.random.default_rng(trial)
        both = random.normal(size=num)
        scores = {f"a{k}": both + random.normal(size=num) for k in range(8)}
        best = best_of(joint_areas(scores, individuals, is_member, num_bootstrap=200, seed=trial))
        assert best is not None
        assert best.intervals is not None
        fooled += any(low > 0.5 or high < 0.5 for low, high in best.intervals.values())
    assert fooled <= 12  # P[Bin(120, .05) > 12] is 1 %


def test_the_best_attack_is_found_and_said_of_how_many() -> None:
    random = np.random.default_rng(0)
    is_member = np.arange(200) < 100
    scores = {"weak": random.normal(size=200), "strong": random.normal(size=200) + 1.5 * is_member}
    best = best_of(joint_areas(scores, np.arange(200), is_member, num_bootstrap=300))
    assert best is not None
    assert (best.attack, best.num_attacks) == ("strong", 2)
    assert best.auc.low > 0.7
    alone = clustered_auc(scores["strong"], np.arange(200), is_member, num_bootstrap=300)[0]
    assert best.auc.value == alone.value
    assert best.auc.high - best.auc.low > alone.high - alone.low  # type: ignore[operator]
    assert best.intervals["strong"] == [best.auc.low, best.auc.high]
    assert best.intervals["weak"][0] < 0.5 < best.intervals["weak"][1]


def test_the_best_of_perfect_attacks_keeps_a_bound() -> None:
    is_member = np.arange(40) < 20
    best = best_of(
        joint_areas({"a": is_member * 1.0, "b": np.full(40, math.nan)}, np.arange(40), is_member, num_bootstrap=50)
    )
    assert best is not None
    assert (best.attack, best.auc.value, best.num_attacks) == ("a", 1.0, 1)
    assert best.auc.low == pytest.approx(0.05 ** (1 / 20))
    assert best_of(joint_areas({"b": np.full(40, math.nan)}, np.arange(40), is_member, num_bootstrap=5)) is None


def test_an_attack_that_scores_all_alike_is_not_the_best() -> None:
    is_member, individuals = np.arange(80) < 40, np.arange(80)
    scores = {"loss": 0.4 * is_member + np.random.default_rng(4).normal(size=80), "same": np.zeros(80)}
    alone = clustered_auc(scores["same"], individuals // 2, is_member, num_bootstrap=50)[0]  # two documents each
    assert (alone.value, alone.n) == (0.5, 40)
    reach = (1 - 0.025 ** (1 / 20)) / 2  # of 20 disjoint pairs all are tied
    assert (alone.low, alone.high) == pytest.approx((0.5 - reach, 0.5 + reach))
    best = best_of(joint_areas(scores, individuals, is_member, num_bootstrap=200))
    assert best is not None
    assert best.intervals is not None
    assert best.intervals["loss"][0] < 0.5
    low, high = best.intervals["same"]
    assert low == pytest.approx(1 - high)
    assert high > 0.5 + (1 - 0.025 ** (1 / 40)) / 2, "of two attacks the interval is wider"
    assert best.attack == "loss"


def test_one_individual_on_a_side_makes_no_attack_the_best() -> None:
    is_member = np.arange(41) < 40
    scores = {"a": np.arange(41.0)[::-1], "b": np.random.default_rng(0).normal(size=41)}
    scores["a"][[38, 40]] = scores["a"][
        [40, 38]
    ]  # an area of 0.95, and the one held-out individual is the same in every draw
    best = best_of(joint_areas(scores, np.arange(41), is_member, num_bootstrap=100))
    assert best is not None
    assert (best.auc.low, best.auc.high) == (0.0, 1.0)


# ------------------------------------------------------------------ groups of people


def test_the_worst_group_is_found_where_the_average_is_quiet() -> None:
    random = np.random.default_rng(3)
    is_member, labels = np.arange(300) % 2 == 0, np.repeat(["long", "middle", "short"], 100)
    scores = random.normal(size=300) + 2.0 * is_member * (labels == "long")
    worst = worst_subgroup(scores, is_member, {"length": labels}, num_bootstrap=300)
    assert worst is not None
    assert (worst.group, worst.num_groups) == ("long", 3)
    assert worst.auc.low > 0.75
    assert worst.auc.level == pytest.approx(1 - 0.05 / 3)


def test_groups_of_few_people_are_not_measured() -> None:
    is_member = np.arange(40) % 2 == 0
    labels = np.where(np.arange(40) < 18, "few", "many")
    assert worst_subgroup(np.arange(40.0), is_member, {"x": labels}, num_bootstrap=9).num_groups == 1  # type: ignore[index]
    assert worst_subgroup(np.full(40, math.nan), is_member, {"x": labels}, num_bootstrap=9) is None


def test_people_are_grouped_by_documents_length_and_columns() -> None:
    token = (5, 0, 0)
    store = make_store(*([token] * n for n in (1, 1, 9, 9, 5, 5)), individual=[0, 0, 1, 2, 3, 3])
    groups = subgroup_labels(store, {"ward": np.array(["a", "b", "b", "a"]), "site": np.array(["x"] * 4)})
    assert sorted(groups) == ["documents", "length", "ward"]  # a site that all share parts nobody
    assert groups["ward"].tolist() == ["ward a", "ward b", "ward b", "ward a"]
    assert len(set(groups["documents"][[1, 2]])) == 1
    assert groups["documents"][0] == groups["documents"][3] != groups["documents"][1]
    assert groups["length"].tolist() == ["shortest", "shortest", "shortest", "longest"]


# ------------------------------------------------------------------ verdicts


def entry(recipe: str, low: float, high: float, *, epoch: int = 4, **more: Any) -> dict[str, Any]:
    auc = {"value": (low + high) / 2, "low": low, "high": high, "n": 200}
    attacks = {"loss": {"auc": auc, "num_members": 100, "num_nonmembers": 100}}
    return {"model": "m", "objective": "clm", "recipe": recipe, "epoch": epoch, "membership": attacks, **more}


def blind(low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"blind": {"auc": {"value": (low + high) / 2, "low": low, "high": high}, **more}}


def on(models: list[dict[str, Any]]) -> list[ModelEvidence]:
    return with_attack_verdicts([filled(ModelEvidence, one) for one in models])


BASE = entry("base", 0.45, 0.55, epoch=0, **blind(0.4, 0.6))


GIVEN = {"split_given": True}
TWIN = entry("clm", 0.7, 0.9)


@pytest.mark.parametrize(
    ("others", "more", "verdict", "why"),
    [
        ([BASE, TWIN], {}, QUIET, "succeeds on the unprotected"),
        ([BASE, entry("clm", 0.45, 0.9)], {}, NO_POWER,
         "unprotected model either; over so many people an area of 0.61"),
        ([BASE], {}, NO_POWER, "no unprotected model"),
        ([BASE, entry("clm", 0.1, 0.3)], {}, QUIET, "succeeds on the unprotected"),
        # A split that reticent drew: what the base model or words tell is chance.
        ([entry("base", 0.45, 0.55, **blind(0.51, 0.6)), TWIN], {}, QUIET, "succeeds"),
        ([entry("base", 0.52, 0.58, **blind(0.4, 0.6)), TWIN], {}, QUIET, "succeeds"),
        ([entry("base", 0.42, 0.48, **blind(0.4, 0.6)), TWIN], {}, QUIET, "succeeds"),
        # One that was given: either side shows that the two differ.
        ([BASE | GIVEN, TWIN], GIVEN, QUIET, "succeeds"),
        ([entry("base", 0.45, 0.55, **blind(0.51, 0.6), **GIVEN), TWIN], GIVEN, INVALID, "by words alone"),
        ([entry("base", 0.45, 0.55, **blind(0.4, 0.49), **GIVEN), TWIN], GIVEN, INVALID, "by words alone"),
        ([entry("base", 0.45, 0.55, **blind(0.4, 0.49, by="length"), **GIVEN), TWIN], GIVEN, INVALID, "by length"),
        ([entry("base", 0.52, 0.58, **blind(0.4, 0.6), **GIVEN), TWIN], GIVEN, INVALID, "base model"),
        ([entry("base", 0.42, 0.48, **blind(0.4, 0.6), **GIVEN), TWIN], GIVEN, INVALID, "base model"),
    ],
)  # fmt: skip
def test_a_quiet_attack_is_judged_by_its_controls(
    others: list[dict[str, Any]], more: dict[str, Any], verdict: str, why: str
) -> None:
    found = on([*others, entry("goldfish", 0.44, 0.56, **more)])[-1].membership["loss"]
    assert found.verdict == verdict
    assert why in str(found.why)


@pytest.mark.parametrize(
    ("ends", "over_base", "verdict"),
    [
        ((0.7, 0.9), None, DISTINGUISHABLE),
        ((0.21, 0.37), None, OTHER_WAY),
        ((0.45, 0.55), (0.6, 0.8), DISTINGUISHABLE),
        ((0.45, 0.55), (0.2, 0.4), OTHER_WAY),
        ((0.45, 0.55), (0.4, 0.6), QUIET),
    ],
)
def test_an_attack_tells_members_on_either_side_by_itself_or_over_its_control(
    ends: tuple[float, float], over_base: tuple[float, float] | None, verdict: str
) -> None:
    model = entry("ppclm", *ends)
    if over_base:
        low, high = over_base
        model["membership"]["loss"]["over_base"] = {"value": (low + high) / 2, "low": low, "high": high, "n": 200}
    base, _, measured = on([BASE, TWIN, model])
    assert base.membership["loss"].verdict == QUIET
    assert measured.membership["loss"].verdict == verdict


@pytest.mark.parametrize("over_base", [None, (0.502, 0.618)])
def test_an_attack_tells_the_sides_of_a_given_list_only_by_ends_that_hold_for_all_attacks_at_once(
    over_base: tuple[float, float] | None,
) -> None:
    model = entry("given", *((0.45, 0.55) if over_base else (0.502, 0.618)))
    if over_base:
        model["membership"]["loss"]["over_base"] = {"value": 0.56, "low": over_base[0], "high": over_base[1], "n": 200}
    verdicts = [on([BASE | GIVEN, model | more])[1].membership["loss"].verdict for more in ({}, GIVEN)]
    assert verdicts == [DISTINGUISHABLE, NO_POWER]
    best = {"attack": "loss", "num_attacks": 2, "auc": {"value": 0.8, "low": 0.7, "high": 0.9, "n": 200}}
    ends = {"intervals": {"loss": [0.49, 0.9]}}
    found = on([BASE | GIVEN, entry("given", 0.7, 0.9, **GIVEN, best_attack=best | ends)])[1]
    assert found.membership["loss"].verdict == NO_POWER


def test_an_attack_with_shadow_models_needs_no_sides_that_are_alike() -> None:
    model = entry("clm", 0.7, 0.9, **GIVEN)
    model["membership"]["rmia"] = model["membership"]["loss"] | {"num_shadows": 8}
    found = on([entry("base", 0.4, 0.6, **blind(0.6, 0.7), **GIVEN), model])[1].membership
    assert (found["loss"].verdict, found["rmia"].verdict) == (INVALID, DISTINGUISHABLE)


def test_what_differs_in_a_given_split_is_said_of_kinds_of_words_too() -> None:
    kinds = {"rare": {"share": 0.1, "attacks": {"loss": {"auc": {"value": 0.7, "low": 0.6, "high": 0.8, "n": 200}}}}}
    base = entry("base", 0.45, 0.55, **blind(0.4, 0.6), **GIVEN, by_kind=kinds)
    (_, own), (_, drawn) = (on([base, entry("clm", 0.7, 0.9, by_kind=kinds, split_given=given)])
                            for given in (True, False))  # fmt: skip
    assert "base model" in str(own.by_kind["rare"].why)  # type: ignore[index]
    assert drawn.by_kind["rare"].why is None  # type: ignore[index]


@pytest.mark.parametrize(("p_value", "given", "is_fault"), [(0.0005, False, True), (0.02, False, False),
                                                            (0.0005, True, False)])  # fmt: skip
def test_a_blind_baseline_that_chance_hardly_gives_is_a_fault_of_the_run(
    p_value: float, given: bool, is_fault: bool
) -> None:
    base = entry("base", 0.45, 0.55, **blind(0.7, 0.8, p_value=p_value, by="dates"), split_given=given)
    fault = on([base, TWIN])[1].fault
    assert (fault == "dates alone tell the two sides, which one run in a thousand does by chance") is is_fault


def test_a_difference_to_the_base_says_that_it_has_no_control() -> None:
    model = entry("ppclm", 0.45, 0.55)
    model["membership"] = dict.fromkeys(("loss", "reference"), model["membership"]["loss"])
    found = on([BASE, TWIN, model])[2].membership
    assert "no control" in str(found["reference"].why)
    assert "no control" not in str(found["loss"].why)
    rows = {**ATTACKS, **ASKING_ATTACKS}
    assert {name for name, row in rows.items() if Need.BASE in row.needs} == DIFFERENCES


def test_controls_are_those_of_the_same_section_and_epoch() -> None:
    other = {**entry("clm", 0.7, 0.9), "model": "other"}
    early = entry("clm", 0.45, 0.55, epoch=1)
    models = on([BASE, other, early, entry("clm", 0.7, 0.9, epoch=4), entry("p", 0.4, 0.6, epoch=1)])
    assert models[-1].membership["loss"].verdict == NO_POWER


def test_an_attack_on_nobody_has_no_power() -> None:
    nobody = entry("p", 0.4, 0.6)
    nobody["membership"]["loss"]["auc"] = {"value": None, "low": None, "high": None}
    assert on([BASE, nobody])[1].membership["loss"].verdict == NO_POWER
    assert detectable_auc(0, 10) is None


def test_detectable_area_is_found_four_times_in_five() -> None:
    """Scores of two normal distributions that far apart, tested as the rules do."""
    n = 150
    area = detectable_auc(n, n)
    assert area is not None
    from scipy.stats import norm

    shift = math.sqrt(2) * norm.ppf(area)
    found = 0
    for trial in range(100):
        random = np.random.default_rng(trial)
        estimate = auc_estimate(random.normal(shift, 1, n), random.normal(0, 1, n), num_bootstrap=200, seed=trial)
        found += estimate.low > 0.5  # type: ignore[operator]
    assert 68 <= found <= 92
