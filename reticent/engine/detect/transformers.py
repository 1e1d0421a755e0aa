"""transformers: any token-classification model, in batches of like length, with windows over long texts.

Every token takes its label from the window in which it is farthest from an edge; every word the type whose
probability, B- and I- taken together, is highest on average over its tokens. A span covers whole words.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.device import pick_device, uses_bf16
from reticent.core.errors import PolicyError
from reticent.core.model_folder import check_weight_files, folder_of_model
from reticent.engine.detect.passages import Found, SpanCache, cut_passages, cut_texts, find_in_pieces, join_spans
from reticent.engine.tokenizer_library import json_of

__all__ = ["TransformersDetector", "load_tagger", "longest_input"]


class TransformersDetector:
    """Entities of a token-classification model.

    Parameters
    ----------
    model : str or Path
        Local folder, or name on the hub (only with the environment's ``HF_HUB_OFFLINE=0``); safetensors, and no code
        of the model's own. Its labels may be B- and I- (also where B- stands only between neighbours), BIOES or plain;
        one is ``O``.
    labels : sequence of str, optional
        Types to keep, without prefix; default: all but ``O``.
    min_score : float
        Spans whose mean probability is lower are dropped.
    device : str
        "auto" is CUDA where there is one, in bfloat16.
    batch_tokens : int
        Tokens of a batch, padding included.
    window : int, optional
        Tokens of a window, special ones included; default: what the model takes, at most 512.
    stride : int, optional
        Tokens that neighbouring windows share; default: a quarter of the window.
    passages : bool
        Whether the model sees one paragraph at a time, so that a passage that was copied from an older note costs
        nothing; else whole texts.
    """

    name = "transformers"
    columns: tuple[str, ...] = ()

    def __init__(
        self,
        model: str | Path,
        *,
        labels: Sequence[str] | None = None,
        min_score: float = 0.0,
        device: str = "auto",
        batch_tokens: int = 8192,
        window: int | None = None,
        stride: int | None = None,
        passages: bool = False,
    ):
        self._device = pick_device(device)
        self._tokenizer, self._model = load_tagger(str(model), self._device, _dtype(self._device))
        self._scheme = _Scheme.of(self._model.config.id2label)
        if unknown := sorted(set(labels or ()) - set(self._scheme.types)):
            known = ", ".join(self._scheme.types[1:])
            raise PolicyError(f"detector transformers: labels {', '.join(unknown)} are not among the model's: {known}")
        wanted = self._scheme.types[1:] if labels is None else labels
        self._wanted = np.array([name in wanted for name in self._scheme.types])
        longest = longest_input(self._tokenizer, self._model.config)
        self._window = min(longest, 512) if window is None else window
        self._stride = self._window // 4 if stride is None else stride
        self._around = _special_tokens(self._tokenizer)
        self._room = self._window - sum(map(len, self._around))
        if self._window > longest or self._stride < 0 or self._stride >= self._room:
            raise PolicyError(
                f"detector transformers: a window of {self._window} tokens, of which {self._stride} are shared and "
                f"{self._window - self._room} special, does not fit a model that takes {longest}"
            )
        if not 0 <= min_score <= 1 or batch_tokens < 1:
            raise PolicyError("detector transformers: min_score is 0 to 1, batch_tokens at least 1")
        self._min_score, self._batch_tokens, self._passages = min_score, batch_tokens, passages
        #: Spans of passages that were seen before, of whoever wants to keep them.
        self.cache: SpanCache | None = None

    def cache_key(self) -> str:
        """Return all that changes the spans of a text: weights, vocabulary, options, and the library's version."""
        import transformers

        digest = hashlib.sha256(json_of(self._tokenizer).encode())
        for name, weights in sorted(self._model.state_dict().items()):
            digest.update(name.encode())
            digest.update(weights.float().cpu().numpy().tobytes())
        options = (self._scheme.types, self._wanted.tolist(), self._min_score, self._window, self._stride)
        device = f"{self._device.type} {self._model.dtype}"
        # The number is that of the way in which windows are cut.
        return f"transformers {transformers.__version__} 2 {digest.hexdigest()} {options} {device}"

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        texts = batch.column("text").to_pylist()
        longest = max(map(len, texts), default=0) + 1
        windows = cut_passages(texts, longest) if self._passages else cut_texts(texts, longest, 0)
        found = find_in_pieces([texts[w.document][w.start : w.end] for w in windows], self._find, self.cache)
        return join_spans(windows, found)

    def _find(self, texts: list[str]) -> list[list[Found]]:
        """Spans of each text."""

        column = pa.array(texts, pa.large_string())
        words = _rust.segment(column)
        starts, ends = words.char_spans(column)
        bounds = words.doc_offsets
        result: list[list[Found]] = []
        for document, (offsets, probabilities) in enumerate(self._labelled(texts)):
            own = slice(bounds[document], bounds[document + 1])
            start, end, kind, score = _spans(
                self._scheme, texts[document], offsets, probabilities, starts[own], ends[own]
            )
            kept = self._wanted[kind] & (score >= self._min_score)
            columns = (start[kept].tolist(), end[kept].tolist(), kind[kept].tolist(), score[kept].tolist())
            result.append([(s, e, self._scheme.types[k], p) for s, e, k, p in zip(*columns, strict=True)])
        return result

    def _labelled(self, texts: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each text the offsets (T, 2) of its tokens in characters, and their probabilities (T, labels)."""
        encoded = self._tokenizer(
            texts,
            add_special_tokens=False,
            return_offsets_mapping=True,
            split_special_tokens=True,  # a text that spells "[SEP]" is a text
            verbose=False,  # that it is longer than the model takes
        )
        tokens = [np.array(ids, dtype=np.int64) for ids in encoded["input_ids"]]
        before, after = self._around
        # Cut here and not by the tokenizer: tokenizers before 0.23.3 gives some long texts their first window alone.
        windows = [list(self._windows(len(ids))) for ids in tokens]
        probabilities = iter(
            self._probabilities(
                [np.concatenate([before, ids[start:end], after]) for ids, of in zip(tokens, windows, strict=True)
                 for start, end in of]
            )
        )  # fmt: skip
        for ids, offsets, of in zip(tokens, encoded["offset_mapping"], windows, strict=True):
            num_tokens = len(ids)
            best = np.zeros((num_tokens, len(self._scheme.is_start)), dtype=np.float32)
            farthest = np.full(num_tokens, -1)
            for start, end in of:
                rank = np.arange(end - start)
                left = rank if start else np.full(len(rank), num_tokens)  # the text's own ends are no edges
                right = rank[::-1] if end < num_tokens else np.full(len(rank), num_tokens)
                distance = np.minimum(left, right)
                better = distance > farthest[start:end]
                farthest[start:end][better] = distance[better]
                best[start:end][better] = next(probabilities)[len(before) : len(before) + len(rank)][better]
            yield np.array(offsets, dtype=np.int64).reshape(-1, 2), best

    def _windows(self, num_tokens: int) -> Iterator[tuple[int, int]]:
        """Start and end of the windows of a text; neighbours share ``stride`` tokens."""
        start, end = 0, min(num_tokens, self._room)
        while start < num_tokens:
            yield start, end
            start = end - self._stride if end < num_tokens else num_tokens
            end = min(start + self._room, num_tokens)

    def _probabilities(self, input_ids: list[np.ndarray]) -> list[np.ndarray]:
        """Probabilities (T, labels) of every window; windows of like length go together."""
        import torch

        result: list[np.ndarray] = [np.zeros(0)] * len(input_ids)
        pad = self._tokenizer.pad_token_id or 0
        for chosen in _batches([len(ids) for ids in input_ids], self._batch_tokens):
            longest = max(len(input_ids[number]) for number in chosen)
            ids_BT = np.full((len(chosen), longest), pad, dtype=np.int64)
            mask_BT = np.zeros((len(chosen), longest), dtype=np.int64)
            for row, number in enumerate(chosen):
                ids_BT[row, : len(input_ids[number])] = input_ids[number]
                mask_BT[row, : len(input_ids[number])] = 1
            with torch.inference_mode():
                ids, mask = (torch.from_numpy(array).to(self._device) for array in (ids_BT, mask_BT))
                logits_BTL = self._model(input_ids=ids, attention_mask=mask).logits
                probabilities_BTL = torch.softmax(logits_BTL.float(), -1).cpu().numpy()
            for row, number in enumerate(chosen):
                result[number] = probabilities_BTL[row, : len(input_ids[number])]
        return result


@dataclass(frozen=True, slots=True)
class _Scheme:
    """Meaning of the labels of a model: ``types[type_of[label]]``; type 0 is outside. A label may start an entity."""

    types: list[str]
    type_of: np.ndarray
    is_start: np.ndarray

    @classmethod
    def of(cls, id2label: dict[int, str]) -> _Scheme:
        names = [str(id2label[number]) for number in range(len(id2label))]
        outside = {name for name in names if name.upper() in ("O", "OUTSIDE")}
        if not outside:
            raise PolicyError("detector transformers: the model's config names no label O, so no token could be plain")
        pairs = [(m[1], m[2]) if (m := re.fullmatch(r"([BIESLUM])[-_](.+)", name)) else None for name in names]
        if any(pair is None and name not in outside for name, pair in zip(names, pairs, strict=True)):
            pairs = [None] * len(names)  # plain labels, some of which may begin like a prefix
        kinds = ["O" if name in outside else pair[1] if pair else name for name, pair in zip(names, pairs, strict=True)]
        types = list(dict.fromkeys(["O", *kinds]))
        starts = [pair is not None and pair[0] in "BSU" for pair in pairs]
        return cls(types, np.array([types.index(kind) for kind in kinds]), np.array(starts))


def _spans(
    scheme: _Scheme, text: str, offsets: np.ndarray, probabilities: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(start, end, type, score) of the entities of one text; ``starts`` and ``ends`` are its words'."""
    num_words, by_type = len(starts), np.eye(len(scheme.types), dtype=np.float32)[scheme.type_of]
    begin = np.searchsorted(ends, offsets[:, 0], side="right")
    num_met = np.maximum(np.searchsorted(starts, offsets[:, 1], side="left") - begin, 0)
    num_met[offsets[:, 0] >= offsets[:, 1]] = 0
    token = np.repeat(np.arange(len(offsets)), num_met)
    word = np.arange(len(token)) - np.repeat(np.cumsum(num_met) - num_met, num_met) + np.repeat(begin, num_met)
    total = np.zeros((num_words, len(scheme.types)), dtype=np.float32)
    np.add.at(total, word, probabilities[token] @ by_type)
    mean = total / np.maximum(np.bincount(word, minlength=num_words), 1)[:, None]
    kind = mean.argmax(1) if num_words else np.zeros(0, dtype=np.int64)

    seen, first = np.unique(word, return_index=True)
    first_token, kind_seen = probabilities[token[first]], kind[seen]
    of_kind = scheme.type_of[None, :] == kind_seen[:, None]
    starting = (first_token * (of_kind & scheme.is_start)).sum(1) > (first_token * (of_kind & ~scheme.is_start)).sum(1)
    begins = np.zeros(num_words + 1, dtype=bool)
    begins[seen] = starting
    for at in np.flatnonzero((num_met == 0) & (scheme.type_of[probabilities.argmax(1)] == 0)):
        between = text[offsets[at, 0] : offsets[at, 1]]
        if between and not between.isspace():  # a comma that is no part of an entity parts two
            begins[begin[at]] = True
    begins = begins[:-1]

    before = np.concatenate([[0], kind[:-1]])[:num_words]
    heads = np.flatnonzero((kind != 0) & ((kind != before) | begins))
    after = np.flatnonzero((kind == 0) | (kind != before) | begins)  # where whatever came before has ended
    tails = np.concatenate([after, [num_words]])[np.searchsorted(after, heads, side="right")]
    chosen = np.concatenate([[0.0], np.cumsum(mean[np.arange(num_words), kind], dtype=np.float64)])
    score = (chosen[tails] - chosen[heads]) / np.maximum(tails - heads, 1)
    return starts[heads].astype(np.int64), ends[tails - 1].astype(np.int64), kind[heads], score


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Numbers of the windows, longest first, as many together as fit the budget with padding."""
    chosen: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if chosen and (len(chosen) + 1) * lengths[chosen[0]] > batch_tokens:
            yield chosen
            chosen = []
        chosen.append(number)
    if chosen:
        yield chosen


def _special_tokens(tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """The special tokens before a text and after it."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    whole = np.array(encoded["input_ids"], dtype=np.int64)
    own = np.flatnonzero(np.array(encoded["special_tokens_mask"]) == 0)
    if len(own) == 0:
        raise PolicyError("detector transformers: the tokenizer makes no token of a letter")
    return whole[: own[0]], whole[own[-1] + 1 :]


def _dtype(device: Any) -> Any:
    import torch

    return torch.bfloat16 if uses_bf16("auto", device) else torch.float32


def load_tagger(model: str, device: Any, dtype: Any, *, who: str = "detector transformers") -> tuple[Any, Any]:
    """Return the tokenizer and the token-classification model of a folder or hub name; `PolicyError` names ``who``."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    offline = os.environ.get("HF_HUB_OFFLINE", "1").upper() not in ("0", "OFF", "NO", "FALSE")
    options: dict[str, Any] = {"local_files_only": offline, "trust_remote_code": False}
    if folder := folder_of_model(model):
        check_weight_files(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, **options)
        loaded, info = AutoModelForTokenClassification.from_pretrained(
            model, use_safetensors=True, dtype=dtype, output_loading_info=True, **options
        )
    except MemoryError:
        raise
    except Exception as error:  # a config that is wrong ends anywhere in the library
        raise PolicyError(
            f"{who}: {model} cannot be loaded ({type(error).__name__}); expected a folder with "
            "config.json, tokenizer.json and model.safetensors, or a hub name with HF_HUB_OFFLINE=0"
        ) from None
    if info["missing_keys"]:  # they would be random, and so would be what is found
        raise PolicyError(f"{who}: {model} was not trained to label tokens: it has no such head")
    if not tokenizer.is_fast:
        raise PolicyError(f"{who}: the tokenizer of {model} gives no offsets; it needs tokenizer.json")
    tokenizer.truncation_side = "right"
    return tokenizer, loaded.to(device).eval()


#: Kinds of models that count positions from past the number of the padding token.
_PAST_THE_PADDING = (
    *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "mpnet"),
    *("data2vec-text", "esm", "ibert", "luke", "xmod"),
)


def longest_input(tokenizer: Any, config: Any) -> int:
    """Tokens that the model takes at once; models of the RoBERTa family count positions from past the padding."""
    positions = getattr(config, "max_position_embeddings", None) or 1 << 30
    if config.model_type in _PAST_THE_PADDING:
        positions -= (config.pad_token_id or 0) + 1
    return int(min(tokenizer.model_max_length, positions, 1 << 30))
