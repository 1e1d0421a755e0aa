"""A job with [audit.diagnoses] on the generated hospital: the pages, and what is refused before any training."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fixtures.command import command

from reticent.audit.judgement.rows import FEW_DIAGNOSED
from reticent.audit.membership.names import RUNGS
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.schema import MEMBERS
from reticent.engine.synthetic import DIAGNOSES, SynthConfig, synthesize
from reticent.ext.ladder.stage import ladder_inputs
from reticent.job.config import Job, parse_job
from reticent.job.config.job import kept_content
from reticent.job.maker import build_step
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.stages.measure import base_steps

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")


def job_values(folder: Path, **diagnoses: Any) -> dict[str, Any]:
    hospital = folder / "hospital"
    foundation = {"kind": "gpt2", "text": str(hospital / "public"), "vocab_size": 400, "num_layers": 1,
                  "hidden_size": 16, "num_heads": 2, "num_epochs": 1}  # fmt: skip
    records = {"terms": str(hospital / "diagnoses.toml"), "records": str(hospital / "diagnoses.parquet")}
    columns = {"column": "diagnoses", "demographics": ["birth_date", "city"], "encounter": ["ward"]}
    return {
        "out": str(folder / "run"),
        "corpus": {"source": str(hospital / "documents"), "spans": "spans", "household_id": "household_id"},
        "split": {"heldout": 0.5},
        "detect": {"detectors": ["gold"]},
        "model": [{"name": "m", "objective": "clm", "recipes": ["clm"], "foundation": foundation}],
        "train": {"num_epochs": 1, "window_length": 128},
        "audit": {
            "num_bootstrap": 100,
            "attacks": ["loss"],
            "shadow": {"recipes": ["clm"], "num_shadows": 4},
            "diagnoses": records | columns | diagnoses,
        },
    }


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ladder")
    (folder / "hospital").mkdir()
    config = SynthConfig(num_individuals=24, words_per_document=80, public_documents=20, documents_per_individual=1.0,
                         languages=("en",), diagnoses=True)  # fmt: skip
    synthesize(folder / "hospital", config)
    return folder


@pytest.fixture(scope="module")
def done(hospital: Path) -> Run:
    run = Run(parse_job(job_values(hospital)))
    execute(run)
    return run


def test_a_diagnosis_of_too_few_is_not_shown_and_the_verdict_says_so(done: Run) -> None:
    models = {model.recipe: model for model in done.evidence.models}
    assert set(models) == {"base", "clm"}
    found = models["clm"].diagnoses
    assert found is not None
    assert (found.less_base, models["base"].diagnoses and models["base"].diagnoses.less_base) == (True, False)
    assert list(found.sensitive) == list(found.other) == list(RUNGS)
    for cell in (*found.sensitive.values(), *found.other.values()):
        assert (cell.told.value, cell.num_diagnoses, cell.num_too_few) == (None, 0, 2)
    assert found.verbatim.keys() <= set(RUNGS)
    report = json.loads((done.folder / "report" / "report.json").read_text())
    (row,) = [row for row in report["risks"]["rows"] if row["recipe"] == "clm"]
    (context,) = [result for result in row["results"] if result["risk"] == "context"]
    assert context["outcome"] == "not shown"
    assert FEW_DIAGNOSED in (context["reason"], *(context.get("notes") or ()))
    assert not any(name in (done.folder / "report" / "report.json").read_text() for name in DIAGNOSES)


def test_report_and_dossier_show_the_ladder(done: Run) -> None:
    page = (done.folder / "report" / "report.html").read_text()
    assert "Diagnoses, by what is known of a person" in page
    assert "of 0 of 2 diagnoses" in page
    dossier = (done.folder / "dossier" / "dossier.html").read_text()
    rows = re.findall(r"in the evidence: clinical ladder.*?</tr>", dossier, re.DOTALL)
    assert rows
    assert not any("Tested on" in row for row in rows)  # all diagnoses are of too few


def test_a_run_without_the_section_is_up_to_date_after_it_was_asked_for(done: Run) -> None:
    """The section alone makes a measurement again, and only that of its own settings."""
    before = done.fingerprints.of("measures/m/base")
    execute(Run(done.job))
    assert done.fingerprints.read_only_copy().of("measures/m/base") == before


@pytest.mark.parametrize("changed", [{"dedup": {"threshold": 0.5}}, {"protect": {"k": 9}}])
def test_answers_are_kept_only_where_the_same_is_asked_of_the_same_people(
    done: Run, tmp_path: Path, changed: dict[str, Any]
) -> None:
    """Held-out individuals with near-copies are not asked, and k says which sentences few share."""
    shutil.copytree(done.folder, tmp_path / "run")
    run = Run(parse_job(job_values(done.folder.parent) | {"out": str(tmp_path / "run")} | changed))
    execute(run, "protect")
    for step in base_steps(run):
        build_step(run, step)
    assert ladder_inputs(run) != ladder_inputs(done)


@pytest.mark.parametrize("has_base", [True, False])
def test_a_model_that_was_trained_elsewhere_is_asked_too(done: Run, tmp_path: Path, has_base: bool) -> None:
    values, ids = done.job.model_dump(mode="json"), done.individuals.table.column("individual_id").to_pylist()
    chosen = [name for name, is_in in zip(ids, done.individuals.mask(MEMBERS), strict=True) if is_in]
    (tmp_path / "members.txt").write_text("\n".join(chosen))
    (model,) = done.folder.glob("models/m/clm*/**/epoch-0001")
    base = {"base": str(done.folder / "foundation" / "m" / "model")} if has_base else {}
    subject = {
        "model": str(model),
        "members": str(tmp_path / "members.txt"),
        "statement": "Theirs.",
        "objective": "clm",
    }
    values = {name: values[name] for name in ("corpus", "detect")} | {"train": {"window_length": 128}}
    audit = job_values(done.folder.parent)["audit"] | {"shadow": None}
    run = Run(parse_job({**values, "out": str(tmp_path / "run"), "subject": subject | base, "audit": audit}))
    execute(run)
    (found,) = [model.diagnoses for model in run.evidence.models if model.recipe != "base"]
    assert found is not None
    assert found.less_base == has_base
    assert found.verbatim


def with_changes(hospital: Path, folder: Path, diagnoses: dict[str, Any]) -> Job:
    own = {
        key: value.replace("HERE", str(folder)) if isinstance(value, str) else value for key, value in diagnoses.items()
    }
    return parse_job(job_values(hospital, **own) | {"out": str(folder / "run")})


@pytest.mark.parametrize(
    ("diagnoses", "error", "said"),
    [
        ({"column": "illnesses"}, CorpusError, "column illnesses is missing"),
        ({"encounter": ["office"]}, CorpusError, "column office is missing"),
        ({"records": "HERE/none.parquet"}, CorpusError, "none.parquet"),
        ({"records": None, "column": None, "demographics": ["age"]}, CorpusError, "age"),
        ({"terms": "HERE/one.toml"}, PolicyError, "at least two are needed"),
    ],
)
def test_columns_and_lists_that_cannot_be_read_are_named_before_anything_runs(
    hospital: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    diagnoses: dict[str, Any],
    error: type[Exception],
    said: str,
) -> None:
    (tmp_path / "one.toml").write_text('[[diagnosis]]\nname = "scurvy"\n')
    job = with_changes(hospital, tmp_path, diagnoses)
    for until in ("train", "report"):
        with pytest.raises(error) as found:
            execute(Run(job), until)
        assert said in str(found.value)
    (tmp_path / "job.json").write_bytes(kept_content(job))
    assert command("run", tmp_path / "job.json", "--plan") in (1, 2)
    assert said in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_diagnoses_that_stand_in_no_text_are_refused_before_any_training(hospital: Path, tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text('[[diagnosis]]\nname = "scurvy"\n[[diagnosis]]\nname = "plague"\n')
    with pytest.raises(PolicyError, match="none of 2 diagnoses stands in any text"):
        execute(Run(with_changes(hospital, tmp_path, {"terms": "HERE/none.toml"})))
    assert not (tmp_path / "run" / "models").exists()


def test_diagnoses_need_a_list_or_a_column(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="diagnoses need terms"):
        parse_job(job_values(tmp_path, terms=None, column=None))


def test_the_generated_diagnoses_leave_all_else_as_it_is_and_go_with_nothing(tmp_path: Path) -> None:
    plain, own = tmp_path / "plain", tmp_path / "own"
    for folder, diagnoses in ((plain, False), (own, True)):
        folder.mkdir()
        synthesize(folder, SynthConfig(num_individuals=400, words_per_document=20, diagnoses=diagnoses))
    assert (plain / "records.parquet").read_bytes() == (own / "records.parquet").read_bytes()
    before, after = (pq.read_table(folder / "documents").to_pylist() for folder in (plain, own))
    said = {
        row["individual_id"]: row["diagnoses"].split("; ")
        for row in pq.read_table(own / "diagnoses.parquet").to_pylist()
    }
    for one, other in zip(before, after, strict=True):
        assert other | {"text": one["text"]} == one
        written, alone = said[other["individual_id"]]
        assert other["text"].removeprefix(one["text"]) in (f"Diagnosis: {written}.\n", f"Diagnostic : {written}.\n")
        assert alone not in other["text"]
    counts = [[first for first, _ in said.values()].count(name) for name in DIAGNOSES]
    assert min(counts) > 70
    assert sum(counts) == 400
