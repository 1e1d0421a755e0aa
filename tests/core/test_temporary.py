"""Temporary folders of killed processes: deleted by the next process, and never while theirs is alive."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from reticent.core.artifact import HELD, JOB, VERIFY, delete_left, held_folder
from reticent.job.config import parse_job
from reticent.job.run import Run

HOLD = """
import sys, time
from pathlib import Path
from reticent.core.artifact import held_folder
with held_folder("reticent-test-", Path(sys.argv[1])) as folder:
    (folder / "spans").mkdir()
    print(folder, flush=True)
    time.sleep(600)
"""


def test_a_folder_is_deleted_when_its_process_was_killed_and_not_before(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        theirs = Path(holder.stdout.readline().strip())
        with held_folder("reticent-test-", tmp_path) as own:
            assert own.stat().st_mode & 0o777 == 0o700
            delete_left("reticent-test-", tmp_path)
            assert {theirs, own} == set(tmp_path.iterdir())
        assert list(tmp_path.iterdir()) == [theirs]
    finally:
        holder.kill()
        holder.communicate()
    assert list(theirs.iterdir())
    with held_folder("reticent-test-", tmp_path) as own:
        assert list(tmp_path.iterdir()) == [own]
    assert list(tmp_path.iterdir()) == []


def test_other_names_files_links_and_empty_folders_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "reticent-other-1" / "file").mkdir(parents=True)
    (tmp_path / "reticent-test-file").touch()
    (tmp_path / "reticent-test-empty").mkdir()
    (tmp_path / "reticent-test-results" / "spans").mkdir(parents=True)  # of a person who chose this name
    (tmp_path / "reticent-test-link").symlink_to(tmp_path / "reticent-other-1")
    before = sorted(tmp_path.iterdir())
    with held_folder("reticent-test-"):
        pass
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "reticent-other-1" / "file").exists()
    assert (tmp_path / "reticent-test-results" / "spans").exists()


@pytest.mark.parametrize("is_run", [True, False])
def test_a_run_deletes_what_a_killed_verification_left_in_its_own_folder(is_run: bool, tmp_path: Path) -> None:
    left = tmp_path / f"{VERIFY}left" / "tokens"
    left.mkdir(parents=True)
    (left.parent / HELD).touch()
    if is_run:
        (tmp_path / JOB).write_text("{}")
    Run(parse_job({"out": str(tmp_path), "corpus": {"source": str(tmp_path)}})).recover()
    assert left.exists() != is_run
