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


def run(size: str) -> dict[str, Any]:
    """Run the demo and write ``record/demo.json``; at toy size its own test does the work."""
    if size == "toy":
        print("demo: see tests/job/test_demo.py")
        return {}
    from reticent.audit.evidence.json_form import to_json
    from reticent.audit.report.selectors import all_utility, last_checkpoints, loss_auc, ordinary_utility
    from reticent.core.progress import Progress
    from reticent.job.demo import run_demo

    progress = Progress()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        evidence = run_demo(Path(folder) / "demo", progress=progress).evidence
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


if __name__ == "__main__":
    run("cpu")
