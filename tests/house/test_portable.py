"""A run folder works from any directory, and goes on where it or its documents were moved to."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.models import toy_model, toy_tokenizer
from pydantic import BaseModel

from reticent.core.artifact import JOB
from reticent.core.errors import CorpusError
from reticent.engine.detect import DETECTORS
from reticent.engine.detect.config import DetectConfig
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.config import Job, kept_content, load_kept_job, parse_job
from reticent.job.config.job import _path_fields
from reticent.job.run import Run
from reticent.job.status import job_status

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")
TOML = """
out = "results/run"
[corpus]
source = ["hospital/documents", "more/*.parquet"]
[split]
heldout = 0.3
[detect]
detectors = ["rules", "records", "gazetteer"]
records = "hospital/records.parquet"
lists = { CITY = "towns.txt" }
[[model]]
name = "toy"
base = "base"
objective = "clm"
recipes = ["ppclm"]
[train]
num_epochs = 1
window_length = 64
device = "cpu"
[audit]
num_bootstrap = 100
attacks = ["loss"]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project and its finished run, made with paths relative to the project's folder."""
    project = tmp_path_factory.mktemp("place") / "project"
    for name, seed in (("hospital", 0), ("more", 1)):
        (project / name).mkdir(parents=True)
        config = SynthConfig(num_individuals=30, words_per_document=20, languages=("en",), seed=seed)
        synthesize(project / name, config)
    for file in (project / "more" / "documents").glob("*.parquet"):  # other ids than the hospital's
        table = pq.read_table(file)
        for name in ("doc_id", "individual_id"):
            ids = pa.array([f"more-{value}" for value in table.column(name).to_pylist()])
            table = table.set_column(table.schema.get_field_index(name), name, ids)
        pq.write_table(table, project / "more" / file.name)
    shutil.rmtree(project / "more" / "documents")
    (project / "more" / "records.parquet").unlink()
    (project / "towns.txt").write_text("Springfield\n")
    toy_model("gpt2", max_length=64).save_pretrained(project / "base")
    (project / "base" / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
    (project / "job.toml").write_text(TOML)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        assert command("run", "job.toml", "-q") == 0
    return project


@pytest.fixture
def project(made: Path) -> Iterator[Path]:
    """A copy of it, where it was made."""
    aside = made.with_name("aside")
    shutil.copytree(made, aside)
    yield made
    for path in made.parent.iterdir():
        if path != aside:
            shutil.rmtree(path)
    aside.rename(made)


def states(run: Path) -> set[str]:
    return {found["state"] for found in job_status(Run(load_kept_job(run / JOB)))["artifacts"]}


def results(run: Path) -> dict[str, int]:
    return {str(p.relative_to(run)): p.stat().st_ino for p in sorted(run.rglob("manifest.json"))}


def assert_said_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("seed = 0")]
    assert said
    assert all("up to date" in line for line in said), said


def assert_up_to_date(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = results(run)
    capsys.readouterr()
    assert command("status", run, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {artifact["state"] for artifact in found["artifacts"]} == {"done"}
    assert found["plan"]["num_done"] == found["plan"]["num_steps"]
    for verb in (("report", run), ("run", run), ("protect", run), ("audit", run)):
        assert command(*verb) == 0
        assert_said_up_to_date(capsys)
    assert results(run) == before


def test_a_run_is_up_to_date_from_any_directory(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_up_to_date(project / "results" / "run", capsys)
    monkeypatch.chdir(project / "results")
    assert_up_to_date(Path("run"), capsys)
    monkeypatch.chdir(project)
    assert command("run", "job.toml") == 0
    assert_said_up_to_date(capsys)


def test_a_run_that_moved_with_its_documents_is_up_to_date(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = project.rename(project.with_name("other"))
    monkeypatch.chdir(tmp_path)
    assert_up_to_date(moved / "results" / "run", capsys)


def test_a_run_that_moved_alone_reads_its_documents_where_they_were(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = Path(shutil.move(project / "results" / "run", project.parent / "run"))
    monkeypatch.chdir(tmp_path)
    assert_up_to_date(moved, capsys)


def test_a_run_whose_documents_are_nowhere_says_where_they_were(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = project / "results" / "run"
    shutil.rmtree(project / "hospital")
    shutil.rmtree(project / "more")
    for asked in (lambda: Run(load_kept_job(run / JOB)).whole_corpus, lambda: states(run)):
        with pytest.raises(CorpusError, match="hospital/documents"):
            asked()


def test_no_report_says_where_on_the_machine_anything_stands(project: Path, tmp_path: Path) -> None:
    run = project / "results" / "run"
    assert command("report", run, "--set", 'gate=[{measure="membership_auc", at_most=1.0}]', "-q") == 0
    assert command("audit", run, "-q", "--set", "audit.small_cell=6") == 0
    for page in [*(run / "report").iterdir(), *(run / "dossier").iterdir()]:
        assert str(project.parent).encode() not in page.read_bytes(), page.name


def test_a_run_kept_before_paths_were_absolute_is_found_beside_its_documents(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = project / "results" / "run"
    with monkeypatch.context() as patch:
        patch.chdir(project)
        relative = load_kept_job(Path("results/run") / JOB).model_dump_json()
        assert str(project) in relative
    (run / JOB).write_text(relative.replace(f"{project}/", ""))
    monkeypatch.chdir(tmp_path)
    assert_up_to_date(run, capsys)


def test_the_order_of_documents_does_not_depend_on_how_their_paths_are_spelled(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "more")
    spelled = [
        ["part-00000.parquet", str(project / "hospital" / "documents")],
        [str(project / "more"), "../hospital/documents"],
    ]
    found = [Run(parse_job({"out": "r", "corpus": {"source": source}})).whole_corpus for source in spelled]
    assert len({tuple(map(os.path.realpath, corpus.files)) for corpus in found}) == 1
    assert len({corpus.fingerprint() for corpus in found}) == 1


def test_names_stay_names_and_what_stands_in_the_run_moves_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    values: dict[str, Any] = {
        "out": "run",
        "corpus": {"source": "run/hospital"},
        "model": [{"name": "m", "base": "org/name", "objective": "clm", "recipes": ["clm"]}],
        "detect": {"detectors": ["rules", "spacy"], "spacy": "en_core_web_sm"},
    }
    Path("run", JOB).write_bytes(kept_content(parse_job(values)))
    kept = json.loads(Path("run", JOB).read_text())
    assert (kept["out"], kept["corpus"]["source"]) == (f"{tmp_path}/run", f"{tmp_path}/run/hospital")
    assert (kept["model"][0]["base"], kept["detect"]["spacy"]["pipeline"]) == ("org/name", "en_core_web_sm")
    moved = Path("run").rename(tmp_path / "elsewhere")
    job = load_kept_job(moved / JOB)
    assert (job.out, job.corpus.source) == (str(moved), f"{moved}/hospital")
    assert job.model[0].base == "org/name"


def test_files_that_surrogates_are_drawn_from_are_found_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here/run", "here/generated", "there"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("words.txt", "names.toml"):
        (tmp_path / "here" / name).touch()
    chosen = [("words.txt", "names.toml"), ("generated", "syllables"), ("wordfreq:en", "realistic")]
    for pool, names in chosen:
        monkeypatch.chdir(tmp_path / "here")
        values = {"out": "run", "corpus": {"source": "notes"}, "surrogates": {"pool": pool, "names": names}}
        Path("run", JOB).write_bytes(kept_content(parse_job(values)))
        monkeypatch.chdir(tmp_path / "there")
        kept = load_kept_job(tmp_path / "here" / "run" / JOB).surrogates
        where = f"{tmp_path}/here/" if pool == "words.txt" else ""
        assert (kept.pool, kept.names) == (f"{where}{pool}", f"{where}{names}")


def test_a_key_under_the_home_folder_is_kept_as_the_file_that_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    values = {"out": "run", "corpus": {"source": "notes"}, "dossier": {"key": "~/.ssh/id"}}
    Path("run", JOB).write_bytes(kept_content(parse_job(values)))
    assert load_kept_job(tmp_path / "run" / JOB).dossier.key == f"{tmp_path}/home/.ssh/id"


def test_every_field_that_is_kept_absolute_is_a_field_of_a_job() -> None:
    found = 0
    for field, _ in _path_fields():
        model: Any = Job
        for name in field.split("."):
            if not (isinstance(model, type) and issubclass(model, BaseModel)):
                break
            if model is DetectConfig and name in DETECTORS:
                assert field.rpartition(".")[2] in DETECTORS[name].options()
                break
            annotation = model.model_fields[name].annotation
            inner = [annotation, *getattr(annotation, "__args__", ())]
            model = next((t for t in inner if isinstance(t, type) and issubclass(t, BaseModel)), str)
        found += 1
    assert found > 9
