"""What a value is as an id, and as a birth date: databases and Spark read the table of values as one machine does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.notes import COLUMNS, settings
from fixtures.postgres import Database, programs
from fixtures.spark import SparkHome, missing
from fixtures.values import DAYS, IDS, Days, Ids, of_ids

from reticent import _rust
from reticent import spark as on_spark
from reticent.core.errors import CorpusError
from reticent.engine.config import SplitConfig
from reticent.engine.corpus import Columns
from reticent.engine.sources.columns import SOURCE_COLUMN
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import open_remote, stage, staged_files
from reticent.ext.spark.tables import decoded

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


def how(ids: list[str], **more: Any) -> dict[str, Any]:
    """How Spark reads: with a seed by which the two individuals are on the two sides of the split."""
    hashes = (_rust.hash_units(pa.array(ids), seed=seed) for seed in range(99))
    seed = next(number for number, two in enumerate(hashes) if len({each >> 63 for each in two.tolist()}) == 2)
    return {"columns": Columns(**COLUMNS), "split": SplitConfig(heldout=0.5, seed=seed), "num_parts": 1, **more}


@pytest.mark.heavy
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
@EACH
def test_spark_gives_the_ids_of_one_machine(session: Any, tmp_path: Path, given: Ids) -> None:
    pq.write_table(of_ids(given.values), tmp_path / "rows.parquet")
    if given is IDS["UUID"]:
        with pytest.raises(CorpusError, match="has a type that Spark does not read, such as UUID: write it as text"):
            on_spark.open_documents(str(tmp_path / "rows.parquet"), spark=session, **how(["1", "2"]))
    elif isinstance(given.ids, list):
        found = on_spark.open_documents(str(tmp_path / "rows.parquet"), spark=session, **how(given.ids))
        assert found.individuals().table.column("individual_id").to_pylist() == sorted(given.ids)
    else:
        with pytest.raises(CorpusError, match="column person_id: expected text or integers, got"):
            on_spark.open_documents(str(tmp_path / "rows.parquet"), spark=session, **how(["1", "2"]))


# ---------------------------------------------------------------------------------------------------------------- days

BORN = pytest.mark.parametrize("days", DAYS.values(), ids=DAYS)
ZONES = pytest.mark.parametrize("zone", [None, "Europe/Paris"])
REFUSED = "column birth: holds times with a zone that are not all midnight in UTC"


def with_births(days: Days) -> Any:
    return of_ids(IDS["text"].values).append_column("birth", days.values)


def check_days(folder: Path, given: dict[str, Any], days: Days, zone: str | None) -> None:
    config = CorpusConfig(**given, time_zone=zone)
    (folder / "staged").mkdir()
    expected = days.plain if zone is None else days.in_paris
    with open_remote(config, folder / "staged") as source:
        if expected is None:
            with pytest.raises(CorpusError, match=REFUSED):
                stage(source, config, folder / "staged", more=["birth"])
            return
        stage(source, config, folder / "staged", more=["birth"])
    (file,) = staged_files(folder / "staged")
    assert [each[:10] for each in pq.read_table(file).column("birth").to_pylist()] == expected


@ZONES
@BORN
def test_delta_gives_the_days_of_one_machine(tmp_path: Path, days: Days, zone: str | None) -> None:
    deltalake = pytest.importorskip("deltalake", reason="not installed: make test-warehouse")
    deltalake.write_deltalake(str(tmp_path / "t"), with_births(days))
    check_days(tmp_path, {"source": f"delta://{tmp_path}/t", **COLUMNS}, days, zone)


@ZONES
@BORN
def test_a_database_of_any_driver_gives_the_days_of_one_machine(
    duck: Any, tmp_path: Path, days: Days, zone: str | None
) -> None:
    pq.write_table(with_births(days), tmp_path / "rows.parquet")
    duck(f"CREATE TABLE note AS SELECT * FROM read_parquet('{tmp_path}/rows.parquet')")
    check_days(tmp_path, {"source": "adbc://hospital", "table": "note", **COLUMNS}, days, zone)


@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed: make test-warehouse")
@ZONES
@BORN
def test_postgresql_gives_the_days_of_one_machine(
    database: Database, tmp_path: Path, days: Days, zone: str | None
) -> None:
    pytest.importorskip("adbc_driver_postgresql", reason="not installed: make test-warehouse")
    database.execute(f"CREATE TABLE note (note_id text, person_id text, note_text text, birth {days.sql})")
    for number, value in enumerate(days.values.to_pylist()):
        database.execute(f"INSERT INTO note VALUES ('d{number}', 'p{number}', 'x', '{value}')")
    check_days(tmp_path, settings(database), days, zone)


@pytest.mark.heavy
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
@ZONES
@BORN
def test_spark_gives_the_days_of_one_machine(session: Any, tmp_path: Path, days: Days, zone: str | None) -> None:
    pq.write_table(with_births(days), tmp_path / "rows.parquet")
    given = how(IDS["text"].values.to_pylist(), more=["birth"], time_zone=zone, spark=session)
    expected = days.plain if zone is None else days.in_paris
    if expected is None:
        with pytest.raises(CorpusError, match=REFUSED):
            on_spark.open_documents(str(tmp_path / "rows.parquet"), **given)
        return
    parts = on_spark.open_documents(str(tmp_path / "rows.parquet"), **given).parts.collect()
    found = [text for data in parts if data for text in decoded(data).column(f"{SOURCE_COLUMN}birth").to_pylist()]
    assert [each[:10] for each in found] == expected
