"""Identifiers in a token store that can be exchanged: their positions, and matched decoys for each.

A *direct* identifier is a sequence of neighbouring direct words of one category ("Mary Smith", with the tokens
between); an *indirect* one is a single word. A decoy is an identifier of another individual that could replace it. It
is of the same side (a decoy of a member is a member's, so both were trained on), category, number of tokens and shape
(capitals, digits, a space before it), about as frequent, not in the window, and none of the individual's own. Under the
null hypothesis that nothing ties an identifier to the words around it, it is exchangeable with its decoys.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from reticent.audit.leakage.words import SurfaceTable, Words
from reticent.engine.document_kernels import document_ranks
from reticent.engine.kernels import number_tuples
from reticent.engine.randomness import generator
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import core_tokenizer
from reticent.trainer.windows import Windows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

KINDS = ("direct", "indirect")
#: Most tokens between two words of one identifier, such as the punctuation of a date or a phone number.
MAX_GAP = 2
#: Decoys that are tried for a target, and targets that are tried for each wanted one.
MAX_POOL, TRIED = 4096, 4


@dataclass(frozen=True, slots=True)
class Runs:
    """Occurrences of identifiers of one kind (direct or indirect), in store order; every array has shape (R,).

    ``tuples`` numbers distinct token sequences, ``surfaces`` coarse surfaces (-1: with an unknown token), ``shapes``
    the results of `shape_of`; ``categories`` are codes of the caller.
    """

    starts: np.ndarray
    lengths: np.ndarray
    individuals: np.ndarray
    categories: np.ndarray
    tuples: np.ndarray
    surfaces: np.ndarray
    shapes: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Targets:
    """Identifiers to be recovered among their decoys; arrays of shape (I,) except ``candidates``, (I, m + 1).

    Candidates are places in the store of identifiers of ``lengths`` tokens: the true one, then the decoys.
    ``num_eligible`` counts the identifiers that were tried, ``num_unmatched`` those without enough decoys.
    """

    windows: np.ndarray
    individuals: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    candidates: np.ndarray
    num_eligible: int
    num_unmatched: int

    def __len__(self) -> int:
        return len(self.starts)


def shape_of(text: str) -> str:
    """Return the shape of a text: X for capitals, x for other letters, 0 for digits, repeats written once; other
    characters stay.

    >>> shape_of(" Mary O'Neil"), shape_of("06-12"), shape_of("MARY")
    (" Xx X'Xx", '0-0', 'X')
    """
    kinds = ("0" if c.isdigit() else c if not c.isalpha() else "X" if c.isupper() else "x" for c in text)
    return "".join(kind for kind, _ in groupby(kinds))


def runs_of(
    store: TokenStore,
    words: Words,
    kind: str,
    tokenizer: PreTrainedTokenizerFast,
    table: SurfaceTable,
    categories: np.ndarray | None = None,
) -> Runs:
    """Return the occurrences of direct or indirect identifiers (``kind``) in a token store: token span, individual,
    category, spelling and shape of each. Adjacent words of one direct identifier are one occurrence.

    Parameters
    ----------
    words : Words of ``store``
    kind : {"direct", "indirect"}
    categories : integer array, shape (S,), optional
        Category of each word; None: all words are of one category, and only their shapes differ.

    Cost: one decode for each distinct token sequence.
    """
    categories = np.zeros(len(words), dtype=np.int64) if categories is None else categories.astype(np.int64)
    ends = words.starts + words.lengths
    if kind == "direct":
        chosen = (words.flags & DIRECT) > 0
        joined = chosen[1:] & chosen[:-1] & (words.documents[1:] == words.documents[:-1])
        joined &= (categories[1:] == categories[:-1]) & (words.starts[1:] - ends[:-1] <= MAX_GAP)
        first = np.flatnonzero(chosen & ~np.concatenate([[False], joined]))
        last = np.flatnonzero(chosen & ~np.concatenate([joined, [False]]))
    else:
        first = last = np.flatnonzero((words.flags & (DIRECT | INDIRECT)) == INDIRECT)
    starts, lengths = words.starts[first], (ends[last] - words.starts[first]).astype(words.lengths.dtype)
    places = Words(starts, lengths, *(a[first] for a in (words.documents, words.individuals, words.flags, words.flags)))
    tuples, example = number_tuples(store.input_ids, starts, lengths)
    rows = [store.input_ids[starts[e] : starts[e] + lengths[e]].tolist() for e in example.tolist()]
    texts = core_tokenizer(tokenizer).decode(rows, skip_special_tokens=False)
    _, shapes = np.unique(np.array([shape_of(text) for text in texts], dtype=object), return_inverse=True)
    return Runs(
        starts,
        lengths.astype(np.int64),
        words.individuals[first].astype(np.int64),
        categories[first],
        tuples,
        table.surfaces(store.input_ids, places),
        shapes.reshape(-1)[tuples] if len(tuples) else np.empty(0, dtype=np.int64),
    )


def draw_targets(
    store: TokenStore,
    windows: Windows,
    runs: Runs,
    sides: np.ndarray,
    *,
    num_decoys: int,
    per_individual: int,
    seed: int,
    needs_more: bool,
) -> Targets:
    """Draw up to ``per_individual`` identifiers of each individual as attack targets, each with ``num_decoys`` decoys
    of like category, length, shape and frequency from the same side (``sides``: member or not).

    The first occurrence of an identifier in a window stands for all of them there. An identifier that fewer than
    ``num_decoys`` others match is left out and counted.

    Parameters
    ----------
    sides : bool or integer array, shape (R,)
        Of each run's individual whether it is a member, or which of several models it is a member of. A decoy is of
        the same side.
    needs_more : bool
        The model is causal and predicts the words after an identifier, so the identifier must not end its window.

    Cost: time and memory O(individuals x (4 ``per_individual``) x 4,096) at worst, in groups of equals.
    """
    random = generator(seed, 21)
    spots, window = _find_eligible(windows, runs, needs_more)
    # The order within an individual is random: the first ones with enough decoys are kept.
    keys = random.random(len(spots))
    order = np.lexsort((keys, runs.individuals[spots]))
    spots, window = spots[order], window[order]
    place = _rank_within_individual(runs.individuals[spots])
    tried = place < TRIED * per_individual
    spots, window = spots[tried], window[tried]
    candidates = np.full((len(spots), num_decoys), -1, dtype=np.int64)
    traits = np.stack([sides, runs.categories, runs.lengths, runs.shapes])
    _, group = np.unique(traits, axis=1, return_inverse=True)
    group = group.reshape(-1)
    bands = _frequency_bands(runs, sides)
    own = _owned_surfaces(runs, runs.individuals)
    for number in np.unique(group[spots]).tolist():
        mine = np.flatnonzero(group[spots] == number)
        members = np.flatnonzero((group == number) & (runs.surfaces >= 0))
        _, first = np.unique(runs.tuples[members], return_index=True)
        pool = members[first]
        if len(pool) < num_decoys:
            continue
        if len(pool) > MAX_POOL:
            pool = np.sort(random.choice(pool, MAX_POOL, replace=False))
        allowed = np.abs(bands[spots[mine], None] - bands[pool]) <= 1
        allowed &= ~np.isin(runs.individuals[spots[mine], None] * _surface_base(runs) + runs.surfaces[pool], own)
        allowed &= ~_in_window(store, windows, window[mine], runs, pool)
        lots = np.where(allowed, random.random(allowed.shape), np.inf)
        best = np.argsort(lots, axis=1, kind="stable")[:, :num_decoys]
        enough = np.flatnonzero(allowed.sum(axis=1) >= num_decoys)
        candidates[mine[enough]] = runs.starts[pool[best[enough]]]
    matched = (candidates >= 0).all(axis=1)
    kept = np.flatnonzero(matched)
    kept = kept[_rank_within_individual(runs.individuals[spots[kept]]) < per_individual]
    chosen = spots[kept]
    return Targets(
        window[kept],
        runs.individuals[chosen],
        runs.starts[chosen],
        runs.lengths[chosen],
        np.concatenate([runs.starts[chosen][:, None], candidates[kept]], axis=1),
        len(spots),
        int(np.count_nonzero(~matched)),
    )


def _find_eligible(windows: Windows, runs: Runs, needs_next_token: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return two int arrays: indices of the identifier occurrences (``runs``) that the attack can use, and the window
    of each. An occurrence can be used if its window contains it whole (and a token after it if ``needs_next_token``)
    and no earlier occurrence of the same tokens, and if it has no unknown token.
    """
    if len(runs) == 0 or len(windows) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    window = np.searchsorted(windows.starts, runs.starts, side="right") - 1
    end = windows.starts[window] + windows.lengths[window] - int(needs_next_token)
    whole = np.flatnonzero((runs.starts + runs.lengths <= end) & (runs.surfaces >= 0))
    code = window[whole] * (int(runs.tuples.max()) + 1) + runs.tuples[whole]
    _, first = np.unique(code, return_index=True)
    spots = whole[np.sort(first)]
    return spots, window[spots]


def _rank_within_individual(sorted_individuals: np.ndarray) -> np.ndarray:
    """Number the entries of each individual from 0. ``sorted_individuals`` has the individual of each entry; those of
    one are adjacent.
    """
    bounds = np.flatnonzero(np.diff(sorted_individuals, prepend=-1, append=-1))
    return document_ranks(np.zeros(len(sorted_individuals)), bounds)


def _frequency_bands(runs: Runs, sides: np.ndarray) -> np.ndarray:
    """Return the frequency band of each occurrence, int64 (R,): the bit length of the number of occurrences of the same
    tokens on the same side (members or held-out).
    """
    code = runs.tuples * (int(sides.max(initial=0)) + 1) + sides
    _, sequence, counts = np.unique(code, return_inverse=True, return_counts=True)
    return np.frexp(counts)[1][sequence.reshape(-1)] if len(runs) else np.empty(0, dtype=np.int64)


def _surface_base(runs: Runs) -> int:
    """Return a number greater than every code of a surface form. Individual · this number + code is thus unique for
    each pair (individual, surface form).
    """
    return int(runs.surfaces.max(initial=0)) + 2


def _owned_surfaces(runs: Runs, owners: np.ndarray) -> np.ndarray:
    """Return the distinct pairs (individual, surface form) of identifier occurrences, each pair as one integer, sorted.
    ``owners`` has the individual of each occurrence.
    """
    return np.unique(owners * _surface_base(runs) + runs.surfaces)


def _in_window(
    store: TokenStore, windows: Windows, window_numbers: np.ndarray, runs: Runs, candidates: np.ndarray
) -> np.ndarray:
    """Return whether each of the ``candidates`` (identifier occurrences, as indices into ``runs``) also occurs in each
    window, bool (windows, candidates). All candidates have the same number of tokens.
    """
    length = int(runs.lengths[candidates[0]]) if len(candidates) else 1
    counts = np.maximum(windows.lengths[window_numbers] - length + 1, 0)
    row = np.repeat(np.arange(len(window_numbers)), counts)
    before = np.concatenate([[0], np.cumsum(counts)[:-1]])
    places = windows.starts[window_numbers][row] + np.arange(counts.sum()) - before[row]
    both = np.concatenate([runs.starts[candidates], places]).astype(np.int64)
    numbers, _ = number_tuples(store.input_ids, both, np.full(len(both), length, dtype=np.int32))
    # The pool's sequences are distinct and come first, so they are numbers 0 to len(pool) - 1, in order.
    found = np.zeros((len(window_numbers), len(candidates)), dtype=bool)
    of_pool = numbers[len(candidates) :] < len(candidates)
    found[row[of_pool], numbers[len(candidates) :][of_pool]] = True
    return found
