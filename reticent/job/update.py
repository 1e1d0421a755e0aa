"""An update of a run: documents are added or individuals withdraw, and the indexes are made from those of before.

The job of the new run is the old job with more sources and more files of withdrawn individuals. So every later command,
and a rebuild from nothing, sees the same documents. The indexes are equal to those of a rebuild, byte by byte, and so
are spans, word numbers and ids of tokens, which are taken from before where the run has them (`reticent.job.carry`).

Documents of a database, an object store or a lake are read again only where that is asked for (``refresh``), into the
new run; else they are those of the old run. Where the server makes digests of texts, only those that the old run lacks
are read. Individuals of whom a text has changed are counted again too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.job.artefact import Output
from reticent.job.carry import Carry
from reticent.job.checks import require_same_documents
from reticent.job.maker import is_up_to_date
from reticent.job.pipeline import Stage, run_stages
from reticent.job.run import Run
from reticent.job.stages.corpus import Refresh, copied_steps, refreshed_steps
from reticent.job.stages.dedup import dedup_steps
from reticent.job.stages.detect import detect_steps
from reticent.job.stages.index import INDEXES, index_artefact, index_config, index_steps
from reticent.job.stages.protect import text_steps
from reticent.job.stages.split import split_steps
from reticent.job.touched import touched_by_update

if TYPE_CHECKING:
    from reticent.core.progress import Progress
    from reticent.engine.ngrams import NgramIndex

__all__ = ["update_run"]


def _count_update(
    before: Run, carry: Carry, run: Run, wanted: Sequence[str], output: Output, progress: Callable[[int], None]
) -> dict[str, NgramIndex]:
    """Return the first of the wanted indexes, as an update of that of the run ``before``."""
    from reticent.engine.index import open_index
    from reticent.engine.update import update_index

    name = wanted[0]
    update = update_index(
        open_index(before.folder / name),
        before.corpus,
        before.individuals,
        run.corpus,
        run.individuals,
        splits=INDEXES[name],
        k=run.job.protect.k,
        changed=carry.changed_individuals(),
        config=index_config(run, output.folder),
        progress=progress,
    )
    output.counts["recounted"] = update.num_recounted
    output.counts["moved"] = [asdict(moved) for moved in update.moved]
    return {name: update.index}


def update_run(
    before: Run,
    out: Path,
    added: Sequence[str],
    withdrawn: Sequence[Path],
    progress: Progress,
    *,
    refresh: bool = False,
) -> Run:
    """Make the run folder ``out``: the split and the indexes of ``before`` with more documents, or fewer individuals.

    ``before`` stays as it is. If it has spans the new run has some, and if it has tokens the new run has their ids;
    only new and changed documents are read for them, unless detectors must see all again, which is said. Views are left
    to later commands. With ``refresh`` documents that are no local files are read again, in a new snapshot.

    Raises
    ------
    PolicyError
        Nothing is to change, ``out`` is the run itself, inside of it, or one over other documents that has tokens, the
        index of ``before`` cannot be updated, or it has canaries or a holdout of user inference.
    ArtifactError
        The indexes are missing, or are not those of the run's documents as they are now.
    CorpusError
        A new document cannot be used or has the id of another, or an individual is not in the run.
    """
    job = before.job
    if not (added or withdrawn or refresh):
        raise PolicyError("update: nothing to do; give --add SOURCE, --remove FILE or --refresh")
    if refresh and job.corpus.remote is None:
        raise PolicyError("--refresh: the documents of the run are local files; give new ones with --add")
    if added and job.corpus.remote is not None:
        raise PolicyError("--add: the documents of the run are no local files; add them there, and give --refresh")
    if before.folder.resolve() in (place := out.resolve(), *place.parents):
        raise PolicyError(
            "--out: is the run itself or inside of it, where the old run could not be deleted alone; an update needs a "
            "folder of its own"
        )
    if not job.index.updatable:
        raise PolicyError(
            f"{before.folder}: its index lacks the n-grams that an update needs; build it once with "
            "`reticent index --updatable` (index.updatable = true)"
        )
    if job.canaries is not None:
        raise PolicyError(
            f"{before.folder}: its documents have canaries, which an update would change; run the job anew"
        )
    if job.split.user_inference_holdout:
        raise PolicyError(f"{before.folder}: an update would change split.user_inference_holdout; run the job anew")
    _require_current(before)
    values = job.model_dump()
    values["out"] = str(out)
    values["corpus"]["source"] = [*job.corpus.sources, *added]
    values["corpus"]["withdrawn"] = [*job.corpus.withdrawn, *map(str, withdrawn)]
    replaced = touched_by_update(before, ()).dossier
    if replaced is not None:  # the dossier of the new run names that of the old one
        values["dossier"]["replaces"] = replaced
    run = Run(type(job).model_validate(values), progress)
    _require_known(before, withdrawn)
    _require_new_files(before, run, added)
    require_same_documents(run.job)
    run.recover()
    run.prepare_folder()
    again = Refresh(before)
    read = partial(refreshed_steps, again) if refresh else partial(copied_steps, before)
    stages = [Stage("corpus", read), Stage("dedup", dedup_steps), Stage("split", split_steps)]
    carry = Carry(again, run)
    if carry.has_spans or job.detect.on_error == "quarantine":  # which decides what documents there are
        stages.append(Stage("detect", partial(detect_steps, carried=carry.spans if carry.has_spans else None)))
    stages.append(Stage("index", partial(index_steps, count=partial(_count_update, before, carry))))
    if carry.has_text:
        stages.append(Stage("protect", partial(text_steps, carried=carry.text)))
    run_stages(run, stages)
    run.keep_job()
    return run


def _require_current(run: Run) -> None:
    lists = " or a list of who withdrew (corpus.withdrawn)" if run.job.corpus.withdrawn else ""
    apart = ", and who withdraws now in a file of its own" if run.job.corpus.withdrawn else ""
    for name in INDEXES:
        if not is_up_to_date(run, index_artefact(run, name)):
            raise ArtifactError(
                f"{run.folder / name}: missing, or its documents{lists} have changed since it was made; run "
                f"`reticent index` again, and keep new documents apart until they are added{apart}"
            )


def _require_known(before: Run, withdrawn: Sequence[Path]) -> None:
    from reticent.engine.update import read_ids

    known = before.given_individuals() if withdrawn else None
    for file in withdrawn:
        read_ids(file, known, before.job.corpus.ids)


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
