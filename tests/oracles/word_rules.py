"""The word rule in plain Python, as it is and as it was: an oracle for the lab, and what a change of the rule changed.

Upon UAX #29 as its text has it, by the tables of the ``regex`` library. Slow: a loop over characters, each distinct
stretch between white spaces once. ``old`` is the rule before symbols were counted: words were the segments that hold a
letter or a digit, and a zero-width space ended one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

import regex

__all__ = ["Rule", "is_ignorable", "is_space", "is_unspaced", "seen", "supports", "words_of"]

Rule = Literal["old", "new"]

_CLASSES = (
    "CR", "LF", "Newline", "Extend", "ZWJ", "Format", "Regional_Indicator", "Katakana", "Hebrew_Letter", "ALetter",
    "Single_Quote", "Double_Quote", "MidNumLet", "MidLetter", "MidNum", "Numeric", "ExtendNumLet", "WSegSpace",
)  # fmt: skip
_CLASS = regex.compile("|".join(rf"(?P<{name}>\p{{Word_Break={name}}})" for name in _CLASSES))
_LETTER = regex.compile(r"\p{Alphabetic}")
_NUMBER = regex.compile(r"\p{N}")
_IGNORABLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
_PICTURE = regex.compile(r"\p{Extended_Pictographic}")
_COUNTED = regex.compile(
    r"(?V1)[[\p{Co}\p{Cn}\p{RI}\p{Block=Braille_Patterns}\p{Emoji}&&[\p{Co}\p{Cn}\p{So}\p{Sk}]]"
    r"--[\p{Default_Ignorable_Code_Point}\x00-\xff\u2190-\u21ff\u27a1\u2900-\u297f\u2b00-\u2b11]]"
)
_UNSPACED = regex.compile(
    r"(?V1)[[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}"
    r"\p{Script=Myanmar}\p{Script=Tai_Le}\p{Script=New_Tai_Lue}\p{Script=Tai_Tham}\p{Script=Tai_Viet}\p{Script=Ahom}"
    r"\u30fc\uff70\uff9e\uff9f]&&[\p{L}\u3007]]"
)
_SKIPPED = ("Extend", "Format", "ZWJ")
_LINE = ("CR", "LF", "Newline")
_AH = ("ALetter", "Hebrew_Letter")
_MID_LETTER = ("MidLetter", "MidNumLet", "Single_Quote")
_MID_NUMBER = ("MidNum", "MidNumLet", "Single_Quote")
_RUN = ("ALetter", "Hebrew_Letter", "Numeric", "Katakana", "ExtendNumLet")
_BLANK = regex.compile(r"[ \n\r\t]+")


def is_space(c: str) -> bool:
    """Unicode's White_Space; `str.isspace` also takes the separators U+001C to U+001F."""
    return c.isspace() and c not in "\x1c\x1d\x1e\x1f"


def is_ignorable(c: str) -> bool:
    """Unicode's Default_Ignorable_Code_Point."""
    return _IGNORABLE.match(c) is not None


def is_unspaced(c: str) -> bool:
    """A letter of a script that writes no spaces between words."""
    return _UNSPACED.match(c) is not None


def seen(word: str) -> str:
    """Return the word less what prints nothing."""
    return _IGNORABLE.sub("", word)


@lru_cache(1 << 16)
def _class(c: str) -> str:
    match = _CLASS.match(c)
    return (match.lastgroup or "Other") if match else "Other"


def _segments(text: str) -> list[tuple[int, int]]:
    classes = [_class(c) for c in text]
    cuts = [at for at in range(1, len(text)) if _is_break(text, classes, at)]
    return list(zip([0, *cuts], [*cuts, len(text)], strict=True)) if text else []


def _is_break(text: str, classes: list[str], at: int) -> bool:
    """WB3 to WB999 between the characters ``at - 1`` and ``at``."""
    a, b = classes[at - 1], classes[at]
    if (a, b) == ("CR", "LF"):
        return False
    if a in _LINE or b in _LINE:
        return True
    if (a == "ZWJ" and _PICTURE.match(text[at])) or a == b == "WSegSpace" or b in _SKIPPED:
        return False
    left = _left_of(classes, at)
    a, before = next(left), next(left, "")
    after = next((c for c in classes[at + 1 :] if c not in _SKIPPED), "")
    if a in _RUN and b in _RUN:
        return "Katakana" in (a, b) and not (a == b or "ExtendNumLet" in (a, b))
    if (a, b) == ("Hebrew_Letter", "Single_Quote"):
        return False
    if (a, b) == ("Regional_Indicator", "Regional_Indicator"):
        run = 0
        for one in _left_of(classes, at):
            if one != "Regional_Indicator":
                break
            run += 1
        return run % 2 == 0
    joined = (
        (a in _AH and b in _MID_LETTER and after in _AH)
        or (before in _AH and a in _MID_LETTER and b in _AH)
        or (a == after == "Hebrew_Letter" and b == "Double_Quote")
        or (before == b == "Hebrew_Letter" and a == "Double_Quote")
        or (before == b == "Numeric" and a in _MID_NUMBER)
        or (a == after == "Numeric" and b in _MID_NUMBER)
    )
    return not joined


def _left_of(classes: list[str], at: int) -> Iterator[str]:
    """Classes to the left, less what WB4 skips."""
    for place in range(at - 1, -1, -1):
        one = classes[place]
        if one not in _SKIPPED:
            yield one
        elif place == 0 or classes[place - 1] in _LINE:
            yield "Other"


def words_of(text: str, rule: Rule) -> list[tuple[int, int]]:
    """Return the bounds of the words of a text in characters."""
    found, at = [], 0
    for blank in [*_BLANK.finditer(text), None]:
        end = blank.start() if blank else len(text)
        found += [(at + a, at + b) for a, b in _words_of_stretch(text[at:end], rule)]
        at = blank.end() if blank else end
    return found


@lru_cache(1 << 20)
def _words_of_stretch(text: str, rule: Rule) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    digit, run_end = False, -1
    for start, end in _segments(_as_seen(text.replace("\u202f", "\u2003")) if rule == "new" else text):
        segment = text[start:end]
        has_digit = _NUMBER.search(segment) is not None
        if has_digit or _LETTER.search(segment):
            between = text[found[-1][1] : start] if found else ""
            while is_space(text[start]):
                start += 1
            if has_digit and digit and _joins(between, rule):
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
            digit = has_digit
        elif rule == "new" and _COUNTED.match(segment):
            if run_end == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
            digit, run_end = False, end
    return tuple(found)


def _joins(between: str, rule: Rule) -> bool:
    rest = between[1:] if rule == "old" else seen(between[1:])
    return between[:1] in ("-", "/", ".", ":") and between != "" and not rest


def _as_seen(text: str) -> str:
    """The text with what is ignorable and splits words replaced by what is and does not, but for unspaced scripts."""
    shown, neighbours = list(text), [("" if is_ignorable(c) else c) for c in text]
    for at, c in enumerate(text):
        if not neighbours[at] and _class(c) == "Other":
            before = next((one for one in reversed(neighbours[:at]) if one), "")
            after = next((one for one in neighbours[at:] if one), "")
            if not ((before and is_unspaced(before)) or (after and is_unspaced(after))):
                shown[at] = "\u2060"
    return "".join(shown)


def supports(texts: Iterable[str], individuals: Iterable[str], rule: Rule) -> Counter[str]:
    """Return word -> number of individuals that use it, words as NFC."""
    import unicodedata

    used: set[tuple[str, str]] = set()
    for text, individual in zip(texts, individuals, strict=True):
        used |= {(unicodedata.normalize("NFC", text[a:b]), individual) for a, b in words_of(text, rule)}
    return Counter(word for word, _ in used)
