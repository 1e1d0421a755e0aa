"""Stored tokens held to the text they were made from, without the core: the check that goes the other way.

Protection is worked out again from the documents, their spans and the policy (:mod:`reticent.engine.oracle`);
the documents are tokenised again by the Python library; and a token whose characters meet a protected one, white space
aside, must carry the flag of each kind that protects it: `DIRECT` for spans and what they reach, `INDIRECT` for what
support protects. Recipes mask by these flags, so a token that has them is no target of theirs. That tokens, the numbers
of their words and documents are those of the text is checked with it. Stored flags are read only to be compared.

Tokens of a text that was rewritten (X, tags, surrogates, lower case) have no characters of the original: they are not
checked here, and whoever prints a check says so. Nor are lengths of n-grams (``ngram_starts``), which protect no word.

Cost over a whole corpus: about 3 us a token of one core (most of it the tokenizers library, which can use all), and
130 bytes of memory a word where n-grams of three words count: 3 minutes of a core and 5.5 GB for 50,000 documents (212
MB, 50 million tokens of the members), measured on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.errors import ArtifactError
from reticent.engine.oracle.protection import (
    DocumentWords,
    WordTable,
    count_supports,
    direct_words,
    looked_up_supports,
    protected_words,
)
from reticent.engine.oracle.tokens import Comparison, Protected, Retokenizer, Spans, TextCheck, TokenisedText

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.protect import Policy
    from reticent.engine.split import Individuals
    from reticent.engine.store import TokenStore

__all__ = ["CheckedText", "TextCheck", "TextSample", "verify_tokens"]


#: Rows of an index's table that are looked at together.
ROWS_AT_ONCE = 1 << 20


class CheckedText:
    """The documents of a corpus as the oracle reads them: once for all stores that were made from them.

    Cost: one pass over the text, about 1.1 us a word; 20 bytes of memory a word.
    """

    def __init__(
        self,
        corpus: Corpus,
        individuals: Individuals | None,
        *,
        splits: tuple[str, ...] | None = None,
        progress: Callable[[int], None] | None = None,
    ):
        self._corpus, self._individuals = corpus, individuals
        self._table = WordTable()
        parts, rows, codes, num_done = [], [], [], 0
        for batch in self.batches(splits):
            parts.append(DocumentWords.of(batch.texts, self._table))
            rows.append(batch.rows)
            codes.append(batch.codes)
            num_done += len(batch.rows)
            if progress:
                progress(num_done)
        if not parts:
            raise ArtifactError(f"no document belongs to the splits {', '.join(splits or ())}")
        self._rows, self._codes = np.concatenate(rows), np.concatenate(codes)
        self._words = DocumentWords.concatenated(parts)

    def batches(self, splits: tuple[str, ...] | None) -> Iterator[_Documents]:
        """Yield the documents of these splits."""
        first, wanted = 0, _mask(self._individuals, splits)
        for batch in self._corpus.batches(columns=("doc_id", "individual_id", "text")):
            rows = codes = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            if self._individuals is not None:
                codes = self._individuals.individual_codes(batch.column("individual_id"))
            if wanted is not None:
                kept = wanted[codes]
                batch, rows, codes = batch.filter(pa.array(kept)), rows[kept], codes[kept]
            if len(rows):
                yield _Documents(batch.column("text").to_pylist(), batch.column("doc_id"), rows, codes)

    def protected(
        self,
        splits: tuple[str, ...] | None,
        spans: SpanReader | None,
        policy: Policy,
        surface: str,
        counted: bool,
        drawn: pa.Array | None = None,
    ) -> Protected:
        """Protection of the documents of these splits by these documents, spans and policy, and of the words ``drawn``
        (by their surfaces) whatever their support.
        """
        wanted = _mask(self._individuals, splits)
        chosen = np.ones(len(self._rows), dtype=bool) if wanted is None else wanted[self._codes]
        words = self._words if chosen.all() else self._words.select(chosen)
        codes = self._codes[chosen]
        units = codes if self._individuals is None else self._individuals.units[codes]
        surfaces, seen = self._table.surfaces(surface)
        supports: Iterable[np.ndarray] = count_supports(words, units, surfaces, policy.n) if counted else ()
        if drawn is not None:
            is_drawn = pc.is_in(pa.array(surfaces, drawn.type), value_set=drawn).to_numpy(zero_copy_only=False)
            below = np.where(is_drawn, policy.k - 1, np.iinfo(np.int64).max)[words.spellings]
            supports = (np.minimum(support, below) for support in supports)
        marks = _read_spans(spans, self._rows[chosen], policy)
        return _protect(words, units, seen, marks, supports, policy, len(np.unique(units)))


class _Documents(NamedTuple):
    texts: list[str]
    doc_ids: pa.Array
    rows: np.ndarray
    codes: np.ndarray


def _mask(individuals: Individuals | None, splits: tuple[str, ...] | None) -> np.ndarray | None:
    return individuals.mask(*splits) if individuals is not None and splits else None


def _read_spans(reader: SpanReader | None, rows: np.ndarray, policy: Policy, *, at_once: int = 1 << 15) -> Spans:
    """The spans of the documents of these rows of the corpus, ascending."""
    parts = [Spans(*(np.empty(0, dtype=np.int64),) * 3, np.empty(0, dtype="U10"))]
    for first in range(0, int(rows.max(initial=-1)) + 1, at_once) if reader is not None else ():
        assert reader is not None
        last_row = min(first + at_once, int(rows[-1]) + 1)
        offsets, starts, ends, labels = reader.slice(first, last_row - first)
        owners = np.repeat(np.arange(first, last_row), np.diff(offsets))
        place = np.searchsorted(rows, owners)
        kept = np.append(rows, -1)[place] == owners
        labels = labels.filter(pa.array(kept)).dictionary_encode()
        scopes = np.array([*map(policy.scope_of, labels.dictionary.to_pylist()), ""], dtype="U10")
        codes = labels.indices.to_numpy(zero_copy_only=False)
        parts.append(Spans(place[kept], starts[kept].astype(np.int64), ends[kept].astype(np.int64), scopes[codes]))
    return Spans(*map(np.concatenate, zip(*parts, strict=True)))


def _protect(
    words: DocumentWords,
    units: np.ndarray,
    seen: list[str],
    spans: Spans,
    supports: Iterable[np.ndarray],
    policy: Policy,
    num_units: int,
) -> Protected:
    place = words.bases[spans.owners]
    direct = direct_words(words, units, seen, spans.starts + place, spans.ends + place, spans.scopes)
    indirect = protected_words(
        words,
        supports,
        k=policy.k,
        n=policy.n,
        policy=policy.policy,
        max_document_frequency=policy.max_document_frequency,
        num_units=num_units,
    )
    return Protected(words, direct, indirect, spans)


def verify_tokens(
    store: TokenStore,
    text: CheckedText,
    *,
    policy: Policy,
    splits: tuple[str, ...] | None = None,
    spans: SpanReader | None = None,
    surface: str = "exact",
    counted: bool = True,
    drawn: pa.Array | None = None,
    progress: Callable[[int], None] | None = None,
) -> TextCheck:
    """Compare every token of a store of original text with its documents.

    Parameters
    ----------
    splits, spans, policy : the arguments that should have made the store (`reticent.engine.tokens.write_tokens`)
    surface : {"exact", "casefold", "fold"}
        Of the index it was made with.
    counted : bool
        Whether support protects words at all.
    drawn : string array, optional
        Surfaces of words that a noisy threshold protects besides (n = 1).

    Raises
    ------
    ArtifactError
        The store has another number of documents than the splits.
    """
    protected = text.protected(splits, spans, policy, surface, counted, drawn)
    num_documents = len(protected.words.doc_offsets) - 1
    if store.num_documents != num_documents:
        raise ArtifactError(
            f"{store.path or 'token store'}: holds {store.num_documents:,} documents, the text has "
            f"{num_documents:,}; not made from these documents"
        )
    comparison, first = Comparison(store), 0
    for batch in text.batches(splits):
        last = first + len(batch.rows)
        comparison.add(batch.texts, batch.doc_ids, np.arange(first, last), protected.slice(first, last))
        first = last
        if progress:
            progress(last)
    return comparison.result(whole=True)


class TextSample:
    """Some documents of a corpus, whose tokens are checked where they are made; `take` is shown every document first.

    Whole individuals (households) are drawn, so what a span spreads over one's documents is seen. What a spot check
    does not see: a surface that is protected in the whole corpus because of a span in a document outside of the sample,
    and whether the index counted right, since supports are looked up in its tables. `verify_tokens` sees both.

    Cost: under half a second, and a pass over the spans and the index's tables.
    """

    #: Documents that are kept, and characters of them that are looked at.
    NUM_DOCUMENTS, NUM_CHARACTERS = 200, 200_000

    def __init__(self, corpus: Corpus, individuals: Individuals, splits: tuple[str, ...], seed: int):
        self._individuals = individuals
        codes = individuals.individual_codes(corpus.scan().column("individual_id"))
        rows = np.flatnonzero(individuals.mask(*splits)[codes])
        units = individuals.units[codes[rows]].astype(np.uint64)
        order = np.lexsort((rows, _hashes(units, seed)))[: self.NUM_DOCUMENTS]
        self._rows, self._order = np.sort(rows[order]), np.argsort(np.argsort(rows[order]))
        self._store_rows = np.sort(order)  # documents of the store are those of the splits, in order
        #: By the first row: texts, ids and units of documents.
        self._parts: dict[int, tuple[list[str], pa.Array, np.ndarray]] = {}

    @property
    def rows(self) -> np.ndarray:
        """The rows of the corpus that are kept, ascending."""
        return self._rows

    def take(self, first: int, batch: pa.RecordBatch) -> None:
        """Keep the documents of the sample among these, which stand from row ``first`` of the corpus on. Batches may
        come in any order, and from several threads.
        """
        found = pa.array(self._rows[slice(*np.searchsorted(self._rows, [first, first + batch.num_rows]))] - first)
        if len(found):
            kept = batch.take(found)
            units = self._individuals.units[self._individuals.individual_codes(kept.column("individual_id"))]
            self._parts[first] = kept.column("text").to_pylist(), kept.column("doc_id"), units

    def expected(
        self, policy: Policy, spans: SpanReader | None, index: NgramIndex | None, tokenizer: Retokenizer | None = None
    ) -> ExpectedTokens:
        """Work out the protection of the kept documents from their text, and their tokens by a tokenizer. No store is
        needed yet.
        """
        parts = [self._parts[first] for first in sorted(self._parts)]
        all_texts = [text for texts, _, _ in parts for text in texts]
        taken = np.cumsum([len(all_texts[i]) for i in self._order]) <= self.NUM_CHARACTERS
        taken[:1] = True
        chosen = np.sort(self._order[taken])
        texts = [all_texts[i] for i in chosen]
        doc_ids = pa.concat_arrays([ids for _, ids, _ in parts]).take(pa.array(chosen))
        table = WordTable()
        words = DocumentWords.of(texts, table)
        surfaces, seen = table.surfaces("exact" if index is None else index.surface)
        supports: Iterable[np.ndarray] = ()
        if index is not None:
            supports = looked_up_supports(words, surfaces, policy.n, partial(_tables, index), index.min_support)
        units = np.concatenate([units for _, _, units in parts])[chosen]
        marks = _read_spans(spans, self._rows[chosen], policy)
        protected = _protect(words, units, seen, marks, supports, policy, 0 if index is None else index.num_units)
        tokenised = None if tokenizer is None else tokenizer(texts, words.bases)
        return ExpectedTokens(texts, doc_ids, self._store_rows[chosen], protected, tokenizer, tokenised)


class ExpectedTokens(NamedTuple):
    """Documents of a sample, the documents of the store that they are, what protects them by their text, and their
    tokens by a tokenizer.
    """

    texts: list[str]
    doc_ids: pa.Array
    store_rows: np.ndarray
    protected: Protected
    tokenizer: Retokenizer | None
    tokenised: TokenisedText | None

    def check(self, store: TokenStore) -> TextCheck:
        """Compare the tokens of these documents with their text."""
        comparison = Comparison(store)
        is_same = self.tokenizer is not None and store.tokenizer_path.samefile(self.tokenizer.path)
        comparison.add(self.texts, self.doc_ids, self.store_rows, self.protected, self.tokenised if is_same else None)
        return comparison.result(whole=False)

    def require(self, store: TokenStore) -> TextCheck:
        """Compare the tokens of these documents with their text; `ArtifactError` where they do not fit it."""
        check = self.check(store)
        if not check.holds:
            raise ArtifactError(f"tokens: {check.failure()}")
        return check


def _tables(index: NgramIndex, n: int) -> Iterator[pa.RecordBatch]:
    """Yield the table of n-grams of an index in parts."""
    num_rows = index.num_words if n == 1 else index.num_ngrams(n)
    for first in range(0, num_rows, ROWS_AT_ONCE):
        yield pa.record_batch(index.words(first, ROWS_AT_ONCE) if n == 1 else index.level(n, first, ROWS_AT_ONCE))


def _hashes(units: np.ndarray, seed: int) -> np.ndarray:
    """splitmix64 of each unit and the seed."""
    x = units + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
