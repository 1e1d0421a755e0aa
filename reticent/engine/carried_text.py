"""Results of a pass over the text that an earlier run has made: they are copied, and the text of their documents is not
read (:mod:`reticent.engine.text_pass`).

Ids, bits and words of spans are copied as they are, numbers of words as the rows that the words have in the new index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.engine.carry import spans_of
from reticent.engine.carry_kernels import copy_bits, copy_bytes
from reticent.engine.numbered import NumberedWords, WordSpans
from reticent.engine.packed import StoredIds, mapped_column
from reticent.engine.text_pass import GAPS

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.spans import SpanReader

__all__ = ["CarriedText", "CarriedTokens", "CarriedWords", "same_spans"]

#: Documents that are copied together.
AT_ONCE = 2048


def same_spans(before: SpanReader, after: SpanReader, rows: np.ndarray) -> np.ndarray:
    """Return ``rows`` with -1 for documents whose spans begin or end elsewhere now."""
    kept, columns = rows.copy(), ["document", "start", "end"]
    for first in range(0, len(rows), AT_ONCE):
        documents = first + np.flatnonzero(rows[first : first + AT_ONCE] >= 0)
        old_offsets, old = spans_of(before, rows[documents], columns)
        offsets, new = after.of_documents(documents, columns)
        differ = np.diff(old_offsets) != np.diff(offsets)
        lengths = np.where(differ, 0, np.diff(offsets))
        owners = np.repeat(np.arange(len(documents)), lengths)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        for name in ("start", "end"):
            ours = old.column(name).to_numpy()[old_offsets[owners] + places]
            theirs = new.column(name).to_numpy()[offsets[owners] + places]
            differ[owners[ours != theirs]] = True
        kept[documents[differ]] = -1
    return kept


class CarriedTokens:
    """Tokens of one tokenizer, and those that spans hold between words, by documents of the earlier run."""

    def __init__(self, ids: Path, gaps: Path):
        self.stored = StoredIds(ids)
        self.gaps = mapped_column(gaps / GAPS, np.dtype("<u8"), -(-self.stored.num_tokens // 64))
        #: Exceptions before each document.
        self.exceptions = np.searchsorted(self.stored.exceptions, self.stored.doc_offsets)

    def joined(self, layout: _Layout, fresh: Any) -> Any:
        """The tokens of documents, as `_rust.PackedTokens`."""
        old = self.stored
        tokens = layout.column(old.doc_offsets, None if fresh is None else fresh.doc_offsets)
        found = None if fresh is None else np.searchsorted(fresh.exceptions, fresh.doc_offsets)
        exceptions = layout.column(self.exceptions, found)
        own = {
            name: exceptions.values(getattr(old, name), None if fresh is None else getattr(fresh, name))
            for name in ("exceptions", "skipped", "more")
        }
        own["exceptions"] += np.repeat(tokens.places - tokens.starts, exceptions.lengths)
        bits = {
            name: tokens.bits(getattr(old, name), None if fresh is None else getattr(fresh, name))
            for name in ("begins", "outside")
        }
        return SimpleNamespace(
            doc_offsets=tokens.offsets,
            ids=tokens.values(old.ids, None if fresh is None else fresh.ids),
            high=tokens.values(old.high, None if fresh is None else fresh.high) if old.is_wide else old.high,
            direct=tokens.bits(self.gaps, None if fresh is None else fresh.direct),
            **bits,
            **own,
        )


class CarriedWords:
    """Numbers of words, which are rows of another index now.

    Parameters
    ----------
    folder : of the numbers of then
    before, after : string arrays, the words of both indexes by their rows
    """

    def __init__(self, folder: Path, before: pa.Array, after: pa.Array):
        from reticent import _rust

        self._numbered = NumberedWords(folder)
        rows = _rust.IdRows(after).rows(before)
        self._has_new = int(np.count_nonzero(rows != _rust.MISSING)) < len(after)
        #: By number, and behind the last for a word that had none.
        self._rows = np.append(rows, np.uint32(_rust.MISSING))

    def known(self, rows: np.ndarray) -> np.ndarray:
        """Return ``rows`` with -1 for documents with a word that had no row before and may have one now."""
        kept, offsets = rows.copy(), self._numbered.doc_offsets
        documents = np.flatnonzero(rows >= 0) if self._has_new else np.empty(0, dtype=np.int64)
        for first in range(0, len(documents), AT_ONCE):
            own = documents[first : first + AT_ONCE]
            ends = np.cumsum(offsets[rows[own] + 1] - offsets[rows[own]])
            is_unknown = self._numbered.of(rows[own]) >= len(self._rows) - 1
            num_before = np.concatenate([[0], np.cumsum(is_unknown)])
            kept[own[np.diff(num_before[ends], prepend=0) > 0]] = -1
        return kept

    def joined(self, layout: _Layout, fresh: np.ndarray | None, offsets: np.ndarray | None) -> tuple[Any, np.ndarray]:
        """Return the numbers of documents, and the number of words before each document."""
        old = self._numbered.of(layout.numbers[layout.is_old])
        words = layout.column(self._numbered.doc_offsets, offsets)
        lengths = words.lengths[layout.is_old]
        words.starts[layout.is_old] = np.cumsum(lengths) - lengths  # in ``old``
        return words.values(self._rows[np.minimum(old, len(self._rows) - 1)], fresh), words.offsets


@dataclass(slots=True)
class CarriedText:
    """Parts of an earlier run's pass over the text.

    Attributes
    ----------
    rows : int64 array, shape (num_documents,)
        The number that each document has there, or -1 where its text is read.
    words : of the numbers of words, or None where they are not wanted
    word_spans : words of the spans of then, or None where they are not wanted
    tokens : by tokenizer, as `TextPass.encodings`
    """

    rows: np.ndarray
    words: CarriedWords | None
    word_spans: WordSpans | None
    tokens: list[CarriedTokens]

    def joined(
        self, corpus: Corpus, spans: SpanReader | None, documents: tuple[int, int], read: np.ndarray, fresh: Any
    ) -> Iterator[tuple[pa.Array, Any]]:
        """Yield ids of documents with the results of a pass over them; documents that were read stand in their places.

        Parameters
        ----------
        documents : the first document, and the end
        read : int64 array, the documents among these that were read
        fresh : the results of these; None where there are none
        """
        doc_ids = corpus.scan().column("doc_id")
        for first in range(*documents, AT_ONCE):
            end = min(first + AT_ONCE, documents[1])
            layout = _Layout(self.rows[first:end], int(np.searchsorted(read, first)))
            yield doc_ids.slice(first, end - first).combine_chunks(), self._block(layout, spans, first, fresh)

    def _block(self, layout: _Layout, spans: SpanReader | None, first: int, fresh: Any) -> Any:
        numbers = word_offsets = marked = None
        if self.words is not None:
            of_fresh = (None, None) if fresh is None else (fresh.numbers, fresh.word_offsets)
            numbers, word_offsets = self.words.joined(layout, *of_fresh)
        if self.word_spans is not None:
            column = layout.column(self.word_spans.doc_offsets, None if fresh is None else fresh.spans[0])
            assert spans is not None
            _, _, _, labels = spans.slice(first, len(layout.is_old))
            ours = self.word_spans.firsts, self.word_spans.ends
            marked = (
                column.offsets,
                *map(column.values, ours, (None, None) if fresh is None else fresh.spans[1:3]),
                labels,
            )
        tokens = [own.joined(layout, None if fresh is None else fresh.tokens[at]) for at, own in enumerate(self.tokens)]
        return SimpleNamespace(numbers=numbers, word_offsets=word_offsets, spans=marked, tokens=tokens)


class _Layout:
    """The documents of a block: those taken from an earlier run, and those read now.

    Parameters
    ----------
    rows : int64 array, shape (D,): numbers of then, or -1
    first : place of the first document that was read among those of its batch
    """

    def __init__(self, rows: np.ndarray, first: int):
        self.is_old = rows >= 0
        # Of each document, its number among those of its source.
        self.numbers = np.where(self.is_old, rows, first + np.cumsum(~self.is_old) - 1)

    def column(self, old: np.ndarray, fresh: np.ndarray | None) -> _Column:
        """Entries of these documents, given how many there are before each in the two sources (int64)."""
        starts, lengths = np.empty((2, len(self.numbers)), dtype=np.int64)
        for source, chosen in ((old, self.is_old), (fresh, ~self.is_old)):
            if source is not None:
                numbers = self.numbers[chosen]
                starts[chosen], lengths[chosen] = source[numbers], source[numbers + 1] - source[numbers]
        return _Column(self.is_old, starts, lengths)


class _Column:
    """Entries of documents: their first place in the source, their number, and their first place in the result."""

    def __init__(self, is_old: np.ndarray, starts: np.ndarray, lengths: np.ndarray):
        self._is_old, self.starts, self.lengths = is_old, starts, lengths
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.places = self.offsets[:-1]

    def values(self, old: np.ndarray, fresh: np.ndarray | None) -> np.ndarray:
        """Entries of one type, from both sources."""
        out = np.empty(int(self.offsets[-1]), dtype=old.dtype)
        for source, chosen in ((old, self._is_old), (fresh, ~self._is_old)):
            if source is not None:
                ranges = (part[chosen] * old.itemsize for part in (self.starts, self.lengths, self.places))
                starts, lengths, places = ranges
                data = np.ascontiguousarray(source, dtype=old.dtype).view(np.uint8)
                copy_bytes(data, starts, lengths, out.view(np.uint8), places)
        return out

    def bits(self, old: np.ndarray, fresh: np.ndarray | None) -> np.ndarray:
        """One bit an entry, as bytes; ``old`` are uint64, ``fresh`` bytes."""
        num_bits = int(self.offsets[-1])
        out = np.zeros(-(-num_bits // 64), dtype=np.uint64)
        if fresh is not None:
            fresh = np.append(fresh, np.zeros(-len(fresh) % 8, dtype=np.uint8)).view(np.uint64)
        for source, chosen in ((old, self._is_old), (fresh, ~self._is_old)):
            if source is not None:
                copy_bits(source, self.starts[chosen], self.lengths[chosen], out, self.places[chosen])
        return out.view(np.uint8)[: -(-num_bits // 8)]
