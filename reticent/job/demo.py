"""The demo: a whole job on a generated hospital, at a size that two CPU cores finish in minutes.

The stand-in foundation models are a small BERT and a small GPT-2, pre-trained here on generated public text, so
that the demo needs no network. Nothing else differs from a real run: the same job, the same stages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reticent.core.artifact import JOB, is_up_to_date, write_artifact
from reticent.core.errors import ArtifactError
from reticent.core.progress import Progress
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.config import load_kept_job, parse_job
from reticent.job.config.job import with_end_of_text
from reticent.job.pipeline import execute
from reticent.job.run import Run

NUM_INDIVIDUALS = 120
WORDS_PER_DOCUMENT = 80
DOCUMENTS_PER_INDIVIDUAL = 2.0
PUBLIC_DOCUMENTS = 3000
#: Of the tiny demo, which shows every stage in about a minute and nothing that a figure could rest on.
TINY_INDIVIDUALS = 60
TINY_PUBLIC_DOCUMENTS = 600


def demo_job(out: Path, seed: int, *, tiny: bool = False) -> dict[str, Any]:
    """Return the demo's job as nested dictionaries, in the form of a job file; with ``tiny`` it trains one causal
    model, with and without protection."""
    hospital = out / "hospital"
    foundation = {"text": str(hospital / "public"), "vocab_size": 3000}
    job: dict[str, Any] = {
        "out": str(out),
        "seed": seed,
        "corpus": {"source": str(hospital / "documents"), "spans": "spans", "household_id": "household_id"},
        "split": {"heldout": 0.5},
        "detect": {"detectors": ["gold", "rules", "records"], "records": str(hospital / "records.parquet")},
        "index": {"max_n": 2},
        "protect": {"k": 2, "n": 1, "policy": "all"},
        "model": [
            {
                "name": "bert",
                "objective": "mlm",
                "recipes": ["mlm", "ppmlm"],
                "foundation": {"kind": "bert", "num_epochs": 5, "batch_size": 16, **foundation},
                # MLM draws 15 % of the words an epoch: it needs more of them to see each word as often as CLM does.
                "train": {"num_epochs": 48, "checkpoint_epochs": [8, 24, 48]},
            },
            {
                "name": "gpt2",
                "objective": "clm",
                "recipes": ["clm", "clma", "ppclm"],
                "foundation": {"kind": "gpt2", "num_epochs": 2, "batch_size": 32, **foundation},
            },
        ],
        "train": {
            "num_epochs": 20,
            "checkpoint_epochs": [4, 8, 20],
            "window_length": 160,
            "learning_rate": 2e-3,
            "batch_size": 16,
        },
        "audit": {"num_bootstrap": 500},
    }
    if tiny:
        gpt2 = job["model"][1]
        few_steps = gpt2["foundation"] | {"warmup_steps": 10}
        job["model"] = [gpt2 | {"recipes": ["clm", "ppclm"], "foundation": few_steps}]
        job["train"] |= {"num_epochs": 8, "checkpoint_epochs": [8]}
    return job


def run_demo(
    out: Path,
    *,
    seed: int = 0,
    num_individuals: int | None = None,
    tiny: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Generate the synthetic hospital (unless it is there already), run the demo's job on it, and return the finished
    run.

    Raises
    ------
    ArtifactError
        ``out`` holds the run of another job, whose results would be replaced.
    """

    progress = progress or Progress(quiet=True)
    settings: dict[str, Any] = {
        "num_individuals": num_individuals or (TINY_INDIVIDUALS if tiny else NUM_INDIVIDUALS),
        "words_per_document": WORDS_PER_DOCUMENT,
        "documents_per_individual": DOCUMENTS_PER_INDIVIDUAL,
        "public_documents": TINY_PUBLIC_DOCUMENTS if tiny else PUBLIC_DOCUMENTS,
        "languages": ["en"],
        "seed": seed,
    }
    run = Run(parse_job(with_end_of_text(demo_job(out, seed, tiny=tiny))), progress)
    hospital = out / "hospital"
    if (out / JOB).exists() and not hospital.exists():
        source = load_kept_job(out / JOB).corpus.source
        if not isinstance(source, str) or Path(source).resolve() != (hospital / "documents").resolve():
            raise ArtifactError(f"{out}: holds the run of another job; choose another --out")
    run.prepare_folder()
    if not is_up_to_date(hospital, kind="synth", config=settings, inputs={}):
        counts: dict[str, Any] = {}
        with (
            progress.stage("hospital", counts),
            write_artifact(hospital, kind="synth", config=settings, inputs={}) as w,
        ):
            config = SynthConfig(**{**settings, "languages": tuple(settings["languages"])})
            counts.update(synthesize(w.path, config))
            w.counts.update(counts)
    execute(run)
    return run
