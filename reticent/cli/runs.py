"""The commands of a run: a whole job, or its stages one after the other."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reticent.cli.export import copy_members_tokens
from reticent.cli.options import (
    AsJson,
    ColumnOptions,
    DetectOptions,
    MemoryLimit,
    Out,
    Quiet,
    RunFolder,
    Set,
    Verify,
    expanded,
    is_job,
    job_from_source,
    job_of,
    memory_setting,
    models_of,
    new_progress,
    read_job,
    said,
)
from reticent.cli.parts import PartOption, run_part
from reticent.cli.show import print_run, print_summary
from reticent.cli.verify import list_all_recipes, verify_ledger, verify_text

if TYPE_CHECKING:
    from reticent.job.config import Job
    from reticent.job.run import Run

__all__ = ["audit", "demo", "index", "protect", "report", "run", "train", "update"]


class Language(Enum):
    """Languages of the first screen of a report."""

    ENGLISH = "en"
    FRENCH = "fr"


class Stage(Enum):
    """Stages of a job in order."""

    CORPUS = "corpus"
    DEDUP = "dedup"
    SPLIT = "split"
    DETECT = "detect"
    INDEX = "index"
    FOUNDATION = "foundation"
    PROTECT = "protect"
    TRAIN = "train"
    CLASSIFY = "classify"
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
    from reticent.job.demo import run_demo

    run = run_demo(out, seed=seed, num_individuals=individuals, progress=new_progress(quiet))
    print_summary(run.evidence, run.folder)


def run(
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB.toml",
            help="The job file, which `reticent new-job` prints, or a run folder.",
        ),
    ],
    until: Annotated[
        Stage,
        typer.Option(metavar="STAGE", help=f"Stop after this stage: {', '.join(stage.value for stage in Stage)}."),
    ] = Stage.REPORT,
    part: PartOption = None,
    verify: Verify = False,
    memory_limit: MemoryLimit = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a job: documents in; models, evidence and a report out. What is up to date is not run again.

    Stopped by Ctrl-C, a signal or a crash, the same command goes on: a training from its last state, the audit with the
    next checkpoint. `reticent status` says how far it is.
    """
    from reticent.core.errors import PolicyError
    from reticent.job.config import load_job

    values = read_job(job) if job.is_dir() else load_job(job).model_dump()
    changed = job_of(values, memory_setting(memory_limit) + (settings or []))
    if part is not None:
        if until is not Stage.REPORT:
            raise PolicyError("--part: a part has its own end; leave --until out")
        run_part(changed, part, quiet, as_json, reread=verify)
        return
    _execute(changed, until.value, quiet, as_json, reread=verify)


@expanded
def index(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="File, folder or glob: Parquet, Arrow, CSV, JSONL, or see --format.")
    ],
    out: Out,
    columns: ColumnOptions,
    found: DetectOptions,
    max_n: Annotated[
        int | None, typer.Option(min=1, max=8, help="Longest n-gram that is counted, in words (default: 1).")
    ] = None,
    updatable: Annotated[
        bool,
        typer.Option(
            "--updatable",
            help="Keep what `reticent update` needs: every n-gram, also what one individual alone uses. Larger where "
            "--max-n is more than 1; the protection is the same.",
        ),
    ] = False,
    memory_limit: MemoryLimit = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Split the individuals, find direct identifiers, and count how many individuals use each word and n-gram."""
    from reticent.core.errors import PolicyError
    from reticent.job.checks import require_same_documents

    if is_job(source):
        raise PolicyError(f"{source}: has its own settings; use `reticent run JOB.toml --until index`")
    job = job_from_source(
        source,
        out,
        columns,
        found,
        marked=True,
        keep=("protect", "model", "train", "classify", "audit"),  # later commands keep the settings they chose
        sections={"index": {**said({"max_n": max_n}), "updatable": updatable}},
        settings=memory_setting(memory_limit) + (settings or []),
    )
    require_same_documents(job)
    _execute(job, "index", quiet, as_json)


def update(
    run_folder: RunFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder of the result, private; RUN stays as it is.")],
    add: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="New documents, of new or known individuals: file, folder or glob, read as those of RUN; repeat.",
        ),
    ] = None,
    remove: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Who has withdrawn: text, the id of one individual a line; repeat."),
    ] = None,
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh", help="Read the documents of a database, an object store or a lake again, as they are now."
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Add documents to an index, or take out individuals who withdrew, without counting the others again.

    Says how many n-grams that makes identifying, as a withdrawal does for those who are left, and how many no more.
    The result is that of a rebuild; protect and train go on from it. Spans of unchanged documents are kept, if RUN has
    some. Documents and FILE must stay where they are. The models and dossiers of RUN that the
    update touches are named. The old run folder still names who withdrew: delete it.

    Once: reticent index notes/ --out monday --updatable

    Then: reticent update monday --add new/ --remove gone.txt --out tuesday
    """
    from reticent.cli.show import print_update
    from reticent.job.run import Run
    from reticent.job.update import affected_artifacts, update_run

    before = Run(job_of(read_job(run_folder), None))
    run = update_run(before, out, add or [], remove or [], new_progress(quiet), refresh=refresh)
    print_update(run, affected_artifacts(before, remove or []), as_json)


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
            "dp-mlm, dp-clm: DP-SGD; goldfish: clm that drops one token in four by a hash; or one of the job's own "
            "\\[recipes]. See `reticent train --list-recipes`.",
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option(help="What fewer than k individuals use identifies them, 2 to 255 (default: 2).")
    ] = None,
    n: Annotated[
        int | None, typer.Option(help="Longest n-gram that can identify, at most --max-n of the index (default: 1).")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Protected words of a minimal identifying n-gram: all, the last, or the fewest that meet each "
            "(cover); paper: all words of every identifying n-gram, minimal or not (default: all)."
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Then hold every token to its text: what is protected is worked out again from the documents, their "
            "spans and the policy, by other code, and compared character by character. Minutes for 50,000 documents. "
            "Exit 1 if a token of an identifier could be a target.",
        ),
    ] = False,
    copy_members: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Then copy the members' tokens with their ids to FOLDER/MODEL, for a machine that trains and must not "
            "see the documents of others.",
        ),
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Flag every token that must never be a target, for each base model's tokenizer.

    A sample of the documents is held to its text each time, all of them with --verify.

    Another machine trains on: reticent protect run --copy-members to-the-gpu
    """
    from reticent.core.errors import PolicyError

    changes = [
        f"protect.{key}={json.dumps(value)}"
        for key, value in (("k", k), ("n", n), ("policy", policy))
        if value is not None
    ]
    values = read_job(run_folder)
    if recipe and not model:
        raise PolicyError("--recipe: belongs to --model NAME=PATH; give both")
    if model:
        values["model"] = models_of(job_of(values, None), model, recipe or [])
    job = job_of(values, [*changes, *(settings or [])])
    _execute(job, "protect", quiet, as_json and not verify)
    if copy_members is not None:
        copy_members_tokens(job, copy_members, quiet, as_json)
    if verify:
        verify_text(job, quiet, as_json)


def train(
    run_folder: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A run folder that an earlier command made.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the members' documents (default: 8).")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak; falls linearly to 0 (default: 0.0001).")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume/--restart", help="Go on with a training that was interrupted, or begin it anew."),
    ] = True,
    verify: Annotated[
        Path | None,
        typer.Option(
            metavar="LEDGER",
            help="Train nothing: draw all targets of a finished training again from its tokens and compare with its "
            "ledger, ledger.json in the folder of its model, and say how far its flags were checked against the text. "
            "Exit 1 if anything differs.",
        ),
    ] = None,
    list_recipes: Annotated[
        bool, typer.Option("--list-recipes", is_eager=True, callback=list_all_recipes, help="Say what each recipe is.")
    ] = False,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune every model of the run with its recipes; checkpoints are plain transformers folders.

    A training that is stopped (Ctrl-C, SIGTERM) finishes its step and saves its state; the same command goes on with
    it. On several GPUs: torchrun --nproc-per-node 8 -m reticent train RUN; batch_size windows go to each.

    Recipes dp-mlm and dp-clm train by DP-SGD with the job's \\[train.dp]: --set train.dp.target_epsilon=8
    --set train.dp.unit=individual. What all such runs cost together: reticent budget RUN.
    """
    from reticent.core.errors import PolicyError

    if (run_folder is None) == (verify is None):
        raise PolicyError("train: give either RUN, a run folder, or --verify LEDGER")
    if verify is not None:
        if settings or epochs is not None or learning_rate is not None or not resume:
            raise PolicyError("train --verify: goes by the settings of the finished training; give no others")
        verify_ledger(verify, quiet, as_json)
        return
    assert run_folder is not None
    changes = [f"train.num_epochs={epochs}"] if epochs is not None else []
    changes += [f"train.learning_rate={learning_rate}"] if learning_rate is not None else []
    job = job_of(read_job(run_folder), [*changes, *(settings or [])])
    _execute(job, "train", quiet, as_json, restart=not resume)


def audit(run_folder: RunFolder, settings: Set = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Attack every checkpoint of the run, and its base models, and write the report.

    Exit status 3 where a gate of the job (its tables "gate") failed.
    """
    _execute(job_of(read_job(run_folder), settings), "report", quiet, as_json)


def report(
    run_folder: RunFolder,
    language: Annotated[
        Language | None,
        typer.Option(
            metavar="LANGUAGE",
            help="en or fr: language of report.html. "
            "This language then comes first in the dossier too. Default: the first of dossier.languages.",
        ),
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write report.json and report.html again from a finished audit.

    Other gates and thresholds are judged by what the audit measured: --set 'gate=[{measure="membership_auc",
    at_most=0.6}]', --set verdict.emission=0.02. The report says that they were not fixed before the training. No other
    setting has an effect here.
    """
    from reticent.job.pipeline import report_again
    from reticent.job.run import Run

    job = job_of(read_job(run_folder), settings, used=("gate", "verdict", "dossier.languages"))
    if language is not None:
        others = [other for other in job.dossier.languages if other != language.value]
        job = job.changed(dossier=job.dossier.model_copy(update={"languages": (language.value, *others)}))
    job_run = Run(job, new_progress(quiet))
    report_again(job_run)
    _end(job_run, as_json)


def _execute(job: Job, until: str, quiet: bool, as_json: bool, *, restart: bool = False, reread: bool = False) -> None:
    from reticent.job.run import Run
    from reticent.trainer.distributed import launched

    run = Run(job, new_progress(quiet or not launched().is_main), restart=restart, reread=reread)
    run.execute(until)
    if not launched().is_main:
        return
    if until == "report":
        _end(run, as_json)
    else:
        print_run(run, as_json)


def _end(run: Run, as_json: bool) -> None:
    """Print the summary of a run whose report is written; exit with 3 where a gate failed."""
    evidence = run.evidence
    print_summary(evidence, run.folder, as_json)
    if evidence.verdict and evidence.verdict.failed:
        raise typer.Exit(3)
