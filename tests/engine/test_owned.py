"""Columns that are kept longer than their batch do not keep its texts in memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.core.memory import resident_bytes
from reticent.engine import index
from reticent.engine.corpus import open_corpus
from reticent.engine.schema import owned, owned_batch

TEXT, DOCUMENTS = 20_000, 3000


def kept_memory(corpus: Path, keep: Callable[[pa.RecordBatch], object]) -> int:
    """Bytes that are resident after reading beyond those before, while what is kept of each batch is alive."""
    batches = open_corpus(str(corpus)).batches(columns=("doc_id", "individual_id", "text"))
    gc.collect()
    index._release_memory()  # what earlier tests left would be used again, and not seen
    before = resident_bytes()
    kept = [keep(batch) for batch in batches]
    assert len(kept) > 1
    index._release_memory()  # the batches that have ended: what allocators keep of them is no one's
    return resident_bytes() - before


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [(f"d{i}", f"p{i % 9}", f"{i:04} word " * (TEXT // 10)) for i in range(DOCUMENTS)]
    names = ["doc_id", "individual_id", "text"]
    pq.write_table(pa.table(list(map(list, zip(*rows, strict=True))), names), tmp_path / "notes.parquet")
    return tmp_path / "notes.parquet"


def test_what_is_owned_keeps_no_text(corpus: Path) -> None:
    num_bytes = DOCUMENTS * TEXT
    assert kept_memory(corpus, lambda batch: owned(batch.column("doc_id"))) < 0.5 * num_bytes
    assert kept_memory(corpus, lambda batch: owned_batch(batch.drop_columns(["text"]))) < 0.5 * num_bytes
    assert kept_memory(corpus, lambda batch: batch.column("doc_id")) > 0.7 * num_bytes


def test_it_is_equal() -> None:
    for values in ([], ["a", None, "été"]):
        array = pa.array(values, pa.string())
        assert owned(array).equals(array)
        assert owned(array.slice(1)).equals(array.slice(1))
