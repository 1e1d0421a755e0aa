"""Figures of the membership attacks as inline SVG: low-cost membership, ROC curves, AUCs.

The rules are those of :mod:`reticent.audit.report.plots`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.report.figure import (
    GRID,
    LOOKS,
    SOFT,
    Look,
    alt_text,
    draw_recipe_line,
    epoch_axis,
    epoch_factor,
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
from reticent.audit.report.selectors import Group, by_recipe, groups_of, last_of
from reticent.audit.texts import ENGLISH, Texts

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.evidence.membership import MeasuredAttack

if TYPE_CHECKING:
    from reticent.audit.evidence.leakage import LowCost

#: Attacks by kind of word, the strongest first.
KIND_ATTACKS = ("lira", "reference", "loss")


#: Recipe -> (epoch, low-cost membership) of each of its checkpoints.
Recipes = dict[str, list[tuple[int, "LowCost"]]]


@styled
def low_cost_panels(models: Sequence[ModelEvidence], f1_of_all: float | None = None, t: Texts = ENGLISH) -> list[str]:
    """Return panels on the attack that declares an individual a member if the model predicts one of their identifiers,
    as inline SVG: precision, recall and F1, then F1 by epoch and by the share of documents that the adversary knows.

    ``f1_of_all`` is the F1 of declaring everybody a member, the trivial baseline.
    """
    chosen = [m for m in models if m.low_cost]
    panels, all_epochs = [], [m.epoch for m in chosen if m.epoch]
    for group in groups_of(models, chosen):
        recipes = {
            recipe: [(m.epoch, m.low_cost) for m in entries if m.low_cost]
            for recipe, entries in by_recipe(chosen, group).items()
        }
        scores = [low_cost.f1.value for entries in recipes.values() for _, low_cost in entries]
        note = t("plots.no_member_was_recognised_every_f1_is_0") if all(score == 0 for score in scores) else ""
        panels.append(_low_cost_bars(recipes, group, note, f1_of_all, t))
        if any(epoch for entries in recipes.values() for epoch, _ in entries):
            panels.append(_low_cost_epochs(recipes, group, note, f1_of_all, all_epochs, t))
        panels.append(_low_cost_shares(recipes, group, note, f1_of_all, t))
    return panels


def _narrow_panel(group: Group, title: str, note: str, t: Texts, height: float = 3.0) -> tuple[Any, Any, str]:
    """Return a new, narrow plot for a group of models: figure, axes, and its title as one line."""
    figure, axis = new_panel(group.short_title(t, title, in_two_lines=True), note, width=3.7, height=height)
    return figure, axis, group.short_title(t, title)


def _low_cost_bars(recipes: Recipes, group: Group, note: str, f1_of_all: float | None, t: Texts) -> str:
    """Return the panel, as inline SVG, of precision, recall and F1 by recipe for the attack that declares an individual
    a member if the model predicts one of their identifiers."""
    figure, axis, title = _narrow_panel(group, t("plots.last_checkpoint"), note, t, max(3.0, 0.4 * len(recipes)))
    said = []
    if f1_of_all is not None:
        axis.axvline(f1_of_all, color=SOFT, linestyle="--", linewidth=1)
    for row, (recipe, entries) in enumerate(recipes.items()):
        _, low_cost = entries[-1]
        measures = {"precision": low_cost.precision, "recall": low_cost.recall, "f1": low_cost.f1}
        for number, ((measure, estimate), marker) in enumerate(zip(measures.items(), "Dos", strict=True)):
            if not has_value(estimate):
                continue
            value, low, high = values_and_ends([estimate])
            shade = look_of(recipe).light if measure == "f1" else SOFT
            axis.errorbar(
                value, [row + marker_offset(number, 3, 0.24)], xerr=whiskers(value, low, high), fmt=marker, color=shade,
                markersize=4.5, elinewidth=1,
                markerfacecolor=marker_fills([estimate], shade)[0],
            )  # fmt: skip
        numbers = ", ".join(f"{t.evidence(name)} {estimate_in_words(own, t)}" for name, own in measures.items())
        said.append(t("common.name_what", name=printable(recipe), what=numbers))
    axis.set_yticks(range(len(recipes)), [printable(r) for r in recipes])
    axis.set(ylim=(len(recipes) - 0.45, -0.55), xlim=(-0.03, 1.05), xlabel=t("plots.precision_recall_f1"))
    return to_svg(figure, f"fig-lowcost-{group.slug}", alt_text(t, title, said), t)


def _low_cost_epochs(
    recipes: Recipes, group: Group, note: str, f1_of_all: float | None, all_epochs: list[int], t: Texts
) -> str:
    """Return the panel, as inline SVG, of F1 by epoch for the attack that declares an individual a member if the model
    predicts one of their identifiers. ``f1_of_all`` is the F1 of declaring everybody a member."""
    figure, axis, title = _narrow_panel(group, t("plots.f1_against_epochs"), note, t)
    trained = {r: [row for row in entries if row[0]] for r, entries in recipes.items()}
    trained = {r: entries for r, entries in trained.items() if entries}
    said = []
    if f1_of_all is not None:
        axis.axhline(f1_of_all, color=SOFT, linestyle="--", linewidth=1)
    for _, base in recipes.get("base", [])[:1]:
        if has_value(base.f1):
            look = LOOKS["base"]
            axis.axhline(base.f1.value, color=look.light, linestyle=look.line, linewidth=1.2)
    for number, (recipe, entries) in enumerate(trained.items()):
        rows = [(epoch, low_cost.f1) for epoch, low_cost in entries if has_value(low_cost.f1)]
        draw_recipe_line(axis, rows, recipe, factor=epoch_factor(number, len(trained), all_epochs))
        numbers = ", ".join(
            t("plots.value_after_epochs", value=value_in_words(f1, t), epochs=epoch) for epoch, f1 in rows
        )
        said.append(t("common.name_what", name=printable(recipe), what=numbers))
    epoch_axis(axis, all_epochs)
    axis.set(xlabel=t("common.epochs"), ylabel="F1", ylim=(-0.03, 1.05))
    return to_svg(figure, f"fig-epochs-{group.slug}", alt_text(t, title, said), t)


def _low_cost_shares(recipes: Recipes, group: Group, note: str, f1_of_all: float | None, t: Texts) -> str:
    """Return the panel, as inline SVG, of F1 by the share of documents that the adversary knows, for the attack that
    declares an individual a member if the model predicts one of their identifiers."""
    figure, axis, title = _narrow_panel(group, t("plots.f1_against_knowledge"), note, t)
    said = []
    if f1_of_all is not None:
        axis.axhline(f1_of_all, color=SOFT, linestyle="--", linewidth=1)
    for number, (recipe, entries) in enumerate(recipes.items()):
        rows = [(r.share, r.f1) for r in entries[-1][1].by_graph_share if has_value(r.f1)]
        draw_recipe_line(axis, rows, recipe, shift=marker_offset(number, len(recipes), 0.012, 0.12))
        numbers = ", ".join(
            t("plots.value_at_share", value=value_in_words(f1, t), share=f"{100 * share:.0f}") for share, f1 in rows
        )
        said.append(t("common.name_what", name=printable(recipe), what=numbers))
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axis.set(
        xlabel=t("plots.share_of_the_documents_the_adversary_has"), ylabel="F1", xlim=(0, 1.05), ylim=(-0.03, 1.05)
    )
    return to_svg(figure, f"fig-shares-{group.slug}", alt_text(t, title, said), t)


@styled
def roc_panels(models: Sequence[ModelEvidence], attack: str, small_cell: int = 5, t: Texts = ENGLISH) -> list[str]:
    """Return panels of the ROC curves of one attack at the last checkpoints (Fig. 11), as inline SVG, on logarithmic
    axes with pointwise exact binomial bands.

    False-positive rates that rest on fewer than 10 non-members are greyed out and not reported
    (definitions.md#intervals).
    """
    chosen = [m for m in models if attack in m.membership]
    last = {group: last_of(chosen, group) for group in groups_of(models, chosen)}
    measured = [m.membership[attack] for entries in last.values() for m in entries]
    sides = [(found.num_members or 0, found.num_nonmembers or 0) for found in measured]
    if not sides:
        return []
    resolved = 10 / max(n for _, n in sides)
    # Of the larger side, the individual that completes a cell is the first that can be drawn.
    floor = min(small_cell / max(max(side) for side in sides), 0.5)
    panels = []
    for group, entries in last.items():
        figure, axis = new_panel(
            group.panel_title(t), t("plots.attack_attack_bands_95", attack=printable(attack)), height=3.5
        )
        axis.axvspan(floor, min(resolved, 1.0), color=GRID, alpha=0.6, linewidth=0)
        axis.plot([floor, 1], [floor, 1], color=SOFT, linestyle="--", linewidth=1)
        for model in entries:
            _draw_roc(axis, model.membership[attack], look_of(model.recipe), floor)
        axis.set(xlabel=t("plots.false_positive_rate"), ylabel=t("plots.true_positive_rate"))
        axis.set(xscale="log", yscale="log", xlim=(floor, 1.02), ylim=(floor, 1.04))
        ticks = [tick for e in range(-6, 1) for tick in (10.0**e, 2 * 10.0**e, 5 * 10.0**e) if floor <= tick <= 1]
        ticks = ticks if len(ticks) <= 7 else [tick for tick in ticks if np.isclose(np.log10(tick) % 1, 0)]
        for one in (axis.xaxis, axis.yaxis):
            one.set_ticks(ticks, labels=[t.plain(f"{tick:g}") for tick in ticks])
            one.set_ticks([], minor=True)
        said = [
            t("plots.name_area_value", name=printable(m.recipe), value=estimate_in_words(m.membership[attack].auc, t))
            for m in entries
        ]
        slug = re.sub(r"[^a-z0-9]+", "-", attack.lower())
        title = t("plots.roc_of_attack_attack_group", attack=printable(attack), group=group.title(t))
        panels.append(to_svg(figure, f"fig-roc-{slug}-{group.slug}", alt_text(t, title, said), t))
    return panels


#: Recalls whose precision is in the alternative text.
RECALLS = (0.1, 0.5, 0.9)


@styled
def precision_panels(models: Sequence[ModelEvidence], attack: str, t: Texts = ENGLISH) -> list[str]:
    """Return panels of precision against recall of one attack at the last checkpoints, as inline SVG, for equal numbers
    of members and non-members: precision = TPR / (TPR + FPR)."""
    chosen = [m for m in models if attack in m.membership and m.membership[attack].roc.fpr]
    panels = []
    for group in groups_of(models, chosen):
        figure, axis = new_panel(group.panel_title(t), t("report.attack_attack", attack=printable(attack)), height=3.5)
        axis.axhline(0.5, color=SOFT, linestyle="--", linewidth=1)
        said = []
        for model in last_of(chosen, group):
            recall, precision = _recall_and_precision(model.membership[attack])
            look = look_of(model.recipe)
            axis.plot(recall, precision, color=look.light, linestyle=look.line)
            numbers = ", ".join(
                t("plots.value_at_share", value=t.number(max(precision[recall >= share])), share=f"{100 * share:.0f}")
                for share in RECALLS
                if (recall >= share).any()
            )
            said.append(t("common.name_what", name=printable(model.recipe), what=numbers))
        axis.set(xlabel=t("plots.share_of_members_found"), ylabel=t("report.precision"))
        axis.set(xlim=(0, 1.02), ylim=(-0.03, 1.05))
        slug = re.sub(r"[^a-z0-9]+", "-", attack.lower())
        title = t("plots.precision_of_attack_attack_group", attack=printable(attack), group=group.title(t))
        panels.append(to_svg(figure, f"fig-precision-{slug}-{group.slug}", alt_text(t, title, said), t))
    return panels


def _recall_and_precision(measured: MeasuredAttack) -> tuple[np.ndarray, np.ndarray]:
    """Return (recall, precision) for equal numbers of members and others, at each threshold of the ROC curve that
    someone exceeds; float64."""
    fpr, tpr = (np.array(rates, dtype=float) for rates in (measured.roc.fpr, measured.roc.tpr))
    passed = fpr + tpr > 0
    return tpr[passed], tpr[passed] / (tpr + fpr)[passed]


def _draw_roc(axis: Any, measured: MeasuredAttack, look: Look, floor: float) -> None:
    """Draw an attack's ROC curve as steps, with a band of pointwise exact binomial intervals of the true-positive
    rate.
    """
    from scipy import stats

    fpr, tpr = (np.array(rates, dtype=float) for rates in (measured.roc.fpr, measured.roc.tpr))
    n = measured.num_members or 0
    fpr, tpr = np.maximum(fpr, floor), np.maximum.accumulate(tpr)
    # Of the thresholds left of the floor the last one counts; a curve without any begins where it can be seen.
    kept = (tpr > 0) & (np.append(fpr[1:], np.inf) > floor)
    fpr, tpr = fpr[kept], tpr[kept]
    hits = np.round(tpr * n)
    with np.errstate(invalid="ignore"):
        low = np.where(hits > 0, stats.beta.ppf(0.025, hits, n - hits + 1), 0.0)
        high = np.where(hits < n, stats.beta.ppf(0.975, hits + 1, n - hits), 1.0)
    axis.fill_between(fpr, np.maximum(low, floor / 2), high, step="post", color=look.light, alpha=0.1, linewidth=0)
    axis.step(fpr, np.maximum(tpr, floor / 2), where="post", color=look.light, linestyle=look.line)


@styled
def auc_panels(models: Sequence[ModelEvidence], attacks: Sequence[str], t: Texts = ENGLISH) -> list[str]:
    """Return panels of the AUCs of all ``attacks`` on each recipe at the last checkpoints, as inline SVG."""
    chosen = [m for m in models if m.membership]
    groups = groups_of(models, chosen)
    ends = [e for group in groups for m in last_of(chosen, group) for a in m.membership.values()
            for e in values_and_ends([a.auc])[1]]  # fmt: skip
    left = min([*ends, 0.45]) - 0.03
    panels = []
    for group in groups:
        entries, said = last_of(chosen, group), []
        here = [a for a in attacks if any(a in m.membership for m in entries)]
        figure, axis = new_panel(group.panel_title(t), height=1.1 + 0.16 * len(entries) * len(here))
        axis.axvline(0.5, color=SOFT, linestyle="--", linewidth=1)
        for number, model in enumerate(entries):
            rows = [(row, model.membership[a].auc) for row, a in enumerate(here) if a in model.membership]
            rows = [row for row in rows if has_value(row[1])]
            if not rows:
                continue
            look = look_of(model.recipe)
            value, low, high = values_and_ends(auc for _, auc in rows)
            y = np.array([row for row, _ in rows]) + marker_offset(number, len(entries), 0.8 / len(entries))
            axis.errorbar(value, y, xerr=whiskers(value, low, high), fmt=look.marker, color=look.light, elinewidth=1.2)
            numbers = ", ".join(f"{here[row]} {estimate_in_words(auc, t)}" for row, auc in rows)
            said.append(t("common.name_what", name=printable(model.recipe), what=numbers))
        axis.set_yticks(range(len(here)), [printable(a) for a in here])
        axis.set(xlabel=t("plots.area_under_the_roc_curve_0_5_is"), xlim=(left, 1.02), ylim=(len(here) - 0.5, -0.5))
        title = t("plots.membership_group", group=group.title(t))
        panels.append(to_svg(figure, f"fig-auc-{group.slug}", alt_text(t, title, said), t))
    return panels


@styled
def kind_panels(models: Sequence[ModelEvidence], t: Texts = ENGLISH) -> list[str]:
    """Return panels of the AUC of a membership attack by kind of word (rare, direct, …) at the last checkpoints, as
    inline SVG. The attack is LiRA or, if it was not made, the reference or the loss attack."""
    chosen = [m for m in models if m.by_kind]
    panels = []
    for group in groups_of(models, chosen):
        entries = last_of(chosen, group)
        kinds = list(dict.fromkeys(kind for m in entries for kind in m.by_kind or ()))
        height = max(0.42, 0.085 * len(entries))  # of a row
        step = min(0.16, 0.8 / len(entries))  # a mark is nearer to its own row than to the next
        figure, axis = new_panel(group.panel_title(t), height=1.6 + height * len(kinds))
        axis.axvline(0.5, color=SOFT, linestyle="--", linewidth=1)
        said = []
        for number, model in enumerate(entries):
            look, told = look_of(model.recipe), []
            for row, kind in enumerate(kinds):
                own = (model.by_kind or {}).get(kind)
                name = next((attack for attack in KIND_ATTACKS if own and attack in own.attacks), None)
                if own is None or name is None or not has_value(auc := own.attacks[name].auc):
                    continue
                value, low, high = values_and_ends([auc])
                axis.errorbar(
                    value, [row + marker_offset(number, len(entries), step)], xerr=whiskers(value, low, high),
                    fmt=look.marker, color=look.light, markersize=4.5, elinewidth=1,
                )  # fmt: skip
                told.append(f"{t.evidence(kind)} {estimate_in_words(auc, t)} ({name})")
            said.append(t("common.name_what", name=printable(model.recipe), what=", ".join(told)))
        axis.set_yticks(range(len(kinds)), [t.evidence(kind) for kind in kinds])
        axis.set(xlabel=t("plots.auc_by_these_words_alone"), ylim=(len(kinds) - 0.4, -0.6), xlim=(-0.03, 1.03))
        title = t("plots.membership_by_kind_of_word_group", group=group.title(t))
        panels.append(to_svg(figure, f"fig-kinds-{group.slug}", alt_text(t, title, said), t))
    return panels
