"""Temporary folders that outlive a killed process only until the next one asks for a folder of the same name."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["VERIFY", "delete_left", "held_folder"]

#: Prefix of the folder in a run where a training's targets are drawn again.
VERIFY = ".verify-"
#: The file in such a folder that its process holds locked. A folder without it is not ours, whatever its name.
HELD = ".held"


@contextmanager
def held_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder (0700) in ``parent`` (default: that of the system), and delete it in the end.

    Those that :func:`delete_left` finds are deleted first.
    """
    parent = parent or Path(tempfile.gettempdir())
    delete_left(prefix, parent)
    made = tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
    with made, _held(Path(made.name)):
        yield Path(made.name)


def delete_left(prefix: str, parent: Path) -> None:
    """Delete the temporary folders of this prefix and user that a killed process left; a living one holds its own."""
    for left in parent.glob(f"{prefix}*"):
        try:
            with _held(left, fcntl.LOCK_NB, new=False):
                if left.stat().st_uid == os.getuid():
                    shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # its process is alive, or it is none of ours


@contextmanager
def _held(folder: Path, wait: int = 0, *, new: bool = True) -> Iterator[None]:
    """Hold a folder as in use, until this process ends however it does; with ``LOCK_NB`` raise `OSError` where another
    process has it. The lock is on a file, which network file systems know of between hosts, and not on the folder."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if new else 0)
        number = os.open(HELD, flags, mode=0o600, dir_fd=inside)
    finally:
        os.close(inside)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | wait)
        yield
    finally:
        os.close(number)
