"""Decoys with the format of a true item, so that only its content, not its country or format, tells it from them.

A phone number in French form is likelier than 500 in US form for a model that saw neither. So a decoy keeps the format
of the item: its separators and its length; of a phone number the country and the line type, so that it is a number that
could be given out; of a date, it is a valid date. Digits and letters are drawn anew.

A mail address gives away the name in it, and a character-level model knows how addresses are made of names. So a decoy
is the address of an invented individual, made of the invented name as the true one is of its own, at the same host; the
prompt then holds that name.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np

from reticent.engine.names import name_lists
from reticent.engine.randomness import generator

#: Tries for one decoy; an item of which there are few of its shape has few decoys.
TRIES = 20
#: Country that a number without one is read in.
REGIONS = {"fr": ("FR", "BE", "CH"), "en": ("US", "GB", "CA")}
DATE = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})")


def shaped_decoys(item: str, target: str, num: int, *, language: str = "en", seed: int = 0) -> list[str]:
    """Return up to ``num`` distinct random strings in the format of a personal item (a phone number or date, say),
    never the item itself.

    Parameters
    ----------
    target : type of the item, "phone" say

    Examples
    --------
    >>> shaped_decoys("06 12 34 56 78", "phone", 2, language="fr")
    ['06 14 62 78 04', '06 70 72 73 46']
    """
    random = generator(seed, 31)
    found: dict[str, None] = {}
    kind = _decoy_kind(item, target)
    phone = _phone_drawer(item, language) if kind == "phone" else None
    for _ in range(num * TRIES):
        if len(found) == num:
            break
        if kind == "date":
            decoy = _draw_date(item, random)
        elif phone is not None:
            decoy = phone(random)
        else:
            decoy = _redraw_characters(item, random, letters=target not in WORDED)
        if decoy is not None and decoy != item:
            found[decoy] = None
    return list(found)


#: Types whose letters are words: only their digits are drawn.
WORDED = frozenset({"address", "street", "doctor", "hospital", "university", "city", "town", "relationship"})


def _decoy_kind(item: str, target: str) -> str:
    """Return how decoys (random strings in the format of an item) are drawn: as a "date", as a "phone" number, or as
    "other".
    """
    if DATE.fullmatch(item.strip()):
        return "date"
    return "phone" if target in ("phone", "fax") else "other"


def _random_digit(random: np.random.Generator) -> str:
    """Return a random decimal digit."""
    return str(int(random.integers(10)))


def _redraw_characters(item: str, random: np.random.Generator, *, letters: bool, keep: int = 0) -> str | None:
    """Return the item with its digits after the first ``keep`` replaced by random ones, and with ``letters`` its
    letters too; None if it has no such digit.
    """
    drawn, seen, num_digits = [], 0, sum(c.isdigit() for c in item)
    for c in item:
        if c.isascii() and c.isdigit():
            seen += 1
            drawn.append(c if seen <= keep else _random_digit(random))
        elif letters and num_digits and c.isascii() and c.isalpha():
            pool = string.ascii_uppercase if c.isupper() else string.ascii_lowercase
            drawn.append(pool[int(random.integers(26))])
        else:
            drawn.append(c)
    return "".join(drawn) if num_digits > keep else None


def _phone_drawer(item: str, language: str) -> Callable[[np.random.Generator], str | None]:
    """Return a function that draws a random phone number of the item's country and line type or, if the item is no
    valid number, one with its first two digits.
    """
    import phonenumbers

    for region in REGIONS.get(language, REGIONS["en"]):
        number = _parse_phone(item, region)
        if number is not None and phonenumbers.is_valid_number(number):
            break
    else:
        return lambda random: _redraw_characters(item, random, letters=False, keep=2)
    national = phonenumbers.national_significant_number(number)
    kind = phonenumbers.number_type(number)
    # Country, trunk digit and the first digit of the number: the kind of line or the region hangs on them.
    keep = len(re.sub(r"\D", "", item)) - len(national) + 1

    def draw(random: np.random.Generator) -> str | None:
        """Return a random phone number with the format and the first digits of the item; None if it is not valid, or of
        another line type (mobile, landline)."""
        decoy = _redraw_characters(item, random, letters=False, keep=keep)
        other = None if decoy is None else _parse_phone(decoy, region)
        # A number that is not valid is of no kind.
        return decoy if other is not None and phonenumbers.number_type(other) == kind else None

    return draw


def _parse_phone(text: str, region: str) -> Any:
    """Return a text parsed as a phone number of a region by the library phonenumbers; None if it is not one."""
    import phonenumbers

    try:
        return phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return None


def _draw_date(item: str, random: np.random.Generator) -> str | None:
    """Return a random date in the format of the item; four-digit years lie in 1930-2011, days are at most 28."""
    found = DATE.fullmatch(item.strip())
    assert found is not None
    first, mark, second, third = found.groups()
    year = str(int(random.integers(1930, 2012)))
    day, month = int(random.integers(1, 29)), int(random.integers(1, 13))

    def format_number(number: int, like: str) -> str:
        """Return a number as text, with a leading zero if ``like`` has two digits."""
        return f"{number:02d}" if len(like) == 2 else str(number)

    if len(first) == 4:
        return mark.join((year, format_number(month, second), format_number(day, third)))
    year = year if len(third) == 4 else year[2:]
    parts = (month, day) if int(second) > 12 else (day, month)
    return mark.join((format_number(parts[0], first), format_number(parts[1], second), year))


def is_mail(item: str) -> bool:
    """Return whether a personal item is an e-mail address."""
    return "@" in item


def mails_of_others(item: str, name: str, num: int, *, language: str = "en", seed: int = 0) -> list[tuple[str, str]]:
    """Return up to ``num`` (name, mail address) pairs of invented people whose addresses are built as ``item`` is from
    ``name``.

    Names have as many parts as ``name``; digits, and letters that come from no name, are drawn anew.

    Examples
    --------
    >>> mails_of_others("j.martin62@orange.fr", "Jean Martin", 2, language="fr")
    [('Kenza Benoît', 'k.benoit38@orange.fr'), ('Sophie Capelle', 's.capelle30@orange.fr')]
    """
    random = generator(seed, 37)
    lists = {kind: np.array(names) for kind, names in name_lists(language).items()}  # once, not for each name
    own = WORD.findall(name)
    found: dict[str, str] = {}
    for _ in range(num * TRIES):
        if len(found) == num or not own:
            break
        given = lists["women"] if random.random() < 0.5 else lists["men"]
        drawn = [str(random.choice(given)) for _ in own[1:]] + [str(random.choice(lists["surnames"]))]
        other = dict(zip(own, drawn, strict=True))
        mail = _address_for_name(
            item, {_ascii_letters(word): _ascii_letters(drawn) for word, drawn in other.items()}, random
        )
        called = WORD.sub(lambda word, other=other: _match_case(other[word[0]], word[0]), name)  # type: ignore[misc]
        if mail != item and called.casefold() != name.casefold():
            found[mail] = called
    return [(called, mail) for mail, called in found.items()]


WORD = re.compile(r"[^\W\d_]+")


def _ascii_letters(word: str) -> str:
    """Return a word in lower-case ASCII letters without accents, as in mail addresses."""
    plain = unicodedata.normalize("NFKD", word.casefold())
    return "".join(c for c in plain if c.isascii() and c.isalpha())


def _match_case(word: str, like: str) -> str:
    """Return a word in the letter case (upper, lower or mixed) of another."""
    return word.upper() if like.isupper() and len(like) > 1 else word.lower() if like.islower() else word


def _address_for_name(item: str, other: dict[str, str], random: np.random.Generator) -> str:
    """Return a mail address with the parts of the owner's name replaced by those of another (``other``: old -> new) and
    its digits drawn anew.
    """
    local, at, host = item.partition("@")

    def replace_part(match: re.Match[str]) -> str:
        """Return the replacement of a run of letters or digits in the true e-mail address: as many random digits, or
        the letters with this person's name or initials changed to another person's.
        """
        part = match[0].casefold()
        if part.isdigit():
            return "".join(_random_digit(random) for _ in part)
        for own, drawn in sorted(other.items(), key=lambda pair: -len(pair[0])):
            if own and own in part:
                before, _, after = part.partition(own)
                return _replace_initials(before, other, random) + drawn + _replace_initials(after, other, random)
        return _replace_initials(part, other, random)

    return re.sub(r"[^\W\d_]+|\d+", replace_part, local) + at + host


def _replace_initials(part: str, new_names: dict[str, str], random: np.random.Generator) -> str:
    """Return as many initial letters of the new name as ``part`` has letters, if ``part`` is the beginning of one of
    the owner's names (``new_names``: owner's name -> new name). Else return as many random letters.
    """
    for own, drawn in new_names.items():
        if part and own.startswith(part):
            return drawn[: len(part)]
    return "".join(string.ascii_lowercase[int(random.integers(26))] for _ in part)
