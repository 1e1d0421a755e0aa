"""The runner of every benchmark and study: each way in which a script can fail is a failure of the whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = {
    "works": "print('skipped: a part')",
    "raises": "raise ValueError('why')",
    "leaves": "raise SystemExit(0)",
    "crashes": "import os; os.abort()",
    "hangs": "import time; time.sleep(60)",
    "example": "'''\n    >>> 1 + 1\n    3\n    '''",
}
MAIN = "from benchmarks import runner; runner.LIMIT, runner.LIBRARIES = 2, (); runner.main('toys')"


def run(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": f"{folder}:{ROOT}", "TMPDIR": str(folder)}
    command = [sys.executable, "-c", MAIN, *names]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_script_that_fails_in_any_way_fails_the_whole_and_stops_no_other(tmp_path: Path) -> None:
    (package := tmp_path / "toys").mkdir()
    (package / "__init__.py").touch()
    for name, body in SCRIPTS.items():
        (package / f"{name}.py").write_text(f"\ndef run(size):\n    {body}\n")
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert set(re.findall(r"toys\.(\w+): FAILED", done.stdout)) == SCRIPTS.keys() - {"works"}
    last = done.stdout.splitlines()[-1]
    assert all(f"toys.{name}" in last for name in SCRIPTS.keys() - {"works"})
    assert "toys.works: ok" in done.stdout
    assert "  skipped: a part" in done.stdout
    assert "  ValueError: why" in done.stdout
    assert "killed, as after 2 s" in done.stdout
    assert run(tmp_path, "works").returncode == 0
