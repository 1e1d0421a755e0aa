"""What closes the three holes of protection by support, and what does it cost?

Arms (recipes and thresholds) are trained on random halves of the same individuals and on their complements, so every
model has a twin that saw none of its members. Every model is a target in turn. Beside utility (share of ippclm's gain
over the base, on held-out individuals) and retention stand the attacks on each hole: inversion of rare words (what is
only read), the threshold attack, and LiRA by kind of word (what the words in between remember).

Preregistered, before the first run (`CRITERIA`): surrogates in the context keep at least 97 % of the gain; the upper
end of inversion's excess is at most .03 with at least 1,000 targets a side; LiRA on rare words is at most .6; the upper
end of the threshold attack is at most .6. If the small models and the grid of real ones agree, surrogates become the
default; otherwise the default stays "keep".

Texts are MTSamples or MEDDOCAN (RETICENT_DATA, --corpus), a report an individual. A cell that is done is not run again:
stop it and call it again with the same --out. With --own-epochs each arm is attacked after its own best epoch.

    python -m benchmarks.holes --size toy|quick|practical|cpu --out FOLDER [--arms ippclm,ippclm-surrogate,…]
    python -m benchmarks.holes --size real --base smollm2=FOLDER --objective clm --out FOLDER   # two cores, LoRA
    python -m benchmarks.holes --size real --base minilm=FOLDER --objective mlm --out FOLDER    # all weights; its head
                                                                                                # from public reports
    python -m benchmarks.holes --size whole --base smollm2=FOLDER --objective clm --out FOLDER  # everybody, one GPU
    python -m benchmarks.holes --size gpu --base smollm2=FOLDER --objective clm --out FOLDER    # the whole grid, with
                                                                                                # clma and dp-clm
--people, --epochs, --pairs and --models choose a part of a size, for example the cells that a night has time for. More
models are added to those that are there, and --record keeps the cells that an earlier call recorded.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.holes_grid import ARMS, ASKING, COMPARATORS, CORPORA, HARD_TOKENS, Grid
from benchmarks.record_io import DATA, RECORD, markdown, write_record

SIZES: dict[str, dict[str, Any]] = {
    "toy": {"people": [12], "epochs": [1], "pairs": 1, "characters": 300, "hidden": 16, "layers": 1, "vocab": 300,
            "public": 40, "draws": 100},
    # Without inversion: minutes.
    "quick": {"people": [100], "epochs": [8], "pairs": 1, "characters": 700, "hidden": 64, "layers": 2, "vocab": 1500,
              "public": 600, "draws": 500, "inversion": False,
              "asking": {"prefix_tokens": 32, "num_tokens": 64, "num_samples": 5}},
    "cpu": {"people": [200], "epochs": [16], "pairs": 3, "characters": 1500, "hidden": 64, "layers": 2, "vocab": 2000,
            "public": 2000, "draws": 1000},
    # Adapters and few epochs over everybody who is left where 600 reports pre-train the base.
    "practical": {"people": [292], "epochs": [3], "pairs": 2, "characters": 1500, "hidden": 64, "layers": 2,
                  "vocab": 2000, "public": 600, "lora": 8, "learning_rate": 2e-3, "draws": 1000, "inversion": False},
    # Inversion only by --invert: it reads sixteen copies of the window of each target, a masked model in every fold.
    "real": {"people": [100], "epochs": [3, 1], "pairs": 2, "characters": 2000, "one_window": True, "window": 128,
             "lora": 8, "draws": 1000, "inversion": False, "bf16": "on", "public": 600,
             "masked": {"lora": None, "learning_rate": 5e-4, "head_epochs": 3}},
    # Everybody, a window of 512 tokens each, on a GPU in minutes: without the attacks that ask the model.
    "whole": {"people": [592], "epochs": [3], "pairs": 2, "characters": 6000, "one_window": True, "window": 512,
              "lora": 8, "draws": 1000, "inversion": False, "public": 600},
    "gpu": {"people": [100, 300, 592], "epochs": [1, 2, 4, 8], "pairs": 8, "characters": 6000, "window": 512, "lora": 8,
            "draws": 1000, "public": 600, "asking": {"prefix_tokens": 128, "num_tokens": 128, "num_samples": 20},
            "masked": {"lora": None, "learning_rate": 5e-4, "head_epochs": 3}},
}  # fmt: skip
#: Measure -> what it must not be under (1) or over (-1), and the bound.
CRITERIA = {"gain": (1, 0.97), "inversion": (-1, 0.03), "rare": (-1, 0.6), "threshold": (-1, 0.6)}
LEAST_TARGETS = 1000
#: What the command line may choose of a size: a cell of a record says its people and epochs, and an arm its models and
#: whether it was trained in bf16.
PARTS = ("people", "epochs", "pairs", "models", "invert", "bf16")


def summary(results: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return of each arm the mean over its models of every measure, and their least and greatest value."""
    usual = results.get("ippclm")
    gain_of_usual = mean(row["base_loss"] - row["loss"] for row in usual) if usual else None
    found = {}
    for arm, rows in results.items():
        gains = [row["base_loss"] - row["loss"] for row in rows]
        of_arm: dict[str, Any] = {
            "models": len(rows),
            "epoch": rows[0]["epoch"],
            "bf16": rows[0]["bf16"],
            # In nats a token, or of a masked model in shares of the words.
            "loss_saved": [mean(gains), min(gains), max(gains)],
            # A share of nothing, or of a loss, says nothing.
            "gain": [mean(gains) / gain_of_usual, *_ends(gains, gain_of_usual)] if (gain_of_usual or 0) > 0 else None,
            "retention": mean(row["retention"] for row in rows),
            "inversion_targets": sum(row["inversion_targets"] or 0 for row in rows),
        }
        asked = [*ASKING, *(f"base_{name}" for name in ASKING)]
        for name in ("threshold", "above", "base_threshold", "likelihood",
                     "base_likelihood", "membership", HARD_TOKENS, "all", "ordinary", "rare", "inversion",
                     "reference, ordinary", "reference, rare", *asked):  # fmt: skip
            values = [row[name] for row in rows if row.get(name)]
            # The mean of the ends is no interval of the mean, but wider than one: models share their individuals.
            of_arm[name] = [mean(value[place] for value in values) for place in range(3)] if values else None
        found[arm] = of_arm
    return found


def _ends(gains: list[float], usual: float) -> tuple[float, float]:
    return min(gains) / usual, max(gains) / usual


def verdicts(arm: dict[str, Any]) -> dict[str, bool | None]:
    """Return of each preregistered criterion whether an arm meets it; None where it was not measured or of too few."""
    found: dict[str, bool | None] = {}
    for name, (sign, bound) in CRITERIA.items():
        value = arm[name]
        end = None if value is None else value[0 if name in ("gain", "rare") else 2]
        too_few = name == "inversion" and arm["inversion_targets"] < LEAST_TARGETS
        found[name] = None if end is None or too_few else bool(sign * end >= sign * bound)
    return found


def recorded(about: str, size: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of an earlier record of the same settings: a grid may be run in several sittings."""
    path = RECORD / f"{about}.json"
    if not path.exists():
        return {}
    record = json.loads(path.read_text())
    settings = {key: value for key, value in record["settings"].items() if key not in PARTS}
    cells: dict[str, Any] = record["results"] if settings == json.loads(json.dumps(size)) else {}
    return cells


def iter_grids(
    size: dict[str, Any],
    out: Path,
    objective: str,
    base: str | None,
    source: str = "mtsamples",
    *,
    own_epochs: bool = False,
) -> Iterator[Grid]:
    for people in size["people"]:
        for epochs in size["epochs"]:
            cell = f"{people} people, {'up to ' if own_epochs else ''}{epochs} epochs"
            yield Grid(out / cell, size, people, epochs, objective, base, source, own_epochs)


def table(found: dict[str, dict[str, Any]]) -> str:
    def cell(value: Any) -> str:
        return "–" if value is None else f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"

    columns = {"share of the gain": "gain", "threshold": "threshold", "control": "above",
               "threshold, weighed": "likelihood", "LiRA, ordinary": "ordinary",
               "LiRA, rare": "rare", "reference, ordinary": "reference, ordinary", "reference, rare": "reference, rare",
               "hard tokens": HARD_TOKENS,
               "inversion, excess": "inversion", **{name: name for name in ASKING}}  # fmt: skip
    used = {head: name for head, name in columns.items() if any(row[name] for row in found.values())}
    heads = ["arm", "models", "epoch", "retention", *used]
    rows = [
        [arm, row["models"], row["epoch"], f"{row['retention']:.3f}", *(cell(row[name]) for name in used.values())]
        for arm, row in found.items()
    ]
    return markdown(heads, rows)


def run(size: str) -> None:
    """Run every arm once at toy size; larger sizes take a folder, so that they can be stopped."""
    if size == "toy" and (DATA / "mtsamples").exists():
        with tempfile.TemporaryDirectory() as folder:
            for grid in iter_grids(SIZES["toy"], Path(folder), "clm", None):
                found = summary({arm: grid.evaluate(arm) for arm in ARMS})
                print(table(found))
                assert all(row["threshold"] for row in found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(SIZES), default="toy")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arms", help="default: all; without the comparators clma and dp where no GPU is asked for")
    parser.add_argument("--corpus", choices=sorted(CORPORA), default="mtsamples")
    for part in ("people", "epochs"):
        parser.add_argument(f"--{part}", type=int, nargs="+", help="instead of those of the size")
    parser.add_argument("--pairs", type=int, help="pairs of models an arm, instead of those of the size")
    parser.add_argument("--models", type=int, help="models an arm, instead of pairs")
    parser.add_argument("--objective", choices=["clm", "mlm"], default="clm")
    parser.add_argument("--base", help="NAME=FOLDER of a pre-trained model; sizes real and gpu need one")
    parser.add_argument("--bf16", choices=["on", "off"], help="instead of that of the size; off where it is emulated")
    parser.add_argument("--own-epochs", action="store_true",
                        help="attack each arm at its own best epoch, by one half of the held-out people")  # fmt: skip
    parser.add_argument("--invert", type=int, metavar="N", help="inversion of N rare words, the same for all models")
    parser.add_argument("--invert-arms", metavar="ARM[:MODELS],…", help="instead of all arms, and all of their models")
    parser.add_argument("--record", action="store_true", help="keep the result under benchmarks/record")
    arguments = parser.parse_args()
    if not (DATA / arguments.corpus).exists():
        print(f"skipped: no {arguments.corpus} under {DATA} (RETICENT_DATA)", file=sys.stderr)
        return
    given = {part: getattr(arguments, part) for part in PARTS}
    size = dict(SIZES[arguments.size])
    masked = size.pop("masked", {})
    if arguments.objective == "mlm":
        size |= masked
    size |= {part: value for part, value in given.items() if value}
    left_out = () if arguments.size == "gpu" else COMPARATORS
    arms = arguments.arms.split(",") if arguments.arms else [arm for arm in ARMS if arm not in left_out]
    name, _, base = (arguments.base or "").partition("=")
    if "vocab" not in size and not base:
        parser.error("this size needs --base NAME=FOLDER")
    results = {}
    grids = iter_grids(
        size, arguments.out, arguments.objective, base or None, arguments.corpus, own_epochs=arguments.own_epochs
    )
    for grid in grids:
        found = summary({arm: grid.evaluate(arm) for arm in arms if grid.is_possible(arm)})
        if arguments.invert:
            for arm, _, models in (
                name.partition(":") for name in (arguments.invert_arms or ",".join(found)).split(",")
            ):
                found[arm] |= grid.invert(arm, int(models) if models else None)
        print(f"{grid.folder.name}\n\n{table(found)}")
        results[grid.folder.name] = {arm: {**row, "criteria": verdicts(row)} for arm, row in found.items()}
    if arguments.record:
        about = f"holes-{arguments.size}-{name or 'small'}-{arguments.objective}"
        if arguments.corpus != "mtsamples":
            about = f"{about}-{arguments.corpus}"
        size = {key: value for key, value in size.items() if key not in PARTS}
        results = {**recorded(about, size), **results}
        write_record(about, {"settings": size, "criteria": CRITERIA, "results": results}, arguments.size)


if __name__ == "__main__":
    main()
