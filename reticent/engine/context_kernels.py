"""Numba kernel that replaces identifying words of model inputs by public words; see also `kernels`."""

from __future__ import annotations

import numba
import numpy as np

from reticent.engine.kernels import _hash, _mix

__all__ = ["NUM_KINDS", "draw_surrogates", "kind_of_word"]

_jit = numba.njit(nogil=True, cache=True)

#: Kinds of a word: with a space before it or not; with a digit, lower case, capitalised, upper case.
NUM_KINDS = 8


@_jit
def kind_of_word(classes: np.ndarray, ids: np.ndarray, start: int, end: int) -> int:
    """Return the form of the word in ``ids[start:end]`` as a number from 0 to 7: 4 for a preceding space, plus one of
    four letter cases; ``classes`` has the character class of each token id."""
    first = classes[ids[start]]
    any_of = np.uint8(0)
    for at in range(start, end):
        any_of |= classes[ids[at]]
    form = 0 if any_of & 4 else 1 if not first & 2 else 2 if any_of & 8 else 3
    return int(first & 1) * 4 + form


@_jit
def draw_surrogates(
    input_ids: np.ndarray,
    word_ids: np.ndarray,
    replaced: np.ndarray,
    windows: np.ndarray,
    classes: np.ndarray,
    first: np.ndarray,
    count: np.ndarray,
    entries: np.ndarray,
    pool: np.ndarray,
    is_rare: np.ndarray,
    fill: int,
    fill_is_rare: np.ndarray,
    seed: int,
    epoch: int,
    out: np.ndarray,
) -> tuple[int, int, int]:
    """Write to ``out`` the token ids of a batch (B, T) in which each word marked in ``replaced`` is replaced by a
    random public word of equally many tokens, taken from the token ids in ``pool``, or by the token ``fill`` if there
    is none. Return three counts: words replaced, of these words filled, and replacements that happen to be identifying.

    A draw is a function of (seed, epoch, window, column), never of the word that stood there: of that its number of
    tokens and its kind are kept. Where the pool has no word of as many tokens, ``fill`` stands for each of them.

    Parameters
    ----------
    replaced : bool array, shape (B, T); tokens that follow each other with one word number are a word
    classes : uint8 array, one an id
    first, count : int64 arrays, shape (NUM_KINDS, L + 1): where the words of a kind and a length begin in ``entries``,
        and how many there are
    entries : int64 array: where in ``pool`` each begins
    is_rare : uint8 array, one an entry: whether it happens to be a word that identifies
    fill_is_rare : uint8 array, shape (L + 1,): whether ``fill`` that many times happens to be one

    Returns
    -------
    Words replaced, words without a public one of their length, and words put in that happen to identify.
    """
    num_rows, length = input_ids.shape
    num_replaced, num_filled, num_rare = 0, 0, 0
    for row in range(num_rows):
        out[row, :] = input_ids[row, :]
        at = 0
        while at < length:
            if not replaced[row, at]:
                at += 1
                continue
            end = at + 1
            while end < length and replaced[row, end] and word_ids[row, end] == word_ids[row, at]:
                end += 1
            num_replaced += 1
            num = end - at
            kind = kind_of_word(classes, input_ids[row], at, end)
            choices = count[kind, num] if num < count.shape[1] else 0
            if choices == 0:
                num_filled += 1
                num_rare += fill_is_rare[num] if num < len(fill_is_rare) else 0
                out[row, at:end] = fill
            else:
                state = _hash(np.uint64(seed), np.uint64(epoch), np.uint64(windows[row]), np.uint64(at))
                state = _mix(state ^ np.uint64(0xA0761D6478BD642F))  # masks are drawn by the same counters
                entry = first[kind, num] + np.int64(state % np.uint64(choices))
                num_rare += is_rare[entry]
                for place in range(num):
                    out[row, at + place] = pool[entries[entry] + place]
            at = end
    return num_replaced, num_filled, num_rare
