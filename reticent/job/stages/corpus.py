"""From documents that are no local files to the artefact ``corpus``: read once, in one snapshot, for all stages.

A run keeps its snapshot: the artefact is made again where the job asks for other rows or columns, and not because the
database went on. An interrupted reading leaves nothing and starts again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from reticent.core.artifact import JOB, delete_artifact, is_up_to_date, read_manifest, write_artifact
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.protocol import RemoteSource, Source
from reticent.engine.sources.staged import Digesting, Earlier, Refreshed, open_remote, stage, staged_files
from reticent.engine.withdrawn import LeftOut, Withdrawals, report_lists
from reticent.job.artefact import Step
from reticent.job.config import load_kept_job
from reticent.job.run import Run
from reticent.job.staged import NAME, corpus_artefact, more_columns, staged_job

#: What a run has opened of its documents.
OPENED = ("given_corpus", "whole_corpus", "deduplicated", "parted", "documents", "corpus")


def corpus_steps(run: Run) -> Iterator[Step]:
    """Yield the step that reads the documents of a remote source into the run folder (artefact ``corpus``); none for
    local files."""
    if run.job.corpus.remote is None:
        return
    yield Step.of(corpus_artefact(run.job), partial(_read_documents, run), prepare=partial(_drop_withdrawn, run))
    run.invalidate(*OPENED)


def refreshed_steps(refresh: Refresh, run: Run) -> Iterator[Step]:
    """Yield the step that reads the documents again, in a new snapshot of the remote source; unchanged texts need not
    be transferred."""
    yield Step.of(
        corpus_artefact(run.job),
        partial(_read_documents, run, refresh=refresh),
        prepare=partial(_drop_withdrawn, run),
    )
    run.invalidate(*OPENED)


@dataclass(slots=True)
class Refresh:
    """Reading a run's documents again, for an update.

    Attributes
    ----------
    before : Run, the previous run, which has an earlier snapshot of the documents
    changed : list of str, ids of documents whose text differs in the previous run; None where the source computes no
        digests, and where the documents were read before this process
    is_copy : bool, whether the documents are copied from the previous run, without those of individuals withdrawn since
    """

    before: Run
    changed: list[str] | None = None
    is_copy: bool = False


def copied_steps(before: Run, run: Run) -> Iterator[Step]:
    """Yield the step that copies the documents of another run on the same remote source, ``before``, instead of reading
    the source again; nothing for local files.
    """
    if run.job.corpus.remote is None:
        return
    yield Step.of(
        corpus_artefact(run.job),
        partial(_copy_documents, before, run),
        prepare=partial(_delete_other_snapshot, before, run),
    )
    run.invalidate(*OPENED)


def _copy_documents(before: Run, run: Run, folder: Path, counts: dict[str, Any]) -> None:
    """Copy the documents of another run into ``folder``, without those of individuals withdrawn since."""
    if run.job.corpus.withdrawn == before.job.corpus.withdrawn:
        counts.update(read_manifest(before.folder / NAME).counts)
        for file in staged_files(before.folder / NAME):
            shutil.copyfile(file, folder / file.name)
        return
    _write_without_withdrawn(before, run, folder, counts)


def _write_without_withdrawn(before: Run, run: Run, folder: Path, counts: dict[str, Any]) -> None:
    """Write a copy of the documents of another run on the same source (``before``) into ``folder``, without those of
    individuals whom the job of ``run`` lists as withdrawn. ``counts`` is filled in for the manifest.
    """
    settings = staged_job(before.job).corpus.model_copy(update={"withdrawn": run.job.corpus.withdrawn})
    withdrawals, kept = Withdrawals(settings, LeftOut.read(run.folder)), read_manifest(before.folder / NAME).counts
    source = before.given_corpus.source
    made = stage(source, settings, folder, more=more_columns(run.job), withdrawals=withdrawals)
    withdrawals.record.keep(run.folder)
    earlier = [each["individuals"] for each in kept.get("withdrawn", ())]
    lists = zip(withdrawals.lists, chain(earlier, repeat(0)), strict=False)
    now = [(name, num_ids, num_individuals + had) for (name, num_ids, num_individuals), had in lists]
    # The list of what was not read stays behind: its places may name them.
    counts.update({name: count for name, count in kept.items() if name not in ("withdrawn", "unread")})
    counts.update({**made, "snapshot": kept["snapshot"]})
    report_lists(now, run.job.corpus, run.progress, counts)


def _drop_withdrawn(run: Run) -> None:
    """Rewrite the run folder's documents without individuals who have withdrawn since, if there are any."""
    place, artefact, lists = run.folder / NAME, corpus_artefact(run.job), run.job.corpus.withdrawn
    about: dict[str, Any] = {"kind": artefact.kind, "config": artefact.settings, "inputs": artefact.inputs}
    if not lists or not is_up_to_date(place, **about, check=run.verified.verify):
        return
    record, owners = LeftOut.read(run.folder), run.given_corpus.scan().column("individual_id")
    gone = Withdrawals(run.job.corpus).of_lists(owners)
    was_known = (
        "withdrawn" not in read_manifest(place).counts and load_kept_job(run.folder / JOB).corpus.withdrawn == lists
    )
    if was_known and (not record or record.has_individuals(gone, run.job.corpus.ids).all()):
        return  # an earlier version read them, which left whom lists name out of every stage
    if len(gone):
        with write_artifact(place, **about) as writer:
            _write_without_withdrawn(run, run, writer.path, writer.counts)


def _delete_other_snapshot(before: Run, run: Run) -> None:
    """Delete the run folder's copied documents if they come from another snapshot of the source than those of the
    previous run, ``before``."""

    place = run.folder / NAME
    if place.exists() and read_manifest(place).digest != read_manifest(before.folder / NAME).digest:
        delete_artifact(place)


def _read_documents(run: Run, folder: Path, counts: dict[str, Any], *, refresh: Refresh | None = None) -> None:
    """Read the documents of the remote source into ``folder``, and report what was left out or could not be read."""
    settings = run.job.corpus
    with (
        run.progress.task("read the documents", None, "documents") as advance,
        open_remote(settings, folder) as remote,
    ):
        source = remote if refresh is None else _with_unchanged_documents(refresh, remote, settings)
        withdrawals = Withdrawals(settings, LeftOut.read(run.folder))
        more = more_columns(run.job)
        counts.update(stage(source, settings, folder, more=more, progress=advance, withdrawals=withdrawals))
        withdrawals.record.keep(run.folder)
        report_lists(withdrawals.lists, settings, run.progress, counts)
        for sentence, is_warning in withdrawals.said:
            run.progress.tell(sentence, is_warning=is_warning)
        if isinstance(source, Refreshed):
            assert refresh is not None
            refresh.changed, counts["fetched"] = source.changed(), source.num_fetched
        for note in getattr(remote, "notes", ()):
            run.progress.warn(note)
        if num_unread := getattr(remote, "num_unread", 0):
            counts["unread"] = num_unread
            run.progress.warn(
                f"{remote.name}: {num_unread:,} texts could not be read; {run.folder / NAME / 'unread.parquet'} lists "
                "their places and the reasons"
            )
        if remote.passed_over:
            counts["passed_over"] = remote.passed_over
            run.progress.warn(
                f"{remote.name}: {remote.passed_over:,} objects are not read: their suffix tells no format, or a name "
                "begins with _ or ."
            )


def _with_unchanged_documents(refresh: Refresh, source: RemoteSource, settings: CorpusConfig) -> Source:
    """Return the source to read documents from. If ``source`` can compute digests of texts, the one returned transfers
    only texts that changed, and takes the others from the earlier run's copy.
    """

    if not isinstance(source, Digesting):
        return source
    return Refreshed(source, Earlier(staged_files(refresh.before.folder / NAME), settings), settings)
