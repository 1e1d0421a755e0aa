"""The tables of `reticent detect`: what each detector finds, and how that compares with annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.table import Table

__all__ = ["counts_table", "evaluation_tables", "rules_table"]


def counts_table(spans: dict[str, dict[str, int]]) -> Table:
    """Return spans by category and detector; what propagation added, whoever found it first, in one column."""
    columns: dict[str, Counter[str]] = {}
    for name, counts in spans.items():
        columns.setdefault(name.partition(":")[0], Counter()).update(counts)
    table = _table("category", *columns, title="Spans found")
    for name in sorted({category for counts in columns.values() for category in counts}):
        table.add_row(name, *(f"{counts[name]:,}" for counts in columns.values()))
    table.add_section()
    table.add_row("all", *(f"{counts.total():,}" for counts in columns.values()))
    return table


def evaluation_tables(found: dict[str, Any]) -> Iterator[Table]:
    """Yield the tables of `reticent.audit.detection.evaluate_detection`; they fit 80 columns."""
    yield _overall(found)
    yield _whole(found)
    yield _by_category(found)
    yield _by_detector(found)


def rules_table(rules: list[dict[str, Any]]) -> Table:
    """Return what each rule finds, a row a rule."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for head in rules[0] if rules else ():
        table.add_column(head, overflow="fold")
    for rule in rules:
        table.add_row(*map(str, rule.values()))
    return table


def _overall(found: dict[str, Any]) -> Table:
    left_out = f"; {found['unmarked']:,} without are left out" if found["unmarked"] else ""
    table = _table(
        "all detectors",
        *("precision", "recall", "F1"),
        title=f"{found['documents']:,} documents of {found['individuals']:,} individuals with gold spans{left_out}",
        caption="Behind each rate its 95 % interval, individuals resampled whole.",
    )
    for scope, what in (("overall", ""), ("any_label", ", any label")):
        for match in ("strict", "relaxed", "words"):
            scores = found["union"][scope][match]
            table.add_row(match + what, *(_shown(scores[name]) for name in ("precision", "recall", "f1")))
    return table


def _whole(found: dict[str, Any]) -> Table:
    table = _table(
        "all found, under any label", "share", "of", title="Found whole", caption="entities: all their mentions."
    )
    union = found["union"]
    rows = [("mentions", union["covered"]["overall"])]
    for name, estimate in union["entities"].items():
        rows.append(("entities" if name == "overall" else f"{name} entities", estimate))
    for what, estimate in [*rows, *union["all_found"].items()]:
        table.add_row(what, _shown(estimate), f"{estimate['of']:,}")
    return table


def _by_category(found: dict[str, Any]) -> Table:
    heads = ("gold", "strict\nP", "\nR", "relaxed\nP", "\nR", "words\nR", "whole", "part", "missed")
    table = _table(
        "category",
        *heads,
        title="By category",
        caption="whole: every word found, under any label; part: some word; missed: none.",
    )
    union = found["union"]
    for name, scores in union["categories"].items():
        rates = [scores[match][what] for match in ("strict", "relaxed") for what in ("precision", "recall")]
        table.add_row(
            name,
            f"{found['mentions'].get(name, 0):,}",
            *map(_value, [*rates, scores["words"]["recall"]]),
            _value(union["covered"][name]),
            *(f"{found[what].get(name, 0):,}" for what in ("partial", "missed")),
        )
    return table


def _by_detector(found: dict[str, Any]) -> Table:
    table = _table(
        "alone",
        *("relaxed\nP", "\nR", "any label\nP", "\nR", "mentions\ncovered", "only\nit"),
        title="By detector",
        caption="only it: mentions that are covered with it and not without it.",
    )
    for name, scores in found["alone"].items():
        rates = [
            scores[scope]["relaxed"][what] for scope in ("overall", "any_label") for what in ("precision", "recall")
        ]
        covered = scores["covered"]["overall"]
        table.add_row(name, *map(_value, [*rates, covered]), f"{sum(found['only'][name].values()):,}")
    return table


def _table(first: str, *heads: str, title: str, caption: str | None = None) -> Table:
    table = Table(
        title=f"\n{title}",
        caption=caption,
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column(first, no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _value(estimate: dict[str, Any]) -> str:
    return "-" if estimate["value"] is None else f"{estimate['value']:.3f}"


def _shown(estimate: dict[str, Any]) -> str:
    if estimate["value"] is None or estimate["low"] is None:
        return _value(estimate)
    return f"{estimate['value']:.3f} {estimate['low']:.3f}-{estimate['high']:.3f}"
