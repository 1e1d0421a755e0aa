"""Flags and protected tokens on Spark: a part protects its documents by its slice of the index, as one machine does.

Names and other identifiers of the scope ``corpus`` are protected wherever they stand. Every part sends the surfaces of
its documents and marks those that it lists. The answer says, by position, which of them any part lists. This takes one
exchange and no broadcast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import Policy
from reticent.engine.schema import DIRECT, INDIRECT, INDIVIDUALS, SPLITS
from reticent.engine.spark.exchange import Answers, Exchanged, Table, decoded, encoded, exchange, kept, one_each
from reticent.engine.spark.ordered import as_frame, in_order
from reticent.engine.spark.spans import PartSpans, SparkSpans, corpus_of_part
from reticent.engine.spark.tasks import errors_of_tasks
from reticent.engine.split import Individuals

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame

    from reticent.engine.config import Surface
    from reticent.engine.spark.documents import SparkDocuments
    from reticent.engine.spark.index import SparkIndex

__all__ = ["FLAGS", "SparkFlags", "protect", "protected_parts"]

#: Flags of documents: bytes with one entry a word (`Flagged`).
FLAGS: Final = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("individual_id", pa.string(), nullable=False),
        pa.field("flags", pa.binary(), nullable=False),
        pa.field("ngram_starts", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Protection:
    """The settings by which the documents of a part are flagged."""

    policy: Policy
    splits: tuple[str, ...] | None
    surface: Surface
    #: max_n, units and documents of the index; None without one.
    size: tuple[int, int] | None

    def flagged(self, data: bytes, index: bytes, spans: bytes, answers: dict[str, Answers]) -> FlaggedWords:
        """Yield the words of the documents of a part, with their flags."""
        from reticent import _rust

        table = decoded(data)
        flagged = FlaggedWords(
            corpus_of_part(table),
            individuals_of_part(table),
            splits=self.splits,
            index=NgramIndex(_rust.Part.from_bytes(index).index(*self.size)) if self.size else None,
            spans=PartSpans(decoded(spans)) if spans else None,  # type: ignore[arg-type]
            policy=self.policy,
            surface=self.surface,
            num_threads=1,
        )
        if "surfaces" in answers:
            surfaces = self.surfaces(table)
            listed = answers["surfaces"].read()[0] > 0
            flagged._blacklists[""].add_surfaces(surfaces.filter(pa.array(listed)))
        return flagged

    def surfaces(self, table: pa.Table) -> pa.Array:
        """Return every surface of the wanted documents of a part, in the form of blacklists."""
        from reticent import _rust

        if self.splits is not None:
            sides = [SPLITS.index(split) for split in self.splits]
            table = table.filter(pa.array(np.isin(table.column("side").to_numpy(), sides)))
        builder = _rust.IndexBuilder(max_n=1, surface=self.surface, num_threads=1)
        for batch in table.to_batches(max_chunksize=1024):
            builder.add(batch.column("text"), np.zeros(batch.num_rows, dtype=np.uint32))
        words = pa.record_batch(builder.finish(min_support=1).words(0, None)).column("word")
        return pa.record_batch(_rust.seen_surfaces(words, surface=self.surface)).column("word")


def individuals_of_part(table: pa.Table) -> Individuals:
    """Return the individuals of a part: their rows are the part's own, their units those of all."""
    own = table.group_by("individual_id", use_threads=False).aggregate(
        [("unit", "min"), ("side", "min"), ("doc_id", "count")]
    )
    own = own.sort_by("individual_id")
    columns = {
        "individual_id": own.column("individual_id").cast(pa.string()).combine_chunks(),
        "individual": pa.array(np.arange(own.num_rows, dtype=np.uint32)),
        "unit": own.column("unit_min").cast(pa.uint32()).combine_chunks(),
        "split": pa.DictionaryArray.from_arrays(own.column("side_min").combine_chunks(), pa.array(SPLITS)),
        "num_documents": own.column("doc_id_count").cast(pa.uint32()).combine_chunks(),
    }
    return Individuals(pa.table(columns, schema=INDIVIDUALS))


@dataclass(frozen=True, slots=True)
class _ListedTables:
    """The surfaces of a part with its list marks, as a table to exchange.

    The two numbers of a surface say whether it is protected wherever it stands, and whether it is listed at all.
    """

    how: Protection

    def __call__(self, element: tuple[bytes, bytes]) -> dict[str, Table]:
        from reticent import _rust

        data, spans = element
        if not data:
            return {"surfaces": Table.of_strings(pa.array([], pa.string()), np.empty(0), np.empty(0))}
        table = decoded(data)
        surfaces = self.how.surfaces(table)
        own = Protection(self.how.policy, self.how.splits, self.how.surface, None)
        blacklist = own.flagged(data, b"", spans, {})._blacklists[""]
        listed, everywhere = blacklist.surfaces()
        rows = _rust.IdRows(surfaces.cast(pa.string())).rows(pa.record_batch(listed).column("word").cast(pa.string()))
        if (rows == _rust.MISSING).any():
            raise CorpusError("a surface of an identifier is none of its documents' words")
        support, occurrences = np.zeros(len(surfaces), np.uint32), np.zeros(len(surfaces), np.uint64)
        support[rows], occurrences[rows] = everywhere, 1
        return {"surfaces": Table.of_strings(surfaces, support, occurrences)}


def protected_parts(
    documents: SparkDocuments, index: SparkIndex | None, spans: SparkSpans | None, policy: Policy, splits: Any
) -> tuple[RDD, Protection, Exchanged | None]:
    """Return a dataset of (data, slice, spans, answers) by part, how they are flagged, and the exchange of surfaces."""
    for given, name in ((index, "the index"), (spans, "the spans")):
        if given is not None and given.documents is not documents:
            raise PolicyError(f"{name} was made of other documents")
    size = (index.num_units, index.num_documents) if index is not None else None
    how = Protection(policy, splits, index.config.surface if index is not None else "exact", size)
    nothing = one_each(documents.parts, _nothing)
    of_spans = spans.parts if spans is not None else nothing
    listed = exchange(documents.parts.zip(of_spans), _ListedTables(how)) if spans is not None else None
    answers = listed.answers if listed is not None else one_each(documents.parts, _no_answers)
    slices = index.slices if index is not None else nothing
    return documents.parts.zip(slices).zip(of_spans.zip(answers)).map(_flat), how, listed


def _nothing(_: bytes) -> bytes:
    return b""


def _no_answers(_: bytes) -> dict[str, Answers]:
    return {}


def _flat(element: Any) -> tuple[bytes, bytes, bytes, dict[str, Answers]]:
    (data, own), (spans, answers) = element
    return data, own, spans, answers


@dataclass(slots=True)
class SparkFlags:
    """Flags of documents in parts; see `protect`.

    Attributes
    ----------
    counts : documents, words, direct, indirect, protected (words), retention, blacklisted
    """

    documents: SparkDocuments
    counts: dict[str, Any]
    _parts: RDD

    def tables(self) -> Iterator[pa.Table]:
        """Yield the flags (`FLAGS`) in the order of documents."""
        return in_order(self._parts.map(_second), "number", self.documents.num_documents)

    def frame(self) -> DataFrame:
        """Return a data frame with the columns of `FLAGS`, in no order."""
        return as_frame(self.documents.spark, self._parts.map(_second), FLAGS)

    def release(self) -> None:
        self._parts.unpersist()


def protect(
    documents: SparkDocuments,
    index: SparkIndex | None = None,
    *,
    spans: SparkSpans | None = None,
    policy: Policy | None = None,
    splits: tuple[str, ...] | None = None,
) -> SparkFlags:
    """Flag the words of the documents of these splits (None: all), as `FlaggedWords` does on one machine.

    Raises
    ------
    CorpusError
        No document belongs to the splits.
    PolicyError
        k or n is not one that the index answers, or index and spans are of other documents.
    """
    parts, how, listed = protected_parts(documents, index, spans, policy or Policy(), splits)
    flags = kept(one_each(parts, _Flags(how)))
    return SparkFlags(documents, summed(flags, listed, splits), flags)


def summed(parts: RDD, listed: Exchanged | None, splits: tuple[str, ...] | None) -> dict[str, Any]:
    """Add the counts of parts."""
    with errors_of_tasks():
        counts: dict[str, Any] = parts.map(_first).reduce(_add)
    if not counts["documents"]:
        raise CorpusError(f"no document belongs to the splits {', '.join(splits or ())}")
    counts["retention"] = 1.0 - counts["protected"] / max(counts["words"], 1)
    counts["blacklisted"] = 0
    if listed is not None:
        tables = listed.tables("surfaces")
        counts["blacklisted"] = sum(int(np.count_nonzero(table["occurrences"].to_numpy())) for table in tables)
    return counts


def _first(element: tuple[dict[str, int], bytes]) -> dict[str, int]:
    return element[0]


def _second(element: tuple[dict[str, int], bytes]) -> bytes:
    return element[1]


def _add(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {name: a[name] + b[name] for name in a}


def count_flags(counts: dict[str, int], flags: np.ndarray) -> None:
    """Add the words of a batch to the counts."""
    counts["words"] += len(flags)
    counts["direct"] += int(np.count_nonzero(flags & DIRECT))
    counts["indirect"] += int(np.count_nonzero(flags & INDIRECT))
    counts["protected"] += int(np.count_nonzero(flags))


#: The counts of a part without documents.
NONE: Final = dict.fromkeys(("documents", "words", "direct", "indirect", "protected"), 0)


@dataclass(frozen=True, slots=True)
class _Flags:
    how: Protection

    def __call__(
        self, data: bytes, index: bytes, spans: bytes, answers: dict[str, Answers]
    ) -> tuple[dict[str, int], bytes]:
        counts = dict(NONE)
        if not data:
            return counts, b""
        table, batches = decoded(data), []
        numbers, owners = table.column("number").to_numpy(), table.column("individual_id").combine_chunks()
        for part, words, flags, starts, _ in self.how.flagged(data, index, spans, answers):
            count_flags(counts, flags)
            counts["documents"] += len(part.doc_ids)
            rows = part.first + np.flatnonzero(part.keep)
            columns = [numbers[rows], part.doc_ids.cast(pa.string()), owners.take(pa.array(rows)).cast(pa.string())]
            columns += [binaries(column, words.doc_offsets) for column in (flags, starts)]
            batches.append(pa.table([pa.array(column) for column in columns[:1]] + columns[1:], schema=FLAGS))
        return counts, encoded(pa.concat_tables(batches).combine_chunks()) if batches else b""


def binaries(values: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """Return the bytes of each document."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
