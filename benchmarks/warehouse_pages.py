"""The pages of `benchmarks.warehouse` and `benchmarks.spark`: answers, figures and tables, from their records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.figure import Dot, Dots
from benchmarks.record_io import machine_line, markdown
from benchmarks.spark import EXPLODE, GROWING, INDEX, ONE, READ, cpu_of

__all__ = [
    "spark_answer",
    "spark_figure",
    "spark_tables",
    "warehouse_answer",
    "warehouse_figure",
    "warehouse_tables",
]

Record = Mapping[str, Any]
TB = 1e12


def _megabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e6:,.0f}"


def _range(ends: list[float], digits: int = 1) -> str:
    """Two ends, in words: ``1.2 to 3.4``."""
    low, high = (f"{end:,.{digits}f}" for end in ends)
    return low if low == high else f"{low} to {high}"


# --------------------------------------------------------------------------------------------------------- warehouse


def warehouse_answer(record: Record) -> str:
    """Return the answer in words."""
    ours, staging = next(iter(record["readers"].values())), record["staging"]
    one, refreshed = staging["one connection"], staging["the same, refreshed"]
    speed, memory = ours["mb_per_second"]["median"], _megabytes(ours["memory_bytes"])
    size = _megabytes(record["hospital"]["text_bytes"])
    staged, peak = one["mb_per_second"]["median"], _megabytes(one["peak_bytes"])
    return (
        f"ADBC with batches of 1 MiB reads {speed:,.0f} MB of text a second and takes {memory} MB of memory for it. "
        f"Staging ({size} MB) does {staged:,.0f} MB/s, at a peak of {peak} MB of the whole process. Where one note in "
        f"a hundred changed, a refresh moves {refreshed['texts_fetched']:,} texts instead of {one['texts_fetched']:,}; "
        f"beside the server it takes {refreshed['seconds']['median']:.1f} seconds instead of "
        f"{one['seconds']['median']:.1f}."
    )


def warehouse_figure(record: Record) -> Dots:
    """Return the figure: throughput of each reader and of staging."""
    rows = [Dot.of(name, own["mb_per_second"], "") for name, own in record["readers"].items()]
    rows += [Dot.of(f"staging, {name}", own["mb_per_second"], "protected") for name, own in record["staging"].items()]
    return Dots(rows=rows, axis="MB of text per second, from PostgreSQL on the same machine", digits=0)


def warehouse_tables(record: Record) -> str:
    """Return the tables."""
    readers = [(name, *_timed(own), _megabytes(own["memory_bytes"])) for name, own in record["readers"].items()]
    staging = [
        (name, *_timed(own), _megabytes(own["peak_bytes"]), f"{own['texts_fetched']:,}")
        for name, own in record["staging"].items()
    ]
    corpora = [(name, f"{own['rows']:,}", f"{own['text_bytes'] / 1e6:.1f}") for name, own in record["corpora"].items()]
    return (
        f"{machine_line(record)}\n\n{record['hospital']['rows']:,} notes of a generated hospital, as OMOP.\n\n"
        + markdown(("reader", "MB/s", "CPU seconds", "MB of memory beyond the start"), readers)
        + "\n"
        + markdown(("staging", "MB/s", "CPU seconds", "peak, MB", "texts moved"), staging)
        + "\nCorpora whose index from the database is that of their files, byte for byte:\n\n"
        + markdown(("corpus", "notes", "MB"), corpora)
    )


def _timed(own: Record) -> tuple[str, str]:
    speed, cpu = own["mb_per_second"], own["cpu_seconds"]["median"]
    return f"{speed['median']:,.0f} [{speed['low']:,.0f}, {speed['high']:,.0f}]", f"{cpu:.2f}"


# ------------------------------------------------------------------------------------------------------------- Spark


def spark_answer(record: Record) -> str:
    """Return the answer in words."""
    largest, larger = record["corpora"][-1], record["larger"][0]
    one, ours, other = cpu_of(largest, ONE), cpu_of(largest, READ, INDEX), cpu_of(largest, EXPLODE)
    moved = _megabytes(sum(largest["ways"][way]["shuffled_bytes"] for way in (READ, INDEX)))
    exploded = _megabytes(largest["ways"][EXPLODE]["shuffled_bytes"])
    start, tables = record["start_of_spark"]["jvm_cpu_seconds"], larger["shuffled_bytes_of_tables"]
    return (
        f"{largest['notes']:,} notes take {one:,.1f} CPU seconds on one machine, {ours:,.0f} on Spark (n = 1 to 3, its "
        f"start of {start:.0f} seconds aside), with equal supports, and {other:,.0f} by `explode` and "
        f"`countDistinct`, which go to n = 2 only. Spark shuffles {moved} MB, `explode` {exploded} MB. By the measured "
        f"exponents {larger['notes']:,} such notes would take {_range(larger['core_hours'], 0)} core-hours on Spark, "
        f"which would shuffle {_range([end / TB for end in tables])} TB of tables."
    )


def spark_figure(record: Record) -> Dots:
    """Return the figure: CPU seconds of each corpus in each way."""
    ways = {"one machine": (ONE,), "Spark": (READ, INDEX), "explode (n to 2)": (EXPLODE,)}
    kinds = dict(zip(ways, ("protected", "", "plain"), strict=True))
    rows = [
        Dot(f"{row['corpus']}, {row['notes']:,} notes: {name}", cpu_of(row, *own), kind=kinds[name])
        for row in record["corpora"]
        for name, own in ways.items()
    ]
    return Dots(rows=rows, axis="CPU seconds, without the start of Spark", log=True, digits=1)


def spark_tables(record: Record) -> str:
    """Return the tables."""
    rows = [
        (
            f"{row['corpus']}, {row['notes']:,} notes, {row['text_bytes'] / 1e6:,.1f} MB",
            way,
            *(
                f"{own[f'{kind}_cpu_seconds']:,.1f}" if f"{kind}_cpu_seconds" in own else "-"
                for kind in ("python", "jvm")
            ),
            f"{own['shuffled_bytes'] / 1e6:,.1f}" if "shuffled_bytes" in own else "-",
        )
        for row in record["corpora"]
        for way, own in row["ways"].items()
    ]
    names = list(record["exponents"])
    measured = [name for name in GROWING if name in record["exponents"][names[0]]]
    slopes = [(name, *(f"{record['exponents'][own][name]:.2f}" for own in names)) for name in measured]
    return (
        f"{machine_line(record)}\n\n"
        + markdown(("corpus", "way", "CPU s, Python and core", "CPU s, JVM", "MB shuffled"), rows)
        + "\nExponents: each quantity grows as the number of words to this power.\n\n"
        + markdown(("quantity", *names), slopes)
        + "\n"
        + "\n".join(
            markdown((f"{found['notes']:,} notes as large as the hospital's, not from a run", ""), _larger(found))
            for found in record["larger"]
        )
    )


def _one(own: Record, name: str, divisor: float) -> str:
    return f"{own[name] / divisor:,.1f}" if name in own else "-"


def _larger(found: Record) -> list[tuple[str, str]]:
    return [
        ("text", f"{found['text_bytes'] / TB:,.1f} TB"),
        ("text that is shuffled, once", f"{found['shuffled_bytes_of_text'] / TB:,.1f} TB"),
        ("tables that are shuffled", f"{_range([end / TB for end in found['shuffled_bytes_of_tables']])} TB"),
        *(
            (f"rows of parts that are grouped, n = {n}", f"{_range([end / 1e9 for end in own])} thousand million")
            for n, own in found.get("rows_of_parts", {}).items()
        ),
        ("processors", f"{_range(found['core_hours'], 0)} core-hours"),
        ("nodes of 16 cores", f"{_range(found['node_hours_of_16_cores'], 0)} node-hours"),
        ("price, at 0.05 a core-hour", _range(found["price"], 0)),
        ("the same by `explode`, n to 2", f"{found['core_hours_of_explode']:,.0f} core-hours"),
        (
            "its shuffle",
            f"{_range([end / TB for end in found['shuffled_bytes_of_explode']])} TB",
        ),
        ("the core alone, on one machine", f"{found['core_hours_of_one_machine']:,.0f} core-hours"),
    ]
