"""Effect of longer training: utility, Privacy and membership against epochs, by recipe, as inline SVG.

The rules are those of :mod:`reticent.audit.report.plots`. Bars are intervals over individuals, bands the range over
seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from reticent.audit.report.figure import (
    LOOKS,
    SOFT,
    curve,
    dodge,
    epoch_axis,
    has_value,
    new_panel,
    printable,
    say_value,
    spread,
    styled,
    to_svg,
)
from reticent.audit.report.groups import OBJECTIVES, Group, by_recipe, groups_of
from reticent.audit.report.readings import loss_auc, ordinary_utility

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.stats.estimate import Estimate

__all__ = ["epoch_panels"]

Measure = Callable[["ModelEvidence"], "Estimate | None"]
#: Slug, title, label of the axis, where chance lies, and the estimate of an entry.
MEASURES: tuple[tuple[str, str, str, float | None, Measure], ...] = (
    (
        "utility", "utility", "ordinary words right", None,
        lambda m: ordinary_utility(m.utility.heldout, m.objective),
    ),
    ("privacy", "Privacy", "Privacy", None, lambda m: m.privacy["both"].types),
    ("loss", "membership", "AUC of attack loss", 0.5, loss_auc),
)  # fmt: skip


@styled
def epoch_panels(models: Sequence[ModelEvidence]) -> list[str]:
    """Utility, Privacy (Figs. 7 and 9, unfolded) and the loss attack against epochs; the dotted line is the base.

    Nothing where no recipe has two checkpoints.
    """
    groups = groups_of(models)
    recipes = {group: by_recipe(models, group) for group in groups}
    if all(len(entries) < 2 for found in recipes.values() for entries in found.values()):
        return []
    limits = {slug: _limits(models, measure, chance) for slug, _, _, chance, measure in MEASURES}
    return [
        _panel(group, recipes[group], row, limits[row[0]])
        for group in groups
        for row in MEASURES
        if limits[row[0]] is not None
    ]


def _measured(models: Sequence[ModelEvidence], measure: Measure) -> list[tuple[int, Estimate]]:
    """Epoch and estimate of each entry that has one."""
    rows = [(m.epoch, measure(m)) for m in models]
    return [(epoch, found) for epoch, found in rows if has_value(found)]


def _limits(models: Sequence[ModelEvidence], measure: Measure, chance: float | None) -> tuple[float, float] | None:
    """One axis for the panels of one measure, so that masked and causal models can be compared; it holds all
    intervals, the bands of the trainings, and chance."""
    estimates = [found for _, found in _measured(models, measure)]
    if not estimates:
        return None
    _, lows, highs = spread(estimates)
    bands = [end for found in estimates if found.seeds for end in (found.seeds.low, found.seeds.high)]
    ends = np.array([*lows, *highs, *bands, *([] if chance is None else [chance])])
    room = max(0.05 * float(np.ptp(ends)), 0.01)
    return float(ends.min()) - room, float(ends.max()) + room


def _panel(
    group: Group,
    recipes: dict[str, list[ModelEvidence]],
    row: tuple[str, str, str, float | None, Measure],
    limits: tuple[float, float] | None,
) -> str:
    slug, title, label, chance, measure = row
    where = OBJECTIVES[group.objective].split()[0]
    name = f"{where}: {group.short_name}\n{title}" if group.number else f"{where}: {title}"
    figure, axis = new_panel(name, width=3.7)
    said = []
    if chance is not None:
        axis.axhline(chance, color=SOFT, linestyle="--", linewidth=1)
    trained = {r: found for r, entries in recipes.items() if (found := [m for m in entries if m.epoch])}
    for _, base in _measured(recipes.get("base", []), measure):
        axis.axhline(base.value, color=LOOKS["base"].light, linestyle=LOOKS["base"].line, linewidth=1.2)
        said.append(f"base: {say_value(base)}")
    for number, (recipe, entries) in enumerate(trained.items()):
        estimates = _measured(entries, measure)
        if not estimates:
            continue
        curve(axis, estimates, recipe, factor=2 ** dodge(number, len(trained), 0.09))
        said.append(f"{printable(recipe)}: " + ", ".join(f"{say_value(e)} after {epoch}" for epoch, e in estimates))
    epoch_axis(axis, [m.epoch for entries in trained.values() for m in entries])
    if group.objective == "clm":
        label = label.replace("words", "tokens")
    axis.set(xlabel="epochs", ylabel=label, ylim=limits)
    axis.set_yticks([t for t in axis.get_yticks() if limits and limits[0] <= np.round(t, 9) <= min(limits[1], 1.0001)])
    return to_svg(
        figure,
        f"fig-epochs-{slug}-{group.slug}",
        f"{title} against epochs, {group.title}. {'; '.join(said)}.",
    )
