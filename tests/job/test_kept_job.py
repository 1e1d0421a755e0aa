"""The job of a run folder is not replaced by another without a word."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from reticent.core.artifact import JOB
from reticent.core.errors import PolicyError
from reticent.core.progress import Progress
from reticent.job.config import load_job, load_kept_job, parse_job
from reticent.job.run import Run


def keep(folder: Path, source: Path, *, quiet: bool = True, **sections: Any) -> None:
    job = parse_job({"out": str(folder), "corpus": {"source": str(source)}, **sections})
    Run(job, Progress(quiet=quiet)).keep_job()


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    for name in ("documents", "others", "run"):
        (place / name).mkdir(parents=True)
    keep(place / "run", place / "documents")
    return place / "run"


def test_other_documents_are_said_also_when_quiet(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(kept, kept.parent / "others", train={"num_epochs": 3})
    assert capsys.readouterr().err == (
        f"warning: {kept / JOB}: replaced by this job, which differs in corpus.source, train\n"
    )


@pytest.mark.parametrize("quiet", [True, False])
def test_other_settings_are_said_unless_quiet(kept: Path, quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    keep(kept, kept.parent / "documents", quiet=quiet, train={"num_epochs": 3})
    assert capsys.readouterr().err == ("" if quiet else f"{kept / JOB}: replaced by this job, which differs in train\n")


def test_nothing_is_said_of_the_same_job_a_moved_one_and_one_that_cannot_be_read(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(kept, kept.parent / "documents", quiet=False)
    shutil.move(kept.parent, kept.parent.with_name("moved"))
    moved = kept.parent.with_name("moved") / "run"
    Run(load_kept_job(moved / JOB), Progress()).keep_job()
    (moved / JOB).write_text("{")
    keep(moved, moved.parent / "documents", quiet=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("before", "given", "expected"),
    [
        (None, "", False),
        (False, "", False),
        (True, "", True),
        (None, "end_of_text = true", True),
        (True, "end_of_text = false", False),
    ],
)
def test_a_run_goes_on_with_the_ends_of_texts_as_it_was_begun(
    kept: Path, before: bool | None, given: str, expected: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((kept / JOB).read_text())
    assert content["train"].pop("end_of_text") is True  # of new jobs
    content["train"] |= {} if before is None else {"end_of_text": before}
    (kept / JOB).write_text(json.dumps(content))
    assert load_kept_job(kept / JOB).train.end_of_text is bool(before)
    file = kept.parent / "job.toml"
    source = json.dumps(str(kept.parent / "documents"))
    file.write_text(f"out = {json.dumps(str(kept))}\n[corpus]\nsource = {source}\n[train]\nnum_epochs = 3\n{given}\n")
    assert load_job(file).train.end_of_text is expected
    said = f"{kept}: train.end_of_text is false, as when this run was begun"
    assert capsys.readouterr().err.startswith(said) == (before is None and not given)
    Run(load_job(file), Progress(quiet=True)).keep_job()
    capsys.readouterr()
    assert load_job(file).train.end_of_text is expected
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", [None, "{", "[]", '{"train": 3}', '{"train": null}'])
def test_a_folder_that_keeps_no_job_decides_no_ends(kept: Path, content: str | None) -> None:
    (kept / JOB).unlink()
    if content is not None:
        (kept / JOB).write_text(content)
    file = kept.parent / "job.toml"
    file.write_text(f"out = {json.dumps(str(kept))}\n[corpus]\nsource = {json.dumps(str(kept.parent))}\n")
    assert load_job(file).train.end_of_text is True


def test_a_drawn_seed_is_kept_and_a_run_that_goes_on_has_it(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seed_of(out: Path) -> int:
        return parse_job({"out": str(out), "seed": "draw", "corpus": {"source": str(kept.parent / "documents")}}).seed

    assert seed_of(kept) == 0  # that of the run as it is
    new = kept.parent / "new"
    assert len({seed_of(new) for _ in range(9)}) == 9
    keep(new, kept.parent / "documents", seed="draw")
    drawn = load_kept_job(new / JOB).seed
    assert drawn > 2**32
    assert [seed_of(new), seed_of(new)] == [drawn, drawn]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert seed_of(new) == drawn
    with pytest.raises(PolicyError, match="seed: each process would draw its own"):
        seed_of(kept.parent / "other")


@pytest.mark.parametrize("seed", ["drawn", "", None, -1, 2**63])
def test_no_other_word_is_a_seed(kept: Path, seed: object) -> None:
    with pytest.raises(PolicyError, match="seed"):
        parse_job({"out": str(kept), "seed": seed, "corpus": {"source": "a"}})
