"""Records: the hospital's data about an individual, found in that individual's documents and nowhere else.

The fields come from a second table (any number of rows an individual: aliases, maiden names) or from columns of the
documents themselves. How a field is looked for depends on what it is (`FIELDS` of
:mod:`reticent.engine.detect.record_values`): names by their parts, initials and small edits; a birth date in whatever
form it is written; codes and phone numbers whatever separates their groups; an address in its parts; other fields as
they stand, whatever their case and accents.

A job that names the detector loads this module to check the options: what reads values is imported when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.engine.detect.common import read_common_words
from reticent.engine.detect.detector import spans_batch
from reticent.engine.identity import Ids, as_read, check_choice
from reticent.engine.sources.columns import SOURCE_COLUMN

if TYPE_CHECKING:
    from reticent import _rust
    from reticent._rust import CommonWords, Records
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.record_values import Values

__all__ = ["RecordsDetector", "missing_records"]

#: Score of a span that differs from the record by a small edit.
_EDITED: Final = 0.8


def missing_records(num_without: int, num_individuals: int, table: object) -> str:
    """Return the warning about individuals without a record."""
    return (
        f"{num_without:,} of {num_individuals:,} individuals have no record in {table}; their names are left to the "
        "other detectors"
    )


class RecordsDetector:
    """The record fields of each individual, in that individual's documents only.

    Parameters
    ----------
    table : path, optional
        Parquet or CSV with ``individual_id`` and one column a field, any number of rows an individual.
    fields : field -> column of the table, optional
        For columns of other names: ``{last_name = "pat_last"}``.
    columns : field -> column of the documents, optional
        Fields that stand beside the text; each counts in its own document. Null and blank ones are passed over.
    initials : bool
        Whether "J.S." counts without a name beside it.
    common : path, optional
        Text file of words that are no names by themselves; by default they are learned from the corpus.
    ids : {"stop", "fold", "exact"}
        As the corpus is opened: "fold" reads the table's ids in their folded form too. It is no option of a job, whose
        ``corpus.ids`` is taken.
    """

    name = "records"
    columns: tuple[str, ...]
    exact_offsets = True
    #: A word that the sample lacks is no reason against a name of the individual's own, so less would be left out.
    learns_from_sample = True

    def __init__(
        self,
        table: str | Path | None = None,
        *,
        fields: Mapping[str, str] | None = None,
        columns: Mapping[str, str] | None = None,
        initials: bool = False,
        common: str | Path | None = None,
        ids: Ids = "stop",
        num_threads: int = 0,
    ):
        check_choice(ids)
        if table is None and not columns:
            raise PolicyError('detector records needs detect.records.table = "records.parquet", or columns')
        if fields and table is None:
            raise PolicyError("detector records: fields name columns of a table, and there is none")
        self.num_threads = num_threads
        self.ids: Ids = ids
        self.initials = initials
        self.common_words: CommonWords | None = read_common_words(common) if common is not None else None
        self._of_document = {field: f"{SOURCE_COLUMN}{column}" for field, column in (columns or {}).items()}
        self.columns = tuple(self._of_document.values())
        #: Fields of the table that held nothing.
        self.num_skipped = 0
        #: What is to be told of the table.
        self.warning: str | None = None
        self._id_rows: _rust.IdRows | None = None
        self._names: pa.Table | None = None
        if table is not None:
            from reticent import _rust
            from reticent.engine.detect.record_values import read_records, unknown_fields

            values = read_records(table, fields, fold=ids == "fold")
            self.num_skipped = values.num_skipped
            told = (values.said, unknown_fields(values, table))
            self.warning = ". ".join(filter(None, told)) or None
            self._rows = values.ids
            encoded = values.table.column("individual_id").combine_chunks().dictionary_encode()
            self._id_rows = _rust.IdRows(encoded.dictionary)
            self._names = values.names()
            self._records = _compiled(values.table, encoded.indices)

    def check_ids(self, individual_ids: pa.Array, where: str) -> None:
        """`CorpusError` where an id of the table is one of these but for how it is spelt, and ``ids`` is "stop"."""
        if self._id_rows is not None:
            rows = self._rows.combine_chunks()
            as_read(rows, individual_ids.cast(pa.string()), self.ids, where, lambda row: f"row {row + 1}")

    def num_without(self, individual_ids: pa.Array) -> int:
        """Count the individuals of whom the table says nothing; 0 where there is none."""
        from reticent import _rust

        if self._id_rows is None:
            return 0
        return int(np.count_nonzero(self._id_rows.rows(individual_ids.cast(pa.string())) == _rust.MISSING))

    def bearers(self, corpus: Corpus) -> pa.Table:
        """Return who has which name (individual_id, name), also of the columns of the documents."""
        parts = [self._names] if self._names is not None else []
        if self._of_document:
            for batch in corpus.batches(columns=("individual_id", *self.columns)):
                ids = pa.chunked_array([batch.column("individual_id").cast(pa.string())])
                parts.append(self._values(ids, batch).names())
        return pa.concat_tables(parts)

    def _values(self, ids: pa.ChunkedArray, batch: pa.RecordBatch) -> Values:
        """The values of the columns of documents, each of which has an id."""
        from reticent.engine.detect.record_values import values_of

        columns = {field: pa.chunked_array([batch.column(source)]) for field, source in self._of_document.items()}
        return values_of(ids, columns, "documents")

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        parts = []
        if self._id_rows is not None:
            parts.append(self._find(self._records, batch, self._units(batch)))
        if self._of_document:
            rows = pa.chunked_array([pa.array(np.arange(batch.num_rows), pa.int64()).cast(pa.string())])
            values = self._values(rows, batch).table
            own = _compiled(values, values.column("individual_id").combine_chunks().cast(pa.int64()))
            parts.append(self._find(own, batch, np.arange(batch.num_rows, dtype=np.uint32)))
        return pa.concat_tables(parts)

    def choice(self, batch: pa.RecordBatch) -> tuple[Records, np.ndarray, CommonWords | None, bool]:
        """Return the arguments of a pass with the gazetteer (:mod:`reticent.engine.detect.together`)."""
        return self._records, self._units(batch), self.common_words, self.initials

    def _units(self, batch: pa.RecordBatch) -> np.ndarray:
        assert self._id_rows is not None
        return self._id_rows.rows(batch.column("individual_id").cast(pa.string()))  # no record: no unit

    def _find(self, records: Records, batch: pa.RecordBatch, units: np.ndarray) -> pa.Table:
        found = records.find(
            batch.column("text"),
            units,
            common=self.common_words,
            initials=self.initials,
            num_threads=self.num_threads,
        )
        return self.as_spans(pa.record_batch(found))

    def as_spans(self, found: pa.RecordBatch) -> pa.Table:
        """Return the finds of the core as `BATCH_SPANS`."""
        import pyarrow.compute as pc

        spans = spans_batch(*(found.column(name) for name in ("document", "start", "end", "label")))
        scores = pc.if_else(pc.equal(found.column("rule"), "edited"), _EDITED, 1.0).cast(pa.float32())
        return spans.set_column(4, spans.schema.field(4), scores)


def _compiled(values: pa.Table, units: pa.Array) -> Records:
    from reticent import _rust

    columns = (values.column(name).combine_chunks() for name in ("value", "field", "label"))
    return _rust.Records(units.to_numpy().astype(np.uint32), *columns)
