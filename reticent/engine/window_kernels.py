"""Numba kernels that cut documents into windows, gather their tokens and pack them into rows; see also `kernels`."""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["cut_documents", "gather_windows", "lay_rows", "pack_rows"]

_jit = numba.njit(nogil=True, cache=True)


@_jit
def cut_documents(doc_offsets: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return windows of at most ``capacity`` tokens that cut up all documents: document, first token and length of
    each, int64 (num_windows,)."""
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
    """Copy each window of ``values`` to its row of ``out`` (B, T) from column ``offset``; other cells get ``fill``."""
    for row in range(len(starts)):
        out[row, :offset] = fill
        for i in range(lengths[row]):
            out[row, offset + i] = values[starts[row] + i]
        out[row, offset + lengths[row] :] = fill


@_jit
def pack_rows(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Return the row, int64, to which best-fit packing assigns each window, given the windows' lengths (longest first)
    and the ``capacity`` of a row in tokens.

    Best fit: each goes to the fullest row that has room. With falling lengths the number of rows depends on nothing
    but the lengths, and is at most 11/9 of the fewest possible, plus one. Cost: ``capacity`` steps a window at worst.
    """
    rows = np.empty(len(lengths), dtype=np.int64)
    newest = np.full(capacity + 1, -1, dtype=np.int64)  # by room left: the row that came to it last, a stack
    below = np.empty(len(lengths), dtype=np.int64)
    num_rows = 0
    for window in range(len(lengths)):
        room = lengths[window]
        while room <= capacity and newest[room] < 0:
            room += 1
        if room <= capacity:
            row = newest[room]
            newest[room] = below[row]
        else:
            row, room = num_rows, capacity
            num_rows += 1
        left = room - lengths[window]
        below[row] = newest[left]
        newest[left] = row
        rows[window] = row
    return rows


@_jit
def lay_rows(
    input_ids: np.ndarray,
    labels: np.ndarray,
    lengths: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    out_ids: np.ndarray,
    out_labels: np.ndarray,
    positions: np.ndarray,
) -> None:
    """Copy windows from padded arrays (W, S) into packed arrays (B, T): the first ``lengths[w]`` tokens and labels of
    window w go to row ``rows[w]`` from column ``columns[w]``, and their positions in the window to ``positions``.

    Cells of no window stay as they are; the others say in ``positions`` where in their window they stand.
    """
    for window in range(len(lengths)):
        row, column = rows[window], columns[window]
        for i in range(lengths[window]):
            out_ids[row, column + i] = input_ids[window, i]
            out_labels[row, column + i] = labels[window, i]
            positions[row, column + i] = i
