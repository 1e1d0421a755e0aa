"""PostgreSQL as a source, on a real server: one snapshot, and the documents of files."""

from __future__ import annotations

import contextlib
import json
import stat
from pathlib import Path

import polars as pl
import pytest
from fixtures.command import command
from fixtures.notes import COLUMNS, NOTE_WORD, fill, job, made, settings, staged, tables
from fixtures.postgres import Database, needs_postgres

from reticent.core.artifact import read_manifest
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import open_remote, stage, staged_files
from reticent.job.config import parse_job
from reticent.job.run import Run

needs_postgres()
pytestmark = pytest.mark.heavy


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


@pytest.mark.parametrize("ids", ["numeric", "varchar(20)"])  # others: test_values.py
def test_ids_of_any_type_are_the_same_documents(database: Database, tmp_path: Path, ids: str) -> None:
    fill(database, 30, ids=ids)
    found = staged(database, tmp_path / "staged")
    assert found["note_id"].to_list() == [str(number) for number in range(30)]
    assert found["person_id"].to_list() == [str(number // 3) for number in range(30)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
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
    with pytest.raises(ArtifactError, match="with another query"):
        _ = Run(parse_job(other)).whole_corpus
    assert made(other).made[:2] == ["corpus", "split"]
    assert read_manifest(tmp_path / "run" / "corpus").counts["documents"] == 150


def test_the_staged_documents_are_private_and_whole_commands_read_them(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(database)
    out = tmp_path / "run"
    given = [
        "--set",
        "corpus.doc_id=note_id",
        "--set",
        "corpus.individual_id=person_id",
        "--set",
        "corpus.text=note_text",
    ]
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
