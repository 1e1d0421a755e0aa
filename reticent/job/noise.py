"""The index that protects: that of the members, or with `[threshold] epsilon` one whose threshold is noisy.

The key of the draws stands in the run folder (0600) and is drawn by the system: a key that follows from the documents
would give the draws away to whoever has them. A run again on other documents, or with another epsilon or delta, draws
afresh: by the same numbers the words that are spared would differ only where an individual came or went.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from reticent.core.errors import PolicyError
from reticent.core.resolve import resolve
from reticent.engine.dp_vocabulary import count_voters, numbered_words, word_order
from reticent.engine.noisy_threshold import noisy_index, read_or_draw_key
from reticent.engine.schema import MEMBERS

if TYPE_CHECKING:
    import numpy as np

    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.noisy_threshold import Noise
    from reticent.engine.split import Individuals
    from reticent.job.run import Run

__all__ = ["KEY", "noise_settings", "protecting"]

#: File of the run folder with the key of the draws.
KEY = "threshold.key"


def protecting(run: Run, index: NgramIndex, k: int, individuals: Individuals | None = None) -> NgramIndex:
    """Return the index by which tokens are protected: ``index`` itself without noise.

    ``individuals`` say who are the members that it counts, by default those of the run.
    """
    noise = run.job.threshold.noise
    if noise is None:
        return index

    key = _key(run)
    if noise.max_words is None:
        return noisy_index(index, k, noise, key)
    if individuals is not None:  # of shadow models, which nobody sees: nothing is spent
        return noisy_index(index, k, noise, key, voters=_voters(run, index, individuals, noise, key))
    # Of the run's members, for each of its recipes and trainings.
    voters = run.once("voters", key, lambda: _voters(run, index, run.individuals, noise, key))
    with resolve("reticent.ext.dp.charges:charged_vocabulary")(run, noise, key, k, index.num_units):
        return noisy_index(index, k, noise, key, voters=voters)


def _voters(run: Run, index: NgramIndex, individuals: Individuals, noise: Noise, key: bytes) -> np.ndarray:
    """The voters of each word of an index among the members."""

    assert noise.max_words is not None
    if noise.delta * index.num_units >= 1:
        raise PolicyError(
            f"threshold.delta: {noise.delta:g} is too much for {index.num_units:,} individuals, of whom it may give "
            f"one away for certain; give less than 1 in their number, which is {1 / index.num_units:.1e}"
        )
    numbered = run.numbered
    codes = individuals.individual_codes(run.corpus.scan().column("individual_id"))
    parts = numbered_words(
        numbered.words, numbered.index, index, individuals.units[codes], individuals.mask(MEMBERS)[codes]
    )
    return count_voters(parts, word_order(key, index.words().column("word")), noise.max_words)


def noise_settings(run: Run) -> dict[str, Any]:
    """Return what tokens depend on beside their index and policy: nothing without noise; the key by its hash. A look at
    a plan draws no key: where there is none, no tokens are up to date.
    """
    noise = run.job.threshold.noise
    if noise is None:
        return {}
    settings = _settings(noise)
    if run.fingerprints.looking and not (run.folder / KEY).exists():
        return {"threshold": settings}
    return {"threshold": {**settings, "key": hashlib.sha256(_key(run)).hexdigest()}}


def _settings(noise: Noise) -> dict[str, Any]:
    return {name: value for name, value in asdict(noise).items() if value is not None}


def _key(run: Run) -> bytes:
    """The key of the draws for these documents and settings: 32 bytes that follow from the folder's key and them."""

    noise = run.job.threshold.noise
    assert noise is not None
    drawn_for = " ".join(map(str, (run.fingerprints.of("index"), *_settings(noise).values())))
    return hashlib.blake2b(drawn_for.encode(), key=read_or_draw_key(run.folder / KEY), digest_size=32).digest()
