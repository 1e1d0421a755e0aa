"""The unit that intervals resample: the household, if the split keeps several individuals together, or the individual.

`bootstrap_of` decides it once for an audit, from the unit of each individual in the split. Every interval gets the
decision with the settings of its bootstrap (`Bootstrap`), and the individuals of its rows: it sums a rate by household,
or draws the rows of a household together. A count in an exact bound is then one of households, which is conservative.
Where no two share a unit there are no households, and every number is that of a bootstrap over individuals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NotRequired, TypedDict

import numpy as np

from reticent.engine.kernels import draw_counts

__all__ = [
    "MAX_WEIGHTS",
    "Bootstrap",
    "Draws",
    "bootstrap_of",
    "cluster_sums",
    "clusters_of",
    "iter_resamples",
    "num_clusters",
]

#: Weights of resamples held at once, in numbers: 2^23 float64 are 64 MiB.
MAX_WEIGHTS = 1 << 23


class Draws(TypedDict):
    """The number of resamples, and the seed of the draws."""

    num_bootstrap: int
    seed: int


class Bootstrap(Draws):
    """Settings of the bootstrap: its draws, and the household of each individual (by code), absent where individuals
    are resampled."""

    units: NotRequired[np.ndarray | None]


def bootstrap_of(num_bootstrap: int, seed: int, units: np.ndarray | None) -> Bootstrap:
    """Return the settings of an audit's intervals: they resample households where a unit has several individuals.

    Parameters
    ----------
    units : integer array, shape (individuals,)
        Unit of each individual (by code), which the split keeps on one side; None: every individual is one.
    """
    from reticent.engine.split import households_of

    households = households_of(units)
    if households is None:
        return {"num_bootstrap": num_bootstrap, "seed": seed}
    return {"num_bootstrap": num_bootstrap, "seed": seed, "units": households}


def clusters_of(individuals: np.ndarray | None, units: np.ndarray | None) -> np.ndarray | None:
    """Return the number of the household of each row, int64, from 0 without gaps; None where individuals are resampled.

    Parameters
    ----------
    individuals : integer array, shape (rows,), the code of each row's individual

    Raises
    ------
    TypeError
        There are households, and the individuals of the rows were not given.
    """
    if units is None:
        return None
    if individuals is None:
        raise TypeError("intervals over households need the individual of each row")
    return np.unique(units[individuals], return_inverse=True)[1].reshape(-1)


def num_clusters(clusters: np.ndarray) -> int:
    """Return how many households there are, from the number of each row's."""
    return int(clusters.max(initial=-1)) + 1


def cluster_sums(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return the sums of rows over households, float64, shape (households, ...)."""
    sums = np.zeros((num_clusters(clusters), *np.shape(values)[1:]))
    np.add.at(sums, clusters, values)
    return sums


def iter_resamples(
    num: int, num_bootstrap: int, seed: int, *, rows: int | None = None, clusters: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Yield blocks of resamples, float64, shape (at most ``rows``, num): how often each of ``num`` individuals is drawn
    in each. The numbers do not depend on ``rows``. ``clusters`` has the household of each, who are drawn together."""
    rows = rows or max(1, MAX_WEIGHTS // num)
    num_drawn = num if clusters is None else num_clusters(clusters)
    for done in range(0, num_bootstrap, rows):
        weights = np.empty((min(rows, num_bootstrap - done), num_drawn))
        draw_counts(seed, done, weights)
        yield weights if clusters is None else weights[:, clusters]
