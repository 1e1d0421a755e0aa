"""Readers of notes in PostgreSQL that the benchmark compares: each a process of its own that prints one JSON object.

Every reader yields record batches of ``note_id``, ``person_id``, ``note_text``. The check comes in a run of its own:
rows, bytes, and a sum of digests that does not depend on the order of the rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.engine_workers import Clock

QUERY = "SELECT note_id::text AS note_id, person_id::text AS person_id, note_text FROM note"
Batches = Iterator[pa.RecordBatch]


def adbc(address: str, hint: int | None) -> Batches:
    from adbc_driver_postgresql import dbapi

    options = {} if hint is None else {"adbc.postgresql.batch_size_hint_bytes": str(hint)}
    with dbapi.connect(address, autocommit=True) as connection, connection.cursor(adbc_stmt_kwargs=options) as cursor:
        cursor.execute(QUERY)
        yield from cursor.fetch_record_batch()


def connectorx_stream(address: str) -> Batches:
    import connectorx

    yield from connectorx.read_sql(address, QUERY, return_type="arrow_stream", batch_size=1024)


def connectorx_whole(address: str) -> Batches:
    import connectorx

    yield from connectorx.read_sql(address, QUERY, return_type="arrow").to_batches()


def psycopg_copy(address: str) -> Batches:
    import psycopg
    import pyarrow.csv as csv

    reading, writing = os.pipe()

    def copy() -> None:
        with (
            os.fdopen(writing, "wb") as pipe,
            psycopg.connect(address) as connection,
            connection.cursor() as cursor,
            cursor.copy(f"COPY ({QUERY}) TO STDOUT (FORMAT csv, HEADER)") as blocks,
        ):
            for block in blocks:
                pipe.write(block)

    thread = threading.Thread(target=copy)
    thread.start()
    types = dict.fromkeys(("note_id", "person_id", "note_text"), pa.string())
    with os.fdopen(reading, "rb") as pipe:
        yield from csv.open_csv(
            pipe,
            read_options=csv.ReadOptions(block_size=4 << 20),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=types),
        )
    thread.join()


def psycopg_cursor(address: str) -> Batches:
    import psycopg

    with psycopg.connect(address) as connection, connection.cursor(name="notes") as cursor:
        cursor.execute(QUERY)
        while rows := cursor.fetchmany(1024):
            columns = zip(*rows, strict=True)
            names = ("note_id", "person_id", "note_text")
            yield pa.record_batch({name: pa.array(values) for name, values in zip(names, columns, strict=True)})


def polars(address: str, engine: Any) -> Batches:
    import polars as pl

    yield from pl.read_database_uri(QUERY, address, engine=engine).to_arrow().to_batches()


#: Name -> reader of an address. The first is the one that Reticent uses.
READERS: dict[str, Callable[[str], Batches]] = {
    "ADBC, batches of 1 MiB (ours)": lambda address: adbc(address, 1 << 20),
    "ADBC, its own batches": lambda address: adbc(address, None),
    "connectorx, stream": connectorx_stream,
    "connectorx, whole": connectorx_whole,
    "psycopg COPY and pyarrow": psycopg_copy,
    "psycopg, named cursor": psycopg_cursor,
    "polars by connectorx": lambda address: polars(address, "connectorx"),
    "polars by ADBC": lambda address: polars(address, "adbc"),
}


def read(name: str, address: str) -> dict[str, Any]:
    """Read all notes; returns rows, bytes of text, seconds and memory."""
    rows = text_bytes = 0
    for _ in READERS[name](address):  # libraries are loaded, and the server has the pages at hand
        break
    with Clock() as clock:
        for batch in READERS[name](address):
            rows += batch.num_rows
            text_bytes += pc.sum(pc.binary_length(batch.column("note_text"))).as_py() or 0
    return {**clock.spent, "rows": rows, "text_bytes": text_bytes}


def check(name: str, address: str) -> dict[str, Any]:
    """Return rows, bytes of text, and a sum over the rows that changes with any of them."""
    found = {"rows": 0, "text_bytes": 0, "digest": 0}
    for batch in READERS[name](address):
        for row in zip(*(batch.column(column).to_pylist() for column in batch.schema.names), strict=True):
            note, person, text = map(str, row)
            found["rows"] += 1
            found["text_bytes"] += len(text.encode())
            found["digest"] = (found["digest"] + zlib.crc32(f"{note}\0{person}\0{text}".encode())) % (1 << 61)
    return found


def stage_notes(settings: dict[str, Any], folder: str, before: str | None) -> dict[str, Any]:
    """Stage a source as a run does; with ``before``, an earlier staging, as `update --refresh` does."""
    from reticent.core.without_pandas import keep_pandas_out

    keep_pandas_out()
    import adbc_driver_postgresql.dbapi  # noqa: F401  loaded before the clock runs

    from reticent.engine.sources.corpus_config import CorpusConfig
    from reticent.engine.sources.staged import Earlier, Refreshed, open_remote, stage, staged_files

    config, out = CorpusConfig(**settings), Path(folder)
    with Clock() as clock, open_remote(config, out) as opened:
        source: Any = opened
        if before is not None:
            source = Refreshed(source, Earlier(staged_files(Path(before)), config), config)
        counts = stage(source, config, out)
    counts["fetched"] = getattr(source, "num_fetched", counts["documents"])
    return {**clock.spent, **{name: counts[name] for name in ("documents", "text_bytes", "fetched")}}


def in_process(work: str, *given: Any) -> dict[str, Any] | None:
    """Run a function of this file in a process of its own; None, with a line on stderr, where it cannot be run."""
    command = [sys.executable, "-m", "benchmarks.warehouse_readers", work, json.dumps(given)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    if ended.returncode:
        why = (ended.stderr.strip().splitlines() or ["no message"])[-1].partition(":")[0]
        print(f"skipped {given[0] if isinstance(given[0], str) else work}: {why}", file=sys.stderr)
        return None
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    workers: dict[str, Callable[..., Any]] = {"read": read, "check": check, "stage_notes": stage_notes}
    print(json.dumps(workers[sys.argv[1]](*json.loads(sys.argv[2]))))
