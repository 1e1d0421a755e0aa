"""The n-gram index on Spark: the supports of `reticent.engine.index.build_index`, and a slice of the index for each
part.

There is one `groupBy` for each n-gram length, over the distinct n-grams of each part with their supports there: units
are whole in a part, so supports of parts add up. An n-gram of at least ``min_support`` units gets an id, the smallest
(part, row) position at which it occurs. Its key on the next level is exact: the ids of the two n-grams that it is made
of. A join brings sums and ids back to part and key; a part extends only the n-grams that are kept over all parts, so
its levels are as short as those of the whole index. With the global supports, its own tables form an index of its
documents (a *slice*).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.config import IndexConfig
from reticent.engine.index import write_tables
from reticent.engine.schema import MEMBERS, SPLITS
from reticent.ext.spark.tables import (
    blobs_of,
    decoded,
    frame_of,
    in_order,
    map_elements,
    numbered,
    persisted,
    repartition_by_part,
    rows_of_parts,
)
from reticent.ext.spark.tasks import errors_of_tasks

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame

    from reticent.ext.spark.documents import SparkDocuments

#: Rows of one level, over all parts, that Spark is asked to group; tables of an index have numbers of 32 bits.
MAX_ROWS: Final = (1 << 32) - 1


@dataclass(slots=True)
class SparkIndex:
    """The n-gram index of documents in parts.

    Attributes
    ----------
    config, splits : as it was made
    slices : dataset of bytes, one element a part: its n-grams with the supports of all
    num_units, num_documents : of the documents that were counted
    """

    documents: SparkDocuments
    config: IndexConfig
    splits: tuple[str, ...]
    slices: RDD
    num_units: int
    num_documents: int
    #: The rows of all parts by level, words first; persisted.
    _levels: list[DataFrame]
    _sizes: dict[int, int] = field(default_factory=dict)

    @property
    def max_n(self) -> int:
        """Largest n-gram length of the index."""
        return self.config.max_n

    @property
    def num_words(self) -> int:
        """Number of distinct words in the index; the first use runs a Spark job."""
        return self.num_ngrams(1)

    def num_ngrams(self, n: int) -> int:
        """Return the number of distinct n-grams of length n in the index; the first call runs a Spark job."""
        if n not in self._sizes:
            with errors_of_tasks():
                self._sizes[n] = int(self._table(n).count())
        return self._sizes[n]

    def num_rows(self, n: int) -> int:
        """Return the number of n-grams of length n, summed over partitions: one that occurs in several partitions
        counts in each.
        """
        with errors_of_tasks():
            return int(self._levels[n - 1].count())

    def _table(self, n: int) -> DataFrame:
        """Return a data frame of the n-grams of length n with their ids and supports (numbers of privacy units that use
        them), without those of support 0.
        """
        return _merge_partitions(self._levels[n - 1]).filter("support > 0")

    def write(self, folder: Path | str) -> None:
        """Write the index to a folder as tables that `open_index` reads, the same as `write_index` on one machine.

        Cost: each table is sorted and numbered by Spark; the driver holds a partition of one at a time. A table is kept
        as bytes, whose plan is short: one that held the plans of the tables before would double with each n.
        """
        about = {
            "max_n": self.max_n,
            "num_units": self.num_units,
            "num_documents": self.num_documents,
            "min_support": self.config.least_support,
            "surface": self.config.surface,
        }
        tables, blobs, found, numbers = [], [], [], None
        for n in range(1, self.max_n + 1):
            table = self._table(n)
            if numbers is None:
                table = table.orderBy("word")
            else:
                for side in ("left", "right"):
                    named = numbers.select(numbers["id"].alias(side), numbers["number"].alias(f"{side}_number"))
                    table = table.join(named, side).drop(side).withColumnRenamed(f"{side}_number", side)
                table = table.orderBy("left", "right")
            blobs.append(persisted(blobs_of(table)))
            tables.append(frame_of(self.documents.spark, blobs[-1], _ROWS[n > 1]))
            with errors_of_tasks():
                self._sizes[n] = tables[-1].count()
            schema = _WORDS if n == 1 else _NGRAMS
            found.append((self._sizes[n], _Rows(in_order(tables[-1].select(*schema.names)), schema)))
            if n < self.max_n:
                is_kept = "support > 0" if n == 1 else f"support >= {self.config.least_support}"
                numbers = numbered(tables[-1].filter(is_kept).select("id"), "number")
        write_tables(Path(folder), about, found[0], found[1:], in_parallel=False)
        for each in blobs:
            each.unpersist()

    def release(self) -> None:
        """Free the cached tables and partitions."""
        self.slices.unpersist()
        for level in self._levels:
            level.unpersist()


def _schema(**columns: pa.DataType) -> pa.Schema:
    """Return a schema of these columns, none of which can be null."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


_WORDS: Final = _schema(word=pa.large_string(), support=pa.uint32(), occurrences=pa.uint64())
_NGRAMS: Final = _schema(left=pa.uint32(), right=pa.uint32(), support=pa.uint32())


class _Rows:
    """Sequential reader of a table that arrives in pieces."""

    def __init__(self, tables: Iterator[pa.Table], schema: pa.Schema):
        self._tables, self._schema = tables, schema
        self._rest = schema.empty_table()

    def __call__(self, start: int, length: int) -> pa.RecordBatch:
        """Return the next ``length`` rows as one batch; ``start`` must be the end of the last call."""
        while self._rest.num_rows < length and (table := next(self._tables, None)) is not None:
            self._rest = pa.concat_tables([self._rest, table.cast(self._schema)])
        rows = self._rest.slice(0, length).combine_chunks()
        self._rest = self._rest.slice(length)
        batches = rows.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self._schema)


def build_index(
    documents: SparkDocuments,
    *,
    splits: tuple[str, ...] = (MEMBERS,),
    config: IndexConfig | None = None,
    progress: Callable[[int], None] | None = None,
    max_rows: int = MAX_ROWS,
) -> SparkIndex:
    """Count on Spark the n-grams of the documents on these sides of the split (default: members); return the same index
    as `reticent.engine.index.build_index`.

    Parameters
    ----------
    config : IndexConfig
        Its limits of memory and its threads mean nothing here: a part is held by one task.
    progress : called with the length that was counted
    max_rows : int
        Rows of one level, over all parts, beyond which the index is refused.

    Raises
    ------
    CorpusError
        No document belongs to the splits.
    PolicyError
        A level has more rows than ``max_rows``: one machine counts it with less.
    """
    config = config or IndexConfig()
    unknown = set(splits) - set(SPLITS)
    if unknown:
        raise PolicyError(f"unknown split {unknown.pop()!r}; expected {', '.join(SPLITS)}")
    sides = tuple(SPLITS.index(split) for split in splits)
    parts = persisted(map_elements(documents.parts, partial(_count_words, config, sides)))
    with errors_of_tasks():
        num_units, num_documents, num_rows = parts.map(_counts_of_state).reduce(_add_counts)
    if not num_documents:
        raise CorpusError(f"no document belongs to the splits {', '.join(splits)}")
    levels: list[DataFrame] = []
    for n in range(1, config.max_n + 1):
        if num_rows > max_rows:
            raise PolicyError(
                f"n = {n}: the parts hold {num_rows:,} n-grams of this length, and Spark groups at most {max_rows:,}; "
                "use one machine (reticent index with memory_limit), a smaller n, or fewer parts"
            )
        rows = rows_of_parts(documents.spark, parts, documents.tokens, _local_ngrams, _ROWS[n > 1])
        rows = rows.repartition(documents.num_parts, *_ngram_key(rows)).persist()
        answered = persisted(
            map_elements(
                parts.zip(_global_supports(rows, config.least_support, documents.num_parts)), _count_next_length
            )
        )
        if documents.spark.sparkContext.getCheckpointDir() is not None:
            answered.checkpoint()  # what is lost with an executor is read from there, not counted again
        with errors_of_tasks():
            _, _, num_rows = answered.map(_counts_of_state).reduce(_add_counts)
        parts.unpersist()
        parts = answered
        levels.append(rows)
        if progress:
            progress(n)
    return SparkIndex(documents, config, splits, parts, num_units, num_documents, levels)


def _counts_of_state(data: bytes) -> tuple[int, int, int]:
    """Return the numbers of privacy units, documents and n-grams (of the length counted last) in a partition's n-gram
    counter, given its serialised state.
    """
    part = _rust.Part.from_bytes(data)
    return part.num_units, part.num_documents, part.num_rows


def _add_counts(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the element-wise sum of two triples of counts."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


#: Columns of the rows of parts: words, and longer n-grams. An id is the place that a row has in the parts.
_ROWS: Final = (
    _schema(word=pa.string(), support=pa.int64(), occurrences=pa.int64(), id=pa.int64()),
    _schema(left=pa.int64(), right=pa.int64(), support=pa.int64(), id=pa.int64()),
)


def _local_ngrams(number: int, data: bytes) -> pa.Table:
    """Return a table of the longest n-grams counted so far in a partition, with their support in it (number of privacy
    units that use them) and an id that is unique over partitions: partition number << 32 | row.
    """
    rows = pa.record_batch(_rust.Part.from_bytes(data).rows())
    ids = np.arange(rows.num_rows, dtype=np.int64) | number << 32
    return pa.table([*rows.columns, pa.array(ids)], [*rows.schema.names, "id"])


def _ngram_key(rows: DataFrame) -> list[str]:
    """Return the columns that identify an n-gram: ``word``, or ``left`` and ``right``."""
    return ["word"] if "word" in rows.columns else ["left", "right"]


def _merge_partitions(rows: DataFrame) -> DataFrame:
    """Return the distinct n-grams of all partitions with their supports (numbers of units that use them) and
    occurrences, if given, summed, and their smallest id.
    """
    from pyspark.sql.functions import min, sum

    sums = [sum(name).alias(name) for name in ("support", "occurrences") if name in rows.columns]
    return rows.groupBy(*_ngram_key(rows)).agg(*sums, min("id").alias("id"))


def _global_supports(rows: DataFrame, least_support: int, num_parts: int) -> RDD:
    """Return an RDD with, for each partition, the ids and global supports of its n-grams (support: number of privacy
    units of all partitions that use the n-gram). Those of less than ``least_support`` are left out.
    """
    kept_ones = _merge_partitions(rows).filter(f"support >= {least_support}").drop("occurrences").hint("shuffle_hash")
    return repartition_by_part(rows.select("part", *_ngram_key(rows)).join(kept_ones, _ngram_key(rows)), num_parts)


def _count_words(config: IndexConfig, sides: tuple[int, ...], data: bytes) -> bytes:
    """Count the words of a partition's documents, and return the serialised state of the n-gram counter, from which
    `_count_next_length` goes on. Only privacy units on these ``sides`` of the split (indices into `SPLITS`) count.

    Documents of the other sides of the split are present but not counted. Their words are answered too, so that they
    can be protected.
    """
    table = decoded(data) if data else pa.table({"unit": np.empty(0, np.int64), "side": np.empty(0, np.int8)})
    _, first, units = np.unique(table.column("unit").to_numpy(), return_index=True, return_inverse=True)
    is_counted = np.isin(table.column("side").to_numpy()[first], sides)
    builder = _rust.IndexBuilder(
        max_n=config.max_n,
        surface=config.surface,
        documents_per_unit=np.bincount(units).astype(np.uint32),
        subset=None if is_counted.all() else is_counted,
        num_threads=1,
    )
    at, of_document = 0, units.astype(np.uint32)
    for batch in table.to_batches(max_chunksize=1024) if data else ():
        builder.add(batch.column("text"), of_document[at : at + batch.num_rows])
        at += batch.num_rows
    return _rust.Part.of_documents(builder, min_support=config.least_support).to_bytes()


def _count_next_length(data: bytes, supports: bytes) -> bytes:
    """Restore a partition's n-gram counter from ``data``, and count the n-grams one word longer than the last ones;
    return the new serialised state. ``supports`` (a serialised table) has the supports of the last n-grams over all
    partitions.
    """
    part = _rust.Part.from_bytes(data)
    table = decoded(supports) if supports else _ROWS[part.n > 1].empty_table()
    columns = {name: table.column(name).combine_chunks() for name in table.schema.names}
    numbers = {name: column.to_numpy() for name, column in columns.items() if name != "word"}
    if part.n == 1:
        part.answer_words(columns["word"].cast(pa.string()), numbers["support"], numbers["id"])
    else:
        part.answer_pairs(numbers["left"], numbers["right"], numbers["support"], numbers["id"])
    return part.to_bytes()
