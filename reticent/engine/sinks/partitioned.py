"""Results as Parquet, a file for each file of the documents, under its name and folder: partitions stay what they were.

Documents of a database or a lake are in the files of their staging, one stretch or more for each connection. Formats
with a file a document, and documents in memory, have one file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.engine.sinks.tables import ResultTable, Rows

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus

__all__ = ["partitions", "write_partitioned"]


def partitions(corpus: Corpus) -> list[tuple[str, int]]:
    """Return name and number of documents of each partition, in the order of the documents; an empty one is there."""
    numbers = corpus.documents_of_fragments()
    if not corpus.files or corpus.source.has_small_batches:
        return [("part-00000.parquet", sum(numbers))]
    top = os.path.commonpath([file.absolute().parent for file in corpus.files])
    names = [str(file.absolute().relative_to(top)) for file in corpus.files]
    return [
        (name if name.endswith(".parquet") else f"{name}.parquet", number)
        for name, number in zip(names, numbers, strict=True)
    ]


def write_partitioned(table: ResultTable, folder: Path, corpus: Corpus) -> int:
    """Write a table into a folder, a file a partition of the corpus; returns the number of rows."""
    names = partitions(corpus)
    ends = np.cumsum([number for _, number in names])
    num_rows = 0
    with ExitStack() as stack:
        current, writer = -1, None
        for number, batch in _by_partition(table.rows(), ends):
            while current < number:
                stack.close()
                current += 1
                file = folder / names[current][0]
                file.parent.mkdir(parents=True, exist_ok=True)
                writer = stack.enter_context(pq.ParquetWriter(file, table.schema, compression="zstd"))
            if batch is not None:
                assert writer is not None
                writer.write_batch(batch)
                num_rows += batch.num_rows
    return num_rows


def _by_partition(rows: Rows, ends: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """The rows, cut where a partition ends, with its number; at last the number of the last one."""
    for numbers, batch in rows:
        partition = np.searchsorted(ends, numbers, side="right")
        for number in np.unique(partition):
            start, end = np.searchsorted(partition, [number, number + 1])
            yield int(number), batch.slice(start, end - start)
    yield len(ends) - 1, None
