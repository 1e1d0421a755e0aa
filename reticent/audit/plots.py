"""Figures of the report as inline SVG: text stays text, colours tell recipes apart for everybody, bytes are
reproducible.

Each function takes report.json's dictionaries and returns an SVG string, or None when there is nothing to draw.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reticent.audit.summary import UTILITY

__all__ = [
    "COLOURS",
    "excess_figure",
    "identifiers_figure",
    "low_cost_figure",
    "ngram_figure",
    "plot_utility_privacy",
    "roc_figure",
    "tradeoff_figure",
]

#: Okabe and Ito's palette: one colour a family of recipes, the same in every figure.
COLOURS = {
    "base": "#6b7280",
    "plain": "#D55E00",
    "pseudonymised": "#E69F00",
    "direct only": "#56B4E9",
    "indirect only": "#CC79A7",
    "protected": "#007a5a",
    "other": "#0072B2",
}
OBJECTIVES = {"mlm": "Masked (BERT-like)", "clm": "Causal (GPT-like)"}
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "reticent",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9ca3af",
    "axes.labelcolor": "#374151",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#eceff3",
    "xtick.color": "#4b5563",
    "ytick.color": "#4b5563",
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def family(recipe: str) -> str:
    """Return the family whose colour a recipe has."""
    if recipe == "base":
        return "base"
    stem = recipe.removesuffix("a").removesuffix("mlm").removesuffix("clm")
    if recipe.endswith(("mlma", "clma")):
        return "pseudonymised"
    return {"": "plain", "dpp": "direct only", "ipp": "indirect only", "pp": "protected"}.get(stem, "other")


def colour(recipe: str) -> str:
    return COLOURS[family(recipe)]


def _figure(columns: int, *, height: float = 3.4, width: float = 4.6) -> tuple[Any, list[Any]]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update(STYLE)
    figure, axes = plt.subplots(1, columns, figsize=(width * columns, height), squeeze=False, layout="constrained")
    return figure, list(axes[0])


def _svg(figure: Any, label: str) -> str:
    """Close a figure and return it as an accessible inline SVG."""
    import matplotlib.pyplot as plt

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _by_recipe(models: Sequence[dict[str, Any]], objective: str) -> dict[str, list[dict[str, Any]]]:
    """Recipe -> its checkpoints by epoch, the base first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for model in models:
        if model["objective"] == objective:
            found.setdefault(model["recipe"], []).append(model)
    return {recipe: sorted(entries, key=lambda m: m["epoch"]) for recipe, entries in found.items()}


def _objectives(models: Sequence[dict[str, Any]]) -> list[str]:
    return [o for o in OBJECTIVES if any(m["objective"] == o for m in models)]


def _spread(values: Sequence[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Values and their (below, above) distances to the interval's ends."""
    value = np.array([v["value"] for v in values], dtype=float)
    low = np.array([v["low"] if v["low"] is not None else v["value"] for v in values], dtype=float)
    high = np.array([v["high"] if v["high"] is not None else v["value"] for v in values], dtype=float)
    return value, np.clip(np.stack([value - low, high - value]), 0, None)


def identifiers_figure(corpus: dict[str, Any]) -> str | None:
    """Identifiers and words per individual (the seed's Fig. 5) and individuals per word (Fig. 6)."""
    figure, (left, middle, right) = _figure(3, width=3.9)
    styles = {"direct": COLOURS["direct only"], "indirect": COLOURS["indirect only"], "both": COLOURS["protected"]}
    for part, shade in styles.items():
        curve = corpus["identifiers_per_individual"][part]
        if curve["x"]:
            left.step(curve["x"], curve["y"], where="post", color=shade, label=part)
    left.set(title="Identifiers per individual", xlabel="distinct identifying words", ylabel="share of individuals")
    left.legend()
    curve = corpus["words_per_individual"]
    middle.step(curve["x"], curve["y"], where="post", color=COLOURS["other"])
    middle.set(title="Words per individual", xlabel="words in all documents", ylabel="share of individuals")
    for part, shade in (("distinct", COLOURS["plain"]), ("occurrences", COLOURS["base"])):
        curve = corpus["individuals_per_word"][part]
        right.step(curve["x"], curve["y"], where="post", color=shade, label=f"{part} words")
    right.set(
        title="Individuals per word", xlabel="individuals who use the word", ylabel="share of words", xscale="log"
    )
    right.axvline(corpus["k"] - 0.5, color="#9ca3af", linestyle=":")
    right.legend()
    for axis in (left, middle, right):
        axis.set_ylim(0, 1.02)
    return _svg(figure, "Cumulative distributions of identifiers, words and individuals per word")


def _draw_tradeoff(axis: Any, models: Sequence[dict[str, Any]], objective: str) -> None:
    for recipe, entries in _by_recipe(models, objective).items():
        usable = [m for m in entries if m["privacy"]["both"]["types"]["value"] is not None]
        if not usable:
            continue
        x, x_error = _spread([m["utility"]["heldout"][UTILITY[objective]] for m in usable])
        y, y_error = _spread([m["privacy"]["both"]["types"] for m in usable])
        marker = "s" if recipe == "base" else "o"
        axis.errorbar(x, y, xerr=x_error, yerr=y_error, fmt="none", ecolor=colour(recipe), alpha=0.3, linewidth=1)
        axis.plot(x, y, color=colour(recipe), marker=marker, markersize=4.5, linewidth=1.4, label=recipe)
        for number, model in enumerate(usable):
            if model["epoch"] and number in (0, len(usable) - 1):
                axis.annotate(
                    str(model["epoch"]), (x[number], y[number]), xytext=(4, -11), textcoords="offset points",
                    color=colour(recipe), fontsize=8,
                )  # fmt: skip
    what = "words" if objective == "mlm" else "tokens"
    axis.set(title=OBJECTIVES[objective], xlabel=f"utility: ordinary {what} right, held-out", ylabel="Privacy")
    axis.legend(loc="best")


def tradeoff_figure(models: Sequence[dict[str, Any]]) -> str | None:
    """Utility against privacy, a line a recipe, a point a checkpoint (Figs. 7 and 9)."""
    objectives = _objectives(models)
    if not objectives:
        return None
    figure, axes = _figure(len(objectives), height=4.0, width=5.4)
    for axis, objective in zip(axes, objectives, strict=True):
        _draw_tradeoff(axis, models, objective)
    return _svg(figure, "Utility against privacy for each recipe and epoch")


def plot_utility_privacy(audit: dict[str, Any], path: Path | str) -> None:
    """Write the utility-privacy figure as a PNG."""
    import matplotlib.pyplot as plt

    objectives = _objectives(audit["models"])
    figure, axes = _figure(len(objectives), height=4.0, width=5.4)
    for axis, objective in zip(axes, objectives, strict=True):
        _draw_tradeoff(axis, audit["models"], objective)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _last(models: Sequence[dict[str, Any]], objective: str) -> list[dict[str, Any]]:
    return [entries[-1] for entries in _by_recipe(models, objective).values()]


def roc_figure(models: Sequence[dict[str, Any]], attack: str) -> str | None:
    """Log-log ROC of one attack at the last checkpoints (Fig. 11); the finest FPR drawn is one non-member."""
    chosen = [m for m in models if attack in m.get("membership", {})]
    objectives = _objectives(chosen)
    if not objectives:
        return None
    figure, axes = _figure(len(objectives), height=3.8, width=4.6)
    for axis, objective in zip(axes, objectives, strict=True):
        floor = 1.0
        for model in _last(chosen, objective):
            measured = model["membership"][attack]
            floor = min(floor, 1 / measured["num_nonmembers"])
            fpr, tpr = (np.array(measured["roc"][key]) for key in ("fpr", "tpr"))
            keep = (fpr > 0) & (tpr > 0)
            label = f"{model['recipe']} (AUC {measured['auc']['value']:.2f})"
            axis.step(fpr[keep], tpr[keep], where="post", color=colour(model["recipe"]), label=label, linewidth=1.5)
        axis.plot([floor, 1], [floor, 1], color="#9ca3af", linestyle="--", linewidth=1)
        axis.set(
            title=f"{OBJECTIVES[objective]}, attack {attack}", xlabel="false-positive rate",
            ylabel="true-positive rate",
            xscale="log", yscale="log", xlim=(floor, 1.05), ylim=(floor, 1.05),
        )  # fmt: skip
        axis.legend(loc="lower right")
    return _svg(figure, f"Log-log ROC curves of the membership attack {attack}")


def low_cost_figure(models: Sequence[dict[str, Any]]) -> str | None:
    """Low-cost membership: precision, recall, F1 (Fig. 12); F1 against epochs and knowledge (Fig. 13)."""
    chosen = [m for m in models if m.get("low_cost")]
    if not chosen:
        return None
    figure, (bars, epochs, shares) = _figure(3, width=4.2, height=3.6)
    last = [m for o in _objectives(chosen) for m in _last(chosen, o)]
    for number, (key, shade) in enumerate(
        (("precision", COLOURS["direct only"]), ("recall", COLOURS["pseudonymised"]), ("f1", COLOURS["other"]))
    ):
        values = [m["low_cost"][key] for m in last]
        known = [i for i, v in enumerate(values) if v["value"] is not None]
        value, error = _spread([values[i] for i in known])
        at = np.array(known) + (number - 1) * 0.26
        bars.bar(at, value, 0.24, yerr=error, color=shade, ecolor="#6b7280", error_kw={"linewidth": 1}, label=key)
    names = [m["recipe"] if m["recipe"] != "base" else f"base {m['objective']}" for m in last]
    bars.set_xticks(range(len(last)), names, rotation=40, ha="right")
    bars.set(title="Called a member, last checkpoint", ylim=(0, 1.05))
    bars.legend(loc="upper left", ncols=3, fontsize=8)
    for objective in _objectives(chosen):
        line = "-" if objective == "clm" else "--"
        for recipe, entries in _by_recipe(chosen, objective).items():
            if recipe == "base":
                continue
            x = [m["epoch"] for m in entries]
            y = [m["low_cost"]["f1"]["value"] or 0.0 for m in entries]
            epochs.plot(x, y, line, marker="o", markersize=3.5, color=colour(recipe), label=recipe)
            by_share = entries[-1]["low_cost"]["by_graph_share"]
            y = [row["f1"]["value"] or 0.0 for row in by_share]
            shares.plot([row["share"] for row in by_share], y, line, marker="o", markersize=3.5, color=colour(recipe))
    epochs.set(title="F1 against epochs", xlabel="epochs", ylim=(0, 1.05))
    epochs.legend(loc="upper left", fontsize=8)
    shares.set(
        title="F1 against the adversary's knowledge", xlabel="share of the graph the adversary has", ylim=(0, 1.05)
    )
    return _svg(
        figure, "Low-cost membership inference per recipe, against epochs and against the adversary's knowledge"
    )


def excess_figure(models: Sequence[dict[str, Any]]) -> str | None:
    """Excess leakage, members minus held-out, per recipe with intervals."""
    objectives = _objectives(models)
    if not objectives:
        return None
    figure, axes = _figure(len(objectives), height=3.2, width=4.6)
    for axis, objective in zip(axes, objectives, strict=True):
        rows = [m for m in _last(models, objective) if m["excess"]["both"]["excess"]["value"] is not None]
        for position, model in enumerate(rows):
            value, error = _spread([model["excess"]["both"]["excess"]])
            axis.errorbar(
                value, [position], xerr=error, fmt="o", color=colour(model["recipe"]), capsize=3, markersize=5
            )
        axis.set_yticks(range(len(rows)), [m["recipe"] for m in rows])
        axis.invert_yaxis()
        axis.axvline(0, color="#9ca3af", linestyle="--", linewidth=1)
        axis.set(title=OBJECTIVES[objective], xlabel="leak rate of members minus held-out")
        axis.margins(y=0.2)
    return _svg(figure, "Excess leakage of members over held-out individuals per recipe")


def ngram_figure(models: Sequence[dict[str, Any]]) -> str | None:
    """Identifying n-grams that are predicted, by n (Fig. 15); None when only words identify."""
    objectives = [o for o in _objectives(models) if any(len(m["privacy_by_n"]) > 1 for m in _last(models, o))]
    if not objectives:
        return None
    figure, axes = _figure(len(objectives), height=3.2, width=4.6)
    for axis, objective in zip(axes, objectives, strict=True):
        for model in _last(models, objective):
            lengths = sorted(model["privacy_by_n"], key=int)
            leaked = [model["privacy_by_n"][n]["num_leaked"] for n in lengths]
            axis.plot(
                [int(n) for n in lengths], leaked, marker="o", color=colour(model["recipe"]), label=model["recipe"]
            )
        axis.set(title=OBJECTIVES[objective], xlabel="words in the n-gram", ylabel="identifying n-grams predicted")
        axis.set_xticks([int(n) for n in lengths])
        axis.legend()
    return _svg(figure, "Number of identifying n-grams predicted, by length")
