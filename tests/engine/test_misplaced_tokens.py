"""Vocabularies that lack characters: whatever the library says of places, each token of a protected word is flagged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fixtures.cases import written_case
from fixtures.drawing import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.engine.protect import Policy
from tests.engine.test_text_check import checked, write

KNOWN, BY_BYTES, UNKNOWN = "ab ", "жé", "日本-"
BYTES = sorted({byte for c in BY_BYTES for byte in c.encode()} | set(b"#"))
PIECES = [*KNOWN, *(f"#{c}" for c in KNOWN), *(f"<0x{byte:02X}>" for byte in BYTES)]


def tokenizer(unknown: bool, fuse: bool, prefix: str) -> str:
    pieces = ["<unk>", *PIECES] if unknown else PIECES
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>" if unknown else None, "end_of_word_suffix": None}
    model |= {"continuing_subword_prefix": prefix or None, "fuse_unk": fuse, "byte_fallback": True, "merges": []}
    model |= {"vocab": {piece: number for number, piece in enumerate(pieces)}}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return json.dumps({"version": "1.0", "added_tokens": [], **parts, "model": model})


def kind(piece: str) -> str:
    return "unknown" if piece == "<unk>" else "bytes" if piece.startswith("<0x") else "known"


def places(text: str, fuse: bool, prefix: str) -> dict[str, Iterator[range]]:
    """The characters of each token, by kind: the library keeps the order among tokens of a kind."""
    found: dict[str, list[range]] = {"known": [], "bytes": [], "unknown": []}
    fused = False
    for at, c in enumerate(text):
        if c in KNOWN:
            found["known"].append(range(at, at + 1))
            fused = False
        elif c in BY_BYTES:
            found["bytes"] += [range(at, at + 1)] * (len(c.encode()) + len(prefix) * (at > 0))
        elif fused:
            found["unknown"][-1] = range(found["unknown"][-1].start, at + 1)
        else:
            found["unknown"].append(range(at, at + 1))
            fused = fuse
    return {name: iter(ranges) for name, ranges in found.items()}


@pytest.mark.parametrize("prefix", ["", "#"])
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
@settings(max_examples=examples(60))
@given(text=st.text(KNOWN + BY_BYTES + UNKNOWN, max_size=12))
@example(text="日ж a")
@example(text="a 日-ж本-é b")
def test_every_token_of_a_protected_word_is_flagged(unknown: bool, fuse: bool, prefix: str, text: str) -> None:
    json_text = tokenizer(unknown, fuse, prefix)
    pieces = ["<unk>", *PIECES] if unknown else PIECES
    column = pa.array([text], pa.large_string())
    words = _rust.segment(column)
    for word, (start, end) in enumerate(zip(*words.char_spans(column), strict=True)):
        flags = np.arange(words.num_words) == word
        encoder = _rust.TokenEncoder(json_text)
        tokens = encoder.encode(column, words, flags.astype(np.uint8), np.zeros(len(flags), dtype=np.uint8))
        of_kind = places(text, fuse, prefix)
        for i, flag in zip(tokens.input_ids, tokens.flags, strict=True):
            place = next(of_kind[kind(pieces[i])])
            assert flag or place.stop <= start or end <= place.start or text[place.start : place.stop].isspace()


@pytest.mark.parametrize("prefix", ["", "#"])
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
def test_the_text_check_knows_the_places(unknown: bool, fuse: bool, prefix: str, tmp_path: Path) -> None:
    documents = [("p0", "a b"), ("p2", "b a"), ("held", "a"), ("p0", "日ж a b"), ("p1", "«日ж|NAME» a -é b")]
    case = written_case(tmp_path, [*documents, ("p3", "a «ж|NAME»日 b")])
    policy = Policy(k=2, n=1)
    check = checked(case, write(case, "tokens", tokenizer(unknown, fuse, prefix), policy), policy)
    assert check.holds
    assert check.direct_characters > 0
