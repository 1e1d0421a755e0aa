"""The words of a store as integers, true and predicted.

`Words` holds occurrences, each with its tokens, document and flags. Each distinct tuple of token ids is decoded once
and folded to its coarse surface form (NFKC, case folded, without accents, invisible characters and spaces), because
protection counts support on the fine form and leaks are matched on the coarse one. All later steps use integers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reticent.core.errors import ArtifactError
from reticent.engine.kernels import number_tuples, word_slots
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import core_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

#: Number of the surface form of a word with an unknown token or without a prediction; it equals no other.
NO_SURFACE = -1


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a store in the order of the documents; every array has shape (S,).

    ``starts`` and ``lengths`` are in tokens of the store. ``documents`` are document numbers, ``individuals`` codes.
    ``numbers`` are the words' numbers in their documents, None if every word has a token.
    """

    starts: np.ndarray
    lengths: np.ndarray
    documents: np.ndarray
    individuals: np.ndarray
    flags: np.ndarray
    ngram_starts: np.ndarray
    numbers: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.starts)


def words_of(store: TokenStore) -> Words:
    """Return the words of a token store in document order, each with its first token, number of tokens, document,
    individual and protection flags."""
    starts, lengths, documents = word_slots(store.word_ids, store.doc_offsets)
    return Words(
        starts,
        lengths,
        documents,
        store.individual[documents],
        store.flags[starts] if len(starts) else np.empty(0, dtype=np.uint8),
        store.ngram_starts[starts] if len(starts) else np.empty(0, dtype=np.uint8),
        store.word_ids[starts] if len(starts) else np.empty(0, dtype=np.int32),
    )


@dataclass(frozen=True, slots=True)
class WordCategories:
    """Category of direct identifier of each word of a set of documents.

    ``codes`` (int16, one a word, 0: in no direct identifier) are numbers of ``names``, of which the first is empty;
    the words of document d are ``doc_offsets[d]:doc_offsets[d + 1]``. ``corpus_wide`` (bool, one a word) marks words of
    a span whose scope is the corpus: they are protected wherever they occur.
    """

    codes: np.ndarray
    names: tuple[str, ...]
    doc_offsets: np.ndarray
    corpus_wide: np.ndarray

    def select(self, documents: np.ndarray) -> WordCategories:
        """Return the word categories of the documents with these numbers, in this order."""
        starts, lengths = self.doc_offsets[documents], np.diff(self.doc_offsets)[documents]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return WordCategories(self.codes[rows], self.names, offsets, self.corpus_wide[rows])

    def of_words(self, store: TokenStore, words: Words) -> np.ndarray:
        """Return the identifier category of each word of a store that holds these documents, int16 (S,)."""
        return self.codes[self._rows(store, words)]

    def in_corpus_wide_spans(self, store: TokenStore, words: Words) -> np.ndarray:
        """Return whether each word lies in a span that is protected wherever its text occurs in the corpus, bool (S,).
        ``store`` is any token store of the same documents."""
        return self.corpus_wide[self._rows(store, words)]

    def _rows(self, store: TokenStore, words: Words) -> np.ndarray:
        """Return the position of each word of ``store`` in the arrays of this object; raise `ArtifactError` if the
        store has another number of documents."""
        if len(self.doc_offsets) != store.num_documents + 1:
            raise ArtifactError(
                f"categories of {len(self.doc_offsets) - 1} documents for a store of {store.num_documents}"
            )
        return np.asarray(self.doc_offsets[words.documents] + store.word_ids[words.starts])


class SurfaceTable:
    """Numbers distinct surface forms of words, shared by all sequences of ids that are decoded with this table.

    Surface forms are coarse (`fold`), or as ``spelling`` makes them.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, spelling: Callable[[str], str] | None = None):
        self._spelling = spelling or fold
        self._tokenizer = core_tokenizer(tokenizer)
        self._unknown = tokenizer.unk_token_id
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def surfaces(self, ids: np.ndarray, words: Words) -> np.ndarray:
        """Return a number for the normalised spelling of each word, int64 (S,). ``ids`` has the true, or the predicted,
        id of every token of the store; a word with an unknown token gets -1.

        Cost: one look-up for each word, and one decoding for each distinct tuple.
        """
        numbers, first = number_tuples(ids, words.starts, words.lengths)
        surfaces = np.empty(len(first), dtype=np.int64)
        for length in np.unique(words.lengths[first]):
            chosen = np.flatnonzero(words.lengths[first] == length)
            rows = ids[words.starts[first[chosen]][:, None] + np.arange(length)].astype(np.int64)
            surfaces[chosen] = self._number_rows(rows)
        return surfaces[numbers]

    def look_up(self, texts: Iterable[str]) -> np.ndarray:
        """Return the numbers of the normalised spellings of words given as text, int64; `NO_SURFACE` for a spelling
        that has no number yet."""
        return np.array([self._numbers.get(self._spelling(text), NO_SURFACE) for text in texts], dtype=np.int64)

    def map_forms(self, function: Callable[[str], float]) -> np.ndarray:
        """Return ``function(spelling)`` for every normalised spelling seen so far, float64, in the order of their
        numbers."""
        return np.fromiter(map(function, self._numbers), np.float64, len(self._numbers))

    def _number_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return a number for the normalised spelling of each word, int64, from its token ids (a row of ``rows``). A
        new spelling gets the next number, a word with an unknown token `NO_SURFACE`."""
        usable = (rows >= 0).all(axis=1)
        if self._unknown is not None:
            usable &= (rows != self._unknown).all(axis=1)
        numbers = np.full(len(rows), NO_SURFACE, dtype=np.int64)
        texts = self._tokenizer.decode(rows[usable].tolist(), skip_special_tokens=False)
        numbers[usable] = [self._numbers.setdefault(self._spelling(text), len(self._numbers)) for text in texts]
        return numbers


#: Marks (accents, vowel signs) and invisible characters (zero-width, soft hyphens).
_DROPPED = frozenset({"Mn", "Mc", "Me", "Cf"})
#: Cyrillic and Greek letters that print like a Latin one, as in the engine's ``fold`` surface.
_LOOK_ALIKES = str.maketrans("авсеһіјкморѕтухαειкκορτυχν", "abcehijkmopstyxaeikkoptyxv")


def fold(text: str) -> str:
    """Return a word without case, accents, spaces and differences between look-alike letters. Spellings that any other
    normalisation in use treats as equal are equal here too.

    >>> fold(" Élodie") == fold("ELODIE") == fold("Elo\u00addie")
    True
    """
    cased = unicodedata.normalize("NFKD", text).upper().casefold()
    kept = (c for c in unicodedata.normalize("NFKD", cased) if unicodedata.category(c) not in _DROPPED)
    return "".join(c for c in kept if not c.isspace()).translate(_LOOK_ALIKES)
