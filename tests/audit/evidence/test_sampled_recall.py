"""Publication of a sampled recall: few individuals leave bounds alone, which others do not solve."""

from __future__ import annotations

from typing import Any

import pytest

from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.evidence.rules import publish
from reticent.audit.evidence.sampled import Agreement, SampledIdentifiers, SampledRecall
from reticent.audit.stats.estimate import Estimate


def row(
    missed: int, found: int, n: int = 40, recall: float | None = None, left: float | None = None
) -> SampledIdentifiers:
    value = recall if recall is not None else 1 - 0.01 * missed
    return SampledIdentifiers(
        marked=100,
        recall=Estimate(value=value, low=max(0.0, value - 0.0567), high=min(1.0, value + 0.0123), n=n),
        unprotected=Estimate(
            value=(10.0 * missed if left is None else left), low=float(missed), high=31.7 + 10 * missed, n=n
        ),
        individuals_missed=missed,
        individuals_found=found,
    )


def sampled(overall: SampledIdentifiers, **categories: SampledIdentifiers) -> SampledRecall:
    return SampledRecall(
        documents=50,
        corpus_documents=500,
        individuals=40,
        strata=6,
        annotators=2,
        overall=overall,
        categories=categories,
        agreement=Agreement(
            **{name: Estimate(value=0.9, low=0.8, high=1.0, n=40) for name in ("exact", "partial", "kappa", "alpha")}
        ),
    )


def shown(identifiers: SampledIdentifiers) -> tuple[Any, ...]:
    left = identifiers.unprotected
    return identifiers.recall.value, identifiers.recall.bound, left.value, left.bound


def test_exact_numbers_of_many_leave_and_counts_of_individuals_do_not() -> None:
    left = publish(sampled(row(20, 40), NAME=row(12, 40), DATE=row(8, 40)), 5)
    assert shown(left.categories["NAME"]) == (0.88, None, 120.0, None)
    assert shown(left.overall) == (0.8, None, 200.0, None)
    assert left.overall.individuals_missed is None
    assert left.agreement is not None
    assert left.agreement.kappa.value == 0.9
    assert from_json(SampledRecall, to_json(left)) == left


def test_a_category_that_few_miss_has_rounded_bounds_alone() -> None:
    left = publish(row(2, 40), 5)
    assert shown(left) == (0.92, "above", 52.0, "below")
    assert (left.recall.low, left.recall.high) == (0.92, 1.0)
    assert (left.unprotected.low, left.unprotected.high) == (0.0, 52.0)
    assert "0.98" not in str(to_json(left))


def test_a_category_of_which_few_are_found_has_rounded_bounds_alone() -> None:
    left = publish(row(40, 3, recall=0.03, left=400.0), 5)
    assert shown(left) == (0.05, "below", 440.0, "below")
    assert (left.recall.low, left.recall.high) == (0.0, 0.05)


def test_nothing_missed_is_a_zero_with_its_bound() -> None:
    assert shown(publish(row(0, 40), 5)) == (1.0, None, 0.0, None)


def test_nothing_leaves_of_a_category_that_few_individuals_have() -> None:
    left = publish(row(1, 3, n=3), 5)
    assert shown(left) == (None, None, None, None)
    assert left.unprotected.high is None


def test_all_less_the_other_categories_is_never_of_few() -> None:
    left = publish(sampled(row(20, 40), NAME=row(14, 40), DATE=row(6, 40), PHONE=row(2, 40), ZIP=row(0, 40)), 5)
    assert [name for name, each in left.categories.items() if each.recall.bound] == ["DATE", "PHONE"]
    assert left.overall.recall.bound is None
    # With no other one to hide behind, all has a bound alone.
    left = publish(sampled(row(2, 40), PHONE=row(2, 40), ZIP=row(0, 40)), 5)
    assert left.overall.recall.bound == "above"
    left = publish(sampled(row(14, 40), NAME=row(13, 40), OTHER=row(1, 2, n=3)), 5)
    assert left.categories["NAME"].recall.bound == "above"


@pytest.mark.parametrize("missed", [0, 2, 20])
def test_what_was_published_is_published_unchanged(missed: int) -> None:
    once = publish(sampled(row(20, 40), NAME=row(14, 40), PHONE=row(missed, 40)), 5)
    assert publish(once, 5) == once
