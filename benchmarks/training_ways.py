"""The ways to train that are compared: our loop, and the Trainer of transformers with its own collators.

Each way runs in a process of its own and trains one epoch at a time, when it is told to: so the ways take turns, and an
epoch of one stands beside an epoch of the others. Imports neither Polars, spaCy, Opacus nor the Rust core.

Shapes: B windows a batch, T tokens a window.
"""

from __future__ import annotations

import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.training_data import Shape
from reticent.engine.store import TokenStore, open_tokens
from reticent.trainer import loop
from reticent.trainer.config import TrainConfig
from reticent.trainer.models import load_tokenizer, special_ids
from reticent.trainer.recipes import get_recipe
from reticent.trainer.windows import Windows, cut_windows

__all__ = [
    "OBJECTIVES",
    "Plan",
    "Way",
    "fresh_model",
    "our_config",
    "plan_of",
    "take_turns",
    "trainer_of",
    "window_rows",
]

OBJECTIVES = {"bert": "mlm", "gpt2": "clm"}
LEARNING_RATE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to train.

    Parameters
    ----------
    whole_words : bool
        Its collator masks whole words, of rows that are padded to the full length beforehand: it cannot pad offsets.
    rows : {"windows", "chunks"}
        What the Trainer reads: our windows, each of one document; or all documents laid end to end and cut, as its
        example scripts do, in which individuals see each other.
    clipping : "ghost", "hooks" or None
        DP-SGD with this way to clip; its epochs are Poisson samples, of as many documents on average.
    safe : bool
        No individual sees another.
    """

    name: str
    ours: bool = False
    objectives: tuple[str, ...] = ("mlm", "clm")
    rows: str = "windows"
    packing: bool = False
    by_length: bool = False
    whole_words: bool = False
    num_workers: int = 0
    compiled: bool = False
    clipping: str | None = None

    @property
    def safe(self) -> bool:
        return self.rows == "windows"

    def missing(self) -> str | None:
        """Why this way cannot be gone with what is installed here; None where it can."""
        has = set(TrainConfig.model_fields)
        wanted = {"packing": self.packing, "torch_compile": self.compiled}
        absent = [name for name, asked in wanted.items() if self.ours and asked and name not in has]
        if self.clipping:
            absent += [name for name in ("reticent.trainer.privacy", "opacus") if find_spec(name) is None]
        return f"there is no {' and no '.join(absent)} here" if absent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Common to all ways: the same tokens, initial weights, batch size, precision and number of epochs."""

    kind: str
    store: TokenStore
    tokenizer: PreTrainedTokenizerFast
    shape: Shape
    num_epochs: int
    device: str
    bf16: bool

    @property
    def objective(self) -> str:
        return OBJECTIVES[self.kind]

    @property
    def windows(self) -> Windows:
        special = special_ids(self.tokenizer, self.objective)
        return cut_windows(self.store, self.shape.window_length, special, pad_to_multiple_of=self.multiple)

    @property
    def multiple(self) -> int:
        """Widths of batches are multiples of this, for every way."""
        return 64 if self.device == "cuda" else 8


def plan_of(kind: str, folder: Path, shape: Shape, num_epochs: int) -> Plan:
    """Return the plan for a prepared folder on this machine."""
    store = open_tokens(folder / kind)
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    tokenizer = load_tokenizer(folder / kind / "tokenizer.json")
    return Plan(
        kind=kind, store=store, tokenizer=tokenizer, shape=shape, num_epochs=num_epochs, device=device, bf16=cuda
    )


def fresh_model(plan: Plan, *, dropout: float = 0.1) -> PreTrainedModel:
    """BERT or GPT-2 from its configuration, with the same random weights each time."""
    shape, size = plan.shape, len(plan.tokenizer)
    torch.manual_seed(0)
    if plan.kind == "bert":
        bert = BertConfig(
            vocab_size=size, hidden_size=shape.hidden_size, num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads, intermediate_size=4 * shape.hidden_size,
            max_position_embeddings=shape.window_length, pad_token_id=plan.tokenizer.pad_token_id,
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        )  # fmt: skip
        bert._attn_implementation = "sdpa"
        return BertForMaskedLM(bert)
    gpt2 = GPT2Config(
        vocab_size=size, n_embd=shape.hidden_size, n_layer=shape.num_layers, n_head=shape.num_heads,
        n_positions=shape.window_length, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
        bos_token_id=plan.tokenizer.bos_token_id, eos_token_id=plan.tokenizer.eos_token_id,
    )  # fmt: skip
    gpt2._attn_implementation = "sdpa"
    return GPT2LMHeadModel(gpt2)


# ------------------------------------------------------------------ turns


class Turns:
    """Lets one epoch pass each time the other side says so, and tells it what the epoch took."""

    def __init__(self, connection: Any, device: str):
        self.connection, self.device = connection, device
        self.tokens, self.before_bytes = 0, _peak_bytes("cpu")
        self.started = self.cpu_started = self.waited = 0.0

    def wait(self) -> None:
        self.connection.recv()
        self.started, self.cpu_started, self.waited = time.perf_counter(), time.process_time(), 0.0

    def end_epoch(self, *, last: bool) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
        seconds, cpu_seconds = time.perf_counter() - self.started, time.process_time() - self.cpu_started
        times = {"seconds": seconds, "cpu_seconds": cpu_seconds, "wait_seconds": self.waited}
        memory = {"peak_bytes": _peak_bytes(self.device)}
        if self.device == "cpu":
            memory["before_bytes"] = self.before_bytes
        if self.device == "cuda":  # the others need the memory
            torch.cuda.empty_cache()
        self.connection.send({"tokens": self.tokens, **times, **memory})
        if not last:
            self.wait()

    def timed(self, items: Generator[Any]) -> Iterator[Any]:
        """Yield the items; the time until each is there is time the loop waits for data."""
        with closing(items):
            while True:
                started = time.perf_counter()
                try:
                    item = next(items)
                except StopIteration:
                    return
                finally:
                    self.waited += time.perf_counter() - started
                yield item


def take_turns(connection: Any, way: Way, kind: str, folder: Path, shape: Shape, num_epochs: int) -> None:
    """Body of a process: train in turns, then send the losses and the peak memory; an error is sent by its name."""
    try:
        warnings.filterwarnings("ignore")
        plan = plan_of(kind, folder, shape, num_epochs)
        model = fresh_model(plan).to(plan.device)
        turns = Turns(connection, plan.device)
        connection.send({"ready": True})
        turns.wait()
        connection.send({"losses": (_train_ours if way.ours else _train_theirs)(plan, way, model, turns)})
    except Exception as error:
        connection.send({"error": f"{type(error).__name__}: {error}"})
        raise


def _peak_bytes(device: str) -> int:
    """Most memory that was in use: tensors on CUDA, the whole process elsewhere."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ------------------------------------------------------------------ ours


def our_config(plan: Plan, way: Way, **more: Any) -> TrainConfig:
    known = set(TrainConfig.model_fields)
    options = {"packing": way.packing, "torch_compile": way.compiled, **more}
    return TrainConfig(
        num_epochs=plan.num_epochs,
        checkpoint_epochs=(),
        window_length=plan.shape.window_length,
        batch_size=plan.shape.batch_size,
        learning_rate=LEARNING_RATE,
        device=plan.device,
        bf16="on" if plan.bf16 else "off",
        **{name: value for name, value in options.items() if name in known},
    )


def _train_ours(plan: Plan, way: Way, model: PreTrainedModel, turns: Turns) -> list[float]:
    """Train with our loop and return the loss of each epoch.

    Where it would save, an epoch is over: the Trainer saves nothing here, and so do we.
    """
    turns.tokens, read_ahead = plan.store.num_tokens, loop.prefetched
    seams: dict[str, Callable[..., Any]] = {
        "prefetched": lambda *arguments, **more: turns.timed(read_ahead(*arguments, **more)),
        "save_state": lambda *_: turns.end_epoch(last=False),
        "write_model": lambda *_, **__: turns.end_epoch(last=True),
    }
    before = {name: getattr(loop, name) for name in seams}
    tokenizer = str(plan.store.tokenizer_path)
    try:
        for name, seam in seams.items():
            setattr(loop, name, seam)
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as out:
            recipe, config = get_recipe(plan.objective), our_config(plan, way)
            more = {"privacy": _privacy(plan, way.clipping)} if way.clipping else {}
            result = loop.train(model, plan.store, recipe, config, out, tokenizer=tokenizer, **more)
    finally:
        for name, found in before.items():
            setattr(loop, name, found)
    return result.losses


def _privacy(plan: Plan, clipping: str) -> Any:
    from reticent.trainer.privacy import PrivacyConfig

    return PrivacyConfig(
        unit="record",
        noise_multiplier=1.0,
        clipping=clipping,  # type: ignore[arg-type]
        max_physical_batch_size=plan.shape.batch_size,
        seed=0,
    )


# ------------------------------------------------------------------ the Trainer of transformers


class Peer(Trainer):
    """The Trainer as it is, with its waits, losses and ends of epochs seen from outside."""

    turns: Turns | None = None
    batches: Any = None
    step_losses: list[torch.Tensor]

    def get_train_dataloader(self) -> DataLoader:
        if self.batches is None:
            return super().get_train_dataloader()
        return DataLoader(self.batches, batch_size=None, collate_fn=lambda batch: batch)

    def get_batch_samples(self, *arguments: Any) -> Any:
        started = time.perf_counter()
        found = super().get_batch_samples(*arguments)
        if self.turns:
            self.turns.waited += time.perf_counter() - started
        return found

    def compute_loss(self, *arguments: Any, **more: Any) -> Any:
        loss = super().compute_loss(*arguments, **more)
        self.step_losses.append(loss.detach())
        return loss


class _EndOfEpoch(TrainerCallback):
    def __init__(self, peer: Peer, turns: Turns):
        self.peer, self.turns, self.losses = peer, turns, []

    def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % (state.max_steps // int(arguments.num_train_epochs)) == 0:
            self.losses.append(torch.stack(self.peer.step_losses).mean().item())
            self.peer.step_losses = []
            self.turns.end_epoch(last=state.global_step == state.max_steps)


def trainer_of(plan: Plan, way: Way, model: PreTrainedModel, out: str, rows: list[dict[str, Any]]) -> Peer:
    """Return a Trainer with the collator it brings for the objective."""
    arguments = TrainingArguments(
        output_dir=out,
        num_train_epochs=plan.num_epochs,
        per_device_train_batch_size=plan.shape.batch_size,
        learning_rate=LEARNING_RATE,
        weight_decay=0.01,
        max_grad_norm=1.0,
        bf16=plan.bf16,
        use_cpu=plan.device == "cpu",
        torch_compile=way.compiled,
        train_sampling_strategy="group_by_length" if way.by_length else "random",
        dataloader_num_workers=way.num_workers,
        dataloader_persistent_workers=way.num_workers > 0,
        remove_unused_columns=False,  # it would drop special_tokens_mask, without which its collator is slower
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    collator = DataCollatorForLanguageModeling(
        plan.tokenizer,
        mlm=plan.objective == "mlm",
        whole_word_mask=way.whole_words,
        pad_to_multiple_of=plan.multiple,
    )
    peer = Peer(model, arguments, data_collator=collator, train_dataset=rows)  # type: ignore[arg-type]
    peer.remove_callback(PrinterCallback)
    peer.step_losses = []
    return peer


def _train_theirs(plan: Plan, way: Way, model: PreTrainedModel, turns: Turns) -> list[float]:
    rows, turns.tokens = window_rows(plan, way) if way.rows == "windows" else chunk_rows(plan)
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as out:
        peer = trainer_of(plan, way, model, out, rows)
        peer.turns = turns
        end = _EndOfEpoch(peer, turns)
        peer.add_callback(end)
        peer.train()
    return end.losses


def window_rows(plan: Plan, way: Way) -> tuple[list[dict[str, Any]], int]:
    """Our windows as the lists of integers that the Trainer's collator pads; and the tokens of documents in them."""
    windows = plan.windows
    special, store = windows.special, windows.store
    first = [] if special.prefix is None else [special.prefix]
    last = [] if special.suffix is None else [special.suffix]
    rows = []
    for start, length in zip(windows.starts.tolist(), windows.lengths.tolist(), strict=True):
        ids = [*first, *store.input_ids[start : start + length].tolist(), *last]
        row: dict[str, Any] = {"input_ids": ids}
        if plan.objective == "mlm":
            row["special_tokens_mask"] = [1, *[0] * length, 1]
        if way.whole_words:  # pieces of a word touch, words do not; its collator cannot pad the offsets
            at = np.arange(length) + store.word_ids[start : start + length]
            short = plan.shape.window_length - len(ids)
            row["offset_mapping"] = [(0, 0), *zip(at.tolist(), (at + 1).tolist(), strict=True), *[(0, 0)] * (1 + short)]
            row["attention_mask"] = [1] * len(ids) + [0] * short
            row["special_tokens_mask"] += [1] * short
            row["input_ids"] = ids + [special.pad] * short
        rows.append(row)
    return rows, store.num_tokens


def chunk_rows(plan: Plan) -> tuple[list[dict[str, Any]], int]:
    """All documents end to end, cut without regard to them, as transformers' example scripts do."""
    special, store, length = plan.windows.special, plan.store, plan.shape.window_length
    ids, is_special = [], []
    for start, end in zip(store.doc_offsets[:-1].tolist(), store.doc_offsets[1:].tolist(), strict=True):
        document = store.input_ids[start:end].tolist()
        if plan.objective == "mlm":
            document = [special.prefix, *document, special.suffix]
            is_special += [1, *[0] * (end - start), 1]
        ids += document
    cuts = range(0, len(ids) // length * length, length)
    if plan.objective == "clm":
        return [{"input_ids": ids[cut : cut + length]} for cut in cuts], len(cuts) * length
    rows = [
        {"input_ids": ids[cut : cut + length], "special_tokens_mask": is_special[cut : cut + length]} for cut in cuts
    ]
    return rows, sum(length - sum(row["special_tokens_mask"]) for row in rows)


def matmul_rate(device: str, bf16: bool, repeats: int = 5) -> float:
    """Floating-point operations a second of this device in a plain product of square matrices: what is attainable."""
    size, dtype = (8192, torch.bfloat16) if bf16 else (2048, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))

    def seconds(work: Callable[[], Any]) -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    seconds(lambda: a @ b)
    return 2 * size**3 / min(seconds(lambda: a @ b) for _ in range(repeats))
