"""How fast do notes come out of PostgreSQL, in how much memory, by which reader; and what does staging them cost?

A server is started, as an unprivileged user, and filled with a generated hospital of 50,000 notes as OMOP. Each reader
first answers what it read: rows, bytes and a sum of digests, which must be those that were written. Then all are timed,
in turns. Staging is what `reticent run` does with a database, with one and two connections, and `update --refresh`
after one note in a hundred has changed, whose files must be those of a reading from nothing. MTSamples and MEDDOCAN go
the same way, and their index must be that of their files, byte for byte.

    python -m benchmarks.warehouse [--notes 50000] [--rounds 5]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from fixtures.corpora import read_documents
from fixtures.postgres import PASSWORD, postgres_server, programs

from benchmarks.large import generate
from benchmarks.record_io import DATA, spread, write_record
from benchmarks.runner import command
from benchmarks.warehouse_readers import READERS, in_process

ROOT = Path(__file__).parents[1]
NOTE = """CREATE TABLE note (note_id bigint NOT NULL, person_id bigint NOT NULL, note_date date,
          note_title varchar(250), note_type_concept_id integer, note_class_concept_id integer,
          language_concept_id integer, provider_id bigint, visit_occurrence_id bigint, note_text text NOT NULL)"""
CHANGE = "UPDATE note SET note_text = note_text || ' Seen again.' WHERE note_id % 100 = 7"


@contextmanager
def databases() -> Iterator[Any]:
    """Start the server of the tests; yields it, or None where it or its driver is not installed."""
    if programs() is None or find_spec("adbc_driver_postgresql") is None:
        yield None
        return
    with postgres_server() as server:
        os.environ["PGPASSFILE"] = str(server.passfile)
        yield server


def load(database: Any, batches: Iterator[pa.RecordBatch]) -> dict[str, int]:
    """Write documents as notes of OMOP, with whole numbers as ids; returns rows and bytes."""
    import pyarrow.compute as pc

    persons: dict[str, int] = {}
    rows = text_bytes = 0
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(NOTE)
        for batch in batches:
            owners = [
                persons.setdefault(owner, len(persons) + 1) for owner in batch.column("individual_id").to_pylist()
            ]
            notes = pa.array(range(rows, rows + batch.num_rows), pa.int64())
            table = pa.table(
                {
                    "note_id": notes,
                    "person_id": pa.array(owners, pa.int64()),
                    "note_text": batch.column("text").cast(pa.string()),
                }
            )
            cursor.adbc_ingest("note", table, mode="append")
            rows += batch.num_rows
            text_bytes += pc.sum(pc.binary_length(table.column("note_text"))).as_py()
        cursor.execute("VACUUM ANALYZE note")
    return {"rows": rows, "text_bytes": text_bytes, "persons": len(persons)}


def peer_address(database: Any) -> str:
    """The address with the password of the server of this run, for readers that look at no file of passwords."""
    folder = str(database.server.folder).replace("/", "%2F")
    return f"postgresql://owner:{PASSWORD}@{folder}/{database.name}"


def compare_readers(database: Any, wrote: dict[str, int], rounds: int) -> dict[str, Any]:
    """Check and time every reader, in turns."""
    address, expected = peer_address(database), None
    runs: dict[str, Any] = {}
    for name in READERS:
        found = in_process("check", name, address)
        if found is None:
            continue
        expected = expected or found
        assert found == expected, f"{name} read other notes"
        assert (found["rows"], found["text_bytes"]) == (wrote["rows"], wrote["text_bytes"]), name
        runs[name] = []
    for _ in range(rounds):
        for name, own in runs.items():
            own.append(in_process("read", name, address))
    return {
        name: {
            "mb_per_second": spread([wrote["text_bytes"] / 1e6 / one["seconds"] for one in own]),
            "cpu_seconds": spread([one["cpu_seconds"] for one in own]),
            "memory_bytes": max(one["peak_bytes"] - one["before_bytes"] for one in own),
        }
        for name, own in runs.items()
    }


def measure_staging(database: Any, wrote: dict[str, int], folder: Path, rounds: int) -> dict[str, Any]:
    """Time staging and refreshing; the files of a refresh must be those of a reading from nothing."""
    result: dict[str, Any] = {}
    settings = {"source": database.address(), "preset": "omop"}

    def timed(title: str, before: str | None, **more: Any) -> Path:
        own = []
        for turn in range(rounds):
            out = folder / f"{title}-{turn}"
            out.mkdir()
            found = in_process("stage_notes", {**settings, **more}, str(out), before)
            assert found is not None, f"staging failed: {title}"
            own.append(found)
        megabytes = own[0]["text_bytes"] / 1e6
        result[title] = {
            "mb_per_second": spread([megabytes / one["seconds"] for one in own]),
            "seconds": spread([one["seconds"] for one in own]),
            "cpu_seconds": spread([one["cpu_seconds"] for one in own]),
            "peak_bytes": max(one["peak_bytes"] for one in own),
            "texts_fetched": own[0]["fetched"],
        }
        assert own[0]["documents"] == wrote["rows"]
        return folder / f"{title}-0"

    first = timed("one connection", None)
    timed("two connections", None, connections=2)
    database.execute(CHANGE)
    again = timed("one connection, one note in a hundred changed", None)
    refreshed = timed("the same, refreshed", str(first))
    assert _bytes(refreshed) == _bytes(again), "a refresh left other files than a reading from nothing"
    return result


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def compare_index(database: Any, name: str, folder: Path) -> dict[str, Any]:
    """Load a real corpus as OMOP; the index of a run of the database must be that of a run of its files."""
    import pyarrow.parquet as pq

    from reticent.job.config import parse_job
    from reticent.job.pipeline import execute
    from reticent.job.run import Run

    table = read_documents(name, None).select(["individual_id", "text"])
    wrote = load(database, iter(table.to_batches()))
    rows = database.execute("SELECT note_id::text, person_id::text, note_text FROM note")
    columns = dict(zip(("doc_id", "individual_id", "text"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    sources = {
        "files": {"source": str(folder / f"{name}.parquet")},
        "database": {"source": database.address(), "preset": "omop", "connections": 2},
    }
    indexes = {}
    for title, corpus in sources.items():
        out = folder / f"{name}-{title}"
        execute(Run(parse_job({"out": str(out), "corpus": corpus, "index": {"max_n": 3}})), "index")
        indexes[title] = {
            path.name: path.read_bytes() for path in sorted((out / "index").iterdir()) if path.name != "manifest.json"
        }
    assert indexes["files"] == indexes["database"], f"{name}: the database gives another index than the files"
    return {**wrote, "index_bytes": sum(map(len, indexes["files"].values()))}


def run(size: Annotated[str, ("toy", "cpu")] = "cpu", notes: int = 50_000, rounds: int = 5) -> None:
    """Measure, and write the record ``warehouse``."""
    if size == "toy":
        notes, rounds = 300, 1
    with databases() as server, tempfile.TemporaryDirectory(prefix="warehouse-") as name:
        if server is None:
            print("skipped: PostgreSQL or its driver is not installed (make test-warehouse)", file=sys.stderr)
            return
        folder = Path(name)
        generate(folder / "documents", notes)
        from reticent.engine.corpus import open_corpus

        result: dict[str, Any] = {}
        with server.database() as database:
            corpus = open_corpus(str(folder / "documents"))
            wrote = load(database, corpus.batches(columns=("individual_id", "text"), batch_rows=4096))
            result |= {"hospital": wrote, "readers": compare_readers(database, wrote, rounds)}
            result["staging"] = measure_staging(database, wrote, folder, rounds)
        result["corpora"] = {}
        for own in ("mtsamples", "meddocan"):
            if not (DATA / own).exists():
                print(f"skipped {own}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
                continue
            with server.database() as database:
                result["corpora"][own] = compare_index(database, own, folder)
    path = write_record("warehouse", result, size)
    for title, found in [*result["readers"].items(), *result["staging"].items()]:
        print(f"{title}: {found['mb_per_second']['median']:.0f} MB/s, {found['cpu_seconds']['median']:.2f} CPU s")
    print(path if size != "toy" else "answers are right")


if __name__ == "__main__":
    command(run)
