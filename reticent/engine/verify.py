"""Verification of stored tokens against the text they were made from, without the Rust core.

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

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.errors import ArtifactError
from reticent.engine.oracle.documents import WordTable, read_words
from reticent.engine.oracle.protection import DocumentWords, count_supports, visible_support
from reticent.engine.oracle.retokenizer import Retokenizer, retokenize
from reticent.engine.oracle.tokens import Comparison, Protected, Spans, TextCheck

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.protect import Policy
    from reticent.engine.split import Individuals
    from reticent.engine.store import TokenStore


class CheckedText:
    """The documents of a corpus as read by the oracle, for checking all token stores that were made from them.

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
            parts.append(read_words(batch.texts, self._table))
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
        """Yield the documents of these splits in batches: texts, ids, corpus row numbers and individuals' codes."""
        first, wanted = 0, _splits_mask(self._individuals, splits)
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
        count_anew: bool,
        other_supports: pa.RecordBatch | None = None,
    ) -> Protected:
        """Return which words and characters the policy protects in the documents of these splits, computed by an
        independent Python implementation (the oracle). Supports of n-grams are counted, except those of the words in
        ``other_supports``; if not ``count_anew``, no word is protected as rare."""
        wanted = _splits_mask(self._individuals, splits)
        chosen = np.ones(len(self._rows), dtype=bool) if wanted is None else wanted[self._codes]
        words = self._words if chosen.all() else self._words.select(chosen)
        codes = self._codes[chosen]
        units = codes if self._individuals is None else self._individuals.units[codes]
        surfaces = self._table.surfaces(surface)
        seen, num_units = self._table.visible_forms(surface), len(np.unique(units))
        supports = count_supports(words, units, surfaces, policy.n if count_anew else 1)
        if other_supports is not None:
            names = other_supports.column("word")
            rows = pc.index_in(pa.array(surfaces, names.type), value_set=names).fill_null(-1).to_numpy()
            instead = np.append(other_supports.column("support").to_numpy().astype(np.int64), -1)[rows][words.spellings]
            supports = (np.where(instead < 0, support, instead) for support in supports)
        marks = read_spans(spans, self._rows[chosen])
        of_words = next(supports)
        visible = visible_support(words, seen, of_words)
        protecting = itertools.chain([of_words], supports) if count_anew else ()
        return Protected.by(policy, words, units, seen, marks, protecting, num_units, visible)


class _Documents(NamedTuple):
    texts: list[str]
    doc_ids: pa.Array
    rows: np.ndarray
    codes: np.ndarray


def _splits_mask(individuals: Individuals | None, splits: tuple[str, ...] | None) -> np.ndarray | None:
    """Return which individuals belong to these splits, bool (num_individuals,); None for all."""
    return individuals.mask(*splits) if individuals is not None and splits else None


def read_spans(reader: SpanReader | None, rows: np.ndarray) -> Spans:
    """Return the detected identifier spans of the documents with these ascending corpus row numbers."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = [(np.empty(0, dtype=np.int64),) * 3]
    names = [pa.array([], pa.string()).dictionary_encode()]
    at_once = 1 << 15
    for first in range(0, int(rows.max(initial=-1)) + 1, at_once) if reader is not None else ():
        assert reader is not None
        last_row = min(first + at_once, int(rows[-1]) + 1)
        offsets, starts, ends, labels = reader.slice(first, last_row - first)
        owners = np.repeat(np.arange(first, last_row), np.diff(offsets))
        place = np.searchsorted(rows, owners)
        kept = np.append(rows, -1)[place] == owners
        parts.append((place[kept], starts[kept].astype(np.int64), ends[kept].astype(np.int64)))
        names.append(labels.filter(pa.array(kept)).cast(pa.string()).dictionary_encode())
    labels = pa.chunked_array(names).unify_dictionaries()
    owners, starts, ends = map(np.concatenate, zip(*parts, strict=True))
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in labels.chunks])
    return Spans(owners, starts, ends, codes, labels.chunk(0).dictionary.to_pylist())


def verify_tokens(
    store: TokenStore,
    text: CheckedText,
    *,
    policy: Policy,
    splits: tuple[str, ...] | None = None,
    spans: SpanReader | None = None,
    surface: str = "exact",
    counted: bool = True,
    other_supports: pa.RecordBatch | None = None,
    progress: Callable[[int], None] | None = None,
) -> TextCheck:
    """Compare every token and protection flag in a store with what an independent Python implementation (the oracle)
    computes from the documents' text, and return the result. If not ``counted``, no word should be protected as rare.

    Parameters
    ----------
    splits, spans, policy : the arguments that should have made the store (`reticent.engine.tokens.write_tokens`)
    surface : {"exact", "casefold", "fold"}
        Of the index it was made with.
    counted : bool
        Whether support protects words at all.
    other_supports : record batch, optional
        Columns ``word`` and ``support``: words of another support than the text has (n = 1).

    Raises
    ------
    ArtifactError
        The store has another number of documents than the splits.
    """
    protected = text.protected(splits, spans, policy, surface, counted, other_supports)
    num_documents = len(protected.words.doc_offsets) - 1
    if store.num_documents != num_documents:
        raise ArtifactError(
            f"{store.path or 'token store'}: holds {store.num_documents:,} documents, the text has "
            f"{num_documents:,}; not made from these documents"
        )
    comparison, first = Comparison(store), 0
    retokenizer = Retokenizer(store.tokenizer_path)
    for batch in text.batches(splits):
        last = first + len(batch.rows)
        part = protected.slice(first, last)
        read = retokenize(batch.texts, batch.doc_ids, part.words.bases, part.spans, retokenizer)
        comparison.add(np.arange(first, last), read, part)
        first = last
        if progress:
            progress(last)
    return comparison.result(is_whole_store=True)
