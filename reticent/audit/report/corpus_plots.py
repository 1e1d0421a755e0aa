"""Figures of the documents: individuals by word, identifiers, n-grams near the threshold k, and unicity.

Each ``draw_`` function takes the "corpus" section of report.json and returns drawings, an empty list if there is
nothing to draw. The page shows them as inline SVG (`corpus_panels`); `write_corpus_plots` keeps them as files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from reticent.audit.report.figure import LOOKS, PAPER, SOFT, faces_of, new_panel, say, spread, styled, to_svg, whiskers
from reticent.audit.report.readings import retention_rows

if TYPE_CHECKING:
    from reticent.audit.evidence.corpus import CorpusEvidence, Curve, IdentifiersByLength, NgramCounts, WordCurve

__all__ = ["corpus_panels", "write_corpus_plots"]

#: Lengths of n-grams whose margin is drawn.
MAX_MARGINS = 3
WIDTH = 3.7
POLICY_LOOKS = {"all": "protected", "last": "direct only", "cover": "pseudonymised", "paper": "plain"}


class _Line(NamedTuple):
    """One distribution of a panel: its name, its curve, the recipe whose colour it has, and its dashes."""

    name: str
    curve: Curve | WordCurve | None
    looks_like: str
    dash: Any


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure with its name and its alternative text."""

    name: str
    figure: Any
    label: str


@styled
def corpus_panels(corpus: CorpusEvidence, name: str) -> list[str]:
    """Return the panels of one plot: ``identifiers`` (Figs. 5 and 6), ``by_n`` (Fig. 14), ``margin``, ``unicity`` or
    ``retention``."""
    return [to_svg(drawing.figure, drawing.name, drawing.label) for drawing in _FIGURES[name](corpus)]


@styled
def write_corpus_plots(corpus: CorpusEvidence, folder: Path | str) -> list[Path]:
    """Write every figure as SVG and PNG on white into ``folder``; returns their paths. Equal input, equal bytes."""
    written = []
    for draw in _FIGURES.values():
        for drawing in draw(corpus):
            stem = Path(folder) / drawing.name.removeprefix("fig-")
            for suffix, metadata in ((".svg", {"Date": None, "Creator": None}), (".png", {"Software": None})):
                path = stem.with_suffix(suffix)
                drawing.figure.savefig(path, dpi=160, facecolor="white", metadata=metadata)
                written.append(path)
    return written


def draw_identifiers(corpus: CorpusEvidence) -> list[Drawing]:
    """Identifiers and words per individual (Fig. 5 of [@boutet2025]) and individuals per word (Fig. 6)."""
    parts = {
        "direct": ("direct only", "-"),
        "indirect": ("indirect only", (0, (2, 1.5))),
        "both": ("protected", (0, (7, 2))),
    }
    per_individual = corpus.identifiers_per_individual or {}
    lines = [_Line(name, per_individual.get(name), *look) for name, look in parts.items()]
    drawings = [
        _cumulative("fig-identifiers", "Identifiers per person", lines, "distinct identifying words", "people"),
        _cumulative(
            "fig-words", "Words per person", [_Line("words", corpus.words_per_individual, "base", "-")],
            "words in all documents", "people",
        ),
    ]  # fmt: skip
    per_word = corpus.individuals_per_word
    lines = [
        _Line("distinct words", per_word.distinct if per_word else None, "plain", "-"),
        _Line("all occurrences", per_word.occurrences if per_word else None, "base", (0, (5, 2))),
    ]
    drawings.append(
        _cumulative("fig-support", "People per word", lines, "people who use the word", "words", k=corpus.k)
    )
    return [drawing for drawing in drawings if drawing]


def _cumulative(name: str, title: str, lines: Sequence[_Line], x: str, of: str, k: int | None = None) -> Drawing | None:
    """One panel of cumulative distributions, or nothing."""
    curves = [(line, line.curve) for line in lines if line.curve and line.curve.x]
    if not curves:
        return None
    figure, axis = new_panel(
        title, "" if k is None else f"left of the dotted line: fewer than {k}, identifying", width=WIDTH
    )
    said = []
    for line, curve in curves:
        colour = LOOKS[line.looks_like].light
        axis.step(curve.x, curve.y, where="post", color=colour, linestyle=line.dash, label=line.name)
        half = _quantile(curve, 0.5)
        said.append(
            f"{line.name}: more than half of the {of} have more than {curve.x[-1]:,g}"
            if np.isnan(half)
            else f"{line.name}: half of the {of} have at most {half:,g}"
        )
    axis.set(xlabel=x, ylabel=f"share of {of}", ylim=(0, 1.02))
    if k is not None:
        _log_ticks(axis, max(max(curve.x) for _, curve in curves))
        axis.axvline(k - 0.5, color=SOFT, linestyle=":", linewidth=1.2)
        under = [(line.name, 100 * _share_below(curve, k)) for line, curve in curves]
        said = [f"{name}: {share:.0f} % are used by fewer than {k}" for name, share in under]
    else:
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.locator_params(axis="x", integer=True, nbins=7)
    if len(curves) > 1:
        axis.legend(loc="best", fontsize=8)
    return Drawing(name, figure, f"{title}, cumulative. {'; '.join(said)}.")


def _share_below(curve: Curve | WordCurve, k: int) -> float:
    return max((y for x, y in zip(curve.x, curve.y, strict=True) if x < k), default=0.0)


def _log_ticks(axis: Any, top: float) -> None:
    """A logarithmic axis from 1 with plain numbers."""
    axis.set_xscale("log")
    ticks = [t for e in range(9) for t in (10**e, 3 * 10**e) if t <= top and (top < 3000 or t == 10**e)]
    axis.set_xticks(ticks, [f"{t:,}" for t in ticks])
    axis.set_xticks([], minor=True)


def draw_by_n(corpus: CorpusEvidence) -> list[Drawing]:
    """Identifying n-grams by n, all and minimal: distinct, occurrences, and how many a person has (Fig. 14)."""
    rows = corpus.identifiers_by_n or []
    if len(rows) < 2:
        return []
    return [
        _bars_by_n(rows, "distinct"),
        _bars_by_n(rows, "occurrences"),
        _per_individual_by_n(rows),
    ]  # fmt: skip


#: Kinds of identifying sequences: name, counts of one length, and the recipe whose colour it has.
KINDS: tuple[tuple[str, Callable[[IdentifiersByLength], NgramCounts], str], ...] = (
    ("all", lambda row: row.all, "base"),
    ("minimal", lambda row: row.minimal, "indirect only"),
)


def _bars_by_n(rows: Sequence[IdentifiersByLength], what: Literal["distinct", "occurrences"]) -> Drawing:
    title, counts_all = f"Identifying sequences, {what}", what == "occurrences"
    figure, axis = new_panel(title, "hatched: with a directly identifying word in them" * counts_all, width=WIDTH)
    said = []
    for side, (kind, of, look) in enumerate(KINDS):
        x = np.array([row.n + (side - 0.5) * 0.38 for row in rows])
        counts = [of(row).occurrences if counts_all else of(row).distinct for row in rows]
        bar = axis.bar(x, [count or 0 for count in counts], width=0.36, color=LOOKS[look].light, label=kind)
        few = ["few" if count is None else "" for count in counts]  # withheld, which is not none
        axis.bar_label(bar, few, fontsize=7.5, color=SOFT, padding=1)
        if counts_all:
            inner = [of(row).occurrences_direct or 0 for row in rows]
            axis.bar(x, inner, width=0.36, facecolor="none", edgecolor=PAPER, hatch="////", linewidth=0)
        shown = [few or f"{count:,}" for few, count in zip(few, counts, strict=True)]
        said.append(f"{kind}: " + ", ".join(f"{s} of {row.n} words" for s, row in zip(shown, rows, strict=True)))
    axis.set_xticks([row.n for row in rows])
    axis.set(xlabel="words in the sequence (n)", ylabel=what if counts_all else "distinct sequences")
    _plain_counts(axis)
    axis.grid(visible=False, axis="x")
    axis.legend(loc="upper left", fontsize=8)
    name = "fig-by-n-occurrences" if counts_all else "fig-by-n"
    return Drawing(name, figure, f"{title}. {'; '.join(said)}.")


def _per_individual_by_n(rows: Sequence[IdentifiersByLength]) -> Drawing:
    figure, axis = new_panel("Identifying sequences per person", "median; bars hold the middle half", width=WIDTH)
    said = []
    for side, (kind, of, look) in enumerate(KINDS):
        found = [(row, of(row).per_individual) for row in rows]
        curves = [(row, curve) for row, curve in found if curve and curve.x]
        chosen = [row for row, _ in curves]
        low, middle, high = (np.array([_quantile(curve, at) for _, curve in curves]) for at in (0.25, 0.5, 0.75))
        x = np.array([row.n + (side - 0.5) * 0.2 for row in chosen])
        shade = LOOKS[look]
        axis.errorbar(
            x, middle, yerr=whiskers(middle, low, high), fmt=shade.marker, linestyle=shade.line, color=shade.light,
            label=kind, elinewidth=1, capsize=3,
        )  # fmt: skip
        shown = [
            f"more than {curve.x[-1]:g}" if np.isnan(m) else f"{m:g}"
            for m, (_, curve) in zip(middle, curves, strict=True)
        ]
        said.append(f"{kind}: " + ", ".join(f"{s} of {row.n} words" for s, row in zip(shown, chosen, strict=True)))
    axis.set_xticks([row.n for row in rows])
    axis.set(xlabel="words in the sequence (n)", ylabel="distinct sequences of a person", ylim=(0, None))
    _plain_counts(axis)
    axis.legend(loc="upper left", fontsize=8)
    return Drawing("fig-by-n-person", figure, f"Identifying sequences per person, median. {'; '.join(said)}.")


def _quantile(curve: Curve | WordCurve, share: float) -> float:
    """Return the first value up to which this share lies; NaN where the points of a published curve end before."""
    return next((x for x, y in zip(curve.x, curve.y, strict=True) if y >= share), np.nan)


def draw_margin(corpus: CorpusEvidence) -> list[Drawing]:
    """Distinct n-grams by support just below and just above k, a panel for each of the first lengths."""
    drawings, k = [], corpus.k
    for n in range(1, MAX_MARGINS + 1):
        rows = [row for row in corpus.margin or [] if row.n == n]
        if not rows:
            continue
        title = "Words near the line" if n == 1 else f"Sequences of {n} words near the line"
        figure, axis = new_panel(title, f"left of the dotted line: fewer than {k}, identifying", width=WIDTH)
        for row in rows:
            look = LOOKS["indirect only" if row.support < k else "base"]
            bar = axis.bar(row.support, row.distinct or 0, width=0.7, color=look.light)
            shown = "few" if row.distinct is None else _short(row.distinct)
            axis.bar_label(bar, [shown], fontsize=7.5, color=SOFT, padding=1)
        axis.axvline(k - 0.5, color=SOFT, linestyle=":", linewidth=1.2)
        axis.set_xticks([row.support for row in rows])
        axis.set(xlabel="people who use it", ylabel="distinct words" if n == 1 else "distinct sequences")
        axis.margins(y=0.1)
        _plain_counts(axis)
        axis.grid(visible=False, axis="x")
        said = "; ".join(
            f"{'few' if row.distinct is None else format(row.distinct, ',')} used by {row.support}" for row in rows
        )
        drawings.append(Drawing(f"fig-margin-{n}", figure, f"{title}. {said}. Under {k} they identify."))
    return drawings


def _short(count: int) -> str:
    for unit, letter in ((10**6, "M"), (10**3, "k")):
        if count >= unit:
            return f"{count / unit:.3g} {letter}"
    return str(count)


def _plain_counts(axis: Any) -> None:
    """Counts on the y axis as plain, short numbers."""
    axis.yaxis.set_major_formatter(lambda value, _: _short(round(value)))
    axis.yaxis.get_major_locator().set_params(integer=True, nbins=5)


def draw_unicity(corpus: CorpusEvidence) -> list[Drawing]:
    """Share of random m-sets of shared words that single out one person, with 95 % intervals."""
    rows = [row for row in corpus.unicity or [] if row.share.value is not None]
    if not rows:
        return []
    note = f"sets of words that at least {corpus.k} people use"
    figure, axis = new_panel("Shared words that point to one person", note, width=WIDTH)
    value, low, high = (100 * part for part in spread(row.share for row in rows))
    x = [row.m for row in rows]
    look = LOOKS["plain"]
    axis.errorbar(x, value, yerr=whiskers(value, low, high), fmt="none", ecolor=look.light, elinewidth=1, capsize=3)
    axis.plot(x, value, color=look.light)
    faces = faces_of([row.share for row in rows], look.light)
    axis.scatter(x, value, s=26, c=faces, edgecolors=look.light, marker=look.marker, zorder=3)
    axis.set_xticks(x)
    axis.set(xlabel="words in the set (m)", ylabel="sets of one person only, %", ylim=(0, None))
    said = "; ".join(f"{row.m} words: {say(row.share)}" for row in rows)
    return [Drawing("fig-unicity", figure, f"Share of random sets of shared words that single out one person. {said}.")]


def draw_retention(corpus: CorpusEvidence) -> list[Drawing]:
    """Share of words that stay targets, by policy and n."""
    rows = retention_rows(corpus)
    lengths = sorted({row.n for row in rows if row.n is not None})
    if len(lengths) < 2:
        return []
    figure, axis = new_panel("Words left to learn from", "a line a policy", width=WIDTH)
    said = []
    for policy, name in POLICY_LOOKS.items():
        look = LOOKS[name]
        shares = [100 * row.retention for n in lengths for row in rows if (row.policy, row.n) == (policy, n)]
        axis.plot(lengths, shares, color=look.light, linestyle=look.line, marker=look.marker, label=policy)
        said.append(
            f"{policy}: " + ", ".join(f"{share:.1f} % at n = {n}" for n, share in zip(lengths, shares, strict=True))
        )
    axis.set_xticks(lengths)
    axis.set(xlabel="words in a sequence, at most (n)", ylabel="words that indirect protection leaves, %")
    axis.legend(loc="lower left", fontsize=8)
    return [Drawing("fig-retention", figure, f"Words left to learn from. {'; '.join(said)}.")]


_FIGURES = {
    "identifiers": draw_identifiers,
    "by_n": draw_by_n,
    "margin": draw_margin,
    "unicity": draw_unicity,
    "retention": draw_retention,
}
