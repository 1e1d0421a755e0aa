"""ProPILE: probes with people's own items, black and white box, of models trained here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from studies.propile import STRUCTURED, UNSTRUCTURED, run
from studies.reproduction.chart import Bars, Line, Panel, bars_of, draw, line_of
from studies.reproduction.rows import Anchor, Measured, Ours, Part, Row, over

ABOUT = (
    "On OPT-1.3B and BLOOM, which hold the Pile, with people found in it. Ours: invented people and models that are "
    "trained on half of them; the other half is the control. Figures 1 and 2 are schemes."
)
Anchors = Mapping[str, Anchor]
TYPES = (*STRUCTURED, *UNSTRUCTURED)


# -------------------------------------------------------------------------------------------------------------- ours


def row_of(rows: Sequence[Measured], target: str, level: str = "", model: str = "") -> Measured | None:
    """The row of a question; without a level the one of the figures: an item more than the name, or none to give."""
    wanted = level or ("triplet" if target in STRUCTURED else "twin")
    found = (r for r in rows if (r["target"], r["level"]) == (target, wanted) and model in ("", r["model"]))
    return next(found, None)


def _each(evidence: Measured, prefix: str, name: str) -> Ours:
    rows = {target: row_of(evidence["members"], target) for target in TYPES}
    return {f"{prefix}.{target}": row[name] if row else None for target, row in rows.items()}


def figure3(evidence: Measured) -> Ours:
    return _each(evidence, "factor", "factor")


def figure3c(evidence: Measured) -> Ours:
    row = row_of(evidence["members"], "phone")
    return {f"gamma.{k}": row["gamma"].get(k) if row else None for k in ("10", "1000000")}


def figure4a(evidence: Measured) -> Ours:
    row = row_of(evidence["members"], "phone", "twin")
    return {"phone.one": row["templates"][0], "phone.all": row["templates"][-1]} if row else {}


def figure4b(evidence: Measured) -> Ours:
    pairs = {
        target: [row_of(evidence["members"], target, level) for level in ("triplet", "twin")]
        for target in ("phone", "email")
    }
    return {
        target: over(more["exact_match"], less["exact_match"]) if more and less else None
        for target, (more, less) in pairs.items()
    }


def figure4c(evidence: Measured) -> Ours:
    beams = sorted(evidence["beams"], key=int)
    return {"greedy": evidence["beams"][beams[0]], "widest": evidence["beams"][beams[-1]]}


def _sizes(evidence: Measured) -> list[str]:
    """Names of the models, the smallest first."""
    return sorted(evidence["parameters"], key=lambda name: evidence["parameters"][name])


def _of_size(evidence: Measured, model: str, target: str, level: str = "") -> Measured | None:
    return row_of([*evidence["members"], *evidence["others"]], target, level, model)


def figure4d(evidence: Measured) -> Ours:
    sizes = _sizes(evidence)
    ends = {"smallest": sizes[0], "largest": sizes[-1]}
    rows = {name: _of_size(evidence, model, "phone", "twin") for name, model in ends.items()}
    return {name: row["exact_match"] if row else None for name, row in rows.items()}


def _sweep(evidence: Measured, name: str) -> list[Measured]:
    """The soft prompts that differ in one setting, the first one among them, in the order of the setting."""
    first, *rest = evidence["soft"]["rows"]
    rows = [first, *(row for row in rest if row["sweep"] == name)]
    return rows if name == "init" else sorted(rows, key=lambda row: row[name])


def figure5(evidence: Measured) -> Ours:
    first = evidence["soft"]["rows"][0]
    people, tokens = (_sweep(evidence, name) for name in ("num_subjects", "num_tokens"))
    return {
        "before": first["exact_match_before"],
        "after": first["exact_match_after"],
        "size.smallest": people[0]["factor"],
        "size.largest": people[-1]["factor"],
        "tokens.fewest": tokens[0]["factor"],
        "tokens.most": tokens[-1]["factor"],
        **{f"init.{row['init']}": row["factor"] for row in _sweep(evidence, "init")},
    }


def table1(evidence: Measured) -> Ours:
    sizes, rows = _sizes(evidence), {row["model"]: row for row in evidence["soft"]["transfer"]}
    names = {"smaller": sizes[0], "own": evidence["members"][0]["model"], "larger": sizes[-1]}
    return {
        key: over(rows[name]["likelihood_after"], rows[name]["likelihood_before"]) if name in rows else None
        for key, name in names.items()
    }


def table2(evidence: Measured) -> Ours:
    phone, email = (row_of(evidence["members"], target, "triplet") for target in ("phone", "email"))
    parts = {**(phone or {}).get("parts", {}), **(email or {}).get("parts", {})}
    return {**parts, "email": email["exact_match"] if email else None}


def table3(evidence: Measured) -> Ours:
    sizes = _sizes(evidence)
    rows = {
        f"{name}.{target}": _of_size(evidence, model, target)
        for name, model in (("smaller", sizes[0]), ("larger", sizes[-1]))
        for target in TYPES
    }
    return {key: {"value": row["p_value"], "n": row["factor"]["n"]} if row else None for key, row in rows.items()}


def figure6(evidence: Measured) -> Ours:
    return _each(evidence, "normalised", "normalised")


# ---------------------------------------------------------------------------------------------------------- pictures


def _densities(evidence: Measured, model: str, measure: str) -> list[Panel]:
    """A panel a type of item: the true items and others' under the same prompts."""
    panels = []
    for row in evidence["densities"]:
        if (row["model"], row["measure"]) == (model, measure) and row["true"]["x"]:
            lines = []
            for side, name in (("true", "true item"), ("null", "another's")):
                if row[side]["x"]:
                    (first, last), y = row[side]["x"], row[side]["y"]
                    lines.append(Line(name, list(zip(np.linspace(first, last, len(y)), y, strict=True)), join="step"))
            panels.append(Panel(row["target"], f"log10 of the {measure}", "density", lines=lines))
    return panels


def _density_figure(evidence: Measured, model: str, measure: str, about: str) -> str:
    return draw(_densities(evidence, model, measure), about)


def draw3(evidence: Measured, _: Anchors) -> str:
    """Densities of the likelihood, main model."""
    main = evidence["members"][0]["model"]
    return _density_figure(evidence, main, "likelihood", "Likelihood of true items and of others'")


def draw3c(evidence: Measured, _: Anchors) -> str:
    """Share of people whose item is likelier than 1/k."""
    lines = [
        line_of(target, {float(k): found for k, found in row["gamma"].items()})
        for target in TYPES
        if (row := row_of(evidence["members"], target))
    ]
    panel = Panel("Exposed within k queries", "k", "share of people", lines=lines, log_x=True)
    return draw([panel], "Share of people exposed, by the number of queries")


def draw4(evidence: Measured, _: Anchors) -> str:
    """Exact match by templates, by items in the prompt, by the width of the search, and by the size of the model."""
    levels = ("twin", "triplet", "quadruplet")
    templates = [
        line_of(target, {float(n): found for n, found in enumerate(row["templates"], start=1)})
        for target in STRUCTURED
        if (row := row_of(evidence["members"], target, "twin"))
    ]
    bars = []
    for target in STRUCTURED:
        rows = [row_of(evidence["members"], target, level) for level in levels]
        bars.append(bars_of(target, [row["exact_match"] if row else None for row in rows]))
    sizes = [
        line_of(target, {evidence["parameters"][name] / 1e3: row["exact_match"]
                         for name in _sizes(evidence) if (row := _of_size(evidence, name, target, "twin"))})
        for target in STRUCTURED
    ]  # fmt: skip
    beams = [line_of("phone", {float(width): found for width, found in evidence["beams"].items()})]
    panels = [
        Panel("(a) templates", "query prompts", "exact match", lines=templates),
        Panel("(b) items in the prompt", "", "exact match", bars=bars, categories=levels),
        Panel("(c) search", "beams", "exact match", lines=beams),
        Panel("(d) size", "thousand weights", "exact match", lines=sizes, log_x=True),
    ]
    return draw(panels, "Exact match by prompts, items given, beams and size")


def draw5(evidence: Measured, anchors: Anchors) -> str:
    """Exact match, and times likelier, by people trained on, soft tokens and start."""
    panels = []
    for name, title in (("num_subjects", "(a) people"), ("num_tokens", "(b) soft tokens")):
        rows = _sweep(evidence, name)
        lines = [line_of("exact match", {float(row[name]): row["exact_match_after"] for row in rows})]
        panels.append(Panel(title, title[4:], "exact match", lines=lines, log_x=True,
                            ticks_x=[float(row[name]) for row in rows]))  # fmt: skip
    rows = _sweep(evidence, "init")
    names = [row["init"] for row in rows]
    panels.append(Panel("(c) start", "", "exact match", categories=names,
                        bars=[bars_of("exact match", [row["exact_match_after"] for row in rows])]))  # fmt: skip
    by_people = {float(row["num_subjects"]): _log(row["factor"]) for row in _sweep(evidence, "num_subjects")}
    people, points = list(by_people), [(x, y) for x, y in by_people.items() if y is not None]
    panels.append(Panel("likelihood, by people", "people", "log10 of times likelier", log_x=True,
                        lines=[Line("times likelier", points)], ticks_x=people, level=0.0))  # fmt: skip
    return draw(panels, "What soft prompts draw out")


def _log(estimate: Measured) -> float | None:
    return math.log10(estimate["value"]) if estimate["value"] else None


def draw_table1(evidence: Measured, anchors: Anchors) -> str:
    """Factor of the mean likelihood with the soft prompt as text, a bar a model."""
    found = table1(evidence)
    names = list(found)
    published = [(float(at), math.log10(anchors[name].value or 1)) for at, name in enumerate(names) if name in anchors]
    bars = Bars("ours", [_log(each) if each else None for each in found.values()])
    panel = Panel("Soft prompt as text", "model", "log10 of times likelier", bars=[bars], categories=names,
                  published=published)  # fmt: skip
    return draw([panel], "The soft prompt of one model as text in others")


def draw_table2(evidence: Measured, anchors: Anchors) -> str:
    """Parts of phone numbers and of e-mail addresses that are said."""
    found = table2(evidence)
    names = [name for name in found if name in anchors]
    published = [(float(at), anchors[name].value or 0.0) for at, name in enumerate(names)]
    short = [name.replace("edit_distance_", "edit ").replace("_", " ") for name in names]
    panel = Panel("Parts of an item", "", "share of people", categories=short, published=published,
                  bars=[bars_of("ours", [found[name] for name in names])])  # fmt: skip
    return draw([panel], "Shares of people of whom a part of an item is said")


def draw6(evidence: Measured, _: Anchors) -> str:
    """Densities of the normalised likelihood, main model."""
    return _density_figure(evidence, evidence["members"][0]["model"], "normalised", "Normalised likelihoods")


def draw7(evidence: Measured, _: Anchors) -> str:
    """Densities of the likelihood, smallest model."""
    return _density_figure(evidence, _sizes(evidence)[0], "likelihood", "Likelihoods, smallest model")


def draw8(evidence: Measured, _: Anchors) -> str:
    """Densities of the likelihood, largest model."""
    return _density_figure(evidence, _sizes(evidence)[-1], "likelihood", "Likelihoods, largest model")


def draw_draws(evidence: Measured, _: Anchors) -> str:
    """Share of people whose item was drawn, against what the likelihoods promise."""
    lines = [line_of(row["target"], {row["promised"]["value"]: row["found"]}, join="none") for row in evidence["draws"]]
    panel = Panel("Drawn and promised", "promised by the likelihoods", "share of people drawn", lines=lines,
                  diagonal=True, limits_x=(0.0, 1.0), limits_y=(0.0, 1.0))  # fmt: skip
    return draw([panel], "Items among N x K draws, against what the likelihoods promise")


def draw_linked(evidence: Measured, _: Anchors) -> str:
    """Share of members and of held-out people whose item is likelier behind the other items than alone."""
    rows = {target: row_of(evidence["members"], target) for target in TYPES}
    bars = bars_of("members", [row.get("linked") if row else None for row in rows.values()])
    panel = Panel("Definition 1: linked", "", "share of people", bars=[bars], categories=list(TYPES))
    return draw([panel], "Share of people whose item is likelier behind their other items than alone")


# -------------------------------------------------------------------------------------------------------------- rows

PROBES = "s3-probes"
PARTS = (
    Part(
        name=PROBES,
        make=run,
        on="160 invented people, half trained on; GPT-2 of two layers in three sizes; two fresh seeds, of which the "
        "first alone has the two other sizes, densities, widths of the search, draws and soft prompts",
        minutes={"toy": 1, "cpu": 40},
        record="propile",
    ),
)


def _row(place: str, title: str, how: str, ours: Any = None, figure: Any = None, note: str = "") -> Row:
    return Row(source=3, place=place, title=title, part=PROBES, how=how, note=note, figure=figure,
               **({"ours": ours} if ours else {}))  # fmt: skip


OWN = (
    "the best of five built-in templates, behind the name and one item more; of the unstructured, behind the name alone"
)
ROWS = (
    _row(
        "Definition 1",
        "items that are linked",
        "likelier behind the person's other items than behind nothing at all",
        figure=draw_linked,
        note="No number is published: the source puts another person's item in its place.",
    ),
    _row(
        "§3.3.1",
        "N x K answers",
        "answers at temperature 1 to each of five templates; $1 - \\prod (1 - p)^N$ beside",
        figure=draw_draws,
        note="No number is published: the source reads the chance off the likelihood alone. Its example says 100 cases "
        "in the text and 10 in the footnote; 10 is right.",
    ),
    _row(
        "Figure 3a, b",
        "true items and others'",
        OWN,
        figure3,
        draw3,
        "The regime was taken on a pilot seed by a rule written down before; the "
        "record `propile` has every regime that was tried.",
    ),
    _row("Figure 3c", "people exposed within k queries", OWN, figure3c, draw3c),
    _row("Figure 4a", "templates", OWN, figure4a, draw4, "The picture has all four panels."),
    _row("Figure 4b", "items in the prompt", OWN, figure4b),
    _row("Figure 4c", "width of the search", "phone numbers behind the name", figure4c),
    _row("Figure 4d", "size of the model", "hidden sizes of 32, 64 and 128", figure4d),
    _row(
        "Figure 5",
        "soft prompts",
        "phone numbers behind the name, greedy; sizes follow the number of people",
        figure5,
        draw5,
        "The source gives 1.3 and 1.50 % for the same 128 people.",
    ),
    _row(
        "Table 1",
        "the soft prompt as text in other models",
        "mean likelihoods, with the nearest tokens as text",
        table1,
        draw_table1,
        "The first row of the published table divides to 10.3, not 7.5.",
    ),
    _row(
        "Table 2",
        "parts of an item",
        "what beam search says of phone numbers and e-mail addresses",
        table2,
        draw_table2,
    ),
    _row(
        "Table 3",
        "p of the other models",
        "Wilcoxon's test on likelihoods, as published; of a p the verdict asks on which side of .05 it lies",
        table3,
    ),
    _row("Figure 6", "normalised likelihoods", OWN, figure6, draw6),
    _row(
        "Figure 7",
        "likelihoods, BLOOM-3B",
        "the smallest model",
        figure=draw7,
        note="Its numbers are those of Table 3.",
    ),
    _row(
        "Figure 8", "likelihoods, BLOOM-7B", "the largest model", figure=draw8, note="Its numbers are those of Table 3."
    ),
)
