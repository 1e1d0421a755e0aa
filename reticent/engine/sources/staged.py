"""Staging: documents that are no local files are read once, into files of Parquet that every later pass reads.

Values are checked and cast as they come, so that a document that cannot be used stops the reading, and not a stage
after it. Memory is bounded by a row group of each part that is read. The files are those of their parts, in the order
of the rows of the source; columns keep the names that they have there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reticent.core.artifact import signals_deferred
from reticent.core.errors import CorpusError
from reticent.engine.sources.batches import read_ahead, reading_pool
from reticent.engine.sources.columns import SOURCE_COLUMN, canonical, is_whole
from reticent.engine.sources.config import Columns
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.parquet import document_writer, read_parquet
from reticent.engine.sources.source import Request, Source

__all__ = ["stage", "staged_files"]

#: Rows and bytes of text of a row group: it ends at the first of them.
ROWS_PER_GROUP: Final = 1 << 16
BYTES_PER_GROUP: Final = 4 << 20
#: Row groups of a file: a reader holds the descriptions of all of them.
GROUPS_PER_FILE: Final = 256


def staged_files(folder: Path) -> tuple[Path, ...]:
    """Return the files that `stage` wrote, in the order of the documents."""
    return tuple(sorted(folder.glob("documents-*.parquet")))


def stage(
    source: Source,
    settings: CorpusConfig,
    folder: Path,
    *,
    more: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the documents of a source into a folder; returns counts.

    Parameters
    ----------
    more : columns of the source that are wanted beside those of `DOCUMENTS`, such as fields of records
    progress : takes the number of documents so far

    Returns
    -------
    dict
        ``documents``, ``text_bytes``, ``null_texts`` (where there are some), ``snapshot`` (the version of the source)
        and ``keys``, a digest of the ids of documents and individuals in their order, however many parts there were.

    Raises
    ------
    CorpusError
        The source cannot be read, or a document cannot be used; as :meth:`reticent.engine.corpus.Corpus.batches`.
    """
    wanted = _wanted(settings, more)
    snapshot = source.version().decode(errors="replace")
    parts = settings.connections
    stage = _Staging(source, settings, wanted, folder, parts, progress)
    with reading_pool(frugal=False):
        if parts == 1:
            stage.part(0)
        else:
            _in_threads(stage, parts)
    if not stage.counts["documents"]:
        raise CorpusError(f"{source.name}: no documents")
    counts = {name: count for name, count in stage.counts.items() if count or name != "null_texts"}
    return {**counts, "snapshot": snapshot, "keys": {"sha256": _digest_of_keys(folder, settings)}}


def _wanted(settings: CorpusConfig, more: Sequence[str]) -> dict[str, str]:
    """Column of `DOCUMENTS`, or of the source (`SOURCE_COLUMN`) -> its name in the source."""
    named = settings.only(Columns).model_dump()
    wanted = {name: column for name, column in named.items() if column is not None}
    return wanted | {SOURCE_COLUMN + column: column for column in more if column not in wanted.values()}


def _in_threads(stage: _Staging, parts: int) -> None:
    """Write every part in a thread of its own; the first that fails stops the others."""
    with ThreadPoolExecutor(parts) as pool:
        with signals_deferred():  # a thread whose start is interrupted would not be waited for
            futures = [pool.submit(stage.part, part) for part in range(parts)]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            if not all(future.done() and future.exception() is None for future in futures):
                stage.stopped.set()
    failed = [error for error in (future.exception() for future in futures) if error is not None]
    for error in sorted(failed, key=lambda error: isinstance(error, _StoppedError)):
        raise error


class _StoppedError(Exception):
    """Another part failed."""


@dataclass(slots=True)
class _Staging:
    """State that the parts of one staging share."""

    source: Source
    settings: CorpusConfig
    wanted: dict[str, str]
    folder: Path
    parts: int
    progress: Callable[[int], None] | None
    stopped: Event = field(default_factory=Event)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("documents", "text_bytes", "null_texts"), 0))
    lock: Lock = field(default_factory=Lock)

    def part(self, part: int) -> None:
        """Write a part into files; none where it has no document."""
        groups = self._groups(part)
        for number, first in enumerate(groups):
            path = self.folder / f"documents-{part:05d}-{number:05d}.parquet"
            with document_writer(path, first.schema, self.settings) as writer:
                for table in chain([first], islice(groups, GROUPS_PER_FILE - 1)):
                    writer.write_table(table, row_group_size=table.num_rows)
                    self._count(table)

    def _groups(self, part: int) -> Iterator[pa.Table]:
        """The row groups of a part: they depend on its rows, not on the batches in which these came."""
        import pyarrow.compute as pc

        held: list[pa.RecordBatch] = []
        num_rows = num_bytes = 0
        for batch in self._checked(part):
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

    def _checked(self, part: int) -> Iterator[pa.RecordBatch]:
        """The batches of a part, each value checked, with the source's names of the columns."""
        columns = list(dict.fromkeys(self.wanted.values()))
        place = self.source.name if self.parts == 1 else f"{self.source.name} (part {part + 1} of {self.parts})"
        row, skips = 0, self.settings.on_null == "skip"
        batches = self.source.batches(columns, part=part, parts=self.parts, batch_rows=ROWS_PER_GROUP)
        for batch in read_ahead(batches):
            if self.stopped.is_set():
                raise _StoppedError
            if batch.num_rows:
                batch = pa.record_batch([_plain(array) for array in batch.columns], names=batch.schema.names)
                checked = canonical(batch, self.wanted, place, row, null_texts=skips)
                chosen = {column: checked.column(number) for number, column in enumerate(self.wanted.values())}
                yield pa.record_batch([chosen[name] for name in columns], schema=self._schema(columns, checked.schema))
            row += batch.num_rows

    def _schema(self, columns: Sequence[str], schema: pa.Schema) -> pa.Schema:
        types = dict(zip(self.wanted.values(), schema.types, strict=True))
        return pa.schema([pa.field(name, types[name]) for name in columns])

    def _count(self, table: pa.Table) -> None:
        import pyarrow.compute as pc

        texts = table.column(self.settings.text)
        with self.lock:
            self.counts["documents"] += table.num_rows
            self.counts["text_bytes"] += pc.sum(pc.binary_length(texts)).as_py() or 0
            self.counts["null_texts"] += texts.null_count
            if self.progress is not None:
                self.progress(self.counts["documents"])


def _plain(array: pa.Array) -> pa.Array:
    """A column without the types of a driver; whole decimal numbers as text."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.cast(pa.string()) if pa.types.is_decimal(array.type) and is_whole(array.type) else array


def _digest_of_keys(folder: Path, settings: CorpusConfig) -> str:
    """SHA-256 over lengths and bytes of the ids of documents, and over those of individuals."""
    import pyarrow.compute as pc

    digests = [hashlib.sha256() for _ in range(4)]
    for file in staged_files(folder):
        request = Request(columns=list(dict.fromkeys((settings.doc_id, settings.individual_id))), batch_rows=1 << 16)
        for batch in read_parquet(file, request):
            for number, name in enumerate((settings.doc_id, settings.individual_id)):
                values = batch.column(batch.schema.get_field_index(name)).cast(pa.large_binary())
                lengths = pc.binary_length(values)
                digests[2 * number].update(lengths.to_numpy())
                if num_bytes := pc.sum(lengths).as_py():
                    offsets, data = values.buffers()[1:]
                    first = memoryview(offsets).cast("q")[values.offset]
                    digests[2 * number + 1].update(memoryview(data)[first : first + num_bytes])
    return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()
