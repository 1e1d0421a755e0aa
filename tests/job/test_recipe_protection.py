"""A recipe with its own k, n and policy: its tokens are those of a job that protects everything so."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from fixtures.command import command
from fixtures.jobs import Recorder, Values, changed, make_hospital, run, values_of
from fixtures.models import write_toy_model

from reticent.core.artifact import HELD, read_manifest
from reticent.core.errors import ArtifactError, PolicyError, ReticentError
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.store import open_tokens
from reticent.job import training_tokens as module
from reticent.job.artefact import trainings_of
from reticent.job.config import parse_job
from reticent.job.dependencies import training_dependencies
from reticent.job.export import copy_members_tokens
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.stages.shadows import shadows_of
from reticent.job.text_checks import check_text
from reticent.job.training_tokens import training_tokens, verify_training
from reticent.trainer.distributed import World

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

OWN = "train-k5-n1-all"


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    hospital = make_hospital(tmp_path_factory.mktemp("hospital"), 24)
    base = write_toy_model(hospital / "bert")
    values = changed(values_of(hospital, hospital / "run"), model__base=str(base))
    values["train"] = {"num_epochs": 1, "window_length": 32, "batch_size": 8}
    values["recipes"] = {
        "strict": {"base": "ppmlm", "k": 5, "n": 1, "policy": "all"},
        "tagged": {"base": "ppmlm", "context": "tag", "k": 5, "n": 1, "policy": "all"},
        "same": {"base": "ppmlm", "k": 3},
        "fresh": {"base": "ppmlm", "context": "surrogate"},
    }
    values["model"][0]["recipes"] = ["ppmlm", "strict", "tagged", "same", "fresh"]
    run(values)
    return values


@pytest.fixture(scope="module")
def trained(values: Values) -> Run:
    job = Run(parse_job(values))
    execute(job, "train")
    return job


def test_tokens_of_a_recipe_are_those_of_a_job_with_its_protection(values: Values, tmp_path: Path) -> None:
    other = changed(values, out=str(tmp_path / "run"), protect__k=5, protect__n=1, protect__policy="all", recipes={})
    other["model"][0]["recipes"] = ["ppmlm"]
    run(other)
    tokens = Path(values["out"]) / "tokens/toy"
    found, expected, usual = (
        open_tokens(path) for path in (tokens / OWN, tmp_path / "run/tokens/toy/train", tokens / "train")
    )
    assert found.flags_fingerprint() == expected.flags_fingerprint()
    np.testing.assert_array_equal(found.ngram_starts, expected.ngram_starts)
    assert found.flags_fingerprint() != usual.flags_fingerprint()
    assert found.text_fingerprint() == usual.text_fingerprint()
    assert {path.name for path in tokens.iterdir() if not path.name.startswith(".")} == {
        *("ids", "gaps", "train", "audit", OWN, "train-tag-k5-n1-all")
    }


def test_another_protection_of_a_recipe_makes_its_tokens_alone(values: Values, tmp_path: Path) -> None:
    recipes = {**values["recipes"], "strict": {"base": "ppmlm", "k": 4, "n": 2, "policy": "last"}}
    shutil.copytree(values["out"], tmp_path / "run")
    recorder = run({**values, "recipes": recipes, "out": str(tmp_path / "run")})
    assert recorder.made == ["tokens/toy/train-k4-n2-last"]


def test_a_training_uses_the_tokens_of_its_recipe_and_its_ledger_is_verified_by_them(trained: Run) -> None:
    job, folder = trained, trained.folder / "models/toy"
    (trained.folder / ".verify-killed" / "tokens").mkdir(parents=True)
    (trained.folder / ".verify-killed" / HELD).touch()
    for recipe in ("ppmlm", "strict", "same"):
        verdict = verify_training(job, "toy", recipe, folder / recipe / "ledger.json")
        assert verdict.mismatches == []
        assert "0 violations" in verdict.flags
    assert list(trained.folder.glob(".verify-*")) == []
    checks = check_text(job)
    assert set(checks) == {f"tokens/toy/{name}" for name in ("train", "audit", OWN, "train-tag-k5-n1-all")}
    assert checks["tokens/toy/train-tag-k5-n1-all"] is None
    assert all(check.holds for check in checks.values() if check is not None)


def test_shadows_of_a_recipe_have_its_protection(values: Values) -> None:
    job = parse_job({**values, "audit": {"shadow": {"recipes": ["strict", "same"], "num_shadows": 4}}})
    names = {shadow.recipe: shadow.tokens for shadow in shadows_of(Run(job)) if shadow.number == 0}
    assert names == {"strict": f"tokens/toy/{OWN}-shadow-00", "same": "tokens/toy/train-shadow-00"}


def test_copies_of_the_members_tokens_train_alone(
    values: Values, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("protect", Path(values["out"]), "--copy-members", tmp_path / "copy", "--quiet") == 0
    for place, name in (("toy", "train"), (f"toy{OWN.removeprefix('train')}", OWN)):
        copy, view = open_tokens(tmp_path / "copy" / place), open_tokens(Path(values["out"]) / "tokens/toy" / name)
        assert copy.flags_fingerprint() == view.flags_fingerprint()
        assert copy.text_fingerprint() == view.text_fingerprint()
        assert copy.doc_ids.equals(view.doc_ids)
        assert copy.num_documents < open_tokens(Path(values["out"]) / "tokens/toy/audit").num_documents
        assert read_manifest(tmp_path / "copy" / place).kind == "tokens"
    said = capsys.readouterr()
    assert "toy: only tokens of the original text leave; tagged, fresh: trained on others" in said.err
    assert said.out.count("documents, ") == len(list((tmp_path / "copy").glob("[!.]*"))) == 2


def test_an_export_names_the_recipes_that_are_not_to_be_trained_on_it(
    values: Values, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("export", Path(values["out"]), "--out", tmp_path / "there", "--quiet") == 0
    said = capsys.readouterr()
    assert "leave with the job's protection (k = 3, n = 2, policy cover); strict, tagged, fresh: trained on" in said.err
    assert "ppmlm" not in said.err
    assert str(tmp_path / "there") in said.out
    assert " rows" in said.out


def test_two_copies_are_not_made_in_one_place(values: Values, tmp_path: Path) -> None:
    other = {**values["model"][0], "name": f"toy{OWN.removeprefix('train')}", "recipes": ["ppmlm"]}
    run = Run(parse_job({**values, "model": [*values["model"], other]}))
    execute(run, "protect")
    with pytest.raises(PolicyError, match="of two models or recipes"):
        copy_members_tokens(run, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"n": 3}, r"recipes\.strict\.n = 3 needs index\.max_n >= 3, got 2"),
        ({"k": 1}, "k"),
        ({"policy": "none"}, "policy"),
    ],
)
def test_a_protection_that_cannot_be_is_refused(values: Values, own: Values, says: str) -> None:
    with pytest.raises(ReticentError, match=says):
        parse_job({**values, "recipes": {**values["recipes"], "strict": {"base": "ppmlm", **own}}})


def test_surrogates_of_an_epoch_are_looked_up_nowhere_and_a_verification_makes_each_epoch_once(
    values: Values, trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    recorder.say = (said := []).append  # type: ignore[method-assign]
    own = Run(parse_job(values), recorder)
    assert own.folder == trained.folder
    model, recipe = own.job.model[0], own.job.recipe("fresh")
    passes: list[str] = []
    survey, read = FlaggedWords.survey, FlaggedWords.__iter__
    monkeypatch.setattr(FlaggedWords, "survey", lambda self: passes.append("survey") or survey(self))
    monkeypatch.setattr(FlaggedWords, "__iter__", lambda self: passes.append("read") or read(self))
    monkeypatch.setattr("reticent.engine.index.open_index", None)
    found = []
    with training_tokens(own, model, recipe, tmp_path / "epochs", 3) as (_, epoch_store):
        assert epoch_store is not None
        for epoch in (1, 2, 3):
            store = epoch_store(epoch)
            assert store.path is not None
            assert len([*store.path.parent.iterdir()]) <= 2
            found.append((store.text_fingerprint(), store.flags_fingerprint()))
    assert sorted(passes) == ["read", "read", "read", "survey"]
    assert len({text for text, _ in found}) == 3
    passes.clear()
    assert verify_training(own, "toy", "fresh", own.folder / "models/toy/fresh/ledger.json").holds
    num_epochs = own.job.training(model).num_epochs
    assert passes.count("read") == num_epochs
    assert said == [
        f"fresh: its text was rewritten for each epoch, so it is rewritten and tokenised {num_epochs} times"
    ]


def test_processes_of_a_machine_share_the_surrogates_of_an_epoch(
    values: Values, trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, recipe = trained.job.model[0], trained.job.recipe("fresh")
    (tmp_path / ".surrogates-0-1/epoch-0001").mkdir(parents=True)  # of a training that was interrupted
    folders: list[set[str]] = []
    ranks, met = threading.local(), threading.Barrier(2)
    monkeypatch.setattr(module, "launched", lambda: World(rank=ranks.own, size=2, local_rank=ranks.own))

    def process(rank: int) -> list[str]:
        ranks.own = rank
        texts = []
        with training_tokens(Run(parse_job(values)), model, recipe, tmp_path, 2) as (_, epoch_store):
            assert epoch_store is not None
            for epoch in (1, 2):
                texts.append(epoch_store(epoch).text_fingerprint())
                met.wait()  # as a step of both
            folders.append({path.name for path in tmp_path.iterdir()})
            met.wait()
        return texts

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(process, 0)
        while not [*tmp_path.glob(f".surrogates-0-{os.getppid()}")]:
            time.sleep(0.01)
        second = pool.submit(process, 1)
        assert first.result() == second.result()
    assert folders[0] == folders[1] == {f".surrogates-0-{os.getppid()}"}
    assert not [*tmp_path.iterdir()]


def test_a_change_of_the_names_makes_a_new_artefact_where_surrogates_are_drawn(values: Values, trained: Run) -> None:
    digests = {}
    for names, language in (("realistic", "auto"), ("realistic", "fr"), ("syllables", "auto")):
        own = Run(parse_job({**values, "surrogates": {"names": names, "language": language}}))
        trainings = {training.recipe: training for training in trainings_of(own.job)}
        settings, _ = training_dependencies(own, trainings["fresh"])
        digests[names, language] = settings.get("names")
        assert "names" not in training_dependencies(own, trainings["tagged"])[0]
    assert digests["realistic", "auto"] == read_manifest(trained.folder / "models/toy/fresh").config["names"]
    assert len(set(digests.values())) == 3
    assert digests["syllables", "auto"] is None


def test_a_changed_byte_of_rewritten_tokens_is_found(values: Values, trained: Run, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path / "run")
    mine = Run(parse_job({**values, "out": str(tmp_path / "run")}))
    ledger = mine.folder / "models/toy/tagged/ledger.json"
    assert verify_training(mine, "toy", "tagged", ledger).holds
    tokens = mine.folder / "tokens/toy"
    for name in ("outside.bits", "view.parquet", "ids.bin"):
        name = f"train-tag-k5-n1-all/{name}"
        whole = (tokens / name).read_bytes()
        (tokens / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert not _holds(mine, ledger)
        (tokens / name).write_bytes(whole)


def _holds(run: Run, ledger: Path) -> bool:
    try:
        return verify_training(run, "toy", "tagged", ledger).holds
    except ArtifactError:
        return False
