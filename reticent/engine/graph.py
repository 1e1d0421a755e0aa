"""The bipartite graph of individuals and n-grams: supports, distinct n-grams and unicity, by Numba kernels.

`WordStream` holds the words of a corpus as ids of an index. The kernels work on that stream: the support of the n-gram
at every word, distinct n-grams of every individual, and the *unicity* of sets of shared words (how often m shared words
in combination belong to a single individual).

Invariant: identity is exact. A word is its id in the index, and an n-gram is the pair of its two (n-1)-grams. A hash
only finds the place where keys are compared. Kernels release the interpreter lock and none is parallel.

Cost: 4 bytes for each word of the stream, and 4 more for each length of n-grams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.kernels import _hash, _mix

if TYPE_CHECKING:
    from reticent._rust import Words
    from reticent.engine.ngrams import NgramIndex

_jit = numba.njit(nogil=True, cache=True)


@dataclass(frozen=True, slots=True)
class WordStream:
    """The words of all documents as one flat array of index rows, with document bounds, individuals and units.

    Parameters
    ----------
    words : uint32 array, shape (W,), ids in the order of the index' words
    offsets : int64 array, shape (D + 1,), document d holds ``words[offsets[d]:offsets[d + 1]]``
    individual, unit : uint32 arrays, shape (D,)
    """

    words: np.ndarray
    offsets: np.ndarray
    individual: np.ndarray
    unit: np.ndarray


class WordIds:
    """Look-up of words in an index: word to row number."""

    def __init__(self, index: NgramIndex):
        table = pa.record_batch(index.words())
        self._surface = index.surface
        self._rows = _rust.IdRows(table.column("word"))

    def look_up(self, texts: pa.Array, words: Words) -> np.ndarray:
        """Return the row in the n-gram index of each word of the texts, uint32 (W,); `CorpusError` if the index does
        not hold a word.

        Raises
        ------
        CorpusError
            The index does not hold a word: it was built from other documents.
        """

        encoded = pa.record_batch(words.surfaces(texts)).column("word").dictionary_encode()
        surfaces = pa.record_batch(_rust.apply_surface(encoded.dictionary, surface=self._surface)).column("word")
        found = self._rows.rows(surfaces)
        if num_missing := int(np.count_nonzero(found == _rust.MISSING)):
            raise CorpusError(f"{num_missing} words are not in the index; the documents changed, run index again")
        return found[encoded.indices.to_numpy()]


# ------------------------------------------------------------------ supports along the stream


def ngram_supports(stream: WordStream, index: NgramIndex, max_n: int) -> list[np.ndarray]:
    """Return, for n = 1 to ``max_n``, the support (number of individuals or households using it) of the n-gram that
    starts at each word: a list of uint32 arrays (W,).

    0 where the document ends before the n-gram does. An n-gram that the index has not kept has one individual.

    Raises
    ------
    PolicyError
        The index is pruned at more than 2, so that an n-gram it has not kept could have several individuals; or it does
        not reach ``max_n``.

    Cost: one hash table a level (24 bytes or more an n-gram of the index), one look-up a word and level.
    """
    if index.min_support > 2 or max_n > index.max_n:
        raise PolicyError(
            f"expected an index pruned at 2 or less and up to n = {max_n}, got min_support {index.min_support}, "
            f"max_n {index.max_n}"
        )
    support = pa.record_batch(index.words()).column("support").to_numpy().astype(np.uint32)
    supports = [support[stream.words]]
    # Compact ids + 1 of the n-grams that the index extends, 0 elsewhere: of words their own ids.
    ids = np.where(supports[0] >= index.min_support, stream.words + np.uint32(1), np.uint32(0))
    for n in range(2, max_n + 1):
        level = pa.record_batch(index.level(n))
        left, right = (level.column(name).to_numpy().astype(np.uint64) for name in ("left", "right"))
        keys, support = left << np.uint64(32) | right, level.column("support").to_numpy().astype(np.uint32)
        kept = support >= index.min_support
        compact = np.where(kept, np.cumsum(kept), 0).astype(np.uint32)
        found = np.zeros(len(ids), dtype=np.uint32)
        _extend_ngrams(ids, stream.offsets, n, _hash_table(keys), keys, support, compact, found)
        supports.append(found)
    return supports


@_jit
def _hash_table(keys: np.ndarray) -> np.ndarray:
    """Return an open-addressing hash table of distinct keys, at most half full: indices into ``keys``, -1 for a free
    slot."""
    size = 2
    while size < 2 * len(keys) + 2:
        size *= 2
    table = np.full(size, -1, dtype=np.int64)
    mask = np.uint64(size - 1)
    for i in range(len(keys)):
        slot = _mix(keys[i]) & mask
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = i
    return table


@_jit
def _extend_ngrams(
    ids: np.ndarray,
    offsets: np.ndarray,
    n: int,
    table: np.ndarray,
    keys: np.ndarray,
    support: np.ndarray,
    compact: np.ndarray,
    out_support: np.ndarray,
) -> None:
    """Look up the n-gram that starts at each word, from the (n-1)-grams in ``ids`` that start there and at the next
    word. Write its support to ``out_support``, and replace ``ids`` by its number in the index plus 1 (0 if the index
    has no longer n-grams that begin with it)."""
    mask = np.uint64(len(table) - 1)
    for document in range(len(offsets) - 1):
        end = offsets[document + 1]
        for i in range(offsets[document], end):
            left = ids[i]
            ids[i] = 0
            if i + n > end:
                continue
            right = ids[i + 1]
            out_support[i] = 1
            if left == 0 or right == 0:
                continue
            key = np.uint64(left - 1) << np.uint64(32) | np.uint64(right - 1)
            slot = _mix(key) & mask
            while table[slot] >= 0:
                if keys[table[slot]] == key:
                    out_support[i] = support[table[slot]]
                    ids[i] = compact[table[slot]]
                    break
                slot = (slot + np.uint64(1)) & mask


# ------------------------------------------------------------------ distinct n-grams of all


def count_distinct(stream: WordStream, groups: np.ndarray, num_groups: int, marks: np.ndarray) -> np.ndarray:
    """Return the number of distinct n-grams by n, group of documents and bit of ``marks`` (one uint8 per n and word),
    int64 (N, num_groups, 8). An n-gram counts for a bit if the bit is set at any of its occurrences in the group.

    Parameters
    ----------
    groups : uint32 array, shape (D,), the group (individual or unit) of each document, under ``num_groups``
    marks : uint8 array, shape (N, W): bit b of ``marks[n - 1, i]`` marks the n-gram of n words that starts at word i

    Cost: about 10 ns a word and length; memory of the longest group only.
    """
    order = np.argsort(groups, kind="stable")
    counts = np.zeros((len(marks), num_groups, 8), dtype=np.int64)
    _count_distinct(stream.words, stream.offsets, order, groups, marks, counts)
    return counts


@_jit
def _count_distinct(
    words: np.ndarray,
    offsets: np.ndarray,
    documents_by_group: np.ndarray,
    groups: np.ndarray,
    marks: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Count the distinct n-grams into ``counts``, by n, group of documents and bit of ``marks`` (see `count_distinct`).
    ``documents_by_group`` has the document numbers sorted by group."""
    at = 0
    slots = np.empty(0, dtype=np.int64)  # place of a key among the keys of this group and length
    stamps = np.empty(0, dtype=np.int64)  # which group and length a slot belongs to
    keys = np.empty(0, dtype=np.uint64)
    seen = np.empty(0, dtype=np.uint8)
    ids = np.empty(0, dtype=np.uint32)
    stamp = 0
    while at < len(documents_by_group):
        group = groups[documents_by_group[at]]
        until, num_words = at, 0
        while until < len(documents_by_group) and groups[documents_by_group[until]] == group:
            num_words += offsets[documents_by_group[until] + 1] - offsets[documents_by_group[until]]
            until += 1
        if 2 * num_words > len(slots):
            size = 2
            while size < 2 * num_words:
                size *= 2
            slots = np.empty(size, dtype=np.int64)
            stamps = np.zeros(size, dtype=np.int64)
            keys = np.empty(size, dtype=np.uint64)
            seen = np.empty(size, dtype=np.uint8)
            ids = np.empty(size, dtype=np.uint32)
        mask = np.uint64(len(slots) - 1)
        for n in range(1, len(marks) + 1):
            stamp += 1
            used = 0
            place = 0
            for row in range(at, until):
                end = offsets[documents_by_group[row] + 1]
                for i in range(offsets[documents_by_group[row]], end):
                    if i + n > end:
                        place += 1
                        continue
                    if n == 1:
                        key = np.uint64(words[i])
                    else:
                        key = np.uint64(ids[place]) << np.uint64(32) | np.uint64(ids[place + 1])
                    slot = _mix(key) & mask
                    while stamps[slot] == stamp and keys[slots[slot]] != key:
                        slot = (slot + np.uint64(1)) & mask
                    if stamps[slot] != stamp:
                        stamps[slot] = stamp
                        slots[slot] = used
                        keys[used] = key
                        seen[used] = 0
                        used += 1
                    number = slots[slot]
                    new = marks[n - 1, i] & ~seen[number]
                    if new:
                        seen[number] |= new
                        for bit in range(8):
                            counts[n - 1, group, bit] += (new >> bit) & 1
                    ids[place] = number
                    place += 1
        at = until


# ------------------------------------------------------------------ unicity


def unicity(stream: WordStream, is_shared: np.ndarray, *, max_m: int, num_samples: int, seed: int) -> np.ndarray:
    """Return for random individuals or households whether random sets of 1 to ``max_m`` of their words (among the words
    in the mask ``is_shared``) are used by nobody else: int8 (num_samples, max_m), 1 if unique, 0 if not, -1 if they use
    fewer words.

    ``num_samples`` units are drawn without replacement (all, where there are no more). From the distinct shared words
    of each, ``max_m`` are drawn one after the other without replacement; entry m - 1 of its row is 1 when no other unit
    uses all of the first m, 0 when another does, -1 when it has fewer than m. The first m words are a random m-set,
    and a row never falls, since a word more can only exclude others.

    Parameters
    ----------
    is_shared : bool array, shape (number of words of the index,)

    The result depends on the stream and the seed, not on the order of the documents.

    Cost: 8 bytes for each pair of a unit and a shared word; a draw reads the units of one of its words.
    """
    units, documents = np.unique(stream.unit, return_inverse=True)
    order = np.argsort(documents, kind="stable")
    word_offsets, word_units = _invert_words(stream.words, stream.offsets, order, documents, is_shared)
    unit_offsets, unit_words = _transpose_csr(word_offsets, word_units, len(units))
    drawn = np.random.default_rng(seed).permutation(len(units))[:num_samples]
    out = np.full((len(drawn), max_m), -1, dtype=np.int8)
    _sample_unicity(drawn, unit_offsets, unit_words, word_offsets, word_units, seed, out)
    return out


@_jit
def _invert_words(
    words: np.ndarray, offsets: np.ndarray, order: np.ndarray, units: np.ndarray, shared: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the units (individuals or households) that use each word marked in ``shared``, in CSR form: offsets by
    word, and units. ``order`` sorts the documents by unit."""
    word_offsets = np.zeros(len(shared) + 1, dtype=np.int64)
    last = np.full(len(shared), -1, dtype=np.int64)
    for document in order:
        for i in range(offsets[document], offsets[document + 1]):
            word = words[i]
            if shared[word] and last[word] != units[document]:
                last[word] = units[document]
                word_offsets[word + 1] += 1
    word_offsets = np.cumsum(word_offsets)
    word_units = np.empty(word_offsets[-1], dtype=np.uint32)
    place = word_offsets[:-1].copy()
    last[:] = -1
    for document in order:
        for i in range(offsets[document], offsets[document + 1]):
            word = words[i]
            if shared[word] and last[word] != units[document]:
                last[word] = units[document]
                word_units[place[word]] = units[document]
                place[word] += 1
    return word_offsets, word_units


@_jit
def _transpose_csr(offsets: np.ndarray, values: np.ndarray, num_values: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the transpose of a binary matrix in CSR form (``values`` are its column numbers): offsets by column, and
    row numbers, ascending."""
    out_offsets = np.zeros(num_values + 1, dtype=np.int64)
    for value in values:
        out_offsets[value + 1] += 1
    out_offsets = np.cumsum(out_offsets)
    out = np.empty(len(values), dtype=np.uint32)
    place = out_offsets[:-1].copy()
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            out[place[values[i]]] = row
            place[values[i]] += 1
    return out_offsets, out


@_jit
def _sample_unicity(
    sampled_units: np.ndarray,
    unit_offsets: np.ndarray,
    unit_words: np.ndarray,
    word_offsets: np.ndarray,
    word_units: np.ndarray,
    seed: int,
    out: np.ndarray,
) -> None:
    """Draw words of each sampled unit one by one, and write to ``out`` after each whether no other unit uses all words
    drawn so far (see `unicity`)."""
    for row in range(len(sampled_units)):
        unit = sampled_units[row]
        words = unit_words[unit_offsets[unit] : unit_offsets[unit + 1]].copy()
        others = np.empty(0, dtype=np.uint32)
        for m in range(min(out.shape[1], len(words))):
            # A partial Fisher-Yates shuffle: the word drawn goes to place m.
            draw = _hash(np.uint64(seed), np.uint64(0), np.uint64(unit), np.uint64(m)) % np.uint64(len(words) - m)
            chosen = m + np.int64(draw)
            words[m], words[chosen] = words[chosen], words[m]
            users = word_units[word_offsets[words[m]] : word_offsets[words[m] + 1]]
            if m == 0:
                others = users[users != unit]
            elif len(others):
                at = np.searchsorted(users, others)
                num_left = 0
                for i in range(len(others)):
                    if at[i] < len(users) and users[at[i]] == others[i]:
                        others[num_left] = others[i]
                        num_left += 1
                others = others[:num_left]
            out[row, m] = len(others) == 0
