"""Several trainings of one recipe as one entry: means over the seeds, beside intervals over individuals.

Two spreads, never mixed. `low` and `high` stay what they are for a single training: a 95 % interval over individuals,
of the n individuals it names. Of several trainings they are the means of the intervals' ends. The mean of the trainings
is measured on the same individuals, so its interval is not wider than that on average (the deviation of a mean is at
most the mean of the deviations): what is shown is not too narrow, and three trainings are not taken for three times as
many individuals. How the trainings themselves differ stands under ``seeds``: their number, the lowest and the highest
value, and the standard deviation (n - 1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

__all__ = ["num_seeds", "over_seeds"]

Models = Sequence[dict[str, Any]]


def over_seeds(models: Models, small_cell: int = 5) -> list[dict[str, Any]]:
    """Return one entry for each (model, objective, recipe, epoch), in the order of the audit.

    Where there is no seed, or one, the entry is the one that is there. Counts are means, rounded up; ledgers are sums;
    ROC curves are those of the first seed. A count that is closed (None) enters as ``small_cell``, the most it can be;
    a mean that is below it then is closed too.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for model in models:
        key = (model.get("model"), model["objective"], model["recipe"], model["epoch"])
        groups.setdefault(key, []).append(model)
    return [entries[0] if len(entries) == 1 else _merged(entries, small_cell) for entries in groups.values()]


def num_seeds(models: Models) -> int:
    """Return the largest number of trainings that one entry of `over_seeds` is a mean of."""
    return max((model.get("num_trainings", 1) for model in models), default=1)


def _merged(entries: Models, cell: int) -> dict[str, Any]:
    first = entries[0]
    merged = {
        key: _mean([entry.get(key) for entry in entries], cell)
        for key in first
        if key not in ("model", "seed", "training", "name", "recipe", "objective", "epoch", "ledger")
    }
    merged |= {key: first[key] for key in ("model", "name", "recipe", "objective", "epoch") if key in first}
    found = [entry.get("best_attack") or {} for entry in entries]
    if len({best.get("attack") for best in found}) > 1:
        merged["best_attack"] = _best_attack(found, merged.get("membership") or {})
    ledgers = [entry["ledger"] for entry in entries if entry.get("ledger")]
    merged["ledger"] = {key: sum(ledger[key] for ledger in ledgers) for key in ledgers[0]} if ledgers else None
    merged["num_trainings"] = len(entries)
    return merged


def _best_attack(found: Sequence[dict[str, Any]], membership: dict[str, Any]) -> dict[str, Any] | None:
    """The best of the means, where each training has another best attack: a mean over these would be of no attack."""
    of_all = [best.get("intervals") or {} for best in found]
    known = [name for name, attack in membership.items() if attack["auc"]["value"] is not None]
    names = [name for name in known if all(name in intervals for intervals in of_all)]
    if not names:
        return None
    ends = {
        name: [statistics.fmean(side) for side in zip(*(own[name] for own in of_all), strict=True)] for name in names
    }
    best = max(names, key=lambda name: ends[name][0])
    auc = {**membership[best]["auc"], "low": ends[best][0], "high": ends[best][1], "method": found[0]["auc"]["method"]}
    return {**found[0], "attack": best, "auc": auc, "intervals": ends}


def _mean(values: Sequence[Any], cell: int) -> Any:
    """The mean of what the entries hold in one place: estimates, counts, and dictionaries and lists of them."""
    first = values[0]
    if all(isinstance(value, dict) for value in values):
        if {"value", "low", "high", "n"} <= first.keys():
            return _estimate(values, cell)
        rest = {key: _mean([value.get(key) for value in values], cell) for key in first if key != "roc"}
        return rest | ({"roc": first["roc"]} if "roc" in first else {})
    if all(isinstance(value, list) and len(value) == len(first) for value in values):
        return [_mean(items, cell) for items in zip(*values, strict=True)]
    if all(value == first for value in values):
        return first
    if all(value is None or isinstance(value, int) for value in values):
        mean = math.ceil(statistics.fmean(cell if value is None else value for value in values))
        return None if None in values and mean < cell else mean  # a bound below the threshold is no count
    if all(isinstance(value, int | float) for value in values):
        return statistics.fmean(values)
    return first


def _estimate(estimates: Sequence[dict[str, Any]], cell: int) -> dict[str, Any]:
    """An estimate of several trainings; not measured where one of them is not."""
    first, known = estimates[0], [e["value"] for e in estimates]
    merged = {**first, "n": _mean([e["n"] for e in estimates], cell)}
    bounds = {e["bound"] for e in estimates if e.get("bound")}
    if any(value is None for value in known) or len(bounds) > 1:
        return {**merged, "value": None, "low": None, "high": None}
    for end in ("low", "high"):
        ends = [e[end] for e in estimates]
        merged[end] = None if any(at is None for at in ends) else statistics.fmean(ends)
    spread = {"n": len(known), "low": min(known), "high": max(known), "sd": statistics.stdev(known)}
    merged |= {"value": statistics.fmean(known), "seeds": spread}
    return merged | ({"bound": bounds.pop()} if bounds else {})
