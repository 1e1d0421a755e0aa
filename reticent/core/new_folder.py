"""Folders that are handed to others: what is written there is whole, or nothing of it stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reticent.core.errors import ArtifactError, ReticentError
from reticent.core.locks import signals_deferred

__all__ = ["new_folder", "require_new", "writing_to"]


def require_new(out: Path) -> None:
    """Raise `ArtifactError` unless ``out`` is new or an empty folder, or a link to one."""
    if os.path.lexists(out) and (not out.is_dir() or any(out.iterdir())):
        raise ArtifactError(f"{out}: a file, a link to no folder, or not empty; choose a new folder")


@contextmanager
def writing_to(out: Path) -> Iterator[None]:
    """Raise `ArtifactError` with the name ``out`` where the block cannot write: a full disk names no file."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ReticentError) or error.errno is None:
            raise
        raise ArtifactError(f"{out}: not written ({os.strerror(error.errno)})") from error


@contextmanager
def new_folder(out: Path) -> Iterator[None]:
    """Make the folder ``out`` (0700) for the block to fill; an error or a signal leaves it as it was, new or empty.

    The folder has its name from the beginning, since an empty one may be a disk that no other can take the place of.

    Raises
    ------
    ArtifactError
        As :func:`require_new` says, or ``out`` cannot be written.
    """
    require_new(out)
    was_there = out.exists()
    try:
        with writing_to(out):
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield
    except BaseException:
        with signals_deferred(), suppress(OSError):
            _empty(out)
            if not was_there:
                out.rmdir()
        raise


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
