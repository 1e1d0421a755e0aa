"""Locks of artefacts, and signals that wait while one is cleaned up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reticent.core.errors import ArtifactError
from reticent.core.manifest import reason

__all__ = ["InUseError", "locked", "signals_deferred"]


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Hold signals back, so that a second Ctrl-C does not stop the clean-up that the first one began."""
    came: list[int] = []
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # which alone gets them
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handlers[each] = signal.signal(each, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler if handler is not None else signal.SIG_DFL)
        for number in came:
            signal.raise_signal(number)


class InUseError(ArtifactError):
    """Another process has the lock."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the artefact's lock; `ArtifactError` when another process has it."""
    # Imported here: it takes 35 ms, which `--help` would pay too. A lock costs 0.15 ms (flock by hand: 0.02) and is
    # let go by name: a process forked meanwhile, which has the file open too, does not hold it on.
    from filelock import FileLock, Timeout

    # No fall-back to a lock that is a file's existence: a process that is killed would leave it locked for good.
    lock = FileLock(path.parent / f".{path.name}.lock", mode=0o600, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise InUseError(f"{path}: in use by another process; wait until it ends, or stop it") from None
    except OSError as error:
        raise ArtifactError(f"{path.parent}: cannot be written ({reason(error)})") from None
    try:
        yield
    finally:
        lock.release()
