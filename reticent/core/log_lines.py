"""Lines of the log, on stderr: text for a reader, or an object of JSON each, for a scheduler's collector.

The environment says which: ``RETICENT_LOG_FORMAT`` is "text" (the default) or "json"; ``--log-format`` sets it. Each
object has ``time`` (UTC), ``level`` ("info", "warning", "error") and ``message``; of a stage also ``stage``, ``state``
("begun", "done", "up to date"), ``seconds`` and ``counts``. Like all messages they hold no text of a document.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from reticent.core.progress import Progress, countable, shown_counts

__all__ = ["FORMATS", "VARIABLE", "JsonProgress", "is_json", "log"]

VARIABLE: Final = "RETICENT_LOG_FORMAT"
FORMATS: Final = ("text", "json")


def is_json() -> bool:
    """Whether lines are objects of JSON."""
    return os.environ.get(VARIABLE) == "json"


def log(message: str, *, level: str = "info", text: str | None = None, **fields: Any) -> None:
    """Print one line of the log; ``text`` is the line for a reader where that is not the message."""
    if not is_json():
        print(message if text is None else text, file=sys.stderr, flush=True)
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps({"time": now, "level": level, "message": message, **fields}, ensure_ascii=False)
    print(line, file=sys.stderr, flush=True)


class JsonProgress(Progress):
    """Progress as lines of JSON: one where a stage begins, one where it ends or is up to date; no bars."""

    @contextmanager
    def stage(self, name: str, counts: dict[str, Any]) -> Iterator[None]:
        """Announce a stage; on the way out say its seconds and counts."""
        if self.plan is not None:
            self.plan.start(name)
            self._show_plan()
        self._tell_stage(name, "begun")
        started = time.perf_counter()
        try:
            yield
        except BaseException:
            if self.plan is not None:
                self.plan.stop()
            raise
        self.seconds[name] = time.perf_counter() - started
        self._tell_stage(name, "done", seconds=round(self.seconds[name], 3), counts=countable(counts))

    def kept(self, name: str, counts: dict[str, Any]) -> None:
        """Say that a stage is up to date."""
        if self.plan is not None:
            self.plan.skip(name)
        self._tell_stage(name, "up to date", counts=countable(counts))

    def _tell_stage(self, name: str, state: str, **fields: Any) -> None:
        if not self.quiet:
            shown = shown_counts(fields.get("counts", {}))
            log(f"{name}: {state}" + (f" ({shown})" if shown else ""), stage=name, state=state, **fields)

    def warn(self, message: str) -> None:
        """Print a warning even when quiet."""
        log(message, level="warning")

    def _print(self, line: str) -> None:
        log(line)

    def _terminal(self) -> bool:
        return False
