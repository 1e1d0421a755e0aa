"""Recall in a sample, and the agreement of annotators: worked by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from reticent.engine.detect.marks import Marks, gather_marks
from reticent.engine.schema import SPAN_TYPE, SPANS
from reticent.ext.annotate.recall import measure_agreement, unite_spans, weighted_recall

Spans = list[list[tuple[int, int, str]]]
TEXTS = ["Ann Lee met Bob", "Lee in Rome", "no one", "Bob"]


def marks(gold: Spans, found: Spans | None = None, individuals: str = "ppqr") -> Marks:
    rows = [(d, f"d{d}", *span, "rules", 1.0) for d, spans in enumerate(found or []) for span in spans]
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in SPANS]
    table = pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SPANS, strict=True)], schema=SPANS
    )
    spans = [[{"start": a, "end": b, "label": c} for a, b, c in own] for own in gold]
    batch = pa.record_batch(
        {
            "individual_id": list(individuals),
            "text": pa.array(TEXTS, pa.large_string()),
            "spans": pa.array(spans, pa.list_(SPAN_TYPE)),
        }
    )
    return gather_marks([batch], table)


GOLD: Spans = [[(0, 7, "NAME"), (12, 15, "NAME")], [(0, 3, "NAME"), (7, 11, "CITY")], [], [(0, 3, "NAME")]]


def test_mentions_are_weighted_by_the_documents_they_stand_for() -> None:
    found: Spans = [[(0, 3, "PER"), (12, 15, "X")], [(0, 11, "NAME")], [], []]  # one name in half, one not at all
    result = weighted_recall(marks(GOLD, found), np.array([0, 0, 1, 1]), np.array([20, 6]))
    names = result.categories["NAME"]
    assert (names.marked, names.individuals_missed, names.individuals_found) == (4, 2, 1)
    assert names.recall.value == pytest.approx((10 * 1 + 10 * 1) / (10 * 2 + 10 + 3))
    assert names.unprotected.value == pytest.approx(10 + 3)
    assert result.categories["LOCATION"].recall.value == 1.0
    assert result.overall.unprotected.value == pytest.approx(13)
    assert (result.documents, result.corpus_documents, result.individuals, result.strata) == (4, 26, 3, 2)
    assert result.agreement is None


def test_a_mark_that_stands_twice_counts_once() -> None:
    twice = [own * 2 for own in GOLD]
    args = (np.zeros(4, dtype=int), np.array([40]))
    assert weighted_recall(marks(twice), *args) == weighted_recall(marks(GOLD), *args)


def test_a_sample_without_a_mark_says_nothing() -> None:
    result = weighted_recall(marks([[], [], [], []]), np.zeros(4, dtype=int), np.array([40]))
    assert result.overall.recall.value is None
    assert result.overall.unprotected.value == 0
    assert result.categories == {}


def test_marks_of_annotators_are_united() -> None:
    assert unite_spans([[(0, 4, "A"), (4, 6, "A")], [(3, 5, "A"), (0, 4, "B")], []]) == [(0, 4, "B"), (0, 6, "A")]


def counts() -> np.ndarray:
    return np.array([4, 3, 2, 1])


def test_annotators_who_mark_alike_agree_whole() -> None:
    agreed = measure_agreement(marks(GOLD), marks(GOLD), counts())
    for estimate in (agreed.exact, agreed.partial, agreed.kappa, agreed.alpha):
        assert estimate.value == pytest.approx(1.0)
        assert estimate.low is not None
        assert 0 < estimate.low < 1


def test_agreement_is_that_of_the_formulas() -> None:
    other: Spans = [[(0, 3, "NAME"), (12, 15, "NAME")], [(0, 3, "CITY"), (7, 11, "CITY")], [(0, 2, "NAME")], []]
    agreed = measure_agreement(marks(GOLD), marks(other), counts())
    assert agreed.exact.value == pytest.approx(2 * 2 / 10)
    assert agreed.partial.value == pytest.approx((3 + 3) / 10)
    # Words: Ann Lee met Bob | Lee in Rome | no one | Bob, N(ame) L(ocation) -.
    first, second = "NN-NN-L--N", "N--NL-LN--"
    same = sum(a == b for a, b in zip(first, second, strict=True))
    chance = sum(first.count(kind) * second.count(kind) for kind in "NL-") / 100
    assert agreed.kappa.value == pytest.approx((same / 10 - chance) / (1 - chance))
    totals = [first.count(kind) + second.count(kind) for kind in "NL-"]
    expected = 1 - sum(n * (n - 1) for n in totals) / (20 * 19)
    assert agreed.alpha.value == pytest.approx(1 - (1 - same / 10) / expected)
    assert agreed.kappa.low is not None
    assert agreed.kappa.high is not None
    assert agreed.kappa.low <= agreed.kappa.value <= agreed.kappa.high


def test_annotators_who_mark_nothing_have_no_agreement_to_measure() -> None:
    nothing = marks([[], [], [], []])
    agreed = measure_agreement(nothing, nothing, counts())
    assert [agreed.exact.value, agreed.kappa.value, agreed.alpha.value] == [None, None, None]
