"""Files that are hashed while they are written, so that they need not be read again for it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

__all__ = ["HashedFile", "written_digest"]

#: (device, inode) -> size, time of the last change, and SHA-256 of a file as it was closed here.
_known: dict[tuple[int, int], tuple[int, int, str]] = {}


class HashedFile:
    """A new file that bytes are appended to; `close` keeps its SHA-256 for `written_digest`."""

    def __init__(self, path: Path):
        self._file = path.open("xb", buffering=0)
        self._digest = hashlib.sha256()

    def write(self, data: Any) -> None:
        """Append a buffer of bytes, whole."""
        left = memoryview(data).cast("B")
        self._digest.update(left)
        while left:
            left = left[self._file.write(left) :]

    def close(self) -> None:
        about = os.fstat(self._file.fileno())
        _known[about.st_dev, about.st_ino] = (about.st_size, about.st_mtime_ns, self._digest.hexdigest())
        self._file.close()


def written_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file as this process wrote it, once; None of any other, or one that was changed since."""
    about = path.stat()
    size, changed, digest = _known.pop((about.st_dev, about.st_ino), (-1, -1, ""))
    return digest if (size, changed) == (about.st_size, about.st_mtime_ns) else None
