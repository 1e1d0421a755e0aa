"""Do the results of the four sources come out? Every figure and table, the published numbers and ours beside them.

    reticent reproduce --size toy|cpu|base                      # the same as: python -m studies.reproduce
    python -m studies.reproduce --size cpu --only s1-experiment

Parts (`studies.reproduction`) are made one after another, the most telling first; what is done in ``--work`` is not
done again, so it can be stopped at any time. The rule of every verdict is hashed into the folder before anything runs.
Size toy takes minutes and keeps nothing; cpu about 12 hours of a core; base (BERT-base, GPT-2) hours of a GPU. Then
the records and docs/benchmarks/reproduction.md are written. What an older record answers is read, not run again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from benchmarks.record_io import RAW, ROOT, STUDIES, record_path, write_record
from benchmarks.runner import command
from studies.reproduction.page import pages
from studies.reproduction.rows import Part, freeze
from studies.reproduction.table import PARTS, ROWS

PAGE = ROOT / "docs" / "benchmarks"


def evidence_of_records() -> dict[str, dict[str, Any] | None]:
    """The evidence of every part that has a record."""
    found = {}
    for part in PARTS:
        path = record_path(part.file)
        found[part.name] = part.read(json.loads(path.read_text())) if path.exists() else None
    return found


def make(part: Part, size: str, work: Path) -> dict[str, Any] | None:
    """Return the evidence of a part, made unless it is there."""
    done = work / f"{part.name}.json"
    if done.exists():
        found: dict[str, Any] = json.loads(done.read_text())
        return found
    assert part.make is not None, f"{part.name} has minutes and nothing that makes it"
    rules = freeze(work, sorted({row.source for row in ROWS if part.name in (row.part, *row.instead)}))
    (work / part.name).mkdir(exist_ok=True)
    evidence = part.make(size, work / part.name)
    if evidence is None:
        print(f"skipped {part.name}: what it needs is not here")
        return None
    done.write_text(json.dumps(evidence | {"rule": rules}))
    return evidence | {"rule": rules}


def run(
    size: Annotated[str, ("toy", "cpu", "base")] = "cpu",
    work: Annotated[Path | None, "folder to keep; what is done there is not done again"] = None,
    only: Annotated[Sequence[str], [part.name for part in PARTS], "only these parts"] = (),
) -> None:
    """Make what is not made, and write the records and the page; toy writes the page into its own folder."""
    if work is None and size != "toy":
        work = RAW / f"reproduce-{size}"
    if work is None:
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as made:
            return run(size, Path(made), only)
    work.mkdir(parents=True, exist_ok=True)
    evidence: dict[str, dict[str, Any] | None] = {}
    for part in PARTS:
        if (only and part.name not in only) or size not in part.minutes or (part.record and size != "toy"):
            continue
        found = make(part, size, work)
        if found is not None:
            evidence[part.name] = part.read(found)
            write_record(part.file, found, size, STUDIES)
    folder = work / "page" if size == "toy" else PAGE
    drawn = write_pages(evidence if size == "toy" else evidence_of_records(), folder)
    print(f"{folder / 'reproduction.md'}: {len(drawn)} pictures")
    if size == "toy" and not only:
        sources = {row.source for row in ROWS if row.figure is not None}
        missing = sources - {int(Path(name).name.split("-")[0]) for name in drawn}
        assert not missing, f"no picture of source {missing}"
    return None


def write_pages(evidence: dict[str, dict[str, Any] | None], folder: Path) -> list[str]:
    """Write the page and its pictures; returns the names of the pictures."""
    drawn = []
    for name, text in pages(evidence):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        drawn += [name] if name.endswith(".svg") else []
    return drawn


if __name__ == "__main__":
    command(run)
