"""The measures of the house: each finds what it counts, in a package made for it; and the files it names are there."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import house


@pytest.fixture
def sick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with one fault of each kind."""
    files = {
        "core/low.py": "def f() -> None:\n    from reticent.core import high\n",
        "core/high.py": "from reticent.core import low\nimport reticent.cli.top\n",
        "cli/top.py": "def people(nobody: int) -> None:\n    'The two are told apart.'\n",
        "audit/evidence.py": "def g() -> dict[str, Any]: ...\n",
        "engine/long.py": "x = 1\n" * 401,
        "engine/function.py": "def h() -> None:\n" + "    x = 1\n" * 51,
        "trainer/a.py": """
            class AConfig:
                a: int = 1
                b: int = 2
                c: int = 3
                d: int = Field(default=4, ge=1)
            """,
        "trainer/b.py": """
            class BSection:
                a: int = 1
                b: int = 2
                c: int = Field(3, description="c")
                d: int = 4
                seed: int = 0
            """,
    }
    for name, text in files.items():
        path = tmp_path / "reticent" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(textwrap.dedent(text))
    (tmp_path / "reticent" / "__init__.py").touch()
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "PACKAGE", tmp_path / "reticent")
    house.modules.cache_clear()
    house.graph.cache_clear()
    yield tmp_path
    house.modules.cache_clear()
    house.graph.cache_clear()


def test_every_measure_finds_its_fault(sick: Path) -> None:
    found = house.measures()
    assert found["import cycles"] == ["reticent.core.high <-> reticent.core.low"]
    assert found["imports upward between floors"] == ["reticent.core.high -> reticent.cli.top"]
    assert found["files over 400 lines"] == ["reticent/engine/long.py (401)"]
    assert found["functions over 50 lines without a reason"] == ["reticent.engine.function.h (51)"]
    (mirror,) = found["mirrored configuration classes"]
    assert mirror == "reticent.trainer.a.AConfig = reticent.trainer.b.BSection: a, b, c, d"
    assert found["dict[str, Any] in the evidence"] == ["reticent/audit/evidence.py:1"]
    assert sorted(row.split()[1] for row in found["identifiers of the left column"]) == ["nobody", "people"]
    assert found["phrases of the left column"] == ["reticent/cli/top.py:2: told apart"]


def test_the_longest_chain_is_found(sick: Path) -> None:
    edges = {"a": {"b", "c"}, "b": {"d"}, "c": set(), "d": set()}
    assert house.storeys(edges) == ["a", "b", "d"]
    assert house.cycles(edges) == []


def test_the_files_of_the_eight_changes_are_there() -> None:
    assert len(house.CHANGES) == 8
    assert house.missing_files() == []
    assert all(len(change.after) <= len(change.before) for change in house.CHANGES)


def test_the_house_keeps_every_goal() -> None:
    found = house.measures()
    assert found.keys() == house.GOALS.keys()
    assert {name: rows for name, rows in found.items() if len(rows) > house.GOALS[name]} == {}
