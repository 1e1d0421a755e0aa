"""Patches: rewritten text as the tokens of its changed regions over the ids of the original (`engine.patched`).

Only regions are rewritten, cut into words and tokenised. All other tokens, words and flags are copies of the original.
The result equals that of the whole rewritten text, token by token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.packed import StoredIds
from reticent.engine.patched_kernels import splice
from reticent.engine.regions import Regions, regions_of, strings_of
from reticent.engine.rewrite import Rewritten, replace_spans, replace_words_by_x
from reticent.engine.schema import DIRECT, INDIRECT, no_token, placed
from reticent.engine.store_writer import PatchWriter

if TYPE_CHECKING:
    from reticent._rust import PackedTokens, TokenEncoder, Words
    from reticent.engine.corpus import Corpus
    from reticent.engine.flagged_words import FlaggedWords
    from reticent.engine.pseudonymize import Style

__all__ = ["PatchMaker"]


class PatchMaker:
    """Writes patches over ids, in any style, any number of times.

    Parameters
    ----------
    flagged : FlaggedWords
        Documents with the flags of their words.
    encoder : TokenEncoder
        Its path is not "library".
    ids : Path
        Folder of the ids of the same corpus and tokenizer.
    kept : Path, optional
        A file that does not exist yet, in a private folder. The first patch writes the regions to it, and later patches
        read no text of the corpus. The file holds the text of the regions.
    """

    def __init__(self, flagged: FlaggedWords, encoder: TokenEncoder, ids: Path, kept: Path | None = None):
        self._flagged, self._encoder, self._kept = flagged, encoder, kept
        self._ids = StoredIds(ids)

    def write(
        self,
        folder: Path,
        style: Style,
        key: bytes,
        options: dict[str, Any],
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        """Write a patch to an existing empty folder; returns the first six counts of `write_tokens`.

        Parameters
        ----------
        style, key : see `pseudonymise_batch`
        options : further options of `pseudonymise_batch`

        Raises
        ------
        CorpusError
            The tokenizer makes no token of a document with words; the message names the document by its place.
        """
        counts = dict.fromkeys(("words", "direct", "indirect", "protected"), 0)
        with PatchWriter(folder, self._encoder.vocab_size) as writer:
            for regions in self._regions():
                made = _remade(regions, self._encoder, style, key, options, self._flagged.corpus)
                num_kept = int(regions.kept_lengths.sum())
                own, rows = made.tokens, regions.rows
                planes = _spliced(regions, own, num_kept)
                num_tokens = num_kept + int(own.doc_offsets[-1])
                places = rows, regions.firsts, regions.replaced, made.num_words
                writer.write(regions.documents, regions.codes, planes, num_tokens, places, own)
                words, indirect = (int(count) for count in regions.kept_counts)
                counts["words"] += words + len(made.flags)
                counts["direct"] += int(np.count_nonzero(made.flags & DIRECT))
                counts["indirect"] += indirect + int(np.count_nonzero(made.flags & INDIRECT))
                counts["protected"] += indirect + int(np.count_nonzero(made.flags))
                if progress:
                    progress(int(regions.documents[-1]) + 1)
        return {"documents": writer.num_documents, "tokens": writer.num_tokens, **counts}

    def _regions(self) -> Iterator[Regions]:
        if self._kept is not None and self._kept.exists():
            with self._kept.open("rb") as file:
                size = self._kept.stat().st_size
                while file.tell() < size:
                    yield Regions.load(file)
            return
        if self._kept is None:
            yield from self._read()
            return
        unfinished = self._kept.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            for regions in self._read():
                regions.save(file)
                yield regions
        unfinished.rename(self._kept)

    def _read(self) -> Iterator[Regions]:
        flagged = self._flagged
        for documents in flagged:
            spans = flagged.spans_of(documents.part, documents.words)
            yield regions_of(documents, spans, self._ids, num_threads=flagged.num_threads)


@dataclass(slots=True)
class _Remade:
    """Regions after rewriting: their tokens, the number of words of each (int64), and the words' flags (uint8)."""

    tokens: PackedTokens
    num_words: np.ndarray
    flags: np.ndarray


def _remade(
    regions: Regions, encoder: TokenEncoder, style: Style, key: bytes, options: dict[str, Any], corpus: Corpus
) -> _Remade:
    from reticent import _rust

    threads = options.get("num_threads", 0)
    texts, spans = regions.texts, regions.spans
    words = _rust.segment(texts, num_threads=threads)
    if style == "x":
        gaps = _rust.gaps_in_spans(texts, words, *spans[:3], num_threads=threads)
        made = replace_words_by_x(texts, words, regions.flags, regions.ngram_starts, gaps, num_threads=threads)
    else:
        if style == "rotate":  # a rotating surrogate is drawn by its place in the document
            options = {**options, "left_out": regions.left_out}
        made = replace_spans(regions.batch(), words, regions.flags, regions.ngram_starts, spans, style, key, **options)
    bounds, firsts = _joints(regions, made)
    parts = strings_of(bounds, np.frombuffer(made.texts.buffers()[2] or b"", dtype=np.uint8))
    part_words = _rust.segment(parts, num_threads=threads)
    if part_words.num_words != made.words.num_words:
        raise AssertionError("words of a region depend on what stands beside it")
    part_gaps = _parted_gaps(regions, made, firsts, parts, part_words, threads)
    try:
        tokens = encoder.pack(parts, part_words, made.flags, made.ngram_starts, gaps=part_gaps)
    except CorpusError as error:
        rows = regions.rows
        raise placed(error, lambda region: corpus.place(int(regions.documents[rows[region]]))) from None
    num_tokens = _by_document(np.diff(tokens.doc_offsets), regions.offsets) + regions.kept_lengths
    passed_over = np.flatnonzero((regions.num_words > 0) & (num_tokens == 0))
    if len(passed_over):
        row = int(passed_over[0])
        raise CorpusError(f"{corpus.place(int(regions.documents[row]))}: {no_token(int(regions.num_words[row]))}")
    return _Remade(tokens, np.diff(part_words.doc_offsets), made.flags)


def _joints(regions: Regions, made: Rewritten) -> tuple[np.ndarray, np.ndarray]:
    """Return where regions begin in the rewritten texts.

    Returns
    -------
    bytes : int64 array, shape (R + 1,)
        First byte of each region through all texts, and the end of the last one.
    characters : int64 array, shape (R,)
        First character of each region within its text; empty where no edits are known.
    """
    offsets = np.frombuffer(made.texts.buffers()[1], dtype=np.int64)[: len(made.texts) + 1]
    rows = regions.rows
    is_first = regions.joints == 0
    if made.places is not None:
        # A region that is not the first begins with a space before its first word.
        places = np.append(made.places, 0)[np.minimum(regions.words, len(made.places))]
        return np.append(offsets[rows] + np.where(is_first, 0, places - 1), offsets[-1]), np.zeros(0, dtype=np.int64)
    assert made.edits is not None
    chars, _ = made.edits.to_new(rows, regions.joints, regions.joints + 1)
    chars = np.where(is_first, 0, chars)
    data = np.frombuffer(made.texts.buffers()[2] or b"", dtype=np.uint8)[: offsets[-1]]
    leads = (data & 0xC0) != 0x80
    if leads.all():
        return np.append(offsets[rows] + chars, offsets[-1]), chars
    first_bytes = np.append(np.flatnonzero(leads), len(data))
    chars_before = np.searchsorted(first_bytes, offsets[rows])
    return np.append(first_bytes[chars_before + chars], offsets[-1]), chars


def _parted_gaps(
    regions: Regions, made: Rewritten, firsts: np.ndarray, parts: pa.Array, part_words: Words, threads: int
) -> Words | None:
    """Return the gaps of the rewritten texts as gaps of the regions; None where there are none."""
    from reticent import _rust

    if made.gaps is None:
        return None
    starts, ends = (bound.astype(np.int64) for bound in made.gaps.char_spans(made.texts))
    rows = np.repeat(np.arange(len(made.texts)), np.diff(made.gaps.doc_offsets))
    region = np.searchsorted((regions.rows << 32) | firsts, (rows << 32) | starts, "right") - 1
    offsets = np.searchsorted(region, np.arange(len(parts) + 1)).astype(np.int64)
    bounds = ((bound - firsts[region]).astype(np.int32) for bound in (starts, ends))
    return _rust.gaps_in_spans(parts, part_words, offsets, *bounds, num_threads=threads)


def _by_document(numbers: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    sums = np.concatenate([[0], np.cumsum(numbers)])
    return sums[offsets[1:]] - sums[offsets[:-1]]


def _spliced(regions: Regions, own: PackedTokens, num_kept: int) -> Any:
    """Return the planes of the new tokens of these documents: direct, indirect, and starts of n-grams."""
    offsets, before = own.doc_offsets, regions.kept_before
    num_own = int(offsets[-1])
    kept_bits = np.unpackbits(regions.indirect, count=num_kept, bitorder="little")
    planes = []
    for kept, bits in ((np.zeros_like(kept_bits), own.direct), (kept_bits, own.indirect)):
        made = np.unpackbits(bits, count=num_own, bitorder="little")
        planes.append(np.packbits(splice(kept, made, before, offsets), bitorder="little"))
    kept_tokens = regions.kept_tokens + offsets[np.searchsorted(before, regions.kept_tokens, "right")]
    own_tokens = own.ngram_tokens
    own_tokens = own_tokens + before[np.searchsorted(offsets, own_tokens, "right") - 1]
    tokens = np.concatenate([kept_tokens, own_tokens])
    order = np.argsort(tokens, kind="stable")
    lengths = np.concatenate([regions.kept_ngrams, own.ngram_lengths])
    return SimpleNamespace(
        direct=planes[0], indirect=planes[1], ngram_tokens=tokens[order], ngram_lengths=lengths[order]
    )
