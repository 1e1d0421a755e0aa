"""Conclusions of the benchmarks: they refuse other counts, and their figures are the ones they claim."""

from __future__ import annotations

import doctest

import pytest

from benchmarks import large
from benchmarks.engine import Row, _check, goal_table
from benchmarks.engine_goals import goals
from benchmarks.pages import PAGES

SHAPE = {"words": 1000}


def counted(seconds: float, kept: list[int], **more: float) -> dict[str, object]:
    return {"seconds": seconds, "cpu_seconds": seconds, "kept": {"2": kept}, **more}


def test_a_peer_that_counts_otherwise_is_refused() -> None:
    rows = [Row(name=name, part="counting", task="peer") for name in ("ours", "theirs")]
    _check(rows, {"ours": [counted(1, [5, 7])], "theirs": [counted(1, [5])]})
    with pytest.raises(AssertionError, match="theirs: 6 1-grams"):
        _check(rows, {"ours": [counted(1, [5, 7])], "theirs": [counted(1, [6])]})


def test_tokens_that_differ_and_tokens_that_were_not_compared_are_refused() -> None:
    rows = [Row(name=name, part="tokens", task="tokens_peer", more={"name": "bert"}) for name in ("a", "b")]
    _check(rows, {"a": [{"sample": [1, 2, 3]}], "b": [{"sample": [1, 2]}]})
    for other, why in (([1, 9], "differ"), ([], "no token")):
        with pytest.raises(AssertionError, match=why):
            _check(rows, {"a": [{"sample": [1, 2, 3]}], "b": [{"sample": other}]})


def test_ratios_are_taken_within_rounds() -> None:
    memory = {"peak_bytes": 300, "before_bytes": 100}
    runs = {
        "wc -w": [counted(1, []), counted(4, [])],
        "reticent, n = 1..3": [counted(2, [], **memory), counted(4, [], **memory)],
        "polars min/max, n = 1..3, k = 2": [counted(30, []), counted(40, [])],
        "duckdb min/max, n = 1..3, k = 2": [counted(20, []), counted(60, [])],
    }
    found = {(goal["id"], goal["what"]): goal["value"] for goal in goals(runs, 200, SHAPE, 1000.0)}
    assert found["P2", "n = 1..3, wall / wc -w"] == {"median": 1.5, "low": 1.0, "high": 2.0, "n": 2}
    assert found["P3", "best of Polars and DuckDB min/max, counting alone / ours, end to end"]["low"] == 10
    assert found["P7", "peak memory / bytes of text, n = 1..3"]["median"] == 1.5
    assert found["P7", "the same above what the process held before, n = 1..3"]["median"] == 1.0
    # 64 epochs of 1,350 tokens at 1,000 a second are 86.4 seconds.
    (share,) = (value for (goal, _), value in found.items() if goal == "P9")
    assert share["low"] == pytest.approx(100 * 2 / 86.4)
    assert not any(goal in ("P1", "P4", "P5", "P6", "P8") for goal, _ in found)


@pytest.mark.parametrize("exponent", [0.9, 1.0, 1.07])
def test_growth_is_the_exponent_of_the_processor_seconds(exponent: float) -> None:
    runs = {
        f"growth, {size:,} documents": [{"seconds": 0.0, "cpu_seconds": factor * size**exponent} for factor in (1, 3)]
        for size in (12_500, 25_000, 50_000, 100_000, 200_000)
    }
    (growth,) = (goal for goal in goals(runs, 1, SHAPE, None) if goal["id"] == "P8")
    assert growth["value"]["low"] == pytest.approx(exponent)
    assert growth["value"]["high"] == pytest.approx(exponent)
    assert goal_table({"goals": [growth]})[1][0][-1] == ("first" if exponent > 1.03 else "goal")


def test_the_examples_of_the_large_benchmark_hold() -> None:
    found = doctest.testmod(large)
    assert (found.failed, found.attempted > 3) == (0, True)


def test_the_page_about_killed_runs_says_no_and_draws_what_was_wrong() -> None:
    page = next(page for page in PAGES if page.stem == "kill")
    record = {
        "tables": {"killed": {"a": {"trials": 30, "wrong": 2}, "b": {"trials": 10}}, "stopped": {"c": {"trials": 59}}}
    }
    assert page.answer(record).startswith("No: 2 of 99 runs")
    killed, stopped = page.figure(record).rows
    assert killed.value == pytest.approx(5.0)
    assert killed.low == pytest.approx(0.611, abs=1e-3)
    assert killed.high == pytest.approx(16.92, abs=1e-2)
    assert (stopped.value, stopped.low, stopped.high) == (0, 0, pytest.approx(4.951, abs=1e-3))
    assert page.answer({"tables": {"stopped": record["tables"]["stopped"]}}).startswith("Yes: 0 of 59 runs")
