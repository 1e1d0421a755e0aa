"""The commands of a run: a whole job, or its stages one after the other."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reticent.cli.options import (
    AsJson,
    ColumnOptions,
    DetectOptions,
    MemoryLimit,
    Out,
    Quiet,
    RunFolder,
    Set,
    expanded,
    is_job,
    job_from_source,
    job_of,
    memory_setting,
    new_progress,
    read_job,
)
from reticent.cli.show import print_run, print_summary

if TYPE_CHECKING:
    from reticent.config import Job

__all__ = ["audit", "demo", "index", "protect", "report", "run", "train"]


class Stage(Enum):
    """Stages of a job in order."""

    DEDUP = "dedup"
    SPLIT = "split"
    DETECT = "detect"
    INDEX = "index"
    FOUNDATION = "foundation"
    PROTECT = "protect"
    TRAIN = "train"
    AUDIT = "audit"
    REPORT = "report"


def demo(
    out: Out = Path("demo-run"),
    seed: Annotated[
        int, typer.Option(min=0, metavar="<int>", help="Seed of the generated hospital and of everything after it.")
    ] = 0,
    individuals: Annotated[
        int | None, typer.Option(min=2, metavar="<int>", help="Size of the generated hospital (default: 120).")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Generate a small hospital, protect it, train with and without protection, attack, and write the report."""
    from reticent.demo import run_demo

    run = run_demo(out, seed=seed, num_individuals=individuals, progress=new_progress(quiet))
    print_summary(run)


def run(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file; see the README for one to copy.")],
    until: Annotated[
        Stage,
        typer.Option(metavar="STAGE", help=f"Stop after this stage: {', '.join(stage.value for stage in Stage)}."),
    ] = Stage.REPORT,
    memory_limit: MemoryLimit = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a job: documents in; models, evidence and a report out. What is up to date is not run again, and a training
    that was interrupted goes on from its last state.
    """
    from reticent.config import load_job

    changed = job_of(load_job(job).model_dump(), memory_setting(memory_limit) + (settings or []))
    _execute(changed, until.value, quiet, as_json)


@expanded
def index(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="File, folder or glob: Parquet, Arrow, CSV, JSONL, or see --format.")
    ],
    out: Out,
    columns: ColumnOptions,
    found: DetectOptions,
    max_n: Annotated[int, typer.Option(min=1, max=8, help="Longest n-gram that is counted, in words.")] = 1,
    memory_limit: MemoryLimit = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Split the individuals, find direct identifiers, and count how many individuals use each word and n-gram."""
    from reticent.errors import PolicyError

    if is_job(source):
        raise PolicyError(f"{source}: has its own settings; use `reticent run JOB.toml --until index`")
    job = job_from_source(
        source,
        out,
        columns,
        found,
        marked=True,
        keep=("protect", "model", "train", "audit"),  # what later commands chose stays theirs
        sections={"index": {"max_n": max_n}},
        settings=memory_setting(memory_limit) + (settings or []),
    )
    _execute(job, "index", quiet, as_json)


def protect(
    run_folder: RunFolder,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", help="A base model: a name for it, and its folder or hub name; repeat for several."
        ),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RECIPE",
            help="What these models will be trained with; repeat for several of one objective. mlm, clm: plain; "
            "mlma, clma: X for direct identifiers; dpp-, ipp-, ppmlm or -clm: direct, indirect, both never targets; "
            "dp-mlm, dp-clm: DP-SGD.",
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option(help="What fewer than k individuals use identifies them, 2 to 255 (at first 2).")
    ] = None,
    n: Annotated[
        int | None, typer.Option(help="Longest n-gram that can identify, at most --max-n of the index (at first 1).")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Protected words of a minimal identifying n-gram: all, the last, or the fewest that meet each "
            "(cover); paper: all words of every identifying n-gram, minimal or not (at first all)."
        ),
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Flag every token that must never be a target, for each base model's tokenizer."""
    from reticent.errors import PolicyError

    changes = [
        f"protect.{key}={json.dumps(value)}"
        for key, value in (("k", k), ("n", n), ("policy", policy))
        if value is not None
    ]
    values = read_job(run_folder)
    if recipe and not model:
        raise PolicyError("--recipe: belongs to --model NAME=PATH; give both")
    if model:
        values["model"] = _models(model, recipe or [])
    _execute(job_of(values, [*changes, *(settings or [])]), "protect", quiet, as_json)


def train(
    run_folder: RunFolder,
    epochs: Annotated[int | None, typer.Option(help="Passes over the members' documents (at first 8).")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak; falls linearly to 0 (at first 1e-4).")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume/--fresh", help="Go on with a training that was interrupted, or begin it anew."),
    ] = True,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune every model of the run with its recipes; checkpoints are plain transformers folders.

    A training that is stopped (Ctrl-C, SIGTERM) finishes its step and saves its state; the same command goes on with
    it. On several GPUs: torchrun --nproc-per-node 8 -m reticent train RUN; batch_size windows go to each.

    Recipes dp-mlm and dp-clm train by DP-SGD with the job's [train.dp]: --set train.dp.target_epsilon=8
    --set train.dp.unit=individual. What all such runs cost together: reticent budget RUN.
    """
    changes = [f"train.num_epochs={epochs}"] if epochs is not None else []
    changes += [f"train.learning_rate={learning_rate}"] if learning_rate is not None else []
    job = job_of(read_job(run_folder), [*changes, *(settings or [])])
    _execute(job, "train", quiet, as_json, fresh=not resume)


def audit(run_folder: RunFolder, settings: Set = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Attack every checkpoint of the run, and its base models, and write the report."""
    _execute(job_of(read_job(run_folder), settings), "report", quiet, as_json)


def report(run_folder: RunFolder, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Write report.json and report.html again from a finished audit."""
    from reticent.job import Run

    job_run = Run(job_of(read_job(run_folder), None), new_progress(quiet))
    job_run.report()
    print_summary(job_run, as_json)


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


def _execute(job: Job, until: str, quiet: bool, as_json: bool, *, fresh: bool = False) -> None:
    from reticent.job import Run
    from reticent.trainer.distributed import launched

    run = Run(job, new_progress(quiet or not launched().is_main), fresh=fresh)
    run.execute(until)
    if not launched().is_main:
        return
    if until == "report":
        print_summary(run, as_json)
    else:
        print_run(run, as_json)


def _models(models: list[str], recipes: list[str]) -> list[dict[str, Any]]:
    from reticent.errors import PolicyError
    from reticent.trainer.recipes import get_recipe

    sections = []
    for model in models:
        name, equals, base = model.partition("=")
        if not equals:
            raise PolicyError("--model: expected NAME=PATH")
        objectives = {get_recipe(recipe).objective for recipe in recipes}
        if len(objectives) != 1:
            raise PolicyError("--recipe: give at least one recipe, all of one objective (mlm or clm)")
        sections.append({"name": name, "base": base, "objective": objectives.pop(), "recipes": recipes})
    return sections
