"""Files that were hashed and did not change are not read again; whatever changed is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from reticent.core import artifact as manifests
from reticent.core.artifact import LARGE, SETTLED, VerifiedFiles, is_up_to_date, write_artifact

ABOUT: dict[str, Any] = {"kind": "index", "config": {"max_n": 1}, "inputs": {}}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are hashed."""
    names: list[str] = []
    hash_file = manifests.hash_file
    monkeypatch.setattr(manifests, "hash_file", lambda path: names.append(path.name) or hash_file(path))
    return names


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An artefact of two files, which are old enough."""
    with write_artifact(tmp_path / "index", **ABOUT) as writer:
        (writer.path / "a").write_text("aaaa")
        (writer.path / "within").mkdir()
        (writer.path / "within" / "b").write_text("bbbb")
    time.sleep(1.5 * SETTLED)
    return tmp_path / "index"


def look(place: Path, *, reread: bool = False) -> bool:
    files = VerifiedFiles(place.parent, reread=reread)
    found = is_up_to_date(place, **ABOUT, check=files.verify)
    files.save()
    return found


def test_files_are_read_once(place: Path, read: list[str]) -> None:
    assert look(place)
    assert sorted(read) == ["a", "b"]
    assert look(place)
    assert len(read) == 2
    assert look(place, reread=True)
    assert len(read) == 4


def test_files_of_this_process_are_not_read_at_all(place: Path, read: list[str]) -> None:
    files = VerifiedFiles(place.parent)
    files.made(place)
    files.save()
    assert look(place)
    assert not read


@pytest.mark.parametrize("how", ["in place", "replaced", "touched back"])
def test_a_changed_file_of_the_same_size_is_found(place: Path, how: str) -> None:
    assert look(place)
    times = (place / "a").stat()
    if how == "replaced":
        (place / "new").write_text("AAAA")
        (place / "new").rename(place / "a")
    else:
        (place / "a").write_text("AAAA")
    if how == "touched back":
        os.utime(place / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not look(place)
    assert not look(place)


def test_a_file_that_changed_after_its_manifest_is_not_taken_for_what_was_written(place: Path, read: list[str]) -> None:
    (place / "a").write_text("AAAA")
    time.sleep(1.5 * SETTLED)
    files = VerifiedFiles(place.parent)
    files.made(place)
    files.save()
    assert not look(place)
    assert read == ["a"]


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A file of documents beside the run folder, old enough, of as many bytes as are worth remembering."""
    (tmp_path / "run").mkdir()
    (tmp_path / "notes").write_bytes(b"a" * LARGE)
    time.sleep(1.5 * SETTLED)
    return tmp_path / "notes"


def sha256_of(documents: Path, *, reread: bool = False) -> str:
    files = VerifiedFiles(documents.parent / "run", reread=reread)
    found = files.sha256(documents)
    files.save()
    return found.hex()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_documents_are_read_once(documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sha256_of(documents) == digest(b"a" * LARGE)
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("read again"))
    assert sha256_of(documents) == digest(b"a" * LARGE)
    with pytest.raises(pytest.fail.Exception, match="read again"):
        sha256_of(documents, reread=True)


@pytest.mark.parametrize("how", ["in place", "replaced", "touched back"])
def test_changed_documents_of_the_same_size_are_read_again(documents: Path, how: str) -> None:
    assert sha256_of(documents) == digest(b"a" * LARGE)
    times = documents.stat()
    if how == "replaced":
        documents.with_name("new").write_bytes(b"b" * LARGE)
        documents.with_name("new").rename(documents)
    else:
        documents.write_bytes(b"b" * LARGE)
    if how == "touched back":
        os.utime(documents, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert sha256_of(documents) == digest(b"b" * LARGE)
    documents.write_bytes(b"c" * LARGE)  # just after it was looked at
    assert sha256_of(documents) == digest(b"c" * LARGE)


def test_small_files_of_documents_are_not_remembered(documents: Path) -> None:
    documents.write_bytes(b"a" * (LARGE - 1))
    time.sleep(1.5 * SETTLED)
    assert sha256_of(documents) == digest(b"a" * (LARGE - 1))
    assert not (documents.parent / "run" / ".verified.json").exists()


def test_a_file_that_changed_just_now_is_not_remembered(place: Path, read: list[str]) -> None:
    (place / "a").write_text("aaaa")
    assert look(place)
    assert look(place)
    assert read.count("a") == 2
    assert read.count("b") == 1


def test_a_copy_is_read_again(place: Path, read: list[str]) -> None:
    assert look(place)
    shutil.copytree(place.parent, place.parent.with_name("copy"))
    (place.parent.with_name("copy") / "index" / "a").write_text("AAAA")
    assert not look(place.parent.with_name("copy") / "index")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "files": {"index/a": 3}}', b'{"format": 2}']
)
def test_what_was_remembered_and_cannot_be_read_is_forgotten(place: Path, read: list[str], content: bytes) -> None:
    (place.parent / ".verified.json").write_bytes(content)
    assert look(place)
    assert len(read) == 2
    assert look(place)
    assert len(read) == 2


def test_what_is_kept_names_no_file_that_is_gone(place: Path) -> None:
    assert look(place)
    shutil.rmtree(place)
    with write_artifact(place.with_name("other"), **ABOUT) as writer:
        (writer.path / "c").write_text("c")
    time.sleep(1.5 * SETTLED)
    assert look(place.with_name("other"))
    kept = place.parent / ".verified.json"
    assert list(json.loads(kept.read_text())["files"]) == ["other/c"]
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_written_costs_time_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, content: bytes) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("reticent.core.artifact.write_private", fail)
    assert look(place)
    assert look(place)
