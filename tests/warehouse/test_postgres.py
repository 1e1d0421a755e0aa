"""PostgreSQL as a source, on a real server: one snapshot, the documents of files, and no secret in what goes wrong."""

from __future__ import annotations

import contextlib
import json
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.jobs import Recorder, content
from fixtures.postgres import PASSWORD, Database, needs_postgres

from reticent.core.artifact import read_manifest
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.remote import open_remote
from reticent.engine.sources.staged import stage, staged_files
from reticent.job.config import parse_job
from reticent.job.run import Run

needs_postgres()
#: A word of a note, which a driver's message would quote.
NOTE_WORD = "Zanzibarova"
COLUMNS = {"doc_id": "note_id", "individual_id": "person_id", "text": "note_text"}


def fill(database: Database, num_notes: int = 300, *, ids: str = "integer", words: int = 20) -> None:
    """A table of notes, of three to each individual."""
    database.execute(
        f"CREATE TABLE note (note_id {ids} NOT NULL, person_id {ids}, note_text text)",
        f"INSERT INTO note SELECT i, i / 3, '{NOTE_WORD} ' || repeat('fever and word' || i % 50 || ' ', {words}) "
        f"FROM generate_series(0, {num_notes - 1}) AS i",
    )


def settings(database: Database, **more: Any) -> dict[str, Any]:
    chosen = {} if {"query", "preset"} & more.keys() else {"table": "note"}
    return {"source": database.address(), **chosen, **({} if "preset" in more else COLUMNS), **more}


def staged(database: Database, folder: Path, **more: Any) -> pl.DataFrame:
    config = CorpusConfig(**settings(database, **more))
    folder.mkdir(exist_ok=True)
    with open_remote(config, folder) as source:
        stage(source, config, folder)
    return pl.read_parquet(list(staged_files(folder)))


def job(database: Database, out: Path, **more: Any) -> dict[str, Any]:
    return {"out": str(out), "corpus": settings(database, **more), "index": {"max_n": 2}}


def made(values: dict[str, Any], until: str = "index") -> Recorder:
    recorder = Recorder()
    Run(parse_job(values), recorder).execute(until)
    return recorder


def tables(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in content(folder).items() if not name.endswith("manifest.json")}


# ------------------------------------------------------------------------------------------------------ what is read


@pytest.mark.parametrize("connections", [1, 3])
def test_an_index_of_a_table_is_that_of_a_file_of_its_rows(
    database: Database, tmp_path: Path, connections: int
) -> None:
    fill(database, 2000)
    assert made(job(database, tmp_path / "run", connections=connections)).made[0] == "corpus"
    rows = database.execute("SELECT note_id::text, person_id::text, note_text FROM note")
    pl.DataFrame(rows, schema=list(COLUMNS.values()), orient="row").write_parquet(tmp_path / "notes.parquet")
    made({"out": str(tmp_path / "files"), "corpus": {"source": str(tmp_path / "notes.parquet"), **COLUMNS}} | {
        "index": {"max_n": 2}
    })  # fmt: skip
    for name in ("index", "index-joint", "split"):
        assert tables(tmp_path / "run" / name) == tables(tmp_path / "files" / name)
    counts = read_manifest(tmp_path / "run" / "corpus").counts
    assert counts["documents"] == 2000
    assert counts["text_bytes"] == sum(len(row[2].encode()) for row in rows)
    assert len(staged_files(tmp_path / "run" / "corpus")) == connections


def test_the_digest_of_the_keys_is_the_same_for_any_number_of_connections(database: Database, tmp_path: Path) -> None:
    fill(database, 3000)
    digests = set()
    for connections in (1, 2, 5):
        made(job(database, tmp_path / str(connections), connections=connections), "corpus")
        manifest = read_manifest(tmp_path / str(connections) / "corpus")
        digests.add(manifest.counts["keys"]["sha256"])
    assert len(digests) == 1
    database.execute("UPDATE note SET person_id = 7 WHERE note_id = 2000")
    made(job(database, tmp_path / "changed"), "corpus")
    assert read_manifest(tmp_path / "changed" / "corpus").counts["keys"]["sha256"] not in digests


@pytest.mark.parametrize("ids", ["bigint", "numeric", "text", "varchar(20)", "smallint"])
def test_ids_of_any_type_are_the_same_documents(database: Database, tmp_path: Path, ids: str) -> None:
    fill(database, 30, ids=ids)
    found = staged(database, tmp_path / "staged")
    assert found["note_id"].to_list() == [str(number) for number in range(30)]
    assert found["person_id"].to_list() == [str(number // 3) for number in range(30)]


def test_ids_may_be_uuids(database: Database, tmp_path: Path) -> None:
    fill(database, 30)
    database.execute("ALTER TABLE note ALTER note_id TYPE uuid USING lpad(note_id::text, 32, '0')::uuid")
    assert staged(database, tmp_path)["note_id"][7] == "00000000-0000-0000-0000-000000000007"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE note ALTER note_id TYPE double precision", "column note_id: expected text, integers or uuid"),
        ("ALTER TABLE note ALTER note_text TYPE bytea USING note_text::bytea", "column note_text: expected text"),
        ("ALTER TABLE note RENAME note_text TO body", "column note_text is missing; it has note_id, person_id, body"),
    ],
)
def test_a_column_of_a_wrong_type_or_none_is_named(database: Database, tmp_path: Path, change: str, said: str) -> None:
    fill(database, 30)
    database.execute(change)
    with pytest.raises(CorpusError, match=said):
        staged(database, tmp_path)


@pytest.mark.parametrize("connections", [1, 2])
def test_a_null_note_stops_the_reading_or_is_left_out_and_counted(
    database: Database, tmp_path: Path, connections: int
) -> None:
    fill(database, 30)
    database.execute("UPDATE note SET note_text = NULL WHERE note_id = 11")
    with pytest.raises(CorpusError, match=r"row \d+ column note_text: is null") as stopped:
        made(job(database, tmp_path / "run", connections=connections))
    assert NOTE_WORD not in str(stopped.value)
    assert not (tmp_path / "run" / "corpus").exists()
    made(job(database, tmp_path / "run", connections=connections, on_null="skip"))
    assert read_manifest(tmp_path / "run" / "corpus").counts["null_texts"] == 1
    assert read_manifest(tmp_path / "run" / "split").counts["documents"] == 29
    database.execute("UPDATE note SET person_id = NULL WHERE note_id = 5")
    with pytest.raises(CorpusError, match="column person_id: is null"):
        staged(database, tmp_path / "again", on_null="skip")


def test_a_note_of_100_megabytes_is_read(database: Database, tmp_path: Path) -> None:
    fill(database, 30)
    database.execute("UPDATE note SET note_text = repeat('long word ', 10000000) WHERE note_id = 3")
    lengths = staged(database, tmp_path)["note_text"].str.len_bytes()
    assert lengths.max() == 100_000_000
    assert (lengths > 1000).sum() == 1


@pytest.mark.parametrize("database", ["LATIN1"], indirect=True)
def test_a_database_of_another_encoding_is_read_as_utf8(database: Database, tmp_path: Path) -> None:
    fill(database, 6)
    database.execute("UPDATE note SET note_text = 'caf' || chr(233) WHERE note_id = 2")
    assert staged(database, tmp_path).filter(note_id="2")["note_text"].to_list() == ["café"]


@pytest.mark.parametrize("database", ["SQL_ASCII"], indirect=True)
def test_bytes_that_are_not_utf8_are_an_error(database: Database, tmp_path: Path) -> None:
    fill(database, 6)
    database.execute(f"UPDATE note SET note_text = '{NOTE_WORD} caf' || chr(233) WHERE note_id = 5")
    with pytest.raises(CorpusError, match="a text is not valid in its encoding") as refused:
        staged(database, tmp_path)
    assert NOTE_WORD not in str(refused.value)


def test_a_view_and_a_query_are_read_whole_whatever_the_number_of_connections(
    database: Database, tmp_path: Path
) -> None:
    fill(database, 600)
    database.execute("CREATE VIEW seen AS SELECT * FROM note WHERE note_id < 500")
    assert len(staged(database, tmp_path / "view", table="seen", connections=3)) == 500
    query = "SELECT note_id, person_id, note_text FROM note WHERE note_id >= 500; -- the last ones"
    assert len(staged(database, tmp_path / "query", query=query.replace(";", ""), connections=3)) == 100
    query = query.partition(" --")[0]
    assert len(staged(database, tmp_path / "again", query=query)) == 100


def test_a_partitioned_table_is_read_once_by_several_connections(database: Database, tmp_path: Path) -> None:
    fill(database, 3000)
    database.execute(
        "CREATE TABLE parted (LIKE note) PARTITION BY HASH (person_id)",
        *(f"CREATE TABLE p{n} PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER {n})" for n in range(3)),
        "INSERT INTO parted SELECT * FROM note",
    )
    found = staged(database, tmp_path, table="parted", connections=4)
    assert sorted(map(int, found["note_id"])) == list(range(3000))


def test_a_name_that_needs_quotes_and_one_of_a_schema_are_found(database: Database, tmp_path: Path) -> None:
    fill(database, 30)
    database.execute(
        'CREATE SCHEMA "Cdm"', 'ALTER TABLE note SET SCHEMA "Cdm"', 'ALTER TABLE "Cdm".note RENAME TO "My Notes"'
    )
    assert len(staged(database, tmp_path, table='"Cdm"."My Notes"')) == 30


# ----------------------------------------------------------------------------------------------------------- presets


def test_the_preset_omop_reads_notes_and_columns_of_visits(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE SCHEMA cdm",
        "CREATE TABLE cdm.person (person_id integer, gender_concept_id integer, year_of_birth integer)",
        "CREATE TABLE cdm.visit_occurrence (visit_occurrence_id integer, visit_concept_id integer, "
        "visit_start_date date, care_site_id integer)",
        "CREATE TABLE cdm.note (note_id integer, person_id integer, note_date date, note_type_concept_id integer, "
        "note_class_concept_id integer, note_title varchar(250), note_text text, language_concept_id integer, "
        "provider_id integer, visit_occurrence_id integer)",
        "INSERT INTO cdm.person SELECT i, 8507, 1950 + i FROM generate_series(0, 9) i",
        "INSERT INTO cdm.visit_occurrence SELECT i, 9200 + i % 2, '2020-01-01', 1 FROM generate_series(0, 4) i",
        "INSERT INTO cdm.note SELECT i, i % 10, '2020-01-02', 1, 2, 'title', 'fever ' || i, 3, 4, i % 6 "
        "FROM generate_series(0, 29) i",
    )
    plain = staged(database, tmp_path / "plain", preset="omop", table="cdm.note")
    assert plain.columns == ["doc_id", "individual_id", "text"]
    assert plain.row(12) == ("12", "2", "fever 12")
    found = staged(database, tmp_path / "more", preset="omop", table="cdm.note", label="visit_concept_id")
    labels = dict(zip(found["doc_id"], found["visit_concept_id"], strict=True))
    assert labels["3"] == "9201"
    assert labels["5"] is None  # it has no visit
    assert len(labels) == 30
    with pytest.raises(PolicyError, match="omop has no column ward; it has doc_id"):
        staged(database, tmp_path / "wrong", preset="omop", table="cdm.note", label="ward")


def test_the_preset_i2b2_reads_the_facts_that_have_a_text(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE observation_fact (encounter_num int, patient_num int, concept_cd varchar(50), provider_id "
        "varchar(50), start_date timestamp, modifier_cd varchar(100), instance_num int, observation_blob text, "
        "sourcesystem_cd varchar(50))",
        "INSERT INTO observation_fact SELECT i, i / 2, 'NOTE', 'P', '2020-01-01 10:00', '@', 1, "
        "CASE WHEN i % 2 = 0 THEN 'fever ' || i ELSE NULL END, 's' FROM generate_series(0, 9) i",
    )
    found = staged(database, tmp_path, preset="i2b2")
    assert found.row(1) == ("2|1|NOTE|P|2020-01-01 10:00:00|@|1", "1", "fever 2")
    assert len(found) == 5


# ---------------------------------------------------------------------------------------------------------- snapshot


@pytest.mark.parametrize("connections", [1, 3])
def test_rows_that_come_change_and_go_while_it_is_read_are_not_seen(
    database: Database, tmp_path: Path, connections: int
) -> None:
    fill(database, 3000, words=40)
    before = sorted(database.execute("SELECT note_id::text, person_id::text, note_text FROM note"))
    config = CorpusConfig(**settings(database, connections=connections))
    changes = iter(
        [
            "INSERT INTO note SELECT i, 5, 'new' FROM generate_series(5000, 6000) i",
            "UPDATE note SET note_text = 'changed' WHERE note_id % 2 = 0",
            "DELETE FROM note WHERE note_id % 5 = 0",
        ]
    )

    def change(_: int) -> None:
        with contextlib.suppress(StopIteration):
            database.execute(next(changes))

    with open_remote(config, tmp_path) as source:
        version = source.version()
        change(0)
        stage(source, config, tmp_path, progress=change)
        assert source.version() == version
    while (statement := next(changes, None)) is not None:
        database.execute(statement)
    assert sorted(pl.read_parquet(list(staged_files(tmp_path))).rows()) == before
    with open_remote(config, tmp_path) as source:
        assert source.version() != version


def test_a_run_keeps_its_snapshot_until_other_rows_are_asked_for(database: Database, tmp_path: Path) -> None:
    fill(database)
    values = job(database, tmp_path / "run")
    made(values)
    first = tables(tmp_path / "run")
    database.execute("DELETE FROM note WHERE note_id < 100")
    assert made(values).made == []
    assert tables(tmp_path / "run") == first
    query = {"query": "SELECT * FROM note WHERE note_id < 250"}
    other = {**values, "corpus": {**settings(database, **query)}}
    assert made(other).made[:2] == ["corpus", "split"]
    assert read_manifest(tmp_path / "run" / "corpus").counts["documents"] == 150


def test_the_staged_documents_are_private_and_whole_commands_read_them(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(database)
    out = tmp_path / "run"
    given = ["--doc-id", "note_id", "--individual-id", "person_id", "--text", "note_text"]
    assert command("index", database.address(), "--out", out, *given, "--set", "corpus.table=note") == 0
    assert stat.S_IMODE((out / "corpus").stat().st_mode) == 0o700
    for file in staged_files(out / "corpus"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    database.execute("DROP TABLE note")
    capfd.readouterr()
    assert command("detect", out, "--json") == 0
    assert json.loads(capfd.readouterr().out)["documents"] == 300
    assert command("detect", out, "--json", "--set", "detect.detectors=['rules']", "--detector", "rules") == 0
    assert command("dedup", out, "--json") == 0
    assert command("scrub", out, "--out", tmp_path / "scrubbed") == 0
    assert command("status", out) == 0


def test_columns_of_records_and_of_classes_are_read_too(database: Database, tmp_path: Path) -> None:
    fill(database)
    database.execute("ALTER TABLE note ADD pat_last text", "UPDATE note SET pat_last = 'Fever' || person_id")
    database.execute("ALTER TABLE note ADD class int DEFAULT 4")
    values = job(database, tmp_path / "run") | {
        "detect": {"detectors": ["records"], "records": {"columns": {"NAME": "pat_last"}}},
        "classify": {"label": "class"},
    }
    made(values, "detect")
    found = pl.read_parquet(list(staged_files(tmp_path / "run" / "corpus")))
    assert found.columns == ["note_id", "person_id", "note_text", "class", "pat_last"]
    assert found.filter(note_id="3").row(0)[3:] == ("4", "Fever1")


# ----------------------------------------------------------------------------------------------------------- updates


@pytest.fixture
def updatable(database: Database, tmp_path: Path) -> Path:
    """A run whose index can be updated."""
    fill(database)
    values = job(database, tmp_path / "monday") | {"index": {"max_n": 2, "updatable": True}}
    made(values)
    return tmp_path / "monday"


def test_a_refresh_counts_new_changed_and_deleted_notes_as_a_rebuild_does(
    database: Database, updatable: Path, tmp_path: Path
) -> None:
    database.execute(
        "INSERT INTO note SELECT i, i / 3, 'a new note of ' || i FROM generate_series(299, 310) AS i WHERE i > 299",
        "UPDATE note SET note_text = 'chest pain and word3' WHERE note_id IN (17, 18)",
        "DELETE FROM note WHERE note_id IN (40, 41, 42, 100)",
    )
    assert command("update", updatable, "--refresh", "--out", tmp_path / "tuesday") == 0
    made(job(database, tmp_path / "rebuilt") | {"index": {"max_n": 2, "updatable": True}})
    for name in ("split", "index", "index-joint", "corpus"):
        assert tables(tmp_path / "tuesday" / name) == tables(tmp_path / "rebuilt" / name)
    counted = read_manifest(tmp_path / "tuesday" / "index").counts["recounted"]
    assert 0 < counted < 20
    assert tables(updatable / "index") != tables(tmp_path / "tuesday" / "index")


def test_an_opt_out_table_in_the_query_takes_individuals_out_at_the_next_refresh(
    database: Database, tmp_path: Path
) -> None:
    fill(database)
    database.execute("CREATE TABLE opt_out (person_id int)")
    query = "SELECT * FROM note WHERE person_id NOT IN (SELECT person_id FROM opt_out)"
    values = job(database, tmp_path / "monday", query=query) | {"index": {"max_n": 2, "updatable": True}}
    made(values)
    database.execute("INSERT INTO opt_out VALUES (3), (11)")
    assert command("update", tmp_path / "monday", "--refresh", "--out", tmp_path / "tuesday") == 0
    made({**values, "out": str(tmp_path / "rebuilt")})
    for name in ("split", "index", "index-joint"):
        assert tables(tmp_path / "tuesday" / name) == tables(tmp_path / "rebuilt" / name)
    assert read_manifest(tmp_path / "tuesday" / "corpus").counts["documents"] == 294


def test_an_update_without_a_refresh_takes_the_documents_of_the_run(
    database: Database, updatable: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone.txt").write_text("7\n")
    database.execute("DROP TABLE note")
    assert command("update", updatable, "--remove", tmp_path / "gone.txt", "--out", tmp_path / "tuesday") == 0
    assert tables(tmp_path / "tuesday" / "corpus") == tables(updatable / "corpus")
    assert read_manifest(tmp_path / "tuesday" / "split").counts["documents"] == 297
    assert command("update", updatable, "--add", tmp_path, "--out", tmp_path / "wednesday") == 2
    assert command("update", updatable, "--refresh", "--out", tmp_path / "wednesday") == 1
    assert "there is no such table" in capfd.readouterr().err


# ------------------------------------------------------------------------------------------------------------ faults


class Killed:
    """Ends the readers' sessions after so many reports of progress."""

    def __init__(self, database: Database, after: int):
        self.database, self.after, self.num_ended = database, after, 0

    def __call__(self, *_: Any) -> None:
        self.after -= 1
        if self.after == 0:
            self.num_ended += self.database.kill_readers()


class Interrupting(Recorder):
    def __init__(self, work: Callable[[], None]):
        super().__init__()
        self._work = work

    @contextlib.contextmanager
    def task(self, *_: Any, **__: Any) -> Iterator[Callable[..., None]]:
        yield lambda *_, **__: self._work()


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("after", [1, 3])
def test_a_server_that_ends_the_session_in_the_middle_leaves_nothing_and_the_next_run_reads_all(
    database: Database, tmp_path: Path, connections: int, after: int
) -> None:
    fill(database, 3000, words=1000)  # about 50 MB, which no buffer holds
    killed = Killed(database, after)
    values = job(database, tmp_path / "run", connections=connections)
    with pytest.raises(CorpusError) as failed:
        Run(parse_job(values), Interrupting(killed)).execute("index")
    assert killed.num_ended >= 1
    assert NOTE_WORD not in str(failed.value)
    assert [path.name for path in (tmp_path / "run").glob("*corpus*")] == [".corpus.lock"]
    assert not list((tmp_path / "run").rglob("*.parquet"))
    made(values, "split")
    assert read_manifest(tmp_path / "run" / "split").counts["documents"] == 3000


def test_a_snapshot_that_was_lost_before_the_other_connections_read_is_an_error(
    database: Database, tmp_path: Path
) -> None:
    fill(database, 3000)
    config = CorpusConfig(**settings(database, connections=2))
    with open_remote(config, tmp_path) as source:
        source.version()
        assert database.kill_readers() == 1
        with pytest.raises(CorpusError, match="SQLSTATE"):
            stage(source, config, tmp_path)


def test_a_process_that_was_killed_while_it_read_leaves_nothing_that_is_taken_for_whole(
    database: Database, tmp_path: Path
) -> None:
    fill(database, 3000, words=1000)
    values = job(database, tmp_path / "run")
    code = (
        "import sys, json, os, signal; from reticent.job.config import parse_job; from reticent.job.run import Run; "
        "from reticent.engine.sources import staged; count = staged._Staging._count; "
        "staged._Staging._count = lambda *given: (count(*given), os.kill(os.getpid(), signal.SIGKILL)); "
        "Run(parse_job(json.loads(sys.argv[1]))).execute('index')"
    )
    ended = subprocess.run([sys.executable, "-c", code, json.dumps(values)], capture_output=True, text=True)
    assert ended.returncode == -9, ended.stderr
    left = list((tmp_path / "run").rglob("*.parquet"))
    assert left
    assert not (tmp_path / "run" / "corpus").exists()
    made(values, "corpus")
    assert not [path for path in left if path.exists()]
    assert read_manifest(tmp_path / "run" / "corpus").counts["documents"] == 3000


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        ("CREATE USER reader", {"user": "reader"}, "cannot connect"),
        (f"CREATE USER reader PASSWORD '{PASSWORD}'", {"user": "reader"}, "no right to read it; SQLSTATE 42501"),
        ("SELECT 1", {"table": "nowhere"}, "no such table"),
        ("SELECT 1", {"query": "SELECT note_id, person_id, body FROM note"}, "no such column; SQLSTATE 42703"),
        ("SELECT 1", {"query": "SELECT FROM WHERE"}, "the query is wrong; SQLSTATE 42601"),
        ("SELECT 1", {"query": "SELECT 1; DELETE FROM note"}, "SQLSTATE 42601"),
        (
            "SELECT 1",
            {"query": "SELECT note_text::int AS note_id, person_id, note_text FROM note"},
            "a value cannot be converted",
        ),
        (
            "CREATE FUNCTION gone() RETURNS int LANGUAGE sql AS 'DELETE FROM note RETURNING note_id'",
            {"query": "SELECT gone() AS note_id, person_id, note_text FROM note"},
            "the query would change the database",
        ),
        (
            "CREATE FUNCTION said() RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''%'', (SELECT note_text "
            "FROM note LIMIT 1); END'",
            {"query": "SELECT said() AS note_id, person_id, note_text FROM note"},
            "cannot be read",
        ),
    ],
)
def test_what_goes_wrong_is_said_by_its_code_and_quotes_nothing(
    database: Database,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    change: str,
    more: dict[str, str],
    said: str,
) -> None:
    fill(database)
    user = more.get("user", "owner")
    database.execute("DROP ROLE IF EXISTS reader", change)
    try:
        values = settings(database, **{name: value for name, value in more.items() if name != "user"})
        values["source"] = database.address(user)
        out = tmp_path / "run"
        with pytest.raises(CorpusError, match=said) as failed:
            Run(parse_job({"out": str(out), "corpus": values})).execute("index")
        file = tmp_path / "job.toml"
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        file.write_text("\n".join([f"out = {json.dumps(str(out))}", "[corpus]", *lines]))
        assert command("run", file, "--until", "index") == 1
        shown = "".join(capfd.readouterr()) + str(failed.value) + repr(failed.value.__cause__)
        assert "postgresql://" in shown
        for secret in (NOTE_WORD, PASSWORD):
            assert secret not in shown
        assert len(database.execute("SELECT * FROM note")) == 300
        assert not list(out.rglob("*.parquet"))
    finally:
        database.execute("DROP ROLE IF EXISTS reader")


def test_nothing_that_a_run_leaves_or_prints_holds_the_password_or_the_user(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(database)
    query = f"SELECT * FROM note WHERE note_text NOT LIKE 'planted literal of {NOTE_WORD}%'"
    values = job(database, tmp_path / "run", query=query)
    lines = [f"{name} = {json.dumps(value)}" for name, value in values["corpus"].items()]
    file = tmp_path / "job.toml"
    file.write_text("\n".join([f"out = {json.dumps(values['out'])}", "[corpus]", *lines]))
    assert command("run", file, "--until", "index") == 0
    shown = "".join(capfd.readouterr())
    assert "corpus: documents 300" in shown
    searched = 0
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            searched += 1
            assert PASSWORD.encode() not in path.read_bytes()
            if path.name == "manifest.json":
                assert b"owner" not in path.read_bytes()
                assert b"planted literal" not in path.read_bytes()
    assert searched > 10
    for secret in (PASSWORD, NOTE_WORD, "owner", "planted literal"):
        assert secret not in shown


def test_a_server_that_is_not_there_and_a_driver_that_is_not_installed_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CorpusConfig(source=f"postgresql:///db?host={tmp_path}", preset="omop")
    with pytest.raises(CorpusError, match="cannot connect"), open_remote(config, tmp_path) as source:
        source.version()
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with (
        pytest.raises(PolicyError, match=r"pip install 'reticent\[postgres\]'"),
        open_remote(config, tmp_path) as source,
    ):
        source.version()


def test_a_session_ends_with_its_source(database: Database, tmp_path: Path) -> None:
    fill(database, 3000, words=400)
    config = CorpusConfig(**settings(database, connections=2))
    with open_remote(config, tmp_path) as source:
        batches = source.batches(list(COLUMNS.values()), part=1, parts=2)
        assert isinstance(next(iter(batches)), pa.RecordBatch)
        del batches
    until = time.monotonic() + 10
    while (left := database.kill_readers()) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == 0


def test_row_groups_are_small_enough_to_be_read_in_parts(database: Database, tmp_path: Path) -> None:
    fill(database, 3000, words=400)
    staged(database, tmp_path)
    (file,) = staged_files(tmp_path)
    metadata = pq.ParquetFile(file).metadata
    assert metadata.num_row_groups > 3
    assert max(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)) < 8 << 20
