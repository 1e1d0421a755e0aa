"""Folders for others are filled whole, or are as they were."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from reticent.core.artifact import new_folder
from reticent.core.errors import ArtifactError


def fill(out: Path, error: BaseException | None) -> None:
    with new_folder(out):
        (out / "adapter").mkdir()
        (out / "adapter" / "weights").write_bytes(b"a half")
        if error is not None:
            raise error
        (out / "README.md").write_text("the verdict")


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (OSError(errno.ENOSPC, "x", "run/source"), ArtifactError, r"^\S+out: not written \(No space left on device\)$"),
        (ArtifactError("of ours"), ArtifactError, "^of ours$"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
        (SystemExit(143), SystemExit, "143"),
    ],
)
def test_an_error_or_a_signal_leaves_the_folder_as_it_was(
    tmp_path: Path, was_there: bool, error: BaseException, raised: type[BaseException], message: str
) -> None:
    out = tmp_path / "out"
    if was_there:
        out.mkdir()
    with pytest.raises(raised, match=message):
        fill(out, error)
    assert list(tmp_path.rglob("*")) == ([out] if was_there else [])
    fill(out, None)
    assert {path.name for path in out.rglob("*")} == {"adapter", "weights", "README.md"}
    assert out.stat().st_mode & 0o777 == 0o700 or was_there


def test_a_place_that_holds_something_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("work")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(ArtifactError, match="choose a new folder"):
            fill(place, None)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
