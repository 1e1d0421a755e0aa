"""Refreshing: a database is read again, but for the texts that an earlier staging has.

The server makes a digest of every text. A text whose digest an earlier document has is copied from there, whatever its
id is now; only new and changed texts travel. The rows, their order and the result are those of a reading from nothing.
About 150 bytes a document are held in memory; where most texts are new, all are read.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import numpy as np
import polars as pl
import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.sources.config import Columns
from reticent.engine.sources.parquet import read_parquet, row_groups
from reticent.engine.sources.source import Request, Source

__all__ = ["Digesting", "Earlier", "Refreshed"]

#: Rows whose texts are put together at once.
ROWS_AT_ONCE: Final = 256
#: Row groups of earlier documents that are held.
GROUPS_HELD: Final = 3


@runtime_checkable
class Digesting(Source, Protocol):
    """A source that makes digests of its texts by itself."""

    def digests(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `batches` in their order, with SHA-256 (binary; null of null) instead of each text."""

    def texts(
        self, doc_ids: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the texts of the documents of a part that have one of these ids, in any order."""


class Earlier:
    """Documents of an earlier staging.

    Parameters
    ----------
    files : those of the staging, in order
    columns : the names of their columns

    Attributes
    ----------
    documents : a row a document: ``doc_id``, ``digest`` of the text, ``row`` from 0
    """

    def __init__(self, files: Sequence[Path], columns: Columns):
        self._text = columns.text
        self._groups = [(file, group) for file in files for group in range(len(row_groups(file)))]
        self._starts = [0]
        ids: list[pa.Array] = []
        digests: list[bytes | None] = []
        for number in range(len(self._groups)):
            for batch in self._read(number, [columns.doc_id, columns.text]):
                ids.append(batch.column(0).cast(pa.large_string()))
                digests += map(_digest, batch.column(1))
            self._starts.append(len(digests))
        self.documents = pl.DataFrame(
            {
                "doc_id": pl.Series(pa.chunked_array(ids, pa.large_string())),
                "digest": pl.Series(digests, dtype=pl.Binary),
                "row": pl.Series(np.arange(len(digests), dtype=np.int64)),
            }
        )

    def _read(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        file, group = self._groups[number]
        yield from read_parquet(file, Request(columns=columns, row_groups=[group], large=[self._text]))

    def take(self, rows: np.ndarray, held: OrderedDict[int, pa.Array]) -> pa.Array:
        """Return the texts of some rows, in their order (large_string); ``held`` keeps the last row groups."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        taken, places = [], []
        for number in map(int, np.unique(groups)):
            if number not in held:
                read = [batch.column(0).cast(pa.large_string()) for batch in self._read(number, [self._text])]
                held[number] = pa.concat_arrays(read)
            held.move_to_end(number)
            at = np.flatnonzero(groups == number)
            taken.append(held[number].take(pa.array(rows[at] - self._starts[number])))
            places.append(at)
            while len(held) > GROUPS_HELD:
                held.popitem(last=False)
        return pa.concat_arrays(taken).take(pa.array(np.argsort(np.concatenate(places), kind="stable")))


class Refreshed:
    """A database whose texts are taken from an earlier staging where their digests are equal; a `Source`.

    Parameters
    ----------
    source : the database, which has its snapshot by now or takes it
    earlier : the documents of the earlier staging
    columns : the names of the columns in the database

    Attributes
    ----------
    num_fetched : texts that the database was asked for, so far
    """

    def __init__(self, source: Digesting, earlier: Earlier, columns: Columns):
        self._source, self._earlier, self._columns = source, earlier, columns
        self.name = source.name
        self.num_fetched = 0
        self._seen: list[pl.DataFrame] = []

    def version(self) -> bytes:
        """Return the version of the database."""
        return self._source.version()

    def changed(self) -> list[str]:
        """Return the ids of documents of both readings whose texts differ; all parts must have been read."""
        now = pl.concat(self._seen) if self._seen else self._earlier.documents.clear().select("doc_id", "digest")
        both = self._earlier.documents.join(now, on="doc_id", suffix="_now")
        return both.filter(pl.col("digest").ne_missing(pl.col("digest_now")))["doc_id"].unique().sort().to_list()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns; raises as `Source.batches` does."""
        read = list(self._source.digests(columns, part=part, parts=parts, batch_rows=batch_rows))
        if not read:
            return
        table = pa.Table.from_batches(read)
        documents = pl.DataFrame(
            {
                "doc_id": pl.Series(table.column(self._columns.doc_id).cast(pa.large_string())),
                "digest": pl.Series(table.column(self._columns.text).cast(pa.large_binary())),
            }
        )
        self._seen.append(documents)
        first = self._earlier.documents.select("digest", "row").drop_nulls().unique("digest", keep="first")
        rows = documents.join(first, on="digest", how="left", maintain_order="left")["row"]
        is_new = (rows.is_null() & documents["digest"].is_not_null()).to_numpy()
        self.num_fetched += int(is_new.sum())
        # A document without an id cannot be asked for; who checks the rows says where it is.
        if 2 * is_new.sum() > len(rows) or documents["doc_id"].null_count():
            yield from self._source.batches(columns, part=part, parts=parts, batch_rows=batch_rows)
            return
        new_ids = documents["doc_id"].filter(pl.Series(is_new)).to_list()
        fetched = _Fetched(self.name, self._source.texts(new_ids, part=part, parts=parts))
        known = rows.fill_null(-1).to_numpy()
        held: OrderedDict[int, pa.Array] = OrderedDict()
        for start in range(0, len(known), ROWS_AT_ONCE):
            stretch = slice(start, start + ROWS_AT_ONCE)
            digests = documents["digest"][stretch].to_list()
            texts = self._texts(known[stretch], is_new[stretch], digests, fetched, held)
            chosen = table.slice(start, ROWS_AT_ONCE).combine_chunks()
            arrays = [texts if name == self._columns.text else _one(chosen.column(name)) for name in columns]
            yield pa.record_batch(arrays, names=list(columns))
        fetched.end()

    def _texts(
        self,
        known: np.ndarray,
        is_new: np.ndarray,
        digests: list[bytes | None],
        fetched: _Fetched,
        held: OrderedDict[int, pa.Array],
    ) -> pa.Array:
        """The texts of a stretch of rows: earlier ones, fetched ones, and null where there is neither."""
        sources = [pa.nulls(1, pa.large_string())]
        places = np.zeros(len(known), np.int64)
        if len(old := np.flatnonzero(known >= 0)):
            places[old] = 1 + np.arange(len(old))
            sources.append(self._earlier.take(known[old], held))
        if len(new := np.flatnonzero(is_new)):
            places[new] = 1 + len(old) + np.arange(len(new))
            sources.append(pa.array([fetched.take(digests[row]) for row in new], pa.large_string()))
        return pa.concat_arrays(sources).take(pa.array(places))


class _Fetched:
    """Texts as the database sends them, by digest: those that come before their turn are held."""

    def __init__(self, where: str, batches: Iterator[pa.RecordBatch]):
        self._where, self._batches = where, batches
        self._held: defaultdict[bytes, list[pa.Scalar]] = defaultdict(list)

    def take(self, digest: bytes | None) -> str:
        assert digest is not None
        while not self._held[digest]:
            batch = next(self._batches, None)
            if batch is None:
                raise CorpusError(
                    f"{self._where}: answers with other rows when it is asked again; let the query say which"
                )
            for text in batch.column(0):
                if (found := _digest(text)) is not None:
                    self._held[found].append(text)
        text = self._held[digest].pop()
        if not self._held[digest]:
            del self._held[digest]
        taken: str = text.as_py()
        return taken

    def end(self) -> None:
        """Read to the end, so that an error which comes last is raised."""
        for _ in self._batches:
            pass


def _digest(text: pa.Scalar) -> bytes | None:
    return hashlib.sha256(text.as_buffer()).digest() if text.is_valid else None


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
