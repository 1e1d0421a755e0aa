"""Membership by kind of word: worked by hand, and on shadows that know rare words and no others, or the reverse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from fixtures.stores import Token, make_store

from reticent.audit.membership.kinds import KindAudit, d_primes, exposed_d_primes, tpr_of_all_turns
from reticent.audit.membership.shadow_attacks import fit_gaussians
from reticent.audit.stats.intervals import Bootstrap, auc_estimate
from reticent.engine.schema import DIRECT, INDIRECT

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS: Bootstrap = {"num_bootstrap": 100, "seed": 0}
#: A document: two ordinary tokens, one of an indirect identifier, one of a name, one of a name that is rare too.
DOCUMENT: list[Token] = [(5, 0, 0), (6, 1, 0), (7, 2, INDIRECT), (8, 3, DIRECT), (9, 4, DIRECT | INDIRECT)]
NUM = 60


@pytest.fixture(scope="module")
def audit() -> KindAudit:
    return KindAudit(make_store(*[DOCUMENT] * NUM), np.arange(NUM) % 2 == 0, OPTIONS)


def shadows(lifted: tuple[int, ...], by: float, *, num: int = 8) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Shadows in pairs that predict the tokens ``lifted`` of the documents they know better by so many deviations."""
    random = np.random.default_rng(3)
    for number in range(num):
        half = np.random.default_rng(number // 2).permutation(NUM) < NUM // 2
        known = half if number % 2 == 0 else ~half
        yield scored(random, known, lifted, by), known


def scored(random: np.random.Generator, known: np.ndarray, lifted: tuple[int, ...], by: float) -> np.ndarray:
    log_probs = -3 + 0.1 * random.standard_normal((NUM, len(DOCUMENT)))
    log_probs[np.ix_(known, list(lifted))] += 0.1 * by
    return log_probs.ravel().astype(np.float32)


def test_tokens_are_dealt_to_kinds_by_their_flags(audit: KindAudit) -> None:
    found = {name: mask[: len(DOCUMENT)].tolist() for name, mask in audit.masks(DIRECT)}
    assert found == {
        "all": [True] * 5,
        "ordinary": [True, True, False, False, False],
        "rare": [False, False, True, False, False],
        "direct": [False, False, False, True, True],
        "targets": [True, True, True, False, False],
    }
    assert [name for name, _ in audit.masks(0)] == ["all", "ordinary", "rare", "direct"]


def test_a_number_is_the_mean_over_documents_of_the_mean_of_the_kind() -> None:
    store = make_store(DOCUMENT, DOCUMENT[:2], [(5, 0, 0)], individual=[0, 0, 1])
    audit = KindAudit(store, np.array([True, True, False]), OPTIONS)
    masks = dict(audit.masks(0))
    log_probs = np.array([-1, -3, -8, -8, -8, -5, np.nan, -4], dtype=np.float32)
    ordinary, rare = (
        audit.aggregate_to_individuals(audit.document_log_probs(log_probs, masks[kind]))
        for kind in ("ordinary", "rare")
    )
    assert ordinary.tolist() == [-3.5, -4.0]  # of -2 and -5
    assert rare[0] == -8
    assert np.isnan(rare[1])


def test_d_prime_by_hand() -> None:
    """Individual 0: 2 and 4 known, 0 and 2 not, a gap of 2; the squares around four means sum to 8 over 4 degrees of
    freedom, so s is the root of 2. Individual 1 has no gap.
    """
    numbers = np.array([[2.0, 1.0], [4.0, 3.0], [0.0, 1.0], [2.0, 3.0]])
    is_in = np.array([[True, True], [True, True], [False, False], [False, False]])
    assert d_primes(numbers, is_in).tolist() == pytest.approx([2 / 2**0.5, 0.0])


def test_counterfactual_memorisation_is_the_mean_in_less_the_mean_out(audit: KindAudit) -> None:
    """Two of five tokens gain half a nat: a fifth of a nat a token. Of a few who gain more, the tenth gains as much."""
    known = audit.shadows(shadows((0, 2), 5.0), 0)
    every, exposed = audit.counterfactual(known)
    by_hand = [
        np.mean([known.numbers[0, s, i] for s in range(8) if known.is_in[s, i]])
        - np.mean([known.numbers[0, s, i] for s in range(8) if not known.is_in[s, i]])
        for i in range(NUM)
    ]
    assert every.value == pytest.approx(np.mean(by_hand)) == pytest.approx(0.2, abs=0.02)
    assert (every.low, every.n) != (None, 0)
    assert exposed is not None
    assert exposed.value == pytest.approx(0.2, abs=0.05)
    lifted = np.where(known.is_in & (np.arange(NUM) < 6), 1.0, 0.0)
    more = replace(known, numbers=known.numbers + lifted)
    assert audit.counterfactual(more)[1].value == pytest.approx(1.2, abs=0.1)  # type: ignore[union-attr]
    nothing, _ = audit.counterfactual(audit.shadows(shadows((0, 2), 0.0), 0))
    assert nothing.value == pytest.approx(0, abs=0.02)


def test_every_shadow_is_a_target_of_the_rate_at_one_false_alarm_in_a_thousand() -> None:
    """By loops over pairs: eight shadows of other scales and places, of whom one in ten members stands out."""
    random, num, num_shadows = np.random.default_rng(0), 2600, 8
    is_in = np.array([random.permutation(num) < num // 2 for _ in range(num_shadows)])
    scores = random.normal(size=is_in.shape)
    exposed = is_in & (random.random(is_in.shape) < 0.1)
    scores = (scores + 9 * exposed) * np.arange(1, num_shadows + 1)[:, None] + 100 * np.arange(num_shadows)[:, None]
    scores[0, 5] = np.nan
    found = tpr_of_all_turns(scores, is_in, np.arange(num), num_bootstrap=100, seed=0)
    pairs = []
    for row, known in zip(scores, is_in, strict=True):
        low, middle, high = np.quantile(row[~known & ~np.isnan(row)], [0.25, 0.5, 0.75])
        pairs += [((s - middle) / (high - low), k) for s, k in zip(row, known, strict=True) if not np.isnan(s)]
    others = sorted((s for s, known in pairs if not known), reverse=True)
    threshold = others[int(0.001 * len(others))]
    members = [s for s, known in pairs if known]
    assert found is not None
    assert found.value == pytest.approx(sum(s > threshold for s in members) / len(members))
    assert found.low < 0.1 < found.high  # type: ignore[operator]
    assert found.high - found.low < 0.03  # type: ignore[operator]
    few = np.arange(num) < 2400  # 8 times 1,200 non-members are fewer than 10,000
    assert tpr_of_all_turns(scores[:, few], is_in[:, few], np.arange(2400), num_bootstrap=100, seed=0) is None
    tied = np.zeros_like(scores)
    assert tpr_of_all_turns(tied, is_in, np.arange(num), num_bootstrap=100, seed=0).value == 0  # type: ignore[union-attr]


def mean_exposed(numbers: np.ndarray, is_in: np.ndarray) -> float:
    _, totals, times = exposed_d_primes(numbers, is_in)
    return float(totals.sum() / times.sum())


def test_the_most_exposed_are_chosen_by_other_shadows_than_they_are_measured_by() -> None:
    """Where all are alike the largest of one half are no larger in the other: no gap is made by choosing."""
    random = np.random.default_rng(0)
    is_in = np.array([np.arange(2000) % 2 == number % 2 for number in range(8)])
    assert abs(mean_exposed(random.standard_normal((8, 2000)), is_in)) < 0.15
    numbers = random.standard_normal((8, 2000))
    numbers[:, :200] += np.where(is_in[:, :200], 6.0, 0.0)  # a tenth is known well
    assert mean_exposed(numbers, is_in) == pytest.approx(6.0, abs=0.3)
    assert [part.tolist() for part in exposed_d_primes(numbers[:2], is_in[:2])] == [[], [], []]


def test_choosing_the_most_exposed_does_not_lower_their_mean() -> None:
    """Whom both halves choose is high in both by chance: with half their weight the mean of nothing was -.09."""
    random = np.random.default_rng(1)
    is_in = np.array([np.arange(400) % 2 == number % 2 for number in range(8)])
    means = [mean_exposed(random.standard_normal((8, 400)), is_in) for _ in range(200)]
    assert abs(np.mean(means)) < 0.03


def test_an_individual_whom_both_halves_choose_is_one_person() -> None:
    """Else three people are published as six, over the small cell, and their interval is too narrow."""
    random = np.random.default_rng(0)
    is_in = np.array([np.arange(30) % 2 == number % 2 for number in range(8)])
    numbers = 0.01 * random.standard_normal((8, 30))
    numbers[:, :3] += np.where(is_in[:, :3], [4.0, 5.0, 9.0], 0.0)
    (chosen, totals, times), own = exposed_d_primes(numbers, is_in), d_primes(numbers, is_in)
    assert chosen.tolist() == [0, 1, 2]
    assert times.tolist() == [2, 2, 2]
    assert (totals / times).tolist() == pytest.approx(own[:3].tolist())
    alike, _, _ = exposed_d_primes(random.standard_normal((8, 30)), is_in)
    assert 3 <= len(alike) <= 6


def test_the_words_that_are_protected_carry_nothing_and_the_others_all_of_it(audit: KindAudit) -> None:
    for lifted, loud, quiet in (((0, 1), "ordinary", "rare"), ((2,), "rare", "ordinary")):
        told = audit.shadows(shadows(lifted, 6.0), INDIRECT)
        random = np.random.default_rng(9)
        model = scored(random, audit.is_member, lifted, 6.0)
        base = scored(random, audit.is_member, (), 0.0)
        found, _ = audit.measure(model, base, INDIRECT, told)
        for attack in ("loss", "reference", "lira", "lira_textbook"):
            assert found[loud].attacks[attack].auc.value > 0.95  # type: ignore[operator]
            own = found[quiet].attacks[attack].auc
            assert own.low < 0.5 < own.high  # type: ignore[operator]
            in_turn = found[quiet].attacks[attack].auc_in_turn
            assert in_turn is not None
            assert in_turn.value == pytest.approx(0.5, abs=0.1)
        d_loud, d_quiet = (found[kind].d_prime.value for kind in (loud, quiet))  # type: ignore[union-attr]
        # A mean of two tokens has a spread of 0.1 / sqrt(2).
        assert d_loud == pytest.approx(6.0 * len(lifted) ** 0.5, rel=0.15)
        assert d_quiet == pytest.approx(0.0, abs=0.3)
        assert found["all"].num_shadows == 8
        assert found["targets"].share == 0.6


def test_d_prime_tells_apart_what_two_areas_of_one_do_not(audit: KindAudit) -> None:
    found = []
    for by in (8.0, 30.0):
        told = audit.shadows(shadows((0,), by), 0)
        measured, _ = audit.measure(scored(np.random.default_rng(1), audit.is_member, (0, 1), by), None, 0, told)
        found.append(measured["ordinary"])
    assert [kind.attacks["lira"].auc.value for kind in found] == [1.0, 1.0]
    gaps = [kind.d_prime.value for kind in found]  # type: ignore[union-attr]
    assert gaps[1] > 3 * gaps[0]  # type: ignore[operator]


def test_every_shadow_is_a_target_once_and_judged_by_the_others(audit: KindAudit) -> None:
    told = audit.shadows(shadows((0, 1, 2, 3, 4), 1.0), 0)
    found = audit.measure(scored(np.random.default_rng(6), audit.is_member, (), 0.0), None, 0, told)[0]["all"]
    areas = []
    for number, row in enumerate(told.numbers[0]):
        known = told.is_in[number]
        areas.append(auc_estimate(row[known], row[~known], **OPTIONS).value)
    in_turn = found.attacks["loss"].auc_in_turn
    assert in_turn is not None
    assert in_turn.value == pytest.approx(np.mean(areas))  # type: ignore[arg-type]
    assert in_turn.low < in_turn.value < in_turn.high  # type: ignore[operator]
    assert found.attacks["loss"].auc.low < 0.5 < in_turn.low  # type: ignore[operator]


@pytest.mark.parametrize("num", [4, 6, 8])
def test_shadows_in_turn_that_know_nothing_stand_at_one_half_and_those_that_know_above(num: int) -> None:
    """No number of shadows tells members apart by how many of the others were trained on them."""
    audit = KindAudit(make_store(*[DOCUMENT] * NUM), np.arange(NUM) % 2 == 0, OPTIONS)
    areas: dict[float, list[float]] = {0.0: [], 3.0: []}
    for draw in range(30):
        random = np.random.default_rng(draw)
        pairs = [random.permutation(NUM) < NUM // 2 for _ in range(num // 2)]
        is_in = [half if side == 0 else ~half for half in pairs for side in (0, 1)]
        for by, found in areas.items():
            told = audit.shadows([(scored(random, known, (2,), by), known) for known in is_in], 0)
            measured = audit.measure(scored(random, audit.is_member, (), 0.0), None, 0, told)[0]["rare"]
            found.append(measured.attacks["lira"].auc_in_turn.value)  # type: ignore[union-attr, arg-type]
    assert np.mean(areas[0.0]) == pytest.approx(0.5, abs=0.012)  # six standard errors of 240 areas or fewer
    assert np.mean(areas[3.0]) > 0.9


def test_no_rate_at_one_percent_with_fewer_than_a_thousand(audit: KindAudit) -> None:
    found, _ = audit.measure(scored(np.random.default_rng(1), audit.is_member, (), 0.0), None)
    assert all(attack.tpr is None for kind in found.values() for attack in kind.attacks.values())
    assert set(found["all"].attacks) == {"loss"}  # a base has no reference, and no shadow


def test_textbook_variances_are_those_of_each_number_alone() -> None:
    values = np.array([[1.0, 0.0], [3.0, 10.0], [0.0, 5.0], [4.0, 5.0]])
    is_in = np.array([[True] * 2, [True] * 2, [False] * 2, [False] * 2])
    found = fit_gaussians(zip(values, is_in, strict=True), prior=0)
    assert found.variance_in.tolist() == [2.0, 50.0]
    assert found.variance_out.tolist() == pytest.approx([8.0, 1e-12])


def test_lira_of_an_individual_is_the_sum_over_their_documents() -> None:
    """Of a document of five tokens: an individual with three copies of it is told three times as surely."""
    store = make_store(*[DOCUMENT] * 12, individual=np.repeat(np.arange(4), 3).tolist())
    audit = KindAudit(store, np.repeat([True, True, False, False], 3), OPTIONS)
    found = []
    for copies in (1, 3):
        kept = np.tile(np.repeat(np.arange(3) < copies, len(DOCUMENT)), 4)
        told = [(np.where(kept, -2.0 - 1.0 * (n % 2), np.nan), np.tile([n % 2 == 0] * 3, 4)) for n in range(4)]
        of_shadows = audit.shadows(told, 0)
        own = audit._score_individuals(
            audit.document_log_probs(np.where(kept, -2.1, np.nan), np.ones(60, bool)), None, 0, of_shadows
        )
        found.append(own["lira"].own)
    assert found[1].tolist() == pytest.approx((3 * found[0]).tolist())


def test_a_shift_of_the_split_is_no_gain_and_a_gain_against_the_shift_is_found(audit: KindAudit) -> None:
    """The base model ranks members low by chance; a model that learned them ranks them no higher than the others."""
    random = np.random.default_rng(5)
    base = scored(random, ~audit.is_member, (0, 1), 1.5)
    for learned, over in ((0.0, False), (1.5, True)):
        model = base + (0.1 * learned * np.repeat(audit.is_member, len(DOCUMENT))).astype(np.float32)
        found, _ = audit.measure(model, base, 0)
        loss = found["ordinary"].attacks["loss"]
        assert loss.over_base is not None
        assert (loss.over_base.low > 0.5) is over  # type: ignore[operator]
        assert loss.auc.high < 0.5 if not over else loss.auc.low < 0.5  # type: ignore[operator]
        if not over:
            assert loss.over_base.value == 0.5
    assert found["ordinary"].attacks["reference"].over_base is None  # it has no control without shadows
