"""Rewriting documents with their direct identifiers replaced, and carrying word flags over to the new text.

Indirect flags are those of the words of the original text: a word that stays keeps them, also one that stays within an
identifier ("Dr"). The replacement of an identifier is `DIRECT` alone, punctuation of it included; the rest of a word
that a span cuts is `DIRECT` too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent import _rust
from reticent.core.errors import ArtifactError
from reticent.engine.pseudonymize import SpanArrays, Style, pseudonymise_batch
from reticent.engine.schema import DIRECT, INDIRECT

if TYPE_CHECKING:
    from reticent._rust import Words
    from reticent.engine.packed import PackedTokens

#: Rewritings of the text of documents: identifiers replaced, or all of it in lower case.
TextStyle = Style | Literal["lower"]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """New texts, their words, and the flags and n-gram starts of these words (uint8, one a word).

    ``gaps`` are the stretches between words that are direct (`_rust.mark_spans`); None where there are none.
    ``spans`` are the words of each replacement and its label, as `SpanWriter.write` takes them.
    """

    texts: pa.Array
    words: Words
    flags: np.ndarray
    ngram_starts: np.ndarray
    gaps: Words | None = None
    spans: tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array] | None = None


def protection_of_words(
    packed: PackedTokens, first: int, end: int, word_offsets: np.ndarray, first_word: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the protection of each word in documents ``first`` to ``end`` (exclusive), read from the stored flags of
    its tokens, as two uint8 arrays: `INDIRECT` or 0, and the lengths, as bits, of the minimal identifying n-grams that
    start at it. ``word_offsets`` has the words before each document, ``first_word`` those of all earlier documents.

    A word is indirect where all tokens that meet it are, but for the words of `PackedTokens.untold`.

    Parameters
    ----------
    word_offsets : int64 array, words before each of these documents
    first_word : number of words in all documents before these

    Raises
    ------
    ArtifactError
        The tokens are of other words.
    """
    offsets = packed.doc_offsets[first : end + 1] - packed.doc_offsets[first]
    words = packed.block("word_ids", first, end).astype(np.int64)
    more = np.zeros(len(words), dtype=np.int64)
    tokens, rows = packed.exceptions_at(packed.positions_of(first, end))
    more[tokens] = packed.stored.more[rows]
    lengths = packed.block("ngram_starts", first, end)
    is_indirect = (packed.block("flags", first, end) & INDIRECT) > 0

    inside = np.flatnonzero(words >= 0)
    owners = np.repeat(np.arange(end - first), np.diff(offsets))[inside]
    low = words[inside] + word_offsets[owners]
    high = low + more[inside] + 1
    if (high > word_offsets[owners + 1]).any():
        raise ArtifactError(
            f"{packed.stored.folder}: tokens of other words than these documents have; run protect again"
        )
    num_words, others = int(word_offsets[-1]), ~is_indirect[inside]
    has_token, has_other = (
        _covered_numbers(low, high, num_words),
        _covered_numbers(low[others], high[others], num_words),
    )
    flags = (has_token & ~has_other) * np.uint8(INDIRECT)

    starts = np.zeros(num_words, dtype=np.uint8)
    begun = np.flatnonzero(lengths[inside])
    before = np.concatenate([[0], np.maximum.accumulate(high)])  # the first word that no token before has met
    np.bitwise_or.at(starts, np.maximum(low[begun], before[begun]), lengths[inside[begun]])
    listed = packed.untold.column("word").to_numpy()
    own = slice(*np.searchsorted(listed, [first_word, first_word + num_words]))
    for column, name in ((flags, "flag"), (starts, "lengths")):
        column[listed[own] - first_word] = packed.untold.column(name).to_numpy()[own]
    return flags, starts


def _covered_numbers(starts: np.ndarray, ends: np.ndarray, num: int) -> np.ndarray:
    """Return which numbers from 0 to ``num`` (exclusive) lie in one of the intervals (ends exclusive), bool (num,)."""
    edges = np.bincount(starts, minlength=num + 1) - np.bincount(ends, minlength=num + 1)
    return np.cumsum(edges[:-1]) > 0


def replace_words_by_x(
    texts: pa.Array,
    words: Words,
    flags: np.ndarray,
    starts: np.ndarray,
    gaps: Words | None = None,
    *,
    num_threads: int = 0,
) -> Rewritten:
    """Return the texts with X in place of each word that is a direct identifier (in ``flags``) and of each part of an
    identifier that lies between words (``gaps``), together with the new texts' words and their protection flags.

    X is no individual's word: 0. So is the punctuation of an identifier, which stays.
    """

    direct = (flags & DIRECT) > 0
    made, new_places = _rust.replace_words(texts, words, direct.astype(np.uint8), gaps=gaps, num_threads=num_threads)
    texts = pa.record_batch(made).column("text")
    replaced = _rust.segment(texts, num_threads=num_threads)
    # An X can join what a number kept apart ("5.Smith" is two words, "X.Smith" one), so words are found by their place.
    kept = np.flatnonzero(~direct)
    at = (
        np.searchsorted(
            _position_keys(replaced, replaced.starts), _position_keys(words, new_places)[kept], side="right"
        )
        - 1
    )
    new_flags, new_starts = (np.zeros(replaced.num_words, dtype=np.uint8) for _ in range(2))
    np.bitwise_or.at(new_flags, at, flags[kept])
    np.bitwise_or.at(new_starts, at, starts[kept])
    return Rewritten(texts, replaced, new_flags, new_starts)


def lower_case(texts: pa.Array, *, num_threads: int = 0) -> Rewritten:
    """Return the texts in lower case, with their words and no protection flags."""

    lowered = pc.utf8_lower(texts)
    words = _rust.segment(lowered, num_threads=num_threads)
    return Rewritten(lowered, words, np.zeros(words.num_words, np.uint8), np.zeros(words.num_words, np.uint8))


def replace_spans(
    batch: pa.RecordBatch,
    words: Words,
    flags: np.ndarray,
    starts: np.ndarray,
    spans: SpanArrays,
    style: Style,
    key: bytes,
    **options: Any,
) -> Rewritten:
    """Return the texts with each identifier span replaced by a tag or a surrogate, together with the new texts' words
    and their protection flags. ``options`` are passed to `pseudonymise_batch`.

    Parameters
    ----------
    batch : columns text, individual_id, doc_id
    words, flags, starts : of the old texts
    spans, style, key, options : see `pseudonymise_batch`
    """

    old = batch.column("text")
    made = pseudonymise_batch(batch, spans, style, key, **options)
    new_words = _rust.segment(made.texts, num_threads=options.get("num_threads", 0))
    before, now = _Bounds.of(words, old), _Bounds.of(new_words, made.texts)
    edits = _Bounds(_document_of_each(made.edits.offsets), made.edits.new_start, made.edits.new_end)

    low, high = before.overlapping_ranges(_Bounds(now.rows, *made.edits.to_old(now.rows, now.starts, now.ends)))
    new_flags = np.zeros(len(now.rows), dtype=np.uint8)
    for bit in (DIRECT, INDIRECT):
        counted = np.concatenate([[0], np.cumsum(flags & bit > 0)])
        new_flags |= (counted[high] > counted[low]) * np.uint8(bit)
    low, high = edits.overlapping_ranges(now)
    new_flags |= (high > low) * np.uint8(DIRECT)
    asked = np.flatnonzero((high > low) & ((new_flags & INDIRECT) > 0))
    inside = asked[(edits.starts[low[asked]] <= now.starts[asked]) & (now.ends[asked] <= edits.ends[low[asked]])]
    if len(inside):
        replaced = _Bounds(edits.rows, made.edits.old_start, made.edits.old_end)
        stays = _occurs_in_replaced(
            (old, words, *before.overlapping_ranges(replaced)), (made.texts, new_words, inside, low[inside])
        )
        new_flags[inside[~stays]] = DIRECT

    new_starts = np.zeros(len(now.rows), dtype=np.uint8)
    kept = np.flatnonzero(((flags & DIRECT) == 0) & (starts > 0))
    at, _ = made.edits.to_new(before.rows[kept], before.starts[kept], before.starts[kept] + 1)
    np.bitwise_or.at(
        new_starts,
        np.searchsorted(now.sort_keys(now.starts), (before.rows[kept] << 32) | at, "right") - 1,
        starts[kept],
    )
    gaps = _rust.mark_spans(
        made.texts,
        new_words,
        made.edits.offsets,
        *(np.ascontiguousarray(bound, dtype=np.int32) for bound in (made.edits.new_start, made.edits.new_end)),
        num_threads=options.get("num_threads", 0),
    ).gaps
    return Rewritten(
        made.texts, new_words, new_flags, new_starts, gaps, _replacement_words(edits, now, new_words, made.labels)
    )


def _replacement_words(
    edits: _Bounds, new_words: _Bounds, segmented: Words, labels: pa.Array
) -> tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array]:
    """Return the words of each replacement in the new texts as ranges of word numbers: offsets by document, first and
    last (exclusive) word, label. Replacements without a word are left out."""
    low, high = new_words.overlapping_ranges(edits)
    met = np.flatnonzero(high > low)
    rows = edits.rows[met]
    firsts, ends = ((bound[met] - segmented.doc_offsets[rows]).astype(np.uint32) for bound in (low, high))
    offsets = np.searchsorted(rows, np.arange(segmented.num_documents + 1)).astype(np.int64)
    return offsets, firsts, ends, labels.take(pa.array(met))


def _occurs_in_replaced(
    originals: tuple[pa.Array, Words, np.ndarray, np.ndarray],
    rewritten: tuple[pa.Array, Words, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Return a mask of some words in rewritten texts: whether the word also occurs in the original passage that was
    replaced at this place, as "Dr" often does in that of a name. ``originals`` and ``rewritten`` are texts with their
    words and the edits.

    ``originals``: texts, their words, and the first and last (exclusive) that each edit replaced. ``rewritten``:
    texts, their words, the numbers of those that are asked for, and of the edit of each.
    """
    texts, words, low, high = originals
    new_texts, new_words, asked, edits = rewritten
    own = [pa.record_batch(cut.surfaces(of)).column("word") for cut, of in ((words, texts), (new_words, new_texts))]
    codes = pa.concat_arrays(own).dictionary_encode().indices.to_numpy().astype(np.int64)
    num_codes, lengths = int(codes.max()) + 1, high - low
    places = np.arange(lengths.sum()) + np.repeat(low - np.cumsum(lengths) + lengths, lengths)
    replaced = np.repeat(np.arange(len(low)), lengths) * num_codes + codes[places]
    return np.isin(edits * num_codes + codes[len(own[0]) + asked], replaced)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Disjoint spans in characters, ascending: document number, start and end of each, int64."""

    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, words: Words, texts: pa.Array) -> _Bounds:
        """Return the bounds of the words of these texts: document, start and end in characters."""
        starts, ends = words.char_spans(texts)
        return cls(_document_of_each(words.doc_offsets), starts.astype(np.int64), ends.astype(np.int64))

    def sort_keys(self, positions: np.ndarray) -> np.ndarray:
        """Return an int64 sort key for each span: its document number in the high 32 bits, its entry of ``positions``
        in the low ones."""
        return (self.rows << 32) | positions

    def overlapping_ranges(self, others: _Bounds) -> tuple[np.ndarray, np.ndarray]:
        """Return for each of the ``others`` the spans of this object that overlap it, which are consecutive, as two
        arrays: index of the first, and index after the last."""
        low = np.searchsorted(self.sort_keys(self.ends), others.sort_keys(others.starts), "right")
        high = np.searchsorted(self.sort_keys(self.starts), others.sort_keys(others.ends), "left")
        return low, np.maximum(low, high)


def _document_of_each(offsets: np.ndarray) -> np.ndarray:
    """Return the document number of each entry, int64, from the entries' CSR offsets by document."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))


def _position_keys(words: Words, starts: np.ndarray) -> np.ndarray:
    """Return one int64 number for the position of each word, which ascends over all documents: its document number
    times 2^32, plus its offset in ``starts``."""
    return (_document_of_each(words.doc_offsets) << 32) + starts
