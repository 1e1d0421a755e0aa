"""The option that makes a part of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reticent.cli.options import new_progress

if TYPE_CHECKING:
    from reticent.job.config import Job

__all__ = ["PartOption", "run_part"]

PartOption = Annotated[
    str | None,
    typer.Option(
        metavar="i/N",
        help="Make the i-th of N parts of the models and their scores, in the same run folder as the others; 0/N, "
        "which comes first, makes all that they share. The command without --part joins them and writes the "
        "report, which is that of one run.",
    ),
]


def run_part(job: Job, name: str, quiet: bool, as_json: bool, *, reread: bool = False) -> None:
    """Make a part of a job, and print how much it was."""
    from reticent.cli.show import print_part
    from reticent.job.parts import Part, execute_part
    from reticent.job.run import Run
    from reticent.trainer.distributed import launched

    part, is_main = Part.parse(name), launched().is_main
    counts = execute_part(Run(job, new_progress(quiet or not is_main), reread=reread), part)
    if is_main:
        print_part(name, counts, as_json)
