"""The commands on the dossier of a run: make it, verify it, and export a model with its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from reticent.audit.texts import Texts
from reticent.cli.help import CommandWithOthers, example_of, subcommands_app
from reticent.cli.options import AsJson, Quiet, RunFolder, Set, job_of, new_progress, read_job
from reticent.core.artifact import hash_file
from reticent.ext.dossier.rules import RULES, RULES_FILE, rules_steps
from reticent.ext.dossier.verify import Checked
from reticent.job.maker import build_step
from reticent.job.run import Run

_app = subcommands_app()


class DossierCommand(CommandWithOthers):
    """`reticent dossier`, with the commands below it."""

    app = _app


def dossier(
    run_folder: RunFolder,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also copy the folder there, to send it: new or empty.")
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write the dossier of a finished run to RUN/dossier: evidence for a decision, in a folder that can be sent.

    The run makes it at its end too. What the run cannot know is said in the job: --set dossier.institution=NAME,
    dossier.purpose, dossier.legal_basis, dossier.documents, dossier.licence; dossier.key=FILE signs the folder, and the
    first of dossier.languages is dossier.html. A dossier that is replaced is kept in
    RUN/replaced-dossiers. `reticent dossier verify FOLDER` checks one; `reticent dossier export RUN MODEL RECIPE`
    copies a model with its card.
    """
    from reticent.ext.dossier.job import make_dossier

    job = job_of(read_job(run_folder), settings, used=("dossier",))
    made = make_dossier(Run(job, new_progress(quiet)), out)
    if as_json:
        typer.echo(json.dumps(made))
    else:
        typer.echo(f"Dossier: {made['folder']}")
        typer.echo(f"Its digest: {made['digest']}")


@_app.command(epilog=example_of("dossier rules"))
def rules(
    source: Annotated[Path, typer.Argument(metavar="RUN|JOB.toml", help="A run folder, or a job file.")],
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write down what will be measured and judged, before the first model is scored: RUN/rules/rules.json.

    Thresholds, relevant risks, gates, attacks and the release context; seeds by a keyed digest. It is signed where the
    job has dossier.key. Every score names these rules, and rules that change make all scores anew.
    """
    job = job_of(read_job(source), [*(settings or []), "dossier.preregister=true"])
    run = Run(job, new_progress(quiet))
    run.prepare_folder()
    for step in rules_steps(run):
        build_step(run, step)
    run.keep_job()
    file = run.folder / RULES / RULES_FILE
    digest = hash_file(file)
    typer.echo(json.dumps({"file": str(file), "sha256": digest}) if as_json else f"Rules: {file}, SHA-256 {digest}")


@_app.command(epilog=example_of("dossier verify"))
def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A dossier.")],
    model: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="A model folder that must be one of those that were tested; repeat. Of a dossier that stands in its "
            "run folder all models there are checked.",
        ),
    ] = None,
    signers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Allowed signers, as ssh-keygen(1) has them: the signature must be of one of these.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a dossier: its files, its signature, and that model files are those that were tested.

    If it lies in its run folder, its outcomes are also compared with the run's audit, and those that change by the
    rules of this version are named.

    Exit status 1 where anything differs, 4 where all holds and nobody vouches for the key: without --signers anyone
    can have made and signed it.
    """
    from reticent.ext.dossier.job import check_dossier

    checked = check_dossier(folder, model or [], signers)
    if as_json:
        found = {"holds": checked.holds, "faults": checked.faults, "unchecked": checked.unchecked}
        found["changed"] = checked.changed
        typer.echo(json.dumps({**found, "key": checked.key, "signer": checked.signer}, indent=1))
    else:
        _print_checked(checked)
    if checked.faults or checked.signer is None:
        raise typer.Exit(1 if checked.faults else UNVOUCHED)


@_app.command(epilog=example_of("dossier export"))
def export(
    run_folder: RunFolder,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model section, such as gpt2.")],
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Recipe that it was trained with.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write the model and its card (README.md) to: new or empty.")
    ],
    epoch: Annotated[
        int | None,
        typer.Option(metavar="<int>", help="Epoch of the checkpoint (default: the last, which the verdict is about)."),
    ] = None,
    training: Annotated[
        int, typer.Option(metavar="<int>", help="Number of the training, where there are several seeds.")
    ] = 1,
    despite: Annotated[
        str,
        typer.Option(
            "--despite-verdict",
            metavar="REASON",
            help='Export a model whose verdict is not "within", or whose base was pre-trained on people\'s documents '
            "without protection: the card has the reason.",
        ),
    ] = "",
    push_to_hub: Annotated[
        str,
        typer.Option(
            metavar="REPO",
            help="Then upload it to this repository of the hub, which is private where it is new; needs "
            "HF_HUB_OFFLINE=0.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Copy a model that may leave, with a card: base, licence, documents, figures, verdict, digest of the dossier.

    It reads RUN/dossier. Exit status 3, and no copy, where the verdict on the model is not "within" and no
    --despite-verdict is given. A copy is no permission: whether the model may leave is for people to decide.
    """
    from reticent.ext.dossier.export import export_with_card

    run = Run(job_of(read_job(run_folder), None))
    found = export_with_card(
        run, model, recipe, out, epoch=epoch, training=training, despite=despite, push_to_hub=push_to_hub
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{out}: {recipe} of {model}, verdict {found['verdict']}, with its card README.md")
    typer.echo(f"Left behind: {', '.join(found['left_behind']) or 'nothing'}")
    if push_to_hub:
        typer.echo(f"Uploaded to {push_to_hub}")


#: Exit status of a dossier whose signer is not known to be one.
UNVOUCHED = 4


def _print_checked(checked: Checked) -> None:
    """Print which parts of a dossier are unchanged, were not checked, or have changed, and whether the dossier as a
    whole is valid."""
    t = Texts(checked.language)
    signs = {"holds": checked.holds, "NOT checked": checked.unchecked, "CHANGED since": checked.changed}
    for sign, lines in (signs | {"FAULT": checked.faults}).items():
        for line in lines:
            typer.echo(t("common.name_what", name=t.evidence(sign), what=t.evidence(line)))
    held = "The dossier holds." if checked.signer else "The dossier holds, and nobody vouches for who made it."
    typer.echo(t.evidence("The dossier does NOT hold." if checked.faults else held))
