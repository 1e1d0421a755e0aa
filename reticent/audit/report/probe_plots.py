"""Figures of ProPILE probes as inline SVG: likelihoods of true items and nulls, exposure, sweeps, soft prompts.

The rules are those of :mod:`reticent.audit.report.plots`. A model whose name is no recipe's is drawn like one,
by its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from reticent.audit.evidence.probe import (
    LikelihoodComparison,
    ProbedModel,
    ProbeEvidence,
    ProbeResult,
    SoftPromptRow,
)
from reticent.audit.report.figure import (
    LOOKS,
    SOFT,
    Look,
    alt_text,
    estimate_in_words,
    family,
    has_value,
    marker_fills,
    marker_offset,
    new_panel,
    printable,
    styled,
    to_svg,
    values_and_ends,
    whiskers,
)
from reticent.audit.stats.estimate import Estimate
from reticent.audit.texts import ENGLISH, Texts

WIDTH = 3.9
TRUE, NULL = LOOKS["plain"], LOOKS["base"]
#: (value of a setting, estimate at it).
Point = tuple["float | str", "Estimate | None"]
#: Sweeps of soft prompts: (name of the varied setting, function that returns its value in a row).
SWEEPS: tuple[tuple[str, Callable[[SoftPromptRow], float | str]], ...] = (
    ("num_subjects", lambda row: row.num_subjects),
    ("num_tokens", lambda row: row.num_tokens),
    ("init", lambda row: row.init),
)
#: Models beside each other in a key under a plot.
KEY_COLUMNS = 2
#: Density panels shown; a run of many models and targets has too many to read.
MAX_DENSITIES = 12


def probe_panels(probe: ProbeEvidence, t: Texts = ENGLISH) -> dict[str, list[str]]:
    """Return figure name -> its panels as inline SVG, for all figures of the probe page: ``factor``, ``density``,
    ``gamma``, ``sweeps``, ``soft`` and ``soft_sweeps``."""
    return {
        "factor": factor_panels(probe, t),
        "density": density_panels(probe, t),
        "gamma": gamma_panels(probe, t),
        "sweeps": sweep_panels(probe, t),
        "soft": soft_panels(probe, t),
        "soft_sweeps": soft_sweep_panels(probe, t),
    }


def look_of_model(name: str, number: int) -> Look:
    """Return the plot style of a probed model: that of its recipe or, if its name is of no known recipe, the
    ``number``-th style."""
    known = LOOKS[family(name.partition(" of ")[0])]
    return known if known is not LOOKS["other"] else list(LOOKS.values())[number % len(LOOKS)]


def _plain_log(axis: Any, t: Texts) -> None:
    """Make the x axis logarithmic with plain numbers as labels."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis.set_xscale("log")
    low, high = axis.get_xlim()
    span = high / max(low, 1e-300)
    # Within a decade powers of ten leave one number, or none: steps of one size then.
    ticks = MaxNLocator(4) if span < 8 else LogLocator(subs=(1, 2, 5) if span < 50 else (1,), numticks=7)
    axis.xaxis.set_major_locator(ticks)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda number, _: t.plain(_plain_number(number))))
    axis.xaxis.set_minor_formatter(NullFormatter())
    if span < 8:
        axis.xaxis.set_minor_locator(NullLocator())


def _plain_number(number: float) -> str:
    """Return a number as plain text: 0.8, 10,000, and powers of ten from a million on."""
    power = round(np.log10(number)) if number > 0 else 0
    if 1e6 <= number < 1e300 and np.isclose(number, 10.0**power):
        return "10" + str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{number:,.0f}" if 1000 <= number < 1e6 else f"{number:.4g}"


def _distinct_looks(probe: ProbeEvidence) -> list[tuple[ProbedModel, Look]]:
    """Return (model, plot style) of each probed model, with distinct styles as far as there are enough."""
    looks: list[tuple[ProbedModel, Look]] = []
    for number, model in enumerate(probe.models):
        look = look_of_model(model.name, number)
        if look in [other for _, other in looks]:  # clm and mlm are of one family
            look = next((other for other in LOOKS.values() if other not in [used for _, used in looks]), look)
        looks.append((model, look))
    return looks


def _probed_pairs(probe: ProbeEvidence) -> Iterator[tuple[str, str]]:
    """Yield each pair (type of item asked for, association level) that any model was probed with; the level says how
    much else about the person the prompt has."""
    pairs = [(r.target, r.level) for m in probe.models for r in m.results if r.likelihood]
    yield from dict.fromkeys(pairs)


def _result(model: ProbedModel, target: str, level: str) -> ProbeResult | None:
    """Return a model's probe result with likelihoods for this type of item and association level; None without one."""
    found = (r for r in model.results if (r.target, r.level) == (target, level) and r.likelihood)
    return next(found, None)


def _target_name(target: str) -> str:
    """Return a type of item (such as "phone_number") as a label, with spaces for underscores."""
    return printable(target.replace("_", " "))


@styled
def factor_panels(probe: ProbeEvidence, t: Texts = ENGLISH) -> list[str]:
    """Return panels of how many times likelier a model finds a person's true item (such as a phone number) than another
    person's, as inline SVG: a panel for each association level, a row for each type of item."""
    panels = []
    for level in dict.fromkeys(level for _, level in _probed_pairs(probe)):
        targets = [target for target, at in _probed_pairs(probe) if at == level]
        lines_of_key = -(-len(probe.models) // KEY_COLUMNS) if len(probe.models) > 1 else 0
        height = 1.5 + 0.24 * len(targets) * max(len(probe.models), 1.5) + 0.18 * lines_of_key
        figure, axis = new_panel(t("probe.level_true_item_against_another_s", level=level), width=4.6, height=height)
        axis.axvline(1, color=SOFT, linestyle="--", linewidth=1)
        said = []
        for number, (model, look) in enumerate(_distinct_looks(probe)):
            asked = [(row, target, _result(model, target, level)) for row, target in enumerate(targets)]
            rows = [(row, target, r.likelihood.factor) for row, target, r in asked if r and r.likelihood]
            rows = [(row, target, factor) for row, target, factor in rows if has_value(factor)]
            if not rows:
                continue
            value, low, high = values_and_ends(factor for *_, factor in rows)
            step = min(0.18, 0.8 / len(probe.models))
            places = [row + marker_offset(number, len(probe.models), step) for row, *_ in rows]
            axis.errorbar(value, places, xerr=whiskers(value, low, high), fmt=look.marker, color=look.light,
                          elinewidth=1, label=printable(model.name))  # fmt: skip
            said += [_times_phrase(model.name, target, v, t) for v, (_, target, _) in zip(value, rows, strict=True)]
        _plain_log(axis, t)
        axis.set_yticks(range(len(targets)), [_target_name(target) for target in targets])
        axis.set(ylim=(len(targets) - 0.5, -0.5), xlabel=t("probe.times_likelier_geometric_mean"))
        if len(probe.models) > 1 and said:  # outside: its marks would look like marks of the plot
            figure.legend(fontsize=7.5, loc="outside lower center", ncols=KEY_COLUMNS)
        title = t("probe.how_many_times_likelier_the_true_item_is", level=level)
        panels.append(to_svg(figure, f"fig-probe-factor-{level}", alt_text(t, title, said), t))
    return panels


def _times_phrase(name: str, target: str, factor: float, t: Texts) -> str:
    """Return "MODEL, TARGET: FACTOR times likelier" as a phrase for an alternative text."""
    return t(
        "common.name_what",
        name=f"{printable(name)}, {_target_name(target)}",
        what=t("probe.n_times", n=t.plain(f"{factor:.2g}")),
    )


@styled
def density_panels(probe: ProbeEvidence, t: Texts = ENGLISH) -> list[str]:
    """Return panels, as inline SVG, of the density of the likelihood (Fig. 3 of [@kim2023]) and of the normalised
    likelihood (Fig. 6) that a model gives to people's true items and to those of other people."""
    asked = [
        (number, model.name, result)
        for target, level in _probed_pairs(probe)
        for number, model in enumerate(probe.models)
        if (result := _result(model, target, level))
    ]
    rows = [(number, name, result, "likelihood", result.likelihood) for number, name, result in asked]
    rows += [(number, name, result, "normalised", result.normalised) for number, name, result in asked]
    shown = [(number, name, r, measure, found) for number, name, r, measure, found in rows if found]
    return [_density_panel(*row, t) for row in [row for row in shown if row[-1].density.true.x][:MAX_DENSITIES]]


def _density_panel(
    number: int, name: str, result: ProbeResult, measure: str, found: LikelihoodComparison, t: Texts
) -> str:
    """Return the panel of a likelihood's density, true items against those of other subjects, for one model and
    target."""
    asked = f"{_target_name(result.target)}, {result.level}"
    test = found.published_test
    note = t("probe.wilcoxon_as_published_p_p_n_n", p=t.plain(f"{test.p_value:.2g}"), n=test.n)
    figure, axis = new_panel(t("common.name_what", name=printable(name), what=asked), note, width=WIDTH, height=2.6)
    sides = (
        (found.density.true, found.log_true, TRUE, t("probe.true_item")),
        (found.density.null, found.log_null, NULL, t("probe.another_s")),
    )
    for curve, mean, look, called in sides:
        axis.plot(curve.x, curve.y, color=look.light, linestyle=look.line, label=called)
        if curve.x:
            axis.fill_between(curve.x, curve.y, color=look.light, alpha=0.15, linewidth=0)
        if mean.value is not None:
            axis.axvline(mean.value / np.log(10), color=look.light, linestyle="--", linewidth=1)
    axis.set(xlabel=t(f"probe.axis_{measure}"), ylabel=t("probe.density"))
    axis.locator_params(axis="x", nbins=4)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8, loc="best")
    label = t(
        f"probe.density_{measure}",
        name=printable(name),
        asked=asked,
        factor=estimate_in_words(found.factor, t),
        note=note,
    )
    return to_svg(figure, f"fig-probe-density-{number}-{result.target}-{result.level}-{measure}", label, t)


@styled
def gamma_panels(probe: ProbeEvidence, t: Texts = ENGLISH) -> list[str]:
    """Return panels, as inline SVG, of the share of people whose true item a model gives within k queries (Eq. 3 of
    [@kim2023]), by k: a panel for each type of item and association level, a line for each model."""
    panels = []
    for target, level in _probed_pairs(probe):
        figure, axis = new_panel(f"{_target_name(target)}, {level}", width=WIDTH, height=2.6)
        said, top = [], 0.0
        for model, look in _distinct_looks(probe):
            result = _result(model, target, level)
            if result is None or result.gamma is None:
                continue
            ks = [row.k for row in result.gamma]
            value, low, high = values_and_ends(row.true for row in result.gamma)
            axis.plot(ks, value, color=look.light, linestyle=look.line, label=printable(model.name))
            axis.fill_between(ks, low, high, color=look.light, alpha=0.1, linewidth=0)
            axis.scatter(ks, value, s=14, c=marker_fills([row.true for row in result.gamma], look.light),
                         edgecolors=look.light, marker=look.marker, zorder=3)  # fmt: skip
            top = max(top, float(high.max()))
            at_100 = next(row.true for row in result.gamma if row.k == 100)
            shown = t("probe.share_within_100_queries", share=estimate_in_words(at_100, t))
            said.append(t("common.name_what", name=printable(model.name), what=shown))
        _plain_log(axis, t)
        axis.set(
            xlabel=t("probe.queries_k"),
            ylabel=t("probe.share_of_people"),
            ylim=(-0.03 * max(top, 0.05), max(1.05 * top, 0.05)),
        )
        axis.legend(fontsize=7.5, loc="upper left")
        title = t("probe.share_exposed_within_k_queries_target_level", target=_target_name(target), level=level)
        panels.append(to_svg(figure, f"fig-probe-gamma-{target}-{level}", alt_text(t, title, said), t))
    return panels


@styled
def sweep_panels(probe: ProbeEvidence, t: Texts = ENGLISH) -> list[str]:
    """Return panels, as inline SVG, of the exact-match rate against the number of templates, the association level, the
    number of beams and the model size (Fig. 4 of [@kim2023]), each if it varies."""
    # Of the model with the most exact matches: in a model without any, no setting has an effect.
    panels, first = [], max(probe.models, key=_mean_exact_match)
    results = [r for r in first.results if r.likelihood]
    lines = {
        f"{_target_name(r.target)}, {r.level}": [(row.num_templates, row.exact_match)
                                            for row in r.by_num_templates or ()]
        for r in results if r.num_templates > 1
    }  # fmt: skip
    name = printable(first.name)
    panels += _line_panel("templates", t("probe.name_templates", name=name), t("probe.query_prompts"), lines, t)
    levels = list(dict.fromkeys(r.level for r in results))
    by_target = {target: [(r.level, r.exact_match) for r in results if r.target == target]
                 for target in dict.fromkeys(r.target for r in results)}  # fmt: skip
    if len(levels) > 1:
        panels += _line_panel("levels", t("probe.name_items_in_the_prompt", name=name), t("probe.association_level"),
                         {_target_name(target): rows for target, rows in by_target.items()}, t, levels)  # fmt: skip
    beams = {
        f"{_target_name(r.target)}, {r.level}": sorted((int(b), m["exact_match"]) for b, m in r.matches.items())
        for r in results if r.matches and len(r.matches) > 1
    }  # fmt: skip
    panels += _line_panel("beams", t("probe.name_beams", name=name), t("probe.beam_size"), beams, t)
    panels += _line_panel(
        "sizes", t("probe.size_of_the_model"), t("probe.million_parameters"), _size_lines(probe), t, log=True
    )
    return panels


def _size_lines(probe: ProbeEvidence) -> dict[str, list[Point]]:
    """Return line name -> list of (million parameters, exact-match rate), for models that differ only in size."""
    alike: dict[tuple[str, str], list[ProbedModel]] = {}
    for model in probe.models:
        recipe, of, _ = model.name.partition(" of ")
        if model.num_parameters:
            alike.setdefault((model.objective, recipe if of else ""), []).append(model)
    chosen = {key: own for key, own in alike.items() if len({m.num_parameters for m in own}) == len(own) > 1}
    lines: dict[str, list[Point]] = {}
    for (_, recipe), models in chosen.items():
        named = f"{printable(recipe)}, " if recipe and len(chosen) > 1 else ""
        for model in sorted(models, key=lambda m: m.num_parameters or 0):
            for r in model.results:
                if r.likelihood:
                    name = f"{named}{_target_name(r.target)}, {r.level}"
                    lines.setdefault(name, []).append(((model.num_parameters or 0) / 1e6, r.exact_match))
    return lines


def _mean_exact_match(model: ProbedModel) -> float:
    """Return the mean exact match over a model's results."""
    found = [r.exact_match.value for r in model.results if r.exact_match]
    return float(np.mean([value or 0.0 for value in found])) if found else 0.0


def _line_panel(
    slug: str, title: str, xlabel: str, lines: Mapping[str, Sequence[Point]], t: Texts,
    names: list[str] | None = None, log: bool = False, ylabel: str | None = None,
    own_looks: Mapping[str, Look] | None = None,
) -> list[str]:  # fmt: skip
    """Return, in a list, the panel of ``lines`` (name -> points (setting, estimate)) as inline SVG; empty if no line
    has two points. ``names`` labels the x positions, ``own_looks`` styles the lines."""
    known = {name: [(at, own) for at, own in rows if has_value(own)] for name, rows in lines.items()}
    drawn = {name: rows for name, rows in known.items() if len(rows) > 1}
    if not drawn:
        return []
    figure, axis = new_panel(title, width=WIDTH, height=2.9)
    said, looks = [], list(LOOKS.values())
    if own_looks and len({own_looks[name].slug for name in drawn}) == len(drawn):
        looks = [own_looks[name] for name in drawn]
    for number, (name, rows) in enumerate(drawn.items()):
        look = looks[number % len(looks)]
        value, low, high = values_and_ends(estimate for _, estimate in rows)
        x = np.array([names.index(str(at)) if names else at for at, _ in rows], dtype=float)
        axis.errorbar(x, value, yerr=whiskers(value, low, high), color=look.light, linestyle=look.line,
                      marker=look.marker, elinewidth=0.8, markersize=4, label=name)  # fmt: skip
        first, last = (t.plain(f"{end:.2g}") for end in (value[0], value[-1]))
        said.append(t("probe.name_from_first_to_last", name=name, first=first, last=last))
    if names:
        axis.set_xticks(range(len(names)), names)
    elif not log:
        axis.locator_params(axis="x", integer=True)
    if log:
        _plain_log(axis, t)
    axis.set(xlabel=xlabel, ylabel=ylabel or t("probe.exact_match"))
    axis.legend(fontsize=7, loc="best")
    return [to_svg(figure, f"fig-probe-{slug}", alt_text(t, title, said), t)]


@styled
def soft_panels(probe: ProbeEvidence, t: Texts = ENGLISH) -> list[str]:
    """Return, in a list, the panel of how many times likelier a soft prompt makes the true item, a row for each model
    and type of item; empty without one."""
    rows = [(model, look, soft) for model, look in _distinct_looks(probe) for soft in model.soft_prompts or ()
            if has_value(soft.factor)]  # fmt: skip
    if not rows:
        return []
    figure, axis = new_panel(t("probe.soft_prompt_against_the_template_alone"), width=4.6, height=1.4 + 0.3 * len(rows))
    axis.axvline(1, color=SOFT, linestyle="--", linewidth=1)
    said = []
    for row, (model, look, soft) in enumerate(rows):
        value, low, high = values_and_ends([soft.factor])
        axis.errorbar(value, [row], xerr=whiskers(value, low, high), fmt=look.marker, color=look.light, capsize=3)
        said.append(_times_phrase(model.name, soft.target, value[0], t))
    _plain_log(axis, t)
    axis.set_yticks(range(len(rows)), [f"{printable(m.name)}, {_target_name(s.target)}" for m, _, s in rows])
    axis.set(ylim=(len(rows) - 0.4, -0.6), xlabel=t("probe.times_likelier_geometric_mean"))
    return [
        to_svg(figure, "fig-probe-soft", alt_text(t, t("probe.how_many_times_likelier_with_the_soft_prompt"), said), t)
    ]


@styled
def soft_sweep_panels(probe: ProbeEvidence, t: Texts = ENGLISH) -> list[str]:
    """Return panels, as inline SVG, of how many times likelier a soft prompt makes a person's true item, against the
    number of training subjects, the number of soft tokens, and the initialisation (Fig. 5 of [@kim2023])."""
    panels = []
    for sweep, value in SWEEPS:
        lines: dict[str, list[Point]] = {}
        looks: dict[str, Look] = {}
        for model, look in _distinct_looks(probe):
            for soft in model.soft_prompts or ():
                varied = [row for row in soft.sweeps if row.sweep == sweep]
                points = {value(row): row.factor for row in ([soft, *varied] if varied else [])}
                ordered = points.items() if sweep == "init" else sorted(points.items(), key=lambda row: float(row[0]))
                name = f"{printable(model.name)}, {_target_name(soft.target)}"
                lines[name], looks[name] = list(ordered), look
        names = list(dict.fromkeys(str(at) for rows in lines.values() for at, _ in rows)) if sweep == "init" else None
        panels += _line_panel(f"soft-{sweep}", t(f"probe.soft_{sweep}.title"), t(f"probe.soft_{sweep}.x"), lines, t,
                              names, log=sweep == "num_subjects", ylabel=t("probe.times_likelier"),
                              own_looks=looks)  # fmt: skip
    return panels
