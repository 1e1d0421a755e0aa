"""What does the index cost on Spark, beside one machine and beside ``explode`` with ``countDistinct``?

The same generated notes three times: `build_index` on one machine, `reticent.spark.build_index` on ``local[2]``, and
the way without a core: words and pairs of words by Spark's own functions, and the distinct individuals of each. Before
a number is shown, the files of the first two must be equal byte for byte. Measured are CPU seconds (of the JVM, and of
the Python processes with the core in them) and shuffled bytes, from Spark's event log; the start of the session is
apart. Wall times of two shared cores say nothing about a cluster, and none is recorded.

    python -m benchmarks.spark [--individuals 20000] [--size toy]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record_io import write_record

#: Individuals: some 2.5 notes each.
SIZES = {"toy": 60, "cpu": 20_000}
MAX_N = 3


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
        "python_cpu_seconds": round(after[1] - before[1], 2),
        "shuffled_bytes": shuffled(events) - bytes_before,
    }


def exploded(spark: Any, source: Path) -> dict[str, int]:
    """Distinct words and pairs of words, each with its individuals, by Spark's functions alone."""
    from pyspark.sql import functions as f

    words = f.expr("filter(split(text, '[^\\\\p{L}\\\\p{N}]+'), w -> w != '')")
    pairs = f.expr("transform(sequence(1, greatest(size(words) - 1, 1)), i -> concat_ws(' ', words[i - 1], words[i]))")
    notes = spark.read.parquet(str(source)).select("individual_id", words.alias("words"))
    found = {}
    for name, ngrams in (("words", f.col("words")), ("pairs", pairs)):
        supports = (
            notes.select("individual_id", f.explode(ngrams).alias("ngram"))
            .groupBy("ngram")
            .agg(f.countDistinct("individual_id").alias("support"))
        )
        found[name] = int(supports.agg(f.count("support")).first()[0])
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


def measure(num_individuals: int, folder: Path) -> dict[str, Any]:
    """Build the index in each way, and return what each took."""
    import reticent
    from reticent import spark as on_spark
    from reticent.engine.config import IndexConfig
    from reticent.engine.synthetic import SynthConfig, synthesize

    synthesize(folder, SynthConfig(num_individuals=num_individuals, vocabulary=100_000))
    source, config = folder / "documents", IndexConfig(max_n=MAX_N)
    corpus = reticent.open_corpus(source)
    started = time.process_time()
    index = reticent.build_index(corpus, reticent.split_individuals(corpus), config=config)
    ways: dict[str, Any] = {"one machine": {"python_cpu_seconds": round(time.process_time() - started, 2)}}
    (folder / "one").mkdir()
    reticent.write_index(index, folder / "one")
    spark = session(folder)
    process = spark.sparkContext._gateway.proc.pid
    ways["start of Spark"] = {"jvm_cpu_seconds": round(cpu_seconds(process)[0], 2)}
    events = folder / "events"
    notes, ways["Spark: read, number and cut"] = measured(
        lambda: on_spark.open_documents(str(source), num_parts=4), process, events
    )
    built, ways[f"Spark: index, n = 1 to {MAX_N}"] = measured(
        lambda: on_spark.build_index(notes, config=config), process, events
    )
    (folder / "spark").mkdir()
    built.write(folder / "spark")
    for path in (folder / "one").iterdir():
        assert path.read_bytes() == (folder / "spark" / path.name).read_bytes(), f"{path.name} differs"
    distinct, ways["explode + countDistinct, n = 1 to 2"] = measured(lambda: exploded(spark, source), process, events)
    spark.stop()
    return {
        "documents": corpus.num_documents,
        "bytes": sum(path.stat().st_size for path in source.iterdir()),
        "words": index.num_words,
        "ngrams": {n: index.num_ngrams(n) for n in range(2, MAX_N + 1)},
        "exploded": distinct,
        "ways": ways,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=["toy", "cpu"], default="cpu")
    parser.add_argument("--individuals", type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments.individuals or SIZES[arguments.size], Path(folder))
    print(json.dumps(result, indent=1))
    write_record("spark", result, arguments.size)


if __name__ == "__main__":
    main()
