"""What a source of documents and a format of files are: where documents are, and how they are read as record batches.

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
    """Settings of CSV files beside a dialect: all mapped columns, the columns of ids, and the record of findings."""

    dialect: CsvDialect = field(default_factory=CsvDialect)
    columns: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    reading: Reading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Request to a fragment of a source.

    Parameters
    ----------
    columns : sequence of str
        Distinct names, as the source has them; no other column need be read.
    batch_rows : int
        Rows of a batch, at most.
    row_groups : sequence of int, optional
        Those to read of a fragment that has `Fragment.row_groups`; None: all.
    large : sequence of str
        Columns that are wanted as large strings, where that spares a copy.
    csv, markup : how files of CSV, and files of a marked-up format, are read
    document : tuple of str, optional
        Ids of document and individual, of a file that is one document and does not hold them.
    repaired : Counter
        Counts the repairs in marked-up files, by kind.
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
    """Documents, wherever they are: one snapshot, the same rows at every reading and in every process."""

    @property
    def name(self) -> str:
        """Its name in errors; never a credential or a text."""

    def version(self) -> bytes:
        """Return bytes that change whenever a row does: digests of files, the id of a snapshot. The fingerprint of a
        corpus is made from them."""

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns, and read no others where the source can choose.

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
    """Return the source that one which adds to another stands before; else itself."""
    return getattr(source, "origin", source)


class RemoteSource(Source, Protocol):
    """A source that may hold something open."""

    @property
    def passed_over(self) -> int:
        """How many objects beside the documents were not read; known once it has a version."""

    def close(self) -> None:
        """Let go of it: a snapshot, a connection."""


class Fragment(Protocol):
    """A stretch of a source that is read from its first row to its last: a file, a table."""

    @property
    def place(self) -> Path | str:
        """Its name in errors, before the number of a row."""

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the rows; raises as `Source.batches` does."""

    def row_groups(self) -> list[int] | None:
        """Return the rows of each stretch of it that can be read by itself; None where it is read as a whole."""


class LocalSource(Source, Protocol):
    """A source at hand, which is read as often as is asked."""

    @property
    def kind(self) -> str:
        """The name of a format, or "memory"."""

    @property
    def fragments(self) -> Sequence[Fragment]:
        """In the order of the documents."""

    @property
    def has_small_batches(self) -> bool:
        """Whether batches should be joined before work is done on them: a file may be one document."""

    def settings(self) -> list[Any]:
        """Return how it is read beside its kind and columns, as JSON: a part of the fingerprint."""


def batches_of_part(fragments: Sequence[Fragment], request: Request, part: int, parts: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of some fragments: neighbouring row groups, and whole fragments that have none."""
    shares: list[tuple[Fragment, int | None]] = []
    for fragment in fragments:
        groups = None if parts == 1 else fragment.row_groups()
        shares += [(fragment, None)] if groups is None else [(fragment, group) for group in range(len(groups))]
    first, end = part * len(shares) // parts, (part + 1) * len(shares) // parts
    for fragment, group in shares[first:end]:
        yield from fragment.read(request if group is None else replace(request, row_groups=[group]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of files of documents: all that is known of it.

    Parameters
    ----------
    name : str
        As in ``corpus.format``.
    title : str
        As in messages.
    suffixes : tuple of str
        Of its files, with the dot, in small letters.
    read : callable
        ``read(file, request)`` yields the columns that are asked for, in order, in batches of any size. It raises
        `CorpusError`, `OSError` or an error of Arrow's, of which none quotes a value. Memory is bounded by a batch.
    row_groups : callable, optional
        The rows of each stretch of a file that can be read by itself (``request.row_groups``).
    is_marked : bool
        Its documents bring spans that humans marked, under the names of `DOCUMENTS`.
    is_plain : bool
        A file is the text of one document, and nothing else.
    is_compressible : bool
        Its files may be compressed (.gz, .zst, .bz2): it reads through ``compressed.open_bytes``.
    names_individuals : bool
        Whether a document says whose it is, without ``corpus.individual``.
    options : frozenset of str
        Options of `Markup` that mean something for it.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, Request], Iterator[pa.RecordBatch]]
    row_groups: Callable[[Path], list[int]] | None = None
    is_marked: bool = False
    is_plain: bool = False
    is_compressible: bool = False
    names_individuals: bool = True
    options: frozenset[str] = frozenset()

    @property
    def must_be_named(self) -> bool:
        """Whether its suffixes are too common to tell it."""
        return self.is_marked or self.is_plain
