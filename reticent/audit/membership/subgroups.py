"""Subgroups of individuals, and the one whose members are most clearly distinguishable, which an average hides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reticent.audit.evidence.membership import WorstSubgroup
from reticent.audit.stats.areas import auc_estimate
from reticent.audit.stats.statistics import LEVEL
from reticent.engine.store import TokenStore

__all__ = ["subgroups", "worst_subgroup"]

#: A subgroup with fewer individuals on a side is not measured.
SMALLEST_SIDE = 10


def subgroups(store: TokenStore, columns: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """Return groupings of the individuals of a store: name -> label of each individual (by code, ascending).

    The groupings are thirds by number of documents, thirds by total length in tokens, and one for each of ``columns``
    (one value for each individual). A grouping with a single group is left out.
    """
    _, number = np.unique(store.individual, return_inverse=True)
    documents = np.bincount(number)
    length = np.bincount(number, weights=np.diff(store.doc_offsets))
    groups = {
        "documents": _thirds(documents, ("fewest documents", "middle number of documents", "most documents")),
        "length": _thirds(length, ("shortest", "middle length", "longest")),
    }
    groups |= {name: np.array([f"{name} {value}" for value in values]) for name, values in (columns or {}).items()}
    return {name: labels for name, labels in groups.items() if len(np.unique(labels)) > 1}


def _thirds(values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """The third of each value. Equal values are in the same third, so a third can be empty."""
    return np.array(names)[np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values, side="left")]


def worst_subgroup(
    scores: np.ndarray,
    is_member: np.ndarray,
    groups: Mapping[str, np.ndarray],
    individuals: np.ndarray | None = None,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> WorstSubgroup | None:
    """Return the group whose interval lies highest, with Bonferroni correction; None if no group has ten individuals on
    both sides.

    Parameters
    ----------
    scores : float array, shape (individuals,), NaN for none
    is_member : bool array, shape (individuals,)
    groups : name -> label of each individual, shape (individuals,)
    individuals, units : as for `clusters_of`
    """
    codes = np.arange(len(scores)) if individuals is None else individuals
    usable = ~np.isnan(scores)
    sides = {}
    for labels in groups.values():
        for label in np.unique(labels):
            here = usable & (labels == label)
            chosen = here & is_member, here & ~is_member
            if min(map(np.count_nonzero, chosen)) >= SMALLEST_SIDE:
                sides[str(label)] = chosen
    if not sides:
        return None
    level = 1 - (1 - LEVEL) / len(sides)
    measured = {
        label: auc_estimate(
            scores[members],
            scores[others],
            (codes[members], codes[others]),
            num_bootstrap=num_bootstrap,
            seed=seed,
            units=units,
            level=level,
        )
        for label, (members, others) in sides.items()
    }
    worst, auc = max(measured.items(), key=lambda row: (row[1].low or 0.0, row[1].value or 0.0))
    num_members, num_nonmembers = (int(np.count_nonzero(side)) for side in sides[worst])
    return WorstSubgroup(
        group=worst, num_groups=len(measured), num_members=num_members, num_nonmembers=num_nonmembers, auc=auc
    )
