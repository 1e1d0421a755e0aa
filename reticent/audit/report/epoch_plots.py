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
    alt_text,
    draw_recipe_line,
    epoch_axis,
    epoch_factor,
    has_value,
    new_panel,
    printable,
    styled,
    to_svg,
    value_in_words,
    values_and_ends,
)
from reticent.audit.report.selectors import Group, by_recipe, groups_of, loss_auc, ordinary_utility
from reticent.audit.texts import ENGLISH, Texts

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.stats.estimate import Estimate

Measure = Callable[["ModelEvidence"], "Estimate | None"]
#: (slug, value at chance or None, function that returns the estimate of an entry).
MEASURES: tuple[tuple[str, float | None, Measure], ...] = (
    ("utility", None, lambda m: ordinary_utility(m.utility.heldout, m.objective)),
    ("privacy", None, lambda m: m.privacy["both"].types),
    ("loss", 0.5, loss_auc),
)


@styled
def epoch_panels(models: Sequence[ModelEvidence], t: Texts = ENGLISH) -> list[str]:
    """Return panels of utility, Privacy (share of identifiers not predicted) and the AUC of the loss attack, each
    against the number of training epochs, as inline SVG; empty if no recipe has two checkpoints."""
    groups = groups_of(models)
    recipes = {group: by_recipe(models, group) for group in groups}
    if all(len(entries) < 2 for found in recipes.values() for entries in found.values()):
        return []
    limits = {slug: _shared_limits(models, measure, chance) for slug, chance, measure in MEASURES}
    return [
        _draw_panel(group, recipes[group], row, limits[row[0]], t)
        for group in groups
        for row in MEASURES
        if limits[row[0]] is not None
    ]


def _points_of(models: Sequence[ModelEvidence], measure: Measure) -> list[tuple[int, Estimate]]:
    """Return (epoch, estimate) of each model that has a value of this measure (a function of a model)."""
    rows = [(m.epoch, measure(m)) for m in models]
    return [(epoch, found) for epoch, found in rows if has_value(found)]


def _shared_limits(
    models: Sequence[ModelEvidence], measure: Measure, chance: float | None
) -> tuple[float, float] | None:
    """Return the y axis limits that all panels of a measure share: they hold all intervals, ranges over seeds, and
    chance. None without an estimate."""
    estimates = [found for _, found in _points_of(models, measure)]
    if not estimates:
        return None
    _, lows, highs = values_and_ends(estimates)
    bands = [end for found in estimates if found.seeds for end in (found.seeds.low, found.seeds.high)]
    ends = np.array([*lows, *highs, *bands, *([] if chance is None else [chance])])
    room = max(0.05 * float(np.ptp(ends)), 0.01)
    return float(ends.min()) - room, float(ends.max()) + room


def _draw_panel(
    group: Group,
    recipes: dict[str, list[ModelEvidence]],
    row: tuple[str, float | None, Measure],
    limits: tuple[float, float] | None,
    t: Texts,
) -> str:
    """Return one panel of a measure against the number of training epochs, a line for each recipe, as inline SVG.
    ``row`` is (name of the measure, its value by chance or None, function that takes a model and returns it)."""
    slug, chance, measure = row
    title = t(f"plots.epochs.{slug}.title")
    figure, axis = new_panel(group.short_title(t, title, in_two_lines=True), width=3.7)
    said = []
    if chance is not None:
        axis.axhline(chance, color=SOFT, linestyle="--", linewidth=1)
    trained = {r: found for r, entries in recipes.items() if (found := [m for m in entries if m.epoch])}
    epochs = [m.epoch for entries in trained.values() for m in entries]
    for _, base in _points_of(recipes.get("base", []), measure):
        axis.axhline(base.value, color=LOOKS["base"].light, linestyle=LOOKS["base"].line, linewidth=1.2)
        said.append(t("common.name_what", name="base", what=value_in_words(base, t)))
    for number, (recipe, entries) in enumerate(trained.items()):
        estimates = _points_of(entries, measure)
        if not estimates:
            continue
        draw_recipe_line(axis, estimates, recipe, factor=epoch_factor(number, len(trained), epochs))
        numbers = [t("plots.value_after_epochs", value=value_in_words(e, t), epochs=epoch) for epoch, e in estimates]
        said.append(t("common.name_what", name=printable(recipe), what=", ".join(numbers)))
    epoch_axis(axis, epochs)
    label = f"utility.{group.objective}" if slug == "utility" else slug
    axis.set(xlabel=t("common.epochs"), ylabel=t(f"plots.epochs.{label}.axis"), ylim=limits)
    axis.set_yticks([t for t in axis.get_yticks() if limits and limits[0] <= np.round(t, 9) <= min(limits[1], 1.0001)])
    about = t("plots.title_against_epochs_group", title=title, group=group.title(t))
    return to_svg(figure, f"fig-epochs-{slug}-{group.slug}", alt_text(t, about, said), t)
