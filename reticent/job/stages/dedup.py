"""From documents to the copies that later stages leave out, if the job removes any. Needs 8 bytes of memory a word."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.engine.dedup import find_copies, write_left_out
from reticent.job.artefact import Artefact, Step

if TYPE_CHECKING:
    from reticent.job.run import Run


def dedup_steps(run: Run) -> Iterator[Step]:
    """Yield the step that finds the copies which later stages leave out (artefact ``dedup``); none with mode "off"."""
    settings = run.job.dedup
    if settings.mode == "off":
        return
    kept = {**settings.model_dump(), "k": settings.k, "surface": settings.surface}
    artefact = Artefact("dedup", "dedup", kept, {"corpus": run.whole_corpus.fingerprint()})
    yield Step.of(artefact, partial(_build_dedup, run))
    run.invalidate("deduplicated", "parted", "documents", "corpus")


def _build_dedup(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    """Find the copies among the documents and write which documents are left out."""
    with run.progress.task("dedup", run.whole_corpus.num_documents, "documents") as advance:
        found = find_copies(run.whole_corpus, run.job.dedup, progress=advance)
    write_left_out(found.left_out, folder)
    counts.update(found.counts)
    if gone := found.counts["left_out"]["individuals"]:
        run.progress.warn(
            f"{gone:,} of {found.counts['individuals']:,} individuals have no document left (dedup.scope = "
            f'"{run.job.dedup.scope}"): they are neither members nor held out, and no number is about them'
        )
