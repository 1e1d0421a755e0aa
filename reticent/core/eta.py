"""Estimated time to completion of an experiment: its trainings, classifications and scorings.

The expected end is computed from speeds that were measured on the same model. It is None until every sort of work that
is left was measured: an estimate without a measurement is worse than none. Work is counted in tokens that pass through
a model, so the speed is in tokens a second. Speeds of earlier runs are read from ``.timings.jsonl`` of the run folder,
which has the seconds of every artefact; speeds of this process come first. That file is no result: results are the same
bytes however long they took.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reticent.core.json_toml import parse_json

# ----------------------------------------------------------------------------------------------------------- durations
#
# Durations and times of day in words.


def clock_time(at: float, now: float) -> str:
    """Return the time ``at`` as text such as "14:05", with the day if it is not that of ``now``; both are in seconds
    since 1970."""
    then = time.localtime(at)
    today = time.strftime("%Y%j", then) == time.strftime("%Y%j", time.localtime(now))
    return time.strftime("%H:%M" if today else "%a %d %b %H:%M", then)


def duration_text(seconds: float) -> str:
    """Return a duration as text in its largest unit or two, such as "45 s" or "3 h 20 min"."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


TIMINGS = ".timings.jsonl"
#: A running step has a speed of its own once this share of it is done, after at least this many seconds.
ENOUGH = 0.02
ENOUGH_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One training, classification (from all checkpoints of a training) or scoring, with its cost in tokens.

    Attributes
    ----------
    name : str, of its artefact
    title : str, as it is printed
    work : float, tokens that pass through the model, counted once for each pass
    """

    name: str
    title: str
    kind: Literal["train", "classify", "score"]
    model: str
    recipe: str
    work: float

    @property
    def speed_key(self) -> tuple[str, str, str]:
        """Key under which speeds are averaged: kind, model and recipe."""
        return self.kind, self.model, self.recipe


class Timings:
    """Log of the seconds that each artefact of a run folder took: a private file, one JSON line each."""

    def __init__(self, folder: Path):
        self._path = folder / TIMINGS

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the logged duration in seconds and work in tokens of each artefact (stored result), by name. The last
        entry counts; unreadable lines are skipped."""
        found: dict[str, dict[str, Any]] = {}
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return found
        for line in lines:
            try:
                entry = parse_json(line)
                found[entry["name"]] = {"seconds": float(entry["seconds"]), "work": entry.get("work")}
            except (ValueError, TypeError, KeyError):  # cut off by a crash
                continue
        return found

    def add(self, name: str, seconds: float, work: float | None = None) -> None:
        """Append the duration (and tokens processed) of an artefact to the log; errors are ignored, as timings never
        affect results."""
        line = json.dumps({"name": name, "seconds": round(seconds, 3), "work": work}) + "\n"
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(line)


class Plan:
    """The steps of an experiment, followed by `start`, `advance`, `finish` and `skip`, with the estimated end.

    Parameters
    ----------
    done : names of the steps that look up to date at the start
    earlier : name -> {"seconds", "work"} of earlier runs (:meth:`Timings.read`)
    """

    def __init__(
        self,
        steps: Iterable[Work],
        *,
        done: Iterable[str] = (),
        earlier: dict[str, dict[str, Any]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.steps = {step.name: step for step in steps}
        self.done = set(done) & self.steps.keys()
        self.running: Work | None = None
        self._clock = clock
        self._earlier: dict[tuple[str, ...], list[float]] = {}
        self._measured: dict[tuple[str, ...], list[float]] = {}
        for name, entry in (earlier or {}).items():
            if name in self.steps and entry["work"]:
                self._add_to_totals(self._earlier, self.steps[name], entry["work"], entry["seconds"])
        #: Share at the first report of the running step, and the time of that report; None before it.
        self._seen: float | None = None
        self._seen_at = self._started = self._began = self._share = 0.0

    @staticmethod
    def _add_to_totals(totals: dict[tuple[str, ...], list[float]], step: Work, work: float, seconds: float) -> None:
        """Add the tokens (``work``) and seconds of a finished step to two entries of ``totals``: one for steps of the
        same kind, model and recipe, one for steps of the same kind and model."""
        for key in (step.speed_key, step.speed_key[:2]):
            total = totals.setdefault(key, [0.0, 0.0])
            total[0] += work
            total[1] += seconds

    def start(self, name: str) -> None:
        """Mark a step as running; names that are not in the plan are ignored."""
        self.running = self.steps.get(name)
        self.done.discard(name)
        self._started, self._seen, self._began, self._share = self._clock(), None, 0.0, 0.0

    def advance(self, share: float, began: float = 0.0) -> None:
        """Set the completed share (0 to 1) of the running step. ``began`` is the share that was complete when an
        interrupted step was resumed."""
        if self.running is None:
            return
        if self._seen is None:
            self._seen, self._seen_at, self._began = share, self._clock(), began
        self._share = share

    def finish(self) -> float | None:
        """Mark the running step as done; return the number of tokens processed in it, None if no step is running."""
        step, self.running = self.running, None
        if step is None:
            return None
        work = step.work * (1 - self._began)
        self._add_to_totals(self._measured, step, work, self._clock() - self._started)
        self.done.add(step.name)
        return work

    def stop(self) -> None:
        """Record that the running step has failed: no step is running any more."""
        self.running = None

    def skip(self, name: str) -> None:
        """Mark a step as done because it is up to date."""
        if name in self.steps:
            self.done.add(name)

    def speed(self, step: Work) -> float | None:
        """Return the measured speed, in tokens a second, for a step like this one; None if none was measured."""
        if step is self.running and (own := self._own_speed()):
            return own
        for measured in (self._measured, self._earlier):
            for key in (step.speed_key, step.speed_key[:2]):
                if key in measured and measured[key][1] > 0:
                    return measured[key][0] / measured[key][1]
        if self.running is not None and step.speed_key[:2] == self.running.speed_key[:2]:
            return self._own_speed()
        return None

    def _own_speed(self) -> float | None:
        """Return the speed of the running step, in tokens a second; None until enough of it is done."""
        assert self.running is not None
        if self._seen is None:
            return None
        share, seconds = self._share - self._seen, self._clock() - self._seen_at
        return self.running.work * share / seconds if share >= ENOUGH and seconds >= ENOUGH_SECONDS else None

    def remaining_seconds(self) -> float | None:
        """Return the estimated seconds until all steps are done; None while a speed is unknown."""
        total = 0.0
        for step in self.left:
            speed = self.speed(step)
            if not speed:
                return None
            total += step.work * (1 - (self._share if step is self.running else 0.0)) / speed
        return total

    @property
    def left(self) -> list[Work]:
        """Steps of the plan that are not done, the running one included."""
        return [step for step in self.steps.values() if step.name not in self.done]

    def what(self) -> str:
        """Return text that names the kinds of steps in the plan, such as "trainings and scorings", for use in a
        sentence."""
        classifies = any(step.kind == "classify" for step in self.steps.values())
        return "trainings, classifications and scorings" if classifies else "trainings and scorings"

    def unmeasured(self) -> list[str]:
        """Return texts such as "training NAME" for the unfinished steps whose speed is unknown, so that no finishing
        time can be estimated.
        """
        what = {"train": "training", "classify": "classifying from", "score": "scoring"}
        return list(dict.fromkeys(f"{what[s.kind]} {s.model}" for s in self.left if not self.speed(s)))

    def line(self, now: float | None = None) -> str:
        """Return one line of text with the progress and the expected finishing time."""
        said = [f"{len(self.done)} of {len(self.steps)} {self.what()} done"]
        if self.running is not None:
            said.append(f"now {self.running.title}, {100 * self._share:.0f} %")
        return "; ".join([*said, *([self.note(now)] if self.left else [])])

    def beside_a_bar(self) -> tuple[str, tuple[str, ...]]:
        """Return two texts to show beside a progress bar: the time left, and a tuple of notes, longest first, of which
        the caller shows the first that fits."""
        seconds, now = self.remaining_seconds(), time.time()
        if seconds is None:
            return "end unknown", (f"until measured: {', '.join(self.unmeasured())}",)
        end = f"ends {clock_time(now + seconds, now)}"
        speed = None if self.running is None else self.speed(self.running)
        return f"{duration_text(seconds)} left", (*([f"{end}, {speed:,.0f} tokens/s"] if speed else []), end)

    def note(self, now: float | None = None) -> str:
        """Return text with the current speed in tokens a second and the expected finishing time."""
        speed = None if self.running is None else self.speed(self.running)
        return (f"{speed:,.0f} tokens/s; " if speed else "") + self.expected(now)

    def expected(self, now: float | None = None) -> str:
        """Return text with the expected finishing time and the time left, or why they are unknown; ``now`` is in
        seconds since 1970."""
        seconds, now = self.remaining_seconds(), time.time() if now is None else now
        if seconds is None:
            return f"end unknown until measured: {', '.join(self.unmeasured())}"
        return f"expected end {clock_time(now + seconds, now)} (in {duration_text(seconds)})"
