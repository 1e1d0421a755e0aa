"""Results of a run, back to the warehouse: protected tokens and spans as Parquet, or as tables of a database; and the
members' tokens for another machine that trains.

They belong to a run whose tokens are up to date. Parquet is an artefact: the same results again are not written again.
The tables of a database are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.core.artifact import is_up_to_date, read_manifest, write_artifact
from reticent.core.errors import PolicyError
from reticent.engine.sinks.tables import ResultTable, Rows, span_table, token_table
from reticent.job.variants import REWRITTEN

if TYPE_CHECKING:
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

__all__ = ["copy_members_tokens", "export_files", "export_tables"]

SPANS = "spans"


def _tokens_of(run: Run) -> dict[str, str]:
    """Name of each table of tokens, and its artefact: those of the members, whom models learn from."""
    return {f"tokens-{model.name}": f"tokens/{model.name}/train" for model in run.job.model}


def _open(run: Run, name: str) -> ResultTable:
    from reticent.engine.store import open_tokens

    if name == SPANS:
        return span_table(name, run.folder / "spans", run.corpus)
    return token_table(name, open_tokens(run.folder / _tokens_of(run)[name]), run.corpus)


def _made(run: Run) -> dict[str, str]:
    """Make what is to be exported, where it is not up to date; returns its names, and its artefacts."""
    tokens = _tokens_of(run)
    run.execute("protect" if tokens else "detect")
    for model in run.job.model:
        _warn_of_other_tokens(run, model, ["train"])
    return {**tokens, SPANS: "spans"}


def _recipes_by_tokens(run: Run, model: ModelSection) -> dict[str, list[str]]:
    """Name of the tokens of a model, and the recipes that are trained on nothing else than these."""
    found: dict[str, list[str]] = {"train": []}
    for name in model.recipes:
        if run.job.recipe(name).context != "surrogate":  # which trains on others in each epoch
            found.setdefault(run.job.tokens(name), []).append(name)
    return found


def _warn_of_other_tokens(run: Run, model: ModelSection, leaving: Sequence[str]) -> None:
    """Name the recipes that are trained on none of the tokens that leave, which have another protection or text."""
    taken = _recipes_by_tokens(run, model)
    others = set(model.recipes).difference(*(taken[name] for name in leaving))
    if others:
        own, shown = run.job.protect, ", ".join(name for name in model.recipes if name in others)
        run.progress.warn(
            f"{model.name}: only tokens of the original text leave"
            + (
                f" with the job's protection (k = {own.k}, n = {own.n}, policy {own.policy})"
                if len(leaving) == 1
                else ""
            )
            + f"; {shown}: trained on others; train them in the run"
        )


def copy_members_tokens(run: Run, folder: Path) -> dict[Path, dict[str, int]]:
    """Write the members' tokens of each model, with ids of their own; returns the counts of each folder.

    The tokens with the job's protection are the artefact ``folder/MODEL``, those of recipes with another k, n or policy
    ``folder/MODEL-kK-nN-POLICY``. Tokens of rewritten text are not copied.

    Raises
    ------
    ArtifactError
        A place holds something else, or cannot be written.
    PolicyError
        Another model has the name of such a folder.
    """
    from reticent.engine.token_copy import copy_tokens

    places: dict[Path, str] = {}
    for model in run.job.model:
        names = [name for name in _recipes_by_tokens(run, model) if not name.startswith(tuple(REWRITTEN))]
        _warn_of_other_tokens(run, model, names)
        for name in names:
            place = folder / f"{model.name}{name.removeprefix('train')}"
            if place in places:
                raise PolicyError(
                    f"{place}: tokens of two models or recipes would stand there; rename one of the models"
                )
            places[place] = f"tokens/{model.name}/{name}"
    counts = {}
    for place, tokens in places.items():
        inputs = {"view": run.fingerprints.of(tokens)}
        with write_artifact(place, kind="tokens", config={}, inputs=inputs) as writer:
            writer.counts.update(copy_tokens(run.folder / tokens, writer.path))
        counts[place] = dict(writer.counts)
    return counts


def export_files(run: Run, out: Path) -> dict[str, int]:
    """Write every table into ``out/TABLE``, a file a file of the documents; returns the number of rows of each.

    Raises
    ------
    ArtifactError
        ``out`` holds something else, or cannot be written; what was there stays then.
    CorpusError
        A document changes meanwhile.
    """
    from reticent.engine.sinks.partitioned import write_partitioned

    made = _made(run)
    inputs = {name: run.fingerprints.of(artefact) for name, artefact in made.items()} | run.corpus_input()
    about: dict[str, Any] = {"kind": "export", "config": {"tables": sorted(made)}, "inputs": inputs}
    if is_up_to_date(out, **about):
        counts: dict[str, int] = read_manifest(out).counts
        run.progress.say(f"{out}: up to date")
        return counts
    with write_artifact(out, **about) as writer:
        for name in made:
            (writer.path / name).mkdir()
            writer.counts[name] = write_partitioned(_open(run, name), writer.path / name, run.corpus)
        run.require_unchanged()
    return writer.counts


def export_tables(
    run: Run, address: str, tables: Mapping[str, str], *, note_nlp: str | None = None, overwrite: bool = False
) -> dict[str, int]:
    """Write results into tables of PostgreSQL, all or none; returns the number of rows of each.

    Parameters
    ----------
    tables : "spans", or "tokens-MODEL" ("tokens" where the run has one model) -> SCHEMA.TABLE
    note_nlp : a table of OMOP that spans are added to, with categories for their text
    overwrite : replace what an earlier export wrote

    Raises
    ------
    PolicyError, CorpusError
        As :func:`reticent.engine.sinks.postgres.write_tables`; or the run has no such result, or a document changes
        meanwhile.
    """
    from reticent.engine.sinks.postgres import write_tables

    known = [*_tokens_of(run), SPANS]
    chosen = {known[0] if name == "tokens" and len(known) == 2 else name: table for name, table in tables.items()}
    for name in chosen:
        if name not in known:
            raise PolicyError(f"--table {name}: the run has no such result; it has {', '.join(known)}")
    if not chosen and note_nlp is None:
        raise PolicyError("--into: say which results go where: --table RESULT=SCHEMA.TABLE, or --note-nlp TABLE")
    _made(run)
    omop = None if note_nlp is None else (_documents(run), _open(run, SPANS), note_nlp)
    results = [(_open(run, name), table) for name, table in chosen.items()]
    return write_tables(address, results, note_nlp=omop, overwrite=overwrite, check=run.require_unchanged)


def _documents(run: Run) -> ResultTable:
    """The ids of the documents."""
    ids = run.corpus.scan().select(["doc_id"])

    def rows() -> Rows:
        first = 0
        for batch in ids.to_batches():
            yield np.arange(first, first + batch.num_rows), batch
            first += batch.num_rows

    return ResultTable("documents", pa.schema([pa.field("doc_id", pa.string())]), rows)
