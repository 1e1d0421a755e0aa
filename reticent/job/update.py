"""Updating a run: documents are added or individuals withdrawn, and the indexes are derived from the previous ones.

The job of the new run is the old job with more sources and more files of withdrawn individuals. So every later command,
and a rebuild from nothing, sees the same documents. The indexes are equal to those of a rebuild, byte by byte, and so
are spans, which are taken over where they follow from a document alone. Word ids, tokens and views are made by later
commands. The run before stays as it is, and nothing of it is needed later.

Documents of a database, an object store or a lake are read again only where that is asked for (``refresh``), into the
new run; else they are those of the old run. Where the server makes digests of texts, only those that the old run lacks
are read. Individuals of whom a text has changed are counted again too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.artifact import is_up_to_date as artifact_is_up_to_date
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.core.progress import Progress
from reticent.core.resolve import resolve
from reticent.engine.corpus import open_corpus
from reticent.engine.detect.choose import DETECTORS
from reticent.engine.detect.passages import copy_cache
from reticent.engine.index import open_index
from reticent.engine.ngrams import NgramIndex
from reticent.engine.reuse import ReusedSpans, differing_texts, rows_before, with_same_individual
from reticent.engine.schema import HELDOUT, MEMBERS, REFERENCE
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.update import update_index
from reticent.engine.withdrawn import LeftOut, comparable_form, read_ids
from reticent.job.artefact import Artefact, Output
from reticent.job.checks import require_same_documents
from reticent.job.detection_learned import LEARNED, keep_key, learn_config_of, taught
from reticent.job.maker import is_up_to_date
from reticent.job.pipeline import Stage, run_stages, stages_named
from reticent.job.run import Run
from reticent.job.stages.corpus import Refresh, copied_steps, refreshed_steps
from reticent.job.stages.dedup import dedup_steps
from reticent.job.stages.detect import NER_CACHE, detect_steps, has_other_rules, spans_artefact
from reticent.job.stages.index import INDEXES, index_artefact, index_config, index_steps
from reticent.job.stages.split import split_steps

#: Settings of what is read, which the documents of the run before do not obey.
READ_ANEW = ("version", "opt_out", "readmitted", "row_security", "time_zone")


class Reuse:
    """What an update takes over from the previous run; ``run`` is the new one."""

    def __init__(self, refresh: Refresh, run: Run):
        self._before, self._refresh, self._run = refresh.before, refresh, run

    @cached_property
    def _previous_rows(self) -> np.ndarray:
        """Row of each document of the new run in the previous run, int64; -1 if it was not there."""
        return rows_before(self._before.corpus, self._run.documents)

    @cached_property
    def _changed_rows(self) -> np.ndarray:
        """Rows (int64) of the new run's documents whose text differs from that in the previous run; empty unless a
        remote source was read again and is of another version."""
        if not self._texts_may_differ:
            return np.empty(0, dtype=np.int64)
        if self._refresh.changed is not None:
            changed = pa.array(self._refresh.changed, pa.string())
            known = pc.is_in(self._run.documents.scan().column("doc_id").cast(pa.string()), value_set=changed)
            return np.flatnonzero(known.to_numpy() & (self._previous_rows >= 0))
        threads = self._run.job.num_threads
        return differing_texts(self._before.corpus, self._run.documents, self._previous_rows, threads)

    @cached_property
    def _texts_may_differ(self) -> bool:
        """Whether the remote source was read again and is of another version."""
        if self._run.job.corpus.remote is None or self._refresh.is_copy:
            return False
        old, new = (corpus.source.version() for corpus in (self._before.corpus, self._run.documents))
        return bool(old != new)

    def changed_individuals(self) -> set[str]:
        """Return the ids of individuals with a document in both runs whose text differs."""
        if not len(self._changed_rows):
            return set()
        sides = (
            (self._before.corpus, self._previous_rows[self._changed_rows]),
            (self._run.documents, self._changed_rows),
        )
        found = [corpus.scan().column("individual_id").take(rows).to_pylist() for corpus, rows in sides]
        return {*found[0], *found[1]}

    @cached_property
    def _previous_rows_if_unchanged(self) -> np.ndarray:
        """Row of each document of the new run in the previous run, int64; -1 if it was not there, or if its text or
        individual has changed."""
        rows = with_same_individual(self._before.corpus, self._run.documents, self._previous_rows)
        rows[self._changed_rows] = -1
        return rows

    @cached_property
    def has_spans(self) -> bool:
        """Whether the previous run has spans, so that the new one gets some too."""
        return (self._before.folder / "spans").exists()

    def spans(self) -> ReusedSpans | None:
        """Return the spans that an update reuses from the previous run. If all documents must be searched again, print
        the reason and return None.
        """
        if why := self._reason_to_search_again():
            self._run.progress.say_once(f"identifiers are searched for in all documents again: {why}")
            if self._run.job.detect.cache:
                copy_cache(self._run.folder / NER_CACHE, self._before.folder / NER_CACHE)
            return None
        return ReusedSpans(self._before.folder / "spans", self._previous_rows_if_unchanged)

    def _reason_to_search_again(self) -> str:
        """Return why all documents must be searched again; an empty text where spans can be taken over."""
        settings, before = self._run.job.detect, spans_artefact(self._before)
        if not _is_whole(self._before, before):
            return "their settings, or a file that a detector reads, have changed"
        if settings.propagate:
            return "detect.propagate looks everywhere for an identifier that was found once"
        for name in settings.detectors:
            if why := DETECTORS[name].depends(settings.of(name)):
                return f"detector {name}: {why}"
            if self._texts_may_differ and (name == "gold" or settings.of(name).get("columns")):
                return f"detector {name}: it reads columns beside the text, which were read again"
            if settings.of(name).get("columns") and self._before.job.corpus.time_zone != self._run.job.corpus.time_zone:
                return f"detector {name}: it reads columns beside the text, whose times are of another corpus.time_zone"
        if has_other_rules(self._before):
            return "those of the run before were found by the rules of another version of Reticent"
        return ""


def _is_whole(run: Run, artefact: Artefact) -> bool:
    """Return whether an artefact of a run is up to date, with its files read and verified."""
    return artifact_is_up_to_date(
        run.folder / artefact.name, kind=artefact.kind, config=artefact.settings, inputs=artefact.inputs
    )


def _count_update(
    before: Run, reuse: Reuse, run: Run, wanted: Sequence[str], output: Output, progress: Callable[[int], None]
) -> dict[str, NgramIndex]:
    """Update the first of the ``wanted`` indexes from the previous run's (``before``): only the n-grams of individuals
    whose documents changed are counted again. Return {index name: index}; other wanted indexes are not made.
    """
    name = wanted[0]
    update = update_index(
        open_index(before.folder / name),
        before.corpus,
        before.individuals,
        run.corpus,
        run.individuals,
        splits=INDEXES[name],
        k=run.job.protect.k,
        changed=reuse.changed_individuals(),
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
    corpus: CorpusConfig | None = None,
) -> Run:
    """Make the run folder ``out``: the split and the indexes of ``before`` with documents added, or individuals
    withdrawn.

    ``before`` stays as it is. If it has spans the new run has some; only new and changed documents are read for them,
    unless detectors must see all again, which is said. Tokens are left to later commands. With ``refresh`` documents
    that are no local files are read again, in a new snapshot. ``corpus``: its settings from now on.

    Raises
    ------
    PolicyError
        Nothing is to change, ``out`` is the run itself, inside of it, or one over other documents that has tokens, the
        index of ``before`` cannot be updated, or it has canaries or a holdout of user inference.
    ArtifactError
        The indexes are missing, or are not those of the run's documents as they are now.
    CorpusError
        A new document cannot be used or has the id of another, or an id of a list is an individual's but for how it is
        spelt. Of a list that names nobody here, only with ``corpus.on_unmatched`` "stop"; else that is a warning.
    """
    job = before.job
    if not (added or withdrawn or refresh):
        raise PolicyError("update: nothing to do; give --add SOURCE, --remove FILE or --refresh")
    if refresh and job.corpus.remote is None:
        raise PolicyError("--refresh: the documents of the run are local files; give new ones with --add")
    corpus = corpus or job.corpus
    if refresh and corpus.version is not None and corpus.version == job.corpus.version:
        raise PolicyError(
            f"--refresh: corpus.version holds version {corpus.version}, which would be read again; give --set "
            "corpus.version=… with a newer one"
        )
    read_anew = [name for name in READ_ANEW if getattr(corpus, name) != getattr(job.corpus, name)]
    if read_anew and not refresh and job.corpus.remote is not None:
        raise PolicyError(f"corpus.{read_anew[0]}: takes effect when the documents are read again; give --refresh too")
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
            "`reticent index --set index.updatable=true`"
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
    values["corpus"] = corpus.model_dump()
    values["corpus"]["source"] = [*job.corpus.sources, *added]
    values["corpus"]["withdrawn"] = [*job.corpus.withdrawn, *map(str, withdrawn)]
    replaced, _ = _dossiers_of(before)
    if replaced is not None:  # the dossier of the new run names that of the old one
        values["dossier"]["replaces"] = replaced
    run = Run(type(job).model_validate(values), progress)
    _require_spelling(before, withdrawn)
    _require_new_files(before, run, added)
    require_same_documents(run.job)
    run.recover()
    run.prepare_folder()
    before.left_out().union(LeftOut.read(run.folder)).keep(run.folder)
    again = Refresh(before, is_copy=not refresh)
    read = partial(refreshed_steps, again) if refresh else partial(copied_steps, before)
    stages = [Stage("corpus", read), Stage("dedup", dedup_steps), Stage("split", split_steps)]
    reuse = Reuse(again, run)
    if reuse.has_spans and learn_config_of(job) is not None:  # those who withdrew teach no more
        keep_key(before.folder, run.folder)
        stages += stages_named("learned")
    if reuse.has_spans or job.detect.on_error == "quarantine":  # which decides what documents there are
        stages.append(Stage("detect", partial(detect_steps, carried=reuse.spans if reuse.has_spans else None)))
    stages.append(Stage("index", partial(index_steps, count=partial(_count_update, before, reuse))))
    run_stages(run, stages)
    run.keep_job()
    return run


def _require_current(run: Run) -> None:
    """Raise `ArtifactError` where an index of a run is missing or not of its documents as they are now."""
    lists = " or a list of who withdrew (corpus.withdrawn)" if run.job.corpus.withdrawn else ""
    apart = ", and who withdraws now in a file of its own" if run.job.corpus.withdrawn else ""
    for name in INDEXES:
        if not is_up_to_date(run, index_artefact(run, name)):
            raise ArtifactError(
                f"{run.folder / name}: missing, or its documents{lists} have changed since it was made; run "
                f"`reticent index` again, and keep new documents apart until they are added{apart}"
            )


def _require_spelling(before: Run, withdrawn: Sequence[Path]) -> None:
    """Raise an error if an id in the lists of withdrawn individuals differs from one in the documents in its spelling
    only.
    """
    known = before.given_corpus.scan().column("individual_id") if withdrawn else None
    for file in withdrawn:
        read_ids(file, known, before.job.corpus.ids)


def _require_new_files(before: Run, run: Run, added: Sequence[str]) -> None:
    """Raise `CorpusError` where an added source holds files that are documents of the run already."""
    if added:
        old = {file.resolve() for file in before.whole_corpus.files}
        for source in added:
            files = open_corpus(source, format=run.job.corpus.format).files
            if known := sum(file.resolve() in old for file in files):
                raise CorpusError(
                    f"--add {source}: {known:,} of its {len(files):,} files are documents of the run already"
                )


#: Folder of trained weights in a run -> the sides of the split whose documents trained them, or may have.
TRAINED_ON = {
    "models": (MEMBERS,), "classification": (MEMBERS,), "tagging": (MEMBERS,), "shadows": (MEMBERS, HELDOUT),
    "foundation": (REFERENCE,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AffectedArtifacts:
    """Models and dossiers of the previous run that an update affects.

    A model cannot forget an individual: where one withdraws, each model that was trained on the documents of that
    individual has to be made again, and each dossier about it holds no more.

    Attributes
    ----------
    trained_on_withdrawn : list of str, those of ``models`` that were trained, or whose base was, on documents of
        individuals who have none in the new run
    models : list of str, paths in the run folder of all weights that were trained on its documents
    dossier : str, digest of the dossier of the run; None without one
    replaced : list of str, digests (first 16 hex digits) of dossiers that it had replaced, which may have been sent too
    """

    trained_on_withdrawn: list[str]
    models: list[str]
    dossier: str | None
    replaced: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the affected models and dossiers as JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return sentences on the affected models and dossiers, for the user; empty where the run has neither."""
        found = []
        if self.trained_on_withdrawn:
            found.append(
                "Trained on documents of individuals who withdrew or are gone: "
                f"{', '.join(self.trained_on_withdrawn)}. Train them again, and ask those who have them to delete them."
            )
        if others := [name for name in self.models if name not in self.trained_on_withdrawn]:
            found.append(f"Models of the documents as they were before: {', '.join(others)}. They were not changed.")
        digests = [*filter(None, (self.dossier,)), *self.replaced]
        if digests:
            found.append(
                f"Dossiers of the documents as they were before: {', '.join(digest[:16] for digest in digests)}. The "
                "dossier of the new run names the one that it replaces."
            )
        return found


def affected_artifacts(before: Run, run: Run) -> AffectedArtifacts:
    """Return the models and dossiers of a run (``before``) that an update to ``run`` affects: those trained on, or
    about, its documents."""
    dossier, replaced = _dossiers_of(before)
    reference = {each.name for each in before.job.model if each.foundation and each.foundation.text == "reference"}
    individuals, choice = before.individuals, run.job.corpus.ids
    ids = individuals.table.column("individual_id")
    stay = run.whole_corpus.scan().column("individual_id").unique().cast(pa.string())
    is_here = pc.is_in(comparable_form(ids, choice), value_set=comparable_form(stay, choice))
    is_gone = ~is_here.to_numpy(zero_copy_only=False).astype(bool)
    models, affected = [], []
    for kind in (*TRAINED_ON, LEARNED):
        for place in sorted(path.parent for path in (before.folder / kind).rglob("manifest.json")):
            name = place.relative_to(before.folder)
            is_of_reference = name.parts[1:2] and name.parts[1] in reference
            if kind == "foundation" and not is_of_reference:
                continue  # made from public text
            if kind in ("classification", "tagging", "shadows") and not any(place.rglob("*.safetensors")):
                continue  # only scores were kept
            models.append(name.as_posix())
            if kind == LEARNED:
                was_read = taught(before, ids)
            else:
                was_read = individuals.mask(*TRAINED_ON[kind], *([REFERENCE] if is_of_reference else []))
            if (was_read & is_gone).any():
                affected.append(name.as_posix())
    return AffectedArtifacts(affected, models, dossier, replaced)


def _dossiers_of(run: Run) -> tuple[str | None, list[str]]:
    """Return the digest of a run's dossier (None without one), and the names of the folders with dossiers that it
    replaced.
    """
    found: tuple[str | None, list[str]] = resolve("reticent.ext.dossier.stage:dossiers_of")(run.folder)
    return found
