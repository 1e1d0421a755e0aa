"""Interfaces of document sources and file formats: where documents are, and how they are read as record batches.

A source names its columns as it has them; `reticent.engine.corpus.Corpus` maps and checks them. The engine reads text
several times, so it reads what is at hand (files, tables in memory) where it stands, fragment by fragment; any other
source, such as a database, is read once, into files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from reticent.engine.sources.config import CsvDialect, Markup
from reticent.engine.sources.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSource:
    """Settings for reading CSV files: dialect, all mapped columns, id columns, and where findings are recorded."""

    dialect: CsvDialect = field(default_factory=CsvDialect)
    columns: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    reading: Reading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to read from a fragment (file or table) of a source: columns, batch size, row groups.

    Parameters
    ----------
    columns : sequence of str
        Distinct names, as the source has them; no other column need be read.
    batch_rows : int
        Rows of a batch, at most.
    row_groups : sequence of int, optional
        Numbers of the row groups to read, for a fragment that has `Fragment.row_groups`; None: all.
    large : sequence of str
        Names of columns to read as ``large_string`` (64-bit offsets), where that saves a copy.
    csv : CsvSource, optional
        Dialects of CSV files; only for CSV.
    markup : Markup, optional
        Options of an annotated format; only for one.
    document : tuple of str, optional
        (document id, individual id), for a file that is one document and does not hold them.
    repaired : Counter
        The number of repairs in files of an annotated format is added to it, by kind of repair.
    """

    columns: Sequence[str]
    batch_rows: int = 1024
    row_groups: Sequence[int] | None = None
    large: Sequence[str] = ()
    csv: CsvSource | None = None
    markup: Markup | None = None
    document: tuple[str, str] | None = None
    repaired: Counter[str] = field(default_factory=Counter)


class Source(Protocol):
    """A set of documents anywhere: one snapshot, with the same rows at every reading and in every process."""

    @property
    def name(self) -> str:
        """Name of the source in error messages; never a credential or a text."""

    def version(self) -> bytes:
        """Return bytes that change whenever a document does, such as digests of files or the id of a snapshot."""

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in share number ``part`` of ``parts`` consecutive shares of all rows as record batches with
        these columns.

        Parameters
        ----------
        part, parts : int
            Part number ``part`` of ``parts``, from 0; may be read at the same time as others, in other processes. The
            parts in order are the rows in order, each once. A part may be empty.

        Raises
        ------
        CorpusError
            It cannot be read, or a column is missing; a source never ends early in silence, and never quotes a value.
        """


def origin_of(source: Source) -> Any:
    """Return the document source inside a wrapper such as `Refreshed`; an unwrapped source is returned itself."""
    return getattr(source, "origin", source)


class RemoteSource(Source, Protocol):
    """A source that may hold resources open, such as a connection or a snapshot."""

    @property
    def passed_over(self) -> int:
        """Number of remote objects that were ignored as they are not documents; known after `version`."""

    def close(self) -> None:
        """Release the snapshot and the connection of a remote source."""


class Fragment(Protocol):
    """A part of a source that is read from its first row to its last: a file, a table."""

    @property
    def place(self) -> Path | str:
        """Name of the fragment in error messages, before the row number."""

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the fragment's rows as record batches with the requested columns; errors as in `Source.batches`."""

    def row_groups(self) -> list[int] | None:
        """Return the number of rows of each independently readable part; None if it can only be read whole."""


class LocalSource(Source, Protocol):
    """A source of local documents, which can be read repeatedly."""

    @property
    def kind(self) -> str:
        """Name of the file format, or "memory"."""

    @property
    def fragments(self) -> Sequence[Fragment]:
        """The source's fragments (files or tables), in the order of the documents."""

    @property
    def has_small_batches(self) -> bool:
        """Whether batches should be merged before processing, as a file may be a single document."""

    def settings(self) -> list[Any]:
        """Return the reading options besides file format and column names, as JSON values for the corpus
        fingerprint."""


def batches_of_part(fragments: Sequence[Fragment], request: Request, part: int, parts: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in share number ``part`` of ``parts`` consecutive shares of a source as record batches. Shares are
    divided at row groups, or between whole fragments where these have none."""
    shares: list[tuple[Fragment, int | None]] = []
    for fragment in fragments:
        groups = None if parts == 1 else fragment.row_groups()
        shares += [(fragment, None)] if groups is None else [(fragment, group) for group in range(len(groups))]
    first, end = part * len(shares) // parts, (part + 1) * len(shares) // parts
    for fragment, group in shares[first:end]:
        yield from fragment.read(request if group is None else replace(request, row_groups=[group]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A file format of documents: its name, suffixes, reader and properties.

    Parameters
    ----------
    name : str
        Value of ``corpus.format`` that selects the format.
    title : str
        Name of the format in messages.
    suffixes : tuple of str
        Suffixes of its files, with the dot, in lower case.
    read : callable
        ``read(file, request)`` yields the columns that are asked for, in order, in batches of any size. It raises
        `CorpusError`, `OSError` or an error of Arrow's, of which none quotes a value. Memory is bounded by a batch.
    row_groups : callable, optional
        ``row_groups(file)`` returns the number of rows of each row group, which can be read alone
            (``request.row_groups``).
    is_marked : bool
        Whether its documents come with spans annotated by humans, in the columns of `DOCUMENTS`.
    is_plain : bool
        Whether a file is the text of one document, and nothing else.
    is_compressible : bool
        Whether its files may be compressed (.gz, .zst, .bz2): it reads through ``compressed.open_bytes``.
    is_named_by_file : bool
        Whether the id of a marked-up document is the name of its file.
    names_individuals : bool
        Whether a document names its individual, so that ``corpus.individual`` is not needed.
    options : frozenset of str
        Names of the options of `Markup` that have an effect on it.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, Request], Iterator[pa.RecordBatch]]
    row_groups: Callable[[Path], list[int]] | None = None
    is_marked: bool = False
    is_plain: bool = False
    is_compressible: bool = False
    is_named_by_file: bool = False
    names_individuals: bool = True
    options: frozenset[str] = frozenset()

    @property
    def must_be_named(self) -> bool:
        """Whether the format must be set explicitly, as its suffixes are too common to identify it."""
        return self.is_marked or self.is_plain
