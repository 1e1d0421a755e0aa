"""The rate of members, the rate of held-out individuals, and their difference: the form of nearly every measure."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from reticent.audit.evidence.leakage import Excess
from reticent.audit.stats.statistics import Bootstrap, ratio_difference, ratio_estimate

__all__ = ["Counts", "excess_of", "two_sides"]

#: Numerator and denominator of a rate, float arrays with one entry an individual, and the codes of the individuals,
#: without which an interval cannot resample households.
Counts = tuple[np.ndarray, ...]


def excess_of(
    members: Counts,
    heldout: Counts,
    *,
    limit: float | None = 1.0,
    signed: bool = False,
    **bootstrap: Unpack[Bootstrap],
) -> Excess:
    """Return the rate of members, the rate of held-out individuals, and their difference.

    ``limit`` and ``signed`` have the meaning that they have in `ratio_estimate`.
    """
    return Excess(
        members=ratio_estimate(*members, limit=limit, signed=signed, **bootstrap),
        heldout=ratio_estimate(*heldout, limit=limit, signed=signed, **bootstrap),
        excess=ratio_difference(members, heldout, limit=limit, signed=signed, **bootstrap),
    )


def two_sides(
    values: np.ndarray,
    individuals: np.ndarray,
    is_member: np.ndarray,
    *,
    limit: float | None,
    **bootstrap: Unpack[Bootstrap],
) -> Excess:
    """Return the mean over members, the mean over held-out individuals, and their difference, clustered by individual.

    Parameters
    ----------
    values : float array, shape (D,), one value for each document
    individuals : integer array, shape (D,)
    is_member : bool array, shape (D,)
    """
    sides = []
    for side in (is_member, ~is_member):
        codes, row = np.unique(individuals[side], return_inverse=True)
        row = row.reshape(-1)
        totals = np.bincount(row, weights=values[side], minlength=len(codes))
        sides.append((totals, np.bincount(row, minlength=len(codes)).astype(np.float64), codes))
    return excess_of(*sides, limit=limit, **bootstrap)
