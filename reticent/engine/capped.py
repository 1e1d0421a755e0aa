"""Capped supports: for each word of a view's documents those of the n-grams that begin there, four bits for each n.

They are kept where n-grams are looked up, in the order of the words, and answer every k from that of the look-up to
`CAP` without another: what a table of n-grams gives word by word from all over memory stands here in sequence. A
support of `CAP` or more is `CAP`; one under the k of the look-up may be 0. Supports of words themselves are not here:
they follow from the numbers of the words.

``supports_2.bin`` holds a byte a word: n = 2 in the lower four bits, n = 3 in the upper ones; ``supports_4.bin`` those
of n = 4 and 5, and so on up to the n of the look-up. They say of the text no more than word numbers and an index do.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import numpy as np

from reticent.core.errors import ArtifactError
from reticent.core.written import HashedFile
from reticent.engine.packed import mapped_column

__all__ = ["CAP", "CappedSupports", "CappedWriter"]

#: The largest support that is told from those above it, and so the largest k that is answered.
CAP = 15


def _name(plane: int) -> str:
    return f"supports_{2 * plane + 2}.bin"


class CappedWriter:
    """Appends the supports of documents to the planes of a folder."""

    def __init__(self, folder: Path, num_planes: int):
        self._files = [HashedFile(folder / _name(plane)) for plane in range(num_planes)]

    def __enter__(self) -> CappedWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for file in self._files:
            file.close()

    def write(self, planes: list[np.ndarray]) -> None:
        """Append the bytes of each plane, uint8 (W,)."""
        for file, plane in zip(self._files, planes, strict=True):
            file.write(plane)


class CappedSupports:
    """The planes of a folder, for so many words.

    Raises
    ------
    ArtifactError
        There are none, or they are of another number of words.
    """

    def __init__(self, folder: Path, num_words: int):
        self._planes: list[np.ndarray] = []
        while (path := folder / _name(len(self._planes))).exists():
            self._planes.append(mapped_column(path, np.dtype("u1"), num_words))
        if not self._planes:
            raise ArtifactError(f"{folder}: holds no supports; run protect again")

    def of(self, words: slice) -> list[np.ndarray]:
        """Return the bytes of each plane for a stretch of words."""
        return [plane[words] for plane in self._planes]
