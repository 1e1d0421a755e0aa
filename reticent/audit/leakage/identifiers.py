"""The identifiers whose leaks are counted (definitions.md#leakage), and their occurrences in the documents.

An *indirect* identifier is an n-gram that fewer than k units use, while k or more use each shorter part of it. Words
are equal here if their coarse surface forms are, because predictions are matched in this way. So a case variant of a
common word is not an identifier, although it is protected. A *direct* identifier is the surface of a word in a direct
span, unless k units or more use that surface outside of direct spans ("de" in a street name). Identifiers are measured
up to any length, independent of the n of a model's protection.

Invariant: identity is exact. A word is its surface, and an n-gram is the pair of its two (n-1)-grams, never a hash.

Cost: `Identifiers` takes 16 bytes for each word and length while it is made, and sorts the words once for each length.
A look-up of predictions is a binary search for each word and length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reticent.audit.evidence.leakage import Part
from reticent.audit.leakage.words import NO_SURFACE, Words
from reticent.engine.kernels import number_tuples
from reticent.engine.schema import DIRECT, INDIRECT

#: The flag bits of each part of the identifiers.
PART_FLAGS: dict[Part, int] = {"both": DIRECT | INDIRECT, "direct": DIRECT, "indirect": INDIRECT}


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a model when it predicts a word: the window of the word, without the words that are hidden.

    Attributes
    ----------
    windows : int array, shape (S,), the window of each word
    folds : int array, shape (S,), or None
        For a masked model, the pass in which each word is masked, together with all other words of its fold. None for a
        causal model, which sees the words before.
    """

    windows: np.ndarray
    folds: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """Which identifiers a model predicted, by number, and which of their occurrences it predicted at their own
    position.

    Attributes
    ----------
    anywhere : bool array, shape (num_identifiers,)
    unseen : bool array, shape (num_identifiers,), or None
        Predicted at a position whose context does not contain it; None if contexts are unknown.
    in_place : bool array, shape (occurrences,), or None
    """

    anywhere: np.ndarray
    unseen: np.ndarray | None = None
    in_place: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class _Level:
    """The n-grams of one length: their keys, ascending; whether k units or more use each; its number as an identifier,
    or -1."""

    keys: np.ndarray
    is_shared: np.ndarray
    numbers: np.ndarray


def follows_directly(words: Words) -> np.ndarray:
    """Return whether each word directly follows the previous word of the same document, bool (S,).

    It does not if a word without a token of its own lies between them.
    """
    following = np.zeros(len(words), dtype=bool)
    following[1:] = words.documents[1:] == words.documents[:-1]
    if words.numbers is not None:
        following[1:] &= words.numbers[1:] == words.numbers[:-1] + 1
    return following


class Identifiers:
    """The identifiers of a sequence of words, with one entry for each occurrence, sorted by length and then by
    position.

    Parameters
    ----------
    words : words of the documents, with the flags of the protection
    surfaces : int64 array, shape (S,), number of each word's surface form
    k, n : an n-gram of at most ``n`` words that fewer than ``k`` units use is an indirect identifier
    max_n : longest measured n-gram; n-grams over ``n`` do not count in the headline
    units : integer array by individual code, the household of each individual; None: support counts individuals
    held : bool array, shape (S,), or None
        Words of the documents on which support is counted; None for all.
    owners_of_all : whether identifiers of the documents held are searched in all documents (True) or in those held

    Attributes
    ----------
    num : number of identifiers; they are numbered from 0
    places, lengths, numbers, flags : arrays, shape (occurrences,), one entry an occurrence
        First word, number of words, identifier number, and the flags `DIRECT` or `INDIRECT` of each occurrence.
    individuals : array, shape (occurrences,), the individual of each occurrence
    uses : three arrays (identifier, unit, first word) over all places where the words of an identifier occur, in a
        direct span or not
    num_common : part -> number of surfaces or n-grams that are protected, but are not identifiers because k units or
        more use them
    """

    def __init__(
        self,
        words: Words,
        surfaces: np.ndarray,
        *,
        k: int,
        n: int,
        max_n: int,
        units: np.ndarray | None = None,
        held: np.ndarray | None = None,
        owners_of_all: bool = False,
    ):
        self.words, self.surfaces, self.n, self.max_n = words, surfaces, n, max(n, max_n)
        of_word = words.individuals.astype(np.int64) if units is None else units[words.individuals].astype(np.int64)
        counted = np.ones(len(words), dtype=bool) if held is None else held
        direct = ((words.flags & DIRECT) != 0) & counted & (surfaces != NO_SURFACE)
        outside = counted & ((words.flags & DIRECT) == 0)
        num_surfaces = int(surfaces.max(initial=-1)) + 1
        common = _count_supports(surfaces[outside], of_word[outside], num_surfaces) >= k
        self.is_direct = np.zeros(num_surfaces, dtype=bool)
        self.is_direct[surfaces[direct]] = True
        num_direct_common = int(np.count_nonzero(self.is_direct & common))
        self.is_direct &= ~common
        self._levels: list[_Level] = []
        self._is_indirect = np.zeros(0, dtype=bool)
        self._build_levels(np.where(counted, surfaces, NO_SURFACE), of_word, k, num_surfaces)
        self.num = sum(int(np.count_nonzero(level.numbers >= 0)) for level in self._levels)
        own = np.where(counted, surfaces, NO_SURFACE) if not owners_of_all else surfaces
        self._find_occurrences(own, direct, of_word)
        self.num_common: dict[Part, int] = {"direct": num_direct_common, "indirect": self._num_common_ngrams(counted)}

    def _build_levels(self, surfaces: np.ndarray, of_word: np.ndarray, k: int, num_surfaces: int) -> None:
        """Number the identifiers. For each n up to ``max_n``, store a table of the n-grams: whether at least ``k``
        individuals (or households) use each, and its number if it is an identifier."""
        following, used = follows_directly(self.words), 0
        ids = surfaces
        is_indirect = []
        for n in range(1, self.max_n + 1):
            if n == 1:
                keys, inverse, at = np.arange(num_surfaces), ids[ids >= 0], np.flatnonzero(ids >= 0)
            else:
                at, pairs = _ngram_pairs(ids, self._levels[-1], following if n == 2 else None)
                keys, inverse = np.unique(pairs, return_inverse=True)
            support = _count_supports(inverse, of_word[at], len(keys))
            found = (support > 0) & (support < k)
            kept = found | self.is_direct if n == 1 else found
            numbers = np.where(kept, used + np.cumsum(kept) - 1, -1)
            is_indirect.append(found[kept])
            used += int(np.count_nonzero(kept))
            self._levels.append(_Level(keys, support >= k, numbers))
            ids = np.full(len(surfaces), -1, dtype=np.int64)
            ids[at] = inverse
        self._is_indirect = np.concatenate(is_indirect)

    def _find_occurrences(self, surfaces: np.ndarray, direct: np.ndarray, of_word: np.ndarray) -> None:
        """Find all occurrences of identifiers in the words; store of each the first word's position, the identifier's
        number, its length in words, and whether it is direct or indirect."""
        places, numbers, lengths = self.find(surfaces, follows_directly(self.words))
        self.uses = numbers, of_word[places], places
        flags = np.where(self._is_indirect[numbers], INDIRECT, 0).astype(np.uint8)
        single = lengths == 1
        flags[single & direct[places]] |= np.where(
            self.is_direct[surfaces[places[single & direct[places]]]], DIRECT, 0
        ).astype(np.uint8)
        kept = flags > 0
        self.places, self.numbers, self.lengths, self.flags = (a[kept] for a in (places, numbers, lengths, flags))
        self.individuals = self.words.individuals[self.places]

    def _num_common_ngrams(self, counted: np.ndarray) -> int:
        """Return the number of distinct n-grams that are protected as spelled but identify nobody: k or more
        individuals use them if case and accents are ignored."""
        following, total = follows_directly(self.words), 0
        for n in range(1, self.n + 1):
            starts = np.flatnonzero((self.words.ngram_starts >> (n - 1) & 1).astype(bool) & counted)
            starts = starts[starts + n <= len(self.words)]
            whole = np.ones(len(starts), dtype=bool)
            for ahead in range(n):
                whole &= (self.surfaces[starts + ahead] != NO_SURFACE) & (ahead == 0 or following[starts + ahead])
            starts = starts[whole]
            own = self.places[(self.lengths == n) & ((self.flags & INDIRECT) != 0)]
            numbers, _ = number_tuples(self.surfaces, starts, np.full(len(starts), n))
            total += len(np.unique(numbers)) - len(np.unique(numbers[np.isin(starts, own)]))
        return total

    def find(self, surfaces: np.ndarray, following: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the identifiers in a sequence of words, given as numbers of normalised spellings; return three integer
        arrays: each occurrence's first word, identifier number, and length in words.

        Parameters
        ----------
        surfaces : int64 array, shape (P,), numbers of the words' surface forms
        following : bool array, shape (P,), whether a word directly follows the word before it
        """
        known = np.where(surfaces < len(self.is_direct), surfaces, NO_SURFACE)
        places, numbers, lengths = [], [], []
        ids = known
        for n, level in enumerate(self._levels, start=1):
            if n == 1:
                at, found = np.flatnonzero(ids >= 0), ids[ids >= 0]
            else:
                at, pairs = _ngram_pairs(ids, self._levels[n - 2], following if n == 2 else None)
                row = np.searchsorted(level.keys, pairs)
                hit = row < len(level.keys)
                hit[hit] = level.keys[row[hit]] == pairs[hit]
                at, found = at[hit], row[hit]
            number = level.numbers[found]
            places.append(at[number >= 0])
            numbers.append(number[number >= 0])
            lengths.append(np.full(len(places[-1]), n))
            ids = np.full(len(surfaces), -1, dtype=np.int64)
            ids[at] = found
        return np.concatenate(places), np.concatenate(numbers), np.concatenate(lengths)

    def predicted(
        self,
        predicted: np.ndarray,
        words: Words,
        true: np.ndarray,
        context: Context | None = None,
        own: np.ndarray | None = None,
    ) -> Predicted:
        """Return which identifiers a model predicted anywhere, which of their occurrences it predicted in place and, if
        ``context`` is given, which it predicted where the context does not contain them. Predicted and true words are
        given by the number of their normalised spelling.

        Parameters
        ----------
        predicted, true : int64 arrays, shape (P,), predicted and true surface form of each scored word
        words : the scored words
        context : the contexts of the predictions, or None
        own : bool array, shape (P,), the scored words that are the words of these identifiers, in order; None: all
        """
        following = follows_directly(words)
        places, numbers, lengths = self.find(predicted, following)
        anywhere = np.zeros(self.num, dtype=bool)
        anywhere[numbers] = True
        unseen = None
        if context is not None:
            held = self.find(true, following)
            hidden = ~_in_context(places, numbers, lengths, held, context)
            unseen = np.zeros(self.num, dtype=bool)
            unseen[numbers[hidden]] = True
        right = (predicted == true) & (true != NO_SURFACE)
        right = right if own is None else right[own]
        wrong_before = np.concatenate([[0], np.cumsum(~right)])
        in_place = wrong_before[self.places + self.lengths] == wrong_before[self.places]
        return Predicted(anywhere, unseen, in_place)

    def have_occurrences(self, is_chosen: np.ndarray) -> np.ndarray:
        """Return whether each identifier has at least one occurrence among those that the mask ``is_chosen`` selects,
        bool (num_identifiers,)."""
        among = np.zeros(self.num, dtype=bool)
        among[self.numbers[is_chosen]] = True
        return among

    def parts(self) -> Iterator[tuple[Part, np.ndarray]]:
        """Yield (type of identifier, mask of its occurrences, bool (occurrences,)) for the types "both", "direct" and
        "indirect", over identifiers of up to n words."""
        within = self.lengths <= self.n
        for part, bits in PART_FLAGS.items():
            yield part, ((self.flags & bits) != 0) & within


def _count_supports(values: np.ndarray, units: np.ndarray, num_values: int) -> np.ndarray:
    """Return the number of distinct users of each value from 0 to ``num_values`` - 1. ``units`` has the user
    (individual or household) of each entry of ``values``; negative values are ignored."""
    known = values >= 0
    size = int(units.max(initial=0)) + 1
    pairs = np.sort(values[known].astype(np.int64) * size + units[known])
    return np.bincount(pairs[np.diff(pairs, prepend=-1) > 0] // size, minlength=num_values)


def _ngram_pairs(ids: np.ndarray, level: _Level, following: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the n-grams whose two (n-1)-grams are each used by k or more individuals, and an int64
    key of each such n-gram. Only these can be identifiers that contain no shorter one."""
    shared = np.zeros(len(ids), dtype=bool)
    shared[ids >= 0] = level.is_shared[ids[ids >= 0]]
    both = shared[:-1] & shared[1:]
    if following is not None:
        both &= following[1:]
    at = np.flatnonzero(both)
    return at, ids[at].astype(np.int64) * max(len(level.keys), 1) + ids[at + 1]


def _in_context(
    positions: np.ndarray,
    numbers: np.ndarray,
    lengths: np.ndarray,
    occurrences: tuple[np.ndarray, np.ndarray, np.ndarray],
    context: Context,
) -> np.ndarray:
    """Return whether each predicted identifier also occurs in the text that the model saw when it predicted it, bool
    (predictions,). ``occurrences`` has the position, identifier number and length of all true occurrences.

    The context of a causal model is the words before. The context of a masked model is the words of its window that are
    not masked in the same pass. The words of an n-gram (n >= 2) are predicted in several passes, so its context is the
    words of the window outside the n-gram.
    """
    if not len(occurrences[0]) or not len(positions):
        return np.zeros(len(positions), dtype=bool)
    size = int(context.windows.max(initial=0)) + 1
    keys = occurrences[1] * size + context.windows[occurrences[0]]
    order = np.lexsort((occurrences[0], keys))
    keys, at = keys[order], occurrences[0][order]
    wanted = numbers * size + context.windows[positions]
    first, end = (np.searchsorted(keys, wanted, side) for side in ("left", "right"))
    stands = first < end
    earliest = at[np.minimum(first, len(at) - 1)]
    before = stands & (earliest + lengths <= positions)
    if context.folds is None:
        return before
    behind = stands & (at[np.maximum(end - 1, 0)] >= positions + lengths)
    # For single words: how many occurrences in the window are masked in the same pass?
    num_folds = int(context.folds.max(initial=0)) + 1
    masked = np.sort(keys * num_folds + context.folds[at])
    own = wanted * num_folds + context.folds[positions]
    num_masked = np.searchsorted(masked, own, "right") - np.searchsorted(masked, own, "left")
    return np.where(lengths == 1, end - first > num_masked, before | behind)
