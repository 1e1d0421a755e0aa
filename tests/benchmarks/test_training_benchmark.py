"""The benchmarks that train: the same losses as the Trainer, few imports, and parts that fail on their own."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.forks import Forks

from benchmarks import gpu, training, training_check
from benchmarks.foundation_models import SIZES, job_values, read_reports
from benchmarks.training_data import SHAPES, prepare
from benchmarks.training_ways import (
    Plan,
    Turns,
    Way,
    _train_ours,
    _train_theirs,
    chunk_rows,
    fresh_model,
    plan_of,
    trainer_of,
    window_rows,
)
from reticent.job.config import parse_job

ROOT = Path(__file__).parents[2]
TOY = SHAPES["toy"]

#: Blocks what the GPU machine does not have, then imports what it runs.
BARE = """
import sys
class Absent:
    names = ("polars", "spacy", "opacus", "duckdb")
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names or name == "reticent._rust":
            raise ImportError(name)
assert not sys.modules.keys() & {*Absent.names, "reticent"}  # or a library has them already
sys.meta_path.insert(0, Absent())
import pkgutil, importlib
import reticent.trainer, reticent.audit.scoring.scores
for found in pkgutil.iter_modules(reticent.trainer.__path__):
    if found.name not in ("clipping", "dpsgd"):  # parts of Opacus, imported where a private run begins
        importlib.import_module(f"reticent.trainer.{found.name}")
import benchmarks.gpu, benchmarks.training, benchmarks.training_check, benchmarks.training_ways
from pathlib import Path
from benchmarks.training_data import SHAPES
plan = benchmarks.training_ways.plan_of("bert", Path(sys.argv[1]), SHAPES["toy"], 1)
assert len(benchmarks.training_check.same_losses(plan)["ours"]) > 1
print(benchmarks.training_ways.Way(name="ours", ours=True).missing())
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder, TOY)
    return folder


@pytest.fixture(params=["bert", "gpt2"])
def plan(request: pytest.FixtureRequest, prepared: Path) -> Plan:
    return replace(plan_of(request.param, prepared, TOY, 1), device="cpu", bf16=False)


@pytest.mark.heavy
def test_trainer_and_benchmark_need_neither_polars_nor_spacy_nor_opacus_nor_the_core(
    prepared: Path, forks: Forks
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = forks.run(BARE, prepared, environment=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "None"


def test_our_loop_and_the_trainer_report_the_same_loss_at_every_step(plan: Plan, one_thread: None) -> None:
    found = training_check.same_losses(plan)
    assert len(found["ours"]) == len(found["Trainer"]) >= training_check.STEPS
    np.testing.assert_allclose(found["ours"], found["Trainer"], rtol=1e-5)
    assert len({round(loss, 6) for loss in found["ours"]}) == len(found["ours"])


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        ([2.0, 1.01], "differ by 9.9e-03"),
        ([2.0], "2 steps of ours, 1 of the Trainer"),
        ([2.0, float("nan")], "differ by nan"),
    ],
)
def test_no_time_is_shown_where_the_losses_differ(
    theirs: list[float], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"what": "", "ours": [2.0, 1.0], "Trainer": theirs}
    monkeypatch.setattr(training, "_child", lambda *_: answers)
    with pytest.raises(AssertionError, match=says):
        training.check("bert", Path(), TOY)
    answers["Trainer"] = [2.0, 1.0]
    assert training.check("bert", Path(), TOY)["greatest_difference"] == 0


class Counted(Turns):
    """Turns that nobody waits for."""

    def __init__(self) -> None:
        super().__init__(None, "cpu")
        self.ends: list[bool] = []

    def end_epoch(self, *, last: bool) -> None:
        self.ends.append(last)


@pytest.mark.parametrize("ours", [True, False])
def test_each_epoch_ends_once_and_the_last_says_so(ours: bool, plan: Plan, one_thread: None) -> None:
    plan, turns, way = replace(plan, num_epochs=3), Counted(), Way(name="way", ours=ours)
    found = (_train_ours if ours else _train_theirs)(plan, way, fresh_model(plan), turns)
    assert turns.ends == [False, False, True]
    assert len(found) == 3
    assert found[0] > found[-1]
    assert turns.tokens == plan.store.num_tokens
    assert turns.waited > 0


def test_the_trainer_reads_every_token_of_every_window_once(plan: Plan) -> None:
    rows, num_tokens = window_rows(plan, Way(name="windows"))
    special = plan.windows.special
    own = [ids for row in rows for ids in row["input_ids"]]
    added = {special.prefix, special.suffix}
    kept = plan.store.input_ids.tolist()
    assert num_tokens == len(kept)
    assert len(own) == num_tokens + len(rows) * special.num_added
    assert [i for i in own if i not in added] == [i for i in kept if i not in added]
    assert max(len(row["input_ids"]) for row in rows) == TOY.window_length


def test_chunks_hold_the_documents_end_to_end(plan: Plan) -> None:
    rows, num_tokens = chunk_rows(plan)
    assert {len(row["input_ids"]) for row in rows} == {TOY.window_length}
    lost = plan.store.num_tokens - num_tokens
    assert 0 <= lost < TOY.window_length
    if plan.objective == "clm":
        own = [ids for row in rows for ids in row["input_ids"]]
        assert own == plan.store.input_ids[: len(own)].tolist()


def test_its_whole_word_collator_sees_our_words(prepared: Path) -> None:
    plan = plan_of("bert", prepared, TOY, 1)
    way = Way(name="words", whole_words=True)
    rows, _ = window_rows(plan, way)
    row = rows[0]
    length = int(plan.windows.lengths[0])
    collator: Any = trainer_of(plan, way, fresh_model(plan), "unused", rows).data_collator
    theirs, _ = collator._calc_word_ids_and_prob_mask(
        np.array([row["offset_mapping"]]), np.array([row["special_tokens_mask"]])
    )
    ours = plan.store.word_ids[:length]
    assert (np.diff(theirs[0, 1 : 1 + length]) > 0).tolist() == (np.diff(ours) != 0).tolist()
    assert (theirs[0, 1 + length :] == -1).all()


def test_operations_of_a_token_are_those_worked_by_hand() -> None:
    # BERT-base: 85 M weights in the body; 10 % more for attention over 512 tokens; 15 % of a 768 x (28,996 + 768) head.
    body, attention, head = 6 * 84_934_656, 12 * 12 * 768 * 512, 0.15 * 6 * 768 * (28_996 + 768)
    assert training.flops_per_token(SHAPES["gpu"], 28_996, "bert", 512.0) == pytest.approx(body + attention + head)
    causal = body + attention / 2 + 6 * 768 * 50_257
    assert training.flops_per_token(SHAPES["gpu"], 50_257, "gpt2", 512.0) == pytest.approx(causal)


def test_ratios_are_taken_within_rounds_and_of_ours_over_theirs() -> None:
    rows = {"Trainer": {"t": [1.0, 4.0]}, "ours": {"t": [2.0, 4.0]}, "ours, packed": {"error": "no"}}
    assert training.ratios(rows, "t") == {"ours": {"Trainer": {"median": 1.5, "low": 1.0, "high": 2.0, "n": 2}}}


# ------------------------------------------------------------------ one call for the GPU


def test_a_part_that_fails_or_takes_too_long_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeping = ("timeit", "-n", "1", "-r", "1", "import time; time.sleep(60)")
    parts = [
        gpu.Part(name="fails", command=("json.tool", "--nonsense"), share=1.0),
        gpu.Part(name="sleeps", command=sleeping, share=0.1),
        gpu.Part(name="lacks", command=("json.tool",), needs=("no_such_package",), share=1.0),
        gpu.Part(name="runs", command=("platform",), share=1.0),
    ]
    monkeypatch.setattr(gpu, "parts", lambda *_: iter(parts))
    found = gpu.run_all(tmp_path / "prepared", tmp_path / "out", 14.0, "toy")
    assert {name: part["done"] for name, part in found.items()} == {
        "fails": False, "sleeps": False, "lacks": False, "runs": True,
    }  # fmt: skip
    assert found["fails"]["why"] == "exit 2, see fails.log"
    assert found["sleeps"]["why"].startswith("stopped after 1")
    assert found["lacks"]["why"] == "not installed: no_such_package"
    assert "--nonsense" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == found
    assert (tmp_path / "out" / "runs.log").read_text()


def test_parts_are_told_where_the_prepared_things_are(tmp_path: Path) -> None:
    (tmp_path / "site" / "no_such_package").mkdir(parents=True)
    part = gpu.Part(name="x", command=("x",), needs=("no_such_package", "neither_this"), share=1.0)
    assert part.missing([tmp_path / "site"]) == ["neither_this"]
    found = {part.name: part for part in gpu.parts(tmp_path, "gpu")}
    assert list(found)[-2:] == ["training", "foundation_models"] or "scoring" in found
    assert str(tmp_path / "training") in found["training"].command


# ------------------------------------------------------------------ foundation models


@pytest.mark.corpus
@pytest.mark.parametrize("name", list(SIZES))
def test_reports_are_cut_and_none_is_both_in_the_job_and_public(name: str, data: Path) -> None:
    size = SIZES[name]
    job, public = read_reports(size)
    assert len(job) == 2 * size.individuals
    assert len(public) == size.public
    assert not set(job["doc_id"].to_pylist()) & set(public["doc_id"].to_pylist())
    words = [len(text.split()) for text in job["text"].to_pylist()]
    assert min(words) > 0
    assert max(words) == size.words if size.words else max(words) > 1000


@pytest.mark.parametrize("name", list(SIZES))
def test_the_job_of_the_foundation_models_is_one_that_a_run_accepts(name: str, tmp_path: Path) -> None:
    values, missing = job_values(tmp_path, SIZES[name], {"smollm2": tmp_path / "a", "minilm": tmp_path / "b"})
    job = parse_job(values)
    recipes = [recipe for model in job.model for recipe in model.recipes]
    assert recipes == ["clm", "clma", "ppclm", *([] if any("dp" in w for w in missing) else ["dp-clm"]), "mlm", "ppmlm"]
    assert all(job.training(model).epochs_kept() == (job.training(model).num_epochs,) for model in job.model)
