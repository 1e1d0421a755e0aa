"""Which token meets which word, in a double loop over characters.

Ids and character offsets come from the Python library `tokenizers`, the bounds of words from the core in characters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
from fixtures.tokenizers import Trained

from oracles.word_rules import is_space
from reticent import _rust


@dataclass
class Aligned:
    ids: list[int]
    word_ids: list[int]
    flags: list[int]
    starts: list[int]
    met: list[set[int]]


def align(trained: Trained, text: str, flags: list[int], starts: list[int]) -> Aligned:
    array = pa.array([text], pa.large_string())
    froms, tos = (bounds.tolist() for bounds in _rust.segment(array).char_spans(array))
    encoding = trained.python.encode(text, add_special_tokens=False)
    ids = [trained.unknown if i in trained.special and trained.unknown is not None else i for i in encoding.ids]
    aligned = Aligned(ids, [], [], [], [])
    seen: set[int] = set()
    for a, b in encoding.offsets:
        met = {
            word
            for word, (start, end) in enumerate(zip(froms, tos, strict=True))
            if any(not is_space(text[i]) for i in range(max(a, start), min(b, end)))
        }
        aligned.met.append(met)
        aligned.word_ids.append(min(met, default=-1))
        aligned.flags.append(reduce(or_, (flags[w] for w in met), 0))
        aligned.starts.append(reduce(or_, (starts[w] for w in met - seen), 0))
        seen |= met
    return aligned


def words_of(text: str) -> int:
    return _rust.segment(pa.array([text])).num_words


def encode(trained: Trained, texts: list[str], flags: list[int], starts: list[int]) -> _rust.Tokens:
    array = pa.array(texts, pa.large_string())
    return trained.encoder.encode(
        array, _rust.segment(array), np.array(flags, dtype=np.uint8), np.array(starts, dtype=np.uint8)
    )


def check_alignment(trained: Trained, text: str, seed: int) -> Aligned:
    rng = np.random.default_rng(seed)
    flags, starts = (rng.integers(0, 4, words_of(text)).tolist() for _ in range(2))
    tokens = encode(trained, [text], flags, starts)
    expected = align(trained, text, flags, starts)
    assert tokens.input_ids.tolist() == expected.ids
    assert tokens.word_ids.tolist() == expected.word_ids
    assert tokens.flags.tolist() == expected.flags
    assert tokens.ngram_starts.tolist() == expected.starts
    assert tokens.doc_offsets.tolist() == [0, len(expected.ids)]
    return expected
