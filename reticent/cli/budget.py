"""The command that shows what private trainings have spent together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import AsJson, job_of, read_job

__all__ = ["budget"]


def budget(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run folder, whose job may name another budget file (train.dp.budget_file), or such a file.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show what private trainings have spent together: each run, and their total for each unit of privacy."""
    from reticent.cli.show import print_budget
    from reticent.trainer.budget import read_budget

    files = _files_of(place)
    print_budget([each for file in files for each in read_budget(file)], files, as_json)


def _files_of(place: Path) -> list[Path]:
    """Return the budget files of a run, those that its job names and its own; or the file itself.

    Raises
    ------
    ArtifactError
        Nothing is there. A path with a typing error must not read as a budget of which nothing is spent.
    """
    from reticent.core.errors import ArtifactError
    from reticent.core.manifest import JOB
    from reticent.trainer.budget import BUDGET_FILE

    if place.is_file():
        return [place]
    own = place / BUDGET_FILE
    if not (place / JOB).is_file():
        if own.is_file():
            return [own]
        raise ArtifactError(f"{place}: not a run folder (no {JOB}) and no budget file; give one of them")
    job = job_of(read_job(place), None)
    named = [Path(dp.budget_file) for model in job.model if (dp := job.training(model).dp) and dp.budget_file]
    return list(dict.fromkeys([*named, *([own] if own.is_file() or not named else [])]))
