"""How fast are n-grams counted and tokens made, and in how much memory, beside the tools one would otherwise use?

A corpus by `reticent synth` (or any, by path) is counted and tokenised by us and by named peers, each in a process of
its own (``engine_workers.py``), in turns, over several rounds. Counts and tokens must agree before a time is shown.
One command prints every row, the goals P1 to P9 with what they came to, and writes ``record/engine.json``.

    python -m benchmarks.engine [--documents 50000] [--corpus FOLDER] [--rounds 3] [--only counting] …

What a row's time includes is said in `INCLUDES`, by the first words of its name.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine_goals import INCLUDES, goals, shape_rows
from benchmarks.record_io import DATA, markdown, spread, write_record

PARTS = ("counting", "tokens", "growth", "memory")
TOKENIZERS = ("bert-base-cased", "gpt2")
#: Documents of each growth step, as shares of ``--documents``: 12.5k to 200k for 50k.
GROWTH = (0.25, 0.5, 1, 2, 4)
#: The memory limit that is tried, as a share of the text; no less than a Python process with Arrow needs.
LIMIT_SHARE, LEAST_LIMIT = 0.5, 256 << 20
ROOT = Path(__file__).parents[1]
#: The split stage wants a held-out individual: a twentieth is held out, and the *joint* index, over everybody, is read.
COMMAND = ["-c", "from reticent.cli import main; main()", "index"]
SETTINGS = ["--quiet", "--set", "split.heldout=0.05"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing a round runs. ``corpus`` is "whole", "tenth" or a number of documents."""

    name: str
    part: str
    task: str
    corpus: str = "whole"
    n: int = 1
    k: int = 2
    more: dict[str, Any] = field(default_factory=dict)


def counting_rows() -> Iterator[Row]:
    def peer(method: str, n: int, k: int = 2, corpus: str = "whole", **more: Any) -> Row:
        shown = f"{method}{', end to end' if more else ''}, n = 1..{n}, k = {k}"
        return Row(
            name=shown + (", a tenth" if corpus == "tenth" else ""),
            part="counting", task="peer", corpus=corpus, n=n, k=k, more={"method": method, **more},
        )  # fmt: skip

    yield Row(name="reticent, n = 1..3, min_support = 10", part="counting", task="reticent", n=3, k=10,
              more={"min_support": 10})  # fmt: skip
    yield Row(name="reticent, counting alone, n = 1..3", part="counting", task="reticent_alone", n=3)
    for n, detectors in ((1, "[]"), (3, "[]"), (3, '["rules"]')):
        what = "" if detectors == "[]" else ", with the rules detector"
        yield Row(name=f"reticent index, n = 1..{n}{what}", part="counting", task="command", n=n,
                  more={"detectors": detectors})  # fmt: skip
    for n in (1, 3):
        yield peer("polars min/max", n)
        yield peer("polars n_unique", n, 10)
        yield peer("duckdb min/max", n)
        yield peer("duckdb count(distinct)", n, 10)
    for method, k in (("polars min/max", 2), ("polars n_unique", 10), ("duckdb min/max", 2)):
        yield peer(method, 3, k, end_to_end=True)
    yield peer("python dict", 1)
    yield peer("scikit-learn CountVectorizer", 1)
    for n in (1, 3):
        yield Row(name=f"reticent, n = 1..{n}, a tenth", part="counting", task="reticent", corpus="tenth", n=n)
    yield peer("python dict", 3, corpus="tenth")
    yield peer("scikit-learn CountVectorizer", 3, corpus="tenth")
    yield peer("networkx", 1, corpus="tenth")


def rows(parts: tuple[str, ...], documents: int, num_bytes: int, limited: bool) -> list[Row]:
    """Return what a round runs, ours first."""
    found = []
    if "counting" in parts or "memory" in parts:
        found += [Row(name=f"reticent, n = 1..{n}", part="memory", task="reticent", n=n) for n in (1, 3)]
        if limited:
            limit = max(int(LIMIT_SHARE * num_bytes), LEAST_LIMIT)
            found.append(Row(name="reticent, n = 1..3, memory limit", part="memory", task="reticent", n=3,
                             more={"memory_limit": limit}))  # fmt: skip
    if "counting" in parts:
        found += counting_rows()
    if "tokens" in parts:
        for name in TOKENIZERS:
            if not (DATA / "tokenizer_vocabs" / name).is_dir():
                print(f"skipped {name}: no such vocabulary under RETICENT_DATA", file=sys.stderr)
                continue
            for method in ("reticent", "transformers", "encode_batch_fast", "reticent, written"):
                ours = {"reticent": "tokens_reticent", "reticent, written": "tokens_written"}
                task = ours.get(method, "tokens_peer")
                more = {"name": name} | ({} if method in ours else {"method": method})
                found.append(Row(name=f"{method}, {name}", part="tokens", task=task, more=more))
    if "growth" in parts:
        for share in GROWTH:
            size = str(max(int(documents * share), 1))
            found.append(Row(name=f"growth, {int(size):,} documents", part="growth", task="reticent", corpus=size, n=3))
        found.append(Row(name="largest step, n = 1..1", part="growth", task="reticent", corpus=size, n=1))
    return found


# ------------------------------------------------------------------ running


def _worker(task: str, paths: dict[str, Path], **arguments: Any) -> dict[str, Any]:
    request = json.dumps({"task": task, "paths": {key: str(path) for key, path in paths.items()}, **arguments})
    command = [sys.executable, "-m", "benchmarks.engine_workers", request]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout)


def _timed(command: list[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Wall, processor seconds and peak memory of a whole process."""
    environment = {**os.environ, **(environment or {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode; a first start writes it here
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command[0]} ended with {process.returncode}"
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


class Corpora:
    """The documents of a benchmark: the whole, its first tenth, the growth steps; and what is derived from them."""

    def __init__(self, folder: Path, corpus: Path | None, documents: int | None, parts: tuple[str, ...]):
        self.folder, self._made = folder, {}
        self.generated = corpus is None
        if corpus is None:
            assert documents
            (folder / "synth").mkdir()
            largest = documents * max(GROWTH) if "growth" in parts else documents
            # A corpus begins with every smaller one, so the steps are cut from the largest.
            _worker("make_corpus", {"folder": folder / "synth"}, documents=int(largest))
            self.source = folder / "synth" / "documents"
            self.whole = self.take(documents)
        else:
            self.source = self.whole = corpus
            if documents:
                self.whole = self.take(documents)
        self.text = _worker("write_text", {"corpus": self.whole, "path": folder / "text.txt"})
        self.documents, self.num_bytes = self.text["documents"], self.text["num_bytes"]
        self.shape = _worker("shape", {"corpus": self.whole})
        if not self.generated:  # a given corpus is not made larger: the steps end at what it has
            self.step_scale = 1 / max(GROWTH)
        else:
            self.step_scale = 1.0

    def take(self, documents: int) -> Path:
        path = self.folder / f"first-{documents}"
        if not path.exists():
            found = _worker("take_documents", {"corpus": self.source, "out": path}, documents=documents)["documents"]
            assert found == documents, f"the corpus has {found} documents, {documents} are asked for"
        return path

    def path(self, name: str) -> Path:
        if name == "whole":
            return self.whole
        return self.take(max(self.documents // 10, 1) if name == "tenth" else int(name))

    def numbered(self, name: str) -> Path:
        path = self.folder / f"numbered-{name}.npz"
        if not path.exists():
            _worker("number", {"corpus": self.path(name), "out": path})
        return path


def _run_row(row: Row, corpora: Corpora) -> dict[str, Any]:
    corpus = corpora.path(row.corpus)
    if row.task == "peer":
        paths = {"corpus": corpus, "numbered": corpora.numbered(row.corpus)}
        return _worker("peer", paths, n=row.n, k=row.k, **row.more)
    if row.task == "command":
        with tempfile.TemporaryDirectory(prefix="reticent-bench-", dir=corpora.folder) as out:
            options = [str(corpus), "--out", out, "--max-n", str(row.n), *SETTINGS]
            command = [sys.executable, *COMMAND, *options, "--set", f"detect.detectors={row.more['detectors']}"]
            spent = _timed(command, {"PYTHONPATH": str(ROOT)})
            # Everything is there now: what is left is the start, and seeing that nothing has changed.
            spent["again_seconds"] = _timed(command, {"PYTHONPATH": str(ROOT)})["seconds"]
            kept = _worker("kept_in_files", {"folder": Path(out) / "index-joint"}, n=row.n, k=row.k)
        return {**spent, **kept}
    if row.task in ("reticent", "reticent_alone"):
        return _worker(row.task, {"corpus": corpus}, n=row.n, k=row.k, **row.more)
    return _worker(row.task, {"corpus": corpus}, **row.more)


def run(
    size: str,
    documents: int | None = None,
    corpus: Path | None = None,
    rounds: int = 3,
    parts: tuple[str, ...] = PARTS,
    training_rate: float | None = None,
) -> dict[str, Any]:
    """Measure, print and write ``record/engine.json``; `AssertionError` where counts or tokens differ."""
    if corpus is None:
        documents = documents or (400 if size == "toy" else 50_000)
    if size == "toy":
        rounds = 1
    from benchmarks.engine_workers import can_limit_memory

    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        corpora = Corpora(Path(folder), corpus, documents, parts)
        steps = int(corpora.documents * corpora.step_scale)
        todo = rows(parts, steps, corpora.num_bytes, can_limit_memory())
        runs: dict[str, list[dict[str, Any]]] = {}
        for row in [row for row in todo if row.task == "command"][:1]:
            _run_row(row, corpora)  # that first start
        for _ in range(rounds):
            words = _timed(["wc", "-w", str(Path(folder) / "text.txt")], {"LC_ALL": "C.UTF-8"})
            del words["peak_bytes"]  # Linux counts what its parent held
            runs.setdefault("wc -w", []).append(words)
            for row in todo:
                runs.setdefault(row.name, []).append(_run_row(row, corpora))
                print(".", end="", flush=True)
        print()
    _check(todo, runs)
    about = {key: corpora.shape[key] for key in corpora.shape}
    shown = {name: _summary(found) for name, found in runs.items()}
    reached = goals(runs, corpora.num_bytes, about, training_rate)
    result = {
        "documents": corpora.documents, "num_bytes": corpora.num_bytes, "generated": corpora.generated,
        "rounds": rounds, "parts": list(parts), "shape": about, "runs": shown, "goals": reached,
    }  # fmt: skip
    _print(result)
    write_record("engine", result, size)
    return result


def _check(todo: list[Row], runs: dict[str, list[dict[str, Any]]]) -> None:
    """Hold every answer to the first of its kind; ours is the first."""
    kept: dict[tuple[str, int, int], list[int]] = {}
    samples: dict[str, list[int]] = {}
    for row in todo:
        for found in runs[row.name]:
            for k, counts in found.get("kept", {}).items():
                for n, count in enumerate(counts, 1):
                    first = kept.setdefault((row.corpus, n, int(k)), count)
                    assert first == count, f"{row.name}: {count} {n}-grams of support {k}, others count {first}"
            if "sample" in found:
                sample = found.pop("sample")
                first_ids = samples.setdefault(row.more["name"], sample)
                shortest = min(len(sample), len(first_ids))
                assert shortest > 0, f"{row.name}: no token was compared"
                assert sample[:shortest] == first_ids[:shortest], f"{row.name}: tokens differ"


def _summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and spreads of the times, the greatest peak, and what does not change."""
    one = {key: value for key, value in found[0].items() if not key.endswith("seconds") and key != "kept"}
    peaks = [each["peak_bytes"] for each in found if "peak_bytes" in each]
    times = {key: spread([each[key] for each in found]) for key in found[0] if key.endswith("seconds")}
    return {**one, **({"peak_bytes": max(peaks)} if peaks else {}), **times}


def _print(result: dict[str, Any]) -> None:
    print(f"{result['documents']:,} documents, {result['num_bytes'] / 1e6:,.0f} MB, {result['rounds']} rounds\n")
    print(markdown(*run_table(result)))
    print(markdown(*goal_table(result)))
    print(markdown(("shape", "here", "published"), shape_rows(result["shape"])))
    for name, what in INCLUDES.items():
        print(f"{name}: {what}")


def run_table(record: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and rows of the times."""
    heads = ("", "seconds", "spread", "CPU seconds", "memory before, MiB", "at its peak, MiB", "M tokens/s")
    table = []
    for name, row in record["runs"].items():
        seconds, documents = row["seconds"], row.get("documents")
        table.append(
            (
                name + (f", {documents:,} documents" if documents else ""),
                f"{seconds['median']:.2f}",
                f"{seconds['low']:.2f} to {seconds['high']:.2f}",
                f"{row['cpu_seconds']['median']:.2f}",
                *(f"{row[key] >> 20:,}" if row.get(key) else "-" for key in ("before_bytes", "peak_bytes")),
                f"{row['tokens'] / seconds['median'] / 1e6:.1f}" if "tokens" in row else "-",
            )
        )
    return heads, table


def goal_table(record: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and rows of the goals."""
    table = []
    for goal in record["goals"]:
        value = goal["value"]
        shown = (f"{value['median']:.3g}", f"{value['low']:.3g} to {value['high']:.3g}")
        met = "goal" if _reaches(goal, "goal") else "first" if _reaches(goal, "first") else "no"
        table.append((goal["id"], goal["what"], *shown, goal["first"], goal["goal"], met))
    return ("", "what", "here", "spread", "first", "goal", "reached"), table


def _reaches(goal: dict[str, Any], column: str) -> bool:
    if goal[column] == "-":
        return False
    sign, bound = goal[column].split()
    number = float(bound.rstrip("x"))
    value = goal["value"]["median"]
    return value <= number if sign == "<=" else value >= number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, help="default 50,000, or all of --corpus")
    parser.add_argument(
        "--corpus",
        type=Path,
        help="Parquet documents instead of generated ones: a file or a folder, "
        "with the columns doc_id, individual_id and text",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, action="append", help="repeat for several; all of them if not given")
    parser.add_argument("--training-rate", type=float, help="measured tokens a second of training, for P9")
    parser.add_argument("--size", choices=["toy", "cpu"], default="cpu")
    arguments = parser.parse_args()
    run(
        arguments.size, arguments.documents, arguments.corpus, arguments.rounds,
        tuple(arguments.only or PARTS), arguments.training_rate,
    )  # fmt: skip


if __name__ == "__main__":
    main()
