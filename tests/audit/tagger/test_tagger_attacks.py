"""The attacks' arithmetic on scores worked by hand, ties included; the expected rank two ways."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score

from reticent.engine.randomness import generator
from reticent.ext.tagger.attacks import (
    PAIRWISE,
    auc_of_scores,
    average_precision,
    average_precision_draws,
    best_threshold,
    blind_scores,
    coin_wins,
    expected_rank,
    expected_rank_exact,
    mean_estimate,
    nd_as_zero,
    random_list_accuracy,
    wins,
)
from reticent.ext.tagger.prompts import PROMPTS
from reticent.ext.tagger.result import evaluate_attack
from reticent.ext.tagger.sets import FEATURES, AttackSet

#: Three prompts, five pairs; a column is a pair: (positive, negative) in each prompt.
#:            A1: votes 2-1   1-2 votes    tie: 1-1, draw   all equal     equal maxima
PAIRS = [
    [(0.9, 0.1), (0.9, 0.1), (0.8, 0.6), (0.5, 0.5), (0.9, 0.2)],
    [(0.8, 0.2), (0.2, 0.3), (0.6, 0.8), (0.5, 0.5), (0.1, 0.9)],
    [(0.1, 0.9), (0.2, 0.3), (0.7, 0.7), (0.5, 0.5), (0.3, 0.5)],
]
SCORES = np.array(PAIRS).transpose(0, 2, 1)
#: Means: .6 > .4; .433 > .233; .7 = .7; =; .433 < .533. Maxima: .9 = .9 (so by the mean); .9 > .3; .8 = .8 (tie); =;
#: .9 = .9 (so by the mean).
BY_HAND = {
    "majority": [1.0, 0.0, 0.5, 0.5, 0.0],
    "mean": [1.0, 1.0, 0.5, 0.5, 0.0],
    "maximum": [1.0, 1.0, 0.5, 0.5, 0.0],
}


@pytest.mark.parametrize("name", PAIRWISE)
def test_strategies_on_pairs_worked_by_hand(name: str) -> None:
    assert PAIRWISE[name](SCORES).tolist() == BY_HAND[name]


@pytest.mark.parametrize("name", PAIRWISE)
def test_a_strict_tie_is_lost(name: str) -> None:
    expected = [0.0 if won == 0.5 else won for won in BY_HAND[name]]
    assert PAIRWISE[name](SCORES, strict=True).tolist() == expected


def test_a_strict_tie_of_a_prompt_is_a_vote_for_the_negative() -> None:
    # Eq. 3.2: Kp counts the prompts that the positive wins, Kn is all others.
    scores = np.array([[[0.9], [0.1]], [[0.5], [0.5]]])
    assert PAIRWISE["majority"](scores).tolist() == [1.0]  # 1.5 votes to 0.5
    assert PAIRWISE["majority"](scores, strict=True).tolist() == [0.0]  # 1 to 1: not more


def test_nd_ranks_below_every_score() -> None:
    scores = nd_as_zero(np.array([np.nan, 1e-9, 0.5]))
    assert np.argsort(scores).tolist() == [0, 1, 2]
    assert wins(scores[:1], scores[:1]).tolist() == [0.5]  # two names without a tag tie


#: (members, heldout, AP worked by hand)
PRECISIONS = [
    ([0.9, 0.8], [0.2, 0.1], 1.0),
    ([0.2, 0.1], [0.9, 0.8], (1 / 3 + 2 / 4) / 2),
    ([0.9, 0.4], [0.6, 0.1], (1 / 1 + 2 / 3) / 2),
    # All equal: one step, at which 2 of 4 are members.
    ([0.5, 0.5], [0.5, 0.5], 0.5),
    # 0.9; then one step of two, one of them a member: recall 1/2 more at precision 2/3.
    ([0.9, 0.5], [0.5, 0.1], 1 / 2 * 1 + 1 / 2 * 2 / 3),
]


@pytest.mark.parametrize(("members", "heldout", "expected"), PRECISIONS)
def test_average_precision_worked_by_hand(members: list[float], heldout: list[float], expected: float) -> None:
    assert average_precision(np.array(members), np.array(heldout)) == pytest.approx(expected)


sides = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9]), min_size=n, max_size=n)] * 2)
)


@given(sides)
def test_average_precision_matches_scikit_learn(drawn: tuple[list[float], list[float]]) -> None:
    members, heldout = map(np.array, drawn)
    labels = np.repeat([1, 0], len(members))
    assert average_precision(members, heldout) == pytest.approx(
        average_precision_score(labels, np.concatenate([members, heldout]))
    )


@given(sides)
def test_expected_rank_is_the_mean_rank_of_a_member(drawn: tuple[list[float], list[float]]) -> None:
    members, heldout = map(np.array, drawn)
    n = len(members)
    ranks = stats.rankdata(-np.concatenate([members, heldout]))  # ties: the middle rank
    assert expected_rank_exact(auc_of_scores(members, heldout), n, n) == pytest.approx(ranks[:n].mean())


def test_expected_rank_worked_by_hand() -> None:
    # Ranking: 0.9 member, 0.6 held-out, 0.4 member, 0.1 held-out: members stand at 1 and 3.
    members, heldout = np.array([0.9, 0.4]), np.array([0.6, 0.1])
    assert auc_of_scores(members, heldout) == 0.75
    assert expected_rank_exact(0.75, 2, 2) == 2.0
    # Eq. 3.6 with the accuracy of the pairs, 0.9 > 0.6 and 0.4 > 0.1: all right.
    assert expected_rank(1.0, 2, 2) == 1.0


#: Tables 4.1 and 4.2 (true positives of 826) and the expected ranks of 4.5 and 4.6.
PUBLISHED = {
    "base": ([575, 579, 597, 596, 580, 588, 566, 579, 583], [664, 661, 642, 643, 660, 652, 674, 661, 656]),
    "large": ([584, 557, 562, 574, 557, 560, 565, 567, 552], [655, 677, 677, 666, 683, 679, 675, 673, 687]),
}


def test_expected_rank_of_the_published_accuracies() -> None:
    apart = {
        (model, row): published - round(expected_rank(hits / 826, 826, 826))
        for model, (table, ranks) in PUBLISHED.items()
        for row, (hits, published) in enumerate(zip(table, ranks, strict=True), start=1)
    }
    # The published ones are as computed or 1 higher; the second of the large model is another row's.
    assert {key: value for key, value in apart.items() if value not in (0, 1)} == {("large", 2): -5}


def test_best_threshold_gains_most() -> None:
    assert best_threshold(np.array([0.9, 0.8, 0.3]), np.array([0.7, 0.2, 0.1])) == 0.3  # 3/3 - 1/3
    assert best_threshold(np.array([0.9, 0.8, 0.3]), np.array([0.7, 0.6, 0.5])) == 0.8  # 2/3 - 0


def test_coins_and_random_lists_are_near_half_and_repeatable() -> None:
    assert abs(coin_wins(4000, 3).mean() - 0.5) < 0.03
    assert coin_wins(10, 3).tolist() == coin_wins(10, 3).tolist()
    # Tables 4.7 and 4.9 have 0.497 and 0.498; how their lists were ordered is not known.
    assert [round(random_list_accuracy(2 * n), 3) for n in (826, 827)] == [0.498, 0.497]
    assert random_list_accuracy(1652) == random_list_accuracy(1652)


def test_the_blind_baseline_finds_what_features_tell_and_only_that() -> None:
    random = generator(0, 0)
    noise = random.normal(size=(2, 200, 3))
    assert abs(wins(*blind_scores(noise)).mean() - 0.5) < 0.12
    told = noise.copy()
    told[0, :, 1] += 3
    assert wins(*blind_scores(told)).mean() > 0.95
    assert blind_scores(noise[:, :3]).tolist() == [[0.0] * 3] * 2  # too few to learn from


def test_intervals_cover_and_never_close_on_a_bound() -> None:
    random = generator(1, 0)
    covered = 0
    for seed in range(100):
        estimate = mean_estimate((random.random(60) < 0.6).astype(float), seed=seed, unit="pairs")
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= 0.6 <= estimate.high
    assert covered >= 87
    every = mean_estimate(np.ones(59), unit="pairs")
    assert (every.value, every.high) == (1.0, 1.0)
    assert every.low == pytest.approx(1 - 0.04951, abs=1e-5)  # Clopper-Pearson, 0 of 59
    assert mean_estimate(np.ones(59), low=-1.0, unit="pairs").low == pytest.approx(1 - 2 * 0.04951, abs=1e-4)
    assert mean_estimate(np.empty(0), unit="pairs").value is None


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_an_interval_does_not_change_with_the_order_of_the_pairs(seed: int) -> None:
    values = generator(seed, 0).random(40).round(1)
    shuffled = generator(seed, 1).permutation(values)
    assert mean_estimate(values, unit="pairs") == mean_estimate(shuffled, unit="pairs")


def test_draws_of_average_precision_surround_it() -> None:
    random = generator(2, 0)
    members, heldout = random.normal(0.5, 1, 200), random.normal(0, 1, 200)
    draws = average_precision_draws(members, heldout, num_bootstrap=500, seed=0)
    low, high = np.quantile(draws, [0.025, 0.975])
    assert draws.shape == (500,)
    assert low < average_precision(members, heldout) < high
    assert 0.03 < high - low < 0.2


def test_a_rule_from_the_names_that_is_below_chance_has_no_invented_interval() -> None:
    random, num = np.random.default_rng(1), 120
    scores = random.random((len(PROMPTS), 2, num)) + np.array([0.3, 0.0])[:, None]
    found = evaluate_attack(
        scores,
        AttackSet(
            positives=tuple(f"a{number} b" for number in range(num)),
            negatives=tuple(f"c{number} d" for number in range(num)),
            occurrences=np.ones(num, dtype=np.int64),
            is_dev=np.arange(num) < num // 2,
            features=random.normal(size=(2, num, len(FEATURES))),
            counts={},
        ),
        PROMPTS,
        num_bootstrap=100,
    )
    assert (found.test.blind.accuracy.value or 1) < 0.5
    advantage = found.verified.blind_advantage
    assert (advantage.value, advantage.low, advantage.high) == (0.0, None, None)
    assert "without the model, give no advantage over chance; the tagger adds" in found.reading[1]


def test_a_tagger_that_scores_all_names_alike_has_an_interval_on_both_sides_of_chance() -> None:
    num = 40
    found = evaluate_attack(
        np.full((len(PROMPTS), 2, num), 0.5),
        AttackSet(
            positives=tuple(f"a{number} b" for number in range(num)),
            negatives=tuple(f"c{number} d" for number in range(num)),
            occurrences=np.ones(num, dtype=np.int64),
            is_dev=np.arange(num) < num // 2,
            features=np.zeros((2, num, len(FEATURES))),
            counts={},
        ),
        PROMPTS,
        num_bootstrap=50,
    )
    precision = found.test.list.map
    assert precision.value == 0.5
    bound = 1 - 0.05 ** (1 / 20)  # of 20 pairs: what none of them shows may still be in so many
    assert (precision.low, precision.high) == (pytest.approx(0.5 - bound / 2), pytest.approx(0.5 + bound / 2))
    accuracy = found.verified.accuracy
    assert (accuracy.low, accuracy.high) == (precision.low, precision.high)
