"""Identifiers told from decoys by the words around them: matching, exact likelihoods, ranks, a model that memorised."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.drawing import examples
from fixtures.inversion import (
    CAUSAL,
    CODE,
    CODES,
    CONDITIONS,
    FAMILY,
    GIVEN,
    ID,
    MASKED,
    NAME,
    PEOPLE,
    SIZE,
    VOCABULARY,
    Lookup,
    hospital,
    tokenizer,
)
from fixtures.reads import Reads
from fixtures.stores import make_store
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.audit.evidence.inversion import Chance, InPlace, InvertedKind
from reticent.audit.evidence.leakage import Sides
from reticent.audit.leakage.words import SurfaceTable, words_of
from reticent.audit.scoring.rows import sum_log_probs
from reticent.engine.schema import DIRECT
from reticent.ext.inversion.identifiers import Targets, draw_targets, runs_of, shape_of
from reticent.ext.inversion.inversion import (
    UNSCORED,
    in_place,
    inversion,
    rank_first_scores,
    score_candidates,
    score_in_place,
)
from reticent.trainer.windows import SpecialIds, cut_windows

pytestmark = pytest.mark.usefixtures("one_thread")


def setting(
    kind: str = "direct", num_decoys: int = 7, special: SpecialIds = CAUSAL, seed: int = 0, length: int = 32
) -> tuple[Any, Targets, np.ndarray]:
    store, categories = hospital()
    slots, words = words_of(store), tokenizer()
    runs = runs_of(store, slots, kind, words, SurfaceTable(words), categories)
    windows = cut_windows(store, length, special)
    targets = draw_targets(
        store, windows, runs, runs.individuals % 2 == 0, num_decoys=num_decoys, per_individual=4, seed=seed,
        needs_more=special is CAUSAL,
    )  # fmt: skip
    return windows, targets, targets.individuals % 2 == 0


# ---------------------------------------------------------------------------------------------------------- matching


@pytest.mark.parametrize(
    ("text", "shape"),
    [("", ""), ("Mary", "Xx"), (" MARY", " X"), ("12/03/2001", "0/0/0"), ("Élodie", "Xx"), ("a\u0301b", "x\u0301x")],
)
def test_shape_is_capitals_digits_and_marks(text: str, shape: str) -> None:
    assert shape_of(text) == shape


def test_neighbouring_direct_words_of_one_category_are_one_identifier() -> None:
    store, categories = hospital(3)
    words = tokenizer()
    runs = runs_of(store, words_of(store), "direct", words, SurfaceTable(words), categories)
    assert runs.lengths.tolist() == [2, 1] * 3
    assert runs.starts.tolist() == [1, 6, 9, 14, 17, 22]
    assert runs.categories.tolist() == [NAME, CODE] * 3
    single = runs_of(store, words_of(store), "indirect", words, SurfaceTable(words), categories)
    assert (single.starts.tolist(), single.lengths.tolist()) == ([4, 12, 20], [1, 1, 1])


def test_a_category_ends_an_identifier() -> None:
    store = make_store([(ID[GIVEN[0]], 0, DIRECT), (ID[CODES[0]], 1, DIRECT)])
    words = tokenizer()
    apart = runs_of(store, words_of(store), "direct", words, SurfaceTable(words), np.array([1, 2]))
    joined = runs_of(store, words_of(store), "direct", words, SurfaceTable(words))
    assert (len(apart), len(joined)) == (2, 1)


def test_identifiers_of_two_documents_are_not_joined() -> None:
    store = make_store([(ID[GIVEN[0]], 0, DIRECT)], [(ID[FAMILY[0]], 0, DIRECT)])
    words = tokenizer()
    assert len(runs_of(store, words_of(store), "direct", words, SurfaceTable(words))) == 2


@pytest.mark.parametrize("kind", ["direct", "indirect"])
@pytest.mark.parametrize("seed", [0, 1])
def test_decoys_match_and_are_nobodys_own(kind: str, seed: int) -> None:
    windows, targets, _ = setting(kind, seed=seed)
    store = windows.store
    assert len(targets) == (2 * PEOPLE if kind == "direct" else PEOPLE)
    owner = np.repeat(store.individual, np.diff(store.doc_offsets))
    for i in range(len(targets)):
        length, (true, *decoys) = targets.lengths[i], targets.candidates[i].tolist()
        assert true == targets.starts[i]
        texts = [tuple(store.input_ids[at : at + length].tolist()) for at in (true, *decoys)]
        assert len(set(texts)) == len(texts) == 8
        start = windows.starts[targets.windows[i]]
        window = store.input_ids[start : start + windows.lengths[targets.windows[i]]].tolist()
        for at, text in zip(decoys, texts[1:], strict=True):
            assert owner[at] != targets.individuals[i]
            assert owner[at] % 2 == targets.individuals[i] % 2  # the same side
            assert store.flags[at : at + length].tolist() == store.flags[true : true + length].tolist()
            assert not any(tuple(window[s : s + length]) == text for s in range(len(window)))
            assert {VOCABULARY[t][:4].rstrip("0123456789") for t in text} == {
                VOCABULARY[t][:4].rstrip("0123456789") for t in texts[0]
            }


def test_decoys_are_a_function_of_the_seed() -> None:
    first, again, other = (setting(seed=seed)[1] for seed in (0, 0, 1))
    assert np.array_equal(first.candidates, again.candidates)
    assert not np.array_equal(first.candidates, other.candidates)


def test_a_name_without_enough_decoys_is_counted_and_left_out() -> None:
    for num_decoys in (PEOPLE // 2, PEOPLE):  # one more than there are others on a side, and more than there are
        _, targets, _ = setting(num_decoys=num_decoys)
        assert (len(targets), targets.num_eligible, targets.num_unmatched) == (0, 2 * PEOPLE, 2 * PEOPLE)


def test_an_identifier_that_ends_its_window_is_no_target_of_a_causal_model() -> None:
    _, causal, _ = setting(length=8)  # 7 tokens and the prefix: the code is the last of them
    _, masked, _ = setting(length=9, special=MASKED)
    assert (causal.num_eligible, masked.num_eligible) == (PEOPLE, 2 * PEOPLE)


def test_a_decoy_is_about_as_frequent_and_never_one_that_the_window_holds_unflagged() -> None:
    documents = []
    for i in range(12):
        name = ID[GIVEN[0]] if i < 8 else ID[GIVEN[i]]  # one name of eight people, four names of one
        documents.append(
            [(name, 0, DIRECT), (ID["has"], 1, 0), (ID[GIVEN[8]], 2, 0) if i == 11 else (ID["visit"], 2, 0)]
        )
    store, words = make_store(*documents), tokenizer()
    runs = runs_of(store, words_of(store), "direct", words, SurfaceTable(words))
    windows = cut_windows(store, 8, CAUSAL)
    options: dict[str, Any] = {"per_individual": 2, "seed": 0, "needs_more": True}
    targets = draw_targets(store, windows, runs, np.ones(len(runs), bool), num_decoys=2, **options)
    assert sorted(targets.individuals.tolist()) == [8, 9, 10, 11]
    chosen = {
        i: set(store.input_ids[c[1:]].tolist())
        for i, c in zip(targets.individuals.tolist(), targets.candidates, strict=True)
    }
    assert all(ID[GIVEN[0]] not in decoys for decoys in chosen.values())
    assert chosen[11] == {ID[GIVEN[9]], ID[GIVEN[10]]}


# ----------------------------------------------------------------------------------------------------------- scores


def test_row_scores_match_a_softmax_by_hand() -> None:
    model: Any = Lookup({ID[GIVEN[0]]: ID[CONDITIONS[0]]})
    ids = np.array([[ID["<s>"], ID[GIVEN[0]], ID["has"], ID[CONDITIONS[0]], ID["visit"]]])
    groups = np.array([[-1, -1, 0, 1, 0]], dtype=np.int8)
    flat, linked = -np.log(SIZE), 8 - np.log(SIZE - 1 + np.exp(8))
    found = sum_log_probs(model, ids, ids, groups, causal=True, num_groups=2)
    assert found == pytest.approx(np.array([[2 * flat, linked]]), abs=1e-5)
    with pytest.raises(ValueError, match="first token"):
        sum_log_probs(model, ids, ids, np.zeros((1, 5), np.int8), causal=True)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("shared", [1, 2, 5, 9])
def test_tokens_that_all_rows_begin_with_are_read_once_and_change_nothing(kind: str, shared: int) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model: Any = (
        GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=2, n_head=2))
        if kind == "gpt2"
        else LlamaForCausalLM(LlamaConfig(vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                          num_attention_heads=2, num_key_value_heads=1))
    ).eval()  # fmt: skip
    random = np.random.default_rng(shared)
    ids = random.integers(60, size=(5, 12))
    ids[:, :shared] = ids[0, :shared]
    groups = random.integers(-1, 2, size=ids.shape).astype(np.int8)
    groups[:, :shared] = -1
    whole = sum_log_probs(model, ids, ids, groups, causal=True, num_groups=2)
    lengths, forward = [], type(model.base_model).forward
    model.base_model.forward = lambda **given: (
        lengths.append(given["input_ids"].numel()) or forward(model.base_model, **given)
    )
    again = sum_log_probs(model, ids, ids, groups, causal=True, num_groups=2, shared=shared)
    np.testing.assert_allclose(again, whole, atol=1e-4)
    assert sum(lengths) == (shared - 1) + 5 * (12 - shared + 1)


def test_decoys_of_several_models_are_of_the_same_side_in_each() -> None:
    store, _ = hospital()
    words = tokenizer()
    runs = runs_of(store, words_of(store), "direct", words, SurfaceTable(words))
    windows = cut_windows(store, 32, CAUSAL)
    sides = runs.individuals % 4
    targets = draw_targets(store, windows, runs, sides, num_decoys=4, per_individual=9, seed=0, needs_more=True)
    assert len(targets) > PEOPLE
    owner = dict(zip(runs.starts.tolist(), runs.individuals.tolist(), strict=True))
    for individual, row in zip(targets.individuals.tolist(), targets.candidates.tolist(), strict=True):
        assert {owner[start] % 4 for start in row} == {individual % 4}


def test_scores_of_candidates_are_those_of_the_texts_with_them_put_in() -> None:
    """Against one text at a time, by plain softmax; the name stands twice, and neither place counts."""
    windows, targets, _ = setting()
    model: Any = Lookup({ID[GIVEN[i]]: ID[CONDITIONS[i]] for i in range(PEOPLE)})
    sums = score_candidates(model, windows, targets)
    store = windows.store
    for i, k in itertools.product(range(0, len(targets), 7), range(8)):
        at, length = targets.starts[i], targets.lengths[i]
        begin = windows.starts[targets.windows[i]]
        ids = store.input_ids[begin : begin + 8].astype(int)
        flags = store.flags[begin : begin + 8]
        text = ids.copy()
        text[at - begin : at - begin + length] = store.input_ids[targets.candidates[i, k] :][:length]
        log_p = torch.log_softmax(model(torch.tensor([[ID["<s>"], *text]])).logits[0], -1)
        expected = [0.0, 0.0]
        for j in range(at - begin + length, 8):
            expected[int(flags[j] > 0)] += float(log_p[j, text[j]])
        assert sums[i, k] == pytest.approx(expected, abs=1e-4)


def test_every_occurrence_is_exchanged_and_none_is_scored() -> None:
    name, has = (ID[GIVEN[0]], 1, DIRECT), (ID["has"], 2, 0)
    documents = [[name, has, (name[0], 3, DIRECT), (ID["visit"], 4, 0)]]
    documents += [[(ID[GIVEN[i]], 0, DIRECT), (ID["visit"], 1, 0), (ID[GIVEN[i]], 2, DIRECT)] for i in (1, 2)]
    store, words = make_store(*documents), tokenizer()
    runs = runs_of(store, words_of(store), "direct", words, SurfaceTable(words))
    windows = cut_windows(store, 8, CAUSAL)
    targets = draw_targets(
        store, windows, runs, np.ones(len(runs), bool), num_decoys=2, per_individual=1, seed=0, needs_more=True
    )
    assert len(targets) == 3
    seen: list[list[int]] = []
    model: Any = Lookup({})
    forward = model.forward
    model.forward = lambda input_ids, attention_mask=None: (seen.extend(input_ids.tolist()), forward(input_ids))[1]
    sums = score_candidates(model, windows, targets)
    at = targets.individuals.tolist().index(0)
    assert sums[at] == pytest.approx(np.tile([-2 * np.log(SIZE), 0.0], (3, 1)), abs=1e-5)
    for row in (row for row in seen if ID["has"] in row):
        assert row[1] == row[3]


def transformer(special: SpecialIds) -> Any:
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model: Any = (
        BertForMaskedLM(BertConfig(vocab_size=SIZE, max_position_embeddings=32, initializer_range=0.5, **sizes))
        if special is MASKED
        else GPT2LMHeadModel(
            GPT2Config(vocab_size=SIZE, n_embd=16, n_layer=1, n_head=2, n_positions=32, initializer_range=0.5)
        )
    )
    return model.eval()


@pytest.mark.parametrize("special", [CAUSAL, MASKED])
def test_scores_in_place_are_those_of_each_candidate_alone_by_plain_softmax(special: SpecialIds) -> None:
    windows, targets, _ = setting(special=special, length=12)
    model, store, masked = transformer(special), windows.store, special is MASKED
    sums = score_in_place(model, windows, targets, masked=masked, batch_size=3)
    assert sums.shape == targets.candidates.shape
    for i, k in itertools.product(range(0, len(targets), 9), range(8)):
        length = targets.lengths[i]
        begin = windows.starts[targets.windows[i]]
        text = store.input_ids[begin : begin + windows.lengths[targets.windows[i]]].astype(int)
        at, put_in = targets.starts[i] - begin, store.input_ids[targets.candidates[i, k] :][:length].astype(int)
        expected = 0.0
        for j, token in enumerate(put_in):
            if masked:
                hidden = [*text[:at], *[special.mask] * length, *text[at + length :]]
                logits = model(torch.tensor([[special.prefix, *hidden, special.suffix]])).logits[0, 1 + at + j]
            else:
                logits = model(torch.tensor([[special.prefix, *text[:at], *put_in[:j]]])).logits[0, -1]
            expected += float(torch.log_softmax(logits.detach().double(), -1)[token])
        assert sums[i, k] == pytest.approx(expected, abs=1e-4)
    again = score_in_place(model, windows, targets, masked=masked, batch_size=100)
    assert again == pytest.approx(sums, abs=1e-4)


def test_a_copy_of_the_identifier_in_its_window_is_masked_too_and_a_first_token_of_all_has_no_score() -> None:
    name = (ID[GIVEN[0]], 0, DIRECT)
    documents = [[name, (ID["has"], 1, 0), (name[0], 2, DIRECT), (ID["visit"], 3, 0)]]
    documents += [[(ID[GIVEN[i]], 0, DIRECT), (ID["visit"], 1, 0)] for i in (1, 2)]
    store, words = make_store(*documents), tokenizer()
    runs = runs_of(store, words_of(store), "direct", words, SurfaceTable(words))
    for special in (MASKED, SpecialIds(prefix=None, suffix=None, pad=0, mask=None)):
        windows = cut_windows(store, 8, special)
        targets = draw_targets(
            store, windows, runs, np.ones(len(runs), bool), num_decoys=2, per_individual=1, seed=0, needs_more=True
        )
        seen: list[list[int]] = []
        model: Any = Lookup({})
        forward = model.forward
        model.forward = lambda input_ids, seen=seen, forward=forward, **_: (
            seen.extend(input_ids.tolist()), forward(input_ids)
        )[1]  # fmt: skip
        sums = score_in_place(model, windows, targets, masked=special is MASKED)
        assert sums == pytest.approx(np.full((3, 3), -np.log(SIZE) if special is MASKED else UNSCORED), abs=1e-5)
        assert not any(ID[GIVEN[0]] in row for row in seen)


@pytest.mark.parametrize("special", [CAUSAL, MASKED])
def test_scores_do_not_change_with_the_batch(special: SpecialIds) -> None:
    model = transformer(special)
    windows, targets, _ = setting(special=special, length=12)
    options: dict[str, Any] = {} if special is CAUSAL else {"folds": 3}
    one, many = (score_candidates(model, windows, targets, batch_size=size, **options) for size in (1, 100))
    assert one == pytest.approx(many, abs=1e-4)
    wide = cut_windows(windows.store, 12, special, pad_to_multiple_of=16)
    assert score_candidates(model, wide, targets, **options) == pytest.approx(many, abs=1e-4)


@pytest.mark.parametrize("special", [CAUSAL, MASKED])
def test_targets_go_through_the_model_together_and_none_of_them_waits_for_the_device(special: SpecialIds) -> None:
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    tiny = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "bos_token_id": None, "eos_token_id": None}
    masked = special is MASKED
    model: Any = (
        BertForMaskedLM(BertConfig(vocab_size=SIZE, **tiny))
        if masked
        else GPT2LMHeadModel(GPT2Config(vocab_size=SIZE, **sizes))  # type: ignore[arg-type]
    ).eval()
    windows, targets, _ = setting(special=special)
    passes: list[int] = []
    model.base_model.register_forward_hook(lambda *_: passes.append(1))
    found, reads = [], []
    for size in (1, 1, 64):  # what a model takes is asked at first
        passes.clear()
        with Reads() as counted:
            sums = score_candidates(model, windows, targets, folds=2 if masked else None, batch_size=size)
            placed = score_in_place(model, windows, targets, masked=masked, batch_size=size)
        found.append((sums, placed, len(passes)))
        reads.append(len(counted.names))
    assert reads[1:] == [0, 0]
    np.testing.assert_allclose(found[1][0], found[2][0], atol=1e-4)
    np.testing.assert_allclose(found[1][1], found[2][1], atol=1e-4)
    assert found[2][2] < found[1][2] / 2


def test_masked_scores_ask_for_every_word_around_the_identifier_once() -> None:
    windows, targets, _ = setting(special=MASKED)

    class Flat(Lookup):
        pass

    model: Any = Flat({})
    sums = score_candidates(model, windows, targets, folds=3)
    # Eight words, the name's two (or the code) exchanged; four ordinary, the rest in identifiers.
    flagged = np.where(targets.lengths == 2, 2, 3)
    expected = np.stack([np.full(len(targets), 4), flagged], axis=1) * -np.log(SIZE)
    assert sums == pytest.approx(np.repeat(expected[:, None], 8, axis=1), abs=1e-4)


# ------------------------------------------------------------------------------------------------------------ ranks


def oracle(scores: list[float]) -> tuple[float, float]:
    """Rank and first place of the first score, as the mean over every order of the ties."""
    better = sum(s > scores[0] for s in scores)
    ties = sum(s == scores[0] for s in scores)
    ranks = [better + place for place in range(1, ties + 1)]
    return sum(ranks) / ties, sum(rank == 1 for rank in ranks) / ties


@settings(max_examples=examples(60))
@given(st.lists(st.lists(st.integers(-2, 2).map(float), min_size=5, max_size=5), min_size=1, max_size=6))
def test_ranks_with_ties_matches_oracle(rows: list[list[float]]) -> None:
    rank, first = rank_first_scores(np.array(rows))
    assert list(zip(rank, first, strict=True)) == [pytest.approx(oracle(row)) for row in rows]


def test_noise_of_float32_breaks_no_tie() -> None:
    rank, first = rank_first_scores(np.array([[-100.00001, -100.0, -100.00002]]))
    assert (rank.tolist(), first.tolist()) == ([2.0], [1 / 3])


# ------------------------------------------------------------------------------------------------------- what it says


def measured(model: Any, base: Any | None, kind: str = "direct") -> InvertedKind:
    windows, targets, is_member = setting(kind)
    sums = score_candidates(model, windows, targets)
    base_sums = None if base is None else score_candidates(base, windows, targets)
    return inversion(targets, sums, base_sums, is_member, num_bootstrap=200, seed=0)


def test_a_model_that_memorised_pairs_is_found_out_on_members_only() -> None:
    memoriser = Lookup({ID[GIVEN[i]]: ID[CONDITIONS[i]] for i in range(0, PEOPLE, 2)})
    found = measured(memoriser, Lookup({}))
    # Of each person two identifiers: the name, which the condition gives away, and the code, which nothing does.
    top1 = found.all.top1
    assert top1.members.value == pytest.approx((1 + 1 / 8) / 2)
    assert top1.heldout.value == pytest.approx(1 / 8)
    assert top1.excess.low > 0.2
    # The condition is an indirect identifier itself: the ordinary words say nothing.
    assert found.ordinary.top1.members.value == pytest.approx(1 / 8)
    assert found.num_targets == Sides(members=PEOPLE, heldout=PEOPLE)
    # A base that knows the pairs hides them from the difference, and not from the model's own likelihood.
    hidden = measured(memoriser, memoriser)
    assert hidden.all.top1.members.value == pytest.approx(1 / 8)
    assert hidden.own.top1 == measured(memoriser, None).all.top1 == top1
    bits = (np.log2(8) + np.log2(8 / 4.5)) / 2
    assert found.all.bits.members.value == pytest.approx(bits)


class Knows(Lookup):
    """A model that may put the code of some people after "today", by the condition before it."""

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        out = super().forward(input_ids)
        for row, ids in enumerate(input_ids.tolist()):
            for at, (before, token) in enumerate(itertools.pairwise(ids), start=1):
                if token == ID["today"] and before in self.linked:
                    out.logits[row, at, self.linked[before]] = self.weight
        return out


def placed(model: Any, base: Any | None) -> InPlace:
    windows, targets, is_member = setting()
    sums, before = (m and score_in_place(m, windows, targets, masked=False) for m in (model, base))
    assert sums is not None
    return in_place(targets, sums, before, is_member, num_bootstrap=200, seed=0)


@pytest.mark.parametrize(
    ("weight", "at_once", "within_100"),
    [(8.0, 0.5, 0.5), (1.0, 0.0, 0.5), (0.1, 0.0, 0.0)],
    ids=["said", "never the likeliest word", "hardly likelier than others"],
)
def test_codes_that_members_alone_are_known_by_are_found_by_their_likelihood(
    weight: float, at_once: float, within_100: float
) -> None:
    """Of each person two identifiers: the name, which nothing gives away, and the code."""
    knows = Knows({ID[CONDITIONS[i]]: ID[CODES[i]] for i in range(0, PEOPLE, 2)}, weight)
    probability = np.exp(weight) / (SIZE - 1 + np.exp(weight))
    assert (1 - (1 - probability) ** 100 >= 0.5) == (within_100 > 0)  # by the definition
    found = placed(knows, Lookup({}))
    assert found.ranked.top1.members.value == pytest.approx((1 + 1 / 8) / 2)
    assert found.ranked.top1.heldout.value == pytest.approx(1 / 8)
    assert found.ranked.top1.excess.low > 0.2
    assert found.ranked.bits.members.value == pytest.approx((np.log2(8) + np.log2(8 / 4.5)) / 2)
    rates = {num: (sides.members.value, sides.heldout.value) for num, sides in found.extracted.items()}
    assert rates == {"1": (at_once, 0.0), "100": (within_100, 0.0)}
    # A base that knows the codes hides them from the difference, and not from the model's own likelihood.
    hidden = placed(knows, knows)
    assert hidden.ranked.top1.members.value == pytest.approx(1 / 8)
    assert hidden.own is not None
    assert hidden.own.top1 == placed(knows, None).ranked.top1 == found.ranked.top1
    assert hidden.extracted == found.extracted


def test_what_the_base_knows_already_is_not_counted() -> None:
    knows: Any = Lookup({ID[GIVEN[i]]: ID[CONDITIONS[i]] for i in range(PEOPLE)})
    found = measured(knows, knows)
    assert found.all.top1.members.value == pytest.approx(1 / 8)
    assert measured(knows, None).score == "likelihood"
    assert measured(knows, None).all.top1.heldout.value == pytest.approx((1 + 1 / 8) / 2)


def test_held_out_people_with_near_copies_hide_no_inversion() -> None:
    """Every second held-out name is read back too, as the model learned a copy of its text: .4 becomes .2."""
    num = 200
    targets = Targets(*[np.arange(num)] * 3, np.ones(num, dtype=int), np.zeros((num, 4), dtype=int), num, 0)
    is_member = np.arange(num) < num // 2
    copied = ~is_member & (np.arange(num) % 2 == 0)
    found = (is_member & (np.arange(num) % 5 < 2)) | (copied & (np.arange(num) % 5 < 2))
    sums = np.zeros((num, 4, 2))
    sums[:, 1, :] = 1.0
    sums[found, 0, :] = 2.0
    options: dict[str, Any] = {"num_bootstrap": 100, "seed": 0}
    top1 = inversion(targets, sums, None, is_member, ~copied, **options).all.top1  # type: ignore[union-attr]
    assert top1.excess.value == pytest.approx(0.2)
    assert top1.without_copies is not None
    assert top1.without_copies.value == pytest.approx(0.4)
    assert inversion(targets, sums, None, is_member, **options).all.top1.without_copies is None  # type: ignore[union-attr]


def test_a_model_of_chance_is_within_its_interval() -> None:
    _, targets, is_member = setting()
    sums = np.random.default_rng(0).normal(size=(*targets.candidates.shape, 2))
    found = inversion(targets, sums, np.zeros_like(sums), is_member, num_bootstrap=500, seed=0)
    for measure, side in itertools.product(("top1", "mrr", "bits"), ("members", "heldout")):
        estimate = getattr(getattr(found.all, measure), side)
        assert estimate.low <= getattr(found.chance, measure) <= estimate.high, (measure, side)
        assert estimate.n == PEOPLE // 2


def test_chance_is_the_mean_over_ranks() -> None:
    _, targets, is_member = setting(num_decoys=1)
    flat = np.zeros((*targets.candidates.shape, 2))
    chance = inversion(targets, flat, flat, is_member, num_bootstrap=100, seed=0).chance
    assert chance == Chance(top1=0.5, mrr=0.75, bits=0.5)


def test_nobody_on_a_side_gives_no_number() -> None:
    _, targets, _ = setting()
    flat = np.zeros((*targets.candidates.shape, 2))
    found = inversion(targets, flat, flat, np.ones(len(targets), bool), num_bootstrap=100, seed=0)
    assert found.all.top1.heldout.value is None
    assert found.all.bits.excess.value is None
