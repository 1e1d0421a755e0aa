"""Leakage: which identifiers a model predicts (PROTOCOLS §5, seed 1 §5.3.2 and §6.4).

A prediction counts wherever it appears: in any slot of any document that was scored. Three questions are asked of the
same integers:

- **Privacy**, the seed's metric: of the members' identifiers, as training was protected with them, which share is
  never predicted?
- **Excess leakage**: the same rate for members minus held-out individuals. Here identifiers are those of the *joint*
  index over both sides, so that nothing but membership tells the two apart: which side an individual is on was drawn
  before anything was counted.
- **Low-cost membership**: who is called a member because one of their indirect identifiers was predicted?

An identifier that several individuals share is split evenly among them, so that individuals add up to identifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.audit.slots import NO_SURFACE, Slots
from reticent.audit.statistics import Estimate, clopper_pearson, ratio_difference, ratio_estimate, resample
from reticent.engine.schema import DIRECT, INDIRECT, MAX_N

__all__ = ["PARTS", "excess_leakage", "low_cost_membership", "privacy", "privacy_by_n"]

#: Flag bits of each part of the identifiers.
PARTS = {"both": DIRECT | INDIRECT, "direct": DIRECT, "indirect": INDIRECT}


@dataclass(frozen=True, slots=True)
class _Ownership:
    """Identifiers and who has them: one entry for each (individual, identifier) pair."""

    individuals: np.ndarray
    identifiers: np.ndarray
    leaked: np.ndarray

    def per_individual(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(leaked, all) identifiers of each individual, shared ones split evenly among their owners."""
        if len(self.identifiers) == 0:
            return np.zeros(len(codes)), np.zeros(len(codes))
        _, inverse, owners = np.unique(self.identifiers, return_inverse=True, return_counts=True)
        weight = 1.0 / owners[inverse.reshape(-1)]
        row = np.searchsorted(codes, self.individuals)
        leaked = np.bincount(row, weights=weight * self.leaked, minlength=len(codes))
        return leaked, np.bincount(row, weights=weight, minlength=len(codes))


def _own(individuals: np.ndarray, identifiers: np.ndarray, predicted: np.ndarray) -> _Ownership:
    pairs = np.unique(np.stack([individuals.astype(np.int64), identifiers.astype(np.int64)], axis=1), axis=0)
    return _Ownership(pairs[:, 0], pairs[:, 1], np.isin(pairs[:, 1], predicted))


def predicted_surfaces(predicted: np.ndarray) -> np.ndarray:
    """Return the distinct surfaces among predictions."""
    distinct = np.unique(predicted)
    return distinct[distinct != NO_SURFACE]


def privacy(
    slots: Slots, true: np.ndarray, predicted: np.ndarray, everywhere: np.ndarray, *, num_bootstrap: int, seed: int
) -> dict[str, Any]:
    """Return Privacy = 1 - leak rate for direct, indirect and both, at the three levels.

    Parameters
    ----------
    slots : Slots
        Of the members, flagged as training was.
    true, predicted : int64 arrays, shape (S,)
        Surfaces of these slots.
    everywhere : int64 array
        All surfaces that were predicted in any scored document.

    Returns
    -------
    dict
        part -> {"types", "occurrences", "individuals": Estimate, "num_identifiers", "num_leaked", "num_unpredictable"}.
        Identifiers with an unknown token cannot be predicted: counted among the identifiers, and apart.
    """
    codes = np.unique(slots.individuals)
    result: dict[str, Any] = {}
    for part, bits in PARTS.items():
        chosen = (slots.flags & bits) != 0
        usable = chosen & (true != NO_SURFACE)
        own = _own(slots.individuals[usable], true[usable], everywhere)
        leaked, total = own.per_individual(codes)
        row = np.searchsorted(codes, slots.individuals[chosen])
        right = (predicted == true)[chosen] & usable[chosen]
        hit = np.bincount(row, weights=right, minlength=len(codes))
        seen = np.bincount(row, minlength=len(codes))
        any_leak = np.zeros(len(codes))
        any_leak[np.searchsorted(codes, own.individuals[own.leaked])] = 1
        options: dict[str, Any] = {"num_bootstrap": num_bootstrap, "seed": seed}
        identifiers = np.unique(own.identifiers)
        result[part] = {
            "types": _complement(ratio_estimate(leaked, total, **options)),
            "occurrences": _complement(ratio_estimate(hit, seen, **options)),
            "individuals": _complement(ratio_estimate(any_leak, (seen > 0).astype(float), **options)),
            "num_identifiers": len(identifiers),
            "num_leaked": int(np.isin(identifiers, everywhere).sum()),
            "num_unpredictable": int(np.count_nonzero(chosen & (true == NO_SURFACE))),
        }
    return result


def privacy_by_n(
    slots: Slots,
    true: np.ndarray,
    predicted: np.ndarray,
    scored: tuple[Slots, np.ndarray],
    *,
    num_bootstrap: int,
    seed: int,
) -> dict[str, Any]:
    """Return Privacy over the minimal identifying n-grams, for each n that occurs.

    An n-gram is predicted when its n words are predicted in n neighbouring slots of one document, anywhere.

    Parameters
    ----------
    scored : (slots, predicted surfaces) of every scored document
    """
    codes = np.unique(slots.individuals)
    result = {}
    for n in range(1, MAX_N + 1):
        starts = np.flatnonzero(slots.ngram_starts >> (n - 1) & 1)
        starts = starts[starts + n <= len(slots)]
        if len(starts) == 0:
            continue
        mine = true[starts[:, None] + np.arange(n)]
        usable = (mine != NO_SURFACE).all(axis=1)
        theirs = _ngrams(scored[0], scored[1], n)
        _, inverse = np.unique(np.concatenate([mine[usable], theirs]), axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        identifiers, predicted_ids = inverse[: usable.sum()], np.unique(inverse[usable.sum() :])
        own = _own(slots.individuals[starts[usable]], identifiers, predicted_ids)
        leaked, total = own.per_individual(codes)
        estimate = _complement(ratio_estimate(leaked, total, num_bootstrap=num_bootstrap, seed=seed))
        distinct = np.unique(own.identifiers)
        result[str(n)] = {
            **estimate,
            "num_identifiers": len(distinct),
            "num_leaked": int(np.isin(distinct, predicted_ids).sum()),
        }
    return result


def _ngrams(slots: Slots, surfaces: np.ndarray, n: int) -> np.ndarray:
    """Distinct n-grams of neighbouring predicted surfaces within documents, int64 (G, n)."""
    starts = np.arange(max(len(slots) - n + 1, 0))
    rows = surfaces[starts[:, None] + np.arange(n)] if len(starts) else np.empty((0, n), dtype=np.int64)
    same = slots.documents[starts] == slots.documents[starts + n - 1] if len(starts) else np.empty(0, dtype=bool)
    return np.unique(rows[same & (rows != NO_SURFACE).all(axis=1)], axis=0)


def excess_leakage(
    slots: Slots, true: np.ndarray, everywhere: np.ndarray, is_member: np.ndarray, *, num_bootstrap: int, seed: int
) -> dict[str, Any]:
    """Return leak rates of members and held-out individuals on the joint index's identifiers, and their difference.

    Parameters
    ----------
    is_member : bool array, shape (S,), of each slot's individual
    """
    result: dict[str, Any] = {}
    for part, bits in PARTS.items():
        sides = []
        for side in (is_member, ~is_member):
            chosen = ((slots.flags & bits) != 0) & side & (true != NO_SURFACE)
            own = _own(slots.individuals[chosen], true[chosen], everywhere)
            sides.append(own.per_individual(np.unique(slots.individuals[side])))
        options: dict[str, Any] = {"num_bootstrap": num_bootstrap, "seed": seed}
        result[part] = {
            "members": ratio_estimate(*sides[0], **options).to_dict(),
            "heldout": ratio_estimate(*sides[1], **options).to_dict(),
            "excess": ratio_difference(sides[0], sides[1], **options).to_dict(),
        }
    return result


def low_cost_membership(
    slots: Slots,
    true: np.ndarray,
    everywhere: np.ndarray,
    is_member: np.ndarray,
    *,
    shares: Sequence[float] = (1.0,),
    num_bootstrap: int,
    seed: int,
) -> dict[str, Any]:
    """Return precision, recall and F1 of calling an individual a member when an indirect identifier of theirs is
    predicted.

    ``shares`` are the shares of the identifiers that the adversary's graph holds; the first is the headline.
    """
    chosen = ((slots.flags & INDIRECT) != 0) & (true != NO_SURFACE)
    codes, first = np.unique(slots.individuals, return_index=True)
    member = is_member[first]
    own = _own(slots.individuals[chosen], true[chosen], everywhere)
    random = np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), 11]))
    draw = random.random(int(true.max(initial=0)) + 1)
    weights = resample(len(codes), num_bootstrap, seed)
    rows = []
    for share in shares:
        known = own.leaked & (draw[own.identifiers] < share)
        called = np.zeros(len(codes), dtype=bool)
        called[np.searchsorted(codes, own.individuals[known])] = True
        rows.append({"share": float(share), **_calls(called, member, weights)})
    headline = rows[0] if rows else {}
    return {**{key: headline[key] for key in ("precision", "recall", "f1")}, "by_graph_share": rows}


def _calls(called: np.ndarray, member: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    hit, false, missed = called & member, called & ~member, ~called & member

    def scores(w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = (w @ x.astype(np.float64) for x in (hit, false, missed))
        with np.errstate(invalid="ignore", divide="ignore"):
            return a / (a + b), a / (a + c), 2 * a / (2 * a + b + c)

    values = scores(np.ones(len(called)))
    draws = scores(weights)
    result = {}
    for name, value, draw in zip(("precision", "recall", "f1"), values, draws, strict=True):
        n = int(called.sum()) if name == "precision" else int(member.sum()) if name == "recall" else len(called)
        kept = draw[np.isfinite(draw)]
        if not np.isfinite(value) or len(kept) == 0:
            result[name] = Estimate(value=None, n=n, method="nobody was called a member").to_dict()
            continue
        low, high = np.quantile(kept, [0.025, 0.975])
        method = "bootstrap over individuals"
        if float(value) == 0.0:
            high, method = (
                clopper_pearson(0, max(n, 1), one_sided=True)[1],
                "Clopper-Pearson over individuals, one-sided",
            )
        result[name] = Estimate(value=float(value), low=float(low), high=float(high), n=n, method=method).to_dict()
    return result


def _complement(estimate: Estimate) -> dict[str, Any]:
    """Leak rate -> privacy."""
    shown = estimate.to_dict()
    if estimate.value is not None:
        shown["value"] = 1 - estimate.value
        shown["low"] = None if estimate.high is None else 1 - estimate.high
        shown["high"] = None if estimate.low is None else 1 - estimate.low
    return shown
