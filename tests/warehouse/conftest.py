"""One server for all tests of this folder, and a database of its own for each of them; one JVM for those of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.postgres import Database, Server, postgres_server
from fixtures.spark import SparkHome, notes


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with postgres_server() as started:
        yield started


@pytest.fixture
def database(server: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """An empty database; its password is found where a user's would be."""
    monkeypatch.setenv("PGPASSFILE", str(server.passfile))
    with server.database(getattr(request, "param", "UTF8")) as made:
        yield made


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> SparkHome:
    return SparkHome(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files whose order is not that of the document ids."""
    folder = tmp_path_factory.mktemp("notes")
    table = notes().sample(fraction=1, shuffle=True, seed=3)
    table[:50].write_parquet(folder / "b é.parquet", row_group_size=20)
    table[50:].write_parquet(folder / "a.parquet")
    return folder


@pytest.fixture
def duck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A connection to a database that ``adbc://hospital`` names."""
    pytest.importorskip("adbc_driver_manager", reason="not installed: make test-warehouse")
    duckdb = pytest.importorskip("duckdb")
    import _duckdb

    (tmp_path / "duckdb.toml").write_text(
        'manifest_version = 1\nname = "DuckDB"\n[Driver]\nentrypoint = "duckdb_adbc_init"\n'
        f'shared = "{_duckdb.__file__}"\n'
    )
    (tmp_path / "hospital.toml").write_text(
        f'profile_version = 1\ndriver = "duckdb"\n[Options]\npath = "{tmp_path}/hospital.db"\n'
    )
    monkeypatch.setenv("ADBC_PROFILE_PATH", str(tmp_path))
    monkeypatch.setenv("ADBC_DRIVER_PATH", str(tmp_path))

    def execute(*statements: str) -> None:
        with duckdb.connect(str(tmp_path / "hospital.db")) as connection:
            for statement in statements:
                connection.execute(statement)

    return execute
