"""In-context probing (definitions.md#attacks-that-ask-the-model): how much does a model gain from a copy of the text in
its context?

A model that was trained to the end on a document has little left to learn from it. Instead of training on, the attack
puts a copy with gaps before the document: what the model gains from it is what it had left to learn [@lu2025]. This is
the variant *self-perturbation*; its formula and its share of gaps are those of the authors' published program. The
number of copies, the length of the passage and the token in the gaps are ours. Causal models only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from reticent.audit.membership.asking import probing_score
from reticent.audit.membership.names import PROBE_COPIES, PROBE_TOKENS
from reticent.audit.scoring.generate import Decoding, score_continuations
from reticent.audit.scoring.token_scores import TokenScores
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

#: Share of the tokens of a copy that are gaps.
GAPS = 0.7
#: Passage lengths are multiples of this, so that many are equal; shorter documents have no score.
STEP = 8
_STREAM = 61


def passage_lengths(store: TokenStore, window_length: int, special: SpecialIds) -> np.ndarray:
    """Return how many tokens at the beginning of each document are probed, int64 (D,): as many as fit twice into one
    window; 0 if the document is too short."""
    most = min(PROBE_TOKENS, (window_length - int(special.prefix is not None)) // 2)
    return np.minimum(np.diff(store.doc_offsets), most) // STEP * STEP


def probe_score(
    model: PreTrainedModel,
    store: TokenStore,
    scores: TokenScores,
    tokenizer: PreTrainedTokenizerFast,
    special: SpecialIds,
    *,
    window_length: int,
    batch_size: int,
    device: str,
    bf16: str,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return the `probing_score` of each document: the log-probability of its beginning alone minus that after a copy
    of it with gaps, float64 (D,); NaN for documents under eight tokens.

    The first token of a passage is not scored, because a model without a prefix token cannot predict it alone.

    Parameters
    ----------
    scores : scores of ``store`` under the model

    Cost: `PROBE_COPIES` passes over twice the passages.
    """
    lengths = passage_lengths(store, window_length, special)
    plain, probed = np.full(len(lengths), np.nan), np.full((len(lengths), PROBE_COPIES), np.nan)
    gap, done = _gap_token(tokenizer, special), 0
    for length, documents in _by_length(lengths):
        places = store.doc_offsets[documents][:, None] + np.arange(length)
        ids = store.input_ids[places].astype(np.int64)
        plain[documents] = scores.log_probs[places[:, 1:]].astype(np.float64).mean(axis=1)
        for copy in range(PROBE_COPIES):
            random = generator(seed, _STREAM + (copy << 8) + (length << 16))
            with_gaps = np.where(random.random(ids.shape) < GAPS, gap, ids)
            _, totals = score_continuations(
                model, np.concatenate([with_gaps, ids], axis=1), length + 1, special=special,
                decoding=Decoding(may_end=True), batch_size=batch_size, device=device, bf16=bf16,
            )  # fmt: skip
            probed[documents, copy] = totals / (length - 1)
        done += len(documents)
        if progress:
            progress(done)
    return probing_score(plain, probed)


def _by_length(lengths: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (length, numbers of the documents of which this many tokens are probed) for each length above 0."""
    for length in np.unique(lengths[lengths > 0]):
        yield int(length), np.flatnonzero(lengths == length)


def _gap_token(tokenizer: PreTrainedTokenizerFast, special: SpecialIds) -> int:
    """Return the id of the token that replaces omitted tokens in the copy of a passage: the underscore's or, if the
    tokenizer has none, the padding token's."""
    found = tokenizer.encode(" _", add_special_tokens=False)
    return int(found[-1]) if found else int(special.pad)
