"""The threshold attack (definitions.md#threshold-attack): does protection by support reveal who is a member?

A word that exactly k individuals use is a target in the texts of k - 1 of them if the last one, *x*, is a member, and
protected there if not. So whoever has those texts can infer the membership of x from the words of others: the score of
x is the mean, over such words and the others who use them, of how much likelier the word is than under the base model.
No shadow model is needed. The control are words of k + 1 to k + 3 users, which are targets whether or not x is a
member. (With a noisy threshold they are not always targets, and are no control.)

A second attack, mostly the stronger, counts users among the members alone, and weighs every word by its likelihood
ratio (`fit_likelihood`). Against a noisy threshold it alone counts: each word reveals little then, and an individual
uses hundreds.

Protection of a name in the whole corpus is a channel too: a word of a person's own spans is protected in others' notes
if that person is a member, and a target there if not. The score of its owner is how much *less* likely it became.

Those who share a word share its score: x is scored in the text of y, and y in that of x. So the interval of the area
has two parts, from resamples of the subjects and from resamples of the words, which are squared and added.

Support is counted on the spelling of a word, as protection counts it, over both sides of the audit. A word is scored in
the texts of members alone: held-out documents were not trained on. Cost: a pass over the words, and one look-up each.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.stats import rankdata

from reticent import _rust
from reticent.audit.evidence.membership import KindAttack, ThresholdMembership, Told
from reticent.audit.leakage.words import NO_SURFACE, SurfaceTable, Words
from reticent.audit.membership.most_exposed import FPR, most_exposed_members
from reticent.audit.stats.estimate import BOOTSTRAP, Estimate
from reticent.audit.stats.intervals import (
    MAX_WEIGHTS,
    TAILS,
    Bootstrap,
    Draws,
    auc_estimate,
    iter_resamples,
    tpr_at_fpr,
)
from reticent.engine.noisy_threshold import Noise
from reticent.engine.schema import DIRECT
from reticent.engine.store import TokenStore

# ------------------------------------------------------------------------------------------------ threshold likelihood
#
# Membership of one user of a word by the likelihood ratio of its score, given how a model protects words.
#
# Definition: definitions.md#threshold-attack.
#
# A word of *t* users is a target with probability pi(t): 0 or 1 by a fixed threshold, between them by a noisy one
# (:class:`reticent.engine.noisy_threshold.Noise`; where individuals vote, all users of a word are taken for voters).
# Who knows the membership of all users but one, *x*, knows that there are s or s + 1 of them, and weighs how much
# likelier the word became under the model by the ratio of the two likelihoods. These are mixtures of two normal
# distributions, of words that were targets and of words that were not; the distributions are fitted to the model's own
# words of known numbers of users, so no shadow is needed.


#: Smallest probability that a word is a target, or is none: a hash key or a tokenizer may go another way.
DOUBT = 1e-3
#: A density below is no evidence: the tails of a fitted normal distribution are not.
LEAST_DENSITY = 1e-6
#: Numbers of users scored beyond those at which a word is certainly a target, and the largest number of users.
BEYOND, MOST_USERS = 3, 1024
#: The same as a share of the certain number, where each individual votes for a limited number of words.
BEYOND_SHARE = 0.5
#: Word scores are clipped to these quantiles, so that one impossible token does not decide.
CLIPPED = (0.01, 0.99)
#: Smallest number of words that must be targets, and of words that must not be.
FEWEST = 10
NUM_STEPS = 100


def target_probabilities(k: int, noise: Noise | None) -> np.ndarray:
    """Return the probability that a word is a prediction target, float64, by the number of members who use it: 0, 1, 2
    and so on until it is nearly 1. Only words that pass the (perhaps noisy) threshold ``k`` are targets."""
    if noise is None:
        return (np.arange(k + BEYOND + 1) >= k).astype(np.float64)
    shares = noise.shares(k, MOST_USERS)
    certain = int(np.argmax(shares >= 1 - DOUBT) or MOST_USERS)
    beyond = BEYOND if noise.max_words is None else max(BEYOND, int(BEYOND_SHARE * certain))
    return shares[: certain + beyond + 1]


@dataclass(frozen=True, slots=True)
class WordLikelihood:
    """Two fitted normal distributions of word scores, (not a target, target): ``means`` and ``deviations``, shape (2,).
    ``limits`` clips the scores; ``shares`` is the result of `target_probabilities`."""

    means: np.ndarray
    deviations: np.ndarray
    limits: np.ndarray
    shares: np.ndarray

    def log_likelihood_ratio(self, gains: np.ndarray, num_users: np.ndarray) -> np.ndarray:
        """Return for each word, float64, the log likelihood ratio of "one more member uses it" against "only the
        ``num_users`` known ones do", from ``gains``, how much likelier training made the word.

        Parameters
        ----------
        gains : float64 array, how much likelier each word became
        num_users : int array, known users of each word, below ``len(shares) - 1``
        """
        gains = np.clip(gains, *self.limits)
        none, target = (
            np.exp(-(((gains - mean) / deviation) ** 2) / 2) / deviation + LEAST_DENSITY
            for mean, deviation in zip(self.means, self.deviations, strict=True)
        )
        with_more, without = (np.clip(self.shares[num_users + more], DOUBT, 1 - DOUBT) for more in (1, 0))
        likelihoods = (share * target + (1 - share) * none for share in (with_more, without))
        above, below = map(np.log, likelihoods)
        return np.asarray(above - below)


def fit_likelihood(values: np.ndarray, users: np.ndarray, shares: np.ndarray) -> WordLikelihood | None:
    """Fit one normal distribution to the scores of words that are prediction targets and one to the others, by
    expectation maximisation. ``shares`` has the probability of being a target by number of users. None if either kind
    is too rare.

    Parameters
    ----------
    values : float64 array, shape (W,), how much likelier each word became
    users : int array, shape (W,), from 1 to ``len(shares) - 1``
    """
    if len(values) == 0:
        return None
    limits = np.quantile(values, CLIPPED)
    values, prior = np.clip(values, *limits), shares[users]
    weights = prior
    for _ in range(NUM_STEPS):
        kinds = np.stack([1 - weights, weights])
        totals = kinds.sum(axis=1)
        if totals.min() < FEWEST:
            return None
        means = kinds @ values / totals
        spread = (kinds * (values - means[:, np.newaxis]) ** 2).sum(axis=1) / totals
        deviations = np.sqrt(np.maximum(spread, 1e-12 + 1e-4 * values.var()))
        scaled = (values - means[:, np.newaxis]) / deviations[:, np.newaxis]
        with np.errstate(divide="ignore"):
            log_none, log_target = np.log([1 - prior, prior]) - scaled**2 / 2 - np.log(deviations)[:, np.newaxis]
        before, weights = weights, 1 / (1 + np.exp(np.clip(log_none - log_target, -700, 700)))
        if np.abs(weights - before).max() < 1e-6:
            break
    return WordLikelihood(means, deviations, limits, shares)


#: Users of a control word beyond k.
CONTROLS = (1, 2, 3)
#: Cross-fitting folds of the words: the likelihood of each fold is fitted to the other folds.
FOLDS = 5


def normalise_word(text: str) -> str:
    """Return a word in Unicode normal form C without surrounding spaces: two words count as the same exact spelling if
    these forms are equal."""
    return unicodedata.normalize("NFC", text).strip()


def word_normaliser(surface: str) -> Callable[[str], str]:
    """Return the function that normalises the spelling of a word (``exact``, ``casefold`` or ``fold``) in the same way
    as the index that counts the users of words."""
    if surface == "exact":
        return normalise_word

    def folded(text: str) -> str:
        """Return a word in the normalised spelling by which the index counts its users."""
        words = pa.array([text.strip()], pa.string())
        return str(pa.record_batch(_rust.apply_surface(words, surface=surface)).column("word")[0])

    return folded


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Occurrences, in the texts of others, of the words by which each subject is attacked.

    One entry for each occurrence: ``subject`` and ``other`` are numbers of individuals, ``word`` that of the word, and
    ``place`` the row of the occurrence among the words of the store.
    """

    subject: np.ndarray
    word: np.ndarray
    other: np.ndarray
    place: np.ndarray


class _MemberScores:
    """The score of each word in the texts of each member; by word, the sum over members (``totals``) and their number
    (``counts``)."""

    def __init__(self, pairs: np.ndarray, values: np.ndarray, num_words: int, num_units: int):
        self._num_units, self._values = num_units, values
        self._keys = pairs[0] * num_units + pairs[1]  # ascending
        self.totals = np.bincount(pairs[0], values, minlength=num_words)
        self.counts = np.bincount(pairs[0], minlength=num_words)

    def of(self, words: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays for pairs of a word and a member (or household): the word's score in that member's texts,
        float64, 0 if it does not occur there; whether it occurs, bool."""
        keys = words * self._num_units + units
        place = np.searchsorted(self._keys, keys)
        found = np.append(self._keys, -1)[place] == keys
        return np.where(found, np.append(self._values, 0.0)[place], 0.0), found


class ThresholdAudit:
    """The words of the documents with their users; shared by the audits of all models of one tokenizer.

    Parameters
    ----------
    members : bool array, shape (store.num_documents,)
    words : of ``store``; table : a `SurfaceTable` that spells words by `word_normaliser`
    units : household of each individual (by code), where support counts households
    owned : bool array, shape (words,), whether a word lies in a span that protects it in the whole corpus
    in_span : bool array, shape (words,), whether it lies in any span
    uncopied : bool array, shape (individuals by code, ascending), as for `most_exposed_members`
    """

    def __init__(
        self,
        store: TokenStore,
        members: np.ndarray,
        words: Words,
        table: SurfaceTable,
        bootstrap: Bootstrap,
        units: np.ndarray | None = None,
        owned: np.ndarray | None = None,
        in_span: np.ndarray | None = None,
        uncopied: np.ndarray | None = None,
    ):
        self.words = words
        # A subject here is a household already.
        self.bootstrap: Draws = {"num_bootstrap": bootstrap["num_bootstrap"], "seed": bootstrap["seed"]}
        self._are_households = bootstrap.get("units") is not None
        spelt = table.surfaces(store.input_ids, words)
        unit_of = words.individuals if units is None else np.asarray(units)[words.individuals]
        unit_of_document = store.individual if units is None else np.asarray(units)[store.individual]
        codes, first = np.unique(unit_of_document, return_index=True)
        self.is_member = members[first]
        self._uncopied = np.ones(len(codes), dtype=bool)
        if uncopied is not None:
            _, row = np.unique(store.individual, return_index=True)
            self._uncopied[np.searchsorted(codes, unit_of_document[row[~uncopied]])] = False
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
        self._of_owners: tuple[np.ndarray, ...] | None = None
        if owned is not None and in_span is not None:
            self._of_owners = spelt, unit, owned & (spelt != NO_SURFACE), ~in_span & (spelt != NO_SURFACE)

    def occurrences_of_names(self, k: int) -> _Pairs | None:
        """Return where protected names occur in other members' texts outside of marked spans. A name is a prediction
        target there only if no member is its owner. None if no spans are marked."""
        if self._of_owners is None:
            return None
        spelt, unit, owned, free = self._of_owners
        num_words = int(spelt.max(initial=-1)) + 1

        def pairs_of(is_chosen: np.ndarray) -> np.ndarray:
            """Return the distinct (word, individual or household) pairs of the words in the mask ``is_chosen``, int (2,
            n)."""
            return np.asarray(np.unique(np.stack([spelt[is_chosen], unit[is_chosen]]), axis=1))

        word, owner = pairs_of(owned)
        num_owners = np.bincount(word[self.is_member[owner]], minlength=num_words)
        users = pairs_of((spelt != NO_SURFACE) & self.is_member[unit])
        num_users = np.bincount(users[0], minlength=num_words)
        own_use = np.isin(word * len(self.is_member) + owner, users[0] * len(self.is_member) + users[1])
        asked = (num_owners[word] - self.is_member[owner] == 0) & (num_users[word] - own_use >= k)
        return _occurrences_of(owner[asked], word[asked], spelt, unit, np.flatnonzero(free & self.is_member[unit]))

    def occurrences_by_num_users(self, k: int, num_users: int) -> _Pairs:
        """Return the occurrences in other members' texts of the words that ``num_users`` individuals use, each with the
        user whose membership it tests. The other users include at least k members; for ``num_users`` = k all are."""
        key = (k, num_users)
        if key not in self._known:
            others, supports = self._num_other_members, self._support[self._word_of_pair]
            self._known[key] = self._occurrences(
                (supports == num_users) & (others == k - 1 if num_users == k else others >= k)
            )
        return self._known[key]

    @property
    def _num_other_members(self) -> np.ndarray:
        """For each (word, individual) pair, the number of members other than this individual who use the word, int
        array."""
        return np.asarray(self._member_support[self._word_of_pair] - self.is_member[self._unit_of_pair])

    def _occurrences(self, is_chosen: np.ndarray) -> _Pairs:
        """Return the occurrences of words in the texts of members other than the attacked individual. ``is_chosen`` is
        a mask over (word, attacked individual) pairs."""
        of_members = np.flatnonzero(self.is_member[self._units])
        found = _occurrences_of(
            self._unit_of_pair[is_chosen], self._word_of_pair[is_chosen], self._spelt, self._units, of_members
        )
        return replace(found, place=self._places[found.place])

    def measure(
        self, log_probs: np.ndarray, base: np.ndarray | None, k: int, noise: Noise | None = None
    ) -> ThresholdMembership:
        """Return the results of the membership attacks that exploit a protection threshold (a word is a prediction
        target only if at least k members use it), and of a control on words with more users.

        Parameters
        ----------
        log_probs, base : log-probabilities of the tokens under the model and its base model; ``base`` None: the
            log-probability itself is the score, for a base model
        k, noise : threshold of the model's protection, and its noise; 2 and None for a model without protection
        """
        told = log_probs.astype(np.float64) if base is None else np.subtract(log_probs, base, dtype=np.float64)
        # A sum of its own for each word: running sums of a whole corpus would round the words away.
        told = np.append(np.nan_to_num(told, nan=np.nan, neginf=-1e3, posinf=1e3), 0.0)
        bounds = np.stack([self.words.starts, self.words.starts + self.words.lengths], axis=1).ravel()
        scores = np.add.reduceat(told, bounds)[::2] if len(bounds) else np.empty(0)
        at = self.occurrences_by_num_users(k, k)
        above = [self.occurrences_by_num_users(k, k + more) for more in CONTROLS]
        control = _Pairs(
            *(np.concatenate([getattr(one, name) for one in above]) for name in ("subject", "word", "other", "place"))
        )
        return ThresholdMembership(
            k=k,
            num_words=len(np.unique(at.word)),
            at_threshold=self._attack_pairs(scores, at, k),
            above=self._attack_pairs(scores, control),
            by_likelihood=self._attack_by_likelihood(scores, k, noise),
            by_owner=self._attack_owners(scores, k),
            epsilon=None if noise is None else noise.epsilon,
            delta=None if noise is None else noise.delta,
            max_words=None if noise is None else noise.max_words,
        )

    def _attack_owners(self, scores: np.ndarray, k: int) -> KindAttack | None:
        """Return the result of the attack on owners of protected names. A member's name is never a target, so training
        makes it less likely in others' texts. None if fewer than `FEWEST` owners are members, or are not."""
        pairs = self.occurrences_of_names(k)
        if pairs is None:
            return None
        found = self._attack_pairs(-scores, pairs, k)
        return found if min(found.num_members or 0, found.num_nonmembers or 0) >= FEWEST else None

    def _attack_by_likelihood(self, scores: np.ndarray, k: int, noise: Noise | None) -> KindAttack | None:
        """Return the result of the attack that sums, over an individual's words with about k users, the log likelihood
        ratio of being one of them. None if too few words are prediction targets, or too few are not."""
        shares = target_probabilities(k, noise)
        tells = np.flatnonzero(np.diff(shares) > 0)
        of_members = self._mean_scores_by_member(scores)
        totals, counts = of_members.totals, of_members.counts
        chosen = np.isin(self._num_other_members, tells) & (self._num_other_members > 0)
        word, subject, users = self._word_of_pair[chosen], self._unit_of_pair[chosen], self._num_other_members[chosen]
        own, has_own = of_members.of(word, subject)
        num_others = counts[word] - has_own
        known = num_others > 0
        word, subject, users = word[known], subject[known], users[known]
        values = (totals[word] - own[known]) / num_others[known]
        fitted = np.flatnonzero((counts > 0) & (self._member_support < len(shares)))
        of_fitted, ratios = totals[fitted] / counts[fitted], np.empty(len(word))
        # By what other words show: a word that is fitted with its user would speak for that user's membership.
        for fold in range(FOLDS):
            of_others, of_fold = fitted % FOLDS != fold, word % FOLDS == fold
            likelihood = fit_likelihood(of_fitted[of_others], self._member_support[fitted[of_others]], shares)
            if likelihood is None:
                return None
            ratios[of_fold] = likelihood.log_likelihood_ratio(values[of_fold], users[of_fold])
        return self._subject_attack(np.stack([subject, word]), ratios, k, is_mean=False)

    def _mean_scores_by_member(self, token_scores: np.ndarray) -> _MemberScores:
        """Return for each word and each member the mean of ``token_scores`` over the word's occurrences in the member's
        texts."""
        known = np.isfinite(token_scores[self._places]) & self.is_member[self._units]
        columns = np.stack([self._spelt[known], self._units[known]])
        return _MemberScores(
            *_group_means(columns, token_scores[self._places[known]], num=2), len(self._support), len(self.is_member)
        )

    def _attack_pairs(self, token_scores: np.ndarray, occurrences: _Pairs, k: int | None = None) -> KindAttack:
        """Return the result of the attack that scores an individual by the mean score of their words in other
        individuals' texts. At most ``k`` individuals share a word's score; None: the most exposed members are not
        counted."""
        return self._subject_attack(*_word_scores(token_scores, occurrences), k, is_mean=True)

    def _subject_scores(self, subject_and_word: np.ndarray, values: np.ndarray, *, is_mean: bool) -> np.ndarray:
        """Return each individual's mean or sum of ``values`` over their words, float64 (individuals,), NaN without a
        word. ``subject_and_word``, int (2, n), has the individual and the word of each value."""
        codes, number = np.unique(subject_and_word[0], return_inverse=True)
        totals = np.bincount(number, values, minlength=len(codes))
        result = np.full(len(self.is_member), np.nan)
        result[codes] = totals / np.bincount(number, minlength=len(codes)) if is_mean else totals
        return result

    def _subject_attack(
        self, subject_and_word: np.ndarray, values: np.ndarray, k: int | None, *, is_mean: bool
    ) -> KindAttack:
        """Return AUC and true-positive rates of the attack that scores an individual by the mean or sum of ``values``
        over their words; ``subject_and_word``, int (2, n), has the individual and the word of each value.

        Up to ``k`` individuals share the score of a word; None skips the count of most exposed members, as for a
        control.
        """
        scores = self._subject_scores(subject_and_word, values, is_mean=is_mean)
        usable = np.isfinite(scores)
        sides = scores[usable & self.is_member], scores[usable & ~self.is_member]
        auc, tpr = auc_estimate(*sides, **self.bootstrap), tpr_at_fpr(*sides, FPR, **self.bootstrap)
        told = self._most_exposed(scores, k) if k else None
        if auc.method == BOOTSTRAP:
            areas, rates = self._resample_words(subject_and_word, values, is_mean, (told and told.fpr) or 0.0)
            auc, told = (
                _widen_by_draws(auc, areas),
                told and replace(told, rate=told.rate and _widen_by_draws(told.rate, rates)),
            )
        return KindAttack(
            auc=self._with_unit(auc),
            tpr=tpr and self._with_unit(tpr),
            num_members=len(sides[0]),
            num_nonmembers=len(sides[1]),
            told=told and replace(told, rate=told.rate and self._with_unit(told.rate)),
        )

    def _most_exposed(self, scores: np.ndarray, k: int) -> Told | None:
        """Return the share of all members whom the attack with these ``scores`` identifies at 1 % false positives,
        individuals without a score ranked lowest; None without scores."""
        if not np.isfinite(scores).any():
            return None
        asked = {"": np.where(np.isfinite(scores), scores, -np.inf)}
        codes = np.arange(len(scores))
        return most_exposed_members(asked, codes, self.is_member, self._uncopied, at_once=k, **self.bootstrap).get("")

    def _with_unit(self, estimate: Estimate) -> Estimate:
        """Return the estimate marked as one over households, if the users of words are counted by household; else
        unchanged."""
        if not self._are_households:
            return estimate
        return replace(estimate.over_households(estimate.n or 0), unit="households")

    def _resample_words(
        self, subject_and_word: np.ndarray, values: np.ndarray, is_mean: bool, fpr: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw bootstrap resamples of the words. Return two float64 arrays (num_bootstrap,): the AUC in each, and the
        share of members identified at the false-positive rate ``fpr``. Individuals without a drawn word are left out.
        """
        subject, word = subject_and_word
        codes, column = np.unique(subject, return_inverse=True)
        words, row = np.unique(word, return_inverse=True)
        shape, member, counted = (len(codes), len(words)), self.is_member[codes], self._uncopied[codes]
        totals, counts = (coo_array((part, (column, row)), shape=shape).tocsr() for part in (values, np.ones(len(row))))
        num_members, num_others = (int((side & self._uncopied).sum()) for side in (self.is_member, ~self.is_member))
        allowed = int(fpr * num_others + 1e-9)
        areas, rates, rows = [], [], max(1, MAX_WEIGHTS // sum(shape))
        seed = self.bootstrap["seed"] + 2  # the sides have the seed itself and the next
        for weights in iter_resamples(len(words), self.bootstrap["num_bootstrap"], seed, rows=rows):
            with np.errstate(invalid="ignore", divide="ignore"):
                drawn_counts = counts @ weights.T
                scores = ((totals @ weights.T) / (drawn_counts if is_mean else drawn_counts > 0)).T
                usable = np.isfinite(scores)
                ranks = np.where(usable & member, rankdata(np.where(usable, scores, np.inf), axis=1), 0.0)
                m, n = ((usable & side).sum(axis=1) for side in (member, ~member))
                areas.append((ranks.sum(axis=1) - m * (m + 1) / 2) / (m * n))
            falling = np.where(usable & counted & ~member, -scores, np.inf)
            highest = np.full(len(scores), -np.inf)
            if allowed < falling.shape[1]:
                highest = -np.partition(falling, allowed, axis=1)[:, allowed]
            rates.append(((usable & member) & (scores > highest[:, np.newaxis])).sum(axis=1) / num_members)
        return np.concatenate(areas), np.concatenate(rates)


def _widen_by_draws(estimate: Estimate, drawn: np.ndarray) -> Estimate:
    """Return a share or AUC with an interval that accounts for the choice of words as well as for that of individuals.
    ``drawn`` has the values of the share or AUC in bootstrap resamples of the words."""
    if estimate.value is None:
        return estimate
    drawn = drawn[np.isfinite(drawn)]
    low, high = np.quantile(drawn, TAILS) if len(drawn) else (0.0, 1.0)
    return estimate.widened(estimate.value - float(low), float(high) - estimate.value)


def _occurrences_of(
    subjects: np.ndarray,
    words: np.ndarray,
    word_of_row: np.ndarray,
    unit_of_row: np.ndarray,
    rows_to_search: np.ndarray,
) -> _Pairs:
    """Return the places in others' texts where the words of attacked individuals occur. An individual and a word are
    paired in ``subjects`` and ``words``; the other arrays give the word and the user of each place, and the places to
    search."""
    order = rows_to_search[np.argsort(word_of_row[rows_to_search], kind="stable")]
    first, end = (np.searchsorted(word_of_row[order], words, side=side) for side in ("left", "right"))
    lengths = end - first
    rows = np.repeat(np.arange(len(subjects)), lengths)
    places = order[np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))]
    kept = unit_of_row[places] != subjects[rows]
    return _Pairs(subjects[rows][kept], words[rows][kept], unit_of_row[places][kept], places[kept])


def _word_scores(token_scores: np.ndarray, occurrences: _Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct (attacked individual, word) pairs, int (2, n), and a score of each, float64 (n,): the mean of
    ``token_scores`` where the word occurs in each other individual's texts, averaged over these individuals."""
    known = np.isfinite(token_scores[occurrences.place])
    columns = np.stack([occurrences.subject[known], occurrences.word[known], occurrences.other[known]])
    return _group_means(*_group_means(columns, token_scores[occurrences.place[known]], num=3), num=2)


def _group_means(columns: np.ndarray, values: np.ndarray, *, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Group ``values`` by the first ``num`` columns. Return the distinct combinations of these columns, int (num,
    groups), and the mean of the values in each group, float64."""
    groups, number = np.unique(columns[:num], axis=1, return_inverse=True)
    counts = np.bincount(number.ravel(), minlength=groups.shape[1])
    return groups, np.bincount(number.ravel(), values, minlength=groups.shape[1]) / counts
