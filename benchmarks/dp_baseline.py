"""Is DP-SGD as weak as an untuned baseline makes it look? Naive and tuned settings at the same epsilon.

    python -m benchmarks.dp_baseline [--individuals N] [--epsilon E] [--seeds 3]

A small causal model is pre-trained on generated English notes, then fine-tuned on generated French ones: with the
recipe ``clm`` (no privacy), and with ``dp-clm`` twice, per individual. Naive is what the plain recipe has (all weights,
batch 16, learning rate 1e-4 falling to 0, weight decay); tuned is LoRA, a large expected batch, a higher learning rate
that does not fall, no decay. Prints accuracy of the next token on individuals who were not trained on.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reticent.config import parse_job
from reticent.engine.schema import HELDOUT
from reticent.engine.store import open_tokens
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job import Run
from reticent.trainer.models import load_model, load_tokenizer, special_ids
from reticent.trainer.windows import cut_windows

#: The settings to take for a DP baseline; as they stand in a job file.
TUNED: dict[str, Any] = {
    "learning_rate": 1e-2,
    "lr_scheduler_type": "constant_with_warmup",
    "weight_decay": 0.0,
    "lora": {"r": 16, "lora_alpha": 32, "target_modules": ["c_attn", "c_proj", "c_fc"]},
}


def token_accuracy(run: Run, model: str, recipe: str, epochs: int) -> float:
    """Share of next tokens of held-out individuals that the last checkpoint predicts."""
    folder = run.folder / "models" / model / recipe / f"epoch-{epochs:04d}"
    network = load_model(folder, "clm").eval()
    store = open_tokens(run.folder / "tokens" / model / "audit")
    heldout = np.flatnonzero(run.individuals.mask(HELDOUT)[store.individual])
    windows = cut_windows(store.select(heldout), 128, special_ids(load_tokenizer(folder), "clm"))
    right = total = 0
    with torch.no_grad():
        for numbers in windows.scoring_order(32):
            batch = windows.gather(numbers)
            input_ids = torch.from_numpy(batch.input_ids)
            hit = network(input_ids=input_ids).logits[:, :-1].argmax(-1) == input_ids[:, 1:]
            wanted = torch.from_numpy(batch.is_text[:, 1:])
            right, total = right + int((hit & wanted).sum()), total + int(wanted.sum())
    return right / total


def measure(folder: Path, num_individuals: int, epsilon: float, epochs: int, seed: int) -> dict[str, Any]:
    """Train all three and return their accuracies and what the private ones promise."""
    public, private = folder / "public", folder / "private"
    for place, language in ((public, "en"), (private, "fr")):
        size = SynthConfig(num_individuals=num_individuals, words_per_document=60, languages=(language,), seed=seed)
        place.mkdir()
        synthesize(place, size)
    foundation = {"kind": "gpt2", "text": str(public / "documents"), "vocab_size": 1000, "hidden_size": 64}
    common = {"foundation": foundation, "objective": "clm"}
    naive = {"target_epsilon": epsilon, "unit": "individual", "max_documents": 4, "max_physical_batch_size": 64}
    large = {**naive, "sample_rate": 0.25}
    job = parse_job(
        {
            "out": str(folder / "run"),
            "seed": seed,
            "corpus": {"source": str(private / "documents")},
            "train": {"num_epochs": epochs, "window_length": 128, "batch_size": 16, "dp": naive, "device": "cpu"},
            "model": [
                {**common, "name": "naive", "recipes": ["clm", "dp-clm"]},
                {**common, "name": "tuned", "recipes": ["dp-clm"], "train": {**TUNED, "dp": large}},
            ],
        }
    )
    run = Run(job)
    run.execute("train")
    result: dict[str, Any] = {"seed": seed}
    for name, model, recipe in (("plain", "naive", "clm"), ("naive", "naive", "dp-clm"), ("tuned", "tuned", "dp-clm")):
        result[name] = round(token_accuracy(run, model, recipe, epochs), 4)
        if recipe == "dp-clm":
            ledger = json.loads((run.folder / "models" / model / recipe / "ledger.json").read_text())
            result[f"{name}_guarantee"] = ledger["privacy"]["guarantee"]
    return result


def main() -> None:
    """Print one line of JSON for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--individuals", type=int, default=400)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            print(
                json.dumps(measure(Path(folder), options.individuals, options.epsilon, options.epochs, seed)),
                flush=True,
            )


if __name__ == "__main__":
    main()
