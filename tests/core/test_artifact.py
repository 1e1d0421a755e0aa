"""Artefacts: a whole result or none, whatever kills the writer; private, locked, known by what they were made from."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.unprivileged import unprivileged

from reticent.core import artifact
from reticent.core.artifact import (
    FORMATS,
    JOB,
    fingerprint,
    is_up_to_date,
    nest_artifact,
    read_manifest,
    recover_folder,
    require_kind,
    write_artifact,
)
from reticent.core.errors import ArtifactError, CorpusError

CONFIG = {"k": 2, "labels": ["é", "b"]}
INPUTS = {"corpus": "abc"}


def write(path: Path, text: str = "old", *, kind: str = "index", config: Any = CONFIG, inputs: Any = INPUTS) -> None:
    with write_artifact(path, kind=kind, config=config, inputs=inputs) as writer:
        (writer.path / "words.txt").write_text(text)
        (writer.path / "deep").mkdir()
        (writer.path / "deep" / "part.txt").write_text(text * 2)
        writer.counts["words"] = len(text)


def content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".*") if not path.name.endswith(".lock"))


# ---------------------------------------------------------------------------------------------------- whole or nothing

#: The process kills itself (SIGKILL: no handler, no clean-up) at the given point of writing "new" over what is there.
KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from reticent.core import artifact
path, point = Path(sys.argv[1]), sys.argv[2]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

renames = []
def rename(self, target, original=Path.rename):
    if point == f"rename {len(renames)}":
        die()
    renames.append(target)
    return original(self, target)

if point == "sync":
    artifact.sync = die
if point == "manifest":
    Path.write_text = lambda self, text, **_: die() if self.name == "manifest.json" else self.write_bytes(text.encode())
if point == "wiping":
    artifact.delete = die
if point == "wipe":
    artifact.shutil.rmtree = die
Path.rename = rename
with artifact.write_artifact(path, kind="index", config={}, inputs={}) as writer:
    (writer.path / "words.txt").write_bytes(b"new")
    if point == "data":
        die()
"""


def run_killed_writer(path: Path, point: str) -> None:
    result = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(path), point], capture_output=True, check=False)
    assert result.returncode == -signal.SIGKILL, result.stderr  # the point was reached


@pytest.mark.parametrize("point", ["data", "sync", "manifest", "rename 0", "rename 1"])
def test_a_killed_writer_leaves_the_old_artefact_and_the_next_one_wipes_what_it_left(
    tmp_path: Path, point: str
) -> None:
    path = tmp_path / "index"
    write(path)
    before = content(path)
    run_killed_writer(path, point)
    assert leftovers(tmp_path)  # or there is nothing to wipe
    assert read_manifest(path).counts == {"words": 3}
    assert content(path) == before
    write(path, "newer")
    assert leftovers(tmp_path) == []
    assert (path / "words.txt").read_text() == "newer"


KILLED_NESTING = """
import os, signal, sys
from pathlib import Path
from reticent.core.artifact import nest_artifact
path, point = Path(sys.argv[1]), int(sys.argv[2])

renames = []
def rename(self, target, original=Path.rename):
    if point == len(renames):
        os.kill(os.getpid(), signal.SIGKILL)
    renames.append(target)
    return original(self, target)

Path.rename = rename
nest_artifact(path, "seed-0")
"""


@pytest.mark.parametrize("num_renames", [0, 1, 2])
@pytest.mark.parametrize("finder", [read_manifest, lambda path: recover_folder(path.parent)], ids=["reader", "job"])
def test_an_artefact_is_where_it_was_after_a_kill_while_it_is_moved_into_itself(
    tmp_path: Path, num_renames: int, finder: Any
) -> None:
    path = tmp_path / "ppmlm"
    (tmp_path / JOB).touch()
    write(path)
    before = content(path)
    command = [sys.executable, "-c", KILLED_NESTING, str(path), str(num_renames)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    finder(path)
    assert content(path) == before
    nest_artifact(path, "seed-0")
    assert (content(path / "seed-0"), leftovers(tmp_path)) == (before, [])


@pytest.mark.parametrize("point", ["data", "sync", "manifest", "rename 0"])
def test_a_killed_first_writer_leaves_nothing_that_counts(tmp_path: Path, point: str) -> None:
    path = tmp_path / "index"
    run_killed_writer(path, point)
    assert leftovers(tmp_path)
    with pytest.raises(ArtifactError, match="no artefact here"):
        read_manifest(path)
    assert not is_up_to_date(path, kind="index", config={}, inputs={})
    write(path)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("point", ["wiping", "wipe"])
def test_a_writer_killed_after_the_replacement_leaves_the_new_artefact(tmp_path: Path, point: str) -> None:
    path = tmp_path / "index"
    write(path)
    run_killed_writer(path, point)
    (left,) = leftovers(tmp_path)
    assert left.startswith(".index.tmp-")
    assert read_manifest(path)
    assert (path / "words.txt").read_text() == "new"
    write(path, "newer")
    assert leftovers(tmp_path) == []


def test_leftovers_of_other_artefacts_are_left_alone(tmp_path: Path) -> None:
    others = [".index-joint.tmp-0123456789ab", ".index.tmp-0123456789ab", ".in[d]ex.tmp-1.tmp-0123456789ab"]
    for name in (*others, ".in[d]ex.tmp-0123456789ab"):
        (tmp_path / name).mkdir()
    write(tmp_path / "in[d]ex")
    assert leftovers(tmp_path) == sorted(others)


@pytest.mark.parametrize("is_folder", [True, False])
def test_what_somebody_keeps_under_the_name_of_a_backup_is_not_deleted(is_folder: bool, tmp_path: Path) -> None:
    path, kept = tmp_path / "index", tmp_path / ".index.old"
    if is_folder:
        kept.mkdir()
    work = kept / "thesis.txt" if is_folder else kept
    work.write_text("two years of work")
    (tmp_path / JOB).touch()
    for _ in range(2):
        with pytest.raises(ArtifactError, match=r"\.index\.old: not ours, and in the place of a backup; move it away"):
            write(path)
        kept.rename(tmp_path / "elsewhere")
        write(path)
        (tmp_path / "elsewhere").rename(kept)
        read_manifest(path)
        recover_folder(tmp_path)
        assert work.read_text() == "two years of work"


def test_a_half_deleted_artefact_is_not_recovered(tmp_path: Path) -> None:
    path = tmp_path / "index"
    write(path)
    run_killed_writer(path, "wipe")
    (left,) = leftovers(tmp_path)
    assert content(tmp_path / left).keys() == {"words.txt", "deep/part.txt"}  # the manifest went first
    shutil.rmtree(path)
    with pytest.raises(ArtifactError, match="no artefact here"):
        read_manifest(path)
    write(path, "newer")
    assert leftovers(tmp_path) == []


# ------------------------------------------------------------------------------------------------- the whole run folder


def interrupted_run(tmp_path: Path) -> Path:
    """A run folder with what a killed writer can leave, at every place where one can be."""
    run = tmp_path / "run"
    for name in ("index", "spans", "tokens/gone/train"):
        write(run / name)
        (run / name).with_name(f".{Path(name).name}.tmp-0123456789ab").mkdir()
        ((run / name).with_name(f".{Path(name).name}.tmp-0123456789ab") / "text.arrow").touch()
    write(tmp_path / "big-disk" / "audit")
    (run / "audit").symlink_to(tmp_path / "big-disk" / "audit")
    (tmp_path / "big-disk" / ".audit.tmp-0123456789ab").mkdir()
    write(run / "split")
    (run / "split").rename(run / ".split.old")  # between the two renames
    shutil.copytree(run / "index", run / ".index.old")  # after them
    (run / ".job.json.tmp-0123456789ab").touch()
    (run / "job.json").write_text("{}")
    return run


def test_a_run_folder_is_repaired_where_no_stage_would_look(tmp_path: Path) -> None:
    run = interrupted_run(tmp_path)
    before = {name: content(run / name) for name in ("index", "spans", "tokens/gone/train", "audit")}
    artifact.recover_folder(run)
    hidden = {path for path in tmp_path.rglob(".*") if path.suffix != ".lock"}
    assert hidden == set()
    assert {name: content(run / name) for name in before} == before
    assert read_manifest(run / "split").counts == {"words": 3}


def test_files_of_others_in_a_run_folder_are_left_alone(tmp_path: Path) -> None:
    run = interrupted_run(tmp_path)
    for name in (".git", ".git.old", ".notes.tmp-1", "models/toy/ppmlm/deep/.x.tmp-0123456789ab"):
        (run / name).mkdir(parents=True)
        (run / name / "thesis.txt").touch()
    artifact.recover_folder(run)
    assert len(list(run.rglob("thesis.txt"))) == 4
    (run / "job.json").unlink()
    (run / ".index.tmp-0123456789ab").mkdir()
    artifact.recover_folder(run)
    assert (run / ".index.tmp-0123456789ab").exists()  # this is no run folder


def test_files_that_another_process_is_writing_are_not_deleted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run / "split")
    (run / "job.json").write_text("{}")
    with write_artifact(run / "index", kind="index", config={}, inputs={}) as writer:  # flock is of the open file
        (run / ".split.tmp-0123456789ab").mkdir()
        artifact.recover_folder(run)
        assert not (run / ".split.tmp-0123456789ab").exists()
        assert writer.path.exists()
    assert read_manifest(run / "index")


def test_files_that_cannot_be_deleted_are_an_error() -> None:
    with unprivileged() as folder:
        (folder / "job.json").touch()
        left = folder / ".index.tmp-0123456789ab"
        left.mkdir()
        (left / "text.arrow").touch()
        left.chmod(0o500)
        with pytest.raises(
            ArtifactError, match=r"index: what an interrupted run left cannot be deleted \(Permission denied"
        ):
            artifact.recover_folder(folder)
        left.chmod(0o700)


# ------------------------------------------------------------------------------------------------------------- errors


def test_a_second_interruption_does_not_stop_the_cleaning_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    write(path)
    before = content(path)
    wipe, came = artifact.delete, []

    def disturbed(path: Path) -> None:
        signal.raise_signal(signal.SIGINT)
        came.append(path)
        wipe(path)

    monkeypatch.setattr(artifact, "delete", disturbed)

    def fail() -> None:
        with write_artifact(path, kind="index", config={}, inputs={}) as writer:
            (writer.path / "words.txt").write_text("half")
            raise ValueError

    with pytest.raises(KeyboardInterrupt):  # it is not lost either
        fail()
    assert len(came) == 1
    assert leftovers(tmp_path) == []
    assert content(path) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("step", ["rename", "sync"])
def test_a_replacement_that_fails_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "index"
    write(path)
    before, sync, rename = content(path), artifact.sync, Path.rename

    def fail_sync(folder: Path) -> None:
        if folder == tmp_path:
            raise OSError(errno.ENOSPC, "x")
        sync(folder)

    def fail_rename(self: Path, target: Path) -> Path:
        if ".tmp-" in self.name:
            raise OSError(errno.ENOSPC, "x")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(artifact, "sync", fail_sync) if step == "sync" else patch.setattr(Path, "rename", fail_rename)
        with pytest.raises(ArtifactError, match=r"not written \(No space left on device\)"):
            write(path, "new")
    assert content(path) == before
    assert leftovers(tmp_path) == []


def test_a_full_disk_that_a_library_reports_in_its_own_way_is_an_artefact_error(tmp_path: Path) -> None:
    def fail(error: Exception) -> None:
        with write_artifact(tmp_path / "index", kind="index", config={}, inputs={}):
            raise error

    with pytest.raises(ArtifactError, match=r"index: not written \(No space left on device\)$"):
        fail(Exception("I/O error: No space left on device (os error 28)"))
    for error in (ValueError("28"), CorpusError("row 1 (os error 28)")):
        with pytest.raises(ValueError, match="28") as caught:
            fail(error)
        assert caught.value is error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_the_block_leaves_the_old_artefact(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "index"
    write(path)
    before = content(path)

    def fail() -> None:
        with write_artifact(path, kind="index", config={}, inputs={}) as writer:
            (writer.path / "words.txt").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert content(path) == before
    assert leftovers(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB where one can be mounted; elsewhere a folder, of which the tests say that it is full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    yield folder
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_the_old_artefact(small_disk: Path) -> None:
    path = small_disk / "index"
    write(path)
    before = content(path)

    def fill() -> None:
        with write_artifact(path, kind="index", config={}, inputs={}) as writer:
            (writer.path / "words.txt").write_bytes(b"x" * 262_144)
            assert not os.path.ismount(small_disk)
            raise OSError(errno.ENOSPC, "x")

    with pytest.raises(ArtifactError, match=r"index: not written \(No space left on device"):
        fill()
    assert content(path) == before
    assert leftovers(small_disk) == []


@pytest.mark.parametrize("step", ["sync", "_finish", "_replace"])
def test_a_failure_of_the_system_while_finishing_is_an_artefact_error_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "index"
    write(path)
    before = content(path)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "x")

    monkeypatch.setattr(artifact, step, fail)
    with pytest.raises(ArtifactError, match=r"index: not written \(No space left on device\)"):
        write(path, "new")
    assert content(path) == before
    assert leftovers(tmp_path) == []


def test_the_manifest_is_written_last_and_then_the_folder_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States that a crash can leave: files that are safe on the disk before the manifest, and that before the
    rename."""
    steps = []
    sync, rename = artifact.sync, Path.rename
    monkeypatch.setattr(artifact, "sync", lambda path: (steps.append(path.name), sync(path)))
    monkeypatch.setattr(Path, "rename", lambda self, target: (steps.append(f"-> {target.name}"), rename(self, target)))
    write(tmp_path / "index")
    temporary = next(step for step in steps if step.startswith(".index.tmp-"))
    assert steps == ["part.txt", "words.txt", "manifest.json", temporary, "deep", "-> index", tmp_path.name]


# ---------------------------------------------------------------------------------------------------- locks and places


def test_a_second_writer_is_refused_while_the_first_one_writes(tmp_path: Path) -> None:
    code = (
        "import sys; from reticent.core.artifact import write_artifact\n"
        "with write_artifact(sys.argv[1], kind='index', config={}, inputs={}) as writer:\n"
        "    (writer.path / 'words.txt').write_text('first'); print('writing', flush=True); sys.stdin.read()\n"
    )
    path = tmp_path / "index"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "writing\n"
        with pytest.raises(ArtifactError, match="index: in use by another process"):
            write(path, "second")
        write(tmp_path / "another")  # the lock is of one artefact
        first.communicate("")
    assert first.returncode == 0
    assert (path / "words.txt").read_text() == "first"
    write(path, "third")
    assert (path / "words.txt").read_text() == "third"


def test_a_reader_sees_the_old_artefact_while_a_new_one_is_written(tmp_path: Path) -> None:
    path = tmp_path / "index"
    write(path)
    with write_artifact(path, kind="index", config={}, inputs={}) as writer:
        (writer.path / "words.txt").write_text("new")
        assert read_manifest(path).config == CONFIG
    assert read_manifest(path).config == {}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_0600_in_folders_0700_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "runs" / "index"
    old = os.umask(umask)
    try:
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs").chmod(0o755)
        with write_artifact(path, kind="index", config={}, inputs={}) as writer:
            (writer.path / "loose.txt").write_text("x")
            (writer.path / "loose.txt").chmod(0o666)
            (writer.path / "deep").mkdir()
            (writer.path / "deep").chmod(0o777)
            (writer.path / "deep" / "part.txt").write_text("x")
            unfinished = stat.S_IMODE((writer.path / "deep" / "part.txt").stat().st_mode)
            during = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
        assert os.umask(umask) == umask  # and the process has its own back
    finally:
        os.umask(old)
    modes = {str(f.relative_to(path)): stat.S_IMODE(f.stat().st_mode) for f in (path, *path.rglob("*"))}
    private = {"loose.txt": 0o600, "deep/part.txt": 0o600, "manifest.json": 0o600}
    assert modes == {".": 0o700, "deep": 0o700, **private}
    assert unfinished == 0o600  # private from the first byte
    assert len(during) == 2
    assert set(during.values()) == {0o700, 0o600}  # the temporary folder and the lock


def test_a_folder_without_a_manifest_does_not_exist_and_is_never_overwritten(tmp_path: Path) -> None:
    foreign = tmp_path / "index"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("two years of work")
    with pytest.raises(ArtifactError, match=r"no artefact here \(no manifest.json\)"):
        read_manifest(foreign)
    with pytest.raises(ArtifactError, match="not an artefact of ours"):
        write(foreign)
    assert content(foreign) == {"thesis.txt": b"two years of work"}


def test_a_file_in_the_place_of_an_artefact_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "index"
    file.write_text("mine")
    for attempt in (lambda: write(file), lambda: write(file / "below"), lambda: read_manifest(file)):
        with pytest.raises(ArtifactError):
            attempt()
    assert file.read_text() == "mine"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    write(tmp_path / "index")
    assert read_manifest(tmp_path / "index")


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "big-disk").mkdir()
    link = tmp_path / "index"
    link.symlink_to(tmp_path / "big-disk" / "index")
    for text in ("first", "second", "third"):
        write(link, text)
        assert link.is_symlink()
        assert (tmp_path / "big-disk" / "index" / "words.txt").read_text() == text
    assert leftovers(tmp_path) == leftovers(tmp_path / "big-disk") == []
    run_killed_writer(link, "rename 1")
    assert read_manifest(link).counts == {"words": 5}


def test_a_link_to_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("x")
    (tmp_path / "index").symlink_to(tmp_path / "home")
    with pytest.raises(ArtifactError, match="not an artefact of ours"):
        write(tmp_path / "index")
    assert content(tmp_path / "home") == {"thesis.txt": b"x"}


def test_a_read_only_folder_is_an_artefact_error() -> None:
    with unprivileged() as folder:
        folder.chmod(0o500)
        for path in (folder / "index", folder / "deep" / "index"):
            with pytest.raises(ArtifactError, match="Permission denied"):
                write(path)
            assert not is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)
        folder.chmod(0o700)
        assert list(folder.iterdir()) == []


def test_an_artefact_in_a_read_only_folder_can_be_read() -> None:
    with unprivileged() as folder:
        write(folder / "index")
        folder.chmod(0o500)
        assert read_manifest(folder / "index").counts == {"words": 3}
        (folder / "index" / "manifest.json").chmod(0)
        with pytest.raises(ArtifactError, match="Permission denied"):
            read_manifest(folder / "index")
        folder.chmod(0o700)


# ---------------------------------------------------------------------------------------------- what it was made from


def test_an_artefact_is_current_for_the_same_kind_configuration_and_inputs_only(tmp_path: Path) -> None:
    path = tmp_path / "index"
    assert not is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)
    write(path)
    assert is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)
    assert is_up_to_date(path, kind="index", config={"labels": ("é", "b"), "k": 2}, inputs=INPUTS)  # as JSON has it
    assert not is_up_to_date(path, kind="split", config=CONFIG, inputs=INPUTS)
    for config in ({}, {**CONFIG, "k": 3}, {**CONFIG, "n": 1}, {**CONFIG, "labels": ["b", "é"]}):
        assert not is_up_to_date(path, kind="index", config=config, inputs=INPUTS)
    for inputs in ({}, {"corpus": "abd"}, {**INPUTS, "split": "x"}, {"words": "abc"}):
        assert not is_up_to_date(path, kind="index", config=CONFIG, inputs=inputs)


@pytest.mark.parametrize("file", ["words.txt", "deep/part.txt"])
@pytest.mark.parametrize("harm", ["gone", "shorter", "longer", "a folder"])
def test_an_artefact_with_a_harmed_file_is_not_current_and_names_the_file(tmp_path: Path, file: str, harm: str) -> None:
    path = tmp_path / "index"
    write(path)
    if harm in ("gone", "a folder"):
        (path / file).unlink()
    if harm == "a folder":
        (path / file).mkdir()
    if harm in ("shorter", "longer"):
        (path / file).write_text("x" if harm == "shorter" else "x" * 99)
    assert not is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)
    with pytest.raises(ArtifactError, match=f"{file}: missing, or not of the size"):
        read_manifest(path)


@pytest.mark.parametrize("file", ["words.txt", "deep/part.txt"])
def test_a_file_changed_at_the_same_size_is_found_and_named(tmp_path: Path, file: str) -> None:
    path = tmp_path / "index"
    write(path)
    before = (path / file).read_bytes()
    (path / file).write_bytes(b"O" + before[1:])
    assert read_manifest(path)  # which looks at sizes only
    assert not is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)
    with pytest.raises(ArtifactError, match=f"{file}: changed since it was written; make it again"):
        fingerprint(path)
    (path / file).write_bytes(before)
    assert is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)


def test_an_artefact_in_another_format_of_its_kind_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index"
    monkeypatch.setitem(FORMATS, "index", 1)
    write(path)
    old = fingerprint(path)
    monkeypatch.setitem(FORMATS, "index", 2)
    assert not is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)
    with pytest.raises(ArtifactError, match=r"another version of Reticent \(format 1 of index, expected 2\)"):
        require_kind(path, "index")
    assert read_manifest(path).kind_format == 1  # it can still be looked at
    write(path)
    assert is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)
    assert fingerprint(path) != old  # and what was made from the old one is not current either


def test_a_manifest_from_before_kinds_had_formats_is_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "index", 1)
    path = tmp_path / "index"
    write(path)
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest.pop("kind_format") == 1
    del manifest["sha256"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)


MANIFEST = {"format": "reticent.artifact/1", "kind": "index", "config": {}, "inputs": {}, "files": {}, "counts": {}}


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'"text"',
        b"3",
        b"null",
        b"{}",
        json.dumps(MANIFEST).encode(),  # no versions
        json.dumps({**MANIFEST, "versions": {}, "more": 1}).encode(),
        json.dumps({**MANIFEST, "versions": {}, "files": ["words.txt"]}).encode(),
        json.dumps({**MANIFEST, "versions": {}, "config": None}).encode(),
        json.dumps({**MANIFEST, "versions": {}, "inputs": []}).encode(),
        json.dumps({**MANIFEST, "versions": {}, "counts": None}).encode(),
        json.dumps({**MANIFEST, "versions": {}, "files": {"words.txt": {}}}).encode(),
        json.dumps({**MANIFEST, "versions": {}, "files": {"words.txt": {"num_bytes": 3}}}).encode(),
    ],
)
def test_an_unreadable_manifest_is_an_artefact_error(tmp_path: Path, manifest: bytes) -> None:
    path = tmp_path / "index"
    write(path)
    (path / "manifest.json").write_bytes(manifest)
    with pytest.raises(ArtifactError, match=r"manifest\.json: not a readable manifest"):
        read_manifest(path)
    assert not is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)


@pytest.mark.parametrize("field", ["counts", "config", "inputs", "versions"])
def test_a_manifest_that_was_edited_is_not_taken(tmp_path: Path, field: str) -> None:
    path = tmp_path / "index"
    write(path)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest[field]["violations"] = 0
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"manifest\.json: changed since it was written; make it again"):
        read_manifest(path)
    assert not is_up_to_date(path, kind="index", config=CONFIG, inputs=INPUTS)


def test_an_artefact_of_another_format_or_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    write(path)
    with pytest.raises(ArtifactError, match="of kind index, expected split"):
        require_kind(path, "split")
    assert require_kind(path, "index").kind == "index"
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace("reticent.artifact/1", "reticent.artifact/2"))
    with pytest.raises(ArtifactError, match="another format"):
        read_manifest(path)


def test_fingerprint_of_an_artefact_depends_on_content_configuration_and_inputs_and_on_nothing_else(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b")
    same = fingerprint(tmp_path / "a")
    assert fingerprint(tmp_path / "b") == same  # the place does not matter
    others = {"c": {"text": "new"}, "d": {"config": {}}, "e": {"inputs": {}}, "f": {"kind": "split"}}
    for name, change in others.items():
        write(tmp_path / name, **change)
    assert len({same, *(fingerprint(tmp_path / name) for name in others)}) == 5
    with write_artifact(tmp_path / "b", kind="index", config=CONFIG, inputs=INPUTS) as writer:
        for name, data in content(tmp_path / "a").items():
            if name != "manifest.json":
                (writer.path / name).parent.mkdir(exist_ok=True)
                (writer.path / name).write_bytes(data)
        writer.counts["seconds"] = 3.2
    assert fingerprint(tmp_path / "b") == same  # nor do counts and times


def test_fingerprint_of_a_folder_is_of_names_and_contents_of_its_visible_files(tmp_path: Path) -> None:
    folder = tmp_path / "vocabulary"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("x")
    (folder / "deep" / "b.txt").write_text("y")
    seen = {fingerprint(folder)}
    (folder / ".DS_Store").write_text("z")
    assert {fingerprint(folder)} == seen
    (folder / "a.txt").write_text("X")
    seen.add(fingerprint(folder))
    (folder / "a.txt").rename(folder / "c.txt")
    seen.add(fingerprint(folder))
    (folder / "deep").rename(folder / "deeper")
    seen.add(fingerprint(folder))
    (folder / "deeper" / "b.txt").unlink()
    seen.add(fingerprint(folder))
    assert len(seen) == 5


def test_fingerprint_of_a_file_is_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    (tmp_path / "c").write_text("y")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b") != fingerprint(tmp_path / "c")
    with pytest.raises(ArtifactError, match="no such file or folder"):
        fingerprint(tmp_path / "nothing")
    with unprivileged() as folder:
        (folder / "secret").write_text("x")
        (folder / "secret").chmod(0)
        with pytest.raises(ArtifactError, match="Permission denied"):
            fingerprint(folder / "secret")


def test_a_result_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    with write_artifact(tmp_path / "a", kind="synth", config={}, inputs={}) as writer:
        (writer.path / "documents").write_text("x")
    with (
        pytest.raises(
            ArtifactError, match="holds an artefact of kind synth; choose another place for one of kind scrub"
        ),
        write_artifact(tmp_path / "a", kind="scrub", config={}, inputs={}),
    ):
        pass
    assert (tmp_path / "a" / "documents").read_text() == "x"
    (tmp_path / "a" / "manifest.json").write_text("damaged")
    with write_artifact(tmp_path / "a", kind="scrub", config={}, inputs={}):
        pass
    assert not (tmp_path / "a" / "documents").exists()
