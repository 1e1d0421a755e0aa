"""Rates of members and held-out individuals, and the precision to which scores are compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.audit.stats.statistics import ratio_difference, ratio_estimate

__all__ = ["DIGITS", "two_sides"]

#: Sums are compared to this many digits after the point, in nats: below it is the noise of float32.
DIGITS = 4


def two_sides(
    values: np.ndarray, individuals: np.ndarray, is_member: np.ndarray, *, limit: float | None, **options: Any
) -> dict[str, Any]:
    """Return the mean of members, of held-out individuals, and their difference, clustered by individual."""
    sides = []
    for side in (is_member, ~is_member):
        codes, row = np.unique(individuals[side], return_inverse=True)
        row = row.reshape(-1)
        totals = np.bincount(row, weights=values[side], minlength=len(codes))
        sides.append((totals, np.bincount(row, minlength=len(codes)).astype(np.float64)))
    return {
        "members": ratio_estimate(*sides[0], limit=limit, **options).to_dict(),
        "heldout": ratio_estimate(*sides[1], limit=limit, **options).to_dict(),
        "excess": ratio_difference(*sides, limit=limit, **options).to_dict(),
    }
