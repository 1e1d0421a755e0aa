"""Flags and protected tokens on Spark: a part protects its documents by its slice of the index, as one machine does.

Names and other identifiers of the scope ``corpus`` are protected at every occurrence. Every part sends the surface
forms of its documents and marks those it found as identifiers; a `groupBy` finds which are marked in any part, and a
join brings these back to the parts that contain them. Nothing is broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.flagged_words import Flagged, FlaggedWords
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import Policy
from reticent.engine.schema import DIRECT, INDIRECT, SPLITS, no_token_message
from reticent.engine.split import Individuals, make_individuals
from reticent.engine.store_writer import StoreWriter
from reticent.engine.token_views import num_set
from reticent.ext.spark.spans import PartSpans, SparkSpans, corpus_of_part
from reticent.ext.spark.tables import (
    decoded,
    encoded,
    frame_of,
    in_order,
    map_elements,
    persisted,
    repartition_by_part,
    rows_of_parts,
)
from reticent.ext.spark.tasks import errors_of_tasks

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame

    from reticent.engine.config import Surface
    from reticent.ext.spark.documents import SparkDocuments
    from reticent.ext.spark.index import SparkIndex

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
#: What the driver writes of each document: its tokens, with their flags as bits, and tables of tokens, which count from
#: the first of their document. Each is the bytes of an array of this type.
_TOKENS: Final = {
    "ids": np.uint32,
    "bits": np.uint8,
    "exceptions": np.int64,
    "skipped": np.uint32,
    "more": np.uint32,
    "ngram_tokens": np.int64,
    "ngram_lengths": np.uint8,
}
_PACKED: Final = pa.schema(
    [("number", pa.int64()), ("doc_id", pa.string()), ("individual", pa.int64())]
    + [(name, pa.binary()) for name in _TOKENS]
)
#: Bits of a token on its way to the driver.
BITS: Final = ("begins", "outside", "direct", "indirect")


@dataclass(frozen=True, slots=True)
class Protection:
    """The settings by which the words of a part's documents are flagged as protected."""

    policy: Policy
    splits: tuple[str, ...] | None
    surface: Surface
    #: max_n, units and documents of the index; None without one.
    size: tuple[int, int] | None

    def flagged(self, data: bytes, index: bytes, spans: bytes, listed: bytes) -> FlaggedWords:
        """Return a partition's words with flags on those to protect. Its documents (``data``), n-gram index, spans and
        ``listed``, the normalised words that are protected wherever they occur, are given as serialised tables.
        """
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
        if listed:
            flagged._blacklists[""].add_surfaces(decoded(listed).column("surface").cast(pa.string()).combine_chunks())
        return flagged

    def surfaces(self, table: pa.Table) -> pa.Array:
        """Return the distinct words, normalised, of the documents in a partition. Documents on a side of the split
        (members, heldout, reference) that is not to be flagged are left out.
        """
        if self.splits is not None:
            sides = [SPLITS.index(split) for split in self.splits]
            table = table.filter(pa.array(np.isin(table.column("side").to_numpy(), sides)))
        builder = _rust.IndexBuilder(max_n=1, surface=self.surface, num_threads=1)
        for batch in table.to_batches(max_chunksize=1024):
            builder.add(batch.column("text"), np.zeros(batch.num_rows, dtype=np.uint32))
        words = pa.record_batch(builder.finish(min_support=1).words(0, None)).column("word")
        return pa.record_batch(_rust.seen_surfaces(words, surface=self.surface)).column("word")


def individuals_of_part(table: pa.Table) -> Individuals:
    """Return the individuals of a partition; individual numbers count from 0 in it."""
    own = table.group_by("individual_id", use_threads=False).aggregate(
        [("unit", "min"), ("side", "min"), ("doc_id", "count")]
    )
    own = own.sort_by("individual_id")
    ids = own.column("individual_id").cast(pa.string()).combine_chunks()
    units, sides, num_documents = (own.column(name).to_numpy() for name in ("unit_min", "side_min", "doc_id_count"))
    return make_individuals(ids, units, sides, num_documents)


#: Surfaces of a part: whether it lists them, and whether they are protected wherever they stand; 0 or 1.
_SURFACES: Final = pa.schema([("surface", pa.string()), ("listed", pa.int64()), ("everywhere", pa.int64())])


def _surfaces(how: Protection, number: int, data: bytes, spans: bytes) -> pa.Table | None:
    """Return a table of the distinct normalised words of a partition's documents, with two flags: whether an identifier
    detected in the partition contains the word, and whether the word is protected wherever it occurs. None without
    documents.
    """
    if not data:
        return None
    surfaces = how.surfaces(decoded(data)).cast(pa.string())
    own = Protection(how.policy, how.splits, how.surface, None).flagged(data, b"", spans, b"")
    found, everywhere = own._blacklists[""].surfaces()
    rows = _rust.IdRows(surfaces).rows(pa.record_batch(found).column("word").cast(pa.string()))
    if (rows == _rust.MISSING).any():
        raise CorpusError("a surface of an identifier is none of its documents' words")
    marks = np.zeros((2, len(surfaces)), np.int64)
    marks[0, rows], marks[1, rows] = 1, everywhere
    return pa.table([surfaces, *map(pa.array, marks)], schema=_SURFACES)


def _blacklist_surfaces(documents: SparkDocuments, spans: SparkSpans, how: Protection) -> tuple[RDD, int]:
    """Return an RDD with, for each partition, its words that are protected wherever they occur since they are in
    identifiers of any partition. Return also the number of distinct words in identifiers.
    """
    rows = rows_of_parts(
        documents.spark, documents.parts.zip(spans.parts), documents.tokens, partial(_surfaces, how), _SURFACES
    ).repartition(documents.num_parts, "surface")
    found = rows.groupBy("surface").agg({"listed": "max", "everywhere": "max"}).toDF("surface", "listed", "everywhere")
    found = found.filter("listed > 0").persist()
    with errors_of_tasks():
        num_listed = found.count()
    spread = found.filter("everywhere > 0").select("surface").hint("shuffle_hash")
    return repartition_by_part(rows.select("part", "surface").join(spread, "surface"), documents.num_parts), num_listed


def _flag_partitions(
    documents: SparkDocuments,
    index: SparkIndex | None,
    spans: SparkSpans | None,
    policy: Policy,
    splits: tuple[str, ...] | None,
    row: Callable[[pa.Table, np.ndarray, Flagged], list[pa.Array]],
    schema: pa.Schema,
) -> tuple[RDD, dict[str, Any]]:
    """Flag the protected words of all partitions. Return an RDD of (word counts, serialised output table) pairs, one
    for each partition, and the summed counts; ``row`` is the function that makes the columns of the output table, with
    this ``schema``, from flagged documents.
    """
    for given, name in ((index, "the index"), (spans, "the spans")):
        if given is not None and given.documents is not documents:
            raise PolicyError(f"{name} was made of other documents")
    size = (index.num_units, index.num_documents) if index is not None else None
    how = Protection(policy, splits, index.config.surface if index is not None else "exact", size)
    nothing = documents.parts.map(_empty_bytes)
    of_spans = spans.parts if spans is not None else nothing
    listed, num_listed = _blacklist_surfaces(documents, spans, how) if spans is not None else (nothing, 0)
    slices = index.slices if index is not None else nothing
    parts = documents.parts.zip(slices).zip(of_spans.zip(listed)).map(_flatten_pairs)
    found = persisted(map_elements(parts, partial(_flag_partition, how, row, schema)))
    with errors_of_tasks():
        counts: dict[str, Any] = found.map(_counts_of).reduce(_add_counts)
    if not counts["documents"]:
        raise CorpusError(f"no document belongs to the splits {', '.join(splits or ())}")
    counts["retention"] = 1.0 - counts["protected"] / max(counts["words"], 1)
    counts["blacklisted"] = num_listed
    return found, counts


def _empty_bytes(_: bytes) -> bytes:
    """Return empty bytes, for a partition without index or spans."""
    return b""


def _flatten_pairs(pairs: Any) -> tuple[bytes, bytes, bytes, bytes]:
    """Return ((data, index), (spans, listed)) as the tuple (data, index, spans, listed)."""
    (data, own), (spans, listed) = pairs
    return data, own, spans, listed


def _counts_of(element: tuple[dict[str, int], bytes]) -> dict[str, int]:
    """Return the counts of a (counts, bytes) pair."""
    return element[0]


def _data_of(element: tuple[dict[str, int], bytes]) -> bytes:
    """Return the bytes of a (counts, bytes) pair."""
    return element[1]


def _add_counts(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """Return the sum of two dicts of counts with equal keys."""
    return {name: a[name] + b[name] for name in a}


def _flag_partition(
    how: Protection, row: Callable[..., list[pa.Array]], schema: pa.Schema, data: bytes, *own: bytes
) -> tuple[dict[str, int], bytes]:
    """Flag the protected words of one partition, given as serialised tables. Return its counts of documents and words,
    and the serialised output table with this ``schema``, whose columns the function ``row`` makes from each batch.
    """
    counts, found = dict.fromkeys(("documents", "words", "direct", "indirect", "protected"), 0), []
    if not data:
        return counts, b""
    table = decoded(data)
    for batch in how.flagged(data, *own):
        counts["documents"] += len(batch.part.doc_ids)
        counts["words"] += len(batch.flags)
        counts["direct"] += int(np.count_nonzero(batch.flags & DIRECT))
        counts["indirect"] += int(np.count_nonzero(batch.flags & INDIRECT))
        counts["protected"] += int(np.count_nonzero(batch.flags))
        rows = batch.part.first + np.flatnonzero(batch.part.keep)
        found.append(pa.table(row(table, rows, batch), schema=schema))
    return counts, encoded(pa.concat_tables(found)) if found else b""


@dataclass(slots=True)
class SparkFlags:
    """Protection flags of documents in parts; see `protect`.

    Attributes
    ----------
    counts : documents, words, direct, indirect, protected (words), retention (here of words), blacklisted
    """

    documents: SparkDocuments
    counts: dict[str, Any]
    _parts: RDD

    def tables(self) -> Iterator[pa.Table]:
        """Yield the flags of all documents (schema `FLAGS`) in document order."""
        for table in in_order(self.frame().orderBy("number")):
            yield table.cast(FLAGS)

    def frame(self) -> DataFrame:
        """Return a data frame with one row for each document, in any order: its ids and the flags of its words
        (`FLAGS`).
        """
        return frame_of(self.documents.spark, self._parts.map(_data_of), FLAGS)

    def release(self) -> None:
        """Free the cached partitions."""
        self._parts.unpersist()


def protect(
    documents: SparkDocuments,
    index: SparkIndex | None = None,
    *,
    spans: SparkSpans | None = None,
    policy: Policy | None = None,
    splits: tuple[str, ...] | None = None,
) -> SparkFlags:
    """Flag on Spark the protected words of the documents on these sides of the split (members, heldout, reference;
    None: all).

    Raises
    ------
    CorpusError
        No document belongs to the splits.
    PolicyError
        k or n is not one that the index answers, or index and spans are of other documents.
    """
    flags, counts = _flag_partitions(documents, index, spans, policy or Policy(), splits, _flag_columns, FLAGS)
    return SparkFlags(documents, counts, flags)


def _flag_columns(table: pa.Table, rows: np.ndarray, batch: Flagged) -> list[pa.Array]:
    """Return the columns of the schema `FLAGS` for a batch of flagged documents: number, ids, and the flags of each
    document as bytes."""
    numbers, owners = (table.column(name).take(pa.array(rows)) for name in ("number", "individual_id"))
    flags = [_pack_by_document(values, batch.words.doc_offsets) for values in (batch.flags, batch.ngram_starts)]
    return [numbers, batch.part.doc_ids.cast(pa.string()), owners.cast(pa.string()), *flags]


def _pack_by_document(values: np.ndarray, bounds: np.ndarray) -> pa.Array:
    """Return a binary array with the values of each document as one element; ``bounds`` are the documents' offsets into
    ``values``.
    """
    offsets = (np.asarray(bounds) * values.itemsize).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def write_tokens(
    folder: Path | str,
    documents: SparkDocuments,
    tokenizer_json: str,
    *,
    index: SparkIndex | None = None,
    spans: SparkSpans | None = None,
    policy: Policy | None = None,
    splits: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Write a token store with protection flags for the documents on these sides of the split (members, heldout,
    reference; None: all), as `reticent.write_tokens` does; return counts.

    Returns the counts of rewritten text there, and raises the same errors. Cost: tokens are moved once, and the driver
    writes all of them, some documents at a time.
    """
    folder = Path(folder)
    encoder = _rust.TokenEncoder(tokenizer_json, num_threads=1)
    columns = partial(_token_columns, tokenizer_json)
    packed, counts = _flag_partitions(documents, index, spans, policy or Policy(), splits, columns, _PACKED)
    rows, num_protected = frame_of(documents.spark, packed.map(_data_of), _PACKED).orderBy("number"), 0
    with StoreWriter(folder, encoder.vocab_size) as writer:
        for table in in_order(rows):
            doc_ids, owners, tokens = _unpack_tokens(table, encoder.vocab_size)
            writer.write(doc_ids, owners, tokens)
            num_protected += num_set(tokens.direct | tokens.indirect)
        num_tokens = writer.num_tokens
    packed.unpersist()
    counts |= {"protected_tokens": num_protected, "retention": 1.0 - num_protected / max(num_tokens, 1)}
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    return {"documents": counts.pop("documents"), "tokens": num_tokens, **counts, "pretokens": encoder.path}


#: The encoder of this process, by its tokenizer.
_ENCODERS: dict[str, _rust.TokenEncoder] = {}


def _token_columns(tokenizer_json: str, table: pa.Table, rows: np.ndarray, batch: Flagged) -> list[pa.Array]:
    """Return the columns of `_PACKED` (packed token ids and flag bits) for a batch of documents."""
    if tokenizer_json not in _ENCODERS:
        _ENCODERS.clear()
        _ENCODERS[tokenizer_json] = _rust.TokenEncoder(tokenizer_json, num_threads=1)
    part, words, flags, starts, gaps = batch
    tokens = _ENCODERS[tokenizer_json].pack(part.texts, words, flags, starts, gaps=gaps)
    num_words = np.diff(words.doc_offsets)
    passed_over = np.flatnonzero((num_words > 0) & (np.diff(tokens.doc_offsets) == 0))
    if len(passed_over):
        raise CorpusError(f"a document of a part: {no_token_message(int(num_words[passed_over[0]]))}")
    offsets = np.asarray(tokens.doc_offsets)
    num_tokens = int(offsets[-1])
    ids = tokens.ids.astype(np.uint32)
    if len(tokens.high):
        ids |= tokens.high.astype(np.uint32) << 16
    bits = np.zeros(num_tokens, dtype=np.uint8)
    for place, name in enumerate(BITS):
        bits |= np.unpackbits(getattr(tokens, name), count=num_tokens, bitorder="little") << np.uint8(place)
    columns = [table.column(name).take(pa.array(rows)) for name in ("number", "individual")]
    columns.insert(1, part.doc_ids.cast(pa.string()))
    columns += [_pack_by_document(ids, offsets), _pack_by_document(bits, offsets)]
    for places, others in (
        (tokens.exceptions, (tokens.skipped, tokens.more)),
        (tokens.ngram_tokens, (tokens.ngram_lengths,)),
    ):
        bounds = np.searchsorted(places, offsets)
        own = places - np.repeat(offsets[:-1], np.diff(bounds))
        kinds = list(_TOKENS.values())[len(columns) - 3 :]
        columns += [
            _pack_by_document(np.asarray(each, kind), bounds) for each, kind in zip((own, *others), kinds, strict=False)
        ]
    return columns


def _unpack_tokens(table: pa.Table, vocab_size: int) -> tuple[pa.Array, np.ndarray, Any]:
    """Return document ids, individual numbers and tokens of a packed table, in the form that
    `StoreWriter.write` takes.
    """
    flat, bounds = {}, {}
    for name, kind in _TOKENS.items():
        column = table.column(name).combine_chunks().cast(pa.large_binary())
        offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
        data = column.buffers()[2] or b""
        flat[name] = np.frombuffer(memoryview(data)[offsets[0] : offsets[-1]], kind)
        bounds[name] = (offsets - offsets[0]) // np.dtype(kind).itemsize
    offsets = bounds["ids"]
    bits = [np.packbits(flat["bits"] >> place & 1, bitorder="little") for place in range(len(BITS))]
    packed = SimpleNamespace(
        doc_offsets=offsets,
        ids=(flat["ids"] & 0xFFFF).astype(np.uint16),
        high=(flat["ids"] >> 16).astype(np.uint8) if vocab_size > 1 << 16 else np.empty(0, np.uint8),
        **dict(zip(BITS, bits, strict=True)),
        skipped=flat["skipped"],
        more=flat["more"],
        ngram_lengths=flat["ngram_lengths"],
        **{
            name: flat[name] + np.repeat(offsets[:-1], np.diff(bounds[name])) for name in ("exceptions", "ngram_tokens")
        },
    )
    doc_ids = table.column("doc_id").cast(pa.string()).combine_chunks()
    return doc_ids, table.column("individual").to_numpy().astype(np.uint32), packed
