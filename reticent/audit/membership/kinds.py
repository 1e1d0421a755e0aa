"""Membership by kind of word (definitions.md#by-kind-of-word): which words reveal it, protected ones or the others?

The flags of the joint index divide the tokens of the documents into kinds: *direct*, *rare* (in an indirect identifier
and in no direct one) and *ordinary* (neither); *all* is their union. For a model that protects, *targets* are the
tokens that it may predict. The number of a document is the mean log-probability of its tokens of one kind, that of an
individual the mean over their documents: `loss` is that number itself, and `reference` the number minus the base
model's. `lira` of a document is the log ratio of two Gaussians of the shadows' numbers, and of an individual the sum
over their documents. Its variances are pooled over documents and shrunk to the pool
(:func:`reticent.audit.membership.shadow_attacks.fit_gaussians`); `lira_textbook` uses the variance of each document
alone [@carlini2022]. On ordinary words and on targets every other likelihood attack of the job is made too: a model
that protects was taught nothing else, and over the whole text what it learned is diluted.

An area of 1 does not show how far apart the sides are. So d' = (mean in - mean out) / s is given too, where s is
the pooled spread of the shadows within individuals. It is also given for the most exposed tenth: one half of the
shadows selects the individuals with the largest d', the other half measures them, and the reverse.

Cost: one pass over the shadows' scores; memory is one number for each shadow, kind and individual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, Unpack

import numpy as np

from reticent.audit.evidence.membership import KindAttack, KindMembership
from reticent.audit.membership.attacks import document_means, scores_of
from reticent.audit.membership.most_exposed import most_exposed_members
from reticent.audit.membership.names import NUM_FAMILIES
from reticent.audit.membership.shadow_attacks import (
    LOG_PROB_LIMITS,
    Gaussians,
    fit_gaussians,
    lira_online_score,
    mean_where,
)
from reticent.audit.membership.validity import WITHOUT_COPIES
from reticent.audit.stats.estimate import LEVEL, Estimate
from reticent.audit.stats.intervals import (
    Bootstrap,
    JointArea,
    Sides,
    clopper_pearson,
    clusters_of,
    iter_resamples,
    joint_areas,
    num_clusters,
    ratio_estimate,
    tpr_at_fpr,
)
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import TokenStore

ORDINARY = "ordinary"
#: Kind of the tokens that a model with protection may have as targets.
TARGETS = "targets"
FPR, LOW_FPR = 0.01, 0.001
#: One in this many individuals counts as most exposed.
EXPOSED = 10
#: Kinds whose AUCs belong to the risk of identifying words; all others belong to the risk of the person.
IDENTIFYING: Final = ("rare", "direct")


class Compared(NamedTuple):
    """The scores of individuals by an attack, and by the same attack on a control model that was not trained on them
    (None without one); float64 (individuals,) each. ``turns`` has the scores with each shadow as the target, float64
    (shadows, individuals)."""

    own: np.ndarray
    control: np.ndarray | None = None
    turns: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class KindShadows:
    """Mean log-probabilities under the shadows: of individuals, float64 (kinds, shadows, individuals), and of
    documents, float64 (kinds, shadows, documents); and the shadows' members, bool (shadows, individuals) and (shadows,
    documents)."""

    numbers: np.ndarray
    is_in: np.ndarray
    documents: np.ndarray
    documents_in: np.ndarray


class KindAudit:
    """The kinds of word (direct, rare, ordinary) of a store's tokens, shared by the audits of all models of one
    tokenizer.

    Parameters
    ----------
    members : bool array, shape (store.num_documents,)
    kept : bool array, shape (individuals,), who stays in AUCs without near-copies; see `keep_without_near_copies`
    uncopied : bool array, shape (individuals,), all but the held-out individuals with near-copies, or None
    """

    def __init__(
        self,
        store: TokenStore,
        members: np.ndarray,
        bootstrap: Bootstrap,
        kept: np.ndarray | None = None,
        uncopied: np.ndarray | None = None,
    ):
        self.store, self.bootstrap, self._kept, self._uncopied = store, bootstrap, kept, uncopied
        self.codes, first = np.unique(store.individual, return_index=True)
        self.is_member = members[first]

    @cached_property
    def _flags(self) -> np.ndarray:
        """Protection flags of the store's tokens."""
        return self.store.flags

    def masks(self, never_target: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (kind of word, bool mask of the store's tokens) for each kind that has tokens: all, ordinary, rare,
        direct and, if ``never_target`` flags exclude a token, prediction targets."""
        direct, indirect = ((self._flags & bit) != 0 for bit in (DIRECT, INDIRECT))
        found = {"all": np.ones(len(direct), dtype=bool), "ordinary": ~direct & ~indirect,
                 "rare": indirect & ~direct, "direct": direct}  # fmt: skip
        targets = (self._flags & never_target) == 0
        if not targets.all():
            found[TARGETS] = targets
        yield from ((name, mask) for name, mask in found.items() if mask.any())

    def document_log_probs(self, log_probs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return each document's mean log-probability over the tokens of a mask, float64 (D,); NaN without such a
        token."""
        bounded = np.maximum(log_probs, LOG_PROB_LIMITS[0])
        return document_means(bounded, mask & ~np.isnan(log_probs), self.store.doc_offsets)

    def counterfactual(self, shadows: KindShadows) -> tuple[Estimate, Estimate | None]:
        """Return the mean counterfactual memorisation [@zhang2023] over all individuals, and over the most exposed
        tenth: the log-probability per token of their text under shadow models trained on it, minus that under the
        others."""
        numbers, is_in = shadows.numbers[0], shadows.is_in  # of the kind "all", the first of `masks`
        own, spread = _gap_and_spread(numbers, is_in)
        return self._mean_of_all_and_exposed(own, numbers, is_in, spread)

    def aggregate_to_individuals(self, document_scores: np.ndarray, *, is_total: bool = False) -> np.ndarray:
        """Return each individual's mean (or sum, if ``is_total``) of their documents' scores, float64 (I,), by
        ascending code; NaN for an individual without a scored document."""
        return scores_of(self.codes, document_scores, self.store.individual, is_total=is_total)

    def shadows(self, shadows: Iterable[tuple[np.ndarray, np.ndarray]], never_target: int) -> KindShadows:
        """Return the shadow models' mean log-probabilities by kind of word; ``shadows`` yields for each shadow (token
        log-probabilities, bool mask of the documents that it was trained on)."""
        masks, documents, is_in = [mask for _, mask in self.masks(never_target)], [], []
        for log_probs, known in shadows:
            documents.append([self.document_log_probs(log_probs, mask) for mask in masks])
            is_in.append(np.isin(self.codes, self.store.individual[known]))
        of_documents, known_codes = np.array(documents).transpose(1, 0, 2), np.array(is_in)
        numbers = np.apply_along_axis(self.aggregate_to_individuals, 2, of_documents)
        rows = np.searchsorted(self.codes, self.store.individual)
        return KindShadows(numbers, known_codes, of_documents, known_codes[:, rows])

    def measure(
        self,
        log_probs: np.ndarray,
        base: np.ndarray | None,
        never_target: int = 0,
        shadows: KindShadows | None = None,
        more: Mapping[str, Mapping[str, Compared]] | None = None,
        whole: Mapping[str, Compared] | None = None,
    ) -> tuple[dict[str, KindMembership], dict[str, JointArea]]:
        """Run the membership attacks on each kind of word alone (rare, direct identifiers, ordinary, …). Return the
        results by kind, and the AUCs of the attacks on the whole text, ``whole``, by name, with simultaneous intervals.

        The intervals of all attacks of one risk are simultaneous: those of rare and direct words, and those of the
        whole text and of all other kinds.

        Parameters
        ----------
        log_probs : float array, shape (num_tokens,), log-probabilities under the model
        base : the same under the base model; None if the model is the base model
        never_target : flags of tokens that the recipe never has as targets
        shadows : from `shadows`, with the same ``never_target``
        more : further attacks, by kind of word and name; whole : the attacks on the whole text by name
        """
        masks = dict(self.masks(never_target))
        asked: dict[str, dict[str, Compared]] = {}
        for number, (kind, mask) in enumerate(masks.items()):
            before = None if base is None else self.document_log_probs(base, mask)
            own = self._score_individuals(self.document_log_probs(log_probs, mask), before, number, shadows)
            asked[kind] = {**((more or {}).get(kind) or {}), **own}
        person: dict[tuple[str, str], Compared] = {("", name): one for name, one in (whole or {}).items()}
        words: dict[tuple[str, str], Compared] = {}
        for kind, attacks in asked.items():
            (words if kind in IDENTIFYING else person).update({(kind, name): one for name, one in attacks.items()})
        areas = {**self._joint_aucs(words, 1 - (1 - LEVEL) / NUM_FAMILIES), **self._joint_aucs(person, LEVEL)}
        own_scores = {key: np.where(np.isfinite(one.own), one.own, np.nan) for key, one in {**words, **person}.items()}
        told = most_exposed_members({" ".join(key): own for key, own in own_scores.items() if key[0]}, self.codes,
                            self.is_member, self._uncopied, **self.bootstrap)  # fmt: skip
        result = {}
        for number, (kind, mask) in enumerate(masks.items()):
            every = exposed = None
            if shadows is not None:
                numbers = shadows.numbers[number], shadows.is_in
                every, exposed = self._mean_of_all_and_exposed(d_primes(*numbers), *numbers)
            result[kind] = KindMembership(
                share=float(mask.mean()),
                num_shadows=None if shadows is None else len(shadows.is_in),
                attacks={
                    name: replace(
                        self._measure_attack(one, areas.get((kind, name)), shadows),
                        auc_without_copies=without.auc
                        if (without := areas.get((kind, name, WITHOUT_COPIES)))
                        else None,
                        told=told.get(f"{kind} {name}"),
                    )
                    for name, one in asked[kind].items()
                },
                d_prime=every,
                d_prime_exposed=exposed,
            )
        return result, {key[1]: area for key, area in areas.items() if not key[0]}

    def _joint_aucs(
        self, attacks: Mapping[tuple[str, str], Compared], level: float
    ) -> dict[tuple[str, ...], JointArea]:
        """Return (kind of word, attack name) -> AUC, with intervals that hold simultaneously; kind "" is the whole
        text. A key with the third element `WITHOUT_COPIES` has the AUC without held-out individuals who hold
        near-copies."""
        scores: dict[tuple[str, ...], np.ndarray] = {key: one.own for key, one in attacks.items()}
        if self._kept is not None:
            scores |= {
                (*key, WITHOUT_COPIES): np.where(self._kept, one.own, np.nan) for key, one in attacks.items() if key[0]
            }
        controls = {key: one.control for key, one in attacks.items()}
        return joint_areas(scores, self.codes, self.is_member, base=controls, level=level, **self.bootstrap)

    def _score_individuals(
        self, document_means: np.ndarray, base_means: np.ndarray | None, kind_number: int, shadows: KindShadows | None
    ) -> dict[str, Compared]:
        """Return attack name (loss, reference, LiRA, textbook LiRA) -> scores of individuals, from each document's mean
        log-probability of the words of one kind under the model and its base. ``kind_number`` numbers that kind in
        ``shadows``."""
        loss, base = (
            self.aggregate_to_individuals(document_means),
            None if base_means is None else self.aggregate_to_individuals(base_means),
        )
        known = None if shadows is None else shadows.numbers[kind_number]
        found = {"loss": Compared(loss, base, known)}
        if base is not None:
            told = None if known is None else known - base
            control = None if told is None or shadows is None else mean_where(told, ~shadows.is_in)
            found["reference"] = Compared(loss - base, control, told)
        if shadows is not None:
            numbers, is_in = shadows.documents[kind_number], shadows.documents_in
            for name, textbook in (("lira", False), ("lira_textbook", True)):

                def total(
                    values: np.ndarray, known: np.ndarray, is_in: np.ndarray, textbook: bool = textbook
                ) -> np.ndarray:
                    """Return each individual's sum of LiRA scores over their documents, float64 (I,). ``values`` has
                    the documents' log-probabilities under the attacked model, ``known`` those under each shadow model.
                    """
                    return self.aggregate_to_individuals(_lira(values, known, is_in, textbook), is_total=True)

                found[name] = Compared(
                    total(document_means, numbers, is_in),
                    None if base_means is None else total(base_means, numbers, is_in),
                    np.array([total(n, *_without_target_pair(numbers, is_in, i)) for i, n in enumerate(numbers)]),
                )
        return found

    def _split_sides(self, scores: np.ndarray, is_chosen: np.ndarray) -> tuple[Sides, Sides]:
        """Return ((members' scores, non-members' scores), (members' codes, non-members' codes)) of the individuals that
        the mask ``is_chosen`` selects."""
        sides = is_chosen & self.is_member, is_chosen & ~self.is_member
        return (scores[sides[0]], scores[sides[1]]), (self.codes[sides[0]], self.codes[sides[1]])

    def _measure_attack(self, asked: Compared, area: JointArea | None, shadows: KindShadows | None) -> KindAttack:
        """Return AUC and true-positive rates of one attack with the scores ``asked``: on the audited model, whose AUC
        is ``area``, and, if there are shadow models, the mean over attacks on each of these."""
        scores, turns = asked.own, asked.turns
        usable = ~np.isnan(scores)
        sides, of_sides = self._split_sides(scores, usable)
        all_shadows = all_tpr = low_tpr = None
        if turns is not None and shadows is not None:
            all_shadows = _mean_shadow_auc(turns, shadows.is_in, self.codes, **self.bootstrap)
            all_tpr = _mean_shadow_tpr(turns, shadows.is_in, self.codes, **self.bootstrap)
            low_tpr = tpr_of_all_turns(turns, shadows.is_in, self.codes, **self.bootstrap)
        return KindAttack(
            auc=area.auc if area else Estimate(value=None, n=len(sides[0]) + len(sides[1])),
            over_base=area and area.over_base,
            tpr=tpr_at_fpr(*sides, FPR, of_sides, **self.bootstrap),
            auc_in_turn=all_shadows,
            tpr_in_turn=all_tpr,
            low_tpr_in_turn=low_tpr,
            num_members=len(sides[0]),
            num_nonmembers=len(sides[1]),
        )

    def _mean_of_all_and_exposed(
        self, memorisation: np.ndarray, shadow_means: np.ndarray, is_in: np.ndarray, spread: float = 1.0
    ) -> tuple[Estimate, Estimate | None]:
        """Return two means with intervals: of ``memorisation`` over all individuals, and of d' (sensitivity index)
        times ``spread`` over the tenth of individuals with the highest d' (None with too few shadow models)."""
        known = np.isfinite(memorisation)
        every = ratio_estimate(
            np.where(known, memorisation, 0.0), known.astype(float), self.codes, limit=None, **self.bootstrap
        )
        chosen, totals, times = exposed_d_primes(shadow_means, is_in)
        if not len(times):
            return every, None
        return every, ratio_estimate(totals * spread, times, self.codes[chosen], limit=None, **self.bootstrap)


def d_primes(scores: np.ndarray, is_in: np.ndarray) -> np.ndarray:
    """Return each individual's d' (sensitivity index), float64 (I,): mean score under the shadow models trained on it
    minus that under the others, in pooled standard deviations; NaN if either kind of shadow is missing.

    Parameters
    ----------
    scores : float64 (shadows, I); is_in : bool (shadows, I)
    """
    gap, spread = _gap_and_spread(scores, is_in)
    return gap / spread


def _gap_and_spread(numbers: np.ndarray, is_in: np.ndarray) -> tuple[np.ndarray, float]:
    """Return (each individual's mean score under the shadow models trained on them minus that under the others, float64
    (I,); the pooled standard deviation around these means). ``numbers`` are the scores (shadows, I)."""
    means, squares, freedom = [], 0.0, 0
    for side in (is_in, ~is_in):
        count = side.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(side, numbers, 0.0).sum(axis=0) / count
        rest = np.where(side, numbers - mean, 0.0)
        known = np.isfinite(mean)
        squares += float((rest[:, known] ** 2).sum())
        freedom += int(np.maximum(count[known] - 1, 0).sum())
        means.append(mean)
    spread = np.sqrt(squares / freedom) if freedom and squares else np.nan
    return means[0] - means[1], float(spread)


def exposed_d_primes(scores: np.ndarray, is_in: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays for the tenth of individuals with the highest d' (sensitivity index): row, sum of d', number
    of measurements (1 or 2). One half of the shadow models selects the tenth, the other half measures it, and vice
    versa.

    The mean is taken over measurements. A mean over individuals would be too low: who is selected by both halves was
    high in both. Shadows come in pairs, so each half has a model trained with and one trained without each individual.
    """
    _, spread = _gap_and_spread(scores, is_in)
    halves = [np.flatnonzero(np.arange(len(is_in)) // 2 % 2 == half) for half in (0, 1)]
    if any(len(half) < 2 for half in halves):
        return np.empty(0, dtype=np.int64), np.empty(0), np.empty(0)
    gaps = [_gap_and_spread(scores[half], is_in[half])[0] / spread for half in halves]
    known = np.flatnonzero(np.isfinite(gaps[0] + gaps[1]))
    top = max(1, len(known) // EXPOSED) if len(known) else 0
    total, times = np.zeros(len(gaps[0])), np.zeros(len(gaps[0]))
    for own, other in (gaps, gaps[::-1]):
        chosen = known[np.argsort(-own[known], kind="stable")[:top]]
        total[chosen] += other[chosen]
        times[chosen] += 1
    exposed = np.flatnonzero(times > 0)
    return exposed, total[exposed], times[exposed]


def _lira(own: np.ndarray, numbers: np.ndarray, is_in: np.ndarray, textbook: bool) -> np.ndarray:
    """Return LiRA's log likelihood ratio of each document's score ``own``, float64 (D,), given its scores under the
    shadow models, ``numbers`` (shadows, D). NaN without a shadow trained on it and one not (``textbook``: two of each).

    With one shadow a side the spread is unknown and set to 1, which does not change the order of the scores.
    """
    known = np.isfinite(numbers).all(axis=0)
    enough = (np.minimum(is_in.sum(axis=0), (~is_in).sum(axis=0)) > 1) & known
    usable = enough if textbook else known
    result = np.full(len(own), np.nan)
    if not usable.any():
        return result
    numbers, is_in = numbers[:, usable], is_in[:, usable]
    with np.errstate(invalid="ignore", divide="ignore"):
        if enough.any():
            gaussians = fit_gaussians(zip(numbers, is_in, strict=True), **({"prior": 0} if textbook else {}))
        else:
            means = (np.where(side, numbers, 0.0).sum(axis=0) / side.sum(axis=0) for side in (is_in, ~is_in))
            gaussians = Gaussians.of_one_spread(*means)
        result[usable] = lira_online_score(own[usable], gaussians)
    return result


def _without_target_pair(scores: np.ndarray, is_in: np.ndarray, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``scores`` and ``is_in`` without two shadow models: the one under attack, ``target``, and the one trained
    on the other half of the data. Half of the remaining shadow models are then trained on each individual.

    With the complement, the target's individuals would be in one shadow fewer than the others, and a mean over fewer is
    noisier: the AUC of eight shadows that know nothing would be .47.
    """
    kept = np.arange(len(scores)) // 2 != target // 2
    return scores[kept], is_in[kept]


def _mean_shadow_auc(
    scores: np.ndarray, is_in: np.ndarray, codes: np.ndarray, **bootstrap: Unpack[Bootstrap]
) -> Estimate | None:
    """Attack each shadow model in turn and return the mean of the AUCs, with a bootstrap interval over individuals.
    ``scores`` (shadows, individuals) are the attack's scores, ``is_in`` marks who each was trained on. None if no AUC
    is defined."""
    num, clusters = scores.shape[1], clusters_of(codes, bootstrap.get("units"))
    num_drawn = num if clusters is None else num_clusters(clusters)
    usable = [np.flatnonzero(np.isfinite(row)) for row in scores]
    turns = [
        (own[np.argsort(row[own], kind="stable")], row)
        for own, row, known in zip(usable, scores, is_in, strict=True)
        if known[own].any() and not known[own].all()
    ]
    if not turns or num_drawn < 2:
        return None
    kept = [known for own, known in zip(usable, is_in, strict=True) if known[own].any() and not known[own].all()]

    def areas(weights: np.ndarray) -> np.ndarray:
        """Return the mean AUC over the attacked shadow models in each bootstrap resample, float64 (resamples,). A row
        of ``weights`` counts how often each individual is drawn."""
        total = np.zeros(len(weights))
        for (order, row), known in zip(turns, kept, strict=True):
            out = np.where(known[order], 0.0, weights[:, order])
            inside = np.where(known[order], weights[:, order], 0.0)
            running = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(out, axis=1)], axis=1)
            below, up_to = (np.searchsorted(row[order], row[order], side) for side in ("left", "right"))
            wins = (inside * (running[:, below] + running[:, up_to])).sum(axis=1) / 2
            with np.errstate(invalid="ignore", divide="ignore"):
                total += wins / (inside.sum(axis=1) * out.sum(axis=1))
        return total / len(turns)

    value = float(areas(np.ones((1, num)))[0])
    blocks = iter_resamples(num, bootstrap["num_bootstrap"], bootstrap["seed"], clusters=clusters)
    draws = np.concatenate([areas(weights) for weights in blocks])
    draws = draws[np.isfinite(draws)]
    low, high = np.quantile(draws, [0.025, 0.975]) if len(draws) else (0.0, 1.0)
    low, high = min(float(low), value), max(float(high), value)
    bound = clopper_pearson(0, max(num_drawn // 2, 1), one_sided=True)[1]
    if value in (0.0, 1.0):
        low, high = (0.0, bound) if value == 0 else (1 - bound, 1.0)
    found = Estimate(value=value, low=low, high=high, n=num_drawn)
    return found if clusters is None else found.over_households(num)


def _mean_shadow_tpr(
    scores: np.ndarray, is_in: np.ndarray, codes: np.ndarray, **bootstrap: Unpack[Bootstrap]
) -> Estimate | None:
    """Attack each shadow model in turn and return the mean true-positive rate at 1 % false positives. Its interval is
    that of the median shadow model; None if a shadow model has fewer than 1,000 non-members."""
    found = []
    for row, known in zip(scores, is_in, strict=True):
        usable = np.isfinite(row)
        chosen = usable & known, usable & ~known
        own = tpr_at_fpr(row[chosen[0]], row[chosen[1]], FPR, (codes[chosen[0]], codes[chosen[1]]), **bootstrap)
        if own is None or own.value is None:
            return None
        found.append(own)
    middle = sorted(found, key=lambda estimate: estimate.value or 0.0)[len(found) // 2]
    value = float(np.mean([estimate.value for estimate in found]))
    low, high = min(middle.low or 0.0, value), max(middle.high or 0.0, value)
    mean = Estimate(value=value, low=low, high=high, n=scores.shape[1])
    clusters = clusters_of(codes, bootstrap.get("units"))
    if clusters is None:
        return mean
    return replace(mean.over_households(scores.shape[1]), num_households=num_clusters(clusters))


def tpr_of_all_turns(
    scores: np.ndarray, is_in: np.ndarray, codes: np.ndarray, **bootstrap: Unpack[Bootstrap]
) -> Estimate | None:
    """Attack each shadow model in turn and return the true-positive rate at 0.1 % false positives over all (shadow
    model, individual) pairs together; None with fewer than 10,000 such pairs of non-members.

    One target has too few non-members for this rate. The scores of each shadow are put on one scale by the median and
    the distance of the quartiles of its own non-members; a member who ties with the threshold is not found. A resample
    draws individuals with all their pairs.

    Parameters
    ----------
    scores : float64 (shadows, I), of each shadow as the target; is_in : bool (shadows, I)
    """
    parts = []
    for row, known in zip(scores, is_in, strict=True):
        usable = np.isfinite(row)
        others = row[usable & ~known]
        if len(others):
            low, middle, high = np.quantile(others, [0.25, 0.5, 0.75])
            parts.append(((row[usable] - middle) / ((high - low) or 1.0), np.flatnonzero(usable), known[usable]))
    if not parts:
        return None
    scaled, owner, member = (np.concatenate(column) for column in zip(*parts, strict=True))
    if np.count_nonzero(~member) < 10 / LOW_FPR or not member.any():
        return None
    order = np.lexsort((member, -scaled))  # of those who tie, non-members first
    owner, member = owner[order], member[order]

    def rates(weights: np.ndarray) -> np.ndarray:
        """Return the true-positive rate in each bootstrap resample, float64 (resamples,). A row of ``weights`` counts
        how often each individual is drawn."""
        pairs = weights[:, owner]
        wrong = np.cumsum(np.where(member, 0.0, pairs), axis=1)
        allowed = np.floor(LOW_FPR * wrong[:, -1:] + 1e-9)
        found = (pairs * member * (wrong <= allowed)).sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray(found / (pairs * member).sum(axis=1))

    num, clusters = scores.shape[1], clusters_of(codes, bootstrap.get("units"))
    num_drawn = num if clusters is None else num_clusters(clusters)
    value = float(rates(np.ones((1, num)))[0])
    blocks = iter_resamples(
        num, bootstrap["num_bootstrap"], bootstrap["seed"], rows=max(1, (1 << 22) // len(owner)), clusters=clusters
    )
    draws = np.concatenate([rates(weights) for weights in blocks])
    low, high = np.quantile(draws[np.isfinite(draws)], [0.025, 0.975])
    exact = clopper_pearson(round(value * num_drawn), num_drawn)
    low, high = (low, max(high, exact[1])) if value <= 0.5 else (min(low, exact[0]), high)
    found = Estimate(value=value, low=min(float(low), value), high=max(float(high), value), n=num_drawn)
    return found if clusters is None else found.over_households(num)
