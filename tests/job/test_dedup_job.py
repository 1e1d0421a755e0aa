"""Deduplication as a stage of a job, and as a command."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from fixtures.command import command
from fixtures.documents import write_documents

from reticent.core.artifact import read_manifest
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.dedup import read_left_out
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

LETTER = " ".join(f"letter{i}" for i in range(60))
ROWS = [(f"p{i % 8}", f"note {i} of " + " ".join(f"w{i}x{j}" for j in range(20))) for i in range(24)]
ROWS[9:9] = [("p1", LETTER), ("p1", LETTER + "  "), ("p2", LETTER), ("p1", LETTER + " end")]
ENGINE = ("split", "spans", "index", "index-joint")


def write(folder: Path, rows: list[tuple[str, str]], numbers: list[int]) -> Path:
    owners, texts = zip(*(rows[number] for number in numbers), strict=True)
    ids = [f"d{number}" for number in numbers]
    return write_documents(folder / "documents.parquet", texts, owners, rows_per_group=3, doc_id=ids).parent


def run(source: Path, out: Path, **dedup: Any) -> Run:
    job_run = Run(parse_job({"out": str(out), "corpus": {"source": str(source)}, "dedup": dedup}))
    execute(job_run, "index")
    return job_run


def content(out: Path) -> dict[str, bytes]:
    return {f"{name}/{file.name}": file.read_bytes() for name in ENGINE for file in (out / name).glob("*.parquet")}


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ({"mode": "exact"}, [10]),
        ({"mode": "near"}, [10, 12]),
        ({"mode": "near", "threshold": 0.99}, [10]),
        ({"mode": "near", "scope": "corpus"}, [10, 11, 12]),
    ],
)
def test_a_job_without_copies_is_the_job_of_the_other_documents(
    tmp_path: Path, settings: dict[str, Any], left_out: list[int]
) -> None:
    everything = write(tmp_path / "all", ROWS, list(range(len(ROWS))))
    rest = write(tmp_path / "rest", ROWS, [i for i in range(len(ROWS)) if i not in left_out])
    job_run = run(everything, tmp_path / "run", **settings)
    run(rest, tmp_path / "other")
    assert read_left_out(tmp_path / "run" / "dedup").tolist() == left_out
    assert content(tmp_path / "run") == content(tmp_path / "other")
    assert job_run.corpus.num_documents == len(ROWS) - len(left_out)
    for file in (tmp_path / "run" / "dedup").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_job_that_leaves_nothing_out_gives_the_same_artefacts_as_one_without_the_stage(tmp_path: Path) -> None:
    source = write(tmp_path / "all", ROWS, [i for i in range(len(ROWS)) if i not in (10, 12)])
    run(source, tmp_path / "off")
    run(source, tmp_path / "near", mode="near")
    assert not (tmp_path / "off" / "dedup").exists()
    for name in ENGINE:
        assert read_manifest(tmp_path / "near" / name).digest == read_manifest(tmp_path / "off" / name).digest
        manifests = [(tmp_path / out / name / "manifest.json").read_bytes() for out in ("near", "off")]
        assert manifests[0] == manifests[1]


def test_stages_after_it_are_made_again_when_something_else_is_left_out(tmp_path: Path) -> None:
    source = write(tmp_path / "all", ROWS, list(range(len(ROWS))))
    run(source, tmp_path / "run", mode="exact")
    before = content(tmp_path / "run")
    run(source, tmp_path / "run", mode="near")
    assert content(tmp_path / "run") != before
    run(source, tmp_path / "run", mode="exact")
    assert content(tmp_path / "run") == before


def test_documents_of_a_run_whose_deduplication_is_gone_are_not_read(tmp_path: Path) -> None:
    source = write(tmp_path / "all", ROWS, list(range(len(ROWS))))
    job_run = Run(
        parse_job({"out": str(tmp_path / "run"), "corpus": {"source": str(source)}, "dedup": {"mode": "near"}})
    )
    with pytest.raises(ArtifactError, match="no artefact here"):
        _ = job_run.corpus


@pytest.mark.parametrize("wrong", [{"mode": "some"}, {"threshold": 0}, {"scope": "ward"}, {"copies": 1}])
def test_settings_of_the_section_are_checked_before_anything_starts(wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="dedup"):
        parse_job({"out": "x", "corpus": {"source": "x"}, "dedup": wrong})


def test_command_counts_and_keeps_what_it_would_leave_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "all", ROWS, list(range(len(ROWS))))
    assert command("dedup", source, "--json", "--quiet") == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["exact"]["within"]["documents"] == 1
    assert counts["near"]["within"]["documents"] == 2
    assert counts["exact"]["across"]["documents"] == 3
    assert counts["support"]["lifted_words"] == 60
    out = tmp_path / "out"
    assert command("dedup", source, "--set", "dedup.mode=near", "--out", out) == 0
    shown = capsys.readouterr().out
    assert "near duplicates of one individual" in shown
    assert "letter1" not in shown
    assert read_left_out(out).tolist() == [10, 12]
    assert command("dedup", source, "--set", "dedup.mode=most") == 2
    assert command("dedup", tmp_path / "nothing") == 1


def test_individuals_without_a_document_left_are_counted_and_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [*ROWS, ("only", LETTER), ("alone", LETTER + " end")]
    source = write(tmp_path / "all", rows, list(range(len(rows))))
    run(source, tmp_path / "run", mode="near", scope="corpus")
    assert read_manifest(tmp_path / "run" / "dedup").counts["left_out"]["individuals"] == 2
    assert "2 of 10 individuals have no document left (dedup.scope" in capfd.readouterr().err
