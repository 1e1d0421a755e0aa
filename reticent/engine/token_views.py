"""Views: the documents of some splits over the token ids of one tokenizer, with the flags that protect their tokens.

A view is made from numbers alone: ids and their bits, word ids, word spans and supports
(:mod:`reticent.engine.single_pass` makes the first three). Neither text nor tokenizer is read, so another split, k, n
or policy costs little. It holds, bit for bit, what looking words up in the text gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.packed import StoredIds, mapped_column
from reticent.engine.schema import DIRECT, INDIRECT, no_token_message
from reticent.engine.single_pass import GAPS
from reticent.engine.store_writer import ViewWriter
from reticent.engine.threads import worked_ahead
from reticent.engine.word_ids import NumberedWords, WordSpans

if TYPE_CHECKING:
    from reticent._rust import Planes, _NumberedDocuments
    from reticent.engine.corpus import Corpus
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.protect import Policy
    from reticent.engine.split import Individuals

#: Words that are flagged at a time.
WORDS_AT_ONCE = 1 << 21
#: Scopes as the core numbers them.
SCOPES = {"occurrence": 0, "individual": 1, "corpus": 2}
#: Flag of words that are too common to identify anybody (`_rust.Numbering.flag_words`).
WIDESPREAD = 4


def num_set(bits: np.ndarray) -> int:
    """Return the number of bits that are 1 in an array of integers."""
    return int(np.bitwise_count(bits).sum())


def document_codes(
    owners: pa.ChunkedArray, individuals: Individuals | None, splits: tuple[str, ...] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays with an entry for each document: the integer codes of its individual and of its household
    (or individual), uint32, and whether it is in one of these splits. ``owners`` has the documents' individual ids.

    Without ``individuals`` each document is an individual of its own; without ``splits`` all documents count.

    Raises
    ------
    CorpusError
        None belongs to the splits.
    """
    if individuals is None:
        codes = units = np.arange(len(owners), dtype=np.uint32)
        kept = np.ones(len(codes), dtype=bool)
    else:
        codes = individuals.individual_codes(owners).astype(np.uint32)
        units = individuals.units[codes].astype(np.uint32)
        kept = individuals.mask(*splits)[codes] if splits else np.ones(len(codes), dtype=bool)
    if not kept.any():
        raise CorpusError(f"no document belongs to the splits {', '.join(splits or ())}")
    return codes, units, kept


@dataclass(slots=True)
class NumberedCorpus:
    """The words and identifier spans of a corpus as numbers, from which protection is computed without text.

    Attributes
    ----------
    words : NumberedWords
    word_spans : WordSpans
    index : index whose rows number the words
    owners : the ids of the individuals of these documents
    rows : their rows in the corpus, int64, ascending; None: all
    """

    corpus: Corpus
    words: NumberedWords
    word_spans: WordSpans
    index: NgramIndex
    owners: pa.ChunkedArray
    rows: np.ndarray | None = None


def write_view(
    folder: Path,
    ids: Path,
    gaps: Path,
    numbered: NumberedCorpus,
    individuals: Individuals | None,
    *,
    splits: tuple[str, ...] | None,
    index: NgramIndex,
    policy: Policy,
    num_threads: int = 0,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the protection flags of all tokens of the documents in ``splits`` to ``folder``; return counts. They are
    computed without the text, from stored token ids (``ids``), word numbers and identifier spans (``numbered``), and
    bits that mark tokens of identifiers between words (``gaps``).

    Parameters
    ----------
    ids, gaps : folders that one pass over the text made
    index : the index whose supports protect; it counts words by the surface of ``numbered.index``

    Raises
    ------
    CorpusError
        No document belongs to the splits, or one has words and no token.
    ArtifactError
        The numbers do not fit each other.

    Cost: two passes over the numbers, 10 to 50 ns a word of a core, 5 ns for n = 1; memory is that of the blacklist,
    the tables of n-grams and three blocks.
    """

    stored = StoredIds(ids)
    view = _View(numbered, stored, individuals, splits, policy)
    numbering = numbered.index.numbering(
        index,
        k=policy.k,
        n=policy.n,
        policy=policy.policy,
        max_document_frequency=policy.max_document_frequency,
        num_threads=num_threads,
    )
    for block in view.blocks():
        numbering.add(block.words)
    in_gaps = mapped_column(gaps / GAPS, np.dtype("<u8"), -(-stored.num_tokens // 64)).view(np.uint8)
    bits = stored.begins.view(np.uint8), stored.outside.view(np.uint8)

    def protect_block(block: _Block) -> _Protected:
        """Return the protection flags of the tokens in a block of documents, with counts of words and tokens."""
        flags, starts = numbering.flag_words(block.words)
        exceptions = stored.exceptions_of(block.first, block.first + len(block.kept))

        def token_flags(gaps: np.ndarray | None, flags: np.ndarray, starts: np.ndarray) -> Planes:
            """Return the protection flags of the block's tokens as bit arrays, given for each word its flags and the
            n-grams that start at it, and for each token whether it lies in an identifier between words (``gaps``, bits
            or None)."""
            return _rust.planes(
                *bits, gaps, *exceptions, block.token_offsets, flags, starts, block.word_offsets, block.kept,
                num_threads=num_threads,
            )  # fmt: skip

        # Of the words that identify nobody, those that are direct; where n-grams start is not asked of them.
        common = flags & WIDESPREAD
        flags &= DIRECT | INDIRECT
        lost = token_flags(None, (common != 0) * (flags & DIRECT | INDIRECT), np.zeros_like(starts))
        return _Protected.of(block, flags, token_flags(in_gaps, flags, starts), lost)

    counts: dict[str, int] = {}
    with ViewWriter(folder) as writer:
        for block, found in worked_ahead(view.blocks(), protect_block):
            writer.write(block.first + found.rows, block.codes[found.rows], found.planes, found.num_tokens)
            writer.write_untold(found.planes, found.counts["words"])
            counts = {name: counts.get(name, 0) + count for name, count in found.counts.items()}
            if progress:
                progress(block.first + len(block.kept))
    return {
        "documents": writer.num_documents,
        "tokens": writer.num_tokens,
        **counts,
        "retention": 1.0 - counts["protected_tokens"] / max(writer.num_tokens, 1),
        "common_lost": counts["common_direct_tokens"] / max(counts["common_tokens"], 1),
        "blacklisted": numbering.num_blacklisted,
    }


@dataclass(slots=True)
class _Protected:
    """The kept documents of a block by position, the protection bits of their tokens, and counts of words."""

    rows: np.ndarray
    planes: Planes
    num_tokens: int
    counts: dict[str, int]

    @classmethod
    def of(cls, block: _Block, flags: np.ndarray, planes: Planes, common_planes: Planes) -> _Protected:
        """Return the protection flags of the wanted documents of a block, with counts. ``flags`` are those of the
        words, ``planes`` those of the tokens; ``common_planes`` marks tokens of words that are too common to identify
        anybody."""
        rows = np.flatnonzero(block.kept)
        counts = {
            "words": int(np.diff(block.word_offsets)[rows].sum()),
            "direct": int(np.count_nonzero(flags & DIRECT)),
            "indirect": int(np.count_nonzero(flags & INDIRECT)),
            "protected": int(np.count_nonzero(flags)),
            "protected_tokens": num_set(planes.direct | planes.indirect),
            "common_tokens": num_set(common_planes.indirect),
            "common_direct_tokens": num_set(common_planes.direct),
        }
        return cls(rows, planes, int(np.diff(block.token_offsets)[rows].sum()), counts)


@dataclass(slots=True)
class _Block:
    """Consecutive documents as arrays, in the form that the Rust core takes."""

    first: int
    kept: np.ndarray
    codes: np.ndarray
    word_offsets: np.ndarray
    token_offsets: np.ndarray
    #: As `_rust.Numbering` takes documents.
    words: _NumberedDocuments


class _View:
    """The documents of a corpus in blocks, with a mask of those that belong to the splits."""

    def __init__(
        self,
        numbered: NumberedCorpus,
        stored: StoredIds,
        individuals: Individuals | None,
        splits: tuple[str, ...] | None,
        policy: Policy,
    ):
        self._numbered = numbered
        self._codes, self._units, self._kept = document_codes(numbered.owners, individuals, splits)
        scopes = [SCOPES[policy.scope_of(label)] for label in numbered.word_spans.names]
        self._scopes = np.array(scopes or [0], dtype=np.uint8)
        self._token_offsets, self._word_offsets = stored.doc_offsets, numbered.words.doc_offsets
        lengths = [
            len(offsets) - 1
            for offsets in (stored.doc_offsets, numbered.words.doc_offsets, numbered.word_spans.doc_offsets)
        ]
        if lengths != [len(self._codes)] * 3:
            raise ArtifactError(f"{stored.folder}: ids, words, spans and documents differ in number; run protect again")
        passed_over = (np.diff(self._word_offsets) > 0) & (np.diff(self._token_offsets) == 0) & self._kept
        if passed_over.any():
            row = int(np.argmax(passed_over))
            place = numbered.corpus.place(row if numbered.rows is None else int(numbered.rows[row]))
            raise CorpusError(
                f"{place}: {no_token_message(int(self._word_offsets[row + 1] - self._word_offsets[row]))}"
            )

    def blocks(self) -> Iterator[_Block]:
        """Yield consecutive documents in blocks of about `WORDS_AT_ONCE` words: their stored word numbers and
        identifier spans, and their offsets in words and tokens."""
        spans = self._numbered.word_spans
        num_documents, first = len(self._codes), 0
        while first < num_documents:
            full = self._word_offsets[first] + WORDS_AT_ONCE
            end = min(max(int(np.searchsorted(self._word_offsets, full, "right")) - 1, first + 1), num_documents)
            block = slice(first, end)
            span_offsets = spans.doc_offsets[first : end + 1]
            own = slice(*span_offsets[[0, -1]])
            word_offsets = self._word_offsets[first : end + 1] - self._word_offsets[first]
            yield _Block(
                first,
                self._kept[block],
                self._codes[block],
                word_offsets,
                self._token_offsets[first : end + 1],
                (
                    self._numbered.words.stored,
                    self._numbered.words.first_bytes[block],
                    word_offsets,
                    self._units[block],
                    self._kept[block],
                    span_offsets - span_offsets[0],
                    spans.firsts[own],
                    spans.ends[own],
                    self._scopes[spans.labels[own]],
                ),
            )
            first = end
