"""Pictures of the reproduction: panels of lines, steps, points, bars and boxes, with the published numbers as diamonds.

Its own are axes and marks; the SVG by hand is that of `tools.figure`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.figure import GRID, INK, SOFT, along, opening, px, text
from tools.figure import ticks as linear_ticks

__all__ = ["Bars", "Boxes", "Line", "Panel", "bars_of", "draw", "line_of"]

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 34, 46
PUBLISHED = "#111827"
PALETTE = ("#c2410c", "#1d4ed8", "#0f766e", "#7c3aed", "#b45309", "#be185d", "#4d7c0f", "#5f6b7a")
#: Colour and dashes of a recipe, by what its name begins or ends with; the first that fits.
RECIPES = {
    "-n3": ("#1d4ed8", "2 3"),
    "base": ("#5f6b7a", "6 4"),
    "dp-": ("#be185d", "6 3"),
    "dpp": ("#0f766e", ""),
    "ipp": ("#7c3aed", ""),
    "pp": ("#1d4ed8", ""),
    "goldfish": ("#4d7c0f", ""),
    "mlma": ("#b45309", "5 3"),
    "clma": ("#b45309", "5 3"),
    "mlm": ("#c2410c", ""),
    "clm": ("#c2410c", ""),
}
LETTER = 6.4


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y) in order with their intervals; joined, as steps or not at all (``join``: line, step, none)."""

    name: str
    points: Sequence[tuple[float, float]]
    ends: Sequence[tuple[float, float] | None] = ()
    join: str = "line"


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar at each category of the panel, None for none, with intervals."""

    name: str
    values: Sequence[float | None]
    ends: Sequence[tuple[float, float] | None] = ()


@dataclass(frozen=True, slots=True)
class Boxes:
    """Least, quartiles and greatest at each category of the panel; None for none."""

    name: str
    values: Sequence[tuple[float, float, float, float, float] | None]


@dataclass(frozen=True, slots=True)
class Panel:
    """Axes and what is drawn in them.

    Attributes
    ----------
    categories : names along x, at 0, 1, 2 …; empty: numbers
    published : (x, y) of published numbers
    level : a dashed line across, where nothing would have been found
    diagonal : a dashed line of y = x
    """

    title: str
    x: str
    y: str
    lines: Sequence[Line] = ()
    bars: Sequence[Bars] = ()
    boxes: Sequence[Boxes] = ()
    categories: Sequence[str] = ()
    published: Sequence[tuple[float, float]] = ()
    level: float | None = None
    diagonal: bool = False
    log_x: bool = False
    log_y: bool = False
    ticks_x: Sequence[float] = ()
    limits_x: tuple[float, float] | None = None
    limits_y: tuple[float, float] | None = None


def line_of(name: str, rows: Mapping[float, Mapping[str, Any] | None], join: str = "line") -> Line:
    """A line of estimates by x; those that were not measured are left out."""
    found = [(x, row) for x, row in rows.items() if row is not None and row["value"] is not None]
    ends = [None if row.get("low") is None else (row["low"], row["high"]) for _, row in found]
    return Line(name, [(x, row["value"]) for x, row in found], ends=ends, join=join)


def bars_of(name: str, found: Sequence[Mapping[str, Any] | None]) -> Bars:
    """Bars of estimates; None for one that was not measured."""
    values = [None if each is None else each["value"] for each in found]
    ends = [None if each is None or each["low"] is None else (each["low"], each["high"]) for each in found]
    return Bars(name, values, ends=ends)


def draw(panels: Sequence[Panel], about: str) -> str:
    """The SVG of panels, two in a row, above one key of all names; ``about`` is its alternative text. It is empty where
    nothing of ours is in any panel.
    """
    if not any(panel.lines or panel.bars or panel.boxes for panel in panels):
        return ""
    names = list(dict.fromkeys(each.name for p in panels for each in (*p.lines, *p.bars, *p.boxes) if each.name))
    colours = {name: look(name, number) for number, name in enumerate(names)}
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    width = max(columns * WIDTH, 420)
    key, key_height = _key(colours, width, any(p.published for p in panels), HEIGHT * rows)
    height = HEIGHT * rows + key_height
    parts = [opening(width, height, 12, about)]
    for number, panel in enumerate(panels):
        across, down = number % columns * WIDTH, number // columns * HEIGHT
        parts.append(f'<g transform="translate({across} {down})">')
        parts += _Axes(panel).parts(colours)
        parts.append("</g>")
    return "\n".join([*parts, *key, "</svg>", ""])


def look(name: str, number: int) -> tuple[str, str]:
    """Colour and dashes of a name: those of a recipe, or the next of the palette."""
    recipe = name.split()[0] if name else ""
    for part, found in RECIPES.items():
        if recipe.endswith(part) if part.startswith("-") else recipe.startswith(part):
            return found
    return PALETTE[number % len(PALETTE)], ""


def _key(colours: Mapping[str, tuple[str, str]], width: int, published: bool, top: int) -> tuple[list[str], int]:
    parts, x, y = [], 20.0, top + 10
    entries: list[tuple[str, tuple[str, str] | None]] = list(colours.items()) if len(colours) > 1 or published else []
    entries += [("published", None)] if published else []
    for name, own in entries:
        wide = 34 + LETTER * len(name) + 16
        if x + wide > width - 10 and x > 20:
            x, y = 20.0, y + 20
        if own is None:
            parts.append(_diamond(x + 13, y))
        else:
            parts.append(f'<path d="M{px(x)} {px(y)}h26" stroke="{own[0]}" stroke-width="2.5"{_dashes(own[1])}/>')
        parts.append(text(x + 34, y + 4, name, "start", INK))
        x += wide
    return parts, int(y + 18 - top) if entries else 8


class _Axes:
    """The coordinates of a panel."""

    def __init__(self, panel: Panel):
        self.panel = panel
        ends_y = [end for line in panel.lines for both in line.ends if both for end in both]
        ends_y += [y for line in panel.lines for _, y in line.points] + [y for _, y in panel.published]
        ends_y += [end for bars in panel.bars for both in bars.ends if both for end in both]
        ends_y += [value for bars in panel.bars for value in bars.values if value is not None]
        ends_y += [value for boxes in panel.boxes for box in boxes.values if box for value in box]
        ends_y += [0.0] if panel.bars else []
        ends_y += [] if panel.level is None else [panel.level]
        ends_x = [x for line in panel.lines for x, _ in line.points] + [x for x, _ in panel.published]
        self.x_ticks = list(panel.ticks_x) or ticks(panel.limits_x or _span(ends_x), panel.log_x)
        self.y_ticks = ticks(panel.limits_y or _span(ends_y), panel.log_y)
        if panel.categories:
            self.x_range = (-0.5, len(panel.categories) - 0.5)
        else:
            found = panel.limits_x or _span(ends_x)
            self.x_range = (min(found[0], self.x_ticks[0]), max(found[1], self.x_ticks[-1]))
            if panel.ticks_x and panel.log_x:  # room beside the first and the last mark
                self.x_range = (self.x_range[0] / 1.15, self.x_range[1] * 1.15)
        found = panel.limits_y or _span(ends_y)
        self.y_range = (min(found[0], self.y_ticks[0]), max(found[1], self.y_ticks[-1]))

    def x(self, value: float) -> float:
        return along(value, self.x_range, LEFT, WIDTH - RIGHT, self.panel.log_x)

    def y(self, value: float) -> float:
        return along(value, self.y_range, HEIGHT - BOTTOM, TOP, self.panel.log_y)

    def parts(self, colours: Mapping[str, tuple[str, str]]) -> list[str]:
        panel, parts = self.panel, []
        bottom = HEIGHT - BOTTOM
        for tick in self.y_ticks:
            parts.append(f'<path d="M{LEFT} {px(self.y(tick))}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
            parts.append(text(LEFT - 6, self.y(tick) + 4, number(tick), "end", SOFT, 11))
        if panel.categories:
            step = (WIDTH - RIGHT - LEFT) / len(panel.categories)
            for place, name in enumerate(panel.categories):
                most = max(3, int(step / LETTER))
                shown = name if len(name) <= most else f"{name[: most - 1]}…"
                parts.append(text(self.x(place), bottom + 16, shown, "middle", SOFT, 11))
        else:
            for tick in self.x_ticks:
                parts.append(f'<path d="M{px(self.x(tick))} {TOP}V{bottom}" stroke="{GRID}"/>')
                parts.append(text(self.x(tick), bottom + 16, number(tick), "middle", SOFT, 11))
        if panel.level is not None:
            parts.append(_dashed(f"M{LEFT} {px(self.y(panel.level))}H{WIDTH - RIGHT}"))
        if panel.diagonal:
            low, high = max(self.x_range[0], self.y_range[0]), min(self.x_range[1], self.y_range[1])
            ends = [f"{px(self.x(end))} {px(self.y(end))}" for end in (low, high)]
            parts.append(_dashed(f"M{ends[0]}L{ends[1]}"))
        for place, bars in enumerate(panel.bars):
            parts += self._bars(bars, place, colours[bars.name][0])
        for place, boxes in enumerate(panel.boxes):
            parts += self._boxes(boxes, place, colours[boxes.name][0])
        for line in panel.lines:
            parts += self._line(line, *colours[line.name])
        parts += [_diamond(self.x(x), self.y(y)) for x, y in panel.published]
        parts.append(text(LEFT, 20, panel.title, "start", INK, 13))
        parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, panel.x, "middle", INK))
        middle = (TOP + bottom) / 2
        parts.append(f'<g transform="rotate(-90 14 {px(middle)})">{text(14, middle, panel.y, "middle", INK)}</g>')
        return parts

    def _line(self, line: Line, colour: str, dashes: str) -> list[str]:
        at = [(self.x(x), self.y(y)) for x, y in line.points if self._shown(x, y)]
        if not at:
            return []
        parts = []
        if line.join != "none" and len(at) > 1:
            path = f"M{px(at[0][0])} {px(at[0][1])}"
            path += "".join(f"H{px(x)}V{px(y)}" if line.join == "step" else f"L{px(x)} {px(y)}" for x, y in at[1:])
            parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{_dashes(dashes)}/>')
        for (x, y), both in zip(line.points, line.ends or [None] * len(line.points), strict=True):
            if both and self._shown(x, y):
                parts.append(self._whisker(self.x(x), both, colour))
        if line.join != "step":
            size, more = (3, "") if line.join == "line" else (2.2, ' opacity=".6"')
            parts += [f'<circle cx="{px(x)}" cy="{px(y)}" r="{size}" fill="{colour}"{more}/>' for x, y in at]
        return parts

    def _shown(self, x: float, y: float) -> bool:
        """Whether a point can stand on a logarithmic axis."""
        return not ((self.panel.log_x and x <= 0) or (self.panel.log_y and y <= 0))

    def _whisker(self, x: float, both: tuple[float, float], colour: str) -> str:
        low, high = (px(self.y(min(max(end, self.y_range[0]), self.y_range[1]))) for end in both)
        return f'<path d="M{px(x)} {low}V{high}" stroke="{colour}" opacity=".55"/>'

    def _beside(self, place: int, of: int) -> tuple[float, float]:
        """Middle and width, in pixels from the category's place, of one of several bars or boxes."""
        step = (WIDTH - RIGHT - LEFT) / max(len(self.panel.categories), 1) * 0.8 / of
        return (place - (of - 1) / 2) * step, min(step * 0.86, 46)

    def _bars(self, bars: Bars, place: int, colour: str) -> list[str]:
        shift, wide = self._beside(place, len(self.panel.bars))
        parts = []
        for at, (value, both) in enumerate(zip(bars.values, bars.ends or [None] * len(bars.values), strict=True)):
            if value is None:
                continue
            x, y, zero = self.x(at) + shift, self.y(value), self.y(max(0.0, self.y_range[0]))
            parts.append(
                f'<rect x="{px(x - wide / 2)}" y="{px(min(y, zero))}" width="{px(wide)}" height="{px(abs(zero - y))}" '
                f'fill="{colour}" opacity=".8"/>'
            )
            if both:
                parts.append(self._whisker(x, both, INK))
        return parts

    def _boxes(self, boxes: Boxes, place: int, colour: str) -> list[str]:
        shift, wide = self._beside(place, len(self.panel.boxes))
        parts = []
        for at, box in enumerate(boxes.values):
            if box is None:
                continue
            x = self.x(at) + shift
            least, low, middle, high, most = (self.y(value) for value in box)
            left = px(x - wide / 2)
            parts.append(f'<path d="M{px(x)} {px(least)}V{px(low)}M{px(x)} {px(high)}V{px(most)}" stroke="{colour}"/>')
            parts.append(
                f'<rect x="{left}" y="{px(high)}" width="{px(wide)}" height="{px(max(low - high, 0.5))}" '
                f'fill="{colour}" fill-opacity=".25" stroke="{colour}"/>'
                f'<path d="M{left} {px(middle)}h{px(wide)}" stroke="{colour}" stroke-width="2"/>'
            )
        return parts


def ticks(ends: tuple[float, float], log: bool) -> list[float]:
    """Four to eight round numbers; those of a linear axis hold both ends.

    >>> ticks((0.0, 1.0), False), ticks((0.01, 1.0), True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.01, 0.1, 1.0])
    """
    low, high = ends
    if log:
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        parts = (1, 2, 5) if len(exponents) < 3 else (1,)
        found = [10.0**exponent * part for exponent in exponents for part in parts]
        return [tick for tick in found if low / 1.001 <= tick <= high * 1.001] or [low, high]
    return linear_ticks(low, high, most=6)


def _span(ends: Sequence[float]) -> tuple[float, float]:
    if not ends:
        return 0.0, 1.0
    low, high = min(ends), max(ends)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def number(value: float) -> str:
    """A number of an axis.

    >>> number(0.25), number(30000.0), number(0.001)
    ('0.25', '30,000', '0.001')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _dashes(dashes: str) -> str:
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _dashed(path: str) -> str:
    return f'<path d="{path}" stroke="{SOFT}" stroke-dasharray="4 3"/>'


def _diamond(x: float, y: float) -> str:
    return f'<path d="M{px(x)} {px(y - 6)}l6 6l-6 6l-6 -6z" fill="#fff" stroke="{PUBLISHED}" stroke-width="1.6"/>'
