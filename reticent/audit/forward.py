"""Model + tokens -> TokenScores: the one place that runs a model for likelihoods.

Every likelihood attack is a pure function of these scores. Logits are reduced where they are made; only six numbers a
token reach the host. Windows are batched by length; padding is never scored, and scores do not depend on the batch
size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from reticent.device import pick_device
from reticent.engine.kernels import document_ranks, number_tuples, word_slots
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.errors import ArtifactError, TrainingError
from reticent.trainer.models import logits_at
from reticent.trainer.windows import Batch, SpecialIds, Windows, cut_windows, prefetched

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["TokenScores", "score_causal", "score_masked", "word_folds"]

#: Logits held at once, in numbers: 2^26 float32 are 256 MiB. A CPU reduces them a few rows at a time, in its cache.
MAX_LOGITS = {"cuda": 1 << 26, "cpu": 1 << 23}
MAX_REDUCED = {"cuda": 1 << 26, "cpu": 1 << 19}


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Scores aligned with the tokens of a store; shape (num_tokens,) each.

    Attributes
    ----------
    log_probs : float32, natural log of the probability of the true token; NaN where not scored
    entropy : float32, entropy of the prediction in nats; minus it is the mean of log p under p (Min-K%++'s mu)
    std : float32, standard deviation of log p under p
    argmax : int32, most likely token, -1 where not scored
    rank : int32, how many tokens are more likely than the true one, -1 where not scored
    doc_offsets : int64, shape (num_documents + 1,)
    top_log_probs : float32, natural log of the probability of the most likely token; NaN where not scored, or not given
    """

    log_probs: np.ndarray
    entropy: np.ndarray
    std: np.ndarray
    argmax: np.ndarray
    rank: np.ndarray
    doc_offsets: np.ndarray
    top_log_probs: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.top_log_probs is None:
            object.__setattr__(self, "top_log_probs", np.full(len(self.log_probs), np.nan, dtype=np.float32))

    @property
    def mean(self) -> np.ndarray:
        """Mean of log p under p: minus the entropy."""
        return -self.entropy

    @property
    def scored(self) -> np.ndarray:
        return self.argmax >= 0

    def to_parquet(self, path: Path | str) -> None:
        """Write one row a document, every score a list."""
        offsets = pa.array(self.doc_offsets)
        columns = {name: pa.LargeListArray.from_arrays(offsets, pa.array(getattr(self, name))) for name in _SCORES}
        pq.write_table(pa.table(columns), path, compression="zstd")

    @classmethod
    def from_parquet(cls, path: Path | str) -> TokenScores:
        try:
            table = pq.read_table(path)
            lists = [table.column(name).cast(_list_of(name)).combine_chunks() for name in _SCORES]
        except (OSError, KeyError, pa.ArrowException) as error:
            raise ArtifactError(f"{path}: not a readable table of scores ({type(error).__name__})") from None
        offsets = lists[0].offsets.to_numpy()
        if not all(column.null_count == 0 and np.array_equal(column.offsets, offsets) for column in lists):
            raise ArtifactError(f"{path}: the scores of a document have different lengths")
        columns: dict[str, Any] = {
            name: column.flatten().to_numpy(zero_copy_only=False) for name, column in zip(_SCORES, lists, strict=True)
        }
        return cls(doc_offsets=offsets, **columns)


_SCORES = [field.name for field in fields(TokenScores) if field.name != "doc_offsets"]


def _list_of(name: str) -> pa.DataType:
    return pa.large_list(pa.int32() if name in ("argmax", "rank") else pa.float32())


def score_causal(
    model: PreTrainedModel,
    store: TokenStore,
    special: SpecialIds,
    *,
    window_length: int = 512,
    batch_size: int = 64,
    device: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> TokenScores:
    """Score every token from the tokens before it in its window.

    The first token of a window is scored from the prefix token; without one it is not scored (NaN).
    """
    run = _Run(model, store, special, window_length, batch_size, device, progress)
    for numbers, batch in run.batches():
        positions = run.windows.token_positions(numbers, batch.input_ids.shape[1])
        # Position t predicts the token at t + 1.
        ahead = np.concatenate([positions[:, 1:], np.full((len(numbers), 1), -1)], axis=1)
        run.score(batch.input_ids, None, ahead)
    return run.result()


def score_masked(
    model: PreTrainedModel,
    store: TokenStore,
    special: SpecialIds,
    *,
    folds: int = 7,
    all_occurrences: bool = False,
    window_length: int = 512,
    batch_size: int = 64,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> TokenScores:
    """Score every word once while it is masked, all its tokens at once, over disjoint random folds of the words.

    Parameters
    ----------
    folds : int
        7 masks about 15 % of the words at a time.
    all_occurrences : bool
        Also mask every other occurrence of the masked words in their window, so that they cannot be copied.
    """
    if special.mask is None:
        raise TrainingError("masked scoring needs a mask token and the tokenizer has none")
    fold_of, word_of = word_folds(store, folds, seed)
    run = _Run(model, store, special, window_length, batch_size, device, progress, passes=folds)
    for fold in range(folds):
        for numbers, batch in run.batches():
            positions = run.windows.token_positions(numbers, batch.input_ids.shape[1])
            safe = np.maximum(positions, 0)
            chosen = (positions >= 0) & (fold_of[safe] == fold)
            if not chosen.any():
                continue
            hidden = chosen
            if all_occurrences:
                words = np.where(positions >= 0, word_of[safe], -1)
                rows = np.arange(len(numbers))[:, None] * (int(word_of.max(initial=0)) + 2)
                hidden = np.isin(words + rows, (words + rows)[chosen]) & (words >= 0)
            input_ids = np.where(hidden, special.mask, batch.input_ids)
            run.score(input_ids, batch.attention, np.where(chosen, positions, -1))
    return run.result()


def word_folds(store: TokenStore, folds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each token the fold of its word (int64, -1 outside words) and the number of its word's token tuple.

    The words of a document are dealt to the folds in a random order, so the folds of a document differ by one word at
    most.
    """
    starts, lengths, documents = word_slots(store.word_ids, store.doc_offsets)
    word_bounds = np.searchsorted(documents, np.arange(store.num_documents + 1))
    fold = document_ranks(generator(seed, 1).random(len(starts)), word_bounds) % folds
    tuples, _ = number_tuples(store.input_ids, starts, lengths)
    fold_of = np.full(store.num_tokens, -1, dtype=np.int64)
    word_of = np.full(store.num_tokens, -1, dtype=np.int64)
    tokens = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
    fold_of[tokens] = np.repeat(fold, lengths)
    word_of[tokens] = np.repeat(tuples, lengths)
    return fold_of, word_of


class _Run:
    """A model over the windows of a store, and the arrays its scores go to."""

    def __init__(
        self,
        model: PreTrainedModel,
        store: TokenStore,
        special: SpecialIds,
        window_length: int,
        batch_size: int,
        device: str,
        progress: Callable[[int], None] | None,
        passes: int = 1,
    ):
        self.device = pick_device(device)
        self.model: Any = model.to(device=self.device).eval()  # type: ignore
        self.store, self.batch_size = store, batch_size
        self.windows: Windows = cut_windows(store, window_length, special)
        self._progress, self._done, self._total = progress, 0, passes * len(self.windows)
        shape = store.num_tokens
        floats = ("log_probs", "entropy", "std", "top_log_probs")
        self._float = {name: np.full(shape, np.nan, dtype=np.float32) for name in floats}
        self._int = {name: np.full(shape, -1, dtype=np.int32) for name in ("argmax", "rank")}

    def batches(self) -> Iterator[tuple[np.ndarray, Batch]]:
        order = self.windows.scoring_order(self.batch_size)
        for item in prefetched((numbers, self.windows.gather(numbers)) for numbers in order):
            yield item
            self._done += len(item[0])
            if self._progress:
                self._progress(self._done)

    @torch.inference_mode()
    def score(self, input_ids: np.ndarray, attention: np.ndarray | None, positions: np.ndarray) -> None:
        """Score the store's tokens ``positions`` (B, T), each predicted at its cell; -1 cells are not asked for."""
        vocabulary = self.model.config.vocab_size
        kind = "cuda" if self.device.type == "cuda" else "cpu"
        rows_at_once = max(1, MAX_LOGITS[kind] // max(1, vocabulary * input_ids.shape[1]))
        reduced_at_once = max(1, MAX_REDUCED[kind] // max(1, vocabulary))
        for start in range(0, len(input_ids), rows_at_once):
            rows = slice(start, start + rows_at_once)
            wanted = positions[rows] >= 0
            at = positions[rows][wanted]
            if len(at) == 0:
                continue
            mask = None if attention is None else torch.from_numpy(attention[rows]).to(self.device)
            autocast = torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.device.type == "cuda")
            with autocast:
                logits = logits_at(
                    self.model,
                    torch.from_numpy(input_ids[rows]).to(self.device),
                    mask,
                    torch.from_numpy(wanted).to(self.device),
                )
            true = torch.from_numpy(self.store.input_ids[at].astype(np.int64)).to(self.device)
            parts = zip(logits.split(reduced_at_once), true.split(reduced_at_once), strict=True)
            scores = [
                torch.cat(columns).cpu().numpy() for columns in zip(*(_reduce(*part) for part in parts), strict=True)
            ]
            for name, column in zip(_SCORES, scores, strict=True):
                (self._float if name in self._float else self._int)[name][at] = column

    def result(self) -> TokenScores:
        # Else a diverged model's documents would look like documents that were not scored.
        broken = int(np.count_nonzero(np.isnan(self._float["log_probs"]) & (self._int["argmax"] >= 0)))
        if broken:
            raise TrainingError(
                f"scoring: the model's logits are not numbers at {broken} tokens; did training diverge?"
            )
        arrays: dict[str, Any] = {**self._float, **self._int}
        return TokenScores(doc_offsets=self.store.doc_offsets, **arrays)


def _reduce(logits: torch.Tensor, true: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the columns of `TokenScores`, shape (n,) each, of logits (n, V) and the true tokens (n,)."""
    log_p = torch.log_softmax(logits.float(), dim=-1)
    true_log_p = log_p.gather(1, true[:, None])
    top, argmax = log_p.max(-1)
    rank = (log_p > true_log_p).sum(-1).to(torch.int32)
    p = log_p.exp()
    # A token that is ruled out has log p of minus infinity and takes part in no mean.
    log_p.masked_fill_(p == 0, 0.0)
    mean = torch.linalg.vecdot(p, log_p)
    # Around the mean: the difference of two squares loses every digit where the model is unsure.
    variance = torch.linalg.vecdot(p, log_p.sub_(mean[:, None]).square_())
    return true_log_p[:, 0], -mean, variance.sqrt(), argmax.to(torch.int32), rank, top
