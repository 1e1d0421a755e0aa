"""Pseudo-log-likelihood of masked models, one word or token at a time: `score_masked` approximates these exact forms
over folds, at a fraction of the cost.

- ``whole_word``: a word is scored while it alone is masked, all its tokens at once. Nothing else is hidden, so a word
  has all of its context.
- ``left_to_right`` (PLL-word-l2r, Kauf and Ivanova 2023): a token is scored while it and the tokens of its word that
  follow are masked, those before it in sight: the chain rule within a word. Masking one token at a time, with the rest
  of its word in sight, gives rare words that are split too high a likelihood, so it is not here.

Cost: a forward pass of a window for each of its words, or tokens; it is for a few texts.

Shapes: B windows a batch, T cells a window, R rows: a window with one word or token to score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from reticent.audit.scoring.forward import Scorer, TokenScores
from reticent.core.errors import PolicyError, TrainingError
from reticent.trainer.distributed import World
from reticent.trainer.windows import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from reticent.engine.store import TokenStore
    from reticent.trainer.windows import SpecialIds

__all__ = ["score_pseudo"]

Form = Literal["whole_word", "left_to_right"]


def score_pseudo(
    model: PreTrainedModel,
    store: TokenStore,
    special: SpecialIds,
    *,
    form: Form = "left_to_right",
    window_length: int = 512,
    batch_size: int = 64,
    device: str = "auto",
    bf16: str = "auto",
    progress: Callable[[int], None] | None = None,
    world: World | None = None,
) -> TokenScores:
    """Score every token of a word by the pseudo-log-likelihood of its word; tokens outside words are not scored.

    The sum of a document's ``log_probs`` is its pseudo-log-likelihood. Options are those of `score_models`.

    Raises
    ------
    PolicyError
        The form is none of these.
    TrainingError
        The tokenizer has no mask token, or the model's logits are not numbers.
    """
    if form not in ("whole_word", "left_to_right"):
        raise PolicyError(f"form: expected whole_word or left_to_right, got {form!r}")
    if special.mask is None:
        raise TrainingError("masked scoring needs a mask token and the tokenizer has none")
    scorer = Scorer(
        [model], store, special, window_length=window_length, batch_size=batch_size, device=device, bf16=bf16,
        progress=progress, world=world,
    )  # fmt: skip
    for numbers, batch in scorer.batches():
        positions = scorer.windows.token_positions(numbers, batch.input_ids.shape[1])
        for windows, hidden, asked in _rows(batch, form, batch_size):
            input_ids = np.where(hidden, special.mask, batch.input_ids[windows])
            scorer.score(input_ids, batch.attention[windows], np.where(asked, positions[windows], -1))
    return scorer.results()[0]


def _rows(batch: Batch, form: Form, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (window of the batch (R,), masked (R, T), scored (R, T)), at most ``at_once`` rows at a time."""
    words, columns = batch.word_ids, np.arange(batch.word_ids.shape[1])
    first = words >= 0
    if form == "whole_word":
        first[:, 1:] &= words[:, 1:] != words[:, :-1]
    all_windows, all_cells = np.nonzero(first)
    for start in range(0, len(all_windows), at_once):
        windows, cells = all_windows[start : start + at_once], all_cells[start : start + at_once, None]
        # The word of the cell, from the cell on: for a word's first cell, all of it.
        hidden = (words[windows] == np.take_along_axis(words[windows], cells, axis=1)) & (columns >= cells)
        yield windows, hidden, hidden if form == "whole_word" else columns == cells
