"""Durations and times of day in words."""

from __future__ import annotations

import time

__all__ = ["clock_time", "span_of"]


def clock_time(at: float, now: float) -> str:
    """Return a time of day, with the day where it is not today's."""
    then = time.localtime(at)
    today = time.strftime("%Y%j", then) == time.strftime("%Y%j", time.localtime(now))
    return time.strftime("%H:%M" if today else "%a %d %b %H:%M", then)


def span_of(seconds: float) -> str:
    """Return a duration in the two units that matter."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
