"""Object stores and lake tables, on a server of S3 that the test starts, and tables that it writes."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from fixtures.jobs import Recorder, content
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from reticent.core.artifact import read_manifest
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import open_remote, stage, staged_files
from reticent.engine.withdrawn import LeftOut, Withdrawals
from reticent.ext.warehouse.objects import Objects
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

KEY = "planted-secret-key"
NOTE_WORD = "Zanzibarova"


def notes(first: int = 0, number: int = 60) -> pl.DataFrame:
    ids = range(first, first + number)
    return pl.DataFrame(
        {
            "doc_id": [f"d{n:04d}" for n in ids],
            "individual_id": [f"i{n // 3}" for n in ids],
            "text": [f"{NOTE_WORD} fever {n}" for n in ids],
        }
    )


def staged(folder: Path, **corpus: Any) -> tuple[pl.DataFrame, dict[str, Any]]:
    config = CorpusConfig(**corpus)
    folder.mkdir(exist_ok=True)
    with open_remote(config, folder) as source:
        counts = stage(source, config, folder)
    assert len(list(folder.iterdir())) == len(staged_files(folder))
    return pl.read_parquet(list(staged_files(folder))), counts


# -------------------------------------------------------------------------------------------------------------- stores


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="not installed: make test-warehouse")
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield f"{host}:{port}"
    started.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket called hospital."""
    import boto3

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "planted-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = boto3.resource("s3", endpoint_url=f"http://{endpoint}", region_name="us-east-1")
    made = store.create_bucket(Bucket="hospital")
    yield made
    made.objects.all().delete()
    made.delete()


def address(endpoint: str, path: str = "notes") -> str:
    return f"s3://hospital/{path}?endpoint_override={endpoint}&scheme=http&region=us-east-1"


def put(bucket: Any, folder: Path, *names: str, compress: bool = False) -> None:
    for number, name in enumerate(names):
        file = folder / "object"
        frame = notes(60 * number)
        frame.write_parquet(file) if name.endswith("parquet") else frame.write_csv(file)
        data = file.read_bytes()
        file.unlink()
        bucket.put_object(Key=name, Body=gzip.compress(data) if compress else data)


@pytest.mark.parametrize("connections", [1, 2])
def test_an_index_of_objects_is_that_of_the_same_files(
    bucket: Any, endpoint: str, tmp_path: Path, connections: int
) -> None:
    put(bucket, tmp_path, "notes/a.parquet", "notes/b/c.parquet", "notes/d.parquet")
    bucket.put_object(Key="notes/_SUCCESS", Body=b"")
    bucket.put_object(Key="notes/README.md", Body=b"notes")
    recorder = Recorder()
    corpus = {"source": address(endpoint), "connections": connections}
    execute(Run(parse_job({"out": str(tmp_path / "run"), "corpus": corpus}), recorder), "index")
    notes(0, 180).write_parquet(tmp_path / "notes.parquet")
    execute(
        Run(parse_job({"out": str(tmp_path / "files"), "corpus": {"source": str(tmp_path / "notes.parquet")}})), "index"
    )
    for name in ("index", "index-joint", "split"):
        both = [
            {file: data for file, data in content(tmp_path / run / name).items() if file != "manifest.json"}
            for run in ("run", "files")
        ]
        assert both[0] == both[1]
    manifest = read_manifest(tmp_path / "run" / "corpus")
    assert manifest.config["source"] == "s3://hospital/notes"
    assert manifest.counts["passed_over"] == 2  # one has no suffix of documents, one is hidden
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()


def test_compressed_csv_is_read_as_from_a_file(bucket: Any, endpoint: str, tmp_path: Path) -> None:
    put(bucket, tmp_path, "notes/a.csv.gz", "notes/b.csv.gz", compress=True)
    assert staged(tmp_path / "staged", source=address(endpoint))[0].equals(notes(0, 120))


def test_what_reading_csv_finds_is_said_of_objects_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "hospital" / "notes"
    folder.mkdir(parents=True)
    for number, name in enumerate(("a.csv", "b.csv")):
        lines = notes(60 * number).write_csv(separator=";").splitlines()
        lines[2], lines[5] = lines[2].replace(NOTE_WORD, f'"{NOTE_WORD}'), f'{lines[5]}"'
        (folder / name).write_text("\n".join(lines))
    monkeypatch.setattr(Objects, "_store", (SubTreeFileSystem(str(tmp_path), LocalFileSystem()), "hospital/notes"))
    execute(Run(parse_job({"out": str(tmp_path / "run"), "corpus": {"source": "s3://hospital/notes"}})), "corpus")
    said = capfd.readouterr().err
    assert "s3://hospital/notes/a.csv and 1 more: read with ; as delimiter" in said
    assert "2 quoted values of CSV hold a line" in said
    assert "(the first: s3://hospital/notes/a.csv row 2)" in said
    assert NOTE_WORD not in said


def test_another_object_is_another_version(bucket: Any, endpoint: str, tmp_path: Path) -> None:
    put(bucket, tmp_path, "notes/a.parquet")
    config = CorpusConfig(source=address(endpoint))
    first = Objects(config, tmp_path).version()
    assert Objects(config, tmp_path).version() == first
    notes(1).write_parquet(tmp_path / "b")
    bucket.put_object(Key="notes/a.parquet", Body=(tmp_path / "b").read_bytes())
    assert Objects(config, tmp_path).version() != first


@pytest.mark.parametrize("gone", [False, True])
def test_an_object_that_is_replaced_or_deleted_while_it_is_read_is_an_error(
    bucket: Any, endpoint: str, tmp_path: Path, gone: bool
) -> None:
    put(bucket, tmp_path, "notes/a.csv", "notes/b.csv")
    config = CorpusConfig(source=address(endpoint))

    def change(_: int) -> None:
        if gone:
            bucket.Object("notes/b.csv").delete()
        else:
            bucket.put_object(Key="notes/b.csv", Body=notes(200).write_csv().encode())

    with open_remote(config, tmp_path) as source:
        batches = source.batches(["text"], part=0, parts=1)
        next(iter(batches))
        change(0)
        said = "there is no such object" if gone else "b.csv: was replaced while it was read"
        with pytest.raises(CorpusError, match=said):
            list(batches)


@pytest.mark.parametrize("mark", ["_delta_log/00000000000000000000.json", "metadata/v1.metadata.json"])
@pytest.mark.parametrize("part", ["notes", "notes/day=1", "notes/day=1/a.parquet"])
def test_the_objects_of_a_table_are_refused(bucket: Any, endpoint: str, tmp_path: Path, mark: str, part: str) -> None:
    put(bucket, tmp_path, "notes/day=1/a.parquet")
    bucket.put_object(Key=f"notes/{mark}", Body=b"{}")
    with pytest.raises(
        CorpusError, match=f"s3://hospital/{part}: an? (Delta|Iceberg) table, whose files hold rows that"
    ):
        staged(tmp_path / "staged", source=address(endpoint, part))


def test_what_goes_wrong_with_a_store_is_said_by_its_code(bucket: Any, endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="s3://hospital/notes: "):
        staged(tmp_path, source=address(endpoint))
    with pytest.raises(CorpusError, match=r"s3://nowhere/notes: .*"):
        staged(tmp_path, source=address(endpoint).replace("hospital", "nowhere"))
    bucket.put_object(Key="notes/a.csv", Body=f"doc_id,individual_id,text\n1,2,{NOTE_WORD}\n3,,x\n".encode())
    with pytest.raises(CorpusError, match=r"s3://hospital/notes/a\.csv") as refused:
        staged(tmp_path, source=address(endpoint), text="body")
    assert str(tmp_path) not in str(refused.value)
    bucket.put_object(Key="notes/b.parquet", Body=b"PAR1")
    with pytest.raises(CorpusError, match="objects of one format expected"):
        staged(tmp_path, source=address(endpoint))


# --------------------------------------------------------------------------------------------------------- withdrawals


def as_delta(folder: Path, frame: pl.DataFrame, request: Any) -> dict[str, Any]:
    deltalake = pytest.importorskip("deltalake", reason="not installed: make test-warehouse")
    deltalake.write_deltalake(str(folder / "table"), frame.to_arrow())
    return {"source": f"delta://{folder / 'table'}", "connections": 2}


def as_objects(folder: Path, frame: pl.DataFrame, request: Any) -> dict[str, Any]:
    bucket, endpoint = map(request.getfixturevalue, ("bucket", "endpoint"))
    bucket.put_object(Key="notes/a.csv.gz", Body=gzip.compress(frame.write_csv().encode()))
    return {"source": address(endpoint)}


def as_rows(folder: Path, frame: pl.DataFrame, request: Any) -> dict[str, Any]:
    frame.write_csv(folder / "rows.csv")
    request.getfixturevalue("duck")(f"CREATE TABLE note AS SELECT * FROM read_csv('{folder}/rows.csv')")
    return {"source": "adbc://hospital", "table": "note"}


@pytest.mark.parametrize("kept_in", [as_delta, as_objects, as_rows])
def test_a_list_is_read_before_the_documents_and_no_text_of_theirs_is_staged(
    kept_in: Any, tmp_path: Path, request: Any
) -> None:
    frame = notes().with_columns(pl.col("individual_id").replace("i5", "I5"))
    given = kept_in(tmp_path, frame, request)
    (tmp_path / "gone.txt").write_text("i3\ni5\nnobody\n")
    record: Any = LeftOut()
    for ids, out in (("exact", {"i3"}), ("fold", {"i3", "I5"})):
        config = CorpusConfig(**given, ids=ids, withdrawn=(str(tmp_path / "gone.txt"),))
        reading = Withdrawals(config, record)
        (tmp_path / ids).mkdir()
        with open_remote(config, tmp_path / ids) as source:
            stage(source, config, tmp_path / ids, withdrawals=reading)
        found = pl.concat(pl.read_parquet(file) for file in staged_files(tmp_path / ids))
        assert set(found["individual_id"]) == set(frame["individual_id"]) - out
        assert reading.lists == [(str(tmp_path / "gone.txt"), 3, len(out))]
        record = reading.record
        assert record.table.num_rows == 3 * len(out)
    with pytest.raises(CorpusError, match="spelt otherwise than in the documents: line 2"):
        staged(tmp_path / "stop", **given, withdrawn=(str(tmp_path / "gone.txt"),))
    (tmp_path / "gone.txt").write_text("i3\n")
    with (
        open_remote(config, tmp_path) as source,
        pytest.raises(PolicyError, match=r"1 individual\(s\) whom an earlier"),
    ):
        stage(source, config, tmp_path, withdrawals=Withdrawals(config, record))


# --------------------------------------------------------------------------------------------------------------- lakes


def test_a_delta_table_is_read_at_a_version(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="not installed: make test-warehouse")
    table = str(tmp_path / "table")
    deltalake.write_deltalake(table, notes(0, 60).to_arrow())
    deltalake.write_deltalake(table, notes(60, 60).to_arrow(), mode="append")
    deltalake.DeltaTable(table).delete("doc_id = 'd0003'")
    newest, counts = staged(tmp_path / "newest", source=f"delta://{table}", connections=2)
    assert counts["snapshot"] == "version 2"
    assert newest.sort("doc_id").equals(notes(0, 120).filter(pl.col("doc_id") != "d0003"))
    assert staged(tmp_path / "first", source=f"delta://{table}", version="0")[0].equals(notes(0, 60))
    with pytest.raises(CorpusError, match="version 7 is not there"):
        staged(tmp_path / "none", source=f"delta://{table}", version="7")
    with pytest.raises(PolicyError, match=r"corpus\.version: expected the number"):
        staged(tmp_path / "none", source=f"delta://{table}", version="one")
    with pytest.raises(CorpusError, match="column body is missing"):
        staged(tmp_path / "none", source=f"delta://{table}", text="body")
    with pytest.raises(CorpusError, match="no Delta table there"):
        staged(tmp_path / "none", source=f"delta://{tmp_path}/nowhere")


def test_a_partitioned_delta_table_in_a_store_is_read(bucket: Any, endpoint: str, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="not installed: make test-warehouse")
    options = {"AWS_ENDPOINT_URL": f"http://{endpoint}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    frame = notes().with_columns(ward=pl.col("doc_id").str.slice(4))
    deltalake.write_deltalake("s3://hospital/table", frame.to_arrow(), partition_by=["ward"], storage_options=options)
    found, _ = staged(tmp_path / "s", source="delta+" + address(endpoint, "table"), label="ward")
    assert found.sort("doc_id").equals(frame.rename({"ward": "ward"}))


def test_files_of_a_delta_version_that_are_gone_are_an_error(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="not installed: make test-warehouse")
    table = tmp_path / "table"
    deltalake.write_deltalake(str(table), notes().to_arrow())
    deltalake.write_deltalake(str(table), notes(60).to_arrow(), mode="overwrite")
    deltalake.DeltaTable(str(table)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(CorpusError, match="a file of this version cannot be read"):
        staged(tmp_path / "s", source=f"delta://{table}", version="0")


def test_an_iceberg_table_is_read_at_a_snapshot(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="not installed: make test-warehouse")
    catalog = pytest.importorskip("pyiceberg.catalog", reason="not installed: make test-warehouse")
    (tmp_path / "warehouse").mkdir()
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog._ENV_CONFIG.config = {"catalog": {"hospital": settings}}
    opened = catalog.load_catalog("hospital")
    opened.create_namespace("records")
    rows = notes().with_columns(number=pl.int_range(60, dtype=pl.Int64)).to_arrow()
    rows = rows.cast(pa.schema([pa.field(f.name, pa.string() if f.name != "number" else f.type) for f in rows.schema]))
    table = opened.create_table("records.notes", schema=rows.schema)
    table.append(rows)
    first = table.current_snapshot().snapshot_id
    table.append(rows.slice(0, 3))
    source = "iceberg://hospital/records.notes"
    found, counts = staged(tmp_path / "a", source=source, version=str(first), doc_id="number")
    assert counts["snapshot"] == f"snapshot {first}"
    assert found["number"].to_list() == [str(n) for n in range(60)]
    assert len(staged(tmp_path / "b", source=source)[0]) == 63
    with pytest.raises(CorpusError, match="snapshot 5 is not there"):
        staged(tmp_path / "none", source=source, version="5")
    with pytest.raises(CorpusError, match=r"cannot be opened \(NoSuchTableError\)"):
        staged(tmp_path / "none", source="iceberg://hospital/records.none")


def test_any_database_with_a_driver_is_read_by_its_profile(duck: Any, tmp_path: Path) -> None:
    duck(
        "CREATE TABLE note AS SELECT i::DECIMAL(20, 0) AS note_id, (i // 3)::BIGINT AS person_id, "
        f"'{NOTE_WORD} fever ' || i AS note_text FROM range(100) AS numbers(i)"
    )
    named = {"doc_id": "note_id", "individual_id": "person_id", "text": "note_text"}
    found, counts = staged(tmp_path / "a", source="adbc://hospital", table="note", **named)
    assert found.row(7) == ("7", "2", f"{NOTE_WORD} fever 7")
    assert counts["documents"] == 100
    assert len(staged(tmp_path / "b", source="adbc://hospital", preset="omop")[0]) == 100
    with pytest.raises(CorpusError) as refused:
        staged(tmp_path / "c", source="adbc://hospital", query="SELECT note_text::INT AS note_id FROM note", **named)
    assert NOTE_WORD not in str(refused.value)
    with pytest.raises(CorpusError, match="cannot connect"):
        staged(tmp_path / "d", source="adbc://nowhere", table="note", **named)


@pytest.mark.parametrize(
    ("kind", "of_register"),
    [("BIGINT", "VARCHAR"), ("VARCHAR", "DECIMAL(20, 0)"), ("DECIMAL(20, 0)", "BIGINT"), ("UUID", "UUID")],
)
def test_who_withdrew_is_left_out_by_any_database(duck: Any, tmp_path: Path, kind: str, of_register: str) -> None:
    made = "lpad(({})::VARCHAR, 32, '0')" if kind == "UUID" else "{}"
    duck(
        f"CREATE TABLE note AS SELECT i AS note_id, ({made.format('i // 3')})::{kind} AS person_id, 'fever ' || i AS "
        "note_text FROM range(60) AS numbers(i)",
        f"CREATE TABLE opt_out AS SELECT ({made.format('i')})::{of_register} AS person_id "
        "FROM unnest([3, 11, 77]) AS t(i)",
        "UPDATE note SET note_text = 'cough' WHERE note_id = 0",
    )
    named = {"doc_id": "note_id", "individual_id": "person_id", "text": "note_text"}
    more: dict[str, Any] = {"source": "adbc://hospital", "table": "note", **named}
    found, counts = staged(tmp_path / "a", opt_out="opt_out", **more)
    assert sorted(map(int, found["note_id"])) == [i for i in range(60) if i // 3 not in (3, 11)]
    assert counts["opt_out"] == {"ids": 3, "individuals": 2}
    assert counts["row_security"] == "not known: this database cannot be asked whether it hides rows"
    with pytest.raises(CorpusError, match="nowhere"):
        staged(tmp_path / "b", opt_out="nowhere", **more)
    duck("DELETE FROM opt_out")
    with pytest.raises(CorpusError, match="the table holds no id"):
        staged(tmp_path / "c", opt_out="opt_out", **more)


@pytest.mark.parametrize("kind", ["", "INTEGER", "TEXT"])
def test_sqlite_is_read_and_who_withdrew_stays_out_whatever_it_compares(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a type of its column an id 3 is not IN ('3') there, and the database sends its notes."""
    driver = pytest.importorskip("adbc_driver_sqlite", reason="not installed: make test-warehouse")
    (tmp_path / "sqlite.toml").write_text(
        f'manifest_version = 1\nname = "SQLite"\n[Driver]\nshared = "{driver._driver_path()}"\n'
    )
    (tmp_path / "hospital.toml").write_text(
        f'profile_version = 1\ndriver = "sqlite"\n[Options]\nuri = "{tmp_path}/hospital.db"\n'
    )
    monkeypatch.setenv("ADBC_PROFILE_PATH", str(tmp_path))
    monkeypatch.setenv("ADBC_DRIVER_PATH", str(tmp_path))
    with closing(sqlite3.connect(tmp_path / "hospital.db")) as connection:
        connection.execute(f"CREATE TABLE note (note_id, person_id {kind}, note_text)")
        rows = [(i, i // 3, f"fièvre {i}") for i in range(3000)]
        connection.executemany("INSERT INTO note VALUES (?, ?, ?)", rows)
        connection.execute(f"CREATE TABLE opt_out (person_id {kind})")
        connection.executemany("INSERT INTO opt_out VALUES (?)", [(3,), (999,), (7777,)])
        connection.commit()
    config = CorpusConfig(source="adbc://hospital", table="note", doc_id="note_id", individual_id="person_id",
                          text="note_text", opt_out="opt_out")  # fmt: skip
    reading = Withdrawals(config)
    (tmp_path / "staged").mkdir()
    with open_remote(config, tmp_path) as source:
        counts = stage(source, config, tmp_path / "staged", withdrawals=reading)
    found = pl.read_parquet(list(staged_files(tmp_path / "staged")))
    assert found.rows() == [(str(i), str(i // 3), f"fièvre {i}") for i in range(3000) if i // 3 not in (3, 999)]
    assert (counts["documents"], counts["opt_out"]) == (2994, {"ids": 3, "individuals": 2})
    assert reading.record.table.num_rows == 6


@pytest.mark.parametrize("renumbered", [False, True])
@pytest.mark.parametrize("by", ["opt_out", "withdrawn"])
def test_a_note_that_moved_is_known_by_the_digest_that_a_database_makes(
    duck: Any, tmp_path: Path, by: str, renumbered: bool
) -> None:
    duck(
        "CREATE TABLE note AS SELECT i AS note_id, i // 3 AS person_id, 'fièvre ' || i AS note_text "
        "FROM range(60) AS numbers(i)",
        "CREATE TABLE opt_out AS SELECT 3 AS person_id",
    )
    (tmp_path / "gone.txt").write_text("3\n")
    more: Any = {"opt_out": "opt_out"} if by == "opt_out" else {"withdrawn": (str(tmp_path / "gone.txt"),)}
    config = CorpusConfig(source="adbc://hospital", table="note", doc_id="note_id", individual_id="person_id",
                          text="note_text", **more)  # fmt: skip
    reading = Withdrawals(config)
    with open_remote(config, tmp_path) as source:
        stage(source, config, tmp_path, withdrawals=reading)
    assert reading.record.table.column("text").null_count == 0
    number = "note_id + 100" if renumbered else "note_id"
    duck(f"UPDATE note SET person_id = 5, note_id = {number} WHERE note_id IN (9, 10)")
    with open_remote(config, tmp_path) as source, pytest.raises(PolicyError, match=r"2 document\(s\) of individuals"):
        stage(source, config, tmp_path, withdrawals=Withdrawals(config, reading.record))


def test_a_fault_of_a_database_is_found_by_a_query_and_one_of_a_store_by_its_key(
    duck: Any, bucket: Any, endpoint: str, tmp_path: Path
) -> None:
    named = {"doc_id": "note_id", "individual_id": "person_id", "text": "note_text"}
    more: dict[str, Any] = {"source": "adbc://hospital", "table": "note", **named}
    duck("CREATE TABLE note AS SELECT i % 59 AS note_id, i // 3 AS person_id, 'x' AS note_text FROM range(60) AS t(i)")
    with pytest.raises(CorpusError, match="1 rows have the id of another document; they are found by: SELECT") as said:
        staged(tmp_path / "a", **more)
    assert "GROUP BY" in str(said.value)
    duck("UPDATE note SET person_id = NULL WHERE note_id = 7")
    with pytest.raises(
        CorpusError, match=r'is null; it is found by: SELECT n.\* FROM note AS n WHERE n."person_id" IS NULL'
    ):
        staged(tmp_path / "b", **more)
    put(bucket, tmp_path, "notes/2023/a.parquet")
    frame = notes(60).with_columns(individual_id=pl.lit(None, pl.String))
    frame.write_parquet(tmp_path / "bad.parquet")
    bucket.put_object(Key="notes/2024/a.parquet", Body=(tmp_path / "bad.parquet").read_bytes())
    with pytest.raises(CorpusError, match=r"s3://hospital/notes/2024/a.parquet row 1 column individual_id: is null"):
        staged(tmp_path / "c", source=address(endpoint))
    bucket.put_object(Key="notes/2024/a.parquet", Body=b"no parquet")
    with pytest.raises(CorpusError, match=r"s3://hospital/notes/2024/a.parquet: "):
        staged(tmp_path / "d", source=address(endpoint))
    for path, reason in (("my notes", "write a blank in it as %20"), ("notes/*/a.parquet", "has no pattern")):
        with pytest.raises(CorpusError, match=reason):
            staged(tmp_path / "e", source=address(endpoint, path))
