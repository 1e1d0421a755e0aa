"""The index that protects: that of the members, or with `[threshold] epsilon` one whose threshold is noisy.

The key of the draws stands in the run folder (0600) and is drawn by the system: a key that follows from the documents
would give the draws away to whoever has them. A run again on other documents, or with another epsilon or delta, draws
afresh: by the same numbers the words that are spared would differ only where an individual came or went.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reticent.audit.membership.threshold_likelihood import Noise
    from reticent.engine.ngrams import NgramIndex
    from reticent.job.config import Job
    from reticent.job.run import Run

__all__ = ["KEY", "noise_of", "noise_settings", "protecting"]

#: File of the run folder with the key of the draws.
KEY = "threshold.key"


def protecting(run: Run, index: NgramIndex, k: int) -> NgramIndex:
    """Return the index by which tokens are protected: ``index`` itself without noise."""
    if run.job.threshold.epsilon is None:
        return index
    from reticent.engine.noisy_threshold import noisy_index

    return noisy_index(index, k, run.job.threshold.epsilon, run.job.threshold.delta, _key(run))


def noise_of(job: Job) -> Noise | None:
    """Return the noise in the threshold of protected recipes; None where it is fixed."""
    from reticent.audit.membership.threshold_likelihood import Noise

    return None if job.threshold.epsilon is None else Noise(job.threshold.epsilon, job.threshold.delta)


def noise_settings(run: Run) -> dict[str, Any]:
    """Return what tokens depend on beside their index and policy: nothing without noise; the key by its hash. A look at
    a plan draws no key: where there is none, no tokens are up to date.
    """
    if run.job.threshold.epsilon is None:
        return {}
    if run.fingerprints.looking and not (run.folder / KEY).exists():
        return {"threshold": run.job.threshold.model_dump()}
    key = hashlib.sha256(_key(run)).hexdigest()
    return {"threshold": {**run.job.threshold.model_dump(), "key": key}}


def _key(run: Run) -> bytes:
    """The key of the draws for these documents and settings: 32 bytes that follow from the folder's key and them."""
    from reticent.engine.noisy_threshold import read_or_draw_key

    settings = run.job.threshold
    drawn_for = f"{run.fingerprints.of('index')} {settings.epsilon} {settings.delta}"
    return hashlib.blake2b(drawn_for.encode(), key=read_or_draw_key(run.folder / KEY), digest_size=32).digest()
