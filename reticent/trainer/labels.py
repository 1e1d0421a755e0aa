"""The one module where protection becomes an ignored label, and the ledger that proves it.

Existing collators rebuild labels from the input, which would switch the protection off silently. So labels are made
here, and every batch is checked before it reaches a model: the number of protected tokens among the targets must be 0.
This module needs no torch, so `reticent train --verify` makes the same labels again without a model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from reticent.core.errors import TrainingError
from reticent.engine.kernels import draw_words, goldfish_drops, hash_ids, replace_words
from reticent.engine.schema import DIRECT, IGNORE_INDEX, INDIRECT
from reticent.engine.store import TokenStore
from reticent.trainer.context import BatchContext
from reticent.trainer.ledger import Ledger
from reticent.trainer.recipes import DROPPED, Recipe
from reticent.trainer.windows import Batch, SpecialIds, Windows

#: The flag of each kind of identifiers, and the argument of `write_tokens` that sets it.
_MADE_FROM = {"direct": (DIRECT, "spans"), "indirect": (INDIRECT, "index")}


@dataclass(frozen=True, slots=True)
class Targets:
    """Inputs of the model, int64 (B, T), and prediction labels, int64 (B, T) or, with end-of-text targets, (B, T + 1);
    a label is at the position of its own token."""

    input_ids: np.ndarray
    labels: np.ndarray

    @property
    def num_targets(self) -> int:
        """Number of prediction targets."""
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
    """Return the model inputs and labels of a batch under a recipe, after the ledger has counted them and checked that
    no protected token is a target.

    CLM ([@boutet2025] §4.3): the input is unchanged; every token of the document is a target unless it is protected,
    and its end is one where the batch has ends.
    MLM ([@boutet2025] §5.5): ``mask_share`` of the eligible words are drawn anew in each epoch. All their tokens are
    targets and are replaced by the mask token (or as ``recipe.mask_split`` says).

    Parameters
    ----------
    random_ids : int64 array, optional
        Token ids to draw random replacements from (`replacement_ids`), if the recipe makes such replacements.
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
        return Targets(batch.inputs, labels)
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
        batch.input_ids, is_target, batch.word_ids, batch.keys, mask_id, pool, masked, randomised, seed, epoch,
        input_ids,
    )  # fmt: skip
    return Targets(input_ids, labels)


def draw_targets(
    batch: Batch, recipe: Recipe, ledger: Ledger, *, mask_share: float, seed: int, epoch: int
) -> np.ndarray:
    """Return the labels of a batch under the recipe's objective, int64 (B, T), `IGNORE_INDEX` except at targets, after
    the ledger has counted them and checked that no protected token is one."""
    protected = (batch.flags & recipe.protected_flags) != 0
    if recipe.objective == "clm":
        is_target = batch.is_text & ~protected
        # A window without a prefix token cannot predict its first token.
        is_target[:, 0] = False
        num_eligible = int(np.count_nonzero(is_target))
    else:
        is_target = np.empty(batch.input_ids.shape, dtype=np.bool_)
        num_eligible = draw_words(batch.word_ids, protected, batch.keys, mask_share, seed, epoch, is_target)
    labels = np.where(is_target, batch.input_ids, IGNORE_INDEX)
    digest = int(hash_ids(labels, batch.windows, seed, epoch))
    ledger.check(labels, protected, num_eligible, epoch=epoch, digest=digest)
    return labels


def label_windows(
    batch: Batch, ledger: Ledger, *, windows: Windows, labels: np.ndarray, recipe: Recipe, seed: int, epoch: int
) -> Targets:
    """Return the inputs of a batch with the labels that a classifier or tagger head learns (classes or tags, never
    words), counted in the ledger.

    Parameters
    ----------
    labels : int64 array
        Class of each document, shape (num documents,), put at the first token of its windows, or tag of each token,
        shape (num tokens,); `IGNORE_INDEX` marks what is no target.
    """
    shape, own = batch.input_ids.shape, np.full(batch.input_ids.shape, IGNORE_INDEX, dtype=np.int64)
    if recipe.head == "class":
        filled = batch.is_text.any(axis=1)  # a row of padding alone is no window
        own[filled, 0] = labels[windows.documents[batch.windows[filled]]]
    else:
        positions = windows.token_positions(batch.windows, shape[1])
        own[batch.is_text] = labels[positions[batch.is_text]]
    digest = int(hash_ids(own, batch.windows, seed, epoch))
    is_target = own != IGNORE_INDEX
    ledger.check(own, np.zeros_like(is_target), int(np.count_nonzero(is_target)), epoch=epoch, digest=digest)
    return Targets(batch.inputs, own)


@dataclass(frozen=True, slots=True)
class ProtectedStore:
    """The training tokens of a recipe, with those that its goldfish loss drops flagged too.

    ``random_ids`` is an argument of `make_targets`; ``fingerprint`` is that of the protection before the drops.
    """

    store: TokenStore
    fingerprint: str
    random_ids: np.ndarray | None


def protect_store(
    store: TokenStore, recipe: Recipe, special: SpecialIds, vocab_size: int, *, has_spans_and_index: bool = False
) -> ProtectedStore:
    """Return the training tokens of one epoch for a recipe: checked, and with the tokens dropped by its goldfish loss
    flagged.

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
    """Return the store with the `DROPPED` flag on tokens that the recipe's goldfish loss drops; unchanged without that
    loss.

    The hash reads the document, not the window, so the cut into windows changes nothing.
    """
    if recipe.goldfish_k is None:
        return store
    dropped = goldfish_drops(store.input_ids, store.doc_offsets, recipe.goldfish_k, recipe.goldfish_h)
    return store.with_columns(flags=store.flags | dropped * np.uint8(DROPPED))


def replacement_ids(store: TokenStore, recipe: Recipe, special: SpecialIds, vocab_size: int) -> np.ndarray | None:
    """Return the token ids from which a masked model's random replacements of targets are drawn, ascending int64; None
    if the recipe has no random replacements.

    The pool is the vocabulary, as in BERT, without the special tokens and every id of a protected token of the store.
    ``vocab_size`` is the number of ids that both tokenizer and model have.
    So no part of an identifier is ever inserted at another position. The ids come from the vocabulary and not from the
    corpus, so the replacements reveal nothing about the documents. In DP-SGD no id is left out because of the
    documents: a pool without one individual's identifiers would show in the gradients of others.

    Raises
    ------
    TrainingError
        Protected tokens use the whole vocabulary.
    """
    if recipe.mask_split[1] == 0:
        return None
    if recipe.private:
        free = np.ones(vocab_size, dtype=np.bool_)
    else:  # in a vocabulary with gaps an id can be over the number of tokens
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
