"""Held-out individuals whom an area of membership leaves out, since they hold near-copies of members' documents.

A model knows their text, so they look like members, and the area over all is too small. Without a share s of the
held-out an area A is (A - s a) / (1 - s), where a, from 0 to 1, is theirs. So at 1 % it moves by a hundredth at most,
and is not given.
"""

from __future__ import annotations

import numpy as np

__all__ = ["SHARE", "WITHOUT_COPIES", "kept_without_copies"]

#: Up to this share of the held-out individuals none is left out.
SHARE = 0.01
#: Words for an area without them.
WITHOUT_COPIES = "held-out people with near-copies of members’ documents left out"


def kept_without_copies(codes: np.ndarray, is_member: np.ndarray, copied: np.ndarray | None) -> np.ndarray | None:
    """Return who stays, bool, shape (individuals,); None if near-copies were not looked for, or few hold any.

    Parameters
    ----------
    codes : integer array, shape (individuals,); is_member : bool array of the same shape
    copied : bool array by code, whether a held-out individual holds a near-copy of a member's document
    """
    if copied is None:
        return None
    left_out = ~is_member & copied[codes]
    return ~left_out if np.count_nonzero(left_out) > SHARE * np.count_nonzero(~is_member) else None
