"""What does the output guard cost, and what does it miss or invent?

The index is built from generated notes; every copy of 50 characters planted elsewhere must be found before a time is
shown. Then a small GPT-2 with random weights generates the same tokens plain and guarded, in turns, on one thread: the
difference in processor time is the guard's. Random text, and copies that are too short, tell how often it errs.

    python -m benchmarks.guard [--individuals 20000] [--rounds 5]
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from benchmarks.engine_workers import synth_notes
from benchmarks.record_io import markdown, spread, write_record
from benchmarks.runner import command
from reticent.engine.corpus import open_corpus
from reticent.engine.detect.rules import RulesDetector
from reticent.engine.verbatim import build_verbatim
from reticent.ext.guard.model import _Complete
from reticent.guard import Guard, GuardedModel
from reticent.trainer.foundation import new_model, train_tokenizer

LENGTH, BATCH, NUM_TOKENS = 50, 4, 200


def notes(seed: int, num_individuals: int) -> pa.Table:
    """Generated documents, with a vocabulary as rich as a real one's."""
    return synth_notes(range(num_individuals), 150, seed=seed, languages=("en", "fr"), documents_per_individual=2.5)


def planted(texts: list[str], length: int, seed: int = 0) -> list[str]:
    """Stretches of so many characters (as compared) of random texts, between characters that no text has."""
    rng = random.Random(seed)
    found = []
    for text in texts:
        text = " ".join(text.split())
        if len(text) > length:
            at = rng.randrange(len(text) - length)
            found.append("\u2603" + text[at : at + length].strip() + "\u2603")
    return [text for text in found if len(text) == length + 2]


def share_found(index: Any, texts: list[str]) -> float:
    rows = pa.record_batch(index.find(pa.array(texts, pa.large_string())))
    return len(pc.unique(rows.column("document"))) / len(texts)


def measure_index(source: Path, table: pa.Table, rounds: int) -> tuple[Any, dict[str, Any]]:
    """Build rounds times; what is found is checked first."""
    num_bytes = pc.sum(pc.binary_length(table.column("text"))).as_py()
    corpus = open_corpus(source)
    corpus.scan()
    seconds = []
    for _ in range(rounds):
        started = time.process_time()
        index = build_verbatim(corpus, length=LENGTH)
        seconds.append(time.process_time() - started)
    texts = table.column("text").to_pylist()
    assert share_found(index, planted(texts, LENGTH)) == 1.0, "a planted copy was missed"
    others = notes(1, 1000).column("text")
    scanned = pc.sum(pc.binary_length(others)).as_py()
    started = time.process_time()
    index.find(others.combine_chunks(), num_threads=1)
    scan_seconds = time.process_time() - started
    unrelated = ["".join(random.Random(i).choices("abcdefghij klmnopqrstuvwxyz", k=500)) for i in range(2000)]
    return index, {
        "text_bytes": num_bytes,
        "index_bytes": index.num_bytes,
        "bytes_per_byte": index.num_bytes / num_bytes,
        "build_mb_per_cpu_second": spread([num_bytes / 1e6 / s for s in seconds]),
        "scan_mb_per_cpu_second": scanned / 1e6 / scan_seconds,
        "filter_error": index.error,
        "unrelated_texts_blocked": share_found(index, unrelated),
        "copies_of_49_blocked": share_found(index, planted(texts, LENGTH - 1)),
        "copies_of_45_blocked": share_found(index, planted(texts, LENGTH - 5)),
    }


def replay(guarded: GuardedModel, texts: list[str], rounds: int) -> list[float]:
    """Processor microseconds a token of the guard alone, over tokens of known words in an unknown order."""
    words = " ".join(texts[:200]).split()
    random.Random(0).shuffle(words)
    ids = guarded.tokenizer(" ".join(words)).input_ids[: BATCH * NUM_TOKENS]
    rows, found = torch.tensor(ids).reshape(BATCH, NUM_TOKENS), []
    for _ in range(rounds + 1):
        criterion = _Complete(guarded, 0)
        started = time.process_time()
        ended = [criterion(rows[:, :length], None) for length in range(1, NUM_TOKENS + 1)][-1]
        found.append((time.process_time() - started) / len(ids) * 1e6)
        assert not ended.any(), "a text that holds no match was ended"
    return found[1:]  # the first warms up


def measure_tokens(index: Any, texts: list[str], hidden_size: int, rounds: int) -> dict[str, Any]:
    """Microseconds a token, plain and guarded in turns, of the same texts."""
    torch.set_num_threads(1)
    tokenizer_json = train_tokenizer([texts[:500]], "bytelevel", 2000)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(tokenizer_json))
    model = new_model(
        "gpt2", tokenizer_json, hidden_size=hidden_size, num_layers=4, num_heads=4, max_length=NUM_TOKENS + 8, seed=0
    ).eval()
    prompts = torch.tensor([[7, 8, 9]] * BATCH)
    options: dict[str, Any] = {
        "attention_mask": torch.ones_like(prompts),
        "min_new_tokens": NUM_TOKENS,
        "max_new_tokens": NUM_TOKENS,
        "do_sample": True,
        "pad_token_id": 0,
    }
    verbatim = GuardedModel(model, tokenizer, Guard(index))
    both = GuardedModel(model, tokenizer, Guard(index, [RulesDetector(num_threads=1)]))

    def plain() -> list[str]:
        output = model.generate(prompts, **options)
        return [verbatim._decode(row[3:].tolist()) for row in output]

    ways: dict[str, Any] = {
        "plain": plain,
        "guarded": lambda: [text.text for text in verbatim.generate(prompts, **options)],
        "guarded, with rules": lambda: both.generate(prompts, **options),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    answers: dict[str, Any] = {}
    for turn in range(rounds + 1):
        for name, generate in ways.items():
            torch.manual_seed(turn)
            started = time.process_time()
            answers[name] = generate()
            if turn:  # the first warms up
                seconds[name].append(time.process_time() - started)
        assert answers["plain"] == answers["guarded"], "the guard changed text that holds no match"
    per_token = {name: [s / (BATCH * NUM_TOKENS) * 1e6 for s in times] for name, times in seconds.items()}
    added = {
        f"{name}, added": spread(list(np.subtract(times, per_token["plain"])))
        for name, times in per_token.items()
        if name != "plain"
    }
    per_token["guard alone, tokens replayed"] = replay(verbatim, texts, rounds)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "batch": BATCH,
        "tokens": NUM_TOKENS,
        "cpu_microseconds_per_token": {name: spread(times) for name, times in per_token.items()} | added,
    }


def run(size: Annotated[str, ("toy", "cpu")] = "cpu", individuals: int = 20_000, rounds: int = 5) -> None:
    """Measure, print and write the record."""
    individuals, rounds = (100, 1) if size == "toy" else (individuals, rounds)
    table = notes(0, individuals)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "documents.parquet"
        pq.write_table(table, source, row_group_size=1000)
        index, found = measure_index(source, table, rounds)
    texts = table.column("text").to_pylist()
    found |= measure_tokens(index, texts, 32 if size == "toy" else 256, rounds)
    rows = [
        [name, f"{value['median']:.1f}", f"{value['low']:.1f} to {value['high']:.1f}"]
        for name, value in found["cpu_microseconds_per_token"].items()
    ]
    print(markdown(["generation", "CPU µs a token", "range"], rows))
    for name, value in found.items():
        if isinstance(value, int | float):
            print(f"{name}: {value:,.4g}")
    print(f"build: {found['build_mb_per_cpu_second']['median']:.0f} MB per CPU second")
    print(write_record("guard", found, size))


if __name__ == "__main__":
    command(run)
