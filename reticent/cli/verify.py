"""Parts of the commands of a run that make nothing: tokens and trainings that are checked, and the list of recipes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reticent.cli.options import job_of, new_progress, read_job

if TYPE_CHECKING:
    from reticent.job.config import Job

__all__ = ["list_all_recipes", "verify_ledger", "verify_text"]


def verify_text(job: Job, quiet: bool, as_json: bool) -> None:
    import os

    from reticent.job.run import Run
    from reticent.job.text_checks import check_text

    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # nothing is forked here
    found = check_text(Run(job, new_progress(quiet)))
    if as_json:
        typer.echo(json.dumps({name: check and check.to_dict() for name, check in found.items()}, indent=1))
        return
    for name, check in found.items():
        typer.echo(f"{name}: {check or 'not checked: its text was rewritten, and has other characters'}")


def list_all_recipes(wanted: bool) -> None:
    if not wanted:
        return
    from reticent.trainer.recipes import RECIPES

    for name, recipe in RECIPES.items():
        typer.echo(f"{name:17} {recipe.about}")
    typer.echo(
        "\nYour own, in a job file, from any of these; what is not given stays as it is there:\n\n"
        '[recipes.careful]\nbase = "ppclm"\ncontext = "surrogate"       # or "tag", "keep"\n'
        'context_indirect = "surrogate"    # the same for indirect identifiers\n'
        'never_target = ["direct", "indirect"]\nfreeze_embeddings = true\n\n'
        "More fields: objective, text, goldfish_k, goldfish_h, mask_split, private."
    )
    raise typer.Exit


def verify_ledger(ledger: Path, quiet: bool, as_json: bool) -> None:
    from reticent.job.run import Run
    from reticent.job.training_tokens import find_run, verify_training

    folder, model, recipe = find_run(ledger)
    progress = new_progress(quiet)
    run = Run(job_of(read_job(folder), None), progress)
    with progress.task(f"verify {model} {recipe}", None, "epochs") as advance:
        verdict = verify_training(run, model, recipe, ledger, progress=advance)
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
