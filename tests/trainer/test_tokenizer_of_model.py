"""One tokenizer makes the tokens, is saved and is asked by attacks: the ``tokenizer.json`` of the base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import random_store
from fixtures.tokenizer_kinds import LINES, tokenizer_json
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoTokenizer

from reticent.core.errors import ArtifactError, TrainingError
from reticent.trainer.base_files import checked_tokenizer_json, differing_parts
from reticent.trainer.export import write_model
from reticent.trainer.models import check_fit, load_tokenizer, special_ids
from reticent.trainer.recipes import get_recipe
from reticent.trainer.tokenizer_of_model import tokenizer_json_of, tokenizer_notices

SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False, **SPECIAL}
END = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
#: Kind of the file, type of the model, its tokenizer_config.json, and the parts in which transformers builds another.
LAYOUTS: dict[str, tuple[str, str, dict[str, Any] | None, set[str]]] = {
    "cased, no config": ("WordPiece, cased", "bert", None, {"normalizer"}),
    "cased, no do_lower_case": ("WordPiece, cased", "electra", {"tokenizer_class": "ElectraTokenizer"}, {"normalizer"}),
    "uncased, config cased": ("WordPiece, uncased", "bert", {"do_lower_case": False}, {"normalizer"}),
    "uncased": ("WordPiece, uncased", "bert", {"do_lower_case": True}, set()),
    "prefix space in the config": ("byte-level BPE", "gpt2", {"add_prefix_space": True, **END}, {"pre_tokenizer"}),
    "prefix space in the file": ("byte-level, prefix space", "roberta", END, {"pre_tokenizer"}),
    "own normaliser": ("NFD, no accents", "gpt2", END, {"normalizer", "pre_tokenizer", "model"}),
    "Llama without a prefix": ("BPE, byte fallback", "llama", LLAMA, {"normalizer"}),
    "its own class": ("Llama 3 split", "llama", {"tokenizer_class": "PreTrainedTokenizerFast", **END}, set()),
}


def layout(name: str, folder: Path) -> tuple[Path, str, set[str]]:
    """Write the folder of a layout; returns it with its ``tokenizer.json`` and the parts that differ."""
    kind, model_type, config, parts = LAYOUTS[name]
    folder.mkdir()
    AutoConfig.for_model(model_type, vocab_size=600).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(text := tokenizer_json(kind))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder, text, parts


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_file_that_makes_the_tokens_is_saved_and_asked(name: str, tmp_path: Path) -> None:
    base, text, _ = layout(name, tmp_path / "base")
    assert tokenizer_json_of(base) == text
    loaded, checkpoint = load_tokenizer(base), tmp_path / "checkpoint"
    model = toy_model("bert")
    model.resize_token_embeddings(600)
    write_model(model, loaded, checkpoint, recipe=get_recipe("mlm"), epoch=1)
    shutil.copyfile(base / "config.json", checkpoint / "config.json")
    again = load_tokenizer(checkpoint)
    made = Tokenizer.from_str(text)
    for line in (*LINES[:3], "Élie Müller saw  DR. QUIB", " x"):
        wanted = made.encode(line, add_special_tokens=False).ids
        for asked in (loaded, again, AutoTokenizer.from_pretrained(checkpoint)):
            assert asked(line, add_special_tokens=False).input_ids == wanted
    for own in (again, AutoTokenizer.from_pretrained(checkpoint)):
        assert (own.special_tokens_map, own.model_input_names) == (loaded.special_tokens_map, loaded.model_input_names)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_difference_from_what_transformers_builds_is_named(name: str, tmp_path: Path) -> None:
    base, text, parts = layout(name, tmp_path / "base")
    said = [notice for notice in tokenizer_notices(base, text) if "transformers builds another" in notice]
    assert len(said) == bool(parts)
    assert all(part in said[0] for part in parts)


def test_tokens_of_another_normaliser_are_refused_by_its_name(tmp_path: Path) -> None:
    store = random_store(4, length=5)
    own = json.loads(toy_tokenizer("bert"))
    own["normalizer"]["lowercase"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(own))
    store.path, tokenizer = tmp_path, load_tokenizer(toy_tokenizer("bert"))
    with pytest.raises(TrainingError, match="normalizer of tokenizer"):
        check_fit(toy_model("bert"), store, tokenizer, special_ids(tokenizer, "mlm"), 16)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_tokenizer_that_draws_is_refused(share: float, tmp_path: Path) -> None:
    content = json.loads(tokenizer_json("byte-level BPE"))
    content["model"]["dropout"] = share
    with pytest.raises(ArtifactError, match="dropout"):
        checked_tokenizer_json(json.dumps(content), "tokenizer.json")


CASED = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "Anna",
    "Paris",
    "Monday",
    "saw",
    "été",
    "in",
    "on",
    "##ée",
    "an",
]


@pytest.mark.parametrize(
    ("pieces", "config", "said"),
    [
        (CASED, None, "capitals or accents"),
        (CASED, {"do_lower_case": False}, None),
        (CASED, {"do_lower_case": True, "strip_accents": False}, "capitals, and"),
        ([piece for piece in CASED if piece.isupper() or (piece.islower() and piece.isascii())], None, None),
    ],
)
def test_a_vocabulary_with_capitals_that_are_never_read_is_said(
    pieces: list[str], config: dict[str, Any] | None, said: str | None, tmp_path: Path
) -> None:
    AutoConfig.for_model("bert", vocab_size=len(pieces)).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    notices = list(tokenizer_notices(tmp_path, tokenizer_json_of(tmp_path)))
    assert [said in notice for notice in notices] == ([True] if said else [])


def test_parts_of_an_older_library_are_the_same() -> None:
    text = tokenizer_json("byte-level BPE")
    older = json.loads(text)
    older["model"].pop("ignore_merges")
    older["model"]["merges"] = [" ".join(merge) for merge in older["model"]["merges"]]
    assert differing_parts(text, json.dumps(older)) == []
