"""Indirect identifiers in the context of a batch: replaced before targets are made, with a check that none is read.

The check decodes the input words of a batch and looks them up among those that fewer than k individuals use,
independently of the flags. Where no word was replaced none may be found; where words were, no more than the public
words that happen to identify. An unprotected word that a window cuts is skipped: part of a word may equal another word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from reticent.core.errors import PolicyError
from reticent.engine.kernels import hash_ids
from reticent.engine.schema import DIRECT, IGNORE_INDEX, INDIRECT
from reticent.trainer.ledger import Ledger
from reticent.trainer.recipes import Recipe
from reticent.trainer.windows import Batch, Windows

if TYPE_CHECKING:  # a machine that only trains may lack the core
    from reticent.engine.public_words import ContextWords


def context_of(recipe: Recipe, words: ContextWords | None) -> ContextWords | None:
    """Return the object that replaces indirect identifiers in a recipe's training text by public words (or by a fill
    token, for recipes that blank them); None if the recipe does not replace them.

    Raises
    ------
    PolicyError
        It replaces them, and no public words were given.
    """
    if not recipe.replaces_indirect:
        return None
    if words is None:
        raise PolicyError(
            f'recipe {recipe.name}: context_indirect = "{recipe.context_indirect}" needs a public pool of words; give '
            "context=reticent.engine.public_words.context_words(…), in a job [surrogates] pool"
        )
    return words.blank() if recipe.context_indirect == "tag" else words


@dataclass(frozen=True, slots=True)
class BatchContext:
    """Replaces indirect identifiers in the batches of some windows, and counts them into the ledger."""

    words: ContextWords
    windows: Windows
    recipe: Recipe
    seed: int
    epoch: int

    def __call__(self, batch: Batch, ledger: Ledger) -> Batch:
        """Return the batch with its indirect identifiers replaced, checked that the model reads none.

        Raises
        ------
        TrainingError
            The batch still holds an identifying word.
        """
        indirect = (batch.flags & INDIRECT) != 0
        made = self.words.replace(
            batch.input_ids, batch.word_ids, indirect, batch.keys, seed=self.seed, epoch=self.epoch
        )
        drawn = (batch.flags & DIRECT) != 0 if self.recipe.context != "keep" else np.zeros_like(indirect)
        passed_over = ~batch.is_text | (self._cut_words(batch) & ~indirect)
        read = self._count_identifying(made.input_ids, batch, passed_over | indirect | drawn)
        # In the places of protected words only words that were drawn and happen to identify.
        coincidences = (
            made.num_coincidences + self._count_identifying(made.input_ids, batch, passed_over | indirect) - read
        )
        in_place = self._count_identifying(made.input_ids, batch, passed_over) - read
        read += max(0, in_place - coincidences)
        replaced = np.where(indirect, made.input_ids, IGNORE_INDEX)
        ledger.check_context(
            {
                "replaced": made.num_words,
                "filled": made.num_filled,
                "coincidences": coincidences,
                "read": read,
            },
            epoch=self.epoch,
            digest=int(hash_ids(replaced, batch.windows, self.seed, self.epoch)),
        )
        return replace(batch, input_ids=made.input_ids)

    def _count_identifying(self, input_ids: np.ndarray, batch: Batch, skipped: np.ndarray) -> int:
        """Return how many identifying words a batch's input ids still hold; words with a token in the mask ``skipped``
        are not counted."""
        return self.words.count_identifying(input_ids, batch.word_ids, skipped)

    def _cut_words(self, batch: Batch) -> np.ndarray:
        """Return which tokens belong to a word that continues beyond the edge of its window, bool (B, T)."""
        cut = np.zeros(batch.word_ids.shape, dtype=np.bool_)
        if (batch.windows < 0).any():  # a dummy, of no window
            return cut
        windows, bounds = self.windows, self.windows.store.doc_offsets
        starts, documents = windows.starts[batch.windows], windows.documents[batch.windows]
        ends = starts + windows.lengths[batch.windows]
        first = int(windows.special.prefix is not None)
        for is_edge, column, beside in (
            (starts > bounds[documents], np.full_like(starts, first), starts - 1),
            (ends < bounds[documents + 1], first + ends - starts - 1, ends),
        ):
            rows = np.flatnonzero(is_edge)
            own = batch.word_ids[rows, column[rows]]
            goes_on = own == self._words_at(documents[rows], beside[rows])
            for row, word in zip(rows[goes_on], own[goes_on], strict=True):
                cut[row] |= batch.word_ids[row] == word
        return cut & (batch.word_ids >= 0)

    def _words_at(self, documents: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the word id of the token at each position of a document, int32."""
        shape = (len(positions), 1)
        out = np.empty(shape, np.int64), np.empty(shape, np.int32), np.empty(shape, np.uint8)
        self.windows.store.gather(documents, positions, np.ones_like(positions), 0, 0, out)
        return out[1][:, 0]
