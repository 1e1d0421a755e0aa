"""The command ``reticent score``: rank candidate or generated texts by their likelihood under a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from reticent.cli.options import AsJson, Quiet, Seed, job_of, new_progress, read_job, refuse_given
from reticent.core.artifact import write_private
from reticent.core.device import check_device
from reticent.core.errors import PolicyError
from reticent.ext.propile.prompts import objective_of
from reticent.ext.score.texts import Candidate, read_texts, without_repeats
from reticent.job.run import Run

#: Rows that are printed.
SHOWN = 20


def score(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model folder or hub name.")],
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Candidate texts, one a line; what stands before a tab is given. Or JSON lines (.jsonl) with text and "
            "given.",
        ),
    ] = None,
    generate: Annotated[
        int | None,
        typer.Option(min=1, metavar="<int>", help="Instead: so many texts that the model writes from nothing."),
    ] = None,
    base: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model that it was made from, to compare with.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A run: also say which share of its held-out documents is likelier."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="JSON lines of all rows with their texts; private to you."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, metavar="<int>", help="Tokens of each text that is written.")] = 256,
    top_k: Annotated[
        int, typer.Option(min=0, metavar="<int>", help="Write from so many of the likeliest tokens; 0: from all.")
    ] = 40,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Rank candidate texts by how likely a model makes them: a text that it was trained on has a low perplexity.

    Beside it: the loss over the size after zlib, with --base the base's loss over the model's, and with --run the share
    of held-out documents that are likelier. An item behind a tab is linked if it is likelier there than alone.

    With --generate the model writes the candidates; of those that are nearly equal one is kept. No text is printed:
    --out keeps them.
    """
    if (texts is None) == (generate is None):
        raise PolicyError("give --texts or --generate, one of them")
    if generate is None:
        refuse_given(context, "belongs to --generate", "tokens", "top_k", "seed")
    elif out is None:
        raise PolicyError("--generate: give --out FILE for the texts; none is printed")
    check_device(device)
    candidates = read_texts(texts) if texts is not None else []
    job = None if run is None else job_of(read_job(run), None)
    from reticent.audit.scoring.generate import Decoding
    from reticent.ext.score.scorer import Scorer

    progress = new_progress(quiet)
    scorer = Scorer(model, objective_of(model), base, device=device)
    heldout = None if job is None else scorer.heldout_of(Run(job))
    if generate is not None:
        with progress.task("write texts", generate, "texts") as advance:
            candidates = scorer.write(
                generate,
                num_tokens=tokens,
                decoding=Decoding(top_k=top_k, may_end=True),
                seed=seed,
                progress=advance,
            )
        if not candidates:
            raise PolicyError("--generate: the model writes nothing")
    with progress.task("score texts", None, "windows") as advance:
        rows = scorer.measure(candidates, heldout, advance)
    if generate is not None:
        of = {each.number: each for each in candidates}
        kept = {each.number for each in without_repeats([of[row["number"]] for row in rows])}
        rows = [row for row in rows if row["number"] in kept]
    if out is not None:
        write_private(out, _rows_with_texts(rows, candidates))
    if as_json:
        print(json.dumps({"texts": len(candidates), "rows": rows}))
        return
    _print_rows(rows, len(candidates), out)


def _rows_with_texts(rows: list[dict[str, Any]], candidates: list[Candidate]) -> bytes:
    """Return the rows of scores, each with its candidate text and given prefix, as JSON lines (UTF-8 bytes)."""
    of = {each.number: each for each in candidates}
    lines = (
        {**row, "text": of[row["number"]].text, **({"given": g} if (g := of[row["number"]].given) is not None else {})}
        for row in rows
    )
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()


def _print_rows(rows: list[dict[str, Any]], num_texts: int, out: Path | None) -> None:
    """Print the first rows of the ranking as a table."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*(name.replace("_", " ") for name in names))
    for row in rows[:SHOWN]:
        table.add_row(*(_format_cell(row.get(name)) for name in names))
    console = Console()
    console.print(table)
    console.print(
        f"{num_texts:,} texts, {len(rows):,} of them ranked; number: the line of the file, or of the text written"
    )
    if out is not None:
        console.print(f"Texts: {out}", soft_wrap=True, markup=False)


def _format_cell(value: float | bool | None) -> str:
    """Return a value as the text of a table cell."""
    if value is None:
        return "–"
    if isinstance(value, bool):  # before numbers, as True equals 1
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else f"{value:.4g}"
