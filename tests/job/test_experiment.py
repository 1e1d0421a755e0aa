"""The whole experiment at toy size: stopped anywhere it goes on, does nothing twice and ends with the same bytes."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import reticent.audit.evaluate
import reticent.trainer.loop
from reticent.core.artifact import read_manifest
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.artefact import measurements_of
from reticent.job.config import parse_job
from reticent.job.experiment import SIZES, experiment_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.status import job_status
from reticent.trainer.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("one_thread", "without_ink")

Values = dict[str, Any]
RECIPES_TRAINED = ("clm", "ppclm")
TINY = {"vocab_size": 400, "hidden_size": 8, "num_layers": 1, "num_heads": 1, "num_epochs": 1}


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment") / "hospital"
    folder.mkdir()
    synthesize(
        folder, SynthConfig(num_individuals=16, words_per_document=30, languages=("en",), public_documents=30, seed=3)
    )
    return folder


def values_of(hospital: Path, out: Path) -> Values:
    """2 seeds x 2 recipes x 2 epochs of the smallest size, with one model."""
    corpus = {"source": str(hospital / "documents"), "spans": "spans"}
    values = tomllib.loads(experiment_job("toy", out=str(out), corpus=corpus, detect={"detectors": ["gold"]}))
    (model,) = (m for m in values["model"] if m["objective"] == "clm")
    model["foundation"] |= {"text": str(hospital / "public"), **TINY}
    values["model"] = [model]
    values["split"] = {"heldout": 0.4}
    values["index"]["max_n"] = 1
    del values["audit"]["generation"]  # as long as the window
    values["train"]["window_length"] = 48
    model["recipes"] = [name for name in model["recipes"] if name in RECIPES_TRAINED]
    assert values["train"]["seeds"] == [0, 1]
    return values


class Counted:
    """Counts the trainings and scorings, and fails before the chosen ones."""

    def __init__(self, patch: pytest.MonkeyPatch, *, fail_at: tuple[str, int] | None = None):
        self.done: dict[str, list[str]] = {"train": [], "score": []}
        self.fail_at = fail_at
        patch.setattr(reticent.trainer.loop, "train", self._counted("train", reticent.trainer.loop.train))
        patch.setattr(
            reticent.audit.evaluate.Auditor, "score", self._counted("score", reticent.audit.evaluate.Auditor.score)
        )

    def _counted(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if self.fail_at == (what, len(self.done[what])):
                raise KeyboardInterrupt
            result = function(*args, **options)
            self.done[what].append(args[2].name if what == "train" else args[1].recipe)
            return result

        return counted


def content(folder: Path) -> dict[str, bytes]:
    """Every file of the results; locks and timings are none, and where the run stands is in the job and the manifests'
    configurations only.
    """
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(str(folder).encode(), b"RUN")
        for path in files
        if path != folder / "job.json"
    }


@pytest.fixture(scope="module")
def finished(hospital: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment, run through without a stop."""
    folder = tmp_path_factory.mktemp("experiment") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        counted = Counted(patch)
        execute(Run(parse_job(values_of(hospital, folder))))
    assert sorted(counted.done["train"]) == sorted(["clm", *RECIPES_TRAINED * 2])  # and the foundation, with clm
    assert sorted(counted.done["score"]) == sorted(["base", *RECIPES_TRAINED * 4])
    return folder


def test_an_experiment_stopped_twice_goes_on_does_nothing_twice_and_gives_the_same_bytes(
    finished: Path, hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    values = values_of(hospital, tmp_path / "run")
    done = []
    for fail_at in (("train", 3), ("score", 4), None):
        with monkeypatch.context() as patch:
            counted = Counted(patch, fail_at=fail_at)
            with nullcontext() if fail_at is None else pytest.raises(KeyboardInterrupt):
                execute(Run(parse_job(values)))
            done.append((len(counted.done["train"]), len(counted.done["score"])))
    assert done == [(3, 1), (2, 4), (0, 4)]
    first, second = content(finished), content(tmp_path / "run")
    assert {name.split("/")[0] for name in first} >= {"measures", "report"}
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_every_seed_is_another_training_of_the_same_members(finished: Path) -> None:
    evidence = json.loads((finished / "audit" / "audit.json").read_text())
    trained = [(m["recipe"], m["seed"], m["epoch"]) for m in evidence["models"] if m["recipe"] != "base"]
    assert trained == [(r, s, e) for r in RECIPES_TRAINED for s in (0, 1) for e in (1, 2)]
    folder = finished / "models/gpt2/clm"
    assert sorted(p.name for p in folder.glob("[!.]*")) == ["seed-0", "seed-1"]
    assert read_manifest(folder / "seed-0").inputs == read_manifest(folder / "seed-1").inputs
    weights = [(folder / f"seed-{s}/epoch-0002/model.safetensors").read_bytes() for s in (0, 1)]
    assert weights[0] != weights[1]


def test_the_report_shows_means_and_their_json_every_seed(finished: Path) -> None:
    page = (finished / "report" / "report.html").read_text()
    assert "Each recipe was trained 2 times" in page
    assert page.count('id="fig-epochs-') or page.count("against epochs, Causal") >= 3
    numbers = json.loads((finished / "report" / "report.json").read_text())
    assert len(numbers["models"]) == 9
    assert [(m["recipe"], m["epoch"], m.get("num_trainings")) for m in numbers["over_seeds"]] == [("base", 0, None)] + [
        (r, e, 2) for r in RECIPES_TRAINED for e in (1, 2)
    ]
    assert {m.get("training") for m in numbers["models"]} == {None, 1, 2}  # their seeds are kept back


def test_another_k_retrains_only_what_looks_at_flags(
    finished: Path, hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    values = values_of(hospital, tmp_path / "run")
    values["protect"]["k"] = 3
    states = {a["name"]: a["state"] for a in job_status(Run(parse_job(values)))["artifacts"]}
    assert states["tokens/gpt2/train"] == "out of date"
    with monkeypatch.context() as patch:
        counted = Counted(patch)
        execute(Run(parse_job(values)), "train")
    assert counted.done["train"] == ["ppclm", "ppclm"]


def test_another_recipe_and_another_seed_cost_their_own_scoring_only(
    finished: Path, hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    values = values_of(hospital, tmp_path / "run")
    values["model"][0]["recipes"].append("ippclm")
    values["train"]["seeds"] = [0, 1, 7]
    with monkeypatch.context() as patch:
        counted = Counted(patch)
        execute(Run(parse_job(values)), "audit")
    assert counted.done["train"] == ["ippclm", "ippclm", *RECIPES_TRAINED, "ippclm"]
    assert sorted(counted.done["score"]) == sorted([*RECIPES_TRAINED * 2, *["ippclm"] * 6])


def test_a_training_without_seeds_becomes_that_of_the_jobs_seed_and_not_the_other_way_round(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = values_of(hospital, tmp_path / "run")
    values["model"][0]["recipes"] = ["clm"]
    seeds = values["train"].pop("seeds")
    run = Run(parse_job(values))
    execute(run, "train")
    assert run.checkpoints(run.job.model[0], "clm")[2] == tmp_path / "run/models/gpt2/clm/epoch-0002"
    values["train"]["seeds"] = seeds
    with monkeypatch.context() as patch:
        counted = Counted(patch)
        run = Run(parse_job(values))
        execute(run, "train")
    assert counted.done["train"] == ["clm"]
    assert run.checkpoints(run.job.model[0], "clm", 1)[2] == tmp_path / "run/models/gpt2/clm/seed-1/epoch-0002"
    del values["train"]["seeds"]
    with pytest.raises(ArtifactError, match="trainings of several seeds"):
        execute(Run(parse_job(values)), "train")


def test_measures_of_checkpoints_that_are_gone_are_deleted(finished: Path, hospital: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    values = values_of(hospital, tmp_path / "run")
    values["model"][0]["recipes"] = ["clm"]
    values["train"] |= {"num_epochs": 1, "checkpoint_epochs": [1]}
    run = Run(parse_job(values))
    execute(run, "audit")
    kept = {str(p.parent.relative_to(run.folder)) for p in run.folder.glob("measures/*/clm/*/manifest.json")}
    assert kept == {p.name for p in measurements_of(run.job, run.job.model[0]) if p.training}
    assert len(list(run.folder.glob("measures/*/ppclm/*/manifest.json"))) == 4  # its checkpoints are still there


def test_status_says_what_is_done_and_what_is_left(finished: Path, hospital: Path) -> None:
    values = values_of(hospital, finished)
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    done = job_status(Run(parse_job(values)))
    assert {a["state"] for a in done["artifacts"]} == {"done"}
    assert all(a["seconds"] is not None for a in done["artifacts"])
    assert done["plan"] == {
        "what": "trainings and scorings", "num_steps": 13, "num_done": 13, "next": None, "remaining_seconds": 0.0,
        "unmeasured": [],
    }  # fmt: skip
    values["train"]["seeds"] = [0, 1, 2]
    more = job_status(Run(parse_job(values)))
    assert [a["name"] for a in more["artifacts"] if a["state"] == "to do"] == [
        *(f"models/gpt2/{r}/seed-2" for r in RECIPES_TRAINED),
        *(f"measures/gpt2/{r}/seed-2-epoch-000{e}" for r in RECIPES_TRAINED for e in (1, 2)),
    ]
    assert more["plan"]["num_done"] == 13
    assert more["plan"]["next"] == "models/gpt2/clm/seed-2"
    assert 0 < more["plan"]["remaining_seconds"] < 600
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_status_tells_a_training_that_was_begun(finished: Path, hospital: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    values = values_of(hospital, folder)
    values["train"]["seeds"] = [0, 1, 2]
    (folder / "models/gpt2/clm/.seed-2.part-0123456789ab").mkdir()
    found = {a["name"]: a["state"] for a in job_status(Run(parse_job(values)))["artifacts"]}
    assert [name for name, state in found.items() if state == "begun"] == ["models/gpt2/clm/seed-2"]


def test_status_of_a_job_that_has_not_begun(hospital: Path, tmp_path: Path) -> None:
    found = job_status(Run(parse_job(values_of(hospital, tmp_path / "nowhere"))))
    assert found["plan"] is None
    assert {a["state"] for a in found["artifacts"]} == {"to do"}
    assert not (tmp_path / "nowhere").exists()


def test_status_without_the_documents_or_a_list_of_who_withdrew_is_an_error(finished: Path, hospital: Path) -> None:
    values = values_of(hospital, finished)
    for corpus in ({"source": str(hospital / "gone")}, {"withdrawn": [str(hospital / "gone.txt")]}):
        with pytest.raises((CorpusError, PolicyError), match="gone"):
            job_status(Run(parse_job({**values, "corpus": {**values["corpus"], **corpus}})))


# ------------------------------------------------------------------------------------------------------ the job file


@pytest.mark.parametrize("size", SIZES)
def test_every_size_is_a_job_that_explains_itself(size: str) -> None:
    text = experiment_job(size, out="else where")
    job = parse_job(tomllib.loads(text))
    assert job.out == "else where"
    assert text.count("#") > 15
    assert max(map(len, text.splitlines())) <= 120
    assert "reticent synth hospital" in text
    if size != "toy":
        assert [job.training(m).epochs_kept() for m in job.model] == [(4, 8, 16, 32, 64)] * 2
        assert job.train.seeds == (0, 1, 2)
        trained = {recipe for model in job.model for recipe in model.recipes}
        left_out = {name for name, r in RECIPES.items() if r.replaces_indirect or r.words != "counted"} | {"dp-mlm"}
        assert trained == RECIPES.keys() - left_out | {"ppmlm-n3", "ppclm-n3"}
        assert all(f'# "{name}",' in text for name in left_out)
        assert {name: job.recipes[name].n for name in job.recipes} == {"ppmlm-n3": 3, "ppclm-n3": 3}
        assert job.train.dp is not None
    assert job.audit.generation is not None
    assert job.classify is not None


def test_published_settings_stand_in_the_sizes_for_a_gpu() -> None:
    for size in ("small", "base"):
        train = parse_job(tomllib.loads(experiment_job(size))).train
        assert (train.window_length, train.batch_size, train.learning_rate, train.num_epochs) == (512, 16, 1e-4, 64)
        assert train.device == "cuda"


def test_a_job_for_ones_own_documents_and_models() -> None:
    corpus = {"source": 'notes "of" 2019\\x.parquet', "individual_id": "patient"}
    text = experiment_job("cpu", corpus=corpus, bases={"clm": "models/own"})
    job = parse_job(tomllib.loads(text))
    assert job.corpus.source == 'notes "of" 2019\\x.parquet'
    assert [(m.objective, m.base) for m in job.model] == [("clm", "models/own")]
    assert "synth" not in text
    assert (list(job.recipes), job.classify) == (["ppclm-n3"], None)
    labelled = parse_job(tomllib.loads(experiment_job("base", corpus=corpus | {"label": "smoking"})))
    assert labelled.classify is not None
    assert (labelled.classify.learning_rate, labelled.classify.num_epochs) == (2e-5, 4)
    masked = parse_job(tomllib.loads(experiment_job("cpu", corpus=corpus, bases={"mlm": "models/own"})))
    assert (list(masked.recipes), masked.train.dp) == (["ppmlm-n3"], None)
    alone = parse_job(tomllib.loads(experiment_job("cpu", corpus=corpus)))
    assert {m.foundation.text for m in alone.model if m.foundation} == {"reference"}
    assert alone.split.reference > 0


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(PolicyError, match="one of toy, cpu, small, base"):
        experiment_job("huge")
