"""A vocabulary chosen with differential privacy at the level of individuals: which words are protected does not reveal
who takes part.

Definition and theorem: definitions.md#private-vocabulary. Each individual votes for a bounded number of their words,
and a word is unprotected by a draw whose probability follows from its voters alone: the Gaussian mechanism for the
selection of partitions [@gopi2020], with a floor of k voters. A noisy threshold for each word alone
(:mod:`reticent.engine.noisy_threshold`) costs less, and bounds less; this needs many individuals.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reticent.core.errors import PolicyError

if TYPE_CHECKING:
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.word_ids import NumberedWords

#: Words whose voters are counted at a time.
WORDS_AT_ONCE = 1 << 22


def check_privacy(epsilon: float, delta: float) -> None:
    """Raise `PolicyError` if epsilon is not over 0 and finite, or delta not in (0, 1)."""
    if not (epsilon > 0 and math.isfinite(epsilon) and 0 < delta < 1):
        raise PolicyError(
            f"threshold: expected an epsilon over 0 and a delta between 0 and 1, got {epsilon} and {delta}"
        )


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the least standard deviation of Gaussian noise that gives (epsilon, delta)-privacy at sensitivity 1
    [@balle2018].

    >>> round(gaussian_sigma(4.377178, 1e-5), 3), round(gaussian_sigma(1.993091, 1e-5), 3)
    (1.0, 2.0)
    """
    from scipy.stats import norm

    check_privacy(epsilon, delta)

    def delta_of(sigma: float) -> float:
        """Return the delta of the Gaussian mechanism with this sigma, at ``epsilon`` and sensitivity 1."""
        half, tail = 1 / (2 * sigma), epsilon * sigma
        return float(norm.cdf(half - tail) - math.exp(epsilon + norm.logcdf(-half - tail)))

    low, high = 1e-3, 1.0
    while delta_of(high) > delta:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle) <= delta else (middle, high)
    return high


def vote_threshold(k: int, max_words: int, sigma: float, delta: float) -> float:
    """Return the threshold for the noisy sum of a word's votes (each individual using it adds 1 / sqrt(max_words)),
    above which the word is unprotected. The probability that noise alone lifts a word with only k voters above it is at
    most ``delta`` for all words of one individual together."""
    from scipy.stats import norm

    return float(k / math.sqrt(max_words) + sigma * norm.isf(-math.expm1(math.log1p(-delta) / max_words)))


def unprotected_shares_by_votes(k: int, max_words: int, epsilon: float, delta: float, largest: int) -> np.ndarray:
    """Return the probability that a word is unprotected under the noisy vote, for each number of voters (individuals)
    from 0 to ``largest``: float64 (largest + 1,), 0 below k. Half of ``delta`` is spent on the Gaussian noise, half on
    words with only k voters.

    >>> unprotected_shares_by_votes(2, 100, 8.0, 1e-5, 60)[[1, 20, 35, 60]].round(3).tolist()
    [0.0, 0.008, 0.51, 1.0]
    """
    from scipy.stats import norm

    if max_words < 1:
        raise PolicyError(f"threshold: expected at least one word of an individual, got {max_words}")
    sigma = gaussian_sigma(epsilon, delta / 2)
    voters = np.arange(largest + 1)
    shares = norm.sf((vote_threshold(k, max_words, sigma, delta / 2) - voters / math.sqrt(max_words)) / sigma)
    return np.asarray(np.where(voters >= k, shares, 0.0))


def count_voters(
    occurrences: Iterable[tuple[np.ndarray, np.ndarray]], rank_of_word: np.ndarray, max_words: int
) -> np.ndarray:
    """Return the number of individuals that vote for each word, int64 (num_words,): each votes for the ``max_words``
    words that they use most, ties decided by ``rank_of_word``. ``occurrences`` yields pairs of arrays (individual,
    word).

    Each individual votes for the words that occur most often in their own documents, at most ``max_words``. The choice
    depends on their own documents and on ``rank_of_word`` alone.

    Parameters
    ----------
    occurrences : pairs of int arrays, shape (occurrences,), whose word stands there, and its number; all words of an
        individual are in one part
    rank_of_word : int array, shape (num words,), fixed; the lower rank decides between words used equally often
    """
    num_words = len(rank_of_word)
    voters = np.zeros(num_words, dtype=np.int64)
    for unit, word in occurrences:
        pairs, counts = np.unique(unit.astype(np.int64) * num_words + word, return_counts=True)
        units, words = np.divmod(pairs, num_words)
        _, lengths = np.unique(units, return_counts=True)
        chooses = np.repeat(lengths > max_words, lengths)
        voters += np.bincount(words[~chooses], minlength=num_words)
        if chooses.any():
            units, words, counts = units[chooses], words[chooses], counts[chooses]
            ranked = np.lexsort((rank_of_word[words], -counts, units))
            lengths = lengths[lengths > max_words]
            place = np.arange(len(ranked)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            voters += np.bincount(words[ranked[place < max_words]], minlength=num_words)
    return voters


def iter_word_occurrences(
    words: NumberedWords, source_index: NgramIndex, index: NgramIndex, units: np.ndarray, is_counted: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all word occurrences as pairs of arrays (unit, word), where a word is its row in ``index``; all occurrences
    of a unit (household or individual) come in one pair. ``words`` stores the documents' words as rows of
    ``source_index``.

    Parameters
    ----------
    source_index : the index whose rows number the words
    index : whose rows the words of the parts have; of a word that it does not hold nothing counts
    units, is_counted : of each document its unit, and whether it counts
    """
    import pyarrow.compute as pc

    rows = pc.index_in(source_index.words().column("word"), value_set=index.words().column("word"))
    row_of = np.append(rows.fill_null(-1).to_numpy(), -1).astype(np.int64)
    documents = np.flatnonzero(is_counted)
    documents = documents[np.argsort(units[documents], kind="stable")]
    lengths = words.doc_offsets[documents + 1] - words.doc_offsets[documents]
    total, first = np.cumsum(lengths), 0
    # A part ends where an individual does.
    ends = np.flatnonzero(np.diff(units[documents], append=-1)) + 1
    while first < len(documents):
        full = (total[first - 1] if first else 0) + WORDS_AT_ONCE
        last = int(ends[min(int(np.searchsorted(total[ends - 1], full)), len(ends) - 1)])
        numbers = words.index_rows(documents[first:last])
        word = row_of[np.minimum(numbers, len(row_of) - 1)]
        unit = np.repeat(units[documents[first:last]].astype(np.int64), lengths[first:last])
        yield unit[word >= 0], word[word >= 0]
        first = last


def word_order(key: bytes, words: pa.Array) -> np.ndarray:
    """Return a pseudo-random rank for each word, int64 (num_words,), computed from a secret key and the words alone."""
    digests = b"".join(
        hashlib.blake2b(word.encode(), key=key, digest_size=8, person=b"order").digest() for word in words.to_pylist()
    )
    return np.argsort(np.argsort(np.frombuffer(digests, dtype="<u8")))
