"""Documents in memory as a source: Arrow tables, Polars frames (eager and lazy), pandas frames, and dicts of columns.

Whatever speaks the Arrow PyCapsule interface is taken without a copy where its own memory is Arrow; strings that Arrow
holds otherwise (views, dictionaries) are cast batch by batch, as they are read. A frame must not be changed in place
while a corpus reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.protocol import Request, batches_of_part

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ArrowStream", "Frame", "FrameSource", "LazyFrame", "is_frame", "open_frame"]

#: Rows of a stretch that one thread reads.
ROWS_PER_GROUP = 8192


class ArrowStream(Protocol):
    """Anything with the Arrow PyCapsule interface: tables of pyarrow, polars, pandas, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object: ...


class LazyFrame(Protocol):
    """A query that becomes a frame: `polars.LazyFrame`. It is collected once, when it is opened."""

    def collect(self) -> ArrowStream: ...


Frame: TypeAlias = ArrowStream | LazyFrame | Mapping[str, Any]


def is_frame(documents: object) -> TypeGuard[Frame]:
    """Whether documents are columns in memory."""
    names = ("__arrow_c_stream__", "__arrow_c_array__", "collect")
    return isinstance(documents, Mapping) or any(hasattr(type(documents), name) for name in names)


def open_frame(frame: Frame) -> FrameSource:
    """Return a source of the rows of a frame, or of a dict of columns (Series, arrays, lists).

    Raises
    ------
    CorpusError
        It is one column, or holds values that are no column of Arrow; no value is named.
    """
    kind = type(frame)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    if isinstance(frame, Mapping):
        table = pa.table({str(key): _column(values, f"{name} column {key}") for key, values in frame.items()})
        return FrameSource(name, table)
    lazy: Any = frame
    is_lazy = hasattr(kind, "collect") and not hasattr(kind, "__arrow_c_stream__")
    collected = lazy.collect() if is_lazy else frame
    try:
        if hasattr(collected, "__arrow_c_stream__"):
            table = pa.RecordBatchReader.from_stream(collected).read_all()
        else:
            table = pa.Table.from_batches([pa.record_batch(collected)])
    except (pa.ArrowException, TypeError, ValueError) as error:  # its message may quote a value
        if len(getattr(collected, "shape", ())) == 1 or isinstance(collected, pa.Array | pa.ChunkedArray):
            reason = "one column; documents are a frame, or a dict of columns, with ids, individuals and texts"
        else:
            reason = f"cannot be taken as Arrow ({type(error).__name__}); give each column values of one type"
        raise CorpusError(f"{name}: {reason}") from None
    return FrameSource(name, table)


def _column(values: Any, where: str) -> pa.ChunkedArray:
    try:
        if isinstance(values, str | bytes):  # a list of its letters to Arrow
            raise TypeError
        return pa.chunked_array(values if hasattr(values, "__arrow_c_stream__") else [pa.array(values)])
    except (pa.ArrowException, TypeError, ValueError):
        raise CorpusError(f"{where}: expected a Series, an array or a list of values of one type") from None


@dataclass(frozen=True)
class FrameSource:
    """A table in memory, in one fragment; a `LocalSource`."""

    name: str
    table: pa.Table
    kind = "memory"
    has_small_batches = False

    @property
    def place(self) -> Path | str:
        return self.name

    @property
    def fragments(self) -> tuple[FrameSource]:
        return (self,)

    def settings(self) -> list[Any]:
        return []

    @cached_property
    def _columns(self) -> dict[str, pa.ChunkedArray]:
        """Columns as they are read: values of dictionaries are no views, which Arrow does not look up by number."""
        columns = {}
        for name, column in zip(self.table.column_names, self.table.columns, strict=True):
            if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
                column = column.cast(pa.dictionary(column.type.index_type, pa.large_string()))
            columns[name] = column
        return columns

    def row_groups(self) -> list[int]:
        num_rows = self.table.num_rows
        return [min(ROWS_PER_GROUP, num_rows - start) for start in range(0, num_rows, ROWS_PER_GROUP)]

    def read(self, request: Request) -> Iterator[pa.RecordBatch]:
        require_columns(self.table.column_names, request.columns, self.name)
        table = pa.table({name: self._columns[name] for name in request.columns})
        if request.row_groups is None:
            yield from table.to_batches(request.batch_rows)
        else:
            for group in request.row_groups:
                yield from table.slice(group * ROWS_PER_GROUP, ROWS_PER_GROUP).to_batches(request.batch_rows)

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        return batches_of_part(self.fragments, Request(columns=columns, batch_rows=batch_rows), part, parts)

    def version(self) -> bytes:
        """SHA-256 over names and values of the columns that can be read, by row.

        It does not depend on who holds the frame, on its chunks, or on whether its strings are views, dictionaries or
        plain: the same rows are the same documents.
        """
        return self._version

    @cached_property
    def _version(self) -> bytes:
        digest = hashlib.sha256()
        for name, column in sorted(self._columns.items()):
            digest.update(_digest_of(name, column))
        return digest.digest()


def _digest_of(name: str, column: pa.ChunkedArray) -> bytes:
    parts: dict[str, Any] = {}
    for chunk in column.chunks:
        for start in range(0, len(chunk), ROWS_PER_GROUP):
            try:
                _feed(chunk.slice(start, ROWS_PER_GROUP), name, parts)
            except pa.ArrowException:
                return b""  # a type that no column of documents has, so that it is never read
    return b"".join(part.encode() + digest.digest() for part, digest in sorted(parts.items()))


def _feed(array: pa.Array, path: str, parts: dict[str, Any]) -> None:
    """Add validity, lengths and values of an array to the digests of its column."""

    def add(part: str, data: Any) -> None:
        parts.setdefault(f"{path}/{part}", hashlib.sha256()).update(data)

    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    add("valid", array.is_valid().to_numpy(zero_copy_only=False))
    if pa.types.is_struct(kind):
        for field, values in zip(kind, array.flatten(), strict=True):
            _feed(values, f"{path}.{field.name}", parts)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        add("lengths", pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64()).to_numpy())
        _feed(pc.list_flatten(array), f"{path}[]", parts)
    else:
        values = array.cast(pa.large_string()).fill_null("")
        lengths = pc.binary_length(values)
        add("lengths", lengths.to_numpy())
        num_bytes = pc.sum(lengths).as_py() or 0
        if num_bytes:
            offsets, data = values.buffers()[1:]
            first = memoryview(offsets).cast("q")[values.offset]
            add("values", memoryview(data)[first : first + num_bytes])
