"""How fast the stages are on a machine and on documents of the reader's own, beside tools that are there anyway.

Each row is one pass over the same documents, which are in memory but for reading; a model's rows take a few seconds
each on its device. A result has names, counts and times, and no text.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.artifact import PACKAGES
from reticent.engine.corpus import open_configured, open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.index import build_index
from reticent.engine.single_pass import Encoding, SinglePass
from reticent.engine.sources.columns import REQUIRED
from reticent.engine.split import split_individuals
from reticent.engine.store import open_tokens
from reticent.engine.tokenizer_library import library_tokenizer
from reticent.engine.tokens import write_tokens
from reticent.job.detection_learned import options_of
from reticent.trainer.recipes import get_recipe
from reticent.trainer.tokenizer_of_model import tokenizer_json_of

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.store import TokenStore
    from reticent.job.config import Job

__all__ = ["machine_of", "measure_documents", "measure_model"]

#: Documents of the row that a library of Python is slow at, and those that a model begins with.
FEW_DOCUMENTS, FEWEST_DOCUMENTS = 2000, 8
#: Seconds that a row of a model takes at least, where there are documents enough.
MODEL_SECONDS = 3.0


def machine_of() -> dict[str, Any]:
    """Return the processor, its cores and the versions of packages."""
    with_name = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    processor = with_name[0].partition(":")[2].strip() if with_name else platform.processor()
    packages = {name: version(name) for name in ("reticent", *PACKAGES) if find_spec(name) is not None}
    return {"processor": processor, "cores": os.cpu_count(), "python": platform.python_version(), "versions": packages}


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []


def measure_documents(job: Job, num_documents: int, base: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the counts of the first documents of a job, and a row for each stage and each tool beside it.

    A row has ``what``, ``beside`` (whether it is a tool's), ``seconds``, ``cpu_seconds``, ``text_bytes``, and of tokens
    ``tokens``. ``base`` is the model whose tokenizer makes them; without it there are none.
    """
    rows: list[dict[str, Any]] = []
    given = open_configured(job.corpus)
    given.scan()
    with _timed(rows, "reading") as row:
        table = _first(given, num_documents)
        row["text_bytes"] = num_bytes = _num_bytes(table)
    documents, threads = open_corpus(table), job.num_threads
    texts = pc.cast(table.column("text"), pa.large_string()).combine_chunks()
    with TemporaryDirectory() as made:
        folder = Path(made)
        with _timed(rows, f"detection ({', '.join(job.detect.detectors)})", num_bytes):
            options, ids = options_of(job), job.corpus.ids
            detectors = make_detectors(job.detect.detectors, options, num_threads=threads, ids=ids)
            detect_spans(documents, detectors, folder, on_error=job.detect.on_error)
        individuals = split_individuals(documents, job.split)
        with _timed(rows, f"index of n = 1..{job.index.max_n}", num_bytes):
            index = build_index(documents, individuals, config=job.index)
        if base is not None:
            tokenizer = tokenizer_json_of(base)
            for name in ("words", "ids"):
                (folder / name).mkdir()
            with _timed(rows, "words and tokens, written", num_bytes) as row:
                encoding = Encoding(tokenizer, folder / "ids")
                counts = SinglePass(
                    documents, words=folder / "words", index=index, encodings=[encoding], num_threads=threads
                ).run()
                row["tokens"] = counts[folder / "ids"]["tokens"]
            few = texts.slice(0, FEW_DOCUMENTS)
            library, own = library_tokenizer(tokenizer), few.to_pylist()
            with _timed(rows, "tokenizers, ids alone", _num_bytes(pa.table({"text": few})), beside=True) as row:
                row["tokens"] = sum(len(each.ids) for each in library.encode_batch(own, add_special_tokens=False))
        plain = folder / "text.txt"
        plain.write_bytes(b"\n".join(text.as_py().encode() for text in texts))
        with _timed(rows, "wc -w", num_bytes, beside=True):
            subprocess.run(["wc", "-w", str(plain)], stdout=subprocess.DEVNULL, check=True, env={"LC_ALL": "C.UTF-8"})
    if given.format == "parquet" and find_spec("polars") is not None:
        import polars

        with _timed(rows, "Polars, reading all of it", beside=True) as row:
            column = polars.scan_parquet(list(given.files)).select(polars.col(given.columns.text).str.len_bytes().sum())
            row["text_bytes"] = int(column.collect().item())
    about = {"documents": table.num_rows, "individuals": documents.num_individuals, "text_bytes": num_bytes}
    return about, rows


def measure_model(job: Job, num_documents: int, base: str, device: str) -> list[dict[str, Any]]:
    """Return a row each of scoring and training with a model on a device; ``tokens`` counts those of the documents.

    Nothing is protected: what a token costs does not depend on it. Training is that of the plain recipe, from its first
    step to its last.
    """
    from reticent.audit.scoring.scores import score_models
    from reticent.core.device import pick_device
    from reticent.ext.propile.prompts import objective_of
    from reticent.trainer.loop import train
    from reticent.trainer.models import load_model, load_tokenizer, max_positions, special_ids

    objective, tokenizer, where = objective_of(base), load_tokenizer(base), pick_device(device)
    model, special = load_model(base, objective), special_ids(tokenizer, objective)
    window = min(job.train.window_length, max_positions(model))
    changed = {"num_epochs": 1, "checkpoint_epochs": (), "save_steps": 0, "device": device, "window_length": window}
    settings = job.train.model_copy(update=changed)

    def score(store: TokenStore, row: dict[str, Any]) -> None:
        score_models([model], objective, store, special, window_length=window, device=device, bf16=settings.bf16)
        row["tokens"] = store.num_tokens

    def learn(store: TokenStore, row: dict[str, Any]) -> None:
        times: list[tuple[float, float]] = []
        tell = {"progress": lambda _: times.append((time.perf_counter(), time.process_time()))}
        train(model, store, get_recipe(objective), settings, folder / "made", tokenizer=base, resume=False, **tell)
        if len(times) > 1:  # from the end of the first step
            row["seconds"], row["cpu_seconds"] = (end - start for start, end in zip(times[0], times[-1], strict=True))
        row["tokens"] = store.num_tokens * max(len(times) - 1, 1) // len(times)

    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as made:
        folder = Path(made)
        corpus = open_corpus(_first(open_configured(job.corpus), num_documents))
        write_tokens(folder, corpus, None, tokenizer_json_of(base), num_threads=job.num_threads)
        store = open_tokens(folder)
        for what, work in (("scoring", score), ("training", learn)):
            documents = FEWEST_DOCUMENTS
            while True:  # of more documents, until it takes long enough to tell
                own = store.select(np.arange(min(documents, store.num_documents)))
                found: list[dict[str, Any]] = []
                with _timed(found, f"{what}, {objective}, on {where}") as row:
                    work(own, row)
                if row["seconds"] > MODEL_SECONDS or own.num_documents == store.num_documents:
                    break
                documents *= 4
            rows += found
    return rows


@contextmanager
def _timed(
    rows: list[dict[str, Any]], what: str, text_bytes: int | None = None, *, beside: bool = False
) -> Iterator[dict[str, Any]]:
    """Append a row with the time of the block, of this process and its children, unless the block sets another."""
    row: dict[str, Any] = {"what": what, "beside": beside} | ({} if text_bytes is None else {"text_bytes": text_bytes})
    started, before = time.perf_counter(), _cpu_seconds()
    yield row
    spent = {"seconds": time.perf_counter() - started, "cpu_seconds": _cpu_seconds() - before}
    row.update(spent | row)
    rows.append(row)


def _cpu_seconds() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def _first(corpus: Corpus, num_documents: int) -> pa.Table:
    """The first documents of a corpus, in memory."""
    found, left = [], num_documents
    for batch in corpus.batches(columns=REQUIRED):
        found.append(batch.slice(0, left))
        left -= found[-1].num_rows
        if not left:
            break
    return pa.Table.from_batches(found)


def _num_bytes(texts: pa.Table) -> int:
    return int(pc.sum(pc.binary_length(texts.column("text"))).as_py())
