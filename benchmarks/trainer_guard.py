"""What does the guard of other trainers cost a step?

The Trainer of transformers trains an epoch of the same protected windows, from the same weights, with the guard and
without it, in turns; the first turn of each warms up. First the answer: both report the same losses to the last bit,
and the guard saw every batch. A ratio is taken within a round, and of processor seconds too, which other programs on
the machine do not take.

    python -m benchmarks.trainer_guard [--size toy|cpu] [--rounds 9]
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
from transformers import PrinterCallback, TrainerCallback, TrainingArguments

from benchmarks.record_io import markdown, spread, write_record
from benchmarks.runner import command
from benchmarks.training import OBJECTIVES, SHAPES, Peer, Plan, fresh_model, plan_of, prepare
from reticent.trainer.recipes import get_recipe


class _Timed(TrainerCallback):
    """Wall and processor seconds of a training, from its first batch."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began = time.perf_counter(), time.process_time()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        ended = time.perf_counter(), time.process_time()
        self.seconds, self.cpu_seconds = (end - start for end, start in zip(ended, self.began, strict=True))


def train(plan: Plan, dataset: Any, *, guarded: bool) -> tuple[_Timed, list[float]]:
    """Train one epoch; returns its times and the loss of each step."""
    from reticent.trainers import PERMITTED, ProtectedCollator, guard_trainer

    collator = ProtectedCollator(dataset)

    def alone(rows: Sequence[Any]) -> Any:
        made = collator(rows)
        del made[PERMITTED]  # which no model knows
        return made

    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as out:
        arguments = TrainingArguments(
            output_dir=out, num_train_epochs=1, per_device_train_batch_size=plan.shape.batch_size, bf16=plan.bf16,
            use_cpu=plan.device == "cpu", remove_unused_columns=False, save_strategy="no", logging_strategy="no",
            report_to=[], disable_tqdm=True, seed=0,
        )  # fmt: skip
        peer = Peer(fresh_model(plan), arguments, train_dataset=dataset, data_collator=collator if guarded else alone)
        peer.remove_callback(PrinterCallback)
        peer.step_losses = []
        guard = guard_trainer(peer) if guarded else None
        timed = _Timed()
        peer.add_callback(timed)
        peer.train()
    losses = torch.stack(peer.step_losses).tolist()
    assert guard is None or (guard.batches == len(losses) and guard.counts()[1]["targets"]), "the guard saw less"
    return timed, losses


def measure(kind: str, folder: Path, size: str, rounds: int) -> dict[str, Any]:
    """Return the ratios of guarded to unguarded of one family, and what a step takes."""
    from reticent.trainers import protected_dataset

    plan = plan_of(kind, folder, SHAPES[size], 1)
    recipe = get_recipe(f"ipp{OBJECTIVES[kind]}")  # the generated notes have no marks of direct identifiers
    dataset = protected_dataset(plan.store, recipe, plan.tokenizer, window_length=plan.shape.window_length)
    times: dict[bool, list[_Timed]] = {False: [], True: []}
    losses: list[float] = []
    for turn in range(1 + rounds):
        for guarded in (False, True) if turn % 2 else (True, False):
            timed, found = train(plan, dataset, guarded=guarded)
            losses = losses or found
            assert found == losses, f"{kind}: the guard changes the losses"
            if turn:
                times[guarded].append(timed)
    pairs = list(zip(times[True], times[False], strict=True))
    return {
        "recipe": recipe.name,
        "steps": len(losses),
        "loss": losses[-1],
        "cpu_seconds_a_step": spread([plain.cpu_seconds / len(losses) for plain in times[False]]),
        "cpu_ratio": spread([guarded.cpu_seconds / plain.cpu_seconds for guarded, plain in pairs]),
        "ratio": spread([guarded.seconds / plain.seconds for guarded, plain in pairs]),
    }


def table(models: dict[str, Any]) -> str:
    def shown(found: dict[str, float]) -> str:
        return f"{found['median'] - 1:+.1%} ({found['low'] - 1:+.1%} to {found['high'] - 1:+.1%})"

    rows = [
        [
            kind,
            found["recipe"],
            found["steps"],
            found["cpu_ratio"]["n"],
            shown(found["cpu_ratio"]),
            shown(found["ratio"]),
        ]
        for kind, found in models.items()
    ]
    return markdown(["model", "recipe", "steps", "rounds", "CPU time, median and range", "wall time"], rows)


def run(size: Annotated[str, ("toy", "cpu")] = "cpu", rounds: int = 9) -> None:
    """Measure, print and write the record."""
    result: dict[str, Any] = {"goal": "within 3 % of the same trainer without the guard", "models": {}}
    if missing := [name for name in ("datasets", "accelerate") if find_spec(name) is None]:
        print(f"skipped: needs {' and '.join(missing)} (reticent[trainers])")
        return
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as scratch:
        folder = Path(scratch)
        prepare(folder, SHAPES[size])
        for kind in OBJECTIVES:
            result["models"][kind] = measure(kind, folder, size, 1 if size == "toy" else rounds)
    print(table(result["models"]))
    print(write_record("trainer_guard", result, size))


if __name__ == "__main__":
    command(run)
