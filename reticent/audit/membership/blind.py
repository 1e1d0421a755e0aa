"""The blind baseline: how well members can be distinguished from held-out individuals without the model.

The features are words, length, number of documents, dates, and groups such as a site. If one of them separates the
sides, these differ by themselves, and an attack can succeed on a model that remembers no individual (Das et al. 2024;
Meeus et al. 2024).

Of words, and of each group, the classifier is naive Bayes over the bag of an individual, cross-validated by individual,
or by household where there are any: its members share words and a side. A bootstrap of cross-validated scores gives
intervals that are too narrow: each individual trains some classifiers and is scored by another, so a chance similarity
counts twice. The interval therefore comes from the same computation on permuted memberships, and so does the p value,
of the best of all these areas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.stats import rankdata

from reticent.audit.evidence.membership import Blind
from reticent.audit.leakage.words import Words
from reticent.audit.stats.intervals import LEVEL, Estimate
from reticent.engine.document_kernels import document_ranks
from reticent.engine.randomness import generator

NUM_FOLDS = 5
NUM_PERMUTATIONS = 199
#: Permutations if none of the first is as far from chance, so that a p value of one in a thousand can be seen.
MOST_PERMUTATIONS = 1999
#: Permutations computed at once; memory is this many numbers for each distinct word.
AT_ONCE = 25
#: Years, and dates that are one word, with the year first or last.
DATE = re.compile(r"((?:19|20)\d\d)(?:[-/.](\d\d?))?(?:[-/.](\d\d?))?|(?:(\d\d?)[-/.])?(\d\d?)[-/.]((?:19|20)\d\d)")


def year_of(text: str) -> float:
    """Return the date that a word stands for, as a year with decimals; NaN if it is no date.

    >>> year_of("2019"), year_of("2019-07-02"), year_of("2.7.2019"), year_of("1066")
    (2019.0, 2019.5027777777777, 2019.5027777777777, nan)
    """
    found = DATE.fullmatch(text)
    if not found:
        return math.nan
    first, month, day, other_day, other_month, last = (int(part or 0) for part in found.groups())
    return (first or last) + max((month or other_month) - 1, 0) / 12 + max((day or other_day) - 1, 0) / 360


def blind_baseline(features: BlindFeatures, seed: int = 0) -> Blind:
    """Return the AUC at which members and held-out individuals can be told apart without the model, by the best feature
    of their documents (words, length, dates, groups), and that feature's name.

    The interval contains 0.5 if and only if a permutation test at 5 % is not significant. The value is None if a side
    has fewer than two individuals with words, or if no two individuals share a word.

    Cost: 400 additions for each distinct word of each individual, ten times as many where chance has not done as well
    in 199 permutations; memory is 25 numbers for each distinct word.
    """
    codes, unit_member, unit = features.codes, features.unit_member, features.unit
    num_members = int(np.count_nonzero(unit_member[unit]))
    num_nonmembers = len(codes) - num_members
    if features.are_too_few:
        none = Estimate(value=None, n=len(codes), method="too few individuals or words")
        return Blind(auc=none, num_members=num_members, num_nonmembers=num_nonmembers)
    bags_by_name, ranks = features.bags_by_name, {name: rankdata(values) for name, values in features.numbers.items()}
    unit_fold = _assign_folds(unit_member, seed)
    num, areas = NUM_PERMUTATIONS, np.empty((len(bags_by_name) + len(ranks), 0))
    while True:
        more = _permute_memberships(unit_member, unit_fold, seed, num)[:, areas.shape[1] :][unit]
        areas = np.concatenate([areas, _permuted_aucs(bags_by_name, ranks, more, unit_fold[unit])], axis=1)
        spread = areas[:, 1:].std(axis=1, keepdims=True)
        steps = np.abs(areas - 0.5) / np.where(spread > 0, spread, 1.0)
        largest = steps.max(axis=0)
        p_value = float(np.mean(largest >= largest[0]))
        if num == MOST_PERMUTATIONS or p_value > 1 / (num + 1):
            break
        num = MOST_PERMUTATIONS
    best = int(np.argmax(steps[:, 0]))
    # The distance from 0.5 that at most 5 % of all areas exceed, the observed one included.
    reach = float(np.quantile(largest, LEVEL, method="higher")) * float(spread[best, 0] or 1.0)
    value = float(areas[best, 0])
    auc = Estimate(
        value=value,
        low=max(value - reach, 0.0),
        high=min(value + reach, 1.0),
        n=len(codes),
        method=f"{num} permutations of the individuals",
    )
    if len(unit_member) < len(codes):
        auc = replace(auc, n=len(unit_member)).over_households(len(codes))
    name = [*bags_by_name, *ranks][best]
    return Blind(auc=auc, by=name, p_value=p_value, num_members=num_members, num_nonmembers=num_nonmembers)


def blind_scores(features: BlindFeatures, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays: the codes of the individuals with words, and their log-odds of membership by cross-validated
    logistic regression on features of their documents, without the model. Both are empty if there are too few
    individuals."""
    from sklearn.linear_model import LogisticRegression

    if features.are_too_few:
        return np.empty(0, dtype=np.int64), np.empty(0)
    member, fold = features.unit_member[features.unit], _assign_folds(features.unit_member, seed)[features.unit]
    columns = [_held_out_scores(bags, member[:, None], fold)[:, 0] for bags in features.bags_by_name.values()]
    said = np.stack([*columns, *features.numbers.values()], axis=1)
    spread = said.std(axis=0)
    said = (said - said.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    scores = np.empty(len(said))
    for held_out in np.unique(fold):
        model = LogisticRegression().fit(said[fold != held_out], member[fold != held_out])
        scores[fold == held_out] = model.decision_function(said[fold == held_out])
    return features.codes, scores


@dataclass(frozen=True, slots=True)
class BlindFeatures:
    """Features of individuals that show without the model: bags of words and group indicators, numbers
    that vary, the unit (household) of each individual, and the side of each unit."""

    codes: np.ndarray
    bags_by_name: dict[str, Any]
    numbers: dict[str, np.ndarray]
    unit: np.ndarray
    unit_member: np.ndarray

    @classmethod
    def of(
        cls,
        words: Words,
        surfaces: np.ndarray,
        is_member: np.ndarray,
        *,
        dates: np.ndarray | None = None,
        groups: Mapping[str, np.ndarray] | None = None,
        units: np.ndarray | None = None,
    ) -> BlindFeatures:
        """Return the features of individuals' documents that need no model (bag of words, groups, length, dates), for
        the individuals whose words are given.

        Parameters
        ----------
        words : Words of the documents
        surfaces : integer array, shape (S,), the number of each word's surface form; negative for none
        is_member : bool array, shape (documents,)
        dates : float array, shape (S,), in years, of words that are dates; NaN for others. None: no word is one
        groups : name -> label of each individual of the documents (by code, ascending)
        units : household of each individual (by code); all of one are on one side. None: every individual is one
        """
        known = surfaces >= 0
        codes, first, rows = np.unique(words.individuals[known], return_index=True, return_inverse=True)
        member = is_member[words.documents[known][first]]
        distinct, columns = np.unique(surfaces[known], return_inverse=True)
        bags = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(codes), len(distinct))).tocsr()
        bags_by_name = {"words": bags[:, np.flatnonzero(np.bincount(bags.indices, minlength=len(distinct)) > 1)]}
        _, of_unit, unit = np.unique(
            codes if units is None else np.asarray(units)[codes], return_index=True, return_inverse=True
        )
        all_codes = np.unique(words.individuals)
        for name, labels in (groups or {}).items():
            _, group = np.unique(labels[np.searchsorted(all_codes, codes)], return_inverse=True)
            bags_by_name[name] = coo_array((np.ones(len(codes)), (np.arange(len(codes)), group))).tocsr()
        made = _numeric_features(words, codes, dates) if len(codes) else {}
        numbers = {name: values for name, values in made.items() if np.ptp(values)}
        return cls(codes, bags_by_name, numbers, unit, member[of_unit])

    @property
    def are_too_few(self) -> bool:
        """Whether the features do not allow a classifier to be trained: members or others are fewer than two
        individuals (or households), or no two individuals use the same word."""
        sides = np.count_nonzero(self.unit_member), np.count_nonzero(~self.unit_member)
        return bool(min(sides) < 2 or self.bags_by_name["words"].shape[1] == 0)


def _numeric_features(words: Words, codes: np.ndarray, dates: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return name -> value of each individual, float64 (individuals,): total length in words, number of documents and,
    if ``dates`` are known, mean date."""
    kept = np.isin(words.individuals, codes)
    row = np.searchsorted(codes, words.individuals[kept])
    _, owner = np.unique(words.documents[kept], return_index=True)
    found = {
        "length": np.bincount(row, minlength=len(codes)).astype(np.float64),
        "number of documents": np.bincount(row[owner], minlength=len(codes)).astype(np.float64),
    }
    years = np.full(len(row), np.nan) if dates is None else dates[kept]
    dated = ~np.isnan(years)
    if dated.any():
        counts = np.bincount(row[dated], minlength=len(codes))
        means = np.bincount(row[dated], years[dated], minlength=len(codes)) / np.maximum(counts, 1)
        found["dates"] = np.where(counts > 0, means, np.median(means[counts > 0]))
    return found


def _permuted_aucs(
    bags_by_name: Mapping[str, Any],
    ranks: Mapping[str, np.ndarray],
    memberships: np.ndarray,
    fold_of_individual: np.ndarray,
) -> np.ndarray:
    """Return the AUC of each feature (words classified by naive Bayes, or a number) under P assignments of individuals
    to members and non-members, given as the columns of ``memberships``; float64 (features, P)."""
    areas = []
    for start in range(0, memberships.shape[1], AT_ONCE):
        own = memberships[:, start : start + AT_ONCE]
        found = [rankdata(_held_out_scores(bags, own, fold_of_individual), axis=0) for bags in bags_by_name.values()]
        found += [rank[:, None] for rank in ranks.values()]
        counts = own.sum(axis=0)  # they differ between permutations of households
        wins = np.array([(values * own).sum(axis=0) for values in found]) - counts * (counts + 1) / 2
        areas.append(wins / (counts * (len(own) - counts)))
    return np.concatenate(areas, axis=1)


def _held_out_scores(bags_of_words: Any, memberships: np.ndarray, fold_of_individual: np.ndarray) -> np.ndarray:
    """Return each individual's log-odds of membership by cross-validated naive Bayes on words, divided by their number
    of words, under each of P assignments of members (columns of ``memberships``); float64 (individuals, P)."""
    scores = np.empty(memberships.shape)
    lengths = np.maximum(bags_of_words.sum(axis=1), 1)[:, None]
    for held_out in range(int(fold_of_individual.max()) + 1):
        seen, asked = np.flatnonzero(fold_of_individual != held_out), np.flatnonzero(fold_of_individual == held_out)
        of_members = bags_of_words[seen].T @ memberships[seen].astype(np.float64)
        of_others = bags_of_words[seen].sum(axis=0)[:, None] - of_members
        log_odds = np.log((of_members + 1) / (of_others + 1))
        log_odds -= np.log((of_members.sum(axis=0) + len(log_odds)) / (of_others.sum(axis=0) + len(log_odds)))
        scores[asked] = (bags_of_words[asked] @ log_odds) / lengths[asked]
    return scores


def _assign_folds(member: np.ndarray, seed: int) -> np.ndarray:
    """Return the cross-validation fold of each unit (individual or household), stratified by membership; int64."""
    num_others = int(np.count_nonzero(~member))
    num_folds = min(NUM_FOLDS, num_others, len(member) - num_others)
    ranks = np.empty(len(member), dtype=np.int64)
    bounds = np.array([0, num_others, len(member)], dtype=np.int64)
    ranks[np.argsort(member, kind="stable")] = document_ranks(generator(seed, 11).random(len(member)), bounds)
    return ranks % num_folds


def _permute_memberships(
    is_member: np.ndarray, fold: np.ndarray, seed: int, num_permutations: int = NUM_PERMUTATIONS
) -> np.ndarray:
    """Return the true memberships of units (individuals or households) in column 0, then random permutations of them
    within each fold; bool (units, 1 + num_permutations)."""
    random, columns = generator(seed, 12), [is_member]
    order = np.argsort(fold, kind="stable")
    for _ in range(num_permutations):
        permuted = np.empty_like(is_member)
        permuted[order] = is_member[np.lexsort((random.random(len(fold)), fold))]
        columns.append(permuted)
    return np.stack(columns, axis=1)
