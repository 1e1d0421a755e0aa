"""Export of a run's results to the warehouse: protected tokens and spans, as Parquet or as database tables.

Results are those of a run whose tokens are up to date. Parquet is an artefact with one file for each file of the
documents, under its name and folder: partitions stay the same, and equal results are not written again. Documents of a
database or a lake have one file for each file of their local copy; formats with one document a file, and documents in
memory, have one file. Database tables are written in one transaction.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.artifact import is_up_to_date, read_manifest, write_artifact
from reticent.core.errors import PolicyError
from reticent.engine.corpus import Corpus
from reticent.engine.store import open_tokens
from reticent.ext.warehouse.postgres_tables import write_tables
from reticent.ext.warehouse.tables import ResultTable, Rows, span_table, token_table
from reticent.job.export import tokens_of, warn_of_other_tokens
from reticent.job.pipeline import execute
from reticent.job.run import Run


def partitions(corpus: Corpus) -> list[tuple[str, int]]:
    """Return (file name, number of documents) of each partition of a corpus, in document order, empty ones too.

    Raises
    ------
    PolicyError
        Two files would have one name, since a path leads through a link and back by "..".
    """
    numbers = corpus.num_documents_by_fragment()
    if not corpus.files or corpus.source.has_small_batches:
        return [("part-00000.parquet", sum(numbers))]
    files = [Path(os.path.abspath(file)) for file in corpus.files]  # without "..", which would lead out of the table
    top = os.path.commonpath([file.parent for file in files])
    names = [str(file.relative_to(top)) for file in files]
    if doubles := [name for name, count in Counter(names).items() if count > 1]:
        raise PolicyError(
            f"{doubles[0]}: two files of the documents would be exported under this name, as the path of one leads "
            'through a link and back by ".."; name the sources (corpus.source) by paths without ".."'
        )
    return [
        (name if name.endswith(".parquet") else f"{name}.parquet", number)
        for name, number in zip(names, numbers, strict=True)
    ]


def write_partitioned(table: ResultTable, folder: Path, corpus: Corpus) -> int:
    """Write a table as one Parquet file for each partition of the corpus; return the number of rows."""
    names = partitions(corpus)
    ends = np.cumsum([number for _, number in names])
    num_rows = 0
    with ExitStack() as stack:
        current, writer = -1, None
        for number, batch in _by_partition(table.rows(), ends):
            while current < number:
                stack.close()
                current += 1
                file = folder / names[current][0]
                file.parent.mkdir(parents=True, exist_ok=True)
                writer = stack.enter_context(pq.ParquetWriter(file, table.schema, compression="zstd"))
            if batch is not None:
                assert writer is not None
                writer.write_batch(batch)
                num_rows += batch.num_rows
    return num_rows


def _by_partition(rows: Rows, ends: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """Split the rows of a table by partition of the corpus, and yield (partition number, record batch). ``ends`` has
    the number of the first document after each partition. The last item yielded is (number of the last partition,
    None).
    """
    for numbers, batch in rows:
        partition = np.searchsorted(ends, numbers, side="right")
        for number in np.unique(partition):
            start, end = np.searchsorted(partition, [number, number + 1])
            yield int(number), batch.slice(start, end - start)
    yield len(ends) - 1, None


#: The name of the table of spans.
SPAN_TABLE: Final = "spans"


def _open_result(run: Run, name: str) -> ResultTable:
    """Return a run's result as a table: its spans, or the tokens of a model."""
    if name == SPAN_TABLE:
        return span_table(name, run.folder / "spans", run.corpus)
    return token_table(name, open_tokens(run.folder / tokens_of(run)[name]), run.corpus)


def _bring_up_to_date(run: Run) -> dict[str, str]:
    """Run the stages whose results are exported if they are stale; return table name -> artefact name."""
    tokens = tokens_of(run)
    execute(run, "protect" if tokens else "detect")
    for model in run.job.model:
        warn_of_other_tokens(run, model, ["train"])
    return {**tokens, SPAN_TABLE: "spans"}


def export_files(run: Run, out: Path) -> dict[str, int]:
    """Write a run's spans and tokens as Parquet folders ``out/TABLE``, one file for each source file; return the rows
    of each table.

    Raises
    ------
    ArtifactError
        ``out`` holds something else, or cannot be written; what was there stays then.
    CorpusError
        A document changes meanwhile.
    """

    made = _bring_up_to_date(run)
    inputs = {name: run.fingerprints.of(artefact) for name, artefact in made.items()} | run.corpus_input()
    about: dict[str, Any] = {"kind": "export", "config": {"tables": sorted(made)}, "inputs": inputs}
    if is_up_to_date(out, **about):
        counts: dict[str, int] = read_manifest(out).counts
        run.progress.say(f"{out}: up to date")
        return counts
    with write_artifact(out, **about) as writer:
        for name in made:
            (writer.path / name).mkdir()
            writer.counts[name] = write_partitioned(_open_result(run, name), writer.path / name, run.corpus)
        run.require_unchanged()
    return writer.counts


def export_tables(
    run: Run, address: str, tables: Mapping[str, str], *, note_nlp: str | None = None, overwrite: bool = False
) -> dict[str, int]:
    """Write a run's detected spans and its token stores into PostgreSQL tables in one transaction; return table ->
    number of rows written. ``tables`` maps a result to the table that gets it.

    Parameters
    ----------
    tables : "spans", or "tokens-MODEL" ("tokens" where the run has one model) -> SCHEMA.TABLE
    note_nlp : a table of OMOP that spans are added to, with categories for their text
    overwrite : replace what an earlier export wrote

    Raises
    ------
    PolicyError, CorpusError
        As :func:`reticent.ext.warehouse.postgres_tables.write_tables`; or the run has no such result, or a document
        changes meanwhile.
    """
    known = [*tokens_of(run), SPAN_TABLE]
    chosen = {known[0] if name == "tokens" and len(known) == 2 else name: table for name, table in tables.items()}
    for name in chosen:
        if name not in known:
            raise PolicyError(f"--table {name}: the run has no such result; it has {', '.join(known)}")
    if not chosen and note_nlp is None:
        raise PolicyError("--into: say which results go where: --table RESULT=SCHEMA.TABLE, or --note-nlp TABLE")
    _bring_up_to_date(run)
    omop = None if note_nlp is None else (_documents(run), _open_result(run, SPAN_TABLE), note_nlp)
    results = [(_open_result(run, name), table) for name, table in chosen.items()]
    counts = write_tables(
        address, results, note_nlp=omop, overwrite=overwrite, left_out=run.left_out(), check=run.require_unchanged
    )
    if left := counts.pop("withdrawn", 0):
        run.progress.warn(f"note_nlp: {left:,} rows are of documents of who withdrew; --overwrite deletes them")
    return counts


def _documents(run: Run) -> ResultTable:
    """Return a table of one column, the ids of all documents of the corpus."""
    ids = run.corpus.scan().select(["doc_id"])

    def rows() -> Rows:
        """Yield (row numbers in the corpus, record batch of document ids), in the corpus's order."""
        first = 0
        for batch in ids.to_batches():
            yield np.arange(first, first + batch.num_rows), batch
            first += batch.num_rows

    return ResultTable("documents", pa.schema([pa.field("doc_id", pa.string())]), rows)
