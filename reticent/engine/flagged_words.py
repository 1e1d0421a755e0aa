"""Documents, spans and index -> the words of each document, with their flags of protection.

A first pass collects the surfaces of direct identifiers whose scope extends beyond their span. Each iteration is then a
second pass that flags words. Rust handles the strings; this file only moves batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError
from reticent.engine.detect.labels import category
from reticent.engine.protect import Policy
from reticent.engine.pseudonymize import SpanArrays
from reticent.engine.schema import DIRECT, no_token_message, with_place
from reticent.engine.survey import Survey, survey_documents

if TYPE_CHECKING:
    from reticent._rust import Blacklist, Words
    from reticent.engine.config import Surface
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.split import Individuals


class Flagged(NamedTuple):
    """The documents of a batch, their words, and the words' protection flags.

    ``flags`` (uint8, one a word) hold `DIRECT` and `INDIRECT`; bit n - 1 of ``ngram_starts`` (uint8, one a word) says
    that a minimal identifying n-gram of n words starts there; ``gaps`` are the stretches of direct identifiers between
    words, white space aside (None without spans).
    """

    part: Part
    words: Words
    flags: np.ndarray
    ngram_starts: np.ndarray
    gaps: Words | None


class FlaggedWords:
    """The documents of some splits with the protection flags of their words; iteration yields `Flagged` batches.

    Parameters as of `write_tokens`; ``by_category`` keeps apart what is protected beyond its span, so that `spans_of`
    can say what it is; ``supports`` is the index that says which surfaces are too common to be protected in the whole
    corpus (default: ``index``); without either none is, and ``surface`` is that of what is protected beyond its span.

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
        by_category: bool = False,
        supports: NgramIndex | None = None,
        surface: Surface = "exact",
        num_threads: int = 0,
    ):
        self.corpus, self.splits, self.num_threads = corpus, splits, num_threads
        self._selection = _Selection(corpus, individuals, splits)
        self._index, self._spans, self._policy = index, spans, policy or Policy()
        self._blacklists: dict[str, Blacklist] = {}
        self._last_spread: tuple[Part, list[tuple[str, np.ndarray]]] | None = None
        if spans is not None:
            counted = supports or index
            make = partial(_rust.Blacklist, surface=surface) if counted is None else counted.blacklist
            self._blacklists = _collect_blacklists(self._selection, spans, self._policy, make, by_category, num_threads)

    @property
    def num_blacklisted(self) -> int:
        """Number of distinct word forms that are protected outside detected spans too, because an identifier detected
        elsewhere contains them."""
        return sum(blacklist.num_surfaces for blacklist in self._blacklists.values())

    def survey(self) -> Survey:
        """Return the corpus properties that surrogate names and dates depend on: real names, date order, language.
        Cost: one pass over the text."""
        spans = self._spans
        if spans is None:
            return survey_documents(())
        batches = ((part.texts, part.spans(spans)) for part in self._selection.batches())
        return survey_documents(batches, num_threads=self.num_threads)

    def spans_of(self, part: Part, words: Words) -> SpanArrays:
        """Return the direct identifiers in a batch as arrays: offsets by document, starts, ends, labels. They are the
        detected spans, and single words that are protected because an identifier detected elsewhere contains them."""
        if self._spans is None:
            return (
                np.zeros(len(part.texts) + 1, dtype=np.int64),
                *(np.zeros(0, np.int32),) * 2,
                pa.array([], pa.string()),
            )
        offsets, starts, ends, labels = part.spans(self._spans)
        word_starts, word_ends = words.char_spans(part.texts)
        rows = [np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))]
        bounds, names = [np.stack([starts, ends])], [labels]
        rows_of_words = np.repeat(np.arange(words.num_documents), np.diff(words.doc_offsets))
        for name, spread in self._blacklisted_words(part, words):
            found = np.flatnonzero(spread)
            rows.append(rows_of_words[found])
            bounds.append(np.stack([word_starts[found], word_ends[found]]).astype(np.int32))
            names.append(pa.repeat(pa.scalar(name or "OTHER", pa.string()), len(found)))
        row, both = np.concatenate(rows), np.concatenate(bounds, axis=1)
        order = np.argsort(row, kind="stable")
        offsets = np.searchsorted(row[order], np.arange(len(offsets))).astype(np.int64)
        first, last = np.ascontiguousarray(both[:, order], dtype=np.int32)
        return offsets, first, last, pa.concat_arrays(names).take(pa.array(order))

    def _blacklisted_words(self, part: Part, words: Words) -> list[tuple[str, np.ndarray]]:
        """Return pairs (category of identifier, mask of the batch's words): the words protected because an identifier
        of this category, detected elsewhere, contains them. The result for the last batch is cached."""
        if self._last_spread is None or self._last_spread[0] is not part:
            found = [
                (name, blacklist.match(part.texts, words, part.units, num_threads=self.num_threads))
                for name, blacklist in self._blacklists.items()
            ]
            self._last_spread = part, found
        return self._last_spread[1]

    def locate_error(self, error: CorpusError, part: Part) -> CorpusError:
        """Return a copy of an error whose message names the document by file and row instead of its number in the
        batch."""
        return with_place(error, partial(self.describe_place, part))

    def describe_place(self, part: Part, row: int) -> str:
        """Return the file and row of a batch's document as text for an error message."""
        return self._selection.corpus.place(part.first + int(np.flatnonzero(part.keep)[row]))

    def check_tokens(self, part: Part, words: Words, token_offsets: np.ndarray) -> None:
        """Raise `CorpusError` if a document of the batch has words but no token, since it would be skipped silently."""
        num_words = np.diff(words.doc_offsets)
        passed_over = np.flatnonzero((num_words > 0) & (np.diff(token_offsets) == 0))
        if len(passed_over):
            row = int(passed_over[0])
            raise CorpusError(f"{self.describe_place(part, row)}: {no_token_message(int(num_words[row]))}")

    def __iter__(self) -> Iterator[Flagged]:
        policy, threads = self._policy, self.num_threads
        for part in self._selection.batches():
            words = _rust.segment(part.texts, num_threads=threads)
            flags = np.zeros(words.num_words, dtype=np.uint8)
            starts = np.zeros(words.num_words, dtype=np.uint8)
            gaps = None
            if self._spans is not None:
                spans = part.spans(self._spans)[:3]
                marked = _rust.mark_spans(part.texts, words, *spans, num_threads=threads)
                direct, gaps = marked.mask, marked.gaps
                for _, spread in self._blacklisted_words(part, words):
                    direct |= spread
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
            yield Flagged(part, words, flags, starts, gaps)


class Part:
    """The wanted documents of one record batch, with individual and unit of each and their rows in the corpus."""

    def __init__(self, batch: pa.RecordBatch, first: int, keep: np.ndarray, codes: np.ndarray, units: np.ndarray):
        self.first, self.num_rows, self.keep = first, batch.num_rows, keep
        whole = keep.all()
        self.texts = batch.column("text") if whole else batch.column("text").filter(pa.array(keep))
        self.doc_ids = batch.column("doc_id") if whole else batch.column("doc_id").filter(pa.array(keep))
        self.codes = np.ascontiguousarray(codes[keep], dtype=np.uint32)
        self.units = np.ascontiguousarray(units[keep], dtype=np.uint32)
        self.last_document = first + batch.num_rows

    def spans(self, reader: SpanReader) -> tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array]:
        """Return the detected spans of the batch's documents in the wanted splits as arrays: offsets by document,
        starts, ends, labels."""
        offsets, starts, ends, labels = reader.slice(self.first, self.num_rows)
        if not self.keep.all():
            kept_spans = np.repeat(self.keep, np.diff(offsets))
            lengths = np.diff(offsets)[self.keep]
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            starts, ends, labels = starts[kept_spans], ends[kept_spans], labels.filter(pa.array(kept_spans))
        return offsets, np.ascontiguousarray(starts), np.ascontiguousarray(ends), labels


class _Selection:
    """The documents of some splits, yielded batch by batch as `Part`."""

    def __init__(self, corpus: Corpus, individuals: Individuals | None, splits: tuple[str, ...] | None):
        self.corpus, self.individuals, self.splits = corpus, individuals, splits

    def batches(self) -> Iterator[Part]:
        """Yield the batches of the corpus with a document in the wanted splits, each with its individuals' integer
        codes and a mask of these documents."""
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


def _collect_blacklists(
    selection: _Selection,
    spans: SpanReader,
    policy: Policy,
    make_blacklist: Callable[[], Blacklist],
    by_category: bool,
    num_threads: int,
) -> dict[str, Blacklist]:
    """Collect the word forms in detected identifiers that are protected outside the detected span too. Return one set
    of forms (blacklist) per category of identifier if ``by_category``, else a single one under ""."""

    blacklists: dict[str, Blacklist] = {} if by_category else {"": make_blacklist()}
    for part in selection.batches():
        offsets, starts, ends, labels = part.spans(spans)
        if not len(starts):
            continue
        words = _rust.segment(part.texts, num_threads=num_threads)
        encoded = labels.dictionary_encode()
        kinds = np.array(
            [
                (policy.scope_of(label), category(label) if by_category else "")
                for label in encoded.dictionary.to_pylist()
            ]
        )
        kind_of_span = encoded.indices.to_numpy()
        for scope, name in sorted({(str(scope), str(name)) for scope, name in kinds}):
            chosen = ((kinds == (scope, name)).all(axis=1))[kind_of_span]
            if scope != "occurrence" and chosen.any():
                of_kind = _select_spans(offsets, starts, ends, chosen)
                mask = _rust.mark_spans(part.texts, words, *of_kind, num_threads=num_threads).mask
                blacklist = blacklists.setdefault(name, make_blacklist())
                blacklist.add(part.texts, words, mask, part.units, everywhere=scope == "corpus")
    return blacklists


def _select_spans(
    offsets: np.ndarray, starts: np.ndarray, ends: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return offsets by document, starts and ends of the spans where ``chosen`` is True."""
    before = np.concatenate([[0], np.cumsum(chosen)]).astype(np.int64)
    return before[offsets], np.ascontiguousarray(starts[chosen]), np.ascontiguousarray(ends[chosen])
