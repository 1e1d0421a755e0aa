"""`Estimate`: a number with its interval, and how it is closed where it is over few."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from reticent.audit.evidence.json_form import optional
from reticent.audit.evidence.rules import NAME, PARTS, SETTING, TOGETHER, TOTAL

__all__ = ["BOOTSTRAP", "LEVEL", "Estimate", "Spread"]

LEVEL = 0.95
BOOTSTRAP = "bootstrap over individuals"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How several trainings of one recipe differ: their number, the lowest and highest value, standard deviation."""

    n: Annotated[int, TOTAL]
    low: Annotated[float, TOTAL]
    high: Annotated[float, TOTAL]
    sd: Annotated[float, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its two-sided 95 % interval; ``n`` counts ``unit``.

    ``value`` is None where there is nothing to estimate, ``n`` where the estimate was closed for publication. ``bound``
    says that the value is the most ("below") or the least ("above") that it may be, as the exact one would give a small
    count away. ``seeds`` is there where the estimate is a mean over trainings.
    """

    value: Annotated[float | None, TOGETHER]
    low: Annotated[float | None, TOGETHER] = None
    high: Annotated[float | None, TOGETHER] = None
    n: Annotated[int | None, TOGETHER]
    unit: Annotated[str, SETTING] = "individuals"
    method: Annotated[str, NAME] = BOOTSTRAP
    level: Annotated[float, SETTING] = LEVEL
    bound: Annotated[Literal["above", "below"] | None, SETTING] = optional()
    seeds: Annotated[Spread | None, PARTS] = optional()

    def closed(self, raw: Estimate, cell: int) -> Estimate:
        """Nothing of an estimate over 1 to below ``cell``; else all of it."""
        kept = replace(self, value=raw.value, low=raw.low, high=raw.high, n=raw.n)
        return kept.withheld(cell) if 0 < (raw.n or 0) < cell else kept

    def withheld(self, cell: int) -> Estimate:
        """Return the estimate without its numbers."""
        return replace(self, value=None, low=None, high=None, n=None, method=f"fewer than {cell}")

    def bounded(self, value: float, side: Literal["above", "below"]) -> Estimate:
        """Return the bound that stands for an estimate whose exact value would give a small count away."""
        low = value if self.low is None else min(self.low, value)
        high = value if self.high is None else max(self.high, value)
        low, high = (low, 1.0) if side == "above" else (0.0, high)
        return replace(self, value=value, low=low, high=high, bound=side)

    def as_share(self, total: int | None, cell: int) -> Estimate:
        """Return a share of ``total`` individuals; it is a bound if few are counted, or few are not."""
        if self.value is None or not total:
            return self
        # Of passages or other things that an individual has several of, a rate can be less than one individual's.
        count = round(self.value * total)
        if self.value > 0 and count < cell:
            return self.bounded(cell / total, "below")
        if self.value < 1 and total - count < cell:
            return self.bounded(1 - cell / total, "above")
        return self
