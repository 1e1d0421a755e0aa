"""What does the whole job find and protect on real text, and what do the models leak?

Corpora (found through ``RETICENT_DATA``; skipped with a message when absent): ``mtsamples`` (1 report = 1 individual),
``tab`` (gold DIRECT spans), ``meddocan`` (gold spans, Spanish). Vocabularies: the published BERT and GPT-2 ones.
The models are small ones pre-trained on the reference split, individuals who are neither members nor held out.

    python -m studies.real_corpora [--corpus mtsamples] [--size toy|cpu]

Each corpus runs in a process of its own, so that its peak memory is its own. The run folder is private and temporary.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fixtures.corpora import read_documents

import reticent
from benchmarks.record_io import DATA, STUDIES, write_record
from benchmarks.runner import command
from reticent import _rust
from reticent.audit.evidence.audit import ModelEvidence
from reticent.audit.evidence.json_form import to_json
from reticent.audit.report.selectors import ordinary_utility
from reticent.core.progress import Progress
from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

POLICIES = ("all", "last", "cover", "paper")
#: Attributes many individuals share: protected where they stand, never spread over the corpus.
SCOPES = dict.fromkeys(("SEX", "PROFESSION", "COUNTRY", "OTHER", "DEM", "QUANTITY", "MISC"), "occurrence")
#: corpus -> (held-out, reference) shares of the individuals that models are trained and attacked on.
SHARES = {"mtsamples": (0.08, 0.84), "meddocan": (0.08, 0.84), "tab": (0.25, 0.50)}
#: Documents that models see at size cpu: a vocabulary of 50,000 is slow there. Identifiers are counted on all of them.
MODEL_DOCUMENTS = {"mtsamples": 400, "meddocan": 400, "tab": 100}  # the documents of tab are long
TOY_DOCUMENTS = 9


def measure_identifiers(documents: Path, tokenizers: dict[str, str]) -> dict[str, Any]:
    """Return supports, shares and retention per policy over the whole corpus, with the seconds each step took."""
    seconds: dict[str, float] = {}
    table = pq.read_table(documents)
    texts = table.column("text").combine_chunks()
    units = np.arange(len(texts), dtype=np.uint32)
    start = time.perf_counter()
    builder = _rust.IndexBuilder(max_n=3)
    builder.add(texts, units)
    index = builder.finish(min_support=2)
    seconds["index, n = 1..3"] = time.perf_counter() - start
    words = pa.record_batch(index.words())
    support, occurrences = words.column("support").to_numpy(), words.column("occurrences").to_numpy()
    start = time.perf_counter()
    segmented = _rust.segment(texts)
    seconds["words"] = time.perf_counter() - start
    retention = {}
    start = time.perf_counter()
    for k in (2, 5, 11):
        for n in (1, 2, 3):
            for policy in POLICIES:
                flags, _ = index.protect(texts, segmented, k=k, n=n, policy=policy)
                retention[f"k={k} n={n} {policy}"] = 1.0 - float(np.count_nonzero(flags)) / len(flags)
    seconds["protect, 36 settings"] = time.perf_counter() - start
    for name, tokenizer in tokenizers.items():
        encoder = _rust.TokenEncoder(tokenizer)
        zeros = np.zeros(segmented.num_words, dtype=np.uint8)
        start = time.perf_counter()
        tokens = encoder.encode(texts, segmented, zeros, zeros)
        seconds[f"tokens, {name}"] = time.perf_counter() - start
        assert tokens.doc_offsets[-1] == len(tokens.input_ids)
    return {
        "individuals": len(texts),
        "words": int(occurrences.sum()),
        "distinct_words": len(support),
        "num_bytes": sum(len(t.encode()) for t in texts.to_pylist()),
        "identifying_share": {
            f"k={k}": {
                "types": float(np.mean(support < k)),
                "occurrences": float(occurrences[support < k].sum() / occurrences.sum()),
            }
            for k in (2, 5, 11)
        },
        "retention": retention,
        "seconds": {key: round(value, 4) for key, value in seconds.items()},
        "reticent": reticent.__version__,
    }


def job_values(name: str, documents: Path, out: Path, size: str) -> dict[str, Any]:
    """Return the job of the leak table: clm, clma, ppclm, mlm, ppmlm of small models with the real vocabularies."""
    heldout, reference = SHARES[name] if size != "toy" else (0.3, 0.3)
    small = {"text": "reference", "hidden_size": 96 if size != "toy" else 16, "num_layers": 2, "num_heads": 4}
    cased = "bert-base-cased" if name != "meddocan" else "bert-base-multilingual-cased"
    vocabularies = DATA / "tokenizer_vocabs"
    epochs = {"cpu": 10, "toy": 1}[size]
    gold = name != "mtsamples"
    return {
        "out": str(out),
        "corpus": {"source": str(documents), "spans": "spans" if gold else None},
        "split": {"heldout": heldout, "reference": reference},
        "detect": {"detectors": ["gold", "rules"] if gold else ["rules"]},
        "index": {"max_n": 3},
        "protect": {"k": 2, "n": 1, "scopes": SCOPES},
        "model": [
            {"name": "gpt2", "objective": "clm", "recipes": ["clm", "clma", "ppclm"] if size != "toy" else ["ppclm"],
             "foundation": {"kind": "gpt2", "vocabulary": str(vocabularies / "gpt2"), "num_epochs": 1,
                            "batch_size": 8, **small}},
            {"name": "bert", "objective": "mlm", "recipes": ["mlm", "ppmlm"] if size != "toy" else ["mlm"],
             "foundation": {"kind": "bert", "vocabulary": str(vocabularies / cased), "num_epochs": 3,
                            "batch_size": 8, **small}},
        ],
        "train": {"num_epochs": epochs, "checkpoint_epochs": sorted({min(4, epochs), epochs}),
                  "window_length": 256 if size != "toy" else 64,
                  "learning_rate": 2e-3, "batch_size": 4},
        "audit": {"num_bootstrap": 500},
    }  # fmt: skip


def measure(name: str, size: str) -> dict[str, Any]:
    """Run one corpus through identifiers and the leak table; returns its part of the record."""
    vocabularies = DATA / "tokenizer_vocabs"
    tokenizers = {
        "bert-base-cased": wordpiece_tokenizer_json(vocabularies / "bert-base-cased" / "vocab.txt"),
        "gpt2": bytelevel_tokenizer_json(vocabularies / "gpt2" / "vocab.json", vocabularies / "gpt2" / "merges.txt"),
    }
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        documents = Path(folder) / "documents.parquet"
        table = read_documents(name, 40 if size == "toy" else None)
        pq.write_table(table, documents)
        result: dict[str, Any] = {"identifiers": measure_identifiers(documents, tokenizers)}
        result["peak_mib_engine"] = _peak_mib()
        # Spread over the file: neighbours are often of one speciality.
        wanted = TOY_DOCUMENTS if size == "toy" else MODEL_DOCUMENTS[name]
        step = max(1, len(table) // wanted)
        pq.write_table(table.take(list(range(0, len(table), step))[:wanted]), documents)
        progress = Progress()
        run = Run(parse_job(job_values(name, documents, Path(folder) / "run", size)), progress)
        execute(run)
        evidence = run.evidence
    result["split"] = to_json(evidence.corpus.num_individuals)
    result["seconds_per_stage"] = {stage: round(value, 2) for stage, value in progress.seconds.items()}
    result["peak_mib"] = _peak_mib()
    result["leak_table"] = [_leak_row(model) for model in evidence.models]
    return result


def _leak_row(model: ModelEvidence) -> dict[str, Any]:
    low_cost = model.low_cost
    calls = {"precision": low_cost.precision, "recall": low_cost.recall, "f1": low_cost.f1} if low_cost else {}
    row = {
        **{key: getattr(model, key) for key in ("recipe", "objective", "epoch", "ledger")},
        "utility_heldout": ordinary_utility(model.utility.heldout, model.objective),
        "privacy": model.privacy,
        "excess": (model.excess or {}).get("both"),
        "membership_auc": {attack: found.auc for attack, found in model.membership.items()},
        "low_cost": calls,
    }
    found: dict[str, Any] = to_json(row)
    return found


def run(size: Annotated[str, ("toy", "cpu")] = "cpu", corpus: Annotated[Sequence[str], SHARES] = tuple(SHARES)) -> None:
    """Measure each corpus in a process of its own and write one record a corpus; at toy size of the first."""
    for name in corpus[:1] if size == "toy" else corpus:
        if not (DATA / name).exists():
            print(f"skipped {name}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
            continue
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            result = pool.submit(measure, name, size).result()
        write_record(f"real_corpora_{name}", result, size, STUDIES)
        print(f"{name}: {json.dumps(result['identifiers']['identifying_share'])}")


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    command(run)
