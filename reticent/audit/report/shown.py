"""Formats of estimates and counts on a page; every zero has its bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reticent.audit.evidence.leakage import Privacy
    from reticent.audit.stats.estimate import Estimate

__all__ = ["at_most", "beside", "count", "digits_beside", "ends", "leaks", "percent", "trainings", "value", "whole"]


def value(estimate: Estimate | None, digits: int = 3) -> str:
    """Format the value of an estimate; a 0 or 1 without its bound is not shown."""
    if estimate is None or estimate.value is None:
        return "–"
    if estimate.value in (0, 1) and (estimate.low is None or estimate.high is None):
        return "–"
    if estimate.value == estimate.low == estimate.high == 0:
        return "–"
    bound = f"{estimate.bound} " if estimate.bound else ""
    return f"{bound}{_number(estimate.value, digits)}"


def ends(estimate: Estimate | None, digits: int = 3) -> str:
    """Format the interval of an estimate for the small line under its value."""
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return ""
    return f"{_number(estimate.low, digits)} to {_number(estimate.high, digits)}"


def digits_beside(threshold: float, estimate: Estimate | float | None, digits: int = 3) -> int:
    """Return the decimals, ``digits`` or more, at which a number and the ends of its interval are written on the side
    of a threshold on which they lie; an area below chance lies as far beyond the threshold as its mirror image.

    >>> digits_beside(0.05, 0.0496), digits_beside(0.05, 0.05), digits_beside(0.05, 0.05002)
    (3, 3, 5)
    """
    numbers = (
        [estimate] if isinstance(estimate, float) else [estimate.value, estimate.low, estimate.high] if estimate else []
    )
    known = [number for number in numbers if number is not None]

    def sides(number: float) -> tuple[bool, bool]:
        return number > threshold, number < 1 - threshold

    agree = (more for more in range(digits, 9) if all(sides(round(n, more)) == sides(n) for n in known))
    return next(agree, 9)


def beside(number: float, threshold: float) -> str:
    """Format a number that stands beside its threshold."""
    return _number(number, digits_beside(threshold, number))


def trainings(estimate: Estimate | None, digits: int = 3) -> str:
    """Format the lowest and the highest of several trainings, for the line under the interval."""
    if estimate is None or estimate.seeds is None or value(estimate) == "–":
        return ""
    spread = estimate.seeds
    # Wrapped only before the numbers: next to a dash a line would break in spite of the spaces.
    return f"seeds {_number(spread.low, digits)} to {_number(spread.high, digits)}".replace(" to ", "\xa0to\xa0")


def _number(number: float, digits: int) -> str:
    text = f"{number:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def leaks(part: Privacy, cell: int) -> tuple[str, str]:
    """Format the number of predicted identifiers, and the small line under it; a zero has its upper bound."""
    total, leaked = part.num_identifiers, part.num_leaked
    if total is None or part.types.value is None:
        return "–", "too few identifiers" if total != 0 else "no identifiers"
    if leaked is None:
        return f"fewer than {cell}", f"of {total:,}"
    if leaked == 0:
        bound = at_most(part)
        return (
            ("–", "not bounded")
            if bound is None
            else ("0", f"of\N{NO-BREAK SPACE}{total:,}; at\N{NO-BREAK SPACE}most\N{NO-BREAK SPACE}{bound}")
        )
    return f"{leaked:,}", f"of {total:,}"


def count(number: int | None, cell: int) -> str:
    """Format a count that may be too small to publish."""
    return f"fewer than {cell}" if number is None else f"{number:,}"


def whole(number: float | None) -> str:
    """Format an estimated number of things, rounded up: an estimate of less than one is not none."""
    return "–" if number is None else f"{math.ceil(number - 1e-9):,}"


def percent(share: float | None) -> str:
    """Format a share; small ones, and shares close to all, keep a digit, and more where none is 0 % or 100 %.

    >>> [percent(share).replace("\N{NO-BREAK SPACE}", " ") for share in (0.994, 0.0123, 0.0002, 0.9997, 1.0)]
    ['99 %', '1.2 %', '0.02 %', '99.97 %', '100 %']
    """
    if share is None:
        return "–"
    digits = 0 if 0.1 <= share < 0.995 or share in (0, 1) else 1
    while share not in (0, 1) and round(100 * share, digits) in (0, 100) and digits < 9:
        digits += 1  # what is not none, or not all, is not written as such
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def at_most(part: Privacy) -> str | None:
    """Format the upper bound of the leak rate of a part in which nothing leaked, rounded up; None without a bound."""
    low = part.types.low
    return None if low is None else f"{math.ceil(1000 * (1 - low) - 1e-9) / 10:.1f}\N{NO-BREAK SPACE}%"
