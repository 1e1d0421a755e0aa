"""Parts that every figure shares: the look of a recipe, and the conversion of a figure to inline SVG.

Invariant: a recipe has one colour, one marker and one line in every figure, and each of the three identifies
it; colours are CSS variables with a fallback, so that one page serves light, dark and paper; an SVG holds no
address, no script, no style that reaches out of it, and equal figures give equal bytes.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeGuard, TypeVar

import numpy as np

from reticent.audit.stats.estimate import Estimate
from reticent.audit.texts import ENGLISH, Texts, outward_ends
from reticent.trainer.recipes import parted_name

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """The look of a family of recipes in figures: colours, marker, line style and glyph.

    The colours keep a contrast of 3:1 or more with their background, and a CIELAB distance of 12 or more from each
    other in normal, protan, deutan and tritan vision.
    """

    slug: str
    light: str
    dark: str
    marker: str
    line: Any
    glyph: str


#: Family -> look. The glyph is the marker once more, as an SVG path around (17, 7), for keys in tables and text.
LOOKS = {
    "base": Look("base", "#52596a", "#c3c9d4", "s", (0, (1, 1.4)), "M13 3h8v8h-8z"),
    "plain": Look(
        "plain", "#b3320a", "#ec5d2a", "o", "-", "M21.5 7a4.5 4.5 0 1 1-9 0 4.5 4.5 0 0 1 9 0z"
    ),
    "pseudonymised": Look(
        "pseudo", "#c48a00", "#ffd24d", "^", (0, (5, 2)), "M17 2l5 9.5h-10z"
    ),
    "direct only": Look(
        "direct", "#3a9bdc", "#58c4fa", "D", (0, (6, 2, 1, 2)), "M17 1.5l5.5 5.5-5.5 5.5-5.5-5.5z",
    ),
    "indirect only": Look(
        "indirect", "#c25fa8", "#e578c2", "v", (0, (2, 1.5)), "M17 12l5-9.5h-10z"
    ),
    "protected": Look(
        "protected", "#006b57", "#1fa884", "P", (0, (9, 2)),
        "M15.2 2h3.6v3.2h3.2v3.6h-3.2v3.2h-3.6v-3.2h-3.2v-3.6h3.2z",
    ),
    "indirect only, surrogates": Look(
        "indirect-surrogate", "#541800", "#a8483c", "<", (0, (1, 2.5)), "M12 7l9.5 -5v10z",
    ),
    "protected, surrogates": Look(
        "protected-surrogate", "#9000fc", "#9018fc", "*", (0, (4, 1.5, 1, 1.5)),
        "M17.0 1.6L18.4 5.5L22.5 5.6L19.3 8.1L20.4 12.1L17.0 9.8L13.6 12.1L14.7 8.1L11.5 5.6L15.6 5.5z",
    ),
    "differentially private": Look(
        "dp", "#3b3fa0", "#8686f0", "X", (0, (4, 1, 1, 1, 1, 1)),
        "M17 9.3l-3 3-2.3-2.3 3-3-3-3 2.3-2.3 3 3 3-3 2.3 2.3-3 3 3 3-2.3 2.3z",
    ),
    "other": Look("other", "#1b1f27", "#ffffff", "h", (0, (3, 2, 1, 2)), "M17 2l4.4 2.5v5l-4.4 2.5-4.4-2.5v-5z"),
    "other 2": Look("other-2", "#9c9060", "#b4fcb4", ">", (0, (12, 3)), "M22 7l-9.5 5v-10z"),
    "other 3": Look("other-3", "#906cfc", "#9c3ca8", "d", (0, (7, 1.5, 3, 1.5)), "M17 1l3.6 6-3.6 6-3.6-6z"),
    "other 4": Look("other-4", "#3c0054", "#3c6c78", "p", (0, (1, 1, 1, 4)), "M17 1.8l5 3.7-1.9 5.9h-6.2l-1.9-5.9z"),
}  # fmt: skip
INK, SOFT, GRID, PAPER = "#27303d", "#5f6875", "#e4e8ed", "#fefefe"
#: Colour in the SVG -> CSS variable that a page may set.
VARIABLES = {INK: "fig-ink", SOFT: "fig-soft", GRID: "fig-grid", PAPER: "fig-paper"} | {
    look.light: f"r-{look.slug}" for look in LOOKS.values()
}
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "reticent",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
}


def family(recipe: str) -> str:
    """Return the name of a recipe's plot style, a key of `LOOKS`, from the recipe's name. A classifier or a tagger has
    the style of the language model that it starts from."""
    recipe = _language_recipe(recipe)
    if recipe == "base":
        return "base"
    stem = re.fullmatch(r"(dp-|dpp|ipp|pp|)(?:mlm|clm)(a?)(-surrogate)?", recipe)
    if stem is None:
        return "other"
    if stem[3]:
        return {"ipp": "indirect only, surrogates", "pp": "protected, surrogates"}.get(stem[1] + stem[2], "other")
    if stem[2]:
        return "pseudonymised" if not stem[1] else "other"
    named = {
        "": "plain",
        "dpp": "direct only",
        "ipp": "indirect only",
        "pp": "protected",
        "dp-": "differentially private",
    }
    return named[stem[1]]


#: Recipes of the family "other" that are told apart, in order.
_OTHERS: ContextVar[tuple[str, ...]] = ContextVar("_OTHERS", default=())


@contextmanager
def telling_apart(recipes: Iterable[str]) -> Iterator[None]:
    """Context manager in which recipes of the family "other", such as those that the job defines, have a plot style
    each, in this order, as far as there are enough."""
    token = _OTHERS.set(tuple(dict.fromkeys(_language_recipe(name) for name in recipes if family(name) == "other")))
    try:
        yield
    finally:
        _OTHERS.reset(token)


def _language_recipe(recipe: str) -> str:
    """Return the recipe of the language model that a classifier or a tagger starts from, without its epsilon."""
    return parted_name(recipe.rpartition("/")[2])[0]


def look_of(recipe: str) -> Look:
    """Return the plot style of a recipe: colours, marker and line."""
    found, others = family(recipe), _OTHERS.get()
    if found == "other" and (name := _language_recipe(recipe)) in others:
        looks = [look for known, look in LOOKS.items() if known.startswith("other")]
        return looks[others.index(name) % len(looks)]
    return LOOKS[found]


def key(recipe: str) -> str:
    """Return a recipe's line and marker for a legend, as a small inline SVG without the recipe's name."""
    look = look_of(recipe)
    dash = "" if look.line == "-" else f' stroke-dasharray="{" ".join(f"{1.6 * d:g}" for d in look.line[1])}"'
    shade = f"var(--r-{look.slug},{look.light})"
    return (
        '<svg class="key" width="34" height="14" viewBox="0 0 34 14" aria-hidden="true" focusable="false">'
        f'<path d="M1 7h32" fill="none" style="stroke:{shade}" stroke-width="1.6"{dash}/>'
        f'<path d="{look.glyph}" style="fill:{shade}"/></svg>'
    )


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Decorate a drawing function to run with the report's matplotlib settings; the former settings are restored after
    each call."""

    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``draw`` with the report's matplotlib settings."""
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return styled


def new_panel(title: str, note: str = "", *, width: float = 4.3, height: float = 3.0) -> tuple[Any, Any]:
    """Return (figure, axes) of one panel with its title and note."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    write_title(axis, title, note)
    return figure, axis


def write_title(axis: Any, title: str, note: str = "") -> None:
    """Write the title and note of a panel; the room for a note is always kept, so that panels align."""
    axis.set_title(title, pad=18)
    if note:
        axis.annotate(
            note, (0, 1), xytext=(0, 5), xycoords="axes fraction", textcoords="offset points", fontsize=8, color=SOFT
        )


def to_svg(figure: Any, name: str, label: str, t: Texts = ENGLISH) -> str:
    """Return a figure as inline SVG with alternative text, ids prefixed by ``name``, and no external address."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    if t.language != "en":
        _localise_ticks(figure, t)

    buffer = io.StringIO()
    # What `savefig` draws once more before that, to lay the figure out, is laid out while it is drawn.
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].rstrip()
    for unwanted in (r"<metadata>.*?</metadata>\s*", r"<style.*?</style>\s*", r"<!--.*?-->\s*"):
        text = re.sub(unwanted, "", text, flags=re.DOTALL)
    root, body = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', root)
    assert box is not None
    body = body.replace("xlink:href=", "href=")
    body = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r'\b(?:d|x|y|transform|points)="[^"]*"', _shorten_numbers, body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, f"var(--{variable},{colour})")
    return f'<svg class="plot" role="img" aria-label="{html.escape(label)}" {box[0]}>{body}'


def _localise_ticks(figure: Any, t: Texts) -> None:
    """Write the tick labels of a figure with the separators of a language."""
    from matplotlib.ticker import Formatter

    class Localised(Formatter):
        def __init__(self, english: Any) -> None:
            self.english = english

        def format_ticks(self, values: Any) -> list[str]:
            """Return the tick labels with the separators of the language."""
            return [t.plain(text) for text in self.english.format_ticks(values)]

        def __call__(self, value: float, at: int | None = None) -> str:
            return t.plain(self.english(value, at))

        def get_offset(self) -> str:
            """Return the text of the offset at the end of the axis, as the English formatter writes it."""
            return str(self.english.get_offset())

    for axis in figure.axes:
        for side in (axis.xaxis, axis.yaxis):
            # Labels that were given, as texts or by a function, are in the language already.
            if type(english := side.get_major_formatter()).__name__ not in ("FixedFormatter", "FuncFormatter"):
                english.set_axis(side)
                side.set_major_formatter(Localised(english))


def _shorten_numbers(match: re.Match[str]) -> str:
    """Return the matched text with its numbers rounded to two decimals, so that an SVG path is shorter."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), match[0])


def printable(text: str) -> str:
    """Return a name without characters that cannot be drawn. A name over 20 characters is shortened to its beginning
    and its end, in which long names differ."""
    shown = "".join(c for c in text if c.isprintable())
    return shown if len(shown) <= 20 else f"{shown[:10]}…{shown[-9:]}"


def has_value(estimate: Estimate | None) -> TypeGuard[Estimate]:
    """Return whether there is an estimate and it has a value."""
    return estimate is not None and estimate.value is not None


def values_and_ends(estimates: Iterable[Estimate]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (values, lower ends, upper ends) of the estimates' intervals as float64 arrays; without an interval both
    ends are the value."""
    rows = [(v.value, v.value if v.low is None else v.low, v.value if v.high is None else v.high)
            for v in estimates]  # fmt: skip
    value, low, high = np.array(rows, dtype=float).reshape(-1, 3).T
    return value, np.minimum(low, value), np.maximum(high, value)


def whiskers(values: np.ndarray, lows: np.ndarray, highs: np.ndarray) -> np.ndarray:
    """Return the distances from the values down to ``lows`` and up to ``highs``, float64 (2, n), as matplotlib's error
    bars need them."""
    return np.stack([values - lows, highs - values])


def estimate_in_words(estimate: Estimate | None, t: Texts = ENGLISH) -> str:
    """Return text on an estimate and its interval for an alternative text; it says so if there is no estimate."""
    if estimate is None or estimate.value is None:
        return t("common.not_measured")
    if estimate.low is None or estimate.high is None:
        return value_in_words(estimate, t)
    low, high = outward_ends(estimate.value, estimate.low, estimate.high, 2)
    ends = t.range(_two_digits(low, t), _two_digits(high, t))
    return t("plots.value_95_interval_interval", value=value_in_words(estimate, t), interval=ends)


def value_in_words(estimate: Estimate, t: Texts = ENGLISH) -> str:
    """Return an estimate's value as text for an alternative text; if only a bound is known, "above" or "below" precedes
    it."""
    shown = _two_digits(estimate.value or 0.0, t)
    if estimate.bound == "above":
        return t("common.above_value", value=shown)
    return t("common.below_value", value=shown) if estimate.bound else shown


def _two_digits(number: float, t: Texts) -> str:
    """Return a number as text with two decimals."""
    return t.number(number)


def alt_text(t: Texts, title: str, parts: Iterable[str]) -> str:
    """Return the alternative text of a plot: its title, followed by its numbers."""
    return f"{title}. {t.apart(parts)}."


def marker_offset(number: int, num_markers: int, step: float, room: float = 0.8) -> float:
    """Return by how much to move marker number ``number`` of ``num_markers`` that share a position, so that they stand
    ``step`` apart, centred on the position; closer if they would otherwise fill more than ``room``."""
    return (number - (num_markers - 1) / 2) * min(step, room / num_markers)


def epoch_factor(number: int, num_markers: int, epochs: Iterable[int]) -> float:
    """Return the factor by which the epochs of line number ``number`` of ``num_markers`` are multiplied on a
    logarithmic axis, so that the markers of different lines at the same epoch do not overlap."""
    gaps = np.diff(np.log2(sorted(set(epochs))))
    return float(2 ** marker_offset(number, num_markers, 0.09, 0.8 * min(gaps, default=1.0)))


def marker_fills(estimates: Sequence[Estimate], colour: str) -> list[str]:
    """Return the fill colour of each estimate's plot marker: ``colour``, or the background's (hollow) if only a bound
    of the estimate is known."""
    return [PAPER if estimate.bound else colour for estimate in estimates]


def draw_recipe_line(
    axis: Any, points: Sequence[tuple[float, Estimate]], recipe: str, *, factor: float = 1.0, shift: float = 0.0
) -> None:
    """Draw a recipe's line through ``points`` (x, estimate), with an interval at each point and a band over its
    trainings with other seeds. ``factor`` and ``shift`` move x, so that the markers of several recipes do not overlap.
    """
    look = look_of(recipe)
    x = np.array([row[0] for row in points]) * factor + shift
    value, low, high = values_and_ends(row[1] for row in points)
    if any(estimate.seeds for _, estimate in points):
        reached = [(e.seeds.low, e.seeds.high) if e.seeds else (e.value, e.value) for _, e in points]
        bottom, top = np.array(reached, dtype=float).T
        axis.fill_between(x, bottom, top, color=look.light, alpha=0.18, linewidth=0)
    axis.errorbar(x, value, yerr=whiskers(value, low, high), fmt="none", ecolor=look.light, alpha=0.45, linewidth=1)
    axis.plot(x, value, color=look.light, linestyle=look.line)
    faces = marker_fills([row[1] for row in points], look.light)
    axis.scatter(x, value, s=30, c=faces, edgecolors=look.light, marker=look.marker, zorder=3)


def epoch_axis(axis: Any, epochs: Iterable[int]) -> None:
    """Make the x axis logarithmic (base 2) with a tick at each epoch. A tick gets its label if there is room, starting
    from the last epoch."""
    ticks = sorted(set(epochs))
    axis.set_xscale("log", base=2)
    room, before, labels = 0.09 * np.log2(1.35**2 * ticks[-1] / ticks[0]), np.inf, []
    for tick in reversed(ticks):
        labels.append(str(tick) if np.log2(before / tick) >= room else "")
        before = tick if labels[-1] else before
    axis.set_xticks(ticks, labels[::-1])
    axis.set_xticks([], minor=True)
    axis.set_xlim(ticks[0] / 1.35, ticks[-1] * 1.35)
