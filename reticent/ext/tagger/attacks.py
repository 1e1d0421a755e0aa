"""Membership attacks on a tagger's scores of names: choose the training name of a pair, and rank a list of names
([@nussbaumer2023] §3.3).

Scores are float64, shape (prompts, 2, pairs): index 0 the names trained on, index 1 the others. NaN is "ND" (not
detected), a name without a score; it becomes 0, below every probability. A higher score always means more likely a
member.

Ties. A pair whose two scores are equal is half a win, as under chance. ``strict`` counts it as lost, as in
the published tables (true and false positives are all pairs). A prompt that ties gives half a vote each;
equal votes, means, or maxima and means, are half a win. In a ranking, names of one score are one step of the
precision-recall curve and share their middle rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from reticent.audit.stats.intervals import BOOTSTRAP, EXACT, LEVEL, Estimate, clopper_pearson, iter_resamples
from reticent.engine.randomness import generator

_TAILS = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]


def nd_as_zero(scores: np.ndarray) -> np.ndarray:
    """Return scores with NaN (ND, "not detected") replaced by 0, the lowest rank."""
    return np.nan_to_num(scores, nan=0.0)


def wins(first: np.ndarray, second: np.ndarray, *, strict: bool = False) -> np.ndarray:
    """Return 1 where the first score is higher than the second, 0 where it is lower, and 0.5 for a tie (0 if
    ``strict``).

    >>> wins(np.array([0.9, 0.2, 0.5]), np.array([0.1, 0.3, 0.5])).tolist()
    [1.0, 0.0, 0.5]
    """
    return np.where(first > second, 1.0, np.where(first == second, 0.0 if strict else 0.5, 0.0))


def majority_wins(scores: np.ndarray, *, strict: bool = False) -> np.ndarray:
    """Return for each pair 1 if the member's name scores higher than the held-out name in more prompts, 0 if in fewer,
    and 0.5 for a tie (0 if ``strict``): attack A1, Eq. 3.2.
    """
    votes = wins(scores[:, 0], scores[:, 1], strict=strict).sum(axis=0)
    return wins(votes, len(scores) - votes, strict=strict)


def mean_wins(scores: np.ndarray, *, strict: bool = False) -> np.ndarray:
    """Return for each pair 1 if the member's name has the higher mean score over prompts, 0 if the lower, and 0.5 for a
    tie (0 if ``strict``): attack A2, Eq. 3.3.
    """
    first, second = scores.mean(axis=0)
    return wins(first, second, strict=strict)


def maximum_wins(scores: np.ndarray, *, strict: bool = False) -> np.ndarray:
    """Return for each pair 1 if the member's name has the highest score of any prompt, else 0: attack A3, Eq. 3.4. A
    tie is decided by the mean score over prompts.
    """
    first, second = scores.max(axis=0)
    return np.where(first == second, mean_wins(scores, strict=strict), wins(first, second))


#: The strategies that look at scores, by name, in the published order A1 to A3.
PAIRWISE: Mapping[str, Callable[..., np.ndarray]] = {
    "majority": majority_wins,
    "mean": mean_wins,
    "maximum": maximum_wins,
}


def coin_wins(num_pairs: int, seed: int = 0) -> np.ndarray:
    """Return a fair coin flip, 0.0 or 1.0, for each pair (baseline A4)."""
    return generator(seed, 34).integers(0, 2, num_pairs).astype(np.float64)


def random_list_accuracy(num_names: int, seed: int = 1653) -> float:
    """Return the accuracy of random labels on a list of names half of which are members (baseline B3, drawn as in
    Listing 3.3).

    The default seed is the published one. The list alternates, a held-out name first: that comes closest to the
    published 0.497 and 0.498.
    """
    labels = np.random.RandomState(seed).choice([0, 1], size=num_names, p=[0.5, 0.5])
    return float(np.mean(labels == np.arange(num_names) % 2))


def average_precision(members: np.ndarray, heldout: np.ndarray) -> float:
    """Return the average precision of ranking member names above held-out ones by score (measure B1, Eq. 3.5).

    >>> round(average_precision(np.array([0.9, 0.4]), np.array([0.6, 0.1])), 4)   # 1/2 · 1/1 + 1/2 · 2/3
    0.8333
    """
    return float(_average_precisions(members, heldout, np.ones((1, len(members))))[0])


def average_precision_draws(members: np.ndarray, heldout: np.ndarray, *, num_bootstrap: int, seed: int) -> np.ndarray:
    """Return bootstrap replicates of the average precision, float64 (num_bootstrap,), resampling pairs of a member and
    a held-out name.
    """
    blocks = iter_resamples(len(members), num_bootstrap, seed)
    return np.concatenate([_average_precisions(members, heldout, weights) for weights in blocks])


def _average_precisions(members: np.ndarray, heldout: np.ndarray, weights_BP: np.ndarray) -> np.ndarray:
    """Return the average precision under each row of weights of the pairs (B, pairs), float64 (B,); ``members`` and
    ``heldout`` have the scores of the two names of each pair.
    """
    scores = np.concatenate([members, heldout])
    order = np.argsort(-scores, kind="stable")
    last_of_step = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    weights = np.concatenate([weights_BP, weights_BP], axis=1)[:, order]
    retrieved = np.cumsum(weights, axis=1)[:, last_of_step]
    relevant = np.cumsum(weights * (order < len(members)), axis=1)[:, last_of_step]
    precision = relevant / np.maximum(retrieved, 1e-300)
    gained = np.diff(relevant, axis=1, prepend=0.0)
    return (gained * precision).sum(axis=1) / relevant[:, -1]


def auc_of_scores(members: np.ndarray, heldout: np.ndarray) -> float:
    """Return the AUC of the scores of member over held-out names: the share of (member, held-out) combinations in which
    the member scores higher, ties half.
    """
    ordered = np.sort(heldout)
    below, up_to = (np.searchsorted(ordered, members, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(heldout)))


def expected_rank(accuracy: float, num_heldout: int, num_members: int) -> float:
    """Return the expected rank of a member among all names sorted by score, by the published formula from the accuracy
    on pairs (measure B2, Eq. 3.6).

    >>> round(expected_rank(575 / 826, 826, 826))   # Tables 4.1 and 4.5, first row
    664
    """
    return (1 - accuracy) * num_heldout + 0.5 * num_members


def expected_rank_exact(auc: float, num_heldout: int, num_members: int) -> float:
    """Return the mean rank of a member among all names sorted by score, from the AUC (measure B2): (1 - AUC) · held-out
    + (members + 1) / 2.
    """
    return (1 - auc) * num_heldout + (num_members + 1) / 2


def best_threshold(members: np.ndarray, heldout: np.ndarray) -> float:
    """Return the score threshold for membership with the largest true-positive minus false-positive rate; the lowest of
    equals.
    """
    thresholds = np.unique(np.concatenate([members, heldout]))
    # In whole numbers: rates that are equal must tie.
    at_or_above = [len(side) - np.searchsorted(np.sort(side), thresholds, side="left") for side in (members, heldout)]
    gained = at_or_above[0] * len(heldout) - at_or_above[1] * len(members)
    return float(thresholds[int(np.argmax(gained))])


def blind_scores(features: np.ndarray, *, folds: int = 5, seed: int = 0) -> np.ndarray:
    """Return membership scores of names, (2, pairs), without the model: by cross-validated logistic regression on
    ``features`` of the names, (2, pairs, features).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    _, num_pairs, _ = features.shape
    if num_pairs < 4:  # no feature differs
        return np.zeros((2, num_pairs))
    fold_of = generator(seed, 35).permutation(num_pairs) % min(folds, num_pairs // 2)
    scores = np.zeros((2, num_pairs))
    for fold in range(fold_of.max() + 1):
        held = fold_of == fold
        rows = np.concatenate(features[:, ~held])
        labels = np.repeat([1, 0], len(rows) // 2)
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1)).fit(rows, labels)
        scores[:, held] = model.decision_function(np.concatenate(features[:, held])).reshape(2, -1)
    return scores


def mean_estimate(
    values: np.ndarray, *, low: float = 0.0, high: float = 1.0, num_bootstrap: int = 1000, seed: int = 0, unit: str
) -> Estimate:
    """Return the mean of one value for each pair of names, with a bootstrap interval over pairs. ``low`` and ``high``
    are the least and greatest possible value, and ``unit`` is the name of what is counted, for the report.

    Equal values have no spread to resample; their interval is that of Clopper-Pearson.
    """
    n = len(values)
    if n == 0:
        return Estimate(value=None, n=0, unit=unit, method="there is none")
    # In the order of their size, so that nothing changes with the order of the pairs.
    values = np.sort(values)
    mean = float(values.mean())
    if np.ptp(values) == 0:
        missed = clopper_pearson(0, n, one_sided=True)[1]
        ends = max(low, mean - missed * (mean - low)), min(high, mean + missed * (high - mean))
        return Estimate(value=mean, low=ends[0], high=ends[1], n=n, unit=unit, method=EXACT)
    draws = np.concatenate([weights @ values / n for weights in iter_resamples(n, num_bootstrap, seed)])
    first, last = (float(end) for end in np.quantile(draws, _TAILS))
    method = BOOTSTRAP.replace("individuals", unit)
    return Estimate(value=mean, low=first, high=last, n=n, unit=unit, method=method)
