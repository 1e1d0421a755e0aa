"""Is Polars as fast as pyarrow for the tables of spans, individuals and supports?

Three tables of the corpus statistics, each by a lazy query of Polars and by pyarrow, of the same files, in turns: what
detectors found by label (spans joined with the individuals of their documents), supports of words near k, and what a
detector found of the marks of a gold corpus (a join of two tables of spans). Rows must be equal before a time is shown.

    python -m benchmarks.tables_polars [--spans 2000000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.record_io import markdown, spread, write_record
from reticent.engine.stats import detected_spans

LABELS = {"NAME": 0.4, "DATE": 0.3, "ID": 0.2, "PHONE": 0.099998, "AGE": 0.000001, "URL": 0.000001}
SMALL_CELL, K = 11, 2
SPAN = ["document", "start", "end", "label"]


def write_tables(folder: Path, num_spans: int, seed: int = 0) -> np.ndarray:
    """Write spans.parquet, gold.parquet and words.parquet; returns the individual of each document."""
    rng = np.random.default_rng(seed)
    num_documents = max(num_spans // 7, 20)
    labels = rng.choice(list(LABELS), num_spans, p=list(LABELS.values()))
    spans = pa.table(
        {
            "document": np.sort(rng.integers(0, num_documents, num_spans)),
            "start": rng.integers(0, 3000, num_spans).astype(np.int32),
            "end": rng.integers(3000, 3010, num_spans).astype(np.int32),
            "label": labels,
            "detector": rng.choice(["rules", "spacy"], num_spans),
        }
    )
    pq.write_table(spans, folder / "spans.parquet", compression="zstd")
    gold = spans.select(SPAN).filter(pa.array(rng.random(num_spans) < 0.5))
    pq.write_table(gold, folder / "gold.parquet", compression="zstd")
    supports = np.minimum(rng.zipf(1.6, num_spans), 1 << 20).astype(np.uint32)
    words = pa.table({"support": supports, "occurrences": supports.astype(np.uint64) * 3})
    pq.write_table(words, folder / "words.parquet", compression="zstd")
    return rng.integers(0, max(num_documents // 5, 2), num_documents).astype(np.uint32)


def found_by_pyarrow(folder: Path, individual: np.ndarray) -> Any:
    table = pq.read_table(folder / "spans.parquet", columns=["document", "label", "detector"])
    table = table.append_column("individual", pa.array(individual[table.column("document").to_numpy()]))
    grouped = table.group_by(["label", "detector"]).aggregate(
        [("document", "count"), ("document", "count_distinct"), ("individual", "count_distinct")]
    )
    grouped = grouped.rename_columns(["label", "detector", "num_spans", "num_documents", "num_individuals"])
    small = pc.less(grouped.column("num_individuals"), SMALL_CELL)
    rows = grouped.filter(pc.invert(small)).to_pylist()
    rest = table.join(grouped.filter(small).select(["label", "detector"]), ["label", "detector"], join_type="inner")
    num_individuals = pc.count_distinct(rest.column("individual")).as_py()
    if num_individuals and num_individuals >= SMALL_CELL:
        other = {"num_spans": rest.num_rows, "num_documents": None, "num_individuals": num_individuals}
        rows.append({"label": "other", "detector": "any", **other})
    return sorted(rows, key=lambda row: (-row["num_spans"], row["label"], row["detector"]))


def found_by_polars(folder: Path, individual: np.ndarray) -> Any:
    return detected_spans(folder / "spans.parquet", individual, small_cell=SMALL_CELL)


def supports_by_pyarrow(folder: Path, _: np.ndarray) -> Any:
    table = pq.read_table(folder / "words.parquet")
    table = table.filter(pc.less(table.column("support"), K + 5))
    grouped = table.group_by("support").aggregate([([], "count_all"), ("occurrences", "sum")])
    rows = zip(*(grouped.column(name).to_pylist() for name in grouped.column_names), strict=True)
    return sorted(rows)


def supports_by_polars(folder: Path, _: np.ndarray) -> Any:
    words = pl.scan_parquet(folder / "words.parquet").filter(pl.col("support") < K + 5)
    return words.group_by("support").agg(pl.len(), pl.sum("occurrences")).sort("support").collect().rows()


def joined_by_pyarrow(folder: Path, _: np.ndarray) -> Any:
    found, gold = (pq.read_table(folder / name, columns=SPAN) for name in ("spans.parquet", "gold.parquet"))
    counts = found.join(gold, SPAN, join_type="left semi").group_by("label").aggregate([([], "count_all")])
    return sorted(zip(counts.column("label").to_pylist(), counts.column("count_all").to_pylist(), strict=True))


def joined_by_polars(folder: Path, _: np.ndarray) -> Any:
    found, gold = (pl.scan_parquet(folder / name).select(SPAN) for name in ("spans.parquet", "gold.parquet"))
    return found.join(gold, on=SPAN, how="semi").group_by("label").agg(pl.len()).sort("label").collect().rows()


TABLES: dict[str, tuple[Callable[[Path, np.ndarray], Any], Callable[[Path, np.ndarray], Any]]] = {
    "spans by label and detector, with individuals": (found_by_polars, found_by_pyarrow),
    "words by support, near k": (supports_by_polars, supports_by_pyarrow),
    "spans that are gold, by label": (joined_by_polars, joined_by_pyarrow),
}


def measure(num_spans: int, rounds: int) -> dict[str, Any]:
    """Return wall and processor seconds of each table and library, and the ratio within rounds."""
    record: dict[str, Any] = {"num_spans": num_spans, "rounds": rounds, "load": list(os.getloadavg()), "tables": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        individual = write_tables(folder, num_spans)
        for table, ways in TABLES.items():
            rows = [way(folder, individual) for way in ways]
            assert len(rows[0]) >= 4
            assert rows[0] == rows[1], table
            wall: list[list[float]] = [[], []]
            cpu: list[list[float]] = [[], []]
            for _ in range(rounds):
                for number, way in enumerate(ways):
                    began, used = time.perf_counter(), time.process_time()
                    way(folder, individual)
                    wall[number].append(time.perf_counter() - began)
                    cpu[number].append(time.process_time() - used)
            ratios = [theirs / ours for ours, theirs in zip(*cpu, strict=True)]
            row: dict[str, Any] = {"table": table, "num_rows": len(rows[0]), "pyarrow_cpu / polars_cpu": spread(ratios)}
            for number, library in enumerate(("polars", "pyarrow")):
                row |= {f"{library}_seconds": spread(wall[number]), f"{library}_cpu": spread(cpu[number])}
            record["tables"].append(row)
    return record


def run(size: str = "toy") -> None:
    main(["--spans", "20000", "--rounds", "1", "--no-record"] if size == "toy" else [])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args(arguments)
    record = measure(options.spans, options.rounds)
    names = ("polars_cpu", "pyarrow_cpu", "pyarrow_cpu / polars_cpu")
    rows = [[row["table"], *(f"{row[name]['median']:.3g}" for name in names)] for row in record["tables"]]
    print(markdown(["table", "Polars, CPU s", "pyarrow, CPU s", "ratio"], rows))
    if not options.no_record:
        write_record("tables_polars", record, "cpu")


if __name__ == "__main__":
    main()
