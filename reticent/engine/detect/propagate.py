"""Propagation: an identifier that was detected once is found wherever else its text occurs.

A note that says "Mrs. Dubois" gives away the "dubois" of the next one, which no detector may have seen. The label of a
span says how far its surface spreads (`Policy.scope_of`, as in the stage protect): over the individual's documents, and
for names, ids and contacts over the corpus. The parts of a name spread over its individual's documents.

How this fits with the stage protect, which spreads the words of every span by the same scopes: it sees these spans as
any others. Their words are words of a span of the same label, so its list grows by other spellings of them at most
(DUBOIS for Dubois); with propagation, scrubbing and evaluation see them too, as whole names, across case and
accents. A surface too short or too common to spread here may still spread there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.engine.corpus import as_corpus
from reticent.engine.detect.labels import category
from reticent.engine.detect.spans import SpanReader
from reticent.engine.protect import Policy, Scope
from reticent.engine.schema import SPANS
from reticent.engine.threads import read_ahead, worked_ahead

if TYPE_CHECKING:
    from reticent._rust import CommonWords
    from reticent.engine.corpus import Corpus, Documents

#: Before the name of the detector that found the surface first: ``propagated:records``.
PREFIX: Final = "propagated:"
_REACH: Final[Mapping[Scope, int]] = {"occurrence": 0, "individual": 1, "corpus": 2}


def propagate(
    corpus: Corpus | Documents,
    spans_path_in: Path | str,
    spans_path_out: Path | str,
    *,
    scopes: Mapping[str, Scope] | None = None,
    common: CommonWords | None = None,
    num_threads: int = 0,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Write a file (schema `SPANS`) with the detected spans and new ones where the same text occurs again, in the whole
    corpus or the same individual (``scopes``, by label); return counts.

    A surface does not spread that has fewer than three letters or digits or is a number of up to three digits, nor a
    single word that the corpus writes in small letters more often than as a name, or that stands in it more often than
    a tenth of its documents are many (and 20 times). A single word in small letters is the name of its individual alone
    where the corpus writes the word so. A place is not told twice under one label.

    Parameters
    ----------
    corpus : Corpus
        The documents whose rows the spans count.
    scopes : mapping of label to "corpus", "individual" or "occurrence", optional
        Over the defaults, as in `Policy`.
    common : CommonWords, optional
        The words of all these documents, as `count_common_words` counts them; default: they are counted here.

    Returns
    -------
    dict
        spans (written), propagated (of them), surfaces (that spread), short and common (that do not).

    Raises
    ------
    CorpusError
        A span lies outside its text. ArtifactError: the file is no table of spans of this version.

    Cost: two passes over the text at the speed of a gazetteer; memory: a few batches, the surfaces and the vocabulary.
    """

    corpus = as_corpus(corpus)

    surfaces, codes = _rust.Surfaces(), _Codes(Policy(scopes=dict(scopes or {})))
    reader = SpanReader(spans_path_in)
    words = _rust.CommonWords() if common is None else common
    for batch in read_ahead(_read_batches(corpus, reader, codes)):
        surfaces.add(
            batch.texts,
            batch.units,
            *batch.bounds,
            batch.labels,
            codes.reach[batch.labels],
            codes.is_name[batch.labels],
            codes.encode_detectors(batch.spans),
            counted=words if common is None else None,
            num_threads=num_threads,
        )
    if common is None:
        words.merge()
    num_surfaces, num_short, num_common = surfaces.finish(words)
    counts = {"spans": 0, "propagated": 0, "surfaces": num_surfaces, "short": num_short, "common": num_common}

    def find_new_spans(batch: _Batch) -> pa.RecordBatch:
        """Return the places in a batch where the text of a detected identifier, collected in a first pass, occurs
        again, without those that are detected spans already."""
        return pa.record_batch(
            surfaces.find(batch.texts, batch.units, *batch.bounds, batch.labels, common=words, num_threads=num_threads)
        )

    with pq.ParquetWriter(Path(spans_path_out), SPANS, compression="zstd") as writer:
        for batch, found in worked_ahead(read_ahead(_read_batches(corpus, reader, codes)), find_new_spans):
            known = batch.spans.set_column(0, SPANS.field(0), pc.add(batch.spans.column("document"), batch.first))
            united = pa.concat_tables([known, codes.decode_spans(found, batch.doc_ids, batch.first)])
            order = [(name, "ascending") for name in ("document", "start", "end", "label", "detector")]
            writer.write_table(united.sort_by(order))
            counts["spans"] += united.num_rows
            counts["propagated"] += found.num_rows
            if progress:
                progress(batch.first + len(batch.texts))
    return counts


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of documents and their spans, with labels and individuals as integer codes for the Rust core."""

    #: Number of the first document.
    first: int
    doc_ids: pa.Array
    texts: pa.Array
    #: Individual of each document.
    units: np.ndarray
    #: Of the documents, with their rows in the batch as ``document``.
    spans: pa.Table
    #: Label of each span.
    labels: np.ndarray

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Span offsets by document, int64 (D + 1,), and starts and ends of the spans, int32 (S,)."""
        document, start, end = (
            self.spans.column(name).combine_chunks().to_numpy() for name in ("document", "start", "end")
        )
        return np.searchsorted(document, np.arange(len(self.texts) + 1)).astype(np.int64), start, end


def _read_batches(corpus: Corpus, reader: SpanReader, codes: _Codes) -> Iterator[_Batch]:
    """Yield the documents of a corpus in batches, with their detected spans and integer codes."""
    first = 0
    for batch in corpus.batches(columns=("doc_id", "individual_id", "text")):
        spans = reader.table(first, batch.num_rows)
        yield _Batch(
            first,
            batch.column("doc_id"),
            batch.column("text"),
            codes.encode_individuals(batch),
            spans.set_column(0, SPANS.field(0), pc.subtract(spans.column("document"), first)),
            codes.encode_labels(spans),
        )
        first += batch.num_rows


class _Codes:
    """Integer codes for labels, detectors and individuals, assigned in order of first appearance."""

    def __init__(self, policy: Policy):
        self._policy = policy
        self._labels = _Numbers()
        self._sources = _Numbers()
        self._units: dict[str, int] = {}
        #: Of each label, 0 to 2, and whether it is a name's. They only grow, while the next batch is read.
        self.reach = np.empty(0, dtype=np.uint8)
        self.is_name = np.empty(0, dtype=np.uint8)

    def encode_labels(self, table: pa.Table) -> np.ndarray:
        """Return the integer code of each span's label, uint32. Also set two arrays indexed by code: ``reach`` (0 to 2:
        whether the label propagates nowhere, to the individual's documents or to all) and ``is_name``."""
        codes = self._labels.encode(table.column("label"))
        known = self._labels.values
        self.reach = np.array([_REACH[self._policy.scope_of(label)] for label in known], dtype=np.uint8)
        self.is_name = np.array([category(label) == "NAME" for label in known], dtype=np.uint8)
        return codes

    def encode_detectors(self, table: pa.Table) -> np.ndarray:
        """Return the integer code of each span's detector, uint32."""
        return self._sources.encode(table.column("detector"))

    def encode_individuals(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the integer code of each document's individual, uint32; an individual has the same code in every
        batch."""
        encoded = batch.column("individual_id").cast(pa.string()).dictionary_encode()
        codes = [self._units.setdefault(unit, len(self._units)) for unit in encoded.dictionary.to_pylist()]
        return np.array(codes, dtype=np.uint32)[encoded.indices.to_numpy()]

    def decode_spans(self, matches: pa.RecordBatch, doc_ids: pa.Array, first: int) -> pa.Table:
        """Return the Rust core's matches in a batch as a table of spans (schema `SPANS`); ``first`` is the row number
        of the batch's first document."""
        detectors = [name if name.startswith(PREFIX) else PREFIX + name for name in self._sources.values]
        document = matches.column("document")
        columns: dict[str, Any] = {
            "document": pc.add(document.cast(pa.int64()), first),
            "doc_id": doc_ids.take(document),
            "start": matches.column("start"),
            "end": matches.column("end"),
            "label": pa.array(self._labels.values, pa.string()).take(matches.column("label")),
            "detector": pa.array(detectors, pa.string()).take(matches.column("source")),
            "score": pa.array(np.ones(matches.num_rows, dtype=np.float32)),
        }
        return pa.table(columns, schema=SPANS)


class _Numbers:
    """A growing vocabulary of strings, numbered from 0."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def encode(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return the integer code of each value of a column, uint32; a value not seen before gets the next code."""
        encoded = column.combine_chunks().dictionary_encode()
        new = [value for value in encoded.dictionary.to_pylist() if value not in self.values]
        self.values += new
        codes = np.array([self.values.index(value) for value in encoded.dictionary.to_pylist()], dtype=np.uint32)
        return codes[encoded.indices.to_numpy()] if len(codes) else np.empty(0, dtype=np.uint32)
