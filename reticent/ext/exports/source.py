"""Folders of exports as a source: ``fhir://FOLDER``, ``hl7://FOLDER``, ``cda://FOLDER``, ``pages://FOLDER``.

Files are read once, into the run folder. A text that cannot be read stops nothing: its place and the reason are listed
in ``unread.parquet`` of the artefact ``corpus``, and counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import CorpusError
from reticent.engine.corpus import owners_of_table
from reticent.engine.sources.batches import changed_error
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.compressed import COMPRESSIONS, open_bytes
from reticent.engine.sources.files import find_files, sha256_of
from reticent.engine.sources.plain import individual_of
from reticent.engine.threads import worked_ahead
from reticent.ext.exports.cda import read_document
from reticent.ext.exports.contents import MAX_BYTES, SUFFIXES, PartlyRead, UnreadableError, texts_of
from reticent.ext.exports.fhir import Owner, individual_id_of, read_bundle, replacements_of, servers_of
from reticent.ext.exports.found import FoundDocument, Unread
from reticent.ext.exports.hl7 import merged_numbers, merges_of, read_messages

if TYPE_CHECKING:
    from reticent.engine.sources.corpus_config import CorpusConfig

#: File of the places that were not read, in the folder of the documents.
UNREAD: Final = "unread.parquet"
#: Scheme -> suffixes of its files.
_SUFFIXES: Final = {
    "fhir": (".ndjson", ".jsonl", ".json"),
    "hl7": (".hl7", ".txt", ".msg", ".dat"),
    "cda": (".xml", ".cda"),
    "pages": tuple(SUFFIXES),
}
_IS_BINARY: Final = re.compile(rb'"resourceType"\s*:\s*"Binary"')
#: The address of a Binary, and its server if it names one; the server of an address of a Patient or a Binary in JSON.
_BINARY: Final = re.compile(r"(?:((?:\w+:|//).*)/|.*/)?Binary/([A-Za-z0-9.-]{1,64})(?:/_history/[^/]+)?")
_SERVER: Final = re.compile(
    rb'"(https?:[^"\s]+?)\\?/(?:Patient|Binary)\\?/[A-Za-z0-9.-]{1,64}(?:\\?/_history\\?/[^/"]+)?"'
)
#: Characters of text of a batch: it ends at the first document beyond.
_CHARACTERS: Final = 4 << 20
#: Bytes of pages that a thread reads at a time: more by one file at most.
_BYTES: Final = 1 << 18


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
        #: Files of HL7 whose lines do not end with carriage returns.
        self._line_feeds: list[str] = []
        #: Of each file its size and time when it was first looked at, and the SHA-256 of its content.
        self._states: dict[Path, tuple[int, int]] = {}
        self._digests: dict[Path, bytes] = {}

    @cached_property
    def _found(self) -> tuple[list[Path], int]:
        """Document files of the export in order, and the number of other files."""
        found = find_files([self._path], self._is_document)
        if not found.files:
            raise CorpusError(f"{self.name}: no file found whose name ends in {', '.join(_SUFFIXES[self._scheme])}")
        return list(found.files), sum(found.passed_over.values())

    def _is_document(self, file: Path) -> bool:
        """Return whether a file's suffix belongs to the export's format. A suffix of compression after it is ignored,
        except in the format "pages" (one document per file).
        """
        stem, suffix = os.path.splitext(file.name.lower())
        if suffix in COMPRESSIONS and self._scheme != "pages":
            suffix = os.path.splitext(stem)[1]
        return suffix in _SUFFIXES[self._scheme]

    @property
    def passed_over(self) -> int:
        """Number of files of the export that are not documents and were not read."""
        return self._found[1]

    @property
    def num_unread(self) -> int:
        """Number of texts that could not be read; final once `batches` is exhausted."""
        return len(self._unread)

    @property
    def why_unread(self) -> str:
        """The three most frequent reasons of texts that could not be read, as the end of a message; "" if there are
        none."""
        counts = Counter(row.reason for row in self._unread)
        return "".join(f"; {count:,} not read: {reason}" for reason, count in counts.most_common(3))

    @property
    def is_hashed_as_read(self) -> bool:
        """Whether each file is opened once, for its text and its digest. Files of other formats than "pages" are
        searched before their documents are read, and must not change in between.
        """
        return self._scheme == "pages"

    @property
    def notes(self) -> list[str]:
        """Warnings for the user: HL7 segments that end with line feeds, or patients of several FHIR servers."""
        if self._line_feeds:
            return [
                f"{self.name}: segments end with line feeds alone, where HL7 has carriage returns, in "
                f"{len(self._line_feeds):,} files (the first is {self._line_feeds[0]}): a line of a text that begins "
                "like a segment (NTE|, say) is taken for one, and is not in the text; export with carriage returns, or "
                "look for such lines"
            ]
        if self._scheme != "fhir" or len(self._servers) < 2:
            return []
        return [
            f"{self.name}: documents are about patients of {len(self._servers):,} servers, which the ids of the "
            "individuals name; if two addresses are of one server, each of its patients counts as two individuals"
        ]

    def version(self) -> bytes:
        """Return the SHA-256 (hexadecimal, as bytes) of the names and contents of all files; files of the format
        "pages" that were read are not opened again.
        """
        digest = hashlib.sha256()
        for file in self._found[0]:
            if file not in self._digests:
                state = self._states.setdefault(file, _state(file))
                try:
                    self._digests[file] = sha256_of(file)
                except OSError as error:
                    raise CorpusError(f"{file}: cannot be read ({error.strerror})") from None
                if _state(file) != state:
                    raise changed_error()
            digest.update(f"{self._place(file)}\0{self._digests[file].hex()}\0".encode())
        return digest.hexdigest().encode()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the documents as record batches of these columns. Part 0 yields all and other parts nothing, since
        repeated ids are numbered in file order."""
        require_columns(FoundDocument._fields, list(columns), self._path)
        if part:
            return
        held: list[FoundDocument] = []
        num_characters = 0
        seen: dict[str, bytes] = {}
        repeated: dict[str, tuple[int, set[bytes]]] = {}
        for file, documents in self._iter_files():
            for each in documents:
                found = self._with_unique_id(each, seen, repeated, file)
                if isinstance(found, Unread):
                    self._unread.append(found)
                    continue
                held.append(found)
                num_characters += len(found.text)
                if len(held) >= batch_rows or num_characters >= _CHARACTERS:
                    yield _batch(held, columns)
                    held, num_characters = [], 0
        if any(_state(file) != state for file, state in self._states.items()):  # a Binary may be of any file
            raise changed_error()
        if held:
            yield _batch(held, columns)

    def _with_unique_id(
        self,
        document: FoundDocument | Unread,
        digests_by_id: dict[str, bytes],
        repeated: dict[str, tuple[int, set[bytes]]],
        file: Path,
    ) -> FoundDocument | Unread:
        """Return the document, with ``#2`` (and so on) added to an id that another document has already. Return an
        `Unread` for an exact repeat or invalid text. ``repeated`` has for such an id its last number, and the digests
        up to it."""
        if isinstance(document, Unread):
            return document
        try:
            digest = hashlib.blake2b(
                "\0".join((document.individual_id, document.text)).encode(), digest_size=16
            ).digest()
            "".join((document.doc_id, document.date or "", document.type or "")).encode()
        except UnicodeEncodeError:
            return Unread(self._place(file), "half of a surrogate pair in it")
        if document.doc_id not in digests_by_id:
            digests_by_id[document.doc_id] = digest
            return document
        number, digests = repeated.get(document.doc_id, (1, {digests_by_id[document.doc_id]}))
        while (doc_id := f"{document.doc_id}#{number + 1}") in digests_by_id:
            number += 1
            digests.add(digests_by_id[doc_id])
        repeated[document.doc_id] = (number, digests)
        if digest in digests:
            return Unread(self._place(file), "it was read already: the same id, individual and text")
        digests_by_id[doc_id] = digest
        return document._replace(doc_id=doc_id)

    def _iter_files(self) -> Iterator[tuple[Path, Iterable[FoundDocument | Unread]]]:
        """Yield (file, its documents and `Unread` entries) for every file of the export. Files of the format "pages"
        (one document each) are parsed in two threads.
        """
        if self._scheme == "pages":
            _ = self._individual_of  # its table is read before two threads ask for it
            for files, found in worked_ahead(self._file_groups(), self._read_pages):
                yield from zip(files, found, strict=True)
        else:
            for file in self._found[0]:
                yield file, self._read_documents(file)

    def _file_groups(self) -> Iterator[list[Path]]:
        """Yield the files in order, in groups of about `_BYTES` bytes, which limits memory and gives each thread enough
        work."""
        held: list[Path] = []
        num_bytes = 0
        for file in self._found[0]:
            held.append(file)
            num_bytes += self._states.setdefault(file, _state(file))[0]
            if num_bytes >= _BYTES:
                yield held
                held, num_bytes = [], 0
        if held:
            yield held

    def _read_pages(self, files: list[Path]) -> list[list[FoundDocument | Unread]]:
        """Return for each page file a list with its document, and an `Unread` with the reason where it, or a part of
        it, cannot be read. All files are read before any is parsed."""
        kinds = [SUFFIXES.get(file.suffix.lower()) for file in files]
        # A kind that is not read was named, or a glob has it.
        known = [(file, kind) for file, kind in zip(files, kinds, strict=True) if kind]
        try:
            contents = _rust.read_files([file for file, _ in known], MAX_BYTES + 1)
        except OSError as error:
            raise CorpusError(
                f"{error.filename}: cannot be read ({os.strerror(error.errno) if error.errno else error.strerror})"
            ) from None
        for (file, _), content in zip(known, contents, strict=True):
            if len(content) <= MAX_BYTES:
                self._digests.setdefault(file, hashlib.sha256(content).digest())
        texts = iter(texts_of([(content, kind) for (_, kind), content in zip(known, contents, strict=True)]))
        found = [next(texts) if kind else UnreadableError("a kind of file that is not read") for kind in kinds]
        return [self._make_page(file, text) for file, text in zip(files, found, strict=True)]

    def _read_documents(self, file: Path) -> Iterator[FoundDocument | Unread]:
        """Yield the documents in one file, or an `Unread` with the reason for each that cannot be read."""
        place = self._place(file)
        try:
            if self._scheme == "fhir" and _is_json_lines(file):
                for number, line in _iter_lines(file):
                    where = f"{place} line {number}"
                    if line is None:
                        yield Unread(where, f"larger than {MAX_BYTES >> 20} MiB")
                    elif line.strip():
                        yield from read_bundle(line, where, self._elsewhere, self._servers, self._merged)
                return
            data = _read(file)
        except OSError as error:
            raise CorpusError(f"{file}: cannot be read ({error.strerror})") from None
        except CorpusError:
            yield Unread(place, "it cannot be unpacked: cut short, damaged, or of another kind")
            return
        if len(data) > MAX_BYTES:
            yield Unread(place, f"larger than {MAX_BYTES >> 20} MiB")
        elif self._scheme == "fhir":
            yield from read_bundle(data, place, self._elsewhere, self._servers, self._merged)
        elif self._scheme == "hl7":
            if (end := re.search(rb"[\r\n]", data)) and end[0] == b"\n":
                self._line_feeds.append(place)
            yield from read_messages(data, place, self._merged)
        else:
            yield from _READERS[self._scheme](data, place)

    def _make_page(self, file: Path, text_or_error: str | UnreadableError) -> list[FoundDocument | Unread]:
        """Return a page file's document made from its text and an `Unread` for each part of it that was not read; or
        an `Unread` made from the error."""
        place = self._place(file)
        if isinstance(text_or_error, UnreadableError):
            return [Unread(place, str(text_or_error))]
        reasons = text_or_error.reasons if isinstance(text_or_error, PartlyRead) else ()
        unread = [Unread(place, f"a part of it: {reason}") for reason in reasons]
        individual = self._individual_of(file, Path(*self._parts_below(file)))
        return [FoundDocument(place, individual, str(text_or_error)), *unread]

    @cached_property
    def _individual_of(self) -> Callable[[Path, Path], str]:
        """Function from (file, its path below the folder) to the individual id, made from the settings ``individual``
        and ``individuals``."""
        settings = self._settings
        owners = owners_of_table(settings.individuals, settings) if settings.individuals is not None else None
        return individual_of(settings.individual, (lambda: owners) if owners is not None else None)

    @cached_property
    def _depth(self) -> int:
        """Number of parts of the folder's path; -1 if the export is one file."""
        return len(self._path.parts) if self._path.is_dir() else -1

    def _parts_below(self, file: Path) -> tuple[str, ...]:
        """Return the parts of a file's path below the export's folder: folder names, then the file name."""
        return file.parts[self._depth :]

    def _place(self, file: Path) -> str:
        """Return a file's path below the export's folder as text, used in messages and as document id."""
        return os.fsencode("/".join(self._parts_below(file))).decode(errors="backslashreplace")

    @cached_property
    def _patients(self) -> tuple[set[str], list[tuple[Owner, Owner]]]:
        """For FHIR, the servers of the Patients that documents are about, and (replaced, replacing) pairs of Patients;
        found in one pass over the files."""
        servers: set[str] = set()
        replaced: list[tuple[Owner, Owner]] = []
        for data in self._iter_contents():
            servers |= servers_of(data)
            replaced += replacements_of(data)
        return servers, replaced

    @property
    def _servers(self) -> set[str]:
        """For FHIR, the base addresses of the servers of the Patients that documents are about."""
        return self._patients[0]

    @cached_property
    def _merged(self) -> dict[str, str]:
        """Dict from each replaced patient number (HL7) or Patient id (FHIR) to the patient's final one."""
        if self._scheme == "fhir":
            servers, pairs = self._patients
            # A Patient of a server that no document is about is none of the individuals, whatever their id.
            kept = (pair for pair in pairs if not servers or {server for _, server in pair if server} <= servers)
            ids = ([individual_id_of(owner, servers) for owner in pair] for pair in kept)
            return merged_numbers((old, new) for old, new in ids if old and new)
        return merged_numbers(pair for data in self._iter_contents() for pair in merges_of(data))

    def _iter_contents(self) -> Iterator[bytes]:
        """Yield the bytes of every file, or of every line of a JSON Lines file, for passes before the documents are
        read. Damaged or too large ones are skipped."""
        for file in self._found[0]:
            try:
                is_of_lines = self._scheme == "fhir" and _is_json_lines(file)
                for data in (line for _, line in _iter_lines(file)) if is_of_lines else [_read(file)]:
                    if data is not None and len(data) <= MAX_BYTES:
                        yield data
            except (CorpusError, OSError):  # it is listed when its documents are read
                continue

    @property
    def _elsewhere(self) -> Mapping[str, Any]:
        """Binary resources to which documents may refer, by address. Empty if patients are of several servers, as a
        Binary's server would be unknown."""
        return self._binaries if len(self._servers) < 2 else {}

    @cached_property
    def _binaries(self) -> _Binaries:
        """Index of all Binary resources in the export's files, built at first use."""
        return _Binaries(self._found[0], self._scratch)

    def close(self) -> None:
        """Write the list of unread texts (places and reasons, no text) to `UNREAD` if there are any, and delete
        temporary files."""
        if "_binaries" in vars(self):
            self._binaries.close()
        if self._unread:
            rows = sorted(self._unread)
            table = pa.table({name: [getattr(row, name) for row in rows] for name in Unread._fields})
            pq.write_table(table, self._scratch / UNREAD)


_READERS: Final[dict[str, Callable[[bytes, str], Iterator[FoundDocument | Unread]]]] = {
    "fhir": read_bundle,
    "hl7": read_messages,
    "cda": read_document,
}


def _state(file: Path) -> tuple[int, int]:
    """Return the size (bytes) and modification time (ns) of a file."""
    try:
        found = os.stat(file)
    except OSError as error:
        raise CorpusError(f"{file}: cannot be read ({error.strerror})") from None
    return found.st_size, found.st_mtime_ns


def _read(file: Path) -> bytes:
    """Return the uncompressed bytes of a file, but only slightly more than `MAX_BYTES` of a larger one."""
    blocks: list[bytes] = []
    size = 0
    with open_bytes(file) as opened:
        while size <= MAX_BYTES and (found := opened.read(1 << 16)):
            blocks.append(found)
            size += len(found)
    return b"".join(blocks)


def _is_json_lines(file: Path) -> bool:
    """Return whether a file is in JSON Lines format, by its suffix."""
    return any(suffix.lower() in (".ndjson", ".jsonl") for suffix in file.suffixes[-2:])


def _iter_lines(file: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line as bytes) of a file; None in place of a line larger than `MAX_BYTES`."""
    with open_bytes(file) as opened:
        held: list[bytes] = []
        size, number, block = 0, 1, b"\n"
        while block:
            block = opened.read(1 << 22)
            *ended, rest = block.split(b"\n") if block else [b"", b""]
            for piece in ended:
                line = b"".join([*held, piece])
                yield number, line if size + len(piece) <= MAX_BYTES else None
                held, size, number = [], 0, number + 1
            size += len(rest)
            held = [*held, rest] if size <= MAX_BYTES else []


class _Binaries(Mapping[str, Any]):
    """The resources Binary of files of lines, by the ends of their addresses; a bulk export keeps attachments so.

    All files are searched when the first is asked for; a copy of these lines stands in the private folder until it is
    closed. Of two with one id neither is meant for sure. An address with a server is one of these where all addresses
    of a Patient or a Binary in the export that have a server have the same: else it may be that of another one.
    """

    def __init__(self, files: Sequence[Path], scratch: Path):
        self._files, self._scratch = files, scratch
        self._copy: Any = None
        self._places: dict[str, tuple[int, int] | None] = {}
        self._servers: set[bytes] = set()

    def __getitem__(self, address: str) -> Any:
        found = _BINARY.fullmatch(address)
        if found is None:
            raise KeyError(address)
        if self._copy is None:
            self._index_lines()
        is_here = found[1] is None or self._servers == {found[1].encode(errors="replace")}
        if not is_here or (place := self._places.get(found[2])) is None:
            raise KeyError(address)
        self._copy.seek(place[0])
        return json.loads(self._copy.read(place[1]))

    def _index_lines(self) -> None:
        """Copy every line with a Binary resource to a temporary file, and record the byte range of the copy by id; also
        collect the servers that addresses name.
        """
        self._copy = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 (closed by `close`)
        end = 0
        for file in self._files:
            try:
                for _, line in _iter_lines(file):
                    if line is None:
                        continue
                    self._servers.update(server.replace(b"\\", b"") for server in _SERVER.findall(line))
                    if not (_is_json_lines(file) and _IS_BINARY.search(line)) or (own := _id_of_binary(line)) is None:
                        continue
                    self._places[own] = None if own in self._places else (end, len(line))
                    end += self._copy.write(line)
            except (CorpusError, OSError):  # it is listed when its documents are read
                continue

    def close(self) -> None:
        """Delete the temporary copy of the Binary resources."""
        if self._copy is not None:
            self._copy.close()

    def __iter__(self) -> Iterator[str]:
        return (f"Binary/{name}" for name in self._places)

    def __len__(self) -> int:
        return len(self._places)


def _id_of_binary(line: bytes) -> str | None:
    """Return the id of a FHIR Binary in a line of JSON; None for any other line."""
    try:
        loaded = json.loads(line)
    except (ValueError, RecursionError):
        return None
    own = loaded.get("id") if isinstance(loaded, dict) and loaded.get("resourceType") == "Binary" else None
    return own if isinstance(own, str) else None


def _batch(documents: list[FoundDocument], columns: Sequence[str]) -> pa.RecordBatch:
    """Return documents as a record batch of these columns."""
    kinds = {"text": pa.large_string()}
    values = dict(zip(FoundDocument._fields, zip(*documents, strict=True), strict=True))
    return pa.record_batch({name: pa.array(values[name], kinds.get(name, pa.string())) for name in columns})
