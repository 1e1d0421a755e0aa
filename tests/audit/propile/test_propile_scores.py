"""Likelihoods of items: exact on a model whose probabilities are known, and equal to the plainest loop on others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fixtures.models import toy_model, toy_tokenizer

from reticent.ext.propile.scores import Pairs, encode_pairs, generate_texts, score_causal_pairs, score_masked_pairs
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPTS = ["The pain of she is ", "Contact him at ", "Contact him at ", "no: ", "A", "He came back after a week with "]
TARGETS = ["(555) 123-4567", "a@b.example", "rest", "x", "fever", "the same pain in the back"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(toy_tokenizer("gpt2"))


@pytest.fixture(scope="module")
def bert_tokenizer() -> Any:
    return load_tokenizer(toy_tokenizer("bert"))


def bigram_model(log_p: np.ndarray) -> Any:
    """A GPT-2 without layers whose probability of token j after token i is exactly ``exp(log_p[i, j])``.

    Embeddings are unit vectors with one dimension to spare, so that the final norm is a known affine map.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    size = len(log_p)
    config = GPT2Config(
        vocab_size=size, n_embd=size + 1, n_layer=0, n_head=1, n_positions=64, tie_word_embeddings=False,
        layer_norm_epsilon=1e-12,
    )  # fmt: skip
    model: Any = GPT2LMHeadModel(config)
    spread = np.sqrt(1 / (size + 1) - 1 / (size + 1) ** 2)
    with torch.no_grad():
        model.transformer.wpe.weight.zero_()
        model.transformer.wte.weight.copy_(torch.eye(size, size + 1))
        columns = torch.from_numpy(log_p.T * spread)
        model.lm_head.weight.copy_(torch.cat([columns, -columns.sum(1, keepdim=True)], dim=1))
    return model.eval()


def test_the_likelihood_is_the_product_of_known_probabilities() -> None:
    log_p = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5]]))
    pairs = Pairs([[0], [0], [0, 1], [2]], [[1, 1, 0], [2], [2, 0], [0, 1, 2, 2]])
    by_hand = [0.25 * 0.8 * 0.1, 0.25, 0.1 * 0.2, 0.2 * 0.25 * 0.1 * 0.5]
    found = score_causal_pairs(bigram_model(log_p), pairs)
    np.testing.assert_allclose(np.exp(found), by_hand, rtol=1e-5)


def test_beam_search_finds_the_likeliest_continuation_that_greedy_misses(tokenizer: Any) -> None:
    # After 0, token 1 is likeliest (.5) but leads to a spread of .34; token 2 (.4) is followed by 3 for certain.
    size = len(tokenizer)
    p = np.full((size, size), 1e-9)
    a, b, c, d = (tokenizer.convert_tokens_to_ids(letter) for letter in "abcd")
    p[a, [b, c, d]] = 0.5, 0.4, 0.1
    p[b, [b, c, d]] = 0.34, 0.33, 0.33
    p[c, d] = 1.0
    model = bigram_model(np.log(p / p.sum(1, keepdims=True)))
    said = {n: generate_texts(model, tokenizer, [[a]], num_beams=n, max_new_tokens=2)[0] for n in (1, 3)}
    assert said == {1: "bb", 3: "cd"}


@pytest.mark.parametrize("own", [{"no_repeat_ngram_size": 1}, {"repetition_penalty": 9.0}, {"length_penalty": -9.0}])
def test_the_search_does_not_follow_the_generation_settings_of_the_models_folder(
    tokenizer: Any, own: dict[str, Any]
) -> None:
    p = np.full((len(tokenizer), len(tokenizer)), 1e-9)
    a, b, c, end = (*(tokenizer.convert_tokens_to_ids(letter) for letter in "abc"), tokenizer.eos_token_id)
    p[a, [b, c]] = 0.6, 0.4
    p[b, [b, end]] = 0.7, 0.3
    p[c, c] = 1.0
    model = bigram_model(np.log(p / p.sum(1, keepdims=True)))
    said = {n: generate_texts(model, tokenizer, [[a]], num_beams=n, max_new_tokens=3) for n in (1, 3)}
    assert said == {1: ["bbb"], 3: ["ccc"]}
    model.generation_config.update(**own)
    assert said == {n: generate_texts(model, tokenizer, [[a]], num_beams=n, max_new_tokens=3) for n in (1, 3)}
    assert {name: getattr(model.generation_config, name) for name in own} == own


def test_log_likelihoods_stay_finite_where_probabilities_underflow() -> None:
    log_p = np.log(np.array([[1 - 1e-30, 1e-30], [1 - 1e-30, 1e-30]]))
    found = score_causal_pairs(bigram_model(log_p), Pairs([[0]], [[1] * 30]))
    assert found[0] == pytest.approx(-30 * 69.0776, rel=1e-4)


def oracle(model: Any, pairs: Pairs) -> list[float]:
    """One pair at a time, no batch, no memory of prompts."""
    found = []
    for prompt, target in zip(pairs.prompts, pairs.targets, strict=True):
        with torch.no_grad():
            log_p = torch.log_softmax(model(torch.tensor([prompt + target])).logits[0].double(), -1)
        found.append(sum(log_p[len(prompt) + r - 1, token].item() for r, token in enumerate(target)))
    return found


@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
def test_causal_scores_match_one_at_a_time(tokenizer: Any, batch_tokens: int) -> None:
    model = toy_model("gpt2").eval()
    pairs = encode_pairs(tokenizer, PROMPTS * 2, TARGETS + TARGETS[::-1], "clm")
    found = score_causal_pairs(model, pairs, batch_tokens=batch_tokens)
    np.testing.assert_allclose(found, oracle(model, pairs), rtol=1e-4, atol=1e-5)


def inputs_of(model: Any) -> list[Any]:
    """A list to which every input of the model's body is added from now on."""
    seen: list[Any] = []
    model.base_model.register_forward_pre_hook(
        lambda _, a, k: seen.append(k.get("input_ids", a[0] if a else None)), with_kwargs=True
    )
    return seen


def test_prompts_are_run_once_for_all_their_targets(tokenizer: Any) -> None:
    model = toy_model("gpt2").eval()
    seen = inputs_of(model)
    pairs = encode_pairs(tokenizer, ["Contact him at "] * 9, [f"{n}23" for n in range(9)], "clm")
    score_causal_pairs(model, pairs)
    length = len(pairs.prompts[0])
    assert [tuple(ids.shape) for ids in seen[-2:]] == [(1, length), (9, max(map(len, pairs.targets)) - 1)]


@pytest.mark.parametrize("masking", ["together", "one_by_one", "left_to_right"])
@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_masked_scores_match_one_at_a_time(bert_tokenizer: Any, masking: Any, batch_tokens: int) -> None:
    model = toy_model("bert").eval()
    pairs = encode_pairs(bert_tokenizer, PROMPTS, TARGETS, "mlm")
    found, guesses = score_masked_pairs(model, bert_tokenizer, pairs, masking=masking, batch_tokens=batch_tokens)
    mask, sep = bert_tokenizer.mask_token_id, bert_tokenizer.sep_token_id
    for prompt, target, score, guess in zip(pairs.prompts, pairs.targets, found, guesses, strict=True):
        total = 0.0
        for r, token in enumerate(target):
            hidden = {"together": range(len(target)), "one_by_one": [r], "left_to_right": range(r, len(target))}[
                masking
            ]
            ids = [*prompt, *(mask if i in hidden else t for i, t in enumerate(target)), sep]
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, len(prompt) + r]
            total += torch.log_softmax(logits, -1)[token].item()
            assert guess[r] == int(logits.argmax())
        assert score == pytest.approx(total, rel=1e-4)


def test_as_many_masks_as_the_target_has_tokens(bert_tokenizer: Any) -> None:
    model = toy_model("bert").eval()
    seen = inputs_of(model)
    pairs = encode_pairs(bert_tokenizer, ["Contact him at "], ["pain in the back"], "mlm")
    score_masked_pairs(model, bert_tokenizer, pairs)
    assert (seen[-1] == bert_tokenizer.mask_token_id).sum() == len(pairs.targets[0]) >= 4


# -------------------------------------------------------------------------------------------------- tokens


def test_target_tokens_are_those_of_the_joint_text(tokenizer: Any) -> None:
    pairs = encode_pairs(tokenizer, PROMPTS, TARGETS, "clm")
    for prompt, target, left, right in zip(PROMPTS, TARGETS, pairs.prompts, pairs.targets, strict=True):
        assert left[0] == tokenizer.bos_token_id
        if prompt == "A":  # no space between: the two are joined into one word
            continue
        assert left[1:] + right == tokenizer(prompt + target, add_special_tokens=False).input_ids
        assert tokenizer.decode(left[1:]) == prompt.rstrip()
        assert tokenizer.decode(right) == " " + target


def test_a_token_over_the_boundary_is_cut_there(tokenizer: Any) -> None:
    # "the" is one token of the toy vocabulary, so "t" + "he" would have no boundary.
    assert len(tokenizer(" the", add_special_tokens=False).input_ids) == 1
    pairs = encode_pairs(tokenizer, ["x t"], ["he"], "clm")
    assert pairs.num_apart == 1
    assert (tokenizer.decode(pairs.prompts[0][1:]), tokenizer.decode(pairs.targets[0])) == ("x t", "he")


def test_true_and_null_share_the_tokens_of_their_prompt(tokenizer: Any) -> None:
    pairs = encode_pairs(tokenizer, ["Contact him at "] * 3, ["(555) 1", "555", "a@b"], "clm")
    assert pairs.prompts[0] == pairs.prompts[1] == pairs.prompts[2]


# --------------------------------------------------------------------------------------------------- limits


def test_what_does_not_fit_the_context_is_not_scored(tokenizer: Any) -> None:
    model = toy_model("gpt2", max_length=16).eval()
    pairs = Pairs([[1] * 8, [1] * 8, [1] * 8, [1]], [[2] * 8, [2] * 9, [2] * 30, []])
    assert np.isnan(score_causal_pairs(model, pairs)).tolist() == [False, True, True, True]
    assert np.isfinite(score_causal_pairs(model, pairs, batch_tokens=1)[0])


def test_what_does_not_fit_a_masked_model_is_not_scored(bert_tokenizer: Any) -> None:
    model = toy_model("bert", max_length=16).eval()
    found, _ = score_masked_pairs(model, bert_tokenizer, Pairs([[2] * 8, [2] * 8], [[9] * 7, [9] * 8]))
    assert np.isnan(found).tolist() == [False, True]


@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_does_not_depend_on_the_batch(tokenizer: Any, num_beams: int) -> None:
    model = toy_model("gpt2").eval()
    prompts = encode_pairs(tokenizer, PROMPTS, TARGETS, "clm").prompts
    together = generate_texts(model, tokenizer, prompts, num_beams=num_beams, max_new_tokens=6)
    alone = [generate_texts(model, tokenizer, [p], num_beams=num_beams, max_new_tokens=6)[0] for p in prompts]
    assert together == alone


def test_a_prompt_that_fills_the_context_says_nothing(tokenizer: Any) -> None:
    model = toy_model("gpt2", max_length=16).eval()
    said = generate_texts(model, tokenizer, [[5] * 16, [5] * 14, []], max_new_tokens=6)
    assert said[0] == said[2] == ""
    assert len(tokenizer(said[1]).input_ids) <= 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_scores_match_those_of_the_cpu(tokenizer: Any) -> None:
    model = toy_model("gpt2").eval()
    pairs = encode_pairs(tokenizer, PROMPTS, TARGETS, "clm")
    on_cpu = score_causal_pairs(model, pairs)
    np.testing.assert_allclose(score_causal_pairs(model.to("cuda"), pairs), on_cpu, rtol=1e-3, atol=1e-3)
