"""Numba kernels over patched tokens: some runs of each document are the patch's own, the others are runs of the ids.

A *run* is a sequence of neighbouring tokens of one of the two. The *source* of a run is its first token. A source below
``num_stored`` is a token of the ids; any other, less ``num_stored``, is a token of the patch. Both come as the tuple of
arrays that `columns_of` makes, in the layout of `packed_kernels`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from reticent.engine.packed_kernels import _bit, _words_before

__all__ = [
    "Columns",
    "columns_of",
    "copy_stretches",
    "first_tokens_of_words",
    "gather_patched",
    "patched_ids",
    "patched_words",
    "splice",
    "words_before",
]

_jit = numba.njit(nogil=True, cache=True)
#: Ids, third bytes, bits of tokens that begin a word, bits of tokens outside of words, ranks, exceptions, words that
#: exceptions pass over.
Columns = tuple[np.ndarray, ...]


def columns_of(tokens: Any) -> Columns:
    """Return the columns of `packed.TokenArrays` as read-only views."""
    columns = (
        tokens.ids, tokens.high, tokens.begins, tokens.outside, tokens.ranks, tokens.exceptions, tokens.passed
    )  # fmt: skip
    views = tuple(column.view() for column in columns)
    for view in views:
        view.flags.writeable = False
    return views


@_jit
def words_before(
    begins: np.ndarray, ranks: np.ndarray, exceptions: np.ndarray, passed: np.ndarray, at: np.ndarray
) -> np.ndarray:
    """Return for each token of ``at`` how many words of all documents begin, or are passed over, before it, int64."""
    counts = np.empty(len(at), dtype=np.int64)
    for i in range(len(at)):
        counts[i] = _words_before(begins, ranks, exceptions, passed, at[i])
    return counts


@_jit
def _ids_run(columns: Columns, first: int, num: int, out: np.ndarray, at: int) -> None:
    ids, high = columns[0], columns[1]
    if len(high):
        for i in range(num):
            out[at + i] = np.int64(ids[first + i]) | np.int64(high[first + i]) << 16
    else:
        for i in range(num):
            out[at + i] = ids[first + i]


@_jit
def _words_run(columns: Columns, first: int, num: int, word: int, out: np.ndarray, at: int) -> None:
    """Write the words of ``num`` tokens from ``first`` on; ``word`` is the last word that began before."""
    begins, outside, exceptions, passed = columns[2], columns[3], columns[5], columns[6]
    nearest = np.searchsorted(exceptions, first) if len(exceptions) else 0
    for i in range(num):
        token = first + i
        word += _bit(begins, token)
        if nearest < len(exceptions) and exceptions[nearest] == token:
            word += passed[nearest + 1] - passed[nearest]
            nearest += 1
        out[at + i] = -1 if _bit(outside, token) else word


@_jit
def _words_between(columns: Columns, first: int, end: int) -> int:
    begins, ranks, exceptions, passed = columns[2], columns[4], columns[5], columns[6]
    before = _words_before(begins, ranks, exceptions, passed, first)
    return _words_before(begins, ranks, exceptions, passed, end) - before


@_jit
def patched_ids(
    stored: Columns, own: Columns, num_stored: int, tokens: np.ndarray, sources: np.ndarray, start: int, num: int,
    out: np.ndarray, at: int,
) -> None:  # fmt: skip
    """Write the ids of ``num`` tokens from ``start`` on to ``out``, beginning at place ``at``.

    Parameters
    ----------
    tokens : int64 array, shape (P + 1,): first token of each of P runs, ascending, and the end of the last
    sources : int64 array, shape (P,): source of each run
    """
    end, run = start + num, np.searchsorted(tokens, start, side="right") - 1
    while start < end:
        length = min(tokens[run + 1], end) - start
        source = sources[run] + start - tokens[run]
        if sources[run] < num_stored:
            _ids_run(stored, source, length, out, at)
        else:
            _ids_run(own, source - num_stored, length, out, at)
        start += length
        at += length
        run += 1


@_jit
def patched_words(
    stored: Columns, own: Columns, num_stored: int, tokens: np.ndarray, sources: np.ndarray, words: np.ndarray,
    start: int, num: int, out: np.ndarray, at: int,
) -> None:  # fmt: skip
    """Write the word of each token, in the way of `patched_ids`; -1 for a token outside of words.

    Parameters
    ----------
    words : int64 array, shape (P,): the last word of its document that began before each run
    """
    end, run = start + num, np.searchsorted(tokens, start, side="right") - 1
    while start < end:
        length = min(tokens[run + 1], end) - start
        first, word, inside = sources[run], words[run], start - tokens[run]
        if first < num_stored:
            if inside:
                word += _words_between(stored, first, first + inside)
            _words_run(stored, first + inside, length, word, out, at)
        else:
            first -= num_stored
            if inside:
                word += _words_between(own, first, first + inside)
            _words_run(own, first + inside, length, word, out, at)
        start += length
        at += length
        run += 1


@_jit
def gather_patched(
    stored: Columns,
    own: Columns,
    num_stored: int,
    tokens: np.ndarray,
    sources: np.ndarray,
    words: np.ndarray,
    direct: np.ndarray,
    indirect: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    offset: int,
    pad: int,
    out_ids: np.ndarray,
    out_words: np.ndarray,
    out_flags: np.ndarray,
) -> None:
    """Write each window of tokens to its row of the outputs (B, T); see `packed_kernels.gather_packed`."""
    for row in range(len(starts)):
        start, length = starts[row], lengths[row]
        end = offset + length
        out_ids[row, :offset] = pad
        out_words[row, :offset] = -1
        out_flags[row, :offset] = 0
        patched_ids(stored, own, num_stored, tokens, sources, start, length, out_ids[row], offset)
        patched_words(stored, own, num_stored, tokens, sources, words, start, length, out_words[row], offset)
        for i in range(length):
            out_flags[row, offset + i] = _bit(direct, start + i) | _bit(indirect, start + i) << 1
        out_ids[row, end:] = pad
        out_words[row, end:] = -1
        out_flags[row, end:] = 0


@_jit
def splice(kept: np.ndarray, made: np.ndarray, kept_before: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the entries of ``kept`` with those of ``made`` inserted.

    Parameters
    ----------
    kept_before : int64 array, shape (R,): entries of ``kept`` before ``made[offsets[r]:offsets[r + 1]]``
    offsets : int64 array, shape (R + 1,)
    """
    out = np.empty(len(kept) + len(made), dtype=kept.dtype)
    at = taken = 0
    for r in range(len(kept_before)):
        for i in range(taken, kept_before[r]):
            out[at] = kept[i]
            at += 1
        taken = kept_before[r]
        for i in range(offsets[r], offsets[r + 1]):
            out[at] = made[i]
            at += 1
    for i in range(taken, len(kept)):
        out[at] = kept[i]
        at += 1
    return out


@_jit
def first_tokens_of_words(
    stored: Columns, doc_firsts: np.ndarray, doc_ends: np.ndarray, word_offsets: np.ndarray
) -> np.ndarray:
    """Return for each word of these documents the token behind the last one of the word before, int64 (W,).

    The entry is -1 where the words around the token do not follow from the bits alone.
    """
    begins, outside, exceptions = stored[2], stored[3], stored[5]
    firsts = np.full(word_offsets[-1], -1, dtype=np.int64)
    for d in range(len(doc_firsts)):
        word, behind = -1, doc_firsts[d]
        nearest = np.searchsorted(exceptions, doc_firsts[d])
        for token in range(doc_firsts[d], doc_ends[d]):
            is_plain = True
            if nearest < len(exceptions) and exceptions[nearest] == token:
                word += stored[6][nearest + 1] - stored[6][nearest]
                nearest += 1
                is_plain = False
            if _bit(begins, token):
                word += 1
                if is_plain:
                    firsts[word_offsets[d] + word] = behind
            if not _bit(outside, token):
                behind = token + 1
    return firsts


@_jit
def copy_stretches(data: np.ndarray, firsts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    """Copy the stretches ``data[firsts[r]:ends[r]]`` to ``out``, one after the other."""
    at = 0
    for r in range(len(firsts)):
        for i in range(firsts[r], ends[r]):
            out[at] = data[i]
            at += 1
