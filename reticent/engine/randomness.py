"""Seeded randomness: one counter-based generator, with a separate stream for each use."""

from __future__ import annotations

import numpy as np


def generator(seed: int, stream: int) -> np.random.Generator:
    """Return a random generator for a seed (any integer, taken modulo 2^64) and a stream, a number that is different
    for each purpose.

    The draws of one stage never depend on those of another.
    """
    return np.random.Generator(np.random.Philox(key=np.array([seed & (2**64 - 1), stream], dtype=np.uint64)))
