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
            with _held(left, fcntl.LOCK_NB):
                if left.stat().st_uid == os.getuid() and any(left.iterdir()):  # an empty one is just being made
                    shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # its process is alive, or it is gone


@contextmanager
def _held(folder: Path, wait: int = 0) -> Iterator[None]:
    """Hold a folder as in use, until this process ends however it does; with ``LOCK_NB`` raise `OSError` where another
    process has it."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | wait)
        yield
    finally:
        os.close(number)
