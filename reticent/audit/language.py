"""The languages of report and dossier: English is in code and templates, its French in the dossier's ``fr.toml``.

A string without its French is an error where the page is made, so that no page is half translated.
"""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from reticent.audit.report.shown import digits_beside
from reticent.core.errors import ArtifactError

if TYPE_CHECKING:
    from reticent.audit.dossier.config import Language
    from reticent.audit.stats.estimate import Estimate

__all__ = ["NO_BREAK", "THIN", "Words", "french", "spaced"]

NO_BREAK, THIN = "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}"
MONTHS = {
    "en": "January February March April May June July August September October November December",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}


@cache
def french() -> dict[str, str]:
    """Return English -> French."""
    found: dict[str, str] = tomllib.loads((files("reticent.audit.dossier") / "fr.toml").read_text(encoding="utf-8"))
    return found


class Words:
    """Sentences and numbers of one language."""

    def __init__(self, language: Language):
        self.language = language

    def __call__(self, english: str, **values: object) -> str:
        """Return a string in the language, with its values put in.

        Raises
        ------
        ArtifactError
            There is no French for it.
        """
        text = english
        if self.language == "fr":
            if english not in french():
                raise ArtifactError(f"fr.toml: no French for {english!r}")
            text = french()[english]
        if values:
            text = text.format(**values)
        return spaced(text) if self.language == "fr" else text

    def knows(self, english: str) -> bool:
        """Return whether a string, which another room may have made, has a translation."""
        return english in french()

    def listed(self, parts: list[str]) -> str:
        """Return parts as a list in words."""
        if len(parts) < 2:
            return "".join(parts)
        return f"{', '.join(parts[:-1])} {self('and')} {parts[-1]}"

    def apart(self, parts: Iterable[str]) -> str:
        """Return parts set off by semicolons."""
        return f"{THIN if self.language == 'fr' else ''}; ".join(parts)

    def count(self, number: int | None, cell: int = 0) -> str:
        """Return a count in words; None stands for a count that is too small to publish."""
        if number is None:
            return self("fewer than {cell}", cell=cell)
        return f"{number:,}".replace(",", THIN if self.language == "fr" else ",")

    def number(self, value: float, digits: int = 2) -> str:
        text = f"{value:,.{digits}f}"
        if float(text.replace(",", "")) == 0:
            text = text.removeprefix("-")
        if self.language == "fr":
            text = text.replace(",", THIN).replace(".", ",")
        return text.replace("-", "\N{MINUS SIGN}")

    def percent(self, share: float, digits: int = 1) -> str:
        return f"{self.number(100 * share, digits)}{NO_BREAK}%"

    def threshold(self, at_most: float, *, area: bool) -> str:
        """Return a threshold with all the digits that the job gives it."""
        exact = Decimal(f"{at_most if area else 100 * at_most:.10g}")
        digits = max(-int(exact.as_tuple().exponent), 2 if area else 0)
        return self.number(at_most, digits) if area else self.percent(at_most, digits)

    def value(self, estimate: Estimate | None, *, area: bool = False, threshold: float | None = None) -> str:
        """Return the value of an estimate; a dash where there is none, or a 0 or 1 that has no bound. Beside a
        threshold it has the digits that show on which side of it the number lies.
        """
        if estimate is None or estimate.value is None:
            return "–"
        if estimate.value in (0, 1) and (estimate.low is None or estimate.high is None):
            return "–"
        shown = self._shown(estimate.value, area, _digits(estimate, area, threshold))
        if estimate.bound == "below":
            return self("at most {value}", value=shown)
        if estimate.bound == "above":
            return self("at least {value}", value=shown)
        return shown

    def interval(self, estimate: Estimate | None, *, area: bool = False, threshold: float | None = None) -> str:
        """Return the ends of an interval, rounded outwards at a zero or a one; an empty string where there is none."""
        if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
            return ""
        low, high = estimate.low, estimate.high
        if estimate.value == 0 and not area:  # a bound of a zero is never rounded to less
            high = math.ceil(1000 * high - 1e-9) / 1000
        if estimate.value == 1 and not area:  # nor that of a one to more
            low = math.floor(1000 * low + 1e-9) / 1000
        digits = _digits(estimate, area, threshold)
        shown = {"low": self._shown(low, area, digits), "high": self._shown(high, area, digits)}
        return self("{low} to {high}", **shown).replace(" ", NO_BREAK)

    def _shown(self, value: float, area: bool, digits: int) -> str:
        return self.number(value, digits) if area else self.percent(value, digits - 2)

    def date(self, created: str) -> str:
        """Return a day in words, of a time in ISO format."""
        day = datetime.datetime.fromisoformat(created).date()
        ordinal = "1er" if self.language == "fr" and day.day == 1 else str(day.day)
        return f"{ordinal} {MONTHS[self.language].split()[day.month - 1]} {day.year}".replace(" ", NO_BREAK)


def _digits(estimate: Estimate, area: bool, threshold: float | None) -> int:
    """Return the decimals of a number: two of an area, three of a share, and more beside a threshold that is near."""
    digits = 2 if area else 3
    return digits if threshold is None else digits_beside(threshold, estimate, digits)


def spaced(text: str) -> str:
    """Return text with French typography: no break before a double sign or inside quotation marks."""
    text = re.sub(r" ([;!?%»])", THIN + r"\1", text)
    text = re.sub(r"(?<=\d) (?=\d{3}\b)", THIN, text)
    return text.replace(" :", NO_BREAK + ":").replace("« ", "«" + NO_BREAK)
