"""DP-SGD as a job asks for it: checked before anything starts, noted in the budget, its unit wherever it is said."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from fixtures.command import command
from fixtures.models import toy_model, toy_tokenizer
from typer.testing import CliRunner

from reticent.cli import app
from reticent.cli.runs import print_plan
from reticent.core.artifact import read_manifest, write_artifact
from reticent.core.errors import PolicyError
from reticent.core.progress import Progress
from reticent.engine.schema import MEMBERS
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.classify.stage import privacy_settings
from reticent.ext.dp.budget import read_budget
from reticent.job.artefact import trainings_of
from reticent.job.checks import check_run
from reticent.job.config import Job, kept_content, parse_job
from reticent.job.dependencies import privacy_of, training_dependencies
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.training_tokens import verify_training
from reticent.trainer.config import TrainConfig

pytest.importorskip("opacus")
pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")
DP = {"noise_multiplier": 1.0, "max_documents": 2, "sample_rate": 0.5}


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hospital")
    synthesize(folder, SynthConfig(num_individuals=16, words_per_document=20, languages=("en",)))
    toy_model("gpt2").save_pretrained(folder / "base")
    (folder / "base" / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
    return folder


def values(hospital: Path, out: Path, recipes: list[str], dp: dict[str, Any] | None = None, **more: Any) -> Any:
    train = {"num_epochs": 1, "window_length": 64, "batch_size": 4, "device": "cpu", **({"dp": dp} if dp else {})}
    return {
        "out": str(out),
        "corpus": {"source": str(hospital / "documents")},
        "model": [{"name": "toy", "base": str(hospital / "base"), "objective": "clm", "recipes": recipes}],
        "train": train,
        **more,
    }


def test_private_recipe_needs_its_table_before_anything_starts(hospital: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"recipe dp-clm needs \[train.dp\]"):
        parse_job(values(hospital, tmp_path, ["dp-clm"]))
    with pytest.raises(PolicyError, match="either target_epsilon or noise_multiplier"):
        parse_job(values(hospital, tmp_path, ["dp-clm"], {"unit": "record"}))
    parse_job(values(hospital, tmp_path, ["clm"]))


def test_all_settings_that_private_recipes_lack_are_named_at_once(hospital: Path, tmp_path: Path) -> None:
    more = {"protect": {"n": 2}, "index": {"max_n": 2}}
    with pytest.raises(PolicyError) as refused:
        parse_job(values(hospital, tmp_path, ["clm", "dp-clm", "dp-clm-public", "private-clm"], **more))
    public = "[train.dp] ..., protect.public_words ..., protect.n = 1 ..."
    assert re.sub(r"\([^)]*\)", "...", str(refused.value)).removeprefix("job: ").split("; ") == [
        "model toy: recipe dp-clm needs [train.dp] ...",
        f"model toy: recipe dp-clm-public needs {public}",
        f'model toy: recipe private-clm needs {public}, threshold.epsilon ..., threshold.unit = "individual"',
    ]


@pytest.mark.parametrize(
    ("recipes", "settings"),
    [
        ('["private-clm"]', ["detect.propagate=true"]),
        ('["dp-clm-public", "private-clm"]', ['detect.detectors=["rules", "shipped"]']),
        ('["clm", "private-clm"]', ['classify={label="ward", private=true, from_recipes=["clm"]}']),
    ],
)
def test_a_plan_refuses_a_private_training_as_its_run_does(
    recipes: str, settings: list[str], hospital: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "words.txt").write_text("fever\n")
    (tmp_path / "job.toml").write_text(
        f'out = "{tmp_path}/run"\n[corpus]\nsource = "{hospital}/documents"\n[train.dp]\ntarget_epsilon = 8\n'
        f'[protect]\npublic_words = "{tmp_path}/words.txt"\n[threshold]\nepsilon = 2\nunit = "individual"\n'
        f'[[model]]\nname = "toy"\nbase = "{hospital}/base"\nobjective = "clm"\nrecipes = {recipes}\n'
    )
    options = [part for each in settings for part in ("--set", each)]
    said = []
    for more in (["--plan"], []):
        assert command("run", tmp_path / "job.toml", *more, "--set", "train.window_length=64", *options) == 2
        said.append(capfd.readouterr().err.splitlines()[-1])
    assert said[0] == said[1]
    assert "no epsilon can be promised" in said[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_delta": 0.5}, "target_delta: 5e-1 is not below 1 /"),
        ({"sample_rate": 1e-7}, "10,000,000 steps"),
        ({"target_epsilon": 1e-4}, "is the least at this size"),
    ],
)
def test_a_plan_refuses_a_training_whose_numbers_allow_none(
    settings: dict[str, float], message: str, hospital: Path, tmp_path: Path
) -> None:
    """As the run does before its first training."""
    job = parse_job(values(hospital, tmp_path, ["dp-clm"], {"target_epsilon": 8.0, **settings}))
    with pytest.raises(PolicyError, match=message):
        print_plan(job, quiet=True, as_json=False)


def test_job_trains_privately_notes_the_cost_and_refuses_beyond_the_budget(hospital: Path, tmp_path: Path) -> None:
    job = values(hospital, tmp_path / "run", ["clm", "dp-clm"], DP)
    execute(Run(parse_job(job)), "train")
    folder = tmp_path / "run"
    counts = read_manifest(folder / "models" / "toy" / "dp-clm").counts
    assert "per individual (at most 2 documents each)" in counts["privacy"]
    assert "privacy" not in read_manifest(folder / "models" / "toy" / "clm").counts
    ledger = json.loads((folder / "models" / "toy" / "dp-clm" / "ledger.json").read_text())
    assert ledger["privacy"]["guarantee"] == counts["privacy"]
    (spent,) = read_budget(folder / "privacy-budget.json")
    assert spent.settled
    assert str(spent.guarantee) == counts["privacy"]

    before = (folder / "models" / "toy" / "clm" / "manifest.json").stat().st_mtime_ns
    again = values(hospital, folder, ["clm", "dp-clm"], {**DP, "max_documents": 1, "budget_epsilon": 1.0})
    with pytest.raises(PolicyError, match="is left after 1 run on this corpus"):
        execute(Run(parse_job(again)), "train")
    assert (
        folder / "models" / "toy" / "clm" / "manifest.json"
    ).stat().st_mtime_ns == before  # DP's settings are not its
    assert len(read_budget(folder / "privacy-budget.json")) == 1


@pytest.mark.parametrize(
    ("changes", "dp", "said"),
    [
        ({"packing": True}, DP, "packing: does not go with DP-SGD"),
        ({"torch_compile": True}, DP, "torch_compile: does not go with DP-SGD"),
        ({"max_steps": 9}, DP, "max_steps: does not go with DP-SGD"),
        (
            {"eval_strategy": "epoch", "early_stopping_patience": 1},
            DP,
            "early_stopping_patience: does not go with DP-SGD",
        ),
        ({"dedup": {"mode": "exact", "scope": "corpus"}}, {"target_epsilon": 8.0}, "since deduplication"),
        ({"canaries": {"num": 2}}, {"target_epsilon": 8.0}, "since the planting of canaries"),
        ({"never_target": ["direct"]}, {"target_epsilon": 8.0}, "since the choice of protected words"),
        ({"context": "surrogate"}, {"target_epsilon": 8.0}, "since the choice of replaced words"),
        ({"words": "public"}, DP, "mine needs protect.public_words"),
        (
            {"words": "public", "protect": {"n": 2, "public_words": "w"}, "index": {"max_n": 2}},
            DP,
            "needs protect.n = 1 or recipes.mine.n = 1",
        ),
        ({"words": "private", "protect": {"public_words": "w"}}, DP, "needs threshold.epsilon .*, threshold.unit"),
        (
            {"words": "public"},
            {"noise_multiplier": 1.0, "unit": "record"},
            "since the other documents of an individual looked",
        ),
        ({"words": "public", "detect": {"propagate": True}}, DP, "since the propagation of identifiers looked"),
        ({"words": "public", "detect": {"detectors": ["shipped"]}}, DP, "since a detector that learns from all"),
        (
            {
                "words": "public",
                "detect": {"detectors": ["gazetteer"], "gazetteer": {"lists": {"NAME": "n"}, "guard": False}},
            },
            DP,
            "since lists of names looked",
        ),
        ({}, {**DP, "unit": "household"}, "needs corpus.household_id"),
        ({}, {**DP, "unit": "record"}, "max_documents: is of an individual"),
        ({}, {**DP, "budget_delta": 1e-6}, "budget_delta: limits nothing without train.dp.budget_epsilon"),
        ({"private": False}, DP, "train.dp: no recipe of the job is trained by DP-SGD"),
    ],
)
def test_private_recipe_that_cannot_be_trained_is_refused_before_those_before_it(
    changes: dict[str, Any], dp: dict[str, Any], said: str, hospital: Path, tmp_path: Path
) -> None:
    job = values(hospital, tmp_path / "run", ["clm", "mine"], dp)
    mine = {"base": "clm", "private": True}
    if "words" in changes:
        mine |= {"never_target": ["direct", "indirect"]}
        job["protect"] = {"public_words": "generated"} if "needs" not in said else {}
    for name, value in changes.items():
        place = job if name in Job.model_fields else job["train"] if name in TrainConfig.model_fields else mine
        place[name] = value
    with pytest.raises(PolicyError, match=said):
        execute(Run(parse_job(job | {"recipes": {"mine": mine}})), "train")
    assert not (tmp_path / "run").exists()


def test_a_base_that_was_trained_here_has_no_epsilon(hospital: Path, tmp_path: Path) -> None:
    job = values(hospital, tmp_path / "run", ["dp-clm"], DP)
    checkpoint = tmp_path / "other/models/gpt2/clm/epoch-0008"
    shutil.copytree(job["model"][0]["base"], checkpoint)
    job["model"][0]["base"] = str(checkpoint)

    def unaccounted() -> tuple[str, ...]:
        run = Run(parse_job(job)).read_only_copy()
        (training,) = trainings_of(run.job)
        found = privacy_of(run, training.model, run.job.recipe("dp-clm")).unaccounted
        # One that was trained before this was looked at has an epsilon, and is made again.
        assert ("base" in training_dependencies(run, training)[0]) == bool(found)
        assert ("base" in privacy_settings(run.job, training.model)) == bool(found)
        return found

    assert unaccounted() == ()  # a folder of its own is taken for public
    (checkpoint.parent / "ledger.json").write_text("{}")
    assert unaccounted() == ("the base model",)
    for inputs, found in (({"text": "public"}, ()), ({"corpus": "x", "split": "y"}, ("the base model",))):
        with write_artifact(tmp_path / "foundation", kind="foundation", config={}, inputs=inputs) as writer:
            shutil.copytree(checkpoint, writer.path / "model")
            (writer.path / "ledger.json").write_text("{}")
        job["model"][0]["base"] = str(tmp_path / "foundation/model")
        assert unaccounted() == found
    job["train"]["dp"] = {"target_epsilon": 8.0, "max_documents": 2}
    with pytest.raises(PolicyError, match="since the base model looked"):
        execute(Run(parse_job(job)), "train")
    assert not (tmp_path / "run").exists()


def test_other_households_make_a_training_by_household_again_though_no_text_has_changed(
    hospital: Path, tmp_path: Path
) -> None:
    table, notes = pl.read_parquet(hospital / "documents"), tmp_path / "notes.parquet"
    job = values(hospital, tmp_path / "run", ["dp-clm"], DP, split={"heldout": 0.3})
    job["corpus"] = {"source": str(notes), "household_id": "household_id"}
    moved, found = dict[str, str](), []
    for _ in range(2):
        table.with_columns(household_id=pl.col("individual_id").replace(moved)).write_parquet(notes)
        run = Run(parse_job(job))
        execute(run, "protect")
        (training,) = trainings_of(run.job)
        found.append(training_dependencies(run, training)[1])
        members = run.individuals.table.filter(pa.array(run.individuals.mask(MEMBERS))).column("individual_id")
        moved = {members[1].as_py(): members[0].as_py()}  # two of them live together
    assert found[0]["text"] == found[1]["text"]
    assert found[0]["units"] != found[1]["units"]


def test_all_settings_that_dp_sgd_does_not_allow_are_named_at_once(hospital: Path, tmp_path: Path) -> None:
    job = values(hospital, tmp_path / "run", ["dp-clm"], {**DP, "unit": "record", "budget_delta": 1e-6})
    job["train"] |= {"packing": True, "max_steps": 9}
    own = {**job["model"][0], "name": "own", "train": {"packing": True, "gradient_checkpointing": True}}
    with pytest.raises(PolicyError) as refused:
        execute(Run(parse_job({**job, "model": [*job["model"], own]})), "train")
    assert re.findall(r"train\.[\w.]+(?=: )", str(refused.value)) == [
        "train.packing",
        "train.max_steps",
        "train.dp.max_documents",
        "train.dp.budget_delta",
        "train.gradient_checkpointing",
    ]


@pytest.mark.parametrize(
    ("epsilons", "recipes", "gates"),
    [
        ([1, 0.5], ["clm", "dp-clm-epsilon-1", "dp-clm-epsilon-0.5"], ["dp-clm-epsilon-1", "dp-clm-epsilon-0.5"]),
        ([4], ["clm", "dp-clm-epsilon-4"], ["dp-clm-epsilon-4"]),
        (4, ["clm", "dp-clm"], ["dp-clm"]),
    ],
)
def test_a_list_of_epsilons_is_a_recipe_for_each_and_another_list_replaces_it(
    epsilons: Any, recipes: list[str], gates: list[str], hospital: Path, tmp_path: Path
) -> None:
    gate = [{"measure": "membership_auc", "at_most": 0.6, "recipes": ["dp-clm"]}]
    given = values(hospital, tmp_path, ["clm", "dp-clm"], {"target_epsilon": [2.0, 1.0]}, gate=gate)
    kept = json.loads(kept_content(parse_job(given)))
    given["train"]["dp"] = kept["train"]["dp"] = {"target_epsilon": epsilons}
    for job in map(parse_job, (given, kept, json.loads(kept_content(parse_job(kept))))):
        assert list(job.model[0].recipes) == recipes
        assert list(job.gate[0].recipes or ()) == gates
        listed = [job.privacy(job.model[0], name) for name in recipes[1:]]
        wanted = epsilons if isinstance(epsilons, list) else [epsilons]
        assert [dp and dp.target_epsilon for dp in listed] == wanted
        assert all(job.tokens(name) == job.tokens("dp-clm") for name in recipes[1:])


def test_a_list_reaches_who_starts_from_its_recipes_and_no_private_head(hospital: Path, tmp_path: Path) -> None:
    given = values(hospital, tmp_path, ["clm", "dp-clm"], {"target_epsilon": [2.0, 1.0]})
    given["classify"] = {"label": "ward", "from_recipes": ["dp-clm"]}
    classify = parse_job(given).classify
    assert classify is not None
    assert classify.from_recipes == ("dp-clm-epsilon-2", "dp-clm-epsilon-1")
    given["classify"]["private"] = True
    with pytest.raises(PolicyError, match=r"classify\.private: has one epsilon"):
        parse_job(given)


def test_names_of_a_list_are_no_recipes_of_ones_own(hospital: Path, tmp_path: Path) -> None:
    own = {"mine-epsilon-2": {"base": "dp-clm"}}
    with pytest.raises(PolicyError, match="names of this form are those of a list"):
        parse_job({**values(hospital, tmp_path, ["clm"]), "recipes": own})
    with pytest.raises(PolicyError, match="unknown recipe 'clm-epsilon-2'"):
        parse_job(values(hospital, tmp_path, ["clm-epsilon-2"]))


def test_a_sweep_is_charged_for_all_its_trainings_before_the_first_and_said_before_and_after(
    hospital: Path, tmp_path: Path
) -> None:
    class Told(Progress):
        def __init__(self) -> None:
            super().__init__(quiet=True)
            self.said: list[str] = []

        def _say(self, message: str, *_: Any, **__: Any) -> None:
            self.said.append(message)

    def job(epsilons: list[float], **dp: Any) -> Job:
        given = values(hospital, tmp_path / "run", ["dp-clm"], {"sample_rate": 0.5, "target_epsilon": epsilons, **dp})
        given["train"] |= {"num_epochs": 2, "checkpoint_epochs": [1, 2]}
        return parse_job({**given, "audit": {"attacks": ["loss"], "num_bootstrap": 100, "inversion": None}})

    (tmp_path / "job.json").write_bytes(kept_content(job([4, 8])))
    plan = CliRunner().invoke(app, ["run", str(tmp_path / "job.json"), "--plan"])
    charged = (
        "the budget is charged for all 2 (epsilon 4.00 and 8.00), whichever is used, and together they cost epsilon"
    )
    assert f"{charged} 12.00 at delta" in plan.stdout.replace("\n", " ")

    with pytest.raises(PolicyError, match=r"these 2 runs together would spend epsilon 12\.00 .* epsilon 9\.00 is left"):
        execute(Run(job([4, 8], budget_epsilon=9.0)), "train")
    assert not (tmp_path / "run" / "models").exists()

    told = Told()
    execute(Run(job([4, 8], budget_epsilon=20.0), told), "audit")
    folder = tmp_path / "run"
    said = " ".join(told.said)
    assert f"{charged} 12.00 at delta" in said
    assert re.search(
        r"so far: epsilon (11\.9\d|12\.00) at delta \S+ per individual \(2 together, basic composition\)", said
    )
    assert [each.about["recipe"] for each in read_budget(folder / "privacy-budget.json")] == [
        "dp-clm-epsilon-4",
        "dp-clm-epsilon-8",
    ]
    entries = {(each.recipe, each.epoch): each for each in Run(job([4, 8])).evidence.models if each.epoch}
    for epsilon in (4, 8):
        early, late = (entries[f"dp-clm-epsilon-{epsilon}", epoch].epsilon for epoch in (1, 2))
        assert early is not None
        assert late is not None
        assert 0 < early < late <= epsilon

    made = (folder / "models/toy/dp-clm-epsilon-4/manifest.json").stat().st_mtime_ns
    with pytest.raises(PolicyError, match=r"this run would spend epsilon 8\.50 .* epsilon 8\.0\d is left after 2 runs"):
        execute(Run(job([4, 8, 8.5], budget_epsilon=20.0)), "train")
    execute(Run(job([4, 8, 2], budget_epsilon=20.0)), "train")
    assert (folder / "models/toy/dp-clm-epsilon-4/manifest.json").stat().st_mtime_ns == made
    assert (folder / "models/toy/dp-clm-epsilon-2").is_dir()


def test_a_clip_that_no_recipe_uses_is_refused(hospital: Path, tmp_path: Path) -> None:
    job = values(hospital, tmp_path / "run", ["dp-clm"], DP)
    job["train"]["max_grad_norm"] = 0.5
    with pytest.raises(PolicyError, match=r"^train\.max_grad_norm: every recipe is DP-SGD"):
        execute(Run(parse_job(job)), "train")
    plain = {**job["model"][0], "name": "plain", "recipes": ["clm"]}
    check_run(
        Run(parse_job({**job, "model": [*job["model"], plain]})),
        counts=False,
        models=True,
        trains=False,
        classifies=False,
        audits=False,
    )
    own = {**job["model"][0], "train": {"max_grad_norm": 0.5}}
    with pytest.raises(PolicyError, match=r"model toy: train\.max_grad_norm"):
        execute(Run(parse_job({**job, "model": [own, plain]})), "train")


@pytest.mark.parametrize(
    ("scope", "unit", "has_epsilon"),
    [("individual", "individual", True), ("individual", "record", False), ("corpus", "individual", False)],
)
def test_deduplication_leaves_an_epsilon_only_within_the_unit(
    scope: str, unit: str, has_epsilon: bool, hospital: Path, tmp_path: Path
) -> None:
    dedup = {"mode": "exact", "scope": scope}
    job = parse_job(values(hospital, tmp_path, ["dp-clm"], {"noise_multiplier": 1.0, "unit": unit}, dedup=dedup))
    assert (privacy_of(Run(job), job.model[0]).unaccounted == ()) == has_epsilon


@pytest.mark.parametrize("unit", ["individual", "record"])
def test_canaries_leave_no_epsilon_since_all_members_decide_who_carries_them(
    unit: str, hospital: Path, tmp_path: Path
) -> None:
    dp = {"noise_multiplier": 1.0, "unit": unit}
    job = parse_job(values(hospital, tmp_path, ["dp-clm"], dp, canaries={"num": 2}))
    assert privacy_of(Run(job), job.model[0]).unaccounted == ("the planting of canaries",)


def test_verifying_finds_a_changed_promise_and_tokens_that_were_changed_behind_the_job(
    hospital: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run = Run(parse_job(values(hospital, folder, ["dp-clm"], DP)))
    execute(run, "train")
    path = folder / "models" / "toy" / "dp-clm" / "ledger.json"
    assert verify_training(run, "toy", "dp-clm", path).mismatches == []
    content = json.loads(path.read_text())
    changes: list[tuple[dict[str, Any], str]] = [
        ({"epsilon": content["privacy"]["epsilon"] / 2}, "its steps and noise cost"),
        ({"steps": content["privacy"]["steps"] + 1}, "were accounted"),
        ({"unit": "record"}, "by its own numbers it is"),
        ({"unaccounted": ["deduplication"]}, "just where every step was accounted"),
        ({"sample_rate": None}, "does not say what this private training cost"),
    ]
    for change, says in changes:
        path.write_text(json.dumps({**content, "privacy": {**content["privacy"], **change}}))
        mismatches = verify_training(run, "toy", "dp-clm", path).mismatches
        assert any(says in line for line in mismatches), change
        assert any("the file was changed" in line or str(path) in line for line in mismatches)
    path.write_text(json.dumps(content, indent=1))
    for changed in ("ids/ids.bin", "train/direct.bits"):
        file = folder / "tokens" / "toy" / changed
        sound = file.read_bytes()
        file.unlink()  # and not written over: an earlier mapping of it may still be open
        file.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
        found = verify_training(run, "toy", "dp-clm", path).mismatches
        assert any(f"tokens/toy/{changed}" in line for line in found)
        file.write_bytes(sound)


def test_training_without_noise_is_noted_as_infinite(hospital: Path, tmp_path: Path) -> None:
    job = values(hospital, tmp_path / "run", ["dp-clm"], {**DP, "noise_multiplier": 0.0})
    execute(Run(parse_job(job)), "train")
    (spent,) = read_budget(tmp_path / "run" / "privacy-budget.json")
    assert str(spent.guarantee).startswith("epsilon infinite at delta")
    ledger = (tmp_path / "run" / "models" / "toy" / "dp-clm" / "ledger.json").read_text()
    assert json.loads(ledger, parse_constant=lambda name: pytest.fail(name))["privacy"]["epsilon"] == "infinite"
