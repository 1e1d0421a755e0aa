"""Detection with any token-classification model of transformers, with windows over long texts.

Every token takes its label from the window in which it is farthest from an edge; every word the type whose
probability, B- and I- taken together, is highest on average over its tokens. A span covers whole words.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.device import pick_device, uses_bf16
from reticent.core.errors import PolicyError
from reticent.core.model_folder import check_weight_files, folder_of_model
from reticent.engine.detect.detector import texts_of
from reticent.engine.detect.passages import Found, SpanCache, cut_passages, cut_texts, find_in_pieces, join_spans
from reticent.engine.tokenizer_library import json_of

#: A GPU takes so many tokens in milliseconds: with fewer it waits for what is launched.
BATCH_TOKENS = {"cuda": 1 << 16, "cpu": 1 << 13}


class TransformersDetector:
    """Detects entities with a token-classification model of the transformers library.

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
    batch_tokens : int, optional
        Tokens of a batch, padding included; default: `BATCH_TOKENS`.
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
        batch_tokens: int | None = None,
        window: int | None = None,
        stride: int | None = None,
        passages: bool = False,
    ):
        self._device = pick_device(device)
        kind = "cuda" if self._device.type == "cuda" else "cpu"
        batch_tokens = BATCH_TOKENS[kind] if batch_tokens is None else batch_tokens
        self._tokenizer, self._model = load_tagger(str(model), self._device, _pick_dtype(self._device))
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
        """Return a key of everything that affects spans: weights, vocabulary, options, library version."""
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
        """Return the entities of the model in a batch of documents, as spans (schema `BATCH_SPANS`)."""
        texts = texts_of(batch).to_pylist()
        longest = max(map(len, texts), default=0) + 1
        windows = cut_passages(texts, longest) if self._passages else cut_texts(texts, longest, 0)
        found = find_in_pieces([texts[w.document][w.start : w.end] for w in windows], self._find_entities, self.cache)
        return join_spans(windows, found)

    def _find_entities(self, texts: list[str]) -> list[list[Found]]:
        """Return the entities of each text as (start, end, label, score)."""

        column = pa.array(texts, pa.large_string())
        words = _rust.segment(column)
        starts, ends = words.char_spans(column)
        bounds, offsets, probabilities = self._label_tokens(texts)
        # All texts are one from here on, with a character between them; each begins with a word that begins.
        base = np.concatenate([[0], np.cumsum([len(text) + 1 for text in texts])])[:-1]
        of_words, of_tokens = (np.repeat(base, np.diff(each)) for each in (words.doc_offsets, bounds))
        start, end, kind, score = _decode_entities(
            self._scheme, "\n".join(texts), offsets + of_tokens[:, None], probabilities, starts + of_words,
            ends + of_words, words.doc_offsets[:-1],
        )  # fmt: skip
        kept = self._wanted[kind] & (score >= self._min_score)
        number = np.searchsorted(base, start, side="right") - 1
        columns = (number, start - base[number], end - base[number], kind, score)
        result: list[list[Found]] = [[] for _ in texts]
        for text, s, e, k, p in zip(*(each[kept].tolist() for each in columns), strict=True):
            result[text].append((s, e, self._scheme.types[k], p))
        return result

    def _label_tokens(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all texts' tokens: token offsets by text (D + 1,), character offsets in the text (N, 2), and label
        probabilities (N, num_labels)."""
        encoded = self._tokenizer(
            texts,
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            split_special_tokens=True,  # a text that spells "[SEP]" is a text
            verbose=False,  # that it is longer than the model takes
        )
        bounds = np.concatenate([[0], np.cumsum([len(ids) for ids in encoded["input_ids"]], dtype=np.int64)])
        num_tokens = int(bounds[-1])
        ids = np.fromiter(chain.from_iterable(encoded["input_ids"]), np.int64, num_tokens)
        pairs = chain.from_iterable(chain.from_iterable(encoded["offset_mapping"]))
        offsets = np.fromiter(pairs, np.int64, 2 * num_tokens).reshape(-1, 2)
        # Cut here and not by the tokenizer: tokenizers before 0.23.3 gives some long texts their first window alone.
        windows = [
            (first + start, first + end, first, last)
            for first, last in pairwise(bounds.tolist())
            for start, end in self._input_windows(last - first)
        ]
        best = np.zeros((num_tokens, len(self._scheme.is_start)), dtype=np.float32)
        farthest = np.full(num_tokens, -1)
        of_windows = self._probabilities(
            ids, np.array([window[:2] for window in windows], dtype=np.int64).reshape(-1, 2)
        )
        for (start, end, first, last), found in zip(windows, of_windows, strict=True):
            if (start, end) == (first, last):
                best[start:end] = found
                continue
            rank = np.arange(end - start)
            left = rank if start > first else np.full(len(rank), num_tokens)  # the text's own ends are no edges
            right = rank[::-1] if end < last else np.full(len(rank), num_tokens)
            distance = np.minimum(left, right)
            better = distance > farthest[start:end]
            farthest[start:end][better] = distance[better]
            best[start:end][better] = found[better]
        return bounds, offsets, best

    def _input_windows(self, num_tokens: int) -> Iterator[tuple[int, int]]:
        """Yield (start, end), in tokens, of overlapping input windows that cover a text of ``num_tokens`` tokens;
        neighbours share ``stride`` tokens."""
        start, end = 0, min(num_tokens, self._room)
        while start < num_tokens:
            yield start, end
            start = end - self._stride if end < num_tokens else num_tokens
            end = min(start + self._room, num_tokens)

    def _probabilities(self, token_ids: np.ndarray, windows_W2: np.ndarray) -> list[np.ndarray]:
        """Return the label probabilities of each window's tokens, float (window length, num_labels). One batch is
        computed while the results of the one before are fetched."""
        import torch

        before, after = self._around
        result: list[np.ndarray] = [np.zeros(0)] * len(windows_W2)
        pad, sizes = self._tokenizer.pad_token_id or 0, windows_W2[:, 1] - windows_W2[:, 0]
        pending: list[tuple[list[int], Any]] = []

        def fetch() -> None:
            """Wait for the oldest pending batch, and copy its probabilities to ``result``, without special tokens and
            padding."""
            numbers, found_BTL = pending.pop(0)
            for number, found_TL in zip(numbers, found_BTL.cpu().numpy()[:, len(before) :], strict=True):
                result[number] = found_TL[: sizes[number]]

        for chosen in _batches((sizes + len(before) + len(after)).tolist(), self._batch_tokens):
            starts, own = windows_W2[chosen, 0], sizes[chosen, None]
            place = np.arange(-len(before), int(own.max()) + len(after))
            inside_BT = (place >= 0) & (place < own)
            ids_BT = np.full(inside_BT.shape, pad, dtype=np.int64)
            ids_BT[:, : len(before)] = before
            ids_BT[inside_BT] = token_ids[(starts[:, None] + place)[inside_BT]]
            np.put_along_axis(ids_BT, len(before) + own + np.arange(len(after)), after[None], axis=1)
            with torch.inference_mode():
                given = (ids_BT, (place < own + len(after)).astype(np.int64))
                input_ids, mask = (torch.from_numpy(array).to(self._device) for array in given)
                logits_BTL = self._model(input_ids=input_ids, attention_mask=mask).logits
                pending.append((chosen, torch.softmax(logits_BTL.float(), -1)))
            if len(pending) > 1:
                fetch()
        if pending:
            fetch()
        return result


@dataclass(frozen=True, slots=True)
class _Scheme:
    """The model's label scheme: entity type of each label (``types[type_of[label]]``; type 0 is outside), and whether
    it may start an entity."""

    types: list[str]
    type_of: np.ndarray
    is_start: np.ndarray

    @classmethod
    def of(cls, id2label: dict[int, str]) -> _Scheme:
        """Return the tagging scheme that a model's label names follow: BIO or BIOES prefixes, or plain labels."""
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


def _decode_entities(
    scheme: _Scheme,
    text: str,
    offsets: np.ndarray,
    probabilities: np.ndarray,
    word_starts: np.ndarray,
    word_ends: np.ndarray,
    first_words: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the entities of a text as arrays start, end, type, score, decoded from its tokens' label probabilities.
    Word bounds are in characters; the words numbered ``first_words`` always begin a new entity."""
    num_words, by_type = len(word_starts), np.eye(len(scheme.types), dtype=np.float32)[scheme.type_of]
    begin = np.searchsorted(word_ends, offsets[:, 0], side="right")
    num_met = np.maximum(np.searchsorted(word_starts, offsets[:, 1], side="left") - begin, 0)
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
    begins[first_words] = True
    begins = begins[:-1]
    before = np.concatenate([[0], kind[:-1]])[:num_words]
    goes_on = np.append((kind != 0) & (kind == before) & ~begins, False)
    between = np.flatnonzero(num_met == 0)
    between = between[goes_on[begin[between]]]  # what stands inside of an entity, as far as its words say
    for at in between[scheme.type_of[probabilities[between].argmax(1)] == 0]:
        mark = text[offsets[at, 0] : offsets[at, 1]]
        if mark and not mark.isspace():  # a comma that is no part of an entity parts two
            begins[begin[at]] = True

    heads = np.flatnonzero((kind != 0) & ((kind != before) | begins))
    after = np.flatnonzero((kind == 0) | (kind != before) | begins)  # where whatever came before has ended
    tails = np.concatenate([after, [num_words]])[np.searchsorted(after, heads, side="right")]
    chosen = np.concatenate([[0.0], np.cumsum(mean[np.arange(num_words), kind], dtype=np.float64)])
    score = (chosen[tails] - chosen[heads]) / np.maximum(tails - heads, 1)
    return word_starts[heads].astype(np.int64), word_ends[tails - 1].astype(np.int64), kind[heads], score


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield lists of window indices, longest windows first, each list within ``batch_tokens`` tokens including
    padding."""
    chosen: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if chosen and (len(chosen) + 1) * lengths[chosen[0]] > batch_tokens:
            yield chosen
            chosen = []
        chosen.append(number)
    if chosen:
        yield chosen


def _special_tokens(tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of the special tokens that the tokenizer puts before a text, and after it."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    whole = np.array(encoded["input_ids"], dtype=np.int64)
    own = np.flatnonzero(np.array(encoded["special_tokens_mask"]) == 0)
    if len(own) == 0:
        raise PolicyError("detector transformers: the tokenizer makes no token of a letter")
    return whole[: own[0]], whole[own[-1] + 1 :]


def _pick_dtype(device: Any) -> Any:
    """Return the torch dtype for a device: bfloat16 on a GPU that supports it, else float32."""
    import torch

    return torch.bfloat16 if uses_bf16("auto", device) else torch.float32


def load_tagger(model: str, device: Any, dtype: Any, *, who: str = "detector transformers") -> tuple[Any, Any]:
    """Return tokenizer and token-classification model of a folder or hub name; ``who`` names the caller in errors."""
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
    """Return the maximum number of tokens of the model's input; RoBERTa models lose positions to the padding offset."""
    positions = getattr(config, "max_position_embeddings", None) or 1 << 30
    if config.model_type in _PAST_THE_PADDING:
        positions -= (config.pad_token_id or 0) + 1
    return int(min(tokenizer.model_max_length, positions, 1 << 30))
