"""What a person sees while a job runs: a line for each stage, a bar while it works. Logs go to stderr.

Bars are drawn on a terminal only; elsewhere each stage is one line when it starts and one when it ends. Nothing
here ever sees text of a document: stages hand over counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Progress"]


class Progress:
    """Reports stages, tasks and warnings; ``quiet`` says nothing but warnings."""

    def __init__(self, *, quiet: bool = False):
        self.quiet = quiet
        #: Seconds each stage took, in the order they ended.
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, counts: dict[str, Any]) -> Iterator[None]:
        """Announce a stage; on the way out print its time and ``counts`` (filled while it ran)."""
        started = time.perf_counter()
        if not self._terminal():
            self._say(f"{name} …")
        yield
        self.seconds[name] = time.perf_counter() - started
        self._say(f"{name}: {_shown(counts) or 'done'} ({self.seconds[name]:.1f} s)")

    @contextmanager
    def task(self, description: str, total: int | None, unit: str) -> Iterator[Callable[..., None]]:
        """Yield ``advance(done, total=None, note="")``: how far this task is, in ``unit``."""
        if not self._terminal():
            yield lambda *args, **kwargs: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        with bars:
            task = bars.add_task(description, total=total, note="")

            def advance(done: Any = None, total: int | None = None, note: str = "") -> None:
                if isinstance(done, dict):  # the training loop reports its step as a dictionary
                    note = " ".join(f"{k} {done[k]:.3g}" for k in ("epoch", "loss") if k in done)
                    done, total = done.get("step", 0), done.get("num_steps", total)
                bars.update(
                    task,
                    completed=done,
                    total=total if total is not None else bars.tasks[task].total,
                    note=note,
                )

            yield advance

    def kept(self, name: str, counts: dict[str, Any]) -> None:
        """Say that a stage is up to date and was not run again."""
        self._say(f"{name}: up to date" + (f" ({shown})" if (shown := _shown(counts)) else ""))

    def warn(self, message: str) -> None:
        """Print a warning even when quiet."""
        print(f"warning: {message}", file=sys.stderr, flush=True)

    def _say(self, line: str) -> None:
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)

    def _terminal(self) -> bool:
        return not self.quiet and sys.stderr.isatty()


def _shown(counts: dict[str, Any]) -> str:
    parts = []
    for key, value in counts.items():
        if isinstance(value, float):
            parts.append(f"{key} {value:.3f}")
        elif isinstance(value, int):
            parts.append(f"{key} {value:,}")
        elif isinstance(value, dict) and isinstance(value.get("documents"), int):  # and more about them
            parts.append(f"{key} {value['documents']:,}")
        elif isinstance(value, str):  # which way a stage took
            parts.append(f"{key} {value}")
    return ", ".join(parts)
