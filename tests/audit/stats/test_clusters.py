"""Intervals over households: they cover the truth where a household's members are alike, and nothing changes else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from reticent.audit.leakage.leakage import _measure_calls
from reticent.audit.membership.attacks import attack
from reticent.audit.stats.estimate import Estimate
from reticent.audit.stats.intervals import (
    Bootstrap,
    auc_estimate,
    best_of,
    bootstrap_of,
    clustered_auc,
    joint_areas,
    ratio_difference,
    ratio_estimate,
    ratio_estimates,
    tpr_at_fpr,
    two_sides,
)

NUM_HOUSEHOLDS = 40  # of two on each side
CODES = np.arange(4 * NUM_HOUSEHOLDS)
UNITS = CODES // 2
IS_MEMBER = CODES < 2 * NUM_HOUSEHOLDS
#: Area of members whose scores are one standard deviation higher.
AREA = 0.7602
TRIALS = 150


def shared(values: np.ndarray) -> np.ndarray:
    """One value a household, for both of its members."""
    return np.repeat(values, 2)


def scores_of(random: np.random.Generator) -> np.ndarray:
    return shared(random.standard_normal(2 * NUM_HOUSEHOLDS)) + IS_MEMBER


def rate_of(random: np.random.Generator, bootstrap: Bootstrap) -> Estimate:
    hits = shared(random.random(2 * NUM_HOUSEHOLDS) < 0.3)
    return ratio_estimate(hits, np.ones(len(hits)), CODES, **bootstrap)


def difference_of(random: np.random.Generator, bootstrap: Bootstrap) -> Estimate:
    hits = shared(random.random(2 * NUM_HOUSEHOLDS) < np.where(IS_MEMBER[::2], 0.5, 0.2))
    return two_sides(hits, CODES, IS_MEMBER, limit=1.0, **bootstrap).excess


def area_of(random: np.random.Generator, bootstrap: Bootstrap) -> Estimate:
    scores = scores_of(random)
    codes = CODES[IS_MEMBER], CODES[~IS_MEMBER]
    return auc_estimate(scores[codes[0]], scores[codes[1]], codes, **bootstrap)


def area_of_documents(random: np.random.Generator, bootstrap: Bootstrap) -> Estimate:
    return clustered_auc(scores_of(random), CODES, IS_MEMBER, **bootstrap)[0]


def best_area(random: np.random.Generator, bootstrap: Bootstrap) -> Estimate:
    found = best_of(joint_areas({"loss": scores_of(random)}, CODES, IS_MEMBER, **bootstrap))
    assert found is not None
    return found.auc


def found_at_tenth(random: np.random.Generator, bootstrap: Bootstrap) -> Estimate:
    """Of members 0.3 score above every held-out individual, so that the threshold has no error of its own."""
    scores = shared(np.where(IS_MEMBER[::2], 1.5 * (random.random(2 * NUM_HOUSEHOLDS) < 0.3), 1.0))
    codes = CODES[IS_MEMBER], CODES[~IS_MEMBER]
    found = tpr_at_fpr(scores[codes[0]], scores[codes[1]], 0.25, codes, **bootstrap)
    assert found is not None
    return found


def recall_of_calls(random: np.random.Generator, bootstrap: Bootstrap) -> Estimate:
    called = shared(random.random(2 * NUM_HOUSEHOLDS) < 0.3)
    return _measure_calls(called, IS_MEMBER, CODES, **bootstrap).recall


MEASURES: list[tuple[Callable[[np.random.Generator, Bootstrap], Estimate], float]] = [
    (rate_of, 0.3),
    (difference_of, 0.3),
    (area_of, AREA),
    (area_of_documents, AREA),
    (best_area, AREA),
    (found_at_tenth, 0.3),
    (recall_of_calls, 0.3),
]


def coverage(
    measured: Callable[[np.random.Generator, Bootstrap], Estimate], truth: float, units: np.ndarray | None
) -> float:
    covered = 0
    for seed in range(TRIALS):
        found = measured(np.random.default_rng(seed), bootstrap_of(150, seed, units))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    return covered / TRIALS


@pytest.mark.parametrize(("measured", "truth"), MEASURES, ids=lambda value: getattr(value, "__name__", ""))
def test_an_interval_covers_the_truth_where_households_of_two_share_their_outcomes(
    measured: Callable[[np.random.Generator, Bootstrap], Estimate], truth: float
) -> None:
    assert coverage(measured, truth, UNITS) >= 0.92


def test_intervals_over_individuals_of_such_households_are_too_narrow() -> None:
    """Else the test above shows nothing."""
    assert coverage(area_of, AREA, None) < 0.88


def test_an_estimate_over_households_counts_both() -> None:
    bootstrap = bootstrap_of(100, 0, UNITS)
    found = rate_of(np.random.default_rng(0), bootstrap)
    assert (found.n, found.num_households, found.unit) == (160, 80, "individuals")
    assert found.method == "bootstrap over households"
    both = attack(scores_of(np.random.default_rng(0)), CODES, IS_MEMBER, **bootstrap)
    assert both.documents is not None
    assert [(e.n, e.num_households) for e in (both.auc, both.documents.auc)] == [(160, 80), (160, 80)]
    excess = difference_of(np.random.default_rng(0), bootstrap)
    assert (excess.n, excess.num_households) == (160, 80)


def test_households_of_one_change_nothing() -> None:
    alone, none = bootstrap_of(100, 3, CODES[::-1]), bootstrap_of(100, 3, None)
    assert alone == none == {"num_bootstrap": 100, "seed": 3}
    random = np.random.default_rng(0)
    tops = (random.random((3, 60)) < 0.4).astype(float)
    codes, units = np.arange(60), np.arange(60)
    one, other = (
        ratio_estimates(tops, np.ones((3, 60)), codes, num_bootstrap=100, seed=3, units=own) for own in (None, units)
    )
    np.testing.assert_array_equal(one[1], other[1])
    renamed = [replace(e, num_households=None, method=e.method.replace("households", "individuals")) for e in other[0]]
    assert renamed == one[0]


def test_a_zero_is_bounded_by_the_number_of_households() -> None:
    """Forty individuals of twenty households: as much is known as of twenty."""
    codes, nobody = np.arange(40), np.zeros(40)
    alone = ratio_estimate(nobody[:20], np.ones(20))
    together = ratio_estimate(nobody, np.ones(40), codes, units=codes // 2)
    assert (together.low, together.high, together.n, together.num_households) == (0.0, alone.high, 40, 20)
    apart = auc_estimate(np.ones(40), nobody, (codes, codes + 40), units=np.arange(80) // 2)
    assert (apart.low, apart.high) == tuple(
        getattr(auc_estimate(np.ones(20), nobody[:20]), end) for end in ("low", "high")
    )


def test_no_true_positive_rate_at_a_rate_that_households_cannot_resolve() -> None:
    scores, codes = np.arange(100.0), np.arange(100)
    sides = codes, codes + 100
    assert tpr_at_fpr(scores, scores, 0.1, sides) is not None
    assert tpr_at_fpr(scores, scores, 0.1, sides, units=np.arange(200) // 2) is None


def test_an_interval_over_households_needs_to_know_whose_its_rows_are() -> None:
    units, rows = np.array([0, 0, 1]), np.ones(3)
    with pytest.raises(TypeError, match="individual of each row"):
        ratio_estimate(rows, rows, units=units)
    with pytest.raises(TypeError, match="individual of each row"):
        ratio_difference((rows, rows), (rows, rows), units=units)
    with pytest.raises(TypeError, match="individual of each row"):
        auc_estimate(rows, rows, units=units)


def test_a_published_bound_counts_households_too() -> None:
    """Of 100 members in 50 households fewer than five are found: the bound's interval is that of 50."""
    found = Estimate(value=0.02, low=0.0, high=0.05, n=200, num_households=100).as_share(100, 5)
    alone = Estimate(value=0.02, low=0.0, high=0.05, n=100).as_share(50, 5)
    assert found.high is not None
    assert found.high > 0.05
    assert alone.high is not None
    few = Estimate(value=0.5, low=0.1, high=0.9, n=8, num_households=4)
    assert few.withhold_small_counts(few, 5).value is None
    assert few.withhold_small_counts(few, 5).num_households is None
    assert few.withhold_small_counts(few, 4) == few
