"""One table of refused and odd inputs: what is made, and what today comes of it.

A row is a small function that makes the input, and either the rows that are read of it, or the class of the error, the
file, the row, the column and the reason. A row with a number in ``wrong`` is a fault that is known under this number,
and stands here as it is: who mends it changes the row. No refusal holds a word of a document.
"""

from __future__ import annotations

import bz2
import csv
import datetime as dt
import gzip
import json
import os
import re
import shutil
import string
import struct
import subprocess
import sys
import traceback
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.documents import GOOD, SENTINEL, Row, changed, results, row, xml_2014
from fixtures.documents import as_csv as csv_with
from fixtures.documents import write_file as put
from fixtures.postgres import postgres_server, programs
from fixtures.spark import missing as missing_of_spark
from fixtures.values import IDS, of_ids

from reticent.core.errors import CorpusError
from reticent.engine.corpus import Columns, CsvDialect, open_corpus
from reticent.engine.sources.config import Markup
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import open_remote, stage, staged_files
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run


@dataclass(frozen=True)
class Raised:
    """An error that is none of ours: it escapes to the caller."""

    error: type[Exception]
    message: str


#: The rows that are read; or, of a `CorpusError`, file, row (of XML and BRAT: line) and column as in its message, a
#: colon, and a pattern that the reason begins with: ``a.csv row 3 column text: is null``.
Outcome = list[Any] | str | Raised


@dataclass(frozen=True)
class Input:
    """A row of the table; ``make`` puts the input into a folder and returns the source, ``read`` reads it."""

    name: str
    make: Callable[[Path], Any]
    outcome: Outcome
    wrong: str = ""
    columns: Columns = field(default_factory=Columns)
    options: dict[str, Any] = field(default_factory=dict)
    read: Callable[[Any, Input, Path], list[Any]] | None = None
    needs: tuple[str, ...] = ()


TABLE: list[Input] = []


def add(name: str, make: Callable[[Path], Any], outcome: Outcome, wrong: str = "", **more: Any) -> None:
    TABLE.append(Input(name, make, outcome, wrong, **more))


# fmt: off
# ruff: noqa: E501
# -------------------------------------------------------------------------------------------------------------- makers


TWO = [("1", "a", "x"), ("2", "b", "y")]


def every(**values: object) -> list[Row]:
    return [{**r, **values} for r in GOOD]


def file(name: str, content: str | bytes) -> Callable[[Path], Path]:
    return lambda folder: put(folder / name, content)


def folder_of(**files: Callable[[Path], Any]) -> Callable[[Path], Path]:
    """A folder with files, each made by its function; the names of the arguments say nothing."""

    def make(folder: Path) -> Path:
        for each in files.values():
            each(folder)
        return folder

    return make


def damaged(make: Callable[[Path], Path], old: bytes, new: bytes) -> Callable[[Path], Path]:
    def damage(folder: Path) -> Path:
        path = make(folder)
        content = path.read_bytes()
        assert content.count(old) == 1
        return put(path, content.replace(old, new))

    return damage


def cut(make: Callable[[Path], Path], num_bytes: int) -> Callable[[Path], Path]:
    """The file without its last bytes."""
    return lambda folder: put(path := make(folder), path.read_bytes()[:-num_bytes])


def table(rows: list[Row] | pa.Table) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)


def parquet(rows: list[Row] | pa.Table, name: str = "a.parquet", **options: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table(rows), folder / name, **{"row_group_size": 2} | options)
        return folder / name

    return make


def plain_parquet(rows: list[Row] | pa.Table) -> Callable[[Path], Path]:
    """Its bytes are those of the values."""
    return parquet(rows, compression="none", use_dictionary=False, write_statistics=False, row_group_size=100)


def arrow(rows: list[Row] | pa.Table, new: Callable[..., Any] = pa.ipc.new_file) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        content = table(rows)
        with pa.OSFile(str(folder / "a.arrow"), "wb") as sink, new(sink, content.schema) as writer:
            writer.write_table(content, max_chunksize=2)
        return folder / "a.arrow"

    return make


as_csv = partial(csv_with, quoting=csv.QUOTE_ALL)


def csv_of(rows: list[Row], name: str = "a.csv") -> Callable[[Path], Path]:
    return file(name, as_csv(rows))


def csv_lines(*lines: str, name: str = "a.csv") -> Callable[[Path], Path]:
    return file(name, "\n".join(["doc_id,individual_id,text", *lines, ""]))


def jsonl(rows: list[Row]) -> Callable[[Path], Path]:
    return file("a.jsonl", "".join(json.dumps(r) + "\n" for r in rows))


# ------------------------------------------------------------------------------------------------------- files, folders



def linked(target: str, source: str) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        csv_of(GOOD, "b.csv")(folder)
        (folder / "a.csv").symlink_to(target)
        return folder / source if source else folder

    return make


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "a.csv")
    return folder / "a.csv"


for target, source in [(t, s) for t in ("nothing", "a.csv") for s in ("", "a.csv", "*.csv")]:
    add(f"a link to {target} in the place of a document, {source or 'folder'}", linked(target, source),
        "a.csv: a link to nothing; repair the link")
add("an empty source", lambda folder: "", "a source is empty; name a file, a folder (. is the current one) or a glob")
add("an empty source among others", lambda folder: [folder, ""],
    "a source is empty; name a file, a folder (. is the current one) or a glob")
add("a pipe", fifo, "a.csv: neither a file nor a folder")
add("no file", lambda folder: folder / "nothing.parquet",
    r"nothing.parquet: no file found \(Parquet, Arrow, CSV or JSONL\)$")
add("files of two formats", folder_of(a=csv_of(GOOD), b=parquet(GOOD)),
    r"FOLDER: files of one format expected, found \.csv, \.parquet; choose with a glob, such as \*\.csv$")
add("compressed documents beside others",
    folder_of(a=parquet(GOOD), b=file("b.csv.gz", gzip.compress(as_csv(GOOD).encode()))),
    r"FOLDER: files of one format expected, found \.gz, \.parquet")
add("a suffix of no format", file("a.txt", SENTINEL),
    r"a.txt: \.txt does not tell the format; set corpus\.format to parquet, arrow, csv, jsonl, txt")
add("no bytes: CSV", file("a.csv", ""), r"a.csv: cannot be read as csv \(an empty file\)$")
add("no bytes: Arrow", file("a.arrow", ""), r"a.arrow: cannot be read as arrow \(an empty file\)$")
add("a header and nothing else", csv_lines(), "a.csv: no documents$")
add("empty tables", folder_of(a=parquet(table(GOOD).slice(0, 0)), b=parquet(table(GOOD).slice(0, 0), "b.parquet")),
    "FOLDER (2 files): no documents$")
add("blank lines", file("a.jsonl", "\n \n"), "a.jsonl: no documents$")
for suffix, kind, pack in (
    (".gz", "gzip", gzip.compress),
    (".zst", "zstd", lambda data: pa.compress(data, codec="zstd", asbytes=True)),
    (".bz2", "bz2", bz2.compress),
):
    add(f"not compressed as its name says: {kind}", csv_of(GOOD[:4], f"a.csv{suffix}"),
        rf"a.csv{suffix}: cannot be unpacked as {kind} \(damaged, or of another kind\)")
    add(f"bytes behind what is compressed: {kind}",
        file(f"a.csv{suffix}", pack(as_csv(GOOD).encode()) + SENTINEL.encode()), f"a.csv{suffix}: cannot be unpacked as {kind}")

# ------------------------------------------------------------------------------------------------------------- columns

add("column missing: Parquet", parquet(table(GOOD).rename_columns(["doc_id", "individual_id", "body"])),
    "a.parquet: column text is missing; it has doc_id, individual_id, body$")
add("column missing: the second file",
    folder_of(a=csv_of(GOOD[:4]), b=csv_of([{"doc_id": "x", "individual_id": "y", "note": SENTINEL}], "b.csv")),
    "b.csv: column text is missing")
add("column missing: mapped", jsonl(GOOD), "a.jsonl: column patient is missing; it has doc_id, individual_id, text$",
    columns=Columns(individual_id="patient"))
add("CSV without a header", file("a.csv", as_csv(GOOD).partition("\n")[2]),
    r"a.csv: column doc_id is missing; the first line must name it, and names 3 other column\(s\)$")
add("CSV with a column in capitals", file("a.csv", as_csv(GOOD).replace("text", "TEXT ", 1)),
    r"a.csv: column text is missing; .* names 3 other column\(s\), one of which differs in capitals or spaces only$")
add("CSV with a delimiter that is not looked for", file("a.csv", f"doc_id#individual_id#text\nd1#p1#{SENTINEL}\n"),
    r"a.csv: column doc_id is missing; .* names 1 other column\(s\); set corpus.delimiter to what stands between them$")
add("CSV with a header that fits two delimiters", file("a.csv", "t,a;t;b,t\n"),
    "a.csv: the header names the columns under , and ; as delimiter; set corpus.delimiter",
    columns=Columns(doc_id="t", individual_id="t", text="t"))
add("column twice: Arrow", arrow(table(GOOD).append_column("text", pa.array(["x"] * 8))),
    "a.arrow: column text stands there 2 times$")
add("column twice: Parquet", parquet(table(GOOD).append_column("doc_id", pa.array(list("abcdefgh")))),
    "a.parquet: column doc_id stands there 2 times$")
add("column twice: CSV", file("a.csv", f"doc_id,individual_id,text,individual_id\n1,a,{SENTINEL},b\n2,b,x,c\n"),
    "a.csv: column individual_id stands there 2 times$")
add("name twice in an object",
    damaged(jsonl(GOOD), b'number 2"', f'number 2", "{SENTINEL}": 1, "{SENTINEL}": 2'.encode()),
    "a.jsonl row 3 another column: stands twice in this object$")

# ------------------------------------------------------------------------------------------------- ids, nulls, encodings

add("null individual", parquet(changed(5, individual_id=None)), "a.parquet row 6 column individual_id: is null$")
add("null document id", jsonl(changed(2, doc_id=None)), "a.jsonl row 3 column doc_id: is null$")
add("null text", arrow(changed(7, text=None)),
    r'a.arrow row 8 column text: is null; corpus\.on_null = "skip" leaves documents without a text out$')
add("unquoted nothing in CSV", csv_lines(f"d0,p0,{SENTINEL}", *(f"d{i},p{i}," for i in range(1, 8))),
    r"a.csv row 2 column text: is null; null: 7 of column text \(a\.csv row 2, a\.csv row 3, a\.csv row 4, a\.csv row 5, …\), of 8 rows; corpus\.on_null")
add("blank individual", csv_of(changed(3, individual_id=" \t\u00a0\u3000")),
    "a.csv row 4 column individual_id: is blank$")
add("blank document id", jsonl(changed(0, doc_id="")), "a.jsonl row 1 column doc_id: is blank$")
add("blank household", parquet([{**r, "family": " " if i == 4 else "f"} for i, r in enumerate(GOOD)]),
    "a.parquet row 5 column family: is blank$", columns=Columns(household_id="family"))
add("document twice in a file", parquet(changed(7, doc_id="d1")),
    r"column doc_id: the same document id stands at .*a\.parquet row 2 and .*a\.parquet row 8$")
add("document twice in two files", folder_of(a=csv_of(GOOD[:4]), b=csv_of([GOOD[4], GOOD[2], GOOD[4]], "b.csv")),
    r"column doc_id: the same document id stands at .*a\.csv row 3 and .*b\.csv row 2$")
add("one individual", csv_of(every(individual_id="p")),
    "a.csv: column individual_id names one individual only; support among individuals needs at least two$")
add("text not UTF-8: Arrow", damaged(arrow(GOOD), b"number 5", b"number \xff"),
    "a.arrow row 6 column text: not valid UTF-8$")
add("text not UTF-8: Parquet", damaged(plain_parquet(GOOD), b"number 5", b"number \xff"),
    "a.parquet row 6 column text: not valid UTF-8$")
add("text not UTF-8: CSV", damaged(csv_of(changed(2, text="é")), b"number 5", b"number \xff"),
    "a.csv row 6 column text: not valid UTF-8$")
add("text not UTF-8: JSONL", damaged(jsonl(GOOD), b"number 5", b"number \xff"), "a.jsonl row 6: not valid UTF-8$")
add("id not UTF-8",
    parquet(table(GOOD).set_column(1, "individual_id", pa.array([b"p\xc3x" if i == 2 else b"p" for i in range(8)], pa.binary()).view(pa.string()))),
    "a.parquet row 3 column individual_id: not valid UTF-8$")
add("half a surrogate pair", jsonl(changed(1, text=f"\ud83d {SENTINEL}")),
    "a.jsonl row 2: not valid JSON, or not valid Unicode$")
add("UTF-16 that ends inside a character", file("a.csv", as_csv(GOOD).encode("utf-16")[:-1]),
    r"a.csv row 9: byte [\d,]+ of the file is not utf-16-le")

# --------------------------------------------------------------------------------------------------------------- types

add("text of bytes", parquet([{**r, "text": r["text"].encode()} for r in GOOD]),
    "a.parquet column text: expected text, got binary: bytes without the mark of UTF-8")
add("individuals of floats", parquet([{**r, "individual_id": i / 2} for i, r in enumerate(GOOD)]),
    "a.parquet column individual_id: expected text or integers, got double; cast it in the source, where every digit is known$")
add("text of objects", jsonl(every(text={SENTINEL: 1})), "a.jsonl column text: expected text, got struct$")
add("types that change", jsonl(changed(4, doc_id=7)),
    "a.jsonl row 5 column doc_id: expected str as in the rows before, got int$")
for kind in (pa.int64(), pa.uint8(), pa.decimal128(38, 0), pa.decimal256(60, 0)):
    numbers = pa.table(
        {
            "doc_id": pa.array([1, 2, 3]).cast(kind),
            "individual_id": pa.array([7, 7, 12]).cast(kind),
            "text": list("abc"),
        }
    )
    add(f"ids of {kind}", parquet(numbers), [("1", "7", "a"), ("2", "7", "b"), ("3", "12", "c")])
for make in (parquet, arrow, jsonl):
    add(f"whole numbers are ids: {make.__name__}", make([row(2**53 + 1, 7, "x"), row(2, 8, "y")]),
        [("9007199254740993", "7", "x"), ("2", "8", "y")])


def with_spans(spans: list[Any]) -> Callable[[Path], Path]:
    rows = [{**r, "text": f"{SENTINEL} é", "spans": [{"start": 0, "end": 1, "label": "A"}]} for r in GOOD]
    rows[4]["spans"] = spans
    return jsonl(rows)


for name, spans, reason in (
    ("beyond the text", [{"start": 13, "end": 14, "label": "A"}, {"start": 13, "end": 16, "label": SENTINEL}], r"span 13\.\.16 does not fit its text of 14 characters$"),
    ("in bytes", [{"start": 13, "end": 15, "label": "A"}], r"span 13\.\.15 does not fit its text of 14 characters; it would if offsets counted bytes, but they count char"),
    ("before the text", [{"start": -1, "end": 3, "label": "A"}], r"span -1\.\.3 does not fit its text"),
    ("of nothing", [{"start": 3, "end": 3, "label": "A"}], r"span 3\.\.3 does not fit its text"),
    ("without a label", [{"start": 0, "end": 3}], "a span has no label$"),
    ("that is null", [None], "a span has no start$"),
):
    add(f"span {name}", with_spans(spans), f"a.jsonl row 5 column spans: {reason}", columns=Columns(spans="spans"))
add("span beyond 32 bits", with_spans([{"start": 0, "end": 1 << 40, "label": "A"}]),
    r"a.jsonl column spans: expected a list of \(start: int32, end: int32, label: string\), got list, or a number",
    columns=Columns(spans="spans"))
add("spans of text", csv_of(every(spans=SENTINEL)),
    r"a.csv column spans: expected a list of \(start: int32, end: int32, label: string\), got large_string",
    columns=Columns(spans="spans"))

# ----------------------------------------------------------------------------------------------------------------- CSV

for name, content, texts in (
    ("quoted newlines", '1,a,"x\ny"\n2,b,"x\r\n\r\ny"\n', ["x\ny", "x\r\n\r\ny"]),
    ("doubled quotes", '1,a,"say ""x"", he"\n2,b,""""\n', ['say "x", he', '"']),
    ("CRLF and no newline at the end", "1,a,x\r\n2,b,y", ["x", "y"]),
    ("empty documents", '1,a,""\n2,b," "\n', ["", " "]),
    ("words that other readers take for nothing", "1,a,NA\n2,b,null\n", ["NA", "null"]),
    ("numbers and dates stay text", "1,a,007\n2,b,2021-03-04\n", ["007", "2021-03-04"]),
    ("NUL", "1,a,x\0y\n2,b,\0\n", ["x\0y", "\0"]),
    ("blank lines", "\n1,a,x\n\n2,b,y\n\n", ["x", "y"]),
):
    for start in ("", "\ufeff"):
        add(f"CSV: {name}{' behind a mark' * bool(start)}",
            file("a.csv", f"{start}doc_id,individual_id,text\n{content}"),
            [("1", "a", texts[0]), ("2", "b", texts[1])])
add("CSV: an export from France",
    file("a.csv", 'doc_id;individual_id;text\r\nd1;p1;Bien, reçu à 5 h\r\nd2;p2;"dit «É»; l\'été\nfroid"\r\n'.encode("cp1252")),
    [("d1", "p1", "Bien, reçu à 5 h"), ("d2", "p2", "dit «É»; l'été\nfroid")])
add("CSV: quotes that are text", file("a.csv", 'doc_id\tindividual_id\ttext\n1\ta\t5" pipe\n2\tb\t"x\n'),
    [("1", "a", '5" pipe'), ("2", "b", '"x')], options={"csv": CsvDialect(delimiter="tab", quote="none")})
add("CSV: a value too many", damaged(csv_of(GOOD), b"number 6", f'x","{SENTINEL}'.encode()),
    "a.csv row 7: expected 3 columns, got 4$")
add("CSV: a quote that is never closed",
    csv_lines(f"d0,p0,{SENTINEL}", 'd1,p1,"x ""y\n"" z"', f"d2,p2,{SENTINEL}", f'd3,p3,"{SENTINEL}', f"d4,p4,{SENTINEL}"),
    "a.csv row 4: a quoted value is not closed by the end of the file$")
TWO_OPEN = [f"d{i},p{i}," + '"' * (i in (2, 5)) + SENTINEL for i in range(8)]
add("CSV: two quotes that are not closed", csv_lines(*TWO_OPEN),
    "a.csv row 3: text follows the quote that closes a value")
add("CSV: two quotes that are not closed, compressed",
    file("a.csv.gz", gzip.compress("\n".join(["doc_id,individual_id,text", *TWO_OPEN]).encode())),
    "a.csv.gz row 3: text follows the quote that closes a value")
add("CSV: a quote inside a value", csv_lines(f'1,a,5" {SENTINEL}', "2,b,x"),
    r"a.csv row 1: a quote stands inside .*set corpus\.quote to none")

# --------------------------------------------------------------------------------------------------------------- JSONL

add("JSONL: half a line", cut(jsonl(GOOD), 10), "a.jsonl row 8: not valid JSON, or not valid Unicode$")
add("JSONL: no object", file("a.jsonl", json.dumps([SENTINEL]) + "\n"), "a.jsonl row 1: not a JSON object$")
add("JSONL: dates are text, and a mark, blank lines and NUL",
    file("a.jsonl", b"\xef\xbb\xbf" + b'{"doc_id": "2021-03-04", "individual_id": "2021-03-04T10:00:00", "text": "2021-03-05"}\n\n  {"text": "x\\u0000y", "more": [1], "individual_id": "b", "doc_id": "2021-03-06"}  '),
    [("2021-03-04", "2021-03-04T10:00:00", "2021-03-05"), ("2021-03-06", "b", "x\0y")])
DEEP = 100_000
for name, line in (
    ("arrays", '{"doc_id": "x", "more": ' + "[" * DEEP + "]" * DEEP + "}"),
    ("objects", '{"a": ' * DEEP + "1" + "}" * DEEP),
    ("over lines", '{"a":\n' * DEEP + "1" + "}" * DEEP),
    ("never closed", "[" * DEEP),
    ("one too many", '{"more": ' + "[" * 64 + "]" * 64 + "}"),
):
    lines = [json.dumps(r) for r in GOOD]
    add(f"JSONL: nested too deep, {name}", file("a.jsonl", "\n".join([*lines[:2], "", line, *lines[2:]])),
        "a.jsonl row 3: values are nested more than 64 deep|not valid JSON")
add("JSONL: only looks deep",
    jsonl([row("1", "a", '[{"' * 3, more=json.loads("[" * 62 + "]" * 62)), row("2", "b", "[" * 99 + "\\" * 7)]),
    [("1", "a", '[{"' * 3), ("2", "b", "[" * 99 + "\\" * 7)])
for name, first, second in (
    ("labels of doccano and spaCy", {"label": [[0, 3, "NAME"]]}, {"label": []}),
    ("a nested value of two types", {"meta": {"v": 1}}, {"meta": {"v": "high"}}),
    ("a value or an object", {"code": "A"}, {"code": {"c": 1}}),
    ("objects or text", {"more": {"a": 1}}, {"more": SENTINEL}),
    ("yes or no, or 0 or 1", {"s": True}, {"s": 1}),
    ("a number or a text", {"s": 1}, {"s": "high"}),
    ("a list or a value", {"s": [1]}, {"s": 1}),
    ("lists of two types", {"s": [1, "a", {}]}, {"s": [[]]}),
    ("a number that no type holds", {"s": 1}, {"s": 10**40}),
    ("half a surrogate pair", {"s": "\ud83d"}, {}),
):
    add(f"JSONL: another column, {name}", jsonl([row("1", "a", "x", **first), row("2", "b", "2024-01-02", **second)]),
        [TWO[0], ("2", "b", "2024-01-02")])
add("JSONL: another column of two types, spans", jsonl([row("1", "a", "xy", s=1, spans=[{"start": 0, "end": 1, "label": "A"}]), row("2", "b", "y", s="a", spans=[])]),
    [("1", "a", "xy"), TWO[1]], columns=Columns(spans="spans"))
add("JSONL: another column of two types, numbers as ids", jsonl([row(1, 2**53 + 1, "x", s=1), row(2, 8, "y", s="a")]),
    [("1", "9007199254740993", "x"), ("2", "8", "y")])
add("JSONL: another column of two types, and one of ours", jsonl([row("1", "a", s=1), row(2, "b", s="a")]),
    "a.jsonl row 2 column doc_id: expected str as in the rows before, got int$")

# ------------------------------------------------------------------------------------------------------ Parquet, Arrow


def polars_ipc(how: str, kind: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        frame = pl.DataFrame(
            {"doc_id": ["1", "2"], "individual_id": pl.Series(["a", "b"], dtype=kind), "text": ["x", "y"]}
        )
        getattr(frame, how)(folder / "a.arrow")
        return folder / "a.arrow"

    return make


def of_duckdb(columns: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with duckdb.connect() as connection:
            connection.execute(f"copy (select {columns} from range(2)) to '{folder / 'a.parquet'}'")
        return folder / "a.parquet"

    return make


def streams(number: int) -> Callable[[Path], Path]:
    """An Arrow stream, so many times."""
    return lambda folder: put(path := arrow(GOOD, pa.ipc.new_stream)(folder), path.read_bytes() * number)


add("Parquet: cut", cut(parquet(GOOD), 9), r"a.parquet: cannot be read as parquet \(not valid parquet\)$")
add("Arrow stream: cut inside a batch", cut(streams(1), 200),
    r"a.arrow: cannot be read as arrow \(not valid arrow\)$")
add("Arrow stream: cut behind a batch", cut(streams(1), 8), "a.arrow: an Arrow stream without its end marker")
add("Arrow stream: another behind it", streams(2),
    r"a.arrow: [\d,]+ bytes follow the end marker of its Arrow stream, unread$")
for how, kind in [
    (how, kind) for kind in (pl.Categorical, pl.Enum(["a", "b"])) for how in ("write_ipc", "write_ipc_stream")
]:
    add(f"Arrow of Polars: {kind}, {how}", polars_ipc(how, kind), TWO)
add("Parquet: text of DuckDB's JSON",
    of_duckdb("range::varchar doc_id, range::varchar individual_id, '{\"a\":1}'::json as text"),
    [("0", "0", '{"a":1}'), ("1", "1", '{"a":1}')])
add("Parquet: text as bytes", of_duckdb("range::varchar doc_id, range::varchar individual_id, 'fever'::blob as text"),
    "a.parquet column text: expected text, got binary: bytes without the mark of UTF-8; cast them to text, or write the file again$")

# ---------------------------------------------------------------------------------------------------- faults of reading

LIVE, GONE = [row("1", "a", "x"), row("2", "b", "y")], [row("9", "withdrawn", "z")]
ADD = '{{"add":{{"path":"{}","size":1,"partitionValues":{{}},"modificationTime":1,"dataChange":true}}}}\n'
LOG = "_delta_log/0000000000000000000"
DELTA = "FOLDER: a Delta table, whose files hold rows that were deleted too; read delta://FOLDER$"
add("folder of a Delta table: a file that was removed",
    folder_of(a=parquet(LIVE, "part-0.parquet"), b=parquet(GONE, "part-1.parquet"), c=file(f"{LOG}0.json", ADD.format("part-0.parquet") + ADD.format("part-1.parquet")), d=file(f"{LOG}1.json", '{"remove":{"path":"part-1.parquet","deletionTimestamp":1,"dataChange":true}}\n')),
    DELTA)
add("folder of a Delta table: a deletion vector",
    folder_of(a=parquet(LIVE + GONE, "part-0.parquet"), b=file("deletion_vector_1.bin", b"\1"), c=file(f"{LOG}1.json", '{"add":{"path":"part-0.parquet","deletionVector":{"cardinality":1}}}\n')),
    DELTA)


def within(make: Callable[[Path], Path], source: str) -> Callable[[Path], Any]:
    """A file, folder or glob in what was made."""
    return lambda folder: make(folder) / source


def behind_a_link(folder: Path) -> Path:
    parquet(LIVE, "lake/t/0.parquet")(folder)
    file(f"lake/t/{LOG}0.json", "{}")(folder)
    (folder / "notes").mkdir()
    (folder / "notes/0.parquet").symlink_to(folder / "lake/t/0.parquet")
    return folder / "notes"


def linked_folder(folder: Path) -> Path:
    parquet(LIVE, "lake/t/day=1/hour=2/0.parquet")(folder)
    file(f"lake/t/{LOG}0.json", "{}")(folder)
    (folder / "notes").symlink_to(folder / "lake/t/day=1")
    return folder / "notes"


for source in ("day=1", "day=1/0.parquet", "*/*.parquet", "**/0.parquet"):
    add(f"part of a Delta table: {source}",
        within(folder_of(a=parquet(LIVE, "day=1/0.parquet"), b=file(f"{LOG}0.json", "{}")), source), DELTA)
for source in ("", "0.parquet", "*.parquet"):
    add(f"a link to a file of a Delta table: {source}", within(behind_a_link, source), "t: a Delta table")
add("a link to a folder of a Delta table", linked_folder, "t: a Delta table")
for below in ("", "day=1/hour=2/"):
    add(f"folders of tables among others: {below}",
        folder_of(a=parquet(LIVE, "a.parquet"), b=parquet(GONE, f"lake/t/{below}0.parquet"), c=file(f"lake/t/{LOG}0.json", "{}")),
        "t: a Delta table")
for name, mark, what in (("Iceberg", "metadata/v2.metadata.json", "an Iceberg table, .*; read iceberg://CATALOGUE/NAMESPACE.TABLE$"), ("Iceberg, compressed", "metadata/00001-a.gz.metadata.json", "an Iceberg table"), ("Hudi", ".hoodie/hoodie.properties", "a Hudi table"), ("a stream of Spark", "_spark_metadata/0", "the output of a stream")):
    add(f"folder of a table: {name}", folder_of(a=parquet(LIVE, "data/0.parquet"), b=parquet(GONE, "data/1.parquet"), c=file(mark, "{}")),
        f"FOLDER: {what}")
GIVEN_UP = folder_of(a=parquet(LIVE, "part-0.parquet"), b=parquet(GONE, "_temporary/0/task/part-1.parquet"), c=file("_SUCCESS", ""), d=parquet(GONE, "_old.parquet"))
for source in ("", "*.parquet", "**/*.parquet"):
    add(f"folder of Spark: a task that was given up, {source}", within(GIVEN_UP, source), TWO)
add("folder of Spark: a file that is named", within(GIVEN_UP, "_old.parquet"), "_old.parquet: column individual_id names one individual only")
WORDS = ["nan", "NaN", "NULL", "null", "None", "<NA>", "\\N", "N/A", "#N/A", "NaT", "-", "NA", "(null)", "[NULL]", "n.a.", "nil", "<nil>"]
WORDS += ["undefined", "-nan", "1.#IND", "#VALUE!", "?", "--", "…", ".", "Unknown", "not available", " null ", "ｎｕｌｌ", "inconnu"]
WORDS += ["00000000-0000-0000-0000-000000000000", "__HIVE_DEFAULT_PARTITION__", "unbekannt", "desconocido", "Non renseigné"]
for word in WORDS:
    add(f"an individual called {word}", csv_lines("1,a,x", f"2,{word},y", f"3,{word},z", "4,b,w"),
        r"a.csv row 2 column individual_id: a word for no id, .* \(2 of 4 rows have one\)$")
add("a household called nan", file("a.csv", "doc_id,individual_id,text,home\n1,a,x,h\n2,b,y,nan\n"),
    "a.csv row 2 column home: a word for no id", columns=Columns(household_id="home"))
add("an individual called NA in fact", csv_lines("1,NA,x", "2,b,y"), [("1", "NA", "x"), ("2", "b", "y")],
    options={"real_ids": ["na"]})
NEARLY = ["n", "0", "0-0", "nana", "a-", "N/B", "nullo"]
add("individuals called nearly so", csv_lines(*(f"{i},{name},x" for i, name in enumerate(NEARLY))),
    [(str(i), name, "x") for i, name in enumerate(NEARLY)])
HEADER = b"doc_id,individual_id,text\n"
AGAIN = "the header again, where files were joined"
add("CSV: the header again", file("a.csv", HEADER + b"1,a,x\n" + HEADER + b"2,b,y\n"), f"a.csv row 2: {AGAIN}")
add("CSV: the header again, gzip members",
    file("a.csv.gz", gzip.compress(HEADER + b"1,a,x\n") + gzip.compress(HEADER + b"2,b,y\n")), f"a.csv.gz row 2: {AGAIN}")
add("CSV: the header again, behind a mark and quoted", file("a.csv", b"\xef\xbb\xbf" + HEADER + b"1,a,x\n2,b,y\n\xef\xbb\xbf" + HEADER),
    f"a.csv row 3: {AGAIN}")
add("CSV: one value like the name of its column", csv_lines("1,a,text", "2,individual_id,y"), [("1", "a", "text"), ("2", "individual_id", "y")])
for first in ("sep=;\r\n", '"sep=;"\n', "SEP=;\n", "\ufeffsep=;\r\n"):
    add(f"CSV: Excel's line {first!r}", file("a.csv", f"{first}doc_id;individual_id;text\r\n1;a;x\r\n2;b;y\r\n"), TWO)
add("CSV: Excel's line of a delimiter that is not looked for", file("a.csv", "sep=#\ndoc_id#individual_id#text\n1#a#x\n2#b#y\n"), TWO)
add("CSV: Excel's line of tabs, and a null", file("a.csv", "sep=\t\ndoc_id\tindividual_id\ttext\n1\ta\tx\n2\t\ty\n"),
    "a.csv row 2 column individual_id: is null")
for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
    content = (HEADER + b"1,a,x\n2,b,y\n").decode().encode(encoding)
    add(f"CSV: {encoding} without a mark", file("a.csv", content), f"a.csv: looks like {encoding} without a mark; set corpus.encoding to it$")
    add(f"CSV: {encoding} without a mark, said", file("a.csv", content), TWO, options={"csv": CsvDialect(encoding=encoding)})
LEGACY = {
    "cp850": "fièvre é ç", "cp437": "Señor José está aquí", "cp1250": "Łódź żółć", "iso-8859-2": "Łódź żółć", "cp1251": "Привет больной", "koi8-r": "Привет больной",
    "cp866": "Привет больной", "cp1253": "καλημέρα ασθενής", "cp1255": "שלום חולה", "shift-jis": "田中 発熱", "gbk": "发热 患者", "big5": "患者 發燒", "euc-kr": "환자 발열",
}
for encoding, text in LEGACY.items():
    content = f"{HEADER.decode()}1,a,{text}\n2,b,y\n".encode(encoding)
    add(f"CSV: {encoding}, no cp1252", file("a.csv", content),
        "a.csv row 1 column text: not valid UTF-8" if encoding in ("cp866", "euc-kr") else "a.csv: not UTF-8, and not the Windows-1252 of Western Europe either")
    add(f"CSV: {encoding}, said", file("a.csv", content), [("1", "a", text), TWO[1]], options={"csv": CsvDialect(encoding=encoding)})
for text in ("l’œuvre d’Élodie, déçue – “à 5 °C”", "¿Señor Ibáñez? ¡mañana! 3ª", "Größe ≥".replace("≥", "5 µg/m²"), "NÃO, ações; irmã", "«Où?» ½ cp à 20 €", "Ærø Ðorð Åse", "col·laboració", "PAPÁ».", "café…", "Müller·Weiß"):
    add(f"CSV: cp1252, {text}", file("a.csv", f"{HEADER.decode()}1,a,\"{text}\"\n2,b,y\n".encode("cp1252")), [("1", "a", text), TWO[1]])

# ---------------------------------------------------------------------------------------------------------- text files


def text_files(name: str, names: dict[str, str | bytes], outcome: Outcome, source: str = "", **more: Any) -> None:
    made = folder_of(**{each: file(f"t/{each}", content) for each, content in names.items()})
    options = {"format": "txt"} | {kind: more.pop(kind) for kind in ("csv", "markup") if kind in more}
    add(f"text files: {name}", lambda folder: made(folder) / "t" / source, outcome, options=options, **more)


OF_TWO = {"anna/1.txt": "x", "ben/deep/2.TXT": "y"}
text_files("a folder an individual", OF_TWO | {"read.me": "z"}, [("anna/1", "anna", "x"), ("ben/deep/2", "ben", "y")])
text_files("a glob", OF_TWO | {"carl/3.txt": "z"}, [("anna/1", "anna", "x"), ("carl/3", "carl", "z")], source="*/*.txt")
text_files("a name that is no UTF-8", OF_TWO | {"m\udcfcller/3.txt": "z"}, "3.txt: its path becomes ids and is not valid UTF-8; rename it$")
text_files("by their names", {"1_a.txt": "x", "2_b.txt": "y\r\nz\n"}, [("1_a", "a", "x"), ("2_b", "b", "y\r\nz\n")], markup=Markup(individual=r".*_(.*)"))
text_files("by names that say nobody", {"1_a.txt": SENTINEL, "2.txt": "y"}, "2.txt: corpus.individual does not fit its id", markup=Markup(individual=r".*_(.*)"))
text_files("of nobody", {"1.txt": SENTINEL, "2.txt": "y"}, "1.txt: it stands in no folder of an individual; set corpus.individual to")
text_files("encodings", {"a/1.txt": "\ufeffé", "b/2.txt": "déjà reçu".encode("cp1252"), "c/3.txt": "é".encode("utf-16"), "d/4.txt": ""},
    [("a/1", "a", "é"), ("b/2", "b", "déjà reçu"), ("c/3", "c", "é"), ("d/4", "d", "")])
text_files("an encoding that is said", {"a/1.txt": "é".encode("cp850"), "b/2.txt": "y"}, [("a/1", "a", "é"), ("b/2", "b", "y")], csv=CsvDialect(encoding="cp850"))
text_files("a legacy encoding", {"a/1.txt": "Łódź żółć".encode("cp1250"), "b/2.txt": "y"}, "1.txt: not UTF-8, and not the Windows-1252 of")
text_files("bytes", {"a/1.txt": b"x\n\x81\xff", "b/2.txt": "y"}, "1.txt line 2: not valid utf-8")
text_files("another column", OF_TWO, "1.txt: column home is missing; it has doc_id, individual_id, text$", columns=Columns(household_id="home"))


def by_table(table: str) -> Callable[[Path], Any]:
    """Text files of a table in the working folder."""

    def make(folder: Path) -> Path:
        for name in ("1.txt", "2.txt"):
            put(folder / "t" / name, "x")
        put(folder / "owners.csv", f"file,who\n{table}")
        return folder / "t"

    return make


def read_with_table(source: Any, given: Input, folder: Path) -> list[Any]:
    markup = Markup(individuals=str(folder / "owners.csv"))
    return read_all(source, Input("", given.make, [], columns=given.columns, options={"format": "txt", "markup": markup}), folder)


OWNERS = {"columns": Columns(doc_id="file", individual_id="who"), "read": read_with_table}
add("text files: by a table", by_table("1,a\n2.txt,b\n"), [("1", "a", "x"), ("2", "b", "x")], **OWNERS)
add("text files: one that a table lacks", by_table("1,a\n3.txt,b\n"), "2.txt: corpus.individuals has no row of it$", **OWNERS)
add("text files: one of two individuals", by_table("1,a\n2,b\n1,b\n"), "owners.csv: a document stands there with two individuals$", **OWNERS)

# -------------------------------------------------------------------------------------------------------------- frames

COLUMNS = {name: [r[name] for r in GOOD] for name in GOOD[0]}
for name, frame, outcome in (
    ("columns missing: Polars", pl.DataFrame({"id": ["a"], "note": ["b"]}), "polars.DataFrame: column doc_id is missing; it has id, note$"),
    ("column missing: Arrow", pa.table(COLUMNS).drop_columns(["text"]), "pyarrow.Table: column text is missing; it has doc_id, individual_id$"),
    ("null texts", {**COLUMNS, "text": [SENTINEL, None] * 4}, "dict row 2 column text: is null; null: 4 of column text"),
    ("document twice", {**COLUMNS, "doc_id": ["d0", "d0", *COLUMNS["doc_id"][2:]]}, "column doc_id: the same document id stands at dict row 1 and dict row 2$"),
    ("text of floats", {**COLUMNS, "text": [1.5] * 8}, "dict column text: expected text, got double"),
    ("values of two types", {"text": [SENTINEL, 1]}, "dict column text: expected a Series, an array or a list of values of one type"),
    ("one text for a column", {"text": SENTINEL}, "dict column text: expected a Series, an array or a list of values of one type"),
    ("a series", pl.Series([SENTINEL]), "polars.Series: one column; documents are a frame"),
    ("a chunked array", pa.chunked_array([[SENTINEL]]), "pyarrow.ChunkedArray: one column; documents are a frame"),
    ("no rows", pa.table(COLUMNS).slice(0, 0), "pyarrow.Table: no documents$"),
):
    add(f"frame: {name}", lambda folder, frame=frame: frame, outcome)
add("frame: a lazy one whose query fails", lambda folder: pl.LazyFrame({"text": [SENTINEL]}).select(pl.col("text").cast(pl.Int64)),
    r"polars.LazyFrame: the query fails \(InvalidOperationError\)")
add("frame: columns of unequal length", lambda folder: {**COLUMNS, "individual_id": ["a"]},
    "dict: columns of unequal length: doc_id 8, individual_id 1, text 8$")

# ------------------------------------------------------------------------------------------------------ marked formats


def marked(name: str, format: str, make: Callable[[Path], Any], outcome: Outcome) -> None:
    add(f"{format}: {name}", make, outcome, options={"format": format})


for number, (body, where, reason) in enumerate((
    ('<PHI TYPE="DATE">SENTINELTEXT<PHI TYPE="DOCTOR">', 2, r"not XML \(mismatched tag\)"),
    ('<PHI TYPE="DATE">26th of July<PHI TYPE="DOCTOR">', 2, "not XML"),
    ('<PHI TYPE="DATE">SENTINELTEXT<PHI TYPE="DOCTOR"/></PHI>', 2, "an element inside a PHI"),
    ("<PHI>SENTINELTEXT</PHI>", 2, "attribute TYPE is missing or blank"),
    ("SENTINELTEXT &nbsp; x", 2, r"not XML \(undefined entity\)"),
    ("SENTINELTEXT & x", 2, r"not XML \(not well-formed \(invalid token\)\)"),
    ("SENTINELTEXT </PHI>", 2, r"not XML \(mismatched tag\)"),
    ("<B>SENTINELTEXT</B>", 2, "an element inside a TEXT"),
    ("</TEXT><TEXT>SENTINELTEXT", 2, "a TEXT that is not the only one"),
    ("</TEXT>\n<SMOKING STATUS='SENTINELTEXT'/><TEXT>", 3, "attribute STATUS of a SMOKING is none of PAST"),
    ("</TEXT><SMOKING/>\n<SMOKING/><TEXT>", 3, "a SMOKING that is not the only one of its RECORD"),
    ("</TEXT></RECORD>\n<SMOKING/><RECORD ID='2'><TEXT>", 3, "a SMOKING that is not the only one"),
    ("<SMOKING STATUS='SMOKER'/>", 2, "an element inside a TEXT"),
)):
    record = f'<ROOT><RECORD ID="1"><TEXT>SENTINELTEXT\n{body}</TEXT></RECORD></ROOT>'
    marked(f"body {number}, {reason}", "i2b2-2006", file("a.xml", record), f"a.xml line {where}: {reason}")
for format in ("i2b2-2006", "i2b2-2014", "meddocan"):
    for head in (
        '<!DOCTYPE a [<!ENTITY x "SENTINELTEXT"><!ENTITY y "&x;&x;">]>',
        '<!DOCTYPE a SYSTEM "file:///etc/hostname">',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "http://127.0.0.1:9/SENTINELTEXT">]>',
    ):
        xml = f"<?xml version='1.0'?>\n{head}<a><TEXT>&x;</TEXT><TAGS/></a>"
        marked(f"no entity is expanded or fetched, {head[12:48]}", format, file("1-1.xml", xml),
            "1-1.xml line 2: a document type")
for content in (b"", b"\x00\x01", b"<a>"):
    for format in ("i2b2-2006", "i2b2-2014"):
        marked(f"no such XML, {content!r}", format, file("1-1.xml", content), "1-1.xml line 1: not XML")
for format, reason in (
    ("i2b2-2006", "no RECORD, so not i2b2 2006"),
    ("i2b2-2014", "expected one TEXT and one TAGS, got 0 and 0"),
):
    marked("another XML", format, file("1-1.xml", "<a/>"), f"1-1.xml: {reason}")
    marked("an unknown encoding", format, file("1-1.xml", "<?xml version='1.0' encoding='zebra'?><a/>"),
        "1-1.xml: its XML is in an unknown encoding")


for tag, where, reason in (
    (("NAME", "PATIENT", 4, 16, "nobody"), "1-1.xml", r"span 2, 4\.\.16 in characters, is not the text that its mark quotes"),
    (("NAME", "PATIENT", 4, 99, "x"), "1-1.xml", r"span 2, 4\.\.99 in characters, does not fit its text of 16"),
    (("NAME", "PATIENT", 4, 99, None), "1-1.xml", r"span 2, 4\.\.99 in characters, does not fit"),
    (("NAME", "PATIENT", 5, 4, "x"), "1-1.xml", r"span 2, 5\.\.4 in characters, does not fit"),
    (("NAME", "PATIENT", 4, 4, ""), "1-1.xml", r"span 2, 4\.\.4 in characters, does not fit"),
    (("NAME", "PATIENT", -1, 4, "x"), "1-1.xml line 6 span 2 start", "expected a whole number"),
    (("NAME", " ", 4, 5, "x"), "1-1.xml line 6 span 2", "attribute TYPE is missing or blank"),
):
    marked(f"a mark that does not fit, {tag[2:]}", "i2b2-2014",
        file("1-1.xml", xml_2014("Ann SENTINELTEXT", [("NAME", "PATIENT", 0, 3, "Ann"), tag])), f"{where}: {reason}")
marked("offsets that counted CR LF, not all proved", "i2b2-2014",
    file("1-1.xml", xml_2014("a\r\nAnn\r\n\r\nBob", [("NAME", "PATIENT", 3, 6, "Ann"), ("NAME", "DOCTOR", 10, 13, "Bob"), ("ID", "IDNUM", 0, 1, None)])),
    r"1-1.xml: span 1, 3\.\.6 in characters, is not the text")
marked("an id that names no individual", "i2b2-2014", file("p1_a.xml", xml_2014("x", [])),
    "p1_a.xml: its id names no individual")
for files, where, reason in (
    ({"a.txt": SENTINEL}, "a.txt", r"a\.ann does not stand beside it"),
    ({"a.ann": "T1\tNAME 0 1\tS"}, "a.ann", r"a\.txt does not stand beside it"),
    ({"a.txt": SENTINEL, "a.ann": "\nT1 NAME 0 1 S"}, "a.ann line 2", "not an annotation of BRAT"),
    ({"a.txt": SENTINEL, "a.ann": "T1\tNAME 0 5\tSENTI\nT2\tNAME 1 5\tSENT"}, "a.ann", r"span 2, 1\.\.5"),
    ({"a.txt": SENTINEL, "a.ann": "T1\tNAME 9 13\tEXT"}, "a.ann", r"span 1, 9\.\.13 .* of 12"),
    ({"a.txt": b"SENTINELTEXT\n\xff", "a.ann": ""}, "a.txt line 2", "not valid UTF-8"),
    ({"a.txt": SENTINEL, "a.ann": b"\xff"}, "a.ann line 1", "not valid UTF-8"),
    ({"a.txt": "éSENTINELTEXT", "a.ann": "T1\tNAME 2 14\tSENTINELTEXT"}, "a.ann", "offsets look like bytes, not characters"),
):
    marked(f"{where}, {reason}", "brat",
        folder_of(**{name: file(name, content) for name, content in files.items()}), f"{where}: {reason}")
ENTITY = {
    "span_text": "Mr Łukasz",
    "entity_type": "PERSON",
    "start_offset": 0,
    "end_offset": 9,
    "entity_id": "e1",
    "identifier_type": "DIRECT",
}


def of_tab(**entity: Any) -> str:
    return json.dumps({"doc_id": "1", "text": SENTINEL, "entities": [{**ENTITY, **entity}]})


for number, (content, where, reason) in enumerate((
    (of_tab(end_offset=10**30), "t.jsonl row 1", r"span 1, 0\.\.10{30} in characters, does not fit its text of 12"),
    (of_tab(start_offset=-(10**30)), "t.jsonl row 1", r"span 1, -10{30}\.\.9 in characters, does not fit its text of 12"),
    ('{"doc_id": 1' + "0" * 5000 + "}", "t.jsonl line 1", "not valid JSON"),
    ("[" * 100_000, "t.jsonl line 1", "not valid JSON"),
    ('{"doc_id": "1"\n', "t.jsonl line 1", "not valid JSON"),
    ('\n{"doc_id": "1", "text": "SENTINELTEXT", "entities": [], }', "t.jsonl line 2", "not valid JSON"),
    ('{"doc_id": "1", "text": 5, "entities": []}', "t.jsonl row 1", "field text is missing or not str"),
    ('["SENTINELTEXT"]', "t.jsonl row 1", "field doc_id is missing"),
    ('{"doc_id": "1", "text": "\\ud800 SENTINELTEXT", "entities": []}', "t.jsonl", "a text or an id holds half a surrogate pair"),
    ('{"doc_id": "1", "text": "SENTINELTEXT", "entities": [{"start_offset": true}]}', "t.jsonl row 1 span 1", "field start_offset is missing or not int"),
    (of_tab(start_offset=0, end_offset=3), "t.jsonl row 1", r"span 1, 0\.\.3 in characters, is not the text"),
)):
    marked(f"record {number}, {reason}", "tab", file("t.jsonl", content), f"{where}: {reason}")

# ---------------------------------------------------------------------------------------------- lakes, databases, Spark

NOTES = Columns(doc_id="note_id", individual_id="person_id", text="note_text")


def read_once(source: Any, given: Input, folder: Path) -> list[Any]:
    """The rows of a source that is no local file."""
    settings = CorpusConfig(source=source, **given.columns.model_dump(exclude_none=True))
    (folder / "staged").mkdir()
    with open_remote(settings, folder / "staged") as opened:
        stage(opened, settings, folder / "staged")
    names = [given.columns.doc_id, given.columns.individual_id, given.columns.text]
    return pl.read_parquet(list(staged_files(folder / "staged"))).select(names).rows()


def notes(number: int = 6, **more: Any) -> pa.Table:
    columns = {"note_id": [f"d{i}" for i in range(number)], "person_id": [f"P{i // 3}" for i in range(number)]}
    return pa.table(columns | {"mrn": [f"M{i // 2}" for i in range(number)], "note_text": ["x"] * number} | more)


def changed_delta(change: Callable[[dict[str, Any]], None], named: str = "{}") -> Callable[[Path], str]:
    """A Delta table whose first entry of the log was changed by hand; how its file names the columns."""

    def make(folder: Path) -> str:
        import deltalake

        deltalake.write_deltalake(str(folder / "t"), notes())
        log = folder / "t" / "_delta_log" / "00000000000000000000.json"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            change(line)
            if "add" in line and named != "{}":
                file = folder / "t" / line["add"]["path"]
                pq.write_table(pq.read_table(file).rename_columns([named.format(name) for name in notes().schema.names]), file)
                line["add"]["size"] = file.stat().st_size
        log.write_text("\n".join(map(json.dumps, lines)) + "\n")
        return f"delta://{folder}/t"

    return make


def mapped(
    mode: str = "name", version: int = 2, physical: str = "{}", partitions: tuple[str, ...] = ()
) -> Callable[[dict[str, Any]], None]:
    """As ALTER TABLE … columnMapping.mode, then RENAME person_id TO old_id and mrn TO person_id leave it; the names in
    files are made from the first ones.
    """

    def change(line: dict[str, Any]) -> None:
        if "protocol" in line:
            features = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}
            reading = {"minReaderVersion": version, "minWriterVersion": 7 if version == 3 else 5}
            line["protocol"] = reading | (features if version == 3 else {})
        if "metaData" in line:
            line["metaData"]["configuration"] |= {
                "delta.columnMapping.mode": mode,
                "delta.columnMapping.maxColumnId": "4",
            }
            schema = json.loads(line["metaData"]["schemaString"])
            for number, column in enumerate(schema["fields"], 1):
                column["metadata"] = {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": physical.format(column["name"]),
                }
                column["name"] = {"person_id": "old_id", "mrn": "person_id"}.get(column["name"], column["name"])
            line["metaData"] |= {"schemaString": json.dumps(schema), "partitionColumns": list(partitions)}

    return change


def with_deletion_vectors(line: dict[str, Any]) -> None:
    features = ["deletionVectors"]
    if "protocol" in line:
        line["protocol"] = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    if "metaData" in line:
        line["metaData"]["configuration"] |= {"delta.enableDeletionVectors": "true"}


def deleted_delta(storage: str) -> Callable[[Path], str]:
    """A Delta table of six rows with a deletion vector of rows 1 and 4, made by hand after the protocol."""

    def make(folder: Path) -> str:
        changed_delta(with_deletion_vectors)(folder)
        log = folder / "t" / "_delta_log"
        (added,) = (
            line["add"]
            for line in map(json.loads, (log / "00000000000000000000.json").read_text().splitlines())
            if "add" in line
        )
        # One 32-bit bitmap, of key 0: a container of key 0 with two values, in order.
        bitmap = struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 1, 4)
        data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
        vector: Row = {"sizeInBytes": len(data), "cardinality": 2}
        if storage == "inline":
            vector |= {"storageType": "i", "pathOrInlineDv": z85(data)}
        else:
            name = uuid.UUID(int=77)
            content = b"\1" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
            put(folder / "t" / f"deletion_vector_{name}.bin", content)
            vector |= {"storageType": "u", "pathOrInlineDv": z85(name.bytes), "offset": 1}
        removed = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
        entries = [{"remove": removed}, {"add": added | {"deletionVector": vector}}]
        put(log / "00000000000000000001.json", "\n".join(map(json.dumps, entries)) + "\n")
        return f"delta://{folder}/t"

    return make


def z85(data: bytes) -> str:
    """Base 85 in the alphabet of ZeroMQ."""
    letters = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    data += bytes(-len(data) % 4)
    numbers = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(letters[number // 85**place % 85] for number in numbers for place in (4, 3, 2, 1, 0))


def catalogue(folder: Path) -> Any:
    """A catalogue of Iceberg in a folder, which pyiceberg's own settings name hospital."""
    from pyiceberg import catalog

    (folder / "warehouse").mkdir()
    settings = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/warehouse"}
    catalog._ENV_CONFIG.config = {"catalog": {"hospital": settings}}
    opened = catalog.load_catalog("hospital")
    opened.create_namespace("r")
    return opened


def renamed_iceberg(folder: Path) -> str:
    opened = catalogue(folder)
    opened.create_table("r.notes", schema=notes().schema).append(notes())
    for old, new in (("person_id", "encounter_id"), ("mrn", "person_id"), ("note_text", "body")):
        with opened.load_table("r.notes").update_schema() as update:
            update.rename_column(old, new)
    return "iceberg://hospital/r.notes"


def uuid_iceberg(folder: Path) -> str:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType, UUIDType

    kinds = ((1, "note_id", LongType()), (2, "person_id", UUIDType()), (3, "note_text", StringType()))
    made = catalogue(folder).create_table("r.u", schema=Schema(*(NestedField(*kind) for kind in kinds)))
    ids = pa.array([uuid.UUID(int=i).bytes for i in range(2)], pa.uuid())
    made.append(pa.table({"note_id": [0, 1], "person_id": ids, "note_text": ["x", "y"]}))
    return "iceberg://hospital/r.u"


def partitioned(folder: Path) -> Path:
    for number, name in enumerate(["007", "7", "0008", "9", "1000"]):
        rows = [{"note_id": f"{number}-{i}", "note_text": "x"} for i in range(3)]
        parquet(rows, f"notes/person_id={name}/part-0.parquet")(folder)
    return folder / "notes"


def settings_of(given: Input) -> list[str]:
    return [
        part
        for name, column in given.columns.model_dump(exclude_none=True).items()
        for part in ("--set", f"corpus.{name}={column}")
    ]


BORN = [dt.datetime(1950 + i, 3, 1 + i) for i in range(6)]
BIRTHS = notes(
    note_text=[f"x born {day:%Y-%m-%d} seen with fever" for day in BORN],
    birth=pa.array(BORN, pa.timestamp("us", "UTC")),
)


def born(folder: Path) -> Path:
    parquet(BIRTHS, "notes.parquet")(folder)
    return folder / "notes.parquet"


def birth_dates(
    *, on_spark: bool = False, zone: str = "UTC", time_zone: str | None = None
) -> Callable[[Any, Input, Path], list[Any]]:
    """A reader that detects birth dates of records, in this zone; the rows are the labels of the spans."""

    def read(source: Any, given: Input, folder: Path) -> list[Any]:
        put(folder / "words.txt", "born\nseen\nwith\nfever\n")
        corpus = {"source": str(source), "time_zone": time_zone, **given.columns.model_dump()}
        corpus |= {"table": "note"} if str(source).startswith("postgresql") else {}
        records = {"columns": {"birth_date": "birth"}, "common": f"{folder}/words.txt"}
        values: dict[str, Any] = {
            "out": str(folder / "run"), "detect": {"detectors": ["records"], "records": records},
            "corpus": {name: value for name, value in corpus.items() if value is not None},
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", zone)
            patch.setenv("PGTZ", zone)
            if on_spark:  # the zone of a JVM is that of its start
                subprocess.run([sys.executable, "-c", DETECT_ON_SPARK, json.dumps(values)], check=True, timeout=900)
            else:
                execute(Run(parse_job(values)), "detect", alone=True)
        spans = [file for file in (folder / "run").rglob("*.parquet") if "label" in pl.read_parquet_schema(file)]
        return [label for file in spans for label in pl.read_parquet(file)["label"]]

    return read


DETECT_ON_SPARK = """
import json, sys; from pathlib import Path; from reticent.core.progress import Progress
from reticent.ext.spark.job import OnSpark, run_on_spark; from reticent.job.config import parse_job
job = parse_job(json.loads(sys.argv[1]))
run_on_spark(job, "detect", Path(job.out), OnSpark(master="local[1]"), progress=Progress(quiet=True))
"""


def individuals_of(kind: pa.DataType) -> Callable[[Path], Path]:
    """Ids of more digits than a float holds, and of one."""
    ids = pa.array([100000001, 100000002, 3, 4]).cast(kind, safe=False)
    return lambda folder: parquet(notes(4).set_column(1, "person_id", ids), "notes.parquet")(folder)


LAKE = {"columns": NOTES, "read": read_once}
BY_NUMBER = r"delta://t: its columns are mapped by number \(delta.columnMapping.mode = id\); read it with Spark"
for version in (2, 3):
    for column, letter, each in (("person_id", "M", 2), ("old_id", "P", 3)):
        add(f"Delta: {column} by mapping, version {version}", changed_delta(mapped(version=version)),
            [(f"d{i}", f"{letter}{i // each}", "x") for i in range(6)], needs=("deltalake",),
            columns=NOTES.replace(individual_id=column), read=read_once)
add("Delta: columns mapped by number", changed_delta(mapped("id")), BY_NUMBER, needs=("deltalake",), **LAKE)
add("Delta: files that lack the mapped columns", changed_delta(mapped(physical="col-{}")),
    "delta://t row 1 column note_id: is null", needs=("deltalake",), **LAKE)
add("Delta: files with the names of a mapping", changed_delta(mapped(physical="col-{}"), named="col-{}"),
    [(f"d{i}", f"M{i // 2}", "x") for i in range(6)], needs=("deltalake",), **LAKE)
add("Delta: mapped columns and partitions", changed_delta(mapped(partitions=["person_id"])),
    "delta://t column person_id: the table's columns are mapped, and of those only plain ones", needs=("deltalake",), **LAKE)
add("Delta: the feature of deletion vectors, and none", changed_delta(with_deletion_vectors),
    [(f"d{i}", f"P{i // 3}", "x") for i in range(6)], needs=("deltalake",), **LAKE)
for storage in ("in a file", "inline"):
    add(f"Delta: a deletion vector {storage}", deleted_delta(storage), [(f"d{i}", f"P{i // 3}", "x") for i in (0, 2, 3, 5)],
        needs=("deltalake",), **LAKE)
add("Iceberg: renamed columns", renamed_iceberg,
    "iceberg://hospital/r.notes: column note_text is missing; it has note_id, encounter_id, person_id, body$",
    needs=("pyiceberg", "sqlalchemy"), **LAKE)
add("Iceberg: a renamed column by its name", renamed_iceberg, [(f"d{i}", f"M{i // 2}", "x") for i in range(6)],
    needs=("pyiceberg", "sqlalchemy"), columns=NOTES.replace(text="body"), read=read_once)
add("Iceberg: ids of UUID", uuid_iceberg, [(str(i), str(uuid.UUID(int=i)), "xy"[i]) for i in range(2)],
    needs=("pyiceberg", "sqlalchemy"), **LAKE)
add("folders of partitions", partitioned,
    "part-0.parquet: column person_id is missing; it has note_id, note_text; person_id=… in its path is a folder", columns=NOTES)
FLOAT = "column person_id: expected text or integers, got float; cast it"
add("individuals of float32", individuals_of(pa.float32()), f"notes.parquet {FLOAT}", columns=NOTES)
add("birth dates with a time", born, ["DATE"] * 6, columns=NOTES, read=birth_dates())
add("Spark: birth dates, in New York", born, ["DATE"] * 6, needs=("pyspark",), columns=NOTES,
    read=birth_dates(on_spark=True, zone="America/New_York"))

PARIS = pa.array([day.replace(tzinfo=ZoneInfo("Europe/Paris")) for day in BORN], pa.timestamp("us", "Europe/Paris"))
OF_TIMES = {
    "in UTC": (PARIS.cast(pa.timestamp("us", "UTC")), False), "in Paris": (PARIS, False),
    "without a zone": (pa.array(BORN, pa.timestamp("ns")), True), "dates": (pa.array([day.date() for day in BORN]), True),
    "midnight in UTC, shown in Paris": (pa.array(BORN, pa.timestamp("us", "UTC")).cast(pa.timestamp("s", "Europe/Paris")), True),
}  # fmt: skip
for said, (values, is_date) in OF_TIMES.items():
    kept_dates = BIRTHS.set_column(BIRTHS.schema.get_field_index("birth"), "birth", values)
    add(f"birth dates {said}", parquet(kept_dates, "notes.parquet"),
        ["DATE"] * 6 if is_date else "notes.parquet column birth: holds times with a zone that are not all midnight in UTC",
        columns=NOTES, read=birth_dates())
    if not is_date:
        add(f"birth dates {said}, read in Paris", parquet(kept_dates, "notes.parquet"), ["DATE"] * 6, columns=NOTES,
            read=birth_dates(time_zone="Europe/Paris"))


def in_postgres(*statements: str, zone: str, time_zone: str | None = None) -> Callable[[Any, Input, Path], list[Any]]:
    """A reader of birth dates in a table of a server that it starts."""

    def read(source: Any, given: Input, folder: Path) -> list[Any]:
        with postgres_server() as server, server.database() as made, pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGPASSFILE", str(server.passfile))
            made.execute(*statements)
            return birth_dates(zone=zone, time_zone=time_zone)(made.address(), given, folder)

    return read


OF_PARIS = (
    "CREATE TABLE note (note_id bigint, person_id bigint, note_text text, birth timestamptz)",
    "INSERT INTO note SELECT i, i / 3, 'x born ' || to_char(date '1950-03-01' + i, 'YYYY-MM-DD') || ' seen with fever', "
    "((date '1950-03-01' + i)::text || ' 00:00 Europe/Paris')::timestamptz FROM generate_series(0, 5) i",
)
add("PostgreSQL: birth dates of Paris, read by a session there", lambda folder: None,
    "postgresql:///made_1 note column birth: holds times with a zone that are not all midnight in UTC",
    needs=("postgres",), columns=NOTES, read=in_postgres(*OF_PARIS, zone="Europe/Paris"))
add("PostgreSQL: birth dates of Paris, read in Paris by a session of UTC", lambda folder: None, ["DATE"] * 6,
    needs=("postgres",), columns=NOTES, read=in_postgres(*OF_PARIS, zone="UTC", time_zone="Europe/Paris"))

# One table of ids (`fixtures.values`): what a value is, wherever it is read; tests/warehouse has databases and Spark.


def delta_of(values: pa.Array) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        import deltalake

        deltalake.write_deltalake(str(folder / "t"), of_ids(values))
        return f"delta://{folder}/t"

    return make


def iceberg_of(values: pa.Array) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        rows = of_ids(values)
        catalogue(folder).create_table("r.notes", schema=rows.schema).append(rows)
        return "iceberg://hospital/r.notes"

    return make


def frame_of(values: pa.Array) -> Callable[[Path], pa.Table]:
    return lambda folder: of_ids(values)


for said, each_ids in IDS.items():
    values, ids = each_ids.values, each_ids.ids
    outcome: Outcome = [(f"d{i}", each, "x") for i, each in enumerate(ids)] if isinstance(ids, list) else ""
    refused = f" column person_id: expected text or integers, got {ids}"
    for where, make, place, more in (
        ("Parquet", parquet(of_ids(values)), "a.parquet", {}), ("Arrow", arrow(of_ids(values)), "a.arrow", {}),
        ("frame", frame_of(values), "pyarrow.Table", {}),
        ("Delta", delta_of(values), "delta://t", {"needs": ("deltalake",), "read": read_once}),
        ("Iceberg", iceberg_of(values), "iceberg://hospital/r.notes", {"needs": ("pyiceberg", "sqlalchemy"), "read": read_once}),
    ):  # fmt: skip
        if (where, said) in {("Delta", "UUID"), ("Iceberg", "int16"), ("Iceberg", "UUID")}:  # cannot be written there
            continue
        add(f"{where}, ids by value: {said}", make, outcome or place + refused, columns=NOTES, **more)


# --------------------------------------------------------------------------------------------------------------- tests


def read_all(source: Any, given: Input, folder: Path) -> list[Any]:
    """The documents of files or of a frame, all columns checked."""
    corpus = open_corpus(source, columns=given.columns, **given.options)
    corpus.scan()
    documents: list[Any] = []
    for batch in corpus.batches(columns=("doc_id", "individual_id", "text", "household_id", "spans")):
        documents += zip(*(batch.column(name).to_pylist() for name in ("doc_id", "individual_id", "text")), strict=True)
    return documents


def missing(given: Input) -> str | None:
    """What a row needs and is not installed here."""
    for name in given.needs:
        if name == "pyspark":
            if said := missing_of_spark():
                return said
        elif name == "postgres":
            if programs() is None or missing(Input("", given.make, [], needs=("adbc_driver_postgresql",))):
                return "PostgreSQL or its driver is not installed"
        elif find_spec(name) is None:
            return f"{name} is not installed"
    return None


def check(expected: str, message: str, folder: Path) -> None:
    """The message names this file, row and column, and no other, and begins with the reason."""
    message = message.replace(f"{folder}/", "").replace(str(folder), "FOLDER")
    place, colon, reason = expected.partition(": ")
    assert re.match(f"(?:[^ :]*/)?{re.escape(place)}{colon}(?:{reason})", message), message


def test_the_table_knows_no_fault_that_stays_and_one_name_a_row() -> None:
    assert not [each.name for each in TABLE if each.wrong]
    assert len({each.name for each in TABLE}) == len(TABLE) > 200


@pytest.mark.parametrize("given", TABLE, ids=lambda given: given.name)
def test_an_input_gives_the_rows_or_the_refusal_of_the_table(tmp_path: Path, given: Input) -> None:
    if said := missing(given):
        pytest.skip(f"{said}: make test-warehouse")
    source, read = given.make(tmp_path), given.read or read_all
    if isinstance(given.outcome, list):
        assert read(source, given, tmp_path) == given.outcome
        return
    if isinstance(given.outcome, Raised):
        with pytest.raises(given.outcome.error, match=given.outcome.message):
            read(source, given, tmp_path)
        return
    with pytest.raises(CorpusError) as caught:
        read(source, given, tmp_path)
    check(given.outcome, str(caught.value), tmp_path)
    assert SENTINEL not in "".join(traceback.format_exception(caught.value))  # nor in what led to it


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with good results."""
    folder = tmp_path_factory.mktemp("earlier")
    assert command("index", csv_of(GOOD)(folder), "--out", folder / "run", "--quiet") == 0
    return folder / "run"


FILES = [each for each in TABLE if isinstance(each.outcome, str) and each.read is None and not each.options]
FILES = [each for each in FILES if not each.name.startswith(("frame", "an empty source"))]


@pytest.mark.parametrize("given", FILES, ids=lambda given: given.name)
def test_a_refused_file_ends_the_command_with_1_without_text_and_with_the_earlier_results_as_they_were(
    tmp_path: Path, earlier: Path, capfd: pytest.CaptureFixture[str], given: Input
) -> None:
    assert isinstance(given.outcome, str)
    (tmp_path / "documents").mkdir()
    source, run = given.make(tmp_path / "documents"), tmp_path / "run"
    shutil.copytree(earlier, run)
    before = results(run)
    assert {"index/words.parquet", "split/individuals.parquet", "spans/spans.parquet"} < set(before)
    assert command("index", source, "--out", run, *settings_of(given)) == 1
    shown = capfd.readouterr()
    last = shown.err.rstrip("\n").rpartition("\n")[2]
    assert last.startswith("reticent: ")
    check(given.outcome, last.removeprefix("reticent: "), tmp_path / "documents")
    assert "Traceback" not in shown.err
    assert SENTINEL not in shown.err + shown.out
    assert results(run) == before
