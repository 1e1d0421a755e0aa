"""How fast are n-grams counted and tokens made, beside the tools one would otherwise use?

A corpus by `reticent synth` (or any, by path) is counted and tokenised by us and by named peers, each in a process of
its own, in turns, over several rounds. Counts must agree before a time is shown. Peers that count integers get the
words already cut and numbered by us: their times are for counting alone, ours are from Parquet to the written index.

    python -m benchmarks.engine [--documents 50000] [--corpus FOLDER] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record_io import DATA, write_record

#: What a round runs; (method, n, k). The first of each n is the one the others are held to.
COUNTING = [
    ("reticent", 1, 2), ("polars min/max", 1, 2), ("polars n_unique", 1, 2), ("python dict", 1, 2),
    ("reticent", 3, 2), ("reticent", 3, 10), ("polars min/max", 3, 2), ("polars n_unique", 3, 10),
]  # fmt: skip
TOKENIZERS = ("bert-base-cased", "gpt2")
TOKENISING = ("reticent", "transformers", "encode_batch_fast")
#: Documents the slow tokenising peers see; their tokens a second are compared, not their seconds.
PEER_DOCUMENTS = 2000
#: Documents whose tokens are compared.
SAMPLE = 200


def make_corpus(folder: Path, documents: int) -> None:
    """Write a corpus of the shape of the published one: 2.5 documents an individual, 700 words a document."""
    from reticent.engine.synthetic import SynthConfig, synthesize

    config = SynthConfig(
        num_individuals=max(documents * 2 // 5, 2), words_per_document=700, documents_per_individual=2.5
    )
    synthesize(folder, config)


# ------------------------------------------------------------------ workers: one process each


def count_reticent(corpus: Path, n: int, k: int) -> dict[str, Any]:
    from reticent.engine.corpus import open_corpus
    from reticent.engine.index import IndexConfig, build_index, write_index
    from reticent.engine.schema import HELDOUT, MEMBERS, REFERENCE
    from reticent.engine.split import SplitConfig, split_individuals

    everybody = (MEMBERS, HELDOUT, REFERENCE)
    documents = open_corpus(str(corpus))
    individuals = split_individuals(documents, SplitConfig())
    with tempfile.TemporaryDirectory() as out, _Clock() as clock:
        index = build_index(documents, individuals, splits=everybody, config=IndexConfig(max_n=n))
        write_index(index, out)
    import pyarrow as pa

    supports = [pa.record_batch(index.words())] + [pa.record_batch(index.level(level)) for level in range(2, n + 1)]
    kept = [int(np.count_nonzero(table.column("support").to_numpy() >= k)) for table in supports]
    return {**clock.spent, "kept": kept}


def _word_ids(corpus: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Integer words, their individuals and documents, in the order of the corpus; not timed."""
    import pyarrow as pa

    from reticent import _rust
    from reticent.engine.corpus import open_corpus

    documents = open_corpus(str(corpus))
    ids, units, docs = [], [], []
    names: dict[str, int] = {}
    people: dict[str, int] = {}
    done = 0
    for batch in documents.batches(columns=("individual_id", "text")):
        words = _rust.segment(batch.column("text"))
        encoded = pa.record_batch(words.surfaces(batch.column("text"))).column(0).dictionary_encode()
        mapping = np.array([names.setdefault(name, len(names)) for name in encoded.dictionary.to_pylist()], np.uint32)
        ids.append(mapping[encoded.indices.to_numpy()] if len(mapping) else np.empty(0, np.uint32))
        owners = [people.setdefault(one, len(people)) for one in batch.column("individual_id").to_pylist()]
        lengths = np.diff(words.doc_offsets)
        units.append(np.repeat(np.array(owners, np.uint32), lengths))
        docs.append(np.repeat(np.arange(done, done + len(owners), dtype=np.uint32), lengths))
        done += len(owners)
    return np.concatenate(ids), np.concatenate(units), np.concatenate(docs), len(names)


def count_polars(corpus: Path, n: int, k: int, *, minmax: bool) -> dict[str, Any]:
    import polars as pl

    ids, units, docs, size = _word_ids(corpus)
    kept = []
    with _Clock() as clock:
        for level in range(1, n + 1):
            length = len(ids) - level + 1
            key = ids[:length].astype(np.uint64)
            for ahead in range(1, level):
                key = key * np.uint64(size) + ids[ahead : ahead + length]
            frame = pl.DataFrame({"key": key, "unit": units[:length]})
            if level > 1:
                frame = frame.filter(pl.Series(docs[:length] == docs[level - 1 :]))
            query = frame.lazy().group_by("key")
            if minmax:
                counted = query.agg(low=pl.col("unit").min(), high=pl.col("unit").max())
                enough = pl.col("low") != pl.col("high")
            else:
                counted = query.agg(support=pl.col("unit").n_unique())
                enough = pl.col("support") >= k
            kept.append(int(counted.select(enough.sum()).collect(engine="streaming").item()))
    return {**clock.spent, "kept": kept}


def count_python(corpus: Path, n: int, k: int) -> dict[str, Any]:
    ids, units, _, _ = _word_ids(corpus)
    words, people = ids.tolist(), units.tolist()
    with _Clock() as clock:
        first: dict[int, int] = {}
        shared: set[int] = set()
        for word, person in zip(words, people, strict=True):
            if first.setdefault(word, person) != person:
                shared.add(word)
    return {**clock.spent, "kept": [len(shared)]}


def tokenise(corpus: Path, method: str, name: str) -> dict[str, Any]:
    from reticent import _rust
    from reticent.engine.corpus import open_corpus
    from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json

    folder = DATA / "tokenizer_vocabs" / name
    if (folder / "vocab.txt").exists():
        made = wordpiece_tokenizer_json(folder / "vocab.txt")
    else:
        made = bytelevel_tokenizer_json(folder / "vocab.json", folder / "merges.txt")
    batches = [batch.column("text") for batch in open_corpus(str(corpus)).batches(columns=("text",))]
    if method == "reticent":
        encoder, tokens, sample = _rust.TokenEncoder(made), 0, []
        with _Clock() as clock:
            for texts in batches:
                words = _rust.segment(texts)
                zeros = np.zeros(words.num_words, dtype=np.uint8)
                encoded = encoder.encode(texts, words, zeros, zeros)
                tokens += int(encoded.doc_offsets[-1])
                sample = sample or encoded.input_ids[: encoded.doc_offsets[: SAMPLE + 1][-1]].tolist()
        return {**clock.spent, "tokens": tokens, "sample": sample, "path": encoder.path}
    texts = [text for batch in batches for text in batch.to_pylist()][:PEER_DOCUMENTS]
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    library = Tokenizer.from_str(made)
    library.encode_special_tokens = True
    if method == "transformers":
        fast = PreTrainedTokenizerFast(tokenizer_object=library)
        with _Clock() as clock:
            found = fast(texts, add_special_tokens=False, return_offsets_mapping=True)
            tokens = sum(len(found[number].word_ids) for number in range(len(texts)))
        sample = [i for row in found["input_ids"][:SAMPLE] for i in row]
    else:
        with _Clock() as clock:
            encodings = library.encode_batch_fast(texts, add_special_tokens=False)
        tokens = sum(len(encoding.ids) for encoding in encodings)
        sample = [i for encoding in encodings[:SAMPLE] for i in encoding.ids]
    return {**clock.spent, "tokens": tokens, "documents": len(texts), "sample": sample}


class _Clock:
    """Wall and processor seconds of a block, and the peak memory of the process at its end."""

    def __enter__(self) -> _Clock:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.spent = {
            "seconds": time.perf_counter() - self._wall,
            "cpu_seconds": time.process_time() - self._cpu,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }


METHODS: dict[str, Callable[[Path, int, int], dict[str, Any]]] = {
    "reticent": count_reticent,
    "polars min/max": lambda corpus, n, k: count_polars(corpus, n, k, minmax=True),
    "polars n_unique": lambda corpus, n, k: count_polars(corpus, n, k, minmax=False),
    "python dict": count_python,
}


# ------------------------------------------------------------------ the runner


def run(size: str, documents: int | None = None, corpus: Path | None = None, rounds: int = 3) -> dict[str, Any]:
    """Measure everything and write ``record/engine.json``; `AssertionError` where counts or tokens differ."""
    documents = documents or (400 if size == "toy" else 50_000)
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        if corpus is None:
            make_corpus(Path(folder), documents)
            corpus = Path(folder) / "documents"
        text = Path(folder) / "text.txt"
        num_bytes = _write_text(corpus, text)
        runs: dict[str, list[dict[str, Any]]] = {}
        for _ in range(1 if size == "toy" else rounds):
            start = time.perf_counter()
            subprocess.run(
                ["wc", "-w", str(text)], check=True, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
            )
            runs.setdefault("wc -w", []).append({"seconds": time.perf_counter() - start})
            for method, n, k in COUNTING:
                runs.setdefault(f"{method}, n = 1..{n}, k = {k}", []).append(_worker(corpus, "count", method, n, k))
            for name in TOKENIZERS:
                if (DATA / "tokenizer_vocabs" / name).is_dir():
                    for method in TOKENISING:
                        runs.setdefault(f"{method}, {name}", []).append(_worker(corpus, "tokens", method, name))
    _check(runs)
    result = {
        "num_bytes": num_bytes,
        "documents": documents,
        "runs": {name: _median(rows) for name, rows in runs.items()},
    }
    for name, row in result["runs"].items():
        rate = f"{row['tokens'] / row['seconds'] / 1e6:9.2f} M tokens/s" if "tokens" in row else ""
        print(f"{name:36s} {row['seconds']:8.3f} s  {row.get('peak_mib', 0):6,} MiB {rate}")
    write_record("engine", result, size)
    return result


def _write_text(corpus: Path, path: Path) -> int:
    import pyarrow.parquet as pq

    with path.open("w", encoding="utf-8") as file:
        for part in sorted(corpus.glob("*.parquet")) if corpus.is_dir() else [corpus]:
            for text in pq.read_table(part, columns=["text"]).column("text").to_pylist():
                file.write(text + "\n")
    return path.stat().st_size


def _worker(corpus: Path, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.engine", "--worker", str(corpus), *map(str, arguments)]
    root = Path(__file__).parents[1]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root).stdout)


def _check(runs: dict[str, list[dict[str, Any]]]) -> None:
    kept: dict[tuple[int, int], list[int]] = {}
    for method, n, k in COUNTING:
        for row in runs[f"{method}, n = 1..{n}, k = {k}"]:
            assert kept.setdefault((n, k), row["kept"]) == row["kept"], f"{method} counts otherwise at n = {n}, k = {k}"
    for name in TOKENIZERS:
        samples = [row.pop("sample") for method in TOKENISING for row in runs.get(f"{method}, {name}", [])]
        shortest = min(map(len, samples), default=0)
        assert all(sample[:shortest] == samples[0][:shortest] for sample in samples), f"{name}: tokens differ"


def _median(rows: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = [row["seconds"] for row in rows]
    middle = dict(sorted(rows, key=lambda row: row["seconds"])[len(rows) // 2])
    return {
        **middle,
        "seconds": statistics.median(seconds),
        "spread": [min(seconds), max(seconds)],
        "rounds": len(rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int)
    parser.add_argument("--corpus", type=Path, help="folder of Parquet documents instead of generated ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", choices=["toy", "cpu"], default="cpu")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        corpus, task, method, *rest = arguments.worker
        if task == "count":
            print(json.dumps(METHODS[method](Path(corpus), int(rest[0]), int(rest[1]))))
        else:
            print(json.dumps(tokenise(Path(corpus), method, rest[0])))
        return
    run(arguments.size, arguments.documents, arguments.corpus, arguments.rounds)


if __name__ == "__main__":
    main()
