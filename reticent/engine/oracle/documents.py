"""Documents as read by the oracle: their words, and the words' surfaces (normalised forms).

Surfaces are made by pyarrow's Unicode tables and Python's own: a letter that is newer than these is its own.
"""

from __future__ import annotations

import operator
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from reticent.engine.oracle.protection import DocumentWords, Seen, numbers_of
from reticent.engine.oracle.words import IGNORABLE, word_bounds

#: Letters of two scripts that print like a Latin one, in lower case.
LOOK_ALIKE = str.maketrans("аαвсеεһіιјкκмоοрρѕтτуυхχν", "aabceehiijkkmooppsttyyxxv")
_MARKS = regex.compile(r"\p{M}")
_NUMBER = regex.compile(r"\p{N}{0,3}")
#: Small letters, and no capital.
_SMALL = regex.compile(r"\P{Uppercase}*\p{Lowercase}\P{Uppercase}*")


class WordTable(dict[str, int]):
    """Number of each distinct spelling of a word, assigned at first look-up."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number

    def surfaces(self, surface: str) -> list[str]:
        """Return the surface (exact, casefolded or folded form) of each spelling."""
        return _surfaces(list(self), surface)

    def seen(self, surface: str) -> Seen:
        """Return number and properties of the surface of each spelling's visible (not ignorable) part."""
        surfaces = self.seen_surfaces(surface)
        spreads = [_NUMBER.fullmatch(word) is None for word in surfaces]
        own = [*map(operator.eq, surfaces, self.surfaces(surface))]
        small = [surface == "exact" and _SMALL.fullmatch(word) is not None for word in surfaces]
        return Seen(numbers_of(surfaces), *(np.array(each, dtype=bool) for each in (spreads, own, small)))

    def seen_surfaces(self, surface: str) -> list[str]:
        """Return the surface of each spelling's visible part."""
        return _surfaces([IGNORABLE.sub("", word) for word in self], surface)


def read_words(texts: list[str], table: WordTable) -> DocumentWords:
    """Return the words of documents, with spellings numbered by ``table``."""
    joined = "\n".join(texts)
    starts, ends = word_bounds(joined)
    words = [joined[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    spellings = np.fromiter(map(table.__getitem__, words), dtype=np.int32, count=len(words))
    bases = np.cumsum([0, *(len(text) + 1 for text in texts)], dtype=np.int64)
    return DocumentWords(spellings, starts, ends, np.searchsorted(starts, bases), bases)


def _surfaces(words: list[str], surface: str) -> list[str]:
    if surface == "exact":
        return _normalised(words, "NFC")
    if surface == "casefold":
        return [_casefold(word) for word in _normalised(words, "NFC")]
    assert surface == "fold"
    folded = [_casefold(IGNORABLE.sub("", word)) for word in _normalised(words, "NFKC")]
    return [_MARKS.sub("", word).translate(LOOK_ALIKE) for word in _normalised(folded, "NFD")]


def _normalised(words: list[str], form: Literal["NFC", "NFKC", "NFD"]) -> list[str]:
    return pc.utf8_normalize(pa.array(words, pa.large_string()), form).to_pylist()


def _casefold(word: str) -> str:
    """Return the word lower-cased character by character: a final sigma is no other letter. ẞ is ß, and so SS."""
    return "".join(c.lower() for c in word.replace("ẞ", "ß").upper())
