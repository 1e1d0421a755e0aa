"""The languages of documents, told by their common words."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["LANGUAGES", "LanguageCount"]

#: Common words that none of the other languages has; all ASCII, since RE2 takes an accent for the end of a word.
_COMMON_WORDS: Final = {
    "de": "der die und das mit ist von nicht",
    "en": "the of and to with was for is",
    "es": "el los las por su sin y",
    "fr": "les des et une dans est du au",
    "it": "il di che della nel gli alla",
    "nl": "het een van met niet zijn voor",
    "pt": "da em uma com os ao dos",
}
LANGUAGES: Final = tuple(_COMMON_WORDS)
_PATTERNS: Final = {name: rf"\b(?:{'|'.join(words.split())})\b" for name, words in _COMMON_WORDS.items()}


class LanguageCount:
    """Counts the languages of documents by their common words, in a sample.

    The sample has the first 1,000 documents and one in 101 of the others, each up to its first 1,000 characters, so the
    result does not depend on batches.
    """

    def __init__(self) -> None:
        self._num_seen = 0
        self._documents = dict.fromkeys(LANGUAGES, 0)

    def add(self, texts: pa.Array) -> None:
        """Count further documents (strings, one a row)."""
        number = np.arange(self._num_seen, self._num_seen + len(texts))
        self._num_seen += len(texts)
        sample = texts.take(pa.array(np.flatnonzero((number < 1000) | (number % 101 == 0))))
        start = pc.utf8_lower(pc.utf8_slice_codeunits(sample, 0, 1000))
        hits = np.stack(
            [pc.count_substring_regex(start, pattern).to_numpy(zero_copy_only=False) for pattern in _PATTERNS.values()]
        )
        best = hits.argmax(axis=0)[hits.max(axis=0, initial=0) > 0]
        for place, num in enumerate(np.bincount(best, minlength=len(LANGUAGES))):
            self._documents[LANGUAGES[place]] += int(num)

    @property
    def most(self) -> str | None:
        """The language of most documents; of equals the first by its code; None where no document has a common word."""
        language = max(LANGUAGES, key=self._documents.__getitem__)
        return language if self._documents[language] else None
