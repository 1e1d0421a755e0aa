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

from reticent.engine.oracle.protection import DocumentWords, Seen, integer_codes
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
        """Return each distinct spelling in the form in which words are compared: unchanged, case-folded or fully
        normalised, as ``surface`` says ("exact", "casefold" or "fold")."""
        return _normalise_words(list(self), surface)

    def visible_forms(self, surface: str) -> Seen:
        """Return an integer code for each distinct spelling, the same for spellings that differ in invisible characters
        only, and properties of the spelling without these. ``surface`` says how spellings are normalised ("exact",
        "casefold" or "fold")."""
        surfaces = self.seen_surfaces(surface)
        spreads = [_NUMBER.fullmatch(word) is None for word in surfaces]
        own = [*map(operator.eq, surfaces, self.surfaces(surface))]
        small = [surface == "exact" and _SMALL.fullmatch(word) is not None for word in surfaces]
        return Seen(integer_codes(surfaces), *(np.array(each, dtype=bool) for each in (spreads, own, small)))

    def seen_surfaces(self, surface: str) -> list[str]:
        """Return for each spelling of the table the form in which it is compared with others: without invisible
        characters and, as ``surface`` says, otherwise unchanged ("exact"), case-folded ("casefold") or fully normalised
        ("fold")."""
        return _normalise_words([IGNORABLE.sub("", word) for word in self], surface)


def read_words(texts: list[str], table: WordTable) -> DocumentWords:
    """Return the words of documents, with their positions and with spellings numbered by ``table``."""
    joined = "\n".join(texts)
    starts, ends = word_bounds(joined)
    words = [joined[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    spellings = np.fromiter(map(table.__getitem__, words), dtype=np.int32, count=len(words))
    bases = np.cumsum([0, *(len(text) + 1 for text in texts)], dtype=np.int64)
    return DocumentWords(spellings, starts, ends, np.searchsorted(starts, bases), bases)


def _normalise_words(words: list[str], surface: str) -> list[str]:
    """Return the words in the normalised form "exact", "casefold" or "fold"."""
    if surface == "exact":
        return _unicode_normalise(words, "NFC")
    if surface == "casefold":
        return [_casefold(word) for word in _unicode_normalise(words, "NFC")]
    assert surface == "fold"
    folded = [_casefold(IGNORABLE.sub("", word)) for word in _unicode_normalise(words, "NFKC")]
    return [_MARKS.sub("", word).translate(LOOK_ALIKE) for word in _unicode_normalise(folded, "NFD")]


def _unicode_normalise(words: list[str], form: Literal["NFC", "NFKC", "NFD"]) -> list[str]:
    """Return the words in a Unicode normalisation form."""
    return pc.utf8_normalize(pa.array(words, pa.large_string()), form).to_pylist()


def _casefold(word: str) -> str:
    """Return the word lower-cased character by character, by way of upper case, so that a final sigma and ß have no
    form of their own."""
    return "".join(c.lower() for c in word.replace("ẞ", "ß").upper())
