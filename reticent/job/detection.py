"""`reticent detect`: find identifiers in the documents of a run or job, count them, and evaluate them.

This module joins the floors: the engine detects, the audit compares with annotations.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from reticent.audit.evidence.detection import DetectedSpans
from reticent.core.artifact import held_folder
from reticent.core.errors import PolicyError
from reticent.core.progress import Progress
from reticent.engine.detect import quarantined_rows
from reticent.engine.detect.labels import category
from reticent.job.config import Job
from reticent.job.detection_learned import TAUGHT_OUT, taught
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.staged import staged_job


def detect_documents(job: Job, *, keep: bool, evaluate: bool, progress: Progress) -> DetectedSpans:
    """Run a job's detectors; return the counts of spans and, with ``evaluate``, their comparison with the gold spans.
    With ``keep`` the spans stay in the run folder.

    Parameters
    ----------
    keep : bool
        Whether to keep the spans in ``spans/`` of the job's run folder; if false, they go to a temporary folder.
    evaluate : bool
        Whether to compare the spans with the gold spans (``corpus.spans``); the detector gold is not compared with
        itself.
    """
    if evaluate and job.corpus.spans is None and job.corpus.mentions is None and not job.corpus.marked:
        raise PolicyError("nothing to evaluate against: give the column of gold spans (corpus.spans)")
    if keep:
        return _detect_in_run(job, evaluate, progress)
    job = staged_job(job)
    with held_folder("reticent-detect-") as folder:
        result = _detect_in_run(job.model_copy(update={"out": str(folder / "run")}), evaluate, progress)
    return replace(result, folder=None)


def _detect_in_run(job: Job, evaluate: bool, progress: Progress) -> DetectedSpans:
    """Run the detectors in the job's run folder; return the counts and, if asked, the comparison with the gold
    spans."""
    run = Run(job, progress)
    folder = execute(run, "detect", alone=True) / "spans"
    evaluation = None
    if evaluate:
        from reticent.audit.detection import evaluate_detection
        from reticent.engine.detect.marks import read_marks

        with progress.task("evaluate", None, "documents"):
            left_out = taught(run, run.corpus.scan().column("individual_id"))
            if left_out.any():
                progress.warn(TAUGHT_OUT.format(int(left_out.sum())))
            marks = read_marks(run.corpus, folder, left_out if left_out.any() else None)
            names = dict.fromkeys((*job.detect.detectors, *marks.detectors))  # also those that found nothing
            marks = marks.with_only(detectors=[name for name in names if name != "gold"])
            evaluation = evaluate_detection(marks, num_bootstrap=job.audit.num_bootstrap, seed=job.seed)
    return DetectedSpans(
        folder=str(folder),
        documents=run.documents.num_documents,
        quarantined=len(quarantined_rows(folder)),
        skipped=run.whole_corpus.reading.num_skipped or None,
        spans=count_spans(folder, tuple(job.detect.detectors)),
        evaluation=evaluation,
    )


def count_spans(folder: Path | str, detectors: tuple[str, ...] = ()) -> dict[str, dict[str, int]]:
    """Return the number of spans in ``folder/spans.parquet`` by detector, then category, with an empty entry for each
    of ``detectors`` that found none."""

    table = pq.read_table(Path(folder) / "spans.parquet", columns=["detector", "label"])
    counted = table.group_by(["detector", "label"]).aggregate([([], "count_all")])
    counts: dict[str, dict[str, int]] = {name: {} for name in detectors}
    for row in counted.sort_by([("detector", "ascending"), ("label", "ascending")]).to_pylist():
        of = counts.setdefault(row["detector"], {})
        of[category(row["label"])] = of.get(category(row["label"]), 0) + row["count_all"]
    return counts
