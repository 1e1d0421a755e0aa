"""Scores of labels by a trained head: a classifier's for each document, a tagger's for each token.

A classifier predicts as in its training (:mod:`reticent.ext.classify.training`): by the mean over the windows of a
document. All is computed in float32 on any device, since attacks look at small differences.

Shapes: B windows of a batch, T tokens, D documents, C classes or tags.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from reticent.audit.membership.heads import HeadScores
from reticent.core.device import full_float32, pick_device
from reticent.core.errors import ArtifactError, TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import core_tokenizer
from reticent.trainer.models import load_tokenizer, special_ids
from reticent.trainer.windows import Windows, cut_windows, padding_multiple

if TYPE_CHECKING:
    from reticent.trainer.config import HeadConfig


class _Head:
    """A model with a trained head, ready to score documents.

    Parameters
    ----------
    objective : of the model that it was trained on top of, which decides the special tokens of a window
    config : of its training: the length of windows, whether only the first counts, the device
    """

    kind = "AutoModelForSequenceClassification"

    def __init__(self, folder: Path, objective: str, config: HeadConfig, batch_size: int):
        import transformers

        self._config, self._batch_size = config, batch_size
        self.tokenizer = load_tokenizer(folder)
        self._special = special_ids(self.tokenizer, objective)
        try:
            model: Any = getattr(transformers, self.kind).from_pretrained(
                str(folder), trust_remote_code=False, attn_implementation="sdpa", dtype=torch.float32
            )
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{folder}: not read by {self.kind} ({type(error).__name__})") from None
        self.model = model.to(device=pick_device(config.device)).eval()

    def _windows(self, store: TokenStore) -> Windows:
        """Return a store's tokens cut into windows of the head's training length."""
        pad_to = math.gcd(padding_multiple(self.model.device), self._config.window_length)
        return cut_windows(store, self._config.window_length, self._special, pad_to_multiple_of=pad_to)

    @torch.inference_mode()
    def _log_probs(self, windows: Windows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield window numbers and the log-probabilities of all labels, float64 (B, C) by window or (B, T, C) by token.

        Raises
        ------
        TrainingError
            Logits are not numbers.
        """
        for numbers in windows.scoring_order(self._batch_size):
            batch, device = windows.gather(numbers), self.model.device
            ids, mask = (torch.from_numpy(part).to(device) for part in (batch.input_ids, batch.attention))
            with full_float32():
                logits = self.model(input_ids=ids, attention_mask=mask).logits
            found = torch.log_softmax(logits.double(), dim=-1).cpu().numpy()
            if np.isnan(found).any():
                raise TrainingError("head: the model's logits are not numbers; did training diverge?")
            yield numbers, found


class Classifier(_Head):
    """A document classifier in a folder that `AutoModelForSequenceClassification` reads."""

    def scores(self, store: TokenStore, classes: np.ndarray) -> HeadScores:
        """Return membership scores for each document: log-probability of its true class (in ``classes``) and of the
        likeliest class, entropy, and whether the prediction is right.
        """
        return HeadScores.of_classes(self.log_probs(store), classes)

    def log_probs(self, store: TokenStore) -> np.ndarray:
        """Return the log-probability of every class for each document, float64 (D, C); the probabilities sum to 1."""
        windows = self._windows(store)
        if getattr(self._config, "windows", None) == "first":
            kept = np.diff(windows.documents, prepend=-1) > 0
            parts = {name: getattr(windows, name)[kept] for name in ("documents", "starts", "lengths")}
            windows = replace(windows, **parts)
        total_DC = np.zeros((store.num_documents, self.model.config.num_labels))
        for numbers, found_BC in self._log_probs(windows):
            np.add.at(total_DC, windows.documents[numbers], found_BC)
        mean_DC = total_DC / np.bincount(windows.documents, minlength=store.num_documents).clip(1)[:, None]
        return mean_DC - np.logaddexp.reduce(mean_DC, axis=1, keepdims=True)

    def log_probs_of(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-probability of every class for raw texts, float64 (D, C); uniform for a text
        without tokens.
        """
        rows = [encoded.ids for encoded in core_tokenizer(self.tokenizer).encode(list(texts))]
        num = sum(map(len, rows))
        zeros = np.zeros(num, dtype=np.uint8)
        return self.log_probs(
            TokenStore(
                np.fromiter((each for row in rows for each in row), np.uint32, num),
                np.zeros(num, dtype=np.int32),
                zeros,
                zeros,
                np.cumsum([0, *map(len, rows)], dtype=np.int64),
                np.arange(len(rows), dtype=np.uint32),
                pa.nulls(len(rows), pa.string()),
            )
        )


class Tagger(_Head):
    """A tagger in a folder that `AutoModelForTokenClassification` reads."""

    kind = "AutoModelForTokenClassification"

    def scores(self, store: TokenStore, tags: np.ndarray) -> HeadScores:
        """Return membership scores for each document, averaged over its tagged tokens: log-probability of the true tag
        (in ``tags``, int64 (num_tokens,)) and of the likeliest tag, entropy, and share of right predictions. NaN
        without such tokens.
        """
        windows = self._windows(store)
        total_4D, count_D = np.zeros((4, store.num_documents)), np.zeros(store.num_documents)
        for numbers, found_BTC in self._log_probs(windows):
            at_BT = windows.token_positions(numbers, found_BTC.shape[1])
            true_BT = np.where(at_BT >= 0, tags[at_BT], IGNORE_INDEX)
            known = true_BT != IGNORE_INDEX
            of_document = np.repeat(windows.documents[numbers], known.sum(axis=1))
            said = HeadScores.of_classes(found_BTC[known], true_BT[known])
            for row, values in enumerate((said.own, said.top, said.entropy, said.right)):
                np.add.at(total_4D[row], of_document, values)
            np.add.at(count_D, of_document, 1.0)
        with np.errstate(invalid="ignore"):
            own, top, entropy, right = total_4D / count_D
        return HeadScores(own, top, entropy, right, np.zeros(store.num_documents, dtype=np.int64))
