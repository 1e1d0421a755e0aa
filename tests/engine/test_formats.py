"""The table of formats: one row says all of a format, and one more row is all that a new format needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.sources import files, formats
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.config import Columns, Markup
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.formats import FORMATS, Format, document_suffix, format_names, format_of
from reticent.engine.sources.protocol import Request

ROWS = [("d0", "anna", "seen today"), ("d1", "ben", "a letter, and more")]


def test_every_name_is_its_rows_and_suffixes_of_guessed_formats_tell_them_apart() -> None:
    assert format_names() == ("auto", *FORMATS)
    assert all(name == row.name for name, row in FORMATS.items())
    assert len({row.title for row in FORMATS.values()}) == len(FORMATS) > 8
    guessed = [(suffix, row) for row in FORMATS.values() if not row.must_be_named for suffix in row.suffixes]
    assert len({suffix for suffix, _ in guessed}) == len(guessed) > 6
    assert all(format_of(Path(f"notes{suffix.upper()}")) is row for suffix, row in guessed)
    assert all(
        suffix == suffix.lower() and suffix.startswith(".") for row in FORMATS.values() for suffix in row.suffixes
    )
    marked = [row for row in FORMATS.values() if row.is_marked]
    assert marked
    assert all(row.options <= set(Markup.model_fields) and "individual" in row.options for row in marked)
    assert all(not row.options for row in FORMATS.values() if not row.must_be_named)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        FORMATS["xml"] = FORMATS["csv"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        FORMATS["csv"].name = "xml"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("file", "suffix"),
    [("a.csv.gz", ".csv"), ("a.NDJSON.ZST", ".ndjson"), ("a.parquet.gz", ".gz"), ("a.gz", ".gz"), ("a.CSV", ".csv")],
)
def test_a_suffix_is_looked_for_under_a_compression_where_the_format_is_read_compressed(file: str, suffix: str) -> None:
    assert document_suffix(Path(file)) == suffix


@pytest.mark.parametrize("name", ["auto", *FORMATS])
def test_the_job_takes_every_format_of_the_table(name: str) -> None:
    section = CorpusConfig(source="notes", format=name)
    assert section.marked == (name in FORMATS and FORMATS[name].is_marked)


def test_another_format_is_refused_with_the_list_of_all() -> None:
    names = ", ".join(format_names())
    with pytest.raises(ValueError, match=f"expected one of {names}"):
        CorpusConfig(source="notes", format="parket")
    with pytest.raises(PolicyError, match=f"^format: expected one of {names}, got 'parket'$"):
        open_corpus("notes", format="parket")


def test_one_file_and_one_row_add_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe: a reader, and a row in the table; nothing else knows of formats."""

    def read_lines(file: Path, request: Request) -> Iterator[pa.RecordBatch]:
        names = ["doc_id", "individual_id", "text"]
        require_columns(names, request.columns, file)
        rows = [line.split("|") for line in file.read_text(encoding="utf-8").splitlines()]
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        yield pa.record_batch({name: pa.array(columns[name], pa.string()) for name in request.columns})

    row = Format(name="lines", title="lines", suffixes=(".lines",), read=read_lines)
    table = MappingProxyType({**FORMATS, "lines": row})
    monkeypatch.setattr(formats, "FORMATS", table)
    monkeypatch.setattr(files, "FORMATS", table)
    monkeypatch.setattr(formats, "_BY_SUFFIX", {".lines": row})
    (tmp_path / "a.lines").write_text("\n".join("|".join(line) for line in ROWS), encoding="utf-8")
    for format in ("auto", "lines"):
        corpus = open_corpus(tmp_path, format=format)
        assert (corpus.format, corpus.num_individuals) == ("lines", 2)
        assert [tuple(row.values()) for batch in corpus.batches(batch_rows=1) for row in batch.to_pylist()] == ROWS
    with pytest.raises(PolicyError, match="means nothing for format lines"):
        open_corpus(tmp_path, format="lines", markup=Markup(individual="(.*)"))
    with pytest.raises(CorpusError, match="column ward is missing; it has doc_id, individual_id, text"):
        next(open_corpus(tmp_path, columns=Columns(text="ward")).batches())
