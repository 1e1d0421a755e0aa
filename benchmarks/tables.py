"""Write the tables of benchmarks/README.md from the records, so that no figure there is typed by hand.

python -m benchmarks.tables
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.record_io import RECORD

PAGE = Path(__file__).parent / "README.md"
START = "<!-- what follows is written by benchmarks.tables -->\n"
CORPORA = ("mtsamples", "tab", "meddocan")


def tables() -> str:
    """Return the tables of every record that is there, as Markdown."""
    records = {name: _read(f"real_corpora_{name}") for name in CORPORA}
    found = {name: record for name, record in records.items() if record}
    parts = [_leak_table(name, record) for name, record in found.items()]
    engine = _read("engine")
    kill = _read("kill")
    others = ([_engine(engine)] if engine else []) + ([_kill(kill)] if kill else [])
    return "\n".join(([_identifiers(found), *parts] if parts else []) + others)


def _identifiers(records: dict[str, dict[str, Any]]) -> str:
    found = {name: record["identifiers"] for name, record in records.items()}
    rows = [("individuals", *(f"{i['individuals']:,}" for i in found.values()))]
    rows += [("words", *(f"{i['words']:,}" for i in found.values()))]
    rows += [("distinct words", *(f"{i['distinct_words']:,}" for i in found.values()))]
    for k in (2, 5, 11):
        for what in ("types", "occurrences"):
            shares = (i["identifying_share"][f"k={k}"][what] for i in found.values())
            rows += [(f"used by fewer than {k}: share of {what}", *(f"{share:.1%}" for share in shares))]
    rows += [
        (f"retention, policy {policy}, k = {k}, n = {n}", *(f"{i['retention'][key]:.3f}" for i in found.values()))
        for policy in ("all", "last", "cover", "paper")
        for k in (2, 5, 11)
        for n in (1, 2, 3)
        for key in (f"k={k} n={n} {policy}",)
    ]
    stages = next(iter(found.values()))["seconds"]
    rows += [(f"seconds: {stage}", *(f"{i['seconds'][stage]:.3f}" for i in found.values())) for stage in stages]
    for key, what in (("peak_mib_engine", "the identifiers"), ("peak_mib", "the whole job")):
        rows += [(f"peak memory of {what}, MiB", *(f"{record[key]:,}" for record in records.values()))]
    return "### Identifiers\n\n" + _markdown(("", *records), rows)


def _leak_table(name: str, record: dict[str, Any]) -> str:
    split = record["split"]
    machine = record["machine"]
    rows = [
        (
            row["recipe"],
            row["epoch"] or "-",
            _shown(row["utility_heldout"]),
            _shown(row["privacy"]["both"]["types"]),
            _shown(row["privacy"]["both"]["occurrences"]),
            _shown(row["excess"]["excess"]),
            _shown(row["membership_auc"].get("loss")),
            _shown(row["membership_auc"].get("reference")),
        )
        for row in record["leak_table"]
    ]
    seconds = ", ".join(f"{stage} {value:,.1f}" for stage, value in record["seconds_per_stage"].items() if value >= 0.1)
    heads = ("recipe", "epoch", "utility", "privacy", "of occurrences", "excess", "AUC loss", "AUC reference")
    return (
        f"### Leaks: {name}\n\n{split['members']} members, {split['heldout']} held-out individuals, "
        f"{split['reference']} in the reference. {machine['cpu']}, {machine['cores']} cores, "
        f"commit {machine['commit']}.\n\n" + _markdown(heads, rows) + f"\nSeconds: {seconds}.\n"
    )


def _engine(record: dict[str, Any]) -> str:
    words = record["runs"]["wc -w"]["seconds"]
    rows = [
        (
            name + (f", {row['documents']:,} documents" if "documents" in row else ""),
            f"{row['seconds']:.2f}",
            "-" if "documents" in row else f"{row['seconds'] / words:.1f}",
            f"{row['peak_mib']:,}" if "peak_mib" in row else "-",
            f"{row['tokens'] / row['seconds'] / 1e6:.1f}" if "tokens" in row else "-",
        )
        for name, row in record["runs"].items()
    ]
    heads = ("", "seconds", "times wc -w", "peak memory, MiB", "M tokens/s")
    rounds, machine = record["runs"]["wc -w"]["rounds"], record["machine"]
    return (
        f"### Engine\n\n{record['documents']:,} documents, {record['num_bytes'] / 1e6:,.0f} MB; median of {rounds}. "
        f"{machine['cpu']}, {machine['cores']} cores, commit {machine['commit']}.\n\n" + _markdown(heads, rows)
    )


def _kill(record: dict[str, Any]) -> str:
    outcomes = ("trials", "already done", "got by without", "wrong")
    rows = [
        (how, row, *(counts.get(outcome, 0) for outcome in outcomes))
        for how, table in record["tables"].items()
        for row, counts in table.items()
    ]
    machine = record["machine"]
    return f"### Safe to kill\n\n{machine['cpu']}, commit {machine['commit']}.\n\n" + _markdown(
        ("", "case", *outcomes), rows
    )


def _shown(estimate: dict[str, Any] | None) -> str:
    if estimate is None or estimate["value"] is None:
        return "-"
    if estimate["low"] is None:
        return f"{estimate['value']:.3f}"
    return f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def _markdown(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [heads, tuple("---" if number == 0 else "---:" for number in range(len(heads))), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def _read(name: str) -> dict[str, Any] | None:
    path = RECORD / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text[: text.index(START) + len(START)] + "\n" + tables(), encoding="utf-8")
