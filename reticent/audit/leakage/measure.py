"""All measures of leakage of one model, from the words that it predicted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from reticent.audit.config import AuditConfig
from reticent.audit.evidence.leakage import (
    AllOccurrences,
    CategoryPrivacy,
    Excess,
    LowCost,
    NgramPrivacy,
    Part,
    Privacy,
)
from reticent.audit.leakage.identifiers import Context, Identifiers
from reticent.audit.leakage.leakage import (
    excess_leakage,
    excess_over_base,
    privacy,
    privacy_by_category,
    privacy_by_n,
)
from reticent.audit.leakage.low_cost import Graph, adversary_graphs, low_cost_membership
from reticent.audit.leakage.words import Words
from reticent.audit.scoring.forward import word_folds
from reticent.audit.stats.clusters import Bootstrap
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds, cut_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Leakage", "LeakageAudit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leakage:
    """The leakage fields of a model's evidence."""

    privacy: dict[Part, Privacy]
    privacy_by_n: dict[str, NgramPrivacy]
    by_category: dict[str, CategoryPrivacy] | None
    excess: dict[Part, Excess]
    over_base: dict[Part, Excess] | None
    low_cost: LowCost


class LeakageAudit:
    """The identifiers of the documents, shared by all models of one tokenizer; computed on first use.

    Parameters
    ----------
    words, true : words of both sides' documents, and their surfaces
    train_words : words of the members' documents, with the flags of training
    is_member : bool array, shape (S,), of each word's individual
    units : household of each individual, by code; None: support counts individuals
    categories : (category number of each word, names of the categories), or None
    """

    def __init__(
        self,
        store: TokenStore,
        words: Words,
        true: np.ndarray,
        train_words: Words,
        is_member: np.ndarray,
        config: AuditConfig,
        bootstrap: Bootstrap,
        *,
        units: np.ndarray | None = None,
        categories: tuple[np.ndarray, Sequence[str]] | None = None,
    ):
        self.store, self.words, self.true, self.train_words = store, words, true, train_words
        self.is_member, self.config, self.units, self.categories = is_member, config, units, categories
        self._bootstrap = bootstrap
        self._contexts: dict[tuple[str, SpecialIds], Context] = {}

    @cached_property
    def identifiers(self) -> Identifiers:
        """The identifiers of both sides' documents together."""
        return self._identifiers(self.words, self.true)

    @cached_property
    def member_identifiers(self) -> Identifiers:
        """The identifiers of the members' documents."""
        return self._identifiers(self.train_words, self.true[self.is_member])

    @cached_property
    def graphs(self) -> list[Graph]:
        """The graphs of the adversaries of low-cost membership."""
        config = self.config
        return adversary_graphs(
            self.words, self.true, self.is_member, k=config.k, n=config.n, units=self.units,
            shares=config.graph_shares, seed=config.seed,
        )  # fmt: skip

    def _identifiers(self, words: Words, surfaces: np.ndarray) -> Identifiers:
        config = self.config
        return Identifiers(words, surfaces, k=config.k, n=config.n, max_n=config.max_n, units=self.units)

    def context(self, objective: str, special: SpecialIds) -> Context:
        """Return the window of each word, and the pass in which a masked model predicts it."""
        key = (objective, special)
        if key not in self._contexts:
            windows = cut_windows(self.store, self.config.window_length, special)
            of_word = np.searchsorted(windows.starts, self.words.starts, "right") - 1
            folds = None
            if objective == "mlm":
                folds = word_folds(self.store, self.config.folds, self.config.seed)[0][self.words.starts]
            self._contexts[key] = Context(of_word, folds)
        return self._contexts[key]

    def measure(self, predicted: np.ndarray, base_predicted: np.ndarray | None, context: Context) -> Leakage:
        """Return the leakage of a model.

        Parameters
        ----------
        predicted : int64 array, shape (S,), the surface that the model predicts for each word of the store
        base_predicted : the same for the base model; None if the model is the base model
        context : the contexts of the predictions
        """
        options, own, both = self._bootstrap, self.member_identifiers, self.identifiers
        of_members = own.predicted(predicted, self.words, self.true, context, self.is_member)
        leaked = self._leaked(both, predicted)
        over_base = by_category = None
        if base_predicted is not None:
            before = self._leaked(both, base_predicted)
            over_base = excess_over_base(both, leaked, before, self.is_member, **options)
        if self.categories is not None:
            by_category = privacy_by_category(both, leaked, self.is_member, *self.categories, **options)
        known = [self._leaked(graph.identifiers, predicted) for graph in self.graphs]
        return Leakage(
            privacy=privacy(own, of_members, **options),
            privacy_by_n=privacy_by_n(own, of_members, **options),
            by_category=by_category,
            excess=excess_leakage(both, leaked, self.is_member, **options),
            over_base=over_base,
            low_cost=low_cost_membership(self.graphs, known, self.is_member, **options),
        )

    def measure_all_occurrences(self, predicted: np.ndarray) -> AllOccurrences:
        """Return the leakage of a masked model that predicts a word with all its occurrences in the window masked."""
        found = self.member_identifiers.predicted(predicted, self.words, self.true, own=self.is_member)
        leaked = self._leaked(self.identifiers, predicted)
        return AllOccurrences(
            privacy=privacy(self.member_identifiers, found, **self._bootstrap),
            excess=excess_leakage(self.identifiers, leaked, self.is_member, **self._bootstrap),
        )

    def _leaked(self, identifiers: Identifiers, predicted: np.ndarray) -> np.ndarray:
        return identifiers.predicted(predicted, self.words, self.true).anywhere
