"""How many canaries does a model give back, without and with differential privacy, and what does that cost?

The lab of the field's textbooks: 1,000 texts, each of one person, about 50 of them with a canary (100 are drawn, a fair
coin leaves out half, which are the control), DP-SGD with epsilon none, 8 and 4 for each person. Beside the extraction
rate stand exposure, the one-run bound on epsilon and the perplexity on people the model never saw.

The textbook trains GPT-2 for 5 epochs on canaries that stand once. A model small enough for a CPU learns none of them
so: here a canary stands 20 times in its person's text and training takes 20 epochs. Even then it completes none word by
word; exposure is what shows that it knows them. DP-SGD draws half of the people a step (`dp_baseline.LARGE`), so it
takes fewer and larger steps: a canary it does not learn may be owed to these as well as to the noise.

    python -m studies.canary_lab --size cpu
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record_io import STUDIES, estimate_text, markdown, write_record
from studies.dp_baseline import LARGE, SAMPLE_RATE

SIZES: dict[str, dict[str, Any]] = {
    "toy": {"individuals": 60, "canaries": 10, "repetitions": 1, "hidden": 32, "layers": 1, "epochs": 1, "base": 1},
    "cpu": {
        "individuals": 1250,
        "canaries": 100,
        "repetitions": 20,
        "hidden": 128,
        "layers": 2,
        "epochs": 20,
        "base": 4,
    },
}
DP = {"unit": "individual", "max_documents": 1, "sample_rate": SAMPLE_RATE}
HELDOUT = 0.2
#: Name of the model section -> epsilon of the training steps; None trains without. A run with canaries promises no
#: epsilon, because planting them reads every document, so it is given the noise.
WAYS: dict[str, float | None] = {"none": None, "epsilon-8": 8.0, "epsilon-4": 4.0}


def run(size: str) -> dict[str, Any]:
    """Run the lab; toy size checks that it works, cpu size writes ``record/canary_lab.json``."""
    from reticent.audit.evidence.json_form import to_json
    from reticent.engine.synthetic import SynthConfig, synthesize
    from reticent.job.config import parse_job
    from reticent.job.pipeline import execute
    from reticent.job.run import Run

    about = SIZES[size]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as name:
        folder = Path(name)
        (folder / "hospital").mkdir()
        synthesize(
            folder / "hospital",
            SynthConfig(
                num_individuals=about["individuals"], documents_per_individual=1.0, words_per_document=40,
                languages=("en",), public_documents=2 * about["individuals"],
            ),
        )  # fmt: skip
        base = Run(parse_job(_base_job(folder, about)))
        execute(base, "foundation")
        lab = Run(parse_job(_lab_job(folder, about, folder / "base" / "foundation" / "base" / "model")))
        execute(lab, "audit")
        evidence = to_json(lab.evidence)
    result = {
        "seconds": round(time.perf_counter() - started, 1),
        "individuals": evidence["corpus"]["num_individuals"],
        "repetitions": about["repetitions"],
        "epochs": about["epochs"],
        "rows": [_row(evidence, way) for way in WAYS],
    }
    assert all(row["canaries"]["num_included"] for row in result["rows"])
    print(table(result["rows"]))
    write_record("canary_lab", result, size, STUDIES)
    return result


def _common(folder: Path, out: str, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "out": str(folder / out),
        "corpus": {"source": str(folder / "hospital" / "documents"), "spans": "spans"},
        "split": {"heldout": HELDOUT},
        "detect": {"detectors": ["gold"]},
        "train": {"num_epochs": about["epochs"], "window_length": 256, "batch_size": 16, "learning_rate": 2e-3},
    }


def _base_job(folder: Path, about: dict[str, Any]) -> dict[str, Any]:
    foundation = {
        "kind": "gpt2", "text": str(folder / "hospital" / "public"), "vocab_size": 1000, "num_heads": 2,
        "hidden_size": about["hidden"], "num_layers": about["layers"], "num_epochs": about["base"],
    }  # fmt: skip
    model = {"name": "base", "objective": "clm", "recipes": ["clm"], "foundation": foundation}
    return {**_common(folder, "base", about), "model": [model]}


def _lab_job(folder: Path, about: dict[str, Any], base: Path) -> dict[str, Any]:
    models = []
    for way, epsilon in WAYS.items():
        model: dict[str, Any] = {"name": way, "base": str(base), "objective": "clm", "recipes": ["clm"]}
        if epsilon is not None:
            dp = {**DP, "noise_multiplier": _noise(epsilon, about)}
            model |= {"recipes": ["dp-clm"], "train": {**LARGE, "dp": dp}}
        models.append(model)
    return {
        **_common(folder, "lab", about),
        "model": models,
        "canaries": {"num": about["canaries"], "arms": ["protected"], "repetitions": about["repetitions"]},
        "audit": {"attacks": ["loss"], "every_checkpoint": False},
    }


def _noise(epsilon: float, about: dict[str, Any]) -> float:
    from reticent.trainer.config import PrivacyConfig
    from reticent.trainer.privacy import plan_privacy

    num_members = round((1 - HELDOUT) * about["individuals"])
    config = PrivacyConfig(target_epsilon=epsilon, **DP)
    return plan_privacy(config, num_members, about["epochs"], batch_size=16).noise_multiplier


def _row(evidence: dict[str, Any], way: str) -> dict[str, Any]:
    (model,) = [m for m in evidence["models"] if m["model"] == way and m["recipe"] != "base"]
    (found,) = [m for m in evidence["extraction"]["models"] if m["model"] == way and m["recipe"] != "base"]
    canaries = found["canaries"]["arms"]["protected"]
    return {
        "way": way,
        "perplexity": model["utility"]["heldout"]["perplexity"],
        "membership_auc": model["membership"]["loss"]["auc"],
        "most_exposure": found["canaries"]["most_exposure"],
        "canaries": canaries,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return a row a way of training."""
    heads = ["DP", "perplexity, held out", "extracted", "exposure, in", "exposure, left out", "epsilon at least"]
    return markdown(
        heads,
        [
            [
                row["way"],
                estimate_text(row["perplexity"], 2),
                estimate_text(row["canaries"]["extracted"]["included"], 2),
                estimate_text(row["canaries"]["exposure"]["included"], 2),
                estimate_text(row["canaries"]["exposure"]["excluded"], 2),
                f"{row['canaries']['one_run']['at_least'] or 0:.2f}",
            ]
            for row in rows
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=list(SIZES), default="cpu")
    run(parser.parse_args().size)
