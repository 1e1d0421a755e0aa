"""Utility by hand: what is right, for whom, and on which words."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.audit.evidence.leakage import SideUtility
from reticent.audit.leakage.utility import numbers_beside, utility
from reticent.audit.leakage.words import words_of
from reticent.audit.scoring.token_scores import TokenScores
from reticent.audit.stats.estimate import Estimate
from reticent.audit.stats.intervals import ratio_estimate
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import TokenStore

OUTSIDE = -1

#: (individual, documents), a document of (word number, true id, argmax or -1, log-probability, flags).
MEMBER, HELDOUT, OTHER = 0, 1, 2
CORPUS = [
    # A member who is always right: must not be seen among the held-out.
    (MEMBER, [(0, 10, 10, -0.1, 0), (1, 11, 11, -0.1, INDIRECT)]),
    # Words: 10-11 right, 12-13 half right, 14 (a name) right, 15 wrong; a full stop that is right.
    (
        HELDOUT,
        [
            (0, 10, 10, -1.0, 0),
            (0, 11, 11, -1.0, 0),
            (1, 12, 12, -1.0, 0),
            (1, 13, 99, -3.0, 0),
            (2, 14, 14, -0.5, DIRECT),
            (OUTSIDE, 5, 5, -0.5, 0),
            (3, 15, 99, -4.0, 0),
        ],
    ),
    # One word of one token, right; a name that is wrong; the last token was not scored.
    (OTHER, [(0, 16, 16, -2.0, 0), (1, 17, 99, -6.0, DIRECT | INDIRECT), (2, 18, -1, math.nan, 0)]),
]


def measure(objective: str, corpus: list[Any], heldout: set[int], **options: Any) -> SideUtility:
    """utility() of the individuals in ``heldout``."""
    rows = [row for _, document in corpus for row in document]
    column = lambda i, dtype: np.array([row[i] for row in rows], dtype=dtype)
    lengths = [len(document) for _, document in corpus]
    store = TokenStore(
        column(1, np.uint16),
        column(0, np.int32),
        column(4, np.uint8),
        np.zeros(len(rows), dtype=np.uint8),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array([individual for individual, _ in corpus], dtype=np.uint32),
        pa.array([str(i) for i in range(len(corpus))], pa.string()),
    )
    log_probs, argmax = column(3, np.float32), column(2, np.int32)
    scores = TokenScores(log_probs, -log_probs, -log_probs, argmax, argmax, store.doc_offsets)
    return utility(
        objective,
        scores,
        store.input_ids,
        words_of(store),
        store.flags,
        store.individual,
        np.isin(store.individual, list(heldout)),
        **{"num_bootstrap": 50, "seed": 0, **options},
    )


def measured_of(side: SideUtility) -> dict[str, Estimate]:
    return {field.name: found for field in fields(side) if (found := getattr(side, field.name)) is not None}


def test_causal_utility_of_a_hand_worked_corpus() -> None:
    measured = measure("clm", CORPUS, {HELDOUT, OTHER})
    assert set(measured_of(measured)) == {
        "ordinary_token_accuracy",
        "token_accuracy",
        "ordinary_perplexity",
        "perplexity",
    }
    assert measured.token_accuracy.value == pytest.approx(6 / 9)
    assert measured.ordinary_token_accuracy.value == pytest.approx(5 / 7)
    loss = 1 + 1 + 1 + 3 + 0.5 + 0.5 + 4 + 2 + 6
    assert measured.perplexity.value == pytest.approx(math.exp(loss / 9))
    assert measured.ordinary_perplexity.value == pytest.approx(math.exp((loss - 0.5 - 6) / 7))
    assert {estimate.n for estimate in measured_of(measured).values()} == {2}


def masked(corpus: list[Any]) -> list[Any]:
    """The same with tokens outside words not scored, as masking leaves them."""
    return [
        (i, [row if row[0] >= 0 else (row[0], row[1], -1, math.nan, row[4]) for row in document])
        for i, document in corpus
    ]


def test_masked_utility_of_a_hand_worked_corpus() -> None:
    measured = measure("mlm", masked(CORPUS), {HELDOUT, OTHER})
    assert set(measured_of(measured)) == {"ordinary_word_accuracy", "masked_word_accuracy", "masked_token_accuracy"}
    # Six words were scored: 10-11, 14 and 16 are right. A word with one wrong token is wrong.
    assert measured.masked_word_accuracy.value == pytest.approx(3 / 6)
    assert measured.ordinary_word_accuracy.value == pytest.approx(2 / 4)
    assert measured.masked_token_accuracy.value == pytest.approx(5 / 8)


@pytest.mark.parametrize("objective", ["mlm", "clm"])
def test_only_the_chosen_individuals_count(objective: str) -> None:
    corpus = masked(CORPUS)
    alone = measure(objective, corpus[1:], {HELDOUT, OTHER})
    assert measure(objective, corpus, {HELDOUT, OTHER}) == alone
    member = measure(objective, corpus, {MEMBER})
    for name, estimate in measured_of(member).items():
        assert estimate.value == pytest.approx(math.exp(0.1) if "perplexity" in name else 1.0)
        assert estimate.n == 1


@pytest.mark.parametrize("objective", ["mlm", "clm"])
def test_ordinary_is_what_identifies_nobody(objective: str) -> None:
    name = {"mlm": "ordinary_word_accuracy", "clm": "ordinary_token_accuracy"}[objective]
    for flags in (DIRECT, INDIRECT, DIRECT | INDIRECT):
        corpus = [(0, [(0, 10, 10, -1.0, 0), (1, 11, 99, -2.0, flags)]), (1, [(0, 10, 99, -1.0, 0)])]
        assert getattr(measure(objective, corpus, {0, 1}), name).value == 0.5
        unflagged = [(i, [(*row[:4], 0) for row in document]) for i, document in corpus]
        assert getattr(measure(objective, unflagged, {0, 1}), name).value == pytest.approx(1 / 3)


@pytest.mark.parametrize("objective", ["mlm", "clm"])
@pytest.mark.parametrize(
    "corpus", [[], [(0, [])], [(0, [(0, 10, -1, math.nan, 0)])]], ids=["none", "empty", "unscored"]
)
def test_nothing_scored_is_stated_not_nan(objective: str, corpus: list[Any]) -> None:
    for estimate in measured_of(measure(objective, corpus, {0})).values():
        assert (estimate.value, estimate.low, estimate.high, estimate.n) == (None, None, None, 0)
        assert estimate.method == "no individual has any"


def test_perplexity_has_the_interval_of_the_mean_loss() -> None:
    random = np.random.default_rng(0)
    corpus = [(i, [(0, 1, 1, float(p), 0) for p in random.normal(-2 - i % 5, 0.1, 4)]) for i in range(40)]
    estimate = measure("clm", corpus, set(range(40)), num_bootstrap=400).perplexity
    loss, spread = 4.0, math.sqrt(2) / math.sqrt(40)
    assert math.log(estimate.value) == pytest.approx(loss, abs=0.05)
    assert math.log(estimate.low) == pytest.approx(loss - 1.96 * spread, abs=0.12)
    assert math.log(estimate.high) == pytest.approx(loss + 1.96 * spread, abs=0.12)


def test_a_perplexity_of_e_is_not_taken_for_a_rate_of_one() -> None:
    corpus = [(i, [(0, 1, 1, -1.0, 0)]) for i in range(10)]
    estimate = measure("clm", corpus, set(range(10))).perplexity
    assert estimate.value == pytest.approx(math.e)
    assert estimate.method == "bootstrap over individuals"


def test_interval_does_not_shrink_when_an_individual_writes_more() -> None:
    few = [(i, [(0, 1, 1 if i % 2 else 9, -1.0, 0)]) for i in range(20)]
    many = [(i, [(n, *row[1:]) for n, row in enumerate(document * 30)]) for i, document in few]
    for objective, name in (("mlm", "masked_word_accuracy"), ("clm", "token_accuracy")):
        a, b = (getattr(measure(objective, corpus, set(range(20))), name) for corpus in (many, few))
        assert a == b


@pytest.mark.parametrize(("num", "least"), [(20, 0.9), (60, 0.91), (200, 0.92)])
@pytest.mark.parametrize("slope", [-0.08, 0.07, 0.0])
def test_intervals_hold_where_longer_texts_are_predicted_better_or_worse(num: int, slope: float, least: float) -> None:
    """Lengths of a standard deviation of .7 in their logarithm; 95 % less what 200 draws may be off."""

    def draw(random: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        lengths = np.maximum(np.exp(random.normal(5, 0.7, size)).astype(int), 5)
        right = np.clip(0.4 + slope * (np.log(lengths) - 5) + random.normal(0, 0.05, size), 0.02, 0.98)
        return random.binomial(lengths, right).astype(float), lengths.astype(float)

    right, lengths = draw(np.random.default_rng(0), 500_000)
    truth, held, random = right.sum() / lengths.sum(), 0, np.random.default_rng(num)
    for seed in range(200):
        found = ratio_estimate(*draw(random, num), num_bootstrap=200, seed=seed, crowded=False)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert held >= least * 200


word = st.lists(st.booleans(), min_size=1, max_size=3)
documents = st.lists(st.tuples(word, st.sampled_from([0, DIRECT, INDIRECT])), max_size=5)


@settings(max_examples=examples(100))
@given(st.lists(documents, min_size=1, max_size=6), st.sets(st.integers(0, 5), min_size=1))
def test_word_accuracy_matches_the_oracle(drawn: list[Any], heldout: set[int]) -> None:
    corpus = [
        (i, [(n, 4, 4 if right else 9, -1.0, flags) for n, (rights, flags) in enumerate(words) for right in rights])
        for i, words in enumerate(drawn)
    ]
    measured = measure("mlm", corpus, heldout)
    words = [word for i, document in enumerate(drawn) if i in heldout for word in document]
    for name, kept in (
        ("masked_word_accuracy", words),
        ("ordinary_word_accuracy", [word for word in words if word[1] == 0]),
    ):
        expected = np.mean([all(rights) for rights, _ in kept]) if kept else None
        assert getattr(measured, name).value == (None if expected is None else pytest.approx(expected))


def test_the_loss_gap_is_the_loss_of_held_out_tokens_less_that_of_members() -> None:
    """Members lose 1, 1 and 4 on three tokens, held-out individuals 5 and 3 on two; a token without a score is none."""
    log_probs = np.array([-1, -1, np.nan, -4, -5, -3], dtype=np.float32)
    argmax = np.where(np.isnan(log_probs), -1, 0)
    scores = TokenScores(log_probs, log_probs, log_probs, argmax, argmax, np.array([0, 3, 4, 5, 6]))
    individual, is_member = np.array([0, 1, 2, 3]), np.array([True, True, False, False])
    found = numbers_beside(scores, individual, is_member, num_bootstrap=100, seed=0).loss_gap
    assert found is not None
    assert (found.members.value, found.heldout.value, found.gap.value) == (2.0, 4.0, 2.0)
    assert (found.members.n, found.heldout.n, found.gap.n) == (2, 2, 4)
    assert found.gap.low is not None
    assert found.gap.high is not None
    assert found.gap.low < 2.0 < found.gap.high
