"""What closes the three holes of protection by support, and what does it cost?

Arms (recipes and thresholds) are trained on random halves of the same individuals and on their complements, so every
model has a twin that saw none of its members. Every model is a target in turn. Beside utility (share of ippclm's gain
over the base, on held-out individuals) and retention stand the attacks on each hole: inversion of rare words (what is
only read), the threshold attack, and LiRA by kind of word (what the words in between remember).

Preregistered, before the first run (`CRITERIA`): surrogates in the context keep at least 97 % of the gain; the upper
end of inversion's excess is at most .03 with at least 1,000 targets a side; LiRA on rare words is at most .6; the upper
end of the threshold attack is at most .6. If the small models and the grid of real ones agree, surrogates become the
default; otherwise the default stays "keep".

Texts are MTSamples (RETICENT_DATA), a report an individual. A cell that is done is not run again: stop it and call it
again with the same --out.

    python -m benchmarks.holes --size toy|quick|cpu --out FOLDER [--arms ippclm,ippclm-surrogate,…]
    python -m benchmarks.holes --size real --base smollm2=FOLDER --objective clm --out FOLDER   # two cores, LoRA
    python -m benchmarks.holes --size gpu --base smollm2=FOLDER --objective clm --out FOLDER    # the whole grid
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.record_io import DATA, markdown, write_record

#: Arm -> recipe, k, and what the threshold counts.
ARMS: dict[str, dict[str, Any]] = {
    "clm": {"recipe": "clm"},
    "ippclm": {"recipe": "ippclm"},
    "ippclm-surrogate": {"recipe": "ippclm-surrogate"},
    "k = 5": {"recipe": "ippclm", "k": 5},
    "k = 10": {"recipe": "ippclm", "k": 10},
    "noisy": {"recipe": "ippclm", "noise": (1.0, 0.05)},
    "with reference": {"recipe": "ippclm", "reference": True},
    "noisy, surrogate": {"recipe": "ippclm-surrogate", "noise": (1.0, 0.05)},
}
#: LiRA by turns needs three pairs: of each individual two models with and two without beside the target.
SIZES: dict[str, dict[str, Any]] = {
    "toy": {"people": [12], "epochs": [1], "pairs": 1, "characters": 300, "hidden": 16, "layers": 1, "vocab": 300,
            "public": 40, "draws": 100},
    # Without inversion: minutes.
    "quick": {"people": [100], "epochs": [8], "pairs": 1, "characters": 700, "hidden": 64, "layers": 2, "vocab": 1500,
              "public": 600, "draws": 500, "inversion": False},
    "cpu": {"people": [200], "epochs": [16], "pairs": 3, "characters": 1500, "hidden": 64, "layers": 2, "vocab": 2000,
            "public": 2000, "draws": 1000},
    "real": {"people": [100], "epochs": [1, 3], "pairs": 3, "characters": 600, "window": 128, "lora": 8, "draws": 1000},
    "gpu": {"people": [100, 300, 592], "epochs": [1, 2, 4, 8], "pairs": 8, "characters": 6000, "window": 512, "lora": 8,
            "draws": 1000},
}  # fmt: skip
#: Measure -> what it must not be under (1) or over (-1), and the bound.
CRITERIA = {"gain": (1, 0.97), "inversion": (-1, 0.03), "rare": (-1, 0.6), "threshold": (-1, 0.6)}
LEAST_TARGETS = 1000


@dataclass
class Grid:
    """One number of individuals and of epochs: its documents, models and results."""

    folder: Path
    size: dict[str, Any]
    people: int
    epochs: int
    objective: str = "clm"
    base: str | None = None
    auditors: dict[int, Any] = field(default_factory=dict)
    bases: dict[int, Any] = field(default_factory=dict)

    @cached_property
    def texts(self) -> list[str]:
        with (DATA / "mtsamples" / "mtsamples.jsonl").open(encoding="utf-8") as lines:
            reports = [json.loads(line)["text"].strip()[: self.size["characters"]] for line in lines]
        distinct = [text for text in dict.fromkeys(reports) if len(text) > 100]
        order = np.random.default_rng(0).permutation(len(distinct))
        return [distinct[number] for number in order]

    @cached_property
    def corpus(self) -> Any:
        """The individuals to deal, then those whose texts are public."""
        from reticent.engine.corpus import open_corpus

        place = self.folder / "documents"
        place.mkdir(parents=True, exist_ok=True)
        texts = self.texts[: 2 * self.people + self.size.get("public", 0)]
        ids = [f"p{number:05}" for number in range(len(texts))]
        table = pa.table({"doc_id": ids, "individual_id": ids, "text": pa.array(texts, pa.large_string())})
        pq.write_table(table, place / "part-0.parquet")
        return open_corpus(place)

    def sides(self, number: int) -> Any:
        """The individuals of a model: even ones draw a half, odd ones have its complement."""
        from reticent.engine.schema import INDIVIDUALS
        from reticent.engine.split import Individuals

        num = self.corpus.num_documents
        drawn = np.zeros(2 * self.people, dtype=bool)
        drawn[np.random.default_rng(100 + number // 2).permutation(2 * self.people)[: self.people]] = True
        is_member = drawn if number % 2 == 0 else ~drawn
        side = np.full(num, 2, dtype=np.int8)
        side[: 2 * self.people] = np.where(is_member, 0, 1)
        splits = pa.DictionaryArray.from_arrays(
            pa.array(side, pa.int8()), pa.array(["members", "heldout", "reference"])
        )
        ids = [f"p{code:05}" for code in range(num)]
        units = pa.array(range(num), pa.uint32())
        return Individuals(pa.table([pa.array(ids), units, units, splits, pa.array([1] * num, pa.uint32())],
                                    schema=INDIVIDUALS))  # fmt: skip

    @cached_property
    def tokenizer(self) -> str:
        from reticent.trainer.foundation import train_tokenizer

        if self.base is not None:
            return (Path(self.base) / "tokenizer.json").read_text(encoding="utf-8")
        kind: Any = "bytelevel" if self.objective == "clm" else "wordpiece"
        return train_tokenizer([self.texts[2 * self.people :][: self.size["public"]]], kind, self.size["vocab"])

    def tokens(self, name: str, individuals: Any, splits: tuple[str, ...], index: Any, k: int) -> Any:
        from reticent.engine.protect import Policy
        from reticent.engine.store import open_tokens
        from reticent.engine.tokens import write_tokens

        place = self.folder / "tokens" / name
        if not (place / "view.parquet").exists():
            place.mkdir(parents=True, exist_ok=True)
            write_tokens(
                place, self.corpus, individuals, self.tokenizer, splits=splits, index=index, policy=Policy(k=k)
            )
        return open_tokens(place)

    @cached_property
    def base_folder(self) -> Path:
        """The base model: the one that was given, or a small one trained on the public texts."""
        from reticent.trainer.config import TrainConfig
        from reticent.trainer.export import write_model
        from reticent.trainer.foundation import new_model
        from reticent.trainer.loop import train
        from reticent.trainer.models import load_tokenizer
        from reticent.trainer.recipes import get_recipe

        if self.base is not None:
            return Path(self.base)
        done = self.folder / "base" / "epoch-0002"
        if not done.exists():
            kind: Any = "gpt2" if self.objective == "clm" else "bert"
            model = new_model(
                kind, self.tokenizer, hidden_size=self.size["hidden"], num_layers=self.size["layers"],
                max_length=self.window,
            )  # fmt: skip
            store = self.tokens("public", self.sides(0), ("reference",), None, 2)
            config = TrainConfig(num_epochs=2, batch_size=16, learning_rate=3e-3, window_length=self.window,
                                 checkpoint_epochs=(), device="auto")  # fmt: skip
            train(model, store, get_recipe(self.objective), config, self.folder / "base", tokenizer=self.tokenizer)
            model_folder = self.folder / "base" / "epoch-0002"
            if not model_folder.exists():
                write_model(model, load_tokenizer(self.tokenizer), model_folder, recipe=get_recipe("clm"), epoch=2)
        return done

    @property
    def window(self) -> int:
        return int(self.size.get("window", 256))

    def train(self, arm: str, number: int) -> dict[str, Any]:
        """Train a model of an arm where it is not there; returns what is kept of it."""
        from reticent.engine.context_words import context_words
        from reticent.engine.index import IndexConfig, build_index
        from reticent.engine.noisy_threshold import noisy_index
        from reticent.engine.public_words import read_public_words
        from reticent.engine.schema import MEMBERS
        from reticent.trainer.config import LoraSettings, TrainConfig
        from reticent.trainer.loop import train
        from reticent.trainer.models import load_model
        from reticent.trainer.recipes import get_recipe

        place, settings = self.folder / "models" / arm / f"{number:02}", ARMS[arm]
        done = place / "done.json"
        if done.exists():
            found: dict[str, Any] = json.loads(done.read_text())
            return found
        individuals, k = self.sides(number), settings.get("k", 2)
        counted = (MEMBERS, "reference") if settings.get("reference") else (MEMBERS,)
        index = build_index(self.corpus, individuals, splits=counted, config=IndexConfig(max_n=1))
        if "noise" in settings:
            index = noisy_index(index, k, *settings["noise"], key=bytes([number + 1]) * 32)
        store = self.tokens(f"{arm} {number:02}", individuals, (MEMBERS,), index, k)
        recipe = get_recipe(self.recipe(arm))
        words = None
        if recipe.replaces_indirect:
            words = context_words(self.tokenizer, read_public_words("generated"), index, k)
        lora = LoraSettings(r=self.size["lora"]) if "lora" in self.size else None
        config = TrainConfig(
            num_epochs=self.epochs, batch_size=8, window_length=self.window, seed=number, checkpoint_epochs=(),
            learning_rate=3e-4 if lora else 2e-3, lora=lora, device="auto",
        )  # fmt: skip
        started = time.perf_counter()
        result = train(
            load_model(self.base_folder, self.objective), store, recipe, config, place, tokenizer=self.tokenizer,
            context=words,
        )  # fmt: skip
        about = {
            "checkpoint": str(result.checkpoints[self.epochs].relative_to(self.folder)),
            "seconds": time.perf_counter() - started,
            "retention": float(np.mean((store.flags & recipe.never_target) == 0)),
            "ledger": result.ledger.to_dict(),
        }
        done.write_text(json.dumps(about))
        return about

    def recipe(self, arm: str) -> str:
        name: str = ARMS[arm]["recipe"]
        return name if self.objective == "clm" else name.replace("clm", "mlm")

    def auditor(self, number: int) -> Any:
        from reticent.audit.config import AuditConfig, InversionConfig
        from reticent.audit.evaluate import Auditor
        from reticent.engine.index import IndexConfig, build_index
        from reticent.engine.schema import HELDOUT, MEMBERS

        if number in self.auditors:
            return self.auditors[number]
        individuals, both = self.sides(number), (MEMBERS, HELDOUT)
        joint = build_index(self.corpus, individuals, splits=both, config=IndexConfig(max_n=1))
        own = build_index(self.corpus, individuals, splits=(MEMBERS,), config=IndexConfig(max_n=1))
        store = self.tokens(f"audit {number:02}", individuals, both, joint, 2)
        train_store = self.tokens(f"train {number:02}", individuals, (MEMBERS,), own, 2)
        members = individuals.mask(MEMBERS)[store.individual]
        inversion = InversionConfig() if self.size.get("inversion", True) else None
        config = AuditConfig(
            attacks=("loss", "reference"), num_bootstrap=self.size["draws"], inversion=inversion,
            window_length=self.window, all_occurrences=False,
        )  # fmt: skip
        self.auditors[number] = Auditor(train_store, store, members, config)
        return self.auditors[number]

    def evaluate(self, arm: str) -> list[dict[str, Any]]:
        """Attack every model of an arm in turn; cells that are done are read."""
        numbers = list(range(2 * self.size["pairs"]))
        trained = [self.train(arm, number) for number in numbers]
        results, scored = [], None
        for number, about in zip(numbers, trained, strict=True):
            place = self.folder / "results" / arm / f"{number:02}.json"
            if not place.exists():
                scored = scored or [self._log_probs(arm, other, trained[other]) for other in numbers]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps({**self._evaluated(arm, number, about, scored), **about}))
                print(f"{arm} {number}", file=sys.stderr, flush=True)
            results.append(json.loads(place.read_text()))
        return results

    def _entry(self, arm: str, about: dict[str, Any]) -> Any:
        from reticent.audit.evaluate import ModelEntry
        from reticent.trainer.recipes import get_recipe

        recipe = get_recipe(self.recipe(arm))
        return ModelEntry(
            name=arm, recipe=recipe.name, objective=self.objective, epoch=self.epochs,
            path=self.folder / about["checkpoint"], never_target=recipe.never_target, k=ARMS[arm].get("k", 2),
        )  # fmt: skip

    def _log_probs(self, arm: str, number: int, about: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        from reticent.engine.schema import MEMBERS

        auditor = self.auditor(number)  # documents are in one order whoever is a member
        is_in = self.sides(number).mask(MEMBERS)[auditor.store.individual]
        return auditor.score(self._entry(arm, about)).log_probs, is_in

    def base_scores(self, number: int) -> Any:
        from reticent.audit.evaluate import ModelEntry

        if number not in self.bases:
            entry = ModelEntry(name="base", recipe="base", objective=self.objective, epoch=0, path=self.base_folder)
            self.bases[number] = self.auditor(number).evaluate(entry)
        return self.bases[number]

    def _evaluated(self, arm: str, number: int, about: dict[str, Any], scored: list[Any]) -> dict[str, Any]:
        base, scores = self.base_scores(number)
        shadows = iter(scored) if len(scored) > 4 else None
        found, _ = self.auditor(number).evaluate(self._entry(arm, about), scores, shadow_tokens=shadows)
        kinds = found.by_kind
        indirect = found.inversion and found.inversion.indirect
        inverted = indirect and indirect.all

        def of(estimate: Any) -> list[float] | None:
            return None if estimate is None or estimate.value is None else [estimate.value, estimate.low, estimate.high]

        return {
            "loss": _loss(found), "base_loss": _loss(base), "n": self.people,
            "threshold": of(found.threshold.at_threshold.auc), "threshold_n": found.threshold.at_threshold.num_members,
            "above": of(found.threshold.above.auc), "base_threshold": of(base.threshold.at_threshold.auc),
            "membership": of(found.membership["reference"].auc),
            **{kind: of(own.attacks["lira"].auc_in_turn) for kind, own in kinds.items() if "lira" in own.attacks},
            **{f"reference, {kind}": of(own.attacks["reference"].auc) for kind, own in kinds.items()},
            "inversion": of(inverted.top1.excess) if inverted else None,
            "inversion_targets": indirect.num_targets.members if inverted else 0,
        }  # fmt: skip


def _loss(found: Any) -> float:
    """Mean loss of ordinary tokens of held-out individuals; of a masked model the share of words that it misses."""
    side = found.utility.heldout
    if side.ordinary_perplexity is not None:
        return float(np.log(side.ordinary_perplexity.value))
    return 1 - float(side.ordinary_word_accuracy.value)


def summary(results: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return of each arm the mean over its models of every measure, and their least and greatest value."""
    usual = results.get("ippclm")
    gain_of_usual = mean(row["base_loss"] - row["loss"] for row in usual) if usual else None
    found = {}
    for arm, rows in results.items():
        gains = [row["base_loss"] - row["loss"] for row in rows]
        of_arm: dict[str, Any] = {
            "models": len(rows),
            "gain": None if not gain_of_usual else [mean(gains) / gain_of_usual, *_ends(gains, gain_of_usual)],
            "retention": mean(row["retention"] for row in rows),
            "inversion_targets": sum(row["inversion_targets"] or 0 for row in rows),
        }
        for name in ("threshold", "above", "base_threshold", "membership", "all", "ordinary", "rare", "inversion",
                     "reference, ordinary", "reference, rare"):  # fmt: skip
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


def iter_grids(size: dict[str, Any], out: Path, objective: str, base: str | None) -> Iterator[Grid]:
    for people in size["people"]:
        for epochs in size["epochs"]:
            yield Grid(out / f"{people} people, {epochs} epochs", size, people, epochs, objective, base)


def table(found: dict[str, dict[str, Any]]) -> str:
    def cell(value: Any) -> str:
        return "–" if value is None else f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"

    columns = {"share of the gain": "gain", "threshold": "threshold", "control": "above", "LiRA, ordinary": "ordinary",
               "LiRA, rare": "rare", "reference, ordinary": "reference, ordinary", "reference, rare": "reference, rare",
               "inversion, excess": "inversion"}  # fmt: skip
    used = {head: name for head, name in columns.items() if any(row[name] for row in found.values())}
    heads = ["arm", "models", "retention", *used]
    rows = [
        [arm, row["models"], f"{row['retention']:.3f}", *(cell(row[name]) for name in used.values())]
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
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--objective", choices=["clm", "mlm"], default="clm")
    parser.add_argument("--base", help="NAME=FOLDER of a pre-trained model; sizes real and gpu need one")
    parser.add_argument("--record", action="store_true", help="keep the result under benchmarks/record")
    arguments = parser.parse_args()
    if not (DATA / "mtsamples").exists():
        print(f"skipped: no mtsamples under {DATA} (RETICENT_DATA)", file=sys.stderr)
        return
    size = SIZES[arguments.size]
    name, _, base = (arguments.base or "").partition("=")
    if "vocab" not in size and not base:
        parser.error("this size needs --base NAME=FOLDER")
    results = {}
    for grid in iter_grids(size, arguments.out, arguments.objective, base or None):
        found = summary({arm: grid.evaluate(arm) for arm in arguments.arms.split(",")})
        print(f"{grid.folder.name}\n\n{table(found)}")
        results[grid.folder.name] = {arm: {**row, "criteria": verdicts(row)} for arm, row in found.items()}
    if arguments.record:
        about = f"holes-{arguments.size}-{name or 'small'}-{arguments.objective}"
        write_record(about, {"settings": size, "criteria": CRITERIA, "results": results}, arguments.size)


if __name__ == "__main__":
    main()
