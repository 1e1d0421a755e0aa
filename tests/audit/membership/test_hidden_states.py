"""The probe of hidden states: states against plain transformers, folds, and a model that gives its members away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fixtures.models import toy_model
from fixtures.stores import make_store
from sklearn.linear_model import LogisticRegression

from reticent.audit.membership.attacks import attack
from reticent.audit.membership.hidden_states import NUM_DECOYS, PENALTY, reidentify_authors, states_score, training_half
from reticent.audit.scoring.states import document_states
from reticent.core.errors import TrainingError
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread")

CAUSAL = SpecialIds(prefix=1, suffix=None, pad=0, mask=None)
MASKED = SpecialIds(prefix=1, suffix=2, pad=0, mask=3)
LENGTHS = (5, 0, 30, 1)


@pytest.mark.parametrize(("kind", "special"), [("gpt2", CAUSAL), ("bert", MASKED)])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_states_are_means_over_the_tokens_of_all_windows(kind: str, special: SpecialIds, batch_size: int) -> None:
    random = np.random.default_rng(0)
    store = make_store(*[[(int(t), n, 0) for n, t in enumerate(random.integers(5, 40, size))] for size in LENGTHS])
    model = toy_model(kind).eval()
    found = document_states(model, store, special, window_length=14, batch_size=batch_size, device="cpu")
    room = 14 - special.num_added
    for number, (begin, end) in enumerate(zip(store.doc_offsets[:-1], store.doc_offsets[1:], strict=True)):
        ids, states = store.input_ids[begin:end].astype(int).tolist(), []
        for first in range(0, len(ids), room):
            window = ids[first : first + room]
            dressed = [special.prefix, *window, *([special.suffix] if special.suffix else [])]
            out = model.base_model(input_ids=torch.tensor([dressed])).last_hidden_state[0, 1 : 1 + len(window)]
            states.append(out.detach().double().numpy())
        if not ids:
            assert np.isnan(found[number]).all()
            continue
        rows = np.concatenate(states)
        expected = np.concatenate([rows.mean(axis=0), np.sqrt((rows**2).mean(axis=0))])
        np.testing.assert_allclose(found[number], expected, atol=1e-4)


def test_a_model_that_diverged_is_refused() -> None:
    model: Any = toy_model("gpt2")
    with torch.no_grad():
        next(model.parameters())[5] = torch.nan
    with pytest.raises(TrainingError, match="not a number"):
        document_states(model, make_store([(5, 0, 0)]), CAUSAL, device="cpu")


def test_scores_are_those_of_a_regression_on_the_other_half() -> None:
    random = np.random.default_rng(1)
    individuals = np.repeat(np.arange(20, dtype=np.uint32), 2)[:-1]  # the last has one document
    member = individuals % 2 == 0
    states = random.normal(size=(39, 4)) + member[:, None] * [1.0, 0, 0, 0]
    scores, learned = states_score(states, individuals, member, seed=3), training_half(individuals, member, 3)
    assert np.isnan(scores).tolist() == learned.tolist()
    assert not np.isin(individuals[learned], individuals[~learned]).any()
    rows = (states - states[learned].mean(axis=0)) / states[learned].std(axis=0)
    weights = [1 / np.count_nonzero(individuals[learned] == who) for who in individuals[learned]]
    model = LogisticRegression(C=PENALTY, class_weight="balanced", max_iter=1000)
    found = model.fit(rows[learned], member[learned], weights).decision_function(rows[~learned])
    np.testing.assert_allclose(scores[~learned], found, atol=1e-9)


def test_households_stay_whole_and_half_of_each_side_is_learned_from() -> None:
    units = np.arange(40) // 2
    individuals = np.arange(40, dtype=np.uint32)
    member = units % 2 == 0
    learned = training_half(units, member, 0)
    assert (learned[::2] == learned[1::2]).all()
    assert (np.count_nonzero(learned & member), np.count_nonzero(learned & ~member)) == (10, 10)
    states = np.random.default_rng(0).normal(size=(40, 3))
    asked = int(np.flatnonzero(~learned)[0])
    states[asked, 1] = np.nan
    scores = states_score(states, individuals, member, units=units)
    assert np.isnan(scores).tolist() == (learned | (individuals == asked)).tolist()
    assert np.isnan(states_score(states, individuals, member | True)).all()  # nobody to learn from


def test_the_probe_finds_members_by_a_trace_in_their_states_and_nobody_without_one() -> None:
    """More numbers than individuals, as in an export; without a trace the interval holds chance as often as it says."""
    individuals = np.arange(120, dtype=np.uint32)
    member = individuals % 2 == 0
    misses = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        states = random.normal(size=(120, 200))
        area = attack(states_score(states, individuals, member, seed=seed), individuals, member,
                      num_bootstrap=200, seed=0).auc  # fmt: skip
        misses += not area.low <= 0.5 <= area.high
        if seed < 2:
            trace = states + member[:, None] * 3 * (np.arange(200) < 3)
            found = states_score(trace, individuals, member, seed=seed)
            assert attack(found, individuals, member, num_bootstrap=200, seed=0).auc.low > 0.7
    assert misses <= 6  # two of 40, and two standard errors


def test_a_document_is_told_where_it_is_nearer_to_ones_own_than_all_decoys_are() -> None:
    """By the definition, with every other individual of the side as a decoy."""
    random = np.random.default_rng(2)
    num = 2 * (NUM_DECOYS + 1)
    individuals = np.repeat(np.arange(2 * num, dtype=np.uint32), 2)
    member = individuals < num
    person = random.normal(size=(2 * num, 3))[individuals]
    states = person + random.normal(size=person.shape) * [0.3, 1.0, 3.0]
    hits, codes, members = reidentify_authors(states, individuals, member, seed=1)
    learned = training_half(individuals, member, 1)[::2]
    first, second = states[::2], states[1::2]
    within = ((first - second)[learned] ** 2).mean(axis=0)
    assert codes.tolist() == np.flatnonzero(~learned).tolist()
    assert members.tolist() == (codes < num).tolist()
    for hit, who in zip(hits, codes, strict=True):
        own = codes[(codes < num) == (who < num)]
        far = (((second[own] - first[who]) ** 2) / (within + within.mean())).sum(axis=1)
        assert hit == (own[np.argmin(far)] == who)
    assert 0.1 < hits.mean() < 0.9
    alike = reidentify_authors(np.ones_like(states), individuals, member, seed=1)[0]
    assert alike.tolist() == [1 / (NUM_DECOYS + 1)] * len(alike)  # nothing to tell them by
    few = individuals < num + 6
    assert not len(reidentify_authors(states[few & ~member], individuals[few & ~member], member[few & ~member])[0])


@pytest.mark.parametrize(("name", "told"), [("own", True), ("surrogate", False)])
def test_a_name_in_both_documents_tells_whose_they_are_and_a_surrogate_does_not(name: str, told: bool) -> None:
    random, people = np.random.default_rng(3), 80
    names = np.repeat(np.arange(5, 5 + people), 2) if name == "own" else random.integers(5, 5 + people, 2 * people)
    texts = random.integers(100, 190, size=(2 * people, 10))
    store = make_store(
        *[
            [(int(t), n, 0) for n, t in enumerate([who, *text, who, who])]
            for who, text in zip(names, texts, strict=True)
        ],
        individual=np.repeat(np.arange(people), 2).tolist(),
    )
    states = document_states(toy_model("gpt2").eval(), store, CAUSAL, device="cpu")
    hits, _, members = reidentify_authors(states, store.individual, store.individual % 2 == 0)
    assert 0 < members.sum() < len(hits)
    assert (hits.mean() > 0.5) == told
    assert told or hits.mean() < 0.2
