"""Spark on a cluster of two executors: one is killed, one's disk is full, both disks are full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.spark import (
    SURNAMES,
    TRY_ELSEWHERE,
    SparkHome,
    content,
    disks_of_executors,
    filled,
    flags_of,
    flags_of_one,
    index_tables,
    kill_executor,
    missing,
    one_machine,
    small_disk,
)

import reticent
from reticent import spark as on_spark
from reticent.core.progress import Progress
from reticent.engine.config import IndexConfig
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.protect import Policy
from reticent.ext.spark.job import OnSpark, run_on_spark
from reticent.job.config import parse_job

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(missing() is not None, reason=missing() or "")]


@pytest.fixture(scope="module")
def cluster(home: SparkHome) -> Iterator[Any]:
    """Two executors, each a JVM of its own; a task that failed on one is tried on the other."""
    with home.session("local-cluster[2,1,1024]", **TRY_ELSEWHERE) as spark:
        yield spark


@pytest.fixture(scope="module")
def disks(cluster: Any) -> Iterator[list[Path]]:
    """The disks of the two executors, of 4 MiB each, before they are first written."""
    first, second = disks_of_executors()
    with small_disk(first), small_disk(second):
        yield [first, second]


def test_a_full_disk_of_one_executor_changes_no_span_and_of_all_is_said_and_leaves_nothing(
    home: SparkHome, disks: list[Path], files: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = parse_job({"corpus": {"source": str(files)}, "out": str(tmp_path)})
    (tmp_path / "one").mkdir()
    detect_spans(reticent.open_corpus(files), make_detectors(["rules"]), tmp_path / "one")
    first, second = disks

    def detect(name: str) -> Any:
        return run_on_spark(job, "detect", tmp_path / name, OnSpark(num_parts=4), progress=Progress(quiet=True))

    def is_quiet() -> bool:
        kept = b"".join(path.read_bytes() for path in (*first.rglob("*"), *second.rglob("*")) if path.is_file())
        written = home.written() + kept + "".join(capfd.readouterr()).encode()
        return not any(surname.encode() in written for surname in SURNAMES)

    told_before = home.written().count(b"No space left on device")  # by tests of other files
    with filled(first):
        detect("spans")
        assert content(tmp_path / "spans") == content(tmp_path / "one")
        assert home.written().count(b"No space left on device") > told_before
        assert is_quiet()
        with filled(second), pytest.raises(on_spark.SparkError, match="a disk is full on the driver or on an executor"):
            detect("other")
        assert is_quiet()
    left = {path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")}
    assert left == {"one", "spans"}


def test_an_executor_that_is_killed_in_the_middle_changes_no_support_and_no_flag(
    home: SparkHome, cluster: Any, files: Path, tmp_path: Path
) -> None:
    columns = reticent.Columns(household_id="household_id")
    corpus, individuals, expected = one_machine(files, IndexConfig(max_n=3), columns)
    killed: list[int] = []

    def kill(n: int) -> None:
        if n == 1:
            killed.append(kill_executor())

    documents = on_spark.open_documents(str(files), columns=columns, num_parts=4, spark=cluster)
    index = on_spark.build_index(documents, config=IndexConfig(max_n=3), progress=kill)
    made = index_tables(index, tmp_path / "spark")
    flags = on_spark.protect(documents, index, policy=Policy(k=2, n=3))
    flagged = FlaggedWords(corpus, individuals, index=expected, policy=Policy(k=2, n=3))
    assert flags_of(flags) == flags_of_one(flagged)
    assert killed
    assert made == index_tables(expected, tmp_path / "one")
    written = home.written()
    assert b"Lost executor" in written or b"Executor lost" in written or b"ExecutorLost" in written
    assert not any(surname.encode() in written for surname in SURNAMES)
    for made_on_spark in (index, documents):
        made_on_spark.release()
