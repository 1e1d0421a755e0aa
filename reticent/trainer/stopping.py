"""A request to stop (SIGTERM, SIGHUP, Ctrl-C) is deferred until the training has saved its state.

The first signal is recorded. When the block ends, the previous handler gets it, so the program ends as it would have
without this module. A second signal goes to the previous handler at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Stop", "graceful_stop"]

SIGNALS: tuple[int, ...] = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(slots=True)
class Stop:
    """The signals that this process has received."""

    came: list[int] = field(default_factory=list)

    @property
    def asked(self) -> bool:
        return bool(self.came)


@contextmanager
def graceful_stop() -> Iterator[Stop]:
    """Yield the signals received while the block runs. Only the main thread can defer signals; others do nothing."""
    stop = Stop()
    before: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        if stop.came:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        stop.came.append(number)

    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # `nohup`; a handler that is not Python's
                before[number] = signal.signal(number, note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if stop.came:
            signal.raise_signal(stop.came[0])
