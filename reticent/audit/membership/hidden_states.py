"""A probe of hidden states (definitions.md#attacks-that-ask-the-model): whether they show who was trained on.

Masking keeps words from being targets, and the states of a document still hold what was read. Who knows of some
individuals whether they are members learns to tell it from the states of their documents, and asks of others
[@liu2024]. A half of each side, by household where there are any, is learned from; the other half is asked. Asking all
in turn, each by a classifier of the others, would tie the scores of individuals to one another, and in simulations the
interval of their area missed chance in one of five trials. The same probe of the base model is the control.
"""

from __future__ import annotations

import numpy as np

from reticent.engine.randomness import generator

__all__ = ["learned_from", "states_score"]

#: Inverse strength of the penalty on the weights, which are more than there are individuals.
PENALTY = 0.01
_STREAM = 73


def states_score(
    states: np.ndarray,
    individuals: np.ndarray,
    is_member: np.ndarray,
    *,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> np.ndarray:
    """Return the log-odds of membership that a logistic regression on a half of the individuals gives to each document
    of the other half, float64 (D,); NaN for documents of those it learned from, or where a state is NaN.

    Parameters
    ----------
    states : float array, shape (D, numbers), of `reticent.audit.scoring.states.document_states`
    individuals : uint32 array, shape (D,); is_member : bool array, shape (D,)
    units : household of each individual, by code; None: each is one
    """
    from sklearn.linear_model import LogisticRegression

    known = np.isfinite(states).all(axis=1)
    is_learned = learned_from(individuals if units is None else np.asarray(units)[individuals], is_member, seed)
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


def learned_from(units: np.ndarray, is_member: np.ndarray, seed: int) -> np.ndarray:
    """Return whether a document is one of the units, half of each side, that the classifier learns from; bool (D,)."""
    found, first, row = np.unique(units, return_index=True, return_inverse=True)
    keys, chosen = generator(seed, _STREAM).random(len(found)), np.zeros(len(found), dtype=bool)
    for side in (True, False):
        own = np.flatnonzero(is_member[first] == side)
        chosen[own[np.argsort(keys[own], kind="stable")][: len(own) // 2]] = True
    return chosen[row.reshape(-1)]
