"""No document is passed over in silence: folders, compressed files, dialects of CSV, cut and damaged files, nulls."""

from __future__ import annotations

import bz2
import csv
import gzip
import itertools
import json
import os
import random
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.documents import Row, as_csv
from fixtures.documents import write_file as write
from fixtures.drawing import examples, share_of
from fixtures.unprivileged import unprivileged
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.artifact import read_manifest
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.sources import compressed, formats
from reticent.engine.sources.config import CsvDialect
from reticent.engine.sources.parquet import _read_any_parquet

COLUMNS = ("doc_id", "individual_id", "text")
ROWS: list[Row] = [
    {"doc_id": f"d{i}", "individual_id": f"p{i % 4}", "text": f"note {i}, said “oui” à Noël\nSENTINEL"}
    for i in range(12)
]


def documents(corpus: Corpus) -> list[Row]:
    return [row for batch in corpus.batches(columns=COLUMNS) for row in batch.to_pylist()]


def as_jsonl(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def refused(match: str, read: Callable[[], Any]) -> None:
    """Reading is refused with this message, which holds no text."""
    with pytest.raises(CorpusError, match=match) as caught:
        read()
    assert "SENTINEL" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------------- folders


def test_other_files_in_a_folder_of_documents_are_counted_by_their_reason(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    write(folder / "a.csv", as_csv(ROWS))
    write(folder / "deep" / "b.csv.gz", gzip.compress(as_csv([{**ROWS[0], "doc_id": "x"}]).encode()))
    write(folder / "c.docx", "x")
    write(folder / "README", "x")
    write(folder / "d.parquet.gz", "x")
    write(folder / ".hidden.csv", "x")
    write(folder / ".git" / "e.csv", "x")
    write(tmp_path / "elsewhere" / "f.csv", "x")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(folder / "pipe.csv")
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(folder)  # a socket's path is short
        try:
            server.bind("s.csv")
        finally:
            os.chdir(before)
    corpus = open_corpus(folder)
    assert [file.name for file in corpus.files] == ["a.csv", "b.csv.gz"]
    assert corpus.reading.found.passed_over == {
        "files of another format": 3,
        "hidden": 2,
        "linked folders": 1,
        "links to nothing": 1,
        "neither files nor folders": 2,
    }
    (notice,) = corpus.reading.notices()
    assert notice == (
        "documents: files read 2; passed over: files of another format 3 (.docx, .gz), hidden 2, "
        "linked folders 1 (name them to read them), links to nothing 1, neither files nor folders 2"
    )
    assert corpus.reading.counts()["passed_over"] == dict(corpus.reading.found.passed_over)


def test_a_linked_file_is_read_and_a_linked_folder_that_is_named_too(tmp_path: Path) -> None:
    write(tmp_path / "there" / "a.csv", as_csv(ROWS))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "b.csv").symlink_to(tmp_path / "there" / "a.csv")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for source in (tmp_path / "here", tmp_path / "link", tmp_path / "link" / "*.csv"):
        corpus = open_corpus(source)
        assert documents(corpus) == ROWS
        assert corpus.reading.notices() == []


def test_folders_and_files_that_may_not_be_looked_at_stop_the_run() -> None:
    with unprivileged() as folder:
        write(folder / "a.csv", as_csv(ROWS))
        closed = folder / "closed"
        write(closed / "b.csv", as_csv(ROWS))
        for mode, what in ((0o000, "cannot be listed"), (0o400, "b.csv: cannot be read|closed: cannot be listed")):
            closed.chmod(mode)
            try:
                for source in (folder, closed, folder / "**" / "*.csv", folder / "*" / "*.csv"):
                    refused(rf"({what}).* \(Permission denied\)", lambda source=source: open_corpus(source))
            finally:
                closed.chmod(0o700)
        (closed / "b.csv").chmod(0)
        refused(r"b\.csv: cannot be read as csv \(Permission denied\)", lambda: open_corpus(folder).scan())


def test_a_folder_that_fails_to_be_listed_half_way_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.csv", as_csv(ROWS))
    write(tmp_path / "deep" / "b.csv", as_csv(ROWS))
    scandir = os.scandir

    def failing(path: Any) -> Any:
        if str(path).endswith("deep"):
            raise OSError(5, "Input/output error")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    refused(r"deep: cannot be listed \(Input/output error\); its documents", lambda: open_corpus(tmp_path))


def test_folders_that_a_glob_of_files_matches_are_said(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", as_csv(ROWS))
    write(tmp_path / "more" / "b.csv", as_csv([{**ROWS[0], "doc_id": "x"}]))
    assert open_corpus(tmp_path / "*").reading.found.passed_over == {"folders where files are asked for": 1}
    corpus = open_corpus(tmp_path / "**")
    assert (len(corpus.files), corpus.reading.notices()) == (2, [])


def test_the_command_says_once_what_is_passed_over_and_keeps_the_count(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "notes" / "a.csv", as_csv(ROWS, ";").encode("cp1252"))
    write(tmp_path / "notes" / "b.docx", "x")
    assert command("index", tmp_path / "notes", "--out", tmp_path / "run", "--quiet") == 0
    shown = capfd.readouterr().err
    assert shown.count("warning: documents: files read 1; passed over: files of another format 1 (.docx)") == 1
    assert shown.count("a.csv: read with ; as delimiter, as cp1252; set corpus.delimiter") == 1
    assert read_manifest(tmp_path / "run" / "split").counts["reading"] == {
        "csv": {"with ; as delimiter, as cp1252": 1},
        "files": 1,
        "passed_over": {"files of another format": 1},
        "skipped": 0,
        "suspect_rows": 0,
    }
    assert command("index", tmp_path / "notes", "--out", tmp_path / "run", "--quiet") == 0
    assert "passed over: files of another format 1" in capfd.readouterr().err


# ---------------------------------------------------------------------------------------------------- compressed files

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
    ".bz2": bz2.compress,
}
WRITERS = {".csv": as_csv, ".jsonl": as_jsonl}


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_compressed_files_give_the_documents_of_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, packed: str
) -> None:
    content = WRITERS[suffix](ROWS).encode()
    pack = PACKERS[packed]
    write(tmp_path / f"one{suffix}{packed}", pack(content))
    write(tmp_path / f"parts{suffix.upper()}{packed}", pack(content[:70]) + pack(content[70:90]) + pack(content[90:]))
    for name, size in itertools.product((f"one{suffix}{packed}", f"parts{suffix.upper()}{packed}"), (256, 1 << 20)):
        monkeypatch.setattr(compressed, "NUM_BYTES_PER_BLOCK", size)
        corpus = open_corpus(tmp_path / name)
        assert (corpus.format, documents(corpus)) == (suffix[1:], ROWS)
        assert corpus.num_documents == len(ROWS)


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_a_compressed_file_that_was_cut_is_never_a_short_read(tmp_path: Path, suffix: str, packed: str) -> None:
    draw = random.Random(0)
    rows = [{**row, "text": "".join(draw.choices("abcdefgh \n", k=200))} for row in ROWS]
    whole = PACKERS[packed](WRITERS[suffix](rows).encode())
    assert documents(open_corpus(write(tmp_path / f"a{suffix}{packed}", whole))) == rows
    for length in {0, 1, 4, 10, *range(len(whole) - 20, len(whole)), *draw.sample(range(len(whole)), 20)}:
        path = write(tmp_path / f"a{suffix}{packed}", whole[:length])
        what = "an empty file" if length == 0 else "it ends too early"
        refused(what, lambda path=path: open_corpus(path).scan())


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent.engine.sources.formats.MAX_LINE", 1 << 20)
    monkeypatch.setattr(compressed, "NUM_BYTES_PER_BLOCK", 1 << 18)
    path = write(tmp_path / "a.jsonl.gz", gzip.compress(b'{"text": "' + b"a" * (1 << 24)))
    refused(r"a\.jsonl\.gz: a line is longer than 1 MiB", open_corpus(path).scan)


# ------------------------------------------------------------------------------------------------------ dialects of CSV

ENCODINGS = {
    "utf-8": ("utf-8", None),
    "utf-8 with a mark": ("utf-8-sig", None),
    "cp1252": ("cp1252", "as cp1252"),
    "utf-16": ("utf-16", "as utf-16-le"),
    "utf-32": ("utf-32", "as utf-32-le"),
}


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_dialects_are_found_out_and_said(tmp_path: Path, delimiter: str, quote: str, name: str) -> None:
    encoding, said = ENCODINGS[name]
    content = as_csv(ROWS, delimiter, quote, quoting=csv.QUOTE_ALL)
    corpus = open_corpus(write(tmp_path / "a.csv", content.encode(encoding)))
    assert documents(corpus) == ROWS
    corpus.scan()
    parts = [f"with {dict.get({chr(9): 'tab'}, delimiter, delimiter)} as delimiter"] if delimiter != "," else []
    parts += [f"with {quote} as quote"] if quote == "'" else []
    parts += [said] if said else []
    expected = [f"{tmp_path / 'a.csv'}: read {', '.join(parts)}; set corpus."] if parts else []
    assert [notice.partition("corpus.")[0] + "corpus." for notice in corpus.reading.notices()] == expected


def test_many_files_read_alike_are_one_notice(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.csv", as_csv(ROWS[number * 4 : number * 4 + 4], ";" if number else ","))
    corpus = open_corpus(tmp_path)
    assert documents(corpus) == ROWS
    (notice,) = corpus.reading.notices()
    assert "1.csv and 1 more: read with ; as delimiter" in notice


def test_a_given_dialect_is_taken_without_a_message(tmp_path: Path) -> None:
    content = as_csv(ROWS, "#", "%").replace("“", "").replace("”", "")
    path = write(tmp_path / "a.csv", content.encode("latin-1"))
    corpus = open_corpus(path, csv=CsvDialect(delimiter="#", quote="%", encoding="latin-1"))
    assert [row["doc_id"] for row in documents(corpus)] == [row["doc_id"] for row in ROWS]
    assert documents(corpus)[0]["text"] == ROWS[0]["text"].replace("“", "").replace("”", "")
    assert corpus.reading.notices() == []
    plain = write(tmp_path / "b.csv", 'doc_id\tindividual_id\ttext\n1\ta\t5" pipe\n2\tb\t"x\n')
    corpus = open_corpus(plain, csv=CsvDialect(delimiter="tab", quote="none"))
    assert [row["text"] for row in documents(corpus)] == ['5" pipe', '"x']


def test_settings_of_a_job_reach_the_reader(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.csv", as_csv(ROWS, "#").encode("utf-16"))
    changes = ["--set", "corpus.delimiter=#", "--set", "corpus.encoding=utf-16"]
    assert command("index", path, "--out", tmp_path / "run", "--quiet", *changes) == 0
    assert capfd.readouterr().err == ""
    assert command("index", path, "--out", tmp_path / "run2", "--quiet") == 1
    assert command("index", path, "--out", tmp_path / "run", "--quiet", "--set", "corpus.delimiter=xy") == 2
    assert "corpus.delimiter: expected auto, tab or one character of ASCII, got 'xy'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("setting", "value"),
    [("delimiter", "ab"), ("delimiter", "é"), ("delimiter", "\n"), ("delimiter", "none"), ("delimiter", "a"),
     ("quote", "ab"), ("quote", "1"), ("encoding", "utf-9"), ("encoding", "base64"), ("encoding", "x\0")],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(tmp_path: Path, setting: str, value: str) -> None:
    path = write(tmp_path / "a.csv", as_csv(ROWS))
    with pytest.raises(PolicyError, match=rf"corpus\.{setting}: "):
        open_corpus(path, csv=CsvDialect(**{setting: value}))


def test_settings_of_csv_mean_nothing_for_other_formats(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", as_jsonl(ROWS))
    with pytest.raises(PolicyError, match=r"corpus\.quote: means nothing for format jsonl"):
        open_corpus(path, csv=CsvDialect(quote="none"))
    with pytest.raises(PolicyError, match=r"corpus\.quote and|same character"):
        open_corpus(write(tmp_path / "a.csv", as_csv(ROWS)), csv=CsvDialect(quote=";", delimiter=";"))


def test_fingerprint_tells_how_csv_is_read_where_that_is_set(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", as_csv(ROWS))
    found = {open_corpus(path, csv=dialect).fingerprint() for dialect in (None, CsvDialect(), CsvDialect(quote="'"))}
    assert len(found) == 2


def test_bytes_that_are_not_of_the_encoding_are_named_by_row_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = as_csv(ROWS).encode()
    at = content.index(b"note 7")
    bad = content[:at] + b"\xff" + content[at:]
    path = write(tmp_path / "a.csv", bad)
    refused(r"a\.csv row 8 column text: not valid UTF-8$", lambda: documents(open_corpus(path)))
    for size in (300, 1 << 20):
        monkeypatch.setattr(compressed, "NUM_BYTES_PER_BLOCK", size)
        for encoding in ("ascii", "cp1250"):
            text = content.decode().replace("à", "a").replace("ë", "e").replace("“", "(").replace("”", ")").encode()
            at = text.index(b"note 7")
            write(path, text[:at] + b"\x81" + text[at:])
            corpus = open_corpus(path, csv=CsvDialect(encoding=encoding))
            refused(rf"row 8: byte {at + 1} of the file is not {encoding}; set corpus.encoding", corpus.scan)


# -------------------------------------------------------------------------------------------------------- rows of CSV


def test_rows_inside_a_value_are_suspected_where_the_grammar_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [f"d{i},p{i},SENTINEL" for i in range(8)]
    lines[2], lines[5] = 'd2,p2,"SENTINEL', 'd5,p5,SENTINEL"'
    path = write(tmp_path / "a.csv", "\n".join(["doc_id,individual_id,text", *lines]))
    corpus = open_corpus(path)
    assert corpus.num_documents == 5
    (notice,) = corpus.reading.notices()
    assert re.search(r"^1 quoted values of CSV hold a line that looks like a row .*a\.csv row 3\)", notice)
    assert corpus.reading.counts()["suspect_rows"] == 1
    assert command("index", path, "--out", tmp_path / "run", "--quiet") == 0
    assert "warning: 1 quoted values" in capfd.readouterr().err


@settings(max_examples=examples(300))
@given(
    st.lists(st.text(alphabet='ab",;\n ', max_size=8), min_size=3, max_size=6),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.randoms(use_true_random=False),
)
def test_no_row_vanishes_in_silence_when_two_quotes_are_lost(
    tmp_path_factory: pytest.TempPathFactory, content: list[str], quoting: Any, draw: random.Random
) -> None:
    """Either the file is refused, or a row is suspected, or every document is there."""
    rows = [{"doc_id": f"d{i}", "individual_id": f"p{i}", "text": text} for i, text in enumerate(content)]
    text = as_csv(rows, quoting=quoting)
    quotes = [at for at, sign in enumerate(text) if sign == '"']
    lost = set(draw.sample(quotes, min(2, len(quotes))))
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", "".join(s for at, s in enumerate(text) if at not in lost))
    corpus = open_corpus(path)
    try:
        found = corpus.scan().column("doc_id").to_pylist()
    except CorpusError:
        return
    if not corpus.reading.suspects:
        assert {row["doc_id"] for row in rows} <= set(found)


# --------------------------------------------------------------------------------------------- cut and damaged files


def stream_of(rows: list[Row], *, legacy: bool, dictionary: bool) -> tuple[bytes, list[int]]:
    """An Arrow stream, and where each of its messages ends."""
    table = pa.Table.from_pylist(rows)
    if dictionary:
        table = table.set_column(1, "individual_id", table.column("individual_id").dictionary_encode())
    sink, ends = pa.BufferOutputStream(), []
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(use_legacy_format=legacy)) as writer:
        for batch in table.to_batches(max_chunksize=3):
            writer.write_batch(batch)
            ends.append(sink.tell())
    return sink.getvalue().to_pybytes(), ends


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("dictionary", [False, True])
def test_a_stream_cut_between_two_batches_is_refused(tmp_path: Path, legacy: bool, dictionary: bool) -> None:
    whole, ends = stream_of(ROWS, legacy=legacy, dictionary=dictionary)
    assert documents(open_corpus(write(tmp_path / "a.arrow", whole))) == ROWS
    for end in ends:
        path = write(tmp_path / "a.arrow", whole[:end])
        refused(r"a\.arrow: an Arrow stream without its end marker", lambda path=path: documents(open_corpus(path)))
    for length in share_of(range(ends[1], len(whole))):
        path = write(tmp_path / "a.arrow", whole[:length])
        refused(r"a\.arrow: ", lambda path=path: documents(open_corpus(path)))
    path = write(tmp_path / "a.arrow", whole + whole)
    refused(r"bytes follow the end marker of its Arrow stream, unread", lambda: documents(open_corpus(path)))


@pytest.mark.parametrize("reader", ["core", "pyarrow"])
def test_a_page_of_parquet_that_changed_is_found_by_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    if reader == "pyarrow":
        read = lambda file, asked: _read_any_parquet(file, list(asked.columns), asked.batch_rows, asked.row_groups)
        parquet = replace(formats.FORMATS["parquet"], read=read)
        monkeypatch.setattr(formats, "FORMATS", {**formats.FORMATS, "parquet": parquet})
    path = tmp_path / "a.parquet"
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    for version, checksums in itertools.product(("1.0", "2.0"), (True, False)):
        pq.write_table(
            pa.Table.from_pylist(ROWS), path, data_page_version=version, write_page_checksum=checksums, **options
        )
        assert documents(open_corpus(path)) == ROWS
        content = bytearray(path.read_bytes())
        content[content.index(b"note 7")] ^= 1
        path.write_bytes(content)
        if checksums:
            refused(r"a\.parquet: cannot be read as parquet", lambda: documents(open_corpus(path)))
        else:
            assert documents(open_corpus(path)) != ROWS


def test_the_core_itself_verifies_checksums(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[content.index(b"note 7")] ^= 1
    path.write_bytes(content)
    parquet = _rust.ParquetFile.open(path)
    assert parquet is not None
    rows = parquet.read(["text"], large=[True])
    assert rows is not None
    with pytest.raises(CorpusError, match="not valid parquet"):
        rows.next(100)


# --------------------------------------------------------------------------------------------------------------- nulls

NULLS = {2, 5, 6, 11}
WITH_NULLS = [{**row, "text": None if i in NULLS else row["text"]} for i, row in enumerate(ROWS)]


def write_nulls(folder: Path, suffix: str, rows: list[Row] = WITH_NULLS) -> Path:
    """Two files of these rows."""
    folder.mkdir(exist_ok=True)
    for name, part in (("a", rows[:7]), ("b", rows[7:])):
        path = folder / f"{name}{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(part), path, row_group_size=2)
        elif suffix == ".csv":
            write(path, as_csv(part))
        elif suffix == ".jsonl":
            write(path, as_jsonl(part))
        else:
            table = pa.Table.from_pylist(part)
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
    return folder


SUFFIXES = [".parquet", ".csv", ".jsonl", ".arrow"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_all_nulls_are_counted_by_column_and_the_first_are_named(tmp_path: Path, suffix: str, num_threads: int) -> None:
    rows = [{**row, "individual_id": None if i in (8, 9) else row["individual_id"]} for i, row in enumerate(WITH_NULLS)]
    path = write_nulls(tmp_path / "x", suffix, rows)
    s = re.escape(suffix)
    refused(
        rf"b{s} row 2 column individual_id: is null; null: 2 of column individual_id \(b{s} row 2, b{s} row 3\) and "
        rf"4 of column text \(a{s} row 3, a{s} row 6, a{s} row 7, b{s} row 5\), of 12 rows; corpus.on_null = \"skip\"",
        lambda: open_corpus(path).check(num_threads=num_threads),
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_documents_without_a_text_are_skipped_counted_and_nothing_else_changes(tmp_path: Path, suffix: str) -> None:
    path = write_nulls(tmp_path / "x", suffix)
    expected = [row for i, row in enumerate(ROWS) if i not in NULLS]
    corpus = open_corpus(path, on_null="skip")
    assert documents(corpus) == expected
    assert corpus.scan().column("doc_id").to_pylist() == [row["doc_id"] for row in expected]
    assert (corpus.num_documents, corpus.reading.num_skipped) == (8, 4)
    assert corpus.reading.notices() == ["4 documents are left out: their text is null (corpus.on_null = skip)"]
    corpus.check(num_threads=2)
    seen: dict[int, Any] = {}
    corpus.for_each_batch(
        lambda first, batch: seen.update({first + i: row for i, row in enumerate(batch.to_pylist())}), num_threads=2
    )
    assert [seen[i] for i in range(8)] == expected
    assert documents(corpus.without([0, 7])) == expected[1:-1]
    assert corpus.without([0]).reading.num_skipped == 4
    assert open_corpus(path, on_null="skip").fingerprint() != open_corpus(path).fingerprint()


def test_skipping_changes_nothing_where_nothing_is_null(tmp_path: Path) -> None:
    path = write_nulls(tmp_path / "x", ".parquet", ROWS)
    corpus = open_corpus(path, on_null="skip")
    assert documents(corpus) == ROWS
    assert corpus.reading.skipped() == {}
    assert corpus.fingerprint() == open_corpus(path).fingerprint()


@pytest.mark.parametrize("column", ["doc_id", "individual_id"])
def test_an_id_that_is_null_stops_also_where_texts_are_skipped(tmp_path: Path, column: str) -> None:
    rows = [{**row, column: None if i == 5 else row[column]} for i, row in enumerate(WITH_NULLS)]
    path = write_nulls(tmp_path / "x", ".parquet", rows)
    refused(rf"a\.parquet row 6 column {column}: is null", open_corpus(path, on_null="skip").scan)


def test_a_corpus_of_nulls_only_is_refused(tmp_path: Path) -> None:
    path = write_nulls(tmp_path / "x", ".parquet", [{**row, "text": None} for row in ROWS])
    refused("no documents: the text of all 12 is null", open_corpus(path, on_null="skip").scan)
    with pytest.raises(PolicyError, match=r"corpus\.on_null: expected stop or skip, got 'mend'"):
        open_corpus(path, on_null="mend")  # type: ignore[arg-type]


def test_skipped_documents_stand_in_every_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, run = write_nulls(tmp_path / "x", ".parquet"), tmp_path / "run"
    assert command("index", path, "--out", run, "--quiet") == 1
    assert "null: 4 of column text" in capfd.readouterr().err
    skip = ("--set", "corpus.on_null=skip")
    assert command("index", path, "--out", run, "--quiet", *skip) == 0
    assert capfd.readouterr().err.count("warning: 4 documents are left out: their text is null") == 1
    for name in ("split", "spans"):
        assert read_manifest(run / name).counts["skipped"] == 4
    assert command("stats", run, "--quiet", "--json", "--set", "audit.small_cell=3") == 0
    assert json.loads(capfd.readouterr().out)["reading"]["skipped"] == 4
    assert command("stats", run, "--quiet", "--json", "--set", "audit.small_cell=5") == 0
    assert json.loads(capfd.readouterr().out)["reading"]["skipped"] is None  # a count of few
    assert command("detect", path, "--json", *skip) == 0
    assert json.loads(capfd.readouterr().out)["skipped"] == 4
    assert command("dedup", path, "--json", *skip) == 0
    assert json.loads(capfd.readouterr().out)["skipped"] == 4
    assert command("scrub", path, "--out", tmp_path / "scrubbed", *skip) == 0
    assert read_manifest(tmp_path / "scrubbed").counts["skipped"] == 4
    assert np.array_equal(pq.read_table(tmp_path / "scrubbed" / "documents").num_rows, 8)


# ------------------------------------------------------------------------------------------------------------ oddities


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda i: {}, None),
        (lambda i: {"text": f"kind {i % 4}"}, r"column text has 4 different texts in the first 570 documents"),
        (lambda i: {"individual_id": f"ward {i % 4}"}, r"column individual_id names 4 individuals in 570 documents"),
        (lambda i: {"text": rf"{{\rtf1\ansi note {i}"} if i < 7 else {}, "7 of the first 570 texts look like RTF"),
        (lambda i: {"text": f"<!DOCTYPE html><p>{i}"}, "570 of the first 570 texts look like HTML"),
        (lambda i: {"text": rf"MSH|^~\&|{i}"}, "look like HL7"),
        (lambda i: {"text": f"<5 mg, MSH high, {i}"}, None),
    ],
)
def test_what_looks_like_another_column_or_kind_of_text_is_said(
    tmp_path: Path, change: Callable[[int], Row], said: str | None
) -> None:
    rows = [{"doc_id": f"d{i}", "individual_id": f"p{i % 200}", "text": f"note {i}"} | change(i) for i in range(570)]
    corpus = open_corpus(write(tmp_path / "a.csv", as_csv(rows)))
    corpus.scan()
    notices = corpus.reading.notices_of_scan()
    assert [bool(re.search(said, notice)) for notice in notices] == [True] if said else not notices


# ------------------------------------------------------------------------------------------------ what would never end


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.jsonl.bz2"])
def test_blank_lines_without_end_are_stopped_in_bounded_memory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "MAX_BLANK", 1 << 20)
    monkeypatch.setattr(compressed, "NUM_BYTES_PER_BLOCK", 1 << 20)
    packed = gzip.compress if name.endswith("gz") else bz2.compress
    head = as_csv(ROWS) if "csv" in name else as_jsonl(ROWS)
    (tmp_path / name).write_bytes(packed(head.encode() + b"\n" * (8 << 20)))
    with pytest.raises(CorpusError, match=f"{name}: more than 1 MiB of blank lines and no row among them"):
        documents(open_corpus(tmp_path / name))


@pytest.mark.parametrize("lines", [1, 20_000])
def test_keys_that_nobody_asks_for_cost_nothing(tmp_path: Path, lines: int) -> None:
    rows = [{**ROWS[i % 12], "doc_id": f"d{i}"} for i in range(20_000)]
    for i in range(lines):  # in one line, or in each another
        rows[i] = {**rows[i], **{f"key{i}-{j}": [i] for j in range(60_000 // lines)}}
    (tmp_path / "a.jsonl").write_text(as_jsonl(rows))
    started = time.process_time()
    found = documents(open_corpus(tmp_path / "a.jsonl"))
    assert time.process_time() - started < 20  # minutes, where a column is made of each
    assert found == [{name: row[name] for name in COLUMNS} for row in rows]


@pytest.mark.parametrize("source", ["/", "//", "/proc", "/**/*.jsonl", "/*/../**/*.csv", "/*/*/*/*/*.csv"])
def test_a_source_that_holds_the_whole_machine_is_refused(source: str) -> None:
    with pytest.raises(CorpusError, match="holds the whole machine; name the folder of the documents"):
        open_corpus(source)
