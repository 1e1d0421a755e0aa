"""How many tokens a second does a device train, score and write, beside the Trainer of transformers and the plain way?

BERT-base and GPT-2 (124M) with random weights, on texts of random tokens whose lengths are those of notes: nothing has
to be prepared, and no network is asked. Each way has its part of the time that is left, in bfloat16 where there is
CUDA; the most important are first, each beside its peer. A way that fails does not stop the others, and what was found
is written after each, so that a run that is killed keeps it. The answer is checked: after the same number of steps the
ways have nearly the same loss. Tokens are those of documents: neither padding nor special tokens count.

    python -m benchmarks.throughput [--size toy|gpu] [--seconds 330]
"""

from __future__ import annotations

import gc
import math
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import cache, partial
from statistics import median
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import TrainerCallback

from benchmarks import scoring
from benchmarks.record_io import markdown, write_record
from benchmarks.runner import command
from benchmarks.training import OBJECTIVES, SHAPES, Plan, Way, flops_per_token, fresh_model, matmul_rate, trainer_of
from benchmarks.training import window_rows as rows_of
from reticent.audit.scoring import generate as writing
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import json_of
from reticent.trainer import loop
from reticent.trainer.config import PrivacyConfig, TrainConfig
from reticent.trainer.models import load_tokenizer, special_ids
from reticent.trainer.recipes import get_recipe

#: Ids of the published vocabularies, and documents, by size.
VOCABULARIES = {"toy": {"bert": 600, "gpt2": 600}, "gpu": {"bert": 28_996, "gpt2": 50_257}}
DOCUMENTS = {"toy": 60, "gpu": 12_000}
#: Steps before the time is taken, and at least so many after.
WARM, FEWEST = {"toy": 2, "gpu": 20}, 2
#: Way -> what differs from plain training by our loop. The protected recipe has the same objective.
OURS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, protected": {"recipe": "pp"},
    "ours, packed": {"packing": True},
    "ours, DP-SGD, hooks": {"recipe": "dp-", "clipping": "hooks"},
    "ours, DP-SGD, ghost": {"recipe": "dp-", "clipping": "ghost"},
}
#: Ways of GPT-2 to score each token, and to write text.
SCORING = ("scoring pass", "one text at a time", "padded batches")
WRITING = ("generate", "transformers, a prompt at a time", "generate, compiled")
#: The ways that are measured first, of both kinds of models.
FIRST = ("Trainer", "ours", "ours, protected")
#: Ratio of two ways, or tokens a second of one on an H100, and the least that it should be.
GOALS = {
    ("ours", None): 450_000.0,
    ("ours", "Trainer"): 2.2,
    ("ours, protected", "ours"): 0.97,
    ("ours, packed", "ours"): 1.0,
    ("ours, DP-SGD, hooks", "ours"): 0.7,
    ("ours, DP-SGD, ghost", "ours"): 0.7,
    ("scoring pass", None): 1_000_000.0,
    ("scoring pass", "one text at a time"): 20.0,
    ("scoring pass", "padded batches"): 1.8,
    ("generate", "transformers, a prompt at a time"): 1.0,
    ("generate, compiled", "generate"): 1.0,
}
#: Share of a way's part of the time that is measured; the rest is for making its model and warming up.
MEASURED = 0.7


class EnoughError(Exception):
    """Ends a training whose time is over."""


def make_plan(kind: str, size: str) -> Plan:
    """Return texts of random tokens, a tenth of them protected, and their tokenizer."""
    vocabulary = VOCABULARIES[size][kind]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] if kind == "bert" else ["<|endoftext|>"]
    words = {word: number for number, word in enumerate([*special, *(f"w{n}" for n in range(vocabulary))][:vocabulary])}
    tokenizer = load_tokenizer(Tokenizer(WordLevel(words, special[1] if kind == "bert" else special[0])).to_str())
    shape, random = SHAPES[size], np.random.default_rng(0)
    lengths = random.lognormal(math.log(0.6 * shape.window_length), 0.6, DOCUMENTS[size]).astype(np.int64)
    lengths = lengths.clip(8, shape.window_length - 2)
    num_tokens = int(lengths.sum())
    store = TokenStore(
        random.integers(len(special), vocabulary, num_tokens).astype(np.uint16),
        np.arange(num_tokens, dtype=np.int32),
        (random.random(num_tokens) < 0.1).astype(np.uint8) * np.uint8(3),
        np.zeros(num_tokens, dtype=np.uint8),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.arange(len(lengths), dtype=np.uint32),
        pa.array([str(number) for number in range(len(lengths))]),
    )
    cuda = torch.cuda.is_available()
    return Plan(
        kind=kind, store=store, tokenizer=tokenizer, shape=shape, num_epochs=1000, device="cuda" if cuda else "cpu",
        bf16=cuda,
    )  # fmt: skip


class Watch:
    """Takes the time and the tokens from the end of the warm-up until the seconds are over."""

    def __init__(self, plan: Plan, size: str, seconds: float):
        self.plan, self.warm, self.seconds = plan, WARM[size], seconds
        self.started = self.ended = 0.0
        self.tokens, self.first_tokens, self.steps, self.loss = 0, 0, 0, math.nan

    def after_step(self, step: int, tokens: int, loss: float) -> bool:
        """Whether the time is over."""
        if step < self.warm:
            return False
        if step == self.warm:
            self._synchronize()
            self.started, self.first_tokens, self.loss = time.perf_counter(), tokens, loss
        if step % 10 and self.plan.device == "cuda":
            return False
        if step < self.warm + FEWEST or time.perf_counter() - self.started < self.seconds:
            return False
        self._synchronize()
        self.ended, self.tokens, self.steps = time.perf_counter(), tokens - self.first_tokens, step - self.warm
        return True

    def found(self) -> dict[str, Any]:
        rate = self.tokens / (self.ended - self.started)
        return {"tokens_per_second": rate, "steps": self.steps, "loss": self.loss}

    def _synchronize(self) -> None:
        if self.plan.device == "cuda":
            torch.cuda.synchronize()


def train_ours(
    plan: Plan, size: str, seconds: float, *, recipe: str = "", clipping: Any = None, packing: bool = False
) -> Any:
    """Train by our loop until the time is over."""
    watch, states = Watch(plan, size, seconds), []

    class Reader(loop.LossReader):
        def __init__(self, state: Any, *arguments: Any):
            states.append(state)
            super().__init__(state, *arguments)

    def progress(said: dict[str, Any]) -> None:
        if watch.after_step(said["step"], states[0].num_tokens, said["loss"]):
            raise EnoughError

    config = TrainConfig(
        num_epochs=plan.num_epochs, checkpoint_epochs=(), window_length=plan.shape.window_length, end_of_text=False,
        batch_size=plan.shape.batch_size, device=plan.device, packing=packing, save_minutes=0,
        bf16="on" if plan.bf16 else "off",
    )  # fmt: skip
    privacy = None
    if clipping:
        privacy = PrivacyConfig(
            unit="record", noise_multiplier=1.0, clipping=clipping, seed=0,
            max_physical_batch_size=plan.shape.batch_size,
        )  # fmt: skip
    before, loop.LossReader = loop.LossReader, Reader  # type: ignore[assignment, misc]
    try:
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as out:
            loop.train(
                fresh_model(plan), plan.store, get_recipe(recipe + plan.objective), config, out,
                tokenizer=json_of(plan.tokenizer), progress=progress, privacy=privacy, resume=False,
            )  # fmt: skip
    except EnoughError:
        return watch.found()
    finally:
        loop.LossReader = before  # type: ignore[misc]
    raise AssertionError("the training ended before its time")


def train_theirs(plan: Plan, size: str, seconds: float) -> Any:
    """Train by the Trainer of transformers, with its own collator, on the same windows."""
    watch, way = Watch(plan, size, seconds), Way(name="Trainer")
    rows, num_tokens = rows_of(plan, way)
    tokens_a_step = num_tokens / len(rows) * plan.shape.batch_size

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            step = state.global_step
            loss = float(peer.step_losses[-1]) if step == watch.warm else math.nan
            control.should_training_stop = watch.after_step(step, int(step * tokens_a_step), loss)

    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as out:
        peer = trainer_of(plan, way, fresh_model(plan), out, rows)
        peer.add_callback(Stop())
        peer.train()
    return watch.found()


def timed(seconds: float, tokens: int, way: Callable[[], Any]) -> Any:
    """Call a way again and again until the time is over; the first call warms up, and compiles."""
    times: list[float] = []
    while len(times) < 2 or sum(times[1:]) < seconds:
        started = time.perf_counter()
        way()
        times.append(time.perf_counter() - started)
    return {"tokens_per_second": tokens / median(times[1:]), "steps": len(times) - 1, "first_seconds": times[0]}


def ask(plan: Plan, size: str) -> dict[str, Callable[[float], Any]]:
    """Return the ways to score each token and to write text, for GPT-2; each is called with its seconds."""
    settings, device = scoring.SIZES[size], torch.device(plan.device)
    model, store = scoring.make_model(settings).to(device), scoring.make_store(settings)
    few = store.select(np.arange(max(2, store.num_documents // 16)))
    special, random = special_ids(plan.tokenizer, "clm"), np.random.default_rng(0)
    half = min(64, settings.window // 4)
    prompts = [random.integers(2, settings.vocabulary, half) for _ in range(2 * settings.batch)]

    def plain() -> None:
        for prompt in prompts[:2]:
            ids = torch.from_numpy(prompt)[None].to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=plan.bf16), torch.inference_mode():
                model.generate(ids, max_new_tokens=half, min_new_tokens=half, do_sample=False, pad_token_id=0)

    def written(compiled: bool = False) -> None:
        before, writing.FEWEST_COMPILED = writing.FEWEST_COMPILED, 0 if compiled else 1 << 62
        try:
            writing.generate(
                model, prompts, special=special, num_tokens=half, batch_size=settings.batch, device=plan.device,
                bf16="on" if plan.bf16 else "off",
            )  # fmt: skip
        finally:
            writing.FEWEST_COMPILED = before

    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "scoring pass": (store.num_tokens, lambda: scoring.ours(model, store, settings, device)),
        "one text at a time": (few.num_tokens, lambda: scoring.in_batches(model, few, 1, device, plan.bf16)),
        "padded batches": (
            store.num_tokens, lambda: scoring.in_batches(model, store, settings.batch, device, plan.bf16)
        ),
        "generate": (len(prompts) * half, written),
        "transformers, a prompt at a time": (2 * half, plain),
        "generate, compiled": (len(prompts) * half, partial(written, True)),
    }  # fmt: skip
    return {name: partial(timed, tokens=tokens, way=way) for name, (tokens, way) in ways.items()}


def measure(size: str, seconds: float, keep: Callable[[dict[str, Any]], None]) -> None:
    """Take every way in turn, each with its part of the seconds that are left; ``keep`` gets all that was found after
    each.
    """
    deadline, plans = time.monotonic() + seconds, {kind: make_plan(kind, size) for kind in OBJECTIVES}
    asked = cache(partial(ask, plans["gpt2"], size))
    last = [name for name in OURS if name not in FIRST]
    order = [
        *((kind, name) for name in FIRST for kind in OBJECTIVES), *(("gpt2", name) for name in SCORING),
        *((kind, name) for name in last for kind in OBJECTIVES), *(("gpt2", name) for name in WRITING),
    ]  # fmt: skip
    found: dict[str, Any] = {}
    for kind, plan in plans.items():
        mean_window = float(plan.windows.lengths.mean())
        needed = flops_per_token(plan.shape, len(plan.tokenizer), kind, mean_window)
        found[kind] = {"ways": {}, "flops_per_token": needed, "mean_window": mean_window}
    for turn, (kind, name) in enumerate(order):
        each, plan = MEASURED * max(0.0, deadline - time.monotonic()) / (len(order) - turn), plans[kind]
        before = 0
        if plan.device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        try:
            if name in OURS:
                row = train_ours(plan, size, each, **OURS[name])
            else:
                row = train_theirs(plan, size, each) if name == "Trainer" else asked()[name](each)
        except Exception as error:
            traceback.print_exc()
            row = {"error": f"{type(error).__name__}: {error}"[:200]}
        row["peak_bytes"] = torch.cuda.max_memory_allocated() - before if plan.device == "cuda" else None
        found[kind]["ways"][name] = row
        rate = row.get("tokens_per_second")
        print(f"{kind}, {name}: {row['error'] if rate is None else f'{rate:,.0f} tokens/s'}", flush=True)
        keep(found)


def ratios(ways: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what was reached of `GOALS`."""
    rate = {name: row["tokens_per_second"] for name, row in ways.items() if "tokens_per_second" in row}
    return [
        {"what": f"{one}, tokens/s" if other is None else f"{one} / {other}", "goal": goal,
         "value": rate[one] / rate.get(other or "", 1.0)}
        for (one, other), goal in GOALS.items()
        if one in rate and (other is None or other in rate)
    ]  # fmt: skip


def run(
    size: Annotated[str, ("toy", "cpu", "gpu")] = "gpu" if torch.cuda.is_available() else "toy",
    seconds: Annotated[float, "for all ways together"] = 330.0,
) -> None:
    """Measure, record what was found after each way, and print a table of each model."""
    if size == "cpu":
        print("skipped: of GPUs; benchmarks.training and benchmarks.scoring have size cpu")
        return
    if size == "gpu" and not torch.cuda.is_available():
        raise SystemExit("size gpu needs CUDA")
    result: dict[str, Any] = {"question": "tokens a second", "shape": asdict(SHAPES[size])}
    result["matmul_flops_per_second"] = matmul_rate(*(("cuda", True) if size == "gpu" else ("cpu", False)), repeats=2)

    def keep(found: dict[str, Any]) -> None:
        for kind, of_kind in found.items():
            result[kind] = {**of_kind, "ratios": ratios(of_kind["ways"])}
        write_record("throughput-gpu", result, size)

    measure(size, 2.0 if size == "toy" else seconds, keep)
    wrong = []
    for kind in OBJECTIVES:
        of_kind, lines = result[kind], []
        for name, row in of_kind["ways"].items():
            rate, peak = row.get("tokens_per_second"), row.get("peak_bytes")
            trains = rate and name in ("Trainer", *OURS)
            share = rate * of_kind["flops_per_token"] / result["matmul_flops_per_second"] if trains else None
            lines.append(
                [name, row.get("error") or f"{rate:,.0f}", "-" if share is None else f"{share:.0%}",
                 "-" if peak is None else f"{peak / 2**30:.1f}"]
            )  # fmt: skip
        print(markdown([kind, "tokens/s", "of matmul", "peak GiB"], lines))
        for ratio in of_kind["ratios"]:
            print(f"{ratio['what']}: {ratio['value']:,.2f} (goal {ratio['goal']:,})")
        wrong += [f"{kind}, {fault}" for fault in _faults(of_kind["ways"], tolerance=0.1 if size == "toy" else 0.05)]
    if wrong:
        raise SystemExit("\n".join(wrong))


def _faults(ways: dict[str, Any], tolerance: float) -> list[str]:
    """The ways that failed, and those whose loss after the warm-up is another: the same weights on tokens of one
    distribution. That of DP-SGD may be.
    """
    losses = {name: row["loss"] for name, row in ways.items() if "loss" in row and "DP-SGD" not in name}
    middle = median(losses.values()) if losses else math.nan
    return [
        *(f"{name}: {row['error']}" for name, row in ways.items() if "error" in row),
        *(f"{name}: loss {loss:.3f} after the warm-up, {middle:.3f} of most" for name, loss in losses.items()
          if not abs(loss - middle) <= tolerance * middle),
    ]  # fmt: skip


if __name__ == "__main__":
    command(run)
