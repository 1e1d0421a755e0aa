"""Speed of the document stages on this machine, compared with other installed tools.

Each row is one pass over the same documents, which are in memory except for reading. A row has names, counts and times,
and no text.
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
from shutil import which
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.artifact import PACKAGES
from reticent.engine.corpus import open_configured, open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.index import build_index
from reticent.engine.schema import DOCUMENTS
from reticent.engine.single_pass import Encoding, SinglePass
from reticent.engine.sources.config import Columns
from reticent.engine.split import split_individuals
from reticent.engine.tokenizer_library import library_tokenizer
from reticent.job.detection_learned import options_of
from reticent.trainer.tokenizer_of_model import tokenizer_json_of

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.job.config import Job

#: Documents of the row that a library of Python is slow at.
FEW_DOCUMENTS = 2000


def describe_machine() -> dict[str, Any]:
    """Return processor name, number of cores, Python version and package versions of this machine."""
    with_name = [line for line in _read_lines("/proc/cpuinfo") if line.startswith("model name")]
    processor = with_name[0].partition(":")[2].strip() if with_name else platform.processor()
    packages = {name: version(name) for name in ("reticent", *PACKAGES) if find_spec(name) is not None}
    return {"processor": processor, "cores": os.cpu_count(), "python": platform.python_version(), "versions": packages}


def _read_lines(path: str) -> list[str]:
    """Return the lines of a text file; an empty list if it does not exist."""
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []


def measure_documents(job: Job, num_documents: int, base: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Time reading, detection, indexing and (with the tokenizer of ``base``) tokenising of a job's first documents, and
    other tools on the same texts. Return counts of the documents, and one row for each timing.

    A row has ``what``, ``beside`` (whether it is a tool's), ``seconds``, ``cpu_seconds``, ``text_bytes``, and of tokens
    ``tokens``. ``base`` is the model whose tokenizer makes them; without it there are none.
    """
    rows: list[dict[str, Any]] = []
    given = open_configured(job.corpus)
    given.scan()
    with time_block(rows, "reading") as row:
        table = first_documents(given, num_documents)
        row["text_bytes"] = num_bytes = _num_bytes(table)
    documents, threads = corpus_of_table(table), job.num_threads
    texts = pc.cast(table.column("text"), pa.large_string()).combine_chunks()
    with TemporaryDirectory() as made:
        folder = Path(made)
        with time_block(rows, f"detection ({', '.join(job.detect.detectors)})", num_bytes):
            options, ids = options_of(job), job.corpus.ids
            detectors = make_detectors(job.detect.detectors, options, num_threads=threads, ids=ids)
            detect_spans(documents, detectors, folder, on_error=job.detect.on_error)
        individuals = split_individuals(documents, job.split)
        with time_block(rows, f"index of n = 1..{job.index.max_n}", num_bytes):
            index = build_index(documents, individuals, config=job.index)
        if base is not None:
            tokenizer = tokenizer_json_of(base)
            for name in ("words", "ids"):
                (folder / name).mkdir()
            with time_block(rows, "words and tokens, written", num_bytes) as row:
                encoding = Encoding(tokenizer, folder / "ids")
                counts = SinglePass(
                    documents, words=folder / "words", index=index, encodings=[encoding], num_threads=threads
                ).run()
                row["tokens"] = counts[folder / "ids"]["tokens"]
            few = texts.slice(0, FEW_DOCUMENTS)
            library, own = library_tokenizer(tokenizer), few.to_pylist()
            with time_block(rows, "tokenizers, ids alone", _num_bytes(pa.table({"text": few})), beside=True) as row:
                row["tokens"] = sum(len(each.ids) for each in library.encode_batch(own, add_special_tokens=False))
    if counter := which("wc"):
        plain = "\n".join(texts.to_pylist()).encode()  # through a pipe: no file has the texts
        with time_block(rows, "wc -w", num_bytes, beside=True):
            subprocess.run([counter, "-w"], input=plain, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    if given.format == "parquet" and find_spec("polars") is not None:
        import polars

        with time_block(rows, "Polars, reading all of it", beside=True) as row:
            column = polars.scan_parquet(list(given.files)).select(polars.col(given.columns.text).str.len_bytes().sum())
            row["text_bytes"] = int(column.collect().item())
    about = {"documents": table.num_rows, "individuals": documents.num_individuals, "text_bytes": num_bytes}
    return about, rows


@contextmanager
def time_block(
    rows: list[dict[str, Any]], what: str, text_bytes: int | None = None, *, beside: bool = False
) -> Iterator[dict[str, Any]]:
    """Context manager that times a block. It yields a dict with the name ``what`` and the number of text bytes, to
    which values can be added, and appends it with wall and CPU seconds to ``rows``; ``beside`` marks timings of other
    tools, for comparison.
    """
    row: dict[str, Any] = {"what": what, "beside": beside} | ({} if text_bytes is None else {"text_bytes": text_bytes})
    started, before = time.perf_counter(), _cpu_seconds()
    yield row
    spent = {"seconds": time.perf_counter() - started, "cpu_seconds": _cpu_seconds() - before}
    row.update(spent | row)
    rows.append(row)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and its finished children, user and system, in seconds."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def first_documents(corpus: Corpus, num_documents: int) -> pa.Table:
    """Return the first documents of a corpus as a table, with all mapped columns."""
    found, left = [], num_documents
    for batch in corpus.batches(columns=DOCUMENTS.names):
        found.append(batch.slice(0, left))
        left -= found[-1].num_rows
        if not left:
            break
    return pa.Table.from_batches(found)


def corpus_of_table(documents: pa.Table) -> Corpus:
    """Return a `Corpus` of the documents in a table."""
    return open_corpus(documents, columns=Columns(**{name: name for name in documents.column_names}))


def _num_bytes(texts: pa.Table) -> int:
    """Return the number of UTF-8 bytes of all texts in the column ``text`` of a table."""
    return int(pc.sum(pc.binary_length(texts.column("text"))).as_py())
