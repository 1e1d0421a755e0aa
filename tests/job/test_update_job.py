"""``reticent update`` of a run with spans and tokens: the same bytes as a run from nothing, with less work."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.jobs import Recorder, Values, changed, make_hospital, run, values_of, write_tokenizer

from reticent.core.artifact import read_manifest
from reticent.engine.detect.choose import DETECTORS
from reticent.job.config import load_kept_job, parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.update import update_run

TEXT = ("words", "word-spans", "tokens/toy/ids", "tokens/toy/gaps", "tokens/wide/ids", "tokens/wide/gaps")
UPDATED = ("split", "spans", "index", "index-joint")
VIEWS = tuple(f"tokens/{model}/{view}" for model in ("toy", "wide") for view in ("train", "audit"))


class Said(Recorder):
    """Keeps what it is told, too."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

        self.warnings: list[str] = []

    def say_once(self, line: str) -> None:
        self.lines.append(line)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of old and new individuals, two models, a list of common words and one of who withdraws."""
    folder = make_hospital(tmp_path_factory.mktemp("hospital"), 40)
    write_tokenizer(folder / "wide", [*(f"none{i}" for i in range(70_000)), "the", "was"])
    table = pq.read_table(next((folder / "documents").glob("*.parquet")))
    homes = np.array(table.column("household_id").to_pylist())
    new = np.isin(homes, np.unique(homes)[::9])
    shutil.rmtree(folder / "documents")
    for name, chosen in (("notes", ~new), ("added", new)):
        (folder / name).mkdir()
        pq.write_table(table.filter(chosen), folder / name / f"{name}.parquet", row_group_size=16)
    (folder / "common.txt").write_text("will\nmay\n")
    kept = table.filter(~new).column("individual_id").to_pylist()
    (folder / "gone.txt").write_text(f"{kept[0]}\n{kept[-1]}\n")
    return folder


def job_values(hospital: Path, out: Path) -> Values:
    values = values_of(hospital, out)
    values["corpus"]["source"] = str(hospital / "notes")
    values["index"]["updatable"] = True
    values["detect"] = {"detectors": ["gold", "rules", "records"]}
    values["detect"]["records"] = {
        "table": str(hospital / "records.parquet"),
        "common": str(hospital / "common.txt"),
    }
    values["model"].append({**values["model"][0], "name": "wide", "base": str(hospital / "wide")})
    return values


@pytest.fixture(scope="module")
def monday(hospital: Path) -> Path:
    run(job_values(hospital, hospital / "monday"))
    return hospital / "monday"


@pytest.fixture(scope="module")
def rebuilt(hospital: Path, monday: Path) -> Path:
    """What a run from nothing makes of the documents of the update."""
    values = changed(job_values(hospital, hospital / "rebuilt"), corpus__withdrawn=[str(hospital / "gone.txt")])
    values["corpus"]["source"] = [values["corpus"]["source"], str(hospital / "added")]
    run(values)
    return hospital / "rebuilt"


def opened(folder: Path) -> Run:
    return Run(parse_job(json.loads((folder / "job.json").read_text())))


def update(monday: Path, out: Path) -> Said:
    said = Said()
    hospital = monday.parent
    update_run(opened(monday), out, [str(hospital / "added")], [hospital / "gone.txt"], said)
    return said


def content(folder: Path) -> dict[str, Any]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in files.items() if not Path(name).name.startswith(".")}


def assert_same(ours: Path, theirs: Path, names: tuple[str, ...] = UPDATED) -> None:
    for name in names:
        mine, other = content(ours / name), content(theirs / name)
        assert len(mine) > 1
        assert {file for file in mine if mine[file] != other.get(file)} <= {"manifest.json"}, name
        assert mine.keys() == other.keys()
        found, expected = read_manifest(ours / name), read_manifest(theirs / name)
        assert found.digest == expected.digest
        if name not in ("index", "index-joint"):
            assert found.counts == expected.counts


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many documents are read at a time, with their texts, after the split."""
    from reticent.engine.corpus import Corpus

    found: list[int] = []
    whole = Corpus.batches

    def batches(self: Corpus, **options: Any) -> Any:
        for batch in whole(self, **options):
            if "text" in options.get("columns", ()) and "label" not in options["columns"]:  # not the check of the split
                found.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(Corpus, "batches", batches)
    return found


def test_an_update_takes_over_what_a_run_from_nothing_makes(
    monday: Path, rebuilt: Path, tmp_path: Path, read: list[int]
) -> None:
    before = content(monday)
    said = update(monday, tmp_path / "tuesday")
    assert said.lines == []
    assert content(monday) == before
    num_new = pq.read_table(monday.parent / "added").num_rows
    assert 0 < num_new < 30
    assert read[-1:] == [num_new]  # by the detectors; one pass of the split made the record of who withdrew
    # And one of the detection asks for the language of every document.
    both = opened(monday).whole_corpus.num_documents + opened(tmp_path / "tuesday").corpus.num_documents
    assert sum(read[:-1]) == num_new + both
    assert_same(tmp_path / "tuesday", rebuilt)
    recorder = Recorder()
    execute(Run(opened(tmp_path / "tuesday").job, recorder), "protect")
    assert set(recorder.up_to_date) == set(UPDATED)
    assert set(recorder.made) == {*TEXT, *VIEWS}
    assert_same(tmp_path / "tuesday", rebuilt, (*TEXT, *VIEWS))


def test_an_update_goes_on_from_what_it_had_made(monday: Path, rebuilt: Path, tmp_path: Path) -> None:
    update(monday, tmp_path / "tuesday")
    shutil.rmtree(tmp_path / "tuesday" / "spans")
    said = update(monday, tmp_path / "tuesday")
    assert said.made == ["spans"]
    assert_same(tmp_path / "tuesday", rebuilt)


def test_an_update_says_why_identifiers_are_searched_for_again(hospital: Path, tmp_path: Path) -> None:
    values = changed(job_values(hospital, tmp_path / "monday"), detect__propagate=True)
    run(values)
    said = update_run_of(tmp_path / "monday", tmp_path / "tuesday", hospital)
    assert said.lines == [
        "identifiers are searched for in all documents again: detect.propagate looks everywhere for an identifier that "
        "was found once"
    ]
    values = changed(values, out=str(tmp_path / "rebuilt"), corpus__withdrawn=[str(hospital / "gone.txt")])
    values["corpus"]["source"] = [values["corpus"]["source"], str(hospital / "added")]
    run(values)
    assert_same(tmp_path / "tuesday", tmp_path / "rebuilt")


def test_spans_of_other_rules_are_kept_and_said_and_an_update_takes_none_of_them(
    monday: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = shutil.copytree(monday, tmp_path / "monday")
    monkeypatch.setattr("reticent.job.stages.detect.rules_digest", lambda: "of another version")
    said = Said()
    execute(Run(load_kept_job(again / "job.json"), said), "detect")
    assert "spans" in said.up_to_date
    (warning,) = said.warnings
    assert "found by the rules of another version" in warning
    updated = update(monday, tmp_path / "tuesday")
    assert [line.rpartition(": ")[2] for line in updated.lines] == [
        "those of the run before were found by the rules of another version of Reticent"
    ]
    shutil.rmtree(again / "spans")
    said = Said()
    execute(Run(load_kept_job(again / "job.json"), said), "detect")
    assert said.made == ["spans"]
    assert said.warnings == []


def test_columns_are_read_again_in_another_time_zone(tmp_path: Path) -> None:
    born = [dt.datetime(1950 + number, 3, 1, 23) for number in range(40)]
    for name, rows in (("notes.parquet", born[:38]), ("added.parquet", born[38:])):
        columns = {"doc_id": [f"d{day.year}" for day in rows], "individual_id": [f"p{day.year}" for day in rows]}
        columns["text"] = [f"born {day:%Y-%m-%d} or {day + dt.timedelta(hours=1):%Y-%m-%d}" for day in rows]
        pq.write_table(pa.table(columns | {"birth": pa.array(rows, pa.timestamp("us", "UTC"))}), tmp_path / name)
    (tmp_path / "common.txt").write_text("born\nor\n")
    records = {"columns": {"birth_date": "birth"}, "common": str(tmp_path / "common.txt")}
    values: Values = {
        "corpus": {"source": [str(tmp_path / "notes.parquet")], "time_zone": "UTC"}, "out": str(tmp_path / "utc"),
        "index": {"updatable": True}, "detect": {"detectors": ["records"], "records": records},
    }  # fmt: skip
    execute(Run(parse_job(values)), "index")
    before, said = opened(tmp_path / "utc"), Said()
    zone = before.job.corpus.replace(time_zone="Europe/Paris")
    update_run(before, tmp_path / "paris", [str(tmp_path / "added.parquet")], [], said, corpus=zone)
    assert said.lines[0].endswith("whose times are of another corpus.time_zone")
    both = [str(tmp_path / name) for name in ("notes.parquet", "added.parquet")]
    values |= {"corpus": {"source": both, "time_zone": "Europe/Paris"}, "out": str(tmp_path / "rebuilt")}
    execute(Run(parse_job(values)), "index")
    assert_same(tmp_path / "paris", tmp_path / "rebuilt")


def update_run_of(before: Path, out: Path, hospital: Path) -> Said:
    said = Said()
    update_run(opened(before), out, [str(hospital / "added")], [hospital / "gone.txt"], said)
    return said


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("gold", {}, ""),
        ("rules", {"labels": ["DATE"]}, ""),
        ("records", {"table": "a.csv"}, "learns the common words"),
        ("records", {"table": "a.csv", "common": "b.txt"}, ""),
        ("gazetteer", {"lists": {"CITY": "a.txt"}}, "learns the common words"),
        ("gazetteer", {"lists": {"CITY": "a.txt"}, "guard": False}, ""),
        ("shipped", {}, "learns the common words"),
        ("shipped", {"common": "b.txt"}, ""),
        ("spacy", {"pipeline": "blank:en"}, "last digits"),
        ("transformers", {"model": "a"}, "last digits"),
    ],
)
def test_detectors_say_why_a_document_depends_on_others(name: str, options: dict[str, Any], why: str) -> None:
    said = DETECTORS[name].depends(options)
    assert why in said
    assert bool(why) == bool(said)
