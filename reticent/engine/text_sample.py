"""Check of a random sample of documents' tokens against their text, by the plain-Python oracle instead of the Rust
core; see :mod:`reticent.engine.verify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reticent.engine.oracle.documents import WordTable, read_words
from reticent.engine.oracle.protection import DocumentWords, Seen, looked_up_supports
from reticent.engine.oracle.retokenizer import Retokenizer, retokenize
from reticent.engine.oracle.tokens import Comparison, Protected, ReadTexts, Spans, TextCheck
from reticent.engine.verify import read_spans

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.protect import Policy
    from reticent.engine.split import Individuals
    from reticent.engine.store import TokenStore

#: Documents of a sample, and characters of them that are looked at.
NUM_DOCUMENTS, NUM_CHARACTERS = 200, 200_000
#: Rows of an index's table that are looked at together.
ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledText:
    """The sampled documents as read by the oracle: words, spans, supports and tokens.

    Attributes
    ----------
    words, units, seen, spans, supports, num_units, visible : as `Protected.by` takes them; no supports where none
        protect
    read : their visible characters and their tokens
    store_rows : the documents of the store that they are
    """

    words: DocumentWords
    units: np.ndarray
    seen: Seen
    spans: Spans
    supports: list[np.ndarray]
    num_units: int
    visible: np.ndarray
    read: ReadTexts
    store_rows: np.ndarray

    def check(self, store: TokenStore, policy: Policy) -> TextCheck:
        """Return the result of comparing the stored tokens of the sampled documents with the protection that the oracle
        (an independent Python implementation) computes from their text."""
        protected = Protected.by(
            policy,
            self.words,
            self.units,
            self.seen,
            self.spans,
            self.supports[: policy.n],
            self.num_units,
            self.visible,
        )
        comparison = Comparison(store)
        comparison.add(self.store_rows, self.read, protected)
        return comparison.result(is_whole_store=False)


class TextSample:
    """A random sample of a corpus's documents for a check of their tokens; `take` must see every batch first.

    Whole individuals (households) are drawn, so what a span spreads over one's documents is seen. What a spot check
    does not see: a surface that is protected in the whole corpus because of a span in a document outside of the sample,
    and whether the index counted right, since supports are looked up in its tables. `verify_tokens` sees both.

    Cost: under half a second, and a pass over the spans and the index's tables.
    """

    def __init__(self, corpus: Corpus, individuals: Individuals, splits: tuple[str, ...], seed: int):
        self._individuals = individuals
        codes = individuals.individual_codes(corpus.scan().column("individual_id"))
        rows = np.flatnonzero(individuals.mask(*splits)[codes])
        units = individuals.units[codes[rows]].astype(np.uint64)
        order = np.lexsort((rows, _hashes(units, seed)))[:NUM_DOCUMENTS]
        self._rows, self._order = np.sort(rows[order]), np.argsort(np.argsort(rows[order]))
        self._store_rows = np.sort(order)  # documents of the store are those of the splits, in order
        #: By the first row: texts, ids and units of documents.
        self._parts: dict[int, tuple[list[str], pa.Array, np.ndarray]] = {}

    @property
    def rows(self) -> np.ndarray:
        """Corpus row numbers of the sampled documents, ascending, int64."""
        return self._rows

    def take(self, first: int, batch: pa.RecordBatch) -> None:
        """Keep the sampled documents of this record batch, whose first document is corpus row ``first``. Batches may
        come in any order, and from several threads."""
        found = pa.array(self._rows[slice(*np.searchsorted(self._rows, [first, first + batch.num_rows]))] - first)
        if len(found):
            kept = batch.take(found)
            units = self._individuals.units[self._individuals.individual_codes(kept.column("individual_id"))]
            self._parts[first] = kept.column("text").to_pylist(), kept.column("doc_id"), units

    def read(
        self, spans: SpanReader | None, index: NgramIndex | None, tokenizer: Retokenizer, *, max_n: int
    ) -> SampledText:
        """Return the sampled documents as the oracle (an independent Python implementation) reads them: words,
        identifier spans, tokens, and the supports in ``index`` of their n-grams of up to ``max_n`` words."""
        parts = [self._parts[first] for first in sorted(self._parts)]
        all_texts = [text for texts, _, _ in parts for text in texts]
        taken = np.cumsum([len(all_texts[i]) for i in self._order]) <= NUM_CHARACTERS
        taken[:1] = True
        chosen = np.sort(self._order[taken])
        texts = [all_texts[i] for i in chosen]
        doc_ids = pa.concat_arrays([ids for _, ids, _ in parts]).take(pa.array(chosen))
        table = WordTable()
        words = read_words(texts, table)
        surface = "exact" if index is None else index.surface
        supports, seen, visible = [], table.visible_forms(surface), np.zeros(len(words.starts), dtype=np.int64)
        if index is not None:
            tables = partial(_read_tables, index)
            supports = [*looked_up_supports(words, table.surfaces(surface), max_n, tables, index.min_support)]
            visible = supports[0]
            if not seen.is_own.all():
                (visible,) = looked_up_supports(words, table.seen_surfaces(surface), 1, tables, index.min_support)
        units = np.concatenate([units for _, _, units in parts])[chosen]
        marks = read_spans(spans, self._rows[chosen])
        return SampledText(
            words=words,
            units=units,
            seen=seen,
            spans=marks,
            supports=supports,
            num_units=0 if index is None else index.num_units,
            visible=visible,
            read=retokenize(texts, doc_ids, words.bases, marks, tokenizer),
            store_rows=self._store_rows[chosen],
        )


def _read_tables(index: NgramIndex, n: int) -> Iterator[pa.RecordBatch]:
    """Yield the index's table of n-grams of n words as record batches."""
    num_rows = index.num_words if n == 1 else index.num_ngrams(n)
    for first in range(0, num_rows, ROWS_AT_ONCE):
        yield pa.record_batch(index.words(first, ROWS_AT_ONCE) if n == 1 else index.level(n, first, ROWS_AT_ONCE))


def _hashes(units: np.ndarray, seed: int) -> np.ndarray:
    """Return a 64-bit hash (splitmix64) of each unit code with the seed, uint64."""
    x = units + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
