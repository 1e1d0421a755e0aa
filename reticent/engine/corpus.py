"""Corpus: the documents of individuals, read from any format as a stream of Arrow record batches.

Batches have the columns of `reticent.engine.schema.DOCUMENTS`, in the order of file names and rows. Memory is bounded
by the batch. A row that cannot be used is an error that names file, row (from 1) and column, never the text or the id.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.identity import FOLDED, Ids, check_choice, require_distinct_ids, require_real_ids, unify_spellings
from reticent.engine.schema import DOCUMENTS, owned_batch
from reticent.engine.sources.batches import (
    filter_rows,
    memory_from,
    merge_batches,
    reading_pool,
    require_num_rows,
    row_ranges,
)
from reticent.engine.sources.columns import REQUIRED, SOURCE_COLUMN, Reader
from reticent.engine.sources.config import Columns, CsvDialect, Markup, OnNull
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.csv import CsvSource
from reticent.engine.sources.files import Files, find_format, format_options
from reticent.engine.sources.formats import format_of, read_batches
from reticent.engine.sources.frames import Frame, is_frame, open_frame
from reticent.engine.sources.plain import individual_of, owners_of
from reticent.engine.sources.protocol import LocalSource, Request
from reticent.engine.sources.reading import Reading, oddities
from reticent.engine.threads import in_threads

__all__ = ["SOURCE_COLUMN", "Columns", "Corpus", "CorpusConfig", "Documents"]
__all__ += ["as_corpus", "open_configured", "open_corpus", "owners_of_table"]

#: Documents in a batch of `Corpus.for_each_batch`: about half a mebibyte of text.
BATCH_ROWS = 128


@dataclass(slots=True, repr=False)
class Corpus:
    """An opened set of documents, whose record batches can be read repeatedly; made by :func:`open_corpus`."""

    source: LocalSource
    columns: Columns = field(default_factory=Columns)
    #: Treatment of documents whose text is null.
    on_null: OnNull = "stop"
    ids: Ids = "stop"
    #: Ids that look like a word for no id (`require_real_ids`) and are real.
    real_ids: Collection[str] = frozenset()
    #: Files passed over, the dialect of CSV, and documents left out; whole once the corpus was scanned.
    reading: Reading = field(default_factory=Reading)
    #: In which times with a zone are read, in columns of the source.
    time_zone: str | None = None
    #: Repairs in marked-up files and ids, and how often; known once the corpus was scanned.
    repaired: Counter[str] = field(default_factory=Counter)
    _ids: pa.Table | None = None
    #: Rows of each fragment of the source, known once they have been scanned; rows that are left out count.
    _num_rows: list[int] = field(default_factory=list)
    #: Which of those rows are documents of this corpus (bool); None: all.
    _kept: np.ndarray | None = None
    _fingerprint: str | None = None

    def __repr__(self) -> str:  # without text or id
        return f"Corpus({self.source.name}, {self.format})"

    @property
    def files(self) -> tuple[Path, ...]:
        """The files from which documents are read; an empty tuple for documents in memory."""
        return self.source.paths if isinstance(self.source, Files) else ()

    @property
    def format(self) -> str:
        """The name of the file format, such as "csv", or "memory"."""
        return self.source.kind

    def batches(
        self, *, columns: Sequence[str] = REQUIRED, batch_rows: int = 1024, wanted: np.ndarray | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the documents (if ``wanted`` is given, those where it is True) as Arrow record batches, in corpus
        order, with these columns of the schema `DOCUMENTS`; columns that the source does not have are skipped.

        ``wanted`` (bool, shape (num_documents,)): only these; row groups and files without one are not read.

        Raises
        ------
        CorpusError
            A file cannot be read, a column is missing or of a wrong type, a value is null, an id is blank, a text is
            not valid UTF-8, a span does not fit its text.
        """
        self._scan_if_skipping_nulls()
        if wanted is not None:
            parts = self._iter_row_ranges(columns, batch_rows, wanted, 1)
            chosen = (filter_rows(found, wanted[first : first + length]) for first, length, found in parts)
            yield from merge_batches(itertools.chain.from_iterable(chosen), batch_rows)
            return
        fragments, reader = self.source.fragments, self._reader
        streams: Iterator[Iterator[pa.RecordBatch]] = (reader.read(each, columns, batch_rows) for each in fragments)
        if self._kept is not None:
            kept = np.split(self._kept, np.cumsum(self._num_rows)[:-1])
            scanned = map(require_num_rows, streams, self._num_rows)
            streams = map(filter_rows, scanned, kept)
        batches = itertools.chain.from_iterable(streams)
        yield from merge_batches(batches, batch_rows) if self.source.has_small_batches else batches

    def without(self, rows: np.ndarray | Sequence[int]) -> Corpus:
        """Return a view of this corpus without the documents with these row numbers; the remaining documents are
        renumbered.

        No file is changed, and documents left out are still read and checked. Another choice has another fingerprint.

        Raises
        ------
        PolicyError
            A number is not one of a document.
        CorpusError
            No two individuals are left.
        """
        ids, numbers = self.scan(), np.asarray(rows)
        if len(numbers) == 0:
            return self
        if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= ids.num_rows:
            raise PolicyError(f"documents to leave out: expected whole numbers from 0 to {ids.num_rows - 1}")
        stays = np.ones(ids.num_rows, dtype=bool)
        stays[numbers] = False
        kept = np.ones(sum(self._num_rows), dtype=bool) if self._kept is None else self._kept.copy()
        kept[kept] = stays
        ids = ids.filter(pa.array(stays))
        self._check_individuals(ids)
        return replace(self, _ids=ids, _kept=kept, _fingerprint=None)

    @property
    def _reader(self) -> Reader:
        """The reader of the source's record batches, with this corpus's column names and options."""
        skips = self.on_null == "skip"
        return Reader(self.source, self.columns, self.ids == "fold", skips, self.time_zone)

    def for_each_batch(
        self,
        work: Callable[[int, pa.RecordBatch], None],
        *,
        columns: Sequence[str] = REQUIRED,
        num_threads: int = 1,
        frugal: bool = False,
        wanted: np.ndarray | None = None,
    ) -> None:
        """Call ``work(first, batch)`` for every record batch, from ``num_threads`` threads and in any order; ``first``
        is the row number of the batch's first document. ``wanted`` (bool by document) skips row groups without a wanted
        one, ``frugal`` returns freed memory to the system at once.

        Threads read different ranges of rows (row groups of Parquet, else files); where there are fewer of
        them than threads, they take turns at one. Memory is bounded by a batch and a page of Parquet a thread; with
        ``frugal`` what pyarrow frees goes back to the system at once. ``wanted`` (bool, shape (num_documents,)): row
        groups and files without a wanted document are not read.

        Raises
        ------
        CorpusError
            As :meth:`batches`, or the files hold other numbers of rows than when they were scanned.
        """
        streams = [(first, found) for first, _, found in self._iter_row_ranges(columns, BATCH_ROWS, wanted, BATCH_ROWS)]
        with reading_pool(frugal) as pool:

            def work_and_release(first: int, batch: pa.RecordBatch) -> None:
                """Process a batch and, if ``frugal``, return its memory to the system."""
                work(first, batch)
                del batch
                if frugal:
                    pool.release_unused()

            in_threads(streams, work_and_release, num_threads)

    def _iter_row_ranges(
        self, columns: Sequence[str], batch_rows: int, wanted: np.ndarray | None, min_rows: int
    ) -> Iterator[tuple[int, int, Iterator[pa.RecordBatch]]]:
        """Yield the documents range by range, as (number of the first document, number of documents, iterator over
        record batches). A range is a whole file, or row groups with at least ``min_rows`` rows together; ranges without
        a document in the mask ``wanted`` (None: all) are skipped."""
        self.scan()
        for part in row_ranges(self.source.fragments, self._num_rows, self._kept, wanted, min_rows):
            found = self._reader.read(part.fragment, columns, batch_rows, part.row_groups, part.row)
            yield part.first, part.num_kept, part.checked(found)

    def scan(self) -> pa.Table:
        """Return a table with doc_id, individual_id and household_id (if any) of every document; they are read and
        checked once, then cached.

        Raises
        ------
        CorpusError
            Besides the errors of :meth:`batches`: no document at all, one individual only, a doc_id that stands twice,
            and with ``ids="stop"`` ids of individuals or households that fold to one another.
        """
        if self._ids is None:
            batches: list[pa.RecordBatch] = []
            num_rows: list[int] = []
            kept: list[np.ndarray] = []
            repaired: Counter[str] = Counter()
            skips = self.on_null == "skip"
            columns, batch_rows = (("doc_id", *FOLDED, "text"), 1024) if skips else (("doc_id", *FOLDED), 1 << 16)
            as_spelt = replace(self._reader, fold=False)
            with memory_from(pa.system_memory_pool()):  # which gives the memory of reading back
                for fragment in self.source.fragments:
                    num_rows.append(0)
                    for batch in as_spelt.read(fragment, columns, batch_rows, repaired=repaired):
                        num_rows[-1] += batch.num_rows
                        if skips:
                            kept.append(batch.column("text").is_valid().to_numpy(zero_copy_only=False))
                            batch = owned_batch(batch.drop_columns(["text"]))
                        batches.append(batch)
            if not batches or not any(batch.num_rows for batch in batches):
                raise CorpusError(f"{self.source.name}: no documents")
            table = pa.Table.from_batches(batches)
            place = partial(self._describe_place, num_rows=num_rows)
            require_distinct_ids(table.column("doc_id"), self.columns.doc_id, place)
            for name in [name for name in FOLDED if name in table.column_names]:
                require_real_ids(table.column(name), str(as_spelt.column_of(name)), self.real_ids, place)
                table, num_joined = unify_spellings(table, name, str(as_spelt.column_of(name)), self.ids, place)
                if num_joined:
                    repaired[f"spellings of {name} joined with others"] = num_joined
            table = self._drop_null_texts(table, np.concatenate(kept)) if skips else table
            self._check_individuals(table)
            self._ids, self._num_rows, self.repaired = table, num_rows, repaired
            self.reading.oddities = self._unusual_values()
            self.reading.tell_scan_notices()
        return self._ids

    def _unusual_values(self) -> list[str]:
        """Return warnings about texts and ids that look unusual, from the first texts and the counts of ids."""
        texts: list[str] = []
        with suppress(CorpusError):  # reading says where
            for fragment in self.source.fragments[: 256 if self.source.has_small_batches else 1]:
                first = next(self._reader.read(fragment, ("text",), 1024), None)
                if first is not None:
                    texts += [text for text in first.column(0).to_pylist() if text]
        columns = self.columns
        return oddities(texts, self.num_documents, self.num_individuals, columns.text, columns.individual_id)

    def _drop_null_texts(self, ids: pa.Table, has_text: np.ndarray) -> pa.Table:
        """Return the table ``ids`` without the documents whose text is null, and store the mask ``has_text``. Raise
        `CorpusError` if no text is left."""
        if has_text.all():
            return ids
        if not has_text.any():
            raise CorpusError(f"{self.source.name}: no documents: the text of all {len(has_text):,} is null")
        self._kept, self.reading.num_skipped = has_text, int(np.count_nonzero(~has_text))
        return ids.filter(pa.array(has_text))

    def _scan_if_skipping_nulls(self) -> None:
        """Scan the corpus, once, if documents with a null text are to be skipped: the scan finds these."""
        if self.on_null == "skip":
            self.scan()

    def check(self, *, num_threads: int = 1, frugal: bool = False) -> None:
        """Read and check every mapped column of every document, so that an invalid value raises `CorpusError` before
        any result is made. ``frugal`` returns freed memory to the system at once.

        Raises the errors of :meth:`batches` and :meth:`scan`, for the first document that is bad. Cost: one pass over
        the text. ``num_threads`` and ``frugal`` are as in :meth:`for_each_batch`.
        """
        self.scan()
        if self._kept is None and num_threads > 1:
            with suppress(CorpusError):  # of any document; the first bad one is looked for below
                self.for_each_batch(
                    lambda first, batch: None, columns=DOCUMENTS.names, num_threads=num_threads, frugal=frugal
                )
                return
        for _ in self.batches(columns=DOCUMENTS.names):
            pass

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return self.scan().num_rows

    @property
    def num_individuals(self) -> int:
        """Number of distinct individuals."""
        return _count_distinct(self.scan().column("individual_id"))

    def num_documents_by_fragment(self) -> list[int]:
        """Return the number of documents in each file or table (fragment) of the source, in order, without excluded
        documents."""
        kept = np.ones(self.scan().num_rows, dtype=bool)  # the scan finds the rows that are left out
        kept = kept if self._kept is None else self._kept
        return [int(part.sum()) for part in np.split(kept, np.cumsum(self._num_rows)[:-1])]

    def fingerprint(self) -> str:
        """Return a SHA-256 of the source's content, the reading options and the excluded documents; it is computed
        once.

        Of files that is their bytes; of documents in memory names and values of all columns, whoever holds them. So
        documents in memory never have the fingerprint of a file.
        """
        if self._fingerprint is None:
            self._scan_if_skipping_nulls()
            how = [self.source.kind, self.columns.model_dump(), *self.source.settings()]
            how += ["fold"] if self.ids == "fold" else []  # the others read the same
            how += [] if self.time_zone is None else ["time_zone", self.time_zone]
            digest = hashlib.sha256(json.dumps(how).encode())
            digest.update(self.source.version())
            if self._kept is not None:
                digest.update(b"without" + np.packbits(~self._kept).tobytes())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def require_unchanged(self) -> None:
        """Raise `CorpusError` if a file has changed since it was first read, as results of several passes over the text
        would not fit together."""
        if isinstance(self.source, Files):
            self.source.require_unchanged()

    def _check_individuals(self, ids: pa.Table) -> None:
        """Raise `CorpusError` if the documents have fewer than two distinct individuals."""
        if (num_individuals := _count_distinct(ids.column("individual_id"))) < 2:
            left = " once documents are left out" if self._ids is not None else ""
            found = f"names {'one individual only' if num_individuals else 'no individual'}{left}"
            column = f"{self.source.name}: column {self.columns.individual_id}"
            raise CorpusError(f"{column} {found}; support among individuals needs at least two")

    def place(self, document: int) -> str:
        """Return file and row of a document as text for an error message; ``document`` is its row number in the corpus,
        from 0."""
        self.scan()
        row = document if self._kept is None else int(np.flatnonzero(self._kept)[document])
        return self._describe_place(row, self._num_rows)

    def _describe_place(self, row: int, num_rows: Sequence[int]) -> str:
        """Return the file and the row within it as text for an error message, given the number ``row`` of a row in the
        whole source and the number of rows of each file."""
        for fragment, length in zip(self.source.fragments, num_rows, strict=True):
            if row < length:
                return f"{fragment.place} row {row + 1}"
            row -= length
        raise AssertionError("row beyond the corpus")


#: Everything that documents are read from.
Documents: TypeAlias = str | Path | Sequence[str | Path] | Frame


def open_corpus(
    source: Documents,
    *,
    columns: Columns | None = None,
    format: str = "auto",
    markup: Markup | None = None,
    csv: CsvDialect | None = None,
    on_null: OnNull = "stop",
    ids: Ids = "stop",
    real_ids: Sequence[str] = (),
    time_zone: str | None = None,
) -> Corpus:
    """Return a corpus of documents, opened from files or from a frame in memory.

    Files are one file, a folder, a glob, or a list of these; CSV and JSONL may be compressed (.gz, .zst, .bz2). In a
    folder, and where a glob looks, run folders and artefacts are passed over: a run may stand among its documents. What
    is passed over is counted in ``Corpus.reading``, and what cannot be read is an error.

    A frame is an Arrow table, a Polars frame (a lazy one is streamed here, once, into a private file in ``TMPDIR``), a
    pandas frame, a `datasets.Dataset` (what it was filtered to), anything else with the Arrow PyCapsule interface, or a
    dict of columns (Series, arrays, lists).

    Parameters
    ----------
    columns : Columns
        Names of the columns; by default those of `DOCUMENTS` that are required. A marked-up format has all of
        `DOCUMENTS` but the household under their own names.
    format : str
        The name of a format of files (`reticent.engine.sources.formats.FORMATS`); "auto" goes by the files' suffixes,
        which do not tell ``.json`` and marked-up formats.
    markup : Markup
        How a marked-up format (i2b2, MEDDOCAN, BRAT, TAB) is read.
    csv : CsvDialect
        Delimiter, quote and encoding of CSV; by default found out for each file.
    on_null : {"stop", "skip"}
        Whether a document whose text is null is an error, or left out and counted. A null id is an error.
    ids : {"stop", "fold", "exact"}
        What becomes of ids of individuals, or households, that differ only in how they are spelt
        (:func:`reticent.engine.identity.fold_ids`): they stop :meth:`Corpus.scan`; every id is read in its folded form,
        so that they are one; or they are different ids.
    real_ids : sequence of str
        Ids of individuals or households that look like a word for no id (``NULL``, ``nan``, ``-``) and are real; any
        other such word is an error of :meth:`Corpus.scan`.
    time_zone : str, optional
        In which times with a zone are read, in columns beside those of documents: birth dates of records.

    Raises
    ------
    CorpusError
        No file is found, the files are of several formats, the folder is itself a run folder or an artefact, a folder
        cannot be listed or a link leads nowhere; or a frame is one column, or no table of Arrow. A column that is
        missing is an error of the first reading, which names the columns that are there.
    PolicyError
        The format or ``ids`` is none of these, or an option of ``markup`` or ``csv`` is wrong or means nothing for the
        format.
    """
    options = format_options(format)
    check_choice(ids)
    columns, markup, csv = columns or Columns(), markup or Markup(), csv or CsvDialect()
    markup.check_markup(format, options)
    if on_null not in ("stop", "skip"):
        raise PolicyError(f"corpus.on_null: expected stop or skip, got {on_null!r}")
    if is_frame(source):
        if format != "auto":
            raise PolicyError(f"format: means nothing for documents in memory, got {format!r}")
        csv.check_dialect("memory")
        return Corpus(open_frame(source), columns, on_null, ids, real_ids, time_zone=time_zone)
    paths = [source] if isinstance(source, str | Path) else cast("Sequence[str | Path]", source)
    found, chosen = find_format(paths, format)
    csv.check_dialect(chosen.name)
    if chosen.is_marked:
        columns = columns.replace(spans=columns.spans or "spans", mentions=columns.mentions or "mentions")
    reading = Reading(found)
    mapped = tuple(column for column in columns.model_dump().values() if column is not None)
    about_csv = CsvSource(dialect=csv, columns=mapped, ids=(columns.doc_id, columns.individual_id), reading=reading)
    files = Files(found.files, chosen, about_csv, markup)
    if chosen.is_plain:
        owners = partial(owners_of_table, markup.individuals, columns) if markup.individuals is not None else None
        individual = individual_of(markup.individual, cache(owners) if owners is not None else None)
        files = replace(files, roots=found.roots, individual=individual)
        columns = columns.replace(doc_id="doc_id", individual_id="individual_id", text="text")
    return Corpus(files, columns, on_null, ids, real_ids, reading, time_zone)


def owners_of_table(table: str, columns: Columns) -> dict[str, str]:
    """Return a dict from document id (or file name) to individual id, read from a table file; ``columns`` names its
    columns."""
    form, names = format_of(Path(table)), (columns.doc_id, columns.individual_id)
    if form is None:
        raise PolicyError("corpus.individuals: expected a file of Parquet, Arrow, CSV or JSONL")
    batches = read_batches(Path(table), form.name, Request(columns=names, batch_rows=1 << 16))
    return owners_of(batches, *names, where=table)


def as_corpus(documents: Corpus | Documents) -> Corpus:
    """Return ``documents`` unchanged if it is an opened corpus; otherwise open it with `open_corpus`."""
    is_opened = not isinstance(documents, str | Path | list | tuple) and not is_frame(documents)
    return documents if is_opened else open_corpus(documents)  # type: ignore[return-value,arg-type]


def open_configured(settings: CorpusConfig) -> Corpus:
    """Return the corpus that a job's settings describe; documents of individuals who withdrew are still included."""
    return open_corpus(
        settings.source,
        columns=settings.only(Columns),
        format=settings.format,
        markup=settings.only(Markup),
        csv=settings.only(CsvDialect),
        on_null=settings.on_null,
        ids=settings.ids,
        real_ids=settings.real_ids,
        time_zone=settings.time_zone,
    )


def _count_distinct(ids: pa.ChunkedArray) -> int:
    """Return the number of distinct ids."""
    return _rust.count_distinct(ids.combine_chunks())
