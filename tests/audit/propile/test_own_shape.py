"""Decoys of an item's own shape, and the sentence that follows from a model and its base."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime

import phonenumbers
import pytest

from reticent.ext.propile.own_shape import mails_of_others, shaped_decoys
from reticent.ext.propile.self_probe import Finding, self_page


@pytest.mark.parametrize(
    ("number", "language", "region"),
    [
        ("06 12 34 56 78", "fr", "FR"),
        ("01.42.34.56.78", "fr", "FR"),
        ("+33 6 12 34 56 78", "en", "FR"),
        ("+41 79 123 45 67", "fr", "CH"),
        ("(202) 456-1111", "en", "US"),
        ("020 7946 0018", "en", "GB"),
    ],
)
def test_a_phone_decoy_is_a_number_of_the_same_country_kind_and_form(number: str, language: str, region: str) -> None:
    found = shaped_decoys(number, "phone", 50, language=language)
    assert len(set(found)) == 50
    own = phonenumbers.parse(number, region)
    for decoy in found:
        assert re.sub(r"\d", "0", decoy) == re.sub(r"\d", "0", number)
        other = phonenumbers.parse(decoy, region)
        assert phonenumbers.is_valid_number(other)
        assert other.country_code == own.country_code
        assert phonenumbers.number_type(other) == phonenumbers.number_type(own)
        assert decoy != number


@pytest.mark.parametrize(
    ("date", "form"), [("12/03/1961", "%d/%m/%Y"), ("1961-03-12", "%Y-%m-%d"), ("3/25/61", "%m/%d/%y")]
)
def test_a_date_decoy_is_a_date_of_the_same_form(date: str, form: str) -> None:
    found = shaped_decoys(date, "birth_date", 40)
    assert len(found) == 40
    for decoy in found:
        datetime.strptime(decoy, form)


@pytest.mark.parametrize(
    ("mail", "name", "form"),
    [
        ("jean.martin42@orange.fr", "Jean Martin", "{0}.{1}##@orange.fr"),
        ("j.martin@chu.example", "Jean MARTIN", "{0:.1}.{1}@chu.example"),
        ("jmartin@chu.example", "Jean Martin", "{i}{1}@chu.example"),
        ("martinje7@x.example", "Jean Martin", "{1}{j}#@x.example"),
    ],
)
def test_a_mail_decoy_is_the_address_of_another_name_made_in_the_same_way(mail: str, name: str, form: str) -> None:
    found = mails_of_others(mail, name, 60, language="fr")
    assert len({decoy for _, decoy in found}) == 60
    for called, decoy in found:
        plain = "".join(c for c in unicodedata.normalize("NFKD", called.lower()) if not unicodedata.combining(c))
        first, last = re.findall(r"\w+", plain)[0], re.findall(r"\w+", plain)[-1]
        wanted = form.format(first, last, i=first[:1], j=first[:2])
        assert re.sub(r"\d", "#", decoy) == wanted
        assert called.split()[-1].isupper() is name.split()[-1].isupper()
        assert (called, decoy) != (name, mail)


def test_a_name_of_no_letters_has_no_mail_decoys_and_strange_letters_are_drawn() -> None:
    assert mails_of_others("x@y.example", "42", 5) == []
    nick = {decoy.partition("@")[0] for _, decoy in mails_of_others("zorro99@y.example", "Jean Martin", 20)}
    assert len(nick) == 20
    assert all(re.fullmatch(r"[a-z]{5}\d\d", local) for local in nick)


def test_an_id_keeps_its_form_and_a_doctors_name_has_no_decoy_of_its_own() -> None:
    found = shaped_decoys("AB-12 3456", "patient_id", 30)
    assert len(found) == 30
    assert all(re.fullmatch(r"[A-Z]{2}-\d\d \d{4}", decoy) for decoy in found)
    assert shaped_decoys("Dr Durand", "doctor", 30) == []
    assert all(re.fullmatch(r"\d\d rue Haute", decoy) for decoy in shaped_decoys("12 rue Haute", "address", 30))


def test_decoys_are_the_same_for_the_same_seed() -> None:
    first, again, other = (shaped_decoys("06 12 34 56 78", "phone", 9, language="fr", seed=s) for s in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("rank", "said", "base_rank", "base_said", "origin", "sentence"),
    [
        (1, False, 1, False, "guessed", "shows the same link: the item can be guessed"),
        (1, False, 150, False, "learned", "so this one has learned it"),
        (5, False, 1, False, "guessed", "shows the same link"),
        (150, True, 150, False, "learned", "so this one has learned it"),
        (150, True, 150, True, "guessed", "shows the same link"),
        (1, False, 5, False, "partly", "shows a weaker sign of this link"),
        (150, True, 5, False, "partly", "shows a weaker sign of this link"),
        (1, False, None, None, "", "cannot tell whether it has learned this"),
        (150, False, 1, False, "", ""),
    ],
)
def test_the_base_model_says_whether_an_item_was_learned_or_can_be_guessed(
    rank: int, said: bool, base_rank: int | None, base_said: bool | None, origin: str, sentence: str
) -> None:
    finding = Finding("phone", 5, 1e-4, rank, 200, said, base_rank, base_said)
    assert finding.origin == origin
    page = self_page([finding], language="en", invented=True)
    assert sentence in page
    assert ("was made from" in page) == bool(sentence)
    french = self_page([finding], language="fr", invented=True)
    assert ("dont il est issu" in french) == bool(sentence)
