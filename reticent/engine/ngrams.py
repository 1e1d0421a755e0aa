"""NgramIndex: how many units (individuals, or households) use each word and n-gram, and what this protects.

The Rust core holds the tables and counts (``rust_ext/src/index``); this class adds types and look-ups. It contains
words that one individual alone uses, so it is as secret as the documents, and its repr shows numbers only.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from reticent import _rust
from reticent.core.errors import PolicyError

#: N-grams of a level whose extended ones are counted together, for look-ups.
ROWS_PER_BLOCK = 1 << 16


class NgramIndex:
    """How many units (individuals, or households) use each word and each n-gram of a set of documents.

    It is made by `build_index`, `open_index` and updates, never changes, and costs no copy of the core's tables.

    Examples
    --------
    >>> index.support("fever"), index["high fever"]  # doctest: +SKIP
    (1271, 318)
    """

    __slots__ = ("_core", "_extended")

    def __init__(self, core: _rust.NgramIndex):
        self._core = core
        #: n -> extended n-grams before each block of the level, int64 (blocks,); made by the first look-up.
        self._extended: dict[int, NDArray[np.int64]] = {}

    def __repr__(self) -> str:
        return (
            f"NgramIndex(max_n={self.max_n}, surface={self.surface!r}, min_support={self.min_support}, "
            f"num_units={self.num_units:,}, num_documents={self.num_documents:,}, num_words={self.num_words:,}, "
            f"num_occurrences={self.num_occurrences:,})"
        )

    # ------------------------------------------------------------------ look-ups

    def support(self, ngram: str) -> int:
        """Return how many units (individuals or households) use a word or n-gram, given as text.

        Returns
        -------
        int
            0 where no document holds it. An n-gram with a part that fewer than `min_support` units use is not kept:
            the least support of its parts is returned, which is less than `min_support` and at least the answer
            (with ``min_support=1`` everything is kept).

        Raises
        ------
        PolicyError
            The text has no word, or more than `max_n`.

        Cost: microseconds a word; for n >= 2 some 20 row groups of an index that was opened, and the first look-up of a
        length n >= 3 reads the supports of the shorter n-grams once.
        """
        words = self._words_of(ngram)
        if not 1 <= len(words) <= self.max_n:
            raise PolicyError(f"expected an n-gram of 1 to {self.max_n} words, got {len(words)}")
        return self._look_up_support(words)

    __getitem__ = support

    def __contains__(self, ngram: object) -> bool:
        """Whether at least one unit uses the n-gram: `support` is not 0."""
        return isinstance(ngram, str) and self.support(ngram) > 0

    def _words_of(self, text: str) -> list[str]:
        """Return the words of a text, normalised as this index does (exact, casefolded or folded)."""

        texts = pa.array([text], pa.large_string())
        words = pa.record_batch(_rust.segment(texts, num_threads=1).surfaces(texts)).column("word")
        surfaces: list[str] = (
            pa.record_batch(_rust.apply_surface(words, surface=self.surface)).column("word").to_pylist()
        )
        return surfaces

    def _look_up_support(self, words: list[str]) -> int:
        """Return how many individuals or households use the n-gram with these words: 0 if it does not occur, and an
        upper bound if it is not stored because a shorter n-gram in it is too rare."""
        ids: list[int] = []
        supports: list[int] = []
        for word in words:
            row = _binary_search(
                word.encode(), self.num_words, lambda at: self.words(at, 1)["word"][0].as_py().encode()
            )
            if row is None:
                return 0
            ids.append(row)
            supports.append(self.words(row, 1)["support"][0].as_py())
        for n in range(2, len(words) + 1):
            if min(supports) < self.min_support:
                return min(supports)
            key_of = functools.partial(self._halves_of, n)
            found = [_binary_search(pair, self.num_ngrams(n), key_of) for pair in itertools.pairwise(ids)]
            rows = [row for row in found if row is not None]
            if len(rows) < len(found):
                return 0
            supports = [self.level(n, row, 1)["support"][0].as_py() for row in rows]
            ids = [self._num_extended_before(n, row) for row in rows] if n < len(words) else rows
        return supports[0]

    def _halves_of(self, n: int, row: int) -> tuple[int, int]:
        """Return the numbers of the two (n-1)-grams in the n-gram of this row, the one without its last word and the
        one without its first. For n = 2 they are rows of the word table, otherwise see `_num_extended_before`."""
        ngram = self.level(n, row, 1)
        return ngram["left"][0].as_py(), ngram["right"][0].as_py()

    def _num_extended_before(self, n: int, row: int) -> int:
        """Return how many n-grams of n words in the rows before this one have a support of ``min_support`` or more.
        Only these are extended to longer n-grams, whose tables refer to the row by this number."""

        def num_extended(start: int, length: int) -> int:
            """Return how many of the ``length`` n-grams from row ``start`` have a support of ``min_support`` or more,
            so that they are extended to longer ones."""
            return int(np.count_nonzero(self.level(n, start, length)["support"].to_numpy() >= self.min_support))

        if n not in self._extended:
            starts = range(0, self.num_ngrams(n), ROWS_PER_BLOCK)
            counts = [num_extended(start, ROWS_PER_BLOCK) for start in starts]
            self._extended[n] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        block = row // ROWS_PER_BLOCK
        return int(self._extended[n][block]) + num_extended(block * ROWS_PER_BLOCK, row % ROWS_PER_BLOCK)

    # ------------------------------------------------------------------ numbers and tables

    @property
    def max_n(self) -> int:
        """Length of the longest n-grams, in words."""
        return self._core.max_n

    @property
    def num_units(self) -> int:
        """Number of units (individuals, or households) whose documents were counted."""
        return self._core.num_units

    @property
    def num_documents(self) -> int:
        """Number of documents counted."""
        return self._core.num_documents

    @property
    def num_words(self) -> int:
        """Number of distinct words."""
        return self._core.num_words

    @property
    def num_occurrences(self) -> int:
        """Number of occurrences of all words."""
        return self._core.num_occurrences

    @property
    def num_unspaced(self) -> int:
        """Number of occurrences of words that are one letter of a script without spaces (Han, Thai, …)."""
        return self._core.num_unspaced

    @property
    def min_support(self) -> int:
        """Minimum support (number of individuals or households using it) from which an n-gram is extended to longer
        ones; rarer n-grams are stored but not extended."""
        return self._core.min_support

    @property
    def spilled_bytes(self) -> int:
        """Peak disk usage of building the index, in bytes; 0 if it was built in memory."""
        return self._core.spilled_bytes

    @property
    def surface(self) -> str:
        """Rule for which spellings count as one word: "exact", "casefold" or "fold"."""
        return self._core.surface

    def words(self, start: int = 0, length: int | None = None) -> pa.RecordBatch:
        """Return the distinct words, in byte order, as columns word, support (number of individuals or households using
        it, uint32), occurrences (uint64): all, or ``length`` rows from ``start``."""
        return pa.record_batch(self._core.words(start, length))

    def num_ngrams(self, n: int) -> int:
        """Return the number of distinct n-grams of n words, n >= 2."""
        return self._core.num_ngrams(n)

    def level(self, n: int, start: int = 0, length: int | None = None) -> pa.RecordBatch:
        """Return the distinct n-grams of ``n`` >= 2 words, sorted, as columns left, right (numbers of the n-gram
        without its last and its first word) and support (uint32): all, or ``length`` rows from ``start``. The numbers
        are rows of `words` for n = 2, else they count the n-grams with support of ``min_support`` or more."""
        return pa.record_batch(self._core.level(n, start, length))

    def table_bytes(self, *, k: int, n: int) -> int:
        """Return the size, in bytes, of the in-memory n-gram tables that protection with this k and n needs."""
        return self._core.table_bytes(k=k, n=n)

    def forget_tables(self) -> None:
        """Free the memory of the n-gram look-up tables; they are built again when they are needed."""
        self._core.forget_tables()

    def with_supports(self, supports: np.ndarray) -> NgramIndex:
        """Return an index with the same words, these supports (number of individuals or households using each word),
        integers (num_words,), and no n-grams beyond single words."""
        words = self.words()
        columns = [words.column("word"), pa.array(supports.astype(np.uint32)), words.column("occurrences")]
        return NgramIndex.from_tables(
            pa.record_batch(columns, schema=words.schema), [], max_n=1, num_units=self.num_units,
            num_documents=self.num_documents, min_support=self.min_support, surface=self.surface,
        )  # fmt: skip

    @classmethod
    def from_tables(cls, words: pa.RecordBatch, levels: Sequence[pa.RecordBatch | Path], **about: Any) -> NgramIndex:
        """Return an index made from its tables: the distinct words (as `words` returns them), and for n = 2, 3 … the
        n-grams (as `level` returns them, or a Parquet file of them). ``about`` are properties of the index by keyword
        (max_n, num_units …).

        A level that is a path stays in its Parquet file: it is read once here, a row group at a time, and again where
        it is asked for. ``about``: max_n, num_units, num_documents, min_support, surface.
        """

        return cls(_rust.NgramIndex.from_tables(words, levels, **about))

    # ------------------------------------------------------------------ sums and protection

    def merge(self, other: NgramIndex) -> NgramIndex:
        """Return the index of the documents of both indexes, which must have no individual or household in common (both
        with ``min_support`` 1)."""
        return NgramIndex(self._core.merge(other._core))

    def prune(self, min_support: int) -> NgramIndex:
        """Return a copy of the index with a greater ``min_support``, equal to an index built with that value."""
        return NgramIndex(self._core.prune(min_support))

    def update(
        self, removed: NgramIndex, added: NgramIndex, k: int
    ) -> tuple[NgramIndex, list[tuple[int, int, int, int]]]:
        """Return the index without the documents counted in ``removed`` and with those counted in ``added``, and for
        each n a tuple of four numbers of n-grams: new, gone, newly identifying (support below ``k``), no longer
        identifying."""
        updated, moved = self._core.update(removed._core, added._core, k)
        return NgramIndex(updated), moved

    def protect(
        self,
        texts: pa.Array,
        words: _rust.Words,
        *,
        k: int,
        n: int,
        policy: str = "all",
        max_document_frequency: float | None = None,
        num_threads: int = 0,
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return for each word of the texts its protection flag (`INDIRECT` or 0), and as bits the lengths n of the
        minimal identifying n-grams that start at it: two uint8 arrays (W,)."""
        return self._core.protect(
            texts,
            words,
            k=k,
            n=n,
            policy=policy,
            max_document_frequency=max_document_frequency,
            num_threads=num_threads,
        )

    def number_words(self, texts: pa.Array, words: _rust.Words, *, num_threads: int = 0) -> NDArray[np.uint32]:
        """Return the row in this index of each word of the texts, uint32 (W,); 2^32 - 1 for an unknown word."""
        return self._core.number_words(texts, words, num_threads=num_threads)

    def blacklist(self) -> _rust.Blacklist:
        """Return a new, empty set of word forms to protect at every occurrence. Forms that are common in this index
        will be protected only in the documents of the individual or household they were added for."""
        return _rust.Blacklist(surface=self.surface, index=self._core)

    def numbering(
        self,
        support_index: NgramIndex,
        *,
        k: int,
        n: int,
        policy: str = "all",
        max_document_frequency: float | None = None,
        num_threads: int = 0,
    ) -> _rust.Numbering:
        """Return a Rust object that decides which words of documents are protected. The documents are given as word
        numbers, which are rows of this index; the supports of n-grams are those in ``support_index``."""

        limit = max_document_frequency
        return _rust.Numbering(
            self._core,
            support_index._core,
            k=k,
            n=n,
            policy=policy,
            max_document_frequency=limit,
            num_threads=num_threads,
        )


def _binary_search(key: Any, num_rows: int, key_of: Callable[[int], Any]) -> int | None:
    """Return the row with this key, where ``key_of(row)`` ascends over ``num_rows`` rows; None if there is none."""
    first, end = 0, num_rows
    while first < end:
        middle = (first + end) // 2
        if key_of(middle) < key:
            first = middle + 1
        else:
            end = middle
    return first if first < num_rows and key_of(first) == key else None
