"""The holdout of user inference is drawn alike on both sides, and only one attack, on individuals, sees it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.audits import filled
from fixtures.models import toy_model, toy_tokenizer
from fixtures.scores import scores_of
from fixtures.stores import make_store
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.audit.evidence.audit import ModelEvidence
from reticent.audit.evidence.json_form import to_json
from reticent.audit.membership.attacks import USER_INFERENCE, attack, individual_scores, reference_score
from reticent.audit.membership.measure import UserInferenceHoldout
from reticent.audit.membership.names import USER_INFERENCE_SHADOWS
from reticent.audit.membership.validity import DISTINGUISHABLE, INVALID, with_attack_verdicts
from reticent.core.artifact import read_manifest
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.core.progress import Progress
from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.packed import StoredIds
from reticent.engine.split import draw_user_inference_holdout
from reticent.engine.store import open_tokens
from reticent.ext.scrub.command import scrub_documents
from reticent.ext.scrub.scrub import ScrubConfig
from reticent.job.config import parse_job
from reticent.job.dependencies import privacy_of
from reticent.job.pipeline import execute
from reticent.job.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

Values = dict[str, Any]
#: A document: its id and its individual's.
Document = tuple[str, str]


# ---------------------------------------------------------------------------------------------------------------- draws


def corpus(folder: Path, documents: list[Document], texts: list[str] | None = None) -> Corpus:
    folder.mkdir(exist_ok=True)
    doc_ids, individuals = zip(*documents, strict=True)
    columns = {"doc_id": doc_ids, "individual_id": individuals, "text": texts or ["x"] * len(documents)}
    pq.write_table(pa.table(columns), folder / "documents.parquet")
    return open_corpus(folder)


def documents_of(*numbers: int) -> list[Document]:
    return [(f"{person}-{number}", f"p{person}") for person, num in enumerate(numbers) for number in range(num)]


def drawn(folder: Path, documents: list[Document], share: float, seed: int = 0) -> set[str]:
    holdout = draw_user_inference_holdout(corpus(folder, documents), share, seed)
    return {doc_id for (doc_id, _), held_back in zip(documents, holdout, strict=True) if held_back}


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.01, [0, 1, 1, 1, 1]),  # at least one
        (0.2, [0, 1, 1, 1, 2]),
        (0.5, [0, 1, 2, 3, 5]),  # a half is rounded up
        (0.9, [0, 1, 2, 4, 9]),  # one at least stays
        (0.99, [0, 1, 2, 4, 9]),
    ],
)
def test_each_individual_with_several_documents_has_some_held_back_and_some_that_stay(
    tmp_path: Path, share: float, expected: list[int]
) -> None:
    holdout = drawn(tmp_path, documents_of(1, 2, 3, 5, 10), share)
    assert [sum(doc_id.startswith(f"{person}-") for doc_id in holdout) for person in range(5)] == expected


def test_held_back_documents_of_known_ids_never_change(tmp_path: Path) -> None:
    """Documents held back years ago must be held back again: these are the law for seed 0."""
    law = {"0-2", "1-2", "2-0", "3-2", "4-0", "5-2"}
    assert drawn(tmp_path, documents_of(3, 3, 3, 3, 3, 3), 0.2) == law
    assert drawn(tmp_path, documents_of(3, 3, 3, 3, 3, 3), 0.2, seed=1) != law


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=12),
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.floats(0.01, 0.99),
    st.randoms(use_true_random=False),
)
def test_who_comes_or_goes_changes_no_others_holdout(
    tmp_path_factory: pytest.TempPathFactory, here: list[int], come: list[int], share: float, draw: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("holdout")
    known = documents_of(2, *here)
    everybody = documents_of(2, *here, *come)
    draw.shuffle(everybody)
    holdout = drawn(folder, everybody, share)
    assert holdout & {doc_id for doc_id, _ in known} == drawn(folder, known, share)


def test_every_document_of_an_individual_is_as_often_held_back(tmp_path: Path) -> None:
    """Also that whose id is the individual's: its hash decided the side, and must not decide this too."""
    documents = [(f"p{n}{suffix}", f"p{n}") for n in range(600) for suffix in ("", "-b", "-c")]
    holdout = drawn(tmp_path, documents, 0.3)
    counts = [sum(doc_id.endswith(suffix) for doc_id in holdout) for suffix in ("-b", "-c")]
    assert len(holdout) == 600
    for count in (*counts, 600 - sum(counts)):
        assert 150 < count < 250  # 200 expected, standard deviation 11.5


def test_a_corpus_of_one_document_each_has_none_to_hold_back(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no individual has two documents"):
        draw_user_inference_holdout(corpus(tmp_path, documents_of(1, 1, 1)), 0.5)


# ----------------------------------------------------------------------------------------------------------- the attack


def test_the_score_of_a_person_is_the_mean_gain_over_their_held_back_documents() -> None:
    target = scores_of([-1.0, -2.0], [-3.0], [-4.0])
    base = scores_of([-2.0, -2.0], [-5.0], [-3.5])
    codes, scores = individual_scores(reference_score(target, base), np.array([4, 4, 2]))
    assert codes.tolist() == [2, 4]
    assert scores.tolist() == pytest.approx([-0.5, (0.5 + 2.0) / 2])


def test_a_model_that_knows_how_a_person_writes_gives_away_who_took_part() -> None:
    """It never saw these documents, but members' are half a nat a token likelier than before, as their others are."""
    noise = np.random.default_rng(0)
    individuals = np.repeat(np.arange(40, dtype=np.uint32), 2)
    members = individuals < 20
    base = noise.normal(-4, 1, (80, 10))
    gains = noise.normal(0, 0.3, (80, 10)) + 0.5 * members[:, None]
    scores = reference_score(scores_of(*(base + gains).tolist()), scores_of(*base.tolist()))
    found = attack(scores, individuals, members, num_bootstrap=200, seed=0)
    assert found.auc.low > 0.8
    assert (found.num_members, found.num_nonmembers, found.unit) == (20, 20, "individual")
    assert found.documents.num_documents == 80


def test_documents_drawn_alike_on_both_sides_distinguish_no_individual_where_all_held_out_ones_would() -> None:
    """Scores of a model that saw nobody, skewed as losses are: 1 of 5 documents of members, against 1 or 5."""
    noise = np.random.default_rng(1)
    scores = noise.exponential(size=(4000, 5))
    individuals = np.repeat(np.arange(4000, dtype=np.uint32), 5).reshape(4000, 5)
    members = np.zeros((4000, 5), dtype=bool)
    members[:2000] = True
    first = np.arange(5) == 0
    areas = []
    for asked in (first & np.ones_like(members), np.where(members, first, True)):
        found = attack(scores[asked], individuals[asked], members[asked], num_bootstrap=100, seed=0)
        areas.append(found.auc)
    assert areas[0].low < 0.5 < areas[0].high
    assert areas[1].high < 0.45


def holdout_store(doc_ids: list[str], individuals: list[int]) -> Any:
    store = make_store(*([(5 + n, 0, 0)] for n in range(len(doc_ids))), individual=individuals)
    return type(store)(
        store.input_ids, store.word_ids, store.flags, store.ngram_starts, store.doc_offsets, store.individual,
        pa.array(doc_ids),
    )  # fmt: skip


def test_who_is_left_with_held_back_documents_only_is_not_asked_for() -> None:
    audit = holdout_store(["a", "b", "c"], [1, 1, 2])
    holdout = UserInferenceHoldout.of_audited(
        audit, np.array([True, True, False]), holdout_store(["x", "y", "z"], [2, 1, 9])
    )
    assert holdout.store.doc_ids.to_pylist() == ["x", "y"]
    assert holdout.members.tolist() == [False, True]


def test_a_document_that_was_trained_on_is_not_in_the_holdout() -> None:
    audit = holdout_store(["a", "b"], [1, 2])
    with pytest.raises(ArtifactError, match="1 documents of the holdout are documents of the audit"):
        UserInferenceHoldout.of_audited(audit, np.array([True, False]), holdout_store(["x", "a"], [1, 1]))
    with pytest.raises(ArtifactError, match="user_inference needs"):
        UserInferenceHoldout.of_audited(audit, np.array([True, False]), None)


@pytest.mark.parametrize(("low", "verdict"), [(0.4, DISTINGUISHABLE), (0.6, INVALID)])
def test_the_attack_is_judged_by_the_words_of_its_own_documents(low: float, verdict: str) -> None:
    auc = {"value": 0.9, "low": 0.8, "high": 1.0}
    blind, quiet = ({"auc": {"value": at + 0.1, "low": at, "high": at + 0.2}} for at in (low, 0.4))
    about = {"objective": "clm", "epoch": 1, "split_given": True}
    measured = {"auc": auc, "num_members": 9, "num_nonmembers": 9}
    base = {**about, "recipe": "base", "membership": {}, "blind": quiet, "blind_holdout": blind}
    attacked = {**about, "recipe": "clm", "membership": {USER_INFERENCE: measured, "loss": measured}}
    found = with_attack_verdicts([filled(ModelEvidence, base), filled(ModelEvidence, attacked)])[1]
    assert found.membership[USER_INFERENCE].verdict == verdict
    assert found.membership["loss"].verdict == DISTINGUISHABLE


# -------------------------------------------------------------------------------------------------------------- the job

PEOPLE = 24
SHARED = (
    "the patient was seen today with pain in chest and a fever she has cough no given rest at home "
    "he came back after week same"
)


def own_words(person: int) -> list[str]:
    draw = random.Random(person)
    return ["".join(draw.choices("bcdfghjklmnpqrstvwxz", k=4)) for _ in range(3)]


def only_in(doc_id: str) -> str:
    """A word of one document: nothing else can bring it anywhere."""
    return f"only{doc_id.replace('-', 'x')}"


def write_people(folder: Path) -> None:
    """Everybody has words of their own, in each of three documents, and one that no other document has."""
    documents, texts = documents_of(*[3] * PEOPLE), []
    for doc_id, _ in documents:
        own = random.Random(doc_id).choices(own_words(int(doc_id.split("-")[0])), k=12)
        texts.append(" ".join([SHARED, only_in(doc_id), *own]))
    corpus(folder / "documents", documents, texts)
    toy_model("gpt2", hidden_size=32, max_length=96).save_pretrained(folder / "base")
    (folder / "base" / "tokenizer.json").write_text(toy_tokenizer("gpt2"))


def job_values(folder: Path, out: str, **more: Any) -> Values:
    return {
        "out": str(folder / out),
        "corpus": {"source": str(folder / "documents")},
        "split": {"heldout": 0.5, "user_inference_holdout": 0.2},
        "detect": {"detectors": ["rules"]},
        "model": [{"name": "toy", "base": str(folder / "base"), "objective": "clm", "recipes": ["clm"]}],
        "train": {"num_epochs": 20, "window_length": 96, "batch_size": 8, "device": "cpu", "learning_rate": 0.01},
        "audit": {"num_bootstrap": 100, "attacks": ["loss", "user_inference"], "every_checkpoint": False},
        **more,
    }


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("holdout")
    write_people(folder)
    return folder


@pytest.fixture(scope="module")
def done(people: Path) -> Run:
    run = Run(parse_job(job_values(people, "run")))
    execute(run)
    return run


def stores(run: Run) -> Iterator[tuple[str, set[str]]]:
    for path in sorted((run.folder / "tokens").glob("*/[!.]*")):
        if path.name == "gaps":  # bits alone
            continue
        doc_ids = StoredIds(path).doc_ids if path.name == "ids" else open_tokens(path).doc_ids
        yield path.name, set(doc_ids.to_pylist())


def test_no_held_back_document_is_anywhere_but_in_the_tokens_of_its_attack(people: Path) -> None:
    canaries = {"num": 2, "arms": ["protected"], "num_references": 4}
    values = job_values(people, "with-shadows", canaries=canaries)
    values["train"]["num_epochs"] = 1
    attacks = ["lira_offline", USER_INFERENCE_SHADOWS]
    values["audit"]["shadow"] = {"recipes": ["clm"], "num_shadows": 4, "attacks": attacks}
    done = Run(parse_job(values))
    execute(done, "audit")
    held_back = set(done.user_inference_holdout.scan().column("doc_id").to_pylist())
    assert len(held_back) == PEOPLE
    found = dict(stores(done))
    assert found.pop("user_inference_holdout") == held_back
    assert {"train", "audit"} < set(found)
    assert found.pop("ids") == found["audit"]
    assert len(found) == 6  # and the four shadows'
    for doc_ids in found.values():
        assert len(doc_ids) > 20
        assert not doc_ids & held_back
    for name, tokens in (("index", "train"), ("index-joint", "audit")):
        counted = set(pq.read_table(done.folder / name / "words.parquet").column("word").to_pylist())
        assert counted & {only_in(doc_id) for doc_id in (*held_back, *found["audit"])} == set(
            map(only_in, found[tokens])
        )
    assert not held_back.intersection(done.documents.scan().column("doc_id").to_pylist())  # where canaries are
    assert read_manifest(done.folder / "split").counts["user_inference_holdout"] == PEOPLE
    measured = to_json(done.evidence)["models"][1]["membership"]
    assert {"loss", USER_INFERENCE, *attacks} == set(measured)
    asked = measured[USER_INFERENCE_SHADOWS]
    assert asked["num_shadows"] == 4
    assert asked["num_members"] + asked["num_nonmembers"] == PEOPLE == asked["documents"]["num_documents"]
    assert asked["control"]["low"] <= 0.5 <= asked["control"]["high"]


def test_the_attack_finds_who_took_part_in_documents_the_model_never_saw(done: Run) -> None:
    base, model = to_json(done.evidence)["models"]
    assert USER_INFERENCE not in base["membership"]
    found = model["membership"][USER_INFERENCE]
    assert found["auc"]["low"] > 0.5
    assert found["num_members"] + found["num_nonmembers"] == PEOPLE
    assert found["documents"]["num_documents"] == PEOPLE
    assert base["blind_holdout"]["num_members"] == found["num_members"]
    report = (done.folder / "report" / "report.html").read_text()
    assert (
        "<dt>user_inference</dt><dd>User inference (Kandpal et al. 2024): the model predicts documents of the person"
        in report
    )
    assert "The words of the documents that were held back" in report
    assert (
        json.loads((done.folder / "report" / "report.json").read_text())["settings"]["split"]["user_inference_holdout"]
        == 0.2
    )


def test_a_scrubbed_copy_has_the_held_back_documents_too(done: Run, tmp_path: Path) -> None:
    counts = scrub_documents(
        done.job, tmp_path / "out", ScrubConfig(style="x"), in_run_folder=True, progress=Progress(quiet=True)
    )
    assert counts["documents"] == 3 * PEOPLE
    assert done.corpus.num_documents == 2 * PEOPLE


def test_a_job_without_a_holdout_is_written_down_as_before(tmp_path: Path) -> None:
    values = job_values(tmp_path, "run")
    values["audit"]["attacks"] = ["loss"]
    assert parse_job(values).model_dump()["split"] == {
        "heldout": 0.5,
        "reference": 0.0,
        "by": "auto",
        "user_inference_holdout": 0.2,
    }
    values["split"]["user_inference_holdout"] = 0
    job = parse_job(values)
    assert job.model_dump()["split"] == {"heldout": 0.5, "reference": 0.0, "by": "auto"}
    assert parse_job(json.loads(job.model_dump_json())) == job


@pytest.mark.parametrize(
    ("unit", "unaccounted"), [("individual", ()), ("record", ("the draw of the user-inference holdout",))]
)
def test_a_guarantee_per_record_ends_where_documents_decide_which_others_are_trained_on(
    people: Path, unit: str, unaccounted: tuple[str, ...]
) -> None:
    values = job_values(people, "dp")
    values["train"]["dp"] = {"unit": unit, "noise_multiplier": 1.0}
    run = Run(parse_job(values))
    assert privacy_of(run, run.job.model[0]).unaccounted == unaccounted


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({}, r"user_inference .* needs split\.user_inference_holdout over 0"),
        ({"user_inference_holdout": 1.0}, r"split\.user_inference_holdout"),
        ({"user_inference_holdout": -0.1}, r"split\.user_inference_holdout"),
        ({"fresh": 0.2}, r"split: fresh has a new name: write user_inference_holdout"),
    ],
)
def test_the_attack_without_documents_to_ask_of_is_refused(tmp_path: Path, split: Values, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_job(job_values(tmp_path, "run") | {"split": split})
