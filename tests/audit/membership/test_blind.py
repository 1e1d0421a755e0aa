"""The blind baseline: it finds sides that differ, and nothing where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import MultinomialNB

from reticent.audit.leakage.words import Words
from reticent.audit.membership.blind import BlindFeatures, _assign_folds, _permute_memberships, blind_baseline
from reticent.audit.membership.validity import FAULT

pytestmark = pytest.mark.usefixtures("one_thread")


def slots_of_words(documents: list[list[int]], individuals: list[int]) -> tuple[Words, np.ndarray]:
    """Words of documents given as surfaces, and these."""
    numbers = np.repeat(np.arange(len(documents)), [len(words) for words in documents])
    empty = np.zeros(len(numbers), dtype=np.uint8)
    places = np.arange(len(numbers))
    own = np.array(individuals, dtype=np.uint32)[numbers]
    surfaces = np.array([word for words in documents for word in words], dtype=np.int64)
    return Words(places, np.ones_like(places), numbers, own, empty, empty), surfaces


def blind_auc(documents: list[list[int]], individuals: list[int], is_member: np.ndarray, seed: int = 0) -> Any:
    return blind_baseline(BlindFeatures.of(*slots_of_words(documents, individuals), is_member), seed).auc


def test_sides_that_write_about_other_things_are_told_apart() -> None:
    random = np.random.default_rng(0)
    is_member = np.arange(60) % 2 == 0
    documents = [[*random.integers(0, 20, 8).tolist(), 30 if member else 31] for member in is_member]
    auc = blind_auc(documents, list(range(60)), is_member)
    assert auc.value > 0.9
    assert auc.low > 0.5


def test_sides_dealt_by_a_coin_are_told_apart_once_in_twenty() -> None:
    """A word of one's own in all one's documents does not help: nobody else has it."""
    fooled = 0
    for trial in range(40):
        random = np.random.default_rng(trial)
        individuals = np.repeat(np.arange(50), 2)
        documents = [[1000 + who, *random.integers(0, 60, 12).tolist()] for who in individuals]
        is_member = (random.permutation(50) < 25)[individuals]
        auc = blind_auc(documents, individuals.tolist(), is_member, seed=trial)
        fooled += not auc.low <= 0.5 <= auc.high
    assert fooled <= 6  # P[Bin(40, .05) > 6] is 0.3 %


def test_households_dealt_by_a_coin_are_told_apart_once_in_twenty() -> None:
    """A mother and her newborn share words and a side: whoever has learned one of them knows the other."""
    apart = together = 0
    for trial in range(20):
        random = np.random.default_rng(trial)
        household = np.repeat(np.arange(60), random.integers(1, 4, 60))
        own = 1000 + 10 * household[:, None] + random.integers(0, 10, (len(household), 5))
        documents = np.concatenate([own, random.integers(0, 60, (len(household), 15))], axis=1).tolist()
        is_member = (random.permutation(60) < 25)[household]
        words = slots_of_words(documents, list(range(len(household))))
        alone, units = (blind_baseline(BlindFeatures.of(*words, is_member, units=each)) for each in (None, household))
        apart += not alone.auc.low <= 0.5 <= alone.auc.high  # type: ignore[operator]
        together += not units.auc.low <= 0.5 <= units.auc.high  # type: ignore[operator]
        assert units.num_members == np.count_nonzero(is_member)
    assert together <= 4  # P[Bin(20, .05) > 4] is 0.3 %
    assert apart >= 15


def test_households_of_one_change_nothing() -> None:
    random = np.random.default_rng(2)
    words = slots_of_words(random.integers(0, 30, (40, 8)).tolist(), list(range(40)))
    is_member = random.random(40) < 0.5
    of_one, alone = (
        blind_baseline(BlindFeatures.of(*words, is_member, units=each)) for each in (np.arange(40) + 7, None)
    )
    assert of_one == alone


def test_area_is_that_of_naive_bayes_in_a_library() -> None:
    random = np.random.default_rng(4)
    bags = random.integers(0, 3, (41, 12))
    is_member = random.random(41) < 0.5
    documents = [np.repeat(np.arange(12), bag).tolist() for bag in bags]
    fold, scores = _assign_folds(is_member, 3), np.empty(41)
    for number in range(5):
        seen = fold != number
        classifier = MultinomialNB(alpha=1.0, fit_prior=False).fit(bags[seen], is_member[seen])
        odds = classifier.predict_joint_log_proba(bags[~seen])
        scores[~seen] = (odds[:, 1] - odds[:, 0]) / bags[~seen].sum(axis=1)
    auc = blind_auc(documents, list(range(41)), is_member, seed=3)
    assert auc.value == pytest.approx(roc_auc_score(is_member, scores))


def test_folds_hold_the_two_sides_evenly() -> None:
    member = np.random.default_rng(0).random(83) < 0.3
    fold = _assign_folds(member, 1)
    for side in (True, False):
        counts = np.bincount(fold[member == side], minlength=5)
        assert counts.max() - counts.min() <= 1
    for permuted in _permute_memberships(member, fold, 1).T:
        np.testing.assert_array_equal(np.bincount(fold[permuted]), np.bincount(fold[member]))


@pytest.mark.parametrize("documents", [[[1], [1]], [[1], [2], [3], [4]], [[], [], [], []], [[-1], [-1], [-1], [-1]]])
def test_too_little_to_learn_from_has_no_area(documents: list[list[int]]) -> None:
    assert blind_auc(documents, list(range(len(documents))), np.arange(len(documents)) % 2 == 0).value is None


def differing(by: str, random: np.random.Generator) -> tuple[Any, ...]:
    """Sixty individuals of two documents each, alike but in what ``by`` names."""
    is_member = np.arange(60) % 2 == 0
    lengths = np.where(is_member & (by == "length"), 36, 24)
    num_documents = np.where(is_member & (by == "number of documents"), 3, 2)
    individuals = np.repeat(np.arange(60), num_documents)
    lengths = (lengths // num_documents)[individuals]
    documents = [random.integers(0, 60, length).tolist() for length in lengths]
    words, surfaces = slots_of_words(documents, individuals.tolist())
    dates = np.full(len(surfaces), np.nan)
    dates[:: len(documents[0])] = 2010 + 5 * random.random(len(dates[:: len(documents[0])]))
    dates += np.where(is_member[words.individuals] & (by == "dates"), -5.0, 0.0)
    site = np.where(random.random(60) < 0.5, "a", "b")
    groups = {"site": np.where(is_member, "a", "b") if by == "site" else site}
    return words, surfaces, is_member[individuals], dates, groups


@pytest.mark.parametrize("by", ["length", "number of documents", "dates", "site"])
def test_sides_that_differ_otherwise_than_by_words_are_told_apart_and_by_what(by: str) -> None:
    words, surfaces, is_member, dates, groups = differing(by, np.random.default_rng(1))
    found = blind_baseline(BlindFeatures.of(words, surfaces, is_member, dates=dates, groups=groups))
    assert found.by == by
    assert found.p_value < FAULT  # type: ignore[operator]
    assert not found.auc.low <= 0.5 <= found.auc.high  # type: ignore[operator]


def test_what_is_asked_beside_words_makes_chance_no_more_frequent() -> None:
    fooled = faults = 0
    for trial in range(40):
        random = np.random.default_rng(100 + trial)
        words, surfaces, _, dates, groups = differing("", random)
        is_member = (random.permutation(60) < 30)[words.individuals[np.unique(words.documents, return_index=True)[1]]]
        found = blind_baseline(BlindFeatures.of(words, surfaces, is_member, dates=dates, groups=groups), trial)
        fooled += not found.auc.low <= 0.5 <= found.auc.high  # type: ignore[operator]
        faults += found.p_value < FAULT  # type: ignore[operator]
        assert (found.p_value <= 0.05) is (not found.auc.low <= 0.5 <= found.auc.high)  # type: ignore[operator]
    assert fooled <= 6  # P[Bin(40, .05) > 6] is 0.3 %
    assert faults <= 1
