"""How fast are log-probabilities of every token, against one text at a time and against padded batches?

Texts of random tokens, their lengths log-normal like those of clinical notes, under one causal model with random
weights: what is counted is arithmetic, not language. The two others are what a script does: ``logits`` of one text, or
of a padded batch in the order of the texts, ``log_softmax``, ``gather``; they get log-probabilities alone, where the
scoring pass also has entropy, spread, argmax and rank. All run in the same precision, in turns, and ratios are taken
within rounds; on a CPU the pass in bfloat16 stands beside them. Before a time is shown the log-probabilities are
compared, in float32.

    python -m benchmarks.scoring [--size toy|cpu|gpu] [--rounds 3]
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks.record_io import markdown, range_text, spread, write_record
from benchmarks.runner import command
from reticent.audit.scoring.scores import score_causal
from reticent.core.device import pick_device
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

#: Largest difference of a log-probability in nats, in float32.
TOLERANCE = 1e-4
GOALS = {"one text at a time": (5.0, 20.0), "padded batches": (1.3, 1.8)}
BOS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and how much text."""

    layers: int
    width: int
    vocabulary: int
    num_texts: int
    median_length: int
    window: int
    batch: int


SIZES = {
    "toy": Size(layers=1, width=32, vocabulary=300, num_texts=12, median_length=12, window=64, batch=4),
    "cpu": Size(layers=2, width=128, vocabulary=4096, num_texts=96, median_length=60, window=256, batch=32),
    # GPT-2 as it is.
    "gpu": Size(layers=12, width=768, vocabulary=50257, num_texts=1024, median_length=160, window=512, batch=64),
}


def make_model(size: Size) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=size.vocabulary, n_embd=size.width, n_layer=size.layers, n_head=max(1, size.width // 64),
        n_positions=size.window, bos_token_id=BOS, eos_token_id=BOS,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def make_store(size: Size) -> TokenStore:
    """Texts that fit into a window, most of them short, in no order."""
    random = np.random.default_rng(0)
    lengths = random.lognormal(math.log(size.median_length), 0.8, size.num_texts).astype(np.int64)
    lengths = lengths.clip(2, size.window - 1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    num_tokens = int(offsets[-1])
    empty = np.zeros(num_tokens, dtype=np.uint8)
    return TokenStore(
        random.integers(2, size.vocabulary, num_tokens).astype(np.uint16),
        np.arange(num_tokens, dtype=np.int32),
        empty,
        empty,
        offsets,
        np.arange(size.num_texts, dtype=np.uint32),
        pa.array([str(number) for number in range(size.num_texts)]),
    )


def as_tensor(store: TokenStore, texts: range, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of texts after a first token, padded on the right, and the mask that is True at them."""
    rows = [
        torch.from_numpy(store.input_ids[slice(*store.doc_offsets[text : text + 2])].astype(np.int64)) for text in texts
    ]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row), dtype=torch.bool) for row in rows], batch_first=True)
    first = torch.full((len(rows), 1), BOS)
    return torch.cat([first, padded], dim=1).to(device), mask


@torch.inference_mode()
def in_batches(model: Any, store: TokenStore, batch: int, device: torch.device, half: bool) -> np.ndarray:
    """Log-probabilities of every token, ``batch`` texts at a time in their order; 1 is one text at a time."""
    found = []
    for start in range(0, store.num_documents, batch):
        texts = range(start, min(start + batch, store.num_documents))
        ids, mask = as_tensor(store, texts, device)
        attention = torch.cat([torch.ones(len(mask), 1), mask], dim=1).to(device)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            logits = model(input_ids=ids, attention_mask=attention if batch > 1 else None).logits[:, :-1]
        log_p = torch.log_softmax(logits.float(), dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
        found.append(log_p.cpu()[mask].numpy())
    return np.concatenate(found)


def ours(model: Any, store: TokenStore, size: Size, device: torch.device, bf16: str = "auto") -> np.ndarray:
    """Log-probabilities of every token by the scoring pass."""
    special = SpecialIds(prefix=BOS, suffix=None, pad=0, mask=None)
    options: dict[str, Any] = {"window_length": size.window, "batch_size": size.batch, "device": str(device)}
    options["bf16"] = bf16
    return score_causal(model, store, special, **options).log_probs


def run(size: Annotated[str, SIZES] = "toy", rounds: int = 3) -> None:
    """Compare the answers, then the times; records what was found."""
    settings, device = SIZES[size], pick_device("cuda" if size == "gpu" else "cpu")
    model, store = make_model(settings).to(device), make_store(settings)
    half = device.type == "cuda"
    ways: dict[str, Callable[[], np.ndarray]] = {
        "scoring pass": lambda: ours(model, store, settings, device),
        "padded batches": lambda: in_batches(model, store, settings.batch, device, half),
        "one text at a time": lambda: in_batches(model, store, 1, device, half),
    }
    if not half:
        ways["scoring pass, bfloat16"] = lambda: ours(model, store, settings, device, "on")
    agreement = _compare(model, store, settings)
    if half:  # warmed up: the first kernels of a process are loaded and chosen
        for way in ways.values():
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 if size == "toy" else rounds):
        for name, way in ways.items():
            seconds[name].append(_timed(way, device))
    result: dict[str, Any] = {
        "question": "log-probabilities of every token",
        "settings": asdict(settings),
        "device": device.type,
        "precision": "bfloat16 autocast" if half else "float32",
        "texts": store.num_documents,
        "tokens": store.num_tokens,
        "largest_difference_float32": agreement,
        "seconds": {name: spread(times) for name, times in seconds.items()},
        "tokens_per_second": {
            name: spread([store.num_tokens / time for time in times]) for name, times in seconds.items()
        },
        "goals": [
            {
                "id": "P12",
                "what": f"{name} / scoring pass, seconds within a round",
                "must": must,
                "goal": goal,
                "value": spread([a / b for a, b in zip(seconds[name], seconds["scoring pass"], strict=True)]),
            }
            for name, (must, goal) in GOALS.items()
        ],
    }
    rows = [(name, f"{found['median']:,.0f}") for name, found in result["tokens_per_second"].items()]
    print(markdown(["way", "tokens/s"], rows))
    for goal in result["goals"]:
        print(f"{goal['what']}: {range_text(goal['value'])}")
    write_record("scoring-gpu" if half else "scoring", result, size)


def _compare(model: Any, store: TokenStore, settings: Size) -> float:
    """The largest difference between the three answers on some texts, in float32 on a CPU; refused where it is not one
    of rounding."""
    some = store.select(np.arange(min(16, store.num_documents)))
    cpu, device = torch.device("cpu"), next(model.parameters()).device
    model.to(cpu)
    answers = [
        ours(model, some, settings, cpu),
        in_batches(model, some, 5, cpu, half=False),
        in_batches(model, some, 1, cpu, half=False),
    ]
    model.to(device)
    largest = max(float(np.abs(answers[0] - other).max()) for other in answers[1:])
    assert all(len(answer) == some.num_tokens for answer in answers), "not every token has a log-probability"
    assert largest < TOLERANCE, f"log-probabilities differ by {largest:.1e}"
    return largest


def _timed(way: Callable[[], np.ndarray], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    before = time.perf_counter()
    way()
    return time.perf_counter() - before


if __name__ == "__main__":
    command(run)
