"""Further utility figures: similarity of continuations (BLEU, ROUGE) and F1 of a downstream task, as inline SVG.

The rules are those of :mod:`reticent.audit.report.plots`. All panels run from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reticent.audit.report.figure import (
    alt_text,
    estimate_in_words,
    has_value,
    look_of,
    marker_offset,
    new_panel,
    printable,
    styled,
    to_svg,
    values_and_ends,
    whiskers,
)
from reticent.audit.report.selectors import groups_of, last_of
from reticent.audit.texts import ENGLISH, Texts

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.evidence.classification import ClassificationEvidence, ClassifiedStart

#: Field of `Continuations` -> (its name, its marker).
LIKENESS = {"bleu": ("BLEU", "o"), "rouge1": ("ROUGE-1", "D"), "rouge2": ("ROUGE-2", "^"), "rouge_l": ("ROUGE-L", "s")}


@styled
def continuation_panels(models: Sequence[ModelEvidence], t: Texts = ENGLISH) -> list[str]:
    """Return panels of BLEU and ROUGE on held-out individuals' documents at the last checkpoints, as inline SVG."""
    chosen = [m for m in models if m.generated and m.generated.heldout]
    panels = []
    for group in groups_of(models, chosen):
        entries = last_of(chosen, group)
        figure, axis = new_panel(group.panel_title(t), height=1.35 + 0.42 * len(entries))
        said = []
        for row, model in enumerate(entries):
            assert model.generated is not None
            assert model.generated.heldout is not None
            found = {name: getattr(model.generated.heldout, name) for name in LIKENESS}
            for number, (name, (_, marker)) in enumerate(LIKENESS.items()):
                if has_value(found[name]):
                    value, low, high = values_and_ends([found[name]])
                    axis.errorbar(
                        value, [row + marker_offset(number, len(LIKENESS), 0.2)], xerr=whiskers(value, low, high),
                        fmt=marker, color=look_of(model.recipe).light, markersize=4.5, elinewidth=1,
                    )  # fmt: skip
            numbers = ", ".join(f"{title} {estimate_in_words(found[name], t)}" for name, (title, _) in LIKENESS.items())
            said.append(t("common.name_what", name=printable(model.recipe), what=numbers))
        axis.set_yticks(range(len(entries)), [printable(m.recipe) for m in entries])
        label = "   ".join(f"{mark} {title}" for mark, (title, _) in zip("●◆▲■", LIKENESS.values(), strict=True))
        axis.set(xlabel=label, ylim=(len(entries) - 0.4, -0.6), xlim=(-0.03, 1.03))
        title = t("plots.continuations_against_the_documents_group", group=group.title(t))
        panels.append(to_svg(figure, f"fig-continuations-{group.slug}", alt_text(t, title, said), t))
    return panels


@styled
def f1_panels(results: Sequence[ClassificationEvidence], t: Texts = ENGLISH) -> list[str]:
    """Return panels of macro and micro F1 of classifiers or taggers on held-out individuals' documents, a row for each
    starting model, as inline SVG."""
    panels = []
    for number, result in enumerate(results, start=1):
        rows = [row for row in result.results if has_value(row.macro_f1)]
        if not rows:
            continue
        kind = t("plots.taggers" if result.task == "tags" else "plots.classifiers")
        named = f"{printable(result.model)}, {kind}" if result.model and result.task == "tags" else result.model or kind
        figure, axis = new_panel(printable(named), height=1.35 + 0.3 * len(rows))
        said = []
        for at, row in enumerate(rows):
            for side, (estimate, marker) in enumerate(((row.macro_f1, "o"), (row.micro_f1, "D"))):
                if has_value(estimate):
                    value, low, high = values_and_ends([estimate])
                    axis.errorbar(
                        value, [at + marker_offset(side, 2, 0.24)], xerr=whiskers(value, low, high), fmt=marker,
                        color=look_of(row.recipe).light, markersize=4.5, elinewidth=1,
                    )  # fmt: skip
            macro, micro = estimate_in_words(row.macro_f1, t), estimate_in_words(row.micro_f1, t)
            said.append(
                t("plots.name_macro_f1_macro_micro_f1_micro", name=start_name(row, t), macro=macro, micro=micro)
            )
        axis.set_yticks(range(len(rows)), [start_name(row, t) for row in rows])
        axis.set(xlabel=t("plots.macro_f1_micro_f1"), ylim=(len(rows) - 0.4, -0.6), xlim=(-0.03, 1.03))
        title = t(
            "plots.f1_of_the_downstream_task_model",
            model=printable(named if result.task == "tags" else result.model or ""),
        )
        panels.append(to_svg(figure, f"fig-f1-{number}", alt_text(t, title, said), t))
    return panels


def start_name(row: ClassifiedStart, t: Texts = ENGLISH) -> str:
    """Return the name of a classifier's starting model: its recipe, and its epochs if it is a checkpoint."""
    recipe = t.evidence(printable(row.recipe))
    return t("plots.recipe_epochs_epochs", recipe=recipe, count=row.epoch) if row.epoch else recipe
