"""A run whose documents came or whose individuals withdrew: its indexes are made from those of the run before.

The job of the new run is the old one's with more sources and more files of withdrawn individuals, so that every later
command, and a rebuild from nothing, sees the same documents; its indexes are those of a rebuild to the last byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.job.data_stages import INDEXES
from reticent.job.run import Run

if TYPE_CHECKING:
    from reticent._rust import NgramIndex
    from reticent.core.progress import Progress
    from reticent.engine.index import IndexConfig
    from reticent.job.config import Job

__all__ = ["UpdatedRun", "update_run"]


class UpdatedRun(Run):
    """A run whose indexes are updates of those of the run ``before``."""

    def __init__(self, job: Job, before: Run, progress: Progress | None = None):
        super().__init__(job, progress)
        self.before = before

    def _count_ngrams(
        self, name: str, config: IndexConfig, counts: dict[str, Any], progress: Callable[[int], None]
    ) -> NgramIndex:
        from reticent.engine.index import open_index
        from reticent.engine.update import update_index

        before = self.before
        update = update_index(
            open_index(before.folder / name),
            before.corpus,
            before.individuals,
            self.corpus,
            self.individuals,
            splits=INDEXES[name],
            k=self.job.protect.k,
            config=config,
            progress=progress,
        )
        counts["recounted"] = update.num_recounted
        counts["moved"] = [asdict(moved) for moved in update.moved]
        return update.index


def update_run(
    before: Run, out: Path, added: Sequence[str], withdrawn: Sequence[Path], progress: Progress
) -> UpdatedRun:
    """Make the run folder ``out``: the split and the indexes of ``before`` with more documents, or fewer individuals.

    ``before`` stays as it is. What needs no index is left to later commands: detectors read every document again.

    Raises
    ------
    PolicyError
        Nothing is to change, ``out`` is the run itself, its index cannot be updated, or it has canaries or
        fresh documents.
    ArtifactError
        The indexes are missing, or are not those of the run's documents as they are now.
    CorpusError
        A new document cannot be used or has the id of another, or an individual is not in the run.
    """
    job = before.job
    if not (added or withdrawn):
        raise PolicyError("update: nothing to do; give --add SOURCE or --remove FILE")
    if out.resolve() == before.folder.resolve():
        raise PolicyError("--out: the run itself; an update goes into a folder of its own")
    if not job.index.updatable:
        raise PolicyError(
            f"{before.folder}: its index has forgotten what an update needs; build it once with "
            "`reticent index --updatable` (index.updatable = true)"
        )
    if job.canaries is not None:
        raise PolicyError(f"{before.folder}: canaries stand in its documents and would be others; run the job anew")
    if job.split.fresh:
        raise PolicyError(f"{before.folder}: other documents would be held back (split.fresh); run the job anew")
    _require_current(before)
    values = job.model_dump()
    sources = [job.corpus.source] if isinstance(job.corpus.source, str) else job.corpus.source
    values["out"] = str(out)
    values["corpus"]["source"] = [*sources, *added]
    values["corpus"]["withdrawn"] = [*job.corpus.withdrawn, *map(str, withdrawn)]
    run = UpdatedRun(type(job).model_validate(values), before, progress)
    _require_known(before, withdrawn)
    _require_new_files(before, run, added)
    run.recover()
    run.prepare_folder()
    run.dedup()
    run.split()
    if job.detect.on_error == "quarantine":  # decides which documents there are
        run.detect()
    run.index()
    run.keep_job()
    return run


def _require_current(run: Run) -> None:
    for name in INDEXES:
        if not run.is_index_current(name):
            raise ArtifactError(
                f"{run.folder / name}: missing, or its documents have changed since it was made; run `reticent index` "
                "again, and keep new documents apart until they are added"
            )


def _require_known(before: Run, withdrawn: Sequence[Path]) -> None:
    from reticent.engine.update import read_ids

    for file in withdrawn:
        read_ids(file, before.individuals.table.column("individual_id"), before.job.corpus.ids)


def _require_new_files(before: Run, run: Run, added: Sequence[str]) -> None:
    if added:
        from reticent.engine.corpus import open_corpus

        old = {file.resolve() for file in before.whole_corpus.files}
        for source in added:
            files = open_corpus(source, format=run.job.corpus.format).files
            if known := sum(file.resolve() in old for file in files):
                raise CorpusError(
                    f"--add {source}: {known:,} of its {len(files):,} files are documents of the run already"
                )
