"""The threshold attack (definitions.md#threshold-attack): does protection by support tell who took part?

A word that exactly k individuals use is a target in the texts of k - 1 of them if the last one, *x*, is a member, and
protected there if not. So whoever has those texts reads the membership of x off the model, at words of others: the
score of x is the mean, over such words and the others who use them, of how much likelier the word is than under the
base model. No shadow is needed. The control are words of k + 1 to k + 3 users, which are targets whether or not x is a
member: what it finds is not the threshold's.

Support is counted on the spelling of a word, as protection counts it, over both sides of the audit. A word is asked in
the texts of members alone: held-out documents were not trained on. Cost: a pass over the words, and one look-up each.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reticent.audit.evidence.membership import KindAttack, ThresholdMembership
from reticent.audit.leakage.words import NO_SURFACE, SurfaceTable, Words
from reticent.audit.stats.statistics import Bootstrap, auc_estimate, tpr_at_fpr
from reticent.engine.schema import DIRECT
from reticent.engine.store import TokenStore

__all__ = ["CONTROLS", "ThresholdAudit", "spelling", "spelling_of"]

#: Users of a control word beyond k.
CONTROLS = (1, 2, 3)
FPR = 0.01


def spelling(text: str) -> str:
    """Return a word as support by exact surfaces counts it: NFC, without the space that its first token may hold."""
    return unicodedata.normalize("NFC", text).strip()


def spelling_of(surface: str) -> Callable[[str], str]:
    """Return `spelling` for an index that counts words by a surface: ``exact``, ``casefold`` or ``fold``."""
    if surface == "exact":
        return spelling

    def folded(text: str) -> str:
        from reticent import _rust

        words = pa.array([text.strip()], pa.string())
        return str(pa.record_batch(_rust.apply_surface(words, surface=surface)).column("word")[0])

    return folded


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Each subject, the words they are asked by, and where those stand in the texts of others.

    ``subject`` (numbers of individuals), ``word`` and ``other`` have one entry for each occurrence at ``place``.
    """

    subject: np.ndarray
    word: np.ndarray
    other: np.ndarray
    place: np.ndarray


class ThresholdAudit:
    """The words of the documents by their users; shared by all models of one tokenizer.

    Parameters
    ----------
    members : bool array, shape (store.num_documents,)
    words : of ``store``; table : a `SurfaceTable` that spells as `spelling_of` the index
    units : household of each individual (by code), where support counts households
    """

    def __init__(
        self,
        store: TokenStore,
        members: np.ndarray,
        words: Words,
        table: SurfaceTable,
        bootstrap: Bootstrap,
        units: np.ndarray | None = None,
    ):
        self.words, self.bootstrap = words, bootstrap
        spelt = table.surfaces(store.input_ids, words)
        unit_of = words.individuals if units is None else np.asarray(units)[words.individuals]
        unit_of_document = store.individual if units is None else np.asarray(units)[store.individual]
        codes, first = np.unique(unit_of_document, return_index=True)
        self.is_member = members[first]
        unit = np.searchsorted(codes, unit_of)
        of_direct = np.unique(spelt[(words.flags & DIRECT) != 0])
        usable = (spelt != NO_SURFACE) & ~np.isin(spelt, of_direct)
        self._places = np.flatnonzero(usable)
        self._spelt, self._units = spelt[self._places], unit[self._places]
        pairs = np.unique(np.stack([self._spelt, self._units]), axis=1)
        self._word_of_pair, self._unit_of_pair = pairs
        num_words = int(spelt.max(initial=-1)) + 1
        self._support = np.bincount(self._word_of_pair, minlength=num_words)
        member_pairs = self._word_of_pair[self.is_member[self._unit_of_pair]]
        self._member_support = np.bincount(member_pairs, minlength=num_words)
        self._known: dict[tuple[int, int], _Pairs] = {}

    def pairs(self, k: int, users: int) -> _Pairs:
        """Return who is asked by words of so many users. At the threshold (``users`` = k) all others are members; of a
        control word at least k are.
        """
        key = (k, users)
        if key in self._known:
            return self._known[key]
        word, unit = self._word_of_pair, self._unit_of_pair
        others = self._member_support[word] - self.is_member[unit]
        asked = (self._support[word] == users) & (others == k - 1 if users == k else others >= k)
        subjects, of_word = unit[asked], word[asked]
        order = np.argsort(self._spelt, kind="stable")
        spelt = self._spelt[order]
        first, end = (np.searchsorted(spelt, of_word, side=side) for side in ("left", "right"))
        lengths = end - first
        rows = np.repeat(np.arange(len(subjects)), lengths)
        places = order[np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))]
        other = self._units[places]
        kept = (other != subjects[rows]) & self.is_member[other]
        found = _Pairs(subjects[rows][kept], of_word[rows][kept], other[kept], self._places[places[kept]])
        self._known[key] = found
        return found

    def measure(self, log_probs: np.ndarray, base: np.ndarray | None, k: int) -> ThresholdMembership:
        """Return the attack on a model, and its control.

        Parameters
        ----------
        log_probs, base : of the tokens under the model and its base; None for the base itself, whose own
            log-probability is then the score
        k : of the model's protection, 2 for a model without
        """
        told = log_probs.astype(np.float64) if base is None else np.subtract(log_probs, base, dtype=np.float64)
        # A sum of its own for each word: running sums of a whole corpus would round the words away.
        told = np.append(np.nan_to_num(told, nan=np.nan, neginf=-1e3, posinf=1e3), 0.0)
        bounds = np.stack([self.words.starts, self.words.starts + self.words.lengths], axis=1).ravel()
        scores = np.add.reduceat(told, bounds)[::2] if len(bounds) else np.empty(0)
        at = self.pairs(k, k)
        above = [self.pairs(k, k + more) for more in CONTROLS]
        control = _Pairs(
            *(np.concatenate([getattr(one, name) for one in above]) for name in ("subject", "word", "other", "place"))
        )
        return ThresholdMembership(
            k=k,
            num_words=len(np.unique(at.word)),
            at_threshold=self._attack(self._subject_scores(scores, at)),
            above=self._attack(self._subject_scores(scores, control)),
        )

    def _subject_scores(self, scores: np.ndarray, pairs: _Pairs) -> np.ndarray:
        """Mean over words, of these over others, of these over occurrences; NaN for who is not asked."""
        known = np.isfinite(scores[pairs.place])
        columns = np.stack([pairs.subject[known], pairs.word[known], pairs.other[known]])
        values = scores[pairs.place[known]]
        while len(columns):  # the mean over what the last column tells apart, then without that column
            groups, number = np.unique(columns, axis=1, return_inverse=True)
            counts = np.bincount(number.ravel(), minlength=groups.shape[1])
            values = np.bincount(number.ravel(), values, minlength=groups.shape[1]) / counts
            columns, subjects = groups[:-1], groups[0]
        result = np.full(len(self.is_member), np.nan)
        result[subjects] = values
        return result

    def _attack(self, scores: np.ndarray) -> KindAttack:
        usable = np.isfinite(scores)
        sides = scores[usable & self.is_member], scores[usable & ~self.is_member]
        return KindAttack(
            auc=auc_estimate(*sides, **self.bootstrap),
            tpr=tpr_at_fpr(*sides, FPR, **self.bootstrap),
            num_members=len(sides[0]),
            num_nonmembers=len(sides[1]),
        )
