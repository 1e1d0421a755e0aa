"""The index on Spark: the tables of `reticent.engine.index.build_index`, byte for byte, and their slices in every part.

There is one exchange for each length of n-grams. A part extends the n-grams that are kept over all parts, so its levels
are as short as those of the whole index. With the supports over all parts, its own tables form an index of its
documents (a *slice*).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.config import IndexConfig
from reticent.engine.index import write_tables
from reticent.engine.schema import MEMBERS, SPLITS
from reticent.engine.spark.exchange import Answers, Exchanged, Table, decoded, exchange, kept, one_each
from reticent.engine.spark.tasks import errors_of_tasks

if TYPE_CHECKING:
    from pyspark import RDD

    from reticent._rust import Part
    from reticent.engine.spark.documents import SparkDocuments

__all__ = ["MAX_NUMBER", "SparkIndex", "build_index"]

#: n-grams beyond this many of one length have numbers of 64 bits in the tables.
MAX_NUMBER: Final = (1 << 32) - 1


@dataclass(slots=True)
class SparkIndex:
    """The index of documents in parts.

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
    #: A word's, then a level's.
    _levels: list[Exchanged]
    _max_number: int

    @property
    def max_n(self) -> int:
        return self.config.max_n

    @property
    def num_words(self) -> int:
        """Distinct words."""
        return self._levels[0].num_rows("words")

    def num_ngrams(self, n: int) -> int:
        """Return the number of distinct n-grams of n words, n >= 2."""
        return self._levels[n - 1].num_rows("ngrams")

    @property
    def is_wide(self) -> bool:
        """Whether n-grams have numbers of 64 bits. `open_index` does not read them, but slices can still protect."""
        return any(self._is_wide(n) for n in range(2, self.max_n + 1))

    def _is_wide(self, n: int) -> bool:
        """Whether a level refers to numbers beyond 32 bits."""
        before = self._levels[n - 2].counts["words" if n == 2 else "ngrams"]
        return sum(ranked for _, ranked, _ in before) > self._max_number

    def write(self, folder: Path | str) -> None:
        """Write the tables into ``folder`` as `write_index` does: equal documents give byte-equal files.

        Cost: the driver holds a range of a table at a time, and writes all of them.
        """
        about = {
            "max_n": self.max_n,
            "num_units": self.num_units,
            "num_documents": self.num_documents,
            "min_support": self.config.least_support,
            "surface": self.config.surface,
        }
        words = _Rows(self._levels[0].tables("words"), _WORDS)
        levels = [
            (self.num_ngrams(n), _Rows(self._levels[n - 1].tables("ngrams"), _WIDE if self._is_wide(n) else _NARROW))
            for n in range(2, self.max_n + 1)
        ]
        write_tables(Path(folder), about, (self.num_words, words), levels, at_once=False)

    def release(self) -> None:
        """Forget the tables and slices."""
        self.slices.unpersist()
        for level in self._levels:
            level.release()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


_WORDS: Final = _schema(word=pa.large_string(), support=pa.uint32(), occurrences=pa.uint64())
_NARROW: Final = _schema(left=pa.uint32(), right=pa.uint32(), support=pa.uint32())
_WIDE: Final = _schema(left=pa.uint64(), right=pa.uint64(), support=pa.uint32())


class _Rows:
    """The rows of a table that arrives in ranges, read from the front."""

    def __init__(self, tables: Iterator[pa.Table], schema: pa.Schema):
        self._tables, self._schema, self._at = tables, schema, 0
        self._rest = schema.empty_table()

    def __call__(self, start: int, length: int) -> pa.RecordBatch:
        """Return rows from ``start`` on, which is the end of the last call."""
        assert start == self._at
        while self._rest.num_rows < length and (table := next(self._tables, None)) is not None:
            if table.num_rows:  # a range without rows does not know its kind
                self._rest = pa.concat_tables([self._rest, table.cast(self._schema)])
        rows = self._rest.slice(0, length).combine_chunks()
        self._rest, self._at = self._rest.slice(length), start + rows.num_rows
        batches = rows.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self._schema)


def build_index(
    documents: SparkDocuments,
    *,
    splits: tuple[str, ...] = (MEMBERS,),
    config: IndexConfig | None = None,
    progress: Callable[[int], None] | None = None,
    max_number: int = MAX_NUMBER,
) -> SparkIndex:
    """Return the index of the documents of these splits, as `reticent.engine.index.build_index` makes it.

    Parameters
    ----------
    config : IndexConfig
        Its limits of memory and its threads mean nothing here: a part is held by one task.
    progress : called with the length that was counted
    max_number : int
        N-grams of one length beyond which tables have numbers of 64 bits.

    Raises
    ------
    CorpusError
        No document belongs to the splits.
    """
    config = config or IndexConfig()
    unknown = set(splits) - set(SPLITS)
    if unknown:
        raise PolicyError(f"unknown split {unknown.pop()!r}; expected {', '.join(SPLITS)}")
    parts = kept(one_each(documents.parts, _Count(config, tuple(SPLITS.index(split) for split in splits))))
    with errors_of_tasks():
        num_units, num_documents = parts.map(_size).reduce(_sum)
    if not num_documents:
        raise CorpusError(f"no document belongs to the splits {', '.join(splits)}")
    levels: list[Exchanged] = []
    for n in range(1, config.max_n + 1):
        tables = _LevelTables("words" if n == 1 else "ngrams")
        level = exchange(parts, tables, words=n == 1, min_support=config.least_support)
        answered = kept(one_each(parts.zip(level.answers), _Answer()))
        if documents.spark.sparkContext.getCheckpointDir() is not None:
            answered.checkpoint()  # blobs lost with an executor are read from there, not counted again
        with errors_of_tasks():
            answered.count()
        parts.unpersist()
        parts = answered
        levels.append(level)
        if progress:
            progress(n)
    return SparkIndex(documents, config, splits, parts, num_units, num_documents, levels, max_number)


def _size(data: bytes) -> tuple[int, int]:
    part = _part(data)
    return part.num_units, part.num_documents


def _sum(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] + b[0], a[1] + b[1]


def _part(data: bytes) -> Part:
    from reticent import _rust

    return _rust.Part.from_bytes(data)


@dataclass(frozen=True, slots=True)
class _Count:
    """The documents of a part -> its words.

    Documents of the other sides of the split are present but not counted. Their words are answered too, so that they
    can be protected.
    """

    config: IndexConfig
    sides: tuple[int, ...]

    def __call__(self, data: bytes) -> bytes:
        from reticent import _rust

        table = decoded(data) if data else pa.table({"unit": np.empty(0, np.int64), "side": np.empty(0, np.int8)})
        # Units are numbered within the part from 0: support only needs to distinguish them.
        _, first, units = np.unique(table.column("unit").to_numpy(), return_index=True, return_inverse=True)
        is_counted = np.isin(table.column("side").to_numpy()[first], self.sides)
        builder = _rust.IndexBuilder(
            max_n=self.config.max_n,
            surface=self.config.surface,
            documents_per_unit=np.bincount(units).astype(np.uint32),
            subset=None if is_counted.all() else is_counted,
            num_threads=1,
        )
        at, of_document = 0, units.astype(np.uint32)
        for batch in table.to_batches(max_chunksize=1024) if data else ():
            builder.add(batch.column("text"), of_document[at : at + batch.num_rows])
            at += batch.num_rows
        return _rust.Part.of_documents(builder, min_support=self.config.least_support).to_bytes()


@dataclass(frozen=True, slots=True)
class _LevelTables:
    """The current level of a part, as a table to exchange."""

    name: str

    def __call__(self, data: bytes) -> dict[str, Table]:
        part = _part(data)
        return {self.name: Table(part.num_rows, part.sample, part.cut)}


@dataclass(frozen=True, slots=True)
class _Answer:
    """A part and the answers to its level -> the part with its next level."""

    def __call__(self, data: bytes, answers: dict[str, Answers]) -> bytes:
        part = _part(data)
        (own,) = answers.values()
        part.answer(own.blobs, own.firsts)
        return part.to_bytes()
