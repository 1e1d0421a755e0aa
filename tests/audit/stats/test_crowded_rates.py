"""The far end of a rate, and of a difference, if few individuals hold most leaks and are all elsewhere: simulated."""

from __future__ import annotations

import numpy as np
import pytest
from fixtures.drawing import share_of
from scipy import stats

from reticent.audit.stats.intervals import clopper_pearson, far_ends, ratio_difference, ratio_estimate

DRAWS = 400
#: One side of 95 %, and two standard errors of the draws.
TAIL = 0.025 + 2 * (0.025 * 0.975 / DRAWS) ** 0.5


def side(random: np.random.Generator, num: int, rate: float, few: int, uneven: bool) -> tuple[np.ndarray, np.ndarray]:
    """(leaks, items) of individuals, of whom about ``few`` hold four fifths of the leaks; ``rate`` is expected."""
    items = np.ceil(random.lognormal(1.5, 1.3, num)).clip(1, 300) if uneven else np.full(num, 10.0)
    theirs = min(0.8 * rate * num / few, 0.95)
    others = (rate - few / num * theirs) / (1 - few / num)
    leaks = random.binomial(items.astype(int), np.where(random.random(num) < few / num, theirs, others))
    return leaks.astype(float), items


# Individuals, rate of leaks, individuals who hold four fifths of them on average, unequal numbers of items.
SETTINGS = [(10, 0.1, 1, False), (30, 0.1, 2, True), (100, 0.02, 1, False), (100, 0.1, 3, True), (300, 0.003, 1, False)]


@pytest.mark.parametrize(("num", "rate", "few", "uneven"), share_of(SETTINGS, least=2))
def test_the_end_that_guards_a_rate_misses_at_most_25_of_1000_draws_if_few_hold_most_leaks(
    num: int, rate: float, few: int, uneven: bool
) -> None:
    """Without the three quarters of one more individual it misses in 12 to 25 of 100."""
    random, missed = np.random.default_rng(3), 0
    for _ in range(DRAWS):
        leaks, items = side(random, num, rate, few, uneven)
        found = ratio_estimate(leaks, items, num_bootstrap=100)
        assert found.high is not None
        missed += found.high < rate and found.value > 0  # the bound of none is one of 95 %
    assert missed / DRAWS <= TAIL


@pytest.mark.parametrize(("num", "rate", "few", "uneven"), share_of(SETTINGS[2:]))
def test_the_ends_of_a_difference_hold_if_few_hold_most_leaks(num: int, rate: float, few: int, uneven: bool) -> None:
    """Of equal rates."""
    random, missed = np.random.default_rng(4), np.zeros(2)
    for _ in range(DRAWS):
        sides = [side(random, num, rate, few, uneven) for _ in range(2)]
        found = ratio_difference(sides[0], sides[1], num_bootstrap=100)
        assert found.low is not None
        assert found.high is not None
        missed += found.low > 0, found.high < 0
    assert (missed / DRAWS <= TAIL).all(), missed


def test_the_end_that_guards_holds_for_households_too() -> None:
    """Two to a household, one of which in a hundred holds four fifths of the leaks."""
    random, missed = np.random.default_rng(5), 0
    codes = np.arange(200)
    for _ in range(DRAWS):
        leaks, items = (np.repeat(values, 2) for values in side(random, 100, 0.02, 1, False))
        found = ratio_estimate(leaks, items, codes, units=codes // 2, num_bootstrap=100)
        assert found.high is not None
        missed += found.high < 0.02
    assert missed / DRAWS <= TAIL


@pytest.mark.parametrize("hits", [1, 10, 40])
def test_the_end_of_individuals_with_one_item_each_stays_that_of_clopper_and_pearson(hits: int) -> None:
    ones = np.ones(100)
    far = far_ends(np.arange(100.0) < hits, ones)[1]
    assert far == pytest.approx(clopper_pearson(hits, 100)[1], rel=0.05)


def test_the_far_end_worked_by_hand() -> None:
    """Four individuals of ten items, one of 40 leaked; the one more leaks 3/4 of ten."""
    leaks, items = np.array([1.0, 0, 0, 0]), np.full(4, 10.0)
    # u = (1/40 + .75/4) / (1 + .75/4), v = (.75² + 3 · .25²) / 40², m = u (1 - u) (1 + .75/4)² / (v + (.75/4)²) - 1
    u, v = 0.178947, 0.00046875
    m = u * (1 - u) * 1.1875**2 / (v + 0.1875**2) - 1

    assert far_ends(leaks, items) == pytest.approx((0.025, stats.beta.ppf(0.975, u * m, (1 - u) * m)), abs=1e-5)


@pytest.mark.parametrize(("num", "spread"), [(10, 0.05), (45, 0.05), (45, 0.2), (300, 0.1)])
def test_a_rate_that_each_has_by_many_words_has_an_interval_that_holds_and_is_no_wider_than_it_must(
    num: int, spread: float
) -> None:
    """Words predicted right, .7 of them on average, by individuals who differ by a standard deviation of ``spread``."""
    random, missed, widths = np.random.default_rng(6), 0, []
    sizes = 0.7 * 0.3 / spread**2 - 1
    for _ in range(DRAWS):
        words = random.integers(50, 400, num)
        right = random.binomial(words, random.beta(0.7 * sizes, 0.3 * sizes, num)).astype(float)
        found, crowded = (
            ratio_estimate(right, words.astype(float), num_bootstrap=200, crowded=crowded) for crowded in (False, True)
        )
        low, high = found.low, found.high
        assert low is not None
        assert high is not None
        assert crowded.low is not None
        assert crowded.low <= low
        missed += not low <= 0.7 <= high
        widths.append((high - low) / (4 * (spread**2 * 1.2 / num) ** 0.5))  # of one with the spread known
    assert missed / DRAWS <= (0.05 if num > 20 else 0.1) + 2 * (0.05 * 0.95 / DRAWS) ** 0.5
    assert np.mean(widths) < (1.25 if num > 20 else 1.5)  # over ten, what they differ by is hardly known
