"""Scores of names in prompts: the probability that a tagger labels a name as a person ([@nussbaumer2023] §3.2.4).

The score of a name in a prompt is the mean over the name's tokens of the summed probability of the person labels (B-PER
and I-PER), from logits, in float64: near 1, where trained taggers are, different scores would tie in float32. The
name's tokens are those that share a non-blank character with it.

Shapes: B texts, T tokens, L labels, C characters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from reticent.core.device import pick_device, uses_bf16
from reticent.core.errors import PolicyError, TrainingError
from reticent.engine.detect.transformers import load_tagger, longest_input
from reticent.ext.tagger.prompts import MASK, PROMPTS, Prompt, person_labels

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

#: Texts tokenized at a time: offsets and characters of so many are held at once.
TEXTS_AT_ONCE = 1 << 13


def open_tagger(name_or_path: str | Path, device: str = "auto") -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load a token-classification model and its tokenizer (safetensors; no remote code).

    Raises
    ------
    PolicyError
        There is none, or it has no trained head.
    """
    tokenizer, model = load_tagger(str(name_or_path), pick_device(device), torch.float32, who="tagger")
    return model, tokenizer


def score_names(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    names: Sequence[str],
    prompts: Sequence[Prompt] = PROMPTS,
    *,
    labels: Sequence[str] = ("PER",),
    device: str = "auto",
    bf16: Literal["auto", "on", "off"] = "auto",
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return the mean probability of a person label on the tokens of each name in each prompt, float64 (prompts,
    names).

    NaN where the tokenizer makes no token of the name. Scores do not depend on the batch.

    Parameters
    ----------
    labels : sequence of str
        Types of label that mean a person.
    bf16 : {"auto", "on", "off"}
        bfloat16 for the body of the model, "auto" on CUDA; the last layer always in float32: eight bits of a logit
        would make ties of scores that differ.
    batch_tokens : int
        Tokens of a batch, padding included.

    Raises
    ------
    PolicyError
        The model has no such label, or a prompt does not fit it with every name.
    TrainingError
        Logits are not numbers.
    """
    chosen = person_labels(model.config.id2label or {}, labels)
    where = pick_device(device)
    run = _Run(model, tokenizer, chosen, where, uses_bf16(bf16, where))
    heads, tails = zip(*(prompt.text.split(MASK) for prompt in prompts), strict=True)
    column = pa.array(names, pa.large_string())
    lengths = pc.utf8_length(column).to_numpy()
    scores = np.full((len(prompts), len(names)), np.nan)
    flat = scores.reshape(-1)
    # Prompt after prompt, names by length, so texts that are tokenized together have similar lengths.
    order = (np.arange(len(prompts))[:, None] * len(names) + np.argsort(lengths, kind="stable")).reshape(-1)
    for first in range(0, len(order), TEXTS_AT_ONCE):
        at = order[first : first + TEXTS_AT_ONCE]
        prompt, name = at // max(len(names), 1), at % max(len(names), 1)
        texts = pc.binary_join_element_wise(
            pa.array(heads, pa.large_string()).take(prompt), column.take(name),
            pa.array(tails, pa.large_string()).take(prompt), pa.scalar("", pa.large_string()),
        )  # fmt: skip
        starts = np.array([len(head) for head in heads])[prompt]
        flat[at] = run.score(texts, starts, starts + lengths[name], prompt, batch_tokens)
        if progress:
            progress(first + len(at))
    if np.isinf(scores).any():
        raise TrainingError("tagger: the model's logits are not numbers; did training diverge?")
    return scores


class _Run:
    """A tagger with its tokenizer and settings, ready to score batches of texts."""

    def __init__(self, model: Any, tokenizer: Any, columns: list[int], device: torch.device, bf16: bool):
        self.model: Any = model.to(device=device).eval()
        self.columns, self.device, self.bf16 = torch.tensor(columns, device=device), device, bf16
        self.longest = longest_input(tokenizer, model.config)
        self.tokenizer = copy.deepcopy(tokenizer)
        self.tokenizer.padding_side = "right"
        if self.tokenizer.pad_token is None:  # never seen: padding is masked
            self.tokenizer.pad_token = self.tokenizer.eos_token or self.tokenizer.unk_token

    def score(
        self, texts: pa.Array, starts: np.ndarray, ends: np.ndarray, prompt: np.ndarray, batch_tokens: int
    ) -> np.ndarray:
        """Return for each text the mean probability of a person label on the tokens of its name, at characters
        ``starts`` to ``ends``; float64 (B,). NaN if the name has no token, +inf if the logits are NaN.
        """
        spelled = texts.to_pylist()
        encoded = self.tokenizer(
            spelled, padding=True, return_tensors="np", return_offsets_mapping=True, return_special_tokens_mask=True,
            return_attention_mask=True, return_token_type_ids=False,
            split_special_tokens=True,  # a name that spells "[SEP]" is a name
            verbose=False,
        )  # fmt: skip
        lengths = encoded["attention_mask"].sum(axis=1)
        if (over := lengths > self.longest).any():
            number = int(prompt[np.argmax(over)])
            raise PolicyError(
                f"prompt {number + 1}: {int(over[prompt == number].sum())} of the texts it makes are longer than the "
                f"{self.longest} tokens that the model takes (up to {int(lengths.max())})"
            )
        own_BT = _name_tokens(spelled, encoded["offset_mapping"], starts, ends)
        own_BT &= encoded["special_tokens_mask"] == 0
        result = np.full(len(spelled), np.nan)
        order = np.argsort(-lengths, kind="stable")
        first = 0
        with _exact_head(self.model):
            while first < len(order):
                longest = max(int(lengths[order[first]]), 1)
                rows = order[first : first + max(1, batch_tokens // longest)]
                first += len(rows)
                ids, mask = (encoded[name][rows, :longest] for name in ("input_ids", "attention_mask"))
                result[rows] = self._forward(ids, mask, own_BT[rows, :longest])
        return result

    @torch.inference_mode()
    def _forward(self, ids_BT: np.ndarray, mask_BT: np.ndarray, own_BT: np.ndarray) -> np.ndarray:
        """Return the mean probability of a person label over the name's tokens (``own_BT``) of each row,
        float64 (B,).
        """
        ids, mask, own = (torch.from_numpy(np.ascontiguousarray(a)).to(self.device) for a in (ids_BT, mask_BT, own_BT))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            logits_BTL = self.model(input_ids=ids, attention_mask=mask).logits
        person_BT = torch.softmax(logits_BTL.double(), -1)[..., self.columns].sum(-1)
        broken_B = (person_BT.isnan() & own).any(1)
        # A name without a token has 0 / 0, which is NaN: it has no score.
        mean_B = torch.where(own, person_BT, 0.0).sum(1) / own.sum(1)
        return torch.where(broken_B, torch.inf, mean_B).cpu().numpy()


def _name_tokens(texts: list[str], offsets_BT2: np.ndarray, starts_B: np.ndarray, ends_B: np.ndarray) -> np.ndarray:
    """Return whether each token covers a non-blank character of the name; bool (B, T)."""
    array = np.array(texts, dtype=np.str_)
    codes_BC = array.view(np.uint32).reshape(len(texts), -1)
    visible = ~np.isin(codes_BC, [0, 9, 10, 13, 32, 160])
    counted = np.concatenate([np.zeros((len(texts), 1), np.int32), np.cumsum(visible, axis=1, dtype=np.int32)], axis=1)
    limits = starts_B[:, None], ends_B[:, None]
    begin, end = (np.clip(offsets_BT2[..., side], *limits) for side in (0, 1))
    rows = np.arange(len(texts))[:, None]
    return counted[rows, np.maximum(end, begin)] > counted[rows, begin]


@contextmanager
def _exact_head(model: Any) -> Iterator[None]:
    """Context manager: run the model's last linear layer in float32, whatever the precision of the others."""
    heads = [
        part
        for part in model.modules()
        if isinstance(part, torch.nn.Linear) and part.out_features == model.config.num_labels
    ]
    if not heads:
        yield
        return
    head: Any = heads[-1]
    plain = head.forward

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        """Run the layer in float32."""
        with torch.autocast(hidden.device.type, enabled=False):
            return plain(hidden.float())

    head.forward = forward
    try:
        yield
    finally:
        del head.forward
