"""Exchange of Arrow tables with Spark: tables as bytes, one for each partition (part), to data frames and back.

A part has a number, its partition. In a data frame it has a *token* instead, an integer that Spark's own hash sends to
that partition: rows joined to those of a part return to it by `repartition` on the token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from reticent.ext.spark.session import setting
from reticent.ext.spark.tasks import Task, errors_of_tasks

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

#: Rows of a table on its way to the driver.
ROWS_AT_ONCE: Final = 1 << 16
#: Spark has no unsigned numbers, so they become wider ones.
_SIGNED: Final = {pa.uint8(): pa.int16(), pa.uint32(): pa.int64()}


def encoded(table: pa.Table | pa.RecordBatch) -> bytes:
    """Serialise a table as compressed Arrow IPC bytes."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()


def decoded(data: bytes) -> pa.Table:
    """Return the table that `encoded` serialised."""
    with ipc.open_stream(data) as reader:
        return reader.read_all()


def persisted(dataset: RDD) -> RDD:
    """Cache a dataset in memory and, where that is full, on disk; return it."""
    from pyspark import StorageLevel

    return dataset.persist(StorageLevel.MEMORY_AND_DISK)


def map_elements(dataset: RDD, make: Callable[..., Any]) -> RDD:
    """Return an RDD with the results of the function ``make`` on each element. An element that is a tuple, as `zip`
    gives, is unpacked into several arguments.
    """
    return dataset.mapPartitions(Task(partial(_apply_to_elements, make)))


def _apply_to_elements(function: Callable[..., Any], elements: Iterable[Any]) -> Iterable[Any]:
    """Yield the results of a function on each element. An element that is a tuple, as `zip` gives, is unpacked into
    several arguments.
    """
    for element in elements:
        yield function(*element) if isinstance(element, tuple) else function(element)


def frame_of(spark: SparkSession, tables: RDD, schema: pa.Schema) -> DataFrame:
    """Return a dataset of serialised tables as a data frame with the columns of a schema.

    Its plan begins here. That of ``spark.createDataFrame`` shows the plans of all data frames that the tables came from
    as a tree, which grows fourfold with each level of an index.
    """
    from pyspark.serializers import NoOpSerializer
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema

    plain = pa.schema([pa.field(field.name, _SIGNED.get(field.type, field.type)) for field in schema])
    jvm: Any = spark._jvm
    rows = tables._reserialize(NoOpSerializer())._jrdd.rdd()  # bytes, as they are
    blobs = DataFrame(
        spark._jsparkSession.createDataset(rows, jvm.org.apache.spark.sql.Encoders.BINARY()).toDF(), spark
    )
    return blobs.mapInArrow(Task(partial(_batches, plain)), from_arrow_schema(plain))


def _batches(schema: pa.Schema, blobs: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Yield the rows of serialised tables as record batches of a schema."""
    for batch in blobs:
        for data in filter(None, batch.column(0).to_pylist()):
            yield from decoded(data).select(schema.names).cast(schema).to_batches(max_chunksize=ROWS_AT_ONCE)


def partition_tokens(spark: SparkSession, num_parts: int) -> list[int]:
    """Return one integer for each partition, in order: the smallest that Spark's hash partitioner sends there. A row
    with this integer as its key goes to that partition.
    """
    from pyspark.sql.functions import col, expr

    # A number of a partition is missing among so many with a chance below 1e-20.
    numbers = spark.range(64 * num_parts, numPartitions=1).select(col("id").cast("int").alias("token"))
    numbers = numbers.withColumn("part", expr(f"pmod(hash(token), {num_parts})"))
    found = {
        row["part"]: row["token"]
        for row in numbers.groupBy("part").agg({"token": "min"}).toDF("part", "token").collect()
    }
    return [found[part] for part in range(num_parts)]


def rows_of_parts(
    spark: SparkSession, parts: RDD, tokens: Sequence[int], table: Callable[..., Any], schema: pa.Schema
) -> DataFrame:
    """Return one data frame of all rows that the function ``table`` makes from each partition of an RDD. Its column
    ``part`` has the partition's integer of ``tokens``, by which `repartition_by_part` brings rows back to their
    partition.
    """
    blobs = parts.mapPartitionsWithIndex(Task(partial(_with_token, tuple(tokens), table)))
    return frame_of(spark, blobs, schema.insert(0, pa.field("part", pa.int32())))


def _with_token(
    tokens: tuple[int, ...], make: Callable[..., pa.Table | None], partition_number: int, elements: Iterable[Any]
) -> Iterable[bytes]:
    """Yield the table that the function ``make`` returns for each element of a partition, serialised. A column ``part``
    is added, with this partition's integer of ``tokens``.
    """
    for part in elements:
        table = make(partition_number, *part) if isinstance(part, tuple) else make(partition_number, part)
        if table is not None:
            token = pa.array(np.full(table.num_rows, tokens[partition_number], np.int32))
            yield encoded(pa.table([token, *table.columns], ["part", *table.schema.names]))


def repartition_by_part(rows: DataFrame, num_parts: int) -> RDD:
    """Repartition a data frame by its column ``part``, and return an RDD with one element for each partition: its rows
    without that column, as a serialised Arrow table. Spark runs the plan before the last shuffle at once.
    """
    return blobs_of(rows.repartition(num_parts, "part").drop("part"))


def blobs_of(rows: DataFrame, gather: Callable[[pa.Table], bytes] = encoded) -> RDD:
    """Return an RDD with one element for each partition of a data frame: the function ``gather`` applied to the
    partition's rows as an Arrow table, by default their serialisation.
    """
    # Spark plans as it goes: what comes before the last shuffle is done here.
    # Of a data frame that turns out to have no row all partitions stay: without, it has fewer than it was cut into.
    name, rule = "spark.sql.adaptive.optimizer.excludedRules", "AQEPropagateEmptyRelation"
    named, before = f"org.apache.spark.sql.execution.adaptive.{rule}", rows.sparkSession.conf.get(name, None)
    with errors_of_tasks(), setting(rows.sparkSession, name, f"{before},{named}" if before else named):
        return rows.mapInArrow(Task(partial(_gather_rows, gather)), "blob binary").rdd.mapPartitions(_first_value)


def _gather_rows(gather: Callable[[pa.Table], bytes], batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Gather the rows of a partition into bytes, and yield them as a batch with one binary value. Yield nothing if
    there are no rows.
    """
    if found := [batch for batch in batches if batch.num_rows]:
        yield pa.record_batch([pa.array([gather(pa.Table.from_batches(found))], pa.binary())], ["blob"])


def _first_value(rows: Iterable[Any]) -> Iterable[bytes]:
    """Yield the binary value in the first row of a partition; empty bytes if it has no rows."""
    yield next((bytes(row[0]) for row in rows), b"")


def numbered(rows: DataFrame, name: str) -> DataFrame:
    """Return the rows of a sorted, persisted data frame with their row number, from 0, in a new column ``name``. It
    runs a Spark job to count the rows of each partition.
    """
    from pyspark.sql.functions import array, col, element_at, lit, monotonically_increasing_id, spark_partition_id

    place = spark_partition_id()
    with errors_of_tasks():
        counted = rows.select(place.alias("place")).groupBy("place").count().collect()
    sizes = {int(number): int(count) for number, count in counted}
    firsts = np.cumsum([0] + [sizes.get(number, 0) for number in range(max(sizes, default=0) + 1)]).tolist()
    first = element_at(array(*(lit(number).cast("long") for number in firsts)), place + 1)
    # Spark's own number has that of the partition above these bits.
    within = monotonically_increasing_id().bitwiseAND(lit((1 << 33) - 1))
    return rows.select(*(col(column) for column in rows.columns), (first + within).alias(name))


def in_order(rows: DataFrame) -> Iterator[pa.Table]:
    """Yield the rows of a sorted data frame as tables, in order; the driver holds one partition at a time."""
    with errors_of_tasks():
        found = rows.mapInArrow(Task(_chunks), "blob binary").toLocalIterator(prefetchPartitions=True)
    while True:
        with errors_of_tasks():
            row = next(found, None)
        if row is None:
            return
        yield decoded(row[0])


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Yield the rows of a partition as batches with one binary value each, of about `ROWS_AT_ONCE` rows."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(each.num_rows for each in pending) >= ROWS_AT_ONCE:
            yield from _gather_rows(encoded, pending)
            pending = []
    yield from _gather_rows(encoded, pending)
