"""Fine-tuning of a token classifier on texts with annotated names: the target of the tagger attack.

The first token of a name is labelled B-PER, its other tokens I-PER, and all other tokens O, by character offsets. A
tagger needs names as targets to learn their form, so names cannot be dropped from the loss. Surrogates protect them
instead: with new surrogates in place of names in each epoch, the tagger learns the category and no individual's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from reticent.core.artifact import held_folder
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import json_of
from reticent.trainer.config import TagConfig, TrainConfig
from reticent.trainer.distributed import World
from reticent.trainer.loop import train
from reticent.trainer.models import max_positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

TAGS = ("O", "B-PER", "I-PER")


@dataclass(frozen=True, slots=True)
class Examples:
    """Training texts, and for each the (start, end) character offsets of its names, end exclusive."""

    texts: Sequence[str]
    spans: Sequence[Sequence[tuple[int, int]]]

    def __post_init__(self) -> None:
        assert len(self.texts) == len(self.spans)


def new_tagger(encoder: PreTrainedModel, *, seed: int = 0) -> PreTrainedModel:
    """Return a token-classification model with the encoder of a masked language model and a randomly
    initialised head.
    """
    from transformers import AutoModelForTokenClassification

    config: Any = type(encoder.config).from_dict(encoder.config.to_dict())
    config.id2label = dict(enumerate(TAGS))
    config.label2id = {tag: number for number, tag in enumerate(TAGS)}
    config._attn_implementation = "sdpa"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tagger: Any = AutoModelForTokenClassification.from_config(config)
    tagger.base_model.load_state_dict(encoder.base_model.state_dict(), strict=False)
    return tagger


def tag_labels(
    tokenizer: PreTrainedTokenizerFast, examples: Examples, *, max_length: int = 128
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokenise texts with marked names; return input ids, attention mask and BIO labels, each int64 (windows, tokens).

    Special tokens and padding are not targets.
    """
    encoded = tokenizer(
        list(examples.texts), padding=True, truncation=True, max_length=max_length, return_overflowing_tokens=True,
        return_offsets_mapping=True, return_special_tokens_mask=True, return_tensors="np",
    )  # fmt: skip
    offsets, text_of = encoded["offset_mapping"], encoded["overflow_to_sample_mapping"]
    labels = np.zeros(offsets.shape[:2], dtype=np.int64)
    # Names on one sorted axis: texts end to end, with a gap after each.
    base = np.concatenate([[0], np.cumsum([len(text) + 1 for text in examples.texts])])
    bounds = [(base[row] + a, base[row] + b) for row, spans in enumerate(examples.spans) for a, b in sorted(spans)]
    if bounds:
        starts, ends = np.array(bounds).T
        begin, end = (base[text_of][:, None] + offsets[..., side] for side in (0, 1))
        number = np.minimum(np.searchsorted(ends, begin, side="right"), len(ends) - 1)
        inside = (begin < end) & (begin < ends[number]) & (end > starts[number])
        labels[inside] = np.where(begin[inside] <= starts[number][inside], 1, 2)
    labels[encoded["special_tokens_mask"] == 1] = IGNORE_INDEX
    return encoded["input_ids"].astype(np.int64), encoded["attention_mask"].astype(np.int64), labels


def train_tagger(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    examples: Examples | Callable[[int], Examples],
    *,
    num_epochs: int = 8,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    max_length: int = 128,
    device: str = "auto",
    seed: int = 0,
    after_epoch: Callable[[int], None] | None = None,
) -> list[float]:
    """Train all weights of a tagger in place on texts with marked names; return the mean loss of each epoch.

    Parameters
    ----------
    examples : Examples, or a function of the epoch, which is counted from 0
        A function can return other texts for each epoch, such as texts with new surrogates.
    after_epoch : called with the number of finished epochs

    Raises
    ------
    TrainingError
        The loss is not finite.
    """
    labels: dict[int, np.ndarray] = {}

    @lru_cache(maxsize=1)  # the first is asked for twice, and texts that do not change in every epoch
    def make_store(number: int) -> TokenStore:
        """Return a token store with the training texts of an epoch (``number`` from 0; always 0 if the texts are the
        same in every epoch). The labels of its tokens are kept for the training loop.
        """
        texts = examples(number) if callable(examples) else examples
        store, own = _as_tokens(*tag_labels(tokenizer, texts, max_length=max_length)[::2])
        labels.clear()  # of the epoch before
        labels[id(store)] = own
        return store

    def store_of_epoch(epoch: int) -> TokenStore:
        """Return the token store of an epoch (from 1). Before, report that the previous epoch has ended."""
        if epoch > 1:
            report_epochs(epoch - 1)
        return make_store(epoch - 1 if callable(examples) else 0)

    def report_epochs(num_epochs: int) -> None:
        """Call ``after_epoch`` with the number of finished epochs, if it is given. Dropout is off (evaluation mode)
        during the call.
        """
        model.eval()
        if after_epoch:
            after_epoch(num_epochs)
        model.train()

    config = TrainConfig(
        num_epochs=num_epochs, checkpoint_epochs=(), batch_size=batch_size, learning_rate=learning_rate,
        window_length=min(max_length, max_positions(model)), device=device, seed=seed,
    )  # fmt: skip
    with held_folder("reticent-tagger-") as folder:
        found = train(
            model, store_of_epoch(1), TagConfig(text="keep").recipe("mlm"), config, folder,
            tokenizer=json_of(tokenizer), epoch_store=store_of_epoch, labels=lambda store: labels[id(store)],
            world=World(),
        )  # fmt: skip
    report_epochs(num_epochs)
    model.eval()
    return found.losses


def _as_tokens(ids: np.ndarray, labels: np.ndarray) -> tuple[TokenStore, np.ndarray]:
    """Return tokenised windows as a `TokenStore`, one document each, and the labels of their tokens, without special
    ones.
    """
    kept = labels != IGNORE_INDEX
    num_tokens, num_rows = int(kept.sum()), len(ids)
    nothing = np.zeros(num_tokens, dtype=np.uint8)
    offsets = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
    rows, names = np.arange(num_rows, dtype=np.uint32), pa.array(map(str, range(num_rows)), pa.string())
    words = np.full(num_tokens, -1, dtype=np.int32)
    return TokenStore(ids[kept].astype(np.uint32), words, nothing, nothing, offsets, rows, names), labels[kept]
