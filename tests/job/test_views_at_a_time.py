"""Views of two indexes are made at a time where supports are kept: the same bytes, and nothing half made of either."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fixtures.jobs import Values, changed, content, protected_by_three, run

from reticent.core.errors import ArtifactError
from reticent.job import views

TOKENS = ("tokens/toy/train", "tokens/toy/audit")


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    return protected_by_three(tmp_path_factory.mktemp("hospital"), num_threads=2)


@pytest.fixture(scope="module")
def first(values: Values) -> Path:
    run(values)
    return Path(values["out"])


@pytest.fixture
def again(first: Path, values: Values, tmp_path: Path) -> Values:
    """The same run with another k."""
    shutil.copytree(first, tmp_path / "run")
    return changed(values, out=str(tmp_path / "run"), protect__k=4)


@pytest.fixture
def at_a_time(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The artefacts that were made at a time."""
    found: list[list[str]] = []
    build = views._build_at_a_time

    def recorded(index_of: dict[str, str], *arguments: Any) -> None:
        found.append([*index_of])
        build(index_of, *arguments)

    monkeypatch.setattr(views, "_build_at_a_time", recorded)
    return found


def left(values: Values) -> list[str]:
    """What is beside the artefacts of the tokens, locks aside."""
    names = (path.name for path in (Path(values["out"]) / "tokens" / "toy").iterdir())
    return sorted(name for name in names if name not in ("ids", "gaps", "train", "audit") and ".lock" not in name)


def test_views_at_a_time_are_those_of_a_run_from_nothing(
    again: Values, tmp_path: Path, at_a_time: list[list[str]]
) -> None:
    assert run(again).made == list(TOKENS)
    assert at_a_time == [list(TOKENS)]
    run(changed(again, out=str(tmp_path / "fresh")))
    assert len(at_a_time) == 1
    for name in TOKENS:
        assert content(tmp_path / "run" / name) == content(tmp_path / "fresh" / name)


@pytest.mark.parametrize("setting", [{"num_threads": 1}, {"memory_limit": "64GB"}])
def test_one_thread_or_a_memory_limit_has_one_view_made_at_a_time(
    again: Values, tmp_path: Path, at_a_time: list[list[str]], setting: dict[str, Any]
) -> None:
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    run(again)
    assert at_a_time.pop()
    run(changed(again, out=str(tmp_path / "other"), **setting))
    assert not at_a_time
    for name in TOKENS:
        assert content(tmp_path / "run" / name) == content(tmp_path / "other" / name)


def test_a_view_that_fails_leaves_the_one_before_it_whole_and_its_own_as_it_was(
    again: Values, tmp_path: Path, at_a_time: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: content(tmp_path / "run" / name) for name in TOKENS}
    write = views.write_view_of

    def fails(*arguments: Any) -> dict[str, Any]:
        counts = write(*arguments)
        if "audit" in arguments[2].name:
            raise ArtifactError("no room")
        return counts

    monkeypatch.setattr(views, "write_view_of", fails)
    with pytest.raises(ArtifactError, match="no room"):
        run(again)
    assert content(tmp_path / "run" / "tokens/toy/train") != before["tokens/toy/train"]
    assert content(tmp_path / "run" / "tokens/toy/audit") == before["tokens/toy/audit"]
    assert left(again) == []
    monkeypatch.undo()
    assert run(again).made == ["tokens/toy/audit"]


def test_an_error_stops_the_view_that_is_made_meanwhile(
    again: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: content(tmp_path / "run" / name) for name in TOKENS}
    stopped: list[str] = []

    def endless(*arguments: Any) -> dict[str, Any]:
        advance = arguments[-2]
        if "train" in arguments[2].name:
            raise KeyboardInterrupt
        try:
            while True:
                advance(0)
        except InterruptedError:
            stopped.append(arguments[2].name)
            raise

    monkeypatch.setattr(views, "write_view_of", endless)
    with pytest.raises(KeyboardInterrupt):
        run(again)
    assert len(stopped) == 1
    assert "audit" in stopped[0]
    assert {name: content(tmp_path / "run" / name) for name in TOKENS} == before
    assert left(again) == []
