"""Estimates of a stratified sample: hand-worked cases, exact intervals as their limits, and coverage over draws."""

from __future__ import annotations

import numpy as np
import pytest
from fixtures.sampling import drawn
from scipy import stats

from reticent.audit.stats.intervals import clopper_pearson
from reticent.audit.stats.sampled import Drawn, sampled_share, sampled_total


def test_a_document_counts_as_many_as_it_stands_for() -> None:
    sample = Drawn(np.arange(3), np.array([0, 0, 1]), np.array([10, 3]))
    found, marked = np.array([1.0, 2.0, 4.0]), np.array([2.0, 2.0, 4.0])
    assert sampled_share(sample, found, marked).value == (5 * 3 + 3 * 4) / (5 * 4 + 3 * 4)
    assert sampled_total(sample, marked - found, marked).value == 5


def test_every_document_drawn_leaves_no_interval() -> None:
    sample = drawn(3, 3)
    share = sampled_share(sample, np.array([1.0, 0, 2]), np.array([1.0, 1, 2]))
    assert (share.value, share.low, share.high) == (0.75, 0.75, 0.75)
    total = sampled_total(sample, np.array([0.0, 1, 0]), np.ones(3))
    assert (total.value, total.low, total.high) == (1, 1, 1)


@pytest.mark.parametrize("misses", [0, 1, 7, 150])
def test_single_things_of_a_large_corpus_have_about_the_exact_interval(misses: int) -> None:
    marked = np.ones(300)
    found = marked - (np.arange(300) < misses)
    share = sampled_share(drawn(300, 10**9), found, marked)
    low, high = clopper_pearson(300 - misses, 300)
    assert share.value == pytest.approx((300 - misses) / 300)
    assert share.low == pytest.approx(low, abs=0.002)
    assert share.high == pytest.approx(high, abs=0.002)


@pytest.mark.parametrize("misses", [0, 1, 7])
def test_a_total_of_single_things_has_about_the_exact_interval_of_poisson(misses: int) -> None:
    counts = (np.arange(400) < misses).astype(float)
    total = sampled_total(drawn(400, 400 * 10**6), counts, np.ones(400))
    assert total.value == pytest.approx(misses * 10**6)
    assert total.high == pytest.approx(stats.chi2.ppf(0.975, 2 * misses + 2) / 2 * 10**6, rel=0.02)
    assert total.low == pytest.approx(stats.chi2.ppf(0.025, 2 * misses) / 2 * 10**6 if misses else 0, rel=0.02)


def test_no_sample_has_fewer_misses_than_were_seen() -> None:
    total = sampled_total(drawn(99, 100), np.repeat([1.0, 0], [60, 39]), np.ones(99))
    assert total.low == 60
    assert 60 < total.value < total.high < 64


def test_documents_of_one_individual_are_no_independent_evidence() -> None:
    found, marked = np.tile([1.0, 1, 1, 0], 10), np.ones(40)
    alone = sampled_share(drawn(40, 4000), found, marked)
    together = sampled_share(drawn(40, 4000, np.tile(np.arange(4), 10)), found, marked)
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert (alone.n, together.n) == (40, 4)


def test_one_individual_alone_has_no_interval_and_none_has_no_value() -> None:
    marked = np.array([5.0, 0, 0])
    share = sampled_share(drawn(3, 30), marked, marked)
    assert (share.value, share.low, share.high, share.n) == (1.0, 0.0, 1.0, 1)
    assert sampled_share(drawn(3, 30), np.zeros(3), np.zeros(3)).value is None


def test_nothing_missed_is_bounded_by_a_whole_individual_whatever_other_categories_miss() -> None:
    marked = np.full(50, 20.0)
    bounds = [sampled_total(drawn(50, 5000), np.zeros(50), marked, crowd=crowd).high for crowd in (0, 300, 10**9)]
    assert bounds[0] == bounds[1] == bounds[2]  # all twenty, each standing for a hundred
    assert bounds[0] == pytest.approx(20 * 100 * stats.chi2.ppf(0.975, 2) / 2, rel=0.03)


def test_a_share_is_never_better_known_than_by_independent_things() -> None:
    found = np.tile([1.0, 0], 30)  # each individual has one of both: no spread between them
    share = sampled_share(drawn(60, 10**6), np.ones(60), np.full(60, 2.0))
    low, high = clopper_pearson(60, 120)
    assert share.low == pytest.approx(low, abs=0.02)
    assert share.high == pytest.approx(high, abs=0.02)
    assert sampled_share(drawn(60, 10**6), found, np.ones(60)).low < share.low


@pytest.mark.parametrize(("miss", "crowded"), [(0.01, False), (0.04, False), (0.02, True), (0.3, False), (0.9, False)])
def test_intervals_hold_in_at_least_95_of_100_draws(miss: float, crowded: bool) -> None:
    """Documents of very different sizes; misses alone, or crowded in few documents."""
    random = np.random.default_rng(3)
    whole = random.negative_binomial(2, 0.1, 600).astype(float) + 1
    if crowded:
        missed = np.where(random.random(600) < 2 * miss, random.binomial(whole.astype(int), 0.5), 0)
    else:
        missed = random.binomial(whole.astype(int), miss)
    stratum = (np.argsort(np.argsort(whole)) * 3) // 600
    sizes = np.bincount(stratum)
    truth, total = 1 - missed.sum() / whole.sum(), missed.sum()
    held = np.zeros((400, 2), dtype=bool)
    for each in held:
        rows = np.concatenate([random.choice(np.flatnonzero(stratum == h), 20, replace=False) for h in range(3)])
        sample = Drawn(np.arange(60), stratum[rows], sizes)
        share = sampled_share(sample, (whole - missed)[rows], whole[rows])
        number = sampled_total(sample, missed[rows].astype(float), whole[rows])
        assert None not in (share.low, share.high, number.low, number.high)
        each[:] = share.low <= truth <= share.high, number.low <= total <= number.high  # type: ignore[operator]
    assert (held.mean(axis=0) >= 0.95).all(), held.mean(axis=0)


def test_documents_of_a_household_are_no_independent_evidence() -> None:
    """Two of one household share what is missed: intervals are those of so many households, counts of individuals."""
    random = np.random.default_rng(0)
    missed = np.repeat((random.random(30) < 0.3).astype(float), 2)
    whole, sizes, stratum = np.ones(60), np.array([6000]), np.zeros(60, dtype=np.int64)
    apart = Drawn(np.arange(60), stratum, sizes)
    together = Drawn(np.arange(60), stratum, sizes, np.arange(60) // 2)
    of_one = Drawn(np.arange(60) // 2, stratum, sizes)
    for estimate in (sampled_share, sampled_total):
        own, alike, single = (estimate(drawn, missed, whole) for drawn in (apart, together, of_one))
        assert (alike.value, alike.low, alike.high) == (single.value, single.low, single.high)
        assert (alike.n, alike.num_households, own.num_households) == (60, 30, None)
        assert alike.high - alike.low > 1.2 * (own.high - own.low)  # type: ignore[operator]
