"""Documents in memory as a source: Arrow tables, Polars and pandas frames, Hugging Face datasets, dicts of columns.

Whatever speaks the Arrow PyCapsule interface is taken without a copy where its own memory is Arrow; strings that Arrow
holds otherwise (views, dictionaries) are cast batch by batch, as they are read. A frame must not be changed in place
while a corpus reads it. A lazy frame is streamed once into a private file of Parquet and never collected: memory is
bounded by a row group.
"""

from __future__ import annotations

import hashlib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias, TypeGuard

import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.parquet import read_parquet, row_groups
from reticent.engine.sources.protocol import Request, batches_of_part

#: Rows of a stretch that one thread reads.
ROWS_PER_GROUP = 8192


class ArrowStream(Protocol):
    """Any object with the Arrow PyCapsule interface: tables of pyarrow, polars, pandas, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object: ...


class LazyFrame(Protocol):
    """A lazy query (`polars.LazyFrame`). It is executed once, when it is opened."""

    def sink_parquet(self, path: Any, **options: Any) -> Any:
        """Execute the query, and write its result to a Parquet file."""


class MappedDataset(Protocol):
    """A `datasets.Dataset`: a memory-mapped table, possibly with rows filtered or selected."""

    def with_format(self, type: str) -> Any:
        """Return the same dataset with its rows given in this form, such as "arrow"."""


Frame: TypeAlias = ArrowStream | LazyFrame | MappedDataset | Mapping[str, Any]


def is_frame(documents: object) -> TypeGuard[Frame]:
    """Whether documents are given as columns in memory (a frame, table or dict), not as files."""
    names = ("__arrow_c_stream__", "__arrow_c_array__", "sink_parquet", "with_format")
    return isinstance(documents, Mapping) or any(hasattr(type(documents), name) for name in names)


def open_frame(frame: Frame) -> FrameSource | LazySource:
    """Return a document source that reads the rows of a frame, table, or dict of columns (Series, arrays, lists).

    Raises
    ------
    CorpusError
        It is one column, or holds values that are no column of Arrow; no value is named.
    """
    kind = type(frame)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    if isinstance(frame, Mapping):
        columns = {str(key): _arrow_column(values, f"{name} column {key}") for key, values in frame.items()}
        if len(set(map(len, columns.values()))) > 1:
            shown = ", ".join(f"{key} {len(values):,}" for key, values in columns.items())
            raise CorpusError(f"{name}: columns of unequal length: {shown}")
        return FrameSource(name, pa.table(columns))
    if hasattr(kind, "sink_parquet") and not hasattr(kind, "__arrow_c_stream__"):
        return _stream_query(frame, name)
    try:
        if hasattr(frame, "with_format"):
            table = frame.with_format("arrow")[:]
        elif hasattr(frame, "__arrow_c_stream__"):
            table = pa.RecordBatchReader.from_stream(frame).read_all()
        else:
            table = pa.Table.from_batches([pa.record_batch(frame)])
    except (pa.ArrowException, TypeError, ValueError) as error:  # its message may quote a value
        if len(getattr(frame, "shape", ())) == 1 or isinstance(frame, pa.Array | pa.ChunkedArray):
            reason = "one column; documents are a frame, or a dict of columns, with ids, individuals and texts"
        else:
            reason = f"cannot be taken as Arrow ({type(error).__name__}); give each column values of one type"
        raise CorpusError(f"{name}: {reason}") from None
    if not isinstance(table, pa.Table):
        raise CorpusError(f"{name}: a stream, and documents are read more than once; load it whole (streaming=False)")
    return FrameSource(name, table)


def _arrow_column(values: Any, where: str) -> pa.ChunkedArray:
    """Return a Series, array or list as an Arrow column; `CorpusError` if it is none of one type."""
    try:
        if isinstance(values, str | bytes):  # a list of its letters to Arrow
            raise TypeError
        return pa.chunked_array(values if hasattr(values, "__arrow_c_stream__") else [pa.array(values)])
    except (pa.ArrowException, TypeError, ValueError):
        raise CorpusError(f"{where}: expected a Series, an array or a list of values of one type") from None


class _InMemory(ABC):
    """Base of document sources that are a single table and not files of the caller; a `LocalSource`."""

    name: str
    kind = "memory"
    has_small_batches = False

    @abstractmethod
    def row_groups(self) -> list[int]:
        """Return the number of rows of each separately readable range of rows."""

    @abstractmethod
    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the requested columns of the requested ranges of rows as record batches."""

    @abstractmethod
    def _chunks(self) -> Mapping[str, Iterable[pa.Array]]:
        """Return a dict from column name to the column's values as Arrow arrays."""

    @property
    def place(self) -> Path | str:
        """Name of the frame, for error messages."""
        return self.name

    @property
    def fragments(self) -> tuple[_InMemory]:
        """The separately readable parts of the source: only this one."""
        return (self,)

    def settings(self) -> list[Any]:
        """Return the reading options that affect the documents: none."""
        return []

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in share number ``part`` of ``parts`` consecutive shares of all rows as record batches with
        these columns."""
        return batches_of_part(self.fragments, Request(columns=columns, batch_rows=batch_rows), part, parts)

    def version(self) -> bytes:
        """Return a hash (SHA-256) of names and values of all readable columns, computed once.

        It does not depend on who holds the frame, on its chunks, or on whether its strings are views, dictionaries or
        plain: the same rows are the same documents.
        """
        return self._version

    @cached_property
    def _version(self) -> bytes:
        """Hash (SHA-256, as bytes) of names and values of all readable columns."""
        digest = hashlib.sha256()
        for name, chunks in sorted(self._chunks().items()):
            digest.update(digest_of(name, chunks))
        return digest.digest()


@dataclass(frozen=True)
class FrameSource(_InMemory):
    """A document source that is an Arrow table in memory."""

    name: str
    table: pa.Table = field(repr=False)

    @cached_property
    def _columns(self) -> dict[str, pa.ChunkedArray]:
        """Columns of the frame by name. Dictionary-encoded string views, which Arrow cannot decode, are converted."""
        columns = {}
        for name, column in zip(self.table.column_names, self.table.columns, strict=True):
            if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
                column = column.cast(pa.dictionary(column.type.index_type, pa.large_string()))
            columns[name] = column
        return columns

    def row_groups(self) -> list[int]:
        """Return the number of rows of each separately readable range of rows."""
        num_rows = self.table.num_rows
        return [min(ROWS_PER_GROUP, num_rows - start) for start in range(0, num_rows, ROWS_PER_GROUP)]

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the requested columns and row groups as record batches."""
        require_columns(self.table.column_names, request.columns, self.name)
        table = pa.table({name: self._columns[name] for name in request.columns})
        if request.row_groups is None:
            yield from table.to_batches(request.batch_rows)
        else:
            for group in request.row_groups:
                yield from table.slice(group * ROWS_PER_GROUP, ROWS_PER_GROUP).to_batches(request.batch_rows)

    def _chunks(self) -> Mapping[str, Iterable[pa.Array]]:
        """Return a dict from column name to the column's chunks."""
        return {name: column.chunks for name, column in self._columns.items()}


def _stream_query(frame: Any, name: str) -> LazySource:
    """Execute a Polars query into an anonymous temporary file, and return a document source that reads it."""
    import polars as pl  # by who has such a frame alone

    file = tempfile.TemporaryFile(prefix="reticent-frame-")  # noqa: SIM115 - as long as the source
    try:
        named = frame.with_columns(pl.selectors.by_dtype(pl.Categorical, pl.Enum).cast(pl.String))
        named.sink_parquet(file, row_group_size=ROWS_PER_GROUP, statistics=False)
        names = tuple(named.collect_schema().names())
    except Exception as error:  # its message may quote a value
        file.close()
        if isinstance(error, OSError) and error.errno:
            raise
        raise CorpusError(f"{name}: the query fails ({type(error).__name__}); run it by itself to see why") from None
    file.flush()
    return LazySource(name, names, file)


@dataclass(frozen=True)
class LazySource(_InMemory):
    """A document source that is the result of a lazy query, in a private temporary file."""

    name: str
    names: tuple[str, ...]
    file: IO[bytes] = field(compare=False)

    @property
    def _path(self) -> Path:
        """Path of the open file; each reader opens it anew, with a position of its own."""
        return Path(f"/dev/fd/{self.file.fileno()}")

    def row_groups(self) -> list[int]:
        """Return the number of rows of each row group of the temporary file."""
        return row_groups(self._path)

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        """Yield the requested columns of the query's result as record batches."""
        require_columns(self.names, request.columns, self.name)
        try:
            yield from read_parquet(self._path, request)
        except (OSError, pa.ArrowException):
            raise CorpusError(f"{self.name}: what the query gave can no longer be read") from None

    def _chunks(self) -> Mapping[str, Iterable[pa.Array]]:
        """Return a dict from column name to an iterator over the column's values."""

        def chunks(name: str) -> Iterator[pa.Array]:
            """Yield the values of a column as Arrow arrays."""
            request = Request(columns=[name], batch_rows=ROWS_PER_GROUP)
            return (batch.column(0) for batch in read_parquet(self._path, request))

        return {name: chunks(name) for name in self.names}


def digest_of(name: str, chunks: Iterable[pa.Array]) -> bytes:
    """Return the joined SHA-256 digests of a column's validity, lengths and values, which do not depend on its chunks
    or Arrow's string layout; b"" for a type that is never read."""
    parts: dict[str, Any] = {}
    for chunk in chunks:
        for start in range(0, len(chunk), ROWS_PER_GROUP):
            try:
                _update_digests(chunk.slice(start, ROWS_PER_GROUP), name, parts)
            except pa.ArrowException:
                return b""  # a type that no column of documents has, so that it is never read
    return b"".join(part.encode() + digest.digest() for part, digest in sorted(parts.items()))


def _update_digests(array: pa.Array, path: str, parts: dict[str, Any]) -> None:
    """Add an array's validity, lengths and values to the digests in ``parts``; ``path`` names the (nested) column."""

    import pyarrow.compute as pc

    def add(part: str, data: Any) -> None:
        """Add bytes to the digest of one part of the column."""
        parts.setdefault(f"{path}/{part}", hashlib.sha256()).update(data)

    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    add("valid", array.is_valid().to_numpy(zero_copy_only=False))
    if pa.types.is_struct(kind):
        for field, values in zip(kind, array.flatten(), strict=True):
            _update_digests(values, f"{path}.{field.name}", parts)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        add("lengths", pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64()).to_numpy())
        _update_digests(pc.list_flatten(array), f"{path}[]", parts)
    else:
        values = array.cast(pa.large_string()).fill_null("")
        lengths = pc.binary_length(values)
        add("lengths", lengths.to_numpy())
        num_bytes = pc.sum(lengths).as_py() or 0
        if num_bytes:
            offsets, data = values.buffers()[1:]
            first = memoryview(offsets).cast("q")[values.offset]
            add("values", memoryview(data)[first : first + num_bytes])
