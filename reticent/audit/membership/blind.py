"""The blind baseline: a classifier that never sees the model finds members by their words alone.

It must fail. If it succeeds, the two sides differ in their subjects or in their time, and any attack can succeed on a
model that remembers no individual (Das et al. 2024; Meeus et al. 2024).

The classifier is naive Bayes over the bag of words of an individual, cross-validated by individual. A bootstrap of
cross-validated scores gives intervals that are too narrow: individuals train the classifier of one fold and are scored
in another, so similarity by chance counts twice. So the interval comes from the same computation on permuted
memberships.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.audit.evidence.membership import Blind
from reticent.audit.leakage.words import Words
from reticent.audit.stats.statistics import LEVEL, Estimate
from reticent.engine.document_kernels import document_ranks
from reticent.engine.randomness import generator

__all__ = ["blind_baseline"]

NUM_FOLDS = 5
NUM_PERMUTATIONS = 199
#: Permutations at once: words times this many numbers are held.
AT_ONCE = 25


def blind_baseline(words: Words, surfaces: np.ndarray, is_member: np.ndarray, *, seed: int = 0) -> Blind:
    """Return how well words alone distinguish members.

    The interval holds 0.5 exactly if a permutation test at 5 % finds nothing. The value is None if a side has fewer
    than two individuals with words, or no two individuals share a word.

    Parameters
    ----------
    words, surfaces : words of the documents and the number of each one's surface, shape (S,); negative for none
    is_member : bool array, shape (documents,)

    Cost: 200 · 2 · the distinct words of every individual, in blocks of 25 numbers a distinct word.
    """
    from scipy.sparse import coo_array
    from scipy.stats import rankdata

    known = surfaces >= 0
    codes, first, rows = np.unique(words.individuals[known], return_index=True, return_inverse=True)
    member = is_member[words.documents[known][first]]
    num_members = int(np.count_nonzero(member))
    num_nonmembers = len(codes) - num_members
    distinct, columns = np.unique(surfaces[known], return_inverse=True)
    bags = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(codes), len(distinct))).tocsr()
    bags = bags[:, np.flatnonzero(np.bincount(bags.indices, minlength=len(distinct)) > 1)]
    if min(num_members, num_nonmembers) < 2 or bags.shape[1] == 0:
        none = Estimate(value=None, n=len(codes), method="too few individuals or words")
        return Blind(auc=none, num_members=num_members, num_nonmembers=num_nonmembers)
    fold = _deal(member, seed)
    memberships = _permuted(member, fold, seed)
    scores = [
        _held_out_scores(bags, memberships[:, start : start + AT_ONCE], fold)
        for start in range(0, memberships.shape[1], AT_ONCE)
    ]
    ranks = rankdata(np.concatenate(scores, axis=1), axis=0)
    wins = (ranks * memberships).sum(axis=0) - num_members * (num_members + 1) / 2
    areas = wins / (num_members * num_nonmembers)
    # The smallest distance of a permuted area that at most 5 % of all, the real one among them, go beyond.
    reach = float(np.quantile(np.abs(areas - 0.5), LEVEL, method="higher"))
    auc = Estimate(
        value=float(areas[0]),
        low=max(float(areas[0]) - reach, 0.0),
        high=min(float(areas[0]) + reach, 1.0),
        n=len(codes),
        method=f"{NUM_PERMUTATIONS} permutations of the individuals",
    )
    return Blind(auc=auc, num_members=num_members, num_nonmembers=num_nonmembers)


def _held_out_scores(bags: Any, memberships: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return the mean log-odds of the words of each individual under the classifiers that did not see them,
    (individuals, P).
    """
    scores = np.empty(memberships.shape)
    lengths = np.maximum(bags.sum(axis=1), 1)[:, None]
    for held_out in range(int(fold.max()) + 1):
        seen, asked = np.flatnonzero(fold != held_out), np.flatnonzero(fold == held_out)
        of_members = bags[seen].T @ memberships[seen].astype(np.float64)
        of_others = bags[seen].sum(axis=0)[:, None] - of_members
        log_odds = np.log((of_members + 1) / (of_others + 1))
        log_odds -= np.log((of_members.sum(axis=0) + len(log_odds)) / (of_others.sum(axis=0) + len(log_odds)))
        scores[asked] = (bags[asked] @ log_odds) / lengths[asked]
    return scores


def _deal(member: np.ndarray, seed: int) -> np.ndarray:
    """Return the fold of each individual: each side is dealt evenly to the folds."""
    num_others = int(np.count_nonzero(~member))
    num_folds = min(NUM_FOLDS, num_others, len(member) - num_others)
    ranks = np.empty(len(member), dtype=np.int64)
    bounds = np.array([0, num_others, len(member)], dtype=np.int64)
    ranks[np.argsort(member, kind="stable")] = document_ranks(generator(seed, 11).random(len(member)), bounds)
    return ranks % num_folds


def _permuted(member: np.ndarray, fold: np.ndarray, seed: int) -> np.ndarray:
    """Return the memberships, then permutations of them within each fold: bool (individuals, 1 + permutations)."""
    random, columns = generator(seed, 12), [member]
    order = np.argsort(fold, kind="stable")
    for _ in range(NUM_PERMUTATIONS):
        permuted = np.empty_like(member)
        permuted[order] = member[np.lexsort((random.random(len(fold)), fold))]
        columns.append(permuted)
    return np.stack(columns, axis=1)
