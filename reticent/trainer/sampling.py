"""Poisson samples of units of privacy: the units of each step, their documents, and their physical batches.

Every draw is a function of (secret seed, step) alone. So a resumed run draws the same samples as an uninterrupted one,
and the ranks of a distributed run agree on a sample without communication; each takes its share of it. Each unit is in
a step with probability ``sample_rate``, independently of all others, so batches differ in size and may be empty.

An individual with more than G documents takes part with G of them, **drawn anew in each step**. The contribution to a
step is clipped for any choice of documents, so a fixed choice would protect no better and the model would learn less.

Opacus' `UniformWithReplacementSampler` draws rows, so it does not support units of several rows. It also uses a
generator that a resumed run cannot rewind. `python -m studies.dp_baseline` trains with these units.

The seed must be secret: epsilon assumes that no observer knows the sample, and the seed determines it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reticent.trainer.windows import Batch, Windows

__all__ = ["Sample", "Unit", "Units", "dummy_batch", "find_units", "physical_batches"]

Unit = Literal["individual", "record"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A part of a step: the windows of whole units; windows of a unit are adjacent.

    Attributes
    ----------
    windows : int64 array, shape (B,), numbers of the windows
    units : int64 array, shape (B,), non-decreasing, from 0 to the number of units of this part minus 1
    """

    windows: np.ndarray
    units: np.ndarray


@dataclass(frozen=True, slots=True)
class Units:
    """Units of privacy and their windows; see :func:`find_units`.

    Attributes
    ----------
    documents : int64 array, shape (D,), numbers of documents; documents of a unit are adjacent
    doc_offsets : int64 array, shape (U + 1,), bounds of each unit in ``documents``
    window_offsets : int64 array, shape (D + 1,), bounds of each document's windows
    max_documents : largest number of documents of a unit in a step
    """

    documents: np.ndarray
    doc_offsets: np.ndarray
    window_offsets: np.ndarray
    max_documents: int

    def __len__(self) -> int:
        return len(self.doc_offsets) - 1

    def draw(self, sample_rate: float, *, seed: int, step: int, rank: int = 0, num_ranks: int = 1) -> Sample:
        """Return the Poisson sample of a step, or a rank's share of it."""
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(step,))))
        drawn = np.flatnonzero(random.random(len(self)) < sample_rate)
        places, owners = _spread(self.doc_offsets, drawn)
        order = np.lexsort((random.random(len(places)), owners))
        places, owners = places[order], owners[order]
        kept = np.arange(len(owners)) - np.searchsorted(owners, owners) < self.max_documents
        kept &= owners % num_ranks == rank
        documents, owners = self.documents[places[kept]], owners[kept]
        windows, rows = _spread(self.window_offsets, documents)
        units = np.unique(owners[rows], return_inverse=True)[1]
        return Sample(windows, units)


def find_units(windows: Windows, unit: Unit, max_documents: int = 1) -> Units:
    """Return the units of a corpus: its documents, or its individuals with at most ``max_documents`` a step."""
    num_documents = windows.store.num_documents
    window_offsets = np.searchsorted(windows.documents, np.arange(num_documents + 1))
    if unit == "record":
        return Units(np.arange(num_documents), np.arange(num_documents + 1), window_offsets, 1)
    individual = windows.store.individual
    num_of_each = np.unique(individual, return_counts=True)[1]
    bounds = np.concatenate([[0], np.cumsum(num_of_each)])
    return Units(np.argsort(individual, kind="stable"), bounds, window_offsets, max_documents)


def physical_batches(sample: Sample, windows: Windows, max_rows: int) -> Iterator[Sample]:
    """Yield a sample in parts of at most ``max_rows`` rows, with units of similar length together.

    A unit is never divided, because its norm is computed over all its rows. A unit with more than ``max_rows`` rows is
    a part of its own.
    """
    if not len(sample.units):
        return
    sizes = np.bincount(sample.units)
    starts = np.cumsum(sizes) - sizes
    lengths = np.maximum.reduceat(windows.lengths[sample.windows], starts)
    order = np.argsort(lengths, kind="stable")
    ends = np.cumsum(sizes[order])
    first = 0
    while first < len(order):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + max_rows, side="right")))
        part = order[first:last]
        rows = np.repeat(starts[part] - (ends[first:last] - sizes[part] - before), sizes[part])
        yield Sample(sample.windows[rows + np.arange(len(rows))], np.repeat(np.arange(len(part)), sizes[part]))
        first = last


def dummy_batch(windows: Windows) -> Batch:
    """Return one row of padding for an empty sample, so its step is taken and its noise is added."""
    shape = (1, windows.padded(1))
    nothing = np.zeros(shape, dtype=np.bool_)
    return Batch(
        np.full(1, -1, dtype=np.int64),
        np.full(shape, windows.special.pad, dtype=np.int64),
        np.full(shape, -1, dtype=np.int32),
        np.zeros(shape, dtype=np.uint8),
        nothing,
        ~nothing,
    )


def _spread(offsets: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entries of the chosen slices of CSR bounds, and the index in ``chosen`` that each belongs to."""
    lengths = offsets[chosen + 1] - offsets[chosen]
    owners = np.repeat(np.arange(len(chosen)), lengths)
    starts = offsets[chosen] - (np.cumsum(lengths) - lengths)
    return starts[owners] + np.arange(len(owners)), owners
