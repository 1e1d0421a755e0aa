"""Generation in batches: the same as one by one, and exactly as likely as is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fixtures.architectures import small_model
from fixtures.models import toy_model, toy_tokenizer
from fixtures.reads import Reads

from reticent.audit.scoring import generate as writing
from reticent.audit.scoring.generate import GREEDY, Decoding, _num_rows, generate, score_continuations
from reticent.core.errors import PolicyError, TrainingError
from reticent.trainer.models import load_tokenizer, special_ids

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPTS = [np.array(ids) for ids in ([7, 9, 30], [50] * 7, [12], list(range(40, 60)), [99, 100])]


@pytest.fixture(scope="module")
def model():
    return toy_model("gpt2", hidden_size=32)


@pytest.fixture(scope="module")
def special():
    return special_ids(load_tokenizer(toy_tokenizer("gpt2")), "clm")


@pytest.mark.parametrize("kind", ["gpt2", "rwkv", "mamba", "bloom", "opt"])
def test_padding_on_the_left_changes_nothing(kind: str, model, special) -> None:
    if kind != "gpt2":
        model = small_model(kind, "clm").eval()
        for weight in model.parameters():  # what a fresh model writes hardly depends on what it reads
            weight.data.mul_(3.0)
    together = generate(model, PROMPTS, special=special, num_tokens=6, device="cpu")
    alone = [generate(model, [prompt], special=special, num_tokens=6, device="cpu") for prompt in PROMPTS]
    assert together.shape == (5, 1, 6)
    np.testing.assert_array_equal(together, np.concatenate(alone))
    np.testing.assert_array_equal(together, generate(model, PROMPTS, special=special, num_tokens=6, batch_size=2))


@pytest.mark.parametrize("decoding", [GREEDY, Decoding(temperature=0.7, top_k=20, may_end=True)], ids=str)
@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama", "mistral", "qwen2", "gemma2", "opt", "bloom", "rwkv"])
def test_room_for_keys_from_the_start_changes_nothing(
    kind: str, decoding: Decoding, special, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU compiles it; here it is not compiled."""
    model, static, says = small_model(kind, "clm").eval(), [], []
    for weight in model.parameters():
        weight.data.mul_(3.0)
    plain = type(model)._sample

    def sample(net: Any, *arguments: Any, **options: Any) -> Any:
        static.append(type(options.get("past_key_values")).__name__ == "StaticCache")
        return plain(net, *arguments, **options)

    monkeypatch.setattr(type(model), "_sample", sample)
    options: Any = {"special": special, "num_tokens": 6, "batch_size": 2, "device": "cpu"}
    options["num_samples"] = 2 if decoding.temperature else 1
    prompts = PROMPTS[:4] if decoding.temperature else PROMPTS  # a last batch with fewer rows draws other numbers
    before = generate(model, prompts, decoding=decoding, **options)
    supported, number = model._can_compile_fullgraph, len(static)
    monkeypatch.setattr(writing, "_is_compiled", lambda net, *_: net._can_compile_fullgraph)
    monkeypatch.setattr(writing, "log_warning", says.append)
    np.testing.assert_array_equal(before, generate(model, prompts, decoding=decoding, **options))
    assert (set(static[:number]), set(static[number:])) == ({False}, {supported})
    assert supported == (kind != "rwkv")
    assert says == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_compiled_model_writes_the_same_on_a_gpu(special, monkeypatch: pytest.MonkeyPatch) -> None:
    says: list[str] = []
    monkeypatch.setattr(writing, "log_warning", says.append)
    options: Any = {"special": special, "num_tokens": 6, "device": "cuda", "bf16": "off"}
    made = []
    for fewest in (1 << 62, 0):
        monkeypatch.setattr(writing, "FEWEST_COMPILED", fewest)
        made.append(generate(toy_model("gpt2", hidden_size=32), PROMPTS, **options))
    np.testing.assert_array_equal(*made)
    assert says == []


def test_what_cannot_be_compiled_writes_as_before(model, special, monkeypatch: pytest.MonkeyPatch) -> None:
    says: list[str] = []
    before, made = generate(model, PROMPTS, special=special, num_tokens=3, device="cpu"), type(model).generate

    def fails(net: Any, *arguments: Any, generation_config: Any, **options: Any) -> Any:
        if generation_config.cache_implementation == "static":
            raise RuntimeError
        return made(net, *arguments, generation_config=generation_config, **options)

    monkeypatch.setattr(type(model), "generate", fails)
    monkeypatch.setattr(writing, "_is_compiled", lambda *_: True)
    monkeypatch.setattr(writing, "log_warning", says.append)
    np.testing.assert_array_equal(before, generate(model, PROMPTS, special=special, num_tokens=3, device="cpu"))
    assert len(says) == 1


def test_a_model_is_compiled_for_many_steps_on_a_gpu_alone(model) -> None:
    asked = [("cuda", 1 << 12), ("cuda", (1 << 12) - 1), ("cpu", 1 << 20)]
    assert [writing._is_compiled(model, torch.device(*one[:1]), one[1]) for one in asked] == [True, False, False]


def test_greedy_is_the_argmax_after_argmax_without_a_cache(model, special) -> None:
    made = generate(model, PROMPTS[:1], special=special, num_tokens=4, device="cpu")[0, 0]
    ids = [special.prefix, *PROMPTS[0]]
    for token in made:
        with torch.no_grad():
            assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(int(token))


@pytest.mark.parametrize("name", ["suppress_tokens", "begin_suppress_tokens", "bad_words_ids"])
def test_no_token_is_kept_back_by_the_generation_settings_of_the_models_folder(special, name: str) -> None:
    model = toy_model("gpt2", hidden_size=32)
    made = generate(model, PROMPTS[:1], special=special, num_tokens=4, device="cpu")
    first = int(made[0, 0, 0])
    model.generation_config.update(**{name: [[first]] if name == "bad_words_ids" else [first]})
    np.testing.assert_array_equal(made, generate(model, PROMPTS[:1], special=special, num_tokens=4, device="cpu"))
    assert getattr(model.generation_config, name)


def test_what_greedy_gives_is_scored_as_greedy_and_nothing_else_is(model, special) -> None:
    made = generate(model, PROMPTS[:1], special=special, num_tokens=4, device="cpu")[:, 0]
    rows = np.concatenate([np.tile(PROMPTS[0], (2, 1)), np.concatenate([made, made])], axis=1)
    rows[1, -1] += 1
    greedy, log_p = score_continuations(model, rows, 3, special=special, decoding=GREEDY, device="cpu")
    assert greedy.tolist() == [True, False]
    assert log_p.tolist() == [0.0, -np.inf]


@pytest.mark.parametrize("decoding", [Decoding(), Decoding(temperature=0.5, top_k=3), Decoding(top_k=330)])
def test_the_probability_of_a_continuation_is_how_often_it_is_drawn(model, special, decoding: Decoding) -> None:
    drawn = generate(
        model, PROMPTS[:1], special=special, num_tokens=2, decoding=decoding, num_samples=4000, seed=1, device="cpu"
    )[0]
    found, counts = np.unique(drawn[(drawn >= 0).all(axis=1)], axis=0, return_counts=True)  # not those that ended
    common = found[counts >= 20] if decoding.top_k == 3 else found[np.argsort(-counts)[:1]]
    assert len(common)
    rows = np.concatenate([np.tile(PROMPTS[0], (len(common), 1)), common], axis=1)
    _, log_p = score_continuations(model, rows, 3, special=special, decoding=decoding, device="cpu")
    shares = counts[counts >= 20] / 4000 if decoding.top_k == 3 else counts[np.argsort(-counts)[:1]] / 4000
    assert np.abs(shares - np.exp(log_p)).max() < 5 * np.sqrt(0.25 / 4000)
    if decoding.top_k == 3:
        assert len(found) == 9  # three after three
        assert np.exp(log_p).sum() == pytest.approx(1)


def test_a_decoding_over_all_tokens_is_the_models_own_probability(model, special) -> None:
    rows = np.array([[7, 9, 30, 41]])
    _, log_p = score_continuations(model, rows, 2, special=special, decoding=Decoding(may_end=True), device="cpu")
    with torch.no_grad():
        logits = model(torch.tensor([[special.prefix, 7, 9, 30, 41]])).logits[0].log_softmax(-1)
    assert log_p[0] == pytest.approx(float(logits[2, 30] + logits[3, 41]), abs=1e-5)


def test_continuations_are_scored_without_a_wait_for_the_device(model, special) -> None:
    ids = np.random.default_rng(0).integers(5, 300, (5, 12))
    score_continuations(model, ids, 8, special=special, decoding=GREEDY, device="cpu")  # its head is asked once
    with Reads() as reads:
        score_continuations(model, ids, 8, special=special, decoding=GREEDY, batch_size=2, device="cpu")
    assert reads.names == []


def test_a_gpu_takes_as_many_rows_as_keys_and_logits_allow() -> None:
    from transformers import GPT2Config, LlamaConfig

    assert _num_rows(GPT2Config(), 128) == 2**30 // (2 * 12 * 768 * 128) == 455
    assert _num_rows(LlamaConfig(vocab_size=2**22, num_hidden_layers=1, hidden_size=64), 10) == 16
    assert _num_rows(GPT2Config(), 10**9) == 1


def test_hand_worked_decodings() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    assert Decoding().log_probs(logits).exp().tolist()[0] == pytest.approx([0.5, 0.25, 0.25])
    assert Decoding(temperature=0.5).log_probs(logits).exp().tolist()[0] == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert Decoding(top_k=1).log_probs(logits).exp().tolist()[0] == pytest.approx([1, 0, 0])
    assert Decoding(top_k=2).log_probs(logits).exp().tolist()[0] == pytest.approx([0.5, 0.25, 0.25])  # a tie stays
    assert GREEDY.log_probs(logits).exp().tolist()[0] == [1, 0, 0]


def test_the_same_seed_draws_the_same_and_leaves_torchs_own_numbers_alone(model, special) -> None:
    state = torch.random.get_rng_state()
    first, again = (
        generate(model, PROMPTS, special=special, num_tokens=5, decoding=Decoding(), seed=4, device="cpu")
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    assert torch.equal(torch.random.get_rng_state(), state)
    other = generate(model, PROMPTS, special=special, num_tokens=5, decoding=Decoding(), seed=5, device="cpu")
    assert (first != other).any()


def test_nothing_stands_after_the_end_of_a_text(special) -> None:
    model = toy_model("gpt2", hidden_size=32)
    token = int(generate(model, PROMPTS[:1], special=special, num_tokens=1, device="cpu")[0, 0, 0])
    model.generation_config.eos_token_id = token
    ending = Decoding(temperature=0.0, may_end=True)
    made = generate(model, PROMPTS[:1], special=special, num_tokens=3, decoding=ending, device="cpu")
    assert made[0, 0].tolist() == [token, -1, -1]


@pytest.mark.parametrize("listed", [[7, 8], 7, None])
def test_a_measured_text_goes_on_as_if_it_had_no_end(special, listed: Any) -> None:
    model = toy_model("gpt2", hidden_size=32)
    rows = np.array([[7, 9, 30, 41]])
    ends = sorted({special.end, *np.atleast_1d([] if listed is None else listed).tolist()})
    model.generation_config.eos_token_id = listed
    with torch.no_grad():
        model.lm_head.bias = torch.nn.Parameter(torch.zeros(model.config.vocab_size))
        model.lm_head.bias[ends] = 50.0  # all but sure that the text ends
        logits = model(torch.tensor([[special.prefix, 7, 9, 30, 41]])).logits[0].double()
    for decoding in (GREEDY, Decoding()):
        made = generate(model, PROMPTS[:1], special=special, num_tokens=6, decoding=decoding, device="cpu")
        assert made.min() >= 0
        assert not np.isin(made, ends).any()
    logits[:, ends] = -torch.inf
    expected = logits.log_softmax(-1)
    _, log_p = score_continuations(model, rows, 2, special=special, decoding=Decoding(), device="cpu")
    assert log_p[0] == pytest.approx(float(expected[2, 30] + expected[3, 41]), abs=1e-4)
    true = np.append(rows[:, :2], [logits[[2], :].argmax(-1).tolist()], axis=1)
    assert score_continuations(model, true, 2, special=special, decoding=GREEDY, device="cpu")[0].tolist() == [True]
    made = generate(model, PROMPTS[:1], special=special, num_tokens=3, decoding=Decoding(temperature=0.0, may_end=True))
    assert made[0, 0].tolist()[1:] == [-1, -1]


def test_what_does_not_fit_is_refused(model, special) -> None:
    with pytest.raises(TrainingError, match="71 tokens are more than the model's 64 positions"):
        generate(model, PROMPTS[:1], special=special, num_tokens=67, device="cpu")
    with pytest.raises(PolicyError, match="temperature"):
        Decoding(temperature=-1.0)
