"""A format of files: one row of the table in `reticent.engine.sources.formats`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from reticent.engine.sources.source import Request

__all__ = ["Format"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of files of documents: all that is known of it.

    Parameters
    ----------
    name : str
        As in ``corpus.format`` and ``--format``.
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
        Its documents bring spans that humans marked, under the names of `DOCUMENTS`. Its suffixes are too common to
        tell it: it must be named.
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
    is_compressible: bool = False
    names_individuals: bool = True
    options: frozenset[str] = frozenset()
