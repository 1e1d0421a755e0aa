"""Languages of documents, identified by common words: to choose surrogate names, and to count languages without
rules."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent import _rust

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
    """Counts documents by language, identified by common words, in a sample.

    The sample has the first 1,000 documents and one in 101 of the others, each up to its first 1,000 characters, so the
    result does not depend on batches.
    """

    def __init__(self) -> None:
        self._num_seen = 0
        self._documents = dict.fromkeys(LANGUAGES, 0)

    def add(self, texts: pa.Array) -> None:
        """Count the languages of further documents (strings, one a row)."""
        number = np.arange(self._num_seen, self._num_seen + len(texts))
        self._num_seen += len(texts)
        sample = texts.take(pa.array(np.flatnonzero((number < 1000) | (number % 101 == 0))))
        start = pc.utf8_lower(pc.utf8_slice_codeunits(sample, 0, 1000))
        hits = np.stack([_count_matches(start, pattern) for pattern in _PATTERNS.values()])
        best = hits.argmax(axis=0)[hits.max(axis=0, initial=0) > 0]
        for place, num in enumerate(np.bincount(best, minlength=len(LANGUAGES))):
            self._documents[LANGUAGES[place]] += int(num)

    @property
    def most(self) -> str | None:
        """Code of the language that most documents have; None if no common word of any language was found."""
        language = max(LANGUAGES, key=self._documents.__getitem__)
        return language if self._documents[language] else None


# ------------------------------------------------------------------------------------------------------ other languages

#: Common words of notes in each language, which other languages may have too: the language with the most is that of a
#: document. ASCII for the same reason.
_WORDS_OF_NOTES: Final = {
    "de": "der die und das mit ist von nicht den dem des ein eine im zu auf bei wurde wird am vom keine seit nach oder "
    "patient patientin",
    "en": "the of and to with was for is in on at no his her she he that this or from has had by be as not are pt left "
    "right patient history normal",
    "es": "el los las por su sin y de la que en con del se un una al no para como lo es fue paciente presenta",
    "fr": "les des et une dans est du au de la le un par pour en pas sur avec il elle qui ne sans chez patient "
    "patiente",
    "it": "il di che della nel gli alla e la per con del un una in non le si da i al paziente",
    "nl": "het een van met niet zijn voor de en is in op te bij geen wordt aan werd heeft patient",
    "pt": "da em uma com os ao dos de que e do para no na se um por foi as sem paciente",
    "ca": "amb els les del i de la que en un una per es al dels no pacient",
    "ro": "si cu este pe din pentru la de nu fara un o pacientul pacienta sau",
    "sv": "och att det som en av med inte till den har ett om var utan efter vid patienten",
    "no": "og at det som en av med ikke til den har et om er var uten etter ved pasienten i",
    "da": "og at det som en af med ikke til den har et om er var uden efter ved patienten i",
    "fi": "ja on ei oli ovat mutta kanssa tai potilas myos",
    "pl": "w z na do nie jest od po przy oraz bez o i pacjent pacjentka u",
    "cs": "a se na je v s z pro bez po od pacient pacientka nebo",
    "hu": "a az nem egy is volt van hogy es beteg vagy",
    "tr": "ve bir bu ile icin olan da de hasta olarak",
}
#: Languages of the rules and word lists.
KNOWN: Final = ("de", "en", "es", "fr")
#: A document in none of all these.
UNTOLD: Final = "other"
_LISTS_OF_NOTES: Final = [words.split() for words in _WORDS_OF_NOTES.values()]
_PATTERNS_OF_NOTES: Final = {name: rf"\b(?:{'|'.join(words.split())})\b" for name, words in _WORDS_OF_NOTES.items()}
#: Words that a document must have to be asked; its characters that are looked at first, and where these are in doubt.
FEWEST_WORDS: Final = 30
_NUM_CHARACTERS, _MOST_CHARACTERS = 1000, 20_000
#: Fewer common words than this share are those of another language by chance.
_LEAST_SHARE: Final = 0.02
#: A letter of a script without spaces between words is one.
_UNSPACED: Final = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD: Final = rf"[{_UNSPACED}]|[^\s\d[:punct:]{_UNSPACED}]+"


class OtherLanguages:
    """Counts documents of 30 words or more by language, and those in languages that the rules do not support.

    Cost: one look at the first 1,000 characters, about 3 us a document.
    """

    def __init__(self, known: Collection[str] = KNOWN) -> None:
        #: Languages that detection knows.
        self.known = tuple(sorted({*known} & {*_WORDS_OF_NOTES}))
        self._places_of_known = [list(_WORDS_OF_NOTES).index(name) for name in self.known]
        #: Documents by language.
        self.documents = dict.fromkeys((*_WORDS_OF_NOTES, UNTOLD), 0)

    def add(self, texts: pa.Array) -> None:
        """Count the languages of further documents (strings, one a row)."""
        found = _identify_languages(texts, _NUM_CHARACTERS)
        # A list at the beginning of a note has no grammar: the rest of the note is asked too.
        doubtful = np.flatnonzero(~np.isin(found, self._places_of_known) & (found >= 0))
        found[doubtful] = _identify_languages(texts.take(pa.array(doubtful)), _MOST_CHARACTERS)
        for place, name in enumerate(self.documents):
            self.documents[name] += int(np.count_nonzero(found == place))

    def in_language(self, code: str) -> int:
        """Return the number of documents in the language with this code; for a code that is not counted separately, the
        number in all languages that the detection rules do not support."""
        code = {"nb": "no", "nn": "no"}.get(code, code)
        return self.documents.get(code, sum(self.unknown.values()))

    @property
    def unknown(self) -> dict[str, int]:
        """Number of documents in each language that the detection rules do not support; ``other``: not identified."""
        return {name: num for name, num in self.documents.items() if num and name not in self.known}

    def main(self) -> list[str]:
        """Return the codes of the identified languages that at least a fifth of the documents have."""
        num = sum(self.documents.values())
        return [name for name, count in self.documents.items() if count and 5 * count >= num and name != UNTOLD]

    def counts(self) -> dict[str, int]:
        """Return counts for a report: ``long_documents``, those examined, and ``other_language``, those in unsupported
        languages."""
        return {"long_documents": sum(self.documents.values()), "other_language": sum(self.unknown.values())}

    def warning(self) -> str | None:
        """Return a sentence on documents in unsupported languages; None if there are none."""
        asked, num = self.counts().values()
        names = ", ".join(f"{name} {count:,}" for name, count in sorted(self.unknown.items(), key=lambda row: -row[1]))
        if not num:
            return None
        return (
            f"{num:,} of {asked:,} documents of {FEWEST_WORDS} words or more are in a language that the rules do not "
            f"know ({names}; they know {', '.join(self.known)}): of the names in them next to nothing is found but "
            "those of records and lists"
        )


def known_languages(texts: pa.Array) -> np.ndarray:
    """Return the language of each document as an index into `KNOWN` (de, en, es, fr), int64; -1 for another language. A
    short document without common words counts as English."""
    known = [list(_WORDS_OF_NOTES).index(name) for name in KNOWN]
    num_words, hits = _count_common_words(texts, _NUM_CHARACTERS)
    own = np.where(hits[known].max(axis=0, initial=0) > 0, hits[known].argmax(axis=0), KNOWN.index("en"))
    found = _most_likely(num_words, hits)
    return np.where((found < 0) | np.isin(found, known), own, -1)


def _identify_languages(texts: pa.Array, num_characters: int) -> np.ndarray:
    """Return each document's language as an index into `_WORDS_OF_NOTES`; the length of that table if unidentified, -1
    for a short document."""
    return _most_likely(*_count_common_words(texts, num_characters))


def _count_common_words(texts: pa.Array, num_characters: int) -> tuple[np.ndarray, np.ndarray]:
    """Count words in the first ``num_characters`` characters of each document: all words, (D,), and the common words of
    each language, (L, D)."""
    num_words, flat = _rust.count_listed_words(texts, _LISTS_OF_NOTES, num_characters)
    hits = flat.astype(np.int64).reshape(len(texts), len(_LISTS_OF_NOTES)).T
    if len(rest := np.flatnonzero(num_words < 0)):
        num_words[rest], hits[:, rest] = _count_by_patterns(texts.take(pa.array(rest)), num_characters)
    return num_words, hits


def _count_by_patterns(texts: pa.Array, num_characters: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the same as `_count_common_words`, by regular expressions, for texts of any script."""
    start = pc.utf8_lower(pc.utf8_slice_codeunits(texts, 0, num_characters))
    return _count_matches(start, _WORD), np.stack(
        [_count_matches(start, pattern) for pattern in _PATTERNS_OF_NOTES.values()]
    )


def _most_likely(num_words: np.ndarray, common_words: np.ndarray) -> np.ndarray:
    """Return for each document the index of the language with most common words; the number of languages if there are
    too few, -1 for a short document."""
    best = np.where(
        common_words.max(axis=0, initial=0) < _LEAST_SHARE * num_words,
        len(_WORDS_OF_NOTES),
        common_words.argmax(axis=0),
    )
    return np.where(num_words < FEWEST_WORDS, -1, best)


def _count_matches(texts: pa.Array, pattern: str) -> np.ndarray:
    """Return the number of matches of a regular expression in each text; 0 for null."""
    return pc.count_substring_regex(texts, pattern).fill_null(0).to_numpy(zero_copy_only=False)
