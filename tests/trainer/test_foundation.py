"""Stand-ins for a foundation model: nothing of a member in the vocabulary, the same weights for the same seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fixtures.drawing import examples
from fixtures.models import PUBLIC_TEXT, toy_model, toy_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import PolicyError
from reticent.engine.split import open_individuals
from reticent.job.config import parse_job
from reticent.job.pipeline import Stage, run_stages
from reticent.job.run import Run
from reticent.job.stages.foundation import foundation_steps
from reticent.job.stages.split import split_steps
from reticent.trainer.foundation import ALPHABET, BERT_SPECIALS, new_model, train_tokenizer
from reticent.trainer.models import load_tokenizer

KINDS: list[Any] = ["wordpiece", "bytelevel"]
#: A thousand different words.
LONG_TEXT = [
    f"{a}{b}{c}" for a in ("car", "neu", "hep", "der", "gas") for b in ("dio", "ro", "ato", "ma", "tri") for c in (
        "logist", "pathy", "logy", "gram", "scopy", "itis", "algia", "ectomy", "stomy", "plasty"
    )
] * 2  # fmt: skip


def vocabulary(tokenizer_json: str) -> dict[str, int]:
    return json.loads(tokenizer_json)["model"]["vocab"]


# ------------------------------------------------------------------ tokenizers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab_size", [400, 570])
def test_a_vocabulary_has_the_size_asked_for(kind: Any, vocab_size: int) -> None:
    tokenizer = train_tokenizer([LONG_TEXT], kind, vocab_size)
    assert len(vocabulary(tokenizer)) == len(load_tokenizer(tokenizer)) == vocab_size
    assert sorted(vocabulary(tokenizer).values()) == list(range(vocab_size))


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_text_makes_a_small_vocabulary_and_no_error(kind: Any) -> None:
    assert len(vocabulary(train_tokenizer([["a b"]], kind, 4000))) < 700
    assert len(vocabulary(train_tokenizer([], kind, 4000))) < 700


@pytest.mark.parametrize("kind", KINDS)
def test_equal_texts_make_equal_tokenizers_however_they_are_batched(kind: Any) -> None:
    whole = train_tokenizer([LONG_TEXT], kind, 550)
    assert train_tokenizer([LONG_TEXT], kind, 550) == whole
    assert train_tokenizer([LONG_TEXT[:70], LONG_TEXT[70:]], kind, 550) == whole
    assert train_tokenizer([LONG_TEXT[:70]], kind, 550) != whole


def test_special_tokens_of_bert_come_first_and_dress_a_text() -> None:
    tokenizer = load_tokenizer(toy_tokenizer("bert"))
    assert tokenizer.convert_ids_to_tokens(list(range(5))) == BERT_SPECIALS
    ids = tokenizer("the patient")["input_ids"]
    assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id) == (2, 3)
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id) == (0, 1, 4)


def test_gpt2_has_one_special_token_and_adds_none() -> None:
    tokenizer = load_tokenizer(toy_tokenizer("gpt2"))
    assert tokenizer.all_special_tokens == ["<|endoftext|>"]
    assert tokenizer.bos_token_id == tokenizer.eos_token_id == tokenizer.pad_token_id == 0
    assert tokenizer.mask_token_id is None
    assert 0 not in tokenizer("the patient")["input_ids"]


@settings(max_examples=examples(200))
@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=30))
def test_bytelevel_tokens_keep_any_text(text: str) -> None:
    tokenizer = load_tokenizer(toy_tokenizer("gpt2"))
    if "<|endoftext|>" not in text:
        assert tokenizer.decode(tokenizer(text)["input_ids"], clean_up_tokenization_spaces=False) == text


@settings(max_examples=examples(100))
@given(st.text(st.sampled_from([c for c in ALPHABET if c.isalnum()]), min_size=1, max_size=15))
def test_any_word_of_latin_letters_and_digits_is_spelt_without_unknown_tokens(word: str) -> None:
    tokenizer = load_tokenizer(toy_tokenizer("bert"))
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert "".join(piece.removeprefix("##") for piece in tokenizer.convert_ids_to_tokens(ids)) == word


def test_case_is_kept() -> None:
    for kind in ("bert", "gpt2"):
        tokenizer = load_tokenizer(toy_tokenizer(kind))
        assert tokenizer("Pain")["input_ids"] != tokenizer("pain")["input_ids"]


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(PolicyError, match="wordpiece or bytelevel"):
        train_tokenizer([PUBLIC_TEXT], "unigram")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="bert or gpt2"):
        new_model("llama", toy_tokenizer("gpt2"))  # type: ignore[arg-type]


# ------------------------------------------------------------------ no private word


def spelling(piece: str) -> str:
    return piece.removeprefix("##").removeprefix("Ġ")


@settings(max_examples=25)
@given(st.lists(st.text("abcdefg", min_size=2, max_size=8), min_size=1, max_size=30), st.sampled_from(KINDS))
def test_every_piece_of_a_vocabulary_stands_in_the_text_it_was_trained_on(words: list[str], kind: Any) -> None:
    pieces = {spelling(piece) for piece in vocabulary(train_tokenizer([words * 3], kind, 4000))}
    longer = {piece for piece in pieces if len(piece) > 1} - {*BERT_SPECIALS, "<|endoftext|>"}
    assert set(words) <= longer  # frequent words are whole tokens: the test below could fail
    assert all(any(piece in word for word in words) for piece in longer)


def hospital(folder: Path) -> Path:
    """Sixty individuals, each with one word that no other has, three times in the text."""
    rows = [
        {"doc_id": f"d{i}", "individual_id": f"p{i}", "text": f"the patient {name(i)} has pain , {name(i)} {name(i)}"}
        for i in range(60)
    ]
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    return folder


def name(number: int) -> str:
    return "Qu" + "".join("bcdfghjklm"[int(digit)] + "aeiouaeiou"[int(digit)] for digit in f"{number:03d}") + "x"


@pytest.mark.parametrize(("kind", "objective", "recipe"), [("bert", "mlm", "ppmlm"), ("gpt2", "clm", "ppclm")])
def test_no_word_of_a_member_stands_in_the_vocabulary_of_a_reference_foundation(
    kind: str, objective: str, recipe: str, tmp_path: Path
) -> None:
    source = hospital(tmp_path / "hospital")
    foundation = {
        "kind": kind, "text": "reference", "vocab_size": 3000, "hidden_size": 16, "num_layers": 1, "num_epochs": 1,
    }  # fmt: skip
    job = parse_job(
        {
            "out": str(tmp_path / "run"),
            "corpus": {"source": str(source)},
            "split": {"heldout": 0.3, "reference": 0.3},
            "model": [{"name": "toy", "foundation": foundation, "objective": objective, "recipes": [recipe]}],
            "train": {"window_length": 32, "device": "cpu"},
        }
    )
    run = Run(job)
    run.recover()
    run_stages(run, [Stage("split", split_steps), Stage("foundation", foundation_steps)])
    individuals = open_individuals(tmp_path / "run" / "split")
    text = (tmp_path / "run" / "foundation" / "toy" / "model" / "tokenizer.json").read_text(encoding="utf-8")
    whole = {spelling(piece) for piece in vocabulary(text)}
    table = pq.read_table(tmp_path / "run" / "split" / "individuals.parquet")
    split_of = dict(zip(table.column("individual_id").to_pylist(), table.column("split").to_pylist(), strict=True))
    names = {split: {name(i) for i in range(60) if split_of[f"p{i}"] == split} for split in set(split_of.values())}
    assert names.keys() == {"members", "heldout", "reference"}
    assert names["reference"] <= whole
    assert not (names["members"] | names["heldout"]) & whole
    longest = {piece for piece in whole if len(piece) > 4 and piece.startswith("Qu")}
    assert all(any(piece in word for word in names["reference"]) for piece in longest)
    assert int(individuals.mask("members").sum()) == len(names["members"])


def test_a_foundation_is_trained_on_the_device_and_in_the_precision_of_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = hospital(tmp_path / "hospital")
    model = {"objective": "clm", "recipes": ["clm"], "train": {"bf16": "on"}}
    job = parse_job(
        {
            "out": str(tmp_path / "run"),
            "corpus": {"source": str(source)},
            "model": [{**model, "name": "toy", "foundation": {"kind": "gpt2", "text": str(source), "vocab_size": 300}}],
            "train": {"window_length": 32, "device": "cpu"},
        }
    )
    asked = []

    def stop(model: Any, store: Any, recipe: Any, config: Any, *more: Any, **named: Any) -> None:
        asked.append((config.device, config.bf16))
        raise InterruptedError

    monkeypatch.setattr("reticent.trainer.loop.train", stop)
    run = Run(job)
    run.recover()
    with pytest.raises(InterruptedError):
        run_stages(run, [Stage("foundation", foundation_steps)])
    assert asked == [("cpu", "on")]


def test_one_vocabulary_in_lower_case_and_as_it_is_makes_two_foundations(tmp_path: Path) -> None:
    source = hospital(tmp_path / "hospital")
    found = []
    for name in ("words", "cased", "uncased"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text("\n".join([*BERT_SPECIALS, "pain"]))
        foundation = {"kind": "bert", "text": str(source), "vocabulary": str(tmp_path / name)}
        model = {"name": "toy", "foundation": foundation, "objective": "mlm", "recipes": ["mlm"]}
        run = Run(parse_job({"out": str(tmp_path / "run"), "corpus": {"source": str(source)}, "model": [model]}))
        (step,) = foundation_steps(run)
        found += [(artefact.settings, artefact.inputs) for artefact in step.outputs]
    assert found[0] == found[1] != found[2]


# ------------------------------------------------------------------ models


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_new_model_is_a_function_of_its_seed(kind: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = toy_model(kind, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = toy_model(kind, seed=3).state_dict(), toy_model(kind, seed=4).state_dict()
    assert all(torch.equal(one[name], again[name]) for name in one)
    random = [name for name in one if one[name].ndim == 2]
    assert random
    assert not any(torch.equal(one[name], other[name]) for name in random)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_new_model_has_the_shape_asked_for(kind: Any) -> None:
    tokenizer = toy_tokenizer(kind)
    model: Any = new_model(kind, tokenizer, hidden_size=24, num_layers=3, num_heads=4, max_length=40)
    rows = len(load_tokenizer(tokenizer))
    assert model.get_input_embeddings().weight.shape == (rows, 24)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight  # tied
    layers = model.base_model.encoder.layer if kind == "bert" else model.base_model.h
    assert len(layers) == model.config.num_hidden_layers == 3
    assert model.config.num_attention_heads == 4
    assert model.config.max_position_embeddings == 40
    assert model.config._attn_implementation == "sdpa"
    ids = torch.zeros((1, 40), dtype=torch.long)
    assert model(input_ids=ids).logits.shape == (1, 40, rows)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_new_model_has_no_dropout(kind: str) -> None:
    model = toy_model(kind).train()
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)
