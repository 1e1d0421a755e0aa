"""The table of formats: one row says all of a format, and one more row is all that a new format needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from reticent.core.errors import PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.sources.config import Markup
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.formats import FORMATS, document_suffix, format_names, format_of


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
