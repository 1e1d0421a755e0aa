"""Making a ``tokenizer.json`` from plain vocabulary files of BERT or GPT-2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reticent.core.errors import ArtifactError
from reticent.core.json_toml import parse_json

BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "<|endoftext|>"


def wordpiece_tokenizer_json(vocab_path: Path | str, *, lowercase: bool = False) -> str:
    """Return the text of a BERT ``tokenizer.json`` for the vocabulary file ``vocab.txt``; ``lowercase``: an uncased
    model, without accents."""
    vocabulary = {token: number for number, token in enumerate(_read_lines(vocab_path))}
    missing = [token for token in BERT_SPECIALS if token not in vocabulary]
    if missing:
        raise ArtifactError(f"{vocab_path}: no token {missing[0]}")
    model = {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": _sort_by_id(vocabulary),
    }  # fmt: skip
    ends = {name: [token, vocabulary[token]] for name, token in (("sep", "[SEP]"), ("cls", "[CLS]"))}
    cleaned = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": lowercase}
    return _make_json(
        [(vocabulary[token], token) for token in BERT_SPECIALS],
        normalizer={"type": "BertNormalizer", **cleaned},
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor={"type": "BertProcessing", **ends},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        model=model,
    )


def bytelevel_tokenizer_json(vocab_path: Path | str, merges_path: Path | str) -> str:
    """Return the text of a GPT-2 ``tokenizer.json`` for the vocabulary files ``vocab.json`` and ``merges.txt``."""
    try:
        vocabulary = parse_json(Path(vocab_path).read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{vocab_path}: not a readable vocabulary ({type(error).__name__})") from None
    pairs = [line.split(" ") for line in _read_lines(merges_path) if line and not line.startswith("#version")]
    wrong = [number for number, pair in enumerate(pairs) if len(pair) != 2 or "".join(pair) not in vocabulary]
    if wrong:
        raise ArtifactError(f"{merges_path}: merge {wrong[0] + 1} is not two tokens that make one of {vocab_path}")
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": _sort_by_id(vocabulary), "merges": pairs,
    }  # fmt: skip
    options = {"trim_offsets": True, "use_regex": True}
    return _make_json(
        [(vocabulary.get(END, len(vocabulary)), END)],
        normalizer=None,
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, **options},
        post_processor=None,
        decoder={"type": "ByteLevel", "add_prefix_space": True, **options},
        model=model,
    )


def _sort_by_id(vocabulary: dict[str, int]) -> dict[str, int]:
    """Return a vocabulary (token -> id) sorted by id."""
    return dict(sorted(vocabulary.items(), key=lambda item: item[1]))


def _make_json(special: list[tuple[int, str]], **parts: Any) -> str:
    """Return the text of a ``tokenizer.json`` with these parts, formatted as the tokenizers library does."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": number, "content": token, **plain} for number, token in sorted(special)]
    content = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _read_lines(path: Path | str) -> list[str]:
    """Return the lines of a vocabulary file; `ArtifactError` if it cannot be read."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path}: not a readable vocabulary ({type(error).__name__})") from None
    return lines if lines[-1] else lines[:-1]  # the last line may lack its newline
