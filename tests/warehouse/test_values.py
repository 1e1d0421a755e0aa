"""What a value is as an id: databases and Spark read the table of values as one machine does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fixtures.notes import COLUMNS, settings
from fixtures.postgres import Database, programs
from fixtures.spark import SparkHome, missing
from fixtures.values import IDS, Ids, of_ids

from reticent import spark as on_spark
from reticent.core.errors import CorpusError
from reticent.engine.config import SplitConfig
from reticent.engine.corpus import Columns
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import open_remote, stage, staged_files

EACH = pytest.mark.parametrize("given", IDS.values(), ids=IDS)


def read_remote(folder: Path, given: dict[str, Any]) -> list[str]:
    config = CorpusConfig(**given)
    with open_remote(config, folder) as source:
        stage(source, config, folder)
    (file,) = staged_files(folder)
    found: list[str] = pq.read_table(file).column("person_id").to_pylist()
    return found


@EACH
def test_a_database_of_any_driver_gives_the_ids_of_one_machine(duck: Any, tmp_path: Path, given: Ids) -> None:
    (tmp_path / "staged").mkdir()
    pq.write_table(of_ids(given.values), tmp_path / "rows.parquet")
    duck(f"CREATE TABLE note AS SELECT * FROM read_parquet('{tmp_path}/rows.parquet')")
    source = {"source": "adbc://hospital", "table": "note", **COLUMNS}
    if isinstance(given.ids, list):
        assert read_remote(tmp_path / "staged", source) == given.ids
        return
    with pytest.raises(CorpusError, match=f"column person_id: expected text or integers, got {given.ids}"):
        read_remote(tmp_path / "staged", source)


@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed: make test-warehouse")
@EACH
def test_postgresql_gives_the_ids_of_one_machine(database: Database, tmp_path: Path, given: Ids) -> None:
    pytest.importorskip("adbc_driver_postgresql", reason="not installed: make test-warehouse")
    database.execute(f"CREATE TABLE note (note_id text, person_id {given.sql}, note_text text)")
    for number, value in enumerate(given.values.to_pylist()):
        written = f"\\x{value.hex()}" if isinstance(value, bytes) and given.sql == "bytea" else value
        database.execute(f"INSERT INTO note VALUES ('d{number}', '{written}', 'x')")
    if isinstance(given.ids, list):
        assert read_remote(tmp_path, settings(database)) == given.ids
        return
    with pytest.raises(CorpusError, match="column person_id: expected text, integers, uuid or numeric without digits"):
        read_remote(tmp_path, settings(database))


@pytest.fixture(scope="module")
def session(home: SparkHome) -> Iterator[Any]:
    with home.session("local[1]") as spark:
        yield spark


@pytest.mark.heavy
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
@EACH
def test_spark_gives_the_ids_of_one_machine(session: Any, tmp_path: Path, given: Ids) -> None:
    pq.write_table(of_ids(given.values), tmp_path / "rows.parquet")
    how: dict[str, Any] = {"columns": Columns(**COLUMNS), "split": SplitConfig(heldout=0), "num_parts": 1}
    if isinstance(given.ids, list):
        found = on_spark.open_documents(str(tmp_path / "rows.parquet"), spark=session, **how)
        assert found.individuals().table.column("individual_id").to_pylist() == sorted(given.ids)
        return
    with pytest.raises(CorpusError, match="column person_id: expected text or integers, got"):
        on_spark.open_documents(str(tmp_path / "rows.parquet"), spark=session, **how)
