"""Several trainings of one recipe as one entry: means over the seeds, beside intervals over individuals.

There are two kinds of spread, and they are never mixed. `low` and `high` have the same meaning as for a single
training: a 95 % interval over ``n`` individuals. For several trainings they are the means of the intervals' ends. All
trainings are measured on the same individuals, and the deviation of a mean is at most the mean of the deviations. So
the interval is not too narrow, and three trainings do not count as three times as many individuals. The differences
between the trainings are under ``seeds``: their number, the lowest and the highest value, and the standard deviation
(n - 1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from reticent.audit.evidence.rules import CURVE, rules_of
from reticent.audit.stats.estimate import Estimate, Spread, distance_from_chance

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.evidence.classification import ClassificationEvidence, ClassifiedStart
    from reticent.audit.evidence.extraction import ExtractedModel
    from reticent.audit.evidence.leakage import Ledger
    from reticent.audit.evidence.membership import BestAttack, MeasuredAttack


def average_over_seeds(models: Sequence[ModelEvidence], small_cell: int = 5) -> list[ModelEvidence]:
    """Return one entry for each model section, objective, recipe and epoch: the mean of its trainings with different
    seeds, in the order of the audit.

    An entry with one training, or without a seed, stays as it is. Counts are means, rounded up. Ledgers are sums.
    Curves are those of the first seed. A number that one of the trainings lacks has no mean. A withheld count (None)
    enters as ``small_cell``, its upper bound; a mean that is then below ``small_cell`` is withheld too.
    """
    groups: dict[tuple[str | None, str, str, int], list[ModelEvidence]] = {}
    for model in models:
        groups.setdefault((model.model, model.objective, model.recipe, model.epoch), []).append(model)
    return [entries[0] if len(entries) == 1 else _merge_trainings(entries, small_cell) for entries in groups.values()]


def last_checkpoints(models: Sequence[ModelEvidence], cell: int = 5) -> list[ModelEvidence]:
    """Return the evidence of the last checkpoint (the highest epoch) for each model section, objective and recipe, as a
    mean over seeds, in the order of the audit."""
    last: dict[tuple[str | None, str, str], ModelEvidence] = {}
    for model in average_over_seeds(models, cell):
        key = (model.model, model.objective, model.recipe)
        if key not in last or model.epoch > last[key].epoch:
            last[key] = model
    return list(last.values())


def passages_over_seeds(trainings: Sequence[ExtractedModel], small_cell: int = 5) -> ExtractedModel | None:
    """Return the results of extracting training passages from one checkpoint, as means over its trainings with
    different seeds; canaries are left out. None without a training."""
    if len(trainings) < 2:
        return next(iter(trainings), None)
    own = [replace(entry, seed=None, training=None, canaries=None) for entry in trainings]
    mean: ExtractedModel = _mean_of(own, small_cell)
    return mean


def classification_over_seeds(result: ClassificationEvidence, small_cell: int = 5) -> ClassificationEvidence:
    """Return the classification results with one row for each starting model and epoch: the mean over its trainings
    with different seeds."""
    starts: dict[tuple[str, int], list[ClassifiedStart]] = {}
    for row in result.results:
        starts.setdefault((row.recipe, row.epoch), []).append(replace(row, seed=None))
    return replace(
        result, results=[rows[0] if len(rows) == 1 else _mean_of(rows, small_cell) for rows in starts.values()]
    )


def max_num_trainings(models: Sequence[ModelEvidence]) -> int:
    """Return the largest number of trainings that one of these entries is averaged over; 1 if none is an average."""
    return max((model.num_trainings or 1 for model in models), default=1)


def _merge_trainings(entries: Sequence[ModelEvidence], cell: int) -> ModelEvidence:
    """Return one entry for several trainings that differ in their seed: the mean of their evidence, and the sum of
    their counts of prediction targets (ledgers)."""
    # These fields describe one training and have no mean.
    own = [
        replace(entry, name=entries[0].name, seed=None, training=None, ledger=None, digest=None, kin=None)
        for entry in entries
    ]
    mean: ModelEvidence = _mean_of(own, cell)
    found = [entry.best_attack for entry in entries]
    if len({best and best.attack for best in found}) > 1:
        mean = replace(mean, best_attack=_best_attack(found, mean.membership))
    ledgers = [entry.ledger for entry in entries if entry.ledger]
    return replace(mean, ledger=_sum_ledgers(ledgers) if ledgers else None, num_trainings=len(entries))


def _sum_ledgers(ledgers: Sequence[Ledger]) -> Ledger:
    """Return the sum, field by field, of several trainings' counts of their prediction targets (ledgers)."""
    return replace(
        ledgers[0], **{part.name: sum(getattr(one, part.name) for one in ledgers) for part in fields(ledgers[0])}
    )


def _best_attack(
    best_of_trainings: Sequence[BestAttack | None], membership: dict[str, MeasuredAttack]
) -> BestAttack | None:
    """Return the attack whose AUC has the interval farthest from 0.5, after intervals are averaged over trainings (see
    `best_of`). None if no attack has an interval in every training."""
    first, of_all = best_of_trainings[0], [(best and best.intervals) or {} for best in best_of_trainings]
    known = [name for name, attack in membership.items() if attack.auc.value is not None]
    names = [name for name in known if all(name in intervals for intervals in of_all)]
    if first is None or not names:
        return None
    ends = {
        name: [statistics.fmean(side) for side in zip(*(own[name] for own in of_all), strict=True)] for name in names
    }
    best = max(names, key=lambda name: distance_from_chance(*ends[name]))
    auc = replace(membership[best].auc, low=ends[best][0], high=ends[best][1], method=first.auc.method)
    return replace(first, attack=best, auc=auc, intervals=ends)


def _mean_of(values: Sequence[Any], cell: int) -> Any:
    """Return the mean over trainings of one field of the evidence, be it a number, an estimate, or nested evidence. A
    field that cannot be averaged keeps the first training's value, or becomes None if a training lacks it."""
    first = values[0]
    if all(isinstance(value, Estimate) for value in values):
        more = {part.name for part in fields(first)} - {part.name for part in fields(Estimate)}
        own = {name: _mean_of([getattr(value, name) for value in values], cell) for name in more}
        return replace(_mean_estimate(values, cell), **own)
    if is_dataclass(first) and not isinstance(first, type) and all(type(value) is type(first) for value in values):
        parts = [name for name, rule in rules_of(type(first)).items() if rule is not CURVE]
        of_field = {name: [getattr(value, name) for value in values] for name in parts}
        merged = {name: _mean_of(found, cell) for name, found in of_field.items()}
        if "p_value" in of_field:
            merged["p_value"] = _combine_p_values(of_field["p_value"])
        name = getattr(first, "NAMED_BY_ALL", "")
        if name and all(of_field[name]):  # the mean is over what is worst in each, not over one group
            merged[name] = "; ".join(dict.fromkeys(of_field[name]))
        return replace(first, **merged)
    if all(isinstance(value, dict) for value in values):
        shared = (key for key in first if all(key in value for value in values))
        return {key: _mean_of([value[key] for value in values], cell) for key in shared}
    if all(isinstance(value, list) and len(value) == len(first) for value in values):
        return [_mean_of(items, cell) for items in zip(*values, strict=True)]
    if all(value == first for value in values):
        return first
    if all(value is None or isinstance(value, int) for value in values):
        mean = math.ceil(statistics.fmean(cell if value is None else value for value in values))
        return None if None in values and mean < cell else mean  # a bound below the threshold is no count
    if all(isinstance(value, int | float) for value in values):
        return statistics.fmean(values)
    return None if any(value is None for value in values) else first  # one training's is not the mean of all


def _combine_p_values(values: Sequence[float | None]) -> float | None:
    """Return one p-value for several trainings: the smallest times their number (Bonferroni), at most 1. If all are
    equal, because the test does not depend on the training, it is kept; None if one is missing."""
    if len(set(values)) == 1:
        return values[0]
    known = [value for value in values if value is not None]
    return min(1.0, len(known) * min(known)) if len(known) == len(values) else None


def _mean_estimate(estimates: Sequence[Estimate], cell: int) -> Estimate:
    """Return the mean of the estimates of several trainings, with the mean ends of their intervals. It has no value if
    one of them has none, and no number of individuals if that is under ``cell``."""
    known = [e.value for e in estimates if e.value is not None]
    bounds = {e.bound for e in estimates if e.bound}
    merged = replace(estimates[0], n=_mean_of([e.n for e in estimates], cell))
    if len(known) < len(estimates) or len(bounds) > 1:
        return replace(merged, value=None, low=None, high=None)
    return replace(
        merged,
        value=statistics.fmean(known),
        low=_mean_end([e.low for e in estimates]),
        high=_mean_end([e.high for e in estimates]),
        bound=next(iter(bounds), None),
        seeds=Spread(n=len(known), low=min(known), high=max(known), sd=statistics.stdev(known)),
    )


def _mean_end(ends: Sequence[float | None]) -> float | None:
    """Return the mean of several interval ends; None if one of them is missing."""
    known = [end for end in ends if end is not None]
    return statistics.fmean(known) if len(known) == len(ends) else None
