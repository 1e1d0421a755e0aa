"""Folders of text files: one file is one note; its individual is named by the folder, the file name or a table.

The id of a document is the path of its file below the folder that the job names, without the suffix: ``anna/visit-1``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.schema import DOCUMENTS
from reticent.engine.sources.columns import REQUIRED, require_columns
from reticent.engine.sources.csv import guess_encoding
from reticent.engine.sources.protocol import CsvSource, Request


def read_txt(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of a text file as one row, as the file is one document; ``request.document`` has its
    ids.

    Raises
    ------
    CorpusError
        Another column is asked for, or the file is in no encoding that can be told.
    """
    require_columns(REQUIRED, request.columns, file)
    assert request.document is not None
    source = request.csv or CsvSource()
    is_told = source.dialect.encoding == "auto"
    data = file.read_bytes()
    encoding = guess_encoding(data, file) if is_told else source.dialect.encoding
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise CorpusError(f"{file} line {line}: not valid {encoding}; set corpus.encoding") from None
    if is_told and encoding != "utf-8" and source.reading is not None:
        source.reading.dialects[file] = f"as {encoding}"
    values = dict(zip(REQUIRED, (*request.document, text), strict=True))
    fields = [DOCUMENTS.field(name) for name in request.columns]
    yield pa.record_batch([pa.array([values[field.name]], field.type) for field in fields], pa.schema(fields))


def owners_of(batches: Iterator[pa.RecordBatch], doc_id: str, individual_id: str, where: str) -> dict[str, str]:
    """Return a dict from document id to individual id, read from batches of a table; `CorpusError` if a document has
    two individuals."""
    owners: dict[str, str] = {}
    for batch in batches:
        pairs = [batch.column(batch.schema.get_field_index(name)).cast(pa.string()) for name in (doc_id, individual_id)]
        for document, individual in zip(*(column.to_pylist() for column in pairs), strict=True):
            if document is None or individual is None:
                raise CorpusError(f"{where}: a document or an individual is null")
            if owners.setdefault(document, individual) != individual:
                raise CorpusError(f"{where}: a document stands there with two individuals")
    return owners


def individual_of(pattern: str | None, owners: Callable[[], Mapping[str, str]] | None) -> Callable[[Path, Path], str]:
    """Return a function from a text file (and its path below the named folder) to its individual id: by ``owners`` (id
    or file name -> individual), by the group of the regular expression ``pattern`` in the id, or by the first
    folder."""

    def of(file: Path, below: Path) -> str:
        """Return the individual id of a text file; raise `CorpusError` if there is none. ``below`` is the file's path
        below the named folder."""
        found: str | None
        if owners is not None:
            names = (below.with_suffix("").as_posix(), below.as_posix(), file.name, file.stem)
            found = next(filter(None, map(owners().get, names)), None)
            missing = "corpus.individuals has no row of it"
        elif pattern is not None:
            match = re.fullmatch(pattern, below.with_suffix("").as_posix())
            found, missing = (
                match[1] if match else None,
                "corpus.individual does not fit its id, the path without the suffix",
            )
        else:
            found = below.parts[0] if len(below.parts) > 1 else None
            missing = (
                "it stands in no folder of an individual; set corpus.individual to a regular expression of its name "
                'whose group is the individual, such as "(.*?)_.*", or corpus.individuals to a table of documents'
            )
        if not found:
            raise CorpusError(f"{file}: {missing}")
        return found

    return of
