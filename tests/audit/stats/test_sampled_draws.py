"""Samples of annotated documents: over a hundred draws the intervals of recall hold the truth, which is known here."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.corpora import read_case
from fixtures.drawing import share_of
from fixtures.sampling import NEAR_ONE, check_draws, measure_draws, thinned


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """Generated documents with their gold marks, 120 of several documents an individual; samples of forty."""
    case = read_case("synth_en")
    return measure_draws(replace(case, documents=case.documents.slice(0, 120)), (40,), 100)


@pytest.mark.heavy
def test_intervals_of_a_generated_corpus_hold_in_95_of_100_draws(measured: dict[str, Any]) -> None:
    assert measured["individuals"] < measured["documents"] == 120
    check_draws(measured)
    (sets,) = measured["samples"].values()
    assert set(sets) >= set(NEAR_ONE)
    for of in sets.values():
        assert of["overall"]["recall_mean"] == pytest.approx(of["overall"]["recall"], abs=0.01)
        assert of["overall"]["unprotected_mean"] == pytest.approx(of["overall"]["unprotected"], rel=0.2, abs=2)
        assert of["overall"]["recall_width"] < 0.35


def test_intervals_that_hold_too_seldom_are_refused(measured: dict[str, Any]) -> None:
    wrong = copy.deepcopy(measured)
    wrong["samples"]["40"]["misses 1 in 100"]["overall"]["recall_held"] = 0.94
    with pytest.raises(AssertionError, match=r"40 documents, misses 1 in 100: recall_held in 0\.94"):
        check_draws(wrong)


@pytest.mark.corpus
@pytest.mark.heavy
@pytest.mark.parametrize(("name", "samples"), share_of([("tab", (20, 40)), ("meddocan", (100, 200))]))
def test_with_gold_as_the_annotator_intervals_hold_in_95_of_100_draws(
    name: str, samples: tuple[int, ...], data: Path
) -> None:
    check_draws(measure_draws(read_case(name), samples, 100))


def test_detectors_near_one_miss_what_they_are_named_after() -> None:
    marked = np.full(2000, 10.0)
    for share, crowded in NEAR_ONE.values():
        found, all_of = thinned({"NAME": (marked, marked)}, share, crowded)["all"]
        assert (all_of - found).sum() / all_of.sum() == pytest.approx(share, rel=0.3)
