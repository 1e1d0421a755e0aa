"""Attacks on a classifier or a tagger: pure functions of the label probabilities that it gives to documents.

A *head* (definitions.md#classifiers-and-taggers) is what was trained on top of a language model. With logits an
attacker sees the probabilities of all labels, label-only the predicted label. Shadow heads are trained like it from
the same checkpoint, each on a random half of the members and held-out individuals together
(:mod:`reticent.audit.membership.shadow`). A higher score always means more likely a member.

D documents, S shadow heads.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from reticent.audit.membership.names import CLASSIFIER, TAGGER
from reticent.audit.membership.shadow_attacks import (
    Gaussians,
    attack_classifier_score,
    fit_gaussians,
    lira_offline_score,
    lira_online_score,
    logit_confidence,
    mean_where,
)
from reticent.audit.membership.table import Attack, Need, table_of
from reticent.core.errors import ArtifactError

#: A label with fewer documents shares the attack classifier of all such labels.
FEWEST_OF_LABEL = 50


@dataclass(frozen=True, slots=True)
class HeadScores:
    """A head's outputs for D documents.

    Attributes
    ----------
    own, top, entropy : float64 (D,)
        Log-probability of the true label and of the likeliest label, and the entropy over labels, in nats; of a tagger
        the means over the tokens.
    right : float64 (D,), 1 where the predicted label is the true one, else 0; of a tagger the share of such tokens
    label : int64 (D,), the true label; 0 of a tagger
    """

    own: np.ndarray
    top: np.ndarray
    entropy: np.ndarray
    right: np.ndarray
    label: np.ndarray

    @classmethod
    def of_classes(cls, log_probs: np.ndarray, label: np.ndarray) -> HeadScores:
        """Return a classifier's scores on D documents: log-probability of the true and of the likeliest label, entropy,
        right or wrong. ``log_probs`` is float64 (D, C); of equally likely classes the first is the prediction."""
        with np.errstate(invalid="ignore"):
            entropy = -np.nansum(np.exp(log_probs) * log_probs, axis=1)
        right = (log_probs.argmax(axis=1) == label).astype(np.float64)
        return cls(log_probs[np.arange(len(label)), label], log_probs.max(axis=1), entropy, right, label)

    @property
    def features(self) -> np.ndarray:
        """Features of an attack classifier, float64 (D, 3): logit of the true label's probability, logit of the
        likeliest label's, entropy."""
        return np.stack([logit_confidence(self.own), logit_confidence(self.top), self.entropy], axis=1)

    def save(self, path: Path, is_in: np.ndarray) -> None:
        """Write the scores of a shadow classifier or tagger to a file; ``is_in``, bool (D,), marks the documents that
        it was trained on."""
        np.savez(path, is_in=is_in, **{part.name: getattr(self, part.name) for part in fields(self)})

    @classmethod
    def load(cls, path: Path) -> tuple[HeadScores, np.ndarray]:
        """Read what `save` wrote; return (scores of a shadow classifier or tagger, bool mask (D,) of the documents that
        it was trained on)."""
        try:
            with np.load(path) as kept:
                return cls(**{part.name: kept[part.name] for part in fields(cls)}), kept["is_in"]
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ArtifactError(f"{path}: not readable scores of a shadow ({type(error).__name__})") from None


class HeadShadows:
    """The scores of S shadow heads for D documents, and which documents each was trained on, bool (S, D)."""

    def __init__(self, shadows: Sequence[tuple[HeadScores, np.ndarray]]):
        self.scores = [scores for scores, _ in shadows]
        self.is_in = np.stack([known for _, known in shadows])

    @cached_property
    def features(self) -> np.ndarray:
        """The attack features of each document under each shadow classifier or tagger, float64 (S, D, 3); see
        `HeadScores.features`."""
        return np.stack([scores.features for scores in self.scores])

    @cached_property
    def gaussians(self) -> Gaussians:
        """For each document, a Gaussian of the logit of its true label over the shadow models trained on it, and one
        over the others."""
        return fit_gaussians(zip(self.features[:, :, 0], self.is_in, strict=True))

    def out_mean(self, values: np.ndarray) -> np.ndarray:
        """Return each document's mean of ``values``, (S, D), over the shadow classifiers or taggers that were not
        trained on it; float64 (D,)."""
        return mean_where(values, ~self.is_in)


def shadow_score(target: HeadScores, shadows: HeadShadows) -> np.ndarray:
    """Return the log-odds of membership by an attack classifier trained on the outputs of shadow models, one for each
    label (Shokri et al. 2017); labels of fewer than `FEWEST_OF_LABEL` documents share a classifier."""
    found = np.full(len(target.own), np.nan)
    counts = np.bincount(target.label)
    group = np.where(counts >= FEWEST_OF_LABEL, np.arange(len(counts)), -1)[target.label]
    for number in np.unique(group):
        chosen = group == number
        rows = shadows.features[:, chosen].reshape(-1, 3)
        (found[chosen],) = attack_classifier_score(rows, shadows.is_in[:, chosen].ravel(), target.features[chosen])
    return found


def lira_score(target: HeadScores, shadows: HeadShadows) -> np.ndarray:
    """Return LiRA's log likelihood ratio of the logit of the true label's probability, float64 (D,) (Carlini et al.
    2022, algorithm 1)."""
    return lira_online_score(target.features[:, 0], shadows.gaussians)


def offline_score(target: HeadScores, shadows: HeadShadows) -> np.ndarray:
    """Return the offline LiRA score of each document, float64 (D,): how far the logit of its true label lies above
    those of shadow models not trained on it."""
    return lira_offline_score(target.features[:, 0], shadows.gaussians)


def label_only_shadow_score(target: HeadScores, shadows: HeadShadows) -> np.ndarray:
    """Return the log likelihood ratio of a document being in the training set, float64 (D,), from whether the
    classifier's answer is right, by how often shadow classifiers trained on it, and not trained on it, are right.

    p is (number of right in-shadows + 1) / (number of in-shadows + 2), and q the same of the out-shadows:
    LiRA on an attacker who sees labels alone, with Laplace's rule, as a handful of shadows may all be right.
    """
    right = np.stack([scores.right for scores in shadows.scores])
    p, q = (
        (np.where(side, right, 0.0).sum(axis=0) + 1) / (side.sum(axis=0) + 2)
        for side in (shadows.is_in, ~shadows.is_in)
    )
    return target.right * np.log(p / q) + (1 - target.right) * np.log((1 - p) / (1 - q))


_SHADOWS, _HEADS = frozenset({Need.SHADOWS}), frozenset({CLASSIFIER, TAGGER})
#: Every attack on a head by name; a score function takes its scores and the shadow heads.
HEAD_ATTACKS: Final[Mapping[str, Attack]] = table_of(
    (
        Attack(
            name="label_loss",
            score=lambda target, *_: target.own,  # minus the cross entropy
            title="Loss of the label",
            about="it gives the true label a high probability",
            source="Yeom et al. 2018",
            objectives=_HEADS,
        ),
        Attack(
            name="label_confidence",
            score=lambda target, *_: target.top,  # adversary 3 of the source
            title="Confidence",
            about="it is sure of its answer, right or wrong; the attacker need not know the true label",
            source="Salem et al. 2019",
            objectives=_HEADS,
        ),
        Attack(
            name="label_only",
            score=lambda target, *_: target.right,  # the gap attack of Yeom et al. 2018
            title="Right or wrong",
            about="its answer is the true label; the attacker sees no probability",
            source="Choquette-Choo et al. 2021",
            objectives=_HEADS,
        ),
        Attack(
            name="label_shadow",
            score=shadow_score,
            title="Attack classifier, label by label",
            about="a classifier for each label that was trained on the answers of shadow heads predicts membership",
            source="Shokri et al. 2017",
            needs=_SHADOWS,
            objectives=_HEADS,
        ),
        Attack(
            name="label_lira",
            score=lira_score,
            title="LiRA on the label",
            about="the probability of the true label fits shadow heads that were trained on the document better than "
            "those that were not",
            source="Carlini et al. 2022",
            needs=_SHADOWS,
            is_total=True,
            objectives=_HEADS,
        ),
        Attack(
            name="label_lira_offline",
            score=offline_score,
            title="LiRA on the label, offline",
            about="the true label is likelier than under shadow heads that were not trained on the document",
            source="Carlini et al. 2022",
            needs=_SHADOWS,
            objectives=_HEADS,
        ),
        Attack(
            name="label_only_shadow",
            score=label_only_shadow_score,
            title="Right or wrong, with shadow heads",
            about="its answer fits shadow heads that were trained on the document better than those that were not; the "
            "attacker sees no probability",
            source="Choquette-Choo et al. 2021",
            needs=_SHADOWS,
            is_total=True,
            objectives=_HEADS,
        ),
    )
)


def head_scores(target: HeadScores, shadows: HeadShadows | None) -> dict[str, np.ndarray]:
    """Return attack name -> score of each document, float64 (D,), for all attacks on a classifier or tagger; without
    ``shadows`` only for those that need no shadow models."""
    rows = [row for row in HEAD_ATTACKS.values() if shadows is not None or Need.SHADOWS not in row.needs]
    return {row.name: row.score(target, shadows) for row in rows}


def head_controls(shadows: HeadShadows | None) -> dict[str, np.ndarray]:
    """Return attack name -> control scores of the documents, float64 (D,), for attacks that need no shadow models: the
    mean score under shadow classifiers or taggers not trained on the document. Empty without shadows."""
    if shadows is None:
        return {}
    rows = [row for row in HEAD_ATTACKS.values() if Need.SHADOWS not in row.needs]
    return {row.name: shadows.out_mean(np.stack([row.score(each) for each in shadows.scores])) for row in rows}
