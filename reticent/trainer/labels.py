"""The one place where protection becomes an ignored label, and the ledger that proves it.

Existing collators rebuild labels from the input, which would switch the protection off silently. So labels are made
here, and every batch is checked before it reaches a model: the number of protected tokens among the targets must be 0.
This module needs no torch, so `reticent train --verify` makes the same labels again without a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reticent.core.errors import TrainingError
from reticent.engine.kernels import draw_words, goldfish_drops, hash_targets, replace_words
from reticent.engine.schema import DIRECT, IGNORE_INDEX, INDIRECT
from reticent.engine.store import TokenStore
from reticent.trainer.context import BatchContext
from reticent.trainer.recipes import DROPPED, Recipe
from reticent.trainer.windows import Batch, SpecialIds

__all__ = [
    "CONTEXT_COUNTS",
    "COUNTS",
    "Ledger",
    "ProtectedStore",
    "Targets",
    "draw_targets",
    "fingerprint_protection",
    "make_targets",
    "protect_store",
    "replacement_ids",
    "with_drops",
]

COUNTS = ("eligible", "protected", "targets", "violations")
#: The flag of each kind of identifiers, and the argument of `write_tokens` that sets it.
_MADE_FROM = {"direct": (DIRECT, "spans"), "indirect": (INDIRECT, "index")}
#: Counts of a recipe that replaces indirect identifiers in the context; a ledger of another has none.
CONTEXT_COUNTS = ("replaced", "filled", "coincidences", "read")


@dataclass(slots=True)
class Ledger:
    """Counts of tokens over all batches of a run; every epoch counts its tokens again.

    eligible: tokens that may be targets; protected: tokens that must not be; targets: tokens that were; violations:
    protected tokens that were. The run stops at the first violation. ``epochs`` holds the same four counts for each
    epoch, the digest of its targets (`hash_targets`), and the fingerprint of its protection.

    If a recipe replaces indirect identifiers in the context, four counts of words follow. replaced: words with a
    replacement; filled: words without a public word of as many tokens; coincidences: public words that happen to
    identify; read: identifying words in an input. The run stops at the first word that is read, too. An epoch then also
    has the digest of its public words, ``inputs``.
    """

    eligible: int = 0
    protected: int = 0
    targets: int = 0
    violations: int = 0
    replaced: int = 0
    filled: int = 0
    coincidences: int = 0
    read: int = 0
    epochs: dict[int, dict[str, Any]] = field(default_factory=dict, compare=False)

    def to_dict(self) -> dict[str, int]:
        """Return the counts: four, or eight where words of the context were replaced."""
        return {name: getattr(self, name) for name in (COUNTS + CONTEXT_COUNTS if self.replaced else COUNTS)}

    def state(self) -> dict[str, Any]:
        """Return the whole ledger as JSON values, for `from_states`."""
        rows = [{"epoch": epoch, **_written(row)} for epoch, row in sorted(self.epochs.items())]
        return {**self.to_dict(), "epochs": rows}

    @classmethod
    def from_states(cls, *states: Mapping[str, Any]) -> Ledger:
        """Return the sum of ledgers in the form of `state`; a resumed run has one."""
        ledger = cls()
        for state in states:
            for row in state["epochs"]:
                counts = {name: int(row[name]) for name in COUNTS}
                ledger._add(int(row["epoch"]), counts, int(row["digest"], 16))
                if "replaced" in row:
                    counts = {name: int(row[name]) for name in CONTEXT_COUNTS}
                    ledger._add(int(row["epoch"]), counts, int(row["inputs"], 16), "inputs")
                ledger.begin_epoch(int(row["epoch"]), row["protection"])
        return ledger

    def summed(self, add: Callable[..., Sequence[float]]) -> Ledger:
        """Return the ledger over all processes; ``add`` sums each of its arguments over them, exact below 2^53."""
        rows = [self._row(epoch) for epoch in range(1, max(self.epochs, default=0) + 1)]
        # Digests in halves.
        parts = ((COUNTS, "digest"), (CONTEXT_COUNTS, "inputs"))
        numbers = [
            value
            for row in rows
            for names, digest in parts
            for value in (*(row[name] for name in names), row[digest] & 0xFFFFFFFF, row[digest] >> 32)
        ]
        sums = iter([int(value) for value in add(*numbers)])
        total = Ledger()
        for epoch, row in enumerate(rows, 1):
            for names, digest in parts:
                total._add(epoch, {name: next(sums) for name in names}, next(sums) + (next(sums) << 32), digest)
            total.begin_epoch(epoch, row["protection"])
        return total

    def begin_epoch(self, epoch: int, protection: str) -> None:
        """Store the fingerprint of an epoch's protection (`fingerprint_protection`)."""
        self._row(epoch)["protection"] = protection

    def check(
        self, labels: np.ndarray, protected: np.ndarray, num_eligible: int, *, epoch: int = 0, digest: int = 0
    ) -> None:
        """Count a batch; `TrainingError` if a protected token is a target."""
        is_target = labels != IGNORE_INDEX
        violations = int(np.count_nonzero(is_target & protected))
        counts = (num_eligible, int(np.count_nonzero(protected)), int(np.count_nonzero(is_target)), violations)
        self._add(epoch, dict(zip(COUNTS, counts, strict=True)), digest)
        if violations:
            raise TrainingError(
                f"{violations} protected tokens are targets in a batch; training stopped before its step"
            )

    def check_context(self, counts: dict[str, int], *, epoch: int, digest: int) -> None:
        """Count the words that were replaced in a batch; `TrainingError` if a word that identifies is read."""
        self._add(epoch, counts, digest, "inputs")
        if counts["read"]:
            raise TrainingError(
                f"{counts['read']} words that identify stand in the inputs of a batch; training stopped before its step"
            )

    def _add(self, epoch: int, counts: dict[str, int], value: int, digest: str = "digest") -> None:
        row = self._row(epoch)
        for name, count in counts.items():
            setattr(self, name, getattr(self, name) + count)
            row[name] += count
        row[digest] = (row[digest] + value) & (2**64 - 1)

    def _row(self, epoch: int) -> dict[str, Any]:
        numbers = (*COUNTS, "digest", *CONTEXT_COUNTS, "inputs")
        return self.epochs.setdefault(epoch, {**dict.fromkeys(numbers, 0), "protection": ""})


def _written(row: dict[str, Any]) -> dict[str, Any]:
    """An epoch as it stands in JSON: without words of the context where none was replaced."""
    names = (*COUNTS, "digest", "protection", *((*CONTEXT_COUNTS, "inputs") if row["replaced"] else ()))
    return {name: f"{row[name]:016x}" if name in ("digest", "inputs") else row[name] for name in names}


@dataclass(frozen=True, slots=True)
class Targets:
    """Inputs of the model and labels to predict, both int64 (B, T); a label stands at the position of its token."""

    input_ids: np.ndarray
    labels: np.ndarray

    @property
    def num_targets(self) -> int:
        return int(np.count_nonzero(self.labels != IGNORE_INDEX))


def make_targets(
    batch: Batch,
    recipe: Recipe,
    ledger: Ledger,
    *,
    mask_id: int | None,
    mask_share: float,
    seed: int,
    epoch: int,
    random_ids: np.ndarray | None = None,
    context: BatchContext | None = None,
) -> Targets:
    """Return inputs and labels of a batch for a recipe, checked and counted.

    CLM ([@boutet2025] §4.3): the input is unchanged; every token of the document is a target unless it is protected.
    MLM ([@boutet2025] §5.5): ``mask_share`` of the eligible words are drawn anew in each epoch. All their tokens are
    targets and are replaced by the mask token (or as ``recipe.mask_split`` says).

    Parameters
    ----------
    random_ids : int64 array, optional
        The pool of random replacements from `replacement_ids`, if the recipe has any.
    context : BatchContext, optional
        Replaces indirect identifiers by public words first, if the recipe does so.

    Raises
    ------
    TrainingError
        A protected token is a target, the recipe is MLM and the tokenizer has no mask token, or the recipe replaces
        indirect identifiers and ``context`` is missing or leaves one in the input.
    """
    if recipe.replaces_indirect:
        if context is None:
            raise TrainingError(f"recipe {recipe.name} replaces indirect identifiers; no public words were given")
        batch = context(batch, ledger)
    labels = draw_targets(batch, recipe, ledger, mask_share=mask_share, seed=seed, epoch=epoch)
    if recipe.objective == "clm":
        return Targets(batch.input_ids, labels)
    if mask_id is None:
        raise TrainingError(f"recipe {recipe.name} needs a mask token and the tokenizer has none")
    is_target = labels != IGNORE_INDEX
    masked, randomised, _ = recipe.mask_split
    if masked == 1:
        return Targets(np.where(is_target, mask_id, batch.input_ids), labels)
    if randomised and random_ids is None:
        raise TrainingError(f"recipe {recipe.name} replaces words by random tokens; none were given to draw from")
    pool = random_ids if random_ids is not None else np.empty(0, dtype=np.int64)
    input_ids = np.empty_like(batch.input_ids)
    replace_words(
        batch.input_ids, is_target, batch.word_ids, batch.windows, mask_id, pool, masked, randomised, seed, epoch,
        input_ids,
    )  # fmt: skip
    return Targets(input_ids, labels)


def draw_targets(
    batch: Batch, recipe: Recipe, ledger: Ledger, *, mask_share: float, seed: int, epoch: int
) -> np.ndarray:
    """Return the labels of `make_targets`, int64 (B, T), checked and counted."""
    protected = (batch.flags & recipe.protected_flags) != 0
    if recipe.objective == "clm":
        is_target = batch.is_text & ~protected
        # A window without a prefix token cannot predict its first token.
        is_target[:, 0] = False
        num_eligible = int(np.count_nonzero(is_target))
    else:
        is_target = np.empty(batch.input_ids.shape, dtype=np.bool_)
        num_eligible = draw_words(batch.word_ids, protected, batch.windows, mask_share, seed, epoch, is_target)
    labels = np.where(is_target, batch.input_ids, IGNORE_INDEX)
    digest = int(hash_targets(labels, batch.windows, seed, epoch))
    ledger.check(labels, protected, num_eligible, epoch=epoch, digest=digest)
    return labels


@dataclass(frozen=True, slots=True)
class ProtectedStore:
    """The tokens that a recipe trains on, with the tokens that its goldfish loss drops flagged too.

    ``random_ids`` is an argument of `make_targets`; ``fingerprint`` is that of the protection before the drops.
    """

    store: TokenStore
    fingerprint: str
    random_ids: np.ndarray | None


def protect_store(
    store: TokenStore, recipe: Recipe, special: SpecialIds, vocab_size: int, *, has_spans_and_index: bool = False
) -> ProtectedStore:
    """Return the tokens of one epoch, checked and ready to be cut into windows; ``has_spans_and_index`` as for `train`.

    Raises
    ------
    ArtifactError
        The store contains invalid values.
    TrainingError
        The recipe protects direct or indirect identifiers and no token has that flag, it wants pseudonymised text and
        these are tokens of identifiers, or `replacement_ids` finds no id.
    """
    store.check()
    # X has no flag, so a direct token is one that was not replaced; it would be a target, and no violation.
    replaced = DIRECT if recipe.text == "pseudonymised" else 0
    if replaced and store.has_flag(replaced):
        raise TrainingError(
            f"recipe {recipe.name}: the tokens hold direct identifiers; give it tokens of the text in which X stands "
            'for them (write_tokens with style "x", in a run those of train-pseudonymised)'
        )
    found = has_spans_and_index and store.has_flag(recipe.protected_flags & ~DROPPED)
    for kind, (flag, made_from) in _MADE_FROM.items() if not found else ():
        if recipe.protected_flags & flag & ~replaced and store.num_tokens and not store.has_flag(flag):
            raise TrainingError(
                f"recipe {recipe.name}: no token has the flag of {kind} identifiers, which it protects; were the "
                f"tokens made without {made_from}? Give write_tokens the {made_from}; if the text has no {kind} "
                "identifiers, choose a recipe that does not protect them"
            )
    drawn_from = replacement_ids(store, recipe, special, vocab_size)
    return ProtectedStore(with_drops(store, recipe), fingerprint_protection(store, recipe), drawn_from)


def with_drops(store: TokenStore, recipe: Recipe) -> TokenStore:
    """Return the store with a flag on the tokens that the recipe's goldfish loss drops; the store itself without one.

    The hash reads the document, not the window, so the cut into windows changes nothing.
    """
    if recipe.goldfish_k is None:
        return store
    dropped = goldfish_drops(store.input_ids, store.doc_offsets, recipe.goldfish_k, recipe.goldfish_h)
    return store.with_columns(flags=store.flags | dropped * np.uint8(DROPPED))


def replacement_ids(store: TokenStore, recipe: Recipe, special: SpecialIds, vocab_size: int) -> np.ndarray | None:
    """Return the ids that random tokens are drawn from, ascending int64, or None if the recipe has no random tokens.

    The pool is the vocabulary, as in BERT, without the special tokens and every id of a protected token of the store.
    ``vocab_size`` is the number of ids that both tokenizer and model have.
    So no part of an identifier is ever inserted at another position. The ids come from the vocabulary and not from the
    corpus, so the replacements reveal nothing about the documents.

    Raises
    ------
    TrainingError
        Protected tokens use the whole vocabulary.
    """
    if recipe.mask_split[1] == 0:
        return None
    # In a vocabulary with gaps an id can be over the number of tokens.
    free = ~store.ids_with(recipe.protected_flags, max(vocab_size, store.largest_id() + 1))[:vocab_size]
    for number in (special.prefix, special.suffix, special.pad, special.mask):
        if number is not None and number < vocab_size:
            free[number] = False
    if not free.any():
        raise TrainingError(f"recipe {recipe.name}: every id of the vocabulary stands in a protected token")
    return np.flatnonzero(free)


def fingerprint_protection(store: TokenStore, recipe: Recipe) -> str:
    """Return the SHA-256 of the protection: the tokens, their words, and the flags that the recipe protects.

    Cost: one pass over the tokens for each column.
    """
    digest = hashlib.sha256(f"reticent.protection/1 {recipe.protected_flags}".encode())
    for name in ("doc_offsets", "input_ids", "word_ids", "flags"):
        # Masked flags: the fingerprint of a recipe that protects nothing does not depend on k.
        store.hash_column(digest, name, bits=recipe.protected_flags)
    return digest.hexdigest()
