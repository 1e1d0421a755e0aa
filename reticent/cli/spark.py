"""The commands on Spark: ``reticent spark index``, ``detect``, ``protect`` and ``tokens``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import reticent
from reticent.cli.options import (
    AsJson,
    Detector,
    Quiet,
    Set,
    SourceOrJob,
    job_from_source,
    new_progress,
)
from reticent.cli.show import print_counts
from reticent.ext.spark.job import OnSpark, Stage, run_on_spark

spark_app = typer.Typer(
    no_args_is_help=True,
    help="""Do the work of documents on Apache Spark, where one machine ends (some 50 to 100 million notes).

    Inside spark-submit the session that runs is used; --master local starts one on this machine. Documents are
    Parquet, by any path that Spark knows. Supports, spans, flags and tokens are those of one machine. Needs
    reticent\\[spark] and Java 17; executors need reticent alone.""",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Result = Annotated[Path, typer.Option("--out", "-o", help="Folder of the result; private to you.")]
MaxN = Annotated[
    int | None, typer.Option("-n", min=1, max=8, help="Longest n-gram that is counted, in words (default: 1).")
]
K = Annotated[int | None, typer.Option("-k", help="N-grams that fewer than k individuals use identify (default: 2).")]
N = Annotated[int | None, typer.Option("-n", help="Longest n-gram looked at (default: 1); it is counted too.")]

#: Sections of a job that these commands look at.
USED = ("corpus", "dedup", "split", "detect", "index", "protect", "seed", "canaries")


Master = Annotated[
    str | None,
    typer.Option(metavar="MASTER", help="local or local[N]: start Spark on this machine, for N cores or all."),
]
Parts = Annotated[
    int | None,
    typer.Option(min=1, help="Parts that documents are cut into; one task holds one (64 to 256 MB of text)."),
]
Unencrypted = Annotated[
    bool, typer.Option("--unencrypted", help="Disks and network of the cluster are trusted: Spark need not encrypt.")
]


def _run_stage(
    stage: Stage, source: str, out: Path, detector: list[str] | None, how: tuple[str | None, int | None, bool],
    settings: list[str] | None, sections: dict[str, Any], quiet: bool, as_json: bool, tokenizer: Path | None = None,
) -> None:  # fmt: skip
    """Run one stage on Spark with the command's options, and print its counts."""

    job = job_from_source(source, None, detector, sections=sections, settings=settings, used=USED)
    master, num_parts, unencrypted = how
    on_spark = OnSpark(master=master, num_parts=num_parts, unencrypted=unencrypted)
    counts = run_on_spark(job, stage, out, on_spark, tokenizer=tokenizer, progress=new_progress(quiet))
    print_counts(counts, out, as_json)


@spark_app.command()
def script() -> None:
    """Print the path of a script for spark-submit: spark-submit OPTIONS $(reticent spark script) spark index OPTIONS"""

    print(Path(reticent.__file__).with_name("__main__.py"))


@spark_app.command()
def index(
    source: SourceOrJob, out: Result, *, master: Master = None, parts: Parts = None,
    unencrypted: Unencrypted = False, max_n: MaxN = None, settings: Set = None, quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Split the individuals, and count how many use each word and n-gram: OUT/index and OUT/split."""
    sections = {"index": {"max_n": max_n}}
    _run_stage("index", source, out, None, (master, parts, unencrypted), settings, sections, quiet, as_json)


@spark_app.command()
def detect(
    source: SourceOrJob, out: Result, *, detector: Detector = None, master: Master = None, parts: Parts = None,
    unencrypted: Unencrypted = False, settings: Set = None, quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Find direct identifiers with any installed detector: OUT/spans.parquet."""
    _run_stage("detect", source, out, detector, (master, parts, unencrypted), settings, {}, quiet, as_json)


@spark_app.command()
def protect(
    source: SourceOrJob, out: Result, *, detector: Detector = None, master: Master = None, parts: Parts = None,
    unencrypted: Unencrypted = False, k: K = None, n: N = None, settings: Set = None, quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Flag the protected words of each document, counting over all documents how many individuals use each:
    OUT/flags.parquet, a row a document.
    """
    sections = {"index": {"max_n": n}, "protect": {"k": k, "n": n}}
    _run_stage("protect", source, out, detector, (master, parts, unencrypted), settings, sections, quiet, as_json)


@spark_app.command()
def tokens(
    source: SourceOrJob, out: Result,
    tokenizer: Annotated[Path, typer.Option(metavar="FILE", help="The tokenizer.json of the model.")],
    *, detector: Detector = None, master: Master = None, parts: Parts = None,
    unencrypted: Unencrypted = False, k: K = None, n: N = None,
    settings: Set = None, quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write the protected tokens of all documents, ready for training, to the token store OUT."""
    sections = {"index": {"max_n": n}, "protect": {"k": k, "n": n}}
    _run_stage(
        "tokens", source, out, detector, (master, parts, unencrypted), settings, sections, quiet, as_json, tokenizer
    )
