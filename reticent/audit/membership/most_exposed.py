"""The members who are most easily identified (definitions.md#the-most-exposed): a mean over all hides them.

An area of .55 may be 30 members of 300 who score above every other person, and 270 who are indistinguishable. So each
area comes with the attack's true-positive rate at 1 % false positives. It is meaningful from `FEWEST_OTHERS` and
`FEWEST_MEMBERS` on: chance alone gives .003 to .021 there. Below, the members who score above *every* other are
counted. By chance the first a of m members and n others are all members with probability C(m + n - a, n) /
C(m + n, n), so a few of them show that members are identified; none of them shows nothing.

The intervals of all attacks are simultaneous, as in :func:`reticent.audit.stats.intervals.joint_areas`. Where the split
keeps households together, they are drawn, and the unit of the exact test is the household.

Cost: O(attacks x num_bootstrap x individuals).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.audit.evidence.membership import Told
from reticent.audit.membership.names import FEWEST_MEMBERS, FEWEST_OTHERS
from reticent.audit.stats.estimate import LEVEL, Estimate, clopper_pearson
from reticent.audit.stats.intervals import NORMAL, cluster_tops, clusters_of, iter_resamples, joint_reach

FPR = 0.01


def chance_of_the_top(num_above: int, num_members: int, num_others: int) -> float:
    """Return the probability that the ``num_above`` highest scores all belong to members if scores do not depend on
    membership (hypergeometric).

    >>> round(chance_of_the_top(8, 300, 300), 4)
    0.0037
    """
    row = np.arange(num_above)
    return float(np.prod((num_members - row) / (num_members + num_others - row)))


def most_exposed_members(
    scores: Mapping[Any, np.ndarray],
    codes: np.ndarray,
    is_member: np.ndarray,
    uncopied: np.ndarray | None = None,
    *,
    at_once: int = 1,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> dict[Any, Told]:
    """Return for each attack how many members it identifies almost without error: its true-positive rate at 1 % false
    positives, and the number of members who score above every non-member.

    Parameters
    ----------
    scores : attack -> float array, shape (individuals,), higher for members; NaN for an individual without a score
    codes : integer array, shape (individuals,), their codes
    is_member : bool array, shape (individuals,)
    uncopied : bool array, shape (individuals,), False for held-out individuals who hold near-copies of members'
        documents, who are left out: a single one scores like an exposed member and hides the others. None: keep all
    at_once : largest number of individuals who share a score and count as one in the test
    units : as for `clusters_of`

    Returns
    -------
    dict
        An attack without a score on a side is left out.
    """
    if uncopied is not None:
        scores = {name: np.where(uncopied, own, np.nan) for name, own in scores.items()}
    clusters = clusters_of(codes, units)
    sides = [_Side(np.flatnonzero(side), clusters) for side in (is_member, ~is_member)]
    known = {name: own for name, own in scores.items() if all((~np.isnan(own[side.rows])).any() for side in sides)}
    large = {name: own for name, own in known.items() if _are_enough(own, *sides)}
    rates = _low_fpr_rates(large, *sides, num_bootstrap=num_bootstrap, seed=seed)
    result = {}
    for name, own in known.items():
        members, others = (side.highest_scores(own) for side in sides)
        num_above, sizes = int(np.count_nonzero(members > others.max())), (len(members), len(others))
        num = int(np.count_nonzero(~np.isnan(own[sides[0].rows])))
        rate = rates.get(name)
        if rate is None:
            low, high = clopper_pearson(num_above, sizes[0], level=1 - (1 - LEVEL) / len(known))
            rate = Estimate(value=num_above / sizes[0], low=low, high=high, n=sizes[0], method=ABOVE)
        if clusters is not None:
            rate = rate.over_households(num)
        result[name] = Told(
            rate=rate,
            fpr=FPR if name in large else None,
            num_above=num_above,
            p_value=chance_of_the_top(-(-num_above // at_once), -(-sizes[0] // at_once), sizes[1]),
        )
    return result


ABOVE = "Clopper-Pearson over individuals, above every other"


@dataclass(frozen=True, slots=True)
class _Side:
    """The rows of the individuals of one side, and the household of every row of both sides (None without
    households)."""

    rows: np.ndarray
    clusters: np.ndarray | None

    def highest_scores(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores of the individuals of this side, NaN left out; with households, only the highest score in
        each."""
        own = scores[self.rows]
        there = ~np.isnan(own)
        return own[there] if self.clusters is None else cluster_tops(own[there], self.clusters[self.rows][there])

    def own_clusters(self) -> np.ndarray | None:
        """Return the household of each individual of this side, numbered from 0; None without households."""
        if self.clusters is None:
            return None
        return np.unique(self.clusters[self.rows], return_inverse=True)[1].reshape(-1)


def _are_enough(scores: np.ndarray, members: _Side, others: _Side) -> bool:
    """Return whether both sides have enough scored individuals (or households) for a rate at 1 % false positives."""
    return len(members.highest_scores(scores)) >= FEWEST_MEMBERS and len(others.highest_scores(scores)) >= FEWEST_OTHERS


def _low_fpr_rates(
    scores: Mapping[Any, np.ndarray], members: _Side, others: _Side, *, num_bootstrap: int, seed: int
) -> dict[Any, Estimate]:
    """Return attack -> true-positive rate at the false-positive rate `FPR`, with bootstrap intervals that hold
    simultaneously for all attacks."""
    if not scores:
        return {}
    ranked = {name: _Ranked.of(own[members.rows], own[others.rows]) for name, own in scores.items()}
    ones = [np.ones((1, len(side.rows))) for side in (members, others)]
    values = np.array([own.rates(*ones)[0] for own in ranked.values()])
    rows = max(1, (1 << 23) // (len(members.rows) + len(others.rows)))
    draws = np.concatenate(
        [
            np.stack([own.rates(of_members, of_others) for own in ranked.values()], axis=1)
            for of_members, of_others in zip(
                iter_resamples(len(members.rows), num_bootstrap, seed, rows=rows, clusters=members.own_clusters()),
                iter_resamples(len(others.rows), num_bootstrap, seed + 1, rows=rows, clusters=others.own_clusters()),
                strict=True,
            )
        ]
    )
    reach, spread = joint_reach(values, draws.T, LEVEL)
    reach = max(reach, NORMAL)
    level = math.erf(reach / math.sqrt(2))
    result = {}
    for name, value, error in zip(scores, values.tolist(), spread.tolist(), strict=True):
        num = len(members.highest_scores(scores[name]))
        low, high = clopper_pearson(round(value * num), num, level=level)
        low, high = (value - reach * error, max(high, value + reach * error)) if value <= 0.5 else (
            min(low, value - reach * error), value + reach * error
        )  # fmt: skip
        method = f"max-statistic bootstrap over individuals, {len(scores)} attacks"
        result[name] = Estimate(value=value, low=max(low, 0.0), high=min(high, 1.0), n=num, method=method)
    return result


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The sorted scores of both sides, members ascending and others descending, each with its original rows."""

    members: np.ndarray
    order_of_members: np.ndarray
    others: np.ndarray
    order_of_others: np.ndarray

    @classmethod
    def of(cls, members: np.ndarray, others: np.ndarray) -> _Ranked:
        """Sort both sides' scores, members' ascending and others' descending, NaN left out. The original positions are
        kept, so that bootstrap resamples need not be sorted."""
        rising, falling = np.argsort(members, kind="stable"), np.argsort(-others, kind="stable")
        rising, falling = rising[~np.isnan(members[rising])], falling[~np.isnan(others[falling])]
        return cls(members[rising], rising, others[falling], falling)

    def rates(self, member_counts: np.ndarray, other_counts: np.ndarray) -> np.ndarray:
        """Return the true-positive rate at the false-positive rate `FPR` in each bootstrap resample, float64. A row of
        the two arrays counts how often each member, and each other, is drawn."""
        running = np.cumsum(other_counts[:, self.order_of_others], axis=1)
        allowed = np.floor(FPR * running[:, -1:] + 1e-9)
        threshold = self.others[np.minimum((running <= allowed).sum(axis=1), len(self.others) - 1)]
        below = np.concatenate(
            [np.zeros((len(member_counts), 1)), np.cumsum(member_counts[:, self.order_of_members], axis=1)], 1
        )
        up_to = np.searchsorted(self.members, threshold, side="right")
        with np.errstate(invalid="ignore", divide="ignore"):
            return (below[:, -1] - below[np.arange(len(below)), up_to]) / below[:, -1]
