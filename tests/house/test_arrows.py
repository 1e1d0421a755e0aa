"""Which module uses which: no circle and no arrow upward, over every arrow; and the tool finds what it looks for."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "house.py"

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="needs the sources")

#: One fault of each kind of arrow.
SICK = {
    "core/low.py": "def f() -> None:\n    from reticent.core import high\n",
    "core/high.py": "from reticent.core import low\n",
    "core/seen.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from reticent.engine import store\n",
    "engine/store.py": 'ROWS = {"train": "reticent.trainer.loop:train"}\n',
    "trainer/loop.py": "x = 1\n",
    "audit/table.py": 'ROWS = {"probe": "reticent.ext.probe:run"}\n',
    "ext/probe.py": "from reticent.audit import table\n",
}


def test_the_package_has_no_circle_and_no_arrow_upward() -> None:
    ended = subprocess.run([sys.executable, TOOL], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[ended.stdout.index("circles:") :]
    assert "circles: 0\narrows upward: 0\n" in ended.stdout


def test_every_kind_of_arrow_counts_but_rows_that_name_a_sibling(tmp_path: Path) -> None:
    for name, text in SICK.items():
        path = tmp_path / "reticent" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "house.py").write_text(TOOL.read_text())
    ended = subprocess.run([sys.executable, tmp_path / "tools" / "house.py"], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "circles: 1\n    2: reticent.core.high, reticent.core.low\n" in ended.stdout
    upward = ended.stdout.split("arrows upward: 2\n")[1].splitlines()
    assert upward == [
        "    reticent.core.seen -> reticent.engine.store (types)",
        "    reticent.engine.store -> reticent.trainer.loop (late)",
    ]
    assert "rows of tables that name a sibling: 1\n    reticent.audit.table -> reticent.ext.probe" in ended.stdout
