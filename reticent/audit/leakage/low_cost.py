"""Low-cost membership (definitions.md#leakage): a predicted identifier makes its individual a member.

The adversary has some documents and counts in them which individuals use each n-gram: the graph. It is rebuilt from a
*share* of the documents, so it lacks some identifiers and contains false ones. For example, an n-gram of three
individuals looks identifying if the adversary has documents of only one of them. A share of 1 is the case of the
auditor. Beside it stands the graph of the training documents alone [@boutet2025, §6.4], whose identifiers are searched
in the documents of both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Unpack

import numpy as np

from reticent.audit.evidence.json_form import extended
from reticent.audit.evidence.leakage import Calls, GraphCalls, GraphShare, LowCost, f1_of_hits
from reticent.audit.leakage.identifiers import Identifiers
from reticent.audit.leakage.words import Words
from reticent.audit.stats.clusters import Bootstrap, cluster_sums, clusters_of, iter_resamples
from reticent.audit.stats.statistics import EXACT, Estimate, clopper_pearson
from reticent.engine.randomness import generator
from reticent.engine.schema import INDIRECT

__all__ = ["Graph", "adversary_graphs", "documents_held", "low_cost_membership"]


@dataclass(frozen=True, slots=True)
class Graph:
    """The graph of an adversary: its identifiers and their owners, and the number of false identifiers.

    Attributes
    ----------
    share : share of the documents that the graph is made from; None for the training documents alone
    num_false : number of identifiers of the graph that k units or more use in all documents
    """

    share: float | None
    identifiers: Identifiers
    num: int
    num_false: int


def documents_held(num_documents: int, share: float, seed: int) -> np.ndarray:
    """Return the documents that an adversary with this share has, bool; larger shares contain smaller ones."""
    return generator(seed, 11).random(num_documents) < share


def adversary_graphs(
    words: Words,
    surfaces: np.ndarray,
    is_member: np.ndarray,
    *,
    k: int,
    n: int,
    units: np.ndarray | None = None,
    shares: Sequence[float] = (1.0,),
    seed: int = 0,
) -> list[Graph]:
    """Return the graph of each share of the documents, and last that of the training documents alone.

    Parameters
    ----------
    words, surfaces : words of the documents of both sides, and their surfaces, shape (S,)
    is_member : bool array, shape (S,), of each word's individual
    k, n, units : as for `Identifiers`

    Cost: that of `Identifiers` for each share.
    """
    identify = partial(Identifiers, words, surfaces, k=k, n=n, max_n=n, units=units)
    whole = identify()
    num_documents = int(words.documents.max(initial=-1)) + 1
    graphs = []
    for share in shares:
        held = documents_held(num_documents, share, seed)[words.documents]
        own = whole if held.all() else identify(held=held)
        graphs.append(_graph(float(share), own, whole))
    training = identify(held=is_member, owners_of_all=True)
    return [*graphs, _graph(None, training, whole)]


def _graph(share: float | None, own: Identifiers, whole: Identifiers) -> Graph:
    indirect = (own.flags & INDIRECT) != 0
    true = np.isin(_keys(own)[indirect], _keys(whole)[(whole.flags & INDIRECT) != 0])
    numbers = own.numbers[indirect]
    num = len(np.unique(numbers))
    return Graph(share, own, num, num - len(np.unique(numbers[true])))


def _keys(identifiers: Identifiers) -> np.ndarray:
    """Position and length of each occurrence as one number."""
    return identifiers.places * (identifiers.max_n + 1) + identifiers.lengths


def low_cost_membership(
    graphs: Sequence[Graph],
    leaked: Sequence[np.ndarray],
    is_member: np.ndarray,
    **bootstrap: Unpack[Bootstrap],
) -> LowCost:
    """Return precision, recall and F1 of an attack that calls an individual a member if one of their indirect
    identifiers is predicted.

    Parameters
    ----------
    graphs : from `adversary_graphs`; the first is the headline
    leaked : for each graph, a bool array by identifier number: whether the identifier was predicted
    is_member : bool array, shape (S,), of each word's individual
    """
    words = graphs[0].identifiers.words
    codes, first = np.unique(words.individuals, return_index=True)
    member = is_member[first]
    rows: list[GraphShare] = []
    training = None
    for graph, found in zip(graphs, leaked, strict=True):
        own = graph.identifiers
        known = ((own.flags & INDIRECT) != 0) & found[own.numbers]
        called = np.zeros(len(codes), dtype=bool)
        called[np.searchsorted(codes, own.individuals[known])] = True
        calls = extended(
            _calls(called, member, codes, **bootstrap),
            GraphCalls,
            num_identifiers=graph.num,
            num_false=graph.num_false,
        )
        if graph.share is None:
            training = calls
        else:
            rows.append(extended(calls, GraphShare, share=graph.share))
    headline = rows[0]
    return LowCost(
        precision=headline.precision,
        recall=headline.recall,
        f1=headline.f1,
        by_graph_share=rows,
        training_graph=training,
    )


def _calls(
    called: np.ndarray,
    member: np.ndarray,
    codes: np.ndarray,
    *,
    num_bootstrap: int,
    seed: int,
    units: np.ndarray | None = None,
) -> Calls:
    """Precision, recall and F1 of the calls; a 0 or 1 does not vary in a bootstrap and has exact bounds. The far end of
    others reaches at least as far as an exact one. Exact bounds count households, where there are any.
    """
    confusion = np.stack([called & member, called & ~member, ~called & member], axis=1).astype(np.float64)
    num_called, num_members, n = int(called.sum()), int(member.sum()), len(called)
    missing = {
        "precision": "" if num_called else "no individual was called a member",
        "recall": "" if num_members else "there is no member",
        "f1": "" if num_members else "there is no member",
    }
    counted = {"precision": (num_called, called), "recall": (num_members, member), "f1": (n, np.ones(n, dtype=bool))}
    values = _scores(confusion.sum(axis=0, keepdims=True))[:, 0]
    clusters = clusters_of(codes, units)
    drawn_together = confusion if clusters is None else cluster_sums(confusion, clusters)

    def size(chosen: np.ndarray) -> int:
        """Number of the chosen, or of their households."""
        return int(np.count_nonzero(chosen)) if clusters is None else len(np.unique(clusters[chosen]))

    blocks = iter_resamples(len(drawn_together), num_bootstrap, seed) if n else iter(())
    draws = np.concatenate([np.empty((3, 0)), *(_scores(weights @ drawn_together) for weights in blocks)], axis=1)
    result: dict[str, Estimate] = {}
    for (name, why), value, drawn in zip(missing.items(), values, draws, strict=True):
        number, chosen = counted[name]
        if why:
            estimate = Estimate(value=None, n=size(chosen), method=why)
        elif value in (0.0, 1.0):
            low, high = _exact_interval(name, float(value), size(called), size(member))
            estimate = Estimate(value=float(value), low=low, high=high, n=size(chosen), method=EXACT)
        else:
            low, high = np.quantile(drawn[np.isfinite(drawn)], [0.025, 0.975])
            all_of = {"precision": called, "recall": member, "f1": called | member}[name]
            share, trials = np.count_nonzero(called & member) / np.count_nonzero(all_of), size(all_of)
            hits = round(share * trials)  # of households: as many as of individuals, in proportion
            least, most = (f1_of_hits(end) if name == "f1" else end for end in clopper_pearson(hits, trials))
            low, high = (low, max(high, most)) if 2 * share <= 1 else (min(low, least), high)
            estimate = Estimate(value=float(value), low=float(low), high=float(high), n=size(chosen))
        result[name] = estimate if clusters is None else estimate.over_households(number)
    return Calls(**result)


def _exact_interval(name: str, value: float, num_called: int, num_members: int) -> tuple[float, float]:
    """Interval of a precision, recall or F1 of 0 or 1, from Clopper-Pearson's bounds of precision and recall.

    F1 is their harmonic mean. Without a hit it is at most the harmonic mean of recall's bound and a precision of 1.
    """
    recall = clopper_pearson(0, num_members, one_sided=True)[1] if num_members else 1.0
    if value == 0 and name == "f1":
        return 0.0, 2 * recall / (1 + recall)
    precision = clopper_pearson(0, num_called, one_sided=True)[1] if num_called else 1.0
    if name == "f1":
        return 2 * (1 - precision) * (1 - recall) / (2 - precision - recall), 1.0
    bound = precision if name == "precision" else recall
    return (0.0, bound) if value == 0 else (1 - bound, 1.0)


def _scores(confusion: np.ndarray) -> np.ndarray:
    """Rows of (hits, false calls, missed members) -> precision, recall and F1, shape (3, rows); NaN for 0 / 0."""
    hit, false, missed = confusion.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([hit / (hit + false), hit / (hit + missed), 2 * hit / (2 * hit + false + missed)])
