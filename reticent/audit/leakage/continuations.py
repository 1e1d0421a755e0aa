"""BLEU and ROUGE of a causal model's continuations against those of the documents (definitions.md#utility).

BLEU is computed by sacrebleu over all continuations of a side together (tokenizer "13a", exponential smoothing), on a
scale from 0 to 1. ROUGE-1, -2 and -L are F-measures of rouge-score, as means over continuations. rouge-score's own
tokenizer keeps ASCII letters and digits only; here tokens are runs of letters and digits of any script, case folded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from reticent.audit.evidence.leakage import Continuations
from reticent.audit.stats.clusters import Bootstrap, cluster_sums, clusters_of, iter_resamples
from reticent.audit.stats.estimate import LEVEL, Estimate
from reticent.audit.stats.statistics import ratio_estimate

__all__ = ["bleu_counts", "bleu_of", "continuations", "rouge_scores"]

#: Longest n-gram of BLEU, and the columns of its counts: matches, n-grams, length of the text, length of the reference.
MAX_ORDER = 4
ROUGE = ("rouge1", "rouge2", "rougeL")
_TAILS = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]


class _Tokens:
    """Runs of letters and digits, case folded."""

    def tokenize(self, text: str) -> list[str]:
        return re.findall(r"[^\W_]+", text.casefold())


def bleu_counts(texts: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a") -> np.ndarray:
    """Return sacrebleu's counts of each text against its references: float64, shape (texts, 2 x MAX_ORDER + 2)."""
    from sacrebleu.metrics import BLEU

    bleu = BLEU(effective_order=True, tokenize=tokenize, max_ngram_order=MAX_ORDER)
    rows = []
    for text, own in zip(texts, references, strict=True):
        score: Any = bleu.sentence_score(text, list(own))
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows, dtype=np.float64).reshape(len(rows), 2 * MAX_ORDER + 2)


def bleu_of(counts: np.ndarray) -> np.ndarray:
    """Return BLEU, 0 to 1, of sums of counts: float64, one a row.

    An order without a match is smoothed as by default in sacrebleu: it counts as 1/2, 1/4, … of a match.
    """
    found, total = counts[:, :MAX_ORDER], counts[:, MAX_ORDER : 2 * MAX_ORDER]
    length, reference = counts[:, -2], counts[:, -1]
    missed = (found == 0) & (total > 0)
    smooth = np.where(missed, 0.5 ** np.cumsum(missed, axis=1), found)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(total > 0, smooth / total, 0.0)
        brevity = np.where(length < reference, np.exp(1 - reference / length), 1.0)
        value = brevity * np.exp(np.log(precision).mean(axis=1))
    return np.where((length > 0) & (found[:, 0] > 0), value, 0.0)


def rouge_scores(texts: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return the F-measures of ROUGE-1, -2 and -L: float64, shape (texts, 3)."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(list(ROUGE), tokenizer=_Tokens())
    scores = (scorer.score(reference, text) for text, reference in zip(texts, references, strict=True))
    rows = [[score[name].fmeasure for name in ROUGE] for score in scores]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(ROUGE))


def continuations(
    texts: Sequence[str], references: Sequence[str], individuals: np.ndarray, **bootstrap: Unpack[Bootstrap]
) -> Continuations:
    """Return BLEU and ROUGE of texts against the documents' own continuations, with intervals clustered by individual.

    Parameters
    ----------
    individuals : int array, shape (texts,)

    Cost: about a millisecond a text.
    """
    codes, row = np.unique(individuals, return_inverse=True)
    row = row.reshape(-1)
    num = np.bincount(row, minlength=len(codes)).astype(np.float64)
    counts = np.zeros((len(codes), 2 * MAX_ORDER + 2))
    np.add.at(counts, row, bleu_counts(texts, [[reference] for reference in references]))
    rouge = rouge_scores(texts, references)
    sums = [np.bincount(row, weights=column, minlength=len(codes)) for column in rouge.T]
    rouge1, rouge2, rouge_l = (ratio_estimate(own, num, codes, **bootstrap) for own in sums)
    return Continuations(bleu=_bleu_estimate(counts, codes, **bootstrap), rouge1=rouge1, rouge2=rouge2, rouge_l=rouge_l)


def _bleu_estimate(
    counts: np.ndarray, codes: np.ndarray, *, num_bootstrap: int, seed: int, units: np.ndarray | None = None
) -> Estimate:
    clusters = clusters_of(codes, units)
    if clusters is not None:
        sums = cluster_sums(counts, clusters)
        return _bleu_estimate(sums, codes, num_bootstrap=num_bootstrap, seed=seed).over_households(len(counts))
    if not len(counts):
        return Estimate(value=None, n=0, method="no individual has any")
    value = float(bleu_of(counts.sum(axis=0, keepdims=True))[0])
    if len(counts) == 1:
        return Estimate(value=value, low=0.0, high=1.0, n=1, method="one individual: no interval")
    draws = [bleu_of(weights @ counts) for weights in iter_resamples(len(counts), num_bootstrap, seed)]
    low, high = np.quantile(np.concatenate(draws), _TAILS)
    return Estimate(value=value, low=float(min(low, value)), high=float(max(high, value)), n=len(counts))
