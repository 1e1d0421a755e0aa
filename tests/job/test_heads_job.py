"""Heads of a job: what they read, from which starts, stopped and gone on with, kept with card and ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.command import command
from fixtures.jobs import Recorder, Stopping, Values, changed, control_c, make_hospital, run, values_of
from fixtures.models import write_toy_model

from reticent.core.artifact import STATE
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.store import TokenStore, open_tokens
from reticent.ext.classify.stage import _Stage, check_settings, read_results
from reticent.ext.classify.training import train_head
from reticent.ext.dp.budget import read_budget
from reticent.job.artefact import trainings_by_recipe
from reticent.job.config import Job, parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

HEAD = {"num_epochs": 2, "save_model": True, "from_recipes": ["base", "ppmlm"]}


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    hospital = make_hospital(tmp_path_factory.mktemp("hospital"), 40)
    base = write_toy_model(hospital / "bert")
    values = changed(values_of(hospital, hospital / "run"), model__base=str(base), model__recipes=["mlm", "ppmlm"])
    values["train"] = {"num_epochs": 1, "window_length": 32, "batch_size": 8, "device": "cpu"}
    values["classify"] = {"label": "label", "min_individuals": 2, "text": "tag", **HEAD}
    values["tag"] = HEAD
    values["audit"] = {"num_bootstrap": 100}
    run(values, "train")
    return values


@pytest.fixture(scope="module")
def finished(values: Values) -> Path:
    return execute(Run(parse_job(values)), "classify")


@pytest.mark.heavy
def test_heads_stand_on_the_starts_that_are_named_with_card_and_ledger(values: Values, finished: Path) -> None:
    results = read_results(Run(parse_job(values)))
    assert [result.task for result in results] == ["class", "tags"]
    for result in results:
        starts = [(row.recipe, row.epoch) for row in result.results if row.training is not None]
        assert starts == [("base", 0), ("ppmlm", 1)]
        for row in result.results:
            assert 0 <= row.micro_f1.low <= row.micro_f1.value <= row.micro_f1.high <= 1
            assert row.micro_f1.n <= result.individuals["heldout"]
    assert {"NAME", "DATE"} <= set(results[1].classes)
    for place, context in (("classification", "tag"), ("tagging", "surrogate")):
        for saved in (finished / place / "toy/base/base", finished / place / "toy/ppmlm/epoch-0001"):
            assert "[NAME]" in (saved / "README.md").read_text() or context == "surrogate"
            ledger = json.loads((saved / "ledger.json").read_text())
            assert ledger["recipe"]["context"] == context
            protections = [row["protection"] for row in ledger["epochs"]]
            assert len(set(protections)) == (1 if context == "tag" else 2)  # surrogates are drawn anew
    assert not list(finished.rglob(".surrogates*"))


@pytest.mark.heavy
def test_no_identifier_of_a_member_is_read_where_surrogates_are(
    values: Values, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[TokenStore, Any, str]] = []

    def watching(*arguments: Any, **options: Any) -> Any:
        stores, own = options["epoch_store"], options["labels"]
        read.extend((store, own(store), store.text_fingerprint()) for store in map(stores, (1, 2)))
        return train_head(*arguments, **options)

    monkeypatch.setattr("reticent.ext.classify.training.train_head", watching)
    values = changed(values, out=str(finished), tag__num_epochs=3, classify=None)
    execute(Run(parse_job(values)), "classify")
    view = open_tokens(finished / "tokens/toy/train")
    assert len(read) == 4
    for store, tags, _ in read:
        direct = store.flags & 1 > 0
        assert direct.any()
        assert (tags != 0)[direct].mean() > 0.99  # a replaced token has a tag, but for what no word stands in
        assert not (tags[~direct] > 0).any()
        assert store.num_documents == view.num_documents
    assert len({text for *_, text in read}) == 2  # base and checkpoint read the same of an epoch


@pytest.mark.heavy
def test_a_head_that_was_stopped_goes_on_and_a_start_that_was_finished_is_not_trained_again(
    values: Values, finished: Path
) -> None:
    wanted = (finished / "tagging/toy/ppmlm/classification.json").read_bytes()
    values = changed(values, out=str(finished), tag__learning_rate=2e-4, classify=None)
    whole = execute(Run(parse_job(values)), "classify")
    ended = {path.name: path.read_bytes() for path in (whole / "tagging/toy/ppmlm").rglob("*.safetensors")}
    assert (whole / "tagging/toy/ppmlm/classification.json").read_bytes() != wanted
    values = changed(values, tag__learning_rate=3e-4)
    stopping = Stopping(3, control_c)
    with pytest.raises(KeyboardInterrupt):
        execute(Run(parse_job(values), stopping), "classify")
    again = Stopping(-1, control_c)
    execute(Run(parse_job(values), again), "classify")
    assert again.steps[0] == 4
    values = changed(values, tag__learning_rate=2e-4)
    execute(Run(parse_job(values)), "classify")
    assert {path.name: path.read_bytes() for path in (whole / "tagging/toy/ppmlm").rglob("*.safetensors")} == ended


@pytest.mark.heavy
def test_the_command_trains_taggers_and_prints_strict_f1(
    values: Values, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("tagger", "train", finished, "-q") == 0
    said = capsys.readouterr().out
    assert "categories of identifiers" in said
    assert "Strict: kind, first and last token." in said
    assert "majority class" not in said
    assert command("tagger", "train", finished / "split") == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tag": {"text": "tag"}}, r"tag\.text: expected 'keep' or 'surrogate'"),
        ({"tag": {"from_recipes": ["mlma"]}}, r"tag\.from_recipes: no model is trained with mlma"),
        ({"tag": {"private": True, "text": "keep"}}, r"tag\.private: DP-SGD needs \[train\.dp\]"),
        ({"classify": {"label": "label", "private": True, "text": "tag"}}, r'private: .* set text to "keep"'),
        (
            {"classify": {"label": "label", "private": True, "min_individuals": 2}},
            "private: which classes are left out",
        ),
    ],
)
def test_a_section_that_cannot_be_is_refused(values: Values, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_job({**values, **changes})


DP = {"target_epsilon": 8.0, "max_documents": 2}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("dp", "tag", "error", "message"),
    [
        (DP, {}, PolicyError, r"tagging from mlm of toy: .*the training of its checkpoint.*tag\.from_recipes"),
        ({**DP, "target_epsilon": 0.01}, {"from_recipes": ["base"]}, PolicyError, "is the least at this size"),
        ({**DP, "target_epsilon": [4, 8]}, {"from_recipes": ["base"]}, PolicyError, "has one epsilon"),
    ],
)
def test_an_epsilon_that_cannot_be_given_is_refused_before_any_training(
    values: Values, tmp_path: Path, dp: Values, tag: Values, error: type[Exception], message: str
) -> None:
    pytest.importorskip("opacus")
    own = changed(
        values, out=str(tmp_path / "run"), train__dp=dp, classify=None, detect={"detectors": ["gold", "rules"]}
    )
    own["tag"] = {"private": True, "text": "keep", **tag}
    with pytest.raises(error, match=message):
        execute(Run(parse_job(own)), "classify")
    assert not list((tmp_path / "run").glob("models/*/*"))


@pytest.mark.heavy
def test_a_household_on_both_sides_is_refused_before_any_training(values: Values, tmp_path: Path) -> None:
    own = changed(values, out=str(tmp_path / "run"), split__by="individual")
    with pytest.raises(ArtifactError, match=r"\d+ households are on both sides"):
        execute(Run(parse_job(own)), "classify")
    assert not list((tmp_path / "run").glob("models/*/*"))


@pytest.mark.heavy
def test_one_budget_holds_models_and_heads_of_households_and_the_whole_is_asked_before_the_first(
    values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opacus")
    own = changed(values, out=str(tmp_path / "run"), classify=None, detect={"detectors": ["gold", "rules"]})
    own = changed(own, model__recipes=["dp-mlm"], tag={"private": True, "text": "keep", "num_epochs": 1})

    def job(budget: float) -> Job:
        return parse_job(changed(own, train__dp={**DP, "sample_rate": 0.5, "budget_epsilon": budget}))

    with pytest.raises(PolicyError, match=r"these 3 runs together would spend epsilon 24\.00 .* per household"):
        execute(Run(job(23)), "classify")
    assert not list((tmp_path / "run").glob("models/*/*"))
    with pytest.raises(KeyboardInterrupt):
        execute(Run(job(24), Stopping(1, control_c)), "classify")
    with monkeypatch.context() as patched:
        patched.setattr("reticent.ext.classify.documents._measure_f1", lambda *_: control_c())  # of a trained head
        with pytest.raises(KeyboardInterrupt):
            execute(Run(job(24)), "classify")
    recorder = Recorder()
    execute(Run(job(24), recorder), "classify")  # what was begun is not asked for twice
    assert not list((tmp_path / "run/tagging").rglob(STATE))
    assert "tagging/toy/dp-mlm" in recorder.made
    found = read_budget(tmp_path / "run/privacy-budget.json")
    assert [(each.about["recipe"], each.guarantee.unit, each.settled) for each in found] == [
        (recipe, "household", True) for recipe in ("dp-mlm", "tag", "tag")
    ]
    recorder = Recorder()
    execute(Run(job(30), recorder), "classify")
    assert not [name for name in recorder.made if "toy/" in name]  # a larger budget trains nothing again


def test_a_private_head_owes_for_the_spans_it_learns_and_for_its_start(values: Values, tmp_path: Path) -> None:
    detect = {"detectors": ["gold", "rules"], "propagate": True}
    own = changed(values, train__dp={"noise_multiplier": 1.0}, detect=detect, model__recipes=["dp-mlm", "mine"])
    own["recipes"] = {"mine": {"base": "ppmlm", "private": True}}
    for section in ("tag", "classify"):
        own[section] = {"private": True, "text": "keep", "from_recipes": ["base", "dp-mlm", "mine"]}
    own["classify"]["label"] = "label"
    job = parse_job(own)
    owed = {
        (head.section, training.recipe if training else "base"): _Stage(
            head, job.model[0], training
        ).unaccounted_steps_of(job)
        for head in job.heads
        for training in (None, *trainings_by_recipe(job, job.model[0]))
    }
    spans, words = ("the propagation of identifiers",), ("the choice of protected words",)
    assert owed == {
        ("classify", "base"): (),
        ("classify", "dp-mlm"): (),
        ("classify", "mine"): words,
        ("tag", "base"): spans,
        ("tag", "dp-mlm"): spans,
        ("tag", "mine"): (*spans, *words),
    }


def test_other_starts_are_no_way_out_where_the_spans_are_why(values: Values) -> None:
    own = changed(values, train__dp=DP, detect={"detectors": ["gold", "rules"], "propagate": True}, classify=None)
    own["tag"] = {"private": True, "text": "keep", "from_recipes": ["base"]}
    with pytest.raises(PolicyError, match=r"tagging from base of toy: .*the propagation of identifiers") as caught:
        check_settings(Run(parse_job(own)))
    assert "from_recipes" not in str(caught.value)
