"""Reading files that may be compressed (gzip, Zstandard, bzip2), unpacked as a stream.

Memory is bounded by the number of bytes asked for. A file that ends too early or has another content is an error and
never a short read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from reticent.core.errors import CorpusError

COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
#: Number of bytes that readers of lines and rows ask for at once.
NUM_BYTES_PER_BLOCK = 16 << 20
#: Bytes of nothing but white space at a stretch: a few bytes unpack to any number of them.
MAX_BLANK = 64 << 20


class Bytes(Protocol):
    """A readable stream of bytes."""

    def read(self, num_bytes: int, /) -> bytes:
        """Return the next ``num_bytes`` bytes; fewer only at the end."""


@contextmanager
def open_bytes(file: Path) -> Iterator[Bytes]:
    """Open a file as a byte stream; it is unpacked if its suffix names a compression.

    Raises
    ------
    OSError
        The file cannot be opened or read.
    CorpusError
        A compressed file is cut short or damaged.
    """
    compression = COMPRESSIONS.get(file.suffix.lower())
    if compression is None:
        with file.open("rb") as plain:
            yield plain
        return
    with file.open("rb") as packed:
        if not packed.read(1):
            raise CorpusError(f"{file}: an empty file, and not {compression}")
        packed.seek(0)
        with pa.input_stream(packed, compression=compression) as stream:
            yield _Unpacked(stream, file, compression)


class _Unpacked:
    """A stream of a compressed file, whose errors say what to do."""

    def __init__(self, stream: Any, file: Path, compression: str):
        self._stream, self._file, self._compression, self._blank = stream, file, compression, 0

    def read(self, num_bytes: int, /) -> bytes:
        """Return the next ``num_bytes`` unpacked bytes, fewer only at the end; `CorpusError` if the compressed data is
        damaged."""
        try:
            data: bytes = self._stream.read(num_bytes)
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            what = "it ends too early" if "runcated" in str(error) else "damaged, or of another kind"
            raise CorpusError(
                f"{self._file}: cannot be unpacked as {self._compression} ({what}); copy or make it again"
            ) from None
        self._blank = self._blank + len(data) if data.isspace() else 0
        if self._blank > MAX_BLANK:
            raise CorpusError(f"{self._file}: more than {MAX_BLANK >> 20} MiB of blank lines and no row among them")
        return data
