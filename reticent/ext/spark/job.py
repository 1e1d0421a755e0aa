"""The document stages of a job on Spark, for `reticent spark`. Each result equals that of one machine.

Settings that need all documents at once are refused here, before the first is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.artifact import hash_file, held_folder, write_artifact
from reticent.core.errors import CorpusError, PolicyError
from reticent.core.progress import Progress
from reticent.engine.schema import SPANS
from reticent.engine.sources.config import Columns
from reticent.engine.sources.table import row_of
from reticent.engine.split import write_individuals
from reticent.engine.withdrawn import LeftOut, report_lists
from reticent.ext.spark.documents import SparkDocuments, open_documents
from reticent.ext.spark.index import SparkIndex, build_index
from reticent.ext.spark.protection import FLAGS, protect, write_tokens
from reticent.ext.spark.session import local_session, session_of
from reticent.ext.spark.spans import columns_beside, detect, refuse_word_counting
from reticent.job.config import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Stage = Literal["index", "detect", "protect", "tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """Settings of a command that runs on Spark.

    Attributes
    ----------
    master : "local" or "local[N]" to start a session on this machine; None for the one that runs
    num_parts : parts that documents are cut into; None: by the size of the source
    unencrypted : whether disks and network of the cluster are trusted
    """

    master: str | None = None
    num_parts: int | None = None
    unencrypted: bool = False


def refuse_job(job: Job) -> None:
    """Raise `PolicyError` if a job has a setting that is not supported on Spark.

    Raises
    ------
    PolicyError
        Near duplicates or copies between individuals, propagation, quarantine, a noisy
        threshold, documents held back, canaries, or a source that is no Parquet.
    """
    on_one = "leave it out, or do this on one machine"
    if job.dedup.mode == "near" or (job.dedup.mode != "off" and job.dedup.scope == "corpus"):
        raise PolicyError(
            "dedup: copies between individuals are found by comparing all documents, which is not done on Spark; "
            + on_one
        )
    if job.dedup.mode != "off":
        raise PolicyError(f"dedup.mode: copies are not left out on Spark; {on_one}")
    if job.detect.propagate:
        raise PolicyError(
            "detect.propagate: an identifier that was found once is looked for in all documents, which is not done on "
            f"Spark; {on_one}"
        )
    if job.detect.on_error != "stop":
        raise PolicyError(f"detect.on_error: there is no quarantine on Spark; {on_one}")
    if job.threshold.epsilon is not None:
        raise PolicyError(f"threshold.epsilon: a noisy threshold is not drawn on Spark; {on_one}")
    if job.split.user_inference_holdout:
        raise PolicyError(
            f"split.user_inference_holdout: no documents are held back on Spark, so all would be counted; {on_one}"
        )
    if job.canaries is not None:
        raise PolicyError(f"canaries: made-up secrets are not written into documents on Spark; {on_one}")
    is_database = job.corpus.remote is not None and row_of(job.corpus.remote).kind != "store"
    if job.corpus.format not in ("auto", "parquet") or is_database:
        raise PolicyError(
            "corpus: Spark reads Parquet here, by any path that it knows; give other sources as a data frame to "
            "reticent.spark.open_documents"
        )


def run_on_spark(
    job: Job, stage: Stage, out: Path, how: OnSpark, *, tokenizer: Path | None = None, progress: Progress
) -> dict[str, Any]:
    """Run one stage (index, detect, protect or tokens) of a job on Spark, write its result to the folder ``out``, and
    return the counts for its manifest. ``how`` has the settings of the Spark session.

    ``index``: the folders ``index`` and ``split`` of ``out``. ``detect``: ``spans.parquet``. ``protect``:
    ``flags.parquet``. ``tokens``: a store of protected tokens of all documents.
    """
    refuse_job(job)
    if stage != "index":
        refuse_word_counting(job.detect.detectors, job.detect.options)
    tokenizer_json = _read_tokenizer(tokenizer) if stage == "tokens" else ""
    with _open_session(how) as spark:
        if stage == "index":
            return _make_index(spark, job, out, how, progress)
        about = {"job": job.corpus.model_dump(mode="json"), "protect": job.protect.cache_key()}
        with write_artifact(out, kind=f"spark-{stage}", config=about, inputs={}) as writer:
            more = columns_beside(job.detect.detectors, job.detect.options)
            documents, counts = _open_job_documents(spark, job, out, how, progress, more)
            index = _index(documents, job, progress) if stage != "detect" else None
            with progress.task("detect" if stage == "detect" else "detect and protect", None, "documents"):
                spans = detect(documents, job.detect.detectors, job.detect.options, warn=progress.warn)
                if stage == "detect":
                    counts["spans"] = _write_parquet(spans.tables(), SPANS, writer.path / "spans.parquet")
                elif stage == "protect":
                    flags = protect(documents, index, spans=spans, policy=job.protect)
                    _write_parquet(flags.tables(), FLAGS, writer.path / "flags.parquet")
                    counts |= flags.counts
                else:
                    counts |= write_tokens(
                        writer.path, documents, tokenizer_json, index=index, spans=spans, policy=job.protect
                    )
            documents.left_out.keep(writer.path)
            writer.counts.update(counts)
    return counts


@contextmanager
def _open_session(how: OnSpark) -> Iterator[SparkSession]:
    """Context manager: the running Spark session, or a new local one that is stopped at the end."""
    if how.master is None:
        yield session_of()
        return
    with held_folder("reticent-spark-") as folder:  # what is in it is encrypted
        spark = local_session(how.master, folder)
        try:
            yield spark
        finally:
            spark.stop()


def _open_job_documents(
    spark: SparkSession, job: Job, out: Path, how: OnSpark, progress: Progress, more: Sequence[str] = ()
) -> tuple[SparkDocuments, dict[str, Any]]:
    """Open a job's documents on Spark; return them and their counts."""
    with progress.task("read", None, "documents"):
        documents = open_documents(
            [re.sub(r"^s3://", "s3a://", source) for source in job.corpus.sources],  # Hadoop's name of it
            columns=job.corpus.only(Columns),
            more=more,
            split=job.split,
            ids=job.corpus.ids,
            real_ids=job.corpus.real_ids,
            on_null=job.corpus.on_null,
            time_zone=job.corpus.time_zone,
            withdrawn=job.corpus.withdrawn,
            readmitted=job.corpus.readmitted,
            left_out=LeftOut.read(out),
            num_parts=how.num_parts,
            unencrypted=how.unencrypted,
            spark=spark,
            warn=progress.warn,
        )
    counts: dict[str, Any] = {"documents": documents.num_documents, "individuals": documents.num_individuals}
    counts |= {"null_texts": documents.num_skipped} if documents.num_skipped else {}
    counts |= {"passed_over": documents.num_hidden} if documents.num_hidden else {}
    report_lists(documents.withdrawn, job.corpus, progress, counts)
    return documents, counts


def _index(documents: SparkDocuments, job: Job, progress: Progress) -> SparkIndex:
    """Build the n-gram index of the documents on Spark, with progress."""
    with progress.task("index", job.index.max_n, "levels") as advance:
        return build_index(documents, config=job.index, progress=advance)


def _make_index(spark: SparkSession, job: Job, out: Path, how: OnSpark, progress: Progress) -> dict[str, Any]:
    """Build the split and the n-gram index of a job on Spark, write them to ``out``, and return their counts."""
    inputs: dict[str, str] = {}  # known when the split is written, before the manifest is
    with write_artifact(out / "index", kind="index", config=job.index.all_values(), inputs=inputs) as writer:
        documents, counts = _open_job_documents(spark, job, out, how, progress)
        index = _index(documents, job, progress)
        config = documents.split.all_values()
        with write_artifact(out / "split", kind="split", config=config, inputs={}) as of_split:
            write_individuals(documents.individuals(), of_split.path)
            of_split.counts.update(counts)
            inputs["split"] = hash_file(of_split.path / "individuals.parquet")
        index.write(writer.path)
        documents.left_out.keep(out)
        own = {"words": index.num_words}
        own |= {f"ngrams_{n}": index.num_ngrams(n) for n in range(2, index.max_n + 1)}
        writer.counts.update(own)
    return counts | own


def _write_parquet(tables: Iterator[pa.Table], schema: pa.Schema, path: Path) -> int:
    """Write tables as one Parquet file; return the number of rows."""
    num_rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
            num_rows += table.num_rows
    return num_rows


def _read_tokenizer(path: Path | None) -> str:
    """Return the content of a tokenizer.json; raise if it is missing or not usable."""
    if path is None:
        raise PolicyError("--tokenizer is missing: the tokenizer.json of the model")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: not a readable tokenizer ({type(error).__name__})") from None
    _rust.TokenEncoder(text, num_threads=1)  # refused before the first document is read, if it is none
    return text
