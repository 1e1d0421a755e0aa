"""Attacks with shadow models on hand-made scores: LiRA against its closed form, RMIA against loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reticent.audit.membership.shadow_attacks import (
    PRIOR_SHADOWS,
    Gaussians,
    attack_classifier_score,
    fit_gaussians,
    fit_offline_slope,
    informia_score,
    lira_offline_score,
    lira_online_score,
    lira_sequence_score,
    logit_confidence,
    offline_probability,
    online_probability,
    rmia_score,
)

NAN = math.nan


def gaussians(mean_in: float, sigma_in: float, mean_out: float, sigma_out: float) -> Gaussians:
    return Gaussians(*(np.array([x]) for x in (mean_in, sigma_in**2, mean_out, sigma_out**2)))


def random_shadows(num_shadows: int, num: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    is_in = np.zeros((num_shadows, num), dtype=bool)
    for column in range(num):
        is_in[random.permutation(num_shadows)[: num_shadows // 2], column] = True
    return random.normal(size=(num_shadows, num)) + is_in, is_in


# ----------------------------------------------------------------------------------------------------------------- LiRA


@pytest.mark.parametrize("value", [-3.0, -1.0, 0.0, 0.7, 5.0])
@pytest.mark.parametrize(("mean_in", "sigma_in", "mean_out", "sigma_out"), [(1, 1, 0, 1), (-0.5, 0.1, -2, 0.7)])
def test_lira_equals_the_closed_form(
    value: float, mean_in: float, sigma_in: float, mean_out: float, sigma_out: float
) -> None:
    fitted = gaussians(mean_in, sigma_in, mean_out, sigma_out)
    online = stats.norm.logpdf(value, mean_in, sigma_in) - stats.norm.logpdf(value, mean_out, sigma_out)
    assert lira_online_score(np.array([value]), fitted)[0] == pytest.approx(online)
    offline = lira_offline_score(np.array([value]), fitted)[0]
    assert -math.expm1(-offline) == pytest.approx(stats.norm.cdf(value, mean_out, sigma_out))


def test_the_offline_score_still_orders_where_its_probability_is_1() -> None:
    fitted = gaussians(0, 1, 0, 1)
    far = [float(lira_offline_score(np.array([value]), fitted)[0]) for value in (-30.0, 0.0, 9.0, 10.0, 1e6)]
    assert far == sorted(set(far))
    assert np.isfinite(far).all()
    assert stats.norm.cdf(9.0) == stats.norm.cdf(10.0) == 1.0  # what it is better than


@pytest.mark.parametrize("num_shadows", [4, 8, 200])
def test_gaussians_are_those_of_the_shadows_with_the_pooled_variance_mixed_in(num_shadows: int) -> None:
    values, is_in = random_shadows(num_shadows, 30, seed=num_shadows)
    fitted = fit_gaussians(zip(values, is_in, strict=True))
    sides = [values[side[:, text], text] for side in (is_in, ~is_in) for text in range(30)]
    pooled = np.mean([np.var(side, ddof=1) for side in sides])
    for chosen, mean, variance in (
        (is_in, fitted.mean_in, fitted.variance_in),
        (~is_in, fitted.mean_out, fitted.variance_out),
    ):
        columns = [values[chosen[:, text], text] for text in range(30)]
        for text, column in enumerate(columns):
            assert mean[text] == pytest.approx(column.mean())
            squares, freedom = np.var(column) * len(column), len(column) - 1
            expected = (squares + PRIOR_SHADOWS * pooled) / (freedom + PRIOR_SHADOWS)
            assert variance[text] == pytest.approx(expected)


def test_many_shadows_have_the_last_word_on_a_variance() -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(4000, 2)) * [1.0, 3.0]
    is_in = np.tile(np.arange(4000)[:, None] % 2 == 0, (1, 2))
    assert fit_gaussians(zip(values, is_in, strict=True)).variance_in == pytest.approx([1.0, 9.0], rel=0.1)


def test_the_order_of_the_shadows_does_not_matter() -> None:
    values, is_in = random_shadows(8, 50, seed=3)
    one, other = (fit_gaussians((values[k], is_in[k]) for k in order) for order in (range(8), reversed(range(8))))
    for name in Gaussians.__slots__:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12)


def test_shadows_that_do_not_differ_give_finite_scores() -> None:
    is_in = np.array([[True], [True], [False], [False]])
    fitted = fit_gaussians(zip(np.full((4, 1), -1.0), is_in, strict=True))
    assert lira_online_score(np.array([-1.0]), fitted)[0] == 0
    assert np.isfinite(lira_online_score(np.array([-2.0]), fitted)).all()
    assert np.isfinite(lira_offline_score(np.array([-2.0, 5.0]), fitted)).all()


def test_one_shadow_a_side_is_refused_as_it_has_no_spread() -> None:
    with pytest.raises(ValueError, match="expected two of them on each side"):
        fit_gaussians([(np.zeros(3), np.ones(3, dtype=bool)), (np.ones(3), np.zeros(3, dtype=bool))])


def test_no_texts_have_no_scores() -> None:
    nothing = np.empty(0)
    fitted = fit_gaussians([(nothing, nothing.astype(bool))] * 4)
    assert lira_online_score(nothing, fitted).shape == (0,)


def test_a_text_that_was_not_scored_spoils_no_other() -> None:
    values, is_in = random_shadows(8, 5, seed=1)
    alone = fit_gaussians(zip(values, is_in, strict=True))
    holed = fit_gaussians(zip(np.insert(values, 2, NAN, axis=1), np.insert(is_in, 2, is_in[:, 0], axis=1), strict=True))
    target = np.linspace(-1, 1, 5)
    scores = lira_online_score(np.insert(target, 2, NAN), holed)
    assert np.isnan(scores[2])
    assert np.delete(scores, 2) == pytest.approx(lira_online_score(target, alone))


# ------------------------------------------------------------------------------------------------------------ sequences


def test_confidence_of_a_token_is_the_logit_of_its_probability() -> None:
    p = np.array([0.01, 0.5, 0.9])
    assert logit_confidence(np.log(p)) == pytest.approx(np.log(p / (1 - p)))
    assert np.isnan(logit_confidence(np.array([NAN])))


def test_confidence_of_certain_and_of_impossible_tokens_is_finite() -> None:
    ends = logit_confidence(np.array([0.0, -1e-12, -1e4, -math.inf], dtype=np.float32))
    assert np.isfinite(ends).all()
    assert ends[0] == ends[1] > 10
    assert ends[2] == ends[3] < -10


def test_a_sequence_averages_the_log_ratios_of_its_own_scored_tokens() -> None:
    offsets = np.array([0, 3, 3, 5, 6])
    log_probs = np.array([-1.0, NAN, -0.1, -2.0, -3.0, NAN], dtype=np.float32)
    random = np.random.default_rng(0)
    fitted = Gaussians(*(random.uniform(0.5, 2, 6) for _ in range(4)))
    tokens = [
        stats.norm.logpdf(v, fitted.mean_in[t], fitted.variance_in[t] ** 0.5)
        - stats.norm.logpdf(v, fitted.mean_out[t], fitted.variance_out[t] ** 0.5)
        for t, v in enumerate(logit_confidence(log_probs))
    ]
    expected = [(tokens[0] + tokens[2]) / 2, NAN, (tokens[3] + tokens[4]) / 2, NAN]
    assert lira_sequence_score(log_probs, offsets, fitted) == pytest.approx(expected, nan_ok=True)


# ----------------------------------------------------------------------------------------------------------------- RMIA


@pytest.mark.parametrize(
    ("out", "slope", "expected"), [(0.2, 1.0, 0.2), (0.2, 0.0, 0.6), (0.2, 0.3, (1.3 * 0.2 + 0.7) / 2)]
)
def test_offline_probability_is_the_formula(out: float, slope: float, expected: float) -> None:
    assert offline_probability(np.array([out]), slope)[0] == pytest.approx(expected)


def test_online_probability_weighs_both_sides_alike() -> None:
    assert online_probability(np.array([0.4]), np.array([0.2]))[0] == pytest.approx(0.3)


@pytest.mark.parametrize("slope", [0.0, 0.4, 1.0])
def test_the_slope_is_found_again(slope: float) -> None:
    out = np.linspace(0.1, 0.6, 20)
    assert fit_offline_slope(slope * out + 1 - slope, out) == pytest.approx(slope)


probabilities = st.floats(1e-6, 1)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.tuples(probabilities, probabilities, st.booleans()), min_size=1, max_size=12),
    st.floats(0, 1),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_rmia_matches_loops(rows: list[tuple[float, float, bool]], slope: float, gamma: float) -> None:
    target, out = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    population = np.array([row[2] for row in rows])
    average = offline_probability(out, slope)
    scores = rmia_score(target, average, population, gamma=gamma)
    for x in range(len(rows)):
        wins, unsure, total = 0, 0, 0
        for z in range(len(rows)):
            if population[z]:
                ratio = (target[x] / average[x]) / (target[z] / average[z])
                total += 1
                unsure += math.isclose(ratio, gamma, rel_tol=1e-9)
                wins += ratio >= gamma and not math.isclose(ratio, gamma, rel_tol=1e-9)
        if total:
            assert wins - 1e-9 <= scores[x] * total <= wins + unsure + 1e-9
        else:
            assert np.isnan(scores[x])


def test_rmia_counts_equal_ratios() -> None:
    score = rmia_score(np.array([0.5, 0.5, 0.25]), np.full(3, 0.5), np.array([False, True, True]))
    assert score[0] == 1.0


def test_rmia_of_probabilities_of_0_is_finite() -> None:
    score = rmia_score(np.array([0.0, 0.5, 0.0]), np.array([0.5, 0.0, 0.0]), np.array([True, False, True]))
    assert np.isfinite(score).all()


def test_informia_is_the_gain_beyond_the_divergence_of_the_population() -> None:
    target, average = np.array([0.5, 0.2, 0.1, NAN, 0.0]), np.array([0.25, 0.1, 0.2, 0.5, 0.5])
    beside = np.array([False, True, True, True, False])
    divergence = -(math.log(0.2 / 0.1) + math.log(0.1 / 0.2)) / 2  # of p from p_θ, over the population's z: 0
    found = informia_score(target, average, beside)
    assert found[:3] == pytest.approx([math.log(2) + divergence, math.log(2), -math.log(2)])
    assert np.isnan(found[3])
    assert np.isfinite(found[4])
    assert np.isnan(informia_score(target, average, np.zeros(5, dtype=bool))).all()


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(probabilities, probabilities), min_size=2, max_size=12), st.floats(0, 1))
def test_informia_orders_documents_as_rmia_does(rows: list[tuple[float, float]], slope: float) -> None:
    target, out = (np.array(column) for column in zip(*rows, strict=True))
    args = target, offline_probability(out, slope), np.arange(len(rows)) % 2 == 0
    share, gain = rmia_score(*args), informia_score(*args)
    assert (np.diff(share[np.argsort(gain)]) >= 0).all()


# --------------------------------------------------------------------------------------------------------------- Shokri


def test_the_attack_classifier_tells_known_texts_from_unknown_ones() -> None:
    random = np.random.default_rng(0)
    is_in = np.arange(400) % 2 == 0
    features = random.normal(size=(400, 3)) * [1, 0.1, 5] + is_in[:, None] * [2.0, 0.0, 0.0]
    lower, higher = [-3.0, 0.0, 0.0], [3.0, 0.0, 0.0]
    (scores,) = attack_classifier_score(features, is_in, np.array([lower, higher, [NAN] * 3]))
    assert scores[1] > 1 > -1 > scores[0]
    assert np.isnan(scores[2])


def test_the_attack_classifier_does_not_mind_units_order_or_a_constant() -> None:
    random = np.random.default_rng(1)
    is_in = np.arange(100) % 2 == 0
    features = np.concatenate([random.normal(size=(100, 2)) + is_in[:, None], np.ones((100, 1))], axis=1)
    order = random.permutation(100)
    (plain,) = attack_classifier_score(features, is_in, features)
    (scaled,) = attack_classifier_score(features[order] * 1000, is_in[order], features * 1000)
    assert scaled == pytest.approx(plain, abs=1e-3)


def test_on_gaussian_scores_lira_is_the_best_test_there_is() -> None:
    """With the true Gaussians no threshold on the value itself does better than their ratio."""
    random = np.random.default_rng(0)
    difficulty = random.normal(size=400) * 5  # what hides membership from a threshold on the value
    values, is_in = random_shadows(16, 400, seed=5)
    fitted = fit_gaussians(zip(values + difficulty, is_in, strict=True))
    member = np.arange(400) < 200
    target = difficulty + random.normal(size=400) + member
    areas = {
        name: np.mean([a > b for a, b in itertools.product(score[member], score[~member])])
        for name, score in {
            "value": target,
            "online": lira_online_score(target, fitted),
            "offline": lira_offline_score(target, fitted),
        }.items()
    }
    best = stats.norm.cdf(1 / math.sqrt(2))  # of two unit Gaussians one apart
    assert areas["value"] < 0.6
    assert areas["online"] == pytest.approx(best, abs=0.08)
    assert areas["offline"] == pytest.approx(best, abs=0.08)
