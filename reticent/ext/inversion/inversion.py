"""Inversion: identifiers that were only context, never prediction targets, are recovered among decoys by the words
around them.

For a true identifier c at position t and m matched decoys (:mod:`reticent.ext.inversion.identifiers`),

    S(c) = sum over j > t of log p_theta(x_j | … c …) - log p_theta0(x_j | … c …)

as in definitions.md#inversion-and-association. The candidate stands at every place of c in its window, and these places
do not count: the scored text is the same for every candidate. A masked model gives the pseudo-log-likelihood of the
words on both sides, over the folds of the audit. theta0 is subtracted, so that common knowledge (a "Mrs." before a
woman's name) does not count. General knowledge of language from fine-tuning does count; the rate of held-out
individuals shows it. The base model itself is ranked by its own likelihood: the negative control.

``all`` sums over all the words, ``ordinary`` over those in no identifier: the first finds a name by the phone number
after it, the second by the story.

The same candidates are also ranked *in place*: by their own likelihood where the identifier stands, given the words
before it, of a masked model given the words around it. An identifier that is far from the most likely word may still be
the likeliest of its kind.

Shapes: I targets, C = m + 1 candidates (the true one first), B targets a batch, T tokens a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from reticent.audit.config import InversionConfig
from reticent.audit.evidence.inversion import Chance, InPlace, InvertedKind, RankedCandidates
from reticent.audit.evidence.leakage import Sides
from reticent.audit.scoring.rows import DIGITS, sum_choices, sum_log_probs
from reticent.audit.scoring.scores import word_folds
from reticent.audit.stats.intervals import Bootstrap, two_sides
from reticent.core.errors import TrainingError
from reticent.ext.inversion.identifiers import Targets
from reticent.trainer.windows import Batch, Windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "DRAWS",
    "InversionConfig",
    "in_place",
    "inversion",
    "rank_first_scores",
    "score_candidates",
    "score_in_place",
]

#: Groups of the words that are scored: in no identifier, in one.
ORDINARY, FLAGGED = 0, 1
#: Draws in the place of an identifier, and the probability with which one of them must be it, for it to be extracted.
DRAWS, EXTRACTED = (1, 100), 0.5
#: Tokens by which the beginnings of targets that a causal model is asked of together may differ: they are read for each
#: candidate.
NEAR = 8
#: Log-probability of a candidate of which a model can score no token, the first of a window without a prefix.
UNSCORED = -100.0


def score_candidates(
    model: PreTrainedModel,
    windows: Windows,
    targets: Targets,
    *,
    folds: int | None = None,
    seed: int = 0,
    batch_size: int = 64,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Replace the identifier in the text by each candidate (the true one and decoys), and return the model's summed
    log-probability of the other words, float64 (targets, candidates, 2): ordinary words, and words of other
    identifiers. For a masked model the words are masked and predicted in ``folds`` portions.

    Parameters
    ----------
    model : on its device, in evaluation mode
    folds : int, optional
        For a masked model: it predicts the words in this many portions, as in `score_masked`. None: a causal model,
        which predicts the tokens after the identifier.
    batch_size : int
        Rows at once; a row is a candidate.

    Returns
    -------
    The last axis is ordinary words and words of identifiers.
    """
    num_candidates = targets.candidates.shape[1]
    sums = np.zeros((*targets.candidates.shape, 2))
    fold_of, mask = None, windows.special.mask
    if folds is not None:
        if mask is None:
            raise TrainingError("inversion of a masked model needs a mask token and the tokenizer has none")
        fold_of, _ = word_folds(windows.store, folds, seed)
    done = 0
    for chosen in _batches(windows, targets, max(1, batch_size // num_candidates), causal=fold_of is None):
        ids, groups, attention, positions = _scoring_rows(windows, targets, chosen, causal=folds is None)
        rows = ids.reshape(-1, ids.shape[-1])
        true, flat = rows, np.repeat(groups, num_candidates, axis=0)
        if fold_of is None or mask is None:
            # Up to the identifier all candidates of a target are equal: a causal model reads that once.
            equal = (ids == ids[:, :1]).all(axis=(0, 1))
            shared = int(np.argmin(np.append(equal, False)))
            shared = min(shared, int(np.argmax(np.append((flat >= 0).any(axis=0), True))))
            found = sum_log_probs(
                model, rows, true, flat, causal=True, num_groups=2, shared=shared, alike=num_candidates
            )
        else:
            found = np.zeros((len(rows), 2))
            seen = np.repeat(attention, num_candidates, axis=0)
            fold = np.where(positions >= 0, fold_of[np.maximum(positions, 0)], -1)
            for number in range(int(fold_of.max(initial=-1)) + 1):
                asked = np.repeat((fold == number) & (groups >= 0), num_candidates, axis=0)
                found += sum_log_probs(
                    model,
                    np.where(asked, mask, rows),
                    true,
                    np.where(asked, flat, -1).astype(np.int8),
                    causal=False,
                    attention=seen,
                    num_groups=2,
                )
        sums[chosen] = found.reshape(len(chosen), num_candidates, 2)
        done += len(chosen)
        if progress:
            progress(done)
    return sums


def score_in_place(
    model: PreTrainedModel,
    windows: Windows,
    targets: Targets,
    *,
    masked: bool,
    batch_size: int = 64,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return the log-probability that a model gives each candidate's own tokens at the identifier's position; float64
    (I, C).

    A causal model predicts them from the words before. A masked model sees the words on both sides, and a mask for
    every token of the identifier, wherever it stands in the window. Parameters are those of `score_candidates`.

    Cost: a forward pass of the window of each target, and of a causal model one of its candidates alone.
    """
    sums = np.full(targets.candidates.shape, UNSCORED)
    mask, done = windows.special.mask, 0
    if masked and mask is None:
        raise TrainingError("inversion of a masked model needs a mask token and the tokenizer has none")
    num_candidates = targets.candidates.shape[1]
    at_once = batch_size if masked else max(1, batch_size // num_candidates)
    for chosen in _batches(windows, targets, at_once, causal=not masked):
        ids, within, batch, positions = _insert_candidates(windows, targets, chosen)
        ends = targets.starts[chosen] + targets.lengths[chosen]
        own = (positions >= targets.starts[chosen][:, None]) & (positions < ends[:, None])
        if masked:
            assert mask is not None  # else it was refused
            hidden = np.where(within >= 0, mask, batch.input_ids)
            sums[chosen] = sum_choices(model, hidden, own, ids.transpose(0, 2, 1)[own], attention=batch.attention)
        else:
            columns = np.flatnonzero(own.any(axis=0))
            scored = own[:, : columns[-1] + 1].copy()
            scored[:, 0] = False
            asked = scored.any(axis=1)
            if asked.any():
                rows = ids[asked, :, : columns[-1] + 1].reshape(-1, columns[-1] + 1)
                groups = np.repeat(np.where(scored[asked], 0, -1).astype(np.int8), num_candidates, axis=0)
                equal = np.append((ids == ids[:, :1]).all(axis=(0, 1))[: columns[0]], False)
                found = sum_log_probs(
                    model, rows, rows, groups, causal=True, shared=int(np.argmin(equal)), alike=num_candidates
                )
                sums[chosen[asked]] = found[:, 0].reshape(-1, num_candidates)
        done += len(chosen)
        if progress:
            progress(done)
    return sums


def _batches(windows: Windows, targets: Targets, size: int, *, causal: bool) -> Iterator[np.ndarray]:
    """Yield batches of target indices with windows of similar length, for a causal model also with identifiers at
    similar positions.
    """
    before = (targets.starts - windows.starts[targets.windows]) // NEAR * int(causal)
    order = np.lexsort((-windows.lengths[targets.windows], before))
    for alike in np.split(order, np.flatnonzero(np.diff(before[order])) + 1):
        for first in range(0, len(alike), size):
            yield alike[first : first + size]


def _scoring_rows(
    windows: Windows, targets: Targets, chosen: np.ndarray, *, causal: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return model inputs for the chosen targets: token ids with each candidate inserted, (B, C, T), then three arrays
    (B, T): the group of each token to score (ordinary word or identifier; -1: not scored), the attention mask, and the
    token's position in the store.
    """
    ids, within, batch, positions = _insert_candidates(windows, targets, chosen)
    asked = batch.is_text & (within < 0)
    if causal:
        asked &= positions >= (targets.starts[chosen] + targets.lengths[chosen])[:, None]
    groups = np.where(asked, np.where(batch.flags > 0, FLAGGED, ORDINARY), -1).astype(np.int8)
    return ids, groups, batch.attention, positions


def _insert_candidates(
    windows: Windows, targets: Targets, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Batch, np.ndarray]:
    """Replace the identifier by each candidate, wherever it occurs in the windows of the chosen targets. Return the
    token ids (B, C, T), each token's index within the identifier (B, T; -1 outside), the unchanged windows as a batch,
    and the tokens' positions in the store (B, T).
    """
    store = windows.store
    batch = windows.gather(targets.windows[chosen])
    width = batch.input_ids.shape[1]
    positions = windows.token_positions(targets.windows[chosen], width)
    lengths = targets.lengths[chosen]
    # Tokens of the true identifier, one row a target, -1 beyond its length (equal to no token).
    ahead = np.arange(int(lengths.max()))
    inside = ahead < lengths[:, None]
    sequence = np.where(
        inside, store.input_ids[_clip_positions(store, targets.starts[chosen][:, None] + ahead)].astype(int), -1
    )
    # Its beginnings: all of its tokens follow. `within` is the place in the identifier of each cell, -1 outside.
    begins = np.asarray(batch.is_text).copy()
    for step in range(len(ahead)):  # over the tokens of one identifier
        moved = np.full_like(batch.input_ids, -1)
        moved[:, : width - step] = np.where(batch.is_text, batch.input_ids, -1)[:, step:]
        begins &= (moved == sequence[:, step, None]) | ~inside[:, step, None]
    begins &= _non_overlapping(begins, lengths)
    within = np.full(batch.input_ids.shape, -1)
    for step in range(len(ahead)):
        at = np.zeros_like(begins)
        at[:, step:] = begins[:, : width - step]
        within[at & inside[:, step, None]] = step
    tokens = store.input_ids[_clip_positions(store, targets.candidates[chosen][:, :, None] + ahead)].astype(np.int64)
    put_in = np.take_along_axis(tokens, np.maximum(within, 0)[:, None, :], axis=2)
    ids = np.where(within[:, None, :] >= 0, put_in, batch.input_ids[:, None, :])
    return ids, within, batch, positions


def _clip_positions(store: Any, positions: np.ndarray) -> np.ndarray:
    """Return token positions with those beyond the store's end set to its last token."""
    return np.minimum(positions, store.num_tokens - 1)


def _non_overlapping(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return a bool array that keeps of the given start positions (``begins``, bool (rows, tokens)) those whose span of
    ``lengths`` tokens does not overlap one that starts earlier in the row. For example "1 1" starts once in "1 1 1".
    """
    columns = np.arange(begins.shape[1])
    latest = np.maximum.accumulate(np.where(begins, columns, -1), axis=1)
    before = np.concatenate([np.full((len(begins), 1), -1), latest[:, :-1]], axis=1)
    return (before < 0) | (columns - before >= lengths[:, None])


# ------------------------------------------------------------------------------------------------------- what it says


def rank_first_scores(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rank of the first score in each row, 1 for the highest, and its share of the first place (1 / number
    of those tied there, or 0); both float64 (I,).

    Ties share: the rank is the mean rank of those tied with it, and all that hold the first place have equal parts of
    it.

    >>> rank_first_scores(np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 2.0]]))
    (array([1. , 1.5, 2. , 3. ]), array([1.        , 0.5       , 0.33333333, 0.        ]))
    """
    scores = np.round(scores, DIGITS)
    greater = (scores > scores[:, :1]).sum(axis=1)
    ties = (scores == scores[:, :1]).sum(axis=1) - 1
    return 1 + greater + ties / 2, np.where(greater == 0, 1 / (1 + ties), 0.0)


def inversion(
    targets: Targets,
    sums: np.ndarray,
    base_sums: np.ndarray | None,
    is_member: np.ndarray,
    kept: np.ndarray | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> InvertedKind:
    """Measure how well a model identifies the true identifier among decoys by the log-probability of the words around
    it (``sums``, minus those of the base model): top-1 rate, mean reciprocal rank and bits, for members and held-out
    individuals.

    bits = log2(m + 1) - log2(rank).

    Parameters
    ----------
    sums, base_sums : shape (I, C, 2), of `score_candidates`; base_sums None ranks by the likelihood itself
    is_member : bool array, shape (I,)
    kept : as for `two_sides`
    """
    scores = sums if base_sums is None else sums - base_sums
    num_candidates = targets.candidates.shape[1]
    ranks = np.arange(1, num_candidates + 1)
    rate = partial(two_sides, individuals=targets.individuals, is_member=is_member, kept=kept, **bootstrap)

    def measure_ranks(candidate_scores: np.ndarray) -> RankedCandidates:
        """Return top-1 rate, mean reciprocal rank and bits of the true identifier among the candidates, scores (I, C);
        the first is the true one."""
        rank, first = rank_first_scores(candidate_scores)
        bits = np.log2(num_candidates / rank)
        return RankedCandidates(top1=rate(first, limit=1.0), mrr=rate(1 / rank, limit=1.0), bits=rate(bits, limit=None))

    return InvertedKind(
        score="likelihood" if base_sums is None else "difference",
        num_decoys=num_candidates - 1,
        num_targets=Sides.of(is_member),
        num_eligible=targets.num_eligible,
        num_unmatched=targets.num_unmatched,
        chance=Chance(
            top1=1 / num_candidates,
            mrr=float(np.mean(1 / ranks)),
            bits=float(np.mean(np.log2(num_candidates / ranks))),
        ),
        all=measure_ranks(scores.sum(axis=2)),
        ordinary=measure_ranks(scores[:, :, ORDINARY]),
        own=None
        if base_sums is None
        else RankedCandidates(top1=rate(rank_first_scores(sums.sum(axis=2))[1], limit=1.0)),
    )


def in_place(
    targets: Targets,
    sums: np.ndarray,
    base_sums: np.ndarray | None,
    is_member: np.ndarray,
    kept: np.ndarray | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> InPlace:
    """Measure how well a model identifies the true identifier among decoys by the identifier's own log-probability
    (``sums``, minus that of the base model): top-1 rate and bits, for members and held-out individuals. Return also the
    shares of identifiers that are extracted by given numbers of samples.

    The bits are the exposure of an identifier [@carlini2019] among its decoys. With q the model's probability of the
    identifier, n draws contain it with probability 1 - (1 - q)^n: it is extracted where that is at least 0.5, as
    (n, p)-discoverable extraction of a passage [@hayes2025np].

    Parameters
    ----------
    sums, base_sums : shape (I, C), of `score_in_place`; the rest as for `inversion`
    """
    rate = partial(two_sides, individuals=targets.individuals, is_member=is_member, kept=kept, **bootstrap)
    rank, first = rank_first_scores(sums if base_sums is None else sums - base_sums)
    missed = np.log1p(-np.minimum(np.exp(sums[:, 0]), 1 - 1e-12))  # log of the probability that a draw is another
    return InPlace(
        ranked=RankedCandidates(
            top1=rate(first, limit=1.0), bits=rate(np.log2(targets.candidates.shape[1] / rank), limit=None)
        ),
        own=None if base_sums is None else RankedCandidates(top1=rate(rank_first_scores(sums)[1], limit=1.0)),
        extracted={
            str(num): rate((-np.expm1(num * missed) >= EXTRACTED).astype(np.float64), limit=1.0) for num in DRAWS
        },
    )
