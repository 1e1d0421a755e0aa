"""The commands on a run: a whole job, or its stages one by one."""

from __future__ import annotations

import json
import os
import shlex
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import (
    AsJson,
    Detector,
    Out,
    Quiet,
    RunFolder,
    Set,
    Verify,
    is_job,
    job_from_source,
    job_of,
    models_of,
    new_progress,
    read_job,
)
from reticent.cli.show import (
    print_budget,
    print_counts,
    print_export,
    print_part,
    print_run,
    print_summary,
    print_update,
)
from reticent.core.artifact import JOB
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.sources.table import shown
from reticent.ext.dp.budget import read_budget
from reticent.ext.dp.charges import charge_lines, require_room
from reticent.job.checks import check_columns, check_settings, refuse_too_few, require_same_documents
from reticent.job.config import Job, load_job
from reticent.job.demo import run_demo
from reticent.job.export import copy_members_tokens as copied
from reticent.job.pipeline import execute, report_again
from reticent.job.reach import reach_lines, sides_of
from reticent.job.run import Run
from reticent.job.text_checks import check_text
from reticent.trainer.distributed import launched
from reticent.trainer.privacy import BUDGET_FILE
from reticent.trainer.recipes import RECIPES

# --------------------------------------------------------------------------------------------------------------- parts
#
# The option that makes a part of a run.


PartOption = Annotated[
    str | None,
    typer.Option(
        metavar="i/N",
        help="Make the i-th of N parts of the models and their scores, in the same run folder as the others; 0/N, "
        "which comes first, makes all that they share. The command without --part joins them and writes the "
        "report, which is that of one run.",
    ),
]


def print_plan(job: Job, quiet: bool, as_json: bool) -> None:
    """Print what the audit of a job can show with its number of individuals and what it costs, without running it.
    Errors that would stop the run at its start are raised."""
    run = Run(job, new_progress(quiet))
    check_settings(run.read_only_copy())  # no base model is downloaded
    sides = sides_of(run)
    lines = [*reach_lines(job, sides), *(charge_lines(run) if sides is not None else ())]
    if as_json:
        members, heldout = sides or (None, None)
        typer.echo(json.dumps({"members": members, "heldout": heldout, "plan": lines}))
    else:
        for line in lines:
            typer.echo(f"{line}.")
    if sides is not None:
        check_columns(run)
        refuse_too_few(job, sides)
        require_room(run)


def run_part(job: Job, name: str, quiet: bool, as_json: bool, *, reread: bool = False) -> None:
    """Run one of N parts of a job (``name``: i/N), which may run on different machines, and print how many models and
    scores it made."""
    from reticent.job.parts import Part, execute_part

    part, is_main = Part.parse(name), launched().is_main
    counts = execute_part(Run(job, new_progress(quiet or not is_main), reread=reread), part)
    if is_main:
        print_part(name, counts, as_json)


# -------------------------------------------------------------------------------------------------------------- verify
#
# Parts of the commands of a run that make nothing: tokens and trainings that are checked, and the list of recipes.


def verify_protection(job: Job, quiet: bool, as_json: bool) -> None:
    """Check each token's protection flags in a job's run against its documents, by other code than that which wrote
    them, and print the results."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # nothing is forked here
    found = check_text(Run(job, new_progress(quiet)))
    if as_json:
        typer.echo(json.dumps({name: check and check.to_dict() for name, check in found.items()}, indent=1))
        return
    for name, check in found.items():
        typer.echo(f"{name}: {check or 'not checked: its text was rewritten, and has other characters'}")


def list_all_recipes(wanted: bool) -> None:
    """Print the built-in recipes, and how to define one, and exit, if the option for it was given (``wanted`` is then
    True)."""
    if not wanted:
        return

    for name, recipe in RECIPES.items():
        typer.echo(f"{name:17} {recipe.about}")
    typer.echo(
        "\nYour own, in a job file, from any of these; what is not given stays as it is there:\n\n"
        '[recipes.careful]\nbase = "ppclm"\ncontext = "surrogate"       # or "tag", "keep"\n'
        'context_indirect = "surrogate"    # the same for indirect identifiers\n'
        'never_target = ["direct", "indirect"]\nfreeze_embeddings = true\n\n'
        "More fields: objective, text, goldfish_k, goldfish_h, mask_split, private, words."
    )
    raise typer.Exit


def verify_ledger(ledger: Path, run_folder: Path | None, quiet: bool, as_json: bool) -> None:
    """Compare a training's ledger (the count of its targets) with the tokens of its run, and print the result. The
    targets are drawn again, or looked up in ``run_folder`` if a guarded trainer of another library wrote the ledger.
    The exit status is 1 if they differ."""
    progress = new_progress(quiet)
    if run_folder is None:
        from reticent.job.training_tokens import find_run, verify_training

        folder, model, recipe = find_run(ledger)
        run = Run(job_of(read_job(folder), None), progress)
        with progress.task(f"verify {model} {recipe}", None, "epochs") as advance:
            verdict = verify_training(run, model, recipe, ledger, progress=advance)
    else:
        from reticent.ext.trainers.verify import verify_guarded_run

        run = Run(job_of(read_job(run_folder), None), progress)
        with progress.task(f"verify {ledger.name}", None, "rows") as advance:
            verdict, model, recipe = verify_guarded_run(run, ledger, progress=advance)
    if as_json:
        found = {
            "holds": verdict.holds,
            "mismatches": verdict.mismatches,
            "drawn": verdict.counts,
            "flags": verdict.flags,
        }
        typer.echo(json.dumps({"ledger": str(ledger), "model": model, "recipe": recipe, **found}, indent=1))
    elif verdict.holds and verdict.counts is None:
        typer.echo(
            f"The ledger holds: {model} {recipe} says it had no violation, on the tokens and with the protection of "
            "this run. Its targets are not drawn again: the samples of DP-SGD are random."
        )
    elif verdict.holds and verdict.counts is not None:
        counts = {name: f"{count:,}" for name, count in verdict.counts.items()}
        typer.echo(
            f"The ledger holds: {model} {recipe} was trained on {counts['targets']} of {counts['eligible']} eligible "
            f"tokens; {counts['protected']} were protected, {counts['violations']} of them a target."
        )
    else:
        typer.echo(f"The ledger does NOT hold ({model} {recipe}):")
        for mismatch in verdict.mismatches:
            typer.echo(f"  {mismatch}")
    if verdict.holds and not as_json:
        typer.echo(f"{verdict.flags[0].upper()}{verdict.flags[1:]}.")
    if not verdict.holds:
        raise typer.Exit(1)


# -------------------------------------------------------------------------------------------------------------- export
#
# The command that takes results back to the warehouse.


def export(
    run_folder: RunFolder,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Write Parquet to FOLDER/tokens-MODEL and FOLDER/spans, private to you: a file for each file of the "
            "documents, under its name. What is up to date is not written again.",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Or write tables of PostgreSQL, postgresql://HOST/DATABASE, in one transaction: all or none.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESULT=TABLE",
            help="With --into: tokens-MODEL or spans, and the SCHEMA.TABLE that is made for it; repeat.",
        ),
    ] = None,
    note_nlp: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="With --into: add the spans to a table note_nlp of OMOP. Its lexical_variant may not be null and is "
            "meant for the text of a span, which is the identifier itself: the category in brackets stands there, as "
            r"in \[NAME], and the snippet is null.",
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="With --into: replace tables that an earlier export wrote, and its rows of these notes in note_nlp. "
            "No other table is replaced.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Export results to the warehouse: the members' protected tokens with their flags, and all identifier spans.

    No row holds text, but ids, tokens and places of identifiers are as secret as the documents.
    """
    from reticent.ext.warehouse.export import export_files, export_tables

    if (out is None) == (into is None):
        raise PolicyError("export: give either --out FOLDER or --into ADDRESS")
    if into is None and (table or note_nlp or overwrite):
        raise PolicyError("--table, --note-nlp, --overwrite: belong to --into")
    run = Run(job_of(read_job(run_folder), None), new_progress(quiet))
    if out is not None:
        print_export(export_files(run, out), str(out), as_json)
        return
    named = [given.partition("=") for given in table or []]
    if any(not equals or not name for name, equals, _ in named) or len({name for name, _, _ in named}) < len(named):
        raise PolicyError("--table: expected RESULT=TABLE, and each result once")
    assert into is not None
    tables = {name: target for name, _, target in named}
    counts = export_tables(run, into, tables, note_nlp=note_nlp, overwrite=overwrite)
    print_export(counts, shown(into), as_json)


def copy_members_tokens(job: Job, folder: Path, quiet: bool, as_json: bool) -> None:
    """Copy the protected tokens of a run's members to a folder, and print the counts of each copy."""
    for place, counts in copied(Run(job, new_progress(quiet)), folder).items():
        if not as_json:
            print_counts(counts, place, as_json)


class Stage(Enum):
    """Stages of a job, in order."""

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
        int | None,
        typer.Option(min=2, metavar="<int>", help="Size of the generated hospital (default: 120; tiny: 60)."),
    ] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Every stage with one small model, in a minute; too small for its figures.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Generate a small hospital, protect it, train with and without protection, attack, and write the report."""
    run = run_demo(out, seed=seed, num_individuals=individuals, tiny=tiny, progress=new_progress(quiet))
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
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Run nothing: say how many individuals “within” of each risk needs and these documents have, what the "
            "training lowers, and what attacks with shadow models cost; refuse what cannot work with so few, and "
            "settings, files and missing libraries that the run would refuse.",
        ),
    ] = False,
    verify: Verify = False,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a job: documents in; models, evidence and a report out. What is up to date is not run again.

    Stopped by Ctrl-C, a signal or a crash, the same command goes on: a training from its last state, the audit with the
    next checkpoint. `reticent status` says how far it is.
    """
    values = read_job(job) if job.is_dir() else load_job(job).model_dump()
    changed = job_of(values, settings)
    if plan:
        if part is not None or until is not Stage.REPORT or verify:
            raise PolicyError("--plan: runs nothing; leave --part, --until and --verify out")
        print_plan(changed, quiet, as_json)
        return
    if part is not None:
        if until is not Stage.REPORT:
            raise PolicyError("--part: a part has its own end; leave --until out")
        run_part(changed, part, quiet, as_json, reread=verify)
        return
    execute_job(changed, until.value, quiet, as_json, reread=verify)


def index(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="File, folder or glob: Parquet, Arrow, CSV, JSONL, or another corpus.format."
        ),
    ],
    out: Out,
    detector: Detector = None,
    max_n: Annotated[
        int | None, typer.Option("-n", min=1, max=8, help="Longest n-gram that is counted, in words (default: 1).")
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Split the individuals, find direct identifiers, and count how many individuals use each word and n-gram.

    Columns of the documents: --set corpus.individual_id=COLUMN, corpus.doc_id, corpus.text, corpus.household_id,
    corpus.spans. With --set index.updatable=true `reticent update` can change the index.
    """
    if is_job(source):
        raise PolicyError(f"{source}: has its own settings; use `reticent run {shlex.quote(source)} --until index`")
    job = job_from_source(
        source,
        out,
        detector,
        marked=True,
        keep=("protect", "model", "train", "classify", "tag", "audit"),  # later commands keep the settings they chose
        sections={"index": {"max_n": max_n}},
        settings=settings,
    )
    require_same_documents(job)
    execute_job(job, "index", quiet, as_json)


#: Settings that an update may change: which rows are read, and who is among them.
CHANGED_BY_UPDATES = tuple(
    f"corpus.{name}" for name in ("version", "opt_out", "row_security", "readmitted", "on_unmatched", "time_zone")
)


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
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Add documents to an index, or take out individuals who withdrew, without counting the others again.

    Says how many n-grams that makes identifying, as a withdrawal does for those who are left, and how many no more.
    The result is that of a rebuild; protect and train go on from it. Spans of unchanged documents are kept, if RUN has
    some. Documents and FILE must stay where they are. The models and dossiers of RUN that the
    update touches are named. The old run folder still names who withdrew: delete it.

    Once: reticent index notes/ --out monday --set index.updatable=true

    Then: reticent update monday --add new/ --remove gone.txt --out tuesday
    """
    from reticent.job.update import affected_artifacts, update_run

    before = Run(job_of(read_job(run_folder), None))
    corpus = job_of(read_job(run_folder), settings, CHANGED_BY_UPDATES).corpus
    run = update_run(before, out, add or [], remove or [], new_progress(quiet), refresh=refresh, corpus=corpus)
    print_update(run, affected_artifacts(before, run), as_json)


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
    """Flag every token that must never be a prediction target, for each base model's tokenizer.

    The policy is that of the job: --set protect.k=5, protect.n, protect.policy. A sample of the documents is held to
    its text each time, all of them with --verify.

    Another machine trains on: reticent protect run --copy-members to-the-gpu
    """
    values = read_job(run_folder)
    if recipe and not model:
        raise PolicyError("--recipe: belongs to --model NAME=PATH; give both")
    if model:
        values["model"] = models_of(job_of(values, None), model, recipe or [])
    job = job_of(values, settings)
    execute_job(job, "protect", quiet, as_json and not verify)
    if copy_members is not None:
        copy_members_tokens(job, copy_members, quiet, as_json)
    if verify:
        verify_protection(job, quiet, as_json)


def train(
    run_folder: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A run folder that an earlier command made.")
    ] = None,
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
            "With RUN: a ledger of guard_trainer, whose targets are looked up in that run. Exit 1 if anything differs.",
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

    if run_folder is None and verify is None:
        raise PolicyError("train: give RUN, a run folder, or --verify LEDGER")
    if verify is not None:
        if settings or not resume:
            raise PolicyError("train --verify: goes by the settings of the finished training; give no others")
        verify_ledger(verify, run_folder, quiet, as_json)
        return
    assert run_folder is not None
    job = job_of(read_job(run_folder), settings)
    execute_job(job, "train", quiet, as_json, restart=not resume)


def audit(run_folder: RunFolder, settings: Set = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Attack every checkpoint of the run, and its base models, and write the report.

    Exit status 3 where a gate of the job (its tables "gate") failed.
    """
    execute_job(job_of(read_job(run_folder), settings), "report", quiet, as_json)


def report(
    run_folder: RunFolder,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write report.json and report.html again from a finished audit.

    Other gates and thresholds are judged by what the audit measured: --set 'gate=[{measure="membership_auc",
    at_most=0.6}]', --set verdict.emission=0.02. The report says that they were not fixed before the training.
    The page is in the first language of --set "dossier.languages=['fr', 'en']". No other setting has an effect here.
    """
    job = job_of(read_job(run_folder), settings, used=("gate", "verdict", "dossier.languages"))
    job_run = Run(job, new_progress(quiet))
    report_again(job_run)
    _print_end(job_run, as_json)


def execute_job(
    job: Job, until: str, quiet: bool, as_json: bool, *, restart: bool = False, reread: bool = False
) -> None:
    """Run a job up to a stage and print what was made; exit with status 3 if a model misses a limit that the job sets
    (a gate).
    """
    run = Run(job, new_progress(quiet or not launched().is_main), restart=restart, reread=reread)
    execute(run, until)
    if not launched().is_main:
        return
    if until == "report":
        _print_end(run, as_json)
    else:
        print_run(run, as_json)


def _print_end(run: Run, as_json: bool) -> None:
    """Print the summary of a run whose report is written; exit with status 3 if a model misses a limit that the job
    sets (a gate).
    """
    evidence = run.evidence
    print_summary(evidence, run.folder, as_json)
    if evidence.verdict and evidence.verdict.failed:
        raise typer.Exit(3)


# -------------------------------------------------------------------------------------------------------------- budget
#
# The command that shows what private trainings have spent together.


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
    """Show the privacy budget spent by private trainings: each run, and their total for each unit of privacy."""
    files = _budget_files(place)
    print_budget([each for file in files for each in read_budget(file)], files, as_json)


def _budget_files(place: Path) -> list[Path]:
    """Return the privacy-budget files of the run folder ``place``, its own and those that its job names; or ``place``
    itself if it is such a file.

    Raises
    ------
    ArtifactError
        Nothing is there. A path with a typing error must not read as a budget of which nothing is spent.
    """
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
