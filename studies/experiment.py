"""What does the experiment of [@boutet2025] show on the generated hospital: every recipe, 4 to 64 epochs, three seeds?

Everything goes by the command line, as a user would do it: ``reticent synth``, ``new-job``, ``run``. The folder is
kept, so that an experiment that was stopped goes on where it was, and one that is done is only read.

    python -m studies.experiment --size cpu --work FOLDER

Size cpu takes one to two hours on two cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record_io import STUDIES, estimate_text, markdown, write_record
from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.report.selectors import loss_auc, ordinary_utility
from reticent.audit.stats.seeds import over_seeds
from reticent.job.experiment import HOSPITAL, SIZES

COMMAND = [sys.executable, "-m", "reticent"]


def run(size: str, work: Path | None = None) -> dict[str, Any]:
    """Run what is not done of the experiment in ``work``; returns and records what was found."""
    if size == "toy" and work is None:
        print("skipped: `studies.reproduce` runs the same job at this size")
        return {}
    if work is None:
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
            return run(size, Path(folder))
    work.mkdir(exist_ok=True)
    if not (work / HOSPITAL).is_dir():
        _reticent(work, "synth", HOSPITAL, *SIZES[size].synth.split())
    if not (work / "job.toml").is_file():
        job = _reticent(work, "new-job", "--size", size, stdout=subprocess.PIPE)
        (work / "job.toml").write_text(job)
    _reticent(work, "run", "job.toml")
    evidence = json.loads((work / "run" / "report" / "report.json").read_text())
    result = found_in(from_json(AuditEvidence, evidence, "report.json"))
    print(table(result))
    write_record("experiment", result, size, STUDIES)
    return result


def _reticent(work: Path, *arguments: str, stdout: int | None = None) -> str:
    return subprocess.run([*COMMAND, *arguments], cwd=work, check=True, stdout=stdout, text=True).stdout or ""


def found_in(evidence: AuditEvidence) -> dict[str, Any]:
    """Return the headline measures of every recipe and epoch: means over the seeds, intervals over individuals."""
    rows = [
        {
            "recipe": model.recipe if model.epoch else f"base ({model.objective})",
            "epoch": model.epoch,
            "utility": to_json(ordinary_utility(model.utility.heldout, model.objective)),
            "privacy": to_json(model.privacy["both"].types),
            "loss_auc": to_json(loss_auc(model)),
            "violations": model.ledger.violations if model.ledger else 0,
        }
        for model in over_seeds(evidence.models)
    ]
    return {
        "individuals": to_json(evidence.corpus.num_individuals),
        "documents": evidence.corpus.num_documents,
        "seeds": sorted({model.training for model in evidence.models if model.training}),  # by number
        "rows": rows,
    }


def table(result: dict[str, Any]) -> str:
    """Return a row a recipe: utility and Privacy after each number of epochs, and what the last one says of members."""
    epochs = sorted({row["epoch"] for row in result["rows"] if row["epoch"]})
    shown = []
    for recipe in dict.fromkeys(row["recipe"] for row in result["rows"]):
        of = {row["epoch"]: row for row in result["rows"] if row["recipe"] == recipe}
        last = of[max(of)]
        cells = [of.get(epoch) or (of.get(0) if epoch == epochs[0] else None) for epoch in epochs]
        shown.append(
            [
                recipe,
                *(f"{c['utility']['value']:.2f} / {c['privacy']['value']:.3f}" if c else "-" for c in cells),
                estimate_text(last["privacy"], 3),
                estimate_text(last["loss_auc"], 2),
            ]
        )
    heads = ["utility / Privacy", *(f"{epoch} epochs" for epoch in epochs), "Privacy at the end", "AUC of the loss"]
    return markdown(heads, shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="cpu")
    parser.add_argument("--work", type=Path, help="folder to keep; an experiment that is there goes on")
    arguments = parser.parse_args()
    run(arguments.size, arguments.work)


if __name__ == "__main__":
    main()
