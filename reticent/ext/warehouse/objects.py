"""Object stores (``s3://``, ``gs://``, ``abfs://``, ``hdfs://``) as a source: objects are copied one by one, then read.

An object may have any file format that its suffix tells. Memory is bounded by a block; on disk there is one object at a
time for each part, in the private folder of the result. The version of an object is its ETag, or else its size and
time; one that is replaced while it is read is an error. Credentials come from the store's own chain.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType

from reticent.core.errors import CorpusError
from reticent.engine.sources.columns import REQUIRED
from reticent.engine.sources.config import Columns, CsvDialect
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.csv import CsvSource
from reticent.engine.sources.files import TABLES, Files, table_error
from reticent.engine.sources.formats import FORMATS, format_of
from reticent.engine.sources.reading import Reading
from reticent.engine.sources.staged import PLACE
from reticent.engine.sources.table import shown

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


NUM_BYTES_PER_BLOCK: Final = 4 << 20


class Objects:
    """The documents of all objects under an address, in the order of their names; a `Source`.

    Parameters
    ----------
    settings : the address, and how files of its format are read
    scratch : a private folder
    """

    def __init__(self, settings: CorpusConfig, scratch: Path):
        self._settings, self._scratch = settings, scratch
        self.name = shown(str(settings.remote)).rstrip("/")
        self.passed_over = 0
        self._reading = Reading()
        self._versions: dict[str, str] = {}

    @cached_property
    def _store(self) -> tuple[FileSystem, str]:
        """The file system of the address, and the path in it."""
        try:
            store, path = FileSystem.from_uri(str(self._settings.remote))
        except (OSError, pa.ArrowException, ValueError) as error:
            if isinstance(error, pa.ArrowInvalid) and re.search(r"[\s*\[]", self.name):
                raise CorpusError(f"{self.name}: no address; write a blank in it as %20, and [ as %5B") from None
            raise failure(self.name, error) from None
        if "*" in path:
            raise CorpusError(f"{self.name}: an address has no pattern; name the folder, all objects under it are read")
        return store, path

    @cached_property
    def _objects(self) -> list[FileInfo]:
        """The objects under the address that hold documents, sorted by path."""

        store, path = self._store
        try:
            (info,) = store.get_file_info([path])
            found = [info] if info.type == FileType.File else store.get_file_info(FileSelector(path, recursive=True))
        except (OSError, pa.ArrowException) as error:
            raise failure(self.name, error) from None
        files = [info for info in found if info.type == FileType.File]
        chosen = FORMATS.get(self._settings.format)
        self._refuse_tables(store, path, found)
        documents = [info for info in files if not _is_hidden(info.path[len(path) :])]
        documents = [info for info in documents if chosen is not None or format_of(Path(info.path)) is not None]
        self.passed_over = len(files) - len(documents)
        if not documents:
            raise CorpusError(f"{self.name}: no object found whose suffix tells a format of documents")
        if chosen is None and len({format_of(Path(info.path)) for info in documents}) > 1:
            raise CorpusError(f"{self.name}: objects of one format expected, found several; set corpus.format")
        return sorted(documents, key=lambda info: info.path)

    def _refuse_tables(self, store: FileSystem, path: str, found: Sequence[FileInfo]) -> None:
        """Raise `CorpusError` if the objects belong to a Delta or Iceberg table, which must be read as a table."""
        names = [info.path for info in found]
        for folder, mark in (
            (folder, mark) for folder in PurePosixPath(path).parents if folder.name for mark in TABLES
        ):
            selector = FileSelector(f"{folder}/{PurePosixPath(mark).parent}", allow_not_found=True)
            with suppress(OSError, pa.ArrowException):  # a folder above may be closed to us
                names += [info.path for info in store.get_file_info(selector)]
        for mark in TABLES:
            if any(PurePosixPath(name).match(mark) for name in names):
                raise table_error(self.name, mark)

    def version(self) -> bytes:
        """Return a digest of the paths and versions of all objects at the first call, as bytes."""
        if not self._versions:
            self._versions = {info.path: self._version_of(info.path) for info in self._objects}
        digest = hashlib.sha256()
        for path, version in self._versions.items():
            digest.update(f"{path}\0{version}\0".encode())
        return digest.hexdigest().encode()

    def _version_of(self, path: str) -> str:
        """Return the version of an object: its size with the ETag, or without one its modification time."""
        store, _ = self._store
        try:
            with store.open_input_file(path) as opened:
                metadata = opened.metadata()
            (info,) = store.get_file_info([path])
        except (OSError, pa.ArrowException) as error:
            raise failure(self._where(path), error) from None
        etag = next((value for name, value in (metadata or {}).items() if name.lower() == b"etag"), b"")
        return f"{info.size} {etag.decode(errors='replace') or info.mtime_ns}"

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in a part of the objects as record batches of these columns; each object is copied to the
        private folder first.
        """
        self.version()
        paths = list(self._versions)
        for path in paths[part * len(paths) // parts : (part + 1) * len(paths) // parts]:
            local = self._scratch / f"object-{part:05d}{''.join(PurePosixPath(path).suffixes[-2:])}"
            where = self._where(path)
            try:
                self._copy(path, local)
                row = 0
                reading = Reading()
                for batch in self._read(local, columns, batch_rows, reading):
                    yield batch.replace_schema_metadata({PLACE: f"{where}\0{row}".encode()})
                    row += batch.num_rows
                self._reading.suspects.update((where, rows) for rows in reading.suspects.values())
                self._reading.dialects.update((where, how) for how in reading.dialects.values())
            except CorpusError as error:
                message = str(error).replace(str(local), where)
                missing = re.search(r": column (\S+) is missing", message)
                if missing and f"/{missing[1]}=" in path:
                    message += (
                        f"; {missing[1]}=… in its key is a partition, which is a column on Spark and in lakes alone"
                    )
                raise CorpusError(message) from None
            finally:
                local.unlink(missing_ok=True)

    def _where(self, path: str) -> str:
        """Return the full address of an object, for error messages."""
        return f"{self.name.partition('://')[0]}://{path}"

    def _copy(self, path: str, local: Path) -> None:
        """Copy an object to a local file; raise `CorpusError` if it was replaced since its version was taken."""
        store, _ = self._store
        try:
            # As it lies there: a stream would unpack what its suffix calls compressed.
            with store.open_input_stream(path, compression=None) as source, local.open("wb") as target:
                while block := source.read(NUM_BYTES_PER_BLOCK):
                    target.write(block)
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
                raise  # of the disk
            raise failure(str(local), error) from None
        if self._version_of(path) != self._versions[path]:
            raise CorpusError(f"{local}: was replaced while it was read; start again")

    @property
    def notes(self) -> list[str]:
        """Sentences for the user about the CSV objects read so far: detected dialects, and suspicious rows."""
        return self._reading.notices()

    def _read(self, local: Path, columns: Sequence[str], batch_rows: int, reading: Reading) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a local file as record batches of these columns, by the job's format; ``reading`` receives
        what is unexpected in CSV."""
        settings = self._settings
        found = FORMATS.get(settings.format) or format_of(local)
        assert found is not None
        named = settings.only(Columns)
        mapped = tuple(column for column in named.model_dump().values() if column is not None)
        csv = CsvSource(
            dialect=settings.only(CsvDialect),
            columns=mapped,
            ids=tuple(getattr(named, name) for name in REQUIRED[:2]),
            reading=reading,
        )
        yield from Files((local,), found, csv, settings).batches(columns, batch_rows=batch_rows)

    def close(self) -> None:
        """Do nothing, as no file is kept open."""


def _is_hidden(path: str) -> bool:
    """Return whether a file or folder name in the path begins with a dot or an underscore."""
    return any(name.startswith((".", "_")) for name in path.split("/"))


def failure(where: str, error: Exception) -> CorpusError:
    """Return a `CorpusError` for an object store's error, with its error code but without its message."""
    code = re.search(r"AWS Error ([A-Z_]+)", str(error))
    reason = "there is no such object" if isinstance(error, FileNotFoundError) else "cannot be read"
    return CorpusError(f"{where}: {reason} ({code[1] if code else type(error).__name__})")
