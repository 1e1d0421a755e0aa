"""Records: the individual's own fields, however notes write them, in that individual's documents only."""

from __future__ import annotations

import datetime
import functools
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.detecting import batch_of, found
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import Columns, open_corpus
from reticent.engine.detect import detect_spans
from reticent.engine.detect.common import learn_common_words
from reticent.engine.detect.records import FIELDS, RecordsDetector, read_records
from reticent.engine.synthetic import SynthConfig, synthesize

SECRET = "Zyxwvut"
LABELS = {"name": "NAME", "date": "DATE", "phone": "PHONE", "code": "ID", "address": "ADDRESS", "text": "TEXT"}


def find(values: list[tuple[str, str]], text: str, *, common: list[str] | None = None, initials: bool = False):
    """Spans that the (field, value) pairs of one individual give in a text."""
    records = _rust.Records(
        np.zeros(len(values), dtype=np.uint32),
        pa.array([value for _, value in values], pa.string()),
        pa.array([field for field, _ in values], pa.string()),
        pa.array([LABELS[field] for field, _ in values], pa.string()),
    )
    words = _rust.CommonWords()
    words.add_list(pa.array(common or [], pa.string()))
    spans = records.find(
        pa.array([text]), np.zeros(1, dtype=np.uint32), common=words if common is not None else None, initials=initials
    )
    return [text[row["start"] : row["end"]] for row in pa.record_batch(spans).to_pylist()]


def test_every_field_has_a_label_and_a_way_to_be_looked_for() -> None:
    assert {field for _, field in FIELDS.values()} == set(LABELS)


NAME_CASES = [
    (["John", "Smith"], "seen with John Smith, here", ["John Smith"]),
    (["John", "Smith"], "SMITH, John and john smith", ["SMITH, John", "john smith"]),
    (
        ["John", "Smith"],
        "Mr. Smith's dog; J. Smith; Smith J; John R. Smith",
        ["Smith", "J. Smith", "Smith J", "John R. Smith"],
    ),
    (["John", "Smith"], "J. was here, with R. Jones", []),
    (["John", "Smith"], "a smithy and a Blacksmith", []),
    (
        ["Gabriel", "García Márquez"],
        "with GARCIA MARQUEZ, or García-Márquez, or Marquez",
        ["GARCIA MARQUEZ, or García-Márquez"[:14], "García-Márquez", "Marquez"],
    ),
    (["Jan", "van der Berg"], "of van der Berg, the van and der Berg", ["van der Berg", "der Berg"]),
    (["Jan", "van der Berg"], "he took the van", []),
    (["Anne-Marie", "O'Brien"], "met Anne Marie OBrien, then Marie", ["Anne Marie OBrien", "Marie"]),
    (["Zoé", "Élie"], "et ZOE\u0301 Elie ou Zo\u00ade Élie", ["ZOE\u0301 Elie", "Zo\u00ade Élie"]),
    (["Li", "Wu"], "so Li went. Do not go with lithium", ["Li"]),
    (["An", "Do"], "We met An Do. An egg. Do not, do an", ["An Do"]),
    (["Ольга", "Иванова"], "пришла ольга Иванова.", ["ольга Иванова"]),
    (["שרה"], "עם שרה.", ["שרה"]),
    (["John", "Smith"], "John\x00Smith 😀John😀", ["John", "Smith", "John"]),
    (["Roselstone"], "with Roselstnoe, Rosalstome, Roslston; Rosenstein", ["Roselstnoe", "Rosalstome", "Roslston"]),
    (["Smith"], "with Smyth, Smiht, Smit, Smithe and Smyht", ["Smyth", "Smiht", "Smit", "Smithe"]),
    (["Reed"], "with Read, Rees and Reeed", []),  # short names differ by nothing
    (["Cornwell"], "the Comwell and Cornwe11 case", ["Comwell", "Cornwe11"]),
    (["Bob5on"], "with Bob5on and Bobson", ["Bob5on", "Bobson"]),
    (["Smith"], "with smyth in small letters", []),
    (["Turner"], "Turned", []),  # the first word of a sentence, and no corpus to ask
    (["Dr. John Smith"], "seen by dr. no one; John", ["John"]),
    ([""], "nothing", []),
    (["John"], "", []),
]


@pytest.mark.parametrize(("names", "text", "expected"), NAME_CASES)
def test_names_by_their_parts_initials_and_small_edits(names: list[str], text: str, expected: list[str]) -> None:
    assert find([("name", name) for name in names], text) == expected


@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        (["May", "Rose"], "She may have a rose. May comes in May 2020 and 5 May. We see May.", ["May", "May"]),
        (["May", "Rose"], "May Rose; Mrs. Rose", ["May Rose", "Rose"]),
        (["Will", "Brown"], "He will see brown spots. Will it? With Brown.", ["Will", "Brown"]),
        (["Will", "Brown"], "She said: hi, will brown. And mr. brown can", ["will brown", "brown"]),
        (["Will", "Brown"], "all small here: hi , will brown .", ["will brown"]),  # no case to tell by
        (["Turner"], "She turned. Turned on; with Turned", []),
    ],
)
def test_names_that_are_words_need_a_capital_or_a_neighbour(names: list[str], text: str, expected: list[str]) -> None:
    common = ["may", "rose", "will", "brown", "turned"]
    assert find([("name", name) for name in names], text, common=common) == expected


def test_own_names_in_small_letters_are_found_also_where_others_use_them_as_words(tmp_path: Path) -> None:
    texts = ["May may rise, 5 May. May Rose", "you will, mr. brown", "It may be a brown rose", "You will"]
    ids = [str(i) for i in range(len(texts))]
    documents = pa.table({"doc_id": ids, "individual_id": ids, "text": texts, "who": ["May", "Will Brown", None, None]})
    pq.write_table(documents, tmp_path / "d.parquet")
    detect_spans(open_corpus(tmp_path / "d.parquet"), [RecordsDetector(columns={"name": "who"})], tmp_path)
    rows = pq.read_table(tmp_path / "spans.parquet").to_pylist()
    found = [(row["document"], texts[row["document"]][row["start"] : row["end"]]) for row in rows]
    assert found == [(0, "May"), (0, "may"), (0, "May"), (1, "will"), (1, "brown")]


def test_documents_need_individuals() -> None:
    common = _rust.CommonWords()
    with pytest.raises(CorpusError, match="one individual is needed for each document"):
        common.add(pa.array(["a"]), pa.array(["a", "b"]))


def test_initials_alone_are_an_option() -> None:
    names = [("name", "John"), ("name", "Smith")]
    assert find(names, "says J.S. of J. S., not J.J. or S.K.") == []
    assert find(names, "says J.S. of J. S., not J.J. or S.K.", initials=True) == ["J.S", "J. S"]


@pytest.mark.parametrize(
    ("values", "text", "expected"),
    [
        (
            [("date", "1975-05-08")],
            "né le 8 mai 1975, 08/05/75, May 8th, 1975",
            ["8 mai 1975", "08/05/75", "May 8th, 1975"],
        ),
        ([("date", "1975-05-08")], "8 May 1976, 9 May 1975, 8 May", []),
        ([("date", "08/05/1975")], "19750508 and 1975-08-05", ["19750508", "1975-08-05"]),
        ([("date", "May 1975")], "in may 1975", ["may 1975"]),
        ([("name", "李小明")], "患者李小明来院，李明不在。", ["李小明"]),
        ([("name", "李"), ("name", "小明")], "患者李小明来院；小明和李", ["李小明", "小明"]),
        ([("name", "李"), ("name", "明")], "患者李明来院，李和明明", ["李明"]),
        ([("name", "田中"), ("name", "タロウ")], "田中タロウさんと田中", ["田中タロウ", "田中"]),
        ([("name", "สมชาย"), ("name", "ใจดี")], "ผู้ป่วยสมชายใจดีมีไข้", ["สมชายใจดี"]),
        ([("name", "이"), ("name", "민호")], "환자 이민호는 민혹 이민호익", ["이민호", "이민호"]),
        ([("address", "北京市朝阳区建国路8号")], "住北京市朝阳区建国路8号，建国路18号", ["北京市朝阳区建国路8号"]),
        ([("phone", "(236) 792-5090 x12")], "2367925090; 236-792-5090 x12", ["2367925090", "236-792-5090 x12"]),
        ([("phone", "5090 x12")], "5090; 5090 x12", ["5090 x12"]),
        ([("phone", "06 05 74 50 39")], "+33 6 05 74 50 39; 0605745039", ["33 6 05 74 50 39", "0605745039"]),
        ([("code", "00123456")], "MRN123456, 001-23-456, 1234567", ["123456", "001-23-456"]),
        ([("code", "2 75 08 77 237 700 44")], "NIR 275087723770044", ["275087723770044"]),
        ([("code", "275087723770044")], "NIR 2 75 08 77 237 700, 44", ["2 75 08 77 237 700"]),
        ([("code", "123")], "123", []),
        (
            [("address", "83 rue de la Fontaine")],
            "83, rue de la\nFontaine; 84 rue de la Fontaine",
            ["83, rue de la\nFontaine"],
        ),
        (
            [("address", "4 Maple Street, Ashford Falls 49096")],
            "4 maple st. in ASHFORD FALLS, 49096; 4 oaks",
            ["4 maple st", "ASHFORD FALLS", "49096"],
        ),
        ([("address", "75013 Paris")], "à Paris, 75013", ["Paris", "75013"]),
        ([("text", "ann.lee@mail.example")], "To ANN.LEE@MAIL.EXAMPLE, ann lee", ["ANN.LEE@MAIL.EXAMPLE"]),
        ([("text", "Saint-Aubray")], "à Saint Aubray, Saintaubray", ["Saint Aubray"]),
        ([("text", "12")], "12", []),
    ],
)
def test_other_fields_whatever_their_form(values: list[tuple[str, str]], text: str, expected: list[str]) -> None:
    assert find(values, text) == expected


@functools.cache
def distance(a: str, b: str) -> int:
    """Optimal string alignment, from its definition."""
    if not a or not b:
        return len(a) + len(b)
    best = min(distance(a[:-1], b) + 1, distance(a, b[:-1]) + 1, distance(a[:-1], b[:-1]) + (a[-1] != b[-1]))
    if len(a) > 1 and len(b) > 1 and a[-1] == b[-2] and a[-2] == b[-1]:
        best = min(best, distance(a[:-2], b[:-2]) + 1)
    return best


def ocr_form(word: str) -> str:
    word = word.translate(str.maketrans("01i58", "ollsb"))
    return re.sub("vv", "w", re.sub("rn", "m", word))


def is_of_name(word: str, name: str) -> bool:
    """The definition: the same; or up to 1 edit from 5 letters, 2 from 9; or what OCR takes for the same, from 4."""
    allowed = 0 if len(name) < 5 else 1 if len(name) < 9 else 2
    near = len(word) >= 4 and len(name) >= 4 and (distance(name, word) <= allowed if allowed else False)
    looks = (
        len(word) >= 4
        and len(name) >= 4
        and ocr_form(word) == ocr_form(name)
        and abs(len(word) - len(name)) <= max(allowed, 1)
    )
    return word == name or near or looks


@settings(max_examples=examples(400))
@given(st.text("aosrnm", min_size=3, max_size=11).filter(lambda name: name != "mar"), st.data())
def test_edited_names_match_oracle(name: str, data: st.DataObject) -> None:
    words = [name]
    for _ in range(data.draw(st.integers(1, 6))):
        word = list(data.draw(st.sampled_from(words)))
        at, letter = data.draw(st.integers(0, len(word))), data.draw(st.sampled_from("aosrnm05"))
        kind = data.draw(st.sampled_from(["insert", "delete", "substitute", "swap"]))
        if kind == "insert":
            word.insert(at, letter)
        elif at < len(word) and kind == "delete":
            del word[at]
        elif at < len(word):
            word[at] = letter
            if kind == "swap" and at:
                word[at - 1 : at + 1] = name[at - 1 : at + 1][::-1]
        words.append("".join(word) or "a")
    words = [word for word in words if word != "mar" and not word[0].isdigit()]
    text = "seen here with small letters / " + " / ".join(word.capitalize() for word in words) + " / and so on"
    expected = [word.capitalize() for word in words if is_of_name(word, name)]
    assert find([("name", name.capitalize())], text) == expected


@settings(max_examples=examples(150))
@given(
    st.dates(datetime.date(1900, 1, 1), datetime.date(2020, 12, 31)),
    st.dates(datetime.date(1900, 1, 1), datetime.date(2020, 12, 31)),
)
def test_a_birth_date_is_found_in_every_form_and_no_other_is(born: datetime.date, other: datetime.date) -> None:
    forms = ["%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%y", "%Y%m%d", "%d %B %Y", "%B %d, %Y", "%d-%b-%y"]
    for form in forms:
        assert find([("date", born.isoformat())], f"x {born.strftime(form)} x") == [born.strftime(form)]
    swapped = {(born.month, born.day), (born.day, born.month)}
    same_year = other.year % 100 == born.year % 100
    if not same_year or (other.month, other.day) not in swapped:
        text = " ; ".join(other.strftime(form) for form in ("%Y-%m-%d", "%d %B %Y", "%Y%m%d"))
        assert find([("date", born.isoformat())], text) == []


def table_of(path: Path, columns: dict[str, list[Any]]) -> Path:
    pq.write_table(pa.table(columns), path / "records.parquet")
    return path / "records.parquet"


def test_records_are_found_in_the_individuals_own_documents_only(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, {"individual_id": ["a", "b", "c"], "name": ["Ann", "Bob", "Ann"], "city": ["Lyon", None, ""]}
    )
    text = "Ann and Bob of Lyon"
    spans = found(RecordsDetector(table), [text] * 5, ["b", "a", "nobody", "c", "a"])
    own = [("NAME", "Ann"), ("CITY", "Lyon")]
    assert spans == [[("NAME", "Bob")], own, [], [("NAME", "Ann")], own]


def test_an_individual_may_have_many_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"individual_id": ["a", "b", "a"], "last_name": ["Durand", "Petit", "Lefort"]})
    spans = found(RecordsDetector(table), ["Durand Petit Lefort, née Lefort"], ["a"])[0]
    assert [text for _, text in spans] == ["Durand", "Lefort", "Lefort"]


def test_edited_spans_have_a_lower_score(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"individual_id": ["p0"], "last_name": ["Roselstone"]})
    spans = RecordsDetector(table).detect(batch_of(["with Roselstone / Roselstnoe"]))
    assert np.allclose(spans.column("score").to_numpy(), [1.0, 0.8])


def test_spans_do_not_depend_on_threads(tmp_path: Path) -> None:
    ids = [f"p{i % 7}" for i in range(40)]
    names = [f"Name{chr(97 + i)}{chr(98 + i)}" for i in range(7)]
    table = table_of(tmp_path, {"individual_id": [f"p{i}" for i in range(7)], "name": names})
    batch = batch_of([" ".join(names[i % 7 :]) for i in range(40)], ids)
    one, two = (RecordsDetector(table, num_threads=n).detect(batch) for n in (1, 2))
    assert one == two
    assert one.num_rows >= 40


def test_values_are_read_with_their_labels_and_blank_ones_counted(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        {
            "individual_id": [1, 2],
            "First_Name": ["Ann", None],
            "last_name": [" ", "B"],
            "mrn": [1234567, 7654321],
            "born": [datetime.date(1975, 5, 8), None],
            "account_number": [12345.0, float("nan")],
            "occupation": ["tanner", ""],
            "household_id": ["h1", "h2"],
        },
    )
    values = read_records(table)
    assert {tuple(row.values()) for row in values.table.to_pylist()} == {
        ("1", "Ann", "name", "NAME"),
        ("1", "1234567", "code", "ID"),
        ("2", "7654321", "code", "ID"),
        ("1", "1975-05-08", "date", "BORN"),
        ("1", "12345", "code", "ID"),
        ("1", "tanner", "text", "OCCUPATION"),
    }
    assert values.num_skipped == RecordsDetector(table).num_skipped == 6


def test_columns_are_known_with_accents_capitals_and_blanks_too(tmp_path: Path) -> None:
    """As text, which an unknown column is, the number would be found in no other grouping."""
    header = "individual_id,Prénom,NOM,Date de naissance,Téléphone,Métier"
    table = tmp_path / "records.csv"
    table.write_text(f"{header}\n7,Zoé-Marie,Dupré,1960-10-18,05 60 80 74 08,luthier\n", encoding="utf-8")
    fields = {row["label"]: row["field"] for row in read_records(table).table.to_pylist()}
    assert fields == {"NAME": "name", "DATE": "date", "PHONE": "phone", "MÉTIER": "text"}
    text = "Zoé Marie, née le 18/10/1960, 0560807408, luthier"
    detector = RecordsDetector(table)
    assert detector.warning is not None
    assert detector.warning.startswith(f"{table}: métier: no field that is known")
    (spans,) = found(detector, [text], ["7"])
    assert spans == [
        ("NAME", "Zoé Marie"),
        ("DATE", "18/10/1960"),
        ("PHONE", "0560807408"),
        ("MÉTIER", "luthier"),
    ]


def test_a_table_of_known_fields_and_dates_has_no_warning(tmp_path: Path) -> None:
    columns = {"individual_id": ["1"], "last_name": ["Roy"], "born": [datetime.date(1975, 5, 8)], "city": ["Reims"]}
    assert RecordsDetector(table_of(tmp_path, columns)).warning is None


def test_csv_keeps_leading_zeros_and_other_names_are_mapped(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text("pid,pat_last,mrn\n01,Lefort,00123456\n02,,7\n", encoding="utf-8")
    fields = {"individual_id": "pid", "last_name": "pat_last"}
    values = read_records(tmp_path / "records.csv", fields)
    assert [tuple(row.values()) for row in values.table.to_pylist()] == [
        ("01", "Lefort", "name", "NAME"),
        ("01", "00123456", "code", "ID"),
    ]
    assert found(RecordsDetector(tmp_path / "records.csv", fields=fields), ["Lefort 00123456"], ["01"]) == [
        [("NAME", "Lefort"), ("ID", "00123456")]
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"first_name": [SECRET]}, "individual_id is missing"),
        ({"individual_id": [None], "first_name": [SECRET]}, "1 null"),
        ({"individual_id": [" "], "first_name": [SECRET]}, "1 blank"),
        ({"individual_id": [SECRET]}, "no record field"),
        ({"individual_id": ["a"], "tags": [[SECRET]]}, "column tags: expected text, numbers or dates, got list"),
        ({"individual_id": [[SECRET]], "first_name": ["a"]}, "column individual_id: expected text, numbers or dates"),
        (  # the first of March, in Paris
            {"individual_id": ["a"], "dob": pa.array([datetime.datetime(1950, 2, 28, 23)], pa.timestamp("us", "UTC"))},
            "column dob: holds times with a zone that are not all midnight in UTC",
        ),
    ],
)
def test_records_that_cannot_be_used_say_why(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    for int96 in (False, True):  # the second is how Spark may write times, of UTC though nothing says so
        pq.write_table(pa.table(table), tmp_path / "records.parquet", use_deprecated_int96_timestamps=int96)
        with pytest.raises(CorpusError, match=message) as error:
            read_records(tmp_path / "records.parquet")
        assert SECRET not in str(error.value)


def test_tables_with_columns_that_stand_twice_or_are_missing_are_refused(tmp_path: Path) -> None:
    ids, names = pa.array(["a"]), pa.array([SECRET])
    pq.write_table(pa.Table.from_arrays([ids, names, names], ["individual_id", "name", "name"]), tmp_path / "t.parquet")
    with pytest.raises(CorpusError, match="stands twice"):
        read_records(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text(f"individual_id,name,name\na,{SECRET},{SECRET}\n")
    with pytest.raises(CorpusError, match="stands twice"):
        read_records(tmp_path / "t.csv")
    table = table_of(tmp_path, {"individual_id": ["a"], "name": ["Ann"], "surname": ["Lee"]})
    with pytest.raises(CorpusError, match="column pat_last is missing"):
        read_records(table, {"last_name": "pat_last"})
    with pytest.raises(PolicyError, match="the name of another"):
        read_records(table, {"name": "surname"})
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "x", tmp_path / "missing.csv", tmp_path / "missing.parquet"):
        with pytest.raises(CorpusError, match="not a readable table of records in Parquet or CSV"):
            read_records(path)


@pytest.mark.parametrize("pad", range(3))
def test_lines_within_values_are_no_rows_in_a_long_table_either(tmp_path: Path, pad: int) -> None:
    num_rows = 60_000  # more than a block of the reader
    with (tmp_path / "records.csv").open("w") as file:
        file.write("individual_id,address\n" + f"p,{'x' * (1 + 7 * pad)}\n")
        file.writelines(f'{row:06d},"12 rue X\n75002, Paris"\n' for row in range(num_rows))
    values = read_records(tmp_path / "records.csv")
    assert len(values.ids) == num_rows + 1
    assert set(values.table.column("value").to_pylist()[1:]) == {"12 rue X\n75002, Paris"}


@pytest.mark.parametrize(
    ("first", "fields", "message"),
    [
        (f"p1,{SECRET},0612", None, "column individual_id is missing .*fields.*; the first line .* names 3 column"),
        (f"p1;{SECRET};0612", None, "column individual_id is missing .*; the first line .* names 3 column"),
        (f"p1^{SECRET}^0612", None, "names 1 column.*; a comma, a semicolon, a tab or . stands between columns"),
        (f"p1,{SECRET},{SECRET}", None, "a column name stands twice"),
        (f"p1,{SECRET},0612", {"last_name": "nom"}, "column nom is missing"),
    ],
)
def test_a_table_without_a_header_is_refused_and_its_first_row_not_shown(
    tmp_path: Path, first: str, fields: dict[str, str] | None, message: str
) -> None:
    (tmp_path / "records.csv").write_text(f"{first}\n{first.replace(SECRET, 'Berg')}\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=message) as error:
        read_records(tmp_path / "records.csv", fields)
    assert SECRET not in str(error.value)


def test_records_need_a_table_or_columns(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"needs detect\.records\.table"):
        RecordsDetector()
    with pytest.raises(PolicyError, match="there is none"):
        RecordsDetector(columns={"name": "a"}, fields={"name": "b"})
    codes = np.zeros(1, dtype=np.uint32)
    with pytest.raises(PolicyError, match="expected a field"):
        _rust.Records(codes, pa.array(["a"]), pa.array(["colour"]), pa.array(["A"]))
    with pytest.raises(CorpusError, match="one individual and one field"):
        _rust.Records(codes, pa.array(["a", "b"]), pa.array(["name", "name"]), pa.array(["A", "A"]))


def test_columns_of_the_documents_count_in_their_own_document(tmp_path: Path) -> None:
    table = pa.table(
        {
            "doc_id": ["d0", "d1", "d2"],
            "individual_id": ["a", "a", "b"],
            "text": ["Durand and Petit", "Durand and Petit 1975-05-08", "Durand and Petit"],
            "pat_last": ["Durand", "Petit", None],
            "dob": pa.array([None, datetime.date(1975, 5, 8), None], pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "d.parquet")
    corpus = open_corpus(tmp_path / "d.parquet", columns=Columns())
    detector = RecordsDetector(columns={"last_name": "pat_last", "birth_date": "dob"})
    assert detector.num_without_record(pa.array(["a", "b"])) == 0
    detect_spans(corpus, [detector], tmp_path)
    rows = pq.read_table(tmp_path / "spans.parquet").to_pylist()
    assert [(row["doc_id"], row["start"], row["end"], row["label"]) for row in rows] == [
        ("d0", 0, 6, "NAME"),
        ("d1", 11, 16, "NAME"),
        ("d1", 17, 27, "DATE"),
    ]
    with pytest.raises(CorpusError, match="nowhere"):
        detect_spans(corpus, [RecordsDetector(columns={"last_name": "nowhere"})], tmp_path)


def mutated(name: str, rng: random.Random) -> str:
    """A name with one slip of the pen behind its first letter."""
    at = rng.randrange(1, len(name) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return name[:at] + name[at + 1 :]
    if kind == 1:
        return name[:at] + rng.choice("aeiorstn") + name[at:]
    return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


@pytest.mark.parametrize("language", ["en", "fr"])
def test_names_of_synthetic_records_are_found_whole_and_misspelt(tmp_path: Path, language: str) -> None:
    synthesize(tmp_path, SynthConfig(num_individuals=300, languages=(language,), seed=5))
    corpus = open_corpus(tmp_path / "documents", columns=Columns(spans="spans"))
    detector = RecordsDetector(tmp_path / "records.parquet")
    learn_common_words(corpus, [detector])
    rng = random.Random(0)
    counts = dict.fromkeys(("gold", "whole", "false", "misspelt", "misspelt_found"), 0)
    for batch in corpus.batches(columns=("doc_id", "individual_id", "text", "spans")):
        texts, gold = batch.column("text").to_pylist(), batch.column("spans").to_pylist()
        covered = [np.zeros(len(text), dtype=bool) for text in texts]
        for row in detector.detect(batch).to_pylist():
            covered[row["document"]][row["start"] : row["end"]] = True
            if row["label"] == "NAME":
                inside = any(s["start"] < row["end"] and row["start"] < s["end"] for s in gold[row["document"]])
                counts["false"] += not inside
        changed, slips = [], []
        for text, spans, cover in zip(texts, gold, covered, strict=True):
            names = [s for s in spans if s["label"] == "NAME"]
            counts["gold"] += len(names)
            counts["whole"] += sum(cover[s["start"] : s["end"]].all() for s in names)
            last = names[-1] if names else None
            word = text[last["start"] : last["end"]].split()[-1] if last else ""
            if last and word.isalpha() and len(word) >= 5:
                slip = mutated(word, rng)
                at = last["end"] - len(word)
                text = text[:at] + slip + text[last["end"] :]
                slips.append((at, at + len(slip)))
            else:
                slips.append(None)
            changed.append(text)
        misspelt = [np.zeros(len(text), dtype=bool) for text in changed]
        for row in detector.detect(batch_of(changed, batch.column("individual_id").to_pylist())).to_pylist():
            misspelt[row["document"]][row["start"] : row["end"]] = True
        kept = [(slip, cover) for slip, cover in zip(slips, misspelt, strict=True) if slip]
        counts["misspelt"] += len(kept)
        counts["misspelt_found"] += sum(cover[a:b].all() for (a, b), cover in kept)
    assert counts["gold"] > 1000
    assert counts["misspelt"] > 300
    assert counts["whole"] >= 0.99 * counts["gold"], counts
    assert counts["false"] <= 0.001 * counts["gold"], counts
    assert counts["misspelt_found"] >= 0.95 * counts["misspelt"], counts


@pytest.mark.corpus
def test_patients_names_of_real_encounters_are_found(data: Path, tmp_path: Path) -> None:
    files = sorted((data / "aci_bench").glob("*.jsonl"))
    if not files:
        pytest.skip(f"{data / 'aci_bench'} is not there")
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    names = [
        [(row["metadata"].get(f"patient_{part}") or "").strip() for part in ("firstname", "familyname")] for row in rows
    ]
    # The dialogues are in small letters, the notes are not.
    texts = [row["dialogue"] + "\n\n" + row["note"] for row in rows]
    ids = [str(number) for number in range(len(rows))]
    table = {"individual_id": ids, "first_name": [n[0] for n in names], "last_name": [n[1] for n in names]}
    pq.write_table(pa.table({"doc_id": ids, "individual_id": ids, "text": texts}), tmp_path / "d.parquet")
    detect_spans(open_corpus(tmp_path / "d.parquet"), [RecordsDetector(table_of(tmp_path, table))], tmp_path)
    covered = [np.zeros(len(text), dtype=bool) for text in texts]
    for row in pq.read_table(tmp_path / "spans.parquet").to_pylist():
        covered[row["document"]][row["start"] : row["end"]] = True
    number = hit = 0
    for at, text in enumerate(texts):
        for name in filter(None, names[at]):
            for match in re.finditer(rf"\b{re.escape(name)}\b", text, re.IGNORECASE):
                number += 1
                hit += bool(covered[at][match.start() : match.end()].all())
    assert number > 500
    assert hit >= 0.99 * number, (hit, number)
