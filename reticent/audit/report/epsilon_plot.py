"""Utility and membership of the private trainings of a sweep, against epsilon, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reticent.audit.judgement.rows import PLAIN
from reticent.audit.membership.validity import CHANCE
from reticent.audit.report.figure import (
    SOFT,
    alt_text,
    draw_recipe_line,
    estimate_in_words,
    has_value,
    look_of,
    marker_offset,
    new_panel,
    printable,
    styled,
    to_svg,
    value_in_words,
)
from reticent.audit.report.selectors import Group, groups_of, last_of, ordinary_utility, strongest_attack
from reticent.audit.texts import ENGLISH, Texts
from reticent.trainer.privacy import parse_guarantee
from reticent.trainer.recipes import parted_name

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.stats.estimate import Estimate

#: Recipe -> (epsilon, model) of each of its trainings, ascending.
Arms = dict[str, list[tuple[float, "ModelEvidence"]]]
Measure = Callable[["ModelEvidence"], "Estimate | None"]
#: (name in the catalogue's plots against epochs, function that returns the estimate of a model).
MEASURES: tuple[tuple[str, Measure], ...] = (
    ("utility", lambda m: ordinary_utility(m.utility.heldout, m.objective)),
    ("loss", lambda m: (found := strongest_attack(m)) and found[1]),
)


@styled
def epsilon_panels(models: Sequence[ModelEvidence], t: Texts = ENGLISH) -> list[str]:
    """Return panels of utility and of the strongest attack's AUC against epsilon (of differential privacy), at the last
    checkpoints, as inline SVG; empty if no recipe was trained with two epsilons."""
    panels = []
    for group in groups_of(models):
        last = last_of(models, group)
        if arms := _private_arms(last):
            panels += [_draw_panel(group, last, arms, slug, measure, t) for slug, measure in MEASURES]
    return panels


def _private_arms(models: Sequence[ModelEvidence]) -> Arms:
    """Return recipe -> list of (epsilon, model), by ascending epsilon, for the recipes trained with differential
    privacy at two epsilons or more."""
    found: Arms = {}
    for model in models:
        shown = parse_guarantee(model.guarantee or "")
        if shown is not None and math.isfinite(shown[0]):
            found.setdefault(parted_name(model.recipe)[0], []).append((shown[0], model))
    return {
        recipe: sorted(arms, key=lambda row: row[0])
        for recipe, arms in found.items()
        if len({epsilon for epsilon, _ in arms}) > 1
    }


def _draw_panel(group: Group, last: Sequence[ModelEvidence], arms: Arms, slug: str, measure: Measure, t: Texts) -> str:
    """Return one panel of a measure (a function of a model) against epsilon of differential privacy, a line for each
    recipe in ``arms``, as inline SVG."""
    title = t(f"plots.epochs.{slug}.title")
    figure, axis = new_panel(group.short_title(t, title, in_two_lines=True))
    said = []
    if slug == "loss":
        axis.axhline(CHANCE, color=SOFT, linestyle="--", linewidth=1)
    for model in last:
        if (model.recipe == "base" or model.recipe in PLAIN) and has_value(found := measure(model)):
            look = look_of(model.recipe)
            axis.axhline(found.value, color=look.light, linestyle=look.line, linewidth=1.2)
            said.append(t("common.name_what", name=printable(model.recipe), what=estimate_in_words(found, t)))
    for number, (recipe, models) in enumerate(arms.items()):
        rows = [(epsilon, found) for epsilon, model in models if has_value(found := measure(model))]
        if rows:
            draw_recipe_line(axis, rows, recipe, factor=2 ** marker_offset(number, len(arms), 0.09))
            numbers = [
                t("plots.epsilon.at", value=value_in_words(found, t), epsilon=t.plain(f"{e:g}")) for e, found in rows
            ]
            said.append(t("common.name_what", name=printable(recipe), what=", ".join(numbers)))
    ticks = sorted({epsilon for models in arms.values() for epsilon, _ in models})
    axis.set_xscale("log")
    axis.set_xticks(ticks, [t.plain(f"{epsilon:g}") for epsilon in ticks])
    axis.set_xticks([], minor=True)
    label = t(f"plots.epochs.utility.{group.objective}.axis") if slug == "utility" else t("plots.epsilon.axis")
    axis.set(xlabel="epsilon", ylabel=label)
    about = t("plots.epsilon.about", title=title, group=group.title(t))
    return to_svg(figure, f"fig-epsilon-{slug}-{group.slug}", alt_text(t, about, said), t)
