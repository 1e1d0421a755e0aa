"""The benchmark of sampled recall: over a hundred draws intervals hold the truth, and one that would not is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import sampled_crowded, sampled_recall
from benchmarks.detection_corpora import Case, read_case
from benchmarks.record_io import RECORD


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """Generated documents with their gold marks, 120 of several documents an individual; samples of forty."""
    case = read_case("synth_en")
    documents = case.documents.slice(0, 120)

    def read(name: str, limit: int | None = None) -> Case:
        return Case(name=name, language="en", documents=documents, records=case.records)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampled_recall, "read_case", read)
        patch.setattr(sampled_recall, "SAMPLES", {"synth_en": (40,)})
        patch.setattr(sampled_recall, "REPETITIONS", {"toy": 100})
        return sampled_recall.measure("synth_en", "toy")


@pytest.mark.heavy
def test_intervals_of_a_generated_corpus_hold_in_95_of_100_draws(measured: dict[str, Any]) -> None:
    assert measured["individuals"] < measured["documents"] == 120
    sampled_recall.check(measured)
    (sets,) = measured["samples"].values()
    assert set(sets) >= set(sampled_recall.NEAR_ONE)
    for of in sets.values():
        assert of["overall"]["recall_mean"] == pytest.approx(of["overall"]["recall"], abs=0.01)
        assert of["overall"]["unprotected_mean"] == pytest.approx(of["overall"]["unprotected"], rel=0.2, abs=2)
        assert of["overall"]["recall_width"] < 0.35


def test_intervals_that_hold_too_seldom_are_refused(measured: dict[str, Any]) -> None:
    wrong = copy.deepcopy(measured)
    wrong["samples"]["40"]["misses 1 in 100"]["overall"]["recall_held"] = 0.94
    with pytest.raises(AssertionError, match=r"40 documents, misses 1 in 100: recall_held in 0\.94"):
        sampled_recall.check(wrong)


def test_the_tables_and_the_answer_show_what_was_measured(measured: dict[str, Any]) -> None:
    setting = {"individuals": 10, "recall": 0.8, "misses": "few 0.1", "width": 0.5}
    simulated = {"draws": 400, "settings": [setting | {"recall_over": 0.01, "bound_under": 0.03}]}
    record = {"goal": 0.95, "corpora": {"synth_en": measured}, "machine": {"cpu": "x", "cores": 2, "commit": "c"}}
    record["simulated"] = simulated
    tables = sampled_recall.sampled_recall_tables(record)
    assert "| synth_en | 40 | misses 1 in 100, crowded |" in tables
    assert "| synth_en | 40 | NAME |" in tables
    assert "| 10 | 0.8 | 0.010 | 0.010 | 0.030 | 0.030 | 0.500 |" in tables
    answer = sampled_recall.recall_answer(record)
    assert "40 of the 120 documents" in answer
    assert "Over 1 simulated settings" in answer
    assert "miss in 2.0 of 100 draws, in 3.0 in the worst (400 draws each" in answer
    assert all(0.95 <= row.value <= 1 for row in sampled_recall.recall_figure(record).rows)


def test_the_record_met_the_goal() -> None:
    record = json.loads((RECORD / "sampled_recall.json").read_text())
    assert set(record["corpora"]) == set(sampled_recall.SAMPLES)
    for result in record["corpora"].values():
        assert result["repetitions"] >= 100
        sampled_recall.check(result)
    sampled_crowded.check_simulated(record["simulated"])


def test_ends_that_miss_too_often_in_a_simulated_setting_are_refused() -> None:
    row = {"recall_over": 0.01, "bound_under": 0.08}
    fine = {"recall_over": 0.0, "bound_under": 0.0}
    sampled_crowded.check_simulated({"draws": 400, "settings": [fine]})
    with pytest.raises(AssertionError, match="bound_under"):
        sampled_crowded.check_simulated({"draws": 400, "settings": [row, fine, fine, fine]})


@pytest.mark.corpus
@pytest.mark.heavy
@pytest.mark.parametrize("name", sorted(sampled_recall.SAMPLES))
def test_with_gold_as_the_annotator_intervals_hold_in_95_of_100_draws(
    name: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled_recall, "REPETITIONS", {"toy": 100})
    monkeypatch.setitem(sampled_recall.SAMPLES, name, sampled_recall.SAMPLES[name][-2:])
    sampled_recall.check(sampled_recall.measure(name, "toy"))


def test_detectors_near_one_miss_what_they_are_named_after() -> None:
    marked = np.full(2000, 10.0)
    for share, crowded in sampled_recall.NEAR_ONE.values():
        found, all_of = sampled_recall._thinned({"NAME": (marked, marked)}, share, crowded)["all"]
        assert (all_of - found).sum() / all_of.sum() == pytest.approx(share, rel=0.3)
