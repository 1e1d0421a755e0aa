"""Membership attacks: each against its formula, all against one overfitted model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from fixtures.drawing import examples
from fixtures.scores import NAN, scores_of
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel

from reticent.audit.evidence.membership import Roc
from reticent.audit.membership.attacks import (
    ATTACKS,
    WINDOW_SIZES,
    attack,
    individual_scores,
    needing,
)
from reticent.audit.membership.table import Need
from reticent.audit.scoring.scores import score_causal
from reticent.audit.scoring.token_scores import TokenScores
from reticent.audit.stats.estimate import Estimate
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread")

VOCAB = 64


#: Scores of the model and of the base model on four documents; no token of the third was scored, the last has none.
TARGET = scores_of([-1.0, -2.0, -3.0], [-4.0, NAN, -0.5], [NAN], [])
BASE = scores_of([-2.0, -2.0, -5.0], [-3.0, NAN, -1.5], [NAN], [])
SIZES = np.array([10, 20, 8, 8])
#: The texts in lower case have other tokens, and other numbers of them.
LOWERED = scores_of([-4.0, -4.0], [-1.0, -2.0, -3.0, NAN], [NAN], [])

#: Worked by hand. Of three tokens min_k keeps the lowest one: 20 % of three is less than one.
BY_HAND = {
    "loss": [-(1 + 2 + 3) / 3, -(4 + 0.5) / 2],
    "reference": [(2 + 2 + 5) / 3 - (1 + 2 + 3) / 3, (3 + 1.5) / 2 - (4 + 0.5) / 2],
    "user_inference": [(2 + 2 + 5) / 3 - (1 + 2 + 3) / 3, (3 + 1.5) / 2 - (4 + 0.5) / 2],
    "ratio": [((2 + 2 + 5) / 3) / ((1 + 2 + 3) / 3), ((3 + 1.5) / 2) / ((4 + 0.5) / 2)],
    "zlib": [-(1 + 2 + 3) / 10, -(4 + 0.5) / 20],
    "lowercase": [-2 / 4, -2.25 / 2],
    # One window of two tokens of (1, 0, 2) after another is lower in loss; of (-1, 1) neither more nor less.
    "wbc": [1.0, 0.0],
    "ez": [math.inf, 1.0 / 1.0],
    "hard_tokens": [-3.0 + 5.0, -4.0 + 3.0],
    "end_of_text": [-3.0, -0.5],
    "mlm_ratio": [3.0 / 3, 0.0],
    "min_k": [-3.0, -4.0],
    "min_k_plus_plus": [(-3.0 + 2.0) / 0.5, (-4.0 + 2.0) / 0.5],
}


@pytest.mark.parametrize("name", ATTACKS)
def test_score_of_hand_worked_documents(name: str) -> None:
    document_scores = ATTACKS[name].score(TARGET, BASE, SIZES, LOWERED)
    assert document_scores.shape == (4,)
    assert document_scores[:2].tolist() == pytest.approx(BY_HAND[name], rel=1e-6)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_document_with_no_scored_token_has_no_score(name: str) -> None:
    assert np.isnan(ATTACKS[name].score(TARGET, BASE, SIZES, LOWERED)[2:]).all()


@pytest.mark.parametrize("name", ATTACKS)
def test_no_documents_have_no_scores(name: str) -> None:
    assert ATTACKS[name].score(scores_of(), scores_of(), np.empty(0, dtype=np.int64), scores_of()).shape == (0,)


@pytest.mark.parametrize("name", ATTACKS)
def test_one_impossible_token_spoils_only_its_own_document(name: str) -> None:
    target = scores_of([-1.0, -math.inf], [-2.0, -1.0])
    base = scores_of([-1.0, -3.0], [-4.0, -1.0])
    with np.errstate(invalid="ignore"):
        after = ATTACKS[name].score(target, base, np.array([9, 9]), base)[1]
    alone = scores_of([-4.0, -1.0])
    assert after == ATTACKS[name].score(scores_of([-2.0, -1.0]), alone, np.array([9]), alone)[0]


@pytest.mark.parametrize(
    ("num_tokens", "num_kept"), [(1, 1), (3, 1), (5, 1), (9, 1), (10, 2), (14, 2), (15, 3), (35, 7)]
)
def test_min_k_keeps_a_fifth_and_at_least_one(num_tokens: int, num_kept: int) -> None:
    log_probs = [-float(i + 1) for i in range(num_tokens)]
    lowest = sorted(log_probs)[:num_kept]
    random = np.random.default_rng(num_tokens)
    shuffled = scores_of([-100.0], random.permutation(log_probs).tolist(), [-100.0])
    assert ATTACKS["min_k"].score(shuffled, None, None)[1] == pytest.approx(sum(lowest) / num_kept)


@pytest.mark.parametrize(("num_tokens", "num_kept"), [(1, 1), (9, 1), (10, 2), (14, 2), (35, 7)])
def test_hard_tokens_are_the_fifth_that_the_base_predicts_worst(num_tokens: int, num_kept: int) -> None:
    random = np.random.default_rng(num_tokens)
    base, gain = -1.0 - random.permutation(num_tokens), random.normal(size=num_tokens)
    found = ATTACKS["hard_tokens"].score(
        scores_of([-1.0], (base + gain).tolist()), scores_of([-50.0], base.tolist()), None
    )
    assert found[1] == pytest.approx(gain[np.argsort(base)[:num_kept]].mean(), rel=1e-5)


def test_min_k_plus_plus_standardises_each_token_by_its_own_prediction() -> None:
    target = TokenScores(
        np.array([-1.0, -5.0], dtype=np.float32),
        np.array([0.25, 4.9], dtype=np.float32),
        np.array([0.5, 1.0], dtype=np.float32),
        *[np.zeros(2, dtype=np.int32)] * 2,
        np.array([0, 2]),
    )
    # (-1 + 0.25) / 0.5 = -1.5 is lower than (-5 + 4.9) / 1 = -0.1, though -5 is the lower log-probability.
    assert ATTACKS["min_k_plus_plus"].score(target, None, None)[0] == pytest.approx(-1.5)


def test_a_prediction_without_spread_is_not_divided_by_zero() -> None:
    certain = scores_of([-0.0, -0.0], entropy=0.0, std=0.0)
    assert ATTACKS["min_k_plus_plus"].score(certain, None, None)[0] == 0.0


def test_ratio_of_a_model_that_knows_every_token_is_infinite() -> None:
    assert ATTACKS["ratio"].score(scores_of([0.0, 0.0]), scores_of([-1.0, -1.0]), None)[0] == math.inf


# ------------------------------------------------ what others got wrong, and what is easy to get wrong


@pytest.mark.parametrize("base", [scores_of([-3.0, -2.0, -1.0]), scores_of([-9.0, -9.0, -9.0])])
def test_a_document_known_by_heart_has_the_highest_ez_score(base: TokenScores) -> None:
    by_heart = scores_of([0.0, 0.0, 0.0], rank=0)
    assert ATTACKS["ez"].score(by_heart, base).tolist() == [math.inf]
    assert ATTACKS["ez"].score(scores_of([-1.0, -2.0, -3.0]), base)[0] > 0  # wrong everywhere


def test_ez_looks_only_where_the_model_predicts_another_token() -> None:
    target, base = scores_of([-0.1, -4.0, -2.0, -1.0]), scores_of([-9.0, -2.0, -3.0, -1.5])
    target.rank[:] = [0, 5, 1, 2]  # the first token is predicted: that it gained 8.9 says nothing
    assert ATTACKS["ez"].score(target, base)[0] == pytest.approx((1.0 + 0.5) / 2.0)


def test_an_infinite_score_of_one_document_does_not_hide_the_others() -> None:
    individuals = np.array([0, 0, 0, 1, 1], dtype=np.uint32)
    _, means = individual_scores(np.array([math.inf, 3.0, 1.0, math.inf, 0.25]), individuals)
    assert means.tolist() == pytest.approx([(1 + 0.75 + 0.5) / 3, (1 + 0.2) / 2])


def test_min_k_of_three_tokens_is_finite() -> None:
    for name in ("min_k", "min_k_plus_plus"):
        assert np.isfinite(ATTACKS[name].score(scores_of([-1.0, -7.0, -2.0]))).all()


def test_losses_of_exactly_zero_count() -> None:
    known = scores_of([0.0, 0.0, -3.0])
    assert ATTACKS["loss"].score(known)[0] == pytest.approx(-1.0)
    assert ATTACKS["zlib"].score(known, None, np.array([6]))[0] == pytest.approx(-0.5)
    assert ATTACKS["min_k"].score(scores_of([0.0] * 9 + [-3.0]))[0] == pytest.approx(-1.5)
    assert ATTACKS["wbc"].score(known, scores_of([-1.0, -1.0, -3.0]))[0] == 1.0


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 12, 45])
def test_wbc_matches_the_oracle(num_tokens: int) -> None:
    random = np.random.default_rng(num_tokens)
    own, other = -random.exponential(2, (2, num_tokens))
    own[num_tokens // 2 : num_tokens // 2 + (num_tokens > 5)] = NAN
    # The documents beside it must not be heard.
    target, base = scores_of([-9.0, -9.0], own.tolist(), [-9.0]), scores_of([-1.0, -1.0], other.tolist(), [-1.0])
    known = ~np.isnan(own)
    loss, base_loss = -own[known], -other[known]
    shares = []
    for size in [int(w) for w in WINDOW_SIZES if w <= len(loss)] or [len(loss)]:
        places = range(len(loss) - size + 1)
        shares.append(np.mean([base_loss[i : i + size].sum() > loss[i : i + size].sum() + 1e-6 for i in places]))
    assert ATTACKS["wbc"].score(target, base)[1] == pytest.approx(np.mean(shares))


def test_lower_case_text_with_the_same_scores_tells_nothing() -> None:
    assert np.isnan(ATTACKS["lowercase"].score(TARGET, None, None, TARGET)).all()
    known = scores_of([0.0, 0.0], [0.0, 0.0])
    lowered = scores_of([0.0, 0.0], [-1.0, 0.0])
    assert ATTACKS["lowercase"].score(known, None, None, lowered).tolist() == [-1.0, 0.0]


log_probs = st.lists(st.floats(-20, 0, width=32) | st.just(NAN), max_size=12)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(log_probs, st.floats(0, 5, width=32)), min_size=1, max_size=6))
def test_scores_match_the_oracle(drawn: list[tuple[list[float], float]]) -> None:
    target = scores_of(*[document for document, _ in drawn])
    base = scores_of(*[[p - shift for p in document] for document, shift in drawn])
    sizes = np.arange(len(drawn)) + 3
    for number in range(len(drawn)):
        span = slice(*target.doc_offsets[number : number + 2])
        own = [float(p) for p in target.log_probs[span] if not math.isnan(p)]
        other = [float(p) for p in base.log_probs[span] if not math.isnan(p)]
        if not own:
            continue
        lowest = sorted(own)[: max(1, len(own) // 5)]
        expected = {
            "loss": sum(own) / len(own),
            "reference": (sum(own) - sum(other)) / len(own),
            "zlib": sum(own) / sizes[number],
            "min_k": sum(lowest) / len(lowest),
        }
        for name, value in expected.items():
            assert ATTACKS[name].score(target, base, sizes)[number] == pytest.approx(value, rel=1e-5, abs=1e-5)


# -------------------------------------------------------------------- the individual


def test_an_individual_scores_the_mean_of_their_scored_documents() -> None:
    individuals = np.array([7, 3, 7, 3, 9, 5], dtype=np.uint32)
    codes, means = individual_scores(np.array([1.0, 4.0, 2.0, NAN, NAN, 6.0]), individuals)
    assert codes.tolist() == [3, 5, 7]  # 9 has no scored document
    assert means.tolist() == [4.0, 6.0, 1.5]


def test_results_are_per_individual() -> None:
    # One member with many low documents: by document the curve would be under 0.5, by individual it is 2/3.
    scores = np.array([0.0] * 10 + [3.0, 4.0, 1.0, 2.0])
    individuals = np.array([0] * 10 + [1, 2, 3, 4], dtype=np.uint32)
    is_member = np.array([True] * 12 + [False] * 2)
    measured = attack(scores, individuals, is_member, num_bootstrap=50, seed=0)
    assert (measured.num_members, measured.num_nonmembers, measured.unit) == (3, 2, "individual")
    assert measured.auc.value == pytest.approx(2 / 3)
    assert measured.auc.n == 5
    assert measured.tpr_at_fpr == {"0.01": None, "0.001": None}
    assert measured.roc.tpr[-1] == measured.roc.fpr[-1] == 1.0


def test_tpr_is_given_where_there_are_enough_nonmembers() -> None:
    scores = np.concatenate([np.full(50, 2.0), np.linspace(0, 1, 1000)])
    individuals, is_member = np.arange(1050, dtype=np.uint32), np.arange(1050) < 50
    measured = attack(scores, individuals, is_member, num_bootstrap=10, seed=0)
    assert measured.tpr_at_fpr["0.01"].value == 1.0
    assert measured.tpr_at_fpr["0.001"] is None


def numbers_of(auc: Estimate) -> tuple[float | None, ...]:
    return auc.value, auc.low, auc.high, auc.n


def test_results_do_not_change_with_the_order_of_documents() -> None:
    random = np.random.default_rng(0)
    scores, individuals = random.normal(size=60), random.integers(0, 20, 60).astype(np.uint32)
    is_member = individuals < 9
    order = random.permutation(60)
    first = attack(scores, individuals, is_member, num_bootstrap=50, seed=1)
    second = attack(scores[order], individuals[order], is_member[order], num_bootstrap=50, seed=1)
    assert first.roc == second.roc
    assert numbers_of(first.auc) == pytest.approx(numbers_of(second.auc), abs=1e-12)


def test_interval_is_that_of_individuals_not_of_documents() -> None:
    """Forty documents of each individual say the same thing: the interval is as wide as with one."""
    random = np.random.default_rng(2)
    scores, individuals = random.normal(size=40), np.arange(40, dtype=np.uint32)
    is_member = individuals < 20
    one = attack(scores, individuals, is_member, num_bootstrap=200, seed=1).auc
    many = attack(
        np.repeat(scores, 40), np.repeat(individuals, 40), np.repeat(is_member, 40), num_bootstrap=200, seed=1
    ).auc
    assert numbers_of(many) == pytest.approx(numbers_of(one), abs=1e-9)


@pytest.mark.parametrize("is_member", [True, False])
def test_a_side_without_a_score_is_stated_not_nan(is_member: bool) -> None:
    measured = attack(
        np.array([1.0, 2.0, NAN]),
        np.array([0, 1, 2], dtype=np.uint32),
        np.array([is_member, is_member, not is_member]),
        num_bootstrap=10,
        seed=0,
    )
    assert measured.auc.value is None
    assert measured.auc.method == "one side has no individual"
    assert measured.roc == Roc(fpr=[], tpr=[])


# ------------------------------------------------------------------ an overfitted model


@pytest.fixture(scope="module")
def overfitted() -> tuple[TokenScores, TokenScores, np.ndarray, np.ndarray]:
    """(model's scores, base's scores, sizes, is_member) of 16 random documents of which 8 were learnt by heart."""
    random = np.random.default_rng(0)
    documents = random.integers(2, VOCAB, (16, 24))
    is_member = np.arange(16) % 2 == 0
    store = TokenStore(
        documents.reshape(-1).astype(np.uint16),
        np.tile(np.arange(24, dtype=np.int32), 16),
        *[np.zeros(16 * 24, dtype=np.uint8)] * 2,
        np.arange(17, dtype=np.int64) * 24,
        np.arange(16, dtype=np.uint32),
        pa.array([str(i) for i in range(16)], pa.string()),
    )
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=2, n_positions=32, bos_token_id=1, eos_token_id=1,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    special = SpecialIds(prefix=1, suffix=None, pad=0, mask=None, end=1)
    base = score_causal(model, store, special, ends=True, device="cpu")
    beside = np.ones((8, 1), dtype=np.int64)
    batch = torch.from_numpy(np.concatenate([beside, documents[is_member], beside], axis=1))
    for step in range(80):
        model.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        with torch.no_grad():
            for weights in model.parameters():
                weights -= 0.01 * (1 - step / 80) * weights.grad.sign()
    return score_causal(model, store, special, ends=True, device="cpu"), base, np.full(16, 40), is_member


@pytest.mark.parametrize("name", ATTACKS)
def test_a_higher_score_means_member(name: str, overfitted: Any) -> None:
    target, base, sizes, is_member = overfitted
    scores = ATTACKS[name].score(target, base, sizes, base)  # the base's scores stand for those of other texts
    assert not np.isnan(scores).any()
    measured = attack(scores, np.arange(16, dtype=np.uint32), is_member, num_bootstrap=20, seed=0)
    if name == "end_of_text":  # all texts are as long, so the place alone says much of it
        assert measured.auc.value > 0.9
        return
    assert scores[is_member].min() > scores[~is_member].max()
    assert measured.auc.value == 1.0


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - needing(Need.BASE) - needing(Need.LOWERCASE)))
def test_nobody_is_distinguishable_in_the_base_model(name: str, overfitted: Any) -> None:
    _, base, sizes, is_member = overfitted
    scores = ATTACKS[name].score(base, None, sizes)
    measured = attack(scores, np.arange(16, dtype=np.uint32), is_member, num_bootstrap=200, seed=0)
    assert measured.auc.low < 0.5 < measured.auc.high
