"""Can an identifier that is context only be inferred from the words around it, and which recipe would prevent that?

ppclm never predicts an identifier, but reads it. Four variants of it (context kept, a surrogate drawn afresh each
epoch, a tag, embeddings frozen) and plain clm are fine-tuned on the records of a hospital that does not exist.
Beside utility stand inversion (top-1 rate among matched decoys, bits), association (is a name tied to the terms of its
person's documents?) and embedding shift (do the rows of identifiers show that they were used?): members against
held-out individuals, whose identifiers and decoys were never trained on.

    python -m studies.inversion [--size toy|cpu]
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from benchmarks.record_io import STUDIES, estimate_text, markdown, write_record
from benchmarks.runner import command
from reticent.audit.evidence.audit import publish_audit
from reticent.audit.evidence.json_form import to_json
from reticent.core.progress import Progress
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

#: Our name -> what differs from ppclm.
VARIANTS: dict[str, dict[str, Any]] = {
    "keep": {},
    "surrogate": {"context": "surrogate"},
    "tag": {"context": "tag"},
    "freeze": {"freeze_embeddings": True},
}
SIZES: dict[str, dict[str, Any]] = {
    "toy": {
        "individuals": 40, "public": 60, "epochs": 1, "vocabulary": 400, "hidden": 16, "decoys": 3, "each": 2,
        "draws": 100,
    },
    "cpu": {
        "individuals": 200, "public": 2000, "epochs": 16, "vocabulary": 3000, "hidden": 128, "decoys": 7, "each": 4,
        "draws": 1000,
    },
}  # fmt: skip


def job_of(folder: Path, size: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the job as nested dictionaries."""
    hospital = folder / "hospital"
    foundation = {
        "kind": "gpt2", "text": str(hospital / "public"), "vocab_size": size["vocabulary"],
        "hidden_size": size["hidden"], "num_epochs": 2, "batch_size": 32,
    }  # fmt: skip
    return {
        "out": str(folder / "run"),
        "seed": seed,
        "corpus": {"source": str(hospital / "documents"), "spans": "spans", "household_id": "household_id"},
        "split": {"heldout": 0.5},
        "detect": {"detectors": ["gold", "rules", "records"], "records": str(hospital / "records.parquet")},
        "recipes": {name: {"base": "ppclm", **changed} for name, changed in VARIANTS.items()},
        "model": [
            {"name": "gpt2", "objective": "clm", "recipes": ["clm", *VARIANTS], "foundation": foundation},
        ],
        "train": {
            "num_epochs": size["epochs"], "checkpoint_epochs": [size["epochs"]], "window_length": 160,
            "learning_rate": 2e-3, "batch_size": 16,
        },
        "audit": {
            "num_bootstrap": size["draws"], "attacks": ["loss", "reference"],
            "inversion": {"num_decoys": size["decoys"], "per_individual": size["each"]},
        },
    }  # fmt: skip


def measure(size_name: str, seed: int = 0) -> dict[str, Any]:
    """Train the variants, audit them, and return what may be kept."""
    size, began = SIZES[size_name], time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as temporary:
        folder = Path(temporary)
        (folder / "hospital").mkdir()
        hospital = SynthConfig(
            num_individuals=size["individuals"], words_per_document=80, documents_per_individual=2.0,
            public_documents=size["public"], languages=("en",), seed=seed,
        )  # fmt: skip
        synthesize(folder / "hospital", hospital)
        run = Run(parse_job(job_of(folder, size, seed)), Progress())
        execute(run, "audit")
        from reticent.job.stages.audit import gather_evidence

        evidence = to_json(publish_audit(gather_evidence(run)))
    kept = ("recipe", "epoch", "utility", "privacy", "inversion", "ledger")
    return {
        "seconds": time.perf_counter() - began,
        "settings": {key: size[key] for key in ("individuals", "epochs", "decoys", "each")},
        "num_individuals": evidence["corpus"]["num_individuals"],
        "models": [{key: model[key] for key in kept} for model in evidence["models"]],
    }


def table(result: dict[str, Any]) -> str:
    """Return the one table: a row a recipe."""
    heads = [
        "recipe", "held-out utility", "direct top-1, members", "held-out", "excess", "by ordinary words: excess",
        "indirect: excess", "name and term, members", "held-out", "rows moved (input)",
    ]  # fmt: skip
    rows, shown = [], partial(estimate_text, digits=2)
    for model in result["models"]:
        found = model["inversion"]
        direct, indirect = (found[kind]["all"]["top1"] for kind in ("direct", "indirect"))
        pair = found.get("association", {}).get("rate", {})
        rows.append([
            model["recipe"], estimate_text(model["utility"]["heldout"]["ordinary_token_accuracy"]),
            shown(direct["members"]), shown(direct["heldout"]), shown(direct["excess"]),
            shown(found["direct"]["ordinary"]["top1"]["excess"]), shown(indirect["excess"]),
            shown(pair.get("members")), shown(pair.get("heldout")),
            shown(found.get("embedding_shift", {}).get("input")),
        ])  # fmt: skip
    return markdown(heads, rows)


def check(result: dict[str, Any]) -> None:
    """Refuse an experiment that is not clean, whatever it found."""
    models = {model["recipe"]: model for model in result["models"]}
    assert set(models) == {"base", "clm", *VARIANTS}
    for name, model in models.items():
        for kind in ("direct", "indirect"):
            found = model["inversion"][kind]
            assert found["num_decoys"] == result["settings"]["decoys"]
            assert found["num_targets"] == models["base"]["inversion"][kind]["num_targets"], "other targets"
            for words in ("all", "ordinary"):
                for side in ("members", "heldout"):
                    assert found[words]["top1"][side]["n"], f"{name}: nobody was measured"
        assert name in ("base", "clm") or model["ledger"]["violations"] == 0
    frozen = models["freeze"]["inversion"]["embedding_shift"]
    assert frozen["input"]["value"] == frozen["output"]["value"] == 0.5


def run(size: Annotated[str, SIZES] = "toy") -> None:
    """Measure, check, print and keep the record."""
    result = measure(size)
    check(result)
    print(table(result))
    counted = result["models"][0]["inversion"]
    print({kind: counted[kind]["num_targets"] for kind in ("direct", "indirect")}, counted["direct"]["chance"])
    write_record("inversion", result, size, STUDIES)


if __name__ == "__main__":
    command(run)
