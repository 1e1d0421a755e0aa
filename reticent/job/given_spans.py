"""Spans of the original documents, before deduplication and quarantine, from those of a run, so that none is searched
twice.

A run that holds documents back from training, or plants canaries, has spans of other documents than it was given. Those
of the documents that it has searched are taken as they are; only the documents that were held back are searched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.core.errors import ReticentError
from reticent.engine.canaries import DETECTOR
from reticent.engine.corpus import Corpus
from reticent.engine.detect import detect_spans, make_detectors, quarantined_rows
from reticent.engine.detect.common import learn_common_words
from reticent.engine.detect.propagate import propagate
from reticent.engine.schema import SPANS
from reticent.engine.split import draw_user_inference_holdout
from reticent.job.detection_learned import options_of
from reticent.job.maker import is_up_to_date
from reticent.job.run import Run
from reticent.job.stages.detect import detect_steps


def has_spans(run: Run) -> bool:
    """Return whether the run folder has up-to-date spans for its job."""
    look = run.read_only_copy()
    try:
        return all(is_up_to_date(look, output) for step in detect_steps(look) for output in step.outputs)
    except (ReticentError, OSError):  # of what was not made yet
        return False


def spans_as_given(run: Run, folder: Path) -> tuple[Corpus, int]:
    """Write the spans of the documents as they were given to the run (without canaries, with those reserved for the
    user-inference attack) to ``folder/spans.parquet``. Return these documents, without those on which a detector
    failed, and the number of these.

    Returns
    -------
    corpus, num_quarantined
        These documents, less copies and those that a detector fails on; and how many it fails on.
    """

    given = run.deduplicated
    searched = np.arange(given.num_documents)
    parts, failed = [], []
    if run.job.split.user_inference_holdout:
        held_back = draw_user_inference_holdout(given, run.job.split.user_inference_holdout, run.job.seed)
        searched = np.flatnonzero(~held_back)
        rows, quarantined, spans = _search_held_back(run, given, np.flatnonzero(held_back), folder)
        parts.append(_renumber_documents(spans, rows))
        failed.append(quarantined)
    left_out = quarantined_rows(run.folder / "spans")
    failed.append(searched[left_out])
    spans = pq.read_table(run.folder / "spans" / "spans.parquet")
    own = pc.not_equal(spans.column("detector"), DETECTOR)  # what detectors found in a canary went when it was marked
    if parts and run.job.detect.propagate:  # anew, over all documents together
        own = pc.and_(own, pc.invert(pc.match_substring_regex(spans.column("detector"), ":")))
    parts.append(_renumber_documents(spans.filter(own), np.delete(searched, left_out)))
    out = np.sort(np.concatenate(failed))
    corpus = given.without(out) if len(out) else given
    stays = np.ones(given.num_documents, dtype=bool)
    stays[out] = False
    united = _renumber_documents(pa.concat_tables(parts), np.cumsum(stays) - 1)
    order = [(name, "ascending") for name in ("document", "start", "end", "label", "detector")]
    whole = len(parts) == 1 or not run.job.detect.propagate
    with pq.ParquetWriter(folder / ("spans.parquet" if whole else "united.parquet"), SPANS) as writer:
        writer.write_table(united.sort_by(order))
    if not whole:
        propagate(
            corpus,
            folder / "united.parquet",
            folder / "spans.parquet",
            scopes=run.job.protect.scopes,
            num_threads=run.job.num_threads,
        )
    return corpus, len(out)


def _search_held_back(
    run: Run, given: Corpus, rows: np.ndarray, folder: Path
) -> tuple[np.ndarray, np.ndarray, pa.Table]:
    """Detect identifiers in the documents reserved for the user-inference attack, which are ``rows`` of the corpus
    ``given``. Return the rows that succeeded, the rows on which a detector failed, and the table of spans.
    """

    job = run.job
    detectors = make_detectors(job.detect.detectors, options_of(job), num_threads=job.num_threads, ids=job.corpus.ids)
    learn_common_words(given, detectors)  # as where all of them are searched
    corpus: Any = run.user_inference_holdout
    with run.progress.task("detect", corpus.num_documents, "documents") as advance:
        detect_spans(corpus, detectors, folder, on_error=job.detect.on_error, progress=advance)
    spans = pq.read_table(folder / "spans.parquet")
    failed = quarantined_rows(folder)
    return np.delete(rows, failed), rows[failed], spans


def _renumber_documents(spans: pa.Table, rows: np.ndarray) -> pa.Table:
    """Return the spans with each document number ``d`` replaced by ``rows[d]``."""
    number = pa.array(rows[spans.column("document").to_numpy()], pa.int64())
    return spans.set_column(0, SPANS.field("document"), number).cast(SPANS)
