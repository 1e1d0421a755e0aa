"""Rows of parts in the order of documents, and as data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reticent.engine.spark.exchange import decoded, encoded, kept
from reticent.engine.spark.tasks import Task, errors_of_tasks

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["as_frame", "in_order"]

#: Documents whose rows the driver holds at once.
DOCUMENTS_AT_ONCE: Final = 1 << 16


def in_order(tables: RDD, column: str, num_documents: int) -> Iterator[pa.Table]:
    """Yield the rows of all parts in the order of ``column`` (numbers of documents), a table at a time.

    Rows of one document keep their order. Cost: rows are moved once, and each table takes a job.
    """
    num_ranges = max(-(-num_documents // DOCUMENTS_AT_ONCE), 1)
    moved = tables.mapPartitions(Task(_Slice(column, num_ranges))).partitionBy(num_ranges, int)
    ordered = kept(moved.mapPartitions(Task(_Join(column))))
    try:
        for place in range(num_ranges):
            with errors_of_tasks():
                found = ordered.context.runJob(ordered, list, [place])
            yield from map(decoded, found)
    finally:
        ordered.unpersist()


@dataclass(frozen=True, slots=True)
class _Slice:
    column: str
    num_ranges: int

    def __call__(self, tables: Iterable[bytes]) -> Iterable[tuple[int, bytes]]:
        for data in filter(None, tables):
            table = decoded(data)
            ranges = table.column(self.column).to_numpy() // DOCUMENTS_AT_ONCE
            for number in np.unique(ranges):
                yield int(number), encoded(table.filter(pa.array(ranges == number)).combine_chunks())


@dataclass(frozen=True, slots=True)
class _Join:
    column: str

    def __call__(self, tables: Iterable[tuple[int, bytes]]) -> Iterable[bytes]:
        found = [decoded(data) for _, data in tables]
        if found:
            table = pa.concat_tables(found)
            # A document is in one part, so a stable sort keeps the order of its rows for any order of parts.
            order = np.argsort(table.column(self.column).to_numpy(), kind="stable")
            yield encoded(table.take(pa.array(order)).combine_chunks())


def as_frame(spark: SparkSession, tables: RDD, schema: pa.Schema) -> DataFrame:
    """Return tables of parts as a data frame; Spark has no unsigned numbers, so they become wider ones."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import BinaryType, StructField, StructType

    plain = pa.schema([pa.field(field.name, _SIGNED.get(field.type, field.type)) for field in schema])
    blobs = spark.createDataFrame(tables.map(_row), StructType([StructField("blob", BinaryType())]))
    return blobs.mapInArrow(Task(_Decode(plain)), from_arrow_schema(plain))


_SIGNED: Final = {pa.uint8(): pa.int16(), pa.uint32(): pa.int64()}


def _row(data: bytes) -> tuple[bytes]:
    return (data,)


@dataclass(frozen=True, slots=True)
class _Decode:
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for data in filter(None, batch.column(0).to_pylist()):
                yield from decoded(data).select(self.schema.names).cast(self.schema).to_batches(max_chunksize=4096)
