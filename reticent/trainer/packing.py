"""Packing: several windows in one row, without attention between them.

Windows are gathered, masked and counted one by one, and laid side by side after that. So loss and ledger are those of
unpacked training. Attention runs over each window by itself (`reticent.trainer.attention`), from the bounds of the
windows; there is no mask. Positions start again with each window. A forward pass over two windows checks, before
training, that they do not influence each other.

Shapes: W windows, B rows, T tokens of a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reticent.engine.randomness import generator
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.window_kernels import lay_rows, pack_rows
from reticent.trainer.windows import Windows


@dataclass(frozen=True, slots=True)
class Packed:
    """Windows in packed rows: input_ids, labels and positions int64 (B, T), and the bounds of the windows in the
    flattened batch, int32, from 0 to B * T; the padding behind a row is a window of its own.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    positions: np.ndarray
    bounds: np.ndarray


def packed_order(
    windows: Windows, batch_size: int, length: int, *, seed: int, epoch: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the batches of an epoch as (window numbers, row of each window in the batch): several windows share a row
    of at most ``length`` tokens, and a batch has ``batch_size`` rows.

    The windows of a row and the order of rows change with (seed, epoch); the number of rows does not.

    Returns
    -------
    list of (windows, rows) : int64 arrays, shape (W,) each
        Numbers of windows, and the row of the batch that each is placed in, ascending.
    """
    random = generator(seed, epoch)
    order = random.permutation(len(windows))
    dressed = windows.lengths[order] + windows.special.num_added
    falling = np.argsort(-dressed, kind="stable")
    order = order[falling]
    rows = pack_rows(dressed[falling], length)
    rows = random.permutation(int(rows.max(initial=-1)) + 1)[rows]
    by_row = np.argsort(rows, kind="stable")
    order, rows = order[by_row], rows[by_row]
    num_batches = -(-(int(rows.max(initial=-1)) + 1) // batch_size)
    bounds = np.searchsorted(rows, np.arange(num_batches + 1) * batch_size)
    return [(order[a:b], rows[a:b] % batch_size) for a, b in itertools.pairwise(bounds)]


def lay_out(
    input_ids_WS: np.ndarray,
    labels_WS: np.ndarray,
    lengths: np.ndarray,
    rows: np.ndarray,
    *,
    pad: int,
    padded: Callable[[int], int],
) -> Packed:
    """Concatenate windows of ``lengths`` tokens, given as padded arrays (W, S), into the rows of a packed batch.
    ``rows``, ascending, has the row of each window; ``padded(length)`` gives the width to which rows of this length are
    padded."""
    ends = np.cumsum(lengths)
    first = np.searchsorted(rows, rows)  # the first window of each window's row
    columns = ends - lengths - (ends - lengths)[first]
    shape = (int(rows[-1]) + 1, padded(int((columns + lengths).max())))
    starts = rows * shape[1] + columns
    whole = np.arange(shape[0] + 1) * shape[1]
    packed = Packed(
        np.full(shape, pad, dtype=np.int64),
        np.full(shape, IGNORE_INDEX, dtype=np.int64),
        np.zeros(shape, dtype=np.int64),
        np.unique(np.concatenate([starts, starts + lengths, whole])).astype(np.int32),
    )
    lay_rows(
        input_ids_WS, labels_WS, lengths, rows, columns,
        packed.input_ids, packed.labels, packed.positions,
    )  # fmt: skip
    return packed
