"""Attacks between people who are alike without the model: strata by hand, and what is left of a shifted list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fixtures.stores import make_store
from sklearn.metrics import roc_auc_score

from reticent.audit.evidence.membership import Matched, MeasuredAttack, Roc
from reticent.audit.evidence.rules import publish
from reticent.audit.leakage.words import words_of
from reticent.audit.membership.blind import BlindFeatures, blind_scores
from reticent.audit.membership.matched import NUM_STRATA, SMALLEST_SIDE, matched_area, strata_of
from reticent.audit.stats.estimate import Estimate

pytestmark = pytest.mark.usefixtures("one_thread")
DRAWS: Any = {"num_bootstrap": 200, "seed": 0}


def test_an_area_is_the_mean_of_those_within_strata_that_hold_enough_of_both_sides() -> None:
    random = np.random.default_rng(0)
    strata = random.permutation(np.repeat([0, 1, 3, -1], 60))
    member = random.random(240) < np.array([0.3, 0.6, 0.5, 0.95])[strata]
    scores = np.where(random.random(240) < 0.1, np.nan, random.normal(size=240) + member + strata)
    found = matched_area(scores, np.arange(240), member, strata, **DRAWS)
    assert found is not None
    held = [(strata == number) & ~np.isnan(scores) for number in (0, 1)]  # of the third few are no members
    sizes = np.array([(np.count_nonzero(own & member), np.count_nonzero(own & ~member)) for own in held])
    assert sizes.min() >= SMALLEST_SIDE > np.count_nonzero((strata == 3) & ~member)
    areas = [roc_auc_score(member[own], scores[own]) for own in held]
    assert found.auc.value == pytest.approx(np.average(areas, weights=sizes[:, 0]))
    assert (found.num_members, found.num_nonmembers) == tuple(sizes.sum(axis=0))
    assert (found.num_strata, found.auc.n) == (2, sizes.sum())
    assert matched_area(scores, np.arange(240), strata > 0, strata, **DRAWS) is None  # no overlap


def test_a_household_has_one_stratum_and_whoever_has_no_score_none() -> None:
    scores = np.random.default_rng(1).normal(size=300)
    codes, units = np.arange(1, 301), np.arange(302) // 2
    strata = strata_of(np.arange(302), codes, scores, units)
    assert (strata[[0, 301]] == -1).all()
    assert (strata[2:300:2] == strata[3:301:2]).all()
    assert strata.max() == 2  # of 151 households
    for num, parts in ((300, NUM_STRATA), (90, 2), (79, 0)):
        alone = strata_of(codes[:num], codes[:num], scores[:num])
        assert np.bincount(alone[alone >= 0]).tolist() == [num // parts] * parts if parts else (alone == -1).all()
        assert (np.diff(alone[np.argsort(scores[:num])]) >= 0).all()


def areas_of(shift: str, leak: float, trial: int) -> tuple[float, Estimate]:
    """The area of an attack that sees a shift of the list, and what leaked; and that between people who are alike."""
    random = np.random.default_rng(trial)
    length, speaks = random.integers(5, 40, 400), random.random(400) < 0.5
    by = (length - 22) / 8 if shift == "length" else 2.0 * (speaks - 0.5)
    member = random.random(400) < 1 / (1 + np.exp(-by))
    texts = [[*random.integers(5, 60, size), *[70 + int(word)] * 4] for size, word in zip(length, speaks, strict=True)]
    store = make_store(*[[(int(t), n, 0) for n, t in enumerate(text)] for text in texts])
    scores = by + leak * member + random.normal(size=400)
    blind = blind_scores(BlindFeatures.of(words_of(store), store.input_ids.astype(np.int64), member), trial)
    found = matched_area(scores, np.arange(400), member, strata_of(np.arange(400), *blind), **DRAWS)
    assert found is not None
    return float(roc_auc_score(member, scores)), found.auc


@pytest.mark.parametrize(("leak", "told"), [(0.0, False), (1.0, True)])
def test_what_length_alone_makes_is_not_left_and_a_leak_is(leak: float, told: bool) -> None:
    found = [areas_of("length", leak, trial) for trial in range(20)]
    assert min(raw for raw, _ in found) > 0.65
    missed = sum((area.low or 0.0) > 0.5 for _, area in found)
    assert missed == 20 if told else missed <= 4  # two of twenty, and two standard errors: strata leave a tenth


def test_of_what_words_make_most_is_not_left() -> None:
    """Which words tell a list is learned from few, so their part is matched with an error."""
    raw, alike = zip(
        *((raw, area.value) for raw, area in (areas_of("words", 0.0, trial) for trial in range(8))), strict=True
    )
    assert np.mean(raw) > 0.65
    assert 0.0 < np.mean(alike) - 0.5 < 0.4 * (np.mean(raw) - 0.5)


@pytest.mark.parametrize(
    ("members", "others", "leaves"), [(40, 40, True), (47, 40, False), (50, 50, True), (3, 40, False)]
)
def test_few_who_are_left_out_or_in_are_not_published(members: int, others: int, leaves: bool) -> None:
    auc = Estimate(value=0.7, low=0.6, high=0.8, n=100)
    found = Matched(auc=auc, num_strata=3, num_members=members, num_nonmembers=others)
    attack = MeasuredAttack(auc=auc, matched=found, roc=Roc(fpr=[], tpr=[]), num_members=50, num_nonmembers=50)
    assert (publish(attack, 5).matched == found) == leaves
