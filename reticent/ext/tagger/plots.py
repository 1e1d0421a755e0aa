"""Figures of the tagger attack as inline SVG: ROC, scores of members and others, advantage by mentions, average
precision by prompt.

The rules are those of :mod:`reticent.audit.report.plots`. Members have the colour of a model without protection,
held-out individuals that of the base model; the blind baseline (features of the name alone) is grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reticent.audit.evidence.tagger import RatesByMentions, TaggerEvidence
from reticent.audit.report.figure import (
    LOOKS,
    PAPER,
    SOFT,
    estimate_in_words,
    new_panel,
    styled,
    to_svg,
    values_and_ends,
    whiskers,
)
from reticent.audit.stats.estimate import Estimate
from reticent.ext.tagger.attacks import nd_as_zero

MEMBER, HELDOUT = LOOKS["plain"], LOOKS["base"]
#: Log-odds beyond these are drawn at the edge: probabilities within 1e-6 of 0 or 1.
EDGE = 6
TICKS = (1e-5, 1e-4, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)


def tagger_panels(result: TaggerEvidence, scores: np.ndarray) -> list[str]:
    """Draw the figures of a tagger's attack results; return them as SVG strings."""
    panels = [
        _draw_roc(result),
        _draw_histograms(scores),
        _draw_precision_by_prompt(result),
        _draw_accuracy_by_kind(result),
    ]
    if any(row.advantage for row in result.occurrences):
        panels.insert(2, _draw_advantage_by_mentions(result))
    return panels


@styled
def _draw_roc(result: TaggerEvidence) -> str:
    """Draw the ROC curves of mean score, maximum score and the baseline without the model; return the SVG text."""
    figure, axis = new_panel("ROC, test names", "solid: mean score, dots: maximum, grey: without the model", height=3.5)
    axis.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
    curves, test = result.test.list.roc, result.test
    for curve, colour, line in ((curves.blind, SOFT, "-"), (curves.maximum, MEMBER.light, (0, (1, 1.4))),
                               (curves.mean, MEMBER.light, "-")):  # fmt: skip
        axis.step(curve.fpr, curve.tpr, where="post", color=colour, linestyle=line)
    axis.set(xlabel="false-positive rate", ylabel="true-positive rate", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    area, blind = test.list.auc_of_mean, test.blind.auc
    label = f"ROC of the mean score, test names: area {area:.2f}; without the model {blind:.2f}."
    return to_svg(figure, "fig-tagger-roc", label)


@styled
def _draw_histograms(scores: np.ndarray) -> str:
    """Draw histograms of the mean scores of member and held-out names on a log-odds axis; return the SVG text."""
    sides = nd_as_zero(scores).reshape(len(scores), 2, -1).mean(axis=0)
    edge = 10.0**-EDGE
    odds = [_log_odds(np.clip(side, edge, 1 - edge)) for side in sides]
    low, high = (float(end(np.concatenate(odds))) for end in (np.min, np.max))
    bins = np.linspace(low - 0.05, high + 0.05, 31)
    figure, axis = new_panel("Scores", "filled: in the training data, line: not", height=3.5)
    axis.hist(odds[0], bins, color=MEMBER.light, alpha=0.45, density=True)
    axis.hist(odds[1], bins, color=HELDOUT.light, histtype="step", linewidth=1.6, density=True)
    ticks = [p for p in TICKS if bins[0] <= _log_odds(p) <= bins[-1]]
    ticks = ticks[:: -(-len(ticks) // 6) or 1]
    axis.set_xticks([_log_odds(p) for p in ticks], [f"{p:g}" for p in ticks])
    axis.set_xticks([], minor=True)
    axis.set(xlabel="mean probability of a person (log-odds)", ylabel="density", xlim=(bins[0], bins[-1]))
    medians = [float(np.median(side)) for side in sides]
    label = f"Mean scores: median {medians[0]:.4g} of names in the training data, {medians[1]:.4g} of others."
    return to_svg(figure, "fig-tagger-scores", label)


def _log_odds(probability: Any) -> Any:
    """Return the decimal log-odds of a probability."""
    return np.log10(probability / (1 - probability))


@styled
def _draw_advantage_by_mentions(result: TaggerEvidence) -> str:
    """Draw the advantage by how often a name is mentioned in training; return the SVG text."""
    measured = [(row, row.advantage) for row in result.occurrences if row.advantage]
    rows, advantages = zip(*measured, strict=True)
    names = [_format_range(row) for row in rows]
    figure, axis = new_panel("Advantage by mentions", "names of the training data by how often they are mentioned")
    value, low, high = values_and_ends(advantages)
    x = np.arange(len(rows))
    axis.axhline(0, color=SOFT, linestyle="--", linewidth=1)
    axis.errorbar(
        x, value, yerr=whiskers(value, low, high), color=MEMBER.light, marker=MEMBER.marker, elinewidth=1.2,
        linestyle=MEMBER.line,
    )  # fmt: skip
    axis.set_xticks(x, [f"{name}\n{row.names} names" for name, row in zip(names, rows, strict=True)])
    axis.set(ylabel="adversarial advantage", xlim=(-0.5, len(rows) - 0.5), ylim=(min(-0.1, low.min()) - 0.03, 1.05))
    said = "; ".join(f"{name}: {estimate_in_words(own)}" for name, own in zip(names, advantages, strict=True))
    return to_svg(figure, "fig-tagger-occurrences", f"Advantage by number of mentions. {said}.")


def _format_range(row: RatesByMentions) -> str:
    """Return a range of numbers of mentions as text, such as "2 to 5" or "10 or more"."""
    if row.high is None:
        return f"{row.low} or more"
    return str(row.low) if row.low == row.high else f"{row.low} to {row.high}"


@styled
def _draw_precision_by_prompt(result: TaggerEvidence) -> str:
    """Draw the average precision of each prompt; return the SVG text."""
    texts = [prompt.text for prompt in result.prompts]
    estimates = [row.average_precision for row in result.test.by_prompt]
    figure, axis = new_panel("Average precision by prompt", "test names; 0.5 is a random list", width=5.2, height=3.5)
    _draw_estimates(axis, texts, estimates)
    axis.set(xlabel="average precision")
    said = "; ".join(f"{text} {estimate_in_words(estimate)}" for text, estimate in zip(texts, estimates, strict=True))
    return to_svg(figure, "fig-tagger-prompts", f"Average precision by prompt, test names. {said}.")


@styled
def _draw_accuracy_by_kind(result: TaggerEvidence) -> str:
    """Draw the accuracy on pairs by attack strategy and kind of prompt; return the SVG text."""
    side = result.test
    rows = [(name, row.accuracy) for name, row in side.pairwise.items()]
    rows += [("blind", side.blind.accuracy)]
    for kinds in (side.by_utterance, side.by_position):
        rows += [(kind, estimate) for kind, estimate in kinds.items() if kind not in ("none", "alone")]
    figure, axis = new_panel("Accuracy of pairs", "test pairs; 0.5 is chance", width=4.6, height=3.5)
    _draw_estimates(axis, [name for name, _ in rows], [estimate for _, estimate in rows])
    axis.set(xlabel="share of pairs that are distinguishable")
    said = "; ".join(f"{name} {estimate_in_words(estimate)}" for name, estimate in rows)
    return to_svg(figure, "fig-tagger-pairs", f"Accuracy of pairs by strategy and kind of prompt. {said}.")


def _draw_estimates(axis: Any, names: Sequence[str], estimates: Sequence[Estimate]) -> None:
    """Draw one row with a point and its interval for each name on an axis, with a line at 0.5 (chance)."""
    value, low, high = values_and_ends(estimates)
    rows = np.arange(len(names))
    axis.axvline(0.5, color=SOFT, linestyle="--", linewidth=1)
    blind = np.array([name == "blind" for name in names])
    for chosen, colour, face in ((~blind, MEMBER.light, MEMBER.light), (blind, SOFT, PAPER)):
        axis.errorbar(
            value[chosen], rows[chosen], xerr=whiskers(value, low, high)[:, chosen], fmt=MEMBER.marker, color=colour,
            markerfacecolor=face, elinewidth=1.2,
        )  # fmt: skip
    axis.set_yticks(rows, [name if len(name) <= 36 else name[:35] + "…" for name in names])
    axis.set(
        ylim=(len(names) - 0.5, -0.5), xlim=(min(0.45, float(low.min())) - 0.03, max(1.0, float(high.max())) + 0.02)
    )
