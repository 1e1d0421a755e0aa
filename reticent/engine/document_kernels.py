"""Numba kernels that reduce the token values of each document to one number, or rank them; see also `kernels`."""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["document_lowest", "document_ranks", "document_sums", "document_window_wins"]

_jit = numba.njit(nogil=True, cache=True)


@_jit
def document_sums(values: np.ndarray, chosen: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each document the sum (float64) and the number (int64) of the values where ``chosen`` is True;
    ``offsets`` has the documents' bounds."""
    totals = np.zeros(len(offsets) - 1, dtype=np.float64)
    counts = np.zeros(len(offsets) - 1, dtype=np.int64)
    for document in range(len(offsets) - 1):
        for i in range(offsets[document], offsets[document + 1]):
            if chosen[i]:
                totals[document] += values[i]
                counts[document] += 1
    return totals, counts


@_jit
def document_lowest(values: np.ndarray, offsets: np.ndarray, share: float) -> np.ndarray:
    """Return for each document the mean (float64) of its lowest values: a ``share`` of them, but at least one value.
    NaN values are ignored; a document without other values gets NaN."""
    means = np.full(len(offsets) - 1, np.nan, dtype=np.float64)
    for document in range(len(offsets) - 1):
        part = _without_nan(values[offsets[document] : offsets[document + 1]])
        if len(part) == 0:
            continue
        num_kept = max(int(len(part) * share), 1)
        _lowest_first(part, num_kept - 1)
        total = 0.0
        for value in part[:num_kept]:
            total += value
        means[document] = total / num_kept
    return means


@_jit
def _without_nan(values: np.ndarray) -> np.ndarray:
    """Return the values that are not NaN, in order. (Boolean indexing costs Numba seconds of compilation.)"""
    part = np.empty_like(values)
    count = 0
    for value in values:
        if not np.isnan(value):
            part[count] = value
            count += 1
    return part[:count]


@_jit
def _lowest_first(part: np.ndarray, last: int) -> None:
    """Partially sort ``part`` in place, so that its ``last + 1`` lowest values come first (quickselect with a
    median-of-three pivot).

    The steps are those of Numba's ``np.partition``, so sums over these places have the same rounding. That one takes
    five seconds to compile, most of them for the texts of its errors.
    """
    low, high = 0, len(part) - 1
    while True:
        middle = (low + high) >> 1
        if part[middle] < part[low]:
            part[low], part[middle] = part[middle], part[low]
        if part[high] < part[middle]:
            part[high], part[middle] = part[middle], part[high]
        if part[middle] < part[low]:
            part[low], part[middle] = part[middle], part[low]
        pivot = part[middle]
        part[high], part[middle] = part[middle], part[high]
        i, j = low, high - 1
        while True:
            while i < high and part[i] < pivot:
                i += 1
            while j >= low and pivot < part[j]:
                j -= 1
            if i >= j:
                break
            part[i], part[j] = part[j], part[i]
            i += 1
            j -= 1
        part[i], part[high] = part[high], part[i]
        if i == last:
            return
        if i < last:
            low = i + 1
        else:
            high = i - 1


@_jit
def document_window_wins(values: np.ndarray, offsets: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return for each document the share (float64) of its sliding windows with a positive sum, averaged over the window
    sizes.

    Values that are NaN are left out first; so are sizes that a document is too short for, and where all are, it is one
    window itself. NaN for a document without values.
    """
    means = np.full(len(offsets) - 1, np.nan, dtype=np.float64)
    for document in range(len(offsets) - 1):
        part = _without_nan(values[offsets[document] : offsets[document + 1]])
        running = np.zeros(len(part) + 1, dtype=np.float64)
        for i in range(len(part)):
            running[i + 1] = running[i] + part[i]
        total, num_sizes = 0.0, 0
        for size in sizes:
            if size <= len(part):
                num_over = 0
                for first in range(len(part) - size + 1):
                    num_over += running[first + size] > running[first]
                total += num_over / (len(part) - size + 1)
                num_sizes += 1
        if num_sizes:
            means[document] = total / num_sizes
        elif len(part):
            means[document] = 1.0 if running[-1] > 0.0 else 0.0
    return means


@_jit
def document_ranks(keys: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the rank of each key within its document, int64 from 0, in ascending order; of equal keys the earlier has
    the lower rank."""
    ranks = np.empty(len(keys), dtype=np.int64)
    for document in range(len(offsets) - 1):
        start = offsets[document]
        order = np.argsort(keys[start : offsets[document + 1]], kind="mergesort")
        for rank in range(len(order)):
            ranks[start + order[rank]] = rank
    return ranks
