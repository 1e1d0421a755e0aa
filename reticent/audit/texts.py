"""The texts that people read, in every language: report, dossier, card and summary take theirs from ``texts.toml``.

An entry of the catalogue has a key, its English and its French, with the same named values in both; a text that depends
on a count has a form for ``one`` and one for ``other``. `Texts` returns the text of a key in one language, and is the
one place that writes numbers, shares, intervals and dates as that language does. A test holds the code and the
templates to the catalogue; at the end of a run a text that is missing in a language is shown in English.
"""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

from reticent.audit.stats.estimate import Estimate

Language = Literal["en", "fr"]
LANGUAGES: tuple[Language, ...] = ("en", "fr")
#: A text, or its forms for a count of one and for others.
Forms = str | Mapping[str, str]

NO_BREAK, THIN = "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}"
MONTHS = {
    "en": "January February March April May June July August September October November December",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
#: Signs of a number in English -> those of French.
FRENCH_SIGNS = str.maketrans({",": THIN, ".": ","})


class Mark(NamedTuple):
    """A machine-readable statement in a sentence about a model: which risk, which number, and which outcome.

    The outcome is that of a risk against its threshold (`reticent.audit.judgement.rows`), or for a single number
    whether it was `FOUND` to lie above its null value.
    """

    model: str
    risk: str
    number: str
    outcome: str


FOUND, NOT_FOUND, NOT_MEASURED = "found", "not found", "not measured"
#: Outcome of a sentence on the training of a model, which no attack measured.
STATED = "stated"


class Marked(str):
    """A sentence (a `str`) with a `Mark` for each statement about a model in it."""

    marks: tuple[Mark, ...]

    def __new__(cls, text: str, *marks: Mark) -> Marked:
        made = super().__new__(cls, text)
        made.marks = marks
        return made


def marks_of(text: str) -> tuple[Mark, ...]:
    """Return the machine-readable marks (statements on a model) that a text carries with it; an empty tuple if none."""
    return text.marks if isinstance(text, Marked) else ()


def model_name(recipe: str | None, section: str | None) -> str:
    """Return a model's name in marks and sentences: its recipe and, if given, its model section."""
    return f"{recipe} / {section}" if section else str(recipe)


@cache
def catalogue() -> Mapping[str, Mapping[Language, Forms]]:
    """Return the texts of ``texts.toml``: key (dotted path) -> language -> text, or its singular and plural."""
    return dict(_entries(tomllib.loads((files("reticent.audit") / "texts.toml").read_text(encoding="utf-8")), ""))


def _entries(table: Mapping[str, object], path: str) -> Iterator[tuple[str, Mapping[Language, Forms]]]:
    """Yield (key, texts by language) of each entry below a table of ``texts.toml``."""
    for name, value in table.items():
        assert isinstance(value, dict)
        if "en" in value:
            yield f"{path}{name}", value
        else:
            yield from _entries(value, f"{path}{name}.")


class Texts:
    """Renders texts and numbers in one language.

    >>> Texts("en")("common.at_most", value=Texts("en").percent(0.012)).replace(NO_BREAK, " ")
    'at most 1.2 %'
    >>> Texts("fr")("common.at_most", value=Texts("fr").percent(0.012)).replace(NO_BREAK, " ")
    '1,2 % au plus'
    """

    def __init__(self, language: Language = "en"):
        self.language: Language = language

    def __call__(self, key: str, /, **values: object) -> str:
        """Return the text of a key with its values filled in; ``count`` chooses between the singular and plural
        form."""
        entry = catalogue().get(key, {"en": key})
        form = entry.get(self.language, entry["en"])
        if not isinstance(form, str):
            form = form["one" if self._is_singular(values["count"]) else "other"]
        text = form.format(**values) if values else form
        return spaced(text) if self.language == "fr" else text

    def _is_singular(self, count: object) -> bool:
        """Return whether this language uses the singular after this count; French does below 2, as after 0 and 1,5."""
        if isinstance(count, str):  # a fraction, see `epochs`
            return self.language == "fr" and float(count.replace(",", ".")) < 2
        return count == 1 or (self.language == "fr" and count == 0)

    def evidence(self, text: str) -> str:
        """Return the translation into this language of an English text in the evidence, such as a reason or a label. A
        text without translation, such as a name, is returned unchanged."""
        if self.language == "en":
            return text
        return self._translate_whole(text) or self._translate_parts(text) or text

    def _translate_whole(self, text: str) -> str | None:
        """Return an English text of the evidence in this language if the catalogue has the whole text or a pattern that
        fits it, or if it is a number; else None."""
        known, patterns = evidence_texts()
        if text in known:
            return self(known[text])
        for pattern, key in patterns:
            if found := pattern.fullmatch(text):
                return self(key, **{name: self.evidence(value) for name, value in found.groupdict().items()})
        return self.plain(text) if re.fullmatch(r"−?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", text) else None

    def _translate_parts(self, text: str) -> str | None:
        """Return the translation of an evidence text that is a list separated by "; " or ", "; None if a part is
        unknown."""
        for separator in ("; ", ", "):
            if separator in text:
                parts = [self._translate_whole(part) or self._translate_parts(part) for part in text.split(separator)]
                if None not in parts:
                    return (self.apart if separator == "; " else ", ".join)([part for part in parts if part])
        return None

    def listed(self, parts: Sequence[str]) -> str:
        """Return the parts as an enumeration in this language, such as "a, b and c"."""
        if len(parts) < 2:
            return "".join(parts)
        return f"{', '.join(parts[:-1])} {self('common.and')} {parts[-1]}"

    def apart(self, parts: Iterable[str]) -> str:
        """Return the parts joined by semicolons, with the spacing of this language."""
        return f"{THIN if self.language == 'fr' else ''}; ".join(parts)

    # ------------------------------------------------------------------ numbers

    def plain(self, number: object) -> str:
        """Return a number as Python's `str` writes it, with this language's separators."""
        text = str(number)
        return text.translate(FRENCH_SIGNS) if self.language == "fr" else text

    def number(self, value: float, digits: int = 2, whole: float = 1) -> str:
        """Return a number as text with ``digits`` decimals, or more where it would otherwise look like exactly 0 or
        ``whole``."""
        text = f"{value:,.{_telling_digits(value, digits, whole)}f}"
        if float(text.replace(",", "")) == 0:
            text = text.removeprefix("-")
        return self.plain(text).replace("-", "\N{MINUS SIGN}")

    def count(self, number: int | None, cell: int = 0) -> str:
        """Return a count as text. None, for a count too small to be published, becomes "fewer than ``cell``"."""
        return self("common.fewer_than", cell=cell) if number is None else self.plain(f"{number:,}")

    def epochs(self, number: float) -> int | str:
        """Return a number of epochs: an int if it is whole, else a text with its decimals."""
        return int(number) if number == int(number) else self.plain(f"{number:g}")

    def percent(self, share: float, digits: int = 1) -> str:
        """Return a share as text in percent with ``digits`` decimals, or more where it would otherwise look like 0 % or
        100 %."""
        return f"{self.number(100 * share, digits, whole=100)}{NO_BREAK}%"

    def range(self, low: str, high: str) -> str:
        """Return "low to high", in this language, from the texts of an interval's two ends."""
        return self("common.low_to_high", low=low, high=high)

    def threshold(self, at_most: float, *, area: bool) -> str:
        """Return an upper limit as text, with all digits that the job's configuration gives it: a plain number for a
        limit on an AUC (``area``), else in percent."""
        exact = Decimal(f"{at_most if area else 100 * at_most:.10g}")
        digits = max(-int(exact.as_tuple().exponent), 2 if area else 0)
        return self.number(at_most, digits) if area else self.percent(at_most, digits)

    def value(self, estimate: Estimate | None, *, area: bool = False, threshold: float | None = None) -> str:
        """Return an estimate's value as text: a plain number for an AUC (``area``), else in percent. It has enough
        digits to show on which side of ``threshold`` it lies; a dash if it is missing, or 0 or 1 without an interval.
        """
        if estimate is None or estimate.value is None:
            return "–"
        if estimate.value in (0, 1) and (estimate.low is None or estimate.high is None):
            return "–"
        shown = self._number_text(estimate.value, area, _num_decimals(estimate, area, threshold))
        if estimate.bound == "below":
            return self("common.at_most", value=shown)
        if estimate.bound == "above":
            return self("common.at_least", value=shown)
        return shown

    def interval(self, estimate: Estimate | None, *, area: bool = False, threshold: float | None = None) -> str:
        """Return an estimate's confidence interval as text, "low to high": plain numbers for an AUC (``area``), else in
        percent. If the value is 0 or 1, the far end is rounded outwards; empty without an interval."""
        if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
            return ""
        digits = _num_decimals(estimate, area, threshold)
        low, high = outward_ends(estimate.value, estimate.low, estimate.high, digits)
        return self.range(self._number_text(low, area, digits), self._number_text(high, area, digits))

    def _number_text(self, value: float, area: bool, digits: int) -> str:
        """Return a number as text: a plain number with ``digits`` decimals for an AUC (``area``), else in percent with
        ``digits`` - 2 decimals."""
        return self.number(value, digits) if area else self.percent(value, digits - 2)

    def date(self, created: str) -> str:
        """Return the day of an ISO timestamp in words, in this language."""
        day = datetime.datetime.fromisoformat(created).date()
        ordinal = "1er" if self.language == "fr" and day.day == 1 else str(day.day)
        return f"{ordinal} {MONTHS[self.language].split()[day.month - 1]} {day.year}".replace(" ", NO_BREAK)


#: The texts of outputs in English alone: the terminal, and a model's card.
ENGLISH = Texts("en")


def _num_decimals(estimate: Estimate, area: bool, threshold: float | None) -> int:
    """Return how many decimals of an estimate to show: two for an AUC (``area``), three for a share, and more where
    rounding would move it to the other side of ``threshold``."""
    digits = 2 if area else 3
    return digits if threshold is None else digits_beside(threshold, estimate, digits)


def outward_ends(value: float, low: float, high: float, digits: int) -> tuple[float, float]:
    """Return (low, high) of an interval, rounded outwards to ``digits`` decimals at one end: the upper end for a
    ``value`` of 0, the lower for 1. Other ends stay as they are.

    >>> outward_ends(0.0, 0.0, 0.00037, 3), outward_ends(1.0, 0.99963, 1.0, 3)
    ((0.0, 0.001), (0.999, 1.0))
    """
    scale = 10**digits
    if value == 0:
        high = math.ceil(scale * high - 1e-9) / scale
    if value == 1:
        low = math.floor(scale * low + 1e-9) / scale
    return low, high


def _telling_digits(value: float, digits: int, whole: float) -> int:
    """Return the number of decimals, ``digits`` or more, with which a positive number is not rounded to 0 or ``whole``;
    ``digits`` if nine decimals are too few."""
    if value <= 0 or value == whole:
        return digits
    return next((more for more in range(digits, 10) if round(value, more) not in (0, whole)), digits)


def digits_beside(threshold: float, estimate: Estimate | float | None, digits: int = 3) -> int:
    """Return the number of decimals, ``digits`` or more, with which rounding moves neither the number nor an end of its
    interval across ``threshold``, or 1 - ``threshold`` (for AUCs below 0.5).

    >>> digits_beside(0.05, 0.0496), digits_beside(0.05, 0.05), digits_beside(0.05, 0.05002)
    (3, 3, 5)
    """
    numbers = (
        [estimate] if isinstance(estimate, float) else [estimate.value, estimate.low, estimate.high] if estimate else []
    )
    known = [number for number in numbers if number is not None]

    def sides(number: float) -> tuple[bool, bool]:
        """Return two comparisons of a number: whether it is above ``threshold``, and whether it is below 1 -
        ``threshold``."""
        return number > threshold, number < 1 - threshold

    agree = (more for more in range(digits, 9) if all(sides(round(n, more)) == sides(n) for n in known))
    return next(agree, 9)


def capital(text: str) -> str:
    """Return the text with its first letter in upper case; the rest is unchanged."""
    return f"{text[:1].upper()}{text[1:]}"


def spaced(text: str) -> str:
    """Return French text with non-breaking spaces before double punctuation and inside quotation marks."""
    text = re.sub(r" ([;!?])", THIN + r"\1", text)
    text = re.sub(r"(?<=\d) (?=\d{3}\b)", THIN, text)
    return re.sub(r" ([:%»])", NO_BREAK + r"\1", text).replace("« ", "«" + NO_BREAK)


@cache
def evidence_texts() -> tuple[Mapping[str, str], Sequence[tuple[re.Pattern[str], str]]]:
    """Return two look-ups for translating English texts of the evidence: text -> catalogue key, and a list of (pattern,
    key) for texts that contain values, longest pattern first."""
    known: dict[str, str] = {}
    patterns: list[tuple[re.Pattern[str], str]] = []
    for key, entry in catalogue().items():
        english = entry["en"]
        if key.startswith("evidence.") and isinstance(english, str):
            if "{" in english:
                parts = re.split(r"\{(\w+)\}", english)
                parts[::2] = [re.escape(part) for part in parts[::2]]
                parts[1::2] = [f"(?P<{name}>.+?)" for name in parts[1::2]]
                patterns.append((re.compile("".join(parts)), key))
            else:
                known[english] = key
    return known, sorted(patterns, key=lambda row: -len(re.sub(r"\(\?P.*?\)", "", row[0].pattern)))
