"""Addresses of documents: a secret in one is refused, and never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures.command import command

from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.table import check_address, shown
from reticent.job.config import parse_job
from reticent.job.run import Run

SECRET = "hunter2pass"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://anna:{SECRET}@host/db",
        f"postgres://:{SECRET}@host/db",
        f"postgresql://anna%3A{SECRET}@host/db",
        f"postgresql://host/db?password={SECRET}",
        f"postgresql://host/db?user=a&pass%77ord={SECRET}",
        f"postgresql://host/db?sslpassword={SECRET}",
        f"postgresql://host/db?options={SECRET}",
        f"postgresql://host/db password={SECRET}",
        f"postgresql://host/db#{SECRET}",
        f"postgresql://[{SECRET}",
        f"s3://{SECRET}:{SECRET}@bucket/notes",
        f"s3://{SECRET}@bucket/notes",
        f"s3://bucket/notes?secret_key={SECRET}",
        f"delta+s3://bucket/notes?aws_secret_access_key={SECRET}",
        f"gs://bucket/notes?access_token={SECRET}",
        f"abfs://:{SECRET}@account/notes",
        f"snowflake://{SECRET}@host",
        f"https://host/{SECRET}",
    ],
)
def test_an_address_that_may_hold_a_secret_is_refused_and_not_shown(
    address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PolicyError) as refused:
        parse_job({"out": "run", "corpus": {"source": address, "query": "SELECT 1"}})
    assert SECRET not in str(refused.value)
    out = tmp_path / "run"
    assert command("index", address, "--out", out, "--set", "corpus.table=note") == 2
    assert SECRET not in "".join(capfd.readouterr())
    assert not out.exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://anna@host:5432/db?sslmode=require", "postgresql://host:5432/db"),
        ("postgresql:///?service=hospital", "postgresql:///"),
        ("postgresql://a,b/db?user=anna&passfile=%2Fsafe%2Fpgpass", "postgresql://a,b/db"),
        ("s3://bucket/notes?endpoint_override=localhost:9000&scheme=http", "s3://bucket/notes"),
        ("abfs://container@account.dfs.core.windows.net/notes", "abfs://container@account.dfs.core.windows.net/notes"),
        ("hdfs://anna@host:8020/notes", "hdfs://host:8020/notes"),
        ("delta:///lake/notes", "delta:///lake/notes"),
        ("iceberg://catalogue/hospital.notes", "iceberg://catalogue/hospital.notes"),
        ("adbc://hospital", "adbc://hospital"),
    ],
)
def test_an_address_is_shown_without_user_and_parameters(address: str, said: str) -> None:
    check_address(address)
    assert shown(address) == said


@pytest.mark.parametrize(
    ("corpus", "said"),
    [
        ({"source": "notes.parquet", "table": "note"}, "corpus.table: means nothing for local files"),
        ({"source": "notes.parquet", "connections": 2}, "corpus.connections: means nothing"),
        ({"source": "postgresql://h/d"}, "needs table, query or preset"),
        ({"source": "postgresql://h/d", "table": "a", "query": "SELECT"}, "needs table, query or preset"),
        ({"source": "postgresql://h/d", "query": "SELECT", "preset": "omop"}, "needs table, query or preset"),
        ({"source": "postgresql://h/d", "table": "a", "version": "3"}, "corpus.version"),
        ({"source": "postgresql://h/d", "table": "a", "format": "csv"}, "corpus.format: means nothing"),
        ({"source": "postgresql://h/d", "table": "a", "delimiter": ";"}, "corpus.delimiter: means nothing"),
        ({"source": ["postgresql://h/d", "notes"], "table": "a"}, "is the only source"),
        ({"source": "s3://bucket/notes", "table": "a"}, "corpus.table: means something for a database alone"),
        ({"source": "s3://bucket/notes", "version": "1"}, "for Delta and Iceberg alone"),
        ({"source": "s3://bucket/notes", "format": "brat"}, "corpus.format: means nothing"),
        ({"source": "delta:///a", "connections": 0}, "connections"),
        ({"source": "delta:///a", "opt_out": "gone"}, "corpus.opt_out: means something for a database alone"),
        ({"source": "notes.parquet", "opt_out": "gone"}, "corpus.opt_out: means nothing for local files"),
        ({"source": "postgresql://h/d", "opt_out": "gone"}, "needs table, query or preset"),
    ],
)
def test_settings_that_contradict_a_source_are_refused(corpus: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        parse_job({"out": "run", "corpus": corpus})


def test_settings_of_a_warehouse_are_kept_by_a_job() -> None:
    job = parse_job({"out": "run", "corpus": {"source": "postgresql://h/d", "preset": "omop", "table": "cdm.note"}})
    assert parse_job(json.loads(json.dumps(job.model_dump(mode="json")))) == job
    assert job.corpus.remote == "postgresql://h/d"
    assert CorpusConfig(source=["a", "b"]).remote is None  # type: ignore[arg-type]


def test_documents_that_were_not_read_yet_are_an_error_that_says_how(tmp_path: Path) -> None:
    job = parse_job({"out": str(tmp_path), "corpus": {"source": "postgresql://h/d", "preset": "omop"}})
    with pytest.raises(ArtifactError, match="start with `reticent index`"):
        _ = Run(job).whole_corpus
    for given in (["detect", "postgresql://h/d"], ["dedup", "postgresql://h/d"]):
        assert command(*given, "--set", "corpus.preset=omop") == 1
