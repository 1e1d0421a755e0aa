"""What stands behind the training benchmark: do both loops do the same, and what do targets and matrix products cost?

Run by :mod:`benchmarks.training`, each task in a process of its own; the answer is one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training_data import SHAPES
from benchmarks.training_ways import Plan, Way, fresh_model, matmul_rate, our_config, plan_of, trainer_of, window_rows
from reticent.engine.schema import IGNORE_INDEX
from reticent.trainer.labels import make_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.loop import train
from reticent.trainer.recipes import get_recipe

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
        train(
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
    return {"what": what, "ours": ours, "Trainer": theirs}


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


TASKS = {"check": same_losses, "targets": targets_alone, "rate": rate}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("kind")
    parser.add_argument("folder", type=Path)
    parser.add_argument("size", choices=list(SHAPES))
    arguments = parser.parse_args()
    plan = plan_of(arguments.kind, arguments.folder, SHAPES[arguments.size], 1)
    print(json.dumps(TASKS[arguments.task](plan)))
