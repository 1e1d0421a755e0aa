"""Is DP-SGD as weak as an untuned baseline makes it look? Naive and tuned settings at the same epsilon.

A small causal model is pre-trained on generated English notes, then fine-tuned on generated French ones: with the
recipe ``clm`` (no privacy), and with ``dp-clm`` at one epsilon per individual. Naive is what the plain recipe has: all
weights, batch 16, learning rate 1e-4 falling to 0, weight decay. Tuned is LoRA, a large expected batch,
a higher learning rate that does not fall, no decay. Between them stands the large batch with all
weights. Accuracy is that of the next token, on individuals whom no training saw; "base" is the model before any
fine-tuning.

    python -m studies.dp_baseline [--size toy|cpu]
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from benchmarks.record_io import STUDIES, markdown, range_text, spread, write_record
from benchmarks.runner import command
from reticent.engine.schema import HELDOUT
from reticent.engine.store import open_tokens
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.models import load_model, load_tokenizer, special_ids
from reticent.trainer.windows import cut_windows

#: Individuals, epochs of the plain recipe and of tuned DP, and seeds.
SIZES = {"toy": (40, 1, 1, (0,)), "cpu": (400, 8, 8, (0, 1, 2))}
EPSILON = 8.0
#: The settings to take for a DP baseline, as they stand in a job file under [train] and [train.dp].
LARGE: dict[str, Any] = {
    "learning_rate": 3e-3,
    "lr_scheduler_type": "constant_with_warmup",
    "weight_decay": 0.0,
}
LORA: dict[str, Any] = {"r": 16, "lora_alpha": 32, "target_modules": ["c_attn", "c_proj", "c_fc"]}
TUNED: dict[str, Any] = {**LARGE, "learning_rate": 1e-2, "lora": LORA}
SAMPLE_RATE = 0.5


def token_accuracy(run: Run, model: Path, tokens: str) -> float:
    """Share of next tokens of held-out individuals that a model predicts."""
    network = load_model(model, "clm").eval()
    store = open_tokens(run.folder / "tokens" / tokens / "audit")
    heldout = np.flatnonzero(run.individuals.mask(HELDOUT)[store.individual])
    windows = cut_windows(store.select(heldout), 128, special_ids(load_tokenizer(model), "clm"))
    right = total = 0
    with torch.no_grad():
        for numbers in windows.scoring_order(32):
            batch = windows.gather(numbers)
            input_ids = torch.from_numpy(batch.input_ids)
            hit = network(input_ids=input_ids).logits[:, :-1].argmax(-1) == input_ids[:, 1:]
            wanted = torch.from_numpy(batch.is_text[:, 1:])
            right, total = right + int((hit & wanted).sum()), total + int(wanted.sum())
    return right / total


def prepare(folder: Path, num_individuals: int, num_epochs: int, seed: int) -> dict[str, Any]:
    """Generate the notes and pre-train the base; returns the values of a job that fine-tunes it."""
    public, private = folder / "public", folder / "private"
    for place, language in ((public, "en"), (private, "fr")):
        size = SynthConfig(
            num_individuals=num_individuals,
            words_per_document=40,
            documents_per_individual=1.5,
            languages=(language,),
            seed=seed,
        )
        place.mkdir(parents=True)
        synthesize(place, size)
    foundation = {"kind": "gpt2", "text": str(public / "documents"), "vocab_size": 1000, "hidden_size": 64}
    values = {
        "seed": seed,
        "corpus": {"source": str(private / "documents")},
        "train": {"num_epochs": num_epochs, "window_length": 128, "batch_size": 16, "device": "cpu"},
    }
    base = {"name": "base", "foundation": foundation, "objective": "clm", "recipes": ["clm"]}
    run = Run(parse_job({**values, "out": str(folder / "foundation"), "model": [base]}))
    execute(run, "foundation")
    return {**values, "base": str(run.folder / "foundation" / "base" / "model")}


def fine_tune(values: dict[str, Any], out: Path, recipe: str, **train: Any) -> dict[str, Any]:
    """Fine-tune the base by one recipe; returns its accuracy, what it promises and what it cost."""
    values = dict(values)
    base = values.pop("base")
    model = {"name": "model", "base": base, "objective": "clm", "recipes": [recipe]}
    run = Run(parse_job({**values, "out": str(out), "train": {**values["train"], **train}, "model": [model]}))
    execute(run, "protect")
    began = time.process_time()
    execute(run, "train")
    seconds = time.process_time() - began
    folder = run.folder / "models/model" / recipe
    found: dict[str, Any] = {
        "accuracy": token_accuracy(run, max(folder.glob("epoch-*")), "model"),
        "base": token_accuracy(run, Path(base), "model"),
        "cpu_seconds": round(seconds, 1),
    }
    about = json.loads((folder / "ledger.json").read_text()).get("privacy")
    if about:
        found |= {name: about[name] for name in ("guarantee", "noise_multiplier", "sample_rate", "num_steps")}
    return found


def ways(num_epochs: int, many_epochs: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """The comparison: recipe and settings of each."""
    dp = {"target_epsilon": EPSILON, "unit": "individual", "max_documents": 4, "max_physical_batch_size": 64}
    large = {"num_epochs": many_epochs, "dp": {**dp, "sample_rate": SAMPLE_RATE}}
    return {
        "no privacy": ("clm", {"num_epochs": num_epochs}),
        "naive DP": ("dp-clm", {"num_epochs": num_epochs, "dp": dp}),
        "DP, large batch, all weights": ("dp-clm", {**LARGE, **large}),
        "tuned DP: large batch, LoRA": ("dp-clm", {**TUNED, **large}),
    }


def run(size: Annotated[str, SIZES] = "cpu") -> None:
    """Compare, print and write the record."""
    num_individuals, num_epochs, many_epochs, seeds = SIZES[size]
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as scratch:
            values = prepare(Path(scratch), num_individuals, num_epochs, seed)
            for number, (name, (recipe, settings)) in enumerate(ways(num_epochs, many_epochs).items()):
                found.setdefault(name, []).append(fine_tune(values, Path(scratch) / str(number), recipe, **settings))
    result: dict[str, Any] = {"individuals": num_individuals, "seeds": list(seeds), "epsilon": EPSILON, "ways": {}}
    result["base"] = spread([each["base"] for each in found["no privacy"]])
    for name, rows in found.items():
        settings = ways(num_epochs, many_epochs)[name][1]
        row = {key: value for key, value in rows[0].items() if key not in ("accuracy", "base", "cpu_seconds")}
        row |= {key: spread([each[key] for each in rows]) for key in ("accuracy", "cpu_seconds")}
        result["ways"][name] = {**row, "settings": settings}
    print(table(result))
    print(write_record("dp_baseline", result, size, STUDIES))


def table(result: dict[str, Any]) -> str:
    """Return a row a way of training."""
    rows = [["base, not fine-tuned", range_text(result["base"], 3), "", ""]]
    for name, row in result["ways"].items():
        promise, seconds = row.get("guarantee", "none"), f"{row['cpu_seconds']['median']:.0f}"
        rows.append([name, range_text(row["accuracy"], 3), promise, seconds])
    return markdown(["way", "next-token accuracy, held out", "promise", "CPU s"], rows)


if __name__ == "__main__":
    command(run)
