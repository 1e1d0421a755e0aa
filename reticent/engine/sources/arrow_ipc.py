"""Arrow IPC: the record batches of one file, file format or stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.sources.columns import require_columns, sound
from reticent.engine.sources.source import Request

__all__ = ["read_arrow"]

#: End of an Arrow stream, now and in its first version.
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
