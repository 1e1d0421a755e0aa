"""The commands ``new-job``, which prints the job file of the published experiment, and ``status``,
on a run's progress.
"""

from __future__ import annotations

import glob
import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from reticent.cli.options import (
    AsJson,
    Detector,
    Set,
    job_from_source,
    job_of,
    new_progress,
    read_job,
)
from reticent.cli.show import print_status
from reticent.core.errors import PolicyError, ReticentError
from reticent.job.config import Job
from reticent.job.experiment import experiment_job, minimal_job
from reticent.job.run import Run
from reticent.job.status import job_status


class SizeName(Enum):
    """Sizes of `reticent.job.experiment.SIZES`, named here too so that --help stays fast."""

    TOY = "toy"
    CPU = "cpu"
    SMALL = "small"
    BASE = "base"


def new_job(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="Your documents (file, folder or glob); without them the job is one for the generated hospital.",
        ),
    ] = None,
    size: Annotated[
        SizeName | None,
        typer.Option(
            metavar="SIZE",
            help="toy: a minute. cpu: one to two hours on 2 cores, small models pre-trained first. small: one GPU, "
            "DistilBERT and DistilGPT-2. base: one large GPU, BERT-base and GPT-2, the published settings "
            "(default: cpu).",
        ),
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="Run folder that the job will write.")] = "run",
    mlm: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="BERT-like foundation model: a folder or a hub name. Alone: no --clm."),
    ] = None,
    clm: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="GPT-like foundation model: a folder or a hub name. Alone: no --mlm."),
    ] = None,
    minimal: Annotated[
        bool,
        typer.Option("--minimal", help="A short job: one protected model beside its unprotected twin; no --size."),
    ] = False,
    *,
    detector: Detector = None,
    settings: Set = None,
) -> None:
    """Print the job file of the experiment of Boutet et al. (2025): all recipes, 4 to 64 epochs, 3 seeds, the audit.

    Read it, change it, and give it to reticent run. With --minimal it is a page long.
    """
    if minimal and size is not None:
        raise PolicyError("--size: has no effect with --minimal")
    corpus = detect = None
    if source is not None:
        job = job_from_source(source, Path(out), detector, marked=True, settings=settings, used=("corpus", "detect"))
        given = job.model_dump(exclude_defaults=True, include={"corpus", "detect"})
        corpus, detect = given["corpus"], {"detectors": job.detect.detectors, **given.get("detect", {})}
        if detect.get("records", {}).keys() == {"table"}:
            detect["records"] = detect["records"]["table"]  # the short form, easier to read
    elif detector or settings:
        raise PolicyError("SOURCE is missing: the options are about documents")
    bases = {name: base for name, base in (("mlm", mlm), ("clm", clm)) if base is not None}
    if source is not None and "://" not in source and not glob.glob(source):
        new_progress(False).warn(f"{source}: nothing is there; paths are meant from the folder you stand in")
    about: dict[str, Any] = {"out": out, "corpus": corpus, "detect": detect, "bases": bases}
    if source is not None:
        about["num_individuals"] = _num_individuals(job)
    print(minimal_job(**about) if minimal else experiment_job((size or SizeName.CPU).value, **about), end="")


def _num_individuals(job: Job) -> int | None:
    """Return the number of individuals in a job's document files; None if they are remote or unreadable."""
    if job.corpus.source is None or "://" in str(job.corpus.source):
        return None
    try:
        return int(Run(job).whole_corpus.num_individuals)
    except (ReticentError, OSError):
        return None


def status(
    source: Annotated[Path, typer.Argument(metavar="RUN|JOB.toml", help="A run folder, or a job file.")],
    settings: Set = None,
    as_json: AsJson = False,
) -> None:
    """Print which steps of a run are done, which are left and how long they will take. Nothing is run, and the run may
    be in progress."""
    found: dict[str, Any] = job_status(Run(job_of(read_job(source), settings)))
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        print_status(found)
