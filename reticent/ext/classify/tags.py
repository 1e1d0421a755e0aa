"""Taggers of identifiers: BIO tags of tokens, training, and strict F1 on held-out individuals.

A tag says that an identifier of a category begins at a token (B-NAME), continues there (I-NAME), or neither (O). An
identifier consists of the words that a detected span touches. Spans that share a word are one identifier, of the
category of the longest. The tokens between its words belong to it.

F1 is strict: an identifier counts as found if a predicted one has its category, its first token and its last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reticent.audit.evidence.classification import ClassRow, MeasuredClasses
from reticent.audit.evidence.rules import publish
from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.detect.labels import CATEGORIES, category
from reticent.engine.pseudonymize import PRIORITY
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.store import TokenStore
from reticent.engine.word_ids import WordSpans
from reticent.ext.classify.labels import check_sides
from reticent.trainer.config import TagConfig

if TYPE_CHECKING:
    from reticent.ext.classify.training import Classified, StepReport
    from reticent.trainer.privacy import PrivacyConfig

#: The fewest members that have an identifier of a category: a tag of one person would say that this person is there.
FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedTokens:
    """Tokenised documents with the BIO tags of their tokens; see :func:`tag_documents`.

    Attributes
    ----------
    store : TokenStore of D documents
    categories : the C categories that are learned, in the order of `CATEGORIES`
    tags : int64 array, shape (num_tokens,)
        0 for O, 1 + 2 c for B and 2 + 2 c for I of category c, `IGNORE_INDEX` in a category that is not learned.
    is_train : bool array, shape (D,); the others are the held-out documents
    left_out : reason -> number of documents or categories that are not used
    households : as for `label_documents`
    """

    store: TokenStore
    categories: tuple[str, ...]
    tags: np.ndarray
    is_train: np.ndarray
    left_out: dict[str, int]
    households: np.ndarray | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the tags ("O", "B-NAME", "I-NAME", ...), in the order of their numbers."""
        return ("O", *(f"{kind}-{name}" for name in self.categories for kind in "BI"))


def tag_documents(
    store: TokenStore,
    spans: WordSpans,
    is_train: np.ndarray,
    *,
    documents: np.ndarray | None = None,
    households: np.ndarray | None = None,
    fewest: int = FEWEST,
) -> TaggedTokens:
    """Return tokenised documents with a BIO tag for each token, from detected identifier spans. Identifier categories
    that occur with fewer than ``fewest`` individuals in the training documents get no tag.

    Parameters
    ----------
    spans : WordSpans, of a run those in ``word-spans``
    is_train : bool array, shape (store.num_documents,)
    documents : int64 array, shape (store.num_documents,), optional
        The row of each document in ``spans``; default: they are the same documents in the same order.
    households : as for `label_documents`
    fewest : int
        Categories of fewer individuals to train on are not learned. 0 for DP-SGD: all are, since one individual more
        must not add a tag.

    Raises
    ------
    CorpusError
        No category has an identifier of two individuals that are trained on, or none in a held-out document.
    ArtifactError
        Numbers of documents differ, or an individual or household is on both sides.
    """
    is_train = np.asarray(is_train, dtype=bool)
    check_sides(store, is_train, households)
    tokens = _identifier_of_tokens(store, spans, documents)
    owners = np.repeat(store.individual, np.diff(store.doc_offsets))
    on_train = np.repeat(is_train, np.diff(store.doc_offsets))
    seen = [np.unique(owners[on_train & (tokens.kinds == number)]) for number in range(len(CATEGORIES))]
    kept = [number for number, found in enumerate(seen) if len(found) >= fewest]
    if not kept or not np.isin(tokens.kinds[~on_train], kept).any():
        raise CorpusError(
            f"tag: expected identifiers of at least {FEWEST} individuals to train on and of held-out ones; got "
            f"{len(kept)} categories that as many have: does the run detect identifiers (detect.detectors)?"
        )
    return TaggedTokens(
        store=store,
        categories=tuple(CATEGORIES[number] for number in kept),
        tags=_encode_bio(tokens, kept),
        is_train=is_train,
        left_out={"rare_categories": sum(0 < len(found) < fewest for found in seen)},
        households=households,
    )


def tags_of(store: TokenStore, categories: tuple[str, ...]) -> np.ndarray:
    """Return the BIO tags of a token store whose identifiers were replaced by surrogates, from the spans stored beside
    it; int64 (num_tokens,).
    """
    assert store.path is not None
    return _encode_bio(
        _identifier_of_tokens(store, WordSpans(store.path)), [CATEGORIES.index(name) for name in categories]
    )


@dataclass(frozen=True, slots=True)
class _Identifiers:
    """For each token, the index in `CATEGORIES` of its identifier (-1: none), and whether an
    identifier begins there."""

    kinds: np.ndarray
    begins: np.ndarray


def _identifier_of_tokens(store: TokenStore, spans: WordSpans, documents: np.ndarray | None = None) -> _Identifiers:
    """Return for each token the category of the identifier that it is part of (-1: none), and whether it is that
    identifier's first token. ``documents`` has for each document of the store its row in ``spans`` (None: the same
    order).
    """
    if documents is None:
        documents = np.arange(len(spans.doc_offsets) - 1)
    if len(documents) != store.num_documents:
        raise ArtifactError(f"tags: spans of {len(documents)} documents for tokens of {store.num_documents}")
    keys, ends, kinds = _word_ranges(spans, documents)
    owners = np.repeat(np.arange(store.num_documents), np.diff(store.doc_offsets))
    words = store.word_ids.astype(np.int64)
    at = np.searchsorted(keys, (owners << 32) | np.maximum(words, 0), side="right") - 1
    at[(words < 0) | (at < 0)] = -1
    inside = at >= 0
    inside[inside] = ((owners << 32) | words)[inside] < ends[at[inside]]
    found = np.where(inside, at, -1)
    # A token between words belongs to the identifier of both words beside it.
    order = np.arange(len(found))
    before = np.maximum.accumulate(np.where(words >= 0, order, -1))
    after = np.minimum.accumulate(np.where(words >= 0, order, len(found))[::-1])[::-1]
    between = np.flatnonzero((words < 0) & (before >= 0) & (after < len(found)))
    same = found[before[between]] == found[after[between]]
    found[between[same]] = found[before[between[same]]]
    begins = (found >= 0) & (np.diff(found, prepend=-2) != 0)
    return _Identifiers(np.where(found >= 0, kinds[found] if len(kinds) else -1, -1), begins)


def _word_ranges(spans: WordSpans, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first word, end word and category of each identifier as sorted arrays. A word's number has the
    document's row in its upper 32 bits; spans that share a word are merged.
    """
    counts = np.diff(spans.doc_offsets)[documents]
    rows = np.repeat(np.arange(len(documents)), counts)
    places = np.arange(len(rows)) + np.repeat(spans.doc_offsets[documents] - np.cumsum(counts) + counts, counts)
    lows, highs = ((rows << 32) | np.asarray(bound)[places].astype(np.int64) for bound in (spans.firsts, spans.ends))
    known = [category(name) for name in spans.names]
    kinds = np.array([CATEGORIES.index(name if name in CATEGORIES else "OTHER") for name in known], dtype=np.int64)
    kinds = kinds[np.asarray(spans.labels)[places]] if len(places) else np.zeros(0, dtype=np.int64)
    full = highs > lows
    lows, highs, kinds = lows[full], highs[full], kinds[full]
    order = np.argsort(lows, kind="stable")
    lows, highs, kinds = lows[order], highs[order], kinds[order]
    if not len(lows):
        return lows, highs, kinds
    reach = np.maximum.accumulate(highs)
    group = np.concatenate([[0], np.cumsum(lows[1:] >= reach[:-1])])
    rank = np.array([PRIORITY.index(name) for name in CATEGORIES])[kinds]
    best = np.lexsort((rank, lows - highs, group))  # of each group the longest, then the first by `PRIORITY`
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    return lows[firsts], np.maximum.reduceat(highs, firsts), kinds[best[firsts]]


def _encode_bio(tokens: _Identifiers, categories: list[int]) -> np.ndarray:
    """Return the number of each token's BIO tag, int64, for the numbered ``categories``. Tokens of other categories get
    `IGNORE_INDEX`.
    """
    numbers = np.full(len(CATEGORIES) + 1, IGNORE_INDEX, dtype=np.int64)  # the last is that of no category
    numbers[categories], numbers[-1] = 1 + 2 * np.arange(len(categories)), 0
    tags = numbers[tokens.kinds]
    return np.where((tags > 0) & ~tokens.begins, tags + 1, tags)


def found_identifiers(tags: np.ndarray, doc_offsets: np.ndarray) -> np.ndarray:
    """Return the identifiers that BIO tags encode, as rows (first token, end token, category), int64 (F, 3).

    An I- behind another category, or behind none, begins an identifier.
    """
    kinds = np.where(tags > 0, (tags - 1) // 2, -1)
    before = np.concatenate([[-1], kinds[:-1]])
    before[doc_offsets[:-1][doc_offsets[:-1] < len(tags)]] = -1
    begins = (kinds >= 0) & ((tags % 2 == 1) | (before != kinds))
    firsts = np.flatnonzero(begins)
    # It ends where another begins, where there is none, and with its document.
    stops = np.flatnonzero(begins | (kinds < 0))
    stops = np.union1d(stops, doc_offsets[1:])
    ends = stops[np.searchsorted(stops, firsts, side="right")]
    return np.stack([firsts, ends, kinds[firsts]], axis=1)


def measure_tags(
    documents: TaggedTokens, predicted: np.ndarray, *, num_bootstrap: int, seed: int, small_cell: int
) -> MeasuredClasses:
    """Return strict entity-level F1 of predicted tags on held-out documents: micro, macro over categories, and by
    category. Counts of fewer than ``small_cell`` individuals are hidden.

    Parameters
    ----------
    predicted : int64 array, one entry a token of the held-out documents, in their order
    """
    from reticent.audit.stats.intervals import ratio_estimate, ratio_estimates  # they load scipy
    from reticent.ext.classify.measure import estimate_macro_f1

    test = np.flatnonzero(~documents.is_train)
    store = documents.store
    offsets, _ = store.columns_of(test, ())
    tokens = np.repeat(~documents.is_train, np.diff(store.doc_offsets))
    codes, individual = np.unique(store.individual[test], return_inverse=True)
    owner = np.repeat(individual, np.diff(offsets))
    true = found_identifiers(documents.tags[tokens].clip(min=0), offsets)
    found = found_identifiers(predicted, offsets)
    hidden = documents.tags[tokens] == IGNORE_INDEX  # of a category that was not learned: neither right nor wrong
    found = found[~hidden[found[:, 0]]] if len(found) else found
    shape = len(documents.categories), len(codes)

    def counts(rows: np.ndarray) -> np.ndarray:
        """Return the number of identifiers by category and individual, (C, individuals), from rows of
        `found_identifiers`.
        """
        cells = rows[:, 2] * shape[1] + owner[rows[:, 0]]
        return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)

    both, times = np.unique(np.concatenate([true, found]), axis=0, return_counts=True)
    tops, bottoms = 2 * counts(both[times == 2]), counts(true) + counts(found)
    by_class, draws = ratio_estimates(tops, bottoms, num_bootstrap=num_bootstrap, seed=seed)
    held = counts(true) > 0
    of_document = np.repeat(np.arange(len(test)), np.diff(offsets))
    pairs = np.unique(np.stack([true[:, 2], of_document[true[:, 0]]], axis=1), axis=0)
    rows = [
        ClassRow(
            f1=estimate,
            documents=int(np.count_nonzero(pairs[:, 0] == number)),
            individuals=int(np.count_nonzero(held[number])),
        )
        for number, estimate in enumerate(by_class)
    ]
    return MeasuredClasses(
        macro_f1=estimate_macro_f1(by_class, draws, len(codes)),
        micro_f1=ratio_estimate(tops.sum(axis=0), bottoms.sum(axis=0), num_bootstrap=num_bootstrap, seed=seed),
        classes=[publish(row, small_cell) for row in rows],
        confusion=None,
        documents=len(test),
        individuals=len(codes),
    )


def tag(
    model_folder: Path | str,
    documents: TaggedTokens,
    config: TagConfig | None = None,
    *,
    out: Path | None = None,
    progress: Callable[[StepReport], None] | None = None,
    epoch_store: Callable[[int], TokenStore] | None = None,
    privacy: PrivacyConfig | None = None,
    keep_state: bool = False,
) -> Classified:
    """Train a token classifier on top of a checkpoint, and predict the BIO tags of the held-out documents' tokens.

    Parameters and errors as for `classify`. ``epoch_store`` returns the training documents with surrogates, with the
    words that are one beside them (`RewrittenTokens` writes both); it is needed unless ``config.text`` is "keep".
    """
    from reticent.ext.classify.training import train_head

    config = config or TagConfig()
    own = documents.tags[np.repeat(documents.is_train, np.diff(documents.store.doc_offsets))]
    return train_head(
        model_folder,
        documents,
        config,
        labels=(lambda _: own) if epoch_store is None else (lambda store: tags_of(store, documents.categories)),
        epoch_store=epoch_store,
        out=out,
        progress=progress,
        privacy=privacy,
        keep_state=keep_state,
    )
