"""The recall that annotators of a run's documents measured, as the run folder keeps it and the report shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reticent.audit.evidence.sampled import SampledRecall
    from reticent.job.run import Run

__all__ = ["SAMPLED_RECALL", "read_sampled_recall"]

#: Name and kind of the artefact.
SAMPLED_RECALL = "sampled-recall"


def read_sampled_recall(run: Run) -> SampledRecall | None:
    """Return the measured recall of a run; None where there is none, or it is one of other spans than the run's."""
    from reticent.audit.evidence.json_form import from_json
    from reticent.audit.evidence.sampled import SampledRecall
    from reticent.core.artifact import require_kind
    from reticent.core.json_toml import read_json

    path = run.folder / SAMPLED_RECALL
    if not path.exists():
        return None
    manifest = require_kind(path, SAMPLED_RECALL)
    if manifest.inputs["spans"] != run.fingerprints.of("spans"):
        run.progress.warn_once(
            f"{path}: measured on other spans than the run has now; it is left out of the report until `reticent "
            "detect evaluate` measures the annotations again"
        )
        return None
    return from_json(SampledRecall, read_json(path / "recall.json"), str(path))
