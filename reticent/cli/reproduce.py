"""The command ``reticent reproduce``: reproduce published results and compare them with ours, using records of the
source tree.
"""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import reticent
from reticent.core.errors import PolicyError

#: The folder of the project, where this is no installed package.
ROOT = Path(reticent.__file__).parents[1]


class ReproducedSize(Enum):
    """Sizes of the reproduction in `studies.reproduce`."""

    TOY = "toy"
    CPU = "cpu"
    BASE = "base"


def reproduce(
    size: Annotated[
        ReproducedSize,
        typer.Option(
            metavar="SIZE",
            help="toy: ten minutes on 2 cores, to see that all works; nothing is kept. cpu: about 12 hours of a core, "
            "small models. base: hours of one GPU, BERT-base and GPT-2.",
        ),
    ] = ReproducedSize.TOY,
    work: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="What is trained and attacked; what is there is not done again."),
    ] = None,
) -> None:
    """Train and attack the models behind the figures of four publications, and write one page: their numbers beside
    ours.

    It can be stopped at any time, and goes on. The page is docs/benchmarks/reproduction.md of the source tree, from
    which this must run: its records are no part of an installed package.
    """
    if not (ROOT / "studies" / "reproduce.py").exists():
        raise PolicyError("reproduce: needs the records of the source tree: clone the project and run make reproduce")
    command = [sys.executable, "-m", "studies.reproduce", "--size", size.value]
    command += [] if work is None else ["--work", str(work.resolve())]
    raise typer.Exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
