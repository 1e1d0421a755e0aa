"""The command that takes results back to the warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reticent.cli.options import AsJson, Quiet, RunFolder, job_of, new_progress, read_job

if TYPE_CHECKING:
    from reticent.job.config import Job

__all__ = ["copy_members_tokens", "export"]


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
    """Take results back to the warehouse: the members' protected tokens with their flags, and all spans.

    No row holds text, but ids, tokens and places of identifiers are as secret as the documents.
    """
    from reticent.cli.show import print_export
    from reticent.core.errors import PolicyError
    from reticent.engine.sources.remote_config import shown
    from reticent.job.export import export_files, export_tables
    from reticent.job.run import Run

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
    """Copy the members' tokens of a run to a folder, and say how many there are."""
    from reticent.cli.show import print_counts
    from reticent.job.export import copy_members_tokens as copied
    from reticent.job.run import Run

    for place, counts in copied(Run(job, new_progress(quiet)), folder).items():
        if not as_json:
            print_counts(counts, place, as_json)
