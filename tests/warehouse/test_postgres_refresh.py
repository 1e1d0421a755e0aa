"""A run of a database that has gone on: only new texts travel, the result is a rebuild's, and nothing is half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fixtures.command import command
from fixtures.jobs import write_tokenizer
from fixtures.notes import COLUMNS, NOTE_WORD, fill, job, made, settings, staged, tables
from fixtures.postgres import PASSWORD, BeforeStatement, Database, needs_postgres

from reticent.core.artifact import read_manifest
from reticent.core.errors import CorpusError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import Earlier, Refreshed, open_remote, stage, staged_files

needs_postgres()
pytestmark = pytest.mark.heavy


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


def test_a_refresh_keeps_what_was_made_of_unchanged_notes(database: Database, tmp_path: Path) -> None:
    """Notes are new, changed, deleted, of another individual, and in another order; the result is a rebuild's."""
    fill(database)
    write_tokenizer(tmp_path / "base", ["fever", "and", "word3"])
    model = {"name": "toy", "base": str(tmp_path / "base"), "objective": "mlm", "recipes": ["ppmlm"]}
    more = {"index": {"max_n": 2, "updatable": True}, "detect": {"detectors": ["rules"]}, "model": [model]}
    made(job(database, tmp_path / "monday") | more, "protect")
    database.execute(
        "INSERT INTO note SELECT i, i / 3, 'seen on 12/05/2021, note ' || i FROM generate_series(300, 310) AS i",
        "UPDATE note SET note_text = 'seen on 13/05/2021 with word3' WHERE note_id IN (17, 18)",
        "UPDATE note SET person_id = 90 WHERE note_id = 40",
        "UPDATE note SET note_text = note_text WHERE note_id = 5",  # comes to stand behind all others
        "DELETE FROM note WHERE note_id IN (41, 100)",
    )
    assert command("update", tmp_path / "monday", "--refresh", "--out", tmp_path / "tuesday") == 0
    made(job(database, tmp_path / "rebuilt") | more, "protect")
    for name in ("spans", "index-joint"):
        assert tables(tmp_path / "tuesday" / name) == tables(tmp_path / "rebuilt" / name)
    recorder = made(job(database, tmp_path / "tuesday") | more, "protect")
    assert not {"spans", "index", "index-joint"} & {*recorder.made}
    for name in ("words", "word-spans", "tokens/toy/ids", "tokens/toy/gaps", "tokens/toy/train", "tokens/toy/audit"):
        assert tables(tmp_path / "tuesday" / name) == tables(tmp_path / "rebuilt" / name)


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
    before, after = (
        pl.concat(map(pl.read_parquet, staged_files(run / "corpus"))) for run in (updatable, tmp_path / "tuesday")
    )
    assert after.equals(before.filter(pl.col("person_id") != "7"))
    assert read_manifest(tmp_path / "tuesday" / "split").counts["documents"] == 297
    assert command("update", updatable, "--add", tmp_path, "--out", tmp_path / "wednesday") == 2
    assert command("update", updatable, "--refresh", "--out", tmp_path / "wednesday") == 1
    assert "there is no such table" in capfd.readouterr().err


@pytest.mark.parametrize(("connections", "table"), [(1, "note"), (3, "note"), (3, "seen")])
def test_a_refresh_is_a_reading_from_nothing_and_only_new_texts_travel(
    database: Database, tmp_path: Path, connections: int, table: str
) -> None:
    fill(database, 3000, words=300)
    database.execute("CREATE VIEW seen AS SELECT * FROM note", "UPDATE note SET note_text = NULL WHERE note_id = 4")
    more: dict[str, Any] = {"connections": connections, "table": table, "on_null": "skip"}
    staged(database, tmp_path / "before", **more)
    database.execute(
        "INSERT INTO note SELECT i, i / 3, 'a new note of ' || i FROM generate_series(3000, 3010) AS i",
        "UPDATE note SET note_text = note_text || ' changed, l''été \\ \"quoted\"' WHERE note_id IN (17, 18, 2000)",
        "UPDATE note SET note_text = NULL WHERE note_id = 30",
        "UPDATE note SET note_text = 'no longer null' WHERE note_id = 4",
        "UPDATE note SET person_id = 999 WHERE note_id = 40",  # moves to another row, its text is known
        "UPDATE note SET note_id = 5000 WHERE note_id = 41",  # another id, and its text is known
        "DELETE FROM note WHERE note_id % 7 = 0",
    )
    (tmp_path / "after").mkdir()
    config = CorpusConfig(**settings(database, **more))
    with open_remote(config, tmp_path) as source:
        refreshed = Refreshed(source, Earlier(staged_files(tmp_path / "before"), config), config)
        counts = stage(refreshed, config, tmp_path / "after")
    staged(database, tmp_path / "rebuilt", **more)
    assert tables(tmp_path / "after") == tables(tmp_path / "rebuilt")
    gone = {number for number in range(3011) if number % 7 == 0}
    assert refreshed.num_fetched == len({*range(3000, 3011), 17, 18, 2000, 4} - gone)
    assert refreshed.changed() == sorted(map(str, {17, 18, 2000, 30, 4} - gone))
    assert counts["documents"] == 3011 - len(gone)


def test_where_most_texts_are_new_all_are_read(database: Database, tmp_path: Path) -> None:
    fill(database, 300)
    staged(database, tmp_path / "before")
    database.execute("UPDATE note SET note_text = 'other ' || note_id WHERE note_id > 100")
    (tmp_path / "after").mkdir()
    config = CorpusConfig(**settings(database))
    with open_remote(config, tmp_path) as source:
        refreshed = Refreshed(source, Earlier(staged_files(tmp_path / "before"), config), config)
        refreshed._source.texts = None  # type: ignore[method-assign, assignment]
        stage(refreshed, config, tmp_path / "after")
    staged(database, tmp_path / "rebuilt")
    assert tables(tmp_path / "after") == tables(tmp_path / "rebuilt")
    assert len(refreshed.changed()) == 199


def test_a_query_that_answers_with_other_rows_when_it_is_asked_again_is_an_error(
    database: Database, tmp_path: Path
) -> None:
    fill(database, 300)
    staged(database, tmp_path)
    # The sequence gives another text at each reading.
    database.execute("CREATE SEQUENCE turn", "CREATE TABLE other AS SELECT 1000 AS note_id, 5 AS person_id")
    query = (
        "SELECT note_id, person_id, note_text FROM note UNION ALL "
        f"SELECT note_id, person_id, '{NOTE_WORD} at ' || clock_timestamp()::text FROM other"
    )
    config = CorpusConfig(**settings(database, query=query))
    with open_remote(config, tmp_path) as source:
        refreshed = Refreshed(source, Earlier(staged_files(tmp_path), config), config)
        with pytest.raises(CorpusError, match="answers with other rows when it is asked again") as failed:
            stage(refreshed, config, tmp_path)
    assert NOTE_WORD not in str(failed.value)


@pytest.mark.parametrize("database", ["LATIN1"], indirect=True)
def test_digests_are_those_of_utf8_in_a_database_of_another_encoding(database: Database, tmp_path: Path) -> None:
    fill(database, 30)
    database.execute("UPDATE note SET note_text = 'caf' || chr(233) || note_id")
    staged(database, tmp_path)
    config = CorpusConfig(**settings(database))
    with open_remote(config, tmp_path) as source:
        refreshed = Refreshed(source, Earlier(staged_files(tmp_path), config), config)
        assert sum(batch.num_rows for batch in refreshed.batches(list(COLUMNS.values()))) == 30
    assert refreshed.num_fetched == 0


# -------------------------------------------------------------------------------------------------- who has withdrawn


@pytest.mark.parametrize(("ids", "connections"), [("integer", 1), ("text", 2)])
def test_nobody_in_the_opt_out_table_is_read(database: Database, tmp_path: Path, ids: str, connections: int) -> None:
    fill(database, ids=ids)
    database.execute(
        "CREATE SCHEMA cdm",
        f'CREATE TABLE cdm."Opt out" (person_id {ids}, signed date)',
        "INSERT INTO cdm.\"Opt out\" VALUES ('3', '2024-01-01'), ('11', NULL), (NULL, NULL), ('3', NULL)",
    )
    found = staged(database, tmp_path, opt_out='cdm."Opt out"', connections=connections)
    assert set(map(int, found["person_id"])) == set(range(100)) - {3, 11}
    with pytest.raises(CorpusError, match="nowhere: there is no such table"):
        staged(database, tmp_path, opt_out="nowhere")


def test_an_opt_out_table_whose_column_is_missing_or_of_no_id_is_an_error(database: Database, tmp_path: Path) -> None:
    fill(database)
    database.execute("CREATE TABLE words (person_id float)", "CREATE TABLE strange (patient int)")
    with pytest.raises(CorpusError, match="column person_id: expected text, integers, uuid or numeric"):
        staged(database, tmp_path, opt_out="words")
    with pytest.raises(CorpusError, match="no such column; SQLSTATE 42703"):
        staged(database, tmp_path, opt_out="strange")


def test_individuals_of_a_preset_who_opt_out_are_gone_at_the_next_refresh(database: Database, tmp_path: Path) -> None:
    fill(database)
    database.execute("CREATE TABLE opt_out (person_id int)", "INSERT INTO opt_out VALUES (50)")
    corpus = settings(database, preset="omop", opt_out="opt_out")
    values = {"out": str(tmp_path / "monday"), "corpus": corpus, "index": {"max_n": 2, "updatable": True}}
    made(values)
    assert read_manifest(tmp_path / "monday" / "corpus").config["opt_out"] == "opt_out"
    database.execute("INSERT INTO opt_out VALUES (3), (11)", "UPDATE note SET note_text = 'new' WHERE note_id = 0")
    assert command("update", tmp_path / "monday", "--refresh", "--out", tmp_path / "tuesday") == 0
    made({**values, "out": str(tmp_path / "rebuilt")})
    for name in ("corpus", "split", "index", "index-joint"):
        assert tables(tmp_path / "tuesday" / name) == tables(tmp_path / "rebuilt" / name)
    counts = read_manifest(tmp_path / "tuesday" / "corpus").counts
    assert (counts["documents"], counts["fetched"]) == (291, 1)
    assert counts["opt_out"] == {"ids": 3, "individuals": 3}


# ------------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(("connections", "refreshes", "step"), [(1, False, 2), (1, True, 1), (2, True, 5)])
def test_a_session_that_ends_before_any_statement_is_an_error_or_a_whole_result(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: int, refreshes: bool, step: int
) -> None:
    fill(database, 60)
    staged(database, tmp_path / "before")
    database.execute("UPDATE note SET note_text = 'changed' WHERE note_id = 5")
    staged(database, tmp_path / "whole", connections=connections)
    config = CorpusConfig(**settings(database, connections=connections))
    ended = BeforeStatement(monkeypatch, database.kill_readers)
    outcomes = []
    while ended.left < 100:
        ended.left, ended.num_statements = ended.left + step, 0
        folder = tmp_path / f"at-{ended.left}"
        folder.mkdir()
        said: list[CorpusError] = []
        try:
            with open_remote(config, folder) as opened:
                source: Any = opened
                if refreshes:
                    source = Refreshed(source, Earlier(staged_files(tmp_path / "before"), config), config)
                stage(source, config, folder)
        except CorpusError as failed:
            said.append(failed)
        outcomes.append(not said)
        assert not any(secret in str(error) for error in said for secret in (NOTE_WORD, PASSWORD))
        if not said:
            assert tables(folder) == tables(tmp_path / "whole")
            if ended.num_statements < ended.left:
                break
    assert outcomes.count(False) >= 6
    assert outcomes[-1]


def test_a_refresh_that_is_killed_leaves_nothing_that_is_taken_for_whole_and_says_no_secret(
    database: Database, updatable: Path, tmp_path: Path
) -> None:
    database.execute(f"UPDATE note SET note_text = 'changed {NOTE_WORD}' WHERE note_id IN (17, 18)")
    code = (
        "import sys, os, signal; from reticent.engine.sources import staged as refreshed; "
        "refreshed._Fetched.read_to_end = lambda _: os.kill(os.getpid(), signal.SIGKILL); "
        "from reticent.cli import main; main()"
    )
    given = ["update", str(updatable), "--refresh", "--out", str(tmp_path / "tuesday")]
    ended = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True)
    assert ended.returncode == -9
    assert not (tmp_path / "tuesday" / "corpus").exists()
    ended = subprocess.run([sys.executable, "-m", "reticent", *given], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    for secret in (NOTE_WORD, PASSWORD, "owner"):
        assert secret not in ended.stdout + ended.stderr
    assert read_manifest(tmp_path / "tuesday" / "corpus").counts["fetched"] == 2
