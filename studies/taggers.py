"""How much does a tagger give away of the names it was trained on as it trains longer, and with surrogates for names?

Generated sentences hold census names, and places made of the same words in the same sentences, so that only memory
tells a person from a place. A small BERT is fine-tuned on them; after 1, 2, 4 … epochs it is attacked, and the blind
baseline stands beside it. In the second arm the names are drawn anew each epoch (surrogates), in the third the base is
attacked as it is (negative control). At size cpu the same on real text: the marked names of meddocan and of tab,
members against held-out individuals. What surrogates cost: the strict F1 of `reticent tagger train` on held-out
individuals of meddocan, with the identifiers themselves and with surrogates for them.

    python -m studies.taggers [--size toy|cpu]
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
from fixtures.corpora import read_documents
from fixtures.tagger_names import PUBLIC, generated

from benchmarks.record_io import DATA, STUDIES, markdown, range_text, write_record
from benchmarks.runner import command
from reticent.audit.evidence.json_form import to_json
from reticent.core.progress import Progress
from reticent.engine.corpus import Columns, open_corpus
from reticent.engine.detect.labels import category
from reticent.engine.split import SplitConfig, split_individuals
from reticent.engine.tokenizer_library import json_of
from reticent.ext.classify.stage import read_results
from reticent.ext.tagger.prompts import PROMPTS
from reticent.ext.tagger.result import evaluate_attack
from reticent.ext.tagger.scores import score_names
from reticent.ext.tagger.sets import AttackSet, build_attack_set, names_of_corpus
from reticent.ext.tagger.training import Examples, new_tagger, train_tagger
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.foundation import new_model, train_tokenizer
from reticent.trainer.models import load_tokenizer


def attacked(
    base: Any, tokenizer: Any, examples: Any, attack_set: AttackSet, epochs: tuple[int, ...], **options: Any
) -> list[dict[str, Any]]:
    """Train, and attack after some epochs; 0 is the base with its new head."""
    tagger = new_tagger(base)
    rows = []

    def measure(epoch: int) -> None:
        if epoch in (0, *epochs):
            result = to_json(evaluate_attack(score_names(tagger, tokenizer, attack_set.names), attack_set, PROMPTS))
            rows.append({"epoch": epoch, "result": result})

    measure(0)
    losses = train_tagger(
        tagger, tokenizer, examples, num_epochs=max(epochs), learning_rate=2e-3, after_epoch=measure, **options
    )
    for row in rows:
        row["loss"] = losses[row["epoch"] - 1] if row["epoch"] else None
    return rows


def shown(arm: str, row: dict[str, Any]) -> dict[str, Any]:
    """Record of one checkpoint."""
    result = row["result"]
    found = result["verified"]
    kept = ("value", "low", "high")
    return {
        "arm": arm,
        "epoch": row["epoch"],
        "loss": row["loss"],
        "strategy": found["pairwise"],
        "test_pairs": result["test"]["pairs"],
        **{name: {key: found[name][key] for key in kept} for name in ("advantage", "blind_advantage", "excess")},
        "map": result["test"]["list"]["map"]["value"],
        "by_occurrences": [
            {"low": part["low"], "names": part["names"], "advantage": part["advantage"]["value"]}
            for part in result["occurrences"]
            if "advantage" in part
        ],
    }


def measure_generated(num_names: int, epochs: tuple[int, ...], hidden_size: int) -> list[dict[str, Any]]:
    arms, attack_set, public = generated(num_names)
    tokenizer = load_tokenizer(train_tokenizer([PUBLIC + public], "wordpiece", 1200))
    base = new_model("bert", json_of(tokenizer), hidden_size=hidden_size, max_length=64)
    return [
        shown(f"generated, {arm}", row)
        for arm, examples in arms.items()
        for row in attacked(base, tokenizer, examples, attack_set, epochs)
    ]


def real_set(name: str, num_documents: int) -> tuple[Examples, AttackSet, list[str]]:
    """Sentences of members with their marked names, and names of members against names of held-out documents."""
    documents = read_documents(name, num_documents)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(documents, Path(folder) / "documents.parquet")
        corpus = open_corpus(Path(folder) / "documents.parquet", columns=Columns(spans="spans"))
        individuals = split_individuals(corpus, SplitConfig(heldout=0.4, reference=0.15))
        training, heldout = names_of_corpus(corpus, individuals)
        attack_set = build_attack_set(training, heldout, fewer=True, unit="pairs of individuals")
        codes = individuals.individual_codes(documents.column("individual_id").combine_chunks())
    texts, spans, public = [], [], []
    for code, row in zip(codes.tolist(), documents.to_pylist(), strict=True):
        own = sorted((s["start"], s["end"]) for s in row["spans"] if category(s["label"]) == "NAME")
        if individuals.mask("members")[code]:
            texts.append(row["text"])
            spans.append(own)
        elif individuals.mask("reference")[code]:
            public.append(row["text"])
    return Examples(texts, spans), attack_set, public


def measure_real(name: str, num_documents: int, epochs: tuple[int, ...]) -> list[dict[str, Any]]:
    examples, attack_set, public = real_set(name, num_documents)
    tokenizer = load_tokenizer(train_tokenizer([public], "wordpiece", 4000))
    base = new_model("bert", json_of(tokenizer), hidden_size=96, max_length=128)
    return [shown(name, row) for row in attacked(base, tokenizer, examples, attack_set, epochs, max_length=128)]


def measure_cost(name: str, num_documents: int, num_epochs: int) -> list[dict[str, Any]]:
    """Strict F1 on held-out individuals' own text, over all identifiers and of names, by what the tagger read."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(read_documents(name, num_documents), Path(folder) / "documents.parquet")
        foundation = {"kind": "bert", "text": "reference", "vocab_size": 4000, "hidden_size": 96, "num_epochs": 10,
                      "warmup_steps": 20}  # fmt: skip
        values = {
            "out": f"{folder}/run",
            "corpus": {"source": f"{folder}/documents.parquet", "spans": "spans"},
            "split": {"heldout": 0.4, "reference": 0.15},
            "detect": {"detectors": ["gold"]},
            "model": [{"name": "bert", "foundation": foundation, "objective": "mlm", "recipes": ["mlm"]}],
            "train": {"num_epochs": 1, "window_length": 128},
        }
        for text in ("keep", "surrogate"):
            tag = {"text": text, "from_recipes": ["base"], "num_epochs": num_epochs, "learning_rate": 2e-3}
            run = Run(parse_job({**values, "tag": tag}), Progress(quiet=True))
            execute(run, "classify")
            (result,) = read_results(run)
            (row,) = result.results
            names = row.classes[result.classes.index("NAME")].f1
            rows.append({"corpus": name, "text": text, "epochs": num_epochs, "individuals": result.individuals,
                         "micro_f1": to_json(row.micro_f1), "names_f1": to_json(names)})  # fmt: skip
    return rows


HEADS = ("arm", "epochs", "pairs", "advantage", "blind", "more than blind", "MAP")


def run(size: Annotated[str, ("toy", "cpu")] = "cpu") -> None:
    """Measure, print and write the record."""
    started = time.process_time()
    if size == "toy":
        rows = measure_generated(60, (1, 8), 32)
    else:
        rows = measure_generated(200, (1, 2, 4, 8, 16), 48)
        for name, num_documents, epochs in (("meddocan", 300, (1, 4)), ("tab", 60, (1, 4))):
            if (DATA / name).exists():
                rows += measure_real(name, num_documents, epochs)
            else:
                print(f"{name}: skipped, {DATA / name} does not exist")
    costs = measure_cost("meddocan", 300, 20) if size == "cpu" and (DATA / "meddocan").exists() else []
    for cost in costs:
        said = ", ".join(f"{name} {cost[name]['value']:.3f}" for name in ("micro_f1", "names_f1"))
        print(f"{cost['corpus']}, {cost['text']}: {said}")
    print(markdown(HEADS, [cells(row) for row in rows]))
    seconds = time.process_time() - started
    found = {"cpu_seconds": round(seconds), "rows": rows, "strict_f1": costs}
    print(write_record("taggers", json.loads(json.dumps(found)), size, STUDIES))
    check(rows)


def cells(row: dict[str, Any]) -> list[str]:
    return [row["arm"], row["epoch"], row["test_pairs"], range_text(row["advantage"]),
            f"{row['blind_advantage']['value']:.2f}", range_text(row["excess"]), f"{row['map']:.2f}"]  # fmt: skip


def check(rows: list[dict[str, Any]]) -> None:
    """The answer that is expected: names trained on for long are known, surrogates belong to no individual."""
    last = {row["arm"]: row for row in rows}
    first = next(row for row in rows if row["arm"] == "generated, plain" and row["epoch"] == 0)
    plain, surrogates = (last[f"generated, {arm}"] for arm in ("plain", "surrogates"))
    assert plain["excess"]["low"] > 0, "the attack found nothing in a tagger that was trained for long"
    assert plain["advantage"]["value"] > first["advantage"]["value"], "the advantage did not grow"
    assert surrogates["advantage"]["low"] <= 0, "the attack found names that the tagger never saw"


if __name__ == "__main__":
    command(run)
