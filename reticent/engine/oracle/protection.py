"""Oracle of a policy's protection, by brute force: supports, scopes and policies of definitions.md#identifiers.

Everything is said of flat arrays over the words of many documents. An n-gram's support is the number of distinct units
that use it, counted by sorting all of them: nothing is pruned, hashed or looked up. Cost: about 0.5 us a word for each
n, and 110 bytes a word while it lasts.

:mod:`reticent.engine.oracle.documents` makes these arrays of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Seen(NamedTuple):
    """Properties of each spelling: number of its visible part's surface (int64); whether a span spreads it to other
    places, whether all of it is visible, and whether it is in lower case (bool)."""

    numbers: np.ndarray
    spreads: np.ndarray
    is_own: np.ndarray
    is_small: np.ndarray


def integer_codes(words: list[str]) -> np.ndarray:
    """Return the integer code of each word, int64, from 0 in order of first appearance."""
    numbers: dict[str, int] = {}
    return np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), dtype=np.int64, count=len(words))


@dataclass(slots=True)
class DocumentWords:
    """The words of documents, with offsets into the texts joined by newlines.

    Attributes
    ----------
    spellings : int32 array, one a word, numbers of a `reticent.engine.oracle.documents.WordTable`
    starts, ends : int64 arrays, characters of the joined texts
    doc_offsets : int64 array, words of document d are ``doc_offsets[d]:doc_offsets[d + 1]``
    bases : int64 array, one a document and one more: where each begins in the joined texts
    """

    spellings: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    doc_offsets: np.ndarray
    bases: np.ndarray

    @classmethod
    def concatenated(cls, parts: list[DocumentWords]) -> DocumentWords:
        """Return the documents of all parts as one object; ``parts`` is emptied."""
        columns: dict[str, list[np.ndarray]] = {name: [] for name in cls.__slots__}
        num_words = num_characters = 0
        for part in parts:
            columns["spellings"].append(part.spellings)
            columns["starts"].append(part.starts + num_characters)
            columns["ends"].append(part.ends + num_characters)
            columns["doc_offsets"].append(part.doc_offsets[:-1] + num_words)
            columns["bases"].append(part.bases[:-1] + num_characters)
            num_words, num_characters = num_words + len(part.starts), num_characters + int(part.bases[-1])
        parts.clear()
        columns["doc_offsets"].append(np.array([num_words]))
        columns["bases"].append(np.array([num_characters]))
        return cls(**{name: np.concatenate(columns.pop(name)) for name in cls.__slots__})

    def select(self, documents: np.ndarray) -> DocumentWords:
        """Return the words of the documents where the mask is True, with character offsets into the joined texts of
        these documents."""
        words = np.repeat(documents, np.diff(self.doc_offsets))
        num_words, lengths = np.diff(self.doc_offsets)[documents], np.diff(self.bases)[documents]
        bases = np.concatenate([[0], np.cumsum(lengths)])
        moved = np.repeat(bases[:-1] - self.bases[:-1][documents], num_words)
        offsets = np.concatenate([[0], np.cumsum(num_words)])
        return DocumentWords(
            self.spellings[words], self.starts[words] + moved, self.ends[words] + moved, offsets, bases
        )

    def slice(self, first: int, last: int) -> DocumentWords:
        """Return the words of documents ``first`` to ``last``, exclusive, with character offsets into the joined texts
        of these documents."""
        words = slice(self.doc_offsets[first], self.doc_offsets[last])
        base = self.bases[first]
        return DocumentWords(
            self.spellings[words],
            self.starts[words] - base,
            self.ends[words] - base,
            self.doc_offsets[first : last + 1] - self.doc_offsets[first],
            self.bases[first : last + 1] - base,
        )

    @property
    def documents(self) -> np.ndarray:
        """Document number of each word, int64."""
        return np.repeat(np.arange(len(self.doc_offsets) - 1), np.diff(self.doc_offsets))

    def met_by(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return which words overlap one of these character ranges (offsets into the joined texts), bool
        (num_words,)."""
        real = starts < ends
        edges = np.zeros(len(self.starts) + 1, dtype=np.int64)
        np.add.at(edges, np.searchsorted(self.ends, starts[real], side="right"), 1)
        np.add.at(edges, np.searchsorted(self.starts, ends[real], side="left"), -1)
        return np.cumsum(edges[:-1]) > 0


def direct_words(
    words: DocumentWords,
    units: np.ndarray,
    visible_forms: Seen,
    starts: np.ndarray,
    ends: np.ndarray,
    scopes: np.ndarray,
    widespread: np.ndarray,
) -> np.ndarray:
    """Return which words are direct identifiers, bool (num_words,): those that a detected span overlaps, and other
    occurrences of these words, as far as the span's entry of ``scopes`` says ("corpus", "individual" or "occurrence":
    none). Of ``widespread`` words, only occurrences with the same individual.

    Parameters
    ----------
    units : unit of each document
    visible_forms : of each spelling
    starts, ends, scopes : of each span its characters in the joined texts, and "corpus", "individual" or "occurrence"
    widespread : of each word, whether its surface is too common for the corpus (`widespread_words`)
    """
    surface, unit = visible_forms.numbers[words.spellings], units[words.documents].astype(np.int64)
    direct = words.met_by(starts, ends)
    num_surfaces = len(visible_forms.numbers) + 1
    of_corpus, of_unit = (
        words.met_by(starts[scopes == scope], ends[scopes == scope]) & visible_forms.spreads[words.spellings]
        for scope in ("corpus", "individual")
    )
    listed = np.zeros(num_surfaces, dtype=bool)
    listed[surface[of_corpus & ~widespread]] = True
    shown = (unit * num_surfaces + surface)[of_unit | of_corpus & widespread]
    return direct | listed[surface] | np.isin(unit * num_surfaces + surface, np.unique(shown))


def widespread_words(words: DocumentWords, visible_forms: Seen, support: np.ndarray, num_units: int) -> np.ndarray:
    """Return which words are too common to identify anybody, bool (num_words,): those used by more than five
    individuals or households and by more than a fifth of all (a twentieth for lower-case words). ``support`` has the
    number of users of each word, ``num_units`` is the number of all."""
    share = np.where(visible_forms.is_small, 20, 5)[words.spellings]
    return support > np.maximum(5, num_units // share)


def visible_support(words: DocumentWords, visible_forms: Seen, support: np.ndarray) -> np.ndarray:
    """Return for each word the number of individuals who use it, int64, where spellings that differ in invisible
    characters only are one word. ``support`` has the number for each word as it is written."""
    own, surface = visible_forms.is_own[words.spellings], visible_forms.numbers[words.spellings]
    of_surface = np.zeros(len(visible_forms.numbers) + 1, dtype=np.int64)
    of_surface[surface[own]] = support[own]
    return of_surface[surface]


def count_supports(words: DocumentWords, units: np.ndarray, surfaces: list[str], n: int) -> Iterator[np.ndarray]:
    """Yield, for n-gram lengths 1 to ``n``, the support (number of individuals or households using it) of the n-gram
    that starts at each word, int64 (num_words,); 0 where it would cross a document's end."""
    word = integer_codes(surfaces)[words.spellings]
    unit = units[words.documents].astype(np.int64)
    left = _words_left(words)
    num_units, num_words = int(units.max(initial=0)) + 1, len(surfaces) + 1
    gram = word
    for length in range(1, n + 1):
        if length > 1:
            gram = _dense_ranks(gram[: len(gram) - 1] * num_words + word[length - 1 :])
        pairs = np.sort((gram * num_units + unit[: len(gram)])[left[: len(gram)] >= length])
        first = np.ones(len(pairs), dtype=bool)
        first[1:] = pairs[1:] != pairs[:-1]
        support = np.bincount(pairs[first] // num_units, minlength=int(gram.max(initial=-1)) + 1)
        found = np.zeros(len(word), dtype=np.int64)
        found[: len(gram)] = np.where(left[: len(gram)] >= length, support[gram], 0)
        yield found


def looked_up_supports(
    words: DocumentWords,
    surfaces: list[str],
    n: int,
    tables: Callable[[int], Iterable[pa.RecordBatch]],
    min_support: int,
) -> Iterator[np.ndarray]:
    """Yield, for n-gram lengths 1 to ``n``, the support (number of individuals or households using it) of the n-gram
    that starts at each word, int64 (num_words,). It is looked up in the tables of an index: ``tables(1)`` has the
    words, ``tables(2)`` the bigrams, and so on.

    Parameters
    ----------
    tables : of 1, columns word and support; of 2, 3 … columns left, right and support, ascending: the numbers of two
        n-grams of the table before among those whose support is ``min_support`` or more (of words: among all)
    """

    number = integer_codes(surfaces)
    first = np.unique(number, return_index=True)[1]  # of spellings with one surface, the first
    rows, support, num_rows = np.full(len(surfaces) + 1, -1), np.zeros(len(surfaces) + 1, dtype=np.int64), 0
    for table in tables(1):
        places = pc.index_in(table.column("word"), value_set=pa.array(surfaces, table.column("word").type))
        found = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
        at = first[number[places.take(pa.array(found)).to_numpy()]]
        rows[at], support[at] = found + num_rows, table.column("support").to_numpy()[found]
        num_rows += table.num_rows
    spelled = first[number][words.spellings] if surfaces else words.spellings
    gram, left = rows[spelled], _words_left(words)
    yield support[spelled]
    for length in range(2, n + 1):
        both = np.flatnonzero((left[:-1] >= length) & (gram[:-1] >= 0) & (gram[1:] >= 0))
        keys = gram[both].astype(np.uint64) << np.uint64(32) | gram[both + 1].astype(np.uint64)
        asked, which = np.unique(keys, return_inverse=True)
        of_key, ranks = _look_up(asked, tables(length), min_support)
        support = np.zeros(len(gram), dtype=np.int64)
        support[both] = of_key[which]
        gram = np.full(len(gram), -1)
        gram[both] = ranks[which]
        yield support


def _look_up(
    keys_wanted: np.ndarray, tables: Iterable[pa.RecordBatch], min_support: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return two int64 arrays with an entry for each of these sorted keys of n-grams: its support in the tables (0 if
    absent), and its rank among the keys with a support of ``min_support`` or more (-1 if its support is lower)."""
    of_key, rank_of, num_kept = np.zeros(len(keys_wanted), dtype=np.int64), np.full(len(keys_wanted), -1), 0
    for table in tables:
        keys = table.column("left").to_numpy().astype(np.uint64) << np.uint64(32) | table.column("right").to_numpy()
        support = table.column("support").to_numpy()
        is_kept = support >= min_support
        ranks = np.where(is_kept, num_kept + np.cumsum(is_kept) - 1, -1)
        place = np.searchsorted(keys, keys_wanted)
        found = np.flatnonzero(place < len(keys))
        found = found[keys[place[found]] == keys_wanted[found]]
        of_key[found], rank_of[found] = support[place[found]], ranks[place[found]]
        num_kept += int(np.count_nonzero(is_kept))
    return of_key, rank_of


def _words_left(words: DocumentWords) -> np.ndarray:
    """Return the number of words from each word to the end of its document, including itself."""
    return np.repeat(words.doc_offsets[1:], np.diff(words.doc_offsets)) - np.arange(len(words.starts))


def _dense_ranks(keys: np.ndarray) -> np.ndarray:
    """Return the rank of each key among the distinct keys, int64; equal keys have equal ranks."""
    order = np.argsort(keys)
    sorted_keys = keys[order]
    steps = np.zeros(len(keys), dtype=np.int64)
    steps[1:] = sorted_keys[1:] != sorted_keys[:-1]
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.cumsum(steps)
    return ranks


def protected_words(
    words: DocumentWords,
    supports: Iterable[np.ndarray],
    *,
    k: int,
    n: int,
    policy: str,
    max_document_frequency: float | None = None,
    num_units: int = 0,
) -> np.ndarray:
    """Return which words the policy protects, bool (num_words,), given for each n the supports of the n-grams that
    start at each word."""
    left = _words_left(words)
    flags = np.zeros(len(left), dtype=bool)
    rare = shorter = np.zeros(0, dtype=bool)
    intervals: list[np.ndarray] = []
    for length, support in zip(range(1, n + 1), supports, strict=False):
        identifies = (support < k) & (left >= length)
        if length == 1:
            rare = support >= 0
            if max_document_frequency is not None and num_units:
                rare = support / num_units < max_document_frequency
            minimal = identifies
        else:
            for i in range(length):
                identifies[: len(rare) - i] &= rare[i:]
            minimal = identifies & ~shorter
            minimal[:-1] &= ~shorter[1:]
        chosen = np.flatnonzero(identifies if policy == "paper" else minimal)
        if policy == "last":
            flags[chosen + length - 1] = True
        elif policy == "cover":
            intervals.append(np.stack([chosen + length - 1, chosen]))
        else:
            for i in range(length):
                flags[chosen + i] = True
        shorter = identifies
    if policy == "cover":
        flags[_hitting_points(np.concatenate(intervals, axis=1))] = True
    return flags


def _hitting_points(intervals: np.ndarray) -> list[int]:
    """Return the smallest set of points that hits all intervals (rows: end, start), found greedily from the left."""
    stabs: list[int] = []
    free = -1
    order = np.argsort(intervals[0], kind="stable")
    for last, first in zip(*(ends.tolist() for ends in intervals[:, order]), strict=True):
        if first > free:
            stabs.append(last)
            free = last
    return stabs
