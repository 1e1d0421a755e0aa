"""How long does the demo take, and what does it show?

Runs the demo in a fresh folder and keeps its table, its seconds per stage and its figure: what the README quotes.

    python -m benchmarks.demo
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record_io import write_record
from reticent.audit.evidence.json_form import to_json
from reticent.audit.report.selectors import all_utility, loss_auc, ordinary_utility
from reticent.audit.stats.seeds import last_checkpoints
from reticent.core.progress import Progress
from reticent.job import demo


def run(size: str) -> dict[str, Any]:
    """Run the demo and write ``record/demo.json``."""
    if size == "toy":
        whole = demo.demo_job
        demo.PUBLIC_DOCUMENTS, demo.demo_job = 60, lambda out, seed, **_: _smaller(whole(out, seed))
    progress = Progress()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        evidence = demo.run_demo(
            Path(folder) / "demo", progress=progress, num_individuals=12 if size == "toy" else None
        ).evidence
    seconds = time.perf_counter() - started
    result = {
        "seconds": round(seconds, 1),
        "seconds_per_stage": {stage: round(value, 2) for stage, value in progress.seconds.items()},
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "individuals": to_json(evidence.corpus.num_individuals),
        "documents": evidence.corpus.num_documents,
        "words": evidence.corpus.num_words,
        "table": [
            to_json(
                {
                    "recipe": model.recipe,
                    "objective": model.objective,
                    "epoch": model.epoch,
                    "utility": ordinary_utility(model.utility.heldout, model.objective),
                    "utility_all": all_utility(model.utility.heldout, model.objective),
                    "privacy": model.privacy["both"],
                    "excess": (model.excess or {}).get("both"),
                    "loss_auc": loss_auc(model),
                    "ledger": model.ledger,
                }
            )
            for model in last_checkpoints(evidence.models)
        ],
    }
    write_record("demo", result, size)
    return result


def _smaller(job: dict[str, Any]) -> dict[str, Any]:
    """The same models and recipes, with hardly any weights and one epoch."""
    for model in job["model"]:
        model["foundation"] |= {"vocab_size": 300, "hidden_size": 16, "num_layers": 1, "num_epochs": 1}
        model.pop("train", None)
    job["train"] |= {"num_epochs": 1, "checkpoint_epochs": [1]}
    job["audit"]["num_bootstrap"] = 100
    return job


if __name__ == "__main__":
    run("cpu")
