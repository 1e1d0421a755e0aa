"""Guarantees of DP-SGD: epsilon against a second accountant and golden numbers, and when there is none."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from reticent.core.errors import PolicyError
from reticent.trainer.privacy import (
    Guarantee,
    PrivacyConfig,
    cost_of,
    default_delta,
    epsilon_of,
    plan_privacy,
    unaccounted_steps,
)
from reticent.trainer.recipes import get_recipe
from reticent.trainer.verify import _guarantee_faults

pytest.importorskip("opacus")


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta", "epsilon", "tolerance"),
    [
        (0.01, 1.0, 1000, 1e-6, 2.125, 0.012),  # PLD's value; PRV is above it by at most its error of 0.01
        (0.0051, 0.8, 4000, 1e-6, 3.383, 0.022),
        (1.0, 1.0, 1, 1e-5, 4.377178, 0.011),  # the Gaussian mechanism itself
        (1.0, 2.0, 1, 1e-5, 1.993091, 0.011),
    ],
)
def test_epsilon_is_a_bound_close_to_the_golden_numbers(
    rate: float, sigma: float, steps: int, delta: float, epsilon: float, tolerance: float
) -> None:
    assert epsilon <= epsilon_of(rate, sigma, steps, delta) <= epsilon + tolerance


@pytest.mark.parametrize(("rate", "sigma", "steps", "delta"), [(0.2, 5.0, 20, 1e-3), (0.02, 0.9, 250, 1e-5)])
def test_epsilon_agrees_with_dp_accountings_pld(rate: float, sigma: float, steps: int, delta: float) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import pld_privacy_accountant

    other = pld_privacy_accountant.PLDAccountant()
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    other.compose(dp_accounting.SelfComposedDpEvent(event, steps))
    expected = other.get_epsilon(delta)
    assert expected - 0.002 <= epsilon_of(rate, sigma, steps, delta) <= expected + 0.02


def test_rdp_accountant_gives_the_golden_number() -> None:
    assert epsilon_of(0.04, 1.5, 2250, 1e-5, "rdp") == pytest.approx(7.329111, rel=1e-3)


@pytest.mark.corpus
def test_renyi_divergences_equal_the_golden_file(data: Path) -> None:
    from opacus.accountants.analysis import rdp

    golden = json.loads((data / "golden_metrics" / "dp_accounting_golden.json").read_text())
    case = golden["cases"][0]
    orders = [order for order in case["orders"] if order != "inf"]
    expected = [value for value in case["rdp"] if value != "inf"]
    found = rdp.compute_rdp(
        q=case["sampling_probability"], noise_multiplier=case["noise_multiplier"], steps=case["count"], orders=orders
    )
    assert len(orders) == 5
    # Of order 1.5 the file has an upper bound (interpolated), the others are exact.
    assert found[1:] == pytest.approx(expected[1:], rel=case["rtol"])
    assert 0.95 * expected[0] <= found[0] <= expected[0]


@pytest.mark.parametrize("sigma", [0.15, 0.1, 0.05, 0.02, 1e-3, 1e-6, 1e-12])
def test_little_noise_has_an_epsilon_of_rdp_at_once(sigma: float) -> None:
    cost_of(0.08, 0.13, 24, 1e-3)  # imports
    cost_of.cache_clear()
    started = time.process_time()
    epsilon, accountant = cost_of(0.08, sigma, 24, 1e-3)
    assert time.process_time() - started < 1.0
    assert accountant == "rdp"
    rho = 24 / 2 / sigma**2
    assert 50 < epsilon <= (rho + 2 * math.sqrt(rho * math.log(1e3))) * (1 + 1e-12) < math.inf
    plan = plan_privacy(PrivacyConfig(noise_multiplier=sigma, sample_rate=0.08, target_delta=1e-3), 50, 2, 4)
    assert (plan.accountant, plan.guarantee.epsilon) == ("rdp", epsilon_of(0.08, sigma, plan.num_steps, 1e-3))
    assert "protects nobody" in plan.guarantee.protects_nobody


@pytest.mark.parametrize(
    ("epsilon", "delta", "size"),
    [(0.001, 1e-7, 10**6), (1.0, 1e-15, 50), (500.0, 1e-3, 50), (5000.0, 1e-3, 50)],
)
def test_noise_for_targets_that_prv_does_not_reach_is_found_by_rdp(epsilon: float, delta: float, size: int) -> None:
    plan = plan_privacy(PrivacyConfig(target_epsilon=epsilon, target_delta=delta), size, 2, size * 2 // 25)
    assert plan.guarantee.epsilon is not None
    assert 0.98 * epsilon - 0.01 <= plan.guarantee.epsilon <= epsilon


def test_an_epsilon_of_use_is_said_without_a_warning() -> None:
    assert not Guarantee(epsilon=20.0, delta=1e-5, unit="record").protects_nobody
    assert not Guarantee(epsilon=None, delta=1e-5, unit="record").protects_nobody


def test_no_step_costs_nothing_and_no_noise_everything() -> None:
    assert epsilon_of(0.1, 1.0, 0, 1e-5) == 0
    assert epsilon_of(0.1, 0.0, 1, 1e-5) == math.inf


@pytest.mark.heavy
@pytest.mark.parametrize("target", [1.0, 8.0])
def test_noise_for_a_target_reaches_it_and_hardly_more(target: float) -> None:
    plan = plan_privacy(PrivacyConfig(target_epsilon=target, target_delta=1e-5), 1000, 2, 100)
    assert (plan.sample_rate, plan.num_steps) == (0.1, 20)
    assert plan.guarantee.epsilon is not None
    assert target - 0.02 <= plan.guarantee.epsilon <= target
    half = plan.after(10).epsilon
    assert half is not None
    assert half < plan.guarantee.epsilon


@pytest.mark.parametrize(
    ("guarantee", "said"),
    [
        (
            Guarantee(epsilon=7.9912, delta=1e-5, unit="individual", max_documents=4),
            "epsilon 8.00 at delta 1e-5 per individual (at most 4 documents each)",
        ),
        (Guarantee(epsilon=1.0, delta=2.5e-4, unit="record"), "epsilon 1.00 at delta 2.5e-4 per record"),
        (Guarantee(epsilon=1.0, delta=1.0001e-5, unit="record"), "epsilon 1.00 at delta 1.01e-5 per record"),
        (Guarantee(epsilon=1.0, delta=9.991e-5, unit="record"), "epsilon 1.00 at delta 1e-4 per record"),
        (Guarantee(epsilon=1.0, delta=10.0**-7, unit="record"), "epsilon 1.00 at delta 1e-7 per record"),
        (Guarantee(epsilon=1.0, delta=sum([1e-5] * 6), unit="record"), "epsilon 1.00 at delta 6e-5 per record"),
        (Guarantee(epsilon=math.inf, delta=1e-5, unit="record"), "epsilon infinite at delta 1e-5 per record"),
        (
            Guarantee(epsilon=None, delta=1e-5, unit="record", unaccounted=("deduplication",)),
            "no epsilon (per record): not accounted: deduplication",
        ),
    ],
)
def test_unit_stands_beside_every_epsilon_which_is_never_rounded_down(guarantee: Guarantee, said: str) -> None:
    assert str(guarantee) == said


@pytest.mark.parametrize(
    ("said", "is_right"), [("1.24e-5", True), ("1.23e-5", True), ("1.25e-5", False), ("1.2e-5", False)]
)
def test_a_ledger_of_before_delta_was_rounded_up_holds(said: str, is_right: bool) -> None:
    plan = plan_privacy(PrivacyConfig(noise_multiplier=1.0, target_delta=1.231e-5, sample_rate=0.1), 100, 1, 10)
    ledger = {**plan.to_dict(), "steps": plan.num_steps}
    ledger["guarantee"] = str(ledger["guarantee"]).replace("1.24e-5", said)
    assert (_guarantee_faults(ledger) == []) == is_right


@pytest.mark.parametrize(
    ("num_units", "delta"), [(1, 0.1), (9, 0.01), (10, 0.01), (11, 0.001), (1000, 1e-4), (1001, 1e-5)]
)
def test_default_delta_is_a_power_of_ten_at_most_a_tenth_of_one_over_units(num_units: int, delta: float) -> None:
    assert default_delta(num_units) == pytest.approx(delta, rel=1e-12)
    assert delta * num_units <= 0.1 + 1e-12


@pytest.mark.parametrize("delta", [0.01, 0.5])
def test_delta_that_lets_one_of_them_be_published_is_refused(delta: float) -> None:
    with pytest.raises(PolicyError, match="not below 1 / 100 individuals"):
        plan_privacy(PrivacyConfig(noise_multiplier=1.0, target_delta=delta), 100, 1, 10)


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("dp-clm", ()),
        ("clm", ()),
        ("ppmlm", ("the choice of protected words",)),
        ("dppclm", ("the choice of protected words",)),
        ("ippclm", ("the choice of protected words",)),
        ("mlma", ("the choice of replaced words",)),
        ("dp-clm-public", ()),
        ("private-mlm", ()),
    ],
)
def test_steps_that_look_at_all_documents_are_named(recipe: str, said: tuple[str, ...]) -> None:
    assert unaccounted_steps(get_recipe(recipe)) == said


def test_deduplication_and_dp_give_no_epsilon() -> None:
    config = PrivacyConfig(noise_multiplier=1.0, unaccounted=("deduplication",))
    plan = plan_privacy(config, 100, 1, 10)
    assert plan.guarantee.epsilon is None
    assert plan.after(3).epsilon is None
    assert "deduplication" in str(plan.guarantee)
    with pytest.raises(PolicyError, match="no epsilon can be promised"):
        plan_privacy(PrivacyConfig(target_epsilon=8.0, unaccounted=("deduplication",)), 100, 1, 10)


@pytest.mark.parametrize("accountant", ["prv", "rdp"])
def test_a_vocabulary_is_one_more_gaussian_mechanism_and_its_floor_is_of_delta(accountant: str) -> None:
    alone = cost_of(0.1, 1.0, 0, 1.5e-5, accountant, (1.0, 0.5e-5))[0]
    assert 4.377178 <= alone <= 4.4 if accountant == "prv" else alone == cost_of(1.0, 1.0, 1, 1e-5, "rdp")[0]
    steps, both = (
        cost_of(0.1, 1.0, 20, 1e-5, accountant)[0],
        cost_of(0.1, 1.0, 20, 1.5e-5, accountant, (1.0, 0.5e-5))[0],
    )
    assert max(alone, steps) < both < alone + steps
    # Twice the Gaussian mechanism of noise 1 is once that of 1 / sqrt(2).
    twice = cost_of(1.0, 1.0, 1, 1e-5, accountant, (1.0, 0.0))[0]
    assert twice == pytest.approx(cost_of(1.0, 0.5**0.5, 1, 1e-5, accountant)[0], abs=0.02)
    assert cost_of(0.1, 1.0, 20, 1e-5, accountant, (1.0, 1e-5))[0] == math.inf


def test_the_total_is_of_vocabulary_and_training_and_one_that_leaves_nothing_is_refused() -> None:
    config = PrivacyConfig(target_epsilon=8.0, target_delta=1e-5, vocabulary=(1.0, 0.5e-5), sample_rate=0.1)
    plan = plan_privacy(config, 1000, 2, 100)
    assert plan.guarantee.epsilon is not None
    assert 7.97 <= plan.guarantee.epsilon <= 8.0
    assert plan.noise_multiplier > plan_privacy(config.replace(vocabulary=None), 1000, 2, 100).noise_multiplier
    assert plan.after(0).epsilon == epsilon_of(0.1, 1.0, 0, 1e-5, "prv", (1.0, 0.5e-5))  # before a step it is spent
    assert plan.to_dict()["vocabulary"] == [1.0, 0.5e-5]
    with pytest.raises(PolicyError, match=r"4 at delta 1e-5 leaves nothing .* vocabulary alone spends 4\.5\d"):
        plan_privacy(config.replace(target_epsilon=4.0), 1000, 2, 100)


def test_a_declared_number_of_units_decides_all_that_follows_from_one() -> None:
    config = PrivacyConfig(noise_multiplier=1.0, num_units=1000)
    plans = [plan_privacy(config, num, 2, 100) for num in (900, 1000, 1100)]
    assert plans[0] == plans[1] == plans[2]
    assert (plans[0].sample_rate, plans[0].num_steps, plans[0].expected_units, plans[0].guarantee.delta) == (
        0.1, 20, 100.0, 1e-4,
    )  # fmt: skip


def test_a_sample_rate_that_asks_for_days_of_steps_is_refused_before_any_noise_is_sought() -> None:
    slow = PrivacyConfig(target_epsilon=8.0, sample_rate=1e-9)
    with pytest.raises(PolicyError, match=r"1e-09 makes 3,000,000,000 steps, 1e-07 individuals expected in each"):
        plan_privacy(slow, 100, 3, 10)
    rate = PrivacyConfig(noise_multiplier=1.0, sample_rate=1e-6)
    assert plan_privacy(rate, 100, 1, 10).num_steps == 1_000_000


def test_missing_opacus_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent.trainer.privacy.find_spec", lambda name: None)
    with pytest.raises(PolicyError, match=r"reticent\[dp\]"):
        plan_privacy(PrivacyConfig(noise_multiplier=1.0), 100, 1, 10)
