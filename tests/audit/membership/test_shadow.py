"""Shadow models of a job: who is in them, trained once, resumed, made again when stale, and stronger than the loss."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.jobs import Stopping, Values, changed, content, control_c, make_hospital, values_of
from fixtures.models import toy_model, toy_tokenizer

from reticent.audit.membership.attacks import attack
from reticent.audit.membership.draws import draw_half, draw_population, split_for_shadow, training_seed
from reticent.audit.membership.names import DEFAULT_SHADOW_ATTACKS, ON_HOLDOUT
from reticent.audit.membership.shadow import (
    SHADOW_ATTACKS,
    DocumentScores,
    ShadowAttacks,
    shadow_scores,
)
from reticent.core.artifact import read_manifest, write_private
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.index import open_index
from reticent.engine.schema import HELDOUT, INDIVIDUALS, MEMBERS, REFERENCE, SPLITS
from reticent.engine.split import Individuals
from reticent.engine.store import open_tokens
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.stages.shadows import shadows_of
from reticent.job.status import job_status
from reticent.trainer.export import write_model
from reticent.trainer.models import load_tokenizer
from reticent.trainer.recipes import get_recipe

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

NUM = 4
SHADOWS = [f"shadows/toy/{recipe}/{number:02d}" for number in range(NUM) for recipe in ("clm", "ppclm")]


# ---------------------------------------------------------------------------------------------------------------- draws


def split_of(sides: list[str], units: list[int] | None = None) -> Individuals:
    codes = np.arange(len(sides), dtype=np.uint32)
    columns = {
        "individual_id": pa.array([f"p{code}" for code in codes]),
        "individual": pa.array(codes),
        "unit": pa.array(np.array(units if units is not None else codes, dtype=np.uint32)),
        "split": pa.DictionaryArray.from_arrays(
            pa.array([SPLITS.index(s) for s in sides], pa.int8()), pa.array(SPLITS)
        ),
        "num_documents": pa.array(np.ones(len(sides), dtype=np.uint32)),
    }
    return Individuals(pa.table(columns, schema=INDIVIDUALS))


SIDES = [MEMBERS] * 60 + [HELDOUT] * 40 + [REFERENCE] * 20


def test_everybody_is_in_exactly_half_of_the_shadows_and_every_shadow_has_half_of_them() -> None:
    individuals = split_of(SIDES)
    drawn = np.stack([split_for_shadow(individuals, seed=1, shadow_number=n).mask(MEMBERS) for n in range(8)])
    assert (drawn[:, :100].sum(axis=0) == 4).all()
    assert (drawn.sum(axis=1) == 50).all()
    assert not drawn[:, 100:].any()  # the reference is nobody's candidate
    assert len(np.unique(drawn, axis=0)) == 8


def test_the_reference_stays_the_reference() -> None:
    individuals = split_of(SIDES)
    drawn = split_for_shadow(individuals, seed=1, shadow_number=3)
    assert np.array_equal(drawn.mask(REFERENCE), individuals.mask(REFERENCE))
    assert drawn.table.schema.equals(individuals.table.schema)


def test_no_household_is_in_a_shadow_by_half() -> None:
    units = np.repeat(np.arange(40, dtype=np.uint32), 3)
    candidates = np.ones(120, dtype=bool)
    for number in range(6):
        drawn = draw_half(units, candidates, seed=0, shadow_number=number)
        assert set(drawn.reshape(40, 3).sum(axis=1)) == {0, 3}
        assert drawn.sum() == 60
    heldout = np.arange(120) >= 60
    population = draw_population(units, heldout, share=0.3, seed=0)
    assert set(population.reshape(40, 3).sum(axis=1)) == {0, 3}
    assert population.sum() == 18
    assert not population[~heldout].any()


def test_a_draw_depends_on_the_seed_and_the_number_alone() -> None:
    units, candidates = np.arange(50, dtype=np.uint32), np.ones(50, dtype=bool)
    first = draw_half(units, candidates, seed=5, shadow_number=2)
    assert np.array_equal(first, draw_half(units, candidates, seed=5, shadow_number=2))
    assert not np.array_equal(first, draw_half(units, candidates, seed=6, shadow_number=2))
    assert np.array_equal(first, ~draw_half(units, candidates, seed=5, shadow_number=3))
    assert len({training_seed(5, number) for number in range(100)} | {training_seed(6, 0)}) == 101


def test_a_population_is_never_empty() -> None:
    assert draw_population(np.arange(3, dtype=np.uint32), np.array([False, True, True]), share=0.01, seed=0).sum() == 1


# ----------------------------------------------------------------------------------------------------- hand-made scores


def document_scores(means: np.ndarray) -> DocumentScores:
    """One token a document."""
    offsets = np.arange(len(means) + 1, dtype=np.int64)
    return DocumentScores(means.astype(np.float32), means, np.exp(means), -means, offsets)


def hand_made(seed: int = 0) -> tuple[list[tuple[DocumentScores, np.ndarray]], DocumentScores, DocumentScores, Any]:
    """Documents of very different difficulty, of which whoever was trained on them gains a little."""
    random, num = np.random.default_rng(seed), 200
    units, member = np.arange(num, dtype=np.uint32), np.arange(num) < 100
    difficulty = -random.uniform(1, 6, num)

    def said(known: np.ndarray) -> DocumentScores:
        return document_scores(difficulty + 0.3 * known + 0.1 * random.normal(size=num))

    halves = [draw_half(units, member | ~member, seed=0, shadow_number=number) for number in range(8)]
    return [(said(half), half) for half in halves], said(member), said(member & False), (units, member)


def rows_of(shadows: Any, target: Any, base: Any, units: np.ndarray, member: np.ndarray) -> Any:
    attacks = ShadowAttacks(shadows, draw_population(units, ~member, share=0.2, seed=0))
    found = shadow_scores(attacks, SHADOW_ATTACKS, target, base)
    options: dict[str, Any] = {"num_bootstrap": 200, "seed": 0}
    return {
        name: replace(attack(scored, units, member, **options), control=attack(control, units, member, **options).auc)
        for name, (scored, control) in found.items()
    }


def test_attacks_with_shadows_see_through_difficulty_and_say_when_they_see_nothing() -> None:
    shadows, target, base, (units, member) = hand_made()
    rows = rows_of(shadows, target, base, units, member)
    assert tuple(rows) == tuple(SHADOW_ATTACKS)
    for name in tuple(SHADOW_ATTACKS)[1:]:
        assert rows[name].auc.value > 0.8
        assert rows[name].auc.low > 0.5
        assert rows[name].control.low < 0.5 < rows[name].control.high
    assert rows["shadow"].auc.value < 0.65  # it does not know which document it sees
    assert rows_of(shadows, base, base, units, member)["lira_online"].auc.low < 0.5


def test_who_rmia_compares_with_is_not_attacked() -> None:
    shadows, target, base, (units, member) = hand_made()
    rows = rows_of(shadows, target, base, units, member)
    assert rows["lira_online"].num_nonmembers == 100
    assert rows["rmia"].num_nonmembers == rows["rmia_online"].num_nonmembers == 80


def test_results_do_not_depend_on_the_order_of_shadows_or_documents() -> None:
    shadows, target, base, (units, member) = hand_made()
    order = np.random.default_rng(1).permutation(len(units))

    def moved(said: DocumentScores) -> DocumentScores:
        return document_scores(said.mean_log_prob[order])

    rows = rows_of(shadows, target, base, units, member)
    others = [(moved(said), known[order]) for said, known in reversed(shadows)]
    attacks = ShadowAttacks(others, draw_population(units, ~member, share=0.2, seed=0)[order])
    for name, (scored, _) in shadow_scores(attacks, SHADOW_ATTACKS, moved(target), moved(base)).items():
        again = attack(scored, units[order], member[order], num_bootstrap=200, seed=0)
        assert again.auc.value == pytest.approx(rows[name].auc.value, abs=1e-3)


def test_scores_survive_the_file(tmp_path: Path) -> None:
    said = DocumentScores(
        np.array([-1.0, -2.0, np.nan], dtype=np.float32),
        *(np.array([0.5, np.nan, 1.5]) for _ in range(3)),
        np.array([0, 2, 2, 3]),
    )
    said.to_parquet(tmp_path / "scores.parquet", np.array([True, False, True]))
    again, is_in = DocumentScores.from_parquet(tmp_path / "scores.parquet")
    for name in DocumentScores.__slots__:
        np.testing.assert_array_equal(getattr(again, name), getattr(said, name))
    assert is_in.tolist() == [True, False, True]


@pytest.mark.parametrize("content", [None, b"no table"])
def test_scores_that_cannot_be_read_are_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "scores.parquet"
    if content is not None:
        write_private(path, content)
    with pytest.raises(ArtifactError, match=r"scores\.parquet: not readable scores of a shadow model"):
        DocumentScores.from_parquet(path)


# ----------------------------------------------------------------------------------------------------------------- jobs


def job_values(folder: Path, num_individuals: int, **train: Any) -> Values:
    hospital = make_hospital(folder, num_individuals)
    base = hospital / "gpt2"
    model = toy_model("gpt2", hidden_size=32)
    write_model(model, load_tokenizer(toy_tokenizer("gpt2")), base, recipe=get_recipe("clm"), epoch=0)
    values = values_of(hospital, hospital / "run")
    values["model"] = [{"name": "toy", "base": str(base), "objective": "clm", "recipes": ["clm", "ppclm"]}]
    values["train"] = {"num_epochs": 2, "window_length": 64, "batch_size": 8, "learning_rate": 1e-2, **train}
    values["audit"] = {"num_bootstrap": 100, "attacks": ["loss", "reference"]}
    return values


def with_shadows(values: Values, **settings: Any) -> Values:
    shadow = {"num_shadows": NUM, "recipes": ["clm", "ppclm"], **settings}
    return changed(values, audit__shadow=shadow)


def audit(values: Values, step: int = 0, stop: Any = None) -> Stopping:
    progress = Stopping(step, stop)
    execute(Run(parse_job(values), progress), "audit")
    return progress


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """A job that was trained and audited without shadows."""
    values = job_values(tmp_path_factory.mktemp("hospital"), 24)
    audit(values)
    return values


@pytest.fixture(scope="module")
def audited(values: Values, tmp_path_factory: pytest.TempPathFactory) -> Values:
    out = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(values["out"], out)
    mine = with_shadows(changed(values, out=str(out)))
    progress = audit(mine)
    assert [name for name in progress.made if name.startswith("shadows/")] == SHADOWS
    assert not any(name.startswith("models/") for name in progress.made)
    return mine


@pytest.fixture
def mine(audited: Values, tmp_path: Path) -> Values:
    shutil.copytree(audited["out"], tmp_path / "run")
    return changed(audited, out=str(tmp_path / "run"))


def membership(values: Values) -> dict[tuple[str, int], dict[str, Any]]:
    evidence = json.loads((Path(values["out"]) / "audit" / "audit.json").read_text())
    return {(model["recipe"], model["epoch"]): model["membership"] for model in evidence["models"]}


def test_the_audit_has_a_row_for_each_attack_on_the_last_checkpoints(audited: Values) -> None:
    rows = membership(audited)
    assert list(rows["clm", 2]) == [
        "loss",
        "reference",
        "shadow",
        "lira_online",
        "lira_offline",
        "lira_sequence",
        "rmia",
    ]
    assert rows["ppclm", 2].keys() == rows["clm", 2].keys()
    assert list(rows["base", 0]) == ["loss"]
    run = Run(parse_job(audited))
    assert rows["clm", 2]["lira_online"]["num_members"] == run.individuals.mask(MEMBERS).sum()


def test_shadows_keep_their_scores_and_no_checkpoint(audited: Values) -> None:
    out = Path(audited["out"])
    run = Run(parse_job(audited))
    store = open_tokens(out / "tokens/toy/audit")
    drawn = []
    for number in range(NUM):
        folder = out / f"shadows/toy/clm/{number:02d}"
        assert not list(folder.glob("epoch-*"))
        assert folder.stat().st_mode & 0o777 == 0o700
        _, is_in = DocumentScores.from_parquet(folder / "scores.parquet")
        trained = open_tokens(out / f"tokens/toy/train-shadow-{number:02d}")
        assert set(trained.individual) == set(store.individual[is_in])
        units = run.individuals.units
        assert not set(units[store.individual[is_in]]) & set(units[store.individual[~is_in]])  # no household is split
        assert read_manifest(folder).counts["violations"] == 0
        drawn.append(is_in)
    assert (np.sum(drawn, axis=0) == NUM // 2).all()


def test_two_shadows_of_a_pair_count_the_words_of_their_own_halves(audited: Values, tmp_path: Path) -> None:
    run, counted = Run(parse_job(audited)), Counter[str]()
    for shadow in shadows_of(run):
        if shadow.recipe == "ppclm" and shadow.number < 2:
            counted.update({row["word"]: row["support"] for row in shadow.index(tmp_path).words().to_pylist()})
    joint = open_index(run.folder / "index-joint").words().to_pylist()
    assert counted == {row["word"]: row["support"] for row in joint}


def test_nothing_is_made_twice_and_the_status_says_so(mine: Values) -> None:
    assert audit(mine).made == []
    states = {row["name"]: row["state"] for row in job_status(Run(parse_job(mine)))["artifacts"]}
    assert {states[name] for name in (*SHADOWS, "tokens/toy/train-shadow-00", "audit")} == {"done"}
    stale = {row["name"]: row["state"] for row in job_status(Run(parse_job(changed(mine, seed=7))))["artifacts"]}
    assert {stale[name] for name in SHADOWS} == {"out of date"}
    assert (Path(mine["out"]) / SHADOWS[0] / "scores.parquet").is_file()  # to ask changes nothing


def test_an_interrupted_batch_goes_on_where_it_stopped_and_ends_with_the_same_bytes(
    values: Values, audited: Values, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(values["out"], out)
    job = changed(audited, out=str(out))
    calls = []

    def stop_in_the_third() -> None:
        calls.append(1)
        if len(calls) == 3:
            control_c()

    late = min(read_manifest(Path(audited["out"]) / name).counts["steps"] for name in SHADOWS)
    with pytest.raises(KeyboardInterrupt):
        audit(job, late - 1, stop_in_the_third)
    (_,) = (out / "shadows").rglob(".*.part-*")
    resumed = audit(job)
    assert [name for name in resumed.made if name.startswith("shadows/")] == SHADOWS[2:]
    assert resumed.steps[0] > 1  # from its last state
    assert not list((out / "shadows").rglob(".*.part-*"))
    mine, whole_run = content(out / "shadows"), content(Path(audited["out"]) / "shadows")
    scores = [name for name in mine if name.endswith("scores.parquet")]
    assert len(scores) == len(SHADOWS)
    assert all(mine[name] == whole_run[name] for name in scores)


@pytest.mark.parametrize(
    ("change", "remade"),
    [
        pytest.param(lambda v: changed(v, train__learning_rate=2e-2), SHADOWS, marks=pytest.mark.slow),
        (
            lambda v: with_shadows(v, num_shadows=NUM + 2),
            [f"shadows/toy/{r}/0{n}" for n in (4, 5) for r in ("clm", "ppclm")],
        ),
        (lambda v: changed(v, protect__k=2), [name for name in SHADOWS if "/ppclm/" in name]),
        (lambda v: changed(v, audit__attacks=["loss"]), []),
        (lambda v: with_shadows(v, population=0.5), []),
    ],
)
def test_a_stale_shadow_is_made_again_and_no_other(
    mine: Values, change: Callable[[Values], Values], remade: list[str]
) -> None:
    made = audit(change(mine)).made
    assert [name for name in made if name.startswith("shadows/")] == remade
    assert "measures/toy/clm/epoch-0002" in made or remade == [n for n in SHADOWS if "/ppclm/" in n]


@pytest.mark.slow
def test_another_seed_draws_other_halves(mine: Values) -> None:
    before = content(Path(mine["out"]) / "shadows")
    made = audit(changed(mine, seed=7)).made
    assert [name for name in made if name.startswith("shadows/")] == SHADOWS
    after = content(Path(mine["out"]) / "shadows")
    assert all(before[name] != after[name] for name in before if name.endswith("scores.parquet"))


def test_shadows_that_the_job_does_not_have_any_more_are_deleted(mine: Values) -> None:
    out = Path(mine["out"])
    assert (out / "tokens/toy/train-shadow-00").is_dir()
    audit(changed(mine, audit={**mine["audit"], "shadow": None}))
    assert not [path for path in (out / "shadows").glob("*/*/*") if not path.name.startswith(".")]
    assert not list((out / "tokens/toy").glob("train-shadow*"))
    assert list(membership(mine)["clm", 2]) == ["loss", "reference"]


@pytest.mark.slow
def test_a_checkpoint_is_kept_where_the_job_asks_for_it(mine: Values) -> None:
    audit(with_shadows(mine, keep_models=True, recipes=["clm"]))
    (kept,) = (Path(mine["out"]) / SHADOWS[0]).glob("epoch-*")
    assert (kept / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("shadow", "message"),
    [
        ({"recipes": ["clma"]}, "audit.shadow.recipes: no model is trained with clma"),
        ({"recipes": []}, "recipes"),
        ({"recipes": ["clm"], "num_shadows": 5}, "num_shadows"),
        ({"recipes": ["clm"], "num_shadows": 2}, "num_shadows"),
        ({"recipes": ["clm"], "attacks": ["lyra"]}, "attacks"),
        ({"recipes": ["clm"], "population": 0}, "population"),
    ],
)
def test_wrong_settings_are_refused(values: Values, shadow: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_job(changed(values, audit__shadow=shadow))


def test_a_job_may_name_every_attack_of_the_table_and_has_most_by_default(values: Values) -> None:
    shadow = {"recipes": ["clm"], "attacks": list(SHADOW_ATTACKS)}
    with pytest.raises(PolicyError, match=r"user_inference_shadows .* needs user_inference among audit\.attacks"):
        parse_job(changed(values, audit__shadow=shadow))
    held_back = {"split__user_inference_holdout": 0.2, "audit__attacks": ["user_inference"]}
    job = parse_job(changed(values, **held_back, audit__shadow=shadow))
    assert job.audit.shadow is not None
    assert job.audit.shadow.attacks == tuple(SHADOW_ATTACKS)
    assert set(DEFAULT_SHADOW_ATTACKS) < set(SHADOW_ATTACKS)


@pytest.mark.slow
def test_shadows_find_members_of_an_overfitted_model_and_none_in_its_base(tmp_path: Path) -> None:
    values = job_values(tmp_path, 40, num_epochs=8, checkpoint_epochs=[8])
    values["model"][0]["recipes"] = ["clm"]
    audit(with_shadows(values, recipes=["clm"], attacks=[name for name in SHADOW_ATTACKS if name not in ON_HOLDOUT]))
    rows = membership(values)["clm", 8]
    areas = {name: row["auc"]["value"] for name, row in rows.items()}
    # Of two shadows a side LiRA's slope is mostly noise; the mean over all of them, RMIA's, is not.
    assert areas["rmia_online"] > areas["loss"] > 0.6
    assert min(areas["lira_offline"], areas["lira_sequence"]) > 0.6
    assert areas["lira_online"] > 0.5
    for name in ("lira_offline", "rmia", "rmia_online"):
        assert rows[name]["control"]["low"] < 0.5 < rows[name]["control"]["high"]
