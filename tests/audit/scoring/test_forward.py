"""The scoring pass against plain transformers: one window, one prediction at a time, in float64."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fixtures.architectures import small_model
from fixtures.drawing import examples
from fixtures.reads import Reads
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
)

from reticent.audit.scoring import scores as scoring
from reticent.audit.scoring.gradients import gradient_norms
from reticent.audit.scoring.scores import score_causal, score_information, score_masked, score_models, word_folds
from reticent.audit.scoring.states import document_states
from reticent.audit.scoring.token_scores import COLUMNS, TokenScores
from reticent.core.errors import ArtifactError, TrainingError
from reticent.engine.store import TokenStore
from reticent.trainer.attention import without_padding_warning
from reticent.trainer.distributed import World
from reticent.trainer.models import fused_activations, lm_head
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread")

VOCAB = 60
CAUSAL = SpecialIds(prefix=1, suffix=None, pad=0, mask=None)
BARE = SpecialIds(prefix=None, suffix=None, pad=0, mask=None)
MASKED = SpecialIds(prefix=1, suffix=2, pad=0, mask=3)
FLOATS = ("log_probs", "entropy", "std", "top_log_probs")
SCORES = ("log_probs", "entropy", "std", "argmax", "rank", "top_log_probs")
#: float32 against float64, in nats; a rank or argmax may differ only between tokens closer than this.
TOLERANCE = 2e-5

Word = tuple[int, ...] | int


def store_of(*documents: list[Word]) -> TokenStore:
    """A store of documents given as words (tuples of token ids); a bare id is a token outside every word."""
    input_ids: list[int] = []
    word_ids: list[int] = []
    offsets = [0]
    for document in documents:
        number = 0
        for word in document:
            ids = word if isinstance(word, tuple) else (word,)
            input_ids += ids
            word_ids += [number if isinstance(word, tuple) else -1] * len(ids)
            number += isinstance(word, tuple)
        offsets.append(len(input_ids))
    zeros = np.zeros(len(input_ids), dtype=np.uint8)
    return TokenStore(
        np.array(input_ids, dtype=np.uint16),
        np.array(word_ids, dtype=np.int32),
        zeros,
        zeros,
        np.array(offsets, dtype=np.int64),
        np.arange(len(documents), dtype=np.uint32),
        pa.array([f"secret-{i}" for i in range(len(documents))], pa.string()),
    )


def random_document(random: np.random.Generator, num_words: int) -> list[Word]:
    """Words of one to three tokens, now and then a token between them; few words, so that they repeat."""
    lexicon: list[Word] = [(4 + i, *(30 + i + j for j in range(i % 3))) for i in range(12)]
    return [lexicon[i] if i < 12 else 40 + int(i) for i in random.integers(0, 15, num_words)]


@pytest.fixture(scope="module")
def store() -> TokenStore:
    random = np.random.default_rng(5)
    return store_of(*(random_document(random, n) for n in (0, 9, 1, 17, 0, 4, 3, 0)))


def seeded(make: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return make().eval()


def gpt2(spread: float = 0.4) -> Any:
    config = GPT2Config(
        vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=spread,
        bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    return seeded(lambda: GPT2LMHeadModel(config))


def bert(spread: float = 0.4) -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=VOCAB, max_position_embeddings=64, initializer_range=spread, pad_token_id=0, **sizes)
    return seeded(lambda: BertForMaskedLM(config))


def distilbert() -> Any:
    """Its head is in pieces, so its logits are made whole and cut."""
    config = DistilBertConfig(
        vocab_size=VOCAB, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=64,
        initializer_range=0.4,
    )  # fmt: skip
    return seeded(lambda: DistilBertForMaskedLM(config))


class Oracle:
    """Scores of a store filled in token by token from float64 logits."""

    def __init__(self, model: Any, store: TokenStore, special: SpecialIds, window_length: int):
        self.model, self.store, self.special = copy.deepcopy(model).double(), store, special
        self.log_p: dict[int, np.ndarray] = {}
        self._capacity = window_length - special.num_added

    def windows(self) -> Iterator[range]:
        for start, end in itertools.pairwise(self.store.doc_offsets.tolist()):
            for first in range(start, end, self._capacity):
                yield range(first, min(first + self._capacity, end))

    @torch.inference_mode()
    def predict(self, input_ids: list[int]) -> np.ndarray:
        return torch.log_softmax(self.model(torch.tensor([input_ids])).logits[0], dim=-1).numpy()

    def assert_matches(self, scores: TokenScores) -> None:
        assert len(self.log_p) > 0
        scored = np.zeros(self.store.num_tokens, dtype=bool)
        scored[list(self.log_p)] = True
        np.testing.assert_array_equal(scores.scored, scored)
        for name in FLOATS:
            assert getattr(scores, name).dtype == np.float32
            np.testing.assert_array_equal(np.isnan(getattr(scores, name)), ~scored)
        for name in ("argmax", "rank"):
            assert getattr(scores, name).dtype == np.int32
            assert (getattr(scores, name)[~scored] == -1).all()
        for token, log_p in self.log_p.items():
            true, p = log_p[self.store.input_ids[token]], np.exp(log_p)
            entropy = -(p * log_p).sum()
            assert scores.log_probs[token] == pytest.approx(true, abs=TOLERANCE)
            assert scores.entropy[token] == pytest.approx(entropy, abs=TOLERANCE)
            assert scores.mean[token] == -scores.entropy[token]
            std = np.sqrt((p * (log_p + entropy) ** 2).sum())
            assert scores.std[token] == pytest.approx(std, abs=TOLERANCE)
            assert log_p[scores.argmax[token]] >= log_p.max() - TOLERANCE
            assert scores.top_log_probs[token] == pytest.approx(log_p.max(), abs=TOLERANCE)
            surely, maybe = (log_p > true + TOLERANCE).sum(), (log_p > true - TOLERANCE).sum()
            assert surely <= scores.rank[token] <= maybe


def causal_oracle(model: Any, store: TokenStore, special: SpecialIds, window_length: int) -> Oracle:
    oracle = Oracle(model, store, special, window_length)
    prefix = [] if special.prefix is None else [special.prefix]
    for window in oracle.windows():
        for token in window:
            before = prefix + store.input_ids[window.start : token].tolist()
            if before:
                oracle.log_p[token] = oracle.predict(before)[-1]
    return oracle


def masked_oracle(model: Any, store: TokenStore, window_length: int, folds: int, every: bool, seed: int) -> Oracle:
    oracle = Oracle(model, store, MASKED, window_length)
    fold_of, _ = word_folds(store, folds, seed)
    document_of = np.repeat(np.arange(store.num_documents), np.diff(store.doc_offsets))
    spelling: dict[int, tuple[int, ...]] = {}  # the whole word a token is part of, also where a window cuts it
    for token in range(store.num_tokens):
        same = (document_of == document_of[token]) & (store.word_ids == store.word_ids[token])
        spelling[token] = tuple(store.input_ids[same].tolist()) if store.word_ids[token] >= 0 else ()
    for window in oracle.windows():
        for fold in range(folds):
            chosen = [t for t in window if fold_of[t] == fold]
            names = {spelling[t] for t in chosen}
            hidden = [t for t in window if spelling[t] and spelling[t] in names] if every else chosen
            dressed = [MASKED.prefix, *(MASKED.mask if t in hidden else int(store.input_ids[t]) for t in window)]
            predicted = oracle.predict([*dressed, MASKED.suffix]) if chosen else None
            for token in chosen:
                assert token not in oracle.log_p
                oracle.log_p[token] = predicted[1 + token - window.start]
    return oracle


def assert_equal_scores(a: TokenScores, b: TokenScores) -> None:
    np.testing.assert_array_equal(a.scored, b.scored)
    for name in FLOATS:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=TOLERANCE)
    for name in ("argmax", "rank"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("special", [CAUSAL, BARE], ids=["prefix", "no prefix"])
@pytest.mark.parametrize("window_length", [64, 6])
def test_causal_scores_match_the_oracle(store: TokenStore, special: SpecialIds, window_length: int) -> None:
    model = gpt2()
    scores = score_causal(model, store, special, window_length=window_length, device="cpu")
    causal_oracle(model, store, special, window_length).assert_matches(scores)


@pytest.mark.parametrize("window_length", [64, 6, 5])
@pytest.mark.parametrize("batch_size", [1, 64])
def test_the_end_of_each_text_is_scored_beside_its_tokens(
    store: TokenStore, window_length: int, batch_size: int
) -> None:
    model, special = gpt2(), SpecialIds(prefix=1, suffix=None, pad=0, mask=None, end=3)
    options: dict[str, Any] = {"window_length": window_length, "batch_size": batch_size, "device": "cpu"}
    scores, without = (score_causal(model, store, special, ends=ends, **options) for ends in (True, False))
    assert without.end_log_probs is None
    for name in COLUMNS:  # to the bit
        np.testing.assert_array_equal(getattr(scores, name), getattr(without, name))
    expected = []
    for first, end in itertools.pairwise(store.doc_offsets.tolist()):
        last = first + (end - first - 1) // (window_length - 1) * (window_length - 1)
        ids = torch.tensor([[1, *store.input_ids[last:end].tolist()]])
        with torch.no_grad():
            expected.append(float(model(ids).logits[0, -1].log_softmax(-1)[3]) if end > first else np.nan)
    assert scores.end_log_probs is not None
    np.testing.assert_allclose(scores.end_log_probs, expected, atol=1e-5)
    assert np.isnan(expected).any()


def test_ends_are_kept_in_the_file_and_left_out_of_kinds(store: TokenStore, tmp_path: Path) -> None:
    special = SpecialIds(prefix=1, suffix=None, pad=0, mask=None, end=3)
    scores = score_causal(gpt2(), store, special, ends=True, device="cpu")
    scores.to_parquet(tmp_path / "scores.parquet")
    np.testing.assert_array_equal(
        TokenScores.from_parquet(tmp_path / "scores.parquet").end_log_probs, scores.end_log_probs
    )
    assert scores.restrict_to(np.ones(store.num_tokens, dtype=bool)).end_log_probs is None
    for end in (None, VOCAB):  # none, or one that the model has no row for
        beyond = SpecialIds(prefix=1, suffix=None, pad=0, mask=None, end=end)
        assert score_causal(gpt2(), store, beyond, ends=True, device="cpu").end_log_probs is None


@pytest.mark.parametrize("make", [bert, distilbert])
@pytest.mark.parametrize("window_length", [64, 7])
@pytest.mark.parametrize("every", [False, True], ids=["folds", "all occurrences"])
def test_masked_scores_match_the_oracle(store: TokenStore, make: Any, window_length: int, every: bool) -> None:
    model = make()
    options = {"folds": 3, "all_occurrences": every, "window_length": window_length, "seed": 2}
    scores = score_masked(model, store, MASKED, device="cpu", **options)
    masked_oracle(model, store, window_length, 3, every, seed=2).assert_matches(scores)


@pytest.mark.parametrize("make", [gpt2, bert, distilbert])
@pytest.mark.parametrize("at_once", [None, 1])
def test_information_of_a_token_is_its_gain_less_that_of_the_bases_own_tokens(
    store: TokenStore, make: Any, at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the definition: the mean over the base's prediction is a sum over the whole vocabulary."""
    monkeypatch.setattr(f"{score_information.__module__}.MAX_LOGITS", {"cpu": (at_once or 1 << 20) * VOCAB})
    base, model = make(), make()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.3)
    objective, special = ("clm", CAUSAL) if make is gpt2 else ("mlm", MASKED)
    oracles = [
        causal_oracle(one, store, CAUSAL, 9) if make is gpt2 else masked_oracle(one, store, 9, 3, False, 2)
        for one in (model, base)
    ]
    options: Any = {"folds": 3, "seed": 2, "window_length": 9, "device": "cpu"}
    found = score_information(model, base, objective, store, special, batch_size=3, **options)
    expected = np.full(store.num_tokens, np.nan)
    for token, log_p in oracles[0].log_p.items():
        gain, base_p = log_p - oracles[1].log_p[token], np.exp(oracles[1].log_p[token])
        expected[token] = gain[store.input_ids[token]] - sum(p * g for p, g in zip(base_p, gain, strict=True))
    assert np.count_nonzero(~np.isnan(found)) == len(oracles[0].log_p) > 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=5 * TOLERANCE)
    assert np.nanmax(np.abs(score_information(base, base, objective, store, special, **options))) < TOLERANCE


def test_information_of_what_cannot_be_compared_is_refused(store: TokenStore) -> None:
    larger = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB + 1, n_embd=16, n_layer=1, n_head=2, n_positions=64))
    with pytest.raises(TrainingError, match="different vocabularies"):
        score_information(larger, gpt2(), "clm", store, CAUSAL, device="cpu")
    broken = gpt2()
    with torch.no_grad():
        broken.transformer.wte.weight[5] = torch.nan
    with pytest.raises(TrainingError, match="not numbers"):
        score_information(broken, gpt2(), "clm", store, CAUSAL, device="cpu")


@pytest.mark.parametrize(("objective", "special"), [("clm", CAUSAL), ("mlm", MASKED)])
def test_several_models_score_as_each_alone(store: TokenStore, objective: str, special: SpecialIds) -> None:
    models = [gpt2(0.4), gpt2(0.1)] if objective == "clm" else [bert(0.4), distilbert()]
    options: dict[str, Any] = {"window_length": 12, "batch_size": 2, "device": "cpu"}
    seen: list[int] = []
    together = score_models(models, objective, store, special, folds=2, progress=seen.append, **options)
    for model, scores in zip(models, together, strict=True):
        assert_equal_scores(scores, score_models([model], objective, store, special, folds=2, **options)[0])
    assert np.nanmax(np.abs(together[0].log_probs - together[1].log_probs)) > 0.1
    # Each window is counted once, however many models see it.
    assert seen[-1] == sum(-(-n // (12 - special.num_added)) for n in np.diff(store.doc_offsets)) * (
        objective == "clm" or 2
    )


@pytest.mark.parametrize(("objective", "special"), [("clm", CAUSAL), ("mlm", MASKED)])
def test_processes_share_the_windows_and_all_get_all_scores(
    store: TokenStore, objective: str, special: SpecialIds, tmp_path: Path
) -> None:
    models = [gpt2()] if objective == "clm" else [bert()]
    options: dict[str, Any] = {"window_length": 8, "batch_size": 2, "device": "cpu"}
    alone = score_models(models, objective, store, special, **options)[0]
    context = torch.multiprocessing.get_context("fork")
    given = (models, objective, store, special, options, tmp_path)
    workers = [context.Process(target=_share, args=(rank, *given)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    for rank in range(2):
        assert_equal_scores(alone, TokenScores.from_parquet(tmp_path / f"{rank}.parquet"))


def _share(
    rank: int, models: Any, objective: str, store: TokenStore, special: SpecialIds, options: Any, folder: Path
) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    scores = score_models(models, objective, store, special, world=World(rank, 2, rank), **options)[0]
    scores.to_parquet(folder / f"{rank}.parquet")
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_scores_are_those_of_the_processor(store: TokenStore) -> None:
    for score, model, special in ((score_causal, gpt2(), CAUSAL), (score_masked, bert(), MASKED)):
        here = score(copy.deepcopy(model), store, special, device="cpu")
        there = score(model, store, special, device="cuda", window_length=64, batch_size=1)
        np.testing.assert_array_equal(there.scored, here.scored)
        # bfloat16 has 8 bits: logits of about 10 are off by some hundredths.
        assert np.nanmean(np.abs(there.log_probs - here.log_probs)) < 0.05


def test_bfloat16_on_a_cpu_is_near_float32_and_scores_the_same_tokens(store: TokenStore) -> None:
    for score, model, special in ((score_causal, gpt2(), CAUSAL), (score_masked, bert(), MASKED)):
        exact, near = (score(model, store, special, device="cpu", bf16=bf16) for bf16 in ("auto", "on"))  # type: ignore[operator]
        np.testing.assert_array_equal(near.scored, exact.scored)
        assert 0 < np.nanmean(np.abs(near.log_probs - exact.log_probs)) < 0.05


def test_spread_of_an_unsure_model_keeps_its_digits(store: TokenStore) -> None:
    model = gpt2(spread=0.003)  # nearly uniform: the standard deviation is far smaller than the mean it is around
    scores = score_causal(model, store, CAUSAL, device="cpu")
    oracle = causal_oracle(model, store, CAUSAL, 64)
    oracle.assert_matches(scores)
    assert np.nanmax(scores.std) < 0.02


def test_a_token_that_is_ruled_out_takes_part_in_no_mean(store: TokenStore) -> None:
    model = bert()
    ruled_out = int(store.input_ids[store.doc_offsets[1]])
    with torch.no_grad():
        model.cls.predictions.bias[ruled_out] = -torch.inf
    scores = score_masked(model, store, MASKED, device="cpu")
    assert np.isfinite(scores.entropy[scores.scored]).all()
    assert np.isfinite(scores.std[scores.scored]).all()
    its_own = scores.scored & (store.input_ids == ruled_out)
    assert its_own.any()
    assert (scores.log_probs[its_own] == -np.inf).all()
    assert (scores.rank[its_own] == VOCAB - 1).all()


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_scores_do_not_change_with_batch_size_or_padding(store: TokenStore, batch_size: int) -> None:
    options: dict[str, Any] = {"window_length": 12, "device": "cpu"}
    for score, model, special in ((score_causal, gpt2(), CAUSAL), (score_masked, bert(), MASKED)):
        together = score(model, store, special, batch_size=64, **options)  # type: ignore[operator]
        apart = score(model, store, special, batch_size=batch_size, **options)  # type: ignore[operator]
        assert_equal_scores(together, apart)


@pytest.mark.parametrize(("objective", "special"), [("clm", CAUSAL), ("mlm", MASKED)])
def test_short_windows_are_not_padded_to_long_ones(objective: str, special: SpecialIds) -> None:
    store, cells = store_of(*([(5,)] * n for n in [60] * 30 + [6] * 30)), list[int]()
    model = gpt2() if objective == "clm" else bert()
    model.get_input_embeddings().register_forward_pre_hook(lambda _, given: cells.append(given[0].numel()))
    score_models([model], objective, store, special, folds=1, window_length=64, device="cpu")
    assert 0 < sum(cells) <= 1.1 * (store.num_tokens + store.num_documents * special.num_added)


def test_a_scored_model_makes_its_activations_in_one_pass_and_keeps_its_own(store: TokenStore) -> None:
    """Else a training of the same model, as that which `reticent bench` times, would be another one."""
    model, ids, seen = gpt2(), torch.arange(4, 40)[None], list[type]()
    own, written_out = [block.mlp.act for block in model.transformer.h], model(ids).logits
    assert lm_head(model) is model.lm_head  # found by trial, once
    hook = model.base_model.register_forward_pre_hook(
        lambda *_: seen.extend(type(block.mlp.act) for block in model.transformer.h)
    )
    for score in (
        score_causal,
        partial(gradient_norms, objective="clm", mask=store.flags == 0, documents=np.arange(2)),
    ):
        seen.clear()
        score(model, store=store, special=CAUSAL, device="cpu")
        assert set(seen) == {torch.nn.GELU}
        assert [block.mlp.act for block in model.transformer.h] == own
    hook.remove()
    assert torch.equal(model(ids).logits, written_out)
    with fused_activations(model):
        torch.testing.assert_close(model(ids).logits, written_out, rtol=1e-5, atol=1e-5)


def test_scores_do_not_change_with_the_logits_held_at_once(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = score_masked(bert(), store, MASKED, device="cpu")
    monkeypatch.setattr("reticent.audit.scoring.scores.MAX_LOGITS", {"cpu": 1})
    assert_equal_scores(whole, score_masked(bert(), store, MASKED, device="cpu"))


def test_scores_of_a_document_do_not_change_with_its_neighbours(store: TokenStore) -> None:
    order = np.random.default_rng(0).permutation(store.num_documents)
    shuffled = store.select(order)
    for score, model, special in (
        (score_causal, gpt2(), CAUSAL),
        # One fold: which words share a fold is drawn over the whole store.
        (lambda *args: score_masked(*args, folds=1, device="cpu"), bert(), MASKED),
    ):
        whole, other = score(model, store, special), score(model, shuffled, special)
        for place, document in enumerate(order):
            alone = score(model, store.select(np.array([document])), special)
            for name in SCORES:
                own = getattr(whole, name)[slice(*store.doc_offsets[document : document + 2])]
                moved = getattr(other, name)[slice(*shuffled.doc_offsets[place : place + 2])]
                np.testing.assert_allclose(moved, own, rtol=0, atol=TOLERANCE)
                np.testing.assert_allclose(getattr(alone, name), own, rtol=0, atol=TOLERANCE)


def shown_inputs(model: Any, score: Callable[[], object]) -> list[list[int]]:
    """Every row of ids the model saw while ``score`` ran."""
    rows: list[list[int]] = []
    lm_head(model)  # they are tried once, before anybody looks
    hook = model.base_model.register_forward_pre_hook(
        lambda _module, _args, given: rows.extend(given["input_ids"].tolist()), with_kwargs=True
    )
    score()
    hook.remove()
    return rows


@pytest.mark.parametrize("folds", [1, 2, 7])
def test_each_word_is_hidden_exactly_once_and_whole(folds: int) -> None:
    words: list[Word] = [(10, 11, 12), 50, (13,), (14, 15), 51, (16,), (17,), (18, 19), (20,), (21,)]
    ids = {t for word in words for t in (word if isinstance(word, tuple) else (word,))}  # every id is there once
    model, store = bert(), store_of(words)
    rows = shown_inputs(model, lambda: score_masked(model, store, MASKED, folds=folds, device="cpu"))
    assert len(rows) == folds
    hidden = [ids - set(row) for row in rows]
    for row, gone in zip(rows, hidden, strict=True):
        assert row.count(MASKED.mask) == len(gone) > 0  # type: ignore[arg-type]
    for word in words:
        if isinstance(word, tuple):
            assert sorted(len(gone & set(word)) for gone in hidden) == [0] * (folds - 1) + [len(word)]
        else:
            assert not any(word in gone for gone in hidden)


def test_all_occurrences_mode_hides_every_copy_and_nothing_else() -> None:
    name, akin = (10, 11), (10, 12)  # they share a token and are different words
    model, store = bert(), store_of([name, (20,), name, akin, (21,), name, 50], [(22,), name, (23,)])
    rows = shown_inputs(model, lambda: score_masked(model, store, MASKED, all_occurrences=True, device="cpu"))
    copies = {row.count(11) for row in rows if 50 in row}
    assert copies == {0, 3}  # all or none, never one left to copy from
    alike = [row for row in rows if row.count(11) == 0 and 50 in row]
    assert any(row.count(12) == 1 and row.count(10) == 1 for row in alike)
    # The other document hides its own copy only when that copy is asked for.
    assert any(row.count(11) == 1 for row in rows if 50 not in row)
    without = shown_inputs(model, lambda: score_masked(model, store, MASKED, device="cpu"))
    assert {row.count(11) for row in without if 50 in row} == {2, 3}


def test_a_copy_left_in_sight_changes_the_score() -> None:
    model, store = bert(), store_of([(10,), (20,), (10,)])
    seen = score_masked(model, store, MASKED, device="cpu")
    hidden = score_masked(model, store, MASKED, all_occurrences=True, device="cpu")
    assert abs(seen.log_probs[0] - hidden.log_probs[0]) > 1e-3
    assert seen.log_probs[1] == pytest.approx(hidden.log_probs[1], abs=TOLERANCE)


def test_first_token_is_scored_only_from_a_prefix() -> None:
    store = store_of([(10,), (11,), (12,), (13,)])
    with_prefix = score_causal(gpt2(), store, CAUSAL, window_length=3, device="cpu")
    assert with_prefix.scored.tolist() == [True, True, True, True]
    without = score_causal(gpt2(), store, BARE, window_length=3, device="cpu")
    assert without.scored.tolist() == [False, True, True, False]  # the fourth opens the second window


@pytest.mark.parametrize("documents", [[], [[]], [[], []]], ids=["none", "one empty", "two empty"])
def test_nothing_to_score_is_an_empty_answer(documents: list[list[Word]], tmp_path: Path) -> None:
    store = store_of(*documents)
    for scores in (
        score_causal(gpt2(), store, CAUSAL, device="cpu"),
        score_masked(bert(), store, MASKED, device="cpu"),
        score_masked(bert(), store, MASKED, all_occurrences=True, device="cpu"),
    ):
        assert len(scores.log_probs) == 0
        scores.to_parquet(tmp_path / "scores.parquet")
        again = TokenScores.from_parquet(tmp_path / "scores.parquet")
        assert again.doc_offsets.tolist() == [0] * (len(documents) + 1)


def test_a_document_without_words_is_not_scored_when_masked() -> None:
    scores = score_masked(bert(), store_of([50, 51], [(10,)]), MASKED, device="cpu")
    assert scores.scored.tolist() == [False, False, True]


def test_masked_scoring_without_a_mask_token_is_refused() -> None:
    with pytest.raises(TrainingError, match="mask token"):
        score_masked(bert(), store_of([(10,)]), CAUSAL, device="cpu")


def test_a_model_that_diverged_is_refused(store: TokenStore) -> None:
    model = gpt2()
    with torch.no_grad():
        model.transformer.wte.weight[5] = torch.nan
    with pytest.raises(TrainingError, match=r"not numbers at \d+ tokens"):
        score_causal(model, store, CAUSAL, device="cpu")


words = st.integers(1, 3).flatmap(lambda n: st.tuples(*[st.integers(4, 8)] * n)) | st.integers(50, 52)


@settings(max_examples=examples(100))
@given(st.lists(st.lists(words, max_size=12), max_size=4), st.integers(1, 8), st.integers(0, 2**63))
def test_folds_share_out_the_words_of_each_document_evenly(documents: list[list[Word]], folds: int, seed: int) -> None:
    store = store_of(*documents)
    fold_of, word_of = word_folds(store, folds, seed)
    np.testing.assert_array_equal(fold_of >= 0, store.word_ids >= 0)
    np.testing.assert_array_equal(word_of >= 0, store.word_ids >= 0)
    spellings: dict[tuple[int, ...], int] = {}
    for document, (start, end) in zip(documents, itertools.pairwise(store.doc_offsets), strict=True):
        dealt: list[int] = []
        for number, word in enumerate(word for word in document if isinstance(word, tuple)):
            its_tokens = np.arange(start, end)[store.word_ids[start:end] == number]
            (fold,) = set(fold_of[its_tokens].tolist())  # one fold for the whole word
            (name,) = set(word_of[its_tokens].tolist())
            assert spellings.setdefault(word, name) == name
            dealt.append(fold)
        counts = np.bincount(dealt, minlength=folds) if dealt else np.zeros(folds)
        assert len(counts) == folds
        assert counts.max() - counts.min() <= 1
    assert len(set(spellings.values())) == len(spellings)
    np.testing.assert_array_equal(word_folds(store, folds, seed)[0], fold_of)


def test_another_seed_deals_other_folds() -> None:
    store = store_of([(4 + i,) for i in range(40)])
    assert (word_folds(store, 7, 0)[0] != word_folds(store, 7, 1)[0]).any()


@pytest.fixture
def scored(store: TokenStore) -> TokenScores:
    return score_causal(gpt2(), store, BARE, window_length=8, device="cpu")


def test_scores_read_back_are_the_scores_written(scored: TokenScores, tmp_path: Path) -> None:
    scored.to_parquet(tmp_path / "scores.parquet")
    again = TokenScores.from_parquet(tmp_path / "scores.parquet")
    assert not scored.scored.all()  # so NaN and -1 are among what is read back
    for name in (*SCORES, "doc_offsets"):
        a, b = getattr(scored, name), getattr(again, name)
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


def test_written_scores_hold_numbers_alone(scored: TokenScores, tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    scored.to_parquet(path)
    schema = pq.read_schema(path)
    assert schema.names == list(SCORES)
    for field in schema:
        assert field.type.value_type in (pa.float32(), pa.int32())
    assert b"secret" not in path.read_bytes()


def broken_bytes(path: Path) -> None:
    path.write_bytes(b"PAR1 secret words PAR1")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def missing(path: Path) -> None:
    path.unlink()


def without_column(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["rank"]), path)


def of_text(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "log_probs", pa.array([["secret"]] * len(table))), path)


def of_no_lists(path: Path) -> None:
    pq.write_table(pa.table({name: [0.0, 1.0] for name in SCORES}), path)


def ragged(path: Path) -> None:
    table = pq.read_table(path)
    rows = table.column("rank").to_pylist()
    rows[1] = rows[1][:-1]
    pq.write_table(table.set_column(4, "rank", pa.array(rows, pa.large_list(pa.int32()))), path)


def with_null(path: Path) -> None:
    table = pq.read_table(path)
    rows = table.column("rank").to_pylist()
    rows[0] = None
    pq.write_table(table.set_column(4, "rank", pa.array(rows, pa.large_list(pa.int32()))), path)


@pytest.mark.parametrize(
    "spoil", [broken_bytes, truncated, missing, without_column, of_text, of_no_lists, ragged, with_null]
)
def test_a_broken_table_of_scores_is_an_artifact_error(
    scored: TokenScores, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    path = tmp_path / "scores.parquet"
    scored.to_parquet(path)
    spoil(path)
    with pytest.raises(ArtifactError, match=r"scores\.parquet") as error:
        TokenScores.from_parquet(path)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "electra", "modernbert", "esm", "gpt2"])
@pytest.mark.parametrize("is_decided", [True, False], ids=["mask of the host", "as transformers has it"])
def test_no_forward_pass_waits_for_the_device(
    name: str, is_decided: bool, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective, special = ("clm", CAUSAL) if name == "gpt2" else ("mlm", MASKED)
    model = without_padding_warning(small_model(name, objective)).eval()
    options: Any = {"window_length": 12, "folds": 2, "batch_size": 3, "device": "cpu"}
    (before,) = score_models([model], objective, store, special, **options)  # what a model takes is asked once
    document_states(model, store, special, window_length=12, batch_size=3, device="cpu")
    if not is_decided:
        monkeypatch.setattr(scoring, "using_mask", lambda model, mask: nullcontext())
    with Reads() as reads:
        (after,) = score_models([model], objective, store, special, **options)
    assert (len(reads.names) > 0) == (not is_decided and objective == "mlm")
    np.testing.assert_allclose(before.log_probs, after.log_probs, rtol=1e-5, atol=1e-6)
    with Reads() as reads:
        document_states(model, store, special, window_length=12, batch_size=3, device="cpu")
    assert len(reads.names) == 0 or objective == "clm"
