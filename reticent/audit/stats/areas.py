"""Areas under the ROC curve over individuals, the curve itself, and true-positive rates at low false-positive rates.

No true-positive rate is given at a false-positive rate that the number of non-members is too small to resolve. Where
the split keeps households together, intervals resample these (:mod:`reticent.audit.stats.clusters`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import stats

from reticent.audit.stats.binomial import LEVEL, clopper_pearson
from reticent.audit.stats.bounds import FEW_ON_A_SIDE, TAILS, certain_auc_bounds, is_certain, score_auc_bounds, wider
from reticent.audit.stats.clusters import MAX_WEIGHTS, clusters_of, iter_resamples, num_clusters
from reticent.audit.stats.estimate import BOOTSTRAP, EXACT, TIED, Estimate
from reticent.engine.randomness import generator

__all__ = ["Sides", "auc_estimate", "roc_curve", "tpr_at_fpr"]

#: Something of members, and the same of non-members.
Sides = tuple[np.ndarray, np.ndarray]


def roc_curve(members: np.ndarray, nonmembers: np.ndarray, *, max_points: int = 200) -> dict[str, list[float]]:
    """Return false- and true-positive rates at all thresholds, from (0, 0) to (1, 1), thinned to ``max_points``; no
    points if a side is empty."""
    if len(members) == 0 or len(nonmembers) == 0:
        return {"fpr": [], "tpr": []}
    thresholds = np.unique(np.concatenate([members, nonmembers]))[::-1]
    fpr = np.concatenate([[0.0], 1 - np.searchsorted(np.sort(nonmembers), thresholds, side="left") / len(nonmembers)])
    tpr = np.concatenate([[0.0], 1 - np.searchsorted(np.sort(members), thresholds, side="left") / len(members)])
    if len(fpr) > max_points:
        keep = np.unique(np.linspace(0, len(fpr) - 1, max_points).astype(int))
        fpr, tpr = fpr[keep], tpr[keep]
    return {"fpr": [round(float(x), 6) for x in fpr], "tpr": [round(float(x), 6) for x in tpr]}


def auc_estimate(
    members: np.ndarray,
    nonmembers: np.ndarray,
    individuals: Sides | None = None,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
    level: float = LEVEL,
) -> Estimate:
    """Return the area under the ROC curve (ties count half), with a bootstrap over both sets of individuals.

    An area of exactly 0 or 1 does not vary in a bootstrap, nor does one of equal scores. There are min(members,
    non-members) disjoint pairs, and all have the same order or are all tied, so the bounds are Clopper-Pearson's over
    these. With fewer than 20 individuals on a side a bootstrap is too narrow; the interval then reaches at least as far
    as `score_auc_bounds`. ``level`` is the level of the interval. With households (``units``), all these count them;
    ``individuals`` then has the codes of the individuals of both sides.

    Cost: a sort, and O(num_bootstrap · individuals) time in blocks of bounded memory.
    """
    m, n = num_drawn = len(members), len(nonmembers)
    if m == 0 or n == 0:
        return Estimate(value=None, n=m + n, level=level, method="one side has no individual")
    # Sorted, so the interval does not depend on the order of the individuals.
    orders = np.argsort(members, kind="stable"), np.argsort(nonmembers, kind="stable")
    members, nonmembers = members[orders[0]], nonmembers[orders[1]]
    clusters = _clusters_of_sides(individuals, units, orders)
    if clusters[0] is not None and clusters[1] is not None:
        num_drawn = num_clusters(clusters[0]), num_clusters(clusters[1])
    below, up_to = (np.searchsorted(nonmembers, members, side=side) for side in ("left", "right"))
    value, fewest = float((below + up_to).mean() / (2 * n)), min(num_drawn)
    found = Estimate(value=value, n=sum(num_drawn), level=level)
    if is_certain(value, members, nonmembers):
        low, high = certain_auc_bounds(value, fewest, level)
        found = replace(found, low=low, high=high, method=EXACT if value in (0.0, 1.0) else TIED)
    elif fewest == 1:
        found = replace(found, low=0.0, high=1.0, method="one individual on a side: no interval")
    else:
        rows = max(1, MAX_WEIGHTS // (m + n))
        draws = []
        for weights_m, weights_n in zip(
            iter_resamples(m, num_bootstrap, seed, rows=rows, clusters=clusters[0]),
            iter_resamples(n, num_bootstrap, seed + 1, rows=rows, clusters=clusters[1]),
            strict=True,
        ):
            # Number of resampled non-members up to each position of the sorted scores.
            running = np.concatenate([np.zeros((len(weights_n), 1)), np.cumsum(weights_n, axis=1)], axis=1)
            wins = running[:, below]
            wins += running[:, up_to]
            draws.append(np.einsum("bm,bm->b", weights_m, wins) / (2 * weights_m.sum(axis=1) * running[:, -1]))
        low, high = np.quantile(np.concatenate(draws), [(1 - level) / 2, (1 + level) / 2])
        if fewest < FEW_ON_A_SIDE:
            scores, reach = np.concatenate([members, nonmembers]), float(stats.norm.ppf((1 + level) / 2))
            low, high = wider((low, high), score_auc_bounds(value, *num_drawn, scores, reach))
        found = replace(found, low=float(low), high=float(high))
    return found if clusters[0] is None else found.over_households(m + n)


def _clusters_of_sides(
    individuals: Sides | None, units: np.ndarray | None, orders: Sides
) -> tuple[np.ndarray | None, np.ndarray | None]:
    if individuals is None:
        return clusters_of(None, units), None
    members, nonmembers = (clusters_of(codes[order], units) for codes, order in zip(individuals, orders, strict=True))
    return members, nonmembers


def tpr_at_fpr(
    members: np.ndarray,
    nonmembers: np.ndarray,
    fpr: float,
    individuals: Sides | None = None,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> Estimate | None:
    """Return the share of members who score above all but ``fpr`` of the non-members; None without members or with
    fewer than 10 / fpr non-members (households of non-members, where there are any).

    The interval of a share reaches at least as far as Clopper-Pearson's over the members, at its far end; over their
    households, where there are any, of whom the same share is then found. ``individuals`` as for `auc_estimate`.
    """
    orders = np.arange(len(members)), np.arange(len(nonmembers))
    own, others = _clusters_of_sides(individuals, units, orders)
    sizes = [len(scores) if c is None else num_clusters(c) for scores, c in ((members, own), (nonmembers, others))]
    if len(members) == 0 or sizes[1] < 10 / fpr:
        return None
    value, num = _tpr(members, nonmembers, fpr), sizes[0]
    draws = [_tpr(*sides, fpr) for sides in _drawn_sides(members, nonmembers, own, others, num_bootstrap, seed)]
    low, high = (float(bound) for bound in np.quantile(draws, TAILS))
    method, exact = BOOTSTRAP, clopper_pearson(round(value * num), num)
    if value in (0.0, 1.0):
        bound = clopper_pearson(0, num, one_sided=True)[1]
        low, high = (0.0, max(high, bound)) if value == 0 else (min(low, 1 - bound), 1.0)
        method = EXACT
    elif value <= 0.5:
        high = max(high, exact[1])
    else:
        low = min(low, exact[0])
    found = Estimate(value=value, low=low, high=high, n=sum(sizes), method=method)
    return found if own is None else found.over_households(len(members) + len(nonmembers))


def _drawn_sides(
    members: np.ndarray,
    nonmembers: np.ndarray,
    own: np.ndarray | None,
    others: np.ndarray | None,
    num_bootstrap: int,
    seed: int,
) -> Iterator[Sides]:
    """Yield resamples of both sides."""
    if own is None or others is None:
        random = generator(seed, 7)
        for _ in range(num_bootstrap):
            yield random.choice(members, len(members)), random.choice(nonmembers, len(nonmembers))
        return
    rows = max(1, MAX_WEIGHTS // (len(members) + len(nonmembers)))
    for blocks in zip(
        iter_resamples(len(members), num_bootstrap, seed, rows=rows, clusters=own),
        iter_resamples(len(nonmembers), num_bootstrap, seed + 1, rows=rows, clusters=others),
        strict=True,
    ):
        for of_members, of_nonmembers in zip(*(block.astype(np.int64) for block in blocks), strict=True):
            yield np.repeat(members, of_members), np.repeat(nonmembers, of_nonmembers)


def _tpr(members: np.ndarray, nonmembers: np.ndarray, fpr: float) -> float:
    # At most this many false positives; the small term undoes the rounding of e.g. 0.29 * 100.
    allowed = math.floor(fpr * len(nonmembers) + 1e-9)
    threshold = np.partition(nonmembers, len(nonmembers) - 1 - allowed)[len(nonmembers) - 1 - allowed]
    return float(np.mean(members > threshold))
