"""Documents, spans and index -> protected tokens of one tokenizer: the stage where protection meets tokens.

Two passes. The first collects the surfaces of direct identifiers whose scope goes beyond their span; the second flags
words, tokenises, aligns and writes. Strings are Rust's: this file moves batches.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.engine.protect import Policy
from reticent.engine.pseudonymize import pseudonymise as replace_by_x
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import ShardWriter
from reticent.errors import CorpusError

if TYPE_CHECKING:
    from reticent._rust import Blacklist, NgramIndex, Words
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.split import Individuals

__all__ = ["FlaggedWords", "Part", "write_tokens"]


def write_tokens(
    folder: Path | str,
    corpus: Corpus,
    individuals: Individuals | None,
    tokenizer_json: str,
    *,
    splits: tuple[str, ...] | None = None,
    index: NgramIndex | None = None,
    spans: SpanReader | None = None,
    policy: Policy | None = None,
    pseudonymise: bool = False,
    text_sizes: bool = False,
    progress: Callable[[int], None] | None = None,
    num_threads: int = 0,
) -> dict[str, Any]:
    """Write the protected tokens of the documents of ``splits`` (all documents if None); returns counts.

    Parameters
    ----------
    individuals : Individuals or None
        None is for text that is nobody's: every document then counts as its own individual.
    index, spans : optional
        What makes words indirect and direct; without them no word is.
    pseudonymise : bool
        Replace each direct word by ``X`` before tokenising; the text that is written then holds no direct word, and
        its flags are the indirect ones of the words that are left.
    text_sizes : bool
        Also write ``text_sizes.parquet`` (num_bytes, zlib_bytes of the text of each document that was tokenised), for
        the zlib attack.

    Returns
    -------
    dict
        documents, tokens, words, direct, indirect, protected (words), retention (share of words not protected),
        blacklisted (surfaces protected beyond their span), pretokens ("bert" or "bytelevel" where each distinct one
        was tokenised once, "library" where documents went through the tokenizers library whole).

    Raises
    ------
    CorpusError
        No document belongs to the splits, or a span does not fit its text.

    Cost: two passes over the text (one without spans); memory is one batch and the blacklist.
    """
    from reticent import _rust

    folder = Path(folder)
    encoder = _rust.TokenEncoder(tokenizer_json, num_threads=num_threads)
    flagged = FlaggedWords(
        corpus, individuals, splits=splits, index=index, spans=spans, policy=policy, num_threads=num_threads
    )
    writer = ShardWriter(folder, encoder.vocab_size)
    counts = dict.fromkeys(("words", "direct", "indirect", "protected"), 0)
    sizes: list[np.ndarray] = []
    for part, words, flags, starts in flagged:
        texts = part.texts
        if pseudonymise:
            texts, words, flags, starts = _pseudonymised(texts, words, flags, starts, num_threads)
        tokens = encoder.encode(texts, words, flags, starts)
        writer.write(
            part.doc_ids, part.codes, tokens.doc_offsets, tokens.input_ids, tokens.word_ids, tokens.flags,
            tokens.ngram_starts,
        )  # fmt: skip
        counts["words"] += len(flags)
        counts["direct"] += int(np.count_nonzero(flags & DIRECT))
        counts["indirect"] += int(np.count_nonzero(flags & INDIRECT))
        counts["protected"] += int(np.count_nonzero(flags))
        if text_sizes:
            sizes.append(_text_sizes(texts, num_threads))
        if progress:
            progress(part.last_document)
    writer.close()
    if writer.num_documents == 0:
        raise CorpusError(f"no document belongs to the splits {', '.join(splits or ())}")
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    if text_sizes:
        both = np.concatenate(sizes)
        pq.write_table(pa.table({"num_bytes": both[:, 0], "zlib_bytes": both[:, 1]}), folder / "text_sizes.parquet")
    return {
        "documents": writer.num_documents,
        "tokens": writer.num_tokens,
        **counts,
        "retention": 1.0 - counts["protected"] / max(counts["words"], 1),
        "blacklisted": flagged.num_blacklisted,
        "pretokens": encoder.path,
    }


class FlaggedWords:
    """The documents of some splits, batch by batch, with the flags of their words.

    Iterating gives (`Part`, `Words`, flags uint8 (W,) of `DIRECT` and `INDIRECT`, ngram_starts uint8 (W,)), where bit
    n - 1 of the last says that a minimal identifying n-gram starts at that word. Parameters as of `write_tokens`.

    Cost: a pass over the text when made (with spans), and one for each iteration; memory is one batch and the
    blacklist.
    """

    def __init__(
        self,
        corpus: Corpus,
        individuals: Individuals | None,
        *,
        splits: tuple[str, ...] | None = None,
        index: NgramIndex | None = None,
        spans: SpanReader | None = None,
        policy: Policy | None = None,
        num_threads: int = 0,
    ):
        self._selection = _Selection(corpus, individuals, splits)
        self._index, self._spans, self._policy, self._threads = index, spans, policy or Policy(), num_threads
        self._blacklist = (
            _collect(self._selection, spans, self._policy, index, num_threads) if spans is not None else None
        )

    @property
    def num_blacklisted(self) -> int:
        """Surfaces protected beyond their span."""
        return self._blacklist.num_surfaces if self._blacklist is not None else 0

    def __iter__(self) -> Iterator[tuple[Part, Words, np.ndarray, np.ndarray]]:
        from reticent import _rust

        policy, threads = self._policy, self._threads
        for part in self._selection.batches():
            words = _rust.segment(part.texts, num_threads=threads)
            flags = np.zeros(words.num_words, dtype=np.uint8)
            starts = np.zeros(words.num_words, dtype=np.uint8)
            if self._spans is not None and self._blacklist is not None:
                direct = _rust.cover_spans(part.texts, words, *part.spans(self._spans)[:3], num_threads=threads)
                direct |= self._blacklist.match(part.texts, words, part.units, num_threads=threads)
                flags |= direct * np.uint8(DIRECT)
            if self._index is not None:
                indirect, starts = self._index.protect(
                    part.texts,
                    words,
                    k=policy.k,
                    n=policy.n,
                    policy=policy.policy,
                    max_document_frequency=policy.max_document_frequency,
                    num_threads=threads,
                )
                flags |= indirect
            yield part, words, flags, starts


class Part:
    """The documents of one batch that are wanted, and where they stand in the corpus."""

    def __init__(self, batch: pa.RecordBatch, first: int, keep: np.ndarray, codes: np.ndarray, units: np.ndarray):
        self.first, self.num_rows, self.keep = first, batch.num_rows, keep
        whole = keep.all()
        self.texts = batch.column("text") if whole else batch.column("text").filter(pa.array(keep))
        self.doc_ids = batch.column("doc_id") if whole else batch.column("doc_id").filter(pa.array(keep))
        self.codes = np.ascontiguousarray(codes[keep], dtype=np.uint32)
        self.units = np.ascontiguousarray(units[keep], dtype=np.uint32)
        self.last_document = first + batch.num_rows

    def spans(self, reader: SpanReader) -> tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array]:
        """Spans of the kept documents, in `SpanReader.slice`'s layout."""
        offsets, starts, ends, labels = reader.slice(self.first, self.num_rows)
        if not self.keep.all():
            kept_spans = np.repeat(self.keep, np.diff(offsets))
            lengths = np.diff(offsets)[self.keep]
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            starts, ends, labels = starts[kept_spans], ends[kept_spans], labels.filter(pa.array(kept_spans))
        return offsets, np.ascontiguousarray(starts), np.ascontiguousarray(ends), labels


class _Selection:
    """The documents of some splits, batch by batch."""

    def __init__(self, corpus: Corpus, individuals: Individuals | None, splits: tuple[str, ...] | None):
        self.corpus, self.individuals, self.splits = corpus, individuals, splits

    def batches(self) -> Iterator[Part]:
        first = 0
        wanted = self.individuals.mask(*self.splits) if self.individuals is not None and self.splits else None
        for batch in self.corpus.batches(columns=("doc_id", "individual_id", "text")):
            if self.individuals is None:
                codes = units = np.arange(first, first + batch.num_rows, dtype=np.uint32)
            else:
                codes = self.individuals.individual_codes(batch.column("individual_id"))
                units = self.individuals.units[codes]
            keep = wanted[codes] if wanted is not None else np.ones(batch.num_rows, dtype=bool)
            if keep.any():
                yield Part(batch, first, keep, codes, units)
            first += batch.num_rows


def _collect(
    selection: _Selection, spans: SpanReader, policy: Policy, index: NgramIndex | None, num_threads: int
) -> Blacklist:
    """First pass: the surfaces whose scope is the individual or the corpus."""
    from reticent import _rust

    blacklist = _rust.Blacklist(surface=index.surface if index is not None else "exact")
    for part in selection.batches():
        offsets, starts, ends, labels = part.spans(spans)
        if not len(starts):
            continue
        words = _rust.segment(part.texts, num_threads=num_threads)
        encoded = labels.dictionary_encode()
        scopes = np.array([policy.scope_of(label) for label in encoded.dictionary.to_pylist()], dtype=object)
        scope_of_span = scopes[encoded.indices.to_numpy()]
        for scope, units in (("corpus", None), ("individual", part.units)):
            chosen = scope_of_span == scope
            if chosen.any():
                of_scope = _subset(offsets, starts, ends, chosen)
                mask = _rust.cover_spans(part.texts, words, *of_scope, num_threads=num_threads)
                blacklist.add(part.texts, words, mask, units)
    return blacklist


def _subset(
    offsets: np.ndarray, starts: np.ndarray, ends: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    before = np.concatenate([[0], np.cumsum(chosen)]).astype(np.int64)
    return before[offsets], np.ascontiguousarray(starts[chosen]), np.ascontiguousarray(ends[chosen])


def _pseudonymised(
    texts: pa.Array, words: Words, flags: np.ndarray, starts: np.ndarray, num_threads: int
) -> tuple[pa.Array, Words, np.ndarray, np.ndarray]:
    """Texts with X for direct words, their words, and the flags and starts of what is left; X is nobody's word: 0."""
    from reticent import _rust

    direct = (flags & DIRECT) > 0
    texts = replace_by_x(texts, words, direct.astype(np.uint8), num_threads=num_threads)
    replaced = _rust.segment(texts, num_threads=num_threads)
    # An X can join what a number kept apart ("5.Smith" is two words, "X.Smith" one), so words are found by their place.
    kept = np.flatnonzero(~direct)
    now = _places(replaced, replaced.starts)
    at = np.searchsorted(now, _places(words, _starts_after(words, direct))[kept], side="right") - 1
    new_flags, new_starts = (np.zeros(replaced.num_words, dtype=np.uint8) for _ in range(2))
    np.bitwise_or.at(new_flags, at, flags[kept])
    np.bitwise_or.at(new_starts, at, starts[kept])
    return texts, replaced, new_flags, new_starts


def _starts_after(words: Words, direct: np.ndarray) -> np.ndarray:
    """Byte offset of each word in its own document once direct words are one byte long, int64."""
    starts = words.starts.astype(np.int64)
    shorter = np.where(direct, words.ends - starts - 1, 0)
    before = np.concatenate([[0], np.cumsum(shorter)])
    first = np.repeat(words.doc_offsets[:-1], np.diff(words.doc_offsets))
    return starts - (before[:-1] - before[first])


def _places(words: Words, starts: np.ndarray) -> np.ndarray:
    """Document and byte offset of each word as one ascending number, int64 (offsets have 32 bits)."""
    documents = np.repeat(np.arange(words.num_documents, dtype=np.int64), np.diff(words.doc_offsets))
    return (documents << 32) + starts


def _text_sizes(texts: pa.Array, num_threads: int) -> np.ndarray:
    """Bytes of each text and of its zlib compression, int64, shape (D, 2); zlib releases the interpreter lock."""
    num_bytes = pc.binary_length(texts).to_numpy().astype(np.int64)
    runs = [texts.slice(first, 64) for first in range(0, len(texts), 64)]  # a task a text costs as much as its text
    with ThreadPoolExecutor(_resolved(num_threads)) as pool:
        compressed = pool.map(lambda run: [len(zlib.compress(text.as_buffer())) for text in run], runs)
        zlib_bytes = np.array([size for run in compressed for size in run], dtype=np.int64)
    return np.stack([num_bytes, zlib_bytes], axis=1)


def _resolved(num_threads: int) -> int | None:
    """The number of threads meant, as the core has it: 0 is ``RAYON_NUM_THREADS``, or every core (None)."""
    asked = os.environ.get("RAYON_NUM_THREADS", "")
    return num_threads or (int(asked) if asked.isdecimal() else 0) or None
