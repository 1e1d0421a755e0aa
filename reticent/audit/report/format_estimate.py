"""Formats of estimates and counts in the tables and sentences of a report; every zero has its bound."""

from __future__ import annotations

import math

from reticent.audit.evidence.leakage import Privacy
from reticent.audit.stats.estimate import Estimate
from reticent.audit.texts import ENGLISH, NO_BREAK, Texts, digits_beside, outward_ends


def value(estimate: Estimate | None, digits: int = 3, t: Texts = ENGLISH) -> str:
    """Return an estimate's value as text in the language of ``t``. A dash stands for a missing value, for 0 or 1
    without an interval, and if the value and both ends of its interval are 0."""
    if estimate is None or estimate.value is None:
        return "–"
    if estimate.value in (0, 1) and (estimate.low is None or estimate.high is None):
        return "–"
    if estimate.value == estimate.low == estimate.high == 0:
        return "–"
    shown = t.number(estimate.value, digits)
    if estimate.bound == "above":
        return t("common.above_value", value=shown)
    return t("common.below_value", value=shown) if estimate.bound else shown


def ends(estimate: Estimate | None, digits: int = 3, t: Texts = ENGLISH) -> str:
    """Return an estimate's interval as text, "low to high"; empty without an interval or if the value is shown as a
    dash. For a value of 0 or 1 it is rounded outwards."""
    if estimate is None or estimate.low is None or estimate.high is None or value(estimate) == "–":
        return ""
    assert estimate.value is not None  # else it is a dash
    low, high = outward_ends(estimate.value, estimate.low, estimate.high, digits)
    return t.range(t.number(low, digits), t.number(high, digits))


def beside(number: float, threshold: float, t: Texts = ENGLISH) -> str:
    """Return a number as text, to be shown next to a threshold, with enough digits to show on which side of
    ``threshold`` it lies."""
    return t.number(number, digits_beside(threshold, number))


def spread_of_trainings(estimate: Estimate | None, t: Texts = ENGLISH) -> str:
    """Return the lowest and highest value over trainings with different seeds as text; empty if there is one training
    only."""
    if estimate is None or estimate.seeds is None or value(estimate) == "–":
        return ""
    low, high = (t.number(end, 3) for end in (estimate.seeds.low, estimate.seeds.high))
    # Wrapped only before the numbers: next to a dash a line would break in spite of the spaces.
    return t("numbers.seeds_range", range=t.range(low, high).replace(" ", NO_BREAK))


def leaks(part: Privacy, cell: int, t: Texts = ENGLISH) -> tuple[str, str]:
    """Return two texts for a table cell: how many identifiers the model predicted, and out of how many. If it predicted
    none, the second text also has an upper bound of the leak rate."""
    total, leaked = part.num_identifiers, part.num_leaked
    if total is None or part.types.value is None:
        return "–", t("numbers.too_few_identifiers") if total != 0 else t("numbers.no_identifiers")
    if leaked == 0:
        bound = at_most(part, t)
        if bound is None:
            return "–", t("numbers.not_bounded")
        return "0", t("numbers.of_n_at_most_bound", n=t.count(total), bound=bound).replace("; ", ";\0").replace(
            " ", NO_BREAK
        ).replace("\0", " ")
    return t.count(leaked, cell), t("numbers.of_n", n=t.count(total))


def whole(number: float | None, t: Texts = ENGLISH) -> str:
    """Return an estimated count as text, rounded up so that less than one is not shown as zero; a dash for None."""
    return "–" if number is None else t.count(math.ceil(number - 1e-9))


def percent(share: float | None, t: Texts = ENGLISH) -> str:
    """Return a share in percent as text; small shares, and shares close to 1, keep enough digits to differ from 0 % and
    100 %.

    >>> [percent(share).replace(NO_BREAK, " ") for share in (0.994, 0.0123, 0.0002, 0.9997, 1.0)]
    ['99 %', '1.2 %', '0.02 %', '99.97 %', '100 %']
    """
    if share is None:
        return "–"
    return t.percent(share, 0 if 0.1 <= share < 0.995 or share in (0, 1) else 1)


def at_most(part: Privacy, t: Texts = ENGLISH) -> str | None:
    """Return the upper bound of the leak rate (1 minus the lower end of Privacy) as percent text, rounded up; None
    without an interval."""
    low = part.types.low
    return None if low is None else t.percent(math.ceil(1000 * (1 - low) - 1e-9) / 1000)


def interval_of(estimate: Estimate, t: Texts = ENGLISH) -> str:
    """Return the interval of an estimated share as text in percent, without percent signs."""
    return t.range(points(estimate.low, t), points(estimate.high, t))


def points(share: float | None, t: Texts = ENGLISH) -> str:
    """Return a share, or a difference of shares, as text in percentage points without a percent sign; a dash for
    None.
    """
    return "–" if share is None else t.number(100 * share, 1, whole=100)
