"""Results as tables for a warehouse: protected tokens and spans, keyed by document id.

A table is a stream of record batches in corpus order, each with the numbers of its documents, so that a row can be
joined to its document. Column types exist in every database engine: none is unsigned. No row holds text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.errors import ArtifactError
from reticent.engine.corpus import Corpus
from reticent.engine.schema import SPANS
from reticent.engine.store import TokenStore

#: A row a document. ``flags``: 1 direct, 2 indirect, 3 both. ``word_ids``: number of the word of the document that the
#: token meets first, -1 for none.
TOKEN_ROWS: Final = pa.schema(
    [
        pa.field("doc_id", pa.string()),
        pa.field("individual_id", pa.string()),
        pa.field("input_ids", pa.list_(pa.int32())),
        pa.field("word_ids", pa.list_(pa.int32())),
        pa.field("flags", pa.list_(pa.int16())),
    ]
)
#: A row a span: characters of the document's text, the end exclusive.
SPAN_ROWS: Final = pa.schema(
    [
        pa.field("doc_id", pa.string()),
        pa.field("individual_id", pa.string()),
        pa.field("start", pa.int32()),
        pa.field("end", pa.int32()),
        *(pa.field(name, SPANS.field(name).type) for name in ("label", "detector", "score")),
    ]
)
#: Tokens of a batch, at least one document's.
TOKENS_PER_BATCH: Final = 1 << 19
#: Number of the document of each row (int64, ascending), and the rows.
Rows = Iterator[tuple[np.ndarray, pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A result as a table: its name, its schema, and a function that yields its rows."""

    name: str
    schema: pa.Schema
    rows: Callable[[], Rows]


def token_table(name: str, store: TokenStore, corpus: Corpus) -> ResultTable:
    """Return a token store's tokens, with their word ids and protection flags, as a table with one row for each
    document.
    """

    def rows() -> Rows:
        """Yield (row numbers in the corpus, record batch with one row for each document), in the corpus's order."""
        numbers = _rows_of_documents(store.doc_ids, corpus)
        if (numbers < 0).any():
            raise ArtifactError(f"{store.path}: has a document that is none of the run's; run protect again")
        owners = corpus.scan().column("individual_id").combine_chunks()
        order = np.argsort(numbers, kind="stable")
        lengths = np.diff(store.doc_offsets)[order]
        for chosen in _token_batches(lengths):
            documents = order[chosen]
            part = store.select(documents)
            offsets = pa.array(part.doc_offsets, pa.int32())
            columns = [pa.array(part.doc_ids, pa.string()), owners.take(pa.array(numbers[documents]))]
            for column, kind in (("input_ids", np.int32), ("word_ids", np.int32), ("flags", np.int16)):
                columns.append(pa.ListArray.from_arrays(offsets, pa.array(getattr(part, column).astype(kind))))
            yield numbers[documents], pa.record_batch(columns, schema=TOKEN_ROWS)

    return ResultTable(name, TOKEN_ROWS, rows)


def span_table(name: str, folder: Path, corpus: Corpus) -> ResultTable:
    """Return the detected identifier spans of a corpus as a table with one row for each span."""

    def rows() -> Rows:
        """Yield (document number of each row, record batch with one row for each span), in the corpus's order."""
        owners = corpus.scan().column("individual_id").combine_chunks()
        with pq.ParquetFile(folder / "spans.parquet") as file:
            for batch in file.iter_batches(1 << 16, columns=["doc_id", *SPAN_ROWS.names[2:]], use_threads=False):
                numbers = _rows_of_documents(batch.column("doc_id"), corpus)
                if (numbers < 0).any():  # of documents in quarantine
                    batch, numbers = batch.filter(pa.array(numbers >= 0)), numbers[numbers >= 0]
                if len(numbers):
                    columns = {"doc_id": batch.column("doc_id"), "individual_id": owners.take(pa.array(numbers))}
                    columns |= {column: batch.column(column) for column in SPAN_ROWS.names[2:]}
                    yield numbers, pa.record_batch(list(columns.values()), schema=SPAN_ROWS)

    return ResultTable(name, SPAN_ROWS, rows)


def _rows_of_documents(doc_ids: pa.Array, corpus: Corpus) -> np.ndarray:
    """Return the row in the corpus of each document id, int64; -1 if the corpus does not have it."""
    known = pl.DataFrame({"doc_id": pl.Series(corpus.scan().column("doc_id"))}).with_row_index("number")
    wanted = pl.DataFrame({"doc_id": pl.Series(doc_ids)}, schema={"doc_id": pl.String})
    found = wanted.join(known, on="doc_id", how="left", maintain_order="left")["number"]
    return found.cast(pl.Int64).fill_null(-1).to_numpy()


def _token_batches(lengths: np.ndarray) -> Iterator[slice]:
    """Yield slices of consecutive documents, given their ``lengths`` in tokens, with about `TOKENS_PER_BATCH` tokens
    together.
    """
    ends = np.cumsum(lengths)
    start, done = 0, 0
    while start < len(lengths):
        end = max(start + 1, int(np.searchsorted(ends, done + TOKENS_PER_BATCH, side="right")))
        yield slice(start, end)
        start, done = end, int(ends[end - 1])
