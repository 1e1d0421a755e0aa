"""The plan of an experiment: an end is told only from what was measured, by hand-worked cases on a clock of our own."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from reticent.core.eta import TIMINGS, Plan, Timings, Work, duration_text
from reticent.core.progress import Progress


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def step(name: str, kind: str = "train", model: str = "bert", recipe: str = "mlm", work: float = 1000.0) -> Work:
    return Work(name=name, title=f"{kind} {name}", kind=kind, model=model, recipe=recipe, work=work)  # type: ignore[arg-type]


def run(plan: Plan, clock: Clock, name: str, seconds: float) -> float | None:
    plan.start(name)
    clock.now += seconds
    plan.advance(1.0)
    return plan.finish()


def test_no_end_is_told_before_every_sort_of_work_that_is_left_was_measured() -> None:
    clock = Clock()
    plan = Plan([step("a"), step("b"), step("c", "score", work=500.0)], clock=clock)
    assert plan.remaining_seconds() is None
    assert plan.unmeasured() == ["training bert", "scoring bert"]
    run(plan, clock, "a", 10.0)
    assert plan.remaining_seconds() is None
    assert plan.expected() == "end unknown until measured: scoring bert"


def test_what_is_left_takes_as_long_as_its_like_took() -> None:
    clock = Clock()
    steps = [step("s", "score", work=500.0), step("a"), step("b", work=3000.0), step("c", "score", work=250.0)]
    plan = Plan(steps, clock=clock)
    run(plan, clock, "s", 5.0)  # 100 tokens a second
    run(plan, clock, "a", 10.0)  # 100 tokens a second
    assert plan.remaining_seconds() == pytest.approx(30.0 + 2.5)


def test_a_recipe_goes_by_its_own_speed_and_else_by_its_models() -> None:
    clock = Clock()
    steps = [step("a"), step("d", recipe="dp-mlm"), step("a2"), step("d2", recipe="dp-mlm"), step("p", recipe="pp")]
    plan = Plan(steps, clock=clock)
    run(plan, clock, "a", 10.0)
    assert plan.remaining_seconds() == pytest.approx(40.0)  # 100 tokens a second, as nothing else is known of dp-mlm
    run(plan, clock, "d", 30.0)
    assert plan.remaining_seconds() == pytest.approx(10.0 + 30.0 + 20.0)  # pp: 2000 tokens in 40 s


def test_a_running_step_tells_its_own_speed_once_enough_of_it_was_seen() -> None:
    clock = Clock()
    plan = Plan([step("a"), step("b")], clock=clock)
    plan.start("a")
    plan.advance(0.0)
    clock.now += 1.0
    plan.advance(0.1)
    assert plan.remaining_seconds() is None  # a second is too short to tell
    clock.now += 9.0
    plan.advance(0.5)  # 500 tokens in 10 s
    assert plan.remaining_seconds() == pytest.approx(10.0 + 20.0)
    assert "50 tokens/s" in plan.note()


def test_a_resumed_training_counts_only_what_it_did_itself() -> None:
    clock = Clock()
    plan = Plan([step("a"), step("b")], clock=clock)
    plan.start("a")
    plan.advance(0.76, began=0.75)
    clock.now += 10.0
    plan.advance(1.0)
    assert plan.finish() == 250.0
    assert plan.remaining_seconds() == pytest.approx(40.0)


def test_a_step_that_failed_is_not_done() -> None:
    clock = Clock()
    plan = Plan([step("a")], clock=clock)
    plan.start("a")
    plan.stop()
    assert plan.finish() is None
    assert [s.name for s in plan.left] == ["a"]


def test_what_is_up_to_date_is_done_and_what_is_made_again_is_not_until_it_is() -> None:
    plan = Plan([step("a"), step("b")], done=["a", "unknown"], clock=Clock())
    assert plan.done == {"a"}
    plan.start("a")
    assert len(plan.left) == 2
    plan.finish()
    plan.skip("b")
    plan.skip("split")  # no step of the plan
    assert plan.left == []
    assert plan.remaining_seconds() == 0.0


def test_speeds_of_earlier_runs_count_until_there_are_own_ones() -> None:
    clock = Clock()
    earlier = {"a": {"seconds": 20.0, "work": 1000.0}}
    plan = Plan([step("a"), step("b"), step("c")], done=["a"], earlier=earlier, clock=clock)
    assert plan.remaining_seconds() == pytest.approx(40.0)
    run(plan, clock, "b", 5.0)
    assert plan.remaining_seconds() == pytest.approx(5.0)


def test_timings_are_private_and_a_line_cut_off_by_a_crash_is_none(tmp_path: Path) -> None:
    timings = Timings(tmp_path)
    assert timings.read() == {}
    timings.add("split", 1.5)
    timings.add("models/a", 2.0, 30.0)
    timings.add("split", 2.5)
    with (tmp_path / TIMINGS).open("a") as file:
        file.write('{"name": "ind')
    assert timings.read() == {"split": {"seconds": 2.5, "work": None}, "models/a": {"seconds": 2.0, "work": 30.0}}
    assert stat.S_IMODE((tmp_path / TIMINGS).stat().st_mode) == 0o600
    assert json.loads((tmp_path / TIMINGS).read_text().splitlines()[0])["name"] == "split"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0.4 s"), (59, "59 s"), (600, "10 min"), (7260, "2 h 1 min"), (86400 * 3 + 7200, "3 d 2 h")],
)
def test_durations_have_the_two_units_that_matter(seconds: float, said: str) -> None:
    assert duration_text(seconds) == said


def test_without_a_terminal_the_whole_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reticent.core.progress.SECONDS_BETWEEN_LINES", 0.0)
    progress, plan = Progress(), Plan([step("a"), step("b")], clock=Clock())
    counts: dict[str, Any] = {}
    with progress.experiment(plan):
        with progress.stage("a", counts), progress.task("train", 10, "steps") as advance:
            advance({"step": 5, "num_steps": 10})
        plan.finish()
        progress.kept("b", {})
    said = capsys.readouterr().err
    assert "whole experiment: 0 of 2 trainings and scorings done; now train a, 50 %; end unknown" in said
    assert plan.left == []
    assert progress.plan is None
    with progress.stage("report", counts):
        pass
    assert "whole experiment" not in capsys.readouterr().err
