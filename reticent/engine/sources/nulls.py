"""How many values of a corpus are null that must not be, looked for once one was found: all can be repaired at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError

__all__ = ["count_nulls"]

#: Rows that are named of each column.
NUM_NAMED = 4


def count_nulls(
    files: Iterable[tuple[Path | str, Iterator[pa.RecordBatch]]], columns: Sequence[str], text_column: str
) -> str:
    """Return the rest of the error of one null: how many there are of each column, where, and the settings that help.

    Cost: a pass over these columns.
    """
    counts, places = dict.fromkeys(columns, 0), {column: list[str]() for column in columns}
    num_rows, is_whole = 0, True
    try:
        for file, batches in files:
            row, name = 0, PurePath(file).name
            for batch in batches:
                for column in columns:
                    array = batch.column(batch.schema.get_field_index(column))
                    if array.null_count:
                        counts[column] += array.null_count
                        wanted = NUM_NAMED - len(places[column])
                        nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[:wanted]
                        places[column] += [f"{name} row {row + int(at) + 1}" for at in nulls]
                row += batch.num_rows
            num_rows += row
    except CorpusError:
        is_whole = False  # something else is wrong after this
    parts = []
    if sum(counts.values()) > 1:
        for column, count in counts.items():
            if count:
                more = ", …" if count > len(places[column]) else ""
                parts.append(f"{count:,} of column {column} ({', '.join(places[column])}{more})")
        least = "" if is_whole else " at least"
        parts = [f"; null{least}: {' and '.join(parts)}, of {num_rows:,} rows"]
    if counts.get(text_column):
        parts.append('; corpus.on_null = "skip" leaves documents without a text out')
    return "".join(parts)
