"""Logits at chosen positions: the model's own, whatever its architecture does after the head."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fixtures.architectures import small_model
from fixtures.drawing import share_of
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from reticent.core.errors import ArtifactError
from reticent.core.progress import VARIABLE
from reticent.engine.detect.transformers import longest_input
from reticent.engine.randomness import generator
from reticent.trainer.models import lm_head, load_model, logits_at, max_positions, num_drawn

SMALL: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 32, "pad_token_id": 0, "eos_token_id": 1,
    "bos_token_id": 1,
}  # fmt: skip
#: Whether the head alone makes the logits.
CAUSAL = {"gpt2": True, "llama": True, "gemma2": False, "cohere": False, "granite": False, "gpt_neox": True}
MASKED = {"bert": True, "roberta": True, "distilbert": False, "electra": False}
MORE: dict[str, dict[str, Any]] = {
    "gemma2": {"final_logit_softcapping": 0.5},
    "cohere": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 8.0},
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16},
}
#: DistilBERT's configuration renames these of its own.
RENAMED = {"distilbert": {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}}


@pytest.mark.parametrize("kind", [*CAUSAL, *MASKED])
def test_logits_at_wanted_positions_are_the_models_own(kind: str) -> None:
    torch.manual_seed(0)
    given = {name: value for name, value in SMALL.items() if name not in RENAMED.get(kind, ())} | MORE.get(kind, {})
    auto: Any = AutoModelForCausalLM if kind in CAUSAL else AutoModelForMaskedLM
    model = auto.from_config(AutoConfig.for_model(kind, **given)).eval()
    for parameter in model.parameters():  # a fresh model's logits are too small for a cap to show
        parameter.data.mul_(4.0)
    ids = torch.randint(2, 40, (3, 7))
    wanted = torch.rand(3, 7) < 0.5
    with torch.no_grad():
        torch.testing.assert_close(logits_at(model, ids, None, wanted), model(input_ids=ids).logits[wanted])
    assert (lm_head(model) is not None) is {**CAUSAL, **MASKED}[kind]


#: Architectures without sdpa, and one with.
MASKED_KINDS = (
    "deberta", "deberta-v2", "longformer", "big_bird", "megatron-bert", "mpnet", "rembert", "nystromformer",
    "squeezebert", "convbert", "roformer", "flaubert", "xlm", "ibert", "bert",
)  # fmt: skip
CAUSAL_KINDS = ("gpt_neo", "gptj", "bloom", "mpt", "xglm", "gemma2", "openai-gpt", "mamba", "rwkv", "mixtral", "gpt2")


OF_KINDS = [*((kind, "mlm") for kind in MASKED_KINDS), *((kind, "clm") for kind in CAUSAL_KINDS)]


@pytest.mark.parametrize(("kind", "objective"), share_of(OF_KINDS, least=8))
def test_a_model_loads_with_the_attention_that_its_class_has(kind: str, objective: str, tmp_path: Path) -> None:
    made = small_model(kind, objective).eval()
    made.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, objective)
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(input_ids=ids).logits, made(input_ids=ids).logits, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "objective", "lacks"),
    [
        ("fnet", "mlm", "fnet does not leave the padding"),
        ("bert", "clm", "bert sees the tokens ahead"),
        ("electra", "clm", "electra sees the tokens ahead"),
        ("gpt2", "mlm", "cannot be loaded as a mlm model: gpt2 is none"),
        ("perceiver", "mlm", "perceiver has no embeddings of tokens"),
        ("jamba", "clm", "jamba cannot be run on rows of tokens alone"),
    ],
)
def test_other_models_are_refused_by_what_they_lack(kind: str, objective: str, lacks: str, tmp_path: Path) -> None:
    small_model(kind, "clm" if kind == "gpt2" else objective).save_pretrained(tmp_path)
    with pytest.raises(ArtifactError, match=lacks):
        load_model(tmp_path, objective)


@pytest.mark.parametrize("drawn", [True, False])
def test_a_head_drawn_at_random_is_said_once_and_as_a_line_of_the_log(
    drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model = small_model("bert", "mlm")
    (model.bert if drawn else model).save_pretrained(tmp_path)
    capfd.readouterr()
    monkeypatch.setenv(VARIABLE, "json")
    for _ in range(2):
        assert (num_drawn(load_model(tmp_path, "mlm")) > 0) == drawn
    said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["level"] for line in said] == ["warning"] * drawn
    assert all("drawn at random (cls.predictions" in line["message"] for line in said)


def test_a_model_in_training_stays_in_training() -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **SMALL)).train()
    logits_at(model, torch.ones(1, 2, dtype=torch.long), None, torch.ones(1, 2, dtype=torch.bool))
    assert model.training


PAST_THE_PADDING = [
    *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "mpnet"),
    *("data2vec-text", "esm", "ibert", "luke"),
]


READERS = [*PAST_THE_PADDING, "bert", "electra", "nystromformer", "opt", "biogpt"]


@pytest.mark.parametrize("kind", share_of(READERS, least=6))
def test_a_model_reads_as_many_tokens_as_it_is_said_to_and_not_one_more(kind: str) -> None:
    auto: Any = AutoModelForCausalLM if kind in ("opt", "biogpt") else AutoModelForMaskedLM
    given = {**SMALL, "pad_token_id": 1, "eos_token_id": 2, "attention_window": 8, "word_embed_proj_dim": 16}
    known = {name: value for name, value in given.items() if hasattr(AutoConfig.for_model(kind), name)}
    model = auto.from_config(AutoConfig.for_model(kind, **known)).eval()
    longest = max_positions(model)
    assert longest == (30 if kind in PAST_THE_PADDING else 32)
    with torch.no_grad():
        model(input_ids=torch.full((1, longest), 5))
        with pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, longest + 1), 5))
    assert longest_input(SimpleNamespace(model_max_length=512), model.config) == longest


@pytest.mark.parametrize("seed", [-1, 0, 2**63, 2**64 - 1, 2**64 + 5])
def test_every_seed_has_its_stream(seed: int) -> None:
    own = generator(seed, 3).integers(0, 2**62, 4).tolist()
    assert own == generator(seed, 3).integers(0, 2**62, 4).tolist()
    assert own != generator(seed + 1, 3).integers(0, 2**62, 4).tolist()
    assert own != generator(seed, 4).integers(0, 2**62, 4).tolist()
