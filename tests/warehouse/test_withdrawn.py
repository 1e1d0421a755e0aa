"""Who withdrew stays out: registers in tables, lists, and what an earlier reading left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.notes import NOTE_WORD, fill, listed, settings, staged
from fixtures.postgres import PASSWORD, Database, needs_postgres

from reticent.core.artifact import read_manifest
from reticent.core.errors import CorpusError, PolicyError, ReticentError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import staged_files
from reticent.engine.withdrawn import RECORD
from reticent.job.config import parse_job
from reticent.job.staged import corpus_artefact

needs_postgres()
pytestmark = pytest.mark.heavy


def table_of(database: Database, name: str, ids: Sequence[str], kind: str = "text") -> None:
    values = ", ".join(f"('{each}')" for each in ids)
    database.execute(f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} (person_id {kind})")
    if ids:
        database.execute(f"INSERT INTO {name} VALUES {values}")


def spelt(database: Database) -> None:
    """Ids P0000 … P0019, of three notes each."""
    fill(database, 60, ids="text")
    database.execute("UPDATE note SET person_id = 'P' || lpad(person_id, 4, '0')")


# ------------------------------------------------------------------------------------------------------------ registers


@pytest.mark.parametrize("spelling", ["P0003 ", "p0003", "P3", "Ｐ ３", "\u200bP0003"])
def test_an_id_of_a_register_that_is_spelt_otherwise_stops_or_withdraws(
    database: Database, tmp_path: Path, spelling: str
) -> None:
    spelt(database)
    table_of(database, "opt_out", [spelling, "P0012", "X9"])
    with pytest.raises(CorpusError, match=r"opt_out: 1 id\(s\) spelt otherwise than in the documents: an id") as said:
        staged(database, tmp_path / "stop", opt_out="opt_out")
    assert "3" not in str(said.value).partition("opt_out")[2].replace("fold", "")
    found = staged(database, tmp_path / "fold", opt_out="opt_out", ids="fold")
    assert {"P0003", "P0012"} & set(found["person_id"]) == set()
    assert len(found) == 54
    assert len(staged(database, tmp_path / "exact", opt_out="opt_out", ids="exact")) == 57


def test_all_spellings_of_one_who_withdrew_are_left_out_where_they_are_joined(
    database: Database, tmp_path: Path
) -> None:
    spelt(database)
    database.execute(
        "UPDATE note SET person_id = CASE note_id::int % 3 WHEN 0 THEN 'p 3' WHEN 1 THEN 'P3' ELSE 'p03' END "
        "WHERE person_id = 'P0003'"
    )
    table_of(database, "opt_out", ["P3"])
    found = staged(database, tmp_path, opt_out="opt_out", ids="fold")
    assert len(found) == 57
    assert not [each for each in found["person_id"] if each.endswith("3") and len(each) < 4]


def test_a_register_is_read_again_where_its_ids_are_no_longer_held_to_be_exact(tmp_path: Path) -> None:
    given = {"source": "postgresql://host/notes", "table": "note", "opt_out": "opt_out"}
    made = [
        corpus_artefact(parse_job({"out": str(tmp_path), "corpus": {**given, "ids": ids}})).settings
        for ids in ("exact", "stop", "fold")
    ]
    assert made[0] != made[1] == made[2]


@pytest.mark.parametrize("kind", ["bigint", "numeric", "text", "varchar(9)", "char(7)"])
def test_a_register_of_another_type_than_the_notes_names_the_same_people(
    database: Database, tmp_path: Path, kind: str
) -> None:
    fill(database, 60)
    table_of(database, "opt_out", ["3", "11"], kind)
    assert set(map(int, staged(database, tmp_path, opt_out="opt_out")["person_id"])) == set(range(20)) - {3, 11}


def test_what_a_register_has_is_counted_and_nobody_of_it_is_quoted(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(database, 60)
    given = index_of(database)
    for ids, more, said, status in (
        (["3", "971234", "981234"], [], "3 ids of who withdrew, of which 1 are individuals here", 0),
        (["971234"], [], "1 ids of who withdrew, of which 0 are individuals here; its ids may be of another", 0),
        (["971234"], ["--set", "corpus.on_unmatched=stop"], '(corpus.on_unmatched = "stop")', 1),
        ([], [], "opt_out: the table holds no id", 1),
    ):
        table_of(database, "opt_out", ids, "int")
        run = tmp_path / f"run-{len(ids)}-{status}"
        assert command(*given, "--out", run, "--set", "corpus.opt_out=opt_out", *more) == status
        shown = capfd.readouterr()
        assert said in shown.err
        assert "1234" not in shown.err + shown.out
    counts = read_manifest(tmp_path / "run-3-0" / "corpus").counts
    assert (counts["opt_out"], counts["row_security"]) == ({"ids": 3, "individuals": 1}, "no row is hidden")
    assert b"971234" not in b"".join(file.read_bytes() for file in (tmp_path / "run-3-0").rglob("*") if file.is_file())


@pytest.mark.parametrize("by", ["table", "list", "a later list", "a longer list", "update"])
def test_no_text_of_who_withdrew_travels_or_is_kept(database: Database, tmp_path: Path, by: str, capfd: Any) -> None:
    fill(database, 60)
    database.execute("UPDATE note SET note_text = 'Secretword ' || note_id WHERE person_id = 3")
    table_of(database, "opt_out", ["3"], "int")
    file, run = listed(tmp_path, "gone.txt", 3, 7, 99), tmp_path / "run"
    given, by_list = [*index_of(database), "--out", run], ["--set", f'corpus.withdrawn=["{file}"]']
    if by == "a longer list":
        file.write_text("7\n")
        assert command(*given, *by_list) == 0
        file.write_text("3\n7\n99\n")
    elif by in ("a later list", "update"):
        assert command(*given) == 0
        database.execute("DROP TABLE note")  # its documents are those of the run
    assert (b"Secretword" in held(run)) == (by not in ("table", "list"))
    if by == "update":
        given, run, by_list = ["update", run, "--out", tmp_path / "two"], tmp_path / "two", ["--remove", file]
    capfd.readouterr()
    assert command(*given, *(["--set", "corpus.opt_out=opt_out"] if by == "table" else by_list)) == 0
    assert (run / RECORD).exists()
    assert b"Secretword" not in held(run)
    if by != "table":
        assert f"{file}: 3 ids of who withdrew, of which 2 are individuals here" in capfd.readouterr().err
        assert read_manifest(run / "corpus").counts["withdrawn"] == [{"ids": 3, "individuals": 2}]


def held(run: Path) -> bytes:
    """All that a run folder holds, and the texts of its documents."""
    texts = [pl.read_parquet(file)["note_text"].to_list() for file in staged_files(run / "corpus")]
    return b"".join(file.read_bytes() for file in run.rglob("*") if file.is_file()) + str(texts).encode()


@pytest.mark.parametrize(
    "name", ["opt_out WHERE false", "(SELECT -1 AS person_id)", "opt_out o; DROP TABLE note", "opt_out --", ""]
)
@pytest.mark.parametrize("source", ["postgresql://h/d", "adbc://duck"])
def test_a_register_is_a_name_and_never_an_expression(source: str, name: str) -> None:
    for setting in ("opt_out", "table", "readmitted"):
        given: dict[str, Any] = {"table": "note", setting: [name] if setting == "readmitted" else name}
        with pytest.raises(PolicyError, match=f"corpus.{setting}: expected"):
            CorpusConfig(source=source, **given)


# --------------------------------------------------------------------------------------------------- row-level security


@pytest.fixture
def guarded(database: Database) -> Database:
    """Notes of 20 individuals, 3 and 11 of whom withdrew, and a role that policies may hide rows from."""
    fill(database, 60)
    table_of(database, "opt_out", ["3", "11"], "int")
    database.execute(
        "DROP ROLE IF EXISTS reader1", f"CREATE ROLE reader1 LOGIN PASSWORD '{PASSWORD}'",
        "GRANT SELECT ON note, opt_out TO reader1",
    )  # fmt: skip
    return database


@pytest.mark.parametrize("hidden", ["note", "opt_out"])
@pytest.mark.parametrize("filtered", [False, True])
def test_rows_that_a_policy_hides_are_never_missing_in_silence(
    guarded: Database, tmp_path: Path, hidden: str, filtered: bool
) -> None:
    guarded.execute(
        f"ALTER TABLE {hidden} ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY p ON {hidden} FOR SELECT USING (person_id < 10)",
    )
    more: dict[str, Any] = {"source": guarded.address("reader1"), "table": "note", "opt_out": "opt_out"}
    more |= {"row_security": "filtered"} if filtered else {}
    if hidden == "note" and filtered:
        assert set(map(int, staged(guarded, tmp_path, **more)["person_id"])) == set(range(10)) - {3}
        return
    with pytest.raises(
        CorpusError, match=f"{hidden}: .*row-level security hides rows of it.*a view of the table's owner"
    ):
        staged(guarded, tmp_path, **more)
    guarded.execute(f"CREATE VIEW seen AS SELECT * FROM {hidden}", "GRANT SELECT ON seen TO reader1")
    seen = {"table": "seen"} if hidden == "note" else {"opt_out": "seen"}
    assert set(map(int, staged(guarded, tmp_path / "view", **more | seen)["person_id"])) == set(range(20)) - {3, 11}


# ----------------------------------------------------------------------------------------------------- earlier readings


def index_of(database: Database) -> list[Any]:
    given = settings(database)
    columns = [
        part
        for name in ("table", "doc_id", "individual_id", "text")
        for part in ("--set", f"corpus.{name}={given[name]}")
    ]
    return ["index", given["source"], *columns, "--set", "index.updatable=true"]


def people(run: Path) -> set[str]:
    return set(pq.read_table(run / "split" / "individuals.parquet").column("individual_id").to_pylist())


#: What left 3 out in the first reading, and what the second one says.
@pytest.mark.parametrize(
    ("first", "then", "stays_out"),
    [
        ("table", "nothing", None), ("list", "nothing", None), ("table", "a table without them", None),
        ("list", "a shorter list", None), ("list", "another table", True), ("table", "another list", True),
        ("table", "readmitted list", False), ("list", "readmitted table", False), ("table", "deleted", True),
    ],
)  # fmt: skip
def test_who_was_left_out_stays_out_whatever_the_list_is_called(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str], first: str, then: str, stays_out: bool | None
) -> None:
    fill(database, 120)
    table_of(database, "opt_out", ["3", "7"], "int")
    old = listed(tmp_path, "old.txt", 3, 7)
    given, run = [*index_of(database), "--out", tmp_path / "run"], tmp_path / "run"
    by = {"table": "corpus.opt_out=opt_out", "list": f'corpus.withdrawn=["{old}"]'}
    assert command(*given, "--set", by[first], "-q") == 0
    assert {"3", "7"} & people(run) == set()
    table_of(
        database,
        "other",
        ["7"] if then in ("a table without them", "readmitted table", "deleted") else ["3", "7"],
        "int",
    )
    table_of(database, "opted_in", ["3"], "int")
    if then == "deleted":
        database.execute("DELETE FROM note WHERE person_id = 3")
    shorter = f'corpus.withdrawn=["{listed(tmp_path, "shorter.txt", 7)}"]'
    more = {
        "nothing": [],
        "a shorter list": [shorter],
        "another list": [f'corpus.withdrawn=["{listed(tmp_path, "new.txt", 7, 3, 99)}"]'],
        "readmitted list": [shorter, f'corpus.readmitted=["{listed(tmp_path, "in.txt", 3)}"]'],
        "readmitted table": ["corpus.opt_out=other", 'corpus.readmitted=["opted_in"]'],
    }.get(then, ["corpus.opt_out=other"])
    capfd.readouterr()
    before = people(run)
    status = command(*given, *(part for each in more for part in ("--set", each)))
    said = capfd.readouterr().err
    assert status == (2 if stays_out is None else 0), said
    if stays_out is None:
        number = 2 if then == "nothing" else 1
        assert f"{number} individual(s) whom an earlier reading left out as withdrawn would come back" in said
        assert people(run) == before
    else:
        assert ("3" in people(run)) is (not stays_out)
        assert "7" not in people(run)


@pytest.mark.parametrize(
    ("by", "renumbered", "way_out"),
    [
        ("table", False, ""), ("list", True, ""), ("table", True, "readmitted"), ("list", False, "readmitted"),
        ("table", False, "withdrawn"), ("list", True, "withdrawn"),
    ],
)  # fmt: skip
def test_notes_that_get_another_id_are_not_taken_in_without_being_asked(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str], by: str, renumbered: bool, way_out: str
) -> None:
    fill(database, 120)
    database.execute("UPDATE note SET note_text = note_text || note_id")  # each of its own
    table_of(database, "opt_out", ["3"], "int")
    one, two, three = tmp_path / "one", tmp_path / "two", tmp_path / "three"
    given = [*index_of(database), "-q"]
    if by == "table":
        assert command(*given, "--out", two, "--set", "corpus.opt_out=opt_out") == 0
    else:
        assert command(*given, "--out", one) == 0
        assert command("update", one, "--remove", listed(tmp_path, "w.txt", 3), "--out", two, "-q") == 0
    database.execute("UPDATE note SET person_id = 30 WHERE note_id IN (9, 10)")
    if renumbered:
        database.execute("UPDATE note SET note_id = note_id + 1000 WHERE note_id IN (9, 10)")
    more: list[Any] = []
    if way_out == "readmitted":
        more = ["--set", f'corpus.readmitted=["{listed(tmp_path, "in.txt", 30)}"]']
    elif way_out == "withdrawn" and by == "table":
        table_of(database, "opt_out", ["3", "30"], "int")
    elif way_out == "withdrawn":
        more = ["--remove", listed(tmp_path, "more.txt", 30)]
    capfd.readouterr()
    status = command("update", two, "--refresh", "--out", three, *more)
    said = capfd.readouterr().err
    if not way_out:
        assert status == 2
        assert "2 document(s) of individuals who withdrew now have the id of another individual (1 of them)" in said
        assert not (three / "split").exists()
        return
    assert status == 0, said
    assert ("30" in people(three)) is (way_out == "readmitted")
    assert "3" not in people(three)
    assert command("update", three, "--refresh", "--out", tmp_path / "four", "-q") == 0
    assert people(tmp_path / "four") == people(three)


def test_who_was_deleted_after_the_withdrawal_stays_in_the_list_and_the_line_may_not_go(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(database, 120)
    old, one, two, three = listed(tmp_path, "w.txt", 3, 7), *(tmp_path / name for name in ("one", "two", "three"))
    assert command(*index_of(database), "--out", one, "-q") == 0
    assert command("update", one, "--remove", old, "--out", two, "-q") == 0
    database.execute("DELETE FROM note WHERE person_id = 3")
    assert command("update", two, "--remove", old, "--out", three, "--set", "corpus.opt_out=gone") == 2
    assert "corpus.opt_out: takes effect when the documents are read again" in capfd.readouterr().err
    assert command("update", two, "--refresh", "--out", three) == 0
    assert "w.txt: 2 ids of who withdrew, of which 1 are individuals here" in capfd.readouterr().err
    old.write_text("7\n")
    again = [*index_of(database), "--out", two, "--set", f'corpus.withdrawn=["{old}"]']
    for arguments in (["update", two, "--refresh", "--out", tmp_path / "four"], again):
        assert command(*arguments) == 2
        assert "1 individual(s) whom an earlier reading left out as withdrawn would come back" in capfd.readouterr().err
    assert "3" not in people(two)


def test_an_error_of_a_register_names_the_table_and_quotes_nothing(database: Database, tmp_path: Path) -> None:
    fill(database, 60)
    database.execute("CREATE TABLE opt_out (person_id numeric)", "INSERT INTO opt_out VALUES (3), (11.5)")
    with pytest.raises(ReticentError, match="column person_id: expected whole numbers") as said:
        staged(database, tmp_path, opt_out="opt_out")
    assert NOTE_WORD not in str(said.value)
    assert "11" not in str(said.value)
