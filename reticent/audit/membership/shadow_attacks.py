"""Attacks with shadow models: pure functions of the scores of a model and its shadows (definitions.md#shadow-models).

A shadow is trained like the model under attack, on a random half of the individuals. So for every document there are
shadows trained on it (*in*) and shadows that were not (*out*). A higher score always means more likely a member.

The observable of a document is its mean log-probability (Hayes et al. 2025 use the loss for LiRA on language models).
Subtracting the base model's would change nothing, because it is the same for every shadow. The observable of a token is
the logit of its probability, log p - log(1 - p): predicting a token is a classification, and Carlini et al. (2022)
found that this logit is close to a Gaussian.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from reticent.audit.membership.attacks import document_means

#: The pooled variance has the weight of this many shadows. It decides if shadows are few; with hundreds of shadows the
#: variance of each text decides.
PRIOR_SHADOWS = 32
#: A variance of exactly 0 (identical shadows) would make every score infinite.
LEAST_VARIANCE = 1e-12
#: Log-probabilities beyond these limits come from the rounding of a float32 softmax, not from confidence.
LOG_PROB_LIMITS = (-100.0, -1e-6)
LEAST_PROBABILITY = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True)
class Gaussians:
    """Means and variances of n numbers over the in-shadows and over the out-shadows; float64 (n,) each."""

    mean_in: np.ndarray
    variance_in: np.ndarray
    mean_out: np.ndarray
    variance_out: np.ndarray

    @classmethod
    def of_one_spread(cls, mean_in: np.ndarray, mean_out: np.ndarray) -> Gaussians:
        """Return Gaussians with these means and variance 1, for too few shadow models to estimate a variance. The
        scores then have the right order but no meaningful scale."""
        one = np.ones(len(mean_in))
        return cls(mean_in, one, mean_out, one)


def fit_gaussians(shadows: Iterable[tuple[np.ndarray, np.ndarray]], *, prior: float = PRIOR_SHADOWS) -> Gaussians:
    """Fit two Gaussians to each of n numbers (such as the loss of a document): its values under the shadow models
    trained on it, and under the others. ``shadows`` yields for each shadow (values (n,), trained on it bool (n,)).

    A variance over four values is uncertain, and this is why LiRA fails with few shadows. So the variance of each side
    is (S + m·s0²) / (d + m). S is the sum of squares around the mean of its d + 1 values, s0² is the variance within
    numbers, pooled over all of them and both sides (the global variance of Carlini et al.), and m = 32. With few
    shadows LiRA is then nearly linear in a number, so a value beyond both means counts for the nearer one. ``prior`` is
    m; 0 gives the textbook variance of each number alone (NaN for a single value).

    Cost: one pass; memory is six numbers for each of the n, independent of the number of shadows.

    Raises
    ------
    ValueError
        On one side no number has two values, so its spread is unknown.
    """
    count = total = squares = np.zeros((2, 0))
    for values, is_in in shadows:
        if not count.shape[1]:
            count, total, squares = (np.zeros((2, len(values))) for _ in range(3))
        for side, chosen in enumerate((~is_in, is_in)):
            kept = np.where(chosen, values, 0.0).astype(np.float64)
            count[side] += chosen
            total[side] += kept
            squares[side] += kept * kept
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
        within = np.maximum(squares - total * mean, 0.0)
    freedom = np.maximum(count - 1, 0)
    known = ~np.isnan(within)
    total_freedom = freedom.sum(axis=1, where=known)
    if count.shape[1] and not total_freedom.all():
        raise ValueError("shadows: expected two of them on each side of some text")
    pooled = within.sum(where=known) / max(total_freedom.sum(), 1)
    with np.errstate(invalid="ignore"):
        variance = (np.where(known, within, 0.0) + prior * pooled) / (freedom + prior)
    variance = np.maximum(variance, LEAST_VARIANCE)
    return Gaussians(mean[1], variance[1], mean[0], variance[0])


def mean_where(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the mean over rows of the chosen values, float64 (columns,); NaN where none is chosen."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(chosen, values, 0.0).sum(axis=0) / chosen.sum(axis=0))


def lira_online_score(values: np.ndarray, shadows: Gaussians) -> np.ndarray:
    """Return the LiRA score of each number v, float64 (n,): log N(v; in) - log N(v; out), with the Gaussians of the
    shadow models trained and not trained on it (Carlini et al. 2022, algorithm 1)."""
    known = (values - shadows.mean_in) ** 2 / shadows.variance_in + np.log(shadows.variance_in)
    unknown = (values - shadows.mean_out) ** 2 / shadows.variance_out + np.log(shadows.variance_out)
    return (unknown - known) / 2


def lira_offline_score(values: np.ndarray, shadows: Gaussians) -> np.ndarray:
    """Return the offline LiRA score of each number v, float64 (n,): -log(1 - Φ((v - mean_out) / σ_out)), from shadow
    models not trained on it alone.

    The order of the numbers is that of Φ itself, but they do not all round to one value where Φ is 1. The mean over an
    individual's documents is Fisher's method of combining their p-values.
    """
    return -log_ndtr(-(values - shadows.mean_out) / np.sqrt(shadows.variance_out))


def lira_sequence_score(log_probs: np.ndarray, doc_offsets: np.ndarray, shadows: Gaussians) -> np.ndarray:
    """Return the mean of LiRA's log ratio over each document's tokens, float64 (D,); NaN without a scored token.

    A sum would follow the length of the document, in which the sides may differ. This is a diagonal form of the
    sequence attack (Rossi et al. 2025). Every token has its own Gaussians, so the few tokens that reveal a document are
    not lost in its mean. Covariances between tokens are not modelled, because a few shadows cannot estimate them.

    Parameters
    ----------
    log_probs : float array, shape (T,); NaN where not scored
    shadows : Gaussians of `logit_confidence` of the same tokens
    """
    ratios = lira_online_score(logit_confidence(log_probs), shadows)
    return document_means(ratios, ~np.isnan(ratios), doc_offsets)


def logit_confidence(log_probs: np.ndarray) -> np.ndarray:
    """Return the logit log p - log(1 - p) of each log-probability, float64, with log p clipped to the range that
    float32 resolves; NaN stays NaN."""
    clipped = np.clip(log_probs.astype(np.float64), *LOG_PROB_LIMITS)
    return clipped - np.log(-np.expm1(clipped))


def offline_probability(out: np.ndarray, slope: float) -> np.ndarray:
    """Return RMIA's estimate of a document's average probability p(x) from shadow models not trained on it alone: ((1 +
    a) p_out(x) + (1 - a)) / 2 (Zarifzadeh et al. 2024). ``slope`` is a; a = 1 gives p_out itself."""
    return ((1 + slope) * out + (1 - slope)) / 2


def online_probability(known: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return RMIA's p(x), a document's average probability: half the mean over shadows trained on it, ``known``, and
    half that over the others, ``out``."""
    return (known + out) / 2


def fit_offline_slope(known: np.ndarray, out: np.ndarray) -> float:
    """Return RMIA's slope a, from 0 to 1, with which `offline_probability` comes closest to `online_probability`.
    ``known`` and ``out`` are mean probabilities under shadow models trained, and not trained, on each document.

    The fit minimises the squared relative error, because RMIA compares ratios. With the absolute error, a few easy
    texts would decide the fit.
    """
    missing = (1 - out) / np.maximum(online_probability(known, out), LEAST_PROBABILITY)
    wanted = (1 - known) / np.maximum(online_probability(known, out), LEAST_PROBABILITY)
    total = float(np.sum(missing**2))
    return float(np.clip(np.sum(wanted * missing) / total, 0.0, 1.0)) if total else 1.0


def informia_score(target: np.ndarray, average: np.ndarray, population: np.ndarray) -> np.ndarray:
    """Return InfoRMIA's score of each document x: log p_θ(x) - log p(x), less its mean over the population (Tao and
    Shokri 2026).

    That mean estimates minus the divergence of p_θ from p. The order of documents is RMIA's, without its ties: a score
    over the whole population is still ranked, and individuals are means of information, not of shares.

    Parameters
    ----------
    target, average, population : as for `rmia_score`
    """
    gain = np.log(np.maximum(target, LEAST_PROBABILITY)) - np.log(np.maximum(average, LEAST_PROBABILITY))
    beside = gain[population & ~np.isnan(gain)]
    return gain - beside.mean() if len(beside) else np.full(len(gain), np.nan)


def rmia_score(target: np.ndarray, average: np.ndarray, population: np.ndarray, *, gamma: float = 1.0) -> np.ndarray:
    """Return RMIA's score of each document x: the share of the population's documents z with (p_θ(x) / p(x)) / (p_θ(z)
    / p(z)) >= gamma.

    Parameters
    ----------
    target, average : float64, shape (D,)
        p_θ and p of each document: the geometric mean of its tokens' probabilities. The probability of the whole text
        would vanish against the 1 - a of `offline_probability`.
    population : bool, shape (D,)
        The documents z. None of them may be a candidate.

    Cost: a sort of the population.
    """
    with np.errstate(divide="ignore"):
        ratio = np.log(target) - np.log(np.maximum(average, LEAST_PROBABILITY))
    beside = np.sort(ratio[population & ~np.isnan(ratio)])
    if not len(beside):
        return np.full(len(ratio), np.nan)
    shares = np.searchsorted(beside, ratio - np.log(gamma), side="right") / len(beside)
    return np.where(np.isnan(ratio), np.nan, shares)


def attack_classifier_score(features: np.ndarray, is_in: np.ndarray, *targets: np.ndarray) -> list[np.ndarray]:
    """Return the log-odds of membership by a logistic regression trained on shadows' ``features``, one float64 (D,) for
    each of ``targets`` [@shokri2017].

    The classifier is a logistic regression on standardised features. It is trained on the features of texts under
    in-shadows and under out-shadows, and does not see which text it scores.

    Parameters
    ----------
    features : float64, shape (rows, features); is_in : bool, shape (rows,)
    targets : float64, shape (D, features) each; the score of a row with a NaN is NaN
    """
    from sklearn.linear_model import LogisticRegression

    usable = np.isfinite(features).all(axis=1)
    rows, known = features[usable], is_in[usable]
    centre, spread = rows.mean(axis=0), rows.std(axis=0)
    spread[spread == 0] = 1.0
    model = LogisticRegression().fit((rows - centre) / spread, known)
    scores = []
    for target in targets:
        score = np.full(len(target), np.nan)
        asked = np.isfinite(target).all(axis=1)
        if asked.any():
            score[asked] = model.decision_function((target[asked] - centre) / spread)
        scores.append(score)
    return scores
