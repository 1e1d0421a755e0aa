"""The command that classifies documents on top of checkpoints."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import (
    AsJson,
    ColumnOptions,
    Quiet,
    Set,
    expanded,
    is_job,
    job_from_source,
    new_progress,
    said,
)
from reticent.core.errors import PolicyError

__all__ = ["classify"]


#: Settings that classifying documents of no run depends on.
OF_DOCUMENTS = (
    *("corpus", "classify", "seed", "split.heldout", "split.reference", "split.by"),
    *("train.window_length", "train.device", "train.bf16", "audit.num_bootstrap", "audit.small_cell"),
)


class WindowsRead(Enum):
    """Choices for a document longer than a window."""

    ALL = "all"
    FIRST = "first"


@expanded
def classify(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A run folder or job file (.toml), whose checkpoints, documents and split are taken; or documents "
            "(file, folder or glob), with --model.",
        ),
    ],
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the class; a run or a job may name it. Documents without one are left out. Names of "
            "classes are written into results and models: no column of text.",
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="For documents: a model folder to start from; repeat for several."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="For documents: folder for classification.json; private to you."),
    ] = None,
    from_epoch: Annotated[
        list[int] | None,
        typer.Option(
            metavar="EPOCH",
            help="For a run: checkpoints to start from; repeat for several (default: 8 and 64 if kept, else the last).",
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the members' labelled documents (default: 4).")
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Peak, after a tenth of the steps in which it rises from 0; then falls to 0 (default: 2e-05)."
        ),
    ] = None,
    windows: Annotated[
        WindowsRead | None,
        typer.Option(
            metavar="WHICH",
            help="Of a document longer than a window: all of its windows, their answers averaged, or the first only "
            "(default: all).",
        ),
    ] = None,
    min_individuals: Annotated[
        int | None,
        typer.Option(
            help="Leave out classes that fewer people have among members or held out; otherwise a class that no one "
            "has on a side is an error."
        ),
    ] = None,
    heldout: Annotated[
        float | None, typer.Option(help="For documents: share of the individuals that are held out (default: 0.4).")
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Keep the classifiers too, beside the result: plain transformers folders.")
    ] = False,
    *,
    columns: ColumnOptions,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier's last layer and head on checkpoints, and print F1 on held-out individuals.

    Beside it: the commonest class, a bag of words, and the same from the base model.
    """
    from reticent.cli.show import print_classification
    from reticent.ext.classify.command import classify_documents
    from reticent.ext.classify.stage import read_results
    from reticent.job.pipeline import execute
    from reticent.job.run import Run

    own = is_job(source)
    for option, value in (("--model", model), ("--out", out), ("--heldout", heldout)):
        if own and value is not None:
            raise PolicyError(f"{option}: a run or a job has its own")
    given = {
        "label": label,
        "from_epochs": from_epoch,
        "num_epochs": epochs,
        "learning_rate": learning_rate,
        "windows": windows.value if windows else None,
        "min_individuals": min_individuals,
        "save_model": save or None,
    }
    job = job_from_source(
        source,
        None,
        columns,
        sections={
            "classify": said(given),
            "split": {} if heldout is None else {"heldout": heldout},
        },
        settings=settings,
        used=None if own else OF_DOCUMENTS,
    )
    progress = new_progress(quiet)
    if own:
        run = Run(job, progress)
        execute(run, "classify")
        print_classification(read_results(run), as_json)
        return
    if not model:
        raise PolicyError("--model: missing; give a model folder to start from, or a run instead of documents")
    if from_epoch:
        raise PolicyError("--from-epoch: belongs to a run; --model names the checkpoint itself")
    print_classification([classify_documents(job, model, out, progress)], as_json)
