"""The core's reader of Parquet strings gives what pyarrow's gives, whoever wrote the file."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent import _rust
from reticent.core.errors import CorpusError
from reticent.engine.corpus import Columns, open_corpus
from reticent.engine.index import build_index
from reticent.engine.sources.formats import read_batches
from reticent.engine.sources.parquet import row_groups
from reticent.engine.sources.protocol import Request
from reticent.engine.split import split_individuals

NAMES = ["doc_id", "individual_id", "text", "ward"]


def asked(batch_rows: int, **options: Any) -> Request:
    return Request(columns=NAMES, batch_rows=batch_rows, **options)


def documents(num_rows: int = 3000, seed: int = 0) -> pa.Table:
    """Ids, texts of very different lengths (some empty, one of 3 MB), and a column with nulls."""
    draw = random.Random(seed)
    letters = "aé漢😀 \n"
    texts = ["".join(draw.choices(letters, k=draw.choice([0, 1, 20, 400]))) for _ in range(num_rows)]
    if num_rows:
        texts[num_rows // 2] = "long " * 600_000
    columns = {
        "doc_id": [f"d{i}" for i in range(num_rows)],
        "individual_id": [f"p{i // 3}" for i in range(num_rows)],
        "text": texts,
        "ward": [draw.choice([None, "", "A", "B"]) for _ in range(num_rows)],
        "age": list(range(num_rows)),
    }
    kinds = {"text": pa.large_string(), "age": pa.int64()}
    return pa.table(columns, schema=pa.schema([(name, kinds.get(name, pa.string())) for name in columns]))


WRITERS: dict[str, dict[str, Any]] = {
    "snappy": {"compression": "snappy"},
    "gzip": {"compression": "gzip"},
    "lz4": {"compression": "lz4"},
    "zstd": {"compression": "zstd"},
    "none": {"compression": "none"},
    "no dictionary": {"use_dictionary": False},
    "pages of version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "small pages": {"data_page_size": 1 << 10, "write_batch_size": 7},
    "checksums": {"write_page_checksum": True},
    "many row groups": {"row_group_size": 100},
    "page index": {"write_page_index": True},
}


def read(file: Path, columns: list[str], num_rows: int = 256, groups: list[int] | None = None) -> pa.Table | None:
    """Columns that the core reads, or None where it leaves the file to pyarrow."""
    parquet = _rust.ParquetFile.open(file)
    rows = parquet and parquet.read(columns, large=[name == "text" for name in columns], row_groups=groups)
    if rows is None:
        return None
    batches = []
    while (batch := rows.next(num_rows)) is not None:
        batches.append(pa.record_batch(batch))
        batches[-1].validate(full=True)
    assert [batch.num_rows for batch in batches[:-1]] == [num_rows] * (len(batches) - 1)  # wherever row groups begin
    kinds = [(name, pa.large_string() if name == "text" else pa.string()) for name in columns]
    return pa.Table.from_batches(batches, pa.schema(kinds))


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("num_rows", [1, 256, 100_000])
def test_strings_are_those_that_pyarrow_reads(tmp_path: Path, writer: str, num_rows: int) -> None:
    file = tmp_path / "a.parquet"
    table = documents()
    pq.write_table(table, file, **WRITERS[writer])
    found = read(file, NAMES, num_rows)
    assert found is not None
    assert found.equals(table.select(NAMES))
    rows_each = WRITERS[writer].get("row_group_size", 3000)
    assert row_groups(file) == [rows_each] * (3000 // rows_each)
    some = list(range(0, 3000 // rows_each, 2))
    with pq.ParquetFile(file) as parquet:
        assert read(file, ["ward"], num_rows, some) == parquet.read_row_groups(some, columns=["ward"])


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_layout_in_arrow_does_not_matter(tmp_path: Path, kind: pa.DataType) -> None:
    table = documents(500)
    same = table.set_column(3, "ward", table.column("ward").cast(kind))
    pq.write_table(same, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet", NAMES)
    assert found is not None
    assert found.equals(table.select(NAMES))


def test_files_of_polars_and_duckdb_are_read(tmp_path: Path) -> None:
    table = documents()
    pl.DataFrame(table).write_parquet(tmp_path / "polars.parquet", row_group_size=700)
    con = duckdb.connect()
    con.register("everyone", table)
    con.execute(f"copy (select * from everyone) to '{tmp_path / 'duckdb.parquet'}' (format parquet)")
    for file in sorted(tmp_path.glob("*.parquet")):
        found = read(file, NAMES)
        assert found is not None, file.name
        assert found.equals(table.select(NAMES)), file.name


def test_columns_other_than_plain_strings_are_left_to_pyarrow(tmp_path: Path) -> None:
    table = documents(50)
    file = tmp_path / "a.parquet"
    nested = pa.array([[{"text": "x"}]] * 50)
    more = table.append_column("nested", nested).append_column("raw", pa.array([b"\xff"] * 50))
    pq.write_table(more, file)
    for columns in (["age"], ["text", "age"], ["nested"], ["raw"], ["absent"], ["text", "absent"]):
        assert read(file, columns) is None
    twice = pa.Table.from_arrays([table.column("text")] * 2, names=["text", "text"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    pq.write_table(table, tmp_path / "brotli.parquet", compression="brotli")
    (tmp_path / "other.parquet").write_bytes(b"PAR1 something else PAR1")
    (tmp_path / "empty.parquet").write_bytes(b"")
    delta = {"text": "DELTA_LENGTH_BYTE_ARRAY"}
    pq.write_table(table, tmp_path / "delta.parquet", use_dictionary=False, column_encoding=delta)
    for name in ("twice", "brotli", "delta", "other", "empty", "absent"):
        assert read(tmp_path / f"{name}.parquet", ["text"]) is None
    for name in ("brotli", "delta"):
        rows = pa.Table.from_batches(read_batches(tmp_path / f"{name}.parquet", "parquet", asked(20)))
        assert rows.equals(table.select(NAMES))
    with pytest.raises(CorpusError, match="column age: expected text, got int64"):
        list(open_corpus(file, columns=Columns(text="age")).batches())


def _varint(number: int) -> bytes:
    """As Thrift's compact protocol writes a number that is not negative."""
    number, found = 2 * number, b""
    while number >= 128:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def test_place_of_a_dictionary_may_be_wrong_as_old_writers_left_it(tmp_path: Path) -> None:
    """parquet-mr gave the place of the first page, and 0 for the dictionary that begins there."""
    file, table = tmp_path / "a.parquet", documents(40)
    pq.write_table(table, file)
    chunk = pq.read_metadata(file).row_group(0).column(0)
    places = [b"\x26" + _varint(place) for place in (chunk.data_page_offset, chunk.dictionary_page_offset, 0)]
    content, length = file.read_bytes(), int.from_bytes(file.read_bytes()[-8:-4], "little")
    footer = content[-8 - length : -8].replace(places[0] + places[1], places[1] + places[2])
    file.write_bytes(content[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert read(file, ["doc_id"]) is None
    rows = pa.Table.from_batches(read_batches(file, "parquet", asked(20)))
    assert rows.equals(table.select(NAMES))


def test_pyarrow_goes_on_where_the_core_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopping:
        def __init__(self, rows: _rust.ParquetRows):
            self.rows, self.left = rows, 3

        def next(self, num_rows: int) -> _rust.ArrowBatch | None:
            self.left -= 1
            if self.left < 0:
                raise CorpusError("not valid parquet")
            return self.rows.next(num_rows)

    class Opened:
        @staticmethod
        def open(file: Path) -> Opened:
            opened = Opened()
            opened.file = parquet(file)
            return opened

        def read(self, *columns: Any, **how: Any) -> Stopping:
            return Stopping(self.file.read(*columns, **how))

    table, parquet = documents(), _rust.ParquetFile.open
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=500)
    monkeypatch.setattr(_rust, "ParquetFile", Opened)
    rows = pa.Table.from_batches(read_batches(tmp_path / "a.parquet", "parquet", asked(70, large=["text"])))
    assert rows.equals(table.select(NAMES))


def test_rows_of_no_columns_and_of_no_rows(tmp_path: Path) -> None:
    pq.write_table(documents(0), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", []) is None
    assert [batch.num_rows for batch in read_batches(tmp_path / "a.parquet", "parquet", asked(10))] == []
    with pytest.raises(CorpusError, match="no documents"):
        open_corpus(tmp_path / "a.parquet").scan()


def test_broken_files_give_an_error_that_names_them_and_quotes_nothing(tmp_path: Path) -> None:
    """Any byte may be wrong: the answer is the right rows, other rows, or a clear error."""
    table = documents(60).set_column(2, "text", pa.array(["secret words of a patient"] * 60, pa.large_string()))
    good, file = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    draw = random.Random(1)
    num_errors = 0
    for options in ({}, {"use_dictionary": False}, {"data_page_version": "2.0", "compression": "zstd"}):
        pq.write_table(table, good, **options)
        content = good.read_bytes()
        for _ in range(150):
            bad = bytearray(content)
            for _ in range(draw.choice([1, 1, 2, 8])):
                bad[draw.randrange(len(bad))] = draw.randrange(256)
            file.write_bytes(bad[: draw.choice([len(bad)] * 5 + [draw.randrange(len(bad))])])
            said = _read_whole(file)
            num_errors += bool(said)
            assert not said or ("bad.parquet" in said and "secret" not in said)
    assert num_errors > 100


def _read_whole(file: Path) -> str:
    """Read a file; what the error says, if there is one."""
    try:
        for batch in open_corpus(file).batches():
            batch.validate(full=True)
    except CorpusError as error:
        return str(error)
    return ""


def test_a_file_that_the_library_panics_on_is_an_error_like_any_other_and_stderr_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table, path = pa.table({"doc_id": ["a", "b"], "text": ["x", "y"]}), tmp_path / "a.parquet"
    pq.write_table(table, path, compression="none", write_statistics=False)
    sound, refused = path.read_bytes(), 0
    for at in range(4, len(sound) - 8):
        for value in (0, 1, 3):
            path.write_bytes(sound[:at] + bytes([value]) + sound[at + 1 :])
            file = _rust.ParquetFile.open(path)
            rows = file and file.read(["doc_id", "text"], large=[False, True])
            try:
                while rows and rows.next(100) is not None:
                    pass
            except CorpusError:
                refused += 1
    assert refused > 10
    assert capfd.readouterr().err == ""


def test_text_that_is_not_utf8_is_named_by_its_row(tmp_path: Path) -> None:
    raw = pa.array([b"fine", b"\xff\xfe", b"fine"], pa.large_binary()).view(pa.large_string())
    ids = pa.array(["a", "b", "c"])
    pq.write_table(pa.table({"doc_id": ids, "individual_id": ids, "text": raw}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", ["doc_id"]) is not None
    with pytest.raises(CorpusError, match=r"a\.parquet row 2 column text: not valid UTF-8"):
        list(open_corpus(tmp_path / "a.parquet").batches())


def test_many_threads_read_one_file(tmp_path: Path) -> None:
    """They share the file, and none its position in it."""
    table = documents(4000)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=40, data_page_size=1 << 9, write_batch_size=5)
    corpus = open_corpus(tmp_path / "a.parquet")
    parts: dict[int, pa.RecordBatch] = {}
    corpus.for_each_batch(parts.__setitem__, columns=("text",), num_threads=8)
    found = pa.Table.from_batches([parts[first] for first in sorted(parts)])
    assert found.column("text").equals(table.column("text"))


def test_index_is_the_same_through_either_reader(tmp_path: Path) -> None:
    table = documents(600)
    indexes = []
    for codec in ("zstd", "brotli"):  # the latter is pyarrow's
        pq.write_table(table, tmp_path / f"{codec}.parquet", compression=codec, row_group_size=90)
        corpus = open_corpus(tmp_path / f"{codec}.parquet")
        index = build_index(corpus, split_individuals(corpus))
        indexes.append(pa.record_batch(index.words()))
    assert indexes[0].equals(indexes[1])


def test_a_time_as_spark_writes_it_is_one_of_utc(tmp_path: Path) -> None:
    born = pa.array([dt.datetime(1950, 2, 28, 23), dt.datetime(9999, 12, 30, 23)], pa.timestamp("us"))  # in Paris
    ids = {name: ["a", "b"] for name in ("doc_id", "individual_id", "text")}
    pq.write_table(pa.table({**ids, "birth": born}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    (found,) = open_corpus(tmp_path, time_zone="Europe/Paris").batches(columns=("source:birth",))
    assert [each[:10] for each in found.column(0).to_pylist()] == ["1950-03-01", "9999-12-31"]
    with pytest.raises(CorpusError, match="column birth: holds times with a zone that are not all midnight in UTC"):
        list(open_corpus(tmp_path).batches(columns=("source:birth",)))
