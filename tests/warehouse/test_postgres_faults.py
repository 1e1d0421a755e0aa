"""PostgreSQL as a source when something goes wrong: nothing half is left, and no secret is said."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.jobs import Recorder
from fixtures.notes import COLUMNS, NOTE_WORD, fill, job, made, settings, staged
from fixtures.postgres import PASSWORD, BeforeStatement, Database, Server, needs_postgres, postgres_server

from reticent.core.artifact import read_manifest
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.batches import read_ahead
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import open_remote, stage, staged_files
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

needs_postgres()
pytestmark = pytest.mark.heavy


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


@pytest.fixture(scope="module")
def lost() -> Iterator[Server]:
    """A server of its own, with 60 notes, that tests stop and start again."""
    with postgres_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", str(server.passfile))
        fill(Database(server, "postgres"), 60)
        yield server


@pytest.mark.parametrize(("connections", "after"), [(1, 1), (2, 3)])
def test_a_server_that_ends_the_session_in_the_middle_leaves_nothing_and_the_next_run_reads_all(
    database: Database, tmp_path: Path, connections: int, after: int
) -> None:
    fill(database, 3000, words=1000)  # about 50 MB, which no buffer holds
    killed = Killed(database, after)
    values = job(database, tmp_path / "run", connections=connections)
    with pytest.raises(CorpusError) as failed:
        execute(Run(parse_job(values), Interrupting(killed)), "index")
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
        "import sys, json, os, signal; from reticent.job.config import parse_job; "
        "from reticent.job.pipeline import execute; from reticent.job.run import Run; "
        "from reticent.engine.sources import staged; count = staged._Staging._count; "
        "staged._Staging._count = lambda *given: (count(*given), os.kill(os.getpid(), signal.SIGKILL)); "
        "execute(Run(parse_job(json.loads(sys.argv[1]))), 'index')"
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
        (
            f"CREATE USER reader PASSWORD '{PASSWORD}'",
            {"user": "reader"},
            "the role has no right to do this; SQLSTATE 42501",
        ),
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
            execute(Run(parse_job({"out": str(out), "corpus": values})), "index")
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


@pytest.mark.parametrize(
    ("address", "password", "said"),
    [
        ("postgresql://owner@/{name}?host=/nowhere", PASSWORD, "no server listens there; give its host and port"),
        ("postgresql://owner@127.0.0.1:1/{name}", PASSWORD, "no server listens there; give its host and port"),
        ("postgresql://owner@no-such-host.invalid/{name}", PASSWORD, "there is no host of this name"),
        ("postgresql://owner@/planted?host={folder}", PASSWORD, "no such database; give its name as DATABASE"),
        (
            "postgresql://planted@/{name}?host={folder}",
            PASSWORD,
            "the role or its password is wrong, or none was found",
        ),
        ("postgresql://owner@/{name}?host={folder}", "wrong", "the role or its password is wrong, or none was found"),
        ("postgresql://owner@/{name}?host={folder}", None, "the role or its password is wrong, or none was found"),
        (
            "postgresql://away@/{name}?host={folder}",
            PASSWORD,
            "the role may not connect to this database; ask for GRANT",
        ),
    ],
)
def test_a_connection_that_is_not_made_says_in_a_sentence_what_to_do(
    address: str, password: str | None, said: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(
        "DROP ROLE IF EXISTS away",
        f"CREATE ROLE away LOGIN PASSWORD '{PASSWORD}'",
        f"REVOKE CONNECT ON DATABASE {database.name} FROM PUBLIC",
    )
    passfile = tmp_path / "passwords"
    passfile.write_text("" if password is None else f"*:*:*:*:{password}\n")
    passfile.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passfile))
    source = address.format(name=database.name, folder=database.server.folder)
    config = CorpusConfig(source=source, preset="omop")
    with pytest.raises(CorpusError) as raised, open_remote(config, tmp_path) as opened:
        opened.version()
    assert said in str(raised.value)
    assert not any(quoted in str(raised.value) for quoted in (PASSWORD, "FATAL", "libpq"))


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


def test_a_server_that_is_stopped_at_once_in_the_middle_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_server() as server:
        monkeypatch.setenv("PGPASSFILE", str(server.passfile))
        database = Database(server, "postgres")
        fill(database, 3000, words=1000)
        values = job(database, tmp_path / "run", connections=2)
        with pytest.raises(CorpusError) as failed:
            execute(Run(parse_job(values), Interrupting(server.process.kill)), "index")
    assert NOTE_WORD not in str(failed.value)
    assert not list((tmp_path / "run").rglob("*.parquet"))


@pytest.mark.parametrize(("connections", "step"), [(1, 3), (2, 7)])
def test_a_server_that_is_lost_at_any_stage_is_an_error_or_a_whole_result(
    lost: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: int, step: int
) -> None:
    database = Database(lost, "postgres")
    values = job(database, tmp_path / "run", connections=connections)
    quits = BeforeStatement(monkeypatch, lost.quit)
    said: list[str] = []
    while quits.num_statements >= quits.left:
        quits.left, quits.num_statements = quits.left + step, 0
        values["out"] = str(tmp_path / f"at-{quits.left}")
        try:
            execute(Run(parse_job(values)), "corpus")
        except CorpusError as failed:
            said.append(str(failed))
            assert not list(Path(values["out"]).rglob("*.parquet"))
        else:
            assert read_manifest(Path(values["out"]) / "corpus").counts["documents"] == 60
        if lost.process.poll() is not None:
            lost.restart()
    assert len(said) >= 3
    assert not any(secret in sentence for sentence in said for secret in (NOTE_WORD, PASSWORD))
    assert (Path(values["out"]) / "corpus").exists()  # the last one lost no server


def test_staging_takes_less_than_200_megabytes(database: Database, tmp_path: Path) -> None:
    fill(database, 6000, words=1000)  # about 100 MB
    code = (
        "import sys, json, re; from pathlib import Path; "
        "from reticent.core.without_pandas import keep_pandas_out; keep_pandas_out(); "  # as `reticent` does
        "from reticent.engine.sources.corpus_config import CorpusConfig; "
        "from reticent.engine.sources.staged import open_remote; from reticent.engine.sources.staged import stage; "
        "config = CorpusConfig(**json.loads(sys.argv[1])); folder = Path(sys.argv[2])\n"
        "with open_remote(config, folder) as source: counts = stage(source, config, folder)\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1]\n"
        "print(json.dumps([counts['text_bytes'], int(peak) * 1024]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, json.dumps(settings(database)), str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    text_bytes, peak = json.loads(ended.stdout)
    assert text_bytes > 90e6
    assert peak < 200e6  # also where pandas is installed


def test_read_ahead_passes_batches_errors_and_the_end_on() -> None:
    closed = []

    def batches(fails: bool) -> Iterator[pa.RecordBatch]:
        try:
            for number in range(20):
                yield pa.record_batch({"n": [number]})
            if fails:
                raise CorpusError("broken")
        finally:
            closed.append(True)

    assert [batch["n"][0].as_py() for batch in read_ahead(batches(False))] == list(range(20))
    read = []
    with pytest.raises(CorpusError, match="broken"):
        read.extend(read_ahead(batches(True)))
    assert len(closed) == 2
    first = read_ahead(batches(True))
    next(first)
    first.close()  # type: ignore[attr-defined]
    assert len(closed) == 3
    assert not [thread for thread in threading.enumerate() if thread.name == "read-ahead"]


def test_a_limit_of_time_that_the_role_has_ends_no_connecting(database: Database, tmp_path: Path) -> None:
    fill(database, 60)
    database.execute(
        "DROP ROLE IF EXISTS hurried", f"CREATE ROLE hurried LOGIN PASSWORD '{PASSWORD}'",
        "GRANT SELECT ON note TO hurried", "ALTER ROLE hurried SET statement_timeout = '1ms'",
    )  # fmt: skip
    assert len(staged(database, tmp_path, source=database.address("hurried"), table="note")) == 60
