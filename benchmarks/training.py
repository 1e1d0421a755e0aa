"""How fast does our loop train, beside the Trainer of transformers with its own collators?

Both get the same tokens, the same initial weights, batch size, precision and optimiser. First the answer: our loop and
the Trainer, on the same batches without dropout, must report the same loss step by step. Then every way trains whole
epochs in turns, each in a process of its own; the first epoch warms up. Tokens are those of documents: neither padding
nor special tokens count. A ratio is taken within a round.

"Waits for data" is the share of an epoch in which the loop waits for its next batch; where the device is CUDA, which
works on meanwhile, the device waits less than that.

    python -m benchmarks.training [--size toy|cpu|gpu] [--prepared FOLDER] [--time-limit SECONDS]

Size gpu (BERT-base and GPT-2 small with random weights, 512 tokens, bfloat16) needs CUDA; ``--prepare FOLDER`` makes
its tokens where the Rust core and Polars are, ``--prepared FOLDER`` reads them where they are not: what is imported at
the top of this file needs neither these nor spaCy or Opacus.

Shapes: B windows a batch, T tokens a window.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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

from benchmarks.engine_workers import synth_notes
from benchmarks.record_io import DATA, markdown, range_text, spread, write_record
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.store import TokenStore, open_tokens
from reticent.trainer import loop
from reticent.trainer.config import TrainConfig
from reticent.trainer.labels import make_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.models import load_tokenizer, special_ids
from reticent.trainer.recipes import get_recipe
from reticent.trainer.windows import Windows, cut_windows

#: How far apart the losses of a step may be, as a share: in float32 on a CPU, and on a GPU.
TOLERANCE = {"cpu": 1e-5, "cuda": 2e-3}
#: Dense bfloat16 operations a second by the vendor's datasheet.
DATASHEET = {"NVIDIA H200": 989e12, "NVIDIA H100 80GB HBM3": 989e12, "NVIDIA A100-SXM4-80GB": 312e12}

# ------------------------------------------------------------------ the tokens

#: Words of the reports of MTSamples at the 5th, 15th, …, 95th percentile: a tenth of the notes has each mean length.
WORDS = (126, 199, 259, 315, 385, 450, 545, 647, 796, 1121)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Data and model of one size.

    ``vocab_size`` None is the published vocabulary (BERT cased, GPT-2); where it is not at hand, one of 30,000 is
    trained. At size cpu the vocabulary is small so that the head has the share of the work that it has in BERT-base.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    vocab_size: int | None
    window_length: int
    batch_size: int
    num_notes: int
    shorten: int
    rounds: int


SHAPES = {
    "toy": Shape(
        hidden_size=32, num_layers=1, num_heads=2, vocab_size=600, window_length=64, batch_size=4,
        num_notes=20, shorten=6, rounds=1,
    ),
    "cpu": Shape(
        hidden_size=128, num_layers=2, num_heads=2, vocab_size=2000, window_length=256, batch_size=8,
        num_notes=40, shorten=1, rounds=3,
    ),
    "gpu": Shape(
        hidden_size=768, num_layers=12, num_heads=12, vocab_size=None, window_length=512, batch_size=32,
        num_notes=480, shorten=1, rounds=3,
    ),
}  # fmt: skip


def prepare(folder: Path, shape: Shape) -> None:
    """Write ``folder/bert`` and ``folder/gpt2``, token stores of the same notes; stores that are there are kept."""
    from reticent.engine.corpus import open_corpus
    from reticent.engine.index import build_index
    from reticent.engine.split import SplitConfig, split_individuals
    from reticent.engine.tokens import write_tokens

    missing = [kind for kind in ("bert", "gpt2") if not (folder / kind / "tokenizer.json").is_file()]
    if not missing:
        return
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as scratch:
        pq.write_table(_notes(shape), Path(scratch) / "notes.parquet")
        corpus = open_corpus(Path(scratch) / "notes.parquet")
        individuals = split_individuals(corpus, SplitConfig(heldout=0.1))
        index = build_index(corpus, individuals)
        for kind in missing:
            (folder / kind).mkdir(parents=True, exist_ok=True)
            write_tokens(folder / kind, corpus, individuals, _tokenizer(kind, shape.vocab_size), index=index)


def _notes(shape: Shape) -> pa.Table:
    tenth = shape.num_notes // len(WORDS)
    return pa.concat_tables(
        synth_notes(range(number * tenth, (number + 1) * tenth), max(20, words // shape.shorten))
        for number, words in enumerate(WORDS)
    )


def _tokenizer(kind: str, vocab_size: int | None) -> str:
    from reticent import _rust
    from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json
    from reticent.trainer.foundation import train_tokenizer

    published = DATA / "tokenizer_vocabs" / {"bert": "bert-base-cased", "gpt2": "gpt2"}[kind]
    if vocab_size is None and published.is_dir():
        if kind == "bert":
            return wordpiece_tokenizer_json(published / "vocab.txt")
        return bytelevel_tokenizer_json(published / "vocab.json", published / "merges.txt")
    public = pa.record_batch(
        _rust.synth_public(seed=0, first_document=0, num_documents=500, languages=["en"], words_per_document=200)
    )
    kinds = {"bert": "wordpiece", "gpt2": "bytelevel"}
    return train_tokenizer([public.column("text").to_pylist()], kinds[kind], vocab_size or 30_000)  # type: ignore[arg-type]


# ------------------------------------------------------------------ the ways

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
        return "there is no opacus here" if self.clipping and find_spec("opacus") is None else None


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
        model = fresh_model(plan).to(plan.device)  # type: ignore[arg-type]  # transformers' wrapper hides the string
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
    return TrainConfig(
        num_epochs=plan.num_epochs,
        checkpoint_epochs=(),
        window_length=plan.shape.window_length,
        batch_size=plan.shape.batch_size,
        learning_rate=LEARNING_RATE,
        end_of_text=False,  # as the trainers that it is compared with
        device=plan.device,
        bf16="on" if plan.bf16 else "off",
        packing=way.packing,
        torch_compile=way.compiled,
        save_minutes=0,
        **more,
    )


def _train_ours(plan: Plan, way: Way, model: PreTrainedModel, turns: Turns) -> list[float]:
    """Train with our loop and return the loss of each epoch. The Trainer saves nothing here, and so do we."""
    turns.tokens, read_ahead, end_epoch = plan.store.num_tokens, loop.prefetched, loop._end_epoch

    def end(run: Any, *arguments: Any) -> bool:
        is_kept = end_epoch(run, *arguments)
        turns.end_epoch(last=run.state.epoch == run.config.num_epochs)
        return is_kept

    seams: dict[str, Callable[..., Any]] = {
        "prefetched": lambda *arguments, **more: turns.timed(read_ahead(*arguments, **more)),
        "write_model": lambda *_, **__: None,
        "_end_epoch": end,
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
        self.step_losses.append(loss.detach())  # type: ignore[union-attr]  # the outputs were not asked for
        return loss


class _EndOfEpoch(TrainerCallback):
    def __init__(self, peer: Peer, turns: Turns):
        self.peer, self.turns, self.losses = peer, turns, list[float]()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % (state.max_steps // int(args.num_train_epochs)) == 0:
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


# ------------------------------------------------------------------ do both do the same, and what does it cost

STEPS = 8


def same_losses(plan: Plan) -> dict[str, Any]:
    """Train both on the same batches, in float32 without dropout; return the mean loss of each step.

    CLM: the Trainer's collator makes the batches and labels from our windows, in our order. MLM: masks are drawn
    afresh by each side, so the Trainer gets our batches with the masks of our kernel.
    """
    windows = plan.windows
    count = plan.shape.batch_size * STEPS
    documents = int(np.searchsorted(np.cumsum(np.bincount(windows.documents)), count)) + 1
    plan = replace(plan, store=plan.store.select(np.arange(documents)), num_epochs=1, bf16=False)
    way = Way(name="check", ours=True)
    config = our_config(plan, way, logging_steps=1)  # on CUDA losses are read only where one is logged
    recipe = get_recipe(plan.objective)
    ours: list[float] = []
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as out:
        loop.train(
            fresh_model(plan, dropout=0.0),
            plan.store,
            recipe,
            config,
            out,
            tokenizer=str(plan.store.tokenizer_path),
            progress=lambda at: ours.append(at["loss"]),
        )
    windows = plan.windows
    order = windows.epoch_order(config.batch_size, seed=config.seed, epoch=1)
    rows, _ = window_rows(plan, way)
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as out:
        peer = trainer_of(plan, way, fresh_model(plan, dropout=0.0), out, rows)
        if plan.objective == "clm":
            peer.batches = [peer.data_collator([rows[number] for number in numbers]) for numbers in order]
        else:
            options: dict[str, Any] = {"mask_id": windows.special.mask, "mask_share": config.mask_share}
            for numbers in order:
                batch = windows.gather(numbers)
                targets = make_targets(batch, recipe, Ledger(), seed=config.seed, epoch=1, **options)
                made = {
                    "input_ids": torch.from_numpy(targets.input_ids),
                    "labels": torch.from_numpy(targets.labels),
                    "attention_mask": torch.from_numpy(batch.attention.astype(np.int64)),
                }
                peer.batches = [*(peer.batches or []), made]
        peer.train()
        theirs = [float(loss) for loss in peer.step_losses]
    what = "the Trainer's collator on our windows" if plan.objective == "clm" else "our batches, our masks"
    return {"what": what, "device": plan.device, "ours": ours, "Trainer": theirs}


def targets_alone(plan: Plan, repeats: int = 3) -> dict[str, Any]:
    """Tokens a second (those of documents, one thread) that become batches with labels, by us and by its collators."""
    torch.set_num_threads(1)
    windows, recipe = plan.windows, get_recipe(plan.objective)
    config = our_config(plan, Way(name="", ours=True))
    order = windows.epoch_order(config.batch_size, seed=0, epoch=1)[:16]
    tokens = int(sum(windows.lengths[numbers].sum() for numbers in order))
    ledger = Ledger()

    def ours() -> None:
        for numbers in order:
            make_targets(
                windows.gather(numbers), recipe, ledger, mask_id=windows.special.mask, mask_share=config.mask_share,
                seed=0, epoch=1,
            )  # fmt: skip

    works: dict[str, Any] = {"ours": ours}
    shares: dict[str, list[float]] = {}
    ways = [Way(name="collator"), Way(name="collator, whole words", whole_words=True)]
    for way in ways[: 2 if plan.objective == "mlm" else 1]:
        rows, _ = window_rows(plan, way)
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as out:
            collator = trainer_of(plan, way, fresh_model(plan), out, rows).data_collator
        shares[way.name] = []

        def theirs(
            collator: Any = collator, rows: list[dict[str, Any]] = rows, seen: list[float] = shares[way.name]
        ) -> None:
            labels = [collator([rows[number] for number in numbers])["labels"] for numbers in order]
            seen.append(sum(int((one != IGNORE_INDEX).sum()) for one in labels) / tokens)

        works[way.name] = theirs
    rates: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            started = time.process_time()
            work()
            if turn:  # the first compiles
                rates[name].append(tokens / (time.process_time() - started))
    share = {"ours": ledger.targets / (tokens * (repeats + 1)), **{name: seen[-1] for name, seen in shares.items()}}
    expected = 0.15 if plan.objective == "mlm" else 1.0
    for name, found in share.items():
        assert abs(found - expected) < 0.05 * max(1.0, 10 * (len(order) < 8)), f"{name}: {found:.1%} are targets"
    return {
        name: {
            "tokens_per_cpu_second": float(np.median(found)),
            "low": min(found),
            "high": max(found),
            "targets": share[name],
        }
        for name, found in rates.items()
    }


def rate(plan: Plan) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if plan.device == "cuda" else "cpu"
    return {"device": name, "matmul_flops_per_second": matmul_rate(plan.device, plan.bf16)}


TASKS: dict[str, Callable[[Plan], dict[str, Any]]] = {"check": same_losses, "targets": targets_alone, "rate": rate}


# ------------------------------------------------------------------ the comparison

WAYS = (
    Way(name="Trainer"),
    Way(name="Trainer, group_by_length", by_length=True),
    Way(name="Trainer, whole words, padded to the full length", whole_words=True, objectives=("mlm",)),
    Way(name="Trainer, documents end to end", rows="chunks"),
    Way(name="ours, by length", ours=True),
    Way(name="ours, packed", ours=True, packing=True),
    Way(name="ours, DP-SGD, ghost clipping", ours=True, clipping="ghost"),
    Way(name="ours, DP-SGD, hooks", ours=True, clipping="hooks"),
)
GPU_WAYS = (
    Way(name="Trainer, group_by_length, compiled, 4 workers", by_length=True, compiled=True, num_workers=4),
    Way(name="Trainer, documents end to end, compiled, 4 workers", rows="chunks", compiled=True, num_workers=4),
    Way(name="ours, by length, compiled", ours=True, compiled=True),
    Way(name="ours, packed, compiled", ours=True, packing=True, compiled=True),
)


def flops_per_token(shape: Shape, vocab_size: int, kind: str, mean_window: float) -> float:
    """Floating-point operations a token of a training step needs: six a weight and token in the body, attention over
    the token's own window (half of it where the model is causal), and the head where a token is a target (15 % of them
    for BERT). The same number for every way, so padding and logits nobody asks for are not counted as work.

    By hand for BERT-base and 512 tokens: 85 M weights in the body, 10 % more for attention, 15 % of the head.

    >>> body, attention, head = 6 * 84_934_656, 12 * 12 * 768 * 512, 0.15 * 6 * 768 * (28_996 + 768)
    >>> flops_per_token(SHAPES["gpu"], 28_996, "bert", 512.0) == body + attention + head
    True
    >>> flops_per_token(SHAPES["gpu"], 50_257, "gpt2", 512.0) == body + attention / 2 + 6 * 768 * 50_257
    True
    """
    hidden, layers = shape.hidden_size, shape.num_layers
    body = 6 * 12 * hidden**2 * layers
    attention = 12 * layers * hidden * mean_window
    if kind == "bert":
        return body + attention + 0.15 * 6 * hidden * (vocab_size + hidden)
    return body + attention / 2 + 6 * hidden * vocab_size


def measure(
    kind: str, folder: Path, shape: Shape, ways: tuple[Way, ...], deadline: float, device: str
) -> dict[str, dict[str, Any]]:
    """Let every way train in turns; returns its speeds, waits, memory and losses."""
    chosen = [way for way in ways if OBJECTIVES[kind] in way.objectives]
    rows: dict[str, dict[str, Any]] = {way.name: {"safe": way.safe} for way in chosen}
    # A fork server imports once; but what it imports may have looked for CUDA, which no fork can use after that.
    context: Any = multiprocessing.get_context("spawn" if device == "cuda" else "forkserver")
    if device != "cuda":
        context.set_forkserver_preload(["benchmarks.training"])
    lines, processes = {}, {}
    for way in chosen:
        if why := way.missing():
            rows[way.name]["error"] = why
            continue
        lines[way.name], there = context.Pipe()
        arguments = (there, way, kind, folder, shape, 1 + shape.rounds)
        processes[way.name] = context.Process(target=take_turns, args=arguments, daemon=not way.num_workers)
        processes[way.name].start()
        there.close()
    epochs: dict[str, list[dict[str, float]]] = {name: [] for name in lines}
    for name in list(lines):
        _heard(lines, rows, name)
    compiled = [way.name for way in chosen if way.compiled]
    for turn in range(1 + shape.rounds):
        if time.monotonic() > deadline:
            break
        early = [name for name in compiled if name in lines] if turn == 0 else []
        for name in early:  # compiling takes a minute of one core each, and no time is taken yet
            _go(lines[name])
        for name in early + [name for name in lines if name not in early]:
            if name not in early:
                _go(lines[name])
            if epoch := _heard(lines, rows, name):
                epochs[name].append(epoch)
            if turn == shape.rounds and name in lines and (final := _heard(lines, rows, name)):
                rows[name] |= final
    for process in processes.values():
        process.terminate()
        process.join()
    for name, found in epochs.items():
        if "error" not in rows[name] and len(found) > 1:
            tokens = found[0]["tokens"]
            rows[name] |= {key: found[-1][key] for key in ("tokens", "peak_bytes", "before_bytes") if key in found[-1]}
            rows[name]["first_epoch_seconds"] = found[0]["seconds"]
            rows[name]["tokens_per_second"] = [tokens / epoch["seconds"] for epoch in found[1:]]
            rows[name]["tokens_per_cpu_second"] = [tokens / epoch["cpu_seconds"] for epoch in found[1:]]
            rows[name]["wait_share"] = spread([epoch["wait_seconds"] / epoch["seconds"] for epoch in found[1:]])
    return rows


def _go(line: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # that it died is heard next
        line.send("go")


def _heard(lines: dict[str, Any], rows: dict[str, dict[str, Any]], name: str) -> dict[str, Any] | None:
    """Answer of a process; one that fails or dies is left out afterwards, and the others go on."""
    try:
        said = lines[name].recv()
    except (EOFError, ConnectionError):
        said = {"error": "the process died"}
    if "error" in said:
        rows[name]["error"] = said["error"]
        del lines[name]
        return None
    return said


def ratios(rows: dict[str, dict[str, Any]], rate: str) -> dict[str, dict[str, Any]]:
    """Ours over each way of the Trainer, within rounds.

    >>> ratios({"Trainer": {"t": [1.0, 4.0]}, "ours": {"t": [2.0, 4.0]}, "ours, packed": {"error": "no"}}, "t")
    {'ours': {'Trainer': {'median': 1.5, 'low': 1.0, 'high': 2.0, 'n': 2}}}
    """
    done = {name: row[rate] for name, row in rows.items() if rate in row}
    return {
        ours: {
            peer: spread([a / b for a, b in zip(done[ours], done[peer], strict=True)])
            for peer in done
            if peer.startswith("Trainer")
        }
        for ours in done
        if ours.startswith("ours")
    }


def ask(kind: str, folder: Path, shape: Shape) -> dict[str, Any]:
    """Return the answers of `TASKS`, of a process of its own; raise where the losses of a step differ."""
    (size,) = (name for name, other in SHAPES.items() if other == shape)
    command = [sys.executable, "-m", "benchmarks.training", "--answer", "--kinds", kind]
    command += ["--prepared", str(folder), "--size", size]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    losses = found["check"]
    ours, theirs = np.array(losses["ours"]), np.array(losses["Trainer"])
    assert len(ours) == len(theirs) > 1, f"{kind}: {len(ours)} steps of ours, {len(theirs)} of the Trainer"
    difference = float(np.abs(ours / theirs - 1).max())
    assert difference < TOLERANCE[losses["device"]], f"{kind}: losses differ by {difference:.1e} of their size"
    checked = {"steps": len(ours), "greatest_difference": difference, "losses": losses["ours"]}
    return {**found, "check": {"what": losses["what"], **checked}}


def prepare_apart(folder: Path, size: str) -> None:
    """Make the token stores in a process of its own: what forks later must have started no thread."""
    command = [sys.executable, "-m", "benchmarks.training", "--size", size, "--prepare", str(folder)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[1])


def run(
    size: str, *, prepared: Path | None = None, time_limit: float = float("inf"), kinds: Sequence[str] = ()
) -> dict[str, Any]:
    """Check, measure, print and write the record of these kinds of models, all by default; returns it."""
    shape, deadline = SHAPES[size], time.monotonic() + time_limit
    result: dict[str, Any] = {"goal": "P11: 1.5 first, 2.2 goal", "models": {}}
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as scratch:
        folder = prepared or Path(scratch)
        if prepared is None:
            prepare_apart(folder, size)
        for kind in kinds or OBJECTIVES:  # the first is the goal's
            if result["models"] and time.monotonic() > deadline:
                break
            result["models"][kind] = _one(kind, folder, shape, size, deadline)
            print(tables(kind, result["models"][kind]))
            record = write_record(
                "training" if size != "gpu" else "training_gpu", result, size
            )  # what is there, if stopped
    print(record)
    return result


def _one(kind: str, folder: Path, shape: Shape, size: str, deadline: float) -> dict[str, Any]:
    answers, plan = ask(kind, folder, shape), plan_of(kind, folder, shape, 1)
    windows = plan.windows
    lengths = np.diff(plan.store.doc_offsets)
    flops = flops_per_token(shape, len(plan.tokenizer), kind, float((windows.lengths**2).sum() / windows.lengths.sum()))
    found = {
        "documents": len(lengths),
        "tokens": int(lengths.sum()),
        "document_tokens": {f"p{q}": int(np.percentile(lengths, q)) for q in (5, 25, 50, 75, 95)},
        "windows": len(windows),
        "batch_size": shape.batch_size,
        "window_length": shape.window_length,
        "vocabulary": len(plan.tokenizer),
        "precision": "bfloat16" if plan.bf16 else "float32",
        "check": answers["check"],
        "targets_alone": answers["targets"],
    }
    ways: tuple[Way, ...] = WAYS
    if plan.device == "cuda":  # its whole words are made on the CPU and cost more than the step: see targets_alone
        ways = (*(way for way in WAYS if not way.whole_words), *GPU_WAYS)
    elif size == "toy" and kind != next(iter(OBJECTIVES)):  # the first kind went all ways
        ways = tuple(way for way in WAYS if way.name in ("Trainer", "ours, by length", "ours, packed"))
    rows = measure(kind, folder, shape, ways, deadline, plan.device)
    if size == "toy":  # nobody reads its table
        failed = [f"{way.name}: {rows[way.name]['error']}" for way in ways if "error" in rows.get(way.name, {})
                  and not way.missing()]  # fmt: skip
        assert not failed, "\n".join(failed)
    found |= answers["rate"]
    peak = found["matmul_flops_per_second"]
    for row in rows.values():
        if "tokens_per_second" in row:
            speed = flops * median(row["tokens_per_second"])
            row["share_of_matmul"] = speed / peak
            if datasheet := DATASHEET.get(found["device"]):
                row["share_of_datasheet_peak"] = speed / datasheet
    found |= {"flops_per_token": flops, "ratios": ratios(rows, "tokens_per_second"), "ways": rows}
    if plan.device == "cpu":  # other programs on the machine take wall time, and no processor time
        found["ratios_of_cpu_seconds"] = ratios(rows, "tokens_per_cpu_second")
    for row in rows.values():
        for rate in ("tokens_per_second", "tokens_per_cpu_second"):
            if rate in row:
                row[rate] = spread(row[rate])
    return found


def tables(kind: str, found: dict[str, Any]) -> str:
    """Return what was measured of one family: a row a way, and the ratios of ours to each peer."""
    rows = []
    for name, row in found["ways"].items():
        if "tokens_per_second" not in row:
            rows.append([name, row.get("error", "no time was left"), *[""] * 5])
            continue
        memory = (row["peak_bytes"] - row.get("before_bytes", 0)) / 2**20
        rows.append(
            [
                name,
                range_text(row["tokens_per_second"], 0),
                f"{row['wait_share']['median']:.1%}",
                f"{row['share_of_matmul']:.0%}",
                f"{memory:,.0f}",
                f"{row['losses'][-1]:.3f}" if "losses" in row else "-",
                "yes" if row["safe"] else "no",
            ]
        )
    heads = [kind, "tokens/s", "waits for data", "of matmul speed", "peak MiB", "last loss", "individuals apart"]
    steps, difference = (found["check"][key] for key in ("steps", "greatest_difference"))
    parts = [markdown(heads, rows), f"{kind}: losses of {steps} steps agree to {difference:.1e}.\n"]
    for key, what in (("ratios", "times as fast as"), ("ratios_of_cpu_seconds", "the same in CPU seconds")):
        if ratios := found.get(key):
            peers = list(dict.fromkeys(peer for of_peers in ratios.values() for peer in of_peers))
            rows = [
                [ours, *(range_text(of_peers[peer]) if peer in of_peers else "-" for peer in peers)]
                for ours, of_peers in ratios.items()
            ]
            parts.append(markdown([what, *peers], rows))
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SHAPES), default="cpu")
    parser.add_argument("--prepare", type=Path, help="only write the token stores into this folder")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--prepared", type=Path, help="read the token stores of this folder")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no round begins")
    parser.add_argument("--kinds", nargs="+", choices=list(OBJECTIVES), default=(), help="default: all")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(arguments.prepare, SHAPES[arguments.size])
        return
    if arguments.answer:
        plan = plan_of(arguments.kinds[0], arguments.prepared, SHAPES[arguments.size], 1)
        print(json.dumps({task: answer(plan) for task, answer in TASKS.items()}))
        return
    run(arguments.size, prepared=arguments.prepared, time_limit=arguments.time_limit, kinds=arguments.kinds)


if __name__ == "__main__":
    main()
