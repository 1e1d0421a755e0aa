"""The command that shows what private trainings have spent together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import AsJson

__all__ = ["budget"]


def budget(
    place: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder, or the budget file of its job (train.dp.budget_file).")
    ],
    as_json: AsJson = False,
) -> None:
    """Show what private trainings have spent together: each run, and their total for each unit of privacy."""
    from reticent.cli.show import print_budget
    from reticent.trainer.budget import BUDGET_FILE, read_budget

    file = place / BUDGET_FILE if place.is_dir() else place
    print_budget(read_budget(file), file, as_json)
