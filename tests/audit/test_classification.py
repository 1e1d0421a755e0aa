"""F1 of classes: hand-worked, clustered by individual, small cells closed; the baselines; the stage and the command."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.drawing import examples
from fixtures.models import write_toy_model
from fixtures.stores import make_store
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, f1_score

from reticent.audit.stats.intervals import clopper_pearson
from reticent.core.artifact import read_manifest
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.split import open_individuals
from reticent.ext.classify.measure import Truth, compare, measure, predict_from_words, predict_majority
from reticent.ext.classify.stage import read_results
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.status import job_status

OPTIONS: dict[str, Any] = {"num_bootstrap": 200, "seed": 0, "small_cell": 1}


def truth_of(classes: list[int], individual: list[int] | None = None, num_classes: int | None = None) -> Truth:
    codes = np.array(individual if individual is not None else range(len(classes)), dtype=np.uint32)
    return Truth(np.array(classes, dtype=np.int64), codes, num_classes or max(classes) + 1)


# ------------------------------------------------------------------------------------------------------------------- F1


def test_f1_of_a_case_worked_by_hand() -> None:
    # class 0: 2 right of 3 that are and 2 called so, 4/5; class 1: 1 of 2 and 2, 2/4; class 2: 1 of 1 and 2, 2/3.
    found = measure(truth_of([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 2]), **OPTIONS)
    assert [row.f1.value for row in found.classes] == pytest.approx([4 / 5, 1 / 2, 2 / 3])
    assert found.macro_f1.value == pytest.approx((4 / 5 + 1 / 2 + 2 / 3) / 3)
    assert found.micro_f1.value == pytest.approx(4 / 6)
    assert found.confusion == [[2, 1, 0], [0, 1, 1], [0, 0, 1]]
    assert [row.documents for row in found.classes] == [3, 2, 1]
    assert (found.documents, found.individuals) == (6, 6)


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=30))
def test_f1_and_confusion_match_scikit_learn(rows: list[tuple[int, int, int]]) -> None:
    classes, predicted, individual = (list(column) for column in zip(*rows, strict=True))
    found = measure(truth_of(classes, individual, 4), np.array(predicted), **{**OPTIONS, "num_bootstrap": 100})
    present = sorted({*classes, *predicted})  # the rest has no F1
    assert found.macro_f1.value == pytest.approx(f1_score(classes, predicted, labels=present, average="macro"))
    assert found.micro_f1.value == pytest.approx(f1_score(classes, predicted, labels=present, average="micro"))
    assert found.confusion == confusion_matrix(classes, predicted, labels=range(4)).tolist()
    for estimate in (found.macro_f1, found.micro_f1):
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def test_copies_of_an_individual_s_documents_do_not_narrow_an_interval() -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 3, 40)
    predicted = np.where(random.random(40) < 0.6, classes, random.integers(0, 3, 40))
    once = measure(truth_of(classes.tolist()), predicted, **OPTIONS)
    codes = np.tile(np.arange(40), 7).tolist()
    often = measure(truth_of(np.tile(classes, 7).tolist(), codes), np.tile(predicted, 7), **OPTIONS)
    for name in ("macro_f1", "micro_f1"):
        few, many = getattr(once, name), getattr(often, name)
        assert (many.value, many.low, many.high, many.n) == pytest.approx((few.value, few.low, few.high, few.n))
        assert few.high - few.low > 0.1


def test_what_is_all_right_has_exact_bounds() -> None:
    classes = [0] * 10 + [1] * 20
    found = measure(truth_of(classes), np.array(classes), **OPTIONS)
    bounds = [1 - clopper_pearson(0, n, one_sided=True)[1] for n in (10, 20)]
    assert (found.macro_f1.value, found.macro_f1.high) == (1.0, 1.0)
    assert found.macro_f1.low == pytest.approx(sum(bounds) / 2)
    assert found.micro_f1.low == pytest.approx(1 - clopper_pearson(0, 30, one_sided=True)[1])


def test_cells_of_few_people_are_closed_and_no_row_gives_one_away() -> None:
    # Class 0: 9 right, 2 called 1, and 5 called 2. Class 1: 3 documents of one individual.
    classes = [0] * 16 + [1] * 3 + [2] * 6
    predicted = np.array([0] * 9 + [1] * 2 + [2] * 5 + [1] * 3 + [2] * 6)
    individual = [*range(16), 20, 20, 20, *range(30, 36)]
    found = measure(truth_of(classes, individual), predicted, **{**OPTIONS, "small_cell": 5})
    # Of 25 documents 16 are told: class 1 alone would be the rest, and its F1 three times the macro F1 less the others.
    assert found.confusion == [[9, None, None], [0, None, 0], [0, 0, None]]
    assert [(row.documents, row.individuals) for row in found.classes] == [(16, 16), (None, None), (None, None)]
    for closed in found.classes[1:]:
        assert closed.f1.value is closed.f1.n is closed.f1.low is None
        assert closed.f1.method == "fewer than 5"
    assert found.classes[0].f1.value == pytest.approx(18 / 25)


def test_an_f1_does_not_tell_how_many_were_taken_for_its_class() -> None:
    # Three of class 1 are called 0: 2 * 90 / F1 less the 100 of class 0 would be 93.
    classes = np.repeat([0, 1, 2], 100)
    predicted = classes.copy()
    predicted[[*range(90, 100)]], predicted[100:103], predicted[103:110] = 2, 0, 2
    found = measure(truth_of(classes.tolist()), predicted, **{**OPTIONS, "small_cell": 5})
    assert found.confusion is not None
    for line in (*found.confusion, *zip(*found.confusion, strict=True)):
        assert list(line).count(None) != 1
    assert found.confusion[1][0] is None


def test_a_difference_is_taken_over_the_same_people() -> None:
    truth = truth_of([0, 1] * 20)
    better = np.where(np.arange(40) < 30, truth.classes, 1 - truth.classes)
    worse = np.where(np.arange(40) < 10, truth.classes, 1 - truth.classes)
    same = compare(truth, better, better, num_bootstrap=200, seed=0)
    assert (same.value, same.low, same.high, same.n) == (0.0, 0.0, 0.0, 40)
    found = compare(truth, better, worse, num_bootstrap=200, seed=0)
    assert found.value == pytest.approx(0.5)
    assert found.low is not None
    assert 0.3 < found.low < 0.5


# ------------------------------------------------------------------------------------------------------------ baselines


def test_the_majority_is_that_of_the_training_documents() -> None:
    classes, train = np.array([2, 1, 1, 0, 0, 0]), np.array([1, 1, 1, 0, 0, 0], dtype=bool)
    assert predict_majority(classes, train).tolist() == [1, 1, 1]
    assert predict_majority(np.array([2, 1, 0]), np.array([1, 1, 0], dtype=bool)).tolist() == [1]  # the first of equals


def test_a_bag_of_words_tells_words_by_all_their_tokens_and_sees_no_new_word() -> None:
    # Both classes have tokens 5 and 6; only as one word (class 1) or as two (class 0). No training document has 9.
    one, two = [(5, 0, 0), (6, 0, 0), (7, 1, 0)], [(5, 0, 0), (6, 1, 0), (7, 2, 0)]
    documents = [one, two] * 8 + [[*one, (9, 5, 0)], [*two, (9, 5, 0)], [(9, 0, 0)]]
    classes = np.array([1, 0] * 8 + [1, 0, 0])
    train = np.arange(19) < 16
    assert predict_from_words(make_store(*documents), classes, train)[:2].tolist() == [1, 0]
    without_words = make_store(*[[(5, -1, 0)]] * 4)
    assert predict_from_words(without_words, np.array([1, 1, 0, 1]), np.array([1, 1, 0, 0], dtype=bool)).tolist() == [
        1,
        1,
    ]


# ------------------------------------------------------------------------------------------------- the stage of a job

Values = dict[str, Any]
NUM = 60


def write_documents(path: Path) -> Path:
    """Two notes each of thirty people; a word tells the class of a note, and a tenth has none."""
    words = ("pain in the chest", "cough and a fever", "rest at home")
    rows = [
        {
            "doc_id": f"d{number}",
            "individual_id": f"p{number // 2}",
            "text": f"the patient number{number} was seen with {words[number % 3]} and was given rest " * 2,
            "status": None if number % 10 == 9 else f"class {number % 3}",
            "constant": "same",
        }
        for number in range(NUM)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents and a base model."""
    folder = tmp_path_factory.mktemp("classification")
    write_documents(folder / "notes.parquet")
    write_toy_model(folder / "base")
    return folder


def values_of(folder: Path, out: Path, **classify: object) -> Values:
    return {
        "out": str(out),
        "corpus": {"source": str(folder / "notes.parquet")},
        "model": [{"name": "toy", "base": str(folder / "base"), "objective": "mlm", "recipes": ["mlm", "ppmlm"]}],
        "train": {"num_epochs": 2, "checkpoint_epochs": [1, 2], "window_length": 16, "batch_size": 8, "device": "cpu"},
        "classify": {"label": "status", "from_epochs": [1, 2], "num_epochs": 2, "learning_rate": 1e-3, **classify},
        "audit": {"num_bootstrap": 100},
    }


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    execute(Run(parse_job(values_of(folder, out, save_model=True))), "classify")
    return out


@pytest.mark.heavy
def test_a_job_classifies_from_every_start_beside_base_and_baselines(folder: Path, finished: Path) -> None:
    (result,) = read_results(Run(parse_job(values_of(folder, finished))))
    starts = [(row.recipe, row.epoch) for row in result.results]
    assert starts == [
        *((name, 0) for name in ("majority class", "bag of words", "base")),
        *((name, epoch) for name in ("mlm", "ppmlm") for epoch in (1, 2)),
    ]
    assert result.classes == ["class 0", "class 1", "class 2"]
    assert result.documents["unlabelled"] == NUM // 10
    for row in result.results:
        assert row.documents == result.documents["heldout"]
        assert row.individuals == result.individuals["heldout"]
        assert 0 <= row.macro_f1.low <= row.macro_f1.value <= row.macro_f1.high <= 1
    # The word that tells the class is there to be found; "number7" is in no other document.
    assert result.results[1].micro_f1.value == 1.0
    saved = finished / "classification/toy/ppmlm/epoch-0002"
    assert json.loads((saved / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]
    for path in (finished / "classification").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
        assert not path.is_file() or b"number7" not in path.read_bytes()


@pytest.mark.slow
def test_the_report_has_f1_of_every_start_with_its_interval_in_picture_and_table(
    folder: Path, finished: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    run = Run(parse_job(values_of(folder, out, save_model=True)))
    (result,) = read_results(run)
    execute(run, "report")
    evidence = json.loads((out / "report/report.json").read_text())["classification"]
    assert [(row["recipe"], row["epoch"]) for row in evidence[0]["results"]] == [
        (row.recipe, row.epoch) for row in result.results
    ]
    page = (out / "report/report.html").read_text()
    picture = re.search(r'<svg class="plot" role="img" aria-label="F1 of the downstream task, toy\. ([^"]*)"', page)
    table = re.search(r'aria-label="Classification, toy"><table>(.*?)</table>', page, re.DOTALL)
    assert picture is not None
    assert table is not None
    said = picture[1].removesuffix(".").split("; ")
    cells = re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td></tr>', table[1])
    assert len(said) == len(cells) == len(result.results)
    for row, shown, spoken, (name, epoch, *f1) in zip(result.results, evidence[0]["results"], said, cells, strict=True):
        assert (name, epoch) == (row.recipe, str(row.epoch or "–"))
        macro, micro = spoken.split(", micro F1 ")
        start, macro = macro.split(": macro F1 ")
        epochs = f", {row.epoch} epoch{'s' if row.epoch > 1 else ''}"
        assert start == row.recipe + (epochs if row.epoch else "")
        for name_of_f1, *places in (("macro_f1", macro, f1[0]), ("micro_f1", micro, f1[1])):
            found = getattr(row, name_of_f1)
            assert 0 <= found.low < found.value <= found.high <= 1
            assert shown[name_of_f1]["value"] == found.value
            for place, digits in zip(places, (2, 3), strict=True):
                numbers = [float(number) for number in re.findall(r"\d\.\d+", place)]
                assert numbers == pytest.approx([found.value, found.low, found.high], abs=0.51 * 10**-digits)


@pytest.mark.heavy
def test_every_seed_of_a_job_is_classified_and_what_was_done_without_seeds_is_the_first(
    folder: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    before = (finished / "classification/toy/mlm/classification.json").read_bytes()
    values = values_of(folder, out, save_model=True)
    values["train"]["seeds"] = [0, 1]
    status = job_status(Run(parse_job(values)))
    names = [found["name"] for found in status["artifacts"] if found["name"].startswith("classification/")]
    assert names == ["classification/toy/base"] + [
        f"classification/toy/{recipe}/seed-{seed}" for recipe in ("mlm", "ppmlm") for seed in (0, 1)
    ]
    plan = status["plan"]
    assert plan["what"] == "trainings, classifications and scorings"
    assert plan["num_steps"] == 4 + 5 + 1 + 8  # of the classifications one is of the base; scored is every epoch
    execute(Run(parse_job(values)), "classify")
    assert (out / "classification/toy/mlm/seed-0/classification.json").read_bytes() == before
    (result,) = read_results(Run(parse_job(values)))
    rows = result.results[3:]
    assert [(row.recipe, row.seed, row.epoch) for row in rows] == [
        (recipe, seed, epoch) for recipe in ("mlm", "ppmlm") for seed in (0, 1) for epoch in (1, 2)
    ]
    losses = {row.seed: row.training.losses for row in rows if (row.recipe, row.epoch) == ("mlm", 2)}
    assert losses[0] != losses[1]  # of another model
    assert command("classify", out, "-q") == 0
    assert re.search(r"^ppmlm, seed 1 +2 +0\.\d{3} \[", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.heavy
def test_members_train_and_held_out_individuals_are_what_is_measured(folder: Path, finished: Path) -> None:
    individuals = open_individuals(finished / "split")
    sides = dict(zip(individuals.table.column("individual_id").to_pylist(), individuals.mask("members"), strict=True))
    labelled = [n for n in range(NUM) if n % 10 != 9]
    (result,) = read_results(Run(parse_job(values_of(folder, finished))))
    assert result.documents["train"] == sum(bool(sides[f"p{n // 2}"]) for n in labelled)
    assert result.documents["heldout"] == sum(not sides[f"p{n // 2}"] for n in labelled)
    assert result.individuals == {
        side: len({n // 2 for n in labelled if bool(sides[f"p{n // 2}"]) is is_member})
        for side, is_member in (("train", True), ("heldout", False))
    }


@pytest.mark.heavy
def test_what_is_up_to_date_is_kept_and_other_settings_classify_again_but_do_not_train_again(
    folder: Path, finished: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    files = (path for path in out.rglob("*") if path.is_file() and path.name[0] != "." and path.name != "job.json")
    before = {path: os.stat(path).st_ino for path in files}
    execute(Run(parse_job(values_of(folder, out, save_model=True))), "classify")
    assert {path: os.stat(path).st_ino for path in before} == before
    execute(Run(parse_job(values_of(folder, out, windows="first"))), "classify")
    for path, number in before.items():
        if path.exists():
            assert (os.stat(path).st_ino == number) is ("classification" not in path.parts), path


@pytest.mark.heavy
def test_the_same_job_gives_the_same_numbers(folder: Path, finished: Path, tmp_path: Path) -> None:
    execute(Run(parse_job(values_of(folder, tmp_path / "run", save_model=True))), "classify")
    for path in sorted((finished / "classification").rglob("manifest.json")):
        files = [read_manifest(p).files for p in (path.parent, tmp_path / "run" / path.parent.relative_to(finished))]
        assert files[0] == files[1]


@pytest.mark.heavy
def test_a_job_without_the_section_has_no_such_stage(folder: Path, tmp_path: Path) -> None:
    values = values_of(folder, tmp_path / "run")
    del values["classify"]
    execute(Run(parse_job(values)), "classify")
    assert (tmp_path / "run/models/toy/mlm").exists()
    assert not (tmp_path / "run/classification").exists()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("classify", "error", "message"),
    [
        ({"label": "nothere"}, CorpusError, "column nothere is missing"),
        ({"label": "constant"}, CorpusError, "expected at least two classes, got 1 of 1"),
        ({"label": "doc_id"}, CorpusError, "classes have no (held-out|training) document"),
        ({"from_epochs": [1, 7]}, PolicyError, r"toy/mlm has no checkpoint of epoch 7; kept are 1, 2"),
        ({"num_epochs": 0}, PolicyError, r"classify\.num_epochs"),
        ({"label": None}, PolicyError, r"classify needs the column of classes: classify\.label or corpus\.label"),
    ],
)
def test_what_cannot_be_classified_stops_with_a_reason(
    folder: Path, finished: Path, tmp_path: Path, classify: Values, error: type[Exception], message: str
) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    with pytest.raises(error, match=message):
        execute(Run(parse_job(values_of(folder, out, **classify))), "classify")


@pytest.mark.heavy
def test_a_column_that_is_not_there_is_found_out_before_the_training(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="column nothere is missing"):
        execute(Run(parse_job(values_of(folder, tmp_path / "run", label="nothere"))), "report")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def wordy(folder: Path) -> str:
    """The same documents with words enough for canaries to be made of."""
    table = pq.read_table(folder / "notes.parquet")
    more = " then home again after the nurse had brought water and bread with salt for everyone in that long ward"
    texts = pa.array([text + more for text in table.column("text").to_pylist()])
    pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", texts), folder / "wordy.parquet")
    return str(folder / "wordy.parquet")


@pytest.mark.heavy
@pytest.mark.parametrize("named_in", ["classify", "corpus"])
def test_a_job_with_canaries_is_classified_by_the_labels_of_the_source(
    folder: Path, wordy: str, tmp_path: Path, named_in: str
) -> None:
    values = values_of(folder, tmp_path / "run", from_epochs=None, num_epochs=1)
    values["corpus"]["source"] = wordy
    values["model"][0]["recipes"] = ["mlm"]
    values["train"] = {**values["train"], "num_epochs": 1, "checkpoint_epochs": None}
    values["canaries"] = {"num": 2, "arms": ["protected"], "num_references": 2}
    if named_in == "corpus":
        del values["classify"]["label"]
        values["corpus"]["label"] = "status"
    execute(Run(parse_job(values)), "classify")
    (result,) = read_results(Run(parse_job(values)))
    assert result.classes == ["class 0", "class 1", "class 2"]
    assert result.documents["unlabelled"] == NUM // 10


@pytest.mark.heavy
@pytest.mark.parametrize("canaries", [None, {"num": 2, "arms": ["protected"], "num_references": 2}])
def test_classes_that_cannot_be_told_apart_are_found_out_before_the_training(
    folder: Path, wordy: str, tmp_path: Path, canaries: Values | None
) -> None:
    values = {**values_of(folder, tmp_path / "run", label="doc_id"), "canaries": canaries}
    values["corpus"]["source"] = wordy
    with pytest.raises(CorpusError, match=r"classes have no (held-out|training) document"):
        execute(Run(parse_job(values)), "classify")
    assert not list((tmp_path / "run").glob("models/*/*"))


@pytest.mark.heavy
def test_starts_are_those_of_the_paper_where_they_were_kept() -> None:
    from reticent.ext.classify.stage import _epochs_to_start_from
    from reticent.trainer.config import ClassifyConfig

    def starts(*kept: int, **settings: Any) -> list[int]:
        return _epochs_to_start_from(kept, ClassifyConfig(**settings), "x")

    assert starts(4, 8, 16, 32, 64) == [8, 64]
    assert starts(4, 8) == [8]
    assert starts(2, 5) == [5]
    assert starts(2, 5, from_epochs=[5, 2, 5]) == [2, 5]


# ---------------------------------------------------------------------------------------------------------- the command


@pytest.mark.heavy
def test_the_command_classifies_a_run_again(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    assert command("classify", out, "--set", "classify.from_epochs=[2]", "--set", "classify.num_epochs=1", "-q") == 0
    shown = capsys.readouterr().out
    assert re.search(r"^ppmlm +2 +0\.\d{3} \[", shown, re.MULTILINE)
    assert "6 documents without a label" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80
    assert command("classify", out, "--json", "-q") == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["settings"]["num_epochs"] == 1  # what the last command chose stays
    assert len(result["results"]) == 5


@pytest.mark.heavy
def test_the_command_classifies_documents_from_any_model_folder(
    folder: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ("--model", folder / "base", "--model", finished / "models/toy/ppmlm/epoch-0002")
    more = (
        "--set",
        "classify.label=status",
        "--set",
        "classify.num_epochs=1",
        "--set",
        "classify.save_model=true",
        "--out",
        tmp_path / "out",
        "-q",
        "--json",
    )
    small = ("-s", "train.window_length=16", "-s", "audit.num_bootstrap=100")
    assert command("classify", folder / "notes.parquet", *models, *more, *small) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert [row["recipe"] for row in result["results"]] == ["majority class", "bag of words", "base", "epoch-0002"]
    assert json.loads((tmp_path / "out/classification.json").read_text()) == result
    assert (tmp_path / "out/model-02/model.safetensors").is_file()
    assert read_manifest(tmp_path / "out").kind == "classification"
    # The same shares and seed as the run: the same people are held out.
    (of_run,) = read_results(Run(parse_job(values_of(folder, finished))))
    assert result["individuals"] == of_run.individuals
    assert result["results"][1]["confusion"] == of_run.results[1].confusion


@pytest.mark.heavy
def test_the_smoking_task_is_classified_from_its_own_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = ("PAST SMOKER", "CURRENT SMOKER", "SMOKER", "NON-SMOKER", "UNKNOWN")
    words = ("pain", "cough", "fever", "rest", "week")

    def record(number: int, element: str) -> str:
        return f'<RECORD ID="{number}">{element}<TEXT>was seen with {words[number % 5]}</TEXT></RECORD>\n'

    annotated = (record(n, f'<SMOKING STATUS="{statuses[n % 5]}"></SMOKING>') for n in range(100))
    (tmp_path / "smokers_train.xml").write_text(f"<ROOT>{''.join(annotated)}</ROOT>")
    (tmp_path / "unannotated.xml").write_text(f"<ROOT>{''.join(record(n, '') for n in range(100, 107))}</ROOT>")
    how = (
        "--set",
        "corpus.format=i2b2-2006",
        "--set",
        "classify.label=label",
        "--model",
        folder / "base",
        "--set",
        "classify.num_epochs=1",
    )
    small = ("-s", "train.window_length=32", "-s", "audit.num_bootstrap=100", "-q", "--json")
    assert command("classify", tmp_path, *how, *small) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["classes"] == sorted(statuses)
    assert result["documents"]["unlabelled"] == 7
    assert result["documents"]["train"] + result["documents"]["heldout"] == 100
    assert result["results"][1]["micro_f1"]["value"] == 1.0  # its words tell the status


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("RUN", "--model", "x"), 2, "--model: a run or a job has its own"),
        (("RUN", "--out", "x"), 2, "--out: a run or a job has its own"),
        (("DOCUMENTS", "--set", "classify.label=status"), 2, "--model: missing"),
        (("DOCUMENTS", "--model", "BASE"), 2, "classify needs the column of classes: classify.label"),
        (
            ("DOCUMENTS", "--model", "BASE", "--set", "classify.label=status", "--set", "classify.from_epochs=[8]"),
            2,
            "classify.from_epochs: belongs to a run",
        ),
        (
            ("DOCUMENTS", "--model", "BASE", "--set", "classify.label=status", "--set", "classify.save_model=true"),
            2,
            "classify.save_model: needs a folder",
        ),
        (
            (
                "DOCUMENTS",
                "--model",
                "BASE",
                "--model",
                "TRAINED",
                "--set",
                "classify.label=status",
                "--set",
                "classify.private=true",
                "--set",
                "train.dp={target_epsilon=8}",
            ),
            2,
            "no epsilon can be promised, since the training of its checkpoint",
        ),
        (("DOCUMENTS", "--model", "nowhere", "--set", "classify.label=status"), 1, "nowhere: no such folder"),
        (("DOCUMENTS", "--model", "BASE", "--set", "classify.label=nothere"), 1, "column nothere is missing"),
        (
            ("DOCUMENTS", "--model", "BASE", "--set", "classify.label=status"),
            1,
            "window_length 512 is longer than the model's 64",
        ),
    ],
)
def test_wrong_options_are_refused(
    folder: Path,
    finished: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    trained = finished / "models/toy/ppmlm/epoch-0002"
    places = {"RUN": finished, "DOCUMENTS": folder / "notes.parquet", "BASE": folder / "base", "TRAINED": trained}
    assert command("classify", *(places.get(part, part) for part in arguments), "-q") == status
    assert message in capsys.readouterr().err
