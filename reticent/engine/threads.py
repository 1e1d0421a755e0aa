"""Threads that process batches in parallel, or read ahead; faster only if the work releases the interpreter lock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import pyarrow as pa

from reticent import _rust
from reticent.core.artifact import signals_deferred

S = TypeVar("S")
T = TypeVar("T")


class _Stream:
    """An iterator of record batches that several threads can take from, one at a time."""

    def __init__(self, first_row: int, batches: Iterator[pa.RecordBatch]):
        self.row, self.batches, self.lock, self.num_users = first_row, batches, threading.Lock(), 0

    def take(self) -> tuple[int, pa.RecordBatch] | None:
        """Return the next batch and the row number of its first row; None at the end."""
        with self.lock:
            batch = next(self.batches, None)
            if batch is None:
                return None
            row, self.row = self.row, self.row + batch.num_rows
            return row, batch


def in_threads(
    streams: Sequence[tuple[int, Iterator[pa.RecordBatch]]],
    work: Callable[[int, pa.RecordBatch], None],
    num_threads: int,
) -> None:
    """Call ``work(row, batch)`` in threads for all batches of all streams, ``row`` being the row number of the batch's
    first row. A stream is the row number of its first row, and an iterator over batches.

    Each thread takes the next stream that no thread reads; when none is left it takes turns at the one with the fewest
    readers. The first error stops every thread and is raised; so does an interrupt.
    """
    waiting = [_Stream(*stream) for stream in reversed(streams)]
    active: list[_Stream] = []
    lock, stop = threading.Lock(), threading.Event()

    def loop() -> None:
        """Process batches of one stream after another until none is left."""
        try:
            while not stop.is_set():
                with lock:
                    if waiting:
                        active.append(waiting.pop())
                    if not active:
                        return
                    stream = min(active, key=lambda stream: stream.num_users)
                    stream.num_users += 1
                while not stop.is_set() and (taken := stream.take()) is not None:
                    work(*taken)
                with lock:
                    if stream in active:
                        active.remove(stream)
        except BaseException:
            stop.set()
            raise

    num_threads = max(num_threads, 1)
    if num_threads == 1:
        loop()
        return
    with ThreadPoolExecutor(num_threads, thread_name_prefix="reticent") as pool:
        try:
            futures = [pool.submit(loop) for _ in range(num_threads)]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
        for future in done:
            future.result()


def mapped(work: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return ``work(item)`` for each item, in order, computed in threads (as many as the Rust core uses).

    None of them works on when it returns or raises.
    """

    with ThreadPoolExecutor(_rust.resolve_threads(0)) as pool:
        # A thread whose start is interrupted would be left out of those that are waited for, and go on writing.
        with signals_deferred():
            results = [pool.submit(work, item) for item in items]
        try:
            return [result.result() for result in results]
        finally:
            pool.shutdown(cancel_futures=True)


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator, none of which may be None, while a thread fetches the next one."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def overlapped(
    batches: Iterator[pa.RecordBatch], work: Callable[[pa.RecordBatch, int], T]
) -> Iterator[tuple[pa.RecordBatch, T]]:
    """Yield each batch with ``work(batch, number of rows before it)``, in order; two batches are processed at a
    time."""

    def numbered() -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield each batch with the number of rows before it."""
        num_before = 0
        for batch in read_ahead(batches):
            yield batch, num_before
            num_before += batch.num_rows

    for (batch, _), result in worked_ahead(numbered(), lambda numbered: work(*numbered)):
        yield batch, result


def worked_ahead(items: Iterator[S], work: Callable[[S], T]) -> Iterator[tuple[S, T]]:
    """Yield each item with ``work(item)``, in order; two items are processed at a time, in threads.

    Python's work for one item then costs no time while the core's threads are busy with the other. Up to three items
    are in hand.
    """
    waiting: deque[tuple[S, Future[T]]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            if len(waiting) == 3:
                first, result = waiting.popleft()
                yield first, result.result()
        for item, result in waiting:
            yield item, result.result()
