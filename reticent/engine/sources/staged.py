"""Staging: remote documents are read once, into local Parquet files that every later pass reads.

Values are checked and cast as they come, so that a document that cannot be used stops the reading, and not a stage
after it. Memory is bounded by a row group of each part that is read. The files are those of their parts, in the order
of the rows of the source; columns keep the names that they have there.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.artifact import signals_deferred
from reticent.core.errors import CorpusError
from reticent.core.resolve import resolve
from reticent.engine.schema import one_array
from reticent.engine.sources.batches import read_ahead, reading_pool
from reticent.engine.sources.columns import SOURCE_COLUMN, canonical, plain_ids
from reticent.engine.sources.config import Columns
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.frames import digest_of
from reticent.engine.sources.parquet import document_writer, read_parquet, row_groups
from reticent.engine.sources.protocol import RemoteSource, Request, Source, origin_of
from reticent.engine.sources.table import row_of
from reticent.engine.withdrawn import Withdrawals

if TYPE_CHECKING:
    import polars as pl  # by refreshing alone


@contextmanager
def open_remote(settings: CorpusConfig, scratch: Path) -> Iterator[RemoteSource]:
    """Open the remote document source of a job, and close it at the end of the ``with`` block.

    Parameters
    ----------
    settings : CorpusConfig with a remote source
    scratch : Path of a private folder, for objects that must be downloaded to a file before they are read

    Raises
    ------
    PolicyError
        Its driver is not installed.
    CorpusError
        It cannot be reached.
    """
    assert settings.remote is not None
    source: RemoteSource = resolve(row_of(settings.remote).opener)(settings, scratch)
    try:
        yield source
    finally:
        source.close()


#: In the metadata of a batch: its place for errors, a NUL, and the rows of that place before it.
PLACE: Final = b"reticent.place"
#: Rows and bytes of text of a row group: it ends at the first of them.
ROWS_PER_GROUP: Final = 1 << 16
BYTES_PER_GROUP: Final = 4 << 20
#: Row groups of a file: a reader holds the descriptions of all of them.
GROUPS_PER_FILE: Final = 256


def staged_files(folder: Path) -> tuple[Path, ...]:
    """Return the local Parquet files to which `stage` copied documents, in the order of the documents."""
    return tuple(sorted(folder.glob("documents-*.parquet")))


def stage(
    source: Source,
    settings: CorpusConfig,
    folder: Path,
    *,
    more: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
    withdrawals: Withdrawals | None = None,
) -> dict[str, Any]:
    """Copy the documents of a remote source to Parquet files in a folder, every value checked, without those of
    withdrawn individuals; ``more`` names additional columns. Return counts.

    Lists and a table of who withdrew are read first: their texts are never written, nor does a database send them.

    Parameters
    ----------
    more : sequence of str, names of the source's columns to copy in addition to those of `DOCUMENTS`, such as fields of
        records
    progress : callable, optional, called with the number of documents copied so far
    withdrawals : Withdrawals, optional, the lists of withdrawn individuals and the record of earlier withdrawals;
        updated in place

    Returns
    -------
    dict
        ``documents``, ``text_bytes``, ``null_texts`` (where there are some), ``snapshot`` (the version of the source)
        and ``keys``, a digest of the ids of documents and individuals in their order, however many parts there were;
        ``opt_out`` and ``row_security`` of a database.

    Raises
    ------
    CorpusError
        The source cannot be read, or a document cannot be used; as :meth:`reticent.engine.corpus.Corpus.batches`.
    PolicyError
        Someone whom an earlier reading left out would come back.
    """
    wanted = _wanted_columns(settings, more)
    is_hashed_as_read = getattr(source, "is_hashed_as_read", False)
    version = b"" if is_hashed_as_read else source.version()  # by which a database takes its snapshot
    withdrawals = withdrawals or Withdrawals(settings)
    withdrawals.begin(source)
    parts = settings.connections
    stage = _Staging(source, settings, wanted, folder, parts, progress, withdrawals)
    with reading_pool(release_at_once=False):
        if parts == 1:
            stage.copy_part(0)
        else:
            _stage_in_threads(stage, parts)
    if not stage.counts["documents"]:
        raise CorpusError(f"{source.name}: no documents{getattr(origin_of(source), 'why_unread', '')}")
    _refuse_repeated_ids(source, settings, folder)
    columns = [settings.doc_id, settings.individual_id, settings.text]
    read = (batch.select(columns) for batch in _read_back(folder, columns, 1024))
    withdrawals.end(lambda: _distinct_individuals(settings, folder), read)
    counts = {name: count for name, count in stage.counts.items() if count or name != "null_texts"}
    counts |= withdrawals.counts
    if (hidden := getattr(origin_of(source), "row_security", None)) is not None:
        counts["row_security"] = hidden
    snapshot = (source.version() if is_hashed_as_read else version).decode(errors="replace")
    return {**counts, "snapshot": snapshot, "keys": {"sha256": _digest_of_keys(folder, settings)}}


def _wanted_columns(settings: CorpusConfig, additional_columns: Sequence[str]) -> dict[str, str]:
    """Return the columns to copy, as a dict from the name in the copy to the name in the source. An additional column
    is copied under its own name with the prefix `SOURCE_COLUMN`."""
    named = settings.only(Columns).model_dump()
    wanted = {name: column for name, column in named.items() if column is not None}
    return wanted | {SOURCE_COLUMN + column: column for column in additional_columns if column not in wanted.values()}


def _stage_in_threads(stage: _Staging, parts: int) -> None:
    """Copy all ``parts`` of the source, each in its own thread; the first error stops the others and is raised."""
    with ThreadPoolExecutor(parts) as pool:
        with signals_deferred():  # a thread whose start is interrupted would not be waited for
            futures = [pool.submit(stage.copy_part, part) for part in range(parts)]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            if not all(future.done() and future.exception() is None for future in futures):
                stage.stopped.set()
    failed = [error for error in (future.exception() for future in futures) if error is not None]
    for error in sorted(failed, key=lambda error: isinstance(error, _StoppedError)):
        raise error


class _StoppedError(Exception):
    """Raised in a part when another part has failed."""


@dataclass(slots=True)
class _Staging:
    """State shared by the parts of one staging."""

    source: Source
    settings: CorpusConfig
    wanted: dict[str, str]
    folder: Path
    parts: int
    progress: Callable[[int], None] | None
    withdrawals: Withdrawals
    stopped: Event = field(default_factory=Event)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("documents", "text_bytes", "null_texts"), 0))
    lock: Lock = field(default_factory=Lock)

    def copy_part(self, part: int) -> None:
        """Copy one part of the source to numbered Parquet files; none if it has no document."""
        groups = self._row_groups(part)
        for number, first in enumerate(groups):
            path = self.folder / f"documents-{part:05d}-{number:05d}.parquet"
            with document_writer(path, first.schema, self.settings) as writer:
                for table in chain([first], islice(groups, GROUPS_PER_FILE - 1)):
                    writer.write_table(table, row_group_size=table.num_rows)
                    self._count(table)

    def _row_groups(self, part: int) -> Iterator[pa.Table]:
        """Yield the row groups to write for one part of the source. They depend on its rows only, not on the batches in
        which the rows arrive."""

        held: list[pa.RecordBatch] = []
        num_rows = num_bytes = 0
        for batch in self._read_checked(part):
            texts = batch.column(batch.schema.get_field_index(self.settings.text))
            ends = np.cumsum(pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False))
            start = done = 0
            while start < batch.num_rows:
                by_bytes = int(np.searchsorted(ends, done + BYTES_PER_GROUP - num_bytes)) + 1
                end = min(by_bytes, start + ROWS_PER_GROUP - num_rows, batch.num_rows)
                held.append(batch.slice(start, end - start))
                num_rows, num_bytes = num_rows + end - start, num_bytes + int(ends[end - 1]) - done
                start, done = end, int(ends[end - 1])
                if num_rows >= ROWS_PER_GROUP or num_bytes >= BYTES_PER_GROUP:
                    yield pa.Table.from_batches(held).combine_chunks()
                    held, num_rows, num_bytes = [], 0, 0
        if held:
            yield pa.Table.from_batches(held).combine_chunks()

    def _read_checked(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a part of the source with every value checked, under the source's column names."""
        columns = list(dict.fromkeys(self.wanted.values()))
        place = self.source.name if self.parts == 1 else f"{self.source.name} (part {part + 1} of {self.parts})"
        row, skips = 0, self.settings.on_null == "skip"
        batches = self.source.batches(columns, part=part, parts=self.parts, batch_rows=ROWS_PER_GROUP)
        for batch in read_ahead(batches):
            if self.stopped.is_set():
                raise _StoppedError
            if batch.num_rows:
                if found := (batch.schema.metadata or {}).get(PLACE):  # an object, and how many of its rows came before
                    place, _, before = found.decode().rpartition("\0")
                    row = int(before)
                batch = pa.record_batch([plain_ids(array) for array in batch.columns], names=batch.schema.names)
                zone = self.settings.time_zone
                try:
                    checked = canonical(batch, self.wanted, place, row, null_texts=skips, time_zone=zone)
                except CorpusError as error:
                    raise CorpusError(f"{error}{_advise_query(self.source, str(error))}") from None
                checked = self.withdrawals.drop_withdrawn(checked)
                chosen = {column: checked.column(number) for number, column in enumerate(self.wanted.values())}
                yield pa.record_batch([chosen[name] for name in columns], schema=self._schema(columns, checked.schema))
            row += batch.num_rows

    def _schema(self, columns: Sequence[str], schema: pa.Schema) -> pa.Schema:
        """Return the schema of the files: these columns of the source, with the types of ``schema``."""
        types = dict(zip(self.wanted.values(), schema.types, strict=True))
        return pa.schema([pa.field(name, types[name]) for name in columns])

    def _count(self, table: pa.Table) -> None:
        """Add a written table to the counts of documents, bytes and null texts."""
        texts = table.column(self.settings.text)
        with self.lock:
            self.counts["documents"] += table.num_rows
            self.counts["text_bytes"] += pc.sum(pc.binary_length(texts)).as_py() or 0
            self.counts["null_texts"] += texts.null_count
            if self.progress is not None:
                self.progress(self.counts["documents"])


def _read_back(folder: Path, columns: Sequence[str], batch_rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
    """Yield the copied documents as record batches with these columns."""
    request = Request(columns=list(dict.fromkeys(columns)), batch_rows=batch_rows)
    for file in staged_files(folder):
        yield from read_parquet(file, request)


def _distinct_individuals(settings: CorpusConfig, folder: Path) -> pa.Array:
    """Return the distinct individual ids of the copied documents."""
    batches = _read_back(folder, [settings.individual_id])
    found = [batch.column(0).cast(pa.string()).unique() for batch in batches]
    return pa.concat_arrays([pa.array([], pa.string()), *found]).unique()


def _refuse_repeated_ids(source: Source, settings: CorpusConfig, folder: Path) -> None:
    """Raise `CorpusError` if two rows of a database have the same document id; the message has an SQL query that finds
    them."""
    origin = origin_of(source)
    if hasattr(origin, "query_of"):
        batches = _read_back(folder, [settings.doc_id])
        ids = pa.concat_arrays([batch.column(0).cast(pa.string()) for batch in batches])
        if double := len(ids) - len(ids.unique()):
            raise CorpusError(
                f"{source.name} column {settings.doc_id}: {double:,} rows have the id of another document; they are "
                f"found by: {origin.query_of(settings.doc_id)}"
            )


def _advise_query(source: Source, fault: str) -> str:
    """Return an SQL query for an error message that finds the faulty rows in the database; "" for other sources."""
    origin = origin_of(source)
    column = re.search(r" column (\S+): is (null|blank)", fault)
    if not hasattr(origin, "query_of") or column is None:
        return ""
    name, what = column.groups()
    condition = "IS NULL" if what == "null" else "= ''"
    return f"; it is found by: {origin.query_of(name, condition)}"


def _digest_of_keys(folder: Path, settings: CorpusConfig) -> str:
    """Return the SHA-256, hexadecimal, of the document and individual ids of the copied documents, in order."""
    names = (settings.doc_id, settings.individual_id)
    found = [digest_of(name, (batch.column(0) for batch in _read_back(folder, [name]))) for name in names]
    return hashlib.sha256(b"".join(found)).hexdigest()


# ---------------------------------------------------------------------------------------------------------- refreshing

# A database is read again, but for the texts that an earlier staging has. The server makes a digest of every text. A
# text whose digest an earlier document has is copied from there, whatever its id is now; only new and changed texts
# travel. The rows, their order and the result are those of a reading from nothing. About 150 bytes a document are held
# in memory; where most texts are new, all are read.

#: Rows whose texts are put together at once.
ROWS_AT_ONCE: Final = 256
#: Row groups of earlier documents that are held.
GROUPS_HELD: Final = 3


@runtime_checkable
class Digesting(Source, Protocol):
    """A source that can compute digests of its texts itself, such as a database server."""

    def digests(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in share number ``part`` of ``parts`` consecutive shares as record batches, with the SHA-256
        of each text (binary; null for null) in place of the text."""

    def texts(
        self, doc_ids: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the texts of the documents with these ids, in any order; only documents in share number ``part`` of
        ``parts`` consecutive shares of the rows."""


class Earlier:
    """Documents of an earlier staging, to be reused by the digest of their text.

    Parameters
    ----------
    files : sequence of Path, the Parquet files of the earlier staging, in order
    columns : Columns, the names of the files' columns

    Attributes
    ----------
    documents : polars DataFrame, one row a document: ``doc_id``, ``digest`` of the text (binary), ``row`` from 0
        (int64)
    """

    def __init__(self, files: Sequence[Path], columns: Columns):
        import polars as pl

        self._text = columns.text
        self._row_groups = [(file, group) for file in files for group in range(len(row_groups(file)))]
        self._starts = [0]
        ids: list[pa.Array] = []
        digests: list[bytes | None] = []
        for number in range(len(self._row_groups)):
            for batch in self._read_group(number, [columns.doc_id, columns.text]):
                ids.append(batch.column(0).cast(pa.large_string()))
                digests += map(_hash_text, batch.column(1))
            self._starts.append(len(digests))
        self.documents = pl.DataFrame(
            {
                "doc_id": pl.Series(pa.chunked_array(ids, pa.large_string())),
                "digest": pl.Series(digests, dtype=pl.Binary),
                "row": pl.Series(np.arange(len(digests), dtype=np.int64)),
            }
        )

    def _read_group(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of one row group of the earlier copy."""
        file, group = self._row_groups[number]
        yield from read_parquet(file, Request(columns=columns, row_groups=[group], large=[self._text]))

    def take(self, rows: np.ndarray, row_group_cache: OrderedDict[int, pa.Array]) -> pa.Array:
        """Return the texts of these rows of the earlier copy, in the order of ``rows`` (large_string).
        ``row_group_cache`` keeps the row groups that were read last."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        taken, places = [], []
        for number in map(int, np.unique(groups)):
            if number not in row_group_cache:
                read = [batch.column(0).cast(pa.large_string()) for batch in self._read_group(number, [self._text])]
                row_group_cache[number] = pa.concat_arrays(read)
            row_group_cache.move_to_end(number)
            at = np.flatnonzero(groups == number)
            taken.append(row_group_cache[number].take(pa.array(rows[at] - self._starts[number])))
            places.append(at)
            while len(row_group_cache) > GROUPS_HELD:
                row_group_cache.popitem(last=False)
        return pa.concat_arrays(taken).take(pa.array(np.argsort(np.concatenate(places), kind="stable")))


class Refreshed:
    """A database source whose unchanged texts are reused from an earlier staging, by digest; a `Source`.

    Parameters
    ----------
    source : Digesting, the database, which computes digests of texts and has or takes its snapshot
    earlier : Earlier, the documents of the earlier staging
    columns : Columns, the names of the columns in the database

    Attributes
    ----------
    origin : Digesting, the database
    num_fetched : int, number of texts that were fetched from the database so far
    """

    def __init__(self, source: Digesting, earlier: Earlier, columns: Columns):
        self._source, self._earlier, self._columns = source, earlier, columns
        self.name, self.origin = source.name, source
        self.num_fetched = 0
        self._seen: list[pl.DataFrame] = []

    def version(self) -> bytes:
        """Return the identifier of the database snapshot that is read, as bytes."""
        return self._source.version()

    def changed(self) -> list[str]:
        """Return the ids of documents whose text differs between the earlier copy and this reading; all parts must have
        been read."""
        import polars as pl

        now = pl.concat(self._seen) if self._seen else self._earlier.documents.clear().select("doc_id", "digest")
        both = self._earlier.documents.join(now, on="doc_id", suffix="_now")
        return both.filter(pl.col("digest").ne_missing(pl.col("digest_now")))["doc_id"].unique().sort().to_list()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in share number ``part`` of ``parts`` consecutive shares as record batches, with unchanged
        texts taken from the earlier copy instead of the database."""
        import polars as pl

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
            texts = self._collect_texts(known[stretch], is_new[stretch], digests, fetched, held)
            chosen = table.slice(start, ROWS_AT_ONCE).combine_chunks()
            arrays = [texts if name == self._columns.text else one_array(chosen.column(name)) for name in columns]
            yield pa.record_batch(arrays, names=list(columns))
        fetched.read_to_end()

    def _collect_texts(
        self,
        earlier_rows: np.ndarray,
        is_new: np.ndarray,
        digests: list[bytes | None],
        fetched_texts: _Fetched,
        held: OrderedDict[int, pa.Array],
    ) -> pa.Array:
        """Return the text of each row, large_string: taken from its row in the earlier copy if ``earlier_rows`` is not
        -1, else, where ``is_new``, from the newly fetched texts by its SHA-256 (``digests``), else null."""
        sources = [pa.nulls(1, pa.large_string())]
        places = np.zeros(len(earlier_rows), np.int64)
        if len(old := np.flatnonzero(earlier_rows >= 0)):
            places[old] = 1 + np.arange(len(old))
            sources.append(self._earlier.take(earlier_rows[old], held))
        if len(new := np.flatnonzero(is_new)):
            places[new] = 1 + len(old) + np.arange(len(new))
            sources.append(pa.array([fetched_texts.take(digests[row]) for row in new], pa.large_string()))
        return pa.concat_arrays(sources).take(pa.array(places))


class _Fetched:
    """Texts fetched from the database, looked up by digest; those that arrive early are held."""

    def __init__(self, where: str, batches: Iterator[pa.RecordBatch]):
        self._where, self._batches = where, batches
        self._held: defaultdict[bytes, list[pa.Scalar]] = defaultdict(list)

    def take(self, digest: bytes | None) -> str:
        """Return the fetched text with this SHA-256, reading further batches until it arrives."""
        assert digest is not None
        while not self._held[digest]:
            batch = next(self._batches, None)
            if batch is None:
                raise CorpusError(
                    f"{self._where}: answers with other rows when it is asked again; let the query say which"
                )
            for text in batch.column(0):
                if (found := _hash_text(text)) is not None:
                    self._held[found].append(text)
        text = self._held[digest].pop()
        if not self._held[digest]:
            del self._held[digest]
        taken: str = text.as_py()
        return taken

    def read_to_end(self) -> None:
        """Consume the remaining batches, so that a late error is raised."""
        for _ in self._batches:
            pass


def _hash_text(text: pa.Scalar) -> bytes | None:
    """Return the SHA-256 of a text scalar; None for null."""
    return hashlib.sha256(text.as_buffer()).digest() if text.is_valid else None
