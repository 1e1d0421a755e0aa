"""Tables of records as hospitals export them: CSV in other dialects, with the values as they stand."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from reticent.core.errors import CorpusError
from reticent.engine.detect.records import RecordsDetector, read_records

HEADER = "ipp;nom;téléphone"
ROWS = ('00123;"Lefèvre, Dupont";0612345678', "00124;Müller;0700000007")
FIELDS = {"individual_id": "ipp", "last_name": "nom", "phone": "téléphone"}
FOUND = {("00123", "Lefèvre, Dupont"), ("00123", "0612345678"), ("00124", "Müller"), ("00124", "0700000007")}
CONTENT = "".join(f"{line}\r\n" for line in (HEADER, *ROWS))
WAYS = {
    "semicolons and cp1252": ("r.csv", CONTENT.encode("cp1252"), "with ; as delimiter, as cp1252"),
    "semicolons, UTF-8 with its mark": ("r.csv", CONTENT.encode("utf-8-sig"), "with ; as delimiter"),
    "tabs and UTF-16": ("r.tsv", CONTENT.replace(";", "\t").encode("utf-16"), "with tab as delimiter, as utf-16-le"),
    "gzip": ("r.csv.gz", gzip.compress(CONTENT.encode()), "with ; as delimiter"),
}


@pytest.mark.parametrize("way", WAYS)
def test_csv_of_records_is_read_in_the_dialect_that_its_header_shows_and_says_so(tmp_path: Path, way: str) -> None:
    name, content, said = WAYS[way]
    (tmp_path / name).write_bytes(content)
    values = read_records(tmp_path / name, FIELDS)
    found = {(row["individual_id"], row["value"]) for row in values.table.to_pylist()}
    assert found == FOUND
    assert values.said == f"{tmp_path / name}: read {said}"
    assert RecordsDetector(tmp_path / name, fields=FIELDS).warning == values.said


def test_commas_and_utf_8_are_not_worth_a_word(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("individual_id,last_name\n007,Bond\n", encoding="utf-8")
    assert RecordsDetector(tmp_path / "r.csv").warning is None


def test_a_row_with_a_value_too_many_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("individual_id,last_name\n1,Bond\n2,Zyxwvut,James\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"r\.csv row 2: expected 2 columns, got 3") as error:
        read_records(tmp_path / "r.csv")
    assert "Zyxwvut" not in str(error.value)
