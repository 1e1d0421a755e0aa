"""The worked document of ``rust_ext/src/tokenize/DESIGN.md`` is what the code makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from fixtures.tokenizer_kinds import tokenizer_json
from tokenizers import Tokenizer

from reticent import _rust
from reticent.engine.schema import DIRECT, INDIRECT

PAGE = Path(__file__).parents[2] / "rust_ext/src/tokenize/DESIGN.md"


def test_the_document_of_the_page_has_these_tokens_and_bits() -> None:
    lines = PAGE.read_text(encoding="utf-8").split("```text one-document\n")[1].split("```")[0].splitlines()
    told = {name: rest.strip() for name, _, rest in (line.partition(" ") for line in lines)}
    texts = pa.array([told["text"]], pa.large_string())
    words = _rust.segment(texts)
    starts, ends = words.char_spans(texts)
    found = [told["text"][a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    assert found == told["words"].split()
    marks = [np.array([told["text"].index(name) + more for name, more in chosen], dtype=np.int32) for chosen in (
        (("Smith", 0), ("12/05", 0)), (("Smith", 5), ("12/05", 5))
    )]  # fmt: skip
    marked = _rust.mark_spans(texts, words, np.array([0, 2]), *marks)
    flags = marked.mask * np.uint8(DIRECT)
    flags[found.index("b")] |= INDIRECT
    tokenizer = tokenizer_json("WordPiece, uncased")
    packed = _rust.TokenEncoder(tokenizer).pack(texts, words, flags, np.zeros_like(flags), gaps=marked.gaps)
    tokens = Tokenizer.from_str(tokenizer).encode(told["text"], add_special_tokens=False).tokens
    assert told["token"].split() == tokens
    for name in ("begins", "outside", "direct", "indirect"):
        bits = np.unpackbits(getattr(packed, name), count=len(tokens), bitorder="little")
        assert told[name].split() == [str(bit) for bit in bits.tolist()]
    assert len(packed.exceptions) == 0
