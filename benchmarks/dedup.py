"""How fast are near duplicates found, and how many are missed?

Generated notes, of which a fifth are edited copies of others. On a small corpus all pairs are compared by brute force,
before a time is shown: every pair that is linked must be linked by true ones, and the share of true pairs found is
reported. datasketch (`pip install datasketch`), where it is there, gets the same documents in the same run, by CPU
time; it reports candidates, which are compared in full here to see how many are wrong.

    python -m benchmarks.dedup [--documents 50000]
"""

from __future__ import annotations

import itertools
import random
import time
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from benchmarks.engine_workers import synth_notes
from benchmarks.record_io import write_record
from benchmarks.runner import command
from reticent import _rust

THRESHOLD, SHINGLE = 0.8, 5


def notes(num: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Documents of words alone, and whose they are."""
    made = synth_notes(range(num), 150, seed=seed).column("text").combine_chunks()
    words = _rust.segment(made)
    surfaces = pa.record_batch(words.surfaces(made)).column("word").to_pylist()
    texts = [surfaces[a:b] for a, b in itertools.pairwise(words.doc_offsets.tolist())]
    rng = random.Random(seed)
    for at in range(1, len(texts)):
        if rng.random() < 0.2:
            copy = list(texts[rng.randrange(at)])
            for _ in range(rng.randrange(8)):
                if copy:
                    copy[rng.randrange(len(copy))] = f"edit{rng.randrange(10**6)}"
            texts[at] = copy
    texts = texts[:num]
    return [" ".join(text) for text in texts], np.arange(len(texts), dtype=np.uint32) // 3


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    words = text.split()
    size = min(SHINGLE, len(words))
    return frozenset(tuple(words[at : at + size]) for at in range(len(words) - size + 1)) if words else frozenset()


def jaccard(a: frozenset[Any], b: frozenset[Any]) -> float:
    return len(a & b) / len(a | b) if a and b else 0.0


def ours(texts: list[str], owners: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """Cluster of each document; seconds of each part."""
    column = pa.array(texts, pa.large_string())
    seconds, cpu = [time.perf_counter()], [time.process_time()]
    collector = _rust.CopyCollector()
    for first in range(0, len(texts), 512):
        collector.add(first, column.slice(first, 512))
    copies = collector.finish()
    seconds.append(time.perf_counter())
    cluster, _ = copies.near(owners, threshold=THRESHOLD, shingle=SHINGLE)
    seconds.append(time.perf_counter())
    cpu.append(time.process_time())
    copies.passages(owners)
    seconds.append(time.perf_counter())
    collect, near, passages = np.diff(seconds).tolist()
    found = {"collect_seconds": collect, "near_seconds": near, "passages_seconds": passages}
    return cluster, {**found, "collect_and_near_cpu_seconds": cpu[1] - cpu[0]}


def theirs(texts: list[str]) -> tuple[set[tuple[int, int]], float] | None:
    """Candidate pairs of datasketch and its processor seconds; None where it is not installed."""
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        return None
    started = time.process_time()
    lsh = MinHashLSH(threshold=THRESHOLD, num_perm=128)
    pairs: set[tuple[int, int]] = set()
    for number, text in enumerate(texts):
        minhash = MinHash(num_perm=128)
        minhash.update_batch([" ".join(shingle).encode() for shingle in shingles(text)])
        pairs.update((int(other), number) for other in lsh.query(minhash))
        lsh.insert(str(number), minhash)
    return pairs, time.process_time() - started


def check(num: int) -> dict[str, Any]:
    """All pairs by brute force against what was found."""
    texts, owners = notes(num)
    sets = [shingles(text) for text in texts]
    pairs = itertools.combinations(range(len(texts)), 2)
    true = {(a, b) for a, b in pairs if jaccard(sets[a], sets[b]) >= THRESHOLD}
    cluster, _ = ours(texts, owners)
    root = list(range(len(texts)))
    for a, b in sorted(true):
        root = [root[a] if other == root[b] else other for other in root]
    assert all(root[cluster[i]] == root[i] for i in range(len(texts))), "a cluster that no true pairs link"
    linked = sum(cluster[a] == cluster[b] for a, b in true)
    found: dict[str, Any] = {"documents": len(texts), "true_pairs": len(true), "recall": linked / max(len(true), 1)}
    if peer := theirs(texts):
        found["datasketch_recall"] = len(peer[0] & true) / max(len(true), 1)
        found["datasketch_wrong_pairs"] = len(peer[0] - true)
    return found


def run(size: Annotated[str, ("toy", "cpu")] = "cpu", documents: int = 50_000) -> None:
    """Measure, print and write the record."""
    toy = size == "toy"
    result: dict[str, Any] = {"threshold": THRESHOLD, "checked": check(120 if toy else 2000)}
    texts, owners = notes(500 if toy else documents)
    cluster, seconds = ours(texts, owners)
    peer = theirs(texts)
    result["timed"] = {
        "documents": len(texts),
        "text_bytes": sum(len(text.encode()) for text in texts),
        "documents_in_clusters": int((np.bincount(cluster)[cluster] > 1).sum()),
        **seconds,
        "datasketch_cpu_seconds": peer[1] if peer else None,
    }
    for part in ("checked", "timed"):
        for name, value in result[part].items():
            print(f"{part} {name}: {value if value is None else format(value, ',.4g')}")
    print(write_record("dedup", result, size))


if __name__ == "__main__":
    command(run)
