"""Membership of one user of a word by the likelihood ratio of its score, given how a model protects words.

Definition: definitions.md#threshold-attack.

A word of *t* users is a target with probability pi(t): 0 or 1 by a fixed threshold, between them by a noisy one
(:class:`reticent.engine.noisy_threshold.Noise`; where individuals vote, all users of a word are taken for voters). Who
knows the membership of all users but one, *x*, knows that there are s or s + 1 of them, and weighs how much likelier
the word became under the model by the ratio of the two likelihoods. These are mixtures of two normal distributions, of
words that were targets and of words that were not; the distributions are fitted to the model's own words of known
numbers of users, so no shadow is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from reticent.engine.noisy_threshold import Noise

__all__ = ["WordLikelihood", "fit_likelihood", "target_shares"]

#: Smallest probability that a word is a target, or is none: a hash key or a tokenizer may go another way.
DOUBT = 1e-3
#: A density below is no evidence: the tails of a fitted normal distribution are not.
LEAST_DENSITY = 1e-6
#: Users of the words that are looked at beyond those that are targets for certain, and at most.
BEYOND, MOST_USERS = 3, 1024
#: Where individuals vote, words are targets for certain by so many users that few have just a few more.
BEYOND_SHARE = 0.5
#: What is outside of these quantiles of the words counts as they do: a token that a model cannot say is one token.
CLIPPED = (0.01, 0.99)
#: Words that must be of each kind.
FEWEST = 10
NUM_STEPS = 100


def target_shares(k: int, noise: Noise | None) -> np.ndarray:
    """Return the probability that a word is a target, by its users among the members, up to those where it is for
    certain and some more, float64.
    """
    if noise is None:
        return (np.arange(k + BEYOND + 1) >= k).astype(np.float64)
    shares = noise.shares(k, MOST_USERS)
    certain = int(np.argmax(shares >= 1 - DOUBT) or MOST_USERS)
    beyond = BEYOND if noise.max_words is None else max(BEYOND, int(BEYOND_SHARE * certain))
    return shares[: certain + beyond + 1]


@dataclass(frozen=True, slots=True)
class WordLikelihood:
    """Mean and deviation of words that were no targets and of those that were, each of shape (2,); ``limits`` of what a
    word can show; and ``shares``, as of `target_shares`.
    """

    means: np.ndarray
    deviations: np.ndarray
    limits: np.ndarray
    shares: np.ndarray

    def ratio(self, values: np.ndarray, users: np.ndarray) -> np.ndarray:
        """Return the log likelihood ratio of one user more, of words with so many certain users, float64.

        Parameters
        ----------
        values : float64 array, how much likelier each word became
        users : int array, below ``len(shares) - 1``
        """
        values = np.clip(values, *self.limits)
        none, target = (
            np.exp(-(((values - mean) / deviation) ** 2) / 2) / deviation + LEAST_DENSITY
            for mean, deviation in zip(self.means, self.deviations, strict=True)
        )
        with_more, without = (np.clip(self.shares[users + more], DOUBT, 1 - DOUBT) for more in (1, 0))
        likelihoods = (share * target + (1 - share) * none for share in (with_more, without))
        above, below = map(np.log, likelihoods)
        return np.asarray(above - below)


def fit_likelihood(values: np.ndarray, users: np.ndarray, shares: np.ndarray) -> WordLikelihood | None:
    """Fit the two distributions to words by their number of users among the members (expectation maximisation with
    known weights); None where too few words are of a kind.

    Parameters
    ----------
    values : float64 array, shape (W,), how much likelier each word became
    users : int array, shape (W,), from 1 to ``len(shares) - 1``
    """
    if len(values) == 0:
        return None
    limits = np.quantile(values, CLIPPED)
    values, prior = np.clip(values, *limits), shares[users]
    weights = prior
    for _ in range(NUM_STEPS):
        kinds = np.stack([1 - weights, weights])
        totals = kinds.sum(axis=1)
        if totals.min() < FEWEST:
            return None
        means = kinds @ values / totals
        spread = (kinds * (values - means[:, np.newaxis]) ** 2).sum(axis=1) / totals
        deviations = np.sqrt(np.maximum(spread, 1e-12 + 1e-4 * values.var()))
        scaled = (values - means[:, np.newaxis]) / deviations[:, np.newaxis]
        with np.errstate(divide="ignore"):
            log_none, log_target = np.log([1 - prior, prior]) - scaled**2 / 2 - np.log(deviations)[:, np.newaxis]
        before, weights = weights, 1 / (1 + np.exp(np.clip(log_none - log_target, -700, 700)))
        if np.abs(weights - before).max() < 1e-6:
            break
    return WordLikelihood(means, deviations, limits, shares)
