"""Figures of the report as inline SVG: text stays text, bytes are reproducible, nothing is fetched.

Each function takes report.json's dictionaries and returns the panels of one figure, an empty list where there is
nothing to draw. Panels are separate SVGs, so that a narrow screen stacks them instead of shrinking them. The panels of
one figure share their axes, so that masked and causal models can be compared by eye, and every panel says its numbers
in an alternative text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reticent.audit.figure import (
    GRID,
    LOOKS,
    OBJECTIVES,
    PAPER,
    SOFT,
    Look,
    has_value,
    look_of,
    new_panel,
    printable,
    say,
    spread,
    styled,
    to_svg,
    whiskers,
    write_title,
)
from reticent.audit.summary import UTILITY

__all__ = [
    "auc_panels",
    "by_recipe",
    "excess_panels",
    "identifiers_panels",
    "low_cost_panels",
    "ngram_panels",
    "plot_utility_privacy",
    "roc_panels",
    "tradeoff_panels",
]

#: Below this utility a model has learned so little that its Privacy says little.
LITTLE = 0.1

Models = Sequence[dict[str, Any]]


def by_recipe(models: Models, objective: str) -> dict[str, list[dict[str, Any]]]:
    """Return recipe -> its checkpoints by epoch, in the order of the audit."""
    found: dict[str, list[dict[str, Any]]] = {}
    for model in models:
        if model["objective"] == objective:
            found.setdefault(model["recipe"], []).append(model)
    return {recipe: sorted(entries, key=lambda m: m["epoch"]) for recipe, entries in found.items()}


def _objectives(models: Models) -> list[str]:
    return [o for o in OBJECTIVES if any(m["objective"] == o for m in models)]


def _last(models: Models, objective: str) -> list[dict[str, Any]]:
    return [entries[-1] for entries in by_recipe(models, objective).values()]


def _epochs(axis: Any, epochs: Iterable[int]) -> None:
    """Epochs on a binary scale, each labelled: checkpoints double."""
    ticks = sorted(set(epochs))
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [str(t) for t in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlim(ticks[0] / 1.35, ticks[-1] * 1.35)


def _dodge(number: int, of: int, step: float) -> float:
    """Offset of one of several marks that would lie on one another."""
    return (number - (of - 1) / 2) * step


@styled
def identifiers_panels(corpus: dict[str, Any]) -> list[str]:
    """Identifiers and words per individual (the seed's Fig. 5) and individuals per word (Fig. 6)."""
    parts = {
        "direct": ("direct only", "-"),
        "indirect": ("indirect only", (0, (2, 1.5))),
        "both": ("protected", (0, (7, 2))),
    }
    lines = [(name, corpus.get("identifiers_per_individual", {}).get(name), *look) for name, look in parts.items()]
    panels = [
        _cumulative(
            "fig-identifiers", "Identifiers per person", lines, "distinct identifying words", "people"
        ),
        _cumulative(
            "fig-words", "Words per person", [("words", corpus.get("words_per_individual"), "base", "-")],
            "words in all documents", "people",
        ),
    ]  # fmt: skip
    per_word = corpus.get("individuals_per_word", {})
    lines = [
        ("distinct words", per_word.get("distinct"), "plain", "-"),
        ("all occurrences", per_word.get("occurrences"), "base", (0, (5, 2))),
    ]
    panels.append(
        _cumulative("fig-support", "People per word", lines, "people who use the word", "words", k=corpus["k"])
    )
    return [panel for panel in panels if panel]


def _cumulative(name: str, title: str, lines: Sequence[tuple[Any, ...]], x: str, of: str, k: int | None = None) -> str:
    """One panel of cumulative distributions, or nothing."""
    lines = [line for line in lines if line[1] and line[1]["x"]]
    if not lines:
        return ""
    figure, axis = new_panel(
        title, "" if k is None else f"left of the dotted line: fewer than {k}, identifying", width=3.7
    )
    said = []
    for label, curve, looks_like, dash in lines:
        axis.step(curve["x"], curve["y"], where="post", color=LOOKS[looks_like].light, linestyle=dash, label=label)
        half = next((x for x, y in zip(curve["x"], curve["y"], strict=True) if y >= 0.5), curve["x"][-1])
        said.append(f"{label}: half of the {of} have at most {half:,g}")
    axis.set(xlabel=x, ylabel=f"share of {of}", ylim=(0, 1.02))
    if k is not None:
        _log_ticks(axis, max(max(line[1]["x"]) for line in lines))
        axis.axvline(k - 0.5, color=SOFT, linestyle=":", linewidth=1.2)
        said = [f"{line[0]}: {100 * _share_below(line[1], k):.0f} % are used by fewer than {k}" for line in lines]
    if len(lines) > 1:
        axis.legend(loc="lower right", fontsize=8)
    return to_svg(figure, name, f"{title}, cumulative. {'; '.join(said)}.")


def _share_below(curve: dict[str, Any], k: int) -> float:
    return max((y for x, y in zip(curve["x"], curve["y"], strict=True) if x < k), default=0.0)


def _log_ticks(axis: Any, top: float) -> None:
    """A logarithmic axis from 1 with plain numbers."""
    axis.set_xscale("log")
    ticks = [t for e in range(7) for t in (10**e, 3 * 10**e) if t <= top]
    axis.set_xticks(ticks, [f"{t:,}" for t in ticks])
    axis.set_xticks([], minor=True)


def _tradeoff_points(entries: Models, objective: str) -> tuple[Any, ...]:
    usable = [
        m for m in entries
        if has_value(m["privacy"]["both"]["types"]) and has_value(m["utility"]["heldout"].get(UTILITY[objective]))
    ]  # fmt: skip
    return (
        usable,
        spread(m["utility"]["heldout"][UTILITY[objective]] for m in usable),
        spread(m["privacy"]["both"]["types"] for m in usable),
    )


def _tradeoff_limits(models: Models) -> dict[str, tuple[float, float]]:
    """One pair of axes for all panels."""
    points = [_tradeoff_points(entries, o) for o in _objectives(models) for entries in by_recipe(models, o).values()]
    right = max((float(high.max()) for _, (_, _, high), _ in points if len(high)), default=1.0)
    bottom = min((float(low.min()) for *_, (_, low, _) in points if len(low)), default=0.0)
    bottom = min(np.floor(bottom * 10) / 10, 0.9)
    return {"xlim": (-0.02 * right, 1.05 * right), "ylim": (bottom, 1 + 0.025 * (1 - bottom))}


def _draw_tradeoff(axis: Any, models: Models, objective: str) -> list[str]:
    """Draw one panel; returns what it shows in words."""
    said = []
    for recipe, entries in by_recipe(models, objective).items():
        usable, (x, x_low, x_high), (y, y_low, y_high) = _tradeoff_points(entries, objective)
        if not usable:
            continue
        look = look_of(recipe)
        axis.errorbar(
            x, y, xerr=whiskers(x, x_low, x_high), yerr=whiskers(y, y_low, y_high), fmt="none", ecolor=look.light,
            alpha=0.4, linewidth=1,
        )  # fmt: skip
        sizes = np.linspace(16, 60, len(usable)) if len(usable) > 1 else np.array([46.0])
        axis.plot(x, y, color=look.light, linestyle=look.line)
        faces = _faces([m["privacy"]["both"]["types"] for m in usable], look.light)
        axis.scatter(x, y, s=sizes, c=faces, edgecolors=look.light, marker=look.marker, zorder=3)
        first, last = usable[0], usable[-1]
        ends = f"utility {x[-1]:.2f}, Privacy {say(last['privacy']['both']['types'])}"
        if first is last:
            said.append(f"{printable(recipe)}: {ends}")
        else:
            said.append(
                f"{printable(recipe)}: from utility {x[0]:.2f}, Privacy {y[0]:.2f} after {first['epoch']} epochs "
                f"to {ends} after {last['epoch']}"
            )
    what = "words" if objective == "mlm" else "tokens"
    axis.set(xlabel=f"utility: ordinary {what} of held-out people right", ylabel="Privacy")
    return said


def _tradeoff_note(models: Models, objective: str) -> str:
    values = [m["utility"]["heldout"].get(UTILITY[objective]) for m in _last(models, objective)]
    known = [v["value"] for v in values if has_value(v)]
    return (
        f"no model gets {100 * LITTLE:.0f} % of them right: little was learned" if known and max(known) < LITTLE else ""
    )


@styled
def tradeoff_panels(models: Models) -> list[str]:
    """Utility against privacy, a line a recipe, a point a checkpoint (Figs. 7 and 9)."""
    panels, limits = [], _tradeoff_limits(models)
    for objective in _objectives(models):
        figure, axis = new_panel(OBJECTIVES[objective], _tradeoff_note(models, objective), height=3.5)
        said = _draw_tradeoff(axis, models, objective)
        axis.set(**limits)
        panels.append(
            to_svg(
                figure,
                f"fig-tradeoff-{objective}",
                f"Utility against Privacy, {OBJECTIVES[objective]}. {'; '.join(said)}.",
            )
        )
    return panels


@styled
def plot_utility_privacy(audit: dict[str, Any], path: Path | str) -> None:
    """Write the utility-privacy figure as a PNG on white, with its legend: for a README or a slide."""
    from matplotlib.figure import Figure

    models = audit["models"]
    objectives = _objectives(models)
    figure = Figure(figsize=(4.9 * len(objectives), 4.5), layout="constrained", facecolor="white")
    limits = _tradeoff_limits(models)
    shown: dict[Look, list[str]] = {}
    for axis, objective in zip(figure.subplots(1, len(objectives), squeeze=False)[0], objectives, strict=True):
        _draw_tradeoff(axis, models, objective)
        write_title(axis, OBJECTIVES[objective], _tradeoff_note(models, objective))
        axis.set(**limits)
        for recipe in by_recipe(models, objective):
            shown.setdefault(look_of(recipe), []).append(recipe)
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=look.light, linestyle=look.line, marker=look.marker,
               label=", ".join(dict.fromkeys(map(printable, recipes))) + (f": {look.about}" if look.about else ""))
        for look, recipes in shown.items()
    ]  # fmt: skip
    epochs = ", ".join(str(e) for e in sorted({m["epoch"] for m in models if m["epoch"]}))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=2, handlelength=3.2, title_fontsize=9,
        title=f"a point a checkpoint, larger with its epochs ({epochs}); bars are 95 % intervals" if epochs else None,
    )  # fmt: skip
    figure.savefig(path, dpi=160, metadata={"Software": None}, facecolor="white")


@styled
def excess_panels(models: Models) -> list[str]:
    """Excess leakage, members minus held-out, per recipe with intervals."""
    chosen = [m for m in models if has_value(m.get("excess", {}).get("both", {}).get("excess"))]
    panels = []
    rows = {o: _last(chosen, o) for o in _objectives(chosen)}
    ends = [e for models_ in rows.values() for e in spread(m["excess"]["both"]["excess"] for m in models_)[1:]]
    reach = max((float(np.abs(e).max()) for e in ends), default=0.1)
    left = min((float(e.min()) for e in ends), default=0.0)
    for objective, entries in rows.items():
        value, low, high = spread(m["excess"]["both"]["excess"] for m in entries)
        note = "every interval holds 0: no excess measured" if np.all((low <= 0) & (high >= 0)) else ""
        figure, axis = new_panel(OBJECTIVES[objective], note, height=1.35 + 0.3 * len(entries))
        axis.axvline(0, color=SOFT, linestyle="--", linewidth=1)
        for row, model in enumerate(entries):
            look = look_of(model["recipe"])
            axis.errorbar(
                value[row], row, xerr=[[value[row] - low[row]], [high[row] - value[row]]], fmt=look.marker,
                color=look.light, capsize=3,
            )  # fmt: skip
        axis.set_yticks(range(len(entries)), [printable(m["recipe"]) for m in entries])
        axis.set(xlabel="leak rate of members minus strangers", ylim=(len(entries) - 0.4, -0.6),
                 xlim=(min(left, -0.1 * reach) - 0.05 * reach, 1.08 * reach))  # fmt: skip
        said = [f"{printable(m['recipe'])} {say(m['excess']['both']['excess'])}" for m in entries]
        panels.append(
            to_svg(figure, f"fig-excess-{objective}", f"Excess leakage, {OBJECTIVES[objective]}. {'; '.join(said)}.")
        )
    return panels


@styled
def ngram_panels(models: Models) -> list[str]:
    """Identifying n-grams that are predicted, by n (Fig. 15); nothing when only words identify."""
    chosen = [m for m in models if len(m.get("privacy_by_n", {})) > 1]
    panels = []
    tops = [(1 - e["low"]) * e["num_identifiers"] for m in chosen for e in m["privacy_by_n"].values() if has_value(e)]
    for objective in _objectives(chosen):
        figure, axis = new_panel(OBJECTIVES[objective])
        entries, said = _last(chosen, objective), []
        for number, model in enumerate(entries):
            look, measured = look_of(model["recipe"]), model["privacy_by_n"]
            lengths = [
                n for n in sorted(measured, key=int) if has_value(measured[n]) and measured[n]["num_identifiers"]
            ]
            value, low, high = spread(measured[n] for n in lengths)
            total = np.array([measured[n]["num_identifiers"] for n in lengths], dtype=float)
            x = np.array([int(n) for n in lengths]) + _dodge(number, len(entries), 0.07)
            axis.errorbar(
                x, (1 - value) * total, yerr=[(high - value) * total, (value - low) * total], color=look.light,
                linestyle=look.line, elinewidth=1,
            )  # fmt: skip
            faces = _faces([measured[n] for n in lengths], look.light)
            axis.scatter(x, (1 - value) * total, s=30, c=faces, edgecolors=look.light, marker=look.marker, zorder=3)
            said.append(f"{printable(model['recipe'])}: " + ", ".join(
                f"{'fewer than ' if measured[n].get('bound') else ''}{(1 - v) * t:.0f} of length {n}"
                for n, v, t in zip(lengths, value, total, strict=True)
            ))  # fmt: skip
        ticks = sorted({int(n) for m in entries for n in m["privacy_by_n"]})
        axis.set_xticks(ticks, [str(t) for t in ticks])
        axis.set(xlabel="words in the n-gram", ylabel="n-grams predicted", ylim=(0, 1.05 * max([*tops, 1.0])))
        panels.append(
            to_svg(
                figure,
                f"fig-ngrams-{objective}",
                f"Identifying n-grams predicted, {OBJECTIVES[objective]}. {'; '.join(said)}.",
            )
        )
    return panels


@styled
def low_cost_panels(models: Models, everybody: float | None = None) -> list[str]:
    """Low-cost membership: precision, recall and F1 (Fig. 12), F1 against epochs and against knowledge (Fig. 13).

    ``everybody`` is the F1 of calling everyone a member, the line to beat.
    """
    chosen = [m for m in models if m.get("low_cost")]
    panels = []
    for objective in _objectives(chosen):
        recipes = by_recipe(chosen, objective)
        scores = [m["low_cost"]["f1"]["value"] for entries in recipes.values() for m in entries]
        note = "" if any(scores) else "no member was recognised: every F1 is 0"
        where = OBJECTIVES[objective].split()[0]
        panels.append(_low_cost_bars(recipes, objective, f"{where}: last checkpoint", note, everybody))
        if any(m["epoch"] for entries in recipes.values() for m in entries):
            panels.append(_low_cost_epochs(recipes, objective, f"{where}: F1 against epochs", note, everybody))
        panels.append(_low_cost_shares(recipes, objective, f"{where}: F1 against knowledge", note, everybody))
    return panels


def _low_cost_bars(recipes: dict[str, Any], objective: str, title: str, note: str, everybody: float | None) -> str:
    figure, axis = new_panel(title, note, width=3.7)
    said = []
    if everybody is not None:
        axis.axvline(everybody, color=SOFT, linestyle="--", linewidth=1)
    for row, (recipe, entries) in enumerate(recipes.items()):
        low_cost = entries[-1]["low_cost"]
        for number, (measure, marker) in enumerate((("precision", "D"), ("recall", "o"), ("f1", "s"))):
            if not has_value(low_cost[measure]):
                continue
            value, low, high = spread([low_cost[measure]])
            shade = look_of(recipe).light if measure == "f1" else SOFT
            axis.errorbar(
                value, [row + _dodge(number, 3, 0.24)], xerr=whiskers(value, low, high), fmt=marker, color=shade,
                markersize=4.5, elinewidth=1,
                markerfacecolor=PAPER if measure != "f1" else _faces([low_cost["f1"]], shade)[0],
            )  # fmt: skip
        said.append(
            f"{printable(recipe)}: " + ", ".join(f"{m} {say(low_cost[m])}" for m in ("precision", "recall", "f1"))
        )
    axis.set_yticks(range(len(recipes)), [printable(r) for r in recipes])
    axis.set(ylim=(len(recipes) - 0.45, -0.55), xlim=(-0.03, 1.05), xlabel="◇ precision   ○ recall   ■ F1")
    return to_svg(figure, f"fig-lowcost-{objective}", f"{title}. {'; '.join(said)}.")


def _low_cost_epochs(recipes: dict[str, Any], objective: str, title: str, note: str, everybody: float | None) -> str:
    figure, axis = new_panel(title, note, width=3.7)
    trained = {r: [m for m in entries if m["epoch"]] for r, entries in recipes.items()}
    trained = {r: entries for r, entries in trained.items() if entries}
    said = []
    if everybody is not None:
        axis.axhline(everybody, color=SOFT, linestyle="--", linewidth=1)
    if "base" in recipes and has_value(recipes["base"][0]["low_cost"]["f1"]):
        look = LOOKS["base"]
        axis.axhline(
            recipes["base"][0]["low_cost"]["f1"]["value"], color=look.light, linestyle=look.line, linewidth=1.2
        )
    for number, (recipe, entries) in enumerate(trained.items()):
        rows = [(m["epoch"], m["low_cost"]["f1"]) for m in entries if has_value(m["low_cost"]["f1"])]
        _curve(axis, rows, recipe, factor=2 ** _dodge(number, len(trained), 0.09))
        said.append(f"{printable(recipe)}: " + ", ".join(f"{f1['value']:.2f} after {epoch}" for epoch, f1 in rows))
    _epochs(axis, (m["epoch"] for entries in trained.values() for m in entries))
    axis.set(xlabel="epochs", ylabel="F1", ylim=(-0.03, 1.05))
    return to_svg(figure, f"fig-epochs-{objective}", f"{title}. {'; '.join(said)}.")


def _low_cost_shares(recipes: dict[str, Any], objective: str, title: str, note: str, everybody: float | None) -> str:
    figure, axis = new_panel(title, note, width=3.7)
    said = []
    if everybody is not None:
        axis.axhline(everybody, color=SOFT, linestyle="--", linewidth=1)
    for number, (recipe, entries) in enumerate(recipes.items()):
        rows = [(r["share"], r["f1"]) for r in entries[-1]["low_cost"]["by_graph_share"] if has_value(r["f1"])]
        _curve(axis, rows, recipe, shift=_dodge(number, len(recipes), 0.012))
        said.append(
            f"{printable(recipe)}: " + ", ".join(f"{f1['value']:.2f} at {100 * share:.0f} %" for share, f1 in rows)
        )
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axis.set(xlabel="share of the graph the adversary has", ylabel="F1", xlim=(0, 1.05), ylim=(-0.03, 1.05))
    return to_svg(figure, f"fig-shares-{objective}", f"{title}. {'; '.join(said)}.")


def _curve(
    axis: Any, rows: Sequence[tuple[float, dict[str, Any]]], recipe: str, *, factor: float = 1.0, shift: float = 0.0
) -> None:
    """A recipe's line with the interval of each point; marks are moved apart a little."""
    look = look_of(recipe)
    x = np.array([row[0] for row in rows]) * factor + shift
    value, low, high = spread(row[1] for row in rows)
    axis.errorbar(x, value, yerr=whiskers(value, low, high), fmt="none", ecolor=look.light, alpha=0.45, linewidth=1)
    axis.plot(x, value, color=look.light, linestyle=look.line)
    faces = _faces([row[1] for row in rows], look.light)
    axis.scatter(x, value, s=30, c=faces, edgecolors=look.light, marker=look.marker, zorder=3)


def _faces(estimates: Sequence[dict[str, Any]], shade: str) -> list[str]:
    """Fill of each mark: hollow where the number is only a bound, because few people or identifiers are behind it."""
    return [PAPER if estimate.get("bound") else shade for estimate in estimates]


@styled
def roc_panels(models: Models, attack: str, small_cell: int = 5) -> list[str]:
    """Log-log ROC of one attack at the last checkpoints (Fig. 11), with pointwise exact binomial bands.

    Rates that fewer than 10 non-members resolve lie in the grey part: PROTOCOLS §6 reports none of them.
    """
    chosen = [m for m in models if attack in m.get("membership", {})]
    last = {o: _last(chosen, o) for o in _objectives(chosen)}
    sides = [(m["membership"][attack]["num_members"], m["membership"][attack]["num_nonmembers"])
             for entries in last.values() for m in entries]  # fmt: skip
    if not sides:
        return []
    resolved = 10 / max(n for _, n in sides)
    # Of the larger side, the individual that completes a cell is the first that can be drawn.
    floor = min(small_cell / max(max(side) for side in sides), 0.5)
    panels = []
    for objective, entries in last.items():
        figure, axis = new_panel(OBJECTIVES[objective], f"attack {printable(attack)}, bands 95 %", height=3.5)
        axis.axvspan(floor, min(resolved, 1.0), color=GRID, alpha=0.6, linewidth=0)
        axis.plot([floor, 1], [floor, 1], color=SOFT, linestyle="--", linewidth=1)
        for model in entries:
            _draw_roc(axis, model["membership"][attack], look_of(model["recipe"]), floor)
        axis.set(xlabel="false-positive rate", ylabel="true-positive rate", xscale="log", yscale="log",
                 xlim=(floor, 1.02), ylim=(floor, 1.04))  # fmt: skip
        ticks = [t for e in range(-6, 1) for t in (10.0**e, 2 * 10.0**e, 5 * 10.0**e) if floor <= t <= 1]
        ticks = ticks if len(ticks) <= 7 else [t for t in ticks if np.isclose(np.log10(t) % 1, 0)]
        for one in (axis.xaxis, axis.yaxis):
            one.set_ticks(ticks, labels=[f"{t:g}" for t in ticks])
            one.set_ticks([], minor=True)
        said = [f"{printable(m['recipe'])} area {say(m['membership'][attack]['auc'])}" for m in entries]
        slug = re.sub(r"[^a-z0-9]+", "-", attack.lower())
        panels.append(
            to_svg(
                figure,
                f"fig-roc-{slug}-{objective}",
                f"ROC of attack {printable(attack)}, {OBJECTIVES[objective]}. {'; '.join(said)}.",
            )
        )
    return panels


def _draw_roc(axis: Any, measured: dict[str, Any], look: Look, floor: float) -> None:
    """A step curve with its band: at a fixed threshold the true positives are binomial over individuals."""
    from scipy import stats

    fpr, tpr = (np.array(measured["roc"][axis_], dtype=float) for axis_ in ("fpr", "tpr"))
    n = measured["num_members"]
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
def auc_panels(models: Models, attacks: Sequence[str]) -> list[str]:
    """Area under the ROC curve of every attack and recipe, last checkpoints."""
    chosen = [m for m in models if m.get("membership")]
    ends = [e for o in _objectives(chosen) for m in _last(chosen, o) for a in m["membership"].values()
            for e in spread([a["auc"]])[1]]  # fmt: skip
    left = min([*ends, 0.45]) - 0.03
    panels = []
    for objective in _objectives(chosen):
        entries, said = _last(chosen, objective), []
        here = [a for a in attacks if any(a in m["membership"] for m in entries)]
        figure, axis = new_panel(OBJECTIVES[objective], height=1.1 + 0.16 * len(entries) * len(here))
        axis.axvline(0.5, color=SOFT, linestyle="--", linewidth=1)
        for number, model in enumerate(entries):
            rows = [(row, model["membership"][a]["auc"]) for row, a in enumerate(here) if a in model["membership"]]
            rows = [row for row in rows if has_value(row[1])]
            if not rows:
                continue
            look = look_of(model["recipe"])
            value, low, high = spread(auc for _, auc in rows)
            y = np.array([row for row, _ in rows]) + _dodge(number, len(entries), 0.8 / len(entries))
            axis.errorbar(value, y, xerr=whiskers(value, low, high), fmt=look.marker, color=look.light, elinewidth=1.2)
            said.append(f"{printable(model['recipe'])}: " + ", ".join(f"{here[row]} {say(auc)}" for row, auc in rows))
        axis.set_yticks(range(len(here)), [printable(a) for a in here])
        axis.set(xlabel="area under the ROC curve (0.5 is guessing)", xlim=(left, 1.02), ylim=(len(here) - 0.5, -0.5))
        panels.append(
            to_svg(figure, f"fig-auc-{objective}", f"Membership, {OBJECTIVES[objective]}. {'; '.join(said)}.")
        )
    return panels
