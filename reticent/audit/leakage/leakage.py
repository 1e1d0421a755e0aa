"""Leakage: the identifiers that a model predicts (definitions.md#leakage).

A prediction counts wherever it appears, at any words of any scored document. Two measures use it:

- **Privacy** [@boutet2025]: the share of the members' identifiers that is never predicted.
- **Excess leakage**: the rate of members minus the rate of held-out individuals. The identifiers are those of both
  sides' documents together, and the sides were drawn before anything was counted. So the two rates differ in membership
  alone.

:class:`reticent.audit.leakage.identifiers.Identifiers` defines an identifier. An identifier that several individuals
share is split evenly among them, so the individuals' shares add up to the number of identifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from reticent.audit.evidence.json_form import extended
from reticent.audit.evidence.leakage import (
    CategoryPrivacy,
    Excess,
    ExcessOverSides,
    NgramPrivacy,
    Part,
    Privacy,
)
from reticent.audit.leakage.identifiers import PART_FLAGS, Identifiers, Predicted
from reticent.audit.leakage.words import NO_SURFACE
from reticent.audit.stats.sides import Counts, excess_of
from reticent.audit.stats.statistics import Bootstrap, Estimate, ratio_difference, ratio_estimate
from reticent.engine.schema import DIRECT, INDIRECT

__all__ = [
    "excess_leakage",
    "excess_over_base",
    "privacy",
    "privacy_by_category",
    "privacy_by_n",
]


@dataclass(frozen=True, slots=True)
class _Ownership:
    """Identifiers and their owners: one entry for each (individual, identifier) pair."""

    individuals: np.ndarray
    identifiers: np.ndarray

    def per_individual(self, codes: np.ndarray, leaked: np.ndarray) -> Counts:
        """(leaked, all) identifiers of each individual, and ``codes``; shared identifiers are split evenly among their
        owners.

        ``leaked`` is a bool array by identifier number.
        """
        if len(self.identifiers) == 0:
            return np.zeros(len(codes)), np.zeros(len(codes)), codes
        _, inverse, owners = np.unique(self.identifiers, return_inverse=True, return_counts=True)
        weight = 1.0 / owners[inverse.reshape(-1)]
        row = np.searchsorted(codes, self.individuals)
        found = np.bincount(row, weights=weight * leaked[self.identifiers], minlength=len(codes))
        return found, np.bincount(row, weights=weight, minlength=len(codes)), codes


def _own(identifiers: Identifiers, chosen: np.ndarray) -> _Ownership:
    """Pairs of the chosen occurrences (bool)."""
    # A pair is packed into one number, because NumPy sorts numbers ten times faster than rows.
    size = max(identifiers.num, 1)
    pairs = np.sort(identifiers.individuals[chosen].astype(np.int64) * size + identifiers.numbers[chosen])
    owners, owned = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], size)
    return _Ownership(owners, owned)


def privacy(identifiers: Identifiers, found: Predicted, **bootstrap: Unpack[Bootstrap]) -> dict[Part, Privacy]:
    """Return Privacy = 1 - leak rate for direct, indirect and both, at the three levels.

    A prediction counts wherever it appears, at every level. *Types* are the distinct identifiers, *occurrences* their
    places, and *individuals* their owners, who count as leaked if at least one of their identifiers is predicted.
    ``in_place`` is the share of occurrences that are not predicted at their own position. ``unseen`` is the share of
    types that are never predicted at a position whose context does not contain them.

    Parameters
    ----------
    identifiers : identifiers of the members' documents, with the flags of training; those of at most `Identifiers.n`
        words count
    found : their predictions in all scored documents

    Returns
    -------
    dict
        By part. Words with an unknown token cannot be predicted and would raise Privacy, so they are counted in
        ``num_unpredictable`` and nowhere else. Protected surfaces that are not identifiers under the coarse surface are
        counted in ``num_common`` and nowhere else.
    """
    words = identifiers.words
    codes = np.unique(words.individuals)
    result: dict[Part, Privacy] = {}
    for part, chosen in identifiers.parts():
        own = _own(identifiers, chosen)
        row = np.searchsorted(codes, identifiers.individuals[chosen])
        seen = np.bincount(row, minlength=len(codes))
        leaky = found.anywhere[identifiers.numbers[chosen]]
        anywhere = np.bincount(row, weights=leaky, minlength=len(codes))
        assert found.in_place is not None  # of the words of these identifiers
        in_place = np.bincount(row, weights=found.in_place[chosen], minlength=len(codes))
        any_leak = (anywhere > 0).astype(np.float64)
        distinct = np.unique(own.identifiers)
        unseen = found.unseen
        result[part] = Privacy(
            types=_complement(ratio_estimate(*own.per_individual(codes, found.anywhere), **bootstrap)),
            occurrences=_complement(ratio_estimate(anywhere, seen, codes, **bootstrap)),
            individuals=_complement(ratio_estimate(any_leak, (seen > 0).astype(np.float64), codes, **bootstrap)),
            in_place=_complement(ratio_estimate(in_place, seen, codes, **bootstrap)),
            unseen=None
            if unseen is None
            else _complement(ratio_estimate(*own.per_individual(codes, unseen), **bootstrap)),
            num_identifiers=len(distinct),
            num_leaked=int(found.anywhere[distinct].sum()),
            num_leaked_unseen=None if unseen is None else int(unseen[distinct].sum()),
            num_common=identifiers.num_common.get(part),  # none for "both": the sum would reveal a small part
            num_unpredictable=_num_unpredictable(identifiers, part),
        )
    return result


def _num_unpredictable(identifiers: Identifiers, part: Part) -> int:
    """Number of protected words that contain an unknown token."""
    return int(
        np.count_nonzero(((identifiers.words.flags & PART_FLAGS[part]) != 0) & (identifiers.surfaces == NO_SURFACE))
    )


def privacy_by_n(identifiers: Identifiers, found: Predicted, **bootstrap: Unpack[Bootstrap]) -> dict[str, NgramPrivacy]:
    """Return Privacy over the minimal identifying n-grams, for each n that occurs, up to `Identifiers.max_n`.

    An n-gram counts as predicted if its n words are predicted at n neighbouring words of any document.
    """
    codes = np.unique(identifiers.words.individuals)
    result = {}
    indirect = (identifiers.flags & INDIRECT) != 0
    for n in range(1, identifiers.max_n + 1):
        chosen = indirect & (identifiers.lengths == n)
        if not chosen.any():
            continue
        own = _own(identifiers, chosen)
        distinct = np.unique(own.identifiers)
        result[str(n)] = extended(
            _complement(ratio_estimate(*own.per_individual(codes, found.anywhere), **bootstrap)),
            NgramPrivacy,
            num_identifiers=len(distinct),
            num_leaked=int(found.anywhere[distinct].sum()),
        )
    return result


def privacy_by_category(
    identifiers: Identifiers,
    leaked: np.ndarray,
    is_member: np.ndarray,
    categories: np.ndarray,
    names: Sequence[str],
    **bootstrap: Unpack[Bootstrap],
) -> dict[str, CategoryPrivacy]:
    """Return Privacy of the members' direct identifiers and the excess over held-out individuals, by category.

    Parameters
    ----------
    identifiers : identifiers of both sides' documents
    leaked : bool array by identifier number
    is_member : bool array, shape (S,), of each word's individual
    categories : integer array, shape (S,), the category of each word, as an index of ``names``

    Returns
    -------
    dict
        By category. Categories that no member has are left out. Counts are over the members.
    """
    result = {}
    words = identifiers.words
    direct = (identifiers.flags & DIRECT) != 0
    of_place, member = categories[identifiers.places], is_member[identifiers.places]
    for code in np.unique(of_place[direct & member]).tolist():
        chosen = direct & (of_place == code)
        sides = [
            _own(identifiers, chosen & side).per_individual(np.unique(words.individuals[of_word]), leaked)
            for side, of_word in ((member, is_member), (~member, ~is_member))
        ]
        distinct = np.unique(identifiers.numbers[chosen & member])
        excess = ExcessOverSides(
            heldout=ratio_estimate(*sides[1], **bootstrap), excess=ratio_difference(*sides, **bootstrap)
        )
        result[names[code] or "OTHER"] = extended(
            _complement(ratio_estimate(*sides[0], **bootstrap)),
            CategoryPrivacy,
            num_identifiers=len(distinct),
            num_leaked=int(leaked[distinct].sum()),
            excess=excess,
        )
    return result


def excess_leakage(
    identifiers: Identifiers, leaked: np.ndarray, is_member: np.ndarray, **bootstrap: Unpack[Bootstrap]
) -> dict[Part, Excess]:
    """Return leak rates of members and held-out individuals, and their difference.

    Parameters
    ----------
    identifiers : identifiers of both sides' documents together
    leaked : bool array by identifier number
    is_member : bool array, shape (S,), of each word's individual
    """
    return {
        part: excess_of(*(own.per_individual(codes, leaked) for own, codes in sides), **bootstrap)
        for part, sides in _sides(identifiers, is_member)
    }


def excess_over_base(
    identifiers: Identifiers,
    leaked: np.ndarray,
    base_leaked: np.ndarray,
    is_member: np.ndarray,
    **bootstrap: Unpack[Bootstrap],
) -> dict[Part, Excess]:
    """Return the excess of the leak rate over the base model's: for members, for held-out individuals, and the
    difference of the two.

    Both models are evaluated on the same identifiers, so each individual is their own control. The difference of the
    differences is the effect of training on the members' own documents. It contains neither the knowledge of the base
    model nor the guesses that any model of such documents makes.
    """
    result = {}
    for part, sides in _sides(identifiers, is_member):
        counts = []
        for own, codes in sides:
            (now, total, _), (before, *_) = (own.per_individual(codes, found) for found in (leaked, base_leaked))
            counts.append((now - before, total, codes))
        result[part] = excess_of(*counts, signed=True, **bootstrap)
    return result


def _sides(identifiers: Identifiers, is_member: np.ndarray) -> list[tuple[Part, list[tuple[_Ownership, np.ndarray]]]]:
    """For each part, the identifiers of members and of held-out individuals, with the codes of the individuals."""
    member, codes = is_member[identifiers.places], identifiers.words.individuals
    return [
        (
            part,
            [
                (_own(identifiers, chosen & side), np.unique(codes[of_word]))
                for side, of_word in ((member, is_member), (~member, ~is_member))
            ],
        )
        for part, chosen in identifiers.parts()
    ]


def _complement(estimate: Estimate) -> Estimate:
    """Leak rate -> privacy."""
    if estimate.value is None:
        return estimate
    low, high = (None if end is None else 1 - end for end in (estimate.high, estimate.low))
    return replace(estimate, value=1 - estimate.value, low=low, high=high)
