"""What does the index cost on Spark, beside one machine and beside ``explode`` with ``countDistinct``?

Corpora of several sizes: MTSamples and halves of it, and a generated hospital. Each is counted three times:
`build_index` on one machine, `reticent.spark.build_index` on ``local[2]``, and the way without a core, where Spark's
own functions make the words and pairs of words and count the distinct individuals of each. Answers come first: the
tables of the first two must be equal, and the third must find what polars finds of the same words.

Measured are CPU seconds (of the JVM, and of the Python processes with the core in them) and shuffled bytes, from
Spark's event log; the start of the session is apart. Each is the median of some runs, with least and most. Wall
times of two shared cores say nothing about a cluster, and none is recorded. From the sizes come exponents, and from
these what 50,000,000 and 1,000,000,000 notes would take, and whether Spark would be asked for it: not from a run.

    python -m benchmarks.spark [--size toy] [--runs 3]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import pyarrow.parquet as pq
from fixtures.corpora import read_documents
from fixtures.spark import missing

from benchmarks.large import generate
from benchmarks.record_io import DATA, exponent, write_record
from benchmarks.runner import command

#: Notes of the hospital.
SIZES = {"toy": (200,), "cpu": (4_000, 12_000, 36_000)}
MAX_N = 3
ONE, READ, INDEX, WRITE, EXPLODE = (
    "one machine",
    "Spark: read, number and cut",
    f"Spark: index, n = 1 to {MAX_N}",
    "Spark: sort and write the index",
    "explode and countDistinct, n = 1 to 2",
)
#: Notes of corpora that are extrapolated to, and prices.
LARGER = (50_000_000, 1_000_000_000)
CORE_HOUR = 0.05


def cpu_seconds(process: int) -> tuple[float, float]:
    """CPU seconds of the JVM, and of the Python processes below it, those that have ended included."""
    tick = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    used: dict[int, tuple[float, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            own, waited = (sum(map(int, fields[at : at + 2])) / tick for at in (11, 13))
            used[int(entry.name)] = own, waited

    def below(number: int) -> bool:
        while number in parents and number != process:
            number = parents[number]
        return number == process

    python = sum(own + waited for number, (own, waited) in used.items() if number != process and below(number))
    return used[process][0], python + used[process][1]


def shuffled(events: Path) -> int:
    """Bytes that tasks wrote for others, so far."""
    total = 0
    for path in events.rglob("*"):
        if not path.is_file() or path.suffix == ".crc":
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if '"SparkListenerTaskEnd"' in line:
                metrics = json.loads(line).get("Task Metrics") or {}
                total += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return total


def measured(work: Callable[[], Any], process: int, events: Path) -> tuple[Any, dict[str, float]]:
    """What ``work`` returns, and its CPU seconds and shuffled bytes."""
    before, bytes_before = cpu_seconds(process), shuffled(events)
    result = work()
    time.sleep(1)  # the event log is written behind
    after = cpu_seconds(process)
    return result, {
        "jvm_cpu_seconds": round(after[0] - before[0], 2),
        # Spark ends workers that wait for a minute, as in a way without Python, and their time may go with them.
        "python_cpu_seconds": max(round(after[1] - before[1], 2), 0.0),
        "shuffled_bytes": shuffled(events) - bytes_before,
    }


def summarized(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The median of each number of several runs, and the least and most CPU seconds of them."""
    totals = [run["jvm_cpu_seconds"] + run["python_cpu_seconds"] for run in runs]
    spread = [round(min(totals), 2), round(max(totals), 2)]
    return {name: median(run[name] for run in runs) for name in runs[0]} | {"runs": len(runs), "spread": spread}


def exploded(spark: Any, source: Path) -> dict[str, list[int]]:
    """Distinct words and pairs of words, and the sum of their supports, by Spark's functions alone."""
    from pyspark.sql import functions as f

    words = f.expr("filter(split(text, '[^\\\\p{L}\\\\p{N}]+'), w -> w != '')")
    pairs = f.expr(
        "transform(sequence(1, greatest(size(words) - 1, 1)), i -> concat_ws(' ', words[i - 1], get(words, i)))"
    )
    notes = spark.read.parquet(str(source)).select("individual_id", words.alias("words"))
    found = {}
    for name, ngrams, longer in (("words", f.col("words"), 0), ("pairs", pairs, 1)):
        supports = (
            notes.filter(f.size("words") > longer)
            .select("individual_id", f.explode(ngrams).alias("ngram"))
            .groupBy("ngram")
            .agg(f.countDistinct("individual_id").alias("support"))
        )
        found[name] = list(map(int, supports.agg(f.count("support"), f.sum("support")).first()))
    return found


def of_polars(source: Path) -> dict[str, list[int]]:
    """The answer that `exploded` must give, by another library."""
    import polars as pl

    notes = pl.read_parquet(source / "*.parquet", columns=["individual_id", "text"]).with_row_index("note")
    words = notes.select(
        "note", "individual_id", ngram=pl.col("text").cast(pl.String).str.extract_all(r"[\p{L}\p{N}]+")
    )
    words = words.explode("ngram").drop_nulls("ngram")
    after = pl.concat_str(pl.col("ngram"), pl.col("ngram").shift(-1), separator=" ")
    pairs = words.with_columns(after, same=pl.col("note") == pl.col("note").shift(-1)).filter("same")
    found = {}
    for name, table in (("words", words), ("pairs", pairs)):
        supports = table.select("ngram", "individual_id").unique().group_by("ngram").len()
        found[name] = [supports.height, int(supports["len"].sum())]
    return found


def session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    (folder / "events").mkdir()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.local.dir": str(folder),
        "spark.io.encryption.enabled": "true",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.sql.shuffle.partitions": "4",
    }
    builder = SparkSession.builder.appName("benchmark").master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def corpora(folder: Path, sizes: Sequence[int]) -> Iterator[tuple[str, Path]]:
    """Yield names of corpora, each with sizes of its own, and their folders."""
    if (DATA / "mtsamples").exists():
        table = read_documents("mtsamples", None).select(["doc_id", "individual_id", "text"])
        for share in (4, 2, 1) if len(sizes) > 1 else (8,):
            own = folder / f"mtsamples-{share}"
            own.mkdir()
            pq.write_table(table.take(list(range(0, table.num_rows, share))), own / "notes.parquet")
            yield "MTSamples", own
    for notes in sizes:
        generate(folder / f"hospital-{notes}", notes)
        yield "hospital", folder / f"hospital-{notes}"


def measure(name: str, source: Path, spark: Any, folder: Path, num_runs: int = 1) -> dict[str, Any]:
    """Count a corpus in each way, and return what each took."""
    import reticent
    from reticent import spark as on_spark
    from reticent.engine.config import IndexConfig
    from reticent.engine.schema import SPLITS

    config, both = IndexConfig(max_n=MAX_N), SPLITS[:2]
    process, events = spark.sparkContext._gateway.proc.pid, folder / "events"
    started = time.process_time()
    corpus = reticent.open_corpus(source)
    index = reticent.build_index(corpus, reticent.split_individuals(corpus), splits=both, config=config)
    ways: dict[str, Any] = {ONE: {"python_cpu_seconds": round(time.process_time() - started, 2)}}
    tables = {way: folder / f"{source.name}-{way}" for way in ("one", "spark")}
    for own in tables.values():
        own.mkdir()
    reticent.write_index(index, tables["one"])
    runs: dict[str, list[dict[str, float]]] = {READ: [], INDEX: [], WRITE: []}
    for last in [False] * (num_runs - 1) + [True]:
        notes, took = measured(
            lambda: on_spark.open_documents(str(source), num_parts=4, spark=spark, warn=str), process, events
        )
        runs[READ].append(took)
        built, took = measured(partial(on_spark.build_index, notes, splits=both, config=config), process, events)
        runs[INDEX].append(took)
        _, took = measured(partial(built.write, tables["spark"]), process, events)
        runs[WRITE].append(took)
        if not last:
            built.release()
            notes.release()
    ways |= {way: summarized(own) for way, own in runs.items()}
    for path in tables["one"].iterdir():
        assert pq.read_table(path).equals(pq.read_table(tables["spark"] / path.name)), f"{path.name} differs"
    rows = {str(n): built.num_rows(n) for n in range(1, MAX_N + 1)}
    expected = of_polars(source)
    found, ways[EXPLODE] = measured(lambda: exploded(spark, source), process, events)
    assert found == expected, "explode and countDistinct give another answer than polars"
    built.release()
    notes.release()
    words = sum(batch.column("occurrences").to_numpy().sum() for batch in _word_batches(tables["one"]))
    return {
        "corpus": name,
        "notes": corpus.num_documents,
        "text_bytes": _text_bytes(source),
        "words": int(words),
        "rows": rows,
        "distinct": {"1": index.num_words} | {str(n): index.num_ngrams(n) for n in range(2, MAX_N + 1)},
        "exploded": found,
        "ways": ways,
    }


def _word_batches(folder: Path) -> Iterator[Any]:
    return pq.ParquetFile(folder / "words.parquet").iter_batches(columns=["occurrences"])


def _text_bytes(source: Path) -> int:
    import polars as pl

    texts = pl.scan_parquet(source / "*.parquet").select(pl.col("text").cast(pl.String).str.len_bytes().sum())
    return int(texts.collect().item())


def cpu_of(row: Mapping[str, Any], *ways: str) -> float:
    """CPU seconds of a corpus in these ways together."""
    return float(sum(v for way in ways for name, v in row["ways"][way].items() if name.endswith("cpu_seconds")))


def _at(*path: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda row: reduce(getitem, path, row)  # type: ignore[arg-type, return-value]


#: Quantities that grow with the number of words.
GROWING: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "distinct words": _at("distinct", "1"),
    **{f"distinct n-grams, n = {n}": _at("distinct", str(n)) for n in range(2, MAX_N + 1)},
    "shuffled bytes of text": _at("ways", READ, "shuffled_bytes"),
    "shuffled bytes of tables": _at("ways", INDEX, "shuffled_bytes"),
    "shuffled bytes of explode": _at("ways", EXPLODE, "shuffled_bytes"),
    **{f"rows of parts, n = {n}": _at("rows", str(n)) for n in range(1, MAX_N + 1)},
    "CPU seconds of one machine": lambda row: cpu_of(row, ONE),
    "CPU seconds of Spark": lambda row: cpu_of(row, READ, INDEX),
    "CPU seconds of explode": lambda row: cpu_of(row, EXPLODE),
}


def exponents(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return how each quantity grows with the words."""
    words = [row["words"] for row in rows]
    return {name: round(exponent(words, [max(of(row), 1e-9) for row in rows]), 3) for name, of in GROWING.items()}


def extrapolate(corpora: Mapping[str, Sequence[Mapping[str, Any]]], num_notes: int) -> dict[str, Any]:
    """Return what so many notes as large as the hospital's would take: least and most.

    Tables grow from the largest size of each corpus, by its own exponent, to as many words. Text and CPU grow as the
    notes do: CPU from what a note more takes to the mean of the largest size, in which the fixed part is.
    """
    from reticent.ext.spark.index import MAX_ROWS

    rows = corpora["hospital"]
    largest = rows[-1]
    factor = num_notes / largest["notes"]

    def grown(name: str) -> list[float]:
        ends = [
            GROWING[name](own[-1]) * (largest["words"] * factor / own[-1]["words"]) ** exponents(own)[name]
            for own in corpora.values()
        ]
        return [min(ends), max(ends)]

    at_linear = GROWING["CPU seconds of Spark"](largest) * factor
    marginal = _marginal(rows, "CPU seconds of Spark") * num_notes
    core_hours = sorted(seconds / 3600 for seconds in (marginal, at_linear))
    of_parts = {str(n): grown(f"rows of parts, n = {n}") for n in range(1, MAX_N + 1)}
    return {
        "notes": num_notes,
        "text_bytes": largest["text_bytes"] * factor,
        "shuffled_bytes_of_text": GROWING["shuffled bytes of text"](largest) * factor,
        "shuffled_bytes_of_tables": grown("shuffled bytes of tables"),
        "shuffled_bytes_of_explode": grown("shuffled bytes of explode"),
        "rows_of_parts": of_parts,
        "is_refused": [max(own[end] for own in of_parts.values()) > MAX_ROWS for end in (0, 1)],
        "core_hours": core_hours,
        "node_hours_of_16_cores": [hours / 16 for hours in core_hours],
        "price": [hours * CORE_HOUR for hours in core_hours],
        "core_hours_of_explode": GROWING["CPU seconds of explode"](largest) * factor / 3600,
        "core_hours_of_one_machine": _marginal(rows, "CPU seconds of one machine") * num_notes / 3600,
    }


def _marginal(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """What a note more takes, between the two largest sizes."""
    before, last = rows[-2:]
    return (GROWING[name](last) - GROWING[name](before)) / (last["notes"] - before["notes"])


def run(
    size: Annotated[str, ("toy", "cpu")] = "cpu", runs: Annotated[int, "of each way on Spark but the last"] = 3
) -> None:
    """Measure, and write the record ``spark``."""
    if reason := missing():
        print(f"skipped: {reason} (make test-warehouse)", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="spark-") as name:
        folder = Path(name)
        spark = session(folder)
        start = {"jvm_cpu_seconds": round(cpu_seconds(spark.sparkContext._gateway.proc.pid)[0], 2)}
        generate(folder / "warm", 200)
        measure("warm", folder / "warm", spark, folder)  # what is compiled once belongs to no size
        rows = []
        for corpus, source in corpora(folder, SIZES[size]):
            rows.append(measure(corpus, source, spark, folder, 1 if size == "toy" else runs))
            print(json.dumps(rows[-1]), flush=True)
        spark.stop()
    result: dict[str, Any] = {"start_of_spark": start, "corpora": rows}
    if size != "toy":
        of_each = {row["corpus"]: [own for own in rows if own["corpus"] == row["corpus"]] for row in rows}
        result["exponents"] = {name: exponents(own) for name, own in of_each.items()}
        result["microseconds_a_note"] = round(_marginal(of_each["hospital"], "CPU seconds of Spark") * 1e6)
        result["larger"] = [extrapolate(of_each, num_notes) for num_notes in LARGER]
        print(json.dumps([result["microseconds_a_note"], result["exponents"], result["larger"]], indent=1))
    path = write_record("spark", result, size)
    print(path if size != "toy" else "answers are right")


if __name__ == "__main__":
    command(run)
