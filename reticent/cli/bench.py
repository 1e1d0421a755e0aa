"""The command ``reticent bench``: how fast this machine is with documents of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from reticent.cli.options import AsJson, Detector, Quiet, Set, SourceOrJob, job_from_source, new_progress
from reticent.core.artifact import write_private
from reticent.core.device import check_device
from reticent.ext.bench.documents import describe_machine, measure_documents

#: Settings of a job that change what is timed.
USED = ("corpus", "detect", "split", "index", "train", "num_threads", "seed")


def bench(
    source: SourceOrJob,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="A model folder or hub name: also time its tokens, and training and scoring with it."
        ),
    ] = None,
    documents: Annotated[
        int, typer.Option(min=2, metavar="<int>", help="Take so many documents, the first; they are held in memory.")
    ] = 20_000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Also write the result as JSON to this file.")
    ] = None,
    *,
    detector: Detector = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Time the stages on this machine with your documents: reading, detection, index, tokens, training and scoring.

    Beside them `wc -w`, the tokenizers library and Polars, where they are there. Nothing is kept of the documents, and
    the result has no text: names of stages, counts and times.
    """
    check_device(device)
    job = job_from_source(source, None, detector, settings=settings, used=USED)
    progress = new_progress(quiet)
    with progress.task("documents", None, "stages"):
        about, rows = measure_documents(job, documents, model)
    if model is not None:
        from reticent.ext.bench.model import measure_model

        with progress.task("model", None, "stages"):
            rows += measure_model(job, documents, model, device)
    result = {"machine": describe_machine(), **about, "rows": rows}
    if out is not None:
        write_private(out, json.dumps(result, indent=1).encode())
    if as_json:
        print(json.dumps(result))
        return
    _print_timings(result)


def _print_timings(result: dict[str, Any]) -> None:
    """Print the measured times and speeds as a table, one row a stage."""
    machine = result["machine"]
    title = (
        f"{result['documents']:,} documents of {result['individuals']:,} individuals, "
        f"{result['text_bytes'] / 1e6:,.1f} MB; {machine['processor']}, {machine['cores']} cores"
    )
    table = Table("what", title=title, title_justify="left")
    for head in ("seconds", "MB/s", "MB per CPU second", "tokens/s"):
        table.add_column(head, justify="right")
    for row in sorted(result["rows"], key=lambda row: row["beside"]):
        times = row["seconds"], row["cpu_seconds"]
        table.add_row(
            row["what"],
            f"{row['seconds']:.2f}",
            *(_format_rate(row.get("text_bytes", 0) / 1e6, time, ",.1f") for time in times),
            _format_rate(row.get("tokens", 0), row["seconds"], ",.0f"),
            style="dim" if row["beside"] else None,
        )
    Console().print(table)


def _format_rate(amount: float, seconds: float, form: str) -> str:
    """Return ``amount / seconds`` as text in the format ``form``; "-" if the amount is 0."""
    return format(amount / max(seconds, 1e-6), form) if amount else "-"
