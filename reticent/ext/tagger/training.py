"""Fine-tuning of a token classifier on texts with marked names: the target of the tagger attack.

The first token of a name is labelled B-PER, its other tokens I-PER, and all other tokens O, by character offsets. A
tagger needs names as targets to learn their form, so names cannot be dropped from the loss. Surrogates protect them
instead: with new surrogates in place of names in each epoch, the tagger learns the category and no individual's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reticent.core.device import autocast, pick_device
from reticent.core.errors import TrainingError
from reticent.engine.randomness import generator
from reticent.engine.schema import IGNORE_INDEX

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["TAGS", "Examples", "new_tagger", "tag_labels", "train_tagger"]

TAGS = ("O", "B-PER", "I-PER")


@dataclass(frozen=True, slots=True)
class Examples:
    """Texts, and the (start, end) of every name in each, in characters, end exclusive."""

    texts: Sequence[str]
    spans: Sequence[Sequence[tuple[int, int]]]

    def __post_init__(self) -> None:
        assert len(self.texts) == len(self.spans)


def new_tagger(encoder: PreTrainedModel, *, seed: int = 0) -> PreTrainedModel:
    """Return a token classifier over the body of a masked language model, with a new head."""
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
    """Return input ids, attention and labels, int64, shape (windows, tokens); long texts become several windows.

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
    """Train in place by AdamW, with a learning rate that falls linearly to 0; returns the mean loss of every epoch.

    Parameters
    ----------
    examples : Examples, or a function of the epoch
        A function can return other texts for each epoch, such as texts with new surrogates.
    after_epoch : called with the number of finished epochs

    Raises
    ------
    TrainingError
        The loss is not finite.
    """
    where = pick_device(device)
    tagger: Any = model.to(device=where)  # type: ignore[call-arg]
    rows = tag_labels(tokenizer, examples(0) if callable(examples) else examples, max_length=max_length)
    num_steps = num_epochs * -(-len(rows[0]) // batch_size)
    optimizer = torch.optim.AdamW(tagger.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / num_steps))
    losses = []
    for epoch in range(num_epochs):
        if epoch and callable(examples):
            rows = tag_labels(tokenizer, examples(epoch), max_length=max_length)
        tagger.train()
        order = generator(seed, epoch + 1000).permutation(len(rows[0]))
        total, targets = 0.0, 0
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            longest = int(rows[1][chosen].sum(axis=1).max())
            ids, mask, labels = (torch.from_numpy(part[chosen, :longest]).to(where) for part in rows)
            with autocast("auto", where):
                logits = tagger(input_ids=ids, attention_mask=mask).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
            count = int((labels != IGNORE_INDEX).sum())
            (loss / max(count, 1)).backward()
            torch.nn.utils.clip_grad_norm_(tagger.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            total, targets = total + float(loss.detach()), targets + count
        losses.append(total / max(targets, 1))
        if not np.isfinite(losses[-1]):
            raise TrainingError(f"tagger: the loss of epoch {epoch + 1} is not finite")
        tagger.eval()
        if after_epoch:
            after_epoch(epoch + 1)
    return losses
