"""A figure of a benchmark: a row a measurement, its interval as a line.

SVG by hand, so that it is the same bytes on every machine and a test can compare it: those of a plotting library change
with its version and with the fonts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["GRID", "INK", "SOFT", "Dot", "Dots", "along", "draw", "draw_plane", "opening", "px", "text", "ticks"]

WIDTH, LEFT, RIGHT, ROW, TOP = 860, 320, 160, 24, 16
#: Of a letter of a label, on average: what has more of them than `LEFT` holds makes the figure wider.
LETTER = 7
INK, SOFT, GRID = "#1f2933", "#5f6b7a", "#d9dee5"
COLOURS = {"plain": "#c2410c", "protected": "#1d4ed8", "private": "#7c3aed", "base": "#5f6b7a", "": "#0f766e"}


@dataclass(frozen=True, slots=True)
class Dot:
    """A measurement: its label, value and interval, and the kind that gives its colour (a key of `COLOURS`)."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    kind: str = ""

    @classmethod
    def of(cls, label: str, estimate: Mapping[str, Any], kind: str | None = None) -> Dot:
        """Return a row of an estimate, or of a median with its range; the kind is told by the recipe's name."""
        value = estimate["value"] if "value" in estimate else estimate["median"]
        return cls(label, value, estimate["low"], estimate["high"], kind_of(label) if kind is None else kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """A figure: rows, the name of the axis, and a line where nothing would have been found."""

    rows: Sequence[Dot]
    axis: str
    nothing: float | None = None
    log: bool = False
    digits: int = 2


def kind_of(label: str) -> str:
    """Return the kind of a recipe by the first word of a label."""
    name = label.split()[-1] if ":" in label else label.split()[0]
    if name.startswith("base"):
        return "base"
    if name.startswith("dp-"):
        return "private"
    if name.startswith(("ppm", "ppc", "dppm", "dppc", "ippm", "ippc")):
        return "protected"
    return "plain" if name in ("mlm", "clm", "mlma", "clma", "goldfish") else ""


def draw(figure: Dots) -> str:
    """Return the SVG of a figure."""
    ends = [end for row in figure.rows for end in (row.value, row.low, row.high) if end is not None]
    ends += [] if figure.nothing is None else [figure.nothing]
    marks = _log_ticks(ends) if figure.log else ticks(min(ends), max(ends))
    both = (min(marks[0], min(ends)), max(marks[-1], max(ends)))
    left = max(LEFT, *(LETTER * len(row.label) + 24 for row in figure.rows))
    width = WIDTH + left - LEFT

    def x(value: float) -> float:
        return round(along(value, both, left, width - RIGHT, figure.log), 1)

    bottom = TOP + ROW * len(figure.rows)
    height = bottom + 44
    parts = [opening(width, height)]
    for tick in marks:
        parts.append(f'<path d="M{x(tick)} {TOP - 6}V{bottom}" stroke="{GRID}"/>')
        parts.append(text(x(tick), bottom + 16, f"{tick:g}", "middle", SOFT))
    if figure.nothing is not None:
        parts.append(
            f'<path d="M{x(figure.nothing)} {TOP - 6}V{bottom}" stroke="{SOFT}" stroke-width="1.5" '
            'stroke-dasharray="4 3"/>'
        )
    for number, row in enumerate(figure.rows):
        y, colour = TOP + ROW * number + ROW // 2, COLOURS[row.kind]
        parts.append(text(left - 12, y + 4, row.label, "end", INK))
        shown = f"{row.value:z,.{figure.digits}f}"
        if row.low is not None and row.high is not None:
            parts.append(f'<path d="M{x(row.low)} {y}H{x(row.high)}" stroke="{colour}" stroke-width="2"/>')
            shown += f" [{row.low:z,.{figure.digits}f}, {row.high:z,.{figure.digits}f}]"
        parts.append(f'<circle cx="{x(row.value)}" cy="{y}" r="4.5" fill="{colour}"/>')
        parts.append(text(width - RIGHT + 12, y + 4, shown, "start", INK, 11))
    parts.append(text((left + width - RIGHT) / 2, height - 8, figure.axis, "middle", INK))
    return "\n".join([*parts, "</svg>", ""])


def draw_plane(points: Sequence[tuple[Dot, Dot]], axes: tuple[str, str]) -> str:
    """Return the SVG of points in a plane, (x, y) with the interval of each; the label is that of x."""
    width, height, left, bottom, edge = 640, 400, 64, 340, 20
    columns = ticks(*_ends([x for x, _ in points]))
    lines = ticks(*_ends([y for _, y in points]))

    def at(value: float, marks: Sequence[float], start: float, end: float) -> float:
        return round(along(value, (marks[0], marks[-1]), start, end), 1)

    parts = [opening(width, height)]
    for tick in columns:
        x = at(tick, columns, left, width - edge)
        parts += [
            f'<path d="M{x} {edge}V{bottom}" stroke="{GRID}"/>',
            text(x, bottom + 18, f"{tick:g}", "middle", SOFT),
        ]
    for tick in lines:
        y = at(tick, lines, bottom, edge)
        parts += [
            f'<path d="M{left} {y}H{width - edge}" stroke="{GRID}"/>',
            text(left - 8, y + 4, f"{tick:g}", "end", SOFT),
        ]
    placed: list[tuple[float, float]] = []
    for across, up in points:
        x, y = at(across.value, columns, left, width - edge), at(up.value, lines, bottom, edge)
        (west, east), (south, north) = (
            [at(end, marks, *span) for end in (dot.low, dot.high) if end is not None]
            for dot, marks, span in ((across, columns, (left, width - edge)), (up, lines, (bottom, edge)))
        )
        colour = COLOURS[across.kind]
        parts.append(f'<path d="M{west} {y}H{east}M{x} {south}V{north}" stroke="{colour}" opacity=".6"/>')
        parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>')
        right = x < width - 140
        near = any(abs(x - other) < 90 and abs(y - height_of) < 24 for other, height_of in placed)
        placed.append((x, y))
        parts.append(
            text(x + (9 if right else -9), y + (18 if near else -8), across.label, "start" if right else "end", INK)
        )
    parts.append(text((left + width - edge) / 2, height - 14, axes[0], "middle", INK))
    parts.append(f'<g transform="rotate(-90 18 {bottom / 2})">{text(18, bottom / 2, axes[1], "middle", INK)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _ends(dots: Sequence[Dot]) -> tuple[float, float]:
    ends = [end for dot in dots for end in (dot.value, dot.low, dot.high) if end is not None]
    return min(ends), max(ends)


def opening(width: int, height: int, size: int = 13, about: str = "") -> str:
    """Return the beginning of an SVG on white, with its alternative text."""
    role, title = (' role="img"', f"<title>{escape(about)}</title>") if about else ("", "")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{role} viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="{size}">{title}'
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>'
    )


def text(x: float, y: float, words: str, anchor: str, colour: str, size: int | None = None) -> str:
    """Return a text at a place."""
    font = f' font-size="{size}"' if size else ""
    return f'<text x="{px(x)}" y="{px(y)}" text-anchor="{anchor}" fill="{colour}"{font}>{escape(words)}</text>'


def px(value: float) -> str:
    """Return a coordinate with one digit at most."""
    return f"{value:.1f}".removesuffix(".0")


def along(value: float, ends: tuple[float, float], start: float, stop: float, log: bool = False) -> float:
    """Return where a value stands on an axis from start to stop."""
    scale = math.log10 if log else float
    low, high = scale(ends[0]), scale(ends[1])
    return start + (scale(value) - low) / ((high - low) or 1) * (stop - start)


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return four to eight round numbers that hold both ends, ``most`` steps between these.

    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    step = 10 ** math.floor(math.log10((high - low) or 1))
    step = next(step * part for part in (0.1, 0.2, 0.25, 0.5, 1, 2) if (high - low) / (step * part) <= most)
    return [round(step * number, 10) for number in range(math.floor(low / step), math.ceil(high / step) + 1)]


def _log_ticks(ends: Sequence[float]) -> list[float]:
    exponents = range(math.floor(math.log10(min(ends))), math.ceil(math.log10(max(ends))) + 1)
    every = [10.0**exponent * part for exponent in exponents for part in ((1, 2, 5) if len(exponents) < 4 else (1,))]
    inside = [tick for tick in every if min(ends) / 1.5 <= tick <= max(ends) * 1.5]
    return inside if len(inside) > 1 else every
