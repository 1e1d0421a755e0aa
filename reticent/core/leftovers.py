"""Names of folders that are no results, or no longer: temporary and unfinished ones, backups, and where they lie."""

from __future__ import annotations

import glob
import os
import re
import uuid
from pathlib import Path

from reticent.core.manifest import MANIFEST

__all__ = ["backup_of", "interrupted_in", "is_vacant", "leftovers_of", "parts_of", "temporary_of"]


def backup_of(path: Path) -> Path:
    """Where the old result stands while the new one takes its place."""
    return path.parent / f".{path.name}.old"


def temporary_of(path: Path) -> Path:
    """A new name for a result that is not finished."""
    return path.parent / f".{path.name}.tmp-{uuid.uuid4().hex[:12]}"


def parts_of(path: Path) -> list[Path]:
    """Folders that unfinished writers of ``path`` left to go on from."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.part-{'[0-9a-f]' * 12}"))


def leftovers_of(path: Path) -> list[Path]:
    """Leftovers of an interrupted writer of ``path`` beside it. A backup is ours if it holds a result."""
    found = list(path.parent.glob(f".{glob.escape(path.name)}.tmp-{'[0-9a-f]' * 12}"))
    return [*found, backup] if ((backup := backup_of(path)) / MANIFEST).exists() else found


def is_vacant(path: Path) -> bool:
    """Whether a place is free for a rename: nothing is there, or the empty folder of a move that was interrupted."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def interrupted_in(folder: Path) -> list[Path]:
    """Places in a run folder, links followed, beside which a writer left something."""
    found = set()
    for name, folders, files in os.walk(folder, followlinks=True):
        real = Path(os.path.realpath(name))
        if MANIFEST in files:
            folders.clear()
            continue
        for entry in (*folders, *files):
            if match := re.fullmatch(r"\.(.+)\.(old|tmp-[0-9a-f]{12})", entry):
                if match[2] != "old" or (real / entry / MANIFEST).exists():
                    found.add(real / match[1])
            elif (real / entry).is_symlink() and leftovers_of(there := Path(os.path.realpath(real / entry))):
                found.add(there)
        deepest = len(Path(name).relative_to(folder).parts) == 3  # models/MODEL/RECIPE/seed-0
        folders[:] = [entry for entry in folders if not entry.startswith(".") and not deepest]
    return sorted(found)
