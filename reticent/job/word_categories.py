"""The category of every direct word of a run's documents: the kind of identifier (name, date, phone number, …).

Tokens keep flags alone, so categories are found again from the spans, word by word, for the measures by category.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reticent.core.errors import ArtifactError
from reticent.engine.detect.labels import category

if TYPE_CHECKING:
    from reticent.audit.leakage.words import Words
    from reticent.engine.flagged_words import FlaggedWords
    from reticent.engine.store import TokenStore
    from reticent.job.run import Run

__all__ = ["WordCategories", "read_categories"]


@dataclass(frozen=True, slots=True)
class WordCategories:
    """Category of each word of a set of documents.

    ``codes`` (int16, one a word, 0: in no direct identifier) are numbers of ``names``, of which the first is empty;
    the words of document d are ``doc_offsets[d]:doc_offsets[d + 1]``.
    """

    codes: np.ndarray
    names: tuple[str, ...]
    doc_offsets: np.ndarray

    def of_words(self, store: TokenStore, words: Words) -> np.ndarray:
        """Return the category of each word of a store of these documents, int16, shape (S,)."""
        if len(self.doc_offsets) != store.num_documents + 1:
            raise ArtifactError(
                f"categories of {len(self.doc_offsets) - 1} documents for a store of {store.num_documents}"
            )
        return self.codes[self.doc_offsets[words.documents] + store.word_ids[words.starts]]


def read_categories(run: Run, splits: tuple[str, ...]) -> WordCategories:
    """Return the categories of the words of the documents of these splits, in the order of their tokens.

    A word in spans of several categories has the one whose name comes first. Cost: two passes over the text.
    """
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.flagged_words import FlaggedWords

    flagged = FlaggedWords(
        run.corpus,
        run.individuals,
        splits=splits,
        spans=SpanReader(run.folder / "spans"),
        policy=run.policy,  # type: ignore[attr-defined]
        by_category=True,
        surface=run.job.index.surface,
        num_threads=run.job.num_threads,
    )
    return categories_of(flagged)


def categories_of(flagged: FlaggedWords) -> WordCategories:
    """Return the categories of flagged words; see `read_categories`."""
    from reticent import _rust

    known: dict[str, int] = {"": 0}
    codes, lengths = [np.empty(0, dtype=np.int16)], [np.zeros(1, dtype=np.int64)]
    for part, words, *_ in flagged:
        offsets, starts, ends, labels = flagged.spans_of(part, words)
        encoded = labels.dictionary_encode()
        label_names = [category(label) for label in encoded.dictionary.to_pylist()]
        of_span = encoded.indices.to_numpy()
        found = np.zeros(words.num_words, dtype=np.int16)
        for name in sorted(set(label_names), reverse=True):  # the first name is written last
            chosen = np.array([other == name for other in label_names])[of_span]
            before = np.concatenate([[0], np.cumsum(chosen)]).astype(np.int64)
            bounds = (np.ascontiguousarray(starts[chosen]), np.ascontiguousarray(ends[chosen]))
            covered = _rust.cover_spans(part.texts, words, before[offsets], *bounds, num_threads=flagged.num_threads)
            found[covered.astype(bool)] = known.setdefault(name, len(known))
        codes.append(found)
        lengths.append(np.diff(words.doc_offsets))
    return WordCategories(np.concatenate(codes), tuple(known), np.cumsum(np.concatenate(lengths)))
