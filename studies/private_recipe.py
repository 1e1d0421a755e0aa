"""What does a recipe with a bound cost at a size where it can work, and what do attacks find in it?

Arms: plain, protected (pp), protected with surrogates, and at each epsilon for an individual three private ones: DP-SGD
on all targets, the same where a public list says which words are shared, and with a private vocabulary besides.

A cell is a collection of documents, an objective and a base model. In each, plain is first trained alone, and the epoch
at which it gains most is that of all arms without DP-SGD; the private ones have a number of epochs that was fixed
beforehand. What counts is the gain over the base, in nats a token, on ordinary words of held-out people, those that
a vocabulary drops included, templates apart (`templates`), as a share of plain's: that was chosen on the same people,
which flatters plain. Areas are of the best attacks with shadow models, with intervals that hold at once.
A row says something of membership only where the lower end of plain's is over .6.

Everything is kept under ``--work``, and each training, score and shadow model is a piece: a second start goes on there.
All sizes but toy need the extra ``reticent[wordfreq]``.

    python -m studies.private_recipe --size hours --work FOLDER                          # six hours of one core
    python -m studies.private_recipe --size cpu --work FOLDER [--cell generated-clm]     # days on two cores
    python -m studies.private_recipe --size base --work FOLDER                           # BERT-base and GPT-2, a GPU
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fixtures.corpora import read_documents

from benchmarks.attacks import first_words
from benchmarks.record_io import DATA, STUDIES, estimate_text, markdown, record_path, write_record
from benchmarks.runner import command
from reticent.audit.report.selectors import strongest_attack
from reticent.engine.public_words import read_public_words
from reticent.engine.schema import HELDOUT
from reticent.engine.store import TokenStore
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.auditing import open_auditor
from reticent.job.config import parse_job
from reticent.job.experiment import SIZES as EXPERIMENT
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.recipes import parted_name
from studies.dp_baseline import LARGE
from studies.foundation_models import LORA, PACKAGES, KeptProgress, make_base, package_folder
from studies.foundation_models import SIZES as FOUNDATIONS

#: Stems of the recipes without DP-SGD, and of the private ones: each of these with the sections that only it needs, and
#: so in a job of its own.
OPEN = ("{}", "pp{}", "pp{}-surrogate")
PRIVATE: dict[str, dict[str, Any]] = {
    "dp-{}": {},
    "dp-{}-public": {},
    "private-{}": {
        "threshold": {"epsilon": 0.5, "unit": "individual", "delta": 1e-6},
    },
}
#: Tokens of a template stand behind the same three in the texts of so large a share of the individuals.
TEMPLATE = 0.05
#: A row counts where the attacks find plain with more.
FOUND = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it all is done.

    Parameters
    ----------
    cells : (documents, objective, base): "small" is pre-trained here; "smollm2" has adapters; "base" is of the hub.
        "generated-12000" has so many individuals, "mtsamples-24" the first 24 words of each report
    individuals : generated ones where a cell does not say how many
    epochs : the most of plain, and those of the private arms
    shadowed : stems of the recipes that shadow models attack; None: all
    of_cells : documents of a cell -> fields that are others there
    public_words : the list whose words the second and third arm may learn
    """

    cells: tuple[tuple[str, str, str], ...]
    individuals: int
    words: int
    epochs: tuple[int, int]
    epsilons: tuple[float, ...] = (1.0, 4.0, 8.0)
    shadows: int = 8
    shadowed: tuple[str, ...] | None = None
    public_words: str = "wordfreq:en"
    sample_rate: float = 0.1
    foundation: dict[str, int] | None = None
    train: dict[str, Any]
    of_cells: dict[str, dict[str, Any]] = field(default_factory=dict)
    bootstrap: int = 1000


SIZES = {
    "toy": Size(
        cells=(("generated", "clm", "small"),), individuals=48, words=24, epochs=(2, 1), epsilons=(8.0,), shadows=4,
        shadowed=("{}",), public_words="generated", sample_rate=0.5,
        train={"window_length": 64, "batch_size": 8, "device": "cpu"},
        foundation={"vocab_size": 500, "hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_epochs": 1},
        bootstrap=100,
    ),
    "hours": Size(
        cells=(("generated", "clm", "small"), ("generated-12000", "clm", "small"), ("mtsamples", "clm", "small"),
               ("mtsamples-24", "clm", "smollm2")),
        individuals=3_000, words=24,
        epochs=(6, 6), shadowed=("{}", "pp{}"), train={"window_length": 48, "batch_size": 16, "device": "cpu"},
        foundation={"vocab_size": 3000, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_epochs": 4},
        of_cells={
            "generated-12000": {"shadowed": ("{}",)},
            "mtsamples-24": {"epochs": (3, 3), "epsilons": (8.0,), "shadowed": ()},
        },
    ),
    "cpu": Size(
        cells=(("generated", "clm", "small"), ("mtsamples", "clm", "small"), ("mtsamples", "clm", "smollm2")),
        individuals=12_000, words=60, epochs=(16, 8), train={"window_length": 128, "batch_size": 16, "device": "cpu"},
        foundation={"vocab_size": 3000, "hidden_size": 128, "num_layers": 2, "num_heads": 4, "num_epochs": 4},
    ),
    "base": Size(
        cells=tuple((name, kind, "base") for name in ("generated", "mtsamples") for kind in ("mlm", "clm")),
        individuals=12_000, words=150, epochs=(16, 8), shadows=16,
        train={"window_length": 512, "batch_size": 16, "device": "cuda"},
    ),
}  # fmt: skip


def templates(store: TokenStore, share: float = TEMPLATE) -> np.ndarray:
    """Return which tokens are of a template, bool: they and the three before them stand so in the texts of this share
    of the individuals or more. The first three of a text are of none.
    """
    ids = store.input_ids.astype(np.uint64)
    four, factor = ids.copy(), np.uint64(0x9E3779B97F4A7C15)
    for back in (1, 2, 3):
        four[back:] = (four[back:] ^ ids[:-back]) * factor + np.uint64(back)
    lengths = np.diff(store.doc_offsets)
    owner, place = (
        np.repeat(store.individual, lengths),
        np.arange(len(ids)) - np.repeat(store.doc_offsets[:-1], lengths),
    )
    _, number = np.unique(four, return_inverse=True)
    pairs = np.unique(np.stack([number, owner.astype(np.int64)]), axis=1)
    users = np.bincount(pairs[0])
    return (place >= 3) & (users[number] >= max(share * len(np.unique(store.individual)), 2))


@dataclass
class Cell:
    """One collection of documents with one base model, and its runs."""

    work: Path
    size: Size
    place: str
    objective: str
    kind: str
    of_base: np.ndarray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.size = replace(self.size, **self.size.of_cells.get(self.place, {}))
        self.source, _, number = self.place.partition("-")
        self.number = int(number or 0)

    @property
    def name(self) -> str:
        return f"{self.place}-{self.objective}" + ("" if self.kind == "small" else f"-{self.kind}")

    @cached_property
    def documents(self) -> dict[str, Any]:
        """The sections of a job about documents; they are made where they are not there."""
        place = self.work / self.place
        if self.source == "mtsamples":
            if not (place / "documents.parquet").exists():
                place.mkdir(parents=True, exist_ok=True)
                reports = read_documents("mtsamples", None).drop_columns(["spans"])
                if self.number:
                    texts = pa.array(first_words(reports.column("text").to_pylist(), self.number))
                    reports = reports.set_column(reports.column_names.index("text"), "text", texts)
                pq.write_table(reports, place / "documents.parquet")
            split = {"heldout": 0.3, "reference": 0.2}
            corpus = {"source": str(place / "documents.parquet")}
            return {"corpus": corpus, "detect": {"detectors": ["rules"]}, "split": split}
        if not (place / "documents").exists():
            place.mkdir(parents=True, exist_ok=True)
            individuals = self.number or self.size.individuals
            config = SynthConfig(
                num_individuals=individuals, words_per_document=self.size.words, languages=("en",),
                documents_per_individual=1.5, public_documents=max(individuals // 4, 60),
            )  # fmt: skip
            synthesize(place, config)
        corpus = {"source": str(place / "documents"), "spans": "spans"}
        return {"corpus": corpus, "detect": {"detectors": ["gold", "rules"]}, "split": {"heldout": 0.4}}

    @cached_property
    def base(self) -> str:
        """The base model: that of a name, or a small one that learns from public text, or from the reference side."""
        if self.kind == "base":
            return EXPERIMENT["base"].bases[self.objective]
        if self.kind == "smollm2":
            progress = KeptProgress(self.work / "smollm2.json")
            return str(make_base("smollm2", self.work, FOUNDATIONS["cpu"], progress))
        text = "reference" if self.source == "mtsamples" else str(self.work / self.place / "public")
        kind = {"mlm": "bert", "clm": "gpt2"}[self.objective]
        foundation = {"kind": kind, "text": text, **(self.size.foundation or {})}
        model = {"name": "base", "objective": self.objective, "recipes": [self.objective], "foundation": foundation}
        run = self.run("foundation", [model])
        execute(run, "foundation")
        return str(run.folder / "foundation" / "base" / "model")

    def run(self, name: str, models: list[dict[str, Any]], **more: Any) -> Run:
        train = {**self.size.train, "learning_rate": 2e-3 if self.kind == "small" else 2e-4}
        train |= {"lr_scheduler_type": "constant_with_warmup"}
        if self.kind == "smollm2":
            train |= {"lora": LORA, "bf16": "on"}
        audit = {"attacks": ["loss", "reference"], "every_checkpoint": False, "num_bootstrap": self.size.bootstrap}
        values = {
            **self.documents, "out": str(self.work / self.name / name), "model": models, "train": train,
            "audit": {**audit, **more.pop("audit", {})}, **more,
        }  # fmt: skip
        return Run(parse_job(values), KeptProgress(self.work / f"{self.name}-{name}.json"))

    def model(self, name: str, recipes: list[str], **train: Any) -> dict[str, Any]:
        return {"name": name, "base": self.base, "objective": self.objective, "recipes": recipes, "train": train}

    @cached_property
    def plain(self) -> tuple[int, np.ndarray]:
        """The epoch at which plain gains most on held-out individuals, and its gains there."""
        last = self.size.epochs[0]
        train = {"num_epochs": last, "checkpoint_epochs": list(range(1, last + 1))}
        run = self.run("plain", [self.model("open", [self.objective], **train)])
        execute(run, "train")
        paths = run.checkpoints(run.job.model[0], self.objective)
        gains = {epoch: self.gains(run, "open", path) for epoch, path in paths.items()}
        best = max(gains, key=lambda epoch: float(gains[epoch][0].sum()))
        return best, gains[best]

    def gains(self, run: Run, model: str, path: Path) -> np.ndarray:
        """Return of each held-out individual the nats gained on ordinary tokens outside of templates, the number of
        these, and the same two within templates, float64 (4, individuals); kept beside the run.
        """
        from reticent.audit.evaluate import ModelEntry

        kept = self.work / self.name / "gains" / f"{run.folder.name}-{'-'.join(path.parts[-3:])}.npy"
        if kept.exists():
            return np.asarray(np.load(kept))
        auditor = open_auditor(run, model)
        heldout, everybody = run.individuals.mask(HELDOUT), auditor.store
        asked = heldout[everybody.individual]
        within = templates(everybody)[np.repeat(asked, np.diff(everybody.doc_offsets))]
        store = auditor.store = everybody.select(np.flatnonzero(asked))
        about: dict[str, Any] = {"name": model, "recipe": model, "objective": self.objective}
        trained = auditor.score(ModelEntry(**about, epoch=1, path=path)).log_probs
        if self.of_base is None:  # every run has the same documents
            base = Path(run.base_of(run.job.model[0]))
            self.of_base = auditor.score(ModelEntry(**about, epoch=0, path=base)).log_probs
        owner = np.repeat(store.individual, np.diff(store.doc_offsets))
        gained = trained - self.of_base
        chosen = (store.flags == 0) & np.isfinite(gained)
        found = []
        for rows in (chosen & ~within, chosen & within):
            found += [np.bincount(owner[rows], each, len(heldout)) for each in (gained[rows], None)]
        result = np.array(found)[:, heldout]
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, result)
        return result

    def rows(self) -> Iterator[dict[str, Any]]:
        """Train and attack the arms, a job for each kind of private one; yield a row for each."""
        best, of_plain = self.plain
        open_recipes = [stem.format(self.objective) for stem in OPEN]
        for number, (stem, sections) in enumerate(PRIVATE.items()):
            private = stem.format(self.objective)
            models = [self.model("private", [private], **self.private_train())]
            if number == 0:  # plain and protected arms stand beside the first
                models.insert(0, self.model("open", open_recipes, num_epochs=best, checkpoint_epochs=[best]))
            shadowed = (*OPEN, *PRIVATE) if self.size.shadowed is None else self.size.shadowed
            wanted = [each.format(self.objective) for each in shadowed]
            attacked = [name for model in models for name in model["recipes"] if name in wanted]
            audit = {"shadow": {"recipes": attacked, "num_shadows": self.size.shadows}} if attacked else {}
            if stem != "dp-{}":
                sections = {**sections, "protect": {"public_words": self.size.public_words}}
            run = self.run(private, models, audit=audit, **sections)
            execute(run, "audit")
            for model in run.evidence.models:
                if model.epoch:
                    section = next(each for each in run.job.model if each.name == model.model)
                    path = run.checkpoints(section, model.recipe)[model.epoch]
                    yield {
                        **row_of(model),
                        **shares(self.gains(run, section.name, path), of_plain, self.size.bootstrap),
                    }

    def private_train(self) -> dict[str, Any]:
        dp = {"target_epsilon": list(self.size.epsilons), "sample_rate": self.size.sample_rate, "max_documents": 2}
        rate = {} if self.kind == "small" else {"learning_rate": 1e-3}
        return {**LARGE, **rate, "num_epochs": self.size.epochs[1], "dp": {**dp, "max_physical_batch_size": 64}}


def row_of(model: Any) -> dict[str, Any]:
    """Return what the audit says of an arm: its guarantee, and the areas, whose ends hold at once."""
    found, best = strongest_attack(model), model.best_attack
    ends = (best and best.intervals) or {}
    return {
        "recipe": model.recipe,
        "epoch": model.epoch,
        "guarantee": model.guarantee,
        "attack": found[0] if found else None,
        "area": {"value": found[1].value, "low": found[1].low, "high": found[1].high} if found else None,
        "members": max((attack.num_members or 0 for attack in model.membership.values()), default=0),
        "others": max((attack.num_nonmembers or 0 for attack in model.membership.values()), default=0),
        "highest_end": max((high for _, high in ends.values()), default=None),
    }


def shares(gains: np.ndarray, of_plain: np.ndarray, num_draws: int) -> dict[str, Any]:
    """Return the gain in nats a token, and as a share of plain's, with 95 % intervals over the held-out individuals.

    >>> own, plain = ([[gain, gain], [4.0, 4.0], [0.0, 0.0], [0.0, 0.0]] for gain in (1.0, 2.0))
    >>> shares(np.array(own), np.array(plain), 10)
    {'gain': 0.25, 'gain_share': {'value': 0.5, 'low': 0.5, 'high': 0.5, 'n': 2}}
    """
    draws = np.random.default_rng(0).integers(0, gains.shape[1], (num_draws, gains.shape[1]))
    found: dict[str, Any] = {}
    for name, first in (("gain", 0), ("template_gain", 2)):
        (own, count), plain = gains[first : first + 2], of_plain[first]
        if count.sum():
            found[name] = float(own.sum() / count.sum())
            share = own[draws].sum(axis=1) / plain[draws].sum(axis=1)
            low, high = np.quantile(share, [0.025, 0.975])
            value = {
                "value": float(own.sum() / plain.sum()),
                "low": float(low),
                "high": float(high),
                "n": gains.shape[1],
            }
            found[f"{name}_share"] = value
    return found


def run(
    size: Annotated[str, SIZES] = "cpu",
    work: Annotated[Path | None, "folder to keep; what is there is not made again"] = None,
    cell: Annotated[str | None, "only this one, as generated-clm or mtsamples-clm-smollm2"] = None,
) -> None:
    """Run the cells of a size, print their tables and write the record."""
    if work is None:
        assert size == "toy", "days of work: --work FOLDER keeps it"
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
            return run(size, Path(folder), cell)
    about, result, left_out = SIZES[size], dict[str, Any](), []
    read_public_words(about.public_words, "protect.public_words")  # or it would be missed after hours
    for source, objective, kind in about.cells:
        own = Cell(work, about, source, objective, kind)
        if cell not in (None, own.name):
            left_out.append(f"{own.name}: not asked for")
        elif own.source == "mtsamples" and not (DATA / "mtsamples").exists():
            left_out.append(f"{own.name}: no mtsamples under RETICENT_DATA")
        elif kind == "smollm2" and package_folder("smollm2") is None:
            left_out.append(f"{own.name}: no package {PACKAGES['smollm2']}")
        else:
            rows = list(own.rows())
            result[own.name] = {"plain_epoch": own.plain[0], "rows": rows, "counts": counts(rows)}
            print(f"{own.name}\n\n{table(rows)}")
    left_out += ["households: each individual is alone", "a choice of the epochs of private arms"]
    print(json.dumps(left_out), file=sys.stderr)
    assert all(each["rows"] for each in result.values())
    before = json.loads(path.read_text()) if (path := record_path("private_recipe")).exists() else {}
    if before.get("size") == size:  # cells that were not run now stay
        result = before["cells"] | result
        left_out = [said for said in left_out if said.partition(":")[0] not in result]
    kept = {"individuals": about.individuals, "epsilons": about.epsilons, "shadows": about.shadows}
    write_record("private_recipe", {**kept, "cells": result, "left_out": left_out}, size, STUDIES)
    return None


def counts(rows: list[dict[str, Any]]) -> bool:
    """Return whether the attacks find plain, so that what they do not find in an arm says something."""
    plain = next(row for row in rows if row["recipe"] in ("mlm", "clm"))
    return plain["area"] is not None and (plain["area"]["low"] or 0) > FOUND


def table(rows: list[dict[str, Any]]) -> str:
    heads = ["arm", "epsilon", "share of plain's gain", "in templates", "area", "highest end of any attack"]
    return markdown(
        heads,
        [
            [
                parted_name(row["recipe"])[0],
                row["guarantee"] or "none",
                estimate_text(row.get("gain_share")),
                estimate_text(row.get("template_gain_share")),
                estimate_text(row["area"]),
                "-" if row["highest_end"] is None else f"{row['highest_end']:.3f}",
            ]
            for row in rows
        ],
    )


if __name__ == "__main__":
    command(run)
