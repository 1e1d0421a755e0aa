"""ContextWords: a public pool as tokens, and the check that no identifying word is read.

Made once for a training, from a tokenizer, a pool (:mod:`reticent.engine.public_words`) and the index that protects; a
batch is then work on numbers (:mod:`reticent.engine.context_kernels`). It holds which words identify, so it is as
secret as the index, and nothing of it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.core.json_toml import parse_json
from reticent.engine.context_kernels import NUM_KINDS, draw_surrogates, kind_of_word

if TYPE_CHECKING:
    from reticent._rust import ReadWords
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.public_words import PublicWords

__all__ = ["ContextWords", "Replaced", "context_words"]

#: A word of more tokens has no surrogate.
MAX_TOKENS = 32
#: A kind with fewer words of a length shares those of the other kinds.
FEWEST_WORDS = 8


@dataclass(frozen=True, slots=True)
class Replaced:
    """Inputs of a batch with public words in them, int64 (B, T), and counts: words replaced, of these filled for want
    of a public word of their length, and words put in that happen to identify.
    """

    input_ids: np.ndarray
    num_words: int
    num_filled: int
    num_coincidences: int


@dataclass(frozen=True, slots=True)
class ContextWords:
    """Public words by kind and number of tokens; see `draw_surrogates` for the arrays.

    Attributes
    ----------
    source, digest : where the pool is from, and its fingerprint
    fill : id that stands for each token of a word that has no surrogate
    reader : words that identify, as the tokenizer spells them
    """

    source: str
    digest: str
    fill: int
    reader: ReadWords
    classes: np.ndarray
    first: np.ndarray
    count: np.ndarray
    entries: np.ndarray
    pool: np.ndarray
    is_rare: np.ndarray
    fill_is_rare: np.ndarray

    def blank(self) -> ContextWords:
        """Return the same without any public word: every word is filled (``context_indirect = "tag"``)."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return ContextWords(**{**values, "count": np.zeros_like(self.count)})

    def replace(
        self,
        input_ids: np.ndarray,
        word_ids: np.ndarray,
        replaced: np.ndarray,
        windows: np.ndarray,
        *,
        seed: int,
        epoch: int,
    ) -> Replaced:
        """Return a batch with another word in the place of each that is ``replaced`` (bool, (B, T))."""
        out = np.empty_like(input_ids)
        counts = draw_surrogates(
            input_ids, word_ids, replaced, windows, self.classes, self.first, self.count, self.entries, self.pool,
            self.is_rare, self.fill, self.fill_is_rare, seed, epoch, out,
        )  # fmt: skip
        return Replaced(out, *map(int, counts))

    def count_read(self, input_ids: np.ndarray, word_ids: np.ndarray, skipped: np.ndarray) -> int:
        """Return how many words of a batch identify, by their characters; words with a ``skipped`` token are none."""
        return self.reader.count(
            np.ascontiguousarray(input_ids, dtype=np.int64),
            np.ascontiguousarray(word_ids, dtype=np.int32),
            np.ascontiguousarray(skipped, dtype=np.bool_),
        )


def context_words(
    tokenizer_json: str,
    pool: PublicWords,
    index: NgramIndex | None,
    k: int,
    *,
    also_shared: Sequence[str] = (),
    num_threads: int = 0,
) -> ContextWords:
    """Return a pool as tokens of a tokenizer, and the words that fewer than ``k`` units of ``index`` use.

    Without an index no input can be held to it.

    Parameters
    ----------
    also_shared : words that stand in the text for others, and so identify no individual: ``X`` in pseudonymised text

    Raises
    ------
    PolicyError
        No word of the pool can be written with this tokenizer.

    Cost: encoding every distinct word of the index and a hundred thousand of the pool; some microseconds each.
    """
    from reticent import _rust

    words = pa.array([], pa.string()) if index is None else index.words().column("word")
    supports = np.zeros(0, np.int64) if index is None else index.words().column("support").to_numpy()
    surface = "exact" if index is None else index.surface
    is_rare = np.append(supports < k, np.zeros(len(also_shared), bool)).astype(np.uint8)
    words = pa.concat_arrays([words, pa.array(also_shared, words.type)])
    reader = _rust.ReadWords(tokenizer_json, words, is_rare, surface=surface, num_threads=num_threads)
    classes = reader.classes()
    ids, starts, lengths = _encoded(tokenizer_json, pool, reader.unknown, num_threads)
    if not len(starts):
        raise PolicyError(
            f"surrogates.pool: no word of {pool.source} can be written with this tokenizer; choose another"
        )
    kinds = np.array([kind_of_word(classes, ids, a, a + n) for a, n in zip(starts, lengths, strict=True)])
    first, count, chosen = _by_kind(kinds, lengths)
    rare = reader.is_rare(ids.astype(np.uint32), np.append(starts, starts[-1] + lengths[-1]).astype(np.int64))
    fill = _fill(tokenizer_json, reader.unknown, ids, starts, lengths)
    filled = np.full(MAX_TOKENS * (MAX_TOKENS + 1) // 2, fill, np.uint32)  # once, twice, …
    fill_is_rare = reader.is_rare(filled, np.cumsum(np.arange(MAX_TOKENS + 1)))
    return ContextWords(
        pool.source, pool.digest(), fill, reader, classes, first, count, starts[chosen], ids, rare[chosen],
        np.append(np.uint8(0), fill_is_rare),
    )  # fmt: skip


def _encoded(
    tokenizer_json: str, pool: PublicWords, unknown: int | None, num_threads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tokens of each word, after a space and after a line's end, in lower, upper and mixed case; each run once.

    Returns ids, and first token and number of tokens of each run; runs follow each other.
    """
    from reticent import _rust

    spelt = dict.fromkeys(form for word in pool.words for form in (word, word.lower(), word.capitalize(), word.upper()))
    forms = [form for form in spelt if not any(character.isspace() for character in form)]
    texts = pa.array([f"a{gap}{form}" for gap in (" ", "\n") for form in forms], pa.large_string())
    words = _rust.segment(texts, num_threads=num_threads)
    none = np.zeros(words.num_words, dtype=np.uint8)
    tokens = _rust.TokenEncoder(tokenizer_json, num_threads=num_threads).encode(texts, words, none, none)
    whole = np.diff(words.doc_offsets) == 2  # a form of several words would not be one
    runs: dict[tuple[int, ...], None] = {}
    for document in np.flatnonzero(whole):
        own = slice(*tokens.doc_offsets[document : document + 2])
        found = tuple(tokens.input_ids[own][tokens.word_ids[own] == 1].tolist())
        if 0 < len(found) <= MAX_TOKENS and unknown not in found:
            runs[found] = None
    lengths = np.array([len(run) for run in runs], dtype=np.int64)
    ids = np.array([number for run in runs for number in run], dtype=np.int64)
    return ids, np.cumsum(lengths) - lengths, lengths


def _by_kind(kinds: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the words of each kind and length stand in a list, how many there are, and the list (numbers of words)."""
    first, count = (np.zeros((NUM_KINDS, MAX_TOKENS + 1), dtype=np.int64) for _ in range(2))
    chosen: list[np.ndarray] = []
    total = 0
    for length in range(1, MAX_TOKENS + 1):
        of_length = np.flatnonzero(lengths == length)
        for kind in range(NUM_KINDS):
            own = of_length[kinds[of_length] == kind]
            if len(own) < FEWEST_WORDS:  # any form, with the same space; then any
                own = of_length[kinds[of_length] // 4 == kind // 4]
            if len(own) < FEWEST_WORDS:
                own = of_length
            first[kind, length], count[kind, length] = total, len(own)
            chosen.append(own)
            total += len(own)
    return first, count, np.concatenate(chosen).astype(np.int64)


def _fill(tokenizer_json: str, unknown: int | None, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> int:
    """The id of no word: the unknown token, or the mask token, or the first word of the pool that is one token."""
    if unknown is not None:
        return unknown
    added = {token["content"]: int(token["id"]) for token in parse_json(tokenizer_json).get("added_tokens") or ()}
    for name in ("[UNK]", "<unk>", "[MASK]", "<mask>"):
        if name in added:
            return added[name]
    single = np.flatnonzero(lengths == 1)
    return int(ids[starts[single[0]] if len(single) else 0])
