"""Somebody who is not root: root may read and write anything, so a test of permissions needs another user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[Path]:
    """Yield a folder of a user who is not root, as that user."""
    with tempfile.TemporaryDirectory() as name:
        folder, user = Path(name), os.geteuid()
        if user == 0:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            if user == 0:
                os.seteuid(0)
