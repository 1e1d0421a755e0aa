"""Pseudonymised text: each word of a direct identifier replaced by ``X`` (seed 1 §5.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from reticent._rust import Words

__all__ = ["pseudonymise"]


def pseudonymise(
    texts: pa.Array, words: Words, mask: np.ndarray, replacement: str = "X", *, num_threads: int = 0
) -> pa.Array:
    """Return the texts with each masked word replaced; everything between words stays.

    Parameters
    ----------
    mask : uint8 array, shape (num_words,)
        Nonzero for the words to replace.
    """
    from reticent import _rust

    replaced = _rust.replace_words(texts, words, mask, replacement, num_threads=num_threads)
    return pa.record_batch(replaced).column("text")
