"""How long does the index of ten million documents take on this machine, and what does it need?

A pilot of a hundredth, under as small a limit as can be, tells what a document takes on the disk and how much counting
it spills. With that, the largest corpus that fits the free disk (up to ``--documents``) is generated in parts by
`reticent synth`'s generator and counted, n = 1..3, under ``--memory-limit``. Where the full size was not run, it is
extrapolated from the two runs, with its basis.

    python -m benchmarks.large [--documents 10000000] [--memory-limit 8GiB] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.engine_workers import DOCUMENTS_EACH, VOCABULARY, WORDS, synth_notes
from benchmarks.record_io import write_record

ROOT = Path(__file__).parents[1]
INDIVIDUALS_PER_PART = 80_000
#: Of the free disk, what the corpus and the spill may take.
SHARE_OF_DISK = 0.85
#: The smallest memory limit that is set: what Python with Arrow and a batch of text need.
LEAST_LIMIT = 256 << 20
#: Bytes of spill a byte of text is taken to need before a pilot has said so: the word streams of the levels.
ASSUMED_SPILL = 1.5


def generate(folder: Path, documents: int) -> dict[str, Any]:
    """Write about so many documents as Parquet files of 200,000; returns documents, bytes of text and on the disk."""
    import pyarrow.compute as pc

    from reticent.engine.sources.parquet import document_writer

    folder.mkdir(parents=True)
    individuals = max(int(documents / DOCUMENTS_EACH), 1)
    counts = {"documents": 0, "num_bytes": 0, "individuals": individuals}
    start = time.perf_counter()
    for first in range(0, individuals, INDIVIDUALS_PER_PART):
        last = min(first + INDIVIDUALS_PER_PART, individuals)
        writer = None
        for begin in range(first, last, 2048):
            notes = synth_notes(
                range(begin, min(begin + 2048, last)), WORDS, languages=("en", "fr"),
                documents_per_individual=DOCUMENTS_EACH, vocabulary=VOCABULARY,
            )  # fmt: skip
            path = folder / f"part-{first // INDIVIDUALS_PER_PART:05d}.parquet"
            writer = writer or document_writer(path, notes.schema)
            writer.write_table(notes)
            counts["documents"] += notes.num_rows
            counts["num_bytes"] += pc.sum(pc.binary_length(notes.column("text"))).as_py()
        if writer:
            writer.close()
    return {**counts, "disk_bytes": _bytes_under(folder), "generated_seconds": time.perf_counter() - start}


def index(corpus: Path, memory_limit: int) -> dict[str, Any]:
    """Count n = 1..3 and write the index; returns what it took. The worker: a process of its own."""
    from benchmarks.engine_workers import EVERYBODY, Clock
    from reticent.engine.corpus import open_corpus
    from reticent.engine.index import IndexConfig, build_index, write_index
    from reticent.engine.split import SplitConfig, split_individuals

    with tempfile.TemporaryDirectory(prefix="index-") as out, Clock() as clock:
        start = time.perf_counter()
        documents = open_corpus(str(corpus))
        individuals = split_individuals(documents, SplitConfig())
        split_seconds = time.perf_counter() - start
        config = IndexConfig(max_n=3, memory_limit=memory_limit)
        found = build_index(documents, individuals, splits=EVERYBODY, config=config)
        counted_seconds = time.perf_counter() - start - split_seconds
        write_index(found, out)
        index_bytes = _bytes_under(Path(out))
    return {
        **clock.spent, "memory_limit": memory_limit, "split_seconds": split_seconds,
        "counted_seconds": counted_seconds, "index_bytes": index_bytes, "distinct_words": found.num_words,
        "words": found.num_occurrences, "documents": found.num_documents,
    }  # fmt: skip


class _Spill(threading.Thread):
    """The most that a process had on the disk beside the corpus: its nameless open files, and files of its folder."""

    def __init__(self, process: subprocess.Popen[str], folder: Path):
        super().__init__(daemon=True)
        self.process, self.folder, self.most = process, folder, 0

    def run(self) -> None:
        while self.process.poll() is None:
            self.most = max(self.most, _bytes_under(self.folder) + self._nameless())
            time.sleep(0.1)

    def _nameless(self) -> int:
        total = 0
        for path in Path(f"/proc/{self.process.pid}/fd").glob("*"):
            try:
                about = path.stat()
            except OSError:  # it was closed meanwhile
                continue
            total += about.st_blocks * 512 if stat.S_ISREG(about.st_mode) and about.st_nlink == 0 else 0
        return total


def _bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # it was removed meanwhile
            continue
    return total


def measure(folder: Path, documents: int, memory_limit: int) -> dict[str, Any]:
    """Generate, count in a process of its own, and remove the corpus."""
    corpus, scratch = folder / "documents", folder / "scratch"
    made = generate(corpus, documents)
    scratch.mkdir()
    command = [sys.executable, "-m", "benchmarks.large", "--worker", str(corpus), "--memory-limit", str(memory_limit)]
    # Everything temporary goes to the scratch folder.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    spill = _Spill(process, scratch)
    spill.start()
    answer = process.communicate()[0]
    spill.join()
    assert process.returncode == 0, f"the worker ended with {process.returncode}"
    shutil.rmtree(corpus)
    shutil.rmtree(scratch)
    found = json.loads(answer)
    assert found["documents"] == made["documents"], "the index holds other documents than were generated"
    return {**made, **found, "spill_bytes": spill.most}


def fitting(documents: int, free_disk: int, pilot: dict[str, Any]) -> int:
    """The most documents, up to ``documents``, whose corpus and spill fit into the free disk.

    >>> pilot = {"documents": 100, "disk_bytes": 1000, "num_bytes": 1000, "spill_bytes": 0}
    >>> fitting(10**6, 100_000, pilot), fitting(50, 100_000, pilot)
    (3400, 50)
    """
    spill = pilot["spill_bytes"]
    if spill < pilot["num_bytes"] // 10:  # the pilot fitted into memory: it does not tell
        spill = int(ASSUMED_SPILL * pilot["num_bytes"])
    each = (pilot["disk_bytes"] + spill) / pilot["documents"]
    return min(documents, int(SHARE_OF_DISK * free_disk / each))


def extrapolated(documents: int, small: dict[str, Any], large: dict[str, Any]) -> dict[str, Any]:
    """Wall and processor seconds at ``documents``, by the exponent between the two runs, no less than 1."""
    ratio = math.log(large["documents"] / small["documents"])
    result: dict[str, Any] = {"documents": documents}
    for key in ("seconds", "cpu_seconds"):
        exponent = max(1.0, math.log(large[key] / small[key]) / ratio) if ratio else 1.0
        result[key] = large[key] * (documents / large["documents"]) ** exponent
        result[f"{key}_exponent"] = exponent
    result["basis"] = (
        f"run at {large['documents']:,} documents; from there by the exponent between it and a run at "
        f"{small['documents']:,}, no less than 1; holds while the distinct n-grams still fit as they did"
    )
    return result


def run(
    size: str, documents: int = 10_000_000, memory_limit: int = 8 << 30, folder: Path | None = None
) -> dict[str, Any]:
    """Run the pilot and the largest that fits, print both, and write ``record/large.json``."""
    if size == "toy":
        documents = 2000
    with tempfile.TemporaryDirectory(prefix="reticent-bench-", dir=folder) as work:
        pilot = measure(Path(work), max(documents // 100, 200), max(memory_limit // 100, LEAST_LIMIT))
        _print("pilot", pilot)
        free = shutil.disk_usage(work).free
        wanted = fitting(documents, free, pilot)
        if wanted < documents:
            print(f"{wanted:,} of {documents:,} documents fit: {free / 1e9:,.0f} GB of disk are free")
        large = measure(Path(work), wanted, memory_limit)
        _print("large", large)
    result: dict[str, Any] = {"asked": documents, "free_bytes": free, "pilot": pilot, "large": large}
    if wanted < documents:
        result["extrapolated"] = extrapolated(documents, pilot, large)
        print(json.dumps(result["extrapolated"], indent=1))
    write_record("large", result, size)
    return result


def _print(name: str, found: dict[str, Any]) -> None:
    print(
        f"{name}: {found['documents']:,} documents, {found['num_bytes'] / 1e9:.2f} GB of text, "
        f"{found['disk_bytes'] / 1e9:.2f} GB as Parquet: {found['seconds']:,.1f} s, "
        f"{found['cpu_seconds']:,.1f} CPU s, {found['peak_bytes'] / 1e9:.2f} GB of memory at its peak "
        f"(limit {found['memory_limit'] / 1e9:.2f}), "
        f"{found['spill_bytes'] / 1e9:.2f} GB beside the corpus on the disk"
    )


def number_of_bytes(text: str) -> int:
    """Read a number of bytes, with KiB, MiB or GiB after it.

    >>> number_of_bytes("8GiB") == 8 << 30
    True
    """
    for unit, shift in (("KiB", 10), ("MiB", 20), ("GiB", 30)):
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * (1 << shift))
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--memory-limit", type=number_of_bytes, default=8 << 30, help="bytes, or with KiB, MiB, GiB")
    parser.add_argument("--folder", type=Path, help="where the corpus and the spill go; default the temporary folder")
    parser.add_argument("--size", choices=["toy", "cpu"], default="cpu")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(index(arguments.worker, arguments.memory_limit)))
        return
    run(arguments.size, arguments.documents, arguments.memory_limit, arguments.folder)


if __name__ == "__main__":
    main()
