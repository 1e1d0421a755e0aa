"""No password is repeated: generated spellings in every argument, and what is accepted all the same."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from fixtures.command import command

from reticent.core.errors import PolicyError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.table import refuse_secrets

# ruff: noqa: E501
WORD = "Qzhunter2"
#: Passwords, each with the word: plain, and with the characters that addresses are cut at.
PASSWORDS = [
    WORD,
    f"{WORD}/x",
    f"x@{WORD}",
    f"{WORD}#1",
    f"p:{WORD}",
    f"1234/{WORD}",
    f"%40{WORD}",
    f"{WORD}?a=b",
    f"{WORD} z",
]
URLS = [
    "postgresql://etl:{}@db.hospital/omop", "postgres://etl:{}@db:5432/omop", "postgresql://etl%3A{}@db/omop",
    "postgresql://db/omop?password={}", "postgresql://db/omop?user=etl&pass%77ord={}", "POSTGRESQL://etl:{}@db/omop",
    "mysql://etl:{}@db/omop", "snowflake://etl:{}@account/db", "s3://KEY:{}@bucket/notes", "s3a://KEY:{}@bucket/notes",
    "https://etl:{}@host/notes", "delta+s3://bucket/t?aws_secret_access_key={}", "hdfs://etl:{}@namenode/notes",
    "mssql+pyodbc://sa:{}@h/d?driver=ODBC", "mongodb+srv://etl:{}@cluster/db", "adbc://etl:{}@db", "iceberg://etl:{}@cat/ns.t",
    "postgresql://etl:1234/{}.db/omop", "postgresql://etl:5432/{}/omop", "postgresql://etl/{}/omop", "postgresql:///etl:{}.db",
    "postgresql://etl:1234/{}@db/omop", "postgresql://etl:1234/{}%2540db/omop", "postgresql://etl%3A{}.db/omop", "postgresql://etl%253A{}%2540db/omop",
    "postgresql://etl:{}:5432/omop", "postgresql://etl:{},db:5432/omop", "postgresql://a:5432,etl:{},b/omop", "postgresql://db/omop?user=etl:{}",
    "postgresql://db/omop?host=etl:{}@db", "postgres://etl:1234/{}.db/omop", "adbc://etl:1234/{}", "adbc://etl/{}.db/omop", "adbc://etl%3A{}", "adbc:///etl:{}.db",
    "hdfs://etl:{}:8020/notes", "hdfs://etl/{}@namenode:8020/notes", "hdfs:///etl:{}.namenode/notes", "hdfs://etl%3A{}.namenode/notes",
    "delta+hdfs://etl/{}@namenode:8020/t", "s3://b/notes?endpoint_override=KEY:{}@host", "s3://KEY:{}:/notes",
]  # fmt: skip
PAIRS = [
    "host=db.hospital dbname=omop user=etl password={}", "host = db password = '{}'", "user=etl pasword={}",
    "Server=h;Database=d;Uid=sa;Pwd={}", "Driver={{PostgreSQL}};Server=h;UID=sa;PWD={{{}}};", "DSN=omop;UID=etl;PWD={}",
    "Data Source=h;User Id=sa;Password={}", "service=hospital sslpassword={}", "password={}", "PGPASSWORD={}", "pwd: {}",
    "{{\"password\": \"{}\"}}", "AccountName=a;AccountKey={}", "user=etl passwd = {}", "host=h;mdp={}",
]  # fmt: skip
JDBC = [
    "jdbc:postgresql://h/db?user=etl&password={}", "jdbc:sqlserver://h:1433;user=sa;password={}", "jdbc:oracle:thin:etl/{}@h:1521:db",
    "odbc:etl:{}@h", "etl/{}@//h:1521/db",
]  # fmt: skip
SLIPS = [
    "postgresql:etl:{}@db.hospital/omop", "postgresql:/etl:{}@db/omop", "postgresql//etl:{}@db/omop", "postgresl://etl:{}@db/omop",
    "etl:{}@db.hospital/omop", "postgresql;//etl:{}@db", "postgresql: //etl:{}@db", "postgresql://etl:{}.db/omop", "//etl:{}@db/omop",
    "'postgresql://etl:{}@db/omop'", " postgresql://etl:{}@db/omop", "postgresql:\\\\etl:{}@db", "etl：{}＠db.hospital", "etl:{}@tcp(db:3306)/omop", "://etl:{}@db", "etl%3A{}%40db",
]  # fmt: skip
SPELLINGS = [each.format(password) for each, password in itertools.product([*URLS, *PAIRS, *JDBC, *SLIPS], PASSWORDS)]
#: Arguments of commands, {} in the place of each that may be anything.
ARGUMENTS = [
    ["index", "{}", "--out", "run"], ["index", "notes.parquet", "--out", "{}"], ["stats", "{}"], ["run", "{}"], ["status", "{}"],
    ["update", "{}", "--refresh", "--out", "x"], ["update", "r", "--add", "{}", "--out", "x"], ["update", "r", "--remove", "{}", "--out", "x"],
    ["update", "r", "--refresh", "--out", "{}"], ["export", "{}", "--out", "y"], ["export", "r", "--into", "{}"], ["detect", "{}"],
    ["dedup", "{}"], ["scrub", "{}", "--out", "y"], ["protect", "r", "--model", "toy={}"], ["train", "{}"], ["audit", "{}"],
    ["report", "{}"], ["dossier", "{}"], ["classify", "{}"], ["spark", "index", "{}", "--out", "z"], ["guard", "build", "{}"], ["{}"],
    ["index", "notes.parquet", "--out", "run", "--set", "corpus.source={}"], ["run", "r", "--set", "corpus.source={}"],
    ["run", "r", "--set", "{}"], ["index", "n", "--{}"], ["index", "n", "--out={}"], ["run", "r", "-s", 'corpus.source="{}"'],
    ["synth", "--out", "{}"], ["probe", "{}"], ["new-job", "{}"], ["budget", "{}"], ["tagger", "{}"],
]  # fmt: skip


def test_there_are_more_than_300_spellings() -> None:
    assert len(set(SPELLINGS)) > 300


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_no_argument_with_a_password_is_repeated_or_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    at = ARGUMENTS.index(arguments)
    spellings = SPELLINGS if arguments[0] == "index" and arguments[1] == "{}" else SPELLINGS[at :: len(ARGUMENTS)]
    for spelling in spellings:
        assert command(*(each.replace("{}", spelling) for each in arguments)) in (1, 2), spelling
        assert WORD not in "".join(capfd.readouterr()), spelling
        assert not list(tmp_path.iterdir()), spelling


@pytest.mark.parametrize(
    ("address", "is_taken"),
    [
        ("http://localhost:8000/v1", True), ("https://models.partner.example/v1", True), (f"https://etl:{WORD}@host/v1", False),
        (f"https://host/v1?token={WORD}", False), (f"https://host:{WORD}/v1", False),
    ],
)  # fmt: skip
def test_the_address_of_a_server_is_taken_unless_it_may_hold_a_password(
    capfd: pytest.CaptureFixture[str], address: str, is_taken: bool
) -> None:
    assert command("audit-model", "m", "--endpoint", address) == 2
    said = "".join(capfd.readouterr())
    assert ("may hold a password" not in said) == is_taken
    assert WORD not in said


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_source_of_a_job_with_a_password_is_refused_and_not_quoted(spelling: str) -> None:
    with pytest.raises(PolicyError) as refused:
        CorpusConfig(source=spelling, table="note")
    assert WORD not in str(refused.value)


@pytest.mark.parametrize(
    "argument",
    [
        "postgresql://etl@db.hospital:5432/omop", "postgresql:///omop?host=/tmp&user=etl&port=5432", "postgres://[::1]:5432/omop",
        "s3://bucket/2024:01@site/part:0.parquet", "s3://bucket/a=1/b=2/notes", "s3://bucket/notes?endpoint_override=localhost:9000",
        "hdfs://etl@namenode:8020/notes", "s3a://bucket/a:b@c", "abfss://container@account.dfs.core.windows.net/notes",
        "abfs://container@account/notes", "file:///data/a:b@c/notes", "delta:///lake/a@b:c", "iceberg://cat/ns.notes", "adbc://hospital",
        "notes.parquet", "notes@site.parquet", "runs/2024@site", "C:/notes", "2024:01", "dbfs:/notes", "a=b/c.parquet",
        "toy=/models/bert", "user=/models/bert", "corpus.individual_id=password", "corpus.table=note", "corpus.version=\"0\"",
        "train.epochs=3", "detect.records.columns={birth_date=\"birth\"}", "corpus.query=SELECT a::text, '@' FROM t WHERE token = 5",
        "model.tokenizer=a", "--log-format", "corpus.source=postgresql://etl@db/omop", "corpus.source=s3://b/a:b@c", "a%20b",
        "postgresql://a:5432,b:5433/omop", "postgresql://[::1]:5432,b/omop?user=anna@chu", "postgresql://%2Fvar%2Frun%2Fa:5432/omop", "postgresql://h/a%2Fb.c",
        "postgresql://[fe80::1%25eth0]/omop", "adbc:///etc/adbc/hospital.toml", "adbc://profiles/chu/hospital.toml", "adbc://chu/hospital", "hdfs://namenode:8020/a/b/c",
        "hdfs://nameservice/a@b/c", "postgresql://host:5432/omop?host=/tmp&hostaddr=::1", "postgresql://host", "delta+hdfs://nameservice/a/b",
        'corpus.withdrawn=["/data/w.txt"]', "org/model", "corpus.text=secret_note", "corpus.time_zone=Europe/Paris",
    ],
)  # fmt: skip
def test_what_holds_no_password_is_accepted(argument: str) -> None:
    refuse_secrets(argument)


def test_a_path_that_is_there_is_accepted_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("etl:x@host", "password=x.csv"):
        (tmp_path / name).write_text("")
        refuse_secrets(name)
    refuse_secrets("etl:*@host")


def test_no_run_folder_is_begun_for_documents_that_are_not_there(tmp_path: Path) -> None:
    assert command("index", tmp_path / "nothing.parquet", "--out", tmp_path / "run") == 1
    assert not (tmp_path / "run").exists()
