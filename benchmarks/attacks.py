"""Which attacks tell members apart, on real reports, and under which recipe?

MTSamples, where a report is an individual. A small BERT and a small GPT-2 are pre-trained on a third of the reports and
fine-tuned on members among the rest until the plain recipes are overfitted: an attack that finds nothing there has no
power, and its number under a protected recipe says nothing. Every likelihood attack, and on GPT-2 those with shadow
models, with the individual as the unit; beside them the blind bag of words and the base model. The attacks on SmolLM2
and MiniLM are in the record of ``studies.foundation_models``.

    python -m benchmarks.attacks [--size toy|cpu]
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from fixtures.corpora import read_documents

from benchmarks.record_io import DATA, markdown, write_record
from benchmarks.runner import command
from reticent.audit.evidence.json_form import to_json
from reticent.core.progress import Progress
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

#: Reports and words of each; epochs; shadow models a recipe; bootstrap draws.
SIZES: dict[str, dict[str, int]] = {
    "toy": {"reports": 60, "words": 30, "epochs": 1, "shadows": 4, "draws": 100, "hidden": 16, "vocabulary": 400},
    "cpu": {"reports": 600, "words": 80, "epochs": 16, "shadows": 8, "draws": 1000, "hidden": 96, "vocabulary": 2000},
}
LIKELIHOOD = ["loss", "reference", "ratio", "zlib", "lowercase", "min_k", "min_k_plus_plus", "wbc", "ez"]


def job_values(documents: Path, out: Path, size: dict[str, int]) -> dict[str, Any]:
    """Return the job: both families, each with its plain and its protected recipes."""
    small = {"text": "reference", "vocab_size": size["vocabulary"], "hidden_size": size["hidden"]}
    return {
        "out": str(out),
        "corpus": {"source": str(documents)},
        "split": {"heldout": 0.33, "reference": 0.34},
        "detect": {"detectors": ["rules"]},
        "protect": {"k": 2, "n": 1},
        "model": [
            {"name": "gpt2", "objective": "clm", "recipes": ["clm", "clma", "ppclm"],
             "foundation": {"kind": "gpt2", "num_epochs": 4, **small}},
            {"name": "bert", "objective": "mlm", "recipes": ["mlm", "ppmlm"],
             "foundation": {"kind": "bert", "num_epochs": 8, **small},
             "train": {"num_epochs": 3 * size["epochs"]}},
        ],
        "train": {"num_epochs": size["epochs"], "checkpoint_epochs": [], "learning_rate": 2e-3,
                  "window_length": 192, "batch_size": 8},
        "audit": {"attacks": [*LIKELIHOOD, "mlm_ratio"], "num_bootstrap": size["draws"], "every_checkpoint": False,
                  "shadow": {"recipes": ["clm", "ppclm"], "num_shadows": size["shadows"],
                             "attacks": ["shadow", "lira_online", "lira_offline", "lira_sequence", "rmia",
                                         "rmia_online"]}},
    }  # fmt: skip


def first_words(texts: list[str], num_words: int) -> list[str]:
    """Cut each text after its first words, white space as it was."""
    first = re.compile(rf"\s*(?:\S+\s*){{0,{num_words}}}")
    return [first.match(text).group().rstrip() for text in texts]  # type: ignore[union-attr]


def attack_rows(models: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of model and attack: area, rates at low false positive rates, counts of individuals, verdict."""
    rows = []
    for model in models:
        about = {"model": model["model"], "recipe": model["recipe"], "epoch": model["epoch"]}
        blind = model.get("blind")
        if blind:
            rows.append({**about, "attack": "blind", "auc": blind["auc"]})
        for name, found in model["membership"].items():
            kept = ("auc", "tpr_at_fpr", "num_members", "num_nonmembers", "verdict", "why", "error")
            rows.append({**about, "attack": name, **{key: found[key] for key in kept if key in found}})
    return rows


def attack_table(rows: list[dict[str, Any]]) -> str:
    """Return areas as a table of attacks by recipe; what the rules call invalid or without power is marked."""
    columns = list(dict.fromkeys((row["model"], row["recipe"]) for row in rows))
    found = {(row["model"], row["recipe"], row["attack"]): row for row in rows}

    def cell(model: str, recipe: str, attack: str) -> str:
        row = found.get((model, recipe, attack))
        if row is None or not row.get("auc") or row["auc"]["value"] is None:
            return "-"
        auc = row["auc"]
        ends = "" if auc["low"] is None else f" [{auc['low']:.2f}, {auc['high']:.2f}]"
        mark = {"invalid": " (invalid)", "no power": " (no power)"}.get(row.get("verdict", ""), "")
        return f"{auc['value']:.3f}{ends}{mark}"

    attacks = list(dict.fromkeys(row["attack"] for row in rows))
    lines = [[attack, *(cell(*column, attack) for column in columns)] for attack in attacks]
    return markdown(["AUC", *(f"{model} {recipe}" for model, recipe in columns)], lines)


def run(size: Annotated[str, SIZES] = "cpu") -> dict[str, Any]:
    """Run the job, print the table and write the record; returns it."""
    if not (DATA / "mtsamples").exists():
        print(f"skipped: no mtsamples under {DATA} (RETICENT_DATA)", file=sys.stderr)
        return {}
    about, started = SIZES[size], time.perf_counter()
    table = read_documents("mtsamples", None)
    # Spread over the file: neighbours are of one speciality.
    table = table.take([number * len(table) // about["reports"] for number in range(about["reports"])])
    texts = first_words(table.column("text").to_pylist(), about["words"])
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        documents = Path(folder) / "documents.parquet"
        pq.write_table(table.drop_columns(["spans", "text"]).append_column("text", pa.array(texts)), documents)
        progress = Progress()
        job = Run(parse_job(job_values(documents, Path(folder) / "run", about)), progress)
        execute(job)
        evidence = to_json(job.evidence)
    result = {
        "cut": f"first {about['words']} words of each report",
        "individuals": evidence["corpus"]["num_individuals"],
        "epochs": {model.name: job.job.training(model).num_epochs for model in job.job.model},
        "num_shadows": about["shadows"],
        "rows": attack_rows(evidence["models"]),
        "leaks": [
            {key: model[key] for key in ("model", "recipe", "epoch", "utility", "privacy", "excess")}
            for model in evidence["models"]
        ],
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(attack_table(result["rows"]))
    print(write_record("attacks", result, size))
    return result


if __name__ == "__main__":
    command(run)
