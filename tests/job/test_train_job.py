"""The training of a job: it goes on where it was interrupted, appears whole, and several processes make it together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.distributed import torchrun
from fixtures.jobs import Recorder, Stopping, Values, changed, content, control_c, make_hospital, values_of
from fixtures.models import toy_model, toy_tokenizer, write_toy_model

from reticent.audit.evaluate import Auditor
from reticent.core.errors import ArtifactError, TrainingError
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.store import open_tokens
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.dossier.provenance import models_under_test
from reticent.job.config import parse_job
from reticent.job.config.job import kept_content
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.stages.shadows import _train_shadow, shadows_of, write_shadow_tokens
from reticent.job.training_tokens import verify_training
from reticent.trainer import loop
from reticent.trainer.verify import read_ledger

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

MODEL = "models/toy/ppmlm"


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """A job whose tokens are ready."""
    hospital = make_hospital(tmp_path_factory.mktemp("hospital"), 24)
    base = write_toy_model(hospital / "bert")
    values = changed(values_of(hospital, hospital / "run"), model__base=str(base))
    values["train"] = {"num_epochs": 3, "checkpoint_epochs": [1], "window_length": 32, "batch_size": 8}
    execute(Run(parse_job(values), Recorder()), "protect")
    return values


def train(values: Values, step: int = 0, stop: Any = None, **options: Any) -> Stopping:
    progress = Stopping(step, stop)
    execute(Run(parse_job(values), progress, **options), "train")
    return progress


def fail() -> None:
    raise TrainingError("made up")


def unfinished(out: Path) -> list[Path]:
    return sorted(out.rglob(".*.part-*"))


@pytest.fixture
def mine(values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Values:
    """The job in a run folder of the test's own."""
    import shutil

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")  # times are part of an artefact, and differ
    shutil.copytree(values["out"], tmp_path / "run")
    return changed(values, out=str(tmp_path / "run"))


@pytest.mark.parametrize("stop", [control_c, fail])
def test_an_interrupted_training_of_a_job_goes_on_and_ends_as_one_that_was_not(
    stop: Callable[[], None], mine: Values, tmp_path: Path
) -> None:
    import shutil

    out = Path(mine["out"])
    shutil.copytree(out, tmp_path / "whole")
    whole = train(changed(mine, out=str(tmp_path / "whole")))
    with pytest.raises((KeyboardInterrupt, TrainingError)):
        train(mine, whole.steps[-1] - 1, stop)
    assert not (out / MODEL).exists()
    (part,) = unfinished(out)
    assert part.stat().st_mode & 0o777 == 0o700
    assert (part / "epoch-0001").is_dir()  # the last good checkpoint stays
    resumed = train(mine)
    assert resumed.steps[-1] == whole.steps[-1]
    assert 0 < len(resumed.steps) < len(whole.steps)
    assert unfinished(out) == []
    assert content(out) == content(tmp_path / "whole")
    assert train(mine).made == []


def test_an_unfinished_training_is_deleted_when_the_job_has_another(mine: Values) -> None:
    out = Path(mine["out"])
    with pytest.raises(KeyboardInterrupt):
        train(mine, 2, control_c)
    (before,) = unfinished(out)
    other = changed(mine, train__learning_rate=0.5)
    with pytest.raises(KeyboardInterrupt):
        train(other, 2, control_c)
    (after,) = unfinished(out)
    assert after != before
    assert train(changed(other, train__save_steps=3)).steps[0] == 3  # how often it is saved computes nothing
    assert unfinished(out) == []


def test_a_recipe_that_the_job_no_longer_has_leaves_nothing_unfinished(mine: Values) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(mine, 2, control_c)
    train(changed(mine, model__recipes=["mlm"]))
    assert unfinished(Path(mine["out"])) == []


def test_a_restart_begins_an_unfinished_training_anew(mine: Values) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(mine, 2, control_c)
    assert train(mine, restart=True).steps[0] == 1


def test_a_training_that_saved_nothing_leaves_nothing(mine: Values) -> None:
    with pytest.raises(TrainingError):
        train(mine, 1, fail)
    assert unfinished(Path(mine["out"])) == []


@pytest.mark.slow
def test_two_processes_by_torchrun_make_the_models_of_a_job(mine: Values, tmp_path: Path) -> None:
    out = Path(mine["out"])
    shutil.copytree(out, tmp_path / "one")
    train(changed(mine, out=str(tmp_path / "one"), train__gradient_accumulation_steps=2))
    (tmp_path / "job.json").write_bytes(kept_content(parse_job(mine)))  # else it is one of an earlier version
    done = torchrun("-m", "reticent", "run", str(tmp_path / "job.json"), "--until", "train", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("{\n") > 0  # the first process alone prints
    one, two = (json.loads((folder / MODEL / "ledger.json").read_text()) for folder in (tmp_path / "one", out))
    assert (one["settings"].pop("gradient_accumulation_steps"), two["settings"].pop("gradient_accumulation_steps")) == (
        2,
        1,
    )
    assert one == two
    losses = [
        [json.loads(line)["loss"] for line in (folder / MODEL / "metrics.jsonl").read_text().splitlines()]
        for folder in (tmp_path / "one", out)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert unfinished(out) == []


@pytest.mark.parametrize(("policy", "warns"), [("last", True), ("all", False)])
def test_masked_model_under_the_policy_for_causal_ones_warns(
    policy: str, warns: bool, values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(Recorder, "warn", lambda _, message: said.append(message))
    job = changed(values, out=str(tmp_path / policy), protect={"n": 2, "policy": policy})
    job["index"] = {"max_n": 2}
    execute(Run(parse_job(job), Recorder()), "protect")
    assert any("one direction only" in line for line in said) == warns


def test_a_job_read_back_from_its_run_folder_trains_each_model_as_it_was_told() -> None:
    models = [
        {"name": "own", "base": "b", "objective": "clm", "recipes": ["clm"], "train": {"learning_rate": 1e-3}},
        {"name": "dp", "base": "b", "objective": "clm", "recipes": ["dp-clm"], "train": {"dp": {"target_epsilon": 4}}},
    ]
    train = {"window_length": 64, "num_epochs": 3, "batch_size": 2}
    job = parse_job({"out": "run", "corpus": {"source": "notes"}, "train": train, "model": models})
    again = parse_job(json.loads(job.model_dump_json()))
    for model, same in zip(job.model, again.model, strict=True):
        assert again.training(same) == job.training(model)
        assert again.training(same).num_epochs == 3


#: Ends when the held-out people's loss falls no more: at this rate it soon rises.
EARLY = {"train__eval_strategy": "epoch", "train__early_stopping_patience": 1, "train__checkpoint_epochs": None,
         "train__num_epochs": 40, "train__learning_rate": 0.05}  # fmt: skip


def test_a_job_ends_early_by_ordinary_words_of_its_held_out_people(mine: Values) -> None:
    early, out = changed(mine, **EARLY), Path(mine["out"])
    train(early)
    run, content = Run(parse_job(early)), read_ledger(out / MODEL / "ledger.json")
    assert 1 < content["ended"]["epoch"] == content["ended"]["best_epoch"] + 1 < 40
    (tested,) = models_under_test(run)
    best = content["ended"]["best_epoch"]
    assert (tested.epoch, tested.epochs_passed, tested.best_epoch, tested.kept_after) == (40, best + 1, best, best)
    store = open_tokens(out / "tokens" / "toy" / "audit")
    held = run.individuals.mask(HELDOUT)[store.individual]
    ordinary = (store.flags == 0) & (store.word_ids >= 0) & np.repeat(held, np.diff(store.doc_offsets))
    assert 0 < content["eval"]["targets"] < 0.5 * ordinary.sum()  # the share that is masked
    assert [path.name for path in (out / MODEL).glob("epoch-*")] == ["epoch-0040"]
    assert verify_training(run, "toy", "ppmlm", out / MODEL / "ledger.json").mismatches == []
    assert train(early).made == []
    assert train(changed(early, train__early_stopping_patience=2)).made == [MODEL]


def test_who_watches_alone_makes_nothing_again(mine: Values) -> None:
    train(mine)
    assert train(changed(mine, train__eval_strategy="epoch")).made == []


def test_a_shadow_ends_by_those_whom_it_is_not_trained_on(
    mine: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(parse_job(changed(mine, audit__shadow={"recipes": ["ppmlm"], "num_shadows": 4}, **EARLY)))
    shadow, given, real = shadows_of(run)[0], {}, loop.train
    (run.folder / shadow.tokens).mkdir(parents=True)
    write_shadow_tokens(shadow, run.folder / shadow.tokens, {})
    monkeypatch.setattr(loop, "train", lambda *args, **more: given.update(more) or real(*args, **more))
    assert _train_shadow(shadow, tmp_path, {}).name == "epoch-0040"
    is_in, everyone = shadow.individuals.mask(MEMBERS), open_tokens(run.folder / "tokens" / "toy" / "audit").individual
    assert {*given["heldout"].individual.tolist()} == {*everyone[~is_in[everyone]].tolist()}


def test_a_base_that_cannot_be_loaded_is_found_before_the_first_training(mine: Values, tmp_path: Path) -> None:
    base = tmp_path / "broken"
    shutil.copytree(mine["model"][0]["base"], base)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"intermediate_size": config["intermediate_size"] + 8}))
    mine["model"].append({**mine["model"][0], "name": "second", "base": str(base)})
    with pytest.raises(ArtifactError, match="broken: "):
        train(mine)
    assert not (Path(mine["out"]) / MODEL).exists()


def test_a_base_of_two_sections_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthesize(tmp_path, SynthConfig(num_individuals=12, words_per_document=20, documents_per_individual=1.0))
    toy_model("gpt2", max_length=64).save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
    about = {"base": str(tmp_path / "base"), "objective": "clm", "recipes": ["clm"]}
    job = parse_job({
        "out": str(tmp_path / "run"), "corpus": {"source": str(tmp_path / "documents"), "spans": "spans"},
        "detect": {"detectors": ["gold"]}, "split": {"heldout": 0.5},
        "model": [{"name": "one", **about}, {"name": "two", **about}],
        "train": {"num_epochs": 1, "window_length": 64, "device": "cpu"},
        "audit": {"num_bootstrap": 100, "attacks": ["loss"]},
    })  # fmt: skip
    measured: list[str] = []
    evaluate = Auditor.evaluate

    def counted(self: Auditor, entry: Any, *given: Any) -> Any:
        measured.append(entry.recipe)
        return evaluate(self, entry, *given)

    monkeypatch.setattr(Auditor, "evaluate", counted)
    execute(Run(job), until="audit")
    assert sorted(measured) == ["base", "clm", "clm"]
    first, second = (tmp_path / "run" / "measures" / name / "base" / "epoch-0000" for name in ("one", "two"))
    assert sorted(file.name for file in second.iterdir()) == ["manifest.json", "measures.json", "scores.parquet"]
    assert (first / "measures.json").read_bytes() == (second / "measures.json").read_bytes()
