"""Words that sentences of the report share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reticent.audit.stats.estimate import Estimate

__all__ = ["interval_of", "listed", "signed"]


def listed(names: Sequence[str]) -> str:
    """Return names as a list in words."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def interval_of(estimate: Estimate) -> str:
    """Return an interval in percent."""
    return f"{signed(estimate.low)} to {signed(estimate.high)}"


def signed(share: float | None) -> str:
    """Return a share in percent, with a minus sign that is one."""
    if share is None:
        return "–"
    text = f"{100 * share:.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")
