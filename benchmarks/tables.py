"""Write the pages of docs/benchmarks from the records, so that no figure there is typed by hand.

python -m benchmarks.tables
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.detection import detection_tables
from benchmarks.detection_speed import speed_tables
from benchmarks.engine import goal_table, run_table
from benchmarks.engine_goals import shape_rows
from benchmarks.escapes import escape_tables
from benchmarks.figure import draw, draw_plane
from benchmarks.model_tables import MODEL_TABLES
from benchmarks.pages import PAGES, Page, demo_plane
from benchmarks.protection import protection_table
from benchmarks.record_io import RECORD, estimate_text, machine_line, markdown
from benchmarks.running_names import running_names_tables
from benchmarks.sampled_recall import sampled_recall_tables
from benchmarks.warehouse_pages import spark_tables, warehouse_tables

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
#: The first line after what is written from the records; below it stands how it was measured, written by hand.
END = "<!-- above: written by benchmarks.tables from the records -->"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield (path, text) of every page, of its figure, of the README's figure, and of the list of pages."""
    for page in PAGES:
        records = [json.loads((RECORD / f"{name}.json").read_text()) for name in page.records]
        path = FOLDER / f"{page.stem}.md"
        kept = path.read_text(encoding="utf-8").partition(END)[2] if path.exists() else "\n"
        yield path, page_text(page, records) + END + kept
        yield FOLDER / f"{page.stem}.svg", draw(page.figure(*records))
    demo = json.loads((RECORD / "demo.json").read_text())
    yield FOLDER.parent / "assets" / "demo.svg", draw_plane(*demo_plane(demo))
    listed = "".join(f"- [{page.question}]({page.stem}.md)\n" for page in PAGES)
    path = FOLDER / "index.md"
    kept = path.read_text(encoding="utf-8").partition(END)[2] if path.exists() else "\n"
    yield (
        path,
        "# Benchmarks\n\nOne page for each question: the answer, a figure, the table, and the record.\n\n"
        f"{listed}\n{END}{kept}",
    )


def page_text(page: Page, records: list[dict[str, Any]]) -> str:
    """Return what the records say: the question, the answer, the figure, the folded table."""
    links = ", ".join(f"[{name}.json](../../benchmarks/record/{name}.json)" for name in page.records)
    title = "Record" if len(page.records) == 1 else "Records"
    return (
        f"# {page.question}\n\n{page.answer(*records)}\n\n![{page.figure(*records).axis}]({page.stem}.svg)\n\n"
        '<details markdown="1">\n<summary>The '
        f"table</summary>\n\n{TABLES[page.stem](*records).strip()}\n\n</details>\n\n"
        f"{title}: {links}.\n\n"
    )


def _demo(record: dict[str, Any]) -> str:
    rows = [
        (
            row["recipe"] if row["recipe"] != "base" else f"base ({row['objective']})",
            row["epoch"] or "-",
            *(estimate_text(row[key]) for key in ("utility", "utility_all")),
            estimate_text(row["privacy"]["types"]),
            estimate_text(row["excess"]["excess"]),
            estimate_text(row["loss_auc"]),
        )
        for row in record["table"]
    ]
    seconds = ", ".join(f"{stage} {value:,.1f}" for stage, value in record["seconds_per_stage"].items() if value >= 1)
    heads = ("recipe", "epochs", "utility", "over all words", "privacy", "excess", "AUC of the loss")
    return (
        f"{machine_line(record)}\n\n{markdown(heads, rows)}\nSeconds of the stages that take one or more: {seconds}.\n"
    )


def _identifiers(*given: dict[str, Any]) -> str:
    records = dict(zip(CORPORA, given, strict=True))
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
    return markdown(("", *records), rows)


def _leak_table(record: dict[str, Any]) -> str:
    split = record["split"]
    rows = [
        (
            row["recipe"],
            row["epoch"] or "-",
            estimate_text(row["utility_heldout"]),
            estimate_text(row["privacy"]["both"]["types"]),
            estimate_text(row["privacy"]["both"]["occurrences"]),
            estimate_text(row["excess"]["excess"]),
            estimate_text(row["membership_auc"].get("loss")),
            estimate_text(row["membership_auc"].get("reference")),
        )
        for row in record["leak_table"]
    ]
    seconds = ", ".join(f"{stage} {value:,.1f}" for stage, value in record["seconds_per_stage"].items() if value >= 0.1)
    heads = ("recipe", "epoch", "utility", "privacy", "of occurrences", "excess", "AUC loss", "AUC reference")
    return (
        f"{split['members']} members, {split['heldout']} held-out individuals, "
        f"{split['reference']} in the reference. {machine_line(record)}\n\n"
        + markdown(heads, rows)
        + f"\nSeconds: {seconds}.\n"
    )


def _classes(record: dict[str, Any]) -> str:
    rows, sizes = [], next(iter(record["models"].values()))
    for model, found in record["models"].items():
        for row in found["rows"]:
            if row["setting"] is None and model != next(iter(record["models"])):
                continue  # what needs no model stands there once
            seeds = row["macro_f1_over_seeds"]
            rows.append(
                (
                    f"{model}, {row['start']}" if row["setting"] else row["start"],
                    row["epoch"] or "-",
                    row["setting"] or "-",
                    estimate_text(row["macro_f1"]),
                    f"{seeds['low']:.3f} to {seeds['high']:.3f}" if seeds["n"] > 1 else "-",
                    estimate_text(row["micro_f1"]),
                    estimate_text(row.get("macro_f1_less_base")),
                )
            )
    heads = ("start", "epoch", "setting", "macro F1", "over seeds", "micro F1", "macro F1 less base")
    return (
        f"{sizes['classes']} classes, {sizes['train']['documents']:,} documents of "
        f"{sizes['train']['individuals']:,} members, {sizes['heldout']['documents']:,} of "
        f"{sizes['heldout']['individuals']:,} held-out individuals; {record['num_seeds']} seeds, intervals of the "
        f"first. {machine_line(record)}\n\n" + markdown(heads, rows)
    )


def _engine(record: dict[str, Any]) -> str:
    made = "made by reticent synth" if record["generated"] else "of a given corpus"
    return (
        f"{record['documents']:,} documents {made}, {record['num_bytes'] / 1e6:,.0f} MB; median of "
        f"{record['rounds']}. {machine_line(record)}\n\n"
        + "\n".join(
            [
                markdown(*goal_table(record)),
                markdown(*run_table(record)),
                markdown(("shape", "here", "published"), shape_rows(record["shape"])),
            ]
        )
    )


def _large(record: dict[str, Any]) -> str:
    machine, runs = record["machine"], {name: record[name] for name in ("pilot", "large")}
    rows = [
        (
            f"{run['documents']:,}",
            f"{run['num_bytes'] / 1e9:.2f}",
            *(f"{run[key]:,.1f}" for key in ("seconds", "cpu_seconds")),
            *("-" if run[key] is None else f"{run[key] / 1e9:.2f}" for key in ("memory_limit", "peak_bytes")),
            f"{run['spill_bytes'] / 1e9:.2f}",
        )
        for run in runs.values()
    ]
    told = ""
    if "extrapolated" in record:
        far = record["extrapolated"]
        told = f"\nExtrapolated to {far['documents']:,}: {far['seconds']:,.0f} s. Basis: {far['basis']}.\n"
        rows.append((f"{far['documents']:,}", "-", f"{far['seconds']:,.1f}", f"{far['cpu_seconds']:,.1f}", *"---"))
    heads = ("documents", "GB of text", "seconds", "CPU seconds", "memory limit, GB", "at its peak, GB", "spill, GB")
    return (
        f"n = 1..3. {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_mib']:,} MiB, commit {machine['commit']}.\n\n" + markdown(heads, rows) + told
    )


def _kernels(record: dict[str, Any]) -> str:
    machine = record["machine"]
    rows = [
        (
            name,
            f"{row['entries'] / 1e6:.1f}",
            f"{row['numba']['median']:.3f}",
            f"{row['numpy']['median']:.3f}",
            f"{row['numpy']['median'] / row['numba']['median']:.1f}",
        )
        for name, row in record["rows"].items()
    ]
    return (
        f"{record['num_tokens'] / 1e6:.1f} M tokens; processor seconds, median of "
        f"{next(iter(record['rows'].values()))['numba']['n']}. {machine['cpu']}, one thread, "
        f"commit {machine['commit']}.\n\n" + markdown(("", "M entries", "Numba", "NumPy", "NumPy / Numba"), rows)
    )


def _kill(record: dict[str, Any]) -> str:
    outcomes = ("trials", "already done", "got by without", "wrong")
    rows = [
        (how, row, *(counts.get(outcome, 0) for outcome in outcomes))
        for how, table in record["tables"].items()
        for row, counts in table.items()
    ]
    machine = record["machine"]
    return f"{machine['cpu']}, commit {machine['commit']}.\n\n" + markdown(("", "case", *outcomes), rows)


def _dedup(record: dict[str, Any]) -> str:
    checked, timed, machine = record["checked"], record["timed"], record["machine"]
    recall, cpu = checked["datasketch_recall"], timed["datasketch_cpu_seconds"]
    wrong = checked["datasketch_wrong_pairs"]
    rows = [
        ("reticent", f"{checked['recall']:.3f}", 0, f"{timed['collect_and_near_cpu_seconds']:.2f}"),
        ("datasketch", *("-" if value is None else value for value in (recall and f"{recall:.3f}", wrong)), "-"),
    ]
    if cpu is not None:
        rows[1] = (*rows[1][:3], f"{cpu:.2f}")
    return (
        f"Near duplicates at threshold {record['threshold']}: pairs found of the {checked['true_pairs']:,} true pairs "
        f"of {checked['documents']:,} documents, and wrong pairs; CPU seconds for {timed['documents']:,} documents, "
        f"{timed['text_bytes'] / 1e6:.0f} MB. {machine['cpu']}, commit "
        f"{machine['commit']}.\n\n" + markdown(("", "pairs found", "wrong pairs", "CPU seconds"), rows)
    )


def _scrub(record: dict[str, Any]) -> str:
    wall, cpu = record["mb_per_second"], record["mb_per_core_second"]
    rows = [(name, *(f"{speed[name]['median']:.0f}" for speed in (wall, cpu))) for name in wall]
    return (
        f"{record['documents']:,} documents, {record['bytes'] / 1e6:.0f} MB, {record['spans']:,} "
        f"spans; median of {next(iter(wall.values()))['n']}. {machine_line(record)}\n\n"
        + markdown(("", "MB/s", "MB a core second"), rows)
    )


def _guard(record: dict[str, Any]) -> str:
    machine, added = record["machine"], record["cpu_microseconds_per_token"]
    rows = [(name, f"{row['median']:,.0f}", f"{row['low']:,.0f} to {row['high']:,.0f}") for name, row in added.items()]
    return (
        f"{record['text_bytes'] / 1e6:.0f} MB of text, {record['bytes_per_byte']:.2f} bytes of "
        f"index a byte, built at {record['build_mb_per_cpu_second']['median']:.0f} MB a CPU second. Blocked by "
        f"mistake: {record['unrelated_texts_blocked']:.2%} of unrelated texts, {record['copies_of_49_blocked']:.2%} of "
        f"copies of 49 characters. A model of {record['parameters'] / 1e6:.1f} M parameters, {record['batch']} texts "
        f'of {record["tokens"]} tokens; "added": within a round. {machine["cpu"]}, commit {machine["commit"]}.\n\n'
        + markdown(("generation", "CPU µs a token", "range"), rows)
    )


def _all_leaks(*records: dict[str, Any]) -> str:
    named = zip(CORPORA, records, strict=True)
    return "\n".join(f"**{name}**\n\n{_leak_table(record)}" for name, record in named)


def _all_classes(*records: dict[str, Any]) -> str:
    named = zip(LABELLED, records, strict=True)
    return "\n".join(f"**{name}**\n\n{_classes(record)}" for name, record in named)


CORPORA = ("mtsamples", "tab", "meddocan")
LABELLED = ("mtsamples", "mts_dialog")
#: Page -> its table, from the page's records.
TABLES: Mapping[str, Callable[..., str]] = {
    "demo": _demo,
    "identifiers": _identifiers,
    "leaks": _all_leaks,
    "engine": _engine,
    "protection": lambda record: f"{machine_line(record)}\n\n{protection_table(record)}",
    "large": _large,
    "kernels": _kernels,
    "kill": _kill,
    "detection": detection_tables,
    "detection-speed": speed_tables,
    "sampled-recall": sampled_recall_tables,
    "running-names": running_names_tables,
    "spark": spark_tables,
    "warehouse": warehouse_tables,
    "duplicates": _dedup,
    "scrub": _scrub,
    "guard": _guard,
    "escapes": escape_tables,
    "classification": _all_classes,
    **MODEL_TABLES,
}


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
