"""Direct identifiers on Spark: every detector runs over every part, as in `detect_spans` on one machine.

Detectors are created once in each executor process, at its first part, so a model is loaded once there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import Corpus
from reticent.engine.detect.choose import check_options, make_detectors, option_files
from reticent.engine.detect.detector import Detector
from reticent.engine.detect.records import missing_records_warning
from reticent.engine.detect.union import detect_spans
from reticent.engine.identity import Ids
from reticent.engine.schema import SPANS
from reticent.engine.sources.columns import SOURCE_COLUMN
from reticent.engine.sources.config import Columns
from reticent.engine.sources.frames import FrameSource
from reticent.ext.spark.tables import decoded, encoded, frame_of, in_order, map_elements, persisted
from reticent.ext.spark.tasks import errors_of_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import RDD
    from pyspark.sql import DataFrame

    from reticent.ext.spark.documents import SparkDocuments

#: Detectors of this process, by names, options and the files that these name.
_MADE: dict[str, list[Detector]] = {}
#: Columns of a part that are no documents' own.
_NUMBERS: Final = ("number", "individual", "unit", "side")


@dataclass(slots=True)
class SparkSpans:
    """Spans of direct identifiers in documents in parts.

    Attributes
    ----------
    parts : dataset of bytes, one element a part: a table (`SPANS`) whose ``document`` is a row of the part
    """

    documents: SparkDocuments
    parts: RDD

    def _rows(self) -> DataFrame:
        """Return a data frame of all spans with global document numbers and each span's position in its partition."""
        numbered = map_elements(self.documents.parts.zip(self.parts), _with_numbers)
        return frame_of(self.documents.spark, numbered, SPANS.append(pa.field("place", pa.int64())))

    def tables(self) -> Iterator[pa.Table]:
        """Yield the spans of all documents (schema `SPANS`) in document order."""
        for table in in_order(self._rows().orderBy("document", "place").drop("place")):
            yield table.cast(SPANS)

    def frame(self) -> DataFrame:
        """Return a data frame with the columns of `SPANS`, unordered."""
        return self._rows().drop("place")

    def release(self) -> None:
        """Free the cached partitions."""
        self.parts.unpersist()


def detect(
    documents: SparkDocuments,
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    warn: Callable[[str], None] | None = None,
) -> SparkSpans:
    """Find direct identifiers in documents on Spark with the detectors "rules", "records" …, named by ``names``; files
    that their options name must exist on every machine.

    Parameters
    ----------
    warn : called with a sentence where some individuals have no record

    Raises
    ------
    CorpusError
        A detector fails on a document; no individual has a record, or an individual's record has another spelling of
        the id.
    PolicyError
        No such detector or option, or it would learn from all documents which words are common.
    """
    given = {name: dict((options or {}).get(name, {})) for name in names}
    for name, own in given.items():
        check_options(name, own)
    if "gold" in given and documents.columns.spans is None:
        raise PolicyError("detector gold needs the column of annotated identifiers (corpus.spans)")
    refuse_word_counting(names, given)
    if missing := [name for name in columns_beside(names, given) if name not in documents.more]:
        raise PolicyError(f"detect.records.columns: open the documents with this column too, more=[{missing[0]!r}]")
    how = _Detectors(tuple(names), given, documents.ids)
    if table := given.get("records", {}).get("table"):
        _require_records(documents, how, table, warn)
    return SparkSpans(documents, persisted(map_elements(documents.parts, how.spans)))


def _require_records(
    documents: SparkDocuments, how: _Detectors, table: str, warn: Callable[[str], None] | None
) -> None:
    """Raise `CorpusError` if none of the documents' individuals is in the table of records, the file ``table``. Warn if
    some are not.
    """
    with errors_of_tasks():
        num, num_without = map_elements(documents.parts, partial(how.without_record, table)).reduce(_add_pairs)
    if num_without == num:
        raise CorpusError(
            f"{table}: column individual_id holds none of the {num:,} individuals of the documents (their column "
            f"{documents.columns.individual_id})"
        )
    if num_without and warn:
        warn(missing_records_warning(num_without, num, table))


def _add_pairs(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Return the element-wise sum of two pairs of counts."""
    return a[0] + b[0], a[1] + b[1]


def columns_beside(names: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the columns besides the text that the detectors read."""
    columns = options.get("records", {}).get("columns") or {} if "records" in names else {}
    return list(dict.fromkeys(columns.values()))


def refuse_word_counting(names: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `PolicyError` for a detector that must first count the common words of all documents, which is not done on
    Spark.
    """
    for name in names:
        own = options.get(name, {})
        if name in ("records", "gazetteer", "shipped") and not own.get("common") and own.get("guard") is not False:
            raise PolicyError(
                f"detector {name} learns from all documents which names are common words, which is not done on Spark; "
                f"give a list (detect.{name}.common), or detect on one machine"
            )
        if name == "spacy" and own.get("guard"):
            raise PolicyError(
                "detect.spacy.guard: common words are learned from all documents, which is not done on Spark; leave it "
                "out, or detect on one machine"
            )


def detectors_of(names: tuple[str, ...], options: Mapping[str, Mapping[str, Any]], ids: Ids = "stop") -> list[Detector]:
    """Return this process's detectors, created at first use and again once a file of their options has changed."""
    given = sorted((name, sorted(own.items())) for name, own in options.items())
    # A process outlives a list that was changed.
    files = [(path.stat().st_mtime_ns, path.stat().st_size) for _, path in option_files(options) if path.exists()]
    key = repr((os.getpid(), names, given, files, ids))
    if key not in _MADE:
        _MADE.clear()
        _MADE[key] = make_detectors(names, options, num_threads=1, ids=ids)
    return _MADE[key]


@dataclass(frozen=True, slots=True)
class _Detectors:
    """The detectors of a job (names and options), and how ids of individuals are read."""

    names: tuple[str, ...]
    options: dict[str, dict[str, Any]]
    ids: Ids

    def get(self) -> list[Detector]:
        """Return the detectors, created at first use in this process."""
        return detectors_of(self.names, self.options, self.ids)

    def without_record(self, table: str, data: bytes) -> tuple[int, int]:
        """Return the number of individuals in a partition, and of those that the table of records lacks."""
        if not data:
            return 0, 0
        individuals = decoded(data).column("individual_id").unique()
        records: Any = self.get()[self.names.index("records")]
        records.check_ids(individuals, f"{table} column individual_id")
        return len(individuals), records.num_without_record(individuals)

    def spans(self, data: bytes) -> bytes:
        """Detect identifiers in the documents of a partition; return the spans as a serialised table."""
        if not data:
            return data
        detectors = self.get()
        if any(getattr(detector, "common_words", False) is None for detector in detectors):
            raise PolicyError("a detector learns from all documents, which is not done on Spark")
        with tempfile.TemporaryDirectory() as folder:  # 0700; places of spans, and no text
            try:
                detect_spans(corpus_of_part(decoded(data)), detectors, folder)
            except CorpusError as error:
                raise CorpusError(f"in one of the parts: {error}") from None
            return encoded(pq.read_table(Path(folder) / "spans.parquet").combine_chunks())


def corpus_of_part(table: pa.Table) -> Corpus:
    """Return the documents of a partition as a `Corpus`, without checking them again."""
    documents = table.drop_columns([name for name in _NUMBERS if name in table.column_names])
    documents = documents.rename_columns([name.removeprefix(SOURCE_COLUMN) for name in documents.column_names])
    columns = Columns(
        spans="spans" if "spans" in documents.column_names else None,
        household_id="household_id" if "household_id" in documents.column_names else None,
    )
    ids = documents.select(
        [name for name in ("doc_id", "individual_id", "household_id") if name in documents.schema.names]
    )
    return Corpus(FrameSource("part", documents), columns, ids="exact", _ids=ids, _num_rows=[table.num_rows])


class PartSpans:
    """The spans of a part, with the interface of `SpanReader`."""

    def __init__(self, table: pa.Table):
        self._table = table.combine_chunks()
        self._document = self._table.column("document").to_numpy()

    def slice(self, first_document: int, num_documents: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array]:
        """Return document offsets, starts, ends and labels of the spans of these consecutive documents."""
        numbers = np.arange(first_document, first_document + num_documents + 1)
        bounds = np.searchsorted(self._document, numbers).astype(np.int64)
        rows = self._table.slice(bounds[0], bounds[-1] - bounds[0]).combine_chunks()
        starts, ends = rows.column("start").to_numpy(), rows.column("end").to_numpy()
        labels = rows.column("label").combine_chunks()
        labels = labels if isinstance(labels, pa.Array) else pa.array([], pa.string())
        return bounds - bounds[0], starts, ends, labels


def _with_numbers(data: bytes, spans: bytes) -> bytes:
    """Return the spans of a partition with global document numbers, and each span's position in the partition."""
    if not spans:
        return spans
    table, numbers = decoded(spans), decoded(data).column("number").to_numpy()
    moved = pa.array(numbers[table.column("document").to_numpy()])
    table = table.set_column(0, SPANS.field("document"), moved)
    return encoded(table.append_column("place", pa.array(np.arange(table.num_rows))))
