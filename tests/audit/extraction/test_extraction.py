"""Extraction of training text: what is memorised comes back, what is not does not, and rates are of individuals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import make_store
from hypothesis import given
from hypothesis import strategies as st

from reticent.audit.evidence.leakage import Sides
from reticent.audit.evidence.rules import publish
from reticent.audit.scoring.generate import Decoding
from reticent.core.errors import PolicyError
from reticent.ext.extraction.passages import (
    ExtractionConfig,
    chance_of_extraction,
    draw_passages,
    exposed_by_passages,
    extraction_rates,
    users_of_passages,
)
from reticent.trainer.models import load_tokenizer, special_ids

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("p", "n", "expected"),
    [
        (1e-18, 1, 1e-18),
        (1e-18, 1000, 1e-15),
        (0.5, 2, 0.75),
        (1.0, 3, 1.0),
        (0.0, 10**6, 0.0),
        (0.1, 10, 0.6513215599),
    ],
)
def test_chance_that_draws_give_it(p: float, n: int, expected: float) -> None:
    with np.errstate(divide="ignore"):
        found = float(chance_of_extraction(np.log(np.array([p])), n)[0])
    assert found == pytest.approx(expected, rel=1e-9)


def test_rounding_over_a_probability_of_one_is_no_error() -> None:
    assert chance_of_extraction(np.array([1e-7]), 5).tolist() == [1.0]


@given(st.floats(1e-6, 0.99), st.integers(1, 50))
def test_chance_matches_the_formula_as_written(p: float, n: int) -> None:
    assert chance_of_extraction(np.log([p]), n)[0] == pytest.approx(1 - (1 - p) ** n, rel=1e-6)


def test_passages_lie_inside_their_documents_and_short_documents_have_none() -> None:
    store = make_store(*[[(9, n, 0) for n in range(length)] for length in (10, 4, 0, 30, 5)])
    documents, starts = draw_passages(store, np.ones(5, dtype=bool), 5, 10, seed=2)
    assert documents.tolist() == [0, 3, 4]
    assert (starts >= store.doc_offsets[documents]).all()
    assert (starts + 5 <= store.doc_offsets[documents + 1]).all()
    assert starts[2] == store.doc_offsets[4]
    few, _ = draw_passages(store, np.ones(5, dtype=bool), 5, 2, seed=2)
    assert len(few) == 2
    alone, at = draw_passages(store, np.arange(5) == 3, 5, 10, seed=2)
    assert at.tolist() == starts[documents == alone[0]].tolist()  # others move nothing


def memoriser(texts: list[list[int]], max_length: int = 64):
    """A model that knows these rows by heart, and begins every other with token 5."""

    class Model(torch.nn.Module):
        config = SimpleNamespace(vocab_size=330, max_position_embeddings=max_length)
        device = torch.device("cpu")

        def forward(self, input_ids, **_):
            logits = torch.zeros((*input_ids.shape, 330))
            logits[..., 5] = 1.0
            for row, ids in enumerate(input_ids.tolist()):
                for at in range(len(ids)):
                    for text in texts:
                        if text[:at] == ids[1 : at + 1] and at < len(text):  # ids[0] is the prefix token
                            logits[row, at, text[at]] = 20.0
            return SimpleNamespace(logits=logits)

    return Model()


def test_members_known_by_heart_come_back_and_held_out_people_do_not() -> None:
    rows = [[(10 * who + n, n, int(n == 8 and who == 1)) for n in range(10)] for who in range(1, 9)]
    store = make_store(*rows, individual=[0, 0, 1, 2, 3, 4, 5, 6])
    members = np.arange(8) < 4
    known = [[token for token, _, _ in row] for row in (rows[0], rows[2])]
    config = ExtractionConfig(
        prefix_tokens=(4,), suffix_tokens=6, top_k=10, num_queries=(1,), num_bootstrap=100,
        device="cpu",
    )  # fmt: skip
    special = special_ids(load_tokenizer(toy_tokenizer("gpt2")), "clm")
    found = extraction_rates(memoriser(known), store, members, special, config)
    assert found.num_passages == Sides(members=4, heldout=4)
    assert found.settings.decoding == "sampling at temperature 1 from the 10 likeliest tokens"
    greedy = {row.asked: row for row in found.rates if row.measure == "k_extractable"}
    assert greedy["all"].members.value == 0.5  # two passages of four, of three individuals
    assert greedy["all"].members.n == 3
    assert greedy["protected"].members.value == 1.0
    heldout = greedy["all"].heldout
    assert heldout.value == 0
    assert heldout.high == pytest.approx(1 - 0.05 ** (1 / 4))  # no zero without its bound
    (drawn,) = [r for r in found.rates if r.measure == "np_discoverable" and r.asked == "all"]
    assert drawn.members.value == 0.5
    assert drawn.probability == 0.5


def test_a_passage_that_comes_back_but_for_a_token_counts_where_it_is_asked_for() -> None:
    """Of the first person the model learned the text, of the second one with another token in its end."""
    random = np.random.default_rng(0)
    ids = random.integers(5, 300, (6, 14))
    store = make_store(*[[(int(t), n, 0) for n, t in enumerate(row)] for row in ids])
    taught = ids[:2].copy()
    taught[1, 9] = 301
    special = special_ids(load_tokenizer(toy_tokenizer("gpt2")), "clm")
    model: Any = toy_model("gpt2", hidden_size=48)
    batch = torch.from_numpy(np.concatenate([np.full((2, 1), special.prefix), taught], axis=1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    model.eval()
    rates = {}
    for near in (None, 0.85, 0.95):
        config = ExtractionConfig(
            prefix_tokens=(4,), suffix_tokens=10, num_queries=(1,), near_verbatim=near, num_bootstrap=100, device="cpu"
        )
        found = extraction_rates(model, store, np.arange(6) < 3, special, config)
        rates[near] = {r.measure: (r.members.value, r.heldout.value) for r in found.rates if r.asked == "all"}
    assert rates[None]["k_extractable"] == rates[0.85]["k_extractable"] == (pytest.approx(1 / 3), 0.0)
    assert "near_verbatim" not in rates[None]
    assert rates[0.85]["near_verbatim"] == (pytest.approx(2 / 3), 0.0)  # nine of ten tokens
    assert rates[0.95]["near_verbatim"] == (pytest.approx(1 / 3), 0.0)


def test_fifty_tokens_before_fifty_are_called_discoverable() -> None:
    rows = [[(9, n, 0) for n in range(length)] for length in (60, 60, 20, 60, 60)]
    store = make_store(*rows)
    config = ExtractionConfig(prefix_tokens=(5, 10), suffix_tokens=50, num_bootstrap=100, device="cpu")
    special = special_ids(load_tokenizer(toy_tokenizer("gpt2")), "clm")
    model = toy_model("gpt2", max_length=128)
    found = extraction_rates(model, store, np.arange(5) < 3, special, config)
    assert {row.measure for row in found.rates} == {"k_extractable", "np_discoverable"}
    assert found.num_short == Sides(members=1, heldout=0)
    config = ExtractionConfig(prefix_tokens=(50,), suffix_tokens=50, num_bootstrap=100, device="cpu")
    found = extraction_rates(model, store, np.arange(5) < 3, special, config)
    assert found.rates[0].measure == "discoverable"
    assert found.rates[0].members.value is None  # every document is too short: no number, not a zero
    assert found.rates[0].members.n == 0


@pytest.mark.parametrize(
    "wrong",
    [{"prefix_tokens": ()}, {"prefix_tokens": (5, 5)}, {"probability": 0.0}, {"num_queries": (0,)},
     {"decoding": Decoding(temperature=0.0)}, {"suffix_tokens": 0}],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(wrong: dict) -> None:
    with pytest.raises(PolicyError):
        ExtractionConfig(**wrong)


texts = st.lists(st.lists(st.integers(0, 2), max_size=12), min_size=1, max_size=8)


@given(texts, st.integers(1, 4), st.booleans())
def test_users_of_passages_match_the_oracle(rows: list[list[int]], length: int, households: bool) -> None:
    individual = [number // 2 for number in range(len(rows))]
    store = make_store(*[[(token, n, 0) for n, token in enumerate(row)] for row in rows], individual=individual)
    members = np.array(individual) % 2 == 0
    units = np.array([0, 1, 0, 1]) if households else np.arange(4)
    starts = [int(store.doc_offsets[d]) + at for d, row in enumerate(rows) for at in range(len(row) - length + 1)]
    own, others = users_of_passages(store, np.array(starts, dtype=np.int64), length, members, units)
    inner = slice(1, length - 1) if length > 2 else slice(0, length)
    for number, start in enumerate(starts):
        wanted = store.input_ids[start : start + length].tolist()[inner]
        with_it = {
            (units[individual[d]], members[d])
            for d, row in enumerate(rows)
            if any(row[at : at + len(wanted)] == wanted for at in range(len(row) - len(wanted) + 1))
        }
        assert (own[number], others[number]) == (sum(m for _, m in with_it), sum(not m for _, m in with_it))


def test_passages_that_held_out_people_copied_hide_no_leak_and_a_person_counts_once() -> None:
    """Half of the held-out documents are members': what comes back of both is no skill. Two members have one text."""
    length, rows = 62, []
    for who in range(40):
        owner = who - 20 if 20 <= who < 30 else who
        owner -= owner == 1
        rows.append(
            [(int(token), n, 0) for n, token in enumerate(np.random.default_rng(owner).integers(9, 300, length))]
        )
    store = make_store(*rows)
    members = np.arange(40) < 20
    known = [[token for token, _, _ in row] for row in rows[:15]]
    config = ExtractionConfig(
        prefix_tokens=(6, 10), suffix_tokens=52, num_queries=(1,), num_bootstrap=100, device="cpu"
    )
    special = special_ids(load_tokenizer(toy_tokenizer("gpt2")), "clm")
    kept = ~((np.arange(40) >= 20) & (np.arange(40) < 30))
    model, plain = memoriser(known, length + 2), memoriser([], length + 2)
    found, base = (
        extraction_rates(one, store, members, special, config, kept=kept, units=np.arange(40)) for one in (model, plain)
    )
    whole = next(row for row in found.rates if row.prefix_tokens == 10 and row.asked == "all")
    assert whole.excess.value == pytest.approx(15 / 20 - 10 / 20)
    assert whole.without_copies is not None
    assert whole.without_copies.value == pytest.approx(15 / 20)
    assert whole.unshared is not None
    assert whole.unshared.members.value == pytest.approx(5 / 10)  # 10 to 14 of 10 to 19
    assert (whole.unshared.heldout.value, whole.unshared.num_shared) == (0.0, 20)
    exposed = exposed_by_passages(found, base, num_bootstrap=100, seed=0)
    assert exposed is not None
    assert (exposed.members.value, exposed.members.n, exposed.heldout.value) == (0.5, 10, 0.0)
    assert found.asks_every_member
    none = exposed_by_passages(found, found, num_bootstrap=100, seed=0)
    assert none is not None
    assert none.members.value == 0.0, "the base model returns it too"
    assert publish(found, 5).of_one_side is None
    short = config.replace(suffix_tokens=49)
    assert extraction_rates(plain, store, members, special, short).of_one_side is None
