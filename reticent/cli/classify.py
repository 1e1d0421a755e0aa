"""The command that classifies documents on top of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import (
    AsJson,
    Quiet,
    Set,
    is_job,
    job_from_source,
    new_progress,
)
from reticent.cli.show import print_classification
from reticent.core.errors import PolicyError
from reticent.ext.classify.command import classify_documents
from reticent.ext.classify.stage import read_results
from reticent.job.pipeline import execute
from reticent.job.run import Run

#: Settings that classifying documents of no run depends on.
OF_DOCUMENTS = (
    *("corpus", "classify", "seed", "split.heldout", "split.reference", "split.by"),
    *("train.window_length", "train.device", "train.bf16", "train.dp", "train.save_minutes"),
    *("audit.num_bootstrap", "audit.small_cell"),
)


def classify(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A run folder or job file (.toml), whose checkpoints, documents and split are taken; or documents "
            "(file, folder or glob), with --model.",
        ),
    ],
    model: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="For documents: a model folder to start from; repeat for several."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="For documents: folder for classification.json; private to you."),
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier's last layer and head on checkpoints, and print F1 on held-out individuals.

    Beside it: the commonest class, a bag of words, and the same from the base model.

    The column of classes is --set classify.label=COLUMN; names of classes are written into results and models: no
    column of text.
    """
    own = is_job(source)
    for option, value in (("--model", model), ("--out", out)):
        if own and value is not None:
            raise PolicyError(f"{option}: a run or a job has its own")
    job = job_from_source(source, None, settings=settings, used=None if own else OF_DOCUMENTS)
    progress = new_progress(quiet)
    if own:
        if not job.heads:
            job.classifying()  # raises: the column of classes is missing
        run = Run(job, progress)
        execute(run, "classify")
        print_classification([result for result in read_results(run) if result.task == "class"], as_json)
        return
    if not model:
        raise PolicyError("--model: missing; give a model folder to start from, or a run instead of documents")
    for name in ("from_epochs", "from_recipes"):
        if job.classify is not None and getattr(job.classify, name):
            raise PolicyError(f"classify.{name}: belongs to a run; --model names the checkpoint itself")
    print_classification([classify_documents(job, model, out, progress)], as_json)
