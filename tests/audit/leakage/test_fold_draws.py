"""Masked models are asked with one draw of the folds: what another draw would change is measured, and in intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fixtures.stores import make_store

from reticent.audit.config import AuditConfig
from reticent.audit.leakage.identifiers import Context
from reticent.audit.leakage.leakage import FoldDraws, LeakageAudit
from reticent.audit.leakage.words import Words, words_of
from reticent.engine.schema import INDIRECT

NUM, OWN = 200, 10
OPTIONS: Any = {"num_bootstrap": 100, "seed": 0}


def audit_of(num: int = NUM) -> tuple[LeakageAudit, Words]:
    """Half are members; each has a document of words that nobody else uses."""
    store = make_store(*[[(who * OWN + n, n, INDIRECT) for n in range(OWN)] for who in range(num)])
    words, members = words_of(store), np.arange(num) % 2 == 0
    train = words_of(store.select(np.flatnonzero(members)))
    return LeakageAudit(
        store, words, store.input_ids.astype(np.int64), train, members[words.documents], AuditConfig(), OPTIONS
    ), words


def draw(words: Words, chances: np.ndarray, seed: int) -> np.ndarray:
    """What is predicted: each word itself with its chance, else none."""
    return np.where(np.random.default_rng(seed).random(len(words)) < chances, np.arange(len(words)), -1)


def test_the_spread_is_that_of_many_draws_and_the_interval_holds_it() -> None:
    audit, words = audit_of()
    random, context = np.random.default_rng(0), Context(words.documents, np.zeros(len(words), dtype=np.int64))
    chances = random.choice([0.0, 1.0, 0.5], len(words), p=[0.85, 0.05, 0.1])
    rates = [(draw(words, chances, 9_000 + i)[audit.is_member] >= 0).mean() for i in range(400)]
    spreads = []
    for trial in range(30):
        documents = np.sort(random.choice(np.arange(0, NUM, 2), 20, replace=False))
        here = np.isin(words.documents, documents)
        again = FoldDraws(documents, [draw(words, chances, 3 * trial + more)[here] for more in (1, 2)])
        predicted = draw(words, chances, 3 * trial)
        with_draws, alone = (audit.measure(predicted, None, context, draws) for draws in (again, None))
        found, before = with_draws.privacy["both"], alone.privacy["both"]
        assert found.fold_spread is not None
        spreads.append(found.fold_spread)
        assert (found.types.value, before.fold_spread) == (before.types.value, None)
        for wide, narrow, least in (
            (found.types, before.types, found.fold_spread),
            (with_draws.excess["both"].excess, alone.excess["both"].excess, found.fold_spread * np.sqrt(2)),
        ):
            below = (narrow.value or 0) - (narrow.low or 0)
            assert (wide.value or 0) - (wide.low or 0) == pytest.approx(np.hypot(below, 1.96 * least), abs=1e-3)
    assert np.mean(spreads) == pytest.approx(np.std(rates), rel=0.15)


def test_people_of_whom_an_identifier_comes_out_hold_the_spread_twice() -> None:
    """By hand: of two members of whom nothing comes out of the base, one has a word that one draw of three predicts."""
    audit, words = audit_of(40)
    predicted = np.where(words.individuals < 20, np.arange(len(words)), -1)
    base = np.where(words.individuals < 10, np.arange(len(words)), -1)
    context, chosen = Context(words.documents, np.zeros(len(words), dtype=np.int64)), np.array([10, 30])
    here = np.isin(words.documents, chosen)
    other = np.where((words.individuals == 30) & (words.starts % OWN == 0), np.arange(len(words)), predicted)[here]
    found, before = (
        audit.measure(predicted, base, context, draws).exposed
        for draws in (FoldDraws(chosen, [other, predicted[here]]), None)
    )
    assert found is not None
    assert before is not None
    more = 1.959964 * np.sqrt(2 * (2 / 3) / 2 * (1 / 20 + 1 / 20))
    ends = [(one.excess.value or 0) - (one.excess.low or 0) for one in (found, before)]
    assert (found.excess.value or 0) - np.hypot(ends[1], more) == pytest.approx(found.excess.low)
    assert ends[0] > ends[1]


@pytest.mark.parametrize(("changed", "variance"), [([], 1 / 3), ([0], 2 / 3), ([0, 1, 5], 4 / 3)])
def test_a_change_more_than_was_seen_counts(changed: list[int], variance: float) -> None:
    """Of few who are asked none may change."""
    audit, words = audit_of(20)
    predicted = np.arange(len(words))
    second = predicted[: 2 * OWN].copy()
    second[changed] = -1
    chosen = np.arange(2)  # the first is a member
    found = audit._fold_variances(predicted, FoldDraws(chosen, [second, predicted[: 2 * OWN]]))
    assert found["both"] == pytest.approx(variance / OWN)
