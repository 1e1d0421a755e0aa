"""Regions: the parts of documents that a rewriting of direct identifiers can change, and the tokens around them.

A *cut* is a word that begins with an ASCII letter or digit, one space behind another word. The words and tokens on one
side of that space do not depend on the text on the other side, provided that the tokenizer has pretokens
(`_rust.TokenEncoder.path` is not "library"). A region therefore goes from the cut before a span to the cut behind it.
It has the space of its first cut, and not the space of the next cut. The tokens between regions do not change.

The regions of a document, one after the other, form a text in which every joint is a cut. This text is rewritten like a
document, so that its dates still show the order of day and month.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.engine.packed import StoredIds
from reticent.engine.patched_kernels import columns_of, copy_stretches, first_tokens_of_words
from reticent.engine.schema import INDIRECT

if TYPE_CHECKING:
    from reticent.engine.flagged_words import Flagged
    from reticent.engine.pseudonymize import SpanArrays

__all__ = ["Regions", "regions_of", "strings_of"]

SPACE = 0x20
#: True for each byte that is an ASCII letter or digit.
ALNUM = np.array([byte < 128 and chr(byte).isalnum() for byte in range(256)])


@dataclass(frozen=True, slots=True)
class Regions:
    """The regions of some documents, before any replacement is drawn: plain arrays.

    D is the number of documents, R the number of regions.

    Attributes
    ----------
    documents : int64 array, shape (D,): row of each document in the corpus, and so among the ids
    codes : uint32 array, shape (D,): individual of each document
    id_offsets, id_bytes : int64 array, shape (D + 1,), and uint8 array: the doc_ids in UTF-8
    num_words : int64 array, shape (D,): words of each original document
    text_offsets, text : int64 array, shape (D + 1,), and uint8 array: the joined regions of each document in UTF-8
    flags, ngram_starts : uint8 arrays, one entry a word of these texts
    span_offsets, span_starts, span_ends, left_out, labels, names
        Direct identifiers in these texts: offsets by document (int64, shape (D + 1,)), bounds in characters (int32),
        the number of characters of the document that the text lacks before each span (int64), and the label of each as
        place (int32) in the JSON list ``names``.
    offsets : int64 array, shape (D + 1,): regions of each document
    joints : int64 array, shape (R,): character of its text at which each region begins
    words : int64 array, shape (R,): first word of each region, counted through all texts
    firsts, replaced : int64 arrays, shape (R,): first token of each region among the ids, and its number of tokens
    kept_before : int64 array, shape (R,): tokens of these documents that stand before the region and in no region
    kept_lengths : int64 array, shape (D,): tokens of each document that are in no region
    indirect : uint8 array, one bit for each token in no region
    kept_tokens, kept_ngrams : tokens in no region where n-grams start, and the lengths of these n-grams
    kept_counts : int64 array, shape (2,): words in no region, and the indirect ones among them
    """

    documents: np.ndarray
    codes: np.ndarray
    id_offsets: np.ndarray
    id_bytes: np.ndarray
    num_words: np.ndarray
    text_offsets: np.ndarray
    text: np.ndarray
    flags: np.ndarray
    ngram_starts: np.ndarray
    span_offsets: np.ndarray
    span_starts: np.ndarray
    span_ends: np.ndarray
    left_out: np.ndarray
    labels: np.ndarray
    names: np.ndarray
    offsets: np.ndarray
    joints: np.ndarray
    words: np.ndarray
    firsts: np.ndarray
    replaced: np.ndarray
    kept_before: np.ndarray
    kept_lengths: np.ndarray
    indirect: np.ndarray
    kept_tokens: np.ndarray
    kept_ngrams: np.ndarray
    kept_counts: np.ndarray

    @property
    def texts(self) -> pa.Array:
        return strings_of(self.text_offsets, self.text)

    @property
    def rows(self) -> np.ndarray:
        """The document of each region, int64 (R,)."""
        return np.repeat(np.arange(len(self.documents)), np.diff(self.offsets))

    @property
    def spans(self) -> SpanArrays:
        names = pa.array(json.loads(self.names.tobytes()), pa.string())
        return self.span_offsets, self.span_starts, self.span_ends, names.take(pa.array(self.labels))

    def batch(self) -> pa.RecordBatch:
        """Return a batch with the columns text, individual_id and doc_id for `pseudonymise_batch`."""
        individuals = pa.array(self.codes).cast(pa.string())
        doc_ids = strings_of(self.id_offsets, self.id_bytes).cast(pa.string())
        return pa.record_batch([self.texts, individuals, doc_ids], ["text", "individual_id", "doc_id"])

    def save(self, file: BinaryIO) -> None:
        # Of a file NumPy takes the descriptor, and its error on a full disk has no number of the system.
        writer = SimpleNamespace(write=file.write)
        for field in fields(self):
            np.save(writer, getattr(self, field.name), allow_pickle=False)  # type: ignore[arg-type]

    @classmethod
    def load(cls, file: BinaryIO) -> Regions:
        return cls(*(np.load(file, allow_pickle=False) for _ in fields(cls)))


def strings_of(offsets: np.ndarray, data: np.ndarray) -> pa.Array:
    """Return the texts with these bounds (int64, shape (D + 1,)) in UTF-8 bytes as large_string (D,); no copy."""
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def _bytes_of(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds, int64 (D + 1,), and the bytes, uint8, of texts."""
    texts = texts.cast(pa.large_string())
    if not len(texts):
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    whole = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    return bounds - bounds[0], whole[bounds[0] : bounds[-1]]


@dataclass(slots=True)
class _Bounds:
    """The places where regions may begin and end: start, cuts and end of each document, in order.

    ``chars`` and ``bytes`` count within the document, ``words`` through all documents, ``tokens`` among the ids. All
    are int64 arrays of one length.
    """

    rows: np.ndarray
    chars: np.ndarray
    bytes: np.ndarray
    words: np.ndarray
    tokens: np.ndarray

    @property
    def keys(self) -> np.ndarray:
        return (self.rows << 32) | self.chars


def _bounds_of(documents: Flagged, ids: StoredIds, stored: np.ndarray, text: tuple[np.ndarray, np.ndarray]) -> _Bounds:
    """Return the bounds of documents.

    Parameters
    ----------
    stored : int64 array, shape (D,): rows of the documents among the ids
    text : bounds and bytes of the documents (`_bytes_of`)
    """
    part, words = documents.part, documents.words
    doc_offsets, data = text
    num_documents, word_offsets = len(stored), words.doc_offsets
    doc_firsts, doc_ends = ids.doc_offsets[stored], ids.doc_offsets[stored + 1]
    firsts = first_tokens_of_words(columns_of(ids), doc_firsts, doc_ends, word_offsets)
    row_of = np.repeat(np.arange(num_documents), np.diff(word_offsets))
    starts = words.starts.astype(np.int64)
    at = np.flatnonzero((firsts >= 0) & (starts >= 2))
    place = doc_offsets[row_of[at]] + starts[at]
    cuts = at[ALNUM[data[place]] & (data[place - 1] == SPACE) & ALNUM[data[place - 2]]]
    chars = words.char_spans(part.texts)[0].astype(np.int64)[cuts] - 1
    rows = row_of[cuts]
    # One more bound before and behind the cuts of each document.
    of_cut = np.arange(len(cuts)) + 2 * rows + 1
    behind = np.searchsorted(rows, np.arange(num_documents), "right") + 2 * np.arange(num_documents) + 1
    before = np.concatenate([[0], behind[:-1] + 1]).astype(np.int64) if num_documents else behind
    lengths = pc.utf8_length(part.texts).to_numpy(zero_copy_only=False).astype(np.int64)
    columns = (
        (np.arange(num_documents), rows, np.arange(num_documents)),
        (np.zeros(num_documents, dtype=np.int64), chars, lengths),
        (np.zeros(num_documents, dtype=np.int64), starts[cuts] - 1, np.diff(doc_offsets)),
        (word_offsets[:-1], cuts, word_offsets[1:]),
        (doc_firsts, firsts[cuts], doc_ends),
    )
    made = []
    for column in columns:
        whole = np.empty(len(cuts) + 2 * num_documents, dtype=np.int64)
        for places, values in zip((before, of_cut, behind), column, strict=True):
            whole[places] = values
        made.append(whole)
    return _Bounds(*made)


def _merged(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return intervals in ascending order; those that overlap or touch become one."""
    if not len(low):
        return low, high
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    first = np.concatenate([[True], low[1:] > reach[:-1]])
    return low[first], reach[np.append(np.flatnonzero(first)[1:] - 1, len(low) - 1)]


def regions_of(documents: Flagged, spans: SpanArrays, ids: StoredIds, *, num_threads: int = 0) -> Regions:
    """Return the regions of flagged documents.

    Parameters
    ----------
    spans : the direct identifiers of the documents (`FlaggedWords.spans_of`)
    ids : the stored tokens of the whole corpus

    Raises
    ------
    AssertionError
        The words of a region are not those of its document: a cut was none.

    Cost: about 50 ns a word.
    """
    from reticent import _rust

    part, words, flags, starts, _ = documents
    stored = part.first + np.flatnonzero(part.keep)
    doc_offsets, data = _bytes_of(part.texts)
    bounds = _bounds_of(documents, ids, stored, (doc_offsets, data))
    span_offsets, span_starts, span_ends, labels = spans
    filled = np.flatnonzero(span_ends > span_starts)
    span_rows = np.repeat(np.arange(len(stored)), np.diff(span_offsets))[filled]
    first, last = (bound[filled].astype(np.int64) for bound in (span_starts, span_ends))
    bound_before = np.searchsorted(bounds.keys, (span_rows << 32) | first, "right") - 1
    low, high = _merged(bound_before, np.searchsorted(bounds.keys, (span_rows << 32) | last, "left"))
    rows = bounds.rows[low]
    offsets = np.searchsorted(rows, np.arange(len(stored) + 1)).astype(np.int64)
    joints = _within(bounds.chars[high] - bounds.chars[low], offsets)
    left_out = (bounds.chars[low] - joints)[np.searchsorted(low, bound_before, "right") - 1]
    text_bytes = bounds.bytes[high] - bounds.bytes[low]
    text = np.empty(int(text_bytes.sum()), dtype=np.uint8)
    copy_stretches(data, doc_offsets[rows] + bounds.bytes[low], doc_offsets[rows] + bounds.bytes[high], text)
    in_region = _is_within(bounds.words[low], bounds.words[high], words.num_words)
    before = np.cumsum(bounds.words[high] - bounds.words[low]) - (bounds.words[high] - bounds.words[low])
    label_codes, names = _coded(labels.take(pa.array(filled)))
    id_offsets, id_bytes = _bytes_of(part.doc_ids)
    made: dict[str, Any] = {
        "documents": stored,
        "codes": part.codes,
        "id_offsets": id_offsets,
        "id_bytes": id_bytes,
        "num_words": np.diff(words.doc_offsets),
        "text_offsets": np.concatenate([[0], np.cumsum(text_bytes)])[offsets].astype(np.int64),
        "text": text,
        "flags": flags[in_region],
        "ngram_starts": starts[in_region],
        "span_offsets": np.searchsorted(span_rows, np.arange(len(stored) + 1)).astype(np.int64),
        "span_starts": (first - left_out).astype(np.int32),
        "span_ends": (last - left_out).astype(np.int32),
        "left_out": left_out,
        "labels": label_codes,
        "names": names,
        "offsets": offsets,
        "joints": joints,
        "words": before,
        "firsts": bounds.tokens[low],
        "replaced": bounds.tokens[high] - bounds.tokens[low],
        "kept_counts": np.array([np.count_nonzero(~in_region), np.count_nonzero(flags[~in_region] & INDIRECT)]),
    }
    made |= _kept_of(documents, ids, stored, bounds.tokens[low], bounds.tokens[high], rows, num_threads)
    found = _rust.segment((regions := Regions(**made)).texts, num_threads=num_threads)
    _check_words(words, in_region, found, rows, bounds.bytes[low], _within(text_bytes, offsets), doc_offsets)
    return regions


def _coded(labels: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return labels as places in a list (int32), and the list as bytes of JSON."""
    encoded = labels.dictionary_encode()
    names = json.dumps(encoded.dictionary.to_pylist()).encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32), np.frombuffer(names, dtype=np.uint8)


def _within(lengths: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the sum of the lengths before each entry, within its document (int64)."""
    before = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return before[:-1] - np.repeat(before[offsets[:-1]], np.diff(offsets))


def _is_within(firsts: np.ndarray, ends: np.ndarray, num: int) -> np.ndarray:
    """Return for each number from 0 to ``num`` whether it lies in one of these intervals, bool (num,)."""
    marks = np.zeros(num + 1, dtype=np.int64)
    np.add.at(marks, firsts, 1)
    np.add.at(marks, ends, -1)
    return np.cumsum(marks)[:-1] > 0


def _check_words(
    words: Any,
    in_region: np.ndarray,
    found: Any,
    rows: np.ndarray,
    bytes_low: np.ndarray,
    bytes_before: np.ndarray,
    doc_offsets: np.ndarray,
) -> None:
    """Raise `AssertionError` where the words of regions are not those of their documents."""
    kept = np.flatnonzero(in_region)
    row_of = np.repeat(np.arange(words.num_documents), np.diff(words.doc_offsets))[kept]
    starts = words.starts.astype(np.int64)[kept]
    region = np.searchsorted(doc_offsets[rows] + bytes_low, doc_offsets[row_of] + starts, "right") - 1
    expected = starts - (bytes_low - bytes_before)[region]
    ends = expected + (words.ends - words.starts)[kept]
    if not (np.array_equal(found.starts, expected) and np.array_equal(found.ends, ends)):
        raise AssertionError("words of a region are not those of its document")


def _kept_of(
    documents: Flagged,
    ids: StoredIds,
    stored: np.ndarray,
    firsts: np.ndarray,
    ends: np.ndarray,
    rows: np.ndarray,
    num_threads: int,
) -> dict[str, np.ndarray]:
    """Return the planes of the tokens in no region, as fields of `Regions`."""
    from reticent import _rust

    part, words, flags, starts, _ = documents
    first, end = part.first, part.last_document
    word_counts = np.zeros(end - first, dtype=np.int64)
    word_counts[part.keep] = np.diff(words.doc_offsets)
    planes = _rust.planes(
        ids.begins.view(np.uint8), ids.outside.view(np.uint8), None, *ids.exceptions_of(first, end),
        ids.doc_offsets[first : end + 1], flags, starts, np.concatenate([[0], np.cumsum(word_counts)]), part.keep,
        num_threads=num_threads,
    )  # fmt: skip
    lengths = ids.doc_offsets[stored + 1] - ids.doc_offsets[stored]
    before = np.cumsum(lengths) - lengths  # of each document, among the tokens of these
    shift = (before - ids.doc_offsets[stored])[rows]
    is_kept = ~_is_within(firsts + shift, ends + shift, int(lengths.sum()))
    kept_until = np.concatenate([[0], np.cumsum(is_kept)])
    bits = np.unpackbits(planes.indirect, count=len(is_kept), bitorder="little")
    stays = is_kept[planes.ngram_tokens]
    return {
        "kept_before": kept_until[firsts + shift],
        "kept_lengths": kept_until[before + lengths] - kept_until[before],
        "indirect": np.packbits(bits[is_kept], bitorder="little"),
        "kept_tokens": kept_until[planes.ngram_tokens[stays]],
        "kept_ngrams": planes.ngram_lengths[stays],
    }
