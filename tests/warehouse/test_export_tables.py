"""Results go back to the warehouse: beside the documents' files, or into tables, whole or not at all."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fixtures.command import command
from fixtures.jobs import content, make_hospital, run, values_of
from fixtures.notes import NOTE_WORD, fill, job
from fixtures.postgres import PASSWORD, Database, programs

from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.store import open_tokens
from reticent.ext.warehouse.export import export_files, export_tables, partitions
from reticent.ext.warehouse.postgres_tables import parse_name
from reticent.ext.warehouse.tables import TOKENS_PER_BATCH, _token_batches
from reticent.job.config import parse_job
from reticent.job.run import Run

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hospital whose documents are in folders by ward, in three files, one of them without a document."""
    folder = make_hospital(tmp_path_factory.mktemp("hospital"), 30)
    rows = pl.read_parquet(str(folder / "documents" / "*.parquet"))
    for path in (folder / "documents").iterdir():
        path.unlink()
    for name, part in (("ward=a/x", rows[:40]), ("ward=a/y", rows[:0]), ("ward=b/x", rows[40:])):
        file = folder / "documents" / f"{name}.parquet"
        file.parent.mkdir(exist_ok=True)
        part.write_parquet(file)
    return folder


@pytest.fixture(scope="module")
def protected(hospital: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    values = values_of(hospital, tmp_path_factory.mktemp("runs") / "run")
    run(values)
    return Run(parse_job(values))


def test_parquet_has_the_partitions_of_the_documents_and_the_rows_of_the_run(
    protected: Run, hospital: Path, tmp_path: Path
) -> None:
    counts = export_files(protected, tmp_path / "out")
    files = ["ward=a/x.parquet", "ward=a/y.parquet", "ward=b/x.parquet"]
    for table in ("tokens-toy", "spans"):
        found = sorted(
            str(path.relative_to(tmp_path / "out" / table)) for path in (tmp_path / "out" / table).rglob("*.*")
        )
        assert found == files
        for name in files:
            own = set(pl.read_parquet(hospital / "documents" / name, hive_partitioning=False)["doc_id"])
            assert set(pl.read_parquet(tmp_path / "out" / table / name, hive_partitioning=False)["doc_id"]) <= own
    store = open_tokens(protected.folder / "tokens/toy/train")
    rows = pl.read_parquet([tmp_path / "out/tokens-toy" / name for name in files], hive_partitioning=False)
    assert counts == {
        "tokens-toy": store.num_documents,
        "spans": len(pl.read_parquet(protected.folder / "spans/spans.parquet")),
    }
    by_id = {row["doc_id"]: row for row in rows.to_dicts()}
    owners = protected.individuals.table.column("individual_id").to_pylist()
    assert len(by_id) == store.num_documents > 10
    assert any(3 in row["flags"] or 1 in row["flags"] for row in by_id.values())
    for number, doc_id in enumerate(store.doc_ids.to_pylist()):
        stretch = slice(store.doc_offsets[number], store.doc_offsets[number + 1])
        assert by_id[doc_id]["input_ids"] == store.input_ids[stretch].tolist()
        assert by_id[doc_id]["word_ids"] == store.word_ids[stretch].tolist()
        assert by_id[doc_id]["flags"] == store.flags[stretch].tolist()
        assert by_id[doc_id]["individual_id"] == owners[store.individual[number]]
    spans = pl.read_parquet([tmp_path / "out/spans" / name for name in files], hive_partitioning=False)
    kept = pl.read_parquet(protected.folder / "spans/spans.parquet").drop("document")
    assert spans.drop("individual_id").equals(kept)
    order = rows["doc_id"].to_list()
    assert order == [name for name in protected.corpus.scan().column("doc_id").to_pylist() if name in by_id]


def test_an_export_is_private_and_the_same_again_is_not_written_again(protected: Run, tmp_path: Path) -> None:
    export_files(protected, tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    before = content(tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")}
    for path in times:
        assert stat.S_IMODE(path.stat().st_mode) in (0o600, 0o700)
    counts = export_files(protected, tmp_path / "out")
    assert counts["spans"] > 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")} == times
    export_files(protected, tmp_path / "again")
    assert content(tmp_path / "again") == before


def test_a_run_without_models_exports_spans_and_a_folder_of_something_else_is_refused(
    hospital: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values = {**values_of(hospital, tmp_path / "run"), "model": []}
    run(values, "index")
    assert command("export", tmp_path / "run", "--out", tmp_path / "out", "--json", "-q") == 0
    assert list(json.loads(capfd.readouterr().out)["rows"]) == ["spans"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("kept")
    with pytest.raises(ArtifactError, match="not an artefact of ours"):
        export_files(Run(parse_job(values)), tmp_path / "mine")
    for given in ([], ["--out", "a", "--into", "postgresql://h/d"], ["--out", "a", "--note-nlp", "t"]):
        assert command("export", tmp_path / "run", *given) == 2
    assert command("export", tmp_path / "run", "--into", "postgresql://h/d") == 2
    assert command("export", tmp_path / "run", "--into", "postgresql://h/d", "--table", "tokens=t") == 2
    assert command("export", tmp_path / "run", "--into", "postgresql://h/d", "--table", "spans") == 2
    assert command("export", tmp_path / "run", "--into", "s3://h/d", "--table", "spans=t") == 2
    assert command("export", tmp_path / "run", "--into", "postgresql://a:secretpw@h/d", "--table", "spans=t") == 2
    assert "secretpw" not in "".join(capfd.readouterr())


def test_partitions_count_documents_that_are_left_out_and_have_names_of_their_own(
    hospital: Path, tmp_path: Path
) -> None:
    values = values_of(hospital, tmp_path / "run")
    corpus = Run(parse_job(values)).corpus
    assert [number for _, number in partitions(corpus)] == [40, 0, corpus.num_documents - 40]
    fewer = corpus.without([0, 41])
    assert [number for _, number in partitions(fewer)] == [39, 0, corpus.num_documents - 41]
    pl.read_parquet(str(hospital / "documents/ward=b/x.parquet")).drop("spans").write_csv(tmp_path / "x.csv")
    corpus = Run(parse_job({"out": "o", "corpus": {"source": str(tmp_path / "x.csv")}})).corpus
    assert [name for name, _ in partitions(corpus)] == ["x.csv.parquet"]


def test_files_of_a_folder_beside_have_partitions_within_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for number, path in enumerate((Path("a.parquet"), Path("../b.parquet"))):
        pl.DataFrame({"doc_id": [f"d{number}"], "individual_id": [f"i{number}"], "text": ["Pain."]}).write_parquet(path)
    corpus = open_corpus(["a.parquet", "../b.parquet"])
    assert sorted(name for name, _ in partitions(corpus)) == ["b.parquet", "work/a.parquet"]


def test_files_that_would_have_one_partition_are_refused(tmp_path: Path) -> None:
    """Through a link ``..`` leads elsewhere than its path says."""
    (tmp_path / "work").mkdir()
    (tmp_path / "far/ward").mkdir(parents=True)
    (tmp_path / "work/link").symlink_to(tmp_path / "far/ward")
    paths = [tmp_path / "work/a.parquet", tmp_path / "work/link/../a.parquet"]
    for number, path in enumerate(paths):
        pl.DataFrame({"doc_id": [f"d{number}"], "individual_id": [f"i{number}"], "text": ["Pain."]}).write_parquet(path)
    corpus = open_corpus(paths)
    assert corpus.num_documents == 2
    with pytest.raises(PolicyError, match=r"a\.parquet: two files .* by paths without"):
        partitions(corpus)


def test_stretches_hold_each_document_once_and_about_as_many_tokens_as_asked() -> None:
    lengths = np.array([0, TOKENS_PER_BATCH, 3, 0, 2 * TOKENS_PER_BATCH, 1, 1])
    found = list(_token_batches(lengths))
    assert np.concatenate([np.arange(len(lengths))[part] for part in found]).tolist() == list(range(len(lengths)))
    assert [int(lengths[part].sum()) for part in found] == [TOKENS_PER_BATCH, 3, 2 * TOKENS_PER_BATCH, 2]
    assert list(_token_batches(np.zeros(0, int))) == []


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("Note", (None, "note")),
        ("cdm.NOTE_nlp", ("cdm", "note_nlp")),
        ('"My Schema"."a.b"', ("My Schema", "a.b")),
    ],
)
def test_names_of_tables_are_read_as_sql_reads_them(name: str, parsed: tuple[str | None, str]) -> None:
    assert parse_name(name) == parsed


@pytest.mark.parametrize("name", ["", "a b", "a.b.c", "a;DROP TABLE x", '"a', "a-b", "1a", "x--"])
def test_a_name_that_is_none_of_a_table_is_refused(name: str) -> None:
    with pytest.raises(PolicyError, match=r"SCHEMA\.TABLE"):
        parse_name(name)


# ---------------------------------------------------------------------------------------------------------- PostgreSQL

needs_server = pytest.mark.skipif(
    programs() is None or find_spec("adbc_driver_postgresql") is None,
    reason="PostgreSQL or its driver is not installed: make test-warehouse",
)


def counted(database: Database, table: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {table}")[0][0])


@needs_server
def test_tables_of_a_database_hold_the_rows_of_the_files(protected: Run, database: Database, tmp_path: Path) -> None:
    export_files(protected, tmp_path / "out")
    database.execute("CREATE SCHEMA results")
    tables = {"tokens": "results.protected", "spans": "spans"}
    counts = export_tables(protected, database.address(), tables)
    for folder, table in (("tokens-toy", "results.protected"), ("spans", "public.spans")):
        expected = pl.read_parquet(str(tmp_path / "out" / folder / "**/*.parquet"), hive_partitioning=False)
        names = ", ".join(f'"{name}"' for name in expected.columns)
        rows = database.execute(f"SELECT {names} FROM {table}")
        assert len(rows) == counts[folder] > 0
        assert sorted(map(str, rows)) == sorted(str(row) for row in expected.rows())


@needs_server
def test_a_table_that_is_there_is_replaced_only_if_an_export_wrote_it(protected: Run, database: Database) -> None:
    database.execute("CREATE TABLE mine (a int)", "INSERT INTO mine VALUES (1)")
    address = database.address()
    with pytest.raises(PolicyError, match="was not written by an export"):
        export_tables(protected, address, {"spans": "mine"}, overwrite=True)
    export_tables(protected, address, {"spans": "spans"})
    with pytest.raises(PolicyError, match="--overwrite replaces one of an export"):
        export_tables(protected, address, {"tokens": "tokens", "spans": "spans"})
    assert database.execute("SELECT to_regclass('tokens')::text") == [(None,)]  # none of the two
    number = counted(database, "spans")
    database.execute("DELETE FROM spans")
    export_tables(protected, address, {"spans": "spans"}, overwrite=True)
    assert counted(database, "spans") == number
    assert counted(database, "mine") == 1


@needs_server
def test_documents_that_change_meanwhile_leave_no_table(
    protected: Run, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise CorpusError("documents changed")

    run = Run(protected.job)
    monkeypatch.setattr(run, "require_unchanged", fail)
    with pytest.raises(CorpusError, match="documents changed"):
        export_tables(run, database.address(), {"spans": "changed_spans"})
    assert database.execute("SELECT to_regclass('changed_spans')::text") == [(None,)]


@needs_server
@pytest.mark.parametrize("kill", ["session", "process"])
def test_a_writing_that_is_killed_leaves_what_was_there(
    protected: Run, database: Database, monkeypatch: pytest.MonkeyPatch, kill: str
) -> None:
    address = database.address()
    export_tables(protected, address, {"spans": "spans"})
    before = counted(database, "spans")
    if kill == "session":
        from reticent.ext.warehouse import postgres_tables as postgres

        def ended(result: Any, name: str) -> Any:
            rows = result.rows

            def killing() -> Any:
                yield from rows()
                database.kill_readers()

            return postgres.ResultTable(result.name, result.schema, killing)

        replace = postgres._Transaction.replace
        monkeypatch.setattr(
            postgres._Transaction, "replace", lambda self, result, *more: replace(self, ended(result, ""), *more)
        )
        with pytest.raises(CorpusError) as failed:
            export_tables(protected, address, {"spans": "spans", "tokens": "tokens"}, overwrite=True)
        assert "cannot be written; nothing was" in str(failed.value)
    else:
        code = (
            "import os, signal; from reticent.ext.warehouse import postgres_tables as postgres; "
            "execute = postgres._Transaction.execute; "
            "postgres._Transaction.execute = lambda self, s: "
            "(execute(self, s), 'COMMENT' in s and os.kill(os.getpid(), signal.SIGKILL))[0]; "
            "from reticent.cli import main; main()"
        )
        given = ["export", str(protected.folder), "--into", address, "--table", "spans=spans", "--overwrite"]
        assert subprocess.run([sys.executable, "-c", code, *given], capture_output=True).returncode == -9
    assert counted(database, "spans") == before
    assert database.execute("SELECT to_regclass('tokens')::text") == [(None,)]


NOTE_NLP = (
    "CREATE TABLE note_nlp (note_nlp_id integer NOT NULL, note_id integer NOT NULL, section_concept_id integer, "
    'snippet varchar(250), "offset" varchar(50), lexical_variant varchar(250) NOT NULL, note_nlp_concept_id integer, '
    "note_nlp_source_concept_id integer, nlp_system varchar(250), nlp_date date NOT NULL, nlp_datetime timestamp, "
    "term_exists varchar(1), term_temporal varchar(50), term_modifiers varchar(2000))"
)


@needs_server
def test_note_nlp_gets_categories_and_never_the_text_of_a_span(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(database, 60)
    mail = "anna.kowalska@clinic.example"
    database.execute(
        f"UPDATE note SET note_text = 'Write to {mail} now' WHERE note_id % 10 = 1",
        NOTE_NLP,
        "INSERT INTO note_nlp VALUES (7, 11, 0, 'theirs', '3', 'fever', 1, 1, 'other system', '2020-01-01')",
    )
    out = tmp_path / "run"
    run(job(database, out), "detect")
    given = ["export", out, "--into", database.address(), "--note-nlp", "note_nlp"]
    assert command(*given) == 0
    columns = 'note_nlp_id, note_id, snippet, "offset", lexical_variant, nlp_system, term_modifiers'
    rows = database.execute(f"SELECT {columns} FROM note_nlp ORDER BY note_nlp_id")
    assert rows[0] == (7, 11, "theirs", "3", "fever", "other system", None)
    expected = (None, "9", "[CONTACT]", "reticent", f"length={len(mail)} detector=rules")
    assert [(row[0], row[1]) for row in rows[1:]] == [(8 + number, 1 + 10 * number) for number in range(6)]
    assert {row[2:4] + row[5:] for row in rows[1:]} == {expected[:2] + expected[3:]}
    assert all(row[4].startswith("[") and mail not in str(row) for row in rows[1:])
    assert command(*given) == 2  # rows of an export are there
    database.execute("UPDATE note SET note_text = 'nothing' WHERE note_id = 11")
    assert command(*given, "--overwrite") == 0
    assert counted(database, "note_nlp") == 7  # the run keeps its snapshot
    shown = "".join(capfd.readouterr())
    for secret in (mail, PASSWORD, NOTE_WORD, "owner"):
        assert secret not in shown
    assert "--overwrite replaces those of these notes" in shown


def noted(database: Database, tmp_path: Path, ids: str = "bigint") -> list[Any]:
    """The command of an export of notes to note_nlp, a mail address in each tenth of them."""
    fill(database, 60, ids=ids)
    database.execute("UPDATE note SET note_text = 'Write to a.b@clinic.example now' WHERE note_id % 10 = 1")
    run(job(database, tmp_path / "run"), "detect")
    return ["export", tmp_path / "run", "--into", database.address(), "--note-nlp", "note_nlp"]


@needs_server
@pytest.mark.parametrize(
    ("offset", "key"),
    [
        ("integer", "integer NOT NULL"), ("bigint", "bigint GENERATED ALWAYS AS IDENTITY"), ("text", "serial"),
        ("varchar(50)", "int GENERATED BY DEFAULT AS IDENTITY"),
    ],
)  # fmt: skip
def test_note_nlp_is_written_whatever_its_key_and_offset_are(
    database: Database, tmp_path: Path, offset: str, key: str
) -> None:
    given = noted(database, tmp_path)
    database.execute(
        NOTE_NLP.replace("note_nlp_id integer NOT NULL", f"note_nlp_id {key} PRIMARY KEY")
        .replace("varchar(50), lexical", f"{offset}, lexical")
        .replace("note_id integer", "note_id bigint")
    )
    theirs = "INSERT INTO note_nlp ({}note_id, lexical_variant, nlp_date) VALUES ({}11, 'theirs', '2020-01-01')"
    own = key == "integer NOT NULL"
    database.execute(theirs.format(*(("note_nlp_id, ", "7, ") if own else ("", ""))))
    if key == "serial":  # as an earlier export left it
        database.execute("UPDATE note_nlp SET note_nlp_id = 100")
    for more in ([], ["--overwrite"]):
        assert command(*given, *more, "-q") == 0
        assert counted(database, "note_nlp") == 7
    if not own:
        database.execute(theirs.format("", ""))  # the site's next row has a key of its own
    assert database.execute('SELECT "offset"::text FROM note_nlp WHERE note_id = 21')[0] == ("9",)


@needs_server
@pytest.mark.parametrize("moved_by", [-1000, 9_000_000_000_000_000_000])
def test_note_nlp_takes_all_numbers_of_64_bits(database: Database, tmp_path: Path, moved_by: int) -> None:
    fill(database, 60, ids="bigint")
    database.execute(
        "UPDATE note SET note_text = 'Write to a.b@clinic.example now' WHERE note_id % 10 = 1",
        f"UPDATE note SET note_id = note_id + {moved_by}", NOTE_NLP.replace("note_id integer", "note_id bigint"),
    )  # fmt: skip
    run(job(database, tmp_path / "run"), "detect")
    assert command("export", tmp_path / "run", "--into", database.address(), "--note-nlp", "note_nlp", "-q") == 0
    assert database.execute("SELECT min(note_id) FROM note_nlp") == [(1 + moved_by,)]


@needs_server
def test_rows_of_note_nlp_of_who_withdrew_go_or_are_counted(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = noted(database, tmp_path)
    database.execute(NOTE_NLP)
    assert command(*given, "-q") == 0
    values = job(database, tmp_path / "run", opt_out="opt_out")
    database.execute("CREATE TABLE opt_out (person_id bigint)", "INSERT INTO opt_out VALUES (7)")  # of note 21
    run(values, "detect")
    database.execute("DELETE FROM note_nlp WHERE note_id <> 21")
    assert command(*given) == 0
    assert "1 rows are of documents of who withdrew; --overwrite deletes them" in capfd.readouterr().err
    assert counted(database, "note_nlp") == 6
    assert command(*given, "--overwrite", "-q") == 0
    assert database.execute("SELECT count(*) FROM note_nlp WHERE note_id = 21") == [(0,)]


@needs_server
def test_a_table_that_is_replaced_keeps_its_owner_grants_policies_and_views(protected: Run, database: Database) -> None:
    export_tables(protected, database.address(), {"spans": "spans"})
    number = counted(database, "spans")
    database.execute(
        "DROP ROLE IF EXISTS analyst", "CREATE ROLE analyst", "GRANT SELECT ON spans TO analyst",
        "ALTER TABLE spans ENABLE ROW LEVEL SECURITY", "CREATE POLICY own ON spans USING (label = 'NAME')",
        "CREATE VIEW seen AS SELECT * FROM spans", "INSERT INTO spans SELECT * FROM spans",
    )  # fmt: skip
    about = (
        "SELECT relowner::regrole::text, relacl::text, relrowsecurity::text, (SELECT count(*) FROM pg_policy "
        "WHERE polrelid = c.oid) FROM pg_class c WHERE oid = 'spans'::regclass"
    )
    before = database.execute(about)
    export_tables(protected, database.address(), {"spans": "spans"}, overwrite=True)
    assert (counted(database, "spans"), counted(database, "seen")) == (number, number)
    assert database.execute(about) == before
    database.execute("DROP VIEW seen", "ALTER TABLE spans DROP COLUMN label CASCADE", "ALTER TABLE spans ADD old int")
    export_tables(protected, database.address(), {"spans": "spans"}, overwrite=True)
    assert database.execute("SELECT count(label) FROM spans") == [(number,)]
    assert database.execute("SELECT relacl::text FROM pg_class WHERE oid = 'spans'::regclass")[0] == (before[0][1],)
    database.execute("DROP OWNED BY analyst", "DROP ROLE analyst")


@needs_server
def test_what_goes_wrong_is_said_by_its_code_and_nothing_is_written(
    protected: Run, database: Database, tmp_path: Path
) -> None:
    database.execute(NOTE_NLP, "DROP ROLE IF EXISTS reader", f"CREATE USER reader PASSWORD '{PASSWORD}'")
    try:
        with pytest.raises(CorpusError, match="no whole number"):
            export_tables(protected, database.address(), {"spans": "spans"}, note_nlp="note_nlp")
        fill(database, 30)
        run(job(database, tmp_path / "run"), "detect")
        numbers = Run(parse_job(job(database, tmp_path / "run")))
        with pytest.raises(CorpusError, match=r"nothing was \(.*SQLSTATE 42P01"):
            export_tables(numbers, database.address(), {"spans": "spans"}, note_nlp="nowhere")
        with pytest.raises(CorpusError, match="cannot be written; nothing was") as failed:
            export_tables(protected, database.address("reader"), {"spans": "spans"})
        assert PASSWORD not in str(failed.value)
        assert database.execute("SELECT to_regclass('spans')::text") == [(None,)]
    finally:
        database.execute("DROP ROLE IF EXISTS reader")
    with pytest.raises(CorpusError, match="cannot connect"):
        export_tables(protected, f"postgresql:///db?host={tmp_path}", {"spans": "spans"})
