"""Batched generation from prefixes of token ids, and the exact probability of generating a given text.

Both are here because they must use the same decoding: `Decoding` is the scheme, `generate` draws from it, and
`score_continuations` gives the probability of a continuation under it, without drawing.

Shapes: B rows a batch, T tokens a row, P of a prefix, S of a continuation, V of the vocabulary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from reticent.audit.scoring.endpoint import Server
from reticent.core.device import autocast, pick_device
from reticent.core.errors import PolicyError, TrainingError
from reticent.core.progress import log_warning
from reticent.trainer.models import logits_at, max_positions, without_own_settings
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from reticent.audit.config import ExtractionConfig, GenerationConfig

#: Logits held at once, in numbers: 2^26 float32 are 256 MiB.
MAX_LOGITS = {"cuda": 1 << 26, "cpu": 1 << 23}
#: Largest key-value cache of a GPU batch, in numbers: with `MAX_LOGITS` it gives the rows beyond ``batch_size``. Both
#: are fixed, because sampling depends on the rows of a batch.
MAX_KEYS = 1 << 30
#: Fewest decoding steps for which a model is compiled on a GPU: compiling takes a minute and saves milliseconds a step.
FEWEST_COMPILED = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How the next token is chosen: the likeliest (temperature 0), or sampled from the ``top_k`` likeliest.

    Parameters
    ----------
    temperature : float, 0 or more
        Logits are divided by it; 0 is greedy.
    top_k : int, 0 or more
        Tokens that can be drawn; 0: all of them. As in transformers, tokens that tie with the last are kept.
    may_end : bool
        Whether a text may end: False leaves out the end tokens of the tokenizer and of the model's settings, as an
        adversary would, so that what a model knows is written out.

    >>> print(Decoding(temperature=0.8, top_k=40))
    sampling at temperature 0.8 from the 40 likeliest tokens
    """

    temperature: float = 1.0
    top_k: int = 0
    may_end: bool = False

    def __post_init__(self) -> None:
        if self.temperature < 0 or self.top_k < 0:
            raise PolicyError(
                f"decoding: expected temperature and top_k of 0 or more, got {self.temperature} and {self.top_k}"
            )

    def __str__(self) -> str:
        if self.temperature == 0:
            return "greedy"
        among = {0: "all tokens", 1: "the likeliest token"}.get(self.top_k, f"the {self.top_k} likeliest tokens")
        return f"sampling at temperature {self.temperature:g} from {among}"

    def log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of the next token, (N, V), when it is drawn by this decoding scheme
        (temperature, top-k); minus infinity for tokens that cannot be drawn."""
        if self.temperature == 0:
            only = torch.full_like(logits, -torch.inf, dtype=torch.float32)
            return only.scatter_(1, logits.argmax(-1, keepdim=True), 0.0)
        scaled = logits.float() / self.temperature
        if 0 < self.top_k < scaled.shape[-1]:
            lowest = torch.topk(scaled, self.top_k, dim=-1).values[:, -1:]
            scaled = scaled.masked_fill(scaled < lowest, -torch.inf)
        return torch.log_softmax(scaled, dim=-1)


def decoding_of(config: GenerationConfig | ExtractionConfig) -> Decoding:
    """Return the decoding scheme (temperature, top-k) of the settings."""
    return Decoding(temperature=config.temperature, top_k=config.top_k)


GREEDY = Decoding(temperature=0.0)


def generate(
    model: PreTrainedModel | Server,
    prompts: Sequence[np.ndarray],
    *,
    special: SpecialIds,
    num_tokens: int,
    decoding: Decoding = GREEDY,
    num_samples: int = 1,
    batch_size: int = 64,
    seed: int = 0,
    device: str = "auto",
    bf16: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return the token ids that a model generates after each prompt, int64 (prompts, num_samples, num_tokens), without
    the prompt; -1 after the end of a text.

    Prompts of similar length share a batch, padded on the left; only equal lengths do where padding changes a model's
    output. The model's prefix token precedes each, as in training. Keys and values are cached between steps. For many
    steps on a GPU the model is compiled, if its class supports a static cache.

    Parameters
    ----------
    prompts : sequence of int arrays
        Token ids, without special ones.
    seed : int
        Samples depend on it and on ``batch_size``, because random numbers are drawn by batch.
    batch_size : int
        Prompts at once; a GPU takes more where `MAX_KEYS` and `MAX_LOGITS` allow it.
    bf16 : {"auto", "on", "off"}
        bfloat16 for the model's arithmetic; "auto" is on for CUDA.

    Raises
    ------
    PolicyError
        A prompt is empty and the model has no prefix token, or a number is under 1.
    TrainingError
        A prompt with its continuation does not fit into the model.
    """
    if isinstance(model, Server):
        return model.write(
            prompts, special=special, num_tokens=num_tokens, temperature=decoding.temperature, top_k=decoding.top_k,
            num_samples=num_samples, seed=seed, progress=progress,
        )  # fmt: skip
    device_ = pick_device(device)
    net: Any = model.to(device=device_).eval()  # type: ignore
    lengths = np.array([len(prompt) for prompt in prompts], dtype=np.int64) + (special.prefix is not None)
    _check_lengths(model, lengths, num_tokens, num_samples, batch_size)
    order = np.argsort(-lengths, kind="stable")
    made = np.full((len(prompts), num_samples, num_tokens), -1, dtype=np.int64)
    ends = end_ids(net, special)
    if device_.type == "cuda":
        batch_size = max(batch_size, _num_rows(net.config, int(lengths.max(initial=1)) + num_tokens) // num_samples)
    starts = np.arange(0, len(order), batch_size)
    if len(np.unique(lengths)) > 1 and _moved_by_padding(net, special, device_):
        starts = np.union1d(starts, np.flatnonzero(np.diff(lengths[order])) + 1)
    batches = np.split(order, starts[1:])

    def write(*, static: bool) -> None:
        """Generate the continuations of all prompts, batch by batch, into the result. With ``static`` the model is
        compiled, and every batch is filled up to the same number of rows."""
        config, done = _generation_config(decoding, num_tokens, num_samples, special, ends, static=static), 0
        with _seeded(seed, device_), without_own_settings(net), torch.inference_mode(not static):
            for rows in batches:
                # What is compiled is for a number of rows: those that lack are the last again.
                given = np.pad(rows, (0, max(map(len, batches)) - len(rows)), mode="edge") if static else rows
                ids, attention = _left_padded([prompts[row] for row in given], special)
                with autocast(bf16, device_):
                    output = net.generate(
                        torch.from_numpy(ids).to(device_),
                        attention_mask=torch.from_numpy(attention).to(device_),
                        generation_config=config,
                    )
                new = output[: len(rows) * num_samples, ids.shape[1] :].cpu().numpy()
                new = np.where(_after_end(new, ends if decoding.may_end else []), -1, new)
                made[rows, :, : new.shape[1]] = new.reshape(len(rows), num_samples, -1)
                done += len(rows)
                if progress:
                    progress(done)

    if not _is_compiled(net, device_, len(batches) * num_tokens):
        write(static=False)
        return made
    try:
        write(static=True)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a compiler can fail anywhere
        log_warning(f"generation: a model cannot be compiled here ({type(error).__name__}), and writes more slowly")
        made[:] = -1
        write(static=False)
    return made


def score_continuations(
    model: PreTrainedModel | Server,
    ids_NT: np.ndarray,
    num_prefix: int,
    *,
    special: SpecialIds,
    decoding: Decoding,
    batch_size: int = 64,
    device: str = "auto",
    bf16: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (whether greedy decoding gives the true continuation of each prefix, bool (N,); its log-probability under
    ``decoding``, float64 (N,)).

    One forward pass a row: greedy decoding gives the continuation exactly if each of its tokens is the likeliest after
    those before it, and the probability of drawing it is the product over its tokens.

    A server writes the greedy continuation instead, and gives no probability (NaN).

    Parameters
    ----------
    ids_NT : int array
        Rows of a prefix of ``num_prefix`` tokens and its true continuation.
    """
    ids = np.asarray(ids_NT, dtype=np.int64)
    if isinstance(model, Server):
        asked = [model.retokenized(row, num_prefix) for row in ids]
        longest = max(map(len, asked), default=1)
        made = model.write(list(ids[:, :num_prefix]), special=special, num_tokens=longest, progress=progress)[:, 0]
        found = [written[: len(own)].tolist() == own for written, own in zip(made, asked, strict=True)]
        return np.array(found, dtype=bool), np.full(len(ids), np.nan)
    device_ = pick_device(device)
    net: Any = model.to(device=device_).eval()  # type: ignore
    offset = int(special.prefix is not None)
    num_suffix = ids.shape[1] - num_prefix
    if num_prefix + offset < 1 or num_suffix < 1:
        raise PolicyError(f"expected a prefix and a continuation, got {num_prefix} and {num_suffix} tokens")
    if special.prefix is not None:
        ids = np.concatenate([np.full((len(ids), 1), special.prefix), ids], axis=1)
    _check_lengths(model, np.array([num_prefix + offset]), num_suffix, 1, batch_size)
    kind = "cuda" if device_.type == "cuda" else "cpu"
    rows_at_once = max(1, MAX_LOGITS[kind] // (model.config.vocab_size * num_suffix))
    rows_at_once = rows_at_once if kind == "cuda" else min(batch_size, rows_at_once)
    is_greedy, log_p = np.empty(len(ids), dtype=bool), np.empty(len(ids), dtype=np.float64)
    ends = torch.tensor([] if decoding.may_end else end_ids(net, special), dtype=torch.int64, device=device_)
    with torch.inference_mode():
        for start in range(0, len(ids), rows_at_once):
            rows = torch.from_numpy(ids[start : start + rows_at_once]).to(device_)
            cells = torch.arange(rows.numel(), device=device_).view(rows.shape)[:, num_prefix + offset - 1 : -1]
            with autocast(bf16, device_):
                logits = logits_at(net, rows, None, cells.flatten())
            true = rows[:, num_prefix + offset :].reshape(-1, 1)
            logits[:, ends] = torch.where(true == ends, logits[:, ends], -torch.inf)
            shape = (len(rows), num_suffix)
            part = slice(start, start + len(rows))
            greedy = (logits.argmax(-1, keepdim=True) == true).view(shape).all(1)
            drawn = decoding.log_probs(logits).gather(1, true).view(shape).double().sum(1)
            is_greedy[part], log_p[part] = torch.stack([greedy.double(), drawn]).cpu().numpy()
            if progress:
                progress(start + len(rows))
    if np.isnan(log_p).any():
        raise TrainingError("scoring: the model's logits are not numbers; did training diverge?")
    return is_greedy, log_p


def _num_rows(config: Any, length: int) -> int:
    """Return how many rows of ``length`` tokens fit into one GPU batch, by the memory for cached keys and values and
    for logits."""
    text = config.get_text_config()
    keys = 2 * getattr(text, "num_hidden_layers", 1) * getattr(text, "hidden_size", 1) * length
    return max(1, min(MAX_KEYS // keys, MAX_LOGITS["cuda"] // text.vocab_size))


def _is_compiled(net: Any, device: torch.device, num_steps: int) -> bool:
    """Return whether to compile the generation loop: on a GPU, for at least `FEWEST_COMPILED` steps, if the model's
    class supports it."""
    return device.type == "cuda" and num_steps >= FEWEST_COMPILED and bool(net._can_compile_fullgraph)


def _check_lengths(model: Any, lengths: np.ndarray, num_tokens: int, num_samples: int, batch_size: int) -> None:
    """Raise `PolicyError` if a count or batch size is below 1 or a prompt is empty, and `TrainingError` if a prompt
    with its continuation exceeds the model's context."""
    if min(num_tokens, num_samples, batch_size) < 1:
        raise PolicyError("generation: num_tokens, num_samples and batch_size are 1 or more")
    if len(lengths) and lengths.min() < 1:
        raise PolicyError("generation: a prompt is empty, and the model has no token to begin with")
    positions = max_positions(model)
    longest = int(lengths.max(initial=0)) + num_tokens
    if longest > positions:
        raise TrainingError(f"generation: {longest} tokens are more than the model's {positions} positions")


def end_ids(net: Any, special: SpecialIds) -> list[int]:
    """Return the token ids that end a text, ascending: the tokenizer's own, and those of the model's generation
    config."""
    listed = getattr(getattr(net, "generation_config", None), "eos_token_id", None)
    ends = {special.end, *([] if listed is None else np.atleast_1d(listed).tolist())}
    return sorted(end for end in ends if end is not None and end < net.config.vocab_size)


def _generation_config(
    decoding: Decoding, num_tokens: int, num_samples: int, special: SpecialIds, ends: list[int], *, static: bool = False
) -> Any:
    """Return the settings with which transformers generates texts in one call. The model's own generation settings are
    ignored (see `without_own_settings`)."""
    from transformers import GenerationConfig

    sampling: dict[str, bool | int | float] = {"do_sample": False}
    if decoding.temperature > 0:
        sampling = {"do_sample": True, "top_k": decoding.top_k, "temperature": decoding.temperature, "min_p": 0.0}
    return GenerationConfig(
        max_new_tokens=num_tokens,
        num_return_sequences=num_samples,
        num_beams=1,
        top_p=1.0,
        repetition_penalty=1.0,
        no_repeat_ngram_size=0,
        use_cache=True,
        cache_implementation="static" if static else None,
        pad_token_id=special.pad,
        eos_token_id=(ends or None) if decoding.may_end else None,
        suppress_tokens=None if decoding.may_end else ends or None,
        **sampling,
    )


#: Model -> whether left padding changes its output.
_moved: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _moved_by_padding(net: Any, special: SpecialIds, device: torch.device) -> bool:
    """Whether padding on the left changes the logits that a model gives for the next token, as it does for RWKV;
    prompts of different lengths then cannot share a batch. Cached by model."""
    if (known := _moved.get(net)) is not None:
        return known
    config = _generation_config(Decoding(temperature=0.0, may_end=True), 1, 1, special, [])
    logits = []
    for num_padded in (0, 3):
        ids = torch.tensor([[special.pad] * num_padded + [1, 2, 3]], device=device)
        attention = torch.tensor([[0] * num_padded + [1] * 3], device=device)
        written = net.generate(
            ids, attention_mask=attention, generation_config=config, output_logits=True, return_dict_in_generate=True
        )
        logits.append(written.logits[0].float())
    _moved[net] = not float((logits[0] - logits[1]).abs().max()) <= 1e-2 * float(logits[0].abs().max())
    return _moved[net]


def _after_end(new: np.ndarray, end: list[int]) -> np.ndarray:
    """Return whether each token in the generated rows comes after the row's first end-of-text token, bool."""
    ends = np.isin(new, end)
    return np.asarray(np.cumsum(ends, axis=1) - ends > 0)


def _left_padded(prompts: Sequence[np.ndarray], special: SpecialIds) -> tuple[np.ndarray, np.ndarray]:
    """Return (ids, attention mask) of prompts as one batch, int64 (B, T), padded on the left."""
    offset = int(special.prefix is not None)
    width = max(len(prompt) for prompt in prompts) + offset
    ids = np.full((len(prompts), width), special.pad, dtype=np.int64)
    attention = np.zeros((len(prompts), width), dtype=np.int64)
    for row, prompt in enumerate(prompts):  # a batch's prompts; generating from them costs a thousand times this
        first = width - len(prompt) - offset
        attention[row, first:] = 1
        ids[row, first + offset :] = prompt
        if special.prefix is not None:
            ids[row, first] = special.prefix
    return ids, attention


@contextlib.contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's random numbers within the context, and restore their state afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
