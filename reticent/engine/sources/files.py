"""Document files as a source: found in folders and by globs, all of one format, and read in place.

No file is skipped in silence. One that is no document is counted under its reason. A folder that cannot be listed, or a
broken link in the place of a document, is an error that names it.
"""

from __future__ import annotations

import errno
import functools
import glob
import hashlib
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from reticent.core.artifact import JOB, MANIFEST, holds_results
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.batches import changed_error
from reticent.engine.sources.config import CsvDialect, Markup
from reticent.engine.sources.csv import CsvSource
from reticent.engine.sources.formats import FORMATS, format_names, format_of, read_batches
from reticent.engine.sources.protocol import Format, Request, batches_of_part
from reticent.engine.sources.reading import (
    FOLDERS,
    HIDDEN,
    LINKS,
    NOTHING,
    OTHERS,
    RESULTS,
    SPECIAL,
    UNDERSCORES,
    Found,
)
from reticent.engine.threads import mapped

#: File that the folder of a table of a lake has -> what it is, and how it is read. Which of its files count, and which
#: of their rows, is said there alone: those of people who were deleted lie beside the others.
TABLES: Final = {
    "_delta_log/*": ("a Delta table", "read {}"),
    "metadata/*.metadata.json*": ("an Iceberg table", "read iceberg://CATALOGUE/NAMESPACE.TABLE"),
    ".hoodie/*": ("a Hudi table", "write its rows into files of their own"),
    "_spark_metadata/*": ("the output of a stream of Spark", "write its rows into files of their own"),
}
_MARKS: Final = frozenset(mark.partition("/")[0] for mark in TABLES)


def table_error(folder: Path | str, mark: str) -> CorpusError:
    """Return the error that document files belong to a data-lake table (Delta, Iceberg …); ``mark``, a key of `TABLES`,
    is the file pattern that identifies its kind."""
    what, instead = TABLES[mark]
    address = f"delta+{folder}" if "://" in str(folder) else f"delta://{folder}"
    return CorpusError(f"{folder}: {what}, whose files hold rows that were deleted too; {instead.format(address)}")


def _refuse_tables(found: Found) -> None:
    """Raise `CorpusError` if a file that was found, or the target of its link, is inside the folder of a data-lake
    table."""

    @functools.cache
    def real(folder: str) -> str:
        """Return a folder's path with all symbolic links resolved, as `os.path.realpath` does, but with the results for
        parent folders cached."""
        above, name = os.path.split(folder)
        if name in ("", os.curdir, os.pardir) or os.path.islink(folder):
            return os.path.realpath(folder)
        return os.path.join(real(above), name)

    direct = {os.path.dirname(os.path.realpath(file)) for file in found.links}
    for folder in found.folders:
        direct |= {os.path.abspath(folder), real(folder)}
    folders = set[str]()
    for folder in direct:
        while folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    for folder in sorted(folders):
        for mark in TABLES:
            if next(Path(folder).glob(mark), None) is not None:
                raise table_error(folder, mark)


def find_files(sources: Sequence[str | Path], is_document: Callable[[Path], bool]) -> Found:
    """Return the document files among these files, folders and globs, with counts of the files passed over.

    In folders, hidden entries, names that begin with ``_``, linked folders, run folders and artefacts, and what
    ``is_document`` does not hold for are passed over; where a glob looks, such names that it does not write itself, run
    folders and artefacts are.

    Raises
    ------
    CorpusError
        A folder cannot be listed, a file cannot be looked at, a link to a document leads nowhere, a source is neither
        file nor folder, is empty or holds results of ours only; or a file belongs to a table of a lake.
    """
    if "" in sources:  # what a shell makes of a variable that is not set
        raise CorpusError("a source is empty; name a file, a folder (. is the current one) or a glob")
    found, seen = Found(), set[Path]()
    for source in map(Path, sources):
        is_folder = os.path.isdir(source)
        for path in _find_in_source(source, found, is_document, seen):
            if is_folder:
                found.roots.setdefault(path, source)
                continue
            found.roots.setdefault(path, Path(*_parts_before_glob(source)[: len(path.parts) - 1]))
            found.folders.add(os.path.dirname(path))
            if os.path.islink(path):
                found.links.append(path)
    # The order of the documents depends neither on the spelling of the sources nor on the working folder.
    found.files = tuple(sorted(found.roots, key=os.path.abspath))
    _refuse_tables(found)
    if seen:
        found.passed_over[RESULTS] = len(seen)
    return found


def _find_in_source(
    source: Path, found: Found, is_document: Callable[[Path], bool], results: set[Path]
) -> Iterator[Path]:
    """Yield the document files of a source (file, folder or glob). Folders with results of this program are skipped and
    added to ``results``; other skipped files are counted in ``found``."""
    mode = _mode(source)
    if mode is not None and stat.S_ISDIR(mode):
        if holds_results(source):
            raise CorpusError(f"{source}: a run folder or an artefact, which holds results and no documents")
        _refuse_whole_machine(source, source)
        yield from _find_in_folder(source, found, is_document, results)
    elif mode is not None:
        if not stat.S_ISREG(mode):
            raise CorpusError(f"{source}: neither a file nor a folder; documents are read more than once, from files")
        yield source
    elif os.path.islink(source):
        raise CorpusError(f"{source}: a link to nothing; repair the link")
    else:
        yield from _find_by_glob(source, found, results)


def _find_in_folder(
    source: Path, found: Found, is_document: Callable[[Path], bool], results: set[Path]
) -> Iterator[Path]:
    """Yield the document files in a folder and its subfolders. Folders with results of this program are skipped and
    added to ``results``; other skipped entries are counted in ``found``."""
    folders = [(str(source), str(source))]
    while folders:
        folder, nearest = folders.pop()
        entries = _list_folder(folder)
        names = {entry.name for entry in entries}
        if folder != str(source) and not names.isdisjoint((MANIFEST, JOB)) and holds_results(Path(folder)):
            results.add(Path(folder))
            continue
        if not names.isdisjoint(_MARKS):
            nearest = folder
        for entry in entries:
            if entry.name.startswith("."):
                found.passed_over[HIDDEN] += 1
                continue
            if entry.name.startswith("_"):
                found.passed_over[UNDERSCORES] += 1
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append((entry.path, nearest))
                continue
            path = Path(entry.path)
            if (mode := stat.S_IFREG if entry.is_file(follow_symlinks=False) else _mode(path)) is None:
                if is_document(path):
                    raise CorpusError(f"{path}: a link to nothing; repair the link or take it away")
                found.passed_over[NOTHING] += 1
            elif stat.S_ISDIR(mode):
                found.passed_over[LINKS] += 1
            elif not stat.S_ISREG(mode):
                found.passed_over[SPECIAL] += 1
            elif is_document(path):
                found.folders.add(nearest)
                if entry.is_symlink():
                    found.links.append(path)
                yield path
            else:
                found.passed_over[OTHERS] += 1
                if re.fullmatch(r"\.[A-Za-z0-9]{1,5}", path.suffix):
                    found.other_suffixes.add(path.suffix.lower())


def _parts_before_glob(source: Path) -> list[str]:
    """Return the parts of a path that precede the first part with a glob character."""
    return list(itertools.takewhile(lambda part: not re.search(r"[*?[]", part), source.parts))


def _find_by_glob(source: Path, found: Found, results: set[Path]) -> Iterator[Path]:
    """Yield the files that a glob matches. Folders with results of this program are skipped and added to ``results``;
    other skipped entries are counted in ``found``."""
    parts = source.parts
    named = _parts_before_glob(source)
    if "**" in parts or len(parts) - len(named) > 3:
        _refuse_whole_machine(Path(*named), source)
    for length in range(max(len(named), 1), len(parts)):  # `glob` reports no error for a folder that it cannot list
        for folder in glob.glob(os.path.join(*parts[:length], ""), recursive=True):
            _list_folder(folder)
    holds = functools.cache(holds_results)
    writes_them = any(part.startswith("_") for part in parts[len(named) :])
    for path in map(Path, glob.glob(str(source), recursive=True)):
        within = {folder for folder in path.parents if len(folder.parts) > len(named) and holds(folder)}
        results |= within
        mode = _mode(path)
        if within:
            continue
        if not writes_them and any(part.startswith("_") for part in path.parts[len(named) :]):
            found.passed_over[UNDERSCORES] += 1
            continue
        if mode is None:
            raise CorpusError(f"{path}: a link to nothing; repair the link or take it away")
        if stat.S_ISREG(mode):
            yield path
        elif stat.S_ISDIR(mode):
            if "**" not in parts:  # which goes into it
                found.passed_over[FOLDERS] += 1
        else:
            found.passed_over[SPECIAL] += 1


def _refuse_whole_machine(folder: Path, source: Path) -> None:
    """Raise `CorpusError` if a search would cover the root folder, or the home folders of all users."""
    real, home = Path(os.path.realpath(folder)), Path.home()
    if real == Path("/") or real in home.parents or real.parts[1:2] in (("proc",), ("sys",)):
        raise CorpusError(f"{source}: holds the whole machine; name the folder of the documents")


def _list_folder(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; `CorpusError` if it cannot be listed."""
    try:
        os.stat(f"{folder}/.")  # a folder may be listed whose files may not be looked at
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise CorpusError(
            f"{Path(folder)}: cannot be listed ({error.strerror}); its documents would be missing"
        ) from None


def _mode(path: Path) -> int | None:
    """Return the mode bits (type and permissions) of a path, links followed; None if no file exists."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if os.path.islink(path) and error.errno == errno.ELOOP:
            return None
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None


@dataclass(frozen=True, slots=True)
class File:
    """One document file, a fragment of `Files`."""

    path: Path
    source: Files

    @property
    def place(self) -> Path:
        """Path of the file, for error messages."""
        return self.path

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the requested columns of the file as record batches."""
        document = self.source.ids_of(self.path) if self.source.format.is_plain else None
        request = replace(request, csv=self.source.csv, markup=self.source.markup, document=document)
        return read_batches(self.path, self.source.format.name, request)

    def row_groups(self) -> list[int] | None:
        """Return the number of rows of each row group; None for a format without row groups."""
        groups = self.source.format.row_groups
        return None if groups is None else groups(self.path)


def sha256_of(file: Path) -> bytes:
    """Return the SHA-256 of a file's content, as bytes."""
    with file.open("rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").digest()


@dataclass(frozen=True)
class Files:
    """Document files of one format, ordered by name; a `LocalSource`.

    Parameters
    ----------
    paths : tuple of Path, at least one
    format : Format of all files
    csv : CsvSource, the dialects of CSV files that are known
    markup : Markup, the options of an annotated format
    roots : file -> folder, where a file is one document: the file's path relative to the folder is the document id
    individual : callable, for such files: takes the file's path and its path relative to the folder, returns the
        individual id
    sha256 : callable, returns the SHA-256 of a file (bytes); a run passes one that caches those of unchanged files
    """

    paths: tuple[Path, ...]
    format: Format
    csv: CsvSource
    markup: Markup
    roots: Mapping[Path, Path] = field(default_factory=dict, compare=False)
    individual: Callable[[Path, Path], str] = field(default=lambda file, below: "", compare=False)
    sha256: Callable[[Path], bytes] = field(default=sha256_of, compare=False)

    def ids_of(self, file: Path) -> tuple[str, str]:
        """Return document id and individual id of a text file, which is one document."""
        below = file.relative_to(self.roots[file])
        try:
            str(below).encode()
        except UnicodeEncodeError:
            raise CorpusError(f"{file}: its path becomes ids and is not valid UTF-8; rename it") from None
        return below.with_suffix("").as_posix(), self.individual(file, below)

    @cached_property
    def fragments(self) -> tuple[File, ...]:
        """The files, in order, as separately readable parts of the source."""
        _ = self._first_states  # before anything is read
        return tuple(File(path, self) for path in self.paths)

    @property
    def name(self) -> str:
        """Name of the source for error messages: the file, or the folder and the number of files."""
        return str(self.paths[0]) if len(self.paths) == 1 else f"{self.paths[0].parent} ({len(self.paths)} files)"

    @property
    def kind(self) -> str:
        """Name of the file format."""
        return self.format.name

    @property
    def has_small_batches(self) -> bool:
        """Whether each file may be a single document, so that batches should be merged."""
        return self.format.must_be_named

    def settings(self) -> list[Any]:
        """Return the reading options that affect the documents, as JSON values."""
        settings: list[Any] = [self.markup.model_dump(exclude={"individuals"})] if self.format.is_marked else []
        settings += [list(map(self.ids_of, self.paths))] if self.format.is_plain else []
        settings += [[path.stem for path in self.paths]] if self.format.is_named_by_file else []
        return settings + ([self.csv.dialect.model_dump()] if self.csv.dialect != CsvDialect() else [])

    def version(self) -> bytes:
        """Return the concatenated SHA-256 of all files, as bytes; computed once, from the files as they were when the
        first was read.

        Raises
        ------
        CorpusError
            A file cannot be read, or has changed since.
        """
        return self._digests

    def require_unchanged(self) -> None:
        """Raise `CorpusError` if a file has changed since the first of them was read.

        Cost: the status of each file; all are hashed again where one was touched.
        """
        if self._states() != self._first_states and self._hash_all() != self._digests:
            raise changed_error()

    @cached_property
    def _digests(self) -> bytes:
        """Concatenated SHA-256 of all files; `CorpusError` if one has changed since it was first read."""
        first, digests = self._first_states, self._hash_all()
        if self._states() != first:
            raise changed_error()
        return digests

    def _hash_all(self) -> bytes:
        """Return the concatenated SHA-256 of all files, as they are now."""
        return b"".join(mapped(self._hash_one, self.paths))

    def _hash_one(self, file: Path) -> bytes:
        """Return the SHA-256 of a file; `CorpusError` if it cannot be read."""
        try:
            return self.sha256(file)
        except OSError as error:
            raise CorpusError(f"{file}: cannot be read ({error.strerror})") from None

    @cached_property
    def _first_states(self) -> list[tuple[int, int, int] | None]:
        """Size and times of each file when the source was first read."""
        return self._states()

    def _states(self) -> list[tuple[int, int, int] | None]:
        """Return the current size and times of each file; None for an inaccessible one."""
        return list(map(_state, self.paths))

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in share number ``part`` of ``parts`` consecutive shares of all rows as record batches with
        these columns."""
        return batches_of_part(self.fragments, Request(columns=columns, batch_rows=batch_rows), part, parts)


def format_options(format: str) -> frozenset[str]:
    """Return the names of the `Markup` options that apply to a format.

    Raises
    ------
    PolicyError
        There is no such format.
    """
    if format not in format_names():
        raise PolicyError(f"format: expected one of {', '.join(format_names())}, got {format!r}")
    return FORMATS[format].options if format in FORMATS else frozenset()


def find_format(sources: Sequence[str | Path], format: str) -> tuple[Found, Format]:
    """Return the document files in these sources (files, folders and globs), and their format; "auto" determines it by
    suffix.

    Raises
    ------
    CorpusError
        As `find_files`; or there is no file, or there are files of several formats or of none that a suffix tells.
    """
    chosen = FORMATS.get(format)

    def is_document(file: Path) -> bool:
        """Whether a file's suffix is one of the chosen format (or, for "auto", of any format)."""
        if chosen is not None and chosen.must_be_named:
            return file.suffix.lower() in chosen.suffixes
        return format_of(file) is not None

    found = find_files(sources, is_document)
    where = ", ".join(map(str, sources))
    if not found.files:
        num_results = found.passed_over[RESULTS]
        but = f", but {num_results} run folder(s) or artefact(s), which hold no documents" if num_results else ""
        raise CorpusError(
            f"{where}: no file found ({_describe_formats(chosen)}){but or _advise_format(found.other_suffixes)}"
        )
    if chosen is not None:
        if chosen.name == "brat":  # a glob may have named one of two
            pairs = {file.with_suffix(suffix) for file in found.files for suffix in chosen.suffixes}
            files = {*found.files, *(file for file in pairs if file.is_file())}
            found.files = tuple(sorted(files, key=os.path.abspath))
        return found, chosen
    formats = {format_of(file) for file in found.files}
    first = formats.pop()
    if first is not None and not formats:
        return found, first
    shown = ", ".join(sorted({file.suffix or "no suffix" for file in found.files}))
    if formats:
        raise CorpusError(f"{where}: files of one format expected, found {shown}; choose with a glob, such as *.csv")
    raise CorpusError(f"{where}: {shown} does not tell the format; set corpus.format to {', '.join(FORMATS)}")


def _describe_formats(chosen: Format | None) -> str:
    """Return text on the kinds of files that are searched for, for an error message."""
    if chosen is not None and chosen.must_be_named:
        return " or ".join(chosen.suffixes)
    titles = [row.title for row in FORMATS.values() if not row.must_be_named]
    return f"{', '.join(titles[:-1])} or {titles[-1]}"


def _advise_format(suffixes: Set[str]) -> str:
    """Return advice for an error message to name the format, if files with suffixes of other formats were found; else
    ""."""
    names = [row.name for row in FORMATS.values() if row.must_be_named and not suffixes.isdisjoint(row.suffixes)]
    return f"; if its files are of {', '.join(names)}, name the format (corpus.format)" if names else ""


def _state(file: Path) -> tuple[int, int, int] | None:
    """Return size and times of a file, which change with its content; None if it cannot be accessed."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns
