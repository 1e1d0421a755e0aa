"""The notebooks of docs/ run from the first to the last, one after the other in one folder."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from fixtures.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not NOTEBOOKS, reason="needs the sources"),
    pytest.mark.usefixtures("without_ink"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebooks")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert not any(cell.get("outputs") for cell in cells)
    if "Trainer" in code[0] and importlib.util.find_spec("datasets") is None:
        pytest.skip("needs the packages of the group trainers (make test-trainers installs them)")
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for cell in code:
        exec(cell, names)
