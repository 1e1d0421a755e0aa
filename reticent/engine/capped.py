"""Capped supports: for each word of a view's documents those of the n-grams that begin there, four bits for each n.

They are kept where n-grams are looked up, in the order of the words, and answer every k from that of the look-up to
`CAP` without another: what a table of n-grams gives word by word from all over memory stands here in sequence. A
support of `CAP` or more is `CAP`; one under the k of the look-up may be 0. Supports of words themselves are not here:
they follow from the numbers of the words.

A plane has a byte a word: plane 2 has n = 2 in the lower four bits and n = 3 in the upper ones, plane 4 n = 4 and 5,
and so on up to the n of the look-up. ``supports_2.bin`` holds the words of plane 2 in frames of `FRAME`, compressed by
LZ4 (most are `CAP`: a quarter of a byte a word; Zstandard takes a third less and costs a first run 2 % of its views),
and ``ends_2.bin`` the bytes up to the end of each, int64. They say of the text no more than word numbers and an index.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from reticent.core.artifact import HashedFile
from reticent.core.errors import ArtifactError
from reticent.engine.packed import mapped_column

__all__ = ["CAP", "CappedSupports", "CappedWriter"]

#: The largest support that is told from those above it, and so the largest k that is answered.
CAP = 15
#: Words that are compressed together: little beside those that are read at a time, which begin anywhere.
FRAME = 1 << 18
CODEC = "lz4_raw"


def _names(plane: int) -> tuple[str, str]:
    return f"supports_{2 * plane + 2}.bin", f"ends_{2 * plane + 2}.bin"


class _Frames:
    """Appends the bytes of one plane."""

    def __init__(self, folder: Path, plane: int):
        self._file, self._ends = (HashedFile(folder / name) for name in _names(plane))
        self._codec = pa.Codec(CODEC)
        self._pending, self._num_bytes = np.empty(0, dtype=np.uint8), 0

    def write(self, supports: np.ndarray) -> None:
        left = np.concatenate([self._pending, supports])
        num_whole = len(left) // FRAME * FRAME
        for first in range(0, num_whole, FRAME):
            self._write_frame(left[first : first + FRAME])
        self._pending = left[num_whole:]

    def _write_frame(self, supports: np.ndarray) -> None:
        frame = self._codec.compress(pa.py_buffer(supports), asbytes=True)
        self._file.write(frame)
        self._num_bytes += len(frame)
        self._ends.write(np.array([self._num_bytes], dtype="<i8"))

    def close(self) -> None:
        if len(self._pending):
            self._write_frame(self._pending)
        self._file.close()
        self._ends.close()


class CappedWriter:
    """Appends the supports of documents to the planes of a folder."""

    def __init__(self, folder: Path, num_planes: int):
        self._planes = [_Frames(folder, plane) for plane in range(num_planes)]

    def __enter__(self) -> CappedWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for plane in self._planes:
            plane.close()

    def write(self, planes: list[np.ndarray]) -> None:
        """Append the bytes of each plane, uint8 (W,)."""
        for plane, supports in zip(self._planes, planes, strict=True):
            plane.write(supports)


class CappedSupports:
    """The planes of a folder, for so many words. Any number of threads may read them.

    Raises
    ------
    ArtifactError
        There are none, or they are of another number of words.
    """

    def __init__(self, folder: Path, num_words: int):
        self._folder, self._num_words = folder, num_words
        self._planes: list[tuple[np.ndarray, np.ndarray]] = []
        while (folder / _names(len(self._planes))[0]).exists():
            frames, ends = (folder / name for name in _names(len(self._planes)))
            bounds = np.concatenate([[0], mapped_column(ends, np.dtype("<i8"), -(-num_words // FRAME))])
            if (np.diff(bounds) <= 0).any():
                raise self._damaged()
            self._planes.append((mapped_column(frames, np.dtype("u1"), int(bounds[-1])), bounds))
        if not self._planes:
            raise ArtifactError(f"{folder}: holds no supports; run protect again")

    def of(self, words: slice) -> list[np.ndarray]:
        """Return the bytes of each plane for a stretch of words."""
        return [self._read(*plane, words.start, words.stop) for plane in self._planes]

    def _read(self, frames: np.ndarray, bounds: np.ndarray, start: int, stop: int) -> np.ndarray:
        codec, first = pa.Codec(CODEC), start // FRAME
        parts = [np.empty(0, dtype=np.uint8)]
        for number in range(first, -(-stop // FRAME) if stop > start else first):
            frame = pa.py_buffer(frames[bounds[number] : bounds[number + 1]])
            num_words = min(FRAME, self._num_words - number * FRAME)
            try:
                parts.append(np.frombuffer(codec.decompress(frame, num_words), dtype=np.uint8))
            except (OSError, pa.ArrowException):
                raise self._damaged() from None
            if len(parts[-1]) != num_words:
                raise self._damaged()
        return np.concatenate(parts)[start - first * FRAME : stop - first * FRAME]

    def _damaged(self) -> ArtifactError:
        return ArtifactError(f"{self._folder}: supports that cannot be read; damaged, run protect again")
