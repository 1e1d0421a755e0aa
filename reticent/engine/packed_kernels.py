"""Numba kernels over packed tokens: gathering windows, and word numbers by rank directory; see also `kernels`.

Rows of bits are uint64 arrays, the first bit in the lowest of the first number. ``exceptions`` (int64, ascending) are
tokens before which ``skipped`` words were passed over; ``passed`` is the running sum of ``skipped``, from 0.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["BLOCK", "gather_packed", "rank_blocks"]

_jit = numba.njit(nogil=True, cache=True)

#: Tokens between two entries of the rank directory.
BLOCK = 4096


@_jit
def _count_ones(word: np.uint64) -> int:
    """Return the number of set bits in a 64-bit word."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))  # type: ignore[return-value]


@_jit
def _bit_at(bits: np.ndarray, at: int) -> int:
    """Return the bit at this position of a packed bit array, 0 or 1."""
    return np.int64((bits[at >> 6] >> np.uint64(at & 63)) & np.uint64(1))  # type: ignore[return-value]


@_jit
def rank_blocks(bits: np.ndarray) -> np.ndarray:
    """Return the number of set bits before each block of `BLOCK` bits, int64 (num_blocks + 1,)."""
    per_block = BLOCK // 64
    ranks = np.zeros(len(bits) // per_block + 2, dtype=np.int64)
    total = 0
    for word in range(len(bits)):
        if word % per_block == 0:
            ranks[word // per_block] = total
        total += _count_ones(bits[word])
    ranks[(len(bits) + per_block - 1) // per_block :] = total
    return ranks


@_jit
def _words_before(
    begins: np.ndarray, words_before_blocks: np.ndarray, exceptions: np.ndarray, extra_words: np.ndarray, token: int
) -> int:
    """Return the number of words that begin before a token in the whole store: those whose bit in ``begins`` is set,
    and those that ``extra_words`` counts up to each of the ``exceptions`` (tokens that overlap several words or follow
    words without a token)."""
    block = token // BLOCK
    total = words_before_blocks[block]
    for word in range(block * (BLOCK // 64), token >> 6):
        total += _count_ones(begins[word])
    if token & 63:
        total += _count_ones(begins[token >> 6] & ((np.uint64(1) << np.uint64(token & 63)) - np.uint64(1)))
    return total + extra_words[np.searchsorted(exceptions, token)]


@_jit
def gather_packed(
    ids: np.ndarray,
    high: np.ndarray,
    begins: np.ndarray,
    outside: np.ndarray,
    direct: np.ndarray,
    indirect: np.ndarray,
    ranks: np.ndarray,
    exceptions: np.ndarray,
    passed: np.ndarray,
    firsts: np.ndarray,
    starts: np.ndarray,
    places: np.ndarray,
    lengths: np.ndarray,
    offset: int,
    pad: int,
    out_ids: np.ndarray,
    out_words: np.ndarray,
    out_flags: np.ndarray,
) -> None:
    """Unpack windows of tokens from packed arrays, and write each to a row of ``out_ids``, ``out_words`` and
    ``out_flags`` (B, T), from column ``offset``: token ids, word numbers and protection flags. Other cells get ``pad``,
    -1 and 0.

    ``firsts`` and ``starts`` are the first tokens of each window's document and of the window, by number of the ids;
    ``places`` is the window's first token by number of the planes ``direct`` and ``indirect``.
    """
    is_wide = len(high) > 0
    for row in range(len(starts)):
        start, place, length = starts[row], places[row], lengths[row]
        word = _words_before(begins, ranks, exceptions, passed, start)
        word -= _words_before(begins, ranks, exceptions, passed, firsts[row]) + 1
        nearest = np.searchsorted(exceptions, start)
        out_ids[row, :offset] = pad
        out_words[row, :offset] = -1
        out_flags[row, :offset] = 0
        for i in range(length):
            token = start + i
            word += _bit_at(begins, token)
            if nearest < len(exceptions) and exceptions[nearest] == token:
                word += passed[nearest + 1] - passed[nearest]
                nearest += 1
            number = np.int64(ids[token])
            if is_wide:
                number |= np.int64(high[token]) << 16
            out_ids[row, offset + i] = number
            out_words[row, offset + i] = -1 if _bit_at(outside, token) else word
            out_flags[row, offset + i] = _bit_at(direct, place + i) | _bit_at(indirect, place + i) << 1
        out_ids[row, offset + length :] = pad
        out_words[row, offset + length :] = -1
        out_flags[row, offset + length :] = 0
