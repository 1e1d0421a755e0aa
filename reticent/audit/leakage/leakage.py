"""Leakage: which identifiers a model predicts (definitions.md#leakage).

A prediction counts wherever it appears: in any words of any document that was scored. The questions are asked of the
same integers:

- **Privacy** [@boutet2025]: of the members' identifiers, which share is never predicted?
- **Excess leakage**: the rate of members minus that of held-out individuals. Here identifiers are those of both
  sides' documents together, so that nothing but membership tells the two apart: which side an individual is on was
  drawn before anything was counted.

:class:`reticent.audit.leakage.identifiers.Identifiers` says what an identifier is. One that several individuals share
is split evenly among them, so that individuals add up to identifiers.
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
    """Identifiers and who has them: one entry for each (individual, identifier) pair."""

    individuals: np.ndarray
    identifiers: np.ndarray

    def per_individual(self, codes: np.ndarray, leaked: np.ndarray) -> Counts:
        """(leaked, all) identifiers of each individual, shared ones split evenly among their owners.

        ``leaked`` (bool) is by the number of an identifier.
        """
        if len(self.identifiers) == 0:
            return np.zeros(len(codes)), np.zeros(len(codes))
        _, inverse, owners = np.unique(self.identifiers, return_inverse=True, return_counts=True)
        weight = 1.0 / owners[inverse.reshape(-1)]
        row = np.searchsorted(codes, self.individuals)
        found = np.bincount(row, weights=weight * leaked[self.identifiers], minlength=len(codes))
        return found, np.bincount(row, weights=weight, minlength=len(codes))


def _own(identifiers: Identifiers, chosen: np.ndarray) -> _Ownership:
    """Pairs of the chosen occurrences (bool)."""
    # A pair as one number: NumPy sorts numbers ten times faster than rows.
    size = max(identifiers.num, 1)
    pairs = np.sort(identifiers.individuals[chosen].astype(np.int64) * size + identifiers.numbers[chosen])
    owners, owned = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], size)
    return _Ownership(owners, owned)


def privacy(identifiers: Identifiers, found: Predicted, **bootstrap: Unpack[Bootstrap]) -> dict[Part, Privacy]:
    """Return Privacy = 1 - leak rate for direct, indirect and both, at the three levels.

    A prediction counts wherever it appears, at every level: *types* are the distinct identifiers, *occurrences* the
    places that hold one, *individuals* those who have one, leaked when at least one of theirs is predicted.
    ``in_place`` is the share of the occurrences that are not predicted in their own words; ``unseen`` is the share of
    the types that are not predicted where the context given did not hold them.

    Parameters
    ----------
    identifiers : of the members' documents, as training was flagged; those of at most `Identifiers.n` words count
    found : what was predicted of them, in any scored document

    Returns
    -------
    dict
        Words with an unknown token cannot be predicted, so they would only flatter the model: they are counted apart
        (``num_unpredictable``) and in nothing else. So are surfaces that are protected and identify no one as leaks
        are matched (``num_common``).
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
            occurrences=_complement(ratio_estimate(anywhere, seen, **bootstrap)),
            individuals=_complement(ratio_estimate(any_leak, (seen > 0).astype(np.float64), **bootstrap)),
            in_place=_complement(ratio_estimate(in_place, seen, **bootstrap)),
            unseen=None
            if unseen is None
            else _complement(ratio_estimate(*own.per_individual(codes, unseen), **bootstrap)),
            num_identifiers=len(distinct),
            num_leaked=int(found.anywhere[distinct].sum()),
            num_leaked_unseen=None if unseen is None else int(unseen[distinct].sum()),
            num_common=identifiers.num_common.get(part),  # of both it would be the sum, which gives a small one away
            num_unpredictable=_num_unpredictable(identifiers, part),
        )
    return result


def _num_unpredictable(identifiers: Identifiers, part: Part) -> int:
    """Protected words that hold an unknown token."""
    return int(
        np.count_nonzero(((identifiers.words.flags & PART_FLAGS[part]) != 0) & (identifiers.surfaces == NO_SURFACE))
    )


def privacy_by_n(identifiers: Identifiers, found: Predicted, **bootstrap: Unpack[Bootstrap]) -> dict[str, NgramPrivacy]:
    """Return Privacy over the minimal identifying n-grams, for each n that occurs, up to `Identifiers.max_n`.

    An n-gram is predicted when its n words are predicted in n neighbouring words of one document, anywhere.
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
    """Return Privacy of the members' direct identifiers, and their excess over held-out individuals', by category.

    Parameters
    ----------
    identifiers : of both sides; leaked : bool array by number of an identifier
    is_member : bool array, shape (S,), of each word
    categories : integer array, shape (S,), numbers of ``names``

    Returns
    -------
    dict
        By category; those that no member has are left out. The counts are of the members.
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
    identifiers : of both sides' documents together
    leaked : bool array by number of an identifier
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
    """Return how much more leaks than from the base model: of members, of held-out individuals, and the difference.

    The same identifiers are asked of both models, so each individual is compared with themselves. The difference of
    differences is what fine-tuning on the members' own documents added: neither knowledge of the
    base model nor guesses that a model of such documents makes of any individual.
    """
    result = {}
    for part, sides in _sides(identifiers, is_member):
        counts = []
        for own, codes in sides:
            (now, total), (before, _) = (own.per_individual(codes, found) for found in (leaked, base_leaked))
            counts.append((now - before, total))
        result[part] = excess_of(*counts, signed=True, **bootstrap)
    return result


def _sides(identifiers: Identifiers, is_member: np.ndarray) -> list[tuple[Part, list[tuple[_Ownership, np.ndarray]]]]:
    """Of each part the identifiers of members and of held-out individuals, with the codes of these."""
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
