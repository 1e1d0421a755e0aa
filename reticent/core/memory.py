"""Memory of this process: its use, and the message when it is exhausted.

Where the core asks for memory in vain it says the same and ends the process (``rust_ext/src/allocator.rs``).
"""

from __future__ import annotations

import errno
import os
import resource
import sys
import threading
from pathlib import Path

from reticent import _rust

OUT_OF_MEMORY = (
    "out of memory; allow more, use fewer threads (num_threads), and let counting write to disk (memory_limit)"
)
#: Messages of the system's loader for a library that there is no room for, and of Python for a thread.
NO_ROOM = (
    "cannot allocate memory",
    "cannot map zero-fill pages",
    "can't start new thread",
    "failed to map segment",
    "resource temporarily unavailable",
)
#: Address space that a process needs to load its libraries, one of which ends it without a word that is ours.
LEAST_ADDRESS_SPACE = 350 << 20


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes (Linux; elsewhere its peak)."""
    return _resident_and_shared()[0]


def own_bytes() -> int:
    """Return the resident memory of this process in bytes, without mapped files, which the system can drop (Linux;
    elsewhere its peak)."""
    resident, shared = _resident_and_shared()
    return resident - shared


def _resident_and_shared() -> tuple[int, int]:
    """Return the resident memory of this process in bytes, and how much of it is file-backed or shared."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except (OSError, ValueError):
        return _peak_by_the_system(), 0
    return resident * os.sysconf("SC_PAGE_SIZE"), shared * os.sysconf("SC_PAGE_SIZE")


class OwnMemory:
    """Context manager that records the peak of `own_bytes`, sampled fifty times a second: no system counts it."""

    def __init__(self) -> None:
        self.peak = 0
        self._ended = threading.Event()

    def __enter__(self) -> OwnMemory:
        threading.Thread(target=self._watch, name="memory", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        """Sample the memory use of this process every 20 ms, and keep the highest value in ``peak``, until the
        measurement ends."""
        while not self._ended.wait(0.02):
            self.peak = max(self.peak, own_bytes())


def _peak_by_the_system() -> int:
    """Return the peak resident memory of this process in bytes, as the system reports it; on Linux that includes what
    ran in the process before this program.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def explain_abort() -> None:
    """Install a handler that prints `OUT_OF_MEMORY` when a library aborts the process for lack of memory; for the
    command line only, as signals belong to the process."""

    _rust.explain_abort()


def lacks_address_space() -> bool:
    """Whether the address-space limit (``ulimit -v``) is too small to load the libraries."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one in its chain of causes and contexts, means that memory is exhausted."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if isinstance(found, MemoryError) or (isinstance(found, OSError) and found.errno == errno.ENOMEM):
            return True
        of_system = isinstance(found, ImportError | OSError | RuntimeError) or type(found).__module__ == "pyarrow.lib"
        if of_system and any(sign in str(found).lower() for sign in NO_ROOM):
            return True
        found = found.__cause__ or found.__context__
    return False
