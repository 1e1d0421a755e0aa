"""Refreshing from a source in memory; with a server: tests/warehouse/test_postgres_refresh.py."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.core.errors import CorpusError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import Earlier, Refreshed, stage
from reticent.ext.warehouse.postgres import _array


class InMemory:
    """A table that makes digests by itself, and is asked for texts as a server is."""

    name, passed_over = "memory", 0

    def __init__(self, table: pa.Table):
        self._table = table

    def version(self) -> bytes:
        return b"1"

    def batches(self, columns: Sequence[str], **_: Any) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(list(columns)).to_batches()

    def digests(self, columns: Sequence[str], **_: Any) -> Iterator[pa.RecordBatch]:
        digests = [hashlib.sha256(text.encode()).digest() for text in self._table["text"].to_pylist()]
        at = self._table.schema.get_field_index("text")
        table = self._table.set_column(at, "text", pa.array(digests, pa.binary()))
        yield from table.select(list(columns)).to_batches()

    def texts(self, doc_ids: Sequence[str], **_: Any) -> Iterator[pa.RecordBatch]:
        assert _array(doc_ids)
        yield from (
            self._table.filter(pa.array([i in doc_ids for i in self._table["doc_id"].to_pylist()]))
            .select(["text"])
            .to_batches()
        )


def table_of(ids: list[str | None], texts: list[str]) -> pa.Table:
    return pa.table({"doc_id": pa.array(ids, pa.string()), "individual_id": ["p"] * len(ids), "text": texts})


def test_a_new_document_without_an_id_is_the_error_that_a_reading_from_nothing_gives(tmp_path: Path) -> None:
    settings = CorpusConfig(source=str(tmp_path / "earlier.parquet"))
    texts = ["one", "two", "three"]
    pq.write_table(table_of(["a", "b", "c"], texts), tmp_path / "earlier.parquet")
    earlier = Earlier([tmp_path / "earlier.parquet"], settings)
    for row, ids in enumerate((["a", "b", "c", "d"], ["a", "b", "c", None])):
        source = InMemory(table_of([*ids], [*texts, "Zyxwvut"]))
        refreshed = Refreshed(source, earlier, settings)
        (tmp_path / f"{row}").mkdir()
        if ids[3] is not None:
            assert stage(refreshed, settings, tmp_path / f"{row}")["documents"] == 4
            assert refreshed.num_fetched == 1
        else:
            with pytest.raises(CorpusError, match="doc_id") as error:
                stage(refreshed, settings, tmp_path / f"{row}")
            assert "Zyxwvut" not in str(error.value)
