"""Numba kernels that copy ranges of bytes, bits and word numbers from one place to another; as `kernels`."""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["UNKNOWN", "copy_bits", "copy_bytes", "have_unknown", "renumber"]

_jit = numba.njit(nogil=True, cache=True)

#: Number of a word that an index does not hold, as four bytes.
UNKNOWN = 0xFFFFFFFF


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


@_jit
def _number(source: np.ndarray, at: int, width: int) -> int:
    number = np.int64(source[at]) | np.int64(source[at + 1]) << 8 | np.int64(source[at + 2]) << 16
    if width == 4:
        return number | np.int64(source[at + 3]) << 24  # type: ignore[return-value]
    return np.int64(UNKNOWN) if number == 0xFFFFFF else number  # type: ignore[return-value]


@_jit
def have_unknown(source: np.ndarray, width: int, starts: np.ndarray, lengths: np.ndarray, out: np.ndarray) -> None:
    """Write to ``out`` (bool) whether each range of words has a word without a number; ranges count words."""
    for row in range(len(starts)):
        for word in range(starts[row], starts[row] + lengths[row]):
            if _number(source, word * width, width) == UNKNOWN:
                out[row] = True
                break


@_jit
def renumber(
    source: np.ndarray,
    width: int,
    starts: np.ndarray,
    lengths: np.ndarray,
    numbers: np.ndarray,
    out: np.ndarray,
    out_width: int,
    places: np.ndarray,
) -> None:
    """Copy ranges of words, whose numbers take ``width`` bytes, with new numbers (uint32) in ``out_width`` bytes.

    Ranges count words; `UNKNOWN` stays, and fills all bits of its bytes.
    """
    for row in range(len(starts)):
        to = places[row] * out_width
        for word in range(starts[row], starts[row] + lengths[row]):
            number = _number(source, word * width, width)
            if number != UNKNOWN:
                number = np.int64(numbers[number])  # type: ignore[assignment]
            for byte in range(out_width):
                out[to] = (number >> (8 * byte)) & 0xFF
                to += 1
