"""What is compared: published numbers (``anchors.toml``), rows that measure the same here, and the rule of a verdict.

The rule, fixed and hashed before a run:

- *reproduced*: ours lies within the tolerance of the published number, and on the published side of what it is against;
- *same direction*: not that near, but on the published side, and the interval of the difference does not hold 0;
- *not reproduced*: all other measurements;
- *cannot be*: nothing is measured.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from reticent.audit.stats.estimate import Estimate
from reticent.audit.stats.intervals import square_and_add

REPRODUCED, SAME, NOT, CANNOT = "reproduced", "same direction", "not reproduced", "cannot be"
#: Fields of an anchor that decide a verdict: what the hash is over.
DECIDING = ("place", "key", "value", "tolerance", "against", "sign")
#: The file of a folder that keeps them.
RULES = "rules.json"
Measured = Mapping[str, Any]
Ours = Mapping[str, Measured | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A published number.

    Attributes
    ----------
    place, key : the row it stands in, and the name of our number beside it
    says, on : what it is, and what the authors measured it on
    quote : the words of the source that hold it
    value, tolerance : None where only a direction is published
    against, sign : a number, or the key of another of our numbers in the row; ours is published to lie above it (1),
        below (-1), or wherever (0)
    kind : "measured", or "target" for a number that the source wants or supposes
    """

    source: int
    place: str
    key: str
    says: str
    on: str
    quote: str
    value: float | None = None
    tolerance: float = 0.0
    against: float | str | None = None
    sign: int = 0
    kind: str = "measured"

    def __post_init__(self) -> None:
        assert self.value is not None or self.sign, f"{self.place} {self.key}: neither a number nor a direction"
        assert self.sign == 0 or self.against is not None, f"{self.place} {self.key}: a direction from what?"


def _none(_: Measured) -> Ours:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure, a table or a number of a source, and how ours is made; ``cannot`` says why there is none.

    ``ours`` gives the numbers of the evidence by the key of their anchor, ``figure`` draws them: the evidence of the
    part and the row's anchors by key, to SVG, "" where nothing of ours is to be seen. ``instead`` names parts with
    fewer models, the best first, whose evidence is read while that of the part is not made. ``text`` names another
    text on which the place is measured once more.
    """

    source: int
    place: str
    title: str
    part: str = ""
    instead: tuple[str, ...] = ()
    how: str = ""
    ours: Callable[[Measured], Ours] = _none
    figure: Callable[[Measured, Mapping[str, Anchor]], str] | None = None
    cannot: str = ""
    note: str = ""
    text: str = ""

    def measured_in(self, evidence: Mapping[str, Measured | None]) -> str:
        """The part whose evidence there is; the row's own where there is none."""
        return next((name for name in (self.part, *self.instead) if evidence.get(name) is not None), self.part)

    @property
    def name(self) -> str:
        """The place, with the text where the place has a row of its own for another text."""
        return f"{self.place} on {self.text}" if self.text else self.place

    @property
    def slug(self) -> str:
        return f"{self.source}-{'-'.join(re.findall(r'[a-z0-9]+', self.name.lower()))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is trained and attacked once, for several rows.

    Attributes
    ----------
    make : (size, folder) -> evidence, as JSON; what is done in the folder is not done again, and what cannot be made
        here is None. Without it the record is another study's, which has a command of its own
    on : text, models and people, in a line; names in braces are those of the evidence
    minutes : size -> expected minutes on two cores; a size that has none is not run
    record : a record of another study that holds the evidence already
    read : what makes evidence of a record, or of what ``make`` returns
    """

    name: str
    on: str
    make: Callable[[str, Path], dict[str, Any] | None] | None = None
    minutes: Mapping[str, float] = field(default_factory=dict)
    record: str = ""
    read: Callable[[dict[str, Any]], dict[str, Any]] = dict

    @property
    def file(self) -> str:
        """The name of its record."""
        return self.record or f"reproduction-{self.name}"


@cache
def anchors() -> tuple[Anchor, ...]:
    """All published numbers: single ones, ``rows`` of some with what they share, and cells of printed tables, keyed
    ``row.column``.
    """
    found = tomllib.loads((Path(__file__).parent / "anchors.toml").read_text(encoding="utf-8"))
    return (
        *(Anchor(**{**shared, **row}) for shared in found["anchor"] for row in shared.pop("rows", [{}])),
        *(each for table in found["table"] for each in _of(table)),
    )


def _of(table: dict[str, Any]) -> Iterator[Anchor]:
    columns, rows = table["columns"], table["rows"]
    shared = {name: value for name, value in table.items() if name not in ("columns", "rows")}
    for key, line in rows:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for (column, tolerance), cell in zip(columns, cells, strict=False):
            if column:
                own = {"key": f"{key}.{column}", "says": f"{name}: {column}", "quote": line}
                yield Anchor(**shared, **own, value=float(cell), tolerance=tolerance)


def anchors_of(row: Row) -> dict[str, Anchor]:
    """The published numbers of a row, by key."""
    return {each.key: each for each in anchors() if (each.source, each.place) == (row.source, row.place)}


def rule_hash(source: int) -> str:
    """SHA-256 over what decides the verdicts of a source, 16 digits of it."""
    deciding = [[getattr(each, name) for name in DECIDING] for each in anchors() if each.source == source]
    return hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:16]


def freeze(work: Path, sources: Iterable[int]) -> dict[str, str]:
    """Write down the rules of these sources before anything of them runs, and return them; a folder in which one was
    begun with another rule is refused.
    """
    rules = {str(source): rule_hash(source) for source in sources}
    kept = json.loads((work / RULES).read_text()) if (work / RULES).exists() else {}
    changed = [source for source, rule in rules.items() if kept.get(source, rule) != rule]
    if changed:
        raise SystemExit(f"{work}: was begun with another rule for source {', '.join(changed)}: choose another --work")
    work.mkdir(parents=True, exist_ok=True)
    (work / RULES).write_text(json.dumps(kept | rules))
    return rules


@dataclass(frozen=True, slots=True)
class Verdict:
    """An anchor, ours, the difference from what it is against with its interval, and the word for it."""

    anchor: Anchor
    ours: Measured | None
    difference: tuple[float, float | None, float | None] | None
    word: str


def verdict(anchor: Anchor, ours: Ours) -> Verdict:
    """Compare one published number with ours."""
    found = ours.get(anchor.key)
    other = ours.get(anchor.against) if isinstance(anchor.against, str) else anchor.against
    if found is None or found["value"] is None or (anchor.sign and other is None):
        return Verdict(anchor, None, None, CANNOT)
    difference = None if other is None else _difference(found, other)
    right_side = difference is not None and difference[0] * anchor.sign > 0
    near = anchor.value is not None and abs(found["value"] - anchor.value) <= anchor.tolerance
    if near and (anchor.sign == 0 or right_side):
        word = REPRODUCED
    elif right_side and difference is not None and _apart(difference):
        word = SAME
    else:
        word = NOT
    return Verdict(anchor, found, difference, word)


def _apart(difference: tuple[float, float | None, float | None]) -> bool:
    _, low, high = difference
    return low is not None and high is not None and not low <= 0 <= high


def _difference(found: Measured, other: Measured | float) -> tuple[float, float | None, float | None]:
    if not isinstance(other, Mapping):
        low, high = found.get("low"), found.get("high")
        return found["value"] - other, None if low is None else low - other, None if high is None else high - other
    sides = [
        Estimate(n=0, method="", value=side.get("value"), low=side.get("low"), high=side.get("high"))
        for side in (found, other)
    ]
    if any(end is None for side in sides for end in (side.low, side.high)):
        return found["value"] - other["value"], None, None
    return found["value"] - other["value"], *square_and_add(*sides)


def less(one: Measured | None, other: Measured | None) -> Measured | None:
    """The difference of two estimates; None where one is not measured."""
    if one is None or other is None or one["value"] is None or other["value"] is None:
        return None
    value, low, high = _difference(one, other)
    return {"value": value, "low": low, "high": high, "n": one["n"]}


def over(one: Measured | None, other: Measured | None, minus: float = 0.0) -> Measured | None:
    """The ratio of two positive estimates less a number; its ends are those of far ends, which is wide enough."""
    if one is None or other is None or one["value"] is None or not other["value"]:
        return None
    ends: dict[str, float | None] = {"low": None, "high": None}
    if one["low"] is not None and (other["low"] or 0) > 0:
        ends = {"low": one["low"] / other["high"] - minus, "high": one["high"] / other["low"] - minus}
    return {"value": one["value"] / other["value"] - minus, **ends, "n": one["n"]}


def verdict_of_row(row: Row, verdicts: Sequence[Verdict]) -> str:
    """The word for a row: the weakest of its anchors that were measured, *cannot be* where none was."""
    words = Counter(each.word for each in verdicts)
    return next((word for word in (NOT, SAME, REPRODUCED) if words[word]), CANNOT)
