"""Staging and refreshing from a source in memory; with a server: tests/warehouse."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import Earlier, Refreshed, stage, staged_files
from reticent.engine.withdrawn import DOCUMENTS_LEFT, LeftOut, Withdrawals
from reticent.ext.warehouse.postgres import _array_literal


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
        assert _array_literal(doc_ids)
        yield from (
            self._table.filter(pa.array([i in doc_ids for i in self._table["doc_id"].to_pylist()]))
            .select(["text"])
            .to_batches()
        )


def table_of(ids: list[str | None], texts: list[str], owners: Sequence[str] = ()) -> pa.Table:
    return pa.table({"doc_id": pa.array(ids, pa.string()), "individual_id": owners or ["p"] * len(ids), "text": texts})


def test_who_withdrew_is_not_staged_and_comes_back_under_no_id(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("r")

    def read(
        name: str, listed: str, owners: str, record: LeftOut | None = None, ids: str = "abcd", **more: Any
    ) -> Withdrawals:
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.txt").write_text("\n".join(listed))
        withdrawn = [str(tmp_path / f"{name}.txt")] if listed else []
        settings = CorpusConfig(source=str(tmp_path / "none.parquet"), withdrawn=withdrawn, **more)
        source = InMemory(table_of([*ids], [f"text of {i}" for i in "abcd"], [*owners]))
        reading = Withdrawals(settings, record or LeftOut())
        stage(source, settings, tmp_path / name, withdrawals=reading)
        found = pa.concat_tables(map(pq.read_table, staged_files(tmp_path / name)))
        assert set(found.column("individual_id").to_pylist()) == set(owners) - set(listed)
        return reading

    first = read("first", "q", "ppqr")
    read("again", "q", "ppqr", first.record)
    with pytest.raises(PolicyError, match="would come back"):
        read("back", "", "ppqr", first.record)
    for name, ids in (("moved", "abcd"), ("copied", "abxd")):
        with pytest.raises(PolicyError, match="the id of another individual"):
            read(name, "q", "pprr", first.record, ids)
    # Who takes a note over, as is asked, is not who withdrew.
    merged = read("merged", "q", "pprr", first.record, readmitted=[str(tmp_path / "r.txt")])
    read("apart", "", "pprr", merged.record)
    with pytest.raises(PolicyError, match="would come back"):
        read("new note", "", "pprq", merged.record)


def test_the_record_is_asked_about_any_number_of_documents_in_little_memory() -> None:
    left = pa.table([["note-199999"], ["q"], [None]], schema=DOCUMENTS_LEFT)
    record = LeftOut().adding([left], set())
    ids = pa.array([f"note-{number}" for number in range(200_000)])
    tracemalloc.start()
    try:
        assert record.has("document", ids).nonzero()[0].tolist() == [199_999]
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()


class Growing(InMemory):
    """A database in which notes of individuals in a list or register arrive once the ids were asked for."""

    def ids_of(self, table: str | None) -> pa.Array:
        return pa.array(["p", "r", "s"] if table is None else ["r", "t"], pa.string())

    def leave_out(self, ids: pa.Array) -> None:
        self._gone = self._table.filter(pa.compute.is_in(self._table["individual_id"], value_set=ids))
        self._table = self._table.filter(pa.compute.invert(pa.compute.is_in(self._table["individual_id"], ids)))

    def left_out(self) -> Iterator[pa.RecordBatch]:
        yield from self._gone.set_column(2, "sha256", pa.nulls(len(self._gone), pa.binary())).to_batches()


@pytest.mark.parametrize("by", ["opt_out", "withdrawn", "both"])
def test_whose_first_note_arrives_while_a_database_is_read_stays_out(tmp_path: Path, by: str) -> None:
    (tmp_path / "gone.txt").write_text("s\nq\n")
    more: dict[str, Any] = {"opt_out": "opt_out"} if by != "withdrawn" else {}
    more |= {"withdrawn": [str(tmp_path / "gone.txt")]} if by != "opt_out" else {}
    columns = {"doc_id": "doc_id", "individual_id": "individual_id", "text": "text"}
    settings = CorpusConfig(source="adbc://memory", table="note", **columns, **more)
    reading = Withdrawals(settings)
    source = Growing(table_of([*"abcdef"], [f"text of {i}" for i in "abcdef"], [*"ppqrst"]))
    (tmp_path / "staged").mkdir()
    stage(source, settings, tmp_path / "staged", withdrawals=reading)
    found = pa.concat_tables(map(pq.read_table, staged_files(tmp_path / "staged")))["individual_id"].to_pylist()
    assert set(found) == {"opt_out": {*"pqs"}, "withdrawn": {*"prt"}, "both": {"p"}}[by]
    assert reading.record.table.num_rows == (4 if by == "both" else 2)


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
