"""The far end of a sampled share and total if few individuals hold most misses: simulated, exact and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from fixtures.drawing import share_of
from fixtures.sampling import drawn, drawn_ends
from scipy import stats

from reticent.audit.stats.intervals import clopper_pearson
from reticent.audit.stats.sampled import sampled_share, sampled_total

DRAWS = 600
#: One side of 95 %, and two standard errors of the draws.
TAIL = 0.025 + 2 * (0.025 * 0.975 / DRAWS) ** 0.5


# Individuals drawn, recall, share of individuals who hold four fifths of the misses.
@pytest.mark.parametrize(
    ("num", "recall", "few"),
    share_of(
        [(10, 0.8, 0.2), (20, 0.95, 0.05), (40, 0.95, 0.03), (60, 0.95, 0.03), (100, 0.95, 0.03), (100, 0.99, 0.02)],
        least=2,
    ),
)
def test_the_end_that_guards_misses_at_most_25_of_1000_draws_if_few_hold_most_misses(
    num: int, recall: float, few: float
) -> None:
    """Documents of unequal sizes, long ones drawn more often, of a finite corpus."""
    over = drawn_ends(np.random.default_rng(5), num, recall, f"few {few}", DRAWS)[:, :2]
    assert (over.mean(axis=0) <= TAIL).all(), over.mean(axis=0)


def test_the_far_end_worked_by_hand() -> None:
    """Four individuals of ten items, one of 40 missed; the one more has 3/4 of ten."""
    missed, whole = np.array([1.0, 0, 0, 0]), np.full(4, 10.0)
    share = sampled_share(drawn(4), whole - missed, whole)
    rate, step = 1 / 40, 0.75 * 10 / 40
    # Residuals .75, -.25 (three times), divided by 1 - 1/4 as each has a quarter of the whole; n / (n - 1) = 4/3.
    variance = (1 + 3 / 9) * (4 / 3) / 40**2 * (3.182446 / 1.959964) ** 2
    upper = (rate + step) / (1 + step)
    assert upper == pytest.approx(0.178947, abs=1e-6)
    size = upper * (1 - upper) * (1 + step) ** 2 / (variance + step**2) - 1
    assert size == pytest.approx(4.4400, abs=1e-3)
    assert share.low == pytest.approx(1 - stats.beta.ppf(0.975, upper * size, (1 - upper) * size), abs=1e-6)
    assert share.low == pytest.approx(0.4019, abs=1e-4)


@pytest.mark.parametrize("num", [5, 20, 100])
@pytest.mark.parametrize("crowd", [0.0, 3.0])
def test_nothing_missed_has_the_exact_end_over_individuals(num: int, crowd: float) -> None:
    whole = np.full(num, 10.0)
    share = sampled_share(drawn(num), whole, whole, crowd=crowd)
    assert share.high == 1
    assert share.low == pytest.approx(clopper_pearson(num, num)[0], abs=1e-6)


def test_all_missed_has_the_exact_end_on_the_other_side() -> None:
    whole = np.full(20, 10.0)
    share = sampled_share(drawn(20), np.zeros(20), whole)
    assert (share.value, share.low) == (0, 0)
    assert share.high == pytest.approx(clopper_pearson(0, 20)[1], abs=1e-6)
    total = sampled_total(drawn(20, 2000), whole, whole)
    assert total.value == 20_000
    assert total.low is not None
    assert total.high is not None
    assert 200 <= total.low < 20_000 < total.high


def test_one_individual_says_nothing_of_others() -> None:
    """One cluster: twenty documents of one individual are one piece of evidence."""
    whole = np.full(20, 10.0)
    sample = drawn(20, 2000, np.zeros(20, dtype=np.int64))
    share = sampled_share(sample, whole - 1, whole)
    assert (share.low, share.high, share.n) == (0, 1, 1)
