"""Numba kernels that copy ranges of bytes and bits from one place to another; as `kernels`."""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["copy_bits", "copy_bytes"]

_jit = numba.njit(nogil=True, cache=True)


@_jit
def copy_bytes(
    source: np.ndarray, starts: np.ndarray, lengths: np.ndarray, out: np.ndarray, places: np.ndarray
) -> None:
    """Copy ranges of bytes of ``source`` to ``places`` in ``out``; both uint8."""
    for row in range(len(starts)):
        start, place = starts[row], places[row]
        for i in range(lengths[row]):
            out[place + i] = source[start + i]


@_jit
def copy_bits(source: np.ndarray, starts: np.ndarray, lengths: np.ndarray, out: np.ndarray, places: np.ndarray) -> None:
    """Set in ``out`` the bits of ranges of ``source``, 64 at a time; both uint64, the first bit in the lowest."""
    for row in range(len(starts)):
        for done in range(0, lengths[row], 64):
            at, place = starts[row] + done, places[row] + done
            num_bits = min(64, lengths[row] - done)
            shift = at & 63
            bits = source[at >> 6] >> np.uint64(shift)
            if shift + num_bits > 64:
                bits |= source[(at >> 6) + 1] << np.uint64(64 - shift)
            if num_bits < 64:
                bits &= (np.uint64(1) << np.uint64(num_bits)) - np.uint64(1)
            shift = place & 63
            out[place >> 6] |= bits << np.uint64(shift)
            if shift + num_bits > 64:
                out[(place >> 6) + 1] |= bits >> np.uint64(64 - shift)
