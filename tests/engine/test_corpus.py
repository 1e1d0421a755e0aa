"""Corpora: every format gives the same documents; bad input is refused with file, row and column, never text."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.documents import GOOD, SENTINEL, Row, as_csv, changed, results, row
from fixtures.drawing import examples
from fixtures.unprivileged import unprivileged
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reticent.core.artifact import write_artifact
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.index import build_index
from reticent.engine.schema import DOCUMENTS, HELDOUT, MEMBERS
from reticent.engine.sources import compressed
from reticent.engine.split import split_individuals
from reticent.job.config import parse_job


def documents(corpus: Corpus, *, batch_rows: int = 4096, columns: Sequence[str] = ("doc_id", "individual_id", "text")):
    return [row for b in corpus.batches(columns=columns, batch_rows=batch_rows) for row in b.to_pylist()]


# ------------------------------------------------------------------------------------------------------------- writers


def table(rows: list[Row], kind: pa.DataType | None = None) -> pa.Table:
    if kind is None:
        return pa.Table.from_pylist(rows)
    return pa.table({name: pa.array([r[name] for r in rows], pa.string()).cast(kind) for name in rows[0]})


def write_parquet(path: Path, rows: list[Row], kind: pa.DataType | None = None) -> Path:
    pq.write_table(table(rows, kind), path, row_group_size=2)
    return path


def write_arrow(
    path: Path, rows: list[Row], kind: pa.DataType | None = None, *, stream: bool = False, **options
) -> Path:
    content = table(rows, kind)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, new(file, content.schema, **options) as writer:
        writer.write_table(content, max_chunksize=2)
    return path


def write_stream(path: Path, rows: list[Row], kind: pa.DataType | None = None) -> Path:
    return write_arrow(path, rows, kind, stream=True)


def write_csv(path: Path, rows: list[Row]) -> Path:
    path.write_bytes(as_csv(rows, quoting=csv.QUOTE_ALL).encode())
    return path


def write_jsonl(path: Path, rows: list[Row], *, ensure_ascii: bool = True) -> Path:
    path.write_bytes("".join(json.dumps(r, ensure_ascii=ensure_ascii) + "\n" for r in rows).encode())
    return path


KINDS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    *(pa.dictionary(pa.int8(), t) for t in (pa.string(), pa.large_string())),
]
LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
WRITERS: dict[str, tuple[str, Callable[[Path, list[Row]], Path]]] = {
    "arrow lz4": (".feather", partial(write_arrow, options=LZ4)),
    "csv": (".csv", write_csv),
    "jsonl escaped": (".jsonl", write_jsonl),
    "jsonl utf-8": (".ndjson", partial(write_jsonl, ensure_ascii=False)),
}
for kind in KINDS:
    WRITERS[f"parquet {kind}"] = (".parquet", partial(write_parquet, kind=kind))
    WRITERS[f"arrow {kind}"] = (".arrow", partial(write_arrow, kind=kind))
    WRITERS[f"stream {kind}"] = (".ipc", partial(write_stream, kind=kind))

EDGES = [
    "",
    " ",
    "\n",
    "nul\0byte",
    "e\u0301 é",
    "👩‍⚕️ x",
    "\u202eabc",
    "שלום",
    '"',
    'a"b,c\r\nd',
    "\ufeffx",
    "\u2028",
    "2021-03-04",
    "NA",
]
texts = st.one_of(st.sampled_from(EDGES), st.text(max_size=20))


# ----------------------------------------------------------------------------------------------------- what is read


@settings(max_examples=40)
@given(st.lists(texts, min_size=1, max_size=7), st.integers(1, 4))
@example(EDGES, 3)
def test_every_format_and_string_type_gives_the_same_documents(
    tmp_path_factory: pytest.TempPathFactory, content: list[str], batch_rows: int
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    rows = [row(f"d{i}", f"p{i % 3} é", text) for i, text in enumerate(content)]
    for name, (suffix, write) in WRITERS.items():
        corpus = open_corpus(write(folder / f"documents{suffix}", rows))
        assert documents(corpus) == rows, name
        batches = list(corpus.batches(batch_rows=batch_rows))
        assert max(batch.num_rows for batch in batches) <= batch_rows
        assert pa.Table.from_batches(batches).to_pylist() == rows, name
        assert all(batch.schema.types == [pa.string(), pa.string(), pa.large_string()] for batch in batches)
        assert all(batch.schema.field(n) == DOCUMENTS.field(n) for batch in batches for n in batch.schema.names)


def test_files_of_a_folder_a_glob_and_a_list_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b", "a", "deep/c"):
        write_parquet(tmp_path / f"{name}.parquet", [row(f"{name}{i}", f"p{i}") for i in range(3)])
    names = ["a", "b", "deep/c"]
    expected = [row(f"{name}{i}", f"p{i}") for name in names for i in range(3)]
    for source in (
        tmp_path,
        str(tmp_path),
        [tmp_path / f"{n}.parquet" for n in reversed(names)],
        tmp_path / "**/*.parquet",
    ):
        assert documents(open_corpus(source)) == expected
    assert documents(open_corpus(tmp_path / "*.parquet")) == expected[:6]
    assert documents(open_corpus(tmp_path / "b.parquet")) == expected[3:6]
    assert documents(open_corpus([tmp_path, tmp_path / "a.parquet"])) == expected  # one file once
    assert open_corpus(tmp_path).num_documents == 9


def test_hidden_files_and_files_of_other_kinds_are_no_documents(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [row("1", "p")])
    (tmp_path / ".half.tmp").mkdir()
    write_parquet(tmp_path / ".half.tmp" / "b.parquet", [row("2", "p")])
    write_parquet(tmp_path / ".c.parquet", [row("3", "p")])
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").write_text("x")
    assert open_corpus(tmp_path).files == (tmp_path / "a.parquet",)


def make_run(folder: Path, **changes: Any) -> Path:
    """A folder that a run left: its job, and an artefact with a table in it."""
    job = {"out": str(folder), "corpus": {"source": "."}, **changes}
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(parse_job(job).model_dump_json())
    make_artifact(folder / "split")
    return folder


def make_artifact(path: Path, kind: str = "split") -> Path:
    with write_artifact(path, kind=kind, config={}, inputs={}) as writer:
        (writer.path / "documents").mkdir()
        write_parquet(writer.path / "documents" / "individuals.parquet", [row("of the run", "p")])
    return path


def test_a_run_among_its_documents_is_not_read(tmp_path: Path) -> None:
    for name in ("a", "deep/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_parquet(tmp_path / f"{name}.parquet", [row(name, "p")])
    make_run(tmp_path / "run")
    make_artifact(tmp_path / "deep" / "index")
    for source in (tmp_path, tmp_path / "**" / "*.parquet", [tmp_path / "*.parquet", tmp_path / "*" / "*.parquet"]):
        files = [str(file.relative_to(tmp_path)) for file in open_corpus(source).files]
        assert files == ["a.parquet", "deep/c.parquet"]
    named = tmp_path / "deep" / "index" / "documents" / "individuals.parquet"
    for source in (named, named.parent, named.parent / "*.parquet"):
        assert open_corpus(source).files == (named,)  # who names it means it


def test_folders_that_only_look_like_ours_and_generated_documents_are_read(tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    write_parquet(tmp_path / "else" / "a.parquet", [row("1", "p")])
    (tmp_path / "else" / "job.json").write_text('{"out": "x"}')
    for manifest in ('{"format": "reticent"}', '{"format": 3}', "[]", "{", '{"kind": "index"}'):
        (tmp_path / "else" / "manifest.json").write_text(manifest)
        assert len(open_corpus(tmp_path).files) == 1
    make_artifact(tmp_path / "hospital", kind="synth")
    assert len(open_corpus(tmp_path).files) == 2


def test_a_source_that_holds_results_only_is_refused_by_what_it_is(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    for source in (tmp_path / "run", tmp_path / "run" / "split"):
        with pytest.raises(CorpusError, match=r"(run|split): a run folder or an artefact, which holds results and no"):
            open_corpus(source)
    for source in (tmp_path, tmp_path / "**" / "*.parquet"):
        with pytest.raises(CorpusError, match=r"JSONL\), but [12] run folder\(s\) or artefact\(s\), which hold no doc"):
            open_corpus(source)


def test_a_run_folder_beside_its_documents_is_up_to_date_when_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_csv(tmp_path / "good.csv", GOOD)
    monkeypatch.chdir(tmp_path)
    assert command("index", ".", "--out", "run") == 0
    before = results(tmp_path / "run")
    capfd.readouterr()
    assert command("index", ".", "--out", "run") == 0
    assert "index-joint: up to date" in capfd.readouterr().err
    assert results(tmp_path / "run") == before


def test_a_named_format_goes_before_the_suffix(tmp_path: Path) -> None:
    rows = [row("1", "p"), row("2", "q")]
    assert documents(open_corpus(write_jsonl(tmp_path / "a.json", rows), format="jsonl")) == rows
    assert documents(open_corpus(write_csv(tmp_path / "b.jsonl", rows), format="csv")) == rows


@pytest.mark.parametrize("write", [write_parquet, write_arrow, write_stream, write_csv, write_jsonl])
def test_columns_are_mapped_by_name_and_others_are_ignored(tmp_path: Path, write: Callable[..., Path]) -> None:
    rows = [
        {"note": f"n{i}", "junk": "x", "patient": f"p{i}", "body": f"t{i}", "family": "f", "ward": "w"}
        for i in range(3)
    ]
    suffix = {write_csv: ".csv", write_jsonl: ".jsonl", write_parquet: ".parquet"}.get(write, ".arrow")
    columns = Columns(doc_id="note", individual_id="patient", text="body", household_id="family", label="ward")
    corpus = open_corpus(write(tmp_path / f"a{suffix}", rows), columns=columns)
    expected = [row(f"n{i}", f"p{i}", f"t{i}", household_id="f", label="w") for i in range(3)]
    assert documents(corpus, columns=("doc_id", "individual_id", "text", "household_id", "label")) == expected
    assert documents(corpus, columns=("text", "doc_id")) == [
        {"text": r["text"], "doc_id": r["doc_id"]} for r in expected
    ]
    assert corpus.scan().column_names == ["doc_id", "individual_id", "household_id"]


@pytest.mark.parametrize("write", [write_parquet, write_arrow, write_stream, write_csv, write_jsonl])
def test_one_column_may_be_both_document_and_individual(tmp_path: Path, write: Callable[..., Path]) -> None:
    suffix = {write_csv: ".csv", write_jsonl: ".jsonl", write_parquet: ".parquet"}.get(write, ".arrow")
    path = write(tmp_path / f"a{suffix}", [{"text": "x", "id": "1"}, {"text": "y", "id": "2"}])
    corpus = open_corpus(path, columns=Columns(doc_id="id", individual_id="id"))
    assert documents(corpus) == [row("1", "1", "x"), row("2", "2", "y")]


def test_a_column_that_is_not_mapped_is_left_out(tmp_path: Path) -> None:
    corpus = open_corpus(write_parquet(tmp_path / "a.parquet", [row("1", "p", household_id="h")]))
    assert [b.schema.names for b in corpus.batches(columns=("doc_id", "household_id", "spans"))] == [["doc_id"]]


SPANS = [
    [{"start": 0, "end": 4, "label": "NAME"}, {"start": 2, "end": 3, "label": "AGE"}],
    None,
    [],
    [{"start": 3, "end": 5, "label": "NAME"}],
]


@pytest.mark.parametrize("name", ["parquet", "int64 and other order", "jsonl"])
@pytest.mark.parametrize("batch_rows", [1, 3, 4096])
def test_spans_are_read_as_they_are(tmp_path: Path, name: str, batch_rows: int) -> None:
    rows = [row(str(i), f"p{i}", "héé-👩‍⚕️"[:5], spans=spans) for i, spans in enumerate(SPANS)]
    if name == "jsonl":
        path = write_jsonl(tmp_path / "a.jsonl", rows)
    else:
        kind = pa.struct([("label", pa.string()), ("end", pa.int64()), ("x", pa.int8()), ("start", pa.int64())])
        content = pa.Table.from_pylist(rows)
        if name != "parquet":
            content = content.set_column(3, "spans", pa.array(SPANS, pa.large_list(kind)))
        path = tmp_path / "a.parquet"
        pq.write_table(content, path)
    corpus = open_corpus(path, columns=Columns(spans="spans"))
    assert documents(corpus, columns=("doc_id", "individual_id", "text", "spans"), batch_rows=batch_rows) == rows


def test_individuals_may_be_spread_over_files(tmp_path: Path) -> None:
    rows = [row(f"d{i}", f"p{i % 12}", f"common w{i % 12} w{i}") for i in range(60)]
    write_csv(tmp_path / "one.csv", rows)
    (tmp_path / "many").mkdir()
    for part in range(7):
        write_csv(tmp_path / "many" / f"{part}.csv", rows[part::7])
    tables = []
    for source in (tmp_path / "one.csv", tmp_path / "many"):
        corpus = open_corpus(source)
        individuals = split_individuals(corpus)
        assert individuals.table.column("num_documents").to_pylist() == [5] * 12
        index = build_index(corpus, individuals, splits=(MEMBERS, HELDOUT))
        tables.append((individuals.table, pa.table(pa.record_batch(index.words())).sort_by("word")))
    assert tables[0] == tables[1]
    support = dict(zip(*(tables[0][1].column(n).to_pylist() for n in ("word", "support")), strict=True))
    assert (support["common"], support["w3"], support["w15"]) == (12, 1, 1)


# ------------------------------------------------------------------------------------------------------- CSV and JSONL


def test_csv_documents_may_be_longer_than_a_block_of_the_parser(tmp_path: Path) -> None:
    rows = [row("1", "a", "word\n" * 600_000), row("2", "b", "x")]
    assert documents(open_corpus(write_csv(tmp_path / "a.csv", rows))) == rows


def test_csv_document_beyond_every_block_is_refused_with_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "NUM_BYTES_PER_BLOCK", 1 << 20)
    path = write_csv(tmp_path / "a.csv", [row("1", "a", "x"), row("2", "b", SENTINEL * 300_000)])
    with pytest.raises(CorpusError, match=r"a\.csv row 2: longer than 2 MiB; is a quoted value not closed\?$"):
        documents(open_corpus(path))


@settings(max_examples=examples(60))
@given(st.lists(texts, min_size=1, max_size=5), st.text(alphabet='ab",\n', max_size=6))
def test_only_a_quote_that_is_not_closed_counts_as_open(
    tmp_path_factory: pytest.TempPathFactory, content: list[str], end: str
) -> None:
    path = write_csv(
        tmp_path_factory.mktemp("csv") / "a.csv", [row(str(i), "p", text) for i, text in enumerate(content)]
    )
    assert len(documents(open_corpus(path))) == len(content)
    with path.open("ab") as file:
        file.write(b'x,y,"' + end.replace('"', '""').encode())
    with pytest.raises(CorpusError, match=f"row {len(content) + 1}: a quoted value is not closed"):
        documents(open_corpus(path))


def test_csv_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(f"d{i}", f"p{i}", f'a "b",\n{i}\n' * (i % 7)) for i in range(400)]
    path = write_csv(tmp_path / "a.csv", rows)
    broken = write_csv(tmp_path / "b.csv", [*rows, row("d400", " "), *rows])
    for size in (256, 1000, 1 << 20):
        monkeypatch.setattr(compressed, "NUM_BYTES_PER_BLOCK", size)
        assert documents(open_corpus(path)) == rows
        with pytest.raises(CorpusError, match=r"b\.csv row 401 column individual_id: is blank$"):
            documents(open_corpus(broken))


def test_jsonl_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(f"d{i}", f"p{i % 5}", "x" * (i % 13)) for i in range(50)]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n\n"))
    bad_rows = {
        "is blank": json.dumps(row("d50", " ")).encode(),
        "not valid UTF-8": b"\xff",
        "not valid JSON": b"{",
    }
    for number, line in enumerate(bad_rows.values()):
        (tmp_path / f"bad{number}.jsonl").write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    for size in (1, 1000, 1 << 20):
        monkeypatch.setattr(compressed, "NUM_BYTES_PER_BLOCK", size)
        assert documents(open_corpus(path)) == rows
        for number, what in enumerate(bad_rows):
            with pytest.raises(CorpusError, match=rf"bad{number}\.jsonl row 51( column individual_id)?: {what}"):
                documents(open_corpus(tmp_path / f"bad{number}.jsonl"))


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("first", [3, 900])
def test_a_check_by_many_threads_names_the_first_bad_document(tmp_path: Path, num_threads: int, first: int) -> None:
    rows = [row(f"d{i}", f"p{i}", f"number {i:05d}") for i in range(1800)]
    path = tmp_path / "a.parquet"
    pq.write_table(
        table(rows), path, row_group_size=600, compression="none", use_dictionary=False, write_statistics=False
    )
    open_corpus(path).check(num_threads=num_threads)
    for number in (first, 1700):
        with_bytes(path, f"number {number:05d}".encode(), f"number \xff{number:04d}".encode("latin-1"))
    with pytest.raises(CorpusError, match=rf"row {first + 1} column text: not valid UTF-8$"):
        open_corpus(path).check(num_threads=num_threads)


# ---------------------------------------------------------------------------------------------------------- bad inputs


def with_bytes(path: Path, old: bytes, new: bytes) -> Path:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    return path


def read_all(source: Path, columns: Columns) -> None:
    corpus = open_corpus(source, columns=columns)
    corpus.scan()
    documents(corpus, columns=("doc_id", "individual_id", "text", "household_id", "spans"))


def test_a_file_that_may_not_be_read_is_refused_by_name() -> None:
    with unprivileged() as folder:
        path = write_parquet(folder / "a.parquet", GOOD)
        path.chmod(0)
        for read in (open_corpus(path).scan, open_corpus(path).fingerprint):
            with pytest.raises(CorpusError, match=r"a\.parquet: cannot be read .*Permission denied"):
                read()


def test_an_unknown_format_is_a_policy_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"expected one of auto, parquet, .*brat, tab, got 'xml'"):
        open_corpus(tmp_path, format="xml")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
@pytest.mark.parametrize("write", [write_parquet, write_arrow, write_stream])
def test_damaged_files_are_refused_or_read_and_never_crash(
    tmp_path: Path, write: Callable[..., Path], kind: pa.DataType
) -> None:
    """Bytes changed anywhere, and every kind of early end: a mapped file is not trusted."""
    rows = [row(f"d{i}", f"p{i % 9}", f"word {i} " * 5) for i in range(60)]
    path = write(tmp_path / ("a.parquet" if write is write_parquet else "a.arrow"), rows, kind)
    sound, draw, refused = path.read_bytes(), random.Random(0), 0
    for attempt in range(60):
        damaged = bytearray(sound[: draw.randrange(len(sound))] if attempt % 5 == 0 else sound)
        for _ in range(draw.choice((1, 3, 20))):
            if damaged:
                damaged[draw.randrange(len(damaged))] = draw.choice((0, 255, draw.randrange(256)))
        path.write_bytes(damaged)
        try:
            read_all(path, Columns())
        except CorpusError:
            refused += 1
    assert refused > 20


def test_fingerprint_is_of_contents_and_columns_and_not_of_places(tmp_path: Path) -> None:
    seen = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for part in range(2):
            write_csv(tmp_path / folder / f"{part}.csv", GOOD[part * 4 : part * 4 + 4])
        seen.add(open_corpus(tmp_path / folder).fingerprint())
    assert len(seen) == 1
    seen.add(open_corpus(tmp_path / "a", columns=Columns(household_id="individual_id")).fingerprint())
    seen.add(open_corpus(tmp_path / "a" / "0.csv").fingerprint())
    write_csv(tmp_path / "a" / "1.csv", changed(4, text="another"))
    seen.add(open_corpus(tmp_path / "a").fingerprint())
    assert len(seen) == 4
