"""Faults put in by hand: does the suite catch each? ``python -m tools.faults [WORD ...] [--jobs N]``

Each fault of ``tests/faults.toml`` is put into a copy of the repository, where the test files that it names must fail.
They must pass without it, which `make test` shows. Words choose faults: those with one of them in file, tests or name.
Cost: 5 to 60 seconds a fault.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

__all__ = ["Fault", "read_faults"]

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tests" / "faults.toml"
#: Seconds after which a test hangs, which is no catch.
LONGEST = 900
#: What pytest says of failed tests. Others are no catch: a file that cannot be collected, or no test.
FAILED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A text of a file of the product that another takes the place of, and the test files that must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def read_faults() -> list[Fault]:
    """Return the faults of ``tests/faults.toml``."""
    return [Fault(**row) for row in tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]]


def copied(into: Path) -> Path:
    """Return a copy of what tests need, compiled core and kernels included."""
    for name in ("reticent", "tests", "tools", "docs"):
        shutil.copytree(ROOT / name, into / name, ignore=shutil.ignore_patterns("*.pyc"))
    for path in ROOT.iterdir():
        if path.is_symlink() or path.suffix in (".toml", ".md"):
            shutil.copy2(path, into, follow_symlinks=False)
    return into


def outcome_of(fault: Fault, copy: Path) -> str:
    """Put a fault into a copy, run its tests and take it out again; returns what came of it, in a word or two."""
    path = copy / fault.file
    before, times = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(before.replace(fault.old, fault.new), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-m", "not slow", *fault.tests]
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return "HUNG"
    finally:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if done.returncode == FAILED:
        failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return f"caught by {failed[0].partition(' ')[2] if failed else 'its tests'}"
    return "NOT CAUGHT" if done.returncode == 0 else f"BROKEN (pytest ended with {done.returncode})"


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each fault; returns 1 where one is not caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only faults with one of these in file, tests or name")
    parser.add_argument("--jobs", type=int, default=1, help="copies to work in at once")
    options = parser.parse_args(arguments)
    faults = [
        fault
        for fault in read_faults()
        if not options.words or any(word in " ".join((fault.file, fault.name, *fault.tests)) for word in options.words)
    ]
    num_missed = 0
    with tempfile.TemporaryDirectory(prefix="reticent-faults-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(copied(Path(folder) / str(number)))

        def run(fault: Fault) -> str:
            copy = copies.get()
            try:
                return outcome_of(fault, copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(options.jobs) as pool:
            for fault, outcome in zip(faults, pool.map(run, faults), strict=True):
                num_missed += not outcome.startswith("caught")
                print(f"{fault.name} ({fault.file}): {outcome}", flush=True)
    print(f"{len(faults) - num_missed} of {len(faults)} faults caught")
    return int(num_missed > 0)


if __name__ == "__main__":
    sys.exit(main())
