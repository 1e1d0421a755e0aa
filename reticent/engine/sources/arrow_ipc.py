"""Arrow IPC: the record batches of one file, file format or stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.source import Request

__all__ = ["read_arrow", "sound"]

#: What ends an Arrow stream, now and in its first version.
END_MARKERS: Final = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")


def read_arrow(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the columns of an Arrow file or stream, whose buffers are mapped and not copied."""
    columns = list(request.columns)
    with pa.memory_map(str(file)) as source:
        is_file = source.size() >= 6 and source.read(6) == b"ARROW1"
        source.seek(0)
        if is_file:
            reader = pa.ipc.open_file(source)
            require_columns(reader.schema.names, columns, file)
            for number in range(reader.num_record_batches):
                yield sound(reader.get_batch(number).select(columns))
        else:
            stream = pa.ipc.open_stream(source)
            require_columns(stream.schema.names, columns, file)
            at = source.tell()
            for batch in stream:
                yield sound(batch.select(columns))
                at = source.tell()
            _check_end(source, at, file)


def _check_end(source: pa.MemoryMappedFile, at: int, file: Path) -> None:
    """Refuse a stream that was cut between two batches, which its reader takes for its end, and one before another."""
    end = source.tell()
    source.seek(at)
    if source.read(end - at) not in END_MARKERS:
        raise CorpusError(f"{file}: an Arrow stream without its end marker: it was cut, and rows are missing")
    if end < source.size():
        raise CorpusError(f"{file}: {source.size() - end:,} bytes follow the end marker of its Arrow stream, unread")


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Check that every offset and index of a batch lies inside its data, which no reader does for a damaged file."""
    for array in batch.columns:
        if isinstance(array, pa.DictionaryArray):
            pa.DictionaryArray.from_arrays(array.indices, _as_bytes(array.dictionary)).validate(full=True)
        else:
            _as_bytes(array).validate(full=True)
    return batch


def _as_bytes(array: pa.Array) -> pa.Array:
    """View text as bytes, since whether it is UTF-8 is checked later, where the row can be named."""
    views = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    return array.view(views[array.type]) if array.type in views else array
