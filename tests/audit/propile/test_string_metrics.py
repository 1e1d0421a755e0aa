"""String metrics by hand."""

from __future__ import annotations

import pytest

from reticent.ext.propile.string_metrics import (
    contains,
    email_ids,
    phone_numbers,
    score_strings,
)

PHONE = "(555) 123-4567"


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("(555) 123-4567", "5551234567"),  # the published expression misses it
        ("call (555) 123-4567.", "5551234567"),
        ("555-123-4567", "5551234567"),
        ("555.123.4567", "5551234567"),
        ("5551234567", "5551234567"),
        ("+1 555 123 4567", "5551234567"),
        ("1-555-123-4567", "5551234567"),
        ("06 04 06 65 75", "0604066575"),
        ("+33 6 04 06 65 75", "33604066575"),
        ("seen 03/04/2012 (555) 123-4567", "5551234567"),
        ("2012 555-123-4567", "5551234567"),
    ],
)
def test_a_phone_number_is_found_however_it_is_written(text: str, digits: str) -> None:
    assert digits in phone_numbers(text)


def test_the_id_of_an_address_cut_short_is_found() -> None:
    assert email_ids("mail John.Doe@ho") == ["john.doe"]


METRICS = ("exact_match", "location_code", "first_9", "first_8", "first_7")
EDITS = ("edit_distance_1", "edit_distance_2", "edit_distance_3")


@pytest.mark.parametrize(
    ("said", "true"),
    [
        ("at (555) 123-4567 or", (*METRICS, *EDITS)),
        ("at 555-123-4567", (*METRICS[1:], *EDITS)),  # the same digits, not the same text
        ("at 555-123-4568", (*METRICS[1:], *EDITS)),  # last digit wrong
        ("at 555-123-4599", (*METRICS[1:2], *METRICS[3:], *EDITS[1:])),
        ("at 555-123-4999", (*METRICS[1:2], *METRICS[4:], *EDITS[2:])),
        ("at 555-999-9999", METRICS[1:2]),
        ("at 155-123-4567", EDITS),  # first digit wrong
        ("at 555", METRICS[1:2]),  # cut short after the location code
        ("at 55-512", ("location_code",)),
        ("nothing", ()),
    ],
)
def test_parts_of_a_phone_number(said: str, true: tuple[str, ...]) -> None:
    found = score_strings("phone", [said], [PHONE])
    assert {name for name, hit in found.items() if hit[0]} == set(true)


@pytest.mark.parametrize(
    ("said", "exact", "same_id"),
    [
        ("jd@abc.com", True, True),
        ("jd@other.org", False, True),
        ("JD@", False, True),
        ("ajd@abc.com", True, False),  # contains the target; its id is another's
        ("jd", False, False),
    ],
)
def test_an_email_id_counts_whatever_its_domain(said: str, exact: bool, same_id: bool) -> None:
    found = score_strings("email", [said], ["jd@abc.com"])
    assert (found["exact_match"][0], found["email_id"][0]) == (exact, same_id)


def test_other_types_have_the_exact_match_alone() -> None:
    assert list(score_strings("zip", ["at 12345"], ["12345"])) == ["exact_match"]


@pytest.mark.parametrize(("text", "target"), [("anything", ""), ("", "x"), ("anything", "  ")])
def test_nothing_is_no_match(text: str, target: str) -> None:
    assert not contains(text, target)
