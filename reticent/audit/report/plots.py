"""Figures of the report as inline SVG: text stays text, bytes are reproducible, nothing is fetched.

Each function takes a published audit and returns the panels of one figure; an empty list if there is nothing to draw.
Panels are separate SVGs, so that a narrow screen stacks them instead of shrinking them. The panels of one figure share
their axes, so that masked and causal models can be compared by eye, and every panel has its numbers in an alternative
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.report.figure import (
    SOFT,
    alt_text,
    estimate_in_words,
    has_value,
    look_of,
    marker_fills,
    marker_offset,
    new_panel,
    printable,
    styled,
    to_svg,
    value_in_words,
    values_and_ends,
    whiskers,
)
from reticent.audit.report.selectors import (
    LITTLE,
    Group,
    by_recipe,
    groups_of,
    last_of,
    ordinary_utility,
)
from reticent.audit.texts import ENGLISH, NO_BREAK, Texts

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.evidence.leakage import NgramPrivacy
    from reticent.audit.stats.estimate import Estimate


def _tradeoff_points(entries: Sequence[ModelEvidence]) -> tuple[Any, ...]:
    """Return (models, their utilities, their Privacies = shares of identifiers not predicted) of the entries that have
    both. Utilities and Privacies are each (values, lower ends, upper ends), float64."""
    points = [(m, ordinary_utility(m.utility.heldout, m.objective), m.privacy["both"].types) for m in entries]
    usable = [(m, utility, privacy) for m, utility, privacy in points if has_value(utility) and has_value(privacy)]
    return (
        [m for m, *_ in usable],
        values_and_ends(utility for _, utility, _ in usable),
        values_and_ends(p for *_, p in usable),
    )


def _tradeoff_limits(models: Sequence[ModelEvidence]) -> dict[str, tuple[float, float]]:
    """Return "xlim" and "ylim" of the utility-Privacy panels, the same for all groups of models."""
    points = [_tradeoff_points(entries) for g in groups_of(models) for entries in by_recipe(models, g).values()]
    right = max((float(high.max()) for _, (_, _, high), _ in points if len(high)), default=1.0)
    bottom = min((float(low.min()) for *_, (_, low, _) in points if len(low)), default=0.0)
    bottom = min(np.floor(bottom * 10) / 10, 0.9)
    return {"xlim": (-0.02 * right, 1.05 * right), "ylim": (bottom, 1 + 0.025 * (1 - bottom))}


def _draw_tradeoff(axis: Any, models: Sequence[ModelEvidence], group: Group, t: Texts) -> list[str]:
    """Draw utility against Privacy (share of identifiers not predicted) of a group's recipes; return a text on each for
    the panel's alternative text."""
    said = []
    for recipe, entries in by_recipe(models, group).items():
        usable, (x, x_low, x_high), (y, y_low, y_high) = _tradeoff_points(entries)
        if not usable:
            continue
        look = look_of(recipe)
        axis.errorbar(
            x, y, xerr=whiskers(x, x_low, x_high), yerr=whiskers(y, y_low, y_high), fmt="none", ecolor=look.light,
            alpha=0.4, linewidth=1,
        )  # fmt: skip
        sizes = np.linspace(16, 60, len(usable)) if len(usable) > 1 else np.array([46.0])
        axis.plot(x, y, color=look.light, linestyle=look.line)
        faces = marker_fills([m.privacy["both"].types for m in usable], look.light)
        axis.scatter(x, y, s=sizes, c=faces, edgecolors=look.light, marker=look.marker, zorder=3)
        first, last = usable[0], usable[-1]
        ends = {"utility": t.number(x[-1]), "privacy": estimate_in_words(last.privacy["both"].types, t)}
        if first is last:
            text = t("plots.utility_utility_privacy_privacy", **ends)
        else:
            text = t(
                "plots.from_utility_first_utility_privacy_first",
                first_utility=t.number(x[0]),
                first_privacy=value_in_words(first.privacy["both"].types, t),
                first=first.epoch,
                last=last.epoch,
                **ends,
            )
        said.append(t("common.name_what", name=printable(recipe), what=text))
    axis.set(
        xlabel=t(f"plots.tradeoff.utility_{'words' if group.objective == 'mlm' else 'tokens'}"),
        ylabel=t("common.privacy"),
    )
    return said


def _tradeoff_note(models: Sequence[ModelEvidence], group: Group, t: Texts) -> str:
    """Return a note that every model of the group predicts less than the share `LITTLE` of ordinary words correctly;
    empty if one predicts more."""
    values = [ordinary_utility(m.utility.heldout, m.objective) for m in last_of(models, group)]
    known = [v.value for v in values if v is not None and v.value is not None]
    if not known or max(known) >= LITTLE:
        return ""
    return t("plots.no_model_gets_share_of_them_right_little", share=t.percent(LITTLE, 0).replace(NO_BREAK, " "))


@styled
def tradeoff_panels(models: Sequence[ModelEvidence], t: Texts = ENGLISH) -> list[str]:
    """Return panels of utility against Privacy (share of identifiers not predicted), a line for each recipe, a point
    for each checkpoint (Figs. 7 and 9), as inline SVG."""
    panels, limits = [], _tradeoff_limits(models)
    for group in groups_of(models):
        figure, axis = new_panel(group.panel_title(t), _tradeoff_note(models, group, t), height=3.5)
        said = _draw_tradeoff(axis, models, group, t)
        if not said:
            continue
        axis.set(**limits)
        title = t("plots.utility_against_privacy_group", group=group.title(t))
        panels.append(to_svg(figure, f"fig-tradeoff-{group.slug}", alt_text(t, title, said), t))
    return panels


@styled
def excess_panels(models: Sequence[ModelEvidence], t: Texts = ENGLISH) -> list[str]:
    """Return panels of members' leak rate minus that of held-out individuals, by recipe with intervals, as inline
    SVG."""
    chosen = [m for m in models if _excess_of_all(m)]
    panels = []
    last = {group: last_of(chosen, group) for group in groups_of(models, chosen)}
    rows = {group: [(m, own) for m in entries if (own := _excess_of_all(m))] for group, entries in last.items()}
    ends = [e for entries in rows.values() for e in values_and_ends(own for _, own in entries)[1:]]
    reach = max((float(np.abs(e).max()) for e in ends), default=0.1)
    left = min((float(e.min()) for e in ends), default=0.0)
    for group, entries in rows.items():
        value, low, high = values_and_ends(own for _, own in entries)
        note = t("plots.every_interval_holds_0_no_excess_measured") if np.all((low <= 0) & (high >= 0)) else ""
        figure, axis = new_panel(group.panel_title(t), note, height=1.35 + 0.3 * len(entries))
        axis.axvline(0, color=SOFT, linestyle="--", linewidth=1)
        for row, (model, _) in enumerate(entries):
            look = look_of(model.recipe)
            axis.errorbar(
                value[row], row, xerr=[[value[row] - low[row]], [high[row] - value[row]]], fmt=look.marker,
                color=look.light, capsize=3,
            )  # fmt: skip
        axis.locator_params(axis="x", nbins=5)  # numbers with a sign and three digits must not run into each other
        axis.set_yticks(range(len(entries)), [printable(m.recipe) for m, _ in entries])
        axis.set(xlabel=t("plots.leak_rate_of_members_minus_held_out"), ylim=(len(entries) - 0.4, -0.6),
                 xlim=(min(left, -0.1 * reach) - 0.05 * reach, 1.08 * reach))  # fmt: skip
        said = [f"{printable(m.recipe)} {estimate_in_words(own, t)}" for m, own in entries]
        title = t("plots.excess_leakage_group", group=group.title(t))
        panels.append(to_svg(figure, f"fig-excess-{group.slug}", alt_text(t, title, said), t))
    return panels


def _excess_of_all(model: ModelEvidence) -> Estimate | None:
    """Return the excess leak rate of direct and indirect identifiers together; None if it was not measured."""
    both = (model.excess or {}).get("both")
    return both.excess if both and has_value(both.excess) else None


@styled
def ngram_panels(models: Sequence[ModelEvidence], t: Texts = ENGLISH) -> list[str]:
    """Return panels of the number of predicted identifying n-grams at the last checkpoints, by n (Fig. 15), as inline
    SVG; empty if only single words identify."""
    chosen = [m for m in models if len(m.privacy_by_n or {}) > 1]
    panels = []
    known = [e for m in chosen for e in _privacy_by_length(m).values() if e.low is not None]
    tops = [(1 - (e.low or 0)) * (e.num_identifiers or 0) for e in known]
    for group in groups_of(models, chosen):
        figure, axis = new_panel(group.panel_title(t))
        entries, said = last_of(chosen, group), []
        for number, model in enumerate(entries):
            look, measured = look_of(model.recipe), _privacy_by_length(model)
            value, low, high = values_and_ends(measured.values())
            total = np.array([e.num_identifiers or 0 for e in measured.values()], dtype=float)
            x = np.array(list(measured)) + marker_offset(number, len(entries), 0.07)
            axis.errorbar(
                x, (1 - value) * total, yerr=[(high - value) * total, (value - low) * total], color=look.light,
                linestyle=look.line, elinewidth=1,
            )  # fmt: skip
            faces = marker_fills(list(measured.values()), look.light)
            axis.scatter(x, (1 - value) * total, s=30, c=faces, edgecolors=look.light, marker=look.marker, zorder=3)
            counts = [
                t(
                    "plots.fewer_than_count_of_length_n" if e.bound else "plots.count_of_length_n",
                    count=f"{(1 - v) * of:.0f}",
                    n=n,
                )
                for (n, e), v, of in zip(measured.items(), value, total, strict=True)
            ]
            said.append(t("common.name_what", name=printable(model.recipe), what=", ".join(counts)))
        ticks = sorted({int(n) for m in entries for n in m.privacy_by_n or ()})
        axis.set_xticks(ticks, [str(t) for t in ticks])
        axis.set(
            xlabel=t("plots.words_in_the_n_gram"),
            ylabel=t("plots.n_grams_predicted"),
            ylim=(0, 1.05 * max([*tops, 1.0])),
        )
        title = t("plots.identifying_n_grams_predicted_group", group=group.title(t))
        panels.append(to_svg(figure, f"fig-ngrams-{group.slug}", alt_text(t, title, said), t))
    return panels


def _privacy_by_length(model: ModelEvidence) -> dict[int, NgramPrivacy]:
    """Return n -> Privacy (share not predicted) of the model's identifying n-grams of n words, ascending, for each n
    with a value."""
    rows = sorted((model.privacy_by_n or {}).items(), key=lambda row: int(row[0]))
    return {int(n): found for n, found in rows if has_value(found) and found.num_identifiers}
