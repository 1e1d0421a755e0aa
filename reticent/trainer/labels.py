"""The one place where protection becomes an ignored label, and the ledger that proves it.

Ready-made collators rebuild labels from the input and would switch the protection off without a word; so labels are
made here, and every batch is checked before it reaches a model: the number of protected tokens among the targets is
0.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from reticent.engine.kernels import draw_words
from reticent.engine.schema import IGNORE_INDEX
from reticent.errors import TrainingError
from reticent.trainer.recipes import Recipe
from reticent.trainer.windows import Batch

__all__ = ["Ledger", "Targets", "make_targets"]


@dataclass(slots=True)
class Ledger:
    """Counts over every batch a run has seen (tokens; an epoch counts anew).

    eligible: tokens that could be a target; protected: tokens that must not; targets: tokens that were one;
    violations: protected tokens that were. The run stops at the first.
    """

    eligible: int = 0
    protected: int = 0
    targets: int = 0
    violations: int = 0

    def to_dict(self) -> dict[str, int]:
        return asdict(self)

    def check(self, labels: np.ndarray, protected: np.ndarray, num_eligible: int) -> None:
        """Count a batch; `TrainingError` if a protected token is a target."""
        is_target = labels != IGNORE_INDEX
        violations = int(np.count_nonzero(is_target & protected))
        self.eligible += num_eligible
        self.protected += int(np.count_nonzero(protected))
        self.targets += int(np.count_nonzero(is_target))
        self.violations += violations
        if violations:
            raise TrainingError(
                f"{violations} protected tokens are targets in a batch; training stopped before its step"
            )


@dataclass(frozen=True, slots=True)
class Targets:
    """What the model reads and what it must predict, both int64 (B, T); a label stands at the position of its token."""

    input_ids: np.ndarray
    labels: np.ndarray

    @property
    def num_targets(self) -> int:
        return int(np.count_nonzero(self.labels != IGNORE_INDEX))


def make_targets(
    batch: Batch, recipe: Recipe, ledger: Ledger, *, mask_id: int | None, mask_share: float, seed: int, epoch: int
) -> Targets:
    """Return inputs and labels of a batch for a recipe, checked and counted.

    CLM (seed 1 §4.3): the input is unchanged; every token of the document is a target unless it is protected.
    MLM (seed 1 §5.5): ``mask_share`` of the eligible words are drawn afresh each epoch, all their tokens are replaced
    by the mask token and are the targets.

    Raises
    ------
    TrainingError
        A protected token is a target, or MLM is asked of a tokenizer without a mask token.
    """
    protected = (batch.flags & recipe.never_target) != 0
    if recipe.objective == "clm":
        is_target = batch.is_text & ~protected
        # A window without a prefix token cannot predict its first token.
        is_target[:, 0] = False
        num_eligible = int(np.count_nonzero(is_target))
        input_ids = batch.input_ids
    else:
        if mask_id is None:
            raise TrainingError(f"recipe {recipe.name} needs a mask token and the tokenizer has none")
        is_target = np.empty(batch.input_ids.shape, dtype=np.bool_)
        num_eligible = draw_words(batch.word_ids, protected, batch.windows, mask_share, seed, epoch, is_target)
        input_ids = np.where(is_target, mask_id, batch.input_ids)
    labels = np.where(is_target, batch.input_ids, IGNORE_INDEX)
    ledger.check(labels, protected, num_eligible)
    return Targets(input_ids, labels)
