"""Files of documents as a source: found, of one format, read where they lie."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.batches import changed
from reticent.engine.sources.config import CsvDialect, Markup
from reticent.engine.sources.csv_rows import CsvSource
from reticent.engine.sources.folders import find_files
from reticent.engine.sources.format import Format
from reticent.engine.sources.formats import FORMATS, format_names, format_of, read_batches
from reticent.engine.sources.found import RESULTS, Found
from reticent.engine.sources.source import Request, batches_of_part
from reticent.engine.threads import mapped

__all__ = ["Files", "find_format", "format_options"]


@dataclass(frozen=True, slots=True)
class File:
    """One file, a fragment of `Files`."""

    path: Path
    source: Files

    @property
    def place(self) -> Path:
        return self.path

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        request = replace(request, csv=self.source.csv, markup=self.source.markup)
        return read_batches(self.path, self.source.format.name, request)

    def row_groups(self) -> list[int] | None:
        groups = self.source.format.row_groups
        return None if groups is None else groups(self.path)


def _sha256(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


@dataclass(frozen=True)
class Files:
    """Files of one format, in the order of their names; a `LocalSource`.

    Parameters
    ----------
    paths : at least one
    csv : the known dialects of files of CSV
    markup : how a marked-up format is read
    sha256 : returns the digest of a file; a run knows those of files that have not changed since it read them
    """

    paths: tuple[Path, ...]
    format: Format
    csv: CsvSource
    markup: Markup
    sha256: Callable[[Path], bytes] = field(default=_sha256, compare=False)

    @cached_property
    def fragments(self) -> tuple[File, ...]:
        _ = self._first_states  # before anything is read
        return tuple(File(path, self) for path in self.paths)

    @property
    def name(self) -> str:
        return str(self.paths[0]) if len(self.paths) == 1 else f"{self.paths[0].parent} ({len(self.paths)} files)"

    @property
    def kind(self) -> str:
        return self.format.name

    @property
    def has_small_batches(self) -> bool:
        return self.format.is_marked

    def settings(self) -> list[Any]:
        settings: list[Any] = [self.markup.model_dump()] if self.format.is_marked else []
        return settings + ([self.csv.dialect.model_dump()] if self.csv.dialect != CsvDialect() else [])

    def version(self) -> bytes:
        """SHA-256 of every file, one after the other, as they were when the first of them was read (kept).

        Raises
        ------
        CorpusError
            A file cannot be read, or has changed since.
        """
        return self._digests

    def require_unchanged(self) -> None:
        """Raise `CorpusError` unless all files are as they were when the first of them was read.

        Cost: the status of each file; all are hashed again where one was touched.
        """
        if self._states() != self._first_states and self._hashed() != self._digests:
            raise changed()

    @cached_property
    def _digests(self) -> bytes:
        first, digests = self._first_states, self._hashed()
        if self._states() != first:
            raise changed()
        return digests

    def _hashed(self) -> bytes:
        return b"".join(mapped(self._digest, self.paths))

    def _digest(self, file: Path) -> bytes:
        try:
            return self.sha256(file)
        except OSError as error:
            raise CorpusError(f"{file}: cannot be read ({error.strerror})") from None

    @cached_property
    def _first_states(self) -> list[tuple[int, int, int] | None]:
        return self._states()

    def _states(self) -> list[tuple[int, int, int] | None]:
        return list(map(_state, self.paths))

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        return batches_of_part(self.fragments, Request(columns=columns, batch_rows=batch_rows), part, parts)


def format_options(format: str) -> frozenset[str]:
    """Return the options of `Markup` that mean something for this choice of a format.

    Raises
    ------
    PolicyError
        There is no such format.
    """
    if format not in format_names():
        raise PolicyError(f"format: expected one of {', '.join(format_names())}, got {format!r}")
    return FORMATS[format].options if format in FORMATS else frozenset()


def find_format(sources: Sequence[str | Path], format: str) -> tuple[Found, Format]:
    """Find the files of these sources (files, folders and globs), and their one format ("auto": by suffix).

    Raises
    ------
    CorpusError
        As `find_files`; or there is no file, or there are files of several formats or of none that a suffix tells.
    """
    chosen = FORMATS.get(format)

    def is_document(file: Path) -> bool:
        if chosen is not None and chosen.is_marked:
            return file.suffix.lower() in chosen.suffixes
        return format_of(file) is not None

    found = find_files(sources, is_document)
    where = ", ".join(map(str, sources))
    if not found.files:
        num_results = found.passed_over[RESULTS]
        but = f", but {num_results} run folder(s) or artefact(s), which hold no documents" if num_results else ""
        raise CorpusError(f"{where}: no file found ({_kinds(chosen)}){but or _other_format(sources)}")
    if chosen is not None:
        return found, chosen
    formats = {format_of(file) for file in found.files}
    first = formats.pop()
    if first is not None and not formats:
        return found, first
    shown = ", ".join(sorted({file.suffix or "no suffix" for file in found.files}))
    if formats:
        raise CorpusError(f"{where}: files of one format expected, found {shown}; choose with a glob, such as *.csv")
    raise CorpusError(
        f"{where}: {shown} does not tell the format; set corpus.format (--format) to {', '.join(FORMATS)}"
    )


def _kinds(chosen: Format | None) -> str:
    """The files that are looked for, in words."""
    if chosen is not None and chosen.is_marked:
        return " or ".join(chosen.suffixes)
    titles = [row.title for row in FORMATS.values() if not row.is_marked]
    return f"{', '.join(titles[:-1])} or {titles[-1]}"


def _other_format(sources: Sequence[str | Path]) -> str:
    """Advice on files of a format that must be named, where there are some."""
    for source in map(Path, sources):
        found = {file.suffix.lower() for file in ([source] if source.is_file() else source.glob("*"))}
        names = [row.name for row in FORMATS.values() if row.is_marked and found.intersection(row.suffixes)]
        if names:
            return f"; if its files are of {', '.join(names)}, name the format (--format, corpus.format)"
    return ""


def _state(file: Path) -> tuple[int, int, int] | None:
    """Size and times of a file: another content has others. None where it cannot be looked at, which reading says."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns
