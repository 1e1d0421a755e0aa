"""The exchange: sorted tables of all parts, merged range by range, and answered by position.

Every part cuts each of its tables into *runs* at the bounds of *ranges*; a run is a blob. A range merges one run of
each part: it sums equal keys and numbers them. It answers each run with the sum and the number of every row, without
keys. The merged rows of a range are its stretch of the table over all parts. See ``rust_ext/src/index/parts.rs``.

A resilient dataset here has one element a partition, which is a part or a range. Data of one part are therefore joined
by position (`zip`), and only runs and answers move between machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.engine.spark.tasks import Task, errors_of_tasks

if TYPE_CHECKING:
    from pyspark import RDD

__all__ = ["Answers", "Exchanged", "Table", "decoded", "encoded", "exchange", "kept", "one_each"]

#: Number of keys of each part from which bounds are chosen.
SAMPLES = 64
#: Rows of a range, as far as there are enough parts: fewer would make many small blobs.
ROWS_PER_RANGE = 1 << 20


def kept(dataset: RDD) -> RDD:
    """Return the dataset, persisted in memory or encrypted on disk."""
    from pyspark import StorageLevel

    return dataset.persist(StorageLevel.MEMORY_AND_DISK)


def encoded(table: pa.Table | pa.RecordBatch) -> bytes:
    """Return a table as bytes."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()


def decoded(data: bytes) -> pa.Table:
    """Return the table of the bytes that `encoded` made."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


@dataclass(frozen=True, slots=True)
class Table:
    """One sorted table of a part.

    Attributes
    ----------
    num_rows : rows of this part
    sample : number of keys -> at most as many bounds, evenly spread
    cut : bounds -> runs
    """

    num_rows: int
    sample: Callable[[int], list[bytes]]
    cut: Callable[[Sequence[bytes]], list[bytes]]

    @classmethod
    def of_strings(cls, strings: pa.Array, support: np.ndarray, occurrences: np.ndarray) -> Table:
        """Return the table of distinct strings in byte order, with two numbers of each, which are summed over parts."""
        from reticent import _rust

        def sample(num: int) -> list[bytes]:
            step = max(-(-len(strings) // num), 1)
            return [strings[row].as_py().encode()[:8] for row in range(step // 2, len(strings), step)]

        numbers = np.ascontiguousarray(support, np.uint32), np.ascontiguousarray(occurrences, np.uint64)
        return cls(len(strings), sample, lambda bounds: _rust.cut_strings(strings, *numbers, list(bounds)))


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to one table of a part: a blob for each range, and the number of the first row of that range."""

    blobs: list[bytes]
    firsts: list[int]

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """The sum of each row, uint32, and its number in the table of all, uint64."""
        from reticent import _rust

        return _rust.read_answers(self.blobs, self.firsts)


@dataclass(slots=True)
class Exchanged:
    """The result of an exchange.

    Attributes
    ----------
    ranges : dataset of (place, (name, counts, table as bytes, answers by part)); one element a partition
    counts : name -> (rows, rows with a number, rows that several parts held) of each range, in order
    answers : dataset of name -> `Answers`, one element a part
    """

    ranges: RDD
    counts: dict[str, list[tuple[int, int, int]]]
    answers: RDD
    _places: dict[str, range] = field(default_factory=dict)

    def num_rows(self, name: str) -> int:
        return sum(rows for rows, _, _ in self.counts[name])

    def num_shared(self, name: str) -> int:
        """Rows that several parts hold."""
        return sum(shared for _, _, shared in self.counts[name])

    def tables(self, name: str) -> Iterator[pa.Table]:
        """Yield the table of all, range by range, each fetched when it is asked for. Cost: a job a range."""
        tables = self.ranges.map(_table_of)
        for place in self._places[name]:
            with errors_of_tasks():
                (data,) = tables.context.runJob(tables, list, [place])
            yield decoded(data)

    def release(self) -> None:
        self.ranges.unpersist()


def exchange(
    parts: RDD, tables: Callable[[Any], dict[str, Table]], *, words: bool = True, min_support: int = 0
) -> Exchanged:
    """Merge the tables that ``tables`` makes of each part; every part has tables of the same names.

    Parameters
    ----------
    parts : dataset with one element a partition; persisted, because it is read twice
    words : True for tables of strings, False for tables of pairs
    min_support : least sum of a pair that gets a number; with 0, rows whose sum is 0 are listed
    """
    num_parts = parts.getNumPartitions()
    with errors_of_tasks():
        found = parts.mapPartitions(Task(_Samples(tables))).collect()
    bounds = {name: _bounds([sizes[name] for sizes in found], num_parts) for name in found[0]}
    places, first = {}, 0
    for name, own in bounds.items():
        places[name] = range(first, first + len(own) + 1)
        first += len(own) + 1
    runs = parts.mapPartitionsWithIndex(Task(_Runs(tables, bounds, places)))
    merge = Task(_Merge(words, min_support))
    ranges = kept(runs.partitionBy(first, int).mapPartitionsWithIndex(merge))
    with errors_of_tasks():
        of_places = dict(ranges.map(_counts_of).collect())
    counts = {name: [of_places[place] for place in own] for name, own in places.items()}
    firsts: dict[int, tuple[str, int]] = {}
    for name, spots in places.items():
        ranked = np.concatenate([[0], np.cumsum([num for _, num, _ in counts[name]])])
        firsts |= {place: (name, int(number)) for place, number in zip(spots, ranked, strict=False)}
    answers = ranges.flatMap(_answers_of).partitionBy(num_parts, int).mapPartitions(Task(_Collect(firsts)))
    return Exchanged(ranges, counts, answers, places)


def _bounds(found: Sequence[tuple[int, list[bytes]]], num_parts: int) -> list[bytes]:
    """Return bounds of ranges with about as many rows each; the sampled keys of a part represent its rows."""
    weighted = sorted((key, rows / len(keys)) for rows, keys in found for key in keys)
    num_ranges = min(max(sum(rows for rows, _ in found) // ROWS_PER_RANGE, 1), num_parts)
    if num_ranges < 2:
        return []
    before = np.cumsum([weight for _, weight in weighted])
    at = np.searchsorted(before, before[-1] * np.arange(1, num_ranges) / num_ranges)
    return sorted({weighted[place][0] for place in at})


@dataclass(frozen=True, slots=True)
class _Samples:
    tables: Callable[[Any], dict[str, Table]]

    def __call__(self, parts: Iterable[Any]) -> Iterable[dict[str, tuple[int, list[bytes]]]]:
        for part in parts:
            yield {name: (table.num_rows, table.sample(SAMPLES)) for name, table in self.tables(part).items()}


@dataclass(frozen=True, slots=True)
class _Runs:
    tables: Callable[[Any], dict[str, Table]]
    bounds: dict[str, list[bytes]]
    places: dict[str, range]

    def __call__(self, number: int, parts: Iterable[Any]) -> Iterable[tuple[int, tuple[int, str, bytes]]]:
        for part in parts:
            for name, table in self.tables(part).items():
                for place, run in zip(self.places[name], table.cut(self.bounds[name]), strict=True):
                    yield place, (number, name, run)


@dataclass(frozen=True, slots=True)
class _Merge:
    words: bool
    min_support: int

    def __call__(self, place: int, runs: Iterable[tuple[int, tuple[int, str, bytes]]]) -> Iterable[tuple[int, Any]]:
        from reticent import _rust

        came = sorted(run for _, run in runs)  # sorted by part, so the result does not depend on the order of arrival
        blobs = [run for _, _, run in came]
        merged = _rust.merge_runs(blobs, words=self.words, min_support=self.min_support)
        counts = merged.num_rows, merged.num_ranked, merged.num_shared
        answers = list(zip([number for number, _, _ in came], merged.answers, strict=True))
        yield place, (came[0][1], counts, encoded(pa.record_batch(merged.table())), answers)


def _counts_of(element: tuple[int, Any]) -> tuple[int, tuple[int, int, int]]:
    place, (_, counts, _, _) = element
    return place, counts


def _table_of(element: tuple[int, Any]) -> bytes:
    return element[1][2]


def _answers_of(element: tuple[int, Any]) -> Iterator[tuple[int, tuple[int, bytes]]]:
    place, (_, _, _, answers) = element
    for number, answer in answers:
        yield number, (place, answer)


@dataclass(frozen=True, slots=True)
class _Collect:
    """The answers to one part, in the order of its runs."""

    firsts: dict[int, tuple[str, int]]

    def __call__(self, answers: Iterable[tuple[int, tuple[int, bytes]]]) -> Iterable[dict[str, Answers]]:
        found: dict[str, Answers] = {}
        for place, answer in sorted(answer for _, answer in answers):
            name, first = self.firsts[place]
            own = found.setdefault(name, Answers([], []))
            own.blobs.append(answer)
            own.firsts.append(first)
        yield found


def one_each(dataset: RDD, make: Callable[..., Any]) -> RDD:
    """Return the dataset of the results of ``make`` on each element; a pair made by `zip` becomes two arguments."""
    return dataset.mapPartitions(Task(_Each(make)))


@dataclass(frozen=True, slots=True)
class _Each:
    make: Callable[..., Any]

    def __call__(self, elements: Iterable[Any]) -> Iterable[Any]:
        for element in elements:
            yield self.make(*element) if isinstance(element, tuple) else self.make(element)
