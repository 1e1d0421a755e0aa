"""Streams of record batches: merging, checking against the scan, filtering; and the memory pool they use."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Event, Thread

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.sources.protocol import Fragment


@contextmanager
def memory_from(pool: pa.MemoryPool) -> Iterator[pa.MemoryPool]:
    """Make this Arrow memory pool the default one for the ``with`` block (unless the environment names one), and yield
    the pool in use."""
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
def reading_pool(release_at_once: bool) -> Iterator[pa.MemoryPool]:
    """Make jemalloc the default Arrow memory pool for the ``with`` block, if this build has it, and yield the pool in
    use. With ``release_at_once``, freed memory goes back to the system at once.

    jemalloc hands a reader the buffers of its last batch again. mimalloc returns them to the system, which clears every
    page anew; this costs a fifth of the time. The core's own reader takes its memory from the C library, which keeps it
    too.
    """
    pool = pa.default_memory_pool()
    with suppress(NotImplementedError):
        pool = pa.jemalloc_memory_pool()
        pa.jemalloc_set_decay_ms(0 if release_at_once else 100)  # pyarrow's `release_unused` does nothing for it
    with memory_from(pool) as chosen:
        yield chosen


def merge_batches(batches: Iterator[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield consecutive small batches concatenated, up to ``batch_rows`` rows each, so that later stages get fewer,
    larger ones."""
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
    """Yield the batches of an iterator while another thread reads up to ``num_ahead`` further ones.

    An error is raised after the batches before it. When the generator ends, the batches are closed and the other thread
    has ended.
    """
    waiting: Queue[pa.RecordBatch | BaseException | None] = Queue(num_ahead)
    stopped = Event()

    def read() -> None:
        """Put the batches into the queue, and last None or the error that ended them."""
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


def require_num_rows(batches: Iterator[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches unchanged; raise `CorpusError` if they do not have ``num_rows`` rows in total, the number that
    was counted before."""
    for batch in batches:
        num_rows -= batch.num_rows
        if num_rows < 0:
            break
        yield batch
    if num_rows:
        raise changed_error()


def filter_rows(batches: Iterator[pa.RecordBatch], kept: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the batches without the rows where the mask ``kept`` is False; the mask has one entry for each row of all
    batches together."""
    row = 0
    for batch in batches:
        chosen = kept[row : row + batch.num_rows]
        row += batch.num_rows
        if chosen.any():
            yield batch if chosen.all() else batch.filter(pa.array(chosen))


def changed_error() -> CorpusError:
    """Return the error that the documents have changed since they were scanned."""
    return CorpusError("the documents have changed since they were scanned; start again")


@dataclass(frozen=True, slots=True)
class RowRange:
    """Consecutive rows of a fragment (file) that are read together.

    Attributes
    ----------
    fragment : Fragment
    row_groups : list of int, numbers of the row groups (of Parquet) that are read; None for the whole fragment
    row, num_rows : int, number of the first row within the fragment, and number of rows
    first, num_kept : int, number of the first document in the corpus, and number of documents
    kept : bool array, shape (num_rows,), True for rows that are documents (not left out); None for all
    """

    fragment: Fragment
    row_groups: list[int] | None
    row: int
    num_rows: int
    first: int
    num_kept: int
    kept: np.ndarray | None

    def checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield these batches, read for this range of rows, with only the rows that are documents (mask ``self.kept``).
        Raise `CorpusError` if the number of rows differs from that of the earlier scan."""
        scanned = require_num_rows(batches, self.num_rows)
        return scanned if self.kept is None else filter_rows(scanned, self.kept)


def row_ranges(
    fragments: Sequence[Fragment],
    num_rows: Sequence[int],
    kept: np.ndarray | None,
    wanted: np.ndarray | None,
    min_rows: int,
) -> Iterator[RowRange]:
    """Yield the ranges of consecutive rows in which there are documents to read (mask ``wanted``): whole files, or
    neighbouring row groups that have ``min_rows`` rows together. ``kept`` is a mask of the rows that are documents.

    Parameters
    ----------
    num_rows : sequence of int, number of rows of each fragment, as counted when the corpus was scanned
    kept : bool array, shape (rows of all fragments,), True for rows that are documents; None for all
    wanted : bool array, shape (documents,), True for documents to read; None for all
    min_rows : int, smallest number of rows of neighbouring row groups that are read together
    """
    document = first = 0
    for fragment, length in zip(fragments, num_rows, strict=True):
        row_groups = fragment.row_groups()
        if row_groups is not None and sum(row_groups) != length:
            raise changed_error()
        for groups, row, rows in [(None, 0, length)] if row_groups is None else _join_row_groups(row_groups, min_rows):
            own = None if kept is None else kept[document + row : document + row + rows]
            num_kept = rows if own is None else int(np.count_nonzero(own))
            if num_kept and (wanted is None or wanted[first : first + num_kept].any()):
                yield RowRange(fragment, groups, row, rows, first, num_kept, own)
            first += num_kept
        document += length


def _join_row_groups(num_rows: Sequence[int], min_rows: int) -> Iterator[tuple[list[int] | None, int, int]]:
    """Yield neighbouring row groups that have at least ``min_rows`` rows together: group numbers, first row, number of
    rows."""
    groups: list[int] = []
    first = held = 0
    for group, rows in enumerate(num_rows):
        groups.append(group)
        held += rows
        if held >= min_rows:
            yield groups, first, held
            groups, first, held = [], first + held, 0
    if groups:
        yield groups, first, held
