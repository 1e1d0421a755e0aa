"""Leak rates over what one side alone uses, against sets by hand; the leaks that identifiers of both sides hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.audit.evidence.leakage import Excess
from reticent.audit.evidence.rules import publish
from reticent.audit.leakage.identifiers import Identifiers
from reticent.audit.leakage.leakage import (
    Compared,
    excess_leakage,
    exposed_individuals,
    privacy_by_category,
    shared_over_base,
)
from reticent.audit.leakage.unshared import Users, standardised_weights
from reticent.audit.leakage.words import Words
from reticent.audit.stats.estimate import Estimate
from reticent.engine.schema import DIRECT

OPTIONS: dict[str, Any] = {"num_bootstrap": 200, "seed": 0}


class Names:
    """Individuals and the names in their documents, all of them direct; the first half are members."""

    def __init__(self, rows: list[tuple[int, int]], members: set[int], units: np.ndarray | None = None):
        individuals, surfaces = (np.array(column) for column in zip(*rows, strict=True))
        n, zeros = len(rows), np.zeros(len(rows), dtype=np.uint8)
        flags = np.full(n, DIRECT, dtype=np.uint8)
        words = Words(np.arange(n), np.ones(n, dtype=int), individuals, individuals.astype(np.uint32), flags, zeros)
        self.identifiers = Identifiers(words, surfaces, k=2, n=1, max_n=1, units=units)
        self.is_member = np.isin(individuals, list(members))
        self.surface = np.zeros(self.identifiers.num, dtype=int)
        self.surface[self.identifiers.numbers] = surfaces[self.identifiers.places]

    def leaked(self, names: Any) -> np.ndarray:
        return np.isin(self.surface, list(names))

    def excess(self, names: Any, **options: Any) -> Excess:
        return excess_leakage(self.identifiers, self.leaked(names), self.is_member, **options, **OPTIONS)["direct"]


def hospital(num: int = 600) -> tuple[Names, set[int], set[int]]:
    """Three names of one's own each, and six that others use; the members' own and the shared of whom some leak."""
    random = np.random.default_rng(0)
    rows = [(i, 10_000 + 3 * i + j) for i in range(num) for j in range(3)]
    rows += [(i, int(s)) for i in range(num) for s in random.choice(num, 6, replace=False)]
    own = {10_000 + j for j in range(3 * num // 2) if j % 12 == 0}
    return Names(rows, set(range(num // 2))), own, {s for s in range(num) if s % 10 < 3}


def test_a_leak_is_not_hidden_by_names_that_both_sides_use() -> None:
    case, own, shared = hospital()
    found = case.excess(own | shared)
    assert found.unshared is not None
    assert found.excess.value is not None
    assert found.excess.value < 0.05, "by all identifiers it would be within"
    assert found.unshared.excess.value == pytest.approx(0.08, abs=0.01)  # some others’ names are used on one side
    assert found.unshared.excess.low is not None
    assert found.unshared.excess.low > 0.05
    assert found.unshared.num_shared
    leaks = case.leaked(own | shared)
    none = np.zeros_like(leaks)
    change = excess_leakage(case.identifiers, leaks, case.is_member, before=none, **OPTIONS)["direct"].unshared
    assert change is not None
    assert change.excess.value == found.unshared.excess.value
    compared = Compared(Users.of(case.identifiers, case.is_member))
    beside = shared_over_base(case.identifiers, leaks, none, compared, **OPTIONS)
    assert (beside.value, beside.n) == (pytest.approx(0.3, abs=0.02), 600)


names = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), min_size=1, max_size=60)


@settings(max_examples=examples(150))
@given(names, st.sets(st.integers(0, 9)), st.sets(st.integers(0, 12)), st.booleans())
def test_rates_of_one_side_alone_match_the_oracle(
    rows: list[tuple[int, int]], members: set[int], leaked: set[int], households: bool
) -> None:
    """A household is a pair of individuals of one side: 0 and 1, 2 and 3, and so on."""
    units = np.arange(10) // 2 if households else np.arange(10)
    members = {i for i in range(10) if units[i] in {units[m] for m in members}}
    found = Names(rows, members, units).excess(leaked).unshared
    assert found is not None
    users = {name: {i for i, own in rows if own == name} for _, name in rows}
    sides = {
        True: {n for n, u in users.items() if u <= members},
        False: {n for n, u in users.items() if not u & members},
    }
    num = {name: len({units[i] for i in u}) for name, u in users.items()}
    assert found.num_shared == len(users) - len(sides[True]) - len(sides[False])
    strata = {s for s in num.values() if all(any(num[n] == s for n in side) for side in sides.values())}
    kept = [n for n in sides[True] if num[n] in strata]
    assert found.num_unmatched == len(sides[True]) - len(kept)
    if not kept:
        assert found.excess.value is None
        return
    rates = {
        (s, side): np.mean([n in leaked for n in own if num[n] == s]) for s in strata for side, own in sides.items()
    }
    share = {s: sum(num[n] == s for n in kept) / len(kept) for s in strata}
    for side, rate in ((True, found.members), (False, found.heldout)):
        assert rate.value == pytest.approx(sum(share[s] * rates[s, side] for s in strata))


def test_one_side_alone_is_compared_by_number_of_users_and_category() -> None:
    """With 60 % of members a name of two users stays theirs with .36, that of others with .16: more of them leak."""
    random = np.random.default_rng(1)
    num = 1000
    rows = [(i, 10_000 + i) for i in range(num)] + [
        (int(i), s) for s in range(num) for i in random.choice(num, 2, False)
    ]
    case = Names(rows, set(range(6 * num // 10)))
    found = case.excess(range(num))  # of two users all, of one user none
    assert found.unshared is not None
    assert found.unshared.excess.value == pytest.approx(0.0, abs=1e-12)
    categories = np.where(np.arange(len(rows)) < num, 1, 2)
    by = privacy_by_category(
        case.identifiers, case.leaked(range(num)), case.is_member, categories, ("", "ID", "NAME"), **OPTIONS
    )
    assert [by[name].excess.unshared.excess.value for name in ("ID", "NAME")] == [0.0, 0.0]  # type: ignore[union-attr]
    weights = standardised_weights(np.array([1, 1, 2]), np.array([True, False, False]), np.array([False, True, True]))
    assert weights.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(("share", "hidden"), [(0.3, 0.047), (0.5, 0.033)])
def test_a_leak_is_not_hidden_by_near_copies(share: float, hidden: float) -> None:
    """Held-out documents that copy members' leak as theirs do; 7 % of the members' own leak."""
    num = 2000
    heldout = range(num // 2, num)
    copied = np.zeros(num, dtype=bool)
    copied[num // 2 : num // 2 + int(share * num / 2)] = True
    rows = [(i, i if i < num // 2 else i - num // 2 if copied[i] else i) for i in range(num)]
    case = Names(rows, set(range(num // 2)))
    kept = ~copied[case.identifiers.words.individuals]
    users = Users.of(case.identifiers, case.is_member)
    leaked = {i for i in range(num // 2) if i % 100 < 7} | {i for i in heldout if i % 500 == 499}
    found = case.excess(leaked, compared=Compared(users, kept))
    assert found.excess.value == pytest.approx(hidden, abs=0.003)
    assert found.without_copies is not None
    assert found.without_copies.value == pytest.approx(0.069, abs=0.003)
    assert found.unshared is not None
    assert found.unshared.excess.value == pytest.approx(0.069, abs=0.006)
    assert case.excess(leaked).without_copies is None


def test_a_person_is_exposed_by_one_identifier_that_is_theirs_alone() -> None:
    case, own, shared = hospital()
    of_four = {10_000 + j for j in range(12)}
    for leaked, share in ((of_four | shared, 4 / 300), (own, 1 / 4), (shared, 0.0)):
        found = exposed_individuals(case.identifiers, case.leaked(leaked), case.is_member, **OPTIONS)
        assert (found.members.value, found.heldout.value) == (pytest.approx(share), 0.0)
        assert found.excess.n == 600
    families = Names([(i, i // 2) for i in range(40)], set(range(20)), np.arange(40) // 2)
    found = exposed_individuals(families.identifiers, families.leaked({0, 1}), families.is_member, **OPTIONS)
    assert found.members.value == pytest.approx(4 / 20), "a name of one household is theirs alone"


def test_few_people_are_not_counted_by_two_published_numbers() -> None:
    case, own, shared = hospital()
    found = case.excess(own | shared)
    assert found.unshared is not None
    assert publish(found, 5).unshared == found.unshared
    fewer = Estimate(value=0.1, low=0.0, high=0.2, n=(found.members.n or 0) - 3)
    alone = publish(
        Excess(
            members=found.members, heldout=found.heldout, excess=found.excess, without_copies=found.excess,
            unshared=type(found.unshared)(members=fewer, heldout=found.heldout, excess=found.excess, num_shared=3,
                                          num_unmatched=0),
        ), 5,
    )  # fmt: skip
    assert alone.unshared is not None
    assert (alone.unshared.members.n, alone.unshared.excess.value, alone.unshared.num_shared) == (None, None, None)
    assert alone.without_copies == found.excess
    assert publish(alone, 5) == alone
