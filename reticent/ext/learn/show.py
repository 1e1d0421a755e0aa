"""Terminal output of the report on a trained tagger; it holds no text of a document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_learned(report: Mapping[str, Any], as_json: bool) -> None:
    """Print the report of a tagger: training data, cross-validated recall and precision, most-missed word shapes."""
    if as_json:
        print(json.dumps(report, indent=1))
        return
    console = Console()
    sources = report["sources"]
    console.print(
        f"Learned from {report['documents']:,} documents of {report['individuals']:,} individuals: "
        f"{sources['marks']:,} marked by people, {sources['drawn']:,} drawn.",
        soft_wrap=True,
    )
    table = Table("words of", "marked", "recall", "precision", title=f"{report['folds']}-fold, by individual")
    rows = {"all": report["overall"], "running text": report["running_text"], **report["categories"]}
    for name, found in rows.items():
        table.add_row(
            name, f"{found['recall']['words']:,}", *(_format_rate(found[side]) for side in ("recall", "precision"))
        )
    console.print(table)
    console.print(
        "All and running text: found as an identifier of any category. Other rows: found as this category.",
        soft_wrap=True,
    )
    if report["missed"]:
        console.print("Missed most (X capital, x small letter, 9 digit, + more of the same):")
        for form in report["missed"]:
            console.print(f"  {form['words']:,} {form['category']} {form['shape']} in {form['place']}", soft_wrap=True)


def _format_rate(found: Mapping[str, Any]) -> str:
    """Return a rate as text with its interval, "-" if it has no value."""
    if found["value"] is None:
        return "-"
    interval = "" if found["low"] is None else f" ({found['low']:.3f} to {found['high']:.3f})"
    return f"{found['value']:.3f}{interval}"
