"""Attacks that ask the model: each finds members of a model that knows its texts by heart, and nobody in its base."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.drawing import examples
from fixtures.inversion import ID, tokenizer
from fixtures.stores import make_store
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel

from reticent.audit.config import AuditConfig, GenerationConfig
from reticent.audit.leakage.generated import Written, continue_documents, texts_by_row
from reticent.audit.membership.asked import asking_scores
from reticent.audit.membership.asking import ASKING_ATTACKS, checkpoints_score, information_score, probing_score
from reticent.audit.membership.attacks import attack
from reticent.audit.membership.coverage import coverage, coverage_score
from reticent.audit.membership.names import COVERAGE, PROBE_TOKENS, PROBING, SELF_CALIBRATION
from reticent.audit.membership.probing import passage_lengths
from reticent.audit.membership.self_calibration import train_on_written
from reticent.audit.scoring.scores import score_causal, score_information
from reticent.core.errors import PolicyError
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread")

PEOPLE, LENGTH = 24, 20
MEMBERS = np.arange(PEOPLE) % 2 == 0
SPECIAL = SpecialIds(prefix=1, suffix=None, pad=0, mask=None)
GENERATION = GenerationConfig(num_prompts=PEOPLE, prefix_tokens=8, num_tokens=12, num_samples=2)
CONFIG = AuditConfig(
    attacks=("loss", COVERAGE, PROBING), generation=GENERATION, window_length=48, device="cpu", num_bootstrap=200
)
WORDS = [number for word, number in ID.items() if word.isalpha()]


# ------------------------------------------------------------------ by hand


@pytest.mark.parametrize(
    ("true", "written", "length", "share"),
    [
        ("a b c d", "a b c d", 2, 1.0),
        ("a b c d", "x a b y c d", 2, 1.0),
        ("a b c d", "x a b y c d", 3, 0.0),
        ("a b c d", "b c", 2, 0.5),
        ("a b c d", "a x b x c x d", 2, 0.0),
        ("a b", "a b", 3, 0.0),
        ("a b c", "", 2, 0.0),
    ],
)
def test_a_word_is_covered_in_a_run_that_both_hold(true: str, written: str, length: int, share: float) -> None:
    assert coverage(true.split(), written.split(), (length,)) == share


@settings(max_examples=examples(50), deadline=None)
@given(true=st.text("ab", min_size=1, max_size=8), written=st.text("ab", max_size=8), length=st.integers(1, 4))
def test_coverage_matches_the_oracle(true: str, written: str, length: int) -> None:
    """By the definition: a word counts that lies in a run of at least so many words which the other text holds."""
    covered = [
        any(
            start <= at < end and end - start >= length and true[start:end] in written
            for start in range(len(true))
            for end in range(start + 1, len(true) + 1)
        )
        for at in range(len(true))
    ]
    assert coverage(list(true), list(written), (length,)) == pytest.approx(np.mean(covered))


def test_the_continuation_that_says_most_counts_and_a_document_without_words_has_no_score() -> None:
    found = coverage_score(["The pain, again.", "…"], [["nothing", "THE PAIN of it"], ["the pain"]])
    assert found[0] == pytest.approx(np.mean([2 / 3, 0, 0, 0]))
    assert np.isnan(found[1])


def test_probing_is_the_gain_of_the_copy_that_helps_most() -> None:
    found = probing_score(np.array([-2.0, np.nan]), np.array([[-1.5, -0.5], [np.nan, np.nan]]))
    assert found[0] == -1.5
    assert np.isnan(found[1])


def test_the_slope_over_checkpoints_is_that_of_least_squares() -> None:
    means = np.array([[-4.0, -2.0, -1.0], [-3.0, -2.0, np.nan], [-1.0, -2.0, -1.0]])
    found = checkpoints_score(means)  # (-1)(-4) + 0(-3) + 1(-1) over 1 + 0 + 1
    assert found.tolist() == pytest.approx([1.5, 0.0, np.nan], nan_ok=True)
    random = np.random.default_rng(0).normal(size=(5, 7))
    assert checkpoints_score(random) == pytest.approx(np.polyfit(np.arange(5), random, 1)[0])
    assert checkpoints_score(random[[1, 4]]) == pytest.approx(random[4] - random[1])


def test_passages_fit_into_a_window_with_their_copies() -> None:
    store = make_store(*[[(2, n, 0) for n in range(length)] for length in (7, 8, 30, 500)])
    assert passage_lengths(store, 512, SPECIAL).tolist() == [0, 8, 24, PROBE_TOKENS]
    assert passage_lengths(store, 33, SPECIAL).tolist() == [0, 8, 16, 16]
    assert passage_lengths(store, 32, SPECIAL).tolist() == [0, 8, 8, 8]


def test_the_attack_on_written_text_needs_some() -> None:
    with pytest.raises(PolicyError, match=r"ngram_coverage looks at text .* it needs \[audit.generation\]"):
        AuditConfig(attacks=(COVERAGE,))
    assert AuditConfig(attacks=(PROBING,)).attacks == (PROBING,)


# ------------------------------------------------------------------ models


@pytest.fixture(scope="module")
def people() -> TokenStore:
    """Random words of an individual each."""
    ids = np.random.default_rng(0).choice(WORDS, (PEOPLE, LENGTH))
    return make_store(*[[(int(i), n, 0) for n, i in enumerate(row)] for row in ids])


@pytest.fixture(scope="module")
def models(people: TokenStore) -> dict[str, GPT2LMHeadModel]:
    """A base, and the same after it learnt the members' texts by heart."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=max(ID.values()) + 1, n_embd=32, n_layer=1, n_head=2, n_positions=48, bos_token_id=1,
        eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    base, model = GPT2LMHeadModel(config), GPT2LMHeadModel(config)
    model.load_state_dict(base.state_dict())
    ids = people.input_ids.reshape(PEOPLE, LENGTH)[MEMBERS].astype(np.int64)
    batch = torch.from_numpy(np.concatenate([np.ones((len(ids), 1), dtype=np.int64), ids], axis=1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    return {"base": base, "model": model}


@pytest.fixture(scope="module")
def asked(people: TokenStore, models: dict[str, GPT2LMHeadModel]) -> dict[str, dict[str, np.ndarray]]:
    found = {}
    for name, model in models.items():
        written = continue_documents(
            model, people, MEMBERS, SPECIAL, GENERATION, batch_size=32, device="cpu", bf16="off", seed=0
        )
        found[name] = asking_scores(
            CONFIG, people, score_causal(model, people, SPECIAL, device="cpu"), written, load=lambda own=model: own,
            objective="clm", tokenizer=tokenizer(), special=SPECIAL, task=Silent(),
        )  # fmt: skip
    return found


class Silent:
    """A task whose progress nobody watches."""

    def __call__(self, part: str) -> Any:
        return nullcontext()


@pytest.mark.parametrize("name", [COVERAGE, PROBING])  # others have tests of their own
def test_a_model_that_knows_its_texts_gives_its_members_away_and_its_base_nobody(name: str, asked: Any) -> None:
    individuals = np.arange(PEOPLE, dtype=np.uint32)
    found, nothing = (
        attack(asked[model][name], individuals, MEMBERS, num_bootstrap=200, seed=0).auc for model in ("model", "base")
    )
    assert found.low > 0.7
    assert nothing.low <= 0.5 <= nothing.high  # a base that writes no run of any text scores all alike


def test_information_finds_the_members_of_a_model_and_where_it_learned_them(people: TokenStore, models: Any) -> None:
    information = score_information(models["model"], models["base"], "clm", people, SPECIAL, device="cpu")
    places = np.tile(np.arange(LENGTH), PEOPLE)
    individuals = np.arange(PEOPLE, dtype=np.uint32)
    for mask in (places >= 0, places < 5, places == LENGTH):
        scores = information_score(information, mask, people.doc_offsets)
        by_hand = [information[row * LENGTH : (row + 1) * LENGTH][mask[:LENGTH]] for row in range(PEOPLE)]
        assert scores == pytest.approx([part.mean() if len(part) else np.nan for part in by_hand], nan_ok=True)
        if mask.any():
            assert attack(scores, individuals, MEMBERS, num_bootstrap=200, seed=0).auc.low > 0.7


def test_a_reference_learns_what_the_model_writes_and_finds_the_members(
    people: TokenStore, models: dict[str, GPT2LMHeadModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent.audit.membership.self_calibration.CALIBRATION_TEXTS", 300)
    individuals, areas = np.arange(PEOPLE, dtype=np.uint32), {}
    options: dict[str, Any] = {"batch_size": 64, "device": "cpu", "bf16": "off", "seed": 0}
    for name, model in models.items():
        told: list[tuple[int, int]] = []
        reference = train_on_written(
            model, copy.deepcopy(models["base"]), SPECIAL, progress=lambda *done, own=told: own.append(done), **options
        )
        own, base, before = (
            score_causal(each, people, SPECIAL, device="cpu") for each in (model, models["base"], reference)
        )
        assert told[-1][0] == told[-1][1] == 300 * 5
        scores = ASKING_ATTACKS[SELF_CALIBRATION].score(own, before)
        by_hand = [float((own.log_probs - before.log_probs)[a : a + LENGTH].mean()) for a in people.doc_offsets[:-1]]
        assert scores == pytest.approx(by_hand, rel=1e-5)
        areas[name] = attack(scores, individuals, MEMBERS, num_bootstrap=200, seed=0).auc
        if name == "model":  # what it writes is its members' text, which the reference has read
            assert np.nanmean(before.log_probs) > np.nanmean(base.log_probs)
    assert areas["model"].low > 0.7
    assert areas["base"].low <= 0.5 <= areas["base"].high


def test_continuations_belong_to_their_documents(people: TokenStore) -> None:
    ids = people.input_ids.reshape(PEOPLE, LENGTH).astype(np.int64)
    of_others = Written(np.arange(PEOPLE), ids[:, :8], np.roll(ids, 1, axis=0)[:, None, 8:])
    own = Written(np.arange(PEOPLE), ids[:, :8], ids[:, None, 8:])
    scores = [coverage_score(*texts_by_row(each, people, GENERATION, tokenizer())) for each in (own, of_others)]
    assert (scores[0] == 1).all()
    assert scores[1].mean() < 0.2


def test_a_masked_model_is_asked_neither(people: TokenStore) -> None:
    scores: Any = None
    found = asking_scores(
        CONFIG, people, scores, None, load=lambda: pytest.fail("loaded"), objective="mlm", tokenizer=tokenizer(),
        special=SPECIAL, task=Silent(),
    )  # fmt: skip
    assert found == {}
