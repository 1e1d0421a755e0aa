"""``reticent spark`` as programs: what they write, what they refuse, and what a driver that is killed leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from fixtures import tokenizers
from fixtures.spark import SHORT_LIVED, SURNAMES, SparkHome, content, flags_of_one, missing, notes, small_disk
from fixtures.spark_drivers import PATIENCE, Drivers, wait_for

import reticent
from reticent.core.artifact import read_manifest
from reticent.core.errors import ArtifactError
from reticent.core.progress import Progress
from reticent.engine.config import IndexConfig
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.spans import SpanReader
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.protect import Policy
from reticent.engine.split import write_individuals
from reticent.ext.spark.job import OnSpark, run_on_spark
from reticent.ext.spark.tasks import SparkError
from reticent.job.config import parse_job

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(missing() is not None, reason=missing() or "")]

COMMANDS = {
    "index": ("-n", "3"),
    "detect": (),
    "protect": ("-k", "2", "-n", "3"),
    "tokens": ("-k", "2", "-n", "3", "--tokenizer", "tokenizer.json"),
}


@pytest.fixture(scope="module")
def drivers(home: SparkHome) -> Drivers:
    return Drivers(home)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    notes().write_parquet(folder / "notes.parquet", row_group_size=40)
    (folder / "tokenizer.json").write_text(tokenizers.wordpiece())
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, dict[str, Any]]:
    """What one machine writes, by command."""
    corpus = reticent.open_corpus(folder / "notes.parquet")
    individuals = reticent.split_individuals(corpus)
    index = reticent.build_index(corpus, individuals, config=IndexConfig(max_n=3))
    made = {name: folder / f"one-{name}" for name in COMMANDS}
    for path in (*made.values(), made["index"] / "index", made["index"] / "split"):
        path.mkdir()
    reticent.write_index(index, made["index"] / "index")
    write_individuals(individuals, made["index"] / "split")
    detect_spans(corpus, make_detectors(["rules"]), made["detect"])
    spans, policy = SpanReader(made["detect"]), Policy(k=2, n=3)
    reticent.write_tokens(
        made["tokens"],
        corpus,
        individuals,
        (folder / "tokenizer.json").read_text(),
        index=index,
        spans=spans,
        policy=policy,
    )
    return {name: content(path) for name, path in made.items()}


def arguments(command: str, folder: Path, out: Path) -> list[str]:
    more = [str(folder / part) if part.endswith(".json") else part for part in COMMANDS[command]]
    return [command, str(folder / "notes.parquet"), "--out", str(out), "--json", *more]


def is_quiet(home: SparkHome) -> bool:
    """Whether no log and no file of Spark holds a name."""
    local = [path for path in (home.folder / "local").rglob("*") if path.is_file()]
    written = home.written() + b"".join(path.read_bytes() for path in local)
    return not any(surname.encode(form) in written for surname in SURNAMES for form in ("utf-8", "utf-16-le"))


def later(command: str, drivers: Drivers, out: Path) -> Callable[[], bool]:
    """Say when a driver is in the middle: while it writes, or after some of its jobs."""
    before = drivers.contexts()
    if command == "tokens":
        return lambda: any(path.stat().st_size for path in out.parent.rglob("ids.bin"))
    return lambda: drivers.num_jobs(before) >= 2


@pytest.mark.parametrize("command", ["index", "protect", "tokens"])  # detect: below, with a JVM of its own
def test_a_driver_that_is_killed_leaves_nothing_half_and_the_next_writes_what_one_machine_does(
    command: str, drivers: Drivers, folder: Path, expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    status, said, _ = drivers.run(*arguments(command, folder, out), until=later(command, drivers, out))
    assert status == -9
    assert said == ""
    assert not (out / "manifest.json").exists()
    assert not (out / "index").exists()
    assert content(out) == {}
    status, said, problems = drivers.run(*arguments(command, folder, out))
    assert (status, problems.count("\n")) == (0, 1), problems
    assert "event log is on" in problems
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["out"]
    counts = json.loads(said)
    assert counts["documents"] == pq.read_metadata(folder / "notes.parquet").num_rows
    if command == "protect":
        check_flags(out, folder)
    else:
        assert content(out) == expected[command]
    kept = read_manifest(out / command if command == "index" else out)
    assert kept.counts.items() <= counts.items()
    assert is_quiet(drivers.home)


def check_flags(out: Path, folder: Path) -> None:
    """The flags are those of one machine."""
    corpus = reticent.open_corpus(folder / "notes.parquet")
    individuals = reticent.split_individuals(corpus)
    flagged = FlaggedWords(
        corpus,
        individuals,
        index=reticent.build_index(corpus, individuals, config=IndexConfig(max_n=3)),
        spans=SpanReader(folder / "one-detect"),
        policy=Policy(k=2, n=3),
    )
    found = pl.read_parquet(out / "flags.parquet").select("doc_id", "flags", "ngram_starts")
    assert found.rows() == flags_of_one(flagged)


# These have sessions and JVMs of their own, so they come after those of `drivers`.
@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    (tmp_path / "disk").mkdir(mode=0o700)
    with small_disk(tmp_path / "disk", "1m"):
        yield tmp_path / "disk"


def test_a_full_disk_of_spark_or_of_results_is_said_and_leaves_nothing_half(
    home: SparkHome, disk: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)  # words that no codec makes small
    texts = [f"{SURNAMES[row % 5]} {rng.bytes(12_000).hex(' ')}" for row in range(200)]
    ids = [f"d{row:03d}" for row in range(200)]
    pl.DataFrame({"doc_id": ids, "individual_id": ids, "text": texts}).write_parquet(tmp_path / "notes.parquet")
    values = {"corpus": {"source": str(tmp_path / "notes.parquet")}, "out": str(tmp_path)}
    job = parse_job(values)
    with home.session("local[2]", **{"spark.local.dir": str(disk)}):
        with pytest.raises(SparkError, match=r"a disk is full on the driver or on an executor: .* spark\.local\.dir"):
            run_on_spark(job, "detect", tmp_path / "spans", OnSpark(), progress=Progress(quiet=True))
        assert [path.name for path in tmp_path.iterdir() if "spans" in path.name] == [".spans.lock"]
        kept = b"".join(path.read_bytes() for path in disk.rglob("*") if path.is_file())
        assert not any(surname.encode() in kept for surname in SURNAMES)
    for path in disk.iterdir():
        shutil.rmtree(path)
    job = parse_job(values | {"index": {"max_n": 3}})
    with home.session("local[2]"), pytest.raises(ArtifactError, match=r"index: not written \(No space left on device"):
        run_on_spark(job, "index", disk / "out", OnSpark(), progress=Progress(quiet=True))
    left = [path for path in disk.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    assert {path.parent.name for path in left} <= {"split"}  # whole, and written before the index
    assert is_quiet(home)


def test_a_local_session_and_spark_submit_write_what_one_machine_does_also_after_all_was_killed(
    home: SparkHome,
    folder: Path,
    expected: dict[str, dict[str, Any]],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    import pyspark

    submitted = tmp_path_factory.mktemp("submitted") / "out"
    out, temporary = tmp_path / "out", tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    own = {"TMPDIR": str(temporary), "JAVA_TOOL_OPTIONS": SHORT_LIVED}
    environment = os.environ | own
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    local = [sys.executable, "-m", "reticent", "spark", *arguments("detect", folder, out), "--master", "local[2]"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    submit = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[1]"]
    submit += ["--conf", "spark.io.encryption.enabled=true", "--conf", "spark.ui.enabled=false"]
    script = subprocess.run([*local[:4], "script"], env=environment, check=True, **pipes).stdout.strip()
    given = [*submit, script, "spark", *arguments("detect", folder, submitted)]
    elsewhere = environment | {"TMPDIR": str(submitted.parent)}
    submission = subprocess.Popen(given, env=elsewhere, cwd=submitted.parent, **pipes)  # beside the others
    try:
        check_local_sessions(local, environment, temporary, out, expected)
        said, problems = submission.communicate(timeout=PATIENCE)
    finally:
        submission.kill()
        submission.wait()
    assert submission.returncode == 0, problems[-2000:]
    assert content(submitted) == expected["detect"]
    assert json.loads(said)["spans"] > 100
    assert not any(surname in problems for surname in SURNAMES)


def check_local_sessions(
    local: list[str], environment: dict[str, str], temporary: Path, out: Path, expected: dict[str, dict[str, Any]]
) -> None:
    """One that is killed with its JVM, and the same again."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    driver = subprocess.Popen(local, env=environment, start_new_session=True, **pipes)
    try:
        wait_for(driver, lambda: any(temporary.glob("reticent-spark-*/blockmgr-*/*/shuffle_*_*.data")))
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python and Java, as when a machine is lost
        driver.communicate()
    left = b"".join(path.read_bytes() for path in temporary.rglob("*") if path.is_file())
    assert left, "nothing was written yet"
    assert not any(surname.encode() in left for surname in SURNAMES)
    assert content(out) == {}
    done = subprocess.run(local, env=environment, timeout=PATIENCE, check=False, **pipes)
    assert done.returncode == 0, done.stderr
    assert "warning: " not in done.stderr
    assert content(out) == expected["detect"]
    assert list(temporary.glob("reticent-spark-*")) == []
    assert {path.name for path in out.parent.iterdir() if not path.name.endswith(".lock")} == {"tmp", "out"}
