"""Probes of hidden states (definitions.md#attacks-that-ask-the-model): do they reveal who is a member, and whose
document it is?

Masking keeps words from being targets, yet the states of a document still hold what was read. An attacker who knows the
membership of some individuals trains a classifier on the states of their documents, and applies it to others
[@liu2024]. It is trained on half of each side, by household where there are any, and tested on the other half.
Cross-validation would make the scores of individuals dependent, and in simulations the interval of their area missed
chance in one of five trials. The same probe of the base model is the control.

Whose a document is, is tested in the same way: from half of the individuals the variance of each coordinate between two
documents of one person is estimated; for each other individual it is tested whether the second document is nearer to
the first than decoys are.
"""

from __future__ import annotations

import numpy as np

from reticent.engine.randomness import generator

#: Inverse strength of the L2 penalty: there are more weights than individuals.
PENALTY = 0.01
_STREAM, _STREAM_DECOYS = 73, 97
#: Decoys: second documents of other individuals of the same side.
NUM_DECOYS = 15


def states_score(
    states: np.ndarray,
    individuals: np.ndarray,
    is_member: np.ndarray,
    *,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> np.ndarray:
    """Return the log-odds of membership of documents, float64 (D,), by a logistic regression on their hidden states. It
    is trained on half of the individuals; their documents, and those with a NaN, get NaN.

    Parameters
    ----------
    states : float array, shape (D, state size), of `reticent.audit.scoring.states.document_states`
    individuals : uint32 array, shape (D,); is_member : bool array, shape (D,)
    units : household of each individual, by code; None: each is one
    """
    from sklearn.linear_model import LogisticRegression

    known = np.isfinite(states).all(axis=1)
    is_learned = training_half(individuals if units is None else np.asarray(units)[individuals], is_member, seed)
    learned, asked = known & is_learned, known & ~is_learned
    scores = np.full(len(states), np.nan)
    if asked.any() and len(np.unique(is_member[learned])) == 2:
        centre, spread = states[learned].mean(axis=0), states[learned].std(axis=0)
        spread[spread == 0] = 1.0
        _, person, counts = np.unique(individuals[learned], return_inverse=True, return_counts=True)
        model = LogisticRegression(C=PENALTY, class_weight="balanced", max_iter=1000)
        model.fit((states[learned] - centre) / spread, is_member[learned], sample_weight=1 / counts[person.reshape(-1)])
        scores[asked] = model.decision_function((states[asked] - centre) / spread)
    return scores


def reidentify_authors(
    states: np.ndarray,
    individuals: np.ndarray,
    is_member: np.ndarray,
    *,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Test whether the hidden states of two documents of one individual are closer than those of documents of
    `NUM_DECOYS` other individuals of the same side. Return three arrays with an entry for each individual tested:
    success (a fraction if tied), code, whether a member.

    The distance is diagonal Mahalanobis, with the variances within individuals of the training half; the mean variance
    is added to each, as those of few individuals are uncertain.

    Parameters
    ----------
    states, individuals, is_member, units : as for `states_score`
    """
    known = np.flatnonzero(np.isfinite(states).all(axis=1))
    order = known[np.argsort(individuals[known], kind="stable")]
    codes, first, count = np.unique(individuals[order], return_index=True, return_counts=True)
    codes, first = codes[count > 1], first[count > 1]
    pair = states[order[first]], states[order[first + 1]]
    is_learned = training_half(individuals if units is None else np.asarray(units)[individuals], is_member, seed)
    learned, member = is_learned[order[first]], is_member[order[first]]
    hits, random = np.full(len(codes), np.nan), generator(seed, _STREAM_DECOYS)
    within = np.square(pair[0] - pair[1])[learned].mean(axis=0) if learned.any() else np.zeros(states.shape[1])
    weights = 1 / (within + within.mean()) if within.any() else np.ones_like(within)
    for side in (True, False):
        own = np.flatnonzero(~learned & (member == side))
        if len(own) <= NUM_DECOYS:
            continue
        for row, asked in enumerate(own):
            others = np.delete(own, row)[random.permutation(len(own) - 1)[:NUM_DECOYS]]
            far = (np.square(pair[1][[asked, *others]] - pair[0][asked]) * weights).sum(axis=1)
            hits[asked] = float(far[0] <= far.min()) / np.count_nonzero(far == far.min())
    made = ~np.isnan(hits)
    return hits[made], codes[made], member[made]


def training_half(units: np.ndarray, is_member: np.ndarray, seed: int) -> np.ndarray:
    """Draw half of each side's units (individuals or households), to train the attack's classifier on; return whether
    each document belongs to them, bool (D,)."""
    found, first, row = np.unique(units, return_index=True, return_inverse=True)
    keys, chosen = generator(seed, _STREAM).random(len(found)), np.zeros(len(found), dtype=bool)
    for side in (True, False):
        own = np.flatnonzero(is_member[first] == side)
        chosen[own[np.argsort(keys[own], kind="stable")][: len(own) // 2]] = True
    return chosen[row.reshape(-1)]
