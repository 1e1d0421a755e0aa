"""From the documents of both sides to the held-out individuals who have near-copies of members' documents.

Attacks on membership take them for members, so areas are given without them too. A measurement depends on who they are
where they are more than `SHARE`. With ``memory_limit``, or in too much text, they are not looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reticent.audit.evidence.corpus import NearCopies
from reticent.audit.membership.validity import SHARE
from reticent.core.artifact import read_manifest
from reticent.engine.near_copies import heldout_with_copies, read_copied, write_copied
from reticent.engine.schema import HELDOUT
from reticent.job.artefact import Artefact, Step
from reticent.job.fingerprints import TO_DO
from reticent.job.run import Run

#: Name and kind of the artefact.
NEAR_COPIES = "near-copies"


def near_copies_steps(run: Run) -> Iterator[Step]:
    """Yield the step that finds held-out individuals with near-copies of members' documents (artefact ``near-copies``);
    none with a memory limit."""
    if run.job.memory_limit is not None:
        return
    settings = run.job.dedup.model_dump(include={"threshold", "shingle_words"})
    settings |= {"without_words": "left out"} | run.canaries_left_out  # earlier versions took these for copies
    inputs = {**run.corpus_input(), "split": run.fingerprints.of("split")}
    yield Step.of(Artefact(NEAR_COPIES, NEAR_COPIES, settings, inputs), partial(_build_near_copies, run))


def _build_near_copies(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    """Find the held-out individuals with near-copies and write them into ``folder``."""
    with run.progress.task("near-copies", run.corpus.num_documents, "documents") as advance:
        copied = heldout_with_copies(
            run.unplanted, run.individuals, run.job.dedup, num_threads=run.job.num_threads, progress=advance
        )
    counts["heldout"] = int(run.individuals.mask(HELDOUT).sum())
    if copied is not None:
        write_copied(copied, folder)
        counts["copied"] = int(copied.sum())


def near_copies_input(run: Run) -> dict[str, str]:
    """Return the fingerprint of the near-copy search, as an entry {name: fingerprint} of a measurement's inputs. Empty
    if near-copies are not searched for, or so few held-out individuals have some that none is excluded.
    """

    if run.job.memory_limit is not None:
        return {}
    digest = run.fingerprints.of(NEAR_COPIES)
    if digest != TO_DO:
        counts = _near_copy_counts(run)
        if counts is None or counts["copied"] <= SHARE * counts["heldout"]:
            return {}
    return {"near-copies": digest}


def _near_copy_counts(run: Run) -> dict[str, Any] | None:
    """Return the counts in the manifest of ``near-copies``; None if near-copies were not searched."""

    if run.job.memory_limit is not None or not (run.folder / NEAR_COPIES).exists():
        return None
    counts = read_manifest(run.folder / NEAR_COPIES).counts
    return counts if "copied" in counts else None


def copied_individuals(run: Run) -> np.ndarray | None:
    """Return which held-out individuals have near-copies of members' documents, bool by individual code; None if they
    were not searched."""

    return None if _near_copy_counts(run) is None else read_copied(run.folder / NEAR_COPIES)


def near_copies_section(run: Run) -> NearCopies | None:
    """Return the evidence on near-copies (their threshold and number); None if they were not searched."""

    counts, settings = _near_copy_counts(run), run.job.dedup
    if counts is None:
        return None
    return NearCopies(
        threshold=settings.threshold,
        shingle_words=settings.shingle_words,
        num_heldout=counts["heldout"],
        num_copied=counts["copied"],
    )
