"""Memorization of canaries by a model: exposure, extraction, and a lower bound on epsilon from one
training run.

A canary is scored beside references of the same form in its place; it is ranked by the sum of the log-probabilities of
the secret (for the arm ``context``: of the words after it). Canaries that the coin left out are scored the same way,
for comparison: their exposure is that of a secret that was never written, 1.44 bits on average among many references.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent import _rust
from reticent.audit.config import CanaryAudit
from reticent.audit.evidence.extraction import Canaries, CanaryArm, InAndOut, OneRun
from reticent.audit.scoring.generate import generate
from reticent.audit.scoring.scores import score_models
from reticent.audit.stats.intervals import LEVEL, Bootstrap, Estimate, one_run_epsilon, ratio_difference, ratio_estimate
from reticent.core.errors import PolicyError
from reticent.engine.canaries import ARMS, Planted
from reticent.engine.document_kernels import document_sums
from reticent.engine.schema import DIRECT
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["CanaryAudit", "CanaryTokens", "audit_canaries", "exposures", "one_run", "tokens_of_canaries"]

#: Most positions of a canary for a masked model: each of its words takes a pass of its own.
MOST_FOLDS = 64


@dataclass(frozen=True, slots=True)
class CanaryTokens:
    """Every canary and its references tokenised: document c·(R + 1) is canary c, the R after it are its references.

    ``secret`` marks the tokens of the secret, ``asked`` (flags of the store) the tokens that are scored.
    """

    store: TokenStore
    secret: np.ndarray
    arms: np.ndarray
    included: np.ndarray

    @property
    def width(self) -> int:
        """Number of texts of each canary: the canary itself and its R references, R + 1."""
        return self.store.num_documents // max(1, len(self.arms))


def tokens_of_canaries(planted: Planted, tokenizer_json: str) -> CanaryTokens:
    """Return every planted canary and its references (the same text with other secrets) as tokens, with masks of the
    tokens of the secret and of the tokens to score.
    """

    table = planted.table
    references = table.column("references").combine_chunks()
    num, width = table.num_rows, len(references[0]) + 1
    rows = np.repeat(np.arange(num), width)
    secrets = pa.concat_arrays([table.column("secret").combine_chunks(), references.flatten()])
    order = np.concatenate(
        [np.arange(num)[:, None], num + np.arange(num * (width - 1)).reshape(num, width - 1)], axis=1
    )
    parts = [
        table.column("prefix").combine_chunks().take(pa.array(rows)),
        secrets.take(pa.array(order.ravel())),
        table.column("suffix").combine_chunks().take(pa.array(rows)),
    ]
    bounds = np.cumsum([pc.utf8_length(part).to_numpy() for part in parts], axis=0)
    texts = pc.binary_join_element_wise(*parts, "").cast(pa.large_string())
    words = _rust.segment(texts)
    offsets = np.arange(len(texts) + 1, dtype=np.int64)
    is_context = planted.arms[rows] == "context"
    in_secret = _rust.mark_spans(texts, words, offsets, *_as_int32(bounds[0], bounds[1])).mask
    after = _rust.mark_spans(texts, words, offsets, *_as_int32(bounds[1], bounds[2])).mask
    documents = np.repeat(np.arange(len(texts)), np.diff(words.doc_offsets))
    asked = np.where(is_context[documents], after, in_secret)
    encoder = _rust.TokenEncoder(tokenizer_json)
    # Two bits of a word's flags go through the tokenizer: one for words to score, one for the secret.
    tokens = encoder.encode(texts, words, asked * np.uint8(1) | in_secret * np.uint8(2), np.zeros_like(asked))
    store = TokenStore(
        tokens.input_ids,
        tokens.word_ids,
        tokens.flags & np.uint8(DIRECT),
        tokens.ngram_starts,
        tokens.doc_offsets,
        rows.astype(np.uint32),
        pa.array(np.arange(len(texts)).astype(str)),
    )
    return CanaryTokens(store, (tokens.flags & 2) != 0, planted.arms, planted.included)


def _as_int32(*bounds: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arrays as contiguous int32 arrays."""
    return tuple(np.ascontiguousarray(bound, dtype=np.int32) for bound in bounds)


def exposures(scores: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Return the exposure of each canary in bits: log2 of the number of references, minus log2 of its score's rank
    among them.

    >>> exposures(np.array([2.0, 1.0]), np.array([[0.0, 1.0, 0.5, 0.0], [3.0, 1.0, 2.0, 1.5]])).round(2).tolist()
    [2.0, -0.17]
    """
    above = np.count_nonzero(references > scores[:, None], axis=1)
    ties = np.count_nonzero(references == scores[:, None], axis=1)
    return np.log2(references.shape[1]) - np.log2(1 + above + 0.5 * ties)


def one_run(scores: np.ndarray, included: np.ndarray, *, guesses: float, delta: float) -> OneRun:
    """Return a lower bound on epsilon from the canaries of one training: guess for a share ``guesses`` of them that
    those with the highest scores were included and those with the lowest left out, and count right guesses.

    Parameters
    ----------
    scores : float array, shape (m,): higher if a canary looks learned
    included : bool array, shape (m,): the coins
    guesses : share of the canaries to guess for, half on each side; their number must not depend on the scores
    """
    each = int(len(scores) * guesses / 2)
    order = np.argsort(scores, kind="stable")
    right = int(np.count_nonzero(included[order[len(order) - each :]]) + np.count_nonzero(~included[order[:each]]))
    return OneRun(
        num_canaries=len(scores),
        num_guesses=2 * each,
        num_right=right,
        delta=delta,
        level=LEVEL,
        at_least=one_run_epsilon(len(scores), 2 * each, right, delta) if each else None,
        # The largest bound of this many guesses: all of them are right.
        most=one_run_epsilon(len(scores), 2 * each, 2 * each, delta) if each else None,
    )


def audit_canaries(
    model: PreTrainedModel,
    objective: str,
    canaries: CanaryTokens,
    special: SpecialIds,
    config: CanaryAudit,
    *,
    progress: Callable[[int], None] | None = None,
) -> Canaries:
    """Measure for each kind of canary (arm): exposure of included and left-out ones, extraction by greedy decoding, and
    a one-run bound on epsilon.

    Raises
    ------
    TrainingError
        The model's logits are not numbers.
    """
    scores = _scores(model, objective, canaries, special, config, progress).reshape(-1, canaries.width)
    bits = exposures(scores[:, 0], scores[:, 1:])
    # The rank among its own references can be compared between canaries of different texts.
    spread = scores[:, 1:].std(axis=1)
    standard = (scores[:, 0] - scores[:, 1:].mean(axis=1)) / np.where(spread > 0, spread, 1.0)
    back = _extracted(model, canaries, special, config) if objective == "clm" else None
    options: Bootstrap = {"num_bootstrap": config.num_bootstrap, "seed": config.job_seed}
    arms = {}
    for arm in (name for name in ARMS if (canaries.arms == name).any()):
        own = canaries.arms == arm
        included, excluded = own & canaries.included, own & ~canaries.included
        extracted = None
        if back is not None and arm != "context":  # canaries of that arm begin alike: no prompt is for one of them
            extracted = _mean_of_sides(back.astype(float), included, excluded, 1.0, options)
        arms[arm] = CanaryArm(
            num_included=int(included.sum()),
            exposure=_mean_of_sides(bits, included, excluded, None, options),
            excess_exposure=_difference(bits[included], bits[excluded], options),
            num_best=int(np.count_nonzero(bits[included] == np.log2(canaries.width - 1))),
            one_run=one_run(standard[own], canaries.included[own], guesses=config.guesses, delta=config.delta),
            extracted=extracted,
        )
    return Canaries(num_references=canaries.width - 1, most_exposure=float(np.log2(canaries.width - 1)), arms=arms)


def _mean_of_sides(
    values: np.ndarray, included: np.ndarray, excluded: np.ndarray, limit: float | None, options: Bootstrap
) -> InAndOut:
    """Return the mean of a value over included canaries, and over left-out ones, each with an interval; ``limit`` is
    the largest possible value (None: unlimited).
    """
    means = (
        ratio_estimate(values[side], np.ones(int(side.sum())), unit="canaries", limit=limit, **options)
        for side in (included, excluded)
    )
    return InAndOut(included=next(means), excluded=next(means))


def _difference(included: np.ndarray, excluded: np.ndarray, options: Bootstrap) -> Estimate | None:
    """Return the mean exposure of included minus left-out canaries with its interval; None with fewer than two on a
    side.
    """
    if min(len(included), len(excluded)) < 2:
        return None
    sides = ((values, np.ones(len(values))) for values in (included, excluded))
    return replace(ratio_difference(*sides, limit=None, **options), unit="canaries")


def _scores(
    model: Any, objective: str, canaries: CanaryTokens, special: SpecialIds, config: CanaryAudit, progress: Any
) -> np.ndarray:
    """Return the summed log-probability of the marked tokens of each canary and reference under a model, float64
    (texts,).
    """
    store = canaries.store
    # A masked model scores one word at a time: a pseudo-likelihood must not depend on the other words that are masked.
    folds = int(store.word_ids.max(initial=0)) + 1
    if objective == "mlm" and folds > MOST_FOLDS:
        raise PolicyError(f"canaries: {folds} words are more than {MOST_FOLDS}")
    (scores,) = score_models(
        [model],
        objective,
        store,
        special,
        folds=folds,
        seed=config.job_seed,
        window_length=config.window_length,
        batch_size=config.batch_size,
        device=config.device,
        bf16="off",  # exposure ranks a secret among many that are nearly as likely
        progress=progress,
    )
    chosen = (store.flags != 0) & ~np.isnan(scores.log_probs)
    return document_sums(scores.log_probs, chosen, store.doc_offsets)[0]


def _extracted(model: Any, canaries: CanaryTokens, special: SpecialIds, config: CanaryAudit) -> np.ndarray:
    """Return whether greedy decoding from the words before a canary's secret gives the secret, bool (canaries,)."""
    store, width = canaries.store, canaries.width
    bounds = [slice(*store.doc_offsets[row * width : row * width + 2]) for row in range(len(canaries.arms))]
    ids = [store.input_ids[bound].astype(np.int64) for bound in bounds]
    secret = [np.flatnonzero(canaries.secret[bound]) for bound in bounds]
    prompts = [row[: at[0]] for row, at in zip(ids, secret, strict=True)]
    wanted = [row[at[0] : at[-1] + 1] for row, at in zip(ids, secret, strict=True)]
    made = generate(
        model, prompts, special=special, num_tokens=max(map(len, wanted)), batch_size=config.batch_size,
        device=config.device, bf16="off",
    )[:, 0]  # fmt: skip
    return np.array([np.array_equal(row[: len(true)], true) for row, true in zip(made, wanted, strict=True)])
