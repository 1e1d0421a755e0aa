"""`reticent detect learn`: train the tagger of a run, and detect identifiers with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reticent.job.detection_learned import learn_config_of, read_learned
from reticent.job.pipeline import execute
from reticent.job.run import Run

if TYPE_CHECKING:
    from reticent.core.progress import Progress
    from reticent.job.config import Job


def learn_in_run(job: Job, progress: Progress) -> dict[str, Any]:
    """Train a job's tagger and detect identifiers with it; return its cross-validated recall and precision and counts
    of training data.

    Raises
    ------
    PolicyError
        There is nothing to learn from. CorpusError: the marks are of other documents, or too few.
    """
    learn_config_of(job)  # says what is missing before anything is read
    run = Run(job, progress)
    execute(run, "detect", alone=True)
    return read_learned(run)
