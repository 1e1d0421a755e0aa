"""The privacy budget: the cost of runs together, refusals, and that no run is lost."""

from __future__ import annotations

import json
import math
import stat
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reticent.cli import app
from reticent.core.errors import ArtifactError, PolicyError
from reticent.ext.dp.budget import Budget, Spending, compose, read_budget, totals
from reticent.job.config import kept_content, parse_job
from reticent.trainer.privacy import Guarantee


def cost(epsilon: float | None, delta: float = 1e-6, **more: Any) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, **{"unit": "individual", "max_documents": 4, **more})


def runs(*costs: Guarantee) -> list[Spending]:
    return [Spending(run=f"to-come-{number}", corpus="c", guarantee=each) for number, each in enumerate(costs)]


def budget(folder: Path, **limits: Any) -> Budget:
    return Budget(path=folder / "b" / "budget.json", corpus="c", **limits)


def test_composition_equals_the_formulas_worked_by_hand() -> None:
    total = compose([1.0, 2.0], [1e-6, 2e-6], 1e-5)
    assert total.basic == (3.0, pytest.approx(3e-6))
    assert total.advanced[0] == pytest.approx((1.0 + 4.0) / 2 + math.sqrt(2 * 11.512925465 * 5.0), rel=1e-7)
    assert total.advanced[1] == pytest.approx(1.3e-5)
    assert total.epsilon == 3.0
    many = compose([0.1] * 200, [1e-7] * 200, 1e-5)
    assert many.epsilon == many.advanced[0] == pytest.approx(7.7861, abs=1e-4)  # where basic says 20
    assert compose([1.0], [1e-6], 0.0).advanced[0] == math.inf
    assert compose([], [], 1e-5).basic == (0.0, 0.0)


def test_run_beyond_the_limit_is_refused_with_what_is_left(tmp_path: Path) -> None:
    book = budget(tmp_path, max_epsilon=10.0, max_delta=1e-4)
    book.reserve("a", cost(6.0), 1000)
    with pytest.raises(
        PolicyError, match=r"spend epsilon 5.00 .* epsilon 10 at delta 1e-4 .* epsilon 4.00 is left"
    ) as e:
        book.reserve("b", cost(5.0), 1000)
    assert "1 of them never ended" in str(e.value)
    book.reserve("b", cost(4.0), 1000)
    assert [each.run for each in read_budget(book.path)] == ["a", "b"]


def test_runs_to_come_are_refused_together_and_none_is_recorded(tmp_path: Path) -> None:
    book = budget(tmp_path, max_epsilon=10.0, max_delta=1e-4)
    book.reserve("a", cost(2.0), 1000)
    book.require_room(runs(cost(1.0), cost(2.0), cost(4.0)), 1000)
    with pytest.raises(PolicyError, match=r"these 3 runs together would spend epsilon 14.00 .* epsilon 8.00 is left"):
        book.require_room(runs(cost(2.0), cost(4.0), cost(8.0)), 1000)
    book.require_room(runs(*[cost(0.1, 1e-8)] * 40), 1000)  # by the advanced bound, of which a lump of 4 has no use
    with pytest.raises(PolicyError, match="per individual and per record"):
        book.require_room(runs(cost(1.0, unit="record", max_documents=None)), 1000)
    assert len(read_budget(book.path)) == 1


def test_a_vocabulary_counts_until_trainings_that_include_it_do_for_each_k(tmp_path: Path) -> None:
    book = budget(tmp_path, max_epsilon=8.0, max_delta=1e-4)
    book.reserve("v", cost(2.0), 1000, {"recipe": "vocabulary", "k": [2, 3]})
    with pytest.raises(PolicyError, match=r"would spend epsilon 8\.00 .* epsilon 6\.00 is left after 1 run"):
        book.reserve("a", cost(8.0), 1000)
    with pytest.raises(PolicyError, match=r"epsilon 6\.00 is left"):  # that of k = 3 is not in it
        book.reserve("a", cost(8.0), 1000, {"includes": ["v", 2]})
    book.reserve("a", cost(4.0), 1000, {"includes": ["v", 2]})
    book.reserve("b", cost(4.0), 1000, {"includes": ["v", 3]})
    (total,) = totals(read_budget(book.path))
    assert (total["epsilon"], total["runs"]) == (8.0, 2)
    book.release("b")
    (total,) = totals(read_budget(book.path))
    assert (total["epsilon"], total["runs"]) == (6.0, 2)


def test_run_without_noise_is_refused_with_what_is_left_for_others(tmp_path: Path) -> None:
    book = budget(tmp_path, max_epsilon=10.0, max_delta=1e-4)
    book.reserve("a", cost(6.0), 1000)
    with pytest.raises(PolicyError, match=r"spend epsilon infinite .* epsilon 4\.00 is left"):
        book.reserve("b", cost(math.inf), 1000)


def test_advanced_composition_lets_more_small_runs_in_than_basic(tmp_path: Path) -> None:
    book = budget(tmp_path, max_epsilon=4.0, max_delta=1e-4)
    for number in range(60):  # basic composition: 40
        book.reserve(str(number), cost(0.1, 1e-8), 1000)
    with pytest.raises(PolicyError, match="is left after 60 runs"):
        book.reserve("more", cost(1.0, 1e-8), 1000)


def test_half_of_the_delta_is_set_aside_before_the_first_run_and_never_what_is_left(tmp_path: Path) -> None:
    """A slack that shrinks with the deltas spent would be chosen by the runs, and no theorem is about that."""
    book = budget(tmp_path, max_epsilon=4.0, max_delta=1e-4)
    for number in range(50):
        book.reserve(str(number), cost(0.1, 1e-6), 1000)  # 50 of them use up the half that is theirs
    with pytest.raises(PolicyError, match=r"epsilon 0\.00 is left after 50 runs"):
        book.reserve("more", cost(0.1, 1e-6), 1000)
    short = Budget(path=tmp_path / "s" / "budget.json", corpus="c", max_epsilon=4.0, max_delta=1e-4)
    short.reserve("whole", cost(4.0, 1e-4), 1000)  # basic composition sets nothing aside


def test_deltas_add_up_to_less_than_one_over_units(tmp_path: Path) -> None:
    book = budget(tmp_path, max_epsilon=100.0)
    book.reserve("a", cost(1.0, 6e-4), 1000)
    with pytest.raises(PolicyError, match=r"epsilon 0\.00 is left"):
        book.reserve("b", cost(1.0, 6e-4), 1000)


def test_killed_run_counts_in_full_and_one_that_goes_on_counts_once(tmp_path: Path) -> None:
    book = budget(tmp_path, max_epsilon=10.0, max_delta=1e-4)
    book.reserve("killed", cost(8.0), 1000)
    with pytest.raises(PolicyError):
        book.reserve("next", cost(3.0), 1000)
    book.reserve("killed", cost(8.0), 1000)
    book.settle("killed", cost(8.0))
    (only,) = read_budget(book.path)
    assert only.settled
    assert only.guarantee == cost(8.0)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (cost(1.0), cost(None, unaccounted=("deduplication",)), "has no epsilon"),
        (cost(None, unaccounted=("deduplication",)), cost(1.0), "has no epsilon"),
        (cost(1.0), cost(1.0, unit="record", max_documents=None), "do not add up"),
    ],
)
def test_limit_is_refused_where_no_total_can_be_given(
    first: Guarantee, second: Guarantee, message: str, tmp_path: Path
) -> None:
    budget(tmp_path).reserve("a", first, 1000)
    with pytest.raises(PolicyError, match=message):
        budget(tmp_path, max_epsilon=100.0).reserve("b", second, 1000)


def test_another_corpus_has_a_budget_of_its_own(tmp_path: Path) -> None:
    budget(tmp_path).reserve("a", cost(9.0), 1000)
    other = Budget(path=tmp_path / "b" / "budget.json", corpus="d", max_epsilon=10.0)
    other.reserve("b", cost(9.0), 1000)
    assert [row["epsilon"] for row in totals(read_budget(other.path))] == [9.0, 9.0]


def test_total_by_advanced_composition_says_what_it_supposes(tmp_path: Path) -> None:
    book = budget(tmp_path)
    for number in range(200):
        book.reserve(str(number), cost(0.1, 1e-7), 1000)
    (row,) = totals(read_budget(book.path))
    assert row["epsilon"] < 10
    assert row["bound"] == "advanced composition, if no epsilon was chosen by the results of an earlier run"


def test_file_is_private_and_keeps_an_infinite_epsilon(tmp_path: Path) -> None:
    book = budget(tmp_path)
    book.reserve("a", cost(math.inf), 10)
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(book.path.parent.stat().st_mode) == 0o700
    assert read_budget(book.path)[0].guarantee.epsilon == math.inf
    assert totals(read_budget(book.path))[0]["epsilon"] is None


@pytest.mark.parametrize("content", ["", "{", '{"format": "other/1", "runs": []}', '{"runs": [{}]}'])
def test_file_that_cannot_be_read_is_not_an_empty_budget(content: str, tmp_path: Path) -> None:
    (tmp_path / "budget.json").write_text(content)
    with pytest.raises(ArtifactError, match="not a readable privacy budget"):
        Budget(path=tmp_path / "budget.json", corpus="c").reserve("a", cost(1.0), 10)
    assert (tmp_path / "budget.json").read_text() == content


def _reserve_ten(folder: str, name: int) -> None:
    for number in range(10):
        budget(Path(folder)).reserve(f"{name}-{number}", cost(1.0), 1000)


@pytest.mark.heavy
def test_writers_at_the_same_time_lose_no_run(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        list(pool.map(_reserve_ten, [str(tmp_path)] * 3, range(3)))
    assert len(read_budget(tmp_path / "b" / "budget.json")) == 30


def test_command_prints_every_run_with_its_unit_and_the_total(tmp_path: Path) -> None:
    book = Budget(path=tmp_path / "privacy-budget.json", corpus="c" * 64)
    book.reserve("a", cost(1.999), 1000, {"recipe": "dp-clm"})
    book.settle("a", cost(1.999))
    book.reserve("b", cost(0.992), 1000, {"recipe": "dp-clm"})
    said = CliRunner().invoke(app, ["budget", str(tmp_path)])
    assert said.exit_code == 0
    assert "epsilon 2.00 at delta 1e-6 per individual (at most 4 documents each)" in said.stdout
    assert "never ended, counts in full" in said.stdout
    assert "2 runs per individual together: epsilon 3.00 at delta 2e-6 (basic composition)" in said.stdout
    shown = json.loads(CliRunner().invoke(app, ["budget", str(tmp_path), "--json"]).stdout)
    assert (len(shown["runs"]), shown["totals"][0]["epsilon"]) == (2, pytest.approx(2.991))


def test_command_reads_the_file_that_the_job_names_beside_that_of_the_run(tmp_path: Path) -> None:
    model = {"name": "gpt2", "base": "models/gpt2", "objective": "clm", "recipes": ["dp-clm"]}
    train = {"dp": {"target_epsilon": 8.0, "unit": "individual", "budget_file": str(tmp_path / "shared.json")}}
    run = tmp_path / "run"
    run.mkdir()
    job = parse_job({"out": str(run), "corpus": {"source": "notes"}, "model": [model], "train": train})
    (run / "job.json").write_bytes(kept_content(job))

    def runs() -> list[str]:
        return [
            each["run"] for each in json.loads(CliRunner().invoke(app, ["budget", str(run), "--json"]).stdout)["runs"]
        ]

    assert runs() == []
    for name, file in (("a", tmp_path / "shared.json"), ("b", run / "privacy-budget.json")):
        Budget(path=file, corpus="c").reserve(name, cost(1.0), 1000)
    assert runs() == ["a", "b"]


def test_command_does_not_take_a_wrong_path_for_a_budget_of_which_nothing_is_spent(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none.json"):
        said = CliRunner().invoke(app, ["budget", str(place)])
        assert isinstance(said.exception, ArtifactError)
        assert "not a run folder (no job.json) and no budget file" in str(said.exception)
