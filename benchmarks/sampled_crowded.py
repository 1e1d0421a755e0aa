"""Do the ends of an annotated sample hold if few individuals hold most misses? Simulated individuals, many settings.

Unequal numbers of identifiers, two strata of which the one of long documents is drawn more densely, a corpus of 1,500.
Misses are independent, vary between individuals (beta-binomial), or stand for four fifths in a few individuals. Only
the ends that guard count: the lower end of recall, and the upper bound of the number that stays unprotected.

    python -m benchmarks.sampled_recall runs it, and keeps its record
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.record_io import markdown

INDIVIDUALS = (10, 20, 40, 60, 100)
RECALLS = (0.8, 0.95, 0.99)
#: How misses crowd: the correlation within individuals, or the share of individuals who hold four fifths of them.
CORRELATED, FEW = (0.0, 0.05, 0.2, 0.5), (0.03, 0.1, 0.2)
DRAWS = {"toy": 20, "cpu": 400}
CORPORA = 20
SIZE = 1500
#: Share of the draws in which an end of a 95 % interval may miss.
TAIL = 0.025


def simulate(size: str) -> dict[str, Any]:
    """Return, of each setting, how often either end misses, and the mean width of the interval of recall."""
    random = np.random.default_rng(11)
    settings = []
    for num in INDIVIDUALS:
        for recall in RECALLS:
            for crowding in [*(f"correlation {own:g}" for own in CORRELATED), *(f"few {own:g}" for own in FEW)]:
                draws = [drawn_ends(random, num, recall, crowding, DRAWS[size] // CORPORA) for _ in range(CORPORA)]
                over, under, width = np.concatenate(draws).mean(axis=0).tolist()
                row = {"individuals": num, "recall": recall, "misses": crowding}
                settings.append(row | {"recall_over": over, "bound_under": under, "width": width})
    return {"draws": DRAWS[size], "tail": TAIL, "settings": settings}


def drawn_ends(random: np.random.Generator, num: int, recall: float, crowding: str, draws: int) -> np.ndarray:
    """Return whether the lower end lies over the truth and the bound under it, and the width; shape (draws, 3).

    One corpus is drawn, and ``draws`` samples of ``num`` individuals of it. ``crowding`` is "correlation 0.2" or "few
    0.03", as in `CORRELATED` and `FEW`.
    """
    from reticent.audit.stats.sampled import Drawn, sampled_share, sampled_total

    whole = random.poisson(random.gamma(2, 5, SIZE)) + 1.0
    missed = random.binomial(whole.astype(int), _miss_rates(random, 1 - recall, crowding)).astype(float)
    stratum = (np.argsort(np.argsort(whole)) >= 2 * SIZE // 3).astype(np.int64)
    sizes, truth = np.bincount(stratum), 1 - missed.sum() / whole.sum()
    rows = np.empty((draws, 3))
    for row in rows:
        own = np.concatenate([random.choice(np.flatnonzero(stratum == h), num // 2, replace=False) for h in (0, 1)])
        sample = Drawn(np.arange(num), stratum[own], sizes)
        share = sampled_share(sample, (whole - missed)[own], whole[own])
        total = sampled_total(sample, missed[own], whole[own])
        assert share.low is not None
        assert share.high is not None
        assert total.high is not None
        row[:] = share.low > truth, total.high < missed.sum(), share.high - share.low
    return rows


def _miss_rates(random: np.random.Generator, miss: float, crowding: str) -> np.ndarray:
    """The share of each individual's identifiers that is missed; ``miss`` on average."""
    kind, _, number = crowding.partition(" ")
    own = float(number)
    if kind == "correlation":
        odds = 1 / own - 1 if own else 0
        return random.beta(miss * odds, (1 - miss) * odds, SIZE) if own else np.full(SIZE, miss)
    rates = min(0.8 * miss / own, 0.95)
    few = random.permutation(SIZE) < round(own * SIZE)
    return np.where(few, rates, (miss - own * rates) / (1 - own))


def check_simulated(result: Mapping[str, Any]) -> None:
    """Raise `AssertionError` where an end misses more often than asked, over all settings or in one of them: there by
    more than four standard errors of its draws, because the worst of a hundred is looked at."""
    most = TAIL + 4 * (TAIL * (1 - TAIL) / result["draws"]) ** 0.5
    for what in ("recall_over", "bound_under"):
        mean = float(np.mean([row[what] for row in result["settings"]]))
        assert mean <= TAIL, f"{what} in {mean}"
        for row in result["settings"]:
            assert row[what] <= most, f"{row}: {what}"


def mean_and_worst(result: Mapping[str, Any]) -> tuple[float, float]:
    """Return the share of draws in which an end misses: over all settings, and in the worst."""
    shares = [float(row[what]) for row in result["settings"] for what in ("recall_over", "bound_under")]
    return float(np.mean(shares)), max(shares)


def simulated_table(result: Mapping[str, Any]) -> str:
    """Return a table: a row for each number of individuals and recall, over all ways in which misses crowd."""
    heads = ("individuals", "recall", "lower end over", "worst", "bound under", "worst", "width")
    rows: list[Sequence[Any]] = []
    for num in INDIVIDUALS:
        for recall in RECALLS:
            own = [row for row in result["settings"] if (row["individuals"], row["recall"]) == (num, recall)]
            if not own:
                continue
            cells: list[str] = []
            for what in ("recall_over", "bound_under"):
                shares = [row[what] for row in own]
                cells += [f"{np.mean(shares):.3f}", f"{max(shares):.3f}"]
            rows.append((num, recall, *cells, f"{np.mean([row['width'] for row in own]):.3f}"))
    return (
        f"Simulated individuals, {result['draws']} draws of each of {len(result['settings'])} settings: misses that "
        "are independent, correlated within individuals, or four fifths of them in 3, 10 or 20 of 100 individuals. "
        "*Lower end over*: share of the draws in which the lower end of recall lies over the truth. *Bound under*: in "
        "which the bound of the number that stays unprotected lies under it. *Worst*: of the ways in which misses "
        f"crowd.\n\n{markdown(heads, rows)}"
    )
