"""The commands below `reticent detect`: documents for annotators, and what their corrections say.

``reticent detect SOURCE`` is a command of its own, so a first word that names one of these goes to it; a file of that
name is ``./sample``.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from reticent.cli.options import AsJson, Quiet, RunFolder, Seed, job_of, new_progress, read_job

if TYPE_CHECKING:
    from reticent.audit.evidence.sampled import SampledRecall
    from reticent.job.config import Job

__all__ = ["DetectCommand"]

#: Folder of a run for annotators, where the user names no other.
FOLDER = "annotation"

_app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode="rich")


class DetectCommand(TyperCommand):
    """A command with commands below it."""

    @cached_property
    def commands(self) -> dict[str, Any]:
        group: Any = typer.main.get_command(_app)
        return dict(group.commands)

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args and args[0] in self.commands:
            return self.commands[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


@_app.command()
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


@_app.command()
def evaluate(
    run: RunFolder,
    annotations: Annotated[
        list[Path],
        typer.Argument(
            metavar="ANNOTATION",
            help="A file that the page saved, or the folder of BRAT; of two annotators, both.",
        ),
    ],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Say how much of what annotators marked detection finds, and how many identifiers it leaves in all documents.

    The result is kept in the run, and the report shows it.
    """
    from reticent.job.sampling import evaluate_sample

    found = evaluate_sample(_job(run), annotations, new_progress(quiet))
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
