"""How fast does our loop train, beside the Trainer of transformers with its own collators?

Both get the same tokens, the same initial weights, batch size, precision and optimiser. First the answer: our loop and
the Trainer, on the same batches without dropout, must report the same loss step by step. Then every way trains whole
epochs in turns, each in a process of its own; the first epoch warms up. Tokens are those of documents: neither padding
nor special tokens count. A ratio is taken within a round.

"Waits for data" is the share of an epoch in which the loop waits for its next batch; where the device is CUDA, which
works on meanwhile, the device waits less than that.

    python -m benchmarks.training [--size toy|cpu|gpu] [--prepared FOLDER] [--time-limit SECONDS]

Size gpu (BERT-base and GPT-2 small with random weights, 512 tokens, bfloat16) needs CUDA; ``--prepare FOLDER`` makes
its tokens where the Rust core is, ``--prepared FOLDER`` reads them where it is not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.record_io import markdown, spread, write_record
from benchmarks.training_data import SHAPES, Shape
from benchmarks.training_ways import OBJECTIVES, Way, plan_of, take_turns

#: How far apart the losses of a step may be, as a share.
TOLERANCE = 2e-3
#: Dense bfloat16 operations a second by the vendor's datasheet.
DATASHEET = {"NVIDIA H200": 989e12, "NVIDIA H100 80GB HBM3": 989e12, "NVIDIA A100-SXM4-80GB": 312e12}
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
        context.set_forkserver_preload(["benchmarks.training_ways"])
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
    """Ours over each way of the Trainer, within rounds."""
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


def check(kind: str, folder: Path, shape: Shape) -> dict[str, Any]:
    """Compare the losses step by step, in a process of its own, and raise where they differ."""
    found = _child("check", kind, folder, shape)
    ours, theirs = np.array(found["ours"]), np.array(found["Trainer"])
    assert len(ours) == len(theirs) > 1, f"{kind}: {len(ours)} steps of ours, {len(theirs)} of the Trainer"
    difference = float(np.abs(ours / theirs - 1).max())
    assert difference < TOLERANCE, f"{kind}: losses differ by {difference:.1e} of their size"
    return {"what": found["what"], "steps": len(ours), "greatest_difference": difference, "losses": found["ours"]}


def _child(task: str, kind: str, folder: Path, shape: Shape) -> dict[str, Any]:
    (size,) = (name for name, other in SHAPES.items() if other == shape)
    command = [sys.executable, "-m", "benchmarks.training_check", task, kind, str(folder), size]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    return json.loads(done.stdout.splitlines()[-1])


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
    plan = plan_of(kind, folder, shape, 1)
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
        "check": check(kind, folder, shape),
        "targets_alone": _child("targets", kind, folder, shape),
    }
    ways = WAYS
    if plan.device == "cuda":  # its whole words are made on the CPU and cost more than the step: see targets_alone
        ways = (*(way for way in WAYS if not way.whole_words), *GPU_WAYS)
    rows = measure(kind, folder, shape, ways, deadline, plan.device)
    found |= _child("rate", kind, folder, shape)
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
        speed = row["tokens_per_second"]
        memory = (row["peak_bytes"] - row.get("before_bytes", 0)) / 2**20
        rows.append(
            [
                name,
                f"{speed['median']:,.0f} ({speed['low']:,.0f} to {speed['high']:,.0f})",
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
            rows = [[ours, *(_ratio(of_peers.get(peer)) for peer in peers)] for ours, of_peers in ratios.items()]
            parts.append(markdown([what, *peers], rows))
    return "\n".join(parts)


def _ratio(value: dict[str, float] | None) -> str:
    return "-" if value is None else f"{value['median']:.2f} ({value['low']:.2f} to {value['high']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SHAPES), default="cpu")
    parser.add_argument("--prepare", type=Path, help="only write the token stores into this folder")
    parser.add_argument("--prepared", type=Path, help="read the token stores of this folder")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no round begins")
    parser.add_argument("--kinds", nargs="+", choices=list(OBJECTIVES), default=(), help="default: all")
    arguments = parser.parse_args()
    if arguments.prepare:
        from benchmarks.training_data import prepare

        prepare(arguments.prepare, SHAPES[arguments.size])
        return
    run(arguments.size, prepared=arguments.prepared, time_limit=arguments.time_limit, kinds=arguments.kinds)


if __name__ == "__main__":
    main()
