"""Named groups: the p-value against every permutation, calibration, and groups that are told where nobody is."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from reticent.audit.evidence.rules import publish
from reticent.audit.membership.groups import group_membership, permutation_p_value
from reticent.audit.membership.validity import holds_chance
from reticent.audit.stats.intervals import auc_estimate

OPTIONS: Any = {"num_bootstrap": 200, "seed": 0}


@pytest.mark.parametrize("households", [False, True])
def test_the_p_value_is_the_share_of_permutations_as_high(households: bool) -> None:
    scores = np.array([3.0, 1.0, 2.5, 0.5, np.nan, 2.0, 0.1, 4.0])
    units = np.array([0, 0, 1, 2, 3, 4, 5, 6]) if households else np.arange(8)
    member = np.isin(units, [0, 1, 6])
    known = ~np.isnan(scores)
    ranks = np.argsort(np.argsort(scores[known])) + 1.0
    own = {unit: ranks[units[known] == unit].mean() for unit in np.unique(units[known])}
    members = {int(unit) for unit in units[known & member]}
    sums = [sum(own[unit] for unit in dealt) for dealt in itertools.combinations(own, len(members))]
    exact = np.mean([total >= sum(own[unit] for unit in members) - 1e-9 for total in sums])
    assert permutation_p_value(scores, member, units, 0) == pytest.approx(exact, abs=0.015)


def test_a_group_is_told_where_no_person_is_and_a_group_of_chance_as_often_as_it_says() -> None:
    codes, low = np.arange(600), 0
    member = codes % 2 == 0
    group = codes < 400
    for seed in range(60):
        random = np.random.default_rng(seed)
        low += permutation_p_value(random.normal(size=60), member[:60], codes[:60], seed) <= 0.05
    assert low <= 7  # three of 60, and two standard errors
    scores = {"loss": np.random.default_rng(0).normal(size=600) + 0.4 * member}
    (found,) = group_membership(scores, codes, member, {"ward 7": group}, **OPTIONS)
    assert (found.name, found.num_members, found.num_nonmembers, found.attack) == ("ward 7", 200, 200, "loss")
    assert found.p_value is not None
    assert found.p_value < 0.01
    assert found.auc == auc_estimate(
        scores["loss"][:400:2], scores["loss"][1:400:2], (codes[:400:2], codes[1:400:2]), **OPTIONS
    )
    few = auc_estimate(scores["loss"][:20:2], scores["loss"][1:20:2], (codes[:20:2], codes[1:20:2]), **OPTIONS)
    assert holds_chance(few)


def test_more_attacks_count_and_a_group_of_one_side_or_of_few_says_nothing() -> None:
    codes, member = np.arange(40), np.arange(40) % 2 == 0
    noise = np.random.default_rng(1).normal(size=(3, 40))
    scores = {"a": noise[0] + member, "b": noise[1], "c": np.where(member, np.nan, noise[2])}
    groups = {"all": codes >= 0, "members": member, "few": codes < 6, "nobody": codes < 0}
    found = {one.name: one for one in group_membership(scores, codes, member, groups, **OPTIONS)}
    alone = permutation_p_value(scores["a"], member, codes, 0)
    assert (found["all"].attack, found["all"].p_value) == ("a", pytest.approx(min(4 * alone, 1.0)))  # "c" has no side
    (one,) = group_membership(scores, codes, member, {"all": groups["all"]}, **OPTIONS)
    assert one.p_value == pytest.approx(min(2 * alone, 1.0))  # two attacks on one group
    assert found["all"].auc.low < one.auc.low
    for name in ("members", "nobody"):
        assert (found[name].attack, found[name].auc, found[name].p_value) == (None, None, None)
    assert found["few"].p_value is not None
    shown = publish(found["few"], 5)
    assert (shown.num_members, shown.attack, shown.auc, shown.p_value) == (None, None, None, None)
    assert publish(found["all"], 5) == found["all"]
