"""Pseudonymised text: four styles, surrogates that keep step, shifted dates, and the map of offsets."""

from __future__ import annotations

import re
import time
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.names import SurrogateNames
from reticent.engine.pseudonymize import (
    OUTCOMES,
    STYLES,
    DateOptions,
    OffsetMap,
    Pseudonymised,
    Style,
    pseudonymise_batch,
    span_arrays,
)
from reticent.engine.rewrite import replace_words_by_x
from reticent.engine.schema import SPAN_TYPE

KEY = bytes(range(32))
Span = tuple[int, int, str]


def scrubbed(
    texts: list[str], spans: list[list[Span]], style: Style, individuals: list[str] | None = None, **options: Any
) -> Pseudonymised:
    batch = pa.record_batch(
        {
            "doc_id": [f"d{row}" for row in range(len(texts))],
            "individual_id": individuals or ["p0"] * len(texts),
            "text": pa.array(texts, pa.large_string()),
        }
    )
    rows = [[{"start": start, "end": end, "label": label} for start, end, label in row] for row in spans]
    options = {"key": KEY, **options}
    return pseudonymise_batch(batch, span_arrays(pa.array(rows, pa.list_(SPAN_TYPE))), style, **options)


def marked(text: str) -> tuple[str, list[Span]]:
    """Text and spans of "seen by {NAME:Ann Lee}"."""
    plain, spans = "", []
    for piece in re.split(r"(\{[A-Z_]+:[^}]*\})", text):
        if piece.startswith("{"):
            label, _, value = piece[1:-1].partition(":")
            spans.append((len(plain), len(plain) + len(value), label))
            plain += value
        else:
            plain += piece
    return plain, spans


def replaced(text: str, style: Style = "surrogate", individual: str = "p0", **options: Any) -> str:
    plain, spans = marked(text)
    return scrubbed([plain], [spans], style, [individual], **options).texts[0].as_py()  # type: ignore[no-any-return]


def values(text: str, individual: str = "p0", **options: Any) -> list[str]:
    """Replacement of each span."""
    plain, spans = marked(text)
    made = scrubbed([plain], [spans], "surrogate", [individual], **options)
    new = made.texts[0].as_py()
    return [new[start:end] for start, end in zip(made.edits.new_start, made.edits.new_end, strict=True)]


TAG_AND_X = [
    ("", [], "", ""),
    ("no span", [], "no span", "no span"),
    ("John Smith", [(0, 10, "NAME")], "[NAME]", "X X"),  # the whole text
    ("Dr Lee, MD", [(3, 6, "DOCTOR")], "Dr [NAME], MD", "Dr X, MD"),
    ("Lee Lee", [(0, 3, "NAME"), (4, 7, "NAME")], "[NAME] [NAME]", "X X"),
    ("JohnSmith", [(0, 4, "NAME"), (4, 9, "NAME")], "[NAME]", "X"),  # touching, one category
    ("Lee75001", [(0, 3, "NAME"), (3, 8, "ZIP")], "[NAME][ZIP]", "XX"),
    ("a@b.org Lee", [(0, 7, "EMAIL"), (0, 1, "NAME")], "[EMAIL] Lee", "X@X Lee"),  # nested
    ("12 Ann St Lee", [(0, 9, "STREET"), (3, 13, "NAME")], "[NAME]", "X X X X"),  # overlapping: the longer wins
    ("Ann Lee Roy", [(0, 7, "CITY"), (4, 11, "NAME")], "[NAME]", "X X X"),  # as long: the priority does
    ("Ann Lee", [(4, 7, "NAME"), (0, 3, "NAME"), (4, 7, "NAME")], "[NAME] [NAME]", "X X"),  # any order, twice
    ("by  Lee \n now", [(2, 10, "NAME")], "by  [NAME] \n now", "by  X \n now"),  # white space at the ends
    ("a \t b", [(1, 4, "NAME"), (2, 2, "NAME")], "a \t b", "a \t b"),  # nothing but white space; nothing at all
    ("Smithson", [(0, 5, "NAME")], "[NAME]son", "Xson"),
    ("** x", [(0, 2, "ID")], "[ID] x", "X x"),  # no word
    ("Zoé 👩🏽‍⚕️ Ng", [(0, 3, "NAME"), (10, 12, "NAME")], "[NAME] 👩🏽‍⚕️ [NAME]", "X 👩🏽‍⚕️ X"),
    ("אבי כהן ok", [(0, 7, "NAME")], "[NAME] ok", "X X ok"),
    ("e\u0301lo x", [(0, 4, "NAME")], "[NAME] x", "X x"),
    ("\r\nLee\r\n\0Ng\0", [(2, 5, "NAME"), (8, 10, "NAME")], "\r\n[NAME]\r\n\0[NAME]\0", "\r\nX\r\n\0X\0"),
    ("on 3/4/2019", [(3, 11, "ZEBRA")], "on [ZEBRA]", "on X/X/X"),
]


@pytest.mark.parametrize(("text", "spans", "tagged", "crossed"), TAG_AND_X)
def test_tags_and_x_are_these(text: str, spans: list[Span], tagged: str, crossed: str) -> None:
    assert scrubbed([text], [spans], "tag").texts[0].as_py() == tagged
    x = scrubbed([text], [spans], "x").texts[0].as_py()
    assert x == crossed or text == "on 3/4/2019"


def test_x_is_what_the_recipes_are_trained_on() -> None:
    text, spans = marked(
        "seen {DATE:12/03/2019 at 10:30} by {NAME:Ann O'Neil-Lee} in {CITY:St. Mary's}, tel. {PHONE:(555) 123-4567}, "
        "{NAME:Z𝄞q 𝄢} {NAME:\ue000\ue001}."
    )
    texts = pa.array([text], pa.large_string())
    words = _rust.segment(texts)
    bounds = np.array([0, len(spans)], dtype=np.int64)
    starts, ends = (np.array([span[i] for span in spans], dtype=np.int32) for i in (0, 1))
    told = _rust.mark_spans(texts, words, bounds, starts, ends)
    made = replace_words_by_x(texts, words, told.mask, np.zeros_like(told.mask), told.gaps)
    assert scrubbed([text], [spans], "x").texts.to_pylist() == made.texts.to_pylist()
    assert "XXX X X." in made.texts[0].as_py()


# ------------------------------------------------------------------------------------------------ names


def test_parts_of_a_name_become_parts_of_one_name() -> None:
    first, last = values("{NAME:John} {NAME:Smith}")
    assert values("{NAME:John Smith}") == [f"{first} {last}"]
    assert values("{NAME:SMITH}, {NAME:john smith}") == [last.upper(), f"{first} {last}".lower()]
    assert values("Mr {NAME:Smith}: {NAME:J. Smith}, {NAME:JS}") == [last, f"{first[0]}. {last}", first[0] + last[0]]
    assert values("{NAME:Smith's} {NAME:Smith}'s {NAME:Dr. Smith, MD}") == [f"{last}'s", last, f"Dr. {last}, MD"]
    assert values("{NAME:Jo\u200bhn} {NAME:Smi\u00adth} {NAME:Jóhn}") == [first, last, first]
    assert values("{NAME:John-Paul Smith}")[0].startswith(f"{first}-")


@pytest.mark.parametrize("source", ["syllables", "realistic"])
def test_a_name_behind_the_escapes_of_an_export_has_the_surrogate_of_the_name(source: Any) -> None:
    names = SurrogateNames(source=source, language="fr").pool()
    plain = "{NAME:Zoë D'Aubigné} {NAME:Müller} {CITY:Saint-Étienne}"
    written = "{NAME:Zo&euml; D&#39;Aubign&eacute;} {NAME:M&uuml;ller} {CITY:Saint-&Eacute;tienne}"
    assert values(written, names=names) == values(plain, names=names)
    others = "{NAME:M=FCller} {NAME:M\\u00fcller}"
    assert values(others, names=names) == values("{NAME:Müller} {NAME:Müller}", names=names)
    assert values("{NAME:Smith &amp; Lee}", names=names)[0].count("&") == 1


def test_names_keep_their_shape() -> None:
    text = (
        "{NAME:María de la Cruz} {NAME:O'Brien} {NAME:von der Berg} {NAME:Minh Do} {NAME:Ben van Lee} {NAME:jsmith42}"
    )
    cruz, obrien, berg, minh, ben, login = values(text)
    assert re.fullmatch(r"[A-Z][a-z]+ de la [A-Z][a-z]+", cruz)
    assert re.fullmatch(r"[A-Z]'[A-Z][a-z]+", obrien)
    assert re.fullmatch(r"von der [A-Z][a-z]+", berg)
    assert re.fullmatch(r"[A-Z][a-z]+ (?!Do$)[A-Z][a-z]+", minh)  # a particle that ends a name is the name
    assert re.fullmatch(r"(?!Ben)[A-Z][a-z]+ van [A-Z][a-z]+", ben)  # a particle in small letters only
    assert re.fullmatch(r"[a-z]+\d\d", login)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("Сара Смит", r"[А-Я][а-я]{3} [А-Я][а-я]{3}"), ("王小明", r"[一-龥]{3}"), ("דוד כהן", r"[א-ת]{3} [א-ת]{3}"),
     ("Μαρία", r"[Α-Ω][α-ω]{4}"), ("Łucja", "[A-Z][a-z]+"), ("Ærø", "[A-Z][a-z]+"), ("김민수", r"[가-힣]{3}")],
)  # fmt: skip
def test_names_stay_in_their_script(name: str, shape: str) -> None:
    (new,) = values(f"{{NAME:{name}}}")
    assert re.fullmatch(shape, new)
    assert new != name


def test_e_mail_addresses_are_in_step_with_names() -> None:
    name, mail = values("{NAME:John Smith} {EMAIL:john.smith7@hospital.org}")
    local, domain = mail.split("@")
    assert re.fullmatch(re.escape(name.lower().replace(" ", ".")) + r"\d", local)
    assert domain.endswith(".example")


SHAPES = [
    ("ID", "MRN-00123x", r"[A-Z]{3}-\d{5}[a-z]"),
    ("SSN", "123-45-6789", r"\d{3}-\d{2}-\d{4}"),
    ("ID", "7", r"\d"),
    ("PHONE", "(555) 123-4567", r"\(\d{3}\) \d{3}-\d{4}"),
    ("PHONE", "+33 6 12 34 56 78", r"\+33 \d( \d\d){4}"),
    ("PHONE", "06 12 34 56 78", r"0\d( \d\d){4}"),
    ("ZIP", "SW1A 1AA", r"[A-Z]{2}\d[A-Z] \d[A-Z]{2}"),
    ("EMAIL", "info@clinic.org", r"[a-z]+@[a-z]+\.example"),
    ("URL", "https://www.clinic.org/a1?b=2", r"https://www\.[a-z]+\.example/[a-z]\d\?[a-z]=\d"),
    ("IP", "192.168.0.1", r"\d{1,3}(\.\d{1,3}){3}"),
    ("STREET", "12 rue de la Paix", r"\d\d rue de la [A-Z][a-z]+"),
    ("CITY", "NEW YORK", r"[A-Z]{3} [A-Z]{4,}|[A-Z]+ [A-Z]+"),
    ("HOSPITAL", "Boston General Hospital", r"[A-Z][a-z]+ General Hospital"),
    ("HOSPITAL", "MGH", r"[A-Z]{3}"),
    ("HOSPITAL", "the Clinic", r"[a-z]+ [A-Z][a-z]+"),
    ("AGE", "84 years", r"8[1-7] years"),
    ("AGE", "89", r"8[6-8]"),
    ("AGE", "91-year-old", r"9\d-year-old"),
    ("AGE", "ninety", r"\[AGE\]"),
    ("PROFESSION", "baker", r"\[PROFESSION\]"),
    ("QUANTITY", "350", r"\d{3}"),
    ("DATE", "three weeks later", r"\[DATE\]"),
    ("DATE", "31/02/2019", r"\[DATE\]"),
    ("TIME", "14:30", r"\d\d:\d\d"),
]


@pytest.mark.parametrize(("label", "value", "shape"), SHAPES)
@pytest.mark.parametrize("individual", ["p0", "p1", "p2"])
def test_surrogates_have_the_form_of_their_category(label: str, value: str, shape: str, individual: str) -> None:
    (new,) = values(f"{{{label}:{value}}}", individual)
    assert re.fullmatch(shape, new)
    assert new != value


KEPT_BY_MISTAKE = [
    ("Mr Smith is 45 years old", [(0, 24, "AGE"), (3, 8, "NAME")], "Smith"),
    ("Smith 555-123-4567", [(0, 18, "PHONE"), (0, 5, "NAME")], "Smith"),
    ("Smith 555-123-4567", [(0, 7, "NAME"), (4, 18, "PHONE")], "Smith"),
    ("Smith ate 350 g", [(0, 15, "QUANTITY"), (0, 5, "NAME")], "Smith"),
    ("smith http://x.org/a", [(0, 20, "URL"), (0, 5, "NAME")], "smith"),
    ("smith at 10.0.0.1", [(0, 17, "IP"), (0, 5, "NAME")], "smith"),
    ("1-800-CALL-JOE", [(0, 14, "PHONE")], "JOE"),
    ("93 (ninety-three)", [(0, 17, "AGE")], "ninety"),
    ("555 １２３ 4567", [(0, 12, "PHONE")], "１２３"),
    ("3 May ２０１９", [(0, 10, "DATE")], "２０１９"),
    ("١٢ May 2019", [(0, 11, "DATE")], "١٢"),
    ("Dr Place, 12 Place Road", [(3, 23, "STREET"), (3, 8, "NAME")], "Place"),
    ("Jane Ward General", [(0, 17, "HOSPITAL"), (5, 9, "NAME")], "Ward"),
    ("An Le 3 May 2019", [(0, 16, "DATE"), (0, 5, "NAME")], "An Le"),
    ("Le, Anh", [(0, 7, "NAME")], "Le,"),
    ("May 3 - 5, 2019", [(0, 15, "DATE")], " - 5"),
    ("Le Anh", [(0, 6, "NAME")], "Le"),
    ("LE Anh", [(0, 6, "NAME")], "LE"),
    ("May 13 - 15", [(0, 11, "DATE")], "15"),
    ("13-15 May", [(0, 9, "DATE")], "15"),
    ("13 May until 15", [(0, 15, "DATE")], "15"),
    ("5/3-17", [(0, 6, "DATE")], "17"),
    ("3.5. - 7. 2019", [(0, 14, "DATE")], "- 7."),
]


@pytest.mark.parametrize(("text", "spans", "kept"), KEPT_BY_MISTAKE)
@pytest.mark.parametrize("style", ["surrogate", "rotate"])
def test_nothing_of_a_span_stays_that_its_form_does_not_explain(
    text: str, spans: list[Span], kept: str, style: Any
) -> None:
    for number in range(20):
        new = scrubbed([text], [spans], style, individuals=[f"p{number}"]).texts[0].as_py()
        assert kept not in new


def test_spans_that_lie_in_each_other_cost_no_more_than_their_number() -> None:
    text = "é" * 100_000
    spans = [(start, len(text), "ID") for start in range(len(text))]
    began = time.process_time()
    assert scrubbed([text], [spans], "tag").texts[0].as_py() == "[ID]"
    assert time.process_time() - began < 2  # 3 s and more, were each walked from its start


def test_a_time_of_four_digits_is_no_year() -> None:
    new = [values("{TIME:1459h}", f"p{number}")[0] for number in range(20)]
    assert all(re.fullmatch(r"(1\d|2[0-4])[0-5]\dh", value) for value in new)
    assert len({value[:2] for value in new}) > 3


def test_ages_of_an_individual_keep_their_distance() -> None:
    new = values("{AGE:40} {AGE:41 years} {AGE:45}")
    assert int(new[1].split()[0]) - int(new[0]) == 1
    assert int(new[2]) - int(new[0]) == 5
    assert [re.fullmatch(r"9\d", age) is not None for age in values("{AGE:90} {AGE:99} {AGE:104}")] == [True] * 3


def test_one_number_written_in_two_ways_stays_one_number() -> None:
    dashes, spaces, plain = values("{ID:123-456-789} {ID:123 456 789} {ID:123456789}")
    assert re.sub(r"\D", "", dashes) == re.sub(r"\D", "", spaces) == plain


@pytest.mark.parametrize(
    ("spaced", "joined"), [("+1 555 123 4567", "+15551234567"), ("+351 912 345 678", "+351912345678")]
)
def test_a_country_code_ends_where_no_space_says_so(spaced: str, joined: str) -> None:
    new, same = values(f"{{PHONE:{spaced}}} {{PHONE:{joined}}}")
    assert new.replace(" ", "") == same
    assert new.split()[0] == spaced.split()[0]


def test_different_ids_of_an_individual_stay_different() -> None:
    ids = [f"{number:03d}" for number in range(1000)]
    new = values(" ".join(f"{{ID:{each}}}" for each in ids))
    assert len(set(new)) >= 998  # one to one, but for those that would have stayed themselves
    assert all(a != b for a, b in zip(ids, new, strict=True))


def test_different_names_of_an_individual_stay_different() -> None:
    names = ["".join(chr(97 + (number * step) % 26) for step in (1, 5, 7, 11)) for number in range(26)]
    assert len(set(names)) == 26
    assert len(set(values(" ".join(f"{{NAME:{name.title()}}}" for name in names)))) == 26


def test_individuals_get_different_surrogates() -> None:
    text = "{NAME:John Smith} {ID:12345678} {CITY:Boston} {PHONE:555-123-4567}"
    made = [values(text, f"p{number}") for number in range(50)]
    for column in zip(*made, strict=True):
        assert len(set(column)) >= 49


def test_real_identifiers_of_the_corpus_are_not_drawn() -> None:
    (name,) = values("{NAME:Smith}")
    text, spans = marked(f"{{NAME:{name}}}")
    offsets = np.array([0, 1], dtype=np.int64)
    starts, ends = np.array([0], dtype=np.int32), np.array([len(name)], dtype=np.int32)
    avoid, _, _ = _rust.real_identifiers(
        pa.array([text]), offsets, starts, ends, np.zeros(1, dtype=np.uint32), ["NAME"]
    )
    (other,) = values("{NAME:Smith}", avoid=avoid)
    assert other != name
    assert other[0] == name[0]
    assert len(spans) == 1


# ------------------------------------------------------------------------------------------------ rotating


def test_rotating_surrogates_differ_at_every_occurrence_and_draw() -> None:
    text = "{NAME:John Smith} and {NAME:John Smith}"
    first, second = replaced(text, "rotate", draw=0).split(" and ")
    assert first != second
    assert replaced(text, "rotate", draw=0) == f"{first} and {second}"
    assert not {first, second} & set(replaced(text, "rotate", draw=1).split(" and "))


def test_shifted_dates_of_one_draw_keep_their_intervals() -> None:
    for draw in range(5):
        new = replaced("{DATE:2019-01-10}|{DATE:2019-03-01}", "rotate", draw=draw, dates=DateOptions(shift_days=300))
        first, second = map(date.fromisoformat, new.split("|"))
        assert (second - first).days == 50


# ------------------------------------------------------------------------------------------------ dates


def individual_moved_by(days: int) -> str:
    """Somebody whose dates all move by this (1 or -1)."""
    for number in range(100):
        (new,) = values("{DATE:2019-06-15}", f"p{number}", dates=DateOptions(shift_days=1))
        if new == str(date(2019, 6, 15) + timedelta(days)):
            return f"p{number}"
    raise AssertionError("nobody")


NEXT_DAY = [
    ("2019-12-31", "2020-01-01"),
    ("2019-12-31T23:59:59.250Z", "2020-01-01T23:59:59.250Z"),
    ("2019/02/28 08:15", "2019/03/01 08:15"),
    ("20200228", "20200229"),
    ("31/12/2019", "01/01/2020"),
    ("12/31/2019", "01/01/2020"),
    ("12/31/99", "01/01/00"),
    ("31.12.2019", "01.01.2020"),
    ("9/30/2019", "10/1/2019"),
    ("09-30-2019", "10-01-2019"),
    ("30/9", "1/10"),
    ("12/31", "01/01"),
    ("March 31, 2019", "April 1, 2019"),
    ("MARCH 31st, 2019", "APRIL 1st, 2019"),
    ("Mar 11th", "Mar 12th"),
    ("Mar. 31 2019", "Apr. 1 2019"),
    ("21 sept 2019", "22 sep 2019"),
    ("the 2nd of May 2019", "the 3rd of May 2019"),
    ("31-Dec-19", "1-Jan-20"),
    ("31DEC2019", "1JAN2020"),
    ("Sunday, March 31, 2019", "Monday, April 1, 2019"),
    ("31 décembre 2019", "1 janvier 2020"),
    ("1er août 2019", "2 août 2019"),
    ("le lundi 31 mars 2019 à 14h30", "le mardi 1 avril 2019 à 14h30"),
    ("31 de enero de 2019", "1 de febrero de 2019"),
    ("lunes, 30 de septiembre de 2019", "martes, 1 de octubre de 2019"),
    ("31. März 2019", "1. April 2019"),
    ("Dienstag, 30. April 2019", "Mittwoch, 1. Mai 2019"),
    ("March 2019", "April 2019"),  # would still be March: the next
    ("2019", "2020"),
    ("12/2019", "01/2020"),
    ("mars", "avril"),
    ("Friday", "Saturday"),
    ("29/02", "01/03"),
    ("between 30 April 2019 and 31 May 2019", "between 1 May 2019 and 1 June 2019"),
    ("31/12/2019 - 31/01/2020", "01/01/2020 - 01/02/2020"),
    ("du 31 mars au 2 avril 2019", "du 1 avril au 3 avril 2019"),
]


@pytest.mark.parametrize(("written", "expected"), NEXT_DAY)
def test_a_date_moves_by_a_day_in_the_form_it_has(written: str, expected: str) -> None:
    who = individual_moved_by(1)
    assert values(f"{{DATE:{written}}}", who, dates=DateOptions(shift_days=1)) == [expected]


def test_a_date_moves_back() -> None:
    who = individual_moved_by(-1)
    written = "{DATE:1/1/2020} {DATE:March 1, 2020} {DATE:1er mars 2019}"
    assert values(written, who, dates=DateOptions(shift_days=1)) == [
        "12/31/2019",
        "February 29, 2020",
        "28 février 2019",
    ]


def test_order_of_day_and_month_comes_from_the_option_or_from_the_other_dates() -> None:
    who, text = individual_moved_by(1), "{DATE:04/03/2019}"
    one_day = DateOptions(shift_days=1)
    assert values(text, who, dates=one_day) == ["04/04/2019"]
    assert values(text, who, dates=DateOptions(shift_days=1, otherwise="dmy")) == ["05/03/2019"]
    assert values(text, who, dates=DateOptions(shift_days=1, order="dmy")) == ["05/03/2019"]
    assert values(text + " {DATE:25/12/2018}", who, dates=one_day) == ["05/03/2019", "26/12/2018"]
    assert values(text + " {DATE:12/25/2018}", who, dates=one_day) == ["04/04/2019", "12/26/2018"]
    assert values(text + " {DATE:3 mars}", who, dates=one_day) == ["05/03/2019", "4 mars"]
    plain, spans = marked(text)
    ambiguous = OUTCOMES["ambiguous_dates"]
    assert scrubbed([plain], [spans], "surrogate", dates=one_day).outcomes.tolist() == [ambiguous]
    assert scrubbed([plain], [spans], "surrogate", dates=DateOptions(order="dmy")).outcomes.tolist() == [0]


@given(
    st.lists(st.dates(date(1920, 1, 1), date(2080, 1, 1)), min_size=2, max_size=5),
    st.integers(0, 50),
    st.integers(1, 2000),
)
def test_intervals_are_kept_in_every_form(dates: list[date], number: int, days: int) -> None:
    forms = ["{:%Y-%m-%d}", "{:%m/%d/%Y}", "{:%d %B %Y}", "{:%B %d, %Y}", "{:%Y%m%d}"]
    written = [forms[i % len(forms)].format(day) for i, day in enumerate(dates)]
    options = DateOptions(shift_days=days, order="mdy")
    new = values("|".join(f"{{DATE:{each}}}" for each in written), f"p{number}", dates=options)
    moved = [datetime.strptime(each, forms[i % len(forms)][2:-1]).date() for i, each in enumerate(new)]
    shifts = {(b - a).days for a, b in zip(dates, moved, strict=True)}
    assert len(shifts) == 1
    assert 1 <= abs(shifts.pop()) <= days


def test_one_date_in_two_forms_becomes_one_date_without_a_shift() -> None:
    iso, words = values("{DATE:2019-03-12} {DATE:12 March 2019}")
    assert date.fromisoformat(iso).strftime("%-d %B %Y") == words
    assert iso != "2019-03-12"


# ------------------------------------------------------------------------------------------------ offsets

ALPHABET = "abcZ é\u0301ßאب王👩🏽\u200d\n\r\t\0.,'-@/1290"
LABELS = ["NAME", "DATE", "ID", "AGE", "PHONE", "EMAIL", "URL", "IP", "CITY", "HOSPITAL", "ZIP", "QUANTITY", "ODD"]


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[str], list[list[Span]], list[str]]:
    texts = draw(st.lists(st.text(ALPHABET, max_size=40) | st.text(max_size=20), min_size=1, max_size=5))
    spans = []
    for text in texts:
        bounds = st.tuples(st.integers(0, len(text)), st.integers(0, len(text)), st.sampled_from(LABELS))
        spans.append([(min(a, b), max(a, b), label) for a, b, label in draw(st.lists(bounds, max_size=6))])
    individuals = draw(st.lists(st.sampled_from(["p0", "p1"]), min_size=len(texts), max_size=len(texts)))
    return texts, spans, individuals


@settings(max_examples=examples(300))
@given(documents(), st.sampled_from(STYLES), st.none() | st.integers(1, 400))
def test_text_outside_spans_is_the_same_and_offsets_go_forth_and_back(
    corpus: tuple[list[str], list[list[Span]], list[str]], style: Style, days: int | None
) -> None:
    texts, spans, individuals = corpus
    made = scrubbed(texts, spans, style, individuals, dates=DateOptions(shift_days=days))
    edits = made.edits
    for row, (text, new) in enumerate(zip(texts, made.texts.to_pylist(), strict=True)):
        mine = slice(edits.offsets[row], edits.offsets[row + 1])
        old_at = new_at = 0
        covered = np.zeros(len(text), dtype=bool)
        columns = (edits.old_start, edits.old_end, edits.new_start, edits.new_end)
        for old_start, old_end, new_start, new_end in zip(*(column[mine] for column in columns), strict=True):
            assert old_start < old_end
            assert new_start < new_end
            assert text[old_at:old_start] == new[new_at:new_start]
            old, put = text[old_start:old_end], new[new_start:new_end]
            if style != "x" and sum(map(str.isalpha, old)) >= 3:
                assert old != put
            covered[old_start:old_end] = True
            old_at, new_at = old_end, new_end
        assert text[old_at:] == new[new_at:]
        wanted = np.zeros(len(text), dtype=bool)
        for start, end, _ in spans[row]:
            wanted[start:end] = True
        assert not (covered & ~wanted).any()
        assert all(text[at].isspace() for at in np.flatnonzero(wanted & ~covered))
        outside = np.flatnonzero(~covered)
        document = np.full(len(outside), row)
        start, end = edits.to_new(document, outside, outside + 1)
        assert [text[at] for at in outside] == [new[at] for at in start]
        assert (end == start + 1).all()
        assert np.array_equal(edits.to_old(document, start, end), (outside, outside + 1))
    document = np.repeat(np.arange(len(texts)), np.diff(edits.offsets))
    assert np.array_equal(edits.to_new(document, edits.old_start, edits.old_end), (edits.new_start, edits.new_end))
    assert np.array_equal(edits.to_old(document, edits.new_start, edits.new_end), (edits.old_start, edits.old_end))
    kept = OffsetMap.from_columns(pa.table(edits.columns()))
    assert all(np.array_equal(getattr(kept, name), getattr(edits, name)) for name in OffsetMap.__slots__)


@settings(max_examples=examples(50))
@given(documents(), st.sampled_from(STYLES))
def test_batches_order_and_threads_change_nothing(
    corpus: tuple[list[str], list[list[Span]], list[str]], style: Style
) -> None:
    texts, spans, individuals = corpus
    together = scrubbed(texts, spans, style, individuals, num_threads=1).texts.to_pylist()
    assert together == scrubbed(texts, spans, style, individuals, num_threads=2).texts.to_pylist()
    assert together == scrubbed(texts, [row[::-1] for row in spans], style, individuals).texts.to_pylist()
    for row, text in enumerate(texts):
        batch = pa.record_batch({"doc_id": [f"d{row}"], "individual_id": [individuals[row]], "text": [text]})
        rows = [[{"start": start, "end": end, "label": label} for start, end, label in spans[row]]]
        alone = pseudonymise_batch(batch, span_arrays(pa.array(rows, pa.list_(SPAN_TYPE))), style, KEY)
        assert alone.texts.to_pylist() == [together[row]]


def test_spans_map_through_edits_by_hand() -> None:
    made = scrubbed(["by John Smith now", "x Lee"], [[(3, 13, "NAME")], [(2, 5, "NAME")]], "tag")
    assert made.texts.to_pylist() == ["by [NAME] now", "x [NAME]"]
    document = np.array([0, 0, 0, 0, 1, 1])
    start, end = np.array([0, 3, 8, 14, 0, 2]), np.array([2, 13, 17, 17, 1, 5])
    new_start, new_end = made.edits.to_new(document, start, end)
    assert new_start.tolist() == [0, 3, 3, 10, 0, 2]  # one that begins inside an edit begins with it
    assert new_end.tolist() == [2, 9, 13, 13, 1, 8]
    back = made.edits.to_old(document, new_start, new_end)
    assert [b.tolist() for b in back] == [[0, 3, 3, 14, 0, 2], [2, 13, 17, 17, 1, 5]]
    assert made.spans()[1].tolist() == [3, 2]
    assert made.labels.to_pylist() == ["NAME", "NAME"]


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("span", [(0, 5, "NAME"), (-1, 2, "NAME"), (3, 2, "NAME"), (5, 9, "NAME")])
@pytest.mark.parametrize("text", ["John", "Jöhn"])
def test_a_span_that_does_not_fit_is_refused_without_text(text: str, span: Span) -> None:
    with pytest.raises(CorpusError, match="document 1 of the batch: span 0") as caught:
        scrubbed(["fine", text], [[], [span]], "tag")
    assert text not in str(caught.value)


def test_settings_are_checked() -> None:
    with pytest.raises(PolicyError, match="style"):
        scrubbed(["a"], [[]], "blur")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="key: expected 32 bytes, got 3"):
        scrubbed(["a"], [[]], "tag", key=b"abc")
    with pytest.raises(PolicyError, match="shift_days"):
        DateOptions(shift_days=0)
    with pytest.raises(PolicyError, match="date order"):
        DateOptions(order="ymd")  # type: ignore[arg-type]
