"""A vocabulary that is chosen with differential privacy for an individual with all their words together: which words
are protected does not tell who takes part.

Definition and theorem: definitions.md#private-vocabulary. Each individual has a vote of length 1 that is shared among
at most so many words of theirs, votes are summed with Gaussian noise, and a word is unprotected if its sum is over a
threshold that hides whoever alone uses it: the weighted Gaussian policy of [@gopi2020]. `[threshold] epsilon`
(:mod:`reticent.engine.noisy_threshold`) bounds each word alone; this bounds them together, and needs many individuals.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from scipy.stats import norm

from reticent.core.errors import PolicyError
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.graph import WordIds
from reticent.engine.ngrams import NgramIndex
from reticent.engine.schema import MEMBERS

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.split import Individuals

__all__ = ["gaussian_sigma", "private_index", "private_words", "vote_threshold", "votes"]


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the least standard deviation of Gaussian noise that makes a sum of sensitivity 1 (epsilon, delta)-private
    [@balle2018].

    >>> round(gaussian_sigma(4.377178, 1e-5), 3), round(gaussian_sigma(1.993091, 1e-5), 3)
    (1.0, 2.0)
    """
    if not (epsilon > 0 and math.isfinite(epsilon) and 0 < delta < 1):
        raise PolicyError(
            f"vocabulary: expected an epsilon over 0 and a delta between 0 and 1, got {epsilon} and {delta}"
        )

    def spent(sigma: float) -> float:
        half, tail = 1 / (2 * sigma), epsilon * sigma
        return float(norm.cdf(half - tail) - math.exp(epsilon + norm.logcdf(-half - tail)))

    low, high = 1e-3, 1.0
    while spent(high) > delta:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high


def vote_threshold(max_words: int, sigma: float, delta: float) -> float:
    """Return the sum of votes over which a word is unprotected: of words that one individual alone uses, however many
    they voted for, any is over it with probability ``delta`` at most."""
    num = np.arange(1, max_words + 1)
    return float(np.max(1 / np.sqrt(num) + sigma * norm.isf(-np.expm1(np.log1p(-delta) / num))))


def votes(unit: np.ndarray, word: np.ndarray, order: np.ndarray, max_words: int) -> np.ndarray:
    """Return the sum of the votes for each word, float64 (num words,).

    Each individual votes for the words that occur most often in their own documents, at most ``max_words``, each with
    one over the root of their number; their choice depends on their own documents and on ``order`` alone.

    Parameters
    ----------
    unit, word : int arrays, shape (occurrences,), whose word stands there, and its number
    order : int array, shape (num words,), a fixed order of the words that decides between words used equally often
    """
    if max_words < 1:
        raise PolicyError(f"vocabulary: expected at least one word of an individual, got {max_words}")
    num_words = len(order)
    pairs, counts = np.unique(unit.astype(np.int64) * num_words + word, return_counts=True)
    units, words = np.divmod(pairs, num_words)
    ranked = np.lexsort((order[words], -counts, units))
    units, words = units[ranked], words[ranked]
    _, first, lengths = np.unique(units, return_index=True, return_counts=True)
    place = np.arange(len(units)) - np.repeat(first, lengths)
    kept, own = place < max_words, np.repeat(np.minimum(lengths, max_words), lengths)
    return np.bincount(words[kept], weights=1 / np.sqrt(own[kept]), minlength=num_words)


def private_words(sums: np.ndarray, uniform: np.ndarray, max_words: int, epsilon: float, delta: float) -> np.ndarray:
    """Return whether each word is unprotected, bool (num words,): half of ``delta`` is for the noise, half for words of
    one individual.

    Parameters
    ----------
    uniform : float array, shape (num words,), a secret draw in [0, 1) for each word
    """
    sigma = gaussian_sigma(epsilon, delta / 2)
    noise = sigma * norm.isf(np.maximum(uniform, 2.0**-54))
    return (sums > 0) & (sums + noise > vote_threshold(max_words, sigma, delta / 2))


def private_index(
    corpus: Corpus,
    individuals: Individuals,
    index: NgramIndex,
    *,
    max_words: int,
    epsilon: float,
    delta: float,
    key: bytes,
    splits: tuple[str, ...] = (MEMBERS,),
) -> NgramIndex:
    """Return an index by which exactly the words that the private vocabulary leaves out have less than two users.

    It serves for protection by single words with k = 2. The draw of a word depends on the key and the word alone.

    Cost: one pass over the text, 16 bytes a word of it, a hash for each distinct word.
    """
    table, ids = index.words(), WordIds(index)
    unit, word = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for part, words, *_ in FlaggedWords(corpus, individuals, splits=splits):
        word.append(ids.of(part.texts, words).astype(np.int64))
        unit.append(np.repeat(part.units.astype(np.int64), np.diff(words.doc_offsets)))
    draws = _draws(key, table.column("word"))
    sums = votes(np.concatenate(unit), np.concatenate(word), np.argsort(np.argsort(draws[1])), max_words)
    spared = private_words(sums, draws[0], max_words, epsilon, delta)
    supports = table.column("support").to_numpy()
    changed = np.where(spared, np.maximum(supports, 2), np.minimum(supports, 1)).astype(np.uint32)
    columns = [table.column("word"), pa.array(changed), table.column("occurrences")]
    return NgramIndex.from_tables(
        pa.record_batch(columns, schema=table.schema), [], max_n=1, num_units=index.num_units,
        num_documents=index.num_documents, min_support=index.min_support, surface=index.surface,
    )  # fmt: skip


def _draws(key: bytes, words: pa.Array) -> np.ndarray:
    """Two secret draws in [0, 1) for each word, float64 (2, num words): its noise, and its place in the order."""
    digests = b"".join(
        hashlib.blake2b(word.encode(), key=key, digest_size=16, person=b"vocabulary").digest()
        for word in words.to_pylist()
    )
    return (np.frombuffer(digests, dtype="<u8").reshape(-1, 2) >> np.uint64(11)).T * 2.0**-53
