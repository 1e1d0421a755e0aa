"""A named group of individuals (a ward, an employer's list): does a model reveal its members collectively?

A signal that is too weak for one person adds up over many: an area of .55 over 200 is no chance. Within the group,
members are compared with held-out individuals, whom the split drew at random, so the group's topics are on both sides.
The p-value is that of a permutation of who was a member [@maini2021].

Cost: O(attacks x permutations x individuals of the group).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import numpy as np
from scipy.stats import rankdata

from reticent.audit.evidence.membership import GroupMembership
from reticent.audit.stats.intervals import LEVEL, Bootstrap, auc_estimate
from reticent.engine.randomness import generator

NUM_PERMUTATIONS = 9999
_STREAM, _BLOCK = 79, 1 << 22


def group_membership(
    scores: Mapping[str, np.ndarray],
    codes: np.ndarray,
    is_member: np.ndarray,
    groups: Mapping[str, np.ndarray],
    **bootstrap: Unpack[Bootstrap],
) -> list[GroupMembership]:
    """Return for each group of individuals the attack that best separates its members from its held-out individuals,
    with a p-value and an interval corrected (Bonferroni) for all attacks on all groups.

    Parameters
    ----------
    scores : attack -> float array, shape (individuals,), NaN for none
    codes : integer array, shape (individuals,); is_member : bool array of the same shape
    groups : name -> bool array by code
    """
    found, inside = [], {name: of_codes[codes] for name, of_codes in groups.items()}
    asked = {
        name: {attack: one for attack, one in scores.items() if _has_both_sides(one, here, is_member)}
        for name, here in inside.items()
    }
    num_tests = sum(map(len, asked.values()))
    for name, here in inside.items():
        own = asked[name]
        values = {
            attack: permutation_p_value(
                one[here], is_member[here], _units_of_individuals(codes[here], bootstrap), bootstrap["seed"]
            )
            for attack, one in own.items()
        }
        best = min(values, key=lambda attack: values[attack], default=None)
        auc = None
        if best is not None:
            known = here & ~np.isnan(own[best])
            members, others = np.flatnonzero(known & is_member), np.flatnonzero(known & ~is_member)
            score = own[best]
            auc = auc_estimate(
                score[members],
                score[others],
                (codes[members], codes[others]),
                level=1 - (1 - LEVEL) / num_tests,
                **bootstrap,
            )
        found.append(
            GroupMembership(
                name=name,
                num_members=int(np.count_nonzero(here & is_member)),
                num_nonmembers=int(np.count_nonzero(here & ~is_member)),
                attack=best,
                auc=auc,
                p_value=None if best is None else min(values[best] * num_tests, 1.0),
            )
        )
    return found


def permutation_p_value(scores: np.ndarray, is_member: np.ndarray, units: np.ndarray, seed: int) -> float:
    """Return the p-value of a one-sided permutation test that members' scores rank higher than others'. Whole units
    (individuals or households) are permuted; the observed assignment counts as one permutation.

    Parameters
    ----------
    scores : float array, shape (N,), NaN for none; is_member : bool array, shape (N,)
    units : integer array, shape (N,), household of each individual, which is on one side
    """
    known = ~np.isnan(scores)
    _, first, row = np.unique(units[known], return_index=True, return_inverse=True)
    means = np.bincount(row.reshape(-1), rankdata(scores[known])) / np.bincount(row.reshape(-1))
    member = is_member[known][first]
    random, as_high, observed = generator(seed, _STREAM), 1, means[member].sum()
    for start in range(0, NUM_PERMUTATIONS, step := max(1, _BLOCK // len(means))):
        keys = random.random((min(step, NUM_PERMUTATIONS - start), len(means)))
        dealt = np.argsort(keys, axis=1)[:, : np.count_nonzero(member)]
        as_high += int(np.count_nonzero(means[dealt].sum(axis=1) >= observed - 1e-9))
    return as_high / (NUM_PERMUTATIONS + 1)


def _has_both_sides(scores: np.ndarray, in_group: np.ndarray, is_member: np.ndarray) -> bool:
    """Return whether the individuals in the group (mask ``in_group``) who have a score include both a member and a
    non-member."""
    known = in_group & ~np.isnan(scores)
    return bool((known & is_member).any() and (known & ~is_member).any())


def _units_of_individuals(codes: np.ndarray, bootstrap: Bootstrap) -> np.ndarray:
    """Return for each individual the unit that the bootstrap resamples: the number of the household or, without
    households, the individual's own code."""
    units = bootstrap.get("units")
    return codes if units is None else np.asarray(units)[codes]
