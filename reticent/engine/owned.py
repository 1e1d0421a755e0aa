"""Columns that are kept longer than their batch."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["owned", "owned_batch"]


def owned(array: pa.Array) -> pa.Array:
    """Return a copy of a column.

    A column that came through Arrow's C interface keeps all columns of its batch in memory, the texts among them.
    """
    return pa.concat_arrays([array, array.slice(0, 0)])


def owned_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of a batch, whose columns keep nothing else; see `owned`."""
    return pa.RecordBatch.from_arrays([owned(column) for column in batch.columns], schema=batch.schema)
