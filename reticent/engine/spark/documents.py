"""Documents in parts: read once, cut by a hash of the individual (or household), and checked as on one machine.

A part is one Arrow table, in the order of the documents, as bytes. What must hold over all documents (no id twice, one
household each, no two spellings of one individual) is found by an exchange of ids, which also numbers documents and
individuals as one machine does.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.config import SplitConfig
from reticent.engine.identity import Ids, check_choice, fold_ids
from reticent.engine.schema import INDIVIDUALS, SPLITS
from reticent.engine.sources.columns import sorted_codes
from reticent.engine.sources.config import Columns, OnNull
from reticent.engine.spark.checks import check_session
from reticent.engine.spark.exchange import Answers, Exchanged, Table, decoded, encoded, exchange, kept, one_each
from reticent.engine.spark.frames import FILE, ROW, of_files, selected
from reticent.engine.spark.session import ROWS_PER_BATCH, session_of
from reticent.engine.spark.tasks import Task, errors_of_tasks
from reticent.engine.split import Individuals

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkDocuments", "open_documents"]

#: Bytes of documents that a task gathers before it hands them on, for all parts together.
BYTES_AT_ONCE = 32 << 20


@dataclass(slots=True)
class SparkDocuments:
    """Documents in parts; see :func:`open_documents`.

    Attributes
    ----------
    parts : dataset of bytes, one element a part: a table of doc_id, individual_id, text, and household_id and spans
        where there are any, with ``number`` (int64), the number of the document among all, ``individual`` and ``unit``
        (int64), those of the split, and ``side`` (int8), a number of `SPLITS`
    num_documents, num_individuals, num_units : over all parts
    num_skipped : documents left out, as their text is null
    more : columns of the source that are kept beside these, as `SOURCE_COLUMN` and their names
    ids : how ids of individuals were read
    """

    spark: SparkSession
    parts: RDD
    columns: Columns
    split: SplitConfig
    by_household: bool
    num_documents: int
    num_units: int
    num_skipped: int
    _ids: Exchanged = field(repr=False)
    more: tuple[str, ...] = ()
    ids: Ids = "stop"

    @property
    def num_parts(self) -> int:
        return int(self.parts.getNumPartitions())

    @property
    def num_individuals(self) -> int:
        return self._ids.num_rows("individual")

    def individuals(self) -> Individuals:
        """Return the split, as `split_individuals` makes it of the same documents. Cost: all ids in memory."""
        from reticent import _rust

        names, _, num_documents = _columns(self._ids.tables("individual"))
        unit_names, units = names, np.arange(len(names), dtype=np.uint32)
        if self.by_household:
            unit_names = _columns(self._ids.tables("household"))[0]
            found = exchange(self.parts, _UnitsOfIndividuals())
            units = _columns(found.tables("unit"))[1]
            found.release()
        sides = _sides(_rust.hash_units(unit_names, seed=self.split.seed), self.split)[units]
        table = {
            "individual_id": names.cast(pa.string()),
            "individual": pa.array(np.arange(len(names), dtype=np.uint32)),
            "unit": pa.array(units.astype(np.uint32)),
            "split": pa.DictionaryArray.from_arrays(pa.array(sides), pa.array(SPLITS)),
            "num_documents": pa.array(num_documents.astype(np.uint32)),
        }
        return Individuals(pa.table(table, schema=INDIVIDUALS))

    def release(self) -> None:
        """Forget the documents."""
        self.parts.unpersist()
        self._ids.release()


def _columns(tables: Iterator[pa.Table]) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    table = pa.concat_tables(tables).combine_chunks()
    return table["word"].combine_chunks(), table["support"].to_numpy(), table["occurrences"].to_numpy()


def _sides(hashes: np.ndarray, split: SplitConfig) -> np.ndarray:
    """The side of each unit, int8; as `split_individuals`."""
    uniform = hashes.astype(np.float64) / 2.0**64
    sides = np.where(uniform < split.heldout, 1, np.where(uniform < split.heldout + split.reference, 2, 0))
    return sides.astype(np.int8)


def open_documents(
    documents: Any,
    *,
    columns: Columns | None = None,
    more: Sequence[str] = (),
    split: SplitConfig | None = None,
    ids: Ids = "stop",
    on_null: OnNull = "stop",
    num_parts: int | None = None,
    unencrypted: bool = False,
    spark: SparkSession | None = None,
    warn: Callable[[str], object] = warnings.warn,
) -> SparkDocuments:
    """Read documents once, and keep them in parts.

    Parameters
    ----------
    documents : DataFrame, or a path or paths of Parquet files
        A data frame has the order of its document ids, in bytes; Parquet files that of their names and rows.
    columns, ids, on_null
        As of `open_corpus`.
    more : columns beside these that a detector reads: ``detect.records.columns``
    num_parts : int, optional
        A part is held in memory by one task: 64 to 256 MB of text is a good size. Default: as many as the source has
        partitions, and at least two a core.
    unencrypted : bool
        See :func:`reticent.engine.spark.checks.check_session`.
    warn : called with each warning about the session

    Raises
    ------
    CorpusError
        As `open_corpus` and `split_individuals`, but for places: a data frame has no rows to name.
    PolicyError
        The session is not fit, or the files are no Parquet.
    """
    columns, split = columns or Columns(), split or SplitConfig()
    check_choice(ids)
    if on_null not in ("stop", "skip"):
        raise PolicyError(f"corpus.on_null: expected stop or skip, got {on_null!r}")
    is_frame = hasattr(documents, "sparkSession")
    spark = spark or session_of(documents)
    for sentence in check_session(spark, unencrypted=unencrypted, is_frame=is_frame):
        warn(sentence)
    frame, files = (documents, None) if is_frame else of_files(spark, documents)
    with errors_of_tasks():
        frame = selected(frame, columns, files is not None, more)
        least = 2 * spark.sparkContext.defaultParallelism
        num_parts = num_parts or max(least, frame.rdd.getNumPartitions())
        cut = _Cut(num_parts, split, "household_id" in frame.columns and split.by != "individual", files, ids, on_null)
        parts = _cut(spark, frame, cut)
        num_skipped = frame.filter(frame["text"].isNull()).count() if on_null == "skip" else 0
    found = exchange(parts, _IdTables(cut))
    numbered = _numbered(found, parts, cut, columns)
    num_units = found.num_rows("household" if cut.by_household else "individual")
    num_documents, by_household = found.num_rows("document"), cut.by_household
    return SparkDocuments(
        spark, numbered, columns, split, by_household, num_documents, num_units, num_skipped, found, tuple(more), ids
    )


def _cut(spark: SparkSession, frame: DataFrame, cut: _Cut) -> RDD:
    """The documents in parts, each a table of bytes; in order, and not yet numbered."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name) or "10000"
    spark.conf.set(name, str(ROWS_PER_BATCH))
    try:
        blobs = frame.mapInArrow(Task(cut), "part long, blob binary")
        moved = blobs.rdd.map(_pair).partitionBy(cut.num_parts, int)
        return kept(moved.mapPartitions(Task(_Gather(cut.files is not None))))
    finally:
        spark.conf.set(name, before)


def _pair(row: Any) -> tuple[int, bytes]:
    return row[0], bytes(row[1])


@dataclass(frozen=True, slots=True)
class _Cut:
    """Batches of documents -> for each part the documents of them that are its own."""

    num_parts: int
    split: SplitConfig
    by_household: bool
    files: dict[str, int] | None
    ids: Ids
    on_null: OnNull

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        pending: list[pa.RecordBatch] = []
        num_bytes = 0
        for batch in batches:
            if batch.num_rows:
                pending.append(self._checked(batch))
                num_bytes += pending[-1].nbytes
            if num_bytes >= BYTES_AT_ONCE:
                yield self._blobs(pending)
                pending, num_bytes = [], 0
        if pending:
            yield self._blobs(pending)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with ids as they are to be read, and the key that documents are ordered by."""
        from reticent import _rust

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if columns["text"].null_count:
            if self.on_null == "stop":
                raise CorpusError("a document has no text (null); corpus.on_null = skip leaves such documents out")
            keep = columns["text"].is_valid()
            columns = {name: column.filter(keep) for name, column in columns.items()}
        for name in ("doc_id", "individual_id", *(["household_id"] if "household_id" in columns else [])):
            ids = columns[name].cast(pa.string())
            may_be_null = name == "household_id" and not self.by_household
            if (ids.null_count and not may_be_null) or len(_rust.blank_rows(ids)):
                raise CorpusError(f"column {name}: a document has none (null or blank)")
            ids = ids.fill_null("")
            columns[name] = fold_ids(ids) if self.ids == "fold" and name != "doc_id" else ids
        if self.files is not None:
            numbers = [self.files[unquote(urlparse(name).path)] for name in columns.pop(FILE).to_pylist()]
            rows = columns.pop(ROW).to_pylist()
            columns["key"] = pa.array([f"{a:08x}{b:016x}" for a, b in zip(numbers, rows, strict=True)], pa.string())
        return pa.record_batch(list(columns.values()), list(columns))

    def _blobs(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        from reticent import _rust

        table = pa.Table.from_batches(batches)
        units = table.column("household_id" if self.by_household else "individual_id").combine_chunks()
        # Low bits: the side of the split goes by the high ones, and by another seed.
        parts = (_rust.hash_units(units, seed=0x5A7C) % np.uint64(self.num_parts)).astype(np.int64)
        order = np.argsort(parts, kind="stable")
        present, firsts = np.unique(parts[order], return_index=True)
        rows = np.split(order, firsts[1:])
        blobs = [encoded(table.take(pa.array(own)).combine_chunks()) for own in rows]
        return pa.record_batch([pa.array(present), pa.array(blobs, pa.binary())], ["part", "blob"])


@dataclass(frozen=True, slots=True)
class _Gather:
    """The blobs of one part -> its table in order, whatever came first."""

    of_files: bool

    def __call__(self, blobs: Iterable[tuple[int, bytes]]) -> Iterable[bytes]:
        tables = [decoded(blob) for _, blob in blobs]
        if not tables:
            yield b""
            return
        table = pa.concat_tables(tables)
        yield encoded(table.sort_by("key" if self.of_files else "doc_id").combine_chunks())


@dataclass(frozen=True, slots=True)
class _IdTables:
    """The ids of a part, as tables to exchange."""

    cut: _Cut

    def __call__(self, data: bytes) -> dict[str, Table]:
        names = ["document", "individual"]
        names += ["key"] if self.cut.files is not None else []
        names += ["household"] if self.cut.by_household else []
        names += ["folded_individual"] if self.cut.ids == "stop" else []
        names += ["folded_household"] if self.cut.ids == "stop" and self.cut.by_household else []
        if not data:
            empty = Table.of_strings(pa.array([], pa.string()), np.empty(0), np.empty(0))
            return dict.fromkeys(names, empty)
        table = decoded(data)
        columns = {"document": "doc_id", "individual": "individual_id", "household": "household_id", "key": "key"}
        return {name: self._table(table, name, columns[name.removeprefix("folded_")]) for name in names}

    def _table(self, table: pa.Table, name: str, column: str) -> Table:
        ids, codes = sorted_codes(table.column(column))
        counts = np.bincount(codes, minlength=len(ids))
        if name == "document" and len(ids) < table.num_rows:
            raise CorpusError("column doc_id: the same document id stands twice")
        if name.startswith("folded_"):
            ids, codes = sorted_codes(fold_ids(ids))
            return Table.of_strings(ids, np.bincount(codes, minlength=len(ids)), np.zeros(len(ids)))
        return Table.of_strings(ids, np.ones(len(ids)), counts)


def _numbered(found: Exchanged, parts: RDD, cut: _Cut, columns: Columns) -> RDD:
    """Check the ids of all documents, and number documents, individuals and units."""
    if not found.num_rows("document"):
        raise CorpusError("no documents")
    if found.num_shared("document"):
        raise CorpusError(f"column {columns.doc_id}: the same document id stands twice")
    if found.num_shared("individual"):
        raise CorpusError(f"column {columns.household_id}: an individual has two households")
    if found.num_rows("individual") < 2:
        raise CorpusError(
            f"column {columns.individual_id} names one individual only; support among individuals needs at least two"
        )
    numbered = kept(one_each(parts.zip(found.answers), _Number(cut)))
    with errors_of_tasks():
        present = numbered.map(_sides_of).reduce(operator.or_)
    parts.unpersist()
    split, num_individuals = cut.split, found.num_rows("individual")
    for code, share in enumerate((1 - split.heldout - split.reference, split.heldout, split.reference)):
        if share > 0 and not present >> code & 1:
            raise CorpusError(
                f"split: no individual fell on the side {SPLITS[code]!r} ({num_individuals} individuals, "
                f"share {share:.2f}); use more individuals, other shares or another seed"
            )
    return numbered


def _sides_of(data: bytes) -> int:
    """Bits of the sides on which a part has documents."""
    return sum(1 << int(side) for side in np.unique(decoded(data).column("side").to_numpy())) if data else 0


@dataclass(frozen=True, slots=True)
class _Number:
    """The table of a part and the answers to its ids -> the table with numbers."""

    cut: _Cut

    def __call__(self, data: bytes, answers: dict[str, Answers]) -> bytes:
        from reticent import _rust

        if not data:
            return data
        table, cut = decoded(data), self.cut
        for name in ("individual", "household"):
            if f"folded_{name}" in answers and (answers[f"folded_{name}"].read()[0] > 1).any():
                raise CorpusError(
                    f"column {name}_id: ids differ only in how they are spelt, and each would count by itself. "
                    'Correct them; or corpus.ids = "fold" joins them, and "exact" says that they are different'
                )
        key = table.column("key" if cut.files is not None else "doc_id").combine_chunks()
        numbers = answers["key" if cut.files is not None else "document"].read()[1]
        names, codes = sorted_codes(table.column("individual_id"))
        individual = answers["individual"].read()[1][codes]
        unit = individual
        if cut.by_household:
            names, of_document = sorted_codes(table.column("household_id"))
            unit = answers["household"].read()[1][of_document]
            if len(np.unique(np.stack([individual, unit]), axis=1).T) > len(np.unique(individual)):
                raise CorpusError("column household_id: an individual has two households")
            codes = of_document
        sides = _sides(_rust.hash_units(names, seed=cut.split.seed), cut.split)[codes]
        assert len(key) == len(numbers)
        more = {"number": numbers, "individual": individual, "unit": unit}
        for name, column in more.items():
            table = table.append_column(name, pa.array(column.astype(np.int64)))
        table = table.append_column("side", pa.array(sides))
        return encoded(table.drop_columns(["key"]) if cut.files is not None else table)


@dataclass(frozen=True, slots=True)
class _UnitsOfIndividuals:
    """The individuals of a part with the number of their unit, as a table to exchange."""

    def __call__(self, data: bytes) -> dict[str, Table]:
        if not data:
            return {"unit": Table.of_strings(pa.array([], pa.string()), np.empty(0), np.empty(0))}
        table = decoded(data)
        ids, codes = sorted_codes(table.column("individual_id"))
        units = np.zeros(len(ids), dtype=np.uint32)
        units[codes] = table.column("unit").to_numpy()
        return {"unit": Table.of_strings(ids, units, np.bincount(codes, minlength=len(ids)))}
