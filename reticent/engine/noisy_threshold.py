"""A noisy threshold, which makes the choice of protected words differentially private.

Definitions and proofs: definitions.md#noisy-threshold.

A fixed threshold tells who took part: a word of k - 1 users is protected, one user more and it is not. Here a word of
s users is unprotected with a probability that grows with s (`Noise.shares`), drawn once per word under a secret key,
and never below k. Where epsilon is of each word, it grows as fast as (epsilon, delta) allows from one user to the next
[@desfontaines2022], so as few words as possible are protected beyond k. Where it is of an individual, each counts for a
bounded number of words (:mod:`reticent.engine.dp_vocabulary`).
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from reticent.core.artifact import write_private
from reticent.core.errors import ArtifactError
from reticent.engine.dp_vocabulary import check_privacy, unprotected_shares_by_votes
from reticent.engine.ngrams import NgramIndex


@dataclass(frozen=True, slots=True)
class Noise:
    """Parameters of the noise on the threshold of protection.

    Attributes
    ----------
    max_words : None: epsilon and delta are of each word; else of an individual, who votes for so many words at most
    """

    epsilon: float
    delta: float
    max_words: int | None = None

    def shares(self, k: int, largest: int) -> np.ndarray:
        """Return the probability that a word is unprotected by the randomised threshold, for each number of users (or
        voters) of the word from 0 to ``largest``: float64 (largest + 1,), 0 below k."""
        if self.max_words is None:
            return unprotected_shares(k, self.epsilon, self.delta, largest)

        return unprotected_shares_by_votes(k, self.max_words, self.epsilon, self.delta, largest)


def unprotected_shares(k: int, epsilon: float, delta: float, largest: int) -> np.ndarray:
    """Return the probability that a word is unprotected if the threshold k is randomised with (epsilon, delta)-privacy,
    for each number of individuals using it from 0 to ``largest``: float64 (largest + 1,).

    It is 0 below k, rises, and becomes 1 (`PolicyError` where epsilon is not over 0, or delta not in (0, 1)).

    >>> unprotected_shares(2, 1.0, 0.1, 5).round(3).tolist()
    [0.0, 0.0, 0.1, 0.372, 0.806, 0.965]
    """
    check_privacy(epsilon, delta)
    shares, share = np.zeros(max(largest, k) + 1), 0.0
    for users in range(k, len(shares)):
        share = min(math.exp(epsilon) * share + delta, 1 - math.exp(-epsilon) * (1 - share - delta), 1.0)
        shares[users] = share
    return shares[: largest + 1]


def noisy_index(index: NgramIndex, k: int, noise: Noise, key: bytes, *, voters: np.ndarray | None = None) -> NgramIndex:
    """Return a copy of an n-gram index, reduced to single words, in which the words that the noisy threshold protects
    have a support below k. ``voters`` (one count per word), if given, is compared with the threshold in place of
    supports.

    It serves for protection by single words alone (n = 1). The draw of a word depends on key and word alone, so a word
    that is protected is so in any part of the corpus.

    Parameters
    ----------
    voters : int array, shape (num words,), where individuals vote (`reticent.engine.dp_vocabulary.count_voters`)

    Cost: a hash of each distinct word with k users or more.
    """
    words = index.words()
    supports = words.column("support").to_numpy().astype(np.int64)
    counts = supports if voters is None else voters
    shares = noise.shares(k, int(counts.max(initial=0)))
    chance = np.ones(len(supports))
    asked = np.flatnonzero(counts >= k)
    chance[asked] = [_uniform(key, word) for word in words.column("word").take(pa.array(asked)).to_pylist()]
    hidden = chance >= shares[counts]
    return index.with_supports(np.where(hidden, np.minimum(supports, k - 1), supports))


def _uniform(key: bytes, word: str) -> float:
    """Return a keyed hash of the word as a number in [0, 1), of 53 bits."""
    digest = hashlib.blake2b(word.encode(), key=key, digest_size=8, person=b"threshold").digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def read_or_draw_key(path: Path) -> bytes:
    """Return the 32-byte key in a file; a missing file is first written (mode 0600) with a random key.

    Whoever has it can tell which thresholds were drawn: it must stay where the documents are.
    """
    if not path.exists():
        write_private(path, secrets.token_bytes(32))
    key = path.read_bytes()
    if len(key) != 32:
        raise ArtifactError(f"{path}: expected a key of 32 bytes, got {len(key)}")
    return key
