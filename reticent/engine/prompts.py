"""Prompts in the form of the training text: identifying words are replaced by public ones.

A model that was trained with surrogates in the context (definitions.md#training) has read no identifying word of a
document. Whoever prompts it with one gives the word to it. `PromptNormaliser` does to a prompt what training did to the
context of indirect identifiers: a word that fewer than k individuals use, or none, is replaced by a word of the
public pool of the same form. Direct identifiers are the business of detectors (`pseudonymise_batch`, the guard).

It holds which words identify: it is as secret as the index, and belongs where the documents are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.ngrams import NgramIndex
from reticent.engine.public_words import PublicWords


@dataclass(frozen=True, slots=True)
class NormalisedPrompt:
    """A prompt with its identifying words replaced by public ones, and how many were replaced."""

    text: str
    num_replaced: int


class PromptNormaliser:
    """Replaces the identifying words of prompts; see `apply`.

    Parameters
    ----------
    pool : public words, those of the training for example
    index : the index that protected the training (with a noisy threshold, the noisy one)
    k : a word with fewer users identifies, and so does a word that the index does not know
    seed : of the draws; default: drawn by the system, so that equal prompts differ

    Raises
    ------
    PolicyError
        The index counts no word, or no word of the pool can be used.

    Memory: the common words of the index.
    """

    def __init__(self, pool: PublicWords, index: NgramIndex, k: int, *, seed: int | None = None):
        words = index.words()
        common = words.filter(pa.array(words.column("support").to_numpy() >= k)).column("word").to_pylist()
        if not words.num_rows:
            raise PolicyError("prompts: the index has no word; every word of a prompt would be replaced")
        self._common, self._surface = frozenset(common), index.surface
        self._random = np.random.default_rng(seed)
        self._pool: dict[int, list[str]] = {}
        for word in pool.words:
            for form in dict.fromkeys((word, word.lower(), word.capitalize(), word.upper())):
                if not any(character.isspace() for character in form):
                    self._pool.setdefault(_form(form), []).append(form)
        if not self._pool:
            raise PolicyError(f"prompts: no word of {pool.source} can stand in a prompt; choose another pool")

    def apply(self, texts: Sequence[str]) -> list[NormalisedPrompt]:
        """Return each text with every identifying word replaced by a public one, with the number of words replaced; all
        else is unchanged.

        A word of a form that the pool does not have (letters in lower case, a capital first, capitals, with digits)
        is replaced by one of another form. Cost: microseconds a word.
        """

        column = pa.array(list(texts), pa.large_string())
        words = _rust.segment(column)
        surfaces = pa.record_batch(words.surfaces(column)).column("word")
        counted = pa.record_batch(_rust.apply_surface(surfaces, surface=self._surface)).column("word").to_pylist()
        starts, ends = words.starts, words.ends
        result = []
        for number, text in enumerate(texts):
            raw, parts, last, num = text.encode(), [], 0, 0
            for at in range(*words.doc_offsets[number : number + 2]):
                if counted[at] in self._common:
                    continue
                start, end = int(starts[at]), int(ends[at])
                parts += [raw[last:start], self._draw_word(raw[start:end].decode()).encode()]
                last, num = end, num + 1
            result.append(NormalisedPrompt(b"".join([*parts, raw[last:]]).decode(), num))
        return result

    def _draw_word(self, word: str) -> str:
        """Return a random public word of the same case form as ``word``."""
        own = self._pool.get(_form(word)) or next(iter(self._pool.values()))
        return own[int(self._random.integers(len(own)))]


def _form(word: str) -> int:
    """Return the case form of a word: 0 with a digit, 1 lower case, 2 capitalised, 3 upper case."""
    if any(character.isdigit() for character in word):
        return 0
    if not word[:1].isupper():
        return 1
    return 2 if any(character.islower() for character in word) else 3
