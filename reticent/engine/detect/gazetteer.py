"""Gazetteers: lists of names for everyone, and the individual's own record fields in that individual's documents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.engine.detect import spans_batch
from reticent.engine.schema import type_name
from reticent.errors import CorpusError

__all__ = ["FIELD_LABELS", "GazetteerDetector", "RecordsDetector", "read_lists", "read_records"]

#: Label of a span, from the name of the record field it matched; other fields get their own name in upper case.
FIELD_LABELS = {
    "first_name": "NAME",
    "last_name": "NAME",
    "name": "NAME",
    "full_name": "NAME",
    "birth_date": "DATE",
    "phone": "PHONE",
    "email": "EMAIL",
    "address": "ADDRESS",
    "street": "ADDRESS",
    "city": "CITY",
    "zip": "ZIP",
    "mrn": "ID",
    "ssn": "SSN",
    "nir": "NIR",
}


def read_lists(lists: Mapping[str, str | Path]) -> pa.Table:
    """Read lists of names (label -> text file, one name a line) as a table of pattern and label."""
    patterns: list[str] = []
    labels: list[str] = []
    for label, path in lists.items():
        try:
            names = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise CorpusError(f"{path}: not a readable list of names ({type(error).__name__})") from None
        patterns += names
        labels += [label] * len(names)
    return pa.table({"pattern": pa.array(patterns, pa.string()), "label": pa.array(labels, pa.string())})


def read_records(path: str | Path) -> pa.Table:
    """Read record fields (Parquet: individual_id and one column a field) as individual_id, value, label."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{path}: not a readable table of records in Parquet ({type(error).__name__})") from None
    if "individual_id" not in table.column_names:
        raise CorpusError(f"{path}: column individual_id is missing; it has {', '.join(table.column_names)}")
    ids = _as_text(table, "individual_id", path)
    if ids.null_count:
        raise CorpusError(f"{path}: column individual_id has {ids.null_count} null values")
    parts = []
    for name in table.column_names:
        if name in ("individual_id", "household_id"):
            continue
        values = _as_text(table, name, path)
        keep = pc.and_kleene(values.is_valid(), pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(values)), 1))
        label = FIELD_LABELS.get(name.lower(), name.upper())
        kept = values.filter(keep)
        labels = pa.array([label]).take(pa.array(np.zeros(len(kept), dtype=np.int64)))
        parts.append(pa.table({"individual_id": ids.filter(keep), "value": kept, "label": labels}))
    if not parts:
        raise CorpusError(f"{path}: no record field beside individual_id")
    return pa.concat_tables(parts).combine_chunks()


def _as_text(table: pa.Table, name: str, path: str | Path) -> pa.ChunkedArray:
    column = table.column(name)
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise CorpusError(
            f"{path} column {name}: expected text, numbers or dates, got {type_name(column.type)}"
        ) from None


class GazetteerDetector:
    """Every free-standing occurrence of a listed name, whatever its case and accents.

    Parameters
    ----------
    lists : table with columns pattern and label, or label -> text file with one name a line
    """

    name = "gazetteer"
    columns: tuple[str, ...] = ()

    def __init__(self, lists: pa.Table | Mapping[str, str | Path], *, num_threads: int = 0):
        from reticent import _rust

        self.num_threads = num_threads
        if not isinstance(lists, pa.Table):
            lists = read_lists(lists)
        patterns, labels = (lists.column(name).combine_chunks() for name in ("pattern", "label"))
        self._gazetteer = _rust.Gazetteer(patterns, labels, surface="fold")

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        found = pa.record_batch(self._gazetteer.find(batch.column("text"), num_threads=self.num_threads))
        return spans_batch(*(found.column(name) for name in ("document", "start", "end", "label")))


class RecordsDetector:
    """The record fields of each individual, in that individual's documents only, whatever their case and accents.

    Parameters
    ----------
    records : table with columns individual_id, value, label; one row a value
    """

    name = "records"
    columns: tuple[str, ...] = ()

    def __init__(self, records: pa.Table, *, num_threads: int = 0):
        self.num_threads = num_threads
        self._records = records.combine_chunks()
        encoded = self._records.column("individual_id").combine_chunks().dictionary_encode()
        self._ids = encoded.dictionary
        self._units = encoded.indices.to_numpy().astype(np.uint32)

    def num_without(self, individual_ids: pa.Array) -> int:
        """Count the individuals of whom the records say nothing."""
        return int(pc.sum(pc.invert(pc.is_in(individual_ids, value_set=self._ids))).as_py() or 0)

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        from reticent import _rust

        codes = pc.index_in(batch.column("individual_id"), value_set=self._ids)
        units = pc.fill_null(codes, -1).to_numpy().astype(np.int64).astype(np.uint32)  # no record: a unit nobody has
        values, labels = (self._records.column(name).combine_chunks() for name in ("value", "label"))
        found = pa.record_batch(
            _rust.find_records(batch.column("text"), units, self._units, values, labels, num_threads=self.num_threads)
        )
        return spans_batch(*(found.column(name) for name in ("document", "start", "end", "label")))
