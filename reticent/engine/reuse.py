"""Documents that two corpora share, whose identifier spans can be reused.

A document is the same in two runs if both have one of its id, individual and text.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent import _rust
from reticent.engine.corpus import Corpus
from reticent.engine.detect.spans import SpanReader
from reticent.engine.schema import SPANS


def rows_before(before: Corpus, after: Corpus) -> np.ndarray:
    """Return for each document of ``after`` the row number of the document of ``before`` with the same id, int64; -1 if
    there is none."""

    old, new = (corpus.scan().column("doc_id").combine_chunks() for corpus in (before, after))
    rows = _rust.IdRows(old).rows(new)
    return np.where(rows == _rust.MISSING, -1, rows.astype(np.int64))


def with_same_individual(before: Corpus, after: Corpus, rows: np.ndarray) -> np.ndarray:
    """Return ``rows`` (the result of `rows_before`) with -1 for documents that belong to another individual than
    before."""
    both = np.flatnonzero(rows >= 0)
    old = before.scan().column("individual_id").take(pa.array(rows[both]))
    new = after.scan().column("individual_id").take(pa.array(both))
    same = pc.equal(old.cast(pa.string()), new.cast(pa.string())).to_numpy(zero_copy_only=False)
    kept = rows.copy()
    kept[both[~same]] = -1
    return kept


def differing_texts(before: Corpus, after: Corpus, rows: np.ndarray, num_threads: int = 0) -> np.ndarray:
    """Return the row numbers, int64, of the documents of ``after`` whose text differs from the one in ``before``;
    ``rows`` is from `rows_before`.

    Texts are compared by 64 bits of BLAKE3 under a key that is drawn anew: whoever wrote a text, a change of it is not
    seen in one of 2^64 cases. Cost: one pass over the text of both; 16 bytes a document.
    """
    key = secrets.token_bytes(32)
    old, new = (_hash_texts(corpus, key, num_threads) for corpus in (before, after))
    both = np.flatnonzero(rows >= 0)
    return both[old[rows[both]] != new[both]]


def _hash_texts(corpus: Corpus, key: bytes, num_threads: int) -> np.ndarray:
    """Return a keyed 64-bit hash of each document's text, as 16 hexadecimal characters."""
    digests, first = np.empty(corpus.num_documents, dtype="S16"), 0
    for batch in corpus.batches(columns=("text",)):
        made = _rust.pseudonymise_ids(batch.column("text"), key=key, purpose="text", num_threads=num_threads)
        column = pa.record_batch(made).column("id")
        digests[first : first + batch.num_rows] = np.frombuffer(column.buffers()[2], dtype="S16", count=batch.num_rows)
        first += batch.num_rows
    return digests


def concatenate_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the integers of several ranges, given by start and length, one range after another.

    >>> concatenate_ranges(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)


def spans_of(reader: SpanReader, rows: np.ndarray, columns: Sequence[str] | None = None) -> tuple[np.ndarray, pa.Table]:
    """Return the spans of these documents (distinct row numbers, in any order): offsets by document, int64 (D + 1,),
    and a table."""
    order = np.argsort(rows, kind="stable")
    offsets, table = reader.of_documents(rows[order], columns)
    if (np.diff(order) > 0).all():
        return offsets, table
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    lengths = np.diff(offsets)[places]
    table = table.take(pa.array(concatenate_ranges(offsets[places], lengths))).combine_chunks()
    return np.concatenate([[0], np.cumsum(lengths)]), table


class ReusedSpans:
    """Identifier spans that documents of a corpus had in an earlier run, for reuse.

    Parameters
    ----------
    folder : of ``spans.parquet``
    rows : int64 array, shape (num_documents,): the number that each document has there, or -1

    Attributes
    ----------
    counts : spans that were yielded, by detector
    """

    #: Documents whose spans are read together.
    AT_ONCE: Final = 1 << 14

    def __init__(self, folder: Path | str, rows: np.ndarray):
        self._reader, self.rows = SpanReader(folder), rows
        self.counts: Counter[str] = Counter()

    def between(self, first: int, end: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the spans that an earlier run found in documents ``first`` to ``end`` and that are still valid, range
        by range, as pairs: the end of the range, and a table (schema `SPANS`; ``document`` is the corpus row
        number)."""
        for begin in range(first, end, self.AT_ONCE):
            stop = min(begin + self.AT_ONCE, end)
            documents = begin + np.flatnonzero(self.rows[begin:stop] >= 0)
            offsets, table = spans_of(self._reader, self.rows[documents])
            numbers = np.repeat(documents, np.diff(offsets))
            table = table.set_column(0, SPANS.field(0), pa.array(numbers, pa.int64())).cast(SPANS)
            for found in table.column("detector").value_counts().to_pylist():
                self.counts[found["values"]] += found["counts"]
            yield stop, table
