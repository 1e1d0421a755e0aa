"""Numba kernels over token arrays: windows, gathers, mask draws. Integers only; strings are Rust's.

All release the interpreter lock, none is parallel (a forked child would hang), and compiled code is cached on disk.
Randomness is counter-based: a draw depends on (seed, epoch, window, word) and on nothing else, so it is the same
however windows are batched, ordered or resumed.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["cut_documents", "draw_words", "gather_windows", "word_slots"]

_jit = numba.njit(nogil=True, cache=True)


@_jit
def _mix(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@_jit
def _hash(seed: np.uint64, epoch: np.uint64, window: np.uint64, word: np.uint64) -> np.uint64:
    """Splitmix64 finaliser chained over the four counters."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = _mix(seed + golden)
    state = _mix(state ^ (epoch + golden))
    state = _mix(state ^ (window + golden))
    return _mix(state ^ (word + golden))


@_jit
def cut_documents(doc_offsets: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut documents into runs of at most ``capacity`` tokens; returns document, start and length of each (int64)."""
    num_windows = 0
    for document in range(len(doc_offsets) - 1):
        length = doc_offsets[document + 1] - doc_offsets[document]
        num_windows += (length + capacity - 1) // capacity
    documents = np.empty(num_windows, dtype=np.int64)
    starts = np.empty(num_windows, dtype=np.int64)
    lengths = np.empty(num_windows, dtype=np.int64)
    window = 0
    for document in range(len(doc_offsets) - 1):
        at, end = doc_offsets[document], doc_offsets[document + 1]
        while at < end:
            documents[window] = document
            starts[window] = at
            lengths[window] = min(capacity, end - at)
            at += capacity
            window += 1
    return documents, starts, lengths


@_jit
def gather_windows(
    values: np.ndarray, starts: np.ndarray, lengths: np.ndarray, offset: int, fill: int, out: np.ndarray
) -> None:
    """Copy each window of ``values`` to its row of ``out`` (B, T) from column ``offset``; the rest is ``fill``."""
    for row in range(len(starts)):
        out[row, :offset] = fill
        for i in range(lengths[row]):
            out[row, offset + i] = values[starts[row] + i]
        out[row, offset + lengths[row] :] = fill


@_jit
def draw_words(
    word_ids: np.ndarray,
    protected: np.ndarray,
    windows: np.ndarray,
    share: float,
    seed: int,
    epoch: int,
    out: np.ndarray,
) -> int:
    """Draw whole words to mask in each row; returns the number of eligible tokens.

    A word is eligible when none of its tokens in the row is protected. Of E eligible words round(share * E) are drawn,
    at least one if there is any: those with the smallest hash of (seed, epoch, window, word).

    Parameters
    ----------
    word_ids : int32 array, shape (B, T), -1 outside words
    protected : bool array, shape (B, T)
    windows : int64 array, shape (B,), the number of each row's window
    out : bool array, shape (B, T), set to True at every token of a drawn word, else False
    """
    num_rows, length = word_ids.shape
    hashes = np.empty(length, dtype=np.uint64)
    eligible_tokens = 0
    for row in range(num_rows):
        out[row, :] = False
        num_eligible = 0
        at = 0
        while at < length:
            word = word_ids[row, at]
            end = at + 1
            while end < length and word_ids[row, end] == word:
                end += 1
            if word >= 0 and not protected[row, at:end].any():
                hashes[num_eligible] = _hash(
                    np.uint64(seed), np.uint64(epoch), np.uint64(windows[row]), np.uint64(word)
                )
                num_eligible += 1
                eligible_tokens += end - at
            at = end
        if num_eligible == 0:
            continue
        num_drawn = min(num_eligible, max(1, int(np.floor(share * num_eligible + 0.5))))
        threshold = np.sort(hashes[:num_eligible])[num_drawn - 1]
        at = 0
        seen = 0
        while at < length:
            word = word_ids[row, at]
            end = at + 1
            while end < length and word_ids[row, end] == word:
                end += 1
            if word >= 0 and not protected[row, at:end].any():
                if hashes[seen] <= threshold:
                    out[row, at:end] = True
                seen += 1
            at = end
    return eligible_tokens


@_jit
def word_slots(word_ids: np.ndarray, doc_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each word of a store stands: first token (int64), number of tokens (int32), document (int64)."""
    num_slots = 0
    for document in range(len(doc_offsets) - 1):
        last = -1
        for token in range(doc_offsets[document], doc_offsets[document + 1]):
            if word_ids[token] >= 0 and word_ids[token] != last:
                num_slots += 1
            last = word_ids[token]
    starts = np.empty(num_slots, dtype=np.int64)
    lengths = np.zeros(num_slots, dtype=np.int32)
    documents = np.empty(num_slots, dtype=np.int64)
    slot = -1
    for document in range(len(doc_offsets) - 1):
        last = -1
        for token in range(doc_offsets[document], doc_offsets[document + 1]):
            word = word_ids[token]
            if word >= 0:
                if word != last:
                    slot += 1
                    starts[slot] = token
                    documents[slot] = document
                lengths[slot] += 1
            last = word
    return starts, lengths, documents
