"""Corpus: documents of individuals, whatever their format, as a stream of record batches.

Batches have the columns of `reticent.engine.schema.DOCUMENTS`, in the order of the sorted file
names and of the rows in them. Memory is bounded by the batch. Nothing is repaired: a row that cannot be used is an
error that names file, row (1 is the first) and column, and never the text or the id.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.identity import FOLDED, Ids, check_choice, find_spellings, fold_ids, refusal
from reticent.engine.schema import DOCUMENTS
from reticent.engine.sources.batches import as_scanned, changed, kept_rows, memory_from, merged, reading_pool, stretches
from reticent.engine.sources.columns import REQUIRED, SOURCE_COLUMN, NullError, canonical
from reticent.engine.sources.compressed import document_suffix
from reticent.engine.sources.csv_dialect import CsvDialect
from reticent.engine.sources.csv_rows import CsvSource
from reticent.engine.sources.folders import RESULTS, find_files
from reticent.engine.sources.formats import FORMATS, SUFFIXES, read_batches, row_groups
from reticent.engine.sources.nulls import count_nulls
from reticent.engine.sources.reading import Reading
from reticent.engine.sources.standoff import MARKED_FORMATS, Markup, read_marked
from reticent.engine.threads import in_threads, mapped

__all__ = ["SOURCE_COLUMN", "Columns", "Corpus", "Format", "open_corpus"]

Format = Literal["auto", "parquet", "arrow", "csv", "jsonl", "i2b2-2006", "i2b2-2014", "meddocan", "brat", "tab"]
OnNull = Literal["stop", "skip"]


#: Documents in a batch of `Corpus.for_each_batch`: about half a mebibyte of text.
BATCH_ROWS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of the source holds what; None for a column that is not there."""

    doc_id: str = "doc_id"
    individual_id: str = "individual_id"
    text: str = "text"
    household_id: str | None = None
    label: str | None = None
    spans: str | None = None
    mentions: str | None = None


@dataclass(slots=True)
class Corpus:
    """An opened set of documents; see :func:`open_corpus`."""

    files: tuple[Path, ...]
    format: str
    columns: Columns = field(default_factory=Columns)
    markup: Markup = field(default_factory=Markup)
    csv: CsvDialect = field(default_factory=CsvDialect)
    #: What is done about documents whose text is null.
    on_null: OnNull = "stop"
    ids: Ids = "stop"
    #: What was passed over, how CSV was read, how many documents were left out; whole once the corpus was scanned.
    reading: Reading = field(default_factory=Reading)
    #: What was mended in marked-up files and ids, and how often; known once the corpus was scanned.
    mended: Counter[str] = field(default_factory=Counter)
    _ids: pa.Table | None = None
    #: Rows of each file, known once they have been scanned; rows that are left out count.
    _num_rows: list[int] = field(default_factory=list)
    #: Which of those rows are documents of this corpus (bool); None: all.
    _kept: np.ndarray | None = None
    _fingerprint: str | None = None
    #: What is said of all nulls, once one was found.
    _nulls: str | None = None

    def batches(self, *, columns: Sequence[str] = REQUIRED, batch_rows: int = 1024) -> Iterator[pa.RecordBatch]:
        """Yield the documents in order, with these columns of `DOCUMENTS` (a column that is not mapped is skipped).

        Raises
        ------
        CorpusError
            A file cannot be read, a column is missing or of a wrong type, a value is null, an id is blank, a text is
            not valid UTF-8, a span does not fit its text.
        """
        self._skip_nulls()
        streams: Iterator[Iterator[pa.RecordBatch]] = (self._read(file, columns, batch_rows) for file in self.files)
        if self._kept is not None:
            kept = np.split(self._kept, np.cumsum(self._num_rows)[:-1])
            scanned = map(as_scanned, streams, self._num_rows)
            streams = map(kept_rows, scanned, kept)
        batches = itertools.chain.from_iterable(streams)
        yield from merged(batches, batch_rows) if self.format in MARKED_FORMATS else batches

    def without(self, rows: np.ndarray | Sequence[int]) -> Corpus:
        """Return this corpus less the documents of these numbers, in any order; the rest is numbered anew from 0.

        No file is changed, and what is left out is still read and checked. Another choice has another fingerprint.

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

    def _read(
        self,
        file: Path,
        columns: Sequence[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        row: int = 0,
        mended: Counter[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        mapped = {name: self._mapped(name) for name in columns}
        wanted = {name: column for name, column in mapped.items() if column is not None}
        large = [wanted["text"]] if "text" in wanted else []
        for batch in self._raw(file, list(dict.fromkeys(wanted.values())), batch_rows, row_groups, mended, large):
            try:
                checked = canonical(
                    batch, wanted, file, row, fold=self.ids == "fold", null_texts=self.on_null == "skip"
                )
            except NullError as error:
                raise CorpusError(f"{error}{self._count_nulls()}") from None
            yield checked
            row += batch.num_rows

    def _count_nulls(self) -> str:
        if self._nulls is None:
            columns = list(dict.fromkeys(getattr(self.columns, name) for name in REQUIRED))
            batches = ((file, self._raw(file, columns, 1024)) for file in self.files)
            self._nulls = count_nulls(batches, columns, self.columns.text)
        return self._nulls

    def _mapped(self, name: str) -> str | None:
        is_of_source = name.startswith(SOURCE_COLUMN)
        return name.removeprefix(SOURCE_COLUMN) if is_of_source else getattr(self.columns, name)

    def _raw(
        self,
        file: Path,
        columns: list[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        mended: Counter[str] | None = None,
        large: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        if self.format in MARKED_FORMATS:
            counter = Counter() if mended is None else mended
            return read_marked(file, self.format, columns, batch_rows, self.markup, counter)
        return read_batches(file, self.format, columns, batch_rows, row_groups, large, self._csv_source())

    def _csv_source(self) -> CsvSource:
        mapped = tuple(column for column in asdict(self.columns).values() if column is not None)
        ids = (self.columns.doc_id, self.columns.individual_id)
        return CsvSource(dialect=self.csv, columns=mapped, ids=ids, reading=self.reading)

    def for_each_batch(
        self,
        work: Callable[[int, pa.RecordBatch], None],
        *,
        columns: Sequence[str] = REQUIRED,
        num_threads: int = 1,
        frugal: bool = False,
        wanted: np.ndarray | None = None,
    ) -> None:
        """Call ``work(number of the first document, batch)`` for all documents, from many threads and in no order.

        Threads read different stretches of the corpus (row groups of Parquet, else files); where there are fewer of
        them than threads, they take turns at one. Memory is bounded by a batch and a page of Parquet a thread; with
        ``frugal`` what pyarrow frees goes back to the system at once. ``wanted`` (bool, shape (num_documents,)): row
        groups and files without a wanted document are not read.

        Raises
        ------
        CorpusError
            As :meth:`batches`, or the files hold other numbers of rows than when they were scanned.
        """
        self.scan()
        streams, document, first = [], 0, 0
        for file, num_rows in zip(self.files, self._num_rows, strict=True):
            groups_of_file = row_groups(file) if self.format == "parquet" else [num_rows]
            if sum(groups_of_file) != num_rows:
                raise changed()
            parts = stretches(groups_of_file, BATCH_ROWS) if self.format == "parquet" else [(None, 0, num_rows)]
            for groups, row, length in parts:
                kept = None if self._kept is None else self._kept[document + row : document + row + length]
                num_kept = length if kept is None else int(np.count_nonzero(kept))
                if num_kept and (wanted is None or wanted[first : first + num_kept].any()):
                    batches = as_scanned(self._read(file, columns, BATCH_ROWS, groups, row), length)
                    streams.append((first, batches if kept is None else kept_rows(batches, kept)))
                first += num_kept
            document += num_rows

        with reading_pool(frugal) as pool:

            def work_and_release(first: int, batch: pa.RecordBatch) -> None:
                work(first, batch)
                del batch
                if frugal:
                    pool.release_unused()

            in_threads(streams, work_and_release, num_threads)

    def scan(self) -> pa.Table:
        """Return doc_id, individual_id and household_id of every document, checked over the whole corpus (kept).

        Raises
        ------
        CorpusError
            Besides what :meth:`batches` raises: no document at all, one individual only, a doc_id that stands twice,
            and with ``ids="stop"`` ids of individuals or households that fold to one another.
        """
        if self._ids is None:
            batches: list[pa.RecordBatch] = []
            num_rows: list[int] = []
            kept: list[np.ndarray] = []
            mended: Counter[str] = Counter()
            skips = self.on_null == "skip"
            columns, batch_rows = (("doc_id", *FOLDED, "text"), 1024) if skips else (("doc_id", *FOLDED), 1 << 16)
            as_spelt = replace(self, ids="exact")
            with memory_from(pa.system_memory_pool()):  # which gives back what reading took
                for file in self.files:
                    num_rows.append(0)
                    for batch in as_spelt._read(file, columns, batch_rows, mended=mended):
                        num_rows[-1] += batch.num_rows
                        if skips:
                            kept.append(batch.column("text").is_valid().to_numpy(zero_copy_only=False))
                            batch = batch.drop_columns(["text"])
                        batches.append(batch)
            if not batches or not any(batch.num_rows for batch in batches):
                raise CorpusError(f"{self._where()}: no documents")
            table = pa.Table.from_batches(batches)
            self._check_duplicates(table.column("doc_id"), num_rows)
            table = self._one_id_each(table, num_rows, mended)
            table = self._without_nulls(table, np.concatenate(kept)) if skips else table
            self._check_individuals(table)
            self._ids, self._num_rows, self.mended = table, num_rows, mended
            self.reading.scanned()
        return self._ids

    def _without_nulls(self, ids: pa.Table, kept: np.ndarray) -> pa.Table:
        if kept.all():
            return ids
        if not kept.any():
            raise CorpusError(f"{self._where()}: no documents: the text of all {len(kept):,} is null")
        self._kept, self.reading.num_skipped = kept, int(np.count_nonzero(~kept))
        return ids.filter(pa.array(kept))

    def _skip_nulls(self) -> None:
        """Make sure that it is known which documents are left out."""
        if self.on_null == "skip":
            self.scan()

    def check(self, *, num_threads: int = 1, frugal: bool = False) -> None:
        """Read every mapped column of every document, so that a bad one is found before anything is made of the rest.

        Raises what :meth:`batches` and :meth:`scan` raise, of the first document that is bad. Cost: one pass over the
        text. ``num_threads`` and ``frugal`` are as in :meth:`for_each_batch`.
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
        return self.scan().num_rows

    @property
    def num_individuals(self) -> int:
        return _num_distinct(self.scan().column("individual_id"))

    def fingerprint(self) -> str:
        """SHA-256 over the files' contents, how they are read and which documents are left out (kept)."""
        if self._fingerprint is None:
            self._skip_nulls()
            how = [self.format, asdict(self.columns), *([asdict(self.markup)] if self.format in MARKED_FORMATS else [])]
            how += [asdict(self.csv)] if self.csv != CsvDialect() else []
            how += ["fold"] if self.ids == "fold" else []  # the others read the same
            digest = hashlib.sha256(json.dumps(how).encode())
            for of_file in mapped(_digest, self.files):
                digest.update(of_file)
            if self._kept is not None:
                digest.update(b"without" + np.packbits(~self._kept).tobytes())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def _where(self) -> str:
        return str(self.files[0]) if len(self.files) == 1 else f"{self.files[0].parent} ({len(self.files)} files)"

    def _check_individuals(self, ids: pa.Table) -> None:
        num_individuals = _num_distinct(ids.column("individual_id"))
        if num_individuals < 2:
            left = " once documents are left out" if self._ids is not None else ""
            found = "one individual only" if num_individuals else "no individual"
            raise CorpusError(
                f"{self._where()}: column {self.columns.individual_id} names {found}{left}; "
                "support among individuals needs at least two"
            )

    def _one_id_each(self, ids: pa.Table, num_rows: Sequence[int], mended: Counter[str]) -> pa.Table:
        """The ids as ``self.ids`` says; what is joined is counted in ``mended``."""
        for name in FOLDED:
            if self.ids == "exact" or name not in ids.column_names:
                continue
            found = find_spellings(ids.column(name))
            if self.ids == "stop" and len(found):
                raise CorpusError(refusal(str(self._mapped(name)), found, lambda row: self._place(row, num_rows)))
            if self.ids == "fold":
                folded = pa.chunked_array(map(fold_ids, ids.column(name).chunks), pa.string())
                ids = ids.set_column(ids.column_names.index(name), ids.field(name), folded)
                if len(found):
                    mended[f"spellings of {name} joined with others"] = found.num_joined
        return ids

    def _check_duplicates(self, doc_ids: pa.ChunkedArray, num_rows: Sequence[int]) -> None:
        from reticent import _rust

        names = doc_ids.combine_chunks()
        if _rust.count_distinct(names) == len(names):
            return
        codes = _rust.sorted_codes(names)[1]
        _, first, counts = np.unique(codes, return_index=True, return_counts=True)
        code = codes[first[counts > 1].min()]
        rows = np.flatnonzero(codes == code)[:2]
        places = " and ".join(self._place(int(row), num_rows) for row in rows)
        raise CorpusError(f"column {self.columns.doc_id}: the same document id stands at {places}")

    def place(self, document: int) -> str:
        """Return file and row of the document of this number, from 0."""
        self.scan()
        row = document if self._kept is None else int(np.flatnonzero(self._kept)[document])
        return self._place(row, self._num_rows)

    def _place(self, row: int, num_rows: Sequence[int]) -> str:
        """File and row of a document number, of files of so many rows."""
        for file, length in zip(self.files, num_rows, strict=True):
            if row < length:
                return f"{file} row {row + 1}"
            row -= length
        raise AssertionError("row beyond the corpus")


def open_corpus(
    source: str | Path | Sequence[str | Path],
    *,
    columns: Columns | None = None,
    format: Format = "auto",
    markup: Markup | None = None,
    csv: CsvDialect | None = None,
    on_null: OnNull = "stop",
    ids: Ids = "stop",
) -> Corpus:
    """Open documents: one file, a folder, a glob, or a list; CSV and JSONL may be compressed (.gz, .zst, .bz2).

    In a folder, and where a glob looks, run folders and artefacts are passed over: a run may stand among its documents.
    What is passed over is counted in ``Corpus.reading``, and what cannot be read is an error.

    Parameters
    ----------
    columns : Columns
        Names of the columns; by default those of `DOCUMENTS` that are required. A marked-up format has all of
        `DOCUMENTS` but the household under their own names.
    format : {"auto", "parquet", "arrow", "csv", "jsonl", "i2b2-2006", "i2b2-2014", "meddocan", "brat", "tab"}
        "auto" goes by the files' suffixes; ``.json`` and marked-up formats are not guessed.
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

    Raises
    ------
    CorpusError
        No file is found, the files are of several formats, the folder is itself a run folder or an artefact, a folder
        cannot be listed or a link leads nowhere.
    PolicyError
        The format or ``ids`` is none of these, or an option of ``markup`` is wrong or means nothing for the format.
    """
    known = (*FORMATS, *MARKED_FORMATS)
    if format != "auto" and format not in known:
        raise PolicyError(f"format: expected one of auto, {', '.join(known)}, got {format!r}")
    check_choice(ids)
    columns, markup = columns or Columns(), markup or Markup()
    markup.check(format)
    suffixes = MARKED_FORMATS.get(format, tuple(SUFFIXES))
    if format in MARKED_FORMATS:
        columns = replace(columns, spans=columns.spans or "spans", mentions=columns.mentions or "mentions")
    if on_null not in ("stop", "skip"):
        raise PolicyError(f"corpus.on_null: expected stop or skip, got {on_null!r}")
    suffix_of = (lambda file: file.suffix.lower()) if format in MARKED_FORMATS else document_suffix
    sources = [source] if isinstance(source, str | Path) else list(source)
    found = find_files(sources, lambda file: suffix_of(file) in suffixes)
    files = found.files
    if not files:
        num_results = found.passed_over[RESULTS]
        but = f", but {num_results} run folder(s) or artefact(s), which hold no documents" if num_results else ""
        kinds = "Parquet, Arrow, CSV or JSONL" if suffixes == tuple(SUFFIXES) else " or ".join(suffixes)
        raise CorpusError(f"{', '.join(map(str, sources))}: no file found ({kinds}){but or _other_format(sources)}")
    formats = {SUFFIXES.get(document_suffix(file), "unknown") for file in files} if format == "auto" else {format}
    if len(formats) > 1 or "unknown" in formats:
        where, shown = ", ".join(map(str, sources)), ", ".join(sorted({file.suffix or "no suffix" for file in files}))
        if formats == {"unknown"}:
            raise CorpusError(
                f"{where}: {shown} does not tell the format; set corpus.format (--format) to {', '.join(known)}"
            )
        raise CorpusError(f"{where}: files of one format expected, found {shown}; choose with a glob, such as *.csv")
    dialect, chosen = csv or CsvDialect(), formats.pop()
    dialect.check(chosen)
    return Corpus(files, chosen, columns, markup, dialect, on_null, ids, Reading(found))


def _num_distinct(ids: pa.ChunkedArray) -> int:
    from reticent import _rust

    return _rust.count_distinct(ids.combine_chunks())


def _digest(file: Path) -> bytes:
    """SHA-256 of a file."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:
        raise CorpusError(f"{file}: cannot be read ({error.strerror})") from None


def _other_format(sources: Sequence[str | Path]) -> str:
    """What to do about files of a format that must be named, where there are some."""
    for source in map(Path, sources):
        found = {file.suffix.lower() for file in ([source] if source.is_file() else source.glob("*"))}
        names = [name for name, suffixes in MARKED_FORMATS.items() if found.intersection(suffixes)]
        if names:
            return f"; if its files are of {', '.join(names)}, name the format (--format, corpus.format)"
    return ""
