"""Leakage: the identifiers that a model predicts (definitions.md#leakage).

A prediction counts wherever it appears, at any words of any scored document. Two measures use it:

- **Privacy** [@boutet2025]: the share of the members' identifiers that is never predicted.
- **Excess leakage**: the rate of members minus the rate of held-out individuals. The identifiers are those of both
  sides' documents together, and the sides were drawn before anything was counted. An identifier that both sides use is
  learned from members and counts in both rates; so the rates are also given over the identifiers of one side alone
  (:mod:`reticent.audit.leakage.unshared`).

:class:`reticent.audit.leakage.identifiers.Identifiers` defines an identifier. An identifier that several individuals
share is split evenly among them, so the individuals' shares add up to the number of identifiers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar, Unpack

import numpy as np

from reticent.audit.config import AuditConfig
from reticent.audit.evidence.json_form import extended
from reticent.audit.evidence.leakage import (
    AllOccurrences,
    Calls,
    CategoryPrivacy,
    Excess,
    ExcessOverSides,
    Exposed,
    GraphCalls,
    GraphShare,
    LowCost,
    NgramPrivacy,
    Part,
    Privacy,
    Unshared,
    f1_from_jaccard,
)
from reticent.audit.leakage.identifiers import PART_FLAGS, Context, Identifiers, Predicted, follows_directly
from reticent.audit.leakage.unshared import Users
from reticent.audit.leakage.words import NO_SURFACE, Words
from reticent.audit.scoring.scores import word_folds
from reticent.audit.stats.intervals import (
    EXACT,
    NORMAL,
    Bootstrap,
    Counts,
    Estimate,
    clopper_pearson,
    cluster_sums,
    clusters_of,
    excess_of,
    iter_resamples,
    ratio_difference,
    ratio_estimate,
)
from reticent.engine.randomness import generator
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds, cut_windows

S = TypeVar("S", bound=Excess)


@dataclass(frozen=True, slots=True)
class _Ownership:
    """Identifiers and their owners: one entry for each (individual, identifier) pair."""

    individuals: np.ndarray
    identifiers: np.ndarray

    def per_individual(self, codes: np.ndarray, leaked: np.ndarray, weights: np.ndarray | None = None) -> Counts:
        """Return three arrays with one entry for each individual in ``codes``: number of leaked identifiers, number of
        identifiers, code. An identifier that m individuals use counts 1 / m for each.

        ``leaked`` is a bool or signed array by identifier number; ``weights`` are by identifier, None: 1.
        """
        if len(self.identifiers) == 0:
            return np.zeros(len(codes)), np.zeros(len(codes)), codes
        _, inverse, owners = np.unique(self.identifiers, return_inverse=True, return_counts=True)
        weight = 1.0 / owners[inverse.reshape(-1)]
        if weights is not None:
            weight *= weights[self.identifiers]
        row = np.searchsorted(codes, self.individuals)
        found = np.bincount(row, weights=weight * leaked[self.identifiers], minlength=len(codes))
        return found, np.bincount(row, weights=weight, minlength=len(codes)), codes


def _owners_of(identifiers: Identifiers, is_chosen: np.ndarray) -> _Ownership:
    """Return the distinct (individual, identifier) pairs among the identifier occurrences in the mask ``is_chosen``."""
    # A pair is packed into one number, because NumPy sorts numbers ten times faster than rows.
    size = max(identifiers.num, 1)
    pairs = np.sort(identifiers.individuals[is_chosen].astype(np.int64) * size + identifiers.numbers[is_chosen])
    owners, owned = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], size)
    return _Ownership(owners, owned)


def privacy(identifiers: Identifiers, found: Predicted, **bootstrap: Unpack[Bootstrap]) -> dict[Part, Privacy]:
    """Return Privacy (1 - leak rate) for direct identifiers, indirect ones and both: the shares of distinct
    identifiers, of occurrences and of individuals that the model does not give away.

    A prediction counts wherever it appears, at every level. *Types* are the distinct identifiers, *occurrences* their
    uses, and *individuals* their owners, who count as leaked if at least one of their identifiers is predicted.
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
        own = _owners_of(identifiers, chosen)
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
    """Return the number of protected words (direct, indirect or both, as ``part`` says) that the tokenizer cannot
    encode without its unknown token, so that no prediction can match them."""
    return int(
        np.count_nonzero(((identifiers.words.flags & PART_FLAGS[part]) != 0) & (identifiers.surfaces == NO_SURFACE))
    )


def privacy_by_n(identifiers: Identifiers, found: Predicted, **bootstrap: Unpack[Bootstrap]) -> dict[str, NgramPrivacy]:
    """Return n (as text) -> Privacy of the identifying n-grams: the share that the model does not predict. An n-gram
    that contains a shorter identifier is not counted.

    An n-gram counts as predicted if its n words are predicted at n neighbouring words of any document.
    """
    codes = np.unique(identifiers.words.individuals)
    result = {}
    indirect = (identifiers.flags & INDIRECT) != 0
    for n in range(1, identifiers.max_n + 1):
        chosen = indirect & (identifiers.lengths == n)
        if not chosen.any():
            continue
        own = _owners_of(identifiers, chosen)
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
    compared: Compared | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> dict[str, CategoryPrivacy]:
    """Return category of direct identifiers (such as names) -> Privacy (the share of members' identifiers that the
    model does not predict) and members' excess leak rate over held-out individuals.

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
    compared = compared or Compared(Users.of(identifiers, is_member, categories))
    direct = (identifiers.flags & DIRECT) != 0
    of_place, member = categories[identifiers.places], is_member[identifiers.places]
    for code in np.unique(of_place[direct & member]).tolist():
        chosen = direct & (of_place == code)
        sides = _excess_of_part(identifiers, leaked, is_member, chosen, compared, **bootstrap)
        distinct = np.unique(identifiers.numbers[chosen & member])
        assert sides.unshared is not None
        result[names[code] or "OTHER"] = extended(
            _complement(sides.members),
            CategoryPrivacy,
            num_identifiers=len(distinct),
            num_leaked=int(leaked[distinct].sum()),
            excess=ExcessOverSides(heldout=sides.heldout, excess=sides.excess, unshared=sides.unshared),
        )
    return result


def excess_leakage(
    identifiers: Identifiers,
    leaked: np.ndarray,
    is_member: np.ndarray,
    compared: Compared | None = None,
    *,
    before: np.ndarray | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> dict[Part, Excess]:
    """Return the leak rates of members' and of held-out individuals' identifiers and their difference, for direct
    identifiers, indirect ones and both.

    There are rates over all identifiers, over those that only members or only others use, and without held-out
    individuals who hold near-copies.

    With the leaks of the base model (``before``) the rates are changes, each individual being their own control. The
    difference of the differences is the effect of training on the members' own documents, without the knowledge of the
    base model and without the guesses that any model of such documents makes.

    Parameters
    ----------
    identifiers : identifiers of both sides' documents together
    leaked, before : bool arrays by identifier number
    is_member : bool array, shape (S,), of each word's individual
    compared : users of the identifiers, and the words kept; None: users by these words, all of one category, all kept
    """
    compared = compared or Compared(Users.of(identifiers, is_member))
    change = leaked if before is None else leaked.astype(np.int64) - before
    return {
        part: _excess_of_part(identifiers, change, is_member, chosen, compared, signed=before is not None, **bootstrap)
        for part, chosen in identifiers.parts()
    }


@dataclass(frozen=True, slots=True)
class Compared:
    """The users of the identifiers of both sides, and a mask, bool (S,), of the words of individuals who are not left
    out for near-copies; None if nobody is."""

    users: Users
    kept: np.ndarray | None = None


def _excess_of_part(
    identifiers: Identifiers,
    leaked: np.ndarray,
    is_member: np.ndarray,
    chosen: np.ndarray,
    compared: Compared,
    *,
    signed: bool = False,
    **bootstrap: Unpack[Bootstrap],
) -> Excess:
    """Return members' and held-out individuals' leak rates and their difference, over the identifier occurrences in the
    mask ``chosen``."""
    codes, member = identifiers.words.individuals, is_member[identifiers.places]
    sides = [
        (_owners_of(identifiers, chosen & side), np.unique(codes[of_word]))
        for side, of_word in ((member, is_member), (~member, ~is_member))
    ]
    members, heldout = (own.per_individual(of_side, leaked) for own, of_side in sides)
    among = identifiers.have_occurrences(chosen)
    weights = compared.users.weights(among)
    alone = excess_of(
        *(own.per_individual(of_side, leaked, weights) for own, of_side in sides), signed=signed, **bootstrap
    )
    only_members = among & (compared.users.members > 0) & (compared.users.others == 0)
    without = None
    if compared.kept is not None:
        kept = _owners_of(identifiers, chosen & ~member & compared.kept[identifiers.places])
        others = kept.per_individual(np.unique(codes[~is_member & compared.kept]), leaked)
        without = ratio_difference(members, others, signed=signed, **bootstrap)
    return replace(
        excess_of(members, heldout, signed=signed, **bootstrap),
        without_copies=without,
        unshared=Unshared(
            members=alone.members,
            heldout=alone.heldout,
            excess=alone.excess,
            num_shared=int(np.count_nonzero(among & compared.users.is_shared)),
            num_unmatched=int(np.count_nonzero(only_members & (weights == 0))),
        ),
    )


def exposed_individuals(
    identifiers: Identifiers,
    leaked: np.ndarray,
    is_member: np.ndarray,
    compared: Compared | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> Exposed:
    """Return the share of members, and of held-out individuals, of whom an identifier leaked that nobody outside their
    household uses, and the difference. Individuals without such an identifier are not counted.

    Identifiers of several users are left out: a mean can be standardised by that number, a share of individuals cannot.
    """
    compared = compared or Compared(Users.of(identifiers, is_member))
    words, within = identifiers.words, identifiers.lengths <= identifiers.n
    own = within & compared.users.has_one_user[identifiers.numbers]
    member = is_member[identifiers.places]

    def of_side(is_own_occurrence: np.ndarray, is_own_word: np.ndarray) -> Counts:
        """Return three arrays with one entry for each individual of one side: whether an identifier leaked that only
        they use, whether they have such an identifier, code."""
        codes = np.unique(words.individuals[is_own_word])
        row = np.searchsorted(codes, identifiers.individuals[own & is_own_occurrence])
        any_leak = np.bincount(row, leaked[identifiers.numbers[own & is_own_occurrence]], minlength=len(codes)) > 0
        return any_leak.astype(np.float64), (np.bincount(row, minlength=len(codes)) > 0).astype(np.float64), codes

    members, heldout = of_side(member, is_member), of_side(~member, ~is_member)
    without = None
    if compared.kept is not None:
        of_kept = of_side(~member & compared.kept[identifiers.places], ~is_member & compared.kept)
        without = ratio_difference(members, of_kept, **bootstrap)
    return extended(replace(excess_of(members, heldout, **bootstrap), without_copies=without), Exposed)


def shared_over_base(
    identifiers: Identifiers,
    leaked: np.ndarray,
    base_leaked: np.ndarray,
    compared: Compared,
    **bootstrap: Unpack[Bootstrap],
) -> Estimate:
    """Return the model's minus the base model's leak rate of the identifiers that both members and others use. Held-out
    individuals give no control for it, since they use these identifiers too."""
    chosen = (identifiers.lengths <= identifiers.n) & compared.users.is_shared[identifiers.numbers]
    change = leaked.astype(np.int64) - base_leaked
    counts = _owners_of(identifiers, chosen).per_individual(np.unique(identifiers.words.individuals), change)
    return ratio_estimate(*counts, signed=True, **bootstrap)


def _complement(estimate: Estimate) -> Estimate:
    """Return 1 minus a rate, with its interval, to turn a leak rate into Privacy."""
    if estimate.value is None:
        return estimate
    low, high = (None if end is None else 1 - end for end in (estimate.high, estimate.low))
    return replace(estimate, value=1 - estimate.value, low=low, high=high)


# ------------------------------------------------------------------------------------------------------------ low cost
#
# Low-cost membership (definitions.md#leakage): a predicted identifier makes its individual a member.
#
# The adversary has some documents and counts in them which individuals use each n-gram: the graph. It is rebuilt from
# a *share* of the documents, so it lacks some identifiers and contains false ones. For example, an n-gram of three
# individuals looks identifying if the adversary has documents of only one of them. A share of 1 is the case of the
# auditor. Beside it stands the graph of the training documents alone [@boutet2025, §6.4], whose identifiers are
# searched in the documents of both sides.


@dataclass(frozen=True, slots=True)
class Graph:
    """An adversary's graph of identifiers and their owners, with the number of its false identifiers.

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
    """Draw at random which documents an adversary knows who has this share of them, bool (num_documents,). With the
    same seed, a larger share includes the documents of a smaller one."""
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
    """Return the bipartite graph of individuals and their identifiers as each of several adversaries would build it:
    one for each share of the documents known to them in ``shares``, and last one who knows the training documents.

    Parameters
    ----------
    words, surfaces : words of the documents of both sides, and the numbers of their surface forms, shape (S,)
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
        graphs.append(_compare_graph(float(share), own, whole))
    training = identify(held=is_member, owners_of_all=True)
    return [*graphs, _compare_graph(None, training, whole)]


def _compare_graph(share: float | None, known: Identifiers, corpus_wide: Identifiers) -> Graph:
    """Return an adversary's graph of individuals and the identifiers in the documents ``known`` to them, with the
    number of those identifiers that identify nobody in the whole corpus. ``share`` is the share of documents known."""
    indirect = (known.flags & INDIRECT) != 0
    true = np.isin(
        _occurrence_keys(known)[indirect], _occurrence_keys(corpus_wide)[(corpus_wide.flags & INDIRECT) != 0]
    )
    numbers = known.numbers[indirect]
    num = len(np.unique(numbers))
    return Graph(share, known, num, num - len(np.unique(numbers[true])))


def _occurrence_keys(identifiers: Identifiers) -> np.ndarray:
    """Return one int64 key for the (position, length) of each identifier occurrence."""
    return identifiers.places * (identifiers.max_n + 1) + identifiers.lengths


def low_cost_membership(
    graphs: Sequence[Graph],
    leaked: Sequence[np.ndarray],
    is_member: np.ndarray,
    **bootstrap: Unpack[Bootstrap],
) -> LowCost:
    """Return precision, recall and F1 of the attack that declares an individual a member if one of their indirect
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
            _measure_calls(called, member, codes, **bootstrap),
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


def _measure_calls(
    is_called: np.ndarray,
    is_member: np.ndarray,
    codes: np.ndarray,
    *,
    num_bootstrap: int,
    seed: int,
    units: np.ndarray | None = None,
) -> Calls:
    """Return precision, recall and F1 of declaring the individuals in the mask ``is_called`` members, with bootstrap
    intervals that are at least as wide as exact ones."""
    confusion = np.stack([is_called & is_member, is_called & ~is_member, ~is_called & is_member], axis=1).astype(
        np.float64
    )
    num_called, num_members, n = int(is_called.sum()), int(is_member.sum()), len(is_called)
    missing = {
        "precision": "" if num_called else "no individual was called a member",
        "recall": "" if num_members else "there is no member",
        "f1": "" if num_members else "there is no member",
    }
    counted = {
        "precision": (num_called, is_called),
        "recall": (num_members, is_member),
        "f1": (n, np.ones(n, dtype=bool)),
    }
    values = _precision_recall_f1(confusion.sum(axis=0, keepdims=True))[:, 0]
    clusters = clusters_of(codes, units)
    drawn_together = confusion if clusters is None else cluster_sums(confusion, clusters)

    def size(chosen: np.ndarray) -> int:
        """Return how many individuals are in the mask ``chosen`` or, if households are resampled, how many
        households.
        """
        return int(np.count_nonzero(chosen)) if clusters is None else len(np.unique(clusters[chosen]))

    blocks = iter_resamples(len(drawn_together), num_bootstrap, seed) if n else iter(())
    draws = np.concatenate(
        [np.empty((3, 0)), *(_precision_recall_f1(weights @ drawn_together) for weights in blocks)], axis=1
    )
    result: dict[str, Estimate] = {}
    for (name, why), value, drawn in zip(missing.items(), values, draws, strict=True):
        number, chosen = counted[name]
        if why:
            estimate = Estimate(value=None, n=size(chosen), method=why)
        elif value in (0.0, 1.0):
            low, high = _exact_interval(name, float(value), size(is_called), size(is_member))
            estimate = Estimate(value=float(value), low=low, high=high, n=size(chosen), method=EXACT)
        else:
            low, high = np.quantile(drawn[np.isfinite(drawn)], [0.025, 0.975])
            all_of = {"precision": is_called, "recall": is_member, "f1": is_called | is_member}[name]
            share, trials = np.count_nonzero(is_called & is_member) / np.count_nonzero(all_of), size(all_of)
            hits = round(share * trials)  # of households: as many as of individuals, in proportion
            least, most = (f1_from_jaccard(end) if name == "f1" else end for end in clopper_pearson(hits, trials))
            low, high = (low, max(high, most)) if 2 * share <= 1 else (min(low, least), high)
            estimate = Estimate(value=float(value), low=float(low), high=float(high), n=size(chosen))
        result[name] = estimate if clusters is None else estimate.over_households(number)
    return Calls(**result)


def _exact_interval(name: str, value: float, num_called: int, num_members: int) -> tuple[float, float]:
    """Return the interval (low, high) of a precision, recall or F1 that is exactly 0 or 1, from Clopper-Pearson bounds.

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


def _precision_recall_f1(confusion: np.ndarray) -> np.ndarray:
    """Return precision, recall and F1, float64 (3, rows), from rows of (true positives, false positives, false
    negatives); NaN for 0 / 0."""
    hit, false, missed = confusion.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([hit / (hit + false), hit / (hit + missed), 2 * hit / (2 * hit + false + missed)])


# ------------------------------------------------------------------------------------------------------------- measure
#
# All measures of leakage of one model, from the words that it predicted.


@dataclass(frozen=True, slots=True, kw_only=True)
class Leakage:
    """The leakage fields of a model's evidence."""

    privacy: dict[Part, Privacy]
    privacy_by_n: dict[str, NgramPrivacy]
    by_category: dict[str, CategoryPrivacy] | None
    excess: dict[Part, Excess]
    over_base: dict[Part, Excess] | None
    exposed: Exposed | None
    shared_over_base: Estimate | None
    low_cost: LowCost


@dataclass(frozen=True, slots=True)
class FoldDraws:
    """What a masked model predicts under further random choices of its masked words (folds), for the documents of some
    members.

    Attributes
    ----------
    documents : int64 array, numbers of the documents, ascending
    predicted : for each choice, the surface form predicted for each word of these documents, int64
    """

    documents: np.ndarray
    predicted: Sequence[np.ndarray]


def _fold_variance(leaked: np.ndarray) -> float:
    """Return the mean, over items, of the variance of the bool array ``leaked`` (draws, items) between draws, each
    another assignment of words to masking passes. As draws are few, one more change than observed is counted."""
    return float((leaked.var(axis=0, ddof=1).sum() + 1 / len(leaked)) / max(leaked.shape[1], 1))


def _half_width(variance: float, num_members: int | None, num_others: int | None) -> float:
    """Return the half width of a 95 % interval of the difference of two means, over ``num_members`` and ``num_others``
    items, from the variance of one item."""
    return NORMAL * math.sqrt(variance * sum(1 / max(num or 0, 1) for num in (num_members, num_others)))


def _widen_for_folds(rates: S, variance: float, num_members: int | None, num_others: int | None) -> S:
    """Return leak rates with a wider interval of the members' excess, to account for how a masked model's words were
    assigned to masking passes. ``variance`` is that of one item between random assignments."""
    more, without = _half_width(variance, num_members, num_others), rates.without_copies
    return replace(
        rates,
        excess=rates.excess.widened(more, more, -1.0),
        without_copies=without and without.widened(more, more, -1.0),
    )


def _with_fold_spread(privacy: Privacy, variance: float) -> Privacy:
    """Return the Privacy (share of identifiers not predicted) with a wider interval, to account for how a masked
    model's words were assigned to masking passes. ``variance`` is that of one identifier between random assignments."""
    spread = math.sqrt(variance / max(privacy.num_identifiers or 0, 1))
    return replace(privacy, types=privacy.types.widened(NORMAL * spread, NORMAL * spread), fold_spread=round(spread, 4))


class LeakageAudit:
    """The leakage measures of the documents, shared by all models of one tokenizer; identifiers are found on first use.

    Parameters
    ----------
    words, true : words of both sides' documents, and the numbers of their surface forms
    train_words : words of the members' documents, with the flags of training
    is_member : bool array, shape (S,), of each word's individual
    units : household of each individual, by code; None: support counts individuals
    categories : (category number of each word, names of the categories), or None
    kept : bool array by code, False for individuals left out for near-copies, or None
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
        kept: np.ndarray | None = None,
    ):
        self._kept = kept
        self.store, self.words, self.true, self.train_words = store, words, true, train_words
        self.is_member, self.config, self.units, self.categories = is_member, config, units, categories
        self._bootstrap = bootstrap
        self._contexts: dict[tuple[str, SpecialIds], Context] = {}

    @cached_property
    def identifiers(self) -> Identifiers:
        """The identifiers in the documents of members and held-out individuals together."""
        return self._find_identifiers(self.words, self.true)

    @cached_property
    def compared(self) -> Compared:
        """Numbers of members and of others who use each identifier, and a mask of the words that remain if held-out
        individuals with near-copies of members' documents are left out."""
        codes = None if self.categories is None else self.categories[0]
        kept = None if self._kept is None else self._kept[self.words.individuals]
        return Compared(Users.of(self.identifiers, self.is_member, codes), kept)

    @cached_property
    def member_identifiers(self) -> Identifiers:
        """The identifiers of the members' documents."""
        return self._find_identifiers(self.train_words, self.true[self.is_member])

    @cached_property
    def graphs(self) -> list[Graph]:
        """The bipartite graphs of individuals and their identifiers that adversaries could build: one for each
        configured share of documents known to them, and last one from the training documents."""
        config = self.config
        return adversary_graphs(
            self.words, self.true, self.is_member, k=config.k, n=config.n, units=self.units,
            shares=config.graph_shares, seed=config.seed,
        )  # fmt: skip

    def _find_identifiers(self, words: Words, surfaces: np.ndarray) -> Identifiers:
        """Return the identifiers in these words: direct ones, and n-grams of up to n words that fewer than k
        individuals (or households) use, with the audit's n and k."""
        config = self.config
        return Identifiers(words, surfaces, k=config.k, n=config.n, max_n=config.max_n, units=self.units)

    def context(self, objective: str, special: SpecialIds) -> Context:
        """Return what a model sees when it predicts each word: the number of the word's window and, for a masked model,
        the scoring pass (fold) in which the word is masked."""
        key = (objective, special)
        if key not in self._contexts:
            windows = cut_windows(self.store, self.config.window_length, special)
            of_word = np.searchsorted(windows.starts, self.words.starts, "right") - 1
            folds = None
            if objective == "mlm":
                folds = word_folds(self.store, self.config.folds, self.config.seed)[0][self.words.starts]
            self._contexts[key] = Context(of_word, folds)
        return self._contexts[key]

    def measure(
        self,
        predicted: np.ndarray,
        base_predicted: np.ndarray | None,
        context: Context,
        draws: FoldDraws | None = None,
    ) -> Leakage:
        """Return all leakage measures of a model. ``predicted`` has the number of the spelling that it predicts for
        each word, ``base_predicted`` that of its base model.

        Parameters
        ----------
        predicted : int64 array, shape (S,), number of the surface form that the model predicts for each word of the
        store
        base_predicted : the same for the base model; None if the model is the base model
        context : the contexts of the predictions
        draws : predictions under further folds of a masked model; the intervals of Privacy, of the excess and of the
            excess over the base then include the spread between folds
        """
        options, own, both = self._bootstrap, self.member_identifiers, self.identifiers
        of_members = own.predicted(predicted, self.words, self.true, context, self.is_member)
        leaked = self._leaked(both, predicted)
        over_base = by_category = exposed = shared = None
        if base_predicted is not None:
            before = self._leaked(both, base_predicted)
            over_base = excess_leakage(both, leaked, self.is_member, self.compared, before=before, **options)
            exposed = exposed_individuals(both, leaked & ~before, self.is_member, self.compared, **options)
            shared = shared_over_base(both, leaked, before, self.compared, **options)
        if self.categories is not None:
            by_category = privacy_by_category(
                both, leaked, self.is_member, *self.categories, self.compared, **options
            )  # fmt: skip
        known = [self._leaked(graph.identifiers, predicted) for graph in self.graphs]
        own_privacy = privacy(own, of_members, **options)
        excess = excess_leakage(both, leaked, self.is_member, self.compared, **options)
        if draws is not None:
            variances = self._fold_variances(predicted, draws)
            own_privacy = {part: _with_fold_spread(found, variances[part]) for part, found in own_privacy.items()}
            excess = self._widen_excess_for_folds(excess, variances)
            # The folds of the base model are a draw too.
            twice = {part: 2 * variance for part, variance in variances.items()}
            over_base = over_base and self._widen_excess_for_folds(over_base, twice)
            if exposed is not None and base_predicted is not None:
                more = 2 * self._exposed_variance(predicted, before, draws)
                exposed = _widen_for_folds(exposed, more, exposed.members.n, exposed.heldout.n)
        return Leakage(
            privacy=own_privacy,
            privacy_by_n=privacy_by_n(own, of_members, **options),
            by_category=by_category,
            excess=excess,
            over_base=over_base,
            exposed=exposed,
            shared_over_base=shared,
            low_cost=low_cost_membership(self.graphs, known, self.is_member, **options),
        )

    def _fold_variances(self, predicted: np.ndarray, draws: FoldDraws) -> dict[Part, float]:
        """Return, for direct identifiers, indirect ones and both, how much the leak rate depends on the random
        assignment of words to masking passes: the variance of "is predicted", averaged over the members' identifiers.
        """
        own = self.member_identifiers
        here, following = self._redrawn_words(draws)
        leaked = self._leaked_by_draw(own, predicted, draws)
        stands = np.zeros(own.num, dtype=bool)
        stands[own.find(self.true[here], following)[1]] = True
        result: dict[Part, float] = {}
        for part, chosen in own.parts():
            result[part] = _fold_variance(leaked[:, own.have_occurrences(chosen) & stands])
        return result

    def _exposed_variance(self, predicted: np.ndarray, before: np.ndarray, draws: FoldDraws) -> float:
        """Return how much the share of individuals with a leaked identifier of their own depends on the random
        assignment of words to masking passes: the variance for one individual, averaged. ``before`` marks the
        identifiers that the base model predicts."""
        both, (here, _) = self.identifiers, self._redrawn_words(draws)
        leaked = self._leaked_by_draw(both, predicted, draws) & ~before
        own = (both.lengths <= both.n) & self.compared.users.has_one_user[both.numbers] & here[both.places]
        codes, row = np.unique(both.individuals[own], return_inverse=True)
        of_draws = [np.bincount(row, one[both.numbers[own]], minlength=len(codes)) > 0 for one in leaked]
        return _fold_variance(np.array(of_draws))

    def _redrawn_words(self, draws: FoldDraws) -> tuple[np.ndarray, np.ndarray]:
        """Return two masks: which words are in the documents that were scored again, ``draws``, bool (S,), and which of
        these words directly follow the word before."""
        here = np.isin(self.words.documents, draws.documents)
        return here, follows_directly(self.words)[here]

    def _leaked_by_draw(self, identifiers: Identifiers, predicted: np.ndarray, draws: FoldDraws) -> np.ndarray:
        """Return whether each identifier is predicted in the documents that were scored several times, bool (draws,
        identifiers). Each row is one random assignment of words to masking passes, the original first."""
        here, following = self._redrawn_words(draws)
        leaked = np.zeros((1 + len(draws.predicted), identifiers.num), dtype=bool)
        for row, of_draw in zip(leaked, (predicted[here], *draws.predicted), strict=True):
            row[identifiers.find(of_draw, following)[1]] = True
        return leaked

    def _widen_excess_for_folds(self, excess: dict[Part, Excess], variances: dict[Part, float]) -> dict[Part, Excess]:
        """Return members' and others' leak rates, by type of identifier, with wider intervals of their differences.
        ``variances`` are those between random assignments of a masked model's words to masking passes."""
        users, result = self.compared.users, {}
        for part, chosen in self.identifiers.parts():
            among = self.identifiers.have_occurrences(chosen)
            of_members, of_others = among & (users.members > 0), among & (users.others > 0)
            own, others = of_members & ~of_others, of_others & ~of_members
            sizes = [int(np.count_nonzero(side)) for side in (of_members, of_others, own, others)]
            sides = _widen_for_folds(excess[part], variances[part], *sizes[:2])
            if (alone := sides.unshared) is not None:
                more = _half_width(variances[part], *sizes[2:])
                sides = replace(sides, unshared=replace(alone, excess=alone.excess.widened(more, more, -1.0)))
            result[part] = sides
        return result

    def measure_all_occurrences(self, predicted: np.ndarray) -> AllOccurrences:
        """Return the leakage of a masked model for which, when a word was predicted, all its copies in the window were
        masked."""
        found = self.member_identifiers.predicted(predicted, self.words, self.true, own=self.is_member)
        leaked = self._leaked(self.identifiers, predicted)
        compared = self.is_member, self.compared
        return AllOccurrences(
            privacy=privacy(self.member_identifiers, found, **self._bootstrap),
            excess=excess_leakage(self.identifiers, leaked, *compared, **self._bootstrap),
            exposed=exposed_individuals(self.identifiers, leaked, *compared, **self._bootstrap),
        )

    def _leaked(self, identifiers: Identifiers, predicted: np.ndarray) -> np.ndarray:
        """Return whether each identifier occurs anywhere among the ``predicted`` words, bool (num_identifiers,)."""
        return identifiers.predicted(predicted, self.words, self.true).anywhere
