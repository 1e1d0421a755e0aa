"""Is a run safe to kill, and safe from a full disk? The trials are those of `fixtures.kill`, some hundreds of them.

python -m benchmarks.kill [--size toy] [--trials 500] [--part 1/10]
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from fixtures.faults import available
from fixtures.kill import CASES, Table, fill_all, fill_small_disk, kill_all, kill_at_every_change, make_cases, stop_all

from benchmarks.record_io import RECORD, machine, write_record
from benchmarks.runner import command


def show(tables: dict[str, Table]) -> None:
    """Print a line for each kind of trial."""
    for name, table in tables.items():
        for row, counts in table.rows.items():
            outcomes = ", ".join(f"{what} {many}" for what, many in counts.items() if what not in ("trials", "wrong"))
            print(f"{name:9s} {row:40s} {counts['trials']:4d} trials {counts['wrong']:3d} wrong   {outcomes}")


def run(
    size: Annotated[str, ("toy", "cpu")] = "cpu",
    trials: Annotated[int, "moments at which to kill"] = 500,
    part: Annotated[str, "run one part of all, and add it to the record: 1/10, 2/10, …"] = "1/1",
    seed: int = 0,
) -> None:
    """Run the trials and add their outcome to ``record/kill.json``; `AssertionError` where something was wrong.

    It must start in a process that has run nothing yet: threads do not survive a fork.
    """
    started, (number, of) = time.perf_counter(), map(int, part.split("/"))
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        cases = make_cases(Path(folder), ("artefact",) if size == "toy" else CASES)
        tables: dict[str, Table] = {}
        if size != "toy":
            tables["killed"] = kill_all(cases, trials, seed, (number, of))
        elif available():
            tables["killed"] = kill_at_every_change(cases["artefact"], [("old", "new")])
        if available():
            few = {name: case for name, case in cases.items() if name != "artefact"}
            tables |= {"stopped": stop_all(few, 40, (number, of)), "full disk": fill_all(cases, 1, (number, of))}
        else:
            print("skipped: signals and calls that fail, as this kernel does not let a process be watched")
        if "engine" in cases:
            tables["small disk"] = fill_small_disk(cases["engine"], (number, of))
    show(tables)
    failures = [failure for table in tables.values() for failure in table.failures]
    result = {
        "parts": [number],
        "of": of,
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 1),
        "tables": {name: {row: dict(counts) for row, counts in table.rows.items()} for name, table in tables.items()},
        "failures": failures,
    }
    write_record("kill", _joined(result), size)
    assert not failures


def _joined(result: dict[str, Any]) -> dict[str, Any]:
    """Add the parts that were run before on the same commit."""
    path = RECORD / "kill.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    same = all(before.get(key) == result[key] for key in ("of", "seed"))
    if not same or before["machine"]["commit"] != machine()["commit"] or result["parts"][0] in before["parts"]:
        return result
    tables: dict[str, dict[str, Counter[str]]] = {}
    for one in (before, result):
        for name, rows in one["tables"].items():
            for row, counts in rows.items():
                tables.setdefault(name, {}).setdefault(row, Counter()).update(counts)
    return {
        **result,
        "parts": sorted(before["parts"] + result["parts"]),
        "seconds": round(before["seconds"] + result["seconds"], 1),
        "tables": tables,
        "failures": before["failures"] + result["failures"],
    }


if __name__ == "__main__":
    command(run)
