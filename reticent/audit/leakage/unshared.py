"""Identifiers all of whose users are on one side (definitions.md#leakage), and their weights in leak rates.

An identifier that both sides use (a doctor, a ward, a surname) counts on both. What a model learns of it from members
then raises the held-out rate too, and the difference of the rates is too small. So rates are also given over the
identifiers of one side alone. A user is an individual, or a household where the split keeps these together, in whose
documents the coarse surface forms occur, in a direct span or not.

Identifiers of one side alone are not exchangeable as they are: of those with *s* users p^s are left on a side with a
share p of all individuals. So the held-out side is standardised to the members, by number of users and category. Each
member identifier weighs 1, each held-out identifier as many member identifiers as it represents. Strata that one of the
sides does not have are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reticent.audit.leakage.identifiers import Identifiers


def standardised_weights(strata: np.ndarray, is_members: np.ndarray, is_others: np.ndarray) -> np.ndarray:
    """Return weights, float64 (items,), that give the others' items the same distribution over strata as the members'
    items. Members' items weigh 1; all items of a stratum without items of both sides weigh 0.

    Another's item weighs the number of members' items in its stratum divided by that of others' items.

    Parameters
    ----------
    strata : int array; is_members, is_others : bool arrays of the same shape

    >>> one, two = np.array([1, 1, 1, 0, 1, 0], dtype=bool), np.array([0, 0, 0, 1, 0, 0], dtype=bool)
    >>> standardised_weights(np.array([1, 1, 1, 1, 2, 1]), one, two).tolist()
    [1.0, 1.0, 1.0, 3.0, 0.0, 0.0]
    """
    _, number = np.unique(strata, return_inverse=True)
    number = number.reshape(-1)
    size = int(number.max(initial=-1)) + 1
    members, others = (np.bincount(number[side], minlength=size) for side in (is_members, is_others))
    comparable = (members > 0) & (others > 0)
    of_other = np.where(comparable, members / np.maximum(others, 1), 0.0)
    return np.where(is_members, comparable[number], np.where(is_others, of_other[number], 0.0)).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Users:
    """The number of users of each identifier on either side, and its category.

    Attributes
    ----------
    members, others : int arrays, shape (identifiers,), units of each side that use each identifier
    categories : int array, shape (identifiers,), the category of its first occurrence
    """

    members: np.ndarray
    others: np.ndarray
    categories: np.ndarray

    @classmethod
    def of(cls, identifiers: Identifiers, is_member: np.ndarray, categories: np.ndarray | None = None) -> Users:
        """Count the members and the others (individuals or households) who use each identifier; return the counts with
        the identifiers' categories.

        Parameters
        ----------
        is_member : bool array, shape (S,), of each word's individual
        categories : integer array, shape (S,), the category of each word; None: one category
        """
        numbers, units, places = identifiers.uses
        size = int(units.max(initial=0)) + 1
        pairs, first = np.unique(numbers * size + units, return_index=True)
        used, member = pairs // size, is_member[places[first]]
        own, others = (np.bincount(used[side], minlength=identifiers.num) for side in (member, ~member))
        of_identifier = np.zeros(identifiers.num, dtype=np.int64)
        if categories is not None:
            found, at = np.unique(identifiers.numbers, return_index=True)
            of_identifier[found] = categories[identifiers.places[at]]
        return cls(own, others, of_identifier)

    @property
    def is_shared(self) -> np.ndarray:
        """Whether both members and others use each identifier, bool (identifiers,)."""
        return (self.members > 0) & (self.others > 0)

    @property
    def has_one_user(self) -> np.ndarray:
        """Whether each identifier has a single user, bool (identifiers,)."""
        return self.members + self.others == 1

    def weights(self, is_chosen: np.ndarray) -> np.ndarray:
        """Return weights, float64 (identifiers,), of those chosen identifiers that only members or only others use.
        Weighted, both sides' identifiers have the same distribution of categories and of numbers of users."""
        only_members = is_chosen & (self.members > 0) & (self.others == 0)
        only_others = is_chosen & (self.others > 0) & (self.members == 0)
        strata = (self.members + self.others) * (int(self.categories.max(initial=0)) + 1) + self.categories
        return standardised_weights(strata, only_members, only_others)
