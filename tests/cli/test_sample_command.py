"""`reticent detect sample` and `reticent detect evaluate`: from a run to annotators and back, and what they refuse."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from fixtures.command import command
from fixtures.documents import write_documents

from reticent.cli import app

SECRET = "Zyxwvut"
NUM = 30


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Thirty documents: the rules find the e-mail of each, and none of the names."""
    texts = [f"{SECRET}{'😀' * (n % 3)} mails a{n}@b.org " + "word " * n for n in range(NUM)]
    return write_documents(tmp_path / "notes.parquet", texts, [f"p{n // 2}" for n in range(NUM)])


@pytest.fixture
def run(source: Path, tmp_path: Path) -> Path:
    assert command("detect", source, "--out", tmp_path / "run", "-q") == 0
    return tmp_path / "run"


Said = Callable[..., tuple[object, str, str]]


@pytest.fixture
def reticent(capsys: pytest.CaptureFixture[str]) -> Said:
    """``reticent detect …``: status, stdout and stderr, none of which has a document's text."""

    def call(*arguments: object) -> tuple[object, str, str]:
        capsys.readouterr()
        status = command("detect", *arguments)
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        return status, said.out, said.err

    return call


def page_data(folder: Path) -> Any:
    page = (folder / "annotate.html").read_text(encoding="utf-8")
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def save(folder: Path, file: Path, names: bool = True) -> Path:
    """What an annotator saves who marks the names too, or leaves everything as it was found."""
    content = page_data(folder)
    for document in content["documents"]:
        document["reviewed"] = True
        if names:
            document["spans"].append({"start": 0, "end": len(SECRET), "label": "NAME"})
        assert SECRET in document.pop("text")
    file.write_text(json.dumps(content))
    return file


def test_what_annotators_add_is_missed_and_weighted_back(run: Path, reticent: Said, tmp_path: Path) -> None:
    status, out, _ = reticent("sample", run, "--documents", 12, "-q")
    counted, then = out.splitlines()
    assert (status, counted) == (0, f"{run / 'annotation'}: 12 of {NUM} documents, of 2 strata")
    assert str(run / "annotation" / "annotate.html") in then
    assert f"reticent detect evaluate {run} FILE" in then
    data = page_data(run / "annotation")
    assert [len(document["spans"]) for document in data["documents"]] == [1] * 12
    status, out, err = reticent("evaluate", run, save(run / "annotation", tmp_path / "a.json"), "--json", "-q")
    assert status == 0, err
    found = json.loads(out)
    assert found["categories"]["EMAIL"]["recall"]["value"] == 1.0
    assert found["categories"]["NAME"]["recall"]["value"] == 0.0
    assert found["overall"]["unprotected"]["value"] == pytest.approx(NUM)
    assert found["overall"]["unprotected"]["high"] > NUM
    assert (found["documents"], found["corpus_documents"], found["overall"]["marked"]) == (12, NUM, 24)
    kept = run / "sampled-recall"
    assert json.loads((kept / "recall.json").read_text()) == found
    assert kept.stat().st_mode & 0o777 == 0o700
    assert (kept / "recall.json").stat().st_mode & 0o777 == 0o600


def test_documents_of_brat_that_nobody_changed_are_refused_unless_they_are_said_to_be_reviewed(
    run: Path, reticent: Said
) -> None:
    assert reticent("sample", run, "--documents", 10, "-q")[0] == 0
    brat = run / "annotation" / "brat"
    status, _, err = reticent("evaluate", run, brat, "-q")
    assert status == 1
    assert "10 of 10 documents, such as 0001, have the marks that detection made and no other" in err
    assert not (run / "sampled-recall").exists()
    status, _, err = reticent("learn", run, "--marks", brat, "-q")
    assert status == 1
    assert "no document was reviewed: change the marks of some" in err
    files = sorted(brat.glob("*.ann"))
    files[0].write_text("")
    files[1].write_text(files[1].read_text().replace("\n", "\r\n"))  # other bytes, the same mark
    for file in files[2:]:
        file.write_text(file.read_text() + f"T9\tNAME 0 {len(SECRET)}\t{SECRET}\n")
    assert "1 of 10 documents, such as 0002" in reticent("evaluate", run, brat, "-q")[2]
    found = json.loads(reticent("evaluate", run, brat, "--all-reviewed", "--json", "-q")[1])
    assert found["all_reviewed"] is True
    files[1].write_text("")
    assert "all_reviewed" not in json.loads(reticent("evaluate", run, brat, "--json", "-q")[1])
    content = json.loads((brat / "sample.json").read_text())
    for document in content["documents"]:
        del document["spans"]  # as an earlier version wrote it
    (brat / "sample.json").write_text(json.dumps(content))
    assert "10 of 10 documents" in reticent("evaluate", run, brat, "-q")[2]


def test_every_document_leaves_no_interval(run: Path, reticent: Said, tmp_path: Path) -> None:
    assert reticent("sample", run, "-q")[0] == 0
    found = json.loads(reticent("evaluate", run, save(run / "annotation", tmp_path / "a.json"), "--json", "-q")[1])
    overall = found["overall"]
    assert [overall["recall"][key] for key in ("value", "low", "high")] == [0.5] * 3
    assert [overall["unprotected"][key] for key in ("value", "low", "high")] == [NUM] * 3


def test_equal_seeds_draw_equal_documents(run: Path, reticent: Said, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert reticent("sample", run, "--documents", 8, "--out", tmp_path / name, "--seed", seed, "-q")[0] == 0
    a, b, c = ((tmp_path / name / "annotate.html").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_other_detectors_are_measured_against_the_same_annotation(run: Path, reticent: Said, tmp_path: Path) -> None:
    reticent("sample", run, "-q")
    saved = save(run / "annotation", tmp_path / "a.json")
    pq.write_table(
        pa.table({"individual_id": [f"p{n}" for n in range(15)], "name": [SECRET] * 15}), tmp_path / "records.parquet"
    )
    changes = (
        "--detector",
        "rules",
        "--detector",
        "records",
        "--set",
        f"detect.records.table={tmp_path / 'records.parquet'}",
    )
    assert reticent(run, *changes, "-q")[0] == 0
    found = json.loads(reticent("evaluate", run, saved, "--json", "-q")[1])
    assert found["overall"]["recall"]["value"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("sample", "NONE"), 1, "not a run folder"),
        (("sample", "RUN", "--documents", 1), 2, "greater than or equal to 2"),
        (("sample", "RUN", "--disagreement"), 2, "one detector cannot disagree: rules"),
        (("sample", "RUN"), 1, "may hold an annotator's work; choose another --out"),
        (("evaluate", "RUN"), 2, "Missing argument"),
        (("evaluate", "RUN", "NONE"), 1, "none"),
        (("evaluate", "RUN", "PAGE"), 1, "give the file that it saves"),
        (("evaluate", "RUN", "OTHER"), 1, "drawn from other documents than this run has"),
        (("evaluate", "RUN", "SAVED", "ELSE"), 1, "of another sample than"),
        (("evaluate", "RUN", "SAVED", "SAVED", "SAVED"), 2, "one or two annotators, got 3"),
        (
            ("evaluate", "RUN", "SAVED", "SAVED"),
            2,
            "given twice; whoever agrees with themselves is no second annotator",
        ),
        (("evaluate", "RUN", "BRAT", "BRAT/brat"), 2, "given twice"),
        (("evaluate", "RUN", "LOST"), 1, "document 0001 span 1: has lost its offsets"),
        (("evaluate", "RUN", "OUTSIDE"), 1, "document 0001 span 1: ends at 99999, outside of its"),
    ],
)
def test_what_is_refused_says_where_and_no_text(
    run: Path, tmp_path: Path, reticent: Said, arguments: tuple[object, ...], status: int, message: str
) -> None:
    assert reticent("sample", run, "--documents", 10, "-q")[0] == 0
    assert reticent("sample", run, "--documents", 10, "--seed", 4, "--out", tmp_path / "else", "-q")[0] == 0
    saved = save(run / "annotation", tmp_path / "saved.json")
    places: dict[object, Path] = {"RUN": run, "NONE": tmp_path / "none", "SAVED": saved}
    places |= {"BRAT": run / "annotation", "BRAT/brat": run / "annotation" / "brat"}
    places |= {"PAGE": run / "annotation" / "annotate.html", "ELSE": tmp_path / "else"}
    for name, change in (("OTHER", {}), ("LOST", {"start": None}), ("OUTSIDE", {"end": 99999})):
        content = json.loads(saved.read_text())
        content["documents"][0]["spans"][0].update(change)
        content["corpus"] = "0" * 64 if name == "OTHER" else content["corpus"]
        places[name] = tmp_path / f"{name}.json"
        places[name].write_text(json.dumps(content))
    done = reticent(*(places.get(word, word) for word in arguments), "-q")
    assert done[0] == status
    assert message in done[2]


def test_a_full_disk_is_an_error_that_names_the_folder_and_leaves_nothing(
    run: Path, tmp_path: Path, reticent: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "full")  # as a write to a file that is open says it: without a name

    monkeypatch.setattr("reticent.ext.annotate.annotation._write", full)
    status, _, err = reticent("sample", run, "--out", tmp_path / "out" / "mine", "-q")
    assert (status, err) == (1, f"reticent: {tmp_path / 'out' / 'mine'}: not written (No space left on device)\n")
    assert list((tmp_path / "out").iterdir()) == []


def test_documents_that_changed_since_are_refused(source: Path, run: Path, tmp_path: Path, reticent: Said) -> None:
    reticent("sample", run, "-q")
    saved = save(run / "annotation", tmp_path / "a.json")
    table = pq.read_table(source)
    texts = [f"x{text}" for text in table.column("text").to_pylist()]
    pq.write_table(table.set_column(2, "text", pa.array(texts)), source)
    status, _, err = reticent("evaluate", run, saved, "-q")
    assert (status, "drawn from other documents" in err) == (1, True)


def test_the_commands_stand_below_detect_and_detect_stays_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group: Any = typer.main.get_command(app)
    detect = group.commands["detect"]
    assert set(detect.commands) == {"sample", "evaluate", "learn"}
    assert all(parameter.help for verb in detect.commands.values() for parameter in verb.params)
    # A file that is called like a command is a path.
    monkeypatch.chdir(run.parent)
    (run.parent / "notes.parquet").rename("sample")
    assert command("detect", "./sample", "--set", "corpus.format=parquet", "-q") == 0
