"""Deleting results so that no half of one is ever taken for a whole."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from reticent.core.manifest import MANIFEST

__all__ = ["delete", "discard"]


def delete(path: Path) -> None:
    """Delete a file or folder; the manifest first, so that a half-deleted artefact is never recovered."""
    if path.is_dir():
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path)
    else:
        path.unlink()


def discard(backup: Path, under: Path) -> None:
    """Delete a backup under a name that is ours also when half of it is gone; where a full disk has no room for that
    name, under its own.
    """
    with suppress(OSError):
        backup.rename(under)
    for left in (under, backup):
        if left.exists():
            delete(left)
