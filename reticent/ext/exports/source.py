"""Folders of exports as a source: ``fhir://FOLDER``, ``hl7://FOLDER``, ``cda://FOLDER``, ``pages://FOLDER``.

Files are read once, into the run folder. A text that cannot be read stops nothing: its place and the reason are listed
in ``unread.parquet`` of the artefact ``corpus``, and counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.errors import CorpusError
from reticent.engine.corpus import owners_of_table
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.compressed import COMPRESSIONS, open_bytes
from reticent.engine.sources.files import find_files
from reticent.engine.sources.plain import individual_of
from reticent.ext.exports.cda import read_document
from reticent.ext.exports.contents import MAX_BYTES, SUFFIXES, UnreadableError, text_of
from reticent.ext.exports.fhir import read_bundle, read_line
from reticent.ext.exports.found import FoundDocument, Unread
from reticent.ext.exports.hl7 import read_messages

if TYPE_CHECKING:
    from reticent.engine.sources.corpus_config import CorpusConfig

__all__ = ["UNREAD", "Exports"]

#: File of the places that were not read, in the folder of the documents.
UNREAD: Final = "unread.parquet"
#: Scheme -> suffixes of its files.
_SUFFIXES: Final = {
    "fhir": (".ndjson", ".jsonl", ".json"),
    "hl7": (".hl7", ".txt", ".msg", ".dat"),
    "cda": (".xml", ".cda"),
    "pages": tuple(SUFFIXES),
}
#: Characters of text of a batch: it ends at the first document beyond.
_CHARACTERS: Final = 4 << 20


class Exports:
    """The documents of all files of an export under a folder, in the order of their names; a `Source`.

    Columns: doc_id, individual_id, text, date and type, as the export says them; no others.

    Parameters
    ----------
    settings : the address, and of ``pages`` whose a file is (``individual``, ``individuals``)
    scratch : the folder of the documents that are read, for the list of what was not
    """

    def __init__(self, settings: CorpusConfig, scratch: Path):
        address = str(settings.remote)
        self._settings, self._scratch = settings, scratch
        self._scheme, _, path = address.partition("://")
        self._scheme, self._path = self._scheme.lower(), Path(path)
        self.name = address
        self._unread: list[Unread] = []
        self._lock = Lock()

    @cached_property
    def _found(self) -> tuple[list[Path], int]:
        found = find_files([self._path], self._is_document)
        if not found.files:
            raise CorpusError(f"{self.name}: no file found whose name ends in {', '.join(_SUFFIXES[self._scheme])}")
        return list(found.files), sum(found.passed_over.values())

    def _is_document(self, file: Path) -> bool:
        suffixes = [suffix.lower() for suffix in file.suffixes]
        if suffixes and suffixes[-1] in COMPRESSIONS and self._scheme != "pages":
            suffixes.pop()
        return bool(suffixes) and suffixes[-1] in _SUFFIXES[self._scheme]

    @property
    def passed_over(self) -> int:
        """How many files beside the documents were not read."""
        return self._found[1]

    @property
    def num_unread(self) -> int:
        """How many texts were not read; known at the end."""
        return len(self._unread)

    def version(self) -> bytes:
        """Return a digest of the names and bytes of all files."""
        digest = hashlib.sha256()
        for file in self._found[0]:
            with file.open("rb") as opened:
                digest.update(f"{self._below(file)}\0{hashlib.file_digest(opened, 'sha256').hexdigest()}\0".encode())
        return digest.hexdigest().encode()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns; raises as `Source.batches` does."""
        require_columns(FoundDocument._fields, list(columns), self._path)
        files = self._found[0]
        held: list[FoundDocument] = []
        num_characters = 0
        for file in files[part * len(files) // parts : (part + 1) * len(files) // parts]:
            for each in self._documents(file):
                if isinstance(each, Unread):
                    with self._lock:
                        self._unread.append(each)
                    continue
                held.append(each)
                num_characters += len(each.text)
                if len(held) >= batch_rows or num_characters >= _CHARACTERS:
                    yield _batch(held, columns)
                    held, num_characters = [], 0
        if held:
            yield _batch(held, columns)

    def _documents(self, file: Path) -> Iterator[FoundDocument | Unread]:
        place = self._below(file).as_posix()
        try:
            if self._scheme == "fhir" and self._is_lines(file):
                yield from _lines(file, place)
                return
            with open_bytes(file) as opened:
                data = opened.read(MAX_BYTES + 1)
        except (OSError, pa.ArrowException, EOFError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "damaged"
            raise CorpusError(f"{file}: cannot be read ({reason})") from None
        if len(data) > MAX_BYTES:
            yield Unread(place, f"larger than {MAX_BYTES >> 20} MiB")
        elif self._scheme == "pages":
            yield self._page(file, data, place)
        else:
            yield from _READERS[self._scheme](data, place)

    def _page(self, file: Path, data: bytes, place: str) -> FoundDocument | Unread:
        try:
            text = text_of(data, SUFFIXES[file.suffix.lower()])
            text.encode()
        except UnreadableError as error:
            return Unread(place, str(error))
        except UnicodeEncodeError:
            return Unread(place, "half of a surrogate pair in its text")
        below = self._below(file)
        return FoundDocument(below.as_posix(), self._individual_of(file, below), text)

    @cached_property
    def _individual_of(self) -> Callable[[Path, Path], str]:
        settings = self._settings
        owners = partial(owners_of_table, settings.individuals, settings) if settings.individuals is not None else None
        return individual_of(settings.individual, cache(owners) if owners is not None else None)

    def _below(self, file: Path) -> Path:
        return file.relative_to(self._path) if self._path.is_dir() else Path(file.name)

    @staticmethod
    def _is_lines(file: Path) -> bool:
        return any(suffix.lower() in (".ndjson", ".jsonl") for suffix in file.suffixes[-2:])

    def close(self) -> None:
        """Write the list of what was not read, where there is something; it names places and reasons and no text."""
        if self._unread:
            rows = sorted(self._unread)
            table = pa.table({name: [getattr(row, name) for row in rows] for name in Unread._fields})
            pq.write_table(table, self._scratch / UNREAD)


_READERS: Final[dict[str, Callable[[bytes, str], Iterator[FoundDocument | Unread]]]] = {
    "fhir": read_bundle,
    "hl7": read_messages,
    "cda": read_document,
}


def _lines(file: Path, place: str) -> Iterator[FoundDocument | Unread]:
    """The documents of a file of NDJSON, a line at a time."""
    with open_bytes(file) as opened:
        rest, number = b"", 0
        while block := opened.read(1 << 22):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                number += 1
                if line.strip():
                    yield from read_line(line, f"{place} line {number}")
            if len(rest) > MAX_BYTES:
                raise CorpusError(f"{file} line {number + 1}: longer than {MAX_BYTES >> 20} MiB")
        if rest.strip():
            yield from read_line(rest, f"{place} line {number + 1}")


def _batch(documents: list[FoundDocument], columns: Sequence[str]) -> pa.RecordBatch:
    kinds = {"text": pa.large_string()}
    return pa.record_batch(
        {name: pa.array([getattr(each, name) for each in documents], kinds.get(name, pa.string())) for name in columns}
    )
