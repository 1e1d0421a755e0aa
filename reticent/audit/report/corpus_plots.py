"""Figures of the documents: individuals by word, identifiers, n-grams near the threshold k, and unicity.

Each ``draw_`` function takes the "corpus" section of report.json and returns drawings, an empty list if there is
nothing to draw. The page shows them as inline SVG (`corpus_panels`); `write_corpus_plots` keeps them as files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from reticent.audit.evidence.corpus import CorpusEvidence, Curve, IdentifiersByLength, NgramCounts, WordCurve
from reticent.audit.report.figure import (
    LOOKS,
    PAPER,
    SOFT,
    alt_text,
    estimate_in_words,
    marker_fills,
    new_panel,
    styled,
    to_svg,
    values_and_ends,
    whiskers,
)
from reticent.audit.report.selectors import retention_rows
from reticent.audit.texts import ENGLISH, Texts

#: Largest n of the n-grams whose supports near k are drawn.
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
def corpus_panels(corpus: CorpusEvidence, name: str, t: Texts = ENGLISH) -> list[str]:
    """Return the panels of the corpus figure ``name`` as inline SVG: ``identifiers``, ``by_n`` (identifying n-grams by
    n), ``margin`` (n-grams near the threshold k), ``unicity`` or ``retention`` (words left as targets)."""
    return [to_svg(drawing.figure, drawing.name, drawing.label, t) for drawing in _FIGURES[name](corpus, t)]


@styled
def write_corpus_plots(corpus: CorpusEvidence, folder: Path | str, t: Texts = ENGLISH) -> list[Path]:
    """Write every figure as SVG and PNG on white into ``folder``, and return their paths. Equal input gives equal
    bytes."""
    written = []
    for draw in _FIGURES.values():
        for drawing in draw(corpus, t):
            stem = Path(folder) / drawing.name.removeprefix("fig-")
            for suffix, metadata in ((".svg", {"Date": None, "Creator": None}), (".png", {"Software": None})):
                path = stem.with_suffix(suffix)
                drawing.figure.savefig(path, dpi=160, facecolor="white", metadata=metadata)
                written.append(path)
    return written


def draw_identifiers(corpus: CorpusEvidence, t: Texts = ENGLISH) -> list[Drawing]:
    """Return the figures of identifiers and words per individual (Fig. 5 of [@boutet2025]) and of individuals per word
    (Fig. 6)."""
    parts = {
        "direct": ("direct only", "-"),
        "indirect": ("indirect only", (0, (2, 1.5))),
        "both": ("protected", (0, (7, 2))),
    }
    per_individual = corpus.identifiers_per_individual or {}
    lines = [_Line(t.evidence(name), per_individual.get(name), *look) for name, look in parts.items()]
    drawings = [
        _draw_cumulative("identifiers", lines, t),
        _draw_cumulative("words", [_Line(t.evidence("words"), corpus.words_per_individual, "base", "-")], t),
    ]
    per_word = corpus.individuals_per_word
    lines = [
        _Line(t("plots.distinct_words"), per_word.distinct if per_word else None, "plain", "-"),
        _Line(t("plots.all_occurrences"), per_word.occurrences if per_word else None, "base", (0, (5, 2))),
    ]
    drawings.append(_draw_cumulative("support", lines, t, k=corpus.k))
    return [drawing for drawing in drawings if drawing]


def _draw_cumulative(name: str, lines: Sequence[_Line], t: Texts, k: int | None = None) -> Drawing | None:
    """Draw one panel of cumulative distributions, a curve for each of ``lines``, with a dotted line at the threshold
    ``k`` if given; None if there is no curve."""
    curves = [(line, line.curve) for line in lines if line.curve and line.curve.x]
    if not curves:
        return None
    title = t(f"plots.{name}.panel")
    figure, axis = new_panel(title, "" if k is None else _k_note(k, t), width=WIDTH)
    said = []
    for line, curve in curves:
        colour = LOOKS[line.looks_like].light
        axis.step(curve.x, curve.y, where="post", color=colour, linestyle=line.dash, label=line.name)
        half = _quantile(curve, 0.5)
        if k is None:
            text = (
                t("plots.more_than_half_of_the_people_have_more", n=t.plain(f"{curve.x[-1]:,g}"))
                if np.isnan(half)
                else t("plots.half_of_the_people_have_at_most_n", n=t.plain(f"{half:,g}"))
            )
        else:
            text = t("plots.share_are_used_by_fewer_than_k", share=f"{100 * _share_below(curve, k):.0f}", k=k)
        said.append(t("common.name_what", name=line.name, what=text))
    axis.set(xlabel=t(f"plots.{name}.x"), ylabel=t(f"plots.{name}.y"), ylim=(0, 1.02))
    if k is not None:
        _log_ticks(axis, max(max(curve.x) for _, curve in curves), t)
        axis.axvline(k - 0.5, color=SOFT, linestyle=":", linewidth=1.2)
    else:
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.locator_params(axis="x", integer=True, nbins=7)
    if len(curves) > 1:
        axis.legend(loc="best", fontsize=8)
    return Drawing(f"fig-{name}", figure, alt_text(t, t("plots.title_cumulative", title=title), said))


def _k_note(k: int, t: Texts) -> str:
    """Return a note for a plot with a dotted line at the threshold: words to the left of the line are used by fewer
    than k individuals."""
    return t("plots.left_of_the_dotted_line_fewer_than_k", k=k)


def _share_below(curve: Curve | WordCurve, k: int) -> float:
    """Return the share that a cumulative curve reaches at the last value below k; 0 if the curve has no such value."""
    return max((y for x, y in zip(curve.x, curve.y, strict=True) if x < k), default=0.0)


def _log_ticks(axis: Any, top: float, t: Texts) -> None:
    """Make the x axis logarithmic from 1 to ``top``, with plain numbers."""
    axis.set_xscale("log")
    ticks = [each for e in range(9) for each in (10**e, 3 * 10**e) if each <= top and (top < 3000 or each == 10**e)]
    axis.set_xticks(ticks, [t.count(each) for each in ticks])
    axis.set_xticks([], minor=True)


def draw_by_n(corpus: CorpusEvidence, t: Texts = ENGLISH) -> list[Drawing]:
    """Return bar charts of identifying n-grams against n, of all and of those that contain no shorter identifier:
    distinct n-grams, occurrences, number per individual (Fig. 14 of [@boutet2025]); empty with a single n."""
    rows = corpus.identifiers_by_n or []
    if len(rows) < 2:
        return []
    return [
        _draw_bars_by_n(rows, "distinct", t),
        _draw_bars_by_n(rows, "occurrences", t),
        _draw_per_individual(rows, t),
    ]


#: Kinds of identifying sequences: name, counts of one length, and the recipe whose colour it has.
KINDS: tuple[tuple[str, Callable[[IdentifiersByLength], NgramCounts], str], ...] = (
    ("all", lambda row: row.all, "base"),
    ("minimal", lambda row: row.minimal, "indirect only"),
)


def _draw_bars_by_n(
    rows: Sequence[IdentifiersByLength], counted: Literal["distinct", "occurrences"], t: Texts
) -> Drawing:
    """Draw a bar chart of identifying n-grams by n. ``counted`` says whether distinct n-grams or occurrences are
    counted."""
    title, counts_all = t(f"plots.by_n.{counted}"), counted == "occurrences"
    note = t("plots.hatched_with_a_directly_identifying_word_in") if counts_all else ""
    figure, axis = new_panel(title, note, width=WIDTH)
    said = []
    for side, (kind, of, look) in enumerate(KINDS):
        x = np.array([row.n + (side - 0.5) * 0.38 for row in rows])
        counts = [of(row).occurrences if counts_all else of(row).distinct for row in rows]
        bar = axis.bar(
            x, [count or 0 for count in counts], width=0.36, color=LOOKS[look].light, label=t(f"plots.by_n.{kind}")
        )
        few = [t("plots.few") if count is None else "" for count in counts]  # withheld, which is not none
        axis.bar_label(bar, few, fontsize=7.5, color=SOFT, padding=1)
        if counts_all:
            inner = [of(row).occurrences_direct or 0 for row in rows]
            axis.bar(x, inner, width=0.36, facecolor="none", edgecolor=PAPER, hatch="////", linewidth=0)
        shown = [few or t.count(count) for few, count in zip(few, counts, strict=True)]
        said.append(_counts_sentence(kind, shown, rows, t))
    axis.set_xticks([row.n for row in rows])
    axis.set(
        xlabel=t("plots.words_in_the_sequence_n"),
        ylabel=t("common.occurrences") if counts_all else t("plots.distinct_sequences"),
    )
    _plain_counts(axis, t)
    axis.grid(visible=False, axis="x")
    axis.margins(y=0.25)  # for the legend
    axis.legend(loc="upper left", fontsize=8)
    name = "fig-by-n-occurrences" if counts_all else "fig-by-n"
    return Drawing(name, figure, alt_text(t, title, said))


def _counts_sentence(kind: str, count_texts: Sequence[str], rows: Sequence[IdentifiersByLength], t: Texts) -> str:
    """Return a sentence for an alternative text that lists one kind of n-grams by n, with the numbers in
    ``count_texts``."""
    numbers = [
        t("plots.count_of_n_words", total=each, count=row.n) for each, row in zip(count_texts, rows, strict=True)
    ]
    return t("common.name_what", name=t(f"plots.by_n.{kind}"), what=", ".join(numbers))


def _draw_per_individual(rows: Sequence[IdentifiersByLength], t: Texts) -> Drawing:
    """Draw the median and quartiles, over individuals, of the number of identifying n-grams, by n."""
    title, note = t("plots.identifying_sequences_per_person"), t("plots.median_bars_hold_the_middle_half")
    figure, axis = new_panel(title, note, width=WIDTH)
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
            label=t(f"plots.by_n.{kind}"), elinewidth=1, capsize=3,
        )  # fmt: skip
        shown = [
            t("plots.more_than_n", n=t.plain(f"{curve.x[-1]:g}")) if np.isnan(m) else t.plain(f"{m:g}")
            for m, (_, curve) in zip(middle, curves, strict=True)
        ]
        said.append(_counts_sentence(kind, shown, chosen, t))
    axis.set_xticks([row.n for row in rows])
    axis.margins(y=0.25)  # for the legend
    axis.set(
        xlabel=t("plots.words_in_the_sequence_n"), ylabel=t("plots.distinct_sequences_of_a_person"), ylim=(0, None)
    )
    _plain_counts(axis, t)
    axis.legend(loc="upper left", fontsize=8)
    return Drawing("fig-by-n-person", figure, alt_text(t, t("plots.title_median", title=title), said))


def _quantile(curve: Curve | WordCurve, share: float) -> float:
    """Return the first value at which a cumulative curve reaches ``share``; NaN if it never does, because the end of
    the curve is not published."""
    return next((x for x, y in zip(curve.x, curve.y, strict=True) if y >= share), np.nan)


def draw_margin(corpus: CorpusEvidence, t: Texts = ENGLISH) -> list[Drawing]:
    """Return bar charts, one for each small n, of the number of distinct n-grams by how many individuals use them, just
    below and just above the threshold k."""
    drawings, k = [], corpus.k
    for n in range(1, MAX_MARGINS + 1):
        rows = [row for row in corpus.margin or [] if row.n == n]
        if not rows:
            continue
        title = t("plots.words_near_the_line") if n == 1 else t("plots.sequences_of_n_words_near_the_line", n=n)
        figure, axis = new_panel(title, _k_note(k, t), width=WIDTH)
        for row in rows:
            look = LOOKS["indirect only" if row.support < k else "base"]
            bar = axis.bar(row.support, row.distinct or 0, width=0.7, color=look.light)
            shown = t("plots.few") if row.distinct is None else _short_count(row.distinct, t)
            axis.bar_label(bar, [shown], fontsize=7.5, color=SOFT, padding=1)
        axis.axvline(k - 0.5, color=SOFT, linestyle=":", linewidth=1.2)
        axis.set_xticks([row.support for row in rows])
        axis.set(
            xlabel=t("plots.people_who_use_it"),
            ylabel=t("plots.distinct_words") if n == 1 else t("plots.distinct_sequences"),
        )
        axis.margins(y=0.1)
        _plain_counts(axis, t)
        axis.grid(visible=False, axis="x")
        said = [
            t(
                "plots.count_used_by_n",
                count=t("plots.few") if row.distinct is None else t.count(row.distinct),
                n=row.support,
            )
            for row in rows
        ]
        label = f"{alt_text(t, title, said)} {t('plots.under_k_they_identify', k=k)}"
        drawings.append(Drawing(f"fig-margin-{n}", figure, label))
    return drawings


def _short_count(count: int, t: Texts) -> str:
    """Return a count as short text: 12 M, 3.4 k."""
    rounded = float(f"{count:.3g}")  # before the unit is chosen: 999,900 is 1 M
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if rounded >= unit:
            return f"{t.plain(f'{rounded / unit:g}')} {letter}"
    return str(count)


def _plain_counts(axis: Any, t: Texts) -> None:
    """Show counts on the y axis as plain, short numbers."""
    axis.yaxis.set_major_formatter(lambda value, _: _short_count(round(value), t))
    axis.yaxis.get_major_locator().set_params(integer=True, nbins=5)


def draw_unicity(corpus: CorpusEvidence, t: Texts = ENGLISH) -> list[Drawing]:
    """Return the figure of how often m random common words occur together in the texts of only one individual, by m,
    with 95 % intervals."""
    rows = [row for row in corpus.unicity or [] if row.share.value is not None]
    if not rows:
        return []
    note = t("plots.sets_of_words_that_at_least_k_people", k=corpus.k)
    figure, axis = new_panel(t("plots.shared_words_that_point_to_one_person"), note, width=WIDTH)
    value, low, high = (100 * part for part in values_and_ends(row.share for row in rows))
    x = [row.m for row in rows]
    look = LOOKS["plain"]
    axis.errorbar(x, value, yerr=whiskers(value, low, high), fmt="none", ecolor=look.light, elinewidth=1, capsize=3)
    axis.plot(x, value, color=look.light)
    faces = marker_fills([row.share for row in rows], look.light)
    axis.scatter(x, value, s=26, c=faces, edgecolors=look.light, marker=look.marker, zorder=3)
    axis.set_xticks(x)
    axis.set(xlabel=t("plots.words_in_the_set_m"), ylabel=t("plots.sets_of_one_person_only"), ylim=(0, None))
    said = [t("plots.m_words_share", count=row.m, share=estimate_in_words(row.share, t)) for row in rows]
    title = t("plots.share_of_random_sets_of_shared_words_that")
    return [Drawing("fig-unicity", figure, alt_text(t, title, said))]


def draw_retention(corpus: CorpusEvidence, t: Texts = ENGLISH) -> list[Drawing]:
    """Return the figure of the share of words that remain prediction targets under indirect protection, by policy and
    largest protected n; empty with a single n."""
    rows = retention_rows(corpus)
    lengths = sorted({row.n for row in rows if row.n is not None})
    if len(lengths) < 2:
        return []
    title = t("common.words_left_to_learn_from")
    figure, axis = new_panel(title, t("plots.a_line_a_policy"), width=WIDTH)
    said = []
    for policy, name in POLICY_LOOKS.items():
        look = LOOKS[name]
        shares = [100 * row.retention for n in lengths for row in rows if (row.policy, row.n) == (policy, n)]
        axis.plot(lengths, shares, color=look.light, linestyle=look.line, marker=look.marker, label=policy)
        numbers = [
            t("plots.share_at_n_n", share=t.number(each, 1), n=n) for n, each in zip(lengths, shares, strict=True)
        ]
        said.append(t("common.name_what", name=policy, what=", ".join(numbers)))
    axis.set_xticks(lengths)
    axis.set(xlabel=t("plots.words_in_a_sequence_at_most_n"), ylabel=t("plots.words_that_indirect_protection_leaves"))
    axis.legend(loc="lower left", fontsize=8)
    return [Drawing("fig-retention", figure, alt_text(t, title, said))]


_FIGURES = {
    "identifiers": draw_identifiers,
    "by_n": draw_by_n,
    "margin": draw_margin,
    "unicity": draw_unicity,
    "retention": draw_retention,
}
