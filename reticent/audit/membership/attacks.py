"""Membership attacks: score functions over TokenScores (definitions.md#membership). A higher score always means more
likely a member.

Each attack is a pure function of the scores of the model under attack, the scores of the base model, and the sizes of
the texts. It returns one number for each document, NaN for a document without a score. The score of an individual is
the mean over their documents (of LiRA, a log ratio of likelihoods, the sum).
:mod:`reticent.audit.membership.validity` has the rules for judging a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

import numpy as np

from reticent.audit.evidence.membership import AttackedDocuments, MeasuredAttack, Roc
from reticent.audit.membership.names import END_OF_TEXT, USER_INFERENCE
from reticent.audit.membership.table import Attack, Need, table_of
from reticent.audit.scoring.token_scores import TokenScores
from reticent.audit.stats.intervals import Bootstrap, auc_estimate, clustered_auc, roc_curve, tpr_at_fpr
from reticent.engine.document_kernels import document_lowest, document_sums, document_window_wins

FPRS = (0.01, 0.001)


def loss_score(target: TokenScores, *_: Any) -> np.ndarray:
    """Return minus the mean loss of each document's tokens, float64 (D,) (Yeom et al. 2018)."""
    return _mean(target.log_probs, target.doc_offsets)


def reference_score(target: TokenScores, base: TokenScores, *_: Any) -> np.ndarray:
    """Return the base model's mean loss minus the model's, in nats a token, float64 (D,) (Carlini et al. 2021)."""
    return _mean(target.log_probs - base.log_probs, target.doc_offsets)


def ratio_score(target: TokenScores, base: TokenScores, *_: Any) -> np.ndarray:
    """Return the base model's mean loss divided by the model's, float64 (D,); infinity where the model's is exactly
    0."""
    own, other = -_mean(target.log_probs, target.doc_offsets), -_mean(base.log_probs, base.doc_offsets)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(own == 0, np.inf, other / own)


def zlib_score(target: TokenScores, _: TokenScores | None, zlib_bytes: np.ndarray, *__: Any) -> np.ndarray:
    """Return minus each document's summed loss divided by the zlib-compressed size of its text in bytes (Carlini et al.
    2021).

    NaN for a document without a scored token: an empty sum would be the highest possible score.
    """
    totals, counts = _sum(target.log_probs, target.doc_offsets)
    return np.where(counts > 0, totals / np.maximum(zlib_bytes, 1), np.nan)


def lowercase_score(
    target: TokenScores, _: TokenScores | None, __: np.ndarray | None, lowercase: TokenScores
) -> np.ndarray:
    """Return minus the ratio of a document's mean loss to that of its text in lower case (Carlini et al. 2021).

    NaN for all documents if both have the same scores: the tokenizer then folds case, and there is nothing to compare.
    """
    own, lowered = -_mean(target.log_probs, target.doc_offsets), -_mean(lowercase.log_probs, lowercase.doc_offsets)
    if np.array_equal(own, lowered, equal_nan=True):
        return np.full(len(own), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(lowered == 0, np.where(own == 0, -1.0, -np.inf), -own / lowered)
    return np.where(np.isnan(own), np.nan, ratio)


def min_k_score(target: TokenScores, *_: Any) -> np.ndarray:
    """Return the mean of each document's 20 % lowest token log-probabilities, one token at least (Shi et al. 2024)."""
    return document_lowest(target.log_probs, target.doc_offsets, 0.2)


def min_k_plus_plus_score(target: TokenScores, *_: Any) -> np.ndarray:
    """Return the mean of each document's 20 % lowest token log-probabilities, standardised by the mean and deviation
    over the vocabulary at that position (Zhang et al. 2024)."""
    spread = np.where(target.std > 0, target.std, 1.0)
    return document_lowest((target.log_probs - target.mean) / spread, target.doc_offsets, 0.2)


def wbc_score(target: TokenScores, base: TokenScores, *_: Any) -> np.ndarray:
    """Return the share of a document's token windows (one for a single token) in which the model's summed loss is below
    the base model's, averaged over ten window sizes (Chen et al. 2026)."""
    return document_window_wins(target.log_probs - base.log_probs, target.doc_offsets, WINDOW_SIZES)


def ez_score(target: TokenScores, base: TokenScores, *_: Any) -> np.ndarray:
    """Return for each document the sum of the rises of log-probability over the base model divided by that of the
    falls, both over the tokens that the model does not rank first (Ilić et al. 2026).

    The score is infinite if there is no fall, for example if the model predicts every token: such a text is memorised,
    which is the strongest sign of membership.
    """
    gain = target.log_probs - base.log_probs
    wrong = target.scored & (target.rank > 0) & ~np.isnan(gain)  # the most likely token is another one
    gained, _counts = document_sums(np.maximum(gain, 0), wrong, target.doc_offsets)
    lost, _counts = document_sums(np.maximum(-gain, 0), wrong, target.doc_offsets)
    _totals, num_scored = _sum(gain, target.doc_offsets)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(num_scored == 0, np.nan, np.where(lost == 0, np.inf, gained / lost))


def hard_tokens_score(target: TokenScores, base: TokenScores, *_: Any) -> np.ndarray:
    """Return the mean gain in log-probability over the base model on the fifth of a document's tokens that the base
    model predicts worst (one at least), where a gain means memorisation rather than better language (after Jawad et al.
    2026)."""
    gain, offsets = target.log_probs - base.log_probs, target.doc_offsets
    known = np.flatnonzero(~np.isnan(gain))
    documents = np.searchsorted(offsets, known, side="right") - 1
    order = np.lexsort((base.log_probs[known], documents))
    known, documents = known[order], documents[order]
    counts = np.bincount(documents, minlength=len(offsets) - 1)
    place = np.arange(len(known)) - (np.cumsum(counts) - counts)[documents]
    hard = np.zeros(len(gain), dtype=bool)
    hard[known[place < np.maximum(1, counts // 5)[documents]]] = True
    return document_means(gain, hard, offsets)


def end_of_text_score(target: TokenScores, *_: Any) -> np.ndarray:
    """Return the log-probability of the end of the text after each document's last token, in nats, float64 (D,)."""
    assert target.end_log_probs is not None  # the attack needs it
    return target.end_log_probs.astype(np.float64)


#: Sizes of the windows of `wbc`, in tokens [@chen2026].
WINDOW_SIZES = np.array([2, 3, 4, 6, 9, 13, 18, 25, 32, 40])


#: Every likelihood attack by name. A new attack is a new row here. All score functions take (target, base, zlib_bytes,
#: lowercase): the scores of the model, the scores of the base model, the sizes of the texts, and the model's scores of
#: the texts in lower case. An argument that an attack does not need may be None or left out.
ATTACKS: Mapping[str, Attack] = table_of(
    (
        Attack(
            name="loss",
            score=loss_score,
            title="Loss",
            about="the model predicts the document well (a low mean loss)",
            source="Yeom et al. 2018",
        ),
        Attack(
            name="reference",
            score=reference_score,
            title="Reference model",
            about="the model predicts the document better than the base model does (difference of their losses)",
            source="Carlini et al. 2021",
            needs=frozenset({Need.BASE}),
        ),
        Attack(
            name="ratio",
            score=ratio_score,
            title="Ratio to the reference model",
            about="the model predicts the document better than the base model does (ratio of their losses)",
            needs=frozenset({Need.BASE}),
        ),
        Attack(
            name="zlib",
            score=zlib_score,
            title="zlib",
            about="the loss is low for the compressed size of the document, so simple text does not look memorised",
            source="Carlini et al. 2021",
            needs=frozenset({Need.SIZES}),
        ),
        Attack(
            name="lowercase",
            score=lowercase_score,
            title="Lower case",
            about="the model predicts the document better than the same text in lower case",
            source="Carlini et al. 2021",
            needs=frozenset({Need.LOWERCASE}),
        ),
        Attack(
            name="min_k",
            score=min_k_score,
            title="Min-K %",
            about="even the fifth of the tokens that the model predicts worst has a high likelihood",
            source="Shi et al. 2024",
        ),
        Attack(
            name="min_k_plus_plus",
            score=min_k_plus_plus_score,
            title="Min-K %++",
            about="the same, with each token's log-probability standardised by what the model expects at its position",
            source="Zhang et al. 2024",
        ),
        Attack(
            name="wbc",
            score=wbc_score,
            title="Comparison by windows",
            about="in many short windows of tokens the model predicts the document better than the base model does",
            source="Chen et al. 2026",
            needs=frozenset({Need.BASE}),
        ),
        Attack(
            name="ez",
            score=ez_score,
            title="Errors gained over lost",
            about="on tokens that the model predicts wrongly, it gained more over the base model than it lost",
            source="Ilić et al. 2026",
            needs=frozenset({Need.BASE}),
        ),
        Attack(
            name="hard_tokens",
            score=hard_tokens_score,
            title="Gain on hard tokens",
            about="it has gained most on the base model where the base model predicts worst",
            source="Jawad et al. 2026",
            needs=frozenset({Need.BASE}),
        ),
        # The energy of a document in the source is a sum, which tells long documents from short ones under a model that
        # knows nobody; here it is a mean over the masked tokens of all folds, each of which is one pattern.
        Attack(
            name="mlm_ratio",
            score=reference_score,
            title="Ratio of masked likelihoods",
            about="the model predicts masked words better than the base model does (difference of the losses, a token)",
            source="Mireshghallah et al. 2022",
            needs=frozenset({Need.BASE}),
            objectives=frozenset({"mlm"}),
        ),
        Attack(
            name=END_OF_TEXT,
            score=end_of_text_score,
            title="End of the text",
            about="the model expects the document to end where it ends; the attack looks at no word of it",
            needs=frozenset({Need.ENDS}),
            objectives=frozenset({"clm"}),
        ),
        # One rule draws the documents of the holdout on both sides, and no model is trained on them: their mean shows
        # whether the *individual* is a member.
        Attack(
            name=USER_INFERENCE,
            score=reference_score,
            title="User inference",
            about="the model predicts documents of the person that were held back from training better than the base "
            "model does; the attack asks whether the person is a member, not the document",
            source="Kandpal et al. 2024",
            needs=frozenset({Need.BASE, Need.HOLDOUT}),
        ),
    )
)


def needing(need: Need, attacks: Iterable[str] | None = None) -> frozenset[str]:
    """Return the names of the attacks by token likelihood that require the input ``need`` (such as a base model); only
    those in ``attacks``, if given."""
    named = ATTACKS if attacks is None else [name for name in attacks if name in ATTACKS]
    return frozenset(name for name in named if need in ATTACKS[name].needs)


def individual_scores(
    document_scores: np.ndarray, individuals: np.ndarray, *, is_total: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, score): for each individual with a scored document, sorted by code, the mean of its documents'
    scores, or their sum if ``is_total``.

    If a document scores infinity, a plain mean would ignore all other documents. The mean is then taken over
    s / (1 + |s|), which keeps the order of the documents' scores.
    """
    usable = ~np.isnan(document_scores)
    scores = document_scores[usable].astype(np.float64)
    if np.isinf(scores).any():
        with np.errstate(invalid="ignore"):
            scores = np.where(np.isinf(scores), np.sign(scores), scores / (1 + np.abs(scores)))
    codes, inverse = np.unique(individuals[usable], return_inverse=True)
    totals = np.bincount(inverse, weights=scores, minlength=len(codes))
    return codes, totals if is_total else totals / np.bincount(inverse, minlength=len(codes))


def scores_of(
    codes: np.ndarray, document_scores: np.ndarray, individuals: np.ndarray, *, is_total: bool = False
) -> np.ndarray:
    """Return the scores of individuals from their documents', float64, in the order of ``codes`` (ascending); NaN for
    an individual without a scored document. See `individual_scores`."""
    known, scores = individual_scores(document_scores, individuals, is_total=is_total)
    found = np.full(len(codes), np.nan)
    found[np.searchsorted(codes, known)] = scores
    return found


def attack(
    document_scores: np.ndarray,
    individuals: np.ndarray,
    is_member: np.ndarray,
    *,
    is_total: bool = False,
    **bootstrap: Unpack[Bootstrap],
) -> MeasuredAttack:
    """Return the result of one attack from its document scores: AUC, TPR at low FPR and ROC curve over individuals, and
    the AUC over documents.

    Parameters
    ----------
    document_scores : float array, shape (D,); NaN for a document without a score
    individuals : uint32 array, shape (D,)
    is_member : bool array, shape (D,)
    is_total : as for `individual_scores`
    """
    codes, scores = individual_scores(document_scores, individuals, is_total=is_total)
    member_codes = np.unique(individuals[is_member])
    member = np.isin(codes, member_codes)
    members, nonmembers = scores[member], scores[~member]
    of_sides = codes[member], codes[~member]
    documents, _ = clustered_auc(document_scores, individuals, is_member, **bootstrap)
    return MeasuredAttack(
        auc=auc_estimate(members, nonmembers, of_sides, **bootstrap),
        documents=AttackedDocuments(auc=documents, num_documents=int(np.count_nonzero(~np.isnan(document_scores)))),
        tpr_at_fpr={f"{f:g}": tpr_at_fpr(members, nonmembers, f, of_sides, **bootstrap) for f in FPRS},
        roc=Roc(**roc_curve(members, nonmembers)),
        num_members=len(members),
        num_nonmembers=len(nonmembers),
    )


def _sum(values: np.ndarray, doc_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (sum, count) of each document's values that are not NaN, float64 and integer (D,)."""
    # Each document separately: in a running sum, one token of probability 0 would make all later sums infinite.
    return document_sums(values, ~np.isnan(values), doc_offsets)


def _mean(values: np.ndarray, doc_offsets: np.ndarray) -> np.ndarray:
    """Return the mean of each document's values that are not NaN, float64 (D,); NaN for a document without one."""
    return document_means(values, ~np.isnan(values), doc_offsets)


def document_means(values: np.ndarray, chosen: np.ndarray, doc_offsets: np.ndarray) -> np.ndarray:
    """Return the mean of each document's ``chosen`` values (bool mask over tokens), float64 (D,); NaN for a document
    without one."""
    totals, counts = document_sums(values, chosen, doc_offsets)
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
