"""The blind baseline: a classifier that separates members by their words alone, without the model.

The baseline must fail. If it succeeds, the two sides differ in their topics or dates, and an attack can succeed on a
model that remembers no individual (Das et al. 2024; Meeus et al. 2024).

The classifier is naive Bayes over the bag of words of an individual, cross-validated by individual, or by household
where there are any: its members share words and a side. A bootstrap of cross-validated scores gives intervals that are
too narrow: each individual trains some classifiers and is scored by another, so a chance similarity counts twice. The
interval therefore comes from the same computation on permuted memberships.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.stats import rankdata

from reticent.audit.evidence.membership import Blind
from reticent.audit.leakage.words import Words
from reticent.audit.stats.intervals import LEVEL, Estimate
from reticent.engine.document_kernels import document_ranks
from reticent.engine.randomness import generator

__all__ = ["blind_baseline"]

NUM_FOLDS = 5
NUM_PERMUTATIONS = 199
#: Permutations computed at once; memory is this many numbers for each distinct word.
AT_ONCE = 25


def blind_baseline(
    words: Words, surfaces: np.ndarray, is_member: np.ndarray, *, units: np.ndarray | None = None, seed: int = 0
) -> Blind:
    """Return the area under the ROC curve at which words alone distinguish members.

    The interval contains 0.5 if and only if a permutation test at 5 % is not significant. The value is None if a side
    has fewer than two individuals with words, or if no two individuals share a word.

    Parameters
    ----------
    words : Words of the documents
    surfaces : integer array, shape (S,), the surface number of each word; negative for none
    is_member : bool array, shape (documents,)
    units : household of each individual (by code); all of one are on one side. None: every individual is one

    Cost: 400 additions for each distinct word of each individual; memory is 25 numbers for each distinct word.
    """

    known = surfaces >= 0
    codes, first, rows = np.unique(words.individuals[known], return_index=True, return_inverse=True)
    member = is_member[words.documents[known][first]]
    num_members = int(np.count_nonzero(member))
    num_nonmembers = len(codes) - num_members
    distinct, columns = np.unique(surfaces[known], return_inverse=True)
    bags = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(codes), len(distinct))).tocsr()
    bags = bags[:, np.flatnonzero(np.bincount(bags.indices, minlength=len(distinct)) > 1)]
    _, of_unit, unit = np.unique(
        codes if units is None else np.asarray(units)[codes], return_index=True, return_inverse=True
    )
    unit_member = member[of_unit]
    if min(np.count_nonzero(unit_member), np.count_nonzero(~unit_member)) < 2 or bags.shape[1] == 0:
        none = Estimate(value=None, n=len(codes), method="too few individuals or words")
        return Blind(auc=none, num_members=num_members, num_nonmembers=num_nonmembers)
    unit_fold = _deal(unit_member, seed)
    fold, memberships = unit_fold[unit], _permuted(unit_member, unit_fold, seed)[unit]
    scores = [
        _held_out_scores(bags, memberships[:, start : start + AT_ONCE], fold)
        for start in range(0, memberships.shape[1], AT_ONCE)
    ]
    ranks = rankdata(np.concatenate(scores, axis=1), axis=0)
    counts = memberships.sum(axis=0)  # they differ between permutations of households
    wins = (ranks * memberships).sum(axis=0) - counts * (counts + 1) / 2
    areas = wins / (counts * (len(codes) - counts))
    # The distance from 0.5 that at most 5 % of all areas exceed, the observed one included.
    reach = float(np.quantile(np.abs(areas - 0.5), LEVEL, method="higher"))
    auc = Estimate(
        value=float(areas[0]),
        low=max(float(areas[0]) - reach, 0.0),
        high=min(float(areas[0]) + reach, 1.0),
        n=len(codes),
        method=f"{NUM_PERMUTATIONS} permutations of the individuals",
    )
    if len(unit_member) < len(codes):
        auc = replace(auc, n=len(unit_member)).over_households(len(codes))
    return Blind(auc=auc, num_members=num_members, num_nonmembers=num_nonmembers)


def _held_out_scores(bags: Any, memberships: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return the mean log-odds of each individual's words under the classifiers that were not trained on that
    individual, float64, shape (individuals, P).
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
    """Return the fold of each individual, with an equal share of both sides in every fold."""
    num_others = int(np.count_nonzero(~member))
    num_folds = min(NUM_FOLDS, num_others, len(member) - num_others)
    ranks = np.empty(len(member), dtype=np.int64)
    bounds = np.array([0, num_others, len(member)], dtype=np.int64)
    ranks[np.argsort(member, kind="stable")] = document_ranks(generator(seed, 11).random(len(member)), bounds)
    return ranks % num_folds


def _permuted(member: np.ndarray, fold: np.ndarray, seed: int) -> np.ndarray:
    """Return the memberships and their permutations within each fold, bool, shape (individuals, 1 + permutations)."""
    random, columns = generator(seed, 12), [member]
    order = np.argsort(fold, kind="stable")
    for _ in range(NUM_PERMUTATIONS):
        permuted = np.empty_like(member)
        permuted[order] = member[np.lexsort((random.random(len(fold)), fold))]
        columns.append(permuted)
    return np.stack(columns, axis=1)
