"""Progress on the terminal: a line for each stage of a job, and a bar while it runs. Logs go to stderr.

Bars are drawn on a terminal only; elsewhere each stage is one line when it starts and one when it ends, and an
experiment says now and then how far it is as a whole. Nothing here ever sees text of a document: stages hand over
counts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import ProgressColumn
from rich.text import Text

from reticent.core.eta import Plan, duration_text

#: Seconds between two lines about a whole experiment where there is no terminal.
SECONDS_BETWEEN_LINES = 60.0
SECONDS_BETWEEN_DRAWINGS = 0.25
#: Characters of a bar, and of the name of a stage: it is cut to fewer where there is no room, and padded to at most so
#: many where there is.
LEAST_BAR, MOST_BAR = 8, 20
LEAST_NAME, MOST_NAME = 8, 20


class Progress:
    """Reports stages, tasks and warnings on stderr; with ``quiet`` only warnings."""

    def __init__(self, *, quiet: bool = False):
        self.quiet = quiet
        #: Seconds each stage took, in the order they ended.
        self.seconds: dict[str, float] = {}
        #: Trainings and scorings of the experiment that runs, if one does.
        self.plan: Plan | None = None
        self._bars: Any = None
        self._whole: Any = None
        self._last_line = -SECONDS_BETWEEN_LINES
        self._up_to_date: dict[str, int] = {}
        #: Messages not shown again.
        self._told: set[str] = set()

    @contextmanager
    def stage(self, name: str, counts: dict[str, Any]) -> Iterator[None]:
        """Print that a stage begins, and at the end of the ``with`` block its time and its ``counts``, a dict that the
        block fills."""
        self._print_up_to_date()
        started = time.perf_counter()
        if self.plan is not None:
            self.plan.start(name)
            self._show_plan()
        if not self._is_terminal():
            self._say(f"{name} …")
        try:
            yield
        except BaseException:
            if self.plan is not None:
                self.plan.stop()
            raise
        self.seconds[name] = time.perf_counter() - started
        self._say(f"{name}: {shown_counts(counts) or 'done'} ({self.seconds[name]:.1f} s)")

    @contextmanager
    def experiment(self, plan: Plan) -> Iterator[None]:
        """Show the overall progress of ``plan`` and its expected finishing time while the ``with`` block runs."""
        self.plan = plan
        try:
            if not self._is_terminal():
                yield
            else:
                with self._new_bars() as self._bars:
                    self._whole = self._bars.add_task("all", total=len(plan.steps), left="", notes=(), unit="")
                    yield
            self._print_up_to_date()
        finally:
            self.plan = self._bars = self._whole = None

    def _show_plan(self) -> None:
        """Redraw the bar of the overall progress, or print a line if one is due."""
        if self.plan is None:
            return
        now, terminal = time.monotonic(), self._whole is not None
        if now - self._last_line < (SECONDS_BETWEEN_DRAWINGS if terminal else SECONDS_BETWEEN_LINES):
            return
        self._last_line = now
        if terminal:
            left, notes = self.plan.beside_a_bar()
            self._bars.update(self._whole, completed=len(self.plan.done), left=left, notes=notes)
        elif self.plan.left:
            self._say(f"whole experiment: {self.plan.line()}")

    @contextmanager
    def task(
        self, description: str, total: int | None, unit: str, portion: tuple[float, float] = (0.0, 1.0)
    ) -> Iterator[Callable[..., None]]:
        """Yield a callback ``advance(done, total=None, note="")`` that shows the progress of a task, counted in
        ``unit``. The task covers ``portion`` (start and end, 0 to 1) of the plan's running step."""
        bars = self._bars or (self._new_bars() if self._is_terminal() else None)
        if bars is None:
            yield lambda done=None, total_=None, note="", **_: self._advance_plan(done, total_ or total, portion)
            return
        if bars is not self._bars:
            bars.start()
        task = bars.add_task(description, total=total, left=None, notes=(), unit=unit)

        def advance(done: Any = None, total: int | None = None, note: str = "") -> None:
            """Update the progress bar and the plan; ``done`` is a number, or the training loop's report (a dict)."""
            reported = done
            if isinstance(done, dict):  # the training loop reports its step as a dictionary
                note = " ".join(f"{k} {done[k]:.3g}" for k in ("epoch", "loss") if k in done)
                done, total = done.get("step", 0), done.get("num_steps", total)
            total = total if total is not None else bars.tasks[bars.task_ids.index(task)].total
            bars.update(task, completed=done, total=total, notes=(note,) if note else ())
            self._advance_plan(reported, total, portion)

        try:
            yield advance
        finally:
            bars.remove_task(task)
            if bars is not self._bars:
                bars.stop()

    def _advance_plan(self, done: Any, total: int | None, portion: tuple[float, float]) -> None:
        """Set the completed share of the plan's running step, given that ``done`` of ``total`` are done in the step's
        range ``portion``."""
        if self.plan is None or self.plan.running is None:
            return
        began = 0
        if isinstance(done, dict):  # of the training loop, which may go on where it stopped, and reports every step
            done, total = done.get("step", 0), done.get("num_steps", total)
            began = max(done - 1, 0)
        if total and done is not None:
            begin, size = portion[0], portion[1] - portion[0]
            self.plan.advance(begin + size * done / total, began / total)
            self._show_plan()

    def _new_bars(self) -> Any:
        """Return a new Rich progress display on stderr."""
        console = Console(stderr=True)

        class Line(ProgressColumn):
            """A progress column that draws the whole line, so that it can be fitted to the terminal's width."""

            def render(self, task: Any) -> Text:
                """Return the whole progress line as Rich text."""
                line = Text.assemble(*_line_parts(task, console.width - 1), no_wrap=True)
                line.truncate(console.width - 1, overflow="ellipsis")
                return line

        return Bars(Line(), console=console, transient=True)

    def kept(self, name: str, counts: dict[str, Any]) -> None:
        """Print that a stage is up to date and so was not run. For the scorings of one model a single line is printed
        later."""
        if self.plan is not None:
            self.plan.skip(name)
            self._show_plan()
        if name.startswith("measures/"):
            of = "/".join(name.split("/")[:2])
            self._up_to_date[of] = self._up_to_date.get(of, 0) + 1
            return
        self._print_up_to_date()
        self._say(f"{name}: up to date" + (f" ({shown})" if (shown := shown_counts(counts)) else ""))

    def _print_up_to_date(self) -> None:
        """Print the collected lines on scorings that are up to date."""
        told, self._up_to_date = self._up_to_date, {}
        for name, number in told.items():
            self._say(f"{name}: {number:,} up to date")

    def say(self, line: str) -> None:
        """Print a line, unless quiet."""
        self._say(line)

    def warn(self, message: str) -> None:
        """Print a warning, even when quiet."""
        self._print(f"warning: {message}")

    def tell(self, message: str, *, is_warning: bool) -> None:
        """Print a message as a warning (even when quiet) or as a plain line (unless quiet)."""
        (self.warn if is_warning else self.say)(message)

    def say_once(self, line: str) -> None:
        """Print a line, unless quiet or printed before: several parts of a command open the same documents."""
        if line not in self._told:
            self._told.add(line)
            self.say(line)

    def warn_once(self, message: str) -> None:
        """Print a warning, even when quiet, unless it was printed before."""
        if message not in self._told:
            self._told.add(message)
            self.warn(message)

    def _say(self, line: str) -> None:
        """Print a line, unless quiet."""
        if not self.quiet:
            self._print(line)

    def _print(self, line: str) -> None:
        """Print a line to stderr, above the bars if there are any."""
        if self._bars is not None:  # above the bars, which stay below the messages
            self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def _is_terminal(self) -> bool:
        """Whether progress bars can be drawn: stderr is a terminal, and output is not quiet."""
        return not self.quiet and sys.stderr.isatty()


def _line_parts(task: Any, width: int) -> list[tuple[str, str]]:
    """Return the (text, style) pairs of one progress line: stage, count and time left, then as many of unit, note and
    bar as fit into the width."""
    done, total, unit = int(task.completed), task.total, task.fields["unit"]
    count = f"{done:,}" if total is None else f"{done:,}/{int(total):,}"
    left = task.fields["left"]
    if left is None:  # the whole experiment knows its own: its steps are not of one length
        left = "" if task.finished or task.time_remaining is None else f"{duration_text(task.time_remaining)} left"
    if width - len(count) - len(left) - 4 < LEAST_NAME:
        left = ""
    room = width - len(count) - len(left) - 4
    name = task.description if len(task.description) <= room else task.description[: max(room - 1, 1)] + "…"
    name = name.ljust(min(room, MOST_NAME))
    room -= len(name)
    if unit and len(unit) + 1 <= room:
        count, room = f"{count} {unit}", room - len(unit) - 1
    note = next((note for note in task.fields["notes"] if len(note) + 2 <= room), "")
    room -= len(note) + 2 if note else 0
    size = min(room - 2, MOST_BAR) if total else 0
    filled = round(size * min(done / total, 1.0)) if size >= LEAST_BAR else 0
    bar = [("━" * filled, "bar.complete"), ("━" * (size - filled), "bar.back"), ("  ", "")] if size >= LEAST_BAR else []
    ends = [(f"  {left}" if left else "", "progress.remaining"), (f"  {note}" if note else "", "")]
    return [(f"{name}  ", ""), *bar, (count, "progress.download"), *ends]


def shown_values(counts: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of a stage that are displayed: numbers and texts, and of each nested dict its number of
    documents (entry "documents") if it has one."""
    found: dict[str, Any] = {}
    for key, value in counts.items():
        if isinstance(value, int | float | str):
            found[key] = value
        elif isinstance(value, dict) and isinstance(value.get("documents"), int):  # and more about them
            found[key] = value["documents"]
    return found


def shown_counts(counts: dict[str, Any]) -> str:
    """Return the counts of a stage as one line of text, such as "documents 1,200, share 0.250"."""
    shown_as = {"long_documents": "documents of 30 words or more", "other_language": "of them in another language"}
    forms = ((float, ".3f"), (int, ","), (str, ""))
    return ", ".join(
        f"{shown_as.get(key, key)} {value:{next(form for kind, form in forms if isinstance(value, kind))}}"
        for key, value in shown_values(counts).items()
    )


# ----------------------------------------------------------------------------------------------------------- log lines
#
# Lines of the log, on stderr: text for a reader, or an object of JSON each, for a scheduler's collector.
#
# The environment says which: ``RETICENT_LOG_FORMAT`` is "text" (the default) or "json"; ``--log-format`` sets it. Each
# object has ``time`` (UTC), ``level`` ("info", "warning", "error") and ``message``; of a stage also ``stage``,
# ``state`` ("begun", "done", "up to date"), ``seconds`` and ``counts``. Like all messages they hold no text of a
# document.


VARIABLE: Final = "RETICENT_LOG_FORMAT"
FORMATS: Final = ("text", "json")


def is_json() -> bool:
    """Whether log lines are JSON objects."""
    return os.environ.get(VARIABLE) == "json"


def log(message: str, *, level: str = "info", text: str | None = None, **fields: Any) -> None:
    """Print one line of the log; ``text`` replaces the message in the text format."""
    if not is_json():
        print(message if text is None else text, file=sys.stderr, flush=True)
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps({"time": now, "level": level, "message": message, **fields}, ensure_ascii=False)
    print(line, file=sys.stderr, flush=True)


def log_warning(message: str) -> None:
    """Print a warning to the log, for code that has no `Progress`."""
    log(message, level="warning", text=f"warning: {message}")


class JsonProgress(Progress):
    """Progress as JSON lines: when a stage begins, ends or is up to date; no bars."""

    @contextmanager
    def stage(self, name: str, counts: dict[str, Any]) -> Iterator[None]:
        """Log that a stage begins, and at the end of the ``with`` block its seconds and its ``counts``, a dict that the
        block fills."""
        if self.plan is not None:
            self.plan.start(name)
            self._show_plan()
        self._log_stage(name, "begun")
        started = time.perf_counter()
        try:
            yield
        except BaseException:
            if self.plan is not None:
                self.plan.stop()
            raise
        self.seconds[name] = time.perf_counter() - started
        self._log_stage(name, "done", seconds=round(self.seconds[name], 3), counts=shown_values(counts))

    def kept(self, name: str, counts: dict[str, Any]) -> None:
        """Log that a stage is up to date and so was not run."""
        if self.plan is not None:
            self.plan.skip(name)
        self._log_stage(name, "up to date", counts=shown_values(counts))

    def _log_stage(self, name: str, state: str, **fields: Any) -> None:
        """Log the state of a stage with its counts."""
        if not self.quiet:
            shown = shown_counts(fields.get("counts", {}))
            log(f"{name}: {state}" + (f" ({shown})" if shown else ""), stage=name, state=state, **fields)

    def warn(self, message: str) -> None:
        """Log a warning, even when quiet."""
        log(message, level="warning")

    def _print(self, line: str) -> None:
        """Log a line."""
        log(line)

    def _is_terminal(self) -> bool:
        """Return False: no bars are drawn."""
        return False
