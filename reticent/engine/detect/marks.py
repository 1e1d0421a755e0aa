"""Gold and detected spans of a corpus as plain arrays, with global character and word offsets.

Documents stand one after another on the line, so that a span is two numbers, and the words it touches are two more.
Whoever compares spans (:mod:`reticent.audit.detection`) needs no text any more: names are here as hashes at most.
Memory: some 60 bytes a span and 9 a word; the text is read in batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.corpus import Corpus
from reticent.engine.detect.alignment import utf8_bytes
from reticent.engine.detect.labels import category
from reticent.engine.kernels import hash_slices
from reticent.engine.schema import SPANS, copy_alone

#: Types of identifiers of a gold standard that need no masking.
UNMASKED: Final = "NO_MASK"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSpans:
    """Spans in the concatenated documents (the line); all arrays int64 of one length.

    ``category`` numbers `Marks.categories`; words ``first_word`` to ``end_word`` (exclusive) touch the span.
    """

    document: np.ndarray
    start: np.ndarray
    end: np.ndarray
    first_word: np.ndarray
    end_word: np.ndarray
    category: np.ndarray

    def __len__(self) -> int:
        return len(self.start)

    def take(self, selection: np.ndarray) -> LineSpans:
        """Return the spans at these indices, or, for a boolean mask, those where it is True."""
        return LineSpans(**{name: getattr(self, name)[selection] for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Gold and detected spans of the documents that have gold annotations.

    Attributes
    ----------
    individual : int64, shape (num_documents,)
        Whose each document is, from 0.
    gold, found : LineSpans
    entity : int64, shape (len(gold),)
        Mentions of one entity share a number: by the gold standard's entity ids within a document, else by category
        and text, whatever its case, within an individual.
    identifier_type : int64, shape (len(gold),)
        Number in ``identifier_types``.
    detector : int64, shape (len(found),)
        Number in ``detectors``.
    """

    individual: np.ndarray
    num_words: int
    num_characters: int
    gold: LineSpans
    found: LineSpans
    entity: np.ndarray
    identifier_type: np.ndarray
    detector: np.ndarray
    categories: tuple[str, ...]
    identifier_types: tuple[str, ...]
    detectors: tuple[str, ...]
    #: Documents whose gold spans are null, which were not annotated; they are in none of these arrays.
    num_unmarked: int

    @property
    def num_individuals(self) -> int:
        """Number of distinct individuals in the annotated documents."""
        return int(self.individual.max(initial=-1)) + 1

    def with_only(self, *, detectors: Sequence[str] | None = None, categories: Sequence[str] | None = None) -> Marks:
        """Return a copy with only the spans of these detectors and categories; None keeps all. A detector that found
        nothing may be named."""
        names = self.detectors if detectors is None else tuple(detectors)
        number = np.array([names.index(name) if name in names else -1 for name in self.detectors], dtype=np.int64)
        of_category = np.array([categories is None or name in categories for name in self.categories], dtype=bool)
        detector = number[self.detector] if len(self.found) else self.detector
        found = (detector >= 0) & of_category[self.found.category]
        gold = of_category[self.gold.category]
        entity = np.unique(self.entity[gold], return_inverse=True)[1].reshape(-1).astype(np.int64)
        return replace(
            self,
            gold=self.gold.take(gold),
            found=self.found.take(found),
            entity=entity,
            identifier_type=self.identifier_type[gold],
            detector=detector[found],
            detectors=names,
        )


def read_marks(corpus: Corpus, folder: Path | str, left_out: np.ndarray | None = None) -> Marks:
    """Return a corpus's gold spans and the detected spans of ``folder/spans.parquet`` as flat arrays, for measuring
    recall and precision; documents in the mask ``left_out`` count as not annotated.

    Documents that ``left_out`` (bool, one a document) names count as not annotated. What the detector ``gold`` found is
    left out, with the spans propagated from it: the gold standard is not measured against itself.

    Raises
    ------
    CorpusError
        The corpus has no gold spans.
    ArtifactError
        There are no spans of this version in the folder.
    """
    path = Path(folder) / "spans.parquet"
    try:
        found = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not a readable table of spans ({type(error).__name__})") from None
    if not found.schema.equals(SPANS):
        raise ArtifactError(f"{path}: not a table of spans of this version")
    source = pc.replace_substring_regex(found.column("detector"), "^.*:", "")  # of "propagated:gold", gold
    found = found.filter(pc.not_equal(source, "gold"))
    gold = "mentions" if corpus.columns.mentions is not None else "spans"
    if getattr(corpus.columns, gold) is None:
        raise CorpusError("no gold spans to measure against: map their column (corpus.spans)")
    batches = corpus.batches(columns=("individual_id", "text", gold), batch_rows=512)
    return gather_marks(batches if left_out is None else _drop_gold_spans(batches, left_out), found)


def _drop_gold_spans(batches: Iterable[pa.RecordBatch], left_out: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the record batches with the gold spans (last column) set to null in documents where ``left_out`` is
    True."""
    first = 0
    for batch in batches:
        mask = left_out[first : first + batch.num_rows]
        first += batch.num_rows
        gold = batch.columns[-1].take(pa.array(np.arange(batch.num_rows), mask=mask))
        yield pa.record_batch([*batch.columns[:-1], gold], schema=batch.schema)


def gather_marks(batches: Iterable[pa.RecordBatch], found: pa.Table) -> Marks:
    """Return the gold spans of documents and the spans detected in them as flat arrays. ``batches`` have individual_id,
    text, and spans or mentions; ``found`` has the detected spans in document order (schema `SPANS`)."""
    line = _Line(found)
    for batch in batches:
        line.add(batch)
    return line.finish()


class _Line:
    def __init__(self, found: pa.Table):
        found = found.combine_chunks()
        self._document = found.column("document").to_numpy()
        self._start, self._end = (found.column(name).to_numpy() for name in ("start", "end"))
        self._label = found.column("label").combine_chunks()
        self._detector = found.column("detector").combine_chunks().dictionary_encode()
        self._gold: list[dict[str, np.ndarray | pa.Array]] = []
        self._found: list[dict[str, np.ndarray]] = []
        self._words: list[tuple[np.ndarray, np.ndarray]] = []
        self._individuals: list[pa.Array] = []
        self._num_read = self._num_documents = self._num_characters = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the gold and detected spans of the next record batch of documents."""

        column = batch.column("mentions" if "mentions" in batch.schema.names else "spans")
        marked = column.is_valid().to_numpy(zero_copy_only=False)
        begin, end = np.searchsorted(self._document, [self._num_read, self._num_read + batch.num_rows])
        found_rows = np.arange(begin, end)
        found_document = self._document[begin:end] - self._num_read
        found_rows, found_document = (values[marked[found_document]] for values in (found_rows, found_document))
        self._num_read += batch.num_rows
        if not marked.all():
            batch, column = batch.filter(pa.array(marked)), column.filter(pa.array(marked))
        number = np.cumsum(marked) - 1

        texts = batch.column("text")
        lengths = pc.utf8_length(texts).to_numpy().astype(np.int64)
        base = self._num_characters + np.concatenate([[0], np.cumsum(lengths)])
        words = _rust.segment(texts)
        starts, ends = words.char_spans(texts)
        shift = np.repeat(base[:-1], np.diff(words.doc_offsets))
        self._words.append((starts + shift, ends + shift))
        self._individuals.append(copy_alone(batch.column("individual_id")))
        self._gold.append(self._gold_fields(column, texts, base))
        document = number[found_document]
        at = {"document": document + self._num_documents, "row": found_rows}
        self._found.append(
            at | {"start": self._start[found_rows] + base[document], "end": self._end[found_rows] + base[document]}
        )
        self._num_documents += batch.num_rows
        self._num_characters = int(base[-1])

    def _gold_fields(
        self, gold: pa.Array, texts: pa.Array, text_offsets: np.ndarray
    ) -> dict[str, np.ndarray | pa.Array]:
        """Return the gold spans of a batch as a dict of arrays: document, start, end, label, identifier type, entity
        name, hash of the text. Starts and ends are offsets in the concatenation of all texts; ``text_offsets`` has the
        offset of each text."""
        parents, flat = pc.list_parent_indices(gold), pc.list_flatten(gold)
        names = [field.name for field in flat.type]
        fields = {name: pc.struct_field(flat, name) for name in names}
        absent = pa.nulls(len(flat), pa.string())
        kinds = pc.fill_null(fields.get("identifier_type", absent), "")
        keep = pc.not_equal(kinds, UNMASKED)
        fields, kinds = {name: values.filter(keep) for name, values in fields.items()}, kinds.filter(keep)
        document = parents.filter(keep).to_numpy()
        absent = absent.filter(keep)
        start, end = (fields[name].to_numpy(zero_copy_only=False).astype(np.int64) for name in ("start", "end"))
        named = pc.binary_join_element_wise(
            fields.get("entity_id", absent), pc.fill_null(fields.get("annotator", absent), ""), "\x00"
        )
        return {
            "document": document + self._num_documents,
            "start": start + text_offsets[document],
            "end": end + text_offsets[document],
            "label": fields["label"],
            "kind": kinds,
            "named": named,
            "hash": _text_hashes(texts, document, start, end),
        }

    def finish(self) -> Marks:
        """Return the gold and detected spans of all documents added, as flat arrays."""
        words = [np.concatenate([part[i] for part in self._words] or [np.empty(0)]).astype(np.int64) for i in (0, 1)]
        individuals = pa.chunked_array(self._individuals, pa.string()).combine_chunks().dictionary_encode()
        individual = individuals.indices.to_numpy().astype(np.int64)
        gold = (
            {name: _concatenate([part[name] for part in self._gold]) for name in self._gold[0]}
            if self._gold
            else _NO_GOLD
        )
        found = {
            name: np.concatenate([part[name] for part in self._found] or [np.empty(0)]).astype(np.int64)
            for name in ("document", "start", "end", "row")
        }
        labels = self._label.take(pa.array(found["row"]))
        gold_category, found_category, categories = _category_codes(gold["label"], labels)
        kinds = gold["kind"].dictionary_encode()
        return Marks(
            individual=individual,
            num_words=len(words[0]),
            num_characters=self._num_characters,
            gold=_line_spans(gold, gold_category, words),
            found=_line_spans(found, found_category, words),
            entity=_entity_codes(gold, gold_category, individual),
            identifier_type=kinds.indices.to_numpy().astype(np.int64),
            detector=self._detector.indices.to_numpy().astype(np.int64)[found["row"]],
            categories=categories,
            identifier_types=tuple(kinds.dictionary.to_pylist()),
            detectors=tuple(self._detector.dictionary.to_pylist()),
            num_unmarked=self._num_read - self._num_documents,
        )


_NO_GOLD: Final[dict[str, Any]] = {
    **{name: np.empty(0, dtype=np.int64) for name in ("document", "start", "end", "hash")},
    **{name: pa.array([], pa.string()) for name in ("label", "kind", "named")},
}


def _concatenate(parts: list[Any]) -> Any:
    """Return the parts (NumPy or Arrow arrays) concatenated."""
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)


def _line_spans(bounds: dict, categories: np.ndarray, word_bounds: list[np.ndarray]) -> LineSpans:
    """Return spans, given by ``bounds`` (document, start and end of each) as offsets in the concatenated documents,
    together with the range of words that each overlaps. ``word_bounds`` has the starts and the ends of all words."""
    starts, ends = word_bounds
    return LineSpans(
        document=bounds["document"],
        start=bounds["start"],
        end=bounds["end"],
        first_word=np.searchsorted(ends, bounds["start"], side="right"),
        end_word=np.searchsorted(starts, bounds["end"], side="left"),
        category=categories,
    )


def _category_codes(gold_labels: pa.Array, found_labels: pa.Array) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return the category codes of the gold labels and of the detected labels, int64, and the sorted category names
    that they index."""
    labels = pa.concat_arrays([gold_labels.cast(pa.string()), found_labels.cast(pa.string())]).dictionary_encode()
    of_label = [category(label) for label in labels.dictionary.to_pylist()]
    names = tuple(sorted(set(of_label)))
    numbers = np.array([names.index(name) for name in of_label], dtype=np.int64)
    codes = numbers[labels.indices.to_numpy()] if len(labels) else np.empty(0, dtype=np.int64)
    return codes[: len(gold_labels)], codes[len(gold_labels) :], names


def _entity_codes(gold: dict, categories: np.ndarray, individual: np.ndarray) -> np.ndarray:
    """Return an integer for each gold span, int64; two spans have the same one if they mention the same entity (see
    `Marks.entity`)."""
    named = gold["named"].dictionary_encode()
    has_name = named.is_valid().to_numpy(zero_copy_only=False)
    codes = pc.fill_null(named.indices, 0).to_numpy().astype(np.int64)
    keys = np.stack(
        [
            has_name,
            np.where(has_name, gold["document"], individual[gold["document"]]),
            np.where(has_name, codes, categories),
            np.where(has_name, 0, gold["hash"].view(np.int64)),
        ]
    )
    return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _text_hashes(texts: pa.Array, document: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash (int64) of the lower-cased text of each span."""
    data, doc_bytes = utf8_bytes(pc.utf8_lower(texts))
    begins = np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))
    first = np.searchsorted(begins, doc_bytes)[document]
    return hash_slices(data, begins[first + start], begins[first + end])
