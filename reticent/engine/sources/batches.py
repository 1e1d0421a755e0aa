"""Streams of record batches: joined, compared with the scan, without documents left out; and the memory they take."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from threading import Event, Thread

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError

__all__ = ["as_scanned", "changed", "kept_rows", "memory_from", "merged", "read_ahead", "reading_pool", "stretches"]


@contextmanager
def memory_from(pool: pa.MemoryPool) -> Iterator[pa.MemoryPool]:
    """Let Arrow take memory from this pool, unless the environment chose one."""
    before = pa.default_memory_pool()
    pool = before if "ARROW_DEFAULT_MEMORY_POOL" in os.environ else pool
    before.release_unused()
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)
        pool.release_unused()


@contextmanager
def reading_pool(frugal: bool) -> Iterator[pa.MemoryPool]:
    """Let Arrow take memory from jemalloc, where it has it: that hands a reader the buffers of its last batch again,
    while mimalloc gives them to the system, which clears every page anew (a fifth of the time). The core's own reader
    has its memory from the C library, which keeps it too.
    """
    pool = pa.default_memory_pool()
    with suppress(NotImplementedError):
        pool = pa.jemalloc_memory_pool()
        pa.jemalloc_set_decay_ms(0 if frugal else 100)  # pyarrow's `release_unused` does nothing for it
    with memory_from(pool) as chosen:
        yield chosen


def merged(batches: Iterator[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The batches, joined up to so many rows: a detector is not called for every file of one document."""
    held: list[pa.RecordBatch] = []
    num_held = 0
    for batch in batches:
        if held and num_held + batch.num_rows > batch_rows:
            yield pa.concat_batches(held)
            held, num_held = [], 0
        held.append(batch)
        num_held += batch.num_rows
    if held:
        yield pa.concat_batches(held)


def read_ahead(batches: Iterator[pa.RecordBatch], num_ahead: int = 4) -> Iterator[pa.RecordBatch]:
    """The batches, which another thread reads while the last ones are worked on: so many wait, at most.

    An error comes after the batches before it. When this ends, the batches are closed and the other thread has ended.
    """
    waiting: Queue[pa.RecordBatch | BaseException | None] = Queue(num_ahead)
    stopped = Event()

    def read() -> None:
        last: BaseException | None = None
        try:
            for batch in batches:
                waiting.put(batch)
                if stopped.is_set():
                    break
            if isinstance(batches, Generator):
                batches.close()
        except BaseException as error:
            last = error
        waiting.put(last)

    reader = Thread(target=read, name="read-ahead", daemon=True)
    reader.start()
    try:
        while (found := waiting.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stopped.set()
        while reader.is_alive():
            with suppress(Empty):
                waiting.get(timeout=0.05)
        reader.join()


def as_scanned(batches: Iterator[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    """The batches, which hold so many rows: no document is taken for another one's."""
    for batch in batches:
        num_rows -= batch.num_rows
        if num_rows < 0:
            break
        yield batch
    if num_rows:
        raise changed()


def kept_rows(batches: Iterator[pa.RecordBatch], kept: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The rows to keep of batches that hold as many rows as ``kept`` says yes or no of."""
    row = 0
    for batch in batches:
        chosen = kept[row : row + batch.num_rows]
        row += batch.num_rows
        if chosen.any():
            yield batch if chosen.all() else batch.filter(pa.array(chosen))


def changed() -> CorpusError:
    return CorpusError("the documents have changed since they were scanned; start again")


def stretches(num_rows: Sequence[int], at_least: int) -> Iterator[tuple[list[int] | None, int, int]]:
    """Neighbouring row groups that hold at least so many rows together, the row the first begins at, and their rows."""
    groups: list[int] = []
    first = held = 0
    for group, rows in enumerate(num_rows):
        groups.append(group)
        held += rows
        if held >= at_least:
            yield groups, first, held
            groups, first, held = [], first + held, 0
    if groups:
        yield groups, first, held
