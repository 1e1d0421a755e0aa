"""What is a fine-tuned model worth downstream, protected or not? Documents are classified from checkpoints.

Stand-ins for the smoking task of [@boutet2025], which is not public (found through ``RETICENT_DATA``, else skipped):

- ``mtsamples``: the medical specialty of a report, by its first 150 words. A report is an individual. It is listed
  under one to six headings, some of which say what kind of document it is; its class is the one heading that does not.
  A report with several of these, or none, has no label.
- ``mts_dialog``: the section of a note that a dialogue is about. Dialogues were written from sections of MTSamples:
  those whose section is found in the same report are one individual, the others are one each.

Small models are pre-trained on the reference individuals and fine-tuned on the members, plainly and protected. From the
base and two epochs of each, classifiers are trained on the members' labels: with the published setting, and with one
for models this small (a rate of 1e-3, 10 epochs; chosen beforehand). Three seeds of the head and of the order. Beside
them: the commonest class, and logistic regression on bags of words.

    python -m studies.classification [--corpus mtsamples] [--size toy|cpu]
"""

from __future__ import annotations

import csv
import json
import re
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.record_io import DATA, STUDIES, spread, write_record
from benchmarks.runner import command
from reticent.audit.evidence.json_form import to_json
from reticent.core.progress import Progress
from reticent.ext.classify.documents import labelled_documents
from reticent.ext.classify.labels import LabelledTokens
from reticent.ext.classify.measure import Truth, predict_from_words, predict_majority
from reticent.ext.classify.training import ClassifyConfig, classify
from reticent.job.config import ModelSection, parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

CORPORA = ("mtsamples", "mts_dialog")
#: Headings of MTSamples that say what kind of document it is, not of which specialty.
KINDS = {
    "Surgery", "Consult - History and Phy.", "Radiology", "General Medicine", "SOAP / Chart / Progress Notes",
    "Discharge Summary", "Emergency Room Reports", "Office Notes", "Letters", "IME-QME-Work Comp etc.",
    "Lab Medicine - Pathology", "Autopsy",
}  # fmt: skip
DIALOGUES = ("TrainingSet", "ValidationSet", "TestSet-1-MEDIQA-Chat-2023", "TestSet-2-MEDIQA-Sum-2023")
#: Characters of a section, spaces and punctuation aside, by which it is found in a report.
SECTION_CHARACTERS = (40, 80)
SETTINGS = {
    "paper": {"learning_rate": 2e-5, "num_epochs": 4},
    "small models": {"learning_rate": 1e-3, "num_epochs": 10},
}
SEEDS = (0, 1, 2)
#: Words of a report of MTSamples that are read.
NUM_WORDS = 150
MIN_INDIVIDUALS = 5
NUM_BOOTSTRAP = 1000


def read_documents(name: str) -> pa.Table:
    """Return a corpus as a table of documents with a label, which some lack."""
    reports = [json.loads(line) for line in (DATA / "mtsamples" / "mtsamples.jsonl").open(encoding="utf-8")]
    if name == "mtsamples":
        rows = []
        for report in reports:
            special = [heading for heading in report["specialties"] if heading not in KINDS]
            label = special[0] if len(special) == 1 else None
            key = report["doc_id"]
            text = " ".join(report["text"].split()[:NUM_WORDS])
            rows.append({"doc_id": key, "individual_id": key, "text": text, "label": label})
        return pa.Table.from_pylist(rows)
    texts = [_plain(report["text"]) for report in reports]
    whole, ends = "\n".join(texts), list(accumulate(len(text) + 1 for text in texts))
    rows = []
    for part in DIALOGUES:
        with (DATA / "mts_dialog" / f"MTS-Dialog-{part}.csv").open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.DictReader(file)):
                key, section = f"{part}-{number}", _plain(row["section_text"])
                least, most = SECTION_CHARACTERS
                place = whole.find(section[:most]) if len(section) >= least else -1
                whose = reports[bisect(ends, place)]["doc_id"] if place >= 0 else key
                label = row["section_header"]
                rows.append({"doc_id": key, "individual_id": whose, "text": row["dialogue"], "label": label})
    return pa.Table.from_pylist(rows)


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


def job_values(documents: Path, out: Path, size: str) -> dict[str, Any]:
    """Return the job: a small BERT and a small GPT-2, each fine-tuned plainly and protected."""
    toy = size == "toy"
    small = {"text": "reference", "vocab_size": 400 if toy else 2000, "hidden_size": 16 if toy else 64}
    kept = [1] if toy else [2, 6]
    return {
        "out": str(out),
        "corpus": {"source": str(documents)},
        "split": {"heldout": 0.3, "reference": 0.25},
        "protect": {"k": 2, "n": 1},
        "model": [
            {"name": "bert", "objective": "mlm", "recipes": ["mlm", "ppmlm"],
             "foundation": {"kind": "bert", "num_epochs": 1 if toy else 8, **small}},
            {"name": "gpt2", "objective": "clm", "recipes": ["clm", "ppclm"],
             "foundation": {"kind": "gpt2", "num_epochs": 1 if toy else 4, **small}},
        ],
        "train": {"num_epochs": kept[-1], "checkpoint_epochs": kept, "learning_rate": 1e-3,
                  "window_length": 32 if toy else 128, "batch_size": 16},
        "classify": {"label": "label", "windows": "first", "min_individuals": 1 if toy else MIN_INDIVIDUALS},
    }  # fmt: skip


def measure(name: str, size: str) -> dict[str, Any]:
    """Return the part of one corpus of the record."""
    table = read_documents(name)
    if size == "toy":  # three classes
        commonest = table.column("label").value_counts().to_pylist()
        commonest = sorted((row for row in commonest if row["values"]), key=lambda row: -row["counts"])[:3]
        table = table.filter(pc.is_in(table["label"], pa.array([row["values"] for row in commonest])))[:90]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        documents = Path(folder) / "documents.parquet"
        pq.write_table(table, documents)
        progress = Progress()
        run = Run(parse_job(job_values(documents, Path(folder) / "run", size)), progress)
        execute(run, "train")
        seconds = {stage: round(value, 1) for stage, value in progress.seconds.items() if value >= 0.1}
        models = {}
        for model in run.job.model:
            began = time.perf_counter()
            models[model.name] = _classify(run, model, SEEDS if size != "toy" else SEEDS[:1])
            seconds[f"classify/{model.name}"] = round(time.perf_counter() - began, 1)
    return {
        "documents": table.num_rows,
        "individuals": len(table.column("individual_id").unique()),
        "num_seeds": len(SEEDS) if size != "toy" else 1,
        "models": models,
        "seconds": round(time.perf_counter() - started, 1),
        "seconds_per_stage": seconds,
    }


def _classify(run: Run, model: ModelSection, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Baselines, and every start in every setting."""
    documents = labelled_documents(run, model, run.job.classifying())
    assert isinstance(documents, LabelledTokens)
    classes, is_train, individual = documents.classes, documents.is_train, documents.store.individual
    truth = Truth(classes[~is_train], individual[~is_train], len(documents.class_names))
    words = predict_from_words(documents.store, classes, is_train)
    rows = [
        _row("majority class", None, [predict_majority(classes, is_train)], truth, None),
        _row("bag of words", None, [words], truth, None),
    ]
    starts = [("base", 0, Path(run.base_of(model)))]
    starts += [(name, epoch, path) for name in model.recipes for epoch, path in run.checkpoints(model, name).items()]
    for setting, options in SETTINGS.items():
        base = None
        for name, epoch, path in starts:
            said = [_predictions(path, documents, run, seed, options) for seed in seeds]
            rows.append({**_row(name, base, said, truth, words), "epoch": epoch, "setting": setting})
            base = base or said
    return {
        "classes": len(documents.class_names),
        "train": {"documents": int(is_train.sum()), "individuals": len(np.unique(individual[is_train]))},
        "heldout": {"documents": int((~is_train).sum()), "individuals": len(np.unique(individual[~is_train]))},
        "left_out": documents.left_out,
        "rows": rows,
    }


def _predictions(path: Path, documents: LabelledTokens, run: Run, seed: int, options: dict[str, Any]) -> np.ndarray:
    length = run.job.train.window_length
    return classify(
        path, documents, ClassifyConfig(window_length=length, windows="first", seed=seed, **options)
    ).predicted


def _row(
    name: str, base: list[np.ndarray] | None, said: list[np.ndarray], truth: Truth, words: np.ndarray | None
) -> dict[str, Any]:
    """F1 of the first seed with its interval, the spread over seeds, differences over the same held-out individuals."""
    from reticent.ext.classify.measure import compare, measure

    options = {"num_bootstrap": NUM_BOOTSTRAP, "seed": 0}
    found = [to_json(measure(truth, predicted, **options, small_cell=5)) for predicted in said]
    row: dict[str, Any] = {"start": name, "epoch": None, "setting": None}
    for metric in ("macro_f1", "micro_f1"):
        row[metric] = found[0][metric]
        row[f"{metric}_over_seeds"] = spread([result[metric]["value"] for result in found])
    others = {"base": base[0] if base else None, "bag_of_words": words}
    for other, predicted in others.items():
        if predicted is not None:
            row[f"macro_f1_less_{other}"] = to_json(compare(truth, said[0], predicted, **options))
    return row


def run(size: Annotated[str, ("toy", "cpu")] = "cpu", corpus: Annotated[Sequence[str], CORPORA] = CORPORA) -> None:
    """Measure each corpus, write one record a corpus and print its rows."""
    for name in corpus:
        if not (DATA / name).exists() or not (DATA / "mtsamples").exists():
            print(f"skipped {name}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
            continue
        result = measure(name, size)
        write_record(f"classification_{name}", {"settings": SETTINGS, **result}, size, STUDIES)
        for model, found in result["models"].items():
            for row in found["rows"]:
                macro = row["macro_f1"]
                print(
                    f"{name} {model:5} {row['setting'] or '-':13} {row['start']:15} {row['epoch'] or '-':>2} "
                    f"macro {macro['value']:.3f} [{macro['low']:.3f}, {macro['high']:.3f}] micro "
                    f"{row['micro_f1']['value']:.3f}"
                )


if __name__ == "__main__":
    command(run)
