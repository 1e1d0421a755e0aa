"""The commands below `reticent detect`: documents for annotators, and what their corrections say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reticent.cli.below import CommandWithOthers, below
from reticent.cli.examples import example_of
from reticent.cli.options import AsJson, Quiet, RunFolder, Seed, job_of, new_progress, read_job

if TYPE_CHECKING:
    from reticent.audit.evidence.sampled import SampledRecall
    from reticent.job.config import Job

__all__ = ["DetectCommand"]

#: Folder of a run for annotators, where the user names no other.
FOLDER = "annotation"

_app = below()


class DetectCommand(CommandWithOthers):
    """`reticent detect`, with the commands below it."""

    app = _app


@_app.command(epilog=example_of("detect sample"))
def sample(
    run: RunFolder,
    documents: Annotated[int, typer.Option(min=2, metavar="<int>", help="Documents to draw.")] = 100,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for annotators, with the text of the documents; private to you (default: RUN/annotation).",
        ),
    ] = None,
    disagreement: Annotated[
        bool, typer.Option("--disagreement", help="Draw more of the documents in which detectors disagree.")
    ] = False,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Draw documents of a run for annotators: a page that works without a network, and BRAT.

    What was found is marked in them. Correct it in annotate.html, save the file, and give it to
    [bold]reticent detect evaluate[/bold].
    """
    from reticent.job.sampling import sample_documents

    out = run / FOLDER if out is None else out
    counts = sample_documents(
        _job(run), out, documents, seed=seed, by_disagreement=disagreement, progress=new_progress(quiet)
    )
    if as_json:
        print(json.dumps({"folder": str(out), **counts}))
    else:
        print(f"{out}: {counts['documents']:,} of {counts['of']:,} documents, of {counts['strata']} strata")


@_app.command(epilog=example_of("detect evaluate"))
def evaluate(
    run: RunFolder,
    annotations: Annotated[
        list[Path],
        typer.Argument(
            metavar="ANNOTATION",
            help="A file that the page saved, or the folder of BRAT; of two annotators, both.",
        ),
    ],
    all_reviewed: Annotated[
        bool,
        typer.Option(
            "--all-reviewed",
            help="Of BRAT: every document was reviewed, also those in which no mark was changed. They are refused "
            "otherwise. The result says so.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Say how much of what annotators marked detection finds, and how many identifiers it leaves in all documents.

    The result is kept in the run, and the report shows it.
    """
    from reticent.job.sampling import evaluate_sample

    found = evaluate_sample(_job(run), annotations, new_progress(quiet), all_reviewed=all_reviewed)
    _print(found, as_json)


def _job(run: Path) -> Job:
    return job_of(read_job(run), None)


def _print(found: SampledRecall, as_json: bool) -> None:
    if as_json:
        from reticent.audit.evidence.json_form import to_json

        print(json.dumps(to_json(found), indent=1))
        return
    from rich.console import Console

    from reticent.cli.detection_table import sampled_lines, sampled_table

    console = Console()
    console.print(sampled_table(found))
    for line in sampled_lines(found):
        console.print(line, soft_wrap=True)
