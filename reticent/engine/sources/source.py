"""Source: where documents are, and how they are read as record batches.

A source names its columns as it has them; `reticent.engine.corpus.Corpus` maps and checks them. The engine reads text
several times, so it reads what is at hand (files, tables in memory) where it stands, fragment by fragment; any other
source, such as a database, is read once, into files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from reticent.engine.sources.config import Markup
    from reticent.engine.sources.csv_rows import CsvSource

__all__ = ["Fragment", "LocalSource", "Request", "Source", "batches_of_part"]


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
    repaired : Counter
        Counts the repairs in marked-up files, by kind.
    """

    columns: Sequence[str]
    batch_rows: int = 1024
    row_groups: Sequence[int] | None = None
    large: Sequence[str] = ()
    csv: CsvSource | None = None
    markup: Markup | None = None
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
